"""The fused passes, launched: shapes of tiles, buffers, and how programs share the work."""

from __future__ import annotations

from typing import Any, final

from . import fused
from .passes import SPLIT, TINY, UP, WIDTH, Inspected, Parts, Passes, Task, depth_of

PROGRAMS = 528  # four for each multiprocessor of an H200: fewer blocks of rows share the keys
WARPS = 4


@final
class Fused(Passes):
    """Triton kernels, on the current stream of the tensors' device."""

    def split(self, x: Any, *, together: bool) -> Parts:
        import torch

        n, d = x.shape
        full, deep = depth_of(d), 3 * d if d <= SPLIT else d
        made = torch.zeros if full > deep else torch.empty
        halves = made((n, full), dtype=torch.float16, device=x.device)
        lengths = torch.empty((5, n), dtype=torch.float64, device=x.device)
        wide = min(1 << max(d - 1, 1).bit_length(), 64)
        rows = 1024 // wide
        fused.split[(-(-n // rows),)](
            x.contiguous(), x.abs().amax() if together else x, halves, lengths, n, full,
            D=d, ROWS=rows, WIDTH=wide, THREE=d <= SPLIT, TOGETHER=together, num_warps=WARPS,
        )  # fmt: skip
        norm, head, low, rest = lengths[:4].sqrt_().mul_(UP).add_(TINY)
        return Parts(halves, norm, head, low, rest, power=lengths[4])

    def maxima(self, task: Task, width: Any, ceiling: Any | None, looks: int) -> tuple[Any, Any]:
        import torch

        nq = len(task.q)
        grid, shapes = _shapes(task, 128 if nq > 32_768 and task.q.shape[1] == 64 else 64)
        out = torch.empty((grid[1], looks + 1, nq), dtype=torch.float32, device=task.q.device)
        tiles = torch.empty((grid[1], looks, nq), dtype=torch.int32, device=task.q.device)
        fused.row_max[grid](
            task.q, task.z, task.length, width, width if ceiling is None else ceiling, task.reach,
            out, tiles, nq, len(task.reach), WIDTH=WIDTH, TILES=task.tiles, **shapes,
            LOOKS=looks, CAPPED=ceiling is not None,
        )  # fmt: skip
        if grid[1] == 1:
            return out[0], tiles[0]
        # the last maximum of a share is beaten by its others: it is never among the first `looks`
        found = out.view(-1, nq).topk(looks + 1, dim=0)
        named = torch.nn.functional.pad(tiles, (0, 0, 0, 1), value=-1).view(-1, nq)
        return found.values, named.gather(0, found.indices[:looks])

    def inspect(
        self, task: Task, tiles: Any, ceiling: Any, known: Any, wide: Any, room: int
    ) -> Inspected:
        import torch

        looks, nq = tiles.shape
        pairs, total = _list(task, room)
        left = torch.empty(nq, dtype=torch.int8, device=task.q.device)
        depth = min(task.q.shape[1], 64)
        fused.inspect[(nq,)](
            task.q, task.z, tiles.contiguous(), ceiling, known.contiguous(), wide, pairs, total,
            left, nq, task.m, room, WIDTH=WIDTH, DEPTH=depth, PARTS=task.q.shape[1] // depth,
            LOOKS=looks, num_warps=WARPS,
        )  # fmt: skip
        return Inspected(pairs, int(total), left.bool())

    def collect(self, task: Task, floor: Any, error: Any, room: int) -> tuple[Any, int]:
        grid, shapes = _shapes(task, 64)
        pairs, total = _list(task, room)
        # the smaller the tile, the fewer scores are looked at one by one for a single hit
        fused.collect[grid](
            task.q, task.z, task.length, floor, error, task.reach, pairs, total, len(task.q),
            task.m, room, len(task.reach), WIDTH=WIDTH // 2, TILES=2 * task.tiles, **shapes,
        )  # fmt: skip
        return pairs, int(total)


def _shapes(task: Task, rows: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Programs (of rows, sharing the keys), and what they have in common."""
    nq, full = task.q.shape
    blocks = -(-nq // rows)
    shared = min(len(task.reach), max(1, PROGRAMS // blocks))
    depth = full if full <= 128 else 64
    shapes = {"ROWS": rows, "DEPTH": depth, "PARTS": full // depth, "num_warps": WARPS}
    return (blocks, shared), shapes


def _list(task: Task, room: int) -> tuple[Any, Any]:
    """Room for pairs, and their number."""
    import torch

    pairs = torch.empty(room, dtype=torch.int64, device=task.q.device)
    return pairs, torch.zeros(1, dtype=torch.int64, device=task.q.device)
