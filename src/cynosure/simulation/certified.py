"""Certified hardmax layers: the sets C_i are those of exact arithmetic at every layer."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import log1p

import numpy as np

from .._types import Array, as_numpy, as_tokens, definite, is_torch, like
from ..dynamics import HardmaxLayers
from ..engine.followed import History
from ..engine.layers import carried_there, certified_layers
from .cycles import cycle_of, most_recent
from .plan import Plan, rows
from .status import Status, out_of_time, stopped, turning

_LONG = 2**15  # layers up to which a power of the rounded 1 + alpha will do


def certified(
    layers: HardmaxLayers, start: Array, plan: Plan
) -> tuple[Array, np.ndarray, History, Status]:
    """Certified layers in the numbers of the start, grown where nothing normalises them.

    Their whole history is one record, so a run that is to stop is begun again twice as long.
    """
    reach, known = len(plan.saves) if plan.stop is None else 64, 0
    while True:
        part = plan._replace(saves=plan.saves[:reach])
        states, saves, history, status = _walk(layers, start, part)
        states = like(states, start) if is_torch(start) else states.astype(start.dtype, copy=False)
        if not layers.normalised:
            states, saves, status = _grow(layers, states, saves, status, plan.mask)
        hit = plan.first(states, known)
        if hit is not None:
            states, status = states[: hit + 1], stopped(f"layer {saves[hit]}")
        if len(states) < len(saves):
            history = history.until(int(saves[len(states) - 1]))
        if hit is not None or status.early or reach >= len(plan.saves):
            return states, saves, history, status
        reach, known = 2 * reach, len(states)


def _walk(
    layers: HardmaxLayers, given: Array, plan: Plan
) -> tuple[Array, np.ndarray, History, Status]:
    """Certified hardmax layers of one configuration or a batch, and what became of them."""
    A = layers.attention.matrix(given.shape[-1])
    stays = carried_there(given)
    z = given.detach() if stays else as_tokens(given).astype(np.float64, copy=False)
    saves, mask, deadline, progress, _, _ = plan
    last, every = int(saves[-1]), saves
    if layers.normalised and not definite(A):  # else every run converges, or no state comes back
        every = np.union1d(saves, np.arange(max(last + 1 - most_recent(z), 0), last + 1))
    states, at, history = certified_layers(
        z, A, layers.alpha, mask, every, progress, deadline, given
    )
    if len(at) < len(every) or at[-1] != last:
        kept = np.isin(at, saves)
        kept[-1] = True  # the last one reached
        return states[rows(kept)], at[kept], history, out_of_time(f"layer {at[-1]}")
    status = _hardmax_status(z, A, mask, history, last)
    if len(every) > 1 and status.code != "settled":
        tail = states[int(np.flatnonzero(np.diff(at, prepend=-2) != 1)[-1]) :]
        status = turning(cycle_of(tail, last), status.notes) or status
    return states[rows(np.isin(at, saves))], saves, history, status


def _hardmax_status(
    z: Array, A: np.ndarray | None, mask: np.ndarray | None, history: History, layers: int
) -> Status:
    """Name what happened, and what the theory's hypotheses say about it."""
    real = np.ones(tuple(z.shape[:-1]), bool) if mask is None else mask
    notes, zero = [], 0
    if not bool(z.all()):  # looking for any zero first: short last axes are slow to reduce
        nothing = (z == 0).all(-1)
        zero = int((real & (nothing.cpu().numpy() if is_torch(nothing) else nothing)).sum())
    if zero:
        said = "their scores are all equal, so they follow every token."
        notes.append(f"{zero} zero token(s): {said}")
    if history.label is not None:
        copies = int(real.sum()) - int(history.label.max()) - 1
        if copies:
            notes.append(f"{copies} duplicate token(s): equal tokens count as one value class.")
    if history.exact_decisions:
        notes.append(f"{history.exact_decisions} near-tie(s) were decided in exact arithmetic.")
    spd = definite(A)
    if not spd:
        notes.append("A is not symmetric positive definite: convergence is not guaranteed.")
    open_ = int((real & (history.settled_at < 0)).sum())
    led = ((history.born >= 0) & real).any(axis=-1)
    if not open_:
        code, advice = "settled", ""
        message = f"every token's limit is proved from layer {int(history.settled_at.max())} on."
    elif not led.all():
        code, message = "no_leader", f"no token leads after {layers} layers."
        advice = "Use a symmetric positive definite A, for example (A + A.T)/2 made definite."
        if spd:
            advice = "Remove the zero tokens, or give distinct non-zero tokens."
    elif not spd:
        code = "not_converging"
        message = f"{open_} token(s) have no proved limit after {layers} layers."
        advice = "Use a symmetric positive definite A; cynosure.limit says which limits are proved."
    else:
        code, message = "moving", f"{open_} token(s) are still on their way after {layers} layers."
        advice = "More layers, or cynosure.limit, which decides ties and skips layers."
    return Status(code, message, advice, tuple(notes))


def _factors(base: Fraction, layers: np.ndarray, dtype: np.dtype) -> list[np.ndarray]:
    """base^k as one factor, or as two where it is larger than any float (and the tokens tiny)."""
    whole = _powers(base, layers, dtype)
    if np.isfinite(whole).all():
        return [whole]
    half = np.where(np.isfinite(whole), layers, layers / 2)
    return [_powers(base, k, dtype) for k in (half, layers - half)]


def _powers(base: Fraction, k: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """base^k, base > 1. Trap: its rounding counts k times, and 1 + 1e-17 rounds to 1."""
    rate = log1p(float(min(base - 1, Fraction(1))))  # beyond 1 long powers are infinite either way
    with np.errstate(over="ignore"):
        return np.where(k <= _LONG, float(base) ** k, np.exp(k * rate)).astype(dtype)


def _grow(
    layers: HardmaxLayers, states: Array, saves: np.ndarray, status: Status, mask: np.ndarray | None
) -> tuple[Array, np.ndarray, Status]:
    """(1 + alpha)^k times the normalised tokens, cut before the first layer that overflows."""
    here = as_numpy(states)
    dtype, base = here.dtype, layers.factor
    largest = np.abs(here.astype(np.float64)).reshape(len(saves), -1).max(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        size = np.log(largest) + saves * log1p(float(base - 1))
    fits = (size < np.log(np.finfo(dtype).max) - 1) | (saves == 0)  # the start is always a float
    stop = len(saves) if fits.all() else int(np.argmin(fits))
    grown = states[:stop]
    # tokens that are all zero stay so, whatever they are multiplied by
    times = np.where(largest[:stop] > 0, saves[:stop], 0).astype(float)
    for power in _factors(base, times, dtype):
        factor = power.reshape((stop,) + (1,) * (len(states.shape) - 1))
        if mask is not None:
            factor = np.where(mask[..., None], factor, dtype.type(1))  # padding never moves
        grown = grown * like(factor, states)
    if stop < len(saves):
        message = (
            f"tokens grow like (1 + alpha)^k and overflow before layer {saves[stop]}; "
            f"the run stops at layer {saves[stop - 1]}."
        )
        advice = "Use PureAttention: it has the same tokens divided by (1 + alpha)^k."
        status = Status("overflow", message, advice, status.notes)
    elif status.code == "settled":
        status = replace(status, code="moving", message="tokens grow like (1 + alpha)^k.")
    return grown, saves, status
