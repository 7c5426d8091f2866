"""The rows of a partition, in batches of few texts and characters. A row that cannot be read does
not end the reading: it is given with its place and the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, final

from ..._files import LONGEST_LINE, parsed_json
from .cutting import Head, Part, head_of, parquet, parsed
from .files import DAMAGED, kind_of, opened

MOST_ROWS, MOST_CHARACTERS = 2048, 1 << 22  # of one batch
_BLOCK = 1 << 22  # bytes


@final
@dataclass(frozen=True)
class Batch:
    """Rows that can be read, by number, and (row, reason) of those that cannot."""

    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)


def batches(path: Path, part: Part, text: str, id: str | None) -> Iterator[Batch]:
    """The rows of a partition, none of them twice and none left out."""
    kind, _ = kind_of(path)
    if kind == "parquet":
        yield from _of_parquet(path, part, text, id)
        return
    try:
        if kind == "jsonl":
            with opened(path, part.start, part.stop) as stream:
                yield from _gathered(_of_lines(stream, part, text, id))
            return
        head = head_of(path, [text] if id is None else [text, id])
        with opened(path, max(part.start, head.stop), part.stop) as stream:
            yield from _gathered(_of_table(stream, head, path, part, text, id))
    except DAMAGED as error:
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
    for number in count(part.first):
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            while not line.endswith(b"\n") and (rest := stream.readline(_BLOCK)):
                line = rest
            yield number, None, f"longer than {LONGEST_LINE >> 20} MB"
        elif stripped := line.removeprefix(b"\xef\xbb\xbf" if not number else b"").strip():
            yield _object(number, stripped, text, id)


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
    return text.isascii() or text.encode("utf-8", "replace") == text.encode(
        "utf-8", "surrogatepass"
    )


def _of_table(stream: Any, head: Head, path: Path, part: Part, text: str, id: str | None) -> Any:
    """Rows below the head; bytes that are not UTF-8 make a row a bad one, not a file."""
    at, of = head.columns.index(text), None if id is None else head.columns.index(id)
    for number, row in parsed(head.text(stream), path, head.mark, part.first):
        if isinstance(row, str):
            yield number, None, row
        elif len(row) != len(head.columns):
            yield number, None, f"expected {len(head.columns)} fields, got {len(row)}"
        elif not _is_encodable(row[at]):
            yield number, None, "not UTF-8"
        else:
            yield _with_id(number, row[at], None if of is None else row[of], id)


def _of_parquet(path: Path, part: Part, text: str, id: str | None) -> Iterator[Batch]:
    import pyarrow as pa

    columns = [text] if id is None else [text, id]
    with parquet(path) as file:
        number = part.first
        try:
            for read in file.iter_batches(
                MOST_ROWS, list(range(part.start, part.stop)), columns, use_threads=False
            ):
                ids = [None] * len(read) if id is None else _values(read.column(id))
                pairs = zip(_values(read.column(text)), ids, strict=True)
                rows = ((number + k, *pair) for k, pair in enumerate(pairs))
                yield from _gathered(_of_columns(rows, id))
                number += len(read)
        except (pa.ArrowException, OSError) as error:
            why = " ".join(str(error).split())[:200]
            raise ValueError(f"{path}: damaged ({why})") from None


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
