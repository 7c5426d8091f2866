"""The convex hull of tokens: vertices, faces, membership and projection in the A-norm.

Flat sets (tokens on a line in the plane, say) are no special case: everything is computed inside
the affine hull of the tokens.

How far the answers are exact. On a line and in the plane (also a plane inside R^d) vertices are
decided exactly on the given floats: a floating-point orientation test with an error bound, and
rationals where the bound does not decide. In dimension three and more a token is called a vertex
only if a direction that exposes it is verified, in rationals where floats do not decide; a token
that sticks out of the hull of the others by rounding only may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import final

import numpy as np
import scipy  # loads its submodules (Qhull, HiGHS) on first use only
from jaxtyping import Bool, Float, Int

from .._types import Array, as_matrix, as_tokens
from .vertices import (
    directions,
    distinct,
    main_coordinates,
    orientation,
    plane_vertices,
    space_vertices,
    spread,
)

FACET_TOL = 1e-9  # vertices within this share of the spread of a facet's hyperplane belong to it
CONTAINS_TOL = 1e-12
FACET_DIM = 8
FACET_COUNT = 2_000_000


@final
@dataclass(frozen=True, eq=False)
class Polytope:
    """The convex hull of ``vertices``, which are exact copies of tokens; ``index`` says of which.

    Facets, equations and faces are computed when asked for. Sizes are Euclidean; ``project`` and
    ``distance`` take the A-norm |x|_A = <Ax, x>^(1/2) with A symmetric positive definite.
    """

    vertices: Float[np.ndarray, "v d"]
    index: Int[np.ndarray, "v"]

    @classmethod
    def from_vertices(cls, v: Array, index: Array | None = None) -> Polytope:
        """The polytope whose vertices are exactly the rows of v; this is trusted, not checked.

        The leaders of a hardmax run are such rows (arXiv 2407.01602): no hull search is needed.
        """
        vertices = as_tokens(v, "v", ndim=2).astype(np.float64)
        rows = np.arange(len(vertices)) if index is None else np.asarray(index)
        if rows.shape != (len(vertices),) or rows.dtype.kind not in "iu":
            raise ValueError(
                f"index: expected {len(vertices)} integers, one per row of v; got shape"
                f" {rows.shape} of {rows.dtype}"
            )
        return cls(vertices, rows.astype(np.intp))

    @cached_property
    def dim(self) -> int:
        """Affine dimension, 0..d."""
        v, d = self.vertices.shape
        if min(v - 1, d) <= 1:
            return min(v - 1, d)
        # Three vertices span a plane however thin it is; beyond that the rank has a tolerance.
        return 2 if d == 2 else max(2, len(directions(self.vertices)))

    @cached_property
    def _basis(self) -> np.ndarray:
        """d orthonormal rows: ``dim`` directions of the affine hull, then its normals."""
        return spread(self.vertices)[1]

    @cached_property
    def size(self) -> float:
        """Largest distance of a vertex from the first one; tolerances are relative to it."""
        x = self.vertices - self.vertices[0]
        top = float(np.abs(x).max())
        return top * float(np.linalg.norm(x / top, axis=1).max()) if top > 0 else 0.0

    @cached_property
    def affine_equations(self) -> np.ndarray:
        """(d - dim, d + 1): rows (c, b), c orthonormal, with <c, y> + b = 0 on the affine hull."""
        c = self._basis[self.dim :]
        return np.hstack([c, -(c @ self.vertices.mean(axis=0))[:, None]])

    @cached_property
    def _facets(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        if self.dim == 0:
            return (), np.zeros((0, self.vertices.shape[1] + 1))
        basis = self._basis[: self.dim]
        x = (self.vertices - self.vertices[0]) @ basis.T
        if self.dim == 1:
            sets, normals = [np.array([0]), np.array([1])], np.sign(x - x[::-1])
        elif self.dim == 2:
            turn = self._turn
            sets = [np.array(edge) for edge in zip(turn, np.roll(turn, -1))]
            sides = np.array([x[j] - x[i] for i, j in sets])
            normals = np.stack([sides[:, 1], -sides[:, 0]], axis=1)
            # The turn is counter-clockwise in two of the coordinates, perhaps not in this basis.
            normals *= np.sign(np.sum(normals * (x[[i for i, _ in sets]] - x.mean(axis=0))))
            normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        else:
            sets, normals = _qhull_facets(x, self.size)
        c = normals @ basis
        # Offsets from the vertices, so that rounding never pushes a vertex out of its polytope.
        return tuple(sets), np.hstack([c, -(self.vertices @ c.T).max(axis=0)[:, None]])

    @property
    def facets(self) -> tuple[np.ndarray, ...]:
        """Vertex positions of each facet, coplanar simplices merged.

        dim 1: the two ends; dim 2: the edges in turn; dim 0: (). Raises ValueError where there are
        too many to list (dim > 8, or more than ``FACET_COUNT`` possible).
        """
        return self._facets[0]

    @property
    def equations(self) -> np.ndarray:
        """(number of facets, d + 1): rows (c, b), c a unit outer normal, <c, y> + b <= 0 inside.

        Row i belongs to ``facets[i]``; c lies in the directions of the affine hull, whose own
        equations are ``affine_equations``.
        """
        return self._facets[1]

    def faces(self, k: int) -> tuple[tuple[int, ...], ...]:
        """Vertex positions of each face of dimension k, 0 <= k <= dim.

        The facets of a face are its maximal proper intersections with the facets of the polytope.
        """
        if not 0 <= k <= self.dim:
            raise ValueError(f"a polytope of dimension {self.dim} has faces 0..{self.dim}; got {k}")
        if k == 0:
            return tuple((i,) for i in range(len(self.vertices)))
        if k == self.dim:
            return (tuple(range(len(self.vertices))),)
        facets = [frozenset(map(int, f)) for f in self.facets]
        level = set(facets)
        for _ in range(self.dim - 1 - k):
            level = {face for f in level for face in _maximal(f & g for g in facets if not f <= g)}
        return tuple(sorted(tuple(sorted(f)) for f in level))

    @cached_property
    def _turn(self) -> np.ndarray:
        """Vertex positions around a polygon, counter-clockwise in two of the coordinates."""
        p = self.vertices[:, main_coordinates(self._basis[:2])]
        order = np.lexsort((p[:, 1], p[:, 0]))
        first, last = p[order[0]], p[order[-1]]
        above = np.array([orientation(first, last, p[i]) > 0 for i in order])
        return np.concatenate([order[~above], order[above][::-1]])

    def ordered(self) -> Float[np.ndarray, "v d"]:
        """The vertices one after the other around the polygon (counter-clockwise if d = 2)."""
        if self.dim > 2:
            raise ValueError(f"only planar polytopes have an order; this one has dim {self.dim}")
        return self.vertices[self._turn] if self.dim == 2 else self.vertices.copy()

    @cached_property
    def volume(self) -> float:
        """The dim-dimensional measure: length, area, volume, ...; 0 for a single token."""
        x = (self.vertices - self.vertices[0]) @ self._basis[: self.dim].T
        if self.dim == 0:
            return 0.0
        if self.dim == 1:
            return self.size
        if self.dim == 2:
            x = x[self._turn]
            y = np.roll(x, -1, axis=0)
            return float(abs(np.sum(x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0])) / 2)
        _refuse_too_many(*x.shape)
        return float(scipy.spatial.ConvexHull(x / self.size).volume * self.size**self.dim)

    @cached_property
    def area(self) -> float:
        """Area of a polygon, of the surface in dimension 3; 0 for a segment or a single token."""
        if self.dim < 2:
            return 0.0
        if self.dim == 2:
            return self.volume
        return sum(
            Polytope.from_vertices(self.vertices[list(face)]).volume for face in self.faces(2)
        )

    def contains(self, y: Array, tol: float | int | None = None) -> Bool[np.ndarray, "*m"]:
        """For each point of y (*m, d): is it in the polytope, up to the distance ``tol``?

        Up to dimension 3 no facet inequality and no equation of the affine hull may be violated by
        more than tol; above, the distance to the polytope may not exceed tol. Default: 1e-12 times
        the largest coordinate of the vertices.
        """
        y, shape = self._rows(y)
        if tol is None:
            tol = CONTAINS_TOL * float(np.abs(self.vertices).max())
        if self.dim <= 3:
            outside, flat = self.equations, self.affine_equations
            excess = np.concatenate(
                [y @ outside[:, :-1].T + outside[:, -1], np.abs(y @ flat[:, :-1].T + flat[:, -1])],
                axis=1,
            )
            inside = np.all(excess <= tol, axis=1)
        else:
            inside = self.distance(y) <= tol
        return inside.reshape(shape)

    def project(self, y: Array, A: Array | None = None) -> Float[np.ndarray, "*m d"]:
        """argmin |x - y|_A over x in the polytope, for each point of y (Wolfe's active set).

        Exact up to rounding: the result is the foot of y on a face, not an iterate.
        """
        y, shape = self._rows(y)
        root = _root(A, y.shape[1])
        feet = np.empty_like(y)
        for i, yi in enumerate(y):
            weights = _nearest((self.vertices - yi) @ root)
            feet[i] = weights @ self.vertices
        return feet.reshape(*shape, -1)

    def distance(self, y: Array, A: Array | None = None) -> Float[np.ndarray, "*m"]:
        """min |x - y|_A over x in the polytope, for each point of y."""
        rows, shape = self._rows(y)
        gap = np.linalg.norm((rows - self.project(rows, A)) @ _root(A, rows.shape[1]), axis=1)
        return gap.reshape(shape)

    def _rows(self, y: Array) -> tuple[np.ndarray, tuple[int, ...]]:
        """y (*m, d) as rows, and m: a single point gives results without axes."""
        y = as_tokens([y], "y")[0] if np.ndim(y) == 1 else as_tokens(y, "y")
        d = self.vertices.shape[1]
        if y.shape[-1] != d:
            raise ValueError(f"y: expected d = {d} as the polytope, got {y.shape[-1]}")
        return y.reshape(-1, d).astype(np.float64), y.shape[:-1]


def hull(z: Array) -> Polytope:
    """The convex hull of the tokens z (n, d); duplicates count once, with their first index.

    Any n and d: a single token, tokens on a line or in a flat (in R^3 and above flat means within
    ``RANK_TOL`` of the spread), a million tokens in the plane. In high dimension the vertices come
    from linear programs and the facets are refused when asked for, not the hull.
    """
    z = as_tokens(z, ndim=2).astype(np.float64)
    if z.shape[1] == 2:
        rows = plane_vertices(z)
        return Polytope(z[rows], rows)
    rows = distinct(z)
    basis = directions(z[rows])
    # Dropping coordinates is exact and one-to-one on the affine hull; rotating would round.
    p = z[rows][:, main_coordinates(basis)]
    dim = len(basis)
    if dim == 0:
        rows = rows[:1]
    elif dim == 1:
        rows = rows[[p[:, 0].argmin(), p[:, 0].argmax()]]
    elif dim == 2:
        rows = rows[plane_vertices(p)]
    elif len(rows) > dim + 1:
        rows = rows[space_vertices(p)]
    rows = np.sort(rows)
    return Polytope(z[rows], rows)


def minimal_points(polytope: Polytope, A: Array | None = None) -> Float[np.ndarray, "m d"]:
    """S = {s in K, s != 0 : max over y in K of <As, y> = |s|_A^2}, the possible limits of tokens.

    Each s is the point of least A-norm of the face {<As, y> = |s|_A^2} of K, hence a vertex or the
    foot of 0 on the affine hull of a face: finitely many (arXiv 2407.01602). All faces are listed,
    so this is meant for dim <= 3. Distances below 1e-12 of the longest token count as 0.
    """
    v = polytope.vertices
    root = _root(A, v.shape[1])
    x = v @ root
    longest = np.linalg.norm(x, axis=1).max()
    tol = CONTAINS_TOL * longest
    points: list[np.ndarray] = []
    seen: list[np.ndarray] = []  # the same in the coordinates of the A-norm
    for k in range(polytope.dim + 1):
        for face in polytope.faces(k):
            corners = x[list(face)]
            weights = _foot(corners)
            s = weights @ corners
            norm = np.linalg.norm(s)
            if norm <= tol or (x @ s).max() > norm**2 + tol * norm:
                continue
            if np.linalg.norm(_nearest(corners - s) @ corners - s) > tol:
                continue
            if not any(np.linalg.norm(s - t) <= 1e-9 * longest for t in seen):
                seen.append(s)
                points.append(weights @ v[list(face)])
    return np.array(points).reshape(-1, v.shape[1])


# --- flats ---------------------------------------------------------------------------------------


def _refuse_too_many(v: int, dim: int) -> None:
    """Facets of a cyclic polytope bound those of every polytope (upper bound theorem)."""
    half = dim // 2
    most = comb(v - dim + half, half) + comb(v - dim + (dim - 1) // 2, (dim - 1) // 2)
    if dim > FACET_DIM or most > FACET_COUNT:
        raise ValueError(
            f"facets of {v} vertices in dimension {dim} are too many to list (limits: dimension"
            f" {FACET_DIM}, {FACET_COUNT} facets); vertices, project, distance and contains work"
        )


def _qhull_facets(x: np.ndarray, size: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Vertex sets and outer unit normals of the facets, Qhull's coplanar simplices merged."""
    _refuse_too_many(*x.shape)
    x = (x - x.mean(axis=0)) / size
    planes = np.unique(scipy.spatial.ConvexHull(x).equations.round(12), axis=0)
    merged: set[frozenset[int]] = set()
    for plane in planes:
        on = np.flatnonzero(np.abs(x @ plane[:-1] + plane[-1]) <= FACET_TOL)
        if len(on) >= x.shape[1]:
            merged.add(frozenset(on.tolist()))
    sets = sorted(sorted(f) for f in _maximal(merged))
    normals = []
    for f in sets:
        # Refit: the normal of a sliver simplex is poor, that of the whole facet is not.
        centre = x[f].mean(axis=0)
        normal = np.linalg.svd(x[f] - centre)[2][-1]
        normals.append(normal if normal @ centre > 0 else -normal)
    return [np.array(f) for f in sets], np.array(normals)


def _maximal(sets: Iterable[frozenset[int]]) -> set[frozenset[int]]:
    """The sets that are contained in no other; the empty set is left out."""
    largest: list[frozenset[int]] = []
    for s in sorted(set(sets), key=len, reverse=True):
        if s and not any(s < t for t in largest):
            largest.append(s)
    return set(largest)


# --- projection ----------------------------------------------------------------------------------


def _root(A: Array | None, d: int) -> np.ndarray:
    """L with A = L L^T, so that |x|_A = |L^T x|."""
    a = as_matrix(A)
    if a is None:
        return np.eye(d)
    if a.shape != (d, d):
        raise ValueError(f"A: expected shape {(d, d)}, got {a.shape}")
    if not np.allclose(a, a.T, rtol=1e-12, atol=1e-14 * np.abs(a).max()):
        raise ValueError("A: the A-norm needs a symmetric matrix; pass (A + A.T) / 2")
    try:
        return np.linalg.cholesky((a + a.T) / 2)
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh((a + a.T) / 2)[0]
        raise ValueError(
            f"A: the A-norm needs a positive definite matrix; least eigenvalue {least:.3g}"
        ) from None


def _foot(p: np.ndarray) -> np.ndarray:
    """Weights, of sum 1 and any sign, of the point of least norm of the affine hull of p."""
    if len(p) == 1:
        return np.ones(1)
    tail = np.linalg.lstsq((p[1:] - p[0]).T, -p[0], rcond=None)[0]
    return np.concatenate([[1 - tail.sum()], tail])


def _nearest(p: np.ndarray) -> np.ndarray:
    """Weights >= 0, of sum 1, of the point of least norm of conv{p} (Wolfe 1976).

    The active rows are affinely independent; a row joins while it lies on the near side of the
    current point x, <p_j - x, x> < 0, and rows leave when the foot on their flat needs a negative
    weight. A test on the decrease of |x|^2 would stop at half the digits; the angle does not.
    """
    eps, tiny = np.finfo(float).eps, np.finfo(float).tiny
    norms = np.linalg.norm(p, axis=1)
    scale = norms.max()
    active = [int(norms.argmin())]
    w = np.ones(1)
    visited: set[frozenset[int]] = set()
    while True:
        x = w @ p[active]
        steps = p - x
        reach = np.linalg.norm(steps, axis=1)
        descent = -(steps @ x)
        rounding = 4 * eps * np.linalg.norm(x) * (p.shape[1] * reach + scale)
        j = int(np.where(descent > rounding, descent / np.maximum(reach, tiny), -1.0).argmax())
        if descent[j] <= rounding[j] or j in active or {*active, j} in visited:
            break
        active.append(j)
        visited.add(frozenset(active))
        w = np.append(w, 0.0)
        while True:
            target = _foot(p[active])
            if target.min() > 0 or len(active) == 1:
                w = target
                break
            falling = target <= 0
            ratio = w[falling] / np.maximum(w[falling] - target[falling], tiny)
            w = w + min(1.0, ratio.min()) * (target - w)
            w[np.flatnonzero(falling)[ratio.argmin()]] = 0.0
            active = [a for a, wa in zip(active, w) if wa > 0]
            w = w[w > 0] / w[w > 0].sum()
    weights = np.zeros(len(p))
    weights[active] = w
    return weights
