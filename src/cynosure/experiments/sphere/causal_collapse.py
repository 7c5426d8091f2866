"""Causal attention: every token tends to the first one, arXiv 2411.04990.

On the sphere with V = I token k looks only at tokens 1..k. The first one never moves, and from
almost every start all others tend to it (docs/mathematics.md B34), later tokens later; large beta
holds them up in clusters of their own on the way. See the tokens on S^2 end at x_1, the cosines to
x_1 over time, and how long the k-th token takes, for several beta. In dimension 1 the statement is
false: the sphere is two points, and a token opposite to the first never moves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ...attention import Causal, Softmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import SphereFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import RK4, Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress
from ..softmax._flow_panels import nearest

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Causal attention: collapse to the first token"


@final
@dataclass(frozen=True)
class Params:
    """n tokens uniform on the sphere of R^d; `starts` such starts for the arrival times."""

    n: int = 24
    d: int = 3
    beta: tuple[float, ...] = (0.0, 2.0, 4.0)
    time: float = 300.0
    saved: int = 300
    show: tuple[float, ...] = (0.0, 2.0, 5.0, 10.0, 300.0)
    met: float = 1e-2
    starts: int = 20
    seed: int = 0


QUICK = Params(beta=(0.0, 2.0), time=100.0, saved=120, show=(0.0, 2.0, 10.0, 100.0), starts=3)


def run(p: Params, progress: Progress | None = None) -> Report:
    """One start per beta in detail, many for the arrival times, and the line."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.d < 2 or p.n < 2 or p.starts < 1 or not p.time > 1:
        raise ValueError(f"causal_collapse: d, n >= 2, starts >= 1 and time > 1; got {p}")
    times = np.concatenate([[0.0], np.geomspace(1e-2, p.time, p.saved)])
    z0 = configurations.sphere(p.n, p.d, p.seed)
    runs, checks = {}, {}
    for done, beta in enumerate(p.beta):
        name = f"beta = {beta:g}"
        say(0.3 * done / len(p.beta), name)
        runs[name] = simulate(_flow(beta), z0, times=times, stepper=Adaptive(1e-9, 1e-11, "LSODA"))
        checks[name] = tuple(check(runs[name], only=("B34",)))
    arrivals = {}
    for done, beta in enumerate(p.beta):
        say(0.3 + 0.4 * done / len(p.beta), f"arrivals, beta = {beta:g}")
        arrivals[f"beta = {beta:g}"] = _arrivals(p, beta, times)
    say(0.7, "figures")
    figures = [Picture("Cosine to the first token", _COSINES, _curves(p, runs, arrivals))]
    if p.d == 3:
        figures.insert(0, Picture("Tokens on the sphere", _SPHERES, _spheres(p, runs)))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, runs, arrivals),
        asdict(p),
        (_table(p, runs), _arrival_table(arrivals), _line()),
        checks,
        tuple(figures),
        command="cynosure run causal_collapse",
    )


_SPHERES = (
    "Uniform tokens on S^2, seen from above the first one (black cross, in the middle): dark ones "
    "come early in the sequence, light ones late; the far side is small. All end at the cross."
)
_COSINES = (
    "Left: 1 - <x_k, x_1> for the largest beta, dark lines for early tokens. Right: median time at "
    "which the k-th token is within `met` of x_1, over random starts."
)


def _flow(beta: float) -> SphereFlow:
    return SphereFlow(Causal(Softmax(beta)))


def _gap(x: np.ndarray) -> np.ndarray:
    """1 - <x_k, x_1> from distances, which do not cancel; (..., n)."""
    return np.sum((x - x[..., :1, :]) ** 2, axis=-1) / 2


def _arrivals(p: Params, beta: float, times: np.ndarray) -> np.ndarray:
    """(starts, n): the first saved time from which a token stays near x_1; inf if it does not."""
    z0 = np.stack([configurations.sphere(p.n, p.d, p.seed + s) for s in range(p.starts)])
    tr = simulate(_flow(beta), z0, times=times, stepper=RK4(0.2))
    far = _gap(tr.values) > p.met  # (times, starts, n)
    last = len(times) - np.argmax(far[::-1], axis=0)  # one past the last time it was far
    last[~far.any(axis=0)] = 0
    return np.append(times, np.inf)[last]


