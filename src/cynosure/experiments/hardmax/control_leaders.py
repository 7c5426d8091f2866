"""Choosing who leads: for which sets of tokens is there a form A under which all of them lead?

A token of a hardmax transformer (arXiv 2407.01602) can be made an initial leader by some symmetric
positive definite A exactly when it is a vertex of conv(Z u {0}); for a set T it is a linear matrix
inequality (docs/mathematics.md B15). See: forms that make one token lead are mild, and the larger
the set and the lower the dimension, the sooner the wishes of its members contradict each other.
Every answer is checked: forms by exact sets and by the certified limit, contradictions by their
multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of, require

TITLE = "Choosing who leads"


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


class Answer(NamedTuple):
    """What `cy.control` said about one set of targets, and what is known of it otherwise."""

    control: cy.Control
    vertices: bool  # all targets are vertices of conv(Z u {0})
    already: bool  # they lead under A = I
    confirmed: bool  # they lead from layer 0 on in the certified limit


class TargetSets(NamedTuple):
    """The answers for target sets of one size."""

    d: int
    size: int
    answers: tuple[Answer, ...]

    @property
    def conditions(self) -> list[float]:
        """cond A of the sets that can lead."""
        return [a.control.condition for a in self.answers if a.control.feasible]

    @property
    def rate(self) -> float:
        return len(self.conditions) / len(self.answers)

    @property
    def median(self) -> float | None:
        return float(np.median(self.conditions)) if self.conditions else None

    @property
    def agree(self) -> int:
        """Answers that are "yes" exactly for vertices; meant for single tokens."""
        return sum(a.control.feasible == a.vertices for a in self.answers)

    @property
    def confirmed(self) -> int:
        return sum(a.confirmed for a in self.answers)

    @property
    def residual(self) -> float:
        """The largest that rounding leaves of a convex combination or of a contradiction."""
        witnesses = [a.control.witness for a in self.answers]
        return max([0.0, *(w.residual for w in witnesses if w.reason in ("inside", "together"))])

    def reasons(self, reason: str) -> int:
        return sum(a.control.witness.reason == reason for a in self.answers)


class Removals(NamedTuple):
    """The smallest changes that take the leads of one start away."""

    d: int
    leaders: int
    distance: float  # median smallest move of one token, share of the longest
    change: float  # median smallest change of A = I in the Frobenius norm
    gone: int  # leads that both changes took away


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Single tokens, sets, and the smallest changes that take a lead away."""
    least = min(*p.d, *p.sizes, p.sets + 1, p.single + 1, p.n - 2)
    require(least >= 2, "d and sizes >= 2, sets and single >= 1, n >= 4", p)
    singles = over_grid(_singles, p, {"single tokens, d": p.d}, part(progress, 0, 0.2))
    sizes = p.sizes if find_spec("cvxpy") else ()
    tried = over_grid(_sets, p, {"d": p.d, "sets of": sizes}, part(progress, 0.2, 0.75))
    groups = [group for group in tried if group.answers]
    ends = tuple(sorted({min(sizes), max(sizes)})) if sizes else ()
    axes = {"start": tuple(STARTS)[1:], "d": p.d, "sets of": ends}
    others = over_grid(_other_sets, p, axes, part(progress, 0.75, 0.9))
    removals = over_grid(_removals, p, {"leads taken away, d": p.d}, part(progress, 0.9, 1))
    tables, summary = _tables(singles, groups, removals), _summary(p, singles, groups, removals)
    checks = {"single tokens and sets": [_check(singles, groups)]}
    pictures = [_before_and_after(p), *([_rates(p, groups)] if groups else [])]
    controls = _controls(p, singles, groups, others) if groups else _single_controls(singles)
    return report_of(
        __name__, p, summary, controls=controls, tables=tables, checks=checks, figures=pictures
    )


