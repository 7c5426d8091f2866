"""The certified hardmax walk of one configuration: floats where they suffice, integers elsewhere.

    z_i' = z_i + eta (m_i - z_i),   m_i = mean of z_j over C_i,   eta = alpha / (1 + alpha)

The walk carries float64 tokens with a bound on their distance to the exact ones. A set C_i is
accepted from the floats when its best score beats every other by more than twice the bound on a
score; otherwise its candidates are compared in integers on the exact tokens (docs/mathematics.md
C8). So the sets are those of exact arithmetic on the given floats, at every layer.

A token with C_i = {l} and C_l = {l} leaves the search: z_i = z_l + rho^j (z_i - z_l) from then on.
So does a token tied between fixed tokens whose mean u supports the hull at u (docs/mathematics.md
C5, C6), for any square matrix A.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import final

import numpy as np

from .._types import Array, Rational
from . import kernels
from .budget import Budget, price
from .certificates import FIXED, LEADER, OPEN, H, S, T, fixed_ties
from .followed import ClassTable, Followed, History, Record
from .kernels import exact
from .kernels.exact import Exact, ExactPath, Vector
from .scaled import FloatTokens, ScaledTokens, moderate


@final
class Walk:
    """Layers of the hardmax transformer, one after another, for the tokens z0 of shape (n, d).

    `decide()` finds C_i of the classes still searched and settles what it can; `advance()` goes to
    the next layer `k`. `state()` and `history()` read the tokens and their past, `table()` what is
    proved about the classes. `rationals`, if given, are the exact tokens that z0 rounds, and every
    decision is then taken in integers over all classes: slow and obviously right. `gaps` asks for
    the smallest gap between best and next score. `budget` pays for exact arithmetic; a method that
    it does not suffice for raises `Exhausted` and changes nothing. `there`, if given, are the
    tokens z0 as a tensor, on whose device their floats then live and are searched.

    Units: integers and rationals are in the units of z0 and A, all of them. Floats are those of
    `ScaledTokens`, whose `rounded` and `original` are the only ways between the two.
    """

    def __init__(
        self,
        z0: np.ndarray,
        A: np.ndarray | None,
        alpha: Fraction,
        *,
        rationals: Sequence[Rational] | None = None,
        gaps: bool = False,
        budget: Budget | None = None,
        there: Array | None = None,
    ) -> None:
        self.k = 0
        self.alpha = alpha
        self.budget = budget or Budget()
        self.exact_decisions = 0
        self._gaps = gaps
        self._rationals: list[Rational] | None = None
        if rationals is None:
            self._label, self._first, self._count = kernels.classes(z0, there)
        else:
            seen: dict[Rational, int] = {}
            self._label = np.array([seen.setdefault(row, len(seen)) for row in rationals])
            self._first = np.unique(self._label, return_index=True)[1]
            self._count = np.bincount(self._label)
            self._rationals = list(seen)
        self._start = z0 if len(self._first) == len(z0) else z0[self._first]
        self._A = A
        self._floats = self._tokens(there)
        m = len(self._start)
        self._born, self._settled_at, self._leader = (np.full(m, -1) for _ in range(3))
        self._rule = np.full(m, OPEN, dtype=np.int8)
        self._gap = np.full(m, np.inf)
        self._records: list[Record] = []
        self._searched = np.arange(m)
        self._moving = np.empty(0, dtype=np.intp)  # settled by H or T: sets known, still stepped
        self._ends: dict[int, list[Fraction]] = {}  # the limits of those
        self._small: tuple[int, np.ndarray | None, int] = (-1, None, 0)
        self._same = np.arange(m)  # leaders that met at one place: the first of them

    def _tokens(self, there: Array | None) -> FloatTokens:
        """The floats of the walk: on the device of `there` if their range allows it, or here."""
        if there is not None and self._rationals is None and moderate(self._start, self._A):
            from .gpu.tokens import DeviceTokens

            rows = there if len(self._first) == len(there) else there[self._first.tolist()]
            return DeviceTokens(rows, self._A, self.alpha)
        inexact = self._rationals is not None
        return ScaledTokens(self._start, self._A, self.alpha, inexact=inexact)

    @cached_property
    def _grid(self) -> bool:
        """True when the scores of layer 0 are exact in floats."""
        return self._A is None and self._rationals is None and exact.exact_in_floats(self._start)

    @property
    def scale(self) -> int:
        """The common denominator of exact positions at this layer, in the units of the tokens."""
        return self._path.scale(self.k)

    @property
    def count(self) -> Sequence[int]:
        """How many tokens each class holds."""
        return self._path.count

    @property
    def searched(self) -> np.ndarray:
        """The classes that are not settled: their sets are searched at every layer."""
        return self._searched

    @property
    def stepped(self) -> np.ndarray:
        """The classes without a closed form: those searched, then those settled by H or T."""
        return np.concatenate((self._searched, self._moving))

    def point(self, c: int) -> Vector:
        """z_c, integers over `scale`."""
        return self._path.at(c, self.k)

    def following(self, c: int) -> Sequence[int]:
        """C_c."""
        return self._sets(c, self.k)

    def mean(
        self, c: int, of: Callable[[int], Sequence[Fraction | int]] | None = None
    ) -> list[Fraction]:
        """The mean over C_c of `of(j)`, multiplicities counted; of z_j unless told: then m_c."""
        members = self.following(c)
        return exact.weighted_mean(
            [self.count[j] for j in members], [*map(of or self.point, members)]
        )

    def stays(self, c: int) -> bool:
        """Is class c proved never to move again: a leader, or settled as `fixed`?"""
        return bool(self._born[c] >= 0) or bool(self._rule[c] == FIXED)

    def image(self, x: Exact) -> Exact:
        """A x."""
        rows = self._A_exact[0]
        return x if rows is None else [exact.product(row, x) for row in rows]

    def matrix(self) -> list[Vector] | None:
        """A as integers over a common denominator; None for the identity."""
        return self._A_exact[0]

    def face(self, x: Exact) -> tuple[list[int], Fraction]:
        """The classes that maximise <A x, .> and the maximum; x over `scale`."""
        row = np.array([self._floats.rounded(x, self.scale)])
        near = self._everyone(1) or self._floats.candidates(row, runner_up=self._gaps)
        (ints,), common = exact.integers([x])
        query = exact.matvec(self._A_exact[0], ints)
        best, value, _ = self._maximisers(query, near.indices.tolist())
        return best, Fraction(value, common)

    def reaching(self, x: Sequence[Exact], y: Sequence[Exact]) -> Sequence[int]:
        """The classes whose scores may ever come up to those of a followed class.

        The follower never leaves the hull of x, the followed never that of y, vectors over `scale`;
        classes without a closed form are always among them.
        """
        scale = self.scale
        rows = [np.array([self._floats.rounded(v, scale) for v in w]) for w in (x, y)]
        near = self._floats.reaching(*rows)
        near[self.stepped] = True
        return np.flatnonzero(near).tolist()

    def _maximisers(self, query: Vector, classes: Sequence[int]) -> tuple[list[int], int, int]:
        """Which of the classes maximise <query, .>, the maximum, the distance of the next."""
        if self._rationals is not None and len(classes) == len(self._start):
            rows, most = self._small_points()
            if rows is not None and max(map(abs, query)) * len(query) < 2**62 >> most:
                self.budget.spend(len(classes) // 50 + 20)
                return exact.largest_of(rows @ np.array(query, dtype=np.int64))
        keys = [(j, self.point(j)) for j in classes]
        bits = max(x.bit_length() for x in query), self.scale.bit_length()
        self.budget.spend(len(keys) * (15 + len(query) * (1 + price(*bits))))
        return exact.maximisers(query, keys)

    def _small_points(self) -> tuple[np.ndarray | None, int]:
        """All points of this layer as 64-bit integers, where they are small, and their bits."""
        if self._small[0] != self.k:
            points = [self.point(c) for c in range(len(self._start))]
            bits = max(x.bit_length() for row in points for x in row)
            self._small = self.k, np.array(points, dtype=np.int64) if bits < 40 else None, bits
        return self._small[1:]

    @cached_property
    def _path(self) -> ExactPath:
        """The same trajectory in integers, on demand."""
        count = self._count.tolist()
        rest = (self.alpha, self._sets, self._approached, lambda units: self.budget.spend(units))
        if self._rationals is not None:
            rows, scale = exact.integers(self._rationals)
            return ExactPath(rows.__getitem__, scale, count, *rest)
        start = self._start
        scale = 2 ** max(53 - int(np.frexp(start[start != 0])[1].min(initial=0)), 0)

        def first_layer(c: int) -> Vector:
            ratios = (x.as_integer_ratio() for x in start[c].tolist())
            return tuple(a * (scale // b) for a, b in ratios)

        return ExactPath(first_layer, scale, count, *rest)

    def _approached(self, c: int) -> tuple[int, Sequence[int]] | None:
        """Since when, and to the mean of which classes, class c tends in closed form."""
        layer = int(self._settled_at[c])
        if layer < 0 or self._rule[c] in (H, T):
            return None
        return layer, [c] if self._rule[c] == LEADER else self._sets(c, layer)

    @cached_property
    def _A_exact(self) -> tuple[list[Vector] | None, int]:
        """Integer rows of A (None for the identity) and their denominator."""
        if self._A is None:
            return None, 1
        return exact.integers([[Fraction(x) for x in row] for row in self._A.tolist()])

    def _sets(self, c: int, k: int) -> Sequence[int]:
        """C_c at layer k."""
        settled_at = int(self._settled_at[c])  # its last record, since nobody is searched later
        last = k if settled_at < 0 else min(k, settled_at)
        record = self._records[bisect_right(self._records, last, key=lambda r: r.layer) - 1]
        members = record.of(c)
        assert members is not None, f"class {c} was not searched at layer {record.layer}"
        return members.tolist()

    def _everyone(self, rows: int) -> kernels.Candidates | None:
        """All classes as candidates of each row, where every decision is taken in integers."""
        if self._rationals is None:
            return None
        m = len(self._start)
        return kernels.Candidates(
            best=np.zeros(rows, dtype=np.intp),
            indptr=np.arange(rows + 1) * m,
            indices=np.tile(np.arange(m), rows),
            gap=np.full(rows, np.inf),
        )

    def _find(self) -> Record:
        """C_c of every class still searched, at the current layer."""
        self._floats.refresh(self.k)
        ids = self._searched
        near = self._everyone(len(ids)) or self._floats.search(ids, runner_up=self._gaps)
        if len(near.gap):
            self._gap[ids] = np.minimum(self._gap[ids], near.gap)
        return Record(self.k, ids, *self._decide_ties(ids, near))

    def _decide_ties(
        self, ids: np.ndarray, near: kernels.Candidates
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replace every candidate row of more than one class by its exact maximisers."""
        width = np.diff(near.indptr)
        if (width == 1).all():
            return near.indptr, near.indices
        if self._grid and self.k == 0:  # dot products are exact: no integers needed
            rows = np.repeat(np.arange(len(ids)), width)
            z = self._start
            score = np.einsum("ij,ij->i", z[ids][rows], z[near.indices])
            best = score == np.maximum.reduceat(score, near.indptr[:-1])[rows]
            sizes = np.bincount(rows[best], minlength=len(ids))
            return np.concatenate(([0], np.cumsum(sizes))), near.indices[best]
        keep = np.ones(len(near.indices), dtype=bool)
        tied = np.flatnonzero(width > 1)
        if self._A is not None and (self.k == 0 or not self._A.any()):  # queries that are 0 tie
            z = self._start[ids[tied]]
            tied = tied[((z != 0).astype(float) @ (self._A != 0).astype(float).T).any(axis=1)]
        for row in tied:
            c = int(ids[row])
            query = exact.matvec(self._A_exact[0], self.point(c))
            if not any(query):  # all scores are 0, and every class is a candidate
                continue
            span = slice(near.indptr[row], near.indptr[row + 1])
            members, _, gap = self._maximisers(query, near.indices[span].tolist())
            if gap > 0:
                unit = self.scale**2 * self._A_exact[1]
                self._gap[c] = min(self._gap[c], self._floats.rounded_gap(gap, unit))
            keep[span] = np.isin(near.indices[span], members)
            self.exact_decisions += 1
        kept = np.add.reduceat(keep, near.indptr[:-1], dtype=np.intp)
        return np.concatenate(([0], np.cumsum(kept))), near.indices[keep]

    def decide(self) -> None:
        """Find C_c of every class still searched; settle leaders, their followers, fixed ties."""
        if self._records and self._records[-1].layer == self.k:
            return
        record = self._find()
        ids = record.ids
        width = np.diff(record.indptr)
        single = np.flatnonzero(width == 1)
        several = {int(ids[row]): record.row(int(row)) for row in np.flatnonzero(width > 1)}
        met = {c: members for c, members in several.items() if self._at_one_place(c, members)}
        self._records.append(record)
        for c, members in met.items():
            self._same[c] = first = int(members.min())
            self._born[c] = self.k
            self._mark(np.array([c]), LEADER, first)
        target = record.indices[record.indptr[single]]
        own = target == ids[single]
        leaders = ids[single[own]]
        self._born[leaders] = self.k
        self._mark(leaders, LEADER, leaders)
        sure = ~own & (self._born[target] >= 0)
        self._follow(ids[single[sure]], S, self._floats.rows(target[sure]), target[sure])
        tied = []
        for c, members in several.items():
            if c in met:
                continue
            if (self._born[members] >= 0).all() and len(set(self._same[members].tolist())) == 1:
                leader = int(self._same[members[0]])
                self._follow(np.array([c]), S, self._floats.rows(np.array([leader])), leader)
            else:
                tied.append(c)
        self._searched = ids[self._settled_at[ids] < 0]
        if tied:
            for c, rule, limit in list(fixed_ties(self, tied)):
                row = self._floats.rounded(limit, self.scale)
                self._follow(np.array([c]), rule, np.array([row]), -1)
            self._searched = ids[self._settled_at[ids] < 0]

    @cached_property
    def indifferent(self) -> bool:
        """True when A z = 0 for every token: each follows all, at every layer."""
        if self._A is None:
            return False
        rows = self._start if self._rationals is None else np.array(self._rationals)
        return not ((rows != 0).any(axis=0) & (self._A != 0).any(axis=0)).any()

    def _at_one_place(self, c: int, members: np.ndarray) -> bool:
        """True when C_c are classes that have met exactly where c is: together they lead."""
        if self.k == 0 or c not in members:
            return False
        if len(self._floats.near(c, members)) < len(members):
            return False
        place = self.point(c)
        return all(self.point(j) == place for j in members.tolist())

    def _mark(self, ids: np.ndarray, rule: int, leader: np.ndarray | int) -> None:
        self._settled_at[ids] = self.k
        self._rule[ids] = rule
        self._leader[ids] = leader

    def _follow(self, ids: np.ndarray, rule: int, limits: Array, leader: np.ndarray | int) -> None:
        """From this layer on the classes `ids` approach `limits` (float rows) geometrically."""
        if len(ids):
            self._mark(ids, rule, leader)
            self._floats.approach(self.k, ids, limits)

    @property
    def settled(self) -> bool:
        """True once every token's future is known."""
        return len(self._searched) == 0

    @property
    def tied(self) -> bool:
        """True when a class still searched follows several."""
        record = self._records[-1]
        return bool((self._settled_at[record.ids[np.diff(record.indptr) > 1]] < 0).any())

    @property
    def unchanged(self) -> bool:
        """True when the last two layers searched the same classes and found the same sets."""
        if len(self._records) < 2:
            return False
        before, now = self._records[-2:]
        return all(map(np.array_equal, before[1:], now[1:]))

    def settle(self, ends: Mapping[int, list[Fraction]], rule: int) -> None:
        """The sets of the classes in `ends`, class -> limit, are proved constant from here on.

        Their limits are exact. The classes are no longer searched, but still stepped.
        """
        self._ends |= ends
        ids = np.array(list(ends), dtype=np.intp)
        self._mark(ids, rule, -1)
        self._moving = np.concatenate((self._moving, ids))
        self._searched = self._searched[self._settled_at[self._searched] < 0]

    def advance(self) -> None:
        """Go to the next layer."""
        if self.settled and len(self._moving) == 0:
            self.k += 1
            return
        if not self.settled:
            self.decide()
        self._floats.refresh(self.k)
        self._step()
        self.k += 1

    def skip(self, k: int) -> None:
        """Go to layer k at once, once everything moves by a closed form."""
        if not self.settled or len(self._moving):
            raise ValueError("some tokens are still searched; advance() layer by layer")
        self.k = k

    def jump(self, k: int, factor: int, values: dict[int, Vector]) -> None:
        """Arrive at layer k, the sets having been proved constant until then.

        `values` are the stepped classes there, integers over the scale with the tie factor in it.
        """
        record = self._records[-1]  # classes tied until now enter the common denominator too
        tied = [record.row(int(row)) for row in np.flatnonzero(np.diff(record.indptr) > 1)]
        more = lcm(*(int(self._count[members].sum()) for members in tied))
        values = {c: tuple(more * x for x in w) for c, w in values.items()}
        self._path.jump(k, more * factor, values)
        scale = self._path.scale(k)
        self._floats.jump(
            k - self.k, {c: self._floats.rounded(w, scale) for c, w in values.items()}
        )
        self.k = k

    def _step(self) -> None:
        """Move the classes without a closed form by their sets."""
        record = self._records[-1]
        if record.layer != self.k:  # nothing is searched any more, only `moving` is left
            record = Record(self.k, self._searched, np.zeros(1, dtype=np.intp), self._searched)
        width = np.diff(record.indptr)
        tied = record.ids[width > 1].tolist()  # those that have just settled count in the factor
        several = {c: self.following(c) for c in [*tied, *self._moving.tolist()]}
        totals = [int(self._count[s].sum()) for s in several.values() if len(s) > 1]
        if totals:
            self._path.factor[self.k + 1] = lcm(*totals)
        single = np.flatnonzero((width == 1) & (self._settled_at[record.ids] < 0))
        stepped = [c for c in several if self._settled_at[c] < 0 or self._rule[c] in (H, T)]
        ids = np.concatenate((record.ids[single], np.array(stepped, dtype=np.intp)))
        targets = record.indices[record.indptr[single]]
        sets = [np.asarray(several[c]) for c in stepped]
        widest = max((len(s) for s in several.values()), default=1)
        self._floats.step(ids, targets, [(s, self._count[s]) for s in sets], widest)

    def state(self) -> Array:
        """Tokens at the current layer, shape (n, d), in the units of z0."""
        self._floats.refresh(self.k)
        everyone = len(self._first) == len(self._label)
        return self._floats.state(None if everyone else self._label)

    def followed(self) -> Followed:
        """The sets C_i of the tokens z0, before the walk has gone anywhere."""
        record = self._records[0] if self._records else self._find()
        return Followed(self._label, record.indptr, record.indices)

    def history(self) -> History:
        """Everything decided so far, at the level of tokens."""
        lead = self._leader[self._label]
        return History(
            born=self._born[self._label],
            settled_at=self._settled_at[self._label],
            leader=np.where(lead >= 0, self._first[lead], -1),
            exact_decisions=self.exact_decisions,
            label=self._label,
            records=tuple(self._records),
            same=self._same if (self._same != np.arange(len(self._same))).any() else None,
        )

    def table(self) -> ClassTable:
        """Everything proved so far, at the level of classes, whatever is left of the budget."""
        self.budget = Budget()
        self._floats.refresh(self.k)
        ends = self._floats.ends()
        asked = self._ends if self._rationals is None else range(len(ends))
        exact_ends = {c: self._end(c) for c in asked}
        for c, end in exact_ends.items():
            ends[c] = [float(x) for x in end]
        leader = self._leader.copy()
        for c, at in self._at_leaders().items():
            leader[c] = at
        led = leader >= 0
        ends[led] = ends[leader[led]]  # to the last bit
        return ClassTable(
            label=self._label,
            first=self._first,
            born=self._born,
            settled_at=self._settled_at,
            leader=leader,
            rule=self._rule,
            margin=self._floats.original_gap(self._gap),
            ends=ends,
            exact_ends=None if self._rationals is None else list(exact_ends.values()),
        )

    def _at_leaders(self) -> dict[int, int]:
        """Which classes settled by H or T tend to the place of a leader, and to which."""
        if not self._ends:
            return {}
        scale = self.scale
        places = {
            tuple(Fraction(x, scale) for x in self.point(c)): c
            for c in np.flatnonzero(self._leader == np.arange(len(self._leader))).tolist()
        }
        return {c: places[tuple(end)] for c, end in self._ends.items() if tuple(end) in places}

    def _end(self, c: int) -> list[Fraction]:
        """The exact limit of class c; where an open one is now."""
        if c in self._ends:
            return self._ends[c]
        scale = self.scale
        if self._settled_at[c] < 0 or self.stays(c):
            return [Fraction(x, scale) for x in self.point(c)]
        return [x / scale for x in self.mean(c)]
