"""The input: files found by name, and opened at any byte of what they hold, packed or not."""

from __future__ import annotations

import glob
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

KINDS = {
    ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".csv": "csv", ".tsv": "tsv",
}  # fmt: skip
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)  # a packed file, when it is read
_BLOCK = 1 << 20  # bytes read at once


def kind_of(path: str | os.PathLike[str]) -> tuple[str, bool]:
    """(parquet, jsonl, csv, tsv or "" for another kind; whether it is packed)."""
    name = str(path).lower()
    packed = name.endswith(".gz")
    kind = KINDS.get(Path(name.removesuffix(".gz")).suffix, "")
    return ("" if packed and kind == "parquet" else kind), packed


def found(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], out: Path
) -> tuple[Path, list[str]]:
    """(folder, names below it) of the files that `source` means: a folder, a glob, a file, or
    several of these. Hidden files, those that begin with _, and what lies in `out` are no input."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    files: dict[Path, None] = {}
    for one in given:
        files.update(dict.fromkeys(_meant(os.fspath(one), out)))
    if not files:
        raise ValueError(f"{_few(given)}: no {', '.join(KINDS)} file there (or .gz of the last)")
    only = Path(os.path.realpath(given[0]))
    folder = len(given) == 1 and only.is_dir()
    root = only if folder else Path(os.path.commonpath([path.parent for path in files]))
    return root, sorted(path.relative_to(root).as_posix() for path in files)


def _meant(one: str, out: Path) -> list[Path]:
    path = Path(os.path.realpath(one))
    if path.is_file():
        if not kind_of(path)[0]:
            raise ValueError(f"{one}: expected a name ending in {', '.join(KINDS)} (or .gz)")
        return [path]
    if not path.is_dir() and not glob.has_magic(one):
        raise ValueError(f"{one}: no such file or folder")
    named = path.rglob("*") if path.is_dir() else map(Path, glob.iglob(one, recursive=True))
    files = []
    for each in named:
        parts = each.relative_to(path).parts if path.is_dir() else (each.name,)
        hidden = any(part.startswith(("_", ".")) for part in parts)
        real = Path(os.path.realpath(each))
        if kind_of(each)[0] and each.is_file() and not hidden and out not in real.parents:
            files.append(each if path.is_dir() else Path(os.path.abspath(each)))
    return files


def _few(given: Sequence[Any]) -> str:
    return ", ".join(str(one)[:100] for one in given[:3]) + (", ..." if len(given) > 3 else "")


@contextmanager
def opened(path: Path, start: int = 0, stop: int = -1) -> Iterator[io.BufferedReader]:
    """The bytes from `start` to `stop` (-1: the end) of what the file holds, unpacked. A packed
    file is kept open where reading stopped: partitions come in order, so it is unpacked once."""
    if not kind_of(path)[1]:
        with path.open("rb") as stream:
            stream.seek(start)
            yield io.BufferedReader(_Until(stream, stop - start), _BLOCK)
        return
    facts = path.stat()
    key = str(path), facts.st_size, facts.st_mtime_ns
    packed: Any = _HELD.pop(key, None) or gzip.open(path)  # noqa: SIM115  (may outlive this call)
    release()  # one at a time
    try:
        packed.seek(start)  # backwards is from the beginning
        yield io.BufferedReader(_Until(packed, stop - start), _BLOCK)
        if packed.tell() == stop:
            _HELD[key], packed = packed, None
    finally:
        if packed is not None:
            packed.close()


_HELD: dict[tuple[str, int, int], Any] = {}  # at most one, by its name, size and time of change


def release() -> None:
    """Close the file that is kept open."""
    while _HELD:
        _HELD.popitem()[1].close()


@final
class _Until(io.RawIOBase):
    """So many bytes of a stream (below 0: all there are), which is not closed at their end."""

    def __init__(self, stream: Any, left: int) -> None:
        self._stream, self._left = stream, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        size = len(view) if self._left < 0 else min(len(view), self._left)
        data = self._stream.read1(size) if size else b""  # what is there before a damage
        view[: len(data)] = data
        self._left -= len(data) if self._left > 0 else 0
        return len(data)
