"""The sentiment model of arXiv 2407.01602 and its variants: layers, training, hardmax on reviews.

A may be trained, from the identity. With A = B^T B ("spd") the tokens y = B z move as they do with
A = I, and <v, z> = <B^-T v, y>: the embedding B E and the decoder B^-T v make the same decisions.
So "spd" can only change the way that training takes, never what can be expressed; only what is not
symmetric in A ("free", any square A) is new.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.classifier.fitting.soft_model import (
    Network,
    Schedule,
    Tensor,
    Training,
    Weights,
    embedded,
    pull,
    step,
)

from ._reviews import Reviews, Split, evenly

LAYERS = 8
KINDS = {"I": "", "spd": "root", "free": "matrix"}  # A that is trained -> the name of its weight
# docs/mathematics.md D4, published histories: best test epoch (chosen on the test set), last epoch
PUBLISHED = {2: (0.7914, 0.7914), 4: (0.8228, 0.8027), 8: (0.8505, 0.8134), 16: (0.8821, 0.8457)}

History: TypeAlias = dict[str, Any]  # what a report needs to know of a fit besides its weights
Fitted: TypeAlias = tuple[History, dict[str, np.ndarray], Split]
Watch: TypeAlias = Mapping[str, tuple[Reviews, Network]]  # what to score after each epoch


@dataclass(frozen=True)
class Variant(Network):
    """`layers` layers whose `attention` is "softmax" (at `temperature`, 0 for hardmax), "uniform"
    (all words alike) or "random" (hardmax of random tokens that are not trained; the values are).

    `hidden` > 0 adds a feed-forward map of that width after each layer; `norm` "sphere" or "layer"
    normalises tokens before the first and after each layer; `matrix` is what A is, of KINDS.
    With `heads` > 1 each head has an A of its own that is trained, and V = I: tokens move towards
    the mean of what the heads find.
    """

    attention: str = "softmax"
    temperature: float = 0.0
    layers: int = LAYERS
    hidden: int = 0
    norm: str = ""
    matrix: str = "I"
    heads: int = 1

    def __post_init__(self) -> None:
        if self.matrix not in KINDS:
            raise ValueError(f"matrix: expected one of {', '.join(KINDS)}, got {self.matrix!r}")

    @property
    def hard(self) -> Variant:
        """The same layers with softmax at temperature 0."""
        return replace(self, temperature=0.0)

    def initial(
        self, terms: int, dim: int, alpha: float, draw: Any, rows: tuple[int, ...] = ()
    ) -> dict[str, Tensor]:
        import torch

        weights = Network.initial(self, terms, dim, alpha, draw, rows)
        if self.matrix != "I":
            weights[KINDS[self.matrix]] = torch.eye(dim)
        if self.heads > 1:  # apart from the start: equal heads would stay equal
            weights["forms"] = torch.eye(dim) + torch.randn((self.heads, dim, dim), generator=draw)
        if self.attention == "random":
            weights["constant"] = torch.randn((terms, dim), generator=draw)
        if self.hidden:
            weights["inner"] = torch.randn((dim, self.hidden), generator=draw) / math.sqrt(dim)
            weights["inner_bias"] = torch.zeros(self.hidden)
            outer = torch.randn((self.hidden, dim), generator=draw)
            weights["outer"] = 0.1 * outer / math.sqrt(self.hidden)
        return weights

    def carried(self, weights: Weights, terms: Tensor, count: Tensor) -> Tensor:
        z, eta = self._normed(embedded(weights, terms)), step(weights)
        random = self.attention == "random"
        constant = embedded(weights, terms, "constant") if random else None
        for _ in range(self.layers):
            if self.attention == "uniform":
                pulled = (count[:, None, :] @ z) / count.sum(dim=1)[:, None, None]
            elif self.heads > 1:
                each = [pull(z, z @ A.T, count, self.temperature, z) for A in weights["forms"]]
                pulled = sum(each[1:], each[0]) / self.heads
            elif self.matrix != "I":
                seen = z @ weights[KINDS[self.matrix]].T
                keys = seen if self.matrix == "spd" else z
                pulled = pull(z, seen, count, self.temperature, keys)
            else:
                pulled = pull(z, z if constant is None else constant, count, self.temperature)
            z = z.lerp(pulled, eta)
            if self.hidden:
                inner = (z @ weights["inner"] + weights["inner_bias"]).relu()
                z = z + inner @ weights["outer"]
            z = self._normed(z)
        return z

    def _normed(self, z: Tensor) -> Tensor:
        from torch.nn import functional

        if self.norm == "sphere":
            return functional.normalize(z, dim=-1)
        return functional.layer_norm(z, z.shape[-1:]) if self.norm == "layer" else z


def kind_of(weights: Mapping[str, Any]) -> str:
    """Which matrix these weights have, of KINDS."""
    return next((kind for kind, name in KINDS.items() if name in weights), "I")


def matrix_of(weights: Mapping[str, Any]) -> np.ndarray | None:
    """A in float64, or None for the identity."""
    kind = kind_of(weights)
    if kind == "I":
        return None
    M = np.asarray(weights[KINDS[kind]], np.float64)
    return M.T @ M if kind == "spd" else M


def alpha_of(step: Any) -> float:
    """alpha = softplus(step) > 0."""
    return float(np.logaddexp(0.0, float(step)))


# --- training ------------------------------------------------------------------------------------


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: these products are small, and threads that share a core wait."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def soft_and_hard(
    data: Split, layers: int = LAYERS, *, matrix: str = "I", watched: int = 0
) -> tuple[Network, Watch]:
    """The model of the paper, and it and its hardmax on `watched` reviews (0: all) of those to
    train and to test on."""
    soft = Variant(temperature=1e-3, layers=layers, matrix=matrix)
    parts = {
        name: some.take(evenly(len(some), watched))
        for name, some in (("train", data.train), ("test", data.test))
    }
    kinds = {"soft": soft, "hard": soft.hard}
    return soft, {f"{a} {b}": (parts[a], kinds[b]) for a in parts for b in kinds}


def initial(words: int, dim: int, network: Network, seed: int) -> dict[str, Any]:
    """Random weights, alpha at U(0, 1) as in the paper."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    alpha = float(torch.rand((), generator=draw).clamp(min=0.01))
    return network.initial(words, dim, alpha, draw)


