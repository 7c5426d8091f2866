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

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .. import study

TITLE = "First checks: a finite set, fixed leaders, growth without normalisation"
PAPER = "arXiv 2407.01602, Theorem 1.1"
SUMMARY = (
    "What the first theorem on pure attention says, seen in numbers: tokens converge to finitely "
    "many places, a few tokens that never move decide where, and the division by 1 + alpha is what "
    "keeps them in sight."
)


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


def run(p: Params, progress: study.Progress | None = None) -> study.Report:
    """The three experiments as chapters."""
    least = min(*p.n, *p.d, p.seeds, p.layers, p.ties, p.growth_layers - 3)
    expected = "n, d, seeds, layers and ties that start at 1, growth_layers at 4, and one d <= 3"
    study.require(least >= 1 and min(p.d) <= 3, expected, p)
    first, second = study.part(progress, 0, 0.6), study.part(progress, 0.6, 0.9)
    chapters = (_finite_set(p, first), _fixed_leaders(p, second), _growth(p))
    return study.report_of(p, SUMMARY, controls=(), chapters=chapters)  # each chapter has its own


# --- 1: a finite set -----------------------------------------------------------------------------


class GaussianLimits(NamedTuple):
    """The limits of the runs of one (d, alpha, n)."""

    d: int
    alpha: float
    n: int
    layers: list[int]  # from which every limit is proved, per run
    leaders: list[int]
    limits: list[int]  # distinct ones
    certified: int
    away: float  # largest distance from the condition of S, relative to max |z|^2


def _finite_set(p: Params, progress: study.Progress) -> study.Report:
    axes = {"d": p.d, "alpha": p.alpha, "n": p.n}
    cells = study.over_grid(_gaussian_limits, p, axes, study.part(progress, 0, 0.9))
    progress(0.85, "other laws and forms")
    others, proved_there, away_there = _elsewhere(p)
    progress(0.9, "ties in rationals")
    tied = TiedLimits(*map(sum, zip(*(_tied_run(seed) for seed in range(p.ties)))))
    total, proved = len(cells) * p.seeds, sum(c.certified for c in cells)
    away = max(c.away for c in cells)
    check = study.at_most(
        "finite set",
        PAPER,
        "distinct non-zero tokens converge, and every limit lies in the finite set S",
        away if proved == total and tied.outside == 0 else np.inf,
        1e-12,  # limits and vertices are rounded once each: a few u = 1.1e-16 times max |z|^2
        **{"proved": proved, "runs": total, "largest distance from S": away},
        **{"exact runs": p.ties, "exact limits outside S": tied.outside},
    )
    summary = (
        f"Distinct tokens reach a finite set: the limits of {proved} of {total} Gaussian runs "
        f"(n = {_range(p.n)}, d = {_range(p.d)}, alpha = {_range(p.alpha)}) are proved for every "
        f"token, after {max(max(c.layers) for c in cells)} layers at the latest, and all lie in S "
        f"up to {away:.1g}. In {p.ties} integer configurations with ties, in rationals, "
        f"{tied.certified} are proved, {tied.outside} of {tied.limits} limits lie outside S, and "
        f"in {tied.runs_without_leader} of them some token ({tied.without_leader} in all) tends to "
        "a limit that is no leader."
    )
    columns: dict[str, Any] = {
        **{"d": "d", "alpha": "alpha", "n": "n"},
        "certified": lambda c: f"{c.certified}/{p.seeds}",
        "median layers": lambda c: np.median(c.layers),
        "most layers": lambda c: max(c.layers),
        "mean leaders": lambda c: np.mean(c.leaders),
        "mean limits": lambda c: np.mean(c.limits),
        "distance from S": "away",
    }
    table = study.Table.of("Gaussian tokens: layers until every limit is proved", cells, columns)
    return study.Report(
        "A finite set of limits",
        summary,
        tables=(table,),
        checks={"sweep": (check,)},
        figures=(_settling(cells),),
        controls=(
            study.Comparison(
                "Every token of a distinct start converges, and its limit lies in S.",
                "tokens uniform in a ball, and a random symmetric positive definite A for each "
                "start, neither of which the sweep has",
                f"{proved_there} of {others} runs proved, farthest limit from S {away_there:.1g}",
                survives=proved_there == others and away_there <= 1e-12,
            ),
        ),
    )


