"""simulate(): from a dynamics and initial tokens to a trajectory.

Layers are made by `_step`, flows by a stepper, hardmax layers by `certified`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any, SupportsIndex

import numpy as np

from .._deadline import Deadline
from .._progress import Progress, showing
from .._types import (
    Array,
    as_mask,
    as_numpy,
    as_token_tensor,
    as_tokens,
    as_whole,
    carries_gradient,
    is_torch,
    namespace,
)
from ..attention.scores import device_of
from ..dynamics import Dynamics, Flow, LayerMap
from ..dynamics.functions import as_dynamics
from .certified import certified
from .cycles import Cycle, Recent
from .plan import Plan, layers_saved, rows, times_saved
from .status import Status, drowned, gathered, out_of_time, stopped, turning
from .steppers import RK4, Adaptive, Reached, Stepper
from .trajectory import Trajectory

_ROUNDED = 100  # units of rounding that a coordinate of a flow has lost, at most


def simulate(
    dynamics: Dynamics | Callable[..., Array],
    z0: Array,
    *,
    layers: SupportsIndex | float | None = None,
    time: float | SupportsIndex | None = None,
    times: Array | Sequence[float] | None = None,
    stepper: Stepper | None = None,
    mask: Array | None = None,
    words: Sequence[str] | None = None,
    save_every: SupportsIndex | float = 1,
    stop_when: Callable[[Array], Any] | None = None,
    throw: bool = True,
    progress: Progress = None,
    deadline: float | int | None = None,
) -> Trajectory:
    """Runs tokens through layers or time and returns the run. This is the main entry point.

    Hardmax runs take the sets C_i of exact arithmetic on the given floats at every layer. A tensor
    that requires gradients is stepped by torch instead; ties are then those of the rounded layers.

    Parameters
    ----------
    dynamics
        A LayerMap, which runs for `layers`, or a Flow, which runs in time. A function f(z, k) gives
        the next layer, a function v(z, t) a velocity.
    z0
        Tokens (*b, n, d): leading axes are a batch. NumPy arrays and torch tensors; float64 by
        default, float32 stays float32. Layer 0 of the run is z0.
    layers
        The number of layers.
    time, times
        The end of a flow, or all times that are saved. `time` saves 101 of them, or every step of a
        stepper with a fixed step.
    mask
        True for real tokens (*b, n). Padding never moves and is never attended to.
    words
        A name for each token.
    save_every
        Saves each layer (or time) whose number it divides, and the last.
    stop_when
        A function of a saved state. The run ends with the first for which it is true, for example
        `lambda z: cy.clusters(z).count <= 2`. A flow is followed backwards to the moment itself.
    stepper
        How a flow is integrated: Adaptive() by default, RK4(dt=0.01) for tensors with gradients.
    throw
        False returns a failed run with its status instead of raising.
    progress
        None shows a bar after a second in a notebook or terminal, False never. A function is called
        with the layer or time after each step.
    deadline
        Seconds after which the run ends with the states it has; its status is "deadline".

    Returns
    -------
    Trajectory
        The states `z`, their layers or times `t`, and a `status` that says how it ended.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit.
    OverflowError, ArithmeticError
        If the run fails and `throw` is true; the message says what to do.

    Examples
    --------
    >>> import cynosure as cy
    >>> tr = cy.simulate(cy.PureAttention(alpha=0.5), [[2.0, 0.0], [1.0, 0.5]], layers=3)
    >>> tr.z.shape
    (4, 2, 2)
    >>> cy.simulate(cy.SphereFlow(), cy.configurations.sphere(5, 3), time=2.0).t[-1].item()
    2.0
    """
    dynamics = as_dynamics(dynamics, in_time=time is not None or times is not None)
    _check_signature(dynamics)
    _check_clock(dynamics, layers, time, times, stepper)
    every = as_whole(save_every, "save_every", 1)
    start = as_token_tensor(z0, "z0") if is_torch(z0) else as_tokens(z0, "z0")
    real = as_mask(mask, tuple(start.shape[:-1]))
    if words is not None and len(words) != start.shape[-2]:
        raise ValueError(f"words: expected {start.shape[-2]} names, got {len(words)}")
    start, stop_when = _with_state(dynamics, start, stop_when)
    trained = _trained(dynamics, z0)
    graph = trained or carries_gradient(start)
    history = None
    if isinstance(dynamics, Flow):
        stepper = stepper or (RK4(0.01) if graph else Adaptive())
    grid = times_saved(time, times, stepper, every) if stepper else layers_saved(layers, every)
    name = f"running {type(dynamics).__name__}"
    with showing(progress, name, float(grid[-1]), " time" if stepper else " layers") as tell:
        plan = Plan(grid, real, Deadline(deadline), tell, stop_when)
        hardmax = None if graph else dynamics.hardmax_layers
        if hardmax is None:
            states, saves, status = _followed(dynamics, start, stepper, plan)
        else:
            states, saves, history, status = certified(hardmax, start, plan)
    if throw:
        _raise_failed(status)
    run = Trajectory(
        z=dynamics.observe(states),
        t=saves[: len(states)],
        status=status,
        dynamics=_values_of(dynamics) if trained else dynamics,
        mask=real,
        words=None if words is None else tuple(words),
        history=history,
        stepper=stepper,
    )
    return _at_rest(run)


def continued(
    run: Trajectory,
    *,
    layers: SupportsIndex | float | None = None,
    time: float | SupportsIndex | None = None,
    save_every: SupportsIndex | float = 1,
    stop_when: Callable[[Array], Any] | None = None,
    progress: Progress = None,
    deadline: float | int | None = None,
) -> Trajectory:
    """See `Trajectory.continued`."""
    dynamics, last = run.dynamics, run.t[-1].item()
    if dynamics is None:
        raise ValueError(
            "run: does not say what made it, so it cannot go on (dynamics of your own are not "
            "saved); simulate(your_dynamics, run.z[-1], ...) starts from its last state"
        )
    if dynamics.hidden:
        why = f"a state of {type(dynamics).__name__} is more than its tokens"
        advice = "a run keeps the tokens only; simulate it from the start, for longer"
        raise ValueError(f"run: {why}, and {advice}")
    _check_clock(dynamics, layers, time, None, None)
    every = as_whole(save_every, "save_every", 1)
    stepper = (run.stepper or Adaptive()) if dynamics.in_time else None
    more = times_saved(time, None, stepper, every) if stepper else layers_saved(layers, every)
    how: dict[str, Any] = {"stop_when": stop_when, "progress": progress, "deadline": deadline}
    hardmax = dynamics.hardmax_layers is not None
    if hardmax and run.t[0] == 0 and run.history is not None:  # one record of who follows whom
        grid = np.union1d(run.t, last + more)
        how |= {"save_every": int(np.gcd.reduce(grid)) or 1, "mask": run.mask, "words": run.words}
        whole = simulate(dynamics, run.z[0], layers=int(grid[-1]), **how)
        kept = np.isin(whole.t, grid)
        kept[-1] = True
        return replace(whole, z=whole.z[rows(kept)], t=whole.t[kept])
    if len(more) < 2:
        return run
    name, unit = f"running {type(dynamics).__name__}", " time" if stepper else " layers"
    with showing(progress, name, float(last + more[-1]), unit) as tell:
        plan = Plan(last + more, run.mask, Deadline(deadline), tell, stop_when, last)
        states, t, status = _followed(dynamics, run.z[-1], stepper, plan)
    _raise_failed(status)
    states = namespace(run.z).concat([run.z, states[1:]])
    t = np.concatenate([run.t, t[1 : len(states)]])
    return _at_rest(replace(run, z=states, t=t, status=status, history=None, stepper=stepper))


def _raise_failed(status: Status) -> None:
    if status.failed:
        raise (OverflowError if status.code == "overflow" else ArithmeticError)(str(status))


def _with_state(
    dynamics: Dynamics, z: Array, stop: Callable[[Array], Any] | None
) -> tuple[Array, Callable[[Array], Any] | None]:
    """The state that starts from the tokens z, and `stop` asked of the tokens of a state."""
    if not dynamics.hidden:
        return z, stop
    state, name = dynamics.begin(z), type(dynamics).__name__
    seen = tuple(dynamics.observe(state).shape)
    if tuple(state.shape[:-1]) != tuple(z.shape[:-1]) or seen != tuple(z.shape):
        raise ValueError(
            f"{name}: expected begin(z) of shape (*b, n, any) and observe(begin(z)) of shape "
            f"{tuple(z.shape)}, got {tuple(state.shape)} and {seen}"
        )
    return state, None if stop is None else lambda s: stop(dynamics.observe(s))


def _at_rest(run: Trajectory) -> Trajectory:
    """The run, its status with the clusters in which it has come to rest."""
    code = {"moving": "clusters", "done": "done"}.get(run.status.code)
    if code is None or run.history is not None or run.made_by.grows or run.z.ndim != 3:
        return run
    if is_torch(run.z):  # a copy to the processor for a word about it
        return run
    if said := gathered(run.tokens, run.t, "time" if run.in_time else "layer"):
        status = replace(run.status, code=code, message=f"{said}; {run.status.message}")
        return replace(run, status=status)
    return run


def _trained(value: Any, z0: Array) -> bool:
    """Does a parameter of the dynamics require a gradient, and are the tokens fit for one?"""
    if carries_gradient(value):
        if not is_torch(z0):
            raise TypeError(
                "z0: a parameter of the dynamics requires a gradient, which needs tokens that "
                "are a torch tensor; pass torch.tensor(z0), or the parameter detached"
            )
        return True
    parts = value if isinstance(value, list | tuple) else []
    if is_dataclass(value):
        parts = [getattr(value, f.name) for f in fields(value) if f.init]
    return any([_trained(part, z0) for part in parts])


def _values_of(value: Any) -> Any:
    """A dynamics with the numbers of its trained parameters: a record keeps no graph."""
    if carries_gradient(value):
        plain = as_numpy(value)
        return plain if plain.ndim else float(plain)
    if isinstance(value, list | tuple):
        return tuple(_values_of(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _values_of(getattr(value, f.name)) for f in fields(value) if f.init}
        return replace(value, **parts)
    return value


def _check_signature(dynamics: Dynamics) -> None:
    """A dynamics of somebody's own must take what it is called with."""
    kind, name = ("velocity", "t") if isinstance(dynamics, Flow) else ("step", "k")
    method = getattr(type(dynamics), kind)
    if method.__module__.partition(".")[0] == __package__.partition(".")[0]:
        return
    try:
        signature(method).bind(dynamics, None, 0, mask=None)
    except TypeError:
        what = f"{type(dynamics).__name__}.{kind}{signature(method)}: it is called with the tokens"
        advice = f"write `def {kind}(self, z, {name}, *, mask=None):`"
        raise TypeError(f"{what}, {name} and mask=; {advice}") from None


