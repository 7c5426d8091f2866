"""Dynamics: how tokens move from one layer (or time) to the next.

To add one: a final frozen dataclass in `layers`, `flows`, `self_attention`, `sphere` or
`normalisation` and its line in `DYNAMICS`; the conformance tests, the command line and the
documentation iterate over that dict. Override methods of `abstract.Dynamics` to say more about it
than how tokens move.
"""

from __future__ import annotations

from .._exports import guard
from .._registry import Registry
from .abstract import (
    ClosedForm,
    Dynamics,
    Flow,
    FrozenEquation,
    HardmaxLayers,
    LayerMap,
    Tendency,
    Unknown,
)
from .flows import AttentionFlow, ScheduledFlow, UnnormalizedFlow
from .functions import FunctionFlow, FunctionLayers
from .layers import (
    FeedForward,
    JumpChain,
    PureAttention,
    Scheduled,
    UnnormalizedAttention,
    ValueAttention,
)
from .normalisation import MixedNormFlow, NGPTFlow, PeriNormFlow, PreNormFlow
from .self_attention import EuclideanFlow, HeadsFlow, LeadingFlow, RescaledFlow, SelfAttention
from .sphere import NoisySphere, SphereFlow, UnnormalizedSphereFlow

__all__ = [
    "DYNAMICS", "AttentionFlow", "ClosedForm", "Dynamics", "EuclideanFlow", "FeedForward", "Flow",
    "FrozenEquation", "FunctionFlow", "FunctionLayers", "HardmaxLayers", "HeadsFlow", "JumpChain",
    "LayerMap", "LeadingFlow", "MixedNormFlow", "NGPTFlow", "NoisySphere", "PeriNormFlow",
    "PreNormFlow", "PureAttention", "RescaledFlow", "Scheduled", "ScheduledFlow",
    "SelfAttention", "SphereFlow", "Tendency", "Unknown", "UnnormalizedAttention",
    "UnnormalizedFlow", "UnnormalizedSphereFlow", "ValueAttention",
]  # fmt: skip

DYNAMICS: Registry[type[Dynamics]] = Registry(
    "dynamics",
    "a LayerMap or a Flow",
    lambda kind: isinstance(kind, type) and issubclass(kind, Dynamics),
    {
        "pure_attention": PureAttention,
        "unnormalized_attention": UnnormalizedAttention,
        "value_attention": ValueAttention,
        "scheduled": Scheduled,
        "feed_forward": FeedForward,
        "jump_chain": JumpChain,
        "noisy_sphere": NoisySphere,
        "attention_flow": AttentionFlow,
        "unnormalized_flow": UnnormalizedFlow,
        "euclidean_flow": EuclideanFlow,
        "rescaled_flow": RescaledFlow,
        "leading_flow": LeadingFlow,
        "heads_flow": HeadsFlow,
        "sphere_flow": SphereFlow,
        "pre_norm_flow": PreNormFlow,
        "peri_norm_flow": PeriNormFlow,
        "mixed_norm_flow": MixedNormFlow,
        "ngpt_flow": NGPTFlow,
        "unnormalized_sphere_flow": UnnormalizedSphereFlow,
        "scheduled_flow": ScheduledFlow,
    },
)

guard(__name__)
