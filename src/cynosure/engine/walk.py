"""The certified hardmax walk of one configuration: floats where they suffice, integers elsewhere.

    z_i' = z_i + eta (m_i - z_i),   m_i = mean of z_j over C_i,   eta = alpha / (1 + alpha)

The walk carries float64 tokens with a bound on their distance to the exact ones. A set C_i is
accepted from the floats when its best score beats every other by more than twice the bound on a
score; otherwise its candidates are compared in integers on the exact tokens (docs/mathematics.md
C8). So the sets are those of exact arithmetic on the given floats, at every layer.

Two facts make long walks cheap (docs/mathematics.md C5, C6). A token with C_i = {l} and C_l = {l}
follows the leader l for ever: it leaves the search, and from then on z_i = z_l + rho^j (z_i - z_l)
in closed form. So does a token tied between fixed tokens whose mean u supports the hull at u.
Both hold for any square matrix A: their proofs use only that hulls shrink.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import final

import numpy as np

from .._types import Rational
from . import kernels
from .certificates import LEADER, OPEN, DecidedLayer, H, S, T, fixed_ties
from .followed import History, Record
from .kernels.exact import ExactPath, Vector, exact_in_floats, integers, matvec, maximisers

__all__ = ["AllKeys", "FloatFilter", "Search", "Walk"]

_U = 2.0**-53


def _norms(z: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", z, z))


class Search(abc.ABC):
    """How a walk narrows down who can be followed before integers decide."""

    @abc.abstractmethod
    def candidates(self, walk: Walk, queries: np.ndarray) -> kernels.Candidates:
        """For each float query row, a superset of the exact maximisers among the classes."""


@final
class AllKeys(Search):
    """No filter: every decision is taken in integers over all classes. Slow and obviously right."""

    def candidates(self, walk: Walk, queries: np.ndarray) -> kernels.Candidates:
        nq, m = len(queries), len(walk.z)
        return kernels.Candidates(
            best=np.zeros(nq, dtype=np.intp),
            indptr=np.arange(nq + 1) * m,
            indices=np.tile(np.arange(m), nq),
            gap=np.full(nq, np.inf),
        )


@final
class FloatFilter(Search):
    """Float64 scores with a proven error bound; only what lies inside it goes to integers."""

    def candidates(self, walk: Walk, queries: np.ndarray) -> kernels.Candidates:
        slack = 2.0 * (1.0 + 1e-9) * walk.score_error(_norms(queries))
        query = np.ascontiguousarray(queries if walk.A is None else queries @ walk.A.T)
        return kernels.candidates(query, walk.z, slack, runner_up=walk.gaps)


@final
class Walk(DecidedLayer):
    """Layers of the hardmax transformer, one after another, for the tokens z0 of shape (n, d).

    `decide()` finds C_i of the classes still searched and settles what it can; `advance()` goes to
    the next layer. Class-level arrays: `z` (scaled by 2^-shift), `born`, `settled_at`, `leader`,
    `rule`, `gap`. `label` maps tokens to classes.
    """

    def __init__(
        self,
        z0: np.ndarray,
        A: np.ndarray | None,
        alpha: Fraction,
        *,
        search: Search | None = None,
        rationals: Sequence[Rational] | None = None,
        gaps: bool = False,
    ) -> None:
        self.search: Search = FloatFilter() if search is None else search
        self.gaps = gaps
        if rationals is None:
            self.label, first, self.count = kernels.classes(z0)
            self._rationals = None
        else:
            seen: dict[Rational, int] = {}
            self.label = np.array([seen.setdefault(row, len(seen)) for row in rationals])
            self.count = np.bincount(self.label)
            first = np.unique(self.label, return_index=True)[1]
            self._rationals = list(seen)
        self.first = first
        # a power of two brings the largest coordinate to [1/2, 1): exact, and nothing overflows
        self.shift = int(np.frexp(max(z0.max(), -z0.min()))[1])
        self.start = z0 if len(first) == len(z0) else z0[first]
        self.z = np.ldexp(self.start, -self.shift)
        self.A_given = A
        self.A_shift = 0 if A is None else int(np.frexp(np.abs(A).max())[1])
        self.A = None if A is None else np.ldexp(A, -self.A_shift)
        self.alpha = alpha
        self.rho, self.eta = float(1 / (1 + alpha)), float(alpha / (1 + alpha))
        self.k = 0
        m = len(self.z)
        self.born = np.full(m, -1)
        self.settled_at = np.full(m, -1)
        self.leader = np.full(m, -1)  # class of the leader it settled on
        self.rule = np.full(m, OPEN, dtype=np.int8)  # index into RULES
        self.gap = np.full(m, np.inf)
        self.records: list[Record] = []
        self.exact_decisions = 0
        self._error = 0.0  # bound on the coordinates of z - exact z
        self._size = 1.0  # bound on the coordinates of z, which stay in the hull of layer 0
        self.radius = float(_norms(self.z).max()) * (1 + 1e-12)
        self.form_norm = 1.0 if self.A is None else float(np.linalg.norm(self.A)) * (1 + 1e-12)
        self._grid = A is None and rationals is None and exact_in_floats(self.z)
        # classes in closed form: (layer they settled at, ids, their limits, offsets from them)
        self.closed: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
        self._fresh = 0  # the layer for which the closed-form rows of z are up to date
        self.active = np.arange(m)  # classes still searched
        self.moving = np.empty(0, dtype=np.intp)  # settled by H or T: sets known, still stepped
        self.ends: dict[int, list[Fraction]] = {}  # their limits, scaled like z

    # -- exact side ---------------------------------------------------------------------------

    @cached_property
    def path(self) -> ExactPath:
        """The same trajectory in integers, on demand."""
        count = self.count.tolist()
        if self._rationals is not None:
            rows, scale = integers(self._rationals)
            return ExactPath(rows.__getitem__, scale, count, self.alpha, self.sets, self._settled)
        start = np.ldexp(self.start, -self.shift)
        nonzero = start[start != 0]
        scale = 2 ** max(53 - int(np.frexp(nonzero)[1].min(initial=0)), 0)

        def first_layer(c: int) -> Vector:
            ratios = (x.as_integer_ratio() for x in start[c].tolist())
            return tuple(a * (scale // b) for a, b in ratios)

        return ExactPath(first_layer, scale, count, self.alpha, self.sets, self._settled)

    def _settled(self, c: int) -> tuple[int, Sequence[int]] | None:
        """Since when, and to the mean of which classes, class c tends in closed form."""
        if self.settled_at[c] < 0 or self.rule[c] in (H, T):
            return None
        layer = int(self.settled_at[c])
        return layer, [c] if self.rule[c] == LEADER else self.sets(c, layer)

    @cached_property
    def A_exact(self) -> tuple[list[Vector] | None, int]:
        """Integer rows of the scaled A and their denominator."""
        if self.A is None:
            return None, 1
        return integers([[Fraction(x) for x in row] for row in self.A.tolist()])

    def sets(self, c: int, k: int) -> Sequence[int]:
        """C_c at layer k."""
        for record in reversed(self.records):
            if record.layer <= k and (found := record.of(c)) is not None:
                return found.tolist()
        raise LookupError(f"class {c} was not searched before layer {k}")

    def following(self, c: int) -> Sequence[int]:
        """C_c at the current layer, which must have been decided."""
        return self.sets(c, self.k)

    def face(self, x: Sequence[Fraction]) -> tuple[list[int], Fraction]:
        """The classes that maximise <A x, .> and the maximum, exactly; x over path.scale(k)."""
        scale, k = self.path.scale(self.k), self.k
        query = np.array([[float(v / scale) for v in x]])
        row = self.search.candidates(self, query)
        (ints,), common = integers([x])
        q = matvec(self.A_exact[0], ints)
        best, value, _ = maximisers(q, [(int(j), self.path.at(int(j), k)) for j in row.indices])
        return best, Fraction(value, common)

    # -- deciding -----------------------------------------------------------------------------

    def score_error(self, norms: np.ndarray) -> np.ndarray:
        """Bound on |computed - exact| of <A z_i, z_j> given |z_i|, docs/mathematics.md C8."""
        d = self.z.shape[1]
        e = self._error * np.sqrt(d)
        rounding = (1.0 if self.A is None else 2.1) * (d + 2) * _U * norms * self.radius
        return self.form_norm * (rounding + (norms + self.radius) * e + e * e) + 1e-290

    def find(self) -> Record:
        """C_c of every class still searched, at the current layer."""
        self.refresh()
        ids = self.active
        everyone = len(ids) == len(self.z)
        found = self.search.candidates(self, self.z if everyone else self.rows(ids))
        if len(found.gap):
            self.gap[ids] = np.minimum(self.gap[ids], found.gap)
        return Record(self.k, ids, *self._decide_ties(ids, found))

    def decide(self) -> Record:
        """C_c of every class still searched; settles leaders, their followers, and fixed ties."""
        if self.records and self.records[-1].layer == self.k:
            return self.records[-1]
        record = self.find()
        ids = record.ids
        self.records.append(record)
        width = np.diff(record.indptr)
        single = np.flatnonzero(width == 1)
        target = record.indices[record.indptr[single]]
        own = target == ids[single]
        leaders = ids[single[own]]
        self.born[leaders] = self.k
        self._mark(leaders, LEADER, leaders)
        sure = ~own & (self.born[target] >= 0)
        self._follow(ids[single[sure]], S, self.rows(target[sure]), target[sure])
        if (width > 1).any():
            for c, rule, limit in fixed_ties(self, ids[width > 1].tolist()):
                self._follow(np.array([c]), rule, np.array([limit]), -1)
        self.active = ids[self.settled_at[ids] < 0]
        return record

    def _decide_ties(
        self, ids: np.ndarray, found: kernels.Candidates
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replace every candidate row of more than one class by its exact maximisers."""
        width = np.diff(found.indptr)
        if (width == 1).all():
            return found.indptr, found.indices
        if self._grid and self.k == 0:  # dot products are exact: no integers needed
            rows = np.repeat(np.arange(len(ids)), width)
            score = np.einsum("ij,ij->i", self.z[ids][rows], self.z[found.indices])
            keep = score == np.maximum.reduceat(score, found.indptr[:-1])[rows]
            sizes = np.bincount(rows[keep], minlength=len(ids))
            return np.concatenate(([0], np.cumsum(sizes))), found.indices[keep]
        sets = np.split(found.indices, found.indptr[1:-1])
        for row in np.flatnonzero(width > 1):
            c = int(ids[row])
            query = matvec(self.A_exact[0], self.point(c))
            keys = [(int(j), self.point(int(j))) for j in sets[row]]
            best, _, gap = maximisers(query, keys)
            if gap > 0:
                unit = self.path.scale(self.k) ** 2 * self.A_exact[1]
                self.gap[c] = min(self.gap[c], float(Fraction(gap, unit)))
            sets[row] = np.array(best)
            self.exact_decisions += 1
        return np.concatenate(([0], np.cumsum([len(s) for s in sets]))), np.concatenate(sets)

    def _mark(self, ids: np.ndarray, rule: int, leader: np.ndarray | int) -> None:
        self.settled_at[ids] = self.k
        self.rule[ids] = rule
        self.leader[ids] = leader

    def _follow(
        self, ids: np.ndarray, rule: int, limits: np.ndarray, leader: np.ndarray | int
    ) -> None:
        """From this layer on the classes `ids` approach `limits` (float rows) geometrically."""
        if len(ids):
            self._mark(ids, rule, leader)
            self.closed.append((self.k, ids, limits, self.rows(ids) - limits))

    def settle(self, ids: Sequence[int], rule: int, end: Callable[[int], list[Fraction]]) -> None:
        """The sets of the classes `ids` are proved constant; they move on but are not searched."""
        self.ends |= {c: end(c) for c in ids}
        rows = np.array(ids, dtype=np.intp)
        self._mark(rows, rule, -1)
        self.moving = np.concatenate((self.moving, rows))
        self.active = self.active[self.settled_at[self.active] < 0]

    # -- moving -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the closed-form rows of z to the current layer."""
        if self._fresh != self.k:
            self._fresh = self.k
            for layer, ids, limits, offsets in self.closed:
                kernels.place(self.z, ids, limits, offsets, self.rho ** (self.k - layer))

    @property
    def settled(self) -> bool:
        """True once every token's future is known."""
        return len(self.active) == 0

    def advance(self) -> None:
        """Go to the next layer."""
        if self.settled and len(self.moving) == 0:
            self.k += 1
            return
        if not self.settled:
            self.decide()
        self.refresh()
        widest = self._step()
        self._error += (widest + 16) * _U * self._size
        self.k += 1

    def skip(self, k: int) -> None:
        """Go to layer k at once, once everything moves by a closed form."""
        if not self.settled or len(self.moving):
            raise ValueError("some tokens are still searched; advance() layer by layer")
        self.k = k

    def _step(self) -> int:
        """Move the classes without a closed form by their sets; returns the widest set."""
        record = self.records[-1]
        if record.layer != self.k:  # nothing is searched any more, only `moving` is left
            record = Record(self.k, self.active, np.zeros(1, dtype=np.intp), self.active)
        width = np.diff(record.indptr)
        tied = record.ids[width > 1].tolist()  # those that have just settled count in the factor
        several = {c: self.following(c) for c in [*tied, *self.moving.tolist()]}
        totals = [int(self.count[s].sum()) for s in several.values() if len(s) > 1]
        if totals:
            self.path.factor[self.k + 1] = lcm(*totals)
        single = np.flatnonzero((width == 1) & (self.settled_at[record.ids] < 0))
        stepped = [c for c in several if self.settled_at[c] < 0 or self.rule[c] in (H, T)]
        ids = np.concatenate((record.ids[single], np.array(stepped, dtype=np.intp)))
        means = np.empty((len(ids), self.z.shape[1]))
        means[: len(single)] = self.rows(record.indices[record.indptr[single]])
        for row, c in enumerate(stepped, start=len(single)):
            weight = self.count[several[c]]
            means[row] = weight @ self.z[several[c]] / weight.sum()
        now = self.rows(ids)
        kernels.place(self.z, ids, now, means - now, self.eta)
        return max((len(s) for s in several.values()), default=1)

    def jump(self, k: int, factor: int, values: dict[int, Vector]) -> None:
        """Arrive at layer k, the sets having been proved constant until then."""
        self._error += (k - self.k + 16) * _U * self._size  # powers of rho in the closed forms
        self.path.jump(k, factor, values)
        self.k = k
        scale = self.path.scale(k)
        for c, w in values.items():
            self.z[c] = [float(Fraction(x, scale)) for x in w]

    # -- reading ------------------------------------------------------------------------------

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """z[ids]; `take` is an order of magnitude faster on short rows."""
        return np.take(self.z, ids, axis=0)

    def state(self) -> np.ndarray:
        """Tokens at the current layer, shape (n, d), in the units of z0."""
        self.refresh()
        distinct = len(self.z) == len(self.label)
        return np.ldexp(self.z if distinct else self.rows(self.label), self.shift)

    def history(self) -> History:
        """Everything decided so far, at the level of tokens."""
        lead = self.leader[self.label]
        return History(
            born=self.born[self.label],
            settled_at=self.settled_at[self.label],
            leader=np.where(lead >= 0, self.first[lead], -1),
            exact_decisions=self.exact_decisions,
            label=self.label,
            records=tuple(self.records),
        )
