"""Runs of flows, opened for checking: self-attention in R^d, and what all flows share.

A statement about a flow is checked on what an integrator made of it, so every tolerance comes from
the stepper that the run names. `Adaptive` controls its error by rtol and atol:

    local = 10 sqrt(n d) (atol + (rtol + u) R)    what one saved interval may add: about ten steps,
                                                  each of root mean square error atol + rtol R
    error = (number of saved times) local         of a state, where the flow does not expand

with R the longest token of the run and u the rounding unit of the stored states. A fixed step does
not know its error: the run is made anew from its first state, with the step and with half of it,
and with D the largest distance between the two, of order 1 at least,

    local = error = 4 D + 10 sqrt(n d) u R        2 D is the error of the longer step; twice that

Trap: the new runs must not use the stored states, or a tampered run would excuse itself.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from ..analysis.spectra import GoodTriple, attention_matrix, good_triple
from ..dynamics import Dynamics, SelfAttention
from ..simulation.loop import simulate
from ..simulation.steppers import RK4, Adaptive, Euler
from .checks import Hypothesis, Reading, directions

_MOST_WORK = 1e10  # products of coordinates: a fixed-step run that costs more is not made again


@dataclass(frozen=True, eq=False)
class ContinuousRun(Reading, ABC):
    """States at the saved times of a flow, and how far they may be from the true ones."""

    family: ClassVar[str]  # what the statements are about
    kinds: ClassVar[tuple[type[Dynamics], ...]]  # the dynamics that are of this kind

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr, right = self.trajectory, isinstance(self.trajectory.dynamics, self.kinds)
        started = len(tr.t) > 1 and float(tr.t[0]) == 0
        accuracy = self.accuracy if self.alone.holds and right and started else np.nan
        return (
            self.alone,
            Hypothesis.of(self.family, right),
            Hypothesis("at least two saved times, from t = 0", started, float(len(tr.t))),
            Hypothesis("integration error known and small", accuracy <= 1e-3, float(accuracy)),
        )

    @cached_property
    def accuracy(self) -> float:
        """rtol of an adaptive stepper, estimated relative error of a fixed one, inf if unknown."""
        stepper = self.trajectory.stepper
        if isinstance(stepper, Adaptive):
            return stepper.rtol
        return self._doubt / self.R if self.R > 0 else np.inf

    @cached_property
    def _doubt(self) -> float:
        """4 D, D the distance between the run and the run with half its step; inf if unknown."""
        stepper, flow = self.trajectory.stepper, self.trajectory.made_by
        if not isinstance(stepper, Euler | RK4):
            return np.inf
        steps = 12 * (float(self.t[-1]) / stepper.dt + len(self.t))  # 4 stages, 1 + 2 runs
        if steps * self.n**2 * self.d > _MOST_WORK:
            return np.inf
        z0 = self.trajectory.values[0, self.real]
        halves = np.sort(np.concatenate([self.t, (self.t[1:] + self.t[:-1]) / 2]))
        run = simulate(flow, z0, times=self.t, stepper=stepper, throw=False)
        finer = replace(stepper, dt=stepper.dt / 2)
        half = simulate(flow, z0.astype(float), times=halves, stepper=finer, throw=False)
        if run.status.failed or half.status.failed:
            return np.inf
        apart = np.linalg.norm(run.values - half.values[::2], axis=(1, 2))
        return 4 * float((self.unit * apart).max())

    @cached_property
    def unit(self) -> np.ndarray:
        """What lengths at each saved time are multiplied with before they are compared."""
        return np.ones(len(self.t))

    @cached_property
    def t(self) -> np.ndarray:
        return np.asarray(self.trajectory.t, dtype=np.float64)

    @cached_property
    def R(self) -> float:
        return float(np.linalg.norm(self.states, axis=2).max())

    @cached_property
    def local(self) -> float:
        stepper, u = self.trajectory.stepper, 2 * self.u
        size = 10 * float(np.sqrt(self.n * self.d))
        if isinstance(stepper, Adaptive):
            return size * (stepper.atol + (stepper.rtol + u) * self.R)
        return self._doubt + size * u * self.R

    @property
    def error(self) -> float:
        controlled = isinstance(self.trajectory.stepper, Adaptive)
        return len(self.t) * self.local if controlled else self.local

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of tokens, or a seeded sample of 20,000."""
        if self.n <= 200:
            return np.triu_indices(self.n, 1)
        i, j = np.random.default_rng(0).integers(self.n, size=(2, 20_000))
        return i[i != j], j[i != j]


