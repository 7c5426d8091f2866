"""Self-attention in R^d with matrices Q, K, V, in three variables, and with several heads."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp
from typing import Any, final

import numpy as np

from .._types import Array, as_matrix, carries_gradient
from ..attention import Attention, Heads, Softmax, act, sides, softmax_pull, softmax_weights
from ..attention.scores import real_tokens, times_power
from .abstract import ClosedForm, Flow, FrozenEquation, Tendency
from .flows import approach

_LOG_MAX = 709.0  # exp of more leaves the floats
_LOG_ZERO = 745.0  # exp of minus this is 0


@dataclass(frozen=True, eq=False)
class SelfAttention(Flow, abc.ABC):
    """The weights of arXiv 2305.05465: Q, K are (m, d), V is (d, d), None for identities.

    `A` = K^T Q; `leading` is the largest real part of an eigenvalue of V, the fastest growth.
    """

    Q: Array | None = None
    K: Array | None = None
    V: Array | None = None

    def __post_init__(self) -> None:
        trained = [name for name in ("Q", "K", "V") if carries_gradient(getattr(self, name))]
        if trained:
            raise TypeError(
                f"{trained[0]}: requires a gradient, which needs a matrix that only acts on "
                "tokens: train A and V of UnnormalizedFlow(Heads([Softmax(1.0, A)], [V]))"
            )
        for name in ("Q", "K"):
            object.__setattr__(self, name, as_matrix(getattr(self, name), name, square=False))
        object.__setattr__(self, "V", as_matrix(self.V, "V"))
        A = self.A
        if A is not None and self.V is not None and A.shape != self.V.shape:
            seen = f"K^T Q is {A.shape}, V {self.V.shape}"
            raise ValueError(f"Q, K, V must act on the same R^d: {seen}")

    @cached_property
    def A(self) -> np.ndarray | None:
        Q, K = self.Q, self.K
        if Q is None or K is None:
            A = Q if K is None else K.T
            if A is not None and A.shape[0] != A.shape[1]:
                raise ValueError(f"Q, K: a single one must be square, got {A.shape}; give both")
            return A
        if Q.shape != K.shape:
            raise ValueError(f"Q, K: expected the same shape (m, d), got {Q.shape} and {K.shape}")
        return K.T @ Q

    @property
    def score_matrix(self) -> np.ndarray | None:
        return self.A

    @cached_property
    def leading(self) -> float:
        return _leading(self.V)

    @cached_property
    def multiple(self) -> float | None:
        """l where V = l I, None for any other V."""
        if self.V is None:
            return 1.0
        first = float(self.V[0, 0])
        return first if np.array_equal(self.V, first * np.eye(len(self.V))) else None

    def tends_to(self, d: int) -> Tendency:
        if self.leading <= 0:
            return "unknown"
        if self.multiple is None:
            return "hyperplanes"
        return "boolean" if d == 1 else "polytope"


@final
@dataclass(frozen=True, eq=False)
class EuclideanFlow(SelfAttention):
    """Self-attention in R^d, arXiv 2305.05465 (docs/mathematics.md A3).

        x_i' = sum_j P_ij V x_j,   P = softmax of <Q x_i, K x_j>

    An inverse temperature goes into Q. Tokens grow like e^{t l1}, l1 the largest real part of an
    eigenvalue of V: `RescaledFlow` and `LeadingFlow` follow the same tokens without overflow.
    """

    grows = True
    advice = "Use RescaledFlow or LeadingFlow: the same tokens in variables that do not grow."
    attention: Softmax = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "attention", Softmax(1.0, self.A))

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return act(self.V, self.attention.pull(z, mask=mask), "V")

    def growth(self, t: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # V with negative eigenvalues, backwards in time
            return np.exp(self.leading * np.asarray(t))

    def frozen(self, P: np.ndarray) -> FrozenEquation:
        return FrozenEquation(P, self.V)


@final
@dataclass(frozen=True, eq=False)
class RescaledFlow(SelfAttention):
    """The tokens of `EuclideanFlow` seen as z_i = e^{-tV} x_i (arXiv 2305.05465,
    docs/mathematics.md A3).

        z_i' = sum_j P_ij V (z_j - z_i),   P = softmax of <Q e^{tV} z_i, K e^{tV} z_j>

    Neither e^{tV} nor the scores are ever formed. With l1 the largest real part of an eigenvalue
    of V and E = e^{t (V - l1)}, which does not grow exponentially, the scores are
    e^{2 l1 t} <Q E z_i, K E z_j>; the factor multiplies gaps to the row maximum, so that late
    times are the hardmax of the rest, ties included. Any t is safe.

    Trap: where V has eigenvalues of negative real part these z grow (their x converge). In the end
    the components that attention reads are lost in the rounding of those that grow. A run ends
    before that, with any stepper and the status "overflow" (`drowned`). `LeadingFlow` has no such
    end.
    """

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        seen, growth = self._seen(z, t)
        mean = softmax_pull(sides(self.A, seen, real_tokens(mask, z)), z, growth, mask=mask)
        return act(self.V, mean - z, "V")

    def weights(self, z: Array, t: float = 0.0, *, mask: Array | None = None) -> Array:
        seen, growth = self._seen(z, t)
        return softmax_weights(sides(self.A, seen, real_tokens(mask, z)), growth, mask=mask)

    def frozen(self, P: np.ndarray) -> FrozenEquation:
        return FrozenEquation(P - np.eye(len(P)), self.V)

    def _seen(self, z: Array, t: float) -> tuple[Array, float]:
        """e^{tV} z up to a factor, and the square of that factor, cut at the largest float."""
        E, log = self._propagator(t), self.leading * t
        if E is not None:  # a Jordan block makes E grow like a power of t: an exact power of 2 out
            power = int(np.frexp(np.abs(E).max())[1])
            E, log = np.ldexp(E, -power), log + power * np.log(2)
        return act(E, z, "V"), exp(min(2 * log, _LOG_MAX))

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        """For V = l I, l > 0: each token follows one leader, with weight 1 in double precision.

        That stays so: with c = 1 - e^{-l s}, tokens at t + s are z_i + c (z_lead - z_i), their gaps
        <A z_i, z_lead - z_j> >= 0 are at least (1 - c)^2 times those at t, and the inverse
        temperature grows by e^{2 l s} = (1 - c)^{-2}.
        """
        pace = self.multiple
        if pace is None or pace <= 0:
            return None
        seen, growth = self._seen(z, t)
        queries, keys, power = sides(self.A, seen)
        scores = queries @ keys.T
        with np.errstate(over="ignore"):
            gap = (scores.max(axis=1, keepdims=True) - scores) * times_power(growth, power, z)
        hot = gap <= _LOG_ZERO
        first = hot.argmax(axis=1)
        if (hot.sum(axis=1) > 1).any():  # several only if they are copies of one token
            label = np.unique(z, axis=0, return_inverse=True)[1].ravel()
            if (hot & (label != label[first][:, None])).any():
                return None
        return approach(z, first, pace, t) if (z[first[first]] == z[first]).all() else None

    def drowned(self, z: np.ndarray, t: float, rtol: float) -> bool:
        """Is E z, which attention reads, below 100 rtol of what it is computed from?"""
        if not self.drowns:
            return False
        E, size = self._propagator(t), float(np.abs(z).max())
        if E is None or size == 0:
            return False
        read, parts = np.abs(z / size @ E.T), np.abs(z / size) @ np.abs(E.T)
        return bool(read.max() < 100 * rtol * parts.max())

    @cached_property
    def drowns(self) -> bool:
        """Does V have eigenvalues of negative real part, along which z grows?"""
        return self.V is not None and bool((np.linalg.eigvals(self.V).real < 0).any())

    @cached_property
    def _modes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Eigenvalues less l1, eigenvectors and their inverse; None near a Jordan block."""
        assert self.V is not None
        values, vectors = np.linalg.eig(self.V)
        if np.linalg.cond(vectors) > 1e6:
            return None
        return values - self.leading, vectors, np.linalg.inv(vectors)

    def _propagator(self, t: float) -> np.ndarray | None:
        """e^{t (V - l1)}, None where it is the identity."""
        if self.V is None:
            return None
        if self._modes is None:
            from scipy.linalg import expm

            return expm(t * (self.V - self.leading * np.eye(len(self.V))))
        values, vectors, inverse = self._modes
        return ((vectors * np.exp(t * values)) @ inverse).real

    @property
    def advice(self) -> str:
        if not self.drowns:
            return super().advice
        return "V has eigenvalues of negative real part, along which z grows: use LeadingFlow."

    @property
    def advice_if_stiff(self) -> str:
        return self.advice if self.drowns else super().advice_if_stiff


