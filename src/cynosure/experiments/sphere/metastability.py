"""Metastability on the sphere: clusters that wait exponentially long, arXiv 2410.06833.

Tokens that start in well separated caps gather in their caps at once, and then stand almost still
for a time of the order exp((1 - cos) beta), cos that of the nearest two caps, before two clusters
merge (docs/mathematics.md B33). See the energy climb a staircase, one step per merger, flat in the
logarithm of time; the lifetimes of the plateaus grow like e^(c beta), with c near 1 - cos; and the
cap theorem checked at larger beta, where its hypotheses hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, over_grid, part, report_of, require
from .._measurements import kept

TITLE = "Metastability: the staircase of the energy"


@dataclass(frozen=True)
class Params:
    """Three caps at `degrees` on a great circle of S^2; a staircase on the circle with `gaps`."""

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
    seed: int = 0


QUICK = Params(beta=(8.0, 10.0, 12.0), checked=(30.0,), saved=150)


class Staircase(NamedTuple):
    """One run, its energy at every saved time, and the plateaus between its mergers."""

    beta: float
    run: cy.Trajectory
    energy: np.ndarray
    plateaus: tuple[cy.spectra.Plateau, ...]

    def merger(self, clusters: int) -> float:
        """When only so many clusters remain; NaN if they do not get there."""
        return next((q.start for q in self.plateaus if q.clusters == clusters), float("nan"))


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The three caps over beta, the staircase, and the checked caps."""
    sensible = len(p.degrees) == 3 and len(p.beta) >= 2 and p.per_cap >= 1 and p.saved >= 20
    require(sensible, "three degrees, two or more beta, per_cap >= 1, saved >= 20", p)
    caps = over_grid(_caps, p, {"beta": p.beta}, part(progress, 0, 0.5))
    stairs = kept(_stairs, p)
    separated = over_grid(_separated, p, {"beta": p.checked}, part(progress, 0.6, 0.9))
    checks = {
        f"caps {_angles(p.apart)}, beta = {c.beta:g}": cy.check(c.run, only=("B30", "B33"))
        for c in separated
    }
    figures = (
        cy.Picture("Three caps", _CAPS, _draw_caps(p, caps)),
        cy.Picture("Staircase", _STAIRS, _draw_stairs(stairs)),
    )
    text, tables = _summary(p, caps, stairs), _tables(caps, stairs)
    return report_of(__name__, p, text, tables=tables, checks=checks, figures=figures)


_CAPS = (
    "Left: energy (1/n^2) sum exp(beta (<x_i, x_j> - 1)) of tokens in three caps; each step is a "
    "merger (dashed: three, two, one equal clusters). Right: times of the two mergers against "
    "beta, with the slopes 1 - cos of the angle to be bridged."
)
_STAIRS = "Single tokens on the circle, the gaps between them growing: their angles and the energy."


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
    stepper = cy.Adaptive(1e-8, 1e-10, "LSODA")  # implicit: a plateau is one step, however long
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


def _slope(caps: list[Staircase], clusters: int) -> float:
    """Of the logarithm of the merger's time against beta."""
    pairs = [(c.beta, t) for c in caps if np.isfinite(t := c.merger(clusters))]
    if len(pairs) < 2:
        return float("nan")
    beta, t = np.array(pairs).T
    return float(np.polyfit(beta, np.log(t), 1)[0])


def _summary(p: Params, caps: list[Staircase], stairs: Staircase) -> str:
    first, second = _bridges(p)
    last = caps[-1]
    return (
        f"Caps at {_angles(p.degrees)}. At beta = {last.beta:g} three become "
        f"two clusters at t = {last.merger(2):.3g} and one at t = {last.merger(1):.3g}. Over "
        f"beta the logarithms of these times have slope {_slope(caps, 2):.3f} and "
        f"{_slope(caps, 1):.3f}; 1 - cos, the slope for large beta, is {first:.3f} and "
        f"{second:.3f}. Between the last two beta the slopes are {_slope(caps[-2:], 2):.3f} and "
        f"{_slope(caps[-2:], 1):.3f}.\n\n"
        f"The staircase at beta = {stairs.beta:g} has the plateaus "
        + ", ".join(f"{q.clusters} (to t = {q.stop:.2g})" for q in stairs.plateaus)
        + " clusters; the last ends with the run."
    )


def _tables(caps: list[Staircase], stairs: Staircase) -> list[cy.Table]:
    def plateaus(c: Staircase) -> list[tuple[Any, ...]]:
        energy = c.energy[np.searchsorted(c.run.t, [q.stop for q in c.plateaus])].tolist()
        return [(q.clusters, q.start, q.stop, e) for q, e in zip(c.plateaus, energy)]

    columns = ("clusters", "from", "to", "energy at its end")
    rows = tuple((c.beta, *row) for c in caps for row in plateaus(c))
    note = "Clusters are joined at distance 0.1; the last plateau ends with the run."
    return [
        cy.Table("Plateaus of three caps", ("beta", *columns), rows, note),
        cy.Table("Plateaus of the staircase", columns, tuple(plateaus(stairs))),
    ]


def _draw_caps(p: Params, caps: list[Staircase]) -> Any:
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
            line = t[here][-1] * np.exp(bridge * (beta - beta[here][-1]))
            right.plot(beta, line, "--", color=colour, lw=1, label=f"slope {bridge:.3f}")
    right.set(yscale="log", xlabel=r"inverse temperature $\beta$", ylabel="time of the merger")
    right.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure


def _draw_stairs(stairs: Staircase) -> Any:
    figure, ((left, right),) = cy.plot.sheet(1, 2, 5.5, 3.5)
    t, x = stairs.run.t[1:], stairs.run.values[1:]
    for colour, angle in zip(cy.plot.PALETTE, np.arctan2(x[..., 1], x[..., 0]).T):
        left.plot(t, angle, color=colour, lw=1.4)
    right.plot(t, stairs.energy[1:], color=cy.plot.INK, lw=1.4)
    left.set(xscale="log", xlabel="time t", ylabel="angle of the token")
    right.set(xscale="log", xlabel="time t", ylabel="energy", ylim=(0, 1.05))
    return figure
