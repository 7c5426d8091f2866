"""A simple leading eigenvalue: tokens tend to at most three hyperplanes, arXiv 2305.05465, Th. 4.1.

If the leading eigenvalue l1 of V is real, positive and simple, with <Qf, Kf> > 0 on its eigenvector
f, the coordinate f1*(z_i) of each rescaled token z_i = e^(-tV) x_i tends to one of at most three
values {a, 0, b}: the tokens tend to parallel hyperplanes, and may go on moving inside them. See the
paper's pictures with its own three matrices (in the plane; in space with the other eigenvalues of
negative, then of positive real part), and the values of f1* over time. Many starts say how often
each number of hyperplanes occurs.

Trap: "at most three" alone tells little. Uniform attention ends on one hyperplane, and so does
attention turned round (K = -I, where <Qf, Kf> > 0 fails), which meets the bound as well. What
attention to one's own side adds is the second hyperplane: tokens part by the sign of f1*.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, counted, over_grid, part, report_of, require, wilson

TITLE = "Three hyperplanes: V with a simple leading eigenvalue"

MATRICES = {
    "2-D": ((0.64709742, 0.81911926), (0.61210449, 0.63263484)),
    "3-D, Re < 0": (
        (0.2362413, 0.0599536, 0.40506019),
        (0.81321448, 0.49948705, 0.33754772),
        (0.2160645, 0.38505272, 0.14588075),
    ),
    "3-D, Re > 0": (
        (0.18608476, 0.34391026, 0.13905949),
        (0.35244288, 0.6694859, 0.39992145),
        (0.46685606, 0.17094454, 0.42092308),
    ),
}
"""V of the paper's figures, as published with it (Q = K = I); Re: of the other eigenvalues."""


@dataclass(frozen=True)
class Params:
    """The paper's start, uniform in [-side, side]^d, and `starts` more of each of `sides`; controls
    with `ns` tokens, groups at the tolerances `tols`, and other kinds of attention."""

    n: int = 40
    side: float = 5.0
    time: float = 20.0
    show: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0, 8.0)
    sides: tuple[float, ...] = (0.3, 1.0, 5.0)
    starts: int = 20
    ns: tuple[int, ...] = (10, 120)
    tols: tuple[float, ...] = (1e-4, 1e-2, 1e-6)
    seed: int = 0


QUICK = Params(starts=2, sides=(1.0, 5.0), ns=(10,))


class Example(NamedTuple):
    """One of the paper's matrices: the hypotheses, the run, and the hyperplanes it ends on."""

    triple: cy.spectra.GoodTriple
    run: cy.Trajectory
    planes: cy.spectra.Hyperplanes


class HyperplaneCount(NamedTuple):
    """The number of hyperplanes of each start, and whether all their values are a, 0 or b."""

    matrix: str
    side: float
    n: int
    attention: str  # one of KINDS
    by_tol: list[list[int]]  # for every tolerance, the number for every start
    right: bool
    zeros: int  # starts with a value at 0 beside others

    @property
    def counts(self) -> list[int]:
        return self.by_tol[0]


KINDS = {"softmax": 1.0, "uniform": 0.0, "turned round": -1.0}
"""K as a multiple of I: the alignment <Qf, Kf> has its sign."""


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The paper's three matrices, then many starts of each."""
    require(p.n >= 2 and p.starts >= 1 and p.time > 1, "n >= 2, starts >= 1, time > 1", p)
    names = {"matrix": tuple(MATRICES)}
    runs = over_grid(_flow, p, names, part(progress, 0, 0.3))
    examples = {
        name: Example(cy.spectra.good_triple(V=V), tr, cy.spectra.hyperplane_values(tr, tol=1e-4))
        for (name, V), tr in zip(MATRICES.items(), runs)
    }
    cases = [
        *((side, p.n, "softmax") for side in p.sides),
        *((p.side, n, "softmax") for n in p.ns),
        *((p.side, p.n, kind) for kind in KINDS if kind != "softmax"),
    ]
    grid = {**names, "start (side, n, attention)": cases}
    every = over_grid(_count, p, grid, part(progress, 0.3, 1))
    counts = [c for c in every if c.n == p.n and c.attention == "softmax"]
    figures = (
        cy.Picture("Tokens and hyperplanes", _PANELS, _draw_planes(p, examples)),
        cy.Picture("Values of f1*", _VALUES, _values(examples)),
    )
    checks = {name: cy.check(e.run, only=("B26",)) for name, e in examples.items()}
    return report_of(
        __name__,
        p,
        _summary(examples, counts),
        controls=_comparisons(p, every),
        tables=_tables(p, examples, every),
        checks=checks,
        figures=figures,
    )


