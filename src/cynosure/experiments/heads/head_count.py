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

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import exp
from typing import Any, NamedTuple, final

import numpy as np

from ..._types import Array
from ...analysis.clustering import clusters
from ...analysis.polytope import hull
from ...analysis.spectra import rate
from ...attention import act, softmax_pull, softmax_weights
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import Flow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import RK4
from ...simulation.trajectory import Trajectory
from .._frame import Progress, at_most, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "GrowingHeads", "Params", "run"]

TITLE = "Number of heads: limits, clusters and rate of softmax heads"
KINDS = ("own A, V = I", "own A and V")


@final
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


@final
@dataclass(frozen=True, eq=False)
class GrowingHeads(Flow):
    """Several softmax heads in the variables y = e^{-lt} x, which do not grow.

        y_i' = (1/H) sum_h V_h (P_h y)_i - l y_i,   P_h = softmax of e^{2lt} <A_h y_i, y_j>

    the tokens of `UnnormalizedFlow(Heads([Softmax(1, A_h)], [V_h]))` up to the factor e^{lt}.
    """

    forms: Sequence[np.ndarray]
    values: Sequence[np.ndarray]

    @cached_property
    def growth(self) -> float:
        """l: once all tokens agree, x' = (mean of the V_h) x."""
        return float(np.linalg.eigvals(np.mean(self.values, axis=0)).real.max())

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        scale = exp(min(2 * self.growth * t, 700.0))
        heads = zip(self.forms, self.values, strict=True)
        pulls = (act(V, softmax_pull(act(A, z), z, z, scale, mask=mask), "V") for A, V in heads)
        return sum(pulls) / len(self.forms) - self.growth * z

    def weights(self, z: Array, t: float) -> Array:
        """(1/H) sum_h P_h."""
        scale = exp(min(2 * self.growth * t, 700.0))
        return np.mean([softmax_weights(act(A, z), z, scale) for A in self.forms], axis=0)


class Fate(NamedTuple):
    """How one run ended."""

    limits: int
    vertices: int
    between: int  # limits that are no vertex of the hull of all limits
    exponent: float  # fitted
    predicted: float  # from the final attention and the spectrum of the mean of the V_h
    growth: float  # of the hull between two saved times, relative to the longest token
    planes: int | None  # values of the leading dual vector of the mean of the V_h, if that is not I


def run(p: Params, progress: Progress | None = None) -> Report:
    """Every kind of heads for every number of them."""
    say = progress or silent
    if min(*p.heads, p.starts) < 1 or p.n < 2 or p.time < 12:
        raise ValueError(f"head_count: heads, starts >= 1, n >= 2, time >= 12; got {p}")
    fates: dict[tuple[str, int], list[Fate]] = {}
    shown: dict[tuple[str, int], Trajectory] = {}
    steps = len(KINDS) * len(p.heads)
    for kind in KINDS:
        for h in p.heads:
            say(0.9 * len(fates) / steps, f"{kind}, H = {h}")
            tr = shown[kind, h] = kept(_simulated, p, kind, h)
            fates[kind, h] = [_fate(tr.select(s)) for s in range(p.starts)]
    say(0.9, "figures")
    figures = (
        Picture("Against the number of heads", _CURVES, _curves(p, fates)),
        Picture("One start under one and several heads", _PANELS, _panels(p, shown)),
    )
    still = [f for (kind, _), fs in fates.items() if kind == KINDS[0] for f in fs]
    check = at_most(
        "B24",
        "arXiv 2305.05465, for several heads with V_h = I: docs/mathematics.md E6",
        "the hull of the tokens y = e^{-t} x shrinks under averaged heads",
        max(f.growth for f in still),
        1e-6,  # a step of RK4 is not a convex combination
        runs=len(still),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, fates),
        asdict(p),
        (_table(fates),),
        {"V_h = I": (check,)},
        figures,
        command="cynosure run head_count",
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


def _flow(p: Params, kind: str, h: int) -> GrowingHeads:
    """Random heads; the first ones do not depend on h."""
    rng = np.random.default_rng([p.seed, 1])
    forms, values = [], []
    for _ in range(h):
        u = _direction(rng.uniform(0, np.pi))
        forms.append(p.flatness * np.eye(2) + (1 - p.flatness) * np.outer(u, u))
        G = rng.standard_normal((2, 2))
        values.append(np.eye(2) + (p.spread * (G + G.T) / 2 if kind == KINDS[1] else 0))
    return GrowingHeads(forms, values)


def _direction(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle)])


def _simulated(p: Params, kind: str, h: int) -> Trajectory:
    """The same heads on every start. Adaptive steps would crawl where heads compete for ever."""
    z0 = p.size * np.stack([configurations.box(p.n, 2, p.seed + s) for s in range(p.starts)])
    times = np.linspace(0, p.time, 121)
    return simulate(_flow(p, kind, h), z0, times=times, stepper=RK4(p.dt))