def train(
    data: Split, dim: int, network: Network, schedule: Schedule, watch: Watch | None = None
) -> Iterator[st.Cell]:
    """Train on data.train; stop on the loss on data.held. After each epoch: losses and accuracies
    by name, the best weights so far and their epoch, and if it was the last."""
    fit = Training(network, initial(len(data.words), dim, network, schedule.seed), schedule)
    texts, held = data.train.on(schedule.device), data.held.on(schedule.device)
    watched = {k: (r.on(schedule.device), net) for k, (r, net) in (watch or {}).items()}
    while not fit.done:
        loss, score = fit.advance(texts, held)
        every = {"held": score} | {k: r.score(net, fit.weights) for k, (r, net) in watched.items()}
        scores = {"loss while training": loss}
        for name, x in every.items():
            scores |= {f"{name} loss": x.loss, f"{name} accuracy": x.accuracy}
        scores["alpha"] = alpha_of(fit.weights["step"].detach())
        best = {"best_epoch": fit.best_epoch, "best": fit.best}
        yield st.Cell(epoch=fit.epoch, scores=scores, **best, last=fit.done)


@one_thread()
def fitted(
    data: Split, dim: int, schedule: Schedule, *, matrix: str = "I", watched: int = 0
) -> tuple[History, dict[str, np.ndarray]]:
    """Train the model of the paper: its history, and the weights of its best epoch."""
    soft, watch = soft_and_hard(data, matrix=matrix, watched=watched)
    epochs = [*train(data, dim, soft, schedule, watch)]
    history: History = {
        **{"dim": dim, "matrix": matrix, "watched": watched, "tokens": data.tokens},
        **{"words": len(data.words), "training": asdict(schedule)},
        "best_epoch": epochs[-1].best_epoch,
        "epochs": [{"epoch": now.epoch, **now.scores} for now in epochs],
    }
    return history, {k: w.cpu().numpy() for k, w in epochs[-1].best.items()}


def evaluate(weights: Mapping[str, Any], reviews: Reviews, network: Network) -> np.ndarray:
    """Decisions on many reviews, in their order, float64."""
    texts = reviews.on(weights["embedding"].device)
    return texts.decided(network, weights).double().cpu().numpy()


def final_tokens(weights: Mapping[str, Any], reviews: Reviews, network: Network) -> np.ndarray:
    """Tokens after the last layer (reviews, n, d)."""
    import torch

    device = weights["embedding"].device
    batch = (torch.as_tensor(x, device=device) for x in (reviews.terms, reviews.count))
    with torch.no_grad():
        return network.carried(weights, *batch).double().cpu().numpy()


# --- hardmax on reviews --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HardReading:
    """Hardmax layers in float64 with proved decisions. Per review: `decision`, number of leaders,
    those that lead from layer 0, share of the mean on leaders; `born` (reviews, n) per word."""

    decision: np.ndarray
    leaders: np.ndarray
    initial: np.ndarray
    on_leaders: np.ndarray
    born: np.ndarray


