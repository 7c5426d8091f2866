"""Constant sets as a linear system: limits and motions of the classes, in rationals.

If no set changes any more, z(s + 1) = M z(s) with M = rho I + eta P, P the averaging over the sets
(docs/mathematics.md C3). P may be any stochastic pattern: a class may be in its own set, classes
may follow each other in a ring. Two things are computed here, class by class along the strongly
connected components of P, those that others lead to first:

* `ends`: L = lim z(s). M is lazy, so the limit exists; a transient component solves
  L = P L, a recurrent one tends to its stationary mean.
* `motions`: z_c(s) = sum_b b^s p_c,b(s), with vectors as coefficients. The bases are eigenvalues of
  M. They are rational unless a component of several classes has irrational ones; then there is no
  motion for it and for those that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import comb
from typing import NamedTuple, TypeAlias

import numpy as np

Row: TypeAlias = list[Fraction]
Motion: TypeAlias = dict[Fraction, list[Row]]  # base -> vectors by power of s
Matrix: TypeAlias = list[list[Fraction]]

_LARGEST_RING = 12  # components of more classes are not searched for rational eigenvalues


class Pattern(NamedTuple):
    """Who follows whom while the sets are constant: class -> {class: share}, shares adding to 1.

    Only moving classes have a row; the motion of all others is known in closed form.
    """

    shares: Mapping[int, Mapping[int, Fraction]]
    alpha: Fraction

    @property
    def rho(self) -> Fraction:
        return 1 / (1 + self.alpha)

    @property
    def eta(self) -> Fraction:
        return self.alpha / (1 + self.alpha)


def components(pattern: Pattern) -> list[list[int]]:
    """Strongly connected components, each after all those that it leads to (M. Sharir, 1981)."""
    ahead = {c: [j for j in row if j in pattern.shares] for c, row in pattern.shares.items()}
    back: dict[int, list[int]] = {c: [] for c in ahead}
    for c, row in ahead.items():
        for j in row:
            back[j].append(c)
    finished = [c for reached in _reached(ahead, ahead) for c in reached]
    return [sorted(ring) for ring in reversed(_reached(back, reversed(finished)))]


def _reached(edges: Mapping[int, list[int]], roots: Iterable[int]) -> list[list[int]]:
    """What each root reaches and no earlier one did, depth first, in the order of finishing."""
    seen: set[int] = set()
    out = []
    for root in roots:
        reached, path = [], [] if root in seen else [(root, iter(edges[root]))]
        seen.add(root)
        while path:
            j = next((j for j in path[-1][1] if j not in seen), None)
            if j is None:
                reached.append(path.pop()[0])
            else:
                seen.add(j)
                path.append((j, iter(edges[j])))
        if reached:
            out.append(reached)
    return out


# --- limits --------------------------------------------------------------------------------------


def ends(
    pattern: Pattern, start: Callable[[int], Sequence[Fraction | int]], known: Callable[[int], Row]
) -> dict[int, Row]:
    """L_c of every moving class; `start(c)` is z_c now, `known(j)` the limit of another class."""
    out: dict[int, Row] = {}

    def end(j: int) -> Row:
        return out[j] if j in out else known(j)

    for ring in components(pattern):
        shares = [pattern.shares[c] for c in ring]
        inside = [[Fraction(row.get(j, 0)) for j in ring] for row in shares]
        if all(sum(row) == 1 for row in inside):
            weights = _stationary(inside)
            places = [start(c) for c in ring]
            mean = _combined(list(zip(weights, places, strict=True)), len(places[0]))
            out |= {c: mean for c in ring}
            continue
        d = len(start(ring[0]))
        outside = [
            _combined([(share, end(j)) for j, share in row.items() if j not in ring], d)
            for row in shares
        ]
        gap = [[-x for x in row] for row in _less(inside, Fraction(1))]
        out |= dict(zip(ring, _solved(gap, outside), strict=True))
    return out


def _stationary(P: Matrix) -> Row:
    """The weights w >= 0, sum w = 1, with w P = w, of an irreducible stochastic P."""
    one, m = Fraction(1), len(P)
    system = [list(column) for column in zip(*_less(P, one), strict=True)]
    system[-1] = [one] * m  # the others say what it did
    return [row[0] for row in _solved(system, [[Fraction(int(a == m - 1))] for a in range(m)])]


def _solved(A: Matrix, right: Sequence[Row]) -> list[Row]:
    """X with A X = right; A is regular."""
    rows, _ = _echelon([[*a, *b] for a, b in zip(A, right, strict=True)], len(A))
    return [row[len(A) :] for row in rows]


def _combined(parts: Sequence[tuple[Fraction, Sequence[Fraction | int]]], d: int) -> Row:
    """sum of share times row, rows of d coordinates."""
    out = [Fraction(0)] * d
    for share, row in parts:
        out = [x + share * y for x, y in zip(out, row, strict=True)]
    return out


# --- motions -------------------------------------------------------------------------------------


def motions(
    pattern: Pattern,
    start: Callable[[int], Sequence[Fraction | int]],
    known: Callable[[int], Motion],
) -> dict[int, Motion]:
    """z_c(s), s = 0, 1, ..., of the moving classes; those without a rational motion are left out.

    `start(c)` is z_c now, `known(j)` the motion of a class in closed form.
    """
    out: dict[int, Motion] = {}
    for ring in components(pattern):
        rows = [pattern.shares[c] for c in ring]
        others = [{j: w for j, w in row.items() if j not in ring} for row in rows]
        if any(j in pattern.shares and j not in out for row in others for j in row):
            continue
        pulls = [
            _sum((pattern.eta * w, out[j] if j in out else known(j)) for j, w in row.items())
            for row in others
        ]
        inside = [[Fraction(row.get(j, 0)) for j in ring] for row in rows]
        places = [[Fraction(x) for x in start(c)] for c in ring]
        solved = _solved_ring(inside, pulls, places, pattern.rho, pattern.eta)
        if solved is not None:
            out |= dict(zip(ring, solved, strict=True))
    return out


def _solved_ring(
    Q: Matrix, pulls: list[Motion], places: list[Row], rho: Fraction, eta: Fraction
) -> list[Motion] | None:
    """The solutions of z(s+1) = (rho + eta Q) z(s) + pull(s), z(0) = places; None if irrational.

    A left eigenvector l of Q with eigenvalue mu makes y = <l, z> obey an equation of its own,
    y(s+1) = (rho + eta mu) y(s) + <l, pull(s)>. Then one class is expressed by y and the others,
    which leaves a system with one class less and the other eigenvalues.
    """
    if len(Q) == 1:
        solved = _solved_alone(rho + eta * Q[0][0], pulls[0], places[0])
        return None if solved is None else [solved]
    if len(Q) > _LARGEST_RING:
        return None
    mu = _rational_eigenvalue(Q)
    if mu is None:
        return None
    left = _left_eigenvector(Q, mu)
    pull = _sum(zip(left, pulls, strict=True))
    place = _combined(list(zip(left, places, strict=True)), len(places[0]))
    y = _solved_alone(rho + eta * mu, pull, place)
    if y is None:
        return None
    gone = max(k for k, weight in enumerate(left) if weight != 0)
    rest = [k for k in range(len(Q)) if k != gone]
    reduced = [[Q[a][b] - Q[a][gone] * left[b] / left[gone] for b in rest] for a in rest]
    one = Fraction(1)
    fewer = [_sum([(one, pulls[a]), (eta * Q[a][gone] / left[gone], y)]) for a in rest]
    solved_rest = _solved_ring(reduced, fewer, [places[a] for a in rest], rho, eta)
    if solved_rest is None:
        return None
    known = zip((-left[a] / left[gone] for a in rest), solved_rest, strict=True)
    last = _sum([(1 / left[gone], y), *known])
    return [*solved_rest[:gone], last, *solved_rest[gone:]]


def _solved_alone(beta: Fraction, pull: Motion, place: Row) -> Motion | None:
    """The solution of z(s+1) = beta z(s) + pull(s), z(0) = place; None for beta = 0.

    For each base b of the pull a particular solution b^s r(s) with b r(s+1) - beta r(s) = q(s):
    the highest power first, and one power more when b = beta.
    """
    if beta == 0:
        return None
    parts: list[tuple[Fraction, Motion]] = []
    for b, q in pull.items():
        extra = int(b == beta)
        r: list[Row] = [[] for _ in range(len(q) + extra)]
        if extra:
            r[0] = [Fraction(0)] * len(place)
        for power in range(len(q) - 1, -1, -1):
            higher = range(power + 1 + extra, len(r))
            rest = [
                x - b * sum((comb(e, power) * r[e][i] for e in higher), Fraction(0))
                for i, x in enumerate(q[power])
            ]
            factor = b * (power + 1) if extra else b - beta
            r[power + extra] = [x / factor for x in rest]
        parts.append((Fraction(1), {b: r}))
    begun = _combined([(one, m[b][0]) for one, m in parts for b in m], len(place))
    parts.append((Fraction(1), {beta: [[x - y for x, y in zip(place, begun, strict=True)]]}))
    return {b: rows for b, rows in _sum(parts).items() if any(map(any, rows))}


def _sum(parts: Iterable[tuple[Fraction, Motion]]) -> Motion:
    """sum of factor times motion."""
    out: Motion = {}
    for factor, motion in parts:
        for b, rows in motion.items() if factor else ():
            mine = out.setdefault(b, [])
            for power, row in enumerate(rows):
                if power == len(mine):
                    mine.append([Fraction(0)] * len(row))
                mine[power] = [x + factor * y for x, y in zip(mine[power], row, strict=True)]
    return out


def _rational_eigenvalue(Q: Matrix) -> Fraction | None:
    """An eigenvalue of Q that is rational: guessed in floats, proved by the exact determinant."""
    m = len(Q)
    guesses = np.linalg.eigvals(np.array([[float(x) for x in row] for row in Q]))
    guesses = guesses[np.abs(guesses.imag) < 1e-4].real
    for guess in sorted(set(guesses.tolist()), reverse=True):
        for largest in (1, 12, 144, 10_000):
            mu = Fraction(guess).limit_denominator(largest)
            if len(_echelon(_less(Q, mu), m)[1]) < m:
                return mu
    return None


def _echelon(A: Matrix, columns: int) -> tuple[Matrix, list[int]]:
    """Rows reduced by elimination in the first columns, and the columns of their pivots."""
    rows: Matrix = [row[:] for row in A]
    pivots: list[int] = []
    for c in range(columns):
        r = len(pivots)
        pivot = next((i for i in range(r, len(rows)) if rows[i][c] != 0), None)
        if pivot is None:
            continue
        rows[r], rows[pivot] = rows[pivot], rows[r]
        rows[r] = [x / rows[r][c] for x in rows[r]]
        for i, row in enumerate(rows):
            if i != r and (factor := row[c]) != 0:
                rows[i] = [x - factor * y for x, y in zip(row, rows[r], strict=True)]
        pivots.append(c)
    return rows[: len(pivots)], pivots


def _less(Q: Matrix, mu: Fraction) -> Matrix:
    """Q - mu I."""
    return [[x - mu * int(a == b) for b, x in enumerate(row)] for a, row in enumerate(Q)]


def _left_eigenvector(Q: Matrix, mu: Fraction) -> Row:
    """l != 0 with l Q = mu l."""
    m = len(Q)
    rows, pivots = _echelon([list(column) for column in zip(*_less(Q, mu), strict=True)], m)
    free = next(c for c in range(m) if c not in pivots)
    out = [Fraction(0)] * m
    out[free] = Fraction(1)
    for row, pivot in zip(rows, pivots, strict=True):
        out[pivot] = -row[free]
    return out
