"""Several hardmax heads: who leads when every head has its own form A_h.

    z_i <- rho z_i + eta (1/H) sum_h V_h m_i^(h),   m_i^(h) = mean of C_i under A_h

Open for the theory of arXiv 2407.01602. See: with V_h = I the hull still shrinks, whatever the
heads (each m_i^(h) lies in it), and a token that leads in every head never moves; but such tokens
become rare as heads with different forms are added, tokens that no head agrees on settle at points
that are nobody's place, and with value matrices the hull may grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of, require

TITLE = "Several heads: leaders in all of them, and limits that are nobody's place"
KINDS = ("equal heads", "random heads", "random heads and values", "softmax heads")


@dataclass(frozen=True)
class Params:
    """Numbers of heads, Gaussian starts of n tokens, layers; `beta` of the softmax heads."""

    heads: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    n: int = 24
    d: int = 2
    alpha: float = 1.0
    starts: int = 12
    layers: int = 60
    beta: float = 20.0
    spread: float = 0.3  # of the value matrices V_h = I + spread * Gaussian
    seed: int = 0


QUICK = Params(heads=(1, 2, 4), n=16, starts=3, layers=40)


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


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every kind of heads for every number of them."""
    sensible = min(*p.heads, p.n, p.starts) >= 1 and p.layers >= 2
    require(sensible, "heads, n, starts >= 1, layers >= 2", p)
    groups = over_grid(_head_runs, p, {"heads": KINDS, "H": p.heads}, part(progress, 0, 0.9))
    figures = (
        cy.Picture("One start, one and several heads", _PANELS, _draw_starts(p)),
        cy.Picture("Against the number of heads", _CURVES, _draw_means(p, groups)),
    )
    text, checks = _summary(p, groups), {"V_h = I": _checks(groups)}
    return report_of(__name__, p, text, tables=[_table(groups)], checks=checks, figures=figures)


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


def _summary(p: Params, groups: list[HeadRuns]) -> str:
    low, high = min(p.heads), max(p.heads)
    of = {(g.kind, g.heads): g for g in groups}
    one, many = of["random heads", low], of["random heads", high]
    grown = (of["random heads and values", high].growth > 1e-9).mean()
    return (
        f"From {low} to {high} heads with different forms, tokens that lead in every head fall "
        f"from {one.all_heads.mean():.2g} to {many.all_heads.mean():.2g} of {p.n}, and "
        f"distinct limits from {one.limits.mean():.2g} to {many.limits.mean():.2g}, of which "
        f"{many.at_token.mean():.2g} are places of such leaders; equal heads keep "
        f"{of['equal heads', high].limits.mean():.2g} limits. With V_h = I the hull shrinks in "
        f"every run; with random value matrices it grows in {grown:.0%} of the runs of {high} "
        f"heads. Softmax heads (beta = {p.beta:g}) end with "
        f"{of['softmax heads', high].limits.mean():.2g} limits after {p.layers} layers."
    )


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
