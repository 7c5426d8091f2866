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
    chance: list[float]  # per start: share of random draws of as many tokens on their boundary


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
    controls = _controls(p, sweep)
    return report_of(
        __name__, p, text, controls=controls, tables=tables, checks=checks, figures=figures
    )


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
    body = cy.hull(groups.centres)
    inside = _inside(groups.centres, body) / size
    return LimitsInF(groups.centres, groups.labels, body, inside)


def _inside(points: np.ndarray, body: cy.Polytope) -> float:
    """The largest distance of a point from the boundary of the body and from 0."""
    if body.dim < 2:  # a segment or a point is all boundary
        return 0.0
    depth = -(points @ body.equations[:, :-1].T + body.equations[:, -1]).max(axis=1)
    return float(np.minimum(depth.clip(0), np.linalg.norm(points, axis=1)).max())


def _chance(rng: np.random.Generator, z: np.ndarray, count: int, draws: int = 40) -> float:
    """How often `count` random tokens of z would all be on the boundary of their hull, or 0."""
    size = float(np.linalg.norm(z, axis=1).max())
    sets = (z[rng.choice(len(z), count, replace=False)] for _ in range(draws))
    return sum(_inside(some, cy.hull(some)) <= 1e-3 * size for some in sets) / draws


def _census(p: Params, c: float) -> CouplingCensus:
    flow, stepper = cy.LeadingFlow(**_matrices(p, c)), cy.Adaptive(1e-8)
    starts = [p.side * cy.configurations.box(p.n, 3, p.seed + s) for s in range(p.starts)]
    runs = [cy.simulate(flow, z0, times=[0.0, p.time], stepper=stepper) for z0 in starts]
    ends = [_limits(tr) for tr in runs]
    inner = sum(len(e.centres) - len(e.body.index) for e in ends)
    limits, rng = [len(e.centres) for e in ends], np.random.default_rng(p.seed)
    chance = [_chance(rng, z0[:, :2], count) for z0, count in zip(starts, limits)]
    return CouplingCensus(c, limits, inner, max(e.inside for e in ends), chance)


def _controls(p: Params, sweep: list[CouplingCensus]) -> list[cy.Comparison]:
    runs = sum(len(cell.limits) for cell in sweep)
    on = sum(len(cell.limits) for cell in sweep if cell.inside < 1e-3)
    expected = sum(sum(cell.chance) for cell in sweep)
    # a share that no draw had is taken as one draw in 40
    none = float(np.prod([max(share, 1 / 40) for cell in sweep for share in cell.chance]))
    return [
        cy.Comparison(
            "The components in F end on the boundary of their hull, or at 0.",
            "as many random tokens of the same start, and the boundary of their hull",
            f"all components of {on} of {runs} runs do; random tokens would in {expected:.1f} of "
            f"{runs}, in all of them with a probability below {none:.1g}",
            survives=on == runs and none < 0.05,
        ),
        cy.Comparison(
            "Coupling F with the rest makes no counterexample.",
            "the coupling itself",
            "; ".join(f"c = {cell.coupling:g}: {cell.inside:.1g} inside" for cell in sweep),
            survives=max(cell.inside for cell in sweep) < 1e-3,
        ),
    ]


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
        "random tokens on the boundary": lambda cell: float(np.mean(cell.chance)),
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
