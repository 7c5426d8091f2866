"""Choosing who leads: which sets of tokens lead together under some form A, and which lead alone?

A token of a hardmax transformer (arXiv 2407.01602) can be made an initial leader by some symmetric
positive definite A exactly when it is a vertex of conv(Z u {0}); that a set leads is a linear
matrix inequality in A; that nobody else does is not convex and has to be searched for
(docs/mathematics.md B15). In the plane there is a referee: all forms fall into finitely many cells,
which are enumerated. See: forms that make one token lead are mild; the larger the set and the lower
the dimension, the sooner the wishes of its members contradict each other; few sets can lead alone.
Every answer is checked: forms by exact sets and by the certified limit, contradictions by their
multipliers, the search by asking for sets that are known to exist. That it finds nothing proves
nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.analysis.control.plane_forms import leader_sets

TITLE = "Choosing who leads"
ALIASES = "exact_leaders"
REASONS = ("found", "not found", "impossible")
STARTS = {  # what the sets are taken from: the text is about the first
    "Gaussian": lambda p, d, seed: cy.configurations.gaussian(p.n, d, seed),
    "uniform in a ball": lambda p, d, seed: cy.configurations.ball(p.n, d, seed),
    "half as many tokens": lambda p, d, seed: cy.configurations.gaussian(p.n // 2, d, seed),
}


@dataclass(frozen=True)
class Params:
    """To lead together: dimensions, sizes of target sets, sets per cell, Gaussian tokens, starts
    whose tokens are tried one by one, the bound on cond A. To lead alone (`alone_`): the same, with
    random forms per start and tries of the search."""

    d: tuple[int, ...] = (2, 3, 4, 6, 8, 12)
    sizes: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16)
    sets: int = 25
    n: int = 40
    single: int = 12
    condition: float = 1e6
    alone_d: tuple[int, ...] = (2, 4, 8)
    alone_sizes: tuple[int, ...] = (1, 2, 4)
    alone_sets: int = 6
    alone_n: int = 16
    forms: int = 60
    tries: int = 2
    seed: int = 0


QUICK = Params(
    d=(2, 4), sizes=(2, 4, 8), sets=4, n=20, single=3,
    alone_d=(2, 4), alone_sizes=(2, 3), alone_sets=3, alone_n=10, forms=20,
)  # fmt: skip


class Answer(NamedTuple):
    """What `cy.control` said about one set of targets, and what is known of it otherwise."""

    control: cy.analysis.Control
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


class Alone(NamedTuple):
    """What became of target sets of one size that shall lead alone."""

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


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Single tokens, sets together, sets alone, the smallest changes that take a lead away."""
    least = min(*p.d, *p.sizes, p.sets + 1, p.single + 1, p.n - 2, p.alone_n - 2)
    alone_least = min(*p.alone_d, *p.alone_sizes, p.alone_sets, p.forms, p.tries)
    expected = "d and sizes >= 2, numbers of sets, forms and tries >= 1, n >= 4"
    st.require(least >= 2 and alone_least >= 1, expected, p)
    part, grid = partial(st.part, progress), st.over_grid
    solver = find_spec("cvxpy") is not None
    sizes = p.sizes if solver else ()
    singles = grid(_singles, p, {"single tokens, d": p.d}, part(0, 0.1))
    tried = grid(_sets, p, {"d": p.d, "sets of": sizes}, part(0.1, 0.4))
    groups = [group for group in tried if group.answers]
    ends = tuple(sorted({min(sizes), max(sizes)})) if sizes else ()
    laws = tuple(STARTS)[1:]
    axes = {"d": p.d, "sets of": ends, "start": laws}
    beside = grid(_sets, p, axes, part(0.4, 0.45))
    others = list(zip(laws * len(beside), beside))
    removals = grid(_removals, p, {"leads taken away, d": p.d}, part(0.45, 0.5))
    axes = {"d": p.alone_d if solver else (), "alone, sets of": p.alone_sizes}
    alone = [c for c in grid(_alone, p, axes, part(0.5, 0.9)) if c.reasons]
    controls = [_single_control(singles)]
    tables = _tables(groups, singles, removals)
    checks, pictures = {"single tokens and sets": [_check(singles, groups)]}, [_before_and_after(p)]
    if groups:
        controls.append(_trend(p, groups, others))
        pictures.append(_together(p, groups))
    if alone:
        recalls = grid(_recall, p, {"sets of random forms, d": p.alone_d}, part(0.9, 0.95))
        planes = grid(_plane, p, {"start": range(p.alone_sets)}, part(0.95, 1))
        controls += _alone_controls(p, alone, recalls, planes)
        tables += _alone_tables(alone, recalls, planes)
        made = sum(c.reasons.count("found") + c.limits.count("found") for c in alone)
        said = "forms found have exactly the targets for leaders, by exact sets or certified limits"
        right = sum(c.confirmed for c in alone)
        B15 = "docs/mathematics.md B15"
        checks["sets alone"] = [st.all_of("exactly", B15, said, right, made)]
    return st.report_of(
        p,
        _summary(p, singles, groups, removals, alone),
        controls=controls,
        tables=tables,
        checks=checks,
        figures=pictures,
    )


