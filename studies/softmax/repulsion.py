"""V = -I: every token tends to 0, and attention to the uniform matrix (arXiv 2305.05465).

With Q^T K = I the norms stay below max(|x_i(0)|, sqrt(2n)) and all tokens collapse to the origin.
See two regimes. First the mean dies, like e^(-t). Then weights are all but equal, and tokens feel
only the next order of the softmax, x_i' = -C x_i with C their covariance: C' = -2 C^2, so each
eigenvalue of C tends to 1/(2t), and tokens shrink like t^(-1/2), without changing their pattern.
What is left of the mean is driven by the order after that, five factors of x: like t^(-5/2).

Beside it, uniform attention (Q = 0): the mean dies, the tokens keep their distances. The slow decay
is that of the softmax, not of V = -I.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "V = -I: collapse to the origin"


@dataclass(frozen=True)
class Params:
    """Starts uniform in [-side, side]^d, followed to a long time at geometric steps; the controls
    have the `sides`, `ns` tokens and `starts` starts, in the plane."""

    n: int = 40
    d: tuple[int, ...] = (1, 2, 3)
    side: float = 2.0
    time: float = 1e5
    saved: int = 240
    show: tuple[float, ...] = (0.0, 0.3, 1.0, 10.0, 1000.0)
    sides: tuple[float, ...] = (0.5, 5.0)
    ns: tuple[int, ...] = (5, 160)
    starts: int = 10
    seed: int = 0


QUICK = Params(d=(2,), time=1e4, saved=120, sides=(5.0,), ns=(5,), starts=2)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """One run per dimension."""
    over = st.measuring(p, progress)
    st.require(p.n >= 2 and p.saved >= 10 and p.time > 100, "n >= 2, saved >= 10, time > 100", p)
    flows = over(_flow, {"d": p.d})
    runs = {f"d = {d}": tr for d, tr in zip(p.d, flows)}
    figures = [st.Picture.of("Decay", _curves, runs)]
    if "d = 2" in runs:
        figures.insert(0, st.Picture.of("Tokens in the plane", _plane, p, runs["d = 2"]))
    checks = {name: cy.check(tr, only=("B28",)) for name, tr in runs.items()}
    varied = [
        *((p.n, p.side, p.seed + s, True) for s in range(1, p.starts + 1)),
        *((p.n, side, p.seed, True) for side in p.sides),
        *((n, p.side, p.seed, True) for n in p.ns),
        (p.n, p.side, p.seed, False),
    ]
    ends = over(_end, {"control (n, side, seed, softmax)": varied})
    columns = st.columns(
        "attention, n, side, seed, power of t = exponent, largest |2t cov - 1| = off, "
        "spread left = left"
    )
    return st.report_of(
        p,
        _summary(runs),
        controls=_comparisons(p, ends),
        tables=[st.Table.of("Other starts, in the plane", ends, columns)],
        checks=checks,
        figures=figures,
    )


def _end(p: Params, case: tuple[int, float, int, bool]) -> st.Cell:
    """Where a run in the plane ends."""
    n, side, seed, soft = case
    z0 = side * cy.configurations.box(n, 2, seed)
    times = np.concatenate([[0.0], np.geomspace(1e-2, p.time, p.saved)])
    flow = cy.dynamics.EuclideanFlow(Q=None if soft else np.zeros((2, 2)), V=-np.eye(2))
    tr = cy.simulate(flow, z0, times=times, stepper=cy.simulation.Adaptive(1e-9, 1e-13, "LSODA"))
    spread = _spread(tr.values)
    return st.Cell(
        **{"n": n, "side": side, "seed": seed, "attention": "softmax" if soft else "uniform"},
        exponent=_exponent(tr),  # power of t in the longest token
        off=float(np.abs(2 * tr.t[-1] * spread[-1] - 1).max()),  # over the eigenvalues
        left=float(spread[-1].sum() / spread[0].sum()),  # of the trace of the covariance
    )


def _comparisons(p: Params, ends: list[st.Cell]) -> list[st.Comparison]:
    soft = [e for e in ends if e.attention == "softmax"]
    (uniform,) = (e for e in ends if e.attention == "uniform")
    powers = [e.exponent for e in soft]
    low, high = st.resampled(powers)
    return [
        st.Comparison(
            "tokens shrink like t^(-1/2)",
            f"{p.starts} starts, sides {', '.join(f'{x:g}' for x in p.sides)}, n = "
            f"{', '.join(map(str, p.ns))}; uniform attention",
            f"power of t {min(powers):.4f} to {max(powers):.4f} (95 % for the mean {low:.4f} to "
            f"{high:.4f}); uniform attention {uniform.exponent:.4f}",
            max(abs(x + 0.5) for x in powers) < 0.01 and abs(uniform.exponent) < 0.01,
        ),
        st.Comparison(
            "2t times the covariance tends to I",
            "the same; uniform attention, which keeps every distance",
            f"eigenvalues within {max(e.off for e in soft):.1g} of 1 at t = {p.time:g}; under "
            f"uniform attention {uniform.left:.3f} of the spread is left",
            max(e.off for e in soft) < 0.01 and uniform.left > 0.99,
        ),
    ]


def _flow(p: Params, d: int) -> cy.Trajectory:
    z0 = p.side * cy.configurations.box(p.n, d, p.seed)
    times = np.concatenate([[0.0], np.geomspace(1e-2, p.time, p.saved)])
    stepper = cy.simulation.Adaptive(
        1e-9, 1e-13, "LSODA"
    )  # near rest for most of the time: implicit steps
    return cy.simulate(cy.dynamics.EuclideanFlow(V=-np.eye(d)), z0, times=times, stepper=stepper)


def _longest(x: np.ndarray) -> Any:
    """The length of the longest token, over the last two axes (n, d)."""
    return np.linalg.norm(x, axis=-1).max(axis=-1)


def _spread(x: np.ndarray) -> np.ndarray:
    """Eigenvalues of the covariance, (times, d)."""
    away = x - x.mean(axis=1, keepdims=True)
    return np.linalg.eigvalsh(np.einsum("tni,tnj->tij", away, away) / x.shape[1])


def _uneven(tr: cy.Trajectory, k: int) -> float:
    """max_ij |n P_ij - 1| at a saved time."""
    assert tr.dynamics is not None
    P = cy.spectra.attention_matrix(tr.dynamics, tr.values[k], float(tr.t[k]))
    return float(np.abs(len(P) * P - 1).max())


def _exponent(tr: cy.Trajectory) -> float:
    """The fitted power of t in the longest token, over the last two decades."""
    late = tr.t >= tr.t[-1] / 100
    return float(np.polyfit(np.log(tr.t[late]), np.log(_longest(tr.values[late])), 1)[0])


def _summary(runs: dict[str, cy.Trajectory]) -> str:
    return " ".join(
        f"{name}: from {_longest(tr.values[0]):.3g} the longest token falls "
        f"to {_longest(tr.values[-1]):.3g} at t = {tr.t[-1]:g}, like "
        f"t^({_exponent(tr):.4f}) at the end (expected: -1/2); the covariance times 2t has "
        f"eigenvalues within {np.abs(2 * tr.t[-1] * _spread(tr.values[-1:]) - 1).max():.2g} of 1, "
        f"and weights are within {_uneven(tr, -1):.1g}/n of 1/n."
        for name, tr in runs.items()
    )


def _plane(p: Params, tr: cy.Trajectory) -> Any:
    """Tokens x_i(t); each panel has its own scale, which shrinks. The mean reaches 0 first."""
    figure, axes = cy.plot.sheet(1, len(p.show), 2.6, 2.8)
    for ax, t in zip(axes[0], p.show):
        k = tr.nearest(t)
        x = tr.values[k]
        cy.plot.dots(ax, x, np.zeros(len(x), dtype=int), s=20, zorder=3)
        ax.plot(*x.mean(axis=0), "x", color=cy.plot.PALETTE[1], zorder=4)
        ax.plot([0], [0], "+", color=cy.plot.GREY)
        reach = 1.15 * float(np.abs(x).max())
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        ax.set_title(f"t = {tr.t[k]:.3g}", fontsize=cy.plot.LABEL)
        ax.locator_params(nbins=4)
    return figure


def _curves(runs: dict[str, cy.Trajectory]) -> Any:
    """Left: longest token, beside t^(-1/2). Middle: length of the mean, which dies like e^(-t),
    then like t^(-5/2). Right: eigenvalues of the covariance times 2t, which tend to 1, and the
    largest distance of a weight from 1/n, times n.
    """
    figure, axes = cy.plot.sheet(1, 3, 4, 3.5)
    left, middle, right = axes[0]
    for colour, (name, tr) in zip(cy.plot.PALETTE, runs.items()):
        t, x = tr.t[1:], tr.values[1:]
        mean = np.linalg.norm(x.mean(axis=1), axis=1)
        left.plot(t, _longest(x), color=colour, label=name)
        middle.plot(t, mean, color=colour, label=name)
        for j, line in enumerate((2 * t[:, None] * _spread(x)).T):
            right.plot(t, line, color=colour, label=f"{name}: 2t cov" if j == 0 else None)
        uneven = [_uneven(tr, k) for k in range(1, len(tr.t))]
        right.plot(t, uneven, ":", color=colour, label=f"{name}: |nP - 1|")
    law: dict[str, Any] = {"ls": "--", "color": cy.plot.INK, "lw": 1}
    left.plot(t, t**-0.5, label="$t^{-1/2}$", **law)
    late = t >= 10
    middle.plot(t[late], mean[late][0] * (t[late] / t[late][0]) ** -2.5, label="$t^{-5/2}$", **law)
    for ax, name in zip(axes[0], ("longest token", "length of the mean", "")):
        ax.set(xscale="log", yscale="log", xlabel="time t", ylabel=name)
        ax.legend(frameon=False, fontsize=cy.plot.LABEL - 1, ncols=2 if ax is right else 1)
    right.set_ylim(1e-3, 3e3)
    return figure
