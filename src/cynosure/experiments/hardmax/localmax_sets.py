"""Localmax: tokens that look at all nearly best ones, and the sets that come to rest.

    C_i = { j : <z_i, z_j> >= max_l <z_i, z_l> - delta },   z_i <- rho z_i + eta (mean over C_i)

Between hardmax (delta = 0) and uniform attention (arXiv 2509.15958). A set Q of tokens is called
quiescent here when every token of Q looks at Q exactly: then its mean stays and its tokens approach
it by the factor rho a layer, since z_i' - m = rho (z_i - m). See: in the end (nearly) all tokens
are in quiescent sets, whose number falls from that of the leaders of hardmax to 1 as delta grows.
Under hardmax a set at rest is a single leader, which nobody joins; under localmax sets grow, since
followers that come near are taken up and then move the mean, so that a vertex is no longer a token
of the start. Where all tokens are in quiescent sets that do not change any more, the end is
approached by the factor rho a layer; where some only follow, more slowly.

Beside it: delta = 0 by `Hardmax`, exact; other n, d, alpha; tokens of equal length, which hardmax
does not move at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import (
    Progress,
    at_most,
    counted,
    over_grid,
    part,
    report_of,
    require,
    resampled,
    wilson,
)

TITLE = "Localmax: quiescent sets between hardmax and uniform attention"
NEAR = 1e-6  # of the longest token: tokens nearer than this are one cluster


@dataclass(frozen=True)
class Params:
    """`starts` starts of n Gaussian tokens of R^d under each of `deltas`, in units of the longest
    squared length (0: hardmax); `varied` are (n, d, alpha, equal lengths?) besides, at `some`."""

    deltas: tuple[float, ...] = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    n: int = 40
    d: int = 2
    alpha: float = 1.0
    layers: int = 120
    starts: int = 30
    some: tuple[float, ...] = (0.0, 0.03, 0.3)
    varied: tuple[tuple[int, int, float, bool], ...] = (
        (12, 2, 1.0, False),
        (100, 2, 1.0, False),
        (40, 5, 1.0, False),
        (40, 2, 0.3, False),
        (40, 2, 1.0, True),
    )
    seed: int = 0


QUICK = Params(
    deltas=(0.0, 0.03, 0.3),
    n=12,
    layers=60,
    starts=4,
    some=(0.0, 0.3),
    varied=((12, 2, 1.0, True),),
)


class Sets(NamedTuple):
    """The starts of one cell, one entry each."""

    delta: float
    n: int
    d: int
    alpha: float
    equal: bool
    clusters: list[int]
    quiet: list[float]  # share of the tokens in a quiescent set at the end
    found: list[int]  # quiescent sets that were seen at some layer
    grown: list[int]  # of these no longer one at the layer after
    split: list[int]  # of these with tokens that look at different sets at the end
    rested: list[int]  # first layer from which all sets stay as at the end
    rate: list[float]  # factor a layer of the steps once no set changes; NaN: too few to fit
    off: float  # largest |z_i' - m - rho (z_i - m)| in a quiescent set, over the longest token

    def mean(self, name: str) -> float:
        values = np.array(getattr(self, name), dtype=float)
        some = values[np.isfinite(values)]
        return float(some.mean()) if len(some) else float("nan")

    def told(self, name: str) -> str:
        low, high = resampled(getattr(self, name))
        return f"{self.mean(name):.3g} (95 %: {low:.3g} to {high:.3g})"


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every delta, then other sizes, steps and starts."""
    sensible = min(p.n, p.starts) >= 2 and p.layers >= 40 and 0.0 in p.deltas
    require(sensible, "n, starts >= 2, layers >= 40, deltas with 0", p)
    plain = [(p.n, p.d, p.alpha, False)]
    cells = over_grid(_cell, p, {"delta": p.deltas, "start": plain}, part(progress, 0, 0.6))
    others = over_grid(_cell, p, {"delta": p.some, "start": p.varied}, part(progress, 0.6, 1))
    every = [*cells, *others]
    law = at_most(
        "quiescent sets",
        "arXiv 2509.15958; one line: all tokens of Q move towards the mean of Q",
        "in a quiescent set the mean stays and distances to it shrink by rho a layer",
        max(c.off for c in every),
        1e-14 * (16 + max(c.n for c in every)),  # rounding of a mean of n tokens
        cells=len(every),
    )
    return report_of(
        __name__,
        p,
        _summary(p, cells),
        controls=_controls(p, cells, others),
        tables=[_table("Sensitivities", cells), _table("Other sizes, steps, starts", others)],
        checks={"sets": [law]},
        figures=[
            cy.Picture("Clusters and quiescent sets against delta", _CURVES, _curves(cells)),
            cy.Picture("One start", _PANELS, _panels(p)),
        ],
    )


def _start(p: Params, n: int, d: int, equal: bool, seed: int) -> np.ndarray:
    z = np.random.default_rng([p.seed, seed]).standard_normal((n, d))
    return z / np.linalg.norm(z, axis=1, keepdims=True) if equal else z


