"""One style for every figure: colours, font sizes, a sheet of axes."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

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


def show_in_notebooks() -> None:
    """Let IPython show our figures, made without pyplot, and axes; elsewhere nothing happens."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        formatters = shell.display_formatter.formatters
        pictures = formatters["image/png"]
        if not any(Figure in every.type_printers for every in formatters.values()):
            pictures.for_type(Figure, _picture)  # else pyplot's, in the format asked for
        pictures.for_type(Axes, _of_axes)


def _of_axes(ax: Any) -> bytes | None:
    """The whole figure, unless it is one of pyplot, which shows it at the end of the cell."""
    figure = ax.figure.figure
    return _picture(figure) if figure.canvas.manager is None else None


def _picture(figure: Any) -> bytes:
    """The figure as PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", bbox_inches="tight")
    return out.getvalue()


show_in_notebooks()