def _check_clock(
    dynamics: Dynamics, layers: Any, time: Any, times: Any, stepper: Stepper | None
) -> None:
    """Layers for a LayerMap, time or times for a Flow, and nothing else."""
    name = type(dynamics).__name__
    if dynamics.in_time:
        if layers is not None or (time is None) == (times is None):
            advice = "pass either time=T or times=[...]" + ", not layers" * (layers is not None)
            raise ValueError(f"time: {name} runs in continuous time; {advice}")
        if stepper is not None and not isinstance(stepper, Stepper):
            raise TypeError(f"stepper: expected a stepper such as RK4(dt=0.1), got {stepper!r}")
    elif layers is None or not (time is None and times is None and stepper is None):
        raise ValueError(f"layers: {name} runs in layers; pass layers=K and no time or stepper")


def _followed(
    dynamics: Dynamics, z: Array, stepper: Stepper | None, plan: Plan
) -> tuple[Array, np.ndarray, Status]:
    """Layers one by one, or a flow at the times asked for, from tokens put on its manifold."""
    if not isinstance(dynamics, Flow):
        assert isinstance(dynamics, LayerMap)
        return _step(dynamics, z, plan)
    assert stepper is not None
    z, note = _on_manifold(dynamics, z, plan.mask) if plan.since == 0 else (z, ())
    states, times, status = _by_pieces(dynamics, z, stepper, plan)
    return states, times, replace(status, notes=status.notes + note)


