"""simulate(): from a dynamics and initial tokens to a trajectory.

Every trajectory of a dynamics is made here: layers by `_step`, flows by a stepper, hardmax layers
by `engine.layers.certified_layers`. That one is also what the classifier's model calls for many
texts at once, where only the last layer counts; `limit` goes on with the same walk until all is
proved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from math import log1p
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from .._deadline import Deadline
from .._types import (
    Array,
    as_array,
    as_mask,
    as_number,
    as_token_tensor,
    as_tokens,
    as_whole,
    carries_gradient,
    definite,
    is_torch,
    like,
    namespace,
)
from ..dynamics import Dynamics, Flow, HardmaxLayers, LayerMap
from ..engine.followed import History
from ..engine.layers import carried_there, certified_layers
from .status import Status, out_of_time
from .steppers import RK4, Adaptive, Reached, Stepper
from .trajectory import Trajectory

__all__ = ["simulate"]

_MOST_SAVED = 10_000_000
_LONG = 2**15  # layers up to which a power of the rounded 1 + alpha will do


def simulate(
    dynamics: Dynamics,
    z0: Array,
    *,
    layers: SupportsIndex | float | None = None,
    time: float | SupportsIndex | None = None,
    times: Array | Sequence[float] | None = None,
    stepper: Stepper | None = None,
    mask: Array | None = None,
    words: Sequence[str] | None = None,
    save_every: SupportsIndex | float = 1,
    throw: bool = True,
    progress: Callable[[Any], Any] | None = None,
    deadline: float | int | None = None,
) -> Trajectory:
    """Run `dynamics` from the tokens z0 of shape (*b, n, d): a LayerMap for `layers` layers, a
    Flow up to `time` or at the given `times`.

    NumPy arrays and torch tensors; float64 by default, float32 stays float32 (the walk itself is
    in float64), integer tensors take torch's default. Layer 0 is the input; every `save_every`-th
    layer (or time) and the last are saved.
    `mask` (*b, n) marks real tokens: padding never moves, never attends, is never attended to.
    A failed run raises with advice, or is returned with its status when throw=False.
    `progress(k)` is called after each layer, with the time reached for a flow. After `deadline`
    seconds the run ends with the states it has and the one it reached, its status "deadline".

    Hardmax runs take the sets C_i of exact arithmetic on the given floats at every layer, see
    `engine.walk`; a tensor that requires gradients is stepped by torch instead, so that the
    layers can be differentiated (then ties are those of each rounded layer).

    Flows are integrated by `stepper`: Adaptive() unless given, RK4(dt=0.01) for tensors that
    require gradients. Saved are 101 equally spaced times, every step of a fixed stepper, or
    exactly `times`. A matrix or an alpha that requires a gradient gets one where torch can follow
    it, which needs tokens that are a tensor; the run records their values.

    Examples
    --------
    >>> import cynosure as cy
    >>> tr = cy.simulate(cy.PureAttention(alpha=0.5), [[2.0, 0.0], [1.0, 0.5]], layers=3)
    >>> tr.z.shape
    (4, 2, 2)
    """
    if not isinstance(dynamics, LayerMap | Flow):
        raise TypeError(
            f"dynamics: expected a LayerMap such as PureAttention() or a Flow, got {dynamics!r}"
        )
    _check_clock(dynamics, layers, time, times, stepper)
    every = as_whole(save_every, "save_every", 1)
    start = as_token_tensor(z0, "z0") if is_torch(z0) else as_tokens(z0, "z0")
    real = as_mask(mask, tuple(start.shape[:-1]))
    if words is not None and len(words) != start.shape[-2]:
        raise ValueError(f"words: expected {start.shape[-2]} names, got {len(words)}")
    trained = _trained(dynamics, z0)
    graph = trained or carries_gradient(start)
    until = Deadline(deadline)
    history = None
    if dynamics.in_time:
        stepper = stepper or (RK4(0.01) if graph else Adaptive())
        plan = _Plan(_times(time, times, stepper, every), real, until, progress)
        states, saves, status = _flow(dynamics, start, stepper, plan)
    else:
        plan = _Plan(_layers(layers, every), real, until, progress)
        certified = dynamics.hardmax_layers
        if certified is None or graph:
            states, saves, status = _step(dynamics, start, plan)
        else:
            states, saves, history, status = _walk(certified, start, plan)
            if is_torch(start):
                states = like(states, start)
            else:
                states = states.astype(start.dtype, copy=False)
            if not certified.normalised:
                states, saves, status = _grow(certified, states, saves, status, real)
                if len(states) < len(saves):
                    history = history.until(int(saves[len(states) - 1]))
    if status.failed and throw:
        raise (OverflowError if status.code == "overflow" else ArithmeticError)(str(status))
    return Trajectory(
        z=states,
        t=saves[: len(states)],
        status=status,
        dynamics=_values_of(dynamics) if trained else dynamics,
        mask=real,
        words=None if words is None else tuple(words),
        history=history,
        stepper=stepper,
    )


class _Plan(NamedTuple):
    """When to save, whom to move, when to end and whom to tell."""

    saves: np.ndarray  # layers or times, increasing
    mask: np.ndarray | None
    deadline: Deadline
    progress: Callable[[Any], Any] | None


def _trained(value: Any, z0: Array) -> bool:
    """Does a parameter of the dynamics require a gradient, and are the tokens fit for one?"""
    if carries_gradient(value):
        if not is_torch(z0):
            raise TypeError(
                "z0: a parameter of the dynamics requires a gradient, which needs tokens that "
                "are a torch tensor; pass torch.tensor(z0), or the parameter detached"
            )
        return True
    if isinstance(value, list | tuple):
        return any([_trained(part, z0) for part in value])
    if is_dataclass(value):
        return any([_trained(getattr(value, f.name), z0) for f in fields(value) if f.init])
    return False


def _values_of(value: Any) -> Any:
    """A dynamics with the numbers of its trained parameters: a record keeps no graph."""
    if carries_gradient(value):
        plain = value.detach().cpu().numpy()
        return plain if plain.ndim else float(plain)
    if isinstance(value, list | tuple):
        return tuple(_values_of(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: _values_of(getattr(value, f.name)) for f in fields(value) if f.init}
        )
    return value


def _check_clock(
    dynamics: Dynamics, layers: Any, time: Any, times: Any, stepper: Stepper | None
) -> None:
    """Layers for a LayerMap, time or times for a Flow, and nothing else."""
    name = type(dynamics).__name__
    if dynamics.in_time:
        if layers is not None or (time is None) == (times is None):
            raise ValueError(
                f"time: {name} runs in continuous time; pass either time=T or times=[...]"
                + ("" if layers is None else ", not layers")
            )
        if stepper is not None and not isinstance(stepper, Stepper):
            raise TypeError(f"stepper: expected a stepper such as RK4(dt=0.1), got {stepper!r}")
    elif layers is None or not (time is None and times is None and stepper is None):
        raise ValueError(f"layers: {name} runs in layers; pass layers=K and no time or stepper")


def _times(time: Any, times: Any, stepper: Stepper, every: int) -> np.ndarray:
    """The times to save: those given, or those the stepper proposes up to `time`."""
    if times is None:
        finite = as_number(time, "time", "a finite time >= 0", lambda t: 0 <= t < float("inf"))
        grid = stepper.grid(finite)
    else:
        grid = as_array(times, "times", "increasing numbers >= 0, one per saved state")
        if grid.ndim != 1 or not len(grid) or not (np.diff(grid, prepend=-1.0) > 0).all():
            raise ValueError("times: expected increasing numbers >= 0, one per saved state")
        if grid[0] < 0 or not np.isfinite(grid).all():
            raise ValueError("times: expected increasing finite numbers >= 0, starting at t = 0")
    return np.append(grid[:-1:every], grid[-1])


def _layers(layers: Any, every: int) -> np.ndarray:
    """The layers to save: every so many, and the last."""
    last = as_whole(layers, "layers", 0)
    if last // every > _MOST_SAVED:
        raise ValueError(
            f"layers: {last} layers, of which {last // every} would be saved; "
            f"save_every={-(-last // 1000)} saves a thousand"
        )
    saved = np.arange(0, last + 1, every)
    return saved if saved[-1] == last else np.append(saved, last)


def _flow(flow: Flow, z: Array, stepper: Stepper, plan: _Plan) -> tuple[Array, np.ndarray, Status]:
    """A flow at the times asked for, from tokens put on its manifold."""
    start, note = _on_manifold(flow, z, plan.mask)
    states, times, status = _by_pieces(flow, start, stepper, plan)
    return states, times, replace(status, notes=status.notes + note)


def _by_pieces(flow: Flow, z: Array, stepper: Stepper, plan: _Plan) -> Reached:
    """Piece after piece, each from where the last ended: no step straddles a jump of the flow."""
    states: list[Array] = []
    times: list[np.ndarray] = []
    notes: dict[str, None] = {}
    grid, mask, deadline, progress = plan
    for piece, begin, end in flow.pieces(float(grid[-1])):
        asked = grid[(grid <= end) & ((grid > begin) | (begin == 0))]
        stops = np.union1d(asked, end)
        part = stepper.integrate(piece, z, stops, mask, progress, deadline, since=begin)
        shown = np.isin(part.times, asked)
        if part.status.code == "deadline":
            shown[-1:] = True  # where it came to, asked for or not
        states.append(part.states[: len(shown)][_rows(shown)])
        times.append(part.times[shown])
        notes |= dict.fromkeys(part.status.notes)
        if part.status.early:
            break
        z = part.states[-1]
    at = np.concatenate(times)
    new = np.diff(at, prepend=-1.0) > 0  # a piece may end before its first step
    together = namespace(z).concat(states)[_rows(new)]
    return Reached(together, at[new], replace(part.status, notes=tuple(notes)))


def _rows(chosen: np.ndarray) -> slice | list[int]:
    """Indices that arrays and tensors both take; no copy where all are chosen."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen).tolist()


