"""Cynosure: self-attention as a dynamical system, with its leaders, clusters and proofs.

The public names below are imported on first use, so that `import cynosure` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {  # module -> the names it gives to the package
    "engine.followed": "Followed",
    "attention": "Attention Hardmax Softmax Localmax Sinkhorn Causal Heads Rotary ATTENTIONS",
    "dynamics": (
        "Dynamics LayerMap PureAttention UnnormalizedAttention ValueAttention FeedForward "
        "Scheduled ScheduledFlow JumpChain NoisySphere Flow AttentionFlow UnnormalizedFlow "
        "EuclideanFlow RescaledFlow LeadingFlow HeadsFlow SphereFlow PreNormFlow "
        "PeriNormFlow MixedNormFlow NGPTFlow UnnormalizedSphereFlow DYNAMICS"
    ),
    "simulation.status": "Status",
    "simulation.trajectory": "Trajectory load",
    "simulation.steppers": "Stepper Euler RK4 ExponentialEuler Adaptive STEPPERS",
    "simulation.loop": "simulate",
    "analysis.polytope": "Polytope hull",
    "analysis.limits": "Limit limit",
    "analysis.leaders": "Roles roles",
    "analysis.gaussian": "GaussianFlow",
    "analysis.clustering": "Clusters clusters",
    "analysis.spectra": "LimitingObject recognise",
    "analysis.removal": "remove_leader",
    "analysis.steering": "Control control",
    "analysis.choosing": "Choice control_exactly control_limit",
    "construction.classifying": "construct_classifier",
    "construction.network": "ExactClassifier",
    "theorems": "Check check THEOREMS",
    "drawing.report": "Comparison Picture Report Table",
    "drawing.run_report": "report",
    "sweeps": "open_sweep sweep",
    "classifier.placement": "Placed",
    "classifier.training": "Learned",
    "classifier.explanation": "Explanation",
    "classifier.estimator": "HardmaxClassifier",
    "classifier.deletions": "faithfulness",
    "classifier.evaluation": "evaluate",
    "classifier.shipped": "load_pretrained",
    "pretrained": "load_transformer Transformer Head Trace",
    "web.notebook": "widget",
}
_MODULES = {  # modules that are public as a whole: cy.plot.layers, cy.configurations.box
    "configurations": "simulation",
    "spectra": "analysis",
    "movie": "drawing",
    "plot": "drawing",
    "bulk": "classifier",
    "datasets": "classifier",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = ["__version__", *sorted([*_HOME, *_MODULES])]


if TYPE_CHECKING:  # what `__getattr__` gives, for type checkers and editors
    from .analysis import spectra as spectra
    from .analysis.choosing import Choice as Choice
    from .analysis.choosing import control_exactly as control_exactly
    from .analysis.choosing import control_limit as control_limit
    from .analysis.clustering import Clusters as Clusters
    from .analysis.clustering import clusters as clusters
    from .analysis.gaussian import GaussianFlow as GaussianFlow
    from .analysis.leaders import Roles as Roles
    from .analysis.leaders import roles as roles
    from .analysis.limits import Limit as Limit
    from .analysis.limits import limit as limit
    from .analysis.polytope import Polytope as Polytope
    from .analysis.polytope import hull as hull
    from .analysis.removal import remove_leader as remove_leader
    from .analysis.spectra import LimitingObject as LimitingObject
    from .analysis.spectra import recognise as recognise
    from .analysis.steering import Control as Control
    from .analysis.steering import control as control
    from .attention import ATTENTIONS as ATTENTIONS
    from .attention import Attention as Attention
    from .attention import Causal as Causal
    from .attention import Hardmax as Hardmax
    from .attention import Heads as Heads
    from .attention import Localmax as Localmax
    from .attention import Rotary as Rotary
    from .attention import Sinkhorn as Sinkhorn
    from .attention import Softmax as Softmax
    from .classifier import bulk as bulk
    from .classifier import datasets as datasets
    from .classifier.deletions import faithfulness as faithfulness
    from .classifier.estimator import HardmaxClassifier as HardmaxClassifier
    from .classifier.evaluation import evaluate as evaluate
    from .classifier.explanation import Explanation as Explanation
    from .classifier.placement import Placed as Placed
    from .classifier.shipped import load_pretrained as load_pretrained
    from .classifier.training import Learned as Learned
    from .construction.classifying import construct_classifier as construct_classifier
    from .construction.network import ExactClassifier as ExactClassifier
    from .drawing import movie as movie
    from .drawing import plot as plot
    from .drawing.report import Comparison as Comparison
    from .drawing.report import Picture as Picture
    from .drawing.report import Report as Report
    from .drawing.report import Table as Table
    from .drawing.run_report import report as report
    from .dynamics import DYNAMICS as DYNAMICS
    from .dynamics import AttentionFlow as AttentionFlow
    from .dynamics import Dynamics as Dynamics
    from .dynamics import EuclideanFlow as EuclideanFlow
    from .dynamics import FeedForward as FeedForward
    from .dynamics import Flow as Flow
    from .dynamics import HeadsFlow as HeadsFlow
    from .dynamics import JumpChain as JumpChain
    from .dynamics import LayerMap as LayerMap
    from .dynamics import LeadingFlow as LeadingFlow
    from .dynamics import MixedNormFlow as MixedNormFlow
    from .dynamics import NGPTFlow as NGPTFlow
    from .dynamics import NoisySphere as NoisySphere
    from .dynamics import PeriNormFlow as PeriNormFlow
    from .dynamics import PreNormFlow as PreNormFlow
    from .dynamics import PureAttention as PureAttention
    from .dynamics import RescaledFlow as RescaledFlow
    from .dynamics import Scheduled as Scheduled
    from .dynamics import ScheduledFlow as ScheduledFlow
    from .dynamics import SphereFlow as SphereFlow
    from .dynamics import UnnormalizedAttention as UnnormalizedAttention
    from .dynamics import UnnormalizedFlow as UnnormalizedFlow
    from .dynamics import UnnormalizedSphereFlow as UnnormalizedSphereFlow
    from .dynamics import ValueAttention as ValueAttention
    from .engine.followed import Followed as Followed
    from .pretrained import Head as Head
    from .pretrained import Trace as Trace
    from .pretrained import Transformer as Transformer
    from .pretrained import load_transformer as load_transformer
    from .simulation import configurations as configurations
    from .simulation.loop import simulate as simulate
    from .simulation.status import Status as Status
    from .simulation.steppers import RK4 as RK4
    from .simulation.steppers import STEPPERS as STEPPERS
    from .simulation.steppers import Adaptive as Adaptive
    from .simulation.steppers import Euler as Euler
    from .simulation.steppers import ExponentialEuler as ExponentialEuler
    from .simulation.steppers import Stepper as Stepper
    from .simulation.trajectory import Trajectory as Trajectory
    from .simulation.trajectory import load as load
    from .sweeps import open_sweep as open_sweep
    from .sweeps import sweep as sweep
    from .theorems import THEOREMS as THEOREMS
    from .theorems import Check as Check
    from .theorems import check as check
    from .web.notebook import widget as widget


if not TYPE_CHECKING:  # hidden from type checkers: to them every name it could give is typed above

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"cynosure.{_MODULES[name]}.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'cynosure' has no attribute {name!r}")
        value = getattr(import_module(f"cynosure.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
