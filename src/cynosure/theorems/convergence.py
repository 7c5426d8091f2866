"""B1 to B4: the hulls shrink, the norms grow, and every token converges into a finite set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np

from .._types import definite
from ..analysis.polytope import CONTAINS_TOL, Polytope, minimal_points
from .checks import Hypothesis, Part, Reading, U, least, statement
from .layers import THEOREM_1_1, LayerRun, nearest, symmetric

_SAME = 1e-9  # limits closer than this are one point of `minimal_points`

_statement = partial(statement, LayerRun)


@final
@dataclass(frozen=True, eq=False)
class AveragingRun(Reading):
    """A run of normalised layers, hardmax or not: each token moves part way to a mean of tokens.

    A stored layer of n tokens is within (n + 16) u sqrt(d) of the convex hull of the layer before,
    whatever the rounding of the weights: they are positive and divided by their sum.
    """

    @cached_property
    def layers(self) -> LayerRun:
        return LayerRun(self.trajectory)

    @property
    def hardmax(self) -> bool:
        return self.trajectory.made_by.hardmax_layers is not None

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr = self.trajectory
        if self.hardmax:
            return self.layers.base
        rule = None if tr.in_time else tr.made_by.averaging
        mean = rule is not None and rule.averages
        name = "normalised layers of hardmax attention, or of any mean"
        return self.alone, Hypothesis.of(name, mean), self.every_layer, self.steps

    @property
    def A(self) -> np.ndarray:
        if self.hardmax:
            return self.layers.A
        form = self.trajectory.made_by.score_matrix
        return np.eye(self.d) if form is None else form / max(np.abs(form).max(), 1e-300)

    @property
    def step(self) -> float:
        """The error of one stored layer, in the scaled units."""
        if self.hardmax:
            return self.layers.step
        return (self.n + 16) * self.u * float(np.sqrt(self.d))


@statement(AveragingRun, "B1", "arXiv 2407.01602, nested hulls", "K_{k+1} ⊂ K_k for any matrix A")
def hull_decreases(run: AveragingRun) -> list[Part]:
    """max_j <c, z_j^k> is non-increasing in k for random c, the axes, A z_i; in R^2 areas."""
    return hulls(run.layers, run.A, run.step)


def hulls(run: LayerRun, A: np.ndarray, step: float) -> list[Part]:
    cost = run.n * run.d * (run.layers + 1)
    queries = run.z[0, run.sample(np.arange(run.n), 4 * cost)] @ A.T
    some = np.random.default_rng(0).standard_normal((64, run.d))
    some = some[run.sample(np.arange(64), 4 * cost)]
    c = np.concatenate([queries, some, np.eye(run.d), -np.eye(run.d)])
    length = np.linalg.norm(c, axis=1)
    c = c[length > 0] / length[length > 0, None]
    support = np.stack([(z @ c.T).max(axis=0) for z in run.z])
    tol = step + 4 * run.d * U * run.R
    fall = support[:-1] - support[1:]
    parts = [least("support function", fall, tol, "layer", "direction", direction=c)]
    if run.d == 2 and run.n <= 20_000:
        bodies = map(run.found.hull, range(run.layers + 1))
        area = np.array([body.volume if body.dim == 2 else 0.0 for body in bodies])
        # a hull moved by s gains at most perimeter * s, and the perimeter is at most 2 pi R
        parts.append(least("area", area[:-1] - area[1:], 4 * np.pi * run.R * tol, "layer"))
    return parts


@_statement(
    "B2",
    "docs/mathematics.md B2; implies the growing norms of arXiv 2407.01602",
    "|z_i'|_A² = |z_i|_A² + 2 eta (M_i - |z_i|_A²) + |z_i' - z_i|_A², M_i = max_l <A z_i, z_l>",
    (symmetric,),
)
def norm_growth(run: LayerRun) -> list[Part]:
    """The identity, and for definite A the two sums it bounds by R_A^2 - |z_i^0|_A^2."""
    rows, eta = run.rows, run.eta
    q, excess = run.squares[:, rows], run.tops - run.squares[:, rows]
    steps = run.z[1:, rows] - run.z[:-1, rows]
    moved = run.form(steps, steps)
    residual = q[1:] - q[:-1] - 2 * eta * excess[:-1] - moved
    tol = 4 * run.size_A * run.R * run.step + 4 * eta * run.score_error()
    axes: Any = {"token": rows}
    parts = [
        least("identity", -np.abs(residual), tol, "layer", "token", **axes),
        least("M_i >= |z_i|_A²", excess, 2 * run.score_error(), "layer", "token", **axes),
    ]
    if definite(run.A):
        room, total = run.squares[0].max() - q[0], (run.layers + 1) * tol
        squares, sums = room - moved.sum(axis=0), room - 2 * eta * excess.sum(axis=0)
        parts += [
            least("sum of squared steps", squares, total, "token", **axes),
            least("sum of M_i - |z_i|_A²", sums, total, "token", **axes),
        ]
    return parts


@_statement(
    "B3",
    "arXiv 2407.01602, Theorem 1.1 (i)",
    "every token converges to some s in S: s in K, s != 0, max over K of <As, y> = |s|_A²",
    THEOREM_1_1,
)
def convergence(run: LayerRun) -> list[Part]:
    """Limits read off the last two layers are the proved ones and lie in S; norms stay below."""
    li, e = run.limit, run.end_error
    ends = np.where(run.straight[:, None], run.ends, li.points)
    s, v = ends[run.rows], li.polytope.vertices
    blocks = np.array_split(s, 1 + len(s) * len(v) // int(4e6))
    top = np.concatenate([(x @ run.A.T @ v.T).max(axis=1) for x in blocks])
    excess, off = np.abs(top - run.form(s, s)), np.linalg.norm(ends - li.points, axis=1)
    room = run.form(li.points, li.points) - run.squares[-1]
    g = 2 * run.score_error(e)
    return [
        least("max <As, y> = |s|_A²", -excess, g, "token", token=run.rows),
        least("limit read off the layers", -off, 2 * e, "token"),
        least("|s|_A >= |z_i^K|_A", room, g, "token"),
        least("s in K", -run.outside(li.polytope), e + CONTAINS_TOL, "limit"),
    ]


@_statement(
    "B4",
    "arXiv 2407.01602, Theorem 1.1 (ii)",
    "S is finite: every limit is a vertex of K or the A-projection of 0 on a face of K",
    THEOREM_1_1,
)
def finitely_many_limits(run: LayerRun) -> list[Part]:
    """Limits read off the last two layers against the list of all such points.

    In dimension <= 3 the faces are enumerated; above, and for limits so near 0 that the list has
    none of them, 0 is projected on the face that s exposes. Both in the A-norm: a form of condition
    1e20 says nothing about other distances.
    """
    li, K, root = run.limit, run.limit.polytope, np.linalg.cholesky(run.A)
    ends = np.where(run.straight[:, None], run.ends, li.points)
    distance = np.linalg.norm(ends - li.points, axis=1)  # followers of a leader: s is a vertex
    tol = run.end_error + _SAME * run.R
    rest = run.leaderless
    per = float(np.sqrt(np.linalg.norm(run.A, 2)))  # distances in the A-norm are at most so long
    if K.dim <= 3 and len(K.vertices) <= 200:
        tol += _SAME * run.R
        listed = rest[run.norm(li.points[rest]) > 2 * CONTAINS_TOL * run.norm(K.vertices).max()]
        if len(listed):
            distance[listed] = nearest(ends[listed] @ root, minimal_points(K, run.A) @ root) / per
        rest = np.setdiff1d(rest, listed)
    rest = run.sample(rest, 1e5 * run.d)
    away = [(ends[i] - _least_of_face(run, li.points[i])) @ root for i in rest]
    distance[rest] = np.linalg.norm(np.array(away).reshape(-1, run.d), axis=1) / per
    return [least("distance to the list", -distance, tol, "token")]


def _least_of_face(run: LayerRun, s: np.ndarray) -> np.ndarray:
    """The point of least A-norm of the face of K on which <As, .> is largest."""
    v = run.limit.polytope.vertices
    score = v @ (run.A @ s)
    face = v[score >= score.max() - 2 * run.score_error(run.end_error)]
    return Polytope.from_vertices(face).project(np.zeros(run.d), run.A)
