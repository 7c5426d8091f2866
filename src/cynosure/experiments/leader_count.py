"""How many tokens lead at layer 0: Monte Carlo beside the formula (theory B14).

    E|L_0| = n E[Phi(r)^(n-1)],   r ~ chi_d           (tokens N(0, I_d), A = I)

See: a handful of leaders in the plane, whatever n; almost every token once d is well above
2 log n, so that nothing moves. Real data beside it: handwritten digits on their leading principal
components against Gaussian tokens of the same covariance. A file of trained
embeddings (`embeddings`, one token per row) is measured in the same way. The model is that of
arXiv 2407.01602.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple, final

import numpy as np

from .. import configurations
from ..attention import Hardmax
from ..dynamics import PureAttention
from ..limits import limit
from ..report import Picture, Report, Table
from ..theorems import Check, expected_leaders
from . import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "How many tokens lead: counts beside the formula"


@final
@dataclass(frozen=True)
class Params:
    """Grid of dimensions and numbers of tokens, starts per cell, starts taken to infinite depth."""

    d: tuple[int, ...] = (1, 2, 3, 4, 8, 16, 32)
    n: tuple[int, ...] = (10, 32, 100, 316, 1000)
    starts: int = 200
    followed_through: int = 30
    digits: tuple[int, ...] = (2, 4, 8, 16)
    seed: int = 0
    embeddings: str = ""


QUICK = Params(d=(1, 2, 4, 16), n=(10, 32, 100), starts=60, followed_through=10, digits=(2, 8))


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

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.starts < 2 or not 1 <= p.followed_through <= p.starts or min(*p.d, *p.n) < 1:
        raise ValueError(
            "leader_count: starts begins at 2, followed_through lies in 1..starts, d and n begin "
            f"at 1; got {p}"
        )
    grid = list(product(p.d, p.n))
    cells = []
    for done, (d, n) in enumerate(grid):
        say(0.8 * done / len(grid), f"d = {d}, n = {n}")
        cells.append(_cell(p, d, n))
    say(0.8, "data")
    data = _digits(p)
    if p.embeddings:
        rows = configurations.read(p.embeddings)
        data += _against_gaussian("embeddings", rows, (rows.shape[1],), p)
    say(0.95, "figures")
    figures = (
        Picture("Leaders at layer 0", _CAPTION, _curves(cells)),
        Picture("Digits beside Gaussian tokens", _DIGITS, _bars(data)),
    )
    worst = max(cells, key=lambda c: abs(c.deviation))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, cells, data, worst),
        asdict(p),
        (_counts(cells), _data_table(data)),
        {"grid": (_check(cells, worst),)},
        figures,
        command="cynosure run leader_count",
    )


_CAPTION = (
    "Dots: mean over the starts, with two standard errors; lines: n E[Phi(chi_d)^(n-1)]. The "
    "dashed diagonal is every token leading: in high dimension the counts lie on it."
)
_DIGITS = (
    "Mean number of leaders among n images of digits, centred, on d principal components, beside "
    "Gaussian tokens of the same covariance and the formula for them."
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
        reference="theory B14",
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
    formula: float


def _digits(p: Params) -> list[Sample]:
    from sklearn.datasets import load_digits

    return _against_gaussian("digits", load_digits().data, p.digits, p)


def _against_gaussian(
    name: str, rows: np.ndarray, dims: tuple[int, ...], p: Params
) -> list[Sample]:
    """Draws of n rows on their first d principal directions, A = I."""
    rows = rows - rows.mean(axis=0)
    axes = np.linalg.svd(rows, full_matrices=False)[2]
    out = []
    for d, n in product(dims, (m for m in p.n if 10 <= m <= len(rows) // 2)):
        x = rows @ axes[:d].T
        S = np.cov(x.T).reshape(d, d)
        rng = np.random.default_rng([p.seed, d, n, 1])
        root = np.linalg.cholesky(S)
        real = [
            Hardmax().followed(x[rng.choice(len(x), n, replace=False)]).leads.sum()
            for _ in range(p.starts)
        ]
        same = [
            Hardmax().followed(rng.standard_normal((n, d)) @ root.T).leads.sum()
            for _ in range(p.starts)
        ]
        formula = expected_leaders(n, d, S)
        out.append(Sample(name, d, n, float(np.mean(real)), float(np.mean(same)), formula))
    return out


def _data_table(data: list[Sample]) -> Table:
    columns = ("data", "d", "n", "mean |L_0|", "Gaussian, same covariance", "formula", "ratio")
    rows = tuple((*s, s.real / s.formula) for s in data)
    return Table("Leaders of real data", columns, rows, "Ratio: data over formula.")


def _summary(p: Params, cells: list[Cell], data: list[Sample], worst: Cell) -> str:
    largest = max(p.n)
    few = min((c for c in cells if c.n == largest), key=lambda c: c.expected)
    many = max((c for c in cells if c.n == largest), key=lambda c: c.counts.mean() / c.n)
    later = sum(float((c.final - c.first).sum()) for c in cells)
    total = sum(float(c.first.sum()) for c in cells)
    ratios = [s.real / s.formula for s in data]
    return (
        f"Counts agree with the formula in all {len(cells)} cells: the largest difference is "
        f"{abs(worst.deviation):.2g} standard errors (d = {worst.d}, n = {worst.n}). Among "
        f"{largest} tokens {few.counts.mean():.3g} lead for d = {few.d} and "
        f"{many.counts.mean() / many.n:.1%} of them for d = {many.d}: there almost nothing moves. "
        f"At infinite depth there are {later / total:.2%} more leaders than at layer 0.\n\n"
        f"On real data the Gaussian formula is off by a factor of {min(ratios):.2f} to "
        f"{max(ratios):.2f} (data over formula)."
    )


def _curves(cells: list[Cell]) -> Any:
    from matplotlib.figure import Figure

    from ..plot import GREY, PALETTE

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


def _bars(data: list[Sample]) -> Any:
    from matplotlib.figure import Figure

    from ..plot import PALETTE

    names = list(dict.fromkeys((s.name, s.d) for s in data))
    figure = Figure(figsize=(3.0 * len(names), 3.2), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for ax, (name, d) in zip(axes, names):
        line = [s for s in data if (s.name, s.d) == (name, d)]
        n = [s.n for s in line]
        ax.plot(n, [s.formula for s in line], color=PALETTE[0], lw=1.2, label="formula")
        ax.plot(n, [s.gaussian for s in line], "o", color=PALETTE[0], ms=5, label="Gaussian")
        ax.plot(n, [s.real for s in line], "s", color=PALETTE[1], ms=5, label=name)
        ax.set(xscale="log", xlabel="tokens n", title=f"{name}, d = {d}")
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("leaders at layer 0")
    axes[0].legend(frameon=False, fontsize="small", loc="lower right")
    return figure
