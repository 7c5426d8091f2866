"""How many tokens lead, and from which layer on: counts beside the formula, and late leaders.

    E|L_0| = n E[Phi(r)^(n-1)],   r ~ chi_d           (tokens N(0, I_d), A = I)

(docs/mathematics.md B14; the model is that of arXiv 2407.01602). See: a handful of leaders in the
plane, whatever n; almost every token once d is well above 2 log n, so that nothing moves. Real data
beside it, on d principal directions, against Gaussian tokens of the same second moments:
handwritten digits; the words of the shipped film-review classifier, placed on a curve so that few
of a review lead; the word embeddings of MiniLM where it is installed; a file of tokens.

A token that follows others can overshoot the hyperplane of its own score and lead from then on.
Such late leaders are rare (percents of the starts in low dimension, more often for heavy tails,
hardly ever in high dimension) and start at a vertex of the first hull or inside it. The number of
leaders of one fixed start is a piecewise constant function of alpha, constant for most starts, and
where it is not, not always monotone. How late a leader may be born has no bound seen here: small
steps and heavy tails give later layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.figures.reviews_explained import REVIEWS
from cynosure.pretrained.reading.examples import example_transformer, weights_note
from cynosure.theorems import expected_leaders

TITLE = "How many tokens lead, and from which layer on"
ALIASES = "emergent_leaders"


@dataclass(frozen=True)
class Params:
    """Counts: dimensions, numbers of tokens, starts per cell, of which `followed_through` are taken
    to infinite depth at each `followed_alpha`. `data`: which of digits, reviews and MiniLM are
    measured, `drawn` times for each n, on so many principal directions as `directions` says and,
    where they have no more than 400, on all; `embeddings` may name a file of tokens, one per row.

    Late leaders: `late_starts` Gaussian starts for each (d, n, alpha) of `late_d`, `late_n`,
    `alpha`; `laws` besides, `law_n` tokens in the plane at every `law_alpha` ("student": the t law
    with two degrees of freedom). Of `scanned` starts of `scanned_n` tokens in each `scanned_d` it
    is asked whether alpha matters; the first `swept` for which it does are drawn at `sweep` steps.
    """

    d: tuple[int, ...] = (1, 2, 3, 4, 8, 16, 32)
    n: tuple[int, ...] = (10, 32, 100, 316, 1000)
    starts: int = 200
    followed_through: int = 60
    followed_alpha: tuple[float, ...] = (0.5, 1.0, 2.0)
    data: tuple[str, ...] = ("digits", "reviews", "MiniLM")
    directions: tuple[int, ...] = (2, 8, 16)
    drawn: int = 60
    late_d: tuple[int, ...] = (2, 3, 4, 8)
    late_n: tuple[int, ...] = (10, 30, 100, 300)
    alpha: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0)
    late_starts: int = 400
    laws: tuple[str, ...] = ("gaussian", "box", "ball", "student")
    law_alpha: tuple[float, ...] = (0.01, 0.5, 2.0)
    law_n: int = 100
    law_starts: int = 200
    scanned: int = 100
    scanned_n: int = 40
    scanned_d: tuple[int, ...] = (2, 8)
    swept: int = 3
    sweep: int = 600
    seed: int = 0
    embeddings: str = ""


QUICK = Params(
    d=(1, 2, 4, 16), n=(10, 32, 100), starts=60, followed_through=10,
    data=("digits", "reviews"), directions=(2, 8), drawn=30,
    late_d=(2, 4), late_n=(10, 30), alpha=(0.5, 2.0), late_starts=80,
    law_alpha=(0.1, 1.0), law_n=30, law_starts=40, scanned=25, swept=2, sweep=80,
)  # fmt: skip


class LeaderCount(NamedTuple):
    """Leaders of the Gaussian starts of one (d, n): counted, expected, and at infinite depth."""

    d: int
    n: int
    counts: np.ndarray
    expected: float
    final: np.ndarray  # (alpha, start): leaders at infinite depth
    first: np.ndarray  # of the same starts, at layer 0

    @property
    def mean(self) -> float:
        return float(self.counts.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(self.counts.std(ddof=1) / np.sqrt(len(self.counts)))

    def off(self, expected: float) -> float:
        """(mean - expected) in standard errors; the error of a constant count is taken as 1/n."""
        return (self.mean - expected) / max(self.error, 1 / len(self.counts))

    @property
    def deviation(self) -> float:
        return self.off(self.expected)


class DataCount(NamedTuple):
    """Leaders among n tokens drawn from a data set, and among Gaussian ones of its covariance."""

    name: str
    d: int
    n: int
    real: float
    gaussian: float
    error: float  # standard, of the Gaussian mean
    formula: float

    @property
    def ratio(self) -> float:
        return self.real / self.formula


class Birth(NamedTuple):
    """One leader born late."""

    layer: int
    vertex: bool  # of the hull of the start


class BirthCensus(NamedTuple):
    """Leaders and late births in the starts of one (law, d, n, alpha)."""

    d: int
    n: int
    alpha: float
    runs: int
    certified: int
    with_births: int  # runs
    leaders: int
    births: tuple[Birth, ...]
    law: str = "gaussian"

    @property
    def latest(self) -> int | None:
        return max((b.layer for b in self.births), default=None)

    @property
    def seen(self) -> tuple[int, int]:
        """Starts with a leader born late, and all starts."""
        return self.with_births, self.runs

    @property
    def rate(self) -> float:
        return self.with_births / self.runs


class AlphaSweep(NamedTuple):
    """|L| against alpha for one fixed start."""

    start: str
    alpha: np.ndarray
    leaders: np.ndarray
    certified: int

    @property
    def jumps(self) -> list[str]:
        """The steps at which the number of leaders changes, to the resolution of the sweep."""
        at = np.flatnonzero(np.diff(self.leaders))
        return [f"{np.sqrt(self.alpha[i] * self.alpha[i + 1]):.3g}" for i in at]


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Count leaders on the grid and on data, then those born late, then sweep alpha."""
    part, grid = partial(st.part, progress), st.over_grid
    least = min(*p.d, *p.n, p.starts - 1, *p.late_d, *p.late_n, p.late_starts, p.law_starts)
    sensible = least >= 1 and 1 <= p.followed_through <= p.starts and p.sweep >= 2
    expected = "starts >= 2, followed_through in 1..starts, d and n >= 1, sweep >= 2, known laws"
    known = min(*p.alpha, *p.followed_alpha) > 0 and set(p.laws) <= set(LAWS)
    st.require(sensible and known, expected, p)
    sets = ("digits", "reviews", "MiniLM")
    st.require(set(p.data) <= set(sets), f"data among {', '.join(sets)}", p)
    cells = grid(_count, p, {"d": p.d, "n": p.n}, part(0, 0.4))
    every = [(p, name, z) for name, z in _data(p).items()]
    found = st.kept_each(_against_gaussian, every, part(0.4, 0.5))
    data = [count for counts in found for count in counts]
    axes = {"d": p.late_d, "n": p.late_n, "alpha": p.alpha}
    census = grid(_census, p, axes, part(0.5, 0.7))
    laws = grid(_law, p, {"law": p.laws, "alpha": p.law_alpha}, part(0.7, 0.8))
    sweeps = st.kept(_sweep, p, progress=part(0.8, 0.9))
    varying = grid(_varying, p, {"d": p.scanned_d}, part(0.9, 1))
    controls = [*_controls(p, cells, data), *_late_controls(p, census, laws, varying)]
    return st.report_of(
        p,
        f"{_summary(p, cells, data)}\n\n{_late_summary(p, census, varying, sweeps)}",
        controls=controls,
        tables=[*_tables(p, cells, data), *_late_tables(census, laws, sweeps)],
        checks={"grid": [_check(cells)], "census": [_settled([*census, *laws])]},
        figures=[_curves(cells), _where_and_when(p, census), _steps(sweeps)],
    )


