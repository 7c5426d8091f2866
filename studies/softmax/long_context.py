"""Long context: one attention layer on n tokens when beta = gamma log n (arXiv 2512.01868).

n unit tokens with common cosine r; one softmax layer. As n grows the cosine of the outputs tends to
1 if gamma (1 - r) < 1 (attention averages everything: rank collapse), to r if gamma (1 - r) > 1
(attention copies: nothing happens), and to 4r/(1 + 3r) at gamma (1 - r) = 1 (docs/mathematics.md
B32). See the closed form sharpen into a step as n runs from 10 to 10^12, real layers of up to some
thousand tokens lie on it, and how slowly, like powers of 1/n, it converges. beta of the order
log n is the only scaling with anything to choose.

Trap: all this is about tokens whose cosines are equal. Random tokens of mean cosine r in d
dimensions have cosines that spread like 1/sqrt(d), and beta times that spread is what a softmax
sees: each token then copies its few nearest. The control has such tokens; they come to the closed
form only as d grows beyond (log n)^2.
"""

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems.long_context import output_cosine

TITLE = "Long context: beta = gamma log n"


@dataclass(frozen=True)
class Params:
    """Closed form for `n` tokens of cosine `r`; real layers for `measured` tokens; the control has
    random tokens of mean cosine r in each of the dimensions `d`, `starts` times."""

    r: tuple[float, ...] = (0.2, 0.5, 0.8)
    n: tuple[int, ...] = (10, 10**3, 10**6, 10**9, 10**12)
    edges: int = 161
    measured: tuple[int, ...] = (10, 100, 1000)
    at: tuple[float, ...] = (0.5, 0.75, 1.0, 1.25, 1.5)
    d: tuple[int, ...] = (16, 64, 256, 1024, 4096)
    starts: int = 5
    seed: int = 0


