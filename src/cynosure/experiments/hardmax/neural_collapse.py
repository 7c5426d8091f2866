"""Neural collapse: do attention layers bring labelled groups of tokens to the collapsed state?

Groups of tokens around C random directions run through hardmax layers (arXiv 2407.01602), softmax
layers at several temperatures and the sphere flow (arXiv 2312.10794); at every depth the scatter
within over between groups, tr(Sw Sb^+)/C, and the angles between group means against the simplex,
-1/(C-1): two marks of neural collapse (question of Sugolov and Aubry). See: hardmax collapses each
group onto its leader at the exact rate (1+alpha)^{-2k}, where a group has one, but the means stay
where the leaders are, so that no simplex forms without training. Cold softmax does the same; warm
softmax, and in the end the sphere, bring the groups to each other as well.

The start drawn was picked by hand (seed 0: every group keeps one leader, the clear case). In most
starts some group is torn between two leaders: the last table has the first seeds, none left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of, require

TITLE = "Neural collapse: scatter within groups, and the angles between their means"


@dataclass(frozen=True)
class Params:
    """`groups` of `size` tokens in R^d, `spread` about random directions, of various lengths;
    softmax at every `beta`, the sphere flow at `beta_sphere` with time step alpha. The start of
    `seed` is drawn, the first `starts` seeds are counted."""

    groups: int = 4
    size: int = 15
    d: int = 3
    spread: float = 0.12
    alpha: float = 0.5
    beta: tuple[float, ...] = (5.0, 20.0, 100.0)
    beta_sphere: float = 9.0
    layers: int = 60
    seed: int = 0
    starts: int = 20


QUICK = Params(size=8, layers=30, beta=(5.0, 100.0), starts=4)


class Course(NamedTuple):
    """The measures of collapse along one run."""

    name: str  # of the model
    t: np.ndarray
    scatter: np.ndarray
    angle: np.ndarray  # largest difference of a cosine from the simplex
    spread: np.ndarray  # std/mean of the lengths of the centred means
    clusters: int  # at the end
    end: np.ndarray


class StartOutcome(NamedTuple):
    """What one start came to."""

    seed: int
    own_leaders: bool  # under hardmax every group ends at one leader of its own
    clusters: dict[str, int]  # by model
    fall: float  # of the scatter ratio under hardmax
    simplex: float  # how far hardmax ends from it


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every model from the same tokens."""
    sensible = p.groups >= 3 and min(p.size, p.d) >= 2 and p.layers >= 10 and p.alpha > 0
    expected = "groups >= 3, size and d >= 2, layers >= 10, alpha > 0, starts >= 1"
    require(sensible and p.starts >= 1, expected, p)
    z0, labels = _tokens(p)
    runs = _runs(p, z0)
    courses = [_course(p, name, tr, labels) for name, tr in runs.items()]
    others = over_grid(_start, p, {"start": range(p.starts)}, part(progress, 0.2, 0.8))
    hard = cy.check(runs["hardmax"], only=("B5", "B8"))
    if _own_leaders(p, z0, labels):
        hard += _rate(p, courses[0])
    tables = [_table(courses), _others(p, others)]
    pictures = [_curves(p, courses), _ends(z0, labels, courses)]
    summary, checks = _summary(p, courses, others), {"hardmax": hard}
    return report_of(__name__, p, summary, tables=tables, checks=checks, figures=pictures)


def _tokens(p: Params) -> tuple[np.ndarray, np.ndarray]:
    """Random directions no two of which are closer than 60 degrees, lengths uniform in [1/2, 1]."""
    rng = np.random.default_rng(p.seed)
    means: list[np.ndarray] = []
    for _ in range(10_000):
        if len(means) == p.groups:
            break
        new = rng.standard_normal(p.d)
        new /= np.linalg.norm(new)
        if all(new @ old < 0.5 for old in means):
            means.append(new)
    require(len(means) == p.groups, "a d with room for so many groups 60 degrees apart", p)
    labels = np.repeat(np.arange(p.groups), p.size)
    away = p.spread * rng.standard_normal((len(labels), p.d))
    length = rng.uniform(0.5, 1, (len(labels), 1))
    return length * (np.array(means)[labels] + away), labels


