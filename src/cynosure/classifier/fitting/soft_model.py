"""The model of arXiv 2407.01602 in its trainable form, and the loop that trains it.

A text enters as its *distinct* terms j with multiplicities c_j, equal tokens being one value class
(docs/mathematics.md C4). With m = sum_j c_j

    P_ij = c_j exp(<z_i, z_j> / tau) / sum_l c_l exp(<z_i, z_l> / tau)
    z_i <- (z_i + alpha sum_j P_ij z_j) / (1 + alpha),   decision = b + <v, sum_i c_i z_i / m>

is the model on the sequence of its words; c = 0 is padding, alpha = softplus(step) > 0, and tau = 0
is hardmax. torch is imported when it is used.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

Tensor: TypeAlias = Any  # of torch, which need not be installed
Weights: TypeAlias = Mapping[str, Tensor]


class Network(abc.ABC):
    """Layers that carry the tokens of a text, whose mean token is then read by a linear decoder;
    `terms` and `count` (texts, n) are the distinct terms of each text and their multiplicities."""

    def initial(
        self, terms: int, dim: int, alpha: float, draw: Any, rows: tuple[int, ...] = ()
    ) -> dict[str, Tensor]:
        """Random weights by the torch generator `draw`; `rows` of the decoder, () for one row."""
        import torch

        return {
            "embedding": torch.randn((terms, dim), generator=draw),
            "step": torch.tensor(math.log(math.expm1(alpha))),
            "v": torch.randn((*rows, dim), generator=draw) / math.sqrt(dim),
            "b": torch.zeros(rows),
        }

    @abc.abstractmethod
    def carried(self, weights: Weights, terms: Tensor, count: Tensor) -> Tensor:
        """Tokens after the last layer (texts, n, d), differentiable in `weights`."""

    def decisions(self, weights: Weights, terms: Tensor, count: Tensor) -> Tensor:
        """b + <v, mean token> of each text: (texts,) or (texts, rows)."""
        import torch

        share = count / count.sum(dim=1, keepdim=True)
        mean = (share[:, None, :] @ self.carried(weights, terms, count))[:, 0]
        return torch.nn.functional.linear(mean, weights["v"]) + weights["b"]


@final
@dataclass(frozen=True)
class SoftLayers(Network):
    """`layers` layers of pure attention with softmax at `temperature`; 0 is hardmax."""

    layers: int = 8
    temperature: float = 1e-3

    def carried(self, weights: Weights, terms: Tensor, count: Tensor) -> Tensor:
        z, eta = embedded(weights, terms), step(weights)
        for _ in range(self.layers):
            z = z.lerp(pull(z, z, count, self.temperature), eta)
        return z


def embedded(weights: Weights, terms: Tensor, name: str = "embedding") -> Tensor:
    """The tokens of the terms (texts, n, d)."""
    import torch

    return torch.nn.functional.embedding(terms, weights[name])


def step(weights: Weights) -> Tensor:
    """eta = alpha / (1 + alpha): a layer moves a token this share of the way to its pull."""
    import torch

    alpha = torch.nn.functional.softplus(weights["step"])
    return alpha / (1 + alpha)


def pull(
    z: Tensor, q: Tensor, count: Tensor, temperature: float, keys: Tensor | None = None
) -> Tensor:
    """P z with scores <q_i, k_j>, k = q if not given. At temperature 0 ties are those of rounded
    scores, and the sets C_i are held constant: the gradient of hardmax almost everywhere."""
    k = (q if keys is None else keys).transpose(1, 2)
    if temperature > 0:
        score = count.log()[:, None, :].baddbmm(q, k, alpha=1 / temperature)
        return score.softmax(dim=-1) @ z
    score = (q @ k).masked_fill(count[:, None, :] == 0, -math.inf)
    tied = (score == score.amax(dim=-1, keepdim=True)) * count[:, None, :]
    return (tied / tied.sum(dim=-1, keepdim=True)).detach() @ z


class Score(NamedTuple):
    """Mean loss and accuracy over texts (not over batches), each counted with its weight."""

    loss: float
    accuracy: float


@final
@dataclass(frozen=True, eq=False)
class Texts:
    """Texts on a device, one after the other: `sizes` distinct terms each, `terms` and `count` of
    all of them; class number `y` and `weight` of each text."""

    sizes: np.ndarray
    terms: Tensor
    count: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, sizes: np.ndarray, terms: np.ndarray, count: np.ndarray, y: np.ndarray,
        weight: np.ndarray, device: Any,
    ) -> Texts:  # fmt: skip
        import torch

        def there(x: np.ndarray, kind: type) -> Tensor:
            return torch.as_tensor(x.astype(kind), device=device)

        whole, real = np.int64, np.float32
        return cls(sizes, there(terms, whole), there(count, real), there(y, whole),
                   there(weight, real))  # fmt: skip

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def ends(self) -> np.ndarray:
        """Where each text ends among all terms."""
        return np.cumsum(self.sizes)

    def batches(
        self, batch: int, draw: np.random.Generator | None = None
    ) -> list[tuple[np.ndarray, int]]:
        """(texts, width): texts of like length together, so that little is padding. With `draw`
        sorted within random groups of 16 batches, and the batches shuffled."""
        n, widest = len(self), int(self.sizes.max(initial=1))
        order = np.arange(n) if draw is None else draw.permutation(n)
        group = n if draw is None else 16 * batch
        out = []
        for start in range(0, n, group):
            some = order[start : start + group]
            some = some[np.argsort(self.sizes[some], kind="stable")]
            for at in range(0, len(some), batch):
                rows = some[at : at + batch]
                out.append((rows, min(-(-int(self.sizes[rows[-1]]) // 8) * 8, widest)))
        return out if draw is None else [out[i] for i in draw.permutation(len(out))]

    def padded(self, rows: np.ndarray, width: int) -> tuple[Tensor, Tensor]:
        """Terms and counts of some texts (rows, width), 0 beyond the end of a text."""
        import torch

        device, ends = self.terms.device, self.ends[rows]
        start, end = (torch.as_tensor(x, device=device) for x in (ends - self.sizes[rows], ends))
        at = start[:, None] + torch.arange(width, device=device)
        inside = at < end[:, None]
        at = at.clamp(max=len(self.terms) - 1)
        return self.terms[at] * inside, self.count[at] * inside

    def decided(self, network: Network, weights: Weights) -> Tensor:
        """Decisions on all texts, in their order."""
        import torch

        shape = (len(self), *weights["b"].shape)
        out = torch.empty(shape, dtype=weights["v"].dtype, device=self.terms.device)
        with torch.no_grad():
            for rows, width in self.batches(128 if out.device.type == "cpu" else 1024):
                at = torch.as_tensor(rows, device=out.device)
                out[at] = network.decisions(weights, *self.padded(rows, width))
        return out

    def score(self, network: Network, weights: Weights) -> Score:
        """How well the decisions fit the classes."""
        decision = self.decided(network, weights)
        right = (decision > 0) == self.y if decision.ndim == 1 else decision.argmax(1) == self.y
        weight = self.weight.double()
        accuracy = (right * weight).sum() / weight.sum()
        return Score(float(_loss(decision, self.y, self.weight)), float(accuracy))


def _loss(decision: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean of -log p of the right class: logistic for one row, else a softmax of rows."""
    from torch.nn import functional

    weight = weight / weight.mean()
    if decision.ndim == 1:
        y = y.to(decision.dtype)
        return functional.binary_cross_entropy_with_logits(decision, y, weight)
    return (functional.cross_entropy(decision, y, reduction="none") * weight).mean()


