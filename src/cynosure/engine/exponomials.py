"""The sign of an exponential polynomial at every later layer, decided exactly.

While no set C_i changes, every difference of two scores is

    f(s) = c0 + rho^s p1(s) + rho^{2s} p2(s),   s = 1, 2, ... layers from now,

with rational coefficients (docs/mathematics.md C7, rule T). Polynomials are lists of coefficients,
low orders first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import log
from typing import final

import numpy as np

__all__ = ["Exponomial"]


@final
class Exponomial:
    """f(s) = c0 + rho^s p1(s) + rho^{2s} p2(s), up to a positive factor: only its sign is asked."""

    def __init__(self, rho: Fraction, c0: Fraction, p1: list[Fraction], p2: list[Fraction]) -> None:
        size = max((abs(c) for c in (c0, *p1, *p2)), default=Fraction(0)) or Fraction(1)
        self.rho, self.c0 = rho, c0 / size  # coefficients up to 1 keep floats in range
        self.p1, self.p2 = _trim([c / size for c in p1]), _trim([c / size for c in p2])

    @property
    def zero(self) -> bool:
        """True when f(s) = 0 for every s."""
        return self.c0 == 0 and not self.p1 and not self.p2

    def __call__(self, s: int) -> Fraction:
        x = self.rho**s
        return self.c0 + x * _value(self.p1, s) + x * x * _value(self.p2, s)

    def tail(self, s: int) -> int:
        """The sign of f on [s, infinity) if its dominant part provably decides it there, else 0.

        The dominant part is the first of c0, p1, p2 that is not zero, for a polynomial its highest
        term. Divided by it, the rest is a sum of terms |c| t^-j rho^{it} that decrease in t once
        t > degree / (-log rho): it is enough to compare them at t = s.
        """
        rate = -log(self.rho)
        degree = max(len(self.p1), len(self.p2), 1) - 1
        if s < 1 or s <= degree / rate + 1:
            return 0
        x = Fraction(self.rho) ** s
        a1, a2 = [abs(c) for c in self.p1], [abs(c) for c in self.p2]
        if self.c0 != 0:
            top, rest = self.c0, x * _value(a1, s) + x * x * _value(a2, s)
        elif self.p1:
            top = self.p1[-1] * s ** (len(self.p1) - 1)
            rest = _value(a1[:-1], s) + x * _value(a2, s)
        elif self.p2:
            top, rest = self.p2[-1] * s ** (len(self.p2) - 1), _value(a2[:-1], s)
        else:
            return 0
        return _sign(top) if abs(top) > rest else 0

    def first_nonzero(self) -> int:
        """The smallest s >= 1 with f(s) != 0, for an f that is not zero.

        Trap: f may vanish at a few s. It is a sum of at most 1 + |p1| + |p2| independent terms
        s^a rho^{bs}, so it cannot vanish at that many s >= 1 in a row.
        """
        return next(s for s in range(1, len(self.p1) + len(self.p2) + 2) if self(s) != 0)

    def first_nonpositive(self, limit: int) -> tuple[int | None, bool]:
        """(smallest s in 1..limit with f(s) <= 0 or None, whether f > 0 beyond is proved)."""
        start, end = 1, 16
        while start <= limit:
            end = min(end, limit)
            first = self._scan(start, end)
            if first is not None:
                return first, True
            if self.tail(end) > 0:
                return None, True
            start, end = end + 1, 2 * end
        return None, False

    def _scan(self, start: int, end: int) -> int | None:
        """First s in [start, end] with f(s) <= 0: floats where their error allows, else exactly."""
        s = np.arange(start, end + 1, dtype=float)
        power = 0 if self.c0 != 0 else 1 if self.p1 else 2  # divide by rho^{power s}: no underflow
        x = np.exp(-log(1 / self.rho) * s)
        parts = [np.full_like(s, float(self.c0)), _floats(self.p1, s), _floats(self.p2, s)]
        sizes = [
            np.full_like(s, abs(float(self.c0))),
            *(_floats(map(abs, p), s) for p in (self.p1, self.p2)),
        ]
        value = sum(part * x ** max(i - power, 0) for i, part in enumerate(parts) if i >= power)
        size = sum(part * x ** max(i - power, 0) for i, part in enumerate(sizes) if i >= power)
        doubtful = value <= 1e-9 * size + 1e-300
        for i in np.flatnonzero(doubtful):
            if self(start + int(i)) <= 0:
                return start + int(i)
        return None


def _trim(p: list[Fraction]) -> list[Fraction]:
    while p and p[-1] == 0:
        p = p[:-1]
    return p


def _value(p: Sequence[Fraction], s: int) -> Fraction:
    out = Fraction(0)
    for c in reversed(p):
        out = out * s + c
    return out


def _floats(p: Iterable[Fraction], s: np.ndarray) -> np.ndarray:
    out = np.zeros_like(s)
    for c in reversed([float(c) for c in p]):
        out = out * s + c
    return out


def _sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)
