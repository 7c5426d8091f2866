"""The two kinds of dynamics: layers (`LayerMap`) and flows in time (`Flow`, `Relaxation`)."""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np

from .._types import Array
from ..attention import act

__all__ = ["ClosedForm", "Dynamics", "Flow", "LayerMap", "Relaxation"]

ClosedForm = Callable[[np.ndarray], np.ndarray]  # times (m,) to tokens (m, n, d)


class Dynamics(abc.ABC):  # noqa: B024 - what the two kinds share is only their role
    """Anything that makes a trajectory of tokens: a LayerMap (discrete) or a Flow (continuous)."""


class LayerMap(Dynamics):
    """Discrete layers: z^{k+1} = step(z^k, k)."""

    @abc.abstractmethod
    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        """The next layer, shape (*b, n, d). Padding may come back moved: `simulate` restores it."""


class Flow(Dynamics):
    """Continuous time: dz/dt = velocity(z, t), on R^d or on the manifold that `retract` maps to."""

    @abc.abstractmethod
    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        """dz/dt, shape (*b, n, d). What it says about padding is ignored by `simulate`."""

    def retract(self, z: Array) -> Array:
        """The tokens put back on the manifold; the identity on R^d."""
        return z

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        """The tokens as a function of all later times, where they are known from z (n, d) at t.

        An adaptive stepper asks after every step: past that point explicit steps only add noise.
        """
        return None

    @property
    def advice(self) -> str:
        """What to do when a run of this flow leaves the floats."""
        return "Use a shorter time."


class Relaxation(Flow):
    """Flows z' = V (m(z, t) - z) towards a target m in the hull of the tokens, `rate` being V.

    With m frozen over a step they are solved exactly, z + (I - e^{-dt V})(m - z): the
    `ExponentialEuler` stepper, which never leaves the hull when V is a positive multiple of I.
    """

    @abc.abstractmethod
    def target(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        """m(z, t), shape (*b, n, d); padding is its own target."""

    @property
    @abc.abstractmethod
    def rate(self) -> np.ndarray | None:
        """V, None for the identity."""

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return act(self.rate, self.target(z, t, mask=mask) - z, "V")
