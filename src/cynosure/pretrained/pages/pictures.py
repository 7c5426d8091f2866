"""Pictures of real transformers: maps by layer and head, curves, spectra, paths of words."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...analysis.clustering import clusters
from ...drawing.plot import GREY, INK, LABEL, PALE, PALETTE, TICK, TITLE, View, new_axes
from ...drawing.tables import in_a_list
from ...simulation.trajectory import Trajectory
from ..heads.head import Head

MOST_NUMBERS = 16  # heads and layers up to which a map also shows its numbers
MOST_TOKENS = 40  # columns a map by token has room for
SHADES = "viridis"
GAPS = (4.5, 9.0, 16.0, 26.0, 40.0, 58.0)  # points between a token and its word, tried in turn
FAR = (80.0, 110.0, 150.0)  # and farther, before a word may lie over a path
SPOT = 1.5  # points within which tokens are drawn on one spot


def grid(rows: int, columns: int, size: tuple[float, float]) -> Any:
    """Axes (rows, columns) of a new figure."""
    figure = new_axes(None, size=size).figure
    figure.clear()
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.tick_params(labelsize=TICK, color=GREY)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GREY)
    return axes


# --- maps ----------------------------------------------------------------------------------------


def head_maps(
    maps: Mapping[str, np.ndarray], layers: Sequence[int], limits: Mapping[str, tuple] | None = None
) -> Any:
    """One map (layers, heads) per entry, two in a row; numbers in the cells of small maps."""
    limits = limits or {}
    high, wide = next(iter(maps.values())).shape
    rows = (len(maps) + 1) // 2
    axes = grid(rows, 2, (12.0, rows * (1.35 + 0.29 * min(high, 24))))
    for ax, (title, values) in zip(axes.flat, maps.items(), strict=False):
        low, top = limits.get(title, (None, None))
        image = ax.imshow(values, cmap=SHADES, vmin=low, vmax=top, aspect="auto")
        bar = ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02)
        bar.ax.tick_params(labelsize=TICK)
        if values.dtype.kind in "iu":
            bar.locator.set_params(integer=True)
            bar.update_ticks()
        ax.set_title(title, fontsize=TITLE, loc="left")
        ax.set_xlabel("head", fontsize=LABEL)
        ax.set_ylabel("layer", fontsize=LABEL)
        _ticks(ax, [str(layer) for layer in layers], wide)
        if max(high, wide) <= MOST_NUMBERS:
            _numbers(ax, image, values)
    for ax in axes.flat[len(maps) :]:
        ax.remove()
    return axes[0, 0].figure


def _ticks(ax: Any, layers: Sequence[str], columns: int) -> None:
    """Whole numbers, at most MOST_NUMBERS of them on an axis."""
    down, across = (-(-n // MOST_NUMBERS) for n in (len(layers), columns))
    ax.set_xticks(range(0, columns, across))
    ax.set_yticks(range(0, len(layers), down), layers[::down])


def _numbers(ax: Any, image: Any, values: np.ndarray) -> None:
    whole = values.dtype.kind in "iu"
    for (k, h), value in np.ndenumerate(values):
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        text = str(value) if whole else f"{value:.2f}".replace("0.", ".", 1)
        ax.text(h, k, text, ha="center", va="center", fontsize=6.5, color="w" if dark else INK)


def token_map(values: np.ndarray, words: Sequence[str], title: str) -> Any:
    """Values (layers, n) with a word for every column; of many tokens, those with the largest."""
    most = np.sort(np.argsort(-values.max(axis=0), kind="stable")[:MOST_TOKENS])
    values, words = values[:, most], [_writable(words)[i] for i in most]
    layers, n = values.shape
    ax = grid(1, 1, (max(6.0, 0.42 * n + 2), 1.5 + 0.28 * min(layers, 24)))[0, 0]
    image = ax.imshow(values, cmap=SHADES, vmin=0, aspect="auto")
    ax.figure.colorbar(image, ax=ax, fraction=0.03, pad=0.01).ax.tick_params(labelsize=TICK)
    _ticks(ax, [str(k) for k in range(layers)], n)
    ax.set_xticks(range(n), words, rotation=60, ha="right", fontsize=TICK, parse_math=False)
    ax.set_ylabel("layer", fontsize=LABEL)
    ax.set_title(title, fontsize=TITLE, loc="left")
    if n <= 2 * MOST_NUMBERS and layers <= 24:
        _numbers(ax, image, values)
    return ax.figure


def cosine_map(layers: Sequence[Mapping[str, Any]], bins: np.ndarray) -> Any:
    """Histogram of pairwise cosines by layer, one column each, and its mean."""
    counts = np.array([row["cosine_histogram"] for row in layers], dtype=float)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax = grid(1, 1, (6.4, 3.8))[0, 0]
    edges = np.arange(len(layers) + 1) - 0.5
    image = ax.pcolormesh(edges, bins, share.T, cmap="Blues", vmin=0)
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02)
    bar.set_label("share of the pairs", fontsize=LABEL)
    bar.ax.tick_params(labelsize=TICK)
    mean = [np.nan if row["mean_cosine"] is None else row["mean_cosine"] for row in layers]
    k = range(len(layers))
    ax.plot(k, mean, "o-", color=PALETTE[1], lw=1.5, ms=4, label="mean")
    ax.set_xlabel("layer $k$", fontsize=LABEL)
    ax.set_ylabel("cosine of a pair of tokens", fontsize=LABEL)
    ax.legend(frameon=False, fontsize=LABEL, loc="lower left")
    _whole(ax.xaxis)
    return ax.figure


# --- curves --------------------------------------------------------------------------------------


def staircases(layers: Sequence[Mapping[str, Any]], near: float) -> Any:
    """Number of clusters against tolerance, one staircase per layer, early dark and late light."""
    ax = grid(1, 1, (6.4, 3.8))[0, 0]
    chosen = np.unique(np.linspace(0, len(layers) - 1, min(len(layers), 8)).round().astype(int))
    for rank, i in enumerate(chosen):
        row = layers[i]
        look = {"color": _shade(rank / max(len(chosen) - 1, 1)), "label": f"$k = {row['layer']}$"}
        ax.step(row["tolerances"], row["cluster_counts"], where="post", **look)
    ax.axvline(near, color=GREY, lw=1, ls=":")
    ax.set_xlabel("tolerance, in root-mean-square token lengths", fontsize=LABEL)
    ax.set_ylabel("clusters", fontsize=LABEL)
    _whole(ax.yaxis)
    ax.legend(frameon=False, fontsize=TICK, ncols=2)
    return ax.figure


def _shade(share: float) -> tuple[float, float, float]:
    """From the blue of the palette to its orange."""
    start, end = (np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in PALETTE[:2])
    red, green, blue = ((1 - share) * start + share * end) / 255
    return float(red), float(green), float(blue)


def curves(
    ax: Any, lines: Mapping[str, tuple[np.ndarray, np.ndarray]], name: str, log: bool = False
) -> None:
    """One line per entry (x, y); on a log axis values that are not positive are left out."""
    for i, (label, (x, y)) in enumerate(lines.items()):
        shown = np.where(y > 0, y, np.nan) if log else y
        style = {"color": PALETTE[i % len(PALETTE)]}
        if label.endswith("no head"):  # a control
            style = {"color": INK, "ls": "--" if label == "no head" else ":"}
        ax.plot(x, shown, lw=1.5, label=label, **style)
    if log:
        ax.set_yscale("log")
    ax.set_ylabel(name, fontsize=LABEL)
    ax.grid(True, color=PALE, lw=0.5)


def _whole(axis: Any) -> None:
    axis.get_major_locator().set_params(integer=True)


# --- spectra -------------------------------------------------------------------------------------


def plane(ax: Any, values: np.ndarray, title: str, leading: float | None = None) -> None:
    """Eigenvalues in the complex plane; a star marks the leading real positive one."""
    ax.axhline(0, color=PALE, lw=1, zorder=0)
    ax.axvline(0, color=PALE, lw=1, zorder=0)
    real = values.imag == 0
    for where, colour, label in ((~real, PALETTE[1], "complex"), (real, PALETTE[0], "real")):
        ax.plot(values.real[where], values.imag[where], "o", ms=3.5, color=colour, label=label)
    if leading is not None:
        ax.plot([leading], [0], "*", ms=12, color=PALETTE[2], mec=INK, mew=0.6, label="leading")
    reach = 1.15 * float(np.abs(values).max()) or 1.0
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.set_title(title, fontsize=TITLE, loc="left")


def spectra(head: Head) -> Any:
    """Eigenvalues of A and V in the complex plane, and those of (A + Aᵀ)/2 in order."""
    axes = grid(1, 3, (12.0, 3.9))[0]
    plane(axes[0], head.A_eigenvalues, f"A of {head.name}")
    lead = head.leading
    plane(axes[1], head.V_eigenvalues, f"V of {head.name}", None if lead is None else lead.value)
    for ax in axes[:2]:
        ax.set_xlabel("real part", fontsize=LABEL)
        ax.legend(frameon=False, fontsize=TICK, loc="upper right")
    axes[0].set_ylabel("imaginary part", fontsize=LABEL)
    lam = head.symmetric_eigenvalues
    axes[2].axhline(0, color=PALE, lw=1)
    axes[2].plot(np.arange(len(lam)), lam, "o", ms=2.5, color=PALETTE[0])
    axes[2].set_title("$(A + A^T)/2$", fontsize=TITLE, loc="left")
    axes[2].set_xlabel("eigenvalues in order", fontsize=LABEL)
    return axes[0].figure


# --- paths of words ------------------------------------------------------------------------------


def word_paths(
    trajectory: Trajectory,
    ax: Any = None,
    names: Sequence[str] | None = None,
    colours: np.ndarray | None = None,
) -> tuple[Any, int]:
    """The tokens' paths on two principal directions of all layers together; words at the end.

    Returns the axes and how many words found no place. `names` instead of the words, an empty one
    for a token without; `colours` (n, 3) of the dots.

    Trap: words keep clear of each other in the layout of now. Beside another panel that is still to
    be drawn or named, take `token_paths` for all panels and then `words_at_ends`.
    """
    if ax is None:
        ax = grid(1, 1, (9.0, 7.5))[0, 0]
    x = token_paths(trajectory, ax, colours)
    return ax, words_at_ends(trajectory, ax, x, names)


def token_paths(trajectory: Trajectory, ax: Any, colours: np.ndarray | None = None) -> np.ndarray:
    """The paths without words, as drawn (layers, n, 2): a circle where a token starts, a dot where
    it ends, early blue, late orange."""
    view = View.of(trajectory.values.astype(np.float64), most=2)
    view.frame(ax, view.x)
    view.name(ax)
    x = view.x
    steps = max(len(x) - 1, 1)
    for k in range(len(x) - 1):
        ax.plot(x[k : k + 2, :, 0], x[k : k + 2, :, 1], color=_shade(k / steps), lw=0.9, alpha=0.65)
    ax.plot(*x[0].T, "o", ms=4, mfc="w", mec=PALETTE[0], mew=1, zorder=4, gid="start")
    if colours is None:
        ax.plot(*x[-1].T, "o", ms=4, color=PALETTE[1], zorder=5, gid="end")
    else:
        ax.scatter(*x[-1].T, s=34, c=colours, edgecolors=INK, linewidths=0.5, zorder=5, gid="end")
    return x


def words_at_ends(
    trajectory: Trajectory, ax: Any, x: np.ndarray, names: Sequence[str] | None = None
) -> int:
    """Names, or else words, or else numbers at the ends of the paths x; those without a place."""
    names = names or trajectory.words or tuple(str(i) for i in range(x.shape[1]))
    return write_words(ax, x[-1], _writable(names), avoid=x[0], paths=x.swapaxes(0, 1))


def _writable(words: Sequence[str]) -> list[str]:
    """The words; the number #i of a token whose script the font of pictures does not have."""
    known = (range(0x0700), range(0x1E00, 0x2800))  # to Arabic; punctuation and mathematics

    def shown(word: str) -> bool:
        return all(any(ord(c) in part for part in known) for c in word)

    return [word if shown(word) else f"#{i}" for i, word in enumerate(words)]


