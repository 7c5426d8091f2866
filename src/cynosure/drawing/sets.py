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
from .markers import (
    View,
    class_colours,
    draw_tokens,
    look_at,
    marker_size,
    new_axes,
    shade,
)
from .style import GREY, INK, LABEL, PALETTE

__all__ = ["attention_set", "follow_graph", "half_space", "scatter"]


def half_space(
    z: Array, i: int, A: Array | None = None, ax: Axes | None = None, *, first: int = 0
) -> Axes:
    """The half-space of token i and whom it follows there: Figure 1 of arXiv 2407.01602.

        H = { y : <A z_i, y - z_i> >= 0 },    C_i = { j : <A z_i, z_j> = max_l <A z_i, z_l> }

    The boundary of H passes through z_i with the normal A z_i. Token i follows the tokens of H
    that lie farthest along A z_i, on the dotted line. Where H holds no other token, token i leads.
    Planar tokens z (n, 2) only; `first` is the number that
    the first token has in the picture (1 in the paper).
    """
    i, tokens, followed, towards = _looking(z, i, A, "half_space")
    ax = new_axes(ax)
    view = View(tokens, ("$z_1$", "$z_2$"))
    radius = float(np.abs(tokens).max()) or 1.0
    tip, shortened = _arrow_tip(towards, radius)
    view.frame(ax, np.concatenate([tokens, tokens[[i]] + tip, np.zeros((1, 2))]))
    view.name(ax)
    name = f"{first + i}"
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="D", ls="", ms=7, mfc=PALETTE[0], mec=INK, label=f"$z_{{{name}}}$"),
        Line2D([], [], marker="o", ls="", ms=8, mfc=PALETTE[1], mec=INK, label=f"$C_{{{name}}}$"),
    ]
    if (towards != 0).any():
        _shade_towards(ax, tokens[i], towards, radius)
        farthest = tokens[followed[0]]
        if (farthest - tokens[i]) @ towards > 0:
            _level(ax, farthest, towards, ls=":", gid="level")
        arrow = _arrow(tokens[i], tokens[i] + tip, PALETTE[0], lw=1.8, head=14.0, gid="direction")
        ax.add_patch(arrow)
        long = " (shortened)" if shortened else ""
        inner = rf"$H$: $\langle A z_{{{name}}}, y - z_{{{name}}}\rangle \geq 0$"
        label = f"$A z_{{{name}}}${long}"
        handles += [
            Line2D([], [], color=PALETTE[0], marker=">", lw=1.8, label=label),
            Patch(fc=(PALETTE[0], 0.13), ec=PALETTE[0], label=inner),
        ]
    _scatter_three(ax, tokens, followed, i)
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


def _arrow_tip(towards: np.ndarray, radius: float) -> tuple[np.ndarray, bool]:
    """A z_i as drawn, and whether it is shortened.

    It is a direction: an arrow far longer than the tokens would only shrink the picture.
    """
    length = float(np.linalg.norm(towards))
    shortened = length > 1.2 * radius
    return towards * (0.8 * radius / length if shortened else 1.0), shortened


def _shade_towards(ax: Any, start: np.ndarray, towards: np.ndarray, radius: float) -> None:
    """{y : <towards, y - start> >= 0}, shaded far beyond the picture, its boundary drawn."""
    normal = towards / np.linalg.norm(towards)
    along = np.array([-normal[1], normal[0]])
    far = 100 * (radius + float(np.linalg.norm(start)))
    corners = [
        start - far * along,
        start + far * along,
        start + far * (along + normal),
        start + far * (normal - along),
    ]
    ax.add_patch(Polygon(corners, fc=(PALETTE[0], 0.13), ec="none", zorder=0, gid="half-space"))
    _level(ax, start, towards, ls="-", gid="boundary")


def _level(ax: Any, start: np.ndarray, towards: np.ndarray, ls: str, gid: str) -> None:
    """The line <towards, y> = <towards, start>."""
    along = np.array([-towards[1], towards[0]]) / np.linalg.norm(towards)
    ax.axline(start, start + along, color=PALETTE[0], lw=1.2, ls=ls, zorder=2, gid=gid)


def _scatter_three(ax: Any, tokens: np.ndarray, followed: np.ndarray, i: int) -> None:
    scatter(ax, tokens, "tokens", "o", 40.0, fc="white", ec=GREY)
    scatter(ax, tokens[followed], "followed", "o", 70.0, fc=PALETTE[1], ec=INK)
    scatter(ax, tokens[[i]], "token", "D", 55.0, fc=PALETTE[0], ec=INK)


