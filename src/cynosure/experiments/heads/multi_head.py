"""Several hardmax heads: who leads when every head has its own form A_h.

    z_i <- rho z_i + eta (1/H) sum_h V_h m_i^(h),   m_i^(h) = mean of C_i under A_h

Open for the theory of arXiv 2407.01602. See: with V_h = I the hull still shrinks, whatever the
heads (each m_i^(h) lies in it), and a token that leads in every head never moves; tokens that no
head agrees on settle at points that are nobody's place. How fast tokens that lead in every head
become rare as heads are added depends on the forms and on d: quickly in the plane with forms far
from round, hardly with nearly round ones; always more slowly than if heads chose by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of, require, resampled

TITLE = "Several heads: leaders in all of them, and limits that are nobody's place"
KINDS = ("equal heads", "random heads", "random heads and values", "softmax heads")


@dataclass(frozen=True)
class Params:
    """Numbers of heads, Gaussian starts of n tokens, layers; `beta` of the softmax heads.

    Besides, leaders of layer 0 are counted for `dims`, for forms of every condition number of
    `conditions` (the ratio of the largest to the least eigenvalue), on `counted` starts.
    """

    heads: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    n: int = 24
    d: int = 2
    alpha: float = 1.0
    starts: int = 20
    layers: int = 60
    beta: float = 20.0
    spread: float = 0.3  # of the value matrices V_h = I + spread * Gaussian
    dims: tuple[int, ...] = (2, 4, 16)
    conditions: tuple[float, ...] = (1.4, 5.0, 25.0)
    counted: int = 100
    seed: int = 0


QUICK = Params(
    heads=(1, 2, 4), n=16, starts=3, layers=40, dims=(2, 8), conditions=(1.4, 25.0), counted=20
)


class HeadRuns(NamedTuple):
    """The runs of one kind and number of heads: every array has one entry per start."""

    kind: str
    heads: int
    all_heads: np.ndarray  # tokens that lead in every head at layer 0
    some_head: np.ndarray
    moved: np.ndarray  # how far such a token moved
    growth: np.ndarray  # of the hull in some direction, over all layers, relative
    limits: np.ndarray
    at_token: np.ndarray  # limits that are the place of a token that leads in every head
    settled: np.ndarray  # layer after which no step exceeds 1e-6 of the longest token; else NaN


class LeadInAll(NamedTuple):
    """Tokens that lead in every one of H heads at layer 0, forms of one condition number."""

    d: int
    condition: float
    H: int
    counts: np.ndarray  # one per start
    single: np.ndarray  # tokens that lead in the first head

    @property
    def mean(self) -> float:
        return float(self.counts.mean())

    def alone(self, n: int) -> float:
        """If heads chose independently, so many tokens each: n times the product of the shares."""
        return float(n * (self.single.mean() / n) ** self.H)

    @property
    def told(self) -> str:
        low, high = resampled(self.counts)
        return f"{self.mean:.2g} (95 %: {low:.2g} to {high:.2g})"


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every kind of heads for every number of them."""
    sensible = min(*p.heads, p.n, p.starts) >= 1 and p.layers >= 2
    require(sensible, "heads, n, starts >= 1, layers >= 2", p)
    axes = {"d": p.dims, "condition": p.conditions, "H": p.heads}
    leads = over_grid(_lead_in_all, p, axes, part(progress, 0, 0.2))
    groups = over_grid(_head_runs, p, {"heads": KINDS, "H": p.heads}, part(progress, 0.2, 0.9))
    figures = (
        cy.Picture("One start, one and several heads", _PANELS, _draw_starts(p)),
        cy.Picture("Against the number of heads", _CURVES, _draw_means(p, groups)),
        cy.Picture("By the condition of the forms and d", _SHARES, _draw_shares(p, leads)),
    )
    return report_of(
        __name__,
        p,
        _summary(p, groups, leads),
        controls=_controls(p, groups, leads),
        tables=[_table(groups), _lead_table(p, leads)],
        checks={"V_h = I": _checks(groups)},
        figures=figures,
    )


_SHARES = (
    "Tokens that lead in all of H heads at layer 0, as a share of those that lead in one; means "
    "over the starts. Colours: condition number of the forms; dotted: the share if each head chose "
    "as many tokens independently of the others."
)


