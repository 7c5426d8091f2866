"""Tokens in closed form: z_i = limit_i + rho^j offset_i, written into their rows in one pass."""

from __future__ import annotations

import numpy as np

from ..._compiled import jitted


def warm() -> None:
    z = np.ones((2, 2))
    place(z, np.arange(2), z.copy(), z.copy(), 0.5)


@jitted()
def place(z, ids, limits, offsets, factor):
    """z[ids] = limits + factor offsets; assigning indexed rows in NumPy takes five times that."""
    for row in range(len(ids)):
        c = ids[row]
        for j in range(z.shape[1]):
            z[c, j] = limits[row, j] + factor * offsets[row, j]