def write_words(
    ax: Any,
    x: np.ndarray,
    names: Sequence[str],
    avoid: np.ndarray | None = None,
    paths: np.ndarray | None = None,
) -> int:
    """Write each name beside its token x (n, 2), over no other name or token, nor over the places
    to `avoid` (m, 2); returns how many found no place.

    Tokens drawn on one spot share a list of their names, empty ones are not written. Greedy: lonely
    tokens choose first, each takes the nearest free place around it. A name lies over one of the
    `paths` (m, layers, 2) only where no place beside them is left.
    """
    figure = ax.figure
    figure.draw_without_rendering()
    frame, unit = ax.get_window_extent(), figure.dpi / 72
    at = ax.transData.transform(x)
    spot = clusters(at, SPOT * unit)
    dots = at if avoid is None else np.concatenate([at, ax.transData.transform(avoid)])
    taken = [*np.concatenate([dots - 3 * unit, dots + 3 * unit], axis=1)]
    lines = np.empty((0, 4)) if paths is None else _along(ax.transData, paths, 4 * unit)
    apart = np.linalg.norm(spot.centres[:, None] - spot.centres, axis=-1)
    np.fill_diagonal(apart, np.inf)
    left = 0
    for group in np.argsort(-apart.min(axis=1), kind="stable").tolist():
        members = np.flatnonzero(spot.labels == group).tolist()
        i = members[0]
        said = [names[j] for j in members if names[j]]
        if not said:
            continue
        text = ax.annotate(
            _listed(said), x[i], (0, 0), textcoords="offset points",
            fontsize=TICK, color=INK, ha="center", va="center", zorder=6, parse_math=False,
            annotation_clip=False, bbox={"fc": "w", "ec": "none", "alpha": 0.7, "pad": 0.3},
        )  # fmt: skip
        text.set_in_layout(False)
        half = _half(text, unit)
        beside = _place(at[i], half, unit, [*taken, *lines], frame, GAPS + FAR)
        place = _place(at[i], half, unit, taken, frame) if beside is None else beside
        if place is None:
            text.remove()
            left += len(said)
            continue
        text.set_position(tuple((place - at[i]) / unit))
        taken.append(np.concatenate([place - half, place + half]))
        if (np.abs(place - at[i]) > half + GAPS[2] * unit).any():
            ends = ax.transData.inverted().transform([at[i], place])
            ax.plot(*ends.T, color=GREY, lw=0.5, zorder=3, gid="pointer")
    return left


