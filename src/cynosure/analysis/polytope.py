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

from .._deadline import Deadline
from .._display import Shown
from .._exports import guarded
from .._scale import exponent, lengths, scaled, shifted, unit
from .._shapes import Bool, Float, Int
from .._types import Array, as_tokens
from .projection import foot, nearest, root_of
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


@guarded
@final
@dataclass(frozen=True, eq=False)
class Polytope(Shown):
    """The convex hull of ``vertices``, which are exact copies of tokens; ``index`` says of which.

    Facets, equations and faces are computed when asked for. Sizes are Euclidean; ``project`` and
    ``distance`` take the A-norm |x|_A = <Ax, x>^(1/2) with A symmetric positive definite.

    Everything is computed for the vertices divided by a power of two and given in the units of the
    vertices: a polytope of size 1e250 or 1e-250 is that of size 1, bit for bit. A volume that is
    no float is inf or 0.
    """

    vertices: Float[np.ndarray, "v d"]
    index: Int[np.ndarray, "v"]

    def __repr__(self) -> str:
        v, d = self.vertices.shape
        return f"Polytope({v} vertices in R^{d})"

    def _table(self) -> list[tuple[str, object]]:
        v, d = self.vertices.shape
        tokens = self.index.tolist()
        named = ", ".join(map(str, tokens[:20])) + (" ..." if v > 20 else "")
        rows: list[tuple[str, object]] = [("vertices", f"{v} in R^{d}"), ("tokens", named)]
        return rows + [("dimension", self.dim), ("size", f"{self.size:.4g}")]

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
    def _scaled(self) -> tuple[np.ndarray, int]:
        """(x, e) with vertices = 2^e x and x at most 1."""
        return scaled(self.vertices)

    @cached_property
    def _basis(self) -> np.ndarray:
        """d orthonormal rows: ``dim`` directions of the affine hull, then its normals."""
        return spread(self.vertices)[1]

    @cached_property
    def _size(self) -> float:
        """`size` in the units of `_scaled`."""
        x = self._scaled[0]
        return float(lengths(x - x[0]).max())

    @cached_property
    def size(self) -> float:
        """Largest distance of a vertex from the first one; tolerances are relative to it."""
        return _in_units(self._size, self._scaled[1])

    @cached_property
    def _flat(self) -> np.ndarray:
        """`affine_equations` in the units of `_scaled`."""
        c = self._basis[self.dim :]
        return np.hstack([c, -(c @ self._scaled[0].mean(axis=0))[:, None]])

    @cached_property
    def affine_equations(self) -> np.ndarray:
        """(d - dim, d + 1): rows (c, b), c orthonormal, with <c, y> + b = 0 on the affine hull."""
        return _in_units_of(self._flat, self._scaled[1])

    @cached_property
    def _facets(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """`facets`, and `equations` in the units of `_scaled`."""
        if self.dim == 0:
            return (), np.zeros((0, self.vertices.shape[1] + 1))
        basis, vertices = self._basis[: self.dim], self._scaled[0]
        x = (vertices - vertices[0]) @ basis.T
        if self.dim == 1:
            sets, normals = [np.array([0]), np.array([1])], np.sign(x - x[::-1])
        elif self.dim == 2:
            turn = self._turn
            sets = [np.array(edge) for edge in zip(turn, np.roll(turn, -1))]
            sides = np.array([x[j] - x[i] for i, j in sets])
            normals = np.stack([sides[:, 1], -sides[:, 0]], axis=1)
            # The turn is counter-clockwise in two of the coordinates, perhaps not in this basis.
            normals *= np.sign(np.sum(normals * (x[[i for i, _ in sets]] - x.mean(axis=0))))
            normals = unit(normals)
        else:
            sets, normals = _qhull_facets(x, self._size)
        c = normals @ basis
        # Offsets from the vertices, so that rounding never pushes a vertex out of its polytope.
        return tuple(sets), np.hstack([c, -(vertices @ c.T).max(axis=0)[:, None]])

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
        return _in_units_of(self._facets[1], self._scaled[1])

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
        vertices, e = self._scaled
        x = (vertices - vertices[0]) @ self._basis[: self.dim].T
        if self.dim == 0:
            return 0.0
        if self.dim == 1:
            return self.size
        if self.dim == 2:
            x = x[self._turn]
            y = np.roll(x, -1, axis=0)
            plain = float(abs(np.sum(x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0])) / 2)
        else:
            _refuse_too_many(*x.shape)
            hulled = scipy.spatial.ConvexHull(x / self._size)
            plain = float(hulled.volume * self._size**self.dim)
        return _in_units(plain, self.dim * e)

    def contains(self, y: Array, tol: float | int | None = None) -> Bool[np.ndarray, "*m"]:
        """For each point of y (*m, d): is it in the polytope, up to the distance ``tol``?

        Up to dimension 3 no facet inequality and no equation of the affine hull may be violated by
        more than tol; above, the distance to the polytope may not exceed tol. Default: 1e-12 times
        the largest coordinate of the vertices.
        """
        y, shape = self._rows(y)
        vertices, e = self._scaled
        if tol is None:
            tol = CONTAINS_TOL * float(np.abs(vertices).max())
        else:
            tol = _in_units(float(tol), -e)
        if self.dim <= 3:
            with np.errstate(over="ignore", invalid="ignore"):  # far outside: inf, or inf - inf
                y = shifted(y, -e)
                outside, off = (
                    y @ planes[:, :-1].T + planes[:, -1] for planes in (self._facets[1], self._flat)
                )
            excess = np.concatenate([outside, np.abs(off)], axis=1)
            inside = np.all(excess <= tol, axis=1)
        else:
            inside = shifted(self.distance(y), -e) <= tol
        return inside.reshape(shape)

    def project(self, y: Array, A: Array | None = None) -> Float[np.ndarray, "*m d"]:
        """argmin |x - y|_A over x in the polytope, for each point of y (Wolfe's active set).

        Exact up to rounding: the result is the foot of y on a face, not an iterate.
        """
        y, shape = self._rows(y)
        root, _ = root_of(A, y.shape[1])
        vertices, e = self._scaled
        near = vertices - vertices[0]
        # Beyond 2^900 sizes away only the direction counts, and no product may overflow.
        far = np.clip(shifted(y, -e), -(2.0**900), 2.0**900) - vertices[0]
        feet = np.empty_like(y)
        for i, yi in enumerate(far):  # one by one, so that a point has one foot, to the last bit
            feet[i] = shifted(nearest(near @ root, yi @ root) @ vertices, e)
        return feet.reshape(*shape, -1)

    def distance(self, y: Array, A: Array | None = None) -> Float[np.ndarray, "*m"]:
        """min |x - y|_A over x in the polytope, for each point of y."""
        rows, shape = self._rows(y)
        feet, (root, h) = self.project(rows, A), root_of(A, rows.shape[1])
        e = np.maximum(exponent(rows, -1), exponent(feet, -1))
        gap = lengths((shifted(rows, -e) - shifted(feet, -e)) @ root)
        return shifted(gap, e[:, 0] + h).reshape(shape)

    def _rows(self, y: Array) -> tuple[np.ndarray, tuple[int, ...]]:
        """y (*m, d) as rows, and m: a single point gives results without axes."""
        y = as_tokens([y], "y")[0] if np.ndim(y) == 1 else as_tokens(y, "y")
        d = self.vertices.shape[1]
        if y.shape[-1] != d:
            raise ValueError(f"y: expected d = {d} as the polytope, got {y.shape[-1]}")
        return y.reshape(-1, d).astype(np.float64), y.shape[:-1]


