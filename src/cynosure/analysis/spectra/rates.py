"""How fast and into what a run collapses: rates, plateaus, energy, neural collapse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import final

import numpy as np

from ..._types import Array, as_tokens
from ...simulation.trajectory import Trajectory
from ..clustering import clusters
from .matrices import Finding


@final
@dataclass(frozen=True, eq=False)
class Rate(Finding):
    """distance ~ exp(-exponent t): the fitted exponent, its 95 % interval, and what was fitted."""

    exponent: float
    low: float
    high: float
    points: int
    start: float
    stop: float


def rate(trajectory: Trajectory, limit: Array, *, floor: float = 1e-10) -> Rate:
    """Least squares of log max_i |z_i(t) - limit_i| against t (or the layer), late half of the run.

    Distances below `floor` times the first are rounding and left out; of the rest the later half
    is fitted, since the rate is a statement about the end.
    """
    from scipy.special import stdtrit

    gap = np.linalg.norm(trajectory.tokens - np.asarray(limit, dtype=float), axis=-1).max(axis=-1)
    gone = np.flatnonzero(gap <= floor * gap[0])
    usable = np.arange(int(gone[0]) if len(gone) else len(gap))
    usable = usable[len(usable) // 2 :]
    if len(usable) < 3:
        raise ValueError(
            f"rate: only {len(usable)} saved states lie above the floor; save more of the run"
        )
    x, y = np.asarray(trajectory.t, dtype=float)[usable], np.log(gap[usable])
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - (slope * x + intercept)
    spread = sqrt(float(residual @ residual) / (len(x) - 2) / float(((x - x.mean()) ** 2).sum()))
    half = float(stdtrit(len(x) - 2, 0.975)) * spread
    return Rate(-slope, -slope - half, -slope + half, len(x), float(x[0]), float(x[-1]))


@final
@dataclass(frozen=True, eq=False)
class NeuralCollapse(Finding):
    """Scatter within and between labelled groups, and the shape of the group means
    (docs/mathematics.md E11).

    `scatter` = tr(Sw Sb^+) / C, 0 at collapse; `cosines` are those between centred means, all
    equal to `simplex` = -1/(C-1) for a simplex ETF; `norm_spread` = std/mean of their lengths.
    """

    scatter: float
    cosines: np.ndarray
    simplex: float
    angle_error: float
    norm_spread: float


def neural_collapse(z: Array, labels: Sequence[int] | np.ndarray) -> NeuralCollapse:
    """Neural-collapse measures of one layer z (n, d) with a group label per token."""
    x = as_tokens(z, ndim=2).astype(np.float64)
    names, group = np.unique(np.asarray(labels), return_inverse=True)
    if len(group) != len(x) or len(names) < 2:
        raise ValueError("labels: expected one label per token and at least two groups")
    means = np.stack([x[group == c].mean(axis=0) for c in range(len(names))])
    centred = means - means.mean(axis=0)
    away = x - means[group]
    within, between = away.T @ away / len(x), centred.T @ centred / len(names)
    length = np.linalg.norm(centred, axis=1)
    unit = centred / np.where(length > 0, length, 1.0)[:, None]
    cosines = (unit @ unit.T)[np.triu_indices(len(names), 1)]
    simplex = -1 / (len(names) - 1)
    return NeuralCollapse(
        float(np.trace(within @ np.linalg.pinv(between))) / len(names),
        cosines,
        simplex,
        float(np.abs(cosines - simplex).max()),
        float(length.std() / length.mean()) if length.any() else 0.0,
    )


@final
@dataclass(frozen=True, eq=False)
class Plateau(Finding):
    """A stretch of a run with a constant number of clusters: metastable unless it is the last."""

    clusters: int
    start: float
    stop: float

    @property
    def lifetime(self) -> float:
        return self.stop - self.start


def metastable(trajectory: Trajectory, tol: float, *, least: int = 3) -> tuple[Plateau, ...]:
    """Plateaus of the number of clusters (joined at distance tol), of at least `least` saves.

    The lifetime is read between saved times, so save densely (or at geometric times: lifetimes
    grow like e^{c beta}, docs/mathematics.md B33).
    """
    counts = [clusters(z, tol).count for z in trajectory.values]
    edges = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]
    t = np.asarray(trajectory.t, dtype=float)
    return tuple(
        Plateau(counts[a], float(t[a]), float(t[b - 1]))
        for a, b in pairwise(edges)
        if b - a >= least
    )


def energy(z: Array, beta: float, seen: Array | None = None) -> np.ndarray:
    """(1/n^2) sum_ij exp(beta (<x_i, x_j> - 1)), one per configuration: 1 when all agree.

    `seen` are the A x_i of scores <A x_i, x_j>.

    The interaction energy of arXiv 2312.10794 up to a factor, normalised so that metastable
    states show as stairs between 1/n and 1 (docs/mathematics.md B33).
    """
    x = as_tokens(z).astype(np.float64)
    y = x if seen is None else as_tokens(seen).astype(np.float64)
    return np.exp(beta * (y @ np.swapaxes(x, -1, -2) - 1)).mean(axis=(-1, -2))
