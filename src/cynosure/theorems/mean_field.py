"""B35: many tokens of a Gaussian law keep it, and mean and covariance solve an equation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from ..analysis.gaussian import GaussianFlow, Moments, tilt
from ..dynamics import EuclideanFlow
from ..simulation.loop import simulate
from ..simulation.steppers import RK4
from .checks import Hypothesis, Part, least, need, statement
from .flows import ContinuousRun

_FRESH = 8  # samples of the same size that say how far finitely many tokens are off
_FACTOR = 10.0  # times the worst of them: a ninth is beyond with probability 2e-7, see B35
_LARGEST = 0.5**0.5  # tilt up to which the weights have a variance


def moments_of(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (*b, d) and covariance (*b, d, d), divisor n, of tokens (*b, n, d)."""
    mean = z.mean(axis=-2)
    away = z - mean[..., None, :]
    return mean, away.swapaxes(-1, -2) @ away / z.shape[-2]


def normality(z: np.ndarray) -> float:
    """The larger of Mardia's two scores of tokens (n, d): about standard normal for a Gaussian.

    For whitened y: skewness mean_ij <y_i, y_j>^3, n/6 of which is about chi^2 with d(d+1)(d+2)/6
    degrees of freedom, and kurtosis mean_i |y_i|^4, about normal.
    """
    n, d = z.shape
    mean, S = moments_of(z)
    y = np.linalg.solve(np.linalg.cholesky(S), (z - mean).T).T
    freedom = d * (d + 1) * (d + 2) / 6
    skew = n * float(((y @ y.T) ** 3).mean()) / 6
    kurtosis = float(((y**2).sum(axis=1) ** 2).mean())
    # the cube root of chi^2 over its mean is about normal (Wilson, Hilferty)
    first = ((skew / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / np.sqrt(2 / (9 * freedom))
    return float(max(first, abs(kurtosis - d * (d + 2)) / np.sqrt(8 * d * (d + 2) / n)))


@final
@dataclass(frozen=True, eq=False)
class CrowdRun(ContinuousRun):
    """Self-attention in R^d of many tokens."""

    family = "self-attention flow of the tokens x (EuclideanFlow)"
    kinds = (EuclideanFlow,)

    def closure(self, z: np.ndarray) -> GaussianFlow:
        flow = self.trajectory.made_by
        return GaussianFlow.of(z, flow.score_matrix, flow.V)

    @cached_property
    def expected(self) -> Moments | None:
        """The moments from those of the start; None past the blow-up."""
        try:
            return self.closure(self.states[0]).solve(self.t)
        except ValueError:
            return None

    def off(self, states: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far mean and covariance of states (times, n, d) are from their own equation."""
        mean, S = moments_of(states)
        found = self.closure(states[0]).solve(times)
        return (
            np.linalg.norm(mean - found.mean, axis=1),
            np.linalg.norm(S - found.covariance, axis=(1, 2)),
        )


_many = need("100 to 1000 tokens", lambda run: run.n, lambda n: 100 <= n <= 1000)


def _gaussian(run: CrowdRun) -> Hypothesis:
    z = run.states[0]
    flat = run.n <= run.d or np.linalg.eigvalsh(moments_of(z)[1])[0] <= 0
    score = np.inf if flat or run.n > 1000 else normality(z)
    return Hypothesis("start as of a Gaussian law (Mardia's score <= 5)", score <= 5, score)


def _mild(run: CrowdRun) -> Hypothesis:
    name, found = "tilt |S^(1/2) A S^(1/2)| <= 2^(-1/2) up to the end (largest)", run.expected
    A, covariances = run.trajectory.made_by.score_matrix, () if found is None else found.covariance
    largest = max((tilt(S, A) for S in covariances), default=np.inf)
    return Hypothesis(name, largest <= _LARGEST, largest)


@statement(
    CrowdRun,
    "B35",
    "arXiv 2501.18322, Gaussian closure; docs/mathematics.md B35",
    "a Gaussian crowd stays one: m' = V(m + SAm), S' = VSAS + SA^T SV^T, up to order n^(-1/2)",
    (_many, _gaussian, _mild),
)
def gaussian_closure(run: CrowdRun) -> list[Part]:
    """Mean and covariance at up to nine saved times against the equations from those of the start.

    Allowed is ten times the worst of eight fresh Gaussian samples of the same size and moments.
    """
    chosen = np.unique(np.linspace(0, len(run.t) - 1, 9).astype(int))
    times, flow, closure = run.t[chosen], run.trajectory.made_by, run.closure(run.states[0])
    fresh = []
    for seed in range(_FRESH):
        start, stepper = closure.sample(run.n, seed), RK4(float(run.t[-1]) / 8)
        fresh.append(run.off(simulate(flow, start, times=times, stepper=stepper).values, times))
    rounding = (1 + float(np.abs(run.states).max())) * run.error
    parts = []
    for what, found, others in zip(
        ("mean", "covariance"), run.off(run.states[chosen], times), zip(*fresh)
    ):
        allowed = _FACTOR * np.max(others, axis=0) + rounding
        part = least(f"{what}, in units of what is allowed", -(found / allowed)[1:], 1.0, "time")
        parts.append(replace(part, where={"time": float(times[1 + part.where["time"]])}))
    return parts
