"""Attentions that are a rule for each token: hardmax on certified sets, the others on scores."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import frexp, isfinite
from typing import Any, NamedTuple, final

import numpy as np

from .._display import Shown
from .._scale import shifted
from .._types import (
    Array,
    as_mask,
    as_matrix,
    as_parameter,
    as_tokens,
    carries_gradient,
    like,
    namespace,
)
from ..engine.followed import Followed, of_each
from ..engine.gpu import there
from ..engine.walk import Walk
from .scores import (
    Sides,
    as_given,
    average,
    device_of,
    exponentials,
    keep_padding,
    log_sum,
    real_tokens,
    score_blocks,
    sides,
    softmax_pull,
    times_power,
    transpose,
)


class SoftHead(NamedTuple):
    """Softmax weights of beta <A z_i, z_j>, over the tokens up to i only if `causal`."""

    beta: float
    A: Array | None
    causal: bool = False


class Attention(Shown, abc.ABC):
    """Row-stochastic weights P(z), and the tokens P(z) z they pull towards."""

    A: Array | None = None  # of the scores <A z_i, z_j>, None for the identity
    values: Sequence[Array | None] | None = None  # a value matrix per head, None for identities

    @property
    def hard(self) -> bool:
        """Sets of tokens as in exact arithmetic, which rounding can change?"""
        return False

    @property
    def positive(self) -> bool:
        """Does every token give weight to one and the same token, so that layers merge them all?"""
        return False

    @property
    def averages(self) -> bool:
        """Does each token get a mean of tokens, with weights normalised row by row?"""
        return False

    @property
    def passes(self) -> int:
        """About how many times `pull` goes through all scores: what it costs."""
        return 1

    @property
    def softmaxes(self) -> tuple[SoftHead, ...]:
        """The softmax heads whose plain average this is; () for any other attention."""
        return ()

    def followed(self, z: Array, *, mask: Array | None = None) -> Followed | None:
        """The sets C_i of tokens that each token looks at, which `roles` reads; None for all."""
        return None

    @abc.abstractmethod
    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        """P, shape (*b, n, n); rows sum to 1, rows and columns of padding are 0."""

    @abc.abstractmethod
    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        """(P z)_i, shape (*b, n, d); padding gets its own token back."""


@final
@dataclass(frozen=True, eq=False)
class Hardmax(Attention):
    """Each token looks only at the tokens with the largest score.

        C_i(Z) = { j : <A z_i, z_j> = max_l <A z_i, z_l> },   P_ij = 1/|C_i| for j in C_i

    Trap: `==` on floating-point scores both loses and invents ties. Here ties are those of exact
    arithmetic on the floats given (`followed`). A zero token has every score 0, so it follows all.

    Parameters
    ----------
    A
        Symmetric positive definite in the theory (arXiv 2407.01602), None for the identity. Any
        square matrix works; the theorem checks then say which hypotheses fail.

    Examples
    --------
    >>> import cynosure as cy
    >>> cy.Hardmax().followed([[2.0, 0.0], [1.0, 0.5], [0.0, 1.0]]).leads.tolist()
    [True, False, True]
    """

    hard = averages = True
    A: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "A", as_matrix(self.A))

    def __repr__(self) -> str:
        return "Hardmax()" if self.A is None else Shown.__repr__(self)

    def matrix(self, d: int) -> np.ndarray | None:
        """A, after checking that it acts on R^d."""
        if self.A is not None and (shape := self.A.shape)[0] != d:
            raise ValueError(f"A: expected shape ({d}, {d}) for tokens with d = {d}, got {shape}")
        return self.A

    def followed(self, z: Array, *, mask: Array | None = None) -> Followed:
        """The sets C_i, exact on the given floats; one configuration or a batch."""
        tokens = as_tokens(z)
        A, real = self.matrix(tokens.shape[-1]), as_mask(mask, tokens.shape[:-1])
        far = there(z, real)  # one large configuration on a GPU is searched where it is
        return of_each(tokens, real, lambda x: Walk(x, A, Fraction(1), there=far).followed())

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        return like(self.followed(z, mask=mask).weights(), z)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        return self.followed(z, mask=mask).pull(z)


class RowAttention(Attention):
    """Attention whose row i is a function of the scores <A z_i, z_j> of the tokens i looks at."""

    averages = True

    def sides(self, z: Array, real: Array | None = None) -> Sides:
        """The two sides of the scores, of queries and of keys."""
        return sides(self.A, z, real)

    @abc.abstractmethod
    def share(self, scores: Array, allowed: Array | None) -> Array:
        """Weights (..., rows, n) up to a factor per row; 0 where `allowed` (booleans) is False."""

    def share_scaled(self, scores: Array, power: Array | None, allowed: Array | None) -> Array:
        """`share` of the scores 2^power s_ij; overridden by rules that take any power."""
        whole = scores if power is None else shifted(scores, power)
        xp = namespace(scores)
        if not bool(xp.all(xp.isfinite(whole))) and bool(xp.all(xp.isfinite(scores))):
            raise OverflowError(
                f"attention: scores <A z_i, z_j> of {type(self).__name__} overflow; "
                "divide the tokens or A by a constant"
            )
        return self.share(whole, allowed)

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        return row_weights(self, z, mask, causal=False)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        return row_pull(self, z, mask, causal=False)


@final
@dataclass(frozen=True, eq=False)
class Softmax(RowAttention):
    """Softmax attention at inverse temperature beta.

        P_ij = exp(beta <A z_i, z_j>) / sum_l exp(beta <A z_i, z_l>)

    Tokens are pulled in blocks of rows, so that memory stays linear in n.

    Trap: exp of a score overflows at 709. The row maximum is subtracted first, and the gaps, not
    the scores, are multiplied by beta: any finite beta is safe, and equal scores stay equal.

    Parameters
    ----------
    beta
        1/tau for the temperature tau of arXiv 2407.01602. beta -> infinity is `Hardmax`, and beta <
        0 repels.
    A
        The score matrix, None for the identity. A head with matrices Q, K has A = K^T Q.

    Examples
    --------
    >>> import cynosure as cy
    >>> cy.Softmax(beta=0.0).weights([[2.0, 0.0], [0.0, 1.0]]).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    positive = True
    beta: float | int = 1.0
    A: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", _finite(self.beta, "beta"))
        object.__setattr__(self, "A", as_parameter(self.A))

    @property
    def softmaxes(self) -> tuple[SoftHead, ...]:
        return (SoftHead(self.beta, self.A),)

    def share(self, scores: Array, allowed: Array | None) -> Array:
        return exponentials(scores, None, self.beta, allowed)

    def share_scaled(self, scores: Array, power: Array | None, allowed: Array | None) -> Array:
        return exponentials(scores, power, self.beta, allowed)


