"""Words taken out of a fitted model: their terms weigh nothing, only the decoder is refitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.model import Model
from ..model.plane import Plane, Together
from ..text.inputs import as_labels, as_texts
from ..text.vocabulary import Vocabulary, surface
from .convex import decoders
from .held_out import Sums


def silenced(
    model: Model, vocabulary: Vocabulary, classes: np.ndarray, words: Iterable[str], X: Any, y: Any
) -> tuple[Model, str]:
    """The edited model and a note, see `HardmaxClassifier.without`."""
    if isinstance(words, str):
        raise TypeError(f"words: expected a list of words, got one string; write [{words!r}]")
    words = list(words)
    if wrong := [word for word in words if not isinstance(word, str)]:
        raise TypeError(f"words: expected a list of words, got {type(wrong[0]).__name__} in it")
    gone = frozenset(map(vocabulary.tokenizer.spelling, words))
    rows = np.array([not gone.isdisjoint(surface(term)) for term in vocabulary.terms])
    out = _joined(model, tuple(_silenced(plane, rows) for plane in model.planes))
    if X is not None:
        out = _decoded(out, vocabulary, classes.tolist(), as_texts(X), as_labels(y))
    return out, f"weigh nothing: {', '.join(sorted(gone))} ({rows.sum()} terms)"


def _silenced(plane: Plane, rows: np.ndarray) -> Plane:
    """The same plane with these terms in the direction of the anchor, which silences them."""
    if plane.rays is None or not plane.rays.apart:
        raise ValueError("words: only models fitted by Placed can be edited; this one was learned")
    axis = plane.anchor / np.linalg.norm(plane.anchor)
    embedding = plane.embedding.copy()
    embedding[rows] = axis * plane.rays.radius.max()
    return replace(plane, embedding=embedding)


def _joined(model: Model, planes: tuple[Plane, ...]) -> Model:
    together = planes[0].together is not None
    return replace(model, planes=Together.of(planes) if together else planes)


def _decoded(
    model: Model, vocabulary: Vocabulary, known: list[Any], texts: list[str], y: np.ndarray
) -> Model:
    """The model with slopes, intercepts and the anchor's weight by likelihood on these texts."""
    new = sorted(set(y.tolist()) - set(known), key=str)
    if new or len(y) != len(texts):
        raise ValueError(f"y: expected a label of {known} per text, got {new or len(y)}")
    documents = vocabulary.encode(texts)
    number = np.array([known.index(label) for label in y.tolist()])
    b, count = (np.array([getattr(p, k) for p in model.planes]).reshape(-1) for k in ("b", "count"))
    sums = (model.read(documents).decision - b) * (documents.sizes[:, None] + count)
    fits = decoders(Sums(sums, documents.sizes, np.ones(len(y))), number)
    planes = tuple(
        replace(plane, v=slope * plane.v, b=np.array([b]), count=m)
        for plane, (m, slope, b) in zip(model.planes, fits, strict=True)
    )
    return _joined(model, planes)
