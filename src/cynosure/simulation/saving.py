"""Runs as files: arrays and JSON without pickle, checked when they are read."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .._files import parsed_json, read_arrays, write_atomically
from .._registry import Registry
from .._types import as_numpy, is_torch
from ..attention import ATTENTIONS, Attention, Causal, Heads
from ..dynamics import DYNAMICS, Dynamics
from ..engine.followed import History, Record
from .status import Status
from .steppers import STEPPERS, Stepper
from .trajectory import Trajectory, as_torch

FORMAT = "cynosure-trajectory"
VERSION = 1
_LARGEST_HEADER = 64 << 20  # bytes: the names of a million tokens
_PARTS = {"causal": Causal, "heads": Heads}  # of an attention, without a name of their own
_KNOWN = ATTENTIONS, _PARTS, DYNAMICS, STEPPERS
_OURS = Attention, Dynamics, Stepper
_TOKENS = "born", "settled_at", "leader"  # of a history, one number per token
_SETS = "ids", "indptr", "indices"  # of its records


def save(run: Trajectory, path: str | os.PathLike[str]) -> Path:
    """See `Trajectory.save`."""
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "status": [run.status.code, run.status.message, run.status.advice, *run.status.notes],
        "words": run.words,
        "torch": is_torch(run.z),
    }
    arrays: dict[str, np.ndarray] = {"z": run.values, "t": run.t}
    if run.mask is not None:
        arrays["mask"] = run.mask
    for name, made in (("dynamics", run.dynamics), ("stepper", run.stepper)):
        try:
            header[name] = _describe(made, arrays)
        except TypeError:  # a function, say: `load` tells that it cannot be kept
            header[name] = {"kind": f"{type(made).__module__}:{made!r:.100}", "fields": {}}
    if run.history is not None:
        header["history"] = {"exact_decisions": run.history.exact_decisions}
        arrays |= _history_arrays(run.history)
    if Path(path).suffix == ".safetensors":
        from safetensors.numpy import save

        whole = {name: np.ascontiguousarray(x) for name, x in arrays.items()}
        data = save(whole, {"header": json.dumps(header)})
        return write_atomically(path, lambda stream: stream.write(data))
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    return write_atomically(path, lambda f: np.savez(f, allow_pickle=False, **arrays))


def load(path: str | os.PathLike[str]) -> Trajectory:
    """Reads a run written by `Trajectory.save`, bit for bit.

    Parameters
    ----------
    path
        An .npz or .safetensors file.

    Returns
    -------
    Trajectory
        A file imports nothing. If the class of its dynamics is in a module that is not imported,
        `dynamics` is None and a warning says what to import.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, edited, of another kind, or written by a newer version.

    Examples
    --------
    >>> import cynosure as cy, os, tempfile
    >>> run = cy.simulate(cy.PureAttention(), [[2.0, 0.0], [0.0, 1.0]], layers=3)
    >>> path = run.save(os.path.join(tempfile.mkdtemp(), "run.npz"))
    >>> bool((cy.load(path).z == run.z).all())
    True
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        if path.suffix == ".safetensors":
            arrays, text = _tensors(path)
        else:
            arrays = read_arrays(path)
            text = arrays.pop("header").tobytes()
        header = parsed_json(text, "header", _LARGEST_HEADER)
        if header["format"] != FORMAT:
            raise ValueError("of another format")
        version = header["version"]
        if type(version) is not int:
            raise ValueError("of no version")
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise _refused(path, error) from None
    if version > VERSION:
        raise ValueError(
            f"{path}: written by a newer cynosure (format {version}, this one reads "
            f"{VERSION}); upgrade with `pip install -U cynosure`"
        )
    try:
        return _trajectory(header, arrays)
    # what the header names is not there or does not fit: it was edited
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise _refused(path, error) from None
    except RecursionError as error:
        raise _refused(path, error) from None


