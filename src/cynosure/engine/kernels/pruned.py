"""Norm-ordered search, any d: dense blocks of keys by decreasing norm, stopped by Cauchy-Schwarz.

Keys are laid out in blocks of 64, coordinates major, so that the scores of four queries against a
block are four running sums over vector registers: with the maximum fused in, this runs at the
speed of a matrix product without ever writing the scores out. A query leaves as soon as
|q_i| |z_j| < best - slack_i for the longest key of the next block, since <q_i, z_j> <= |q_i| |z_j|
for that key and all later ones. Two largest scores are stored per query; only rows where the second
is within the slack are visited again to list their members.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .contract import Candidates, Floats, Indices, U, assemble

# Sums may be contracted to fused multiply-adds (each is one rounding less, the bound still holds)
# but never reassociated; "no NaN, no signed zero" is true of our data and frees the maximum.
FLAGS = {"nnan", "nsz", "contract"}
WIDTH = 64  # keys in a block
CHUNK = 512  # queries travelling together: their rows stay in the second-level cache
FEW = 24  # queries for which ordering the keys costs more than it saves


def pruned_candidates(
    q: Floats, z: Floats, slack: Floats, *, runner_up: bool = False
) -> Candidates:
    """Keys within slack of the best computed score, the contract of `kernels.candidates`."""
    nq, d = q.shape
    norm_q, norm_z = upper_norms(q), upper_norms(z)
    slack = widened(slack, norm_q, norm_z.max(), d)
    if nq > FEW:
        order = by_norm(norm_z)
        zt = blocks(z, order)
        reach = reaches(norm_z, order)
    else:
        order = np.arange(len(z))
        zt = blocks(z, order)
        reach = np.full(-(-len(z) // WIDTH), norm_z.max())
    rows = np.zeros((nq, zt.shape[1]))
    rows[:, :d] = q
    flat, m = zt.reshape(-1), len(z)
    top, second, at = top_two(rows, norm_q, slack, flat, reach, m, runner_up)
    best = order[at]
    tied = np.flatnonzero(second >= top - slack)
    member_row, member = np.empty(0, np.intp), np.empty(0, np.intp)
    gap = top - second if runner_up else np.empty(0)
    if len(tied):
        args = rows[tied], norm_q[tied], slack[tied], top[tied], flat, reach, m, runner_up
        row, position, outside = _members(*args)
        member_row, member = tied[row], order[position]
        if runner_up:
            gap[tied] = top[tied] - outside
    return assemble(best, m, tied, member_row, member, gap)


def widened(slack: Floats, norm_q: Floats, radius: float, d: int) -> Floats:
    """The slack plus what rounding inside a kernel can hide: 4 (d + 2) u |q_i| R, and underflow."""
    return slack + (4 * (d + 2) * U * radius) * norm_q + d * 2.0**-1070


@njit(cache=True, nogil=True)
def upper_norms(z):
    """Euclidean norms of rows, rounded upwards; no overflow or underflow in the squares."""
    n, d = z.shape
    out = np.empty(n)
    up = 1.0 + (d + 6) * 2.0**-53
    for i in range(n):
        total = 0.0
        largest = 0.0
        for c in range(d):
            x = abs(z[i, c])
            total += x * x
            largest = max(largest, x)
        safe = 1e-140 < largest < 1e140
        out[i] = up * (np.sqrt(total) if safe else np.sqrt(d) * largest)
    return out


@njit(cache=True, nogil=True)
def by_norm(norm):
    """Keys by decreasing norm, up to 2^-11 of it: two passes of a radix sort over the highest bits.

    A tenth of the time of `argsort`; what the rounding leaves unordered `reaches` makes up for.
    """
    n = len(norm)
    bits = norm.view(np.uint64)  # of positive floats: ordered as they are
    order, turned = np.arange(n), np.empty(n, np.intp)
    for shift in (41, 52):
        start = np.zeros(2049, np.intp)
        for i in range(n):
            start[2048 - (np.intp(bits[i] >> np.uint64(shift)) & 2047)] += 1
        for k in range(1, 2049):
            start[k] += start[k - 1]
        for i in range(n):
            digit = 2047 - (np.intp(bits[order[i]] >> np.uint64(shift)) & 2047)
            turned[start[digit]] = order[i]
            start[digit] += 1
        order, turned = turned, order
    return order


@njit(cache=True, nogil=True)
def reaches(norm, order):
    """For each block of keys in this order, the largest norm in it or in a later one."""
    out = np.zeros((len(order) + WIDTH - 1) // WIDTH)
    largest = 0.0
    for k in range(len(order) - 1, -1, -1):
        largest = max(largest, norm[order[k]])
        out[k // WIDTH] = largest
    return out


def blocks(z: Floats, order: Indices, power: float = 1.0, dtype: Any = np.float64) -> np.ndarray:
    """Keys times the power in the given order, as (blocks, d rounded up to 4, WIDTH)."""
    m, d = z.shape
    zt = np.zeros((-(-m // WIDTH), (d + 3) // 4 * 4, WIDTH), dtype)
    _fill(zt, z, order, power)
    return zt


@njit(cache=True, nogil=True)
def _fill(zt, z, order, power):
    m, d = z.shape
    for b in range(len(zt)):
        for lane in range(min(WIDTH, m - b * WIDTH)):
            j = order[b * WIDTH + lane]
            for c in range(d):
                zt[b, c, lane] = z[j, c] * power


@njit(cache=True, nogil=True, fastmath=FLAGS)
def tile(q, start, zt, base, s, d):
    """s[64 r + j] = <q_r, z_j> for the 4 queries from `start` and the 64 keys from `base`."""
    for g in range(0, d, 4):
        p = start + g
        a0, a1, a2, a3 = q[p], q[p + 1], q[p + 2], q[p + 3]
        p += d
        b0, b1, b2, b3 = q[p], q[p + 1], q[p + 2], q[p + 3]
        p += d
        c0, c1, c2, c3 = q[p], q[p + 1], q[p + 2], q[p + 3]
        p += d
        e0, e1, e2, e3 = q[p], q[p + 1], q[p + 2], q[p + 3]
        z = zt[base + 64 * g : base + 64 * g + 256]
        if g == 0:
            for j in range(64):
                x0, x1, x2, x3 = z[j], z[j + 64], z[j + 128], z[j + 192]
                s[j] = a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                s[j + 64] = b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                s[j + 128] = c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                s[j + 192] = e0 * x0 + e1 * x1 + e2 * x2 + e3 * x3
        else:
            for j in range(64):
                x0, x1, x2, x3 = z[j], z[j + 64], z[j + 128], z[j + 192]
                s[j] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                s[j + 64] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                s[j + 128] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                s[j + 192] += e0 * x0 + e1 * x1 + e2 * x2 + e3 * x3


@njit(cache=True, nogil=True, fastmath=FLAGS)
def exceeds(s, low):
    """True when one of 64 scores is above `low`: comparing all costs less than their maximum."""
    hit = 0
    for j in range(64):
        hit |= s[j] > low
    return hit != 0


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always")
def _fold_two(w, half):
    """Merge pairs (largest w[j], second w[j + 32]) at distance `half`."""
    for j in range(half):
        x, y = w[j], w[j + half]
        low = y if x > y else x
        rest = w[j + 32] if w[j + 32] > w[j + 32 + half] else w[j + 32 + half]
        w[j] = x if x > y else y
        w[j + 32] = low if low > rest else rest


@njit(cache=True, nogil=True, fastmath=FLAGS)
def largest_two(s, w):
    """Largest and second largest of 64 scores and the lane of the largest, folded likewise."""
    for j in range(32):
        x, y = s[j], s[j + 32]
        w[j] = x if x > y else y
        w[j + 32] = y if x > y else x
    _fold_two(w, 16)
    _fold_two(w, 8)
    _fold_two(w, 4)
    _fold_two(w, 2)
    _fold_two(w, 1)
    best, second, lane = w[0], w[32], 0
    for j in range(64):
        lane = j if s[j] == best else lane
    return best, second, lane


@njit(cache=True, nogil=True, fastmath=FLAGS)
def top_two(rows, norm_q, slack, zt, reach, m, runner_up):
    """Largest and second largest score of each query, and the position of the largest.

    Without runner_up the second is the right one only where it is within the slack of the largest.
    """
    nq, d = rows.shape
    top = np.full(nq, -np.inf, zt.dtype)
    second = np.full(nq, -np.inf, zt.dtype)
    low = np.full(nq, -np.inf, zt.dtype)  # only blocks with a score above it are looked at
    at = np.zeros(nq, np.intp)
    q = np.zeros((CHUNK + 4) * d, zt.dtype)
    who = np.empty(CHUNK, np.intp)
    s = np.empty(256, zt.dtype)
    w = np.empty(64, zt.dtype)
    for start in range(0, nq, CHUNK):
        active = min(CHUNK, nq - start)
        for r in range(active):
            who[r] = start + r
            q[r * d : r * d + d] = rows[start + r]
        for b in range(len(reach)):
            for r in range(0, active, 4):
                tile(q, r * d, zt, b * d * WIDTH, s, d)
                for lane in range(m - b * WIDTH, WIDTH):  # the last block may be short
                    s[lane] = s[lane + 64] = s[lane + 128] = s[lane + 192] = -np.inf
                for k in range(min(4, active - r)):
                    i = who[r + k]
                    scores = s[k * 64 : k * 64 + 64]
                    if b == 0 or exceeds(scores, low[i]):
                        x, y, lane = largest_two(scores, w)
                        if x > top[i]:
                            second[i] = max(y, top[i])
                            top[i], at[i] = x, b * WIDTH + lane
                        else:
                            second[i] = max(x, second[i])
                        # the last term is more than the rounding to a low precision
                        floor = top[i] - slack[i] - 2.0**-22 * abs(top[i])
                        low[i] = second[i] if runner_up else floor
            if b + 1 == len(reach):
                break
            left = 0
            for r in range(active):
                i = who[r]
                floor = top[i] - slack[i]
                if norm_q[i] * reach[b + 1] >= (min(second[i], floor) if runner_up else floor):
                    if left < r:
                        who[left] = i
                        q[left * d : left * d + d] = q[r * d : r * d + d]
                    left += 1
            active = left
            if active == 0:
                break
    return top, second, at


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _members(rows, norm_q, slack, top, zt, reach, m, runner_up):
    """Every (row, position) with score >= top - slack, and the largest score below that."""
    nq, d = rows.shape
    outside = np.full(nq, -np.inf)
    row = np.empty(4 * nq + WIDTH, np.intp)
    position = np.empty(4 * nq + WIDTH, np.intp)
    count = 0
    s = np.empty(WIDTH)
    for i in range(nq):
        floor = top[i] - slack[i]
        for b in range(len(reach)):
            if norm_q[i] * reach[b] < (min(outside[i], floor) if runner_up else floor):
                break
            if count + WIDTH > len(row):
                row = np.concatenate((row, row))
                position = np.concatenate((position, position))
            s[:] = 0.0
            for c in range(d):
                x = rows[i, c]
                z = zt[(b * d + c) * WIDTH : (b * d + c + 1) * WIDTH]
                for j in range(WIDTH):
                    s[j] += x * z[j]
            for lane in range(min(WIDTH, m - b * WIDTH)):
                if s[lane] >= floor:
                    row[count] = i
                    position[count] = b * WIDTH + lane
                    count += 1
                elif s[lane] > outside[i]:
                    outside[i] = s[lane]
    return row[:count], position[:count], outside
