"""Steppers: how a flow dz/dt = velocity(z, t) is followed in time.

Fixed steps are ours (there the layer *is* the step); adaptive steps are a library's. Attention is
recomputed at every stage. Trap: an "RK4" that freezes P over the step is Euler, of order 1.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from math import ceil
from typing import Any, final

import numpy as np

from ._types import Array, is_torch, like
from .attention import act
from .dynamics import Flow, Relaxation
from .trajectory import Status

__all__ = ["RK4", "STEPPERS", "Adaptive", "Euler", "ExponentialEuler", "FixedStep", "Stepper"]

Progress = Callable[[Any], Any] | None
_HUGE = 1e150  # beyond this scores overflow


class Stepper(abc.ABC):
    """A way to integrate a flow."""

    @abc.abstractmethod
    def grid(self, time: float) -> np.ndarray:
        """The times saved by default on [0, time]."""

    @abc.abstractmethod
    def integrate(
        self, flow: Flow, z: Array, times: np.ndarray, mask: np.ndarray | None, progress: Progress
    ) -> tuple[Array, Status]:
        """States at `times` (increasing, from t = 0 on) and how it went; cut short on failure."""


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
        self, flow: Flow, z: Array, times: np.ndarray, mask: np.ndarray | None, progress: Progress
    ) -> tuple[Array, Status]:
        from array_api_compat import array_namespace, device

        xp = array_namespace(z)
        keep = None if mask is None else xp.asarray(mask[..., None], device=device(z))
        out: list[Array] = []
        start, t = z, 0.0
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
    """z + (I - e^{-dt V})(m - z) for flows z' = V (m(z, t) - z): order 1, exact where m is frozen.

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
    """High order with error control: SciPy's DOP853 (default) or LSODA for stiff runs.

    Each configuration of a batch has its own steps, and padding has no say in their length. Where
    the flow knows its future in closed form, that is taken.
    Tensors keep their device: the velocity is computed there, in double precision. Tensors that
    require gradients are integrated by torchdiffeq's dopri8, where it is installed.
    """

    rtol: float = 1e-9
    atol: float = 1e-12
    method: str = "DOP853"

    def __post_init__(self) -> None:
        if self.method not in ("DOP853", "LSODA"):
            raise ValueError(f"method: expected 'DOP853' or 'LSODA', got {self.method!r}")
        if not (self.rtol >= 0 and self.atol >= 0 and self.rtol + self.atol > 0):
            raise ValueError(f"rtol, atol: expected tolerances >= 0, got {self.rtol}, {self.atol}")

    def grid(self, time: float) -> np.ndarray:
        return np.linspace(0.0, time, 101) if time > 0 else np.zeros(1)

    def integrate(
        self, flow: Flow, z: Array, times: np.ndarray, mask: np.ndarray | None, progress: Progress
    ) -> tuple[Array, Status]:
        if is_torch(z) and z.requires_grad:
            return self._differentiable(flow, z, times, mask)
        flat = z.reshape(-1, *z.shape[-2:])
        rows = np.ones(flat.shape[:2], bool) if mask is None else mask.reshape(flat.shape[:2])
        out = np.empty((len(times), *flat.shape))
        status, reached = _done(flow, self, float(times[-1])), len(times)
        for b, real in enumerate(rows):
            one = flat[b].double() if is_torch(z) else flat[b].astype(np.float64)
            out[:, b] = _numpy(one)
            if is_torch(z):
                one = one[like(real, one).bool()]
            else:
                one = one[real]
            states, ended = self._one(flow, one, times, progress)
            out[: len(states), b, real] = states
            if ended is not None:
                status, reached = ended, min(reached, len(states))
        states = out[:reached].reshape(reached, *z.shape)
        return (like(states, z) if is_torch(z) else states.astype(z.dtype, copy=False)), status

    def _one(
        self, flow: Flow, z: Array, times: np.ndarray, progress: Progress
    ) -> tuple[np.ndarray, Status | None]:
        """One configuration without padding; the status is None when it arrived."""
        from scipy import integrate

        shape = tuple(z.shape)

        def velocity(t: float, y: np.ndarray) -> np.ndarray:
            return _numpy(flow.velocity(like(y.reshape(shape), z), float(t))).ravel()

        out = np.empty((len(times), *shape))
        out[times <= 0] = _numpy(z)
        at = int((times <= 0).sum())
        if at == len(times):
            return out, None
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # LSODA's own words; ours are the status
            solver = getattr(integrate, self.method)(
                velocity, 0.0, _numpy(z).ravel(), float(times[-1]), rtol=self.rtol, atol=self.atol
            )
            while solver.status == "running":
                message = solver.step()
                if not np.abs(solver.y).max() < _HUGE:
                    return out[:at], _overflow(flow, solver.t)
                if solver.status == "failed":
                    return out[:at], _stiff(flow, self, solver.t, message)
                due = int(np.searchsorted(times, solver.t, side="right"))
                if due > at:
                    states = solver.dense_output()(times[at:due]).T.reshape(-1, *shape)
                    out[at:due] = _numpy(flow.retract(like(states, z)))
                    at = due
                if progress is not None:
                    progress(float(solver.t))
                known = flow.closed_form(solver.y.reshape(shape), float(solver.t))
                if known is not None:
                    out[at:] = known(times[at:])
                    if progress is not None:
                        progress(float(times[-1]))
                    break
        return out, None

    def _differentiable(
        self, flow: Flow, z: Array, times: np.ndarray, mask: np.ndarray | None
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

        lead = times if times[0] == 0 else np.append(0.0, times)
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


def _stiff(flow: Flow, stepper: Adaptive, t: float, message: str | None) -> Status:
    other = "LSODA" if stepper.method == "DOP853" else "DOP853"
    advice = f"Try Adaptive(method={other!r}), looser tolerances, or a fixed step."
    return Status("stiff", f"{stepper.method} gave up at t = {t:g}: {message}", advice)