def hull(z: Array, *, deadline: float | None = None) -> Polytope:
    """Returns the convex hull of tokens.

    Parameters
    ----------
    z
        Tokens (n, d), any n and d. Duplicates count once, with their first index. In three or more
        dimensions, tokens within ``RANK_TOL`` of their spread count as flat. In high dimension
        vertices come from linear programmes, and facets are refused when asked for.
    deadline
        Seconds after which the linear programmes end with TimeoutError.

    Returns
    -------
    Polytope
        `vertices`, and in `index` the tokens that they are; facets, size and distances when asked
        for.

    Examples
    --------
    >>> import cynosure as cy
    >>> len(cy.hull([[0, 0], [1, 0], [0, 1], [0.2, 0.2]]).vertices)
    3
    """
    until = Deadline(deadline)
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
        rows = rows[space_vertices(p, until)]
    rows = np.sort(rows)
    return Polytope(z[rows], rows)


def minimal_points(polytope: Polytope, A: Array | None = None) -> Float[np.ndarray, "m d"]:
    """S = {s in K, s != 0 : max over y in K of <As, y> = |s|_A^2}, the possible limits of tokens.

    Each s is the point of least A-norm of the face {<As, y> = |s|_A^2} of K, hence a vertex or the
    foot of 0 on the affine hull of a face: finitely many (arXiv 2407.01602). All faces are listed,
    so this is meant for dim <= 3. Distances below 1e-12 of the longest token count as 0.
    """
    v = polytope.vertices
    root, _ = root_of(A, v.shape[1])
    x = scaled(v)[0] @ root
    longest = np.linalg.norm(x, axis=1).max()
    tol = CONTAINS_TOL * longest
    points: list[np.ndarray] = []
    seen: list[np.ndarray] = []  # the same in the coordinates of the A-norm
    for k in range(polytope.dim + 1):
        for face in polytope.faces(k):
            corners = x[list(face)]
            weights = foot(corners)
            s = weights @ corners
            norm = np.linalg.norm(s)
            if norm <= tol or (x @ s).max() > norm**2 + tol * norm:
                continue
            if np.linalg.norm(nearest(corners - corners[0], s - corners[0]) @ corners - s) > tol:
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


# --- units ---------------------------------------------------------------------------------------


def _in_units(x: float, e: int) -> float:
    """2^e x; inf or 0 where that is no float."""
    return float(shifted(np.float64(x), e))


def _in_units_of(planes: np.ndarray, e: int) -> np.ndarray:
    """Rows (c, b) with the offset b times 2^e."""
    return np.hstack([planes[:, :-1], shifted(planes[:, -1:], e)])
