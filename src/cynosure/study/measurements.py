"""What a study measured, kept in a folder, to be drawn again or continued.

    with keeping(folder):
        report = finite_depth.run(finite_depth.Params())

Inside, a study asks `kept(_cell, p, d, n)` where it would call `_cell(p, d, n)`. The key is
the function's name, its arguments and the version of the package, not its source: an edited
drawing is drawn from what was measured before, a changed parameter is measured anew, and an
interrupted run resumes at its cell. Without `keeping` nothing is kept.

Trap: a developer who edits what `_cell` computes has to forget what it gave before (`--force`).

Values are nested dicts, lists, tuples, arrays, numbers and text, and named tuples and dataclasses
of this package or of that of the function that measures. Each is one .npz file, JSON and arrays,
written whole or not at all. Nothing is pickled, and reading a file makes no object of another
package. Behind its content (where a zip archive has its comment) a file has our format, its name
and the SHA-256 of the rest: what does not agree is damaged and measured again, and `forget`
removes nothing else.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from .. import __version__
from .._files import parsed_json, read_arrays, write_atomically
from ..sweeps.engines import Lost, finished

__all__ = ["Kept", "forget", "keeping", "kept", "kept_each", "load_file"]

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
    """Context manager: measurements are cached in `folder`, and those found there are not repeated.

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
        named = path.is_file() and not path.is_symlink() and _NAME.fullmatch(path.name)
        if named and _is_whole(path):
            path.unlink()


def kept(measure: Callable[..., T], *args: Any, **told: Any) -> T:
    """measure(*args, **told), or what it gave before for the same `args`.

    `args` are what the value depends on; `told` (a progress bar) does not change it.
    """
    store = _STORE.get()
    if store is None:
        return measure(*args, **told)
    path, home = store.folder / _file(measure, args), _package(measure.__module__)
    found, value = _read(path, home)
    if not found:
        value = measure(*args, **told)
        data = _signed(path.name, *_packed(value, home))
        write_atomically(path, lambda stream: stream.write(data))
    if not found or path.name in store.apart:
        store.made.append(path.name)
    elif path.name not in store.made and path.name not in store.reused:  # once, if asked twice
        store.reused.append(path.name)
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
    home = _package(measure.__module__)
    missing = {
        k: _packed(every[k], home)
        for k, name in enumerate(names)
        if not _read(store.folder / name, home)[0]
    }
    file = getattr(sys.modules[measure.__module__], "__file__", None) or ""
    work = partial(_keep, store.folder, (measure.__module__, measure.__qualname__, file))
    for done, (k, lost) in enumerate(finished(work, missing, store.workers), 1):
        if isinstance(lost, Lost):
            raise RuntimeError(f"{measure.__qualname__}{every[k]}: {lost.reason}")
        store.apart.add(names[k])
        progress(done / len(missing), f"{done} of {len(missing)} measured")
    return True


def _keep(folder: Path, address: tuple[str, str, str], packed: tuple[Any, Any]) -> None:
    """In a worker: the function at `address` measures, and keeps what it gave.

    Neither it nor its arguments are pickled: a worker may not be able to import the module of a
    study by its name, and loads its file instead.
    """
    module, name, file = address
    measure: Any = load_file(file, module)
    for part in name.split("."):
        measure = getattr(measure, part)
    with keeping(folder):
        kept(measure, *_unpacked(*packed, _package(module)))


def load_file(file: str | Path, name: str) -> ModuleType:
    """The module of a study: as `name` where it can be imported so, and from its file elsewhere."""
    if name in sys.modules:
        return sys.modules[name]
    with suppress(ImportError):
        found = import_module(name)
        if Path(found.__file__ or "").resolve() == Path(file).resolve():
            return found
        del sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file}: expected a Python file (.py)")
    if (home := str(Path(file).resolve().parent)) not in sys.path:
        sys.path.append(home)  # as `python mine.py` would, in workers too: it may import neighbours
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _file(measure: Callable[..., Any], args: tuple[Any, ...]) -> str:
    name = f"{measure.__module__.rpartition('.')[2]}.{measure.__qualname__}"
    if "<" in name:
        raise TypeError(f"kept: expected a function of a module, whose name is its key, got {name}")
    tree, arrays = _packed(args, _package(measure.__module__))
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


def _is_whole(path: Path) -> bool:
    """Whether the file is a measurement of ours, as it was written under this name."""
    data = b""
    with suppress(OSError):
        data = path.read_bytes()
    entry = _ENTRY.search(data, max(0, len(data) - 1024))
    if entry is None:
        return False
    plain, length = data[: entry.start() - 2], data[entry.start() - 2 : entry.start()]
    right = hashlib.sha256(plain + bytes(2)).hexdigest().encode() == entry[2]
    sized = int.from_bytes(length, "little") == len(entry[0])
    return right and sized and entry[1].decode() == path.name


def _read(path: Path, home: str = _PACKAGE) -> tuple[bool, Any]:
    """(True, value); (False, None) where there is none that can be read."""
    try:
        if not _is_whole(path):
            return False, None
        arrays = read_arrays(path)
        tree = parsed_json(str(arrays["tree"]), path.name, most=1 << 30)
    except (OSError, ValueError, KeyError):  # not there, or damaged
        return False, None
    try:
        return True, _unpacked(tree, arrays, home)
    except _CHANGED:
        return False, None


# --- values as JSON and arrays -------------------------------------------------------------------


def _packed(value: Any, home: str = _PACKAGE) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree in JSON's own types, whose arrays are beside it by name; records are of `home`."""
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
        if _is_ours(type(x), home):
            plain = isinstance(x, SimpleNamespace)
            names = vars(x) if plain else getattr(x, "_fields", None)
            names = names or [f.name for f in fields(x) if f.init]
            values = [[name, pack(getattr(x, name))] for name in names]
            return {"of": [type(x).__module__, type(x).__qualname__], "fields": values}
        raise TypeError(f"kept: expected numbers, text, arrays and what holds them, got {type(x)}")

    return pack(value), arrays


def _unpacked(tree: Any, arrays: Any, home: str = _PACKAGE) -> Any:
    """The value that `_packed` took apart."""

    def value(tree: Any) -> Any:
        if isinstance(tree, list):
            return [value(v) for v in tree]
        if not isinstance(tree, dict):
            return tree
        if "array" in tree:
            return arrays[tree["array"]]
        if "scalar" in tree:
            return arrays[tree["scalar"]][()]
        if "fraction" in tree:
            return Fraction(tree["fraction"])
        if "dict" in tree:
            return {value(k): value(v) for k, v in tree["dict"]}
        if "tuple" in tree:
            return tuple(value(v) for v in tree["tuple"])
        values = {name: value(v) for name, v in tree["fields"]}
        module, name = tree["of"]
        return _ours(module, name, home)(**values)

    return value(tree)


def _package(module: str) -> str:
    """The package whose records a study may keep: that of its own module."""
    return module.partition(".")[0]


def _is_ours(kind: Any, home: str) -> bool:
    """True for records (`Cell`, named tuples, dataclasses) of this package or of the study's."""
    shaped = is_dataclass(kind) or hasattr(kind, "_fields")
    shaped = shaped or (isinstance(kind, type) and issubclass(kind, SimpleNamespace))
    return shaped and _package(kind.__module__) in (_PACKAGE, home)


def _ours(module: str, name: str, home: str) -> Any:
    package = _package(module)
    if package not in (_PACKAGE, home):
        raise ValueError(f"kept: {module} is not of this package")
    # A study has imported what its records are made of; a file cannot ask for another module.
    kind = getattr(import_module(module) if package == _PACKAGE else sys.modules[module], name)
    if not _is_ours(kind, home):
        raise ValueError(f"kept: {module}.{name} is no record of this package")
    return kind
