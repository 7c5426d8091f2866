"""A dynamics as JSON and back: read off the registries, so that a new entry has a form at once."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ...attention import ATTENTIONS, Attention
from ...dynamics import DYNAMICS, Dynamics, Flow, LayerMap
from ...simulation.steppers import STEPPERS, Stepper

for _registry in (DYNAMICS, ATTENTIONS, STEPPERS):
    _registry.installed()  # once: a request adds nothing
_MATRICES = ("A", "Q", "K", "V", "W1", "W2")
_DEPTH = 4  # of schedules inside schedules


def forms() -> dict[str, Any]:
    """Every dynamics, attention and stepper with its fields: what a form needs."""
    return {
        "dynamics": {
            name: _form(kind) | {"in_time": bool(kind.in_time)} for name, kind in DYNAMICS.items()
        },
        "attentions": {name: _form(kind) for name, kind in ATTENTIONS.items()},
        "steppers": {name: _form(kind) for name, kind in STEPPERS.items()},
    }


def _form(kind: type) -> dict[str, Any]:
    said = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    return {"about": said, "fields": [_field(f) for f in fields(kind) if f.init]}


def _field(f: Any) -> dict[str, Any]:
    if f.name in ("layers", "flows"):
        return {"name": f.name, "kind": "list", "default": None}
    if f.name == "attention":
        names = [name for name, rule in ATTENTIONS.items() if rule is f.default_factory]
        return {"name": f.name, "kind": "attention", "default": names[0]}
    if f.name in _MATRICES:
        return {"name": f.name, "kind": "matrix", "default": None}
    default = None if f.default is MISSING else f.default
    kind = {int: "whole", bool: "whole", str: "text"}.get(type(default), "number")
    return {"name": f.name, "kind": kind, "default": default}


def dynamics_of(spec: Mapping[str, Any], depth: int = _DEPTH) -> Dynamics:
    """{"name": "pure_attention", "alpha": "1/2", "attention": {"name": "softmax", "beta": 4}}."""
    kind, values = _chosen(spec, DYNAMICS, "dynamics")
    if "attention" in values:
        values["attention"] = _attention_of(values["attention"])
    for name, what in (("layers", LayerMap), ("flows", Flow)):
        specs = values.get(name)
        if specs is None:
            continue
        if not isinstance(specs, list) or not 1 <= len(specs) <= 32 or depth < 1:
            raise ValueError(f"{name}: expected 1 to 32 dynamics, nested at most {_DEPTH} deep")
        values[name] = [dynamics_of(_mapping(spec, name), depth - 1) for spec in specs]
        if not all(isinstance(one, what) for one in values[name]):
            raise ValueError(f"{name}: expected dynamics that are {what.__name__}s")
    return kind(**values)


def _attention_of(spec: Any, depth: int = 1) -> Attention:
    kind, values = _chosen(_mapping(spec, "attention"), ATTENTIONS, "attention")
    if "attention" in values:
        if depth < 1:
            raise ValueError("attention: one may wrap another, but not deeper")
        values["attention"] = _attention_of(values["attention"], depth - 1)
    return kind(**values)


def stepper_of(spec: Mapping[str, Any] | None) -> Stepper | None:
    if spec is None:
        return None
    kind, values = _chosen(spec, STEPPERS, "stepper")
    return kind(**values)


def _mapping(spec: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(spec, Mapping):
        raise ValueError(f"{name}: expected an object with a name, such as {{'name': 'hardmax'}}")
    return spec


def _chosen(
    spec: Mapping[str, Any], registry: Mapping[str, type], what: str
) -> tuple[Any, dict[str, Any]]:
    """The class that is named and its fields, in the types they have."""
    name = spec.get("name")
    if not isinstance(name, str) or name not in registry:
        raise ValueError(f"{what}: expected a name of {', '.join(registry)}; got {name!r:.60}")
    kind = registry[name]
    known = {f["name"]: f for f in map(_field, (f for f in fields(kind) if f.init))}
    values = {key: value for key, value in spec.items() if key != "name" and value is not None}
    unknown = [key for key in values if key not in known]
    if unknown:
        has = ", ".join(known) or "no fields"
        raise ValueError(f"{what} {name}: it has {has}; got {unknown[0]!r:.60}")
    return kind, {key: _value(value, known[key], name) for key, value in values.items()}


def _value(value: Any, known: Mapping[str, Any], name: str) -> Any:
    """`value` in the type of the field, refused by name."""
    kind, where = known["kind"], f"{name}.{known['name']}"
    if kind == "matrix":
        rows = isinstance(value, list) and all(isinstance(row, list) for row in value)
        if not rows or not all(_real(x) for row in value for x in row) or len(value) > 64:
            raise ValueError(f"{where}: expected a matrix, a list of at most 64 rows of numbers")
        if len(widths := {len(row) for row in value}) != 1 or not 1 <= min(widths) <= 64:
            raise ValueError(f"{where}: expected rows of one length, from 1 to 64")
        return [[float(x) for x in row] for row in value]
    if known["name"] == "alpha":
        text = isinstance(value, str) and len(value) <= 40 and set(value) <= set("0123456789/.")
        if not (_real(value) or text):
            raise ValueError(f"{where}: expected a positive number or text such as '1/2'")
        return value
    if kind == "whole":
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 100_000:
            raise ValueError(f"{where}: expected a whole number from 0 to 100000")
        return value
    if kind == "number":
        if not _real(value):
            raise ValueError(f"{where}: expected a number")
        return float(value)
    if kind == "text" and not (isinstance(value, str) and len(value) <= 40):
        raise ValueError(f"{where}: expected a word")
    return value


def _real(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e300
