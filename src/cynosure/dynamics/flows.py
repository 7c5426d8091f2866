"""Flows in R^d of attention alone, without matrices of their own, and flows that take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import final

import numpy as np

from .._types import Array
from ..attention import Attention, Hardmax, Softmax
from .abstract import ClosedForm, Flow, FrozenEquation, Tendency, end_of


@final
@dataclass(frozen=True, eq=False)
class AttentionFlow(Flow):
    """z_i' = (P z)_i - z_i: `PureAttention` with alpha -> 0 and k alpha = t; the hull shrinks.

    With `Hardmax` it is the Frank-Wolfe flow of arXiv 2508.09628; its velocity jumps where a token
    changes its target, which an adaptive stepper resolves by very short steps. Once every token
    follows one leader, it always does (docs/mathematics.md C5): a closed form.
    """

    attention: Attention = field(default_factory=Softmax)

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self.attention.pull(z, mask=mask) - z

    @property
    def averaging(self) -> Attention:
        return self.attention

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        if not isinstance(self.attention, Hardmax):
            return None
        followed = self.attention.followed(z)
        alone = (np.diff(followed.indptr) == 1)[followed.label]
        leader = followed.target
        return approach(z, leader, 1.0, t) if (alone & followed.leads[leader]).all() else None

    def tends_to(self, d: int) -> Tendency:
        return end_of(self.attention)

    def frozen(self, P: np.ndarray) -> FrozenEquation:
        return FrozenEquation(P - np.eye(len(P)))


@final
@dataclass(frozen=True, eq=False)
class UnnormalizedFlow(Flow):
    """x_i' = (P x)_i for any attention: `Heads` brings several heads with their value matrices.

    The limit of `UnnormalizedAttention` for alpha -> 0, k alpha = t. Tokens grow like e^t.
    """

    grows = True
    advice = "Use AttentionFlow (same attention, tokens stay in their hull) or a shorter time."
    attention: Attention = field(default_factory=Softmax)

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self.attention.pull(z, mask=mask)

    def growth(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t) if self.attention.values is None else super().growth(t)

    def frozen(self, P: np.ndarray) -> FrozenEquation:
        return FrozenEquation(P)


@final
@dataclass(frozen=True, eq=False)
class ScheduledFlow(Flow):
    """Weights that change with time: flows[k mod len(flows)] on k span <= t < (k + 1) span.

    A list as long as the run gives a network whose blocks of depth `span` have weights of their
    own; the flows are of one kind. Trap: a step across a change has order 1 whatever the stepper,
    so `simulate` ends a step there, between `pieces`.
    """

    flows: Sequence[Flow] = field(
        default_factory=lambda: (AttentionFlow(Softmax(1.0)), AttentionFlow(Softmax(4.0)))
    )
    span: float = 0.25

    def __post_init__(self) -> None:
        flows = tuple(self.flows)
        kinds = {type(flow) for flow in flows}
        if len(kinds) != 1 or not isinstance(flows[0], Flow) or ScheduledFlow in kinds:
            raise TypeError(f"flows: expected one or more flows of one kind, got {self.flows!r}")
        if not 0 < self.span < float("inf"):
            raise ValueError(f"span: expected a positive time, got {self.span!r}")
        object.__setattr__(self, "flows", flows)

    def at(self, t: float | int) -> Flow:
        """The flow that is followed from t on."""
        return self.flows[int(t / self.span + 1e-9) % len(self.flows)]

    def pieces(self, time: float) -> Iterator[tuple[Flow, float, float]]:
        for k in range(max(1, ceil(time / self.span - 1e-9))):
            yield self.flows[k % len(self.flows)], k * self.span, min((k + 1) * self.span, time)

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self.at(t).velocity(z, t, mask=mask)

    def retract(self, z: Array) -> Array:
        return self.flows[0].retract(z)

    @property
    def advice(self) -> str:
        return self.flows[0].advice


def approach(z: np.ndarray, leader: np.ndarray, pace: float, t: float) -> ClosedForm:
    """Every token on its way to its leader: z_l + e^{-pace (s - t)} (z_i - z_l) at times s."""

    def at(times: np.ndarray) -> np.ndarray:
        left = np.exp(-pace * (np.asarray(times) - t))[:, None, None]
        return z[leader] + left * (z - z[leader])

    return at
