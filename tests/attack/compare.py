"""Answers of the package judged by the oracle: what is compared, and what counts as wrong.

Every function takes answers and gives faults, sentences; none means nothing wrong was found. They
never call the package, so that a test can feed them a wrong answer and see it refused.

A certified limit is judged by facts of the exact run, not by the proofs of the engine:

* a token that follows a leader alone tends to it (`oracle.surely`, a proof of two lines);
* every limit lies in the hull of every layer: it is tested on boxes;
* a token whose sets are claimed constant from `settled_at` on must have the pull of those sets at
  every later layer the oracle reaches, and tend to `oracle.if_constant` of them, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from .oracle import Layer, Point, Run, if_constant, reachable, surely

EPS = Fraction(1, 2**52)
TINY = Fraction(1, 2**1074)
_MOST_STATES = 40  # reachable tokens up to which `if_constant` is affordable


class Room(NamedTuple):
    """By how much floats may be off, column by column.

    A layer takes convex combinations in every column by itself: each rounds by a few units of the
    column's largest entry, a mean of n tokens by n of them, and later layers do not enlarge what
    earlier ones left. `eps` and `tiny` are those of the floats.
    """

    n: int
    largest: tuple[Fraction, ...]
    eps: Fraction = EPS
    tiny: Fraction = TINY

    @classmethod
    def of(cls, z: Iterable[Iterable[Any]], single: bool = False) -> Room:
        """For these tokens; `single` for answers in single precision."""
        rows = [[abs(Fraction(x)) for x in row] for row in z]
        units = (Fraction(1, 2**23), Fraction(1, 2**149)) if single else (EPS, TINY)
        return cls(len(rows), tuple(map(max, zip(*rows, strict=True))), *units)

    def at(self, k: int) -> list[Fraction]:
        """The bounds at layer k."""
        return [(k + 2) * (self.n + 8) * (self.eps * x + self.tiny) for x in self.largest]


def far(given: Sequence[Any], exact: Sequence[Fraction], within: Sequence[Fraction]) -> bool:
    """True when a row of floats is not finite, or off by more than the bound in some column."""
    if not finite(given):
        return True
    return any(abs(Fraction(x) - y) > e for x, y, e in zip(given, exact, within, strict=True))


def finite(point: Sequence[Any]) -> bool:
    return all(isinstance(x, Fraction) or isfinite(x) for x in point)


def show(point: Sequence[Any]) -> str:
    """A point for people: fractions in full where they are short, as floats where they are long."""
    return "(" + ", ".join(str(x) if len(str(x)) < 25 else repr(float(x)) for x in point) + ")"


# -- a run ----------------------------------------------------------------------------------------


def state_faults(run: Run, states: Any, real: Sequence[int], room: Room) -> Iterator[str]:
    """Tokens of every layer, (layers + 1, n, d), against the exact ones."""
    for k, state in enumerate(states.tolist()):
        layer, within = run[k], room.at(k)
        for row, i in enumerate(real):
            exact = layer.point(row)
            if far(state[i], exact, within):
                yield f"layer {k}: token {i} is at {show(exact)}, not {state[i]}"
                return


def set_faults(
    layer: Layer, k: int, given: Sequence[Sequence[int]], real: Sequence[int]
) -> Iterator[str]:
    """The sets C_i of one layer, by index; `given` has one entry per token, padding included."""
    for row, i in enumerate(real):
        exact = [real[j] for j in layer.sets[row]]
        if list(given[i]) != exact:
            yield f"layer {k}: C_{i} = {exact}, not {list(given[i])}"


def history_faults(
    run: Run,
    born: Sequence[int],
    settled_at: Sequence[int],
    leader: Sequence[int],
    real: Sequence[int],
) -> Iterator[str]:
    """Who led since when, and whom a settled token follows, in a run of `run.last` layers."""
    exact = run.born()
    row_of = {i: row for row, i in enumerate(real)}
    for i, b in enumerate(born):
        if i not in row_of:
            if b != -1 or leader[i] != -1:
                yield f"padding {i} has born {b} and leader {leader[i]}"
            continue
        row = row_of[i]
        if b != exact[row]:
            yield f"token {i} leads from layer {exact[row]}, not {b} (-1: never)"
        if leader[i] < 0:
            continue
        if settled_at[i] < 0 or leader[i] not in row_of:
            yield f"token {i} has leader {leader[i]} and is settled at {settled_at[i]}"
            continue
        other = row_of[leader[i]]
        for k in range(settled_at[i], run.last + 1):
            end = surely(run[k], row)
            if end is None or not run[k].same(end, other):
                yield f"token {i} does not follow leader {leader[i]} alone at layer {k}"
                break


# -- limits ---------------------------------------------------------------------------------------


def limit_faults(run: Run, li: Any, real: Sequence[int], room: Room) -> Iterator[str]:
    """One `Limit` against the exact layers that `run` has."""
    born = run.born()
    yield from _leader_faults(li, real)
    yield from hull_faults(li, real, room)
    for row, i in enumerate(real):
        given, exact = int(li.born[i]), born[row]
        settled = int(li.settled_at[i]) >= 0
        known = settled or li.layers >= exact  # an open token may not have been walked that far
        if given != exact and (0 <= given <= run.last or (exact >= 0 and known)):
            yield f"token {i} leads from layer {exact}, not {given} (-1: never)"
        elif not settled:
            if li.layers <= run.last:
                there = run[li.layers].point(row)
                if far(li.points[i].tolist(), there, room.at(li.layers)):
                    yield f"open token {i} is at {show(there)} at {li.layers}, not {li.points[i]}"
        else:
            yield from _end_faults(run, li, row, i, room)


def _leader_faults(li: Any, real: Sequence[int]) -> Iterator[str]:
    """Does the record agree with itself?"""
    if li.leaders.tolist() != np.flatnonzero(li.born >= 0).tolist():
        yield f"leaders {li.leaders.tolist()} are not those born, {li.born.tolist()}"
    for i in real:
        leader = int(li.follows[i])
        if leader >= 0 and (leader not in real or li.born[leader] < 0):
            yield f"token {i} follows {leader}, which does not lead"
        elif leader >= 0 and (li.points[i] != li.points[leader]).any():
            yield f"token {i} follows {leader} and ends elsewhere"
    if li.exact_points is None:
        return
    ends = {li.exact_points[i]: i for i in real if li.born[i] >= 0}
    for i in real:
        if li.settled_at[i] >= 0 and li.follows[i] < 0 and li.exact_points[i] in ends:
            yield f"token {i} tends to leader {ends[li.exact_points[i]]}, not to none"


def hull_faults(li: Any, real: Sequence[int], room: Room) -> Iterator[str]:
    """K is the hull of the limits: its vertices are some of them, its box is theirs."""
    points = li.points[list(real)]
    if not li.certified or len(points) > _MOST_STATES or points.shape[1] > 6:
        return
    vertices = li.polytope.vertices
    known = {tuple(row) for row in points.tolist()}
    strange = [row for row in vertices.tolist() if tuple(row) not in known]
    if strange:
        yield f"vertex {strange[0]} of the polytope is the limit of no token"
    for side in (-1, 1):
        ends = [(side * x).max(axis=0).tolist() for x in (vertices, points)]
        if far(ends[0], [Fraction(x) for x in ends[1]], room.at(0)):
            yield f"the polytope reaches {ends[0]} in the directions {side:+d}, limits {ends[1]}"


def _end_faults(run: Run, li: Any, row: int, i: int, room: Room) -> Iterator[str]:
    """The claimed limit of one token."""
    settled_at = int(li.settled_at[i])
    claim: Sequence[Any] = li.points[i].tolist()
    within = room.at(settled_at)
    if li.exact_points is not None:
        rounded = [float(x) for x in li.exact_points[i]]
        if far(claim, li.exact_points[i], [2 * EPS * abs(x) + TINY for x in li.exact_points[i]]):
            yield f"token {i}: exact limit {rounded} and float limit {claim}"
        claim, within = li.exact_points[i], [Fraction(0)] * len(claim)
    if not finite(claim):
        yield f"token {i}: limit {claim}"
        return
    last = run[run.last]
    leader = surely(last, row)
    if leader is not None:
        if far(claim, last.point(leader), within):
            yield f"token {i} tends to {show(last.point(leader))}, not {show(claim)}"
        return
    for c, column in enumerate(zip(*last.rows, strict=True)):
        low, high = Fraction(min(column), last.unit), Fraction(max(column), last.unit)
        if not low - within[c] <= Fraction(claim[c]) <= high + within[c]:
            yield f"token {i}: limit {show(claim)} is outside the hull of layer {run.last}"
            return
    if settled_at <= run.last:
        yield from _constancy_faults(run, row, i, settled_at)
        end = _end_if_constant(last, row)
        if end is not None and far(claim, end, within):
            yield (
                f"token {i}, its sets constant from layer {settled_at} on, tends to "
                f"{show(end)}, not {show(claim)}; it is at {show(last.point(row))} at {run.last}"
            )


def _constancy_faults(run: Run, row: int, i: int, settled_at: int) -> Iterator[str]:
    """A settled token is pulled by the same tokens ever after."""
    members = run[settled_at].sets[row]
    for k in range(settled_at + 1, run.last + 1):
        layer = run[k]
        if layer.sets[row] != members and _mean(layer, members) != _mean(layer, layer.sets[row]):
            yield f"token {i} settled at {settled_at}, but C_{i} changes at layer {k}"
            return


def _mean(layer: Layer, members: Sequence[int]) -> Point:
    columns = zip(*(layer.rows[j] for j in members), strict=True)
    return tuple(Fraction(sum(column), len(members) * layer.unit) for column in columns)


def _end_if_constant(layer: Layer, row: int) -> Point | None:
    """`if_constant` where it is affordable."""
    many = len(reachable(layer.sets, row)) > _MOST_STATES
    return None if many else if_constant(layer, row)


def open_count(li: Any) -> int:
    return len(li.undecided)


def pair_faults(one: Any, two: Any, real: Sequence[int], room: Room) -> Iterator[str]:
    """Two answers about the same tokens: float and exact, or before and after a transformation."""
    for i in real:
        both = one.settled_at[i] >= 0 and two.settled_at[i] >= 0
        if not both:
            continue
        if one.born[i] != two.born[i]:
            yield f"token {i} is born at {one.born[i]} and at {two.born[i]}"
        within = room.at(int(max(one.settled_at[i], two.settled_at[i])))
        if far(one.points[i].tolist(), [Fraction(x) for x in two.points[i].tolist()], within):
            yield f"token {i} tends to {one.points[i].tolist()} and to {two.points[i].tolist()}"
        if (one.follows[i] < 0) != (two.follows[i] < 0):
            yield f"token {i} follows {one.follows[i]} and {two.follows[i]} (-1: no leader)"
