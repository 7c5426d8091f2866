"""Equal angles stay equal: n tokens on the sphere reduced to one number, arXiv 2312.10794.

If all pairs of tokens start with the same cosine r(0), they keep a common cosine r(t), and

    r' = 2 e^(beta r) (1 - r) ((n-1) r + 1) / (e^beta + (n-1) e^(beta r))     (SA)
    r' = (2/n) e^(beta r) (1 - r) ((n-1) r + 1)                               (USA)

(docs/mathematics.md B31). See the full dynamics of n tokens in R^n, every pair of them, against
this equation of one variable; the long wait at small r that large beta brings, and the rate 2 (SA)
or 2 e^beta (USA) at the end. For n = 2 and beta = 0 the solution is tanh t.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...attention import Softmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import SphereFlow, UnnormalizedSphereFlow
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...theorems import Check, check
from ...theorems.sphere import equiangular
from .._frame import Progress, silent

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Equiangular tokens: n tokens, one equation"


@final
@dataclass(frozen=True)
class Params:
    """n tokens of common cosine r0 at inverse temperature beta, until 1 - r falls to `reach`."""

    n: tuple[int, ...] = (2, 8, 32, 64)
    beta: tuple[float, ...] = (0.0, 1.0, 4.0, 9.0)
    r0: float = 0.0
    reach: float = 1e-4


QUICK = Params(n=(2, 8), beta=(0.0, 4.0))


class Curve(NamedTuple):
    model: str
    n: int
    beta: float
    t: np.ndarray
    low: np.ndarray  # smallest and largest cosine of a pair, over time
    high: np.ndarray
    r: np.ndarray  # the equation
    rate: float  # -d/dt log(1 - r) at the end of the full run


def run(p: Params, progress: Progress | None = None) -> Report:
    """Both models over the grid of n and beta."""
    say = progress or silent
    if min(p.n) < 2 or not -1 / (max(p.n) - 1) < p.r0 < 1 or not 0 < p.reach < 1 - p.r0:
        raise ValueError(f"equiangular: n >= 2, -1/(n-1) < r0 < 1, 0 < reach < 1 - r0; got {p}")
    curves, checks = [], {}
    grid = [(m, n, b) for m in ("SA", "USA") for n in p.n for b in p.beta]
    for done, (model, n, beta) in enumerate(grid):
        name = f"{model}, n = {n}, beta = {beta:g}"
        say(0.9 * done / len(grid), name)
        curve, found = _follow(p, model, n, beta)
        curves.append(curve)
        checks[name] = found
    say(0.9, "figures")
    figure = Picture("Cosine over time", _CAPTION, _draw(p, curves))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(curves),
        asdict(p),
        (_table(curves),),
        checks,
        (figure,),
        command="cynosure run equiangular",
    )


_CAPTION = (
    "Common cosine r(t): lines are the equation, dots the full dynamics of n tokens (the mean over "
    "all pairs). Time is divided by the time at which 1 - r falls to `reach`, so that all fit."
)


def _start(n: int, r: float) -> np.ndarray:
    """n unit tokens of R^n with common cosine r: the rows of a root of their Gram matrix."""
    return np.linalg.cholesky((1 - r) * np.eye(n) + r * np.ones((n, n)))


def _follow(p: Params, model: str, n: int, beta: float) -> tuple[Curve, tuple[Check, ...]]:
    free = model == "USA"
    end = _arrival(p, n, beta, free)
    last = end - 0.1 * (np.exp(-beta) if free else 1)  # a tenth of 1/rate: for the rate at the end
    times = np.union1d(np.linspace(0, end, 101), [last])
    flow = UnnormalizedSphereFlow(beta) if free else SphereFlow(Softmax(beta))
    tr = simulate(flow, _start(n, p.r0), times=times, stepper=Adaptive(1e-10, 1e-12))
    i, j = np.triu_indices(n, 1)
    cosines = (tr.values @ tr.values.swapaxes(1, 2))[:, i, j]
    r = equiangular(p.r0, times, n, beta, free)
    # 1 - <x, y> from the distance, which does not cancel
    left = np.sum((tr.values[-2:, i[0]] - tr.values[-2:, j[0]]) ** 2, axis=1) / 2
    rate = float(np.log(left[0] / left[1]) / (times[-1] - times[-2]))
    curve = Curve(model, n, beta, times, cosines.min(axis=1), cosines.max(axis=1), r, rate)
    return curve, tuple(check(tr, only=("B31",)))


def _arrival(p: Params, n: int, beta: float, free: bool) -> float:
    """The time at which 1 - r = reach: an integral of 1/r', by quadrature in r."""
    from scipy.integrate import quad

    def slowness(r: float) -> float:
        weight = np.exp(beta * r) / n if free else 1 / (np.exp(beta * (1 - r)) + n - 1)
        return float(1 / (2 * weight * (1 - r) * ((n - 1) * r + 1)))

    return float(quad(slowness, p.r0, 1 - p.reach, limit=200)[0])


def _off(c: Curve) -> float:
    return float(max(np.abs(c.low - c.r).max(), np.abs(c.high - c.r).max()))


def _summary(curves: list[Curve]) -> str:
    worst = max(curves, key=_off)
    tanh = [c for c in curves if (c.model, c.n, c.beta) == ("SA", 2, 0.0) and c.r[0] == 0]
    text = (
        f"In {len(curves)} runs every pair of tokens stays within {_off(worst):.2g} of the "
        f"equation at every time (worst: {worst.model}, n = {worst.n}, beta = {worst.beta:g})."
    )
    if tanh:
        gap = float(np.abs(tanh[0].low - np.tanh(tanh[0].t)).max())
        text += f" For n = 2, beta = 0 the full run is within {gap:.2g} of tanh t."
    return text


def _table(curves: list[Curve]) -> Table:
    rows = tuple(
        (
            c.model,
            c.n,
            c.beta,
            float(c.t[-1]),
            _off(c),
            c.rate,
            2.0 if c.model == "SA" else float(2 * np.exp(c.beta)),
        )
        for c in curves
    )
    columns = ("model", "n", "beta", "arrival", "largest error", "rate at the end", "theory")
    note = "Error over all pairs and times; the rate is that of 1 - r between the last two times."
    return Table("Full dynamics against the equation", columns, rows, note)


def _draw(p: Params, curves: list[Curve]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import LABEL, PALETTE

    figure = Figure(figsize=(3.0 * len(p.n) + 0.4, 5.6), layout="constrained")
    axes = figure.subplots(2, len(p.n), sharey=True, squeeze=False)
    for row, model in zip(axes, ("SA", "USA")):
        for ax, n in zip(row, p.n):
            for colour, beta in zip(PALETTE, p.beta):
                (c,) = [c for c in curves if (c.model, c.n, c.beta) == (model, n, beta)]
                share = c.t / c.t[-1]
                ax.plot(share, c.r, color=colour, lw=1.2, label=rf"$\beta$ = {beta:g}")
                mean = (c.low + c.high) / 2
                ax.plot(share[::8], mean[::8], "o", ms=3.5, color=colour)
            ax.set_title(f"{model}, n = {n}", fontsize=LABEL)
            tidy(ax)
        row[0].set_ylabel("cosine r")
    for ax in axes[-1]:
        ax.set_xlabel("t / arrival")
    lines, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure
