"""V = I: rescaled tokens tend to a convex polytope, arXiv 2305.05465, Theorem 3.1.

With Q^T K positive definite the hull of z_i = e^(-t) x_i shrinks to a polytope K, and each token
tends to a point of the finite set S = {s in K : max over y in K of <As, y> = |s|_A^2}, usually a
vertex. See the paper's pictures (n = 40, uniform in [-5, 5]^d, in the plane and in space) with the
hull of each time shaded; how few tokens are left as vertices; and that the flow, although started
soft, ends exactly as hardmax attention does. Smaller starts are softer: fewer vertices survive.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.polytope import Polytope, hull, minimal_points
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import RescaledFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress
from ._flow_panels import panels

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "V = I: tokens gather at the vertices of a polytope"


@final
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


class End(NamedTuple):
    """What a run ends in."""

    centres: np.ndarray
    labels: np.ndarray
    body: Polytope
    S: np.ndarray
    at_zero: int  # clusters at the origin
    away: float  # largest distance of a cluster from S and 0, relative to the longest token


def run(p: Params, progress: Progress | None = None) -> Report:
    """The paper's two runs, then the sweep over the size of the start."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if not set(p.d) <= {2, 3} or p.n < 4 or p.starts < 1:
        raise ValueError(f"polytope_flow: d is 2 or 3, n >= 4 and starts >= 1; got {p}")
    runs, ends, checks = {}, {}, {}
    for d in p.d:
        say(0.0, f"d = {d}")
        name = f"d = {d}"
        runs[name] = _flow(p, d, p.side, p.seed)
        ends[name] = _end(runs[name])
        checks[name] = tuple(check(runs[name], only=("B23", "B24")))
    sweep = _sweep(p, lambda share: say(0.1 + 0.6 * share, "size of the start"))
    say(0.7, "figures")

    def shaded(ax: Any, name: str, z: np.ndarray, t: float) -> None:
        from ...drawing.plot import shade

        shade(ax, hull(z))

    groups = {name: end.labels for name, end in ends.items()}
    figures = (
        Picture("Tokens and their hull", _PANELS, panels(runs, p.show, groups, shaded)),
        Picture("Shrinking, arriving, counting", _CURVES, _curves(runs, sweep)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, runs, ends, sweep),
        asdict(p),
        (_table(ends), _sweep_table(sweep)),
        checks,
        figures,
        command="cynosure run polytope_flow",
    )


_PANELS = (
    "Rescaled tokens e^(-t) x_i(t), in the colour of the vertex they end at; grey: where they "
    "started; shaded: their hull, which only shrinks. At the end it is the limiting polytope."
)
_CURVES = (
    "Left: area or volume of the hull, as a share of the first. Middle: largest distance of a "
    "token from its limit, beside e^(-t), the rate of a token that follows one leader. Right: "
    "number of limits for starts of several sizes, mean and range: softer starts lose vertices."
)


def _flow(p: Params, d: int, side: float, seed: int) -> Trajectory:
    z0 = side * configurations.box(p.n, d, seed)
    times = np.linspace(0, p.time, int(20 * p.time) + 1)
    return simulate(RescaledFlow(), z0, times=times, stepper=Adaptive(1e-10, 1e-12))


def _end(tr: Trajectory) -> End:
    z = tr.values[-1]
    longest = float(np.linalg.norm(tr.values[0], axis=1).max())
    found = clusters(z, 1e-4 * longest)
    body = hull(found.centres)
    S = minimal_points(body)
    targets = np.concatenate([S, np.zeros((1, z.shape[1]))])
    gaps = np.linalg.norm(found.centres[:, None] - targets, axis=2).min(axis=1)
    zero = int((np.linalg.norm(found.centres, axis=1) <= 1e-4 * longest).sum())
    return End(found.centres, found.labels, body, S, zero, float(gaps.max()) / longest)


def _sweep(p: Params, say: Any) -> dict[int, list[tuple[float, list[End]]]]:
    out: dict[int, list[tuple[float, list[End]]]] = {}
    todo = [(d, side) for d in p.d for side in p.sides]
    for done, (d, side) in enumerate(todo):
        found = [_end(_flow(p, d, side, p.seed + s)) for s in range(p.starts)]
        out.setdefault(d, []).append((side, found))
        say((done + 1) / len(todo))
    return out


