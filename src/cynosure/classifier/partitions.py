"""Many texts in many files: found, cut into partitions, read batch by batch, bad rows set apart.

A partition is a run of row groups of a parquet file, a run of lines of a .jsonl file, or a whole
.csv or packed file, which can only be read from its beginning. A batch holds few texts and few
characters, however large the file. A row that cannot be read does not end the reading: it is given
with its place and the reason.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from .._files import LONGEST_LINE, encoding, parsed_json
from .datasets import table_rows

__all__ = ["Batch", "Part", "batches", "cut", "found", "id_type", "kind_of"]

KINDS = {
    ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".csv": "csv", ".tsv": "tsv",
}  # fmt: skip
MOST_ROWS, MOST_CHARACTERS = 2048, 1 << 22  # of one batch
_BLOCK = 1 << 22  # bytes


class Part(NamedTuple):
    """Where a partition lies: number of its file, number of its first row, and from where to where
    in it: row groups, or bytes (-1: to the end)."""

    file: int
    first: int
    start: int
    stop: int


@final
@dataclass(frozen=True)
class Batch:
    """Rows that can be read, by number, and (row, reason) of those that cannot."""

    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)


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


# --- cutting -------------------------------------------------------------------------------------


def cut(root: Path, names: Sequence[str], rows: int, text: str, id: str | None) -> list[Part]:
    """Partitions of about `rows` rows each; columns that are not there are refused here."""
    parts: list[Part] = []
    for i, name in enumerate(names):
        path = root / name
        kind, packed = kind_of(path)
        if kind == "parquet":
            parts += _row_groups(path, i, rows, text, id)
        elif kind == "jsonl" and not packed:
            parts += _line_runs(path, i, rows)
        else:
            parts.append(Part(i, 0, 0, -1))
    return parts


def _row_groups(path: Path, i: int, rows: int, text: str, id: str | None) -> Iterator[Part]:
    with _parquet(path) as file:
        _text_column(path, file.schema_arrow, text, id)
        meta = file.metadata
        first = start = held = 0
        for group in range(meta.num_row_groups):
            held += meta.row_group(group).num_rows
            if held >= rows or group == meta.num_row_groups - 1:
                yield Part(i, first, start, group + 1)
                first, start, held = first + held, group + 1, 0


def _text_column(path: Path, schema: Any, text: str, id: str | None) -> None:
    import pyarrow.types as kinds

    for name in [text] if id is None else [text, id]:
        if name not in schema.names:
            from .datasets import _offered

            raise ValueError(f"{path}: no column {name!r}; {_offered(schema.names, name == text)}")
    kind = schema.field(text).type
    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    textual = (
        kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
        or kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_null(kind)
    )  # fmt: skip
    if not textual:
        raise ValueError(f"{path}: column {text!r} holds {kind}; expected strings")


def _line_runs(path: Path, i: int, rows: int) -> Iterator[Part]:
    """Runs of `rows` lines, by counting line ends: a gigabyte in about a second."""
    with path.open("rb") as stream:
        if encoding(stream.read(64), path) != "utf-8-sig":
            raise ValueError(f"{path}: UTF-16; convert it with `iconv -f utf-16 -t utf-8`")
        stream.seek(0)
        start = first = lines = offset = 0
        while block := stream.read(_BLOCK):
            lines += block.count(b"\n")
            if lines - first >= rows:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
                before = lines - len(ends)
                while lines - first >= rows:
                    stop = offset + int(ends[first + rows - before - 1]) + 1
                    yield Part(i, first, start, stop)
                    start, first = stop, first + rows
            offset += len(block)
        if offset > start:
            yield Part(i, first, start, offset)


def id_type(root: Path, names: Sequence[str], id: str | None) -> str | None:
    """How an id column is written: the whole numbers of parquet files that all have them, or
    text."""
    if id is None:
        return None
    import pyarrow.types as kinds

    whole = True
    for name in names:
        if kind_of(name)[0] != "parquet":
            return "string"
        with _parquet(root / name) as file:
            whole &= kinds.is_integer(file.schema_arrow.field(id).type)
    return "int64" if whole else "string"


# --- reading -------------------------------------------------------------------------------------


def batches(path: Path, part: Part, text: str, id: str | None) -> Iterator[Batch]:
    """The rows of a partition, none of them twice and none left out."""
    kind, packed = kind_of(path)
    if kind == "parquet":
        yield from _of_parquet(path, part, text, id)
        return
    opened: Any = gzip.open if packed else open
    try:
        with opened(path, "rb") as stream:
            if kind == "jsonl":
                rows = _of_lines(stream, part, text, id)
            else:
                rows = _of_table(stream, path, text, id, "\t" if kind == "tsv" else ",")
            yield from _gathered(rows)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged or cut short ({error})") from None
    except UnicodeError as error:
        raise ValueError(f"{path}: {error}; save it as UTF-8") from None


Row = tuple[int, str | None, Any]  # number; its text and id, or None and the reason


def _gathered(rows: Iterable[Row]) -> Iterator[Batch]:
    batch, held = Batch(), 0
    for number, text, rest in rows:
        if text is None:
            batch.bad.append((number, rest))
        else:
            batch.rows.append(number)
            batch.texts.append(text)
            batch.ids.append(rest)
            held += len(text)
        if len(batch.rows) + len(batch.bad) >= MOST_ROWS or held >= MOST_CHARACTERS:
            yield batch
            batch, held = Batch(), 0
    yield batch


def _of_lines(stream: Any, part: Part, text: str, id: str | None) -> Iterator[Row]:
    """A JSON object per line; the number of a row is that of its line, from 0 on."""
    stream.seek(part.start)
    left = part.stop - part.start if part.stop >= 0 else None
    number = part.first
    while left is None or left > 0:
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            break
        size = len(line)
        cut_off = size > LONGEST_LINE and not line.endswith(b"\n")
        while cut_off and (rest := stream.readline(_BLOCK)):
            size += len(rest)
            cut_off = not rest.endswith(b"\n")
        left = None if left is None else left - size
        if size > LONGEST_LINE:
            yield number, None, f"longer than {LONGEST_LINE >> 20} MB"
        elif stripped := line.removeprefix(b"\xef\xbb\xbf" if not number else b"").strip():
            yield _object(number, stripped, text, id)
        number += 1


def _object(number: int, line: bytes, text: str, id: str | None) -> Row:
    try:
        row = parsed_json(line.decode("utf-8"), "")
    except UnicodeDecodeError as error:
        return number, None, f"not UTF-8 ({error.reason} at byte {error.start})"
    except ValueError:
        return number, None, "not JSON"
    if not isinstance(row, dict):
        return number, None, "not a JSON object"
    if not isinstance(row.get(text), str):
        what = "is not a string" if text in row else "is not there"
        return number, None, f"field {text!r} {what}"
    return _with_id(number, row[text], None if id is None else row.get(id), id)


def _with_id(number: int, text: str, value: Any, id: str | None) -> Row:
    """The row, if its id can be written; a missing one is a bad row: nobody could find it again."""
    if id is not None and (not isinstance(value, str | int) or isinstance(value, bool)):
        return number, None, f"id {id!r} is missing, or no string or whole number"
    if isinstance(value, str) and not _is_encodable(value):
        return number, None, f"id {id!r} is not UTF-8"
    return number, text, value


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_table(stream: Any, path: Path, text: str, id: str | None, mark: str) -> Iterator[Row]:
    """Rows below the header; empty lines are none. Bytes that are not UTF-8 make a row a bad one,
    not a file."""
    written = encoding(stream.read(64), path)
    stream.seek(0)
    errors = "surrogateescape" if written == "utf-8-sig" else "strict"
    with io.TextIOWrapper(stream, encoding=written, errors=errors, newline="") as source:
        lines, rows, head = table_rows(source, path, [text] if id is None else [text, id], mark)
        at, of = head.index(text), None if id is None else head.index(id)
        number = 0
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                row = [""]
                yield number, None, f"not a row of a table ({error})"
            else:
                if row is None:
                    return
                if row and len(row) != len(head):
                    yield number, None, f"expected {len(head)} fields, got {len(row)}"
                elif row and not _is_encodable(row[at]):
                    yield number, None, "not UTF-8"
                elif row:
                    yield _with_id(number, row[at], None if of is None else row[of], id)
            lines.row_ended()
            number += bool(row)


def _parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a parquet file, or damaged ({_line(error)})") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _of_parquet(path: Path, part: Part, text: str, id: str | None) -> Iterator[Batch]:
    import pyarrow as pa

    columns = [text] if id is None else [text, id]
    with _parquet(path) as file:
        number = part.first
        try:
            for read in file.iter_batches(
                batch_size=MOST_ROWS,
                row_groups=list(range(part.start, part.stop)),
                columns=columns,
                use_threads=False,
            ):
                ids = [None] * len(read) if id is None else _values(read.column(id))
                pairs = zip(_values(read.column(text)), ids, strict=True)
                rows = ((number + k, *pair) for k, pair in enumerate(pairs))
                yield from _gathered(_of_columns(rows, id))
                number += len(read)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: damaged ({_line(error)})") from None


def _values(column: Any) -> list[Any]:
    """The values of a column; where a string is not UTF-8, the bytes of each."""
    import pyarrow as pa

    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        return column.cast(pa.large_binary()).to_pylist()


def _of_columns(rows: Iterable[tuple[int, Any, Any]], id: str | None) -> Iterator[Row]:
    for number, text, value in rows:
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError as error:
                yield number, None, f"not UTF-8 ({error.reason} at byte {error.start})"
                continue
        if text is None:
            yield number, None, "a missing text"
        elif len(text) > LONGEST_LINE:
            yield number, None, f"longer than {LONGEST_LINE >> 20} MB"
        else:
            yield _with_id(number, text, value, id)
