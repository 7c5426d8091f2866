"""Faults at every step of a save: the n-th call into the system fails, or the process dies there.

`tried(save, state)` runs a save once to count its calls (open, write, fsync, rename, ...), then
again for every one of them with each fault, and says what each run left behind. A kill is os._exit
in a forked child: no handler runs, as with SIGKILL; a write that is killed has written half.

`rounds(save, look)` lets two or three writers save at once, each its own, with and without a kill.

    PYTHONPATH=src python tests/faults.py        # the saves of the package, as JSON
    PYTHONPATH=src python tests/faults.py 40     # of many writes in a row each fortieth
    PYTHONPATH=src python tests/faults.py rounds 200    # 200 rounds of writers at once
    PYTHONPATH=src python tests/faults.py 1 trajectory "surveys of texts"    # those two
"""

from __future__ import annotations

import atexit
import builtins
import errno
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

NAMES = (
    "open fdopen fsync replace rename mkdir unlink remove rmdir scandir listdir stat lstat close "
    "chmod write truncate link symlink"
).split()
FAULTS = (errno.ENOSPC, errno.EIO, errno.EACCES, "kill")
KILLED = 77
PATIENCE = 10  # seconds for a save in a child


class Stream:
    """A file whose writes, flushes and closing count as calls."""

    def __init__(self, stream: Any, call: Callable[[str], None]) -> None:
        self._stream, self._call = stream, call

    def write(self, data: Any) -> int:
        try:
            self._call("write")
        except (OSError, _Dies) as fault:
            self._stream.write(bytes(data)[: len(bytes(data)) // 2])
            self._stream.flush()
            if isinstance(fault, _Dies):  # here, since a thread of a library may be writing
                os._exit(KILLED)
            raise
        return self._stream.write(data)

    def close(self) -> None:
        try:
            self._call("close")
        finally:
            self._stream.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Dies(SystemExit):
    """A kill during a write: half of it is written first."""


@contextmanager
def faulty(at: int | None, fault: Any) -> Iterator[list[str]]:
    """The calls made in the block, in order; the one numbered `at` fails with `fault`."""
    calls: list[str] = []
    real = {name: getattr(os, name) for name in NAMES}
    opened = io.open

    def call(name: str) -> None:
        calls.append(name)
        if at is not None and len(calls) - 1 == at:
            if fault != "kill":
                raise OSError(fault, os.strerror(fault))
            if name == "write":
                raise _Dies
            os._exit(KILLED)

    def wrapped(name: str) -> Callable[..., Any]:
        def one(*args: Any, **how: Any) -> Any:
            call(name)
            if name == "fsync":  # counted and failed, not done: a kill leaves the system running
                return None
            out = real[name](*args, **how)
            return Stream(out, call) if name == "fdopen" and "w" in str(args[1:]) else out

        return one

    def open_(file: Any, mode: str = "r", *args: Any, **how: Any) -> Any:
        call("open")
        stream = opened(file, mode, *args, **how)
        return Stream(stream, call) if "w" in mode else stream

    try:
        for name in NAMES:
            setattr(os, name, wrapped(name))
        io.open = builtins.open = open_  # type: ignore[assignment]
        yield calls
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        io.open = builtins.open = opened


def tried(
    prepare: Callable[[Path], Any],
    save: Callable[[Path], Any],
    look: Callable[[Path], str],
    every: int = 1,
) -> dict[str, Any]:
    """Every fault at every call of save(folder); look(folder) names the state it finds.

    Returns how many calls a save makes, how many runs there were, and the states by their name:
    "old", "new", or what is wrong. A run that raised must have left the old, and one that returned
    the new; after a kill either will do. A last save without a fault must give the new and leave
    the same files as one that never failed. With `every` > 1 only
    each so many-th of many writes in a row is tried, with one errno and the kill.
    """
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        save(_fresh(base, prepare))  # what libraries read once, at their first call, is no save
        clean = _fresh(base, prepare)
        with faulty(None, None) as calls:
            save(clean)
        expected = _names(clean)
        states: Counter[str] = Counter()
        places = [at for at in range(len(calls)) if at % every == 0 or not _inside(calls, at)]
        runs = 0
        for at in places:
            for fault in FAULTS if every == 1 else (FAULTS[at % 3], "kill"):
                runs += 1
                folder = _fresh(base, prepare)
                outcome = _run(save, folder, at, fault)
                state = look(folder)
                wrong = {"raised": "new", "returned": "old"}.get(outcome)
                if state == wrong or state not in ("old", "new"):
                    state = f"{state} after {fault} at call {at} ({calls[at]}), which {outcome}"
                states[state] += 1
                save(folder)
                if look(folder) != "new" or _names(folder) != expected:
                    states[f"leftovers after {fault} at call {at} ({calls[at]})"] += 1
                shutil.rmtree(folder)
        return {"calls": len(calls), "runs": runs, "states": dict(states)}
    finally:
        shutil.rmtree(base)


def _inside(calls: list[str], at: int) -> bool:
    """A write with another one before and behind it."""
    return at > 0 and calls[at - 1 : at + 2] == ["write"] * 3


def _run(save: Callable[[Path], Any], folder: Path, at: int, fault: Any) -> str:
    if fault != "kill":
        try:
            with faulty(at, fault):
                save(folder)
        except (OSError, ValueError):
            return "raised"
        return "returned"
    child = os.fork()
    if child == 0:
        # A library's thread may have held a lock at the fork, and nobody will give it back here. A
        # kill at another moment than the one asked for is a kill as well.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        code = 1
        try:
            with faulty(at, fault):
                save(folder)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {KILLED: "was killed", -signal.SIGALRM: "was killed", 0: "returned"}.get(code, "raised")


def rounds(
    prepare: Callable[[Path], Any],
    save: Callable[[Path, int], Any],
    look: Callable[[Path], Any],
    may_refuse: tuple[type[Exception], ...],
    writers: int,
    count: int,
    kills: bool = False,
) -> dict[str, int]:
    """`count` times `writers` processes make save(folder, k) at once, k = 1, 2, ...: what came out.

    With `kills` one of them is killed at a random moment. Right is what one of those that returned
    left, of the killed one, or what was there before where none returned; look(folder) gives k, 0
    for what was there before, -1 for what is the same for all k. A writer may raise `may_refuse`
    and nothing else. One more save must leave the same files as one that was alone.
    """
    random, outcomes = Random(writers), Counter[str]()
    base = Path(tempfile.mkdtemp(prefix="rounds-"))
    try:
        expected = {}
        for k in range(1, writers + 1):
            save(clean := _fresh(base, prepare), k)
            expected[k] = _names(clean)
        for _ in range(count):
            folder = _fresh(base, prepare)
            ready, go = os.pipe()
            children = [_writer(partial(save, folder, k), ready, go, may_refuse)
                        for k in range(1, writers + 1)]  # fmt: skip
            os.close(ready)
            os.close(go)  # nobody holds it any more: all begin
            if kills:
                time.sleep(random.uniform(0, 0.03))
                os.kill(children[0], signal.SIGKILL)
            ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            killed = {1} if ended[0] == -signal.SIGKILL else set()
            right = killed | ({k for k, code in enumerate(ended, 1) if code == 0} or {0})
            found = 0
            try:
                found = look(folder)
                outcomes[
                    "right"
                    if found in right or found < 0
                    else f"{found!r} where {right} were saved"
                ] += 1
            except Exception as error:
                outcomes[f"unreadable: {type(error).__name__}: {str(error)[-90:]}"] += 1
            for code in ended:
                if code not in (0, REFUSED, -signal.SIGKILL):
                    outcomes[f"a writer ended with {code}"] += 1
            save(folder, max(found, 1))
            outcomes["leftovers"] += _names(folder) != expected[max(found, 1)]
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(base)
    return dict(+outcomes)


REFUSED = 3


def _writer(
    save: Callable[[], Any], ready: int, go: int, may_refuse: tuple[type[Exception], ...]
) -> int:
    """A child that saves as soon as nobody holds `go` any more; its process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(go)
        os.read(ready, 1)
        save()
        code = 0
    except may_refuse:
        code = REFUSED
    finally:
        os._exit(code)


def _fresh(base: Path, prepare: Callable[[Path], Any]) -> Path:
    folder = Path(tempfile.mkdtemp(dir=base))
    (folder / "thesis.tex").write_text("precious")
    prepare(folder)
    return folder


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- the saves of the package --------------------------------------------------------------------


def precious(look: Callable[[Path], Any], old: Any, new: Any) -> Callable[[Path], str]:
    """A judge: what is read back is the old or the new, and the user's file is as it was."""

    def judge(folder: Path) -> str:
        thesis = folder / "thesis.tex"
        if not thesis.is_file() or thesis.read_text() != "precious":
            return "the user's file is gone"
        try:
            found = look(folder)
        except Exception as error:
            return f"unreadable ({type(error).__name__}: {error})"
        return "old" if found == old else "new" if found == new else "neither old nor new"

    return judge


def saves() -> dict[str, tuple[Callable, Callable, Callable]]:
    """(prepare, save, look) of everything the package saves."""
    import numpy as np

    import cynosure as cy
    from cynosure.classifier.model.model import Model, load_files, save_files
    from cynosure.classifier.model.plane import Plane
    from cynosure.classifier.text.vocabulary import Vocabulary
    from cynosure.study.measurements import _read, keeping, kept

    vocabulary, _ = Vocabulary.build(["good film", "good café !"], min_df=1)
    one = np.ones(1)

    def model(x: float) -> Callable[[Path], Any]:
        plane = Plane(np.full((len(vocabulary), 2), x), np.ones(2), np.ones((1, 2)), one, one)
        return lambda folder: save_files(folder / "model", Model((plane,)), vocabulary, {})

    def embedding(folder: Path) -> float | None:
        if not (folder / "model").exists():
            return None
        return float(load_files(folder / "model")[0].planes[0].embedding[0, 0])

    def linked(folder: Path) -> None:
        model(1.0)(folder)
        (folder / "model").rename(folder / "elsewhere")
        (folder / "model").symlink_to("elsewhere", target_is_directory=True)

    runs = {k: cy.simulate(cy.PureAttention(), np.eye(2) * k, layers=2) for k in (1.0, 2.0)}
    pages = {
        k: cy.study.Report(f"Title {k}", tables=(cy.study.Table("T", ("a",), ((k,),)),))
        for k in (1, 2)
    }

    def page(folder: Path) -> Any:
        text = (folder / "page.html").read_text()
        return [k for k in (1, 2) if text == pages[k].to_html()]

    def measure(folder: Path) -> None:
        with keeping(folder / "measured"):
            kept(measured, 3)

    def measurement(folder: Path) -> Any:
        found = [_read(path)[1].tolist() for path in (folder / "measured").glob("*.npz")]
        return found or None

    def block(folder: Path) -> None:
        """A store whose cells are waiting, and then one block written into it."""
        from cynosure.sweeps.plan import Output, Outputs, Plan
        from cynosure.sweeps.store import find, make

        plan = Plan.of(cell, {"a": [1, 2, 3, 4]}, None, False)
        path = folder / "s.zarr"
        if not path.exists():
            make(path, plan, Outputs({"x": Output((), (), np.dtype("f8"))}, {}), (2,))
            return
        store = find(path, plan)
        assert store is not None
        own = {"status": np.array([1, 2], dtype=np.int8), "error": np.array(["", "no"], object)}
        store.write((slice(0, 2),), {"x": np.array([4.0, np.nan]), **own})

    def swept(folder: Path) -> Any:
        data = cy.open_sweep(folder / "s.zarr")
        if (data["status"].values == 0).all():  # whatever else was written does not count
            return None
        return [repr(data[name].values.tolist()) for name in ("status", "x", "error")]

    found = ["[1, 2, 0, 0]", "[4.0, nan, nan, nan]", "['', 'no', '', '']"]
    nothing = lambda folder: None  # noqa: E731
    lexicon = tempfile.mkdtemp(prefix="faults-model-")
    atexit.register(shutil.rmtree, lexicon)
    data = cy.datasets.synthetic(20)
    words = cy.HardmaxClassifier(leaders=4, min_df=1).fit(data.texts, data.labels)
    where = words.save(Path(lexicon) / "model")
    return {
        "block of a sweep": (block, block, precious(swept, None, found)),
        "model, replaced": (model(1.0), model(2.0), precious(embedding, 1.0, 2.0)),
        "model, new": (nothing, model(2.0), precious(embedding, None, 2.0)),
        "model, linked": (linked, model(2.0), precious(embedding, 1.0, 2.0)),
        "trajectory": (
            lambda folder: runs[1.0].save(folder / "run.npz"),
            lambda folder: runs[2.0].save(folder / "run.npz"),
            precious(lambda f: cy.load(f / "run.npz").z[0, 0, 0], 1.0, 2.0),
        ),
        "report": (
            lambda folder: pages[1].save(folder / "page.html"),
            lambda folder: pages[2].save(folder / "page.html"),
            precious(page, [1], [2]),
        ),
        "measurement": (
            nothing,
            measure,
            precious(measurement, None, [[0.0, 1.0, 2.0]]),
        ),
        "partition": (
            lambda folder: begun(folder, where),
            lambda folder: partition(folder, where),
            precious(partition_found, None, (["positive", "negative"], 1)),
        ),
        "surveys of texts": (nothing, surveys, precious(surveyed, None, [[1, 1], [3, 4]])),
        "run --out": (
            lambda folder: experiment(folder, 1),
            lambda folder: experiment(folder, 2),
            precious(experiment_found, 1, 2),
        ),
    }


def races() -> dict[str, tuple[Callable, Callable, Callable, tuple[type[Exception], ...]]]:
    """(prepare, save, look, may_refuse) of the folders that several processes may write at once."""
    import numpy as np

    from cynosure.classifier.model.model import Model, load_files, save_files
    from cynosure.classifier.model.plane import Plane
    from cynosure.classifier.text.vocabulary import Vocabulary

    vocabulary, _ = Vocabulary.build(["good film", "good café !"], min_df=1)
    one = np.ones(1)

    def model(folder: Path, k: int) -> None:
        plane = Plane(
            np.full((len(vocabulary), 2), float(k)), np.ones(2), np.ones((1, 2)), one, one
        )
        save_files(folder / "model", Model((plane,)), vocabulary, {})

    def embedding(folder: Path) -> int:
        if not (folder / "model").exists():
            return 0
        return int(load_files(folder / "model")[0].planes[0].embedding[0, 0])

    def page(folder: Path) -> Any:
        found = experiment_found(folder)
        return found - 1 if isinstance(found, int) else found

    nothing = lambda folder: None  # noqa: E731
    return {
        "model, replaced": (lambda folder: model(folder, 0), model, embedding, ()),
        "model, new": (nothing, model, embedding, ()),
        "bulk": (
            lambda folder: (folder / "in.jsonl").write_text('{"text": "superb"}\n' * 6),
            labelled,
            labelled_found,
            (ValueError,),
        ),
        "surveys of texts": (nothing, surveys, surveyed_by, (ValueError, TimeoutError)),
        "run --out": (
            lambda folder: experiment(folder, 1),
            lambda folder, k: experiment(folder, k + 1),
            page,
            (TimeoutError,),
        ),
    }


def labelled(folder: Path, k: int) -> None:
    """Six texts read in partitions of k."""
    from cynosure.classifier import bulk

    bulk.predict(folder / "in.jsonl", out=folder / "out", rows=k)


def labelled_found(folder: Path) -> int:
    import pyarrow.parquet as pq

    if not (folder / "out" / "_manifest.json").exists():
        return 0
    k = json.loads((folder / "out" / "_manifest.json").read_text())["options"]["rows"]
    sizes = {pq.read_table(path).num_rows for path in (folder / "out").glob("part-*.parquet")}
    assert sizes <= {k}, sizes
    return k


def surveyed_by(folder: Path) -> int:
    """Whose texts were surveyed, where each array says the same of each text."""
    if not (folder / "c.zarr").exists():
        return 0
    found = surveyed(folder)
    assert found is None or (0 not in found[0] and found[1:] == [[3.0, 4.0]]), found
    return -1


def begun(folder: Path, model: Path) -> None:
    """A bulk run that was killed before its first partition, which has a bad row."""
    from cynosure.classifier import bulk

    (folder / "in.jsonl").write_text('{"text": "superb"}\nbad\n{"text": "awful"}\n')
    bulk.predict(folder / "in.jsonl", out=folder / "out", model=model)
    for path in (folder / "out").glob("*0.*"):
        path.unlink()


def partition(folder: Path, model: Path) -> None:
    from cynosure.classifier import bulk

    bulk.predict(folder / "in.jsonl", out=folder / "out", model=model)


def partition_found(folder: Path) -> Any:
    """Its labels and how many bad rows are told beside it; None where it is not there."""
    import pyarrow.parquet as pq

    path = folder / "out" / "part-00000.parquet"
    if not path.exists():
        return None
    bad = (folder / "out" / "_bad-00000.jsonl").read_text().splitlines()
    return pq.read_table(path)["label"].to_pylist(), len(bad)


def surveys(folder: Path, writer: int = 0) -> None:
    """Two texts in a transformer whose survey is the number of their letters; few arrays.

    The store is not read back here, which `survey_texts` does when all is saved.
    """
    from unittest.mock import patch

    import numpy as np

    from cynosure.pretrained.reading import corpora

    def survey(text: str) -> Any:
        size = float(len(text))
        heads, tokens = {"entropy": np.full((2, 3), size)}, {"spread": np.full(3, size)}
        return SimpleNamespace(heads=heads, tokens=tokens, n=len(text))

    adapter = SimpleNamespace(picture=None)
    transformer: Any = SimpleNamespace(
        name="letters", depth=2, width=3, survey=survey, adapter=adapter, tokenizer=str.split
    )
    with (
        patch.multiple(corpora, HEADS=("entropy",), TOKENS=("spread",), open_surveys=Path),
        patch.multiple(corpora, BATCH=1 if writer else 16),  # else one write holds both texts
        patch("cynosure.pretrained.reading.corpora.weights_sha256", lambda transformer: "0"),
    ):
        corpora.survey_texts(transformer, ["one", "four"], folder / "c.zarr")


def surveyed(folder: Path) -> Any:
    """[states, lengths as every array tells them]; None while all texts wait."""
    import numpy as np

    from cynosure.pretrained import open_surveys

    if not (folder / "c.zarr").exists() or not open_surveys(folder / "c.zarr")["state"].any():
        return None
    data = open_surveys(folder / "c.zarr").load()
    told = [np.unique(data[x].values.reshape(2, -1), axis=1) for x in data if x != "state"]
    return [data["state"].values.tolist(), *np.unique(np.hstack(told), axis=1).T.tolist()]


def cell(a: int) -> dict[str, Any]:
    return {"x": float(a)}


def measured(n: int) -> Any:
    import numpy as np

    return np.arange(float(n))


@dataclass(frozen=True)
class Params:
    seed: int = 1


def page_of(seed: int) -> Any:
    import cynosure as cy

    tables = tuple(cy.study.Table(name, ("a",), ((seed,),)) for name in ("one", "two"))
    return cy.study.Report(f"Seed {seed}", tables=tables, command="cynosure run tiny")


def experiment(folder: Path, seed: int) -> None:
    """`cynosure run tiny --out folder/exp --force`, where the user keeps files of his own."""
    from cynosure import catalogue
    from cynosure.cli import running
    from cynosure.study.measurements import kept

    def run(p: Params, progress: Any) -> Any:
        kept(measured, p.seed)
        return page_of(p.seed)

    for mine in ("measured/mine.npz", "data/mine.csv"):
        (folder / "exp" / mine).parent.mkdir(parents=True, exist_ok=True)
        (folder / "exp" / mine).write_bytes(b"mine") if seed == 1 else None
    tiny = SimpleNamespace(TITLE="Tiny", Params=Params, QUICK=Params(), run=run)
    context = SimpleNamespace(obj=running.Voice(quiet=True, command="cynosure run tiny"))
    known = catalogue.study, catalogue.question  # which would read the files of all studies
    catalogue.study, catalogue.question = {"tiny": tiny}.__getitem__, lambda name: ""
    try:
        with redirect_stdout(io.StringIO()):
            out = folder / "exp"
            running.run(context, "tiny", out=out, set_=[f"seed={seed}"], force=True)  # type: ignore[arg-type]
    finally:
        catalogue.study, catalogue.question = known


@cache
def pages() -> dict[str, list[str]]:
    """What each file of such a run says, by the seed; made once, for it is looked at very often."""
    reports = [page_of(seed) for seed in (1, 2, 3, 4)]
    return {
        "report.html": [report.to_html() for report in reports],
        "report.json": [report.to_json() for report in reports],
        "data/table1-one.csv": [report.tables[0].to_csv() for report in reports],
        "data/table2-two.csv": [report.tables[1].to_csv() for report in reports],
    }


def experiment_found(folder: Path) -> Any:
    """The seed of the page, where it is that of all of it."""
    out = folder / "exp"
    if any((out / m).read_bytes() != b"mine" for m in ("measured/mine.npz", "data/mine.csv")):
        return "a file of the user's is gone"
    seen = {name: texts.index((out / name).read_text()) for name, texts in pages().items()}
    page = seen["report.html"]
    if page and set(seen.values()) != {page}:
        return "a new page beside old data"
    return 1 + page


def naive() -> tuple[Callable, Callable, Callable]:
    """A save that writes in place: the judge must find it out."""

    def put(text: str) -> Callable[[Path], Any]:
        return lambda folder: (folder / "page.html").write_bytes(text.encode())

    return put("old"), put("new!"), precious(lambda f: (f / "page.html").read_text(), "old", "new!")


def at_once(count: int) -> dict[str, Any]:
    """`rounds` of every folder that several processes may write, by name."""
    from cynosure._files import writing

    told = {}
    for name, parts in races().items():
        for writers, kills in ((2, False), (3, False), (2, True), (3, True)):
            how = f"{name}, {writers} at once{', one killed' if kills else ''}"
            if not (kills and name == "run --out"):  # a new table beside an old page is no fault
                told[how] = rounds(*parts, writers, count, kills)
    writing._LOCKS = None
    prepare, save, look, _ = races()["model, replaced"]
    found = rounds(prepare, save, look, (), 3, count, True)
    return {**told, "model, without locks": {k: n for k, n in found.items() if k != "leftovers"}}


if __name__ == "__main__":
    if sys.argv[1:2] == ["rounds"]:
        print(json.dumps(at_once(int((sys.argv[2:] or ["200"])[0])), indent=1))
        raise SystemExit
    step = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    asked, named = saves(), sys.argv[2:]
    if step > 1 and not named:
        del asked["surveys of texts"]  # a minute, and few of its calls are writes in a row
    asked = {name: parts for name, parts in asked.items() if not named or name in named}
    told = {name: tried(*parts, every=step) for name, parts in asked.items()}
    told["naive"] = tried(*naive())
    print(json.dumps(told, indent=1))
