"""Initialisation: box, Gaussian, unit circle and sphere, for softmax flows and hardmax layers.

Q = K = V = I; the starts that Sugolov and Aubry compare, under the rescaled softmax flow of
arXiv 2305.05465 and the hardmax layers of arXiv 2407.01602. See: tokens from a box end near its
corners. On the circle and the sphere the models part: under hardmax every token
leads and nothing moves at all (B13), while softmax, which is not hard at time 0, gathers the tokens
into clusters first and then holds these. The start named "lattice" has integer coordinates on one
circle, so that its norms agree exactly.

Trap: the number of clusters is no property of a circle or a Gaussian. It is that of the size of
the start: scores grow with its square, so long tokens are all but hard from the beginning, and
short ones all end as one. The last table and figure have several sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of, require, resampled
from ._polytope_runs import COLUMNS, StartGroup, at_rest, draw

TITLE = "Initialisation: box, Gaussian, circle and sphere"
_SQUARES = 5 * 13 * 17 * 29  # a sum of two squares in 64 ways, counting signs and order


@dataclass(frozen=True)
class Params:
    """n tokens per start, `starts` seeds of each kind; every start has root mean square `size`
    (the lattice circle its own, 1.4); the control has the `sizes`."""

    n: int = 60
    starts: int = 10
    size: float = 2.0
    sizes: tuple[float, ...] = (0.5, 1.0, 4.0, 8.0)
    time: float = 16.0
    rtol: float = 1e-8
    alpha: float = 1.0
    seed: int = 0


QUICK = Params(n=24, starts=2, sizes=(0.5, 8.0))


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every kind of start under both models."""
    require(p.n >= 4 and p.starts >= 1 and p.time >= 12, "n >= 4, starts >= 1, time >= 12", p)
    kinds = over_grid(_group, p, {"start": tuple(_starts(p, 0))}, part(progress, 0, 0.3))
    sizes, varied = sorted({p.size, *p.sizes}), _VARIED
    found = over_grid(_sized, p, {"start": varied, "size": sizes}, part(progress, 0.3, 0.9))
    sized = {kind: found[k * len(sizes) :][: len(sizes)] for k, kind in enumerate(varied)}
    last: dict[str, Any] = {"hardmax moved": lambda g: g.mean("moved"), "softmax rate": "rate"}
    note = "Means over the starts. Hardmax moved: the longest way of a token to its limit."
    table = cy.Table.of("Initialisation", kinds, {"start": "name"} | COLUMNS | last, note)
    figures = (
        cy.Picture("Four starts in the plane", _PANELS, _panels(kinds)),
        cy.Picture("Size of the start", _SIZES, _draw_sizes(p, sizes, sized)),
        cy.Picture("Distance to the limit", _RATES, _rates(kinds)),
    )
    checks = {kind.name: _checks(p, kind) for kind in kinds}
    return report_of(
        __name__,
        p,
        _summary(p, kinds, sizes, sized),
        controls=_comparisons(p, kinds, sizes, sized),
        tables=[table, _size_table(sizes, sized)],
        checks=checks,
        figures=figures,
    )


_VARIED = ("box", "Gaussian", "circle", "sphere in 3-D")


_PANELS = (
    "Rescaled tokens under softmax, V = I, from circles to squares, the hull of the limits shaded. "
    "Crosses: limits of hardmax layers, which on both circles move no token at all."
)
_SIZES = (
    "Mean number of softmax limits against the root mean square length of the start, with 95 % "
    "bootstrap intervals; dashed: all n tokens. Under hardmax no limit depends on the size."
)
_RATES = "The largest distance of a token to its limit under softmax, for one run of each start."


def lattice_circle() -> np.ndarray:
    """The 64 integer points with x^2 + y^2 = 32045, over 128: exactly equal norms near 1.4."""
    side = int(np.sqrt(_SQUARES))
    x = np.arange(-side, side + 1)
    i, j = np.nonzero(x[:, None] ** 2 + x**2 == _SQUARES)
    return np.stack([x[i], x[j]], axis=1) / 128


