"""A softmax run followed with a proved bound on what rounding did to each token.

Layer k is known as floats z and bounds e: token i of the exact run is within e_i of z_i. The proof
is docs/mathematics.md C12: one layer is the map of z, computed with a bounded error, and its
derivative times e, bounded over all tokens that are within e.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np

from .rounding import MORE, U, exponential, largest_eigenvalues, norms


@final
@dataclass(frozen=True, eq=False)
class Form:
    """A head: softmax weights of beta <A x, y>, over the tokens before it only if `causal`."""

    beta: float
    A: np.ndarray
    causal: bool = False

    @cached_property
    def size(self) -> float:
        """The operator norm of A, rounded up."""
        return float(np.sqrt(largest_eigenvalues(self.A.T @ self.A, 10)))

    @cached_property
    def entries(self) -> float:
        """The Frobenius norm of A, which bounds the rounding of its products."""
        return float(np.sqrt((self.A * self.A).sum())) * MORE


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """z_i' = z_i + eta (m_i - z_i), m_i the mean over heads of softmax means.

    Without `alpha` it is the flow dz_i/dt = m_i - z_i, or its projection to the unit `sphere`.
    """

    forms: tuple[Form, ...]
    alpha: Fraction | None
    sphere: bool = False

    @classmethod
    def single(cls, beta: float, A: np.ndarray, alpha: Fraction | None) -> Layer:
        return cls((Form(beta, A),), alpha)

    @property
    def flows(self) -> bool:
        return self.alpha is None

    @property
    def eta(self) -> float:
        return 1.0 if self.alpha is None else float(self.alpha / (1 + self.alpha))

    def scaled(self, factor: float) -> Layer:
        """Every beta times a factor."""
        return replace(self, forms=tuple(replace(f, beta=f.beta * factor) for f in self.forms))


@final
@dataclass(frozen=True, eq=False)
class Enclosed:
    """Tokens of one layer: floats `z` (n, d) and the distances `error` (n,) to the exact ones."""

    layer: Layer
    z: np.ndarray
    error: np.ndarray
    k: int = 0

    @classmethod
    def start(cls, layer: Layer, z: np.ndarray) -> Enclosed:
        return cls(layer, z, np.zeros(len(z)))

    def step(self) -> Enclosed | None:
        """The next layer; None where the bound has grown too large to be of use."""
        z, e, law = self.z, self.error, self.layer
        R, eta, share = float(norms(z).max()), law.eta, 1 / len(law.forms)
        pull, error = np.zeros_like(z), (1 - eta) * e
        for form in law.forms:
            found = _mean(form, z, e)
            if found is None:
                return None
            pull += share * found[0]
            error += eta * share * found[1]
        rounded = (7 + 2 * len(law.forms)) * U * R
        return replace(self, z=z + eta * pull, error=(error + rounded) * MORE, k=self.k + 1)


def _mean(form: Form, z: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """m_i - z_i in floats, and how far m_i is at most from that of the exact tokens."""
    n, d = z.shape
    length = norms(z)
    R, slip = float(length.max()), (2 * d + 6) * U * form.entries
    a, b = norms(z @ form.A.T) + slip * length, norms(z @ form.A) + slip * length
    scores = form.beta * (z @ form.A.T @ z.T)
    if form.causal:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    weights = exponential(scores - scores.max(axis=1, keepdims=True))
    if form.causal:
        weights = np.tril(weights)
    P = weights / weights.sum(axis=1, keepdims=True)
    steps = z[None] - z[:, None]  # (i, j): z_j - z_i
    pull = np.einsum("ij,ijk->ik", P, steps)
    about = steps - pull[:, None]  # z_j - m_i
    away = norms(about) + 4 * U * R
    spread = (P * away).sum(axis=1) * MORE
    # what rounding changes: weights by the factor 1 + wrong, sums and the new token by units
    wrong = 2 * form.beta * slip * length * R + (n + 40) * U
    walked = (P * norms(steps)).sum(axis=1)
    rounded = 2 * wrong * spread + (2 * n + 20) * U * walked
    # what e changes: the derivative of m_i, bounded over all tokens that are within e
    largest = float(e.max())
    turn = form.beta * (e * b.max() + a * largest + form.size * e * largest)
    if not max(float(turn.max()), float(wrong.max())) <= 0.05:  # NaN too
        return None
    swell = (1 + 2.2 * turn) * (1 + 2.2 * wrong)
    moved = largest + 2.2 * turn * spread * swell + rounded
    reach = away + e[None] + moved[:, None]
    share = P * swell[:, None]
    M = share * (1 + form.beta * (a + form.size * e)[:, None] * reach)
    covariance = np.einsum("ij,ijk->ijk", share, about).swapaxes(1, 2) @ about
    slack = 2 * (moved + largest + 4 * U * R) * (share * reach).sum(axis=1)
    own = form.beta * form.size * (largest_eigenvalues(covariance) + slack)
    return pull, M @ e + own * e + rounded