def _half(text: Any, unit: float) -> np.ndarray:
    """Half the width and height of a text in pixels, with a point of air on both sides. A line is
    up to 12 % shorter on a screen than in the SVG of a page: the longer one counts."""
    from matplotlib.textpath import text_to_path

    box, font = text.get_window_extent(), text.get_fontproperties()
    lines = text.get_text().split("\n")
    long = max(text_to_path.get_text_width_height_descent(x, font, False)[0] for x in lines)
    return np.array([max(box.width, unit * long) / 2 + unit, box.height / 2])


def _along(transform: Any, paths: np.ndarray, step: float) -> np.ndarray:
    """Small boxes (k, 4) along the paths as drawn, no farther apart than `step` pixels."""
    at = transform.transform(paths.reshape(-1, 2)).reshape(paths.shape)
    begin, way = at[:, :-1].reshape(-1, 2), np.diff(at, axis=1).reshape(-1, 2)
    pieces = np.maximum(np.ceil(np.linalg.norm(way, axis=1) / step).astype(int), 1)
    which = np.repeat(np.arange(len(begin)), pieces)
    share = (np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) / pieces[which]
    dots = np.unique(np.round(begin[which] + share[:, None] * way[which]), axis=0)
    return np.concatenate([dots - 0.25 * step, dots + 0.25 * step], axis=1)


