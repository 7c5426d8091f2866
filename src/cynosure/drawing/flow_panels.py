"""Runs of flows at several times: tokens and their paths in the plane, in space, on the sphere.

Several runs make several rows, so that they can be compared time by time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..simulation.trajectory import Trajectory
from .style import GREY, LABEL, PALE, PALETTE, TICK, sheet

__all__ = ["dots", "globes", "paths"]

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
        z, at = run.values, [run.nearest(time) for time in show]
        solid = z.shape[2] == 3
        flat: dict[str, Any] = {"depthshade": False} if solid else {}
        for column, k in enumerate(at):
            place = (len(runs), len(show), row * len(show) + column + 1)
            ax: Any = figure.add_subplot(*place, projection="3d" if solid else None)
            if solid:
                ax.computed_zorder = False  # what `zorder` says, not what is in front
            for path, colour in zip(np.swapaxes(z[: k + 1], 0, 1), _colours(labels)):
                ax.plot(*path.T, color=colour, lw=0.6, alpha=0.55, zorder=2)
            start = {"s": 7, "color": GREY, "alpha": 0.45, "linewidths": 0, **flat}
            ax.scatter(*z[0].T, zorder=1, **start)
            dots(ax, z[k], labels, s=22, zorder=4, **flat)
            if decorate is not None:
                decorate(ax, name, z[k], float(run.t[k]))
            _frame(ax, z[: max(at) + 1], equal)
            ax.set_title(f"t = {run.t[k]:g}", fontsize=LABEL, pad=-2 if solid else 4)
            if column == 0 and solid:  # axes in space have no label on the left
                look = {"rotation": 90, "va": "center", "ha": "center", "fontsize": LABEL}
                ax.text2D(-0.12, 0.5, name, transform=ax.transAxes, **look)
            elif column == 0:
                ax.set_ylabel(name, fontsize=LABEL)
    return figure


def _frame(ax: Any, z: np.ndarray, equal: bool) -> None:
    """Limits around every token of z (saved, n, d), before the decorations can stretch them."""
    low, high = z.min(axis=(0, 1)), z.max(axis=(0, 1))
    half = 0.56 * (high - low)
    if equal:
        half[:] = half.max()
    solid = z.shape[-1] == 3
    for axis, centre, reach in zip("xyz", (low + high) / 2, half):
        getattr(ax, f"set_{axis}lim")(centre - reach, centre + reach)
        getattr(ax, f"{axis}axis").set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    small = {"labelsize": TICK - 0.5, "color": GREY, "length": 2.5}
    ax.tick_params(pad=-3 if solid else 2, **small)
    if solid:
        ax.tick_params(axis="z", pad=1)
        ax.set_box_aspect((1, 1, 1), zoom=0.88)
        for j, axis in enumerate("xyz", start=1):
            pad = -3 if axis == "z" else -9  # the numbers along z are on the side of its name
            getattr(ax, f"set_{axis}label")(f"$z_{j}$", fontsize=TICK, labelpad=pad)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.set_pane_color((0.97, 0.97, 0.97, 1.0))
    else:
        ax.spines[:].set_color(PALE)
        if equal:
            ax.set_aspect("equal")
        ax.plot([0], [0], "+", color=GREY, ms=6, mew=0.8, zorder=1)


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
