"""V with a multiple leading eigenvalue: polytope x hyperplane, arXiv 2305.05465, Theorem 5.1.

V = l I on F (dim F > 1) and smaller elsewhere, Q^T K positive definite: the components in F of the
rescaled tokens tend to the boundary of a polytope of F, or to 0, while the others go their own way.
See the paper's V = diag(1, 1, -1/2), n = 40: seen from above a polygon, from the side lines that
grow without end. The proof bounds a remainder that is not small when Q^T K couples F with the rest;
there the statement is open, and the second row and the sweep probe it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.polytope import Polytope, hull
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import LeadingFlow, RescaledFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress
from ._flow_panels import nearest, panels

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "V with multiplicity: polytope x hyperplane"


@final
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


class End(NamedTuple):
    """The components in F at the end: their clusters, their hull, and how far inside they are."""

    centres: np.ndarray
    labels: np.ndarray
    body: Polytope
    inside: float  # largest distance of a component from the boundary and from 0, relative


def run(p: Params, progress: Progress | None = None) -> Report:
    """The paper's run, a coupled one, and many starts of each coupling."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    largest = max(*p.couplings, p.coupling)
    if not 0 <= largest < 0.7071 or not p.rest < 1 or p.starts < 1:
        raise ValueError(
            "hyperplane_polytope: couplings in [0, 0.707) keep Q^T K definite, rest < 1, "
            f"starts >= 1; got {p}"
        )
    runs, ends, checks = {}, {}, {}
    for c in (0.0, p.coupling):
        name = "Q^T K = I" if c == 0 else f"coupled, c = {c:g}"
        say(0.05 if c else 0.0, name)
        z0 = p.side * configurations.box(p.n, 3, p.seed)
        times = np.linspace(0, p.time, int(20 * p.time) + 1)
        flow = RescaledFlow(*_weights(c), V=_value(p))
        runs[name] = simulate(flow, z0, times=times, stepper=Adaptive(1e-9, 1e-12))
        # y = e^{-t} x has the same components in F, and its third one does not grow
        slow = LeadingFlow(*_weights(c), V=_value(p))
        judged = simulate(slow, z0, times=times, stepper=Adaptive(1e-9, 1e-12))
        ends[name] = _end(judged)
        checks[name] = tuple(check(judged, only=("B27",)))
    sweep = _sweep(p, lambda share: say(0.1 + 0.6 * share, "couplings"))
    say(0.7, "figures")
    groups = {name: end.labels for name, end in ends.items()}
    figures = (
        Picture("Tokens", _TOKENS, panels(runs, p.show, groups, equal=False)),
        Picture("Components in F", _ABOVE, _above(p, runs, ends)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, ends, sweep),
        asdict(p),
        (_limits(ends), _sweep_table(sweep)),
        checks,
        figures,
        command="cynosure run hyperplane_polytope",
    )


_TOKENS = (
    "Rescaled tokens in the colour of the vertex of the polytope in F that they end at. The "
    "vertical axis is the third direction, where V is smaller: tokens spread along lines (axes not "
    "to one scale)."
)
_ABOVE = (
    "The same tokens seen along the third direction: the components in F and their hull, which "
    "only shrinks. The limiting polygon is dashed."
)


def _value(p: Params) -> np.ndarray:
    return np.diag([1.0, 1.0, p.rest])