# --- leaders at layer 0 --------------------------------------------------------------------------


def _count(p: Params, d: int, n: int) -> LeaderCount:
    rng = np.random.default_rng([p.seed, d, n])
    starts = [rng.standard_normal((n, d)) for _ in range(p.starts)]
    counts = np.array([_leaders(z) for z in starts], dtype=float)
    through = starts[: p.followed_through]
    ends = [[len(_limit(z, a).leaders) for z in through] for a in p.followed_alpha]
    final = np.array(ends, dtype=float)
    return LeaderCount(d, n, counts, expected_leaders(n, d), final, counts[: len(through)])


def _limit(z: np.ndarray, alpha: float) -> cy.analysis.Limit:
    return cy.limit(cy.PureAttention(alpha=float(alpha)), z)


def _leaders(z: np.ndarray) -> int:
    return int(cy.Hardmax().followed(z).leads.sum())


def _later(p: Params, cells: list[LeaderCount], d: int, j: int) -> tuple[int, int, int, int]:
    """Starts with a leader born late, starts; leaders born late, leaders; at the alpha of index j.

    Starts of one cell are independent, its leaders are not: rates are those of the starts.
    """
    of = [c for c in cells if c.d == d]
    born = [c.final[j] - c.first for c in of]
    hit = sum(int((x > 0).sum()) for x in born)
    late, total = sum(x.sum() for x in born), sum(c.final[j].sum() for c in of)
    return hit, sum(len(x) for x in born), int(late), int(total)


