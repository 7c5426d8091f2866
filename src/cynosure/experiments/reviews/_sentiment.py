"""Fits of the sentiment model, and what its hardmax layers make of reviews.

The model and its training are those of `cynosure.classifier.soft_model`, which see.
Trap: this module runs where only NumPy and torch are installed; torch is imported when training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from ...classifier.soft_model import Network, Schedule, SoftLayers, Training
from ._reviews import Reviews, Split

__all__ = [
    "Epoch", "Led", "Watch", "alpha_of", "evaluate", "final_tokens", "initial", "led",
    "one_thread", "soft_and_hard", "train",
]  # fmt: skip

Watch: TypeAlias = Mapping[str, tuple[Reviews, Network]]  # what to score after each epoch


class Epoch(NamedTuple):
    """After one epoch: losses and accuracies by name, the best weights so far, and if it ended."""

    epoch: int
    scores: dict[str, float]
    best_epoch: int
    best: dict[str, Any]
    last: bool


def soft_and_hard(data: Split, layers: int = 8) -> tuple[SoftLayers, Watch]:
    """The model of the paper, and it and its hardmax on the reviews to train and to test on."""
    soft, hard = SoftLayers(layers), SoftLayers(layers, temperature=0.0)
    parts, kinds = {"train": data.train, "test": data.test}, {"soft": soft, "hard": hard}
    return soft, {f"{a} {b}": (parts[a], kinds[b]) for a in parts for b in kinds}


def initial(words: int, dim: int, network: Network, seed: int) -> dict[str, Any]:
    """Random weights, alpha at U(0, 1) as in the paper."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    alpha = float(torch.rand((), generator=draw).clamp(min=0.01))
    return network.initial(words, dim, alpha, draw)


def train(
    data: Split,
    dim: int,
    network: Network,
    schedule: Schedule,
    watch: Watch | None = None,
    words: int = 0,
) -> Iterator[Epoch]:
    """Train on data.train, epoch by epoch; stop on the loss on data.held.

    `words` is the size of the vocabulary, where it is larger than data.words (a padding word).
    """
    start = initial(words or len(data.words), dim, network, schedule.seed)
    fit = Training(network, start, schedule)
    texts, held = data.train.on(schedule.device), data.held.on(schedule.device)
    watched = {k: (r.on(schedule.device), net) for k, (r, net) in (watch or {}).items()}
    while not fit.done:
        loss, score = fit.advance(texts, held)
        every = {"held": score} | {k: r.score(net, fit.weights) for k, (r, net) in watched.items()}
        scores = {"loss while training": loss}
        for name, x in every.items():
            scores |= {f"{name} loss": x.loss, f"{name} accuracy": x.accuracy}
        scores["alpha"] = alpha_of(fit.weights["step"].detach())
        yield Epoch(fit.epoch, scores, fit.best_epoch, fit.best, fit.done)


def alpha_of(step: Any) -> float:
    """alpha = softplus(step) > 0."""
    return float(np.logaddexp(0.0, float(step)))


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


# --- leaders ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class Led:
    """Hardmax layers in float64 with proved decisions. Per review: `decision`, number of leaders,
    those that lead from layer 0, share of the mean on leaders; `born` (reviews, n) per word."""

    decision: np.ndarray
    leaders: np.ndarray
    initial: np.ndarray
    on_leaders: np.ndarray
    born: np.ndarray


def led(
    embedding: np.ndarray, v: np.ndarray, b: float, alpha: float, reviews: Reviews, layers: int = 8
) -> Led:
    """Send reviews through the hardmax layers of `simulate`; a leader has C_i = {i} at some layer.

    Not read off float32 states at the last layer: there a follower rounds onto its leader and
    looks like one.
    """
    from ...dynamics import PureAttention
    from ...simulation.loop import simulate

    dynamics = PureAttention(alpha=alpha)
    rho = 1.0 / (1.0 + alpha)
    embedding = np.asarray(embedding, np.float64)
    decision, on_leaders = np.empty(len(reviews)), np.empty(len(reviews))
    born = np.full(reviews.terms.shape, -1, dtype=np.intp)
    order = np.argsort(reviews.sizes, kind="stable")
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        some = reviews.take(rows)
        mask = some.count > 0
        run = simulate(
            dynamics, embedding[some.terms], layers=layers, mask=mask, save_every=max(layers, 1),
            throw=False,
        )  # fmt: skip
        history = run.history
        assert history is not None
        weight = some.count / some.count.sum(axis=1, keepdims=True)
        decision[rows] = np.einsum("bn,bnd->bd", weight, run.values[-1]) @ v + b
        settled = history.settled_at
        elsewhere = np.where(settled >= 0, rho ** (layers - np.maximum(settled, 0.0)), 1.0)
        elsewhere = np.where(history.born >= 0, 0.0, elsewhere)
        on_leaders[rows] = 1.0 - (weight * elsewhere).sum(axis=1)
        born[rows, : mask.shape[1]] = np.where(mask, history.born, -1)
    leads = born >= 0
    return Led(decision, leads.sum(axis=1), (born == 0).sum(axis=1), on_leaders, born)
