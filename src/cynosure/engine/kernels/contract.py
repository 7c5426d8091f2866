"""What every kernel takes and returns; see `cynosure.engine.kernels` for the functions."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

U = 2.0**-53  # unit roundoff of float64


class Classes(NamedTuple):
    """Value classes of tokens: equal rows are one class with a multiplicity."""

    label: Indices  # (n,) class of each token, classes numbered by first appearance
    first: Indices  # (m,) first token of each class
    count: Indices  # type: ignore[assignment]  # (m,) multiplicity


class Candidates(NamedTuple):
    """For each query the keys whose computed score is within its slack of the best, as CSR rows."""

    best: Indices  # (nq,) a maximiser of the computed score
    indptr: Indices  # (nq + 1,)
    indices: Indices  # row i: indices[indptr[i]:indptr[i + 1]], ascending, contains best[i]
    gap: Floats  # (nq,) best score minus the best outside the row (inf: none); (0,) if not asked


class BatchRun(NamedTuple):
    """Many small configurations carried through their layers; see `kernels.run_batch`."""

    z: Floats  # (S, B, n, d) tokens at the saved layers
    born: Indices  # (B, n) first layer with C_i = {i}, -1 never (or padding)
    settled_at: Indices  # (B, n) layer at which the token's limit became certain, -1 not yet
    leader: Indices  # (B, n) the token it settled on (itself for a leader), -1 not yet
    unsure: NDArray[np.bool_]  # (B,) a decision fell inside the rounding bound: redo exactly


def assemble(
    best: Indices, m: int, tied: Indices, row: Indices, member: Indices, gap: Floats
) -> Candidates:
    """CSR rows from the single member `best` and, for the rows `tied`, the (row, member) pairs."""
    nq = len(best)
    if not len(tied):
        return Candidates(best, np.arange(nq + 1), best.copy(), gap)
    counts = np.ones(nq, np.intp)
    counts[tied] = 0
    counts += np.bincount(row, minlength=nq)
    indptr = np.zeros(nq + 1, np.intp)
    np.cumsum(counts, out=indptr[1:])
    many = np.zeros(nq, bool)
    many[tied] = True
    place = np.repeat(many, counts)
    indices = np.empty(indptr[-1], np.intp)
    indices[~place] = best[~many]
    indices[place] = np.sort(row * m + member) % m  # by row, then by key
    return Candidates(best, indptr, indices, gap)


def merged(chosen: NDArray[np.bool_], one: Candidates, other: Candidates, m: int) -> Candidates:
    """The rows of `one` where `chosen`, those of `other` elsewhere."""
    place = np.concatenate((np.flatnonzero(chosen), np.flatnonzero(~chosen)))
    both = joined([one, other])
    best, gap = np.empty_like(both.best), np.empty_like(both.gap)
    best[place] = both.best
    if len(gap):
        gap[place] = both.gap
    row = np.repeat(place, np.diff(both.indptr))
    return assemble(best, m, np.arange(len(place)), row, both.indices, gap)


def joined(parts: list[Candidates]) -> Candidates:
    """The rows of all parts, one after another."""
    ends = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    starts = [part.indptr[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    return Candidates(
        np.concatenate([part.best for part in parts]),
        np.concatenate([*starts, ends[-1:]]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.gap for part in parts]),
    )
