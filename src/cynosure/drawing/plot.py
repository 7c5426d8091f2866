"""Pictures of trajectories, sets C_i and polytopes: data and axes in, axes out.

Functions never open a window. Without `ax` a function makes a figure of its own, without pyplot
(`ax.figure.savefig("f.png")` writes it). Artists carry a gid ("leaders", "hull", ...) to find them
in an SVG. What stars, circles, fills and edges mean is said in `cynosure.drawing.markers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .._exports import guard
from .._types import definite
from ..analysis.limits import Limit
from ..analysis.polytope import hull
from ..simulation.trajectory import Trajectory
from .flow_panels import dots, globes, paths
from .markers import (
    Appearance,
    View,
    draw_tokens,
    evenly,
    legend,
    marker_size,
    new_axes,
    shade,
    write_words,
)
from .phase import phase
from .sets import attention_set, follow_graph, half_space
from .style import (
    GREY,
    INK,
    LABEL,
    PALE,
    PALETTE,
    SHADE,
    TICK,
    TITLE,
    legend_below,
    plain_log,
    sheet,
    tidy,
)

__all__ = [
    "GREY", "INK", "LABEL", "PALE", "PALETTE", "SHADE", "TICK", "TITLE", "View", "attention_set",
    "convergence", "dots", "figure2", "follow_graph", "globes", "half_space", "layers",
    "legend_below", "new_axes", "norms", "paths", "phase", "plain_log", "shade", "sheet", "tidy",
]  # fmt: skip

FIGURE2_SHOW = (0, 1, 2, 5, 30)
MOST_WORDS = 60  # tokens whose words are written
PANEL = 1.6  # inches, the side of a panel without its labels
FIGURE2_ROWS = (
    "triangular polytope",
    "emerging leader",
    "square polytope",
    "clusters without a leader",
)


# --- panels by layer -----------------------------------------------------------------------------


def layers(
    trajectory: Trajectory, show: Sequence[int | float] | None = None, fig: Figure | None = None
) -> Figure:
    """The tokens at some layers, one panel each: a row of Figure 2 of arXiv 2407.01602.

    `show` lists saved layers; None takes 0, 1, 2, 5, 30 as far as the run has them, and the last.
    The last panel shades the hull of the leaders, which at infinite depth is the limiting
    polytope K. All panels share their axes (not for tokens that grow without normalisation).

    A flow is shown at five of its saved times; its tokens, and those of softmax layers, have the
    colour of the cluster they end in and draw the way they came.
    """
    return _panels([trajectory], [_shown(trajectory, show)], [""], fig)


def figure2(
    trajectories: Sequence[Trajectory],
    show: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
) -> Figure:
    """Figure 2 of arXiv 2407.01602: one row per trajectory, one column per layer shown.

    As printed there, tokens of the plane draw the way they came, and the axes run through 0.
    `labels` name the rows; without them four trajectories get the captions of the paper's rows.
    """
    if len(trajectories) == 0:
        raise ValueError("figure2: no trajectory to draw; pass e.g. the four cases of the paper")
    if labels is None:
        count = len(trajectories)
        labels = FIGURE2_ROWS if count == 4 else [f"case {i + 1}" for i in range(count)]
    if len(labels) != len(trajectories):
        raise ValueError(f"labels: expected {len(trajectories)}, one per row; got {len(labels)}")
    chosen = [_shown(trajectory, show) for trajectory in trajectories]
    fig = Figure(figsize=(2.1 * max(map(len, chosen)) + 0.4, 2.15 * len(chosen) + 0.6))
    return _panels(trajectories, chosen, labels, fig, printed=True)


def _panels(
    trajectories: Sequence[Trajectory],
    chosen: Sequence[Sequence[int | float]],
    labels: Sequence[str],
    fig: Figure | None,
    printed: bool = False,
) -> Figure:
    """A grid of panels, row by row; a single row of tokens on a line is stacked instead."""
    views = [View.of(trajectory.tokens) for trajectory in trajectories]
    columns = max(map(len, chosen))
    stacked = len(views) == 1 and views[0].line
    grid = (columns, 1) if stacked else (len(views), columns)
    ours = fig is None
    if fig is None:
        # Fewer than three panels are as wide as their legend needs; its height is known below.
        fig = Figure(figsize=(6.4 if stacked else max(2.1 * columns, 4.4) + 0.4, 3.0))
    if fig.get_layout_engine() is None:
        fig.set_layout_engine("constrained" if stacked else "compressed")  # room for the legend
    kinds: set[str] = set()
    above: dict[int, Any] = {}  # the last panel of each column
    for row, (trajectory, view, label) in enumerate(zip(trajectories, views, labels)):
        appearance = Appearance.of(trajectory)
        for column, k in enumerate(chosen[row]):
            place = row * columns + column + 1
            ax = fig.add_subplot(*grid, place, projection="3d" if view.solid else None)
            last = k == chosen[row][-1]
            kinds |= _panel(ax, trajectory, view, appearance, k, last, printed)
            if row == 0 or len(set(map(tuple, chosen))) > 1:
                name = f"$t = {k:.3g}$" if trajectory.in_time else f"$k = {k}$"
                ax.set_title(name, fontsize=TITLE, loc="left" if stacked else "center")
            end = column == columns - 1 if stacked else row == len(views) - 1
            view.name(ax, label if column == 0 else "", left=column == 0, bottom=end)
            if not stacked and not view.solid and not trajectory.made_by.grows:
                ax.tick_params(labelleft=column == 0)  # all panels of a row share their axes
                if column in above and above[column].get_xlim() == ax.get_xlim():
                    above[column].tick_params(labelbottom=False)
                above[column] = ax
    lines = legend(fig, kinds, "leader" in kinds)
    if ours:
        panels = 0.7 * columns + 0.56 if stacked else 2.63 if columns > 2 else 2.9
        fig.set_figheight(panels + (0.17 if stacked else 0.22) * max(lines, 1 + stacked))
    return fig


def _panel(
    ax: Any,
    trajectory: Trajectory,
    view: View,
    appearance: Appearance,
    k: int | float,
    last: bool,
    printed: bool = False,
) -> set[str]:
    """The tokens of layer k in one panel; returns the kinds of markers drawn."""
    at = int(np.flatnonzero(trajectory.t == k)[0])
    x = view.x[at]
    # Without normalisation tokens grow like (1 + alpha)^k: shared axes would show a dot.
    grows = trajectory.made_by.grows
    view.frame(ax, x if grows else view.x)
    look, leaders = appearance.at(k), appearance.leaders(k)
    plane = not view.solid and not view.line
    if (appearance.roles is None or printed) and not grows and not view.line:
        colours = appearance.colour if appearance.roles is None else cycle([GREY])
        for way, colour in zip(np.swapaxes(view.x[: at + 1], 0, 1), colours):
            ax.plot(*way.T, color=colour, lw=0.6, alpha=0.5, zorder=1)
    if printed and plane:
        ax.axhline(0, color=GREY, lw=0.6, zorder=0.5)
        ax.axvline(0, color=GREY, lw=0.6, zorder=0.5)
    draw_tokens(ax, x, look, marker_size(len(x)))
    words = trajectory.words
    if words is not None and len(x) <= MOST_WORDS and plane:
        write_words(ax, x, [words[i] for i in appearance.real], PANEL, leaders)
    if last and len(leaders):
        shade(ax, hull(x[leaders]))
    return set(look.kind.tolist()) if appearance.roles is not None else {"end"}


def _shown(trajectory: Trajectory, show: Sequence[int | float] | None) -> Sequence[int | float]:
    """The layers (or times) to draw, each saved."""
    t = trajectory.t
    if show is None and trajectory.in_time:
        show = t[evenly(len(t), 5)].tolist()
    elif show is None:
        show = [k for k in FIGURE2_SHOW if k < t[-1] and k in t] + [t[-1]]
    if len(show) == 0:
        raise ValueError("show: no layer to draw; name at least one saved layer")
    for k in show:
        trajectory.at(k)  # says which layers were saved
    return [float(k) if trajectory.in_time else int(k) for k in show]


# --- curves by layer -----------------------------------------------------------------------------


def norms(trajectory: Trajectory, ax: Axes | None = None) -> Axes:
    """|z_i|_A = <A z_i, z_i>^(1/2) by layer: it never falls (arXiv 2407.01602). Leaders thick.

    Where A is not symmetric positive definite there is no A-norm, and |z_i| is drawn.
    """
    values = trajectory.tokens
    A = trajectory.made_by.score_matrix
    if A is not None and not definite(A):
        A = None
    root = np.eye(values.shape[-1]) if A is None else np.linalg.cholesky(A)
    appearance = Appearance.of(trajectory)
    ax = new_axes(ax)
    sizes = np.linalg.norm(values @ root, axis=-1)
    _token_lines(ax, trajectory.t, sizes, appearance)
    return _named(ax, "$|z_i|$" if A is None else "$|z_i|_A$", "lower right")  # norms rise


def convergence(trajectory: Trajectory, limit: Limit, ax: Axes | None = None) -> Axes:
    """|z_i^k - z_i^oo| by layer on a log scale, compared with the rate (1 + alpha)^(-k).

    A settled token whose leaders do not move any more converges exactly at that rate: its line is
    parallel to the dashed one. Distances within rounding of the tokens are left out.
    """
    values = trajectory.tokens
    appearance = Appearance.of(trajectory)
    if limit.points.shape != trajectory.z.shape[1:]:
        raise ValueError(
            f"limit: expected shape {tuple(trajectory.z.shape[1:])} as in the trajectory, got "
            f"{limit.points.shape}; take the limit of the same configuration"
        )
    alpha = trajectory.made_by.exact_alpha
    if alpha is None:
        raise ValueError(
            f"a rate needs layers with a step alpha; {type(trajectory.made_by).__name__} has none"
        )
    gaps = np.linalg.norm(values - limit.points[appearance.real], axis=-1)
    noise = 8 * float(np.finfo(trajectory.values.dtype).eps) * float(np.abs(values).max())
    gaps[gaps <= noise] = np.nan
    ax = new_axes(ax)
    ax.set_yscale("log", subs=())  # a tick for each power of ten
    _token_lines(ax, trajectory.t, gaps, appearance)
    largest = np.fmax.reduce(gaps, axis=1)
    ax.plot(trajectory.t, largest, color=INK, lw=1.8, gid="largest", label="largest")
    if np.isfinite(largest[0]):
        line = largest[0] * float(1 + alpha) ** -trajectory.t.astype(np.float64)
        line[line <= noise] = np.nan
        name = r"rate $(1+\alpha)^{-k}$"
        ax.plot(trajectory.t, line, "--", color=PALETTE[1], lw=1.3, gid="rate", label=name)
    return _named(ax, r"$|z_i^k - z_i^\infty|$", "upper right")


def _token_lines(ax: Any, t: np.ndarray, y: np.ndarray, appearance: Appearance) -> None:
    """One line per token, y (saved, n): followers thin and grey, leaders thick in their colour."""
    leaders = appearance.leaders(int(t[-1]))
    others = np.setdiff1d(np.arange(y.shape[1]), leaders)
    thin = LineCollection(
        [np.stack([t, y[:, j]], axis=1) for j in others], colors=GREY, linewidths=0.8, alpha=0.7
    )
    thin.set_gid("followers")
    ax.add_collection(thin)
    edge = appearance.at(int(t[-1])).edge
    for rank, j in enumerate(j for j in leaders if np.isfinite(y[:, j]).any()):
        label = "leaders" if rank == 0 else None
        ax.plot(t, y[:, j], color=edge[j], lw=2.2, gid="leaders", label=label)
    if len(others):
        ax.plot([], [], color=GREY, lw=0.8, label="other tokens")
    ax.autoscale_view()


def _named(ax: Any, name: str, corner: str) -> Axes:
    """Curves by layer with their names; the legend is in a corner that is empty."""
    tidy(ax).set(xlabel="layer $k$", ylabel=name)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.legend(frameon=False, fontsize=LABEL, loc=corner)
    return ax


guard(__name__)