def _summary(
    p: Params,
    runs: dict[str, Trajectory],
    ends: dict[str, End],
    sweep: dict[int, list[tuple[float, list[End]]]],
) -> str:
    text = []
    for name, end in ends.items():
        start = len(hull(runs[name].values[0]).index)
        text.append(
            f"{name}: {p.n} tokens end at {len(end.centres)} limits, of which "
            f"{len(end.body.index)} are vertices of the limiting polytope (the first hull has "
            f"{start}); S has {len(end.S)} points, and every limit is within {end.away:.1g} of it, "
            "relative to the longest token."
        )
    inner = sum(len(e.centres) - len(e.body.index) for s in sweep.values() for _, f in s for e in f)
    zeros = sum(e.at_zero for s in sweep.values() for _, f in s for e in f)
    count = sum(len(f) for s in sweep.values() for _, f in s)
    text.append(
        f"In {count} runs over starts of side {min(p.sides):g} to {max(p.sides):g}, "
        + (f"{inner} limits are no vertex, {zeros} of them 0." if inner else "limits are vertices.")
        + " Limits nearer to each other than 1e-4 of the longest token count as one: two tokens "
        "never quite merge (B25), but soft starts leave them closer than any float can tell."
    )
    return "\n\n".join(text)


def _table(ends: dict[str, End]) -> Table:
    rows = []
    for name, end in ends.items():
        vertices = set(end.body.index.tolist())
        size = np.bincount(end.labels)
        for c in np.argsort(-size, kind="stable").tolist():
            centre = end.centres[c]
            score = (end.body.vertices @ centre).max() - centre @ centre
            rows.append(
                (name, tuple(centre.tolist()), int(size[c]), c in vertices, float(abs(score)))
            )
    columns = ("run", "limit", "tokens", "vertex", "max <s, y> - |s|²")
    note = "The last column is 0 exactly when the limit lies in S."
    return Table("Limits", columns, tuple(rows), note)


def _sweep_table(sweep: dict[int, list[tuple[float, list[End]]]]) -> Table:
    rows = tuple(
        (
            d,
            side,
            len(found),
            float(np.mean([len(e.centres) for e in found])),
            min(len(e.centres) for e in found),
            max(len(e.centres) for e in found),
            sum(len(e.centres) - len(e.body.index) for e in found),
            max(e.away for e in found),
        )
        for d, line in sweep.items()
        for side, found in line
    )
    columns = ("d", "side", "runs", "mean limits", "fewest", "most", "no vertex", "away from S")
    note = "`away from S`: largest distance of a limit from S and 0, relative to the longest token."
    return Table("Size of the start", columns, rows, note)


def _curves(runs: dict[str, Trajectory], sweep: dict[int, list[tuple[float, list[End]]]]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, LABEL, PALETTE

    figure = Figure(figsize=(12, 3.5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for colour, (name, tr) in zip(PALETTE, runs.items()):
        t, z = tr.t, tr.values
        every = range(0, len(t), 4)
        size = np.array([hull(z[k]).volume for k in every])
        left.plot(t[::4], size / size[0], color=colour, label=name)
        # the limit itself: what the last stretch, at rate e^{-t}, still has to go
        last = z[-1] + (z[-1] - z[-2]) / np.expm1(t[-1] - t[-2])
        gap = np.linalg.norm(z - last, axis=2).max(axis=1)
        gap[gap < 1e-9 * gap[0]] = np.nan
        middle.plot(t, gap, color=colour, label=name)
    middle.plot(t, gap[0] * np.exp(-t), "--", color=INK, lw=1, label="$e^{-t}$")
    middle.set(yscale="log", xlabel="time t", ylabel="largest distance from the limit")
    left.set(xlabel="time t", ylabel="hull, share of the first", ylim=(0, 1.02))
    left.set_xlim(0, min(6.0, float(t[-1])))
    for colour, (d, line) in zip(PALETTE, sweep.items()):
        side = [s for s, _ in line]
        count = [[len(e.centres) for e in found] for _, found in line]
        right.plot(side, [np.mean(c) for c in count], "o-", color=colour, label=f"d = {d}")
        low, high = [min(c) for c in count], [max(c) for c in count]
        right.fill_between(side, low, high, color=colour, alpha=0.15, lw=0)
    right.set(xscale="log", xlabel="side of the start", ylabel="limits", ylim=(0, None))
    for ax in (left, middle, right):
        tidy(ax)
        ax.legend(frameon=False, fontsize=LABEL)
    return figure
