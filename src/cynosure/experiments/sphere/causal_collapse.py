"""Causal attention: every token tends to the first one, arXiv 2411.04990.

On the sphere with V = I token k looks only at tokens 1..k. The first one never moves, and from
almost every start all others tend to it (docs/mathematics.md B34), later tokens later; large beta
holds them up in clusters of their own on the way. See the tokens on S^2 end at x_1, the cosines to
x_1 over time, and how long the k-th token takes, for several beta. In dimension 1 the statement is
false: the sphere is two points, and a token opposite to the first never moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, over_grid, part, report_of, require

TITLE = "Causal attention: collapse to the first token"


@dataclass(frozen=True)
class Params:
    """n tokens uniform on the sphere of R^d; `starts` such starts for the arrival times."""

    n: int = 24
    d: int = 3
    beta: tuple[float, ...] = (0.0, 2.0, 4.0)
    time: float = 300.0
    saved: int = 300
    show: tuple[float, ...] = (0.0, 2.0, 5.0, 10.0, 300.0)
    met: float = 1e-2
    starts: int = 20
    seed: int = 0


QUICK = Params(beta=(0.0, 2.0), time=100.0, saved=120, show=(0.0, 2.0, 10.0, 100.0), starts=3)


class Collapse(NamedTuple):
    """One start in detail, and the arrival times of many."""

    beta: float
    run: cy.Trajectory
    arrivals: np.ndarray  # (starts, n)

    @property
    def name(self) -> str:
        return f"beta = {self.beta:g}"


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """One start per beta in detail, many for the arrival times, and the line."""
    sensible = min(p.d, p.n) >= 2 and p.starts >= 1 and p.time > 1
    require(sensible, "d, n >= 2, starts >= 1, time > 1", p)
    collapses = over_grid(_collapse, p, {"beta": p.beta}, part(progress, 0, 0.7))
    figures = [cy.Picture("Cosine to the first token", _COSINES, _curves(p, collapses))]
    if p.d == 3:
        figures.insert(0, cy.Picture("Tokens on the sphere", _SPHERES, _spheres(p, collapses)))
    checks = {c.name: cy.check(c.run, only=("B34",)) for c in collapses}
    text, tables = _summary(p, collapses), _tables(p, collapses)
    return report_of(__name__, p, text, tables=tables, checks=checks, figures=figures)


_SPHERES = (
    "Uniform tokens on S^2, seen from above the first one (cross): dark ones come early in the "
    "sequence, light ones late; the far side is small. All end at the cross."
)
_COSINES = (
    "Left: 1 - <x_k, x_1> for the largest beta, dark lines for early tokens. Right: median time at "
    "which the k-th token is within `met` of x_1, over random starts."
)


def _flow(beta: float) -> cy.SphereFlow:
    return cy.SphereFlow(cy.Causal(cy.Softmax(beta)))


def _gap(x: np.ndarray) -> np.ndarray:
    """1 - <x_k, x_1> from distances, which do not cancel; (..., n)."""
    return np.sum((x - x[..., :1, :]) ** 2, axis=-1) / 2


def _collapse(p: Params, beta: float) -> Collapse:
    times = np.concatenate([[0.0], np.geomspace(1e-2, p.time, p.saved)])
    z0 = cy.configurations.sphere(p.n, p.d, p.seed)
    tr = cy.simulate(_flow(beta), z0, times=times, stepper=cy.Adaptive(1e-9, 1e-11, "LSODA"))
    return Collapse(beta, tr, _arrivals(p, beta, times))


def _arrivals(p: Params, beta: float, times: np.ndarray) -> np.ndarray:
    """(starts, n): the first saved time from which a token stays near x_1; inf if it does not."""
    z0 = np.stack([cy.configurations.sphere(p.n, p.d, p.seed + s) for s in range(p.starts)])
    tr = cy.simulate(_flow(beta), z0, times=times, stepper=cy.RK4(0.2))
    far = _gap(tr.values) > p.met  # (times, starts, n)
    last = len(times) - np.argmax(far[::-1], axis=0)  # one past the last time it was far
    last[~far.any(axis=0)] = 0
    return np.append(times, np.inf)[last]


def _summary(p: Params, collapses: list[Collapse]) -> str:
    return " ".join(
        f"{c.name}: at t = {c.run.t[-1]:g} every token is within 1 - cos = "
        f"{_gap(c.run.values[-1]).max():.2g} of the first, which moved by "
        f"{np.abs(c.run.values[:, 0] - c.run.values[0, 0]).max():.1g}; over {len(c.arrivals)} "
        f"starts {np.isfinite(c.arrivals).mean():.1%} of the tokens have arrived (1 - cos <= "
        f"{p.met:g})."
        for c in collapses
    )


def _tables(p: Params, collapses: list[Collapse]) -> list[cy.Table]:
    rows = []
    for c in collapses:
        for k in [c.run.nearest(t) for t in p.show]:
            gap = _gap(c.run.values[k])
            far = float(gap.max()), float(np.median(gap[1:]))  # the first has gap 0
            rows.append((c.name, float(c.run.t[k]), *far, int((gap <= p.met).sum())))
    columns = ("run", "t", "largest 1 - cos", "median 1 - cos", "arrived")
    names = ("k", *(c.name for c in collapses))
    medians = np.median([c.arrivals for c in collapses], axis=1).T
    arrived = [
        (k, *(t if np.isfinite(t) else None for t in row))
        for k, row in enumerate(medians[1:].tolist(), 2)
    ]
    z0 = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    end = cy.simulate(_flow(1.0), z0, time=100.0).values[-1]
    line = zip((1, 2, 3, 4), z0[:, 0].tolist(), end[:, 0].tolist())
    note = "Tangent velocities vanish on a sphere of two points."
    return [
        cy.Table("Distance from the first token", columns, tuple(rows)),
        cy.Table("Median arrival of the k-th token", names, tuple(arrived)),
        cy.Table("Dimension 1", ("token", "start", "at t = 100"), tuple(line), note),
    ]


def _colours(n: int) -> np.ndarray:
    """Dark for tokens early in the sequence, light for late ones."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0, 0.92, n))