def _elsewhere(p: Params) -> tuple[int, int, float]:
    """The same question for another law and other forms: runs, proved ones, farthest from S."""
    runs = []
    for seed in range(2 * p.seeds):
        d = p.d[seed % len(p.d)]
        x = np.random.default_rng([d, seed]).standard_normal((d, d))
        A = x @ x.T + 0.2 * np.eye(d)
        z0 = cy.configurations.ball(min(p.n), d, seed)
        li = cy.limit(cy.PureAttention(cy.Hardmax(A), alpha=p.alpha[seed % len(p.alpha)]), z0)
        runs.append((li.certified, _away_from_s(li, A)))
    certified, away = zip(*runs)
    return len(runs), sum(certified), max(away)


def _gaussian_limits(p: Params, d: int, alpha: float, n: int) -> GaussianLimits:
    starts = (cy.configurations.gaussian(n, d, seed) for seed in range(p.seeds))
    runs = [cy.limit(cy.PureAttention(alpha=alpha), z0) for z0 in starts]
    layers, leaders = [li.layers for li in runs], [len(li.leaders) for li in runs]
    limits = [len(np.unique(li.points, axis=0)) for li in runs]
    certified, away = sum(li.certified for li in runs), max(map(_away_from_s, runs))
    return GaussianLimits(d, alpha, n, layers, leaders, limits, certified, away)


def _away_from_s(li: cy.analysis.Limit, A: np.ndarray | None = None) -> float:
    """max over decided limits s of |max_{y in K} <As, y> - |s|_A^2| / max |z|_A^2."""
    s = np.unique(li.points[li.settled_at >= 0], axis=0)
    vertices = li.polytope.vertices
    if A is not None:  # coordinates in which the form is the identity
        root = np.linalg.cholesky(A)
        s, vertices = s @ root, vertices @ root
    gap = (s @ vertices.T).max(axis=1) - (s * s).sum(axis=1)
    return float(np.abs(gap).max() / (vertices * vertices).sum(axis=1).max())


class TiedLimits(NamedTuple):
    """The limits of integer configurations with ties, in rationals."""

    certified: int
    limits: int
    outside: int  # limits that miss the condition of S
    without_leader: int  # tokens whose limit is no leader
    runs_without_leader: int


def _tied_run(seed: int) -> TiedLimits:
    z = cy.configurations.grid(4 + seed % 9, 1 + seed % 3, seed)
    z = np.unique(z[(z != 0).any(axis=1)], axis=0)
    if len(z) == 0:
        z = np.ones((1, 1))
    li = cy.limit(cy.PureAttention(alpha=("1/2", "1", "1/10")[seed % 3]), z, exact=True)
    assert li.exact_points is not None
    vertices = np.array([li.exact_points[i] for i in li.leaders], dtype=object)
    limits = {s for s, k in zip(li.exact_points, li.settled_at) if k >= 0}
    s = np.array(list(limits), dtype=object).reshape(-1, z.shape[1])
    outside = ((s @ vertices.T).max(axis=1) != (s * s).sum(axis=1)) | (s == 0).all(axis=1)
    without = int(((li.follows < 0) & (li.settled_at >= 0)).sum())
    return TiedLimits(li.certified, len(limits), int(outside.sum()), without, without > 0)


def _settling(cells: list[GaussianLimits]) -> study.Picture:
    """One panel for every dimension in which it takes a layer at all."""
    dims = sorted({c.d for c in cells})
    at_once = [d for d in dims if all(max(c.layers) == 0 for c in cells if c.d == d)]
    shown = [d for d in dims if d not in at_once] or dims[-1:]
    figure, axes = cy.plot.sheet(1, len(shown), 3.6, 3.4, sharey=True)
    for ax, d in zip(axes[0], shown):
        for colour, alpha in zip(cy.plot.PALETTE, sorted({c.alpha for c in cells})):
            line = sorted((c for c in cells if c.d == d and c.alpha == alpha), key=lambda c: c.n)
            n, label = [c.n for c in line], f"alpha = {alpha:g}"
            ax.plot(n, [np.median(c.layers) for c in line], "o-", color=colour, label=label)
            ax.plot(n, [max(c.layers) for c in line], ":", color=colour)
        ax.set(xscale="log", xlabel="tokens n", title=f"d = {d}")
    axes[0, 0].set_ylabel("layers (dotted: largest)")
    cy.plot.legend_below(axes[0, 0], 4)
    caption = "Median and largest number over the seeds, by number of tokens."
    hidden = [d for d in at_once if d not in shown]
    if hidden:
        listed = ", ".join(map(str, hidden))
        caption += f" Not shown: d = {listed}, where every limit is proved at layer 0"
        caption += " (docs/mathematics.md B12)." if hidden == [1] else "."
    return study.Picture("Layers until every limit is proved", caption, figure)