def _body(z: np.ndarray) -> cy.analysis.Polytope:
    """conv(Z u {0})."""
    return cy.hull(np.vstack([z, 0 * z[:1]]))


def _candidates(z: np.ndarray) -> np.ndarray:
    """Tokens that are vertices of conv(Z u {0})."""
    index = _body(z).index
    return index[index < len(z)]


def _leads(z: np.ndarray, A: np.ndarray | None = None) -> np.ndarray:
    return cy.Hardmax(A).followed(z).leads


def _leaders(z: np.ndarray, A: np.ndarray | None) -> list[int]:
    return np.flatnonzero(_leads(z, A)).tolist()


# --- together ------------------------------------------------------------------------------------


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
    removed = [cy.analysis.remove_leader(z, int(i)) for i in np.flatnonzero(_leads(z))]
    gone = sum(
        r.A is not None and not _leads(r.z)[r.leader] and not _leads(z, r.A)[r.leader]
        for r in removed
    )
    move, change = (np.median([getattr(r, x) for r in removed]) for x in ("distance", "change"))
    return Removals(d, len(removed), float(move) / longest, float(change), gone)


# --- alone ---------------------------------------------------------------------------------------


def _random_forms(p: Params, d: int, seed: int) -> list[np.ndarray]:
    """Eigenvalues over four decades, axes at random."""
    rng = np.random.default_rng([p.seed, d, seed])
    forms = []
    for _ in range(p.forms):
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        A = (axes * 10.0 ** (-4 * rng.random(d))) @ axes.T
        forms.append((A + A.T) / 2)
    return forms


def _alone(p: Params, d: int, size: int) -> Alone:
    rng = np.random.default_rng([p.seed, d, size])
    reasons, limits, hits = [], [], []
    confirmed = lead = 0
    for s in range(p.alone_sets):
        z = cy.configurations.gaussian(p.alone_n, d, p.seed + s)
        vertices = _candidates(z)
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
    return Alone(d, size, tuple(reasons), tuple(limits), confirmed, lead, random)


def _recall(p: Params, d: int) -> Recall:
    asked = found = 0
    for s in range(p.alone_sets):
        z = cy.configurations.gaussian(p.alone_n, d, p.seed + s)
        for targets in sorted({tuple(_leaders(z, A)) for A in _random_forms(p, d, s)[:2]}):
            asked += 1
            found += cy.control_exactly(z, list(targets), tries=p.tries).found
    return Recall(d, asked, found)


def _plane(p: Params, s: int) -> Plane:
    z = cy.configurations.gaussian(p.alone_n, 2, p.seed + s)
    exist = leader_sets(z)
    forms = {tuple(_leaders(z, A)) for A in _random_forms(p, 2, s)}
    rng = np.random.default_rng([p.seed, 2, s])
    inside = np.column_stack([z, np.zeros(len(z))])

    def found(sets: Iterable[tuple[int, ...]]) -> int:
        return sum(cy.control_exactly(inside, list(x), tries=p.tries).found for x in sets)

    sets, vertices = list(exist), cy.hull(z).index
    asked = [sets[i] for i in rng.choice(len(sets), min(p.alone_sets, len(sets)), replace=False)]
    drawn = {
        tuple(sorted(rng.choice(vertices, rng.integers(1, len(vertices)), replace=False).tolist()))
        for _ in range(p.alone_sets)
    }
    none = [targets for targets in sorted(drawn) if targets not in exist]
    return Plane(
        len(exist), len(forms & set(exist)), len(asked), found(asked), len(none), found(none)
    )


# --- controls and checks -------------------------------------------------------------------------


def _single_control(singles: list[TargetSets]) -> st.Comparison:
    every = [answer for group in singles for answer in group.answers]
    able, already = sum(a.control.feasible for a in every), sum(a.already for a in every)
    return st.Comparison(
        "A token can be made to lead exactly when it is a vertex of conv(Z u {0}).",
        "the tokens that lead under A = I anyway",
        f"{able} of {len(every)} tokens can lead, {already} of them do under A = I",
        survives=already < able and all(s.agree == len(s.answers) for s in singles),
    )


