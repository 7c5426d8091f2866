"""Reading matrices and runs: spectra of A, V, P; good triples; rates; limiting objects.

Each function returns a small frozen record with `to_dict()`, ready for a table or JSON.
"""

from __future__ import annotations

from .frozen import MasterEquation, freeze, propagate
from .limiting import (
    BooleanLimit,
    Hyperplanes,
    LimitingObject,
    boolean_limit,
    hyperplane_values,
    recognise,
)
from .matrices import GoodTriple, Spectrum, attention_matrix, epsilon_rank, good_triple, spectrum
from .rates import NeuralCollapse, Plateau, Rate, energy, metastable, neural_collapse, rate

__all__ = [
    "BooleanLimit",
    "GoodTriple",
    "Hyperplanes",
    "LimitingObject",
    "MasterEquation",
    "NeuralCollapse",
    "Plateau",
    "Rate",
    "Spectrum",
    "attention_matrix",
    "boolean_limit",
    "energy",
    "epsilon_rank",
    "freeze",
    "good_triple",
    "hyperplane_values",
    "metastable",
    "neural_collapse",
    "propagate",
    "rate",
    "recognise",
    "spectrum",
]
