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
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.analysis.control.plane_forms import leader_sets

TITLE = "Choosing who leads"
ALIASES = "exact_leaders"
REASONS = ("found", "not found", "impossible")
WHY = ("together", "condition", "undecided")  # why a set cannot lead, as `cy.control` has it
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


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Single tokens, sets together, sets alone."""
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
    axes = {"d": p.alone_d if solver else (), "alone, sets of": p.alone_sizes}
    alone: list[st.Cell] = [c for c in grid(_alone, p, axes, part(0.5, 0.9)) if c.reasons]
    controls = [_single_control(singles)]
    tables = _tables(groups, singles)
    checks, pictures = {"single tokens and sets": [_check(singles, groups)]}, [_before_and_after(p)]
    if groups:
        controls.append(_trend(p, groups, others))
    if alone:
        recalls = grid(_recall, p, {"sets of random forms, d": p.alone_d}, part(0.9, 0.95))
        planes = grid(_plane, p, {"start": range(p.alone_sets)}, part(0.95, 1))
        controls += _alone_controls(p, alone, recalls, planes)
        tables += _alone_tables(alone, recalls)
        made = sum(c.reasons.count("found") + c.limits.count("found") for c in alone)
        said = "forms found have exactly the targets for leaders, by exact sets or certified limits"
        right = sum(c.confirmed for c in alone)
        B15 = "docs/mathematics.md B15"
        checks["sets alone"] = [st.all_of("exactly", B15, said, right, made)]
    return st.report_of(
        p,
        _summary(p, singles, groups, alone),
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


def _group(d: int, size: int, answers: list[st.Cell]) -> st.Cell:
    """The answers for target sets of one size: cond A of the sets that can lead, answers that are
    "yes" exactly for vertices (meant for single tokens), and the largest residual that rounding
    leaves of a convex combination or of a contradiction."""
    able = [a.control.condition for a in answers if a.control.feasible]
    witnesses = [a.control.witness for a in answers]
    left = [w.residual for w in witnesses if w.reason in ("inside", "together")]
    return st.Cell(
        **{"d": d, "size": size, "answers": answers, "conditions": able},
        rate=len(able) / max(1, len(answers)),
        agree=sum(a.control.feasible == a.vertices for a in answers),
        confirmed=sum(a.confirmed for a in answers),
        residual=max([0.0, *left]),
        reasons=[w.reason for w in witnesses],
    )


# --- together ------------------------------------------------------------------------------------


def _answer(z: np.ndarray, targets: Any, vertices: np.ndarray, condition: float) -> st.Cell:
    """What `cy.control` says about one set of targets; whether all are vertices of conv(Z u {0}),
    lead under A = I, and lead from layer 0 on in the certified limit."""
    control, confirmed = cy.control(z, targets, condition=condition), False
    if control.feasible:
        li = cy.limit(cy.PureAttention(cy.Hardmax(control.A)), z)
        confirmed = bool(li.certified and (li.born[targets] == 0).all())
    known = {"vertices": bool(np.isin(targets, vertices).all()), "confirmed": confirmed}
    return st.Cell(control=control, **known, already=bool(_leads(z)[targets].all()))


def _singles(p: Params, d: int) -> st.Cell:
    """Every token of some starts, alone."""
    answers = []
    for s in range(p.single):
        z = cy.configurations.gaussian(p.n, d, p.seed + s)
        vertices = _candidates(z)
        answers += [_answer(z, i, vertices, float("inf")) for i in range(p.n)]
    return _group(d, 1, answers)


def _sets(p: Params, d: int, size: int, start: str = "Gaussian") -> st.Cell:
    """Random sets of vertices of conv(Z u {0}), where there are so many."""
    rng = np.random.default_rng([p.seed, d, size])
    answers = []
    for s in range(p.sets):
        z = STARTS[start](p, d, p.seed + s)
        vertices = _candidates(z)
        if len(vertices) >= size:
            targets = rng.choice(vertices, size, replace=False)
            answers.append(_answer(z, targets, vertices, p.condition))
    return _group(d, size, answers)


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


def _alone(p: Params, d: int, size: int) -> st.Cell:
    """What became of target sets of one size that shall lead alone."""
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
    return st.Cell(
        **{"d": d, "size": size},
        reasons=tuple(reasons),  # at layer 0, one of REASONS for each set
        limits=tuple(limits),  # at infinity
        confirmed=confirmed,  # forms whose exact sets, or limits, have exactly the targets
        lead=lead,  # sets that some form makes lead, others beside them or not
        random=float(np.mean(hits)) if hits else 0.0,  # share of random forms that choose the set
    )


def _recall(p: Params, d: int) -> st.Cell:
    """Sets that random forms chose, asked for again."""
    asked = found = 0
    for s in range(p.alone_sets):
        z = cy.configurations.gaussian(p.alone_n, d, p.seed + s)
        for targets in sorted({tuple(_leaders(z, A)) for A in _random_forms(p, d, s)[:2]}):
            asked += 1
            found += cy.control_exactly(z, list(targets), tries=p.tries).found
    return st.Cell(d=d, asked=asked, found=found)


def _plane(p: Params, s: int) -> st.Cell:
    """One start in the plane, whose forms are all enumerated; the search in a plane of R^3."""
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
    return st.Cell(
        exist=len(exist),  # sets of leaders that some form chooses
        drawn=len(forms & set(exist)),  # of these, chosen by random forms
        asked=len(asked),
        found=found(asked),
        others=len(none),  # random sets of vertices that no cell has
        wrong=found(none),
    )


# --- controls and checks -------------------------------------------------------------------------


def _single_control(singles: list[st.Cell]) -> st.Comparison:
    every = [answer for group in singles for answer in group.answers]
    able, already = sum(a.control.feasible for a in every), sum(a.already for a in every)
    return st.Comparison(
        "A token can be made to lead exactly when it is a vertex of conv(Z u {0}).",
        "the tokens that lead under A = I anyway",
        f"{able} of {len(every)} tokens can lead, {already} of them do under A = I",
        survives=already < able and all(s.agree == len(s.answers) for s in singles),
    )


def _trend(p: Params, groups: list[st.Cell], others: list[tuple[str, st.Cell]]) -> st.Comparison:
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


def _totals(alone: list[st.Cell]) -> tuple[int, int, int]:
    """Sets, those with a form under which they lead alone, those that lead alone at infinity."""
    sets = sum(len(c.reasons) for c in alone)
    now, end = (sum(getattr(c, w).count("found") for c in alone) for w in ("reasons", "limits"))
    return sets, now, end


def _alone_controls(
    p: Params, alone: list[st.Cell], recalls: list[st.Cell], planes: list[st.Cell]
) -> list[st.Comparison]:
    names = ("exist", "drawn", "asked", "found", "others", "wrong")
    exist, drawn, tried, hits, none, wrong = (sum(getattr(x, k) for x in planes) for k in names)
    asked, found = sum(r.asked for r in recalls), sum(r.found for r in recalls)
    (sets, now, _), lead = _totals(alone), sum(c.lead for c in alone)
    rates = {
        d: (
            np.mean([c.random for c in of]),
            np.mean([c.reasons.count("found") / len(c.reasons) for c in of]),
        )
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


def _check(singles: list[st.Cell], groups: list[st.Cell]) -> cy.theorems.Check:
    every = [*singles, *groups]
    tried, agree = sum(len(s.answers) for s in singles), sum(s.agree for s in singles)
    forms, confirmed = sum(len(g.conditions) for g in every), sum(g.confirmed for g in every)
    undecided, residual = (
        sum(g.reasons.count("undecided") for g in every),
        max(g.residual for g in every),
    )
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


def _tables(groups: list[st.Cell], singles: list[st.Cell]) -> list[st.Table]:
    confirmed: dict[str, Any] = {"confirmed": lambda g: f"{g.confirmed}/{len(g.conditions)}"}
    one = st.columns("d, tokens = len answers, can lead = rate") | confirmed
    one |= {"agree with vertices": lambda s: f"{s.agree}/{len(s.answers)}"}
    one |= st.columns("median condition = median conditions, largest = max conditions, residual")
    several: dict[str, Any] = st.columns("d, size, sets = len answers, can lead = rate")
    several |= {"lead under I": lambda g: sum(a.already for a in g.answers)} | confirmed
    several |= {why: lambda g, why=why: g.reasons.count(why) for why in WHY}
    several |= st.columns("median condition = median conditions")
    missing = 'Sets need the extra: pip install "cynosure[control]".'
    missing = "Together: they contradict each other." if groups else missing
    return [
        st.Table.of("Single tokens", singles, one),
        st.Table.of("Sets of tokens", groups, several, missing),
    ]


def _alone_tables(alone: list[st.Cell], recalls: list[st.Cell]) -> list[st.Table]:
    columns: dict[str, Any] = st.columns("d, size, sets = len reasons, can lead = lead")
    columns |= {f"alone: {r}": lambda c, r=r: c.reasons.count(r) for r in REASONS}
    columns |= {f"at infinity: {r}": lambda c, r=r: c.limits.count(r) for r in REASONS}
    columns |= st.columns("confirmed, chosen by random forms = random")
    note = (
        "Random sets of vertices of conv(Z u {0}). Can lead: some form makes them lead, others "
        "perhaps with them. Chosen by random forms: the mean share of random forms with exactly "
        "these leaders."
    )
    return [
        st.Table.of("Sets of vertices", alone, columns, note),
        st.Table.of("Sets that some form chooses", recalls, st.columns("d, asked, found")),
    ]


def _summary(p: Params, singles: list[st.Cell], groups: list[st.Cell], alone: list[st.Cell]) -> str:
    tried, agree = sum(len(s.answers) for s in singles), sum(s.agree for s in singles)
    share = {s.d: s.rate for s in singles}
    together = "Sets were not tried: cvxpy is not installed"
    if groups:
        worst, mean = min(groups, key=lambda g: g.rate), np.mean([g.rate for g in groups])
        together = (
            f"Sets of vertices: {mean:.0%} can lead together on the whole, fewest "
            f"({worst.rate:.0%}) for d = {worst.d} and size {worst.size}"
        )
    text = (
        f"{agree} of {tried} single tokens agree with the vertices of conv(Z u {{0}}) "
        f"({agree / tried:.0%}); of {p.n} tokens {share[min(p.d)]:.0%} can lead for d = "
        f"{min(p.d)} and {share[max(p.d)]:.0%} for d = {max(p.d)}. {together}."
    )
    if alone:
        sets, now, end = _totals(alone)
        proofs = sum(c.reasons.count("impossible") for c in alone)
        text += (
            f"\n\nOf {sets} random sets of vertices {now} can be made to lead alone at layer 0 and "
            f"{end} at infinity; {proofs} are proved impossible, and for {sets - now - proofs} "
            "nothing was found."
        )
    return text


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
