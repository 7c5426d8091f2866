"""B35: many tokens of a Gaussian law keep it, and mean and covariance solve an equation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from ..analysis.gaussian import GaussianFlow, Moments, tilt
from ..dynamics import Dynamics, EuclideanFlow
from ..simulation.loop import simulate
from ..simulation.steppers import RK4
from .checks import Hypothesis, Part, least, statement
from .flows import ContinuousRun

__all__ = ["moments_of", "normality"]

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

    Skewness b_1 = mean_ij <y_i, y_j>^3 and kurtosis b_2 = mean_i |y_i|^4 of whitened tokens y;
    n b_1/6 is about chi^2 with d(d+1)(d+2)/6 degrees of freedom, b_2 about normal.
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

    @property
    def family(self) -> tuple[str, tuple[type[Dynamics], ...]]:
        return "self-attention flow of the tokens x (EuclideanFlow)", (EuclideanFlow,)

    def closure(self, z: np.ndarray) -> GaussianFlow:
        flow = self.trajectory.made_by
        return GaussianFlow.of(z, flow.form, flow.V)

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


def _many(run: CrowdRun) -> Hypothesis:
    return Hypothesis("100 to 1000 tokens", 100 <= run.n <= 1000, float(run.n))


def _gaussian(run: CrowdRun) -> Hypothesis:
    z = run.states[0]
    name = "start as of a Gaussian law (Mardia's score <= 5)"
    if run.n <= run.d or np.linalg.eigvalsh(moments_of(z)[1])[0] <= 0:
        return Hypothesis(name, False, np.inf)
    score = normality(z) if run.n <= 1000 else np.inf
    return Hypothesis(name, score <= 5, score)


def _mild(run: CrowdRun) -> Hypothesis:
    name, found = "tilt |S^(1/2) A S^(1/2)| <= 2^(-1/2) up to the end (largest)", run.expected
    if found is None:
        return Hypothesis(name, False, np.inf)
    A = run.trajectory.made_by.form
    largest = max(tilt(S, A) for S in found.covariance)
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

    How far off n tokens may be is measured: eight fresh Gaussian samples of the same size, mean and
    covariance are run, and ten times the worst of them is allowed at each time.
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
