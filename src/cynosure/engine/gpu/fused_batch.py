"""Many small configurations in Triton: a program carries one of them through all its layers.

What `batch` does on a processor, operation for operation and with the same bound: queries, the two
largest float64 scores of every token still searched, then leaders, followers of leaders in closed
form, and steps of the others. Equal tokens tie, so a configuration with copies is unsure here.
The token arrays are work, of one program each; a barrier stands wherever one thread reads what
another wrote.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Numbers of float64 come in an array: as arguments Triton takes them in float32.
NORM_A, ETA, TINY, LOW, HIGH = (tl.constexpr(x) for x in range(5))
ROUNDING, ERROR, UP, SMALL, LARGE = (tl.constexpr(x) for x in range(5, 10))


@triton.jit
def _norms(z, row, there, facts, D: tl.constexpr):
    """|z_i| rounded up, and the largest |coordinate|; as `batch._norm`."""
    total = tl.zeros(row.shape, tl.float64)
    largest = tl.zeros(row.shape, tl.float64)
    for c in range(D):
        x = tl.abs(tl.load(z + row * D + c, mask=there, other=0.0))
        total += x * x
        largest = tl.maximum(largest, x)
    extreme = (largest < tl.load(facts + SMALL)) | (largest > tl.load(facts + LARGE))
    return tl.where(extreme, largest * D, tl.sqrt(total) * tl.load(facts + UP)), largest


@triton.jit
def carry(
    z, mask, A, work, query, offset, target, out, born, settled, leader, unsure, powers, saves,
    facts, n, count, last,
    N: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """Layers 0..last of configuration program_id(0); saves (count,) are written to out."""
    b = tl.program_id(0).to(tl.int64)
    many = tl.num_programs(0).to(tl.int64)
    z += b * n * D
    work += b * n * D
    query += b * n * D
    offset += b * n * D
    target += b * n
    mask += b * n
    born += b * n
    settled += b * n
    leader += b * n
    row = tl.arange(0, N)
    inside = row < n
    real = tl.load(mask + row, mask=inside, other=0) != 0
    norm, largest = _norms(z, row, real, facts, D)
    size, radius = tl.max(largest, 0), tl.max(norm, 0)
    for c in range(D):
        tl.store(work + row * D + c, tl.load(z + row * D + c, mask=inside), mask=inside)
    nothing = tl.full([N], -1, tl.int32)
    tl.store(born + row, nothing, mask=inside)
    tl.store(settled + row, nothing, mask=inside)
    tl.store(leader + row, nothing, mask=inside)
    tokens = tl.sum(real.to(tl.int32), 0)
    moderate = (size > tl.load(facts + LOW)) & (size < tl.load(facts + HIGH))
    doubt = tl.where((size == 0.0) | moderate, 0, 1)
    norm_A, eta, tiny = tl.load(facts + NORM_A), tl.load(facts + ETA), tl.load(facts + TINY)
    rounding = tl.load(facts + ROUNDING)
    k = 0
    at = 0
    go = (doubt == 0) & (tokens > 0)
    while go:
        tl.debug_barrier()
        if FORM:
            for c in range(D):
                x = tl.zeros([N], tl.float64)
                for y in range(D):
                    x += tl.load(A + c * D + y) * tl.load(work + row * D + y, mask=real, other=0.0)
                tl.store(query + row * D + c, x, mask=inside)
            tl.debug_barrier()
        e = k * tl.load(facts + ERROR) * size
        for start in range(0, N, ROWS):
            i = start + tl.arange(0, ROWS)
            asked = (tl.load(mask + i, mask=i < n, other=0) != 0) & (
                tl.load(settled + i, mask=i < n, other=0) < 0
            )
            if tl.max(asked.to(tl.int32), 0) > 0:
                best = tl.full([ROWS, KEYS], float("-inf"), tl.float64)
                second = best
                who = tl.full([ROWS, KEYS], 0, tl.int32)
                for first in range(0, N, KEYS):
                    j = first + tl.arange(0, KEYS)
                    there = tl.load(mask + j, mask=j < n, other=0) != 0
                    s = tl.zeros([ROWS, KEYS], tl.float64)
                    for c in range(D):
                        a = tl.load(query + i * D + c, mask=asked, other=0.0)
                        x = tl.load(work + j * D + c, mask=there, other=0.0)
                        s += a[:, None] * x[None, :]
                    s = tl.where(there[None, :], s, float("-inf"))
                    second = tl.maximum(second, tl.minimum(best, s))
                    who = tl.where(s > best, j[None, :], who)
                    best = tl.maximum(best, s)
                top = tl.max(best, 1)
                lane = tl.argmax(best, 1)
                chosen = tl.arange(0, KEYS)[None, :] == lane[:, None]
                next_ = tl.max(tl.where(chosen, second, best), 1)
                to = tl.sum(tl.where(chosen, who, 0), 1)
                own, _ = _norms(work, i, asked, facts, D)
                drift = (own + radius) * e + e * e
                slack = tiny + norm_A * (rounding * own * radius + drift + drift)
                close = asked & (next_ >= top - slack)
                doubt = tl.maximum(doubt, tl.max(close.to(tl.int32), 0))
                tl.store(target + i, to, mask=asked)
        tl.debug_barrier()
        active = real & (tl.load(settled + row, mask=inside, other=0) < 0)
        to = tl.load(target + row, mask=active, other=0)
        leads = active & (to == row)
        now = tl.zeros([N], tl.int32) + k
        tl.debug_barrier()
        tl.store(born + row, now, mask=leads)
        tl.store(settled + row, now, mask=leads)
        tl.store(leader + row, row, mask=leads)
        tl.debug_barrier()
        led = tl.load(leader + to, mask=active, other=-1) == to
        follows = active & (to != row) & led
        tl.debug_barrier()
        tl.store(settled + row, now, mask=follows)
        tl.store(leader + row, to, mask=follows)
        for c in range(D):
            x = tl.load(work + row * D + c, mask=follows, other=0.0)
            y = tl.load(work + to * D + c, mask=follows, other=0.0)
            tl.store(offset + row * D + c, x - y, mask=follows)
        if tl.load(saves + at) == k:
            place = out + (at * many + b) * n * D
            for c in range(D):
                tl.store(place + row * D + c, tl.load(work + row * D + c, mask=inside), mask=inside)
            at += 1
        moving = active & (to != row) & (led == 0)
        go = (doubt == 0) & (k < last) & (tl.max(moving.to(tl.int32), 0) > 0)
        if go:
            k += 1
            tl.debug_barrier()
            since = tl.load(settled + row, mask=inside, other=0)
            by = tl.load(leader + row, mask=inside, other=-1)
            closed = real & (since >= 0) & (by != row)
            power = tl.load(powers + (k - since), mask=closed, other=0.0)
            goal = tl.where(moving, to, by)
            for c in range(D):
                x = tl.load(work + row * D + c, mask=inside, other=0.0)
                y = tl.load(work + goal * D + c, mask=moving | closed, other=0.0)
                f = tl.load(offset + row * D + c, mask=closed, other=0.0)
                x = tl.where(moving, x + eta * (y - x), tl.where(closed, y + power * f, x))
                tl.debug_barrier()
                tl.store(work + row * D + c, x, mask=moving | closed)
    # settled before the last layer asked for: closed forms lead to it
    tl.debug_barrier()
    since = tl.load(settled + row, mask=inside, other=0)
    by = tl.load(leader + row, mask=inside, other=-1)
    closed = real & (since >= 0) & (by != row)
    while at < count:
        layer = tl.load(saves + at).to(tl.int32)
        power = tl.load(powers + (layer - since), mask=closed & (doubt == 0), other=0.0)
        place = out + (at * many + b) * n * D
        for c in range(D):
            x = tl.load(work + row * D + c, mask=inside, other=0.0)
            y = tl.load(work + by * D + c, mask=closed, other=0.0)
            f = tl.load(offset + row * D + c, mask=closed, other=0.0)
            tl.store(place + row * D + c, tl.where(closed, y + power * f, x), mask=inside)
        at += 1
    tl.store(unsure + b, doubt.to(tl.int8))
