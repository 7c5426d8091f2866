"""Walk until every limit is proved: the loop that puts the certificates to work.

`Walk.decide` settles at every layer what the local rules S, G and `fixed` settle. Where ties
persist, rules H and T are tried on all open tokens together (docs/mathematics.md C7). Rule T that
finds a later change of the sets makes the walk jump to that layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .certificates import ConstantSets, H, T
from .walk import Walk

__all__ = ["prove"]


def prove(walk: Walk, max_layers: int, progress: Callable[[int, int], Any] | None = None) -> None:
    """Walk until every token is settled, or `max_layers` is reached.

    `progress(layer, open classes)` is called once a layer has been decided.
    """
    patience = 0  # layers to wait before the next attempt at H and T
    while True:
        walk.decide()
        open_ = len(walk.searched)
        if progress is not None:
            progress(walk.k, open_)
        if walk.settled:
            return
        if patience == 0 and walk.tied:
            k = walk.k
            settled = _try_constant_sets(walk, max_layers - k)
            if settled == open_:
                return
            if walk.k > k:
                continue  # the new layer is still to be decided
            patience = 0 if settled else 1 + k // 4
        elif patience:
            patience -= 1
        if walk.k >= max_layers:
            return
        walk.advance()


def _try_constant_sets(walk: Walk, budget: int) -> int:
    """Rules H and T at the decided layer; how many classes they settled.

    If T finds that a set changes within `budget` layers, but not at the next one, walk there.
    """
    future = ConstantSets.of(walk)
    if future is None:
        return 0
    proved, rule = future.settled_by_h(), H
    if not proved:
        change, for_ever = future.first_change(walk.rivals(future.hulls()), budget)
        if change is not None and change > 1:
            walk.jump(walk.k + change, *future.after(change))
        if change is None and for_ever:
            proved, rule = future.open, T
    walk.settle({c: future.end(c) for c in proved}, rule)
    return len(proved)
