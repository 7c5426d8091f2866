"""Attention on the sphere against the inverse temperature: one cluster, sooner or later.

For d >= 3 and every beta >= 0 almost every start ends in a single point (arXiv 2312.10794, Theorem
6.1; for d = 2 proved later). What beta changes is the waiting time: see the paper's phase diagrams
(n = 32 uniform tokens), the share of pairs that have met by time t, with the curve on which n
equiangular tokens would meet; it is sharp in high dimension, where random tokens are all but
orthogonal, and no guide in low dimension. On S^2 large beta lingers in clusters, in how many
depends on the start. How fast tokens meet in the end is in `normalisation`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems.sphere import equiangular

TITLE = "The sphere against beta: when tokens meet"


@dataclass(frozen=True)
class Params:
    """Grid of beta and times for the diagram; a pair has met when its cosine is >= 1 - `met`.
    Controls: `other_n` tokens in the largest d, the clusters of `more` starts on S^2."""

    n: int = 32
    d: tuple[int, ...] = (2, 8, 32, 128)
    most_beta: float = 10.0
    betas: int = 41
    time: float = 30.0
    dt: float = 0.2
    starts: int = 8
    met: float = 1e-3
    drawn: tuple[float, ...] = (1.0, 4.0, 9.0)
    show: tuple[float, ...] = (0.0, 1.0, 4.0, 15.0, 60.0)
    other_n: tuple[int, ...] = (16, 64)
    more: int = 20
    seed: int = 0


QUICK = Params(d=(2, 32), betas=5, time=10.0, dt=0.25, starts=2, other_n=(16,), more=3)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The phase diagrams, and the runs on S^2."""
    over = st.measuring(p, progress)
    st.require(min(p.n, p.betas, *p.d) >= 2 and p.starts >= 1, "n, d, betas >= 2, starts >= 1", p)
    shares = over(_share, {"n": (p.n,), "d": p.d, "beta": _betas(p)}, 0.7)
    met = dict(zip(p.d, np.reshape(shares, (len(p.d), p.betas, -1))))  # d -> (betas, times)
    drawn = over(_on_s2, {"beta": p.drawn}, 0.75)
    runs = {f"beta = {beta:g}": tr for beta, tr in zip(p.drawn, drawn)}
    other = over(_other_n, {"n": p.other_n, "beta": _betas(p)[::4]})
    counts = over(_ends, {"clusters, beta": p.drawn})
    checks = {name: cy.check(tr, only=("B30",)) for name, tr in runs.items()}
    figures = (st.Picture.of("Phase diagram", _draw_met, p, met),)
    half = tuple(
        (beta, _meeting_time(p, beta), *(_first(_times(p), s[b] >= 0.5) for s in met.values()))
        for b, beta in enumerate(_betas(p))
    )
    columns = ("beta", "equiangular", *(f"half met, d = {d}" for d in p.d))
    empty = "Times; empty: later than the diagram."
    tables = [st.Table("When half of the pairs have met", columns, half, empty)]
    controls = _comparisons(p, met, other, dict(zip(p.drawn, counts)))
    text = _summary(p, met, dict(zip(runs, counts)))
    return st.report_of(p, text, controls=controls, tables=tables, checks=checks, figures=figures)


def _betas(p: Params) -> list[float]:
    return [float(beta) for beta in np.linspace(0, p.most_beta, p.betas)]


def _times(p: Params) -> np.ndarray:
    return np.linspace(0, p.time, 121)


def _other_n(p: Params, n: int, beta: float) -> float | None:
    """When half of the pairs have met, over when n equiangular tokens would; None past the end."""
    half = _first(_times(p), _share(p, n, max(p.d), beta) >= 0.5)
    meet = _meeting_time(p, beta, n)
    return half / meet if half is not None and meet is not None else None


def _share(p: Params, n: int, d: int, beta: float) -> np.ndarray:
    """The share of pairs that have met at each time; all starts in one batch."""
    z0 = np.stack([cy.configurations.sphere(n, d, p.seed + s) for s in range(p.starts)])
    flow = cy.SphereFlow(cy.Softmax(beta))
    x = cy.simulate(flow, z0, times=_times(p), stepper=cy.simulation.RK4(p.dt)).values
    i, j = np.triu_indices(n, 1)
    cosines = x @ x.swapaxes(-1, -2)
    return (cosines[..., i, j] >= 1 - p.met).mean(axis=(1, 2))


def _meeting_time(p: Params, beta: float, n: int | None = None) -> float | None:
    """When equiangular tokens from r = 0 have met; None past the diagram."""
    t = np.linspace(0, p.time, 3001)
    return _first(t, equiangular(0.0, t, n or p.n, beta) >= 1 - p.met)


def _first(t: np.ndarray, reached: np.ndarray) -> float | None:
    """The first time at which something is reached that stays so; None if it is not."""
    return float(t[np.argmax(reached)]) if reached[-1] else None


