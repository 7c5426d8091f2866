"""Cycles: runs whose states come back, layer after layer, instead of coming to rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

import numpy as np

from .._types import Array, as_numpy

_LONGEST = 32  # layers of a period that is looked for
_TIMES = 3  # periods over which the states must come back
_CLOSE = 1e-4  # of the largest step of the cycle: how close they must come
_MOVES = 1e-6  # of the largest coordinate: a smaller step is no motion but rounding
_BYTES = 2**28  # of states that are kept to look for cycles


@final
class Cycle(NamedTuple):
    """States that come back every `period` layers, seen since the layer `since`.

    They come back to within `off`, while one layer moves a coordinate by up to `step`, both in
    units of the largest coordinate.
    """

    period: int
    since: int
    off: float
    step: float

    def traced(self, states: Sequence[Array]) -> Cycle:
        """The same cycle, with the first of all layers from which on states come back."""
        p, k = self.period, self.since
        close = _CLOSE * self.step * float(np.abs(_flat(states[-1])).max())
        while k > 0 and np.abs(_flat(states[k - 1]) - _flat(states[k - 1 + p])).max() <= close:
            k -= 1
        return self._replace(since=k)

    def __str__(self) -> str:
        return (
            f"a cycle of period {self.period} since layer {self.since}: tokens come back to "
            f"within {self.off:.1g} of the largest coordinate, and one layer moves them by "
            f"{self.step:.2g}."
        )


def most_recent(z: Array) -> int:
    """How many states like z are worth keeping: those of three of the longest periods."""
    size = 8 * int(np.prod(tuple(z.shape), dtype=np.int64))
    return min(_TIMES * _LONGEST + 1, _BYTES // max(size, 1))


@final
class Recent:
    """The last states of a run and the layers they belong to."""

    def __init__(self, z: Array) -> None:
        self.states: deque[Array] = deque([z], maxlen=max(most_recent(z), 1))
        self.layer = 0

    def add(self, z: Array) -> None:
        """The next layer."""
        self.states.append(z)
        self.layer += 1

    def cycle(self, saved: Sequence[Array]) -> Cycle | None:
        """The cycle that the run has come to, if any; `saved` states, if all, say since when."""
        found = cycle_of(self.states, self.layer)
        return found if found is None or len(saved) <= self.layer else found.traced(saved)


def cycle_of(states: Iterable[Array], last: int) -> Cycle | None:
    """The cycle at the end of consecutive states, the last of which is layer `last`.

    A cycle comes back over three periods at least. A run that turns on its way to rest does not:
    its states miss those one turn before by more than a ten-thousandth of a step.
    """
    states = list(states)
    many = len(states)
    if many < 2 * _TIMES + 1:
        return None
    z = np.stack([_flat(state) for state in states])
    z = np.ldexp(z, -int(np.frexp(np.abs(z).max())[1]))  # so that no difference overflows
    size = float(np.abs(z[-1]).max())
    steps = np.abs(np.diff(z, axis=0)).max(axis=1)
    for period in range(2, (many - 1) // _TIMES + 1):
        step = float(steps[-period:].max())
        if not step > _MOVES * size:
            return None
        if np.abs(z[-1] - z[-1 - period]).max() > _CLOSE * step:
            continue
        off = np.abs(z[period:] - z[:-period]).max(axis=1)
        missed = off > _CLOSE * step
        back = int(np.argmax(missed[::-1])) if missed.any() else len(off)
        if back > (_TIMES - 1) * period:
            since = last - (back - 1) - period
            return Cycle(period, since, float(off[-period:].max() / size), step / size)
    return None


def _flat(state: Array) -> np.ndarray:
    return as_numpy(state).astype(np.float64, copy=False).ravel()
