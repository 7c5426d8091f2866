"""Choosing who leads and nobody else: how often is there a form A with exactly these leaders?

That a set of tokens leads is a linear matrix inequality in A; that nobody else does is not convex
and has to be searched for (docs/mathematics.md B15; the model is that of arXiv 2407.01602). In the
plane there is a referee: all forms fall into finitely many cells, which are enumerated, so the sets
that exist are known without any search. See: how many of them the search finds when the same tokens
lie in a plane of R^3, where it does not know the cells; some sets that can lead are proved unable
to lead alone, and for many, single tokens above all, nothing is found, which proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...analysis.plane_forms import leader_sets
from .._frame import Progress, all_of, counted, over_grid, part, report_of, require

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Choosing exactly who leads"
REASONS = ("found", "not found", "impossible")


@dataclass(frozen=True)
class Params:
    """Dimensions, sizes of target sets, sets for each, Gaussian tokens, random forms of a start."""

    d: tuple[int, ...] = (2, 4, 8)
    sizes: tuple[int, ...] = (1, 2, 4)
    sets: int = 6
    n: int = 16
    forms: int = 60
    tries: int = 2
    seed: int = 0


QUICK = Params(d=(2, 4), sizes=(2, 3), sets=3, n=10, forms=20, tries=2)


class Chosen(NamedTuple):
    """What became of the target sets of one size."""

    d: int
    size: int
    reasons: tuple[str, ...]  # at layer 0, one of REASONS for each set
    limits: tuple[str, ...]  # at infinity
    confirmed: int  # forms found whose exact sets, or limits, have exactly the targets for leaders
    lead: int  # sets that some form makes lead, others beside them or not
    random: float  # mean share of random forms that choose the set exactly

    def rate(self, reason: str) -> float:
        return self.reasons.count(reason) / max(1, len(self.reasons))


class Recall(NamedTuple):
    """Sets that random forms chose, asked for again."""

    d: int
    asked: int
    found: int


class Plane(NamedTuple):
    """One start in the plane, whose forms are all enumerated; the search in a plane of R^3."""

    exist: int  # sets of leaders that some form chooses
    drawn: int  # of these, chosen by random forms
    asked: int  # of these, asked for
    found: int
    others: int  # random sets of vertices that no cell has
    wrong: int  # of these, found all the same


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Random sets of vertices, and sets that random forms chose."""
    least = min(*p.d, *p.sizes, p.sets, p.forms, p.tries)
    require(least >= 1 and p.n >= 4, "d, sizes, sets, forms, tries >= 1, n >= 4", p)
    axes = {"d": p.d, "sets of": p.sizes}
    cells = [c for c in over_grid(_chosen, p, axes, part(progress, 0, 0.8)) if c.reasons]
    recalls = over_grid(_recall, p, {"sets of random forms, d": p.d}, part(progress, 0.8, 0.9))
    planes = over_grid(_plane, p, {"start": range(p.sets)}, part(progress, 0.9, 1))
    columns: dict[str, Any] = {
        **{"d": "d", "size": "size", "sets": lambda c: len(c.reasons), "can lead": "lead"},
        **{f"alone: {r}": lambda c, r=r: c.reasons.count(r) for r in REASONS},
        **{f"at infinity: {r}": lambda c, r=r: c.limits.count(r) for r in REASONS},
        "confirmed": "confirmed",
        "chosen by random forms": "random",
    }
    note = (
        "Random sets of vertices of conv(Z u {0}). Can lead: some form makes them lead, others "
        "perhaps with them. Chosen by random forms: the mean share of random forms with exactly "
        "these leaders."
    )
    return report_of(
        __name__,
        p,
        _summary(cells, planes),
        controls=_controls(p, cells, recalls, planes),
        tables=[
            cy.Table.of("Sets of vertices", cells, columns, note),
            cy.Table.of("Sets that some form chooses", recalls, dict(zip(*[Recall._fields] * 2))),
            cy.Table.of("All sets that exist, in the plane", planes, _PLANE, _PLANES),
        ],
        checks={"forms found": [_check(cells)]},
        figures=[_picture(p, cells)],
    )


