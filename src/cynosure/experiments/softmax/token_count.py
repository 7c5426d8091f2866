"""Number of tokens: limit points, vertices and rate of convergence for n = 10..1000.

Rescaled softmax attention with Q = K = V = I (arXiv 2305.05465) from Gaussian tokens, beside the
hardmax layers of arXiv 2407.01602 from the same tokens; a question of Sugolov and Aubry. How many
leaders n Gaussian tokens have at layer 0 is known exactly (docs/mathematics.md B14), and so is how
it grows. With r_n the (1 - 1/n)-quantile of N(0, 1), which is about sqrt(2 log n),

    E|L_0| ~ c_d r_n^(d-1),   c_d = sqrt(2 pi) / (2^(d/2 - 1) Gamma(d/2))

(put u = n (1 - Phi(r)) in B14's integral over the length r of a token): sqrt(4 pi log n) in the
plane, 4 log n in space, (log n)^((d-1)/2) in general. See it in both, and that softmax ends with
fewer limits than hardmax has leaders: short tokens average each other out before attention is hard.
The longer the tokens of the start, the fewer it loses.

The rate of convergence is 1 whatever n is, but there is nothing to find in that: once P stands
still at the leaders, z' = P z - z says e^{-t}.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gamma, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...theorems import expected_leaders
from .._frame import Progress, at_most, over_grid, part, report_of, require, resampled
from ._polytope_runs import COLUMNS, StartGroup, at_rest, draw

TITLE = "Number of tokens: limits, vertices and rate for n = 10 to 1000"
_FAR = (10**2, 10**3, 10**6, 10**9, 10**12)  # where the growth of the law is read


@dataclass(frozen=True)
class Params:
    """Numbers of tokens, dimensions, `starts` of each, the time to rest, alpha of the layers.

    `draws` more starts for the hardmax leaders at layer 0; the control has `middle` tokens from
    starts of the `sizes` (1: standard Gaussian)."""

    n: tuple[int, ...] = (10, 30, 100, 300, 1000)
    d: tuple[int, ...] = (2, 3)
    starts: int = 6
    draws: int = 200
    middle: int = 100
    sizes: tuple[float, ...] = (0.5, 2.0, 4.0, 8.0)
    time: float = 16.0
    rtol: float = 1e-6
    alpha: float = 1.0
    seed: int = 0


QUICK = Params(n=(10, 40, 100), d=(2,), starts=2, draws=20, middle=40, sizes=(0.5, 4.0))


class Leaders(NamedTuple):
    """Hardmax leaders at layer 0 of many Gaussian starts, beside the exact law."""

    d: int
    n: int
    seen: np.ndarray  # (draws,)

    @property
    def expected(self) -> float:
        return expected_leaders(self.n, self.d)

    @property
    def off(self) -> float:
        """Distance of the mean from the law in standard errors."""
        error = max(float(self.seen.std(ddof=1)), 1e-9) / sqrt(len(self.seen))
        return float(abs(self.seen.mean() - self.expected) / error)


def growth(n: int, d: int) -> float:
    """c_d r_n^(d-1): what the expected number of leaders tends to for many tokens."""
    from scipy.stats import norm

    return float(sqrt(2 * pi) / (2 ** (d / 2 - 1) * gamma(d / 2)) * norm.isf(1 / n) ** (d - 1))


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every (d, n), all starts; then the sizes."""
    sensible = min(*p.n, p.middle) >= 2 and set(p.d) <= {2, 3} and p.starts >= 1 and p.draws >= 2
    require(sensible and p.time >= 12, "n >= 2, d 2 or 3, starts >= 1, draws >= 2, time >= 12", p)
    groups = over_grid(_group, p, {"d": p.d, "n": p.n}, part(progress, 0, 0.7))
    first = over_grid(_leaders, p, {"leaders, d": p.d, "n": p.n}, part(progress, 0.7, 0.8))
    sizes = over_grid(_sized, p, {"d": p.d, "size": _sizes(p)}, part(progress, 0.8, 1))
    sized = dict(zip([(d, size) for d in p.d for size in _sizes(p)], sizes))
    planar = [group for group in groups if group.d == 2]
    figures = [cy.Picture("Against the number of tokens", _CURVES, _curves(p, groups, sized))]
    if planar:
        figures.append(cy.Picture("Few and many tokens", _PANELS, _panels(planar)))
    checks = {group.name: cy.check(group.first, only=("B23", "B24")) for group in groups}
    worst, law = max(c.off for c in first), "mean hardmax leaders at layer 0 is the expected one"
    checks["leaders"] = [at_most("mean leaders", "docs/mathematics.md B14", law, worst, 5)]
    return report_of(
        __name__,
        p,
        _summary(p, groups),
        controls=_comparisons(p, groups, first, sized),
        tables=_tables(p, groups, first, sized),
        checks=checks,
        figures=figures,
    )


_CURVES = (
    "By dimension: limits of the softmax flow (circles), hardmax leaders in the limit (crosses), "
    "means over the starts with 95 % bootstrap intervals. Line: the exact mean of the leaders at "
    "layer 0 (B14); dashed: what it grows like. Right: softmax limits over hardmax leaders of the "
    "same starts, against the size of the start."
)
_PANELS = "Rescaled tokens from circles to squares, V = I; shaded: the hull of the limits."


