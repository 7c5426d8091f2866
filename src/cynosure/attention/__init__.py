"""Who looks at whom: attention as a map from tokens to row-stochastic weights.

`Hardmax` lives on certified sets; the others are formulas in the scores <A z_i, z_j>, written once
against the array-API standard, so that NumPy arrays and torch tensors (gradients, GPU) both work.
"""

from __future__ import annotations

from .._exports import guard
from .._registry import Registry
from ..engine.followed import Followed
from .composed import Causal, Heads
from .rotary import Rotary, Turn
from .rules import Attention, Hardmax, Localmax, RowAttention, Sinkhorn, SoftHead, Softmax
from .scores import act, sides, softmax_pull, softmax_weights

__all__ = [
    "ATTENTIONS", "Attention", "Causal", "Followed", "Hardmax", "Heads", "Localmax", "Rotary",
    "RowAttention", "Sinkhorn", "SoftHead", "Softmax", "Turn", "act", "sides", "softmax_pull",
    "softmax_weights",
]  # fmt: skip

ATTENTIONS: Registry[type[Attention]] = Registry(
    "attention",
    "an Attention",
    lambda kind: isinstance(kind, type) and issubclass(kind, Attention),
    {
        "hardmax": Hardmax,
        "softmax": Softmax,
        "localmax": Localmax,
        "sinkhorn": Sinkhorn,
        "rotary": Rotary,
    },
)

guard(__name__)
