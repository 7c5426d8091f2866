"""V with a multiple leading eigenvalue: polytope x hyperplane, arXiv 2305.05465, Theorem 5.1.

V = l I on F (dim F > 1) and smaller elsewhere, Q^T K positive definite: the components in F of the
rescaled tokens tend to the boundary of a polytope of F, or to 0, while the others go their own way.
See the paper's V = diag(1, 1, -1/2), n = 40: seen from above a polygon, from the side lines that
grow without end. The proof bounds a remainder that is not small when Q^T K couples F with the rest;
there the statement is open, and the second row and the sweep probe it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, over_grid, part, report_of, require

TITLE = "V with multiplicity: polytope x hyperplane"


@dataclass(frozen=True)
class Params:
    """V = diag(1, 1, rest); Q^T K = I plus `coupling` c between F and the third direction."""

    n: int = 40
    side: float = 5.0
    rest: float = -0.5
    coupling: float = 0.6
    time: float = 16.0
    show: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0)
    couplings: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.68)
    starts: int = 12
    seed: int = 0


QUICK = Params(couplings=(0.0, 0.6), starts=2)


class LimitsInF(NamedTuple):
    """The components in F at the end: their clusters, their hull, and how far inside they are."""

    centres: np.ndarray
    labels: np.ndarray
    body: cy.Polytope
    inside: float  # largest distance of a component from the boundary and from 0, relative


class CouplingCensus(NamedTuple):
    """All starts of one coupling."""

    coupling: float
    limits: list[int]  # the number of limits of each start
    inner: int  # limits that are no vertex, in all
    inside: float  # largest of all


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The paper's run, a coupled one, and many starts of each coupling."""
    sensible = 0 <= max(*p.couplings, p.coupling) < 0.7071 and p.rest < 1 and p.starts >= 1
    require(sensible, "couplings in [0, 0.707), where Q^T K is definite, rest < 1, starts >= 1", p)
    shown = {c: f"coupled, c = {c:g}" if c else "Q^T K = I" for c in (0.0, p.coupling)}
    flows = over_grid(_flow, p, {"coupling": tuple(shown)}, part(progress, 0, 0.1))
    runs = dict(zip(shown.values(), flows))
    ends = {name: _limits(tr) for name, tr in runs.items()}
    sweep = over_grid(_census, p, {"coupling": p.couplings}, part(progress, 0.1, 1))
    rescaled = {name: (_rescaled(p, tr), ends[name].labels) for name, tr in runs.items()}
    figures = (
        cy.Picture("Tokens", _TOKENS, cy.plot.paths(rescaled, p.show, equal=False)),
        cy.Picture("Components in F", _ABOVE, _above(p, runs, ends)),
    )
    checks = {name: cy.check(tr, only=("B27",)) for name, tr in runs.items()}
    text, tables = _summary(p, ends, sweep), _tables(ends, sweep)
    return report_of(__name__, p, text, tables=tables, checks=checks, figures=figures)


_TOKENS = (
    "Rescaled tokens in the colour of the vertex of the polytope in F that they end at. Along the "
    "vertical, third direction V is smaller, and tokens spread (axes not to one scale)."
)
_ABOVE = "The components in F of the same tokens and their hull; dashed: the limiting polygon."


def _matrices(p: Params, c: float) -> dict[str, np.ndarray | None]:
    """V; Q = K with Q^T K = I + c (e1 e3^T + e3 e1^T + e2 e3^T + e3 e2^T), definite: c < 1/2^.5."""
    A = np.eye(3)
    A[:2, 2] = A[2, :2] = c
    Q = np.linalg.cholesky(A).T if c else None
    return {"Q": Q, "K": Q, "V": np.diag([1.0, 1.0, p.rest])}


def _flow(p: Params, c: float) -> cy.Trajectory:
    """y = e^{-t} x: its components in F are those of the rescaled tokens, and none of it grows."""
    z0 = p.side * cy.configurations.box(p.n, 3, p.seed)
    times = np.linspace(0, p.time, int(20 * p.time) + 1)
    flow = cy.LeadingFlow(**_matrices(p, c))
    return cy.simulate(flow, z0, times=times, stepper=cy.Adaptive(1e-9, 1e-12))


def _rescaled(p: Params, tr: cy.Trajectory) -> cy.Trajectory:
    """z = e^{-tV} x = e^{t(I - V)} y."""
    growth = np.exp(np.outer(tr.t, [0.0, 0.0, 1 - p.rest]))
    return replace(tr, z=tr.values * growth[:, None])


