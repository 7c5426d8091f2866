"""The codimension-k conjecture of arXiv 2305.05465, tried on the paper's matrix and on random ones.

Conjecture: if k eigenvalues of V have positive real part, the rescaled tokens z_i = e^(-tV) x_i
tend to at most three parallel affine subspaces of codimension k. With f_1*, ..., f_k* the dual
eigenvectors this says: the points (f_1*(z_i), ..., f_k*(z_i)) of R^k have at most three limits.
For k = 1 it is the theorem on hyperplanes; for larger k nothing is proved. See the paper's example
(two positive eigenvalues, one negative: tokens end on lines) and, over random V, the number of
limits; from starts of another size and at other tolerances too. Tokens are followed in the
eigenbasis of V, where the growing components cannot drown the others in rounding.

Trap: count late. Where the second eigenvalue is near the first, scores along the leading direction
overtake the others only like e^(2 (l1 - l2) t), and until then a further group stands still as if
it were a limit; the table has the count at an earlier time beside the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, counted, over_grid, part, report_of, require
from .._measurements import kept

TITLE = "Codimension k: a conjecture tried"
PAPER_V = (
    (0.92761287, 0.94333073, 0.3827744),
    (0.94333073, 0.59991396, 0.47825472),
    (0.3827744, 0.47825472, 0.46668605),
)
KINDS = ("real", "complex pair")


@dataclass(frozen=True)
class Params:
    """Random V: (d, k) cells; eigenvalues in [least, 1] and, the rest, in [-1/2, 0]. The controls
    count at the tolerances `tols` and start in boxes of half a side `sides`."""

    n: int = 40
    side: float = 5.0
    show: tuple[float, ...] = (0.0, 0.5, 1.0, 3.0, 6.0)
    cells: tuple[tuple[int, int], ...] = ((2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (5, 3))
    least: float = 0.4
    matrices: int = 12
    tol: float = 1e-3
    tols: tuple[float, ...] = (1e-2, 1e-4)
    sides: tuple[float, ...] = (1.0,)
    seed: int = 0


QUICK = Params(cells=((3, 2),), matrices=2)


class LimitCensus(NamedTuple):
    """Random V of one kind: how many limits the leading k components have."""

    d: int
    k: int
    kind: str
    side: float
    early: list[int]  # groups at 3/5 of the time, for every V
    limits: list[int]
    others: list[tuple[int, ...]]  # the same at the other tolerances
    spread: float  # widest group, relative to the largest component
    gap: float | None  # smallest distance of two groups, likewise; None where all have one


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The paper's matrix, then the random ones."""
    sensible = all(1 <= k < d for d, k in p.cells) and 0 < p.least < 1
    require(sensible, "cells (d, k) with 1 <= k < d, 0 < least < 1", p)
    values, S = np.linalg.eigh(np.array(PAPER_V))  # symmetric, so S is orthogonal
    values, S = values[::-1], S[:, ::-1]
    times, stepper = np.linspace(0, 60, 601), cy.Adaptive(1e-9, 1e-12)
    w = kept(_in_eigenbasis, p, np.diag(values), S, p.seed, times, stepper)
    last = w.values[-1, :, :2]
    end = cy.clusters(last, p.tol * float(np.abs(last).max()))
    kinds = [(d, k, kind) for d, k in p.cells for kind in KINDS if kind == "real" or k >= 3]
    grid = {"half a side": (p.side, *p.sides), "random V (d, k, kind)": kinds}
    every = over_grid(_census, p, grid, part(progress, 0.1, 1))
    tried = every[: len(kinds)]
    # tolerances are relative to the longest token: judge before the growing component is huge
    early = replace(w, z=w.z[:201], t=w.t[:201])
    tokens = {"the paper's V": (replace(w, z=w.values @ S.T), end.labels)}
    figures = (
        cy.Picture("Tokens", _TOKENS, cy.plot.paths(tokens, p.show)),
        cy.Picture("Leading components", _LEADING, _components(w, end.labels)),
        cy.Picture("Number of limits", _COUNTS, _bars(tried)),
    )
    checks = {"the paper's V, t <= 20": cy.check(early, only=("B26",))}
    return report_of(
        __name__,
        p,
        _summary(p, values, end, tried),
        controls=_comparisons(p, tried, every),
        tables=[_table(p, every)],
        checks=checks,
        figures=figures,
    )


