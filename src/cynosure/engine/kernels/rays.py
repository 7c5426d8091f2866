"""Texts whose tokens lie on few rays from the origin: all hardmax layers in one pass over them.

Tokens rho_i e_g on the ray of direction e_g have equal scores up to the factor rho_i, so they
follow the same token, and on each ray only the longest can be followed from an acute angle
(docs/mathematics.md C4 for directions). If the longest token of every ray present follows itself,
each leads its ray from layer 0 on and the last layer is known: z_l + rho^layers (z_i - z_l). Where
that fails, or a gap is within rounding, the text is left to the general path.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .contract import Floats, Indices


@njit(cache=True, nogil=True)
def ray_means(
    indptr: Indices,
    indices: Indices,
    ray: Indices,
    radius: Floats,
    cosine: Floats,
    anchor_ray: int,
    anchor_radius: float,
    anchor_count: float,
    left: float,
    gap: float,
    mass: Floats,
):
    """mass (texts, rays): sum of the last layer's tokens along each ray, over their number.

    The anchor counts `anchor_count` times. `left` = rho^layers; `gap` bounds twice the rounding of
    a score of unit vectors. Returns the number of leaders of each text, -1 where the general path
    has to decide."""
    texts, rays = mass.shape
    first, second, total = np.zeros(rays), np.zeros(rays), np.zeros(rays)
    count, present = np.zeros(rays, np.intp), np.empty(rays, np.intp)
    leaders = np.empty(texts, np.intp)
    for t in range(texts):
        m = 1
        present[0] = anchor_ray
        first[anchor_ray], total[anchor_ray] = anchor_radius, anchor_radius
        second[anchor_ray], count[anchor_ray] = 0.0, 1
        for at in range(indptr[t], indptr[t + 1]):
            j = indices[at]
            g, r = ray[j], radius[j]
            if count[g] == 0:
                present[m] = g
                m += 1
                first[g], second[g], total[g] = 0.0, 0.0, 0.0
            count[g] += 1
            total[g] += r
            if r > first[g]:
                second[g], first[g] = first[g], r
            elif r > second[g]:
                second[g] = r
        sure = True
        for a in range(m):
            g = present[a]
            sure &= first[g] > second[g] + gap
            for b in range(m):
                h = present[b]
                sure &= a == b or first[g] > first[h] * cosine[g, h] + gap
        leaders[t] = m if sure else -1
        tokens = indptr[t + 1] - indptr[t] + anchor_count
        for a in range(m):
            g = present[a]
            mass[t, g] = (count[g] * first[g] * (1.0 - left) + total[g] * left) / tokens
            count[g] = 0
        again = first[anchor_ray] * (1.0 - left) + anchor_radius * left
        mass[t, anchor_ray] += (anchor_count - 1.0) * again / tokens
    return leaders