def _limits(tr: cy.Trajectory) -> LimitsInF:
    size = float(np.linalg.norm(tr.values[0, :, :2], axis=1).max())
    groups = cy.clusters(tr.values[-1, :, :2], 1e-4 * size)
    centres, body = groups.centres, cy.hull(groups.centres)
    if body.dim < 2:  # a segment or a point is all boundary
        return LimitsInF(centres, groups.labels, body, 0.0)
    depth = -(centres @ body.equations[:, :-1].T + body.equations[:, -1]).max(axis=1)
    inside = np.minimum(depth.clip(0), np.linalg.norm(centres, axis=1))
    return LimitsInF(centres, groups.labels, body, float(inside.max()) / size)


def _census(p: Params, c: float) -> CouplingCensus:
    flow, stepper = cy.LeadingFlow(**_matrices(p, c)), cy.Adaptive(1e-8)
    starts = [p.side * cy.configurations.box(p.n, 3, p.seed + s) for s in range(p.starts)]
    runs = [cy.simulate(flow, z0, times=[0.0, p.time], stepper=stepper) for z0 in starts]
    ends = [_limits(tr) for tr in runs]
    inner = sum(len(e.centres) - len(e.body.index) for e in ends)
    return CouplingCensus(c, [len(e.centres) for e in ends], inner, max(e.inside for e in ends))


def _summary(p: Params, ends: dict[str, LimitsInF], sweep: list[CouplingCensus]) -> str:
    text = [
        f"{name}: the components in F of {p.n} tokens have {len(e.centres)} limits, "
        f"{len(e.body.index)} of them vertices of their hull; none is further than {e.inside:.1g} "
        "from its boundary and from 0, relative to the longest."
        for name, e in ends.items()
    ]
    coupled = [cell for cell in sweep if cell.coupling > 0]
    worst = max(cell.inside for cell in coupled)
    text.append(
        "Where Q^T K couples F with the rest, which the proof does not cover, "
        f"{sum(len(cell.limits) for cell in coupled)} random runs end at most {worst:.1g} inside: "
        + ("no counterexample." if worst < 1e-3 else "look at these starts.")
    )
    return "\n\n".join(text)


def _tables(ends: dict[str, LimitsInF], sweep: list[CouplingCensus]) -> list[cy.Table]:
    rows = tuple(
        (name, tuple(e.centres[g].tolist()), int((e.labels == g).sum()), g in e.body.index)
        for name, e in ends.items()
        for g in range(len(e.centres))
    )
    columns: dict[str, Any] = {
        "coupling": "coupling",
        "least eigenvalue of Q^T K": lambda cell: float(1 - np.sqrt(2) * cell.coupling),
        "runs": lambda cell: len(cell.limits),
        "mean limits": lambda cell: float(np.mean(cell.limits)),
        "no vertex": "inner",
        "inside": "inside",
    }
    note = "Inside: largest distance of a limit from the boundary and 0, relative to the longest."
    return [
        cy.Table("Limits in F", ("run", "limit", "tokens", "vertex"), rows),
        cy.Table.of("Coupling F with the rest", sweep, columns, note),
    ]


def _above(p: Params, runs: dict[str, cy.Trajectory], ends: dict[str, LimitsInF]) -> Any:
    figure, axes = cy.plot.sheet(len(runs), len(p.show), 2.4, 2.6)
    for line, (name, tr) in zip(axes, runs.items()):
        end = ends[name]
        ring = end.body.ordered() if end.body.dim == 2 else end.body.vertices
        for ax, t in zip(line, p.show):
            k = tr.nearest(t)
            f = tr.values[k, :, :2]
            cy.plot.shade(ax, cy.hull(f))
            ax.plot(*np.concatenate([ring, ring[:1]]).T, "--", color=cy.plot.INK, lw=0.8)
            cy.plot.dots(ax, f, end.labels, s=18, zorder=3)
            ax.set_title(f"t = {tr.t[k]:g}", fontsize=cy.plot.LABEL)
            frame = (-1.15 * p.side, 1.15 * p.side)
            ax.set(xlim=frame, ylim=frame, aspect="equal")
        line[0].set_ylabel(f"{name}\n$z_2$")
    for ax in axes[-1]:
        ax.set_xlabel("$z_1$")
    return figure
