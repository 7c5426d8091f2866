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
leaders of one fixed start depends on alpha for few starts only. How late a leader may be born has
no bound seen here: small steps and heavy tails give later layers.
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
from cynosure.pretrained.reading.examples import example_transformer, weights_note
from cynosure.theorems import expected_leaders

TITLE = "How many tokens lead, and from which layer on"
ALIASES = "emergent_leaders"


@dataclass(frozen=True)
class Params:
    """Counts: dimensions, numbers of tokens, starts per cell. `data`: which of digits, reviews and
    MiniLM are measured, `drawn` times for each n, on so many principal directions as `directions`
    says and, where they have no more than 400, on all; `embeddings` may name a file of tokens, one
    per row.

    Late leaders: `late_starts` Gaussian starts for each (d, n, alpha) of `late_d`, `late_n`,
    `alpha`; `laws` besides, `law_n` tokens in the plane at every `law_alpha` ("student": the t law
    with two degrees of freedom). Of `scanned` starts of `scanned_n` tokens in each `scanned_d` it
    is asked whether alpha matters.
    """

    d: tuple[int, ...] = (1, 2, 3, 4, 8, 16, 32)
    n: tuple[int, ...] = (10, 32, 100, 316, 1000)
    starts: int = 200
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
    seed: int = 0
    embeddings: str = ""


QUICK = Params(
    d=(1, 2, 4, 16), n=(10, 32, 100), starts=60,
    data=("digits", "reviews"), directions=(2, 8), drawn=30,
    late_d=(2, 4), late_n=(10, 30), alpha=(0.5, 2.0), late_starts=80,
    law_alpha=(0.1, 1.0), law_n=30, law_starts=40, scanned=25,
)  # fmt: skip


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


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Count leaders on the grid and on data, then those born late."""
    part, grid = partial(st.part, progress), st.over_grid
    least = min(*p.d, *p.n, p.starts - 1, *p.late_d, *p.late_n, p.late_starts, p.law_starts)
    known = min(p.alpha) > 0 and set(p.laws) <= set(LAWS)
    st.require(least >= 1 and known, "starts >= 2, d and n >= 1, known laws", p)
    st.require(set(p.data) <= {"digits", "reviews", "MiniLM"}, "data: digits, reviews, MiniLM", p)
    cells = grid(_count, p, {"d": p.d, "n": p.n}, part(0, 0.4))
    every = [(p, name, z) for name, z in _data(p).items()]
    found = st.kept_each(_against_gaussian, every, part(0.4, 0.5))
    data = [count for counts in found for count in counts]
    axes = {"d": p.late_d, "n": p.late_n, "alpha": p.alpha}
    census = grid(_census, p, axes, part(0.5, 0.7))
    laws = grid(_law, p, {"law": p.laws, "alpha": p.law_alpha}, part(0.7, 0.8))
    varying = grid(_varying, p, {"d": p.scanned_d}, part(0.8, 1))
    certified, runs = (sum(getattr(c, x) for c in (*census, *laws)) for x in ("certified", "runs"))
    settle = "from almost every start all tokens settle on leaders after finitely many layers"
    reference = "arXiv 2407.01602; docs/mathematics.md B10"
    settled = st.all_of("settled", reference, settle, certified, runs)
    return st.report_of(
        p,
        f"{_summary(p, cells, data)}\n\n{_late_summary(p, census)}",
        controls=[*_controls(p, cells, data), *_late_controls(p, census, laws, varying)],
        tables=_tables(cells, data, [*census, *laws]),
        checks={"grid": [_check(cells)], "census": [settled]},
        figures=[st.Picture.of("Leaders at layer 0", _curves, cells)],
    )


# --- leaders at layer 0 --------------------------------------------------------------------------


def _count(p: Params, d: int, n: int) -> st.Cell:
    """Leaders of the Gaussian starts of one (d, n), counted and expected."""
    rng = np.random.default_rng([p.seed, d, n])
    counts = np.array([_leaders(rng.standard_normal((n, d))) for _ in range(p.starts)], dtype=float)
    return st.Cell(d=d, n=n, counts=counts, expected=expected_leaders(n, d))


def _error(c: st.Cell) -> float:
    """Standard error of the mean."""
    return float(c.counts.std(ddof=1) / np.sqrt(len(c.counts)))


def _off(c: st.Cell, expected: float) -> float:
    """(mean - expected) in standard errors; the error of a constant count is taken as 1/n."""
    return (c.mean("counts") - expected) / max(_error(c), 1 / len(c.counts))


def _deviation(c: st.Cell) -> float:
    return _off(c, c.expected)


def _limit(z: np.ndarray, alpha: float) -> cy.analysis.Limit:
    return cy.limit(cy.PureAttention(alpha=float(alpha)), z)


def _leaders(z: np.ndarray) -> int:
    return int(cy.Hardmax().followed(z).leads.sum())


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


def _against_gaussian(p: Params, name: str, rows: np.ndarray) -> list[st.Cell]:
    """Leaders among n rows on their first d principal directions, and of Gaussian tokens of their
    covariance; `error` is the standard error of the Gaussian mean."""
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
        mean, twin = float(np.mean(real)), float(np.mean(twins))
        shown = {"real": mean, "gaussian": twin, "error": error, "formula": formula}
        out.append(st.Cell(name=name, d=d, n=n, **shown, ratio=mean / formula))
    return out


def _check(cells: list[st.Cell]) -> cy.theorems.Check:
    worst = max(cells, key=lambda c: abs(_deviation(c)))
    return st.at_most(
        "mean count",
        "docs/mathematics.md B14",
        "the mean number of initial leaders of Gaussian tokens is n E[Phi(chi_d)^(n-1)]",
        abs(_deviation(worst)),
        5.0,  # standard errors; the largest of some dozens of honest ones stays below 4
        **{"d": worst.d, "n": worst.n, "mean": worst.mean("counts"), "expected": worst.expected},
        **{"standard errors apart": _deviation(worst), "cells": len(cells)},
    )


def _controls(p: Params, cells: list[st.Cell], data: list[st.Cell]) -> list[st.Comparison]:
    right = sum(abs(_deviation(c)) < 3 for c in cells)
    wrong = sum(abs(_off(c, expected_leaders(c.n, c.d + 1))) < 3 for c in cells)
    out = [
        st.Comparison(
            "Counts agree with the formula.",
            "the formula for d + 1 instead of d",
            f"within three standard errors: {st.counted(right, len(cells))} cells, for d + 1 "
            f"{st.counted(wrong, len(cells))}",
            right > 0.95 * len(cells) and wrong < 0.5 * len(cells),
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


def _tables(cells: list[st.Cell], data: list[st.Cell], births: list[BirthCensus]) -> list[st.Table]:
    counts = st.columns("d, n, mean |L_0| = mean counts") | {"standard error": _error}
    counts |= {"expected": "expected", "difference in errors": _deviation}
    shown = st.columns(
        "data = name, d, n, mean |L_0| = real, Gaussian of the same moments = gaussian, formula, "
        "ratio"
    )
    census = st.columns("law, d, n, alpha, starts with one = rate") | st.interval(lambda c: c.seen)
    census |= {
        "share of leaders": lambda c: len(c.births) / c.leaders,
        "from inside": lambda c: sum(not b.vertex for b in c.births),
        "from a vertex": lambda c: sum(b.vertex for b in c.births),
        "latest layer": "latest",
        "certified": lambda c: f"{c.certified}/{c.runs}",
    }
    return [
        st.Table.of("Leaders of Gaussian tokens", cells, counts),
        st.Table.of("Leaders of real data", data, shown, "Ratio: data over formula."),
        st.Table.of("Leaders born after layer 0", births, census),
    ]


def _summary(p: Params, cells: list[st.Cell], data: list[st.Cell]) -> str:
    worst, largest = max(cells, key=lambda c: abs(_deviation(c))), max(p.n)
    few = min((c for c in cells if c.n == largest), key=lambda c: c.expected)
    many = max((c for c in cells if c.n == largest), key=lambda c: c.mean("counts") / c.n)
    ratios = {x: [s.ratio for s in of] for x, of in st.grouped(data, "name").items()}
    told = [f"{name} {min(ratio):.2f} to {max(ratio):.2f}" for name, ratio in ratios.items()]
    return (
        f"Counts beside the formula in {len(cells)} cells: the largest difference is "
        f"{abs(_deviation(worst)):.2g} standard errors (d = {worst.d}, n = {worst.n}). Among "
        f"{largest} tokens {few.mean('counts'):.3g} lead for d = {few.d} and "
        f"{many.mean('counts') / many.n:.1%} of them for d = {many.d}: there almost nothing moves. "
        "Leaders of real data, divided by the formula for Gaussian tokens of the same second "
        f"moments: {'; '.join(told) or 'none was measured'}."
    )


def _curves(cells: list[st.Cell]) -> Any:
    """Dots: mean over the starts, with two standard errors; lines: n E[Phi(chi_d)^(n-1)]. The
    dashed diagonal: every token leads; in high dimension the counts lie on it.
    """
    figure, ((ax,),) = cy.plot.sheet(1, 1, 6.4, 4.2)
    for colour, (d, line) in zip(cy.plot.PALETTE, st.grouped(cells, "d").items()):
        n = [c.n for c in line]
        look = {"fmt": "o", "color": colour, "ms": 4.5, "capsize": 2, "label": f"d = {d}"}
        ax.plot(n, [c.expected for c in line], color=colour, lw=1.2)
        ax.errorbar(n, [c.mean("counts") for c in line], [2 * _error(c) for c in line], **look)
    ax.plot(n, n, "--", color=cy.plot.GREY, lw=1)
    ax.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="leaders at layer 0")
    ax.legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper left")
    return figure


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


def _late_summary(p: Params, cells: list[BirthCensus]) -> str:
    births = [b for c in cells for b in c.births]
    inside = sum(not b.vertex for b in births)
    dims = [f"{st.counted(*x)} for d = {d}" for d, x in _by_dimension(p, cells).items()]
    return (
        f"Gaussian starts with a leader born after layer 0 (alpha = "
        f"{p.alpha[len(p.alpha) // 2]:g}): {'; '.join(dims)}. Of {len(births)} such leaders, "
        f"{inside} started inside the hull and {len(births) - inside} at a vertex of it."
    )