def _on_manifold(flow: Flow, z: Array, mask: np.ndarray | None) -> tuple[Array, tuple[str, ...]]:
    """The start retracted, padding as given, and a note if that changed it by more than rounding.

    Trap: a token that is its own negative, zero, has no place on a sphere.
    """
    moved = flow.retract(z)
    if moved is z:
        return z, ()
    before, after = as_tokens(z), as_tokens(moved)
    real = np.ones(before.shape[:-1], bool) if mask is None else mask
    if (real & (after == 0).all(axis=-1)).any():
        raise ValueError("z0: a zero token has no direction, so no place on the sphere; drop it")
    far = np.abs(after - before).max(axis=-1) > 16 * np.finfo(before.dtype).eps
    count = int((real & far).sum())
    if not count:
        if not carries_gradient(z):
            return z, ()
        # As given to the last bit, but as a function of what was given: lengths do not matter.
        moved = moved + (z - moved).detach()
    if mask is not None:
        from array_api_compat import device

        xp = namespace(z)
        moved = xp.where(xp.asarray(mask[..., None], device=device(z)), moved, z)
    return moved, (f"{count} token(s) were put on the sphere at t = 0.",) if count else ()


def _step(dynamics: LayerMap, z: Array, plan: _Plan) -> tuple[Array, np.ndarray, Status]:
    """The plain loop over layers, on whatever arrays came in."""
    xp = namespace(z)
    saves, mask, deadline, progress = plan
    keep = None if mask is None else xp.asarray(mask[..., None], device=z.device)
    start, out, wanted = z, [z], set(saves.tolist())
    for k in range(int(saves[-1])):
        if deadline.passed:
            at = saves[: len(out)]
            if at[-1] < k:
                out, at = [*out, z], np.append(at, k)
            return xp.stack(out), at, out_of_time(f"layer {k}")
        with np.errstate(over="ignore", invalid="ignore"):  # reported as a status below
            z = dynamics.step(z, k, mask=mask)
        if keep is not None:
            z = xp.where(keep, z, start)
        if not bool(xp.all(xp.isfinite(z))):
            where = f"a coordinate overflowed at layer {k + 1}"
            advice = "Use the normalised layer or a smaller alpha."
            return xp.stack(out), saves[: len(out)], Status("overflow", where, advice)
        if k + 1 in wanted:
            out.append(z)
        if progress is not None:
            progress(k + 1)
    return xp.stack(out), saves, _stepped(dynamics, int(saves[-1]))


