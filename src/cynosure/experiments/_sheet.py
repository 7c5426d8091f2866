"""What experiments on flows share: a sheet of axes, and a check made of one measured number."""

from __future__ import annotations

from typing import Any

from ..theorems import Check

__all__ = ["measured", "sheet"]


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