def _leaders(z: np.ndarray, A: np.ndarray | None) -> list[int]:
    return np.flatnonzero(cy.Hardmax(A).followed(z).leads).tolist()


def _random_forms(p: Params, d: int, seed: int) -> list[np.ndarray]:
    """Eigenvalues over four decades, axes at random."""
    rng = np.random.default_rng([p.seed, d, seed])
    forms = []
    for _ in range(p.forms):
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        A = (axes * 10.0 ** (-4 * rng.random(d))) @ axes.T
        forms.append((A + A.T) / 2)
    return forms


def _chosen(p: Params, d: int, size: int) -> Chosen:
    rng = np.random.default_rng([p.seed, d, size])
    reasons, limits, hits = [], [], []
    confirmed = lead = 0
    for s in range(p.sets):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        index = cy.hull(np.vstack([z, 0 * z[:1]])).index
        vertices = index[index < p.n]
        if len(vertices) < size:
            continue
        targets = sorted(rng.choice(vertices, size, replace=False).tolist())
        now = cy.control_exactly(z, targets, tries=p.tries)
        end = cy.control_limit(z, targets, tries=p.tries)
        reasons.append(now.reason)
        limits.append(end.reason)
        lead += cy.control(z, targets).feasible
        if now.found:
            confirmed += _leaders(z, now.A) == targets
        if end.found:
            limit = cy.limit(cy.PureAttention(cy.Hardmax(end.A)), z)
            confirmed += limit.certified and limit.leaders.tolist() == targets
        hits += [_leaders(z, A) == targets for A in _random_forms(p, d, s)]
    random = float(np.mean(hits)) if hits else 0.0
    return Chosen(d, size, tuple(reasons), tuple(limits), confirmed, lead, random)


def _recall(p: Params, d: int) -> Recall:
    asked = found = 0
    for s in range(p.sets):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        known = sorted({tuple(_leaders(z, A)) for A in _random_forms(p, d, s)[:2]})
        for targets in known:
            asked += 1
            found += cy.control_exactly(z, list(targets), tries=p.tries).found
    return Recall(d, asked, found)


_PLANE = {
    "sets that exist": "exist",
    "of these drawn by random forms": "drawn",
    "of these asked for": "asked",
    "found": "found",
    "sets that do not exist": "others",
    "found all the same": "wrong",
}
_PLANES = (
    "One row for each start. Exist: by the cells of all forms, no search. Found: by the search, "
    "for the same tokens in a plane of R^3."
)


def _plane(p: Params, s: int) -> Plane:
    z = cy.configurations.gaussian(p.n, 2, p.seed + s)
    exist = leader_sets(z)
    forms = {tuple(_leaders(z, A)) for A in _random_forms(p, 2, s)}
    rng = np.random.default_rng([p.seed, 2, s])
    inside = np.column_stack([z, np.zeros(len(z))])

    def found(targets: tuple[int, ...]) -> bool:
        return cy.control_exactly(inside, list(targets), tries=p.tries).found

    sets = list(exist)
    asked = [sets[i] for i in rng.choice(len(sets), min(p.sets, len(sets)), replace=False)]
    vertices = cy.hull(z).index
    drawn = {
        tuple(sorted(rng.choice(vertices, rng.integers(1, len(vertices)), replace=False).tolist()))
        for _ in range(p.sets)
    }
    none = [targets for targets in sorted(drawn) if targets not in exist]
    hits, wrong = sum(map(found, asked)), sum(map(found, none))
    return Plane(len(exist), len(forms & set(exist)), len(asked), hits, len(none), wrong)


def _check(cells: list[Chosen]) -> cy.Check:
    found = sum(c.reasons.count("found") + c.limits.count("found") for c in cells)
    said = "forms found have exactly the targets for leaders, by exact sets or certified limits"
    return all_of(
        "exactly", "docs/mathematics.md B15", said, sum(c.confirmed for c in cells), found
    )


def _totals(cells: list[Chosen]) -> tuple[int, int, int]:
    """Sets, those with a form under which they lead alone, those that lead alone at infinity."""
    sets = sum(len(c.reasons) for c in cells)
    now, end = (sum(getattr(c, w).count("found") for c in cells) for w in ("reasons", "limits"))
    return sets, now, end


