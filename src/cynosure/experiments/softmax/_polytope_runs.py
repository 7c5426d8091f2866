"""Runs of z' = Pz - z (V = I) to rest, and what their ends look like, for two experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.limits import limit
from ...analysis.polytope import hull
from ...analysis.spectra import Rate, rate
from ...dynamics import PureAttention, RescaledFlow
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory

__all__ = ["End", "ended", "to_rest"]

_CLOSE = 1e-3  # of the longest token: limits closer than this are one


@final
@dataclass(frozen=True)
class End:
    """The end of one softmax run, and of hardmax layers from the same tokens."""

    limits: int
    vertices: int
    at_zero: int  # tokens at 0, which softmax allows and hardmax does not
    fitted: Rate | None  # None where nothing moved long enough to be fitted
    leaders: int  # of hardmax
    hardmax_limits: int
    layers: int  # after which every hardmax limit is proved
    moved: float  # the largest way of a token under hardmax, from start to limit


def to_rest(z0: np.ndarray, time: float, rtol: float, saves: int = 61) -> Trajectory:
    """RescaledFlow with Q = K = V = I from z0, at equally spaced times."""
    stepper = Adaptive(rtol=rtol, atol=1e-3 * rtol)
    return simulate(RescaledFlow(), z0, times=np.linspace(0, time, saves), stepper=stepper)


def ended(tr: Trajectory, alpha: float) -> End:
    """Count limits and vertices; tokens are at rest, so the last state is the limit."""
    z = tr.values
    longest = float(np.linalg.norm(z[0], axis=1).max())
    found = clusters(z[-1], tol=_CLOSE * longest)
    try:
        # e^{-t} at the fitted times is 1e4 times what is left at the last one
        fitted = rate(tr, z[-1], floor=1e4 * float(np.exp(-tr.t[-1])))
    except ValueError:
        fitted = None
    li = limit(PureAttention(alpha=alpha), z[0])
    return End(
        found.count,
        len(hull(found.centres).index),
        int((np.linalg.norm(z[-1], axis=1) < _CLOSE * longest).sum()),
        fitted,
        len(li.leaders),
        len(np.unique(li.points, axis=0)),
        li.layers,
        float(np.abs(li.points - z[0]).max()),
    )
