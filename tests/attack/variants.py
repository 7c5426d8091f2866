"""Hardmax in other clothes: causal, with positions, in heads, in arrays of any layout."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import cynosure as cy

from . import compare
from .cases import Case
from .oracle import Layer, Run, dot, followed, integers, step
from .package import Package, dynamics


def causal(case: Case, package: Package) -> Iterator[str | int]:
    """Causal hardmax decides each layer on its rounded tokens: those sets, and single layers."""
    A = None if case.A is None else np.array(case.A, dtype=float)
    attention = cy.attention.Causal(cy.Hardmax(A))
    tr = package.simulate(
        cy.PureAttention(attention, case.alpha), np.array(case.z[0], float), layers=2
    )
    form = None if case.A is None else integers(case.A)[0]
    eta = Fraction(case.alpha) / (1 + Fraction(case.alpha))
    for k, state in enumerate(tr.values):
        rows, unit = integers(state.tolist())
        sets = followed(rows, form, causal=True)
        weights = package.ask(attention.weights, state)
        for i, c in enumerate(sets):
            given = np.flatnonzero(weights[i]).tolist()
            if given != list(c):
                yield f"layer {k}: causal C_{i} = {list(c)}, not {given}"
                return
        if k + 1 < len(tr.values):
            moved, factor = step(rows, sets, eta)
            within = compare.Room.of(state.tolist()).at(1)
            for i, row in enumerate(tr.values[k + 1].tolist()):
                exact = [Fraction(x, unit * factor) for x in moved[i]]
                if compare.far(row, exact, within):
                    yield f"layer {k + 1}: token {i} is at {compare.show(exact)}, not {row}"
                    return
    plain = package.ask(cy.Hardmax(A).followed, np.array(case.z[0], float))
    run = Run(case.z[0], case.A)
    given = [plain[i].tolist() for i in range(len(plain))]
    yield from compare.set_faults(run[0], 0, given, range(len(plain)))


def rotary(case: Case, package: Package) -> Iterator[str | int]:
    """Sets of the turned queries and keys as floats: those of integers on the same floats."""
    A = None if case.A is None else np.array(case.A, dtype=float)
    attention = cy.attention.Rotary(cy.Hardmax(A))
    z = np.array(case.z[0], dtype=float)
    queries, keys, _ = package.ask(attention.sides, z)
    whole, unit = integers(keys.tolist())
    sets = []
    for row in integers(queries.tolist())[0]:
        scores = [dot(row, key) for key in whole]
        sets.append(tuple(j for j, s in enumerate(scores) if s == max(scores)))
    given = package.ask(attention.followed, z)
    layer = Layer(whole, unit, tuple(sets))
    indices = [given[i].tolist() for i in range(len(z))]
    yield from compare.set_faults(layer, 0, indices, range(len(z)))
    tr = package.simulate(cy.PureAttention(attention, case.alpha), z, layers=1)
    yield from _next_faults(z, [(Fraction(1), tuple(sets))], case.alpha, tr.values[1])


def heads(case: Case, package: Package) -> Iterator[str | int]:
    """Three heads of hardmax, averaged: each pulls to the mean of its own exact sets."""
    z = np.array(case.z[0], dtype=float)
    d = z.shape[1]
    forms = [case.A, None, tuple(tuple(-float(a == b) for b in range(d)) for a in range(d))]
    parts = [cy.Hardmax(None if A is None else np.array(A, dtype=float)) for A in forms]
    tr = package.simulate(cy.PureAttention(cy.attention.Heads(parts), case.alpha), z, layers=1)
    sets = [(Fraction(1, len(forms)), Run(case.z[0], A)[0].sets) for A in forms]
    yield from _next_faults(z, sets, case.alpha, tr.values[1])


def _next_faults(z: np.ndarray, heads: Any, alpha: Any, given: np.ndarray) -> Iterator[str]:
    """One layer in rationals; `heads` are the share and the sets of each."""
    eta = Fraction(alpha) / (1 + Fraction(alpha))
    exact = [[Fraction(x) for x in row] for row in z.tolist()]
    within = compare.Room.of(z.tolist()).at(1)
    for i, row in enumerate(exact):
        moved = []
        for c, x in enumerate(row):
            pull = sum(
                share * sum(exact[j][c] for j in sets[i]) / len(sets[i]) for share, sets in heads
            )
            moved.append(x + eta * (pull - x))
        if compare.far(given[i].tolist(), moved, within):
            yield f"token {i} is at {compare.show(moved)}, not {given[i].tolist()}"
            return


def layouts(case: Case, package: Package) -> Iterator[str | int]:
    """The same numbers in another array, or fewer layers of them kept: the same answers."""
    z = np.array(case.z[0], dtype=float)
    layers = min(case.layers, 6)
    plain = package.simulate(dynamics(case), z, layers=layers)
    every = 1 + case.turn % 3
    few = package.simulate(dynamics(case), _laid_out(z, case.turn), layers=layers, save_every=every)
    for k, state in zip(few.t.tolist(), few.values, strict=True):
        if not np.array_equal(state, plain.values[int(k)]):
            yield f"layer {k} differs in another layout, kept every {every} layers"
    for name in ("born", "settled_at", "leader"):
        if (getattr(few.history, name) != getattr(plain.history, name)).any():
            yield f"{name} differs in another layout"
    one = package.limit(dynamics(case), z)
    two = package.limit(dynamics(case), _laid_out(z, case.turn + 1))
    if not np.array_equal(one.points, two.points) or (one.rule != two.rule).any():
        yield "the limit differs in another layout"
    yield compare.open_count(one)


def _laid_out(z: np.ndarray, turn: int) -> Any:
    wide = np.full((2 * len(z), 3 * z.shape[1]), np.nan)
    wide[::2, 1::3] = z
    frozen = z.copy()
    frozen.flags.writeable = False
    ways = (
        np.asfortranarray(z),
        z.astype(">f8"),
        wide[::2, 1::3],
        np.ascontiguousarray(z[::-1])[::-1],
        frozen,
        z.tolist(),
        [[Fraction(x) for x in row] for row in z.tolist()],
    )
    return ways[turn % len(ways)]
