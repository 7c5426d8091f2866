"""A simple leading eigenvalue: tokens tend to at most three hyperplanes, arXiv 2305.05465, Th. 4.1.

If the leading eigenvalue l1 of V is real, positive and simple, with <Qf, Kf> > 0 on its eigenvector
f, the coordinate f1*(z_i) of each rescaled token z_i = e^(-tV) x_i tends to one of at most three
values {a, 0, b}: the tokens tend to parallel hyperplanes, and may go on moving inside them. See the
paper's pictures with its own three matrices (in the plane; in space with the other eigenvalues of
negative, then of positive real part), and the values of f1* over time. Many starts say how often
each number of hyperplanes occurs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, over_grid, part, report_of, require

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
    """The paper's start, uniform in [-side, side]^d, and `starts` more of each of `sides`."""

    n: int = 40
    side: float = 5.0
    time: float = 20.0
    show: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0, 8.0)
    sides: tuple[float, ...] = (1.0, 5.0)
    starts: int = 20
    seed: int = 0


QUICK = Params(starts=2)


class Example(NamedTuple):
    """One of the paper's matrices: the hypotheses, the run, and the hyperplanes it ends on."""

    triple: cy.spectra.GoodTriple
    run: cy.Trajectory
    planes: cy.spectra.Hyperplanes


class HyperplaneCount(NamedTuple):
    """The number of hyperplanes of each start, and whether all their values are a, 0 or b."""

    matrix: str
    side: float
    counts: list[int]
    right: bool


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The paper's three matrices, then many starts of each."""
    require(p.n >= 2 and p.starts >= 1 and p.time > 1, "n >= 2, starts >= 1, time > 1", p)
    names = {"matrix": tuple(MATRICES)}
    runs = over_grid(_flow, p, names, part(progress, 0, 0.3))
    examples = {
        name: Example(cy.spectra.good_triple(V=V), tr, cy.spectra.hyperplane_values(tr, tol=1e-4))
        for (name, V), tr in zip(MATRICES.items(), runs)
    }
    counts = over_grid(_count, p, {**names, "side": p.sides}, part(progress, 0.3, 1))
    figures = (
        cy.Picture("Tokens and hyperplanes", _PANELS, _draw_planes(p, examples)),
        cy.Picture("Values of f1*", _VALUES, _values(examples)),
    )
    checks = {name: cy.check(e.run, only=("B26",)) for name, e in examples.items()}
    text, tables = _summary(examples, counts), _tables(p, examples, counts)
    return report_of(__name__, p, text, tables=tables, checks=checks, figures=figures)


_PANELS = (
    "Rescaled tokens e^(-tV) x_i(t), in the colour of the hyperplane they end on, drawn at the "
    "later times; grey: where they started. Within a hyperplane they need not meet."
)
_VALUES = "The coordinate f1* of every token tends to a, b, or, never seen from random starts, 0."


def _flow(p: Params, matrix: str) -> cy.Trajectory:
    V = np.array(MATRICES[matrix])
    z0 = p.side * cy.configurations.box(p.n, len(V), p.seed)
    times = np.linspace(0, p.time, int(20 * p.time) + 1)
    return cy.simulate(cy.RescaledFlow(V=V), z0, times=times, stepper=cy.Adaptive(1e-9, 1e-12))


def _count(p: Params, matrix: str, side: float) -> HyperplaneCount:
    V = np.array(MATRICES[matrix])
    flow = cy.LeadingFlow(V=V)  # y = e^{-l1 t} x has the same f1*, and nothing in it grows
    stepper = cy.Adaptive(1e-8, 1e-10, "LSODA")
    starts = [side * cy.configurations.box(p.n, len(V), p.seed + s) for s in range(p.starts)]
    runs = [cy.simulate(flow, z0, times=[0.0, p.time], stepper=stepper) for z0 in starts]
    ends = [cy.spectra.hyperplane_values(tr, tol=1e-4) for tr in runs]
    return HyperplaneCount(matrix, side, [len(h.values) for h in ends], all(h.holds for h in ends))


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
        "side": "side",
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
