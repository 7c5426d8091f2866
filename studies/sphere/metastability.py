"""Metastability on the sphere: clusters that wait exponentially long, arXiv 2410.06833.

Tokens that start in well separated caps gather in their caps at once, and then stand almost still
for a time of the order exp((1 - cos) beta), cos that of the nearest two caps, before two clusters
merge (docs/mathematics.md B33). See the energy climb a staircase, one step per merger, flat in the
logarithm of time; and the cap theorem checked at larger beta, where its hypotheses hold.

Trap: at the beta one can wait for, log(time) against beta is not yet a line of slope 1 - cos, but
flatter. The time of a merger is an integral of e^(beta (1 - cos a)) over the angle a, which is of
the order e^((1 - cos) beta)/beta: of beta t the slope comes closer to 1 - cos.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Metastability: the staircase of the energy"


@dataclass(frozen=True)
class Params:
    """Three caps at `degrees` on a great circle of S^2; a staircase on the circle with `gaps`.

    Controls: two caps at each of `angles`, and the three caps from `starts` starts with `caps`
    tokens each."""

    degrees: tuple[float, ...] = (0.0, 50.0, 115.0)
    per_cap: int = 4
    spread: float = 0.05
    beta: tuple[float, ...] = (8.0, 12.0, 16.0, 20.0, 24.0)
    apart: tuple[float, ...] = (0.0, 80.0, 170.0)
    checked: tuple[float, ...] = (30.0, 50.0)
    gaps: tuple[float, ...] = (0.25, 0.33, 0.38, 0.42)
    stair_beta: float = 60.0
    stair_time: float = 1e7
    saved: int = 300
    angles: tuple[float, ...] = (40.0, 60.0, 80.0)
    caps: tuple[int, ...] = (2, 4, 8)
    starts: int = 5
    seed: int = 0


QUICK = Params(
    beta=(8.0, 10.0, 12.0), checked=(30.0,), saved=150, angles=(40.0, 80.0), caps=(4,), starts=2
)


class Staircase(NamedTuple):
    """One run, its energy at every saved time, and the plateaus between its mergers."""

    beta: float
    run: cy.Trajectory
    energy: np.ndarray
    plateaus: tuple[cy.spectra.Plateau, ...]

    def merger(self, clusters: int) -> float:
        """When only so many clusters remain; NaN if they do not get there."""
        return next((q.start for q in self.plateaus if q.clusters == clusters), float("nan"))


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The three caps over beta, the staircase, and the checked caps."""
    over = st.measuring(p, progress)
    sensible = len(p.degrees) == 3 and len(p.beta) >= 2 and p.per_cap >= 1 and p.saved >= 20
    st.require(sensible, "three degrees, two or more beta, per_cap >= 1, saved >= 20", p)
    caps = over(_caps, {"beta": p.beta}, 0.5)
    stairs = st.kept(_stairs, p)
    separated = over(_separated, {"beta": p.checked}, 0.7)
    pairs = over(_pair, {"angle": p.angles}, 0.8)
    grid = {"tokens in a cap": p.caps, "start": range(p.starts)}
    others = over(_other, grid)
    checks = {
        f"caps {_angles(p.apart)}, beta = {c.beta:g}": cy.check(c.run, only=("B30", "B33"))
        for c in separated
    }
    figures = (
        st.Picture.of("Three caps", _draw_caps, p, caps),
        st.Picture.of("Staircase", _draw_stairs, stairs),
    )
    plateaus = tuple((c.beta, q.clusters, q.start, q.stop) for c in caps for q in c.plateaus)
    near = "Clusters are joined at distance 0.1; the last plateau ends with the run."
    columns = st.columns(
        "start = name, 1 - cos = bridge, slope of log t = plain, slope of log(beta t) = corrected"
    )
    note = f"First merger, fitted over beta = {min(p.beta):g} to {max(p.beta):g}."
    return st.report_of(
        p,
        _summary(p, caps, stairs),
        controls=_comparisons(p, caps, pairs, others),
        tables=[
            st.Table("Plateaus of three caps", ("beta", "clusters", "from", "to"), plateaus, near),
            st.Table.of("Slopes of the first merger", [*pairs, *others], columns, note),
        ],
        checks=checks,
        figures=figures,
    )


def _angles(degrees: tuple[float, ...]) -> str:
    return ", ".join(f"{a:g}°" for a in degrees)


