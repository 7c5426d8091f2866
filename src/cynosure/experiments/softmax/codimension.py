"""The codimension-k conjecture of arXiv 2305.05465, tried on the paper's matrix and on random ones.

Conjecture: if k eigenvalues of V have positive real part, the rescaled tokens z_i = e^(-tV) x_i
tend to at most three parallel affine subspaces of codimension k. With f_1*, ..., f_k* the dual
eigenvectors this says: the points (f_1*(z_i), ..., f_k*(z_i)) of R^k have at most three limits.
For k = 1 it is the theorem on hyperplanes; for larger k nothing is proved. See the paper's example
(two positive eigenvalues, one negative: tokens end on lines), the leading components on their way,
and, over random V, how many limits there are. The tokens are followed in the eigenbasis of V, where
the growing components cannot drown the others in rounding.

Trap: count late. Where the second eigenvalue is near the first, scores along the leading direction
overtake the others only like e^(2 (l1 - l2) t), and until then a further group stands still as if
it were a limit; the table has the count at an earlier time beside the last one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import RescaledFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import RK4, Adaptive, Stepper
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress, silent
from .._measurements import kept
from ._flow_panels import nearest, panels

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Codimension k: a conjecture tried"
PAPER_V = (
    (0.92761287, 0.94333073, 0.3827744),
    (0.94333073, 0.59991396, 0.47825472),
    (0.3827744, 0.47825472, 0.46668605),
)
KINDS = ("real", "complex pair")


@final
@dataclass(frozen=True)
class Params:
    """Random V: (d, k) cells; eigenvalues in [least, 1] and, the rest, in [-1/2, 0]."""

    n: int = 40
    side: float = 5.0
    show: tuple[float, ...] = (0.0, 0.5, 1.0, 3.0, 6.0)
    cells: tuple[tuple[int, int], ...] = ((2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (5, 3))
    least: float = 0.4
    matrices: int = 12
    tol: float = 1e-3
    seed: int = 0


QUICK = Params(cells=((3, 2),), matrices=2)


class Try(NamedTuple):
    """One random V, or one start: how many limits the leading k components have."""

    d: int
    k: int
    kind: str
    early: int  # groups at 3/5 of the time
    limits: int
    spread: float  # widest group, relative to the largest component
    apart: float  # smallest distance of two groups, likewise


def run(p: Params, progress: Progress | None = None) -> Report:
    """The paper's matrix, then the random ones."""
    say = progress or silent
    if not all(1 <= k < d for d, k in p.cells) or not 0 < p.least < 1:
        raise ValueError(f"codimension: cells (d, k) with 1 <= k < d, 0 < least < 1; got {p}")
    say(0.0, "the paper's matrix")
    values, S = _paper_modes()
    times, stepper = np.linspace(0, 60, 601), Adaptive(1e-9, 1e-12)
    w = kept(_follow, p, np.diag(values), S, p.seed, times, stepper)
    leading = w.values[..., :2]
    end = clusters(leading[-1], p.tol * float(np.abs(leading[-1]).max()))
    todo = [(d, k, kind) for d, k in p.cells for kind in KINDS if kind == "real" or k >= 3]
    tried: list[Try] = []
    for done, (d, k, kind) in enumerate(todo):
        say(0.1 + 0.7 * done / len(todo), f"random matrices, d = {d}, k = {k}, {kind}")
        tried += kept(_tries, p, d, k, kind)
    # tolerances are relative to the longest token: judge before the growing component is huge
    early = replace(w, z=w.z[:201], t=w.t[:201])
    say(0.8, "figures")
    tokens = replace(w, z=w.values @ S.T)
    drawn = panels({"the paper's V": tokens}, p.show, {"the paper's V": end.labels})
    figures = (
        Picture("Tokens", _TOKENS, drawn),
        Picture("Leading components", _LEADING, _components(p, w, end.labels)),
        Picture("Number of limits", _COUNTS, _bars(p, tried)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, values, end.count, np.bincount(end.labels), tried),
        asdict(p),
        (_table(p, tried),),
        {"the paper's V, t <= 20": tuple(check(early, only=("B26",)))},
        figures,
        command="cynosure run codimension",
    )


