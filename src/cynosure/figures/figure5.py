"""Figure 5 of arXiv 2407.01602: the hyperplane of a token near a vertex separates it from the rest.

Let s_0 be a vertex of K. For every x within delta of s_0 the hyperplane through x with normal A x
separates s_0 from the delta-balls of the other points of S, if delta is small enough; so a token
near s_0 follows only tokens near s_0, once all of them are near S (Figure 4).

How small is enough? The *largest* delta is computed, not assumed: the hyperplanes of the x with
|x - s_0| = delta are the tangents of a hyperbola with foci 0 and 2 s_0, and delta is largest when
a ball touches its branch (docs/mathematics.md B4). See, for the run of Figure 4: (a) at that delta
every hyperplane passes all balls by, and one touches; (b) beyond, some cut a ball; (c) at a point
of S that is no vertex there is no such delta, because its hyperplane runs through the vertices of
its face.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy

from .. import study
from ._separation import PossibleLimits, largest_delta, possible_limits, sure_delta
from .figure4 import neighbourhood

TITLE = "Figure 5: the hyperplane of a token separates its vertex from the rest of S"
ALIASES = "2407.01602/figure5"
_FINE = 20_000  # hyperplanes looked at for each vertex


@dataclass(frozen=True)
class Params:
    """The run of Figure 4, the hyperplanes drawn, and the multiple of delta in (b)."""

    n: int = 20
    seed: int = 7
    alpha: float = 0.25
    lines: int = 48
    beyond: float = 1.5


QUICK = Params()


def run(p: Params, progress: study.Progress | None = None) -> study.Report:
    """The picture, the delta of every point of S, and what other deltas do."""
    sensible = p.n >= 4 and p.beyond > 1 and p.lines >= 3
    study.require(sensible, "n >= 4, beyond > 1, lines >= 3", p)
    dynamics = cy.PureAttention(alpha=p.alpha)
    places = possible_limits(dynamics, cy.configurations.gaussian(p.n, 2, p.seed))
    if progress is not None:
        progress(0.5, "the hyperplanes of each vertex")
    vertices, flat = int(places.vertex.sum()), np.flatnonzero(~places.vertex).tolist()
    meets = {share: _meeting(places, share) for share in (1 - 1e-6, 1 + 1e-4, p.beyond)}
    below, above, far = meets.values()
    # 1e-9: feet and vertices of the same face are on one hyperplane up to rounding
    none = [largest_delta(*_parted(places.points, i)).delta <= 1e-9 for i in flat]
    check = study.all_of(
        "separation",
        "arXiv 2407.01602, proof of Theorem 1.1",
        "below the largest delta of a vertex no hyperplane meets another ball, above it one does; "
        "a point of S that is no vertex has none",
        sum(not low and high for low, high in zip(below, above)) + sum(none),
        len(places.points),
    )
    deltas = ", ".join(f"{s.delta:.4f}" for s in places.separations)
    summary = (
        f"The run of Figure 4: the largest delta of the vertices of K is {deltas}; the least of "
        f"them, {places.delta:.4f}, serves for all. The other {len(flat)} points "
        "of S have none: their hyperplanes run through vertices."
    )
    control = study.Comparison(
        "The largest delta is where hyperplanes begin to meet the balls of other points of S.",
        "smaller and larger deltas",
        f"vertices of {vertices} with a hyperplane that meets one: {sum(below)} just below "
        f"it, {sum(above)} just above it, {sum(far)} at {p.beyond:g} times it",
        survives=not any(below) and all(above) and all(far),
    )
    return study.report_of(
        p,
        summary,
        controls=[control],
        tables=[_points_table(places)],
        checks={"hyperplanes": [check]},
        figures=[study.Picture("Figure 5", _caption(p), _figure(p, places))],
    )


def _caption(p: Params) -> str:
    return (
        "The points of S with their balls of radius delta, and the hyperplanes through points x on "
        "the circle around s_0 with normal A x (A = I). (a) The largest delta of the vertex s_0: "
        "the hyperplanes are tangents of the dashed hyperbola, and the ball of another point "
        f"touches it from inside. (b) {p.beyond:g} times that delta: the orange ones cut a ball. "
        "(c) At a foot s_0 of 0 on an edge the hyperplane runs through both vertices of the edge: "
        "no delta will do."
    )


def _parted(points: np.ndarray, i: int) -> tuple[np.ndarray, np.ndarray]:
    return points[i], np.delete(points, i, axis=0)


def _circle(s0: np.ndarray, delta: float, many: int) -> np.ndarray:
    angle = 2 * np.pi * np.arange(many) / many
    return s0 + delta * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _reach(x: np.ndarray, others: np.ndarray, delta: float) -> np.ndarray:
    """The largest <x, y - x> for the y within delta of the others: at y = s + delta x/|x|."""
    size = np.linalg.norm(x, axis=1)
    return (x @ others.T).max(axis=1) + delta * size - size**2


def _meeting(places: PossibleLimits, share: float) -> list[bool]:
    """For each vertex of K: does a hyperplane at this share of its largest delta meet a ball?"""
    met = []
    for i, found in zip(np.flatnonzero(places.vertex).tolist(), places.separations):
        s0, others = _parted(places.points, i)
        delta = share * found.delta
        met.append(bool((_reach(_circle(s0, delta, _FINE), others, delta) > 0).any()))
    return met


def _points_table(places: PossibleLimits) -> study.Table:
    rows = []
    deltas = iter(places.separations)
    for i, (s, leads) in enumerate(zip(places.points, places.vertex)):
        others = np.delete(np.arange(len(places.points)), i)
        found = next(deltas) if leads else None
        what = "vertex" if leads else "foot of 0 on an edge"
        sure = sure_delta(s, places.points[others]) if leads else 0.0
        largest, touched = (found.delta, int(others[found.nearest])) if found else (0.0, None)
        rows.append((i, tuple(s.tolist()), what, largest, sure, touched))
    columns = ("point", "place", "what it is", "largest delta", "sure delta", "touches the ball of")
    note = "Sure delta: the least <s_0, s_0 - s> / (|s - 2 s_0| + |s_0|), found without bisection."
    return study.Table("The points of S", columns, tuple(rows), note)


# --- the picture ---------------------------------------------------------------------------------


def _figure(p: Params, places: PossibleLimits) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4.3, 4.5)
    chosen = int(np.argmin([s.delta for s in places.separations]))
    at = int(np.flatnonzero(places.vertex)[chosen])
    found = places.separations[chosen]
    left, middle, right = axes[0]
    _panel(left, p, places, at, found.delta)
    _branch(left, places.points[at], found.delta)
    left.plot(*np.stack([found.x, found.y]).T, "o", color=cy.plot.INK, ms=4, zorder=6)
    left.set_title(rf"(a)  the largest $\delta$ = {found.delta:.3f}")
    _panel(middle, p, places, at, p.beyond * found.delta)
    middle.set_title(rf"(b)  $\delta$ = {p.beyond:g} times that")
    feet = np.flatnonzero(~places.vertex)
    if len(feet):
        _panel(right, p, places, int(feet[0]), places.delta, only=True)
        right.set_title(r"(c)  a foot of 0: no $\delta$")
    else:
        right.set_visible(False)
    return figure


def _panel(
    ax: Any, p: Params, places: PossibleLimits, at: int, delta: float, only: bool = False
) -> None:
    """S, K, and the hyperplanes of points around S[at], orange where they cut another ball.

    With `only`, the hyperplane of S[at] alone.
    """
    s0, others = _parted(places.points, at)
    cy.plot.shade(ax, places.limit.polytope, alpha=0.2)
    neighbourhood(ax, places.points, places.vertex, delta)
    drawn = s0[None] if only else _circle(s0, delta, p.lines)
    for x, reach in zip(drawn, _reach(drawn, others, 0.0 if only else delta)):
        cuts = reach > 1e-9 * (s0 @ s0)
        along = np.array([-x[1], x[0]])
        look = {"color": cy.plot.PALETTE[1], "lw": 1.1} if cuts else {"color": cy.plot.GREY}
        ax.axline(tuple(x), tuple(x + along), **{"lw": 1.4 if only else 0.5, **look, "zorder": 1.5})
    size = 1.25 * np.abs(places.points).max()
    ax.annotate("$s_0$", s0, xytext=(-8, 38), textcoords="offset points", fontsize=cy.plot.TITLE,
                bbox={"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1.5},
                arrowprops={"arrowstyle": "-", "color": cy.plot.INK, "lw": 0.8})  # fmt: skip
    ax.plot([0], [0], "+", color=cy.plot.INK)
    ax.set(xlim=(-size, size), ylim=(-size, size), aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
    ax.grid(False)


def _branch(ax: Any, s0: np.ndarray, delta: float) -> None:
    """The branch around 0 of |y - 2 s_0| - |y| = 2 delta."""
    a = float(np.linalg.norm(s0))
    along = s0 / a
    across = np.array([-along[1], along[0]])
    t = np.linspace(-4, 4, 400)[:, None]
    b = np.sqrt(a * a - delta * delta)
    y = s0 - delta * np.cosh(t) * along + b * np.sinh(t) * across
    ax.plot(*y.T, "--", color=cy.plot.INK, lw=1.5, zorder=3)
