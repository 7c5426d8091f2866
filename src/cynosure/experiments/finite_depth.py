"""What a transformer of finite depth sees of the limit: 6 and 12 layers against infinitely many.

The theorem of arXiv 2407.01602 speaks of infinite depth, models have a dozen layers. See: most
tokens have chosen their leader for ever after a few layers (their limit is proved then), nearly
all leaders are there at layer 0, but distances shrink only by 1 + alpha a layer: whether twelve
layers are "converged" is a question of alpha, not of n or d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple, final

import numpy as np

from .. import configurations
from ..dynamics import PureAttention
from ..limits import Limit, limit
from ..polytope import Polytope
from ..report import Picture, Report, Table
from ..simulation import simulate
from ..theorems import Check, check
from . import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Finite depth: how much of the limit a few layers see"
LAWS: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "gaussian": configurations.gaussian,
    "ball": configurations.ball,
}


@final
@dataclass(frozen=True)
class Params:
    """Laws of the start, sizes, steps, starts per cell, layers; `marks` are the table's layers.

    `embeddings` may name a file of tokens (one per row, e.g. trained word embeddings): draws of n
    rows are measured beside the laws.
    """

    laws: tuple[str, ...] = ("gaussian", "ball")
    d: tuple[int, ...] = (2, 4, 8, 16)
    n: tuple[int, ...] = (16, 64, 256, 1024)
    alpha: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0)
    starts: int = 10
    layers: int = 24
    marks: tuple[int, ...] = (6, 12)
    seed: int = 0
    embeddings: str = ""


QUICK = Params(d=(2, 16), n=(16, 64), alpha=(0.1, 1.0, 10.0), starts=2)


class Cell(NamedTuple):
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


def run(p: Params, progress: Progress | None = None) -> Report:
    """Limits and layers of every cell."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if unknown := set(p.laws) - set(LAWS):
        raise ValueError(f"laws: expected some of {', '.join(LAWS)}, got {sorted(unknown)}")
    if min(*p.d, *p.n, p.starts) < 1 or not all(0 <= k <= p.layers for k in p.marks):
        raise ValueError(f"finite_depth: sizes start at 1 and marks lie in 0..layers; got {p}")
    laws = {name: LAWS[name] for name in p.laws}
    grid = list(product(p.laws, p.d, p.n, p.alpha))
    if p.embeddings:
        rows = configurations.read(p.embeddings)
        laws["embeddings"] = _drawn_from(rows)
        sizes = [n for n in p.n if n <= len(rows)]
        grid += list(product(["embeddings"], [rows.shape[1]], sizes, p.alpha))
    cells = []
    for done, (law, d, n, alpha) in enumerate(grid):
        say(0.9 * done / len(grid), f"{law}, d = {d}, n = {n}, alpha = {alpha:g}")
        cells.append(_cell(p, law, laws[law], d, n, alpha))
    say(0.9, "figures")
    shown = simulate(PureAttention(alpha=0.5), configurations.gaussian(40, 2, p.seed), layers=12)
    checks = {
        "sweep": (_rate_check(cells),),
        "gaussian, n = 40, d = 2": tuple(check(shown)),
    }
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, cells),
        asdict(p),
        (_by_alpha(p, cells), _by_size(p, cells)),
        checks,
        (Picture("Against the layers", _CAPTION, _curves(p, cells)),),
        command="cynosure run finite_depth",
    )


_CAPTION = (
    "Means over all other sizes and the starts. Top: share of tokens whose limit is proved, by d "
    "and by alpha. Bottom left: share of the final leaders that lead already. Bottom right: "
    "largest distance to the limit (solid), distance of the hulls for d ≤ 4 (dotted) and the line "
    "(1 + alpha)^-k (dashed): once tokens have settled, nothing is faster or slower."
)


def _drawn_from(rows: np.ndarray) -> Callable[[int, int, int], np.ndarray]:
    def draw(n: int, d: int, seed: int) -> np.ndarray:
        return rows[np.random.default_rng(seed).choice(len(rows), n, replace=False)]

    return draw


