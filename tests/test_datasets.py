"""Readers of folders, archives and tables; blocks; made-up reviews."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from cynosure.classifier.text.datasets import Dataset, blocks, imdb, read, stream, synthetic

REVIEWS = {
    "aclImdb/train/pos/10_9.txt": "lovely",
    "aclImdb/train/pos/2_7.txt": "fine",
    "aclImdb/train/neg/0_1.txt": "awful",
    "aclImdb/train/unsup/0_0.txt": "unlabelled",
    "aclImdb/test/neg/1_2.txt": "poor",
    "aclImdb/README": "notes",
}


def pack(path: Path, members: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_archive_and_folder_are_read_alike(tmp_path: Path) -> None:
    archive = pack(tmp_path / "aclImdb.tar.gz", REVIEWS)
    for name, text in REVIEWS.items():
        file = tmp_path / "open" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for source in (archive, tmp_path / "open", tmp_path / "open" / "aclImdb"):
        train = imdb(source)
        assert train.texts == ("awful", "fine", "lovely")
        assert train.labels.tolist() == ["neg", "pos", "pos"]
        assert read(source, part="test").texts == ("poor",)


def test_nothing_is_extracted(tmp_path: Path) -> None:
    imdb(pack(tmp_path / "a.tar.gz", REVIEWS))
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"]


@pytest.mark.parametrize("name", ["../train/pos/1_1.txt", "/train/pos/1_1.txt", "a/../../b"])
def test_members_outside_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="outside"):
        imdb(pack(tmp_path / "a.tar.gz", {**REVIEWS, name: "x"}))


def test_a_huge_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cynosure.classifier.text.datasets._LARGEST_REVIEW", 5)
    with pytest.raises(ValueError, match="too large"):
        imdb(pack(tmp_path / "a.tar.gz", REVIEWS))


def test_broken_archives_are_named(tmp_path: Path) -> None:
    whole = pack(tmp_path / "a.tar.gz", {k: v * 9999 for k, v in REVIEWS.items()}).read_bytes()
    for name, data in {"cut": whole[: len(whole) // 2], "text": b"hello", "none": b""}.items():
        broken = tmp_path / f"{name}.tar.gz"
        broken.write_bytes(data)
        with pytest.raises(ValueError, match=f"{name}.tar.gz"):
            imdb(broken)
    with pytest.raises(ValueError, match="no review found"):
        imdb(pack(tmp_path / "b.tar.gz", {"x.txt": "x"}))
    with pytest.raises(FileNotFoundError):
        imdb(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="'train' or 'test'"):
        imdb(tmp_path, part="dev")


ROWS = [("Good, really\nvery", "1"), ("Ünlü", "0")]
TABLES = {
    "t.csv": 'id,label,text\n1,1,"Good, really\nvery"\n2,0,Ünlü\n\n',
    "t.tsv": 'id\tlabel\ttext\n1\t1\t"Good, really\nvery"\n2\t0\tÜnlü\n',
    "t.jsonl": '{"text": "Good, really\\nvery", "label": "1"}\n\n{"text": "Ünlü", "label": "0"}\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_with_and_without_gzip(tmp_path: Path, name: str) -> None:
    data = TABLES[name].encode()
    (tmp_path / name).write_bytes(data)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        assert list(stream(path)) == ROWS
        assert list(stream(path, label=None)) == [(text, None) for text, _ in ROWS]
        assert read(path).labels.tolist() == ["1", "0"]


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\na,b\n", encoding="utf-8-sig")
    assert list(stream(tmp_path / "t.csv")) == [("a", "b")]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"review,label\na,b\n", "no column 'text'.*'review'"),
        ("t.csv", b"", "empty"),
        ("t.csv", b"text,label\n", "no row"),
        ("t.csv", b"text,label\na\n", "line 2: expected 2 fields, got 1"),
        ("t.csv", b"text,label\n\xff,b\n", "not UTF-8"),
        ("t.jsonl", b'{"text": "a"}\n', "line 1: no field 'label'.*'text'"),
        ("t.jsonl", b'{"text": "a", "label": 1}\n{oops\n', "line 2: expected a JSON object"),
        ("t.jsonl", b"[1, 2]\n", "line 1: expected a JSON object"),
        ("t.jsonl", b'{"text": 5, "label": 1}\n', "not a string"),
        ("t.xls", b"", "expected one of .csv"),
        ("t.csv.gz", b"not gzip", "t.csv.gz"),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


def test_blocks_hold_out_consecutive_texts_of_each_class() -> None:
    labels = np.repeat(["neg", "pos"], 2500)
    held = blocks(labels)
    assert held.reshape(2, 2, 1250).tolist() == 4 // 2 * [2 * [
        [600 <= i < 725 for i in range(1250)]]]  # fmt: skip
    few = blocks(["a", "b"] * 6, 0.25)
    assert few.sum() == 4 and {x for x, h in zip(["a", "b"] * 6, few) if h} == {"a", "b"}
    with pytest.raises(ValueError, match="fraction"):
        blocks(labels, 1.5)


def test_a_split_parts_the_dataset() -> None:
    data = synthetic(100)
    kept, held = data.split(0.2)
    assert sorted(kept.texts + held.texts) == sorted(data.texts)
    assert len(held) == 20 and set(held.labels) == {"positive", "negative"}
    assert "100 texts" in repr(data)
    with pytest.raises(ValueError, match="one label per text"):
        Dataset(("a",), np.array(["x", "y"]))


def test_synthetic_reviews_are_repeatable_and_informative() -> None:
    one, two, other = synthetic(50), synthetic(50), synthetic(50, seed=1)
    assert one.texts == two.texts and one.texts != other.texts
    good = [("great" in t or "superb" in t) for t in synthetic(400, noise=0.0).texts]
    assert np.mean(good[::2]) > 2 * np.mean(good[1::2])
    assert set(synthetic(30, classes=("a", "b", "c")).labels) == {"a", "b", "c"}
    with pytest.raises(ValueError, match="2 to 4"):
        synthetic(10, classes=("only",))


@pytest.mark.data
def test_the_real_archive(imdb: Path) -> None:
    data = read(imdb)
    assert len(data) == 25_000
    assert (data.labels == "pos").sum() == 12_500
    assert all(data.texts)


# --- as spreadsheets save tables -----------------------------------------------------------------

SHEET = 'text|label\r\n"slow; but fine, really"|good\r\nnaïve|bad\r\n'
SHEET_ROWS = [("slow; but fine, really", "good"), ("naïve", "bad")]


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", [";", "\t"])
def test_tables_of_spreadsheets_are_read(tmp_path, code, mark) -> None:
    path = tmp_path / "sheet.csv"
    text = SHEET.replace("|", mark)
    path.write_bytes(text.encode(code))
    assert list(stream(path)) == SHEET_ROWS
    packed = tmp_path / "sheet.csv.gz"
    packed.write_bytes(gzip.compress(text.encode(code)))
    assert list(stream(packed)) == SHEET_ROWS


def test_a_comma_is_taken_before_a_semicolon(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\na;b,good\n")
    assert list(stream(path)) == [("a;b", "good")]


@pytest.mark.parametrize(
    ("name", "line"),
    [("t.csv", "review,stars\nfine,3\n"), ("t.jsonl", '{"review": "fine"}\n')]
    + [("semicolons.csv", "review;stars\nfine;3\n")],
)
def test_a_missing_column_says_how_to_name_it(tmp_path, name, line) -> None:
    (tmp_path / name).write_text(line)
    with pytest.raises(ValueError, match=r"it has 'review'.*--text-column"):
        list(stream(tmp_path / name))
    with pytest.raises(ValueError, match="--label-column"):
        list(stream(tmp_path / name, text="review"))


def test_a_column_that_is_there_twice_is_refused(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("text,text,label\none,other,good\n")
    with pytest.raises(ValueError, match="2 columns are called 'text'"):
        list(stream(tmp_path / "t.csv"))


@pytest.mark.parametrize("name", ["book.xlsx", "book.xls", "book.csv", "book.jsonl"])
def test_a_workbook_is_recognised_by_name_and_by_content(tmp_path, name) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04" + bytes(range(60)))
    with pytest.raises(ValueError, match="Excel workbook; save its sheet as CSV"):
        list(stream(tmp_path / name))
