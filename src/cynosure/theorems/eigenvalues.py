"""B26 to B29: what the leading eigenvalue of V does: hyperplanes, polytopes, or collapse to 0."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..analysis.polytope import hull
from ..dynamics import EuclideanFlow
from .checks import Hypothesis, Part, least, statement
from .flows import FlowRun, support

_statement = partial(statement, FlowRun)


def _good_triple(run: FlowRun) -> Hypothesis:
    least_of = min(run.triple.gap, run.triple.alignment, run.triple.leading.real)
    name = "good triple (least of l1, l1 - |l2|, <Qf, Kf>)"
    return Hypothesis(name, run.triple.holds, float(least_of))


def _leading_values(run: FlowRun) -> np.ndarray:
    """f1* of the tokens, (times, n)."""
    return run.y @ run.triple.dual


def _still(run: FlowRun, what: str, values: np.ndarray) -> Hypothesis:
    return Hypothesis(f"{what} stand still (distance to go)", run.still(values), run.left(values))


def _values_still(run: FlowRun) -> Hypothesis:
    return _still(run, "values of f1*", _leading_values(run))


@_statement(
    "B26",
    "arXiv 2305.05465, lemma on three hyperplanes",
    "good triple: f1*(z_i(t)) stays in its range and tends to at most three values {a, 0, b}",
    (_good_triple, _values_still),
)
def hyperplanes(run: FlowRun) -> list[Part]:
    """f1* is the dual of the leading eigenvector: f_i' = l1 (sum_j P_ij f_j - f_i).

    a and b are the least and the largest value at the end; a token elsewhere is at 0.
    """
    f = _leading_values(run)
    size = float(np.linalg.norm(run.triple.dual))
    end = f[-1]
    away = np.minimum(np.abs(end), np.minimum(end - end.min(), end.max() - end))
    inward = np.minimum(f[:-1].max(1) - f[1:].max(1), f[1:].min(1) - f[:-1].min(1))
    values = {"values": [float(end.min()), 0.0, float(end.max())]}
    tol = size * run.error + 10 * run.left(f)
    return [
        least("range of f1*", inward, 2 * size * run.local, "time", time=run.t[1:]),
        least("distance from {a, 0, b}", -away, tol, "token", **values),
    ]


def _eigenspace(run: FlowRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Orthonormal bases of F = ker(V - l), of G = range(V - l), and of the left eigenspace."""
    u, _, vt = np.linalg.svd(run.V - run.triple.leading.real * np.eye(run.d))
    m = run.triple.multiplicity
    return vt[run.d - m :].T, u[:, : run.d - m], u[:, run.d - m :]


def _paranormal(run: FlowRun) -> Hypothesis:
    triple = run.triple
    ok = triple.paranormal and 2 <= triple.multiplicity <= 3
    name = "V = l I on F, dim F 2 or 3, smaller elsewhere, Q^T K definite (multiplicity)"
    return Hypothesis(name, ok, float(triple.multiplicity))


def _uncoupled(run: FlowRun) -> Hypothesis:
    F, G, _ = _eigenspace(run)
    cross = float(np.abs(F.T @ run.A @ G).max(initial=0.0))
    name = "scores respect F + G (largest <Af, g>)"
    return Hypothesis(name, cross <= 1e-12 * float(np.abs(run.A).max()), cross)


def _leading_parts(run: FlowRun) -> np.ndarray:
    """Coordinates of the components in F, (times, n, dim F)."""
    return run.y @ _eigenspace(run)[2]


def _parts_still(run: FlowRun) -> Hypothesis:
    return _still(run, "components in F", _leading_parts(run))


@_statement(
    "B27",
    "arXiv 2305.05465, theorem with multiplicity, where its proof is complete",
    "V = l I on F: the components in F tend to the boundary of their hull, or to 0",
    (_paranormal, _uncoupled, _parts_still),
)
def multiplicity(run: FlowRun) -> list[Part]:
    """Their hulls shrink, and at the end each component is on the boundary of the last or at 0.

    The theorem is stated for every definite Q^T K. Its proof bounds a remainder by a quantity that
    is not small when Q^T K couples F with the other invariant subspace G (V = diag(1, 0) with
    Q^T K = [[1, 1/2], [1/2, 1]]); whether the statement survives there is open. So it is checked
    only where <Af, g> = 0, which R = I gives for every normal V.
    """
    c = _leading_parts(run)
    high, directions = support(c)
    body = hull(c[-1])
    facets = body.equations
    if body.dim < c.shape[2]:  # a flat hull is all boundary
        inside = np.zeros(run.n)
    else:
        inside = -(c[-1] @ facets[:, :-1].T + facets[:, -1]).max(axis=1)
    away = np.minimum(inside.clip(0), np.linalg.norm(c[-1], axis=1))
    where = {"time": run.t[1:], "direction": directions}
    fall = high[:-1] - high[1:]
    tol = run.error + 10 * run.left(c)
    return [
        least("support function", fall, 2 * run.local, "time", "direction", **where),
        least("distance from the boundary and 0", -away, tol, "token", vertices=len(body.index)),
    ]


