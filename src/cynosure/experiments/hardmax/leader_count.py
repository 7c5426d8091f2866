"""How many tokens lead at layer 0: Monte Carlo beside the formula (docs/mathematics.md B14).

    E|L_0| = n E[Phi(r)^(n-1)],   r ~ chi_d           (tokens N(0, I_d), A = I)

See: a handful of leaders in the plane, whatever n; almost every token once d is well above
2 log n, so that nothing moves. Real data beside it, on d principal directions, against Gaussian
tokens of the same second moments: handwritten digits; the words of the shipped film-review
classifier, which were placed on a curve so that few of a review lead; the word embeddings of MiniLM
where it is installed; a file of tokens (`embeddings`, one per row). Then whole reviews. The model
is that of arXiv 2407.01602.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.limits import limit
from ...attention import Hardmax
from ...classifier.shipped import load_pretrained
from ...drawing.report import Picture, Report, Table
from ...dynamics import PureAttention
from ...pretrained.examples import example_transformer, weights_note
from ...simulation import configurations
from ...theorems import Check, expected_leaders
from .._frame import Progress, silent
from .._measurements import kept
from ..reviews._texts import REVIEWS

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "How many tokens lead: counts beside the formula"


@final
@dataclass(frozen=True)
class Params:
    """Grid of dimensions and numbers of tokens, starts per cell, starts taken to infinite depth.

    `data`: which of digits, reviews and MiniLM are measured, `drawn` times for each n, on so many
    principal directions as `directions` says and, where they have no more than 400, on all.
    """

    d: tuple[int, ...] = (1, 2, 3, 4, 8, 16, 32)
    n: tuple[int, ...] = (10, 32, 100, 316, 1000)
    starts: int = 200
    followed_through: int = 30
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


class Cell(NamedTuple):
    """Leaders of one (d, n): counted, expected, and at infinite depth."""

    d: int
    n: int
    counts: np.ndarray
    expected: float
    final: np.ndarray  # leaders at infinite depth
    first: np.ndarray  # of the same starts, at layer 0

    @property
    def deviation(self) -> float:
        """(mean - expected) in standard errors; the error of a constant count is taken as 1/n."""
        error = self.counts.std(ddof=1) / np.sqrt(len(self.counts))
        return float((self.counts.mean() - self.expected) / max(error, 1 / len(self.counts)))


def run(p: Params, progress: Progress | None = None) -> Report:
    """Count leaders on the grid, then on data."""
    say = progress or silent
    if p.starts < 2 or not 1 <= p.followed_through <= p.starts or min(*p.d, *p.n) < 1:
        raise ValueError(
            "leader_count: starts begins at 2, followed_through lies in 1..starts, d and n begin "
            f"at 1; got {p}"
        )
    if unknown := set(p.data) - {"digits", "reviews", "MiniLM"}:
        raise ValueError(f"data: expected some of digits, reviews, MiniLM; got {sorted(unknown)}")
    grid = list(product(p.d, p.n))
    cells = []
    for done, (d, n) in enumerate(grid):
        say(0.8 * done / len(grid), f"d = {d}, n = {n}")
        cells.append(kept(_cell, p, d, n))
    say(0.8, "data")
    data: list[Sample] = []
    for name, rows in _data(p).items():
        say(0.8, name)
        data += kept(_against_gaussian, p, name, rows)
    say(0.95, "figures")
    figures = [Picture("Leaders at layer 0", _CAPTION, _curves(cells))]
    if data:
        figures.append(Picture("Real data beside Gaussian tokens", _DATA, _ratios(data)))
    worst = max(cells, key=lambda c: abs(c.deviation))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, cells, data, worst),
        asdict(p),
        (_counts(cells), _data_table(data), *([_reviews()] if "reviews" in p.data else [])),
        {"grid": (_check(cells, worst),)},
        tuple(figures),
        command="cynosure run leader_count",
    )


_CAPTION = (
    "Dots: mean over the starts, with two standard errors; lines: n E[Phi(chi_d)^(n-1)]. The "
    "dashed diagonal is every token leading: in high dimension the counts lie on it."
)
_DATA = (
    "Mean number of leaders among n tokens drawn from data, divided by the formula for Gaussian "
    "tokens of the same second moments (filled), and the same for Gaussian tokens (open, with two "
    "standard errors); by number of principal directions. 1 means that the Gaussian count is right."
)


def _cell(p: Params, d: int, n: int) -> Cell:
    rng = np.random.default_rng([p.seed, d, n])
    counts = np.empty(p.starts)
    final = np.empty(p.followed_through)
    for s in range(p.starts):
        z = rng.standard_normal((n, d))
        counts[s] = Hardmax().followed(z).leads.sum()
        if s < p.followed_through:
            final[s] = len(limit(PureAttention(), z).leaders)
    return Cell(d, n, counts, expected_leaders(n, d), final, counts[: p.followed_through])


def _check(cells: list[Cell], worst: Cell) -> Check:
    tol = 5.0  # standard errors; the largest of some dozens of honest ones stays below 4
    return Check(
        theorem="B14",
        reference="docs/mathematics.md B14",
        statement="the mean number of initial leaders of Gaussian tokens is n E[Phi(chi_d)^(n-1)]",
        applies=True,
        holds=abs(worst.deviation) <= tol,
        margin=tol - abs(worst.deviation),
        tol=tol,
        witness={
            "d": worst.d,
            "n": worst.n,
            "mean": float(worst.counts.mean()),
            "expected": worst.expected,
            "standard errors apart": worst.deviation,
            "cells": len(cells),
        },
        hypotheses=(),
        arithmetic="float64",
    )


def _counts(cells: list[Cell]) -> Table:
    rows = tuple(
        (
            c.d,
            c.n,
            float(c.counts.mean()),
            float(c.counts.std(ddof=1) / np.sqrt(len(c.counts))),
            c.expected,
            c.deviation,
            float(c.final.mean() - c.first.mean()),
        )
        for c in cells
    )
    columns = (
        "d",
        "n",
        "mean |L_0|",
        "standard error",
        "expected",
        "difference in errors",
        "born later, mean",
    )
    return Table("Leaders of Gaussian tokens", columns, rows)


class Sample(NamedTuple):
    """Leaders among n tokens drawn from a data set, and among Gaussian ones of its covariance."""

    name: str
    d: int
    n: int
    real: float
    gaussian: float
    error: float  # standard, of the Gaussian mean
    formula: float


def _data(p: Params) -> dict[str, np.ndarray]:
    """Tokens to draw from, by name. Digits are centred; trained tokens are taken as they are."""
    out: dict[str, np.ndarray] = {}
    if "digits" in p.data:
        from sklearn.datasets import load_digits

        x = load_digits().data
        out["digits"] = x - x.mean(axis=0)
    if "reviews" in p.data:
        out["film-review words"] = load_pretrained().model_.planes[0].embedding
    if "MiniLM" in p.data and find_spec("transformers"):
        found = example_transformer()
        if not weights_note(found):  # else its weights are random: MiniLM is not installed
            weight = found.model.get_input_embeddings().weight
            out["MiniLM words"] = weight.detach().numpy().astype(np.float64)
    if p.embeddings:
        out["embeddings"] = configurations.read(p.embeddings)
    return out


def _against_gaussian(p: Params, name: str, rows: np.ndarray) -> list[Sample]:
    """Draws of n rows on their first d principal directions, A = I."""
    axes = np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
    whole = rows.shape[1]
    dims = sorted({d for d in p.directions if d <= whole} | ({whole} if whole <= 400 else set()))
    out = []
    for d, n in product(dims, (m for m in p.n if 10 <= m <= len(rows) // 2)):
        x = rows @ axes[:, :d]
        x = x[:, np.linalg.norm(x, axis=0) > 1e-9 * np.linalg.norm(x)]  # digits: some never inked
        S = x.T @ x / len(x)
        rng = np.random.default_rng([p.seed, d, n, 1])
        root = np.linalg.cholesky(S)
        draws = (x[rng.choice(len(x), n, replace=False)] for _ in range(p.drawn))
        # Equal rows, as words of one weight have, are one leader.
        real = [Hardmax().followed(np.unique(z, axis=0)).leads.sum() for z in draws]
        same = [
            Hardmax().followed(rng.standard_normal((n, len(S))) @ root.T).leads.sum()
            for _ in range(p.drawn)
        ]
        error = float(np.std(same) / np.sqrt(p.drawn))
        formula = expected_leaders(n, len(S), S)
        out.append(Sample(name, d, n, float(np.mean(real)), float(np.mean(same)), error, formula))
    return out


def _reviews() -> Table:
    """Leaders of whole reviews under the shipped classifier."""
    clf = load_pretrained()
    rows = []
    for i, text in enumerate(REVIEWS):
        z = np.unique(clf.explain(text).trajectory.values[0], axis=0)
        li = limit(clf.model_.dynamics, z)
        first = int((li.born[li.leaders] == 0).sum())
        rows.append((i + 1, len(z), first, len(li.leaders), li.certified))
    columns = ("review", "tokens", "lead at layer 0", "lead in the limit", "certified")
    note = "Words and pairs of words of reviews written for this package, with the anchor token."
    return Table("Reviews read by the shipped classifier", columns, tuple(rows), note)


def _data_table(data: list[Sample]) -> Table:
    columns = ("data", "d", "n", "mean |L_0|", "Gaussian, same moments", "formula", "ratio")
    rows = tuple(
        (s.name, s.d, s.n, s.real, s.gaussian, s.formula, s.real / s.formula) for s in data
    )
    return Table("Leaders of real data", columns, rows, "Ratio: data over formula.")


def _summary(p: Params, cells: list[Cell], data: list[Sample], worst: Cell) -> str:
    largest = max(p.n)
    few = min((c for c in cells if c.n == largest), key=lambda c: c.expected)
    many = max((c for c in cells if c.n == largest), key=lambda c: c.counts.mean() / c.n)
    later = sum(float((c.final - c.first).sum()) for c in cells)
    total = sum(float(c.first.sum()) for c in cells)
    told = []
    for name in dict.fromkeys(s.name for s in data):
        ratios = [s.real / s.formula for s in data if s.name == name]
        told.append(f"{name} {min(ratios):.2f} to {max(ratios):.2f}")
    return (
        f"Counts agree with the formula in all {len(cells)} cells: the largest difference is "
        f"{abs(worst.deviation):.2g} standard errors (d = {worst.d}, n = {worst.n}). Among "
        f"{largest} tokens {few.counts.mean():.3g} lead for d = {few.d} and "
        f"{many.counts.mean() / many.n:.1%} of them for d = {many.d}: there almost nothing moves. "
        f"At infinite depth there are {later / total:.2%} more leaders than at layer 0.\n\n"
        "Leaders of real data, divided by the formula for Gaussian tokens of the same second "
        f"moments: {'; '.join(told) or 'none was measured'}."
    )


def _curves(cells: list[Cell]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import GREY, PALETTE

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.add_subplot()
    n = np.array(sorted({c.n for c in cells}))
    for colour, d in zip(PALETTE, sorted({c.d for c in cells})):
        line = sorted((c for c in cells if c.d == d), key=lambda c: c.n)
        mean = [c.counts.mean() for c in line]
        error = [2 * c.counts.std() / np.sqrt(len(c.counts)) for c in line]
        ax.plot(n, [c.expected for c in line], color=colour, lw=1.2)
        ax.errorbar(n, mean, error, fmt="o", color=colour, ms=4.5, capsize=2, label=f"d = {d}")
    ax.plot(n, n, "--", color=GREY, lw=1)
    ax.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="leaders at layer 0")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return figure


def _ratios(data: list[Sample]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import GREY, PALETTE

    names = list(dict.fromkeys(s.name for s in data))
    figure = Figure(figsize=(4.2 * len(names), 3.8), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for ax, name in zip(axes, names):
        dims = list(dict.fromkeys(s.d for s in data if s.name == name))
        for colour, d in zip(PALETTE, dims):
            line = [s for s in data if (s.name, s.d) == (name, d)]
            n = [s.n for s in line]
            ratio = [s.real / s.formula for s in line]
            ax.plot(n, ratio, "s-", color=colour, ms=5, label=f"d = {d}")
            same = [s.gaussian / s.formula for s in line]
            error = [2 * s.error / s.formula for s in line]
            ax.errorbar(n, same, error, fmt="o", mfc="white", color=colour, ms=4, capsize=2, lw=1)
        ax.axhline(1, color=GREY, lw=0.8, ls="--", zorder=0)
        ax.set(xscale="log", xlabel="tokens n", title=name)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")
    axes[0].set_ylabel("leaders at layer 0 / formula")
    return figure
