"""Deadline: the moment until which a call may go on; every long loop asks it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import final


@final
class _Clock:
    """Seconds of this process, less those in which some thread was compiling."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lost = 0.0  # of the stops that are over
        self._stops, self._since = 0, 0.0  # threads that stop it now, since the first of them

    def now(self) -> float:
        while True:
            stops, since, lost = self._stops, self._since, self._lost
            read = since if stops else monotonic()
            if (stops, since, lost) == (self._stops, self._since, self._lost):
                return read - lost

    @contextmanager
    def stopped(self) -> Iterator[None]:
        with self._lock:
            if self._stops == 0:
                self._since = monotonic()
            self._stops += 1
        try:
            yield
        finally:
            with self._lock:
                if self._stops == 1:  # in this order: whoever reads between sees too little
                    self._lost += monotonic() - self._since
                self._stops -= 1


_CLOCK = _Clock()
not_counted = _CLOCK.stopped  # inside, no deadline of this process runs


@final
class Deadline:
    """`seconds` from now, or no end for None; `passed` tells whether the time is over.

    A loop that may be long asks `passed` once per turn and then ends with what it has. Time in
    which kernels are compiled does not count: the first call proves what every later one does.

    Examples
    --------
    >>> Deadline(None).passed, Deadline(3600).passed
    (False, False)
    """

    def __init__(self, seconds: float | int | None) -> None:
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (number and seconds > 0):
            expected = "a positive number of seconds or None"
            raise ValueError(f"deadline: expected {expected}, got {seconds!r}")
        self._end = math.inf if seconds is None else _CLOCK.now() + seconds

    @property
    def passed(self) -> bool:
        return self._end < math.inf and _CLOCK.now() >= self._end

    @property
    def left(self) -> float | None:
        """Seconds left to hand on to a call, at least a millisecond; None where there is no end."""
        return None if math.isinf(self._end) else max(self._end - _CLOCK.now(), 1e-3)