def _minus_identity(run: FlowRun) -> Hypothesis:
    off = float(np.abs(run.V + np.eye(run.d)).max())
    return Hypothesis("V = -I (largest |V + I|)", off == 0, off)


def _in_x(run: FlowRun) -> Hypothesis:
    """e^{-tV} x grows like e^t, and would hide x in its rounding."""
    plain = isinstance(run.trajectory.dynamics, EuclideanFlow)
    return Hypothesis("run in the variables x: EuclideanFlow", plain, float(plain))


def _identity_form(run: FlowRun) -> Hypothesis:
    off = float(np.abs(run.A - np.eye(run.d)).max())
    return Hypothesis("Q^T K = I (largest |A - I|)", off <= 1e-12, off)


@_statement(
    "B28",
    "arXiv 2305.05465, collapse for V = -I; rate: docs/mathematics.md B28",
    "V = -I, Q^T K = I: every x_i tends to 0 and |x_i(t)| <= max(|x_i(0)|, sqrt(2n))",
    (_in_x, _minus_identity, _identity_form),
)
def collapse(run: FlowRun) -> list[Part]:
    """The bound, and a rate that brings S = sum |x_i|^2 to 0: over a time dt from S on,

        n/S' >= n/S + c dt,   c = min(1/S, e^{-4S}/d).

    S' = -2 sum_i sum_j P_ij <x_i, x_j>. A softmax mean exceeds the plain mean by the integral of
    variances, each at least e^{-4S} times the plain one as |<x_i, x_j>| <= S; with C the
    covariance of the tokens and b the square of their mean, S'/n <= -2b - 2 e^{-4S} tr(C)^2/d, and
    S/n = tr C + b. Trap: the decay is only like 1/sqrt(t) once the mean is gone.
    """
    x = run.states
    squares = (x**2).sum(axis=2)
    bound = np.maximum(np.sqrt(squares[0]), np.sqrt(2 * run.n))
    total = squares.sum(axis=1)
    q = total / run.n
    c = np.minimum(1 / np.maximum(total, 1e-300), np.exp(-4 * total) / run.d)
    after = q[:-1] / (1 + c[:-1] * np.diff(run.t) * q[:-1])
    R = float(np.sqrt(squares[0].max()))
    return [
        least("bound", bound - np.sqrt(squares), run.error, "time", "token", time=run.t),
        least("decay of sum |x_i|²", after - q[1:], 4 * R * run.local, "time", time=run.t[1:]),
    ]


def _a_head(run: FlowRun) -> Hypothesis:
    flow = run.trajectory.dynamics
    given = flow.Q is not None and flow.K is not None and flow.V is not None  # type: ignore[union-attr]
    rank = len(flow.Q) if given else run.d  # type: ignore[union-attr]
    name = "weights of a head: Q, K of m < d rows, and V (m)"
    return Hypothesis(name, given and rank < run.d, float(rank))


@_statement(
    "B29",
    "arXiv 2305.05465, ALBERT-xlarge-v2",
    "the head is a good triple: l1 real, positive, simple, <Qf, Kf> > 0 (some heads are)",
    (_a_head,),
)
def real_head(run: FlowRun) -> list[Part]:
    """A fact about the weights that the run was made with, not about its states.

    Reported for heads 5 and 14 of ALBERT-xlarge-v2, with <Qf, Kf> = 1.3060 and 0.6719, and not
    for all heads: a violation means that this head is none of those, and that B26 says nothing
    about it.
    """
    triple = run.triple
    tol = 1e-8 * abs(triple.leading)
    real = triple.imaginary <= tol
    where = {"leading": [triple.leading.real, triple.leading.imag], "alignment": triple.alignment}
    return [
        Part("l1 is real", np.inf if real else -triple.imaginary, tol, where),
        Part("l1 > 0", triple.leading.real - 2 * tol, tol, where),
        Part("l1 > |l2|", triple.gap - 2 * tol, tol, where),
        Part("<Qf, Kf> > 0", triple.alignment - 2 * tol, tol, where),
    ]
