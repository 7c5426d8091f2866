"""What experiments share: a sheet of axes, means with their errors, a check of one number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..theorems import Check

__all__ = ["means", "measured", "sheet"]


def sheet(
    rows: int, columns: int, width: float | int = 4, height: float | int = 3.4
) -> tuple[Any, Any]:
    """A figure and its (rows, columns) axes, without the two frame lines nobody reads."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def means(ax: Any, x: Any, samples: Any, **look: Any) -> None:
    """The mean of each sample against x, joined, with a bar of one standard error up and down."""
    rows = [np.asarray(sample, dtype=float) for sample in samples]
    error = [row.std(ddof=1) / np.sqrt(len(row)) if len(row) > 1 else 0.0 for row in rows]
    style = {"fmt": "o-", "ms": 4, "capsize": 2, "elinewidth": 0.8, **look}
    ax.errorbar(x, [row.mean() for row in rows], error, **style)


def measured(
    theorem: str,
    reference: str,
    statement: str,
    value: float | int,
    tol: float | int,
    **witness: Any,
) -> Check:
    """The check value <= tol, for statements that are about many runs at once."""
    return Check(
        theorem,
        reference,
        statement,
        applies=True,
        holds=bool(value <= tol),
        margin=float(tol - value),
        tol=float(tol),
        witness={"measured": float(value), **witness},
        hypotheses=(),
        arithmetic="float64",
    )
