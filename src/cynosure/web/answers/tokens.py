"""Answers about tokens: one library call each, JSON in, JSON out. They run in worker processes."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..._deadline import Deadline
from ..._types import Array, as_alpha, as_rationals, as_tokens, definite
from ...analysis import probes
from ...analysis.control.removal import remove_leader
from ...analysis.control.steering import control as steer
from ...analysis.leaders import can_lead, roles
from ...analysis.limits import limit as prove
from ...analysis.polytope import Polytope, hull
from ...analysis.shadowing import shadow as follow
from ...analysis.spectra import recognise
from ...attention import Hardmax
from ...drawing.tables import jsonable
from ...dynamics import Dynamics, PureAttention
from ...simulation.configurations import CONFIGURATIONS, golden_exact
from ...simulation.loop import simulate as run_layers
from ...simulation.trajectory import Trajectory
from ...theorems import THEOREMS
from ...theorems import check as judge
from ..requests.bounds import BOUNDS
from . import File, plane
from .dynamics_fields import dynamics_of, forms, stepper_of

Asked = Mapping[str, Any]
_REAL = ("radius", "scale", "inner", "outer")  # parameters that a whole number stands for
_FOUND = (
    "points leaders born settled_at follows certified undecided layers arithmetic exact_decisions"
).split()
_MOST_EDGED = 60  # vertices of a polytope in space whose edges are drawn


def configurations(asked: Asked) -> dict[str, Any]:
    """Named tokens: all names with their parameters, or the tokens of one."""
    name = asked.get("name")
    if name is None:
        return {
            key: {
                "about": (inspect.getdoc(make) or "").partition("\n\n")[0].replace("\n", " "),
                "params": {
                    p.name: jsonable(p.default) for p in inspect.signature(make).parameters.values()
                },
            }
            for key, make in CONFIGURATIONS.items()
        }
    if name not in CONFIGURATIONS:
        raise ValueError(f"no configuration {name!r:.60} (there are {', '.join(CONFIGURATIONS)})")
    known = inspect.signature(CONFIGURATIONS[name]).parameters
    values = {key: _like(known, key, text) for key, text in asked.get("params", {}).items()}
    n, d = int(values.get("n", 1)), int(values.get("d", 1))
    most, widest = BOUNDS["tokens"], BOUNDS["dimension"]
    if n + int(values.get("interior", 0)) > most or d > widest:
        raise ValueError(f"{name}: at most {most} tokens of dimension {widest}")
    z = CONFIGURATIONS[name](**values)
    exact = golden_exact(**values) if name == "golden" else None
    return {"tokens": jsonable(z), "exact": None if exact is None else jsonable(exact)}


def _like(known: Mapping[str, inspect.Parameter], key: str, text: str) -> Any:
    """A parameter of a configuration from its text, in the type of its default."""
    if key not in known:
        raise ValueError(f"parameters are {', '.join(known)}; got {key!r:.60}")
    default = known[key].default
    if isinstance(default, str):
        return text
    try:
        value = int(text) if isinstance(default, int) and key not in _REAL else float(text)
    except ValueError:
        raise ValueError(f"{key}: expected a number such as {default}, got {text!r:.60}") from None
    if not abs(value) < 1e9:
        raise ValueError(f"{key}: expected a number below 1e9, got {text!r:.60}")
    return value


def dynamics(asked: Asked) -> dict[str, Any]:
    """Every dynamics, attention and stepper, with what its form needs."""
    return forms()


def limit(asked: Asked) -> dict[str, Any]:
    """Limits with their proofs; polytope and hull, null once the deadline is over."""
    until = Deadline(asked["deadline"])
    exact = bool(asked["exact"])
    given: Any = asked["tokens"]
    z = _floats(given)
    attention = Hardmax(asked["A"])
    layers = PureAttention(attention, _alpha(asked["alpha"]))
    how = {name: asked[name] for name in ("max_layers", "deadline")}
    li = prove(layers, given if exact else z, exact=exact, **how)
    A = attention.matrix(z.shape[1])
    polytope = None
    if len(li.leaders):  # the hull of the limits, where it is not that of the leaders
        leading = definite(A) or not li.certified
        polytope = _outline(li.polytope) if leading else _hull(li.points, until)
    body = {name: getattr(li, name) for name in _FOUND}
    body |= {"polytope": polytope, "hull": _hull(z, until)}
    body |= {"definite": definite(A), "cautions": _cautions(z, A)}
    if not asked["brief"]:
        body |= {"margin": li.margin, "exact_points": li.exact_points}
        body["rule"] = [str(rule) or "undecided" for rule in li.rule]
        body["words"] = [li.in_words(i) for i in range(len(z))]
    if asked["followed"]:
        sets = attention.followed(z)
        body["followed"] = [sets[i] for i in range(len(z))]
    return jsonable(body)


def _hull(z: np.ndarray, until: Deadline) -> dict[str, Any] | None:
    try:
        return _outline(hull(z, deadline=max(until.left or 0.0, 1.0)))
    except TimeoutError:
        return None


def _outline(polytope: Polytope) -> dict[str, Any]:
    """Vertices of a polytope, in order where it is flat; in space its edges, if they are few."""
    v = polytope.vertices
    flat = v.shape[1] == 2 and len(v) > 2
    out: dict[str, Any] = {"index": polytope.index, "vertices": polytope.ordered() if flat else v}
    if v.shape[1] == 3 and polytope.dim == 3 and len(v) <= _MOST_EDGED:
        out["edges"] = [sorted(edge) for edge in polytope.faces(1)]
    return out


def _cautions(z: np.ndarray, A: Array | None) -> list[str]:
    """What the theorems exclude and these tokens, or this A, contain."""
    zero, copies = int((z == 0).all(axis=1).sum()), len(z) - len(np.unique(z, axis=0))
    said = []
    if zero:
        said.append(f"{zero} zero token(s): their scores are all equal, so they follow every token")
    if copies:
        said.append(f"{copies} duplicate token(s): equal tokens count as one")
    if not definite(A):
        said.append("A is not symmetric positive definite: a limit need not exist (B16)")
    return said


def basins(asked: Asked) -> dict[str, Any]:
    """The leader each place of a grid tends to, or looks at: basins or cells, for a background."""
    z = _floats(asked["tokens"])
    if z.shape[1] != 2 or len(z) * asked["side"] ** 2 > 1_000_000:
        raise ValueError("basins: expected tokens of the plane, n * side^2 up to 1,000,000")
    (x0, y0), (x1, y1) = asked["corner"], asked["opposite"]
    xs, ys = (np.linspace(a, b, asked["side"]) for a, b in ((x0, x1), (y0, y1)))
    places = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    attention = Hardmax(asked["A"])
    layers = PureAttention(attention, _alpha(asked["alpha"]))
    if asked["kind"] == "basins":
        found = probes.basins(layers, z, places, deadline=3.0)
    else:
        li = prove(layers, z, max_layers=2000, deadline=3.0)
        if not len(li.leaders):
            raise ValueError("cells: no token leads, so no cell can be drawn")
        cell = probes.cells(attention, li.points[li.leaders], places)
        found = np.where(cell < 0, cell, li.leaders[cell])
    return jsonable({"side": asked["side"], "basin": found})


def simulate(asked: Asked) -> dict[str, Any]:
    """A run: states by layer or time, who leads, what it tends to."""
    tr = _run(asked)
    if asked["format"] == "npz":
        with tempfile.TemporaryDirectory() as folder:
            path = tr.save(Path(folder) / "run.npz")
            raise File("application/octet-stream", path.read_bytes())
    if asked["format"] == "html":
        from ...drawing.run_report import report  # matplotlib would double the start of a worker

        raise File("text/html; charset=utf-8", report(tr).to_html().encode())
    out = {name: getattr(tr, name) for name in ("status", "t", "in_time")}
    out |= {"dynamics": type(tr.dynamics).__name__, "z": tr.values}
    if tr.z.shape[-1] > 3:
        out["view"] = plane(tr.values)
    if can_lead(tr):
        ro = roles(tr)
        out |= {"leaders": ro.leaders, "born": ro.born}
    elif asked["recognise"]:
        out["tends_to"] = str(recognise(tr))
    return jsonable(out)


def _run(asked: Asked) -> Trajectory:
    """The run that is asked for, never more than an answer may hold."""
    z = _floats(asked["tokens"])
    made = _dynamics(asked)
    every = int(asked.get("save_every", 1))
    how: dict[str, Any] = {"deadline": asked.get("deadline", 10.0), "save_every": every}
    if made.in_time:
        if asked.get("layers") is not None:
            raise ValueError(f"layers: {type(made).__name__} runs in time; give time")
        stepper = stepper_of(asked.get("stepper"))
        time = asked.get("time") or 10.0
        step = getattr(stepper, "dt", None)
        states = 101 if step is None else time / step / every
        how |= {"time": time, "stepper": stepper}
    else:
        if asked.get("time") is not None or asked.get("stepper") is not None:
            raise ValueError(f"time, stepper: {type(made).__name__} runs in layers; give layers")
        layers = asked.get("layers")
        how["layers"] = 30 if layers is None else layers
        states = how["layers"] / every
    if states * z.size > BOUNDS["saved_numbers"]:
        most = f"at most {BOUNDS['saved_numbers']} numbers: raise save_every, or send fewer tokens"
        raise ValueError(f"the answer would hold {states:.0f} states of {z.size} numbers; {most}")
    return run_layers(made, z, throw=False, **how)


def _dynamics(asked: Asked) -> Dynamics:
    spec, alpha, A = asked.get("dynamics"), asked.get("alpha"), asked.get("A")
    if spec is None:
        return PureAttention(Hardmax(A), _alpha(0.5 if alpha is None else alpha))
    if alpha is not None or A is not None:
        raise ValueError("alpha, A: these belong into the dynamics when one is named")
    return dynamics_of(spec)


def check(asked: Asked) -> dict[str, Any]:
    """Each theorem: does it apply, hold, by what margin, which hypothesis is missing."""
    only = asked["only"]
    unknown = sorted(set(only or ()) - set(THEOREMS))
    if unknown:
        raise ValueError(f"only: no statement {unknown[0]!r:.60} (there are {', '.join(THEOREMS)})")
    tr = _run(asked)
    checks = judge(tr, only=only)
    rows = [jsonable(c) | {"verdict": c.verdict} for c in checks]
    failed = [c for c in checks if c.applies and not c.holds]
    return {"holds": not failed, "checks": rows, "status": jsonable(tr.status)}


def shadow(asked: Asked) -> dict[str, Any]:
    """Until which layer each softmax token provably follows hardmax, and clusters that last."""
    how = {name: asked[name] for name in ("layers", "deadline")}
    return jsonable(follow(_dynamics(asked), _floats(asked["tokens"]), **how).to_dict())


def control(asked: Asked) -> dict[str, Any]:
    """A matrix A that makes tokens lead, or takes a lead away, or why none does."""
    z = _floats(asked["tokens"])
    leaders, remove = asked["leaders"], asked["remove"]
    if (leaders is None) == (remove is None):
        raise ValueError("control: expected either leaders, such as [3, 5], or remove, such as 3")
    if (most := remove if leaders is None else max(leaders)) >= len(z):
        raise ValueError(f"control: tokens are 0 to {len(z) - 1}, got {most}")
    if leaders is None:
        gone = remove_leader(z, remove, asked["A"])
        moved = {"to": gone.z[remove], "distance": gone.distance, "follows": gone.follows}
        said = f"moved by {gone.distance:.4g} token {remove} would follow {gone.follows}"
        return jsonable(
            {"feasible": gone.A is not None, "A": gone.A, "change": gone.change}
            | {"moved": moved, "words": said}
        )
    found = steer(z, leaders, condition=asked["condition"])
    names = ("feasible", "A", "margin", "condition")
    more = {"reason": found.witness.reason, "words": str(found.witness)}
    return jsonable({name: getattr(found, name) for name in names} | more)


def _floats(tokens: Any) -> np.ndarray:
    """Tokens as floats; rationals given as text are rounded to the nearest."""
    if str in set(map(type, chain.from_iterable(tokens))):
        tokens = [[float(x) for x in row] for row in as_rationals(tokens)]
    return as_tokens(np.array(tokens, float), "tokens", ndim=2)


def _alpha(value: Any) -> Any:
    return as_alpha(value) if isinstance(value, str) else float(value)


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    f.__name__: f
    for f in (configurations, dynamics, limit, basins, simulate, check, shadow, control)
}