def _group(p: Params, d: int, n: int) -> StartGroup:
    starts = [cy.configurations.gaussian(n, d, p.seed + s) for s in range(p.starts)]
    return at_rest(f"d = {d}, n = {n}", starts, p.time, p.rtol, p.alpha)


def _leaders(p: Params, d: int, n: int) -> Leaders:
    starts = (cy.configurations.gaussian(n, d, p.seed + s) for s in range(p.draws))
    seen = [int(cy.Hardmax().followed(z).leads.sum()) for z in starts]
    return Leaders(d, n, np.array(seen))


def _sizes(p: Params) -> list[float]:
    return sorted({1.0, *p.sizes})


def _sized(p: Params, d: int, size: float) -> StartGroup:
    drawn = [cy.configurations.gaussian(p.middle, d, p.seed + s) for s in range(2 * p.starts)]
    starts = [size * z for z in drawn]
    return at_rest(f"d = {d}, size {size:g}", starts, p.time, p.rtol, p.alpha)


def _ratio(group: StartGroup) -> np.ndarray:
    """Softmax limits over hardmax leaders, start by start."""
    return np.array([c.limits / c.leaders for c in group.counts])


def _summary(p: Params, groups: list[StartGroup]) -> str:
    low, high = min(p.n), max(p.n)
    at = {(group.d, group.n): group for group in groups}
    laws = {
        2: f"sqrt(4 pi log n) = {sqrt(4 * pi * log(high)):.3g}",
        3: f"4 log n = {4 * log(high):.3g}",
    }
    parts = [
        f"d = {d}: from {low} to {high} tokens the softmax flow goes from "
        f"{at[d, low].mean('limits'):.2g} to {at[d, high].mean('limits'):.2g} limits, hardmax from "
        f"{at[d, low].mean('leaders'):.2g} to {at[d, high].mean('leaders'):.2g} leaders (exact "
        f"mean {expected_leaders(low, d):.3g} to {expected_leaders(high, d):.3g}; {laws[d]} at the "
        f"end is the leading order, {growth(high, d):.3g} with the quantile r_n)"
        for d in p.d
    ]
    every = [c for group in groups for c in group.counts]
    inner = sum(c.limits > c.vertices for c in every)
    return (
        "; ".join(parts) + f".\n\nOf {len(every)} runs {inner} have a limit that is no vertex, and "
        f"{sum(c.at_zero for c in every)} tokens end at 0."
    )


def _comparisons(
    p: Params,
    groups: list[StartGroup],
    first: list[Leaders],
    sized: dict[tuple[int, float], StartGroup],
) -> list[cy.Comparison]:
    """The exact law, its growth, the size of the start, and the rate the equation forces."""
    worst = max(c.off for c in first)
    at = {(group.d, group.n): group for group in groups}
    out = [
        cy.Comparison(
            "hardmax leaders at layer 0 follow the law of B14",
            f"the exact mean, {p.draws} starts for every d and n",
            f"the mean is off by at most {worst:.2g} standard errors",
            worst < 5,
        )
    ]
    for d in p.d:
        few, many = (at[d, n] for n in (min(p.n), max(p.n)))
        grown = many.mean("limits") / few.mean("limits")
        out.append(
            cy.Comparison(
                f"the number of softmax limits hardly grows with n, d = {d}",
                f"{few.n} and {many.n} tokens, {p.starts} starts each",
                f"times {grown:.2g}: 95 % intervals {_interval(few)} and {_interval(many)}",
                grown < 1.5,
            )
        )
        ratio = {n: expected_leaders(n, d) for n in _FAR}
        off = [ratio[n] / growth(n, d) for n in _FAR]
        plain = [ratio[n] / log(n) for n in _FAR]
        out.append(
            cy.Comparison(
                f"hardmax leaders grow like r_n^(d-1), that is (log n)^{(d - 1) / 2:g}, d = {d}",
                f"the exact law at n = {_FAR[0]:.0e} to {_FAR[-1]:.0e}; a plain logarithm",
                f"exact over c_d r_n^(d-1): {off[0]:.3f} to {off[-1]:.3f}; exact over log n: "
                f"{plain[0]:.3f} to {plain[-1]:.3f}",
                abs(off[-1] - 1) < 0.05 and abs(off[-1] - 1) < abs(off[0] - 1),
            )
        )
        by_size = {size: _ratio(sized[d, size]) for size in _sizes(p)}
        low, high = resampled(by_size[1.0])
        ends = [float(by_size[size].mean()) for size in (_sizes(p)[0], _sizes(p)[-1])]
        out.append(
            cy.Comparison(
                f"softmax ends with fewer limits than hardmax has leaders, d = {d}",
                f"size of the start, {p.middle} tokens, {2 * p.starts} starts",
                "softmax over hardmax: "
                + ", ".join(f"{r.mean():.2f} at size {size:g}" for size, r in by_size.items())
                + f" (95 % at size 1: {low:.2f} to {high:.2f}); how many fewer is the size's",
                high < 1 and ends[0] < ends[1],
            )
        )
    off = [float(abs(x - 1)) for group in (*groups, *sized.values()) for x in group.exponents]
    out.append(
        cy.Comparison(
            "every token arrives like e^{-t}",
            "n, d, size; and z' = Pz - z itself, which forces it once P stands still",
            f"fitted rates within {max(off):.1g} of 1 in all {len(off)} fitted runs",
            max(off) < 0.02,
        )
    )
    return out


