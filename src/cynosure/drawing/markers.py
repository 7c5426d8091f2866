"""How a token looks: its colour, marker and place on the page; shared by figures and movies.

The language is that of Figure 2 of arXiv 2407.01602, and it speaks of one layer at a time. A star
is a leader, a circle another token. Every token that is followed at some layer has a colour of its
own. The *fill* of a token is the colour of the token it follows at this layer; its *edge* is the
colour of those who follow it at this layer, which is its own, and grey while nobody does. Two
halves: it follows two. Grey and hatched: it follows more than two. Equal tokens share a colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch, Polygon
from matplotlib.ticker import MaxNLocator

from .._scale import exponent
from ..analysis.clustering import clusters
from ..analysis.leaders import Roles, can_lead, roles
from ..analysis.polytope import Polytope
from ..engine.followed import Followed
from ..simulation.trajectory import Trajectory
from .style import GREY, LABEL, PALE, PALETTE, SHADE, TICK

__all__ = [
    "Appearance",
    "Look",
    "View",
    "class_colours",
    "draw_tokens",
    "legend",
    "look_at",
    "marker_size",
    "new_axes",
    "real_tokens",
    "shade",
]


@final
@dataclass(frozen=True, eq=False)
class Look:
    """Markers of one layer: what to draw for each token, one row per token.

    `kind`: "leader" (star), "one", "two" (halves `fill`, `other`) or "several" (hatched).
    """

    kind: np.ndarray
    fill: np.ndarray
    other: np.ndarray
    edge: np.ndarray


@final
@dataclass(frozen=True, eq=False)
class Appearance:
    """The colours of one trajectory, the same at every layer and in every picture of it.

    `real`: indices of the tokens that are no padding, the only ones drawn. `colour`: RGBA of each
    value class. `roles` is None where nobody leads (no hardmax layers): then `colour` is that of
    the cluster in which each token ends, one row per token drawn.
    """

    real: np.ndarray
    roles: Roles | None
    colour: np.ndarray

    @classmethod
    def of(cls, trajectory: Trajectory) -> Appearance:
        real = np.arange(trajectory.z.shape[-2])
        if trajectory.mask is not None:
            real = real[trajectory.mask]
        if not can_lead(trajectory):
            return cls(real, None, _end_colours(trajectory, real))
        ro = roles(trajectory)
        history = trajectory.history
        if history is not None and history.records:
            followed = [record.indices for record in history.records]
        else:
            followed = [ro.followed(int(k)).indices for k in trajectory.t]
        return cls(real, ro, class_colours(ro.followed(0), ro.leads, followed))

    def at(self, k: int | float) -> Look:
        """The markers at layer k; a leader is a star from the layer at which it is born."""
        if self.roles is None:
            kind = np.full(len(self.real), "one")
            return Look(kind, self.colour, self.colour, self.colour)
        look = look_at(self.roles.followed(int(k)), self.colour, self.real)
        look.kind[self.leaders(k)] = "leader"
        return look

    def leaders(self, k: int | float) -> np.ndarray:
        """Rows, among the tokens drawn, of the stars at layer k."""
        if self.roles is None:
            return np.empty(0, dtype=np.intp)
        return np.searchsorted(self.real, self.roles.led_at(int(k)))


def _end_colours(trajectory: Trajectory, real: np.ndarray) -> np.ndarray:
    """One colour per cluster of the end, joined at 2 % of the run's extent; one for all if many."""
    z = trajectory.values[..., real, :]
    if z.ndim != 3 or not len(real):
        return to_rgba_array([PALETTE[0]]).repeat(len(real), axis=0)
    end, width = z[-1], float(np.ptp(z[0], axis=0).max())
    if trajectory.made_by.grows:
        width = float(np.ptp(end, axis=0).max())
    groups = clusters(end.astype(np.float64), 0.02 * width)
    label = groups.labels if groups.count <= len(PALETTE) else np.zeros(len(real), dtype=np.intp)
    return to_rgba_array(PALETTE)[label]


def class_colours(sets: Followed, leads: np.ndarray, followed: Sequence[np.ndarray]) -> np.ndarray:
    """A colour for every class that is followed at some layer; leaders choose first."""
    order = dict.fromkeys(sets.label[leads].tolist())
    for classes in followed:
        order.update(dict.fromkeys(np.unique(classes).tolist()))
    colour = to_rgba_array([GREY]).repeat(len(sets.count), axis=0)
    colour[list(order)] = to_rgba_array(PALETTE)[np.arange(len(order)) % len(PALETTE)]
    return colour


def look_at(followed: Followed, colour: np.ndarray, real: np.ndarray) -> Look:
    """Fill and edge of the real tokens from their classes; the stars are the caller's to set.

    Both are of the layer of `followed`: a token that is followed at another layer only has a grey
    edge here.
    """
    width = np.diff(followed.indptr)
    kind = np.select([width == 1, width == 2], ["one", "two"], "several").astype("<U7")
    fill = colour[followed.indices[followed.indptr[:-1]]]
    other = colour[followed.indices[followed.indptr[1:] - 1]]
    fill[width > 2] = other[width > 2] = to_rgba_array([PALE])
    edge = to_rgba_array([GREY]).repeat(len(colour), axis=0)
    edge[followed.indices] = colour[followed.indices]
    label = followed.label[real]
    return Look(kind[label], fill[label], other[label], edge[label])


