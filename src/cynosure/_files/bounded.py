"""Reading what may be damaged or hostile: each failure is one ValueError that names the file.

A file of a few kilobytes can declare terabytes, unfold to gigabytes, or nest so deeply that the
parser fails. So sizes are compared before anything is parsed. Nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
LONGEST_LINE = 16 << 20  # bytes of one text, one row of a table, one JSON value
_UNFOLDS = 256 << 20, 3  # an archive may unfold to so many bytes and so many times its size more
_LARGEST_DIRECTORY = 8 << 20  # bytes: names of some hundred thousand members
# What zipfile and numpy raise on damaged bytes, beside ValueError and OSError: nothing of it comes
# from a caller's code, and each means that the file is not what was written.
_DAMAGED = (
    *(ValueError, OSError, EOFError, KeyError, IndexError, TypeError, OverflowError),
    *(RuntimeError, NotImplementedError, SyntaxError, struct.error, zlib.error),
    *(zipfile.BadZipFile, zipfile.LargeZipFile, MemoryError),
)


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes."""
    with path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path}: over {most >> 20} MB, far too large for what it should hold")
    return data


def parsed_json(text: str | bytes, name: str, most: int = LONGEST_LINE) -> Any:
    """The value of a JSON text of at most `most` bytes; ValueError otherwise."""
    return _parsed(json.loads, text, name, "JSON", most)


def parsed_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of a TOML text; ValueError otherwise."""
    return _parsed(tomllib.loads, text, name, "TOML", 1 << 20)


def _parsed(parse: Callable[[Any], Any], text: Any, name: str, kind: str, most: int) -> Any:
    if len(text) > most:
        raise ValueError(f"{name}: over {most >> 20} MB, too large for one {kind} value")
    try:
        return parse(text)
    except RecursionError:
        raise ValueError(f"{name}: nested too deeply, not {kind} that we wrote") from None
    except ValueError as error:  # JSONDecodeError, TOMLDecodeError, digits without end
        raise ValueError(f"{name}: not {kind} ({error})") from None


def bounded_lines(stream: Any, name: str, most: int = LONGEST_LINE) -> Iterator[Any]:
    """The lines of a stream, or of an iterable that has read them, none over `most` characters."""
    ask = getattr(stream, "readline", None)
    lines = stream if ask is None else iter(lambda: ask(most + 1) or None, None)
    for number, line in enumerate(lines, 1):
        if len(line) > most:
            raise ValueError(f"{name}, line {number}: longer than {most >> 20} MB; cut it")
        yield line


def read_array(stream: Any, size: int) -> np.ndarray:
    """The array of an .npy stream that declares just `size` bytes; raises any of `_DAMAGED`."""
    head = io.BytesIO(stream.read(12))  # magic, version, length of the header
    major, minor = np.lib.format.read_magic(head)
    if (major, minor) not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"an .npy of version {major}.{minor}")
    width, begun = 2 if major == 1 else 4, head.getvalue()[8:]
    length = int.from_bytes(begun[:width], "little")
    if length > 65536:
        raise ValueError("a header of over 64 kB")
    header = begun + stream.read(length + width - len(begun))
    shape, fortran, dtype = _declared(header, major)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    count = math.prod(shape)
    if 8 + width + length + count * dtype.itemsize != size:
        raise ValueError(f"declares shape {shape} of {dtype}, which does not fit its size")
    data, done = np.empty(count, dtype), 0
    into = data.view(np.uint8) if data.nbytes else data
    while done < data.nbytes:
        chunk = stream.read(min(1 << 20, data.nbytes - done))
        if not chunk:
            raise EOFError("cut short")
        into[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)
    return data.reshape(shape[::-1]).transpose() if fortran else data.reshape(shape)


def _declared(header: bytes, major: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    known = np.lib.format  # 3.0 is 2.0 with names in UTF-8
    read = known.read_array_header_1_0 if major == 1 else known.read_array_header_2_0
    try:
        shape, fortran, dtype = read(io.BytesIO(header))
    except (RecursionError, MemoryError, TokenError):  # of Python's parser: it nests, or never ends
        raise ValueError("a header that is no header") from None
    if any(extent < 0 for extent in shape) or len(shape) > 32:
        raise ValueError("a header with no shape")
    return shape, fortran, dtype


def read_arrays(
    path: str | os.PathLike[str], wanted: Container[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name, or those in `wanted`; ValueError if it is damaged.

    Checksums are verified. An archive that unfolds to far more than its size is refused unread.
    """
    return _archive(path, lambda archive, size: _chosen(archive, size, wanted))


def member_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of the arrays in an .npz; ValueError if it is damaged."""
    return _archive(path, lambda archive, _: [*_members(archive)])


def _archive(path: str | os.PathLike[str], use: Callable[[zipfile.ZipFile, int], T]) -> T:
    with Path(path).open("rb") as file:  # not there: the caller's error, as it is
        size = os.fstat(file.fileno()).st_size
        try:
            _small_directory(file, size)
            with zipfile.ZipFile(file) as archive:
                return use(archive, size)
        except _DAMAGED as error:
            said = str(error) if type(error) is ValueError else type(error).__name__
            raise ValueError(f"{path}: not an .npz archive, or damaged ({said})") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    arrays = [m for m in archive.infolist() if m.filename.endswith(".npy")]
    return {m.filename.removesuffix(".npy"): m for m in arrays}


def _chosen(
    archive: zipfile.ZipFile, size: int, wanted: Container[str] | None
) -> dict[str, np.ndarray]:
    members = {k: m for k, m in _members(archive).items() if wanted is None or k in wanted}
    total = sum(m.file_size for m in members.values())
    if total > _UNFOLDS[0] + _UNFOLDS[1] * size:
        raise ValueError(f"it unfolds to {total >> 20} MB; save it again with numpy.savez")
    found = {}
    for name, member in members.items():
        with archive.open(member) as stream:
            found[name] = read_array(stream, member.file_size)
            if stream.read(1):  # also asks for the end, where the checksum is compared
                raise ValueError(f"{member.filename} is longer than it declares")
    return found


def _small_directory(file: Any, size: int) -> None:
    """Refuse an archive whose list of members alone is huge: zipfile reads it at once."""
    file.seek(max(0, size - 22 - 65535))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at >= 0 and len(tail) >= at + 16:
        listed = int.from_bytes(tail[at + 12 : at + 16], "little")
        if listed > _LARGEST_DIRECTORY:
            raise ValueError("it lists far too many members")
    file.seek(0)
