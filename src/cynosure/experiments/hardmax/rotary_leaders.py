"""Rotary positions: every token ends as its own leader (E23).

    C_i = argmax_j <R_{i-j} z_i, z_j>,   R_i the turns of arXiv 2104.09864, A = I

See: with positions no two tokens come together. A token that comes near the leader it follows has
by then a better score with itself, |z_i|^2 against <R z_i, z_l>, and stops on the way: in the end
every token leads, for every base of the rotation (docs/mathematics.md A8 says why), though in the
plane they stop close to each other, around the longest one. What the base does change is the
beginning: where tokens are alike the turns break that likeness, so more of them lead at layer 0;
and on the way tokens lose the lead they had, which without positions they never do.

Beside it: no rotation; the order of the sequence shuffled; other n, d, alpha; and a matrix A other
than I, where the argument fails and clusters come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, counted, over_grid, part, report_of, require, resampled

TITLE = "Rotary positions: leaders and sinks against the base"
KINDS = ("independent", "common mean", "walk")
NEAR = 1e-6  # of the longest token: ends nearer than this are one cluster


@dataclass(frozen=True)
class Params:
    """`starts` sequences of n tokens of R^d of each kind under each of `bases` (0: no rotation).

    "independent": N(0, I). "common mean": half of the second moment is that of the mean. "walk":
    z_i = r z_{i-1} + sqrt(1 - r^2) g_i, neighbours alike. `varied`: (n, d, alpha, spread of A's
    eigenvalues) run besides, the walk at the last base; `shuffled`: the same in random order.
    """

    bases: tuple[float, ...] = (0.0, 1.0, 10.0, 100.0, 1e4, 1e8)
    n: int = 48
    d: int = 8
    alpha: float = 1.0
    r: float = 0.9
    layers: int = 60
    starts: int = 24
    varied: tuple[tuple[int, int, float, float], ...] = (
        (16, 8, 1.0, 1.0),
        (128, 8, 1.0, 1.0),
        (48, 2, 1.0, 1.0),
        (48, 5, 1.0, 1.0),
        (48, 16, 1.0, 1.0),
        (48, 8, 0.3, 1.0),
        (48, 8, 5.0, 1.0),
        (48, 8, 1.0, 4.0),
    )
    seed: int = 0


QUICK = Params(bases=(0.0, 1e4), n=10, d=4, starts=3, varied=((10, 4, 1.0, 4.0),))


class Leaders(NamedTuple):
    """The starts of one cell: numbers of tokens, one entry per start."""

    kind: str
    base: float
    n: int
    d: int
    alpha: float
    form: float  # largest over smallest eigenvalue of A; 1 for A = I
    order: str
    first: list[int]  # lead at layer 0
    last: list[int]  # lead at the last layer
    lost: list[int]  # led at some layer and not at the next
    clusters: list[int]  # ends that differ
    apart: list[float]  # standard deviation of the ends over that of the start, by coordinate
    sinks: list[int]  # followed by another token at layer 0
    mass: list[float]  # of the others, the share that follow the token most followed at layer 0
    way: list[float]  # mean length of the way of a token, over the longest token
    growth: float  # of a support function from one layer to the next, over the longest token

    def mean(self, name: str) -> float:
        return float(np.mean(getattr(self, name)))

    def told(self, name: str) -> str:
        low, high = resampled(getattr(self, name))
        return f"{self.mean(name):.3g} (95 %: {low:.3g} to {high:.3g})"


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every kind of sequence under every base, then other sizes, forms and orders."""
    sensible = min(p.n, p.d) >= 2 and p.layers >= 1 and p.starts >= 2 and 0.0 in p.bases
    require(sensible and max(p.bases) > 0, "n, d, starts >= 2, layers >= 1, bases with 0", p)
    sizes = [(p.n, p.d, p.alpha, 1.0)]
    axes: dict[str, Any] = {"start": KINDS, "base": p.bases, "size": sizes, "order": ["kept"]}
    cells = over_grid(_cell, p, axes, part(progress, 0, 0.6))
    some = [0.0, max(p.bases)]
    axes = {"start": KINDS[2:], "base": some, "size": p.varied, "order": ["kept"]}
    others = over_grid(_cell, p, axes, part(progress, 0.6, 0.9))
    axes = {"start": KINDS[2:], "base": p.bases, "size": sizes, "order": ["shuffled"]}
    mixed = over_grid(_cell, p, axes, part(progress, 0.9, 1))
    every = [*cells, *others, *mixed]
    hulls = at_most(
        "hulls under rotary positions",
        "docs/mathematics.md A8, B1 for any attention",
        "the hull of the tokens shrinks, whatever the sets C_i are",
        max(c.growth for c in every),
        1e-13,  # rounding of a layer, in units of the longest token
        cells=len(every),
    )
    return report_of(
        __name__,
        p,
        _summary(p, cells),
        controls=_controls(p, cells, others, mixed),
        tables=[
            _table("Kinds of sequences and bases", cells),
            _table("Other sizes, steps and forms", others),
            _table("The same walks in random order", mixed),
        ],
        checks={"V = I": [hulls]},
        figures=[
            cy.Picture("Leaders against the base", _CURVES, _curves(p, [*cells, *mixed])),
            cy.Picture("One walk in the plane", _PLANE, _plane(p)),
        ],
    )


