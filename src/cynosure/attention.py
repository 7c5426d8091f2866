"""Who looks at whom: attention as a map from tokens to row-stochastic weights.

`Hardmax` lives on certified sets; the others are formulas in the scores <A z_i, z_j>, written once
against the array-API standard, so that NumPy arrays and torch tensors (gradients, GPU) both work.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any, final

import numpy as np

from ._types import Array, as_mask, as_matrix, as_rationals, as_tokens, is_torch, like
from .followed import Followed, concatenate
from .kernels import exact
from .walk import Walk

__all__ = [
    "ATTENTIONS",
    "Attention",
    "Causal",
    "Hardmax",
    "Heads",
    "Localmax",
    "RowAttention",
    "Sinkhorn",
    "Softmax",
    "act",
    "softmax_pull",
    "softmax_weights",
]

_BLOCK = 2**21  # scores held at a time: 16 MiB of float64, a few of them alive together
_DEVICE_BLOCK = 2**26  # on a GPU: small blocks would wait for their launch
_LARGE = 4096  # tokens from which torch's fused attention is asked for


class Attention(abc.ABC):
    """Row-stochastic weights P(z), and the tokens P(z) z they pull towards."""

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

    `A` is symmetric positive definite in the theory (arXiv 2407.01602), None for the identity; any
    square matrix works, and the theorem checks then say which hypotheses fail.

    Trap: `==` on floating-point scores both loses and invents ties. Here ties are those of exact
    arithmetic on the floats given (`followed`); a zero token has every score 0, so it follows all.
    """

    A: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "A", as_matrix(self.A))

    def __repr__(self) -> str:
        return "Hardmax()" if self.A is None else f"Hardmax(A={self.A.tolist()})"

    def matrix(self, d: int) -> np.ndarray | None:
        """A, after checking that it acts on R^d."""
        if self.A is not None and self.A.shape[0] != d:
            raise ValueError(
                f"A: expected shape ({d}, {d}) for tokens with d = {d}, got {self.A.shape}"
            )
        return self.A

    def followed(self, z: Array, *, mask: Array | None = None) -> Followed:
        """The sets C_i, exact on the given floats; one configuration or a batch."""
        tokens = as_tokens(z)
        A, real = self.matrix(tokens.shape[-1]), as_mask(mask, tokens.shape[:-1])
        flat = tokens.reshape(-1, *tokens.shape[-2:]).astype(np.float64, copy=False)
        rows = [None] * len(flat) if real is None else list(real.reshape(-1, tokens.shape[-2]))
        parts = [_followed(x, A, row) for x, row in zip(flat, rows, strict=True)]
        return parts[0] if tokens.ndim == 2 else concatenate(parts, tokens.shape[:-1])

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        return like(self.followed(z, mask=mask).weights(), z)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        return self.followed(z, mask=mask).pull(z)


def _followed(z: np.ndarray, A: np.ndarray | None, mask: np.ndarray | None) -> Followed:
    """The sets of one configuration, padding left out."""
    walk = Walk(z if mask is None else z[mask], A, Fraction(1))
    record = walk.find()
    label = walk.label
    if mask is not None:
        label = np.full(len(z), -1, dtype=np.intp)
        label[mask] = walk.label
    return Followed(label, record.indptr, record.indices)


class RowAttention(Attention):
    """Attention whose row i is a function of the scores <A z_i, z_j> of the tokens i looks at."""

    A: Array | None

    @abc.abstractmethod
    def share(self, scores: Array, allowed: Array | None) -> Array:
        """Weights (..., rows, n) up to a factor per row; 0 where `allowed` (booleans) is False."""

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        return _weights(self, z, mask, causal=False)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        return _pull(self, z, mask, causal=False)


