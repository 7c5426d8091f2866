"""What the classifier's commands read: models, labelled texts, and texts one by one."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..classifier.estimator import HardmaxClassifier
    from ..classifier.explaining.loaded_model import LoadedModel
    from ..classifier.text.datasets import Dataset

DATA = (
    "aclImdb folder or .tar.gz (with :train or :test behind it), or .csv .tsv .jsonl with a header."
)


def model_and(given: list[str], what: str) -> tuple[str | None, str]:
    """([MODEL], the rest): one argument is the rest, two are both."""
    if (count := len(given)) > 2:
        raise ValueError(f"expected [MODEL] and {what}, got {count} arguments (quote the text)")
    return (None, given[0]) if len(given) == 1 else (given[0], given[1])


def load_model(model: str | None) -> HardmaxClassifier:
    """The classifier of a folder or the shipped one, to be judged."""
    from ..classifier.bundled import find
    from ..classifier.estimator import HardmaxClassifier

    return HardmaxClassifier.load(find(model))


def open_model(model: str | None) -> LoadedModel:
    """The same, only to be read: without scikit-learn, whose import takes most of a second."""
    from ..classifier.bundled import find
    from ..classifier.explaining.loaded_model import LoadedModel

    return LoadedModel.load(find(model))


def labelled(spec: str, part: str, text: str, label: str) -> Dataset:
    """DATA[:train|:test]; `part` is what aclImdb gives without one."""
    from ..classifier.text.datasets import read

    path, mark, named = spec.rpartition(":")
    if mark and named in ("train", "test") and not Path(spec).exists():
        name = Path(path).name.lower()
        if not Path(path).is_dir() and not name.endswith((".tar", ".tar.gz", ".tgz")):
            raise ValueError(f"{spec}: only aclImdb has parts; name the file without :{named}")
        spec, part = path, named
    if not Path(spec).exists():
        raise ValueError(f"{spec}: no such file or folder (expected {DATA})")
    return read(spec, part=part, text=text, label=label)


def texts_of(source: str, column: str) -> Iterator[str]:
    """The texts of a table, or the lines of a file or of stdin, one by one."""
    from .._files import WORKBOOK, WORKBOOKS
    from ..classifier.text.datasets import stream

    if source == "-":
        return _lines(sys.stdin.buffer, "stdin")
    path = Path(source)
    if not path.exists():
        raise ValueError(f"{source}: no such file")
    if path.is_dir():
        raise ValueError(f"{source}: a folder; expected a file with one text per line, or a table")
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv", ".jsonl", ".ndjson")):
        return (text for text, _ in stream(path, text=column, label=None))
    if name.endswith(WORKBOOKS):
        raise ValueError(f"{source}: {WORKBOOK}")
    if name.endswith((".tar", ".tgz")):
        raise ValueError(f"{source}: an archive; expected one text per line, or a table")
    return _lines_of(path)


def _lines_of(path: Path) -> Iterator[str]:
    import gzip
    import zlib

    from .._files import encoding

    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as stream:
        try:
            written = encoding(stream.read(64), path)
            stream.seek(0)
            if written == "utf-8-sig":
                yield from _lines(stream, str(path))
            else:
                with io.TextIOWrapper(stream, encoding=written, newline="\n") as lines:
                    for line in lines:
                        yield line.removesuffix("\n").removesuffix("\r").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: {error.reason}; save it as UTF-8") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: damaged or cut short ({error})") from None


def _lines(stream: Any, name: str) -> Iterator[str]:
    """Split at line feeds only: other breaks may stand inside a text."""
    from .._files import bounded_lines

    for number, line in enumerate(bounded_lines(stream, name), 1):
        text = decoded(line, f"{name}, line {number}").removesuffix("\n").removesuffix("\r")
        yield text.removeprefix("\ufeff" if number == 1 else "")


def decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        said = f"not UTF-8 ({error.reason} at byte {error.start}); convert it, for example"
        kind = "latin1"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            said, kind = "UTF-16, not UTF-8; give the file instead, or convert it", "utf-16"
        raise ValueError(f"{name}: {said} with `iconv -f {kind} -t utf-8`") from None


def chunks(texts: Iterable[str], most: int = 4096, characters: int = 1 << 22) -> Iterator[list]:
    """A few texts first, for an early answer, then up to `most`; never many characters."""
    chunk: list[str] = []
    size, limit = 0, 16
    try:
        for text in texts:
            chunk.append(text)
            size += len(text)
            if len(chunk) >= limit or size >= characters:
                yield chunk
                chunk, size, limit = [], 0, min(2 * limit, most)
    except ValueError:  # a bad line: the good ones before it are answered first
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