def _start(p: Params, kind: str, n: int, d: int, seed: int) -> np.ndarray:
    g = np.random.default_rng([p.seed, seed]).standard_normal((n, d))
    if kind == "common mean":
        return g / np.sqrt(2) + np.sqrt(d / 2) * np.eye(d)[0]
    if kind == "walk":
        for i in range(1, n):
            g[i] = p.r * g[i - 1] + np.sqrt(1 - p.r**2) * g[i]
    return g


def _rule(base: float | int, A: np.ndarray | None) -> Any:
    return cy.Rotary(cy.Hardmax(A), base) if base else cy.Hardmax(A)


def _cell(
    p: Params, kind: str, base: float | int, size: tuple[int, int, float, float], order: str
) -> Leaders:
    n, d, alpha, form = size
    found: list[tuple[Any, ...]] = []
    growths = []
    for seed in range(p.starts):
        z = _start(p, kind, n, d, seed)
        rng = np.random.default_rng([p.seed, seed, 1])
        if order == "shuffled":
            z = z[rng.permutation(n)]
        A = None
        if form != 1:
            turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
            A = turn @ np.diag(np.geomspace(1, form, d)) @ turn.T
            A = (A + A.T) / 2
        ends, growth = _measured(_rule(base, A), z, alpha, p.layers)
        found.append(ends)
        growths.append(growth)
    measured: dict[str, Any] = dict(zip(Leaders._fields[7:-1], map(list, zip(*found))))
    return Leaders(
        kind=kind,
        base=base,
        n=n,
        d=d,
        alpha=alpha,
        form=form,
        order=order,
        **measured,
        growth=max(growths),
    )


def _measured(
    rule: Any, z: np.ndarray, alpha: float | int, layers: int
) -> tuple[tuple[Any, ...], float]:
    run = cy.simulate(cy.PureAttention(rule, alpha), z, layers=layers)
    roles = cy.roles(run) if isinstance(rule, cy.Hardmax) else None
    if roles is None:
        sets = [rule.followed(x) for x in run.values]
        leads = np.array([s.leads for s in sets])
    else:  # without positions: C_i from the certified walk
        sets = [roles.followed(0)]
        born = np.where(roles.born < 0, layers + 1, roles.born)
        leads = np.arange(layers + 1)[:, None] >= born
    P = sets[0].weights()
    np.fill_diagonal(P, 0)
    longest = float(np.linalg.norm(z, axis=1).max())
    way = np.linalg.norm(np.diff(run.values, axis=0), axis=2).sum(axis=0)
    c = np.random.default_rng(0).standard_normal((64, z.shape[1]))
    support = (run.values @ (c / np.linalg.norm(c, axis=1, keepdims=True)).T).max(axis=1)
    ends = (
        int(leads[0].sum()),
        int(leads[-1].sum()),
        int((leads[:-1] & ~leads[1:]).any(axis=0).sum()),
        cy.clusters(run.values[-1], tol=NEAR * longest).count,
        float(run.values[-1].std(axis=0).sum() / z.std(axis=0).sum()),
        int((P.sum(axis=0) > 0).sum()),
        float(P.sum(axis=0).max() / (len(z) - 1)),
        float(way.mean() / longest),
    )
    return ends, float(np.diff(support, axis=0).max() / longest)


