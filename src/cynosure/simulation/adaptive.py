"""One configuration followed by SciPy's adaptive solvers, step by step, so that every run ends.

A solver left to itself may never return: its step may be NaN, or 1e-10 where attention jumps. Here
tries and steps are bounded, the pace is watched, and the deadline is asked before every velocity.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np

from .._deadline import Deadline
from .._types import Array, as_numpy, like
from ..dynamics import Flow
from .status import Status, drowned, no_velocity, overflow, too_stiff

_HUGE = 2.0**1000  # tokens beyond this are about to leave the floats
_STABLE = 5.5  # step times rate at which DOP853, stable to 6.1, is limited by stability
_IN_A_ROW, _TO_COME = 20, 1000  # so many such steps done, and so many to come, are a stiff run
_MOST_IMPLICIT = 600  # coordinates up to which an implicit method pays: its Jacobian is dense
_MOST_TRIES = 2000  # velocities for one step, apart from those of a Jacobian
_DEFECT = 50.0  # tolerances: step times the slope missed; the interpolation is off by a fifth
_WINDOW, _WORK = 1000, 5000  # steps over which the pace is measured, and velocities at most


class Rules(NamedTuple):
    """Tolerances, the solver ("auto", "DOP853" or "LSODA"), and how many steps may be taken."""

    rtol: float
    atol: float
    method: str
    most_steps: int


class _Late(Exception):
    """The deadline passed within a step."""


class _Stuck(Exception):
    """A step was tried too often."""


@final
class Course:
    """One configuration z (n, d), no padding, on its way through `times`.

    `advance()` takes one step; `saved` states of `out` are there, `t` is how far it came. Once
    `over`, `status` is None where it reached the end, or a failure.
    """

    def __init__(
        self,
        flow: Flow,
        z: Array,
        times: np.ndarray,
        since: float,
        rules: Rules,
        deadline: Deadline,
    ) -> None:
        self.flow, self.rules, self.deadline = flow, rules, deadline
        self.times, self.end, self.t = times, float(times[-1]), since
        self.notes: tuple[str, ...] = ()
        self.status: Status | None = None
        self.late = False  # stopped by the deadline
        self._model, self._shape = z, tuple(z.shape)
        self._start = self._here = as_numpy(z)
        self.out = np.empty((len(times), *self._shape))
        self.saved = int((times <= since).sum())
        self.out[: self.saved] = self._start
        self.over = self.saved == len(times)
        self._taken = self._tries = self._stable = self._work = 0
        self._longest = 0.0
        self._paces: deque[float] = deque(maxlen=_WINDOW)
        self._known: Callable[[np.ndarray], np.ndarray] | None = None
        self._solver: Any = None

    def advance(self) -> None:
        """One step of the solver, and the states that it passed."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # LSODA's own words; ours are the status
            try:
                if self._solver is None:
                    self._begin()
                else:
                    self._go_on()
            except _Late:
                self.late = self.over = True
            except _Stuck:
                self._fail(f"a step was tried {_MOST_TRIES} times")

    def at(self, t: float) -> np.ndarray:
        """The tokens at a time within the last step, shape (n, d)."""
        if self._known is not None and t >= self._solver.t:
            return self._known(np.array([t]))[0]
        self._tries, self.deadline = 0, Deadline(None)
        with np.errstate(all="ignore"):
            if t == self.t or self._solver is None:  # a step broken off leaves the solver no past
                return as_numpy(self.flow.retract(like(self._here, self._model)))
            return self._states(np.array([t]))[0]

    def _begin(self) -> None:
        start = self._velocity(self.t, self._start.ravel())
        if not np.isfinite(start).all():
            self.over, self.status = True, no_velocity(self.flow, self.t)
            return
        name = "DOP853" if self.rules.method == "auto" else self.rules.method
        self._take_over(name, self._start.ravel())

    def _take_over(self, name: str, y: np.ndarray) -> None:
        from scipy import integrate

        options = {"rtol": self.rules.rtol, "atol": self.rules.atol}
        self._solver = getattr(integrate, name)(self._velocity, self.t, y, self.end, **options)

    def _go_on(self) -> None:
        solver = self._solver
        self._taken, self._tries = self._taken + 1, 0
        solver.step()
        if not np.abs(solver.y).max() < _HUGE:
            self.over, self.status = True, overflow(self.flow, float(solver.t))
        elif solver.status == "failed":
            least = 10 * np.spacing(max(abs(self.t), np.finfo(float).tiny))
            self._fail(f"the step fell below {least:.2g}, the spacing of the floats there")
        else:
            step, self.t = float(solver.t - self.t), float(solver.t)
            self._here = solver.y.reshape(self._shape).copy()
            self._save()
            if not self.over:
                self._watch(step)

    def _save(self) -> None:
        """The times passed; all of them where the flow knows its future from here on."""
        due = int(np.searchsorted(self.times, self.t, side="right"))
        if due > self.saved:
            self.out[self.saved : due] = self._states(self.times[self.saved : due])
            self.saved = due
        if self._solver.status != "running":
            self.over = True
            return
        self._known = self.flow.closed_form(self._solver.y.reshape(self._shape), self.t)
        if self._known is not None:
            self.out[self.saved :] = self._known(self.times[self.saved :])
            self.saved, self.t, self.over = len(self.times), self.end, True

    def _watch(self, step: float) -> None:
        """Is it stiff, and which stepper continues? Or is it hopeless?"""
        rules, solver = self.rules, self._solver
        left = (self.end - self.t) / step
        self._paces.append(step)
        self._longest = max(self._longest, step)
        short = step < 0.01 * self._longest  # why so short, all at once?
        if short and self.flow.drowned(self._here, self.t, rules.rtol):
            self.over, self.status = True, drowned(self.flow, self.t)
            return
        self._stable = self._stable + 1 if step * _fastest(solver) > _STABLE else 0
        unstable = self._stable >= _IN_A_ROW and left > _TO_COME
        if unstable and rules.method == "auto" and solver.n <= _MOST_IMPLICIT:
            self.notes = (f"stiff from t = {self.t:.3g} on: LSODA took over from DOP853.",)
            self._take_over("LSODA", solver.y)
            self._stable = 0
            return
        why = "longer ones would be " + ("unstable" if unstable else "inaccurate")
        if self._taken >= rules.most_steps or (unstable and self._taken + left > rules.most_steps):
            self._fail(f"after {self._taken} steps, the last of length {step:.2g}; {why}")
        elif (need := self._hopeless()) > 0:
            self._fail(f"after {self._taken} steps, at a pace that needs {need:.1g}; {why}")

    def _hopeless(self) -> float:
        """The steps needed, where they are far more than allowed and the pace gets no better; or 0.

        Where tokens slide along a jump of the flow every later step is short. The pace of many
        steps is measured, since a burst of short ones ends: tokens that leave a metastable state
        need hundreds. Steps of very different lengths are jumps, which do not become fewer.
        """
        window = min(_WINDOW, _WORK * self._taken // self._work)
        if self._taken % 25 or len(self._paces) < window:
            return 0.0
        steps = np.array(self._paces)[-window:]
        before, now = steps[: window // 2].mean(), steps[window // 2 :].mean()
        jumps = np.mean(steps < 1e-4 * steps.max()) > 0.05
        need = self._taken + (self.end - self.t) / float(steps.mean())
        return need if now <= before and need > self.rules.most_steps * (1 if jumps else 4) else 0.0

    def _fail(self, message: str) -> None:
        self.over, self.status = True, too_stiff(self.flow, self.t, message)
        if self.flow.drowned(self._here, self.t, self.rules.rtol):  # then steps follow noise
            self.status = drowned(self.flow, self.t)

    def _velocity(self, t: float, y: np.ndarray) -> np.ndarray:
        if self.deadline.passed:
            raise _Late
        self._tries, self._work = self._tries + 1, self._work + 1
        if self._tries > _MOST_TRIES + 10 * y.size:
            raise _Stuck
        tokens = like(y.reshape(self._shape), self._model)
        return as_numpy(self.flow.velocity(tokens, float(t))).ravel()

    def _states(self, times: np.ndarray) -> np.ndarray:
        dense = self._solver.dense_output()
        states = dense(times).T
        if hasattr(self._solver, "K") and self._strays(dense):
            states = np.stack([self._stepped_to(float(t)) for t in times])
        return as_numpy(self.flow.retract(like(states.reshape(-1, *self._shape), self._model)))

    def _strays(self, dense: Callable[[Any], np.ndarray]) -> bool:
        """Does the interpolation within the last step of DOP853 miss the tolerances?

        It reads the velocity at both ends: it is off where that jumps at one, or changes fast.
        """
        solver, rules = self._solver, self.rules
        h = float(solver.t - solver.t_old)
        scale = rules.atol + rules.rtol * np.maximum(np.abs(solver.y), np.abs(solver.y_old))
        for share in (0.3, 0.7):
            t, near = solver.t_old + share * h, 1e-5 * h
            slope = (dense(t + near) - dense(t - near)) / (2 * near)
            defect = h * (slope - self._velocity(t, dense(t))) / scale
            if not np.sqrt(np.mean(defect**2)) <= _DEFECT:
                return True
        return False

    def _stepped_to(self, t: float) -> np.ndarray:
        """The tokens at a time within the last step, by steps that end there."""
        from scipy.integrate import DOP853

        solver = self._solver
        if t == solver.t:
            return np.asarray(solver.y)
        options = {"rtol": self.rules.rtol, "atol": self.rules.atol}
        own = DOP853(self._velocity, solver.t_old, solver.y_old, t, **options)
        while own.status == "running":
            self._tries = 0
            own.step()
        return np.asarray(own.y)


def _fastest(solver: Any) -> float:
    """How fast the flow contracts or turns along the last step of DOP853; 0 for other solvers.

    |f(a) - f(b)| / |a - b| for the last two stages, both at the end of the step: the estimate of
    Hairer, Norsett and Wanner (Solving ODEs II, IV.2).
    """
    if not hasattr(solver, "K"):
        return 0.0
    K, step = solver.K, solver.t - solver.t_old
    last = solver.n_stages - 1
    apart = step * np.linalg.norm((solver.B - solver.A[last]) @ K[: last + 1])
    return float(np.linalg.norm(K[last + 1] - K[last]) / apart) if apart > 0 else 0.0
