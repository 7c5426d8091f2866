"""Number of heads: limits, clusters and the rate of convergence of softmax heads, H = 1..16.

    x_i' = (1/H) sum_h V_h (P_h x)_i,   P_h = softmax of <A_h x_i, x_j>,   y = e^{-lt} x

with l the leading growth of the mean of the V_h (l = 1 for V_h = I): the multi-head question of
Sugolov and Aubry about the flow of arXiv 2305.05465. See: with V_h = I the hull still shrinks and
limits are reached at rate 1 - |l2| (l2 the largest eigenvalue below 1 of the final attention
(1/H) sum_h P_h), but one thing of the polytope picture is lost: heads may go on to pull a token to
different vertices for ever, and it ends between them, at no vertex. With own V_h only the mean of
the V_h counts in the end: clusters lie along its leading direction, and the rate is its spectral
gap, which closes like H^(-1/2) because a mean of random matrices does, with or without attention.

Trap: the exact hull of inexact limits counts a limit in the middle of an edge as a vertex whenever
rounding pushed it outwards. Here a limit is a vertex when its distance to the hull of the others is
larger than the tolerance of limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import exp
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._extremes import standing_out
from .._frame import Progress, at_most, counted, over_grid, part, report_of, resampled, wilson

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Number of heads: limits, clusters and rate of softmax heads"
KINDS = ("own A, V = I", "own A and V")
STARTS = ("box", "sphere", "gaussian", "ball")
NEAR = 1e-3  # of the longest token: limits nearer than this are one, pulls farther apart disagree


@dataclass(frozen=True)
class Params:
    """Numbers of heads; `draws` of the heads, and for each `starts` starts of n tokens in R^d, by
    name (`cy.configurations`: "box", "sphere", "gaussian", "ball"), times `size`; A_h has the
    eigenvalue 1 along a random direction and `flatness` across it; V_h = I + `spread` times a
    symmetric Gaussian. `varied`: (n, size, flatness, d, start) run besides, with V_h = I."""

    heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    n: int = 24
    d: int = 2
    start: str = "box"
    size: float = 6.0
    flatness: float = 0.2
    spread: float = 0.3
    draws: int = 8
    starts: int = 4
    time: float = 24.0
    dt: float = 0.1
    varied: tuple[tuple[int, float, float, int, str], ...] = (
        (12, 6.0, 0.2, 2, "box"),
        (24, 3.0, 0.2, 2, "box"),
        (24, 6.0, 0.6, 2, "box"),
        (24, 6.0, 0.2, 2, "sphere"),
        (24, 6.0, 0.2, 2, "gaussian"),
        (24, 6.0, 0.2, 3, "box"),
        (24, 6.0, 0.2, 3, "sphere"),
    )
    seed: int = 0


QUICK = Params(
    heads=(1, 2), n=8, draws=2, starts=3, time=14.0, varied=((8, 6.0, 0.2, 3, "sphere"),)
)
Size = tuple[int, float, float, int, str]


class Limits(NamedTuple):
    """The limits of one run and the rate at which it reached them."""

    limits: int
    between: int  # limits that are no vertex of the hull of all
    disagree: float  # share of the tokens that heads pull to different places at the end
    exponent: float  # fitted
    predicted: float  # from the final attention and the spectrum of the mean of the V_h
    growth: float  # of the hull between two saved times, relative to the longest token
    planes: int | None  # values of the leading dual vector of the mean of the V_h, if that is not I


class HeadCount(NamedTuple):
    """The runs of H heads of one kind: every draw of the heads from all its starts."""

    kind: str
    H: int
    size: Size  # n, size of the start, flatness, d, start
    first: cy.Trajectory  # the runs of the first draw
    ends: list[list[Limits]]  # by draw

    @property
    def runs(self) -> list[Limits]:
        return [end for of in self.ends for end in of]

    def values(self, name: str) -> list[Any]:
        return [getattr(end, name) for end in self.runs]

    def mean(self, name: str) -> float:
        return float(np.mean(self.values(name)))

    def interval(self, name: str) -> tuple[float, float]:
        """95 %, by draws: runs of the same heads are not independent."""
        return resampled([np.mean([getattr(end, name) for end in of]) for of in self.ends])

    def told(self, name: str) -> str:
        low, high = self.interval(name)
        return f"{self.mean(name):.2f} (95 %: {low:.2f} to {high:.2f})"


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every kind of heads for every number of them, then other sizes and forms."""
    if min(*p.heads, p.draws, p.starts) < 1 or p.n < 2 or p.time < 12:
        raise ValueError(f"head_count: heads, draws, starts >= 1, n >= 2, time >= 12; got {p}")
    plain = (p.n, p.size, p.flatness, p.d, p.start)
    for *_, d, start in (plain, *p.varied):
        if d < 2 or start not in STARTS:
            raise ValueError(f"head_count: d >= 2 and start in {STARTS}; got {d} and {start!r}")
    axes = {"heads": KINDS, "H": p.heads, "size": [plain], "draw": range(p.draws)}
    counts = _counts(over_grid(_simulated, p, axes, part(progress, 0, 0.7)), axes)
    some = sorted({min(p.heads), p.heads[len(p.heads) // 2]})
    axes = {"heads": KINDS[:1], "H": some, "size": p.varied, "draw": range(p.draws)}
    others = _counts(over_grid(_simulated, p, axes, part(progress, 0.7, 0.95)), axes)
    free = [end for c in (*counts, *others) if c.kind == KINDS[0] for end in c.runs]
    check = at_most(
        "hulls of heads",
        "arXiv 2305.05465, B24 for several heads with V_h = I: docs/mathematics.md E6",
        "the hull of the tokens y = e^{-t} x shrinks under averaged heads",
        max(end.growth for end in free),
        1e-6,  # a step of RK4 is not a convex combination
        runs=len(free),
    )
    return report_of(
        __name__,
        p,
        _summary(p, counts),
        controls=_controls(p, counts, others),
        tables=[
            _table("Number of heads", counts),
            *([_table("Other sizes and forms", others)] if others else []),
        ],
        checks={"V_h = I": [check]},
        figures=[
            cy.Picture("Against the number of heads", _CURVES, _curves(p, counts)),
            cy.Picture("One start under one and several heads", _PANELS, _panels(p, counts)),
        ],
    )


def _counts(runs: list[cy.Trajectory], axes: dict[str, Any]) -> list[HeadCount]:
    draws = len(axes["draw"])
    out = []
    cells = product(axes["heads"], axes["H"], axes["size"])
    for i, (kind, h, size) in enumerate(cells):
        batches = runs[i * draws : (i + 1) * draws]
        ends = [[_limits(b.select(s)) for s in range(b.values.shape[1])] for b in batches]
        out.append(HeadCount(kind, h, tuple(size), batches[0], ends))
    return out


def _table(title: str, counts: list[HeadCount]) -> cy.Table:
    columns: dict[str, Any] = {
        "heads": "kind",
        "H": "H",
        "n, size, flatness, d, start": lambda c: ", ".join(map(str, c.size)),
        "runs": lambda c: len(c.runs),
        "limits": lambda c: c.mean("limits"),
        "no vertex": lambda c: c.mean("between"),
        "runs with one": lambda c: sum(x > 0 for x in c.values("between")),
        "tokens heads disagree on": lambda c: c.mean("disagree"),
        "rate fitted": lambda c: c.mean("exponent"),
        "rate predicted": lambda c: c.mean("predicted"),
        "values of f1*": lambda c: c.mean("planes") if c.runs[0].planes else None,
    }
    note = "Means over the runs; f1* is the leading dual eigenvector of the mean of the V_h."
    return cy.Table.of(title, counts, columns, note)


_CURVES = (
    "Means over the runs, with a 95 % interval by draws of the heads. Left: distinct limits "
    "(solid), of these no vertex of the hull of all (dotted). Middle: share of the tokens that "
    "some head pulls elsewhere than the others at the end. Right: the fitted exponent of the "
    "largest distance to the limit; crosses are the prediction, the smaller of l (1 - |l2|), l2 "
    "from the final attention, and the spectral gap of the mean of the V_h."
)
_PANELS = (
    "Paths of y (two coordinates) from circles to squares, shaded the hull of the ends; of the "
    "starts under the "
    "first draw of heads that with the most limits that are no vertex. Top: own A, V = I; tokens "
    "end at vertices and, where heads disagree for ever, between them. Bottom: own A and V; tokens "
    "end along the leading direction of the mean of the V_h (dashed)."
)


def _flow(p: Params, kind: str, h: int, flatness: float | int, draw: int, d: int) -> cy.HeadsFlow:
    """Random heads; the first ones do not depend on h."""
    rng = np.random.default_rng([p.seed, 1, draw])
    heads, values = [], []
    for _ in range(h):
        u = rng.standard_normal(d)
        u /= np.linalg.norm(u)
        heads.append(cy.Softmax(1.0, flatness * np.eye(d) + (1 - flatness) * np.outer(u, u)))
        G = rng.standard_normal((d, d))
        values.append(np.eye(d) + p.spread * (G + G.T) / 2)
    return cy.HeadsFlow(cy.Heads(heads, values if kind == KINDS[1] else None))


def _mean_value(flow: Any, d: int) -> np.ndarray:
    return np.eye(d) if flow.mean_value is None else flow.mean_value


def _simulated(p: Params, kind: str, h: int, size: Size, draw: int) -> cy.Trajectory:
    """One draw of heads on its starts. Adaptive steps would crawl where heads compete for ever."""
    n, side, flatness, d, start = size
    seeds = (p.seed + p.starts * draw + s for s in range(p.starts))
    z0 = side * np.stack([getattr(cy.configurations, start)(n, d, seed) for seed in seeds])
    times = np.linspace(0, p.time, 121)
    flow = _flow(p, kind, h, flatness, draw, d)
    return cy.simulate(flow, z0, times=times, stepper=cy.RK4(p.dt))


def _disagreement(flow: Any, z: np.ndarray, t: float, longest: float) -> float:
    """Share of the tokens that some head pulls elsewhere than the mean of all heads does."""
    heads = flow.attention.heads
    pulls = np.array([cy.Softmax(exp(2 * flow.leading * t) * h.beta, h.A).pull(z) for h in heads])
    apart = np.linalg.norm(pulls - pulls.mean(axis=0), axis=-1).max(axis=0)
    return float((apart > NEAR * longest).mean())


def _limits(tr: cy.Trajectory) -> Limits:
    flow: Any = tr.dynamics
    z, end = tr.values, float(tr.t[-1])
    longest = float(np.linalg.norm(z[0], axis=1).max())
    groups = cy.clusters(z[-1], tol=NEAR * longest)
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    support = (z @ directions.T).max(axis=1)
    moduli = np.sort(np.abs(np.linalg.eigvals(flow.weights(z[-1], end))))[::-1]
    below = moduli[moduli < 1 - 1e-6]
    predicted = flow.leading * (1 - float(below[0]) if len(below) else 1.0)
    limits, planes = z[-1], None
    values, vectors = np.linalg.eigh(_mean_value(flow, z.shape[-1]))
    gap = float(values[-1] - values[-2])
    if gap > 1e-9:  # the component along the leading direction is the last to stay
        f = z[-1] @ vectors[:, -1]
        limits = np.outer(f, vectors[:, -1])
        planes = cy.clusters(f[:, None], tol=NEAR * float(np.abs(f).max())).count
        predicted = min(predicted, gap)
    return Limits(
        limits=groups.count,
        between=int((standing_out(groups.centres) <= NEAR * longest).sum()),
        disagree=_disagreement(flow, z[-1], end, longest),
        exponent=cy.spectra.rate(tr, limits, floor=1e3 * exp(-flow.leading * end)).exponent,
        predicted=predicted,
        growth=float(np.diff(support, axis=0).max()) / longest,
        planes=planes,
    )


def _controls(p: Params, counts: list[HeadCount], others: list[HeadCount]) -> list[cy.Comparison]:
    of = {(c.kind, c.H): c for c in counts}
    free = [c for c in counts if c.kind == KINDS[0]]
    several = [c for c in free if c.H > 1] or free
    own = [c for c in counts if c.kind == KINDS[1]]
    inside = {c.H: sum(x > 0 for x in c.values("between")) for c in several}
    apart = {c.H: sum(x > 0 for x in c.values("disagree")) for c in several}
    one, many = of[KINDS[0], min(p.heads)], of[KINDS[0], max(p.heads)]
    rates = [x for c in (*free, *others) for x in c.values("exponent")]
    near = sum(bool(abs(x - 1) <= 0.02) for x in rates)
    fitted = [c.mean("exponent") * np.sqrt(c.H) for c in own]
    gaps = [_gap(p, c.H) * np.sqrt(c.H) for c in own]
    means = [c.mean("limits") for c in free]
    return [
        cy.Comparison(
            "Every limit is a vertex of the hull of the limits, whatever the number of heads.",
            "the distance of each limit to the hull of the others",
            "runs with a limit that is no vertex: "
            + "; ".join(f"H = {c.H}: {counted(inside[c.H], len(c.runs))}" for c in several),
            not any(inside.values()),
        ),
        cy.Comparison(
            "In the end all heads agree on whom to follow.",
            "the pull of each head at the end",
            "runs in which some token is pulled to different places: "
            + "; ".join(f"H = {c.H}: {counted(apart[c.H], len(c.runs))}" for c in several),
            not any(apart.values()),
        ),
        cy.Comparison(
            "The number of limits falls (or grows) steadily with the number of heads.",
            f"all numbers of heads, {p.draws} draws of them",
            "; ".join(f"H = {c.H}: {c.told('limits')}" for c in free),
            means in (sorted(means), sorted(means, reverse=True)) and _apart(one, many),
        ),
        cy.Comparison(
            "With V_h = I limits are reached at rate 1 within 2 %.",
            "n, size of the start, flatness of the A_h; circle, sphere, Gaussian starts; d = 3",
            f"{counted(near, len(rates))}; from {min(rates):.2f} to {max(rates):.2f}",
            wilson(near, len(rates))[0] > 0.95,
        ),
        *_elsewhere(others),
        cy.Comparison(
            "With own V_h the rate falls as heads are added.",
            "the null model: the mean spectral gap of the mean of H random matrices, no attention",
            "rate times sqrt(H) beside gap times sqrt(H): "
            + "; ".join(f"H = {c.H}: {a:.2f}, {b:.2f}" for c, a, b in zip(own, fitted, gaps)),
            own[-1].interval("exponent")[1] < own[0].interval("exponent")[0],
        ),
    ]


def _elsewhere(others: list[HeadCount]) -> list[cy.Comparison]:
    """Limits that are no vertex, from other starts and in other dimensions."""
    torn = {(c.size, c.H): sum(x > 0 for x in c.values("between")) for c in others}
    alone, several = min((c.H for c in others), default=1), max((c.H for c in others), default=1)
    if alone == several:
        return []
    told = [
        f"{', '.join(map(str, c.size))}: {torn[c.size, alone]} and {torn[c.size, several]} of "
        f"{len(c.runs)}"
        for c in others
        if alone == c.H
    ]
    return [
        cy.Comparison(
            "Limits that are no vertex come with several heads, from any start.",
            "n, size, flatness, dimension and start",
            f"runs with one, H = {alone} and {several}: {'; '.join(told)}",
            all((k == 0) == (h == alone) for (_, h), k in torn.items()),
        )
    ]


def _apart(a: HeadCount, b: HeadCount) -> bool:
    """True where the intervals of the numbers of limits do not overlap."""
    (low, high), (other_low, other_high) = a.interval("limits"), b.interval("limits")
    return high < other_low or other_high < low


def _gap(p: Params, h: int) -> float:
    """The spectral gap of the mean of the V_h, the mean over the draws."""
    flows = [_flow(p, KINDS[1], h, p.flatness, draw, p.d) for draw in range(p.draws)]
    values = [np.linalg.eigvalsh(_mean_value(flow, p.d)) for flow in flows]
    return float(np.mean([lam[-1] - lam[-2] for lam in values]))


def _summary(p: Params, counts: list[HeadCount]) -> str:
    low, high = min(p.heads), max(p.heads)
    of = {(c.kind, c.H): c for c in counts}
    free = [c for c in counts if c.kind == KINDS[0]]
    alone, own = of[KINDS[1], low], of[KINDS[1], high]
    worst = max(free, key=lambda c: c.mean("between"))
    split = max(free, key=lambda c: c.mean("disagree"))
    plain = [x for c in free for x in c.values("exponent")]
    near = sum(bool(abs(x - 1) <= 0.02) for x in plain)
    off = [abs(end.exponent / end.predicted - 1) for c in counts for end in c.runs]
    torn = sum(x > 0 for x in worst.values("between"))
    limits = [f"{c.told('limits')} for H = {c.H}" for c in free]
    return (
        f"{p.n} tokens in R^{p.d}. V_h = I: the mean number of limits is {', '.join(limits)}. "
        "Limits that are no vertex of the hull of all: on average "
        f"{worst.mean('between'):.2g} with H = {worst.H}, some in "
        f"{counted(torn, len(worst.runs))} of its runs. Tokens that heads pull to other "
        f"places for ever: {split.mean('disagree'):.1%} with H = {split.H}. The fitted rate is 1 "
        f"within 2 % in {counted(near, len(plain))} runs, the extremes being {min(plain):.2f} and "
        f"{max(plain):.2f}.\n\n"
        f"Own value matrices: the rate goes from {alone.told('exponent')} with {low} to "
        f"{own.told('exponent')} with {high} heads, the spectral gap of the mean of the random "
        f"matrices by itself from {_gap(p, low):.2f} to {_gap(p, high):.2f}. The tokens take "
        f"{own.mean('planes'):.2g} values of the leading dual vector at t = {p.time:g}. The "
        f"predicted rate is off by {float(np.median(off)):.1%} (median of {len(off)} runs; largest "
        f"{max(off):.0%})."
    )


def _curves(p: Params, counts: list[HeadCount]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4.3, 3.8)
    names = {
        "limits": "distinct limits",
        "disagree": "tokens heads disagree on",
        "exponent": "rate",
    }
    for shift, (colour, kind) in enumerate(zip(cy.plot.PALETTE, KINDS, strict=False)):
        x = np.array(p.heads) * 1.05 ** (shift - 0.5)  # side by side on the logarithmic axis
        ours = [c for c in counts if c.kind == kind]
        for ax, name in zip(axes[0], names, strict=True):
            mean = np.array([c.mean(name) for c in ours])
            ends = np.array([c.interval(name) for c in ours]).T
            bars = np.abs(ends - mean)
            look = {"color": colour, "ms": 4, "elinewidth": 0.8, "capsize": 2}
            ax.errorbar(x, mean, bars, fmt="o-", label=kind, **look)
        between = [c.mean("between") for c in ours]
        label = "no vertex" if shift == 0 else None
        axes[0, 0].plot(x, between, "o:", color=colour, mfc="white", ms=4, label=label)
        label = "predicted" if shift == 0 else None
        predicted = [c.mean("predicted") for c in ours]
        axes[0, 2].plot(x, predicted, "x", color=cy.plot.INK, ms=7, zorder=3, label=label)
    for ax, name in zip(axes[0], names.values(), strict=True):
        ax.set_xscale("log", base=2)
        ax.set(xlabel="heads H", ylabel=name, xticks=p.heads, xticklabels=map(str, p.heads))
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
    both = [ax.get_legend_handles_labels() for ax in (axes[0, 0], axes[0, 2])]
    told = {label: handle for handles, labels in both for handle, label in zip(handles, labels)}
    figure.legend(told.values(), told.keys(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _clearest(counts: list[HeadCount], chosen: list[int]) -> int:
    """The start of the first draw with the most limits that are no vertex, to have some to see."""
    of = [c.ends[0] for c in counts if c.kind == KINDS[0] and c.H in chosen]
    return int(np.argmax([sum(end.between for end in ends) for ends in zip(*of)]))


def _panels(p: Params, counts: list[HeadCount]) -> Any:
    chosen = sorted({min(p.heads), p.heads[len(p.heads) // 2], max(p.heads)})
    s = _clearest(counts, chosen)
    figure, axes = cy.plot.sheet(2, len(chosen), 4, 4)
    runs = {(c.kind, c.H): c.first for c in counts}
    for ax, (kind, h) in zip(axes.flat, product(KINDS, chosen), strict=True):
        z = runs[kind, h].values[:, s, :, :2]
        cy.plot.shade(ax, cy.hull(z[-1]))
        ax.plot(z[..., 0], z[..., 1], color=cy.plot.GREY, lw=0.8, zorder=1)
        ax.plot(*z[0].T, "o", color=cy.plot.PALETTE[0], ms=4, label="start")
        ax.plot(*z[-1].T, "s", color=cy.plot.PALETTE[1], ms=6, label="end")
        if kind == KINDS[1]:
            line = np.linalg.eigh(_mean_value(runs[kind, h].dynamics, p.d))[1][:2, -1]
            ax.axline((0, 0), line, ls="--", lw=0.8, color=cy.plot.INK, zorder=0)
        ax.set(aspect="equal", title=f"{kind}, H = {h}", xlabel="$y_1$", ylabel="$y_2$")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    return figure
