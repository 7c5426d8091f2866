"""Dynamics: how tokens move from one layer (or time) to the next.

To add one: a final frozen dataclass here and its line in `DYNAMICS`; the conformance tests, the
command line and the documentation iterate over that dict.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import exp, sqrt
from typing import Any, final

import numpy as np

from ._types import Array, as_alpha, as_matrix, is_torch
from .attention import Attention, Hardmax, Softmax, act, softmax_pull, softmax_weights

__all__ = [
    "DYNAMICS",
    "AttentionFlow",
    "Dynamics",
    "EuclideanFlow",
    "Flow",
    "LayerMap",
    "LeadingFlow",
    "NoisySphere",
    "PureAttention",
    "Relaxation",
    "RescaledFlow",
    "Scheduled",
    "SphereFlow",
    "UnnormalizedAttention",
    "UnnormalizedFlow",
    "UnnormalizedSphereFlow",
    "ValueAttention",
]

ClosedForm = Callable[[np.ndarray], np.ndarray]  # times (m,) to tokens (m, n, d)

_LOG_MAX = 709.0  # exp of more leaves the floats
_LOG_ZERO = 745.0  # exp of minus this is 0


class Dynamics(abc.ABC):  # noqa: B024 - what the two kinds share is only their role
    """Anything that makes a trajectory of tokens: a LayerMap (discrete) or a Flow (continuous)."""


class LayerMap(Dynamics):
    """Discrete layers: z^{k+1} = step(z^k, k)."""

    @abc.abstractmethod
    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        """The next layer, shape (*b, n, d). Padding may come back moved: `simulate` restores it."""


class Flow(Dynamics):
    """Continuous time: dz/dt = velocity(z, t), on R^d or on the manifold that `retract` maps to."""

    @abc.abstractmethod
    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        """dz/dt, shape (*b, n, d). What it says about padding is ignored by `simulate`."""

    def retract(self, z: Array) -> Array:
        """The tokens put back on the manifold; the identity on R^d."""
        return z

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        """The tokens as a function of all later times, where they are known from z (n, d) at t.

        An adaptive stepper asks after every step: past that point explicit steps only add noise.
        """
        return None

    @property
    def advice(self) -> str:
        """What to do when a run of this flow leaves the floats."""
        return "Use a shorter time."


class Relaxation(Flow):
    """Flows z' = V (m(z, t) - z) towards a target m in the hull of the tokens, `rate` being V.

    With m frozen over a step they are solved exactly, z + (I - e^{-dt V})(m - z): the
    `ExponentialEuler` stepper, which never leaves the hull when V is a positive multiple of I.
    """

    @abc.abstractmethod
    def target(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        """m(z, t), shape (*b, n, d); padding is its own target."""

    @property
    @abc.abstractmethod
    def rate(self) -> np.ndarray | None:
        """V, None for the identity."""

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return act(self.rate, self.target(z, t, mask=mask) - z, "V")


@final
@dataclass(frozen=True, eq=False)
class PureAttention(LayerMap):
    """The normalised pure-attention layer of arXiv 2407.01602.

        z_i <- (z_i + alpha (P z)_i) / (1 + alpha) = z_i + eta (m_i - z_i),  eta = alpha/(1+alpha)

    `alpha` > 0 is a float, an int, a Fraction or a string such as "1/10"; it means exactly the
    number it stores. Tokens stay in the convex hull of the previous layer for every alpha.
    """

    attention: Attention = field(default_factory=Hardmax)
    alpha: Any = 1.0

    def __post_init__(self) -> None:
        as_alpha(self.alpha)

    @property
    def exact_alpha(self) -> Fraction:
        return as_alpha(self.alpha)

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        alpha = self.exact_alpha
        return z + float(alpha / (1 + alpha)) * (self.attention.pull(z, mask=mask) - z)


@final
@dataclass(frozen=True, eq=False)
class UnnormalizedAttention(LayerMap):
    """The layer without normalisation, z_i <- z_i + alpha (P z)_i: tokens grow without bound.

    For hardmax the sets C_i do not see a common factor, so its tokens are exactly (1+alpha)^k
    times those of `PureAttention` (theory A1): `simulate` walks the bounded ones and rescales, and
    stops with the status "overflow" where the largest coordinate leaves the floats.
    """

    attention: Attention = field(default_factory=Hardmax)
    alpha: Any = 1.0

    def __post_init__(self) -> None:
        as_alpha(self.alpha)

    @property
    def exact_alpha(self) -> Fraction:
        return as_alpha(self.alpha)

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        return z + float(self.exact_alpha) * self.attention.pull(z, mask=mask)


@final
@dataclass(frozen=True, eq=False)
class ValueAttention(LayerMap):
    """A general value matrix, the Frank-Wolfe reading of arXiv 2508.09628 (theory A6).

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
class Scheduled(LayerMap):
    """Weights that change with the layer: layer k is taken by layers[k mod len(layers)].

    Repetition is the point of a short list (one entry: shared weights, as in ALBERT). A list as
    long as the run gives every layer its own alpha, A or temperature.
    """

    layers: Sequence[LayerMap] = field(default_factory=lambda: (PureAttention(),))

    def __post_init__(self) -> None:
        layers = tuple(self.layers)
        if not layers or not all(isinstance(layer, LayerMap) for layer in layers):
            raise TypeError(f"layers: expected one or more LayerMaps, got {self.layers!r}")
        object.__setattr__(self, "layers", layers)

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        return self.layers[k % len(self.layers)].step(z, k, mask=mask)