def _cell(
    p: Params, law: str, draw: Callable[[int, int, int], np.ndarray], d: int, n: int, alpha: float
) -> Cell:
    dynamics = PureAttention(alpha=alpha)
    k = np.arange(p.layers + 1)
    settled, led, away, hulls = (np.full((p.starts, len(k)), np.nan) for _ in range(4))
    slow, certified = 1.0, 0
    for s in range(p.starts):
        z0 = draw(n, d, p.seed + s)
        li = limit(dynamics, z0)
        z = simulate(dynamics, z0, layers=p.layers).values
        longest = np.linalg.norm(z0, axis=1).max()
        gaps = np.linalg.norm(z - li.points, axis=-1)
        settled[s] = ((li.settled_at >= 0) & (li.settled_at <= k[:, None])).mean(axis=1)
        born = li.born[li.leaders]
        led[s] = (born <= k[:, None]).mean(axis=1)
        away[s] = gaps.max(axis=1) / longest
        if d <= 4 and n <= 256:
            hulls[s] = [_to_hull(zk, li.polytope) / longest for zk in z]
        slow = min(slow, _slowest(gaps / longest, li, alpha))
        certified += li.certified
    return Cell(law, d, n, alpha, settled, led, away, hulls, slow, certified)


def _to_hull(z: np.ndarray, body: Polytope) -> float:
    """Hausdorff distance of K_k and K: K lies inside, so the farthest token from K.

    Only tokens on the wrong side of a facet are projected.
    """
    excess = z @ body.equations[:, :-1].T + body.equations[:, -1]
    flat = np.abs(z @ body.affine_equations[:, :-1].T + body.affine_equations[:, -1])
    far = z[(np.hstack([excess, flat]) > 1e-14 * body.size).any(axis=1)]
    return float(body.distance(far).max()) if len(far) else 0.0


def _slowest(gaps: np.ndarray, li: Limit, alpha: float) -> float:
    """min over settled followers and layers of rho gap_k / gap_{k+1}, while gaps are no rounding.

    1 means: exactly the rate; below 1: some distance shrank by less than the factor 1 + alpha.
    """
    now, then = gaps[:-1] / (1 + alpha), gaps[1:]
    later = np.arange(len(now))[:, None] >= np.where(li.settled_at < 0, len(now), li.settled_at)
    seen = later & (li.follows >= 0) & (then > 1e-9)
    return float((now[seen] / then[seen]).min()) if seen.any() else 1.0


def _rate_check(cells: list[Cell]) -> Check:
    worst, tol = 1 - min(c.slow for c in cells), 1e-6
    return Check(
        theorem="B8",
        reference="theory B8",
        statement="a settled follower approaches its leader by the factor 1 + alpha every layer",
        applies=True,
        holds=worst <= tol,
        margin=tol - worst,
        tol=tol,
        witness={"slowest step, relative": worst, "cells": len(cells)},
        hypotheses=(),
        arithmetic="float64",
    )


def _summary(p: Params, cells: list[Cell]) -> str:
    runs, proved = len(cells) * p.starts, sum(c.certified for c in cells)
    lines = []
    for k in p.marks:
        settled = float(np.mean([c.settled[:, k].mean() for c in cells]))
        led = float(np.mean([c.led[:, k].mean() for c in cells]))
        near = float(np.mean([(c.away[:, k] < 0.01).mean() for c in cells]))
        lines.append(
            f"At layer {k}, {settled:.1%} of the tokens have a proved limit and {led:.2%} of the "
            f"final leaders lead; every token is within 1 % of its limit in {near:.0%} of the runs"
        )
    small, large = min(p.alpha), max(p.alpha)
    k = p.marks[-1]
    far = {
        a: float(np.median([c.away[:, k] for c in cells if c.alpha == a])) for a in (small, large)
    }
    return (
        f"{proved} of {runs} runs are proved for every token. "
        + ". ".join(lines)
        + f". The depth needed is set by alpha: the median distance to the limit at layer {k} is "
        f"{far[small]:.2g} of the longest token for alpha = {small:g}, {far[large]:.2g} for alpha "
        f"= {large:g}."
    )


