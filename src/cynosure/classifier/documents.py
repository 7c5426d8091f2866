"""Texts as sets of terms, in the order of their first appearance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

__all__ = ["Documents"]


@final
@dataclass(frozen=True, eq=False)
class Documents:
    """Texts as sets of terms: text i has the terms indices[indptr[i]:indptr[i+1]]."""

    indptr: np.ndarray
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    @property
    def sizes(self) -> np.ndarray:
        """Number of known terms of each text."""
        return np.diff(self.indptr)

    def take(self, rows: np.ndarray) -> Documents:
        """The chosen texts, in that order."""
        sizes = self.sizes[rows]
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes)
        return Documents(indptr, self.indices[np.repeat(self.indptr[:-1][rows], sizes) + within])

    def padded_batches(
        self, most_tokens: int = 1 << 19
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(rows, terms (B, n), mask (B, n)): texts of like length together, little padding.

        B (n + 1) stays near `most_tokens`, so memory does not grow with the number of texts."""
        order = np.argsort(self.sizes, kind="stable")
        sizes = self.sizes[order]
        start = 0
        while start < len(order):
            stop = start + 1
            while stop < len(order) and (
                (stop - start + 1) * (sizes[stop] + 1) <= most_tokens
                and sizes[stop] <= 1.25 * sizes[start] + 8
            ):
                stop += 1
            rows, n = order[start:stop], int(sizes[stop - 1])
            mask = np.arange(n) < self.sizes[rows][:, None]
            terms = np.zeros((len(rows), n), dtype=np.intp)
            terms[mask] = self.take(rows).indices
            yield rows, terms, mask
            start = stop
