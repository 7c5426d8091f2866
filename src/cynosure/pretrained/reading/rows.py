"""Attention some rows of P at a time: the library's own computation, without holding all of P.

A long text has a P of n² numbers per head and layer. The library lets an attention function be
chosen by name; the one here gives its own eager function some rows after another, and whoever
watches sees them go by.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

from ..families import Adapter

NAME = "cynosure_rows"  # among the attention functions of the transformers library
BUDGET = 64_000_000  # bytes of P held at once; about six times that is in use on the way


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows start to start + r of the P of every head of one layer.

    `visible[i]` counts the tokens that row i may look at. With `start` 0 comes `first`: how the
    first token would look at all of them, were there no mask; None where that cannot be had.
    """

    P: Any  # (heads, r, m), m <= n: columns that none of these rows sees are left out
    start: int
    visible: Any  # (r,)
    first: Any | None = None  # (heads, n)


Watch = Callable[[Rows], None]
_watching: ContextVar[tuple[Watch, int]] = ContextVar("watching")


def rows_at_once(heads: int, n: int, itemsize: int, budget: int = BUDGET) -> int:
    """How many rows of P fit in the budget, at least one."""
    return max(1, min(n, budget // max(heads * n * itemsize, 1)))


@contextlib.contextmanager
def by_rows(model: Any, adapter: Adapter, watch: Watch, rows: int) -> Iterator[str]:
    """While this lasts `watch` is called with the rows of P of every layer that runs, in order; a
    model with its own attention code (BLOOM) gives all at once. Yields the name to choose."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    modules = [attrgetter(adapter.attention)(block) for block in adapter.blocks(model)]
    if not model._can_set_attn_implementation():
        with contextlib.ExitStack() as hooks:
            for module in dict.fromkeys(modules):
                hooks.callback(module.register_forward_hook(_whole(watch)).remove)
            yield "eager"
        return
    ALL_ATTENTION_FUNCTIONS.register(NAME, _some_rows)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)
    token = _watching.set((watch, rows))
    try:
        yield NAME
    finally:
        _watching.reset(token)


def _some_rows(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[Any, Any]:
    """The family's eager attention on some queries after the other; with P, if that is all rows."""
    import torch

    watch, rows = _watching.get()
    eager = sys.modules[type(module).__module__].eager_attention_forward
    n = query.shape[2]
    alone = eager(module, query[:, :, :1], key, value, None, **options)[1][0, :, 0]
    parts = []
    for start in range(0, n, rows):
        here = slice(start, min(start + rows, n))
        mask, reach = None, n
        visible = torch.full((here.stop - start,), n)
        if attention_mask is not None:  # True, or 0, where a row may look; else very negative
            mask = attention_mask[:, :, here]
            sees = mask[0, 0] if mask.dtype == torch.bool else mask[0, 0] == 0
            visible, reach = sees.sum(dim=-1), int(sees.any(dim=0).nonzero().max()) + 1
            mask = mask[..., :reach]
        keys, values = key[:, :, :reach], value[:, :, :reach]  # nobody looks farther
        part, P = eager(module, query[:, :, here], keys, values, mask, **options)
        parts.append(part)
        watch(Rows(P[0], start, visible, alone if start == 0 else None))
    return torch.cat(parts, dim=1), P if rows >= n else None


def _whole(watch: Watch) -> Callable[..., None]:
    def see(_: Any, args: Any, out: Any) -> None:
        import torch

        P = out[1][0]
        watch(Rows(P, 0, torch.arange(1, P.shape[1] + 1)))

    return see