@final
@dataclass(frozen=True, eq=False)
class AttentionFlow(Relaxation):
    """z_i' = (P z)_i - z_i: `PureAttention` with alpha -> 0 and k alpha = t; the hull shrinks.

    With `Hardmax` it is the Frank-Wolfe flow of arXiv 2508.09628; its velocity jumps where a token
    changes its mind, which an adaptive stepper resolves by very short steps. Once every token
    follows one leader, it does so for ever (theory C5): a closed form.
    """

    attention: Attention = field(default_factory=Softmax)

    def target(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self.attention.pull(z, mask=mask)

    @property
    def rate(self) -> np.ndarray | None:
        return None

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        if not isinstance(self.attention, Hardmax):
            return None
        followed = self.attention.followed(z)
        alone = (np.diff(followed.indptr) == 1)[followed.label]
        leader = followed.target
        return _approach(z, leader, 1.0, t) if (alone & followed.leads[leader]).all() else None


@final
@dataclass(frozen=True, eq=False)
class UnnormalizedFlow(Flow):
    """x_i' = (P x)_i for any attention: `Heads` brings several heads with their value matrices.

    The limit of `UnnormalizedAttention` for alpha -> 0, k alpha = t. Tokens grow like e^t.
    """

    attention: Attention = field(default_factory=Softmax)

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self.attention.pull(z, mask=mask)

    @property
    def advice(self) -> str:
        return "Use AttentionFlow (same attention, tokens kept in their hull) or a shorter time."


@final
@dataclass(frozen=True, eq=False)
class EuclideanFlow(Flow):
    """Self-attention in R^d, arXiv 2305.05465 (theory A3).

        x_i' = sum_j P_ij V x_j,   P = softmax of <Q x_i, K x_j>

    Q, K are (m, d), V is (d, d), None for identities; an inverse temperature goes into Q. Tokens
    grow like e^{t l1}, l1 the largest real part of V's eigenvalues: `RescaledFlow` and
    `LeadingFlow` follow the same tokens without overflow.
    """

    Q: Array | None = None
    K: Array | None = None
    V: Array | None = None

    def __post_init__(self) -> None:
        _set_weights(self)

    @cached_property
    def attention(self) -> Softmax:
        return Softmax(1.0, _form(self.Q, self.K))

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return act(self.V, self.attention.pull(z, mask=mask), "V")

    @property
    def advice(self) -> str:
        return "Use RescaledFlow or LeadingFlow: the same tokens in variables that do not grow."


@final
@dataclass(frozen=True, eq=False)
class RescaledFlow(Relaxation):
    """The tokens of `EuclideanFlow` seen as z_i = e^{-tV} x_i (arXiv 2305.05465, theory A3).

        z_i' = sum_j P_ij V (z_j - z_i),   P = softmax of <Q e^{tV} z_i, K e^{tV} z_j>

    Neither e^{tV} nor the scores are ever formed. With l1 the largest real part of an eigenvalue
    of V and E = e^{t (V - l1)}, which does not grow exponentially, the scores are
    e^{2 l1 t} <Q E z_i, K E z_j>; the factor multiplies gaps to the row maximum, so that late
    times are the hardmax of the rest, ties included. Any t is safe.

    Trap: where V has eigenvalues of negative real part these z grow (their x converge), and in the
    end drown the others in rounding; `LeadingFlow` does not have that.
    """

    Q: Array | None = None
    K: Array | None = None
    V: Array | None = None

    def __post_init__(self) -> None:
        _set_weights(self)

    @property
    def rate(self) -> np.ndarray | None:
        return self.V

    def target(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        seen, growth = self._seen(z, t)
        return softmax_pull(act(self._A, seen), seen, z, growth, mask=mask)

    def weights(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        """P at time t, shape (*b, n, n)."""
        seen, growth = self._seen(z, t)
        return softmax_weights(act(self._A, seen), seen, growth, mask=mask)

    def _seen(self, z: Array, t: float) -> tuple[Array, float]:
        """e^{tV} z up to a factor, and the square of that factor, cut at the largest float."""
        E, log = self._propagator(t), self._leading * t
        if E is not None:  # a Jordan block makes E grow like a power of t: an exact power of 2 out
            power = int(np.frexp(np.abs(E).max())[1])
            E, log = np.ldexp(E, -power), log + power * np.log(2)
        return act(E, z, "V"), exp(min(2 * log, _LOG_MAX))

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        """For V = l I, l > 0: each token follows one leader, with weight 1 in double precision.

        Then that is so for ever. With c = 1 - e^{-l s}, tokens at t + s are z_i + c (z_lead - z_i),
        and their gaps <A z_i, z_lead - z_j> are at least (1 - c)^2 times those at t (all gaps being
        >= 0), while the inverse temperature grows by e^{2 l s} = (1 - c)^{-2}.
        """
        pace = 1.0 if self.V is None else float(self.V[0, 0])
        if pace <= 0 or not (self.V is None or np.array_equal(self.V, pace * np.eye(len(z[0])))):
            return None
        seen, growth = self._seen(z, t)
        scores = act(self._A, seen) @ seen.T
        with np.errstate(over="ignore"):
            hot = (scores.max(axis=1, keepdims=True) - scores) * growth <= _LOG_ZERO
        first = hot.argmax(axis=1)
        if (hot.sum(axis=1) > 1).any():  # several only if they are copies of one token
            label = np.unique(z, axis=0, return_inverse=True)[1].ravel()
            if (hot & (label != label[first][:, None])).any():
                return None
        return _approach(z, first, pace, t) if (z[first[first]] == z[first]).all() else None

    @cached_property
    def _A(self) -> np.ndarray | None:
        return _form(self.Q, self.K)

    @cached_property
    def _leading(self) -> float:
        return _abscissa(self.V)

    @cached_property
    def _modes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Eigenvalues less l1, eigenvectors and their inverse; None near a Jordan block."""
        assert self.V is not None
        values, vectors = np.linalg.eig(self.V)
        if np.linalg.cond(vectors) > 1e6:
            return None
        return values - self._leading, vectors, np.linalg.inv(vectors)

    def _propagator(self, t: float) -> np.ndarray | None:
        """e^{t (V - l1)}, None where it is the identity."""
        if self.V is None:
            return None
        if self._modes is None:
            from scipy.linalg import expm

            return expm(t * (self.V - self._leading * np.eye(len(self.V))))
        values, vectors, inverse = self._modes
        return ((vectors * np.exp(t * values)) @ inverse).real

    @property
    def advice(self) -> str:
        return "V has eigenvalues of negative real part, along which z grows: use LeadingFlow."


@final
@dataclass(frozen=True, eq=False)
class LeadingFlow(Flow):
    """The tokens of `EuclideanFlow` at their own growth: y_i = e^{-l1 t} x_i, l1 leading in V.

        y_i' = sum_j P_ij V y_j - l1 y_i,   P = softmax of e^{2 l1 t} <Q y_i, K y_j>

    The dual leading eigenvector takes the same value on y and on z = e^{-tV} x, so hyperplane
    limits (B26) are read here as well, and y stays bounded at any time whatever the rest of V's
    spectrum. For V = I it is `RescaledFlow`.
    """

    Q: Array | None = None
    K: Array | None = None
    V: Array | None = None

    def __post_init__(self) -> None:
        _set_weights(self)

    @cached_property
    def _A(self) -> np.ndarray | None:
        return _form(self.Q, self.K)

    @cached_property
    def _leading(self) -> float:
        return _abscissa(self.V)

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        pulled = softmax_pull(act(self._A, z), z, z, self._growth(t), mask=mask)
        return act(self.V, pulled, "V") - self._leading * z

    def weights(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        """P at time t, shape (*b, n, n)."""
        return softmax_weights(act(self._A, z), z, self._growth(t), mask=mask)

    def _growth(self, t: float) -> float:
        return exp(min(2 * self._leading * t, _LOG_MAX))


@final
@dataclass(frozen=True, eq=False)
class SphereFlow(Flow):
    """Self-attention with layer normalisation, SA of arXiv 2312.10794 (theory A4).

        x_i' = y_i - <x_i, y_i> x_i,   y_i = V sum_j P_ij x_j,   |x_i| = 1

    `Causal(Softmax(beta))` gives the flow of arXiv 2411.04990, `Heads` several heads.
    """

    attention: Attention = field(default_factory=Softmax)
    V: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "V", as_matrix(self.V, "V"))

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        x = self.retract(z)  # off the sphere by rounding: the field there keeps |z| as it is
        return _tangent(x, act(self.V, self.attention.pull(x, mask=mask), "V"))

    def retract(self, z: Array) -> Array:
        return _unit(z)


@final
@dataclass(frozen=True, eq=False)
class UnnormalizedSphereFlow(Flow):
    """USA: the sphere flow without the softmax denominator (arXiv 2312.10794, theory A4).

        x_i' = y_i - <x_i, y_i> x_i,   y_i = V (1/n) sum_j exp(beta <A x_i, x_j>) x_j

    A gradient flow for A = V = I; beta = 0 on the circle is the Kuramoto model. The velocity is of
    the order e^beta: from beta ~ 20 on take a short time, or `SphereFlow`.
    """

    beta: float = 1.0
    A: Array | None = None
    V: Array | None = None

    def __post_init__(self) -> None:
        rule = Softmax(self.beta, self.A)  # the same parameters, the same complaints
        object.__setattr__(self, "beta", rule.beta)
        object.__setattr__(self, "A", rule.A)
        object.__setattr__(self, "V", as_matrix(self.V, "V"))

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        from array_api_compat import array_namespace, device

        x = self.retract(z)
        xp = array_namespace(x)
        scores = self.beta * (act(self.A, x) @ xp.matrix_transpose(x))
        count: Any = x.shape[-2]
        weights = xp.exp(scores)
        if mask is not None:
            real = xp.asarray(mask, device=device(x))
            weights = xp.where(real[..., None, :], weights, 0.0)
            count = xp.astype(xp.sum(xp.astype(real, x.dtype), axis=-1), x.dtype)[..., None, None]
        return _tangent(x, act(self.V, (weights @ x) / count, "V"))

    def retract(self, z: Array) -> Array:
        return _unit(z)

    @property
    def advice(self) -> str:
        return "The velocity is of the order e^beta: use a smaller beta, or SphereFlow."


@final
@dataclass(frozen=True, eq=False)
class NoisySphere(LayerMap):
    """Sphere tokens in common matrix noise: random value matrices with RMS norm, arXiv 2601.21942.

        x_i <- y / |y|,   y = x_i + dt (P x)_i + sigma sqrt(dt) G_k x_i

    G_k is one d x d Gaussian matrix per layer, *the same for every token* (and every configuration
    of a batch), drawn from (seed, k): runs repeat, and a longer run begins like a shorter one. As
    dt -> 0 this is the Stratonovich equation on the sphere: the correction dt E[G^2] is a multiple
    of I, and the normalisation removes it.
    """

    attention: Attention = field(default_factory=Softmax)
    sigma: float = 0.1
    dt: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.dt > 0:
            raise ValueError(f"dt: expected a positive step, got {self.dt!r}")
        if not self.sigma >= 0:
            raise ValueError(f"sigma: expected a noise strength >= 0, got {self.sigma!r}")

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        x, d = _unit(z), z.shape[-1]
        G = np.random.default_rng([self.seed, k]).standard_normal((d, d))
        drift = self.attention.pull(x, mask=mask)
        return _unit(x + self.dt * drift + self.sigma * sqrt(self.dt) * act(G, x))


DYNAMICS: dict[str, type[Dynamics]] = {
    "pure_attention": PureAttention,
    "unnormalized_attention": UnnormalizedAttention,
    "value_attention": ValueAttention,
    "scheduled": Scheduled,
    "noisy_sphere": NoisySphere,
    "attention_flow": AttentionFlow,
    "unnormalized_flow": UnnormalizedFlow,
    "euclidean_flow": EuclideanFlow,
    "rescaled_flow": RescaledFlow,
    "leading_flow": LeadingFlow,
    "sphere_flow": SphereFlow,
    "unnormalized_sphere_flow": UnnormalizedSphereFlow,
}


def _set_weights(flow: Any) -> None:
    """Check Q, K, V of a flow and keep them as float64."""
    for name in ("Q", "K"):
        M = getattr(flow, name)
        if M is not None:
            M = np.asarray(M.detach().cpu() if is_torch(M) else M, dtype=np.float64)
            if M.ndim != 2 or not np.isfinite(M).all():
                raise ValueError(f"{name}: expected a finite matrix (m, d), got shape {M.shape}")
        object.__setattr__(flow, name, M)
    object.__setattr__(flow, "V", as_matrix(flow.V, "V"))
    A = _form(flow.Q, flow.K)
    if A is not None and flow.V is not None and A.shape != flow.V.shape:
        raise ValueError(f"Q, K, V must act on the same R^d: K^T Q is {A.shape}, V {flow.V.shape}")


def _form(Q: np.ndarray | None, K: np.ndarray | None) -> np.ndarray | None:
    """A = K^T Q, so that <Q x, K y> = <A x, y>."""
    if Q is not None and K is not None and Q.shape != K.shape:
        raise ValueError(f"Q and K must have the same shape (m, d), got {Q.shape} and {K.shape}")
    if Q is None or K is None:
        A = Q if K is None else K.T
        if A is not None and A.shape[0] != A.shape[1]:
            raise ValueError(f"Q, K: a single one must be square, got {A.shape}; give both")
        return A
    return K.T @ Q


def _abscissa(V: np.ndarray | None) -> float:
    """The largest real part of an eigenvalue of V."""
    return 1.0 if V is None else float(np.linalg.eigvals(V).real.max())


def _approach(z: np.ndarray, leader: np.ndarray, pace: float, t: float) -> ClosedForm:
    """Every token on its way to its leader: z_l + e^{-pace (s - t)} (z_i - z_l) at times s."""

    def at(times: np.ndarray) -> np.ndarray:
        left = np.exp(-pace * (np.asarray(times) - t))[:, None, None]
        return z[leader] + left * (z - z[leader])

    return at


def _unit(z: Array) -> Array:
    """z_i / |z_i|; a zero token (padding) stays zero."""
    from array_api_compat import array_namespace

    xp = array_namespace(z)
    square = xp.sum(z * z, axis=-1, keepdims=True)
    return z / xp.sqrt(xp.where(square > 0, square, 1.0))


def _tangent(x: Array, y: Array) -> Array:
    from array_api_compat import array_namespace

    return y - array_namespace(x).sum(x * y, axis=-1, keepdims=True) * x
