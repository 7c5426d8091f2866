"""How far around a vertex of K a token is held apart from the rest of S, for Figures 4 and 5.

    (*)   <x, y - x> < 0   whenever |x - s_0| <= delta and |y - s| <= delta, s in S, s != s_0

docs/mathematics.md B4 has what follows from it, and why it says that the delta-ball of every other
point s lies inside the branch |y - 2 s_0| - |y| > 2 delta of a hyperbola. That region shrinks and
the ball grows with delta, so bisection finds the one delta at which they touch. The distance of s
from a branch is exact: in the plane of 0, s_0 and s its feet are the positive roots of a quartic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import cynosure as cy

from ..analysis.polytope import minimal_points

__all__ = ["PossibleLimits", "Separation", "largest_delta", "possible_limits", "sure_delta"]


class Separation(NamedTuple):
    """The largest delta of one vertex of K, and where it is reached: <A x, y - x> = 0."""

    delta: float
    nearest: int  # row, among the other points, of the one whose ball is touched
    x: np.ndarray  # within delta of s_0
    y: np.ndarray  # within delta of that point


def largest_delta(s0: np.ndarray, others: np.ndarray, A: np.ndarray | None = None) -> Separation:
    """The supremum of the delta of (*) for the vertex s0 (d,) and the other points of S, (m, d).

    0 where some other point is on the hyperplane of s0 or beyond: s0 is no vertex of K. Lengths
    are A-norms.
    """
    if len(s0) < 2:
        raise ValueError(f"largest_delta: expected tokens of dimension 2 or more, got {len(s0)}")
    if len(others) == 0:
        raise ValueError("largest_delta: expected another point of S; alone, every delta will do")
    root = np.eye(len(s0)) if A is None else np.linalg.cholesky(A)
    centre, points = s0 @ root, others @ root
    sure = _sure(centre, points)
    delta, at = np.inf, 0
    for j in np.argsort(sure).tolist():
        if sure[j] < delta:  # or its ball is surely farther than the nearest so far
            delta, at = min((delta, at), (_one_delta(centre, points[j]), j))
    y = points[at] if delta == 0 else _foot(centre, points[at], delta)
    towards = y / 2 - centre
    x = centre + delta * towards / np.linalg.norm(towards)
    back = np.linalg.inv(root)
    return Separation(delta, at, x @ back, y @ back)


def sure_delta(s0: np.ndarray, others: np.ndarray, A: np.ndarray | None = None) -> float:
    """<s_0, s_0 - s> / (|s - 2 s_0| + |s_0|), least over the others: never above the largest."""
    root = np.eye(len(s0)) if A is None else np.linalg.cholesky(A)
    return float(_sure(s0 @ root, others @ root).min())


def _sure(centre: np.ndarray, points: np.ndarray) -> np.ndarray:
    """That bound for each point, with A = I; 0 where the point is not behind the hyperplane."""
    far = np.linalg.norm(points - 2 * centre, axis=1) + np.linalg.norm(centre)
    return ((centre - points) @ centre / far).clip(min=0.0)


def _one_delta(centre: np.ndarray, s: np.ndarray) -> float:
    """The delta at which the ball of s touches the branch, for A = I."""
    low, high = 0.0, float(np.linalg.norm(s - 2 * centre) - np.linalg.norm(s)) / 2
    if centre @ (s - centre) >= 0 or high <= 0:
        return 0.0
    for _ in range(52):  # to the last bit but one, relative to the largest delta possible
        middle = (low + high) / 2
        if np.linalg.norm(_foot(centre, s, middle) - s) > middle:
            low = middle
        else:
            high = middle
    return low


def _foot(centre: np.ndarray, s: np.ndarray, delta: float) -> np.ndarray:
    """The point nearest to s of the branch |y - 2 centre| - |y| = 2 delta.

    In the plane of 0, centre and s, with the centre as origin and xi along it, the branch is
    (-delta cosh t, b sinh t), b^2 = a^2 - delta^2, a = |centre|. Where its distance from (xi, eta),
    the place of s, is stationary, w = e^t solves
    a^2 w^4 + 2 (delta xi - eta b) w^3 - 2 (delta xi + eta b) w - a^2 = 0.
    """
    a = float(np.linalg.norm(centre))
    along = centre / a
    xi = float((s - centre) @ along)
    across = (s - centre) - xi * along
    eta = float(np.linalg.norm(across))
    if eta > 0:
        across = across / eta
    else:  # s on the axis: any direction will do
        across = np.eye(len(s))[int(np.abs(along).argmin())]
        across = across - (across @ along) * along
        across = across / np.linalg.norm(across)
    b = np.sqrt(max(a * a - delta * delta, 0.0))
    roots = np.roots([a * a, 2 * (delta * xi - eta * b), 0.0, -2 * (delta * xi + eta * b), -a * a])
    w = roots.real[(np.abs(roots.imag) <= 1e-7 * np.abs(roots)) & (roots.real > 0)]
    branch = np.stack([-delta * (w + 1 / w) / 2, b * (w - 1 / w) / 2], axis=1)
    near = branch[np.argmin(((branch - [xi, eta]) ** 2).sum(axis=1))]
    return centre + near[0] * along + near[1] * across


class PossibleLimits(NamedTuple):
    """K and S of a start, and what the lemma gives for each point of S."""

    limit: cy.analysis.Limit
    points: np.ndarray  # S, (m, d)
    vertex: np.ndarray  # which of them are vertices of K
    separations: tuple[Separation, ...]  # of the vertices, in their order

    @property
    def delta(self) -> float:
        """One delta for all vertices."""
        return min(s.delta for s in self.separations)


def possible_limits(dynamics: cy.PureAttention, z0: np.ndarray) -> PossibleLimits:
    """K from the certified limit, S from K, and the largest delta of every vertex."""
    li = cy.limit(dynamics, z0)
    A = dynamics.score_matrix
    points = minimal_points(li.polytope, A)
    corners = li.polytope.vertices
    vertex = (np.linalg.norm(points[:, None] - corners, axis=2) == 0).any(axis=1)
    found = tuple(
        largest_delta(points[i], np.delete(points, i, axis=0), A) for i in np.flatnonzero(vertex)
    )
    return PossibleLimits(li, points, vertex, found)