def _interval(group: StartGroup) -> str:
    low, high = resampled([c.limits for c in group.counts])
    return f"{low:.2g} to {high:.2g}"


def _tables(
    p: Params,
    groups: list[StartGroup],
    first: list[Leaders],
    sized: dict[tuple[int, float], StartGroup],
) -> list[cy.Table]:
    note = f"Means over {p.starts} starts."
    columns: dict[str, Any] = {"d": "d", "n": "n", **COLUMNS, "rate": "rate"}
    law: dict[str, Any] = {
        "d": "d",
        "n": "n",
        "mean leaders": lambda c: float(c.seen.mean()),
        "exact mean": "expected",
        "off, in standard errors": "off",
        "c_d r_n^(d-1)": lambda c: growth(c.n, c.d),
    }
    far = tuple((d, n, expected_leaders(n, d), growth(n, d)) for d in p.d for n in _FAR)
    columns_by_size: dict[str, Any] = {
        "start": "name",
        "softmax limits": lambda g: g.mean("limits"),
        "hardmax leaders": lambda g: g.mean("leaders"),
        "softmax over hardmax": lambda g: float(_ratio(g).mean()),
    }
    sizes = f"{p.middle} tokens, means over {2 * p.starts} starts, the same at every size."
    return [
        cy.Table.of("Number of tokens", groups, columns, note),
        cy.Table.of("Hardmax leaders at layer 0", first, law, f"Means over {p.draws} starts."),
        cy.Table("How the law grows", ("d", "n", "exact mean", "c_d r_n^(d-1)"), far),
        cy.Table.of("Size of the start", sized.values(), columns_by_size, sizes),
    ]


def _curves(p: Params, groups: list[StartGroup], sized: dict[tuple[int, float], StartGroup]) -> Any:
    figure, (axes,) = cy.plot.sheet(1, len(p.d) + 1, 4.2, 3.7)
    smooth = np.unique(np.geomspace(min(p.n), max(p.n), 30).round().astype(int)).tolist()
    blue, orange = cy.plot.PALETTE[:2]
    kinds = (("limits", "o", blue, "softmax limits"), ("leaders", "x", orange, "hardmax leaders"))
    for ax, d in zip(axes, p.d):
        line = [group for group in groups if group.d == d]
        for name, marker, colour, label in kinds:
            _bars(
                ax, p.n, [[getattr(c, name) for c in g.counts] for g in line], marker, colour, label
            )
        law, grows = ([f(n, d) for n in smooth] for f in (expected_leaders, growth))
        ax.plot(smooth, law, color=orange, lw=1, label="leaders at layer 0, exact")
        ax.plot(smooth, grows, "--", color=cy.plot.INK, lw=1, label="$c_d\\, r_n^{d-1}$")
        ax.set(xscale="log", xlabel="tokens n", ylabel="mean number", title=f"d = {d}")
        ax.set_ylim(bottom=0)
    axes[0].legend(frameon=False, loc="upper left", fontsize=cy.plot.LABEL)
    for colour, d in zip(cy.plot.PALETTE[2:], p.d):
        ratios = [_ratio(sized[d, size]).tolist() for size in _sizes(p)]
        _bars(axes[-1], _sizes(p), ratios, "o-", colour, f"d = {d}")
    axes[-1].axhline(1, color=cy.plot.INK, lw=0.8, ls=":")
    axes[-1].set(
        xscale="log", xlabel="size of the start", ylabel="softmax limits / hardmax leaders"
    )
    axes[-1].set(title=f"n = {p.middle}", ylim=(0, 1.1))
    cy.plot.plain_log(axes[-1].xaxis)
    axes[-1].legend(frameon=False, loc="lower right")
    return figure


def _bars(ax: Any, x: Any, samples: list[Any], marker: str, colour: str, label: str) -> None:
    """Means with their 95 % bootstrap intervals."""
    mean = np.array([np.mean(sample) for sample in samples])
    ends = np.array([resampled(sample) for sample in samples]).T
    look = {"fmt": marker, "color": colour, "ms": 5, "capsize": 2, "lw": 1, "label": label}
    ax.errorbar(x, mean, np.abs(ends - mean), **look)


def _panels(groups: list[StartGroup]) -> Any:
    by_n = sorted(groups, key=lambda group: group.n)
    chosen = [by_n[i] for i in sorted({0, len(by_n) // 2, len(by_n) - 1})]
    figure, axes = cy.plot.sheet(1, len(chosen), 4, 4)
    for ax, group in zip(axes[0], chosen):
        draw(ax, group.first.values)
        ax.set_title(f"n = {group.n}")
    cy.plot.legend_below(axes[0, 0])
    return figure