def _table(title: str, cells: list[Leaders]) -> cy.Table:
    columns: dict[str, Any] = {
        "sequence": "kind",
        "base": lambda c: c.base or "no rotation",
        **{name: name for name in ("n", "d", "alpha")},
        "A, largest/least": "form",
        "order": "order",
        "lead at layer 0": lambda c: c.mean("first"),
        "lead at the end": lambda c: c.mean("last"),
        "lost a lead": lambda c: c.mean("lost"),
        "clusters": lambda c: c.mean("clusters"),
        "spread kept": lambda c: c.mean("apart"),
        "sinks": lambda c: c.mean("sinks"),
        "mass on the first sink": lambda c: c.mean("mass"),
        "way": lambda c: c.mean("way"),
    }
    note = (
        "Means over the starts. Spread kept: sum of the standard deviations of the coordinates at "
        "the end over that at the start. Sinks: tokens that another one follows at layer 0; way: "
        "mean length of a token's way over the length of the longest token."
    )
    return cy.Table.of(title, cells, columns, note)


def _controls(
    p: Params, cells: list[Leaders], others: list[Leaders], mixed: list[Leaders]
) -> list[cy.Comparison]:
    def alone(chosen: list[Leaders]) -> tuple[int, int]:
        """Starts in which every token leads at the end, and all starts."""
        return sum(x == c.n for c in chosen for x in c.last), sum(len(c.last) for c in chosen)

    plain = [c for c in (*cells, *others) if not c.base]
    turned = [c for c in (*cells, *others, *mixed) if c.base and c.form == 1]
    formed = [c for c in others if c.base and c.form != 1]
    of = {(c.kind, c.base): c for c in cells}
    top = max(p.bases)
    shuffled = next(c for c in mixed if c.base == top)
    alike = [of[kind, top] for kind in KINDS[1:]]
    still = [of[kind, 0.0] for kind in KINDS[1:]]
    pairs = [(of["walk", c.base], c) for c in mixed if c.base]
    ordered, unordered = max(pairs, key=lambda two: two[1].mean("first") - two[0].mean("first"))
    independent = [c for c in cells if c.kind == "independent"]
    means = [c.mean("first") for c in independent]
    gap = max(resampled(c.first)[1] - resampled(c.first)[0] for c in independent)
    lost = sum(x > 0 for c in turned for x in c.lost)
    return [
        cy.Comparison(
            "With A = I all tokens lead at the end in 9 of 10 starts, without positions in none.",
            "no rotation; every base, n, d, alpha, kind and order; A with other eigenvalues",
            f"starts in which all lead: rotary {counted(*alone(turned))}, no rotation "
            f"{counted(*alone(plain))}, rotary with A other than I "
            + (counted(*alone(formed)) if formed else "not run"),
            alone(turned)[0] >= 0.9 * alone(turned)[1] and alone(plain)[0] == 0,
        ),
        cy.Comparison(
            "The base does not matter to leaders at layer 0 of independent tokens.",
            "no rotation, which has the same law: R z_i is Gaussian and independent of z_j",
            "; ".join(f"{c.base or 'none'}: {c.told('first')}" for c in independent),
            max(means) - min(means) <= gap,
        ),
        cy.Comparison(
            "Where tokens are alike turns make more of them lead at layer 0, in whatever order.",
            "no rotation; the walks in random order",
            "; ".join(
                f"{a.kind}, base {top:g}: {a.told('first')}, no rotation: {b.told('first')}"
                for a, b in zip(alike, still)
            )
            + f"; walk in random order: {shuffled.told('first')}",
            all(
                resampled(a.first)[0] > resampled(b.first)[1]
                for a, b in zip([*alike, shuffled], [*still, still[-1]])
            ),
        ),
        cy.Comparison(
            "Whether neighbours are alike matters to the number of leaders at layer 0.",
            "the same tokens in random order, at the base where that changes most",
            f"base {ordered.base:g}: {ordered.told('first')} in the order of the walk, "
            f"{unordered.told('first')} in random order",
            resampled(ordered.first)[1] < resampled(unordered.first)[0],
        ),
        cy.Comparison(
            "Tokens stay as far apart as they were.",
            "dimensions, beside no rotation",
            "; ".join(
                f"d = {c.d}{'' if c.base else ', no rotation'}: {c.told('apart')}"
                for c in others
                if (c.n, c.alpha, c.form) == (p.n, p.alpha, 1)
            )
            + f"; {of['walk', top].told('apart')} for d = {p.d}",
            min(c.mean("apart") for c in turned) > 0.9,
        ),
        cy.Comparison(
            "Leads are lost under rotary positions.",
            "no rotation, where a leader stays one (B5)",
            f"starts with a lost lead: {counted(lost, sum(len(c.lost) for c in turned))}; without "
            f"rotation {sum(x > 0 for c in plain for x in c.lost)} of "
            f"{sum(len(c.lost) for c in plain)}",
            lost > 0 and not any(x for c in plain for x in c.lost),
        ),
    ]


