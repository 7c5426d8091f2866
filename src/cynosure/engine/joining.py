"""joined(): tokens in groups, two in one if a chain of tokens joins them in steps <= tol."""

from __future__ import annotations

import numpy as np
import scipy  # loads its submodules on first use only

from .._scale import exponent

RELATIVE_TOL = 1e-3  # of the longest token: the rule for clusters everywhere
TREE_DIM = 8  # up to here a search tree is fast whatever tol
PAIR_LIMIT = 5_000_000  # pairs within tol that are listed; collapsed tokens have n^2 of them


def usual_tol(z: np.ndarray) -> float:
    """A thousandth of the longest token."""
    return max(RELATIVE_TOL * longest(z), 1e-306)


def longest(x: np.ndarray) -> float:
    """max |x_i|, without squares that overflow or vanish."""
    top = float(np.abs(x).max())
    return top * float(np.linalg.norm(x / top, axis=1).max()) if top > 0 else 0.0


def firsts(labels: np.ndarray) -> np.ndarray:
    """Index of the first token of each cluster."""
    return np.unique(labels, return_index=True)[1]


def joined(z: np.ndarray, tol: float) -> np.ndarray:
    """Component of each token, numbered by first appearance; equal tokens share theirs."""
    distinct, back = np.unique(z, axis=0, return_inverse=True)
    labels = _components(distinct, tol)[back.reshape(-1)]
    first = np.sort(firsts(labels))
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

    Search trees compare nearly all pairs once d is large. Rounding only makes groups larger.
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

    Tokens within tol/2 of a seed form a clump, which edges to the seed connect. Two clumps are
    joined if some members are within tol, which needs seeds within 2 tol of each other.
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
