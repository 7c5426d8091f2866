"""One style for every figure: colours, font sizes, a sheet of axes, means with their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

__all__ = [
    "GREY",
    "INK",
    "LABEL",
    "PALE",
    "PALETTE",
    "SHADE",
    "TICK",
    "TITLE",
    "legend_below",
    "means",
    "plain_log",
    "sheet",
    "tidy",
]

# Okabe and Ito's colours without yellow and black, then Tol's muted ones: told apart by the
# colour-blind. Past the last one they repeat; nobody tells thirty colours apart.
PALETTE = (
    "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #332288 #882255 #999933 #44AA99"
    " #AA4499 #117733 #CC6677 #88CCEE #DDCC77 #6F4E37 #7F6BB0 #004D40 #B8336A #5C7A99"
).split()
INK, GREY, PALE, SHADE = "#222222", "#8C8C8C", "#DDDDDD", "#9DB4C8"
TITLE, LABEL, TICK = 10.0, 9.0, 7.5  # font sizes in points


def sheet(
    rows: int = 1, columns: int = 1, width: float | int = 4, height: float | int = 3.4, **how: Any
) -> tuple[Figure, np.ndarray]:
    """A figure and its (rows, columns) axes, each `width` by `height` inches, tidied.

    `how` goes to `Figure.subplots` (sharex, gridspec_kw, ...).

    Examples
    --------
    >>> figure, axes = sheet(1, 2)
    >>> axes.shape
    (1, 2)
    """
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **how)
    for ax in axes.flat:
        tidy(ax)
    return figure, axes


def tidy(ax: Any) -> Any:
    """Two spines and a pale grid behind the data; the sizes of labels; returns the axes."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(labelsize=TICK + 0.5, color=GREY)
    ax.xaxis.label.set_size(LABEL)
    ax.yaxis.label.set_size(LABEL)
    ax.grid(True, color=PALE, lw=0.5)
    ax.set_axisbelow(True)
    return ax


def means(ax: Any, x: Any, samples: Any, **look: Any) -> None:
    """The mean of each sample against x, joined, with a bar of one standard error up and down."""
    rows = [np.asarray(sample, dtype=float) for sample in samples]
    error = [row.std(ddof=1) / np.sqrt(len(row)) if len(row) > 1 else 0.0 for row in rows]
    style = {"fmt": "o-", "ms": 4, "capsize": 2, "elinewidth": 0.8, **look}
    ax.errorbar(x, [row.mean() for row in rows], error, **style)


def legend_below(ax: Any, columns: int = 4) -> None:
    """One legend for the whole figure of `ax`, with the entries of `ax`, below all panels."""
    handles, labels = ax.get_legend_handles_labels()
    how = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": LABEL}
    ax.figure.legend(handles, labels, **how)


def plain_log(axis: Any) -> None:
    """1, 2, 5, 10, 20, ... in plain figures along a logarithmic axis (`ax.xaxis` or `ax.yaxis`)."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())