def _spheres(p: Params, collapses: list[Collapse]) -> Any:
    def draw(ax: Any, name: str, z: np.ndarray) -> None:
        # a basis whose third vector is x_1, which never moves: we look down on it
        basis = np.linalg.qr(np.column_stack([z[0], np.eye(3)[:, :2]]))[0]
        x = z @ np.column_stack([basis[:, 1], basis[:, 2], z[0]])
        size = np.where(x[:, 2] >= 0, 24, 7)
        ax.scatter(*x[:, :2].T, s=size, c=_colours(p.n), linewidths=0, zorder=2)
        ax.plot([0], [0], "+", color=cy.plot.INK, ms=9, zorder=3)

    return cy.plot.globes({c.name: c.run for c in collapses}, p.show, draw)


def _curves(p: Params, collapses: list[Collapse]) -> Any:
    figure, ((left, right),) = cy.plot.sheet(1, 2, 5.5, 3.7)
    last = collapses[-1]
    gap = np.where((g := _gap(last.run.values[1:])) > 1e-16, g, np.nan)
    for colour, line in zip(_colours(p.n)[1:], gap.T[1:]):
        left.plot(last.run.t[1:], line, color=colour)
    left.set(xscale="log", yscale="log", xlabel="time t", ylim=(1e-14, 5))
    left.set_ylabel(r"$1 - \langle x_k, x_1 \rangle$")
    left.set_title(last.name, loc="left", fontsize=cy.plot.LABEL)
    for colour, c in zip(cy.plot.PALETTE, collapses):
        middle = np.median(c.arrivals, axis=0)[1:]
        right.plot(1 + np.arange(1, p.n), middle, "o-", ms=3.5, color=colour, label=c.name)
    right.set(yscale="log", xlabel="token k", ylabel="median arrival")
    cy.plot.plain_log(right.yaxis)
    right.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure
