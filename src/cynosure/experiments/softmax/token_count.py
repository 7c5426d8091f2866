"""Number of tokens: limit points, vertices and rate of convergence for n = 10..1000.

Rescaled softmax attention with Q = K = V = I (arXiv 2305.05465) from Gaussian tokens, beside the
hardmax layers of arXiv 2407.01602 from the same tokens; a question of Sugolov and Aubry. See: the
number of limits hardly grows with the number of tokens. For hardmax it follows the law of B14,
about a logarithm of n in the plane; for softmax it is smaller, since attention averages before it
becomes hard. The rate does not see n: every token arrives like e^{-t}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy

from ...theorems import expected_leaders
from .._frame import Progress, over_grid, part, report_of, require
from ._polytope_runs import COLUMNS, StartGroup, at_rest, draw

TITLE = "Number of tokens: limits, vertices and rate for n = 10 to 1000"


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


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every (d, n), all starts."""
    sensible = min(p.n) >= 2 and set(p.d) <= {2, 3} and p.starts >= 1 and p.time >= 12
    require(sensible, "n >= 2, d 2 or 3, starts >= 1, time >= 12", p)
    groups = over_grid(_group, p, {"d": p.d, "n": p.n}, part(progress, 0, 1))
    planar = [group for group in groups if group.d == 2]
    figures = [cy.Picture("Against the number of tokens", _CURVES, _curves(p, groups))]
    if planar:
        figures.append(cy.Picture("Few and many tokens", _PANELS, _panels(planar)))
    note = f"Means over {p.starts} starts; expected leaders at layer 0 by docs/mathematics.md B14."
    law: dict[str, Any] = {"expected leaders": lambda g: expected_leaders(g.n, g.d)}
    columns = {"d": "d", "n": "n", **COLUMNS, **law, "rate": "rate"}
    table = cy.Table.of("Number of tokens", groups, columns, note)
    checks = {group.name: cy.check(group.first, only=("B23", "B24")) for group in groups}
    text = _summary(p, groups)
    return report_of(__name__, p, text, tables=[table], checks=checks, figures=figures)


_CURVES = (
    "Left and middle: means over the starts with bars from least to largest, and the expected "
    "number of hardmax leaders at layer 0 (line, B14). Right: the fitted exponent of the softmax "
    "flow with its 95 % interval; the line is 1."
)
_PANELS = "Rescaled tokens from circles to squares, V = I; shaded: the hull of the limits."


def _group(p: Params, d: int, n: int) -> StartGroup:
    starts = [cy.configurations.gaussian(n, d, p.seed + s) for s in range(p.starts)]
    return at_rest(f"d = {d}, n = {n}", starts, p.time, p.rtol, p.alpha)


def _summary(p: Params, groups: list[StartGroup]) -> str:
    low, high = min(p.n), max(p.n)
    at = {(group.d, group.n): group for group in groups}
    parts = [
        f"d = {d}: from {low} to {high} tokens the softmax flow goes from "
        f"{at[d, low].mean('limits'):.2g} to {at[d, high].mean('limits'):.2g} limits, hardmax from "
        f"{at[d, low].mean('leaders'):.2g} to {at[d, high].mean('leaders'):.2g} leaders (expected "
        f"{expected_leaders(low, d):.3g} to {expected_leaders(high, d):.3g})"
        for d in p.d
    ]
    every = [c for group in groups for c in group.counts]
    off = [abs(x - 1) for group in groups for x in group.exponents]
    inner = sum(c.limits > c.vertices for c in every)
    return (
        "; ".join(parts) + f".\n\nThe fitted rate lies within {max(off):.1g} of 1 in all "
        f"{len(off)} fitted runs, whatever n; {inner} of {len(every)} runs have a limit that is no "
        f"vertex, and {sum(c.at_zero for c in every)} tokens end at 0."
    )


def _curves(p: Params, groups: list[StartGroup]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4.2, 3.6)
    left, middle, right = axes[0]
    smooth = np.unique(np.geomspace(min(p.n), max(p.n), 30).round().astype(int)).tolist()
    for colour, d in zip(cy.plot.PALETTE, p.d):
        line = [group for group in groups if group.d == d]
        for ax, name in ((left, "limits"), (middle, "leaders")):
            seen = np.array([[getattr(c, name) for c in group.counts] for group in line])
            mean = seen.mean(axis=1)
            bars = np.abs(np.stack([seen.min(axis=1), seen.max(axis=1)]) - mean)
            ax.errorbar(p.n, mean, bars, fmt="o", color=colour, ms=5, label=f"d = {d}")
        law = [expected_leaders(n, d) for n in smooth]
        middle.plot(smooth, law, color=colour, lw=1, label=f"expected, d = {d}")
        for group in line:
            for k, fit in enumerate(c.fitted for c in group.counts):
                if fit is not None:
                    at = group.n * 1.06 ** (k - (p.starts - 1) / 2)
                    half = (fit.high - fit.low) / 2
                    right.errorbar(at, fit.exponent, half, fmt=".", color=colour)
    right.axhline(1, color=cy.plot.INK, lw=0.8, ls="--")
    spread = max(0.01, *(abs(x - 1) for group in groups for x in group.exponents))
    right.set_ylim(1 - 3 * spread, 1 + 3 * spread)
    for ax, name in zip(axes[0], ("softmax limits", "hardmax leaders", "rate")):
        ax.set(xscale="log", xlabel="tokens n", ylabel=name)
    for ax in (left, middle):
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, loc="upper left")
    return figure


def _panels(groups: list[StartGroup]) -> Any:
    by_n = sorted(groups, key=lambda group: group.n)
    chosen = [by_n[i] for i in sorted({0, len(by_n) // 2, len(by_n) - 1})]
    figure, axes = cy.plot.sheet(1, len(chosen), 4, 4)
    for ax, group in zip(axes[0], chosen):
        draw(ax, group.first.values)
        ax.set_title(f"n = {group.n}")
    cy.plot.legend_below(axes[0, 0])
    return figure
