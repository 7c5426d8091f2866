"""B32: how far one attention layer contracts n equiangular tokens when beta = gamma log n."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import final

import numpy as np

from ..attention import Softmax
from .checks import Hypothesis, Part, Reading, U, least, statement


def output_cosine(n: int, r: float, beta: float) -> float:
    """The cosine of two outputs y_i = sum_j P_ij x_j, for n unit tokens of common cosine r.

    With p = P_ii, q = P_ij and s = 1 + (n-1) r: <y_i, y_j> - (p-q)^2 r = |y_i|^2 - (p-q)^2
    = 2 (p-q) q s + q^2 n s.

    >>> round(output_cosine(10**6, 0.5, 2 * log(10**6)), 5)  # critical: 4r/(1 + 3r)
    0.8
    """
    if n < 2 or not -1 / (n - 1) < r <= 1:
        raise ValueError(f"output_cosine: n >= 2 and -1/(n-1) < r <= 1, got n = {n}, r = {r}")
    with np.errstate(over="ignore"):
        q = float(1 / (np.exp(np.float64(beta * (1 - r))) + n - 1))
    own = 1 - n * q  # p - q
    s = 1 + (n - 1) * r
    common = 2 * own * q * s + q * q * n * s
    return (own * own * r + common) / (own * own + common)


def critical_cosine(r: float, gamma: float) -> float:
    """The limit of `output_cosine` for beta = gamma log n, n -> infinity: 1, 4r/(1+3r) or r."""
    edge = gamma * (1 - r)
    return 1.0 if edge < 1 else r if edge > 1 else 4 * r / (1 + 3 * r)


@final
@dataclass(frozen=True, eq=False)
class SoftmaxLayer(Reading):
    """The first layer of a run of normalised softmax layers."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr = self.trajectory
        rule = None if tr.in_time else tr.made_by.averaging
        plain = isinstance(rule, Softmax) and rule.A is None
        first = len(tr.t) > 1 and list(tr.t[:2]) == [0, 1]
        return (
            self.alone,
            Hypothesis.of("normalised layers of softmax attention, A = I", plain),
            Hypothesis("layers 0 and 1 saved", first, float(len(tr.t))),
        )

    @property
    def x(self) -> np.ndarray:
        return self.states[0]

    @cached_property
    def y(self) -> np.ndarray:
        """sum_j P_ij x_j, read off the two layers."""
        return self.x + (self.states[1] - self.x) / self.eta

    @cached_property
    def spread(self) -> float:
        """How far the start is from unit tokens of one common cosine."""
        gram = self.x @ self.x.T
        off = gram[np.triu_indices(len(gram), 1)]
        return float(max(np.abs(np.diag(gram) - 1).max(), np.ptp(off)))


def _equal_angles(run: SoftmaxLayer) -> Hypothesis:
    name = "2 to d + 1 unit tokens at equal angles (spread of the products)"
    if not 2 <= len(run.x) <= run.x.shape[1] + 1:  # more do not fit, unless they coincide
        return Hypothesis(name, False, np.inf)
    return Hypothesis(name, run.spread <= 2e4 * run.u, run.spread)


@statement(
    SoftmaxLayer,
    "B32",
    "arXiv 2512.01868, long context",
    "equal cosines r, beta = g log n: outputs have cosine -> 1, 4r/(1+3r), r as g (1-r) <, =, > 1",
    (_equal_angles,),
)
def long_context(run: SoftmaxLayer) -> list[Part]:
    """Every pair of outputs against the closed form at this n, of which the statement is the limit.

    The witness has gamma = beta / log n and the limiting cosine.
    """
    n, beta = len(run.x), float(run.trajectory.dynamics.attention.beta)  # type: ignore[union-attr]
    off = np.triu_indices(n, 1)
    r = float((run.x @ run.x.T)[off].mean())
    unit = run.y / np.linalg.norm(run.y, axis=1, keepdims=True)
    cosine = (unit @ unit.T)[off]
    # rounding of layer and pull, and a start off by `spread`, shift scores by beta times as much
    u = 2 * max(run.u, U)
    shortest = float(np.linalg.norm(run.y, axis=1).min())
    tol = 8 * (1 + abs(beta)) * (run.spread + (n + 16) * u / run.eta) / max(shortest, 1e-3) ** 2
    gamma = beta / log(n)
    where = {"gamma": gamma, "limit": critical_cosine(r, gamma), "cosine": float(cosine.mean())}
    pair = np.stack(off, axis=1)
    slack = -np.abs(cosine - output_cosine(n, r, beta))
    return [least("cosine of outputs", slack, tol, "pair", pair=pair, **where)]