def _starts(p: Params, s: int) -> dict[str, np.ndarray]:
    seed = p.seed + s
    drawn = {
        "box": cy.configurations.box(p.n, 2, seed) * np.sqrt(1.5),  # root mean square length 1
        "Gaussian": cy.configurations.gaussian(p.n, 2, seed) / np.sqrt(2),
        "circle": cy.configurations.sphere(p.n, 2, seed),
        "box in 3-D": cy.configurations.box(p.n, 3, seed),
        "Gaussian in 3-D": cy.configurations.gaussian(p.n, 3, seed) / np.sqrt(3),
        "sphere in 3-D": cy.configurations.sphere(p.n, 3, seed),
    }
    chosen = np.random.default_rng(seed).permutation(64)[: p.n]
    lattice = {"lattice circle": lattice_circle()[np.sort(chosen)]}
    return {kind: p.size * z for kind, z in drawn.items()} | lattice


def _group(p: Params, kind: str) -> StartGroup:
    starts = [_starts(p, s)[kind] for s in range(p.starts)]
    return at_rest(kind, starts, p.time, p.rtol, p.alpha)


def _sized(p: Params, kind: str, size: float) -> StartGroup:
    return _group(replace(p, size=size), kind)


def _checks(p: Params, kind: StartGroup) -> list[cy.Check]:
    layers = cy.simulate(cy.PureAttention(alpha=p.alpha), kind.first.values[0], layers=20)
    checks = cy.check(layers, only=("B5", "B13")) + cy.check(kind.first, only=("B23", "B24"))
    if kind.name in ("circle", "sphere in 3-D"):  # B13 asks for norms that are equal exactly
        moved = float(np.abs(layers.values - layers.values[0]).max())
        statement = "norms equal up to rounding, tokens further apart than that: nothing moves"
        checks.append(at_most("nothing moves", "docs/mathematics.md B13", statement, moved, 0.0))
    return checks


def _summary(
    p: Params, kinds: list[StartGroup], sizes: list[float], sized: dict[str, list[StartGroup]]
) -> str:
    still = [kind.name for kind in kinds if max(c.moved for c in kind.counts) == 0]
    text = "; ".join(
        f"{kind.name}: {kind.mean('limits'):.2g} under softmax, {kind.mean('hardmax_limits'):.2g} "
        "under hardmax"
        for kind in kinds
    )
    ends = "; ".join(
        f"{kind}: {groups[0].mean('limits'):.2g} to {groups[-1].mean('limits'):.2g}"
        for kind, groups in sized.items()
    )
    fitted = [x for kind in kinds for x in kind.exponents]
    return (
        f"Mean numbers of limits, n = {p.n}, starts per kind: {p.starts}, size {p.size:g}. {text}."
        f"\n\nUnder softmax these are numbers of this size. From size {sizes[0]:g} to "
        f"{sizes[-1]:g}: {ends}.\n\nUnder hardmax no token moves at all from: "
        f"{', '.join(still) or 'none of them'}. The softmax rate, where tokens move, is between "
        f"{min(fitted):.4f} and {max(fitted):.4f}."
    )


def _corners(p: Params, z: np.ndarray) -> float:
    """Median distance of tokens in the plane from the nearest corner of the box, by half a side."""
    half = p.size * np.sqrt(1.5)
    return float(np.median(np.linalg.norm(half - np.abs(z), axis=1)) / half)


