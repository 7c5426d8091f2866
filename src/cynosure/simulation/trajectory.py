"""Trajectory: tokens by layer, with how the run went; saved and loaded without pickle."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, SupportsIndex, final

import numpy as np

from .._display import facts
from .._files import parsed_json, read_arrays, write_atomically
from .._frames import dataset
from .._types import Array, as_number, is_torch
from ..attention import ATTENTIONS, Causal, Heads
from ..dynamics import DYNAMICS, Dynamics, Unknown
from ..engine.followed import History, Record
from .status import Status
from .steppers import STEPPERS, Stepper

__all__ = ["Status", "Trajectory", "load"]

_LONGEST = 300  # characters of a value in a notebook
FORMAT = "cynosure-trajectory"
VERSION = 1
_LARGEST_HEADER = 64 << 20  # bytes: the names of a million tokens


@final
@dataclass(frozen=True, eq=False)
class Trajectory:
    """Tokens by layer: `z` (saved, *b, n, d) at the layers (or times) `t`.

    `mask` marks real tokens, `dynamics` what made the run (None for a real transformer), `words`
    the tokens' names, `history` who followed whom in a hardmax run, `stepper` how a flow was
    followed in time, with its step or its tolerances (None for layers).
    """

    z: Array
    t: np.ndarray
    status: Status
    dynamics: Dynamics | None = None
    mask: np.ndarray | None = None
    words: tuple[str, ...] | None = None
    history: History | None = None
    stepper: Stepper | None = None

    def __repr__(self) -> str:
        span = f"t={self.t[0]}..{self.t[-1]}" if len(self.t) else "no state"
        return f"Trajectory(z{tuple(self.z.shape)}, {span}, {self.status.code})"

    def _repr_html_(self) -> str:
        *batch, n, d = self.z.shape[1:]
        unit = "time" if self.in_time else "layer"
        ends = f", {unit} {self.t[0]} to {self.t[-1]}" if len(self.t) else ""
        rows = [
            ("made by", repr(self.made_by)),
            ("tokens", f"{n} in dimension {d}" + (f", batch {tuple(batch)}" if batch else "")),
            ("saved", f"{len(self)} states{ends}"),
            ("status", f"{self.status.code}: {self.status.message}"),
        ]
        if self.words:
            rows.append(("words", " ".join(self.words[:20]) + (" ..." if n > 20 else "")))
        return facts("Trajectory", [(name, _cut(value)) for name, value in rows])

    def __len__(self) -> int:
        return len(self.t)

    @property
    def made_by(self) -> Dynamics:
        """`dynamics`, or layers of which nothing is known where it is None."""
        return Unknown() if self.dynamics is None else self.dynamics

    @property
    def in_time(self) -> bool:
        """True where `t` are times of a flow, False where they are layers."""
        return self.stepper is not None or self.made_by.in_time

    @property
    def values(self) -> np.ndarray:
        """`z` as a NumPy array."""
        return self.z.detach().cpu().numpy() if is_torch(self.z) else self.z

    def at(self, t: float | SupportsIndex) -> Array:
        """The tokens at layer or time t, which must have been saved."""
        t = as_number(t, "t", "one layer or time", lambda t: t == t)
        at = np.flatnonzero(self.t == t)
        if len(at) == 0:
            raise ValueError(
                f"layer {t:g} was not saved; saved are {self.t[0]}..{self.t[-1]} "
                f"({len(self.t)} of them). Run simulate with save_every=1"
            )
        return self.z[int(at[0])]

    def nearest(self, t: float | int) -> int:
        """The number of the saved state whose layer or time is nearest to t."""
        t = as_number(t, "t", "one layer or time, finite", math.isfinite)
        return int(np.abs(np.asarray(self.t, dtype=float) - t).argmin())

    def select(self, *index: SupportsIndex) -> Trajectory:
        """One configuration of a batch, with its own history."""
        batch = self.z.shape[1:-2]
        if len(index) != len(batch):
            raise ValueError(
                f"select: expected {len(batch)} indices for batch {tuple(batch)}, got {index}"
            )
        if not index:
            return self
        try:
            np.empty(batch, dtype=bool)[index]
        except (IndexError, OverflowError, TypeError):
            raise IndexError(f"select: {index} is no place in a batch of {tuple(batch)}") from None
        history = self.history
        if history is not None:
            history = replace(
                history,
                born=history.born[index],
                settled_at=history.settled_at[index],
                leader=history.leader[index],
            )
        return replace(
            self,
            z=self.z[(slice(None), *index)],
            mask=None if self.mask is None else self.mask[index],
            history=history,
        )

    def to_xarray(self) -> Any:
        """An xarray Dataset: z over layer (or time), the batch, token and dim."""
        first = "time" if self.in_time else "layer"
        batch = tuple(f"batch_{k}" for k in range(self.z.ndim - 3))
        values: dict[str, Any] = {"z": ((first, *batch, "token", "dim"), self.values)}
        if self.mask is not None:
            values["mask"] = ((*batch, "token"), self.mask)
        named: dict[str, Any] = {first: self.t}
        if self.words is not None:
            named["word"] = (("token",), np.array(self.words))
        about = {"made by": repr(self.made_by), "status": self.status.message}
        return dataset(values, named, about)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write an .npz (arrays and JSON, nothing pickled), whole or not at all."""
        header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "status": [
                self.status.code,
                self.status.message,
                self.status.advice,
                *self.status.notes,
            ],
            "words": self.words,
            "torch": is_torch(self.z),
        }
        arrays: dict[str, np.ndarray] = {"z": self.values, "t": self.t}
        if self.mask is not None:
            arrays["mask"] = self.mask
        for name in ("dynamics", "stepper"):
            try:
                header[name] = _describe(getattr(self, name), arrays)
            except TypeError:  # not one of ours: the states alone then say what was run
                header[name] = {"value": None}
        if self.history is not None:
            header["history"] = {"exact_decisions": self.history.exact_decisions}
            arrays |= _history_arrays(self.history)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)

        def write(stream: Any) -> None:
            np.savez(stream, allow_pickle=False, **arrays)

        return write_atomically(path, write)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


