"""In many dimensions: the rank of P(t) along tokens that attend, and along tokens that do not.

    coupled  x_i' = sum_j P_ij V x_j         uncoupled  x_i' = V x_i,   P of the same formula

The script published with arXiv 2305.05465 for this picture moves the tokens by V alone: attention
is drawn but never used. The part of `boolean_attention` that shows what this changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...analysis.spectra import epsilon_rank, propagate
from ...drawing.report import Table
from ...dynamics import LeadingFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive

__all__ = ["Pair", "compare", "curves", "table", "text"]


class Pair(NamedTuple):
    """Ranks of P at the times t (in 1/l1), and P at the last of them, for both kinds of tokens."""

    t: np.ndarray
    ranks: dict[str, list[int]]  # "coupled", "uncoupled"
    last: dict[str, np.ndarray]


def compare(n: int, d: int, eps: float, time: float, seed: int) -> dict[str, Pair]:
    """V = I and a random V (entries N(0, 1/d)), from tokens of length about 1 and 5."""
    random = np.random.default_rng([seed, d]).standard_normal((d, d)) / np.sqrt(d)
    found = {}
    for length in (1.0, 5.0):
        z0 = length * np.sqrt(3 / d) * configurations.box(n, d, seed)
        for name, V in (("V = I", np.eye(d)), ("random V", random)):
            found[f"{name}, tokens of length {length:g}"] = _pair(V, z0, eps, time)
    return found


def _pair(V: np.ndarray, z0: np.ndarray, eps: float, time: float) -> Pair:
    flow = LeadingFlow(V=V)
    times = np.linspace(0, time, 41) / flow.leading
    run = simulate(flow, z0, times=times, stepper=Adaptive(1e-7, 1e-10))
    alone = propagate(np.eye(len(z0)), V - flow.leading * np.eye(len(V)), z0, times)
    P = {
        name: [flow.weights(y, t) for y, t in zip(states, times.tolist(), strict=True)]
        for name, states in (("coupled", run.values), ("uncoupled", alone))
    }
    ranks = {name: [epsilon_rank(M, eps) for M in matrices] for name, matrices in P.items()}
    return Pair(times * flow.leading, ranks, {name: found[-1] for name, found in P.items()})


def table(found: dict[str, Pair], eps: float) -> Table:
    rows = []
    for name, pair in found.items():
        for k in (0, 10, 20, 30, 40):
            row = [name, float(pair.t[k])]
            rows.append((*row, pair.ranks["coupled"][k], pair.ranks["uncoupled"][k]))
    columns = ("run", "l1 t", "rank of P, coupled", "rank of P, uncoupled")
    note = f"Singular values above {eps:g} of the largest. Times in units of 1/l1, V's growth."
    return Table("Rank in many dimensions", columns, tuple(rows), note)


def text(found: dict[str, Pair], n: int, d: int) -> str:
    ends = "; ".join(
        f"{name}: {p.ranks['coupled'][-1]} against {p.ranks['uncoupled'][-1]}"
        for name, p in found.items()
    )
    return (
        f"d = {d}, n = {n}, rank of P at the end for tokens that attend against tokens moved by V "
        f"alone, as in the published script: {ends}."
    )


def curves(found: dict[str, Pair]) -> Any:
    """Above: ranks over time. Below: both P at the end, side by side."""
    from matplotlib.figure import Figure

    from ...drawing.plot import LABEL, PALETTE, TICK

    figure = Figure(figsize=(3.1 * len(found), 4.9), layout="constrained")
    grid = figure.add_gridspec(2, 2 * len(found), height_ratios=(1.35, 1))
    for column, (name, pair) in enumerate(found.items()):
        ax = figure.add_subplot(grid[0, 2 * column : 2 * column + 2])
        for colour, (kind, ranks) in zip(PALETTE, pair.ranks.items()):
            ax.plot(pair.t, ranks, color=colour, lw=1.8, label=kind)
        ax.set_title(name.replace(", ", "\n"), fontsize=LABEL)
        ax.set_xlabel("time $l_1 t$", fontsize=LABEL)
        ax.set_ylim(0, 1.06 * len(pair.last["coupled"]))
        ax.tick_params(labelsize=TICK)
        ax.spines[["top", "right"]].set_visible(False)
        if column == 0:
            ax.set_ylabel("rank of $P(t)$", fontsize=LABEL)
            ax.legend(frameon=False, fontsize=LABEL, loc="lower left")
        for side, (kind, P) in enumerate(pair.last.items()):
            small = figure.add_subplot(grid[1, 2 * column + side])
            small.imshow(P, cmap="magma_r", vmin=0, vmax=1, interpolation="nearest")
            small.set_title(kind, fontsize=TICK + 0.5)
            small.set(xticks=[], yticks=[])
    return figure
