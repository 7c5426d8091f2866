"""What the certificates of softmax assume of the machine: IEEE additions, products and divisions.

NumPy promises no error bound for `exp`, so the exponential here is made of those operations.
"""

from __future__ import annotations

import numpy as np

U = 2.0**-53
ROUNDINGS = 9_000_000
MORE = 1 + 1e-9
"""At least 1 + gamma_k for k up to ROUNDINGS, gamma_k = k U / (1 - k U): k roundings of positive
numbers change them by less than this factor."""

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # 32 bits: times |k| < 2^20 it is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def exponential(x: np.ndarray) -> np.ndarray:
    """e^x for -700 <= x <= 700 within a relative error of 2^-50; smaller x count as -700.

    x = k log 2 + r with |r| <= 0.35. The polynomial of degree 14 leaves out less than
    r^15/15! < 2^-62, its 28 operations in Horner's form lose at most 3 units of 2^-53, and r is
    off by at most 2^-53 |r| + 2^-86 |k| < 2^-54.
    """
    x = np.maximum(x, -700.0)
    k = np.rint(x * 1.4426950408889634)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    total = np.ones_like(r)
    for i in range(14, 0, -1):
        total = 1 + r * total / i
    return np.ldexp(total, k.astype(np.int64))


def norms(x: np.ndarray) -> np.ndarray:
    """Euclidean lengths of the rows, rounded up."""
    return np.asarray(np.sqrt((x * x).sum(axis=-1)) * MORE)


def roundings(n: int, d: int, heads: int) -> int:
    """The most roundings on the way to any bound, for n tokens in R^d: docs/mathematics.md C12."""
    return d * (max(n, d) + 2 * d + 4) + 4 * n + heads + 200


def largest_eigenvalues(S: np.ndarray, squarings: int = 3) -> np.ndarray:
    """At least the largest eigenvalue of each positive semidefinite S (*b, d, d).

    It is at most |S^p|_F^(1/p), p = 2^squarings, and less than d^(1/(2p)) times smaller.
    """
    scales = []
    for _ in range(squarings + 1):
        scales.append(np.sqrt((S * S).sum(axis=(-2, -1))))
        S = S / np.where(scales[-1] > 0, scales[-1], 1.0)[..., None, None]
        S = S @ S
    found = scales.pop()
    for scale in reversed(scales):  # roots of roots: IEEE rounds them, and no other power
        found = scale * np.sqrt(found)
    return np.asarray(found * MORE)
