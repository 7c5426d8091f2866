"""Several hardmax heads: who leads in all of them, and limits that are nobody's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import cynosure as cy
from cynosure import study as st

if TYPE_CHECKING:
    from .several_heads import Params

KINDS = ("equal heads", "random heads", "random heads and values", "softmax heads")


def directions(d: int) -> np.ndarray:
    """64 random unit vectors: the hull shrinks where its support shrinks along each."""
    u = np.random.default_rng(0).standard_normal((64, d))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def hardmax(p: Params, progress: st.Progress) -> st.Report:
    """Every kind of heads for every number of them."""
    over = st.measuring(p, progress)
    axes = {"d": p.dims, "condition": p.conditions, "H": p.heads}
    leads = over(lead_in_all, axes, 0.2)
    groups = over(head_runs, {"heads": KINDS, "H": p.heads}, 0.9)

    runs = st.columns(
        "heads = kind, H = heads, lead in all = mean all_heads, lead in some = mean some_head, "
        "limits = mean limits, at such a leader = mean at_token"
    )
    runs |= {"layers to settle": lambda g: g.median("settled")}
    runs |= {"settled runs": lambda g: float(np.isfinite(g.settled).mean())}
    runs |= st.columns("hull growth = max growth")
    note = "Means over the starts; layers to settle: the median; hull growth: the largest."
    shown = st.columns(
        "d, condition, H, lead in all = mean counts, 95 % from = low counts, to = high counts, "
        "lead in the first = mean single"
    )
    shown |= {"if independent": lambda c: alone(c, p.n)}
    of = f"{p.counted} starts of {p.n} Gaussian tokens, layer 0."
    return st.report_of(
        p,
        _summary(p, groups, leads),
        title="Several heads: leaders in all of them, and limits that are nobody's place",
        controls=controls(p, groups, leads),
        tables=[
            st.Table.of("Several heads", groups, runs, note),
            st.Table.of("Leaders of all heads by condition and d", leads, shown, of),
        ],
        checks={"V_h = I": checks(groups)},
        figures=[st.Picture("One start, one and several heads", _STARTS, _draw_starts(p))],
    )


_STARTS = (
    "The same start under one head and under several. Stars lead in every head and never move; "
    "the other tokens end at squares, with several heads between the tokens; shaded: their hull."
)


def _forms(p: Params, kind: str, h: int, s: int) -> list[np.ndarray]:
    """Random symmetric positive definite forms; the first ones do not depend on h."""
    M = np.random.default_rng([p.seed, s, 1]).standard_normal((h, p.d, p.d))
    A = [m @ m.T + 0.1 * np.eye(p.d) for m in (M[:1].repeat(h, 0) if kind == "equal heads" else M)]
    return [(a + a.T) / 2 for a in A]


def conditioned(d: int, condition: float | int, rng: np.random.Generator) -> np.ndarray:
    """A symmetric form with eigenvalues from 1 to `condition`, in random directions."""
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = (q * np.geomspace(1, condition, d)) @ q.T
    return (A + A.T) / 2


def lead_in_all(p: Params, d: int, condition: float | int, h: int) -> st.Cell:
    """Tokens that lead in every one of h heads at layer 0, and in the first one, per start."""
    counts, single = [], []
    for s in range(p.counted):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        rng = np.random.default_rng([p.seed, s, d, 4])
        leads = [cy.Hardmax(conditioned(d, condition, rng)).followed(z).leads for _ in range(h)]
        counts.append(np.all(leads, axis=0).sum())
        single.append(leads[0].sum())
    found = {"counts": np.array(counts), "single": np.array(single)}
    return st.Cell(d=d, condition=float(condition), H=h, **found)


def alone(c: st.Cell, n: int) -> float:
    """If heads chose independently, so many tokens each: n times the product of the shares."""
    return float(n * (c.single.mean() / n) ** c.H)


def _run(p: Params, kind: str, h: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens (layers, n, d) of one start, and who leads in each head (h, n) at layer 0."""
    z0 = cy.configurations.gaussian(p.n, p.d, p.seed + s)
    forms = _forms(p, kind, h, s)
    hardmax = [cy.Hardmax(A) for A in forms]
    heads = cy.attention.Heads(hardmax)
    if kind == "softmax heads":
        heads = cy.attention.Heads([cy.Softmax(p.beta, A) for A in forms])
    elif kind == "random heads and values":
        noise = np.random.default_rng([p.seed, s, 2]).standard_normal((h, p.d, p.d))
        heads = cy.attention.Heads(hardmax, list(np.eye(p.d) + p.spread * noise))
    dynamics = cy.PureAttention(heads, alpha=p.alpha)
    z = cy.simulate(dynamics, z0, layers=p.layers, throw=False).values
    return z, np.array([head.followed(z0).leads for head in hardmax])


def head_runs(p: Params, kind: str, h: int) -> st.Cell:
    """The runs of one kind and number of heads: every array has one entry per start."""
    rows = [_measure(p, *_run(p, kind, h, s)) for s in range(p.starts)]
    arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return st.Cell(kind=kind, heads=h, **arrays)


