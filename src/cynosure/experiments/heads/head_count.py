"""Number of heads: limits, clusters and the rate of convergence of softmax heads, H = 1..16.

    x_i' = (1/H) sum_h V_h (P_h x)_i,   P_h = softmax of <A_h x_i, x_j>,   y = e^{-lt} x

with l the leading growth of the mean of the V_h (l = 1 for V_h = I): the multi-head question of
Sugolov and Aubry about the flow of arXiv 2305.05465. See: with V_h = I more heads leave the
polytope picture as it is: a few clusters, at the vertices of a shrinking hull, reached at rate
1 - |l2| = 1 (l2 the largest eigenvalue below 1 of the final attention (1/H) sum_h P_h, here 0: in
the end all heads agree on whom to follow). With own V_h only the mean of the V_h counts in the
end: clusters lie along its leading direction, and as the mean comes nearer to I with more heads,
its spectral gap, the rate, closes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import exp
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Number of heads: limits, clusters and rate of softmax heads"
KINDS = ("own A, V = I", "own A and V")


@dataclass(frozen=True)
class Params:
    """Numbers of heads; `starts` boxes [-size, size]^2 of n tokens; A_h has eigenvalues 1 and
    `flatness` along a random direction; V_h = I + `spread` times a symmetric Gaussian."""

    heads: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    n: int = 24
    size: float = 6.0
    flatness: float = 0.2
    spread: float = 0.3
    starts: int = 8
    time: float = 24.0
    dt: float = 0.05
    seed: int = 0


QUICK = Params(heads=(1, 2, 3), n=8, starts=3, time=14.0, dt=0.1)


class Limits(NamedTuple):
    """The limits of one run and the rate at which it reached them."""

    limits: int
    vertices: int  # of the hull of all limits
    exponent: float  # fitted
    predicted: float  # from the final attention and the spectrum of the mean of the V_h
    growth: float  # of the hull between two saved times, relative to the longest token
    planes: int | None  # values of the leading dual vector of the mean of the V_h, if that is not I

    @property
    def between(self) -> int:
        """Limits that are no vertex."""
        return self.limits - self.vertices


class HeadCount(NamedTuple):
    """The runs of H heads of one kind from all starts."""

    kind: str
    H: int
    runs: cy.Trajectory
    ends: list[Limits]

    def values(self, name: str) -> list[Any]:
        return [getattr(end, name) for end in self.ends]

    def mean(self, name: str) -> float:
        return float(np.mean(self.values(name)))


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every kind of heads for every number of them."""
    if min(*p.heads, p.starts) < 1 or p.n < 2 or p.time < 12:
        raise ValueError(f"head_count: heads, starts >= 1, n >= 2, time >= 12; got {p}")
    runs = over_grid(_simulated, p, {"heads": KINDS, "H": p.heads}, part(progress, 0, 0.9))
    counts = [
        HeadCount(kind, h, batch, [_limits(batch.select(s)) for s in range(p.starts)])
        for (kind, h), batch in zip(product(KINDS, p.heads), runs, strict=True)
    ]
    plain = [end for c in counts if c.kind == KINDS[0] for end in c.ends]
    check = at_most(
        "hulls of heads",
        "arXiv 2305.05465, B24 for several heads with V_h = I: docs/mathematics.md E6",
        "the hull of the tokens y = e^{-t} x shrinks under averaged heads",
        max(end.growth for end in plain),
        1e-6,  # a step of RK4 is not a convex combination
        runs=len(plain),
    )
    columns: dict[str, Any] = {
        "heads": "kind",
        "H": "H",
        "limits": lambda c: c.mean("limits"),
        "vertices": lambda c: c.mean("vertices"),
        "between them": lambda c: c.mean("between"),
        "rate fitted": lambda c: c.mean("exponent"),
        "rate predicted": lambda c: c.mean("predicted"),
        "values of f1*": lambda c: c.mean("planes") if c.ends[0].planes else None,
    }
    note = "Means over the starts; f1* is the leading dual eigenvector of the mean of the V_h."
    return report_of(
        __name__,
        p,
        _summary(p, counts),
        tables=[cy.Table.of("Number of heads", counts, columns, note)],
        checks={"V_h = I": [check]},
        figures=[
            cy.Picture("Against the number of heads", _CURVES, _curves(p, counts)),
            cy.Picture("One start under one and several heads", _PANELS, _panels(p, counts)),
        ],
    )


