"""Array aliases, the validation of what users pass in with its messages, definite matrices."""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Number
from typing import Any, TypeAlias

import numpy as np

from ._blame import shown

Array: TypeAlias = Any  # a NumPy array or a torch tensor: whatever came in goes out
Rational: TypeAlias = tuple[Fraction, ...]  # one token in exact arithmetic


_REAL = "tokens are real vectors, got complex numbers; split them first"


def is_torch(x: object) -> bool:
    """True for a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def namespace(z: Array) -> Any:
    """The functions of the array-API standard for the library that z belongs to."""
    if type(z) is np.ndarray:
        return np  # which is of the standard since NumPy 2
    from array_api_compat import array_namespace

    return array_namespace(z)


def like(values: Array, model: Array) -> Array:
    """`values` as the kind of array `model` is (torch tensors keep their dtype and device)."""
    if not is_torch(model):
        return values
    import torch

    return torch.as_tensor(values, dtype=model.dtype, device=model.device)


def as_numpy(z: Array) -> np.ndarray:
    """The numbers of an array or a tensor, wherever it is."""
    return z.detach().cpu().numpy() if is_torch(z) else np.asarray(z)


def carries_gradient(x: object) -> bool:
    """True for a torch tensor that requires a gradient, or was computed from one that does."""
    return is_torch(x) and bool(getattr(x, "requires_grad", False))


def as_floats(z: Array, name: str = "z") -> Array:
    """A tensor of single or double precision: integers take torch's default, halves float32.

    Trap: a layer of integers would be truncated to integers again.
    """
    import torch

    if z.is_complex():
        raise TypeError(f"{name}: {_REAL}")
    if z.dtype in (torch.float32, torch.float64):
        return z
    return z.to(torch.float32 if z.is_floating_point() else torch.get_default_dtype())


def as_tokens(z: Array, name: str = "z", ndim: int | None = None) -> np.ndarray:
    """Tokens as a finite C-contiguous float64 or float32 array of shape (*b, n, d).

    float32 stays float32, and so does the number format of a tensor (halves become float32);
    integers, lists and float16 become float64. Tables (pandas, polars) are taken by their numbers.
    `ndim` demands an exact number of axes (2 for one configuration).
    """
    if is_torch(z):
        return np.ascontiguousarray(as_token_tensor(z, name, ndim).detach().cpu().numpy())
    z = _as_table(z, name)
    _refuse_masked(z, name)
    try:
        a = np.asarray(z)
    except ValueError as error:
        raise ValueError(
            f"{name}: rows differ in length ({error}); every token needs the same d"
        ) from None
    if a.dtype == object or a.dtype.kind in "USV":
        try:
            a = a.astype(np.float64)
        except (TypeError, ValueError):
            given = f"an array of {a.dtype}; pass a rectangular array of shape (n, d)"
            if a.ndim == 0 and hasattr(z, "values") and hasattr(z, "t"):
                given = f"{type(z).__name__}; pass one of its layers, such as run.values[-1]"
            raise TypeError(f"{name}: expected numbers, got {given}") from None
    if a.dtype.kind in "mM":
        raise TypeError(f"{name}: expected numbers, got dates or durations ({a.dtype})")
    if a.dtype.kind == "c":
        raise TypeError(f"{name}: {_REAL}")
    if a.dtype not in (np.float32, np.float64):
        a = a.astype(np.float64)
    _refuse_shape(a.shape, name, ndim)
    if not np.isfinite(a).all():
        _refuse_at(np.argwhere(~np.isfinite(a))[0].tolist(), name)
    return np.ascontiguousarray(a)


def as_token_tensor(z: Array, name: str = "z", ndim: int | None = None) -> Array:
    """A tensor as `as_tokens` takes it, on its device: one reduction there, nothing is copied."""
    z = as_floats(z, name)
    _refuse_shape(tuple(z.shape), name, ndim)
    bad = ~z.detach().isfinite()
    if bool(bad.any()):
        _refuse_at(bad.nonzero()[0].tolist(), name)
    return z


def _refuse_shape(shape: tuple[int, ...], name: str, ndim: int | None) -> None:
    """Tokens are rows, and there are some."""
    if len(shape) < 2:
        raise ValueError(
            f"{name}: expected tokens as rows, shape (n, d) or (*batch, n, d); got shape {shape}."
            " For tokens on a line use z[:, None]"
        )
    if ndim is not None and len(shape) != ndim:
        raise ValueError(
            f"{name}: expected one configuration of shape (n, d); got shape {shape}."
            " Call once per configuration"
        )
    if 0 in shape:
        raise ValueError(f"{name}: empty, shape {shape}; at least one token with d >= 1 needed")


def _refuse_at(place: Sequence[int], name: str) -> None:
    raise ValueError(
        f"{name}: NaN or infinity at index {tuple(place)}; tokens must be finite, fix or drop it"
    )


def _as_table(z: Array, name: str) -> Array:
    """The numbers of a table (pandas, polars); whatever else it is comes back as it came."""
    columns = getattr(z, "columns", None)
    if columns is None or not hasattr(z, "to_numpy"):
        return z
    for column in columns:
        x = np.asarray(z[column])
        objects = x.dtype == object and all(isinstance(one, Number) for one in x)
        if x.dtype.kind not in "iufb" and not objects:
            raise TypeError(
                f"{name}: column {column!r} of the table holds {x.dtype}, not numbers; "
                "drop it, one token per row and one coordinate per column"
            )
    return z.to_numpy()


def is_masked(x: object) -> bool:
    """True for a masked array, without importing `numpy.ma`."""
    ma = sys.modules.get("numpy.ma")
    return ma is not None and isinstance(x, ma.MaskedArray)


def _refuse_masked(z: Array, name: str) -> None:
    rows = z if isinstance(z, list | tuple) else [z]
    if any(is_masked(row) and np.ma.getmaskarray(row).any() for row in rows):
        raise TypeError(
            f"{name}: a masked array, whose mask would be lost; pass the plain array and mask=, "
            "booleans of shape (*batch, n) with True for a real token"
        )


def as_array(values: Any, name: str, expected: str, dtype: Any = np.float64) -> np.ndarray:
    """`values` as NumPy reads them; what it cannot read, or would lose, is refused by name."""
    _refuse_masked(values, name)
    try:
        a = np.asarray(values)
        if a.dtype.kind != "c":
            return a if dtype is None else a.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # a tensor with its gradient
        raise ValueError(f"{name}: expected {expected}, got {shown(values)}") from None
    raise TypeError(f"{name}: expected {expected}, got complex numbers; split them first")


def as_mask(mask: Array | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """`mask` as booleans of shape (*b, n); True marks a real token, False padding."""
    if mask is None:
        return None
    a = as_array(mask.detach().cpu() if is_torch(mask) else mask, "mask", "booleans", None)
    if a.dtype != np.bool_:
        raise TypeError(f"mask: expected booleans (True = real token), got {a.dtype}")
    if a.shape != tuple(shape):
        raise ValueError(f"mask: expected shape {tuple(shape)} to match the tokens, got {a.shape}")
    if not a.any(axis=-1).all():
        raise ValueError("mask: a configuration has no real token left; drop it from the batch")
    return a


def as_matrix(M: Array | None, name: str = "A", square: bool = True) -> np.ndarray | None:
    """A finite float64 matrix (m, d), m = d if `square`; None for the identity."""
    if M is None:
        return None
    if square and (len(np.shape(M)) != 2 or np.shape(M)[0] != np.shape(M)[1]):
        raise ValueError(f"{name}: expected a square matrix (d, d), got shape {np.shape(M)}")
    if carries_gradient(M):
        raise TypeError(
            f"{name}: requires a gradient, which is not followed here; pass {name}.detach()"
        )
    m = as_array(M.detach().cpu() if is_torch(M) else M, name, "a finite matrix (m, d)")
    if m.ndim != 2 or m.size == 0:
        raise ValueError(f"{name}: expected a finite matrix (m, d), got shape {m.shape}")
    if not np.isfinite(m).all():
        raise ValueError(f"{name}: contains NaN or infinity; every entry must be finite")
    return np.ascontiguousarray(m)


def as_parameter(M: Array | None, name: str = "A", square: bool = True) -> Array | None:
    """A finite matrix as `as_matrix` gives it; a tensor that is trained stays one."""
    if M is not None and carries_gradient(M):
        as_matrix(M.detach(), name, square)
        return M
    return as_matrix(M, name, square)


_MOST_BITS = 2e9  # d^3 products of integers that grow to d times the longest: about a second


def definite(A: np.ndarray | None) -> bool:
    """True when A is symmetric positive definite (or the identity, None)."""
    return A is None or (bool((A == A.T).all()) and positive(A))


def positive(A: np.ndarray) -> bool:
    """True when the symmetric part of A is positive definite: <A x, x> > 0 for all x != 0.

    Trap: floats give a singular matrix a least eigenvalue of 1e-17 as often as one of -1e-17. What
    is within their rounding is decided by the leading minors in integers (Sylvester); a matrix that
    is nearly singular and too large for that, or of too many scales, counts as not positive.
    """
    d = len(A)
    y = np.ldexp(A, -int(np.frexp(np.abs(A).max())[1]))
    least = float(np.linalg.eigvalsh((y + y.T) / 2)[0])
    rounding = 16 * d * d * 2.0**-52
    if abs(least) > rounding:
        return least > 0
    ratios = [[Fraction(x) for x in row] for row in A.tolist()]
    common = max(x.denominator for row in ratios for x in row)  # powers of two
    W = [[int((ratios[i][j] + ratios[j][i]) * common) for j in range(d)] for i in range(d)]
    longest = max(abs(x) for row in W for x in row).bit_length()
    if d**4 * longest > _MOST_BITS:
        return False
    before = 1
    for k in range(d):  # fraction-free elimination (E. Bareiss, 1968): W[k][k] is a leading minor
        pivot = W[k][k]
        if pivot <= 0:
            return False
        for i in range(k + 1, d):
            for j in range(i, d):
                W[i][j] = (W[i][j] * pivot - W[k][i] * W[k][j]) // before
        before = pivot
    return True


def as_alpha(alpha: Any) -> Fraction:
    """The step alpha > 0 as an exact rational; a float means exactly that float.

    Strings such as "1/10" are read as the rational they name, which is *not* the float 0.1.
    """
    try:
        plain = alpha.detach() if is_torch(alpha) else alpha
        value = Fraction(plain.item() if hasattr(plain, "item") else plain)
    except (ValueError, TypeError, OverflowError, RuntimeError, ZeroDivisionError):
        raise ValueError(
            f"alpha: expected a positive number such as 0.5 or '1/2', got {shown(alpha)}"
        ) from None
    if value <= 0:
        raise ValueError(f"alpha: must be positive (the step towards the leaders), got {alpha!r}")
    return value


def as_rationals(z: Sequence[Sequence[Any]] | Array) -> list[Rational]:
    """Tokens as exact rationals; floats mean exactly the dyadic numbers they store."""
    if is_torch(z) or (isinstance(z, np.ndarray) and z.dtype != object):
        return [tuple(map(Fraction, row)) for row in as_tokens(z, ndim=2).tolist()]
    try:
        rows = [tuple(map(Fraction, row)) for row in z]
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise ValueError(f"z: expected rows of finite rational numbers ({error})") from None
    if not rows or not rows[0] or len({len(row) for row in rows}) != 1:
        raise ValueError("z: expected a non-empty rectangular list of tokens, one row per token")
    return rows


def as_whole(value: Any, name: str, least: int) -> int:
    """`value` as an int of at least `least`; 3.0 is 3, 3.5 and "3" are refused by name."""
    try:
        exact = isinstance(value, float | np.floating) and float(value).is_integer()
        whole = int(value) if exact else operator.index(value)
    except TypeError:
        whole = least - 1
    if whole < least:
        raise ValueError(f"{name}: expected a whole number >= {least}, got {value!r}")
    return whole


def as_number(value: Any, name: str, expected: str, good: Callable[[float], bool]) -> float:
    """`value` as a float that is `good`; refused by name, with what was `expected`."""
    try:
        number = float("nan") if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not good(number):
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return number


def as_generator(seed: Any) -> np.random.Generator:
    """NumPy's generator for that seed. A matrix is refused, with which NumPy crashes."""
    if isinstance(seed, np.matrix):
        raise TypeError(f"seed: expected a whole number >= 0, got a matrix of {seed.shape}")
    return np.random.default_rng(seed)


def fingerprint(values: np.ndarray) -> str:
    """SHA-256 of the numbers themselves (little-endian float64, row by row)."""
    return hashlib.sha256(np.asarray(values).astype("<f8").tobytes()).hexdigest()
