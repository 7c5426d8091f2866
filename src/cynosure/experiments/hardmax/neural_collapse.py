"""Neural collapse: do attention layers bring labelled groups of tokens to the collapsed state?

Groups of tokens around C random directions run through hardmax layers (arXiv 2407.01602), softmax
layers at several temperatures and the sphere flow (arXiv 2312.10794); at every depth the scatter
within over between groups, tr(Sw Sb^+)/C, and the angles between group means against the simplex,
-1/(C-1): two marks of neural collapse (question of Sugolov and Aubry). See: hardmax collapses each
group onto its leader at the exact rate (1+alpha)^{-2k}, where a group has one, but the means stay
where the leaders are, so that no simplex forms without training. Cold softmax does the same; warm
softmax, and in the end the sphere, bring the groups to each other as well: then the within-group
scatter has nothing to be small against, or two means point the same way.

The start drawn was picked by hand (seed 0: every group keeps one leader, the clear case). In most
starts some group is torn between two leaders: the last table has the first `starts` seeds, none
left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.limits import limit
from ...analysis.spectra import neural_collapse
from ...attention import Softmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention, SphereFlow
from ...simulation.loop import simulate
from ...simulation.steppers import RK4
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress, at_most, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Neural collapse: scatter within groups, and the angles between their means"


@final
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
    """The measures along one run."""

    t: np.ndarray
    scatter: np.ndarray
    angle: np.ndarray  # largest difference of a cosine from the simplex
    spread: np.ndarray  # std/mean of the lengths of the centred means
    clusters: int  # at the end
    end: np.ndarray


def run(p: Params, progress: Progress | None = None) -> Report:
    """Every model from the same tokens."""
    say = progress or silent
    if p.groups < 3 or min(p.size, p.d) < 2 or p.layers < 10 or p.alpha <= 0 or p.starts < 1:
        raise ValueError(
            "neural_collapse: groups >= 3, size and d >= 2, layers >= 10, alpha > 0, starts >= 1; "
            f"got {p}"
        )
    say(0.0, "the start drawn")
    z0, labels = _tokens(p)
    runs = _runs(p, z0)
    courses = {name: _course(p, tr, labels) for name, tr in runs.items()}
    others = []
    for seed in range(p.starts):
        say(0.2 + 0.6 * seed / p.starts, f"start {seed}")
        others.append(kept(_start, replace(p, seed=seed)))
    say(0.8, "figures")
    figures = (
        Picture("Measures of collapse", _CURVES, _curves(p, courses)),
        Picture("Where the groups end", _ENDS, _ends(z0, labels, courses)),
    )
    checks = {
        "hardmax": (*check(runs["hardmax"], only=("B5", "B8")), *_rate(p, z0, labels, courses))
    }
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, courses) + "\n\n" + _spread(p, others),
        asdict(p),
        (_table(courses), _others(p, others)),
        checks,
        figures,
        command="cynosure run neural_collapse",
    )


class Start(NamedTuple):
    """What one start came to."""

    seed: int
    kept: bool  # under hardmax every group ends at one leader of its own
    clusters: dict[str, int]  # by model
    fall: float  # of the scatter ratio under hardmax
    simplex: float  # how far hardmax ends from it


def _runs(p: Params, z0: np.ndarray) -> dict[str, Trajectory]:
    """Every model from the tokens z0."""
    runs = {"hardmax": simulate(PureAttention(alpha=p.alpha), z0, layers=p.layers)}
    for beta in p.beta:
        soft = PureAttention(Softmax(beta), p.alpha)
        runs[f"softmax, beta = {beta:g}"] = simulate(soft, z0, layers=p.layers)
    times = np.linspace(0, p.alpha * p.layers, p.layers + 1)
    sphere = SphereFlow(Softmax(p.beta_sphere))
    unit = z0 / np.linalg.norm(z0, axis=1, keepdims=True)
    runs["sphere"] = simulate(sphere, unit, times=times, stepper=RK4(p.alpha / 4))
    return runs


def _start(p: Params) -> Start:
    z0, labels = _tokens(p)
    runs = _runs(p, z0)
    hard = _course(p, runs["hardmax"], labels)
    longest = float(np.linalg.norm(z0, axis=1).max())
    ends = {name: clusters(tr.values[-1], 1e-3 * longest).count for name, tr in runs.items()}
    fall = float(hard.scatter[-1] / hard.scatter[0])
    return Start(p.seed, _own_leaders(p, z0, labels), ends, fall, float(hard.angle[-1]))


def _own_leaders(p: Params, z0: np.ndarray, labels: np.ndarray) -> bool:
    """True where hardmax brings each group to one leader of its own."""
    li = limit(PureAttention(alpha=p.alpha), z0)
    pure = all(len(np.unique(li.points[labels == g], axis=0)) == 1 for g in range(p.groups))
    return pure and len(np.unique(li.points, axis=0)) == p.groups


def _others(p: Params, others: list[Start]) -> Table:
    names = list(others[0].clusters)
    rows = tuple(
        (o.seed, o.kept, o.fall, o.simplex, *(o.clusters[name] for name in names)) for o in others
    )
    columns = (
        "seed",
        "one leader per group",
        "scatter ratio falls by",
        "off the simplex",
        *(f"clusters, {name}" for name in names),
    )
    note = f"Every start of the first seeds, {p.groups} groups each; the second to fourth: hardmax."
    return Table("Other starts", columns, rows, note)


def _spread(p: Params, others: list[Start]) -> str:
    kept = sum(o.kept for o in others)
    counts = [o.clusters["hardmax"] for o in others]
    off = [o.simplex for o in others]
    merged = "; ".join(
        f"{name} {sum(o.clusters[name] < p.groups for o in others)}" for name in others[0].clusters
    )
    return (
        f"Over the first {len(others)} seeds: under hardmax every group ends at one leader of its "
        f"own in {kept}; the tokens end in {min(counts)} to {max(counts)} clusters, the means "
        f"{min(off):.2f} to {max(off):.2f} off the simplex. Starts that end with fewer clusters "
        f"than groups: {merged}."
    )


_CURVES = (
    "Left: tr(Sw Sb^+)/C, scatter within groups over scatter between them; dashed is the hardmax "
    "rate (1+alpha)^(-2k). Middle: the largest difference of a cosine between centred means from "
    "that of the simplex. Right: relative spread of the lengths of the centred means (0 for a "
    "simplex). One layer counts as a time alpha of the sphere flow; where its curve drops, two "
    "means agree to rounding, and Sb^+ no longer sees their difference."
)
_ENDS = (
    "First two coordinates, one colour per group: starts (dots) and ends (squares). Hardmax and "
    "cold softmax keep the groups apart, each at its leader; warm softmax and the sphere merge "
    "them."
)


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
    else:
        raise ValueError(
            f"neural_collapse: {p.groups} groups 60 degrees apart need more than R^{p.d}"
        )
    labels = np.repeat(np.arange(p.groups), p.size)
    away = p.spread * rng.standard_normal((len(labels), p.d))
    length = rng.uniform(0.5, 1, (len(labels), 1))
    return length * (np.array(means)[labels] + away), labels


def _course(p: Params, tr: Trajectory, labels: np.ndarray) -> Course:
    found = [neural_collapse(z, labels) for z in tr.values]
    longest = float(np.linalg.norm(tr.values[0], axis=1).max())
    return Course(
        np.asarray(tr.t, dtype=float) / (1 if tr.t.dtype.kind == "i" else p.alpha),
        np.array([f.scatter for f in found]),
        np.array([f.angle_error for f in found]),
        np.array([f.norm_spread for f in found]),
        clusters(tr.values[-1], 1e-3 * longest).count,
        tr.values[-1],
    )


def _rate(
    p: Params, z0: np.ndarray, labels: np.ndarray, courses: dict[str, Course]
) -> tuple[Any, ...]:
    """Where every group has one leader of its own, its scatter shrinks by (1+alpha)^-2 a layer."""
    if not _own_leaders(p, z0, labels):
        return ()
    course = courses["hardmax"].scatter
    late = course[len(course) // 2 :]
    late = late[late > 1e-20 * course[0]]
    if len(late) < 3:
        return ()
    slope = float(np.mean(np.diff(np.log(late))))
    off = abs(slope / (-2 * np.log1p(p.alpha)) - 1)
    statement = "one leader per group: tr(Sw Sb^+) falls like (1+alpha)^(-2k) (relative error)"
    return (at_most("E11", "docs/mathematics.md B8, E11", statement, off, 0.01, slope=slope),)


def _table(courses: dict[str, Course]) -> Table:
    rows = tuple(
        (
            name,
            float(c.scatter[0]),
            float(c.scatter.min()),
            float(c.scatter[-1]),
            float(c.angle[0]),
            float(c.angle[-1]),
            float(c.spread[-1]),
            c.clusters,
        )
        for name, c in courses.items()
    )
    columns = (
        "model",
        "scatter at the start",
        "least",
        "at the end",
        "off the simplex at the start",
        "at the end ",
        "spread of lengths",
        "clusters",
    )
    return Table("Neural collapse", columns, rows)


def _summary(p: Params, courses: dict[str, Course]) -> str:
    hard, ball = courses["hardmax"], courses["sphere"]
    fall = hard.scatter[-1] / hard.scatter[0]
    merged = [name for name, c in courses.items() if c.clusters < p.groups]
    return (
        f"{p.groups} groups of {p.size} tokens. Hardmax: the scatter ratio falls by {fall:.2g} in "
        f"{p.layers} layers and the tokens end in {hard.clusters} clusters, but the cosines "
        f"between means stay {hard.angle[-1]:.2f} off the simplex (start: {hard.angle[0]:.2f}). "
        f"Fewer clusters than groups at the end: "
        f"{', '.join(merged) or 'none'}. On the sphere the ratio is {ball.scatter.min():.2g} at "
        f"its least and {ball.scatter[-1]:.2g} at the end."
    )


def _curves(p: Params, courses: dict[str, Course]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 3, 4.4, 3.8)
    for colour, (name, c) in zip(PALETTE, courses.items(), strict=False):
        axes[0, 0].semilogy(c.t, np.maximum(c.scatter, 1e-32), color=colour, label=name)
        axes[0, 1].plot(c.t, c.angle, color=colour)
        axes[0, 2].plot(c.t, c.spread, color=colour)
    k = courses["hardmax"].t
    law = courses["hardmax"].scatter[0] * (1 + p.alpha) ** (-2 * k)
    axes[0, 0].semilogy(k, law, "--", color="black", lw=0.9, label="(1+alpha)$^{-2k}$")
    names = ("tr($S_w S_b^+$)/C", "off the simplex (cosine)", "spread of lengths")
    for ax, name in zip(axes[0], names, strict=True):
        ax.set(xlabel="layer k", ylabel=name)
    for ax in axes[0, 1:]:
        ax.set_ylim(bottom=0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    return figure


def _ends(z0: np.ndarray, labels: np.ndarray, courses: dict[str, Course]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, len(courses), 3.1, 3.3)
    for ax, (name, c) in zip(axes[0], courses.items(), strict=True):
        start = z0 / np.linalg.norm(z0, axis=1, keepdims=True) if name == "sphere" else z0
        for g in np.unique(labels):
            colour = PALETTE[int(g) % len(PALETTE)]
            ax.plot(*start[labels == g, :2].T, ".", color=colour, ms=4)
            ax.plot(*c.end[labels == g, :2].T, "s", color=colour, ms=7, mec="black", mew=0.6)
        ax.set(aspect="equal", title=name, xlabel="$z_1$", ylabel="$z_2$")
    return figure