@final
@dataclass(frozen=True, eq=False)
class FlowRun(ContinuousRun):
    """Self-attention in R^d: x_i' = sum_j P_ij V x_j in any of its three variables.

    Most statements read `y` = e^{-l1 t} x, l1 the leading growth of V. Where V = l1 I this is also
    z = e^{-tV} x; and for every V the components along the leading eigenspace are the same in y
    and in z, which is all that is read off a `RescaledFlow` with another V.
    """

    family = "self-attention flow in R^d"
    kinds = (SelfAttention,)

    @cached_property
    def triple(self) -> GoodTriple:
        flow = self.trajectory.dynamics
        return good_triple(flow.Q, flow.K, flow.V, d=self.d)  # type: ignore[union-attr]

    @cached_property
    def A(self) -> np.ndarray:
        """K^T Q, so that scores are <A x_i, x_j>."""
        A = self.trajectory.made_by.score_matrix
        return np.eye(self.d) if A is None else A

    @cached_property
    def V(self) -> np.ndarray:
        V = self.trajectory.made_by.V
        return np.eye(self.d) if V is None else V

    @cached_property
    def growth(self) -> float:
        """l1, the largest real part of an eigenvalue of V."""
        return float(np.linalg.eigvals(self.V).real.max())

    @cached_property
    def y(self) -> np.ndarray:
        return self.trajectory.made_by.growth(-self.t)[:, None, None] * self.states

    @cached_property
    def unit(self) -> np.ndarray:
        """e^{-l1 t} where x grows: lengths and errors are read in y."""
        return np.minimum(self.trajectory.made_by.growth(-self.t), 1.0)

    @cached_property
    def R(self) -> float:
        """Of y where x grows: the integrator's relative error is the same in both."""
        return float(np.linalg.norm(self.y if self.growth > 0 else self.states, axis=2).max())

    def P(self, k: int) -> np.ndarray:
        """The attention matrix at the saved time number k."""
        return attention_matrix(self.trajectory.made_by, self.states[k], float(self.t[k]))

    def norm(self, x: np.ndarray) -> np.ndarray:
        """|x|_A along the last axis."""
        return np.sqrt(((x @ self.A.T) * x).sum(axis=-1).clip(0))

    def left(self, values: np.ndarray) -> float:
        """How far `values` (times, n, ...) have still to go, if they arrive like e^{-l1 t}."""
        step = np.abs(values[-1] - values[-2]).max()
        with np.errstate(over="ignore"):
            return float(step / np.expm1(self.growth * (self.t[-1] - self.t[-2])))

    def still(self, values: np.ndarray) -> bool:
        return self.growth > 0 and self.left(values) <= 1e-6 * max(
            float(np.abs(values).max()), 1e-300
        )


def positive_multiple(run: FlowRun) -> Hypothesis:
    off = float(np.abs(run.V - run.growth * np.eye(run.d)).max())
    ok = off <= 1e-12 * abs(run.growth) and run.growth > 0
    return Hypothesis("V = l I, l > 0 (largest |V - l I|)", ok, off)


def definite_form(run: FlowRun) -> Hypothesis:
    least = float(np.linalg.eigvalsh((run.A + run.A.T) / 2)[0])
    gap = float(np.abs(run.A - run.A.T).max())
    ok = least > 0 and gap <= 1e-12 * float(np.abs(run.A).max())
    return Hypothesis("Q^T K symmetric positive definite (least eigenvalue)", ok, least)


def at_equal_angles(run: ContinuousRun) -> Hypothesis:
    name = "2 to d + 1 tokens of one length at equal angles, off the unstable -1/(n-1) (spread)"
    if not 2 <= run.n <= run.d + 1:  # more of them do not fit, unless they coincide
        return Hypothesis(name, False, np.inf)
    lengths = np.linalg.norm(run.states[0], axis=1)
    x = run.states[0] / lengths[:, None]
    cosines = (x @ x.T)[np.triu_indices(run.n, 1)]
    spread = max(float(np.ptp(cosines)), float(np.ptp(lengths) / lengths[0]))
    off = (run.n - 1) * float(cosines.mean()) + 1 > 1e-3
    return Hypothesis(name, spread <= 1e-12 and off, spread)


def support(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """max_j <c, y_j> by (time, direction), and the unit directions c: random ones and the axes."""
    c = directions(y.shape[2])
    return np.stack([(z @ c.T).max(axis=0) for z in y]), c