def _on_s2(p: Params, beta: float) -> cy.Trajectory:
    z0 = cy.configurations.sphere(p.n, 3, p.seed)
    flow, times = cy.SphereFlow(cy.Softmax(beta)), np.linspace(0, max(p.show), 241)
    return cy.simulate(flow, z0, times=times, stepper=cy.simulation.Adaptive(1e-9))


def _ends(p: Params, beta: float) -> list[int]:
    """Clusters at the last time shown, from many starts on S^2."""
    z0 = np.stack([cy.configurations.sphere(p.n, 3, p.seed + s) for s in range(p.more)])
    flow, times = cy.SphereFlow(cy.Softmax(beta)), [0.0, max(p.show)]
    ends = cy.simulate(flow, z0, times=times, stepper=cy.simulation.RK4(p.dt)).values[-1]
    return [cy.clusters(z, 0.1).count for z in ends]


def _summary(p: Params, met: dict[int, np.ndarray], counts: dict[str, list[int]]) -> str:
    ends = "; ".join(
        f"d = {d}: {share[0, -1]:.0%} of the pairs for beta = 0, {share[-1, -1]:.0%} for "
        f"beta = {p.most_beta:g}"
        for d, share in met.items()
    )
    last = "; ".join(
        f"{name}: {np.mean(found):.2g} ({min(found)} to {max(found)})"
        for name, found in counts.items()
    )
    return (
        f"By t = {p.time:g} have met, in {p.starts} starts of {p.n} tokens: {ends}.\n\nClusters "
        f"on S^2 at t = {max(p.show):g}, mean and range over {p.more} starts: {last}."
    )


def _against_line(p: Params, share: np.ndarray) -> list[float]:
    """When half of the pairs have met, over the equiangular time, for every beta that has both."""
    pairs = zip(
        (_first(_times(p), s >= 0.5) for s in share), map(partial(_meeting_time, p), _betas(p))
    )
    return [half / meet for half, meet in pairs if half is not None and meet is not None]


def _comparisons(
    p: Params,
    met: dict[int, np.ndarray],
    other: list[float | None],
    counts: dict[float, list[int]],
) -> list[st.Comparison]:
    """The curve in other dimensions and for other n, clusters over starts."""
    ratios = {d: _against_line(p, share) for d, share in met.items()}
    off = {d: max(abs(r - 1) for r in found) for d, found in ratios.items() if found}
    varied = [abs(r - 1) for r in other if r is not None]
    low, high = min(off), max(off)
    spans = {beta: st.resampled(found) for beta, found in counts.items()}
    ends = [spans[beta] for beta in (min(counts), max(counts))]
    return [
        st.Comparison(
            f"d = {high}: half of the pairs meet within 15 % of the equiangular time",
            f"lower d; n = {', '.join(map(str, p.other_n))} in d = {high}",
            "largest relative distance over beta, by d: "
            + ", ".join(f"{d}: {x:.2f}" for d, x in off.items())
            + f"; with other n: {max(varied, default=0.0):.2f} ({len(varied)} times)",
            off[high] < 0.15 and max(varied, default=0.0) < 0.15 and off[low] > 2 * off[high],
        ),
        st.Comparison(
            f"on S^2 larger beta has more clusters left at t = {max(p.show):g}",
            f"{p.more} starts, mean with 95 % bootstrap interval",
            "; ".join(
                f"beta = {beta:g}: {np.mean(found):.2g} ({spans[beta][0]:.2g} to "
                f"{spans[beta][1]:.2g})"
                for beta, found in counts.items()
            ),
            ends[0][1] < ends[1][0],
        ),
    ]


def _draw_met(p: Params, met: dict[int, np.ndarray]) -> Any:
    """Share of pairs of tokens with cosine above 1 - `met` by time t, mean over random starts. The
    line: when n exactly orthogonal tokens would meet (B31); the higher the dimension, the closer.
    """
    smooth = np.linspace(0, p.most_beta, 101)
    fine = np.array([_meeting_time(p, float(beta)) for beta in smooth], dtype=float)
    figure, (axes,) = cy.plot.sheet(1, len(met), 3.2, 3.3, sharey=True)
    look: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": 1, "shading": "nearest"}
    for ax, (d, share) in zip(axes, met.items()):
        image = ax.pcolormesh(_times(p), _betas(p), share, **look)
        ax.plot(fine, smooth, color=cy.plot.PALETTE[1], lw=2)
        ax.set(xlim=(0, p.time), ylim=(0, p.most_beta), xlabel="time t")
        ax.set_title(f"d = {d}, n = {p.n}", fontsize=cy.plot.LABEL)
    axes[0].set_ylabel(r"inverse temperature $\beta$")
    figure.colorbar(image, ax=axes, pad=0.01).set_label("pairs that have met", size=cy.plot.LABEL)
    return figure
