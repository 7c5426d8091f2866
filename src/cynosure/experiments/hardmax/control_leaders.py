"""Choosing who leads: for which sets of tokens is there a form A under which all of them lead?

A token of a hardmax transformer (arXiv 2407.01602) can be made an initial leader by some symmetric
positive definite A exactly when it is a vertex of conv(Z u {0}); for a set T it is a linear matrix
inequality (docs/mathematics.md B15). See: single tokens agree with the vertices without exception,
forms that make one token lead are mild, and the larger the set and the lower the dimension, the
sooner the wishes of its members contradict each other. Every answer is checked: forms by exact sets
and by the certified limit, contradictions by their multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, final

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Choosing who leads"


@final
@dataclass(frozen=True)
class Params:
    """Dimensions, sizes of target sets, sets per cell, Gaussian tokens, and the bound on cond A."""

    d: tuple[int, ...] = (2, 3, 4, 6, 8, 12)
    sizes: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16)
    sets: int = 25
    n: int = 40
    single: int = 12  # starts per dimension whose tokens are tried one by one
    condition: float = 1e6
    seed: int = 0


QUICK = Params(d=(2, 4), sizes=(2, 4, 8), sets=4, n=20, single=3)


class SingleTargets(NamedTuple):
    """All tokens of some starts, made to lead one by one."""

    d: int
    tried: int
    feasible: int
    agree: int  # with the vertices of conv(Z u {0})
    confirmed: int  # by the certified limit
    condition: np.ndarray  # of the forms A that make one lead
    residual: float  # largest of the convex combinations


class TargetSets(NamedTuple):
    """Random sets of vertices of conv(Z u {0}), of one size."""

    d: int
    size: int
    sets: tuple[cy.Control, ...]
    already: int  # sets that lead under A = I
    confirmed: int  # by the certified limit

    @property
    def conditions(self) -> list[float]:
        """cond A of the sets that can lead."""
        return [c.condition for c in self.sets if c.feasible]

    @property
    def rate(self) -> float:
        return len(self.conditions) / len(self.sets)

    @property
    def median(self) -> float | None:
        return float(np.median(self.conditions)) if self.conditions else None

    def reasons(self, reason: str) -> int:
        return sum(c.witness.reason == reason for c in self.sets)


class Removals(NamedTuple):
    """The smallest changes that take the leads of one start away."""

    d: int
    leaders: int
    distance: float  # median smallest move of one token, share of the longest
    change: float  # median smallest change of A = I in the Frobenius norm
    gone: int  # leads that both changes took away


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Single tokens, sets, and the smallest changes that take a lead away."""
    if min(p.d) < 2 or min(p.sizes) < 2 or min(p.sets, p.single) < 1 or p.n < 4:
        raise ValueError(
            f"control_leaders: d and sizes start at 2, sets and single at 1, n at 4; got {p}"
        )
    singles = over_grid(_singles, p, {"single tokens, d": p.d}, part(progress, 0.0, 0.2))
    sizes = p.sizes if find_spec("cvxpy") else ()
    tried = over_grid(_sets, p, {"d": p.d, "sets of": sizes}, part(progress, 0.2, 0.9))
    groups = [group for group in tried if group.sets]
    removals = over_grid(_removals, p, {"leads taken away, d": p.d}, part(progress, 0.9, 1.0))
    return report_of(
        __name__,
        p,
        _summary(p, singles, groups, removals),
        tables=_tables(singles, groups, removals),
        checks={"single tokens and sets": [_check(singles, groups)]},
        figures=[_before_and_after(p), *([_rates(p, groups)] if groups else [])],
    )


def _candidates(z: np.ndarray) -> np.ndarray:
    """Tokens that are vertices of conv(Z u {0})."""
    body = cy.hull(np.vstack([z, np.zeros((1, z.shape[1]))]))
    return body.index[body.index < len(z)]


def _leads(z: np.ndarray, A: np.ndarray | None = None) -> np.ndarray:
    return cy.Hardmax(A).followed(z).leads


def _confirmed(z: np.ndarray, answer: cy.Control) -> bool:
    """The targets are among the leaders of the certified limit, and lead from layer 0 on."""
    li = cy.limit(cy.PureAttention(cy.Hardmax(answer.A)), z)
    return bool(li.certified and (li.born[answer.targets] == 0).all())


def _singles(p: Params, d: int) -> SingleTargets:
    agree = confirmed = 0
    conditions, residual = [], 0.0
    for s in range(p.single):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        vertices = set(_candidates(z).tolist())
        for i in range(p.n):
            answer = cy.control(z, i, condition=float("inf"))
            agree += answer.feasible == (i in vertices)
            if answer.feasible:
                confirmed += _confirmed(z, answer)
                conditions.append(answer.condition)
            else:
                residual = max(residual, answer.witness.residual)
    return SingleTargets(
        d=d,
        tried=p.single * p.n,
        feasible=len(conditions),
        agree=agree,
        confirmed=confirmed,
        condition=np.array(conditions),
        residual=residual,
    )


