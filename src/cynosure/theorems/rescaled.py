"""B22 to B25: V = l I, where the rescaled tokens z = e^{-tV} x tend to a polytope (2305.05465)."""

from __future__ import annotations

from functools import partial
from math import log

import numpy as np

from .checks import Hypothesis, Part, exactly, least, need, statement
from .flows import FlowRun, definite_form, positive_multiple, support

_statement = partial(statement, FlowRun)
_BOOLEAN = 1e-8  # a row of P this close to a unit vector is one


_line = need("d = 1", lambda run: run.d, lambda d: d == 1)


def _resolved(run: FlowRun) -> Hypothesis:
    """Tokens of one sign approach each other like e^{-t}: their order must outlive the errors."""
    first, last = (np.diff(np.sort(y[:, 0])) for y in (run.y[0], run.y[-1]))
    gap = float(last[[0, -1]].min()) if run.n > 1 and (first > 0).all() else 0.0
    name = "distinct tokens, the outermost still apart from the next (gap over error)"
    return Hypothesis(name, gap > 4 * run.local, gap / run.local)


_attention_still = need(
    "P stands still between the last two times (largest change)",
    lambda run: np.abs(run.P(-1) - run.P(-2)).max(),
    lambda change: change <= _BOOLEAN / 10,
)


@_statement(
    "B22",
    "arXiv 2305.05465, theorem on Boolean attention",
    "d = 1: P(t) tends to rows e_a, e_b (a, b the outermost tokens), one row at most excepted",
    (_line, positive_multiple, definite_form, _resolved, _attention_still),
)
def boolean(run: FlowRun) -> list[Part]:
    """P at the last time, once it no longer changes: rows converge like exp(-c e^t).

    At most one token stays bounded, since B23 drives two apart; its row is the excepted one.
    """
    P, y = run.P(-1), run.y[-1, :, 0]
    ends = np.unique([y.argmax(), y.argmin()])
    away = np.stack([np.abs(P - np.eye(run.n)[e]).max(axis=1) for e in ends]).min(axis=0)
    rows = np.argsort(away)[: max(1, run.n - 1)]
    excepted = int((away > _BOOLEAN).sum())
    return [
        least("rows but one", -away[rows], _BOOLEAN, "token", token=rows, excepted=excepted),
        exactly("rows are probabilities", np.abs(P.sum(axis=1) - 1) > 1e-9, "token"),
    ]


@_statement(
    "B23",
    "arXiv 2305.05465, lemma on distances; in the A-norm: docs/mathematics.md B23",
    "V = l I, A = K^T Q definite: |x_i - x_j|_A is non-decreasing in t",
    (positive_multiple, definite_form),
)
def distances_grow(run: FlowRun) -> list[Part]:
    """In z: |z_i - z_j|_A falls by no more than e^{-l dt} (velocities are monotone)."""
    i, j = run.pairs
    apart = run.norm(run.y[:, i] - run.y[:, j])
    shrink = np.exp(-run.growth * np.diff(run.t))[:, None]
    tol = 4 * run.local * float(np.sqrt(np.linalg.norm(run.A)))
    pair = np.stack([i, j], axis=1)
    slack = apart[1:] - shrink * apart[:-1]
    return [least("pair distance", slack, tol, "time", "pair", time=run.t[1:], pair=pair)]


@_statement(
    "B24",
    "arXiv 2305.05465, polytope theorem",
    "V = l I: hulls of z shrink; Q^T K definite: limits s have max over K of <As, y> = |s|_A² or 0",
    (positive_multiple,),
)
def polytope(run: FlowRun) -> list[Part]:
    """Hulls for any Q, K; the limits where the run stands still. Unlike hardmax, 0 is allowed."""
    high, c = support(run.y)
    fall = high[:-1] - high[1:]
    times = {"time": run.t[1:], "direction": c}
    parts = [least("support function", fall, 2 * run.local, "time", "direction", **times)]
    if definite_form(run).holds and run.still(run.y):
        s = run.y[-1]
        score = s @ run.A.T @ s.T
        off = np.abs(score.max(axis=1) - np.diag(score))
        reach = run.error + 10 * run.left(run.y)
        tol = 4 * float(np.linalg.norm(run.A)) * run.R * reach
        parts.append(least("limits in S", -off, tol, "token"))
    return parts


def pair_limit(e: float) -> float:
    """y_inf = e exp(-1/2 int_{e^2}^inf (coth w - 1)/w dw): half the limit distance of two tokens.

    >>> round(pair_limit(0.5), 12)
    0.187376767909
    """
    if not e > 0:
        raise ValueError(f"e: expected half a distance > 0, got {e!r}")
    return float(e * np.exp(-_lost(2 * log(e), log(400.0))))


def _lost(start: float, stop: float) -> float:
    """1/2 int (coth w - 1)/w dw between w = e^start and e^stop, in s = log w."""
    from scipy.integrate import quad

    # coth w - 1 = 2/(e^{2w} - 1), nothing beyond w = 400
    stop = min(stop, log(350.0))
    if stop <= start:
        return 0.0
    return quad(lambda s: 1 / np.expm1(2 * np.exp(s)), start, stop, epsrel=1e-12, limit=200)[0]


def _two_alike(run: FlowRun) -> Hypothesis:
    lengths = run.norm(run.y[0])
    name = "two distinct tokens of equal A-norm (spread)"
    if run.n != 2:
        return Hypothesis(name, False, float("inf"))
    spread, apart = float(np.ptp(lengths)), float(np.abs(run.y[0, 0] - run.y[0, 1]).max())
    return Hypothesis(name, spread <= 1e-13 * lengths.max() and apart > 0, spread)


@_statement(
    "B25",
    "docs/mathematics.md B25; corrects a remark of arXiv 2305.05465",
    "two tokens c ± y, <Ac, y> = 0: u = e^{lt} |y|_A has u' = l u tanh u²; they never merge",
    (positive_multiple, definite_form, _two_alike),
)
def two_tokens(run: FlowRun) -> list[Part]:
    """log(|y|/|y(0)|) = -1/2 int (coth w - 1)/w dw between u(0)^2 and u(t)^2, at every time.

    The paper remarks that such a pair merges. It does not: |y| tends to `pair_limit` > 0, though so
    small that floats show a merger. Errors grow like coth(u(0)^2).
    """
    size = float(np.sqrt(np.linalg.norm(run.A)))
    half = run.norm(run.y[:, 0] - run.y[:, 1]) / 2
    start = 2 * log(half[0])
    seen = np.maximum(half, np.finfo(float).tiny)
    ends = 2 * (np.log(seen) + run.growth * run.t)
    expected = half[0] * np.exp([-_lost(start, end) for end in ends.tolist()])
    tol = 4 * run.error * size / np.tanh(min(half[0] ** 2, 300.0))
    where = {"time": run.t, "limit": pair_limit(float(half[0]))}
    centre = run.y.mean(axis=1)
    moved = np.linalg.norm(centre - centre[0], axis=1)
    return [
        least("closed form", -np.abs(half - expected), float(tol), "time", **where),
        least("the midpoint stands still", -moved, 2 * run.error, "time", **where),
    ]