def _trend(
    p: Params, groups: list[TargetSets], others: list[tuple[str, TargetSets]]
) -> st.Comparison:
    """The trend in the size of the set, for other starts than the Gaussian ones."""
    least, most = min(p.sizes), max(p.sizes)
    pairs = [("Gaussian", g) for g in groups if g.size in (least, most)]
    pairs += [pair for pair in others if pair[1].answers]
    seen, falls = [], []
    for start in STARTS:
        for d in p.d:
            cells = [g for name, g in pairs if (name, g.d) == (start, d)]
            rates = [g.rate for g in sorted(cells, key=lambda g: g.size)]
            if len(rates) == 2:
                seen.append(f"{start}, d = {d}: {rates[0]:.0%} and {rates[1]:.0%}")
                falls.append(rates[0] >= rates[1])
    return st.Comparison(
        "A larger set can lead together no more often than a smaller one.",
        "the law of the tokens and their number, which the text does not vary",
        f"sets of {least} and of {most}, where a start has so many vertices: "
        + ("; ".join(seen) or "none has"),
        survives=bool(falls) and all(falls),
    )


def _totals(alone: list[Alone]) -> tuple[int, int, int]:
    """Sets, those with a form under which they lead alone, those that lead alone at infinity."""
    sets = sum(len(c.reasons) for c in alone)
    now, end = (sum(getattr(c, w).count("found") for c in alone) for w in ("reasons", "limits"))
    return sets, now, end


def _alone_controls(
    p: Params, alone: list[Alone], recalls: list[Recall], planes: list[Plane]
) -> list[st.Comparison]:
    exist, drawn, tried, hits, none, wrong = (sum(x) for x in zip(*planes))
    asked, found = sum(r.asked for r in recalls), sum(r.found for r in recalls)
    (sets, now, _), lead = _totals(alone), sum(c.lead for c in alone)
    rates = {
        d: (np.mean([c.random for c in of]), np.mean([c.rate("found") for c in of]))
        for d, of in st.grouped(alone, "d").items()
    }
    told = ", ".join(f"d = {d}: {a:.2g} and {b:.2g}" for d, (a, b) in rates.items())
    return [
        st.Comparison(
            "Not every set that can lead can lead alone.",
            "sets that random forms chose, for which there is a form: is it the search that fails?",
            f"of these {st.counted(found, asked)} were found, of random sets of vertices "
            f"{st.counted(now, sets)}; {lead} of the latter can lead with others beside them",
            survives=now < lead and found / asked > now / sets,
        ),
        st.Comparison(
            "The search finds most of the sets that exist, and no other.",
            "the plane, where all forms are enumerated: sets taken from all that exist, asked for "
            "in a plane of R^3; random sets of vertices that do not exist",
            f"found {st.counted(hits, tried)} that exist and {wrong} of {none} that do not; "
            f"of the {exist} sets that exist {p.forms} random forms a start meet {drawn}",
            survives=hits / tried > 0.5 and wrong == 0,
        ),
        st.Comparison(
            "The search finds what random forms seldom are.",
            f"{p.forms} random forms for each start",
            "share of random forms with exactly the wanted leaders, and of sets for which the "
            f"search finds one: {told}",
            survives=all(a < b / 2 for a, b in rates.values()),
        ),
    ]


def _check(singles: list[TargetSets], groups: list[TargetSets]) -> cy.theorems.Check:
    every = [*singles, *groups]
    tried, agree = sum(len(s.answers) for s in singles), sum(s.agree for s in singles)
    forms, confirmed = sum(len(g.conditions) for g in every), sum(g.confirmed for g in every)
    undecided, residual = sum(g.reasons("undecided") for g in every), max(g.residual for g in every)
    sound = tried == agree and forms == confirmed and undecided == 0
    return st.at_most(
        "vertices",
        "docs/mathematics.md B15",
        "a token can lead iff it is a vertex of conv(Z u {0}); forms and contradictions "
        "found are confirmed",
        residual if sound else np.inf,
        1e-9,
        **{"single tokens": tried, "agree with the vertices": agree, "forms found": forms},
        **{"confirmed by the limit": confirmed, "undecided sets": undecided},
    )


# --- what is shown -------------------------------------------------------------------------------


def _tables(
    groups: list[TargetSets], singles: list[TargetSets], removals: list[Removals]
) -> list[st.Table]:
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
        st.Table.of("Single tokens", singles, one),
        st.Table.of("Sets of tokens", groups, several, missing),
        st.Table.of("Taking a lead away", removals, taken, units),
    ]