def _stepped(dynamics: LayerMap, layers: int) -> Status:
    if dynamics.attention is not None and dynamics.attention.hard:
        message = "ties were decided on the rounded tokens of each layer."
        detach = "Detach the tensor for the certified walk." if dynamics.hardmax_layers else ""
        return Status("rounded_ties", message, detach)
    return Status("moving", f"{layers} layers of {type(dynamics).__name__} done.")


def _walk(
    layers: HardmaxLayers, given: Array, plan: _Plan
) -> tuple[Array, np.ndarray, History, Status]:
    """Certified hardmax layers of one configuration or a batch, and what became of them."""
    A = layers.attention.matrix(given.shape[-1])
    stays = carried_there(given)
    z = given.detach() if stays else as_tokens(given).astype(np.float64, copy=False)
    saves, mask, deadline, progress = plan
    states, at, history = certified_layers(
        z, A, layers.alpha, mask, saves, progress, deadline, given
    )
    if len(at) < len(saves) or at[-1] != saves[-1]:
        return states, at, history, out_of_time(f"layer {at[-1]}")
    return states, at, history, _hardmax_status(z, A, mask, history, int(saves[-1]))


def _hardmax_status(
    z: Array, A: np.ndarray | None, mask: np.ndarray | None, history: History, layers: int
) -> Status:
    """Name what happened, and what the theory's hypotheses say about it."""
    real = np.ones(tuple(z.shape[:-1]), bool) if mask is None else mask
    notes = []
    # looking for any zero first: short last axes are slow to reduce
    zero = 0
    if not bool(z.all()):
        nothing = (z == 0).all(-1)
        zero = int((real & (nothing.cpu().numpy() if is_torch(nothing) else nothing)).sum())
    if zero:
        notes.append(
            f"{zero} zero token(s): their scores are all equal, so they follow every token."
        )
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
        last = int(history.settled_at.max())
        return Status(
            "settled", f"every token's limit is proved from layer {last} on.", "", tuple(notes)
        )
    if not led.all():
        if spd:
            advice = "Remove the zero tokens, or give distinct non-zero tokens."
        else:
            advice = "Use a symmetric positive definite A, for example (A + A.T)/2 made definite."
        return Status("no_leader", f"no token leads after {layers} layers.", advice, tuple(notes))
    if not spd:
        advice = "Use a symmetric positive definite A; cynosure.limit says which limits are proved."
        message = f"{open_} token(s) have no proved limit after {layers} layers."
        return Status("not_converging", message, advice, tuple(notes))
    advice = "More layers, or cynosure.limit, which decides ties and skips layers."
    message = f"{open_} token(s) are still on their way after {layers} layers."
    return Status("moving", message, advice, tuple(notes))


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
    layers: HardmaxLayers,
    states: Array,
    saves: np.ndarray,
    status: Status,
    mask: np.ndarray | None,
) -> tuple[Array, np.ndarray, Status]:
    """(1 + alpha)^k times the normalised tokens, cut before the first layer that overflows."""
    base = layers.factor
    here = states.detach().cpu().numpy() if is_torch(states) else states
    dtype = here.dtype
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
        status = Status(
            "overflow",
            f"tokens grow like (1 + alpha)^k and leave the floats before layer {saves[stop]}; "
            f"the run stops at layer {saves[stop - 1]}.",
            "Use PureAttention: it has the same tokens divided by (1 + alpha)^k.",
            status.notes,
        )
    elif status.code == "settled":
        status = replace(status, code="moving", message="tokens grow like (1 + alpha)^k.")
    return grown, saves, status