def _sets(p: Params, d: int, size: int) -> TargetSets:
    rng = np.random.default_rng([p.seed, d, size])
    answers, already, confirmed = [], 0, 0
    for s in range(p.sets):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        candidates = _candidates(z)
        if len(candidates) < size:
            continue
        targets = rng.choice(candidates, size, replace=False)
        already += bool(_leads(z)[targets].all())
        answer = cy.control(z, targets, condition=p.condition)
        confirmed += answer.feasible and _confirmed(z, answer)
        answers.append(answer)
    return TargetSets(d, size, tuple(answers), already, confirmed)


def _removals(p: Params, d: int) -> Removals:
    z = cy.configurations.gaussian(p.n, d, p.seed)
    longest = float(np.linalg.norm(z, axis=1).max())
    removed = [cy.remove_leader(z, int(i)) for i in np.flatnonzero(_leads(z))]
    gone = sum(
        r.A is not None and not _leads(r.z)[r.leader] and not _leads(z, r.A)[r.leader]
        for r in removed
    )
    move, change = (np.median([getattr(r, x) for r in removed]) for x in ("distance", "change"))
    return Removals(d, len(removed), float(move) / longest, float(change), gone)


def _check(singles: list[SingleTargets], groups: list[TargetSets]) -> cy.Check:
    tried, agree = sum(s.tried for s in singles), sum(s.agree for s in singles)
    forms = sum(s.feasible for s in singles) + sum(len(g.conditions) for g in groups)
    confirmed = sum(s.confirmed for s in singles) + sum(g.confirmed for g in groups)
    undecided = sum(g.reasons("undecided") for g in groups)
    refuted = [c.witness.residual for g in groups for c in g.sets if c.witness.reason == "together"]
    residual = max([s.residual for s in singles] + refuted)
    sound = tried == agree and forms == confirmed and undecided == 0
    return at_most(
        "vertices",
        "docs/mathematics.md B15",
        "a token can lead iff it is a vertex of conv(Z u {0}); forms and contradictions "
        "found are confirmed",
        residual if sound else np.inf,
        1e-9,
        **{"single tokens": tried, "agree with the vertices": agree, "forms found": forms},
        **{"confirmed by the limit": confirmed, "undecided sets": undecided},
        **{"largest residual of a contradiction": residual},
    )


def _tables(
    singles: list[SingleTargets], groups: list[TargetSets], removals: list[Removals]
) -> list[cy.Table]:
    one: dict[str, Any] = {
        **{"d": "d", "tokens": "tried", "can lead": lambda s: s.feasible / s.tried},
        "agree with vertices": lambda s: f"{s.agree}/{s.tried}",
        "confirmed": lambda s: f"{s.confirmed}/{s.feasible}",
        "median condition": lambda s: np.median(s.condition),
        "largest": lambda s: s.condition.max(),
        "largest residual": "residual",
    }
    several: dict[str, Any] = {
        **{"d": "d", "size": "size", "sets": lambda g: len(g.sets), "lead under I": "already"},
        "can lead": "rate",
        "contradiction": lambda g: g.reasons("together"),
        "condition too large": lambda g: g.reasons("condition"),
        "undecided": lambda g: g.reasons("undecided"),
        "median condition": "median",
        "confirmed": lambda g: f"{g.confirmed}/{len(g.conditions)}",
    }
    taken = {
        **{"d": "d", "leaders": "leaders", "smallest move of the leader, median": "distance"},
        **{"smallest change of A, median": "change", "lead gone": "gone"},
    }
    missing = "" if groups else 'Sets need the extra: pip install "cynosure[control]".'
    units = "Moves are shares of the longest token; changes are Frobenius norms, A = I before."
    return [
        cy.Table.of("Single tokens", singles, one),
        cy.Table.of("Sets of tokens", groups, several, missing),
        cy.Table.of("Taking a lead away", removals, taken, units),
    ]


