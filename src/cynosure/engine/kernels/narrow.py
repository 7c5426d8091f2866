"""Two precisions, many coordinates: float32 decides the rows it can prove, float64 the others.

Rows are scaled below 1 by powers of two and rounded to float32: a vector register holds twice as
many scores. A computed score is within 1.01 (d + 2) 2^-24 |q| |z| + d 2^-120 of the exact one, in
whichever order it was summed (docs/mathematics.md C8 iv). So the search of `pruned`, with twice
that added to the slack, proves C_i wherever it finds one key. What it leaves, and everything where
a first sample leaves much, is searched in float64. From 32 coordinates on most scores are given up
after some of them: the others add at most the product of two norms.
"""

from __future__ import annotations

import math

import numpy as np

from ..._compiled import jitted, load
from .contract import Candidates, Floats, assemble
from .pruned import blocks, by_norm, pruned_candidates, reaches, top_two, upper_norms, widened
from .tile import WIDTH

LONG = 32  # coordinates of which some may be enough
SAMPLE = 512  # rows that tell what the others will be like
UNIT = 2.0**-24  # unit roundoff of float32


def warm() -> None:
    load("engine.kernels.pruned")
    for d in (8, LONG):
        z = np.random.default_rng(0).normal(size=(9, d))
        narrow_candidates(z, z, np.full(9, 1e-12))


def score_error(norm_q: Floats, radius: float, d: int) -> Floats:
    """Bound on |computed - exact| of the float32 scores of queries and keys scaled below 1."""
    return (1.01 * (d + 2) * UNIT * radius) * norm_q + d * 2.0**-120


def narrow_candidates(q: Floats, z: Floats, slack: Floats) -> Candidates:
    """Keys within slack of the best computed score, the contract of `kernels.candidates`."""
    (nq, d), m = q.shape, len(z)
    norm_z = upper_norms(z)
    radius = norm_z.max()
    order = by_norm(norm_z)
    power = below_one(np.abs(z).max())
    keys = blocks(z, order, power, np.float32).reshape(-1)
    rows, norm_q, powers = narrowed(q)
    # slack is in the units of q and z; norms of q are of the scaled rows, exactly so
    wide = widened(slack, norm_q / powers, radius, d) * (1 + 1e-7)
    wide = wide * powers * power + 2.0 * score_error(norm_q, radius * power, d)
    reach = reaches(norm_z, order) * power
    start, first = start_of(rows, z, power, wide), enough(d)
    rest_q = above(upper_norms(q[:, first:]) * powers)
    rest_z = np.zeros(len(reach) * WIDTH, np.float32)
    rest_z[:m] = above(upper_norms(z[:, first:])[order] * power)
    best, left = np.empty(nq, np.intp), np.empty(nq, bool)
    for part in (slice(0, SAMPLE), slice(SAMPLE, nq)):
        args = rows[part], norm_q[part], wide[part], keys, reach, m, False
        top, second, at = top_two(*args, start[part], first, rest_q[part], rest_z)
        best[part] = order[at]
        left[part] = second >= top - wide[part]
        if 2 * np.count_nonzero(left[:SAMPLE]) > len(left[:SAMPLE]):
            return pruned_candidates(q, z, slack)  # ties everywhere: do not look twice
    again = np.flatnonzero(left)
    row, member = np.empty(0, np.intp), np.empty(0, np.intp)
    if len(again):
        found = pruned_candidates(q[again], z, slack[again])
        best[again] = found.best
        row, member = np.repeat(again, np.diff(found.indptr)), found.indices
    return assemble(best, m, again, row, member, np.empty(0))


def start_of(rows: np.ndarray, z: Floats, power: float, wide: Floats) -> Floats:
    """What every score that matters is above, given the scaled queries: -inf if nothing is known.

    With a key for each query, as where all tokens search, it is the score of the query's own.
    """
    if len(rows) != len(z):
        return np.full(len(rows), -np.inf)
    return np.einsum("ic,ic->i", rows, z) * power - 2.0 * wide


def enough(d: int) -> int:
    """Coordinates after which most scores are seen to be too small: 4 sqrt d, by measurement."""
    return d if d < LONG else 4 * math.isqrt(d)


def above(x: Floats) -> np.ndarray:
    """x in float32 and so much larger that products of two such, rounded, are not too small."""
    return (x * (1.0 + 2.0**-20)).astype(np.float32)


@jitted()
def below_one(largest):
    """The power of two that brings a number below 1 and, unless it is tiny, not below 1/2."""
    return math.ldexp(1.0, -max(math.frexp(largest)[1], -1000))


@jitted()
def narrowed(x):
    """Rows scaled by powers of two and rounded to float32, their norms upwards, and the powers."""
    n, d = x.shape
    rows = np.zeros((n, d), np.float32)
    norm, powers = np.empty(n), np.empty(n)
    up = 1.0 + (d + 6) * 2.0**-53
    for i in range(n):
        largest = 0.0
        for c in range(d):
            largest = max(largest, abs(x[i, c]))
        power = below_one(largest)
        total = 0.0
        for c in range(d):
            scaled = x[i, c] * power
            rows[i, c] = scaled
            total += scaled * scaled
        # squares that underflow are less than d 2^-1022 together
        norm[i] = up * np.sqrt(total) + 2.0**-500
        powers[i] = power
    return rows, norm, powers
