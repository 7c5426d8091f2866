"""B39: a saved run is a run of what it says made it.

The other statements are consequences of this one, each read on a part of the run only: a token
moved by hand where no other statement looks passes all of them. Hardmax layers are compared with
layers in integers (`exact_sets`); every other layer is computed again from the saved one before it,
every interval of a flow integrated again from its saved beginning.

What rounding allows. A certified hardmax run is within (k + 1) (w + 16) u sqrt(d) of the exact one
at layer k, in units of the largest coordinate of each column (docs/mathematics.md C8). For the
others the map is applied once more to tokens moved by a rounding error, or by the error the stepper
admits: what that changes is what the comparison allows, and nothing is allowed where the map is
computed to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import log1p
from typing import Any, final

import numpy as np

from .._deadline import Deadline
from .._types import Array, is_torch, like
from ..dynamics import Flow, HardmaxLayers, JumpChain, LayerMap, Unknown
from ..simulation.loop import simulate
from ..simulation.steppers import RK4, Adaptive, FixedStep, Stepper
from ..simulation.trajectory import Trajectory
from .checks import Hypothesis, Part, Reading, U, exactly, least, statement
from .exact_sets import ExactLayer, exact_layers

__all__ = ["MotionRun"]

WORK = 1e9  # products of coordinates that integrating again may cost; more intervals are sampled
SECONDS = 10.0  # and how long; what is left then is not judged
_EVALUATIONS = 40  # of the velocity in one interval, about
_ROUGH = 1e-7  # relative: an integration of order 4 this sure of itself is enough
_TINY = 5e-324  # instead of 0 where it divides


@final
@dataclass(frozen=True, eq=False)
class MotionRun(Reading):
    """Any run that says what made it: its states, and layers in integers where they exist."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr = self.trajectory
        single, known = len(tr.z.shape) == 3, not isinstance(tr.made_by, Unknown)
        from_zero = not known or self.hardmax is None or float(tr.t[0]) == 0
        return (
            Hypothesis("one configuration, not a batch", single, float(len(tr.z.shape) - 2)),
            Hypothesis("the run says what made it", known, float(known)),
            Hypothesis("at least two saved states", len(tr.t) > 1, float(len(tr.t))),
            Hypothesis("hardmax layers saved from layer 0", from_zero, float(tr.t[0])),
        )

    @cached_property
    def hardmax(self) -> HardmaxLayers | None:
        """Certified hardmax layers; None for others, and for ties decided on rounded tokens."""
        tr = self.trajectory
        return None if tr.status.code == "rounded_ties" else tr.made_by.hardmax_layers

    @cached_property
    def states(self) -> np.ndarray:
        """(saved, n, d) of the real tokens."""
        return self.trajectory.values[:, self.real].astype(np.float64, copy=False)

    @cached_property
    def u(self) -> float:
        """The rounding unit of the stored states."""
        return float(np.finfo(self.trajectory.values.dtype).eps) / 2

    @cached_property
    def grain(self) -> float:
        """The spacing of the stored floats next to 0."""
        return float(np.finfo(self.trajectory.values.dtype).smallest_subnormal)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The largest coordinate of the real tokens at each saved state."""
        return np.abs(self.states).max(axis=(1, 2), initial=0.0)

    @cached_property
    def exact(self) -> list[ExactLayer]:
        """Layers in integers from layer 0, as many as are affordable."""
        layers = self.hardmax
        assert layers is not None
        z0, last = self.trajectory.values[0, self.real], int(self.trajectory.t[-1])
        return list(exact_layers(z0, layers.attention.A, layers.alpha, last))

    @cached_property
    def widest(self) -> int:
        """The largest |C_i| of the layers in integers."""
        return max(int(np.bincount(e.label)[s].sum()) for e in self.exact for s in e.sets)

    @property
    def whole(self) -> bool:
        """True when the layers in integers reach the end of the run."""
        return len(self.exact) > int(self.trajectory.t[-1])

    @cached_property
    def again(self) -> Trajectory:
        """The run made once more, for what is beyond the layers in integers."""
        tr = self.trajectory
        z0, gaps = tr.values[0, self.real], np.diff(tr.t)
        every = int(gaps[0]) if (gaps[:-1] == gaps[0]).all() and gaps[-1] <= gaps[0] else 1
        return simulate(tr.made_by, z0, layers=int(tr.t[-1]), save_every=max(every, 1), throw=False)


_Allowed = tuple[np.ndarray, np.ndarray]  # distances (intervals, n) and what is allowed


# --- hardmax layers, against integers -------------------------------------------------------------


def _hardmax(run: MotionRun) -> _Allowed:
    """Every saved layer against the exact one; beyond those, against the run made again.

    A layer mixes tokens column by column, so every column is judged by its own size: a column of
    1e-10 beside one of 1 is not lost in the rounding of the other.
    """
    tr, layers = run.trajectory, run.hardmax
    assert layers is not None
    t, size = tr.t.astype(np.int64), np.abs(run.states[0]).max(axis=0, initial=0.0)
    n, d = run.states.shape[1:]
    rate = 0.0 if layers.normalised else log1p(float(layers.factor - 1))
    off = np.zeros((len(t), n))
    for row, k in enumerate(t.tolist()):
        if k < len(run.exact):
            expected, slack = run.exact[k].tokens(layers.factor**k), 1
        elif k in run.again.t:
            expected, slack = np.asarray(run.again.at(k), dtype=np.float64), 2
        else:
            continue  # the run made again left the floats before this layer
        room = slack * _error(run, k, d) * size + (k + 1) * n * run.grain
        with np.errstate(over="ignore", invalid="ignore"):
            grown = np.maximum(np.exp(np.log(room) + k * rate), run.grain)
            away = np.abs(run.states[row] - expected) / grown
        off[row] = np.where(grown < np.inf, away, 0.0).max(axis=1)
    return off, np.ones((len(t), 1))


def _error(run: MotionRun, k: int, d: int) -> float:
    """Of layer k in units of its size: a certified run rounds the stored states once only."""
    each = (run.widest + 16) * float(np.sqrt(d))
    if run.trajectory.history is None:  # somebody's own loop, which rounds at every layer
        return (k + 1) * each * run.u
    return (k + 1) * each * U + 4 * float(np.sqrt(d)) * run.u


def _distance(a: np.ndarray, b: np.ndarray, size: float) -> np.ndarray:
    """|a_i - b_i| / size without overflow or underflow of a square."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.linalg.norm(a / size - b / size, axis=-1)


