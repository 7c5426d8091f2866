"""What a run saves, whom it moves, when it ends and whom it tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._deadline import Deadline
from .._types import Array, as_array, as_number, as_whole

if TYPE_CHECKING:
    from .steppers import Stepper

MOST_SAVED = 10_000_000  # states of one run


class Plan(NamedTuple):
    """When to save, whom to move, when to end and whom to tell."""

    saves: np.ndarray  # layers or times, increasing
    mask: np.ndarray | None
    deadline: Deadline
    progress: Callable[[Any], Any] | None
    stop: Callable[[Array], Any] | None = None
    since: float | int = 0  # layer or time of the first state

    def first(self, states: Array, since: int = 0) -> int | None:
        """Which of the states, from number `since` on, is the first to end the run, if any."""
        if self.stop is None:
            return None
        return next((k for k in range(since, len(states)) if bool(self.stop(states[k]))), None)


def times_saved(time: Any, times: Any, stepper: Stepper, every: int) -> np.ndarray:
    """The times to save: those given, or those the stepper proposes up to `time`."""
    if times is None:
        finite = as_number(time, "time", "a finite time >= 0", lambda t: 0 <= t < float("inf"))
        grid = stepper.grid(finite)
    else:
        grid = as_array(times, "times", "increasing numbers >= 0, one per saved state")
        if grid.ndim != 1 or not len(grid) or not (np.diff(grid, prepend=-1.0) > 0).all():
            raise ValueError("times: expected increasing numbers >= 0, one per saved state")
        if grid[0] < 0 or not np.isfinite(grid).all():
            raise ValueError("times: expected increasing finite numbers >= 0, starting at t = 0")
    return np.append(grid[:-1:every], grid[-1])


def layers_saved(layers: Any, every: int) -> np.ndarray:
    """The layers to save: every so many, and the last."""
    last = as_whole(layers, "layers", 0)
    if last // every > MOST_SAVED:
        raise ValueError(
            f"layers: {last} layers, of which {last // every} would be saved; "
            f"save_every={-(-last // 1000)} saves a thousand"
        )
    saved = np.arange(0, last + 1, every)
    return saved if saved[-1] == last else np.append(saved, last)


def rows(chosen: np.ndarray) -> slice | list[int]:
    """Indices that arrays and tensors both take; no copy where all are chosen."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen).tolist()
