"""B37: where the normalisation stands decides how fast directions turn (arXiv 2510.22026)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from ..attention import Softmax
from ..dynamics import Flow, MixedNormFlow, NGPTFlow, PeriNormFlow, PreNormFlow, SphereFlow
from .checks import Hypothesis, Part, least, statement
from .flows import ContinuousRun, at_equal_angles


def equiangular_directions(
    flow: Flow, r: float, length: float, t: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """1 - cosine and length of n equiangular tokens of equal length at the times t (from 0 on).

        r' = 2 q (1 - r) ((n-1) r + 1) / s,   q = 1/(e^{beta (1-r)} + n - 1) the weight on another

    with s = 1 (post), |a|/gamma (nGPT), length (pre), length |a| (peri); length' = <a, theta>
    (pre), <a, theta>/|a| (peri), 0 else; a = p theta_i + q sum_{j != i} theta_j, p = 1 - (n-1) q.
    As r -> 1, a -> theta and q -> 1/n: 1 - r ~ e^{-2t}, e^{-2 gamma t}, t^{-2}, t^{-2}.

    >>> times = np.array([0.0, 100.0, 200.0])
    >>> gap, length = equiangular_directions(PreNormFlow(), 0.0, 1.0, times, 2)
    >>> bool(abs(np.log2(gap[1] / gap[2]) - 2) < 0.1)
    True
    """
    from scipy.integrate import solve_ivp

    rule = flow.attention
    assert isinstance(rule, Softmax)

    def velocity(now: Flow, y: np.ndarray) -> list[float]:
        gap, rho = float(np.exp(y[0])), float(y[1])
        own = np.exp(rule.beta * gap)
        q = 1 / (own + n - 1)
        p, c = own * q, 1 - gap
        along = p + (n - 1) * q * c
        size = np.sqrt(p * p + (n - 1) * q * (2 * p * c + q + (n - 2) * q * c))
        s, grow = now.pace(float(size), rho, float(along))
        return [-2 * q * ((n - 1) * c + 1) / s, grow]

    times = np.asarray(t, dtype=np.float64)
    y = np.array([np.log1p(-r), length])
    out = np.repeat(y[:, None], len(times), axis=1)
    for piece, begin, end in flow.pieces(float(times[-1])):
        inside = (times > begin) & (times <= end)
        stops = np.union1d(times[inside], [end])
        how: Any = {"t_eval": stops, "rtol": 1e-11, "atol": 1e-13, "method": "DOP853"}
        found = solve_ivp(lambda _, y, now=piece: velocity(now, y), (begin, end), y, **how)
        out[:, inside] = found.y[:, np.searchsorted(stops, times[inside])]
        y = found.y[:, -1]
    return np.exp(out[0]), out[1]


@final
@dataclass(frozen=True, eq=False)
class DirectedRun(ContinuousRun):
    """A run of one of the places of the normalisation."""

    family = "flow of normalised attention (post, pre, peri, nGPT, mixed)"
    kinds = (SphereFlow, PreNormFlow, PeriNormFlow, NGPTFlow, MixedNormFlow)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(times, n)."""
        return np.linalg.norm(self.states, axis=2)

    @cached_property
    def directions(self) -> np.ndarray:
        return self.states / self.lengths[..., None]


def _plain(run: DirectedRun) -> Hypothesis:
    flow = run.trajectory.made_by
    rule = flow.attention
    simple = isinstance(rule, Softmax) and rule.A is None and flow.V is None
    beta = float(rule.beta) if isinstance(rule, Softmax) else np.nan
    name = "softmax over all tokens, A = V = I, beta >= 0 (beta)"
    return Hypothesis(name, simple and beta >= 0, beta)


def _apart(run: DirectedRun) -> Hypothesis:
    gap = float(np.linalg.norm(run.directions[0, 0] - run.directions[0, 1])) if run.n > 1 else 0.0
    return Hypothesis("directions differ at the start (distance)", gap > 1e-3, gap)


@statement(
    DirectedRun,
    "B37",
    "arXiv 2510.22026, 2512.01868, speeds of normalisation; docs/mathematics.md B37",
    "theta' = (a - <a, theta> theta)/s: equal angles give r' = 2q(1-r)((n-1)r+1)/s; s as in B37",
    (_plain, at_equal_angles, _apart),
)
def speeds(run: DirectedRun) -> list[Part]:
    """Every pair at every time against the scalar equations of its scheme, integrated to 1e-11.

    Distances of directions are compared: at the end they are far smaller than 1 - r shows.
    """
    flow = run.trajectory.dynamics
    assert isinstance(flow, Flow)
    i, j = run.pairs
    away = np.linalg.norm(run.directions[:, i] - run.directions[:, j], axis=2)
    r = 1 - float((away[0] ** 2).mean()) / 2
    gap, rho = equiangular_directions(flow, r, float(run.lengths[0, 0]), run.t, run.n)
    off = np.abs(away - np.sqrt(2 * gap)[:, None]) * rho[:, None]
    grown = np.abs(run.lengths - rho[:, None])
    pair = np.stack([i, j], axis=1)
    where = {"time": run.t, "gap": float(gap[-1])}
    return [
        least("angle", -off, 8 * run.error, "time", "pair", pair=pair, **where),
        least("length", -grown, 8 * run.error, "time", "token", **where),
    ]
