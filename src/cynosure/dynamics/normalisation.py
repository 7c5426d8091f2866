"""Where the normalisation stands: one family of flows, which differ in how fast directions turn.

With x_i = r_i theta_i and a_i = V sum_j P_ij theta_j the attention of the directions,

    theta_i' = (1/s_i) (a_i - <a_i, theta_i> theta_i)          (docs/mathematics.md B37)

    post    s = 1            r = 1                     `SphereFlow`
    nGPT    s = |a|/gamma    r = 1                     `NGPTFlow`
    pre     s = r            r' = <a, theta>           `PreNormFlow`
    peri    s = r |a|        r' = <a, theta>/|a|       `PeriNormFlow`
    mixed   post until tau, then pre                   `MixedNormFlow`

(arXiv 2510.22026, 2512.01868). Outputs are taken as they are or at length 1, lengths are kept at 1
or left alone: these two choices make the first four.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import final

import numpy as np

from .._scale import unit
from .._types import Array, as_number, as_parameter
from ..attention import Attention, Softmax, act
from .abstract import Flow, Tendency
from .sphere import OnSphere, SphereFlow, tangent


@dataclass(frozen=True, eq=False)
class _Directed(Flow, abc.ABC):
    """Flows whose attention reads directions x_i/|x_i| only."""

    attention: Attention = field(default_factory=Softmax)
    V: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "V", as_parameter(self.V, "V"))

    def output(self, z: Array, mask: Array | None) -> Array:
        """a_i = V sum_j P_ij theta_j."""
        return act(self.V, self.attention.pull(unit(z), mask=mask), "V")

    def weights(self, z: Array, t: float = 0.0, *, mask: Array | None = None) -> Array:
        return self.attention.weights(unit(z), mask=mask)

    def tends_to(self, d: int) -> Tendency:
        return "one point"

    def converging(self, z: np.ndarray) -> np.ndarray:
        return unit(z)


@final
@dataclass(frozen=True, eq=False)
class PreNormFlow(_Directed):
    """Pre-norm: normalisation before attention instead of after it (arXiv 2512.01868).

        x_i' = V sum_j P_ij u_j,   u_i = x_i / |x_i|,   P of the directions u

    Directions move as in `SphereFlow`, but at the pace 1/|x_i|, and |x_i| grows like t: where the
    sphere flow collapses like e^{-2t}, directions here do so like t^{-2} (B37).
    """

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self.output(z, mask)

    def pace(self, size: float, length: float, along: float) -> tuple[float, float]:
        return length, along


@final
@dataclass(frozen=True, eq=False)
class PeriNormFlow(_Directed):
    """Peri-norm: before attention and after it, x_i' = a_i/|a_i|, a_i = V sum_j P_ij x_j/|x_j|.

    Lengths grow at most like t. Spread tokens have short a_i: the start is faster than pre-norm by
    1/|a_i|, the end the same t^{-2} (B37).
    """

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return unit(self.output(z, mask))

    def pace(self, size: float, length: float, along: float) -> tuple[float, float]:
        return length * size, along / size


@final
@dataclass(frozen=True, eq=False)
class NGPTFlow(OnSphere, _Directed):
    """nGPT: tokens and outputs of length 1 (arXiv 2510.22026).

        x_i' = gamma (b_i - <b_i, x_i> x_i),   b_i = a_i/|a_i|,   a_i = V sum_j P_ij x_j

    The sphere flow at the pace gamma/|a_i|: faster where tokens are spread, then e^{-2 gamma t}.
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        as_number(self.gamma, "gamma", "a positive pace", lambda gamma: 0 < gamma < inf)

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        x = self.retract(z)
        return self.gamma * tangent(x, unit(self.output(x, mask)))

    def pace(self, size: float, length: float, along: float) -> tuple[float, float]:
        return size / self.gamma, 0.0


@final
@dataclass(frozen=True, eq=False)
class MixedNormFlow(_Directed):
    """Post-norm until the time `tau`, pre-norm from then on: mix-LN (arXiv 2510.22026).

    Tokens begin with length 1 and leave the sphere at tau; `simulate` ends a step there.
    """

    tau: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        tau = as_number(self.tau, "tau", "a time > 0", lambda tau: 0 < tau < inf)
        object.__setattr__(self, "tau", tau)

    def at(self, t: float | int) -> Flow:
        kind = SphereFlow if t < self.tau else PreNormFlow
        return kind(self.attention, self.V)

    def pieces(self, time: float) -> Iterator[tuple[Flow, float, float]]:
        yield self.at(0.0), 0.0, min(self.tau, time)
        if time > self.tau:
            yield self.at(self.tau), self.tau, time

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self.at(t).velocity(z, t, mask=mask)

    def retract(self, z: Array) -> Array:
        return unit(z)  # of the start; later each of the pieces knows its own
