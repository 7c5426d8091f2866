"""B26 to B29: what the leading eigenvalue of V does: hyperplanes, polytopes, or collapse to 0."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..analysis.polytope import hull
from ..dynamics import EuclideanFlow
from .checks import Hypothesis, Need, Part, least, need, none, statement
from .flows import FlowRun, support

_statement = partial(statement, FlowRun)


def _good_triple(run: FlowRun) -> Hypothesis:
    least_of = min(run.triple.gap, run.triple.alignment, run.triple.leading.real)
    name = "good triple (least of l1, l1 - |l2|, <Qf, Kf>)"
    return Hypothesis(name, run.triple.holds, float(least_of))


def _leading_values(run: FlowRun) -> np.ndarray:
    """f1* of the tokens, (times, n)."""
    return run.y @ run.triple.dual


def _still(what: str, read: Callable[[FlowRun], np.ndarray]) -> Need:
    name = f"{what} stand still (distance to go)"
    return lambda run: Hypothesis(name, run.still(read(run)), run.left(read(run)))


@_statement(
    "B26",
    "arXiv 2305.05465, lemma on three hyperplanes",
    "good triple: f1*(z_i(t)) stays in its range and tends to at most three values {a, 0, b}",
    (_good_triple, _still("values of f1*", _leading_values)),
)
def hyperplanes(run: FlowRun) -> list[Part]:
    """The least and largest value at the end are a and b; a token elsewhere is at 0."""
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
    small = cross <= 1e-12 * float(np.abs(run.A).max())
    return Hypothesis("scores respect F + G (largest <Af, g>)", small, cross)


def _leading_parts(run: FlowRun) -> np.ndarray:
    """Coordinates of the components in F, (times, n, dim F)."""
    return run.y @ _eigenspace(run)[2]


@_statement(
    "B27",
    "arXiv 2305.05465, theorem with multiplicity, where its proof is complete",
    "V = l I on F: the components in F tend to the boundary of their hull, or to 0",
    (_paranormal, _uncoupled, _still("components in F", _leading_parts)),
)
def multiplicity(run: FlowRun) -> list[Part]:
    """Their hulls shrink, and at the end each component is on the boundary of the last or at 0.

    Stated for every definite Q^T K, but its proof bounds a remainder that is not small where Q^T K
    couples F with the rest (open). So it is checked only where <Af, g> = 0.
    """
    c = _leading_parts(run)
    high, directions = support(c)
    body, inside = hull(c[-1]), np.zeros(run.n)
    if body.dim == c.shape[2]:  # a flat hull is all boundary
        facets = body.equations
        inside = -(c[-1] @ facets[:, :-1].T + facets[:, -1]).max(axis=1)
    away = np.minimum(inside.clip(0), np.linalg.norm(c[-1], axis=1))
    where = {"time": run.t[1:], "direction": directions}
    fall = high[:-1] - high[1:]
    tol = run.error + 10 * run.left(c)
    return [
        least("support function", fall, 2 * run.local, "time", "direction", **where),
        least("distance from the boundary and 0", -away, tol, "token", vertices=len(body.index)),
    ]


_minus_identity = need(
    "V = -I (largest |V + I|)", lambda run: np.abs(run.V + np.eye(run.d)).max(), none
)
_in_x = need(  # e^{-tV} x grows like e^t, and would hide x in its rounding
    "run in the variables x: EuclideanFlow",
    lambda run: isinstance(run.trajectory.dynamics, EuclideanFlow),
)
_identity_form = need(
    "Q^T K = I (largest |A - I|)",
    lambda run: np.abs(run.A - np.eye(run.d)).max(),
    lambda off: off <= 1e-12,
)


@_statement(
    "B28",
    "arXiv 2305.05465, collapse for V = -I; rate: docs/mathematics.md B28",
    "V = -I, Q^T K = I: every x_i tends to 0 and |x_i(t)| <= max(|x_i(0)|, sqrt(2n))",
    (_in_x, _minus_identity, _identity_form),
)
def collapse(run: FlowRun) -> list[Part]:
    """The bound, and a rate that brings S = sum |x_i|^2 to 0 (docs/mathematics.md B28):

    n/S' >= n/S + c dt,   c = min(1/S, e^{-4S}/d)      over a time dt from S on.
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
    small = given and rank < run.d
    return Hypothesis("weights of a head: Q, K of m < d rows, and V (m)", small, float(rank))


@_statement(
    "B29",
    "arXiv 2305.05465, ALBERT-xlarge-v2",
    "the head is a good triple: l1 real, positive, simple, <Qf, Kf> > 0 (some heads are)",
    (_a_head,),
)
def real_head(run: FlowRun) -> list[Part]:
    """A fact about the weights that the run was made with, not about its states.

    Reported for two heads of ALBERT-xlarge-v2 (5 and 14 in the paper, which counts from 1: 4 and 13
    here): a violation means that this head is none of those, and that B26 says nothing about it.
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
