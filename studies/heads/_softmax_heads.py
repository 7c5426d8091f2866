"""Several softmax heads: limits, clusters and rates against their number."""

from __future__ import annotations

from itertools import product
from math import exp
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import cynosure as cy
from cynosure import study as st

from .._extremes import standing_out
from ._hardmax_heads import directions

if TYPE_CHECKING:
    from .several_heads import Params

VALUES = ("own A, V = I", "own A and V")
NEAR = 1e-3  # of the longest token: limits nearer than this are one, pulls farther apart disagree
Case: TypeAlias = tuple[int, float, float, int, str]  # n, size of the start, flatness, d, start


def by_heads(ax: Any, heads: tuple[int, ...]) -> None:
    ax.set_xscale("log", base=2)
    ax.set(xlabel="heads H", xticks=heads, xticklabels=map(str, heads))
    ax.minorticks_off()


class HeadCount(st.Cell):
    """The runs of H heads of one kind: every draw of the heads from all its starts.

    `size` is (n, size of the start, flatness, d, start), `first` the runs of the first draw, `by`
    has the ends of the runs of each draw, `runs` those of all.
    """

    def some(self, name: str) -> int:
        return sum(getattr(end, name) > 0 for end in self.runs)

    def interval(self, name: str) -> tuple[float, float]:
        """95 %, by draws: runs of the same heads are not independent."""
        return st.resampled([np.mean([getattr(end, name) for end in of]) for of in self.by])

    def spoken(self, name: str) -> str:
        low, high = self.interval(name)
        return f"{self.mean('runs.' + name):.2f} (95 %: {low:.2f} to {high:.2f})"


def plain(p: Params) -> Case:
    return p.soft_n, p.size, p.flatness, p.d, p.start


