"""Tensors where they are: scores in halves with a proved bound, float64 for what that leaves.

Queries and keys are split into float16 parts, x = h + l + rest, and <q, z> is taken as
<h_q, h_z> + <h_q, l_z> + <l_q, h_z> (for many coordinates as <h_q, h_z> alone) with sums in
float32. The distance to the exact score is bounded row by row from the very parts that are used
(docs/mathematics.md C8 iii). One pass over tiles finds the best tiles of each row; where these hold
all that is within the bound of the best, they are looked at again, otherwise the row goes through
all tiles once more. The pairs that come out are scored in float64.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ..kernels.contract import Candidates, U, joined
from .passes import SPLIT, TINY, UP, WIDTH, Parts, Passes, Task, passes_for

ADDEND = 2.0**-22  # error per addend of a tile's sums, in units of the sum of magnitudes
MOST_PAIRS = 2**27  # listed at once; more of them are listed for fewer rows at a time
MOST_NUMBERS = 2**26  # float64 numbers gathered at once to score pairs again


class Counts(NamedTuple):
    """What became of the rows of one search."""

    rows: int
    again: int  # went through all tiles a second time
    pairs: int  # scored in float64
    several: int  # have more than one key within their slack: integers decide


def device_candidates(
    q: Any, z: Any, slack: Any, *, runner_up: bool = False, passes: Passes | None = None
) -> Candidates:
    """The contract of `kernels.candidates` for float64 tensors on one device; NumPy comes back."""
    return counted_candidates(q, z, slack, runner_up=runner_up, passes=passes)[0]


def counted_candidates(
    q: Any, z: Any, slack: Any, *, runner_up: bool = False, passes: Passes | None = None
) -> tuple[Candidates, Counts]:
    """`device_candidates`, and what became of the rows; in two halves where memory is short."""
    import torch

    passes = passes or passes_for(q)
    try:
        return _counted(q, z, slack, runner_up, passes)
    except torch.cuda.OutOfMemoryError:
        if len(q) == 1:
            room = f"the device has no room to search {len(z)} tokens of d = {z.shape[1]}"
            advice = "free some of its memory, or move the tokens to the CPU"
            raise MemoryError(f"{room}; {advice}") from None
    # outside of the handler, which keeps the tensors of the failed attempt alive
    torch.cuda.empty_cache()
    half = -(-len(q) // 2)
    parts = [
        counted_candidates(x, z, s, runner_up=runner_up, passes=passes)
        for x, s in zip(q.split(half), slack.split(half), strict=True)
    ]
    (one, many), (two, more) = parts
    return joined([one, two]), Counts(*(a + b for a, b in zip(many, more, strict=True)))


def _counted(
    q: Any, z: Any, slack: Any, runner_up: bool, passes: Passes
) -> tuple[Candidates, Counts]:
    import torch

    nq, d = q.shape
    keys, queries = passes.split(z, together=True), passes.split(q, together=False)
    order = torch.argsort(keys.norm, descending=True)
    largest = Largest.of(keys)
    task, error = _task(queries, keys, order), score_error(queries, largest, d)
    size = queries.norm * largest.norm
    scaled = slack * (queries.power * largest.power) + 4 * (d + 2) * U * size + TINY
    wide = UP * 2 * error
    width = UP * scaled + wide
    looks = 2 if runner_up else 1
    # 2^-20: float32 rounds where a pass compares
    found, tiles = passes.maxima(task, _up(width + 2.0**-20 * size), None, looks)
    floor = _down(found[0].double() - width)
    room = min(4 * nq, MOST_PAIRS)
    part = passes.inspect(task, tiles, floor, found[1:], _up(wide), room)
    if part.total > room:
        part = passes.inspect(task, tiles, floor, found[1:], _up(wide), part.total)
    pairs, rows = part.pairs[: part.total], torch.nonzero(part.left)[:, 0]
    if len(rows):
        lowest = floor[rows]
        if runner_up:
            narrow = _up(wide + 2.0**-20 * size)[rows]
            below = passes.maxima(task.of(rows), narrow, lowest, 1)[0][0]
            # nothing below: every key is at the floor, or was before another pass rounded it
            lowest = torch.where(torch.isinf(below), lowest, below).double() - wide[rows]
            lowest = _down(lowest)
        more = _listed(passes, task.of(rows), lowest, _up(error[rows]), rows)
        pairs = torch.cat((pairs, more))
    if len(pairs) == nq and not runner_up:  # one each: no row lost its best key
        answer = _alone(pairs, order)
    else:
        radius = largest.norm / largest.power
        slack = slack + (4 * (d + 2) * U * radius) * (queries.norm / queries.power) + d * 2.0**-1070
        answer = _decided(pairs, order, q, z, slack, runner_up)
    several = int((np.diff(answer.indptr) > 1).sum())
    return answer, Counts(nq, len(rows), len(pairs), several)


class Largest(NamedTuple):
    """The largest of each length among the keys, on the host."""

    norm: float
    head: float
    low: float
    rest: float
    power: float

    @classmethod
    def of(cls, keys: Parts) -> Largest:
        import torch

        # all keys have one power; one transfer for everything
        return cls(*torch.stack(keys[1:]).amax(dim=1).tolist())


def score_error(queries: Parts, keys: Largest, d: int) -> Any:
    """Bound on |computed - exact| of the scores of each row, in scaled units.

    |r_q| |z| + (|h_q| + |l_q|) |r_z| + |l_q| |l_z|, and the rounding of sums of magnitude
    |h_q| (|h_z| + |l_z|) + |l_q| |h_z|, collected by lengths of the query.
    """
    rounding = (3 * d if d <= SPLIT else d) * ADDEND
    by_head = keys.rest + rounding * (keys.head + keys.low)
    error = queries.head * (UP * by_head) + queries.rest * (UP * keys.norm)
    if d <= SPLIT:
        error = error + queries.low * (UP * (keys.rest + keys.low + rounding * keys.head))
    return error


def _task(queries: Parts, keys: Parts, order: Any) -> Task:
    """Queries and ordered keys, their number rounded up to what tiles need."""
    import torch

    m = len(order)
    tiles = min(max(m // (16 * WIDTH), 2), 32)
    tiles = 1 << (tiles.bit_length() - 1)
    groups = -(-m // (tiles * WIDTH))
    # the last key again, as often as needed: it changes no maximum and is never listed
    padded = torch.cat((order, order[-1:].expand(groups * tiles * WIDTH - m)))
    reach = keys.norm[padded[:: tiles * WIDTH]]
    length = queries.norm * (1 + 2.0**-20)  # and the rounding of the product with a norm
    return Task(queries.halves, keys.halves[padded], _up(length), _up(reach), m, tiles)


def _up(x: Any) -> Any:
    """The next float32 above."""
    import torch

    return torch.nextafter(x.float(), _constant(float("inf"), x.device))


def _down(x: Any) -> Any:
    """The next float32 below."""
    import torch

    return torch.nextafter(x.float(), _constant(float("-inf"), x.device))


@functools.cache
def _constant(value: float, device: Any) -> Any:
    """One number on a device, sent once."""
    import torch

    return torch.tensor(value, device=device)


def _listed(passes: Passes, task: Task, floor: Any, error: Any, names: Any) -> Any:
    """All pairs of these rows with a score of at least the floor; rows by their names."""
    import torch

    nq = len(names)
    room = min(8 * nq + 2**16, MOST_PAIRS)
    pairs, total = passes.collect(task, floor, error, room)
    if total > MOST_PAIRS and nq > 1:
        halves = torch.arange(nq, device=names.device).split(-(-nq // 2))
        parts = [_listed(passes, task.of(h), floor[h], error[h], names[h]) for h in halves]
        return torch.cat(parts)
    if total > room:
        pairs, total = passes.collect(task, floor, error, total)
    pairs = pairs[:total]
    return names[torch.div(pairs, task.m, rounding_mode="floor")] * task.m + pairs % task.m


def _alone(pairs: Any, order: Any) -> Candidates:
    """The answer when every row has one pair: no score is needed."""
    import torch

    m, nq = len(order), len(pairs)
    best = torch.empty(nq, dtype=torch.int64, device=pairs.device)
    best[torch.div(pairs, m, rounding_mode="floor")] = order[pairs % m]
    found = best.cpu().numpy()
    return Candidates(found, np.arange(nq + 1), found.copy(), np.empty(0))


def _decided(pairs: Any, order: Any, q: Any, z: Any, slack: Any, runner_up: bool) -> Candidates:
    """The rows of float64 from every pair that the bound could not exclude."""
    import torch

    nq, m = len(q), len(z)
    row = torch.div(pairs, m, rounding_mode="floor")
    pairs = torch.sort(row * m + order[pairs % m]).values  # by row, then by key
    row = torch.div(pairs, m, rounding_mode="floor")
    key = pairs - row * m
    score = _scored(q, z, row, key)
    top = torch.full((nq,), -torch.inf, dtype=torch.float64, device=q.device)
    top.scatter_reduce_(0, row, score, "amax")
    highest = top[row]
    near = score >= highest - slack[row]
    best = torch.full((nq,), m, dtype=torch.int64, device=q.device)
    best.scatter_reduce_(0, row, torch.where(score == highest, key, m), "amin")
    indptr = torch.zeros(nq + 1, dtype=torch.int64, device=q.device)
    indptr.index_add_(0, row + 1, near.long())
    gap = torch.empty(0, dtype=torch.float64)
    if runner_up:
        outside = torch.full_like(top, -torch.inf)
        outside.scatter_reduce_(0, row, torch.where(near, -torch.inf, score), "amax")
        gap = top - outside
    found = (best, torch.cumsum(indptr, 0), key[near], gap)
    return Candidates(*(x.cpu().numpy() for x in found))


def _scored(q: Any, z: Any, row: Any, key: Any) -> Any:
    """<q_row, z_key> in float64, in blocks of pairs."""
    import torch

    block = max(MOST_NUMBERS // q.shape[1], 1)
    pairs = zip(row.split(block), key.split(block), strict=True)
    return torch.cat([(q[i] * z[j]).sum(dim=1) for i, j in pairs])
