"""Pictures that several flow experiments share: tokens at several times with the paths behind them.

Shared by the experiments on arXiv 2305.05465 (`polytope_flow`, `hyperplanes`, `codimension`,
`hyperplane_polytope`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...simulation.trajectory import Trajectory

__all__ = ["nearest", "panels"]

Decorate = Callable[[Any, str, np.ndarray, float], Any]  # (axes, run, tokens now, time)


def nearest(trajectory: Trajectory, t: float) -> int:
    """The number of the saved time next to t."""
    return int(np.abs(np.asarray(trajectory.t, dtype=float) - t).argmin())


def panels(
    runs: Mapping[str, Trajectory],
    show: Sequence[float],
    groups: Mapping[str, np.ndarray],
    decorate: Decorate | None = None,
    equal: bool = True,
) -> Any:
    """One row per run (d = 2 or 3), one column per time.

    A dot is a token in the colour of the group it ends in, a pale dot where it started, a line the
    way it came. Each row keeps one frame, so that motion is motion; `equal` scales its axes alike.
    """
    from matplotlib.figure import Figure

    from ...drawing.plot import GREY, LABEL, PALETTE

    figure = Figure(figsize=(2.75 * len(show), 2.9 * len(runs)), layout="constrained")
    for row, (name, run) in enumerate(runs.items()):
        z, t = run.values, np.asarray(run.t, dtype=float)
        at = [nearest(run, time) for time in show]
        colours = np.array(PALETTE)[groups[name] % len(PALETTE)]
        solid = z.shape[2] == 3
        for column, k in enumerate(at):
            place = row * len(show) + column + 1
            ax: Any = figure.add_subplot(
                len(runs), len(show), place, projection="3d" if solid else None
            )
            if solid:
                ax.computed_zorder = False  # what `zorder` says, not what is in front
            for i in range(z.shape[1]):
                ax.plot(*z[: k + 1, i].T, color=colours[i], lw=0.6, alpha=0.55, zorder=2)
            flat: dict[str, Any] = {"depthshade": False} if solid else {}
            ax.scatter(*z[0].T, s=7, color=GREY, alpha=0.45, zorder=1, linewidths=0, **flat)
            dots = {"s": 22, "c": colours, "edgecolors": "white", "linewidths": 0.4}
            ax.scatter(*z[k].T, zorder=4, **dots, **flat)
            if decorate is not None:
                decorate(ax, name, z[k], float(t[k]))
            _frame(ax, z[: max(at) + 1], equal)
            ax.set_title(f"t = {t[k]:g}", fontsize=LABEL, pad=-2 if solid else 4)
            if column == 0 and solid:
                ax.text2D(
                    -0.12, 0.5, name, transform=ax.transAxes, rotation=90, va="center",
                    ha="center", fontsize=LABEL,
                )  # fmt: skip
            elif column == 0:
                ax.set_ylabel(name, fontsize=LABEL)
    return figure


def _frame(ax: Any, z: np.ndarray, equal: bool) -> None:
    """Limits around every token of z (saved, n, d), before the decorations can stretch them."""
    from matplotlib.ticker import MaxNLocator

    from ...drawing.plot import GREY, PALE, TICK

    rows = z.reshape(-1, z.shape[-1])
    low, high = rows.min(axis=0), rows.max(axis=0)
    half = 0.56 * (high - low)
    if equal:
        half[:] = half.max()
    middle = (low + high) / 2
    solid = z.shape[-1] == 3
    for axis, centre, reach in zip("xyz" if solid else "xy", middle, half):
        getattr(ax, f"set_{axis}lim")(centre - reach, centre + reach)
        getattr(ax, f"{axis}axis").set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    ax.tick_params(labelsize=TICK - 0.5, color=GREY, length=2.5, pad=-3 if solid else 2)
    if solid:
        ax.tick_params(axis="z", pad=1)
        ax.set_box_aspect((1, 1, 1), zoom=0.92)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.set_pane_color((0.97, 0.97, 0.97, 1.0))
    else:
        ax.spines[:].set_color(PALE)
        if equal:
            ax.set_aspect("equal")
        ax.plot([0], [0], "+", color=GREY, ms=6, mew=0.8, zorder=1)
