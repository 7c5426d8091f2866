"""Steppers: how a flow dz/dt = velocity(z, t) is followed in time.

Fixed steps are ours (there the layer *is* the step); adaptive steps are a library's. Attention is
recomputed at every stage. Trap: an "RK4" that freezes P over the step is Euler, of order 1.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import count
from math import ceil
from typing import Any, final

import numpy as np

from .._types import Array, is_torch, like
from ..attention import act
from ..dynamics import Flow, Relaxation
from .status import Status

__all__ = ["RK4", "STEPPERS", "Adaptive", "Euler", "ExponentialEuler", "FixedStep", "Stepper"]

Progress = Callable[[Any], Any] | None
_HUGE = 1e150  # beyond this scores overflow
_STABLE = 5.5  # step times rate at which DOP853, stable to 6.1, is limited by stability
_IN_A_ROW, _TO_COME = 20, 1000  # so many such steps done, and so many to come, are a stiff run
_MOST_IMPLICIT = 600  # coordinates up to which an implicit method pays: its Jacobian is dense
_UNSTIFF = (
    "Take a fixed step such as RK4(0.05), which averages over what is too fast to follow, a "
    "shorter time or looser tolerances; Adaptive(most_steps=...) tries on."
)


class Stepper(abc.ABC):
    """A way to integrate a flow."""

    @abc.abstractmethod
    def grid(self, time: float) -> np.ndarray:
        """The times saved by default on [0, time]."""

    @abc.abstractmethod
    def integrate(
        self,
        flow: Flow,
        z: Array,
        times: np.ndarray,
        mask: np.ndarray | None,
        progress: Progress,
        since: float = 0.0,
    ) -> tuple[Array, Status]:
        """States at increasing `times`, z being that at t = `since`; cut short on failure."""


class FixedStep(Stepper):
    """Steps of length dt, the last before each saved time cut to land on it; differentiable."""

    dt: float

    @abc.abstractmethod
    def advance(self, flow: Flow, z: Array, t: float, dt: float, mask: np.ndarray | None) -> Array:
        """The tokens at t + dt from those at t."""

    def grid(self, time: float) -> np.ndarray:
        whole = self.dt * np.arange(ceil(time / self.dt - 1e-9))
        return np.append(whole, float(time)) if time > 0 else np.zeros(1)

    def integrate(
        self,
        flow: Flow,
        z: Array,
        times: np.ndarray,
        mask: np.ndarray | None,
        progress: Progress,
        since: float = 0.0,
    ) -> tuple[Array, Status]:
        from array_api_compat import array_namespace, device

        xp = array_namespace(z)
        keep = None if mask is None else xp.asarray(mask[..., None], device=device(z))
        out: list[Array] = []
        start, t = z, since
        for save in times.tolist():
            begin, steps = t, ceil((save - t) / self.dt - 1e-9)
            for i in range(steps):
                t = begin + i * self.dt
                h = self.dt if i + 1 < steps else save - t
                with np.errstate(over="ignore", invalid="ignore"):  # reported as a status below
                    z = flow.retract(self.advance(flow, z, t, h, mask))
                if keep is not None:
                    z = xp.where(keep, z, start)
                if not bool(xp.all(xp.isfinite(z))):
                    return _stack(xp, out, start), _overflow(flow, t + h)
                if progress is not None:
                    progress(t + h)
            t = save
            out.append(z)
        return xp.stack(out), _done(flow, self, t)


@final
@dataclass(frozen=True)
class Euler(FixedStep):
    """z + dt f(z, t): order 1. With `retract`, the scheme of most published sphere scripts."""

    dt: float = 0.1

    def __post_init__(self) -> None:
        _check_step(self.dt)

    def advance(self, flow: Flow, z: Array, t: float, dt: float, mask: np.ndarray | None) -> Array:
        return z + dt * flow.velocity(z, t, mask=mask)


@final
@dataclass(frozen=True)
class RK4(FixedStep):
    """The classical Runge-Kutta scheme, attention recomputed at its four stages: order 4."""

    dt: float = 0.1

    def __post_init__(self) -> None:
        _check_step(self.dt)

    def advance(self, flow: Flow, z: Array, t: float, dt: float, mask: np.ndarray | None) -> Array:
        k1 = flow.velocity(z, t, mask=mask)
        k2 = flow.velocity(z + (dt / 2) * k1, t + dt / 2, mask=mask)
        k3 = flow.velocity(z + (dt / 2) * k2, t + dt / 2, mask=mask)
        k4 = flow.velocity(z + dt * k3, t + dt, mask=mask)
        return z + (dt / 6) * (k1 + 2 * k2 + 2 * k3 + k4)


@final
@dataclass(frozen=True)
class ExponentialEuler(FixedStep):
    """z + (I - e^{-dt V})(m - z) for flows z' = V (m(z, t) - z): order 1, exact for constant m.

    For V = I the new token is a convex combination of tokens whatever dt is: the hull shrinks as
    the theory says (B24), and late times, where attention is hard, are solved exactly.
    """

    dt: float = 0.1

    def __post_init__(self) -> None:
        _check_step(self.dt)

    def advance(self, flow: Flow, z: Array, t: float, dt: float, mask: np.ndarray | None) -> Array:
        if not isinstance(flow, Relaxation):
            raise TypeError(
                "ExponentialEuler needs a flow z' = V (m - z), such as RescaledFlow or "
                f"AttentionFlow, got {type(flow).__name__}; use RK4 or Adaptive"
            )
        away = flow.target(z, t, mask=mask) - z
        if flow.rate is None:
            return z + float(-np.expm1(-dt)) * away
        return z + act(_relaxed(flow.rate.tobytes(), len(flow.rate), dt), away, "V")


@final
@dataclass(frozen=True)
class Adaptive(Stepper):
    """High order with error control, by SciPy: DOP853 as long as it pays, LSODA where it is stiff.

    Each configuration of a batch has its own steps, and padding has no say in their length. Where
    the flow knows its future in closed form, that is taken.
    Tensors keep their device: the velocity is computed there, in double precision. Tensors that
    require gradients are integrated by torchdiffeq's dopri8, where it is installed.

    Trap: softmax at a growing inverse temperature b = e^{2 l1 t} is a stiff flow wherever a token
    hangs between two targets: the tie pulls it back at a rate like b, and an explicit step may not
    exceed about 6/rate however little happens (stability, not accuracy). `method="auto"` measures
    that rate on its own stages and changes to LSODA, whose Jacobian costs n d velocities, so up to
    n d = 600. Beyond, and whenever more than `most_steps` steps are needed, the run ends with the
    status "stiff" and what it saved so far.
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

    def integrate(
        self,
        flow: Flow,
        z: Array,
        times: np.ndarray,
        mask: np.ndarray | None,
        progress: Progress,
        since: float = 0.0,
    ) -> tuple[Array, Status]:
        if is_torch(z) and z.requires_grad:
            return self._differentiable(flow, z, times, mask, since)
        flat = z.reshape(-1, *z.shape[-2:])
        rows = np.ones(flat.shape[:2], bool) if mask is None else mask.reshape(flat.shape[:2])
        out = np.empty((len(times), *flat.shape))
        ended, reached = _done(flow, self, float(times[-1])), len(times)
        notes: dict[str, None] = {}  # a set in order: configurations may say the same
        for b, real in enumerate(rows):
            one = flat[b].double() if is_torch(z) else flat[b].astype(np.float64)
            out[:, b] = _numpy(one)
            if is_torch(z):
                one = one[like(real, one).bool()]
            else:
                one = one[real]
            states, status = self._one(flow, one, times, progress, since)
            out[: len(states), b, real] = states
            notes |= dict.fromkeys(status.notes)
            if status.failed:
                ended, reached = status, min(reached, len(states))
        states = out[:reached].reshape(reached, *z.shape)
        ended = replace(ended, notes=tuple(notes))
        return (like(states, z) if is_torch(z) else states.astype(z.dtype, copy=False)), ended

    def _one(
        self, flow: Flow, z: Array, times: np.ndarray, progress: Progress, since: float
    ) -> tuple[np.ndarray, Status]:
        """One configuration without padding, at the times it reached."""
        shape, end = tuple(z.shape), float(times[-1])

        def velocity(t: float, y: np.ndarray) -> np.ndarray:
            return _numpy(flow.velocity(like(y.reshape(shape), z), float(t))).ravel()

        out = np.empty((len(times), *shape))
        out[times <= since] = _numpy(z)
        at = int((times <= since).sum())
        status = _done(flow, self, end)
        if at == len(times):
            return out, status
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # LSODA's own words; ours are the status
            solver = self._solver(velocity, since, _numpy(z).ravel(), end)
            stable = 0  # steps in a row as long as stability allows
            for taken in count(1):
                message = solver.step()
                if not np.abs(solver.y).max() < _HUGE:
                    return out[:at], _overflow(flow, solver.t)
                if solver.status == "failed":
                    return out[:at], _stiff(flow, solver.t, f"{message}")
                due = int(np.searchsorted(times, solver.t, side="right"))
                if due > at:
                    states = solver.dense_output()(times[at:due]).T.reshape(-1, *shape)
                    out[at:due] = _numpy(flow.retract(like(states, z)))
                    at = due
                if progress is not None:
                    progress(float(solver.t))
                if solver.status != "running":
                    return out, status
                known = flow.closed_form(solver.y.reshape(shape), float(solver.t))
                if known is not None:
                    out[at:] = known(times[at:])
                    if progress is not None:
                        progress(end)
                    return out, status
                step = float(solver.t - solver.t_old)
                left = (end - solver.t) / step
                stable = stable + 1 if step * _fastest(solver) > _STABLE else 0
                stiff = stable >= _IN_A_ROW and bool(left > _TO_COME)
                if stiff and self.method == "auto" and solver.n <= _MOST_IMPLICIT:
                    note = f"stiff from t = {solver.t:.3g} on: LSODA took over from DOP853."
                    status = replace(status, notes=(note,))
                    solver = self._solver(velocity, solver.t, solver.y, end, "LSODA")
                elif taken >= self.most_steps or (stiff and taken + left > self.most_steps):
                    return out[:at], _crawl(flow, taken, solver.t, step, stiff)
        raise AssertionError("count does not end")

    def _solver(
        self, velocity: Any, t: float, y: np.ndarray, end: float, method: str | None = None
    ) -> Any:
        from scipy import integrate

        name = method or ("DOP853" if self.method == "auto" else self.method)
        return getattr(integrate, name)(velocity, t, y, end, rtol=self.rtol, atol=self.atol)

    def _differentiable(
        self, flow: Flow, z: Array, times: np.ndarray, mask: np.ndarray | None, since: float
    ) -> tuple[Array, Status]:
        try:
            odeint = import_module("torchdiffeq").odeint
        except ImportError:
            raise ValueError(
                "stepper: Adaptive steps with gradients need torchdiffeq (pip install "
                "torchdiffeq); or pass a fixed stepper such as RK4(dt=0.01)"
            ) from None
        import torch

        keep = None if mask is None else torch.as_tensor(mask[..., None], device=z.device)

        def velocity(t: Any, y: Any) -> Any:
            dy = flow.velocity(y, float(t.detach()), mask=mask)
            return dy if keep is None else torch.where(keep, dy, torch.zeros_like(dy))

        lead = times if times[0] == since else np.append(since, times)
        grid = torch.as_tensor(lead, dtype=z.dtype, device=z.device)
        land = {"step_t": grid[1:]}  # its interpolation is of low order: step onto each time
        states = odeint(
            velocity, z, grid, rtol=self.rtol, atol=self.atol, method="dopri8", options=land
        )
        states = flow.retract(states[len(lead) - len(times) :])
        if keep is not None:
            states = torch.where(keep, states, z)
        return states, _done(flow, self, float(times[-1]))


