"""Three first experiments on pure attention with hardmax (arXiv 2407.01602, Theorem 1.1).

1. Distinct tokens converge to a finite set: every limit lies in
   S = {s in K, s != 0 : max_{y in K} <As, y> = |s|_A^2}, whatever n, d and alpha.
2. Leaders stay where they are, and they are exactly the vertices of the limiting polytope K.
3. Without normalisation, z_i <- z_i + alpha m_i, tokens grow like (1 + alpha)^k until they leave
   the floating-point numbers; the set they cluster around is hidden by the growth.

Gaussian tokens show the generic case, where every limit is a leader; tokens with small integer
coordinates, run in rationals, tie so often that limits which are no leader appear too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.leaders import roles
from ...analysis.limits import Limit, limit
from ...analysis.polytope import hull
from ...drawing.report import Picture, Report, Table
from ...dynamics import PureAttention, UnnormalizedAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.trajectory import Trajectory
from ...theorems import Check
from .._frame import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "First checks: a finite set, fixed leaders, growth without normalisation"
PAPER = "arXiv 2407.01602, Theorem 1.1"


@final
@dataclass(frozen=True)
class Params:
    """The sweep (n, d, alpha, seeds), the layers simulated, and the configurations with ties."""

    n: tuple[int, ...] = (10, 100, 1000)
    d: tuple[int, ...] = (1, 2, 3, 8)
    alpha: tuple[float, ...] = (0.1, 0.5, 1.0, 10.0)
    seeds: int = 20
    layers: int = 60
    ties: int = 200
    growth_layers: int = 40


QUICK = Params(n=(10, 100), d=(1, 2, 3), alpha=(0.5, 1.0), seeds=3, layers=30, ties=20)


def run(p: Params, progress: Progress | None = None) -> Report:
    """The three experiments as chapters."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    least = min(*p.n, *p.d, p.seeds, p.layers, p.ties, p.growth_layers - 3)
    if least < 1 or min(p.d) > 3:
        raise ValueError(
            "first_checks: n, d, seeds, layers and ties start at 1, growth_layers at 4, and one d "
            f"is at most 3 for the polytope; got {p}"
        )
    say(0.0, "finite set")
    first = _finite_set(p, lambda share: say(0.6 * share, "finite set"))
    say(0.6, "leaders")
    second = _fixed_leaders(p, lambda share: say(0.6 + 0.3 * share, "leaders"))
    say(0.9, "growth")
    third = _growth(p)
    say(1.0, "done")
    return Report(
        TITLE,
        _SUMMARY,
        asdict(p),
        chapters=(first, second, third),
        command="cynosure run first_checks",
    )


_SUMMARY = (
    "What the first theorem on pure attention says, seen in numbers: tokens converge to finitely "
    "many places, a few tokens that never move decide where, and the division by 1 + alpha is what "
    "keeps them in sight."
)

# --- 1: a finite set -----------------------------------------------------------------------------


class Cell(NamedTuple):
    """What the runs of one (n, d, alpha) gave."""

    n: int
    d: int
    alpha: float
    settle: list[int]  # layer from which every limit is proved, per run
    leaders: list[int]
    limits: list[int]  # distinct limits
    certified: int
    away: float  # largest distance from the condition of S, relative to max |z|^2