_PANELS = (
    "Rescaled tokens e^(-tV) x_i(t), in the colour of the hyperplane they end on, drawn at the "
    "later times; grey: where they started. Within a hyperplane they need not meet."
)
_VALUES = "The coordinate f1* of every token tends to a or b; the value 0 is not taken here."


def _flow(p: Params, matrix: str) -> cy.Trajectory:
    V = np.array(MATRICES[matrix])
    z0 = p.side * cy.configurations.box(p.n, len(V), p.seed)
    times = np.linspace(0, p.time, int(20 * p.time) + 1)
    return cy.simulate(cy.RescaledFlow(V=V), z0, times=times, stepper=cy.Adaptive(1e-9, 1e-12))


def _count(p: Params, matrix: str, case: tuple[float, int, str]) -> HyperplaneCount:
    side, n, kind = case
    V = np.array(MATRICES[matrix])
    # y = e^{-l1 t} x has the same f1*, and nothing in it grows
    flow = cy.LeadingFlow(K=KINDS[kind] * np.eye(len(V)), V=V)
    # error control would follow every change of mind of tokens near the border of two sides
    stepper = cy.RK4(0.05)
    starts = [side * cy.configurations.box(n, len(V), p.seed + s) for s in range(p.starts)]
    runs = [cy.simulate(flow, z0, times=[0.0, p.time], stepper=stepper) for z0 in starts]
    ends = [[cy.spectra.hyperplane_values(tr, tol=tol) for tr in runs] for tol in p.tols]
    return HyperplaneCount(
        matrix=matrix,
        side=side,
        n=n,
        attention=kind,
        by_tol=[[len(h.values) for h in group] for group in ends],
        right=all(h.holds for h in ends[0]),
        zeros=sum(_at_zero(h) for h in ends[0]),
    )


def _at_zero(h: cy.spectra.Hyperplanes) -> bool:
    """Is one of several values 0, up to 1e-3 of the largest?"""
    return len(h.values) > 1 and float(np.abs(h.values).min() / np.abs(h.values).max()) < 1e-3


def _comparisons(p: Params, every: list[HyperplaneCount]) -> list[cy.Comparison]:
    """n and tolerances varied; uniform attention and attention turned round as null models."""

    def of(kind: str, tol: int = 0) -> list[int]:
        return [k for c in every if c.attention == kind for k in c.by_tol[tol]]

    soft, at_zero = of("softmax"), sum(c.zeros for c in every if c.attention == "softmax")
    two = {kind: (sum(k >= 2 for k in of(kind)), len(of(kind))) for kind in KINDS}
    alike = {tol: sum(k <= 3 for k in of("softmax", j)) for j, tol in enumerate(p.tols)}
    short = [
        k for c in every if c.attention == "softmax" and c.side == min(p.sides) for k in c.counts
    ]
    return [
        cy.Comparison(
            "f1* takes at most three values",
            f"n = {', '.join(map(str, (p.n, *p.ns)))}; tolerances; tokens that do not attend keep "
            f"all n; uniform attention, which meets the bound too",
            "; ".join(f"tol {tol:g}: {counted(k, len(soft))}" for tol, k in alike.items())
            + f"; uniform: {sum(k <= 3 for k in of('uniform'))} of {two['uniform'][1]}",
            min(alike.values()) == len(soft),
        ),
        cy.Comparison(
            "attention can part the tokens onto two hyperplanes",
            "uniform attention and attention turned round",
            "two or more: " + "; ".join(f"{kind}: {counted(*k)}" for kind, k in two.items()),
            wilson(*two["softmax"])[0]
            > max(wilson(*k)[1] for kind, k in two.items() if kind != "softmax"),
        ),
        cy.Comparison(
            "there are always two hyperplanes",
            f"starts of half a side {min(p.sides):g}",
            f"two: {counted(sum(k == 2 for k in short), len(short))}; one: {short.count(1)}",
            all(k == 2 for k in short),
        ),
        cy.Comparison(
            "the third hyperplane, f1* = 0, is not seen from random starts",
            "all starts, n and sizes",
            f"seen in {counted(at_zero, len(soft))}",
            at_zero == 0,
        ),
    ]


