"""The passes of `search` in Triton: scores of tiles that never leave the chip.

A program takes ROWS queries against WIDTH keys at a time. The parts of queries and keys are halves
(float16), so their products are exact in float32 and only the sums round. Keys come by decreasing
norm; after each group of TILES tiles a program stops once no later key can matter to any of its
rows. Programs of the second grid axis share the groups of the same rows among them. LOOKS is how
many tiles of a row are looked at again: 1, or 2 where the runner-up is asked for.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def split(
    x, largest, halves, lengths, n, full,
    D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    THREE: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """Rows of float64 as halves and the squares of their lengths; see `Passes.split`.

    lengths (5, n): |y|^2, |h|^2, |l|^2, |y - h - l|^2 and the power. Halves are written through
    float32: what h and l leave is taken exactly, however they were rounded.
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < n
    c = tl.arange(0, WIDTH)
    top = tl.load(largest + tl.zeros([ROWS], tl.int32))
    if not TOGETHER:
        top = tl.zeros([ROWS], tl.float64)
        for start in range(0, D, WIDTH):
            at = inside[:, None] & (start + c < D)[None, :]
            v = tl.load(x + row[:, None] * D + (start + c)[None, :], mask=at, other=0.0)
            top = tl.maximum(top, tl.max(tl.abs(v), 1))
    exponent = ((top.to(tl.int64, bitcast=True) >> 52) & 2047) - 1022
    exponent = tl.where(top == 0.0, 0, tl.minimum(tl.maximum(exponent, -1000), 1000))
    power = ((1023 - exponent) << 52).to(tl.float64, bitcast=True)
    all_ = tl.zeros([ROWS], tl.float64)
    head, below, left = all_, all_, all_
    for start in range(0, D, WIDTH):
        at = inside[:, None] & (start + c < D)[None, :]
        v = tl.load(x + row[:, None] * D + (start + c)[None, :], mask=at, other=0.0)
        v = v * power[:, None]
        all_ += tl.sum(v * v, 1)
        h = v.to(tl.float32).to(tl.float16)
        whole = h.to(tl.float64)
        head += tl.sum(whole * whole, 1)
        v = v - whole
        to = halves + row[:, None] * full + (start + c)[None, :]
        tl.store(to, h, mask=at)
        if THREE:
            more = v.to(tl.float32).to(tl.float16)
            whole = more.to(tl.float64)
            below += tl.sum(whole * whole, 1)
            v = v - whole
            if TOGETHER:
                tl.store(to + D, more, mask=at)
                tl.store(to + 2 * D, h, mask=at)
            else:
                tl.store(to + D, h, mask=at)
                tl.store(to + 2 * D, more, mask=at)
        left += tl.sum(v * v, 1)
    tl.store(lengths + row, all_, mask=inside)
    tl.store(lengths + n + row, head, mask=inside)
    tl.store(lengths + 2 * n + row, below, mask=inside)
    tl.store(lengths + 3 * n + row, left, mask=inside)
    tl.store(lengths + 4 * n + row, power, mask=inside)


@triton.jit
def _scores(q, z, a, row, key, nq, DEPTH: tl.constexpr, PARTS: tl.constexpr):
    """<q_i, z_j> of a tile; the row of queries is `a` when it fits, read again when it does not."""
    c = tl.arange(0, DEPTH)
    if PARTS == 1:
        b = tl.load(z + key[None, :] * DEPTH + c[:, None])
        s = tl.dot(a, b)
    else:
        s = tl.zeros([row.shape[0], key.shape[0]], tl.float32)
        for part in range(PARTS):
            at = part * DEPTH + c
            x = tl.load(
                q + row[:, None] * (PARTS * DEPTH) + at[None, :],
                mask=(row < nq)[:, None],
                other=0.0,
            )
            b = tl.load(z + key[None, :] * (PARTS * DEPTH) + at[:, None])
            s = tl.dot(x, b, s)
    return s


