"""Certified hardmax layers of one configuration or of many: states, and who led since when.

`simulate` and the classifier's model both call `certified_layers`. One configuration is a `Walk`.
Many small ones go through one compiled call (`kernels.run_batch`); it says of which it is unsure,
because scores were closer than rounding, and those are walked one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from . import kernels
from .followed import History
from .walk import Walk

__all__ = ["certified_layers"]

_MOST_IN_BATCH = 1024  # tokens per configuration up to which the batch kernel pays


def certified_layers(
    z: np.ndarray,
    A: np.ndarray | None,
    alpha: Fraction,
    mask: np.ndarray | None,
    saves: np.ndarray,
    progress: Callable[[int], Any] | None = None,
) -> tuple[np.ndarray, History]:
    """Tokens at the layers `saves`, shape (len(saves), *z.shape), and their history.

    z is float64, (n, d) or (*b, n, d); mask, shaped (*b, n), is False for padding, which stays as
    given and has -1 everywhere in the history. The sets of the last layer are decided too; they are
    in `History.records` for one configuration only. `progress(k)` is called with each layer
    reached; in a batch, with the number of configurations walked one by one.
    """
    if z.ndim == 2:
        return _one(z, A, alpha, mask, saves, progress)
    flat = z.reshape(-1, *z.shape[-2:])
    real = np.ones(flat.shape[:2], bool) if mask is None else mask.reshape(flat.shape[:2])
    states, history = _batch(flat, A, alpha, real, saves, progress)
    if z.ndim == 3:
        return states, history
    return states.reshape(len(saves), *z.shape), replace(
        history,
        born=history.born.reshape(z.shape[:-1]),
        settled_at=history.settled_at.reshape(z.shape[:-1]),
        leader=history.leader.reshape(z.shape[:-1]),
    )


def _one(
    z: np.ndarray,
    A: np.ndarray | None,
    alpha: Fraction,
    mask: np.ndarray | None,
    saves: np.ndarray,
    progress: Callable[[int], Any] | None,
) -> tuple[np.ndarray, History]:
    walk = Walk(z if mask is None else z[mask], A, alpha)
    states = np.empty((len(saves), *z.shape))
    states[:] = z
    for row, k in enumerate(saves.tolist()):
        while walk.k < k:
            if walk.settled:
                walk.skip(k)
            else:
                walk.advance()
            if progress is not None:
                progress(walk.k)
        states[row, slice(None) if mask is None else mask] = walk.state()
    if not walk.settled:
        walk.decide()  # the last layer's sets belong to the record
    history = walk.history()
    return states, history if mask is None else _pad(history, mask)


def _pad(history: History, mask: np.ndarray) -> History:
    """Put the rows of padding back, with -1 everywhere."""
    real = np.flatnonzero(mask)

    def spread(values: np.ndarray) -> np.ndarray:
        out = np.full(len(mask), -1, dtype=np.intp)
        out[real] = values
        return out

    assert history.label is not None
    return replace(
        history,
        born=spread(history.born),
        settled_at=spread(history.settled_at),
        leader=spread(np.where(history.leader >= 0, real[history.leader], -1)),
        label=spread(history.label),
    )


def _batch(
    z: np.ndarray,
    A: np.ndarray | None,
    alpha: Fraction,
    mask: np.ndarray,
    saves: np.ndarray,
    progress: Callable[[int], Any] | None,
) -> tuple[np.ndarray, History]:
    b, n, _ = z.shape
    if n <= _MOST_IN_BATCH:
        eta, rho = float(alpha / (1 + alpha)), float(1 / (1 + alpha))
        states, born, settled_at, leader, unsure = kernels.run_batch(z, mask, A, eta, rho, saves)
        again = np.flatnonzero(unsure)
    else:
        states = np.empty((len(saves), *z.shape))
        born, settled_at, leader = (np.full((b, n), -1, dtype=np.intp) for _ in range(3))
        again = np.arange(b)
    decisions = 0
    for done, i in enumerate(again.tolist()):
        states[:, i], one = _one(z[i], A, alpha, mask[i], saves, None)
        born[i], settled_at[i], leader[i] = one.born, one.settled_at, one.leader
        decisions += one.exact_decisions
        if progress is not None:
            progress(done)
    return states, History(born, settled_at, leader, decisions)
