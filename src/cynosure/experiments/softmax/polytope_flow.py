"""V = I: rescaled tokens tend to a convex polytope, arXiv 2305.05465, Theorem 3.1.

With Q^T K positive definite the hull of z_i = e^(-t) x_i shrinks to a polytope K, and each token
tends to a point of the finite set S = {s in K : max over y in K of <As, y> = |s|_A^2}, usually a
vertex. See the paper's pictures (n = 40, uniform in [-5, 5]^d, in the plane and in space) with the
hull of each time shaded; how few tokens are left as vertices; and that the flow, although started
soft, ends at vertices as hardmax attention does, at fewer of them the smaller, hence softer, the
start.

Beside it: as many tokens of the start, drawn at random, are not all vertices of their hull, let
alone points of its S; hardmax layers do not feel the size of the start; and the number of limits is
counted at other tolerances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...analysis.polytope import minimal_points
from .._frame import Progress, over_grid, part, report_of, require

TITLE = "V = I: tokens gather at the vertices of a polytope"


@dataclass(frozen=True)
class Params:
    """The paper's start, uniform in [-side, side]^d; `sides` is the sweep from soft to hard."""

    n: int = 40
    d: tuple[int, ...] = (2, 3)
    side: float = 5.0
    time: float = 16.0
    show: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0)
    sides: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    starts: int = 10
    seed: int = 0


QUICK = Params(sides=(0.1, 1.0, 10.0), starts=2)


class PolytopeRun(NamedTuple):
    """Where the tokens of a run end: the limits, the limit of each token, their hull."""

    run: cy.Trajectory
    centres: np.ndarray
    labels: np.ndarray
    body: cy.Polytope
    at_zero: int  # limits at the origin
    away: float  # largest distance of a limit from S and 0, relative to the longest token

    @property
    def inner(self) -> int:
        """The number of limits that are no vertex."""
        return len(self.centres) - len(self.body.index)


class SizeCensus(NamedTuple):
    """All starts of one size."""

    d: int
    side: float
    limits: list[int]  # the number of limits of each start
    inner: int  # limits that are no vertex, in all
    at_zero: int  # limits at the origin, in all
    away: float  # largest of all
    finer: list[int]  # the number of limits at a tolerance of 1e-6
    hardmax: list[int]  # the number of limits of hardmax layers from the same tokens
    chance: list[float]  # per start: share of random draws of as many tokens that are all in S


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The paper's two runs, then the sweep over the size of the start."""
    require(set(p.d) <= {2, 3} and p.n >= 4 and p.starts >= 1, "d 2 or 3, n >= 4, starts >= 1", p)
    paper = {"d": p.d, "side": (p.side,), "seed": (p.seed,)}
    flows = over_grid(_flow, p, paper, part(progress, 0, 0.1))
    runs = {f"d = {d}": _limits(tr) for d, tr in zip(p.d, flows)}
    sizes = over_grid(_census, p, {"d": p.d, "side": p.sides}, part(progress, 0.1, 1))
    labelled = {name: (r.run, r.labels) for name, r in runs.items()}
    drawn = cy.plot.paths(labelled, p.show, lambda ax, name, z, t: cy.plot.shade(ax, cy.hull(z)))
    figures = (
        cy.Picture("Tokens and their hull", _PANELS, drawn),
        cy.Picture("Shrinking, arriving, counting", _CURVES, _curves(p, runs, sizes)),
    )
    checks = {name: cy.check(r.run, only=("B23", "B24")) for name, r in runs.items()}
    text, tables = _summary(p, runs, sizes), _tables(runs, sizes)
    controls = _controls(p, sizes)
    return report_of(
        __name__, p, text, controls=controls, tables=tables, checks=checks, figures=figures
    )


_PANELS = (
    "Rescaled tokens e^(-t) x_i(t), in the colour of the vertex they end at; grey: where they "
    "started; shaded: their hull, which only shrinks. At the end it is the limiting polytope."
)
_CURVES = (
    "Left: area or volume of the hull. Middle: largest distance of a token from its limit, beside "
    "a multiple of e^(-t), the rate of a token that follows one leader. Right: number of limits, "
    "mean and range; dotted: of hardmax layers from the same tokens."
)


