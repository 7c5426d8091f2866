"""Many texts, labelled once each: partition by partition, on one machine or on a cluster.

`predict` cuts files into partitions and writes, for each, one parquet file with a row per text:
file, row (and an id), label, probability, the words that decided, whether there was any evidence.
Rows that cannot be read go to _bad-NNNNN.jsonl with their place and the reason.

The folder is the state. _manifest.json says what is read, with which model and how; a partition is
there whole or not at all (`write_atomically`), and what is there is not made again. So a run that
was killed, whoever killed whatever, goes on when it is started again; with another model, input or
option it is refused. Which process makes a partition does not matter: the rows are the same bits.

    import cynosure as cy
    cy.bulk.predict("reviews/*.parquet", out="labels", workers=8)
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, final

import numpy as np

from .. import __version__
from .._files import parsed_json, read_bytes, sweep, write_atomically
from .._files.folders import canonical, sha256
from .._files.writing import _SCRATCH
from ..sweeps.engines import first_done
from .columns import _is_missing
from .opened import Opened
from .partitions import Batch, Part, batches, cut, found, id_type
from .shipped import find

__all__ = ["Labelled", "frame", "predict"]

FORMAT, VERSION = "cynosure-bulk", 1
MANIFEST, MODEL = "_manifest.json", "_model"
OURS = ("file", "row", "label", "probability", "enough", "evidence")
_LARGEST_MANIFEST = 256 << 20  # bytes: some million partitions
_ROW_GROUP = 1 << 16  # rows of the output
_CONNECT, _SILENCE = 20, 60  # seconds until a scheduler answers, and without any worker
_ASK = 2.0  # seconds between two questions how many workers there are

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@final
@dataclass(frozen=True)
class Labelled:
    """What lies in the folder `out`: texts labelled, how many of them without evidence, rows that
    could not be read, the first of those with its reason; partitions, and those made just now."""

    out: Path
    rows: int
    unknown: int
    bad: int
    first_bad: str
    parts: int
    made: int


@final
@dataclass(frozen=True)
class Task:
    """One partition, and all a worker needs to know to make it."""

    number: int
    path: str
    name: str
    part: Part
    text: str
    id: str | None
    id_type: str | None
    abstain: str | None
    model: str
    model_sha256: str
    out: str
    job: str

    @property
    def target(self) -> Path:
        return Path(self.out) / f"part-{self.number:05d}.parquet"

    @property
    def bad(self) -> Path:
        return Path(self.out) / f"_bad-{self.number:05d}.jsonl"


def predict(
    source: Paths,
    *,
    out: str | os.PathLike[str],
    model: Any = None,
    text: str = "text",
    id: str | None = None,
    rows: int = 100_000,
    abstain: str | None = None,
    workers: int | None = None,
    client: Any = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Labelled:
    """Label every text of `source`, a folder, a glob, a file or several, into the folder `out`.

    Files are .parquet, .jsonl and .csv (the last two also .gz); `text` names the column. A row is
    known by its file and its number in it, from 0 on (lines of .jsonl, rows below the header of
    .csv), and by the column `id` where one is named.

    `model` is a folder, a shipped name, or a fitted classifier; None is the shipped one. `abstain`
    is the label of texts without any known word. `rows` is about how many a partition has; row
    groups of parquet are not divided, nor are .csv and packed files. Partitions are made in this
    process, in `workers` processes, or by a Dask cluster (`client`, or its address), whose workers
    see the same files under the same names. progress(done, of) counts partitions.

    Start it again to go on; what is there is kept. A file that cannot be read ends neither the run
    nor the others: the error names it when all the rest is done.
    """
    _needs_pyarrow()
    if workers is not None and (workers < 1 or client is not None):
        raise ValueError(f"workers: expected None or a number >= 1, without client, got {workers}")
    if type(rows) is not int or rows < 1:
        raise ValueError(f"rows: expected a whole number >= 1, got {rows!r}")
    if id in OURS or id == text:
        raise ValueError(f"id: {id!r} is the name of another column; rename it")
    folder = Path(os.path.realpath(out))
    _refuse_foreign(folder)
    with _placed(model) as place:
        _check_abstain(place, abstain)
        options = {"text": text, "id": id, "rows": rows, "abstain": abstain}
        root, manifest = _begun(folder, source, _fingerprint(place), options)
        if hasattr(model, "save"):
            place = _kept(place, folder / MODEL)
    tasks = _tasks(folder, root, manifest, place)
    open_ = [task for task in tasks if not _is_made(task)]
    failed, done = [], len(tasks) - len(open_)
    for error in _carried_out(open_, workers, client):
        failed += [error] if error else []
        done += 1
        if progress is not None:
            progress(done, len(tasks))
    sweep(folder)  # what killed workers left
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(tasks)} partitions failed, the others are in {out}; first: "
            f"{failed[0]}. Mend it and start the same again"
        )
    return _summary(Path(out), tasks, len(open_))


def _needs_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError('bulk reading needs pyarrow: pip install "cynosure[bulk]"') from None


def _check_abstain(model: Path, abstain: str | None) -> None:
    if abstain is not None and Opened.load(model).classes_.dtype.kind != "U":
        raise ValueError(f"abstain: the labels are numbers, so {abstain!r} cannot be one of them")


# --- the folder ----------------------------------------------------------------------------------


def _refuse_foreign(folder: Path) -> None:
    """What is not ours is not touched: a free name, an empty folder, or one with our manifest."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: a file; expected the name of a folder")
    if folder.is_dir() and not (folder / MANIFEST).is_file():
        others = [name for name in sorted(os.listdir(folder)) if not _SCRATCH.fullmatch(name)]
        if others:
            raise ValueError(
                f"{folder}: holds {others[0][:100]!r} and no {MANIFEST}; choose another folder"
            )