@final
@dataclass(frozen=True, eq=False)
class Localmax(RowAttention):
    """Each token looks evenly at all tokens whose score is within `sensitivity` of its largest.

        C_i = { j : <A z_i, z_j> >= max_l <A z_i, z_l> - sensitivity }      (arXiv 2509.15958)

    Trap: decided on rounded scores, so sensitivity = 0 is hardmax only up to rounding; take
    `Hardmax` for the exact sets. The score scale is |z|^2: a fixed sensitivity is not homogeneous.
    """

    sensitivity: float = 0.1
    A: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", _finite(self.sensitivity, "sensitivity"))
        if not self.sensitivity >= 0:
            raise ValueError(f"sensitivity: expected a number >= 0, got {self.sensitivity!r}")
        object.__setattr__(self, "A", as_matrix(self.A))

    def followed(self, z: Array, *, mask: Array | None = None) -> Followed:
        weights = as_tokens(self.weights(z, mask=mask))
        return Followed.of([np.flatnonzero(row) for row in weights])

    def share(self, scores: Array, allowed: Array | None) -> Array:
        return self._near(scores, self.sensitivity, allowed)

    def share_scaled(self, scores: Array, power: Array | None, allowed: Array | None) -> Array:
        other = None if power is None else -power
        return self._near(scores, times_power(self.sensitivity, other, scores), allowed)

    def _near(self, scores: Array, reach: Array, allowed: Array | None) -> Array:
        xp = namespace(scores)
        if allowed is not None:
            scores = xp.where(allowed, scores, -float("inf"))
        top = xp.max(scores, axis=-1, keepdims=True)
        near = scores >= top - reach
        # A reach near the largest float may make top - reach minus infinity.
        return xp.astype(near if allowed is None else near & allowed, scores.dtype)


