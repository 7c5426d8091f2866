"""Labelled texts: the aclImdb folder or archive, tables (CSV, TSV, JSON lines), made-up reviews.

Archives are read as a stream and never extracted; a member that points outside, or is too large, is
refused. Folds are *blocks* of consecutive texts: neighbours are often about the same film, and
a random split then reads two to four points too high.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any, final

import numpy as np

from ..._exports import guard
from ..._files import LONGEST_LINE, WORKBOOK, WORKBOOKS, bounded_lines, encoding, parsed_json
from ..._types import as_generator

__all__ = ["Dataset", "blocks", "imdb", "read", "stream", "synthetic"]

_REVIEW = re.compile(r"(?:^|/)(train|test)/(pos|neg)/(\d+)_(\d+)\.txt$")
_LARGEST_REVIEW = 64 << 20  # bytes in one member
_LARGEST_ARCHIVE = 4 << 30  # bytes in all members
_LARGEST_READ = 1 << 14  # bytes asked of an archive at once; what stands before a member is less
_LEAST_MEMBER = 32  # bytes that a packed member takes on average, its name and a text
_UNFOLDS = 64 << 20, 16  # packed texts may be so many bytes, and so many times their size, more
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
# What the standard library raises where packed bytes are damaged or cut.
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Texts with their labels, in the order of their source."""

    texts: tuple[str, ...]
    labels: np.ndarray

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            given = f"{len(self.texts)} and {len(self.labels)}"
            raise ValueError(f"expected one label per text, got {given}")

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        classes, counts = np.unique(self.labels, return_counts=True)
        share = ", ".join(f"{c}: {n}" for c, n in zip(classes.tolist(), counts.tolist()))
        return f"Dataset({len(self)} texts; {share})"

    def take(self, rows: np.ndarray) -> Dataset:
        """The texts at these positions (or where a mask is True)."""
        at = np.arange(len(self))[rows]
        return Dataset(tuple(self.texts[i] for i in at.tolist()), self.labels[at])

    def split(self, fraction: float = 0.1) -> tuple[Dataset, Dataset]:
        """(the rest, held out): held out is a block of each run of 1,250 texts of a class."""
        held = blocks(self.labels, fraction)
        return self.take(~held), self.take(held)