def _fate(tr: Trajectory) -> Fate:
    flow, z = tr.dynamics, tr.values
    assert isinstance(flow, GrowingHeads)
    longest = float(np.linalg.norm(z[0], axis=1).max())
    found = clusters(z[-1], tol=1e-3 * longest)
    vertices = len(hull(found.centres).index)
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    support = (z @ directions.T).max(axis=1)
    moduli = np.sort(np.abs(np.linalg.eigvals(flow.weights(z[-1], float(tr.t[-1])))))[::-1]
    below = moduli[moduli < 1 - 1e-6]
    slow = flow.growth * (1 - float(below[0]) if len(below) else 1.0)
    values, vectors = np.linalg.eigh(np.mean(flow.values, axis=0))
    gap, limits, planes = float(values[1] - values[0]), z[-1], None
    if gap > 1e-9:  # the component along the leading direction is the last to stay
        f = z[-1] @ vectors[:, 1]
        limits = np.outer(f, vectors[:, 1])
        planes = clusters(f[:, None], tol=1e-3 * float(np.abs(f).max())).count
    return Fate(
        found.count,
        vertices,
        found.count - vertices,
        rate(tr, limits, floor=1e3 * exp(-flow.growth * float(tr.t[-1]))).exponent,
        slow if planes is None else min(slow, gap),
        float(np.diff(support, axis=0).max()) / longest,
        planes,
    )


def _mean(fates: list[Fate], name: str) -> float:
    return float(np.mean([getattr(f, name) for f in fates]))


def _table(fates: dict[tuple[str, int], list[Fate]]) -> Table:
    names = ("limits", "vertices", "between", "exponent", "predicted")
    rows = tuple(
        (kind, h, *(_mean(fs, x) for x in names), _mean(fs, "planes") if fs[0].planes else None)
        for (kind, h), fs in fates.items()
    )
    columns = (
        "heads",
        "H",
        "limits",
        "vertices",
        "between them",
        "rate fitted",
        "rate predicted",
        "values of f1*",
    )
    note = "Means over the starts; f1* is the leading dual eigenvector of the mean of the V_h."
    return Table("Number of heads", columns, rows, note)


def _summary(p: Params, fates: dict[tuple[str, int], list[Fate]]) -> str:
    low, high = min(p.heads), max(p.heads)
    one, many = fates[KINDS[0], low], fates[KINDS[0], high]
    alone, own = fates[KINDS[1], low], fates[KINDS[1], high]
    plain = [f for (kind, _), fs in fates.items() if kind == KINDS[0] for f in fs]
    other = [f for f in plain if abs(f.exponent - 1) > 0.02]
    off = [abs(f.exponent / f.predicted - 1) for fs in fates.values() for f in fs]
    return (
        f"{p.n} tokens. V_h = I: from {low} to {high} heads with their own A the mean number of "
        f"limits goes from {_mean(one, 'limits'):.2g} to {_mean(many, 'limits'):.2g}, of which "
        f"{_mean(many, 'between'):.2g} are no vertex; the fitted rate is 1 within 2 % in "
        f"{len(plain) - len(other)} of {len(plain)} runs, the extremes being "
        f"{min(f.exponent for f in plain):.2f} and {max(f.exponent for f in plain):.2f}.\n\n"
        f"Own value matrices: the rate falls from {_mean(alone, 'exponent'):.2f} with {low} to "
        f"{_mean(own, 'exponent'):.2f} with {high} heads, and the tokens take "
        f"{_mean(own, 'planes'):.2g} values of the leading dual vector at t = {p.time:g}. The "
        f"predicted rate is off by {float(np.median(off)):.1%} (median of {len(off)} runs; largest "
        f"{max(off):.0%})."
    )


def _curves(p: Params, fates: dict[tuple[str, int], list[Fate]]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 2, 5.2, 3.8)
    names = {"limits": "distinct limits", "exponent": "rate"}
    for shift, (colour, kind) in enumerate(zip(PALETTE, KINDS, strict=False)):
        x = np.array(p.heads) * 1.05 ** (shift - 0.5)  # side by side on the logarithmic axis
        for ax, name in zip(axes[0], names, strict=True):
            seen = np.array([[getattr(f, name) for f in fates[kind, h]] for h in p.heads])
            mean = seen.mean(axis=1)
            bars = np.abs(np.stack([seen.min(axis=1), seen.max(axis=1)]) - mean)
            ax.errorbar(x, mean, bars, fmt="o-", color=colour, ms=4, elinewidth=0.8, label=kind)
        label = "predicted" if shift == 0 else None
        predicted = [_mean(fates[kind, h], "predicted") for h in p.heads]
        axes[0, 1].plot(x, predicted, "x", color="black", ms=7, zorder=3, label=label)
    for ax, name in zip(axes[0], names.values(), strict=True):
        ax.set_xscale("log", base=2)
        ax.set(xlabel="heads H", ylabel=name, xticks=p.heads, xticklabels=map(str, p.heads))
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panels(p: Params, shown: dict[tuple[str, int], Trajectory]) -> Any:
    from ...drawing.plot import GREY, PALETTE, shade

    chosen = sorted({min(p.heads), p.heads[len(p.heads) // 2], max(p.heads)})
    figure, axes = sheet(2, len(chosen), 4, 4)
    for row, kind in zip(axes, KINDS, strict=True):
        for ax, h in zip(row, chosen, strict=True):
            z = shown[kind, h].values[:, 0]
            shade(ax, hull(z[-1]))
            ax.plot(z[..., 0], z[..., 1], color=GREY, lw=0.8, zorder=1)
            ax.plot(*z[0].T, "o", color=PALETTE[0], ms=4, label="start")
            ax.plot(*z[-1].T, "s", color=PALETTE[1], ms=6, label="end")
            if kind == KINDS[1]:
                mean = np.mean(_flow(p, kind, h).values, axis=0)
                line = np.linalg.eigh(mean)[1][:, 1]
                ax.axline((0, 0), line, ls="--", lw=0.8, color="black", zorder=0)
            ax.set(aspect="equal", title=f"{kind}, H = {h}", xlabel="$y_1$", ylabel="$y_2$")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure
