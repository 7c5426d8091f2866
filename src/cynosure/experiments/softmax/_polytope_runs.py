"""Runs of z' = Pz - z (V = I) to rest, beside hardmax layers, for two experiments on limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

__all__ = ["COLUMNS", "LimitCounts", "StartGroup", "at_rest", "count_limits", "draw", "to_rest"]

_CLOSE = 1e-3  # of the longest token: limits closer than this are one


@dataclass(frozen=True)
class LimitCounts:
    """The limits of one softmax run, and of hardmax layers from the same tokens, counted."""

    limits: int
    vertices: int
    at_zero: int  # tokens at 0, which softmax allows and hardmax does not
    fitted: cy.spectra.Rate | None  # None where nothing moved long enough to be fitted
    leaders: int  # of hardmax
    hardmax_limits: int
    layers: int  # after which every hardmax limit is proved
    moved: float  # the largest way of a token under hardmax, from start to limit


class StartGroup(NamedTuple):
    """Several starts of one kind: what is counted for each, and the softmax run of the first."""

    name: str
    counts: list[LimitCounts]
    first: cy.Trajectory

    @property
    def n(self) -> int:
        return self.first.values.shape[1]

    @property
    def d(self) -> int:
        return self.first.values.shape[2]

    @property
    def exponents(self) -> list[float]:
        """The fitted exponent of every start that has one."""
        return [c.fitted.exponent for c in self.counts if c.fitted is not None]

    @property
    def rate(self) -> float | None:
        return float(np.mean(self.exponents)) if self.exponents else None

    def mean(self, name: str) -> float:
        """The mean of one of the counts over the starts."""
        return float(np.mean([getattr(c, name) for c in self.counts]))


COLUMNS: dict[str, Any] = {
    "softmax limits": lambda group: group.mean("limits"),
    "vertices": lambda group: group.mean("vertices"),
    "tokens at 0": lambda group: group.mean("at_zero"),
    "hardmax leaders": lambda group: group.mean("leaders"),
    "hardmax limits": lambda group: group.mean("hardmax_limits"),
    "layers to proof": lambda group: group.mean("layers"),
}


def at_rest(
    name: str, starts: Iterable[np.ndarray], time: float, rtol: float, alpha: float
) -> StartGroup:
    """Every start followed to rest and counted; alpha is that of the hardmax layers."""
    runs = [to_rest(z0, time, rtol) for z0 in starts]
    return StartGroup(name, [count_limits(tr, alpha) for tr in runs], runs[0])


def to_rest(z0: np.ndarray, time: float, rtol: float) -> cy.Trajectory:
    """RescaledFlow with Q = K = V = I from z0, at equally spaced times."""
    stepper = cy.Adaptive(rtol=rtol, atol=1e-3 * rtol)
    return cy.simulate(cy.RescaledFlow(), z0, times=np.linspace(0, time, 61), stepper=stepper)


def count_limits(tr: cy.Trajectory, alpha: float) -> LimitCounts:
    """Tokens are at rest, so the last state is the limit."""
    z = tr.values
    close = _CLOSE * float(np.linalg.norm(z[0], axis=1).max())
    groups = cy.clusters(z[-1], tol=close)
    try:
        # e^{-t} at the fitted times is 1e4 times what is left at the last one
        fitted = cy.spectra.rate(tr, z[-1], floor=1e4 * float(np.exp(-tr.t[-1])))
    except ValueError:
        fitted = None
    li = cy.limit(cy.PureAttention(alpha=alpha), z[0])
    return LimitCounts(
        limits=groups.count,
        vertices=len(cy.hull(groups.centres).index),
        at_zero=int((np.linalg.norm(z[-1], axis=1) < close).sum()),
        fitted=fitted,
        leaders=len(li.leaders),
        hardmax_limits=len(np.unique(li.points, axis=0)),
        layers=li.layers,
        moved=float(np.abs(li.points - z[0]).max()),
    )


def draw(ax: Any, z: np.ndarray, limit: str = "limit") -> None:
    """Planar tokens from grey starts along thin paths to their limits, whose hull is shaded."""
    cy.plot.shade(ax, cy.hull(z[-1]))
    some = z[:, :: max(1, z.shape[1] // 100)]
    ax.plot(some[..., 0], some[..., 1], color=cy.plot.GREY, lw=0.5, zorder=1)
    ax.plot(*z[0].T, "o", color=cy.plot.GREY, ms=2.5, label="start")
    ax.plot(*z[-1].T, "s", color=cy.plot.PALETTE[1], ms=6.5, label=limit)
    ax.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
