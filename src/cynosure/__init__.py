"""Cynosure: self-attention as a dynamical system, with its leaders, clusters and proofs.

The public names below are imported on first use, so that `import cynosure` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {  # module -> the names it gives to the package
    "attention": "Attention Hardmax Softmax Localmax Sinkhorn Causal Heads ATTENTIONS",
    "dynamics": (
        "Dynamics LayerMap PureAttention UnnormalizedAttention ValueAttention Scheduled "
        "ScheduledFlow JumpChain NoisySphere Flow AttentionFlow UnnormalizedFlow EuclideanFlow "
        "RescaledFlow LeadingFlow SphereFlow PreNormFlow UnnormalizedSphereFlow DYNAMICS"
    ),
    "followed": "Followed",
    "status": "Status",
    "trajectory": "Trajectory load",
    "steppers": "Stepper Euler RK4 ExponentialEuler Adaptive",
    "simulation": "simulate",
    "polytope": "Polytope hull",
    "limits": "Limit limit",
    "leaders": "Roles roles",
    "clustering": "Clusters clusters",
    "spectra": "LimitingObject recognise",
    "theorems": "Check check THEOREMS",
    "steering": "Control control remove_leader",
    "report": "Report",
    "placement": "Placed",
    "training": "Learned",
    "explanation": "Explanation",
    "classifier": "HardmaxClassifier",
    "deletions": "faithfulness",
    "evaluation": "evaluate",
    "shipped": "load_pretrained",
    "pretrained": "load_transformer Transformer Head Trace",
}
_MODULES = ("configurations", "datasets", "movie", "plot", "spectra")
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = ["__version__", *sorted([*_HOME, *_MODULES])]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"cynosure.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'cynosure' has no attribute {name!r}")
    value = getattr(import_module(f"cynosure.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
