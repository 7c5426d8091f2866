"""Leaders that are born after layer 0: how often, when, from where, and for which alpha.

A token that follows others can overshoot the hyperplane of its own score and lead from then on
(arXiv 2407.01602, Figure 2; the leaders of all layers are the vertices of the limiting polytope).
See: it is rare (percents of the starts), comes early, starts at a vertex of the first hull or
inside it, and depends on alpha in a way that is not monotone: the number of leaders of one fixed
start is a piecewise constant function of alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, all_of, over_grid, part, report_of, require, silent
from .._measurements import kept

TITLE = "Emergent leaders: born after layer 0"


@dataclass(frozen=True)
class Params:
    """Grid of (d, n, alpha), Gaussian starts per cell, and the sweep over alpha of fixed starts."""

    d: tuple[int, ...] = (2, 3, 4, 8)
    n: tuple[int, ...] = (10, 30, 100, 300)
    alpha: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0)
    starts: int = 400
    sweep: int = 600
    scanned: int = 100
    scanned_n: int = 40
    drawn: int = 3
    seed: int = 0


QUICK = Params(d=(2, 4), n=(10, 30), alpha=(0.5, 2.0), starts=80, sweep=80, scanned=25, drawn=2)


class Birth(NamedTuple):
    """One leader born late."""

    layer: int
    vertex: bool  # of the hull of the start


class BirthCensus(NamedTuple):
    """Leaders and late births in the Gaussian starts of one (d, n, alpha)."""

    d: int
    n: int
    alpha: float
    runs: int
    certified: int
    with_births: int  # runs
    leaders: int
    births: tuple[Birth, ...]

    @property
    def rate(self) -> float:
        """Share of the runs with a leader born late."""
        return self.with_births / self.runs


class AlphaSweep(NamedTuple):
    """|L| against alpha for one fixed start."""

    start: str
    alpha: np.ndarray
    leaders: np.ndarray
    certified: int

    @property
    def jumps(self) -> list[str]:
        """The steps at which the number of leaders changes, to the resolution of the sweep."""
        at = np.flatnonzero(np.diff(self.leaders))
        return [f"{np.sqrt(self.alpha[i] * self.alpha[i + 1]):.3g}" for i in at]


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The census, then the sweep over alpha."""
    require(min(*p.d, *p.n, p.starts, p.sweep - 1) >= 1, "d, n, starts >= 1, sweep >= 2", p)
    axes = {"d": p.d, "n": p.n, "alpha": p.alpha}
    cells = over_grid(_census, p, axes, part(progress, 0, 0.6))
    varying, sweeps = kept(_sweep, p, progress=part(progress, 0.6, 0.9))
    settled = all_of(
        "settled",
        "arXiv 2407.01602; docs/mathematics.md B10",
        "from almost every start all tokens settle on leaders after finitely many layers",
        sum(c.certified for c in cells),
        sum(c.runs for c in cells),
    )
    census: dict[str, Any] = {
        **{"d": "d", "n": "n", "alpha": "alpha", "starts with one": "rate"},
        "share of leaders": lambda c: len(c.births) / c.leaders,
        "from inside": lambda c: sum(not b.vertex for b in c.births),
        "from a vertex": lambda c: sum(b.vertex for b in c.births),
        "latest layer": lambda c: max((b.layer for b in c.births), default=None),
        "certified": lambda c: f"{c.certified}/{c.runs}",
    }
    sweep: dict[str, Any] = {
        **{"start": "start", "values of alpha": "alpha.size"},
        **{"fewest": lambda s: s.leaders.min(), "most": lambda s: s.leaders.max()},
        "changes at alpha": lambda s: ", ".join(s.jumps),
        "certified": lambda s: f"{s.certified}/{s.alpha.size}",
    }
    tables = [
        cy.Table.of("Leaders born after layer 0", cells, census),
        _golden_table(),
        cy.Table.of("Leaders against alpha", sweeps, sweep),
    ]
    tr = cy.simulate(cy.PureAttention(alpha="1/2"), cy.configurations.golden("G1"), layers=8)
    caption = "Token 1 (inside) follows token 3, overshoots, and leads from layer 1 on."
    layers = cy.plot.layers(tr, show=(0, 1, 2, 8))
    golden = cy.Picture("Golden case G1, alpha = 1/2", caption, layers)
    pictures = [_steps(sweeps), _where_and_when(p, cells), golden]
    summary, checks = _summary(p, cells, varying, sweeps), {"census": [settled]}
    return report_of(__name__, p, summary, tables=tables, checks=checks, figures=pictures)


def _census(p: Params, d: int, n: int, alpha: float) -> BirthCensus:
    rng = np.random.default_rng([p.seed, d, n])
    starts = [rng.standard_normal((n, d)) for _ in range(p.starts)]
    limits = [cy.limit(cy.PureAttention(alpha=alpha), z) for z in starts]
    births = [_births(z, li) for z, li in zip(starts, limits)]
    return BirthCensus(
        d=d,
        n=n,
        alpha=alpha,
        runs=p.starts,
        certified=sum(li.certified for li in limits),
        with_births=sum(map(bool, births)),
        leaders=sum(len(li.leaders) for li in limits),
        births=tuple(birth for group in births for birth in group),
    )


def _births(z: np.ndarray, li: cy.Limit) -> list[Birth]:
    late = np.flatnonzero(li.born > 0).tolist()
    vertices = set(cy.hull(z).index.tolist()) if late else set()
    return [Birth(int(li.born[i]), i in vertices) for i in late]


def _sweep(p: Params, progress: Progress = silent) -> tuple[int, list[AlphaSweep]]:
    """How many of the starts scanned have a |L| that depends on alpha; G1 and the first of them."""
    starts = {"G1": cy.configurations.golden("G1")}
    varying = 0
    for s in range(p.scanned):
        progress(0.5 * s / p.scanned, "starts that depend on alpha")
        z = cy.configurations.gaussian(p.scanned_n, 2, p.seed + s)
        counts = {len(li.leaders) for li in _limits(z, np.geomspace(0.05, 20, 12))}
        varying += len(counts) > 1
        if len(counts) > 1 and len(starts) <= p.drawn:
            starts[f"Gaussian start {p.seed + s}"] = z
    alpha = np.geomspace(0.02, 50, p.sweep)
    sweeps: list[AlphaSweep] = []
    for name, z in starts.items():
        progress(0.5 + 0.5 * len(sweeps) / len(starts), f"sweep over alpha, {name}")
        limits = _limits(z, alpha)
        leaders = np.array([len(li.leaders) for li in limits])
        sweeps.append(AlphaSweep(name, alpha, leaders, sum(li.certified for li in limits)))
    return varying, sweeps


def _limits(z: np.ndarray, alpha: np.ndarray) -> list[cy.Limit]:
    return [cy.limit(cy.PureAttention(alpha=float(a)), z) for a in alpha]


def _summary(p: Params, cells: list[BirthCensus], varying: int, sweeps: list[AlphaSweep]) -> str:
    runs, hit = sum(c.runs for c in cells), sum(c.with_births for c in cells)
    most = max(cells, key=lambda c: c.with_births)
    births = [b for c in cells for b in c.births]
    layers, inside = [b.layer for b in births], sum(not b.vertex for b in births)
    text = (
        f"{hit} of {runs} runs from Gaussian starts ({hit / runs:.2%}) have a leader born after "
        f"layer 0, most often ({most.rate:.1%}) for d = {most.d}, n = {most.n}, alpha = "
        f"{most.alpha:g}; {len(births) / sum(c.leaders for c in cells):.2%} of all leaders are "
        "born late. "
    )
    if births:
        text += (
            f"Of these {len(births)}, {inside} started inside the hull and "
            f"{len(births) - inside} at a vertex of it; half are born by layer "
            f"{np.median(layers):g}, the last at layer {max(layers)}. "
        )
    ranges = "; ".join(
        f"{s.start}: {s.leaders.min()} to {s.leaders.max()} leaders, changing at "
        + " and ".join(s.jumps)
        for s in sweeps
    )
    alpha = sweeps[0].alpha
    return (
        f"{text}\n\nOf {p.scanned} Gaussian starts of {p.scanned_n} tokens in the plane "
        f"{varying} have a number of leaders that depends on alpha. Over alpha from "
        f"{alpha[0]:g} to {alpha[-1]:g}: {ranges}."
    )