def _weights(c: float) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Q = K with Q^T K = I + c (e1 e3^T + e3 e1^T + e2 e3^T + e3 e2^T), definite for c < 1/2^.5."""
    if c == 0:
        return None, None
    A = np.eye(3)
    A[:2, 2] = A[2, :2] = c
    Q = np.linalg.cholesky(A).T
    return Q, Q


def _end(tr: Trajectory) -> End:
    f = tr.values[-1, :, :2]
    size = float(np.linalg.norm(tr.values[0, :, :2], axis=1).max())
    found = clusters(f, 1e-4 * size)
    body = hull(found.centres)
    if body.dim < 2:  # a segment or a point is all boundary
        return End(found.centres, found.labels, body, 0.0)
    facets = body.equations
    depth = -(found.centres @ facets[:, :-1].T + facets[:, -1]).max(axis=1)
    inside = np.minimum(depth.clip(0), np.linalg.norm(found.centres, axis=1))
    return End(found.centres, found.labels, body, float(inside.max()) / size)


def _sweep(p: Params, say: Any) -> list[tuple[float, list[End]]]:
    out = []
    for done, c in enumerate(p.couplings):
        flow = LeadingFlow(*_weights(c), V=_value(p))
        found = []
        for s in range(p.starts):
            z0 = p.side * configurations.box(p.n, 3, p.seed + s)
            found.append(_end(simulate(flow, z0, times=[0.0, p.time], stepper=Adaptive(1e-8))))
        out.append((c, found))
        say((done + 1) / len(p.couplings))
    return out


def _summary(p: Params, ends: dict[str, End], sweep: list[tuple[float, list[End]]]) -> str:
    text = [
        f"{name}: the components in F of {p.n} tokens have {len(e.centres)} limits, "
        f"{len(e.body.index)} of them vertices of their hull; none is further than {e.inside:.1g} "
        "from its boundary and from 0, relative to the longest."
        for name, e in ends.items()
    ]
    worst = max(e.inside for c, found in sweep if c > 0 for e in found)
    runs = sum(len(found) for c, found in sweep if c > 0)
    text.append(
        f"Where Q^T K couples F with the rest, which the proof does not cover, {runs} random runs "
        f"end at most {worst:.1g} inside: "
        + ("no counterexample." if worst < 1e-3 else "look at these starts.")
    )
    return "\n\n".join(text)


def _limits(ends: dict[str, End]) -> Table:
    rows = tuple(
        (name, tuple(e.centres[g].tolist()), int((e.labels == g).sum()), g in e.body.index)
        for name, e in ends.items()
        for g in range(len(e.centres))
    )
    return Table("Limits in F", ("run", "limit", "tokens", "vertex"), rows)


def _sweep_table(sweep: list[tuple[float, list[End]]]) -> Table:
    rows = tuple(
        (
            c,
            float(1 - np.sqrt(2) * c),
            len(found),
            float(np.mean([len(e.centres) for e in found])),
            sum(len(e.centres) - len(e.body.index) for e in found),
            max(e.inside for e in found),
        )
        for c, found in sweep
    )
    columns = (
        "coupling",
        "least eigenvalue of Q^T K",
        "runs",
        "mean limits",
        "no vertex",
        "inside",
    )
    note = "Inside: largest distance of a limit from the boundary and 0, relative to the longest."
    return Table("Coupling F with the rest", columns, rows, note)


def _above(p: Params, runs: dict[str, Trajectory], ends: dict[str, End]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, LABEL, PALETTE, shade

    figure = Figure(figsize=(2.4 * len(p.show), 2.6 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), len(p.show), squeeze=False)
    for line, (name, run) in zip(axes, runs.items()):
        end = ends[name]
        ring = end.body.ordered() if end.body.dim == 2 else end.body.vertices
        ring = np.concatenate([ring, ring[:1]])
        colours = np.array(PALETTE)[end.labels % len(PALETTE)]
        for ax, t in zip(line, p.show):
            k = nearest(run, t)
            f = run.values[k, :, :2]
            shade(ax, hull(f))
            ax.plot(*ring.T, "--", color=INK, lw=0.8)
            ax.scatter(*f.T, c=colours, s=18, edgecolors="white", linewidths=0.4, zorder=3)
            ax.set_title(f"t = {run.t[k]:g}", fontsize=LABEL)
            ax.set(xlim=(-1.15 * p.side, 1.15 * p.side), ylim=(-1.15 * p.side, 1.15 * p.side))
            tidy(ax).set_aspect("equal")
        line[0].set_ylabel(f"{name}\n$z_2$")
    for ax in axes[-1]:
        ax.set_xlabel("$z_1$")
    return figure