@final
@dataclass(frozen=True, eq=False)
class Softmax(RowAttention):
    """Softmax attention at inverse temperature beta.

        P_ij = exp(beta <A z_i, z_j>) / sum_l exp(beta <A z_i, z_l>)

    The temperature tau of arXiv 2407.01602 is 1/beta; beta -> infinity is `Hardmax`, and beta < 0
    repels. A head with matrices Q, K has A = K^T Q. Tokens are pulled in blocks of rows, so that
    memory stays linear in n.

    Trap: exp of a score overflows at 709. The row maximum is subtracted first, and the gaps, not
    the scores, are multiplied by beta: any finite beta is safe, and equal scores stay equal.
    """

    beta: float = 1.0
    A: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", _finite(self.beta, "beta"))
        object.__setattr__(self, "A", as_matrix(self.A))

    def share(self, scores: Array, allowed: Array | None) -> Array:
        return _exponentials(scores, self.beta, allowed)


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
        if not _finite(self.sensitivity, "sensitivity") >= 0:
            raise ValueError(f"sensitivity: expected a number >= 0, got {self.sensitivity!r}")
        object.__setattr__(self, "A", as_matrix(self.A))

    def share(self, scores: Array, allowed: Array | None) -> Array:
        xp = _namespace(scores)
        if allowed is not None:
            scores = xp.where(allowed, scores, -float("inf"))
        top = xp.max(scores, axis=-1, keepdims=True)
        return xp.astype(scores >= top - self.sensitivity, scores.dtype)


@final
@dataclass(frozen=True, eq=False)
class Sinkhorn(Attention):
    """Doubly stochastic softmax: rows *and* columns of P sum to 1 (Sinkformers, arXiv 2110.11773).

        P = diag(u) exp(beta <A z_i, z_j>) diag(v),   u, v by alternating normalisation

    In logarithms, so any beta is safe; it stops once columns sum to 1 within `tol`, or after
    `iterations`. The last normalisation is of the rows: they sum to 1 in any case, and a large
    beta may leave the columns unfinished. Memory n x n.
    """

    beta: float = 1.0
    A: Array | None = None
    iterations: int = 100
    tol: float = 1e-9

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", _finite(self.beta, "beta"))
        object.__setattr__(self, "A", as_matrix(self.A))
        if self.iterations < 1:
            raise ValueError(f"iterations: expected at least 1, got {self.iterations!r}")

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        z = _tokens(z)
        xp = _namespace(z)
        n, real = z.shape[-2], _real(mask, z)
        log = self.beta * (act(self.A, z) @ _transpose(z))
        if real is not None:  # padding is coupled to itself alone, and taken out at the end
            own = xp.eye(n, dtype=xp.bool, device=_device(z))
            both = real[..., :, None] & real[..., None, :]
            log = xp.where(both | (own & ~real[..., None]), log, -float("inf"))
        for _ in range(self.iterations):
            columns = _log_sum(log, axis=-2)
            log = log - columns
            rows = _log_sum(log, axis=-1)
            log = log - rows
            if bool(xp.all(xp.abs(rows) <= self.tol)):  # the columns moved by no more than that
                break
        P = xp.exp(log)
        return P if real is None else xp.where(real[..., None], P, 0.0)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        z = _tokens(z)
        return _keep_padding(self.weights(z, mask=mask) @ z, z, mask)


@final
@dataclass(frozen=True, eq=False)
class Causal(Attention):
    """Token i looks only at the tokens j <= i (arXiv 2411.04990); the first follows itself.

    Wraps `Softmax`, `Localmax` or `Hardmax`; causal hardmax keeps the ties of exact arithmetic.
    Trap: the order of tokens now matters, so nothing is permutation equivariant any more.
    """

    attention: Attention

    def __post_init__(self) -> None:
        if not isinstance(self.attention, RowAttention | Hardmax):
            raise TypeError(
                "attention: Causal wraps Softmax, Localmax or Hardmax (sets of tokens per row), "
                f"got {self.attention!r}"
            )

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        if isinstance(self.attention, Hardmax):
            return like(_prefix_weights(self.attention, z, mask), z)
        assert isinstance(self.attention, RowAttention)
        return _weights(self.attention, z, mask, causal=True)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        if isinstance(self.attention, Hardmax):
            z = _tokens(z)
            return _keep_padding(_cast(_prefix_weights(self.attention, z, mask), z) @ z, z, mask)
        assert isinstance(self.attention, RowAttention)
        return _pull(self.attention, z, mask, causal=True)


