"""Dynamics in layers: z^{k+1} = step(z^k, k)."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import frexp, isfinite
from typing import Any, ClassVar, final

import numpy as np

from .._scale import exponent
from .._types import (
    Array,
    as_alpha,
    as_matrix,
    as_number,
    as_parameter,
    as_tokens,
    as_whole,
    carries_gradient,
    is_torch,
    namespace,
)
from ..attention import Attention, Hardmax, Softmax, act
from ..attention.scores import device_of
from .abstract import FrozenEquation, HardmaxLayers, LayerMap, Tendency, end_of

_LARGEST = Fraction(np.finfo(float).max)


@dataclass(frozen=True, eq=False)
class AlphaLayer(LayerMap, abc.ABC):
    """Layers with one step alpha > 0: a float, an int, a Fraction or a string such as "1/10".

    alpha means exactly the number it stores: 0.1 is the float nearest to 1/10. A tensor that
    requires a gradient gets one from layers that torch steps; the certified walk takes its value.
    """

    attention: Attention = field(default_factory=Hardmax)
    alpha: Any = 1.0

    def __post_init__(self) -> None:
        as_alpha(self.alpha)

    @property
    def exact_alpha(self) -> Fraction:
        return as_alpha(self.alpha)

    @property
    def _step(self) -> Any:
        """alpha as a factor of arrays: a float, or the tensor that is trained."""
        return self.alpha if carries_gradient(self.alpha) else float(self.exact_alpha)

    @property
    def factor(self) -> Fraction:
        """The factor by which tokens grow per layer, compared with the normalised layer."""
        return Fraction(1)

    @property
    def hardmax_layers(self) -> HardmaxLayers | None:
        if not isinstance(self.attention, Hardmax):
            return None
        return HardmaxLayers(self.attention, self.exact_alpha, self.factor)


@final
@dataclass(frozen=True, eq=False)
class PureAttention(AlphaLayer):
    """The normalised pure-attention layer of arXiv 2407.01602 (doi 10.1137/24M167086X).

        z_i <- (z_i + alpha (P z)_i) / (1 + alpha) = z_i + eta (m_i - z_i),  eta = alpha/(1+alpha)

    Tokens stay in the convex hull of the previous layer for every alpha.

    Parameters
    ----------
    attention
        Gives P; Hardmax() by default.
    alpha
        The step, positive. A Fraction or a text such as "1/10" is exact.

    Examples
    --------
    >>> import cynosure as cy
    >>> run = cy.simulate(cy.PureAttention(alpha=1.0), [[2.0, 0.0], [1.0, 0.0]], layers=2)
    >>> run.z[:, 1, 0].tolist()
    [1.0, 1.5, 1.75]
    """

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        return part_way(z, self.attention.pull(z, mask=mask), self._eta)

    @property
    def _eta(self) -> Any:
        if carries_gradient(self.alpha):
            return self.alpha / (1 + self.alpha)
        return float(self.exact_alpha / (1 + self.exact_alpha))

    @property
    def averaging(self) -> Attention:
        return self.attention

    def tends_to(self, d: int) -> Tendency:
        return end_of(self.attention)

    def frozen(self, P: np.ndarray) -> FrozenEquation:
        return FrozenEquation((1 - self._eta) * np.eye(len(P)) + self._eta * P)


@final
@dataclass(frozen=True, eq=False)
class UnnormalizedAttention(AlphaLayer):
    """The layer without normalisation, z_i <- z_i + alpha (P z)_i: tokens grow without bound.

    For hardmax the sets C_i do not see a common factor, so its tokens are exactly (1+alpha)^k
    times those of `PureAttention` (docs/mathematics.md A1): `simulate` rescales the bounded ones,
    and stops with the status "overflow" where the largest coordinate overflows.

    Trap: so the rounding of the bounded tokens, that of the longest one, grows by the same factor.
    With alpha beyond 1e15 a token that is pulled towards 0 loses all its digits in a layer.
    """

    grows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        AlphaLayer.__post_init__(self)
        if self.factor > _LARGEST:
            raise ValueError(
                f"alpha: tokens grow by 1 + alpha in every layer, which must be at most "
                f"{float(_LARGEST):.2g}; PureAttention takes any alpha > 0"
            )

    @property
    def factor(self) -> Fraction:
        return 1 + self.exact_alpha

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        return z + self._step * self.attention.pull(z, mask=mask)

    def tends_to(self, d: int) -> Tendency:
        return "polytope" if isinstance(self.attention, Hardmax) else "unknown"

    def growth(self, t: np.ndarray) -> np.ndarray:
        known = self.attention.values is None
        return float(self.factor) ** np.asarray(t, dtype=float) if known else super().growth(t)

    def frozen(self, P: np.ndarray) -> FrozenEquation:
        return FrozenEquation(np.eye(len(P)) + float(self.exact_alpha) * P)


@final
@dataclass(frozen=True, eq=False)
class ValueAttention(LayerMap):
    """A general value matrix, the Frank-Wolfe reading of arXiv 2508.09628 (docs/mathematics.md A6).

        z_i <- z_i + W ((P z)_i - z_i),   W = (I + V)^{-1} V

    that is, z + V P z followed by (I + V)^{-1}; V = alpha I is `PureAttention` with that alpha,
    None is V = I. Trap: unless V is a multiple of I the hull need not shrink (V = diag(3/2, 7/3)).
    """

    attention: Attention = field(default_factory=Hardmax)
    V: Array | None = None

    def __post_init__(self) -> None:
        V = as_matrix(self.V, "V")
        object.__setattr__(self, "V", V)
        if V is not None and np.linalg.cond(np.eye(len(V)) + V) > 1e12:
            raise ValueError("V: I + V must be invertible, but V has an eigenvalue at (or near) -1")

    @cached_property
    def _step_matrix(self) -> np.ndarray | None:
        return None if self.V is None else np.linalg.solve(np.eye(len(self.V)) + self.V, self.V)

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        away = self.attention.pull(z, mask=mask) - z
        return z + (0.5 * away if self._step_matrix is None else act(self._step_matrix, away, "V"))


@final
@dataclass(frozen=True, eq=False)
class FeedForward(LayerMap):
    """The feed-forward sublayer of a transformer, without biases (docs/mathematics.md E13).

        z_i <- z_i + weight W2 relu(W1 z_i)

    The same for every token and layer: no token sees another, so equal tokens stay equal, and
    positively homogeneous like hardmax. W1 is (width, d), W2 (d, width), None for the identity.
    `Scheduled([PureAttention(), FeedForward(W1, W2)])` puts it after every attention layer.
    """

    W1: Array | None = None
    W2: Array | None = None
    weight: float = 0.1

    def __post_init__(self) -> None:
        for name in ("W1", "W2"):
            object.__setattr__(self, name, as_parameter(getattr(self, name), name, square=False))
        if not isfinite(self.weight):
            raise ValueError(f"weight: expected a finite number, got {self.weight!r}")

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        hidden = act(self.W1, z, "W1")
        active = namespace(z).where(hidden > 0, hidden, 0.0)
        out = act(self.W2, active, "W2")
        if out.shape[-1] != z.shape[-1]:
            raise ValueError(
                f"FeedForward: tokens have d = {z.shape[-1]} and would get {out.shape[-1]}; "
                "expected W1 of shape (width, d) and W2 of shape (d, width)"
            )
        return z + self.weight * out


@final
@dataclass(frozen=True, eq=False)
class Scheduled(LayerMap):
    """Weights that change with the layer: layer k is taken by layers[k mod len(layers)].

    A short list is repeated (one entry: shared weights, as in ALBERT). A list as
    long as the run gives every layer its own alpha, A or temperature.
    """

    layers: Sequence[LayerMap] = field(default_factory=lambda: (PureAttention(),))

    def __post_init__(self) -> None:
        layers = tuple(self.layers)
        if not layers or not all(isinstance(layer, LayerMap) for layer in layers):
            raise TypeError(f"layers: expected one or more LayerMaps, got {self.layers!r}")
        object.__setattr__(self, "layers", layers)

    def at(self, t: float | int) -> LayerMap:
        return self.layers[int(t) % len(self.layers)]

    def alone(self, place: int) -> Scheduled:
        return Scheduled([layer.alone(place) for layer in self.layers])

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        return self.at(k).step(z, k, mask=mask)


@final
@dataclass(frozen=True, eq=False)
class JumpChain(LayerMap):
    """The chain of arXiv 2508.09628 at finite beta: each token jumps towards one token it draws.

        z_i <- (1 - g) z_i + g z_j,   j drawn with probability P_ij,   0 < g < 1

    Its mean is `PureAttention` with alpha = g/(1 - g). Draws come from (seed, k): runs repeat, and
    a longer run begins like a shorter one. At large beta tokens are trapped at vertices for a time
    exponential in beta (B21). Configuration b of a batch draws like a run with `place` b.
    """

    attention: Attention = field(default_factory=Softmax)
    g: float = 0.5
    seed: int = 0
    place: int = 0

    def __post_init__(self) -> None:
        as_number(self.g, "g", "a step between 0 and 1", lambda g: 0 < g < 1)
        as_whole(self.seed, "seed", 0)
        as_whole(self.place, "place", 0)

    def alone(self, place: int) -> JumpChain:
        return replace(self, place=int(self.place) + place)

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        x = z.detach() if is_torch(z) else z  # draws have no gradient, jumps have
        P = as_tokens(self.attention.weights(x, mask=mask))
        total = np.cumsum(P, axis=-1)
        bits = np.random.PCG64([int(self.seed), k])  # that of default_rng
        bits.advance(int(self.place) * P.shape[-1])  # past the draws of the configurations before
        draw = np.random.Generator(bits).random(P.shape[:-1])[..., None]
        chosen = (total <= draw * total[..., -1:]).sum(axis=-1).clip(max=P.shape[-1] - 1)
        index = np.broadcast_to(chosen[..., None], tuple(z.shape)).copy()
        xp = namespace(z)
        target = xp.take_along_axis(z, xp.asarray(index, device=device_of(z)), axis=-2)
        return part_way(z, target, self.g)


def part_way(z: Array, target: Array, share: Any) -> Array:
    """z + share (target - z) for 0 <= share <= 1, a float also where target - z is none."""
    xp = namespace(z)
    largest = float(xp.finfo(z.dtype).max)
    if max(exponent(z), exponent(target)) < frexp(largest)[1]:
        return z + share * (target - z)
    half = share * (target / 2 - z / 2)
    with np.errstate(over="ignore"):  # by rounding; what is meant lies between z and the target
        moved = z + half + half
    return xp.clip(moved, xp.minimum(z, target), xp.maximum(z, target))