STARTS = {  # what the sets are taken from: the text is about the first
    "Gaussian": lambda p, d, seed: cy.configurations.gaussian(p.n, d, seed),
    "uniform in a ball": lambda p, d, seed: cy.configurations.ball(p.n, d, seed),
    "half as many tokens": lambda p, d, seed: cy.configurations.gaussian(p.n // 2, d, seed),
}


def _body(z: np.ndarray) -> cy.Polytope:
    """conv(Z u {0})."""
    return cy.hull(np.vstack([z, np.zeros((1, z.shape[1]))]))


def _candidates(z: np.ndarray) -> np.ndarray:
    """Tokens that are vertices of conv(Z u {0})."""
    index = _body(z).index
    return index[index < len(z)]


def _leads(z: np.ndarray, A: np.ndarray | None = None) -> np.ndarray:
    return cy.Hardmax(A).followed(z).leads


def _answer(z: np.ndarray, targets: Any, vertices: np.ndarray, condition: float) -> Answer:
    control, confirmed = cy.control(z, targets, condition=condition), False
    if control.feasible:
        li = cy.limit(cy.PureAttention(cy.Hardmax(control.A)), z)
        confirmed = bool(li.certified and (li.born[targets] == 0).all())
    known = np.isin(targets, vertices).all(), _leads(z)[targets].all()
    return Answer(control, bool(known[0]), bool(known[1]), confirmed)


def _singles(p: Params, d: int) -> TargetSets:
    """Every token of some starts, alone."""
    answers = []
    for s in range(p.single):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        vertices = _candidates(z)
        answers += [_answer(z, i, vertices, float("inf")) for i in range(p.n)]
    return TargetSets(d, 1, tuple(answers))


def _other_sets(p: Params, start: str, d: int, size: int) -> tuple[str, TargetSets]:
    """The same for another start."""
    return start, _sets(p, d, size, start)


def _sets(p: Params, d: int, size: int, start: str = "Gaussian") -> TargetSets:
    """Random sets of vertices of conv(Z u {0}), where there are so many."""
    rng = np.random.default_rng([p.seed, d, size])
    answers = []
    for s in range(p.sets):
        z = STARTS[start](p, d, p.seed + s)
        vertices = _candidates(z)
        if len(vertices) >= size:
            targets = rng.choice(vertices, size, replace=False)
            answers.append(_answer(z, targets, vertices, p.condition))
    return TargetSets(d, size, tuple(answers))


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


def _single_controls(singles: list[TargetSets]) -> list[cy.Comparison]:
    every = [answer for group in singles for answer in group.answers]
    able = sum(a.control.feasible for a in every)
    already = sum(a.already for a in every)
    return [
        cy.Comparison(
            "A token can be made to lead exactly when it is a vertex of conv(Z u {0}).",
            "the tokens that lead under A = I anyway",
            f"{able} of {len(every)} tokens can lead, {already} of them do under A = I",
            survives=already < able and all(s.agree == len(s.answers) for s in singles),
        )
    ]


def _controls(
    p: Params,
    singles: list[TargetSets],
    groups: list[TargetSets],
    others: list[tuple[str, TargetSets]],
) -> list[cy.Comparison]:
    """The trend in the size of the set, for other starts than the Gaussian ones."""
    by_start = {"Gaussian": [g for g in groups if g.size in (min(p.sizes), max(p.sizes))]}
    for start, group in others:
        by_start.setdefault(start, []).extend([group] if group.answers else [])
    seen, falls = [], []
    for start, cells in by_start.items():
        for d in p.d:
            rates = [g.rate for g in sorted(cells, key=lambda g: g.size) if g.d == d]
            if len(rates) == 2:
                seen.append(f"{start}, d = {d}: {rates[0]:.0%} and {rates[1]:.0%}")
                falls.append(rates[0] >= rates[1])
    trend = cy.Comparison(
        "A larger set can lead together no more often than a smaller one.",
        "the law of the tokens and their number, which the text does not vary",
        f"sets of {min(p.sizes)} and of {max(p.sizes)}, where a start has so many vertices: "
        + ("; ".join(seen) or "none has"),
        survives=bool(falls) and all(falls),
    )
    return [*_single_controls(singles), trend]


def _check(singles: list[TargetSets], groups: list[TargetSets]) -> cy.Check:
    every = [*singles, *groups]
    tried, agree = sum(len(s.answers) for s in singles), sum(s.agree for s in singles)
    forms, confirmed = sum(len(g.conditions) for g in every), sum(g.confirmed for g in every)
    undecided = sum(g.reasons("undecided") for g in every)
    residual = max(g.residual for g in every)
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
    singles: list[TargetSets], groups: list[TargetSets], removals: list[Removals]
) -> list[cy.Table]:
    confirmed: dict[str, Any] = {"confirmed": lambda g: f"{g.confirmed}/{len(g.conditions)}"}
    one: dict[str, Any] = {
        **{"d": "d", "tokens": lambda s: len(s.answers), "can lead": "rate"},
        "agree with vertices": lambda s: f"{s.agree}/{len(s.answers)}",
        **confirmed,
        **{"median condition": "median", "largest": lambda s: max(s.conditions)},
        "largest residual": "residual",
    }
    several: dict[str, Any] = {
        **{"d": "d", "size": "size", "sets": lambda g: len(g.answers)},
        **{"lead under I": lambda g: sum(a.already for a in g.answers), "can lead": "rate"},
        "contradiction": lambda g: g.reasons("together"),
        "condition too large": lambda g: g.reasons("condition"),
        "undecided": lambda g: g.reasons("undecided"),
        "median condition": "median",
        **confirmed,
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
    p: Params, singles: list[TargetSets], groups: list[TargetSets], removals: list[Removals]
) -> str:
    tried, agree = sum(len(s.answers) for s in singles), sum(s.agree for s in singles)
    share = {s.d: s.rate for s in singles}
    together = "Sets were not tried: cvxpy is not installed"
    if groups:
        worst = min(groups, key=lambda g: g.rate)
        low = [f"d = {g.d} size {g.size}" for g in groups if g.rate < 0.5]
        together = (
            f"Sets of vertices: {np.mean([g.rate for g in groups]):.0%} can lead together on the "
            f"whole, fewest ({worst.rate:.0%}) for d = {worst.d} and size {worst.size}"
        )
        if low:
            together += f"; less than half for {', '.join(low[:6])}{', ...' * (len(low) > 6)}"
    first, last = removals[0], removals[-1]
    return (
        f"{agree} of {tried} single tokens agree with the vertices of conv(Z u {{0}}) "
        f"({agree / tried:.0%}); of {p.n} tokens {share[min(p.d)]:.0%} can lead for d = "
        f"{min(p.d)} and {share[max(p.d)]:.0%} for d = {max(p.d)}. {together}. "
        f"The smallest changes took away {sum(r.gone for r in removals)} of "
        f"{sum(r.leaders for r in removals)} leads; the median move is {first.distance:.1%} of the "
        f"longest token for d = {first.d}, {last.distance:.1%} for d = {last.d}."
    )


