"""Files divided into partitions: runs of row groups, of lines, of rows of a table. A .csv is cut by
the reader that reads it later, so that a line end inside quotes is none for both."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._files import LONGEST_LINE, encoding
from ..text.datasets import RowByRow, _offered, table_rows
from .files import DAMAGED, kind_of, opened

_BLOCK = 1 << 22  # bytes


class Part(NamedTuple):
    """Where a partition lies: number of its file, number of its first row, and from where to where
    in it: row groups, or bytes of what is packed (-1: to the end)."""

    file: int
    first: int
    start: int
    stop: int


def cut(root: Path, names: Sequence[str], rows: int, text: str, id: str | None) -> list[Part]:
    """Partitions of about `rows` rows each; columns that are not there are refused here."""
    parts: list[Part] = []
    for i, name in enumerate(names):
        path = root / name
        kind, _ = kind_of(path)
        if kind == "parquet":
            parts += _row_groups(path, i, rows, text, id)
        elif kind == "jsonl":
            parts += _line_runs(path, i, rows)
        else:
            parts += _table_runs(path, i, rows, [text] if id is None else [text, id])
    return parts


def parquet(path: Path) -> Any:
    """The file, opened; its column chunks are read as they are needed, not whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except pa.ArrowException as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{path}: not a parquet file, or damaged ({why})") from None


def _row_groups(path: Path, i: int, rows: int, text: str, id: str | None) -> Iterator[Part]:
    with parquet(path) as file:
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
            raise ValueError(f"{path}: no column {name!r}; {_offered(schema.names, name == text)}")
    kind = schema.field(text).type
    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    textual = "string", "large_string", "string_view", "binary", "large_binary", "null"
    if not any(getattr(kinds, f"is_{name}")(kind) for name in textual):
        raise ValueError(f"{path}: column {text!r} holds {kind}; expected strings")


def id_type(root: Path, names: Sequence[str], id: str | None) -> str | None:
    """How an id column is written: as whole numbers where all files are parquet with these."""
    if id is None:
        return None
    import pyarrow.types as kinds

    for name in names:
        if kind_of(name)[0] != "parquet":
            return "string"
        with parquet(root / name) as file:
            if not kinds.is_integer(file.schema_arrow.field(id).type):
                return "string"
    return "int64"


def _line_runs(path: Path, i: int, rows: int) -> Iterator[Part]:
    """Runs of `rows` lines, by counting line ends: a gigabyte in about a second."""
    start = first = lines = offset = 0
    try:
        with opened(path) as stream:
            if encoding(stream.peek(64)[:64], path) != "utf-8-sig":
                raise ValueError(f"{path}: UTF-16; convert it with `iconv -f utf-16 -t utf-8`")
            while block := stream.read1(_BLOCK):  # before a damage, what is there
                lines += block.count(b"\n")
                if lines - first >= rows:
                    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
                    before = lines - len(ends)
                    while lines - first >= rows:
                        stop = offset + int(ends[first + rows - before - 1]) + 1
                        yield Part(i, first, start, stop)
                        start, first = stop, first + rows
                offset += len(block)
    except DAMAGED:
        yield Part(i, first, start, -1)  # says so when it is read; what is before it is not lost
        return
    if offset > start:
        yield Part(i, first, start, offset)


class Head(NamedTuple):
    """Of a table: its encoding, what stands between fields, its columns, where its rows begin."""

    encoding: str
    mark: str
    columns: list[str]
    stop: int

    def text(self, stream: Any) -> io.TextIOWrapper:
        """Bytes of the table as text; those that are not UTF-8 spoil their row, not the file."""
        errors = "surrogateescape" if self.encoding == "utf-8" else "strict"
        return io.TextIOWrapper(stream, self.encoding, errors, newline="")


def head_of(path: Path, wanted: Sequence[str]) -> Head:
    """The head of a table that has the columns `wanted`; found once for each file."""
    return _head(path, tuple(wanted), path.stat().st_size, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _head(path: Path, wanted: tuple[str, ...], *version: int) -> Head:
    with opened(path) as stream:
        start = stream.peek(64)[:64]
        written, mark = encoding(start, path), "\t" if kind_of(path)[0] == "tsv" else ","
        stop = 0
        if written == "utf-8-sig":
            written, stop = "utf-8", 3 if start.startswith(b"\xef\xbb\xbf") else 0
        elif written == "utf-16":
            written, stop = "utf-16-be" if start.startswith(b"\xfe") else "utf-16-le", 2
        stream.read(stop)
        lines = _Measured(Head(written, mark, [], 0).text(stream), stop)
        _, rows, columns = table_rows(lines, path, wanted, mark)
        return Head(written, rows.dialect.delimiter, columns, lines.at)


class _Measured:
    """Lines of a text, which knows at which byte of the file the next one begins."""

    def __init__(self, source: io.TextIOWrapper, at: int) -> None:
        self._source, self.at = source, at
        self._how = source.encoding, source.errors or "strict"

    def readline(self, most: int) -> str:
        line = self._source.readline(most)
        plain = self._how[0] == "utf-8" and line.isascii()
        self.at += len(line) if plain else len(line.encode(*self._how))
        return line


def parsed(lines: Any, path: Path, mark: str, number: int) -> Iterator[tuple[int, list[str] | str]]:
    """(number, its fields or why it has none) of the rows of a table; empty lines are none."""
    csv.field_size_limit(LONGEST_LINE)
    bounded = RowByRow(lines, path)
    rows = csv.reader(bounded, delimiter=mark)
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield number, f"not a row of a table ({error})"
            row = [""]
        except UnicodeError:
            raise
        except ValueError:
            why = f"over {LONGEST_LINE >> 20} MB; is a quote not closed?"
            raise ValueError(f"{path}, row {number}: {why}") from None
        else:
            if row is None:
                return
            if row:
                yield number, row
        bounded.row_ended()
        number += bool(row)


def _table_runs(path: Path, i: int, rows: int, wanted: Sequence[str]) -> Iterator[Part]:
    """Runs of `rows` rows: the table is read once, to see where they begin."""
    first = start = ended = 0
    try:
        head = head_of(path, wanted)
    except (*DAMAGED, UnicodeError):
        yield Part(i, 0, 0, -1)  # says so when it is read
        return
    try:
        with opened(path, head.stop) as stream:
            start = head.stop
            lines = _Measured(head.text(stream), start)
            for number, _ in parsed(lines, path, head.mark, 0):
                ended = number + 1
                if ended - first == rows:
                    yield Part(i, first, start, lines.at)
                    first, start = ended, lines.at
    except (*DAMAGED, ValueError):
        yield Part(i, first, start, -1)  # what is before it is not lost
        return
    if ended > first:
        yield Part(i, first, start, lines.at)
