"""Metastability on the sphere: clusters that wait exponentially long, arXiv 2410.06833.

Tokens that start in well separated caps gather in their caps at once, and then stand almost still
for a time of the order exp((1 - cos) beta), cos that of the nearest two caps, before two clusters
merge (docs/mathematics.md B33). See the energy climb a staircase, one step per merger, flat in the
logarithm of time; the lifetimes of the plateaus grow like e^(c beta), with c near 1 - cos; and the
cap theorem checked at larger beta, where its hypotheses hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.spectra import Plateau, energy, metastable
from ...attention import Softmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import SphereFlow
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress, silent

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Metastability: the staircase of the energy"


@final
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


class Caps(NamedTuple):
    beta: float
    run: Trajectory
    energy: np.ndarray
    plateaus: tuple[Plateau, ...]


def run(p: Params, progress: Progress | None = None) -> Report:
    """The three caps over beta, the staircase, and the checked caps."""
    say = progress or silent
    if len(p.degrees) != 3 or len(p.beta) < 2 or p.per_cap < 1 or p.saved < 20:
        raise ValueError(
            f"metastability: three caps, two or more beta, per_cap >= 1, saved >= 20; got {p}"
        )
    found = []
    for done, beta in enumerate(p.beta):
        say(0.5 * done / len(p.beta), f"beta = {beta:g}")
        found.append(_caps(p, beta))
    say(0.5, "staircase")
    stairs = _stairs(p)
    say(0.65, "caps theorem")
    checks = {}
    for beta in p.checked:
        x0 = _start(p.apart, p.per_cap, 0.6 * p.spread, p.seed)
        tr = _follow(beta, x0, 1e4, p.saved)
        checks[f"caps {', '.join(f'{a:g}°' for a in p.apart)}, beta = {beta:g}"] = tuple(
            check(tr, only=("B30", "B33"))
        )
    say(0.75, "figures")
    figures = (
        Picture("Three caps", _CAPS, _curves(p, found)),
        Picture("Staircase", _STAIRS, _staircase(p, stairs)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, found, stairs),
        asdict(p),
        (_table(found), _stair_table(stairs)),
        checks,
        figures,
        command="cynosure run metastability",
    )


_CAPS = (
    "Left: energy (1/n^2) sum exp(beta (<x_i, x_j> - 1)) of tokens in three caps; each step is a "
    "merger (dashed: three, two, one equal clusters). Right: times of the two mergers against "
    "beta, with the slopes 1 - cos of the angle to be bridged."
)
_STAIRS = (
    "Single tokens on the circle, with growing gaps between them: their angles (left) and the "
    "energy (right) against the logarithm of time."
)


def _start(degrees: tuple[float, ...], per_cap: int, spread: float, seed: int) -> np.ndarray:
    """Tokens around centres on the equator of S^2."""
    a = np.deg2rad(degrees)
    centres = np.stack([np.cos(a), np.sin(a), np.zeros(len(a))], axis=1)
    noise = np.random.default_rng(seed).standard_normal((per_cap * len(a), 3))
    x = np.repeat(centres, per_cap, axis=0) + spread * noise
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _follow(beta: float, x0: np.ndarray, time: float, saved: int) -> Trajectory:
    times = np.concatenate([[0.0], np.geomspace(1e-2, time, saved)])
    stepper = Adaptive(1e-8, 1e-10, "LSODA")  # implicit: a plateau is one step, however long
    return simulate(SphereFlow(Softmax(beta)), x0, times=times, stepper=stepper)


def _bridges(p: Params) -> tuple[float, float]:
    """1 - cos for the first merger, and, from the middle of the pair, for the second."""
    a, b, c = np.deg2rad(p.degrees)
    return float(1 - np.cos(b - a)), float(1 - np.cos(c - (a + b) / 2))


def _caps(p: Params, beta: float) -> Caps:
    # long enough for the last merger, not much longer: at rest rounding is all that moves
    time = 0.15 * float(np.exp(_bridges(p)[1] * beta))
    tr = _follow(beta, _start(p.degrees, p.per_cap, p.spread, p.seed), time, p.saved)
    return Caps(beta, tr, energy(tr.values, beta), metastable(tr, 0.1))


def _merger(c: Caps, left: int) -> float:
    """When only `left` clusters remain; NaN if they do not get there."""
    return next((q.start for q in c.plateaus if q.clusters == left), float("nan"))


def _stairs(p: Params) -> Caps:
    angle = np.concatenate([[0.0], np.cumsum(p.gaps)])
    x0 = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    tr = _follow(p.stair_beta, x0, p.stair_time, 2 * p.saved)
    return Caps(p.stair_beta, tr, energy(tr.values, p.stair_beta), metastable(tr, 0.03))


def _slope(found: list[Caps], left: int) -> float:
    pairs = [(c.beta, _merger(c, left)) for c in found if np.isfinite(_merger(c, left))]
    if len(pairs) < 2:
        return float("nan")
    beta, t = np.array(pairs).T
    return float(np.polyfit(beta, np.log(t), 1)[0])


def _summary(p: Params, found: list[Caps], stairs: Caps) -> str:
    first, second = _bridges(p)
    last = found[-1]
    return (
        f"Caps at {', '.join(f'{a:g}°' for a in p.degrees)}. At beta = {last.beta:g} three become "
        f"two clusters at t = {_merger(last, 2):.3g} and one at t = {_merger(last, 1):.3g}. Over "
        f"beta the logarithms of these times have slope {_slope(found, 2):.3f} and "
        f"{_slope(found, 1):.3f}; 1 - cos, the slope for large beta, is {first:.3f} and "
        f"{second:.3f}. Between the last two beta the slopes are {_slope(found[-2:], 2):.3f} and "
        f"{_slope(found[-2:], 1):.3f}.\n\n"
        f"The staircase at beta = {stairs.beta:g} has the plateaus "
        + ", ".join(f"{q.clusters} (to t = {q.stop:.2g})" for q in stairs.plateaus)
        + " clusters; the last ends with the run."
    )


def _table(found: list[Caps]) -> Table:
    rows = tuple(
        (c.beta, q.clusters, q.start, q.stop, float(c.energy[_at(c, q)]))
        for c in found
        for q in c.plateaus
    )
    columns = ("beta", "clusters", "from", "to", "energy at its end")
    note = "Clusters are joined at distance 0.1; the last plateau ends with the run."
    return Table("Plateaus of three caps", columns, rows, note)


def _at(c: Caps, q: Plateau) -> int:
    return int(np.searchsorted(c.run.t, q.stop))


def _stair_table(c: Caps) -> Table:
    rows = tuple((q.clusters, q.start, q.stop, float(c.energy[_at(c, q)])) for q in c.plateaus)
    return Table("Plateaus of the staircase", ("clusters", "from", "to", "energy"), rows)


def _curves(p: Params, found: list[Caps]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, LABEL, PALETTE

    figure = Figure(figsize=(11, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, c in zip(PALETTE, found):
        left.plot(c.run.t[1:], c.energy[1:], color=colour, label=rf"$\beta$ = {c.beta:g}")
    for level in (1 / 3, 5 / 9, 1.0):
        left.axhline(level, color=INK, lw=0.7, ls="--")
    left.set(xscale="log", xlabel="time t", ylabel="energy", ylim=(0.25, 1.05))
    left.legend(frameon=False, fontsize=LABEL, loc=(0.02, 0.5))
    beta = np.array([c.beta for c in found])
    for colour, clusters_left, bridge in zip(PALETTE, (2, 1), _bridges(p)):
        t = np.array([_merger(c, clusters_left) for c in found])
        name = f"{clusters_left + 1} become {clusters_left}"
        right.plot(beta, t, "o", color=colour, label=name)
        here = np.isfinite(t)
        if here.any():
            line = t[here][-1] * np.exp(bridge * (beta - beta[here][-1]))
            right.plot(beta, line, "--", color=colour, lw=1, label=f"slope {bridge:.3f}")
    right.set(yscale="log", xlabel=r"inverse temperature $\beta$", ylabel="time of the merger")
    right.legend(frameon=False, fontsize=LABEL)
    tidy(left)
    tidy(right)
    return figure


def _staircase(p: Params, c: Caps) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, PALETTE

    figure = Figure(figsize=(11, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    angle = np.arctan2(c.run.values[1:, :, 1], c.run.values[1:, :, 0])
    for i, line in enumerate(angle.T):
        left.plot(c.run.t[1:], line, color=PALETTE[i], lw=1.4)
    right.plot(c.run.t[1:], c.energy[1:], color=INK, lw=1.4)
    left.set(xscale="log", xlabel="time t", ylabel="angle of the token")
    right.set(xscale="log", xlabel="time t", ylabel="energy", ylim=(0, 1.05))
    tidy(left)
    tidy(right)
    return figure
