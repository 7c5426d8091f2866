"""Trained sentiment models, made here or read from a folder, and their hardmax on reviews."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import cynosure as cy

from ...classifier.soft_model import Schedule
from .._frame import Progress
from ._matrices import kind_of, matrix_of
from ._reviews import Ids, Reviews, Split, evenly, split
from ._training import History, alpha_of, histories, one_thread

LAYERS = 8
# docs/mathematics.md D4, published histories: best test epoch (chosen on the test set), last epoch
PUBLISHED = {2: (0.7914, 0.7914), 4: (0.8228, 0.8027), 8: (0.8505, 0.8134), 16: (0.8821, 0.8457)}

Fitted: TypeAlias = tuple[History, dict[str, np.ndarray], Split]


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
    rho = 1.0 / (1.0 + alpha)
    decision, on_leaders = np.empty(len(reviews)), np.empty(len(reviews))
    born = np.full(reviews.terms.shape, -1, dtype=np.intp)
    order = np.argsort(reviews.sizes, kind="stable")
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        some = reviews.take(rows)
        mask = some.count > 0
        run = cy.simulate(
            dynamics, embedding[some.terms], layers=layers, mask=mask, save_every=max(layers, 1),
            throw=False,
        )  # fmt: skip
        history = run.history
        assert history is not None
        weight = some.count / some.count.sum(axis=1, keepdims=True)
        mean = np.einsum("bn,bnd->bd", weight, run.values[-1])
        decision[rows] = mean @ v + float(weights["b"])
        settled = history.settled_at
        elsewhere = np.where(settled >= 0, rho ** (layers - np.maximum(settled, 0.0)), 1.0)
        elsewhere = np.where(history.born >= 0, 0.0, elsewhere)
        on_leaders[rows] = 1.0 - (weight * elsewhere).sum(axis=1)
        born[rows, : mask.shape[1]] = np.where(mask, history.born, -1)
    leaders, initial = (born >= 0).sum(axis=1), (born == 0).sum(axis=1)
    return HardReading(decision, leaders, initial, on_leaders, born)


def called(dim: int, tokens: int, kind: str) -> str:
    """The name of a model."""
    return f"d = {dim}, n = {tokens}" + ("" if kind == "I" else f", A {kind}")


class TrainedModel(NamedTuple):
    """A trained model: its history, its weights, test reviews, and what hardmax makes of them.

    `real` is False beside made-up reviews.
    """

    history: History
    weights: dict[str, np.ndarray]
    words: tuple[str, ...]
    test: Reviews
    hard: HardReading
    real: bool

    @classmethod
    def of(cls, fitted: Fitted, counted: int, real: bool) -> TrainedModel:
        """Send `counted` of the test reviews through the hardmax layers."""
        history, weights, data = fitted
        w = {k: np.asarray(x, np.float64) for k, x in weights.items()}
        test = data.test.take(evenly(len(data.test), counted))
        return cls(history, w, data.words, test, read_hard(w, test), real)

    @property
    def dim(self) -> int:
        return int(self.history["dim"])

    @property
    def tokens(self) -> int:
        return int(self.history["tokens"])

    @property
    def name(self) -> str:
        return called(self.dim, self.tokens, self.kind)

    @property
    def kind(self) -> str:
        """ "I", or how A was trained."""
        return kind_of(self.weights)

    @property
    def matrix(self) -> np.ndarray | None:
        """A, or None for the identity."""
        return matrix_of(self.weights)

    @property
    def alpha(self) -> float:
        return alpha_of(self.weights["step"])

    @property
    def chosen(self) -> dict[str, Any]:
        """Losses and accuracies of the epoch with the best held-out loss."""
        return self.history["epochs"][self.history["best_epoch"] - 1]

    @property
    def accuracy(self) -> float:
        """Of hardmax on the test reviews, at that epoch."""
        return float(self.chosen["test hard accuracy"])

    @property
    def published(self) -> tuple[float | None, float | None]:
        """The paper's accuracy for this d, best and last epoch; none beside made-up reviews, nor
        where A was trained."""
        alike = self.real and self.kind == "I"
        return PUBLISHED.get(self.dim, (None, None)) if alike else (None, None)

    @property
    def from_start(self) -> float:
        """Share of the leaders that lead from layer 0."""
        return float(self.hard.initial.sum() / max(self.hard.leaders.sum(), 1))

    def series(self, what: str) -> list[float]:
        """A loss or accuracy by epoch."""
        return [float(epoch[what]) for epoch in self.history["epochs"]]


def trained(
    ids: Ids, dims: Sequence[int], tokens: int, schedule: Schedule, say: Progress
) -> Iterator[Fitted]:
    """Train a model in each dimension here."""
    data = split(ids, tokens=tokens)
    for i, dim in enumerate(dims):
        with one_thread():
            for fitted in histories(data, dim, schedule):
                epoch = len(fitted[0]["epochs"])
                say((i + epoch / schedule.epochs) / len(dims), f"d = {dim}, epoch {epoch}")
        say((i + 1) / len(dims), "leaders")
        history, best = fitted
        yield history, {k: w.numpy() for k, w in best.items()}, data


def stored(ids: Ids, results: str, say: Progress) -> Iterator[Fitted]:
    """The models in the folder that `_sentiment_gpu` leaves."""
    from safetensors.numpy import load_file

    files = {path: json.loads(path.read_bytes()) for path in Path(results).glob("d*_n*.json")}
    if not files:
        raise ValueError(f"results: {results} has no d<dim>_n<tokens>.json; see the module")
    splits: dict[tuple[int, bool], Split] = {}
    order = sorted(
        files,
        key=lambda path: (
            files[path]["tokens"], files[path].get("matrix", "I") != "I", files[path]["dim"], path,
        ),
    )  # fmt: skip
    for i, path in enumerate(order):
        say(i / len(files), path.stem)
        history = files[path]
        tokens, stop_words = key = (int(history["tokens"]), bool(history["stop_words"]))
        if key not in splits:
            splits[key] = split(ids, tokens=tokens, stop_words=stop_words)
        data = splits[key]
        same = history.get("vocabulary", data.fingerprint) == data.fingerprint
        if len(data.words) != history["words"] or not same:
            raise ValueError(
                f"{path.name}: trained on other words ({history['words']}; these reviews give "
                f"{len(data.words)}); name the reviews it was trained on as data"
            )
        yield history, load_file(path.with_suffix(".safetensors")), data
