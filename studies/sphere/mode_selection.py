"""Three phases of attention at large beta: a plane, as many clusters as the fastest mode, mergers.

Tokens spread over the circle with density 1/2pi move by x' = P_x sum_j P_ij x_j. A small mode
cos(k phi) of the density grows at rate

    gamma_k = k^2 I_k(beta) / (beta I_0(beta)),   I_k the modified Bessel functions,

so the mode of the largest gamma_k, k about sqrt(2 beta), decides how many clusters there are before
they merge (arXiv 2410.23228, which has Gegenbauer polynomials on spheres). See the left panel: the
fitted rates on the curve; and the middle one: clusters at the plateau beside the fastest mode.

On S^2 with V = diag(1, 1, s), s < 1, tokens first fall onto the plane of the leading eigenvalues,
then form such clusters there, which merge far later (three phases, arXiv 2509.25040). The control
is V = I, which has no plane. See the right panel: where the tokens are flat, and how many clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ive

import cynosure as cy
from cynosure import study as st

TITLE = "Three phases at large beta: a plane, clusters, mergers"
SMALL = 0.02  # modes up to this size grow by themselves
FAST = 0.8  # rates of modes this near to the fastest are fitted
CLOSE = 0.02  # relative error of a rate that is called right
NEAR = 0.05  # tokens nearer than this are one cluster
FLAT = 0.1  # root-mean-square height over a plane below which tokens are in it
STARTS = ("evenly, moved a little", "uniform at random")


@dataclass(frozen=True)
class Params:
    """n tokens on the circle, moved by `noise` or drawn uniformly, `draws` times, for `longest`
    times one over the largest rate. On S^2: `betas` and the smallest eigenvalue `s` of V."""

    beta: tuple[float, ...] = (8.0, 18.0, 32.0, 50.0)
    n: int = 240
    noise: float = 1e-4
    draws: int = 6
    longest: float = 25.0
    steps: int = 300
    s: tuple[float, ...] = (0.2, 0.6, 1.0)
    seed: int = 0


QUICK = Params(beta=(8.0, 18.0), n=80, draws=2, steps=200, s=(0.2, 1.0))


def rates(beta: float, most: int = 40) -> np.ndarray:
    """gamma_k for k = 1, ..., most; `ive` is I_k without its exponential growth."""
    k = np.arange(1, most + 1)
    return k**2 * ive(k, beta) / (beta * ive(0, beta))


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The circle from both starts, then the sphere."""
    sensible = min(p.beta) > 0 and min(p.n, p.steps) >= 10 and p.draws >= 2 and 0 < p.noise < SMALL
    st.require(sensible, f"beta > 0, n, steps >= 10, draws >= 2, 0 < noise < {SMALL}", p)
    over = st.measuring(p, progress)
    circles = over(_circle, {"beta": p.beta, "start": STARTS}, 0.6)
    phases = over(_phases, {"beta": p.beta, "s": p.s})
    even = [c for c in circles if c.start == STARTS[0]]
    worst = max(float(np.nanmax(np.abs(c.ratios - 1))) for c in even)
    reference = "after arXiv 2410.23228: gamma_k = k^2 I_k(beta) / (beta I_0(beta))"
    statement = "a small mode of the density grows at its own rate"
    check = st.at_most("modes", reference, statement, worst, CLOSE, runs=len(even) * p.draws)
    told = [f"{c.clusters.mean():.2g} ({c.fastest})" for c in even]
    columns: dict[str, Any] = st.columns("beta, start, fastest mode = fastest")
    columns |= {"sqrt(2 beta)": lambda c: float(np.sqrt(2 * c.beta))}
    columns |= st.columns("clusters = mean clusters, fewest = min clusters, most = max clusters")
    columns |= {"rate / expected": lambda c: float(np.nanmedian(c.ratios)) if c in even else None}
    later: dict[str, Any] = st.columns("beta, s, in a plane at = median flat")
    later |= st.columns("in clusters at = median gathered")
    later |= {"clusters at the end": lambda x: float(x.clusters[:, -1].mean())}
    return st.report_of(
        p,
        f"For beta = {', '.join(f'{b:g}' for b in p.beta)} tokens spread evenly over the circle "
        f"end in {', '.join(told)} clusters on average; in brackets the fastest growing mode.",
        controls=_controls(circles, phases),
        tables=[
            st.Table.of("Clusters and the fastest mode", circles, columns),
            st.Table.of("Phases on the sphere, medians", phases, later, "–: not in this time."),
        ],
        checks={"modes": [check]},
        figures=[st.Picture("Modes, clusters, phases", _CAPTION, _drawn(p, circles, phases))],
    )


_CAPTION = (
    "Left: growth of a mode of the density, fitted (dots) and expected (line). Middle: clusters at "
    "the plateau beside the fastest mode. Right: height over the best plane (solid) and clusters "
    "over the number of tokens (dashed), by time, for the largest beta."
)


