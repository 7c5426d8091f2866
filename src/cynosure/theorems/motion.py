"""B39: a saved run is a run of what it says made it.

The other statements are consequences of this one, each read on a part of the run only. Hardmax
layers are compared with layers in integers (`exact_sets`). Every other layer is computed again from
the saved one before it by the package's own step, and every interval of a flow integrated again:
for these B39 checks the record of the run, not the step.

Long runs are judged in part: intervals are taken evenly over the whole run, until WORK is spent,
and the part says how many there were. The work is counted, so a verdict never depends on a clock.

What rounding allows. A certified hardmax run is within (k + 1) (w + 16) u sqrt(d) of the exact one
at layer k, in units of the largest coordinate of each column (docs/mathematics.md C8). For the
others the map is applied to tokens moved by a rounding error, or by the error the stepper admits:
what that changes is allowed, and nothing where the map is computed to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log1p
from typing import Any, final

import numpy as np

from .._deadline import Deadline
from .._types import Array, as_numpy, is_torch, like
from ..dynamics import ClosedForm, Flow, HardmaxLayers, LayerMap
from ..simulation.loop import simulate
from ..simulation.plan import Plan
from ..simulation.steppers import Adaptive, FixedStep, Stepper
from ..simulation.trajectory import Trajectory
from .checks import Hypothesis, Part, Reading, U, exactly, least, need, statement
from .exact_sets import ExactLayer, exact_layers

WORK = 4e9  # products of coordinates that computing again may cost; more intervals are sampled
_CALL = 2e4  # what one call of an attention costs beside its products of coordinates
_LEAST = 4  # intervals that are judged whatever they cost
_MANY = 2**17  # intervals among which those judged are chosen
_TINY = 5e-324  # instead of 0 where it divides


@final
@dataclass(frozen=True, eq=False)
class MotionRun(Reading):
    """Any run that says what made it: its states, and layers in integers where they exist."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr = self.trajectory
        known, hidden = tr.dynamics is not None, tr.made_by.hidden
        from_zero = not known or self.hardmax is None or float(tr.t[0]) == 0
        return (
            self.alone,
            Hypothesis.of("the run says what made it", known),
            Hypothesis("the tokens are the whole state", not hidden, float(hidden)),
            Hypothesis("at least two saved states", len(tr.t) > 1, float(len(tr.t))),
            Hypothesis("hardmax layers saved from layer 0", from_zero, float(tr.t[0])),
        )

    @cached_property
    def hardmax(self) -> HardmaxLayers | None:
        """Certified hardmax layers; None for others, and for ties decided on rounded tokens."""
        tr = self.trajectory
        return None if tr.status.code == "rounded_ties" else tr.made_by.hardmax_layers

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

    Every column is judged by its own size, since a layer mixes tokens and never columns.
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
        if tr.history is None:  # somebody's own loop, which rounds at every layer
            error = (k + 1) * (run.widest + 16) * float(np.sqrt(d)) * run.u
        else:  # a certified run rounds the stored states once only
            error = ((k + 1) * (run.widest + 16) * U + 4 * run.u) * float(np.sqrt(d))
        room = slack * error * size + (k + 1) * n * run.grain
        with np.errstate(over="ignore", invalid="ignore"):
            grown = np.maximum(np.exp(np.log(room) + k * rate), run.grain)
            away = np.abs(run.states[row] - expected) / grown
        off[row] = np.where(grown < np.inf, away, 0.0).max(axis=1)
    return off, np.ones((len(t), 1))


