"""Several hardmax heads: who leads in all of them, and limits that are nobody's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

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
        return st.told(self.counts, 2)


def hardmax(p: Params, progress: st.Progress) -> st.Report:
    """Every kind of heads for every number of them."""
    over = st.measuring(p, progress)
    axes = {"d": p.dims, "condition": p.conditions, "H": p.heads}
    leads = over(lead_in_all, axes, 0.2)
    groups = over(head_runs, {"heads": KINDS, "H": p.heads}, 0.9)

    def median(g: HeadRuns) -> float | None:
        return float(np.nanmedian(g.settled)) if np.isfinite(g.settled).any() else None

    runs = st.columns(
        "heads = kind, H = heads, lead in all = mean all_heads, lead in some = mean some_head, "
        "limits = mean limits, at such a leader = mean at_token"
    )
    runs |= {"layers to settle": median}
    runs |= {"settled runs": lambda g: float(np.isfinite(g.settled).mean())}
    runs |= {"hull growth": lambda g: float(g.growth.max())}
    note = "Means over the starts; layers to settle: the median; hull growth: the largest."
    shown = st.columns("d, condition, H, lead in all = mean counts")
    shown |= {"95 % from": lambda c: st.resampled(c.counts)[0]}
    shown |= {"to": lambda c: st.resampled(c.counts)[1]}
    shown |= st.columns("lead in the first = mean single")
    shown |= {"if independent": lambda c: c.alone(p.n)}
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
        figures=[
            st.Picture("One start, one and several heads", _STARTS, _draw_starts(p)),
            st.Picture("By the condition of the forms and d", _SHARES, _draw_shares(p, leads)),
        ],
    )


_SHARES = (
    "Tokens that lead in all of H heads at layer 0, as a share of those that lead in one; means "
    "over the starts. Colours: condition number of the forms; dotted: the share if each head chose "
    "as many tokens independently of the others."
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


def lead_in_all(p: Params, d: int, condition: float | int, h: int) -> LeadInAll:
    counts, single = [], []
    for s in range(p.counted):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        rng = np.random.default_rng([p.seed, s, d, 4])
        leads = [cy.Hardmax(conditioned(d, condition, rng)).followed(z).leads for _ in range(h)]
        counts.append(np.all(leads, axis=0).sum())
        single.append(leads[0].sum())
    return LeadInAll(d, float(condition), h, np.array(counts), np.array(single))


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


def head_runs(p: Params, kind: str, h: int) -> HeadRuns:
    rows = [_measure(p, *_run(p, kind, h, s)) for s in range(p.starts)]
    arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return HeadRuns(kind=kind, heads=h, **arrays)


def _measure(p: Params, z: np.ndarray, leads: np.ndarray) -> dict[str, Any]:
    """One entry of every array of `HeadRuns`."""
    everywhere = leads.all(axis=0)
    longest = float(np.linalg.norm(z[0], axis=1).max())
    support = (z @ directions(p.d).T).max(axis=1)
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


def checks(groups: list[HeadRuns]) -> list[cy.theorems.Check]:
    """Both statements hold for heads with V_h = I; softmax heads have no fixed leaders."""
    moved = np.concatenate([g.moved for g in groups if g.kind in KINDS[:2]])
    growth = np.concatenate([g.growth for g in groups if g.kind != "random heads and values"])
    still, shrinks = "a token that leads in every head never moves", "the hull only shrinks"
    hull, leader = "docs/mathematics.md B1, E6", "docs/mathematics.md B5, E6"
    return [
        st.at_most("hull", hull, shrinks, growth.max(), 1e-12, runs=len(growth)),
        st.at_most("leaders of all heads", leader, still, moved.max(), 1e-12, runs=len(moved)),
    ]


def _fewest_and_most(p: Params, leads: list[LeadInAll]) -> list[tuple[LeadInAll, LeadInAll]]:
    """For each (d, condition) the cells of the fewest and of the most heads."""
    of = {(c.d, c.condition, c.H): c for c in leads}
    low, high = min(p.heads), max(p.heads)
    return [(of[d, x, low], of[d, x, high]) for d in p.dims for x in p.conditions]


def controls(p: Params, groups: list[HeadRuns], leads: list[LeadInAll]) -> list[st.Comparison]:
    ends, high = _fewest_and_most(p, leads), max(p.heads)
    of = {(g.kind, g.heads): g for g in groups}
    own, equal = (of[kind, high] for kind in ("random heads", "equal heads"))
    elsewhere, null = own.limits - own.at_token, equal.limits - equal.at_token

    def by_form(said: Callable[[LeadInAll, LeadInAll], str]) -> str:
        told = [f"d = {a.d}, condition {a.condition:g}: {said(a, b)}" for a, b in ends]
        return "; ".join(told)

    return [
        st.Comparison(
            f"Tokens that lead in every one of {high} heads are rare: at most half of those that "
            "lead in one.",
            f"condition of the forms and d, {p.counted} starts of {p.n} tokens",
            by_form(lambda a, b: f"{a.mean:.2g} to {b.told}"),
            all(b.mean <= 0.5 * a.mean for a, b in ends),
        ),
        st.Comparison(
            "Heads agree on leaders more than by chance.",
            "heads that choose as many tokens independently",
            by_form(lambda a, b: f"{b.told}, by chance {b.alone(p.n):.2g}"),
            high > 1 and all(st.resampled(b.counts)[0] > b.alone(p.n) for _, b in ends),
        ),
        st.Comparison(
            "With several heads limits are nobody's place.",
            f"{high} equal heads, which are one head",
            f"limits away from leaders of all heads: {elsewhere.mean():.2g} of "
            f"{own.limits.mean():.2g}, equal heads {null.mean():.2g} of {equal.limits.mean():.2g}",
            st.resampled(elsewhere - null)[0] > 0,
        ),
    ]


def _summary(p: Params, groups: list[HeadRuns], leads: list[LeadInAll]) -> str:
    low, high = min(p.heads), max(p.heads)
    of = {(g.kind, g.heads): g for g in groups}
    one, many = of["random heads", low], of["random heads", high]
    ends = [
        f"{a.mean:.2g} to {b.mean:.2g} for d = {a.d} and condition {a.condition:g}"
        for a, b in _fewest_and_most(p, leads)
    ]
    return (
        f"From {low} to {high} heads, tokens of {p.n} that lead in every head go from "
        f"{', '.join(ends)} ({p.counted} starts). After {p.layers} layers with random forms "
        f"(d = {p.d}, {p.starts} starts) distinct limits go from {one.limits.mean():.2g} to "
        f"{many.limits.mean():.2g}, of which {many.at_token.mean():.2g} are places of such leaders."
    )


def _draw_shares(p: Params, leads: list[LeadInAll]) -> Any:
    figure, (axes,) = cy.plot.sheet(1, len(p.dims), 4, 3.6, sharey=True)
    for ax, d in zip(axes, p.dims):
        for colour, x in zip(cy.plot.PALETTE, p.conditions):
            line = [c for c in leads if (c.d, c.condition) == (d, x)]
            first = float(line[0].single.mean())
            look: dict[str, Any] = {"color": colour, "label": f"condition {x:g}"}
            st.bars(ax, p.heads, [c.counts for c in line], first, **look)
            ax.plot(p.heads, [c.alone(p.n) / first for c in line], ":", color=colour, lw=1)
        ax.set(xlabel="heads H", title=f"d = {d}", ylim=(0, 1.15), xticks=p.heads)
    axes[0].set_ylabel("lead in all / lead in one")
    cy.plot.legend_below(axes[0])
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
