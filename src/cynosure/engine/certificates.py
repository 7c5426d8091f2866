"""Proofs that a token's sets will never change again, in exact arithmetic.

See docs/mathematics.md C6 and C7.

Every rule reads one `DecidedLayer` k of the walk: exact tokens z_c, sets C_c, and the exact face of
the hull exposed by a vector. Let P be the averaging over the sets and Y^(r) = P^r z.

* fixed and G: tokens that are the mean of their own tied set, and tokens tied between such.
* H: for all r, q and all j in C_i, <A Y_i^(r), Y_j^(q)> = max_l <A Y_i^(r), z_l>. Checked token
  by token: the proof for i needs only the sets of the tokens that i leads to.
* T: under frozen sets every score difference is c0 + rho^s p1(s) + rho^{2s} p2(s); its sign is
  decided for all s >= 1, which either proves the sets constant for ever or gives the exact layer
  at which the first one changes.

All four hold for any square matrix A: the proofs use only that the hulls K_k shrink.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import comb, lcm, log

import numpy as np

from .kernels.exact import ExactPath, Vector

RULES = ("", "leader", "S", "G", "fixed", "H", "T")  # how a token was settled
OPEN, LEADER, S, G, FIXED, H, T = range(7)
RULE_WORDS = {  # the same for people
    "": "undecided",
    "leader": "leads",
    "S": "follows a leader",
    "G": "tied between tokens that stay",
    "fixed": "stays where it is",
    "H": "tied for ever, proved by hulls",
    "T": "tied for ever, proved by signs",
}

__all__ = ["RULES", "RULE_WORDS", "Exponomial", "Frozen", "DecidedLayer", "fixed_ties"]

Exact = Sequence[Fraction]


class DecidedLayer(abc.ABC):
    """What a rule may ask of a walk whose current layer has been decided."""

    k: int
    alpha: Fraction
    born: np.ndarray
    rule: np.ndarray
    active: np.ndarray
    moving: np.ndarray

    @property
    @abc.abstractmethod
    def path(self) -> ExactPath:
        """The trajectory in integers."""

    @property
    @abc.abstractmethod
    def A_exact(self) -> tuple[list[Vector] | None, int]:
        """Integer rows of A (None for the identity) and their denominator."""

    @abc.abstractmethod
    def following(self, c: int) -> Sequence[int]:
        """C_c at the current layer."""

    @abc.abstractmethod
    def face(self, x: Exact) -> tuple[list[int], Fraction]:
        """The classes that maximise <A x, .> and the maximum; x over path.scale(k)."""

    def point(self, c: int) -> Vector:
        """Class c at the current layer, integers over path.scale(k)."""
        return self.path.at(c, self.k)


def product(x: Sequence[Fraction | int], y: Exact) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def form(view: DecidedLayer, x: Exact) -> list[Fraction]:
    """A x."""
    rows = view.A_exact[0]
    return list(x) if rows is None else [product(row, x) for row in rows]


def fixed_ties(view: DecidedLayer, tied: list[int]) -> Iterator[tuple[int, int, list[float]]]:
    """The classes of `tied` (all with |C_c| > 1) that rules `fixed` and G settle, with limits.

    F is the largest set of tokens with m_i = z_i and C_i in F; it contains the leaders and never
    moves. A token outside F is settled with limit u = m_i when C_i lies in F, <Au, z_j> = |u|_A^2
    on C_i and <Au, z_l> <= |u|_A^2 for all l: then z_i moves straight to u on a face that it
    exposes all along the way (docs/mathematics.md C6).
    """
    means = {c: view.path.mean(view.following(c), view.k) for c in tied}
    fixed = {c for c in tied if tuple(means[c]) == view.point(c)}

    def still(j: int) -> bool:
        return bool(view.born[j] >= 0) or bool(view.rule[j] == FIXED) or j in fixed

    while loose := {c for c in fixed if not all(still(j) for j in view.following(c))}:
        fixed -= loose
    scale = view.path.scale(view.k)
    for c in tied:
        u, members = means[c], view.following(c)
        limit = [float(x / scale) for x in u]
        if c in fixed:
            yield c, FIXED, limit
        elif all(still(j) for j in members):
            face, top = view.face(u)
            if top == product(form(view, u), u) and set(members) <= set(face):
                yield c, G, limit


class Exponomial:
    """f(s) = c0 + rho^s p1(s) + rho^{2s} p2(s) up to a positive factor; low orders first."""

    def __init__(self, rho: Fraction, c0: Fraction, p1: list[Fraction], p2: list[Fraction]) -> None:
        size = max((abs(c) for c in (c0, *p1, *p2)), default=Fraction(0)) or Fraction(1)
        self.rho, self.c0 = rho, c0 / size  # only the sign matters: keep floats in range
        self.p1, self.p2 = _trim([c / size for c in p1]), _trim([c / size for c in p2])

    @property
    def zero(self) -> bool:
        return self.c0 == 0 and not self.p1 and not self.p2

    def __call__(self, s: int) -> Fraction:
        x = self.rho**s
        return self.c0 + x * _value(self.p1, s) + x * x * _value(self.p2, s)

    def tail(self, s: int) -> int:
        """The sign of f on [s, infinity) if the leading part provably dominates there, else 0.

        With the leading part divided out, what remains is a sum of terms |c| t^-j rho^{it} that
        decrease in t once t > degree / (-log rho): it is enough to compare them at t = s.
        """
        rate = -log(self.rho)
        degree = max(len(self.p1), len(self.p2), 1) - 1
        if s < 1 or s <= degree / rate + 1:
            return 0
        x = Fraction(self.rho) ** s
        a1, a2 = [abs(c) for c in self.p1], [abs(c) for c in self.p2]
        if self.c0 != 0:
            lead, rest = self.c0, x * _value(a1, s) + x * x * _value(a2, s)
            return _sign(lead) if abs(lead) > rest else 0
        if self.p1:
            top = len(self.p1) - 1
            lead = self.p1[-1] * s**top
            rest = _value(a1[:-1], s) + x * _value(a2, s)
            return _sign(lead) if abs(lead) > rest else 0
        if not self.p2:
            return 0
        lead = self.p2[-1] * s ** (len(self.p2) - 1)
        return _sign(lead) if abs(lead) > _value(a2[:-1], s) else 0

    def first_nonpositive(self, limit: int) -> tuple[int | None, bool]:
        """(smallest s in 1..limit with f(s) <= 0 or None, whether f > 0 beyond is proved)."""
        start, end = 1, 16
        while start <= limit:
            end = min(end, limit)
            found = self._scan(start, end)
            if found is not None:
                return found, True
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


class Frozen:
    """The future of the open tokens if no set changes again: z_c(s) = L_c + rho^s p_c(s).

    p_c(s) = sum_{r<D} binom(s, r) alpha^r (Y_c^(r) - L_c), L_c = Y_c^(D). `stable` is False when
    the Y^(r) do not become constant (a self-loop outside the fixed set): then there is no verdict.
    """

    def __init__(self, view: DecidedLayer) -> None:
        self.view = view
        self.open = [int(c) for c in view.active]
        self.stepped = [*self.open, *(int(c) for c in view.moving)]  # without a closed form
        self.powers: dict[int, list[Exact]] = {}
        self.depth = self._expand(len(self.stepped) + 2)
        self.stable = self.depth is not None

    def _expand(self, most: int) -> int | None:
        """Y^(r) of the stepped classes until it is constant; returns the r at which that happens.

        Classes in closed form are constant from r = 1 on, so one equality after that is for ever.
        """
        for c in self.stepped:
            self.powers[c] = [[Fraction(x) for x in self.view.point(c)]]
        for r in range(most):
            new = {c: self._mean(c, r) for c in self.stepped}
            if r >= 1 and all(list(new[c]) == list(self.powers[c][-1]) for c in self.stepped):
                return r
            for c in self.stepped:
                self.powers[c].append(new[c])
        return None

    def _mean(self, c: int, r: int) -> Exact:
        members = self.view.following(c)
        weight = self.view.path.count
        rows = [(weight[j], self.y(j, r)) for j in members]
        total = sum(w for w, _ in rows)
        return [
            sum((w * y[i] for w, y in rows), Fraction(0)) / total for i in range(len(rows[0][1]))
        ]

    def y(self, c: int, r: int) -> Exact:
        """Y_c^(r); settled classes move to the mean of their final set, leaders stay."""
        if c in self.powers:
            return self.powers[c][min(r, len(self.powers[c]) - 1)]
        here = [Fraction(x) for x in self.view.point(c)]
        if r == 0 or self.view.born[c] >= 0 or self.view.rule[c] == FIXED:
            return here
        return self.view.path.mean(self.view.following(c), self.view.k)

    def end(self, c: int) -> list[Fraction]:
        """The limit of class c if its sets stay, as rationals."""
        assert self.depth is not None
        scale = self.view.path.scale(self.view.k)
        return [x / scale for x in self.y(c, self.depth)]

    def settled_by_h(self) -> list[int]:
        """The open classes whose sets certificate H proves constant, token by token."""
        good = {c for c in self.open if self._holds_h(c)}
        waiting = set(self.open)
        while loose := {
            c for c in good if any(j in waiting and j not in good for j in self.view.following(c))
        }:
            good -= loose
        return sorted(good)

    def _holds_h(self, c: int) -> bool:
        assert self.depth is not None
        for r in range(self.depth + 1):
            x = self.y(c, r)
            _, top = self.view.face(x)
            ax = form(self.view, x)
            for j in self.view.following(c):
                if any(product(ax, self.y(j, q)) != top for q in range(self.depth + 1)):
                    return False
        return True

    def motion(self, c: int) -> tuple[Exact, list[list[Fraction]]]:
        """(L_c, coefficients of p_c by power of s, each a vector)."""
        assert self.depth is not None
        depth = self.depth + 1
        end = self.y(c, depth)
        d = len(end)
        out = [[Fraction(0)] * d for _ in range(depth)]
        basis = [Fraction(1)]  # binom(s, r) as a polynomial in s
        for r in range(depth):
            delta = [a - b for a, b in zip(self.y(c, r), end, strict=True)]
            step = self.view.alpha**r
            for power, coefficient in enumerate(basis):
                for i in range(d):
                    out[power][i] += coefficient * step * delta[i]
            nxt = [Fraction(0)] * (len(basis) + 1)
            for power, coefficient in enumerate(basis):  # times (s - r) / (r + 1)
                nxt[power] += -Fraction(r, r + 1) * coefficient
                nxt[power + 1] += Fraction(1, r + 1) * coefficient
            basis = nxt
        return end, out

    def first_change(self, keys: Sequence[int], limit: int) -> tuple[int | None, bool]:
        """(first s in 1..limit at which a set changes or None, whether None is proved for ever)."""
        motions = {int(c): self.motion(int(c)) for c in keys}
        proved, first = True, None
        for c in self.open:
            members = list(self.view.following(c))
            for j in keys:
                if j == members[0]:
                    continue
                f = self._difference(motions[c], motions[members[0]], motions[int(j)])
                if j in members:
                    if f.zero:
                        continue
                    found: int | None = next(s for s in range(1, 4 * self.depth + 8) if f(s) != 0)  # type: ignore[operator]
                else:
                    found, sure = f.first_nonpositive(limit if first is None else first)
                    proved = proved and (sure or first is not None)
                if found is not None:
                    first = found if first is None else min(first, found)
        return first, proved

    def _difference(self, i: tuple, best: tuple, other: tuple) -> Exponomial:
        """<A z_i(s), z_best(s) - z_other(s)> as an exponential polynomial in s."""
        limit, poly = form(self.view, i[0]), [form(self.view, x) for x in i[1]]
        gap = [a - b for a, b in zip(best[0], other[0], strict=True)]
        wiggle = [
            [a - b for a, b in zip(x, y, strict=True)]
            for x, y in zip(best[1], other[1], strict=True)
        ]
        p1 = [product(limit, w) + product(p, gap) for w, p in zip(wiggle, poly, strict=True)]
        p2 = [Fraction(0)] * (2 * len(poly) - 1)
        for a, p in enumerate(poly):
            for b, w in enumerate(wiggle):
                p2[a + b] += product(p, w)
        return Exponomial(1 / (1 + self.view.alpha), product(limit, gap), p1, p2)

    def after(self, s: int) -> tuple[int, dict[int, Vector]]:
        """Tie factor and exact values of the stepped classes s layers on, if their sets stay."""
        values = {}
        p, q = self.view.alpha.numerator, self.view.alpha.denominator
        assert self.depth is not None
        factor = lcm(*(x.denominator for c in self.stepped for y in self.powers[c] for x in y))
        for c in self.stepped:
            end = self.y(c, self.depth)
            total = [factor * (p + q) ** s * x for x in end]
            for r in range(min(self.depth, s + 1)):
                weight = factor * comb(s, r) * q ** (s - r) * p**r
                total = [
                    t + weight * (a - b) for t, a, b in zip(total, self.y(c, r), end, strict=True)
                ]
            values[c] = tuple(int(t) for t in total)
        return factor, values


def _trim(p: list[Fraction]) -> list[Fraction]:
    while p and p[-1] == 0:
        p = p[:-1]
    return p


def _value(p: Sequence[Fraction], s: int) -> Fraction:
    out = Fraction(0)
    for c in reversed(p):
        out = out * s + c
    return out


def _floats(p: object, s: np.ndarray) -> np.ndarray:
    out = np.zeros_like(s)
    for c in reversed([float(c) for c in p]):  # type: ignore[attr-defined]
        out = out * s + c
    return out


def _sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)