# --- layers and fixed steps, computed again -------------------------------------------------------


def _computed_again(run: MotionRun) -> _Allowed:
    """Each saved state from the one before it; what a rounding error of that one changes."""
    tr = run.trajectory
    rows = _intervals(run)
    n = run.states.shape[1]
    off, allowed = np.zeros((len(tr.t), n)), np.ones((len(tr.t), 1))
    for row in rows.tolist():
        advance = _advance(run, row)
        z = tr.z[row].detach() if is_torch(tr.z) else tr.z[row]
        size = max(run.sizes[row], run.sizes[row + 1], _TINY)
        found = _numpy(advance(z))[run.real]
        off[row + 1] = _distance(run.states[row + 1], found, size)
        allowed[row + 1] = 64 * run.u + 64 * run.grain / size
        if not (off[row + 1] <= allowed[row + 1]).all():
            allowed[row + 1] += 64 * _spread(advance, z, 2 * run.u, run.real, found, size)
            if not tr.in_time:
                off[row + 1] = np.minimum(off[row + 1], _nearest_jump(run, row, size))
    return off, allowed


def _spread(
    advance: Callable[[Array], Array],
    z: Array,
    by: float | np.ndarray,
    real: np.ndarray,
    found: np.ndarray,
    size: float,
) -> float:
    """How far `found` moves when each coordinate of z is moved by `by`, relatively."""
    largest = 0.0
    for seed in range(2):
        sign = np.random.default_rng(seed).choice([-1.0, 1.0], tuple(z.shape))
        moved = _numpy(z) * (1 + by * sign)
        again = _numpy(advance(like(moved.astype(_numpy(z).dtype), z)))[real]
        largest = max(largest, float(_distance(again, found, size).max(initial=0.0)))
    return largest if np.isfinite(largest) else np.inf


