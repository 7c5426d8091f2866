"""The sign of an exponential sum at every later layer, decided exactly.

While no set C_i changes, every difference of two scores is

    f(s) = sum_b b^s p_b(s),   s = 1, 2, ... layers from now,

with rational bases b in (-1, 1] and rational polynomials p_b (docs/mathematics.md C7, rule T).
Multiplied by D^s, D a common denominator of the bases, f becomes a sum over whole bases with whole
coefficients: all that follows is arithmetic of integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import comb, lcm, log, log1p
from typing import NamedTuple, TypeAlias, final

import numpy as np

from .budget import Budget, price

Terms: TypeAlias = Mapping[Fraction, Sequence[Fraction]]  # base -> coefficients, low orders first
Piece: TypeAlias = tuple[int, int | None]

_SCANNED = 4096  # layers looked at one by one before the search by pieces
_DOUBTS = 32  # layers decided in integers before the same


class Part(NamedTuple):
    """`sum`(t), t = 1, 2, ..., which is f(step t - offset) up to a positive factor."""

    step: int
    offset: int
    sum: ExponentialSum


def first_nonpositive(parts: Sequence[Part], limit: int, budget: Budget) -> tuple[int | None, bool]:
    """(smallest s in 1..limit with f(s) <= 0 or None, whether f > 0 beyond the limit is proved)."""
    first, proved = None, True
    for step, offset, part in parts:
        room = limit if first is None else first - 1
        found, sure = part.first_nonpositive((room + offset) // step, budget)
        if found is not None:
            first = step * found - offset
        proved = proved and sure
    return first, proved


def first_nonzero(parts: Sequence[Part], budget: Budget) -> int | None:
    """The smallest s >= 1 with f(s) != 0; None when there is none.

    Trap: f may vanish at a few s. It is a sum of N independent terms s^a b^s, so it cannot vanish
    at N values of s in a row, for either parity of s.
    """
    found = [(part.sum.first_nonzero(budget), part) for part in parts]
    return min((p.step * s - p.offset for s, p in found if s is not None), default=None)


def parts_of(terms: Terms) -> list[Part]:
    """One part when every base is positive; otherwise even and odd layers, with squares as bases.

    A base 0 has no part in f(s), s >= 1.
    """
    terms = {b: list(p) for b, p in terms.items() if b != 0 and any(p)}
    if all(b > 0 for b in terms):
        return [Part(1, 0, ExponentialSum(terms))]
    out = []
    for offset in (0, 1):
        halved: dict[Fraction, list[Fraction]] = {}
        for b, p in terms.items():
            mine = halved.setdefault(b * b, [])
            mine += [Fraction(0)] * (len(p) - len(mine))
            for power, c in enumerate(p):  # c (2t - offset)^power b^-offset
                for low in range(power + 1):
                    share = comb(power, low) * 2**low * (-offset) ** (power - low)
                    mine[low] += c * share / b**offset
        out.append(Part(2, offset, ExponentialSum(halved)))
    return out


@final
class ExponentialSum:
    """f(s) = sum_b b^s p_b(s) with positive bases b, up to a positive factor D^s c."""

    def __init__(self, terms: Terms) -> None:
        terms = {b: p for b, p in terms.items() if any(p)}
        denominator = lcm(*(b.denominator for b in terms))
        factor = lcm(*(Fraction(c).denominator for p in terms.values() for c in p))
        self._terms = {
            int(b * denominator): _trimmed([int(c * factor) for c in terms[b]])
            for b in sorted(terms, reverse=True)
        }

    @classmethod
    def whole(cls, terms: Mapping[int, list[int]]) -> ExponentialSum:
        """From whole positive bases, in decreasing order, and whole coefficients."""
        out = cls({})
        out._terms = {b: trimmed for b, p in terms.items() if (trimmed := _trimmed(p))}
        return out

    @property
    def at_infinity(self) -> int:
        """The sign of f(s) for all large s: that of the leading term of the largest base."""
        return _sign(next(iter(self._terms.values()))[-1]) if self._terms else 0

    def sign(self, s: int, budget: Budget) -> int:
        """The sign of f(s): by truncated powers when they suffice, else by whole ones."""
        values = [(v, b) for b, p in self._terms.items() if (v := _value(p, s))]
        if len(values) <= 1:
            return _sign(values[0][0]) if values else 0
        bits = max(b.bit_length() for _, b in values) * s
        width = 256
        while 4 * width < bits:
            budget.spend(len(values) * s.bit_length() * price(width))
            decided = _sign_of_truncated(values, s, width)
            if decided is not None:
                return decided
            width *= 8
        budget.spend(len(values) * price(bits))
        return _sign(sum(v * b**s for v, b in values))

    def first_nonzero(self, budget: Budget) -> int | None:
        """The smallest s >= 1 with f(s) != 0, None for f = 0."""
        count = sum(map(len, self._terms.values()))
        return next((s for s in range(1, count + 1) if self.sign(s, budget)), None)

    def first_nonpositive(self, limit: int, budget: Budget) -> tuple[int | None, bool]:
        """As the function; layer by layer while that is cheap, then by pieces of monotone f."""
        if not self._terms:
            return (1 if limit >= 1 else None), True
        start, end, doubts = 1, 16, 0
        while start <= min(limit, _SCANNED):
            end = min(end, limit)
            budget.spend(200 + (end - start) * sum(map(len, self._terms.values())) // 16)
            for s in self._doubtful(start, end):
                doubts += 1
                if self.sign(s, budget) <= 0:
                    return s, True
                if doubts > _DOUBTS:
                    return self._by_pieces(s + 1, limit, budget)
            if self._positive_from(end, budget):
                return None, True
            start, end = end + 1, 4 * end
        return self._by_pieces(start, limit, budget)

    def _doubtful(self, start: int, end: int) -> list[int]:
        """The s in [start, end] at which floats do not prove f(s) > 0."""
        s = np.arange(start, end + 1, dtype=float)
        top = next(iter(self._terms))
        size = max(abs(c) for p in self._terms.values() for c in p)
        if any(0 < abs(c) / size < 1e-290 for p in self._terms.values() for c in p):
            return list(range(start, end + 1))
        value, bound = np.zeros_like(s), np.zeros_like(s)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for b, p in self._terms.items():
                decay = np.exp(s * _log_ratio(b, top))
                part, whole = np.zeros_like(s), np.zeros_like(s)
                for c in reversed(p):
                    share = c / size
                    part, whole = part * s + share, whole * s + abs(share)
                value += part * decay
                bound += whole * decay
            # the exponent s log(b / top) is off by 2^-50 of itself, which is below 800 where it
            # matters; whatever overflowed is not finite and stays in doubt
            sure = np.isfinite(bound) & (value > 1e-9 * bound + 1e-290)
        return (np.flatnonzero(~sure) + start).tolist()

    def _positive_from(self, s: int, budget: Budget) -> bool:
        """Sufficient for f > 0 on [s, infinity): the leading term beats all negative ones for ever.

        Divided by the leading term c t^A top^t, a negative one is |c'| t^(a-A) (b / top)^t. It does
        not grow from t = s on when (1 + 1/s)^(a-A) b <= top, since the left side falls with s.
        """
        top, leading = next(iter(self._terms.items()))
        if leading[-1] <= 0 or s < 1:
            return False
        order, rest = len(leading) - 1, {}
        for b, p in self._terms.items():
            rest[b] = [min(c, 0) for c in p]
            rise = len(_trimmed(rest[b])) - 1 - order
            if rise > 0 and (s + 1) ** rise * b > s**rise * top:
                return False
        rest[top][-1] = leading[-1]
        return ExponentialSum.whole(rest).sign(s, budget) > 0

    def _lowered(self, base: int) -> ExponentialSum:
        """g(s) = f(s + 1) - base f(s): f / base^s rises exactly where g > 0."""
        out = {}
        for b, p in self._terms.items():
            orders = range(len(p))
            moved = [sum(comb(high, low) * p[high] for high in orders[low:]) for low in orders]
            out[b] = [b * x - base * c for x, c in zip(moved, p, strict=True)]
        return ExponentialSum.whole(out)

    def _monotone(self, start: int, limit: int, budget: Budget) -> list[Piece]:
        """Pieces [left, right] of [start, infinity) on which f / base^s is monotone.

        `right` is None for a piece without end. Where the search ends at `limit`, so do they.
        """
        g = self._lowered(next(reversed(self._terms)))
        if not g._terms:
            return [(start, None)]
        points, complete = g._sign_changes(start, limit, budget)
        ends = [*points[1:], None if complete else limit]
        return list(zip(points, ends, strict=True))

    def _end(self, right: int | None, budget: Budget) -> int:
        return self.at_infinity if right is None else self.sign(right, budget)

    def _sign_changes(self, start: int, limit: int, budget: Budget) -> tuple[list[int], bool]:
        """Points start = x_0 < x_1 < ... such that f does not change sign on [x_i, x_{i+1} - 1].

        And whether these are all of them, or those up to `limit`. On each piece where f / base^s is
        monotone f changes sign once at most; on one without end the sign at infinity tells.
        """
        if sum(map(len, self._terms.values())) == 1:
            return [start], True
        points, current = [start], 0
        pieces = self._monotone(start, limit, budget)
        for left, right in pieces:
            sign = self.sign(left, budget)
            if sign and current and sign != current:
                points.append(left)
            current = sign or current
            end = self._end(right, budget)
            if end and current and end != current:
                change = self._first_with((end,), left, right, limit, budget)
                if change is None:
                    return sorted(set(points)), False
                points.append(change)
            current = end or current
        return sorted(set(points)), pieces[-1][1] is None

    def _by_pieces(self, start: int, limit: int, budget: Budget) -> tuple[int | None, bool]:
        """`first_nonpositive` from `start` on, f > 0 before it being known."""
        if start > limit:
            return None, False
        pieces = self._monotone(start, limit, budget)
        for left, right in pieces:
            if self.sign(left, budget) <= 0:
                return left, True
            if self._end(right, budget) <= 0:
                first = self._first_with((0, -1), left, right, limit, budget)
                return first, first is not None
        return None, pieces[-1][1] is None

    def _first_with(
        self, signs: tuple[int, ...], left: int, right: int | None, limit: int, budget: Budget
    ) -> int | None:
        """The first s in (left, right] at which f has one of the signs; None beyond `limit`.

        It has none of them at `left`, and keeps them: until `right`, or in the end.
        """
        if right is None:
            step = 1
            while self.sign(min(left + step, limit), budget) not in signs:
                if left + step >= limit:
                    return None
                left, step = left + step, 2 * step
            right = min(left + step, limit)
        while right - left > 1:
            middle = (left + right) // 2
            found = self.sign(middle, budget) in signs
            left, right = (left, middle) if found else (middle, right)
        return right if right <= limit else None


def _sign_of_truncated(values: Iterable[tuple[int, int]], s: int, width: int) -> int | None:
    """The sign of sum v b^s from powers truncated to `width` bits; None when that is not enough.

    A truncated power is m 2^e <= b^s <= m 2^e (1 + r), r = 4 (s + 1) 2^-width: each of the at most
    2 log2 s products loses a relative 2^(1 - width), and squaring doubles what was lost before.
    """
    parts = []
    for v, b in values:
        mantissa, exponent = _truncated_power(b, s, width)
        parts.append((v * mantissa, exponent))
    low = max(p.bit_length() + e for p, e in parts) - 3 * width  # what lies lower is cut
    scaled = [p << (e - low) if e >= low else p >> (low - e) for p, e in parts]
    total, size = sum(scaled), sum(map(abs, scaled))
    if (abs(total) - len(parts)) << width > 8 * (s + 1) * size:
        return _sign(total)
    return None


def _truncated_power(b: int, s: int, width: int) -> tuple[int, int]:
    """b^s as mantissa 2^exponent, the mantissa cut to `width` bits after every product."""
    mantissa, exponent = 1, 0
    for bit in bin(s)[2:]:
        mantissa, exponent = mantissa * mantissa, 2 * exponent
        if bit == "1":
            mantissa *= b
        extra = mantissa.bit_length() - width
        if extra > 0:
            mantissa >>= extra
            exponent += extra
    return mantissa, exponent


def _trimmed(p: list[int]) -> list[int]:
    while p and p[-1] == 0:
        p = p[:-1]
    return p


def _value(p: Sequence[int], s: int) -> int:
    return reduce(lambda out, c: out * s + c, reversed(p), 0)


def _log_ratio(b: int, top: int) -> float:
    """log(b / top) for 0 < b <= top, also where the ratio rounds to 1 or to 0."""
    ratio = (b - top) / top
    return log1p(ratio) if ratio > -0.5 else log(b) - log(top)


def _sign(x: int) -> int:
    return (x > 0) - (x < 0)