def _rates(p: Params, groups: list[TargetSets]) -> cy.Picture:
    figure, axes = cy.plot.sheet(1, 2, 5, 3.8)
    left, right = axes[0]
    for k, (colour, d) in enumerate(zip(cy.plot.PALETTE, p.d)):  # thick below thin
        look = {"color": colour, "marker": "osD^vP"[k % 6], "ms": 9 - k, "lw": 3.2 - 0.4 * k}
        for ax, what in ((left, "rate"), (right, "median")):
            line = [g for g in groups if g.d == d and getattr(g, what) is not None]
            y = [getattr(g, what) for g in line]
            ax.plot([g.size for g in line], y, **look, label=f"d = {d}")
    left.set(xlabel="size of the set", ylabel="share of sets that can lead", ylim=(-0.03, 1.05))
    right.set(xlabel="size of the set", ylabel="median condition number of A", yscale="log")
    cy.plot.legend_below(left, len(p.d))
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
        cy.plot.shade(ax, _body(z), color=cy.plot.GREY, alpha=0.15)
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
    cy.plot.legend_below(axes[0, 0])
    caption = (
        "Right: a form under which the circled tokens lead. Dotted: the unit balls |x|_A = 1, "
        "scaled. Grey: conv(Z u {0}), whose vertices are the tokens that can lead at all."
    )
    return cy.Picture("One start, two forms", caption, figure)