def read_hard(weights: Mapping[str, Any], reviews: Reviews, layers: int = LAYERS) -> HardReading:
    """Send reviews through the hardmax layers of `simulate`; a leader has C_i = {i} at some layer.

    Not read off float32 states at the last layer: there a follower rounds onto its leader and
    looks like one.
    """
    embedding, v = (np.asarray(weights[name], np.float64) for name in ("embedding", "v"))
    alpha = alpha_of(weights["step"])
    dynamics = cy.PureAttention(cy.Hardmax(matrix_of(weights)), alpha=alpha)
    decision, on_leaders = np.empty(len(reviews)), np.empty(len(reviews))
    born = np.full(reviews.terms.shape, -1, dtype=np.intp)
    order = np.argsort(reviews.sizes, kind="stable")
    saved: dict[str, Any] = {"save_every": max(layers, 1), "throw": False}
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        some = reviews.take(rows)
        mask = some.count > 0
        run = cy.simulate(dynamics, embedding[some.terms], layers=layers, mask=mask, **saved)
        history = run.history
        assert history is not None
        weight = some.count / some.count.sum(axis=1, keepdims=True)
        mean = np.einsum("bn,bnd->bd", weight, run.values[-1])
        decision[rows] = mean @ v + float(weights["b"])
        left = (1.0 / (1.0 + alpha)) ** (layers - np.maximum(history.settled_at, 0.0))
        elsewhere = np.where(history.settled_at >= 0, left, 1.0)
        elsewhere = np.where(history.born >= 0, 0.0, elsewhere)
        on_leaders[rows] = 1.0 - (weight * elsewhere).sum(axis=1)
        born[rows, : mask.shape[1]] = np.where(mask, history.born, -1)
    leaders, first = (born >= 0).sum(axis=1), (born == 0).sum(axis=1)
    return HardReading(decision, leaders, first, on_leaders, born)


def leaders(v: Variant, w: dict[str, Any], some: Reviews) -> tuple[float, float, float]:
    """Mean number of words that lead at layer 0, at any layer, and the weight on leaders.

    The last two are for the pure layers only: after a feed-forward map or a norm a leader moves.
    """
    if v.attention != "softmax" or v.layers == 0 or v.heads > 1:
        return np.nan, np.nan, np.nan
    if not (v.hidden or v.norm):
        hard = read_hard(w, some, v.layers)
        return float(hard.initial.mean()), float(hard.leaders.mean()), float(hard.on_leaders.mean())
    z, mask = final_tokens(w, some, replace(v, layers=0)), some.count > 0
    score = np.where(mask[:, None, :], z @ z.swapaxes(1, 2), -np.inf)
    diagonal = np.einsum("bii->bi", score)
    own = diagonal.copy()
    diagonal[...] = -np.inf
    return float(((own > score.max(axis=2)) & mask).sum(axis=1).mean()), np.nan, np.nan


def places(v: Variant, w: dict[str, Any], some: Reviews, cell: float = 0.05) -> float:
    """Distinct places of a review's tokens at the end, on a grid of `cell` times their size."""
    z, start = (final_tokens(w, some, x) for x in (v, replace(v, layers=0)))
    mask = some.count > 0
    grid = cell * float(np.sqrt((start[mask] ** 2).sum(axis=1).mean()))
    return float(np.mean([len(np.unique(np.round(x[m] / grid), axis=0)) for x, m in zip(z, mask)]))


def called(dim: int, tokens: int, kind: str) -> str:
    """The name of a model."""
    return f"d = {dim}, n = {tokens}" + ("" if kind == "I" else f", A {kind}")


def trained_model(fit: Fitted, counted: int, real: bool) -> st.Cell:
    """A trained model: its history and weights, `counted` of the test reviews, and what hardmax
    makes of them; `chosen` are losses and accuracies of the epoch with the best held-out loss,
    `accuracy` that of hardmax on the test reviews there. `real` is False beside made-up reviews:
    then the paper has no accuracy (best and last epoch), nor where A was trained."""
    history, weights, data = fit
    w = {k: np.asarray(x, np.float64) for k, x in weights.items()}
    test, kind, A = data.test.take(evenly(len(data.test), counted)), kind_of(w), matrix_of(w)
    dim, tokens = int(history["dim"]), int(history["tokens"])
    chosen = history["epochs"][history["best_epoch"] - 1]
    none = (None, None)
    return st.Cell(
        **{"history": history, "weights": w, "words": data.words, "test": test, "real": real},
        **{"dim": dim, "tokens": tokens, "kind": kind, "name": called(dim, tokens, kind)},
        **{"hard": read_hard(w, test), "alpha": alpha_of(w["step"]), "chosen": chosen},
        matrix=np.eye(dim) if A is None else A,
        accuracy=float(chosen["test hard accuracy"]),
        published=PUBLISHED.get(dim, none) if real and kind == "I" else none,
    )


def series(m: st.Cell, what: str) -> list[float]:
    """A loss or accuracy by epoch."""
    return [float(epoch[what]) for epoch in m.history["epochs"]]
