"""What an experiment measured, kept in a folder, to be drawn again or continued.

    with keeping(folder):
        report = finite_depth.run(finite_depth.Params())

Inside, an experiment asks `kept(_cell, p, d, n)` where it would call `_cell(p, d, n)`. The key is
the function's name, its arguments and the version of the package, not its source: an edited
drawing is drawn from what was measured before, a changed parameter is measured anew, and a run
that was interrupted goes on at the cell it was in. Without `keeping` nothing is kept.

Trap: a developer who edits what `_cell` computes has to forget what it gave before (`--force`).

Values are nested dicts, lists, tuples, named tuples and dataclasses of this package, arrays,
numbers and text; each is one .npz file, JSON and arrays, written whole or not at all. Nothing is
pickled, and reading a file can make no object of another package.

Each file carries its own entry of a manifest behind its content (where a zip archive has its
comment): our format, the name it was written under and the SHA-256 of the rest. A file that does
not agree with it is damaged, and measured again; `forget` removes the files that have one under
their own name, so that whatever else lies in the folder stays.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .. import __version__
from .._files import member_names, parsed_json, read_arrays, write_atomically
from ..sweeps.engines import Lost, finished

__all__ = ["Kept", "forget", "keeping", "kept", "kept_each"]

T = TypeVar("T")
_PACKAGE = __name__.partition(".")[0]
# Of classes that have changed since: what is kept can always be made again.
_CHANGED = (ValueError, KeyError, TypeError, AttributeError, ImportError, ZeroDivisionError)
_ENTRY = re.compile(rb"cynosure-measurement 1 ([\w.-]+) ([0-9a-f]{64})\Z")
_NAME = re.compile(r"[\w.]+-[0-9a-f]{16}\.npz")


@dataclass(frozen=True)
class Kept:
    """A folder of measurements, and the files that were read from it and written to it."""

    folder: Path
    workers: int | None = None
    reused: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    apart: set[str] = field(default_factory=set)  # made by workers, and not asked for yet


_STORE: ContextVar[Kept | None] = ContextVar("kept", default=None)


@contextmanager
def keeping(folder: str | Path, workers: int | None = None) -> Iterator[Kept]:
    """Measurements made in this block are kept in `folder`, and those found there are not made.

    `workers` processes make those of a grid (`over_grid`).
    """
    store = Kept(Path(folder), workers)
    token = _STORE.set(store)
    try:
        yield store
    finally:
        _STORE.reset(token)


def forget(folder: str | Path) -> None:
    """Remove the measurements kept in `folder`, and nothing else."""
    for path in Path(folder).glob("*.npz"):
        if path.is_file() and not path.is_symlink() and _is_kept(path):
            path.unlink()


def kept(measure: Callable[..., T], *args: Any, **told: Any) -> T:
    """measure(*args, **told), or what it gave before for the same `args`.

    `args` are what the value depends on; `told` (a progress bar) does not change it.
    """
    store = _STORE.get()
    if store is None:
        return measure(*args, **told)
    path = store.folder / _file(measure, args)
    found, value = _read(path)
    if not found:
        value = measure(*args, **told)
        data = _signed(path.name, *_packed(value))
        write_atomically(path, lambda stream: stream.write(data))
    new = not found or path.name in store.apart
    (store.made if new else store.reused).append(path.name)
    store.apart.discard(path.name)
    return value


def kept_each(
    measure: Callable[..., T],
    every: Iterable[tuple[Any, ...]],
    progress: Callable[[float, str], Any] | None = None,
    said: Sequence[str] = (),
) -> list[T]:
    """[kept(measure, *args) for args in every], in the workers of `keeping` where there are some.

    `progress` is told how far it is, and what comes next as `said` has it.
    """
    every, tell = list(every), progress or (lambda share, what: None)
    if _made_apart(measure, every, tell):
        return [kept(measure, *args) for args in every]
    out = []
    for done, args in enumerate(every):
        tell(done / len(every), said[done] if said else f"{done} of {len(every)}")
        out.append(kept(measure, *args))
    return out


def _made_apart(
    measure: Callable[..., Any], every: list[tuple[Any, ...]], progress: Callable[[float, str], Any]
) -> bool:
    """Make what is missing of measure(*args) in the workers of `keeping`; False if there are none.

    Each worker keeps what it measures: it is read from the folder as after an interruption.
    """
    store = _STORE.get()
    if store is None or store.workers is None or store.workers < 2:
        return False
    names = [_file(measure, args) for args in every]
    missing = {k: every[k] for k, name in enumerate(names) if not _read(store.folder / name)[0]}
    work = partial(_keep, store.folder, measure)
    for done, (k, lost) in enumerate(finished(work, missing, store.workers), 1):
        if isinstance(lost, Lost):
            raise RuntimeError(f"{measure.__qualname__}{every[k]}: {lost.reason}")
        store.apart.add(names[k])
        progress(done / len(missing), f"{done} of {len(missing)} measured")
    return True


def _keep(folder: Path, measure: Callable[..., Any], args: tuple[Any, ...]) -> None:
    with keeping(folder):
        kept(measure, *args)


def _file(measure: Callable[..., Any], args: tuple[Any, ...]) -> str:
    name = f"{measure.__module__.rpartition('.')[2]}.{measure.__qualname__}"
    if "<" in name:
        raise TypeError(f"kept: expected a function of a module, whose name is its key, got {name}")
    tree, arrays = _packed(args)
    digest = hashlib.sha256(json.dumps([__version__, tree]).encode())
    for x in arrays.values():
        digest.update(f"{x.dtype.str}{x.shape}".encode() + x.tobytes())
    return f"{name}-{digest.hexdigest()[:16]}.npz"


# --- files ---------------------------------------------------------------------------------------


def _signed(name: str, tree: Any, arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz of the value with its entry of the manifest as comment."""
    columns: dict[str, Any] = {"tree": np.array(json.dumps(tree)), **arrays}
    stream = io.BytesIO()
    np.savez_compressed(stream, **columns)
    plain = stream.getvalue()  # its last two bytes are the length of the comment, 0
    entry = f"cynosure-measurement 1 {name} {hashlib.sha256(plain).hexdigest()}".encode()
    return plain[:-2] + len(entry).to_bytes(2, "little") + entry