def _distance(a: np.ndarray, b: np.ndarray, size: float) -> np.ndarray:
    """|a_i - b_i| / size without overflow or underflow of a square."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.linalg.norm(a / size - b / size, axis=-1)


# --- layers and flows, computed again -------------------------------------------------------------


@final
class _Counted(Flow):
    """A flow that counts how often it was evaluated."""

    def __init__(self, flow: Flow) -> None:
        self.flow, self.calls = flow, 0

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        self.calls += 1
        return self.flow.velocity(z, t, mask=mask)

    def retract(self, z: Array) -> Array:
        return self.flow.retract(z)

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        return self.flow.closed_form(z, t)

    def drowned(self, z: np.ndarray, t: float, rtol: float) -> bool:
        return self.flow.drowned(z, t, rtol)


_Advance = Callable[[Array], Array]  # from one saved state to the next


def _again(run: MotionRun) -> tuple[_Allowed, str]:
    """Each saved state from the one before it, and which part of the run that was."""
    tr, (n, d) = run.trajectory, run.states.shape[1:]
    off, allowed = np.zeros((len(tr.t), n)), np.ones((len(tr.t), 1))
    rows, judged, spent = _evenly(len(tr.t) - 1), 0, 0.0
    for number, row in enumerate(rows):
        if number >= _LEAST and spent > WORK:
            break
        begin = tr.t[row].item()
        attention = tr.made_by.at(begin).attention
        calls, verdict = _interval(run, row)
        passes = 1 if attention is None else attention.passes
        spent += max(calls, 1) * passes * (_CALL + n * n * (d + 8))
        if verdict is not None:
            off[row + 1], allowed[row + 1] = verdict
            judged += 1
    kind = "intervals" if tr.in_time else "steps between saved layers"
    return (off, allowed), f"{judged} of {len(tr.t) - 1} {kind} judged"


def _evenly(many: int) -> list[int]:
    """Intervals 0..many-1: the last, the first, then spread evenly at every length of the list."""
    among = np.unique(np.linspace(0, many - 1, min(many, _MANY)).astype(np.intp)).tolist()
    bits = max(len(among).bit_length(), 1)
    order = sorted(range(len(among)), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return [among[-1], *(among[i] for i in order if i + 1 < len(among))]


def _interval(run: MotionRun, row: int) -> tuple[int, tuple[np.ndarray, Any] | None]:
    """How many evaluations it took, and the distances with what is allowed; None: not judged."""
    tr, made_by = run.trajectory, run.trajectory.made_by
    size = max(run.sizes[row], run.sizes[row + 1], _TINY)
    begin, end = tr.t[row].item(), tr.t[row + 1].item()
    if isinstance(made_by, LayerMap):
        steps = range(int(begin), int(end))
        return len(steps), _rounded(run, row, size, _layers(made_by, steps, tr.mask))
    assert isinstance(made_by, Flow)
    cut = [(piece, max(a, begin), min(b, end)) for piece, a, b in made_by.pieces(end)]
    pieces = [(_Counted(piece), a, b) for piece, a, b in cut if a < b]
    by = tr.stepper
    if isinstance(by, Adaptive):
        verdict = _integrated(run, row, size, pieces, by)
    else:
        assert isinstance(by, FixedStep)
        verdict = _rounded(run, row, size, lambda z: _through(pieces, z, by, tr.mask))
    return sum(piece.calls for piece, _, _ in pieces), verdict


def _layers(layers: LayerMap, steps: range, mask: np.ndarray | None) -> _Advance:
    def advance(z: Array) -> Array:
        for k in steps:
            with np.errstate(over="ignore", invalid="ignore"):
                z = layers.step(z, k, mask=mask)
        return z

    return advance


def _rounded(run: MotionRun, row: int, size: float, advance: _Advance) -> tuple[np.ndarray, Any]:
    """A map that ought to give the same bits; what a rounding error of the state changes."""
    tr = run.trajectory
    z = tr.z[row].detach() if is_torch(tr.z) else tr.z[row]
    found = as_numpy(advance(z))[run.real]
    off = _distance(run.states[row + 1], found, size)
    allowed = 64 * run.u + 64 * run.grain / size
    if not (off <= allowed).all():
        allowed += 64 * _spread(advance, z, 2 * run.u, run.real, found, size)
    return off, allowed


def _spread(
    advance: _Advance,
    z: Array,
    by: float | np.ndarray,
    real: np.ndarray,
    found: np.ndarray,
    size: float,
) -> float:
    """How far `found` moves when z moves by `by`, relatively: the most of six random signs."""
    largest = 0.0
    for seed in range(6):
        sign = np.random.default_rng(seed).choice([-1.0, 1.0], tuple(z.shape))
        moved = as_numpy(z) * (1 + by * sign)
        again = as_numpy(advance(like(moved.astype(as_numpy(z).dtype), z)))[real]
        largest = max(largest, float(_distance(again, found, size).max(initial=0.0)))
    return largest if np.isfinite(largest) else np.inf


_Pieces = Sequence[tuple[Flow, float, float]]


def _integrated(
    run: MotionRun, row: int, size: float, pieces: _Pieces, stepper: Adaptive
) -> tuple[np.ndarray, Any] | None:
    """A saved state against an integration from the one before it; None where that failed.

    It is ten times as precise as the run was. `local` is what one interval may add (module
    `flows`). The state before may be wrong by `local` too: what that changes is allowed, in the
    worst of n d directions.
    """
    n, d = run.states.shape[1:]
    z, after = run.states[row], run.states[row + 1]
    scale = (stepper.atol + run.grain) / size + stepper.rtol + 2 * run.u
    local = 10 * float(np.sqrt(n * d)) * scale
    rtol = max(stepper.rtol / 10, 1e-13)
    finer = Adaptive(rtol, stepper.atol / 10, method=stepper.method, most_steps=1000)

    def advance(z: Array) -> Array:
        return _through(pieces, z, finer, None)

    found = advance(z)
    if not np.isfinite(found).all():
        return None  # too stiff to be done again
    off, allowed = _distance(after, found, size), local
    if not (off <= allowed).all():
        real, by = np.arange(n), local / max(np.abs(z).max() / size, _TINY)
        spread = _spread(advance, z, by, real, found, size)
        allowed += 2 * float(np.sqrt(n * d)) * spread
    return off, allowed


def _through(pieces: _Pieces, z: Array, by: Stepper, mask: np.ndarray | None) -> Array:
    """The tokens at the end of the pieces; NaN where that failed."""
    for piece, since, until in pieces:
        plan = Plan(np.array([until]), mask, Deadline(None), None, since=since)
        reached = by.integrate(piece, z, plan)
        if reached.status.early:
            return z * float("nan")
        z = reached.states[-1]
    return z


# --- B39 ------------------------------------------------------------------------------------------


_stepper_known = need(
    "a flow names its stepper",
    lambda run: (
        not run.trajectory.in_time or isinstance(run.trajectory.stepper, Adaptive | FixedStep)
    ),
)


@statement(
    MotionRun,
    "B39",
    "docs/mathematics.md B39; the definition of every dynamics",
    "each saved state is the map (or the flow) of the one before it, and padding never moves; "
    "hardmax layers are computed in whole numbers, all others by the package's own step, which "
    "checks the record and not the step",
    (_stepper_known,),
)
def motion(run: MotionRun) -> list[Part]:
    """Distances in units of what rounding, or the stepper, allows: at most 1.

    Trap: a set C_i computed from *stored* states is not the set of the run, since rounding breaks
    ties; hardmax layers are followed in integers from layer 0.
    """
    tr = run.trajectory
    if run.hardmax is not None:
        (off, allowed), judged = _hardmax(run), "every saved layer judged"
    else:
        (off, allowed), judged = _again(run)
    if isinstance(tr.made_by, Flow):  # a run begins on the manifold of its flow
        start = run.states[0]
        off[0] = _distance(start, as_numpy(tr.made_by.retract(start)), max(run.sizes[0], _TINY))
        allowed[0] = 64 * run.u
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isnan(off), np.inf, off / allowed)
    where: Any = {"time" if tr.in_time else "layer": tr.t, "token": run.real}
    axis = "time" if tr.in_time else "layer"
    padding = np.ones(tr.values.shape[1], bool)
    padding[run.real] = False
    moved = (tr.values[:, padding] != tr.values[0, padding]).any(axis=2)
    return [
        least(f"the map of the state before ({judged})", -ratio, 1.0, axis, "token", **where),
        exactly("padding never moves", moved, axis, "padding"),
    ]