def _start(p: Params, degrees: tuple[float, ...], spread: float) -> np.ndarray:
    """Tokens around centres on the equator of S^2."""
    a = np.deg2rad(degrees)
    centres = np.stack([np.cos(a), np.sin(a), np.zeros(len(a))], axis=1)
    noise = np.random.default_rng(p.seed).standard_normal((p.per_cap * len(a), 3))
    x = np.repeat(centres, p.per_cap, axis=0) + spread * noise
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _climb(beta: float, x0: np.ndarray, time: float, saved: int, tol: float) -> Staircase:
    times = np.concatenate([[0.0], np.geomspace(1e-2, time, saved)])
    stepper = cy.simulation.Adaptive(
        1e-8, 1e-10, "LSODA"
    )  # implicit: a plateau is one step, however long
    tr = cy.simulate(cy.SphereFlow(cy.Softmax(beta)), x0, times=times, stepper=stepper)
    return Staircase(beta, tr, cy.spectra.energy(tr.values, beta), cy.spectra.metastable(tr, tol))


def _bridges(p: Params) -> tuple[float, float]:
    """1 - cos for the first merger, and, from the middle of the pair, for the second."""
    a, b, c = np.deg2rad(p.degrees)
    return float(1 - np.cos(b - a)), float(1 - np.cos(c - (a + b) / 2))


def _caps(p: Params, beta: float) -> Staircase:
    # long enough for the last merger, not much longer: at rest rounding is all that moves
    time = 0.15 * float(np.exp(_bridges(p)[1] * beta))
    return _climb(beta, _start(p, p.degrees, p.spread), time, p.saved, 0.1)


def _separated(p: Params, beta: float) -> Staircase:
    """Caps far enough apart for the theorem."""
    return _climb(beta, _start(p, p.apart, 0.6 * p.spread), 1e4, p.saved, 0.1)


def _stairs(p: Params) -> Staircase:
    angle = np.concatenate([[0.0], np.cumsum(p.gaps)])
    x0 = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _climb(p.stair_beta, x0, p.stair_time, 2 * p.saved, 0.03)


def _pair(p: Params, angle: float) -> st.Cell:
    """Two caps at the angle."""
    x0 = _start(p, (0.0, angle), p.spread)
    return _first_merger(p, f"two caps, {angle:g}°", (0.0, angle), x0)


def _other(p: Params, per_cap: int, start: int) -> st.Cell:
    """The three caps from another start, with another number of tokens."""
    x0 = _start(replace(p, per_cap=per_cap, seed=p.seed + start), p.degrees, p.spread)
    return _first_merger(p, f"three caps of {per_cap}, start {start}", p.degrees, x0)


def _first_merger(p: Params, name: str, degrees: tuple[float, ...], x0: np.ndarray) -> st.Cell:
    """When there is a cluster less, over beta; the 1 - cos of the angle that was bridged, and the
    slopes of log(time) and log(beta time). The energy of a merger needs no late times."""
    bridge, left = float(1 - np.cos(np.deg2rad(degrees[1] - degrees[0]))), len(degrees) - 1
    climbs = [_climb(b, x0, 3 * float(np.exp(bridge * b)) + 30, p.saved, 0.1) for b in p.beta]
    pairs = [(c.beta, t) for c in climbs if np.isfinite(t := c.merger(left))]
    beta, times = np.array(pairs).reshape(-1, 2).T
    plain, corrected = (float(np.polyfit(beta, np.log(y), 1)[0]) for y in (times, beta * times))
    return st.Cell(name=name, bridge=bridge, plain=plain, corrected=corrected)


def _slope(caps: list[Staircase], clusters: int, power: int = 0) -> float:
    """Of the logarithm of beta^power times the merger's time, against beta."""
    pairs = [(c.beta, t) for c in caps if np.isfinite(t := c.merger(clusters))]
    if len(pairs) < 2:
        return float("nan")
    beta, t = np.array(pairs).T
    return float(np.polyfit(beta, np.log(beta**power * t), 1)[0])


def _summary(p: Params, caps: list[Staircase], stairs: Staircase) -> str:
    first, second = _bridges(p)
    last = caps[-1]
    return (
        f"Caps at {_angles(p.degrees)}. At beta = {last.beta:g} three become "
        f"two clusters at t = {last.merger(2):.3g} and one at t = {last.merger(1):.3g}. Over "
        f"beta the logarithms of these times have slope {_slope(caps, 2):.3f} and "
        f"{_slope(caps, 1):.3f}, those of beta times them {_slope(caps, 2, 1):.3f} and "
        f"{_slope(caps, 1, 1):.3f}; 1 - cos is {first:.3f} and {second:.3f}.\n\n"
        f"The staircase at beta = {stairs.beta:g} has the plateaus "
        + ", ".join(f"{q.clusters} (to t = {q.stop:.2g})" for q in stairs.plateaus)
        + " clusters; the last ends with the run."
    )


