"""How many tokens lead at layer 0: Monte Carlo beside the formula (docs/mathematics.md B14).

    E|L_0| = n E[Phi(r)^(n-1)],   r ~ chi_d           (tokens N(0, I_d), A = I)

See: a handful of leaders in the plane, whatever n; almost every token once d is well above
2 log n, so that nothing moves. Leaders born after layer 0 are a matter of low dimension: one
percentage over all d would be that of the grid. Real data beside it, on d principal directions,
against Gaussian tokens of the same second moments: handwritten digits; the words of the shipped
film-review classifier, placed on a curve so that few of a review lead; the word embeddings of
MiniLM where it is installed; a file of tokens. Then whole reviews. The model is that of arXiv
2407.01602.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...pretrained.examples import example_transformer, weights_note
from ...theorems import expected_leaders
from .._frame import Progress, at_most, counted, over_grid, part, report_of, require, wilson
from .._measurements import kept_each
from ..reviews._texts import REVIEWS

TITLE = "How many tokens lead: counts beside the formula"


@dataclass(frozen=True)
class Params:
    """Grid of dimensions and numbers of tokens, starts per cell, starts taken to infinite depth at
    each alpha.

    `data`: which of digits, reviews and MiniLM are measured, `drawn` times for each n, on so many
    principal directions as `directions` says and, where they have no more than 400, on all;
    `embeddings` may name a file of tokens, one per row.
    """

    d: tuple[int, ...] = (1, 2, 3, 4, 8, 16, 32)
    n: tuple[int, ...] = (10, 32, 100, 316, 1000)
    starts: int = 200
    followed_through: int = 60
    alpha: tuple[float, ...] = (0.5, 1.0, 2.0)
    data: tuple[str, ...] = ("digits", "reviews", "MiniLM")
    directions: tuple[int, ...] = (2, 8, 16)
    drawn: int = 60
    seed: int = 0
    embeddings: str = ""


QUICK = Params(
    d=(1, 2, 4, 16),
    n=(10, 32, 100),
    starts=60,
    followed_through=10,
    data=("digits", "reviews"),
    directions=(2, 8),
    drawn=30,
)


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

    @property
    def deviation(self) -> float:
        """(mean - expected) in standard errors; the error of a constant count is taken as 1/n."""
        return _off(self, self.expected)


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


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Count leaders on the grid, then on data."""
    sensible = 1 <= p.followed_through <= p.starts and min(*p.d, *p.n, p.starts - 1) >= 1
    require(
        sensible and min(p.alpha) > 0, "starts >= 2, followed_through in 1..starts, d and n >= 1", p
    )
    known = ("digits", "reviews", "MiniLM")
    require(set(p.data) <= set(known), f"data among {', '.join(known)}", p)
    cells = over_grid(_count, p, {"d": p.d, "n": p.n}, part(progress, 0, 0.8))
    part(progress, 0.8, 1)(0.0, "data")
    every = [(p, name, z) for name, z in _data(p).items()]
    data = [count for counts in kept_each(_against_gaussian, every) for count in counts]
    counts: dict[str, Any] = {
        **{"d": "d", "n": "n", "mean |L_0|": "mean", "standard error": "error"},
        **{"expected": "expected", "difference in errors": "deviation"},
        "born later, share": lambda c: (c.final - c.first).sum() / c.final.sum(),
    }
    on_data = {
        **{"data": "name", "d": "d", "n": "n", "mean |L_0|": "real"},
        **{"Gaussian, same moments": "gaussian", "formula": "formula", "ratio": "ratio"},
    }
    tables = [
        cy.Table.of("Leaders of Gaussian tokens", cells, counts),
        _later_table(p, cells),
        cy.Table.of("Leaders of real data", data, on_data, "Ratio: data over formula."),
        *([_reviews()] if "reviews" in p.data else []),
    ]
    pictures = [_curves(cells), *([_ratios(data)] if data else [])]
    return report_of(
        __name__,
        p,
        _summary(p, cells, data),
        controls=_controls(p, cells, data),
        tables=tables,
        checks={"grid": [_check(cells)]},
        figures=pictures,
    )


def _count(p: Params, d: int, n: int) -> LeaderCount:
    rng = np.random.default_rng([p.seed, d, n])
    starts = [rng.standard_normal((n, d)) for _ in range(p.starts)]
    counts = np.array([_leaders(z) for z in starts], dtype=float)
    through = starts[: p.followed_through]
    ends = [[len(cy.limit(cy.PureAttention(alpha=a), z).leaders) for z in through] for a in p.alpha]
    final = np.array(ends, dtype=float)
    return LeaderCount(d, n, counts, expected_leaders(n, d), final, counts[: len(through)])