def _finite_set(p: Params, say: Any) -> Report:
    cells = []
    grid = list(product(p.d, p.alpha, p.n))
    for done, (d, alpha, n) in enumerate(grid):
        runs = [
            limit(PureAttention(alpha=alpha), configurations.gaussian(n, d, seed))
            for seed in range(p.seeds)
        ]
        cells.append(
            Cell(
                n,
                d,
                alpha,
                [li.layers for li in runs],
                [len(li.leaders) for li in runs],
                [len(np.unique(li.points, axis=0)) for li in runs],
                sum(li.certified for li in runs),
                max(_away_from_s(li) for li in runs),
            )
        )
        say((done + 1) / (len(grid) + 1))
    tied = _tied(p)
    total, proved = len(grid) * p.seeds, sum(c.certified for c in cells)
    away = max(c.away for c in cells)
    tol = 1e-12  # limits and vertices are rounded once each: a few u = 1.1e-16 times max |z|^2
    check = Check(
        theorem="first 1",
        reference=PAPER,
        statement="distinct non-zero tokens converge, and every limit lies in the finite set S",
        applies=True,
        holds=proved == total and away <= tol and tied.outside == 0,
        margin=tol - away,
        tol=tol,
        witness={
            "proved": proved,
            "runs": total,
            "largest distance from S": away,
            "exact runs": p.ties,
            "exact limits outside S": tied.outside,
        },
        hypotheses=(),
        arithmetic="float64",
    )
    worst = max(max(c.settle) for c in cells)
    summary = (
        f"Distinct tokens reach a finite set: the limits of {proved} of {total} Gaussian runs "
        f"(n = {_range(p.n)}, d = {_range(p.d)}, alpha = {_range(p.alpha)}) are proved for every "
        f"token, after {worst} layers at the latest, and all lie in S up to {away:.1g}. In "
        f"{p.ties} integer configurations with ties, in rationals, {tied.certified} are proved, "
        f"{tied.outside} of {tied.limits} limits lie outside S, and in {tied.runs_with_strays} of "
        f"them some token ({tied.strays} in all) tends to a limit that is no leader."
    )
    rows = tuple(
        (
            c.d,
            c.alpha,
            c.n,
            f"{c.certified}/{p.seeds}",
            float(np.median(c.settle)),
            max(c.settle),
            float(np.mean(c.leaders)),
            float(np.mean(c.limits)),
            c.away,
        )
        for c in cells
    )
    columns = (
        "d",
        "alpha",
        "n",
        "certified",
        "median layers",
        "most layers",
        "mean leaders",
        "mean limits",
        "distance from S",
    )
    return Report(
        "A finite set of limits",
        summary,
        tables=(Table("Gaussian tokens: layers until every limit is proved", columns, rows),),
        checks={"sweep": (check,)},
        figures=(Picture("Layers until every limit is proved", _CAPTION, _settling(cells)),),
    )


_CAPTION = "Median and largest number over the seeds, by number of tokens; one panel per dimension."


def _away_from_s(li: Limit) -> float:
    """max over decided limits s of |max_{y in K} <s, y> - |s|^2| / max |z|^2."""
    s = np.unique(li.points[li.settled_at >= 0], axis=0)
    vertices = li.polytope.vertices
    gap = (s @ vertices.T).max(axis=1) - (s * s).sum(axis=1)
    return float(np.abs(gap).max() / (vertices * vertices).sum(axis=1).max())


class Tied(NamedTuple):
    certified: int
    limits: int
    outside: int  # limits that miss the condition of S, in rationals
    strays: int
    runs_with_strays: int


def _tied(p: Params) -> Tied:
    certified = limits = outside = strays = with_strays = 0
    for seed in range(p.ties):
        z = configurations.grid(4 + seed % 9, 1 + seed % 3, seed)
        z = np.unique(z[(z != 0).any(axis=1)], axis=0)
        if len(z) == 0:
            z = np.ones((1, 1))
        li = limit(PureAttention(alpha=("1/2", "1", "1/10")[seed % 3]), z, exact=True)
        assert li.exact_points is not None
        corners = {li.exact_points[i] for i in li.leaders}
        found = {s for s, k in zip(li.exact_points, li.settled_at, strict=True) if k >= 0}
        dot = [
            (s, max(sum(a * b for a, b in zip(s, v, strict=True)) for v in corners)) for s in found
        ]
        outside += sum(best != sum(a * a for a in s) or not any(s) for s, best in dot)
        limits += len(found)
        certified += li.certified
        away = int(((li.follows < 0) & (li.settled_at >= 0)).sum())
        strays, with_strays = strays + away, with_strays + (away > 0)
    return Tied(certified, limits, outside, strays, with_strays)


