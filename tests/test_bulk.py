"""Many texts in many files: every row once, whatever is killed; bad rows set apart; clear refusals.

The oracle is a plain loop over `predict`, `predict_proba` and `explain`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cynosure as cy
from cynosure import datasets
from cynosure.classifier import bulk
from cynosure.classifier.bulk import cutting, files, predicting, reading
from cynosure.cli import main
from cynosure.sweeps.engines import Lost

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SRC = Path(__file__).resolve().parent.parent / "src"
DATA = datasets.synthetic(60, seed=3)
TEXTS = [*DATA.texts, "", "zzzz", "not good, didn't like it"]
ENOUGH = 20  # texts whose words are compared with their explanations


@pytest.fixture(scope="module")
def clf() -> cy.HardmaxClassifier:
    return cy.HardmaxClassifier(leaders=6).fit(DATA.texts, DATA.labels)


@pytest.fixture(scope="module")
def model(clf, tmp_path_factory) -> Path:
    return clf.save(tmp_path_factory.mktemp("models") / "model")


def parquet(path: Path, texts: list[Any], group: int = 16, **more: Any) -> None:
    pq.write_table(pa.table({"text": texts, **more}), path, row_group_size=group)


def jsonl(path: Path, texts: list[str]) -> None:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"n": i, "text": t}) + "\n" for i, t in enumerate(texts))


def table(path: Path, texts: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        rows.writerows([["n", "text"], *([i, t] for i, t in enumerate(texts))])


def labelled(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows by (file, row), each of which is there once."""
    parts = sorted(out.glob("part-*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    found = {(row["file"], row["row"]): row for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def content(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def judge(clf: cy.HardmaxClassifier, texts: list[str], rows: list[dict[str, Any]]) -> None:
    """The plain loop: one text after the other."""
    assert len(rows) == len(texts)
    labels, p = clf.predict(texts), clf.predict_proba(texts)
    said = clf.read(texts).evidence
    missing = [row["label"] is None or str(row["label"]) == "<NA>" for row in rows]
    assert missing == (~said).tolist()  # no evidence, no label
    assert [row["label"] for row, has in zip(rows, said) if has] == labels[said].tolist()
    given = np.array([row["probability"] for row, has in zip(rows, said) if has])
    unsaid = [row["probability"] for row, has in zip(rows, said) if not has]
    assert all(x is None or np.isnan(x) for x in unsaid)
    # the sum over a ray may be added up in another order: a few roundings of a number below 1
    assert np.abs(given - p.max(axis=1)[said]).max(initial=0.0) <= 16 * 2.0**-53
    assert [row["evidence"] for row in rows] == said.tolist()
    for text, row in list(zip(texts, rows))[-ENOUGH:]:
        assert tuple(row["enough"]) == clf.explain(text).enough


# --- formats -------------------------------------------------------------------------------------


def test_every_format_gives_what_a_plain_loop_gives(tmp_path, clf, model) -> None:
    there = tmp_path / "in"
    (there / "deep").mkdir(parents=True)
    parquet(there / "a.parquet", TEXTS)
    jsonl(there / "deep" / "b.jsonl", TEXTS)
    jsonl(there / "c.jsonl.gz", TEXTS)
    table(there / "d.csv", TEXTS)
    table(there / "e.tsv", TEXTS)
    (there / "README.md").write_text("no texts")
    (there / "_hidden.csv").write_text("text\nno\n")
    done = cy.bulk.predict(there, out=tmp_path / "out", model=model, rows=20)
    names = ["a.parquet", "c.jsonl.gz", "d.csv", "deep/b.jsonl", "e.tsv"]
    assert done.rows == len(names) * len(TEXTS) and done.bad == 0
    assert (
        done.unknown == (~clf.read(TEXTS).evidence).sum() * len(names)
        and done.made == done.parts == 2 + 4 * 4
    )
    rows = labelled(tmp_path / "out")
    assert {file for file, _ in rows} == set(names)
    for name in names:
        judge(clf, TEXTS, [rows[name, i] for i in range(len(TEXTS))])
    # the folder is one table to every reader, the manifest and the side files left out
    assert len(pq.read_table(tmp_path / "out")) == done.rows


def test_lines_are_cut_at_line_ends_whatever_the_block(tmp_path, monkeypatch) -> None:
    """Against a loop over the lines; the last line may lack its end."""
    for block in (7, 64, 1 << 20):
        monkeypatch.setattr(cutting, "_BLOCK", block)
        for seed in range(6):
            draw = random.Random(seed)
            lines = ["x" * draw.choice((0, 1, 5, 90)) for _ in range(draw.randrange(1, 40))]
            path = tmp_path / "a.jsonl"
            path.write_text("\n".join(lines) + draw.choice(("", "\n")))
            data, rows = path.read_bytes(), draw.randrange(1, 9)
            parts = list(cutting._line_runs(path, 0, rows))
            assert b"".join(data[p.start : p.stop] for p in parts) == data
            whole = data.splitlines(keepends=True)
            for part in parts:
                expected = b"".join(whole[part.first : part.first + rows])
                assert data[part.start : part.stop] == expected


FIELDS = [
    "",
    "good",
    'he said "no"',
    "two\nlines",
    "a\r\nb",
    "c\rd",
    'end"',
    "é, ü",
    "日本",
    "x" * 70,
]


def some_table(draw: random.Random, end: str) -> str:
    """A table as spreadsheets and careless scripts write it; not every row is one."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator=end)
    rows.writerow(["n", "text"])
    for i in range(draw.randrange(0, 40)):
        if draw.random() < 0.2:  # quotes that open nothing, rows too short, empty lines, no end
            file.write(draw.choice(('5" disk,it is 3" wide', "alone", "", '7,"a"b', '8,"""')) + end)
        else:
            rows.writerow([i, draw.choice(FIELDS)])
    text = file.getvalue()
    return text if draw.random() < 0.7 else text.removesuffix(end)


def plainly(text: str) -> dict[int, list[str]]:
    """The oracle: Python's own reader, on the whole text at once."""
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    return dict(enumerate(rows[1:]))


@pytest.mark.parametrize("written", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_tables_are_cut_between_rows_whatever_is_quoted(tmp_path, written, packed) -> None:
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    for seed in range(25):
        draw = random.Random(seed)
        text, rows = some_table(draw, draw.choice(("\n", "\r\n", "\r"))), draw.randrange(1, 9)
        data = text.encode(written)
        path.write_bytes(gzip.compress(data) if packed else data)
        os.utime(path, ns=(seed, seed))
        parts = cutting.cut(tmp_path, [path.name], rows, "text", None)
        assert [a.stop for a in parts[:-1]] == [b.start for b in parts[1:]]
        want = plainly(text)
        got, bad = {}, set()
        for part in draw.sample(parts, len(parts)):  # in any order
            held = list(reading.batches(path, part, "text", None))
            numbers = [k for b in held for k in b.rows] + [k for b in held for k, _ in b.bad]
            assert sorted(numbers) == list(range(part.first, part.first + len(numbers)))
            assert len(numbers) == rows or part == parts[-1]
            got |= {k: t for b in held for k, t in zip(b.rows, b.texts)}
            bad |= {k for b in held for k, _ in b.bad}
        assert got == {k: row[1] for k, row in want.items() if len(row) == 2}
        assert bad == {k for k, row in want.items() if len(row) != 2}
    files.release()


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
def test_a_packed_file_is_unpacked_once_by_whoever_reads_it_in_order(
    tmp_path, name, monkeypatch
) -> None:
    path, texts = tmp_path / name, [f"text {i}" for i in range(100)]
    whole = "n,text\n" + "".join(f"{i},{t}\n" for i, t in enumerate(texts))
    lines = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    path.write_bytes(gzip.compress((lines if "jsonl" in name else whole).encode()))
    parts = cutting.cut(tmp_path, [name], 10, "text", None)
    assert len(parts) == 10
    list(reading.batches(path, parts[0], "text", None))  # the head of a table is known from now on
    times, real = [], gzip.open
    monkeypatch.setattr(gzip, "open", lambda *what: times.append(what) or real(*what))
    read = [
        t for part in parts[1:] for b in reading.batches(path, part, "text", None) for t in b.texts
    ]
    assert read == texts[10:] and not times
    list(reading.batches(path, parts[3], "text", None))  # backwards: once more from the beginning
    assert [t for b in reading.batches(path, parts[4], "text", None) for t in b.texts] == texts[
        40:50
    ]
    files.release()


def test_what_is_before_the_damage_is_not_lost(tmp_path) -> None:
    """A packed table cut short, and a quote that is never closed: the last partition fails."""
    rows = "n,text\n" + "".join(f"{i},{random.Random(i).random()}\n" for i in range(200))
    packed = gzip.compress(rows.encode())
    (tmp_path / "a.csv.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.csv").write_text('n,text\n1,good\n2,bad\n3,"' + 17 * ("x" * (1 << 20) + "\n"))
    lines = gzip.compress("".join(f'{{"text": "{hash(i)}"}}\n' for i in range(5000)).encode())
    (tmp_path / "c.jsonl.gz").write_bytes(lines[: len(lines) // 2])
    for name, rows_, match in (
        ("a.csv.gz", 20, "cut short"),
        ("b.csv", 2, r"row 2: over 16 MB"),
        ("c.jsonl.gz", 20, "cut short"),
    ):
        *whole, last = cutting.cut(tmp_path, [name], rows_, "text", None)
        assert whole and last.stop == -1
        for part in whole:
            held = list(reading.batches(tmp_path / name, part, "text", None))
            assert sum(len(b.rows) for b in held) == rows_
        with pytest.raises(ValueError, match=match):
            list(reading.batches(tmp_path / name, last, "text", None))


def test_a_glob_an_id_and_numbers_as_labels(tmp_path) -> None:
    clf = cy.HardmaxClassifier(leaders=6).fit(DATA.texts, (DATA.labels == "positive") + 1)
    for name, first in (("x1.parquet", 100), ("x2.parquet", 500)):
        parquet(tmp_path / name, TEXTS[:9], review=list(range(first, first + 9)))
    parquet(tmp_path / "y.parquet", TEXTS[:9])
    cy.bulk.predict(str(tmp_path / "x*.parquet"), out=tmp_path / "out", model=clf, id="review")
    got = pq.read_table(tmp_path / "out")
    assert got["review"].to_pylist() == [*range(100, 109), *range(500, 509)]
    assert got["label"].type == pa.int64()
    assert got["label"].to_pylist() == 2 * clf.predict(TEXTS[:9]).tolist()
    jsonl(tmp_path / "z.jsonl", TEXTS[:3])  # beside text files ids are text
    cy.bulk.predict(tmp_path / "z.jsonl", out=tmp_path / "out2", model=clf, id="n")
    assert pq.read_table(tmp_path / "out2")["n"].to_pylist() == ["0", "1", "2"]
    with pytest.raises(ValueError, match="labels are numbers"):
        cy.bulk.predict(tmp_path / "z.jsonl", out=tmp_path / "out3", model=clf, abstain="none")


def test_labels_of_a_frame_and_of_a_dask_frame(clf, model) -> None:
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    data = pd.DataFrame({"review": [*TEXTS, None]}, index=range(7, 8 + len(TEXTS)))
    plain = cy.bulk.frame(data, model, text="review")
    assert plain.index.equals(data.index) and plain["label"].isna().tolist()[-1]
    judge(clf, TEXTS, plain.iloc[:-1].to_dict("records"))
    lazy = cy.bulk.frame(dd.from_pandas(data, npartitions=3), clf, text="review")
    whole = lazy.compute(scheduler="sync")
    assert whole["label"].equals(plain["label"])
    assert [list(w) for w in whole["enough"]] == [list(w) for w in plain["enough"]]
    assert dict(lazy.dtypes)["probability"] == np.float64
    with pytest.raises(ValueError, match="no column 'text'"):
        cy.bulk.frame(data, model)


# --- bad rows ------------------------------------------------------------------------------------


def test_bad_rows_go_to_a_side_file_with_place_and_reason(tmp_path, clf, model) -> None:
    parquet(tmp_path / "a.parquet", ["good", None, "dull"])
    raw = pa.array([b"fine", b"\xff\xfe", b"dull"], pa.binary())
    pq.write_table(pa.table({"text": raw}), tmp_path / "b.parquet")
    lines = [b'{"text": "good"}', b"{", b"", b'{"text": 7}', b'{"other": 1}', b"[1]", b"\xff",
             b'{"text": "dull \\ud800 film"}']  # fmt: skip
    (tmp_path / "c.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    (tmp_path / "d.csv").write_bytes(b'text,x\ngood,1\nshort\n\n"a\nb",2\n\xe9,3\ndull,4\n')
    done = cy.bulk.predict(tmp_path, out=tmp_path / "out", model=model)
    found = [
        json.loads(line)
        for side in sorted((tmp_path / "out").glob("_bad-*.jsonl"))
        for line in side.read_text().splitlines()
    ]
    told = {(bad["file"], bad["row"]): bad["reason"] for bad in found}
    assert told == {
        ("a.parquet", 1): "a missing text",
        ("b.parquet", 1): "not UTF-8 (invalid start byte at byte 0)",
        ("c.jsonl", 1): "not JSON",
        ("c.jsonl", 3): "field 'text' is not a string",
        ("c.jsonl", 4): "field 'text' is not there",
        ("c.jsonl", 5): "not a JSON object",
        ("c.jsonl", 6): "not UTF-8 (invalid start byte at byte 0)",
        ("d.csv", 1): "expected 2 fields, got 1",
        ("d.csv", 3): "not UTF-8",
    }
    assert done.bad == len(told) and done.first_bad == "a.parquet, row 1: a missing text"
    rows = labelled(tmp_path / "out")
    texts = {
        ("a.parquet", 0): "good", ("a.parquet", 2): "dull", ("b.parquet", 0): "fine",
        ("b.parquet", 2): "dull", ("c.jsonl", 0): "good", ("c.jsonl", 7): "dull \ud800 film",
        ("d.csv", 0): "good", ("d.csv", 2): "a\nb", ("d.csv", 4): "dull",
    }  # fmt: skip
    assert set(rows) == set(texts) and not set(rows) & set(told)
    judge(clf, list(texts.values()), [rows[key] for key in texts])


def test_a_row_without_end_is_a_bad_row_and_takes_no_memory(tmp_path, model, monkeypatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 1000)
    monkeypatch.setattr(reading, "_BLOCK", 64)
    long = json.dumps({"text": "dull " * 900})
    (tmp_path / "a.jsonl").write_text(f'{{"text": "good"}}\n{long}\n{{"text": "dull"}}\n')
    done = cy.bulk.predict(tmp_path, out=tmp_path / "out", model=model, rows=1)
    assert (done.rows, done.bad, done.parts) == (2, 1, 3)
    assert set(labelled(tmp_path / "out")) == {("a.jsonl", 0), ("a.jsonl", 2)}


def test_a_damaged_file_stops_neither_the_others_nor_the_next_run(tmp_path, model) -> None:
    parquet(tmp_path / "a.parquet", TEXTS)
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(json.dumps({"text": "good"}) + "\n")
    whole = (tmp_path / "b.jsonl.gz").read_bytes()
    (tmp_path / "b.jsonl.gz").write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"1 of 2 partitions failed.*b\.jsonl\.gz.*cut short"):
        cy.bulk.predict(tmp_path, out=tmp_path / "out", model=model)
    assert len(labelled(tmp_path / "out")) == len(TEXTS)
    (tmp_path / "b.jsonl.gz").write_bytes(whole)
    with pytest.raises(ValueError, match=r"other files: 'b\.jsonl\.gz' has changed"):
        cy.bulk.predict(tmp_path, out=tmp_path / "out", model=model)


# --- refusals ------------------------------------------------------------------------------------


def test_another_model_input_or_option_is_refused_with_the_difference(tmp_path, model) -> None:
    there, out = tmp_path / "in", tmp_path / "out"
    there.mkdir()
    jsonl(there / "a.jsonl", TEXTS[:5])
    cy.bulk.predict(there, out=out, model=model, rows=2)
    before = content(out)

    def refused(match: str, **how: Any) -> None:
        with pytest.raises(ValueError, match=match):
            cy.bulk.predict(there, out=out, **{"model": model, "rows": 2, **how})
        assert content(out) == before

    refused("another model", model="imdb")
    refused("rows=2, not 3", rows=3)
    refused("text='text', not 'n'", text="n")
    refused("abstain=None, not 'none'", abstain="none")
    os.utime(there / "a.jsonl", (1, 1))
    refused("'a.jsonl' has changed")
    (there / "a.jsonl").rename(there / "b.jsonl")
    refused("'a.jsonl' is gone; other files: 'b.jsonl' was not there")


def test_a_folder_of_someone_elses_is_not_touched(tmp_path, model) -> None:
    jsonl(tmp_path / "a.jsonl", TEXTS[:5])
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"holds 'thesis\.tex'.*choose another folder"):
        cy.bulk.predict(tmp_path / "a.jsonl", out=out, model=model)
    assert content(out) == {"thesis.tex": b"precious"}
    (out / "thesis.tex").unlink()
    cy.bulk.predict(tmp_path / "a.jsonl", out=out, model=model)
    (out / "part-00000.parquet").write_bytes(b"mine")
    with pytest.raises(ValueError, match="no partition of this run; move it away"):
        cy.bulk.predict(tmp_path / "a.jsonl", out=out, model=model)
    assert (out / "part-00000.parquet").read_bytes() == b"mine"
    edited = (out / "_manifest.json").read_text().replace('"rows": 100000', '"rows": 200000')
    (out / "_manifest.json").write_text(edited)
    with pytest.raises(ValueError, match="not as it was written"):
        cy.bulk.predict(tmp_path / "a.jsonl", out=out, model=model)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"source": "nothing"}, "no such file or folder"),
        ({"source": "*.xyz"}, "no .parquet"),
        ({"source": "notes.txt"}, "expected a name ending in"),
        ({"source": "a.parquet", "text": "body"}, "no column 'body'; it has 'text', 'n'"),
        ({"source": "a.parquet", "text": "n"}, "holds int64; expected strings"),
        ({"source": "a.parquet", "id": "k"}, "no column 'k'"),
        ({"source": "a.parquet", "id": "label"}, "rename it"),
        ({"source": "broken.parquet"}, "not a parquet file, or damaged"),
        ({"source": "a.csv", "text": "body"}, "no column 'body'"),
        ({"source": "a.parquet", "rows": 0}, "rows: expected"),
        ({"source": "a.parquet", "workers": 0}, "workers: expected"),
        ({"source": "a.parquet", "model": "absent"}, "no such model"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, monkeypatch, model, how, match) -> None:
    monkeypatch.chdir(tmp_path)
    parquet(tmp_path / "a.parquet", TEXTS[:3], n=[1, 2, 3])
    table(tmp_path / "a.csv", TEXTS[:3])
    (tmp_path / "notes.txt").write_text("good\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ValueError, match=match) as found:
        cy.bulk.predict(**{"out": "out", "model": model, **how})
    assert "\n" not in str(found.value)


# --- killed and started again --------------------------------------------------------------------


def work(folder: Path, parts: int) -> Path:
    """Texts of which each partition has a bad one."""
    there = folder / "in"
    there.mkdir()
    draw = datasets.synthetic(12 * parts, seed=9).texts
    lines = [json.dumps({"text": t}) for t in draw]
    lines[::12] = ["bad"] * parts
    (there / "a.jsonl").write_text("\n".join(lines) + "\n")
    return there


def killed(there: Path, out: Path, model: Path, after: int, delay: float) -> bool:
    """A driver in a child of ours, killed after so many partitions; whether it was in time."""
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(hear)
            bulk.predict(
                there, out=out, model=model, rows=12, progress=lambda *_: os.write(tell, b".")
            )
            code = 0
        finally:
            os._exit(code)
    os.close(tell)
    for _ in range(after):
        os.read(hear, 1)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.close(hear)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def check_kills(tmp_path: Path, model: Path, kills: int, parts: int = 12) -> None:
    there = work(tmp_path, parts)
    begin = time.perf_counter()
    whole = bulk.predict(there, out=tmp_path / "plain", model=model, rows=12)
    each = (time.perf_counter() - begin) / parts
    assert whole.rows == 11 * parts and whole.bad == parts
    draw, partly = random.Random(0), 0
    out = tmp_path / "out"
    for k in range(kills):
        hit = killed(there, out, model, draw.randrange(0, 3), draw.random() * each)
        made = len(list(out.glob("part-*.parquet")))
        partly += hit and 0 < made < parts
        if made == parts or k == kills - 1:
            done = bulk.predict(there, out=out, model=model, rows=12)
            assert (done.rows, done.bad, done.parts) == (whole.rows, whole.bad, parts)
            assert content(out) == content(tmp_path / "plain")  # bit for bit, and nothing left over
            out = tmp_path / f"out{k}"
    assert partly >= kills // 4, "nothing was ever killed in the middle"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver is forked")
def test_a_killed_run_goes_on_and_no_row_is_lost_or_doubled(tmp_path, model) -> None:
    check_kills(tmp_path, model, 10)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver is forked")
def test_a_hundred_kills(tmp_path, model) -> None:
    check_kills(tmp_path, model, 100)


def test_processes_make_the_same_bits(tmp_path, model) -> None:
    there = work(tmp_path, 6)
    bulk.predict(there, out=tmp_path / "plain", model=model, rows=12)
    counted: list[tuple[int, int]] = []
    done = bulk.predict(
        there, out=tmp_path / "out", model=model, rows=12, workers=2,
        progress=lambda *told: counted.append(told),
    )  # fmt: skip
    assert counted == [(k, 6) for k in range(1, 7)] and done.made == 6
    assert content(tmp_path / "out") == content(tmp_path / "plain")


def test_a_partition_that_kills_its_process_fails_alone(tmp_path, model, monkeypatch) -> None:
    """As the engines tell it; test_sweeps has the engines themselves."""
    there, out = work(tmp_path, 4), tmp_path / "out"
    bulk.predict(there, out=tmp_path / "plain", model=model, rows=12)

    def losing(make: Any, jobs: Any, *_: Any) -> Iterator[tuple[int, Any]]:
        yield from ((k, make(jobs[k]) if k != 1 else Lost("it killed its process")) for k in jobs)

    def ending(make: Any, jobs: Any, *_: Any) -> Iterator[tuple[int, Any]]:
        raise RuntimeError("no worker is left")
        yield

    monkeypatch.setattr(predicting, "finished", losing)
    with pytest.raises(ValueError, match=r"1 of 4 partitions failed.*a\.jsonl: it killed"):
        bulk.predict(there, out=out, model=model, rows=12)
    monkeypatch.setattr(predicting, "finished", ending)
    with pytest.raises(RuntimeError, match=r"no worker is left; 3 of 4 partitions are in .*again"):
        bulk.predict(there, out=out, model=model, rows=12)
    monkeypatch.undo()
    assert bulk.predict(there, out=out, model=model, rows=12).made == 1
    assert content(out) == content(tmp_path / "plain")


def test_a_cluster_makes_the_same_bits_though_a_worker_is_killed(tmp_path, model, cluster) -> None:
    from distributed import Client

    there, shot = work(tmp_path, 20), []
    bulk.predict(there, out=tmp_path / "plain", model=model, rows=12)
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)

        def kill_one(done: int, of: int) -> None:
            if not shot:
                shot.append(next(iter(client.run(os.getpid).values())))
                os.kill(shot[0], signal.SIGKILL)
                assert of - done >= 10

        done = bulk.predict(
            there, out=tmp_path / "out", model=model, rows=12, client=client, progress=kill_one
        )
        client.wait_for_workers(2, timeout=60)
        assert shot[0] not in client.run(os.getpid).values()
    assert done.made == 20
    assert content(tmp_path / "out") == content(tmp_path / "plain")
    # and by its address, from the command line
    line = ["predict", str(there), "--model", str(model), "--out", str(tmp_path / "out2")]
    address = cluster.scheduler_address
    assert main([*line, "--rows", "12", "--scheduler", address, "-q"]) == 0
    assert content(tmp_path / "out2") == content(tmp_path / "plain")


# --- the command line ----------------------------------------------------------------------------


def test_the_command_labels_goes_on_and_says_what_it_did(tmp_path, model, clf, capsys) -> None:
    there = work(tmp_path, 2)
    line = ["predict", str(there), "--model", str(model), "--out", str(tmp_path / "out")]
    assert main([*line, "--rows", "12", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)["result"]
    assert (told["texts"], told["bad_rows"], told["made_now"]) == (22, 2, 2)
    assert "2 rows could not be read" in err and "a.jsonl, row 0: not JSON" in err
    assert main([*line, "--rows", "12"]) == 0
    out, err = capsys.readouterr()
    assert "made now          0" in out
    assert main([*line, "--rows", "13"]) == 2
    assert "was begun with rows=12, not 13" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("--jsonl --out o", "--out writes parquet"),
        ("--workers 2", "only with --out"),
        ("--out o --workers 2 --scheduler tcp://127.0.0.1:1", "choose one"),
    ],
)
def test_flags_that_contradict_each_other(tmp_path, monkeypatch, capsys, words, match) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "a.jsonl", TEXTS[:2])
    assert main(["predict", "a.jsonl", *words.split()]) == 2
    assert match in capsys.readouterr().err