def _advance(run: MotionRun, row: int) -> Callable[[Array], Array]:
    """From the saved state number `row` to the next: layers, or the steps of a fixed stepper."""
    tr, made_by = run.trajectory, run.trajectory.made_by
    begin, end = tr.t[row].item(), tr.t[row + 1].item()
    if isinstance(made_by, LayerMap):
        steps = range(int(begin), int(end))

        def layers(z: Array) -> Array:
            for k in steps:
                with np.errstate(over="ignore", invalid="ignore"):
                    z = made_by.step(z, k, mask=tr.mask)
            return z

        return layers
    stepper = tr.stepper
    assert isinstance(made_by, Flow) and isinstance(stepper, FixedStep)
    pieces = _pieces(made_by, begin, end)
    return lambda z: _through(pieces, z, lambda since, until: stepper, tr.mask)


def _pieces(flow: Flow, begin: float, end: float) -> list[tuple[Flow, float, float]]:
    """The pieces of a flow between two times."""
    cut = [(piece, max(a, begin), min(b, end)) for piece, a, b in flow.pieces(end)]
    return [(piece, a, b) for piece, a, b in cut if a < b]


def _nearest_jump(run: MotionRun, row: int, size: float) -> np.ndarray:
    """Of a `JumpChain`: the distance to the nearest possible jump; inf for every other layer.

    A configuration selected from a batch does not know its draws, but a jump is always towards
    one of the tokens. After s of them a token is w z_i + (1 - w) y, w = (1 - g)^s, with some y in
    the hull of the tokens; its bounding box is looked at.
    """
    tr, z, after = run.trajectory, run.states[row], run.states[row + 1]
    steps = range(int(tr.t[row]), int(tr.t[row + 1]))
    layers = [tr.made_by.at(k) for k in steps]
    jumps = {layer.g for layer in layers if isinstance(layer, JumpChain)}
    if not jumps:
        return np.full(len(z), np.inf)
    if len(steps) == 1:
        (g,) = jumps
        return _distance(after[:, None], z[:, None] + g * (z[None] - z[:, None]), size).min(axis=1)
    if len(jumps) > 1 or not all(isinstance(layer, JumpChain) for layer in layers):
        return np.zeros(len(z))  # nothing simple is left to compare
    left = (1 - jumps.pop()) ** len(steps)
    y = (after - left * z) / (1 - left)
    return _distance(y, y.clip(z.min(axis=0), z.max(axis=0)), size)


def _intervals(run: MotionRun) -> np.ndarray:
    """The numbers of the intervals looked at: all that are affordable, spread evenly."""
    n, d = run.states.shape[1:]
    many = len(run.trajectory.t) - 1
    most = max(4, int(WORK / (_EVALUATIONS * n * n * d)))
    return np.unique(np.linspace(many - 1, 0, min(many, most)).astype(np.intp))


def _numpy(z: Array) -> np.ndarray:
    return z.detach().cpu().numpy() if is_torch(z) else np.asarray(z)


# --- flows with error control, integrated again ---------------------------------------------------


def _integrated_again(run: MotionRun) -> _Allowed:
    """Each saved state against an integration from the one before it.

    `local` is what one interval may add (module `flows`). A few steps of Runge and Kutta are enough
    where halving them changes nothing that matters; elsewhere the interval is integrated ten times
    as precisely as the run was. The state before it may be wrong by `local` too, so what that
    changes is then allowed, in the worst of n d directions.
    """
    tr, stepper = run.trajectory, run.trajectory.stepper
    assert isinstance(stepper, Adaptive)
    n, d = run.states.shape[1:]
    off, allowed = np.zeros((len(tr.t), n)), np.ones((len(tr.t), 1))
    deadline = Deadline(SECONDS)
    for row in _intervals(run).tolist():
        if deadline.passed:
            break
        z, after = run.states[row], run.states[row + 1]
        size = max(run.sizes[row], run.sizes[row + 1], _TINY)
        local = (
            10
            * float(np.sqrt(n * d))
            * ((stepper.atol + run.grain) / size + stepper.rtol + 2 * run.u)
        )
        advance, doubt = _roughly(run, row, size)
        if not doubt <= _ROUGH:
            advance, doubt = _precisely(run, row, stepper), 0.0
        found = advance(z)
        if not np.isfinite(found).all():
            continue  # too stiff to be done again: not judged
        off[row + 1], allowed[row + 1] = _distance(after, found, size), local + doubt
        if not (off[row + 1] <= allowed[row + 1]).all():
            real, by = np.arange(n), local / max(np.abs(z).max() / size, _TINY)
            spread = _spread(advance, z, by, real, found, size)
            allowed[row + 1] += 2 * float(np.sqrt(n * d)) * spread
    return off, allowed