def _cell(p: Params, delta: float | int, size: tuple[int, int, float, bool]) -> Sets:
    n, d, alpha, equal = size
    found = [_measured(p, delta, alpha, _start(p, n, d, equal, s)) for s in range(p.starts)]
    *columns, off = (list(column) for column in zip(*found))
    measured: dict[str, Any] = dict(zip(Sets._fields[5:-1], columns))
    return Sets(delta=delta, n=n, d=d, alpha=alpha, equal=equal, **measured, off=max(off))


def _rule(delta: float | int, z: np.ndarray) -> Any:
    longest = float((z**2).sum(axis=1).max())
    return cy.Localmax(delta * longest) if delta else cy.Hardmax()


def _measured(
    p: Params, delta: float | int, alpha: float | int, z0: np.ndarray
) -> tuple[int, float, int, int, int, int, float, float]:
    """Clusters, quiet share, quiescent sets found, grown and split, rest, rate, error."""
    tr = cy.simulate(cy.PureAttention(_rule(delta, z0), alpha), z0, layers=p.layers)
    z, longest = tr.values, float(np.linalg.norm(z0, axis=1).max())
    sees = _seen(tr, delta)
    quiet = np.array([_quiescent(B) for B in sees])
    groups = [{tuple(np.flatnonzero(B[i])) for i in np.flatnonzero(q)} for B, q in zip(sees, quiet)]
    grown = sum(len(a - b) for a, b in pairwise(groups))
    every = set().union(*groups)
    split = sum(not (sees[-1][list(Q)] == sees[-1][Q[0]]).all() for Q in every)
    off, rho = 0.0, 1 / (1 + alpha)
    for k, sets in enumerate(groups[:-1]):
        for Q in map(list, sets):
            m = z[k, Q].mean(axis=0)
            off = max(off, float(np.abs(z[k + 1, Q] - m - rho * (z[k, Q] - m)).max()))
    same = (sees == sees[-1]).all(axis=(1, 2))
    rested = int(p.layers + 1 - np.argmin(same[::-1])) if not same.all() else 0
    steps = np.linalg.norm(np.diff(z, axis=0), axis=2).max(axis=1)
    late = np.flatnonzero(steps > 1e-10 * longest)
    late, rate = late[late >= rested], float("nan")
    if len(late) > 3:
        rate = float(np.exp(np.polyfit(late, np.log(steps[late]), 1)[0]))
    count, share = cy.clusters(z[-1], tol=NEAR * longest).count, float(quiet[-1].mean())
    return count, share, len(every), grown, split, rested, rate, off / longest


def _seen(tr: cy.Trajectory, delta: float | int) -> np.ndarray:
    """Who looks at whom, (layers + 1, n, n); for hardmax as the certified walk says."""
    if delta:
        return np.array([tr.made_by.weights(z) > 0 for z in tr.values])
    roles = cy.roles(tr)
    return np.array([roles.followed(k).weights() > 0 for k in range(len(tr))])


def _quiescent(B: np.ndarray) -> np.ndarray:
    """True for tokens i whose set C_i contains i and is the set of each of its members."""
    same = (B[:, None, :] == B[None, :, :]).all(axis=-1)
    return np.diag(B) & (~B | same).all(axis=1)


def _table(title: str, cells: list[Sets]) -> cy.Table:
    columns: dict[str, Any] = {
        "delta": lambda c: c.delta or "0 (hardmax)",
        **{name: name for name in ("n", "d", "alpha")},
        "equal lengths": "equal",
        "clusters": lambda c: c.mean("clusters"),
        "tokens in a quiescent set": lambda c: c.mean("quiet"),
        "quiescent sets seen": lambda c: c.mean("found"),
        "grown later": lambda c: c.mean("grown"),
        "split at the end": lambda c: c.mean("split"),
        "sets at rest from layer": lambda c: c.mean("rested"),
        "factor a layer": lambda c: c.mean("rate"),
    }
    note = "Means over the starts; delta in units of the longest squared length at the start."
    return cy.Table.of(title, cells, columns, note)