# --- 2: leaders ----------------------------------------------------------------------------------


class LeaderCensus(NamedTuple):
    """The leaders of the runs of one (d, alpha, n), in the order of the table."""

    d: int
    alpha: float
    n: int
    leaders: int
    later: int  # of them, after layer 0
    moved: float  # how far one moved once it led
    differ: int  # points that are a leader or a vertex of the polytope, but not both
    first: int  # the same for the vertices of the first hull, which the theorem is not about


def _fixed_leaders(p: Params, progress: study.Progress) -> study.Report:
    axes = {"d": [d for d in p.d if d <= 3], "alpha": p.alpha, "n": p.n}
    cells = study.over_grid(_census, p, axes, progress)
    total, later = sum(c.leaders for c in cells), sum(c.later for c in cells)
    moved, differ = max(c.moved for c in cells), sum(c.differ for c in cells)
    first = sum(c.first for c in cells)
    statement = "leaders never move, and they are exactly the vertices of the limiting polytope"
    witness = {"leaders": total, "largest movement": moved, "vertices that differ": differ}
    summary = (
        f"Leaders stay fixed and are the polytope's vertices: {total} leaders in "
        f"{len(cells) * p.seeds} runs of {p.layers} layers move by {moved:g} once they lead; "
        f"{later} of them emerge after layer 0. The vertices of the hull of the limits "
        f"differ from the leaders in {differ} places."
    )
    columns = (
        *("d", "alpha", "n", "leaders", "of them later", "largest movement"),
        *("vertices that differ", "of the first hull that differ"),
    )
    table = study.Table("Leaders over the layers", columns, tuple(cells))
    z0 = cy.configurations.gaussian(60, 2, 1)
    tr = cy.simulate(cy.PureAttention(alpha=0.5), z0, layers=p.layers)
    shown = cy.plot.layers(tr, show=[k for k in (0, 1, 2, 5, p.layers) if k <= p.layers])
    caption = "alpha = 1/2, A = I; stars are leaders, the polytope they span is shaded at the end."
    norms = "Leaders keep their norm, followers' norms grow."
    check = study.at_most("leaders", PAPER, statement, moved + differ, 0, **witness)
    return study.Report(
        "Leaders stay, and span the polytope",
        summary,
        tables=(table,),
        checks={"sweep": (check,)},
        figures=(
            study.Picture("Sixty Gaussian tokens", caption, shown),
            study.Picture("Norms by layer", norms, cy.plot.norms(tr).figure),
        ),
        controls=(
            study.Comparison(
                "The leaders are exactly the vertices of the limiting polytope.",
                "the vertices of the first hull, which one would guess",
                f"{total} leaders: {differ} differ from the vertices of the limiting polytope, "
                f"{first} from those of the first hull",
                survives=differ == 0 < first,
            ),
        ),
    )


def _census(p: Params, d: int, alpha: float, n: int) -> LeaderCensus:
    dynamics = cy.PureAttention(alpha=alpha)
    leaders, later, differ, first, moved = 0, 0, 0, 0, 0.0
    for seed in range(p.seeds):
        z0 = cy.configurations.gaussian(n, d, seed)
        tr, li = cy.simulate(dynamics, z0, layers=p.layers), cy.limit(dynamics, z0)
        born = cy.roles(tr).born
        leaders, later = leaders + int((born >= 0).sum()), later + int((born > 0).sum())
        leads = (born >= 0) & (np.arange(len(tr))[:, None] >= born)  # by layer
        away = np.abs(tr.values - tr.values[born, np.arange(n)]).max(axis=-1)
        moved = max(moved, float(away[leads].max()))
        vertices = {tuple(v) for v in cy.hull(np.unique(li.points, axis=0)).vertices.tolist()}
        lead = {tuple(v) for v in li.points[li.leaders].tolist()}
        differ += len(vertices ^ lead)
        first += len({tuple(v) for v in cy.hull(z0).vertices.tolist()} ^ lead)
    return LeaderCensus(d, alpha, n, leaders, later, moved, differ, first)