def _by_pieces(flow: Flow, z: Array, stepper: Stepper, plan: Plan) -> Reached:
    """Piece after piece, each from where the last ended: no step straddles a jump of the flow."""
    states: list[Array] = []
    times: list[np.ndarray] = []
    notes: dict[str, None] = {}
    grid, since = plan.saves, plan.since
    for piece, begin, end in _shorter(flow.pieces(float(grid[-1])), plan):
        if end <= since < grid[-1]:
            continue
        begin = max(begin, float(since))
        asked = grid[(grid <= end) & ((grid > begin) | (begin == since))]
        stops = np.union1d(asked, end)
        part = stepper.integrate(piece, z, plan._replace(saves=stops, since=begin))
        part = _readable(piece, part, plan.mask)
        shown = np.isin(part.times, asked)
        if part.status.code == "deadline":
            shown[-1:] = True  # where it came to, asked for or not
        states.append(part.states[: len(shown)][rows(shown)])
        times.append(part.times[shown])
        notes |= dict.fromkeys(part.status.notes)
        hit = plan.first(states[-1])
        if hit is not None:
            before = (z, begin) if hit == 0 else (states[-1][hit - 1], float(times[-1][hit - 1]))
            t = float(times[-1][hit])
            if begin < t:
                z, t = _moment(piece, *before, t, stepper, plan)
            else:
                z = states[-1][hit]
            states[-1] = namespace(z).concat([states[-1][:hit], z[None]])
            times[-1] = np.append(times[-1][:hit], t)
            part = part._replace(status=stopped(f"t = {t:g}"))
        if part.status.early:
            break
        z = part.states[-1]
    at = np.concatenate(times)
    new = np.diff(at, prepend=-1.0) > 0  # a piece may end before its first step
    together = namespace(z).concat(states)[rows(new)]
    return Reached(together, at[new], replace(part.status, notes=tuple(notes)))