def _runs(p: Params, z0: np.ndarray) -> dict[str, cy.Trajectory]:
    """Every model from the tokens z0, hardmax first."""
    runs = {"hardmax": cy.simulate(cy.PureAttention(alpha=p.alpha), z0, layers=p.layers)}
    for beta in p.beta:
        soft = cy.PureAttention(cy.Softmax(beta), p.alpha)
        runs[f"softmax, beta = {beta:g}"] = cy.simulate(soft, z0, layers=p.layers)
    times = np.linspace(0, p.alpha * p.layers, p.layers + 1)
    sphere = cy.SphereFlow(cy.Softmax(p.beta_sphere))
    runs["sphere"] = cy.simulate(sphere, _unit(z0), times=times, stepper=cy.RK4(p.alpha / 4))
    return runs


def _unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def _clusters(tr: cy.Trajectory, z0: np.ndarray) -> int:
    """At the end, told apart at a thousandth of the longest token of z0."""
    return cy.clusters(tr.values[-1], 1e-3 * float(np.linalg.norm(z0, axis=1).max())).count


def _course(p: Params, name: str, tr: cy.Trajectory, labels: np.ndarray) -> Course:
    measures = [cy.spectra.neural_collapse(z, labels) for z in tr.values]
    return Course(
        name=name,
        t=np.asarray(tr.t, dtype=float) / (1 if tr.t.dtype.kind == "i" else p.alpha),
        scatter=np.array([m.scatter for m in measures]),
        angle=np.array([m.angle_error for m in measures]),
        spread=np.array([m.norm_spread for m in measures]),
        clusters=_clusters(tr, tr.values[0]),
        end=tr.values[-1],
    )


def _start(p: Params, seed: int) -> StartOutcome:
    z0, labels = _tokens(replace(p, seed=seed))
    runs = _runs(p, z0)
    hard = _course(p, "hardmax", runs["hardmax"], labels)
    counts = {name: _clusters(tr, z0) for name, tr in runs.items()}
    fall = float(hard.scatter[-1] / hard.scatter[0])
    return StartOutcome(seed, _own_leaders(p, z0, labels), counts, fall, float(hard.angle[-1]))


def _own_leaders(p: Params, z0: np.ndarray, labels: np.ndarray) -> bool:
    """True where hardmax brings each group to one leader of its own."""
    points = cy.limit(cy.PureAttention(alpha=p.alpha), z0).points
    pure = all(len(np.unique(points[labels == g], axis=0)) == 1 for g in range(p.groups))
    return pure and len(np.unique(points, axis=0)) == p.groups


