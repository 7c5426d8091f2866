"""Softmax to hardmax: how long softmax layers at inverse temperature beta follow hardmax layers.

    z_i <- (z_i + alpha (P z)_i)/(1 + alpha),   P = softmax of beta <z_i, z_j>   or hardmax

At fixed beta softmax collapses to one point in the end, whatever beta is: its agreement with
hardmax (arXiv 2407.01602) is metastable. See: at small beta somebody follows another token than
under hardmax within a few layers, at large beta nobody ever does; and the leaders, which hardmax
never moves, leave their places after a number of layers that grows like e^{c beta}
(docs/mathematics.md E15; on the sphere arXiv 2410.06833, for the random chain arXiv 2508.09628).
The slope c is near the smallest gap <v, v - w> between a leader v and another token's limit w,
which is what the exponential weighs.

The lines drawn are a pentagon and the first four Gaussian starts of a seed that was picked by hand
(seed 0; they look tidy). The tables and the sentence on slopes have all `starts` of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.leaders import roles
from ...analysis.limits import Limit, limit
from ...analysis.spectra import attention_matrix
from ...attention import Softmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from .._frame import Progress, at_most, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Softmax to hardmax: the lifetime of the agreement against beta"
_DRAWN = 5  # starts in the figure; the tables have all


@final
@dataclass(frozen=True)
class Params:
    """Inverse temperatures; a pentagon with tokens inside and `starts` Gaussian starts, n tokens
    each; leaders are looked at for `most` layers, until one is `far` (relative to the longest
    token) from its place; follow patterns are compared for 64."""

    beta: tuple[float, ...] = (4.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 25.0, 30.0, 40.0, 60.0)
    n: int = 12
    alpha: float = 1.0
    starts: int = 10
    most: int = 20_000
    far: float = 0.1
    clusters_beta: tuple[float, ...] = (4.0, 8.0, 16.0)
    seed: int = 0


QUICK = Params(beta=(4.0, 8.0, 14.0, 16.0, 18.0), starts=1, most=3000, clusters_beta=(4.0, 8.0))


class Life(NamedTuple):
    """One start at one beta."""

    differs: int | None  # first layer at which the strongest weights point elsewhere than hardmax
    lost: int | None  # first layer at which a leader is far; None: not within the layers looked at
    share: float  # of tokens near their hardmax limit after 64 layers (or before the loss)


def run(p: Params, progress: Progress | None = None) -> Report:
    """Every start at every beta, until the agreement is lost."""
    say = progress or silent
    if min(p.beta) <= 0 or p.n < 6 or p.starts < 0 or p.most < 100 or not 0 < p.far < 1:
        raise ValueError(
            f"softmax_to_hardmax: beta > 0, n >= 6, starts >= 0, most >= 100, 0 < far < 1; got {p}"
        )
    starts = {"pentagon": configurations.polygon(5, interior=p.n - 5, seed=p.seed)}
    for s in range(p.starts):
        starts[f"Gaussian {s}"] = configurations.gaussian(p.n, 2, p.seed + s)
    lives: dict[tuple[str, float], Life] = {}
    barriers = {}
    for name, z0 in starts.items():
        barriers[name] = barrier(limit(PureAttention(alpha=p.alpha), z0))
        for beta in p.beta:
            say(0.8 * len(lives) / len(starts) / len(p.beta), f"{name}, beta = {beta:g}")
            lives[name, beta] = kept(_life, p, z0, beta)
    say(0.8, "clusters")
    counts = {beta: kept(_clusters, p, beta) for beta in p.clusters_beta}
    slopes = {name: _slope(p, lives, name) for name in starts}
    say(0.95, "figures")
    figures = (
        Picture("Lifetime of the agreement", _LIFE, _life_figure(p, lives, barriers, slopes)),
        Picture("Clusters against depth", _CLUSTERS, _cluster_figure(counts)),
    )
    pairs = [(name, a, b) for name in starts for a, b in pairwise(p.beta)]
    broken = sum(
        (lives[name, b].lost or p.most) < (lives[name, a].lost or p.most) for name, a, b in pairs
    )
    check = at_most(
        "E15",
        "docs/mathematics.md A2, E15",
        "a larger beta keeps the leaders at least as long (share of neighbours that do not)",
        broken / len(pairs) if pairs else 0.0,
        0.1,  # a trend, not a theorem: at small beta a lucky mean may hold a leader
        pairs=len(pairs),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, lives, barriers, slopes),
        asdict(p),
        (_table(p, lives), _slope_table(barriers, slopes)),
        {"all starts": (check,)},
        figures,
        command="cynosure run softmax_to_hardmax",
    )


_LIFE = (
    "Left: layers until a leader is a tenth of the longest token away from its place, one line per "
    "start; triangles were still in place when we stopped looking. Dashed: lines of slope equal to "
    "the smallest gap between leaders. Right: the first layer at which the strongest softmax "
    "weight of some token is not on a token it follows under hardmax; triangles: none in 64."
)
_CLUSTERS = (
    "Clusters of the softmax tokens against depth, pentagon start; the dotted line is the number "
    "of hardmax limits. Plateaus are metastable: at fixed beta one point is the only end."
)


def barrier(li: Limit) -> float:
    """The smallest <v, v - w> over leaders v and other leaders w: e^{-beta gap} is the leak."""
    v = li.points[li.leaders]
    if len(v) < 2:
        return float("inf")
    gaps = (v**2).sum(axis=1)[:, None] - v @ v.T
    return float(gaps[~np.eye(len(v), dtype=bool)].min())


def _life(p: Params, z0: np.ndarray, beta: float) -> Life:
    """Simulate in stretches that double, until a leader has left."""
    li = limit(PureAttention(alpha=p.alpha), z0)
    soft = PureAttention(Softmax(beta), p.alpha)
    longest = float(np.linalg.norm(z0, axis=1).max())
    z, k, stretch, share = z0, 0, 64, 0.0
    lost = None
    while k < p.most and lost is None:
        layers = min(stretch, p.most - k)
        tr = simulate(soft, z, layers=layers, save_every=max(1, layers // 512))
        away = np.linalg.norm(tr.values - li.points, axis=-1) / longest
        bad = np.flatnonzero(away[:, li.leaders].max(axis=1) > p.far)
        if k == 0:
            share = float((away[(bad[0] if len(bad) else 0) - 1] < p.far).mean())
        lost = k + int(tr.t[bad[0]]) if len(bad) else None
        z, k, stretch = tr.values[-1], k + layers, 2 * stretch
    return Life(_differs(p, soft, z0), lost, share)


def _differs(p: Params, soft: PureAttention, z0: np.ndarray) -> int | None:
    """The first of 64 layers at which somebody's strongest weight is off its set C_i."""
    tr, hard = simulate(soft, z0, layers=64), simulate(PureAttention(alpha=p.alpha), z0, layers=64)
    ro = roles(hard)
    for k in range(len(tr.t)):
        strongest = attention_matrix(soft, tr.values[k]).argmax(axis=1)
        sets = ro.followed(k)
        # followers that sit on their leader up to rounding count as the leader
        same = [
            np.abs(hard.values[k][strongest[i]] - hard.values[k][sets[i]]).max(axis=1).min() < 1e-6
            for i in range(p.n)
        ]
        if not all(same):
            return k
    return None


def _clusters(p: Params, beta: float) -> tuple[np.ndarray, np.ndarray, int]:
    """(layers, number of clusters, number of hardmax limits) of the pentagon."""
    z0 = configurations.polygon(5, interior=p.n - 5, seed=p.seed)
    soft = PureAttention(Softmax(beta), p.alpha)
    longest = float(np.linalg.norm(z0, axis=1).max())
    seen, z, k = {0: z0}, z0, 0
    while k < p.most:
        layers = min(max(8, k), p.most - k)
        tr = simulate(soft, z, layers=layers, save_every=max(1, layers // 16))
        seen |= {k + int(t): state for t, state in zip(tr.t, tr.values, strict=True)}
        z, k = tr.values[-1], k + layers
    counts = np.array([clusters(state, 0.05 * longest).count for state in seen.values()])
    ends = limit(PureAttention(alpha=p.alpha), z0).points
    return np.array(list(seen)), counts, clusters(ends, 0.05 * longest).count


def _slope(p: Params, lives: dict[tuple[str, float], Life], name: str) -> float | None:
    """d log(lifetime) / d beta over lifetimes long enough (100 layers) to be metastable."""
    found = [(b, lives[name, b].lost) for b in p.beta]
    long = [(b, np.log(lost)) for b, lost in found if lost is not None and lost >= 100]
    if len(long) < 2:
        return None
    return float(np.polyfit([b for b, _ in long], [log for _, log in long], 1)[0])


def _table(p: Params, lives: dict[tuple[str, float], Life]) -> Table:
    rows = tuple((name, beta, c.lost, c.share, c.differs) for (name, beta), c in lives.items())
    columns = ("start", "beta", "leaders leave at", "tokens as in hardmax", "patterns differ at")
    note = (
        f"Layers; – : not within {p.most} (leaders) or 64 (patterns). Tokens as in hardmax: the "
        "share of tokens near their hardmax limit at layer 64, or just before a leader left."
    )
    return Table("Agreement of softmax with hardmax", columns, rows, note)


def _slope_table(barriers: dict[str, float], slopes: dict[str, float | None]) -> Table:
    rows = tuple((name, slopes[name], barriers[name]) for name in slopes)
    columns = ("start", "slope of log lifetime", "smallest gap between leaders")
    return Table("Slopes", columns, rows, "Over lifetimes of at least 100 layers.")


def _summary(
    p: Params,
    lives: dict[tuple[str, float], Life],
    barriers: dict[str, float],
    slopes: dict[str, float | None],
) -> str:
    low, high = min(p.beta), max(p.beta)
    parts = []
    for name, slope in list(slopes.items())[:_DRAWN]:
        first, last = lives[name, low].lost, lives[name, high].lost
        grown = f"layer {last}" if last is not None else f"no layer up to {p.most}"
        fit = f"slope {slope:.3g} against a gap of {barriers[name]:.3g}" if slope else "no slope"
        parts.append(
            f"{name}: a leader leaves at layer {first} for beta = {low:g}, at {grown} for "
            f"{high:g}, {fit}"
        )
    never = [min((b for b in p.beta if lives[n, b].differs is None), default=None) for n in slopes]
    seen = [b for b in never if b is not None]
    agree = (
        f"In {len(seen)} of {len(slopes)} starts some beta (the least: {min(seen):g}) follows "
        "hardmax's pattern through all 64 layers."
        if seen
        else "In every start somebody follows another token than under hardmax at every beta."
    )
    return f"{'; '.join(parts)}.\n\n{agree} {_ratios(barriers, slopes)}"


def _ratios(barriers: dict[str, float], slopes: dict[str, float | None]) -> str:
    """Slope over gap, over every start that has both."""
    found = [
        slope / barriers[name]
        for name, slope in slopes.items()
        if slope is not None and np.isfinite(barriers[name])
    ]
    if not found:
        return "No start has a slope."
    return (
        f"Slope over gap in the {len(found)} of {len(slopes)} starts that have both: median "
        f"{np.median(found):.2f}, from {min(found):.2f} to {max(found):.2f}."
    )


def _life_figure(
    p: Params,
    lives: dict[tuple[str, float], Life],
    barriers: dict[str, float],
    slopes: dict[str, float | None],
) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 2, 5.4, 4.2)
    left, right = axes[0]
    beta = np.array(p.beta)
    for s, name in enumerate(list(slopes)[:_DRAWN]):
        colour = PALETTE[s % len(PALETTE)]
        cells = [lives[name, b] for b in p.beta]
        lost = np.array([p.most if c.lost is None else max(c.lost, 1) for c in cells], dtype=float)
        kept = np.array([c.lost is None for c in cells])
        left.semilogy(beta[~kept], lost[~kept], "o-", color=colour, ms=4, label=name)
        left.semilogy(beta[kept], lost[kept], "^", color=colour, ms=7)
        long = np.flatnonzero((lost >= 100) & ~kept)
        if len(long):
            line = lost[long[0]] * np.exp(barriers[name] * (beta - beta[long[0]]))
            seen = (line < 3 * p.most) & (beta >= beta[long[0]])
            left.semilogy(beta[seen], line[seen], "--", color=colour, lw=0.9)
        x = beta + 0.25 * (s - (min(len(slopes), _DRAWN) - 1) / 2)
        first = np.array([64 if c.differs is None else c.differs for c in cells])
        never = np.array([c.differs is None for c in cells])
        right.plot(x[~never], first[~never], "o", color=colour, ms=5)
        right.plot(x[never], first[never], "^", color=colour, ms=7)
    left.set(xlabel="inverse temperature beta", ylabel="layers until a leader leaves")
    right.set(xlabel="inverse temperature beta", ylabel="first different follow pattern (layer)")
    right.set_yscale("symlog", linthresh=1)
    right.set_ylim(-0.2, 100)
    left.legend(frameon=False, loc="best")
    return figure


def _cluster_figure(counts: dict[float, tuple[np.ndarray, np.ndarray, int]]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 1, 7, 3.8)
    ax = axes[0, 0]
    for colour, (beta, (layers, number, _)) in zip(PALETTE, counts.items(), strict=False):
        ax.step(layers + 1, number, where="post", color=colour, label=f"beta = {beta:g}")
    hard = next(iter(counts.values()))[2]
    ax.axhline(hard, color="black", ls=":", label="hardmax limits")
    ax.set(xscale="log", xlabel="layer + 1", ylabel="clusters")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)
    return figure