def _summary(examples: dict[str, Example], counts: list[HyperplaneCount]) -> str:
    text = []
    for name, e in examples.items():
        sizes = zip(e.planes.values, np.bincount(e.planes.labels), strict=True)
        values = ", ".join(f"{v:.4f} ({c} tokens)" for v, c in sizes)
        text.append(f"{name}: l1 = {e.triple.leading.real:.4f}; f1* ends at {values}.")
    every = [k for c in counts for k in c.counts]
    share = ", ".join(f"{k}: {every.count(k)}" for k in sorted(set(every)))
    return (
        " ".join(text) + f"\n\nNumber of hyperplanes over {len(every)} random starts ({share}). In "
        f"{sum(c.right for c in counts)} of {len(counts)} groups of starts all values are of the "
        "form a < 0 < b or 0. One hyperplane alone means that softness brought all tokens to one "
        "side."
    )


def _tables(
    p: Params, examples: dict[str, Example], counts: list[HyperplaneCount]
) -> list[cy.Table]:
    planes, triples = [], []
    for name, e in examples.items():
        groups = [e.planes.f[e.planes.labels == g] for g in range(len(e.planes.values))]
        sizes = zip(e.planes.values.tolist(), groups)
        planes += [(name, value, len(f), float(np.ptp(f))) for value, f in sizes]
        values = np.linalg.eigvals(MATRICES[name])
        text = (f"{v.real:.3f}{v.imag:+.3f}i" if v.imag else f"{v.real:.3f}" for v in values)
        triples.append((name, ", ".join(text), e.triple.gap, e.triple.alignment, e.triple.holds))
    columns = ("matrix", "value of f1*", "tokens", "spread at the end")
    hypotheses = ("matrix", "eigenvalues of V", "l1 - |l2|", "<Qf, Kf>", "good triple")
    counted: dict[str, Any] = {
        "matrix": "matrix",
        "attention": "attention",
        "side": "side",
        "n": "n",
        "starts": lambda c: len(c.counts),
        "one": lambda c: c.counts.count(1),
        "two": lambda c: c.counts.count(2),
        "three": lambda c: c.counts.count(3),
        "all of the form {a, 0, b}": "right",
    }
    note = f"Groups of f1* at t = {p.time:g}, gaps above 1e-4 of the largest value."
    return [
        cy.Table("Hyperplanes found", columns, tuple(planes)),
        cy.Table("Hypotheses", hypotheses, tuple(triples)),
        cy.Table.of("Number of hyperplanes over random starts", counts, counted, note),
    ]


def _draw_planes(p: Params, examples: dict[str, Example]) -> Any:
    def draw(ax: Any, name: str, z: np.ndarray, t: float) -> None:
        """{f1* = value}: a line across the frame in the plane, a patch under tokens in space."""
        e = examples[name]
        w = e.triple.dual
        basis = np.linalg.svd(w[None])[2][1:]  # spans the hyperplane f1* = 0
        for group, value in enumerate(e.planes.values if t >= max(p.show) / 2 else ()):
            foot = value * w / (w @ w)
            if len(w) == 2:
                ax.axline(foot, foot + basis[0], color=cy.plot.GREY, lw=1, ls="--", zorder=1.5)
            else:
                seen = (z[e.planes.labels == group] - foot) @ basis.T
                corners = list(product(*zip(seen.min(axis=0) - 2, seen.max(axis=0) + 2)))
                cy.plot.shade(ax, cy.hull(foot + np.array(corners) @ basis), cy.plot.GREY, 0.25)

    return cy.plot.paths({k: (e.run, e.planes.labels) for k, e in examples.items()}, p.show, draw)


def _values(examples: dict[str, Example]) -> Any:
    figure, axes = cy.plot.sheet(1, len(examples), 4, 3.3)
    for ax, (name, e) in zip(axes[0], examples.items()):
        f = e.run.values @ e.triple.dual
        for values, group in zip(f.T, e.planes.labels):
            ax.plot(e.run.t, values, color=cy.plot.PALETTE[group], lw=0.8)
        for value in e.planes.values:
            ax.axhline(value, color=cy.plot.INK, lw=0.8, ls="--")
            place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            look = {"ha": "right", "fontsize": cy.plot.LABEL}
            ax.annotate(f"{value:.3f}", (1, value), (-2, 3), **look, **place)
        low, high = float(f.min()), float(f.max())
        ax.set(xlabel="time t", xlim=(0, 10), ylim=(low - 0.05 * (high - low), 1.12 * high))
        ax.set_ylabel("$f_1^*(z_i)$")
        ax.set_title(name, loc="left", fontsize=cy.plot.LABEL)
    return figure