# --- 3: growth -----------------------------------------------------------------------------------


class Growth(NamedTuple):
    """One run without normalisation."""

    alpha: float
    factor: float  # per layer, fitted
    divided: float  # the same for the layers with their division by 1 + alpha
    last: int  # layer within the floating-point numbers
    status: cy.simulation.Status

    @property
    def off(self) -> float:
        return self.factor / (1 + self.alpha) - 1


def _growth(p: Params) -> study.Report:
    z0 = cy.configurations.gaussian(20, 2, 0)
    figure, axes = cy.plot.sheet(1, len(p.alpha), 4.2, 3.4)
    runs = []
    for ax, alpha in zip(axes[0], p.alpha):
        dynamics = cy.dynamics.UnnormalizedAttention(alpha=alpha)
        tr = cy.simulate(dynamics, z0, layers=p.growth_layers)
        cy.plot.norms(tr, ax=ax).set(title=f"alpha = {alpha:g}", yscale="log")
        slope = np.linalg.norm(z0, axis=1).max() * (1 + alpha) ** tr.t
        ax.plot(tr.t, slope, "--", color=cy.plot.INK, gid="slope")
        overflow = int(np.ceil(np.log(np.finfo(float).max) / np.log1p(alpha)))
        end = cy.simulate(dynamics, z0, layers=2 * overflow, throw=False)
        plain = cy.simulate(cy.PureAttention(alpha=alpha), z0, layers=p.growth_layers)
        factor, divided = _fitted_factor(tr), _fitted_factor(plain)
        runs.append(Growth(alpha, factor, divided, int(end.t[-1]), end.status))
    off = max(abs(g.off) for g in runs)
    overflowed = sum(g.status.code == "overflow" for g in runs)
    check = study.at_most(
        "growth",
        "docs/mathematics.md A1",
        "without normalisation the largest token grows by the factor 1 + alpha a layer",
        off if overflowed == len(runs) else np.inf,
        1e-6,
        runs=len(runs),
    )
    summary = (
        f"Without normalisation tokens grow without bound: the factor per layer, fitted over the "
        f"second half of {p.growth_layers} layers, is 1 + alpha to {off:.1g}. {overflowed} of "
        f"{len(runs)} runs end with the status `overflow` instead of infinities."
    )
    columns: dict[str, Any] = {
        **{"alpha": "alpha", "1 + alpha": lambda g: 1 + g.alpha, "fitted factor": "factor"},
        **{"relative difference": "off", "with division": "divided"},
        **{"last layer in range": "last", "status": "status.code"},
    }
    table = study.Table.of("Growth", runs, columns, f"alpha = {runs[0].alpha:g}: {runs[0].status}")
    caption = "Norms by layer; dashed: (1 + alpha)^k times the largest at the start."
    return study.Report(
        "Growth without normalisation",
        summary,
        tables=(table,),
        checks={"gaussian, n = 20": (check,)},
        figures=(study.Picture("Growth of the tokens", caption, figure),),
        controls=(
            study.Comparison(
                "The largest token grows by the factor 1 + alpha a layer.",
                "the same starts with the division by 1 + alpha",
                "fitted factors "
                + ", ".join(f"alpha {g.alpha:g}: {g.factor:.6g} and {g.divided:.6g}" for g in runs),
                survives=off <= 1e-6 and all(abs(g.divided - 1) <= 1e-6 for g in runs),
            ),
        ),
    )


def _fitted_factor(tr: cy.Trajectory) -> float:
    """exp of the slope of log max |z| over the second half of the layers."""
    size = np.log(np.linalg.norm(tr.values, axis=-1).max(axis=-1))
    half = len(size) // 2
    return float(np.exp(np.polyfit(tr.t[half:], size[half:], 1)[0]))


def _range(values: tuple) -> str:
    return f"{min(values):g}..{max(values):g}" if len(values) > 1 else f"{values[0]:g}"