def _comparisons(
    p: Params, kinds: list[StartGroup], sizes: list[float], sized: dict[str, list[StartGroup]]
) -> list[cy.Comparison]:
    """Sizes of the start, and where a uniform token would be."""
    ends = cy.clusters(kinds[0].first.values[-1], 1e-3 * p.size).centres
    near, before = _corners(p, ends), _corners(p, kinds[0].first.values[0])
    out = [
        cy.Comparison(
            f"tokens from a box end near its corners (size {p.size:g}, the start drawn)",
            "the same tokens at the start, uniform in the box",
            f"median distance from the nearest corner, half a side being 1: limits {near:.2f}, "
            f"start {before:.2f}",
            near < before / 2,
        )
    ]
    for kind, groups in sized.items():
        means = [group.mean("limits") for group in groups]
        spans = [resampled([c.limits for c in group.counts]) for group in groups]
        seen = ", ".join(
            f"{mean:.3g} ({low:.2g} to {high:.2g}) at size {size:g}"
            for size, mean, (low, high) in zip(sizes, means, spans)
        )
        out.append(
            cy.Comparison(
                f"{kind}: {means[sizes.index(p.size)]:.2g} limits under softmax",
                f"the size of the start, {p.starts} starts each",
                f"limits: {seen}",
                spans[0][1] >= spans[-1][0],
            )
        )
    moved = {
        size: max(c.moved for kind in ("circle", "sphere in 3-D") for c in sized[kind][k].counts)
        for k, size in enumerate(sizes)
    }
    out.append(
        cy.Comparison(
            "on a circle or sphere hardmax moves nothing",
            "the size of the start",
            "longest way: "
            + ", ".join(f"{far:.1g} at size {size:g}" for size, far in moved.items()),
            max(moved.values()) == 0,
        )
    )
    return out


def _size_table(sizes: list[float], sized: dict[str, list[StartGroup]]) -> cy.Table:
    rows = tuple(
        (
            kind,
            size,
            group.mean("limits"),
            *resampled([c.limits for c in group.counts]),
            group.mean("hardmax_limits"),
        )
        for kind, groups in sized.items()
        for size, group in zip(sizes, groups)
    )
    columns = ("start", "size", "softmax limits", "95 % from", "to", "hardmax limits")
    note = "Means with 95 % bootstrap intervals. Hardmax layers do not see the size."
    return cy.Table("Size of the start", columns, rows, note)


def _draw_sizes(p: Params, sizes: list[float], sized: dict[str, list[StartGroup]]) -> Any:
    figure, ((ax,),) = cy.plot.sheet(1, 1, 6.5, 4)
    for colour, (kind, groups) in zip(cy.plot.PALETTE, sized.items()):
        mean = np.array([group.mean("limits") for group in groups])
        ends = np.array([resampled([c.limits for c in group.counts]) for group in groups]).T
        bars = np.abs(ends - mean)
        ax.errorbar(sizes, mean, bars, fmt="o-", ms=5, capsize=2, color=colour, label=kind)
    ax.axhline(p.n, color=cy.plot.INK, lw=0.8, ls="--")
    ax.set(xscale="log", yscale="log", xlabel="size of the start", ylabel="softmax limits")
    for axis in (ax.xaxis, ax.yaxis):
        cy.plot.plain_log(axis)
    ax.legend(frameon=False)
    return figure


def _panels(kinds: list[StartGroup]) -> Any:
    planar = [kind for kind in kinds if kind.d == 2]
    figure, axes = cy.plot.sheet(1, len(planar), 3.6, 3.9)
    for ax, kind in zip(axes[0], planar):
        draw(ax, kind.first.values, "limit, softmax")
        hard = cy.limit(cy.PureAttention(), kind.first.values[0]).points
        ax.plot(*hard.T, "x", color=cy.plot.PALETTE[0], ms=6, label="limit, hardmax")
        ax.set_title(kind.name)
    cy.plot.legend_below(axes[0, 0])
    return figure


def _rates(kinds: list[StartGroup]) -> Any:
    figure, ((ax,),) = cy.plot.sheet(1, 1, 6.5, 4)
    for colour, kind in zip(cy.plot.PALETTE, kinds):
        t, z = kind.first.t, kind.first.values
        gap = np.linalg.norm(z - z[-1], axis=-1).max(axis=1)
        seen = (t < t[-1] - 4) & (gap > 0)
        ax.semilogy(t[seen], gap[seen], color=colour, label=kind.name)
    t = t[t < t[-1] - 4]
    ax.semilogy(t, 4 * np.exp(-t), "--", color=cy.plot.INK, lw=1, label="$4 e^{-t}$")
    ax.set(xlabel="time t", ylabel="largest distance to the limit")
    ax.legend(frameon=False, loc="upper right")
    return figure