def _summary(p: Params, cells: list[Leaders]) -> str:
    of = {(c.kind, c.base): c for c in cells}
    top = max(p.bases)
    turned = [c for c in cells if c.base]
    least = min(turned, key=lambda c: c.mean("last"))
    told = []
    for kind in KINDS:
        plain, rotary = of[kind, 0.0], of[kind, top]
        told.append(
            f"{kind}: {plain.mean('first'):.3g} lead at layer 0 without positions, "
            f"{rotary.mean('first'):.3g} with base {top:g}; mass on the first sink "
            f"{plain.mean('mass'):.2f} and {rotary.mean('mass'):.2f}; clusters in the end "
            f"{plain.mean('clusters'):.3g} and {rotary.mean('clusters'):.3g}; leads lost 0 and "
            f"{rotary.mean('lost'):.3g}"
        )
    return (
        f"{p.n} tokens of R^{p.d}, {p.layers} layers, {p.starts} starts each. Whatever the base, "
        f"all or nearly all tokens lead in the end (fewest on average: {least.mean('last'):.4g} of "
        f"{p.n}, {least.kind}, base {least.base:g}): with rotary positions and A = I tokens do not "
        f"meet.\n\nBy kind of sequence. {'. '.join(told)}."
    )


_CURVES = (
    "Means with 95 % intervals; dashed: without positions. Left: tokens that lead at layer 0. For "
    "independent tokens the base changes nothing; where tokens are alike turns part them, the "
    "more the faster they are (small base). Middle: tokens that lead at the end: all of them. "
    "Right: tokens that lost a lead on the way, of which there are none without positions."
)
_PLANE = (
    "The same walk of tokens in the plane (hollow: start; filled: end), the colour being the place "
    "in the sequence. Left: without positions tokens gather at few leaders. Right: with rotary "
    "positions each stops at a place of its own, here around the longest token."
)


def _curves(p: Params, cells: list[Leaders]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4.2, 3.7)
    names = {"first": "lead at layer 0", "last": "lead at the end", "lost": "lost a lead"}
    groups = {kind: [c for c in cells if c.kind == kind and c.order == "kept"] for kind in KINDS}
    groups["walk, shuffled"] = [c for c in cells if c.order == "shuffled"]
    for shift, (colour, (kind, of)) in enumerate(zip(cy.plot.PALETTE, groups.items())):
        turned = [c for c in of if c.base]
        x = np.array([c.base for c in turned]) * 1.15 ** (shift - 1.5)
        for ax, name in zip(axes[0], names):
            mean = np.array([c.mean(name) for c in turned])
            bars = np.abs(np.array([resampled(getattr(c, name)) for c in turned]).T - mean)
            ax.errorbar(x, mean, bars, fmt="o-", ms=4, capsize=2, lw=1, color=colour, label=kind)
            ax.axhline(next(c for c in of if not c.base).mean(name), color=colour, ls="--", lw=0.8)
    for ax, name in zip(axes[0], names.values()):
        ax.set(xscale="log", xlabel="base of the rotation", ylabel=f"tokens that {name}")
        ax.set_ylim(bottom=0)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _plane(p: Params) -> Any:
    figure, axes = cy.plot.sheet(1, 2, 4.4, 4.2)
    z = _start(p, "walk", p.n, 2, 0)
    for ax, base in zip(axes[0], (0.0, max(p.bases))):
        tr = cy.simulate(cy.PureAttention(_rule(base, None), p.alpha), z, layers=p.layers).values
        ax.plot(tr[..., 0], tr[..., 1], color=cy.plot.GREY, lw=0.6, zorder=1)
        look: dict[str, Any] = {"c": np.arange(p.n), "cmap": "viridis"}
        ax.scatter(*z.T, s=22, facecolors="none", edgecolors=cy.plot.GREY, lw=0.8, zorder=2)
        shown = ax.scatter(*tr[-1].T, s=26, zorder=3, **look)
        title = f"rotary, base {base:g}" if base else "no positions"
        ax.set(aspect="equal", title=title, xlabel="$z_1$", ylabel="$z_2$")
    figure.colorbar(shown, ax=axes[0].tolist(), label="place in the sequence", shrink=0.8)
    return figure