def _rate(p: Params, hard: Course) -> list[cy.Check]:
    """Where every group has one leader of its own, its scatter shrinks by (1+alpha)^-2 a layer.

    Nothing is checked where fewer than three late layers are above rounding.
    """
    late = hard.scatter[len(hard.scatter) // 2 :]
    late = late[late > 1e-20 * hard.scatter[0]]
    if len(late) < 3:
        return []
    slope = float(np.mean(np.diff(np.log(late))))
    off = abs(slope / (-2 * np.log1p(p.alpha)) - 1)
    statement = "one leader per group: tr(Sw Sb^+) falls like (1+alpha)^(-2k) (relative error)"
    return [at_most("rate", "docs/mathematics.md B8, E11", statement, off, 0.01, slope=slope)]


def _table(courses: list[Course]) -> cy.Table:
    return cy.Table.of(
        "Neural collapse",
        courses,
        {
            "model": "name",
            "scatter at the start": lambda c: c.scatter[0],
            "least": lambda c: c.scatter.min(),
            "at the end": lambda c: c.scatter[-1],
            "off the simplex at the start": lambda c: c.angle[0],
            "off the simplex at the end": lambda c: c.angle[-1],
            "spread of lengths": lambda c: c.spread[-1],
            "clusters": "clusters",
        },
    )


def _others(p: Params, others: list[StartOutcome]) -> cy.Table:
    columns: dict[str, Any] = {
        **{"seed": "seed", "one leader per group": "own_leaders"},
        **{"scatter ratio falls by": "fall", "off the simplex": "simplex"},
    }
    for name in others[0].clusters:
        columns[f"clusters, {name}"] = lambda o, name=name: o.clusters[name]
    note = f"Every start of the first seeds, {p.groups} groups each; the second to fourth: hardmax."
    return cy.Table.of("Other starts", others, columns, note)


def _summary(p: Params, courses: list[Course], others: list[StartOutcome]) -> str:
    hard, ball = courses[0], courses[-1]
    merged = [c.name for c in courses if c.clusters < p.groups]
    counts, off = [o.clusters["hardmax"] for o in others], [o.simplex for o in others]
    fewer = {name: sum(o.clusters[name] < p.groups for o in others) for name in others[0].clusters}
    return (
        f"{p.groups} groups of {p.size} tokens. Hardmax: the scatter ratio falls by "
        f"{hard.scatter[-1] / hard.scatter[0]:.2g} in {p.layers} layers and the tokens end in "
        f"{hard.clusters} clusters, but the cosines between means stay {hard.angle[-1]:.2f} off "
        f"the simplex (start: {hard.angle[0]:.2f}). Fewer clusters than groups at the end: "
        f"{', '.join(merged) or 'none'}. On the sphere the ratio is {ball.scatter.min():.2g} at "
        f"its least and {ball.scatter[-1]:.2g} at the end.\n\n"
        f"Over the first {len(others)} seeds: under hardmax every group ends at one leader of its "
        f"own in {sum(o.own_leaders for o in others)}; the tokens end in {min(counts)} to "
        f"{max(counts)} clusters, the means {min(off):.2f} to {max(off):.2f} off the simplex. "
        "Starts that end with fewer clusters than groups: "
        f"{'; '.join(f'{name} {count}' for name, count in fewer.items())}."
    )


def _curves(p: Params, courses: list[Course]) -> cy.Picture:
    figure, axes = cy.plot.sheet(1, 3, 4.4, 3.8)
    left, middle, right = axes[0]
    for colour, c in zip(cy.plot.PALETTE, courses):
        left.semilogy(c.t, np.maximum(c.scatter, 1e-32), color=colour, label=c.name)
        middle.plot(c.t, c.angle, color=colour)
        right.plot(c.t, c.spread, color=colour)
    hard = courses[0]
    law = hard.scatter[0] * (1 + p.alpha) ** (-2 * hard.t)
    left.semilogy(hard.t, law, "--", color=cy.plot.INK, lw=0.9, label="(1+alpha)$^{-2k}$")
    left.set(xlabel="layer k", ylabel="tr($S_w S_b^+$)/C")
    middle.set(xlabel="layer k", ylabel="off the simplex (cosine)", ylim=(0, None))
    right.set(xlabel="layer k", ylabel="spread of lengths", ylim=(0, None))
    cy.plot.legend_below(left, 6)
    caption = (
        "Left: scatter within groups over scatter between them; dashed is the hardmax rate "
        "(1+alpha)^(-2k). Middle: the largest difference of a cosine between centred means from "
        "that of the simplex. Right: relative spread of their lengths (0 for a simplex). One layer "
        "counts as a time alpha of the sphere flow; where its curve drops, two means agree to "
        "rounding, and Sb^+ no longer sees their difference."
    )
    return cy.Picture("Measures of collapse", caption, figure)


def _ends(z0: np.ndarray, labels: np.ndarray, courses: list[Course]) -> cy.Picture:
    figure, axes = cy.plot.sheet(1, len(courses), 3.1, 3.3)
    for ax, c in zip(axes[0], courses):
        start = _unit(z0) if c.name == "sphere" else z0
        for g in np.unique(labels):
            colour = cy.plot.PALETTE[int(g) % len(cy.plot.PALETTE)]
            square = {"color": colour, "ms": 7, "mec": cy.plot.INK, "mew": 0.6}
            ax.plot(*start[labels == g, :2].T, ".", color=colour, ms=4)
            ax.plot(*c.end[labels == g, :2].T, "s", **square)
        ax.set(aspect="equal", title=c.name, xlabel="$z_1$", ylabel="$z_2$")
    caption = "First two coordinates, one colour per group: starts (dots) and ends (squares)."
    return cy.Picture("Where the groups end", caption, figure)