def _later(p: Params, cells: list[LeaderCount], d: int, j: int) -> tuple[int, int, int, int]:
    """Starts with a leader born late, starts; leaders born late, leaders; at the alpha of index j.

    Starts of one cell are independent, its leaders are not: intervals are those of the starts.
    """
    of = [c for c in cells if c.d == d]
    born = [c.final[j] - c.first for c in of]
    hit = sum(int((x > 0).sum()) for x in born)
    late, total = sum(x.sum() for x in born), sum(c.final[j].sum() for c in of)
    return hit, sum(len(x) for x in born), int(late), int(total)


def _later_table(p: Params, cells: list[LeaderCount]) -> cy.Table:
    rows = []
    for d, (j, alpha) in product(p.d, enumerate(p.alpha)):
        hit, starts, late, total = _later(p, cells, d, j)
        rows.append((d, alpha, starts, hit, *wilson(hit, starts), late, total))
    columns = ("d", "alpha", "starts", "with a late leader", "95 % from", "to")
    title = "Leaders born after layer 0, by dimension"
    return cy.Table(title, (*columns, "late leaders", "leaders"), tuple(rows))


def _controls(p: Params, cells: list[LeaderCount], data: list[DataCount]) -> list[cy.Comparison]:
    right = sum(abs(c.deviation) < 3 for c in cells)
    wrong = sum(abs(_off(c, expected_leaders(c.n, c.d + 1))) < 3 for c in cells)
    late = {d: [_later(p, cells, d, j) for j in range(len(p.alpha))] for d in p.d}
    share = {d: sum(x[2] for x in of) / sum(x[3] for x in of) for d, of in late.items()}
    out = [
        cy.Comparison(
            "Counts agree with the formula.",
            "the formula for d + 1 instead of d",
            f"within three standard errors: {counted(right, len(cells))} cells, for d + 1 "
            f"{counted(wrong, len(cells))}",
            right > 0.95 * len(cells) and wrong < 0.5 * len(cells),
        ),
        cy.Comparison(
            f"A share of {_pooled(late):.2%} of all leaders is born after layer 0.",
            f"d; alpha in {', '.join(f'{a:g}' for a in p.alpha)}",
            "; ".join(
                f"d = {d}: {share[d]:.2%} (starts with one, by alpha: "
                + ", ".join(f"{x[0]} of {x[1]}" for x in of)
                + ")"
                for d, of in late.items()
            ),
            max(share.values()) <= 2 * min(share.values()),
        ),
    ]
    for name, of in _by_name(data).items():
        # Where nearly all tokens lead, no count differs and the standard error is 0: 1/draws then.
        error = [max(s.error, 1 / p.drawn) for s in of]
        far = sum(abs(s.real - s.formula) > 3 * e for s, e in zip(of, error))
        twins = sum(abs(s.gaussian - s.formula) > 3 * e for s, e in zip(of, error))
        ratios = [s.ratio for s in of]
        out.append(
            cy.Comparison(
                f"The Gaussian formula of the same moments does not count the leaders of {name}.",
                "Gaussian tokens of the same second moments",
                f"off by more than three standard errors: {counted(far, len(of))} cells (ratio "
                f"{min(ratios):.2f} to {max(ratios):.2f}), twins {counted(twins, len(of))}",
                far > 0.5 * len(of) and twins < 0.2 * len(of),
            )
        )
    return out


def _off(c: LeaderCount, expected: float) -> float:
    """How far the count of a cell is from `expected`, in standard errors."""
    return (c.mean - expected) / max(c.error, 1 / len(c.counts))


def _pooled(late: dict[int, list[tuple[int, int, int, int]]]) -> float:
    every = [x for of in late.values() for x in of]
    return sum(x[2] for x in every) / sum(x[3] for x in every)


def _leaders(z: np.ndarray) -> int:
    return int(cy.Hardmax().followed(z).leads.sum())


def _check(cells: list[LeaderCount]) -> cy.Check:
    worst = max(cells, key=lambda c: abs(c.deviation))
    return at_most(
        "mean count",
        "docs/mathematics.md B14",
        "the mean number of initial leaders of Gaussian tokens is n E[Phi(chi_d)^(n-1)]",
        abs(worst.deviation),
        5.0,  # standard errors; the largest of some dozens of honest ones stays below 4
        **{"d": worst.d, "n": worst.n, "mean": worst.mean, "expected": worst.expected},
        **{"standard errors apart": worst.deviation, "cells": len(cells)},
    )


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


