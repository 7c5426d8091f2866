"""Leaders that are born after layer 0: how often, when, from where, and for which alpha.

A token that follows others can overshoot the hyperplane of its own score and lead from then on
(arXiv 2407.01602, Figure 2; the leaders of all layers are the vertices of the limiting polytope).
See: it is rare (percents of the starts in low dimension, more often for heavy tails, hardly ever in
high dimension) and starts at a vertex of the first hull or inside it. The number of leaders of one
fixed start is a piecewise constant function of alpha, constant for most starts, for a few in a
hundred (in the plane) not, and then not always monotone. How late a leader may be born has no bound
seen here: small steps and heavy tails give later layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import (
    Progress,
    all_of,
    counted,
    over_grid,
    part,
    report_of,
    require,
    silent,
    wilson,
)
from .._measurements import kept

TITLE = "Emergent leaders: born after layer 0"


@dataclass(frozen=True)
class Params:
    """Grid of (d, n, alpha), Gaussian starts per cell, and the sweep over alpha of fixed starts.

    `laws` are run besides, `law_n` tokens in the plane at every `law_alpha`; "student" is the t law
    with two degrees of freedom. `scanned` starts of `scanned_n` tokens are swept in each
    `scanned_d`.
    """

    d: tuple[int, ...] = (2, 3, 4, 8)
    n: tuple[int, ...] = (10, 30, 100, 300)
    alpha: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0)
    starts: int = 400
    sweep: int = 600
    scanned: int = 100
    scanned_n: int = 40
    scanned_d: tuple[int, ...] = (2, 8)
    laws: tuple[str, ...] = ("gaussian", "box", "ball", "student")
    law_alpha: tuple[float, ...] = (0.01, 0.5, 2.0)
    law_n: int = 100
    law_starts: int = 200
    drawn: int = 3
    seed: int = 0


QUICK = Params(
    d=(2, 4),
    n=(10, 30),
    alpha=(0.5, 2.0),
    starts=80,
    sweep=80,
    scanned=25,
    drawn=2,
    law_alpha=(0.1, 1.0),
    law_n=30,
    law_starts=40,
)


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
    law: str = "gaussian"

    @property
    def latest(self) -> int | None:
        return max((b.layer for b in self.births), default=None)

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
    sensible = min(*p.d, *p.n, p.starts, p.law_starts, p.sweep - 1) >= 1
    require(sensible and set(p.laws) <= set(LAWS), "d, n, starts >= 1, sweep >= 2, known laws", p)
    axes = {"d": p.d, "n": p.n, "alpha": p.alpha}
    cells = over_grid(_census, p, axes, part(progress, 0, 0.5))
    laws = over_grid(_law, p, {"law": p.laws, "alpha": p.law_alpha}, part(progress, 0.5, 0.7))
    sweeps = kept(_sweep, p, progress=part(progress, 0.7, 0.8))
    varying = over_grid(_varying, p, {"d": p.scanned_d}, part(progress, 0.8, 0.9))
    settled = all_of(
        "settled",
        "arXiv 2407.01602; docs/mathematics.md B10",
        "from almost every start all tokens settle on leaders after finitely many layers",
        sum(c.certified for c in (*cells, *laws)),
        sum(c.runs for c in (*cells, *laws)),
    )
    census: dict[str, Any] = {
        **{"law": "law", "d": "d", "n": "n", "alpha": "alpha", "starts with one": "rate"},
        "95 % from": lambda c: wilson(c.with_births, c.runs)[0],
        "to": lambda c: wilson(c.with_births, c.runs)[1],
        "share of leaders": lambda c: len(c.births) / c.leaders,
        "from inside": lambda c: sum(not b.vertex for b in c.births),
        "from a vertex": lambda c: sum(b.vertex for b in c.births),
        "latest layer": "latest",
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
        cy.Table.of("Other laws of the start", laws, census),
        _golden_table(),
        cy.Table.of("Leaders against alpha", sweeps, sweep),
    ]
    tr = cy.simulate(cy.PureAttention(alpha="1/2"), cy.configurations.golden("G1"), layers=8)
    caption = "Token 1 (inside) follows token 3, overshoots, and leads from layer 1 on."
    layers = cy.plot.layers(tr, show=(0, 1, 2, 8))
    golden = cy.Picture("Golden case G1, alpha = 1/2", caption, layers)
    pictures = [_steps(sweeps), _where_and_when(p, cells), golden]
    return report_of(
        __name__,
        p,
        _summary(p, cells, laws, varying, sweeps),
        controls=_controls(p, cells, laws, varying),
        tables=tables,
        checks={"census": [settled]},
        figures=pictures,
    )


def _student(n: int, d: int, seed: int) -> np.ndarray:
    """Tokens of the spherical t law with two degrees of freedom: a few are far away."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(2, (n, 1)) / 2)


