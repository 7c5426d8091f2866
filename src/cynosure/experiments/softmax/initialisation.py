"""Initialisation: box, Gaussian, unit circle and sphere, for softmax flows and hardmax layers.

Q = K = V = I; the starts that Sugolov and Aubry compare, under the rescaled softmax flow of
arXiv 2305.05465 and the hardmax layers of arXiv 2407.01602. See: tokens from a box or a Gaussian
end at few limits, those of the box near its corners. On the unit circle and sphere the two models
part: under hardmax every token leads and nothing moves at all (B13), while softmax, which is not
hard at time 0, gathers the tokens into some clusters before it freezes them. The start named
"lattice" has integer coordinates on one circle, so that its norms agree exactly.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ...analysis.polytope import hull
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress, at_most, silent
from ._polytope_runs import End, ended, to_rest

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Initialisation: box, Gaussian, circle and sphere"
_SQUARES = 5 * 13 * 17 * 29  # a sum of two squares in 64 ways, counting signs and order


@final
@dataclass(frozen=True)
class Params:
    """n tokens per start, `starts` seeds of each kind; every start has root mean square `size`."""

    n: int = 60
    starts: int = 4
    size: float = 2.0
    time: float = 16.0
    rtol: float = 1e-8
    alpha: float = 1.0
    seed: int = 0


QUICK = Params(n=24, starts=1)


def run(p: Params, progress: Progress | None = None) -> Report:
    """Every kind of start under both models."""
    say = progress or silent
    if p.n < 4 or p.starts < 1 or p.time < 12:
        raise ValueError(f"initialisation: n >= 4, starts >= 1, time >= 12; got {p}")
    kinds = _starts(p, 0)
    ends: dict[str, list[End]] = {}
    shown: dict[str, Trajectory] = {}
    checks = {}
    for done, kind in enumerate(kinds):
        say(0.85 * done / len(kinds), kind)
        runs = [to_rest(_starts(p, s)[kind], p.time, p.rtol) for s in range(p.starts)]
        ends[kind] = [ended(tr, p.alpha) for tr in runs]
        shown[kind] = runs[0]
        layers = simulate(PureAttention(alpha=p.alpha), kinds[kind], layers=20)
        checks[kind] = (
            *check(layers, only=("B5", "B13")),
            *check(runs[0], only=("B23", "B24")),
            *_nothing_moves(kind, layers),
        )
    say(0.85, "figures")
    figures = (
        Picture("Four starts in the plane", _PANELS, _panels(shown)),
        Picture("Distance to the limit", _RATES, _rates(shown)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, ends),
        asdict(p),
        (_table(ends),),
        checks,
        figures,
        command="cynosure run initialisation",
    )


_PANELS = (
    "Rescaled tokens under softmax, V = I, from grey starts along thin paths to squares; the hull "
    "of the limits is shaded. Crosses are the limits of hardmax layers from the same tokens: on "
    "the circle and on the lattice circle there is a cross on every start, since nothing moves."
)
_RATES = (
    "The largest distance of a token to its limit under softmax, for one run of each start, beside "
    "e^{-t} (dashed)."
)


def lattice_circle() -> np.ndarray:
    """The 64 integer points with x^2 + y^2 = 32045, over 128: exactly equal norms near 1.4."""
    side = int(np.sqrt(_SQUARES))
    x = np.arange(-side, side + 1)
    i, j = np.nonzero(x[:, None] ** 2 + x**2 == _SQUARES)
    return np.stack([x[i], x[j]], axis=1) / 128


def _starts(p: Params, s: int) -> dict[str, np.ndarray]:
    seed = p.seed + s
    drawn = {
        "box": configurations.box(p.n, 2, seed) * np.sqrt(1.5),  # root mean square length 1
        "Gaussian": configurations.gaussian(p.n, 2, seed) / np.sqrt(2),
        "circle": configurations.sphere(p.n, 2, seed),
        "box in 3-D": configurations.box(p.n, 3, seed),
        "Gaussian in 3-D": configurations.gaussian(p.n, 3, seed) / np.sqrt(3),
        "sphere in 3-D": configurations.sphere(p.n, 3, seed),
    }
    scaled = {kind: p.size * z for kind, z in drawn.items()}
    lattice = lattice_circle()
    chosen = np.random.default_rng(seed).permutation(len(lattice))[: p.n]
    return scaled | {"lattice circle": lattice[np.sort(chosen)]}


def _nothing_moves(kind: str, layers: Trajectory) -> tuple[Any, ...]:
    """B13 where norms agree up to rounding only, so that the statement itself does not apply."""
    if kind not in ("circle", "sphere in 3-D"):
        return ()
    moved = float(np.abs(layers.values - layers.values[0]).max())
    statement = "norms equal up to rounding, tokens further apart than that: nothing moves"
    return (at_most("B13, rounded", "docs/mathematics.md B13", statement, moved, 0.0),)


def _mean(ends: list[End], name: str) -> float:
    return float(np.mean([getattr(e, name) for e in ends]))


def _table(ends: dict[str, list[End]]) -> Table:
    names = ("limits", "vertices", "at_zero", "leaders", "hardmax_limits", "layers", "moved")
    rows = []
    for kind, found in ends.items():
        fitted = [e.fitted.exponent for e in found if e.fitted is not None]
        rate = float(np.mean(fitted)) if fitted else None
        rows.append((kind, *(_mean(found, name) for name in names), rate))
    columns = (
        "start",
        "softmax limits",
        "vertices",
        "tokens at 0",
        "hardmax leaders",
        "hardmax limits",
        "layers to proof",
        "hardmax moved",
        "softmax rate",
    )
    note = "Means over the starts. Hardmax moved: the longest way of a token to its limit."
    return Table("Initialisation", columns, tuple(rows), note)


def _summary(p: Params, ends: dict[str, list[End]]) -> str:
    still = [k for k, found in ends.items() if max(e.moved for e in found) == 0]
    text = "; ".join(
        f"{kind}: {_mean(found, 'limits'):.2g} under softmax, {_mean(found, 'hardmax_limits'):.2g} "
        "under hardmax"
        for kind, found in ends.items()
    )
    fitted = [e.fitted.exponent for found in ends.values() for e in found if e.fitted is not None]
    return (
        f"Mean numbers of limits, n = {p.n}, starts per kind: {p.starts}. {text}.\n\nUnder hardmax "
        f"no token moves at all from: {', '.join(still) or 'none of them'}. The softmax rate, "
        f"where tokens move, is between {min(fitted):.4f} and {max(fitted):.4f}."
    )


def _panels(shown: dict[str, Trajectory]) -> Any:
    from ...analysis.limits import limit
    from ...drawing.plot import GREY, PALETTE, shade

    planar = [kind for kind, tr in shown.items() if tr.values.shape[-1] == 2]
    figure, axes = sheet(1, len(planar), 3.6, 3.9)
    for ax, kind in zip(axes[0], planar, strict=True):
        z = shown[kind].values
        hard = limit(PureAttention(), z[0]).points
        shade(ax, hull(z[-1]))
        ax.plot(z[..., 0], z[..., 1], color=GREY, lw=0.6, zorder=1)
        ax.plot(*z[0].T, "o", color=GREY, ms=3, label="start")
        ax.plot(*z[-1].T, "s", color=PALETTE[1], ms=7, label="limit, softmax")
        ax.plot(*hard.T, "x", color=PALETTE[0], ms=6, label="limit, hardmax")
        ax.set(aspect="equal", title=kind, xlabel="$z_1$", ylabel="$z_2$")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _rates(shown: dict[str, Trajectory]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 1, 6.5, 4)
    ax = axes[0, 0]
    for k, (kind, tr) in enumerate(shown.items()):
        z = tr.values
        gap = np.linalg.norm(z - z[-1], axis=-1).max(axis=1)
        seen = (tr.t < tr.t[-1] - 4) & (gap > 0)
        ax.semilogy(tr.t[seen], gap[seen], color=PALETTE[k % len(PALETTE)], label=kind)
    t = shown["box"].t[shown["box"].t < shown["box"].t[-1] - 4]
    ax.semilogy(t, 4 * np.exp(-t), "--", color="black", lw=1, label="$4 e^{-t}$")
    ax.set(xlabel="time t", ylabel="largest distance to the limit")
    ax.legend(frameon=False, loc="upper right")
    return figure
