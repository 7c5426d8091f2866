"""Proofs, in whole numbers, that no matrix A makes given tokens lead.

Every proof is a list of terms (i, j, w), each standing for w <A z_i, z_i - z_j> (z_j = 0 for
j = -1). A term with w > 0 is positive wherever i leads. The proof says that the sum of all terms is
<A, S> with no positive eigenvalue of S, so that it is not positive for any A > 0: a contradiction.
Floats propose the terms; `refutes` accepts a proof in exact arithmetic only (docs/mathematics.md
B15).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd, lcm
from operator import mul

import numpy as np

from ..._scale import lengths

Term = tuple[int, int, Fraction]
Proof = tuple[Term, ...]
Row = list[int]

MOST_WORK = 10_000_000  # products of whole numbers spent on one question
SMALL = 1e-7  # of an eigenvalue or a multiplier that the solver means to be 0


def whole(z: np.ndarray) -> list[Row]:
    """The tokens as rows of whole numbers, all multiplied by one positive number."""
    exact = [[Fraction(x) for x in row] for row in z.tolist()]
    unit = lcm(*(x.denominator for row in exact for x in row))
    return [[int(x * unit) for x in row] for row in exact]


def refutes(z: Sequence[Row], proof: Proof) -> bool:
    """Is this a proof? S has no positive eigenvalue, and is not 0 where no term is positive.

    Negative weights are for those who are to be kept from leading: <A z_i, z_j - z_i> >= 0.
    """
    if not proof:
        return False
    S = _summed(z, proof)
    strict = any(w > 0 for *_, w in proof)
    return (strict or any(map(any, S))) and _no_positive_eigenvalue(S)


def _summed(z: Sequence[Row], proof: Proof) -> list[Row]:
    """2 S of a proof, times a positive number."""
    d = len(z[0])
    unit = lcm(*(w.denominator for *_, w in proof))
    S = [[0] * d for _ in range(d)]
    for i, j, w in proof:
        matrix, factor = _form(z, i, j), int(w * unit)
        for row, more in zip(S, matrix, strict=True):
            for b in range(d):
                row[b] += factor * more[b]
    return S


def _form(z: Sequence[Row], i: int, j: int) -> list[Row]:
    """z_i (z_i - z_j)^T + (z_i - z_j) z_i^T, j = -1 for 0."""
    x = z[i]
    y = x if j < 0 else [a - b for a, b in zip(x, z[j], strict=True)]
    return [[a * s + r * b for b, s in zip(x, y, strict=True)] for a, r in zip(x, y, strict=True)]


def _no_positive_eigenvalue(S: list[Row]) -> bool:
    """Elimination without division: all pivots of -S are >= 0, and a row of pivot 0 is 0."""
    M = [[-x for x in row] for row in S]
    left, before = list(range(len(M))), 1
    while left:
        if any(M[i][i] < 0 for i in left):
            return False
        pivot = next((i for i in left if M[i][i] > 0), None)
        if pivot is None:
            return not any(M[i][j] for i in left for j in left)
        left.remove(pivot)
        p = M[pivot][pivot]
        for i in left:
            for j in left:
                M[i][j] = (p * M[i][j] - M[i][pivot] * M[pivot][j]) // before
        before = p
    return True


# --- 0 in the hull of vectors, or a direction along which all are positive ----------------------


def cone(
    rows: Sequence[Row], first: Iterable[int] = ()
) -> tuple[dict[int, Fraction] | None, list[Fraction] | None]:
    """(weights, None) with sum_k w_k rows_k = 0, w > 0; or (None, q) with <q, row> > 0 for all.

    Wolfe's algorithm for the shortest vector of the hull, in rationals: it ends, since lengths
    fall and each is that of one of finitely many sets. `first` are rows to begin with, as floats
    propose them. (None, None) where the numbers grow too long to go on.
    """
    units = [gcd(*row) for row in rows]
    rows = [[x // (g or 1) for x in row] for row, g in zip(rows, units, strict=True)]
    zero = next((k for k, row in enumerate(rows) if not any(row)), None)
    if zero is not None:
        return {zero: Fraction(1)}, None
    rough = np.array([_rounded(row) for row in rows])
    work = _Work()
    begin = list(first) or [0]
    weights: dict[int, Fraction] | None = {begin[0]: Fraction(1)}
    shares = _flat(rows, begin, work) if len(begin) > 1 else None
    if shares is not None and min(shares) > 0:  # the proposed rows hold the shortest vector
        weights = dict(zip(begin, shares, strict=True))
    while weights is not None:
        terms = [[w * x for x in rows[k]] for k, w in weights.items()]
        p = [sum(column, Fraction(0)) for column in zip(*terms, strict=True)]
        if not any(p):
            return {k: w / units[k] for k, w in weights.items()}, None
        lowest = _lowest(rows, rough, p)
        if lowest is None:
            return None, p
        weights = _with(rows, weights, lowest, work)
    return None, None


class _Work:
    """Counts products of numbers, long ones as several."""

    def __init__(self) -> None:
        self.done = 0.0

    def affords(self, size: int, bits: int) -> bool:
        self.done += size**3 * (1 + size * bits / 2000)
        return self.done < MOST_WORK


def _rounded(row: Sequence[int | Fraction]) -> list[float]:
    """The direction in floats: its largest entry is 1 in size."""
    exact = [Fraction(x) for x in row]
    top = max(abs(x) for x in exact)
    return [float(x / top) for x in exact]


def _lowest(rows: list[Row], rough: np.ndarray, p: list[Fraction]) -> int | None:
    """A row with <p, row> <= 0, about the lowest; None where all are positive.

    Floats sort out those surely positive: a product is off by less than (d + 4) units of its size.
    """
    direction = np.array(_rounded(p))
    scores = rough @ direction
    bound = 1e-15 * (len(p) + 4) * (np.abs(rough) @ np.abs(direction))
    near = np.flatnonzero(scores <= bound)
    exact = {int(k): sum(map(mul, p, rows[k])) for k in near[np.argsort(scores[near])]}
    bad = {k: x / max(map(abs, rows[k])) for k, x in exact.items() if x <= 0}
    return min(bad, key=lambda k: bad[k]) if bad else None


def _with(
    rows: list[Row], weights: dict[int, Fraction], new: int, work: _Work
) -> dict[int, Fraction] | None:
    """Weights of the shortest vector once a row has joined; rows without weight leave."""
    now = {**weights, new: Fraction(0)}
    while True:
        members = list(now)
        shares = _flat(rows, members, work)
        if shares is None:
            return None
        if min(shares) > 0:
            return dict(zip(members, shares, strict=True))
        pairs = list(zip(members, shares, strict=True))
        step = min(now[k] / (now[k] - s) for k, s in pairs if s <= 0)
        now = {k: w for k, s in pairs if (w := (1 - step) * now[k] + step * s) > 0}


def _flat(rows: list[Row], members: list[int], work: _Work) -> list[Fraction] | None:
    """Weights, summing to 1, of the shortest vector of the plane through independent rows."""
    size = len(members)
    if size == len(rows[0]) + 1:  # the plane is everything, and its shortest vector 0
        system = [list(column) for column in zip(*(rows[k] for k in members), strict=True)]
        if work.affords(size, max(x.bit_length() for row in system for x in row)):
            return solved([*system, [1] * size], [0] * (size - 1) + [1])
        return None
    gram = [[sum(map(mul, rows[i], rows[j])) for j in members] for i in members]
    if not work.affords(size + 1, max(x.bit_length() for row in gram for x in row)):
        return None
    system = [[0] + [1] * size, *([1, *row] for row in gram)]
    found = solved(system, [1] + [0] * size)
    return None if found is None else found[1:]


def solved(matrix: list[Row], right: Row) -> list[Fraction] | None:
    """The solution of a square system in whole numbers, None where it is singular."""
    n, before = len(matrix), 1
    M = [[*row, x] for row, x in zip(matrix, right, strict=True)]
    for c in range(n):
        pivot = next((r for r in range(c, n) if M[r][c]), None)
        if pivot is None:
            return None
        M[c], M[pivot] = M[pivot], M[c]
        p, top = M[c][c], M[c]
        for r in range(c + 1, n):
            q = M[r][c]
            M[r] = [(p * x - q * y) // before for x, y in zip(M[r], top, strict=True)]
        before = p
    x = [Fraction(0)] * n
    for c in reversed(range(n)):
        x[c] = (M[c][n] - sum(map(mul, M[c][c + 1 : n], x[c + 1 :]), Fraction(0))) / M[c][c]
    return x


# --- several tokens ------------------------------------------------------------------------------


def repaired(z: np.ndarray, terms: Sequence[tuple[int, int, float]]) -> Proof | None:
    """A proof with about the multipliers, those of <A u_i, u_ij>, of a solver; or None.

    They are taken as they are if S has no positive eigenvalue then. Where S is 0 in truth, rounding
    may make some positive: then weights of the same terms are sought under which S is 0 exactly.
    """
    rows = whole(z)
    top = max((abs(w) for *_, w in terms), default=0.0)
    kept = [(i, j, w) for i, j, w in terms if abs(w) > SMALL * top]
    if not kept:
        return None
    for some in (kept, [t for t in terms if t[2]]):
        proof = tuple((i, j, Fraction(w) / size(z, i, j)) for i, j, w in some)
        if refutes(rows, proof):
            return proof
    vectors = [_upper(rows, i, j, 1 if w > 0 else -1) for i, j, w in kept]
    weights, _ = cone(vectors)
    if weights is not None:
        proof = tuple((*kept[k][:2], w if kept[k][2] > 0 else -w) for k, w in weights.items())
        if refutes(rows, proof):
            return proof
    return None


def size(z: np.ndarray, i: int, j: int) -> Fraction:
    """|z_i| |z_i - z_j|, about."""
    return Fraction(float(lengths(z[i]))) * Fraction(float(lengths(z[i] - z[j])))


def _upper(z: Sequence[Row], i: int, j: int, sign: int) -> Row:
    matrix = _form(z, i, j)
    d = len(matrix)
    return [sign * matrix[a][b] for a in range(d) for b in range(a, d)]
