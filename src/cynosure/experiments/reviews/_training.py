"""Training of the sentiment model on reviews, and its decisions on them.

The model itself is that of `cynosure.classifier.soft_model`, which see.
Trap: this module runs where only NumPy and torch are installed; torch is imported when training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...classifier.soft_model import Network, Schedule, Training
from ._matrices import network
from ._reviews import Reviews, Split, evenly

History: TypeAlias = dict[str, Any]  # what a report needs to know of a fit besides its weights
Watch: TypeAlias = Mapping[str, tuple[Reviews, Network]]  # what to score after each epoch


class Epoch(NamedTuple):
    """After one epoch: losses and accuracies by name, the best weights so far, and if it ended."""

    epoch: int
    scores: dict[str, float]
    best_epoch: int
    best: dict[str, Any]
    last: bool


def soft_and_hard(
    data: Split, layers: int = 8, *, matrix: str = "I", watched: int = 0
) -> tuple[Network, Watch]:
    """The model of the paper, and it and its hardmax on `watched` reviews (0: all) of those to
    train and to test on."""
    soft, hard = network(matrix, layers), network(matrix, layers, temperature=0.0)
    parts = {
        name: some.take(evenly(len(some), watched))
        for name, some in (("train", data.train), ("test", data.test))
    }
    kinds = {"soft": soft, "hard": hard}
    return soft, {f"{a} {b}": (parts[a], kinds[b]) for a in parts for b in kinds}


def initial(words: int, dim: int, network: Network, seed: int) -> dict[str, Any]:
    """Random weights, alpha at U(0, 1) as in the paper."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    alpha = float(torch.rand((), generator=draw).clamp(min=0.01))
    return network.initial(words, dim, alpha, draw)


def train(
    data: Split, dim: int, network: Network, schedule: Schedule, watch: Watch | None = None
) -> Iterator[Epoch]:
    """Train on data.train, epoch by epoch; stop on the loss on data.held."""
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
        yield Epoch(fit.epoch, scores, fit.best_epoch, fit.best, fit.done)


def histories(
    data: Split, dim: int, schedule: Schedule, *, matrix: str = "I", watched: int = 0
) -> Iterator[tuple[History, dict[str, Any]]]:
    """Train the model of the paper: its history and best weights after each epoch."""
    soft, watch = soft_and_hard(data, matrix=matrix, watched=watched)
    history: History = {
        "dim": dim,
        "matrix": matrix,
        "watched": watched,
        "tokens": data.tokens,
        "stop_words": data.stop_words,
        "words": len(data.words),
        "vocabulary": data.fingerprint,
        "reviews": [len(data.train), len(data.held), len(data.test)],
        "training": asdict(replace(schedule, device="")),
        "best_epoch": 0,
        "finished": False,
        "epochs": [],
    }
    for now in train(data, dim, soft, schedule, watch):
        history |= {"best_epoch": now.best_epoch, "finished": now.last}
        history["epochs"].append({"epoch": now.epoch, **now.scores})
        yield history, now.best


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
