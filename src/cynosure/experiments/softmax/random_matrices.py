"""Leaders under random symmetric positive definite A and V.

Hardmax layers (arXiv 2407.01602) with random A of condition number kappa, against the law of B14;
and the softmax flow of arXiv 2305.05465 with random definite A = K^T Q and V, in the variables
y = e^{-l1 t} x. See: the flatter A, the fewer leaders, down to the two ends of its long axis, as
the law says. For softmax a random A alone keeps the polytope; a random V, whose leading eigenvalue
is simple, leaves two leaders (one where all tokens lie on one side), whatever A is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.limits import limit
from ...analysis.spectra import good_triple
from ...attention import Hardmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import LeadingFlow, PureAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check, expected_leaders
from .._frame import Progress, at_most, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Leaders under random definite A and V"
KINDS = ("A = I, V = I", "random A, V = I", "A = I, random V", "random A and V")


@final
@dataclass(frozen=True)
class Params:
    """Hardmax: n Gaussian tokens, `draws` of (tokens, A) per kappa and d. Softmax: `flows` runs of
    `few` tokens of root mean square length `size`, kappa = `kappa_flow`, to `time` / l1."""

    kappa: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    d: tuple[int, ...] = (2, 3, 4)
    n: int = 100
    draws: int = 200
    alpha: float = 1.0
    flows: int = 20
    few: int = 30
    size: float = 2.0
    kappa_flow: float = 5.0
    time: float = 20.0
    seed: int = 0


QUICK = Params(kappa=(1.0, 10.0, 100.0), d=(2, 3), n=40, draws=20, flows=3, few=16)


class Count(NamedTuple):
    """Hardmax leaders of one (d, kappa): at layer 0 and in the limit, per draw; and the law."""

    first: np.ndarray
    last: np.ndarray
    expected: float


class Ended(NamedTuple):
    """One softmax run."""

    leaders: int  # tokens with more than half of somebody's attention at the end
    limits: int
    gap: float  # l1 - |l2| of V
    run: Trajectory


def run(p: Params, progress: Progress | None = None) -> Report:
    """The law of leaders, then the flows."""
    say = progress or silent
    if min(p.kappa) < 1 or min(*p.d, p.few, p.n) < 2 or min(p.draws, p.flows) < 2:
        raise ValueError(f"random_matrices: kappa >= 1, d, n, few, draws, flows >= 2; got {p}")
    counts: dict[tuple[int, float], Count] = {}
    for d in p.d:
        for kappa in p.kappa:
            say(0.5 * len(counts) / len(p.d) / len(p.kappa), f"hardmax, d = {d}, kappa = {kappa:g}")
            counts[d, kappa] = kept(_count, p, d, kappa)
    ended: dict[str, list[Ended]] = {}
    for kind in KINDS:
        say(0.5 + 0.1 * len(ended), kind)
        ended[kind] = [kept(_ended, p, kind, s) for s in range(p.flows)]
    say(0.9, "figures")
    figures = (
        Picture("Hardmax leaders against kappa", _LAW, _law(p, counts)),
        Picture("Softmax flows under random A and V", _PANELS, _panels(ended)),
    )
    # Counts of leaders spread less than Poisson ones; 1 % is the law's own quadrature.
    worst = max(
        abs(c.first.mean() - c.expected) / (5 * np.sqrt(c.expected / p.draws) + 0.01 * c.expected)
        for c in counts.values()
    )
    law = at_most(
        "B14",
        "docs/mathematics.md B14, general A",
        "the mean number of leaders at layer 0 is the expected one (in five standard errors)",
        worst,
        1.0,
        cells=len(counts),
    )
    checks: dict[str, tuple[Any, ...]] = {"hardmax": (law,)}
    for kind, found in ended.items():
        checks[kind] = tuple(check(found[0].run, only=("B24", "B26")))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, counts, ended),
        asdict(p),
        (_law_table(counts), _flow_table(ended)),
        checks,
        figures,
        command="cynosure run random_matrices",
    )


_LAW = (
    "Mean number of leaders of n Gaussian tokens under hardmax with a random A of condition number "
    "kappa: at layer 0 (dots, bars are two standard errors), in the limit (crosses), and the "
    "expected number at layer 0 (lines, B14)."
)
_PANELS = (
    "One start under the four kinds of matrices: tokens y from grey circles along thin paths to "
    "squares; stars are the tokens that hold more than half of somebody's attention at the end. A "
    "random V leaves two of them at most, at the ends of its leading direction (dashed)."
)


def _definite(d: int, kappa: float, rng: np.random.Generator) -> np.ndarray:
    """Eigenvalues from 1 to 1/kappa, evenly spaced in the logarithm, in random directions."""
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = (turn * np.geomspace(1, 1 / kappa, d)) @ turn.T
    return (A + A.T) / 2


def _count(p: Params, d: int, kappa: float) -> Count:
    first, last = [], []
    for s in range(p.draws):
        rng = np.random.default_rng([p.seed, d, s])
        A, z0 = _definite(d, kappa, rng), rng.standard_normal((p.n, d))
        first.append(int(Hardmax(A).followed(z0).leads.sum()))
        last.append(len(limit(PureAttention(Hardmax(A), alpha=p.alpha), z0).leaders))
    form = np.diag(np.geomspace(1, 1 / kappa, d))  # its directions do not matter
    return Count(np.array(first), np.array(last), expected_leaders(p.n, d, form))


def _standard_error(c: Count) -> float:
    return float(c.first.std(ddof=1) / np.sqrt(len(c.first)))


def _ended(p: Params, kind: str, s: int) -> Ended:
    rng = np.random.default_rng([p.seed, 9, s])
    A, V = _definite(2, p.kappa_flow, rng), _definite(2, p.kappa_flow, rng)
    flow = LeadingFlow(
        Q=A if kind in (KINDS[1], KINDS[3]) else np.eye(2),
        V=V if kind in (KINDS[2], KINDS[3]) else np.eye(2),
    )
    z0 = p.size / np.sqrt(2) * configurations.gaussian(p.few, 2, p.seed + s)
    times = np.linspace(0, p.time, 61)
    tr = simulate(flow, z0, times=times, stepper=Adaptive(1e-8, 1e-11))
    heard = flow.weights(tr.values[-1], p.time).max(axis=0) > 0.5
    size = float(np.abs(tr.values[-1]).max())
    gap = good_triple(V=flow.V).gap
    return Ended(int(heard.sum()), clusters(tr.values[-1], 1e-3 * size).count, gap, tr)


def _law_table(counts: dict[tuple[int, float], Count]) -> Table:
    rows = tuple(
        (
            d,
            kappa,
            float(c.first.mean()),
            2 * _standard_error(c),
            c.expected,
            float(c.last.mean()),
            float((c.last > c.first).mean()),
        )
        for (d, kappa), c in counts.items()
    )
    columns = (
        "d",
        "kappa",
        "leaders at layer 0",
        "two standard errors",
        "expected",
        "leaders in the limit",
        "runs with an emerging leader",
    )
    return Table("Hardmax leaders", columns, rows)


def _flow_table(ended: dict[str, list[Ended]]) -> Table:
    rows = tuple(
        (
            kind,
            float(np.mean([e.leaders for e in found])),
            max(e.leaders for e in found),
            float(np.mean([e.limits for e in found])),
            float(np.mean([e.gap for e in found])),
        )
        for kind, found in ended.items()
    )
    columns = ("matrices", "mean leaders", "most", "mean limits of y", "l1 - |l2| of V")
    note = "A leader holds more than half of somebody's attention at the end."
    return Table("Softmax flows", columns, rows, note)


def _summary(
    p: Params, counts: dict[tuple[int, float], Count], ended: dict[str, list[Ended]]
) -> str:
    low, high = min(p.kappa), max(p.kappa)
    parts = "; ".join(
        f"d = {d}: {counts[d, low].first.mean():.3g} leaders at kappa = {low:g} (expected "
        f"{counts[d, low].expected:.3g}), {counts[d, high].first.mean():.3g} at {high:g} "
        f"({counts[d, high].expected:.3g})"
        for d in p.d
    )
    flows = ", ".join(
        f"{kind}: {np.mean([e.leaders for e in found]):.2g}" for kind, found in ended.items()
    )
    most = max(e.leaders for kind in KINDS[2:] for e in ended[kind])
    return (
        f"Hardmax, {p.n} Gaussian tokens. {parts}.\n\nSoftmax flows, mean leaders over {p.flows} "
        f"starts of {p.few} tokens: {flows}. With a random V no run has more than {most}."
    )


def _law(p: Params, counts: dict[tuple[int, float], Count]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 1, 6.5, 4.2)
    ax = axes[0, 0]
    for colour, d in zip(PALETTE, p.d, strict=False):
        cells = [counts[d, kappa] for kappa in p.kappa]
        ax.plot(p.kappa, [c.expected for c in cells], color=colour, lw=1)
        bars = [2 * _standard_error(c) for c in cells]
        means = [c.first.mean() for c in cells]
        ax.errorbar(p.kappa, means, bars, fmt="o", color=colour, ms=5, label=f"d = {d}")
        ax.plot(p.kappa, [c.last.mean() for c in cells], "x", color=colour, ms=7)
    ax.plot([], [], "x", color="grey", label="in the limit")
    ax.plot([], [], color="grey", lw=1, label="expected (B14)")
    ax.axhline(2, color="black", lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="condition number of A", ylabel="leaders")
    ax.legend(frameon=False)
    return figure


def _panels(ended: dict[str, list[Ended]]) -> Any:
    from ...drawing.plot import GREY, PALETTE

    figure, axes = sheet(1, len(ended), 3.6, 3.9)
    for ax, (kind, found) in zip(axes[0], ended.items(), strict=True):
        tr = found[0].run
        y, flow = tr.values, tr.dynamics
        assert isinstance(flow, LeadingFlow) and flow.V is not None
        heard = flow.weights(y[-1], float(tr.t[-1])).max(axis=0) > 0.5
        if kind in KINDS[2:]:
            ax.axline((0, 0), np.linalg.eigh(flow.V)[1][:, -1], ls="--", lw=0.8, color="black")
        ax.plot(y[..., 0], y[..., 1], color=GREY, lw=0.6, zorder=1)
        ax.plot(*y[0].T, "o", color=GREY, ms=3, label="start")
        ax.plot(*y[-1].T, "s", color=PALETTE[1], ms=6, label="end")
        ax.plot(*y[0, heard].T, "*", color=PALETTE[2], ms=12, label="leader, at its start")
        ax.set(aspect="equal", title=kind, xlabel="$y_1$", ylabel="$y_2$")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure
