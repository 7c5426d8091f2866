"""One case put to the package: the calls it makes, and the faults that come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

import cynosure as cy

from . import compare, leading, variants
from .cases import BATCHED, Case
from .oracle import Run, surely
from .package import Package, dynamics
from .starts import Tokens

Faults = Iterator[str]
BUDGET = 120_000  # multiplications of short numbers that the oracle may spend on a case


@dataclass(frozen=True)
class Verdict:
    """right, undecided or wrong; what was found, and how many tokens were left open."""

    outcome: str
    faults: tuple[str, ...] = ()
    open: int = 0


def judge(case: Case, longest: float = 0.0) -> Verdict:
    """Put the case to the package and compare every answer."""
    answers = _MODES.get(case.mode, _runs)(case, Package(longest))
    faults, open_ = [], 0
    for found in answers:
        if isinstance(found, int):
            open_ += found
        else:
            faults.append(found)
    outcome = "wrong" if faults else "undecided" if open_ else "right"
    return Verdict(outcome, tuple(faults[:6]), open_)


def exact_run(z: Tokens, case: Case) -> Run:
    """The oracle on one configuration, for as many layers as asked and affordable."""
    run = Run(z, case.A, case.alpha)
    run.extend(case.layers, _spending(run, BUDGET))
    return run


def _spending(run: Run, budget: float) -> Callable[[Run], bool]:
    """Says when the oracle has spent its budget: n n d products, dearer the longer the numbers."""
    d = len(run[0].rows[0])

    def enough(run: Run) -> bool:
        nonlocal budget
        n = len(set(run.layers[-1].rows))
        budget -= n * (n + d) * d * (1 + run.bits / 300)
        return budget < 0

    return enough


def _arrays(case: Case) -> tuple[np.ndarray, np.ndarray | None, list[list[int]]]:
    """Tokens and mask as the package wants them; the indices of the real tokens."""
    z = np.array(case.z, dtype=float)
    mask = None if case.mask is None else np.array(case.mask)
    real = [
        np.flatnonzero(row).tolist()
        for row in (np.ones(z.shape[:2], bool) if mask is None else mask)
    ]
    if case.mode in BATCHED:
        return z, mask, real
    return z[0], None if mask is None else mask[0], real


def _only(z: Tokens, real: list[int]) -> Tokens:
    return tuple(z[i] for i in real)


# -- simulate -------------------------------------------------------------------------------------


def _runs(case: Case, package: Package) -> Iterator[str | int]:
    """`simulate` of one configuration or a batch, with or without padding: every set and state."""
    z, mask, real = _arrays(case)
    runs = [exact_run(_only(x, keep), case) for x, keep in zip(case.z, real, strict=True)]
    layers = min(run.last for run in runs)
    for run in runs:
        del run.layers[layers + 1 :]
    single = case.turn % 5 == 0 and _short(z)
    given = z.astype(np.float32) if single else z
    tr = package.simulate(dynamics(case), given, layers=layers, mask=mask)
    states, history = tr.values, tr.history
    assert history is not None
    for b, (run, keep) in enumerate(zip(runs, real, strict=True)):
        at: Any = (b,) if case.mode in BATCHED else ()
        here = states[(slice(None), *at)]
        padding = [i for i in range(here.shape[1]) if i not in keep]
        if (here[:, padding] != here[:1, padding]).any():
            yield "padding moved"
        room = compare.Room.of(_only(case.z[b], keep), single)
        yield from compare.state_faults(run, here, keep, room)
        yield from compare.history_faults(
            run,
            history.born[at].tolist(),
            history.settled_at[at].tolist(),
            history.leader[at].tolist(),
            keep,
        )
        yield from _set_faults(package, run, tr.select(*at), keep)
    if case.mode == "masked single":
        for exact in (False, True):
            li = package.limit(dynamics(case), z, mask=mask, exact=exact)
            _reach(runs[0], li, real[0])
            yield from compare.limit_faults(runs[0], li, real[0], room)
            yield compare.open_count(li)


def _short(z: np.ndarray) -> bool:
    """True where the tokens are numbers of single precision."""
    with np.errstate(over="ignore", under="ignore"):
        return bool((z.astype(np.float32) == z).all())


def _set_faults(package: Package, run: Run, tr: Any, keep: list[int]) -> Faults:
    roles = cy.roles(tr)
    for k in range(run.last + 1):
        sets = package.ask(roles.followed, k)
        given = [sets[i].tolist() for i in range(len(sets))]
        faults = list(compare.set_faults(run[k], k, given, keep))
        yield from faults
        if faults:
            return


def _unnormalised(case: Case, package: Package) -> Iterator[str | int]:
    """The layer without normalisation: (1 + alpha)^k times the exact tokens."""
    run = exact_run(case.z[0], case)
    z = np.array(case.z[0], dtype=float)
    tr = package.simulate(
        dynamics(case, cy.dynamics.UnnormalizedAttention), z, layers=run.last, throw=False
    )
    assert tr.history is not None
    born = run.born(int(tr.t[-1]))  # the record ends where the floats do
    if tr.history.born.tolist() != born:
        yield f"born {tr.history.born.tolist()}, not {born}"
    growth, room = 1 + Fraction(case.alpha), compare.Room.of(case.z[0])
    for k, state in zip(tr.t.tolist(), tr.values.tolist(), strict=True):
        within = [4 * (k + 1) * growth**k * e for e in room.at(k)]
        for i, row in enumerate(state):
            exact = [growth**k * x for x in run[k].point(i)]
            if compare.far(row, exact, within):
                yield f"layer {k}: token {i} is at {compare.show(exact)}, not {row}"
                return


# -- limit ----------------------------------------------------------------------------------------


def _limits(case: Case, package: Package) -> Iterator[str | int]:
    """`limit` in floats and in rationals, against the oracle and against each other."""
    run, z = exact_run(case.z[0], case), case.z[0]
    real, room = list(range(len(z))), compare.Room.of(z)
    exact = package.limit(dynamics(case), z if case.rational else np.array(z), exact=True)
    _reach(run, exact, real)
    yield from compare.limit_faults(run, exact, real, room)
    yield compare.open_count(exact)
    if not case.rational:
        rounded = package.limit(dynamics(case), np.array(z))
        yield from compare.limit_faults(run, rounded, real, room)
        yield from compare.pair_faults(exact, rounded, real, room)
        yield compare.open_count(rounded)


def _reach(run: Run, li: Any, real: list[int]) -> None:
    """Let the oracle go to the layer from which the answer says it knows, if that is not far."""
    late = [
        int(li.settled_at[i]) for row, i in enumerate(real) if surely(run[run.last], row) is None
    ]
    needed = max(late, default=-1) + 10
    if run.last < needed <= 400:
        run.extend(needed, _spending(run, 20 * BUDGET))


def _transformed(case: Case, package: Package) -> Iterator[str | int]:
    """The same question asked in other words has the same answer."""
    z, room = np.array(case.z[0], dtype=float), compare.Room.of(case.z[0])
    one = package.limit(dynamics(case), z)
    turns = [_permute, _scale, _scale_form, _repeat, _sign]
    for t in range(len(turns)):
        found = turns[(case.turn + t) % len(turns)](case, z)
        if found is not None:
            other, moved, back = found
            two = back(package.limit(dynamics(other), moved))
            name = turns[(case.turn + t) % len(turns)].__name__
            real = range(len(z))
            yield from (f"{name}: {fault}" for fault in compare.pair_faults(one, two, real, room))
            yield min(compare.open_count(one), compare.open_count(two))
            return


Turn = tuple[Case, np.ndarray, Callable[[Any], Any]] | None


def _permute(case: Case, z: np.ndarray) -> Turn:
    order = np.random.default_rng(case.turn).permutation(len(z))
    place = np.argsort(order)  # where token i went

    def back(li: Any) -> Any:
        return _reindexed(li, place, li.points[place], order)

    return case, z[order], back


def _scale(case: Case, z: np.ndarray) -> Turn:
    k = int(np.random.default_rng(case.turn).choice([-900, -300, -40, -1, 1, 7, 60, 300, 900]))
    with np.errstate(over="ignore", under="ignore"):
        moved = np.ldexp(z, k)
        if not np.isfinite(moved).all() or (np.ldexp(moved, -k) != z).any():
            return None
        small = np.abs(moved[moved != 0])
    if len(small) and small.min() < 1e-290:  # floats near the end of the range round more coarsely
        return None
    return case, moved, lambda li: replace(li, points=np.ldexp(li.points, -k))


def _scale_form(case: Case, z: np.ndarray) -> Turn:
    k = int(np.random.default_rng(case.turn).choice([-900, -300, -40, -1, 1, 7, 60, 300, 900]))
    A = np.eye(z.shape[1]) if case.A is None else np.array(case.A)
    with np.errstate(over="ignore", under="ignore"):
        moved = np.ldexp(A, k)
        if not np.isfinite(moved).all() or (np.ldexp(moved, -k) != A).any():
            return None
    return replace(case, A=tuple(map(tuple, moved.tolist()))), z, lambda li: li


def _repeat(case: Case, z: np.ndarray) -> Turn:
    """Every token as often: means do not change."""
    times = 2 + case.turn % 2
    first = np.arange(len(z))
    if len(z) > 60:
        return None
    return case, np.tile(z, (times, 1)), lambda li: _reindexed(li, first, li.points[: len(z)], None)


def _sign(case: Case, z: np.ndarray) -> Turn:
    """An orthogonal map of the axes commutes with the layers of A = I."""
    if case.A is not None:
        return None
    rng = np.random.default_rng(case.turn)
    axes, signs = rng.permutation(z.shape[1]), rng.choice([-1.0, 1.0], z.shape[1])
    back = np.argsort(axes)
    return (
        case,
        z[:, axes] * signs,
        lambda li: replace(li, points=(li.points * signs)[:, back]),
    )


def _reindexed(li: Any, place: np.ndarray, points: np.ndarray, order: np.ndarray | None) -> Any:
    """A limit read at other indices; `order` gives the old name of a leader."""
    follows = li.follows[place]
    if order is not None:
        follows = np.where(follows >= 0, order[follows], -1)
    return replace(
        li,
        points=points,
        born=li.born[place],
        settled_at=li.settled_at[place],
        rule=li.rule[place],
        follows=follows,
        margin=li.margin[place],
        leaders=np.flatnonzero(li.born[place] >= 0),
    )


_MODES: dict[str, Callable[[Case, Package], Iterator[str | int]]] = {
    "limit": _limits,
    "transformed": _transformed,
    "unnormalised": _unnormalised,
    "causal": variants.causal,
    "rotary": variants.rotary,
    "heads": variants.heads,
    "layouts": variants.layouts,
    "control": leading.control,
}


def warm_up() -> None:
    """Compile what the cases need, so that no case pays for it."""
    square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0], [0.5, 0.0]])
    cy.control_exactly(square[:4] + [[0, 0.5], [0, 0], [0, 0], [0, 0]], [1, 2], tries=1)
    for d in (1, 2, 3, 6):
        z = np.concatenate((square, square, square), axis=1)[:, :d]
        for A in (None, np.eye(d) + np.ones((d, d))):
            layers = cy.PureAttention(cy.Hardmax(A))
            cy.limit(layers, z)
            cy.simulate(layers, np.stack((z, z)), layers=2)
            cy.simulate(layers, np.tile(z, (80, 1)), layers=2)