def blocks(labels: Sequence[Any] | np.ndarray, fraction: float = 0.1) -> np.ndarray:
    """True for the texts to hold out: one fold of each run of 1,250 texts of a class.

    The block begins at 600/1250 of the run; runs are shorter where a class has fewer texts.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction}")
    labels = np.asarray(labels)
    held = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        period = min(1250, len(rows))
        start = int(0.48 * period)
        stop = start + max(1, round(fraction * period))
        place = np.arange(len(rows)) % period
        held[rows] = (place >= start) & (place < stop)
    return held


def imdb(path: str | os.PathLike[str], part: str = "train") -> Dataset:
    """The Large Movie Review Dataset (Maas et al. 2011), official split (`part`) "train" or "test".

    `path` is the folder aclImdb or the aclImdb .tar.gz, which is read without extracting it.
    Labels are "neg" and "pos"; within a label, texts come in the order of their ids.
    """
    if part not in ("train", "test"):
        raise ValueError(f"part: expected 'train' or 'test', got {part!r}")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    members = _folder(path, part) if path.is_dir() else _archive(path, part)
    reviews = sorted(members, key=lambda member: member[:2])
    if not reviews:
        raise ValueError(
            f"{path}: no review found; expected {part}/pos/<id>_<rating>.txt and {part}/neg/..."
        )
    labels = np.array([label for label, _, _ in reviews])
    return Dataset(tuple(text for _, _, text in reviews), labels)


def _folder(path: Path, part: str) -> Iterator[tuple[str, int, str]]:
    root = path if (path / part).is_dir() else path / "aclImdb"
    for file in root.glob(f"{part}/*/*.txt"):
        if match := _REVIEW.search(file.as_posix()):
            yield match[2], int(match[3]), _decoded(file.read_bytes(), str(file))


def _archive(path: Path, part: str) -> Iterator[tuple[str, int, str]]:
    held, most = 0, _UNFOLDS[0] + _UNFOLDS[1] * path.stat().st_size
    try:
        with (
            _unpacked(path) as raw,
            tarfile.open(fileobj=_Wary(raw), mode="r:") as archive,  # type: ignore[call-overload]
        ):
            for member in _members(archive, path):
                match = _REVIEW.search(member.name)
                if not match or match[1] != part or not member.isfile():
                    continue
                held += member.size
                _bounded(path, held, most, " and name the folder")
                yield match[2], int(match[3]), _decoded(_content(archive, member), member.name)
    except _DAMAGED as error:
        raise ValueError(f"{path}: not a readable tar archive, or cut short ({error})") from None


def _bounded(path: Any, held: int, most: float | int, more: str = "") -> None:
    """Refuse a packed file that unfolds into far more than its size."""
    if held > most:
        much = f"its texts are over {_UNFOLDS[1]} times its own size"
        raise ValueError(f"{path}: refused, {much}; unpack it{more}")


def _members(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """The members one by one, none of them remembered, so that a million weigh nothing."""
    total, count, most = 0, 0, 10_000 + path.stat().st_size // _LEAST_MEMBER
    while (member := _next(archive)) is not None:
        count += 1
        if count > most:
            raise ValueError(f"{path}: refused, over {most} members in so small a file")
        archive.members.clear()  # type: ignore[attr-defined]
        archive.pax_headers.clear()  # type: ignore[attr-defined]
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{path}: refused, it has a member outside: {member.name[:200]!r}")
        total += member.size
        if member.size > _LARGEST_REVIEW or total > _LARGEST_ARCHIVE:
            raise ValueError(f"{path}: refused, too large at {member.name[:200]!r}")
        yield member


def _next(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        return archive.next()
    except (ValueError, LookupError, AttributeError, RecursionError):  # of a header that is no one
        raise tarfile.ReadError("a header that makes no sense") from None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream: Any = archive.extractfile(member)
    return b"".join(iter(lambda: stream.read(_LARGEST_READ), b""))


def _unpacked(path: Path) -> Any:
    """The file as bytes, unpacked as its first bytes say."""
    with path.open("rb") as file:
        return _PACKED.get(file.read(2), open)(path, "rb")


@final
class _Wary:
    """A stream that refuses to be asked for much at once: tarfile reads what stands before a member
    in one piece, as long as the archive says, and packed zeros can ask for gigabytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.seek, self.tell, self.close = stream.seek, stream.tell, stream.close

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LARGEST_READ:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._stream.read(size)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 ({error.reason} at byte {error.start})") from None


def stream(
    path: str | os.PathLike[str], *, text: str = "text", label: str | None = "label"
) -> Iterator[tuple[str, Any]]:
    """(text, label) row by row from a .csv, .tsv or .jsonl file (or one of these with .gz).

    `text` and `label` name the columns, divided by commas or, where that is how the first line
    reads, by semicolons or tabs; UTF-8, or UTF-16 as spreadsheets save it. label=None reads
    texts only and gives None. Constant memory: one row at a time.
    """
    path = Path(path)
    packed = path.suffix.lower() == ".gz"
    kind = Path(path.stem if packed else path.name).suffix.lower()
    if kind in WORKBOOKS:
        raise ValueError(f"{path}: {WORKBOOK} (expected one of {', '.join(_TABLES)})")
    if kind not in _TABLES:
        raise ValueError(f"{path}: expected one of {', '.join(_TABLES)} (or .gz), got {kind!r}")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    opened: Any = gzip.open if packed else open
    with opened(path, "rb") as raw:
        try:
            written = encoding(raw.read(64), path)
            raw.seek(0)
            with io.TextIOWrapper(raw, encoding=written, newline="") as lines:
                if kind in (".csv", ".tsv"):
                    yield from _separated(lines, path, text, label, "," if kind == ".csv" else "\t")
                else:
                    yield from _json_lines(lines, path, text, label)
        except UnicodeDecodeError as error:
            how = "convert it, for example with `iconv -f latin1 -t utf-8`"
            raise ValueError(f"{path}: not UTF-8 ({error.reason}); {how}") from None
        except UnicodeError as error:  # UTF-16 without its mark, say
            raise ValueError(f"{path}: {error}; save it as UTF-8") from None
        except (csv.Error, *_DAMAGED) as error:
            raise ValueError(f"{path}: damaged or cut short ({error})") from None