def _flow(p: Params, d: int, side: float, seed: int) -> cy.Trajectory:
    z0 = side * cy.configurations.box(p.n, d, seed)
    times = np.linspace(0, p.time, int(20 * p.time) + 1)
    return cy.simulate(cy.RescaledFlow(), z0, times=times, stepper=cy.Adaptive(1e-10, 1e-12))


def _limits(tr: cy.Trajectory, tol: float = 1e-4) -> PolytopeRun:
    z = tr.values[-1]
    longest = float(np.linalg.norm(tr.values[0], axis=1).max())
    groups = cy.clusters(z, tol * longest)
    centres, body = groups.centres, cy.hull(groups.centres)
    targets = np.concatenate([minimal_points(body), np.zeros((1, z.shape[1]))])
    gaps = np.linalg.norm(centres[:, None] - targets, axis=2).min(axis=1)
    at_zero = int((np.linalg.norm(centres, axis=1) <= 1e-4 * longest).sum())
    return PolytopeRun(tr, centres, groups.labels, body, at_zero, float(gaps.max()) / longest)


def _census(p: Params, d: int, side: float) -> SizeCensus:
    flows = [_flow(p, d, side, p.seed + s) for s in range(p.starts)]
    ends = [_limits(tr) for tr in flows]
    layers = [cy.limit(cy.PureAttention(), tr.values[0]) for tr in flows]
    rng = np.random.default_rng([p.seed, d])
    return SizeCensus(
        d=d,
        side=side,
        limits=[len(e.centres) for e in ends],
        inner=sum(e.inner for e in ends),
        at_zero=sum(e.at_zero for e in ends),
        away=max(e.away for e in ends),
        finer=[len(_limits(tr, 1e-6).centres) for tr in flows],
        hardmax=[len(np.unique(li.points, axis=0)) for li in layers],
        chance=[_chance(rng, tr.values[0], len(e.centres)) for tr, e in zip(flows, ends)],
    )


def _chance(rng: np.random.Generator, z: np.ndarray, count: int, draws: int = 40) -> float:
    """How often `count` random tokens of z would pass for limits: all in the S of their hull.

    A vertex v is in S iff <v, y> <= |v|^2 for all y of the hull.
    """
    hits = 0
    for _ in range(draws):
        some = z[rng.choice(len(z), count, replace=False)]
        scores = some @ some.T
        hits += bool((scores <= np.diag(scores)[:, None]).all())
    return hits / draws


def _controls(p: Params, sizes: list[SizeCensus]) -> list[cy.Comparison]:
    """What random tokens, other tolerances and hardmax layers would show."""
    large = [c for c in sizes if np.mean(c.limits) > 2]
    runs = sum(len(c.chance) for c in large)
    expected = float(sum(sum(c.chance) for c in large))
    in_s = sum(len(c.limits) for c in large if c.away < 1e-4)
    small, big = min(p.sides), max(p.sides)
    ends = {side: [c for c in sizes if c.side == side] for side in (small, big)}

    def told(name: str, side: float) -> str:
        return "/".join(f"{np.mean(getattr(c, name)):.1f}" for c in ends[side])

    counted = "; ".join(
        f"{what}: {told(name, small)} at side {small:g}, {told(name, big)} at {big:g}"
        for what, name in (("1e-4", "limits"), ("1e-6", "finer"), ("hardmax layers", "hardmax"))
    )
    grows = all(
        np.mean(getattr(low, name)) < np.mean(getattr(high, name))
        for name in ("limits", "finer")
        for low, high in zip(ends[small], ends[big])
    )
    return [
        cy.Comparison(
            "Every limit lies in S.",
            "as many random tokens of the same start, and the S of their hull",
            f"all limits of {in_s} of {runs} runs with more than two limits lie in S; random "
            f"tokens would do so in {expected:.1f}",
            survives=in_s == runs and expected < 0.5 * runs,
        ),
        cy.Comparison(
            "Smaller starts end at fewer limits.",
            "the tolerance at which limits count as one, and hardmax layers, which do not feel "
            "the size",
            f"mean number of limits, d = {'/'.join(map(str, p.d))}, tolerance {counted}",
            survives=grows and all(c.hardmax == e.hardmax for c, e in zip(ends[small], ends[big])),
        ),
    ]