_CURVES = (
    "Means over the starts, bars from the least to the largest. Left: distinct limits. Right: the "
    "fitted exponent of the largest distance to the limit; crosses are the prediction, the smaller "
    "of l (1 - |l2|), l2 from the final attention, and the spectral gap of the mean of the V_h."
)
_PANELS = (
    "Paths of y from circles to squares. Top: own A, V = I; tokens end at the vertices of the "
    "shaded hull whatever the number of heads. Bottom: own A and V; tokens end along the leading "
    "direction of the mean of the V_h (dashed)."
)


def _flow(p: Params, kind: str, h: int) -> cy.HeadsFlow:
    """Random heads; the first ones do not depend on h."""
    rng = np.random.default_rng([p.seed, 1])
    heads, values = [], []
    for _ in range(h):
        angle = rng.uniform(0, np.pi)
        u = np.array([np.cos(angle), np.sin(angle)])
        heads.append(cy.Softmax(1.0, p.flatness * np.eye(2) + (1 - p.flatness) * np.outer(u, u)))
        G = rng.standard_normal((2, 2))
        values.append(np.eye(2) + p.spread * (G + G.T) / 2)
    return cy.HeadsFlow(cy.Heads(heads, values if kind == KINDS[1] else None))


def _mean_value(flow: Any) -> np.ndarray:
    return np.eye(2) if flow.mean_value is None else flow.mean_value


def _simulated(p: Params, kind: str, h: int) -> cy.Trajectory:
    """The same heads on every start. Adaptive steps would crawl where heads compete for ever."""
    z0 = p.size * np.stack([cy.configurations.box(p.n, 2, p.seed + s) for s in range(p.starts)])
    times = np.linspace(0, p.time, 121)
    return cy.simulate(_flow(p, kind, h), z0, times=times, stepper=cy.RK4(p.dt))


def _limits(tr: cy.Trajectory) -> Limits:
    flow: Any = tr.dynamics
    z, end = tr.values, float(tr.t[-1])
    longest = float(np.linalg.norm(z[0], axis=1).max())
    groups = cy.clusters(z[-1], tol=1e-3 * longest)
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    support = (z @ directions.T).max(axis=1)
    moduli = np.sort(np.abs(np.linalg.eigvals(flow.weights(z[-1], end))))[::-1]
    below = moduli[moduli < 1 - 1e-6]
    predicted = flow.leading * (1 - float(below[0]) if len(below) else 1.0)
    limits, planes = z[-1], None
    values, vectors = np.linalg.eigh(_mean_value(flow))
    gap = float(values[1] - values[0])
    if gap > 1e-9:  # the component along the leading direction is the last to stay
        f = z[-1] @ vectors[:, 1]
        limits = np.outer(f, vectors[:, 1])
        planes = cy.clusters(f[:, None], tol=1e-3 * float(np.abs(f).max())).count
        predicted = min(predicted, gap)
    return Limits(
        limits=groups.count,
        vertices=len(cy.hull(groups.centres).index),
        exponent=cy.spectra.rate(tr, limits, floor=1e3 * exp(-flow.leading * end)).exponent,
        predicted=predicted,
        growth=float(np.diff(support, axis=0).max()) / longest,
        planes=planes,
    )


