"""Texts as sets of terms, in the order of their first appearance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np


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

    @property
    def text(self) -> np.ndarray:
        """The text of each entry of `indices`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, rows: np.ndarray) -> Documents:
        """The chosen texts, in that order."""
        sizes = self.sizes[rows]
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes)
        return Documents(indptr, self.indices[np.repeat(self.indptr[:-1][rows], sizes) + within])

    def only(self, kept: np.ndarray) -> Documents:
        """The same texts with only the terms that are `kept` (terms,)."""
        return self.where(kept[self.indices])

    def where(self, kept: np.ndarray) -> Documents:
        """The same texts with only the entries of `indices` that are `kept`."""
        return Documents(np.concatenate(([0], np.cumsum(kept)))[self.indptr], self.indices[kept])

    def presence(self, terms: int) -> Any:
        """(texts, terms) sparse, 1 where a text has a term."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.indices))
        indptr = self.indptr.astype(np.int32)  # the solver reads no other
        return csr_array((ones, self.indices.astype(np.int32), indptr), (len(self), terms))

    def spelt(self, spelled: Any) -> np.ndarray:
        """(texts,) how many different words are in the terms; `spelled` (terms, words) sparse."""
        return np.diff((self.presence(spelled.shape[0]) @ spelled).indptr)

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
