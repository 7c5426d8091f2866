"""Texts that a fit did not see, with its weights: what reading them gives, and what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

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
        self.weight, self.sizes = task.weight[self.rows], self.documents.sizes
        seen = np.flatnonzero(~rows if not rows.all() else rows)
        seen = seen[:: max(len(seen) // _SEEN, 1)]
        self.seen, self.seen_weight = task.documents.take(seen), task.weight[seen]
        few = np.arange(0, len(self.rows), max(len(self.rows) // _FEW, 1))
        self.few, self.few_weight = self.documents.take(few), self.weight[few]

    def sums(self, weight: np.ndarray, heard: np.ndarray) -> np.ndarray:
        """(texts, columns): sums of `weight` (terms, columns) over the entries that are `heard`."""
        read = self.documents.where(heard)
        sums = [np.bincount(read.text, column[read.indices], len(read)) for column in weight.T]
        return np.stack(sums, axis=1)

    def counted(self, heard: np.ndarray, led: np.ndarray) -> np.ndarray:
        """Words named by the entries of `few` that are `heard`, leaders, their weight."""
        w = self.few_weight
        return np.array([w @ self.few.where(heard).spelt(self.spelled), w @ led, w.sum()])
