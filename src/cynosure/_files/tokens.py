"""Tables of numbers, tokens or a matrix, from text and array files: one token per row."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .bounded import _DAMAGED, member_names, read_array, read_arrays

_LONGEST_ROW = 1 << 20  # bytes of one line: some 40,000 coordinates


def encoding(start: bytes, name: object) -> str:
    """How a text file that begins so is written: UTF-8, or UTF-16 by its mark or its zero bytes."""
    if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise ValueError(f"{name}: {WORKBOOK}")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    zeros = [start[side::2].count(0) / max(len(start[side::2]), 1) for side in (0, 1)]
    if zeros[0] == 0 and zeros[1] > 0.4:
        return "utf-16-le"
    if zeros[1] == 0 and zeros[0] > 0.4:
        return "utf-16-be"
    return "utf-8-sig"


WORKBOOK = "an Excel workbook; save its sheet as CSV (File, Save as, CSV UTF-8) and give that"
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")


def _encoding_of(path: Path) -> str:
    with path.open("rb") as file:
        return encoding(file.read(64), path)


_TEXT = (".csv", ".tsv", ".txt")


def header(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The column names on the first line of a text file of tokens; () where it holds numbers."""
    path = Path(path)
    if path.suffix.lower() not in _TEXT or not path.is_file():
        return ()
    with path.open(encoding=_encoding_of(path), errors="replace") as lines:
        _, cells, _ = next(_rows(lines), (0, ["0"], None))
    return () if any(map(_is_number, cells)) else tuple(cells)


def read(path: str | os.PathLike[str]) -> np.ndarray:
    """Tokens from a file: one token per line (.csv, .tsv, .txt) or an (n, d) array (.npy, .npz).

    Text: cells separated by semicolons, commas or blanks (found on the first line), an optional
    header line without any number, ``#`` starts a comment, blank lines are skipped. One column is
    dimension d = 1. An .npz file holds the tokens under ``z0`` or ``z``. Nothing is unpickled.
    Raises FileNotFoundError, or ValueError naming the line and column to mend.
    """
    path = Path(path)
    if not path.is_file():
        near = sorted(p.name for p in islice(path.parent.glob("*"), 1000) if p.suffix in _ALL)[:5]
        found = f"; that folder holds {', '.join(near)}" if near else ""
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; expected a token file ({', '.join(_ALL)}){found}")
    suffix = path.suffix.lower()
    if suffix in WORKBOOKS:
        raise ValueError(f"{path}: {WORKBOOK} (expected one of {', '.join(_ALL)})")
    if suffix not in _ALL:
        raise ValueError(f"{path}: expected one of {', '.join(_ALL)}; got {suffix or 'no ending'}")
    z = _read_text(path) if suffix in _TEXT else _as_matrix(_read_array(path, suffix), path)
    bad = np.argwhere(~np.isfinite(z))
    if len(bad):
        i, j = bad[0]
        said = "tokens must be finite, remove or replace such tokens"
        raise ValueError(f"{path}: token {i}, coordinate {j} is {z[i, j]}; {said}")
    return z


_ALL = (*_TEXT, ".npy", ".npz")


def _read_array(path: Path, suffix: str) -> np.ndarray:
    """The array of an .npy file, or the tokens of an .npz; what they declare is checked first."""
    with path.open("rb") as file:
        packed = file.read(2) == b"PK"  # by content: an .npz may be called .npy and be read
    try:
        if packed:
            found = read_arrays(path, ("z0", "z"))
        else:
            with path.open("rb") as file:
                return read_array(file, os.fstat(file.fileno()).st_size)
    except _DAMAGED as error:
        if "Object arrays" in str(error):
            said = "holds Python objects, which are never unpickled"
            raise ValueError(f"{path}: {said}; save a plain float array with numpy.save") from None
        said = str(error) if isinstance(error, ValueError) else "cut short"
        said = said.removeprefix(f"{path}: ")[:200]
        raise ValueError(
            f"{path}: not a readable {suffix} file; if it is text, name it .csv, else save it again"
            f" with numpy.save{'z' if suffix == '.npz' else ''} ({said})"
        ) from None
    if not found:
        held = ", ".join(member_names(path)[:20]) or "nothing"
        raise ValueError(f"{path}: expected tokens under the name z0 or z; it holds {held}")
    return found["z0"] if "z0" in found else found["z"]


