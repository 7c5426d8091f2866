"""Proofs that a token's sets will never change again, in exact arithmetic (docs/mathematics.md C6,
C7).

Every rule reads one layer of a `Walk` whose sets have been decided: exact tokens z_c, sets C_c, and
the exact face of the hull exposed by a vector.

* fixed and G: tokens that are the mean of their own tied set, and tokens tied between such.
* H: each token i has a finite set W_i whose hull it never leaves while the sets are constant; every
  y in W_j, j in C_i, attains max_l <A x, z_l> for every x in W_i. Checked token by token: the proof
  for i needs only the sets of the tokens that i leads to.
* T: while the sets are constant every score difference is an exponential sum; its sign is decided
  for all s >= 1, which either proves the sets constant for ever or gives the exact layer at which
  the first one changes.

All four hold for any square matrix A and any pattern of sets: the proofs use only that the hulls
K_k shrink.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from .budget import Budget, price
from .exponentials import ExponentialSum, Part, first_nonpositive, first_nonzero, parts_of
from .kernels.exact import Exact, Vector, dot, matvec, product
from .patterns import Motion, Pattern, components, ends, motions

if TYPE_CHECKING:
    from .walk import Walk

RULES = ("", "leader", "S", "G", "fixed", "H", "T")  # how a token was settled
OPEN, LEADER, S, G, FIXED, H, T = range(7)
RULE_WORDS = {  # the same for people
    "": "undecided",
    "leader": "leads",
    "S": "follows a leader",
    "G": "tied, moves to a fixed mean",
    "fixed": "stays where it is",
    "H": "always tied, proved by hulls",
    "T": "always tied, proved by signs",
}


def fixed_ties(view: Walk, tied: list[int]) -> Iterator[tuple[int, int, Exact]]:
    """The classes of `tied` (all with |C_c| > 1) that rules `fixed` and G settle; limits by scale.

    F is the largest set of tokens with m_i = z_i and C_i in F: it never moves. A token outside F is
    settled with limit u = m_i when C_i lies in F, <Au, z_j> = |u|_A^2 on C_i and <Au, z_l> <=
    |u|_A^2 for all l: z_i then moves straight to u, exposing that face (docs/mathematics.md C6).
    Where A z = 0 for every token, all follow all, and G settles them towards the mean of all.
    """
    if view.indifferent:
        u = view.mean(tied[0])  # one for all, at every layer
        yield from ((c, FIXED if tuple(u) == view.point(c) else G, u) for c in tied)
        return
    means = {c: view.mean(c) for c in tied}
    fixed = {c for c in tied if tuple(means[c]) == view.point(c)}

    def stays(j: int) -> bool:
        return j in fixed or view.stays(j)

    while loose := {c for c in fixed if not all(map(stays, view.following(c)))}:
        fixed -= loose
    for c in tied:
        u, members = means[c], view.following(c)
        if c in fixed:
            yield c, FIXED, u
        elif all(map(stays, members)):
            face, top = view.face(u)
            if top == product(view.image(u), u) and set(members) <= set(face):
                yield c, G, u


Place: TypeAlias = tuple[Fraction, ...]


class WholeMotion(NamedTuple):
    """A motion with whole coefficients: z(s) = sum of base^s s^power vector, over `denominator`."""

    denominator: int
    terms: list[tuple[Fraction, int, Vector]]
    bits: int

    @classmethod
    def of(cls, motion: Motion) -> WholeMotion:
        rows = [(b, power, row) for b, rows in motion.items() for power, row in enumerate(rows)]
        common = lcm(*(x.denominator for _, _, row in rows for x in row))
        return cls.with_bits(
            common,
            [(b, power, tuple(int(x * common) for x in row)) for b, power, row in rows if any(row)],
        )

    @classmethod
    def with_bits(cls, denominator: int, terms: list[tuple[Fraction, int, Vector]]) -> WholeMotion:
        longest = max((abs(x).bit_length() for *_, row in terms for x in row), default=0)
        return cls(denominator, terms, longest)


@final
class ConstantSets:
    """The future of the open classes if no set changes again (docs/mathematics.md C3, C7).

    Rule H asks for W_c, places whose hull class c never leaves (`hull`); rule T for its motion.
    """

    def __init__(self, view: Walk) -> None:
        self.view = view
        self.open: list[int] = view.searched.tolist()
        self._stepped: list[int] = view.stepped.tolist()
        count, shares = view.count, {}
        for c in self._stepped:
            members = view.following(c)
            total = sum(count[j] for j in members)
            shares[c] = {j: Fraction(count[j], total) for j in members}
        view.budget.spend(sum(map(len, shares.values())))
        self._pattern = Pattern(shares, view.alpha)
        self._depth: dict[int, int | None] = {}  # Y_c is constant from there on; None: a ring
        for ring in components(self._pattern):
            below = [self._depth_of(j) for j in shares[ring[0]]]
            alone = len(ring) == 1 and ring[0] not in shares[ring[0]]
            deepest = None if None in below else 1 + max(x for x in below if x is not None)
            self._depth |= {c: deepest if alone else None for c in ring}
        self._powers: dict[tuple[int, int], Exact] = {}
        self._hulls: dict[int, frozenset[Place]] = {}
        self._reaches: dict[int, frozenset[int]] = {}
        self._places_of: dict[frozenset[int], frozenset[Place]] = {}

    def _depth_of(self, c: int) -> int | None:
        return self._depth.get(c, 0 if self.view.stays(c) else 1)

    def end(self, c: int) -> list[Fraction]:
        """L_c, the limit of class c if the sets stay, as rationals (no longer over `scale`)."""
        scale = self.view.scale
        return [x / scale for x in self._ends[c]]

    @cached_property
    def _ends(self) -> dict[int, list[Fraction]]:
        return ends(self._pattern, self.view.point, self._target)

    def _target(self, c: int) -> list[Fraction]:
        """Where a class in closed form goes."""
        view = self.view
        return [Fraction(x) for x in view.point(c)] if view.stays(c) else view.mean(c)

    # -- rule H -------------------------------------------------------------------------------

    def _y(self, c: int, r: int) -> Exact:
        """Y_c^(r) = (P^r z)_c of a class that leads to no ring."""
        key = c, min(r, self._depth_of(c) or 0)
        if key not in self._powers:
            self.view.budget.spend(10 * len(self._pattern.shares.get(c, ())) + 10)
            if key[1] == 0:
                value: Exact = [Fraction(x) for x in self.view.point(c)]
            elif c in self._depth:
                value = self.view.mean(c, lambda j: self._y(j, key[1] - 1))
            else:
                value = self._target(c)
            self._powers[key] = value
        return self._powers[key]

    def hull(self, c: int) -> frozenset[Place]:
        """W_c: the Y_c^(r), finitely many unless c leads to a ring; then where that ring may go."""
        if c not in self._hulls:
            depth = self._depth_of(c)
            if depth is None:
                self._hulls[c] = self._places(self._reached(c))
            else:
                self._hulls[c] = self._hull_of([self._y(c, r) for r in range(depth + 1)])
        return self._hulls[c]

    def _hull_of(self, rows: Sequence[Exact]) -> frozenset[Place]:
        self.view.budget.spend(20 * len(rows) * price(self.view.scale.bit_length()))
        return frozenset(tuple(map(Fraction, row)) for row in rows)

    def _reached(self, c: int) -> frozenset[int]:
        """The classes that c leads to, itself among them."""
        reached, waiting, looked = {c}, [c], 0
        while waiting:
            j = waiting.pop()
            if j in self._reaches:  # that of a class on the way is part of it
                reached |= self._reaches[j]
                continue
            row = self._pattern.shares.get(j, ())
            looked += len(row)
            waiting += [i for i in row if i not in reached]
            reached.update(row)
        self.view.budget.spend(looked + len(reached) // 10)
        self._reaches[c] = frozenset(reached)
        return self._reaches[c]

    def _places(self, classes: frozenset[int]) -> frozenset[Place]:
        """The places of the classes, and the limits of those in closed form."""
        if classes not in self._places_of:  # one and the same for all classes of a ring
            closed = [j for j in classes if j not in self._depth and not self.view.stays(j)]
            places = ([Fraction(x) for x in self.view.point(j)] for j in classes)
            rows = [*places, *(self._target(j) for j in closed)]
            self._places_of[classes] = self._hull_of(rows)
        return self._places_of[classes]

    def settled_by_h(self) -> list[int]:
        """The open classes whose sets certificate H proves constant, token by token."""
        verdicts: dict[tuple[frozenset[Place], frozenset[Place]], bool] = {}
        bad = set()
        for c in self.open:
            followed = frozenset().union(*(self.hull(j) for j in self.view.following(c)))
            key = self.hull(c), followed
            if key not in verdicts:
                verdicts[key] = self._holds_h(*key)
            if not verdicts[key]:
                bad.add(c)
        good = set(self.open) - bad
        while loose := {c for c in good if not bad.isdisjoint(self.view.following(c))}:
            good, bad = good - loose, bad | loose
        return sorted(good)

    def _holds_h(self, hull: frozenset[Place], followed: frozenset[Place]) -> bool:
        """Every place of `followed` attains max_l <A x, z_l>, for every x in `hull`."""
        cost = 40 + 10 * price(self.view.scale.bit_length())
        for x in hull:
            _, top = self.view.face(x)
            ax = self.view.image(x)
            for y in followed:
                self.view.budget.spend(cost)
                if product(ax, y) != top:
                    return False
        return True

    # -- rule T -------------------------------------------------------------------------------

    @cached_property
    def _motions(self) -> dict[int, Motion]:
        return motions(self._pattern, self.view.point, self._closed_motion)

    def _closed_motion(self, c: int) -> Motion:
        now, end = self.view.point(c), self._target(c)
        away = [x - y for x, y in zip(now, end, strict=True)]
        return {Fraction(1): [end], self._pattern.rho: [away]}

    @property
    def solvable(self) -> bool:
        """True when every moving class has a motion with rational bases."""
        price_of_all = sum(len(row) for row in self._pattern.shares.values())
        self.view.budget.spend(100 * price_of_all * price(self.view.scale.bit_length()))
        return len(self._motions) == len(self._stepped)

    def first_change(self, limit: int) -> tuple[int | None, bool]:
        """(first s in 1..limit at which a set changes or None, whether None is proved for ever)."""
        view, scores = self.view, Scores(self.view.matrix(), self.view.budget)
        whole: dict[int, WholeMotion] = {}

        def motion(c: int) -> WholeMotion:
            if c not in whole:
                of = self._motions
                whole[c] = WholeMotion.of(of[c] if c in of else self._closed_motion(c))
            return whole[c]

        proved, first = True, None
        for c in self.open:
            members = list(view.following(c))
            query, best = scores.query(motion(c)), motion(members[0])
            top = scores.product(query, best)
            rivals = view.reaching([*self.hull(c)], [*self.hull(members[0])])
            for j in sorted({*members, *rivals} - {members[0]}):
                f = scores.difference(top, best, scores.product(query, motion(j)), motion(j))
                if j in members:
                    change, sure = first_nonzero(f, view.budget), True
                else:
                    room = limit if first is None else first - 1
                    change, sure = first_nonpositive(f, room, view.budget)
                if change is not None and change <= limit:
                    first = change if first is None else min(first, change)
                    if first == 1:
                        return 1, True
                proved = proved and sure and (change is None or change <= limit)
        return first, proved

    def after(self, s: int) -> tuple[int, dict[int, Vector]]:
        """Tie factor and exact values of the stepped classes s layers on, if their sets stay.

        With D a common denominator of the bases, a multiple of p + q, the values are integers over
        scale D^s common: the new scale with (D / (p + q))^s common as tie factor.
        """
        whole = {c: WholeMotion.of(self._motions[c]) for c in self._stepped}
        total = self.view.alpha.numerator + self.view.alpha.denominator
        D = lcm(total, *(b.denominator for m in whole.values() for b, *_ in m.terms))
        common = lcm(*(m.denominator for m in whole.values()))
        powers: dict[Fraction, int] = {}
        values = {}
        for c, motion in whole.items():
            out = [0] * len(self.view.point(c))
            for b, power, row in motion.terms:
                self.view.budget.spend(len(row) * price(s * D.bit_length()))
                if b not in powers:
                    powers[b] = int(b * D) ** s
                weight = powers[b] * s**power * (common // motion.denominator)
                out = [x + weight * y for x, y in zip(out, row, strict=True)]
            values[c] = tuple(out)
        return (D // total) ** s * common, values


Coefficients: TypeAlias = dict[tuple[int, int], int]  # (number of the base, power of s) -> ...


@final
class Scores:
    """Products of motions, as exponential sums over numbered bases."""

    def __init__(self, A: list[Vector] | None, budget: Budget) -> None:
        self._A, self._budget = A, budget
        self._bases: list[Fraction] = []
        self._number: dict[Fraction, int] = {}
        self._times: dict[tuple[int, int], int] = {}
        self._known: dict[int, tuple[WholeMotion, list[tuple[int, int, Vector]]]] = {}
        self._whole: list[int] = []  # the bases times a common denominator

    def _number_of(self, b: Fraction) -> int:
        if b not in self._number:
            self._number[b] = len(self._bases)
            self._bases.append(b)
        return self._number[b]

    def _numbered(self, motion: WholeMotion) -> list[tuple[int, int, Vector]]:
        if id(motion) not in self._known:  # the motion is kept too, so that no other has its id
            terms = [(self._number_of(b), power, row) for b, power, row in motion.terms]
            self._known[id(motion)] = motion, terms
        return self._known[id(motion)][1]

    def query(self, motion: WholeMotion) -> WholeMotion:
        """A z(s), up to a positive factor."""
        if self._A is None:
            return motion
        terms = [(b, power, matvec(self._A, x)) for b, power, x in motion.terms]
        return WholeMotion.with_bits(motion.denominator, terms)

    def product(self, query: WholeMotion, key: WholeMotion) -> Coefficients:
        """<query(s), key(s)> times the two denominators."""
        cost = 10 * price(max(query.bits, key.bits))
        self._budget.spend(50 + len(query.terms) * len(key.terms) * cost)
        out: Coefficients = defaultdict(int)
        keys, times = self._numbered(key), self._times
        for b, power, x in self._numbered(query):
            for e, other, y in keys:
                if (b, e) not in times:
                    times[b, e] = self._number_of(self._bases[b] * self._bases[e])
                out[times[b, e], power + other] += dot(x, y)
        return out

    def difference(
        self, best: Coefficients, of_best: WholeMotion, other: Coefficients, of_other: WholeMotion
    ) -> list[Part]:
        """best - other as a function of s, up to a positive factor."""
        terms: dict[int, list[int]] = {}
        for scores, factor in ((best, of_other.denominator), (other, -of_best.denominator)):
            for (b, power), x in scores.items():
                row = terms.setdefault(b, [])
                if len(row) <= power:
                    row += [0] * (power + 1 - len(row))
                row[power] += x * factor
        self._budget.spend(50 + 2 * len(best) * price(of_best.bits + of_other.bits))
        if any(self._bases[b] <= 0 for b in terms):
            return parts_of({self._bases[b]: [*map(Fraction, row)] for b, row in terms.items()})
        if len(self._whole) < len(self._bases):
            common = lcm(*(b.denominator for b in self._bases))
            self._whole = [int(b * common) for b in self._bases]
        order = sorted(terms, key=self._whole.__getitem__, reverse=True)
        return [Part(1, 0, ExponentialSum.whole({self._whole[b]: terms[b] for b in order}))]