def _roughly(run: MotionRun, row: int, size: float) -> tuple[Callable[[Array], Array], float]:
    """2, 4 or 8 steps of order 4 to the next saved time, and what halving their number changes."""
    tr, flow, z = run.trajectory, run.trajectory.made_by, run.states[row]
    assert isinstance(flow, Flow)
    pieces = _pieces(flow, float(tr.t[row]), float(tr.t[row + 1]))

    def by(steps: int) -> Callable[[Array], Array]:
        return lambda z: _through(
            pieces, z, lambda since, until: RK4((until - since) / steps), mask=None
        )

    coarse, doubt = by(1)(z), np.inf
    for steps in (2, 4, 8):
        fine = by(steps)(z)
        doubt = float(_distance(fine, coarse, size).max(initial=0.0))
        if not doubt > _ROUGH:
            break
        coarse = fine
    return by(steps), doubt


def _precisely(run: MotionRun, row: int, stepper: Adaptive) -> Callable[[Array], Array]:
    """To the next saved time, by steps that know nothing of the run's own and are finer."""
    tr, flow = run.trajectory, run.trajectory.made_by
    assert isinstance(flow, Flow)
    pieces = _pieces(flow, float(tr.t[row]), float(tr.t[row + 1]))
    rtol = max(stepper.rtol / 10, 1e-13)
    finer = Adaptive(rtol, stepper.atol / 10, method=stepper.method, most_steps=1000)
    return lambda z: _through(pieces, z, lambda since, until: finer, mask=None)


def _through(
    pieces: list[tuple[Flow, float, float]],
    z: Array,
    stepper: Callable[[float, float], Stepper],
    mask: np.ndarray | None,
) -> Array:
    """The tokens at the end of the pieces; NaN where that failed."""
    for piece, since, until in pieces:
        by = stepper(since, until)
        reached = by.integrate(piece, z, np.array([until]), mask, None, Deadline(None), since)
        if reached.status.early:
            return z * float("nan")
        z = reached.states[-1]
    return z


# --- B39 ------------------------------------------------------------------------------------------


def _stepper_known(run: MotionRun) -> Hypothesis:
    tr = run.trajectory
    ok = not tr.in_time or isinstance(tr.stepper, Adaptive | FixedStep)
    return Hypothesis("a flow names its stepper", ok, float(ok))


@statement(
    MotionRun,
    "B39",
    "docs/mathematics.md B39; the definition of every dynamics",
    "each saved state is the map (or the flow) of the one before it; padding never moves",
    (_stepper_known,),
)
def motion(run: MotionRun) -> list[Part]:
    """Distances in units of what rounding, or the stepper, allows: at most 1.

    Trap: a set C_i computed from *stored* states is not the set of the run, since rounding breaks
    ties; hardmax layers are followed in integers from layer 0.
    """
    tr = run.trajectory
    if run.hardmax is not None:
        off, allowed = _hardmax(run)
    elif tr.in_time and isinstance(tr.stepper, Adaptive):
        off, allowed = _integrated_again(run)
    else:
        off, allowed = _computed_again(run)
    if isinstance(tr.made_by, Flow):  # a run begins on the manifold of its flow
        start = run.states[0]
        off[0] = _distance(start, _numpy(tr.made_by.retract(start)), max(run.sizes[0], _TINY))
        allowed[0] = 64 * run.u
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isnan(off), np.inf, off / allowed)
    where: Any = {"time" if tr.in_time else "layer": tr.t, "token": run.real}
    axis = "time" if tr.in_time else "layer"
    padding = np.ones(tr.values.shape[1], bool)
    padding[run.real] = False
    moved = (tr.values[:, padding] != tr.values[0, padding]).any(axis=2)
    return [
        least("the map of the state before", -ratio, 1.0, axis, "token", **where),
        exactly("padding never moves", moved, axis, "padding"),
    ]