_TOKENS = (
    "Rescaled tokens for the paper's V, in the colour of the line they end on. The third direction "
    "of V has a negative eigenvalue: along it tokens spread without bound."
)
_LEADING = (
    "The components along the two eigenvectors of positive eigenvalue. First the larger eigenvalue "
    "parts the tokens, then the smaller draws each part together, at its own slower rate."
)
_COUNTS = (
    "Random V with k eigenvalues of positive real part: number of limits of the leading k "
    "components. The conjecture allows three at most."
)


def _paper_modes() -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, descending, and eigenvectors of the paper's V, which is symmetric."""
    values, S = np.linalg.eigh(np.array(PAPER_V))
    return values[::-1], S[:, ::-1]


def _follow(
    p: Params, D: np.ndarray, S: np.ndarray, seed: int, times: np.ndarray, stepper: Stepper
) -> Trajectory:
    """z = S w for V = S D S^-1, Q = K = I: then w is the same flow with V = D, Q = K = S."""
    z0 = p.side * configurations.box(p.n, len(D), seed)
    w0 = np.linalg.solve(S, z0.T).T
    return simulate(RescaledFlow(Q=S, K=S, V=D), w0, times=times, stepper=stepper)


def _random_modes(
    rng: np.random.Generator, d: int, k: int, kind: str, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """D with l1 = 1 and k - 1 more eigenvalues in [least, 1) by real part, S a random basis."""
    positive = np.sort(rng.uniform(least, 0.95, k - 1))[::-1]
    D = np.diag(np.concatenate([[1.0], positive, rng.uniform(-0.5, 0, d - k)]))
    if kind == "complex pair":  # the last two of the leading block turn while they shrink
        turn = rng.uniform(0.2, 1)
        D[k - 1, k - 1] = D[k - 2, k - 2]
        D[k - 2, k - 1], D[k - 1, k - 2] = -turn, turn
    S = np.linalg.qr(rng.standard_normal((d, d)))[0] + 0.3 * rng.standard_normal((d, d))
    return D, S


def _tries(p: Params, d: int, k: int, kind: str) -> list[Try]:
    out = []
    rng = np.random.default_rng([p.seed, d, k, len(kind)])
    for m in range(p.matrices):
        D, S = _random_modes(rng, d, k, kind, p.least)
        # Fixed steps: once tokens agree to rounding, who is looked at is decided by noise, and
        # error control would follow every change of mind with a tiny step.
        last = 20 / p.least
        times = np.array([0.0, 0.6 * last, last])
        followed = _follow(p, D, S, p.seed + m, times, RK4(0.1)).values[..., :k]
        early = clusters(followed[1], p.tol * float(np.abs(followed[1]).max())).count
        w = followed[2]
        size = float(np.abs(w).max())
        found = clusters(w, p.tol * size)
        gaps = np.linalg.norm(found.centres[:, None] - found.centres, axis=2)
        apart = gaps[np.triu_indices(found.count, 1)].min(initial=np.inf) / size
        spread = float(np.abs(w - found.centres[found.labels]).max()) / size
        out.append(Try(d, k, kind, early, found.count, spread, float(apart)))
    return out


def _summary(p: Params, values: np.ndarray, count: int, sizes: np.ndarray, tried: list[Try]) -> str:
    over = [t for t in tried if t.limits > 3]
    several = [t for t in tried if t.k > 1]
    share = ", ".join(
        f"{c}: {sum(t.limits == c for t in several)}" for c in sorted({t.limits for t in several})
    )
    shown = ", ".join(f"{v:.3f}" for v in values)
    verdict = (
        f"{len(over)} of {len(tried)} have more than three limits: a counterexample, or a run that "
        "is not at its end (see the spread)."
        if over
        else f"none of {len(tried)} has more than three limits: no counterexample found."
    )
    return (
        f"The paper's V has the eigenvalues {shown}; at t = 60 the components along the first two "
        f"have {count} limits ({', '.join(map(str, sizes))} tokens), so the tokens are on {count} "
        f"parallel lines.\n\nRandom V at t = {20 / p.least:g}: {verdict} Number of limits where "
        f"k > 1 ({share}). In {sum(t.early != t.limits for t in tried)} of them the count at "
        f"t = {12 / p.least:g} was another, up to {max(t.early for t in tried)}: groups that stand "
        "still for long and merge after all. A count at a finite time is evidence, no proof."
    )


def _table(p: Params, tried: list[Try]) -> Table:
    rows = []
    for d, k, kind in dict.fromkeys((t.d, t.k, t.kind) for t in tried):
        cell = [t for t in tried if (t.d, t.k, t.kind) == (d, k, kind)]
        count = [t.limits for t in cell]
        apart = min((t.apart for t in cell if np.isfinite(t.apart)), default=None)
        worst = max(t.spread for t in cell)
        rows.append(
            (d, k, kind, len(cell), *(count.count(c) for c in (1, 2, 3)),
             sum(c > 3 for c in count), max(t.early for t in cell), worst, apart)
        )  # fmt: skip
    columns = (
        *("d", "k", "leading block", "matrices", "one", "two", "three", "more"),
        *("most before", "spread", "gap"),
    )
    note = (
        f"At t = {20 / p.least:g}; groups parted by gaps above {p.tol:g} of the largest component. "
        f"Most before: largest count at t = {12 / p.least:g}. "
        "Spread: widest group; gap: nearest two groups; both relative, the worst of the cell."
    )
    return Table("Limits of the leading k components", columns, tuple(rows), note)


def _components(p: Params, w: Trajectory, labels: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import LABEL, PALETTE

    figure = Figure(figsize=(12, 3.4), layout="constrained")
    axes = figure.subplots(1, 4)
    colours = np.array(PALETTE)[labels % len(PALETTE)]
    for ax, t in zip(axes, (0.0, 2.0, 8.0, 60.0)):
        k = nearest(w, t)
        ax.scatter(*w.values[k, :, :2].T, c=colours, s=22, edgecolors="white", linewidths=0.4)
        ax.set_title(f"t = {w.t[k]:g}", fontsize=LABEL)
        reach = 1.1 * np.abs(w.values[..., :2]).max(axis=(0, 1))
        ax.set(xlim=(-reach[0], reach[0]), ylim=(-reach[1], reach[1]), xlabel="$f_1^*(z_i)$")
        tidy(ax)
    axes[0].set_ylabel("$f_2^*(z_i)$")
    return figure


def _bars(p: Params, tried: list[Try]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from ...drawing.plot import INK, LABEL, PALETTE

    figure = Figure(figsize=(8.5, 3.4), layout="constrained")
    ax = figure.subplots()
    cells = list(dict.fromkeys((t.d, t.k, t.kind) for t in tried))
    most = max(4, *(t.limits for t in tried))
    bottom = np.zeros(len(cells))
    for c in range(1, most + 1):
        height = [sum(t.limits == c for t in tried if (t.d, t.k, t.kind) == cell) for cell in cells]
        if any(height):
            name = "1 limit" if c == 1 else f"{c} limits"
            ax.bar(range(len(cells)), height, bottom=bottom, color=PALETTE[c - 1], label=name)
        bottom += height
    names = [f"d = {d}, k = {k}" + ("" if kind == "real" else f"\n{kind}") for d, k, kind in cells]
    ax.set_xticks(range(len(cells)), names, fontsize=LABEL)
    ax.set(ylabel="matrices", ylim=(0, 1.25 * bottom.max()))
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    tidy(ax)
    ax.legend(frameon=False, fontsize=LABEL, ncols=4, loc="upper center")
    ax.axhline(0, color=INK, lw=0.8)
    return figure