LAWS: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "gaussian": cy.configurations.gaussian,
    "box": cy.configurations.box,
    "ball": cy.configurations.ball,
    "student": _student,
}


def _census(p: Params, d: int, n: int, alpha: float) -> BirthCensus:
    rng = np.random.default_rng([p.seed, d, n])
    return _counted_births([rng.standard_normal((n, d)) for _ in range(p.starts)], alpha)


def _law(p: Params, law: str, alpha: float) -> BirthCensus:
    starts = [LAWS[law](p.law_n, 2, p.seed + s) for s in range(p.law_starts)]
    return _counted_births(starts, alpha, law)


def _counted_births(starts: list[np.ndarray], alpha: float, law: str = "gaussian") -> BirthCensus:
    n, d = starts[0].shape
    limits = [cy.limit(cy.PureAttention(alpha=alpha), z) for z in starts]
    births = [_births(z, li) for z, li in zip(starts, limits)]
    return BirthCensus(
        d=d,
        n=n,
        alpha=alpha,
        runs=len(starts),
        certified=sum(li.certified for li in limits),
        with_births=sum(map(bool, births)),
        leaders=sum(len(li.leaders) for li in limits),
        births=tuple(birth for group in births for birth in group),
        law=law,
    )


def _births(z: np.ndarray, li: cy.Limit) -> list[Birth]:
    late = np.flatnonzero(li.born > 0).tolist()
    vertices = set(cy.hull(z).index.tolist()) if late else set()
    return [Birth(int(li.born[i]), i in vertices) for i in late]


def _varying(p: Params, d: int) -> tuple[int, int, int]:
    """(d, in how many of the starts scanned the number of leaders depends on alpha, of how many)"""
    return d, sum(_depends(p, d, s) for s in range(p.scanned)), p.scanned


def _depends(p: Params, d: int, s: int) -> bool:
    z = cy.configurations.gaussian(p.scanned_n, d, p.seed + s)
    return len({len(li.leaders) for li in _limits(z, np.geomspace(0.05, 20, 12))}) > 1


def _sweep(p: Params, progress: Progress = silent) -> list[AlphaSweep]:
    """G1 and the first Gaussian starts whose number of leaders depends on alpha."""
    starts = {"G1": cy.configurations.golden("G1")}
    for s in range(p.scanned):
        progress(0.5 * s / p.scanned, "starts that depend on alpha")
        if len(starts) <= p.drawn and _depends(p, 2, s):
            z = cy.configurations.gaussian(p.scanned_n, 2, p.seed + s)
            starts[f"Gaussian start {p.seed + s}"] = z
    alpha = np.geomspace(0.02, 50, p.sweep)
    sweeps: list[AlphaSweep] = []
    for name, z in starts.items():
        progress(0.5 + 0.5 * len(sweeps) / len(starts), f"sweep over alpha, {name}")
        limits = _limits(z, alpha)
        leaders = np.array([len(li.leaders) for li in limits])
        sweeps.append(AlphaSweep(name, alpha, leaders, sum(li.certified for li in limits)))
    return sweeps


def _limits(z: np.ndarray, alpha: np.ndarray) -> list[cy.Limit]:
    return [cy.limit(cy.PureAttention(alpha=float(a)), z) for a in alpha]


