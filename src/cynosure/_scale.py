"""Powers of two taken out of arrays: lengths and directions that neither overflow nor vanish.

A product with a power of two is exact as long as no digit is lost below the smallest float. So what
is computed from scaled tokens, and scaled back, is bit for bit what it was, and right for tokens of
1e300 as well, whose squares are not floats.
"""

from __future__ import annotations

from math import frexp, isfinite
from typing import Any

import numpy as np

from ._types import Array, is_torch, namespace


def exponent(x: Array, axis: int | tuple[int, ...] | None = None) -> Any:
    """e with 2^(e-1) <= max |x| < 2^e along `axis`, which stays with length 1; 0 where x is 0.

    axis = None: of the whole array, a number. Infinities and NaN have 0, and stay what they are.
    """
    if axis is None:
        top = float(abs(x.detach() if is_torch(x) else x).max())
        return frexp(top)[1] if isfinite(top) else 0
    if is_torch(x):
        import torch

        top = torch.amax(torch.abs(x.detach()), dim=axis, keepdim=True)
        return torch.frexp(torch.where(torch.isfinite(top), top, torch.zeros_like(top)))[1]
    top = np.abs(x).max(axis=axis, keepdims=True)
    return np.frexp(np.where(np.isfinite(top), top, 0.0))[1]


def shifted(x: Array, e: Any) -> Array:
    """2^e x for whole numbers e, one or an array that broadcasts; rounded once where it is small.

    Trap: 2^e itself need not be a float (a subnormal x times 2^1073 is about 1).
    """
    if not is_torch(x):
        with np.errstate(over="ignore"):
            return np.ldexp(x, e)
    import torch

    whole = torch.as_tensor(e, device=x.device)
    half = torch.div(whole, 2, rounding_mode="floor")
    two = torch.tensor(2.0, dtype=x.dtype, device=x.device)
    return x * torch.pow(two, half) * torch.pow(two, whole - half)


def scaled(x: Array, axis: int | tuple[int, ...] | None = None) -> tuple[Array, Any]:
    """(y, e) with x = 2^e y and the largest |y| along `axis` in [1/2, 1), or 0."""
    e = exponent(x, axis)
    return shifted(x, -e), e


def lossless(x: np.ndarray) -> tuple[np.ndarray, int]:
    """(y, e) with x = 2^e y to the last bit, and differences of y floats.

    y is at most 1 where that loses no digit of a small entry; else at most a quarter of the
    largest float, or x itself.
    """
    for e in (exponent(x), 3):
        y = shifted(x, -e)
        if (shifted(y, e) == x).all():
            return y, e
    return x, 0


def lengths(x: Array) -> Array:
    """|x_i| over the last axis; inf only where the length itself is beyond the floats."""
    y, e = scaled(x, -1)
    return shifted(namespace(x).sqrt(_squares(y)), e)[..., 0]


def unit(x: Array) -> Array:
    """x_i / |x_i| over the last axis; a zero row stays zero.

    Differentiable in torch: the power of two cancels, so it carries no gradient.
    """
    xp = namespace(x)
    with np.errstate(over="ignore"):
        square = _squares(x)
    tiny = 2.0**20 * float(xp.finfo(x.dtype).smallest_normal)
    seen = square.detach() if is_torch(square) else square
    empty = 0 in seen.shape
    if not (empty or (float(seen.min()) > tiny and float(seen.max()) < float("inf"))):
        x, _ = scaled(x, -1)
        square = _squares(x)
    return x / xp.sqrt(xp.where(square > 0, square, 1.0))


def _squares(y: Array) -> Array:
    return namespace(y).sum(y * y, axis=-1, keepdims=True)
