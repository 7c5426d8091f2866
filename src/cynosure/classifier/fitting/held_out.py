"""Texts that a fit did not see, with its weights: what reading them gives, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from ..text.documents import Documents

if TYPE_CHECKING:
    from .placement import Task

_FEW = 500  # texts of a fold on which words and leaders are counted
_SEEN = 2000  # texts of a fit from which its centre is taken


@final
class HeldOut:
    """The task's texts at `rows` (a mask), for weights `s` that were fitted on the others."""

    def __init__(self, task: Task, rows: np.ndarray, s: np.ndarray) -> None:
        self.spelled, self.rows = task.spelled, np.flatnonzero(rows)
        self.documents = task.documents.take(self.rows)
        if not rows.all():  # a new text has no term that no training text had
            rest = task.documents.take(np.flatnonzero(~rows))
            self.documents = self.documents.only(np.bincount(rest.indices, minlength=len(s)) > 0)
        self.weight = task.weight[self.rows]
        seen = np.flatnonzero(~rows if not rows.all() else rows)
        seen = seen[:: max(len(seen) // _SEEN, 1)]
        self.seen, self.seen_weight = task.documents.take(seen), task.weight[seen]
        few = np.arange(0, len(self.rows), max(len(self.rows) // _FEW, 1))
        self.few, self.few_weight = self.documents.take(few), self.weight[few]

    def counted(self, heard: np.ndarray, led: np.ndarray) -> np.ndarray:
        """Words named by the entries of `few` that are `heard`, leaders, their weight."""
        w = self.few_weight
        return np.array([w @ self.few.where(heard).spelt(self.spelled), w @ led, w.sum()])


def sums(documents: Documents, weight: np.ndarray, heard: np.ndarray) -> np.ndarray:
    """(texts, columns): sums of `weight` (terms, columns) over the entries that are `heard`."""
    read = documents.where(heard)
    found = [np.bincount(read.text, column[read.indices], len(read)) for column in weight.T]
    return np.stack(found, axis=1)


@final
@dataclass(frozen=True, eq=False)
class Sums:
    """`sums` (texts, columns) of the terms read of texts of `sizes` terms, which count `weight`."""

    sums: np.ndarray
    sizes: np.ndarray
    weight: np.ndarray

    def means(self, count: float | None) -> np.ndarray:
        """What the mean token has of them, the anchor counted `count` times; None divides by the
        root of the number of terms, to compare readings before `count` is known."""
        size = np.sqrt(self.sizes + 1.0) if count is None else self.sizes + count
        return np.asarray(self.sums / size[:, None])

    def centre(self, count: float | None) -> np.ndarray:
        """(columns,) the mean of these over the texts."""
        return np.asarray(self.weight @ self.means(count) / self.weight.sum())

    @classmethod
    def joined(cls, parts: Sequence[Sums]) -> Sums:
        """The sums of one list of texts after the other."""
        names = "sums", "sizes", "weight"
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@final
@dataclass(frozen=True, eq=False)
class Folds:
    """The sums of texts held out, fold by fold, of texts that each fold's fit has seen, and of
    texts seen by the final fit. Each fit has a zero of its own, which few texts tell poorly: means
    are taken from the centre of what was seen."""

    away: tuple[Sums, ...]
    seen: tuple[Sums, ...]
    final: Sums

    def means(self, count: float | None) -> np.ndarray:
        """(texts, columns) of the texts held out, each from the centre of its fit."""
        pairs = zip(self.away, self.seen, strict=True)
        return np.concatenate([away.means(count) - seen.centre(count) for away, seen in pairs])

    def centre(self, count: float | None) -> np.ndarray:
        """(columns,) of the final fit."""
        return self.final.centre(count)

    @property
    def weight(self) -> np.ndarray:
        """How often each text held out counts."""
        return np.concatenate([away.weight for away in self.away])

    @property
    def sizes(self) -> np.ndarray:
        """Number of known terms of each text held out."""
        return np.concatenate([away.sizes for away in self.away])