QUICK = Params(measured=(10, 100), edges=81, d=(16, 256), starts=2)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Real layers first, then the closed form."""
    over = st.measuring(p, progress)
    sensible = min(*p.n, *p.measured) >= 2 and all(0 < r < 1 for r in p.r) and min(p.at) > 0
    st.require(sensible, "n >= 2, 0 < r < 1 and at > 0", p)
    axes = {"r": p.r, "n": p.measured, "gamma (1 - r)": p.at}
    layers = over(_layer, axes, 0.5)
    middle = p.r[len(p.r) // 2]
    grid = {"random tokens, d": p.d, "gamma (1 - r)": p.at}
    spread = over(_spread, grid)
    checks: dict[str, list[cy.theorems.Check]] = {}
    for c in layers:
        checks.setdefault(f"r = {c.r:g}, n = {c.n}", []).append(c.check)
    # one verdict per (r, n): that of the gamma with the least to spare
    tightest = {name: [min(group, key=lambda c: c.margin)] for name, group in checks.items()}
    columns = st.columns("r, n, gamma (1 - r) = edge, cosine, off the closed form = error")
    random = st.columns(
        "d, gamma (1 - r) = edge, mean cosine = mean cosines, equal angles = expected, off = error"
    )
    note = f"r = {middle:g}, n = {max(p.measured)}, means over {p.starts} starts and many pairs."
    tables = [
        _limits(p),
        st.Table.of("Layers computed on real tokens", layers, columns),
        st.Table.of("Random tokens of mean cosine r", spread, random, note),
    ]
    figures = [st.Picture.of("Cosine of the outputs", _draw, p, layers)]
    return st.report_of(
        p,
        _summary(p, layers),
        controls=_comparisons(p, layers, spread),
        tables=tables,
        checks=tightest,
        figures=figures,
    )


def _spread(p: Params, d: int, edge: float) -> st.Cell:
    """The mean cosine of the outputs of a layer, per start, and the closed form.

    x_i = sqrt(r) u + sqrt(1 - r) g_i, u and g_i independent and uniform on the sphere of R^d.
    """
    r, n = p.r[len(p.r) // 2], max(p.measured)
    beta, cosines = edge / (1 - r) * log(n), []
    for s in range(p.starts):
        g = cy.configurations.sphere(n + 1, d, p.seed + s)
        x = np.sqrt(r) * g[0] + np.sqrt(1 - r) * g[1:]
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        tr = cy.simulate(cy.PureAttention(cy.Softmax(beta), alpha=1), x, layers=1)
        y = 2 * tr.values[1] - tr.values[0]  # alpha = 1: the layer is the mean of token and pull
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        total = np.sum(y, axis=0)
        cosines.append(float((total @ total - n) / (n * (n - 1))))  # the mean over all pairs
    expected = _closed(n, r, edge)
    error = abs(float(np.mean(cosines)) - expected)
    return st.Cell(r=r, d=d, edge=edge, cosines=cosines, expected=expected, error=error)


def _comparisons(p: Params, layers: list[st.Cell], spread: list[st.Cell]) -> list[st.Comparison]:
    """Real layers, how near the limit a real context is, and tokens whose cosines are not equal."""
    worst, n = max(c.error for c in layers), max(p.measured)
    off = {d: max(c.error for c in spread if c.d == d) for d in p.d}
    away = {m: max(abs(_closed(m, r, e) - _limit(r, e)) for r in p.r for e in p.at) for m in p.n}
    million = min(p.n, key=lambda m: abs(m - 10**6))
    return [
        st.Comparison(
            "a layer on tokens of equal cosines gives the closed form",
            "r, n, gamma",
            f"off by {worst:.1g} at most in {len(layers)} layers",
            worst < 1e-12,
        ),
        st.Comparison(
            f"the limits 1, 4r/(1 + 3r), r are off by less than 0.05 for n = {million:.0e}",
            "the closed form at finite n",
            "largest distance over r and gamma: "
            + ", ".join(f"{x:.2f} at n = {m:.0e}" for m, x in away.items()),
            away[million] < 0.05,
        ),
        st.Comparison(
            f"it holds for random tokens of mean cosine r in high dimension only, d = {max(p.d)}",
            f"{p.starts} starts of {n} tokens in d dimensions",
            "largest distance over gamma: "
            + ", ".join(f"{x:.3f} in d = {d}" for d, x in off.items()),
            off[max(p.d)] < 0.05 < off[min(p.d)],
        ),
    ]


def _layer(p: Params, r: float, n: int, edge: float) -> st.Cell:
    """n tokens of common cosine r, the rows of a root of their Gram matrix, through one layer."""
    x = np.linalg.cholesky((1 - r) * np.eye(n) + r * np.ones((n, n)))
    beta = edge / (1 - r) * log(n)
    tr = cy.simulate(cy.PureAttention(cy.Softmax(beta), alpha=1), x, layers=1)
    y = 2 * tr.values[1] - tr.values[0]  # alpha = 1: the layer is the mean of token and pull
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    cosine = float((unit[:2] @ unit[-2:].T)[0, -1])
    expected, check = _closed(n, r, edge), cy.check(tr, only=("B32",))[0]
    found = {"cosine": cosine, "expected": expected, "error": abs(cosine - expected)}
    return st.Cell(r=r, n=n, edge=edge, **found, check=check)


def _closed(n: int, r: float, edge: float) -> float:
    return output_cosine(n, r, edge / (1 - r) * log(n))


def _limit(r: float, edge: float) -> float:
    """By the edge itself: gamma (1 - r) computed back may miss 1 by a rounding."""
    return 1.0 if edge < 1 else r if edge > 1 else 4 * r / (1 + 3 * r)


def _summary(p: Params, layers: list[st.Cell]) -> str:
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


def _limits(p: Params) -> st.Table:
    rows = tuple(
        (r, edge, *(_closed(n, r, edge) for n in p.n), _limit(r, edge))
        for r in p.r
        for edge in p.at
    )
    columns = ("r", "gamma (1 - r)", *(f"n = {n:.0e}" for n in p.n), "limit")
    return st.Table("Cosine of the outputs, closed form", columns, rows)


def _power(n: int) -> str:
    power = round(np.log10(n))
    return f"$n = 10^{{{power}}}$" if n == 10**power else f"n = {n}"


def _draw(p: Params, layers: list[st.Cell]) -> Any:
    """Cosine of two outputs against gamma (1 - r), inputs of cosine r (dotted). Lines: closed form;
    circles: layers computed on real tokens; black: the limits, a point at the critical gamma.
    """
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