@final
@dataclass(frozen=True, eq=False)
class LeadingFlow(SelfAttention):
    """The tokens of `EuclideanFlow` at their own growth: y_i = e^{-l1 t} x_i, l1 leading in V.

        y_i' = sum_j P_ij V y_j - l1 y_i,   P = softmax of e^{2 l1 t} <Q y_i, K y_j>

    The dual leading eigenvector takes the same value on y and on z = e^{-tV} x, so hyperplane
    limits (B26) are read here as well. For V = I it is `RescaledFlow`.

    Trap: y need not stay bounded. Tokens that look at each other in pairs give P the eigenvalue -1,
    and an eigenvalue of V beyond -l1 then grows faster than l1; heads of real models have both.
    """

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        scores = sides(self.A, z, real_tokens(mask, z))
        pulled = softmax_pull(scores, z, _sharpness(self.leading, t), mask=mask)
        return act(self.V, pulled, "V") - self.leading * z

    def weights(self, z: Array, t: float = 0.0, *, mask: Array | None = None) -> Array:
        scores = sides(self.A, z, real_tokens(mask, z))
        return softmax_weights(scores, _sharpness(self.leading, t), mask=mask)

    def frozen(self, P: np.ndarray) -> FrozenEquation:
        return FrozenEquation(P, self.V, self.leading)