def _data(p: Params) -> dict[str, np.ndarray]:
    """Tokens to draw from, by name. Digits are centred; trained tokens are taken as they are."""
    out: dict[str, np.ndarray] = {}
    if "digits" in p.data:
        from sklearn.datasets import load_digits

        x = load_digits().data
        out["digits"] = x - x.mean(axis=0)
    if "reviews" in p.data:
        out["film-review words"] = cy.load_pretrained().model_.planes[0].embedding
    if "MiniLM" in p.data and find_spec("transformers"):
        model = example_transformer()
        if not weights_note(model):  # else its weights are random: MiniLM is not installed
            weight = model.model.get_input_embeddings().weight
            out["MiniLM words"] = weight.detach().numpy().astype(np.float64)
    if p.embeddings:
        out["embeddings"] = cy.configurations.read(p.embeddings)
    return out


def _against_gaussian(p: Params, name: str, rows: np.ndarray) -> list[DataCount]:
    """Draws of n rows on their first d principal directions, A = I."""
    axes = np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
    whole = rows.shape[1]
    dims = sorted({d for d in p.directions if d <= whole} | ({whole} if whole <= 400 else set()))
    out = []
    for d, n in product(dims, (m for m in p.n if 10 <= m <= len(rows) // 2)):
        x = rows @ axes[:, :d]
        x = x[:, np.linalg.norm(x, axis=0) > 1e-9 * np.linalg.norm(x)]  # digits: some never inked
        S = x.T @ x / len(x)
        root = np.linalg.cholesky(S)
        rng = np.random.default_rng([p.seed, d, n, 1])
        draws = (x[rng.choice(len(x), n, replace=False)] for _ in range(p.drawn))
        # Equal rows, as words of one weight have, are one leader.
        real = [_leaders(np.unique(z, axis=0)) for z in draws]
        twins = [_leaders(rng.standard_normal((n, len(S))) @ root.T) for _ in range(p.drawn)]
        error, formula = float(np.std(twins) / np.sqrt(p.drawn)), expected_leaders(n, len(S), S)
        means = {"real": float(np.mean(real)), "gaussian": float(np.mean(twins))}
        out.append(DataCount(name=name, d=d, n=n, **means, error=error, formula=formula))
    return out


def _reviews() -> st.Table:
    """Leaders of whole reviews under the shipped classifier."""
    clf = cy.load_pretrained()
    rows = []
    for i, text in enumerate(REVIEWS):
        z = np.unique(clf.explain(text).trajectory.values[0], axis=0)
        li = cy.limit(clf.model_.dynamics, z)
        rows.append((i + 1, len(z), int((li.born == 0).sum()), len(li.leaders), li.certified))
    columns = ("review", "tokens", "lead at layer 0", "lead in the limit", "certified")
    note = "Words and pairs of words of reviews written for this package, with the anchor token."
    return st.Table("Reviews read by the shipped classifier", columns, tuple(rows), note)


def _check(cells: list[LeaderCount]) -> cy.theorems.Check:
    worst = max(cells, key=lambda c: abs(c.deviation))
    return st.at_most(
        "mean count",
        "docs/mathematics.md B14",
        "the mean number of initial leaders of Gaussian tokens is n E[Phi(chi_d)^(n-1)]",
        abs(worst.deviation),
        5.0,  # standard errors; the largest of some dozens of honest ones stays below 4
        **{"d": worst.d, "n": worst.n, "mean": worst.mean, "expected": worst.expected},
        **{"standard errors apart": worst.deviation, "cells": len(cells)},
    )


def _controls(p: Params, cells: list[LeaderCount], data: list[DataCount]) -> list[st.Comparison]:
    right = sum(abs(c.deviation) < 3 for c in cells)
    wrong = sum(abs(c.off(expected_leaders(c.n, c.d + 1))) < 3 for c in cells)
    late = {d: [_later(p, cells, d, j) for j in range(len(p.followed_alpha))] for d in p.d}
    share = {d: sum(x[2] for x in of) / sum(x[3] for x in of) for d, of in late.items()}
    every = [x for of in late.values() for x in of]
    pooled = sum(x[2] for x in every) / sum(x[3] for x in every)
    starts = {d: ", ".join(f"{x[0]} of {x[1]}" for x in of) for d, of in late.items()}
    out = [
        st.Comparison(
            "Counts agree with the formula.",
            "the formula for d + 1 instead of d",
            f"within three standard errors: {st.counted(right, len(cells))} cells, for d + 1 "
            f"{st.counted(wrong, len(cells))}",
            right > 0.95 * len(cells) and wrong < 0.5 * len(cells),
        ),
        st.Comparison(
            f"A share of {pooled:.2%} of all leaders is born after layer 0.",
            f"d; alpha in {', '.join(f'{a:g}' for a in p.followed_alpha)}",
            "; ".join(
                f"d = {d}: {share[d]:.2%} (starts with one, by alpha: {starts[d]})" for d in p.d
            ),
            max(share.values()) <= 2 * min(share.values()),
        ),
    ]
    for name, of in st.grouped(data, "name").items():
        # Where nearly all tokens lead, no count differs and the standard error is 0: 1/draws then.
        error = [3 * max(s.error, 1 / p.drawn) for s in of]
        far = sum(abs(s.real - s.formula) > e for s, e in zip(of, error))
        twins = sum(abs(s.gaussian - s.formula) > e for s, e in zip(of, error))
        ratios = [s.ratio for s in of]
        out.append(
            st.Comparison(
                f"The Gaussian formula of the same moments does not count the leaders of {name}.",
                "Gaussian tokens of the same second moments",
                f"off by more than three standard errors: {st.counted(far, len(of))} cells "
                f"(ratio {min(ratios):.2f} to {max(ratios):.2f}), twins "
                f"{st.counted(twins, len(of))}",
                far > 0.5 * len(of) and twins < 0.2 * len(of),
            )
        )
    return out


def _tables(p: Params, cells: list[LeaderCount], data: list[DataCount]) -> list[st.Table]:
    counts: dict[str, Any] = {
        **{"d": "d", "n": "n", "mean |L_0|": "mean", "standard error": "error"},
        **{"expected": "expected", "difference in errors": "deviation"},
        "born later, share": lambda c: (c.final - c.first).sum() / c.final.sum(),
    }
    on_data = {
        **{"data": "name", "d": "d", "n": "n", "mean |L_0|": "real"},
        **{"Gaussian, same moments": "gaussian", "formula": "formula", "ratio": "ratio"},
    }
    return [
        st.Table.of("Leaders of Gaussian tokens", cells, counts),
        st.Table.of("Leaders of real data", data, on_data, "Ratio: data over formula."),
        *([_reviews()] if "reviews" in p.data else []),
    ]


def _summary(p: Params, cells: list[LeaderCount], data: list[DataCount]) -> str:
    worst, largest = max(cells, key=lambda c: abs(c.deviation)), max(p.n)
    few = min((c for c in cells if c.n == largest), key=lambda c: c.expected)
    many = max((c for c in cells if c.n == largest), key=lambda c: c.mean / c.n)
    ratios = {x: [s.ratio for s in of] for x, of in st.grouped(data, "name").items()}
    told = [f"{name} {min(ratio):.2f} to {max(ratio):.2f}" for name, ratio in ratios.items()]
    return (
        f"Counts beside the formula in {len(cells)} cells: the largest difference is "
        f"{abs(worst.deviation):.2g} standard errors (d = {worst.d}, n = {worst.n}). Among "
        f"{largest} tokens {few.mean:.3g} lead for d = {few.d} and "
        f"{many.mean / many.n:.1%} of them for d = {many.d}: there almost nothing moves. "
        "Leaders of real data, divided by the formula for Gaussian tokens of the same second "
        f"moments: {'; '.join(told) or 'none was measured'}."
    )


def _curves(cells: list[LeaderCount]) -> st.Picture:
    figure, ((ax,),) = cy.plot.sheet(1, 1, 6.4, 4.2)
    for colour, (d, line) in zip(cy.plot.PALETTE, st.grouped(cells, "d").items()):
        n = [c.n for c in line]
        look = {"fmt": "o", "color": colour, "ms": 4.5, "capsize": 2, "label": f"d = {d}"}
        ax.plot(n, [c.expected for c in line], color=colour, lw=1.2)
        ax.errorbar(n, [c.mean for c in line], [2 * c.error for c in line], **look)
    ax.plot(n, n, "--", color=cy.plot.GREY, lw=1)
    ax.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="leaders at layer 0")
    ax.legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper left")
    caption = (
        "Dots: mean over the starts, with two standard errors; lines: n E[Phi(chi_d)^(n-1)]. The "
        "dashed diagonal: every token leads; in high dimension the counts lie on it."
    )
    return st.Picture("Leaders at layer 0", caption, figure)


# --- leaders born late ---------------------------------------------------------------------------


LAWS: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "gaussian": cy.configurations.gaussian,
    "box": cy.configurations.box,
    "ball": cy.configurations.ball,
    "student": partial(cy.configurations.gaussian, norms="student:2"),  # a few are far away
}


