"""V = -I: every token tends to 0, and attention to the uniform matrix (arXiv 2305.05465).

With Q^T K = I the norms stay below max(|x_i(0)|, sqrt(2n)) and all tokens collapse to the origin.
See two regimes. First the mean dies, like e^(-t). Then weights are all but equal, and tokens feel
only the next order of the softmax, x_i' = -C x_i with C their covariance: C' = -2 C^2, so each
eigenvalue of C tends to 1/(2t), and tokens shrink like t^(-1/2), without changing their pattern.
What is left of the mean is driven by the order after that, five factors of x: it falls like
t^(-5/2).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ...analysis.spectra import attention_matrix
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import EuclideanFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress
from ._flow_panels import nearest

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "V = -I: collapse to the origin"


@final
@dataclass(frozen=True)
class Params:
    """Starts uniform in [-side, side]^d, followed to a long time at geometric steps."""

    n: int = 40
    d: tuple[int, ...] = (1, 2, 3)
    side: float = 2.0
    time: float = 1e5
    saved: int = 240
    show: tuple[float, ...] = (0.0, 0.3, 1.0, 10.0, 1000.0)
    seed: int = 0


QUICK = Params(d=(2,), time=1e4, saved=120)


def run(p: Params, progress: Progress | None = None) -> Report:
    """One run per dimension."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.n < 2 or p.saved < 10 or not p.time > 100:
        raise ValueError(f"repulsion: n >= 2, saved >= 10 and time > 100; got {p}")
    runs, checks = {}, {}
    times = np.concatenate([[0.0], np.geomspace(1e-2, p.time, p.saved)])
    for done, d in enumerate(p.d):
        name = f"d = {d}"
        say(0.7 * done / len(p.d), name)
        z0 = p.side * configurations.box(p.n, d, p.seed)
        stepper = Adaptive(1e-9, 1e-13, "LSODA")  # near rest for most of the time: implicit steps
        runs[name] = simulate(EuclideanFlow(V=-np.eye(d)), z0, times=times, stepper=stepper)
        checks[name] = tuple(check(runs[name], only=("B28",)))
    say(0.7, "figures")
    figures = [Picture("Decay", _DECAY, _curves(runs))]
    if "d = 2" in runs:
        figures.insert(0, Picture("Tokens in the plane", _PANELS, _plane(p, runs["d = 2"])))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(runs),
        asdict(p),
        (_table(p, runs),),
        checks,
        tuple(figures),
        command="cynosure run repulsion",
    )


_PANELS = "Tokens x_i(t); each panel has its own scale, which shrinks. The mean reaches 0 first."
_DECAY = (
    "Left: longest token, beside t^(-1/2). Middle: length of the mean, which dies like e^(-t), "
    "then like t^(-5/2). Right: eigenvalues of the covariance times 2t, which tend to 1, and the "
    "largest distance of a weight from 1/n, times n."
)


def _spread(x: np.ndarray) -> np.ndarray:
    """Eigenvalues of the covariance, (times, d)."""
    away = x - x.mean(axis=1, keepdims=True)
    return np.linalg.eigvalsh(np.einsum("tni,tnj->tij", away, away) / x.shape[1])


def _uneven(tr: Trajectory, k: int) -> float:
    """max_ij |n P_ij - 1| at a saved time."""
    assert tr.dynamics is not None
    P = attention_matrix(tr.dynamics, tr.values[k], float(tr.t[k]))
    return float(np.abs(len(P) * P - 1).max())


def _exponent(tr: Trajectory) -> float:
    """The fitted power of t in the longest token, over the last two decades."""
    late = tr.t >= tr.t[-1] / 100
    longest = np.linalg.norm(tr.values[late], axis=2).max(axis=1)
    return float(np.polyfit(np.log(tr.t[late]), np.log(longest), 1)[0])


def _summary(runs: dict[str, Trajectory]) -> str:
    return " ".join(
        f"{name}: from {np.linalg.norm(tr.values[0], axis=1).max():.3g} the longest token falls "
        f"to {np.linalg.norm(tr.values[-1], axis=1).max():.3g} at t = {tr.t[-1]:g}, like "
        f"t^({_exponent(tr):.4f}) at the end (expected: -1/2); the covariance times 2t has "
        f"eigenvalues within {np.abs(2 * tr.t[-1] * _spread(tr.values[-1:]) - 1).max():.2g} of 1, "
        f"and weights are within {_uneven(tr, -1):.1g}/n of 1/n."
        for name, tr in runs.items()
    )


def _table(p: Params, runs: dict[str, Trajectory]) -> Table:
    rows = []
    for name, tr in runs.items():
        for t in (*p.show, p.time):
            k = nearest(tr, t)
            x = tr.values[k]
            rows.append(
                (
                    name,
                    float(tr.t[k]),
                    float(np.linalg.norm(x, axis=1).max()),
                    float(np.linalg.norm(x.mean(axis=0))),
                    tuple((2 * float(tr.t[k]) * _spread(tr.values[k][None])[0]).tolist()),
                    _uneven(tr, k),
                )
            )
    columns = ("run", "t", "longest token", "mean", "2t x covariance", "max |n P_ij - 1|")
    return Table("Collapse", columns, tuple(rows))


def _plane(p: Params, tr: Trajectory) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from ...drawing.plot import GREY, LABEL, PALETTE

    figure = Figure(figsize=(2.6 * len(p.show), 2.8), layout="constrained")
    for ax, t in zip(figure.subplots(1, len(p.show)), p.show):
        k = nearest(tr, t)
        x = tr.values[k]
        ax.scatter(*x.T, s=20, color=PALETTE[0], edgecolors="white", linewidths=0.4, zorder=3)
        ax.plot(*x.mean(axis=0), "x", color=PALETTE[1], zorder=4)
        ax.plot([0], [0], "+", color=GREY)
        reach = 1.15 * float(np.abs(x).max())
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
        ax.set_title(f"t = {tr.t[k]:.3g}", fontsize=LABEL)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(4))
        tidy(ax).set_aspect("equal")
    return figure


def _curves(runs: dict[str, Trajectory]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, LABEL, PALETTE

    figure = Figure(figsize=(12, 3.5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for colour, (name, tr) in zip(PALETTE, runs.items()):
        t, x = tr.t[1:], tr.values[1:]
        left.plot(t, np.linalg.norm(x, axis=2).max(axis=1), color=colour, label=name)
        middle.plot(t, np.linalg.norm(x.mean(axis=1), axis=1), color=colour, label=name)
        for j, line in enumerate((2 * t[:, None] * _spread(x)).T):
            right.plot(t, line, color=colour, label=f"{name}: 2t cov" if j == 0 else None)
        uneven = [_uneven(tr, k) for k in range(1, len(tr.t))]
        right.plot(t, uneven, ":", color=colour, label=f"{name}: |nP - 1|")
    left.plot(t, t**-0.5, "--", color=INK, lw=1, label="$t^{-1/2}$")
    late = t[t >= 10]
    mean = np.linalg.norm(x.mean(axis=1), axis=1)[t >= 10]
    middle.plot(late, mean[0] * (late / late[0]) ** -2.5, "--", color=INK, lw=1, label="$t^{-5/2}$")
    left.set_ylabel("longest token")
    middle.set_ylabel("length of the mean")
    for ax in (left, middle, right):
        ax.set(xscale="log", yscale="log", xlabel="time t")
        tidy(ax)
    right.set_ylim(1e-3, 3e3)
    for ax in (left, middle, right):
        ax.legend(frameon=False, fontsize=LABEL - 1, ncols=2 if ax is right else 1)
    return figure
