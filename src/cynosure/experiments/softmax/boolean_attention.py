"""The attention matrix becomes Boolean: tokens on a line, arXiv 2305.05465, Theorem 2.1.

With d = 1 and Q = K = V = 1 every token looks, in the end, at the largest or at the smallest one:
P(t) tends to a matrix whose rows are e_a or e_b, of rank 1 or 2, but for one row at most. See in
the heat maps (the paper's figure, n = 40, tokens sorted) how two columns take over; in the curves,
that each row is within exp(-c e^t) of its unit vector; and in the second row of maps the
exceptional row, which a token that starts exactly in the middle of a symmetric start keeps.

Then d = 80, where the published script moves the tokens by V alone and never uses its attention.
See what that hides: short tokens that do attend average each other out first, and P falls to a
rank of a few where by V alone it falls slowly or, for V = I, never; long tokens look at themselves
from the start, and there the two nearly agree.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.spectra import attention_matrix, boolean_limit, epsilon_rank
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import RescaledFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress, silent
from . import _low_rank
from ._flow_panels import nearest

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Boolean attention: d = 1, two columns take over"


@final
@dataclass(frozen=True)
class Params:
    """The paper's n; `times` states on [0, time], P drawn at `show`, rank up to `eps`; dimension
    `d` and time `long` (in 1/l1) of the comparison with tokens that do not attend."""

    n: int = 40
    time: float = 8.0
    times: int = 161
    show: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 5.0)
    eps: float = 1e-6
    d: int = 80
    long: float = 10.0
    seed: int = 0


QUICK = Params(times=81, d=40)


class Rows(NamedTuple):
    """How far the rows of P are from the limit, over time."""

    outside: np.ndarray  # (times, n): the weight outside the column it ends in
    excepted: tuple[int, ...]  # rows that end in no column
    slope: np.ndarray  # (n,): fitted d/dt log(-log outside), NaN where nothing can be fitted


def run(p: Params, progress: Progress | None = None) -> Report:
    """The paper's random start, and a symmetric one with a token at 0."""
    say = progress or silent
    if p.n < 2 or p.d < 2 or p.times < 3 or not (p.time > 0 and p.long > 0):
        raise ValueError(f"boolean_attention: n, d >= 2, times >= 3, time and long > 0; got {p}")
    half = np.abs(configurations.box(p.n // 2, 1, p.seed + 1))
    # -a next to a, so that sums cancel to the last bit: a token off 0 by rounding leaves by t = 4
    pairs = np.concatenate([np.stack([-half, half], axis=1).reshape(-1, 1), [[0.0]]])
    starts = {
        f"uniform, n = {p.n}": configurations.box(p.n, 1, p.seed),
        f"symmetric, n = {len(pairs)}": pairs,
    }
    times = np.linspace(0, p.time, p.times)
    runs, matrices, rows, checks = {}, {}, {}, {}
    for done, (name, z0) in enumerate(starts.items()):
        say(0.3 * done, name)
        flow = RescaledFlow()
        tr = simulate(flow, z0, times=times, stepper=Adaptive(1e-12, 1e-14))
        runs[name] = replace(tr, z=tr.values[:, np.argsort(z0[:, 0])])
        matrices[name] = np.stack([attention_matrix(flow, z, t) for z, t in _states(runs[name])])
        rows[name] = _rows(times, matrices[name])
        checks[name] = tuple(check(runs[name], only=("B22", "B23", "B24")))
    say(0.6, f"d = {p.d}")
    low = _low_rank.compare(p.n, p.d, p.eps, p.long, p.seed)
    say(0.8, "figures")
    figures = (
        Picture("P(t)", _caption(rows), _heat_maps(p, runs, matrices)),
        Picture("Approach to the Boolean matrix", _APPROACH, _curves(p, runs, matrices, rows)),
        Picture("Rank in many dimensions", _RANKS, _low_rank.curves(low)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, times, matrices, rows) + "\n\n" + _low_rank.text(low, p.n, p.d),
        asdict(p),
        (_table(p, runs, matrices), _fits(rows, matrices), _low_rank.table(low, p.eps)),
        checks,
        figures,
        command="cynosure run boolean_attention",
    )


_APPROACH = (
    "From left to right: rescaled tokens z = e^(-t) x; weight outside the column a row ends in, "
    "one line per row, in double logarithms, where exp(-c e^t) is a line of slope 1 (dashed); "
    "rank of P(t) up to a relative eps."
)


_RANKS = (
    "Above: rank of P(t) for tokens that attend to each other and for tokens moved by V alone, "
    "from the same start. Below: both P at the end, rows look at columns. Short tokens that attend "
    "average each other out and end looking at very few; long ones look at themselves at first."
)


def _caption(rows: dict[str, Rows]) -> str:
    """The exceptional row needs sums that cancel exactly, which is up to the library that adds."""
    text = (
        "Weights P_ij(t), row i looks at column j, tokens sorted. Tokens that end positive look at "
        "the last column, the others at the first. "
    )
    odd = [i for found in rows.values() for i in found.excepted]
    if odd:
        return text + (
            f"Row {odd[0]} of the symmetric start is the exceptional one: its token stays at 0 "
            "and looks evenly at all of them for ever."
        )
    return text + (
        "The token at 0 of the symmetric start should look evenly at all for ever, but a rounding "
        "error in a sum sent it away."
    )


def _states(run: Trajectory) -> list[tuple[np.ndarray, float]]:
    return list(zip(run.values, run.t.tolist(), strict=True))


def _rows(times: np.ndarray, P: np.ndarray) -> Rows:
    """The outside weight is summed, not taken as 1 - P_ij, which stops at the rounding of 1."""
    column = P[-1].argmax(axis=1)
    n = P.shape[1]
    others = np.arange(n) != column[:, None]
    outside = (P * others).sum(axis=2)
    excepted = np.flatnonzero(outside[-1] > 1e-8)
    slope = np.full(n, np.nan)
    with np.errstate(divide="ignore"):
        size = -np.log(outside)
    for i in range(n):
        # from e^-10 on the largest of the n - 1 terms rules; past e^-700 floats end
        fitted = (size[:, i] > 10) & (size[:, i] < 700)
        if fitted.sum() >= 5:
            slope[i] = np.polyfit(times[fitted], np.log(size[fitted, i]), 1)[0]
    return Rows(outside, tuple(excepted.tolist()), slope)


def _summary(p: Params, times: np.ndarray, P: dict[str, np.ndarray], rows: dict[str, Rows]) -> str:
    parts = []
    for name, found in rows.items():
        settled = np.setdiff1d(np.arange(P[name].shape[1]), found.excepted)
        rank = epsilon_rank(P[name][-1], p.eps)
        slope = found.slope[np.isfinite(found.slope)]
        columns = sorted(set(P[name][-1].argmax(axis=1)[settled].tolist()))
        parts.append(
            f"{name}: at t = {times[-1]:g} {len(settled)} rows are within "
            f"{found.outside[-1, settled].max():.1g} of a unit vector, in the columns "
            f"{', '.join(map(str, columns))}; {len(found.excepted)} exceptional; rank {rank}. "
            f"The slope of log(-log distance) is {np.median(slope):.3f} in the median, "
            f"{slope.min():.3f} to {slope.max():.3f} over {len(slope)} rows (theory: 1)."
        )
    return "\n\n".join(parts)


def _table(p: Params, runs: dict[str, Trajectory], matrices: dict[str, np.ndarray]) -> Table:
    rows = []
    for name, run in runs.items():
        for t in (*p.show, p.time):
            k = nearest(run, t)
            P = matrices[name][k]
            read = boolean_limit(P)
            rows.append(
                (
                    name,
                    float(run.t[k]),
                    epsilon_rank(P, p.eps),
                    len(P) - len(read.exceptional),
                    len(read.columns),
                    float(P.max(axis=1).min()),
                )
            )
    columns = ("start", "t", "rank", "Boolean rows", "their columns", "least row maximum")
    note = f"Rank: singular values above {p.eps:g} of the largest; Boolean: within 1e-8."
    return Table("Attention matrix", columns, tuple(rows), note)


def _fits(rows: dict[str, Rows], matrices: dict[str, np.ndarray]) -> Table:
    lines = tuple(
        (
            name,
            i,
            int(matrices[name][-1, i].argmax()) if i not in found.excepted else None,
            float(found.outside[-1, i]),
            float(found.slope[i]) if np.isfinite(found.slope[i]) else None,
        )
        for name, found in rows.items()
        for i in range(len(found.slope))
    )
    columns = ("start", "row", "looks at", "weight outside at the end", "slope of log(-log)")
    note = "An exceptional row looks at no single token. A token near 0 leaves late: few points."
    return Table("Doubly exponential fit", columns, lines, note)


def _heat_maps(p: Params, runs: dict[str, Trajectory], matrices: dict[str, np.ndarray]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import LABEL, TICK

    figure = Figure(figsize=(2.3 * len(p.show) + 0.8, 5.0), layout="constrained")
    axes = figure.subplots(len(runs), len(p.show), squeeze=False)
    for line, (name, run) in zip(axes, runs.items()):
        for ax, t in zip(line, p.show):
            k = nearest(run, t)
            image = ax.imshow(matrices[name][k], cmap="magma_r", vmin=0, vmax=1)
            ax.set_title(f"t = {run.t[k]:g}", fontsize=LABEL)
            ax.tick_params(labelsize=TICK)
        line[0].set_ylabel(f"{name}\nrow $i$", fontsize=LABEL)
    for ax in axes[-1]:
        ax.set_xlabel("column $j$", fontsize=LABEL)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01)
    bar.set_label("$P_{ij}$", fontsize=LABEL)
    return figure


def _curves(
    p: Params, runs: dict[str, Trajectory], P: dict[str, np.ndarray], rows: dict[str, Rows]
) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import GREY, INK, LABEL, PALETTE

    figure = Figure(figsize=(12, 3.5 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), 3, squeeze=False)
    for (left, middle, right), (name, run) in zip(axes, runs.items()):
        t = run.t
        column = P[name][-1].argmax(axis=1)
        for i in range(run.values.shape[1]):
            odd = i in rows[name].excepted
            colour = INK if odd else PALETTE[int(column[i] > 0)]
            left.plot(t, run.values[:, i, 0], color=colour, lw=0.8)
            with np.errstate(divide="ignore"):
                size = -np.log(rows[name].outside[:, i])
            size[(size < 1e-2) | (size > 744)] = np.nan
            if not odd:
                middle.plot(t, size, color=colour, lw=0.7, alpha=0.8)
        left.set(xlabel="time t", ylabel="rescaled token $e^{-t} x_i(t)$")
        left.set_title(name, loc="left", fontsize=LABEL)
        middle.plot(t, np.exp(t), "--", color=INK, lw=1.2, label="slope 1: $e^t$")
        middle.set(yscale="log", ylim=(0.05, 2000), xlabel="time t")
        middle.set_ylabel(r"$-\log$ (weight outside the column)")
        middle.legend(frameon=False, fontsize=LABEL, loc="lower right")
        for eps, colour in ((1e-2, GREY), (p.eps, PALETTE[0])):
            rank = [epsilon_rank(M, eps) for M in P[name]]
            right.step(t, rank, where="post", color=colour, label=f"eps = {eps:g}")
        right.axhline(2, color=PALETTE[1], lw=1, ls="--", label="2")
        right.set(xlabel="time t", ylabel="rank of $P(t)$", ylim=(0, None))
        right.legend(frameon=False, fontsize=LABEL)
        for ax in (left, middle, right):
            tidy(ax)
    return figure
