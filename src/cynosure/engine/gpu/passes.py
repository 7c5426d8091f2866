"""What `search` asks of a device: passes over tiles of scores, fused or in plain torch.

`Plain` does with matrix products in float32 what `fused` does tile by tile on the chip. It is the
oracle of the fused passes, the way without Triton, and what `make test` runs without a GPU.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, NamedTuple, final

WIDTH = 128  # keys in a tile
MOST_SCORES = 2**24  # written out at once
SPLIT = 21  # up to this many coordinates three products cost no more than looking at the scores
UP = 1.0 + 1e-9  # over the rounding of every float64 quantity
TINY = 1e-150  # over what underflows in the squares of scaled tokens


class Parts(NamedTuple):
    """Scaled queries or keys as halves, and how far these are from them; lengths upwards."""

    halves: Any  # (rows, depth) float16, 0 beyond what is needed
    norm: Any  # (rows,) float64
    head: Any  # (rows,) |h|
    low: Any  # (rows,) |l|, 0 where there is none
    rest: Any  # (rows,) |x - h - l|, or |x - h| where there is no l
    power: Any  # (rows,) float64, the power of two that x was multiplied by


class Task(NamedTuple):
    """Some rows against all keys, as a pass takes them; float32, rounded to the safe side."""

    q: Any  # (nq, depth) float16
    z: Any  # (padded keys, depth) float16, by decreasing norm
    length: Any  # (nq,) |q|, upwards
    reach: Any  # (groups,) the largest norm in the group or in a later one, upwards
    m: int  # keys, without padding
    tiles: int  # tiles in a group

    def of(self, rows: Any) -> Task:
        """The same task for these rows only."""
        return self._replace(q=self.q[rows], length=self.length[rows])


class Inspected(NamedTuple):
    """Pairs i m + j of the rows that their best tiles decide, and the rows they do not decide."""

    pairs: Any
    total: int  # how many pairs there are, listed or not
    left: Any  # (nq,) bool


class Passes(abc.ABC):
    """Scores are any float32 sums of the products of halves, in any order."""

    @abc.abstractmethod
    def split(self, x: Any, *, together: bool) -> Parts:
        """x times powers of two that bring the largest entry (of each row, or of all) below 1.

        Keys are scaled together and laid out as (h, l, h), queries as (h, h, l); both as h alone
        beyond SPLIT coordinates.
        """

    @abc.abstractmethod
    def maxima(self, task: Task, width: Any, ceiling: Any | None, looks: int) -> tuple[Any, Any]:
        """The looks + 1 largest tile maxima per row (below the ceiling), and the first tiles.

        Shapes (looks + 1, nq) and (looks, nq); -inf and -1 where there are no more tiles. Keys
        whose scores are below the looks-th maximum by more than the width may be left out.
        """

    @abc.abstractmethod
    def inspect(
        self, task: Task, tiles: Any, ceiling: Any, known: Any, wide: Any, room: int
    ) -> Inspected:
        """Look at the tiles (looks, nq) of each row again; known are the maxima after the first.

        With one look every score >= ceiling is listed, and a row is left if the next tile reaches
        it. With two, every score >= (the largest below the ceiling) - wide.
        """

    @abc.abstractmethod
    def collect(self, task: Task, floor: Any, error: Any, room: int) -> tuple[Any, int]:
        """Pairs i m + j with a score of at least floor_i, and how many; at most `room` are kept."""


@final
class Plain(Passes):
    """In blocks of rows, every score written out."""

    def split(self, x: Any, *, together: bool) -> Parts:
        import torch

        largest = x.abs().amax() if together else x.abs().amax(dim=1)
        power = _power_below(largest).expand(len(x))
        y = x * power[:, None]
        high = y.to(torch.float16)
        rest = y - high.double()
        low = rest.to(torch.float16)
        if x.shape[1] > SPLIT:
            halves, low = high, torch.zeros_like(low)
        else:
            halves = torch.cat((high, low, high) if together else (high, high, low), dim=1)
        halves = torch.nn.functional.pad(halves, (0, depth_of(x.shape[1]) - halves.shape[1]))
        parts = (y, high.double(), low.double(), rest - low.double())
        norm, head, less, left = map(_norm, parts)
        return Parts(halves, norm, head, less, left, power)

    def maxima(self, task: Task, width: Any, ceiling: Any | None, looks: int) -> tuple[Any, Any]:
        import torch

        values, tiles = [], []
        for rows, s in _scores(task):
            if ceiling is not None:
                s = torch.where(s < ceiling[rows, None], s, -torch.inf)
            top = torch.nn.functional.pad(
                s.view(len(s), -1, WIDTH).amax(dim=2), (0, 2), value=-torch.inf
            )
            found = top.topk(looks + 1, dim=1)
            real = found.indices < top.shape[1] - 2
            values.append(found.values.T)
            tiles.append(torch.where(real, found.indices, -1)[:, :looks].T)
        return torch.cat(values, dim=1), torch.cat(tiles, dim=1)

    def inspect(
        self, task: Task, tiles: Any, ceiling: Any, known: Any, wide: Any, room: int
    ) -> Inspected:
        import torch

        looks, nq = tiles.shape
        pairs, left = [], []
        step = max(1, MOST_SCORES // (looks * WIDTH * task.q.shape[1]))
        places = torch.arange(WIDTH, device=tiles.device)
        for rows in torch.arange(nq, device=tiles.device).split(step):
            key = (tiles[:, rows].T[:, :, None] * WIDTH + places).reshape(len(rows), -1)
            there = (key >= 0) & (key < task.m)
            seen = task.z[key.clamp(0, task.m - 1)].float()
            s = (seen * task.q[rows].float()[:, None]).sum(dim=2)
            s = torch.where(there, s, -torch.inf)
            floor = ceiling[rows]
            done = known[0, rows] < floor
            if looks == 2:
                below = torch.where(s < floor[:, None], s, -torch.inf).amax(dim=1)
                nothing = torch.isinf(below)
                floor = torch.where(nothing, floor, below) - wide[rows]
                last = known[1, rows]
                done &= (last < floor) & (~nothing | torch.isinf(last))
            hit = (s >= floor[:, None]) & there & done[:, None]
            i, at = torch.nonzero(hit, as_tuple=True)
            pairs.append(rows[i] * task.m + key[i, at])
            left.append(~done)
        found = torch.cat(pairs)
        return Inspected(found[:room], len(found), torch.cat(left))

    def collect(self, task: Task, floor: Any, error: Any, room: int) -> tuple[Any, int]:
        import torch

        found = []
        for rows, s in _scores(task):
            i, j = torch.nonzero(s[:, : task.m] >= floor[rows, None], as_tuple=True)
            found.append((i + rows.start) * task.m + j)
        pairs = torch.cat(found)
        return pairs[:room], len(pairs)


def depth_of(d: int) -> int:
    """Columns of the halves of d coordinates, rounded up to what tiles need."""
    deep = 3 * d if d <= SPLIT else d
    return max(16, 1 << (deep - 1).bit_length()) if deep <= 128 else -(-deep // 128) * 128


def _power_below(largest: Any) -> Any:
    """2^-e with largest in [2^(e-1), 2^e), from its bits; 1 for 0 and at most 2^1000."""
    import torch

    exponent = ((largest.view(torch.int64) >> 52) & 2047) - 1022
    exponent = torch.where(largest == 0, 0, exponent.clamp(-1000, 1000))
    return ((1023 - exponent) << 52).view(torch.float64)


def _norm(x: Any) -> Any:
    """Euclidean norms of rows, upwards."""
    return x.square().sum(dim=1).sqrt() * UP + TINY


def _scores(task: Task) -> Iterator[tuple[slice, Any]]:
    """Blocks of rows and their scores against all keys, padding included."""
    keys = task.z.float()
    step = max(1, MOST_SCORES // len(keys))
    for start in range(0, len(task.q), step):
        rows = slice(start, start + step)
        yield rows, task.q[rows].float() @ keys.T


def passes_for(tensor: Any) -> Passes:
    """The fused passes on a CUDA device with Triton, plain torch elsewhere."""
    from importlib.util import find_spec

    if tensor.device.type == "cuda" and find_spec("triton") is not None:
        from .launch import Fused

        return Fused()
    return Plain()