def _summary(p: Params, counts: list[HeadCount]) -> str:
    low, high = min(p.heads), max(p.heads)
    of = {(c.kind, c.H): c for c in counts}
    one, many = of[KINDS[0], low], of[KINDS[0], high]
    alone, own = of[KINDS[1], low], of[KINDS[1], high]
    plain = [x for c in counts if c.kind == KINDS[0] for x in c.values("exponent")]
    other = [x for x in plain if abs(x - 1) > 0.02]
    off = [abs(end.exponent / end.predicted - 1) for c in counts for end in c.ends]
    return (
        f"{p.n} tokens. V_h = I: from {low} to {high} heads with their own A the mean number of "
        f"limits goes from {one.mean('limits'):.2g} to {many.mean('limits'):.2g}, of which "
        f"{many.mean('between'):.2g} are no vertex; the fitted rate is 1 within 2 % in "
        f"{len(plain) - len(other)} of {len(plain)} runs, the extremes being "
        f"{min(plain):.2f} and {max(plain):.2f}.\n\n"
        f"Own value matrices: the rate falls from {alone.mean('exponent'):.2f} with {low} to "
        f"{own.mean('exponent'):.2f} with {high} heads, and the tokens take "
        f"{own.mean('planes'):.2g} values of the leading dual vector at t = {p.time:g}. The "
        f"predicted rate is off by {float(np.median(off)):.1%} (median of {len(off)} runs; largest "
        f"{max(off):.0%})."
    )


def _curves(p: Params, counts: list[HeadCount]) -> Any:
    figure, axes = cy.plot.sheet(1, 2, 5.2, 3.8)
    names = {"limits": "distinct limits", "exponent": "rate"}
    for shift, (colour, kind) in enumerate(zip(cy.plot.PALETTE, KINDS, strict=False)):
        x = np.array(p.heads) * 1.05 ** (shift - 0.5)  # side by side on the logarithmic axis
        ours = [c for c in counts if c.kind == kind]
        for ax, name in zip(axes[0], names, strict=True):
            seen = np.array([c.values(name) for c in ours])
            mean = seen.mean(axis=1)
            bars = np.abs(np.stack([seen.min(axis=1), seen.max(axis=1)]) - mean)
            ax.errorbar(x, mean, bars, fmt="o-", color=colour, ms=4, elinewidth=0.8, label=kind)
        label = "predicted" if shift == 0 else None
        predicted = [c.mean("predicted") for c in ours]
        axes[0, 1].plot(x, predicted, "x", color=cy.plot.INK, ms=7, zorder=3, label=label)
    for ax, name in zip(axes[0], names.values(), strict=True):
        ax.set_xscale("log", base=2)
        ax.set(xlabel="heads H", ylabel=name, xticks=p.heads, xticklabels=map(str, p.heads))
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
    handles = axes[0, 1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panels(p: Params, counts: list[HeadCount]) -> Any:
    chosen = sorted({min(p.heads), p.heads[len(p.heads) // 2], max(p.heads)})
    figure, axes = cy.plot.sheet(2, len(chosen), 4, 4)
    runs = {(c.kind, c.H): c.runs for c in counts}
    for ax, (kind, h) in zip(axes.flat, product(KINDS, chosen), strict=True):
        z = runs[kind, h].values[:, 0]
        cy.plot.shade(ax, cy.hull(z[-1]))
        ax.plot(z[..., 0], z[..., 1], color=cy.plot.GREY, lw=0.8, zorder=1)
        ax.plot(*z[0].T, "o", color=cy.plot.PALETTE[0], ms=4, label="start")
        ax.plot(*z[-1].T, "s", color=cy.plot.PALETTE[1], ms=6, label="end")
        if kind == KINDS[1]:
            line = np.linalg.eigh(_mean_value(runs[kind, h].dynamics))[1][:, 1]
            ax.axline((0, 0), line, ls="--", lw=0.8, color=cy.plot.INK, zorder=0)
        ax.set(aspect="equal", title=f"{kind}, H = {h}", xlabel="$y_1$", ylabel="$y_2$")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    return figure
