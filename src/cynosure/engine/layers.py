"""Certified hardmax layers of one configuration or of many: states, and who led since when.

One configuration is a `Walk`. Many small ones go through one compiled call (`kernels.run_batch`);
it says of which it is unsure, and those are walked one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .._deadline import Deadline
from .._types import Array, as_floats, is_torch, like, namespace
from . import kernels
from .budget import Budget, Exhausted
from .followed import History
from .gpu import there
from .walk import Walk

_MOST_IN_BATCH = 1024  # tokens per configuration up to which the batch kernel pays
_MOST_LAYERS = 20_000  # layers up to which it is asked: it walks all of them, if it must
_PART = 1e9  # products of a compiled call that is to end by a deadline


class _Run(NamedTuple):
    """What is asked of every configuration."""

    A: np.ndarray | None
    alpha: Fraction
    saves: np.ndarray
    progress: Callable[[int], Any] | None
    deadline: Deadline


def carried_there(z: Array) -> bool:
    """True for a batch of small configurations on a device that carries it through its layers.

    `certified_layers` takes it as it is: only what the device leaves undecided is copied.
    """
    return is_torch(z) and z.ndim > 2 and kernels.runs_there(z)


def _rows(z: Array, which: Any) -> np.ndarray:
    """z[which] as float64 on the host."""
    return z[which].detach().cpu().numpy().astype(np.float64) if is_torch(z) else z[which]


def certified_layers(
    z: Array,
    A: np.ndarray | None,
    alpha: Fraction,
    mask: np.ndarray | None,
    saves: np.ndarray,
    progress: Callable[[int], Any] | None = None,
    deadline: Deadline | None = None,
    given: Array | None = None,
) -> tuple[Array, np.ndarray, History]:
    """Tokens at the layers `saves`, shape (len(saves), *z.shape), these layers, and their history.

    When the deadline passes before, the layers given are those of `saves` that were reached, and
    the last one reached; of a batch, layer 0 only. The sets of the last layer are decided too.

    z is float64, (*b, n, d), or a tensor that is `carried_there`; mask, shaped (*b, n), is False
    for padding, which stays as given and has -1 everywhere in the history. `progress(k)` is called
    with each layer reached; in a batch, with the number of configurations walked one by one.
    `given` are the tokens as the caller has them: one large configuration on a GPU, or a batch of
    small ones, is walked there and comes back as a float64 tensor.
    """
    run = _Run(A, alpha, saves, progress, deadline or Deadline(None))
    if z.ndim == 2:
        return _one(z, mask, run, None if given is None else there(given, mask))
    flat = z.reshape(-1, *z.shape[-2:])
    real = np.ones(tuple(flat.shape[:2]), bool) if mask is None else mask.reshape(flat.shape[:2])
    states, at, history = _batch(flat, real, run, given)
    if z.ndim == 3:
        return states, at, history
    born, settled_at, leader = (
        x.reshape(tuple(z.shape[:-1])) for x in (history.born, history.settled_at, history.leader)
    )
    shaped = replace(history, born=born, settled_at=settled_at, leader=leader)
    return states.reshape(len(at), *z.shape), at, shaped


def _one(
    z: np.ndarray, mask: np.ndarray | None, run: _Run, far: Array | None = None
) -> tuple[Array, np.ndarray, History]:
    A, alpha, saves, progress, deadline = run
    tokens = z if mask is None else z[mask]
    walk = Walk(tokens, A, alpha, budget=Budget(deadline=deadline), there=far)
    states: list[Array] = []
    at = saves

    def save() -> None:
        state = walk.state()
        if mask is not None:
            whole = like(z.copy(), state)
            whole[np.flatnonzero(mask).tolist()] = state
            state = whole
        states.append(state)

    try:
        for k in saves.tolist():
            while walk.k < k:
                if walk.settled:
                    walk.skip(k)
                else:
                    walk.budget.look()
                    walk.advance()
                if progress is not None:
                    progress(walk.k)
            save()
    except Exhausted:
        at = saves[: len(states)]
        if not len(at) or at[-1] < walk.k:
            save()
            at = np.append(at, walk.k)
    walk.budget = Budget()
    if not walk.settled:
        walk.decide()  # the last layer's sets belong to the record, deadline or not
    history = walk.history()
    return namespace(states[0]).stack(states), at, history if mask is None else _pad(history, mask)


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
    z: Array, mask: np.ndarray, run: _Run, given: Array | None
) -> tuple[Array, np.ndarray, History]:
    found, saves, progress = _compiled(z, mask, run, given), run.saves, run.progress
    if found is None:
        return _only_first_layer(_rows(z, slice(None)), saves)
    states, born, settled_at, leader, unsure = found
    decisions = 0
    for done, i in enumerate(np.flatnonzero(unsure).tolist()):
        one, at, past = _one(_rows(z, i), mask[i], run._replace(progress=None))
        if len(at) < len(saves) or at[-1] != saves[-1]:
            return _only_first_layer(_rows(z, slice(None)), saves)
        states[:, i] = like(one, states)
        born[i], settled_at[i], leader[i] = past.born, past.settled_at, past.leader
        decisions += past.exact_decisions
        if progress is not None:
            progress(done)
    return states, saves, History(born, settled_at, leader, decisions)


def _compiled(
    z: Array, mask: np.ndarray, run: _Run, given: Array | None
) -> kernels.BatchRun | None:
    """What floats decide: on the device of `given`, then in the kernel of the processor.

    None when the deadline passes before. A compiled call cannot be stopped: until a deadline a
    batch takes it in parts, and too large configurations are left to the walk.
    """
    A, alpha, saves, _, deadline = run
    b, n, d = z.shape
    eta, rho = float(alpha / (1 + alpha)), float(1 / (1 + alpha))
    one = float(saves[-1] + 1) * n * n * d
    few = kernels.walked_sooner(b, saves[-1] + 1, n, d) and not is_torch(z)
    walked = few or n > _MOST_IN_BATCH or saves[-1] > _MOST_LAYERS
    if walked or (deadline.left is not None and one > _PART):
        born, settled_at, leader = (np.full((b, n), -1, dtype=np.intp) for _ in range(3))
        states = np.empty((len(saves), *z.shape))
        return kernels.BatchRun(states, born, settled_at, leader, unsure=np.ones(b, bool))
    if given is not None and carried_there(given):
        far = as_floats(given).detach().reshape(b, n, d).double()
        found = kernels.run_batch(far, mask, A, eta, rho, saves)
        some = np.flatnonzero(found.unsure)  # equal tokens among them
        if len(some):
            near = kernels.run_batch(_rows(z, some.tolist()), mask[some], A, eta, rho, saves)
            found.z[:, some.tolist()] = like(near.z, found.z)
            for there, here in zip(found[1:], near[1:], strict=True):
                there[some] = here
        return found
    if deadline.left is None:
        return kernels.run_batch(z, mask, A, eta, rho, saves)
    at_once, parts = int(_PART / one), []
    for start in range(0, b, at_once):
        if deadline.passed:
            return None
        part = slice(start, start + at_once)
        parts.append(kernels.run_batch(z[part], mask[part], A, eta, rho, saves))
    tokens = np.concatenate([part.z for part in parts], axis=1)
    rest = (np.concatenate(column) for column in list(zip(*parts, strict=True))[1:])
    return kernels.BatchRun(tokens, *rest)


def _only_first_layer(z: np.ndarray, saves: np.ndarray) -> tuple[np.ndarray, np.ndarray, History]:
    """A batch whose time is over: its configurations have only the start in common."""
    unknown = np.full(z.shape[:-1], -1, dtype=np.intp)
    return z[None].copy(), np.zeros(1, dtype=saves.dtype), History(unknown, unknown, unknown)
