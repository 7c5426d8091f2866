"""Clusters of tokens: two tokens share one if a chain of tokens joins them in steps <= tol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy  # loads its submodules on first use only
from jaxtyping import Float, Int

from cynosure._scale import exponent
from cynosure._types import Array, as_number, as_tokens

LINKAGE_LIMIT = 5000  # single linkage holds all n (n - 1) / 2 distances: 100 MB at this size
RELATIVE_TOL = 1e-6
TREE_DIM = 8  # up to here a search tree is fast whatever tol
PAIR_LIMIT = 5_000_000  # pairs within tol that are listed; collapsed tokens have n^2 of them


@final
@dataclass(frozen=True, eq=False)
class Clusters:
    """Tokens grouped by `clusters`.

    `labels[i]` is the number of the cluster of token i, clusters being numbered by first
    appearance; `centres` are the means of the clusters, `sizes` their numbers of tokens.
    """

    labels: Int[np.ndarray, "n"]
    centres: Float[np.ndarray, "m d"]
    sizes: Int[np.ndarray, "m"]
    tol: float

    @property
    def count(self) -> int:
        return len(self.sizes)


def clusters(z: Array, tol: float | int | None = None) -> Clusters:
    """Connected components of the graph that joins tokens with |z_i - z_j| <= tol.

    Default tol: 1e-6 times the largest distance of a token from the mean of all. Equal tokens
    always share a cluster, and tol = 0 joins no others.

    Trap: two tokens of a cluster may be far apart, if others lie between them; a layer before
    convergence therefore needs a small tol. ``tolerance_curve`` shows what tol changes.
    """
    z = as_tokens(z, ndim=2).astype(np.float64)
    tol = _default_tol(z) if tol is None else _checked(tol)
    labels = _labels(z, tol)
    sizes = np.bincount(labels)
    # Means of differences to a member: the centre of equal tokens is that token, bit for bit.
    member = z[_first(labels)]
    centres = np.zeros_like(member)
    np.add.at(centres, labels, z - member[labels])
    return Clusters(labels, member + centres / sizes[:, None], sizes, tol)


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
        diameter = _longest(np.ptp(z, axis=0)[None]) or 1.0
        values = diameter * np.logspace(-12, 0, 61)
    else:
        values = np.atleast_1d(np.asarray(tols, dtype=np.float64))
        for tol in values.tolist():
            _checked(tol)
    if len(z) == 1:
        return values, np.ones(len(values), dtype=np.intp)
    if len(z) <= LINKAGE_LIMIT:
        heights = np.sort(scipy.cluster.hierarchy.linkage(z, "single")[:, 2])
        counts = len(z) - np.searchsorted(heights, values, side="right")
    else:
        counts = np.array([_labels(z, tol).max() + 1 for tol in values.tolist()])
    return values, counts


def _default_tol(z: np.ndarray) -> float:
    down = 40 if exponent(z) > 1000 else 0  # sums of the largest floats overflow
    z = np.ldexp(z, -down)
    return float(np.ldexp(RELATIVE_TOL * max(1e-300, _longest(z - z.mean(axis=0))), down))


def _longest(x: np.ndarray) -> float:
    """max |x_i|, without squares that overflow or vanish."""
    top = float(np.abs(x).max())
    return top * float(np.linalg.norm(x / top, axis=1).max()) if top > 0 else 0.0


def _checked(tol: Any) -> float:
    return as_number(tol, "tol", "a finite distance, at least 0", lambda x: 0 <= x < np.inf)


def _first(labels: np.ndarray) -> np.ndarray:
    """Index of the first token of each cluster."""
    return np.unique(labels, return_index=True)[1]


def _labels(z: np.ndarray, tol: float) -> np.ndarray:
    """Component of each token, numbered by first appearance; equal tokens share theirs."""
    distinct, back = np.unique(z, axis=0, return_inverse=True)
    labels = _components(distinct, tol)[back.reshape(-1)]
    first = np.sort(_first(labels))
    number = np.empty(len(first), dtype=np.intp)
    number[labels[first]] = np.arange(len(first))
    return number[labels]


def _components(z: np.ndarray, tol: float) -> np.ndarray:
    n, d = z.shape
    if n == 1 or tol == 0:
        return np.arange(n)
    if exponent(z) > 1000:  # differences of the largest floats overflow
        z, tol = np.ldexp(z, -4), float(np.ldexp(tol, -4))
    # A power of two that brings the spread to 1: the tree squares distances, which may underflow.
    shift = -int(np.frexp(np.abs(z - z[0]).max())[1])
    z, tol = np.ldexp(z - z[0], shift), float(np.ldexp(tol, shift))
    if d <= TREE_DIM:
        return _tree_components(z, tol)
    labels = _split_by_gaps(z, tol)
    order = np.argsort(labels, kind="stable")
    count = int(labels.max()) + 1
    for group in np.split(order, np.cumsum(np.bincount(labels))[:-1]):
        # Most groups are alone or a collapsed cluster: all within tol of one member.
        if len(group) > 1 and np.linalg.norm(z[group] - z[group[0]], axis=1).max() > tol:
            parts = _tree_components(z[group], tol)
            labels[group] = np.where(parts == 0, labels[group], count + parts - 1)
            count += int(parts.max())
    return labels


def _split_by_gaps(z: np.ndarray, tol: float) -> np.ndarray:
    """Groups whose projections on some line leave gaps wider than tol: no edge leaves a group.

    Search trees prune on a few coordinates only and compare nearly all pairs once d is large; a
    sort along a random line separates tokens in any dimension. Rounding only makes groups larger.
    """
    rng = np.random.default_rng(0)
    wide = tol * (1 + 1e-9) + 8 * z.shape[1] * np.finfo(float).eps
    groups = np.zeros(len(z), dtype=np.intp)
    for _ in range(8):
        c = rng.standard_normal(z.shape[1])
        along = z @ (c / np.linalg.norm(c))
        order = np.lexsort((along, groups))
        cut = (np.diff(groups[order]) > 0) | (np.diff(along[order]) > wide)
        groups[order] = np.concatenate([[0], np.cumsum(cut)])
    return groups


def _tree_components(z: np.ndarray, tol: float) -> np.ndarray:
    n = len(z)
    tree = scipy.spatial.cKDTree(z)
    if tree.count_neighbors(tree, tol) - n <= 2 * PAIR_LIMIT:
        pairs = tree.query_pairs(tol, output_type="ndarray")
    else:
        pairs = _clump_pairs(z, tree, tol)
    graph = scipy.sparse.coo_matrix((np.ones(len(pairs), bool), pairs.T), shape=(n, n))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.intp)


def _clump_pairs(z: np.ndarray, tree: scipy.spatial.cKDTree, tol: float) -> np.ndarray:
    """Few pairs within tol with the same components as all of them.

    Tokens within tol/2 of a seed are pairwise within tol: they form a clump, which edges to the
    seed connect. Two clumps are joined if some members are within tol, which needs seeds within
    2 tol of each other.
    """
    owner = np.full(len(z), -1)
    seeds: list[int] = []
    members: list[np.ndarray] = []
    for i in range(len(z)):
        if owner[i] < 0:
            ball = np.array(tree.query_ball_point(z[i], tol / 2))
            ball = ball[owner[ball] < 0]
            owner[ball] = len(seeds)
            seeds.append(i)
            members.append(ball)
    pairs = [np.stack([np.array(seeds)[owner], np.arange(len(z))], axis=1)]
    trees: dict[int, scipy.spatial.cKDTree] = {}
    # 2 tol and a little: rounding may not hide a pair of clumps; the members' distances decide.
    for a, b in scipy.spatial.cKDTree(z[seeds]).query_pairs(2.001 * tol):
        small, large = sorted((a, b), key=lambda c: len(members[c]))
        if large not in trees:
            trees[large] = scipy.spatial.cKDTree(z[members[large]])
        near, which = trees[large].query(z[members[small]], distance_upper_bound=1.001 * tol)
        i = int(near.argmin())
        if near[i] <= tol:
            pairs.append(np.array([[members[small][i], members[large][which[i]]]]))
    return np.concatenate(pairs)


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
