"""Pictures of trajectories, sets C_i and polytopes: data and axes in, axes out.

A leaf: nothing below imports it, it draws what others computed and never shows a window. Without
`ax` a function makes a figure of its own (`ax.figure.savefig("f.png")` writes it); pyplot and its
global state stay out. Artists carry a gid ("leaders", "followers", "hull", ...): in an SVG they
can be found by it.

What stars, circles, fills and edges mean is said in `cynosure.drawing.markers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .._types import Array, as_tokens, definite
from ..analysis.limits import Limit
from ..analysis.polytope import Polytope, hull
from ..simulation.trajectory import Trajectory
from .flow_panels import dots, globes, paths
from .markers import (
    Appearance,
    Look,
    View,
    draw_tokens,
    legend,
    marker_size,
    new_axes,
    real_tokens,
    shade,
)
from .sets import attention_set, follow_graph, half_space, scatter
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
    means,
    plain_log,
    sheet,
    tidy,
)

__all__ = [
    "GREY",
    "INK",
    "LABEL",
    "PALE",
    "PALETTE",
    "SHADE",
    "TICK",
    "TITLE",
    "Appearance",
    "Look",
    "View",
    "attention_set",
    "convergence",
    "dots",
    "draw_tokens",
    "figure2",
    "follow_graph",
    "globes",
    "growth",
    "half_space",
    "hull_area",
    "layers",
    "legend",
    "legend_below",
    "marker_size",
    "means",
    "new_axes",
    "norms",
    "paths",
    "plain_log",
    "polytope",
    "real_tokens",
    "shade",
    "sheet",
    "tidy",
]

FIGURE2_SHOW = (0, 1, 2, 5, 30)
FIGURE2_ROWS = (
    "triangular polytope",
    "emerging leader",
    "square polytope",
    "clusters without a leader",
)


# --- panels by layer -----------------------------------------------------------------------------


def layers(
    trajectory: Trajectory,
    show: Sequence[int | float] | None = None,
    fig: Figure | None = None,
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
    return _panels(trajectories, chosen, labels, fig)


def _panels(
    trajectories: Sequence[Trajectory],
    chosen: Sequence[Sequence[int | float]],
    labels: Sequence[str],
    fig: Figure | None,
) -> Figure:
    """A grid of panels, row by row; a single row of tokens on a line is stacked instead."""
    views = [View.of(real_tokens(trajectory)) for trajectory in trajectories]
    columns = max(map(len, chosen))
    stacked = len(views) == 1 and views[0].line
    grid = (columns, 1) if stacked else (len(views), columns)
    if fig is None:
        size = (6.4, 0.7 * columns + 0.9) if stacked else (2.1 * columns + 0.4, 2.85)
        fig = Figure(figsize=size)
    if fig.get_layout_engine() is None:
        fig.set_layout_engine("constrained")  # makes room for the legend
    kinds: set[str] = set()
    for row, (trajectory, view, label) in enumerate(zip(trajectories, views, labels)):
        appearance = Appearance.of(trajectory)
        for column, k in enumerate(chosen[row]):
            ax = fig.add_subplot(
                *grid,
                row * columns + column + 1,
                projection="3d" if view.solid else None,
            )
            kinds |= _panel(ax, trajectory, view, appearance, k, k == chosen[row][-1])
            if row == 0 or len(set(map(tuple, chosen))) > 1:
                name = f"$t = {k:.3g}$" if trajectory.in_time else f"$k = {k}$"
                ax.set_title(name, fontsize=TITLE, loc="left" if stacked else "center")
            end = column == columns - 1 if stacked else row == len(views) - 1
            view.name(ax, label if column == 0 else "", left=column == 0, bottom=end)
    legend(fig, kinds, "leader" in kinds)
    return fig


def _panel(
    ax: Any, trajectory: Trajectory, view: View, appearance: Appearance, k: int | float, last: bool
) -> set[str]:
    """The tokens of layer k in one panel; returns the kinds of markers drawn."""
    at = _saved(trajectory, k)
    x = view.x[at]
    # Without normalisation tokens grow like (1 + alpha)^k: shared axes would show a dot.
    grows = trajectory.made_by.grows
    view.frame(ax, x if grows else view.x)
    look = appearance.at(k)
    if appearance.roles is None and not grows and not view.line:
        for way, colour in zip(np.swapaxes(view.x[: at + 1], 0, 1), appearance.colour):
            ax.plot(*way.T, color=colour, lw=0.6, alpha=0.5, zorder=1)
    draw_tokens(ax, x, look, marker_size(len(x)))
    leaders = appearance.leaders(k)
    if last and len(leaders):
        shade(ax, hull(x[leaders]))
    return set(look.kind.tolist()) if appearance.roles is not None else {"end"}


def _shown(trajectory: Trajectory, show: Sequence[int | float] | None) -> Sequence[int | float]:
    """The layers (or times) to draw, each saved."""
    if trajectory.in_time:
        t = trajectory.t
        some = t[np.unique(np.linspace(0, len(t) - 1, 5).round().astype(int))]
        return [float(k) for k in (some if show is None else show) if trajectory.at(k) is not None]
    if show is None:
        last = int(trajectory.t[-1])
        return [k for k in FIGURE2_SHOW if k < last and k in trajectory.t] + [last]
    if len(show) == 0:
        raise ValueError("show: no layer to draw; name at least one saved layer")
    for k in show:
        trajectory.at(k)  # says which layers were saved
    return [int(k) for k in show]


def _saved(trajectory: Trajectory, k: int | float) -> int:
    return int(np.flatnonzero(trajectory.t == k)[0])


# --- polytopes -----------------------------------------------------------------------------------


def polytope(polytope: Polytope, ax: Axes | None = None, tokens: Array | None = None) -> Axes:
    """A polytope of dimension d <= 3, its vertices, and the tokens inside it if given."""
    d = polytope.vertices.shape[1]
    if d > 3:
        raise ValueError(f"polytope: a picture needs d <= 3, got d = {d}; project the tokens first")
    inside = None if tokens is None else as_tokens(tokens, "tokens", ndim=2).astype(np.float64)
    if inside is not None and inside.shape[1] != d:
        raise ValueError(f"tokens: expected d = {d} as the polytope, got {inside.shape[1]}")
    rows = polytope.vertices if inside is None else np.concatenate([polytope.vertices, inside])
    view = View.of(rows[None])
    corners = view.x[0, : len(polytope.vertices)]
    ax = new_axes(ax, view.solid, (6.4, 1.4) if view.line else (5.0, 4.2))
    view.frame(ax, view.x)
    view.name(ax)
    shade(ax, polytope if d > 1 else Polytope.from_vertices(corners))
    if inside is not None:
        scatter(ax, view.x[0, len(corners) :], "tokens", "o", 18.0, fc="white", ec=GREY)
    scatter(ax, corners, "vertices", "o", 34.0, fc=PALETTE[0], ec="white")
    return ax


# --- curves by layer -----------------------------------------------------------------------------


def norms(trajectory: Trajectory, ax: Axes | None = None) -> Axes:
    """|z_i|_A = <A z_i, z_i>^(1/2) by layer: it never falls (arXiv 2407.01602). Leaders thick.

    Where A is not symmetric positive definite there is no A-norm, and |z_i| is drawn.
    """
    values = real_tokens(trajectory).astype(np.float64)
    A = trajectory.made_by.form
    if A is not None and not definite(A):
        A = None
    root = np.eye(values.shape[-1]) if A is None else np.linalg.cholesky(A)
    appearance = Appearance.of(trajectory)
    ax = new_axes(ax)
    sizes = np.linalg.norm(values @ root, axis=-1)
    name = "$|z_i|$" if A is None else "$|z_i|_A$"
    _token_lines(ax, trajectory.t, sizes, appearance, name)
    ax.legend(frameon=False, fontsize=LABEL, loc="lower right")  # norms rise: empty there
    return ax


def hull_area(trajectory: Trajectory, ax: Axes | None = None) -> Axes:
    """Area of the hull of the tokens by layer (width for d = 1, volume from d = 3 on).

    Hulls are nested, so it never grows; the dashed line is the hull of the leaders so far,
    at infinite depth the limiting polytope K. Where the facets are too many to list (about d > 8)
    the hull says so.
    """
    values = real_tokens(trajectory)
    d = values.shape[-1]

    def measure(z: np.ndarray) -> float:
        body = hull(z)
        return body.volume if body.dim == d else 0.0

    name = {1: "width", 2: "area"}.get(d, "volume")
    ax = new_axes(ax)
    sizes = [measure(z) for z in values]
    ax.plot(trajectory.t, sizes, color=PALETTE[0], lw=1.8, gid="hull", label="all tokens")
    leaders = Appearance.of(trajectory).leaders(int(trajectory.t[-1]))
    if len(leaders):
        inner = measure(values[-1, leaders])
        ax.axhline(inner, color=PALETTE[1], lw=1.2, ls="--", gid="leaders", label="leaders")
    _style(ax, f"{name} of the hull")
    ax.legend(frameon=False, fontsize=LABEL, loc="upper right")
    return ax


def convergence(trajectory: Trajectory, limit: Limit, ax: Axes | None = None) -> Axes:
    """|z_i^k - z_i^oo| by layer on a log scale, beside the rate (1 + alpha)^(-k).

    A settled token whose leaders do not move any more converges exactly at that rate: its line is
    parallel to the dashed one. Distances within rounding of the tokens are left out.
    """
    values = real_tokens(trajectory).astype(np.float64)
    appearance = Appearance.of(trajectory)
    if limit.points.shape != trajectory.z.shape[1:]:
        raise ValueError(
            f"limit: expected shape {tuple(trajectory.z.shape[1:])} as in the trajectory, got "
            f"{limit.points.shape}; take the limit of the same configuration"
        )
    gaps = np.linalg.norm(values - limit.points[appearance.real], axis=-1)
    noise = 8 * float(np.finfo(trajectory.values.dtype).eps) * float(np.abs(values).max())
    gaps[gaps <= noise] = np.nan
    ax = new_axes(ax)
    ax.set_yscale("log")
    _token_lines(ax, trajectory.t, gaps, appearance, r"$|z_i^k - z_i^\infty|$")
    largest = np.fmax.reduce(gaps, axis=1)
    ax.plot(trajectory.t, largest, color=INK, lw=1.8, gid="largest", label="largest")
    if np.isfinite(largest[0]):
        line = largest[0] * _rate(trajectory) ** -trajectory.t.astype(np.float64)
        line[line <= noise] = np.nan
        name = r"rate $(1+\alpha)^{-k}$"
        ax.plot(trajectory.t, line, "--", color=PALETTE[1], lw=1.3, gid="rate", label=name)
    ax.legend(frameon=False, fontsize=LABEL, loc="upper right")
    return ax


def growth(trajectory: Trajectory, ax: Axes | None = None) -> Axes:
    """log10 |z_i| by layer, for layers without normalisation: the slope is log10(1 + alpha).

    Their tokens are exactly (1 + alpha)^k times the normalised ones, which stay bounded.
    """
    values = real_tokens(trajectory).astype(np.float64)
    # Logarithms on a plain axis, of tokens scaled to 1: a log axis, like a sum of squares,
    # overflows before the tokens do.
    top = np.abs(values).max(axis=(1, 2), keepdims=True)
    top = np.where(top > 0, top, 1.0)
    sizes = np.linalg.norm(values / top, axis=-1)
    sizes[sizes == 0] = np.nan
    logs = np.log10(sizes) + np.log10(top[..., 0])
    ax = new_axes(ax)
    _token_lines(ax, trajectory.t, logs, Appearance.of(trajectory), r"$\log_{10}\,|z_i|$")
    line = np.fmax.reduce(logs[0]) + trajectory.t * np.log10(_rate(trajectory))
    name = r"slope $\log_{10}(1+\alpha)$"
    ax.plot(trajectory.t, line, "--", color=INK, lw=1.3, gid="rate", label=name)
    ax.legend(frameon=False, fontsize=LABEL, loc="upper left")
    return ax


def _rate(trajectory: Trajectory) -> float:
    """1 + alpha."""
    alpha = trajectory.made_by.exact_alpha
    if alpha is None:
        raise ValueError(
            f"a rate needs layers with a step alpha; {type(trajectory.made_by).__name__} has none"
        )
    return float(1 + alpha)


def _token_lines(ax: Any, t: np.ndarray, y: np.ndarray, appearance: Appearance, name: str) -> None:
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
    _style(ax, name)


def _style(ax: Any, name: str) -> None:
    ax.set_xlabel("layer $k$", fontsize=LABEL)
    ax.set_ylabel(name, fontsize=LABEL)
    ax.tick_params(labelsize=TICK, color=GREY)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.grid(True, color=PALE, lw=0.5)
    ax.set_axisbelow(True)
