"""The jump chain at finite beta: how long a vertex holds its tokens (arXiv 2508.09628).

    z_i <- (1 - g) z_i + g z_j,   j drawn with probability P_ij = softmax of beta <z_i, z_j>

Tokens at the vertices of a regular polygon of p vertices. See: the first exit is geometric with
probability 1 - (1 - q)^n a layer, q = s/(1 + s), s = sum_j exp(-beta (1 - cos(2 pi j/p))): its
logarithm grows like beta (1 - cos(2 pi/p)), so that polygons with many vertices hold less.

Beside it: the step g, which the exit cannot depend on; more tokens at each vertex, which exit
sooner in proportion; beta = 0, where nothing holds; and tokens off the polygon by a tenth.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import log, log1p
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems.trapping import exit_probability

TITLE = "The jump chain: trapped at vertices"


@dataclass(frozen=True)
class Params:
    """`runs` chains from a polygon of each number of `vertices`, for at most `layers` layers, at
    each of the `barriers` beta (1 - cos(2 pi/p)); `varied` are (vertices, tokens at each vertex, g,
    share by which tokens are moved at random) besides, at the middle barrier."""

    vertices: tuple[int, ...] = (3, 4, 6)
    barriers: tuple[float, ...] = (0.0, 3.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    g: float = 0.5
    layers: int = 2000
    runs: int = 400
    varied: tuple[tuple[int, int, float, float], ...] = (
        (4, 1, 0.1, 0.0), (4, 1, 0.9, 0.0), (4, 3, 0.5, 0.0), (4, 8, 0.5, 0.0), (4, 1, 0.5, 0.1),
    )  # fmt: skip
    seed: int = 0


QUICK = Params(
    vertices=(3, 4), barriers=(0.0, 3.0), layers=200, runs=40, varied=((4, 3, 0.2, 0.0),)
)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """First exits from every polygon at every temperature, then other steps and starts."""
    over = st.measuring(p, progress)
    sensible = min(p.vertices) >= 3 and p.runs >= 10 and p.layers >= 10 and 0 < p.g < 1
    st.require(sensible, "vertices >= 3, runs >= 10, layers >= 10, 0 < g < 1", p)
    sizes = [(k, 1, p.g, 0.0) for k in p.vertices]
    axes: dict[str, Any] = {"start": sizes, "barrier": p.barriers}
    cells = over(_cell, axes, 0.7)
    axes = {"start": p.varied, "barrier": [_middle(p)]}
    others = over(_cell, axes)
    fitting = [c for c in (*cells, *others) if c.off == 0]
    outside = sum(not _fits(c) for c in fitting)
    law = st.at_most(
        "geometric exits",
        "arXiv 2508.09628, finite beta; docs/mathematics.md B21",
        "the share of exits before the expected median is that of the geometric law",
        outside,
        max(1, round(0.15 * len(fitting))),  # 5 % of 95 % intervals miss; three times as many
        cells=len(fitting),
    )
    return st.report_of(
        p,
        _summary(p, cells),
        controls=_controls(p, cells, others),
        tables=[_table("Polygons", cells), _table("Other steps, crowds and starts", others)],
        checks={"exits": [law]},
        figures=[st.Picture.of("First exit against beta", _curves, p, [*cells, *others])],
    )


def _middle(p: Params) -> float:
    return p.barriers[len(p.barriers) // 2]


def _cell(p: Params, size: tuple[int, int, float, float], barrier: float | int) -> st.Cell:
    """First exits of the chains of one cell; a chain that never leaves is counted at the end."""
    k, each, g, off = size
    beta = barrier / (1 - float(np.cos(2 * np.pi / k)))
    corners = np.repeat(cy.configurations.polygon(k), each, axis=0)
    rng = np.random.default_rng([p.seed, k])
    z0 = corners + off * rng.standard_normal((p.runs, k * each, 2))
    seed = p.seed + 100 * each + round(1000 * (g + off))  # of its own: the same draws would agree
    chain = cy.dynamics.JumpChain(cy.Softmax(beta), g, seed)
    z, exits = z0, np.zeros(p.runs, dtype=int)
    for layer in range(p.layers):  # nothing of a run is needed after its exit: no trajectory
        z = chain.step(z, layer)
        moved = np.abs(z - z0).max(axis=(1, 2)) > 0.05 * g
        exits[(exits == 0) & moved] = layer + 1
        if exits.all():
            break
    held = int((exits == 0).sum())
    exits[exits == 0] = p.layers + 1
    n, q = k * each, exit_probability(k, beta)
    stay = n * log1p(-q)  # log of the probability that nobody leaves in a layer
    expected = float(max(1, np.ceil(-log(2) / stay)))
    low, high = st.resampled(exits, np.median)
    return st.Cell(
        **{"vertices": k, "each": each, "g": g, "off": off, "barrier": barrier, "beta": beta},
        **{"middle": float(np.median(exits)), "low": low, "high": high},
        **{"held": held, "runs": p.runs},  # chains that never left, and all
        expected=expected,  # the median of the geometric law
        below=int((exits <= expected).sum()),  # exits not later than that
        chance=float(1 - np.exp(stay * expected)),  # of that under the law
    )


def _fits(c: st.Cell) -> bool:
    low, high = st.wilson(c.below, c.runs)
    return low <= c.chance <= high


def _table(title: str, cells: list[st.Cell]) -> st.Table:
    columns = st.columns(
        "vertices, tokens at each = each, g, moved by = off, barrier, beta, median exit = middle"
    )
    columns |= {"95 %": lambda c: (c.low, c.high)}
    columns |= st.columns("expected, never left = held")
    columns |= {"exits by then": lambda c: c.below / c.runs, "under the law": "chance"}
    note = "The first exit of any token, in layers; medians are capped where chains never left."
    return st.Table.of(title, cells, columns, note)


def _slope(cells: list[st.Cell]) -> float:
    """Of log median against the barrier, where it is 3 layers or more and most chains left."""
    some = [c for c in cells if c.middle >= 3 and c.held < c.runs / 4]
    if len(some) < 2:
        return float("nan")
    return float(np.polyfit([c.barrier for c in some], np.log([c.middle for c in some]), 1)[0])


def _controls(p: Params, cells: list[st.Cell], others: list[st.Cell]) -> list[st.Comparison]:
    fitting = [c for c in (*cells, *others) if c.off == 0]
    right = sum(map(_fits, fitting))
    middle, every = _middle(p), (*cells, *others)
    ours = [c for c in every if c.vertices == 4 and c.barrier == middle and c.off == 0]
    steps = [c for c in ours if c.each == 1]
    crowds = sorted((c for c in ours if c.g == p.g), key=lambda c: c.each)
    moved = [c for c in others if c.off > 0]
    free = [c for c in cells if c.barrier == 0]
    return [
        st.Comparison(
            "First exits follow the geometric law.",
            "every number of vertices, beta, g and crowd, by the share of exits before the "
            "expected median; beta = 0",
            f"the law is inside the 95 % interval in {right} of {len(fitting)} cells; medians at "
            f"beta = 0: {', '.join(f'{c.middle:g}' for c in free)}",
            right >= 0.85 * len(fitting),
        ),
        st.Comparison(
            "The exit does not depend on the step g.",
            f"g at the barrier {middle:g}, 4 vertices, other draws",
            "; ".join(f"g = {c.g:g}: {c.middle:g} ({c.low:g} to {c.high:g})" for c in steps),
            len(steps) > 1 and max(c.low for c in steps) <= min(c.high for c in steps),
        ),
        st.Comparison(
            "More tokens exit sooner, in proportion.",
            f"tokens at each vertex at the barrier {middle:g}, 4 vertices",
            "; ".join(f"{c.each}: {c.middle:g} (expected {c.expected:g})" for c in crowds),
            len(crowds) > 1
            and all(a.middle > b.middle for a, b in pairwise(crowds))
            and all(map(_fits, crowds)),
        ),
        *(
            st.Comparison(
                "The law is that of the exact polygon only.",
                f"tokens moved by {c.off:g} at random",
                f"median {c.middle:g} ({c.low:g} to {c.high:g}), law of the polygon {c.expected:g}",
                not _fits(c),
            )
            for c in moved
        ),
    ]


def _summary(p: Params, cells: list[st.Cell]) -> str:
    told = []
    for k, of in st.grouped(cells, "vertices").items():
        slope = _slope(of)
        fitted = "" if np.isnan(slope) else f", by {slope:.3f} per unit of the barrier (expected 1)"
        told.append(
            f"{k} vertices: from {of[0].middle:g} layers at 0 to {of[-1].middle:g} at "
            f"{of[-1].barrier:g} (expected {of[-1].expected:g}){fitted}"
        )
    return f"Median first exit of {p.runs} chains. {'. '.join(told)}."


def _curves(p: Params, cells: list[st.Cell]) -> Any:
    """Median of the first exit with its 95 % interval, by number of vertices; lines: the geometric
    law; the grey line is the last layer of the runs, where medians are capped. Hollow: other steps,
    more tokens at each vertex (sooner), and tokens moved off the polygon.
    """
    figure, ((ax,),) = cy.plot.sheet(1, 1, 7.4, 4.2)
    for colour, k in zip(cy.plot.PALETTE, p.vertices):
        of = [c for c in cells if c.vertices == k and c.each == 1 and c.g == p.g and c.off == 0]
        beta = np.linspace(0, max(c.beta for c in of), 60)
        law = [-log(2) / (k * log1p(-exit_probability(k, float(b)))) for b in beta]
        ax.plot(beta, np.maximum(law, 1), color=colour, lw=1)
        middle = np.array([c.middle for c in of])
        bars = np.abs(np.array([(c.low, c.high) for c in of]).T - middle)
        look: dict[str, Any] = {"ms": 5, "capsize": 2, "color": colour, "label": f"{k} vertices"}
        ax.errorbar([c.beta for c in of], middle, bars, fmt="o", **look)
    varied = [c for c in cells if c.off or c.each > 1 or c.g != p.g]
    hollow: dict[str, Any] = {"mfc": "white", "color": cy.plot.INK, "ms": 6, "label": "varied"}
    ax.plot([c.beta for c in varied], [c.middle for c in varied], "s", **hollow)
    ax.axhline(p.layers, color=cy.plot.GREY, lw=0.8)
    ax.set(yscale="log", xlabel="beta", ylabel="first exit (layers)")
    ax.set_ylim(bottom=0.7)
    figure.legend(frameon=False, fontsize=cy.plot.LABEL, loc="outside right upper")
    return figure