def _summary(p: Params, runs: dict[str, Trajectory], arrivals: dict[str, np.ndarray]) -> str:
    text = []
    for name, tr in runs.items():
        gap = _gap(tr.values[-1])
        moved = float(np.abs(tr.values[:, 0] - tr.values[0, 0]).max())
        there = arrivals[name]
        text.append(
            f"{name}: at t = {tr.t[-1]:g} every token is within 1 - cos = {gap.max():.2g} of the "
            f"first, which moved by {moved:.1g}; over {len(there)} starts "
            f"{np.isfinite(there).mean():.1%} of the tokens have arrived (1 - cos <= {p.met:g})."
        )
    return " ".join(text)


def _table(p: Params, runs: dict[str, Trajectory]) -> Table:
    rows = []
    for name, tr in runs.items():
        for t in p.show:
            gap = _gap(tr.values[nearest(tr, t)])[1:]
            rows.append(
                (
                    name,
                    float(tr.t[nearest(tr, t)]),
                    float(gap.max()),
                    float(np.median(gap)),
                    int((gap <= p.met).sum()) + 1,
                )
            )
    columns = ("run", "t", "largest 1 - cos", "median 1 - cos", "arrived")
    return Table("Distance from the first token", columns, tuple(rows))


def _arrival_table(arrivals: dict[str, np.ndarray]) -> Table:
    n = next(iter(arrivals.values())).shape[1]
    rows = tuple(
        (k + 1, *(_finite(float(np.median(there[:, k]))) for there in arrivals.values()))
        for k in range(1, n)
    )
    return Table("Median arrival of the k-th token", ("k", *arrivals), rows)


def _finite(t: float) -> float | None:
    return t if np.isfinite(t) else None


def _line() -> Table:
    """d = 1, where the statement is false: nothing ever moves."""
    z0 = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    tr = simulate(_flow(1.0), z0, time=100.0)
    rows = tuple((k + 1, float(z0[k, 0]), float(tr.values[-1, k, 0])) for k in range(len(z0)))
    note = "Tangent velocities vanish on a sphere of two points."
    return Table("Dimension 1", ("token", "start", "at t = 100"), rows, note)


def _spheres(p: Params, runs: dict[str, Trajectory]) -> Any:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, LABEL

    figure = Figure(figsize=(2.3 * len(p.show), 2.4 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), len(p.show), squeeze=False)
    colours = colormaps["viridis"](np.linspace(0, 0.92, p.n))
    angle = np.linspace(0, 2 * np.pi, 200)
    for line, (name, tr) in zip(axes, runs.items()):
        # a basis whose third vector is x_1: we look down on it
        basis = np.linalg.qr(np.column_stack([tr.values[0, 0], np.eye(3)[:, :2]]))[0]
        basis = np.column_stack([basis[:, 1], basis[:, 2], tr.values[0, 0]])
        for ax, t in zip(line, p.show):
            k = nearest(tr, t)
            x = tr.values[k] @ basis
            ax.fill(np.cos(angle), np.sin(angle), color="#F2F2F2", zorder=0)
            size = np.where(x[:, 2] >= 0, 24, 7)
            ax.scatter(*x[:, :2].T, s=size, c=colours, linewidths=0, zorder=2)
            ax.plot([0], [0], "+", color=INK, ms=9, zorder=3)
            ax.set_title(f"t = {tr.t[k]:.3g}", fontsize=LABEL)
            ax.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal", xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(name, fontsize=LABEL)
    return figure


def _curves(p: Params, runs: dict[str, Trajectory], arrivals: dict[str, np.ndarray]) -> Any:
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

    from ...drawing.plot import LABEL, PALETTE

    figure = Figure(figsize=(11, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    name, tr = list(runs.items())[-1]
    colours = colormaps["viridis"](np.linspace(0, 0.92, p.n))
    gap = _gap(tr.values)
    for k in range(1, p.n):
        left.plot(tr.t[1:], np.where(gap[1:, k] > 1e-16, gap[1:, k], np.nan), color=colours[k])
    left.set(xscale="log", yscale="log", xlabel="time t", ylim=(1e-14, 5))
    left.set_ylabel(r"$1 - \langle x_k, x_1 \rangle$")
    left.set_title(name, loc="left", fontsize=LABEL)
    for colour, (label, there) in zip(PALETTE, arrivals.items()):
        middle = np.median(there, axis=0)[1:]
        right.plot(1 + np.arange(1, p.n), middle, "o-", ms=3.5, color=colour, label=label)
    right.set(yscale="log", xlabel="token k", ylabel="median arrival")
    right.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.yaxis.set_minor_locator(NullLocator())
    right.legend(frameon=False, fontsize=LABEL)
    tidy(left)
    tidy(right)
    return figure
