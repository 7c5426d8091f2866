"""Three dimensions: the hull discards inner keys, cones of directions divide the rest.

1. Hull pre-filter. Keys extreme in a few dozen directions span a small polytope. A key whose ball
   of radius `depth` lies inside has <q, z> < max - depth |q| for every q: nobody's candidate when
   slack_i <= depth |q_i|. Qhull proposes the facets and is not trusted: see `_facets`.
2. Cones. Queries are grouped by the cell of a cube map, q = t (1, u, v) up to axes with t > 0 and
   (u, v) in a square. The score difference <q, z* - z> / t is affine in (u, v), so where it exceeds
   `depth` at the four corners z* beats z for the whole cell and z leaves the cell's list. Squares
   are quartered, each starting from its parent's list, until list or queries are few; then every
   remaining score is computed. On a sphere, where neither norms nor hulls discard anything, a list
   still shrinks with its cell.
Flat sets have no polytope of positive volume: they skip step 1, which only saves time.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .contract import Candidates, Floats, Indices, U, assemble
from .pruned import FLAGS, pruned_candidates, upper_norms, widened

COARSE = 1e-9  # a query with slack above COARSE |q| R is searched by pruning instead
DEPTH = 3e-9  # > sqrt(3) COARSE, since |q| <= sqrt(3) max |q_c|, with 1e-9 R to spare for rounding
DIRECTIONS = 64  # keys extreme in so many directions span the polytope of the pre-filter
SAMPLE = 4096  # keys among which these are sought
LEVELS = 10  # the finest squares have side 2^(1 - LEVELS)
SORTED = 12  # bits of a counting sort; two of them hold a face (3 bits) and a cell (2 LEVELS)
START, PREPARE, SEARCH = 2**21, 300, 1700  # cost: fixed, per key, per query, in pruned scores
QUERIES, LIST = 16, 16  # cells with as few queries, or as short a list, are searched densely


def spatial_candidates(
    q: Floats, z: Floats, slack: Floats, *, runner_up: bool = False
) -> Candidates:
    """Keys within slack of the best computed score, the contract of `kernels.candidates`."""
    nq, m = len(q), len(z)
    norm_q, radius = upper_norms(q), upper_norms(z).max()
    wide = widened(slack, norm_q, radius, 3)
    fine = wide <= COARSE * radius * norm_q  # a zero query takes every key
    ids, depth = np.flatnonzero(fine), DEPTH * radius
    best, top, second = np.empty(nq, np.intp), np.empty(nq), np.full(nq, -np.inf)
    code, order = _cells(q, ids)
    inner = inside_hull(z, DEPTH)
    outer = np.flatnonzero(~inner)
    rows, members = _cones(q, wide, code, order, z, outer, depth, runner_up, best, top, second)
    if not runner_up:
        gap = np.empty(0)
    else:
        # The runner-up may be deep inside: the same search for the best of the discarded keys.
        deep = np.flatnonzero(inner)
        if len(deep):
            deep = deep[~inside_hull(z[deep], DEPTH)]
            other, low = np.empty(nq, np.intp), np.full(nq, -np.inf)
            _cones(q, wide, code, order, z, deep, depth, False, other, low, np.empty(nq))
            second = np.maximum(second, low)
        gap = np.subtract(top, second, where=fine, out=np.empty(nq))
    # Rows left to pruning: the coarse ones, and rows with ties whose runner-up is asked for, since
    # a cell's list is sure to hold the two best keys only.
    again = ~fine
    if runner_up:
        again[rows] = True
        rows, members = rows[:0], members[:0]
    redo = np.flatnonzero(again)
    if len(redo):
        found = pruned_candidates(q[redo], z, slack[redo], runner_up=runner_up)
        best[redo] = found.best
        if runner_up:
            gap[redo] = found.gap
        rows = np.concatenate((rows, np.repeat(redo, np.diff(found.indptr))))
        members = np.concatenate((members, found.indices))
    tied = np.flatnonzero(np.bincount(rows, minlength=nq)) if len(rows) else rows
    return assemble(best, m, tied, rows, members, gap)


def pays(q: Floats, z: Floats, runner_up: bool) -> bool:
    """Whether these sizes and shapes are worth the preparation, judged from a few queries.

    Pruning compares q_i with the keys of norm above max_j <q_i, z_j> / |q_i|: on Gaussian tokens a
    few dozen, which nothing beats, on a sphere all of them. The weights are measured times.
    """
    nq, m = len(q), len(z)
    sample = q[:: max(1, nq // 16)]
    score = np.einsum("sc,sc->s", sample, z[_extremes(z, sample)])
    reach = score / np.maximum(upper_norms(sample), 1e-300)
    norms = np.sort(upper_norms(z[:: max(1, m // 512)]))
    compared = m * (1.0 - np.searchsorted(norms, reach).mean() / len(norms))
    cost = START + PREPARE * m + SEARCH * nq
    return bool(nq * compared > (8 if runner_up else 1) * cost)


def inside_hull(z: Floats, depth: float) -> NDArray[np.bool_]:
    """Keys proved deeper than depth R inside the polytope of keys extreme in a few directions."""
    none = np.zeros(len(z), bool)
    shift = -int(np.frexp(np.abs(z).max())[1])
    z = z * 2.0**shift  # coordinates in [-1, 1]; what underflows is far below depth
    few = z[:: max(1, len(z) // SAMPLE)]
    corners = few[np.unique(_extremes(few, _sights()))]
    planes = _facets(corners, np.sqrt(3.0) * depth)
    if planes is None:
        return none
    centre = corners.mean(axis=0)
    # the ball inscribed around the centre saves most keys the comparison with every facet
    ball = float((planes[:, 3] - planes[:, :3] @ centre).min()) - 2.0**-45
    return _behind(z, planes, centre, ball) if ball > 0.0 else none


@functools.cache
def _sights() -> Floats:
    """Well-spread directions: a Fibonacci lattice on the sphere."""
    k = np.arange(DIRECTIONS) + 0.5
    height, turn = 1.0 - 2.0 * k / DIRECTIONS, np.pi * (1.0 + np.sqrt(5.0)) * k
    around = np.sqrt(1.0 - height**2)
    return np.column_stack((around * np.cos(turn), around * np.sin(turn), height))


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _largest(s, size):
    """Maximum of s[:size], by eight running maxima that do not wait for each other."""
    a = b = c = d = e = f = g = h = s[0]
    even = size // 8 * 8
    for j in range(0, even, 8):
        a = s[j] if s[j] > a else a
        b = s[j + 1] if s[j + 1] > b else b
        c = s[j + 2] if s[j + 2] > c else c
        d = s[j + 3] if s[j + 3] > d else d
        e = s[j + 4] if s[j + 4] > e else e
        f = s[j + 5] if s[j + 5] > f else f
        g = s[j + 6] if s[j + 6] > g else g
        h = s[j + 7] if s[j + 7] > h else h
    for j in range(even, size):
        a = s[j] if s[j] > a else a
    return max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _extremes(z, sights):
    """A key largest in each direction."""
    n, width = len(z), 512
    value, key = np.full(len(sights), -1e300), np.zeros(len(sights), np.intp)
    x, y, h, s = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for start in range(0, n, width):
        size = min(width, n - start)
        for j in range(size):
            x[j], y[j], h[j] = z[start + j]
        for e in range(len(sights)):
            a, b, c = sights[e]
            for j in range(size):
                s[j] = a * x[j] + b * y[j] + c * h[j]
            high = _largest(s, size)
            if high > value[e]:
                value[e] = high
                for j in range(size):
                    if s[j] == high:
                        key[e] = start + j
    return key


def _facets(x: Floats, depth: float) -> Floats | None:
    """Rows (normal, offset): <normal, z> <= offset for all of them puts z + depth B inside conv x.

    The triangles of Qhull, each oriented away from the mean, must form a closed oriented surface:
    every directed edge once, and once in reverse. Then if p is strictly behind every triangle they
    all subtend positive solid angles, the surface winds round p, and p is in conv x, because from a
    point outside its hull a closed surface can be shrunk to nothing. This needs no convexity, hence
    no faith in Qhull; `offset` leaves room for the rounding of the plane of each triangle.
    """
    import scipy

    if len(x) < 4:
        return None
    try:
        corner = scipy.spatial.ConvexHull(x).simplices.astype(np.intp)
    except scipy.spatial.QhullError:
        return None
    planes = _planes(x, corner, depth)
    return planes if len(planes) else None


@njit(cache=True, nogil=True)
def _planes(x, corner, depth):
    """The planes of `_facets`; none of them if the triangles do not close up or one is a sliver."""
    k, f = len(x), len(corner)
    planes, edge = np.empty((f, 4)), np.zeros((k, k), np.bool_)
    centre = np.array([x[:, 0].mean(), x[:, 1].mean(), x[:, 2].mean()])
    for t in range(f):
        a, b, c = corner[t]
        u, v, w = x[b] - x[a], x[c] - x[a], centre - x[a]
        normal = np.array(
            [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]
        )
        length = np.sqrt((normal * normal).sum())
        sides = np.sqrt((u * u).sum()) * np.sqrt((v * v).sum())
        if sides == 0.0 or not length > 2.0**-26 * sides:
            return planes[:0]  # a sliver, whose plane rounding could tilt
        if (normal * w).sum() > 0.0:
            normal, b, c = -normal, c, b
        for tail, head in ((a, b), (b, c), (c, a)):
            if edge[tail, head]:
                return planes[:0]
            edge[tail, head] = True
        # The tilt is below 16 u sides / length, at a distance of at most 2 sqrt 3 from a.
        room = depth + 64 * U * sides / length + 2.0**-46
        planes[t, :3] = normal / length
        planes[t, 3] = (planes[t, :3] * x[a]).sum() - room
    for tail in range(k):
        for head in range(k):
            if edge[tail, head] != edge[head, tail]:
                return planes[:0]
    return planes


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _behind(z, planes, centre, ball):
    """Keys behind every plane: those in the ball without asking, others plane by plane."""
    n = len(z)
    inside = np.zeros(n, np.bool_)
    f, last = len(planes), 0
    for k in range(n):
        x, y, h = z[k, 0], z[k, 1], z[k, 2]
        dx, dy, dh = x - centre[0], y - centre[1], h - centre[2]
        if dx * dx + dy * dy + dh * dh <= ball * ball:
            inside[k] = True
            continue
        # begin with the plane that excluded the previous key
        if planes[last, 0] * x + planes[last, 1] * y + planes[last, 2] * h > planes[last, 3]:
            continue
        deep = True
        for p in range(f):
            if planes[p, 0] * x + planes[p, 1] * y + planes[p, 2] * h > planes[p, 3]:
                deep, last = False, p
                break
        inside[k] = deep
    return inside


def _cells(q: Floats, ids: Indices) -> tuple[Indices, Indices]:
    """Sorted codes of the cells of the finest level, and the queries in that order."""
    code = _codes(q, ids)
    for shift in (0, SORTED):  # counting sort, by the lower half of the bits, then by the upper
        code, ids = _counted(code, ids, shift)
    return code, ids


@njit(cache=True, nogil=True)
def _counted(code, ids, shift):
    """Stable counting sort of (code, ids) by SORTED bits of the code from `shift`."""
    place = np.zeros((1 << SORTED) + 1, np.intp)
    for x in code:
        place[((x >> shift) & ((1 << SORTED) - 1)) + 1] += 1
    for k in range(1 << SORTED):
        place[k + 1] += place[k]
    out, names = np.empty_like(code), np.empty_like(ids)
    for k in range(len(code)):
        bucket = (code[k] >> shift) & ((1 << SORTED) - 1)
        out[place[bucket]], names[place[bucket]] = code[k], ids[k]
        place[bucket] += 1
    return out, names


@njit(cache=True, nogil=True)
def _codes(q, ids):
    """Cell of each query: face of the cube, then the bits of u and v interleaved."""
    out = np.empty(len(ids), np.int64)
    side = 1 << LEVELS
    for k in range(len(ids)):
        i = ids[k]
        c = 0
        if abs(q[i, 1]) > abs(q[i, c]):
            c = 1
        if abs(q[i, 2]) > abs(q[i, c]):
            c = 2
        t = abs(q[i, c])
        u = int((q[i, (c + 1) % 3] / t + 1.0) * (0.5 * side))
        v = int((q[i, (c + 2) % 3] / t + 1.0) * (0.5 * side))
        u, v = min(u, side - 1), min(v, side - 1)
        face = 2 * c + (1 if q[i, c] < 0.0 else 0)
        bits = 0
        for b in range(LEVELS - 1, -1, -1):
            bits = 4 * bits + 2 * ((u >> b) & 1) + ((v >> b) & 1)
        out[k] = (face << (2 * LEVELS)) + bits
    return out


def _cones(
    q: Floats, wide: Floats, code: Indices, order: Indices, z: Floats, keys: Indices,
    depth: float, runner_up: bool, best: Indices, top: Floats, second: Floats,
) -> tuple[Indices, Indices]:  # fmt: skip
    """Fills best, top and (runner_up) second; returns the pairs (row, key) of rows with ties."""
    lists, ties = 2 * len(keys) + 64, 2 * len(q) + 64
    while True:
        # The room is fixed within: arrays that a compiled loop replaces are counted at every step.
        names, room = np.empty(lists, np.intp), np.empty((3, lists))
        rows, members = np.empty(ties, np.intp), np.empty(ties, np.intp)
        given = q, wide, code, order, z, keys, depth, runner_up, names, room
        needed, count = _divided(*given, best, top, second, rows, members)
        if needed <= lists and count <= ties:
            return rows[:count], members[:count]
        lists, ties = max(lists, 2 * needed), max(ties, count)


@njit(cache=True, nogil=True)
def _divided(
    q, wide, code, order, z, keys, depth, runner_up, names, room, best, top, second, rows, members
):
    """The search of `_cones`: the length of the lists and the number of pairs it has, or needs."""
    m, count = len(keys), 0
    p, a, b = room
    s, first, other = np.empty(m), np.empty(m), np.empty(m)
    beaten = other if runner_up else first
    todo = np.empty((4 * LEVELS + 4, 6), np.intp)
    used = np.empty(6, np.intp)
    for face in range(6):
        c, sign = face // 2, 1.0 - 2.0 * (face % 2)
        for k in range(m):
            names[k] = keys[k]
            p[k] = sign * z[keys[k], c]
            a[k], b[k] = z[keys[k], (c + 1) % 3], z[keys[k], (c + 2) % 3]
        origin = face << (2 * LEVELS)
        begin = _first(code, origin, 0, len(code))
        end = _first(code, origin + (1 << (2 * LEVELS)), begin, len(code))
        todo[0] = 0, 0, begin, end, 0, m
        waiting = 1
        while waiting:
            waiting -= 1
            level, cell, begin, end, start, stop = todo[waiting]
            size = stop - start
            if end - begin <= QUERIES or size <= LIST or level == LEVELS:
                for k in range(begin, end):
                    i = order[k]
                    t, u, v = abs(q[i, c]), q[i, (c + 1) % 3], q[i, (c + 2) % 3]
                    at, high, near, low = _scan(
                        t, u, v, p, a, b, start, size, s, wide[i], runner_up
                    )
                    best[i], top[i], second[i] = names[start + at], high, low
                    if near > 1:
                        floor = high - wide[i]
                        for j in range(size):
                            if s[j] >= floor:
                                if count < len(rows):
                                    rows[count], members[count] = i, names[start + j]
                                count += 1
                continue
            if stop + size > len(names):
                return stop + size, 0
            # the square of this cell; children with no query are not visited
            u, v = 0, 0
            for bit in range(level):
                u += ((cell >> (2 * bit + 1)) & 1) << bit
                v += ((cell >> (2 * bit)) & 1) << bit
            half = 1.0 / (1 << level)
            mid_u, mid_v = (2 * u + 1) * half - 1.0, (2 * v + 1) * half - 1.0
            _dominate(p, a, b, start, size, mid_u, mid_v, half, s, first, other, used)
            k = stop
            for j in range(size):
                o = start + j
                names[k], p[k], a[k], b[k] = names[o], p[o], a[o], b[o]
                k += 1 if beaten[j] <= depth else 0
            shift = 2 * (LEVELS - level - 1)
            low = begin
            for child in range(4):
                ceiling = origin + ((4 * cell + child + 1) << shift)
                high = _first(code, ceiling, low, end)
                if high > low:
                    todo[waiting] = level + 1, 4 * cell + child, low, high, stop, k
                    waiting += 1
                low = high
    return 0, count


@njit(cache=True, nogil=True)
def _first(code, value, low, high):
    """First place in sorted code[low:high] with code >= value."""
    while low < high:
        mid = (low + high) // 2
        if code[mid] < value:
            low = mid + 1
        else:
            high = mid
    return low


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _dominate(p, a, b, start, size, mid_u, mid_v, half, s, first, other, used):
    """By how much each key is beaten over the whole square, by the first and second best beater.

    Beaters are the best keys at the centre and the corners. Over the square, p + u a + v b differs
    by at least w_p + mid_u w_a + mid_v w_b - half (|w_a| + |w_b|), w = z* - z.
    """
    o, lowest = np.uintp(start), -1e300  # unsigned: an index that may be negative costs a gather
    for j in range(size):
        first[j] = other[j] = lowest
    for turn in range(6):
        u = mid_u + (half if turn in (1, 2) else -half if turn in (3, 4) else 0.0)
        v = mid_v + (half if turn in (1, 3) else -half if turn in (2, 4) else 0.0)
        for j in range(size):
            k = o + np.uintp(j)
            s[j] = p[k] + u * a[k] + v * b[k]
        if turn == 5:  # the second best at the centre
            s[used[0]] = lowest
        high = _largest(s, size)
        at = 0
        for j in range(size):
            if s[j] == high:
                at = j
                break
        fresh = True
        for e in range(turn):
            fresh &= used[e] != at
        used[turn] = at
        if not fresh:
            continue
        x, y, w = p[start + at], a[start + at], b[start + at]
        for j in range(size):
            k = o + np.uintp(j)
            da, db = y - a[k], w - b[k]
            lead = (x - p[k]) + mid_u * da + mid_v * db - half * (abs(da) + abs(db))
            old = first[j]
            less = lead if lead < old else old
            first[j] = lead if lead > old else old
            other[j] = less if less > other[j] else other[j]


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _scan(t, u, v, p, a, b, start, size, s, slack, runner_up):
    """Scores into s; the place and value of the largest, how many are near, the best not near."""
    o = np.uintp(start)
    for j in range(size):
        k = o + np.uintp(j)
        s[j] = t * p[k] + u * a[k] + v * b[k]
    high = _largest(s, size)
    floor = high - slack
    near, at = 0, 0
    for j in range(size):
        near += 1 if s[j] >= floor else 0
        at = j if s[j] == high else at
    low = -np.inf
    if runner_up:
        for j in range(size):
            x = s[j] if s[j] < floor else -np.inf
            low = x if x > low else low
    return at, high, near, low