def _shorter(
    pieces: Iterator[tuple[Flow, float, float]], plan: Plan
) -> Iterator[tuple[Flow, float, float]]:
    """The pieces, cut after 16, 32, ... saved times more, to ask `stop_when`."""
    if plan.stop is None:
        yield from pieces
        return
    stops = np.cumsum(16 << np.arange(40))
    cuts = plan.saves[stops[stops < len(plan.saves)]]
    for piece, begin, end in pieces:
        ends = [*cuts[(cuts > begin) & (cuts < end)].tolist(), end]
        yield from ((piece, a, b) for a, b in zip([begin, *ends], ends))


def _moment(
    flow: Flow, z: Array, since: float, until: float, stepper: Stepper, plan: Plan
) -> tuple[Array, float]:
    """The first state and time at which `stop_when` is true, in (since, until], where it is."""
    for _ in range(2):
        times = np.linspace(since, until, 33)[1:]
        found = stepper.integrate(flow, z, plan._replace(saves=times, progress=None, since=since))
        hit = plan.first(found.states)
        if hit is None:  # only rounding says so
            hit = len(found.states) - 1
        last, until = found.states[hit], float(found.times[hit])
        if hit:
            z, since = found.states[hit - 1], float(found.times[hit - 1])
    return last, until


def _readable(flow: Flow, part: Reached, mask: np.ndarray | None) -> Reached:
    """What a stepper reached, cut before the first state that attention can no longer read.

    What drowns stays so: the last state is looked at first.
    """
    states, times, _ = part
    if not len(times) or not flow.drowns:
        return part
    *_, n, d = states.shape
    rtol = _ROUNDED * float(namespace(states).finfo(states.dtype).eps)
    real = np.ones((1, n), bool) if mask is None else mask.reshape(-1, n)

    def lost(row: int) -> bool:
        flat = as_numpy(states[row]).reshape(-1, n, d).astype(np.float64)
        rows = np.broadcast_to(real, flat.shape[:2])
        one = zip(flat, rows, strict=True)
        return any(flow.drowned(z[keep], float(times[row]), rtol) for z, keep in one)

    if not lost(len(times) - 1):
        return part
    first = bisect_left(range(len(times)), True, key=lost)
    return Reached(states[:first], times[:first], drowned(flow, float(times[first])))


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
        xp = namespace(z)
        moved = xp.where(xp.asarray(mask[..., None], device=device_of(z)), moved, z)
    return moved, (f"{count} token(s) were put on the sphere at t = 0.",) if count else ()


def _step(dynamics: LayerMap, z: Array, plan: Plan) -> tuple[Array, np.ndarray, Status]:
    """The plain loop over layers, on whatever arrays came in."""
    xp = namespace(z)
    saves, mask, deadline, progress, _, since = plan
    keep = None if mask is None else xp.asarray(mask[..., None], device=z.device)
    start, out, wanted, recent = z, [z], set(saves.tolist()), Recent(z)
    if plan.first(out) is not None:
        return xp.stack(out), saves[:1], stopped(f"layer {since}")
    for k in range(int(since), int(saves[-1])):
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
        recent.add(z)
        if k + 1 in wanted:
            out.append(z)
            if plan.first(out, len(out) - 1) is not None:
                return xp.stack(out), saves[: len(out)], stopped(f"layer {k + 1}")
        if progress is not None:
            progress(k + 1)
    return xp.stack(out), saves, _stepped(dynamics, int(saves[-1]), recent.cycle(out))


def _stepped(dynamics: LayerMap, layers: int, cycle: Cycle | None) -> Status:
    if dynamics.attention is not None and dynamics.attention.hard:
        message = "ties were decided on the rounded tokens of each layer."
        detach = "Detach the tensor for the certified walk." if dynamics.hardmax_layers else ""
        notes = () if cycle is None else (f"Ends in {cycle}",)
        return Status("rounded_ties", message, detach, notes)
    return turning(cycle) or Status("moving", f"{layers} layers of {type(dynamics).__name__} done.")