def _summary(
    p: Params, singles: list[SingleTargets], groups: list[TargetSets], removals: list[Removals]
) -> str:
    tried, agree = sum(s.tried for s in singles), sum(s.agree for s in singles)
    share = {s.d: s.feasible / s.tried for s in singles}
    text = (
        f"{agree} of {tried} single tokens agree with the vertices of conv(Z u {{0}}) "
        f"({agree / tried:.0%}); of {p.n} tokens {share[min(p.d)]:.0%} can lead for d = "
        f"{min(p.d)} and {share[max(p.d)]:.0%} for d = {max(p.d)}. "
    )
    if groups:
        worst = min(groups, key=lambda g: g.rate)
        low = [f"d = {g.d} size {g.size}" for g in groups if g.rate < 0.5]
        text += (
            f"Sets of vertices: {np.mean([g.rate for g in groups]):.0%} can lead together on the "
            f"whole, fewest ({worst.rate:.0%}) for d = {worst.d} and size {worst.size}"
        )
        if low:
            text += f"; less than half for {', '.join(low[:6])}{', ...' if len(low) > 6 else ''}"
        text += ". "
    else:
        text += "Sets were not tried: cvxpy is not installed. "
    first, last = removals[0], removals[-1]
    return (
        f"{text}The smallest changes took away {sum(r.gone for r in removals)} of "
        f"{sum(r.leaders for r in removals)} leads; the median move is {first.distance:.1%} of the "
        f"longest token for d = {first.d}, {last.distance:.1%} for d = {last.d}."
    )


def _rates(p: Params, groups: list[TargetSets]) -> cy.Picture:
    figure, axes = cy.plot.sheet(1, 2, 5, 3.8)
    left, right = axes[0]
    for k, (colour, d) in enumerate(zip(cy.plot.PALETTE, p.d)):
        line = [g for g in groups if g.d == d]
        look = {"color": colour, "marker": "osD^vP"[k % 6], "ms": 9 - k, "lw": 3.2 - 0.4 * k}
        left.plot([g.size for g in line], [g.rate for g in line], **look)  # thick below thin
        known = [g for g in line if g.conditions]
        median = [g.median for g in known]
        right.plot([g.size for g in known], median, **look, label=f"d = {d}")
    left.set(xlabel="size of the set", ylabel="share of sets that can lead", ylim=(-0.03, 1.05))
    right.set(xlabel="size of the set", ylabel="median condition number of A", yscale="log")
    figure.legend(loc="outside lower center", ncols=len(p.d), frameon=False)
    caption = (
        "Left: share of random sets of vertices of conv(Z u {0}) that some form makes lead; a "
        "curve ends where no start has so many vertices. Right: median condition number of the "
        "forms found (1: they lead under A = I)."
    )
    return cy.Picture("Sets that can lead together", caption, figure)


def _chosen(p: Params, z: np.ndarray) -> cy.Control:
    """A form that makes two tokens lead that do not lead under A = I, or one of them."""
    plain = _leads(z)
    able = [i for i in _candidates(z).tolist() if not plain[i]]
    wish = able[:2] if find_spec("cvxpy") else able[:1]
    answer = cy.control(z, wish or np.flatnonzero(plain)[:1], condition=p.condition)
    if answer.feasible:
        return answer
    return cy.control(z, wish[:1], condition=p.condition)  # the two contradict each other


def _before_and_after(p: Params) -> cy.Picture:
    z = cy.configurations.gaussian(p.n, 2, p.seed)
    chosen = _chosen(p, z)
    assert chosen.A is not None
    figure, axes = cy.plot.sheet(1, 2, 4.7, 4.8)
    turn = np.linspace(0, 2 * np.pi, 200)
    size, reach = 0.35 * np.linalg.norm(z, axis=1).max(), 1.2 * np.abs(z).max()
    blue, orange, *_ = cy.plot.PALETTE
    for ax, A, name in zip(axes[0], (np.eye(2), chosen.A), ("A = I", "A chosen")):
        leads = _leads(z, A)
        body = cy.hull(np.vstack([z, np.zeros((1, 2))]))
        cy.plot.shade(ax, body, color=cy.plot.GREY, alpha=0.15)
        values, vectors = np.linalg.eigh(A)
        ball = np.stack([np.cos(turn), np.sin(turn)]) / np.sqrt(values / values[-1])[:, None]
        look = {"color": cy.plot.PALETTE[3], "lw": 1.2, "label": "$|x|_A$ constant"}
        ax.plot(*(size * vectors @ ball), ":", **look)
        ax.plot(*z[~leads].T, "o", mfc="white", mec=blue, ms=5, label="follows")
        ax.plot(*z[leads].T, "*", color=orange, ms=14, label="leads")
        wished = {"mfc": "none", "mec": cy.plot.INK, "ms": 18, "mew": 1.2, "label": "shall lead"}
        ax.plot(*z[chosen.targets].T, "o", **wished)
        ax.plot([0], [0], "+", color=cy.plot.GREY)
        ax.set(aspect="equal", title=name, xlim=(-reach, reach), ylim=(-reach, reach))
        ax.set(xlabel="$z_1$", ylabel="$z_2$")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    caption = (
        "Stars lead. Left: A = I. Right: a form under which the circled tokens lead; the dotted "
        "curves are the unit balls |x|_A = 1, scaled. Grey: conv(Z u {0}), whose vertices are the "
        "tokens that can lead at all."
    )
    return cy.Picture("One start, two forms", caption, figure)