def softmax(p: Params, progress: st.Progress) -> st.Report:
    """Every kind of heads for every number of them, then other sizes and forms."""

    def over(
        kinds: Any, heads: Any, sizes: Any, start: float | int, stop: float
    ) -> list[HeadCount]:
        axes = {"heads": kinds, "H": heads, "size": sizes, "draw": range(p.draws)}
        runs = iter(st.over_grid(simulated, p, axes, st.part(progress, start, stop)))
        cells = product(kinds, heads, sizes)
        return [_counted(*cell, [next(runs) for _ in range(p.draws)]) for cell in cells]

    counts = over(VALUES, p.soft_heads, [plain(p)], 0, 0.7)
    some = sorted({min(p.soft_heads), p.soft_heads[len(p.soft_heads) // 2]})
    others = over(VALUES[:1], some, p.varied, 0.7, 0.95)
    free = [end for c in (*counts, *others) if c.kind == VALUES[0] for end in c.runs]
    check = st.at_most(
        "hulls of heads",
        "arXiv 2305.05465, B24 for several heads with V_h = I: docs/mathematics.md E6",
        "the hull of the tokens y = e^{-t} x shrinks under averaged heads",
        max(end.growth for end in free),
        1e-6,  # a step of RK4 is not a convex combination
        runs=len(free),
    )
    told = st.columns("heads = kind, H")
    told |= {"n, size, flatness, d, start": lambda c: ", ".join(map(str, c.size))}
    told |= {"runs with one no vertex": lambda c: c.some("between")}
    told |= st.columns(
        "runs = len runs, limits = mean runs.limits, no vertex = mean runs.between, tokens heads "
        "disagree on = mean runs.disagree, rate fitted = mean runs.exponent, rate predicted = "
        "mean runs.predicted"
    )
    told |= {"values of f1*": lambda c: c.mean("runs.planes") if c.runs[0].planes else None}
    note = "Means over the runs; f1* is the leading dual eigenvector of the mean of the V_h."
    tables = {"Number of heads": counts, "Other sizes and forms": others}
    return st.report_of(
        p,
        _summary(p, counts),
        title="Number of heads: limits, clusters and rate of softmax heads",
        controls=_controls(p, counts, others),
        tables=[st.Table.of(name, of, told, note) for name, of in tables.items() if of],
        checks={"V_h = I": [check]},
        figures=[st.Picture("Against the number of heads", _RATES, _curves(p, counts))],
    )


def _counted(kind: str, h: int, size: Case, draws: list[cy.Trajectory]) -> HeadCount:
    ends = [[limits_of(batch.select(s)) for s in range(batch.values.shape[1])] for batch in draws]
    runs = [end for of in ends for end in of]
    return HeadCount(kind=kind, H=h, size=size, first=draws[0], by=ends, runs=runs)


_RATES = (
    "Means over the runs, with a 95 % interval by draws of the heads. Left: distinct limits "
    "(solid), of these no vertex of the hull of all (dotted). Middle: share of the tokens that "
    "some head pulls elsewhere than the others at the end. Right: the fitted exponent of the "
    "largest distance to the limit; crosses are the prediction, the smaller of l (1 - |l2|), l2 "
    "from the final attention, and the spectral gap of the mean of the V_h."
)


def _flow(
    p: Params, kind: str, h: int, flatness: float | int, draw: int, d: int
) -> cy.dynamics.HeadsFlow:
    """Random heads; the first ones do not depend on h."""
    rng = np.random.default_rng([p.seed, 1, draw])
    heads, values = [], []
    for _ in range(h):
        u = rng.standard_normal(d)
        u /= np.linalg.norm(u)
        heads.append(cy.Softmax(1.0, flatness * np.eye(d) + (1 - flatness) * np.outer(u, u)))
        G = rng.standard_normal((d, d))
        values.append(np.eye(d) + p.spread * (G + G.T) / 2)
    return cy.dynamics.HeadsFlow(cy.attention.Heads(heads, values if kind == VALUES[1] else None))


def _mean_value(flow: Any, d: int) -> np.ndarray:
    return np.eye(d) if flow.mean_value is None else flow.mean_value


def simulated(p: Params, kind: str, h: int, size: Case, draw: int) -> cy.Trajectory:
    """One draw of heads on its starts. Adaptive steps would crawl where heads compete."""
    n, side, flatness, d, start = size
    seeds = (p.seed + p.soft_starts * draw + s for s in range(p.soft_starts))
    z0 = side * np.stack([getattr(cy.configurations, start)(n, d, seed) for seed in seeds])
    times = np.linspace(0, p.time, 121)
    flow = _flow(p, kind, h, flatness, draw, d)
    return cy.simulate(flow, z0, times=times, stepper=cy.simulation.RK4(p.dt))


def _disagreement(flow: Any, z: np.ndarray, t: float, longest: float) -> float:
    """Share of the tokens that some head pulls elsewhere than the mean of all heads does."""
    heads = flow.attention.heads
    pulls = np.array([cy.Softmax(exp(2 * flow.leading * t) * h.beta, h.A).pull(z) for h in heads])
    apart = np.linalg.norm(pulls - pulls.mean(axis=0), axis=-1).max(axis=0)
    return float((apart > NEAR * longest).mean())


def limits_of(tr: cy.Trajectory) -> st.Cell:
    """The limits of one run and the rate at which it reached them."""
    flow: Any = tr.dynamics
    z, end = tr.values, float(tr.t[-1])
    longest = float(np.linalg.norm(z[0], axis=1).max())
    groups = cy.clusters(z[-1], tol=NEAR * longest)
    support = (z @ directions(z.shape[-1]).T).max(axis=1)
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
    return st.Cell(
        limits=groups.count,
        between=int((standing_out(groups.centres) <= NEAR * longest).sum()),  # no vertices of all
        disagree=_disagreement(flow, z[-1], end, longest),
        exponent=cy.spectra.rate(tr, limits, floor=1e3 * exp(-flow.leading * end)).exponent,
        predicted=predicted,  # from the final attention and the spectrum of the mean of the V_h
        growth=float(np.diff(support, axis=0).max()) / longest,  # of the hull, between two times
        planes=planes,  # values of the leading dual vector of that mean, if it is not I
    )


def _controls(p: Params, counts: list[HeadCount], others: list[HeadCount]) -> list[st.Comparison]:
    of = {(c.kind, c.H): c for c in counts}
    free, own = ([c for c in counts if c.kind == kind] for kind in VALUES)
    several = [c for c in free if c.H > 1] or free
    inside, apart = (
        {f"H = {c.H}": (c.some(name), len(c.runs)) for c in several}
        for name in ("between", "disagree")
    )
    one, many = of[VALUES[0], min(p.soft_heads)], of[VALUES[0], max(p.soft_heads)]
    rates = [end.exponent for c in (*free, *others) for end in c.runs]
    near = sum(bool(abs(x - 1) <= 0.02) for x in rates)
    fitted = [c.mean("runs.exponent") * np.sqrt(c.H) for c in own]
    gaps = [_gap(p, c.H) * np.sqrt(c.H) for c in own]
    means = [c.mean("runs.limits") for c in free]
    (low, high), (other_low, other_high) = one.interval("limits"), many.interval("limits")
    return [
        st.Comparison(
            "Every limit is a vertex of the hull of the limits, whatever the number of heads.",
            "the distance of each limit to the hull of the others",
            f"runs with a limit that is no vertex: {st.shares(inside)}",
            not any(some for some, _ in inside.values()),
        ),
        st.Comparison(
            "In the end all heads agree on whom to follow.",
            "the pull of each head at the end",
            f"runs in which some token is pulled to different places: {st.shares(apart)}",
            not any(some for some, _ in apart.values()),
        ),
        st.Comparison(
            "The number of limits falls (or grows) steadily with the number of heads.",
            f"all numbers of heads, {p.draws} draws of them",
            "; ".join(f"H = {c.H}: {c.spoken('limits')}" for c in free),
            means in (sorted(means), sorted(means, reverse=True))
            and (high < other_low or other_high < low),
        ),
        st.Comparison(
            "With V_h = I limits are reached at rate 1 within 2 %.",
            "n, size of the start, flatness of the A_h; circle, sphere, Gaussian starts; d = 3",
            f"{st.counted(near, len(rates))}; from {min(rates):.2f} to {max(rates):.2f}",
            st.wilson(near, len(rates))[0] > 0.95,
        ),
        *_elsewhere(others),
        st.Comparison(
            "With own V_h the rate falls as heads are added.",
            "the null model: the mean spectral gap of the mean of H random matrices, no attention",
            "rate times sqrt(H) beside gap times sqrt(H): "
            + "; ".join(f"H = {c.H}: {a:.2f}, {b:.2f}" for c, a, b in zip(own, fitted, gaps)),
            own[-1].interval("exponent")[1] < own[0].interval("exponent")[0],
        ),
    ]


def _elsewhere(others: list[HeadCount]) -> list[st.Comparison]:
    """Limits that are no vertex, from other starts and in other dimensions."""
    torn = {(c.size, c.H): c.some("between") for c in others}
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
        st.Comparison(
            "Limits that are no vertex come with several heads, from any start.",
            "n, size, flatness, dimension and start",
            f"runs with one, H = {alone} and {several}: {'; '.join(told)}",
            all((k == 0) == (h == alone) for (_, h), k in torn.items()),
        )
    ]


def _gap(p: Params, h: int) -> float:
    """The spectral gap of the mean of the V_h, the mean over the draws."""
    flows = [_flow(p, VALUES[1], h, p.flatness, draw, p.d) for draw in range(p.draws)]
    values = [np.linalg.eigvalsh(_mean_value(flow, p.d)) for flow in flows]
    return float(np.mean([lam[-1] - lam[-2] for lam in values]))


def _summary(p: Params, counts: list[HeadCount]) -> str:
    low, high = min(p.soft_heads), max(p.soft_heads)
    free = [c for c in counts if c.kind == VALUES[0]]
    alone, own = (next(c for c in counts if (c.kind, c.H) == (VALUES[1], h)) for h in (low, high))
    split = max(free, key=lambda c: c.mean("runs.disagree"))
    limits = [f"{c.spoken('limits')} for H = {c.H}" for c in free]
    return (
        f"{p.soft_n} tokens in R^{p.d}. V_h = I: the mean number of limits is {', '.join(limits)}. "
        f"Heads go on to pull {split.mean('runs.disagree'):.1%} of the tokens to other places with "
        f"H = {split.H}.\n\nOwn value matrices: the rate goes from {alone.spoken('exponent')} with "
        f"{low} to {own.spoken('exponent')} with {high} heads. The tokens take "
        f"{own.mean('runs.planes'):.2g} values of the leading dual vector at t = {p.time:g}."
    )


def _curves(p: Params, counts: list[HeadCount]) -> Any:
    figure, (axes,) = cy.plot.sheet(1, 3, 4.3, 3.8)
    said = {"limits": "distinct limits", "disagree": "tokens heads disagree on", "exponent": "rate"}
    further = {"limits": ("between", "no vertex", ":"), "exponent": ("predicted", "predicted", "")}
    for ax, (name, label) in zip(axes, said.items()):
        mean, ends = methodcaller("mean", f"runs.{name}"), methodcaller("interval", name)
        st.curves(ax, counts, "H", mean, "kind", ends=ends)
        if name in further:
            other, legend, style = further[name]
            look: dict[str, Any] = {"style": style, "marker": "x", "label": f"{{}}, {legend}"}
            look |= {"colours": (cy.plot.INK, cy.plot.GREY), "zorder": 3}
            st.curves(ax, counts, "H", methodcaller("mean", f"runs.{other}"), "kind", **look)
        by_heads(ax, p.soft_heads)
        ax.set(ylabel=label)
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure
