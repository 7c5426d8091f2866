"""One search divided among processes: each takes a part of the queries, all get all the sets.

Every process holds the same tokens and makes the same calls, so that between two searches nothing
but the sets travels: three integers a query, no token. Each part keeps the contract of the whole
search, so the sets that come out of the exact decisions are those of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from .contract import Candidates

__all__ = ["divided", "joined", "split_over"]

FEWEST = 1024  # queries; fewer are found before a message has come round

_group: ContextVar[Any] = ContextVar("cynosure_search_group", default=None)


@contextmanager
def split_over(group: Any | None = None) -> Iterator[None]:
    """Divide every search inside among the processes of a `torch.distributed` group (all of them).

    All of these must make the same calls on the same tokens, each on its own device:

        torch.distributed.init_process_group("nccl")        # or "gloo" without a GPU
        with split_over():
            trajectory = cy.simulate(dynamics, z, layers=64)
    """
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "split_over needs processes: call torch.distributed.init_process_group first"
        )
    token = _group.set(dist.group.WORLD if group is None else group)
    try:
        yield
    finally:
        _group.reset(token)


def divided(
    search: Callable[..., Candidates], q: Any, z: Any, slack: Any, runner_up: bool
) -> Candidates | None:
    """`search` of this process's part of the rows, and what the others found; None if alone."""
    group = _group.get()
    if group is None or len(q) < FEWEST:
        return None
    import torch.distributed as dist

    share = np.linspace(0, len(q), dist.get_world_size(group) + 1).astype(int)
    part = slice(*share[dist.get_rank(group) :][:2].tolist())
    token = _group.set(None)  # the part itself is not divided again
    try:
        mine = search(q[part], z, slack[part], runner_up=runner_up)
    finally:
        _group.reset(token)
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, tuple(mine), group=group)
    return joined([Candidates(*found) for found in every])


def joined(parts: list[Candidates]) -> Candidates:
    """The rows of all parts, one after another."""
    ends = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    starts = [part.indptr[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    return Candidates(
        np.concatenate([part.best for part in parts]),
        np.concatenate([*starts, ends[-1:]]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.gap for part in parts]),
    )
