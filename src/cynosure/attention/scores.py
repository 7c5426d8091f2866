"""Scores <A z_i, z_j> and their softmax, on arrays of any library; never n x n x d."""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp
from typing import Any, NamedTuple

import numpy as np

from .._scale import exponent, scaled, shifted
from .._types import Array, as_floats, as_mask, as_tokens, is_masked, is_torch, like, namespace

_BLOCK = 2**21  # scores held at a time: 16 MiB of float64, a few of them alive together
_DEVICE_BLOCK = 2**26  # on a GPU: small blocks would wait for their launch
_BOTH = (-2, -1)
_LARGE = 4096  # tokens from which torch's fused attention is asked for


def act(M: Array | None, z: Array, name: str = "A") -> Array:
    """(M z_i)_i for tokens as rows, in the dtype and on the device of z; None is the identity.

    A tensor M that requires a gradient gets one.
    """
    if M is None:
        return z
    if M.shape[-1] != (d := z.shape[-1]):
        raise ValueError(f"{name}: expected a matrix acting on tokens with d = {d}, got {M.shape}")
    return z @ cast(M.T, z, name)


class Sides(NamedTuple):
    """Both sides of the scores, the powers of two taken out of them.

        <A z_i, z_j> = 2^power_i <queries_i, keys_j>

    `queries` (*b, n, d) and `keys` (*b, m, d) are at most about 1 in size, `power` (*b, n, 1) are
    whole numbers: tokens of 1e155 have scores that are no floats. Where none can overflow, `power`
    is None for 0, and the two sides are A z and z.
    """

    queries: Array
    keys: Array
    power: Array | None


def sides(A: Array | None, z: Array, real: Array | None = None) -> Sides:
    """The two sides of <A z_i, z_j>, each query with its own power of two; padding is a zero key.

    Trap: with one power for all queries a token of 1e-30 among tokens of 1e300 would have only zero
    scores, and look at everybody.
    """
    quarter = frexp(float(namespace(z).finfo(z.dtype).max))[1] // 4 - 4
    if exponent(z) < quarter and (A is None or abs(exponent(A)) < quarter):
        return Sides(act(A, z), z, None)
    queries, own = scaled(z, -1)
    keys, common = scaled(z if real is None else namespace(z).where(real[..., None], z, 0.0), _BOTH)
    power = own + common
    if A is not None:
        form, e = scaled(A)
        queries, power = act(form, queries), power + e
    return Sides(queries, keys, power)


