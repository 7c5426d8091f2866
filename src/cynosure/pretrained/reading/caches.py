"""trace_of_cache(): what TransformerLens recorded of a text, as a Trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...simulation.trajectory import Status, Trajectory
from .traces import Trace

BEFORE, AFTER = "blocks.{}.hook_resid_pre", "blocks.{}.hook_resid_post"
PATTERN = "blocks.{}.attn.hook_pattern"
SEEN = ("blocks.{}.attn.hook_in", "blocks.{}.ln1.hook_normalized", BEFORE)  # the first there is


def trace_of_cache(cache: Any, words: Sequence[str] | None = None) -> Trace:
    """Makes a Trace of the cache that `run_with_cache(text)` of TransformerLens returns.

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
    states = [*(BEFORE.format(k) for k in range(depth)), AFTER.format(depth - 1)]
    there = [next(s.format(k) for s in SEEN if s.format(k) in cache) for k in range(depth)]
    z, seen = ([_first(cache[name], 3) for name in names] for names in (states, there))
    P = [_first(cache[PATTERN.format(k)], 4) for k in range(depth)]
    return _trace(z, P, seen, words, "by TransformerLens")


def _trace(
    z: Sequence[np.ndarray], P: Sequence[np.ndarray], seen: Sequence[np.ndarray],
    words: Sequence[str] | None, where: str, *notes: str,
) -> Trace:  # fmt: skip
    named = None if words is None else tuple(map(str, words))
    if named is not None and len(named) != len(z[0]):
        raise ValueError(f"words: there are {len(z[0])} tokens, got {len(named)} words")
    status = Status("done", f"{len(P)} layers recorded {where}.", "", notes)
    trajectory = Trajectory(np.stack(z), np.arange(len(z)), status, words=named)
    groups = None if named is None else tuple(range(len(named)))
    return Trace(trajectory, np.stack(P), np.stack(seen), groups, named)


def _first(tensor: Any, ndim: int) -> np.ndarray:
    """The first text of a batch, as float32 or float64; a cache may have no axis for the batch."""
    x = tensor.detach().cpu() if hasattr(tensor, "detach") else np.asarray(tensor)
    x = x[0] if x.ndim == ndim else x
    if hasattr(x, "float") and str(x.dtype) in ("torch.float16", "torch.bfloat16"):
        x = x.float()
    return np.asarray(x)


def trace_of_outputs(
    hidden_states: Any, attentions: Any, words: Sequence[str] | None = None
) -> Trace:
    """Makes a Trace of recorded hidden states and attentions, for example of nnsight.

    `outputs.hidden_states, outputs.attentions` of any model of transformers called with
    output_hidden_states=True and output_attentions=True: one tensor per layer, and one more state.
    Of several texts the first one.

    Trap: many models apply their final norm to the last state, and `seen` are the states before
    each layer, which is what its attention sees only where no norm comes first.
    """
    z = [_first(getattr(x, "value", x), 3) for x in hidden_states]
    P = [_first(getattr(x, "value", x), 4) for x in attentions or ()]
    if not P or len(z) != len(P) + 1 or any(p.shape[-1] != len(x) for p, x in zip(P, z)):
        raise ValueError(
            f"hidden_states: expected one more than attentions, (n, d) and (heads, n, n); got "
            f"{len(z)} and {len(P)}. Call the model with output_hidden_states=True, "
            "output_attentions=True and attn_implementation='eager'"
        )
    note = "The last state may have passed a final norm; `seen` are states, not their norms."
    return _trace(z, P, z[:-1], words, "elsewhere", note)