_CURVES = (
    "Means over the starts, with a standard error. Left: tokens that lead in every head at layer 0 "
    "(the other two kinds have the forms of the random heads). Right: layers until no token moves "
    "by more than 1e-6 of the longest one, or all layers where some always does."
)
_PANELS = (
    "The same start under one head and under several. Stars lead in every head and never move; "
    "the other tokens end at squares, with several heads between the tokens; shaded: their hull."
)


def _forms(p: Params, kind: str, h: int, s: int) -> list[np.ndarray]:
    """Random symmetric positive definite forms; the first ones do not depend on h."""
    M = np.random.default_rng([p.seed, s, 1]).standard_normal((h, p.d, p.d))
    A = [m @ m.T + 0.1 * np.eye(p.d) for m in (M[:1].repeat(h, 0) if kind == "equal heads" else M)]
    return [(a + a.T) / 2 for a in A]


def _conditioned(d: int, condition: float | int, rng: np.random.Generator) -> np.ndarray:
    """A symmetric form with eigenvalues from 1 to `condition`, in random directions."""
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = (q * np.geomspace(1, condition, d)) @ q.T
    return (A + A.T) / 2


def _lead_in_all(p: Params, d: int, condition: float | int, h: int) -> LeadInAll:
    counts, single = [], []
    for s in range(p.counted):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        rng = np.random.default_rng([p.seed, s, d, 4])
        leads = [cy.Hardmax(_conditioned(d, condition, rng)).followed(z).leads for _ in range(h)]
        counts.append(np.all(leads, axis=0).sum())
        single.append(leads[0].sum())
    return LeadInAll(d, float(condition), h, np.array(counts), np.array(single))