def _tensors(path: Path) -> tuple[dict[str, np.ndarray], bytes]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            header = (file.metadata() or {})["header"].encode()
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _refused(path: Path, error: Exception) -> ValueError:
    said = str(error).removeprefix(f"{path}: ") if isinstance(error, ValueError) else ""
    return ValueError(
        f"{path}: not a cynosure trajectory, or damaged ({said[:200] or type(error).__name__}); "
        "expected a file written by Trajectory.save or `cynosure simulate --out`"
    )


def _trajectory(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Trajectory:
    """The run a file describes, its parts checked against each other."""
    z, t, mask = arrays["z"], arrays["t"], arrays.get("mask")
    if z.dtype.kind != "f" or z.ndim < 3 or 0 in z.shape:
        raise ValueError(f"z: expected states (saved, *batch, n, d), got {z.dtype} of {z.shape}")
    if t.dtype.kind not in "fiu" or t.shape != z.shape[:1]:
        raise ValueError(f"t: expected a layer or time per state, got {t.shape} for {len(z)}")
    if mask is not None and (mask.dtype != np.bool_ or mask.shape != z.shape[1:-1]):
        raise ValueError(f"mask: expected booleans of shape {z.shape[1:-1]}, got {mask.shape}")
    words, texts = header["words"], header["status"]
    if not _all_text(texts) or len(texts) < 3:
        raise ValueError("status: expected a code, a message and advice")
    if words is not None and not _all_text(words):
        raise ValueError("words: expected texts")
    dynamics = _restored(header["dynamics"], arrays)
    stepper = _restored(header.get("stepper", {"value": None}), arrays)
    if not isinstance(dynamics, Dynamics | None) or not isinstance(stepper, Stepper | None):
        raise ValueError("expected a dynamics and a stepper of this package")
    history = _history_from(arrays, header["history"]) if "history" in header else None
    return Trajectory(
        z=as_torch(z) if header["torch"] else z,
        t=t,
        status=Status(texts[0], texts[1], texts[2], tuple(texts[3:])),
        dynamics=dynamics,
        mask=mask,
        words=None if words is None else tuple(words),
        history=history,
        stepper=stepper,
    )


def _all_text(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _kind(name: str) -> type:
    """The class of that name. A file imports nothing: module:Name must be imported already."""
    for known in (*_KNOWN, *(r.installed() for r in _KNOWN if isinstance(r, Registry))):
        if name in known:
            return known[name]
    module, sign, path = name.partition(":")
    found: Any = sys.modules.get(module) if sign else None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and is_dataclass(found) and issubclass(found, _OURS)):
        raise _NotImported(name)
    return found


class _NotImported(Exception):
    """A file names a class of somebody's own that this program has not imported."""


def _describe(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A dynamics as JSON, arrays by reference into `arrays`; TypeError on what is no dataclass."""
    if is_torch(value):
        value = as_numpy(value)
    if isinstance(value, np.ndarray):
        key = f"parameter_{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, list | tuple):
        return {"sequence": [_describe(x, arrays) for x in value]}
    kind: Any = type(value)
    if issubclass(kind, _OURS) and is_dataclass(kind):
        parts = {f.name: getattr(value, f.name) for f in fields(kind) if f.init}
        told = {k: _describe(v, arrays) for k, v in parts.items()}
        names = (name for known in _KNOWN for name, one in known.items() if one is kind)
        return {
            "kind": next(names, f"{kind.__module__}:{type(value).__qualname__}"),
            "fields": told,
        }
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    raise TypeError(f"cannot be stored: {value!r}")


def _restored(data: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A dynamics or a stepper; None, with a warning that says what to import, if it is unknown."""
    try:
        return _restore(data, arrays)
    except _NotImported as error:
        module, sign, name = str(error).partition(":")
        made_by, what = f"{name} of {module}", f"import {module} first and load it again"
        if not sign:  # the name of an entry point
            made_by, what = repr(module), "install the package that adds it, and load the run again"
        elif not name.isidentifier():
            what = (
                "only dataclasses at the top of a module are stored; set it by "
                "dataclasses.replace(run, dynamics=...)"
            )
        warnings.warn(f"load: this run was made by {made_by}; {what}", stacklevel=4)
        return None


def _restore(data: Any, arrays: dict[str, np.ndarray]) -> Any:
    if "array" in data:
        return arrays[data["array"]]
    if "fraction" in data:
        return Fraction(data["fraction"])
    if "sequence" in data:
        return tuple(_restore(x, arrays) for x in data["sequence"])
    if "kind" in data:
        return _kind(data["kind"])(**{k: _restore(v, arrays) for k, v in data["fields"].items()})
    return data["value"]


def _history_arrays(history: History) -> dict[str, np.ndarray]:
    out = {f"history_{name}": getattr(history, name) for name in _TOKENS}
    for name in ("label", "same"):
        if (classes := getattr(history, name)) is not None:
            out[f"history_{name}"] = classes
    for name in _SETS:
        parts: Sequence[np.ndarray] = [getattr(r, name) for r in history.records]
        out[f"history_{name}"] = np.concatenate([*parts, np.empty(0, dtype=np.intp)])
        out[f"history_{name}_sizes"] = np.array([len(p) for p in parts], dtype=np.intp)
    out["history_layers"] = np.array([r.layer for r in history.records], dtype=np.intp)
    return out


def _history_from(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> History:
    parts = [
        np.split(arrays[f"history_{name}"], np.cumsum(arrays[f"history_{name}_sizes"])[:-1])
        for name in _SETS
    ]
    rows = zip(arrays["history_layers"].tolist(), *parts, strict=False)
    born, settled_at, leader = (arrays[f"history_{name}"] for name in _TOKENS)
    label, same = arrays.get("history_label"), arrays.get("history_same")
    records = tuple(Record(*row) for row in rows)
    history = History(born, settled_at, leader, header["exact_decisions"], label, records, same)
    _refuse_impossible(history, arrays["z"].shape, arrays["t"][-1].item())
    return history


def _refuse_impossible(history: History, shape: tuple[int, ...], last: float | int) -> None:
    """A history indexes tokens, classes and layers up to the `last`: every index must be one."""
    n = shape[-2]
    for name in _TOKENS:
        values = getattr(history, name)
        if values.dtype.kind != "i" or values.shape != shape[1:-1] or (values < -1).any():
            raise ValueError(f"history: {name} does not fit the tokens")
        if name != "leader" and (values > last).any():
            raise ValueError(f"history: {name} is a layer after the last, {last}")
    if (history.leader >= n).any():
        raise ValueError("history: a leader that is no token")
    label = history.label
    if label is None:
        if history.records:
            raise ValueError("history: sets without their classes")
        return
    if label.dtype.kind != "i" or label.shape != (n,) or (label < -1).any() or (label >= n).any():
        raise ValueError("history: classes that do not fit the tokens")
    classes = int(label.max()) + 1
    layers = [record.layer for record in history.records]
    if layers and (layers[0] != 0 or layers != sorted(set(layers)) or layers[-1] > last):
        raise ValueError(f"history: sets of layers {layers[:3]}..., expected 0 to {last} in order")
    if layers and len(history.records[0].ids) != classes:
        raise ValueError("history: layer 0 has not the sets of all classes")
    for record in history.records:
        ends = record.indptr
        kinds = {(a.dtype.kind, a.ndim) for a in record[1:]}
        if type(record.layer) is not int or kinds != {("i", 1)}:
            raise ValueError("history: sets that are not of indices")
        if len(ends) != len(record.ids) + 1 or ends[0] != 0 or ends[-1] != len(record.indices):
            raise ValueError("history: sets that do not fit each other")
        if (np.diff(ends) < 1).any() or (np.diff(record.ids) < 1).any():
            raise ValueError("history: an empty set, or classes out of order")
        for index in (record.ids, record.indices):
            if (index < 0).any() or (index >= classes).any():
                raise ValueError("history: a set of no class")
