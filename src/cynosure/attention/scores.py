"""Scores <A z_i, z_j> and their softmax, on arrays of any library; never n x n x d."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._types import Array, as_mask, as_tokens, is_torch, like

__all__ = [
    "act",
    "as_given",
    "average",
    "cast",
    "device_of",
    "exponentials",
    "keep_padding",
    "log_sum",
    "namespace",
    "real_tokens",
    "score_blocks",
    "softmax_pull",
    "softmax_weights",
    "transpose",
]

_BLOCK = 2**21  # scores held at a time: 16 MiB of float64, a few of them alive together
_DEVICE_BLOCK = 2**26  # on a GPU: small blocks would wait for their launch
_LARGE = 4096  # tokens from which torch's fused attention is asked for


def act(M: np.ndarray | None, z: Array, name: str = "A") -> Array:
    """(M z_i)_i for tokens as rows, in the dtype and on the device of z; None is the identity."""
    if M is None:
        return z
    if M.shape[-1] != z.shape[-1]:
        raise ValueError(
            f"{name}: expected a matrix acting on tokens with d = {z.shape[-1]}, got {M.shape}"
        )
    return z @ cast(M.T, z)


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
    real = real_tokens(mask, values)
    if _fused(queries, keys, scale) and not (causal and real is not None):
        import torch

        flat = [x.reshape(-1, 1, *x.shape[-2:]) for x in (queries, keys, values)]
        out = torch.nn.functional.scaled_dot_product_attention(
            *flat,
            attn_mask=None if real is None else real.reshape(-1, 1, 1, real.shape[-1]),
            is_causal=causal,
            scale=scale,
        ).reshape(values.shape)
        return keep_padding(out, values, mask)
    parts = []
    for scores, allowed in score_blocks(queries, keys, real, causal):
        share = exponentials(scores, scale, allowed)
        parts.append(average(share, values))
    return keep_padding(namespace(values).concat(parts, axis=-2), values, mask)


def softmax_weights(
    queries: Array, keys: Array, scale: float, *, mask: Array | None = None
) -> Array:
    """The P of `softmax_pull`, dense: (*b, n, n)."""
    real = real_tokens(mask, queries)
    allowed = None if real is None else real[..., None, :]
    share = exponentials(queries @ transpose(keys), scale, allowed)
    xp = namespace(share)
    P = share / xp.sum(share, axis=-1, keepdims=True)
    return P if real is None else xp.where(real[..., None], P, 0.0)


def score_blocks(
    queries: Array, keys: Array, real: Array | None, causal: bool
) -> Iterator[tuple[Array, Array | None]]:
    """Scores <q_i, k_j> for blocks of rows i, and which j each row may look at (None: all)."""
    xp = namespace(queries)
    n = queries.shape[-2]
    batch = int(np.prod(queries.shape[:-2], dtype=np.intp))
    most = _BLOCK if str(device_of(queries)) == "cpu" else _DEVICE_BLOCK
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
        yield queries[..., rows, :] @ columns, allowed


def exponentials(scores: Array, scale: float, allowed: Array | None) -> Array:
    """exp(scale s_ij - max_j scale s_ij): 1 at the maximum, 0 where not allowed, never inf or NaN.

    The scale is cut at the largest float: gaps that matter to no double are then exactly 0 or 1.
    """
    xp = namespace(scores)
    scores = scores if scale >= 0 else -scores
    factor = min(abs(scale), float(xp.finfo(scores.dtype).max))
    with np.errstate(over="ignore"):  # a gap times the factor may be inf: its exponential is 0
        if allowed is None:
            return xp.exp((scores - xp.max(scores, axis=-1, keepdims=True)) * factor)
        top = xp.max(xp.where(allowed, scores, -float("inf")), axis=-1, keepdims=True)
        gap = xp.where(allowed, scores - top, 0.0)
        return xp.where(allowed, xp.exp(gap * factor), 0.0)


def average(share: Array, values: Array) -> Array:
    return (share @ values) / namespace(share).sum(share, axis=-1, keepdims=True)


def log_sum(log: Array, axis: int) -> Array:
    xp = namespace(log)
    top = xp.max(log, axis=axis, keepdims=True)
    return top + xp.log(xp.sum(xp.exp(log - top), axis=axis, keepdims=True))


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


def as_given(z: Array) -> Array:
    """Float arrays and tensors as they are (their states may overflow: simulate says so)."""
    if is_torch(z) or (isinstance(z, np.ndarray) and z.dtype.kind == "f" and z.ndim >= 2):
        return z
    return as_tokens(z)


def namespace(z: Array) -> Any:
    from array_api_compat import array_namespace

    return array_namespace(z)


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


def cast(values: np.ndarray, z: Array) -> Array:
    return like(values, z) if is_torch(z) else values.astype(z.dtype, copy=False)


def transpose(z: Array) -> Array:
    return namespace(z).matrix_transpose(z)