@final
@dataclass(frozen=True, eq=False)
class Heads(Attention):
    """Several heads, each with its own attention P_h and value matrix V_h, averaged or summed.

        pull_i = (1/H) sum_h V_h (P_h z)_i            (no 1/H when average=False)

    `values` is None for identities, or one matrix (or None) per head; one head with a value matrix
    is `Heads([attention], [V])`. Hardmax heads are welcome. With identities and the average, P is
    again row-stochastic and the hull of the tokens shrinks; otherwise it need not.
    """

    heads: Sequence[Attention] = ()
    values: Sequence[Array | None] | None = None
    average: bool = True

    def __post_init__(self) -> None:
        heads = tuple(self.heads)
        if not heads or not all(isinstance(h, Attention) for h in heads):
            raise TypeError(f"heads: expected one or more attentions, got {self.heads!r}")
        object.__setattr__(self, "heads", heads)
        if self.values is not None:
            if len(self.values) != len(heads):
                raise ValueError(
                    f"values: expected one matrix per head ({len(heads)}), got {len(self.values)}"
                )
            values = tuple(as_matrix(V, f"values[{h}]") for h, V in enumerate(self.values))
            object.__setattr__(self, "values", values)

    @property
    def _factor(self) -> float:
        return 1 / len(self.heads) if self.average else 1.0

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        """The averaged (or summed) P_h; with value matrices there is no single P, so ask a head."""
        if self.values is not None:
            raise ValueError(
                "Heads with value matrices have no single P: use heads[h].weights(z) of one head"
            )
        return self._factor * _total(head.weights(z, mask=mask) for head in self.heads)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        z = _tokens(z)
        values = self.values or [None] * len(self.heads)
        pulls = (
            act(V, head.pull(z, mask=mask), "values")
            for head, V in zip(self.heads, values, strict=True)
        )
        return _keep_padding(self._factor * _total(pulls), z, mask)


ATTENTIONS: dict[str, type[Attention]] = {
    "hardmax": Hardmax,
    "softmax": Softmax,
    "localmax": Localmax,
    "sinkhorn": Sinkhorn,
}


def act(M: np.ndarray | None, z: Array, name: str = "A") -> Array:
    """(M z_i)_i for tokens as rows, in the dtype and on the device of z; None is the identity."""
    if M is None:
        return z
    if M.shape[-1] != z.shape[-1]:
        raise ValueError(
            f"{name}: expected a matrix acting on tokens with d = {z.shape[-1]}, got {M.shape}"
        )
    return z @ _cast(M.T, z)


def softmax_pull(
    queries: Array,
    keys: Array,
    values: Array,
    scale: float,
    *,
    mask: Array | None = None,
    causal: bool = False,
) -> Array:
    """sum_j P_ij v_j with P = softmax over j of scale <q_i, k_j>; rows in blocks, never n x n x d.

    Differences to the row maximum are formed before `scale` multiplies them, so a scale near the
    largest float is the hardmax of the scores as rounded, ties included, without overflow.
    Padding gets its own value back.
    """
    real = _real(mask, values)
    if _fused(queries, keys, scale) and not (causal and real is not None):
        import torch

        flat = [x.reshape(-1, 1, *x.shape[-2:]) for x in (queries, keys, values)]
        out = torch.nn.functional.scaled_dot_product_attention(
            *flat,
            attn_mask=None if real is None else real.reshape(-1, 1, 1, real.shape[-1]),
            is_causal=causal,
            scale=scale,
        ).reshape(values.shape)
        return _keep_padding(out, values, mask)
    parts = []
    for scores, allowed in _score_blocks(queries, keys, real, causal):
        share = _exponentials(scores, scale, allowed)
        parts.append(_average(share, values))
    return _keep_padding(_namespace(values).concat(parts, axis=-2), values, mask)