def _comparisons(
    p: Params, caps: list[Staircase], pairs: list[st.Cell], others: list[st.Cell]
) -> list[st.Comparison]:
    """Starts, tokens in a cap and the angle varied; the slope with and without the factor beta."""
    first = _bridges(p)[0]
    plain, corrected = ([getattr(c, name) for c in others] for name in ("plain", "corrected"))
    low, high = st.resampled(corrected)
    off = max(abs(c.corrected / c.bridge - 1) for c in pairs)
    spread = max(c.corrected for c in pairs) / min(c.corrected for c in pairs)
    return [
        st.Comparison(
            "the time of a merger has the slope 1 - cos in its logarithm",
            f"{p.starts} starts of {', '.join(map(str, p.caps))} tokens in a cap",
            f"slopes {min(plain):.3f} to {max(plain):.3f} against {first:.3f}",
            max(abs(x / first - 1) for x in plain) < 0.1,
        ),
        st.Comparison(
            "beta times the time of a merger has a slope within 15 % of 1 - cos",
            f"the same starts, n = {len(others)}, 95 % bootstrap for the mean",
            f"slopes {min(corrected):.3f} to {max(corrected):.3f}, mean {np.mean(corrected):.3f} "
            f"({low:.3f} to {high:.3f}), against {first:.3f}",
            abs(float(np.mean(corrected)) / first - 1) < 0.15,
        ),
        st.Comparison(
            "the slope is that of the angle, not of the fit",
            f"two caps at {_angles(p.angles)}",
            "; ".join(f"{c.corrected:.3f} against {c.bridge:.3f}" for c in pairs)
            + f"; they differ by a factor of {spread:.2g}",
            off < 0.2 and spread > 1.5,
        ),
    ]


def _draw_caps(p: Params, caps: list[Staircase]) -> Any:
    """Left: energy (1/n^2) sum exp(beta (<x_i, x_j> - 1)) of tokens in three caps; each step is a
    merger (dashed: three, two, one equal clusters). Right: times of the two mergers against beta;
    dashed: e^(c beta)/beta through the last, c = 1 - cos of the angle to be bridged.
    """
    figure, ((left, right),) = cy.plot.sheet(1, 2, 5.5, 3.7)
    for colour, c in zip(cy.plot.PALETTE, caps):
        left.plot(c.run.t[1:], c.energy[1:], color=colour, label=rf"$\beta$ = {c.beta:g}")
    for level in (1 / 3, 5 / 9, 1.0):
        left.axhline(level, color=cy.plot.INK, lw=0.7, ls="--")
    left.set(xscale="log", xlabel="time t", ylabel="energy", ylim=(0.25, 1.05))
    left.legend(frameon=False, fontsize=cy.plot.LABEL, loc=(0.02, 0.5))
    beta = np.array([c.beta for c in caps])
    for colour, clusters, bridge in zip(cy.plot.PALETTE, (2, 1), _bridges(p)):
        t = np.array([c.merger(clusters) for c in caps])
        right.plot(beta, t, "o", color=colour, label=f"{clusters + 1} become {clusters}")
        here = np.isfinite(t)
        if here.any():
            line = np.exp(bridge * (beta - beta[here][-1])) * beta[here][-1] / beta
            name = rf"$e^{{{bridge:.3f}\beta}} / \beta$"
            right.plot(beta, t[here][-1] * line, "--", color=colour, lw=1, label=name)
    right.set(yscale="log", xlabel=r"inverse temperature $\beta$", ylabel="time of the merger")
    right.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure


def _draw_stairs(stairs: Staircase) -> Any:
    """Single tokens on the circle, the gaps between them growing: their angles and the energy."""
    figure, ((left, right),) = cy.plot.sheet(1, 2, 5.5, 3.5)
    t, x = stairs.run.t[1:], stairs.run.values[1:]
    for colour, angle in zip(cy.plot.PALETTE, np.arctan2(x[..., 1], x[..., 0]).T):
        left.plot(t, angle, color=colour, lw=1.4)
    right.plot(t, stairs.energy[1:], color=cy.plot.INK, lw=1.4)
    left.set(xscale="log", xlabel="time t", ylabel="angle of the token")
    right.set(xscale="log", xlabel="time t", ylabel="energy", ylim=(0, 1.05))
    return figure