def _run(p: Params, kind: str, h: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens (layers, n, d) of one start, and who leads in each head (h, n) at layer 0."""
    z0 = cy.configurations.gaussian(p.n, p.d, p.seed + s)
    forms = _forms(p, kind, h, s)
    hardmax = [cy.Hardmax(A) for A in forms]
    heads = cy.Heads(hardmax)
    if kind == "softmax heads":
        heads = cy.Heads([cy.Softmax(p.beta, A) for A in forms])
    elif kind == "random heads and values":
        noise = np.random.default_rng([p.seed, s, 2]).standard_normal((h, p.d, p.d))
        heads = cy.Heads(hardmax, list(np.eye(p.d) + p.spread * noise))
    dynamics = cy.PureAttention(heads, alpha=p.alpha)
    z = cy.simulate(dynamics, z0, layers=p.layers, throw=False).values
    return z, np.array([head.followed(z0).leads for head in hardmax])


def _head_runs(p: Params, kind: str, h: int) -> HeadRuns:
    rows = [_measure(p, *_run(p, kind, h, s)) for s in range(p.starts)]
    arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return HeadRuns(kind=kind, heads=h, **arrays)


def _measure(p: Params, z: np.ndarray, leads: np.ndarray) -> dict[str, Any]:
    """One entry of every array of `HeadRuns`."""
    everywhere = leads.all(axis=0)
    longest = float(np.linalg.norm(z[0], axis=1).max())
    directions = np.random.default_rng(0).standard_normal((64, p.d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    support = (z @ directions.T).max(axis=1)
    step = np.linalg.norm(np.diff(z, axis=0), axis=-1).max(axis=1) / longest
    settled = max(np.flatnonzero(step > 1e-6) + 1, default=0)
    limits = cy.clusters(z[-1], tol=1e-4 * float(np.linalg.norm(z[-1], axis=1).max()))
    places = z[0, everywhere]
    near = np.linalg.norm(limits.centres[:, None] - places, axis=-1) < 1e-3 * longest
    return {
        "all_heads": everywhere.sum(),
        "some_head": leads.any(axis=0).sum(),
        "moved": np.abs(z[:, everywhere] - places).max(initial=0.0) / longest,
        "growth": np.diff(support, axis=0).max() / longest,
        "limits": limits.count,
        "at_token": near.any(axis=1).sum(),
        "settled": settled if settled < p.layers else np.nan,
    }


def _checks(groups: list[HeadRuns]) -> list[cy.Check]:
    """Both statements hold for heads with V_h = I; softmax heads have no fixed leaders."""
    moved = np.concatenate([g.moved for g in groups if g.kind in KINDS[:2]])
    growth = np.concatenate([g.growth for g in groups if g.kind != "random heads and values"])
    still, shrinks = "a token that leads in every head never moves", "the hull only shrinks"
    hull, leader = "docs/mathematics.md B1, E6", "docs/mathematics.md B5, E6"
    return [
        at_most("hull", hull, shrinks, growth.max(), 1e-12, runs=len(growth)),
        at_most("leaders of all heads", leader, still, moved.max(), 1e-12, runs=len(moved)),
    ]


def _table(groups: list[HeadRuns]) -> cy.Table:
    def median(g: HeadRuns) -> float | None:
        return float(np.nanmedian(g.settled)) if np.isfinite(g.settled).any() else None

    columns: dict[str, Any] = {
        "heads": "kind",
        "H": "heads",
        "lead in all": lambda g: float(g.all_heads.mean()),
        "lead in some": lambda g: float(g.some_head.mean()),
        "limits": lambda g: float(g.limits.mean()),
        "at such a leader": lambda g: float(g.at_token.mean()),
        "layers to settle": median,
        "settled runs": lambda g: float(np.isfinite(g.settled).mean()),
        "hull growth": lambda g: float(g.growth.max()),
    }
    note = "Means over the starts; layers to settle: the median; hull growth: the largest."
    return cy.Table.of("Several heads", groups, columns, note)


def _lead_table(p: Params, leads: list[LeadInAll]) -> cy.Table:
    columns: dict[str, Any] = {
        **{"d": "d", "condition": "condition", "H": "H", "lead in all": "mean"},
        "95 % from": lambda c: resampled(c.counts)[0],
        "to": lambda c: resampled(c.counts)[1],
        "lead in the first": lambda c: float(c.single.mean()),
        "if independent": lambda c: c.alone(p.n),
    }
    note = f"{p.counted} starts of {p.n} Gaussian tokens, layer 0."
    return cy.Table.of("Leaders of all heads by condition and d", leads, columns, note)


def _ends(p: Params, leads: list[LeadInAll]) -> list[tuple[LeadInAll, LeadInAll]]:
    """For each (d, condition) the cells of the fewest and of the most heads."""
    of = {(c.d, c.condition, c.H): c for c in leads}
    low, high = min(p.heads), max(p.heads)
    return [(of[d, x, low], of[d, x, high]) for d in p.dims for x in p.conditions]


def _controls(p: Params, groups: list[HeadRuns], leads: list[LeadInAll]) -> list[cy.Comparison]:
    ends, high = _ends(p, leads), max(p.heads)
    of = {(g.kind, g.heads): g for g in groups}
    own, equal = (of[kind, high] for kind in ("random heads", "equal heads"))
    elsewhere = own.limits - own.at_token
    null = equal.limits - equal.at_token
    return [
        cy.Comparison(
            f"Tokens that lead in every one of {high} heads are rare: at most half of those that "
            "lead in one.",
            f"condition of the forms and d, {p.counted} starts of {p.n} tokens",
            "; ".join(
                f"d = {a.d}, condition {a.condition:g}: {a.mean:.2g} to {b.told}" for a, b in ends
            ),
            all(b.mean <= 0.5 * a.mean for a, b in ends),
        ),
        cy.Comparison(
            "Heads agree on leaders more than by chance.",
            "heads that choose as many tokens independently",
            "; ".join(
                f"d = {b.d}, condition {b.condition:g}: {b.told}, by chance {b.alone(p.n):.2g}"
                for _, b in ends
            ),
            high > 1 and all(resampled(b.counts)[0] > b.alone(p.n) for _, b in ends),
        ),
        cy.Comparison(
            "With several heads limits are nobody's place.",
            f"{high} equal heads, which are one head",
            f"limits away from leaders of all heads: {elsewhere.mean():.2g} of "
            f"{own.limits.mean():.2g}, equal heads {null.mean():.2g} of {equal.limits.mean():.2g}",
            resampled(elsewhere - null)[0] > 0,
        ),
    ]


def _summary(p: Params, groups: list[HeadRuns], leads: list[LeadInAll]) -> str:
    low, high = min(p.heads), max(p.heads)
    of = {(g.kind, g.heads): g for g in groups}
    one, many = of["random heads", low], of["random heads", high]
    ends = [
        f"{a.mean:.2g} to {b.mean:.2g} for d = {a.d} and condition {a.condition:g}"
        for a, b in _ends(p, leads)
    ]
    return (
        f"From {low} to {high} heads, tokens of {p.n} that lead in every head go from "
        f"{', '.join(ends)} ({p.counted} starts). Run through {p.layers} layers with random forms "
        f"(d = {p.d}, {p.starts} starts), they go from {one.all_heads.mean():.2g} to "
        f"{many.all_heads.mean():.2g}, and distinct limits from {one.limits.mean():.2g} to "
        f"{many.limits.mean():.2g}, of which {many.at_token.mean():.2g} are places of such "
        f"leaders; equal heads keep {of['equal heads', high].limits.mean():.2g} limits. With V_h = "
        f"I the hull shrinks in every run, as it must. Softmax heads (beta = {p.beta:g}) end with "
        f"{of['softmax heads', high].limits.mean():.2g} limits after {p.layers} layers."
    )


def _draw_shares(p: Params, leads: list[LeadInAll]) -> Any:
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = cy.plot.sheet(1, len(p.dims), 4, 3.6, sharey=True)
    for ax, d in zip(axes, p.dims):
        for colour, x in zip(cy.plot.PALETTE, p.conditions):
            line = [c for c in leads if (c.d, c.condition) == (d, x)]
            first = line[0].single.mean()
            share = np.array([c.mean / first for c in line])
            bars = np.abs(np.array([resampled(c.counts) for c in line]).T / first - share)
            look = {"color": colour, "ms": 4, "capsize": 2, "label": f"condition {x:g}"}
            ax.errorbar(p.heads, share, bars, fmt="o-", **look)
            ax.plot(p.heads, [c.alone(p.n) / first for c in line], ":", color=colour, lw=1)
        ax.set(xlabel="heads H", title=f"d = {d}", ylim=(0, 1.15))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("lead in all / lead in one")
    cy.plot.legend_below(axes[0])
    return figure


def _draw_means(p: Params, groups: list[HeadRuns]) -> Any:
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = cy.plot.sheet(1, 3, height=3.6)
    for colour, kind in zip(cy.plot.PALETTE, KINDS):
        row = [g for g in groups if g.kind == kind]
        if kind in KINDS[:2]:  # the others share the random forms
            cy.plot.means(axes[0], p.heads, [g.all_heads for g in row], color=colour)
        cy.plot.means(axes[1], p.heads, [g.limits for g in row], color=colour, label=kind)
        time = [np.nan_to_num(g.settled, nan=p.layers) for g in row]
        cy.plot.means(axes[2], p.heads, time, color=colour)
    labels = ("tokens that lead in every head", "distinct limits", "layers to settle")
    for ax, name in zip(axes, labels):
        ax.set(xlabel="heads H", ylabel=name)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    cy.plot.legend_below(axes[1])
    return figure


def _draw_starts(p: Params) -> Any:
    shown = sorted({min(p.heads), p.heads[len(p.heads) // 2], max(p.heads)})
    figure, (axes,) = cy.plot.sheet(1, len(shown), height=4.2)
    for ax, h in zip(axes, shown):
        tokens, by_head = _run(p, "random heads", h, 0)
        z, leads = tokens[..., :2], by_head.all(axis=0)
        cy.plot.shade(ax, cy.hull(z[-1]))
        ax.plot(z[:, ~leads, 0], z[:, ~leads, 1], color=cy.plot.GREY, lw=0.8, zorder=1)
        ax.plot(*z[0, ~leads].T, "o", color=cy.plot.PALETTE[0], ms=4, label="start")
        ax.plot(*z[-1, ~leads].T, "s", color=cy.plot.PALETTE[1], ms=6, label="end")
        ax.plot(*z[0, leads].T, "*", color=cy.plot.PALETTE[2], ms=14, label="leads in every head")
        heads = "1 head" if h == 1 else f"{h} heads"
        ax.set(aspect="equal", title=heads, xlabel="$z_1$", ylabel="$z_2$")
    cy.plot.legend_below(axes[0])
    return figure