@final
class RowByRow:
    """Lines for the reader of a table, so many characters at most between two of its rows: a quote
    that is never closed would otherwise make one row of the rest of the file."""

    def __init__(self, lines: Any, path: Path) -> None:
        self._lines, self._path = bounded_lines(lines, str(path)), path
        self._read, self._number, self._began = 0, 0, 1

    def __iter__(self) -> RowByRow:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._number += 1
        self._read += len(line)
        if self._read > LONGEST_LINE:
            long = f"a row of over {LONGEST_LINE >> 20} MB begins here"
            raise ValueError(f"{self._path}, line {self._began}: {long}; is a quote not closed?")
        return line

    def row_ended(self) -> None:
        self._read, self._began = 0, self._number + 1


def table_rows(
    source: Any, path: Path, wanted: Sequence[str], mark: str
) -> tuple[RowByRow, Any, list[str]]:
    """(lines, rows, header) of a table whose columns `wanted`, the text first, are all there. Who
    takes a row says so to the lines: `row_ended`. `source` is iterable or has a `readline`."""
    csv.field_size_limit(LONGEST_LINE)
    lines = RowByRow(source, path)
    first = next(lines, "")
    heads = {other: next(csv.reader([first], delimiter=other), []) for other in f"{mark},;\t"}
    # a spreadsheet of many a country writes semicolons; without the columns, the most there are
    mark = max(heads, key=lambda other: (set(wanted) <= set(heads[other]), len(heads[other])))
    rows = csv.reader(chain([first] if first else [], lines), delimiter=mark)
    head = next(rows, None)
    if head is None:
        raise ValueError(f"{path}: empty; expected a header line with a column {wanted[0]!r}")
    for name in wanted:
        if name not in head:
            raise ValueError(f"{path}: no column {name!r}; {_offered(head, name == wanted[0])}")
        if head.count(name) > 1:
            raise ValueError(f"{path}: {head.count(name)} columns are called {name!r}; rename one")
    lines.row_ended()
    return lines, rows, head


def _separated(
    source: Iterable[str], path: Path, text: str, label: str | None, mark: str
) -> Iterator[tuple[str, Any]]:
    wanted = [text] if label is None else [text, label]
    lines, rows, head = table_rows(source, path, wanted, mark)
    at, of = head.index(text), None if label is None else head.index(label)
    for row in rows:
        lines.row_ended()
        if not row:
            continue
        if len(row) != len(head):
            fields = f"expected {len(head)} fields, got {len(row)}"
            raise ValueError(f"{path}, line {rows.line_num}: {fields}")
        yield row[at], None if of is None else row[of]


def _few(names: Iterable[Any]) -> str:
    """The first names, cut: a message is read by people."""
    shown = [repr(name)[:60] for name in islice(names, 21)]
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "")


def _offered(names: Iterable[Any], text: bool) -> str:
    """The columns there are, and how to say which one is meant."""
    how = "text= (--text-column)" if text else "label= (--label-column)"
    return f"it has {_few(names)}: say which one by {how}"


