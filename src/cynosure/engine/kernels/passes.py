"""What `kernels.device` asks of a device: passes over tiles of scores, fused or in plain torch.

`Plain` does with matrix products in float32 what `fused` does tile by tile on the chip: the same
halves, the same tiles, sums in another order. It is the oracle of the fused passes, the way without
Triton, and what `make test` runs where there is no GPU.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, NamedTuple, final

__all__ = ["WIDTH", "Inspected", "Passes", "Plain", "Task", "passes_for"]

WIDTH = 128  # keys in a tile
MOST_SCORES = 2**24  # written out at once


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