def _summary(p: Params, runs: dict[str, PolytopeRun], sizes: list[SizeCensus]) -> str:
    text = [
        f"{name}: {p.n} tokens end at {len(r.centres)} limits, of which "
        f"{len(r.body.index)} are vertices of the limiting polytope (the first hull has "
        f"{len(cy.hull(r.run.values[0]).index)}); S has {len(minimal_points(r.body))} points, and "
        f"every limit is within {r.away:.1g} of it, relative to the longest token."
        for name, r in runs.items()
    ]
    inner, zeros = sum(c.inner for c in sizes), sum(c.at_zero for c in sizes)
    ends = f"{inner} limits are no vertex, {zeros} of them 0" if inner else "limits are vertices"
    text.append(
        f"In {sum(len(c.limits) for c in sizes)} runs over starts of side {min(p.sides):g} to "
        f"{max(p.sides):g}, {ends}. Limits nearer to each other than 1e-4 of the longest token "
        "count as one: tokens never quite merge (B25), but come closer than any float can tell."
    )
    return "\n\n".join(text)


def _tables(runs: dict[str, PolytopeRun], sizes: list[SizeCensus]) -> list[cy.Table]:
    rows = []
    for name, r in runs.items():
        size = np.bincount(r.labels)
        for c in np.argsort(-size, kind="stable").tolist():
            s = r.centres[c]
            excess = float(abs((r.body.vertices @ s).max() - s @ s))
            rows.append((name, tuple(s.tolist()), int(size[c]), c in r.body.index, excess))
    limits = ("run", "limit", "tokens", "vertex", "max <s, y> - |s|²")
    zero = "The last column is 0 exactly when the limit lies in S."
    columns: dict[str, Any] = {
        "d": "d",
        "side": "side",
        "runs": lambda c: len(c.limits),
        "mean limits": lambda c: float(np.mean(c.limits)),
        "fewest": lambda c: min(c.limits),
        "most": lambda c: max(c.limits),
        "at tolerance 1e-6": lambda c: float(np.mean(c.finer)),
        "hardmax limits": lambda c: float(np.mean(c.hardmax)),
        "no vertex": "inner",
        "away from S": "away",
        "random tokens in S": lambda c: float(np.mean(c.chance)),
    }
    note = "`away from S`: largest distance of a limit from S and 0, relative to the longest token."
    sweep = cy.Table.of("Size of the start", sizes, columns, note)
    return [cy.Table("Limits", limits, tuple(rows), zero), sweep]


def _curves(p: Params, runs: dict[str, PolytopeRun], sizes: list[SizeCensus]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4, 3.5)
    left, middle, right = axes[0]
    for colour, (name, r) in zip(cy.plot.PALETTE, runs.items()):
        t, z = r.run.t, r.run.values
        size = np.array([cy.hull(tokens).volume for tokens in z[::4]])
        left.plot(t[::4], size / size[0], color=colour, label=name)
        # the limit itself: what the last stretch, at rate e^{-t}, still has to go
        last = z[-1] + (z[-1] - z[-2]) / np.expm1(t[-1] - t[-2])
        gap = np.linalg.norm(z - last, axis=2).max(axis=1)
        gap[gap < 1e-9 * gap[0]] = np.nan
        middle.plot(t, gap, color=colour, label=name)
    middle.plot(t, 0.2 * gap[0] * np.exp(-t), "--", color=cy.plot.INK, lw=1, label="$e^{-t}$")
    middle.set(yscale="log", xlabel="time t", ylabel="largest distance from the limit")
    left.set(xlabel="time t", ylabel="hull, share of the first", ylim=(0, 1.02))
    left.set_xlim(0, min(6.0, float(t[-1])))
    for colour, d in zip(cy.plot.PALETTE, p.d):
        counts = [c.limits for c in sizes if c.d == d]
        right.plot(p.sides, [np.mean(c) for c in counts], "o-", color=colour, label=f"d = {d}")
        low, high = [min(c) for c in counts], [max(c) for c in counts]
        right.fill_between(p.sides, low, high, color=colour, alpha=0.15, lw=0)
        hard = [np.mean(c.hardmax) for c in sizes if c.d == d]
        right.plot(p.sides, hard, ":", color=colour, label=f"d = {d}, hardmax")
    most = max(max(*c.limits, *c.hardmax) for c in sizes)  # the legend goes above
    right.set(xscale="log", xlabel="side of the start", ylabel="limits", ylim=(0, 1.45 * most))
    for ax, place in zip(axes.flat, ("best", "best", "upper left")):
        ax.legend(frameon=False, fontsize=cy.plot.LABEL, loc=place)
    return figure
