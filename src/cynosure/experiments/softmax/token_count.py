"""Number of tokens: limit points, vertices and rate of convergence for n = 10..1000.

Rescaled softmax attention with Q = K = V = I (arXiv 2305.05465) from Gaussian tokens, beside the
hardmax layers of arXiv 2407.01602 from the same tokens; a question of Sugolov and Aubry. See: the
number of limits hardly grows with the number of tokens. For hardmax it follows the law of B14,
about a logarithm of n in the plane; for softmax it is smaller, since attention averages before it
becomes hard. The rate does not see n: every token arrives like e^{-t}.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ...analysis.polytope import hull
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...simulation import configurations
from ...simulation.trajectory import Trajectory
from ...theorems import check, expected_leaders
from .._frame import Progress, silent
from .._measurements import kept
from ._polytope_runs import End, ended, to_rest

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Number of tokens: limits, vertices and rate for n = 10 to 1000"


@final
@dataclass(frozen=True)
class Params:
    """Numbers of tokens, dimensions, `starts` of each, the time to rest, alpha of the layers."""

    n: tuple[int, ...] = (10, 30, 100, 300, 1000)
    d: tuple[int, ...] = (2, 3)
    starts: int = 3
    time: float = 16.0
    rtol: float = 1e-8
    alpha: float = 1.0
    seed: int = 0


QUICK = Params(n=(10, 40, 120), d=(2,), starts=2)


def run(p: Params, progress: Progress | None = None) -> Report:
    """Every (d, n), all starts."""
    say = progress or silent
    if min(*p.n, *p.d) < 2 or p.starts < 1 or max(p.d) > 3 or p.time < 12:
        raise ValueError(f"token_count: n >= 2, d 2 or 3, starts >= 1, time >= 12; got {p}")
    cells: dict[tuple[int, int], list[End]] = {}
    shown: dict[int, Trajectory] = {}
    checks = {}
    total = sum(n * n for n in p.n) * len(p.d)
    done = 0.0
    for d in p.d:
        for n in p.n:
            say(0.9 * done, f"d = {d}, n = {n}")
            runs = [
                kept(to_rest, configurations.gaussian(n, d, p.seed + s), p.time, p.rtol)
                for s in range(p.starts)
            ]
            cells[d, n] = [ended(tr, p.alpha) for tr in runs]
            checks[f"d = {d}, n = {n}"] = tuple(check(runs[0], only=("B23", "B24")))
            if d == min(p.d):
                shown[n] = runs[0]
            done += n * n / total
    say(0.9, "figures")
    figures = [Picture("Against the number of tokens", _CURVES, _curves(p, cells))]
    if min(p.d) == 2:
        figures.append(Picture("Few and many tokens", _PANELS, _panels(shown)))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, cells),
        asdict(p),
        (_table(p, cells),),
        checks,
        tuple(figures),
        command="cynosure run token_count",
    )


_CURVES = (
    "Left and middle: limits of the softmax flow and leaders of the hardmax layers, means over the "
    "starts with bars from least to largest, and the expected number of hardmax leaders at layer 0 "
    "(line, B14). Right: the fitted exponent of the softmax flow with its 95 % interval; the line "
    "is 1."
)
_PANELS = (
    "Rescaled tokens from grey starts to their limits (squares), V = I. The shaded hull of the "
    "limits has a handful of vertices, whether there are few tokens or many."
)


def _rates(ends: list[End]) -> list[float]:
    return [e.fitted.exponent for e in ends if e.fitted is not None]


def _mean(ends: list[End], name: str) -> float:
    return float(np.mean([getattr(e, name) for e in ends]))


def _table(p: Params, cells: dict[tuple[int, int], list[End]]) -> Table:
    names = ("limits", "vertices", "at_zero", "leaders", "hardmax_limits", "layers")
    rows = tuple(
        (
            d,
            n,
            *(_mean(ends, name) for name in names),
            expected_leaders(n, d),
            float(np.mean(_rates(ends))) if _rates(ends) else None,
        )
        for (d, n), ends in cells.items()
    )
    columns = (
        "d",
        "n",
        "softmax limits",
        "vertices",
        "tokens at 0",
        "hardmax leaders",
        "hardmax limits",
        "layers to proof",
        "expected leaders",
        "rate",
    )
    note = f"Means over {p.starts} starts; expected leaders at layer 0 by docs/mathematics.md B14."
    return Table("Number of tokens", columns, rows, note)


def _summary(p: Params, cells: dict[tuple[int, int], list[End]]) -> str:
    low, high = min(p.n), max(p.n)
    parts = []
    for d in p.d:
        few, many = cells[d, low], cells[d, high]
        parts.append(
            f"d = {d}: from {low} to {high} tokens the softmax flow goes from "
            f"{_mean(few, 'limits'):.2g} to {_mean(many, 'limits'):.2g} limits, hardmax from "
            f"{_mean(few, 'leaders'):.2g} to {_mean(many, 'leaders'):.2g} leaders (expected "
            f"{expected_leaders(low, d):.3g} to {expected_leaders(high, d):.3g})"
        )
    every = [e for ends in cells.values() for e in ends]
    off = [x - 1 for x in _rates(every)]
    inner = sum(e.limits > e.vertices for e in every)
    return (
        "; ".join(parts) + f".\n\nThe fitted rate lies within {max(map(abs, off)):.1g} of 1 in all "
        f"{len(off)} fitted runs, whatever n; {inner} of {len(every)} runs have a limit that is no "
        f"vertex, and {sum(e.at_zero for e in every)} tokens end at 0."
    )


def _curves(p: Params, cells: dict[tuple[int, int], list[End]]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 3, 4.2, 3.6)
    x = np.array(p.n)
    smooth = np.unique(np.geomspace(min(p.n), max(p.n), 30).round().astype(int))
    for colour, d in zip(PALETTE, p.d, strict=False):
        for ax, name in zip(axes[0], ("limits", "leaders"), strict=False):
            seen = np.array([[getattr(e, name) for e in cells[d, n]] for n in p.n])
            mean = seen.mean(axis=1)
            bars = np.abs(np.stack([seen.min(axis=1), seen.max(axis=1)]) - mean)
            ax.errorbar(x, mean, bars, fmt="o", color=colour, ms=5, label=f"d = {d}")
        law = [expected_leaders(int(n), d) for n in smooth]
        axes[0, 1].plot(smooth, law, color=colour, lw=1, label=f"expected, d = {d}")
        for n in p.n:
            for k, e in enumerate(cells[d, n]):
                if e.fitted is not None:
                    half = (e.fitted.high - e.fitted.low) / 2
                    at = n * 1.06 ** (k - (p.starts - 1) / 2)
                    axes[0, 2].errorbar(at, e.fitted.exponent, half, fmt=".", color=colour)
    axes[0, 2].axhline(1, color="black", lw=0.8, ls="--")
    names = ("softmax limits", "hardmax leaders", "rate")
    for ax, name in zip(axes[0], names, strict=True):
        ax.set(xscale="log", xlabel="tokens n", ylabel=name)
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 1].set_ylim(bottom=0)
    spread = max(0.01, *(abs(r - 1) for ends in cells.values() for r in _rates(ends)))
    axes[0, 2].set_ylim(1 - 3 * spread, 1 + 3 * spread)
    axes[0, 0].legend(frameon=False, loc="upper left")
    axes[0, 1].legend(frameon=False, loc="upper left")
    return figure


def _panels(shown: dict[int, Trajectory]) -> Any:
    from ...drawing.plot import GREY, PALETTE, shade

    chosen = sorted(shown)
    chosen = sorted({chosen[0], chosen[len(chosen) // 2], chosen[-1]})
    figure, axes = sheet(1, len(chosen), 4, 4)
    for ax, n in zip(axes[0], chosen, strict=True):
        z = shown[n].values
        shade(ax, hull(z[-1]))
        some = np.arange(n)[:: max(1, n // 100)]
        ax.plot(z[:, some, 0], z[:, some, 1], color=GREY, lw=0.5, zorder=1)
        ax.plot(*z[0].T, "o", color=GREY, ms=2, label="start")
        ax.plot(*z[-1].T, "s", color=PALETTE[1], ms=6, label="limit")
        ax.set(aspect="equal", title=f"n = {n}", xlabel="$z_1$", ylabel="$z_2$")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure
