"""How a token looks: its colour, marker and place on the page; shared by figures and movies.

As in Figure 2 of arXiv 2407.01602, of one layer at a time: a star is a leader, a circle another
token. The *fill* is the colour of the token it follows at this layer (two halves: of two; grey and
hatched: of more), the *edge* its own colour while somebody follows it at this layer, else grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
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


@final
@dataclass(frozen=True, eq=False)
class Markers:
    """What to draw for each token at one layer, one row per token.

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

    `real`: the tokens drawn, without padding. `colour`: RGBA of each value class, or, where nobody
    leads and `roles` is None, of each token drawn: that of the cluster in which it ends.
    """

    real: np.ndarray
    roles: Roles | None
    colour: np.ndarray

    @classmethod
    def of(cls, trajectory: Trajectory) -> Appearance:
        real = trajectory.real
        if not can_lead(trajectory):
            return cls(real, None, _end_colours(trajectory, real))
        ro, history = roles(trajectory), trajectory.history
        if history is not None and history.records:
            followed = [record.indices for record in history.records]
        else:
            followed = [ro.followed(int(k)).indices for k in trajectory.t]
        return cls(real, ro, class_colours(ro.followed(0), ro.leads, followed))

    def at(self, k: int | float) -> Markers:
        """The markers at layer k; a leader is a star from the layer at which it is born."""
        if self.roles is None:
            kind = np.full(len(self.real), "one")
            return Markers(kind, self.colour, self.colour, self.colour)
        look = markers_at(self.roles.followed(int(k)), self.colour, self.real)
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
    width = float(np.ptp(z[-1 if trajectory.made_by.grows else 0], axis=0).max())
    groups = clusters(z[-1].astype(np.float64), 0.02 * width)
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


def markers_at(followed: Followed, colour: np.ndarray, real: np.ndarray) -> Markers:
    """Fill and edge of the real tokens at the layer of `followed`; the caller sets the stars."""
    width = np.diff(followed.indptr)
    kind = np.select([width == 1, width == 2], ["one", "two"], "several").astype("<U7")
    fill = colour[followed.indices[followed.indptr[:-1]]]
    other = colour[followed.indices[followed.indptr[1:] - 1]]
    fill[width > 2] = other[width > 2] = to_rgba_array([PALE])
    edge = to_rgba_array([GREY]).repeat(len(colour), axis=0)
    edge[followed.indices] = colour[followed.indices]
    label = followed.label[real]
    return Markers(kind[label], fill[label], other[label], edge[label])


@final
@dataclass(frozen=True, eq=False)
class View:
    """Where tokens are drawn: coordinates x (saved, n, 2 or 3) and what the axes are called.

    d = 1 is a horizontal line, d > 3 is drawn on the two principal directions of all layers
    together: one projection for the whole run, so that motion is motion.
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

    def frame(self, ax: Any, x: np.ndarray, equal: bool = True) -> None:
        """Axes around the tokens x (..., 2 or 3), scaled alike if `equal`, the origin marked."""
        rows = x.reshape(-1, x.shape[-1])
        low, high = rows.min(axis=0), rows.max(axis=0)
        half = 0.59 * (high - low)
        half[(half == 0) | equal] = half.max() or 1.0
        ax.tick_params(labelsize=TICK, color=GREY, length=2.5, pad=-3 if self.solid else 2)
        for name, centre, reach in zip("xyz", (low + high) / 2, half):
            getattr(ax, f"set_{name}lim")(centre - reach, centre + reach)
            axis = getattr(ax, f"{name}axis")
            axis.set_major_locator(MaxNLocator(3 if self.solid else 4, steps=[1, 2, 5, 10]))
            axis.offsetText.set_fontsize(TICK)
            if self.solid:
                axis.set_pane_color((0.97, 0.97, 0.97, 1.0))
        if self.solid:
            ax.set_box_aspect((1, 1, 1), zoom=0.9)
            ax.computed_zorder = False  # the faces of a hull would hide the stars on them
            return
        ax.spines[:].set_color(PALE)
        ax.ticklabel_format(scilimits=(-3, 4))
        if self.line:
            ax.set(ylim=(-1, 1), yticks=[])
            ax.spines[["left", "right", "top"]].set_visible(False)
            ax.axhline(0, color=PALE, lw=1, zorder=0)
        elif equal:
            ax.set_aspect("equal")
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


def draw_tokens(ax: Any, x: np.ndarray, look: Markers, size: float = 46.0) -> list[PathCollection]:
    """One collection per kind of marker; x (n, 2 or 3), rows of padding already left out."""
    left, right = (MarkerStyle("o", fillstyle=side) for side in ("left", "right"))
    groups: list[tuple[str, str, str | MarkerStyle, np.ndarray]] = [
        ("several", "several", "o", look.fill),
        ("followers", "one", "o", look.fill),
        ("left", "two", left, look.fill),
        ("right", "two", right, look.other),
        ("leaders", "leader", "*", look.fill),
    ]
    out = []
    for layer, (gid, kind, marker, face) in enumerate(groups):
        where, star = look.kind == kind, kind == "leader"
        if not where.any():
            continue
        extra: dict[str, Any] = {"hatch": "//////"} if kind == "several" else {}
        if x.shape[1] == 3:
            extra["depthshade"] = False
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


def write_words(
    ax: Any, x: np.ndarray, words: Sequence[str], frame: float, first: np.ndarray
) -> None:
    """The word of each token beside it; tokens at one place share a label, none covers another.

    `frame`: inches of a side of the axes. A word without room is left out; `first` come first.
    """
    low = np.array([ax.get_xlim()[0], ax.get_ylim()[0]])
    inches = frame / (np.array([ax.get_xlim()[1], ax.get_ylim()[1]]) - low)
    spots = (x[:, :2] - low) * inches
    members: dict[int, int] = {}  # the token whose word is written -> how many are there
    for i in [*first, *np.setdiff1d(np.arange(len(x)), first)]:
        near = (j for j in members if np.hypot(*(spots[j] - spots[i])) < 0.05)
        j = next(near, int(i))
        members[j] = members.get(j, 0) + 1
    taken: list[tuple[float, float, float, float]] = []
    for i, count in members.items():
        text = words[i] + (f" +{count - 1}" if count > 1 else "")
        wide, high = 0.055 * len(text), 0.12
        for right, up in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
            left, bottom = (spots[i] + (0.06 * right, 0.05 * up)).tolist()
            left, bottom = left - wide * (right < 0), bottom - high * (up < 0)
            box = (left, bottom, left + wide, bottom + high)
            inside = min(box) > 0 and max(box[2:]) < frame
            over = (
                box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken
            )
            if inside and not any(over):
                taken.append(box)
                how: dict[str, Any] = {"textcoords": "offset points", "fontsize": TICK, "zorder": 9}
                how |= {"ha": "left" if right > 0 else "right", "va": "bottom" if up > 0 else "top"}
                ax.annotate(text, x[i, :2], (4 * right, 3 * up), gid="word", **how)
                break


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
    """The corners of a face of R^3 that is flat up to rounding, one after the other around it."""
    x = corners - corners.mean(axis=0)
    p = x @ np.linalg.svd(x, full_matrices=False)[2][:2].T
    return corners[np.argsort(np.arctan2(p[:, 1], p[:, 0]))]


def legend(fig: Any, kinds: set[str], shaded: bool = True) -> int:
    """Below the panels, never over them: only the markers that occur. Returns its lines."""
    marker: dict[str, Any] = {"ls": "", "ms": 8, "mew": 1.4}
    first, second, third = PALETTE[:3]
    halves: dict[str, Any] = {"mfc": first, "markerfacecoloralt": second, "fillstyle": "left"}
    one = "fill: whom it follows now; edge: the colour of its followers now, grey if none"
    entries: dict[str, tuple[str, Line2D | Patch]] = {
        "leader": ("leader", Line2D([], [], marker="*", color=first, ls="", ms=12, mew=0.7)),
        "one": (one, Line2D([], [], marker="o", mfc=first, mec=third, **marker)),
        "two": ("follows two", Line2D([], [], marker="o", mec=GREY, **halves, **marker)),
        "several": ("follows more", Patch(fc=PALE, ec=GREY, hatch="//////")),
        "end": (
            "colour: the cluster it ends in; lines: the way it came",
            Line2D([], [], marker="o", color=first, **marker),
        ),
        "hull": ("hull of the leaders", Patch(fc=(SHADE, 0.35), ec=SHADE)),
    }
    shown = [entry for k, entry in entries.items() if k in kinds or (k == "hull" and shaded)]
    columns, texts = fitting([name for name, _ in shown], fig.bbox.width / fig.dpi)
    how = {"frameon": False, "fontsize": LABEL, "handletextpad": 0.5, "columnspacing": 1.8}
    fig.legend([mark for _, mark in shown], texts, loc="outside lower center", ncols=columns, **how)
    return sum(text.count("\n") + 1 for text in texts[:: columns or 1])


def fitting(names: list[str], width: float) -> tuple[int, list[str]]:
    """Columns of a legend `width` inches wide, and its names, broken where too long."""
    letter, mark = 0.064, 0.6  # inches, of a letter of size LABEL and of a marker with its gaps
    most = max(12, int((width - mark) / letter))
    for columns in range(len(names), 1, -1):
        widest = [max(map(len, names[k::columns])) for k in range(columns)]
        if sum(widest) * letter + columns * mark <= width:
            return columns, names
    return 1, [fill(name, most) for name in names]


def evenly(total: int, most: int) -> list[int]:
    """At most `most` of 0..total - 1, evenly spread, first and last among them."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(int)).tolist()


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