_TOKENS = (
    "Rescaled tokens for the paper's V, in the colour of the line they end on; along the direction "
    "of the negative eigenvalue they spread without bound."
)
_LEADING = (
    "The components along the two eigenvectors of positive eigenvalue. First the larger eigenvalue "
    "parts the tokens, then the smaller draws each part together, at its own slower rate."
)
_COUNTS = "Limits of the leading k components for random V: the conjecture allows three at most."


def _in_eigenbasis(
    p: Params, D: np.ndarray, S: np.ndarray, seed: int, times: np.ndarray, stepper: cy.Stepper
) -> cy.Trajectory:
    """z = S w for V = S D S^-1, Q = K = I: then w is the same flow with V = D, Q = K = S."""
    z0 = p.side * cy.configurations.box(p.n, len(D), seed)
    w0 = np.linalg.solve(S, z0.T).T
    return cy.simulate(cy.RescaledFlow(Q=S, K=S, V=D), w0, times=times, stepper=stepper)


def _random_modes(
    rng: np.random.Generator, d: int, k: int, kind: str, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """D with l1 = 1 and k - 1 more eigenvalues in [least, 1) by real part, S a random basis."""
    positive = np.sort(rng.uniform(least, 0.95, k - 1))[::-1]
    D = np.diag(np.concatenate([[1.0], positive, rng.uniform(-0.5, 0, d - k)]))
    if kind == "complex pair":  # the last two of the leading block turn while they shrink
        turn = rng.uniform(0.2, 1)
        D[k - 1, k - 1] = D[k - 2, k - 2]
        D[k - 2, k - 1], D[k - 1, k - 2] = -turn, turn
    S = np.linalg.qr(rng.standard_normal((d, d)))[0] + 0.3 * rng.standard_normal((d, d))
    return D, S


def _census(p: Params, side: float, case: tuple[int, int, str]) -> LimitCensus:
    from scipy.spatial.distance import pdist

    d, k, kind = case
    rng = np.random.default_rng([p.seed, d, k, len(kind)])
    times = np.array([0.0, 12 / p.least, 20 / p.least])
    # fixed steps: error control would follow every change of mind of tokens equal up to rounding
    stepper = cy.RK4(0.1)
    early, limits, others, spreads, gaps = [], [], [], [], []
    p = replace(p, side=side)
    for m in range(p.matrices):
        D, S = _random_modes(rng, d, k, kind, p.least)
        before, w = _in_eigenbasis(p, D, S, p.seed + m, times, stepper).values[1:, :, :k]
        size = float(np.abs(w).max())
        end = cy.clusters(w, p.tol * size)
        early.append(cy.clusters(before, p.tol * float(np.abs(before).max())).count)
        limits.append(end.count)
        others.append(tuple(cy.clusters(w, tol * size).count for tol in p.tols))
        spreads.append(float(np.abs(w - end.centres[end.labels]).max() / size))
        gaps += (pdist(end.centres) / size).tolist()
    spread, gap = max(spreads), min(gaps, default=None)
    return LimitCensus(
        d=d,
        k=k,
        kind=kind,
        side=side,
        early=early,
        limits=limits,
        others=others,
        spread=spread,
        gap=gap,
    )


def _summary(p: Params, values: np.ndarray, end: cy.Clusters, tried: list[LimitCensus]) -> str:
    limits = [count for case in tried for count in case.limits]
    early = [count for case in tried for count in case.early]
    several = [count for case in tried if case.k > 1 for count in case.limits]
    share = ", ".join(f"{c}: {several.count(c)}" for c in sorted(set(several)))
    over = sum(count > 3 for count in limits)
    verdict = f"none of {len(limits)} has more than three limits: no counterexample found."
    if over:
        doubt = "a counterexample, or a run that is not at its end (see the spread)"
        verdict = f"{over} of {len(limits)} have more than three limits: {doubt}."
    return (
        f"The paper's V has the eigenvalues {', '.join(f'{v:.3f}' for v in values)}; at t = 60 the "
        f"components along the first two have {end.count} limits ({', '.join(map(str, end.sizes))} "
        f"tokens): the tokens are on {end.count} parallel lines.\n\nRandom V at t = "
        f"{20 / p.least:g}: {verdict} Number of limits where k > 1 ({share}). In "
        f"{sum(a != b for a, b in zip(early, limits))} of them the count at t = {12 / p.least:g} "
        f"was another, up to {max(early)}: groups may stand still for long and merge after all. "
        "A count at a finite time is evidence, no proof."
    )


def _comparisons(
    p: Params, tried: list[LimitCensus], every: list[LimitCensus]
) -> list[cy.Comparison]:
    """Tolerances, the size of the start, and how much room the conjecture leaves."""
    limits = [count for case in every for count in case.limits]
    by_tol = {
        tol: [counts[j] for case in every for counts in case.others] for j, tol in enumerate(p.tols)
    }
    few = {p.tol: limits} | by_tol
    three = sum(count == 3 for case in tried for count in case.limits)
    total = sum(len(case.limits) for case in tried)
    return [
        cy.Comparison(
            "the leading k components have at most three limits",
            f"tolerances, starts of half a side {', '.join(f'{x:g}' for x in (p.side, *p.sides))}; "
            f"tokens that do not attend keep {p.n} places",
            "more than three at tolerance "
            + "; ".join(
                f"{t:g}: {counted(sum(c > 3 for c in found), len(found))}"
                for t, found in few.items()
            ),
            all(count <= 3 for count in limits),
        ),
        cy.Comparison(
            "the bound of three is reached",
            f"random V and starts, half a side {p.side:g}",
            f"exactly three limits: {counted(three, total)}",
            three > 0,
        ),
    ]


def _table(p: Params, tried: list[LimitCensus]) -> cy.Table:
    columns: dict[str, Any] = {
        "half a side": "side",
        "d": "d",
        "k": "k",
        "leading block": "kind",
        "matrices": lambda case: len(case.limits),
        "one": lambda case: case.limits.count(1),
        "two": lambda case: case.limits.count(2),
        "three": lambda case: case.limits.count(3),
        "more": lambda case: sum(count > 3 for count in case.limits),
        **{
            f"most, tol {tol:g}": lambda case, j=j: max(counts[j] for counts in case.others)
            for j, tol in enumerate(p.tols)
        },
        "most before": lambda case: max(case.early),
        "spread": "spread",
        "gap": "gap",
    }
    note = (
        f"At t = {20 / p.least:g}; groups parted by gaps above {p.tol:g} of the largest component. "
        f"Most before: largest count at t = {12 / p.least:g}. Spread: widest group; gap: nearest "
        "two groups; both relative, the worst of the cell."
    )
    return cy.Table.of("Limits of the leading k components", tried, columns, note)


def _components(w: cy.Trajectory, labels: np.ndarray) -> Any:
    figure, axes = cy.plot.sheet(1, 4, 3, 3.4)
    x, y = 1.1 * np.abs(w.values[..., :2]).max(axis=(0, 1))
    for ax, t in zip(axes[0], (0.0, 2.0, 8.0, 60.0)):
        k = w.nearest(t)
        cy.plot.dots(ax, w.values[k, :, :2], labels, s=22)
        ax.set_title(f"t = {w.t[k]:g}", fontsize=cy.plot.LABEL)
        ax.set(xlim=(-x, x), ylim=(-y, y), xlabel="$f_1^*(z_i)$")
    axes[0, 0].set_ylabel("$f_2^*(z_i)$")
    return figure


def _bars(tried: list[LimitCensus]) -> Any:
    from matplotlib.ticker import MaxNLocator

    figure, ((ax,),) = cy.plot.sheet(1, 1, 8.5, 3.4)
    bottom = np.zeros(len(tried))
    for c in range(1, 1 + max(count for case in tried for count in case.limits)):
        height = [case.limits.count(c) for case in tried]
        if any(height):
            look = {"color": cy.plot.PALETTE[c - 1], "label": f"{c} limit{'s' * (c > 1)}"}
            ax.bar(range(len(tried)), height, bottom=bottom, **look)
        bottom += height
    kinds = {"real": "", "complex pair": "\ncomplex pair"}
    names = [f"d = {case.d}, k = {case.k}{kinds[case.kind]}" for case in tried]
    ax.set_xticks(range(len(tried)), names, fontsize=cy.plot.LABEL)
    ax.set(ylabel="matrices", ylim=(0, 1.25 * bottom.max()))
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.legend(frameon=False, fontsize=cy.plot.LABEL, ncols=4, loc="upper center")
    ax.axhline(0, color=cy.plot.INK, lw=0.8)
    return figure
