"""Experiments on the page: what there is, and one run in its worker, with progress."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ...catalogue import chapters, study
from ...drawing.tables import jsonable
from ...study import keeping

Asked = Mapping[str, Any]
_LARGEST = 1e15
_LONGEST = 64  # numbers in a row of a parameter


def experiments(asked: Asked) -> dict[str, Any]:
    """Every experiment: chapter, title, what it shows, its parameters and their quick values."""
    found = []
    for chapter, names in chapters().items():
        for name in names:
            module = study(name)
            about = (inspect.getdoc(module) or "").strip()
            one = {"name": name, "chapter": chapter, "title": module.TITLE, "about": about}
            one["command"] = f"cynosure run {name}"
            one |= {"params": _settable(module.Params()), "quick": _settable(module.QUICK)}
            found.append(one)
    return {"experiments": found}


def _settable(params: Any) -> dict[str, Any]:
    """Parameters that are numbers or rows of them: a text may name a file, and none is opened."""
    values = {f.name: getattr(params, f.name) for f in fields(params)}
    return {name: jsonable(value) for name, value in values.items() if _numeric(value)}


def _numeric(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) > 0 and all(_numeric(x) for x in value)
    return isinstance(value, bool | int | float)


def params_of(module: ModuleType, quick: bool, changes: Mapping[str, Any]) -> Any:
    """The parameters of an experiment with some of them changed."""
    start = module.QUICK if quick else module.Params()
    known = _settable(start)
    for name in changes:
        if name not in known:
            raise ValueError(f"params: can be set here: {', '.join(known)}; got {name!r:.60}")
    made = {name: _like(getattr(start, name), value, name) for name, value in changes.items()}
    return replace(start, **made)


def _like(default: Any, value: Any, name: str) -> Any:
    """`value` in the type of `default`, or a refusal that names the parameter."""
    if isinstance(default, tuple):
        if not isinstance(value, list) or not 1 <= len(value) <= _LONGEST:
            raise ValueError(f"params.{name}: expected a list of 1 to {_LONGEST} like {default}")
        return tuple(_like(default[0], x, name) for x in value)
    if isinstance(default, bool) != isinstance(value, bool):
        raise ValueError(f"params.{name}: expected a value like {default!r}, got {value!r:.60}")
    if isinstance(default, bool):
        return value
    if not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise ValueError(f"params.{name}: expected a number like {default!r}, got {value!r:.60}")
    if isinstance(default, int):
        if value != int(value):
            raise ValueError(f"params.{name}: expected a whole number, got {value!r:.60}")
        return int(value)
    return float(value)


def run(asked: Asked, tell: Callable[[float, str], Any]) -> dict[str, Any]:
    """One experiment, its report left in the folder the server chose for it."""
    module = study(asked["name"])
    params = params_of(module, asked["quick"], asked["params"])
    folder = Path(asked["folder"])
    with keeping(folder / "measured"):
        report = module.run(params, tell)
    report.save(folder / "report.json")
    report.save(folder / "report.html")
    return {"title": report.title, "verdict": report.verdict, "failed": len(report.failures)}


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {"experiments": experiments, "run": run}
