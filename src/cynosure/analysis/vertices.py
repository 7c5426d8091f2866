"""Which tokens are vertices of their convex hull, decided as exactly as the dimension allows.

On a line and in the plane exactly, on the given floats: an orientation test with an error bound,
and rationals where the bound does not decide. In dimension three and more a token is a vertex only
if a direction that exposes it is verified, in rationals where floats do not decide.
"""

from __future__ import annotations

import contextlib
from fractions import Fraction

import numpy as np
import scipy  # loads its submodules (Qhull, HiGHS) on first use only

from .._deadline import Deadline
from .._scale import lossless, scaled, unit

RANK_TOL = 1e-12  # tokens within this share of their spread of a flat are called flat (d >= 3)
EXPOSED_TOL = 1e-12  # a relative margin above this cannot be the rounding of a scalar product
QHULL_DIM = 4  # up to here Qhull finds the vertices of large sets, above linear programs do


def spread(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and all d right singular vectors (rows) of the tokens about their mean."""
    x = scaled(z)[0]
    x = scaled(x - x[0])[0]
    # R has the same values and vectors without an n x n companion.
    r = np.linalg.qr(x - x.mean(axis=0), mode="r")
    _, s, directions = np.linalg.svd(r, full_matrices=True)
    return s, directions


def directions(z: np.ndarray) -> np.ndarray:
    """Orthonormal rows spanning the directions of the affine hull of z, up to ``RANK_TOL``."""
    s, directions = spread(z)
    # Far from 0 a flat is flat to the ulps of its coordinates only, not to those of its spread.
    x = scaled(z)[0]
    offset = np.abs(x).max() / (np.abs(x - x[0]).max() or 1.0)
    tol = max(RANK_TOL, min(4 * np.finfo(float).eps * offset, 0.5))
    return directions[: len(s)][s > tol * s[0]]


def main_coordinates(basis: np.ndarray) -> np.ndarray:
    """As many coordinates as `basis` has rows, the best to keep, as pivoted QR chooses them.

    Dropping the others is one-to-one on the span of the basis.
    """
    if len(basis) in (0, basis.shape[1]):  # none or all
        return np.arange(len(basis))
    return np.sort(scipy.linalg.qr(basis, mode="r", pivoting=True)[1][: len(basis)])


def distinct(z: np.ndarray) -> np.ndarray:
    """First index of every distinct row, in lexicographic order of the rows."""
    order = np.lexsort(z.T[::-1])  # stable: of equal rows the first index comes first
    new = np.any(z[order[1:]] != z[order[:-1]], axis=1)
    return order[np.concatenate([[True], new])]


# --- the plane, exactly --------------------------------------------------------------------------


def orientation(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> int:
    """Sign of det(b - a, c - a), exactly for the given floats.

    (3 + 16 u) u (|left| + |right|) bounds the rounding unless a product underflows (Shewchuk 1997).
    """
    (ax, ay), (bx, by), (cx, cy) = a.tolist(), b.tolist(), c.tolist()
    if (bx == ax or cy == ay) and (by == ay or cx == ax):
        return 0  # both products have a factor 0: tokens on a line parallel to an axis are common
    left, right = (bx - ax) * (cy - ay), (by - ay) * (cx - ax)
    det, size = left - right, abs(left) + abs(right)
    if size > 1e-280 and abs(det) > 3.4e-16 * size:  # False for overflow: inf > inf, nan > nan
        return 1 if det > 0 else -1
    x, y = Fraction(ax), Fraction(ay)
    exact = (Fraction(bx) - x) * (Fraction(cy) - y) - (Fraction(by) - y) * (Fraction(cx) - x)
    return (exact > 0) - (exact < 0)


def _chain(z: np.ndarray, order: list[int]) -> list[int]:
    """Lower hull of tokens in lexicographic order, without tokens inside an edge."""
    chain: list[int] = []
    for i in order:
        while len(chain) > 1 and orientation(z[chain[-2]], z[chain[-1]], z[i]) <= 0:
            chain.pop()
        chain.append(i)
    return chain


def plane_vertices(z: np.ndarray) -> np.ndarray:
    """Ascending indices of the vertices of a planar set: Andrew's monotone chain."""
    z = lossless(z)[0]  # where floats decide most orientations: rationals are slow
    rows = np.arange(len(z))
    if len(z) > 256:
        rows = rows[_near_boundary(z)]
    order = rows[distinct(z[rows])]
    if len(order) < 3:
        return np.sort(order)
    return np.unique(_chain(z, order.tolist())[:-1] + _chain(z, order[::-1].tolist())[:-1])


def _near_boundary(z: np.ndarray) -> np.ndarray:
    """False where a token is inside the polygon of extremes in 32 directions beyond rounding."""
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    x = scaled(z)[0]
    extremes = np.unique([(x @ c).argmax() for c in np.stack([np.cos(angle), np.sin(angle)], 1)])
    corners = x[extremes[plane_vertices(x[extremes])]]
    if len(corners) < 3:
        return np.ones(len(z), dtype=bool)
    arm = corners - corners.mean(axis=0)  # of points in convex position: by angle is in order
    corners = corners[np.argsort(np.arctan2(arm[:, 1], arm[:, 0]))]
    inside = np.ones(len(z), dtype=bool)
    for a, b in zip(corners, np.roll(corners, -1, axis=0)):
        u, w = b - a, x - a
        inside &= u[0] * w[:, 1] - u[1] * w[:, 0] > 1e-14
    return ~inside


# --- space ---------------------------------------------------------------------------------------


def space_vertices(z: np.ndarray, until: Deadline) -> np.ndarray:
    """Indices of the vertices of a full-dimensional set of distinct tokens, dimension >= 3.

    Linear programs (dimension >= 5, or a Qhull that gave up) end with TimeoutError at `until`.
    """
    x = scaled(z)[0]
    x = scaled(x - x[0])[0]
    x = x - x.mean(axis=0)
    qhull = None
    with contextlib.suppress(scipy.spatial.QhullError):  # it gives up on tokens a rounding apart
        qhull = scipy.spatial.ConvexHull(x) if x.shape[1] <= QHULL_DIM else None
    if qhull is not None:
        candidates = np.sort(qhull.vertices)
        directions = np.zeros_like(x)
        np.add.at(directions, qhull.simplices, qhull.equations[:, None, :-1])
        directions = directions[candidates]
    else:
        exposed = _exposed_by_programs(x, until)
        candidates = np.array(sorted(exposed))
        directions = np.array([exposed[i] for i in candidates])
    # One by one, so that of two tokens that hide each other one stays.
    stays = np.ones(len(candidates), dtype=bool)
    sure = _margins(x[candidates], directions) > EXPOSED_TOL
    for i in np.flatnonzero(~sure):
        _ask(until)
        stays[i] = False
        stays[i] = _is_exposed(z[candidates[i]], z[candidates[stays]], directions[i])
    return candidates[stays]


def _margins(x: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """min over j != i of <c_i, x_i - x_j> / (|c_i| max |x|), block by block."""
    sizes = np.linalg.norm(directions, axis=1) * np.linalg.norm(x, axis=1).max()
    margins = np.empty(len(x))
    for start in range(0, len(x), 512):
        rows = np.arange(start, min(start + 512, len(x)))
        scores = directions[rows] @ x.T
        own = scores[rows - start, rows].copy()
        scores[rows - start, rows] = -np.inf
        margins[rows] = (own - scores.max(axis=1)) / np.where(sizes[rows] > 0, sizes[rows], np.inf)
    return margins


def _separation(v: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, float]:
    """c and t of: maximise t with <c, v - u> >= t |v - u| for all others u, |c|_inf <= 1."""
    gaps = unit(v - others)
    d = len(v)
    program = scipy.optimize.linprog(
        np.r_[np.zeros(d), -1.0],
        A_ub=np.hstack([-gaps, np.ones((len(gaps), 1))]),
        b_ub=np.zeros(len(gaps)),
        bounds=[(-1, 1)] * d + [(None, 1)],
        method="highs",
    )
    if program.x is None:
        raise RuntimeError(f"the linear program of a vertex test failed: {program.message}")
    return program.x[:d], float(program.x[d])


def _is_exposed(v: np.ndarray, others: np.ndarray, guess: np.ndarray) -> bool:
    """Is there a verified direction c with <c, v - u> > 0 for every other token u?"""
    floats, _ = scaled(np.vstack([v, others]))

    def exposes(c: np.ndarray) -> bool:
        exact = [Fraction(ci) for ci in c.tolist()]
        top = sum(ci * Fraction(vi) for ci, vi in zip(exact, v.tolist()))
        scores = floats[1:] @ c
        # Those well below the best score are below it exactly, whatever the rounding.
        near = scores >= scores.max() - 1e-9 * (np.abs(c).sum() * np.abs(floats[1:]).max())
        return all(
            sum(ci * Fraction(ui) for ci, ui in zip(exact, u)) < top for u in others[near].tolist()
        )

    return exposes(guess) or exposes(_separation(floats[0], floats[1:])[0])


def _ask(until: Deadline) -> None:
    if until.passed:
        raise TimeoutError("hull: its time is over; give fewer tokens or a later deadline")


def _exposed_by_programs(x: np.ndarray, until: Deadline) -> dict[int, np.ndarray]:
    """Vertex -> exposing direction, by Clarkson's output-sensitive scheme.

    A token is tested against the vertices known so far only; a direction that separates it from
    them leads to a new vertex, perhaps another.
    """
    exposed: dict[int, np.ndarray] = {}

    def add(c: np.ndarray) -> int:
        scores = x @ c
        ties = np.flatnonzero(scores >= scores.max() - 1e-13 * np.linalg.norm(c))
        i = int(ties[np.lexsort(x[ties].T[::-1])[-1]])  # the extreme of a face in a fixed order
        if i not in exposed or len(ties) == 1:
            exposed[i] = c
        return i

    # Long tokens expose themselves or a longer one: cheap, and most vertices in high dimension.
    for i in np.argsort(-np.linalg.norm(x, axis=1))[:4096]:
        add(x[i])
    for i in range(len(x)):
        while i not in exposed:
            _ask(until)
            known = list(exposed)
            c, margin = _separation(x[i], x[known])
            if margin <= 1e-9:
                break
            if add(c) in known:  # only rounding can say so: x[i] beats all of them along c
                exposed[i] = c
    return exposed