def _controls(p: Params, cells: list[Sets], others: list[Sets]) -> list[cy.Comparison]:
    soft = [c for c in (*cells, *others) if c.delta]
    hard = [c for c in (*cells, *others) if not c.delta]
    means = [c.mean("clusters") for c in cells]
    seen, grown, split = (_total(soft, name) for name in ("found", "grown", "split"))
    zero, one = cells[0], cells[-1]
    even = [c for c in others if c.equal]
    rates = [
        (share == 1, (1 + c.alpha) * rate)
        for c in soft
        for share, rate in zip(c.quiet, c.rate)
        if np.isfinite(rate)
    ]
    quiet, slow = ([x for all_quiet, x in rates if all_quiet is which] for which in (True, False))
    return [
        cy.Comparison(
            "The number of clusters falls from that of hardmax as delta grows.",
            "hardmax, exact; other n, d and alpha in the table",
            "; ".join(f"{c.delta:g}: {c.told('clusters')}" for c in cells),
            all(a >= b for a, b in pairwise(means))
            and resampled(zero.clusters)[0] > resampled(one.clusters)[1],
        ),
        cy.Comparison(
            "Quiescent sets of localmax grow; their tokens stay together.",
            "hardmax, whose leaders stay alone (B5); every delta, n, d and alpha",
            f"grown: {counted(grown, seen)}, split at the end: {counted(split, seen)}; hardmax "
            f"{_total(hard, 'grown')} and {_total(hard, 'split')} of {_total(hard, 'found')}",
            wilson(split, seen)[1] < 0.05 and grown > seen / 2 and not _total(hard, "grown"),
        ),
        cy.Comparison(
            "In quiescent sets at rest the end is approached by the factor rho a layer.",
            "alpha, n, d and delta; starts where some token is in no quiescent set",
            f"factor over rho from {min(quiet):.4f} to {max(quiet):.4f} in {len(quiet)} starts; "
            + (
                f"where some only follow from {min(slow):.3f} to {max(slow):.3f} in {len(slow)}"
                if slow
                else "none where some only follow"
            ),
            all(abs(x - 1) < 0.001 for x in quiet),
        ),
        *(
            cy.Comparison(
                "Tokens of equal length move under localmax.",
                "hardmax, which does not move them (B13)",
                "; ".join(f"delta {c.delta:g}: {c.told('clusters')} clusters" for c in even),
                all((c.mean("clusters") == c.n) == (c.delta == 0) for c in even),
            )
            for _ in even[:1]
        ),
    ]


def _total(cells: list[Sets], name: str) -> int:
    return sum(sum(getattr(c, name)) for c in cells)


def _summary(p: Params, cells: list[Sets]) -> str:
    told = [
        f"delta = {c.delta:g}: {c.mean('clusters'):.3g} clusters, {c.mean('quiet'):.0%} of the "
        f"tokens in a quiescent set, sets at rest from layer {c.mean('rested'):.3g}"
        for c in cells
    ]
    soft = [c for c in cells if c.delta]
    grown, split, seen = (_total(soft, name) for name in ("grown", "split", "found"))
    return (
        f"{p.n} Gaussian tokens of R^{p.d}, alpha = {p.alpha:g}, {p.starts} starts. "
        f"{'; '.join(told)}. Of the quiescent sets seen under localmax {counted(grown, seen)} "
        f"grew later, and {counted(split, seen)} had been split at the end. Largest error of "
        f"the law of quiescent sets: {max(c.off for c in cells):.1g} of the longest token."
    )


_CURVES = (
    "Means over the starts with 95 % intervals; the first point is hardmax. Left: clusters at the "
    "end. Middle: share of the tokens that are in a quiescent set at the end; the others follow "
    "one. Right: the layer from which no set changes any more."
)
_PANELS = (
    "Paths of one start (circles) to the end (squares), shaded the hull of the ends. Hardmax sends "
    "tokens to single leaders, which do not move; under localmax neighbours of a vertex draw each "
    "other off it, and the hull is smaller."
)


def _curves(cells: list[Sets]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4, 3.5)
    names = {
        "clusters": "clusters",
        "quiet": "tokens in a quiescent set",
        "rested": "sets at rest from layer",
    }
    least = min(c.delta for c in cells if c.delta)
    for ax, (name, label) in zip(axes[0], names.items()):
        mean = np.array([c.mean(name) for c in cells])
        bars = np.abs(np.array([resampled(getattr(c, name)) for c in cells]).T - mean)
        look: dict[str, Any] = {"ms": 4, "capsize": 2, "lw": 1, "color": cy.plot.PALETTE[0]}
        ax.errorbar([c.delta for c in cells], mean, bars, fmt="o-", **look)
        ax.set_xscale("symlog", linthresh=least)
        ax.set(xlabel="delta / longest squared length", ylabel=label)
        ax.set_ylim(bottom=0)
    return figure


def _panels(p: Params) -> Any:
    some = [0.0, *[delta for delta in p.deltas if delta > 0][len(p.deltas) // 3 :: 2]][:4]
    figure, axes = cy.plot.sheet(1, len(some), 3.4, 3.3)
    z0 = _start(p, p.n, 2, False, 0)
    for ax, delta in zip(axes[0], some):
        dynamics = cy.PureAttention(_rule(delta, z0), p.alpha)
        z = cy.simulate(dynamics, z0, layers=p.layers).values
        cy.plot.shade(ax, cy.hull(z[-1]))
        ax.plot(z[..., 0], z[..., 1], color=cy.plot.GREY, lw=0.6, zorder=1)
        ax.plot(*z[0].T, "o", mfc="white", color=cy.plot.PALETTE[0], ms=4, label="start")
        ax.plot(*z[-1].T, "s", color=cy.plot.PALETTE[1], ms=5, label="end")
        ax.set(aspect="equal", title=f"delta = {delta:g}" if delta else "hardmax")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    return figure