def _controls(
    p: Params, cells: list[Chosen], recalls: list[Recall], planes: list[Plane]
) -> list[cy.Comparison]:
    exist, drawn, tried, hits, none, wrong = (sum(x) for x in zip(*planes))
    asked, found = sum(r.asked for r in recalls), sum(r.found for r in recalls)
    sets, now, _ = _totals(cells)
    lead = sum(c.lead for c in cells)
    shares = {d: [c for c in cells if c.d == d] for d in sorted({c.d for c in cells})}
    rates = {
        d: (np.mean([c.random for c in group]), np.mean([c.rate("found") for c in group]))
        for d, group in shares.items()
    }
    told = ", ".join(f"d = {d}: {a:.2g} and {b:.2g}" for d, (a, b) in rates.items())
    return [
        cy.Comparison(
            "Not every set that can lead can lead alone.",
            "sets that random forms chose, for which there is a form: is it the search that fails?",
            f"of these {counted(found, asked)} were found, of random sets of vertices "
            f"{counted(now, sets)}; {lead} of the latter can lead with others beside them",
            survives=now < lead and found / asked > now / sets,
        ),
        cy.Comparison(
            "The search finds most of the sets that exist, and no other.",
            "the plane, where all forms are enumerated: sets taken from all that exist, asked for "
            "in a plane of R^3; random sets of vertices that do not exist",
            f"found {counted(hits, tried)} that exist and {wrong} of {none} that do not; of the "
            f"{exist} sets that exist {p.forms} random forms a start meet {drawn}",
            survives=hits / tried > 0.5 and wrong == 0,
        ),
        cy.Comparison(
            "The search finds what random forms seldom are.",
            f"{p.forms} random forms for each start",
            "share of random forms with exactly the wanted leaders, and of sets for which the "
            f"search finds one: {told}",
            survives=all(a < b / 2 for a, b in rates.values()),
        ),
    ]


def _summary(cells: list[Chosen], planes: list[Plane]) -> str:
    sets, now, end = _totals(cells)
    proofs = sum(c.reasons.count("impossible") for c in cells)
    ones = [c for c in cells if c.size == min(c.size for c in cells)]
    alone = sum(c.reasons.count("found") for c in ones)
    return (
        f"Of {sets} random sets of vertices {now} can be made to lead alone at layer 0 and {end} "
        f"at infinity; {proofs} are proved impossible, and for {sets - now - proofs} nothing was "
        f"found. Of the smallest sets, of size {ones[0].size}, {alone} of "
        f"{sum(len(c.reasons) for c in ones)} can lead alone. In the plane all forms are "
        f"enumerated: of {sum(x.asked for x in planes)} sets that exist the search, which does not "
        f"know the cells, finds {sum(x.found for x in planes)}."
    )


def _picture(p: Params, cells: list[Chosen]) -> cy.Picture:
    figure, axes = cy.plot.sheet(1, 2, 5, 3.8)
    for k, (colour, d) in enumerate(zip(cy.plot.PALETTE, p.d)):
        line = [c for c in cells if c.d == d]
        x = [c.size + 0.06 * (k - 1.5) for c in line]
        for ax, reason in zip(axes[0], ("found", "impossible")):
            y = [c.rate(reason) for c in line]
            ax.plot(x, y, color=colour, marker="osD^vP"[k % 6], ms=6, label=f"d = {d}")
    names = ("share of sets that can lead alone", "share proved impossible")
    for ax, name in zip(axes[0], names):
        ax.set(xlabel="size of the set", ylabel=name, ylim=(-0.03, 1.05), xticks=p.sizes)
    cy.plot.legend_below(axes[0, 0], len(p.d))
    caption = (
        "Random sets of vertices of conv(Z u {0}), by size, curves drawn a little apart; a curve "
        "ends where no start has so many vertices. Left: a form was found under which they lead at "
        "layer 0 and nobody else does. Right: proved that there is none; the rest was not found."
    )
    return cy.Picture("Sets that can lead alone", caption, figure)