def _reviews() -> cy.Table:
    """Leaders of whole reviews under the shipped classifier."""
    clf = cy.load_pretrained()
    rows = []
    for i, text in enumerate(REVIEWS):
        z = np.unique(clf.explain(text).trajectory.values[0], axis=0)
        li = cy.limit(clf.model_.dynamics, z)
        rows.append((i + 1, len(z), int((li.born == 0).sum()), len(li.leaders), li.certified))
    columns = ("review", "tokens", "lead at layer 0", "lead in the limit", "certified")
    note = "Words and pairs of words of reviews written for this package, with the anchor token."
    return cy.Table("Reviews read by the shipped classifier", columns, tuple(rows), note)


def _summary(p: Params, cells: list[LeaderCount], data: list[DataCount]) -> str:
    worst, largest = max(cells, key=lambda c: abs(c.deviation)), max(p.n)
    few = min((c for c in cells if c.n == largest), key=lambda c: c.expected)
    many = max((c for c in cells if c.n == largest), key=lambda c: c.mean / c.n)
    late = {d: [_later(p, cells, d, j) for j in range(len(p.alpha))] for d in p.d}
    born = [
        f"{sum(x[2] for x in of) / sum(x[3] for x in of):.2%} for d = {d}" for d, of in late.items()
    ]
    ratios = {name: [s.ratio for s in of] for name, of in _by_name(data).items()}
    told = [f"{name} {min(ratio):.2f} to {max(ratio):.2f}" for name, ratio in ratios.items()]
    return (
        f"Counts beside the formula in {len(cells)} cells: the largest difference is "
        f"{abs(worst.deviation):.2g} standard errors (d = {worst.d}, n = {worst.n}). Among "
        f"{largest} tokens {few.mean:.3g} lead for d = {few.d} and "
        f"{many.mean / many.n:.1%} of them for d = {many.d}: there almost nothing moves. "
        f"Leaders born after layer 0, of all leaders: {', '.join(born)} (alpha = "
        f"{', '.join(f'{a:g}' for a in p.alpha)} together).\n\n"
        "Leaders of real data, divided by the formula for Gaussian tokens of the same second "
        f"moments: {'; '.join(told) or 'none was measured'}."
    )


def _by_name(data: list[DataCount]) -> dict[str, list[DataCount]]:
    return {name: list(of) for name, of in groupby(data, key=lambda s: s.name)}


def _curves(cells: list[LeaderCount]) -> cy.Picture:
    figure, ((ax,),) = cy.plot.sheet(1, 1, 6.4, 4.2)
    n = np.array(sorted({c.n for c in cells}))
    for colour, d in zip(cy.plot.PALETTE, sorted({c.d for c in cells})):
        line = sorted((c for c in cells if c.d == d), key=lambda c: c.n)
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
    return cy.Picture("Leaders at layer 0", caption, figure)


def _ratios(data: list[DataCount]) -> cy.Picture:
    groups = _by_name(data)
    figure, axes = cy.plot.sheet(1, len(groups), 4.2, 3.8)
    for ax, (name, of) in zip(axes[0], groups.items()):
        for colour, (d, cells) in zip(cy.plot.PALETTE, groupby(of, key=lambda s: s.d)):
            line = list(cells)
            n, twins = [s.n for s in line], [s.gaussian / s.formula for s in line]
            error = [2 * s.error / s.formula for s in line]
            ax.plot(n, [s.ratio for s in line], "s-", color=colour, ms=5, label=f"d = {d}")
            ax.errorbar(n, twins, error, fmt="o", mfc="white", color=colour, ms=4, capsize=2, lw=1)
        ax.axhline(1, color=cy.plot.GREY, lw=0.8, ls="--", zorder=0)
        ax.set(xscale="log", xlabel="tokens n", title=name)
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    axes[0, 0].set_ylabel("leaders at layer 0 / formula")
    caption = (
        "Mean number of leaders among n tokens drawn from data (filled) and among Gaussian tokens "
        "of the same second moments (open, with two standard errors), divided by the formula for "
        "the latter; by number of principal directions. 1: the Gaussian count is right."
    )
    return cy.Picture("Real data beside Gaussian tokens", caption, figure)
