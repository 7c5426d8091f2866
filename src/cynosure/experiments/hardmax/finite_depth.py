"""What a transformer of finite depth sees of the limit: 6 and 12 layers against infinitely many.

The theorem of arXiv 2407.01602 speaks of infinite depth, models have a dozen layers. See: most
tokens have chosen their leader for ever after a few layers (their limit is proved then), nearly
all leaders are there at layer 0, but distances shrink only by 1 + alpha a layer: whether twelve
layers are "converged" is a question of alpha, not of n or d. The words of the shipped film-review
classifier, placed so that few of a review lead, are measured beside random tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, part, report_of, require
from .._measurements import kept

TITLE = "Finite depth: how much of the limit a few layers see"
LAWS = ("gaussian", "ball", "words")


@dataclass(frozen=True)
class Params:
    """Laws of the start, sizes, steps, starts per cell, layers; `marks` are the table's layers.

    The law "words" draws n words of the shipped film-review classifier (d = 2). `embeddings` may
    name a file of tokens (one per row): draws of n rows are measured beside the laws.
    """

    laws: tuple[str, ...] = ("gaussian", "ball", "words")
    d: tuple[int, ...] = (2, 4, 8, 16)
    n: tuple[int, ...] = (16, 64, 256, 1024)
    alpha: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0)
    starts: int = 10
    layers: int = 24
    marks: tuple[int, ...] = (6, 12)
    seed: int = 0
    embeddings: str = ""


QUICK = Params(d=(2, 16), n=(16, 64), alpha=(0.1, 1.0, 10.0), starts=2)


class DepthCurves(NamedTuple):
    """Curves over the layers 0..layers, one row per start."""

    law: str
    d: int
    n: int
    alpha: float
    settled: np.ndarray  # share of tokens whose limit is proved
    led: np.ndarray  # |L_k| / |L|
    away: np.ndarray  # max |z_i^k - limit| / max |z^0|
    hull: np.ndarray  # Hausdorff distance of K_k and K / max |z^0|; NaN where not computed
    slow: float  # least ratio |z^{k+1} - s| / (rho |z^k - s|) of settled tokens, at most 1
    certified: int


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Limits and layers of every cell."""
    require(set(p.laws) <= set(LAWS), f"laws among {', '.join(LAWS)}", p)
    inside = all(0 <= k <= p.layers for k in p.marks)
    require(min(*p.d, *p.n, p.starts) >= 1 and inside, "d, n, starts >= 1, marks in 0..layers", p)
    drawn = _drawn(p)
    grid = list(product([law for law in p.laws if law not in drawn], p.d, p.n, p.alpha))
    for law, rows in drawn.items():
        grid += product([law], [rows.shape[1]], [n for n in p.n if n <= len(rows)], p.alpha)
    say = part(progress, 0, 0.9)
    cells: list[DepthCurves] = []
    for law, d, n, alpha in grid:
        say(len(cells) / len(grid), f"{law}, d = {d}, n = {n}, alpha = {alpha:g}")
        cells.append(kept(_curves, p, law, drawn.get(law), d, n, alpha))
    statement = "a settled follower approaches its leader by the factor 1 + alpha every layer"
    slowest = 1 - min(c.slow for c in cells)  # relative
    rate = at_most("rate", "docs/mathematics.md B8", statement, slowest, 1e-6, cells=len(cells))
    z0 = cy.configurations.gaussian(40, 2, p.seed)
    one = cy.check(cy.simulate(cy.PureAttention(alpha=0.5), z0, layers=12))
    checks = {"sweep": [rate], "gaussian, n = 40, d = 2": one}
    tables, pictures = [_by_alpha(p, cells), _by_size(p, cells)], [_picture(p, cells)]
    summary = _summary(p, cells)
    return report_of(__name__, p, summary, tables=tables, checks=checks, figures=pictures)


def _drawn(p: Params) -> dict[str, np.ndarray]:
    """Tokens to draw from, by the name of the law: trained ones, and those of a file."""
    rows = {}
    if "words" in p.laws:
        rows["words"] = cy.load_pretrained().model_.planes[0].embedding
    if p.embeddings:
        rows["embeddings"] = cy.configurations.read(p.embeddings)
    return rows


def _start(law: str, rows: np.ndarray | None, n: int, d: int, seed: int) -> np.ndarray:
    if rows is not None:
        return rows[np.random.default_rng(seed).choice(len(rows), n, replace=False)]
    return getattr(cy.configurations, law)(n, d, seed)


def _curves(
    p: Params, law: str, rows: np.ndarray | None, d: int, n: int, alpha: float
) -> DepthCurves:
    dynamics = cy.PureAttention(alpha=alpha)
    k = np.arange(p.layers + 1)[:, None]
    settled, led, away, hulls = (np.full((p.starts, len(k)), np.nan) for _ in range(4))
    slow, certified = 1.0, 0
    for s in range(p.starts):
        z0 = _start(law, rows, n, d, p.seed + s)
        li = cy.limit(dynamics, z0)
        z = cy.simulate(dynamics, z0, layers=p.layers).values
        longest = np.linalg.norm(z0, axis=1).max()
        gaps = np.linalg.norm(z - li.points, axis=-1)
        settled[s] = ((li.settled_at >= 0) & (li.settled_at <= k)).mean(axis=1)
        led[s] = (li.born[li.leaders] <= k).mean(axis=1)
        away[s] = gaps.max(axis=1) / longest
        if d <= 4 and n <= 256:
            hulls[s] = [_to_hull(zk, li.polytope) / longest for zk in z]
        slow = min(slow, _slowest(gaps / longest, li, alpha))
        certified += li.certified
    size, curves = (law, d, n, alpha), (settled, led, away, hulls)
    return DepthCurves(*size, *curves, slow=slow, certified=certified)


def _to_hull(z: np.ndarray, body: cy.Polytope) -> float:
    """Hausdorff distance of K_k and K: K lies inside, so the farthest token from K.

    Only tokens on the wrong side of a facet are projected.
    """
    excess = z @ body.equations[:, :-1].T + body.equations[:, -1]
    flat = np.abs(z @ body.affine_equations[:, :-1].T + body.affine_equations[:, -1])
    far = z[(np.hstack([excess, flat]) > 1e-14 * body.size).any(axis=1)]
    return float(body.distance(far).max()) if len(far) else 0.0


def _slowest(gaps: np.ndarray, li: cy.Limit, alpha: float) -> float:
    """min over settled followers and layers of rho gap_k / gap_{k+1}, while gaps are no rounding.

    1 means: exactly the rate; below 1: some distance shrank by less than the factor 1 + alpha.
    """
    now, then = gaps[:-1] / (1 + alpha), gaps[1:]
    later = np.arange(len(now))[:, None] >= np.where(li.settled_at < 0, len(now), li.settled_at)
    seen = later & (li.follows >= 0) & (then > 1e-9)
    return float((now[seen] / then[seen]).min()) if seen.any() else 1.0


def _mean(cells: list[DepthCurves], curve: str, k: int) -> float:
    """The mean of a curve at layer k over the cells."""
    return float(np.mean([getattr(c, curve)[:, k].mean() for c in cells]))


def _summary(p: Params, cells: list[DepthCurves]) -> str:
    near = {k: np.mean([(c.away[:, k] < 0.01).mean() for c in cells]) for k in p.marks}
    lines = [
        f"At layer {k}, {_mean(cells, 'settled', k):.2%} of the tokens have a proved limit and "
        f"{_mean(cells, 'led', k):.2%} of the final leaders lead; every token is within 1 % of its "
        f"limit in {near[k]:.0%} of the runs"
        for k in p.marks
    ]
    small, large, k = min(p.alpha), max(p.alpha), p.marks[-1]
    far = {a: np.median([c.away[:, k] for c in cells if c.alpha == a]) for a in (small, large)}
    text = (
        f"{sum(c.certified for c in cells)} of {len(cells) * p.starts} runs are proved for every "
        f"token. {'. '.join(lines)}. The depth needed is set by alpha: the median distance to the "
        f"limit at layer {k} is {far[small]:.2g} of the longest token for alpha = {small:g}, "
        f"{far[large]:.2g} for alpha = {large:g}."
    )
    if words := [c for c in cells if c.law == "words"]:
        known = ", ".join(f"{_mean(words, 'settled', k):.2%} at layer {k}" for k in (0, *p.marks))
        text += f" Of words of the shipped film-review classifier a limit is proved for {known}."
    return text


