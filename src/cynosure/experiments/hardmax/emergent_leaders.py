"""Leaders that are born after layer 0: how often, when, from where, and for which alpha.

A token that follows others can overshoot the hyperplane of its own score and lead from then on
(arXiv 2407.01602, Figure 2; the leaders of all layers are the vertices of the limiting polytope).
See: it is rare (percents of the starts), comes early, and depends on alpha in a way that is not
monotone: the number of leaders of one fixed start is a piecewise constant function of alpha. The
table says whether the late leaders started at vertices of the first hull or inside it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.limits import Limit, limit
from ...analysis.polytope import hull
from ...drawing.report import Picture, Report, Table
from ...dynamics import PureAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from ...theorems import Check
from .._frame import Progress, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Emergent leaders: born after layer 0"


@final
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


class Cell(NamedTuple):
    d: int
    n: int
    alpha: float
    runs: int
    certified: int
    with_births: int
    leaders: int
    births: tuple[Birth, ...]


def run(p: Params, progress: Progress | None = None) -> Report:
    """The census, then the sweep over alpha."""
    say = progress or silent
    if min(*p.d, *p.n, p.starts) < 1 or p.sweep < 2:
        raise ValueError(f"emergent_leaders: d, n, starts begin at 1 and sweep at 2; got {p}")
    grid = list(product(p.d, p.n, p.alpha))
    cells = []
    for done, (d, n, alpha) in enumerate(grid):
        say(0.6 * done / len(grid), f"d = {d}, n = {n}, alpha = {alpha:g}")
        cells.append(kept(_cell, p, d, n, alpha))
    say(0.6, "sweep over alpha")
    curves = kept(_sweep, p, say=lambda share: say(0.6 + 0.3 * share, "sweep over alpha"))
    say(0.9, "figures")
    births = [b for c in cells for b in c.births]
    figures = [
        Picture("Leaders against alpha", _SWEEP, _steps(curves)),
        Picture("Where and when", _WHERE, _census(p, cells, births)),
        Picture("Golden case G1, alpha = 1/2", _G1, _golden_picture()),
    ]
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, cells, births, curves),
        asdict(p),
        (_cells_table(cells), _golden_table(), _sweep_table(curves)),
        {"census": (_check(cells),)},
        tuple(figures),
        command="cynosure run emergent_leaders",
    )


_SWEEP = (
    "Number of leaders at infinite depth for fixed starts; every value is certified. It jumps up "
    "and down with alpha: the step size decides who leads, not only how fast."
)
_WHERE = (
    "Left and middle: share of Gaussian starts with at least one leader born later, against n "
    "(mean over alpha) and against alpha (mean over n). Bars: a standard error, for the number of "
    "different starts: those of one (d, n) are the same for every alpha. Right: the layers at "
    "which they are born, by where they started; the axis is logarithmic."
)
_G1 = "Token 1 (inside) follows token 3, overshoots, and leads from layer 1 on."


def _cell(p: Params, d: int, n: int, alpha: float) -> Cell:
    rng = np.random.default_rng([p.seed, d, n])
    dynamics = PureAttention(alpha=alpha)
    births: list[Birth] = []
    certified = with_births = leaders = 0
    for _ in range(p.starts):
        z = rng.standard_normal((n, d))
        li = limit(dynamics, z)
        late = li.leaders[li.born[li.leaders] > 0]
        certified, leaders = certified + li.certified, leaders + len(li.leaders)
        if len(late):
            with_births += 1
            births += _births(z, li, late)
    return Cell(d, n, alpha, p.starts, certified, with_births, leaders, tuple(births))


def _births(z: np.ndarray, li: Limit, late: np.ndarray) -> list[Birth]:
    vertices = set(hull(z).index.tolist())
    return [Birth(int(li.born[i]), i in vertices) for i in late.tolist()]


class Sweep(NamedTuple):
    """|L| against alpha for G1 and for the first Gaussian starts where it is not constant."""

    alpha: np.ndarray
    counts: dict[str, np.ndarray]
    certified: dict[str, int]
    varying: int  # of the starts scanned


def _sweep(p: Params, say: Any) -> Sweep:
    coarse = np.geomspace(0.05, 20, 12)
    starts = {"G1": configurations.golden("G1")}
    varying = 0
    for s in range(p.scanned):
        z = configurations.gaussian(p.scanned_n, 2, p.seed + s)
        counts = {len(limit(PureAttention(alpha=float(a)), z).leaders) for a in coarse}
        varying += len(counts) > 1
        if len(counts) > 1 and len(starts) <= p.drawn:
            starts[f"Gaussian start {p.seed + s}"] = z
        say(0.5 * (s + 1) / p.scanned)
    alpha = np.geomspace(0.02, 50, p.sweep)
    found = {}
    for done, (name, z) in enumerate(starts.items()):
        found[name] = [limit(PureAttention(alpha=float(a)), z) for a in alpha]
        say(0.5 + 0.5 * (done + 1) / len(starts))
    return Sweep(
        alpha,
        {name: np.array([len(li.leaders) for li in group]) for name, group in found.items()},
        {name: sum(li.certified for li in group) for name, group in found.items()},
        varying,
    )


def _check(cells: list[Cell]) -> Check:
    """Leaders born later were allowed for: the theorem only asks that all runs settle."""
    runs, certified = sum(c.runs for c in cells), sum(c.certified for c in cells)
    return Check(
        theorem="B10",
        reference="arXiv 2407.01602; docs/mathematics.md B10",
        statement="from almost every start all tokens settle on leaders after finitely many layers",
        applies=True,
        holds=runs == certified,
        margin=float(certified - runs),
        tol=0.0,
        witness={"runs": runs, "certified": certified},
        hypotheses=(),
        arithmetic="float64",
    )


def _summary(p: Params, cells: list[Cell], births: list[Birth], curves: Sweep) -> str:
    runs, hit = sum(c.runs for c in cells), sum(c.with_births for c in cells)
    most = max(cells, key=lambda c: c.with_births)
    leaders = sum(c.leaders for c in cells)
    inside = [b for b in births if not b.vertex]
    text = (
        f"{hit} of {runs} runs from Gaussian starts ({hit / runs:.2%}) have a leader born after "
        f"layer 0, most often ({most.with_births / most.runs:.1%}) for d = {most.d}, n = {most.n}, "
        f"alpha = {most.alpha:g}; {len(births) / leaders:.2%} of all leaders are born late. "
    )
    if births:
        layers = np.array([b.layer for b in births])
        text += (
            f"Of these {len(births)}, {len(inside)} started inside the hull and "
            f"{len(births) - len(inside)} at a vertex of it; half are born by layer "
            f"{np.median(layers):g}, the last at layer {layers.max()}. "
        )
    ranges = "; ".join(
        f"{name}: {count.min()} to {count.max()} leaders, changing at "
        + " and ".join(f"{x:.3g}" for x in _jumps(curves.alpha, count))
        for name, count in curves.counts.items()
    )
    return (
        f"{text}\n\nOf {p.scanned} Gaussian starts of {p.scanned_n} tokens in the plane "
        f"{curves.varying} have a number of leaders that depends on alpha. Over alpha from "
        f"{curves.alpha[0]:g} to {curves.alpha[-1]:g}: {ranges}."
    )


def _cells_table(cells: list[Cell]) -> Table:
    rows = tuple(
        (
            c.d,
            c.n,
            c.alpha,
            c.with_births / c.runs,
            len(c.births) / c.leaders,
            sum(not b.vertex for b in c.births),
            sum(b.vertex for b in c.births),
            max((b.layer for b in c.births), default=None),
            f"{c.certified}/{c.runs}",
        )
        for c in cells
    )
    columns = (
        "d",
        "n",
        "alpha",
        "starts with one",
        "share of leaders",
        "from inside",
        "from a vertex",
        "latest layer",
        "certified",
    )
    return Table("Leaders born after layer 0", columns, rows)


def _golden_table() -> Table:
    """The two starts whose births are known exactly, in rationals."""
    rows = []
    for name, alphas in (("G1", ("1/10", "1/2", "1", "2", "10")), ("G4", ("1/10", "1/2", "2"))):
        z = configurations.golden_exact(name)
        for alpha in alphas:
            li = limit(PureAttention(alpha=alpha), z, exact=True)
            late = li.leaders[li.born[li.leaders] > 0]
            assert li.exact_points is not None
            where = "; ".join(
                f"{i} at layer {li.born[i]}, " + _short(li.exact_points[i]) for i in late.tolist()
            )
            rows.append((name, alpha, len(li.leaders), where or "none", li.certified))
    columns = ("start", "alpha", "leaders", "born later (token, layer, place)", "certified")
    return Table("Golden cases, in rationals", columns, tuple(rows))


def _short(token: tuple) -> str:
    """A rational token, in decimals where its fractions are long."""
    return "(" + ", ".join(str(x) if len(str(x)) < 12 else f"{float(x):.6f}" for x in token) + ")"


def _jumps(alpha: np.ndarray, count: np.ndarray) -> list[float]:
    """The steps at which the number of leaders changes, to the resolution of the sweep."""
    at = np.flatnonzero(np.diff(count))
    return [float(np.sqrt(alpha[i] * alpha[i + 1])) for i in at]


def _sweep_table(curves: Sweep) -> Table:
    rows = tuple(
        (
            name,
            len(count),
            int(count.min()),
            int(count.max()),
            ", ".join(f"{x:.3g}" for x in _jumps(curves.alpha, count)),
            f"{curves.certified[name]}/{len(count)}",
        )
        for name, count in curves.counts.items()
    )
    columns = ("start", "values of alpha", "fewest", "most", "changes at alpha", "certified")
    return Table("Leaders against alpha", columns, rows)


def _steps(curves: Sweep) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from ...drawing.plot import PALETTE

    rows = len(curves.counts)
    figure = Figure(figsize=(8.4, 1.25 * rows + 0.8), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for ax, colour, (name, count) in zip(axes, PALETTE, curves.counts.items()):
        ax.step(curves.alpha, count, where="mid", color=colour, lw=1.3)
        ax.set(xscale="log", ylabel="leaders", ylim=(count.min() - 0.6, count.max() + 0.6))
        ax.set_title(name, loc="left", fontsize=9)
        ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel(r"step $\alpha$")
    return figure


def _census(p: Params, cells: list[Cell], births: list[Birth]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    from ...drawing.plot import PALETTE

    figure = Figure(figsize=(12, 3.5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for colour, d in zip(PALETTE, p.d):
        for ax, over, column in ((left, p.n, "n"), (middle, p.alpha, "alpha")):
            groups = [[c for c in cells if (c.d, getattr(c, column)) == (d, x)] for x in over]
            rate = np.array([np.mean([c.with_births / c.runs for c in g]) for g in groups])
            starts = [len({c.n for c in g}) * p.starts for g in groups]
            error = np.sqrt(rate * (1 - rate) / starts)
            ax.errorbar(
                over, rate, error, fmt="o-", ms=4, color=colour, capsize=2, label=f"d = {d}"
            )
    left.set(xscale="log", xlabel="tokens n", ylabel="starts with a late leader")
    middle.set(xscale="log", xlabel=r"step $\alpha$", ylabel="starts with a late leader")
    left.legend(frameon=False, fontsize="small", loc="upper left")
    for ax in (left, middle):
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    born = [[b.layer for b in births if b.vertex == vertex] for vertex in (True, False)]
    most = max((b.layer for b in births), default=1)
    for shift, colour, layers, name in zip(
        (-0.2, 0.2), PALETTE, born, ("vertex of the first hull", "inside it")
    ):
        count = np.bincount(layers, minlength=most + 1)[1:]
        right.bar(1 + shift + np.arange(most), count, 0.4, color=colour, label=name)
    right.set(xlabel="layer of birth", ylabel="leaders born", xlim=(0.4, max(most, 5) + 0.6))
    if births:
        right.set(yscale="log", ylim=(0.7, None))
    right.legend(frameon=False, fontsize="small", title="where they started")
    right.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    for ax in (left, middle, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def _golden_picture() -> Any:
    from ...drawing import plot

    tr = simulate(PureAttention(alpha="1/2"), configurations.golden("G1"), layers=8)
    return plot.layers(tr, show=(0, 1, 2, 8))
