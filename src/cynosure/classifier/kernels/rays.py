"""Texts whose tokens lie on few rays from the origin: all hardmax layers in one pass over them.

Tokens on one ray have equal scores up to a factor, so they follow the same token, and only the
longest can be followed from an acute angle (docs/mathematics.md C4 for directions). If the anchor
follows itself and the longest token of every other ray follows itself or the anchor, the last layer
is known: z_l + rho^layers (z_i - z_l). Where that fails, or a gap is within rounding, the text is
left to the general path.
"""

from __future__ import annotations

import numpy as np

from ..._compiled import kernel
from . import plain


@kernel(by=1, cost=200.0, plain=plain.silent_levels)
def silent_levels(indptr, indices, ray, level, value, kappa):
    """How far down the terms of each text are read: levels up to the one returned stay silent.

    Ray g has the weight value[g] and the level[g] of |value|, 0 where it is 0. Levels are read from
    the top until |sum read| >= kappa sqrt(sum of the unread squares). Sums go over rays, not over
    terms, so that they do not depend on the order of the terms."""
    texts, rays, levels = len(indptr) - 1, len(value), level.max() + 1
    count = np.zeros(rays, np.intp)
    total, square = np.zeros(levels), np.zeros(levels)
    out = np.zeros(texts, np.intp)
    for t in range(texts):
        for at in range(indptr[t], indptr[t + 1]):
            count[ray[indices[at]]] += 1
        total[:], square[:] = 0.0, 0.0
        for g in range(rays):
            if count[g]:
                total[level[g]] += count[g] * value[g]
                square[level[g]] += count[g] * value[g] ** 2
                count[g] = 0
        square[0] = 0.0
        for h in range(1, levels):
            square[h] += square[h - 1]
        read = 0.0
        for h in range(levels - 1, 0, -1):
            if square[h] > square[h - 1]:
                read += total[h]
                if abs(read) >= kappa * np.sqrt(square[h - 1]):
                    out[t] = h - 1
                    break
    return out


@kernel(by=1, cost=400.0, plain=plain.ray_means)
def ray_means(
    indptr, indices, ray, radius, cosine, anchor_ray, anchor_radius, anchor_count, left, gap, apart,
    mass, speaking,
):  # fmt: skip
    """mass (texts, rays): sum of the last layer's tokens along each ray, over their number.

    The anchor has its own radius in every text and counts `anchor_count` times. `left` =
    rho^layers; `gap` bounds twice the rounding of a score of unit vectors; `apart` says that no
    token can follow one of another ray but the anchor's. `speaking` (texts,) becomes the number of
    tokens that do not follow the anchor. Returns the number of leaders of each text, -1 where the
    general path has to decide."""
    texts, rays = mass.shape
    first, second, total = np.zeros(rays), np.zeros(rays), np.zeros(rays)
    count, present = np.zeros(rays, np.intp), np.empty(rays, np.intp)
    leaders = np.empty(texts, np.intp)
    for t in range(texts):
        m = 1
        length = anchor_radius[t]
        present[0] = anchor_ray
        first[anchor_ray], total[anchor_ray] = length, length
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
        sure = first[anchor_ray] == length
        tokens = indptr[t + 1] - indptr[t] + anchor_count
        led, said, silenced = 1, 0, 0
        for a in range(m):
            g = present[a]
            other = 0.0
            for b in range(1 if apart and a > 0 else m):
                h = present[b]
                if h not in (g, anchor_ray):
                    other = max(other, first[h] * cosine[g, h])
            if a == 0:
                sure &= length > max(other, second[g]) + gap
                continue
            pulled, own = length * cosine[g, anchor_ray], first[g]
            if own > pulled:  # leads its ray
                sure &= own > max(other, pulled, second[g]) + gap
                led += 1
                said += count[g]
                mass[t, g] = (count[g] * own * (1.0 - left) + total[g] * left) / tokens
            else:
                sure &= pulled > max(other, own) + gap
                silenced += count[g]
                mass[t, g] = total[g] * left / tokens
            count[g] = 0
        near = count[anchor_ray] + silenced + anchor_count - 1.0
        mass[t, anchor_ray] = near * length * (1.0 - left) / tokens
        mass[t, anchor_ray] += (total[anchor_ray] + (anchor_count - 1.0) * length) * left / tokens
        count[anchor_ray] = 0
        leaders[t] = led if sure else -1
        speaking[t] = said
    return leaders


def warm() -> None:
    indptr, indices, ray = np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.intp)
    one = np.ones(1)
    silent_levels(indptr, indices, ray, ray, one, 1.0)
    rest = one, 1.0, 0.5, 1e-12, False, np.zeros((1, 1)), np.zeros(1, np.intp)
    ray_means(indptr, indices, ray, one, np.ones((1, 1)), 0, *rest)