@contextmanager
def _placed(model: Any) -> Iterator[Path]:
    """The folder of the model; a fitted classifier is saved for a while."""
    if not hasattr(model, "save"):
        yield Path(os.path.realpath(find(model)))
        return
    with tempfile.TemporaryDirectory() as folder:
        yield model.save(Path(folder) / MODEL)


def _fingerprint(model: Path) -> str:
    """Of model.json, which has the checksums of the other files."""
    try:
        return sha256(read_bytes(model / "model.json", 16 << 20))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{model}: no model here; expected a folder with model.json") from None


def _begun(
    out: Path, source: Paths, model: str, options: dict[str, Any]
) -> tuple[Path, dict[str, Any]]:
    """(folder of the input, manifest): the one that is there, or one written now."""
    root, names = found(source, out)
    asked = {
        "format": FORMAT,
        "version": VERSION,
        "cynosure": __version__,
        "model": model,
        "options": options,
        "files": {name: _identity(root / name) for name in names},
    }
    if (out / MANIFEST).is_file():
        return root, _manifest(out, asked)
    parts = cut(root, names, options["rows"], options["text"], options["id"])
    ids = id_type(root, names, options["id"])
    manifest = {**asked, "id_type": ids, "parts": [list(part) for part in parts]}
    whole = json.dumps({**manifest, "checksum": sha256(canonical(manifest))}).encode()
    write_atomically(out / MANIFEST, lambda stream: stream.write(whole))
    return root, manifest


def _kept(model: Path, target: Path) -> Path:
    """The model of a fitted classifier, where the workers find it."""
    from .model import FOLDER, VERSION

    if not target.is_dir():
        header, files = FOLDER.load(model, VERSION)
        FOLDER.save(target, files, header)
    return target


def _tasks(out: Path, root: Path, manifest: dict[str, Any], model: Path) -> list[Task]:
    names, job = sorted(manifest["files"]), sha256(canonical(manifest))
    how = {name: manifest["options"][name] for name in ("text", "id", "abstain")}
    how |= {"id_type": manifest["id_type"], "model_sha256": manifest["model"], "job": job}
    return [
        Task(number=number, path=str(root / names[part.file]), name=names[part.file], part=part,
             model=str(model), out=str(out), **how)
        for number, part in enumerate(Part(*part) for part in manifest["parts"])
    ]  # fmt: skip


def _identity(path: Path) -> list[int]:
    """Size and time of change: a file with both the same is taken for the same."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _manifest(out: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a folder that was made from the same model, input and options."""
    file = out / MANIFEST
    try:
        have = parsed_json(read_bytes(file, _LARGEST_MANIFEST), str(file), _LARGEST_MANIFEST)
        stated = have.pop("checksum")
        if stated != sha256(canonical(have)) or have["format"] != FORMAT:
            raise ValueError("its checksum is another")
        differs = list(_differences(have, asked))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not as it was written ({str(error)[:200]})") from None
    if differs:
        raise ValueError(
            f"{out}: was begun with {'; '.join(differs[:3])}; choose another folder, or go on as "
            "it was begun"
        )
    return have


def _differences(have: dict[str, Any], asked: dict[str, Any]) -> Iterator[str]:
    for name in ("version", "cynosure"):
        if have[name] != asked[name]:
            yield f"{name} {have[name]!r}, not {asked[name]!r}"
    if have["model"] != asked["model"]:
        yield "another model"
    for name, value in asked["options"].items():
        if have["options"][name] != value:
            yield f"{name}={have['options'][name]!r}, not {value!r}"
    before, now = have["files"], asked["files"]
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            what = "was not there" if name not in before else "is gone" if name not in now else (
                "has changed")  # fmt: skip
            yield f"other files: {name[:100]!r} {what}"


