"""trace_of_cache(): what TransformerLens recorded of a text, as a Trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..simulation.trajectory import Status, Trajectory
from .traces import Trace

__all__ = ["trace_of_cache"]

BEFORE, AFTER = "blocks.{}.hook_resid_pre", "blocks.{}.hook_resid_post"
PATTERN = "blocks.{}.attn.hook_pattern"
SEEN = ("blocks.{}.attn.hook_in", "blocks.{}.ln1.hook_normalized", BEFORE)  # the first there is


def trace_of_cache(cache: Any, words: Sequence[str] | None = None) -> Trace:
    """The Trace of the cache that `run_with_cache(text)` of TransformerLens returns.

    From a HookedTransformer, or from a TransformerBridge (version 4). Tokens are the residual
    stream in front of each block and behind the last, P the patterns, and `seen` what the attention
    was given; `words` are model.to_str_tokens(text). Only the names of the hooks are used, so any
    mapping with them will do, and TransformerLens need not be installed. A cache of several texts
    gives the first one.

    Trap: a HookedTransformer by default changes weights (fold_ln, center_writing_weights), and so
    does enable_compatibility_mode() of a bridge: tokens are then not those of the original model.
    """
    depth = 0
    while PATTERN.format(depth) in cache:
        depth += 1
    wanted = [name.format(k) for k in range(max(depth, 1)) for name in (PATTERN, BEFORE, AFTER)]
    missing = [name for name in wanted if name not in cache]
    if missing:
        raise ValueError(
            f"cache: no {missing[0]} in it; expected that of run_with_cache of TransformerLens, "
            "made without names_filter"
        )
    z = [_first(cache[BEFORE.format(k)], 3) for k in range(depth)]
    z.append(_first(cache[AFTER.format(depth - 1)], 3))
    P = np.stack([_first(cache[PATTERN.format(k)], 4) for k in range(depth)])
    there = [next(s.format(k) for s in SEEN if s.format(k) in cache) for k in range(depth)]
    seen = [_first(cache[name], 3) for name in there]
    named = None if words is None else tuple(map(str, words))
    if named is not None and len(named) != P.shape[-1]:
        raise ValueError(f"words: the cache has {P.shape[-1]} tokens, got {len(named)} words")
    status = Status("done", f"{depth} layers recorded by TransformerLens.")
    trajectory = Trajectory(np.stack(z), np.arange(depth + 1), status, words=named)
    groups = None if named is None else tuple(range(len(named)))
    return Trace(trajectory, P, np.stack(seen), groups, named)


def _first(tensor: Any, ndim: int) -> np.ndarray:
    """The first text of a batch, as float32 or float64; a cache may have no axis for the batch."""
    x = tensor.detach().cpu() if hasattr(tensor, "detach") else np.asarray(tensor)
    x = x[0] if x.ndim == ndim else x
    if hasattr(x, "float") and str(x.dtype) in ("torch.float16", "torch.bfloat16"):
        x = x.float()
    return np.asarray(x)