def _census(p: Params, d: int, n: int, alpha: float) -> BirthCensus:
    rng = np.random.default_rng([p.seed, d, n])
    return _counted_births([rng.standard_normal((n, d)) for _ in range(p.late_starts)], alpha)


def _law(p: Params, law: str, alpha: float) -> BirthCensus:
    starts = [LAWS[law](p.law_n, 2, p.seed + s) for s in range(p.law_starts)]
    return _counted_births(starts, alpha, law)


def _counted_births(starts: list[np.ndarray], alpha: float, law: str = "gaussian") -> BirthCensus:
    n, d = starts[0].shape
    limits = [_limit(z, alpha) for z in starts]
    births = [_births(z, li) for z, li in zip(starts, limits)]
    certified, leaders = (sum(x) for x in zip(*((li.certified, len(li.leaders)) for li in limits)))
    every = tuple(birth for group in births for birth in group)
    runs, hit = len(starts), sum(map(bool, births))
    return BirthCensus(d, n, alpha, runs, certified, hit, leaders, every, law)


def _births(z: np.ndarray, li: cy.analysis.Limit) -> list[Birth]:
    late = np.flatnonzero(li.born > 0).tolist()
    vertices = set(cy.hull(z).index.tolist()) if late else set()
    return [Birth(int(li.born[i]), i in vertices) for i in late]