@final
@dataclass(frozen=True, eq=False)
class View:
    """Where tokens are drawn: coordinates x (saved, n, 2 or 3) and what the axes are called.

    d = 1 is drawn on a horizontal line, d = 2 and 3 as they are, d > 3 on the two principal
    directions of all layers together: one projection for the whole run, so that motion is motion.
    """

    x: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: np.ndarray, most: int = 3) -> View:
        """The view of tokens (saved, n, d), in at most `most` coordinates."""
        d = values.shape[-1]
        if exponent(values) > 1000:  # the margins of a picture would overflow
            raise ValueError(
                f"tokens: coordinates up to {np.abs(values).max():.3g} are too large to draw; "
                "divide the tokens by a power of two (hardmax layers then give the same picture)"
            )
        if d == 1:
            return cls(np.concatenate([values, np.zeros_like(values)], axis=-1), ("$z$",))
        if d <= most:
            return cls(values, tuple(f"$z_{j + 1}$" for j in range(d)))
        rows = values.reshape(-1, d).astype(np.float64)
        rows = (rows - rows.mean(axis=0)) / (np.abs(rows).max() or 1.0)
        variance, axes = np.linalg.eigh(rows.T @ rows)
        share = variance[::-1] / (variance.sum() or 1.0)
        axes = axes[:, :-3:-1]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])  # a sign that is ours
        names = tuple(f"PC {j + 1} of $d = {d}$ ({share[j]:.0%})" for j in (0, 1))
        return cls(values @ axes, names)

    @property
    def line(self) -> bool:
        return len(self.names) == 1

    @property
    def solid(self) -> bool:
        return len(self.names) == 3

    def frame(self, ax: Any, x: np.ndarray) -> None:
        """Square, equally scaled axes around the tokens x (..., 2 or 3), the origin marked."""
        rows = x.reshape(-1, x.shape[-1])
        low, high = rows.min(axis=0), rows.max(axis=0)
        half = 0.59 * float((high - low).max()) or 1.0
        limits = np.stack([(low + high) / 2 - half, (low + high) / 2 + half], axis=1)
        ax.tick_params(labelsize=TICK, color=GREY, length=2.5, pad=2)
        for axis in (ax.xaxis, ax.yaxis, *([ax.zaxis] if self.solid else [])):
            axis.set_major_locator(MaxNLocator(3 if self.solid else 4, steps=[1, 2, 5, 10]))
        ax.set_xlim(limits[0])
        if self.solid:
            ax.set(ylim=limits[1], zlim=limits[2])
            ax.set_box_aspect((1, 1, 1), zoom=0.9)
            ax.tick_params(pad=-3)
            ax.computed_zorder = False  # the faces of a hull would hide the stars on them
            for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
                axis.set_pane_color((0.97, 0.97, 0.97, 1.0))
        else:
            ax.spines[:].set_color(PALE)
            ax.ticklabel_format(scilimits=(-3, 4))
            for axis in (ax.xaxis, ax.yaxis):
                axis.offsetText.set_fontsize(TICK)
            if self.line:
                ax.set(ylim=(-1, 1), yticks=[])
                ax.spines[["left", "right", "top"]].set_visible(False)
                ax.axhline(0, color=PALE, lw=1, zorder=0)
            else:
                ax.set(ylim=limits[1], aspect="equal")
            ax.plot([0], [0], "+", color=GREY, ms=6, mew=0.8, zorder=1, gid="origin")

    def name(self, ax: Any, label: str = "", left: bool = True, bottom: bool = True) -> None:
        """Names of the axes, and a label for the row of panels that begins here."""
        if self.solid:
            for axis, name in zip("xyz", self.names):
                # The names of 3-D axes sit away from them, by more than small panels have.
                getattr(ax, f"set_{axis}label")(name, fontsize=LABEL, labelpad=-9)
            place = {"transform": ax.transAxes, "rotation": 90, "va": "center"}
            ax.text2D(-0.1, 0.5, label, fontsize=LABEL, **place)
            return
        if bottom:
            ax.set_xlabel(self.names[0], fontsize=LABEL)
        if left:
            ax.set_ylabel("\n".join(t for t in (label, *self.names[1:]) if t), fontsize=LABEL)


