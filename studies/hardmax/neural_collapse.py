"""Neural collapse: do attention layers bring labelled groups of tokens to the collapsed state?

Groups of tokens around C random directions run through hardmax layers (arXiv 2407.01602), softmax
layers at several temperatures and the sphere flow (arXiv 2312.10794); at every depth the scatter
within over between groups, tr(Sw Sb^+)/C, and the angles between group means against the simplex,
-1/(C-1): two marks of neural collapse (question of Sugolov and Aubry). See: where every group has
one leader of its own, hardmax collapses it onto that leader at the exact rate (1+alpha)^{-2k}, and
no simplex forms without training. That is a narrow case, and shuffled labels, the null model, never
show it. Cold softmax does the same; warm softmax, and in the end the sphere, bring the groups to
each other as well. The start drawn was picked by hand (seed 0); the tables have the first seeds.

Trap: once two means agree to rounding the pseudo-inverse of Sb no longer sees their difference, and
tr(Sw Sb^+) falls off a cliff that is no collapse. Curves end there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

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
    size=8, layers=30, beta=(5.0, 100.0), starts=4, varied=((3, 0.12), (8, 0.12)), counted=10
)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Every model from the same tokens."""
    sensible = p.groups >= 3 and min(p.size, p.d) >= 2 and p.layers >= 10 and p.alpha > 0
    expected = "groups >= 3, size and d >= 2, layers >= 10, alpha > 0, starts >= 1"
    st.require(sensible and p.starts >= 1, expected, p)
    z0, labels = _tokens(p)
    runs = _runs(p, z0)
    courses = [_course(p, name, tr, labels) for name, tr in runs.items()]
    part, axes = (partial(st.part, progress), {"d, spread": p.varied, "shuffled": (False, True)})
    others = st.over_grid(_start, p, {"start": range(p.starts)}, part(0.2, 0.6))
    limits = st.over_grid(_at_infinity, p, axes, part(0.6, 0.9))
    hard = cy.check(runs["hardmax"], only=("B5", "B8"))
    if _own_leaders(p, z0, labels):
        hard += _rate(p, courses[0])
    return st.report_of(
        p,
        _summary(p, courses, others),
        controls=_controls(p, limits),
        tables=_tables(p, courses, others, limits),
        checks={"hardmax": hard},
        figures=[_curves(p, courses)],
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
    st.require(len(means) == p.groups, "a d with room for so many groups 60 degrees apart", p)
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
    unit, stepper = z0 / np.linalg.norm(z0, axis=1, keepdims=True), cy.simulation.RK4(p.alpha / 4)
    runs["sphere"] = cy.simulate(sphere, unit, times=times, stepper=stepper)
    return runs


def _clusters(tr: cy.Trajectory, z0: np.ndarray) -> int:
    """At the end, told apart at a thousandth of the longest token of z0."""
    return cy.clusters(tr.values[-1], 1e-3 * float(np.linalg.norm(z0, axis=1).max())).count


def _course(p: Params, name: str, tr: cy.Trajectory, labels: np.ndarray) -> st.Cell:
    """The measures of collapse along one run: the scatter (NaN from where two means agree to
    rounding), the largest difference of a cosine from the simplex, std/mean of the lengths of the
    centred means, and clusters at the end."""
    measures = [cy.spectra.neural_collapse(z, labels) for z in tr.values]
    measured = [(m.scatter, m.angle_error, m.norm_spread) for m in measures]
    scatter, angle, spread = np.array(measured).T
    blind = np.maximum.accumulate([not _full_rank(z, labels) for z in tr.values])
    t = np.asarray(tr.t, dtype=float) / (1 if tr.t.dtype.kind == "i" else p.alpha)
    clusters = _clusters(tr, tr.values[0])
    found = {"scatter": np.where(blind, np.nan, scatter), "angle": angle, "spread": spread}
    return st.Cell(name=name, t=t, **found, clusters=clusters)


def _full_rank(z: np.ndarray, labels: np.ndarray) -> bool:
    """False once two group means, or a direction of them, agree to rounding: Sb^+ is blind to it.

    Sb has the squares of the singular values; NumPy cuts a pseudo-inverse at 1e-15 of the largest.
    """
    means = np.stack([z[labels == g].mean(axis=0) for g in np.unique(labels)])
    s = np.linalg.svd(means - means.mean(axis=0), compute_uv=False)
    rank = min(len(means) - 1, z.shape[1])
    return bool(s[rank - 1] ** 2 > 1e-14 * s[0] ** 2)


def _at_infinity(p: Params, size: tuple[int, float], shuffled: bool) -> st.Cell:
    """Hardmax at infinite depth from all seeds, for labels as they are or dealt out at random.

    Per seed: whether every group ends at one leader of its own, the scatter ratio at the end over
    that at the start, and how far the means are from the simplex at the start and the end.
    """
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
    columns = dict(zip(("own", "fall", "start", "end"), (np.array(x) for x in zip(*rows))))
    return st.Cell(d=d, spread=float(spread), shuffled=shuffled, **columns)


def _seen(c: st.Cell, which: str = "own") -> tuple[int, int]:
    """Starts in which each group has its own leader, the end is near the simplex, or farther from
    it than the start; and all starts."""
    of = {"own": c.own, "near": c.end < 0.05, "rose": c.end > c.start}[which]
    return int(of.sum()), len(of)


def _start(p: Params, seed: int) -> st.Cell:
    """What one start came to: clusters by model, the fall of the scatter ratio under hardmax, and
    how far hardmax ends from the simplex."""
    z0, labels = _tokens(replace(p, seed=seed))
    runs = _runs(p, z0)
    hard = _course(p, "hardmax", runs["hardmax"], labels)
    counts = {name: _clusters(tr, z0) for name, tr in runs.items()}
    fall = float(np.nanmin(hard.scatter) / hard.scatter[0])
    own, simplex = _own_leaders(p, z0, labels), float(hard.angle[-1])
    return st.Cell(seed=seed, own_leaders=own, clusters=counts, fall=fall, simplex=simplex)


def _own_leaders(p: Params, z0: np.ndarray, labels: np.ndarray) -> bool:
    """True where hardmax brings each group to one leader of its own."""
    return _one_each(p, cy.limit(cy.PureAttention(alpha=p.alpha), z0).points, labels)


def _one_each(p: Params, points: np.ndarray, labels: np.ndarray) -> bool:
    """True where each group has one limit, and each another one."""
    pure = all(len(np.unique(points[labels == g], axis=0)) == 1 for g in range(p.groups))
    return pure and len(np.unique(points, axis=0)) == p.groups


def _rate(p: Params, hard: st.Cell) -> list[cy.theorems.Check]:
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
    return [st.at_most("rate", "docs/mathematics.md B8, E11", statement, off, 0.01, slope=slope)]


def _tables(
    p: Params, courses: list[st.Cell], others: list[st.Cell], limits: list[st.Cell]
) -> list[st.Table]:
    course: dict[str, Any] = {
        **{"model": "name", "scatter at the start": lambda c: c.scatter[0]},
        "least": lambda c: np.nanmin(c.scatter),
        "at the end": lambda c: c.scatter[-1] if np.isfinite(c.scatter[-1]) else None,
        "off the simplex at the start": lambda c: c.angle[0],
        "off the simplex at the end": lambda c: c.angle[-1],
        **{"spread of lengths": lambda c: c.spread[-1], "clusters": "clusters"},
    }
    limit = st.columns("d, spread, shuffled labels = shuffled, starts = len own")
    limit |= {"one leader per group": lambda c: _seen(c)[0], **st.interval(_seen)}
    limit |= st.columns("scatter ratio falls by (median) = median fall")
    limit |= {"farther from the simplex at the end": lambda c: _seen(c, "rose")[0]}
    other: dict[str, Any] = st.columns(
        "seed, one leader per group = own_leaders, scatter ratio falls by = fall, "
        "off the simplex = simplex"
    )
    other |= {f"clusters, {k}": lambda o, k=k: o.clusters[k] for k in others[0].clusters}
    note = f"Every start of the first seeds, {p.groups} groups each; the second to fourth: hardmax."
    title = "Hardmax at infinite depth, by d, spread and labels"
    return [
        st.Table.of("Neural collapse", courses, course),
        st.Table.of(title, limits, limit),
        st.Table.of("Other starts", others, other, note),
    ]


def _controls(p: Params, limits: list[st.Cell]) -> list[st.Comparison]:
    true = [c for c in limits if not c.shuffled]
    null = {(c.d, c.spread): c for c in limits if c.shuffled}
    pairs = [(c, null[c.d, c.spread]) for c in true]

    def told(of: Iterable[st.Cell], which: str = "own") -> str:
        return "; ".join(
            f"d = {c.d}, spread {c.spread:g}: {st.counted(*_seen(c, which))}" for c in of
        )

    def ends(c: st.Cell, which: str = "own") -> tuple[float, float]:
        return st.wilson(*_seen(c, which))

    falls = [(c, float(np.median(c.fall)), float(np.median(o.fall))) for c, o in pairs]
    return [
        st.Comparison(
            "Hardmax brings every group to one leader of its own.",
            "spread of the groups and d",
            told(true),
            all(ends(c)[0] > 0.5 for c in true),
        ),
        st.Comparison(
            "Where that happens, it happens because groups are groups, not whatever the labels.",
            "shuffled labels",
            told(other for _, other in pairs),
            any(c.own.any() for c in true)
            and all(ends(c)[0] > ends(o)[1] for c, o in pairs if c.own.any()),
        ),
        st.Comparison(
            "The scatter within groups over that between them falls, whether or not each group "
            "has one leader.",
            "shuffled labels; spread and d",
            "median ratio of the limit to the start, own labels, shuffled: "
            + "; ".join(f"d = {c.d}, spread {c.spread:g}: {a:.2g}, {b:.2g}" for c, a, b in falls),
            all(a < 1 and a < b for _, a, b in falls),
        ),
        st.Comparison(
            "No simplex forms: the cosines between means end within 0.05 of it in fewer than one "
            "start of ten.",
            "spread and d",
            told(true, "near"),
            all(ends(c, "near")[1] < 0.1 for c in true),
        ),
        st.Comparison(
            "In most starts the means end farther from the simplex than they began.",
            "spread and d",
            told(true, "rose"),
            all(ends(c, "rose")[0] > 0.5 for c in true),
        ),
    ]


def _summary(p: Params, courses: list[st.Cell], others: list[st.Cell]) -> str:
    hard, ball = courses[0], courses[-1]
    merged = [c.name for c in courses if c.clusters < p.groups]
    fewer = {name: sum(o.clusters[name] < p.groups for o in others) for name in others[0].clusters}
    return (
        f"{p.groups} groups of {p.size} tokens, one start. Hardmax: the scatter ratio falls by "
        f"{hard.scatter[-1] / hard.scatter[0]:.2g} in {p.layers} layers and the tokens end in "
        f"{hard.clusters} clusters, but the cosines between means stay {hard.angle[-1]:.2f} off "
        f"the simplex (start: {hard.angle[0]:.2f}). Fewer clusters than groups at the end: "
        f"{', '.join(merged) or 'none'}. On the sphere the ratio is {np.nanmin(ball.scatter):.2g} "
        "at its least.\n\n"
        f"Of the first {len(others)} seeds so many "
        "end with fewer clusters than groups: "
        f"{'; '.join(f'{name} {count}' for name, count in fewer.items())}."
    )


def _curves(p: Params, courses: list[st.Cell]) -> st.Picture:
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
    return st.Picture("Measures of collapse", caption, figure)
