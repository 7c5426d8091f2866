"""Tokens of the plane proved deep inside a polygon of a few others: no direction prefers them.

Both functions take the coordinates of the first n tokens, and write into what they get.
"""

from __future__ import annotations

import numpy as np

from ..._compiled import jitted
from .pruned import FLAGS


@jitted()
def corners(x, y, n, corner):
    """Fills `corner` with tokens extreme in eight directions, counterclockwise from the right.

    Returns a bound on |x|, |y|, |x + y| and |x - y| of these tokens.
    """
    east = west = x[0]
    north = south = y[0]
    up = down = x[0] + y[0]
    left = right = y[0] - x[0]
    corner[:] = 0
    for k in range(1, n):
        u, v = x[k], y[k]
        a, b = u + v, v - u
        if u > east:
            east, corner[0] = u, k
        if a > up:
            up, corner[1] = a, k
        if v > north:
            north, corner[2] = v, k
        if b > left:
            left, corner[3] = b, k
        if u < west:
            west, corner[4] = u, k
        if a < down:
            down, corner[5] = a, k
        if v < south:
            south, corner[6] = v, k
        if b < right:
            right, corner[7] = b, k
    return max(max(max(east, -west), max(north, -south)), max(max(up, -down), max(left, -right)))


@jitted(fastmath=FLAGS)
def deep_inside(x, y, n, corner, count, depth, size, out):
    """out[k] <= 0: token k is proved deeper than `depth` inside the closed path of the corners.

    Left of all sides by more than depth means that the path winds round the ball of that radius,
    whatever its shape and whatever rounding did to its corners: the ball is in their hull, and
    <q, z> < max - depth |q| for every q. Equal corners make no side; the margin swallows the
    rounding of the test itself, for tokens within `size`.
    """
    sides = 0
    for e in range(count):
        p, r = corner[e], corner[e + 1 if e + 1 < count else 0]
        dx, dy = x[r] - x[p], y[r] - y[p]
        length = np.sqrt(dx * dx + dy * dy)
        if length > 0.0:
            nx, ny = dy / length, -dx / length
            offset = nx * x[p] + ny * y[p] - 2.0 * depth - 2.0**-47 * size
            if sides == 0:
                for k in range(n):
                    out[k] = nx * x[k] + ny * y[k] - offset
            else:
                for k in range(n):
                    beyond = nx * x[k] + ny * y[k] - offset
                    out[k] = beyond if beyond > out[k] else out[k]
            sides += 1
    if sides == 0:
        out[:n] = 1.0
