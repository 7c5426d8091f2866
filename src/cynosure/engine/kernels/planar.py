"""The plane: scores are unimodal along a convex polygon, so a query needs O(log n) of them.

1. Filter. Tokens extreme in eight directions span a polygon; a token deeper than `depth` inside it
   has <q, z> < max - depth |q| for every q: nobody's candidate when slack_i <= depth |q_i|.
2. Outline. Andrew's monotone chain on the survivors with a proved left turn at every vertex: where
   rounding leaves a turn in doubt the vertex is dropped, so the polygon H is exactly convex.
   Survivors that are neither vertices of H nor proved deep inside it are `extras` of the edge they
   lie next to, in order.
3. Search. From a start found by bisection, go along H both ways while score >= best - slack. Along
   a convex polygon scores rise to one summit, so what lies beyond a visible drop is lower still.
Orientation bound: J. R. Shewchuk, Adaptive precision floating-point arithmetic, 1997.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import jitted, load
from .contract import Candidates, Floats, Indices, U, assemble, merged
from .pruned import FLAGS, pruned_candidates, upper_norms, widened

COARSE = 1e-9  # a query with slack above COARSE |q| R is searched by pruning instead
COUNTED = 32  # edges of a chain that are compared at once


class Outline(NamedTuple):
    """Convex polygon H, counterclockwise from its lexicographic minimum, and its extras by edge."""

    xy: Floats  # (h, 2)
    token: Indices  # (h,)
    lower: int  # edges of the lower chain, edge t joins vertices t and t + 1
    extra_xy: Floats  # (e, 2) grouped by edge, in order along it
    extra: Indices  # (e,)
    extra_ptr: Indices  # (h + 1,)
    delta: float  # every extra is within delta of its edge


def warm() -> None:
    load("engine.kernels.pruned")
    turn = np.linspace(0.0, 6.0, 9)
    z = np.concatenate((np.column_stack((np.cos(turn), np.sin(turn))), np.zeros((2, 2))))
    for runner_up in (False, True):
        planar_candidates(z, z, np.full(len(z), 1e-14), runner_up=runner_up)


def planar_candidates(
    q: Floats, z: Floats, slack: Floats, *, runner_up: bool = False
) -> Candidates:
    """Keys within slack of the best computed score, the contract of `kernels.candidates`."""
    m = len(z)
    norm_q, radius = upper_norms(q), upper_norms(z).max()
    wide = widened(slack, norm_q, radius, 2)
    fine = wide <= COARSE * radius * norm_q
    if not fine.all():
        return _split(q, z, slack, fine, runner_up)
    depth = 1.01 * float((wide / norm_q).max(initial=0.0)) + 32 * U * radius
    outline = _outline(z, np.arange(m), depth)
    if outline is None:
        return pruned_candidates(q, z, slack, runner_up=runner_up)
    top, best, second, rows, members = _along_outline(q, norm_q, wide, outline)
    tied = np.flatnonzero(np.bincount(rows, minlength=len(q))) if len(rows) else rows
    if not runner_up:
        return assemble(best, m, tied, rows, members, np.empty(0))
    # The runner-up may be deep inside: search the polygon of the tokens outside the outline too.
    rest = np.ones(m, bool)
    rest[outline.token] = rest[outline.extra] = False
    if rest.any():
        inner = _outline(z[rest], np.flatnonzero(rest), 32 * U * radius)
        if inner is None:
            return pruned_candidates(q, z, slack, runner_up=True)
        second = np.maximum(second, _along_outline(q, norm_q, wide, inner)[0])
    return assemble(best, m, tied, rows, members, top - second)


def _split(
    q: Floats, z: Floats, slack: Floats, fine: NDArray[np.bool_], runner_up: bool
) -> Candidates:
    """Queries with a large slack (a zero query takes every key) go through the pruned search."""
    coarse = pruned_candidates(q[~fine], z, slack[~fine], runner_up=runner_up)
    if not fine.any():
        return coarse
    part = planar_candidates(q[fine], z, slack[fine], runner_up=runner_up)
    return merged(fine, part, coarse, len(z))


def _outline(z: Floats, names: Indices, depth: float) -> Outline | None:
    """The outline of tokens z with these names, or None where rounding defeats it."""
    alive = _survivors(z, depth)
    x, y = z[alive, 0], z[alive, 1]
    order = np.argsort(x)
    if (np.diff(x[order]) == 0).any():
        order = np.lexsort((y, x))
    xy = np.column_stack((x[order], y[order]))
    vertex, lower = _chain(xy)
    edge, along, delta = _extras(xy, vertex, lower, depth)
    if not delta <= 1e3 * depth:
        return None
    extras = np.flatnonzero(edge >= 0)
    extras = extras[np.lexsort((along[extras], edge[extras]))]
    ptr = np.searchsorted(edge[extras], np.arange(len(vertex) + 1))
    ids = names[alive[order]]
    return Outline(xy[vertex], ids[vertex], lower, xy[extras], ids[extras], ptr, delta)


@jitted()
def _survivors(z, depth):
    """Tokens not proved deeper than `depth` inside the polygon of eight extreme tokens."""
    corner, beyond = np.zeros(8, np.intp), np.ones(len(z))
    x, y = np.ascontiguousarray(z[:, 0]), np.ascontiguousarray(z[:, 1])
    _deep_inside(x, y, corner, depth, _corners(x, y, corner), beyond)
    return np.flatnonzero(beyond > 0.0)


@jitted()
def _corners(x, y, corner):
    """Fills `corner` with tokens extreme in eight directions, counterclockwise from the right.

    Returns a bound on |x|, |y|, |x + y| and |x - y| of all tokens.
    """
    east = west = x[0]
    north = south = y[0]
    up = down = x[0] + y[0]
    left = right = y[0] - x[0]
    for k in range(1, len(x)):
        u, v = x[k], y[k]
        a, b = u + v, v - u
        if u > east:
            east, corner[0] = u, k
        if a > up:
            up, corner[1] = a, k
        if v > north:
            north, corner[2] = v, k
        if b > left:
            left, corner[3] = b, k
        if u < west:
            west, corner[4] = u, k
        if a < down:
            down, corner[5] = a, k
        if v < south:
            south, corner[6] = v, k
        if b < right:
            right, corner[7] = b, k
    return max(max(max(east, -west), max(north, -south)), max(max(up, -down), max(left, -right)))


@jitted(fastmath=FLAGS)
def _deep_inside(x, y, corner, depth, size, out):
    """out[k] <= 0: token k is proved deeper than `depth` inside the closed path of the corners.

    Left of all sides by more than depth means that the path winds round the ball of that radius,
    whatever its shape and whatever rounding did to its corners: the ball is in their hull, and
    <q, z> < max - depth |q| for every q. Equal corners make no side; the margin swallows the
    rounding of the test itself, for tokens within `size`.
    """
    first = True
    for e in range(8):
        p, r = corner[e], corner[(e + 1) % 8]
        dx, dy = x[r] - x[p], y[r] - y[p]
        length = np.sqrt(dx * dx + dy * dy)
        if length > 0.0:
            nx, ny = dy / length, -dx / length
            offset = nx * x[p] + ny * y[p] - 2.0 * depth - 2.0**-47 * size
            if first:
                for k in range(len(x)):
                    out[k] = nx * x[k] + ny * y[k] - offset
            else:
                for k in range(len(x)):
                    beyond = nx * x[k] + ny * y[k] - offset
                    out[k] = beyond if beyond > out[k] else out[k]
            first = False


@jitted()
def _left(ax, ay, bx, by, cx, cy):
    """Proved: a, b, c turn strictly left."""
    left = (bx - ax) * (cy - ay)
    right = (by - ay) * (cx - ax)
    return left - right > 4.0 * 2.0**-53 * (abs(left) + abs(right)) + 2.0**-1060


@jitted()
def _chain(xy):
    """Counterclockwise vertices of tokens sorted by (x, y), each turn proved; edges below."""
    n = len(xy)
    hull = np.empty(2 * n + 2, np.intp)
    h, lower = 0, 0
    for step in range(2 * n - 1):  # there, and back
        k = min(step, 2 * n - 2 - step)
        x, y = xy[k]
        while h >= lower + 2:
            a, b = hull[h - 2], hull[h - 1]
            if _left(xy[a, 0], xy[a, 1], xy[b, 0], xy[b, 1], x, y):
                break
            h -= 1
        hull[h] = k
        h += 1
        if step == n - 1:
            lower = h - 1
    return hull[: max(h - 1, 1)].copy(), lower  # the chain ends where it began


@jitted()
def _extras(xy, vertex, lower, depth):
    """For each token that is no vertex and not proved `depth` inside H: its nearest edge.

    Proved deep: a diamond of half-width r = 2 depth around the token is inside. Otherwise the
    boundary comes within r of it, at an abscissa within r of its own: those edges are compared.
    """
    n, h = len(xy), len(vertex)
    edge = np.full(n, -1, np.intp)
    along = np.zeros(n)
    delta = 0.0
    if h < 2:
        return edge, along, delta
    on = np.zeros(n, np.bool_)
    on[vertex] = True
    r = 2.0 * depth
    for k in range(n):
        if on[k]:
            continue
        x, y = xy[k]
        under, over = _edges(xy, vertex, lower, x)
        under_w, over_w = _edges(xy, vertex, lower, x - r)
        under_e, over_e = _edges(xy, vertex, lower, x + r)
        deep = xy[vertex[0], 0] < x - r and x + r < xy[vertex[lower], 0]
        for t, u, v in (
            (under, x, y - r), (over, x, y + r), (under_w, x - r, y),
            (over_w, x - r, y), (under_e, x + r, y), (over_e, x + r, y),
        ):  # fmt: skip
            deep = deep and _behind(xy, vertex, t, u, v)
        if deep:
            continue
        closest = np.inf
        for side in range(2):
            low, high = (under_w, under_e) if side == 0 else (over_e, over_w)
            for t in range(low, high + 1):
                a, b = vertex[t], vertex[(t + 1) % h]
                ux, uy = xy[b, 0] - xy[a, 0], xy[b, 1] - xy[a, 1]
                length = np.hypot(ux, uy)
                px, py = x - xy[a, 0], y - xy[a, 1]
                s = min(max((px * ux + py * uy) / length, 0.0), length)
                gap = np.hypot(px - s * (ux / length), py - s * (uy / length))
                if gap < closest:
                    closest, edge[k], along[k] = gap, t, s
        delta = max(delta, closest)
    return edge, along, delta + 0.25 * depth  # rounding of the distance is far below depth / 4


@jitted()
def _behind(xy, vertex, t, x, y):
    """Proved: (x, y) is on the inner side of edge t."""
    a, b = vertex[t], vertex[(t + 1) % len(vertex)]
    return _left(xy[a, 0], xy[a, 1], xy[b, 0], xy[b, 1], x, y)


@jitted()
def _edges(xy, vertex, lower, x):
    """Edges of the lower and of the upper chain (or their nearest ends) at abscissa x."""
    return _last(xy, vertex, 0, lower - 1, x, 1.0), _last(
        xy, vertex, lower, len(vertex) - 1, x, -1.0
    )


@jitted()
def _last(xy, vertex, low, high, x, sign):
    """The last vertex from low to high at most at the abscissa x, on the way that sign tells."""
    while low < high:
        mid = (low + high + 1) // 2
        if sign * xy[vertex[mid], 0] <= sign * x:
            low = mid
        else:
            high = mid - 1
    return low


def _along_outline(
    q: Floats, norm_q: Floats, slack: Floats, outline: Outline
) -> tuple[Floats, Indices, Floats, Indices, Indices]:
    """Best score and token per query, the best score outside its set, and the rows with several."""
    room, needed = 0, len(q) + 64
    while needed > room:
        # fixed within: arrays that a compiled loop replaces are counted by reference at every step
        room = needed
        rows, members = np.empty(room, np.intp), np.empty(room, np.intp)
        top, best, second, needed = _walked(q, norm_q, slack, *outline, rows, members)
    return top, best, second, rows[:needed], members[:needed]


@jitted()
def _walked(q, norm_q, slack, xy, token, lower, extra_xy, extra, extra_ptr, delta, rows, members):
    """The search of `_along_outline`, and the number of pairs (row, member) that it needs."""
    nq, h = len(q), len(token)
    top, second = np.empty(nq), np.empty(nq)
    best = np.empty(nq, np.intp)
    count = 0
    some = len(extra) > 0
    if not some:
        delta = 0.0
    # Edges of the lower and of the upper chain, and nothing behind them. To the first that does not
    # rise the last few steps are counted: a bisection is a branch guessed wrong half the time.
    width = min(COUNTED, (max(lower, h - lower) + 7) // 8 * 8)
    longest = width
    while longest < max(lower, h - lower):
        longest *= 2
    edge = np.zeros((2, 2, longest))
    for t in range(h):
        nxt = t + 1 if t + 1 < h else 0
        side, j = (0, t) if t < lower else (1, t - lower)
        edge[side, 0, j], edge[side, 1, j] = xy[nxt, 0] - xy[t, 0], xy[nxt, 1] - xy[t, 1]
    for i in range(nq):
        qx, qy = q[i, 0], q[i, 1]
        # the first vertex, on the chain that faces q, after which the score does not rise
        side, past, size = 1 if qy >= 0.0 else 0, np.uintp(0), longest
        while size > width:
            size //= 2
            last = past + np.uintp(size - 1)
            if qx * edge[side, 0, last] + qy * edge[side, 1, last] > 0.0:
                past += np.uintp(size)
        start = lower * side + np.intp(past)
        for j in range(width):
            e = past + np.uintp(j)  # unsigned: an index that may be negative costs a gather
            start += qx * edge[side, 0, e] + qy * edge[side, 1, e] > 0.0
        start = start if start < h else 0
        score = qx * xy[start, 0] + qy * xy[start, 1]
        at = start
        # an extra within slack is within delta of an edge with an end in this reach
        reach = slack[i] + 2.0 * norm_q[i] * delta
        outside = -np.inf
        right, left = 0, 0
        v = start
        while right + 1 < h:
            v = v + 1 if v + 1 < h else 0
            s = qx * xy[v, 0] + qy * xy[v, 1]
            if s < score - reach:
                outside = s
                break
            right += 1
            if s > score:
                score, at = s, v
        v = start
        while left + right + 1 < h:
            v = v - 1 if v > 0 else h - 1
            s = qx * xy[v, 0] + qy * xy[v, 1]
            if s < score - reach:
                outside = max(outside, s)
                break
            left += 1
            if s > score:
                score, at = s, v
        top[i], best[i], second[i] = score, token[at], outside
        if left + right == 0 and not some:
            continue
        floor = score - slack[i]
        begin = count
        # every vertex of the run, then the extras of the edges it touches, outwards from the run
        for o in range(-left - 1, right + 1):
            t = (start + o) % h
            inside = o >= -left
            if inside:
                s = qx * xy[t, 0] + qy * xy[t, 1]
                if s >= floor:
                    if count < len(rows):
                        rows[count], members[count] = i, token[t]
                    count += 1
                else:
                    second[i] = max(second[i], s)
            elif left + right + 1 == h:
                continue  # the run is all of H: this edge comes again at the other end
            first, last = extra_ptr[t], extra_ptr[t + 1]
            for k in range(last - first):
                e = first + k if inside else last - 1 - k
                s = qx * extra_xy[e, 0] + qy * extra_xy[e, 1]
                if s > top[i]:  # outside H by less than rounding
                    top[i], best[i] = s, extra[e]
                if s >= floor:
                    if count < len(rows):
                        rows[count], members[count] = i, extra[e]
                    count += 1
                else:
                    second[i] = max(second[i], s)
                    # scores fall along the edge, up to delta on either side of it
                    if s < floor - 4.0 * norm_q[i] * delta:
                        break
        if count == begin + 1:  # the best alone, as for a query without ties
            count = begin
    return top, best, second, count