@final
@dataclass(frozen=True, eq=False)
class Sinkhorn(Attention):
    """Doubly stochastic softmax: rows *and* columns of P sum to 1 (Sinkformers, arXiv 2110.11773).

        P = diag(u) exp(beta <A z_i, z_j>) diag(v),   u, v by alternating normalisation

    In logarithms, so any beta is safe; it stops once columns sum to 1 within `tol`, or after
    `iterations`. Rows come last: a large beta may leave the columns unfinished. Memory n x n.
    """

    positive = True
    beta: float | int = 1.0
    A: Array | None = None
    iterations: int = 100
    tol: float = 1e-9

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", _finite(self.beta, "beta"))
        object.__setattr__(self, "A", as_parameter(self.A))
        if self.iterations < 1:
            raise ValueError(f"iterations: expected at least 1, got {self.iterations!r}")

    @property
    def passes(self) -> int:
        return 1 + self.iterations // 4

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        z = as_given(z)
        xp = namespace(z)
        n, real = z.shape[-2], real_tokens(mask, z)
        coupled = None
        if real is not None:  # padding is coupled to itself alone, and taken out at the end
            own = xp.eye(n, dtype=xp.bool, device=device_of(z))
            coupled = (real[..., :, None] & real[..., None, :]) | (own & ~real[..., None])
        log, unit = self._logarithms(sides(self.A, z, real), coupled)
        for _ in range(self.iterations):
            log = log - log_sum(log, -2, unit)
            rows = log_sum(log, -1, unit)
            log = log - rows
            if bool(xp.all(xp.abs(rows) * unit <= self.tol)):  # the columns moved by no more
                break
        with np.errstate(over="ignore"):  # minus infinity: its exponential is 0
            P = xp.exp((log - xp.max(log, axis=-1, keepdims=True)) * unit)
        P = P / xp.sum(P, axis=-1, keepdims=True)
        return P if real is None else xp.where(real[..., None], P, 0.0)

    def _logarithms(self, scores: Sides, coupled: Array | None) -> tuple[Array, Array]:
        """beta <A z_i, z_j> less its largest in row i, in multiples of a unit, and that unit.

        A power of two for each configuration: the logarithms themselves need not be floats.
        """
        queries, keys, power = scores
        xp = namespace(queries)
        sign = 1.0 if self.beta >= 0 else -1.0
        plain = sign * (queries @ transpose(keys))
        if coupled is not None:
            plain = xp.where(coupled, plain, -float("inf"))
        gap = plain - xp.max(plain, axis=-1, keepdims=True)
        if power is None:
            power = xp.zeros((1, 1), dtype=xp.int32, device=device_of(queries))
        most = xp.clip(xp.max(power, axis=-2, keepdims=True) + frexp(self.beta)[1], 0, None)
        factor = times_power(abs(self.beta), power - most, queries)
        log = gap * factor
        if coupled is not None:  # infinity times a factor of 0
            log = xp.where(coupled, log, -float("inf"))
        return log, times_power(1.0, most, queries)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        z = as_given(z)
        return keep_padding(average(self.weights(z, mask=mask), z), z, mask)


def row_pull(rule: RowAttention, z: Array, mask: Array | None, causal: bool) -> Array:
    z = as_given(z)
    real = real_tokens(mask, z)
    scores = rule.sides(z, real)
    if isinstance(rule, Softmax):
        return softmax_pull(scores, z, rule.beta, mask=mask, causal=causal)
    blocks = score_blocks(scores, real, causal)
    parts = [average(rule.share_scaled(*block), z) for block in blocks]
    return keep_padding(namespace(z).concat(parts, axis=-2), z, mask)


def row_weights(rule: RowAttention, z: Array, mask: Array | None, causal: bool) -> Array:
    z = as_given(z)
    xp, real = namespace(z), real_tokens(mask, z)
    blocks = score_blocks(rule.sides(z, real), real, causal)
    share = xp.concat([rule.share_scaled(*block) for block in blocks], axis=-2)
    P = share / xp.sum(share, axis=-1, keepdims=True)
    return P if real is None else xp.where(real[..., None], P, 0.0)


def _finite(value: Any, name: str) -> float:
    if carries_gradient(value):
        instead = "; a beta that is trained belongs into A, as beta A" if name == "beta" else ""
        raise TypeError(f"{name}: a number carries no gradient; pass {name}.detach(){instead}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {value!r}") from None
    if not isfinite(number):
        advice = "; for beta = infinity use Hardmax()" if name == "beta" else ""
        raise ValueError(f"{name}: expected a finite number, got {value!r}{advice}")
    return number