def _by_alpha(p: Params, cells: list[DepthCurves]) -> cy.Table:
    shares = ("alpha", "layer", "settled", "leaders present")
    lengths = ("median distance", "largest distance", "largest hull distance", "(1+alpha)^-k")
    rows = []
    for alpha, k in product(p.alpha, p.marks):
        of = [c for c in cells if c.alpha == alpha]
        away = np.array([c.away[:, k] for c in of])
        hulls = np.array([c.hull[:, k] for c in of])
        farthest = np.nanmax(hulls) if np.isfinite(hulls).any() else None
        distances = np.median(away), away.max(), farthest, (1 + alpha) ** -k
        rows.append((alpha, k, _mean(of, "settled", k), _mean(of, "led", k), *distances))
    note = "Distances are shares of the longest token; hulls for d ≤ 4, n ≤ 256."
    return cy.Table("What a finite depth sees, by alpha", (*shares, *lengths), tuple(rows), note)


def _by_size(p: Params, cells: list[DepthCurves]) -> cy.Table:
    marks = (0, *p.marks)
    rows = []
    for size in dict.fromkeys((c.law, c.d, c.n) for c in cells):
        of = [c for c in cells if (c.law, c.d, c.n) == size]
        rows.append((*size, *(_mean(of, curve, k) for curve in ("settled", "led") for k in marks)))
    names = [f"{name} at {k}" for name in ("settled", "leaders") for k in marks]
    return cy.Table("By law and size, mean over alpha", ("law", "d", "n", *names), tuple(rows))


def _picture(p: Params, cells: list[DepthCurves]) -> cy.Picture:
    from matplotlib.lines import Line2D

    k = np.arange(p.layers + 1)
    figure, axes = cy.plot.sheet(2, 2, 5, 3.4)
    by_d, by_alpha, leaders, away = axes.flat
    dims = list(dict.fromkeys(c.d for c in cells))
    for colour, d in zip(cy.plot.PALETTE, dims):
        of = [c for c in cells if c.d == d]
        by_d.plot(k, _missing(of, "settled"), ".-", color=colour, label=f"d = {d}")
        leaders.plot(k, _missing(of, "led"), ".-", color=colour, label=f"d = {d}")
    for colour, alpha in zip(cy.plot.PALETTE[len(dims) :], p.alpha):
        of = [c for c in cells if c.alpha == alpha]
        label = rf"$\alpha$ = {alpha:g}"
        by_alpha.plot(k, _missing(of, "settled"), ".-", color=colour, label=label)
        away.plot(k, _positive(np.max([c.away.max(axis=0) for c in of], axis=0)), color=colour)
        if hulls := [c.hull for c in of if np.isfinite(c.hull).all()]:
            away.plot(k, _positive(np.max(np.concatenate(hulls), axis=0)), ":", color=colour)
        away.plot(k, (1.0 + alpha) ** -k, "--", color=colour, lw=0.8)
    by_d.set(ylabel="share of tokens", title="not settled, by dimension")
    by_alpha.set(ylabel="share of tokens", title="not settled, by step")
    leaders.set(ylabel="share of final leaders", title="do not lead yet, by dimension")
    away.set(ylabel="share of the longest token", title="distance to the limit, by step")
    ink, styles = cy.plot.INK, {"-": "tokens", ":": "hulls", "--": r"$(1+\alpha)^{-k}$"}
    key = [Line2D([], [], color=ink, ls=style, label=name) for style, name in styles.items()]
    away.legend(handles=key, frameon=False, fontsize=cy.plot.LABEL, loc="lower left")
    for ax in (by_d, by_alpha, leaders):
        ax.legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper right")
    for ax in axes.flat:
        ax.set(xlabel="layer $k$", xlim=(-0.5, p.layers + 0.5))
        if any(np.isfinite(line.get_ydata()).any() for line in ax.get_lines()):
            ax.set_yscale("log")
        else:
            ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", color=ink)
            ax.set_yticks([])
    away.set_ylim(1e-14, 3)
    return cy.Picture("Against the layers", CAPTION, figure)


CAPTION = (
    "Top: tokens whose limit is not proved yet, by d and by alpha (means over everything else); "
    "curves end where none is left. Bottom left: final leaders that do not lead yet. Bottom right: "
    "the largest distance to the limit in all runs of an alpha and that of the hulls (d ≤ 4, n ≤ "
    "256), as shares of the longest token: parallel to (1 + alpha)^-k once all tokens have settled."
)


def _positive(y: np.ndarray) -> np.ndarray:
    """For a logarithmic axis: zero, and what is rounding, is left out."""
    return np.where(y > 1e-14, y, np.nan)


def _missing(cells: list[DepthCurves], curve: str) -> np.ndarray:
    """1 - the mean of a curve over the cells."""
    return _positive(1 - np.mean([getattr(c, curve).mean(axis=0) for c in cells], axis=0))