def attention_set(z: Array, i: int, A: Array | None = None, ax: Axes | None = None) -> Axes:
    """Whom token i follows, as the last line to touch the tokens, for any A.

        C_i = { j : <A z_i, z_j> = max_l <A z_i, z_l> }

    The level lines of y -> <A z_i, y> are orthogonal to A z_i; the last one to touch the hull of
    the tokens supports it, and the tokens on that line are C_i. The half-plane behind it, which
    holds all tokens, is shaded. `half_space` draws the paper's half-space instead, whose boundary
    passes through the token. Planar tokens z (n, 2) only.
    """
    i, tokens, followed, towards = _looking(z, i, A, "attention_set")
    ax = new_axes(ax)
    view = View(tokens, ("$z_1$", "$z_2$"))
    radius = float(np.abs(tokens).max()) or 1.0
    length = float(np.linalg.norm(towards))
    tip, scaled = _arrow_tip(towards, radius)
    view.frame(ax, np.concatenate([tokens, tip[None], np.zeros((1, 2))]))
    view.name(ax)
    shade(ax, hull(tokens), color=GREY, alpha=0.18)
    _scatter_three(ax, tokens, followed, i)
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="D", ls="", ms=7, mfc=PALETTE[0], mec=INK, label=f"$z_{{{i}}}$"),
        Line2D([], [], marker="o", ls="", ms=8, mfc=PALETTE[1], mec=INK, label=f"$C_{{{i}}}$"),
    ]
    if length > 0:
        best = float((tokens[followed] @ towards).max())
        foot = towards * best / length**2
        along = np.array([-towards[1], towards[0]]) / length
        _level(ax, foot, towards, ls="--", gid="support")
        far = 100 * (radius + float(np.linalg.norm(foot)))
        inner = foot - far * towards / length
        corners = [foot - far * along, foot + far * along, inner + far * along, inner - far * along]
        ax.add_patch(Polygon(corners, fc=(PALETTE[0], 0.05), ec="none", zorder=0, gid="half-plane"))
        ax.add_patch(_arrow((0, 0), tip, PALETTE[0], lw=1.8, head=14.0, gid="direction"))
        name = f"$A z_{{{i}}}$" + (" (shortened)" if scaled else "")
        support = rf"$\langle A z_{{{i}}}, y\rangle = \max_l\,\langle A z_{{{i}}}, z_l\rangle$"
        handles += [
            Line2D([], [], color=PALETTE[0], marker=">", lw=1.8, label=name),
            Line2D([], [], color=PALETTE[0], lw=1.3, ls="--", label=support),
        ]
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
    look = look_at(followed, colour, real)
    look.kind[followed.leads[real]] = "leader"
    size = marker_size(len(real))
    draw_tokens(ax, view.x[0], look, size)
    at = x[followed.first]
    source = np.repeat(np.arange(len(followed.count)), np.diff(followed.indptr))
    for c, j in zip(source.tolist(), followed.indices.tolist()):
        if c != j:
            # On a line arrows would lie on each other: bend them.
            bend = 0.25 if view.line else 0.06
            arrow = _arrow(at[c], at[j], colour[j], shrink=size**0.5 / 2 + 1.5, bend=bend)
            ax.add_patch(arrow)
    among = (source == followed.indices) & (np.diff(followed.indptr)[source] > 1)
    if among.any():
        scatter(ax, at[source[among]], "rings", "o", 4 * size, fc="none", ec=INK)
    return ax


def scatter(ax: Any, x: np.ndarray, gid: str, marker: str, size: float, **colours: Any) -> None:
    """Markers of one kind, to be found by their gid."""
    ax.scatter(*x.T, s=size, marker=marker, linewidths=1.2, zorder=4, **colours).set_gid(gid)


def _arrow(
    start: Any,
    end: Any,
    color: Any,
    lw: float = 1.0,
    head: float = 9.0,
    shrink: float = 0.0,
    bend: float = 0.0,
    gid: str = "arrow",
) -> FancyArrowPatch:
    """An arrow in data coordinates, cut short by `shrink` points at both ends."""
    return FancyArrowPatch(
        tuple(start),
        tuple(end),
        arrowstyle="-|>",
        mutation_scale=head,
        color=color,
        lw=lw,
        shrinkA=shrink,
        shrinkB=shrink,
        connectionstyle=f"arc3,rad={bend}",
        zorder=2.5,
        gid=gid,
    )


def _legend_below(ax: Any, handles: list[Any]) -> None:
    """Under the axes, where it covers nothing; two columns keep it as wide as they are."""
    ax.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=2,
        frameon=False,
        fontsize=LABEL,
        columnspacing=1.5,
    )
