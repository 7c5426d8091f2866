"""The sphere S^2 as discs, one per run and time: shared by the experiments on three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import cynosure as cy

from ..softmax._flow_panels import nearest

__all__ = ["globes"]


def globes(
    runs: Mapping[str, cy.Trajectory],
    show: Sequence[float],
    draw: Callable[[Any, str, np.ndarray], None],
) -> Any:
    """One row per run, one column per time; draw(axes, name of the run, its tokens (n, 3))."""
    figure, axes = cy.plot.sheet(len(runs), len(show), 2.25, 2.35)
    angle = np.linspace(0, 2 * np.pi, 200)
    for row, (name, tr) in zip(axes, runs.items()):
        for ax, time in zip(row, show):
            k = nearest(tr, time)
            ax.fill(np.cos(angle), np.sin(angle), color=cy.plot.PALE, alpha=0.4, lw=0, zorder=0)
            draw(ax, name, tr.values[k])
            ax.set_title(f"t = {tr.t[k]:.3g}", fontsize=cy.plot.LABEL)
            ax.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal", xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(name, fontsize=cy.plot.LABEL)
    return figure
