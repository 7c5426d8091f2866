"""Many small configurations, all their layers in one compiled call.

One configuration at a time: tokens become value classes in (nearly) decreasing norm; at each layer
the two largest scores of every class still searched decide whom it follows, provided they differ
by more than twice the bound on a score (docs/mathematics.md C8: |computed - exact| <=
(2 d + 4) u |A| |z_i| R + |A| ((|z_i| + R) e + e^2), e the distance to the exact tokens; R and |A|
must be in [2^-100, 2^100]). A leader, C_i = {i}, stays; a class with C_i = {l}, l a leader, is
z_l + rho^j (z_i - z_l) from then on; the others step. A decision inside the bound stops the
configuration: the caller takes it up in exact arithmetic.
"""

from __future__ import annotations

import numpy as np

from ..._compiled import jitted
from .contract import BatchRun, Floats, Indices
from .pruned import FLAGS

LANES = 16  # queries side by side in vector registers
STRIDE = 16  # keys between two looks at what is still needed
LOW, HIGH = 2.0**-100, 2.0**100  # sizes that this kernel answers for; others are left to the caller
TINY = 2.0**-940  # d TINY bounds what underflow does to a score: 2^-1075 times sizes up to 2^100


def warm() -> None:
    z, mask = np.eye(3)[None], np.ones((1, 3), bool)
    for A in (None, np.eye(3)):
        run_batch(z, mask, A, 0.5, 0.5, np.array([1]))


def run_batch(
    z: Floats, mask: np.ndarray, A: Floats | None, eta: float, rho: float, saves: Indices
) -> BatchRun:
    """Carry z (B, n, d) through the layers up to saves[-1]; the contract of `kernels.run_batch`."""
    b, n, d = z.shape
    out = np.empty((len(saves), b, n, d))
    born, settled_at, leader = (np.full((b, n), -1, np.intp) for _ in range(3))
    unsure = np.zeros(b, bool)
    # Python's power, layer by layer, as the walk of a single configuration takes it
    powers = np.array([rho**k for k in range(int(saves[-1]) + 1)])
    norm_A = 1.0 if A is None else form_norm(A)
    rows = np.empty((0, 0)) if A is None else np.ascontiguousarray(A, dtype=np.float64)
    _run(z, mask, rows, norm_A, eta, powers, saves, out, born, settled_at, leader, unsure)
    return BatchRun(out, born, settled_at, leader, unsure)


def form_norm(A: Floats) -> float:
    """|A| rounded up, 0 for A = 0 alone. Trap: the squares of a form of 1e-200 are 0."""
    largest = float(np.abs(A).max())
    if largest == 0.0 or _extreme(largest):
        return largest  # either way no bound is needed: every score ties, or the caller decides
    return float(np.linalg.norm(A)) * (1 + 1e-12)


