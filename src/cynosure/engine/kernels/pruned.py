"""Norm-ordered search, any d: dense blocks of keys by decreasing norm, stopped by Cauchy-Schwarz.

Keys are laid out in blocks of 64, coordinates major, and scored against six queries at a time in
registers (`tile`): at the speed of a matrix product, without ever writing the scores out. A query
leaves as soon as |q_i| |z_j| < best - slack_i for the longest key of the next block, since
<q_i, z_j> <= |q_i| |z_j| for that key and all later ones. Two largest scores are stored per query;
only rows where the second is within the slack are visited again to list their members.
Trap: an array that is sliced, passed on or replaced in a loop is counted by reference each time,
and these atomic operations can cost more than the scores: inner loops are functions of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._compiled import jitted
from .contract import Candidates, Floats, Indices, U, assemble
from .tile import ROWS, WIDTH, largest_two, scores

# Sums may be contracted to fused multiply-adds (each is one rounding less, the bound still holds)
# but never reassociated; "no NaN, no signed zero" is true of our data and frees the maximum.
FLAGS = {"nnan", "nsz", "contract"}
CHUNK = 512  # queries travelling together: their rows stay in the second-level cache
LAZY = 32  # queries travel on until one in so many has arrived
FEW = 24  # queries for which ordering the keys costs more than it saves


def warm() -> None:
    z = np.eye(3)
    for runner_up in (False, True):
        pruned_candidates(z, z, np.ones(3), runner_up=runner_up)
    by_norm(upper_norms(np.ones((2 * FEW, 2))))
    place(z, np.arange(3), z.copy(), z.copy(), 0.5)
    pruned_candidates(np.ones((2 * FEW, 2)), np.ones((4, 2)), np.ones(2 * FEW))


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
    flat, m = zt.reshape(-1), len(z)
    start = np.full(nq, -np.inf)
    top, second, at = top_two(
        q, norm_q, slack, flat, reach, m, runner_up, start, d, norm_q, reach
    )  # the last two are not read: no score is given up
    best = order[at]
    tied = np.flatnonzero(second >= top - slack)
    member_row, member = np.empty(0, np.intp), np.empty(0, np.intp)
    gap = top - second if runner_up else np.empty(0)
    if len(tied):
        args = q[tied], norm_q[tied], slack[tied], top[tied], flat, reach, m, runner_up
        row, position, outside = _members(*args)
        member_row, member = tied[row], order[position]
        if runner_up:
            gap[tied] = top[tied] - outside
    return assemble(best, m, tied, member_row, member, gap)


def widened(slack: Floats, norm_q: Floats, radius: float, d: int) -> Floats:
    """The slack plus what rounding inside a kernel can hide: 4 (d + 2) u |q_i| R, and underflow."""
    return slack + (4 * (d + 2) * U * radius) * norm_q + d * 2.0**-1070


@jitted()
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


@jitted()
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


@jitted()
def reaches(norm, order):
    """For each block of keys in this order, the largest norm in it or in a later one."""
    out = np.zeros((len(order) + WIDTH - 1) // WIDTH)
    largest = 0.0
    for k in range(len(order) - 1, -1, -1):
        largest = max(largest, norm[order[k]])
        out[k // WIDTH] = largest
    return out


def blocks(z: Floats, order: Indices, power: float = 1.0, dtype: Any = np.float64) -> np.ndarray:
    """Keys times the power in the given order, as (blocks, d, WIDTH)."""
    m, d = z.shape
    zt = np.zeros((-(-m // WIDTH), d, WIDTH), dtype)
    _fill(zt, z, order, power)
    return zt


@jitted()
def _fill(zt, z, order, power):
    m, d = z.shape
    for b in range(len(zt)):
        for lane in range(min(WIDTH, m - b * WIDTH)):
            j = order[b * WIDTH + lane]
            for c in range(d):
                zt[b, c, lane] = z[j, c] * power


@jitted(fastmath=FLAGS)
def top_two(rows, norm_q, slack, zt, reach, m, runner_up, start, first, rest_q, rest_z):
    """Largest and second largest score of each query, and the position of the largest.

    Without runner_up the second is the right one only where it is within the slack of the largest.
    `start` is known to be below the scores that matter, `first`, `rest_q` and `rest_z` say when a
    score is given up before it is whole (`tile.scores`); they are for a search without runner_up.
    """
    nq, d = rows.shape
    top = np.full(nq, -np.inf, zt.dtype)
    second = np.full(nq, -np.inf, zt.dtype)
    at = np.zeros(nq, np.intp)
    # of the queries that still travel: who they are, their rows, what a score must be above
    who, norm = np.zeros(CHUNK + ROWS, np.intp), np.zeros(CHUNK + ROWS)
    q, low = np.zeros((CHUNK + ROWS) * d, zt.dtype), np.zeros(CHUNK + ROWS, zt.dtype)
    rest = np.zeros(CHUNK + ROWS, zt.dtype)
    s = np.empty((ROWS, WIDTH), zt.dtype)
    for begin in range(0, nq, CHUNK):
        active = min(CHUNK, nq - begin)
        for r in range(active):
            i = begin + r
            who[r], norm[r], low[r], rest[r] = i, norm_q[i], start[i], rest_q[i]
            for c in range(d):
                q[r * d + c] = rows[i, c]
        _travel(
            q, who, norm, low, rest, active, zt, reach, m, first, rest_z, s, slack,
            runner_up, top, second, at,
        )  # fmt: skip
    return top, second, at


@jitted(fastmath=FLAGS)
def _travel(
    q, who, norm, low, rest, active, zt, reach, m, first, rest_z, s, slack,
    runner_up, top, second, at,
):  # fmt: skip
    """Take these queries from block to block, and fill their top, second and at."""
    d = len(q) // len(who)
    for b in range(len(reach)):
        if b > 0:
            active = _remaining(q, who, norm, low, rest, active, reach[b], d)
        if active == 0:
            break
        for r in range(0, active, ROWS):
            hits = scores(q, r, zt, b, s, d, low, first, rest, rest_z)
            for k in range(min(ROWS, active - r)):
                if (hits >> k) & 1:
                    i = who[r + k]
                    for lane in range(m - b * WIDTH, WIDTH):  # the last block may be short
                        s[k, lane] = -np.inf
                    x, y, lane = largest_two(s, k)
                    if x > top[i]:
                        second[i] = max(y, top[i])
                        top[i], at[i] = x, b * WIDTH + lane
                    else:
                        second[i] = max(x, second[i])
                    # the last term is more than what rounding to a low precision adds
                    floor = top[i] - slack[i] - 2.0**-22 * (abs(top[i]) + slack[i])
                    low[r + k] = min(second[i], floor) if runner_up else max(low[r + k], floor)


@jitted()
def _remaining(q, who, norm, low, rest, active, reach, d):
    """Replace queries that no key as long as `reach` satisfies by the last ones; how many are left.

    While they are few they travel on, which costs less than moving others."""
    done = 0
    for r in range(active):
        done += norm[r] * reach < low[r]
    if LAZY * done < active:
        return active
    r = 0
    while r < active:
        if norm[r] * reach < low[r]:
            active -= 1
            who[r], norm[r], low[r], rest[r] = who[active], norm[active], low[active], rest[active]
            for c in range(d):
                q[r * d + c] = q[active * d + c]
        else:
            r += 1
    return active


@jitted()
def _members(rows, norm_q, slack, top, zt, reach, m, runner_up):
    """Every (row, position) with score >= top - slack, and the largest score below that."""
    nq = len(rows)
    outside, counts = np.full(nq, -np.inf), np.empty(nq, np.intp)
    position, one = np.empty(4 * nq + m, np.intp), np.empty(m, np.intp)
    total = 0
    for i in range(nq):
        floor = top[i] - slack[i]
        counts[i], outside[i] = _listed(rows, i, norm_q[i], floor, zt, reach, m, runner_up, one)
        if total + counts[i] > len(position):
            position = np.concatenate((position, np.empty(len(position) + m, np.intp)))
        position[total : total + counts[i]] = one[: counts[i]]
        total += counts[i]
    return np.repeat(np.arange(nq), counts), position[:total], outside


@jitted(fastmath=FLAGS)
def _listed(rows, i, norm, floor, zt, reach, m, runner_up, out):
    """Positions of row i with score >= floor into out: how many, and the largest score below."""
    d, s = rows.shape[1], np.empty(WIDTH)
    count, outside = 0, -np.inf
    for b in range(len(reach)):
        if norm * reach[b] < (min(outside, floor) if runner_up else floor):
            break
        s[:] = 0.0
        for c in range(d):
            x, p = rows[i, c], (b * d + c) * WIDTH
            for j in range(WIDTH):
                s[j] += x * zt[p + j]
        for lane in range(min(WIDTH, m - b * WIDTH)):
            if s[lane] >= floor:
                out[count] = b * WIDTH + lane
                count += 1
            elif s[lane] > outside:
                outside = s[lane]
    return count, outside


@jitted()
def place(z, ids, limits, offsets, factor):
    """z[ids] = limits + factor offsets; assigning indexed rows in NumPy takes five times that."""
    for row in range(len(ids)):
        c = ids[row]
        for j in range(z.shape[1]):
            z[c, j] = limits[row, j] + factor * offsets[row, j]
