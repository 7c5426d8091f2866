"""Long context: one attention layer on n tokens when beta = gamma log n (arXiv 2512.01868).

n unit tokens with common cosine r; one softmax layer. As n grows the cosine of the outputs tends to
1 if gamma (1 - r) < 1 (attention averages everything: rank collapse), to r if gamma (1 - r) > 1
(attention copies: nothing happens), and to 4r/(1 + 3r) at gamma (1 - r) = 1 (docs/mathematics.md
B32). See the closed form sharpen into a step as n runs from 10 to 10^12, real layers of up to some
thousand tokens lie on it, and how slowly, like powers of 1/n, it converges. beta of the order
log n is the only scaling with anything to choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...theorems.long_context import output_cosine
from .._frame import Progress, over_grid, part, report_of, require

TITLE = "Long context: beta = gamma log n"


@dataclass(frozen=True)
class Params:
    """Closed form for `n` tokens of cosine `r`; real layers for `measured` tokens."""

    r: tuple[float, ...] = (0.2, 0.5, 0.8)
    n: tuple[int, ...] = (10, 10**3, 10**6, 10**9, 10**12)
    edges: int = 161
    measured: tuple[int, ...] = (10, 100, 1000)
    at: tuple[float, ...] = (0.5, 0.75, 1.0, 1.25, 1.5)


QUICK = Params(measured=(10, 100), edges=81)


class Layer(NamedTuple):
    """One real layer at edge = gamma (1 - r): the cosine of its outputs, and the closed form."""

    r: float
    n: int
    edge: float
    cosine: float
    expected: float
    check: cy.Check

    @property
    def error(self) -> float:
        return abs(self.cosine - self.expected)


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Real layers first, then the closed form."""
    sensible = min(*p.n, *p.measured) >= 2 and all(0 < r < 1 for r in p.r) and min(p.at) > 0
    require(sensible, "n >= 2, 0 < r < 1 and at > 0", p)
    axes = {"r": p.r, "n": p.measured, "gamma (1 - r)": p.at}
    layers = over_grid(_layer, p, axes, part(progress, 0, 0.8))
    checks: dict[str, list[cy.Check]] = {}
    for c in layers:
        checks.setdefault(f"r = {c.r:g}, n = {c.n}", []).append(c.check)
    # one verdict per (r, n): that of the gamma with the least to spare
    tightest = {name: [min(group, key=lambda c: c.margin)] for name, group in checks.items()}
    shown = {"r": "r", "n": "n", "gamma (1 - r)": "edge", "cosine": "cosine"}
    columns = shown | {"off the closed form": "error"}
    tables = [_limits(p), cy.Table.of("Layers computed on real tokens", layers, columns)]
    figures = [cy.Picture("Cosine of the outputs", _CAPTION, _draw(p, layers))]
    text = _summary(p, layers)
    return report_of(__name__, p, text, tables=tables, checks=tightest, figures=figures)


_CAPTION = (
    "Cosine of two outputs against gamma (1 - r), inputs of cosine r (dotted). Lines: closed form; "
    "circles: layers computed on real tokens; black: the limits, a point at the critical gamma."
)


def _layer(p: Params, r: float, n: int, edge: float) -> Layer:
    """n tokens of common cosine r, the rows of a root of their Gram matrix, through one layer."""
    x = np.linalg.cholesky((1 - r) * np.eye(n) + r * np.ones((n, n)))
    beta = edge / (1 - r) * log(n)
    tr = cy.simulate(cy.PureAttention(cy.Softmax(beta), alpha=1), x, layers=1)
    y = 2 * tr.values[1] - tr.values[0]  # alpha = 1: the layer is the mean of token and pull
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    cosine = float((unit[:2] @ unit[-2:].T)[0, -1])
    return Layer(r, n, edge, cosine, _closed(n, r, edge), cy.check(tr, only=("B32",))[0])


def _closed(n: int, r: float, edge: float) -> float:
    return output_cosine(n, r, edge / (1 - r) * log(n))


def _limit(r: float, edge: float) -> float:
    """By the edge itself: gamma (1 - r) computed back may miss 1 by a rounding."""
    return 1.0 if edge < 1 else r if edge > 1 else 4 * r / (1 + 3 * r)


def _summary(p: Params, layers: list[Layer]) -> str:
    n, r = max(p.n), p.r[len(p.r) // 2]
    three = ", ".join(
        f"{_closed(n, r, edge):.4f} for gamma (1 - r) = {edge:g} (limit {_limit(r, edge):.4f})"
        for edge in (0.75, 1.0, 1.25)
    )
    return (
        f"{len(layers)} layers on up to {max(p.measured)} tokens agree with the closed form to "
        f"{max(c.error for c in layers):.1g}. For r = {r:g} and n = {n:.0e} the outputs have "
        f"cosine {three}."
    )


def _limits(p: Params) -> cy.Table:
    rows = tuple(
        (r, edge, *(_closed(n, r, edge) for n in p.n), _limit(r, edge))
        for r in p.r
        for edge in p.at
    )
    columns = ("r", "gamma (1 - r)", *(f"n = {n:.0e}" for n in p.n), "limit")
    return cy.Table("Cosine of the outputs, closed form", columns, rows)


def _power(n: int) -> str:
    power = round(np.log10(n))
    return f"$n = 10^{{{power}}}$" if n == 10**power else f"n = {n}"


def _draw(p: Params, layers: list[Layer]) -> Any:
    figure, (axes,) = cy.plot.sheet(1, len(p.r), 3.9, 3.7)
    edges = np.linspace(0.3, 1.8, p.edges)
    for ax, r in zip(axes, p.r):
        for colour, n in zip(cy.plot.PALETTE, sorted({*p.n, *p.measured})):
            ax.plot(edges, [_closed(n, r, e) for e in edges], color=colour, lw=1.3, label=_power(n))
            here = [c for c in layers if (c.r, c.n) == (r, n)]
            ax.plot([c.edge for c in here], [c.cosine for c in here], "o", ms=4, color=colour)
        ax.axhline(r, color=cy.plot.GREY, lw=1, ls=":")
        ax.plot([0.3, 1], [1, 1], color=cy.plot.INK, lw=1)
        ax.plot([1, 1.8], [r, r], color=cy.plot.INK, lw=1)
        ax.plot([1], [_limit(r, 1.0)], "D", ms=5, color=cy.plot.INK, zorder=5)
        ax.set(xlabel=r"$\gamma\,(1 - r)$", ylim=(0.9 * min(p.r), 1.03))
        ax.set_title(f"r = {r:g}", fontsize=cy.plot.LABEL)
    axes[0].set_ylabel("cosine of two outputs")
    cy.plot.legend_below(axes[0], len({*p.n, *p.measured}))
    return figure
