"""Runs of flows at several times: tokens and their paths in the plane, in space, on the sphere.

Several runs make several rows, so that they can be compared time by time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..simulation.trajectory import Trajectory
from .markers import View
from .style import GREY, LABEL, PALE, PALETTE, sheet

Decorate = Callable[[Any, str, np.ndarray, float], Any]  # (axes, run, tokens now, time)


def dots(ax: Any, z: np.ndarray, labels: np.ndarray, **how: Any) -> None:
    """A dot with a white rim per token of z (n, d), in the colour of its group."""
    ax.scatter(*z.T, c=_colours(labels), edgecolors="white", linewidths=0.4, **how)


def _colours(labels: np.ndarray) -> np.ndarray:
    return np.array(PALETTE)[labels % len(PALETTE)]


def paths(
    runs: Mapping[str, tuple[Trajectory, np.ndarray]],
    show: Sequence[float],
    decorate: Decorate | None = None,
    equal: bool = True,
) -> Figure:
    """One row per run (d = 2 or 3; a run and the group of each token), one column per time.

    A dot is a token in the colour of the group it ends in, a pale dot where it started, a line the
    way it came. Each row has one frame, so that motion is motion; `equal` scales its axes alike.
    """
    figure = Figure(figsize=(2.75 * len(show), 2.9 * len(runs)), layout="constrained")
    for row, (name, (run, labels)) in enumerate(runs.items()):
        at, view = [run.nearest(time) for time in show], View.of(run.values)
        z = view.x
        flat: dict[str, Any] = {"depthshade": False} if view.solid else {}
        for column, k in enumerate(at):
            place = (len(runs), len(show), row * len(show) + column + 1)
            ax: Any = figure.add_subplot(*place, projection="3d" if view.solid else None)
            view.frame(ax, z[: max(at) + 1], equal)  # before the decorations can stretch it
            for path, colour in zip(np.swapaxes(z[: k + 1], 0, 1), _colours(labels)):
                ax.plot(*path.T, color=colour, lw=0.6, alpha=0.55, zorder=2)
            start = {"s": 7, "color": GREY, "alpha": 0.45, "linewidths": 0, **flat}
            ax.scatter(*z[0].T, zorder=1, **start)
            dots(ax, z[k], labels, s=22, zorder=4, **flat)
            if decorate is not None:
                decorate(ax, name, run.values[k], float(run.t[k]))
            ax.set_title(f"t = {run.t[k]:g}", fontsize=LABEL, pad=-2 if view.solid else 4)
            view.name(ax, name if column == 0 else "", column == 0, row == len(runs) - 1)
    return figure


def globes(
    runs: Mapping[str, Trajectory],
    show: Sequence[float],
    draw: Callable[[Any, str, np.ndarray], None],
) -> Figure:
    """The sphere S^2 as discs, one row per run, one column per time.

    `draw(axes, name of the run, its tokens (n, 3))` puts the tokens on a disc.
    """
    figure, axes = sheet(len(runs), len(show), 2.25, 2.35)
    angle = np.linspace(0, 2 * np.pi, 200)
    for row, (name, tr) in zip(axes, runs.items()):
        for ax, time in zip(row, show):
            k = tr.nearest(time)
            ax.fill(np.cos(angle), np.sin(angle), color=PALE, alpha=0.4, lw=0, zorder=0)
            draw(ax, name, tr.values[k])
            ax.set_title(f"t = {tr.t[k]:.3g}", fontsize=LABEL)
            ax.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal", xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(name, fontsize=LABEL)
    return figure