def _by_alpha(p: Params, cells: list[Cell]) -> Table:
    rows = []
    for alpha, k in product(p.alpha, p.marks):
        of = [c for c in cells if c.alpha == alpha]
        hulls = np.concatenate([c.hull[:, k] for c in of])
        hulls = hulls[np.isfinite(hulls)]
        rows.append(
            (
                alpha,
                k,
                float(np.mean([c.settled[:, k].mean() for c in of])),
                float(np.mean([c.led[:, k].mean() for c in of])),
                float(np.median([c.away[:, k] for c in of])),
                float(max(c.away[:, k].max() for c in of)),
                float(hulls.max()) if len(hulls) else None,
                float((1 + alpha) ** -k),
            )
        )
    columns = (
        "alpha",
        "layer",
        "settled",
        "leaders present",
        "median distance",
        "largest distance",
        "largest hull distance",
        "(1+alpha)^-k",
    )
    note = "Distances are shares of the longest token; hulls for d ≤ 4, n ≤ 256."
    return Table("What a finite depth sees, by alpha", columns, tuple(rows), note)


def _by_size(p: Params, cells: list[Cell]) -> Table:
    rows = []
    for law, d, n in dict.fromkeys((c.law, c.d, c.n) for c in cells):
        of = [c for c in cells if (c.law, c.d, c.n) == (law, d, n)]
        row: list[Any] = [law, d, n]
        row += [float(np.mean([c.settled[:, k].mean() for c in of])) for k in (0, *p.marks)]
        row += [float(np.mean([c.led[:, k].mean() for c in of])) for k in (0, *p.marks)]
        rows.append(tuple(row))
    columns = (
        "law",
        "d",
        "n",
        *(f"settled at {k}" for k in (0, *p.marks)),
        *(f"leaders at {k}" for k in (0, *p.marks)),
    )
    return Table("By law and size, mean over alpha", columns, tuple(rows))


def _curves(p: Params, cells: list[Cell]) -> Any:
    from matplotlib.figure import Figure

    from ..plot import PALETTE

    k = np.arange(p.layers + 1)
    figure = Figure(figsize=(10, 6.6), layout="constrained")
    by_d, by_alpha, leaders, away = figure.subplots(2, 2).ravel()
    dims = list(dict.fromkeys(c.d for c in cells))
    for colour, d in zip(PALETTE, dims):
        of = [c for c in cells if c.d == d]
        by_d.plot(k, np.mean([c.settled.mean(axis=0) for c in of], axis=0), color=colour)
        mean = np.mean([c.led.mean(axis=0) for c in of], axis=0)
        leaders.plot(k, mean, color=colour, label=f"d = {d}")
    for colour, alpha in zip(PALETTE[len(dims) :], p.alpha):
        of = [c for c in cells if c.alpha == alpha]
        mean = np.mean([c.settled.mean(axis=0) for c in of], axis=0)
        by_alpha.plot(k, mean, color=colour, label=rf"$\alpha$ = {alpha:g}")
        far = np.max([c.away.max(axis=0) for c in of], axis=0)
        away.plot(k, np.where(far > 1e-14, far, np.nan), color=colour)
        flat = [c.hull for c in of if np.isfinite(c.hull).all()]
        if flat:
            far = np.max(np.concatenate(flat), axis=0)
            away.plot(k, np.where(far > 1e-14, far, np.nan), ":", color=colour)
        away.plot(k, (1.0 + alpha) ** -k, "--", color=colour, lw=0.8)
    by_d.set(ylabel="settled tokens", title="by dimension")
    by_alpha.set(title="by step")
    lowest = min(float(line.get_ydata().min()) for line in leaders.get_lines())
    floor = min(0.98, lowest - 0.002)
    leaders.set(ylabel="leaders present", xlabel="layer $k$", ylim=(floor, 1.002))
    away.set(yscale="log", ylim=(1e-14, 3), xlabel="layer $k$", ylabel="distance to the limit")
    leaders.legend(frameon=False, fontsize="small", loc="lower right")
    by_alpha.legend(frameon=False, fontsize="small", loc="lower right")
    for ax in (by_d, by_alpha, leaders, away):
        ax.spines[["top", "right"]].set_visible(False)
    return figure
