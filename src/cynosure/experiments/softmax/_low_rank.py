"""In many dimensions: the rank of P(t) along tokens that attend, and along tokens that do not.

    coupled  x_i' = sum_j P_ij V x_j         uncoupled  x_i' = V x_i,   P of the same formula

The script published with arXiv 2305.05465 for this picture moves the tokens by V alone: attention
is drawn but never used. The part of `boolean_attention` that shows what this changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

__all__ = ["Ranks", "compare", "curves", "last", "table", "text"]


class Ranks(NamedTuple):
    """Ranks of P at the times t (in 1/l1), and P at the last of them, for both kinds of tokens."""

    t: np.ndarray
    ranks: dict[str, list[int]]  # "coupled", "uncoupled"
    last: dict[str, np.ndarray]


def compare(n: int, d: int, eps: float, time: float, seed: int) -> dict[str, Ranks]:
    """V = I and a random V (entries N(0, 1/d)), from tokens of length about 1 and 5."""
    random = np.random.default_rng([seed, d]).standard_normal((d, d)) / np.sqrt(d)
    return {
        f"{name}, tokens of length {length:g}": _ranks(
            V, length * np.sqrt(3 / d) * cy.configurations.box(n, d, seed), eps, time
        )
        for length in (1.0, 5.0)
        for name, V in (("V = I", np.eye(d)), ("random V", random))
    }


def _ranks(V: np.ndarray, z0: np.ndarray, eps: float, time: float) -> Ranks:
    flow = cy.LeadingFlow(V=V)
    times = np.linspace(0, time, 41) / flow.leading
    # fixed steps: a random V may lead with a complex pair, and turning tokens change their minds
    # for ever, which error control would follow
    run = cy.simulate(flow, z0, times=times, stepper=cy.RK4(0.02 / flow.leading))
    alone = cy.spectra.propagate(np.eye(len(z0)), V - flow.leading * np.eye(len(V)), z0, times)
    P = {
        name: [flow.weights(y, t) for y, t in zip(states, times.tolist(), strict=True)]
        for name, states in (("coupled", run.values), ("uncoupled", alone))
    }
    ranks = {name: [cy.spectra.epsilon_rank(M, eps) for M in P[name]] for name in P}
    return Ranks(times * flow.leading, ranks, {name: P[name][-1] for name in P})


def table(runs: dict[str, Ranks], eps: float) -> cy.Table:
    rows = tuple(
        (name, float(r.t[k]), r.ranks["coupled"][k], r.ranks["uncoupled"][k])
        for name, r in runs.items()
        for k in (0, 10, 20, 30, 40)
    )
    columns = ("run", "l1 t", "rank of P, coupled", "rank of P, uncoupled")
    note = f"Singular values above {eps:g} of the largest. Times in units of 1/l1, V's growth."
    return cy.Table("Rank in many dimensions", columns, rows, note)


def last(runs: dict[str, Ranks]) -> dict[str, tuple[int, int]]:
    """The ranks at the end, of tokens that attend and of tokens that do not."""
    return {name: (r.ranks["coupled"][-1], r.ranks["uncoupled"][-1]) for name, r in runs.items()}


def text(runs: dict[str, Ranks], n: int, d: int) -> str:
    ends = "; ".join(
        f"{name}: {r.ranks['coupled'][-1]} against {r.ranks['uncoupled'][-1]}"
        for name, r in runs.items()
    )
    return (
        f"d = {d}, n = {n}, rank of P at the end for tokens that attend against tokens moved by V "
        f"alone, as in the published script: {ends}."
    )


def curves(runs: dict[str, Ranks]) -> Any:
    """Above: ranks over time. Below: both P at the end, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.1 * len(runs), 4.9), layout="constrained")
    grid = figure.add_gridspec(2, 2 * len(runs), height_ratios=(1.35, 1))
    for column, (name, r) in enumerate(runs.items()):
        ax = cy.plot.tidy(figure.add_subplot(grid[0, 2 * column : 2 * column + 2]))
        for colour, (kind, ranks) in zip(cy.plot.PALETTE, r.ranks.items()):
            ax.plot(r.t, ranks, color=colour, lw=1.8, label=kind)
        ax.set_title(name.replace(", ", "\n"), fontsize=cy.plot.LABEL)
        ax.set(xlabel="time $l_1 t$", ylim=(0, 1.06 * len(r.last["coupled"])))
        if column == 0:
            ax.set_ylabel("rank of $P(t)$")
            ax.legend(frameon=False, fontsize=cy.plot.LABEL, loc="lower left")
        for side, (kind, P) in enumerate(r.last.items()):
            small = figure.add_subplot(grid[1, 2 * column + side])
            small.imshow(P, cmap="magma_r", vmin=0, vmax=1, interpolation="nearest")
            small.set_title(kind, fontsize=cy.plot.TICK + 0.5)
            small.set(xticks=[], yticks=[])
    return figure
