"""Learned: the embedding found by gradient, as in arXiv 2407.01602, with its protocol mended.

    P = softmax_row(z z^T / temperature),   z <- (z + alpha P z) / (1 + alpha),   mean, decoder

is trained; hardmax predicts (temperature -> 0). Padding is masked, alpha = softplus(a) > 0 by
construction, the vocabulary comes from the training part, and training stops on held-out *blocks*.
Trap: accuracy alone is a vacuous target, since alpha -> 0 or equal norms make a bag of words; the
`Verdicts` of a classifier says how many tokens lead. Needs torch: pip install "cynosure[torch]".
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from .._files import write_atomically
from .._types import Array
from .datasets import blocks
from .model import Model, Plane
from .placement import Fit, Task
from .text import Documents

__all__ = ["Learned"]


@final
@dataclass(frozen=True)
class Learned(Fit):
    """Gradient training of embedding, alpha and decoder with Adam.

    `temperature` of the softmax surrogate; 0 trains the hardmax itself with the sets C_i held
    constant, its gradient almost everywhere. `most_tokens` first terms of each text take part in
    training (all of them predict). Stops after `patience` epochs without a better held-out loss
    and keeps the best epoch. `checkpoint` names a file: an interrupted fit goes on from there.
    """

    epochs: int = 20
    rate: float = 1e-2
    batch: int = 64
    temperature: float = 1e-3
    clip: float = 5.0
    patience: int = 3
    held_out: float = 0.1
    most_tokens: int = 512
    device: str = "auto"
    checkpoint: str | None = None

    def describe(self) -> dict[str, Any]:
        return {"name": "learned", **{k: getattr(self, k) for k in self.__dataclass_fields__}}

    def model(self, task: Task) -> Model:
        return _Training(self, task).run()


@final
class _Training:
    """One fit: parameters, optimiser and where it stands."""

    def __init__(self, settings: Learned, task: Task) -> None:
        torch = _torch()
        self.settings, self.task = settings, task
        self.device = settings.device
        if settings.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        held = blocks(task.y, settings.held_out)
        self.kept, self.held = np.flatnonzero(~held), np.flatnonzero(held)
        if len(np.unique(task.y[self.kept])) < task.classes:
            raise ValueError("texts: a class has too few texts to hold some out; give more")
        draw = torch.Generator().manual_seed(task.seed)
        rows = 1 if task.classes == 2 else task.classes
        shapes = {
            "embedding": (len(task.df), task.dim), "anchor": (task.dim,), "step": (),
            "v": (rows, task.dim), "b": (rows,),
        }  # fmt: skip
        self.weights = {k: torch.randn(s, generator=draw) for k, s in shapes.items()}
        self.weights["step"] = torch.tensor(float(np.log(np.expm1(task.alpha))))
        self.weights["b"] = torch.zeros(rows)
        self.weights["anchor"] *= 0.1
        self.weights = {k: w.to(self.device).requires_grad_() for k, w in self.weights.items()}
        self.adam = torch.optim.Adam(self.weights.values(), lr=settings.rate)
        self.best = {k: w.detach().clone() for k, w in self.weights.items()}
        self.epoch, self.best_loss, self.stale = 0, float("inf"), 0

    def run(self) -> Model:
        s = self.settings
        if s.checkpoint is not None and Path(s.checkpoint).exists():
            self._resume(Path(s.checkpoint))
        while self.epoch < s.epochs and self.stale < s.patience:
            self._epoch()
            loss = self._held_out_loss()
            self.epoch += 1
            if loss < self.best_loss:
                self.best_loss, self.stale = loss, 0
                self.best = {k: w.detach().clone() for k, w in self.weights.items()}
            else:
                self.stale += 1
            if s.checkpoint is not None:
                self._keep(Path(s.checkpoint))
        return self._model()

    def _model(self) -> Model:
        torch = _torch()
        w = {k: x.double().cpu() for k, x in self.best.items()}
        alpha = float(torch.nn.functional.softplus(w["step"]))
        if self.task.classes == 2:
            prior = np.array([self.task.prior(1)])
        else:  # rows of a softmax: log-probabilities
            total = np.bincount(self.task.y, self.task.weight, self.task.classes)
            prior = np.log(total / total.sum())
        embedding, anchor, v, b = (w[k].numpy() for k in ("embedding", "anchor", "v", "b"))
        return Model((Plane(embedding, anchor, v, b, prior),), alpha, self.task.layers)

    def _epoch(self) -> None:
        torch = _torch()
        draw = np.random.default_rng((self.task.seed, self.epoch))
        for rows in self._batches(draw.permutation(self.kept)):
            self.adam.zero_grad()
            self._loss(rows, self.settings.temperature).backward()
            torch.nn.utils.clip_grad_norm_(list(self.weights.values()), self.settings.clip)
            self.adam.step()

    def _batches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(rows), self.settings.batch):
            yield rows[start : start + self.settings.batch]

    def _held_out_loss(self) -> float:
        torch = _torch()
        with torch.no_grad():
            losses = [
                float(self._loss(rows, self.settings.temperature)) * len(rows)
                for rows in self._batches(self.held)
            ]
        return sum(losses) / len(self.held)

    def _loss(self, rows: np.ndarray, temperature: float) -> Array:
        torch = _torch()
        terms, mask = _padded(self.task.documents, rows, self.settings.most_tokens)
        decision = decisions(
            self.weights, torch.as_tensor(terms, device=self.device),
            torch.as_tensor(mask, device=self.device), self.task.layers, temperature,
        )  # fmt: skip
        y = torch.as_tensor(self.task.y[rows], device=self.device)
        weight = torch.as_tensor(self.task.weight[rows], dtype=decision.dtype, device=self.device)
        of = torch.nn.functional
        if decision.shape[1] == 1:
            loss = of.binary_cross_entropy_with_logits(
                decision[:, 0], y.to(decision.dtype), reduction="none"
            )
        else:
            loss = of.cross_entropy(decision, y, reduction="none")
        return (loss * weight).sum() / weight.sum()

    # --- checkpoints: safetensors, with the settings they belong to

    def _signature(self) -> str:
        s, t = self.settings.describe(), self.task
        for free in ("epochs", "patience", "checkpoint", "device"):
            s.pop(free)
        return json.dumps([s, t.dim, t.layers, t.seed, len(t.df), len(t.y), t.classes])

    def _keep(self, path: Path) -> None:
        from safetensors.torch import save

        state = {f"now.{k}": w.detach().cpu() for k, w in self.weights.items()}
        state |= {f"best.{k}": w.cpu() for k, w in self.best.items()}
        for k, w in self.weights.items():
            for name, value in self.adam.state[w].items():
                state[f"adam.{k}.{name}"] = value.detach().cpu().clone()
        where = {"epoch": self.epoch, "best_loss": self.best_loss, "stale": self.stale}
        header = {"signature": self._signature(), "where": json.dumps(where)}
        data = save({k: x.contiguous() for k, x in state.items()}, header)
        write_atomically(path, lambda stream: stream.write(data))

    def _resume(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        torch = _torch()
        try:
            with safe_open(os.fspath(path), framework="pt", device=self.device) as file:
                header = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: not a checkpoint, or damaged ({error}); delete it") from None
        if header.get("signature") != self._signature():
            raise ValueError(f"{path}: belongs to another fit; delete it or name another file")
        with torch.no_grad():
            for k, w in self.weights.items():
                w.copy_(state[f"now.{k}"])
                self.best[k] = state[f"best.{k}"]
                self.adam.state[w] = {
                    name: state[f"adam.{k}.{name}"].cpu() if name == "step"
                    else state[f"adam.{k}.{name}"]
                    for name in ("step", "exp_avg", "exp_avg_sq")
                }  # fmt: skip
        where = json.loads(header["where"])
        self.epoch, self.best_loss, self.stale = (
            where["epoch"], where["best_loss"], where["stale"],
        )  # fmt: skip


def decisions(
    weights: dict[str, Any], terms: Array, mask: Array, layers: int, temperature: float
) -> Array:
    """Decision rows (texts, rows) of padded texts, differentiable in `weights`.

    terms, mask (texts, n); temperature 0 is the hardmax with its sets held constant, ties being
    those of the rounded scores.
    """
    torch = _torch()
    z = weights["embedding"][terms]
    z = torch.cat((weights["anchor"].expand(len(z), 1, -1), z), dim=1)
    real = torch.cat((torch.ones_like(mask[:, :1]), mask), dim=1)
    alpha = torch.nn.functional.softplus(weights["step"])
    for _ in range(layers):
        score = (z @ z.transpose(1, 2)).masked_fill(~real[:, None, :], -torch.inf)
        if temperature > 0:
            attention = torch.softmax(score / temperature, dim=-1)
        else:
            attention = (score == score.amax(dim=-1, keepdim=True)).to(z.dtype).detach()
            attention = attention / attention.sum(dim=-1, keepdim=True)
        z = (z + alpha * (attention @ z)) / (1 + alpha)
    keep = real[..., None].to(z.dtype)
    mean = (z * keep).sum(dim=1) / keep.sum(dim=1)
    return mean @ weights["v"].T + weights["b"]


def _padded(documents: Documents, rows: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.minimum(documents.sizes[rows], most)
    mask = np.arange(max(int(sizes.max()), 1)) < sizes[:, None]
    terms = np.zeros(mask.shape, dtype=np.int64)
    for i, row in enumerate(rows.tolist()):
        terms[i, : sizes[i]] = documents[row][: sizes[i]]
    return terms, mask


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError('Learned needs torch: pip install "cynosure[torch]"') from None
    return torch
