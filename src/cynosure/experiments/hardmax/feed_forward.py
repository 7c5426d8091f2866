"""A feed-forward sublayer between hardmax layers: what remains of leaders and clusters.

    z <- attention layer,   then   z_i <- z_i + w W2 relu(W1 z_i)

W1, W2 are random and fixed, without biases, so the layer is positively homogeneous like hardmax
itself and sizes may be divided out. The theory of arXiv 2407.01602 is the case w = 0. See: for
small w clusters survive (all tokens of a cluster move together) while leaders do not stand still
any more; as w grows the leaders of layer 0 lose their lead, and in the end the sublayer decides
where tokens go.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ..._types import Array
from ...analysis.clustering import clusters
from ...attention import Hardmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import means, sheet
from ...dynamics import LayerMap, PureAttention, Scheduled
from ...simulation import configurations
from ...simulation.loop import simulate
from ...theorems import Check
from .._frame import Progress, at_most, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "FeedForward", "Params", "run"]

TITLE = "A feed-forward sublayer: what remains of leaders and clusters"


@final
@dataclass(frozen=True, eq=False)
class FeedForward(LayerMap):
    """z_i <- z_i + weight W2 relu(W1 z_i), the same for every token and layer."""

    W1: np.ndarray
    W2: np.ndarray
    weight: float

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        return z + self.weight * (np.maximum(z @ self.W1.T, 0.0) @ self.W2.T)


@final
@dataclass(frozen=True)
class Params:
    """Weights w of the sublayer, its width, Gaussian starts of n tokens, attention layers."""

    weights: tuple[float, ...] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
    shown: tuple[float, ...] = (0.0, 0.1, 0.5, 2.0)
    width: int = 32
    n: int = 40
    d: tuple[int, ...] = (2, 4, 8)
    alpha: float = 1.0
    starts: int = 30
    layers: int = 16
    seed: int = 0


QUICK = Params(weights=(0.0, 0.05, 0.2, 0.5, 1.0), d=(2, 4), starts=5, shown=(0.0, 0.2, 1.0))


class Fate(NamedTuple):
    """One run, read off its attention layers."""

    kept: float  # share of the leaders of layer 0 that lead at the last layer
    leaders: int  # at the last layer
    clusters: int  # at the last layer, in units of the longest token there
    moved: float  # how far a leader of layer 0 turned or grew, share of its size
    frozen: float  # share of the tokens that follow the same tokens in the last two layers


def run(p: Params, progress: Progress | None = None) -> Report:
    """All weights on the same starts."""
    say = progress or silent
    if p.layers < 2 or min(p.starts, p.n, p.width, *p.d) < 1 or 0.0 not in p.weights:
        raise ValueError(
            "feed_forward: layers >= 2, sizes >= 1, and 0 among the weights, to compare with the "
            f"theory; got {p}"
        )
    fates: dict[tuple[int, float], list[Fate]] = {}
    grid = [(d, w) for d in p.d for w in p.weights]
    for done, (d, w) in enumerate(grid):
        say(0.9 * done / len(grid), f"d = {d}, w = {w:g}")
        fates[d, w] = kept(_fates, p, d, w)
    say(0.9, "figures")
    curves = Picture("Against the weight of the sublayer", _CURVES, _curves(p, fates))
    panels = Picture("One start under several weights", _PANELS, _panels(p))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, fates),
        asdict(p),
        (_table(fates),),
        {"w = 0": (_check(p, fates),)},
        (curves, panels),
        command="cynosure run feed_forward",
    )


_CURVES = (
    "Means over the starts, with a standard error, against w (0 is drawn at the left edge). "
    "Left: share of the leaders of layer 0 that lead at the last layer. Middle: clusters at the "
    "last layer. Right: share of the tokens whose sets C_i did not change in the last layer."
)
_PANELS = (
    "Tokens at the last layer, divided by the longest; stars lead there, open circles are the "
    "start. Lines are the paths, also divided by the longest token of each layer."
)


def _dynamics(p: Params, d: int, w: float, s: int) -> Scheduled:
    rng = np.random.default_rng([p.seed, d, s])
    W1 = rng.standard_normal((p.width, d)) / np.sqrt(d)
    W2 = rng.standard_normal((d, p.width)) / np.sqrt(p.width)
    return Scheduled((PureAttention(alpha=p.alpha), FeedForward(W1, W2, w)))


def _layers(p: Params, d: int, w: float, s: int) -> np.ndarray:
    """The tokens that each attention layer sees, (layers + 1, n, d), longest token 1."""
    z0 = configurations.gaussian(p.n, d, p.seed + s)
    z = simulate(_dynamics(p, d, w, s), z0, layers=2 * p.layers, save_every=2, throw=False).values
    return z / np.linalg.norm(z, axis=-1).max(axis=1)[:, None, None]


def _fates(p: Params, d: int, w: float) -> list[Fate]:
    return [_fate(p, d, w, s) for s in range(p.starts)]


def _fate(p: Params, d: int, w: float, s: int) -> Fate:
    z = _layers(p, d, w, s)
    first, before, last = (Hardmax().followed(z[k]) for k in (0, -2, -1))
    same = [np.array_equal(before[i], last[i]) for i in range(p.n)]
    led = first.leads
    moved = np.linalg.norm(z[-1, led] - z[0, led], axis=1) / np.linalg.norm(z[0, led], axis=1)
    return Fate(
        float(last.leads[led].mean()),
        int(last.leads.sum()),
        clusters(z[-1], tol=0.01).count,
        float(moved.max()),
        float(np.mean(same)),
    )


def _check(p: Params, fates: dict[tuple[int, float], list[Fate]]) -> Check:
    """Without the sublayer this is the theorem: leaders lead for ever and do not move."""
    runs = [f for d in p.d for f in fates[d, 0.0]]
    lost, moved = max(1 - f.kept for f in runs), max(f.moved for f in runs)
    return at_most(
        "B5",
        "arXiv 2407.01602; docs/mathematics.md B5",
        "without a sublayer, leaders of layer 0 lead at every layer and never move",
        max(lost, moved),
        1e-12,
        runs=len(runs),
        lost=lost,
        moved=moved,
    )


def _mean(fates: list[Fate], name: str) -> float:
    return float(np.mean([getattr(f, name) for f in fates]))


def _table(fates: dict[tuple[int, float], list[Fate]]) -> Table:
    names = ("kept", "leaders", "clusters", "moved", "frozen")
    rows = tuple((d, w, *(_mean(fs, name) for name in names)) for (d, w), fs in fates.items())
    columns = (
        "d",
        "w",
        "leaders kept",
        "leaders at the end",
        "clusters",
        "leaders moved by",
        "unchanged sets",
    )
    note = "Means; moved by: the farthest leader of layer 0, after division by the longest token."
    return Table("With a feed-forward sublayer of weight w", columns, rows, note)


def _summary(p: Params, fates: dict[tuple[int, float], list[Fate]]) -> str:
    parts = []
    for d in p.d:
        half = [w for w in p.weights if _mean(fates[d, w], "kept") < 0.5]
        start, end = fates[d, 0.0], fates[d, max(p.weights)]
        parts.append(
            f"for d = {d} fewer than half of the first leaders lead at the end "
            + (f"from w = {min(half):g} on" if half else "at no weight tried")
            + f", and clusters go from {_mean(start, 'clusters'):.3g} to "
            f"{_mean(end, 'clusters'):.3g} (w = {max(p.weights):g})"
        )
    small = min(w for w in p.weights if w > 0)
    kept = np.mean([_mean(fates[d, small], "kept") for d in p.d])
    moved = np.mean([_mean(fates[d, small], "moved") for d in p.d])
    return (
        f"{p.layers} attention layers with a random ReLU sublayer of width {p.width}: "
        + "; ".join(parts)
        + f". Already w = {small:g} moves the leaders, by {moved:.1%} of their size, while "
        f"{kept:.0%} of them keep the lead."
    )


def _curves(p: Params, fates: dict[tuple[int, float], list[Fate]]) -> Any:
    from ...drawing.plot import PALETTE

    figure, grid = sheet(1, 3, height=3.6)
    least = min(w for w in p.weights if w > 0)
    names = {
        "kept": "first leaders that still lead",
        "clusters": "clusters",
        "frozen": "tokens with an unchanged set $C_i$",
    }
    for ax, (name, label) in zip(grid[0], names.items()):
        for colour, d in zip(PALETTE, p.d):
            samples = [[getattr(f, name) for f in fates[d, w]] for w in p.weights]
            means(ax, p.weights, samples, color=colour, label=f"d = {d}")
        ax.set_xscale("symlog", linthresh=least)
        ax.set_xticks([0, *(t for t in (0.01, 0.1, 1.0) if t >= least)])
        ax.set(xlabel="weight w of the sublayer", ylabel=label)
        if name != "frozen":  # nearly all of them: its own range
            ax.set_ylim(bottom=0)
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(p.d), frameon=False)
    return figure


def _panels(p: Params) -> Any:
    from ...drawing.plot import GREY, PALETTE

    figure, grid = sheet(1, len(p.shown), width=3.4, height=3.9)
    for ax, w in zip(grid[0], p.shown):
        z = _layers(p, 2, w, 0)
        leads = Hardmax().followed(z[-1]).leads
        ax.plot(z[..., 0], z[..., 1], color=GREY, lw=0.5, zorder=1)
        ax.plot(*z[0].T, "o", mfc="none", mec=PALETTE[0], ms=4, label="start")
        ax.plot(*z[-1, ~leads].T, "o", color=PALETTE[1], ms=4, label="end, follows")
        ax.plot(*z[-1, leads].T, "*", color=PALETTE[1], ms=13, label="end, leads")
        ax.set(aspect="equal", title=f"w = {w:g}", xlabel="$z_1$", xlim=(-1.1, 1.1))
        ax.set_ylim(-1.1, 1.1)
    grid[0, 0].set_ylabel("$z_2$")
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    return figure