def _varying(p: Params, d: int) -> tuple[int, int, int]:
    """(d, in how many of the starts scanned the number of leaders depends on alpha, of how many)"""
    return d, sum(_depends(p, d, s) for s in range(p.scanned)), p.scanned


def _depends(p: Params, d: int, s: int) -> bool:
    z = cy.configurations.gaussian(p.scanned_n, d, p.seed + s)
    return len({len(_limit(z, a).leaders) for a in np.geomspace(0.05, 20, 12)}) > 1


def _sweep(p: Params, progress: st.Progress = st.silent) -> list[AlphaSweep]:
    """G1 and the first Gaussian starts whose number of leaders depends on alpha."""
    starts = {"G1": cy.configurations.golden("G1")}
    for s in range(p.scanned):
        progress(0.5 * s / p.scanned, "starts that depend on alpha")
        if len(starts) <= p.swept and _depends(p, 2, s):
            z = cy.configurations.gaussian(p.scanned_n, 2, p.seed + s)
            starts[f"Gaussian start {p.seed + s}"] = z
    alpha = np.geomspace(0.02, 50, p.sweep)
    sweeps: list[AlphaSweep] = []
    for name, z in starts.items():
        progress(0.5 + 0.5 * len(sweeps) / len(starts), f"sweep over alpha, {name}")
        limits = [_limit(z, a) for a in alpha]
        leaders = np.array([len(li.leaders) for li in limits])
        sweeps.append(AlphaSweep(name, alpha, leaders, sum(li.certified for li in limits)))
    return sweeps


def _settled(cells: list[BirthCensus]) -> cy.theorems.Check:
    return st.all_of(
        "settled",
        "arXiv 2407.01602; docs/mathematics.md B10",
        "from almost every start all tokens settle on leaders after finitely many layers",
        sum(c.certified for c in cells),
        sum(c.runs for c in cells),
    )


