"""Neural collapse: do attention layers bring labelled groups of tokens to the collapsed state?

Groups of tokens around C random directions run through hardmax layers (arXiv 2407.01602), softmax
layers at several temperatures and the sphere flow (arXiv 2312.10794); at every depth the scatter
within over between groups, tr(Sw Sb^+)/C, and the angles between group means against the simplex,
-1/(C-1): two marks of neural collapse (question of Sugolov and Aubry). See: where every group has
one leader of its own, hardmax collapses it onto that leader at the exact rate (1+alpha)^{-2k}, and
the means stay where the leaders are, so that no simplex forms without training. That is a narrow
case: how often it occurs falls with the spread of the groups, and shuffled labels, as the null
model, never show it. Cold softmax does the same; warm softmax, and in the end the sphere, bring the
groups to each other as well.

The start drawn was picked by hand (seed 0: every group keeps one leader, the clear case). In most
starts some group is torn between two leaders: the tables have the first seeds, none left out.

Trap: once two means agree to rounding the pseudo-inverse of Sb no longer sees their difference, and
tr(Sw Sb^+) falls off a cliff that is no collapse. Curves end there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, counted, over_grid, part, report_of, require, wilson

TITLE = "Neural collapse: scatter within groups, and the angles between their means"


@dataclass(frozen=True)
class Params:
    """`groups` of `size` tokens in R^d, `spread` about random directions, of various lengths;
    softmax at every `beta`, the sphere flow at `beta_sphere` with time step alpha. The start of
    `seed` is drawn, the first `starts` seeds are run under every model. `varied`: (d, spread) of
    which the first `counted` seeds are taken to the limit of hardmax, with their own and with
    shuffled labels."""

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
    varied: tuple[tuple[int, float], ...] = (
        *((3, 0.06), (3, 0.12), (3, 0.24)),
        *((8, 0.06), (8, 0.12), (8, 0.24)),
    )
    counted: int = 100


QUICK = Params(
    size=8,
    layers=30,
    beta=(5.0, 100.0),
    starts=4,
    varied=((3, 0.12), (8, 0.12)),
    counted=10,
)


class Course(NamedTuple):
    """The measures of collapse along one run."""

    name: str  # of the model
    t: np.ndarray
    scatter: np.ndarray  # NaN from where two means agree to rounding
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


class Limits(NamedTuple):
    """Hardmax at infinite depth from all seeds of one (d, spread), with one kind of labels."""

    d: int
    spread: float
    shuffled: bool
    own: np.ndarray  # per seed: every group ends at one leader of its own
    fall: np.ndarray  # scatter ratio at the end over that at the start
    start: np.ndarray  # how far the means are from the simplex
    end: np.ndarray

    @property
    def rose(self) -> int:
        """In how many starts the means end farther from the simplex than they began."""
        return int((self.end > self.start).sum())


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every model from the same tokens."""
    sensible = p.groups >= 3 and min(p.size, p.d) >= 2 and p.layers >= 10 and p.alpha > 0
    expected = "groups >= 3, size and d >= 2, layers >= 10, alpha > 0, starts >= 1"
    require(sensible and p.starts >= 1, expected, p)
    z0, labels = _tokens(p)
    runs = _runs(p, z0)
    courses = [_course(p, name, tr, labels) for name, tr in runs.items()]
    others = over_grid(_start, p, {"start": range(p.starts)}, part(progress, 0.2, 0.6))
    axes = {"d, spread": p.varied, "shuffled": (False, True)}
    limits = over_grid(_at_infinity, p, axes, part(progress, 0.6, 0.9))
    hard = cy.check(runs["hardmax"], only=("B5", "B8"))
    if _own_leaders(p, z0, labels):
        hard += _rate(p, courses[0])
    tables = [_table(courses), _limit_table(limits), _others(p, others)]
    pictures = [_curves(p, courses), _ends(z0, labels, courses)]
    return report_of(
        __name__,
        p,
        _summary(p, courses, others, limits),
        controls=_controls(p, limits),
        tables=tables,
        checks={"hardmax": hard},
        figures=pictures,
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
    scatter = np.array([m.scatter for m in measures])
    blind = np.array([not _full_rank(z, labels) for z in tr.values])
    return Course(
        name=name,
        t=np.asarray(tr.t, dtype=float) / (1 if tr.t.dtype.kind == "i" else p.alpha),
        scatter=np.where(np.maximum.accumulate(blind), np.nan, scatter),
        angle=np.array([m.angle_error for m in measures]),
        spread=np.array([m.norm_spread for m in measures]),
        clusters=_clusters(tr, tr.values[0]),
        end=tr.values[-1],
    )


def _full_rank(z: np.ndarray, labels: np.ndarray) -> bool:
    """False once two group means, or a direction of them, agree to rounding: Sb^+ is blind to it.

    Sb has the squares of the singular values; NumPy cuts a pseudo-inverse at 1e-15 of the largest.
    """
    means = np.stack([z[labels == g].mean(axis=0) for g in np.unique(labels)])
    s = np.linalg.svd(means - means.mean(axis=0), compute_uv=False)
    rank = min(len(means) - 1, z.shape[1])
    return bool(s[rank - 1] ** 2 > 1e-14 * s[0] ** 2)


def _at_infinity(p: Params, size: tuple[int, float], shuffled: bool) -> Limits:
    """The limits of hardmax beside the start, for labels as they are or dealt out at random."""
    d, spread = size
    rows = []
    for seed in range(p.counted):
        z0, labels = _tokens(replace(p, d=d, spread=spread, seed=seed))
        if shuffled:
            labels = np.random.default_rng([seed, 5]).permutation(labels)
        points = cy.limit(cy.PureAttention(alpha=p.alpha), z0).points
        first, last = (cy.spectra.neural_collapse(z, labels) for z in (z0, points))
        own = _one_each(p, points, labels)
        rows.append((own, last.scatter / first.scatter, first.angle_error, last.angle_error))
    columns = [np.array(x) for x in zip(*rows)]
    return Limits(d, float(spread), shuffled, *columns)


def _start(p: Params, seed: int) -> StartOutcome:
    z0, labels = _tokens(replace(p, seed=seed))
    runs = _runs(p, z0)
    hard = _course(p, "hardmax", runs["hardmax"], labels)
    counts = {name: _clusters(tr, z0) for name, tr in runs.items()}
    fall = float(np.nanmin(hard.scatter) / hard.scatter[0])
    return StartOutcome(seed, _own_leaders(p, z0, labels), counts, fall, float(hard.angle[-1]))


def _own_leaders(p: Params, z0: np.ndarray, labels: np.ndarray) -> bool:
    """True where hardmax brings each group to one leader of its own."""
    return _one_each(p, cy.limit(cy.PureAttention(alpha=p.alpha), z0).points, labels)


def _one_each(p: Params, points: np.ndarray, labels: np.ndarray) -> bool:
    """True where each group has one limit, and each another one."""
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
            "least": lambda c: np.nanmin(c.scatter),
            "at the end": lambda c: c.scatter[-1] if np.isfinite(c.scatter[-1]) else None,
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


def _limit_table(limits: list[Limits]) -> cy.Table:
    columns: dict[str, Any] = {
        **{"d": "d", "spread": "spread"},
        "labels": lambda c: "shuffled" if c.shuffled else "own",
        "starts": lambda c: len(c.own),
        "one leader per group": lambda c: int(c.own.sum()),
        "95 % from": lambda c: wilson(int(c.own.sum()), len(c.own))[0],
        "to": lambda c: wilson(int(c.own.sum()), len(c.own))[1],
        "scatter ratio falls by (median)": lambda c: float(np.median(c.fall)),
        "farther from the simplex at the end": "rose",
    }
    return cy.Table.of("Hardmax at infinite depth, by d, spread and labels", limits, columns)


def _controls(p: Params, limits: list[Limits]) -> list[cy.Comparison]:
    true = [c for c in limits if not c.shuffled]
    null = {(c.d, c.spread): c for c in limits if c.shuffled}

    def told(c: Limits, values: np.ndarray) -> str:
        return f"d = {c.d}, spread {c.spread:g}: {counted(int(values.sum()), len(values))}"

    pairs = [(c, null[c.d, c.spread]) for c in true]
    falls = [(np.median(c.fall), np.median(other.fall)) for c, other in pairs]
    return [
        cy.Comparison(
            "Hardmax brings every group to one leader of its own.",
            "spread of the groups and d",
            "; ".join(told(c, c.own) for c in true),
            all(wilson(int(c.own.sum()), len(c.own))[0] > 0.5 for c in true),
        ),
        cy.Comparison(
            "Where that happens, it happens because groups are groups, not whatever the labels.",
            "shuffled labels",
            "; ".join(told(other, other.own) for _, other in pairs),
            any(c.own.any() for c in true)
            and all(
                wilson(int(c.own.sum()), len(c.own))[0] > wilson(int(o.own.sum()), len(o.own))[1]
                for c, o in pairs
                if c.own.any()
            ),
        ),
        cy.Comparison(
            "The scatter within groups over that between them falls, whether or not each group "
            "has one leader.",
            "shuffled labels; spread and d",
            "median ratio of the limit to the start, own labels, shuffled: "
            + "; ".join(
                f"d = {c.d}, spread {c.spread:g}: {a:.2g}, {b:.2g}"
                for (c, _), (a, b) in zip(pairs, falls)
            ),
            all(a < 1 and a < b for a, b in falls),
        ),
        cy.Comparison(
            "No simplex forms: the cosines between means end within 0.05 of it in fewer than one "
            "start of ten.",
            "spread and d",
            "; ".join(told(c, c.end < 0.05) for c in true),
            all(wilson(int((c.end < 0.05).sum()), len(c.end))[1] < 0.1 for c in true),
        ),
        cy.Comparison(
            "In most starts the means end farther from the simplex than they began.",
            "spread and d",
            "; ".join(told(c, c.end > c.start) for c in true),
            all(wilson(c.rose, len(c.own))[0] > 0.5 for c in true),
        ),
    ]


def _summary(
    p: Params, courses: list[Course], others: list[StartOutcome], limits: list[Limits]
) -> str:
    hard, ball = courses[0], courses[-1]
    merged = [c.name for c in courses if c.clusters < p.groups]
    counts, off = [o.clusters["hardmax"] for o in others], [o.simplex for o in others]
    fewer = {name: sum(o.clusters[name] < p.groups for o in others) for name in others[0].clusters}
    own = [
        f"{counted(int(c.own.sum()), len(c.own))} for d = {c.d}, spread {c.spread:g}"
        for c in limits
        if not c.shuffled
    ]
    shuffled = [c for c in limits if c.shuffled]
    null = sum(int(c.own.sum()) for c in shuffled), sum(len(c.own) for c in shuffled)
    return (
        f"{p.groups} groups of {p.size} tokens, one start. Hardmax: the scatter ratio falls by "
        f"{hard.scatter[-1] / hard.scatter[0]:.2g} in {p.layers} layers and the tokens end in "
        f"{hard.clusters} clusters, but the cosines between means stay {hard.angle[-1]:.2f} off "
        f"the simplex (start: {hard.angle[0]:.2f}). Fewer clusters than groups at the end: "
        f"{', '.join(merged) or 'none'}. On the sphere the ratio is {np.nanmin(ball.scatter):.2g} "
        "at its least.\n\n"
        f"Starts in which hardmax brings every group to one leader of its own: {'; '.join(own)}; "
        f"with shuffled labels {null[0]} of {null[1]}. Over the first {len(others)} seeds under "
        f"every model, the tokens end in {min(counts)} to {max(counts)} clusters under hardmax, "
        f"the means {min(off):.2f} to {max(off):.2f} off the simplex. Starts that end with fewer "
        f"clusters than groups: {'; '.join(f'{name} {count}' for name, count in fewer.items())}."
    )


def _curves(p: Params, courses: list[Course]) -> cy.Picture:
    figure, axes = cy.plot.sheet(1, 3, 4.4, 3.8)
    left, middle, right = axes[0]
    for colour, c in zip(cy.plot.PALETTE, courses):
        # Cold softmax lies on hardmax, which is therefore drawn wide below the others.
        wide = c.name == "hardmax"
        look = {"color": colour, "lw": 5 if wide else 1.4, "alpha": 0.35 if wide else 1}
        left.semilogy(c.t, np.maximum(c.scatter, 1e-32), label=c.name, **look)
        middle.plot(c.t, c.angle, **look)
        right.plot(c.t, c.spread, **look)
    hard = courses[0]
    law = 0.1 * hard.scatter[0] * (1 + p.alpha) ** (-2 * hard.t)
    name = "(1+alpha)$^{-2k}$, a decade below"
    left.semilogy(hard.t, law, "--", color=cy.plot.INK, lw=0.9, label=name)
    left.set(xlabel="layer k", ylabel="tr($S_w S_b^+$)/C")
    middle.set(xlabel="layer k", ylabel="off the simplex (cosine)", ylim=(0, None))
    right.set(xlabel="layer k", ylabel="spread of lengths", ylim=(0, None))
    cy.plot.legend_below(left, 6)
    caption = (
        "Left: scatter within groups over scatter between them; dashed, moved down by ten so that "
        "it can be seen, is the hardmax rate (1+alpha)^(-2k); a curve ends where two means agree "
        "to rounding, since Sb^+ no longer sees their difference. Middle: the largest difference "
        "of a cosine between centred means from that of the simplex. Right: relative spread of "
        "their lengths (0 for a simplex). One layer counts as a time alpha of the sphere flow. "
        "Hardmax is drawn wide: the coldest softmax lies on it."
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
