"""The attention matrix becomes Boolean: tokens on a line, arXiv 2305.05465, Theorem 2.1.

With d = 1 and Q = K = V = 1 every token looks, in the end, at the largest or at the smallest one:
P(t) tends to a matrix whose rows are e_a or e_b, of rank 1 or 2, but for one row at most. See how
two columns take over (the paper's figure, n = 40, tokens sorted); that each row is within
exp(-c e^t) of its unit vector; and the exceptional row, that of a token in the exact middle of a
symmetric start.

That P becomes Boolean needs no attention: P of tokens moved by V alone does too, and faster, like
exp(-c e^(2t)), since nobody comes near the largest token. What attention does is bring the others
to it, and that costs one power of e^t: the slope of log(-log) is 1 with attention and 2 without.
The theorem is about t to infinity. Short tokens average each other out first, may all end at one
small value, and then are late: the control counts by size.

Then d = 80, where the published script moves the tokens by V alone and never uses its attention.
See what that hides: short tokens that do attend average each other out, and P falls to a rank of a
few; long tokens look at themselves from the start, and there the two nearly agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, counted, over_grid, part, report_of, require
from .._measurements import kept_each
from . import _low_rank

TITLE = "Boolean attention: d = 1, two columns take over"
_LEAST = 5e-324  # the least positive float, whose -log is 744.4


@dataclass(frozen=True)
class Params:
    """The paper's n; `times` states on [0, time], P drawn at `show`, rank up to `eps`; dimension
    `d` and time `long` (in 1/l1) of the comparison with tokens that do not attend; the controls
    have `starts` starts of each of the `sizes`."""

    n: int = 40
    time: float = 8.0
    times: int = 161
    show: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 5.0)
    eps: float = 1e-6
    d: int = 80
    long: float = 10.0
    starts: int = 10
    sizes: tuple[float, ...] = (0.3, 1.0, 3.0)
    seed: int = 0


QUICK = Params(times=81, d=40, starts=2, sizes=(1.0,))


class Rows(NamedTuple):
    """How far the rows of P are from the limit, over time."""

    outside: np.ndarray  # (times, n): the weight outside the column it ends in
    excepted: tuple[int, ...]  # rows that end in no column
    slope: np.ndarray  # (n,): fitted d/dt log(-log outside), NaN where nothing can be fitted


class Example(NamedTuple):
    """A run with its tokens sorted, its attention matrices (times, n, n), and their rows."""

    run: cy.Trajectory
    P: np.ndarray
    rows: Rows


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The paper's random start, and a symmetric one with a token at 0."""
    sensible = p.n >= 2 and p.d >= 2 and p.times >= 3 and p.time > 0 and p.long > 0
    require(sensible, "n, d >= 2, times >= 3, time and long > 0", p)
    say = part(progress, 0, 1)
    say(0.0, "d = 1")
    half = np.abs(cy.configurations.box(p.n // 2, 1, p.seed + 1))
    # -a next to a, so that sums cancel to the last bit: a token off 0 by rounding leaves by t = 4
    pairs = np.concatenate([np.stack([-half, half], axis=1).reshape(-1, 1), [[0.0]]])
    examples = {
        f"uniform, n = {p.n}": _example(p, cy.configurations.box(p.n, 1, p.seed)),
        f"symmetric, n = {len(pairs)}": _example(p, pairs),
    }
    say(0.4, f"d = {p.d}")
    ranks = _low_rank.compare(p.n, p.d, p.eps, p.long, p.seed)
    grid = {"size": p.sizes, "start": range(p.starts)}
    ends = over_grid(_end, p, grid, part(progress, 0.6, 0.8))
    again = kept_each(_ranks_again, [(p, s) for s in range(1, 1 + max(1, p.starts // 3))])
    say(0.8, "figures")
    figures = (
        cy.Picture("P(t)", _caption(examples), _heat_maps(p, examples)),
        cy.Picture("Approach to the Boolean matrix", _APPROACH, _curves(p, examples)),
        cy.Picture("Rank in many dimensions", _RANKS, _low_rank.curves(ranks)),
    )
    checks = {name: cy.check(e.run, only=("B22", "B23", "B24")) for name, e in examples.items()}
    tables = (*_tables(p, examples), _low_rank.table(ranks, p.eps))
    return report_of(
        __name__,
        p,
        _summary(p, examples) + "\n\n" + _low_rank.text(ranks, p.n, p.d),
        controls=_comparisons(p, ends, [_low_rank.last(ranks), *again]),
        tables=(*tables, _end_table(ends)),
        checks=checks,
        figures=figures,
    )


class End(NamedTuple):
    """One start on the line: P at the end, with attention and for tokens moved by V alone."""

    size: float
    start: int
    rank: int
    excepted: int
    columns: int  # that hold a row
    slope: float  # median over the rows of d/dt log(-log outside)
    alone: float  # the same for tokens that do not attend


def _end(p: Params, size: float, start: int) -> End:
    """Followed for longer than what is drawn: short tokens are late, all their scores are small."""
    z0 = size * cy.configurations.box(p.n, 1, p.seed + start)
    e, flow = _example(replace(p, time=p.time + 4), z0), cy.RescaledFlow()
    times = np.asarray(e.run.t, dtype=float)
    still = np.sort(z0, axis=0)  # e^(-t) x does not move when x' = x
    alone = np.stack([cy.spectra.attention_matrix(flow, still, t) for t in times.tolist()])
    settled = np.setdiff1d(np.arange(p.n), e.rows.excepted)
    return End(
        size=size,
        start=start,
        rank=cy.spectra.epsilon_rank(e.P[-1], p.eps),
        excepted=len(e.rows.excepted),
        columns=len(set(e.P[-1].argmax(axis=1)[settled].tolist())),
        slope=_middle(e.rows.slope),
        alone=_middle(_rows(times, alone).slope),
    )


def _middle(slope: np.ndarray) -> float:
    """The median of the slopes that could be fitted; NaN if none."""
    fitted = slope[np.isfinite(slope)]
    return float(np.median(fitted)) if len(fitted) else float("nan")


def _ranks_again(p: Params, start: int) -> dict[str, tuple[int, int]]:
    return _low_rank.last(_low_rank.compare(p.n, p.d, p.eps, p.long, p.seed + start))


def _comparisons(
    p: Params, ends: list[End], ranks: list[dict[str, tuple[int, int]]]
) -> list[cy.Comparison]:
    """Starts and sizes on the line; tokens that do not attend; starts in many dimensions."""
    right = {
        size: [e.rank <= 2 and e.excepted <= 1 for e in ends if e.size == size] for size in p.sizes
    }
    slopes, alone = ([x for x in found if np.isfinite(x)] for found in zip(*(e[-2:] for e in ends)))
    short = [r[name] for r in ranks for name in r if name.endswith("length 1")]
    long = [r[name] for r in ranks for name in r if name.endswith("length 5") and "V = I" in name]
    fewer = sum(coupled < uncoupled for coupled, uncoupled in short)
    same = [coupled / uncoupled for coupled, uncoupled in long]
    said = f"{p.starts} starts of sizes {', '.join(f'{x:g}' for x in p.sizes)}"
    return [
        cy.Comparison(
            f"on the line P has rank 1 or 2 and one exceptional row at most by t = {p.time + 4:g}",
            said,
            "; ".join(f"size {size:g}: {counted(sum(x), len(x))}" for size, x in right.items())
            + f"; rank one in {sum(e.rank == 1 for e in ends)}",
            all(all(x) for x in right.values()),
        ),
        cy.Comparison(
            "rows approach their unit vector like exp(-c e^t)",
            f"{said}; tokens moved by V alone",
            f"median slope of log(-log): {min(slopes):.2f} to {max(slopes):.2f} with attention, "
            f"{min(alone):.2f} to {max(alone):.2f} without ({len(slopes)} of {len(ends)} fitted)",
            max(abs(x - 1) for x in slopes) < 0.15 and min(alone) > 1.5,
        ),
        cy.Comparison(
            f"d = {p.d}: short tokens that attend end with fewer ranks than V alone leaves",
            f"{len(ranks)} starts, V = I and random V",
            f"{counted(fewer, len(short))}; ranks {', '.join(f'{a}/{b}' for a, b in short)}",
            fewer == len(short),
        ),
        cy.Comparison(
            f"d = {p.d}, V = I: for long tokens the two nearly agree",
            f"{len(ranks)} starts",
            f"ranks {', '.join(f'{a}/{b}' for a, b in long)}",
            min(same) > 0.9,
        ),
    ]


def _end_table(ends: list[End]) -> cy.Table:
    names = ("size", "start", "rank", "excepted", "columns")
    columns = {**{x: x for x in names}, "slope, attention": "slope", "slope, V alone": "alone"}
    note = "Tokens on a line; slopes of log(-log of the weight outside), median over the rows."
    return cy.Table.of("Other starts on the line", ends, columns, note)


_APPROACH = (
    "Left: rescaled tokens z = e^(-t) x. Middle: weight outside the column a row ends in, twice "
    "logarithmic, so that exp(-c e^t) has slope 1. Right: rank of P(t) up to a relative eps."
)
_RANKS = (
    "Above: rank of P(t) for tokens that attend to each other and for tokens moved by V alone. "
    "Below: both P at the end. Short tokens that attend average each other out and end looking at "
    "very few; long ones look at themselves at first."
)


def _caption(examples: dict[str, Example]) -> str:
    """The exceptional row needs sums that cancel exactly, which is up to the library that adds."""
    odd = [i for e in examples.values() for i in e.rows.excepted]
    middle = "the token at 0 should look evenly at all for ever, but a rounding error sent it away."
    if odd:
        middle = f"row {odd[0]} is exceptional: its token stays at 0, evenly looking at all."
    return (
        "Weights P_ij(t), row i looks at column j, tokens sorted. Tokens that end positive look at "
        f"the last column, the others at the first. Symmetric start: {middle}"
    )


def _example(p: Params, z0: np.ndarray) -> Example:
    flow, times = cy.RescaledFlow(), np.linspace(0, p.time, p.times)
    tr = cy.simulate(flow, z0, times=times, stepper=cy.Adaptive(1e-12, 1e-14))
    tr = replace(tr, z=tr.values[:, np.argsort(z0[:, 0])])
    states = zip(tr.values, times.tolist(), strict=True)
    P = np.stack([cy.spectra.attention_matrix(flow, z, t) for z, t in states])
    return Example(tr, P, _rows(times, P))


def _rows(times: np.ndarray, P: np.ndarray) -> Rows:
    """The outside weight is summed, not taken as 1 - P_ij, which stops at the rounding of 1."""
    n = P.shape[1]
    outside = (P * (np.arange(n) != P[-1].argmax(axis=1)[:, None])).sum(axis=2)
    slope = np.full(n, np.nan)
    for i, size in enumerate(-np.log(np.maximum(outside, _LEAST)).T):
        # from e^-10 on the largest of the n - 1 terms rules; past e^-700 floats end
        fitted = (size > 10) & (size < 700)
        if fitted.sum() >= 5:
            slope[i] = np.polyfit(times[fitted], np.log(size[fitted]), 1)[0]
    return Rows(outside, tuple(np.flatnonzero(outside[-1] > 1e-8).tolist()), slope)


def _summary(p: Params, examples: dict[str, Example]) -> str:
    parts = []
    for name, (tr, P, rows) in examples.items():
        settled = np.setdiff1d(np.arange(P.shape[1]), rows.excepted)
        slope = rows.slope[np.isfinite(rows.slope)]
        columns = sorted(set(P[-1].argmax(axis=1)[settled].tolist()))
        parts.append(
            f"{name}: at t = {tr.t[-1]:g} {len(settled)} rows are within "
            f"{rows.outside[-1, settled].max():.1g} of a unit vector, in the columns "
            f"{', '.join(map(str, columns))}; {len(rows.excepted)} exceptional; rank "
            f"{cy.spectra.epsilon_rank(P[-1], p.eps)}. "
            f"The slope of log(-log distance) is {np.median(slope):.3f} in the median, "
            f"{slope.min():.3f} to {slope.max():.3f} over {len(slope)} rows (theory: 1)."
        )
    return "\n\n".join(parts)


def _tables(p: Params, examples: dict[str, Example]) -> list[cy.Table]:
    states, fits = [], []
    for name, (tr, P, rows) in examples.items():
        for k in [tr.nearest(t) for t in (*p.show, p.time)]:
            read = cy.spectra.boolean_limit(P[k])
            boolean, least = len(P[k]) - len(read.exceptional), float(P[k].max(axis=1).min())
            rank = cy.spectra.epsilon_rank(P[k], p.eps)
            states.append((name, float(tr.t[k]), rank, boolean, len(read.columns), least))
        for i, (slope, outside) in enumerate(zip(rows.slope.tolist(), rows.outside[-1].tolist())):
            column = None if i in rows.excepted else int(P[-1, i].argmax())
            fits.append((name, i, column, outside, slope if np.isfinite(slope) else None))
    matrix = ("start", "t", "rank", "Boolean rows", "their columns", "least row maximum")
    near = f"Rank: singular values above {p.eps:g} of the largest; Boolean: within 1e-8."
    columns = ("start", "row", "looks at", "weight outside at the end", "slope of log(-log)")
    note = "An exceptional row looks at no single token. A token near 0 leaves late: few points."
    return [
        cy.Table("Attention matrix", matrix, tuple(states), near),
        cy.Table("Doubly exponential fit", columns, tuple(fits), note),
    ]


def _heat_maps(p: Params, examples: dict[str, Example]) -> Any:
    figure, axes = cy.plot.sheet(len(examples), len(p.show), 2.5, 2.5)
    for line, (name, e) in zip(axes, examples.items()):
        for ax, k in zip(line, [e.run.nearest(t) for t in p.show]):
            image = ax.imshow(e.P[k], cmap="magma_r", vmin=0, vmax=1)
            ax.set_title(f"t = {e.run.t[k]:g}", fontsize=cy.plot.LABEL)
            ax.grid(False)
        line[0].set_ylabel(f"{name}\nrow $i$")
    for ax in axes[-1]:
        ax.set_xlabel("column $j$")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01)
    bar.set_label("$P_{ij}$", fontsize=cy.plot.LABEL)
    return figure


def _curves(p: Params, examples: dict[str, Example]) -> Any:
    figure, axes = cy.plot.sheet(len(examples), 3, 4, 3.5)
    blue, orange = cy.plot.PALETTE[:2]
    for (left, middle, right), (name, (tr, P, rows)) in zip(axes, examples.items()):
        size = -np.log(np.maximum(rows.outside, _LEAST))
        size[(size < 1e-2) | (size > 744)] = np.nan
        for i, column in enumerate(P[-1].argmax(axis=1)):
            odd = i in rows.excepted
            colour = cy.plot.INK if odd else (orange if column > 0 else blue)
            left.plot(tr.t, tr.values[:, i, 0], color=colour, lw=0.8)
            if not odd:
                middle.plot(tr.t, size[:, i], color=colour, lw=0.7, alpha=0.8)
        left.set(xlabel="time t", ylabel="rescaled token $e^{-t} x_i(t)$")
        left.set_title(name, loc="left", fontsize=cy.plot.LABEL)
        middle.plot(tr.t, np.exp(tr.t), "--", color=cy.plot.INK, lw=1.2, label="slope 1: $e^t$")
        middle.set(yscale="log", ylim=(0.05, 2000), xlabel="time t")
        middle.set_ylabel(r"$-\log$ (weight outside the column)")
        middle.legend(frameon=False, fontsize=cy.plot.LABEL, loc="lower right")
        for eps, colour in ((1e-2, cy.plot.GREY), (p.eps, blue)):
            rank = [cy.spectra.epsilon_rank(M, eps) for M in P]
            right.step(tr.t, rank, where="post", color=colour, label=f"eps = {eps:g}")
        right.axhline(2, color=orange, lw=1, ls="--", label="2")
        right.set(xlabel="time t", ylabel="rank of $P(t)$", ylim=(0, None))
        right.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure
