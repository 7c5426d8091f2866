"""Clusters of tokens: two tokens share one if a chain of tokens joins them in steps <= tol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy  # loads its submodules on first use only

from .._display import Shown
from .._shapes import Float, Int
from .._types import Array, as_number, as_tokens
from ..engine.joining import RELATIVE_TOL, firsts, joined, longest, usual_tol
from ..simulation.trajectory import Trajectory

LINKAGE_LIMIT = 5000  # single linkage holds all n (n - 1) / 2 distances: 100 MB at this size


@final
@dataclass(frozen=True, eq=False)
class Clusters(Shown):
    """Tokens grouped by `clusters`.

    `labels[i]` is the number of the cluster of token i, clusters being numbered by first
    appearance; `centres` are the means of the clusters, `sizes` their numbers of tokens. Tokens
    within `tol` of each other share one; `usual` says that it is the tolerance of the rule.
    """

    labels: Int[np.ndarray, "n"]
    centres: Float[np.ndarray, "m d"]
    sizes: Int[np.ndarray, "m"]
    tol: float
    usual: bool = False

    def __repr__(self) -> str:
        of = f"{self.count} of {len(self.labels)} tokens"
        return f"Clusters({of}, joined within {self.tol:.3g}{self._rule})"

    def _table(self) -> list[tuple[str, object]]:
        more = " ..." if self.count > 20 else ""
        return [
            ("clusters", f"{self.count} of {len(self.labels)} tokens"),
            ("joined", f"within {self.tol:.3g}{self._rule}"),
            ("tokens in each", ", ".join(map(str, self.sizes[:20])) + more),
        ]

    @property
    def _rule(self) -> str:
        return f", {RELATIVE_TOL:g} of the longest token" if self.usual else ""

    @property
    def count(self) -> int:
        return len(self.sizes)


def clusters(z: Array | Trajectory, tol: float | int | None = None) -> Clusters:
    """Groups tokens into connected components: two tokens are joined if |z_i - z_j| <= tol.

    Trap: two tokens of a cluster may be far apart if others lie between them. Before convergence
    take a small tol; ``tolerance_curve`` shows what tol changes.

    Parameters
    ----------
    z
        Tokens (n, d), or a run, of which the last state is taken, without padding and divided by
        the factor by which it is known to grow.
    tol
        By default a thousandth of the longest token, of a run the longest at its start.
        `recognise`, `observe` and reports count by the same rule. tol = 0 joins equal tokens only.

    Returns
    -------
    Clusters
        Their `count`, `centres` and `sizes`, and in `labels` the cluster of each token.

    Examples
    --------
    >>> import cynosure as cy
    >>> cy.clusters([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0]], tol=0.2).count
    2
    """
    usual, first = tol is None, None
    if isinstance(z, Trajectory):
        first, z = bounded(z)[[0, -1]] if len(z) else z.values
    z = as_tokens(z, ndim=2).astype(np.float64)
    tol = usual_tol(z if first is None else first) if tol is None else _checked(tol)
    labels = joined(z, tol)
    sizes = np.bincount(labels)
    # Means of differences to a member: the centre of equal tokens is that token, bit for bit.
    member = z[firsts(labels)]
    centres = np.zeros_like(member)
    np.add.at(centres, labels, z - member[labels])
    return Clusters(labels, member + centres / sizes[:, None], sizes, tol, usual)


def tolerance_curve(
    z: Array, tols: Array | None = None
) -> tuple[Float[np.ndarray, "m"], Int[np.ndarray, "m"]]:
    """(tols, counts): the number of clusters against tol, a non-increasing staircase.

    Where the count stays the same over a long range of tol, "how many clusters" has a clear answer.
    Default tols: 61 values from 1e-12 to 1 times the diameter of the bounding box, evenly spaced in
    the logarithm. Up to 5000 tokens one single-linkage tree gives all counts; above, components are
    computed for each tol.
    """
    z = as_tokens(z, ndim=2).astype(np.float64)
    if tols is None:
        values = (longest(np.ptp(z, axis=0)[None]) or 1.0) * np.logspace(-12, 0, 61)
    else:
        values = np.atleast_1d(np.asarray(tols, dtype=np.float64))
        [_checked(tol) for tol in values.tolist()]
    if len(z) == 1:
        return values, np.ones(len(values), dtype=np.intp)
    if len(z) <= LINKAGE_LIMIT:
        heights = np.sort(scipy.cluster.hierarchy.linkage(z, "single")[:, 2])
        counts = len(z) - np.searchsorted(heights, values, side="right")
    else:
        counts = np.array([joined(z, tol).max() + 1 for tol in values.tolist()])
    return values, counts


def bounded(trajectory: Trajectory) -> np.ndarray:
    """The real tokens of all states as far as they can cluster, of one size with the start.

    Growth that is known is divided out; tokens that decay are left to do so.
    """
    made_by = trajectory.made_by
    shrink = np.minimum(made_by.growth(-np.asarray(trajectory.t, dtype=float)), 1.0)
    return shrink[:, None, None] * made_by.converging(trajectory.tokens)


def _checked(tol: Any) -> float:
    return as_number(tol, "tol", "a finite distance, at least 0", lambda x: 0 <= x < np.inf)


def medoids(distance: Float[np.ndarray, "n n"], k: int) -> Int[np.ndarray, " m"]:
    """At most k members with a small mean distance to the nearest: greedy start, then best swaps.

    `distance` holds all pairwise distances. A local optimum: no single swap is better.
    """

    def best_beside(others: list[int]) -> int:
        nearest = distance[:, others].min(axis=1, initial=np.inf)
        return int(np.minimum(nearest[:, None], distance).sum(axis=0).argmin())

    chosen: list[int] = []
    for _ in range(k):
        chosen.append(best_beside(chosen))
    for _ in range(20):
        before = chosen.copy()
        for at in range(k):
            chosen[at] = best_beside(chosen[:at] + chosen[at + 1 :])
        if chosen == before:
            break
    return np.unique(chosen)
