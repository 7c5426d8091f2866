"""Attention on the sphere against the inverse temperature: one cluster, sooner or later.

For d >= 3 and every beta >= 0 almost every start ends in a single point (arXiv 2312.10794, Theorem
6.1; for d = 2 proved later). What beta changes is the waiting time: see the paper's phase diagrams
(n = 32 tokens, uniform on the sphere), the share of pairs that have met by time t, with the curve
on which n equiangular tokens would meet; it is sharp in high dimension, where random tokens are
all but orthogonal. Below, tokens on S^2 for three values of beta: large beta lingers in clusters.

Last, where the normalisation stands: after the attention, as on the sphere (post-norm), or before
it (pre-norm, `PreNormFlow`). See 1 - r, r the mean cosine, fall like e^{-2t} and like t^{-2} (B34).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ...analysis.clustering import clusters
from ...attention import Softmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import PreNormFlow, SphereFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import RK4, Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import Check, check
from ...theorems.sphere import equiangular, hemisphere_probability
from .._frame import Progress, at_most, silent
from .._measurements import kept
from ..softmax._flow_panels import nearest

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "The sphere against beta: when tokens meet"


@final
@dataclass(frozen=True)
class Params:
    """Grid of beta and times for the diagram; a pair has met when its cosine is >= 1 - `met`;
    pre-norm is followed up to the time `long`."""

    n: int = 32
    d: tuple[int, ...] = (2, 8, 32, 128)
    most_beta: float = 10.0
    betas: int = 21
    time: float = 30.0
    dt: float = 0.1
    starts: int = 8
    met: float = 1e-3
    drawn: tuple[float, ...] = (1.0, 4.0, 9.0)
    show: tuple[float, ...] = (0.0, 1.0, 4.0, 15.0, 60.0)
    long: float = 1000.0
    seed: int = 0


QUICK = Params(d=(2, 8), betas=5, time=10.0, dt=0.25, starts=2)


def run(p: Params, progress: Progress | None = None) -> Report:
    """The phase diagrams, then the runs on S^2."""
    say = progress or silent
    if p.n < 2 or p.betas < 2 or min(p.d) < 2 or p.starts < 1:
        raise ValueError(f"sphere_beta: n, d, betas start at 2 and starts at 1; got {p}")
    betas = np.linspace(0, p.most_beta, p.betas)
    times = np.linspace(0, p.time, 61)
    share = {}
    for done, d in enumerate(p.d):
        share[d] = np.empty((p.betas, len(times)))
        for b, beta in enumerate(betas):
            say(0.7 * (done + b / p.betas) / len(p.d), f"d = {d}, beta = {beta:g}")
            share[d][b] = kept(_met, p, d, float(beta), times)
    curve = np.array([_meeting_time(p, float(beta)) for beta in betas])
    say(0.7, "tokens on S^2")
    runs, checks = {}, {}
    for beta in p.drawn:
        name = f"beta = {beta:g}"
        z0 = configurations.sphere(p.n, 3, p.seed)
        saved = np.linspace(0, max(p.show), 241)
        runs[name] = simulate(SphereFlow(Softmax(beta)), z0, times=saved, stepper=Adaptive(1e-9))
        checks[name] = tuple(check(runs[name], only=("B30",)))
    say(0.75, "pre-norm and post-norm")
    norms = _normalised(p)
    checks["pre-norm and post-norm"] = _rates(norms)
    say(0.8, "figures")
    figures = (
        Picture("Phase diagram", _PHASE, _diagram(p, betas, times, share)),
        Picture("Tokens on the sphere", _SPHERES, _spheres(p, runs)),
        Picture("Clusters over time", _COUNTS, _counts(runs)),
        Picture("Pre-norm and post-norm", _NORMS, _norm_figure(p, norms)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, betas, times, share, runs) + _norm_text(norms),
        asdict(p),
        (_table(p, betas, times, share, curve), _wendel(p), _norm_table(norms)),
        checks,
        figures,
        command="cynosure run sphere_beta",
    )


_PHASE = (
    "Share of pairs of tokens with cosine above 1 - `met` by time t, mean over random starts. Red: "
    "when n tokens that start exactly orthogonal would meet (B31). In high dimension the change is "
    "sharp and follows the curve; on the circle tokens linger in several clusters."
)
_SPHERES = "Uniform tokens on S^2 (seen from outside, the far side pale), several beta and times."
_COUNTS = "Number of clusters (joined at distance 0.1): larger beta waits longer, on plateaus."


_NORMS = (
    "1 - mean cosine of uniform tokens on S^2, beta = 1, from one start. Left, logarithmic: "
    "post-norm falls like e^(-2t) (dashed), pre-norm does not. Right, double logarithmic: pre-norm "
    "falls like t^(-2) (dashed), because |x| grows like t and slows all turning down."
)


def _normalised(p: Params) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(t, 1 - mean cosine) of both flows from one start."""
    z0 = configurations.sphere(p.n, 3, p.seed)
    clocks = {
        "post-norm": (SphereFlow(Softmax(1.0)), np.linspace(0, 20, 161)),
        "pre-norm": (PreNormFlow(Softmax(1.0)), np.append(0, np.geomspace(0.1, p.long, 160))),
    }
    found = {}
    for name, (flow, times) in clocks.items():
        x = simulate(flow, z0, times=times, stepper=Adaptive(1e-10, 1e-13)).values
        u = x / np.linalg.norm(x, axis=-1, keepdims=True)
        apart = u[:, :, None] - u[:, None]  # 1 - <u, v> = |u - v|^2 / 2, without cancellation
        found[name] = times, (apart**2).sum(axis=-1).mean(axis=(1, 2)) / 2
    return found


def _exponents(norms: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Fitted over the last part of each run: -d log(1 - r)/dt, and -d log(1 - r)/d log t."""
    t, post = norms["post-norm"]
    late = (t > t[-1] / 2) & (post > 1e-18)
    s, pre = norms["pre-norm"]
    end = s > s[-1] / 10
    return {
        "post-norm": float(-np.polyfit(t[late], np.log(post[late]), 1)[0]),
        "pre-norm": float(-np.polyfit(np.log(s[end]), np.log(pre[end]), 1)[0]),
    }


def _rates(norms: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[Check, ...]:
    laws = {"post-norm": "1 - r falls like e^(-2t)", "pre-norm": "1 - r falls like t^(-2)"}
    return tuple(
        at_most("B34", "arXiv 2512.01868, rates", f"{name}: {laws[name]}", abs(found - 2), 0.1)
        for name, found in _exponents(norms).items()
    )


def _norm_text(norms: dict[str, tuple[np.ndarray, np.ndarray]]) -> str:
    found = _exponents(norms)
    return (
        f"\n\nPost-norm: 1 - r falls like e^(-{found['post-norm']:.3f} t); pre-norm: like "
        f"t^(-{found['pre-norm']:.3f}). Theory: 2 and 2."
    )


def _norm_table(norms: dict[str, tuple[np.ndarray, np.ndarray]]) -> Table:
    rows = tuple(
        (name, float(t[k]), float(gap[k]))
        for name, (t, gap) in norms.items()
        for k in range(0, len(t), 20)
    )
    return Table("Pre-norm and post-norm", ("flow", "t", "1 - mean cosine"), rows)


def _norm_figure(p: Params, norms: dict[str, tuple[np.ndarray, np.ndarray]]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, LABEL, PALETTE

    figure = Figure(figsize=(9.2, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, (name, (t, gap)) in zip(PALETTE, norms.items()):
        left.semilogy(t, gap, color=colour, label=name)
        right.loglog(t[1:], gap[1:], color=colour, label=name)
    t, gap = norms["post-norm"]
    k = int(np.argmax(t >= 10))
    left.semilogy(t, gap[k] * np.exp(-2 * (t - t[k])), "--", color=INK, lw=0.9, label="$e^{-2t}$")
    t, gap = norms["pre-norm"]
    law = gap[-1] * (t[1:] / t[-1]) ** -2.0
    right.loglog(t[1:], law, "--", color=INK, lw=0.9, label="$t^{-2}$")
    left.set(xlim=(0, 20), ylim=(1e-18, 3), xlabel="time t", ylabel="$1 - r$")
    right.set(ylim=(1e-8, 3), xlim=(0.1, p.long), xlabel="time t", ylabel="$1 - r$")
    for ax in (left, right):
        tidy(ax)
        ax.legend(frameon=False, fontsize=LABEL)
    return figure


def _met(p: Params, d: int, beta: float, times: np.ndarray) -> np.ndarray:
    """The share of pairs that have met at each time; all starts in one batch."""
    z0 = np.stack([configurations.sphere(p.n, d, p.seed + s) for s in range(p.starts)])
    tr = simulate(SphereFlow(Softmax(beta)), z0, times=times, stepper=RK4(p.dt))
    i, j = np.triu_indices(p.n, 1)
    cosines = tr.values @ tr.values.swapaxes(-1, -2)
    return (cosines[..., i, j] >= 1 - p.met).mean(axis=(1, 2))


def _meeting_time(p: Params, beta: float) -> float:
    """When equiangular tokens from r = 0 have met; NaN past the diagram."""
    t = np.linspace(0, p.time, 3001)
    r = equiangular(0.0, t, p.n, beta)
    return float(t[np.argmax(r >= 1 - p.met)]) if r[-1] >= 1 - p.met else float("nan")


def _count(z: np.ndarray) -> int:
    return clusters(z, 0.1).count


def _summary(
    p: Params,
    betas: np.ndarray,
    times: np.ndarray,
    share: dict[int, np.ndarray],
    runs: dict[str, Trajectory],
) -> str:
    low, high = betas[0], betas[-1]
    ends = "; ".join(
        f"d = {d}: {met[0, -1]:.0%} of the pairs for beta = {low:g}, {met[-1, -1]:.0%} for "
        f"beta = {high:g}"
        for d, met in share.items()
    )
    last = "; ".join(
        f"{name}: {_count(tr.values[0])} at first, {_count(tr.values[-1])} at t = {tr.t[-1]:g}"
        for name, tr in runs.items()
    )
    return (
        f"By t = {times[-1]:g} have met, in {p.starts} starts of {p.n} tokens: {ends}.\n\n"
        f"Clusters on S^2: {last}."
    )


def _table(
    p: Params,
    betas: np.ndarray,
    times: np.ndarray,
    share: dict[int, np.ndarray],
    curve: np.ndarray,
) -> Table:
    def half(met: np.ndarray) -> float | None:
        return float(times[np.argmax(met >= 0.5)]) if met[-1] >= 0.5 else None

    rows = tuple(
        (
            float(beta),
            float(curve[b]) if np.isfinite(curve[b]) else None,
            *(half(met[b]) for met in share.values()),
        )
        for b, beta in enumerate(betas)
    )
    columns = ("beta", "equiangular", *(f"half met, d = {d}" for d in p.d))
    note = "Times; empty: later than the diagram."
    return Table("When half of the pairs have met", columns, rows, note)


def _wendel(p: Params) -> Table:
    """Hemisphere starts have a proof with a rate; how many starts are such."""
    rows = []
    for d in (2, 3, *[d for d in p.d if d > 3]):
        rows.append((d, p.n, hemisphere_probability(p.n, d)))
    note = "Wendel: 2^(1-n) sum over k < d of C(n-1, k). B30 needs this to happen by some time."
    return Table("Starts in an open hemisphere", ("d", "n", "probability"), tuple(rows), note)


def _diagram(p: Params, betas: np.ndarray, times: np.ndarray, share: dict[int, np.ndarray]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import LABEL, PALETTE

    smooth = np.linspace(betas[0], betas[-1], 101)
    fine = np.array([_meeting_time(p, float(beta)) for beta in smooth])
    figure = Figure(figsize=(3.0 * len(share) + 0.7, 3.3), layout="constrained")
    axes = figure.subplots(1, len(share), sharey=True, squeeze=False)[0]
    for ax, (d, met) in zip(axes, share.items()):
        image = ax.pcolormesh(times, betas, met, cmap="cividis", vmin=0, vmax=1, shading="nearest")
        ax.plot(fine, smooth, color=PALETTE[1], lw=2, label="equiangular")
        ax.set(xlim=(0, times[-1]), ylim=(betas[0], betas[-1]))
        ax.set_title(f"d = {d}, n = {p.n}", fontsize=LABEL)
        ax.set_xlabel("time t", fontsize=LABEL)
    axes[0].set_ylabel(r"inverse temperature $\beta$", fontsize=LABEL)
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.set_label("pairs that have met", fontsize=LABEL)
    return figure


def _spheres(p: Params, runs: dict[str, Trajectory]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import LABEL, PALETTE

    figure = Figure(figsize=(2.2 * len(p.show), 2.3 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), len(p.show), squeeze=False)
    view = np.linalg.qr(np.array([[1.0, 0.4, 0.3], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]]))[0]
    angle = np.linspace(0, 2 * np.pi, 200)
    for line, colour, (name, tr) in zip(axes, PALETTE, runs.items()):
        for ax, t in zip(line, p.show):
            x = tr.values[nearest(tr, t)] @ view
            ax.fill(np.cos(angle), np.sin(angle), color="#F2F2F2", zorder=0)
            front = x[:, 2] >= 0
            for side, alpha in ((~front, 0.25), (front, 1.0)):
                ax.scatter(*x[side, :2].T, s=18, color=colour, alpha=alpha, linewidths=0)
            ax.set_title(f"t = {t:g}", fontsize=LABEL)
            ax.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal", xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(name, fontsize=LABEL)
    return figure


def _counts(runs: dict[str, Trajectory]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import LABEL, PALETTE

    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    ax = figure.subplots()
    for colour, (name, tr) in zip(PALETTE, runs.items()):
        ax.step(tr.t, [_count(x) for x in tr.values], where="post", color=colour, label=name)
    ax.set(yscale="log", xlabel="time t", ylabel="clusters")
    ax.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    tidy(ax)
    ax.legend(frameon=False, fontsize=LABEL)
    return figure