def _as_matrix(z: np.ndarray, path: Path) -> np.ndarray:
    if z.dtype.kind not in "fiub":
        raise ValueError(f"{path}: expected real numbers; got an array of type {z.dtype}")
    if z.ndim != 2:
        what = "z[:, None] for n tokens on the line or z[None] for a single token"
        what = what if z.ndim == 1 else "one configuration, for instance z[0]"
        said = "expected an (n, d) array, one token per row"
        raise ValueError(f"{path}: {said}; got shape {z.shape}; save {what}")
    if z.size == 0:
        raise ValueError(f"{path}: expected at least one token; got shape {z.shape}")
    return np.ascontiguousarray(z, dtype=np.float64)


def _read_text(path: Path) -> np.ndarray:
    written = _encoding_of(path)
    if written.startswith("utf-16"):
        raise ValueError(f"{path}: written in UTF-16; save it as UTF-8 CSV")
    with path.open("rb") as file:  # every cell of a line of megabytes would be an object
        while block := file.read(_LONGEST_ROW):
            if len(block) == _LONGEST_ROW and b"\n" not in block and b"\r" not in block:
                said = "expected one token per line (a matrix on a single line has lost its ends)"
                raise ValueError(f"{path}: a line of over {_LONGEST_ROW >> 20} MB; {said}")
    try:
        with path.open(encoding=written) as lines:
            first = list(islice(_rows(lines), 2))
        if not first:
            raise ValueError(f"{path}: the file is empty; expected one token per line")
        named = not any(map(_is_number, first[0][1]))
        if named and len(first) == 1:
            found = f"line {first[0][0]} is {' '.join(first[0][1])!r} and no token follows"
            raise ValueError(f"{path}: {found}; expected one token per line, as numbers")
        try:
            begin, _, delimiter = first[0]
            how: Any = {"delimiter": delimiter, "skiprows": begin if named else 0}
            return np.loadtxt(path, ndmin=2, encoding=written, **how)
        except UnicodeDecodeError:
            raise
        except ValueError:
            # loadtxt is fast but its messages name no column; the slow reader finds the cell.
            names = first[0][1] if named else []
            with path.open(encoding=written) as lines:
                return _read_slowly(path, islice(_rows(lines), named, None), names)
    except UnicodeDecodeError as e:
        found = f"not a text file in UTF-8 ({e.reason} at byte {e.start})"
        raise ValueError(f"{path}: {found}; save it as UTF-8 CSV") from None


def _read_slowly(
    path: Path, rows: Iterator[tuple[int, list[str], str | None]], names: Sequence[str] = ()
) -> np.ndarray:
    """The reference reader: every cell with Python's float, every complaint with its place."""
    z = array("d")  # numbers, not objects: a long file stays as small as it is
    width = 0
    for line, cells, _ in rows:
        for column, cell in enumerate(cells, 1):
            if not _is_number(cell):
                found = repr(cell) if cell else "an empty cell"
                hint = "; use a decimal point" if _is_number(cell.replace(",", ".")) else ""
                if names and cell and not hint:
                    hint = "; if it is a label, leave its column out"
                name = f" under {names[column - 1]!r}" if column <= len(names) else ""
                at = f"{path}: line {line}, column {column}"
                raise ValueError(f"{at}: expected a number; got {found}{name}{hint}")
        if z and len(cells) != width:
            found = f"line {line} has {len(cells)} columns where the lines above have {width}"
            raise ValueError(f"{path}: {found}; every token needs the same dimension")
        width = len(cells)
        z.extend(map(float, cells))
    return np.array(z).reshape(-1, max(width, 1))


def _rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str], str | None]]:
    """(line number, cells, delimiter) of every line that is neither blank nor a comment."""
    delimiter: str | None = ""
    for number, raw in enumerate(lines, 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        if delimiter == "":
            delimiter = next((c for c in ";," if c in line), None)
        yield number, [cell.strip() for cell in line.split(delimiter)], delimiter


def _is_number(cell: str) -> bool:
    with suppress(ValueError):  # float() also takes 1_0, which no table means as a number
        float(cell)
        return "_" not in cell
    return False