# --- a partition ---------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _opened(model: str, fingerprint: str) -> Opened:
    if _fingerprint(Path(model)) != fingerprint:
        raise ValueError(f"{model}: the model was replaced while it was in use")
    return Opened.load(model)


def _is_made(task: Task) -> bool:
    return task.target.is_file() and _facts(task) is not None


def _facts(task: Task) -> dict[str, Any]:
    """What a finished partition says about itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        facts = json.loads((pq.read_metadata(task.target).metadata or {})[b"cynosure"])
    except (pa.ArrowException, KeyError, ValueError):
        facts = {}
    if facts.get("job") != task.job:
        raise ValueError(f"{task.target}: no partition of this run; move it away")
    return facts


def make(task: Task) -> str:
    """Write one partition; "" or, where its rows cannot be read or written, the reason."""
    try:
        _make(task)
    except (ValueError, OSError) as error:
        return f"{task.name[:100]}: {' '.join(str(error).split())[:300]}"
    return ""


def _make(task: Task) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    opened = _opened(task.model, task.model_sha256)
    schema = _schema(opened.classes_, task)

    def write(stream: Any) -> None:
        counts: dict[str, Any] = {"rows": 0, "unknown": 0, "bad": 0, "first_bad": ""}
        held: list[Any] = []
        with (
            tempfile.SpooledTemporaryFile(max_size=1 << 20) as bad,
            pq.ParquetWriter(pa.PythonFile(_Lent(stream), mode="w"), schema) as writer,
        ):
            for batch in batches(Path(task.path), task.part, task.text, task.id):
                for row, reason in batch.bad:
                    counts["first_bad"] = counts["first_bad"] or f"{task.name}, row {row}: {reason}"
                    line = json.dumps({"file": task.name, "row": row, "reason": reason})
                    bad.write(line.encode() + b"\n")
                counts["bad"] += len(batch.bad)
                counts["rows"] += len(batch.rows)
                if batch.rows:
                    table = _table(opened, task, batch, schema)
                    counts["unknown"] += len(table) - table["evidence"].to_numpy().sum().item()
                    held.append(table)
                if sum(map(len, held)) >= _ROW_GROUP:
                    writer.write_table(pa.concat_tables(held))
                    held.clear()
            if held:
                writer.write_table(pa.concat_tables(held))
            facts = json.dumps({"job": task.job, **counts})
            writer.add_key_value_metadata({"cynosure": facts})
            if counts["bad"]:  # there before the partition is: then both are
                bad.seek(0)
                write_atomically(task.bad, lambda side: _copy(bad, side))

    write_atomically(task.target, write)


def _copy(source: Any, target: Any) -> None:
    while block := source.read(1 << 20):
        target.write(block)


@final
class _Lent:
    """A stream that another may write to and not close."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.closed = stream, False

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _schema(classes: np.ndarray, task: Task) -> Any:
    import pyarrow as pa

    ids = [] if task.id is None else [(task.id, pa.type_for_alias(task.id_type))]
    label = pa.string() if classes.dtype.kind == "U" else pa.from_numpy_dtype(classes.dtype)
    return pa.schema(
        [("file", pa.string()), ("row", pa.int64()), *ids, ("label", label),
         ("probability", pa.float64()), ("enough", pa.list_(pa.string())), ("evidence", pa.bool_())]
    )  # fmt: skip


def _table(opened: Opened, task: Task, batch: Batch, schema: Any) -> Any:
    import pyarrow as pa

    label, probability, enough, evidence = _answers(opened, batch.texts)
    if task.abstain is not None:
        label = np.where(evidence, label, task.abstain)
    ids = batch.ids if task.id_type == "int64" else list(map(str, batch.ids))
    columns = [
        pa.repeat(task.name, len(batch.rows)), batch.rows, *([] if task.id is None else [ids]),
        pa.array(label.tolist(), schema.field("label").type), probability, enough, evidence,
    ]  # fmt: skip
    kinds = [field.type for field in schema]
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], schema=schema
    )


def _answers(
    opened: Opened, texts: list[str]
) -> tuple[np.ndarray, np.ndarray, list[tuple[str, ...]], np.ndarray]:
    """Label, its probability, the words that decided, whether there were any: of each text."""
    verdicts, enough = opened.read_with_words(texts)
    won, p = opened.winners(verdicts), opened.probabilities(verdicts.decision)
    return opened.classes_[won], p[np.arange(len(won)), won], enough, verdicts.known > 0


# --- whoever does the work -----------------------------------------------------------------------