def _listed(names: Sequence[str]) -> str:
    """Names in at most six lines of about 28 characters, repeated ones once; numbers counted."""
    times = Counter(names)
    if len(times) > 6 and all(name.isdigit() for name in times):
        return f"{len(names)} tokens"
    shown = [in_a_list(name) if len(times) > 1 else name for name in times]
    said = ", ".join(x if k == 1 else f"{x} ×{k}" for x, k in zip(shown, times.values()))
    lines = textwrap.wrap(said, 28, break_long_words=False) or [""]
    return "\n".join(lines[:6]) + (" …" if len(lines) > 6 else "")


def _place(
    at: np.ndarray,
    half: np.ndarray,
    unit: float,
    taken: list[np.ndarray],
    frame: Any,
    gaps: Sequence[float] = GAPS,
) -> np.ndarray | None:
    """The nearest free centre for a box around `at`: right, left, above, below, then askew."""
    boxes = np.array(taken)
    for gap in gaps:
        for turn in (0, 1, 0.5, -0.5, 0.25, 0.75, -0.25, -0.75):
            way = np.array([np.cos(np.pi * turn), np.sin(np.pi * turn)])
            place = at + way * (half + gap * unit)
            low, high = place - half, place + half
            inside = (low >= frame.min).all() and (high <= frame.max).all()
            if inside and not ((boxes[:, :2] < high) & (boxes[:, 2:] > low)).all(axis=1).any():
                return place
    return None
