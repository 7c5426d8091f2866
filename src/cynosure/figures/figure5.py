"""Figure 5 of arXiv 2407.01602: the hyperplane of a token near a vertex separates it from the rest.

Let s_0 be a vertex of K. For every x within delta of s_0 the hyperplane through x with normal A x
separates s_0 from the delta-balls of the other points of S, if delta is small enough; so a token
near s_0 follows only tokens near s_0, once all of them are near S (Figure 4).

How small is enough? The *largest* delta is computed, not assumed: the hyperplanes of the x with
|x - s_0| = delta are the tangents of a hyperbola with foci 0 and 2 s_0, and delta is largest when
a ball touches its branch (lemma and proof: `_separation.py`). See, for the run
of Figure 4: (a) at that delta every hyperplane passes all balls by, and one touches; (b) beyond,
some cut a ball; (c) at a point of S that is no vertex there is no such delta, because its
hyperplane runs through the vertices of its face. Random x and y look for a counterexample, for
other matrices A and in space too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .. import study
from ._separation import PossibleLimits, largest_delta, possible_limits, sure_delta
from .figure4 import neighbourhood

TITLE = "Figure 5: the hyperplane of a token separates its vertex from the rest of S"
ALIASES = "2407.01602/figure5"


@dataclass(frozen=True)
class Params:
    """The run of Figure 4; delta times `beyond` in (b); the search: d, A, starts, x per vertex."""

    n: int = 20
    seed: int = 7
    alpha: float = 0.25
    lines: int = 48
    beyond: float = 1.5
    d: tuple[int, ...] = (2, 3)
    forms: tuple[str, ...] = ("I", "random")
    starts: int = 40
    pairs: int = 4000


QUICK = Params(starts=4, pairs=500)


class Search(NamedTuple):
    """Random pairs x, y for the vertices of many starts: does one contradict the lemma?"""

    d: int
    form: str
    vertices: int
    within: int  # vertices with a pair within the largest delta that is not separated
    touching: int  # vertices whose touching pair has <Ax, y - x> = 0 up to rounding
    beyond: int  # vertices with a pair not separated among those within 1.01 times it
    flat: int  # points of S that are no vertex ...
    flat_zero: int  # ... and have no delta > 0
    ratio: list[float]  # largest delta over the bound that needs no bisection
    size: list[float]  # largest delta over the longest token, A-norms


def run(p: Params, progress: study.Progress | None = None) -> study.Report:
    """The picture, the delta of every point of S, and the search."""
    sensible = p.n >= 4 and p.beyond > 1 and p.starts >= 1 and p.lines >= 3
    sensible &= set(p.forms) <= {"I", "random"}
    study.require(sensible, "n >= 4, beyond > 1, forms I, random", p)
    dynamics = cy.PureAttention(alpha=p.alpha)
    places = possible_limits(dynamics, cy.configurations.gaussian(p.n, 2, p.seed))
    axes = {"d": p.d, "form": p.forms}
    cells = study.over_grid(_search, p, axes, study.part(progress, 0.1, 1))
    total, flat = sum(c.vertices for c in cells), sum(c.flat for c in cells)
    right = sum(min(c.vertices - c.within, c.touching) for c in cells)
    check = study.all_of(
        "separation",
        "arXiv 2407.01602, proof of Theorem 1.1",
        "within the largest delta of a vertex no hyperplane meets another ball, at it one touches; "
        "a point of S that is no vertex has none",
        right + sum(c.flat_zero for c in cells),
        total + flat,
        vertices=total,
        others=flat,
    )
    return study.report_of(
        p,
        _summary(places, cells),
        controls=_controls(cells),
        tables=[_points_table(places), _search_table(cells)],
        checks={"search": [check]},
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


# --- the search ----------------------------------------------------------------------------------


def _search(p: Params, d: int, form: str) -> Search:
    counts = np.zeros(6, dtype=int)
    ratio, size = [], []
    for seed in range(p.starts):
        rng = np.random.default_rng([d, seed])
        z0 = cy.configurations.gaussian(p.n, d, seed)
        x = np.zeros((d, d)) if form == "I" else rng.standard_normal((d, d))
        A = None if form == "I" else x @ x.T + 0.2 * np.eye(d)
        places = possible_limits(cy.PureAttention(cy.Hardmax(A), alpha=p.alpha), z0)
        root = np.eye(d) if A is None else np.linalg.cholesky(A)
        longest = float(np.linalg.norm(z0 @ root, axis=1).max())
        S = places.points @ root  # coordinates in which A = I
        for i, found in zip(np.flatnonzero(places.vertex), places.separations):
            others = np.delete(S, i, axis=0)
            x, y = found.x @ root, found.y @ root
            away = rng.standard_normal((p.pairs, d))
            inside = _worst(S[i], others, (1 - 1e-9) * found.delta, away)
            touching = (x - S[i]) / found.delta  # beyond, look around it only
            near = np.concatenate([touching[None], touching + 1e-3 * rng.standard_normal((50, d))])
            outside = _worst(S[i], others, 1.01 * found.delta, near)
            touch = abs(x @ (y - x)) <= 1e-9 * longest**2
            counts[:4] += [1, inside >= 0, touch, outside > 0]
            ratio.append(found.delta / sure_delta(S[i], others))
            size.append(found.delta / longest)
        for i in np.flatnonzero(~places.vertex):
            # 1e-9: feet and vertices of the same face are on one hyperplane up to rounding
            none = largest_delta(S[i], np.delete(S, i, axis=0)).delta <= 1e-9 * longest
            counts[4:] += [1, none]
    return Search._make((d, form, *counts.tolist(), ratio, size))


def _worst(s0: np.ndarray, others: np.ndarray, delta: float, towards: np.ndarray) -> float:
    """The largest <x, y - x> over the x on the sphere around s0 in these directions.

    For given x the worst y of a ball is s + delta x/|x|, so only x has to be guessed.
    """
    x = s0 + delta * towards / np.linalg.norm(towards, axis=1, keepdims=True)
    worst = x @ others.T - (x * x).sum(axis=1, keepdims=True)
    return float((worst.max(axis=1) + delta * np.linalg.norm(x, axis=1)).max())


# --- text and tables -----------------------------------------------------------------------------


def _summary(places: PossibleLimits, cells: list[Search]) -> str:
    deltas = ", ".join(f"{s.delta:.4f}" for s in places.separations)
    size = np.concatenate([c.size for c in cells])
    ratio = np.concatenate([c.ratio for c in cells])
    within, total = sum(c.within for c in cells), sum(c.vertices for c in cells)
    return (
        f"The run of Figure 4: the largest delta of the vertices of K is {deltas}; the least of "
        f"them, {places.delta:.4f}, serves for all. The other {int((~places.vertex).sum())} points "
        "of S have none: their hyperplanes run through vertices.\n\n"
        f"{total} vertices of K in {len(cells)} families of Gaussian starts: {within} have a pair "
        "x, y within the largest delta that is not separated; every one has a pair at it that "
        f"touches. The median largest delta is {np.median(size):.3f} of the longest token, and "
        f"one in ten is below {np.quantile(size, 0.1):.1g}; it is at most {ratio.max():.2f} times "
        "the bound <s_0, s_0 - s> / (|s - 2 s_0| + |s_0|)."
    )


def _controls(cells: list[Search]) -> list[study.Comparison]:
    total, within = sum(c.vertices for c in cells), sum(c.within for c in cells)
    beyond = sum(c.beyond for c in cells)
    by_cell = "; ".join(f"d = {c.d}, A {c.form}: {c.within} of {c.vertices}" for c in cells)
    return [
        study.Comparison(
            "Within the largest delta no hyperplane meets another ball.",
            "the dimension and the matrix A",
            f"vertices with a counterexample among random x: {by_cell}",
            survives=within == 0,
        ),
        study.Comparison(
            "It is the largest.",
            "1.01 times that delta",
            f"{beyond} of {total} vertices have a hyperplane that meets a ball",
            survives=beyond == total,
        ),
    ]


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


def _search_table(cells: list[Search]) -> study.Table:
    columns: dict[str, Any] = {
        **{"d": "d", "A": "form", "vertices": "vertices"},
        "counterexamples within": "within",
        "touching pairs": "touching",
        "counterexamples at 1.01": "beyond",
        "median delta / longest token": lambda c: float(np.median(c.size)),
        "least": lambda c: min(c.size),
        "largest delta / sure delta": lambda c: max(c.ratio),
        "other points of S without delta": lambda c: f"{c.flat_zero}/{c.flat}",
    }
    return study.Table.of("Looking for a counterexample", cells, columns)


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
    s0, others = places.points[at], np.delete(places.points, at, axis=0)
    cy.plot.shade(ax, places.limit.polytope, alpha=0.2)
    neighbourhood(ax, places.points, places.vertex, delta)
    angle = 2 * np.pi * np.arange(p.lines) / p.lines
    circle = s0 + delta * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for x in s0[None] if only else circle:
        reach = (others @ x).max() + (0 if only else delta * np.linalg.norm(x)) - x @ x
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