def _carried_out(tasks: list[Task], workers: int | None, client: Any) -> Iterable[str]:
    """What `make` says of every task, as they are done."""
    if client is not None:
        return _on_cluster(tasks, client)
    if workers is None or workers == 1 or len(tasks) < 2:
        return map(make, tasks)
    return _in_processes(tasks, min(workers, len(tasks)))


def _in_processes(tasks: list[Task], workers: int) -> Iterator[str]:
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    try:
        pool = Parallel(n_jobs=workers, return_as="generator_unordered")
        yield from pool(delayed(make)(task) for task in tasks)
    except BrokenProcessPool as error:
        raise ValueError(
            "a worker process was killed, for want of memory perhaps; start the same again, with "
            f"fewer workers if need be ({' '.join(str(error).split())[:100]})"
        ) from None


def _on_cluster(tasks: list[Task], client: Any) -> Iterator[str]:
    """The same on the workers of a Dask cluster; a few times as many in flight as there are."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError('a cluster needs Dask: pip install "cynosure[cluster]"') from None
    if not isinstance(client, str):
        yield from _submitted(tasks, client)
        return
    try:
        own = Client(client, set_as_default=False, timeout=_CONNECT)
    except (TimeoutError, OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler at {client} ({str(error)[:200]})") from None
    with own:
        yield from _submitted(tasks, own)


def _submitted(tasks: list[Task], client: Any) -> Iterator[str]:
    left = iter(tasks)
    running: dict[Any, Task] = {}
    threads, asked, alive = 0, -np.inf, monotonic()
    while True:
        now = monotonic()
        if now - asked > _ASK:
            threads, asked = sum(client.nthreads().values()), now
        for task in islice(left, max(3 * max(threads, 1) - len(running), 0)):
            running[client.submit(make, task, pure=False)] = task
        if not running:
            return
        finished = first_done(client, running, 1.0)
        alive = now if finished or threads else alive
        if now - alive > _SILENCE:
            raise ValueError(f"no Dask worker for {_SILENCE} s; start some, and the same again")
        for future in finished:
            task = running.pop(future)
            try:
                said = future.result()
            except Exception as error:  # workers killed over and over, a scheduler that is gone
                said = f"{task.name[:100]}: {type(error).__name__}: {str(error)[:200]}"
            yield said


def _summary(out: Path, tasks: list[Task], made: int) -> Labelled:
    facts = [_facts(task) for task in tasks]
    rows, unknown, bad = (sum(f[name] for f in facts) for name in ("rows", "unknown", "bad"))
    first = next((f["first_bad"] for f in facts if f["first_bad"]), "")
    return Labelled(out, rows, unknown, bad, first, len(tasks), made)


# --- tables in memory ----------------------------------------------------------------------------


def frame(data: Any, model: Any = None, *, text: str = "text") -> Any:
    """label, probability, enough, evidence of the texts of a table, row by row, index kept.

    `data` is a pandas.DataFrame, or a dask.dataframe, of which nothing is read before the result
    is asked for (`map_partitions`). A missing text has a missing label and no probability.
    """
    if model is None or isinstance(model, str | os.PathLike):
        model = str(os.path.realpath(find(model)))
    elif not isinstance(model, Opened):
        model = model._opened
    if hasattr(data, "map_partitions"):
        return data.map_partitions(_frame, model, text, meta=_frame(data._meta, model, text))
    return _frame(data, model, text)


def _frame(data: Any, model: Any, text: str) -> Any:
    import pandas as pd

    if text not in data.columns:
        from .datasets import _offered

        raise ValueError(f"no column {text!r}; {_offered(data.columns, True)}")
    opened = _opened(model, _fingerprint(Path(model))) if isinstance(model, str) else model
    texts = [None if _is_missing(x) else x for x in data[text].tolist()]
    there = np.array([isinstance(x, str) for x in texts], bool)
    label, p, enough, evidence = _answers(opened, [x for x in texts if isinstance(x, str)])
    words: list[list[str]] = [[] for _ in texts]
    for i, found_ in zip(np.flatnonzero(there).tolist(), enough, strict=True):
        words[i] = list(found_)
    kinds = {"U": "string", "i": "Int64", "f": "Float64", "b": "boolean"}
    labels = pd.Series(pd.NA, data.index, dtype=kinds[label.dtype.kind])
    labels[there] = label
    probability, known = np.full(len(texts), np.nan), np.zeros(len(texts), bool)
    probability[there], known[there] = p, evidence
    columns = {
        "label": labels, "probability": probability,
        "enough": pd.Series(words, data.index, dtype=object),
        "evidence": known,
    }  # fmt: skip
    return pd.DataFrame(columns, index=data.index)