def _is_whole(path: Path) -> bool | None:
    """Whether the file is as it was written under this name; None if it does not say."""
    data = path.read_bytes()
    entry = _ENTRY.search(data, max(0, len(data) - 1024))
    if entry is None:
        return None
    plain, length = data[: entry.start() - 2], data[entry.start() - 2 : entry.start()]
    right = hashlib.sha256(plain + bytes(2)).hexdigest().encode() == entry[2]
    return (
        right
        and entry[1].decode() == path.name
        and int.from_bytes(length, "little") == len(entry[0])
    )


def _is_kept(path: Path) -> bool:
    """Whether the file is a measurement of ours, by its name and by what it holds."""
    try:
        if _NAME.fullmatch(path.name) is None:
            return False
        whole = _is_whole(path)
        if whole is not None:
            return whole
        names = set(member_names(path))  # from before there were entries
    except (OSError, ValueError):
        return False
    return "tree" in names and all(re.fullmatch(r"a\d+", name) for name in names - {"tree"})


def _read(path: Path) -> tuple[bool, Any]:
    """(True, value); (False, None) where there is none that can be read."""
    try:
        if _is_whole(path) is False:
            return False, None
        arrays = read_arrays(path)
        tree = parsed_json(str(arrays["tree"]), path.name, most=1 << 30)
    except (OSError, ValueError, KeyError):  # not there, or damaged
        return False, None
    try:
        return True, _unpacked(tree, arrays)
    except _CHANGED:
        return False, None


# --- values as JSON and arrays -------------------------------------------------------------------


def _packed(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree in JSON's own types, whose arrays are beside it by name."""
    arrays: dict[str, np.ndarray] = {}

    def array(x: Any) -> str:
        x = np.asarray(x)
        if x.dtype.hasobject:
            raise TypeError("kept: expected an array of numbers or text, got one of objects")
        arrays[f"a{len(arrays)}"] = x
        return f"a{len(arrays) - 1}"

    def pack(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return {"array": array(x)}
        if isinstance(x, np.generic):
            return {"scalar": array(x)}
        if x is None or isinstance(x, bool | int | float | str):
            return x
        if isinstance(x, Fraction):
            return {"fraction": str(x)}
        if isinstance(x, list):
            return [pack(v) for v in x]
        if isinstance(x, dict):
            return {"dict": [[pack(k), pack(v)] for k, v in x.items()]}
        if isinstance(x, tuple) and not hasattr(x, "_fields"):
            return {"tuple": [pack(v) for v in x]}
        if _is_ours(type(x)):
            names = getattr(x, "_fields", None) or [f.name for f in fields(x) if f.init]
            values = [[name, pack(getattr(x, name))] for name in names]
            return {"of": [type(x).__module__, type(x).__qualname__], "fields": values}
        raise TypeError(f"kept: expected numbers, text, arrays and what holds them, got {type(x)}")

    return pack(value), arrays


def _unpacked(tree: Any, arrays: Any) -> Any:
    """The value that `_packed` took apart."""
    if isinstance(tree, list):
        return [_unpacked(v, arrays) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "scalar" in tree:
        return arrays[tree["scalar"]][()]
    if "fraction" in tree:
        return Fraction(tree["fraction"])
    if "dict" in tree:
        return {_unpacked(k, arrays): _unpacked(v, arrays) for k, v in tree["dict"]}
    if "tuple" in tree:
        return tuple(_unpacked(v, arrays) for v in tree["tuple"])
    values = {name: _unpacked(v, arrays) for name, v in tree["fields"]}
    return _ours(*tree["of"])(**values)


def _is_ours(kind: Any) -> bool:
    """True for named tuples and dataclasses of this package."""
    shaped = is_dataclass(kind) or hasattr(kind, "_fields")
    return shaped and kind.__module__.partition(".")[0] == _PACKAGE


def _ours(module: str, name: str) -> Any:
    if module.partition(".")[0] != _PACKAGE:
        raise ValueError(f"kept: {module} is not of this package")
    kind = getattr(import_module(module), name)
    if not _is_ours(kind):
        raise ValueError(f"kept: {module}.{name} is no record of this package")
    return kind