def _settling(cells: list[Cell]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import PALETTE

    dims = sorted({c.d for c in cells})
    figure = Figure(figsize=(3.3 * len(dims), 3.2), layout="constrained")
    axes = figure.subplots(1, len(dims), sharey=True, squeeze=False)[0]
    for ax, d in zip(axes, dims, strict=True):
        for colour, alpha in zip(PALETTE, sorted({c.alpha for c in cells}), strict=False):
            line = sorted((c for c in cells if c.d == d and c.alpha == alpha), key=lambda c: c.n)
            n = [c.n for c in line]
            label = f"alpha = {alpha:g}"
            ax.plot(n, [np.median(c.settle) for c in line], "o-", color=colour, label=label)
            ax.plot(n, [max(c.settle) for c in line], ":", color=colour)
        ax.set(xscale="log", xlabel="tokens n", title=f"d = {d}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("layers (dotted: largest)")
    axes[-1].legend(frameon=False, fontsize="small")
    return figure


# --- 2: leaders ----------------------------------------------------------------------------------


def _fixed_leaders(p: Params, say: Any) -> Report:
    from ...drawing import plot

    grid = [(d, alpha, n) for d, alpha, n in product(p.d, p.alpha, p.n) if d <= 3]
    rows, moved, missed, total = [], 0.0, 0, 0
    for done, (d, alpha, n) in enumerate(grid):
        stats = [_leaders_of(p, n, d, alpha, seed) for seed in range(p.seeds)]
        leaders, later, drift, wrong = (list(column) for column in zip(*stats, strict=True))
        rows.append((d, alpha, n, sum(leaders), sum(later), max(drift), sum(wrong)))
        moved, missed = max(moved, *drift), missed + sum(wrong)
        total += sum(leaders)
        say((done + 1) / len(grid))
    born_later = sum(row[4] for row in rows)
    check = Check(
        theorem="first 2",
        reference=PAPER,
        statement="leaders never move, and they are exactly the vertices of the limiting polytope",
        applies=True,
        holds=moved == 0 and missed == 0,
        margin=0.0 - moved - missed,
        tol=0.0,
        witness={"leaders": total, "largest movement": moved, "vertices that differ": missed},
        hypotheses=(),
        arithmetic="float64",
    )
    summary = (
        f"Leaders stay fixed and are the polytope's vertices: {total} leaders in "
        f"{len(grid) * p.seeds} runs of {p.layers} layers move by {moved:g} once they lead; "
        f"{born_later} of them emerge after layer 0. The vertices of the hull of the limits "
        f"differ from the leaders in {missed} places."
    )
    columns = (
        "d",
        "alpha",
        "n",
        "leaders",
        "of them later",
        "largest movement",
        "vertices that differ",
    )
    tr = simulate(PureAttention(alpha=0.5), configurations.gaussian(60, 2, 1), layers=p.layers)
    show = tuple(k for k in (0, 1, 2, 5, p.layers) if k <= p.layers)
    ax = plot.norms(tr)
    return Report(
        "Leaders stay, and span the polytope",
        summary,
        tables=(Table("Leaders over the layers", columns, tuple(rows)),),
        checks={"sweep": (check,)},
        figures=(
            Picture("Sixty Gaussian tokens", _LAYERS, plot.layers(tr, show=show)),
            Picture("Norms by layer", "Leaders keep their norm, followers' norms grow.", ax.figure),
        ),
    )


_LAYERS = "alpha = 1/2, A = I; stars are leaders, the polytope they span is shaded at the end."


def _leaders_of(p: Params, n: int, d: int, alpha: float, seed: int) -> tuple[int, int, float, int]:
    """(leaders, those born after layer 0, how far one moved since, vertices not in common)."""
    z0, dynamics = configurations.gaussian(n, d, seed), PureAttention(alpha=alpha)
    tr, li = simulate(dynamics, z0, layers=p.layers), limit(dynamics, z0)
    born = roles(tr).born
    leaders = np.flatnonzero(born >= 0)
    drift = max(
        float(np.abs(tr.values[born[i] :, i] - tr.values[born[i], i]).max()) for i in leaders
    )
    corners = {tuple(v) for v in hull(np.unique(li.points, axis=0)).vertices.tolist()}
    expected = {tuple(v) for v in li.points[li.leaders].tolist()}
    return len(leaders), int((born > 0).sum()), drift, len(corners ^ expected)


# --- 3: growth -----------------------------------------------------------------------------------


def _growth(p: Params) -> Report:
    from matplotlib.figure import Figure

    from ...drawing import plot

    z0 = configurations.gaussian(20, 2, 0)
    figure = Figure(figsize=(4.2 * len(p.alpha), 3.4), layout="constrained")
    rows, messages, worst, apart = [], [], 0.0, 0.0
    for column, alpha in enumerate(p.alpha):
        dynamics = UnnormalizedAttention(alpha=alpha)
        tr = simulate(dynamics, z0, layers=p.growth_layers)
        plot.growth(tr, ax=(ax := figure.add_subplot(1, len(p.alpha), column + 1)))
        ax.set_title(f"alpha = {alpha:g}")
        factor, layerwise = _fitted_factor(tr), _apart(dynamics, tr)
        limit_layer = int(np.ceil(np.log(np.finfo(float).max) / np.log1p(alpha)))
        end = simulate(dynamics, z0, layers=2 * limit_layer, throw=False)
        worst = max(worst, abs(factor / (1 + alpha) - 1))
        apart = max(apart, layerwise)
        rows.append(
            (alpha, 1 + alpha, factor, factor / (1 + alpha) - 1, layerwise, int(end.t[-1]),
             end.status.code)
        )  # fmt: skip
        messages.append(f"alpha = {alpha:g}: {end.status}")
    overflowed = sum(row[-1] == "overflow" for row in rows)
    tol = 1e-6
    check = Check(
        theorem="first 3",
        reference="docs/mathematics.md A1",
        statement="without normalisation the largest token grows by the factor 1 + alpha a layer",
        applies=True,
        holds=worst <= tol and apart <= tol and overflowed == len(rows),
        margin=tol - max(worst, apart),
        tol=tol,
        witness={"fitted factor off by": worst, "layer by layer off by": apart},
        hypotheses=(),
        arithmetic="float64",
    )
    summary = (
        f"Without normalisation tokens grow without bound: the factor per layer, fitted over the "
        f"second half of {p.growth_layers} layers, is 1 + alpha to {worst:.1g}; stepping layer by "
        f"layer gives the same tokens to {apart:.1g}. {overflowed} of {len(rows)} runs end with "
        f"the status `overflow` instead of infinities."
    )
    columns = (
        "alpha",
        "1 + alpha",
        "fitted factor",
        "relative difference",
        "against plain steps",
        "last layer in range",
        "status",
    )
    caption = "Largest norm by layer, beside the slope log(1 + alpha)."
    return Report(
        "Growth without normalisation",
        summary,
        tables=(Table("Growth", columns, tuple(rows), " ".join(messages[:1])),),
        checks={"gaussian, n = 20": (check,)},
        figures=(Picture("Growth of the tokens", caption, figure),),
    )


def _fitted_factor(tr: Trajectory) -> float:
    """exp of the slope of log max |z| over the second half of the layers."""
    size = np.log(np.linalg.norm(tr.values, axis=-1).max(axis=-1))
    half = len(size) // 2
    return float(np.exp(np.polyfit(tr.t[half:], size[half:], 1)[0]))


def _apart(dynamics: UnnormalizedAttention, tr: Trajectory) -> float:
    """Largest relative distance to the layers stepped one by one, while both are exact enough."""
    z, apart = tr.values[0], 0.0
    for k in range(len(tr) - 1):
        z = dynamics.step(z, k)
        apart = max(apart, float(np.abs(z - tr.values[k + 1]).max() / np.abs(z).max()))
    return apart


def _range(values: tuple) -> str:
    return f"{min(values):g}..{max(values):g}" if len(values) > 1 else f"{values[0]:g}"