def _json_lines(
    lines: Iterable[str], path: Path, text: str, label: str | None
) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(bounded_lines(lines, str(path)), 1):
        if not line.strip():
            continue
        try:
            row = parsed_json(line, f"{path}, line {number}")
            pair = row[text], None if label is None else row[label]
        except (ValueError, TypeError):
            raise ValueError(f"{path}, line {number}: expected a JSON object") from None
        except KeyError as error:
            told = _offered(list(row), error.args[0] == text)
            raise ValueError(f"{path}, line {number}: no field {error}; {told}") from None
        if not isinstance(pair[0], str):
            raise ValueError(f"{path}, line {number}: field {text!r} is not a string")
        yield pair


def read(
    path: str | os.PathLike[str], *, part: str = "train", text: str = "text", label: str = "label"
) -> Dataset:
    """Reads labelled texts: a table with named columns, or a split of aclImdb (folder, .tar.gz)."""
    name = Path(path).name.lower().removesuffix(".gz")
    if Path(path).is_dir() or name.endswith((".tar", ".tgz")):
        return imdb(path, part)
    packed = Path(path).suffix.lower() == ".gz"
    texts, labels, held = [], [], 0
    most = _UNFOLDS[0] + _UNFOLDS[1] * Path(path).stat().st_size if packed else np.inf
    known: dict[Any, Any] = {}
    for one, named in stream(path, text=text, label=label):
        held += len(one)
        _bounded(path, held, most)
        texts.append(one)
        labels.append(known.setdefault(named, named) if isinstance(named, str) else named)
    if not texts:
        raise ValueError(f"{path}: no row below the header")
    return Dataset(tuple(texts), _as_labels(path, labels, held))


def _as_labels(path: str | os.PathLike[str], labels: list[Any], held: int) -> np.ndarray:
    """The labels as an array of one kind; its width is that of the longest."""
    kinds = {type(label) for label in labels}
    if not kinds <= {str, int, float, bool, type(None)}:
        raise ValueError(f"{path}: expected labels as strings or numbers, got lists or objects")
    longest = max((len(label) for label in labels if isinstance(label, str)), default=0)
    if 4 * longest * len(labels) > max(4 * _UNFOLDS[0], _UNFOLDS[1] * held):
        long = f"a label of {longest} characters"
        raise ValueError(f"{path}: {long}; does the label column hold texts?")
    return np.array(labels)


_TOPICS = "film story cast plot ending script music scene actor camera hero dialogue".split()
_FILLER = "the a it is was this that and of in with we i watched saw last night for an hour".split()
_TONES = (
    "great wonderful excellent moving superb lovely perfect charming".split(),
    "awful boring terrible dull poor wooden bad tedious".split(),
    "strange puzzling odd cryptic surreal obscure weird dreamy".split(),
    "funny hilarious witty silly comic goofy playful amusing".split(),
)


def synthetic(
    n: int = 400, *, seed: int = 0, classes: Sequence[str] = ("positive", "negative"),
    noise: float = 0.1,
) -> Dataset:  # fmt: skip
    """Made-up reviews for tests and demonstrations without data; at most four classes.

    Most tone words belong to the review's class, a share `noise` to another one; "not <word>" of
    another class appears now and then, so that pairs of words carry information.
    """
    if not 2 <= len(classes) <= len(_TONES):
        raise ValueError(f"classes: expected 2 to {len(_TONES)} names, got {len(classes)}")
    draw = as_generator(seed)
    texts, labels = [], []
    for i in range(n):
        c = i % len(classes)
        words: list[str] = []
        for _ in range(int(draw.integers(4, 12))):
            words += draw.choice(_FILLER, size=int(draw.integers(2, 6))).tolist()
            other = (c + int(draw.integers(1, len(classes)))) % len(classes)
            chance = draw.random()
            tone = str(draw.choice(_TONES[other if chance < noise + 0.1 else c]))
            words.append(f"not {tone}" if noise <= chance < noise + 0.1 else tone)
            words.append(str(draw.choice(_TOPICS)))
        texts.append(" ".join(words).capitalize() + str(draw.choice([".", "!", "?"])))
        labels.append(classes[c])
    return Dataset(tuple(texts), np.array(labels))


guard(__name__)