def test_a_scheduler_that_is_not_there_is_named(tmp_path, model, monkeypatch, capsys) -> None:
    monkeypatch.setattr(predicting, "_CONNECT", 0.2)
    jsonl(tmp_path / "a.jsonl", TEXTS[:2])
    line = ["predict", str(tmp_path / "a.jsonl"), "--model", str(model), "--out", "out"]
    monkeypatch.chdir(tmp_path)
    assert main([*line, "--scheduler", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_a_model_may_be_named_by_its_flag(tmp_path, model, clf, capsys) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:5]) + "\n")
    assert main(["predict", str(tmp_path / "a.txt"), "--model", str(model), "-q"]) == 0
    labels = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert labels == clf.predict(TEXTS[:5]).tolist()


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    jsonl(tmp_path / "a.jsonl", TEXTS[:2])
    assert main(["predict", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "out")]) == 2
    assert 'pip install "cynosure[scale]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_table_without_rows_is_a_table_without_rows() -> None:
    """Dask asks a labelled frame for its columns with an empty table."""
    pd = pytest.importorskip("pandas")
    labelled = cy.bulk.frame(pd.DataFrame({"text": pd.Series([], dtype=object)}))
    assert list(labelled.columns)[:2] == ["label", "probability"] and len(labelled) == 0