@final
@dataclass(frozen=True, eq=False)
class HeadsFlow(Flow):
    """Several softmax heads at their own growth: `LeadingFlow` with more than one head.

        y_i' = (1/H) sum_h V_h (P_h y)_i - l y_i,   P_h = softmax of b_h e^{2lt} <A_h y_i, y_j>

    with `attention` = Heads([Softmax(b_h, A_h), ...], [V_h, ...]), or one Softmax. The tokens of
    `UnnormalizedFlow(attention)` are x = e^{lt} y. l = `leading` is the largest real part of an
    eigenvalue of the mean of the V_h: once all heads agree, x' = (mean of the V_h) x. This is the
    multi-head question of Sugolov and Aubry about the flow of arXiv 2305.05465.

    Trap: with V_h = I tokens stay in their hull; with other V_h they need not even stay bounded.
    """

    attention: Attention = field(default_factory=Softmax)

    def __post_init__(self) -> None:
        if not all(isinstance(head, Softmax) for head in self._together.heads):
            raise TypeError(
                "attention: HeadsFlow takes a Softmax or Heads of Softmax, whose inverse "
                f"temperature grows in time; got {self.attention!r}"
            )

    @cached_property
    def _together(self) -> Heads:
        return self.attention if isinstance(self.attention, Heads) else Heads([self.attention])

    @cached_property
    def mean_value(self) -> np.ndarray | None:
        """(1/H) sum_h V_h, None for the identity."""
        values = self._together.values or ()
        given = [V for V in values if V is not None]
        if not given:
            return None
        return np.mean([np.eye(len(given[0])) if V is None else V for V in values], axis=0)

    @property
    def _gain(self) -> int:
        """By how much summed heads pull more than averaged ones."""
        return 1 if self._together.average else len(self._together.heads)

    @cached_property
    def leading(self) -> float:
        return self._gain * _leading(self.mean_value)

    def _at(self, t: float) -> Heads:
        """The heads at time t, in the variables y."""
        sharper, most = _sharpness(self.leading, t), np.finfo(float).max
        rules: Any = self._together.heads
        heads = [Softmax(np.clip(sharper * rule.beta, -most, most), rule.A) for rule in rules]
        return replace(self._together, heads=heads)

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return self._at(t).pull(z, mask=mask) - self.leading * z

    def weights(self, z: Array, t: float = 0.0, *, mask: Array | None = None) -> Array:
        """(1/H) sum_h P_h, whatever the V_h."""
        return Heads(self._at(t).heads).weights(z, mask=mask)

    def frozen(self, P: np.ndarray) -> FrozenEquation | None:
        alike = self.mean_value is None
        return FrozenEquation(self._gain * P, None, self.leading) if alike else None


def _leading(V: np.ndarray | None) -> float:
    """The largest real part of an eigenvalue of V."""
    return 1.0 if V is None else float(np.linalg.eigvals(V).real.max())


def _sharpness(leading: float, t: float) -> float:
    """e^{2 l t}, cut at the largest float: the inverse temperature where e^{lt} is divided out."""
    return exp(min(2 * leading * t, _LOG_MAX))