def softmax_pull(
    scores: Sides, values: Array, beta: float, *, mask: Array | None = None, causal: bool = False
) -> Array:
    """sum_j P_ij v_j, P = softmax over j of beta <A z_i, z_j>; rows in blocks, never n x n x d.

    Differences to the row maximum are formed before beta multiplies them, so a beta near the
    largest float is the hardmax of the scores as rounded, ties included, without overflow.
    Padding gets its own value back.

    Tensors of moderate scores take torch's own softmax, from 4,096 tokens on its fused attention,
    which never stores P. In both a weight is off by a factor of about
    1 + (d + 2) u beta |q_i| max_j |k_j|, u the unit roundoff of the dtype
    (`benchmarks/softmax_gpu.py`).
    """
    real = real_tokens(mask, values)
    fused = None if causal and real is not None else _fused_queries(scores, beta)
    if fused is not None:
        import torch

        flat = [x.reshape(-1, 1, *x.shape[-2:]) for x in (fused, scores.keys, values)]
        out = torch.nn.functional.scaled_dot_product_attention(
            *flat,
            attn_mask=None if real is None else real.reshape(-1, 1, 1, real.shape[-1]),
            is_causal=causal,
            scale=beta,
        ).reshape(values.shape)
        return keep_padding(out, values, mask)
    whole = None if causal or real is not None else _plain_queries(scores, values, beta)
    if whole is not None:
        import torch

        ready = Sides(whole * beta, scores.keys, None)
        parts = [torch.softmax(s, dim=-1) @ values for s, _, _ in score_blocks(ready, None, False)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
    blocks = score_blocks(scores, real, causal)
    parts = [average(exponentials(s, power, beta, some), values) for s, power, some in blocks]
    return keep_padding(namespace(values).concat(parts, axis=-2), values, mask)


def softmax_weights(scores: Sides, beta: float, *, mask: Array | None = None) -> Array:
    """The P of `softmax_pull`, dense: (*b, n, n)."""
    real = real_tokens(mask, scores.queries)
    allowed = None if real is None else real[..., None, :]
    plain = scores.queries @ transpose(scores.keys)
    share = exponentials(plain, scores.power, beta, allowed)
    xp = namespace(share)
    P = share / xp.sum(share, axis=-1, keepdims=True)
    return P if real is None else xp.where(real[..., None], P, 0.0)


def score_blocks(
    scores: Sides, real: Array | None, causal: bool
) -> Iterator[tuple[Array, Array | None, Array | None]]:
    """<q_i, k_j> for blocks of rows i, their powers of two, and which j each may look at.

    The score itself is 2^power <q_i, k_j>, None for 0; None for the last stands for all j.
    """
    queries, keys, power = scores
    xp = namespace(queries)
    n = queries.shape[-2]
    batch = int(np.prod(queries.shape[:-2], dtype=np.intp))
    most = _most_scores(queries)
    height = max(1, min(n, most // max(1, n * batch)))
    index = xp.arange(n, device=device_of(queries))
    columns = transpose(keys)
    for start in range(0, n, height):
        rows = slice(start, start + height)
        allowed = None if real is None else real[..., None, :]
        if causal:
            earlier = index[rows, None] >= index
            allowed = earlier if allowed is None else allowed & earlier
            # A padded row may have no real token before it: let it look at itself.
            allowed = allowed | (index[rows, None] == index)
        own = None if power is None else power[..., rows, :]
        yield queries[..., rows, :] @ columns, own, allowed


def _most_scores(queries: Array) -> int:
    """How many scores to hold at a time: on a GPU all of them, if they and P fit in half of it."""
    if str(device_of(queries)) == "cpu":
        return _BLOCK
    if not is_torch(queries) or queries.device.type != "cuda":
        return _DEVICE_BLOCK
    import torch

    free, _ = torch.cuda.mem_get_info(queries.device)
    return max(_DEVICE_BLOCK, free // (4 * queries.element_size()))


def exponentials(scores: Array, power: Array | None, beta: float, allowed: Array | None) -> Array:
    """exp(beta 2^power (s_ij - max_j s_ij)): 1 at the maximum, 0 where not allowed, never NaN."""
    xp = namespace(scores)
    scores = scores if beta >= 0 else -scores
    factor = times_power(abs(beta), power, scores)
    with np.errstate(over="ignore"):  # a gap times the factor may be inf: its exponential is 0
        if allowed is None:
            return xp.exp((scores - xp.max(scores, axis=-1, keepdims=True)) * factor)
        top = xp.max(xp.where(allowed, scores, -float("inf")), axis=-1, keepdims=True)
        gap = xp.where(allowed, scores - top, 0.0)
        return xp.where(allowed, xp.exp(gap * factor), 0.0)


def times_power(number: float, power: Array | None, model: Array) -> Array:
    """number 2^power, number >= 0, in the dtype of `model`, cut at its largest float.

    Gaps of scores that the cut could matter to are below the rounding of the scores.
    """
    xp = namespace(model)
    largest = xp.finfo(model.dtype).max
    if power is None:
        return min(number, float(largest))
    mantissa, own = frexp(number)
    reach = 2 + frexp(float(largest))[1]
    whole = xp.clip(power + own, -2 * reach, reach)
    start = xp.zeros(whole.shape, dtype=model.dtype, device=device_of(model)) + mantissa
    return xp.clip(shifted(start, whole), 0.0, float(largest))


def average(share: Array, values: Array) -> Array:
    """sum_j w_ij v_j / sum_j w_ij for weights w >= 0; values near the largest float are welcome."""
    xp = namespace(share)
    total = xp.sum(share, axis=-1, keepdims=True)
    total = xp.where(total > 0, total, 1.0)  # padding looks at nobody
    room = frexp(float(xp.finfo(values.dtype).max))[1] - share.shape[-1].bit_length()
    if exponent(values) < room:
        return (share @ values) / total
    small, e = scaled(values, -2)  # a mean of floats is a float: no sum on the way may overflow
    mean = (share @ small) / total
    low, high = (f(small, axis=-2, keepdims=True) for f in (xp.min, xp.max))
    return shifted(xp.maximum(xp.minimum(mean, high), low), e)


def log_sum(log: Array, axis: int, unit: Array) -> Array:
    """top + (1/unit) log sum exp(unit (log - top)): logarithms in multiples of `unit`."""
    xp = namespace(log)
    top = xp.max(log, axis=axis, keepdims=True)
    with np.errstate(over="ignore"):
        return top + xp.log(xp.sum(xp.exp((log - top) * unit), axis=axis, keepdims=True)) / unit


def _fused_queries(scores: Sides, beta: float) -> Array | None:
    """Queries for torch's kernel that never stores P; None where it does not pay or overflows."""
    queries = scores.queries
    if not is_torch(queries) or queries.shape[-2] < _LARGE:
        return None
    if queries.element_size() == 8 and queries.device.type != "cpu":
        return None
    return _moderate(scores, beta)


def _plain_queries(scores: Sides, values: Array, beta: float) -> Array | None:
    """Queries for torch's softmax of plain scores; None where these or sums of values overflow."""
    if not is_torch(scores.queries):
        return None
    fits = float(values.detach().abs().max()) < namespace(values).finfo(values.dtype).max / 2
    return _moderate(scores, beta) if fits else None


def _moderate(scores: Sides, beta: float) -> Array | None:
    """Queries with their powers of two put back, if beta times a score is far from overflow."""
    queries, keys, power = scores
    whole = queries if power is None else shifted(queries, power)
    high, reach = (float(x.detach().abs().max()) for x in (whole, keys))
    return whole if abs(beta) * high * reach * keys.shape[-1] < 1e30 else None


def as_given(z: Array) -> Array:
    """Float arrays and tensors as they are (their states may overflow: simulate says so)."""
    if is_torch(z):
        return as_floats(z)
    if isinstance(z, np.ndarray) and z.dtype.kind == "f" and z.ndim >= 2 and z.dtype.itemsize >= 4:
        return as_tokens(z) if is_masked(z) else z
    return as_tokens(z)


def device_of(z: Array) -> Any:
    from array_api_compat import device

    return device(z)


def real_tokens(mask: Array | None, z: Array) -> Array | None:
    """The mask where z lives."""
    real = as_mask(mask, tuple(z.shape[:-1]))
    return None if real is None else namespace(z).asarray(real, device=device_of(z))


def keep_padding(moved: Array, z: Array, mask: Array | None) -> Array:
    real = real_tokens(mask, z)
    return moved if real is None else namespace(z).where(real[..., None], moved, z)


def cast(values: Array, z: Array, name: str = "A") -> Array:
    """A matrix in the dtype and on the device of z; refused where the dtype cannot hold it."""
    if is_torch(values) and not is_torch(z):
        advice = "but the tokens are no torch tensor; pass them as one"
        raise TypeError(f"{name}: requires a gradient, {advice}")
    with np.errstate(over="ignore"):
        out = like(values, z) if is_torch(z) else values.astype(z.dtype, copy=False)
    if z.dtype.itemsize < 8 and not bool(namespace(out).all(namespace(out).isfinite(out))):
        raise ValueError(f"{name}: has entries beyond {z.dtype}; pass the tokens as float64")
    return out


def transpose(z: Array) -> Array:
    return namespace(z).matrix_transpose(z)