def _by_dimension(p: Params, cells: list[BirthCensus]) -> dict[int, tuple[int, int]]:
    """Starts with a late leader by d, at the middle alpha: those of one (d, n) are its own."""
    alpha = p.alpha[len(p.alpha) // 2]
    of = {d: [c for c in cells if (c.d, c.alpha) == (d, alpha)] for d in p.d}
    return {d: (sum(c.with_births for c in x), sum(c.runs for c in x)) for d, x in of.items()}


def _controls(
    p: Params,
    cells: list[BirthCensus],
    laws: list[BirthCensus],
    varying: list[tuple[int, int, int]],
) -> list[cy.Comparison]:
    worst = max((*cells, *laws), key=lambda c: c.rate)
    high = wilson(worst.with_births, worst.runs)[1]
    by_law = "; ".join(
        f"{c.law}, alpha = {c.alpha:g}: {counted(c.with_births, c.runs)}" for c in laws
    )
    last = max((c.latest or 0 for c in cells), default=0)
    dims = _by_dimension(p, cells)
    low, high_d = (wilson(*dims[d]) for d in (min(p.d), max(p.d)))
    return [
        cy.Comparison(
            "Leaders born late are rare: in fewer than a quarter of the starts.",
            f"n, d and alpha; other laws of {p.law_n} tokens in the plane",
            f"{by_law}; most often {counted(worst.with_births, worst.runs)} ({worst.law}, d = "
            f"{worst.d}, n = {worst.n}, alpha = {worst.alpha:g})",
            high < 0.25,
        ),
        cy.Comparison(
            f"They are rarer in dimension {max(p.d)} than in dimension {min(p.d)}.",
            f"n together, alpha = {p.alpha[len(p.alpha) // 2]:g}",
            "; ".join(f"d = {d}: {counted(*x)}" for d, x in dims.items()),
            high_d[1] < low[0],
        ),
        cy.Comparison(
            f"They come early, the last at layer {last}.",
            "alpha and the law of the start",
            "latest: " + "; ".join(f"{c.law}, alpha = {c.alpha:g}: {c.latest}" for c in laws),
            all((c.latest or 0) <= last for c in laws),
        ),
        cy.Comparison(
            "The number of leaders of a fixed start depends on alpha, not seldom (5 %).",
            "d",
            "; ".join(f"d = {d}: {counted(hit, total)}" for d, hit, total in varying),
            all(wilson(hit, total)[0] > 0.05 for _, hit, total in varying),
        ),
    ]


def _summary(
    p: Params,
    cells: list[BirthCensus],
    laws: list[BirthCensus],
    varying: list[tuple[int, int, int]],
    sweeps: list[AlphaSweep],
) -> str:
    most = max(cells, key=lambda c: c.with_births)
    births = [b for c in cells for b in c.births]
    layers, inside = [b.layer for b in births], sum(not b.vertex for b in births)
    dims = [f"{counted(*x)} for d = {d}" for d, x in _by_dimension(p, cells).items()]
    text = (
        f"Gaussian starts with a leader born after layer 0 (alpha = "
        f"{p.alpha[len(p.alpha) // 2]:g}): {'; '.join(dims)}; most often "
        f"{counted(most.with_births, most.runs)} for d = {most.d}, n = {most.n}, alpha = "
        f"{most.alpha:g}. "
    )
    if births:
        text += (
            f"Of {len(births)} such leaders, {inside} started inside the hull and "
            f"{len(births) - inside} at a vertex of it; half are born by layer "
            f"{np.median(layers):g}, the last at layer {max(layers)}. "
        )
    late = [c for c in laws if c.births]
    if late:
        often, latest = max(late, key=lambda c: c.rate), max(late, key=lambda c: c.latest or 0)
        text += (
            f"Other laws and steps: {counted(often.with_births, often.runs)} ({often.law}, alpha = "
            f"{often.alpha:g}), and as late as layer {latest.latest} ({latest.law}, alpha = "
            f"{latest.alpha:g}). "
        )
    ranges = "; ".join(
        f"{s.start}: {s.leaders.min()} to {s.leaders.max()} leaders, changing at "
        + " and ".join(s.jumps)
        for s in sweeps
    )
    scan = "; ".join(f"d = {d}: {counted(hit, total)}" for d, hit, total in varying)
    alpha = sweeps[0].alpha
    return (
        f"{text}\n\nGaussian starts of {p.scanned_n} tokens whose number of leaders depends on "
        f"alpha: {scan}. Over alpha from {alpha[0]:g} to {alpha[-1]:g}: {ranges}."
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
        "Number of leaders at infinite depth for fixed starts. It jumps with alpha, for some up "
        "and down: the step size decides who leads, not only how fast."
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
