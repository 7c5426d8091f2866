"""Hardmax layers from the definition, in integers: slow, simple, and free of the package.

One layer of tokens z_1..z_n in R^d:

    C_i = { j : <A z_i, z_j> = max_l <A z_i, z_l> },   z_i <- z_i + eta (mean of z_j over C_i - z_i)

with eta = alpha/(1 + alpha). Numbers are exact: a float means the dyadic rational it stores. All
tokens of a layer are integers over one positive denominator; a common positive factor changes no
set, so scores are compared as integers.

Token i *leads* at a layer when every j in C_i has the value of i; `born` is the first such layer.
Tokens of equal value are one: they have equal sets, so they move together from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from operator import mul
from typing import Any

Row = tuple[int, ...]
Point = tuple[Fraction, ...]
Sets = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Layer:
    """The tokens at one layer, integers over `unit`, and the sets C_i found there."""

    rows: tuple[Row, ...]
    unit: int
    sets: Sets

    def point(self, i: int) -> Point:
        return tuple(Fraction(x, self.unit) for x in self.rows[i])

    def same(self, i: int, j: int) -> bool:
        return self.rows[i] == self.rows[j]

    def leads(self, i: int) -> bool:
        return all(self.rows[j] == self.rows[i] for j in self.sets[i])


def integers(rows: Iterable[Iterable[Any]]) -> tuple[tuple[Row, ...], int]:
    """Rows of floats or rationals as integers over one positive denominator."""
    exact = [[Fraction(x) for x in row] for row in rows]
    unit = lcm(*(x.denominator for row in exact for x in row))
    return tuple(tuple(int(x * unit) for x in row) for row in exact), unit


def dot(x: Sequence[int], y: Sequence[int]) -> int:
    return sum(map(mul, x, y))


def followed(rows: Sequence[Row], A: Sequence[Row] | None, causal: bool = False) -> Sets:
    """C_i of every token; with `causal` among the tokens 0..i. Equal rows are scored once."""
    if causal:
        return tuple(_best(_query(A, x), _places(rows[: i + 1])) for i, x in enumerate(rows))
    places = _places(rows)
    found = {x: _best(_query(A, x), places) for x in places}
    return tuple(found[x] for x in rows)


def _query(A: Sequence[Row] | None, x: Row) -> Row:
    return x if A is None else tuple(dot(row, x) for row in A)


def _places(rows: Sequence[Row]) -> dict[Row, list[int]]:
    """Where each distinct row stands."""
    out: dict[Row, list[int]] = {}
    for i, x in enumerate(rows):
        out.setdefault(x, []).append(i)
    return out


def _best(query: Row, places: dict[Row, list[int]]) -> tuple[int, ...]:
    scores = {x: dot(query, x) for x in places}
    top = max(scores.values())
    return tuple(sorted(i for x, s in scores.items() if s == top for i in places[x]))


def step(rows: Sequence[Row], sets: Sets, eta: Fraction) -> tuple[tuple[Row, ...], int]:
    """The next layer, and the factor by which the denominator grew.

    (1 - p/q) z + p/q (sum over C) / c, times q m with m a common multiple of all c.
    """
    p, q = eta.numerator, eta.denominator
    m = lcm(*(len(c) for c in sets))
    moved: dict[tuple[Row, tuple[int, ...]], Row] = {}
    for x, c in zip(rows, sets, strict=True):
        if (x, c) not in moved:
            total = [sum(column) for column in zip(*(rows[j] for j in c), strict=True)]
            share = p * (m // len(c))
            moved[x, c] = tuple((q - p) * m * a + share * t for a, t in zip(x, total, strict=True))
    return tuple(moved[key] for key in zip(rows, sets, strict=True)), q * m


class Run:
    """Layers 0, 1, 2, ... of one configuration, found as they are asked for."""

    def __init__(
        self,
        z: Iterable[Iterable[Any]],
        A: Iterable[Iterable[Any]] | None = None,
        alpha: Any = 1,
        causal: bool = False,
    ) -> None:
        self._A = None if A is None else integers(A)[0]
        alpha = Fraction(alpha)
        self._eta = alpha / (1 + alpha)
        self._causal = causal
        rows, unit = integers(z)
        self.layers = [Layer(rows, unit, followed(rows, self._A, causal))]

    def __getitem__(self, k: int) -> Layer:
        while len(self.layers) <= k:
            last = self.layers[-1]
            rows, factor = step(last.rows, last.sets, self._eta)
            unit = last.unit * factor
            common = gcd(unit, *(x for row in rows for x in row))
            rows = tuple(tuple(x // common for x in row) for row in rows)
            sets = followed(rows, self._A, self._causal)
            self.layers.append(Layer(rows, unit // common, sets))
        return self.layers[k]

    @property
    def last(self) -> int:
        return len(self.layers) - 1

    @property
    def bits(self) -> int:
        """The length of the longest number at the last layer."""
        layer = self.layers[-1]
        return max(layer.unit, *(abs(x) for row in layer.rows for x in row)).bit_length()

    def extend(self, layers: int, enough: Callable[[Run], bool]) -> None:
        """Go on until layer `layers`, or until `enough` says stop."""
        while self.last < layers and not enough(self):
            self[self.last + 1]

    def born(self, until: int | None = None) -> list[int]:
        """The first layer at which each token leads, -1 if at none up to `until`."""
        layers = self.layers if until is None else [self[k] for k in range(until + 1)]
        out = [-1] * len(layers[0].rows)
        for k, layer in enumerate(layers):
            for i, since in enumerate(out):
                if since < 0 and layer.leads(i):
                    out[i] = k
        return out

    def constant_since(self, i: int) -> int:
        """The first layer from which the sets of i and of all it leads to have not changed."""
        last = self.layers[-1]
        reach = reachable(last.sets, i)
        k = self.last
        while k > 0 and all(self.layers[k - 1].sets[j] == last.sets[j] for j in reach):
            k -= 1
        return k


def reachable(sets: Sets, i: int) -> list[int]:
    """i and all tokens it follows, directly or through others."""
    seen, todo = {i}, [i]
    while todo:
        for j in sets[todo.pop()]:
            if j not in seen:
                seen.add(j)
                todo.append(j)
    return sorted(seen)


def surely(layer: Layer, i: int) -> int | None:
    """A leader l that token i tends to, provably, from this layer alone and for every A; or None.

    If l leads, <A z_l, z_l - y> > 0 for every other y of the hull; hulls shrink, so l stays and
    leads for ever. If i follows the value of l alone, <A z_i, z_l - y> > 0 there too, and the next
    z_i lies between z_i and z_l: both inequalities add up, so i follows l for ever.
    """
    c = layer.sets[i]
    if not all(layer.same(j, c[0]) for j in c):
        return None
    return c[0] if layer.leads(c[0]) else None


def if_constant(layer: Layer, i: int) -> Point:
    """Where token i tends to if the sets of this layer never change again.

    The layer is then z <- ((1 - eta) I + eta P) z with P the averaging over the sets. Its powers
    converge: a closed class of P (tokens that lead to each other and nowhere else) tends to its
    mean under the stationary weights, a token outside to the mixture by chances of absorption.
    Equal tokens are one state with the share of them all.
    """
    first = {x: i for i, x in reversed(list(enumerate(layer.rows)))}
    state = [first[x] for x in layer.rows]
    P: dict[int, dict[int, Fraction]] = {}
    todo = [state[i]]
    while todo:
        a = todo.pop()
        if a in P:
            continue
        P[a] = {}
        for j in layer.sets[a]:
            b = state[j]
            P[a][b] = P[a].get(b, Fraction(0)) + Fraction(1, len(layer.sets[a]))
        todo += P[a]
    reach = {a: _closure(P, a) for a in P}
    recurrent = {a: all(a in reach[b] for b in reach[a]) for a in P}
    ends: dict[int, Point] = {}
    for a in P:
        if recurrent[a] and a not in ends:
            members = sorted(reach[a])
            mean = _stationary(P, members, [layer.point(b) for b in members])
            ends |= dict.fromkeys(members, mean)
    transient = [a for a in P if not recurrent[a]]
    if transient:  # x_a - sum of P_ab x_b over transient b = sum of P_ab end_b over recurrent b
        d = len(layer.rows[0])
        matrix = [
            [Fraction(a == b) - P[a].get(b, Fraction(0)) for b in transient] for a in transient
        ]
        right = [
            [
                sum((p * ends[b][c] for b, p in P[a].items() if b in ends), Fraction(0))
                for c in range(d)
            ]
            for a in transient
        ]
        ends |= dict(zip(transient, map(tuple, solve(matrix, right)), strict=True))
    return ends[state[i]]


def _closure(P: dict[int, dict[int, Fraction]], a: int) -> set[int]:
    seen, todo = {a}, [a]
    while todo:
        for b in P[todo.pop()]:
            if b not in seen:
                seen.add(b)
                todo.append(b)
    return seen


def _stationary(
    P: dict[int, dict[int, Fraction]], members: list[int], points: list[Point]
) -> Point:
    """The mean of a closed class under pi with pi P = pi, sum of pi = 1."""
    n = len(members)
    matrix = [[P[b].get(a, Fraction(0)) - (a == b) for b in members] for a in members[1:]] + [
        [Fraction(1)] * n
    ]
    right = [[Fraction(0)] for _ in range(n - 1)] + [[Fraction(1)]]
    pi = [row[0] for row in solve(matrix, right)]
    return tuple(
        sum(p * x for p, x in zip(pi, column, strict=True)) for column in zip(*points, strict=True)
    )


def solve(matrix: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
    """Gauss and Jordan, in rationals; the matrix must be regular."""
    n = len(matrix)
    rows = [list(a) + list(b) for a, b in zip(matrix, right, strict=True)]
    for c in range(n):
        pivot = next(r for r in range(c, n) if rows[r][c] != 0)
        rows[c], rows[pivot] = rows[pivot], rows[c]
        scale = rows[c][c]
        rows[c] = [x / scale for x in rows[c]]
        for r in range(n):
            if r != c and rows[r][c] != 0:
                factor = rows[r][c]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[c], strict=True)]
    return [row[n:] for row in rows]
