"""Walk until every limit is proved: the loop that puts the certificates to work.

`Walk.decide` settles at every layer what the local rules S, G and `fixed` settle. Where sets do not
change any more, rules H and T are tried on all open tokens together (docs/mathematics.md C7). Rule
T that finds a later change of the sets makes the walk jump to that layer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from .budget import Exhausted
from .certificates import ConstantSets, H, T
from .walk import Walk

_STILL = 8  # layers without a change after which untied sets are looked at
_MOST_STILL = 10_000  # and after which the walk ends if nothing can be proved
_FEW = 64  # open classes that are looked at as soon as there is a tie
_SHARE = 0.25  # of the budget that is left, for one attempt
_FIRST = 50_000_000  # units for the sets of layer 0, which come first and are always worth it
_LAYER, _CLASS = 600, 30  # units for walking a layer, and for each class that is searched there
_EXACT_LAYER = 4000  # more of them for a layer with exact decisions
_FREE, _FREE_CLASS = 10_000_000, 5000  # units of walking that are not charged, and per class


def prove(walk: Walk, max_layers: int, progress: Callable[[int, int], Any] | None = None) -> None:
    """Walk until every token is settled, `max_layers` is reached or the walk's budget is spent.

    `progress(layer, open classes)` is called once a layer has been decided.
    """
    try:
        _prove(walk, max_layers, progress)
    except Exhausted:
        return


def _prove(walk: Walk, max_layers: int, progress: Callable[[int, int], Any] | None) -> None:
    still, next_try = 0, 0  # layers without a change; the layer of the next attempt at H and T
    free = _FREE + _FREE_CLASS * len(walk.searched)
    while True:
        walk.budget.look()
        exact, searched = walk.exact_decisions, len(walk.searched)
        with walk.budget.apart(_FIRST) if walk.k == 0 else nullcontext():
            walk.decide()
        free -= (cost := _LAYER + _CLASS * searched)
        walk.budget.spend((cost if free < 0 else 0) + _EXACT_LAYER * (walk.exact_decisions > exact))
        open_ = len(walk.searched)
        if progress is not None:
            progress(walk.k, open_)
        if walk.settled:
            return
        still = still + 1 if walk.unchanged else 0
        k = walk.k
        soon = walk.tied and (still >= 1 or open_ <= _FEW)
        if k >= next_try and (soon or still >= _STILL):
            settled, quiet = _try_constant_sets(walk, max_layers - k)
            if settled == open_ or quiet:
                return
            if walk.k > k:
                still = 0
                continue  # the new layer is still to be decided
            next_try = k + 1 if settled else k + 2 + max(k // 4, still)
        if k >= max_layers or still >= _MOST_STILL:
            return
        walk.advance()


def _try_constant_sets(walk: Walk, layers: int) -> tuple[int, bool]:
    """Rules H and T at the decided layer: how many classes they settled, and `quiet`.

    If T finds that a set changes within so many layers, but not at the next one, walk there; if it
    finds that none does, though one will later, the future is quiet: nothing is left to do.
    """
    quiet = False
    try:
        with walk.budget.limited(_SHARE):
            future = ConstantSets(walk)
            proved, rule = future.settled_by_h(), H
            if not proved and future.solvable:
                change, for_ever = future.first_change(layers)
                if change is not None and change > 1:
                    walk.jump(walk.k + change, *future.after(change))
                if change is None and for_ever:
                    proved, rule = future.open, T
                quiet = change is None and not for_ever
            walk.settle({c: future.end(c) for c in proved}, rule)
    except Exhausted:
        walk.budget.look()
        return 0, False
    return len(proved), quiet