def _by_dimension(p: Params, cells: list[BirthCensus]) -> dict[int, tuple[int, int]]:
    """Starts with a late leader by d, at the middle alpha: those of one (d, n) are its own."""
    alpha = p.alpha[len(p.alpha) // 2]
    of = {d: [c for c in cells if (c.d, c.alpha) == (d, alpha)] for d in p.late_d}
    return {d: (sum(c.with_births for c in x), sum(c.runs for c in x)) for d, x in of.items()}


def _late_controls(
    p: Params,
    cells: list[BirthCensus],
    laws: list[BirthCensus],
    varying: list[tuple[int, int, int]],
) -> list[st.Comparison]:
    worst = max((*cells, *laws), key=lambda c: c.rate)
    by_law = [f"{c.law}, alpha = {c.alpha:g}: {st.counted(*c.seen)}" for c in laws]
    last = max((c.latest or 0 for c in cells), default=0)
    dims = _by_dimension(p, cells)
    low, high = (st.wilson(*dims[d]) for d in (min(p.late_d), max(p.late_d)))
    return [
        st.Comparison(
            "Leaders born late are rare: in fewer than a quarter of the starts.",
            f"n, d and alpha; other laws of {p.law_n} tokens in the plane",
            f"{'; '.join(by_law)}; most often {st.counted(*worst.seen)} ({worst.law}, d = "
            f"{worst.d}, n = {worst.n}, alpha = {worst.alpha:g})",
            st.wilson(*worst.seen)[1] < 0.25,
        ),
        st.Comparison(
            f"They are rarer in dimension {max(p.late_d)} than in dimension {min(p.late_d)}.",
            f"n together, alpha = {p.alpha[len(p.alpha) // 2]:g}",
            st.shares({f"d = {d}": x for d, x in dims.items()}),
            high[1] < low[0],
        ),
        st.Comparison(
            f"They come early, the last at layer {last}.",
            "alpha and the law of the start",
            "latest: " + "; ".join(f"{c.law}, alpha = {c.alpha:g}: {c.latest}" for c in laws),
            all((c.latest or 0) <= last for c in laws),
        ),
        st.Comparison(
            "The number of leaders of a fixed start depends on alpha, not seldom (5 %).",
            "d",
            "; ".join(f"d = {d}: {st.counted(*seen)}" for d, *seen in varying),
            all(st.wilson(*seen)[0] > 0.05 for _, *seen in varying),
        ),
    ]


def _late_tables(
    cells: list[BirthCensus], laws: list[BirthCensus], sweeps: list[AlphaSweep]
) -> list[st.Table]:
    census: dict[str, Any] = {
        **{"law": "law", "d": "d", "n": "n", "alpha": "alpha", "starts with one": "rate"},
        **st.interval(lambda c: c.seen),
        "share of leaders": lambda c: len(c.births) / c.leaders,
        "from inside": lambda c: sum(not b.vertex for b in c.births),
        "from a vertex": lambda c: sum(b.vertex for b in c.births),
        "latest layer": "latest",
        "certified": lambda c: f"{c.certified}/{c.runs}",
    }
    sweep: dict[str, Any] = {
        **{"start": "start", "values of alpha": "alpha.size"},
        **{"fewest": lambda s: s.leaders.min(), "most": lambda s: s.leaders.max()},
        "changes at alpha": lambda s: ", ".join(s.jumps),
        "certified": lambda s: f"{s.certified}/{s.alpha.size}",
    }
    return [
        st.Table.of("Leaders born after layer 0", cells, census),
        st.Table.of("Other laws of the start", laws, census),
        _golden_table(),
        st.Table.of("Leaders against alpha", sweeps, sweep),
    ]


def _golden_table() -> st.Table:
    """The two starts whose births are known exactly, in rationals."""
    rows = []
    for name, alphas in (("G1", ("1/10", "1/2", "1", "2", "10")), ("G4", ("1/10", "1/2", "2"))):
        z = cy.configurations.golden_exact(name)
        for alpha in alphas:
            li = cy.limit(cy.PureAttention(alpha=alpha), z, exact=True)
            assert li.exact_points is not None
            late = [
                f"{i} at layer {li.born[i]}, {_short(li.exact_points[i])}"
                for i in np.flatnonzero(li.born > 0)
            ]
            rows.append((name, alpha, len(li.leaders), "; ".join(late) or "none", li.certified))
    columns = ("start", "alpha", "leaders", "born later (token, layer, place)", "certified")
    return st.Table("Golden cases, in rationals", columns, tuple(rows))


def _short(token: tuple) -> str:
    """A rational token, in decimals where its fractions are long."""
    return "(" + ", ".join(str(x) if len(str(x)) < 12 else f"{float(x):.6f}" for x in token) + ")"


def _late_summary(
    p: Params,
    cells: list[BirthCensus],
    varying: list[tuple[int, int, int]],
    sweeps: list[AlphaSweep],
) -> str:
    births = [b for c in cells for b in c.births]
    layers, inside = [b.layer for b in births], sum(not b.vertex for b in births)
    dims = [f"{st.counted(*x)} for d = {d}" for d, x in _by_dimension(p, cells).items()]
    text = (
        f"Gaussian starts with a leader born after layer 0 (alpha = "
        f"{p.alpha[len(p.alpha) // 2]:g}): {'; '.join(dims)}. "
    )
    if births:
        text += (
            f"Of {len(births)} such leaders, {inside} started inside the hull and "
            f"{len(births) - inside} at a vertex of it; half are born by layer "
            f"{np.median(layers):g}, the last at layer {max(layers)}. "
        )
    ranges = [f"{s.start}: {s.leaders.min()} to {s.leaders.max()} leaders" for s in sweeps]
    scan = "; ".join(f"d = {d}: {st.counted(*seen)}" for d, *seen in varying)
    return (
        f"{text}Gaussian starts of {p.scanned_n} tokens whose number of leaders depends on "
        f"alpha: {scan}. Over alpha from {sweeps[0].alpha[0]:g} to {sweeps[0].alpha[-1]:g}: "
        f"{'; '.join(ranges)}."
    )


def _steps(sweeps: list[AlphaSweep]) -> st.Picture:
    figure, axes = cy.plot.sheet(len(sweeps), 1, 8.4, 1.25 + 0.8 / len(sweeps), sharex=True)
    for ax, colour, sweep in zip(axes[:, 0], cy.plot.PALETTE, sweeps):
        ax.step(sweep.alpha, sweep.leaders, where="mid", color=colour, lw=1.3)
        ax.set(xscale="log", ylabel="leaders")
        ax.set_ylim(sweep.leaders.min() - 0.6, sweep.leaders.max() + 0.6)
        ax.set_title(sweep.start, loc="left", fontsize=cy.plot.LABEL)
        ax.locator_params(axis="y", nbins=3, integer=True)
    axes[-1, 0].set_xlabel(r"step $\alpha$")
    caption = (
        "Number of leaders at infinite depth for fixed starts. It jumps with alpha, for some up "
        "and down: the step size decides who leads, not only how fast."
    )
    return st.Picture("Leaders against alpha", caption, figure)


def _where_and_when(p: Params, cells: list[BirthCensus]) -> st.Picture:
    figure, axes = cy.plot.sheet(1, 3, 4, 3.5)
    for ax, name, label in zip(axes[0], ("n", "alpha"), ("tokens n", r"step $\alpha$")):
        groups = st.grouped(cells, "d", name).values()
        mean = lambda of: float(np.mean([c.rate for c in of]))  # noqa: E731
        at = lambda of, name=name: getattr(of[0], name)  # noqa: E731
        st.curves(ax, groups, at, mean, lambda of: of[0].d, label="d = {}")
        ax.set(xscale="log", xlabel=label, ylabel="share of starts with a late leader")
        ax.set_ylim(bottom=0)
    axes[0, 0].legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper left")
    births, right = [b for c in cells for b in c.births], axes[0, 2]
    most = max((b.layer for b in births), default=1)
    places = ((-0.2, True, "vertex of the first hull"), (0.2, False, "inside it"))
    for colour, (shift, vertex, place) in zip(cy.plot.PALETTE, places):
        layers = [b.layer for b in births if b.vertex == vertex]
        count = np.bincount(layers, minlength=most + 1)[1:]
        right.bar(1 + shift + np.arange(most), count, 0.4, color=colour, label=place)
    right.set(xlabel="layer of birth", ylabel="leaders born", xlim=(0.4, max(most, 5) + 0.6))
    if births:
        right.set(yscale="log", ylim=(0.7, None))
    right.legend(frameon=False, fontsize=cy.plot.LABEL, title="where they started")
    right.locator_params(axis="x", nbins=8, integer=True)
    caption = (
        "Left and middle: share of Gaussian starts with at least one leader born later, against n "
        "(mean over alpha) and against alpha (mean over n). Right: when, and from where."
    )
    return st.Picture("Where and when", caption, figure)
