"""predict(): every partition that is not there yet, made by whoever does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from ..._files import sweep
from ...sweeps.engines import Lost, finished
from ..explaining.loaded_model import LoadedModel
from .files import release
from .manifest import MODEL, Paths, Task, begun, fingerprint, kept, placed, refuse_foreign, tasks_of
from .partition import facts_of, is_made, make

OURS = ("file", "row", "label", "probability", "enough", "evidence")
_CONNECT = 20  # seconds until a scheduler answers


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
    """Labels every text of `source`, a folder, a glob, a file or several, into the folder `out`.

    Files are .parquet, .jsonl and .csv (the last two also .gz); `text` names the column. A row is
    known by its file and its number in it, from 0 on (lines of .jsonl, rows below the header of
    .csv), and by the column `id` where one is named.

    `model` is a folder, a shipped name, or a fitted classifier; None is the shipped one. `abstain`
    is the label of texts without any known word. A partition has about `rows` rows; row groups of
    parquet are not divided. Partitions are made in this process, in `workers` processes, or by a
    Dask cluster (`client`, or its address), whose workers see the same files under the same names.
    progress(done, of) counts partitions.

    Start it again to resume; finished partitions are kept. A file that cannot be read ends neither
    the run nor the others: the error names it when all the rest is done.
    """
    _needs_pyarrow()
    if workers is not None and (workers < 1 or client is not None):
        raise ValueError(f"workers: expected None or a number >= 1, without client, got {workers}")
    if type(rows) is not int or rows < 1:
        raise ValueError(f"rows: expected a whole number >= 1, got {rows!r}")
    if id in OURS or id == text:
        raise ValueError(f"id: {id!r} is the name of another column; rename it")
    folder = Path(os.path.realpath(out))
    refuse_foreign(folder)
    with placed(model) as place:
        _check_abstain(place, abstain)
        options = {"text": text, "id": id, "rows": rows, "abstain": abstain}
        root, manifest = begun(folder, source, fingerprint(place), options)
        if hasattr(model, "save"):
            place = kept(place, folder / MODEL)
    tasks = tasks_of(folder, root, manifest, place)
    open_ = [task for task in tasks if not is_made(task)]
    failed, done = [], len(tasks) - len(open_)
    with _cluster(client) as cluster:
        try:
            for number, said in finished(make, dict(enumerate(open_)), workers, cluster):
                said = f"{open_[number].name[:100]}: {said[0]}" if isinstance(said, Lost) else said
                failed += [said] if said else []
                done += 1
                if progress is not None:
                    progress(done, len(tasks))
        except RuntimeError as error:
            raise RuntimeError(
                f"{error}; {done} of {len(tasks)} partitions are in {out}; start the same again"
            ) from error
        finally:
            release()
            sweep(folder)  # what killed workers left
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(tasks)} partitions failed, the others are in {out}; first: "
            f"{failed[0]}. Start the same again when it is mended (changed input: another folder)"
        )
    return _summary(Path(out), tasks, len(open_))


def _needs_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError('bulk reading needs pyarrow: pip install "cynosure[scale]"') from None


@contextmanager
def _cluster(client: Any) -> Iterator[Any]:
    """A client of Dask; where there is its address only, a client for this run."""
    if client is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError('a cluster needs Dask: pip install "cynosure[scale]"') from None
    if not isinstance(client, str):
        yield client
        return
    try:
        own = Client(client, set_as_default=False, timeout=_CONNECT)
    except (TimeoutError, OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler at {client} ({str(error)[:200]})") from None
    with own:
        yield own


def _check_abstain(model: Path, abstain: str | None) -> None:
    if abstain is not None and LoadedModel.load(model).classes_.dtype.kind != "U":
        raise ValueError(f"abstain: the labels are numbers, so {abstain!r} cannot be one of them")


def _summary(out: Path, tasks: list[Task], made: int) -> Labelled:
    facts = [facts_of(task) for task in tasks]
    rows, unknown, bad = (sum(f[name] for f in facts) for name in ("rows", "unknown", "bad"))
    first = next((f["first_bad"] for f in facts if f["first_bad"]), "")
    return Labelled(out, rows, unknown, bad, first, len(tasks), made)
