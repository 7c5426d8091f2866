"""The chapter of a report on a picture: attention, sinks and leaders where they are in it."""

from __future__ import annotations

import numpy as np

from ...drawing.report import Picture, Report, Table
from ..reading.traces import Trace, leaders_by_layer

MOST_LAYERS = 12  # panels; of deeper models, layers evenly apart
ACROSS = 4


def picture_chapter(trace: Trace, *, pictures: bool = True) -> Report:
    """Who is looked at, and who leads, on the grid of the patches."""
    grid = trace.grid
    assert grid is not None  # only traces of pictures come here
    received = trace.attentions.astype(np.float64).mean(axis=(1, 2))
    special = received[:, : len(grid.special)].sum(axis=1)
    leads = _leads(trace)
    sinks = received.argmax(axis=1)
    names = grid.names
    rows = tuple(
        (k, float(special[k]), names[sinks[k]], float(received[k, sinks[k]]),
         int((leads[k, len(grid.special) :] > 0).sum()), names[int(leads[k].argmax())],
         int(leads[k].max()))
        for k in range(len(received))
    )  # fmt: skip
    columns = ("layer", f"share of {', '.join(grid.special)}", "sink", "its share",
               "patches that lead", "most often", "in heads")  # fmt: skip
    where = [names[i] for i in sinks]
    elsewhere = sum(name not in grid.special for name in where)
    even = len(grid.special) / len(names)
    summary = (
        f"{grid.rows} x {grid.columns} patches. Special tokens ({', '.join(grid.special)}) get "
        f"{special.min():.1%} to {special.max():.1%} of the attention of a layer ({even:.1%} would "
        f"be even). The most attended token is a patch in {elsewhere} of {len(where)} layers."
    )
    note = "Means over heads and over the tokens that look; a leader looks at itself most."
    table = Table("The picture by layer", columns, rows, note)
    figures = (_figure(trace, received, leads),) if pictures else ()
    return Report("Attention on the picture", summary, {}, (table,), {}, figures)


def _leads(trace: Trace) -> np.ndarray:
    """In how many heads each token leads, by layer."""
    counts = np.zeros((trace.attentions.shape[0], trace.z.shape[1]), dtype=np.int64)
    for row in leaders_by_layer(trace):
        counts[row["layer"], row["token"]] = row["leads"]
    return counts


def _figure(trace: Trace, received: np.ndarray, leads: np.ndarray) -> Picture:
    from ...drawing.plot import INK, PALETTE, TITLE
    from .pictures import grid

    patches = trace.grid
    assert patches is not None
    layers = np.unique(np.linspace(0, len(received) - 1, min(MOST_LAYERS, len(received))).round())
    panels = [int(k) for k in layers]
    down = -(-(len(panels) + 1) // ACROSS)
    axes = grid(down, ACROSS, (12.0, 3.1 * down * patches.rows / patches.columns + 0.4)).flat
    share = patches.over(received)
    top = float(share.max())
    extent = (-0.5, patches.columns - 0.5, patches.rows - 0.5, -0.5)
    picture = trace.picture
    for ax, k in zip(axes, [None, *panels]):
        if picture is not None:
            fade = picture if k is None else 0.35 + 0.65 * picture.mean(axis=-1, keepdims=True)
            ax.imshow(np.broadcast_to(fade, picture.shape), extent=extent, interpolation="nearest")
        for edge in range(1, patches.columns):
            ax.axvline(edge - 0.5, color="w", lw=0.3, alpha=0.7)
        for edge in range(1, patches.rows):
            ax.axhline(edge - 0.5, color="w", lw=0.3, alpha=0.7)
        ax.set(xticks=[], yticks=[])
        if k is None:
            ax.set_title("what the model sees", fontsize=TITLE, loc="left")
            continue
        image = ax.imshow(share[k], cmap="magma", alpha=0.65, vmin=0, vmax=top, extent=extent)
        heads = patches.over(leads[k])
        y, x = np.nonzero(heads)
        size = 12 + 60 * heads[y, x] / trace.attentions.shape[1]
        ax.scatter(x, y, s=size, marker="*", color=PALETTE[2], edgecolors=INK, linewidths=0.4)
        sink = int(received[k].argmax()) - len(patches.special)
        if sink >= 0:
            row, column = divmod(sink, patches.columns)
            ax.plot([column], [row], "s", ms=9, mfc="none", mec=PALETTE[1], mew=1.6)
        mass = received[k, : len(patches.special)].sum()
        to = " and ".join(patches.special)
        ax.set_title(f"layer {k}: {mass:.1%} to {to}", fontsize=TITLE, loc="left")
    for ax in axes[len(panels) + 1 :]:
        ax.remove()
    bar = axes[0].figure.colorbar(image, ax=list(axes[: len(panels) + 1]), fraction=0.02, pad=0.01)
    bar.set_label("share of the attention", fontsize=8)
    caption = (
        "Colour: the share of a layer's attention that a patch receives, mean over heads and over "
        "tokens that look. Stars: patches that look at themselves most, larger where they do so in "
        "more heads. Square: the most attended token, where it is a patch. What the special tokens "
        "receive stands above each panel."
    )
    return Picture("Attention on the picture", caption, axes[0].figure)
