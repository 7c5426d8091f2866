"""Pictures of the sets C_i: the half-space of a token, its supporting line, who follows whom.

`cynosure.drawing.plot` gives them to users; planar tokens, except in `follow_graph`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Polygon

from .._types import Array, as_tokens
from ..analysis.polytope import hull
from ..attention import Hardmax
from ..engine.followed import Followed
from .markers import View, class_colours, draw_tokens, marker_size, markers_at, new_axes, shade
from .style import GREY, INK, LABEL, PALETTE


def half_space(
    z: Array, i: int, A: Array | None = None, ax: Axes | None = None, *, first: int = 0
) -> Axes:
    """The half-space of token i and whom it follows there: Figure 1 of arXiv 2407.01602.

        H = { y : <A z_i, y - z_i> >= 0 },    C_i = { j : <A z_i, z_j> = max_l <A z_i, z_l> }

    The boundary of H passes through z_i with the normal A z_i. Token i follows the tokens of H
    that lie farthest along A z_i, on the dotted line. Where H holds no other token, token i leads.
    Planar tokens z (n, 2) only; `first` is the number of the first token (1 in the paper).
    """
    i, tokens, followed, towards = _looking(z, i, A, "half_space")
    ax, handles = _stage(ax, tokens, followed, i, tokens[i], towards, f"{first + i}")
    if (towards != 0).any():
        _half_plane(ax, tokens[i], towards, 0.13, gid="half-space")
        _level(ax, tokens[i], towards, ls="-", gid="boundary")
        farthest = tokens[followed[0]]
        if (farthest - tokens[i]) @ towards > 0:
            _level(ax, farthest, towards, ls=":", gid="level")
        name = f"{first + i}"
        inner = rf"$H$: $\langle A z_{{{name}}}, y - z_{{{name}}}\rangle \geq 0$"
        handles.append(Patch(fc=(PALETTE[0], 0.13), ec=PALETTE[0], label=inner))
    for j, token in enumerate(tokens):
        ax.annotate(f"{first + j}", token, xytext=(6, 5), textcoords="offset points",
                    fontsize=LABEL, color=INK, gid="number")  # fmt: skip
    _legend_below(ax, handles)
    return ax


def _looking(
    z: Array, i: int, A: Array | None, who: str
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """(i in 0..n-1, planar tokens, C_i, A z_i), or an error that says what was expected."""
    tokens = as_tokens(z, ndim=2).astype(np.float64)
    n, d = tokens.shape
    if d != 2:
        raise ValueError(f"{who} draws tokens of the plane, got d = {d}; use follow_graph")
    if not -n <= i < n:
        raise ValueError(f"i: expected a token 0..{n - 1}, got {i}")
    attention = Hardmax(A)
    i, matrix = i % n, attention.matrix(2)
    towards = tokens[i] if matrix is None else matrix @ tokens[i]
    return i, tokens, attention.followed(tokens)[i], towards


def _stage(
    ax: Axes | None,
    tokens: np.ndarray,
    followed: np.ndarray,
    i: int,
    start: np.ndarray,
    towards: np.ndarray,
    name: str,
) -> tuple[Any, list[Line2D | Patch]]:
    """The tokens, those of C_i and token i on axes, and A z_i as an arrow from `start`."""
    radius, length = float(np.abs(tokens).max()) or 1.0, float(np.linalg.norm(towards))
    shortened = length > 1.2 * radius  # it is a direction, and would only shrink the picture
    tip = start + towards * (0.8 * radius / length if shortened else 1.0)
    ax, view = new_axes(ax), View(tokens, ("$z_1$", "$z_2$"))
    view.frame(ax, np.concatenate([tokens, tip[None], np.zeros((1, 2))]))
    view.name(ax)
    scatter(ax, tokens, "tokens", "o", 40.0, fc="white", ec=GREY)
    scatter(ax, tokens[followed], "followed", "o", 70.0, fc=PALETTE[1], ec=INK)
    scatter(ax, tokens[[i]], "token", "D", 55.0, fc=PALETTE[0], ec=INK)
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="D", ls="", ms=7, mfc=PALETTE[0], mec=INK, label=f"$z_{{{name}}}$"),
        Line2D([], [], marker="o", ls="", ms=8, mfc=PALETTE[1], mec=INK, label=f"$C_{{{name}}}$"),
    ]
    if length > 0:
        how = {"color": PALETTE[0], "lw": 1.8, "gid": "direction"}
        ax.add_patch(_arrow(start, tip, mutation_scale=14.0, shrinkA=0, shrinkB=0, **how))
        label = f"$A z_{{{name}}}$" + (" (shortened)" if shortened else "")
        handles.append(Line2D([], [], color=PALETTE[0], marker=">", lw=1.8, label=label))
    return ax, handles


def _half_plane(ax: Any, start: np.ndarray, normal: np.ndarray, alpha: float, gid: str) -> None:
    """{y : <normal, y - start> >= 0}, shaded far beyond the picture."""
    unit = normal / np.linalg.norm(normal)
    along = np.array([-unit[1], unit[0]])
    far = 100 * (max(map(abs, (*ax.get_xlim(), *ax.get_ylim()))) + np.linalg.norm(start))
    corners = [start + far * x for x in (-along, along, along + unit, unit - along)]
    ax.add_patch(Polygon(corners, fc=(PALETTE[0], alpha), ec="none", zorder=0, gid=gid))


def _level(ax: Any, start: np.ndarray, towards: np.ndarray, ls: str, gid: str) -> None:
    """The line <towards, y> = <towards, start>."""
    along = np.array([-towards[1], towards[0]]) / np.linalg.norm(towards)
    ax.axline(start, start + along, color=PALETTE[0], lw=1.2, ls=ls, zorder=2, gid=gid)


def attention_set(z: Array, i: int, A: Array | None = None, ax: Axes | None = None) -> Axes:
    """Shows whom token i follows: the tokens furthest in the direction A z_i. Any A.

        C_i = { j : <A z_i, z_j> = max_l <A z_i, z_l> }

    The level lines of y -> <A z_i, y> are orthogonal to A z_i; the last one to touch the hull of
    the tokens supports it, and the tokens on that line are C_i. The half-plane behind it, which
    holds all tokens, is shaded. `half_space` draws the paper's half-space instead, whose boundary
    passes through the token. Planar tokens z (n, 2) only.
    """
    i, tokens, followed, towards = _looking(z, i, A, "attention_set")
    ax, handles = _stage(ax, tokens, followed, i, np.zeros(2), towards, f"{i}")
    shade(ax, hull(tokens), color=GREY, alpha=0.18)
    if (towards != 0).any():
        foot = towards * float((tokens[followed] @ towards).max()) / (towards @ towards)
        _level(ax, foot, towards, ls="--", gid="support")
        _half_plane(ax, foot, -towards, 0.05, gid="half-plane")
        support = rf"$\langle A z_{{{i}}}, y\rangle = \max_l\,\langle A z_{{{i}}}, z_l\rangle$"
        handles.append(Line2D([], [], color=PALETTE[0], lw=1.3, ls="--", label=support))
    handles.append(Patch(fc=(GREY, 0.18), ec=GREY, label="hull of the tokens"))
    _legend_below(ax, handles)
    return ax


def follow_graph(followed: Followed, z: Array, ax: Axes | None = None) -> Axes:
    """An arrow i -> j for every j in C_i, between distinct tokens; leaders are stars.

    A ring marks a token that follows itself among others. Beyond the plane tokens are drawn on
    their two principal directions, which the axes then say.
    """
    tokens = as_tokens(z, ndim=2).astype(np.float64)
    if followed.shape != tokens.shape[:1]:
        raise ValueError(
            f"followed is of {followed.shape} tokens and z of {tokens.shape[:1]}: pass one "
            "configuration and its own sets"
        )
    real = np.flatnonzero(followed.label >= 0)
    view = View.of(tokens[None, real], most=2)
    x = np.zeros((len(tokens), 2))
    x[real] = view.x[0]
    ax = new_axes(ax, size=(6.4, 2.0) if view.line else (5.0, 4.2))
    view.frame(ax, view.x)
    view.name(ax)
    colour = class_colours(followed, followed.leads, [followed.indices])
    look = markers_at(followed, colour, real)
    look.kind[followed.leads[real]] = "leader"
    size = marker_size(len(real))
    draw_tokens(ax, view.x[0], look, size)
    at = x[followed.first]
    source = np.repeat(np.arange(len(followed.count)), np.diff(followed.indptr))
    for c, j in zip(source.tolist(), followed.indices.tolist()):
        if c != j:
            # On a line arrows would lie on each other: bend them.
            bend, short = 0.25 if view.line else 0.06, size**0.5 / 2 + 1.5
            how = {"mutation_scale": 9.0, "shrinkA": short, "shrinkB": short, "gid": "arrow"}
            how["connectionstyle"] = f"arc3,rad={bend}"
            ax.add_patch(_arrow(at[c], at[j], color=colour[j], **how))
    among = (source == followed.indices) & (np.diff(followed.indptr)[source] > 1)
    if among.any():
        scatter(ax, at[source[among]], "rings", "o", 4 * size, fc="none", ec=INK)
    return ax


def scatter(ax: Any, x: np.ndarray, gid: str, marker: str, size: float, **colours: Any) -> None:
    """Markers of one kind, to be found by their gid."""
    ax.scatter(*x.T, s=size, marker=marker, linewidths=1.2, zorder=4, **colours).set_gid(gid)


def _arrow(start: Any, end: Any, **look: Any) -> FancyArrowPatch:
    """An arrow in data coordinates."""
    return FancyArrowPatch(tuple(start), tuple(end), arrowstyle="-|>", zorder=2.5, **look)


def _legend_below(ax: Any, handles: list[Any]) -> None:
    """Under the axes, where it covers nothing; two columns keep it as wide as they are."""
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
    ax.legend(handles=handles, ncols=2, frameon=False, fontsize=LABEL, columnspacing=1.5, **place)
