"""The sentiment model with the matrix A of its scores <A z_i, z_j> trained along.

    "spd"   A = B^T B, B square, from the identity: symmetric and positive definite, as in theory
    "free"  any square A, from the identity

With A = B^T B the tokens y = B z move as they do with A = I, and <v, z> = <B^-T v, y>: the
embedding B E and the decoder B^-T v make the same decisions. So "spd" can only change the way that
training takes, never what can be expressed; only what is not symmetric in A is new.
Trap: this module runs where only NumPy and torch are installed; torch is imported when training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...classifier.soft_model import Network, SoftLayers, Tensor, Weights, embedded, pull, step

KINDS = {"I": "", "spd": "root", "free": "matrix"}  # what is trained -> the name of its weight


@dataclass(frozen=True)
class MatrixLayers(Network):
    """`layers` layers of pure attention, A of that `kind` trained; temperature 0 is hardmax."""

    kind: str
    layers: int = 8
    temperature: float = 1e-3

    def initial(
        self, terms: int, dim: int, alpha: float, draw: Any, rows: tuple[int, ...] = ()
    ) -> dict[str, Tensor]:
        import torch

        weights = Network.initial(self, terms, dim, alpha, draw, rows)
        return weights | {KINDS[self.kind]: torch.eye(dim)}

    def carried(self, weights: Weights, terms: Tensor, count: Tensor) -> Tensor:
        z, eta, M = embedded(weights, terms), step(weights), weights[KINDS[self.kind]]
        for _ in range(self.layers):
            seen = z @ M.T
            keys = seen if self.kind == "spd" else z
            z = z.lerp(pull(z, seen, count, self.temperature, keys), eta)
        return z


def network(kind: str, layers: int = 8, temperature: float = 1e-3) -> Network:
    """The model of the paper for "I", with a trained A otherwise."""
    if kind not in KINDS:
        raise ValueError(f"matrix: expected one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "I":
        return SoftLayers(layers, temperature)
    return MatrixLayers(kind, layers, temperature)


def kind_of(weights: Mapping[str, Any]) -> str:
    """Which matrix these weights have."""
    return next((kind for kind, name in KINDS.items() if name in weights), "I")


def matrix_of(weights: Mapping[str, Any]) -> np.ndarray | None:
    """A in float64, or None for the identity."""
    kind = kind_of(weights)
    if kind == "I":
        return None
    M = np.asarray(weights[KINDS[kind]], np.float64)
    return M.T @ M if kind == "spd" else M