@final
@dataclass(frozen=True)
class Schedule:
    """Adam at `rate`, in batches of `batch` texts, gradients clipped at norm `clip`, at most
    `epochs`; stops after `patience` epochs without a better held-out loss."""

    epochs: int = 100
    rate: float = 1e-3
    batch: int = 64
    clip: float = 5.0
    patience: int = 10
    seed: int = 0
    device: str = "cpu"


@final
class Training:
    """One fit: weights (one named "constant" is not trained), optimiser, epochs, best weights."""

    def __init__(self, network: Network, weights: Weights, schedule: Schedule) -> None:
        import torch

        self.network, self.schedule = network, schedule
        self.weights = {k: w.detach().clone().to(schedule.device) for k, w in weights.items()}
        self.learned = [w.requires_grad_() for k, w in self.weights.items() if k != "constant"]
        self.adam = torch.optim.Adam(self.learned, lr=schedule.rate)
        self.best = self._copy()
        self.best_loss, self.best_epoch, self.epoch = math.inf, 0, 0

    @property
    def done(self) -> bool:
        """True when all epochs are over, or too many since the best one."""
        stale = self.epoch - self.best_epoch
        return self.epoch >= self.schedule.epochs or stale >= self.schedule.patience

    def advance(self, texts: Texts, held: Texts) -> tuple[float, Score]:
        """One epoch on `texts`: the mean loss while training, and the score on `held` after it."""
        import torch

        self.epoch += 1
        draw = np.random.default_rng((self.schedule.seed, self.epoch))
        total = torch.zeros((), device=self.schedule.device)
        for rows, width in texts.batches(self.schedule.batch, draw):
            at = torch.as_tensor(rows, device=self.schedule.device)
            decision = self.network.decisions(self.weights, *texts.padded(rows, width))
            loss = _loss(decision, texts.y[at], texts.weight[at])
            self.adam.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.learned, self.schedule.clip)
            self.adam.step()
            total += loss.detach() * len(rows)
        score = held.score(self.network, self.weights)
        if not math.isfinite(score.loss):
            raise ValueError(f"training diverged at epoch {self.epoch}; choose a smaller rate")
        if score.loss < self.best_loss:
            self.best_loss, self.best_epoch, self.best = score.loss, self.epoch, self._copy()
        return float(total) / len(texts), score

    def _copy(self) -> dict[str, Tensor]:
        return {k: w.detach().clone() for k, w in self.weights.items()}