@triton.jit
def row_max(
    q, z, length, width, ceiling, reach, out, tiles, nq, groups,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, TILES: tl.constexpr,
    DEPTH: tl.constexpr, PARTS: tl.constexpr, LOOKS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """The LOOKS + 1 largest maxima of a tile per row, and the tiles of the first LOOKS of them.

    CAPPED counts only scores below ceiling_i. out (splits, LOOKS + 1, nq), tiles (splits, 2, nq).
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < nq
    c = tl.arange(0, DEPTH)
    a = tl.load(q + row[:, None] * (PARTS * DEPTH) + c[None, :], mask=inside[:, None], other=0.0)
    size = tl.load(length + row, mask=inside, other=0.0)
    wide = tl.load(width + row, mask=inside, other=float("-inf"))  # rows outside never ask for more
    cap = tl.load(ceiling + row, mask=inside, other=float("inf"))
    best = tl.where(inside, float("-inf"), 0.0)
    second = best
    third = best
    at = tl.full([ROWS], -1, tl.int32)
    other = at
    group = tl.program_id(1)
    more = group < groups
    while more:
        for t in range(TILES):
            tile = group * TILES + t
            key = (tile * WIDTH + tl.arange(0, WIDTH)).to(tl.int64)
            s = _scores(q, z, a, row, key, nq, DEPTH, PARTS)
            if CAPPED:
                s = tl.where(s < cap[:, None], s, float("-inf"))
            x = tl.max(s, 1)
            if LOOKS == 2:
                third = tl.maximum(third, tl.minimum(second, x))
                other = tl.where(x > best, at, tl.where(x > second, tile, other))
            second = tl.maximum(second, tl.minimum(best, x))
            at = tl.where(x > best, tile, at)
            best = tl.maximum(best, x)
        group += tl.num_programs(1)
        far = tl.load(reach + group, mask=group < groups, other=0.0)
        known = second if LOOKS == 2 else best
        wanted = tl.where(size * far >= known - wide, 1, 0)
        more = (tl.max(wanted, 0) > 0) & (group < groups)
    first = tl.program_id(1).to(tl.int64) * (LOOKS + 1)
    tl.store(out + first * nq + row, best, mask=inside)
    tl.store(out + (first + 1) * nq + row, second, mask=inside)
    if LOOKS == 2:
        tl.store(out + (first + 2) * nq + row, third, mask=inside)
    first = tl.program_id(1).to(tl.int64) * LOOKS
    tl.store(tiles + first * nq + row, at, mask=inside)
    if LOOKS == 2:
        tl.store(tiles + (first + 1) * nq + row, other, mask=inside)


@triton.jit
def inspect(
    q, z, tiles, ceiling, known, wide, pairs, total, left, nq, m, room,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr, LOOKS: tl.constexpr,
):  # fmt: skip
    """One row against its best tiles: lists what a whole pass would, or says that it may not.

    known (LOOKS, nq) are the maxima of the tiles after the first. left_i = 1 where a key of a tile
    not looked at here may be wanted.
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, LOOKS * WIDTH)
    tile = tl.load(tiles + row)
    if LOOKS == 2:
        tile = tl.where(place < WIDTH, tile, tl.load(tiles + nq + row))
    key = (tile * WIDTH + place % WIDTH).to(tl.int64)
    there = (key >= 0) & (key < m)
    c = tl.arange(0, DEPTH)
    s = tl.zeros([LOOKS * WIDTH], tl.float32)
    for part in range(PARTS):
        deep = part * DEPTH + c
        a = tl.load(q + row * (PARTS * DEPTH) + deep).to(tl.float32)
        b = tl.load(
            z + key[:, None] * (PARTS * DEPTH) + deep[None, :], mask=there[:, None], other=0.0
        )
        s += tl.sum(b.to(tl.float32) * a[None, :], 1)
    s = tl.where(there, s, float("-inf"))
    floor = tl.load(ceiling + row)
    nearest = tl.load(known + row)
    if LOOKS == 2:
        # tied with a key of the second tile: the runner-up may be anywhere
        open_ = tl.where(nearest >= floor, 1, 0)
        last = tl.load(known + nq + row)
        below = tl.max(tl.where(s < floor, s, float("-inf")), 0)
        open_ = tl.where((below == float("-inf")) & (last > float("-inf")), 1, open_)
        floor = tl.where(below == float("-inf"), floor, below) - tl.load(wide + row)
        open_ = tl.where(last >= floor, 1, open_)
    else:
        open_ = tl.where(nearest >= floor, 1, 0)
    tl.store(left + row, open_)
    hit = (s >= tl.where(open_ > 0, float("inf"), floor)) & there
    slot = tl.atomic_add(total + tl.zeros([LOOKS * WIDTH], tl.int32), 1, mask=hit)
    tl.store(pairs + slot, row * m + key, mask=hit & (slot < room))


@triton.jit
def collect(
    q, z, length, floor, error, reach, pairs, total, nq, m, room, groups,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, TILES: tl.constexpr,
    DEPTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """pairs[...] = i m + j for every score >= floor_i; total counts them, also beyond `room`."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < nq
    c = tl.arange(0, DEPTH)
    a = tl.load(q + row[:, None] * (PARTS * DEPTH) + c[None, :], mask=inside[:, None], other=0.0)
    size = tl.load(length + row, mask=inside, other=0.0)
    low = tl.load(floor + row, mask=inside, other=float("inf"))
    err = tl.load(error + row, mask=inside, other=0.0)
    group = tl.program_id(1)
    far = tl.load(reach + group, mask=group < groups, other=0.0)
    more = (tl.max(tl.where(size * far + err >= low, 1, 0), 0) > 0) & (group < groups)
    while more:
        for t in range(TILES):
            key = ((group * TILES + t) * WIDTH + tl.arange(0, WIDTH)).to(tl.int64)
            s = _scores(q, z, a, row, key, nq, DEPTH, PARTS)
            highest = tl.max(s, 1)
            if tl.max(tl.where(highest >= low, 1, 0), 0) > 0:
                hit = (s >= low[:, None]) & (key < m)[None, :]
                slot = tl.atomic_add(total + tl.zeros([ROWS, WIDTH], tl.int32), 1, mask=hit)
                tl.store(pairs + slot, row[:, None] * m + key[None, :], mask=hit & (slot < room))
        group += tl.num_programs(1)
        far = tl.load(reach + group, mask=group < groups, other=0.0)
        more = (tl.max(tl.where(size * far + err >= low, 1, 0), 0) > 0) & (group < groups)
