"""Who can be made to lead: answers of control, judged by rationals that share no code with it.

A matrix is judged by the definition of C_i, a proof by the principal minors of its sum, and the
answer for one token by all simplices of other tokens and 0. "Undecided" is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

import cynosure as cy

from .cases import Case
from .package import Package

Point = tuple[Fraction, ...]
MOST = 7  # tokens, and three coordinates: simplices are many


def control(case: Case, package: Package) -> Iterator[str | int]:
    """`control` of one token and of a few, `control_exactly` and `control_limit` of the few."""
    rng = np.random.default_rng(case.turn)
    z = tuple(tuple(map(float, row[:3])) for row in case.z[0][:MOST])
    given, exact = np.array(z), [tuple(map(Fraction, row)) for row in z]
    i = int(rng.integers(len(z)))
    one = package.ask(cy.control, given, i, condition=float("inf"))
    yield from answer_faults(exact, [i], one)
    if one.feasible or one.witness.reason == "inside":
        able = can_lead(exact, i)
        if able != one.feasible:
            yield f"token {i} {'can' if able else 'cannot'} lead, control says {one.witness}"
    yield int(one.witness.reason == "undecided")
    if rng.random() < 0.6:
        return
    few = sorted(rng.choice(len(z), int(rng.integers(1, min(3, len(z)) + 1)), False).tolist())
    yield from answer_faults(exact, few, package.ask(cy.control, given, few))
    for call in (cy.control_exactly, cy.control_limit):
        choice = package.ask(call, given, few, tries=1)
        if choice.reason == "impossible":
            yield from proof_faults(exact, choice.witness.proofs)
        elif choice.found and call is cy.control_exactly:
            wanted = [k for k in range(len(z)) if exact[k] in [exact[t] for t in few]]
            now = [k for k in range(len(z)) if leads(exact, choice.A, k)]
            if now != wanted:
                yield f"control_exactly: {now} lead, not {wanted}"


def answer_faults(z: Sequence[Point], targets: Sequence[int], found: Any) -> Iterator[str]:
    """A form by the definition, a proof by its minors."""
    if found.feasible:
        for i in targets:
            if not leads(z, found.A, i):
                yield f"control: token {i} does not lead under the matrix given"
    elif found.witness.reason in ("inside", "together"):
        yield from proof_faults(z, found.witness.proofs)


def proof_faults(z: Sequence[Point], proofs: Sequence[Any]) -> Iterator[str]:
    if not proofs:
        yield "impossible without a proof"
    for proof in proofs:
        if not refutes(z, proof):
            yield f"not a proof: {proof}"


def leads(z: Sequence[Point], A: Any, i: int) -> bool:
    """<A z_i, z_i - z_j> > 0 for all z_j that differ."""
    form = [[Fraction(float(x)) for x in row] for row in A]
    query = [_dot(row, z[i]) for row in form]
    return all(z[j] == z[i] or _dot(query, _minus(z[i], z[j])) > 0 for j in range(len(z)))


def refutes(z: Sequence[Point], proof: Sequence[tuple[int, int, Fraction]]) -> bool:
    """Is sum w <A z_i, z_i - z_j> <= 0 for all A > 0, and a positive sum if all are kept?"""
    d = len(z[0])
    S = [[Fraction(0)] * d for _ in range(d)]
    for i, j, w in proof:
        y = z[i] if j < 0 else _minus(z[i], z[j])
        for a in range(d):
            for b in range(d):
                S[a][b] += w * (z[i][a] * y[b] + y[a] * z[i][b])
    sides = [c for size in range(1, d + 1) for c in combinations(range(d), size)]
    negative = all(
        (-1) ** len(c) * _determinant([[S[a][b] for b in c] for a in c]) >= 0 for c in sides
    )
    return negative and (any(w > 0 for *_, w in proof) or any(map(any, S)))


def can_lead(z: Sequence[Point], i: int) -> bool:
    """z_i is in no simplex of other tokens and 0; one that nobody differs from always leads."""
    others = {p for p in z if p != z[i]}
    if not any(z[i]):
        return not others
    corners = sorted(others | {tuple(Fraction(0) for _ in z[i])})
    d = len(z[i])
    return not any(
        _within(z[i], simplex)
        for size in range(1, d + 2)
        for simplex in combinations(corners, size)
    )


def _within(p: Point, simplex: Sequence[Point]) -> bool:
    """Barycentric coordinates by elimination; a flat simplex is left to its faces."""
    size, d = len(simplex), len(p)
    M = [[*(q[a] for q in simplex), p[a]] for a in range(d)] + [[Fraction(1)] * (size + 1)]
    for c in range(size):
        pivot = next((r for r in range(c, d + 1) if M[r][c]), None)
        if pivot is None:
            return False
        M[c], M[pivot] = M[pivot], M[c]
        for r in range(d + 1):
            if r != c and M[r][c]:
                f = M[r][c] / M[c][c]
                M[r] = [x - f * y for x, y in zip(M[r], M[c], strict=True)]
    solvable = not any(M[r][size] for r in range(size, d + 1))
    return solvable and all(M[c][size] / M[c][c] >= 0 for c in range(size))


def _dot(x: Sequence[Fraction], y: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def _minus(x: Point, y: Point) -> Point:
    return tuple(a - b for a, b in zip(x, y, strict=True))


def _determinant(M: list[list[Fraction]]) -> Fraction:
    if not M:
        return Fraction(1)
    minors = ([row[:c] + row[c + 1 :] for row in M[1:]] for c in range(len(M)))
    return sum(((-1) ** c * M[0][c] * _determinant(m) for c, m in enumerate(minors)), Fraction(0))