def _alone_tables(alone: list[Alone], recalls: list[Recall], planes: list[Plane]) -> list[st.Table]:
    columns: dict[str, Any] = {
        **{"d": "d", "size": "size", "sets": lambda c: len(c.reasons), "can lead": "lead"},
        **{f"alone: {r}": lambda c, r=r: c.reasons.count(r) for r in REASONS},
        **{f"at infinity: {r}": lambda c, r=r: c.limits.count(r) for r in REASONS},
        **{"confirmed": "confirmed", "chosen by random forms": "random"},
    }
    note = (
        "Random sets of vertices of conv(Z u {0}). Can lead: some form makes them lead, others "
        "perhaps with them. Chosen by random forms: the mean share of random forms with exactly "
        "these leaders."
    )
    plane = {
        **{"sets that exist": "exist", "of these drawn by random forms": "drawn"},
        **{"of these asked for": "asked", "found": "found"},
        **{"sets that do not exist": "others", "found all the same": "wrong"},
    }
    search = (
        "One row for each start. Exist: by the cells of all forms, no search. Found: by the "
        "search, for the same tokens in a plane of R^3."
    )
    again = dict(zip(*[Recall._fields] * 2))
    return [
        st.Table.of("Sets of vertices", alone, columns, note),
        st.Table.of("Sets that some form chooses", recalls, again),
        st.Table.of("All sets that exist, in the plane", planes, plane, search),
    ]


def _summary(
    p: Params,
    singles: list[TargetSets],
    groups: list[TargetSets],
    removals: list[Removals],
    alone: list[Alone],
) -> str:
    tried, agree = sum(len(s.answers) for s in singles), sum(s.agree for s in singles)
    share = {s.d: s.rate for s in singles}
    together = "Sets were not tried: cvxpy is not installed"
    if groups:
        worst, mean = min(groups, key=lambda g: g.rate), np.mean([g.rate for g in groups])
        together = (
            f"Sets of vertices: {mean:.0%} can lead together on the whole, fewest "
            f"({worst.rate:.0%}) for d = {worst.d} and size {worst.size}"
        )
    first, last = removals[0], removals[-1]
    text = (
        f"{agree} of {tried} single tokens agree with the vertices of conv(Z u {{0}}) "
        f"({agree / tried:.0%}); of {p.n} tokens {share[min(p.d)]:.0%} can lead for d = "
        f"{min(p.d)} and {share[max(p.d)]:.0%} for d = {max(p.d)}. {together}. "
        f"The smallest changes took away {sum(r.gone for r in removals)} of "
        f"{sum(r.leaders for r in removals)} leads; the median move is {first.distance:.1%} of the "
        f"longest token for d = {first.d}, {last.distance:.1%} for d = {last.d}."
    )
    if alone:
        sets, now, end = _totals(alone)
        proofs = sum(c.reasons.count("impossible") for c in alone)
        ones = [c for c in alone if c.size == min(c.size for c in alone)]
        single = sum(c.reasons.count("found") for c in ones), sum(len(c.reasons) for c in ones)
        text += (
            f"\n\nOf {sets} random sets of vertices {now} can be made to lead alone at layer 0 and "
            f"{end} at infinity; {proofs} are proved impossible, and for {sets - now - proofs} "
            f"nothing was found. Of the smallest sets, of size {ones[0].size}, {single[0]} of "
            f"{single[1]} can lead alone."
        )
    return text


def _together(p: Params, groups: list[TargetSets]) -> st.Picture:
    figure, axes = cy.plot.sheet(1, 2, 5, 3.8)
    left, right = axes[0]
    st.curves(left, groups, "size", "rate", "d", label="d = {}")
    st.curves(right, groups, "size", "median", "d")
    left.set(xlabel="size of the set", ylabel="share of sets that can lead", ylim=(-0.03, 1.05))
    right.set(xlabel="size of the set", ylabel="median condition number of A", yscale="log")
    cy.plot.legend_below(left, len(p.d))
    caption = (
        "Left: share of random sets of vertices of conv(Z u {0}) that some form makes lead; a "
        "curve ends where no start has so many vertices. Right: median condition number of the "
        "forms found (1: they lead under A = I)."
    )
    return st.Picture("Sets that can lead together", caption, figure)


def _chosen(p: Params, z: np.ndarray) -> cy.analysis.Control:
    """A form that makes two tokens lead that do not lead under A = I, or one of them."""
    plain = _leads(z)
    able = [i for i in _candidates(z).tolist() if not plain[i]]
    wish = able[:2] if find_spec("cvxpy") else able[:1]
    answer = cy.control(z, wish or np.flatnonzero(plain)[:1], condition=p.condition)
    # if not feasible, the two contradict each other
    return answer if answer.feasible else cy.control(z, wish[:1], condition=p.condition)


def _before_and_after(p: Params) -> st.Picture:
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
    return st.Picture("One start, two forms", caption, figure)
