"""Steppers: how a flow dz/dt = velocity(z, t) is followed in time.

Fixed steps are ours (there the layer *is* the step); adaptive steps are a library's. Attention is
recomputed at every stage. Trap: an "RK4" that freezes P over the step is Euler, of order 1.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple, final

import numpy as np

from .._exports import guard
from .._registry import Registry
from .._types import Array, as_number, as_numpy, carries_gradient, is_torch, like, namespace
from ..attention.scores import device_of
from ..dynamics import Flow
from .adaptive import Course, Rules
from .plan import MOST_SAVED, Plan
from .status import Status, out_of_time, overflow

__all__ = [
    "RK4", "STEPPERS", "Adaptive", "Euler", "FixedStep", "Reached", "Stepper",
]  # fmt: skip

_MOST_STEPS = 1_000_000_000  # of a fixed length, from one saved time to the next


class Reached(NamedTuple):
    """What a stepper came to: one state for each of `times`, and how it went.

    `times` are those asked for, fewer where the run stopped early; one more, the time it had
    reached, where its deadline ended it.
    """

    states: Array
    times: np.ndarray
    status: Status


class Stepper(abc.ABC):
    """A way to integrate a flow."""

    @abc.abstractmethod
    def grid(self, time: float) -> np.ndarray:
        """The times saved by default on [0, time]."""

    @abc.abstractmethod
    def integrate(self, flow: Flow, z: Array, plan: Plan) -> Reached:
        """States at the times `plan.saves`, z at t = `plan.since`; cut short on failure."""


class FixedStep(Stepper):
    """Steps of length dt, the last before each saved time cut to land on it; differentiable."""

    dt: float

    @abc.abstractmethod
    def advance(self, flow: Flow, z: Array, t: float, dt: float, mask: np.ndarray | None) -> Array:
        """The tokens at t + dt from those at t."""

    def grid(self, time: float) -> np.ndarray:
        if not time / self.dt <= MOST_SAVED:
            raise ValueError(
                f"time: {time:g} is {time / self.dt:.1g} steps of {self.dt:g}, more than the "
                f"{MOST_SAVED:.0g} that can be saved; say which to save with times=[...]"
            )
        whole = float(self.dt) * np.arange(self._count(time))
        return np.append(whole, float(time)) if time > 0 else np.zeros(1)

    def _count(self, span: float) -> int:
        """How many steps `span` takes, the last one shorter perhaps."""
        if not span / self.dt <= _MOST_STEPS:
            raise ValueError(
                f"dt: a time of {span:g} is {span / self.dt:.1g} steps of {self.dt:g}, more than "
                f"{_MOST_STEPS:.0g}; take a larger dt, a shorter time, or Adaptive()"
            )
        return ceil(span / self.dt - 1e-9)

    def integrate(self, flow: Flow, z: Array, plan: Plan) -> Reached:
        xp, times, mask = namespace(z), plan.saves, plan.mask
        keep = None if mask is None else xp.asarray(mask[..., None], device=device_of(z))
        out: list[Array] = []
        start, t = z, float(plan.since)
        for save in times.tolist():
            begin, steps = t, self._count(save - t)
            for i in range(steps):
                t = begin + i * self.dt
                if plan.deadline.passed:
                    return _late(xp, [*out, z], times, t)
                h = self.dt if i + 1 < steps else save - t
                with np.errstate(over="ignore", invalid="ignore"):  # reported as a status below
                    z = flow.retract(self.advance(flow, z, t, h, mask))
                if keep is not None:
                    z = xp.where(keep, z, start)
                if not bool(xp.all(xp.isfinite(z))):
                    states = xp.stack(out) if out else start[None][:0]
                    return Reached(states, times[: len(out)], overflow(flow, t + h))
                if plan.progress is not None:
                    plan.progress(t + h)
            t = save
            out.append(z)
        return Reached(xp.stack(out), times, _done(flow, self, t))


@dataclass(frozen=True)
class _Fixed(FixedStep, abc.ABC):
    """A fixed step of this package."""

    dt: float = 0.1

    def __post_init__(self) -> None:
        as_number(self.dt, "dt", "a positive step", lambda x: 0 < x < float("inf"))


@final
@dataclass(frozen=True)
class Euler(_Fixed):
    """z + dt f(z, t): order 1, followed by `retract`: on the sphere (x + dt T)/|x + dt T|, T being
    the tangential part of P x.

    Trap: the published sphere scripts normalise x + dt P x, all of it, which is
    `NoisySphere(sigma=0)`. The two differ at second order in dt.
    """

    def advance(self, flow: Flow, z: Array, t: float, dt: float, mask: np.ndarray | None) -> Array:
        return z + dt * flow.velocity(z, t, mask=mask)


@final
@dataclass(frozen=True)
class RK4(_Fixed):
    """The classical Runge-Kutta scheme, attention recomputed at its four stages: order 4."""

    def advance(self, flow: Flow, z: Array, t: float, dt: float, mask: np.ndarray | None) -> Array:
        k1 = flow.velocity(z, t, mask=mask)
        k2 = flow.velocity(z + (dt / 2) * k1, t + dt / 2, mask=mask)
        k3 = flow.velocity(z + (dt / 2) * k2, t + dt / 2, mask=mask)
        k4 = flow.velocity(z + dt * k3, t + dt, mask=mask)
        return z + (dt / 6) * (k1 + 2 * k2 + 2 * k3 + k4)


@final
@dataclass(frozen=True)
class Adaptive(Stepper):
    """High order with error control, by SciPy: DOP853 as long as it pays, LSODA where it is stiff.

    Each configuration of a batch has its own steps, and padding does not change their length. Where
    the flow knows its future in closed form, that is taken. Tensors keep their device: the velocity
    is computed there, in double precision. Tensors that require gradients need a fixed step.

    Trap: softmax at a growing inverse temperature is a stiff flow wherever a token hangs between
    two targets: an explicit step may not exceed about 6/rate. `method="auto"` measures that rate
    and changes to LSODA, up to n d = 600. Beyond, and whenever more than `most_steps` steps are
    needed, the run ends with the status "stiff" and what it saved so far.
    """

    rtol: float = 1e-9
    atol: float = 1e-12
    method: str = "auto"
    most_steps: int = 50_000

    def __post_init__(self) -> None:
        if self.method not in ("auto", "DOP853", "LSODA"):
            raise ValueError(f"method: expected 'auto', 'DOP853' or 'LSODA', got {self.method!r}")
        if not (self.rtol >= 0 and self.atol >= 0 and self.rtol + self.atol > 0):
            raise ValueError(f"rtol, atol: expected tolerances >= 0, got {self.rtol}, {self.atol}")
        if self.most_steps < 1:
            raise ValueError(f"most_steps: expected at least 1, got {self.most_steps!r}")

    def grid(self, time: float) -> np.ndarray:
        return np.linspace(0.0, time, 101) if time > 0 else np.zeros(1)

    def integrate(self, flow: Flow, z: Array, plan: Plan) -> Reached:
        times, mask, since = plan.saves, plan.mask, float(plan.since)
        if is_torch(z) and (z.requires_grad or carries_gradient(flow.velocity(z, since))):
            raise ValueError(
                "stepper: steps of Adaptive carry no gradient; pass a fixed stepper such as "
                "RK4(dt=0.01)"
            )
        rules = Rules(self.rtol, self.atol, self.method, self.most_steps)
        flat = z.reshape(-1, *z.shape[-2:])
        rows = np.ones(flat.shape[:2], bool) if mask is None else mask.reshape(flat.shape[:2])
        courses = []
        for one, real in zip(flat, rows, strict=True):
            double = one.double() if is_torch(z) else one.astype(np.float64)
            real = like(real, double).bool() if is_torch(z) else real
            courses.append(Course(flow, double[real], times, since, rules, plan.deadline))
        late = _together(courses, plan.progress)
        reached = min(course.saved for course in courses)
        at = times[:reached]
        if late:  # the least advanced is within the last step of all: there they have a state
            at = np.unique(np.append(at, min(course.t for course in courses)))
        out = np.empty((len(at), *flat.shape))
        out[:] = as_numpy(flat)
        for b, (course, real) in enumerate(zip(courses, rows, strict=True)):
            out[:reached, b, real] = course.out[:reached]
            if len(at) > reached:
                out[reached, b, real] = course.at(float(at[-1]))
        states = out.reshape(len(at), *z.shape)
        states = like(states, z) if is_torch(z) else states.astype(z.dtype, copy=False)
        status = next((course.status for course in courses if course.status is not None), None)
        if status is None:
            status = out_of_time(f"t = {at[-1]:g}") if late else _done(flow, self, float(at[-1]))
        notes = dict.fromkeys(note for course in courses for note in course.notes)
        return Reached(states, at, replace(status, notes=tuple(notes)))


def _together(courses: list[Course], progress: Callable[[Any], Any] | None) -> bool:
    """All configurations, always the least advanced of them: True where the deadline ended it.

    A configuration that fails ends the run for all; the others go on to where it came only.
    """
    while True:
        failed = [course.t for course in courses if course.status is not None]
        open_ = [c for c in courses if not c.over and (not failed or c.t < min(failed))]
        if not open_:
            return False
        course = min(open_, key=lambda c: c.t)
        course.advance()
        if course.late:
            return True
        if progress is not None and course.status is None:
            progress(course.t)


STEPPERS: Registry[type[Stepper]] = Registry(
    "steppers",
    "a Stepper",
    lambda kind: isinstance(kind, type) and issubclass(kind, Stepper),
    {"adaptive": Adaptive, "rk4": RK4, "euler": Euler},
)


def _done(flow: Flow, stepper: Stepper, t: float) -> Status:
    return Status("done", f"{type(flow).__name__} followed to t = {t:g} by {stepper}.")


def _late(xp: Any, out: list[Array], times: np.ndarray, t: float) -> Reached:
    """The states saved and the last one, which may be that of the last saved time again."""
    at = np.append(times[: len(out) - 1], t)
    new = len(at) == 1 or at[-1] > at[-2]
    states = xp.stack(out if new else out[:-1])
    return Reached(states, at if new else at[:-1], out_of_time(f"t = {t:g}"))


guard(__name__)