STEPPERS: dict[str, type[Stepper]] = {
    "adaptive": Adaptive,
    "rk4": RK4,
    "euler": Euler,
    "exponential_euler": ExponentialEuler,
}


@lru_cache(maxsize=16)
def _relaxed(rate: bytes, d: int, dt: float) -> np.ndarray:
    """I - e^{-dt V}."""
    from scipy.linalg import expm

    return np.eye(d) - expm(-dt * np.frombuffer(rate).reshape(d, d))


def _check_step(dt: float) -> None:
    if not 0 < dt < float("inf"):
        raise ValueError(f"dt: expected a positive step, got {dt!r}")


def _numpy(z: Array) -> np.ndarray:
    return z.detach().cpu().numpy() if is_torch(z) else z


def _stack(xp: Any, out: list[Array], start: Array) -> Array:
    return xp.stack(out) if out else start[None][:0]


def _done(flow: Flow, stepper: Stepper, t: float) -> Status:
    return Status("done", f"{type(flow).__name__} followed to t = {t:g} by {stepper}.")


def _overflow(flow: Flow, t: float) -> Status:
    return Status("overflow", f"tokens left the floats near t = {t:g}.", flow.advice)


def _stiff(flow: Flow, t: float, message: str) -> Status:
    return Status("stiff", f"{type(flow).__name__} stopped at t = {t:g}: {message}.", _UNSTIFF)


def _crawl(flow: Flow, taken: int, t: float, step: float, unstable: bool) -> Status:
    why = "longer ones would be unstable" if unstable else "longer ones would be inaccurate"
    where = f"after {taken} steps, the last of length {step:.2g}; {why}"
    return _stiff(flow, t, where)


def _fastest(solver: Any) -> float:
    """How fast the flow contracts or turns along the last step of DOP853; 0 for other solvers.

    |f(a) - f(b)| / |a - b| for the last two stages, both at the end of the step: the estimate of
    Hairer, Norsett and Wanner (Solving ODEs II, IV.2), which an explicit step times must not much
    exceed 6.
    """
    if not hasattr(solver, "K"):
        return 0.0
    K, step = solver.K, solver.t - solver.t_old
    last = solver.n_stages - 1
    apart = step * np.linalg.norm((solver.B - solver.A[last]) @ K[: last + 1])
    return float(np.linalg.norm(K[last + 1] - K[last]) / apart) if apart > 0 else 0.0