def _golden_table() -> cy.Table:
    """The two starts whose births are known exactly, in rationals."""
    rows = []
    for name, alphas in (("G1", ("1/10", "1/2", "1", "2", "10")), ("G4", ("1/10", "1/2", "2"))):
        z = cy.configurations.golden_exact(name)
        for alpha in alphas:
            li = cy.limit(cy.PureAttention(alpha=alpha), z, exact=True)
            assert li.exact_points is not None
            late = [
                f"{i} at layer {li.born[i]}, {_short(li.exact_points[i])}"
                for i in np.flatnonzero(li.born > 0)
            ]
            rows.append((name, alpha, len(li.leaders), "; ".join(late) or "none", li.certified))
    columns = ("start", "alpha", "leaders", "born later (token, layer, place)", "certified")
    return cy.Table("Golden cases, in rationals", columns, tuple(rows))


def _short(token: tuple) -> str:
    """A rational token, in decimals where its fractions are long."""
    return "(" + ", ".join(str(x) if len(str(x)) < 12 else f"{float(x):.6f}" for x in token) + ")"


def _steps(sweeps: list[AlphaSweep]) -> cy.Picture:
    figure, axes = cy.plot.sheet(len(sweeps), 1, 8.4, 1.25 + 0.8 / len(sweeps), sharex=True)
    for ax, colour, sweep in zip(axes[:, 0], cy.plot.PALETTE, sweeps):
        ax.step(sweep.alpha, sweep.leaders, where="mid", color=colour, lw=1.3)
        ax.set(xscale="log", ylabel="leaders")
        ax.set_ylim(sweep.leaders.min() - 0.6, sweep.leaders.max() + 0.6)
        ax.set_title(sweep.start, loc="left", fontsize=cy.plot.LABEL)
        ax.locator_params(axis="y", nbins=3, integer=True)
    axes[-1, 0].set_xlabel(r"step $\alpha$")
    caption = (
        "Number of leaders at infinite depth for fixed starts. It jumps up and down with alpha: "
        "the step size decides who leads, not only how fast."
    )
    return cy.Picture("Leaders against alpha", caption, figure)


def _where_and_when(p: Params, cells: list[BirthCensus]) -> cy.Picture:
    from matplotlib.ticker import PercentFormatter

    figure, axes = cy.plot.sheet(1, 3, 4, 3.5)
    left, middle, right = axes[0]
    for ax, name, label in ((left, "n", "tokens n"), (middle, "alpha", r"step $\alpha$")):
        over = getattr(p, name)
        for colour, d in zip(cy.plot.PALETTE, p.d):
            groups = [[c for c in cells if (c.d, getattr(c, name)) == (d, x)] for x in over]
            rate = np.array([np.mean([c.rate for c in group]) for group in groups])
            starts = [len({c.n for c in group}) * p.starts for group in groups]
            error = np.sqrt(rate * (1 - rate) / starts)
            look = {"fmt": "o-", "ms": 4, "capsize": 2, "color": colour, "label": f"d = {d}"}
            ax.errorbar(over, rate, error, **look)
        ax.set(xscale="log", xlabel=label, ylabel="starts with a late leader")
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    left.legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper left")
    births = [b for c in cells for b in c.births]
    most = max((b.layer for b in births), default=1)
    places = ((-0.2, True, "vertex of the first hull"), (0.2, False, "inside it"))
    for colour, (shift, vertex, place) in zip(cy.plot.PALETTE, places):
        layers = [b.layer for b in births if b.vertex == vertex]
        count = np.bincount(layers, minlength=most + 1)[1:]
        right.bar(1 + shift + np.arange(most), count, 0.4, color=colour, label=place)
    right.set(xlabel="layer of birth", ylabel="leaders born", xlim=(0.4, max(most, 5) + 0.6))
    if births:
        right.set(yscale="log", ylim=(0.7, None))
    right.legend(frameon=False, fontsize=cy.plot.LABEL, title="where they started")
    right.locator_params(axis="x", nbins=8, integer=True)
    caption = (
        "Left and middle: share of Gaussian starts with at least one leader born later, against n "
        "(mean over alpha) and against alpha (mean over n), with a standard error for the number "
        "of different starts: those of one (d, n) are the same for every alpha."
    )
    return cy.Picture("Where and when", caption, figure)