def softmax_weights(
    queries: Array, keys: Array, scale: float, *, mask: Array | None = None
) -> Array:
    """The P of `softmax_pull`, dense: (*b, n, n)."""
    real = _real(mask, queries)
    allowed = None if real is None else real[..., None, :]
    share = _exponentials(queries @ _transpose(keys), scale, allowed)
    xp = _namespace(share)
    P = share / xp.sum(share, axis=-1, keepdims=True)
    return P if real is None else xp.where(real[..., None], P, 0.0)


def _pull(rule: RowAttention, z: Array, mask: Array | None, causal: bool) -> Array:
    z = _tokens(z)
    queries = act(rule.A, z)
    if isinstance(rule, Softmax):
        return softmax_pull(queries, z, z, rule.beta, mask=mask, causal=causal)
    blocks = _score_blocks(queries, z, _real(mask, z), causal)
    parts = [_average(rule.share(scores, allowed), z) for scores, allowed in blocks]
    return _keep_padding(_namespace(z).concat(parts, axis=-2), z, mask)


def _weights(rule: RowAttention, z: Array, mask: Array | None, causal: bool) -> Array:
    z = _tokens(z)
    xp, real = _namespace(z), _real(mask, z)
    parts = []
    for scores, allowed in _score_blocks(act(rule.A, z), z, real, causal):
        share = rule.share(scores, allowed)
        parts.append(share / xp.sum(share, axis=-1, keepdims=True))
    P = xp.concat(parts, axis=-2)
    return P if real is None else xp.where(real[..., None], P, 0.0)


