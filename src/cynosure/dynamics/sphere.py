"""Attention on the sphere: layer normalisation as a flow, with and without noise."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, final

import numpy as np

from .._scale import unit
from .._types import Array, as_number, as_parameter, as_whole, namespace
from ..attention import Attention, Softmax, act
from ..attention.scores import device_of
from .abstract import Flow, LayerMap, Tendency


class OnSphere(Flow, abc.ABC):
    """Tokens of length 1 that merge in the end."""

    def retract(self, z: Array) -> Array:
        return unit(z)

    def tends_to(self, d: int) -> Tendency:
        return "one point"


@final
@dataclass(frozen=True, eq=False)
class SphereFlow(OnSphere):
    """Self-attention with layer normalisation, SA of arXiv 2312.10794 (docs/mathematics.md A4).

        x_i' = y_i - <x_i, y_i> x_i,   y_i = V sum_j P_ij x_j,   |x_i| = 1

    Parameters
    ----------
    attention
        Gives P. `Causal(Softmax(beta))` gives the flow of arXiv 2411.04990, `Heads` several heads.
    V
        The value matrix, None for the identity.

    Examples
    --------
    >>> import cynosure as cy
    >>> run = cy.simulate(cy.SphereFlow(), cy.configurations.sphere(20, 3), time=20.0)
    >>> cy.clusters(run.z[-1], tol=1e-3).count
    1
    """

    attention: Attention = field(default_factory=Softmax)
    V: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "V", as_parameter(self.V, "V"))

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        x = self.retract(z)  # off the sphere by rounding: the field there keeps |z| as it is
        return tangent(x, act(self.V, self.attention.pull(x, mask=mask), "V"))

    @property
    def projected(self) -> Attention | None:
        return self.attention if self.V is None else None


@final
@dataclass(frozen=True, eq=False)
class UnnormalizedSphereFlow(OnSphere):
    """The sphere flow without the softmax denominator: USA of arXiv 2312.10794.

        x_i' = y_i - <x_i, y_i> x_i,   y_i = V (1/n) sum_j exp(beta <A x_i, x_j>) x_j

    A gradient flow for A = V = I; beta = 0 on the circle is the Kuramoto model. The velocity is of
    the order e^beta: from beta ~ 20 on take a short time, or `SphereFlow`.
    """

    advice = "The velocity is of the order e^beta: use a smaller beta, or SphereFlow."
    beta: float = 1.0
    A: Array | None = None
    V: Array | None = None

    def __post_init__(self) -> None:
        rule = Softmax(self.beta, self.A)  # the same parameters, the same complaints
        object.__setattr__(self, "beta", rule.beta)
        object.__setattr__(self, "A", rule.A)
        object.__setattr__(self, "V", as_parameter(self.V, "V"))

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        x = self.retract(z)
        xp = namespace(x)
        scores = self.beta * (act(self.A, x) @ xp.matrix_transpose(x))
        count: Any = x.shape[-2]
        weights = xp.exp(scores)
        if mask is not None:
            real = xp.asarray(mask, device=device_of(x))
            weights = xp.where(real[..., None, :], weights, 0.0)
            count = xp.astype(xp.sum(xp.astype(real, x.dtype), axis=-1), x.dtype)[..., None, None]
        return tangent(x, act(self.V, (weights @ x) / count, "V"))

    @property
    def score_matrix(self) -> np.ndarray | None:
        return self.A


@final
@dataclass(frozen=True, eq=False)
class NoisySphere(LayerMap):
    """Sphere tokens in common matrix noise: random value matrices with RMS norm, arXiv 2601.21942.

        x_i <- y / |y|,   y = x_i + dt (P x)_i + sigma sqrt(dt) G_k x_i

    G_k is one d x d Gaussian matrix per layer, *the same for every token* (and every configuration
    of a batch), drawn from (seed, k): runs repeat, and a longer run begins like a shorter one. As
    dt -> 0 this is the Stratonovich equation on the sphere.
    """

    attention: Attention = field(default_factory=Softmax)
    sigma: float = 0.1
    dt: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        as_number(self.dt, "dt", "a positive step", lambda dt: 0 < dt < inf)
        as_number(self.sigma, "sigma", "a noise strength >= 0", lambda sigma: 0 <= sigma < inf)
        as_whole(self.seed, "seed", 0)

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        x, d = unit(z), z.shape[-1]
        G = np.random.default_rng([self.seed, k]).standard_normal((d, d))
        drift = self.attention.pull(x, mask=mask)
        return unit(x + self.dt * drift + self.sigma * sqrt(self.dt) * act(G, x))


def tangent(x: Array, y: Array) -> Array:
    """The part of y that is orthogonal to the unit tokens x."""
    return y - namespace(x).sum(x * y, axis=-1, keepdims=True) * x