def _measure(p: Params, z: np.ndarray, leads: np.ndarray) -> dict[str, Any]:
    """One entry of every array of `head_runs`."""
    everywhere = leads.all(axis=0)
    longest = float(np.linalg.norm(z[0], axis=1).max())
    support = (z @ directions(p.d).T).max(axis=1)
    step = np.linalg.norm(np.diff(z, axis=0), axis=-1).max(axis=1) / longest
    settled = max(np.flatnonzero(step > 1e-6) + 1, default=0)
    limits = cy.clusters(z[-1], tol=1e-4 * float(np.linalg.norm(z[-1], axis=1).max()))
    places = z[0, everywhere]
    near = np.linalg.norm(limits.centres[:, None] - places, axis=-1) < 1e-3 * longest
    return {
        "all_heads": everywhere.sum(),  # tokens that lead in every head at layer 0
        "some_head": leads.any(axis=0).sum(),
        "moved": np.abs(z[:, everywhere] - places).max(initial=0.0) / longest,  # such a token
        "growth": np.diff(support, axis=0).max() / longest,  # of the hull in some direction
        "limits": limits.count,
        "at_token": near.any(axis=1).sum(),  # limits that are the place of such a token
        "settled": settled if settled < p.layers else np.nan,  # later no step exceeds 1e-6
    }


def checks(groups: list[st.Cell]) -> list[cy.theorems.Check]:
    """Both statements hold for heads with V_h = I; softmax heads have no fixed leaders."""
    moved = np.concatenate([g.moved for g in groups if g.kind in KINDS[:2]])
    growth = np.concatenate([g.growth for g in groups if g.kind != "random heads and values"])
    still, shrinks = "a token that leads in every head never moves", "the hull only shrinks"
    hull, leader = "docs/mathematics.md B1, E6", "docs/mathematics.md B5, E6"
    return [
        st.at_most("hull", hull, shrinks, growth.max(), 1e-12, runs=len(growth)),
        st.at_most("leaders of all heads", leader, still, moved.max(), 1e-12, runs=len(moved)),
    ]


def _fewest_and_most(p: Params, leads: list[st.Cell]) -> list[tuple[st.Cell, st.Cell]]:
    """For each (d, condition) the cells of the fewest and of the most heads."""
    of = {(c.d, c.condition, c.H): c for c in leads}
    low, high = min(p.heads), max(p.heads)
    return [(of[d, x, low], of[d, x, high]) for d in p.dims for x in p.conditions]


def controls(p: Params, groups: list[st.Cell], leads: list[st.Cell]) -> list[st.Comparison]:
    ends, high = _fewest_and_most(p, leads), max(p.heads)
    of = {(g.kind, g.heads): g for g in groups}
    own, equal = (of[kind, high] for kind in ("random heads", "equal heads"))
    elsewhere, null = own.limits - own.at_token, equal.limits - equal.at_token

    def by_form(said: Callable[[st.Cell, st.Cell], str]) -> str:
        told = [f"d = {a.d}, condition {a.condition:g}: {said(a, b)}" for a, b in ends]
        return "; ".join(told)

    return [
        st.Comparison(
            f"Tokens that lead in every one of {high} heads are rare: at most half of those that "
            "lead in one.",
            f"condition of the forms and d, {p.counted} starts of {p.n} tokens",
            by_form(lambda a, b: f"{a.mean('counts'):.2g} to {b.told('counts', 2)}"),
            all(b.mean("counts") <= 0.5 * a.mean("counts") for a, b in ends),
        ),
        st.Comparison(
            "Heads agree on leaders more than by chance.",
            "heads that choose as many tokens independently",
            by_form(lambda a, b: f"{b.told('counts', 2)}, by chance {alone(b, p.n):.2g}"),
            high > 1 and all(b.ends("counts")[0] > alone(b, p.n) for _, b in ends),
        ),
        st.Comparison(
            "With several heads limits are nobody's place.",
            f"{high} equal heads, which are one head",
            f"limits away from leaders of all heads: {elsewhere.mean():.2g} of "
            f"{own.limits.mean():.2g}, equal heads {null.mean():.2g} of {equal.limits.mean():.2g}",
            st.resampled(elsewhere - null)[0] > 0,
        ),
    ]


def _summary(p: Params, groups: list[st.Cell], leads: list[st.Cell]) -> str:
    low, high = min(p.heads), max(p.heads)
    of = {(g.kind, g.heads): g for g in groups}
    one, many = of["random heads", low], of["random heads", high]
    ends = [
        f"{a.mean('counts'):.2g} to {b.mean('counts'):.2g} for d = {a.d}, condition {a.condition:g}"
        for a, b in _fewest_and_most(p, leads)
    ]
    return (
        f"From {low} to {high} heads, tokens of {p.n} that lead in every head go from "
        f"{', '.join(ends)} ({p.counted} starts). After {p.layers} layers with random forms "
        f"(d = {p.d}, {p.starts} starts) distinct limits go from {one.limits.mean():.2g} to "
        f"{many.limits.mean():.2g}, of which {many.at_token.mean():.2g} are places of such leaders."
    )


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