def _score_blocks(
    queries: Array, keys: Array, real: Array | None, causal: bool
) -> Iterator[tuple[Array, Array | None]]:
    """Scores <q_i, k_j> for blocks of rows i, and which j each row may look at (None: all)."""
    xp = _namespace(queries)
    n = queries.shape[-2]
    batch = int(np.prod(queries.shape[:-2], dtype=np.intp))
    most = _BLOCK if str(_device(queries)) == "cpu" else _DEVICE_BLOCK
    height = max(1, min(n, most // max(1, n * batch)))
    index = xp.arange(n, device=_device(queries))
    columns = _transpose(keys)
    for start in range(0, n, height):
        rows = slice(start, start + height)
        allowed = None if real is None else real[..., None, :]
        if causal:
            earlier = index[rows, None] >= index
            allowed = earlier if allowed is None else allowed & earlier
            # A padded row may have no real token before it: let it look at itself.
            allowed = allowed | (index[rows, None] == index)
        yield queries[..., rows, :] @ columns, allowed


def _exponentials(scores: Array, scale: float, allowed: Array | None) -> Array:
    """exp(scale s_ij - max_j scale s_ij): 1 at the maximum, 0 where not allowed, never inf or NaN.

    The scale is cut at the largest float: gaps that matter to no double are then exactly 0 or 1.
    """
    xp = _namespace(scores)
    scores = scores if scale >= 0 else -scores
    factor = min(abs(scale), float(xp.finfo(scores.dtype).max))
    with np.errstate(over="ignore"):  # a gap times the factor may be inf: its exponential is 0
        if allowed is None:
            return xp.exp((scores - xp.max(scores, axis=-1, keepdims=True)) * factor)
        top = xp.max(xp.where(allowed, scores, -float("inf")), axis=-1, keepdims=True)
        gap = xp.where(allowed, scores - top, 0.0)
        return xp.where(allowed, xp.exp(gap * factor), 0.0)


def _average(share: Array, values: Array) -> Array:
    return (share @ values) / _namespace(share).sum(share, axis=-1, keepdims=True)


def _log_sum(log: Array, axis: int) -> Array:
    xp = _namespace(log)
    top = xp.max(log, axis=axis, keepdims=True)
    return top + xp.log(xp.sum(xp.exp(log - top), axis=axis, keepdims=True))


def _prefix_weights(rule: Hardmax, z: Array, mask: Array | None) -> np.ndarray:
    """P of causal hardmax, shape (*b, n, n), ties as in exact arithmetic on the given floats."""
    tokens = as_tokens(z)
    real = as_mask(mask, tokens.shape[:-1])
    A = rule.matrix(tokens.shape[-1])
    P = np.zeros((*tokens.shape[:-1], tokens.shape[-2]))
    for b in np.ndindex(tokens.shape[:-2]):
        keep = np.arange(tokens.shape[-2]) if real is None else np.flatnonzero(real[b])
        for i, members in enumerate(_prefix_sets(tokens[b][keep].astype(np.float64), A)):
            P[(*b, keep[i], keep[members])] = 1.0 / len(members)
    return P


def _prefix_sets(z: np.ndarray, A: np.ndarray | None) -> Iterator[np.ndarray]:
    """C_i among the tokens 0..i: floats with an error bound, integers where the bound overlaps."""
    form = np.eye(z.shape[1]) if A is None else A
    scale = np.abs(z).max() or 1.0
    z = np.ldexp(z, -int(np.frexp(scale)[1]))  # exact, and no score overflows
    queries, sizes = z @ form.T, np.abs(z) @ np.abs(form).T
    rounding = (2 * z.shape[1] + 4) * np.finfo(float).eps
    for i in range(len(z)):
        scores = z[: i + 1] @ queries[i]
        error = rounding * (np.abs(z[: i + 1]) @ sizes[i]) + 1e-290
        near = np.flatnonzero(scores + error >= (scores - error).max())
        if len(near) > 1:
            rows, _ = exact.integers(as_rationals(z[[i, *near]]))
            matrix = None if A is None else exact.integers(as_rationals(A))[0]
            query = exact.matvec(matrix, rows[0])
            best, _, _ = exact.maximisers(query, list(zip(near.tolist(), rows[1:], strict=True)))
            near = np.array(best)
        yield near


def _finite(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {value!r}") from None
    if not isfinite(number):
        advice = "; for beta = infinity use Hardmax()" if name == "beta" else ""
        raise ValueError(f"{name}: expected a finite number, got {value!r}{advice}")
    return number


def _tokens(z: Array) -> Array:
    """Float arrays and tensors as they are (their states may overflow: simulate says so)."""
    if is_torch(z) or (isinstance(z, np.ndarray) and z.dtype.kind == "f" and z.ndim >= 2):
        return z
    return as_tokens(z)


def _namespace(z: Array) -> Any:
    from array_api_compat import array_namespace

    return array_namespace(z)


def _device(z: Array) -> Any:
    from array_api_compat import device

    return device(z)


def _real(mask: Array | None, z: Array) -> Array | None:
    """The mask where z lives."""
    real = as_mask(mask, tuple(z.shape[:-1]))
    return None if real is None else _namespace(z).asarray(real, device=_device(z))


def _keep_padding(moved: Array, z: Array, mask: Array | None) -> Array:
    real = _real(mask, z)
    return moved if real is None else _namespace(z).where(real[..., None], moved, z)


def _cast(values: np.ndarray, z: Array) -> Array:
    return like(values, z) if is_torch(z) else values.astype(z.dtype, copy=False)


def _transpose(z: Array) -> Array:
    return _namespace(z).matrix_transpose(z)


def _total(parts: Iterator[Array]) -> Array:
    first = next(parts)
    return sum(parts, start=first)


def _fused(queries: Array, keys: Array, scale: float) -> bool:
    """Large tensors: torch has one kernel that never stores P, except for doubles on a GPU.

    It multiplies scores by the scale before it takes their maximum, so they must not overflow.
    """
    if not is_torch(queries) or queries.shape[-2] < _LARGE:
        return False
    if queries.element_size() == 8 and queries.device.type != "cpu":
        return False
    largest = (queries.detach() ** 2).sum(-1).max() * (keys.detach() ** 2).sum(-1).max()
    return abs(scale) * float(largest) ** 0.5 < 1e30