def _circle(p: Params, beta: float | int, start: str) -> st.Cell:
    """Runs of one beta from one kind of start: fitted over expected rates of the fast modes
    (draws, modes), NaN where nothing is small, and clusters at the end of each draw."""
    gamma = rates(beta)
    modes = np.flatnonzero(gamma > FAST * gamma.max()) + 1
    draw = np.random.default_rng([p.seed, int(10 * beta)])
    angle = 2 * np.pi * np.arange(p.n) / p.n + p.noise * draw.standard_normal((p.draws, p.n))
    if start == STARTS[1]:
        angle = draw.uniform(0, 2 * np.pi, (p.draws, p.n))
    z0 = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    z = _run(p, beta, None, z0).values
    size = np.abs(np.mean((z[..., 0] + 1j * z[..., 1])[..., None] ** -modes, axis=2))
    times = np.linspace(0, p.longest / gamma.max(), p.steps + 1)
    ratios = np.full((p.draws, len(modes)), np.nan)
    for d in range(p.draws):
        use = (size[:, d].max(axis=1) < SMALL) & (times > 1 / gamma.max())
        if use.sum() >= 5:
            slope = np.polyfit(times[use], np.log(size[use, d]), 1)[0]
            ratios[d] = slope / gamma[modes - 1]
    counts = np.array([cy.clusters(x, tol=NEAR).count for x in z[-1]])
    fitted = {"modes": modes, "ratios": ratios, "fastest": int(gamma.argmax()) + 1}
    return st.Cell(beta=float(beta), start=start, **fitted, clusters=counts)


def _run(p: Params, beta: float | int, V: np.ndarray | None, z0: np.ndarray) -> cy.Trajectory:
    time = p.longest / rates(beta).max()
    stepper = cy.simulation.RK4(time / p.steps)
    return cy.simulate(cy.SphereFlow(cy.Softmax(beta), V), z0, time=time, stepper=stepper)


def _phases(p: Params, beta: float | int, s: float | int) -> st.Cell:
    """Runs of one beta and s on S^2: by time, the height over the best plane and the clusters of
    each draw, and when it is in the plane and in clusters, infinite where never."""
    seeds = range(p.seed, p.seed + p.draws)
    z0 = np.stack([cy.configurations.sphere(p.n, 3, seed) for seed in seeds])
    tr = _run(p, beta, np.diag([1.0, 1.0, s]), z0)
    z, t = tr.values[:: max(1, p.steps // 60)], tr.t[:: max(1, p.steps // 60)]
    height = np.linalg.svd(z / np.sqrt(p.n), compute_uv=False)[..., -1]
    counts = np.array([[cy.clusters(x, tol=NEAR).count for x in layer] for layer in z])
    few = counts <= 2 * (int(rates(beta).argmax()) + 1)
    flat, gathered = (
        np.where(holds.any(axis=0), t[holds.argmax(axis=0)], np.inf)
        for holds in (height < FLAT, few)
    )
    found = {"height": height.T, "clusters": counts.T, "flat": flat, "gathered": gathered}
    return st.Cell(beta=float(beta), s=float(s), t=t, **found)


def _controls(circles: list[st.Cell], phases: list[st.Cell]) -> list[st.Comparison]:
    by = st.grouped(circles, "start")
    off = {name: [int(np.abs(c.clusters - c.fastest).max()) for c in of] for name, of in by.items()}
    told = "; ".join(f"{name}: {', '.join(map(str, x))}" for name, x in off.items())
    flat = [x for x in phases if x.s < 1]
    whole = [x for x in phases if x.s == 1]
    before = {
        f"beta = {x.beta:g}, s = {x.s:g}": (int((x.flat < x.gathered).sum()), len(x.flat))
        for x in (*flat, *whole)
    }
    return [
        st.Comparison(
            "The fastest mode says how many clusters there are, up to one.",
            "beta; tokens drawn at random, where all modes are there from the start",
            f"largest difference, by beta: {told}",
            max(max(x) for x in off.values()) <= 1,
        ),
        st.Comparison(
            "With a plane of leading eigenvalues tokens are in it before they cluster.",
            "V = I, which has no such plane",
            f"runs: {st.shares(before)}",
            all((x.flat < x.gathered).all() for x in flat)
            and not any((x.flat < x.gathered).any() for x in whole),
        ),
    ]


def _drawn(p: Params, circles: list[st.Cell], phases: list[st.Cell]) -> Any:
    figure, (axes,) = cy.plot.sheet(1, 3, 4.3, 3.6)
    left, middle, right = axes
    for colour, c in zip(cy.plot.PALETTE, (c for c in circles if c.start == STARTS[0])):
        gamma, most = rates(c.beta), 3 * c.fastest
        left.plot(np.arange(1, most + 1), gamma[:most], color=colour, lw=1, label=f"β = {c.beta:g}")
        left.plot(
            c.modes, np.nanmean(c.ratios, axis=0) * gamma[c.modes - 1], "o", color=colour, ms=4
        )
    left.set(xlabel="mode k", ylabel="rate of growth")
    left.legend(frameon=False, fontsize=8)
    for (name, of), mark in zip(st.grouped(circles, "start").items(), "os"):
        middle.plot(
            [c.fastest for c in of], [c.clusters.mean() for c in of], mark, ms=5, label=name
        )
    middle.axline((0, 0), slope=1, color=cy.plot.GREY, lw=0.8, ls="--")
    middle.set(xlabel="fastest mode", ylabel="clusters at the plateau")
    middle.legend(frameon=False, fontsize=8)
    for colour, x in zip(cy.plot.PALETTE, (x for x in phases if x.beta == max(p.beta))):
        right.plot(x.t, x.height.mean(axis=0), color=colour, label=f"s = {x.s:g}")
        right.plot(x.t, x.clusters.mean(axis=0) / p.n, "--", color=colour)
    right.set(xlabel="time", ylabel="height; clusters / n", ylim=(0, 1))
    right.legend(frameon=False, fontsize=8)
    return figure