def draw_tokens(ax: Any, x: np.ndarray, look: Look, size: float = 46.0) -> list[PathCollection]:
    """One collection per kind of marker; x (n, 2 or 3), rows of padding already left out."""
    halves = look.kind == "two"
    groups: list[tuple[str, np.ndarray, str | MarkerStyle, np.ndarray, dict[str, Any]]] = [
        ("several", look.kind == "several", "o", look.fill, {"hatch": "//////"}),
        ("followers", look.kind == "one", "o", look.fill, {}),
        ("left", halves, MarkerStyle("o", fillstyle="left"), look.fill, {}),
        ("right", halves, MarkerStyle("o", fillstyle="right"), look.other, {}),
        ("leaders", look.kind == "leader", "*", look.fill, {}),
    ]
    out = []
    for layer, (gid, where, marker, face, extra) in enumerate(groups):
        if not where.any():
            continue
        star = gid == "leaders"
        if x.shape[1] == 3:
            extra = {**extra, "depthshade": False}
        # Edges thin out faster than markers shrink, or grey is all one sees of a crowd.
        drawn = ax.scatter(
            *x[where].T,
            s=max(3.6 * size, 60.0) if star else size,
            marker=marker,
            facecolors=face[where],
            edgecolors=look.edge[where],
            linewidths=0.7 if star else 1.4 * size / 46.0,
            zorder=3 + layer,
            **extra,
        )
        drawn.set_gid(gid)
        out.append(drawn)
    return out


def shade(ax: Any, body: Polytope, color: str = SHADE, alpha: float = 0.35) -> None:
    """Fill a polytope of R^2 or R^3; a segment is a thick line, a single token nothing."""
    v = body.vertices
    if body.dim == 1:
        ax.plot(*v.T, color=color, lw=5, alpha=alpha, solid_capstyle="round", zorder=1, gid="hull")
    elif v.shape[1] == 2 and body.dim == 2:
        ax.add_patch(
            Polygon(body.ordered(), fc=(color, alpha), ec=color, lw=1, zorder=0.5, gid="hull")
        )
    elif body.dim >= 2:
        from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

        faces = [_around(v[list(face)]) for face in body.faces(2)]
        solid = Poly3DCollection(faces, facecolors=(color, alpha * 0.6), edgecolors=color, lw=0.8)
        solid.set_gid("hull")
        ax.add_collection3d(solid)


def _around(corners: np.ndarray) -> np.ndarray:
    """The corners of a flat face of R^3, one after the other around it.

    Trap: facets are joined when they are flat up to rounding, so a face may be a hair off a plane.
    """
    x = corners - corners.mean(axis=0)
    p = x @ np.linalg.svd(x, full_matrices=False)[2][:2].T
    return corners[np.argsort(np.arctan2(p[:, 1], p[:, 0]))]


def legend(fig: Any, kinds: set[str], shaded: bool = True) -> None:
    """Below the panels, never over them: only the markers that occur."""
    marker: dict[str, Any] = {"ls": "", "ms": 8, "mew": 1.4}
    first, second, third = PALETTE[:3]
    entries = {
        "leader": Line2D([], [], marker="*", color=first, **{**marker, "ms": 12, "mew": 0.7}),
        "one": Line2D([], [], marker="o", mfc=first, mec=third, **marker),
        "two": Line2D(
            [],
            [],
            marker="o",
            mfc=first,
            markerfacecoloralt=second,
            mec=GREY,
            fillstyle="left",
            **marker,
        ),
        "several": Patch(fc=PALE, ec=GREY, hatch="//////"),
        "end": Line2D([], [], marker="o", color=first, **marker),
        "hull": Patch(fc=(SHADE, 0.35), ec=SHADE),
    }
    names = {
        "leader": "leader",
        "one": "fill: whom it follows now; edge: the colour of its followers now, grey if none",
        "two": "follows two",
        "several": "follows more",
        "end": "colour: the cluster it ends in; lines: the way it came",
        "hull": "hull of the leaders",
    }
    shown = [k for k in names if k in kinds or (k == "hull" and shaded)]
    wide = fig.bbox.width / fig.dpi > 9
    fig.legend(
        [entries[k] for k in shown],
        [names[k] for k in shown],
        loc="outside lower center",
        ncols=len(shown) if wide else 2,
        frameon=False,
        fontsize=LABEL,
        handletextpad=0.5,
        columnspacing=1.8,
    )


def real_tokens(trajectory: Trajectory) -> np.ndarray:
    """The tokens that are no padding, (saved, n, d)."""
    values = trajectory.values
    if values.ndim != 3:
        raise ValueError(
            f"expected one configuration, z of shape (saved, n, d); got {values.shape}."
            " Draw trajectory.select(b)"
        )
    return values if trajectory.mask is None else values[:, trajectory.mask]


def marker_size(n: int) -> float:
    """Area in points^2 that keeps n markers apart: 46 up to 40 tokens, then falling to 4."""
    return float(np.clip(46.0 * 40 / max(n, 1), 4.0, 46.0))


def new_axes(ax: Axes | None, solid: bool = False, size: tuple[float, float] = (5.0, 4.2)) -> Any:
    """The axes given, or those of a new figure; 3-D data need 3-D axes."""
    if ax is None:
        fig = Figure(figsize=size, layout="constrained")
        return fig.add_subplot(projection="3d" if solid else None)
    if solid and ax.name != "3d":
        raise ValueError("ax: three coordinates need axes made with projection='3d', or ax=None")
    return ax
