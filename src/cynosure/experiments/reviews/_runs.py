"""Trained sentiment models, made here or read from a folder, and what hardmax makes of reviews."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...classifier.soft_model import Schedule
from .._frame import Progress
from ._reviews import Ids, Reviews, Split, evenly, split
from ._sentiment import Led, alpha_of, led, one_thread, soft_and_hard, train
from ._sentiment_gpu import history_of

__all__ = ["LAYERS", "Run", "stored", "trained"]

LAYERS = 8
# docs/mathematics.md D4, published histories: best test epoch (chosen on the test set), last epoch
PUBLISHED = {2: (0.7914, 0.7914), 4: (0.8228, 0.8027), 8: (0.8505, 0.8134), 16: (0.8821, 0.8457)}

Fitted: TypeAlias = tuple[dict[str, Any], dict[str, np.ndarray], Split]  # history, weights, data


class Run(NamedTuple):
    """One trained model: its history, its weights, its reviews, and what hardmax makes of them.

    `real` is False beside made-up reviews.
    """

    history: dict[str, Any]
    weights: dict[str, np.ndarray]
    words: tuple[str, ...]
    test: Reviews
    led: Led
    real: bool

    @classmethod
    def of(
        cls,
        history: dict[str, Any],
        weights: dict[str, np.ndarray],
        data: Split,
        counted: int,
        real: bool,
    ) -> Run:
        """Send `counted` of the test reviews through the hardmax layers."""
        w = {k: np.asarray(x, np.float64) for k, x in weights.items()}
        test = data.test.take(evenly(len(data.test), counted))
        end = led(w["embedding"], w["v"], float(w["b"]), alpha_of(w["step"]), test, LAYERS)
        return cls(history, w, data.words, test, end, real)

    @property
    def dim(self) -> int:
        return int(self.history["dim"])

    @property
    def name(self) -> str:
        return f"d = {self.dim}, n = {self.history['tokens']}"

    @property
    def alpha(self) -> float:
        return alpha_of(self.weights["step"])

    @property
    def chosen(self) -> dict[str, Any]:
        """Losses and accuracies of the epoch with the best held-out loss."""
        return self.history["epochs"][self.history["best_epoch"] - 1]

    @property
    def published(self) -> tuple[float | None, float | None]:
        """The paper's accuracy for this d, best and last epoch; none beside made-up reviews."""
        return PUBLISHED.get(self.dim, (None, None)) if self.real else (None, None)

    @property
    def from_start(self) -> float:
        """Share of the leaders that lead from layer 0."""
        return float(self.led.initial.sum() / max(self.led.leaders.sum(), 1))

    @property
    def word_scores(self) -> np.ndarray:
        """<v, z> + b of every word: how it would be read alone."""
        return self.weights["embedding"] @ self.weights["v"] + float(self.weights["b"])

    def series(self, what: str) -> list[float]:
        return [float(epoch[what]) for epoch in self.history["epochs"]]


def trained(
    ids: Ids, dims: Sequence[int], tokens: int, schedule: Schedule, say: Progress
) -> Iterator[Fitted]:
    """Train a model in each dimension here."""
    data = split(ids, tokens=tokens)
    soft, watch = soft_and_hard(data, LAYERS)
    for i, dim in enumerate(dims):
        epochs = []
        with one_thread():
            for done in train(data, dim, soft, schedule, watch):
                share = (i + done.epoch / schedule.epochs) / len(dims)
                say(share, f"d = {dim}, epoch {done.epoch}")
                epochs.append(done)
        history = history_of(data, dim, tokens, False, schedule, epochs)
        say((i + 1) / len(dims), "leaders")
        yield history, {k: w.numpy() for k, w in epochs[-1].best.items()}, data


def stored(ids: Ids, results: str, say: Progress) -> Iterator[Fitted]:
    """The models in the folder that `_sentiment_gpu` leaves."""
    from safetensors.numpy import load_file

    files = sorted(Path(results).glob("d*_n*.json"))
    if not files:
        raise ValueError(f"results: {results} has no d<dim>_n<tokens>.json; see the module")
    histories = [(json.loads(file.read_bytes()), file) for file in files]
    histories.sort(key=lambda pair: (pair[0]["tokens"], pair[0]["dim"]))
    splits: dict[tuple[int, bool], Split] = {}
    for i, (history, file) in enumerate(histories):
        say(i / len(files), file.stem)
        tokens, stop_words = int(history["tokens"]), bool(history["stop_words"])
        if (tokens, stop_words) not in splits:
            splits[tokens, stop_words] = split(ids, tokens=tokens, stop_words=stop_words)
        data = splits[tokens, stop_words]
        same = history.get("vocabulary", data.fingerprint) == data.fingerprint
        if len(data.words) != history["words"] or not same:
            raise ValueError(
                f"{file.name}: trained on other words ({history['words']}; these reviews give "
                f"{len(data.words)}); name the reviews it was trained on as data"
            )
        yield history, load_file(file.with_suffix(".safetensors")), data