def load(path: str | os.PathLike[str]) -> Trajectory:
    """Read a trajectory written by `Trajectory.save`, bit for bit.

    Raises ValueError for a file that is damaged, edited, of another kind or of a newer cynosure.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        arrays = read_arrays(path)
        header = parsed_json(arrays.pop("header").tobytes(), "header", _LARGEST_HEADER)
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
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise _refused(path, error) from None
    except (ZeroDivisionError, RecursionError) as error:
        raise _refused(path, error) from None


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
    if not isinstance(texts, list) or len(texts) < 3 or not _all_text(texts):
        raise ValueError("status: expected a code, a message and advice")
    if words is not None and (not isinstance(words, list) or not _all_text(words)):
        raise ValueError("words: expected texts")
    dynamics = _restore(header["dynamics"], arrays)
    stepper = _restore(header.get("stepper", {"value": None}), arrays)
    if not isinstance(dynamics, Dynamics | None) or not isinstance(stepper, Stepper | None):
        raise ValueError("expected a dynamics and a stepper of this package")
    history = _history_from(arrays, header["history"]) if "history" in header else None
    return Trajectory(
        z=_as_torch(z) if header["torch"] else z,
        t=t,
        status=Status(texts[0], texts[1], texts[2], tuple(texts[3:])),
        dynamics=dynamics,
        mask=mask,
        words=None if words is None else tuple(words),
        history=history,
        stepper=stepper,
    )


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _as_torch(z: np.ndarray) -> Array:
    import torch

    return torch.from_numpy(z)


_KINDS: dict[str, type] = {  # what a file may name, and nothing else
    **ATTENTIONS,
    "causal": Causal,
    "heads": Heads,
    **DYNAMICS,
    **STEPPERS,
}


def _describe(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A dynamics as JSON: names and fields of known kinds, arrays by reference into `arrays`.

    Raises TypeError on anything else, a dynamics of the user's own for example.
    """
    if is_torch(value):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        key = f"parameter_{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, list | tuple):
        return {"sequence": [_describe(x, arrays) for x in value]}
    names = [name for name, kind in _KINDS.items() if type(value) is kind]
    if names:
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return {"kind": names[0], "fields": {k: _describe(v, arrays) for k, v in parts.items()}}
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    raise TypeError(f"cannot be stored: {value!r}")


def _restore(data: Any, arrays: dict[str, np.ndarray]) -> Any:
    if "array" in data:
        return arrays[data["array"]]
    if "fraction" in data:
        return Fraction(data["fraction"])
    if "sequence" in data:
        return tuple(_restore(x, arrays) for x in data["sequence"])
    if "kind" in data:
        return _KINDS[data["kind"]](**{k: _restore(v, arrays) for k, v in data["fields"].items()})
    return data["value"]


def _history_arrays(history: History) -> dict[str, np.ndarray]:
    out = {f"history_{name}": getattr(history, name) for name in ("born", "settled_at", "leader")}
    if history.label is not None:
        out["history_label"] = history.label
    for name in ("ids", "indptr", "indices"):
        parts: Sequence[np.ndarray] = [getattr(r, name) for r in history.records]
        out[f"history_{name}"] = np.concatenate([*parts, np.empty(0, dtype=np.intp)])
        out[f"history_{name}_sizes"] = np.array([len(p) for p in parts], dtype=np.intp)
    out["history_layers"] = np.array([r.layer for r in history.records], dtype=np.intp)
    if history.same is not None:
        out["history_same"] = history.same
    return out


def _history_from(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> History:
    shape, t = arrays["z"].shape, arrays["t"]
    parts = {
        name: np.split(arrays[f"history_{name}"], np.cumsum(arrays[f"history_{name}_sizes"])[:-1])
        for name in ("ids", "indptr", "indices")
    }
    layers = arrays["history_layers"].tolist()
    rows = zip(layers, parts["ids"], parts["indptr"], parts["indices"], strict=False)
    history = History(
        arrays["history_born"],
        arrays["history_settled_at"],
        arrays["history_leader"],
        header["exact_decisions"],
        arrays.get("history_label"),
        tuple(Record(*row) for row in rows),
        arrays.get("history_same"),
    )
    _refuse_impossible(history, shape, t[-1].item())
    return history


def _refuse_impossible(history: History, shape: tuple[int, ...], last: float | int) -> None:
    """A history indexes tokens, classes and layers up to the `last`: every index must be one."""
    n = shape[-2]
    for name in ("born", "settled_at", "leader"):
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
