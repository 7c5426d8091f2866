"""Budget: how much exact arithmetic a proof may cost, and until when; so that every call ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isqrt
from typing import final

from .._deadline import Deadline


class Exhausted(Exception):
    """The budget is spent: what is proved so far stands, the rest stays undecided."""


def price(bits: int, others: int | None = None) -> int:
    """What one product of integers of so many bits costs, in units of about 100 ns.

    `others` are the bits of the other factor, where they are not as many.
    """
    long, short = bits // 256 + 1, (bits if others is None else others) // 256 + 1
    if long < short:
        long, short = short, long
    return long * isqrt(short)


@final
class Budget:
    """`work` units of exact arithmetic (None: without end) and a deadline.

    The work is counted, not timed: without a deadline the same call gives the same answer on every
    machine.
    """

    def __init__(self, work: int | None = None, deadline: Deadline | None = None) -> None:
        self._left = work
        self._floor = 0
        self._deadline = deadline or Deadline(None)
        self._unasked = 0

    def spend(self, units: int) -> None:
        """Count `units`; raises Exhausted when there are fewer, or the time is over.

        What is refused is not counted: work is asked for before it is done.
        """
        if self._left is not None:
            if self._left - units < self._floor:
                raise Exhausted
            self._left -= units
        self._unasked += units
        if self._unasked > 1000:  # 0.1 ms of work between two looks at the clock
            self._unasked = 0
            self.look()

    def look(self) -> None:
        """Raises Exhausted when the time is over."""
        if self._deadline.passed:
            raise Exhausted

    @contextmanager
    def apart(self, work: int) -> Iterator[None]:
        """Inside, `work` units can be spent that do not count outside."""
        left, floor = self._left, self._floor
        self._left, self._floor = None if left is None else work, 0
        try:
            yield
        finally:
            self._left, self._floor = left, floor

    @contextmanager
    def limited(self, share: float) -> Iterator[None]:
        """Inside, no more than that share of what is left can be spent."""
        floor = self._floor
        if self._left is not None:
            self._floor = max(floor, int(self._left - share * (self._left - floor)))
        try:
            yield
        finally:
            self._floor = floor
