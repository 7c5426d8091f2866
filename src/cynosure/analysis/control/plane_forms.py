"""Tokens in the plane: every set of leaders that some score matrix A chooses, by enumeration.

A symmetric positive definite A of the plane is, up to a factor, a point of the open unit disc:
A = [[1 + x, y], [y, 1 - x]]. All <A z_i, z_i - z_j> are straight lines in x and y, and cut the disc
into finitely many cells with the same leaders. Between two neighbouring abscissas at which lines
meet each other or the circle, one vertical line meets every cell (docs/mathematics.md B15).

Trap: abscissas are floats. A cell narrower than their rounding can be missed, so an enumeration
without the wanted set is no proof; a form that it gives is confirmed by the exact sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._scale import unit
from ..polytope import hull

AT_ONCE = 4_000_000  # numbers held while vertical lines are gone through
THIN = 1e-13  # strips narrower than this are rounding


class Strips(NamedTuple):
    """On the vertical lines x, token `who[k]` leads for y from low[:, k] to high[:, k]."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    who: np.ndarray

    def form(self, line: int, y: float) -> np.ndarray:
        x = float(self.x[line])
        return np.array([[1 + x, y], [y, 1 - x]])

    def alone(self, wanted: np.ndarray) -> np.ndarray | None:
        """The form in the middle of the widest piece where the `wanted` (mask over `who`) lead
        and nobody else does; None where there is none."""
        if not wanted.any():
            return None
        floor = self.low[:, wanted].max(axis=1)
        roof = self.high[:, wanted].min(axis=1)
        low, high = self.low[:, ~wanted], self.high[:, ~wanted]
        starts = np.concatenate([floor[:, None], np.maximum(high, floor[:, None])], axis=1)
        inside = (low[:, None, :] <= starts[..., None]) & (starts[..., None] < high[:, None, :])
        above = np.where(low[:, None, :] > starts[..., None], low[:, None, :], np.inf)
        ends = np.minimum(above.min(axis=2, initial=np.inf), roof[:, None])
        width = np.where(inside.any(axis=2), 0.0, ends - starts)
        line, start = np.unravel_index(int(width.argmax()), width.shape)
        if width[line, start] <= THIN:
            return None
        return self.form(int(line), float(starts[line, start] + ends[line, start]) / 2)


def strips(z: np.ndarray) -> Iterator[Strips]:
    """Where each vertex of conv Z leads, on vertical lines that meet every cell; some at a time."""
    index = np.sort(hull(z).index)
    owner, C, D, E = _lines(z[index])
    x = _abscissas(C, D, E)
    some = max(1, AT_ONCE // max(1, len(C)))
    for begin in range(0, len(x), some):
        at = x[begin : begin + some]
        yield Strips(at, *_intervals(at, owner, C, D, E, len(index)), index)


def leader_sets(z: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
    """Every set of leaders of the tokens z (n, 2) under some form, with such a form."""
    found: dict[tuple[int, ...], tuple[float, np.ndarray]] = {}
    for part in strips(z):
        ends = np.sqrt(1 - part.x**2)[:, None]
        inner = np.concatenate([part.low, part.high], axis=1)
        cuts = np.sort(np.concatenate([-ends, np.clip(inner, -ends, ends), ends], axis=1), axis=1)
        middles, widths = (cuts[:, 1:] + cuts[:, :-1]) / 2, np.diff(cuts, axis=1)
        leads = (part.low[:, None] < middles[..., None]) & (middles[..., None] < part.high[:, None])
        packed = np.packbits(leads, axis=-1)  # of any number of tokens
        _, which = np.unique(packed.reshape(-1, packed.shape[-1]), axis=0, return_inverse=True)
        codes = which.reshape(widths.shape)
        for code in np.unique(codes[widths > THIN]).tolist():
            width = np.where(codes == code, widths, 0.0)
            line, cell = np.unravel_index(int(width.argmax()), width.shape)
            leaders = tuple(part.who[leads[line, cell]].tolist())
            if leaders not in found or found[leaders][0] < width[line, cell]:
                form = part.form(int(line), float(middles[line, cell]))
                found[leaders] = (float(width[line, cell]), form)
    return {leaders: form for leaders, (_, form) in sorted(found.items())}


def _lines(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Whose, and C, D, E of <A z_i, z_i - z_j> = (C + D x + E y), for all pairs of vertices."""
    i, j = np.nonzero(~np.eye(len(z), dtype=bool))
    p, q = unit(z[i]), unit(z[i] - z[j])
    C, D = p[:, 0] * q[:, 0] + p[:, 1] * q[:, 1], p[:, 0] * q[:, 0] - p[:, 1] * q[:, 1]
    return i, C, D, p[:, 0] * q[:, 1] + p[:, 1] * q[:, 0]


def _abscissas(C: np.ndarray, D: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Middles between neighbouring x at which lines meet, or meet the circle, or are upright."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        a, b = np.triu_indices(len(C), 1)
        crossed = (C[b] * E[a] - C[a] * E[b]) / (D[a] * E[b] - D[b] * E[a])
        square = D**2 + E**2
        root = np.sqrt(np.maximum(square - C**2, 0.0)) * np.abs(E)
        circle = np.concatenate([(-C * D + root) / square, (-C * D - root) / square])
        upright = -C / D
    events = np.concatenate([crossed, circle, upright, [-1.0, 1.0]])
    events = np.unique(events[np.isfinite(events) & (np.abs(events) <= 1)])
    wide = np.diff(events) > THIN
    return ((events[1:] + events[:-1]) / 2)[wide]


def _intervals(
    x: np.ndarray, owner: np.ndarray, C: np.ndarray, D: np.ndarray, E: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """From where to where each of n tokens leads on each vertical line; empty: low above high."""
    ends = np.sqrt(1 - x**2)[:, None]
    low, high = np.tile(-ends, (1, n)), np.tile(ends, (1, n))
    for k in range(n):
        mine = owner == k
        rest = C[mine] + D[mine] * x[:, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            y = -rest / E[mine]
        above = np.where(E[mine] > 0, y, -np.inf).max(axis=1, initial=-np.inf)
        below = np.where(E[mine] < 0, y, np.inf).min(axis=1, initial=np.inf)
        never = ((E[mine] == 0) & (rest <= 0)).any(axis=1)
        low[:, k] = np.maximum(low[:, k], above)
        high[:, k] = np.where(never, -np.inf, np.minimum(high[:, k], below))
    return low, np.maximum(high, -2.0)