@jitted()
def _run(z, mask, A, norm_A, eta, powers, saves, out, born, settled_at, leader, unsure):
    nb, n, d = z.shape
    wide = (d + 3) // 4 * 4
    label, order = np.empty(n, np.intp), np.empty(n, np.intp)
    norm, raw, links = np.empty(n), np.empty(n), np.empty((4, 2 * n), np.intp)
    zc, offset, moved = np.zeros((n + 4, wide)), np.empty((n, d)), np.empty((n, d))
    q = np.zeros((n + LANES) * wide)
    room = n + LANES  # the last group of queries may be short
    since, to = np.empty(n, np.intp), np.empty(n, np.intp)
    active, closed, target = np.empty(n, np.intp), np.empty(n, np.intp), np.empty(room, np.intp)
    top, second, slack, norm_q = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
    reach, partial = np.empty(n // STRIDE + 1), np.zeros(4 * LANES)
    last = saves[-1]
    for b in range(nb):
        largest, tokens = _largest(z[b], mask[b])
        if tokens == 0:
            out[:, b] = z[b]
            continue
        if _extreme(largest) or _extreme(norm_A):
            unsure[b] = True
            continue
        m, radius = _classify(z[b], mask[b], label, order, norm, raw, links)
        _lay_out(z[b], order, norm, m, zc, reach)
        size = 0.0
        for c in range(m):
            for x in range(d):
                size = max(size, abs(zc[c, x]))
            active[c] = c
            since[c] = -1
        n_active, n_closed, row, k = m, 0, 0, 0
        while True:
            e = np.sqrt(d) * (k * 17 * 2.0**-53 * size)
            rounding = 2.0 * (2 * d + 4) + 4 * (d + 2)  # twice the bound, and what pruning needs
            each, fixed = rounding * 2.0**-53 * radius, 2.0 * e * (radius + e)
            if k == 0 and len(A) == 0:  # norms are known, classes are in order, nothing is missed
                for r in range(m):
                    at = r // LANES * LANES * wide + r % LANES
                    for x in range(d):
                        q[at + x * LANES] = zc[r, x]
                for r in range(m):
                    norm_q[r] = norm[r]
                    slack[r] = d * TINY + each * norm[r]
            else:
                for r in range(n_active):
                    _query(zc, active[r], A, d, r, q)
                    own = _norm(zc, active[r], d)
                    norm_q[r] = norm_A * own
                    slack[r] = d * TINY + norm_A * ((each + 2.0 * e) * own + fixed)
            _best_two(q, norm_q, slack, n_active, zc.reshape(-1), reach, m, wide, top, second,
                      target, partial)  # fmt: skip
            for r in range(n_active):
                unsure[b] |= second[r] >= top[r] - slack[r]
            if unsure[b]:
                break
            n_active, n_closed = _settle(
                zc, k, active, target, n_active, closed, n_closed, since, to, offset
            )
            if saves[row] == k:
                _write(out[row, b], z[b], label, zc)
                row += 1
            if k == last or n_active == 0:
                break
            k += 1
            _step(zc, moved, active, target, n_active, eta)
            for r in range(n_closed):
                c = closed[r]
                _approach(zc, c, to[c], offset, powers[k - since[c]])
            reach[:] = radius
        if unsure[b]:
            continue
        for later in range(row, len(saves)):
            for r in range(n_closed):
                c = closed[r]
                _approach(zc, c, to[c], offset, powers[saves[later] - since[c]])
            _write(out[later, b], z[b], label, zc)
        for i in range(n):
            c = label[i]
            if c >= 0 and since[c] >= 0:
                settled_at[b, i], leader[b, i] = since[c], order[to[c]]
                if to[c] == c:
                    born[b, i] = since[c]


@jitted()
def _settle(zc, k, active, target, n_active, closed, n_closed, since, to, offset):
    """Classes that follow themselves lead; those that follow a leader do so for ever.

    The others stay at the front of `active` and `target`; returns how many, and how many in closed
    form."""
    for r in range(n_active):
        if target[r] == active[r]:
            since[active[r]], to[active[r]] = k, active[r]
    left = 0
    for r in range(n_active):
        c, t = active[r], target[r]
        if t == c:
            continue
        if since[t] >= 0 and to[t] == t:
            since[c], to[c] = k, t
            closed[n_closed] = c
            n_closed += 1
            for x in range(offset.shape[1]):
                offset[c, x] = zc[c, x] - zc[t, x]
        else:
            active[left], target[left] = c, t
            left += 1
    return left, n_closed


@jitted()
def _extreme(size):
    """Infinite and NaN included."""
    return not (size == 0.0 or LOW < size < HIGH)


@jitted()
def _largest(z, mask):
    """The largest |coordinate| of the real tokens, and how many these are."""
    largest, tokens = 0.0, 0
    for i in range(z.shape[0]):
        if mask[i]:
            tokens += 1
            for c in range(z.shape[1]):
                largest = max(largest, abs(z[i, c]))
    return largest, tokens


@jitted()
def _classify(z, mask, label, order, norm, raw, links):
    """Value classes in nearly decreasing norm, by a bucket sort: label of each token (-1 padding),
    first token and norm (rounded up) of each class. Trap: norms index the buckets, so coordinates
    must have passed the test of `_largest`."""
    n, d = z.shape
    buckets = 2 * n
    head, start, after, place = links[0], links[1], links[2], links[3]
    radius = 0.0
    if d == 2:
        _plane_norms(z, raw)
    else:
        for i in range(n):
            raw[i] = _norm(z, i, d)
    for i in range(n):
        radius = max(radius, raw[i] if mask[i] else 0.0)
    head[:], start[:] = -1, 0
    graded = 1e-140 < radius < 1e140  # else the quotient overflows, and an index out of it is any
    scale = (buckets - 1) / radius if graded else 0.0
    for i in range(n):
        label[i] = -1
        if not mask[i]:
            continue
        bucket = buckets - 1 - int(raw[i] * scale) if graded else 0
        j = head[bucket]
        while j >= 0:
            if raw[j] == raw[i]:
                same = True
                for c in range(d):
                    if z[i, c] != z[j, c]:
                        same = False
                        break
                if same:
                    break
            j = after[j]
        label[i] = j
        if j < 0:
            label[i] = i
            place[i] = bucket
            after[i] = head[bucket]
            head[bucket] = i
            start[bucket] += 1
    m = 0
    for bucket in range(buckets):
        size = start[bucket]
        start[bucket] = m
        m += size
    for i in range(n):
        if label[i] == i:
            at = start[place[i]]
            start[place[i]] += 1
            place[i], order[at], norm[at] = at, i, raw[i]
    for i in range(n):
        if label[i] >= 0:
            label[i] = place[label[i]]
    return m, radius


@jitted()
def _norm(z, i, d):
    """|z_i| rounded up; plain order of operations, so equal rows have equal norms."""
    total, largest = 0.0, 0.0
    for c in range(d):
        x = abs(z[i, c])
        total += x * x
        largest = x if x > largest else largest
    if largest < 1e-140 or largest > 1e140:
        return largest * d
    return np.sqrt(total) * (1.0 + (d + 6) * 2.0**-53)


@jitted()
def _plane_norms(z, out):
    """`_norm` of all rows, the same operations without a branch."""
    up = 1.0 + (2 + 6) * 2.0**-53
    for i in range(len(out)):
        x, y = abs(z[i, 0]), abs(z[i, 1])
        largest = x if x > y else y
        plain = np.sqrt(x * x + y * y) * up
        out[i] = plain if 1e-140 <= largest <= 1e140 else largest * 2


@jitted()
def _lay_out(z, order, norm, m, zc, reach):
    """Rows of the classes, and the largest norm from every STRIDE-th class on."""
    d = z.shape[1]
    for c in range(m):
        for x in range(d):
            zc[c, x] = z[order[c], x]
    bound = 0.0
    for c in range(m - 1, -1, -1):
        bound = max(bound, norm[c])
        if c % STRIDE == 0:
            reach[c // STRIDE] = bound


@jitted()
def _query(zc, c, A, d, r, q):
    """Query r: A z_c, or z_c where A is empty, as lane r % LANES of its group."""
    wide = zc.shape[1]
    at = r // LANES * LANES * wide + r % LANES
    for i in range(d):
        if len(A) == 0:
            q[at + i * LANES] = zc[c, i]
        else:
            total = 0.0
            for x in range(d):
                total += A[i, x] * zc[c, x]
            q[at + i * LANES] = total


@jitted(fastmath=FLAGS)
def _best_two(q, norm_q, slack, nq, keys, reach, m, wide, top, second, at, partial):
    """Largest and second largest score of each query; keys that cannot matter are left out."""
    for start in range(0, nq, LANES):
        high, low, who = top[start:], second[start:], at[start:]
        for r in range(LANES):
            high[r], low[r], who[r] = -np.inf, -np.inf, 0
        queries = q[start * wide : (start + LANES) * wide]
        for j in range(0, m, 4):
            if j % STRIDE == 0 and j > 0:
                needed = False
                for r in range(start, min(start + LANES, nq)):
                    needed |= norm_q[r] * reach[j // STRIDE] >= top[r] - slack[r]
                if not needed:
                    break
            _four_keys(queries, keys, j, min(m - j, 4), wide, high, low, who, partial)


@jitted(fastmath=FLAGS)
def _four_keys(q, keys, j, count, wide, high, low, who, partial):
    """Show keys j..j+3 to all lanes; `partial` holds the sums over all but four coordinates."""
    p0 = j * wide
    p1, p2, p3 = p0 + wide, p0 + 2 * wide, p0 + 3 * wide
    if wide > 4:
        partial[:] = 0.0
    for g in range(0, wide - 4, 4):
        a0, a1, a2, a3 = keys[p0 + g], keys[p0 + g + 1], keys[p0 + g + 2], keys[p0 + g + 3]
        b0, b1, b2, b3 = keys[p1 + g], keys[p1 + g + 1], keys[p1 + g + 2], keys[p1 + g + 3]
        c0, c1, c2, c3 = keys[p2 + g], keys[p2 + g + 1], keys[p2 + g + 2], keys[p2 + g + 3]
        e0, e1, e2, e3 = keys[p3 + g], keys[p3 + g + 1], keys[p3 + g + 2], keys[p3 + g + 3]
        f = q[g * LANES : (g + 4) * LANES]
        for r in range(LANES):
            x0, x1, x2, x3 = f[r], f[r + LANES], f[r + 2 * LANES], f[r + 3 * LANES]
            partial[r] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
            partial[r + LANES] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
            partial[r + 2 * LANES] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
            partial[r + 3 * LANES] += e0 * x0 + e1 * x1 + e2 * x2 + e3 * x3
    g = wide - 4
    a0, a1, a2, a3 = keys[p0 + g], keys[p0 + g + 1], keys[p0 + g + 2], keys[p0 + g + 3]
    b0, b1, b2, b3 = keys[p1 + g], keys[p1 + g + 1], keys[p1 + g + 2], keys[p1 + g + 3]
    c0, c1, c2, c3 = keys[p2 + g], keys[p2 + g + 1], keys[p2 + g + 2], keys[p2 + g + 3]
    e0, e1, e2, e3 = keys[p3 + g], keys[p3 + g + 1], keys[p3 + g + 2], keys[p3 + g + 3]
    # lanes of keys that are not there (a last group of fewer than four) sink to -inf
    sink1 = 0.0 if count > 1 else -np.inf
    sink2 = 0.0 if count > 2 else -np.inf
    sink3 = 0.0 if count > 3 else -np.inf
    f = q[g * LANES : (g + 4) * LANES]
    for r in range(LANES):
        x0, x1, x2, x3 = f[r], f[r + LANES], f[r + 2 * LANES], f[r + 3 * LANES]
        top, next_, at = high[r], low[r], who[r]
        s = partial[r] + (a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3)
        under = top if s > top else s
        next_ = under if under > next_ else next_
        at = j if s > top else at
        top = s if s > top else top
        s = partial[r + LANES] + (b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3) + sink1
        under = top if s > top else s
        next_ = under if under > next_ else next_
        at = j + 1 if s > top else at
        top = s if s > top else top
        s = partial[r + 2 * LANES] + (c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3) + sink2
        under = top if s > top else s
        next_ = under if under > next_ else next_
        at = j + 2 if s > top else at
        top = s if s > top else top
        s = partial[r + 3 * LANES] + (e0 * x0 + e1 * x1 + e2 * x2 + e3 * x3) + sink3
        under = top if s > top else s
        next_ = under if under > next_ else next_
        at = j + 3 if s > top else at
        top = s if s > top else top
        high[r], low[r], who[r] = top, next_, at


@jitted()
def _step(zc, moved, active, target, n_active, eta):
    d = moved.shape[1]
    for r in range(n_active):
        c, t = active[r], target[r]
        for x in range(d):
            moved[r, x] = zc[c, x] + eta * (zc[t, x] - zc[c, x])
    for r in range(n_active):
        for x in range(d):
            zc[active[r], x] = moved[r, x]


@jitted()
def _approach(zc, c, limit, offset, power):
    for x in range(offset.shape[1]):
        zc[c, x] = zc[limit, x] + power * offset[c, x]


@jitted()
def _write(out, z, label, zc):
    n, d = z.shape
    for i in range(n):
        c = label[i]
        for x in range(d):
            out[i, x] = zc[c, x] if c >= 0 else z[i, x]
