"""Proofs that a token's sets will never change again, in exact arithmetic.

See docs/mathematics.md C6 and C7.

Every rule reads one `DecidedLayer` k of the walk: exact tokens z_c, sets C_c, and the exact face of
the hull exposed by a vector. Let P be the averaging over the sets and Y^(r) = P^r z.

* fixed and G: tokens that are the mean of their own tied set, and tokens tied between such.
* H: for all r, q and all j in C_i, <A Y_i^(r), Y_j^(q)> = max_l <A Y_i^(r), z_l>. Checked token
  by token: the proof for i needs only the sets of the tokens that i leads to.
* T: while the sets are constant every score difference is c0 + rho^s p1(s) + rho^{2s} p2(s); its
  sign is decided for all s >= 1, which either proves the sets constant for ever or gives the exact
  layer at which the first one changes.

All four hold for any square matrix A: the proofs use only that the hulls K_k shrink.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import comb, lcm
from typing import NamedTuple, final

import numpy as np

from .exponomials import Exponomial
from .kernels.exact import Exact, Vector, product, weighted_mean

__all__ = ["RULES", "RULE_WORDS", "ConstantSets", "DecidedLayer", "fixed_ties"]

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


class DecidedLayer(abc.ABC):
    """What a rule may ask of a walk whose current layer has been decided.

    Tokens are value classes c with multiplicities. Exact positions are integers or rationals over
    one common denominator, `scale`.
    """

    alpha: Fraction

    @property
    @abc.abstractmethod
    def scale(self) -> int:
        """The common denominator of the positions at this layer."""

    @property
    @abc.abstractmethod
    def count(self) -> Sequence[int]:
        """How many tokens each class holds."""

    @property
    @abc.abstractmethod
    def searched(self) -> np.ndarray:
        """The classes that are not settled: their sets are searched at every layer."""

    @property
    @abc.abstractmethod
    def stepped(self) -> np.ndarray:
        """The classes without a closed form: those searched, then those settled by H or T."""

    @abc.abstractmethod
    def point(self, c: int) -> Vector:
        """z_c, integers over `scale`."""

    @abc.abstractmethod
    def following(self, c: int) -> Sequence[int]:
        """C_c."""

    @abc.abstractmethod
    def stays(self, c: int) -> bool:
        """True when class c is proved never to move again: a leader, or settled as `fixed`."""

    @abc.abstractmethod
    def image(self, x: Exact) -> Exact:
        """A x."""

    @abc.abstractmethod
    def face(self, x: Exact) -> tuple[list[int], Fraction]:
        """The classes that maximise <A x, .> and the maximum; x over `scale`."""

    def mean(
        self, c: int, of: Callable[[int], Sequence[Fraction | int]] | None = None
    ) -> list[Fraction]:
        """The mean over C_c of `of(j)`, multiplicities counted; of z_j unless told: then m_c."""
        members, of = self.following(c), of or self.point
        return weighted_mean([self.count[j] for j in members], [of(j) for j in members])


def fixed_ties(view: DecidedLayer, tied: list[int]) -> Iterator[tuple[int, int, list[float]]]:
    """The classes of `tied` (all with |C_c| > 1) that rules `fixed` and G settle, with limits.

    F is the largest set of tokens with m_i = z_i and C_i in F; it contains the leaders and never
    moves. A token outside F is settled with limit u = m_i when C_i lies in F, <Au, z_j> = |u|_A^2
    on C_i and <Au, z_l> <= |u|_A^2 for all l: then z_i moves straight to u on a face that it
    exposes all along the way (docs/mathematics.md C6).
    """
    means = {c: view.mean(c) for c in tied}
    fixed = {c for c in tied if tuple(means[c]) == view.point(c)}

    def stays(j: int) -> bool:
        return j in fixed or view.stays(j)

    while loose := {c for c in fixed if not all(map(stays, view.following(c)))}:
        fixed -= loose
    scale = view.scale
    for c in tied:
        u, members = means[c], view.following(c)
        limit = [float(x / scale) for x in u]
        if c in fixed:
            yield c, FIXED, limit
        elif all(map(stays, members)):
            face, top = view.face(u)
            if top == product(view.image(u), u) and set(members) <= set(face):
                yield c, G, limit


class Motion(NamedTuple):
    """z_c(s) = limit + rho^s sum_a powers[a] s^a, vectors over `scale`."""

    limit: Exact
    powers: list[list[Fraction]]


@final
class ConstantSets:
    """The future of the open classes if no set changes again: z_c(s) = L_c + rho^s p_c(s).

    p_c(s) = sum_{r<D} binom(s, r) alpha^r (Y_c^(r) - L_c), where Y^(r) is constant from r = D on
    and L_c = Y_c^(D) (docs/mathematics.md C3). Made by `ConstantSets.of`.
    """

    def __init__(self, view: DecidedLayer) -> None:
        self.view = view
        self.open: list[int] = view.searched.tolist()
        self._stepped: list[int] = view.stepped.tolist()
        self._powers: dict[int, list[Exact]] = {
            c: [[Fraction(x) for x in view.point(c)]] for c in self._stepped
        }
        self._depth = 0  # D

    @classmethod
    def of(cls, view: DecidedLayer) -> ConstantSets | None:
        """None when the Y^(r) do not become constant within the number of stepped classes.

        That happens when a class outside the fixed set follows itself; there is no verdict then.
        Classes in closed form are constant from r = 1 on, so one equality after that is for ever.
        """
        future = cls(view)
        for r in range(len(future._stepped) + 2):
            new = {c: view.mean(c, partial(future.y, r=r)) for c in future._stepped}
            if r >= 1 and all(new[c] == future._powers[c][-1] for c in future._stepped):
                future._depth = r
                return future
            for c in future._stepped:
                future._powers[c].append(new[c])
        return None

    def y(self, c: int, r: int) -> Exact:
        """Y_c^(r); settled classes move to the mean of their final set, leaders stay."""
        if c in self._powers:
            return self._powers[c][min(r, len(self._powers[c]) - 1)]
        if r == 0 or self.view.stays(c):
            return [Fraction(x) for x in self.view.point(c)]
        return self.view.mean(c)

    def end(self, c: int) -> list[Fraction]:
        """L_c, the limit of class c if the sets stay, as rationals (no longer over `scale`)."""
        scale = self.view.scale
        return [x / scale for x in self.y(c, self._depth)]

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
        for r in range(self._depth + 1):
            x = self.y(c, r)
            _, top = self.view.face(x)
            ax = self.view.image(x)
            for j in self.view.following(c):
                if any(product(ax, self.y(j, q)) != top for q in range(self._depth + 1)):
                    return False
        return True

    def hulls(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each open class, float rows whose hulls hold it and a class it follows, for ever."""
        scale = self.view.scale

        def rows(c: int, depth: int) -> np.ndarray:
            exact = (self.y(c, r) for r in range(depth + 1))
            return np.array([[float(Fraction(x) / scale) for x in y] for y in exact])

        return [
            (rows(c, self._depth), rows(self.view.following(c)[0], self._depth + 1))
            for c in self.open
        ]

    def first_change(self, keys: Iterable[int], limit: int) -> tuple[int | None, bool]:
        """(first s in 1..limit at which a set changes or None, whether None is proved for ever).

        Only `keys` are looked at: every member of an open set, and every class that may enter one.
        """
        motions = {c: self._motion(c) for c in keys}
        proved, first = True, None
        for c in self.open:
            members = list(self.view.following(c))
            for j in motions:
                if j == members[0]:
                    continue
                f = self._difference(motions[c], motions[members[0]], motions[j])
                change: int | None
                if j not in members:
                    change, sure = f.first_nonpositive(limit if first is None else first)
                    proved = proved and (sure or first is not None)
                else:
                    change = None if f.zero else f.first_nonzero()
                if change is not None:
                    first = change if first is None else min(first, change)
        return first, proved

    def _motion(self, c: int) -> Motion:
        depth = self._depth + 1
        end = self.y(c, depth)
        powers = [[Fraction(0)] * len(end) for _ in range(depth)]
        basis = [Fraction(1)]  # binom(s, r) as a polynomial in s
        for r in range(depth):
            delta = [a - b for a, b in zip(self.y(c, r), end, strict=True)]
            step = self.view.alpha**r
            for power, coefficient in enumerate(basis):
                for i, x in enumerate(delta):
                    powers[power][i] += coefficient * step * x
            raised = [Fraction(0)] * (len(basis) + 1)
            for power, coefficient in enumerate(basis):  # times (s - r) / (r + 1)
                raised[power] += -Fraction(r, r + 1) * coefficient
                raised[power + 1] += Fraction(1, r + 1) * coefficient
            basis = raised
        return Motion(end, powers)

    def _difference(self, i: Motion, best: Motion, other: Motion) -> Exponomial:
        """<A z_i(s), z_best(s) - z_other(s)> as an exponential polynomial in s."""
        limit, poly = self.view.image(i.limit), [self.view.image(x) for x in i.powers]
        gap = [a - b for a, b in zip(best.limit, other.limit, strict=True)]
        wiggle = [
            [a - b for a, b in zip(x, y, strict=True)]
            for x, y in zip(best.powers, other.powers, strict=True)
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
        factor = lcm(*(x.denominator for c in self._stepped for y in self._powers[c] for x in y))
        for c in self._stepped:
            end = self.y(c, self._depth)
            total = [factor * (p + q) ** s * x for x in end]
            for r in range(min(self._depth, s + 1)):
                weight = factor * comb(s, r) * q ** (s - r) * p**r
                total = [
                    t + weight * (a - b) for t, a, b in zip(total, self.y(c, r), end, strict=True)
                ]
            values[c] = tuple(int(t) for t in total)
        return factor, values
