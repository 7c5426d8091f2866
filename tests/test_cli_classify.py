"""fit, predict, explain, evaluate on the command line: results, streams, and bad input."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cynosure import datasets
from cynosure.classifier.bundled import load_pretrained
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.cli import main
from cynosure.cli.terminal import coloured, plain, wants_colour

SRC = Path(__file__).resolve().parent.parent / "src"
ENV = {**os.environ, "PYTHONPATH": str(SRC)}
DATA = datasets.synthetic(200, seed=3)


def write_csv(path: Path, data: datasets.Dataset, head: str = "text,label") -> None:
    rows = [f'"{t}",{y}' for t, y in zip(data.texts, data.labels.tolist())]
    path.write_text("\n".join([head, *rows]) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    HardmaxClassifier(leaders=6).fit(DATA.texts, DATA.labels).save(folder)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "reviews.csv", DATA)
    return tmp_path


class Stdin:
    """Standard input with these bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def said(capsys) -> tuple[str, str]:
    out, err = capsys.readouterr()
    return out, err


# --- fit --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "words"), [("7", 7), ("0", None)])
def test_fit_takes_a_budget_of_words(here: Path, capsys, given: str, words: int | None) -> None:
    line = ["fit", "reviews.csv", "--ngrams", "1,1", "--words", given, "--out", "model"]
    assert main(line) == 0
    clf = HardmaxClassifier(ngrams=(1, 1), words=words).fit(DATA.texts, DATA.labels)
    same = HardmaxClassifier.load("model")
    assert same.words == words
    assert np.array_equal(same.decision_function(DATA.texts), clf.decision_function(DATA.texts))


def test_an_interrupted_learned_fit_goes_on_from_its_checkpoint(here: Path, capsys) -> None:
    pytest.importorskip("torch")
    line = ["fit", "reviews.csv", "--ngrams", "1,1", "--method", "learned", "--device", "cpu"]
    assert main([*line, "--epochs", "2", "--out", "whole"]) == 0
    part = [*line, "--checkpoint", "half.safetensors"]
    assert main([*part, "--epochs", "1", "--out", "first"]) == 0
    assert main([*part, "--epochs", "2", "--out", "second"]) == 0
    whole, second = (HardmaxClassifier.load(name) for name in ("whole", "second"))
    np.testing.assert_allclose(
        whole.decision_function(DATA.texts), second.decision_function(DATA.texts), atol=1e-5
    )
    assert main(["fit", "reviews.csv", "--out", "m", "--checkpoint", "half.safetensors"]) != 0
    assert "--checkpoint: only --method learned" in said(capsys)[1]


def test_fit_writes_the_model_that_python_makes(here: Path, capsys) -> None:
    test = datasets.synthetic(40, seed=4)
    write_csv(here / "test.csv", test)
    line = ["fit", "reviews.csv", "--leaders", "6", "--out", "model", "--test", "test.csv"]
    assert main([*line, "--json"]) == 0
    data = json.loads(said(capsys)[0])
    clf = HardmaxClassifier(leaders=6).fit(DATA.texts, DATA.labels)
    same = HardmaxClassifier.load("model")
    assert np.array_equal(same.decision_function(test.texts), clf.decision_function(test.texts))
    result = data["result"]
    assert result["test"]["accuracy"] == clf.score(test.texts, test.labels)
    assert result["classes"] == ["negative", "positive"] and result["texts"] == 200
    assert data["inputs"]["data"] == ["reviews.csv", "test.csv"]
    assert main([*line, "--force"]) == 0
    out, err = said(capsys)
    assert "accuracy" in out and "leaders per text" in out and "wrote model" in err


def test_fit_reads_named_columns_tsv_jsonl_and_the_archive(here: Path, capsys) -> None:
    rows = [{"stars": y, "body": t} for t, y in zip(DATA.texts, DATA.labels.tolist())]
    Path("r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    named = ["--text-column", "body", "--label-column", "stars"]
    assert main(["fit", "r.jsonl", "--out", "a", "--ngrams", "1,1", *named]) == 0
    assert HardmaxClassifier.load("a").ngrams == (1, 1)
    with tarfile.open("aclImdb.tar.gz", "w:gz") as archive:
        for i, (text, label) in enumerate(zip(DATA.texts, DATA.labels.tolist())):
            for part in ("train", "test"):
                member = tarfile.TarInfo(f"aclImdb/{part}/{label[:3]}/{i}_7.txt")
                data = text.encode()
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    assert main(["fit", "aclImdb.tar.gz", "--out", "b", "--dim", "3"]) == 0
    assert HardmaxClassifier.load("b").classes_.tolist() == ["neg", "pos"]
    said(capsys)
    line = ["evaluate", "b", "aclImdb.tar.gz:train", "--explained", "0", "--json", "-q"]
    assert main(line) == 0
    assert json.loads(said(capsys)[0])["result"]["evaluation"]["dim"] == 3


def test_fit_learned_is_the_other_method(here: Path, capsys) -> None:
    pytest.importorskip("torch")
    line = ["fit", "reviews.csv", "--method", "learned", "--epochs", "1", "--device", "cpu"]
    assert main([*line, "--out", "m", "-q"]) == 0
    assert type(HardmaxClassifier.load("m").method).__name__ == "Learned"


# --- predict ----------------------------------------------------------------------------------


def test_predict_one_line_in_one_line_out(here: Path, trained: Path, capsys, monkeypatch) -> None:
    texts = ["a wonderful film", "", "dull\x0band tedious\x85", "zzzz"]  # no line feed inside
    given = "\ufeff" + "\r\n".join(texts)  # and none at the end
    monkeypatch.setattr("sys.stdin", Stdin(given.encode()))
    assert main(["predict", str(trained), "-"]) == 0
    out, err = said(capsys)
    clf = HardmaxClassifier.load(trained)
    p = clf.predict_proba(texts)
    lines = [line.split("\t") for line in out.splitlines()]
    said_of = clf.read(texts).evidence
    assert said_of.tolist() == [True, False, True, False]
    assert [label for label, _ in lines] == clf.predict(texts, abstain="").tolist()
    assert [x == "" for _, x in lines] == (~said_of).tolist()
    given = [float(x) for _, x in lines if x]
    assert given == pytest.approx(p.max(axis=1)[said_of], abs=1e-6)
    assert "4 texts" in err


def test_predict_as_json_lines_and_as_one_document(here: Path, trained: Path, capsys) -> None:
    expected = HardmaxClassifier.load(trained).predict_proba(DATA.texts).max(axis=1)
    assert main(["predict", str(trained), "reviews.csv", "--jsonl", "-q"]) == 0
    out, err = said(capsys)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["score"] for row in rows] == pytest.approx(expected) and err == ""
    assert main(["predict", str(trained), "reviews.csv", "--json", "-q"]) == 0
    assert json.loads(said(capsys)[0])["result"] == rows
    Path("none.txt").write_text("")
    assert main(["predict", str(trained), "none.txt", "--json", "-q"]) == 0
    assert json.loads(said(capsys)[0])["result"] == []


def test_predict_reads_packed_lines(here: Path, trained: Path, capsys) -> None:
    data = gzip.compress(b"wonderful\ndull\n")
    Path("t.txt.gz").write_bytes(data)
    assert main(["predict", str(trained), "t.txt.gz", "-q"]) == 0
    assert [line.split()[0] for line in said(capsys)[0].splitlines()] == ["positive", "negative"]
    Path("t.txt.gz").write_bytes(data[:-9])
    assert main(["predict", str(trained), "t.txt.gz", "-q"]) == 2
    assert "t.txt.gz" in said(capsys)[1]


def test_predict_keeps_number_labels(here: Path, capsys) -> None:
    stars = np.where(DATA.labels == "positive", 5, 1)
    HardmaxClassifier(leaders=6).fit(DATA.texts, stars).save("stars")
    Path("t.txt").write_text("a wonderful film\n")
    assert main(["predict", "stars", "t.txt", "--jsonl", "-q"]) == 0
    assert json.loads(said(capsys)[0])["label"] == 5
    assert main(["explain", "--model", "stars", "wonderful", "--label", "1", "-q"]) == 0


def test_predict_streams_without_reading_ahead(trained: Path, monkeypatch) -> None:
    """What was read and not yet answered never exceeds one chunk."""
    asked, ahead = 0, []

    def lines() -> Iterator[bytes]:
        nonlocal asked
        for i in range(20_000):
            asked += 1
            yield f"a {'wonderful' if i % 3 else 'dull'} film {i}\n".encode()

    class Out(io.StringIO):
        answered = 0

        def write(self, text: str) -> int:
            ahead.append(asked - Out.answered)
            Out.answered += text.count("\n")
            return len(text)

    monkeypatch.setattr("sys.stdin", type("S", (), {"buffer": lines()})())
    monkeypatch.setattr("sys.stdout", Out())
    assert main(["predict", str(trained), "-", "-q"]) == 0
    assert Out.answered == 20_000
    assert max(ahead) <= 4096 and ahead[0] <= 16  # and the first answers come early


def test_predict_keeps_the_order_through_a_real_pipe(trained: Path) -> None:
    texts = [f"{'wonderful' if i * i % 7 < 3 else 'tedious'} story {i}" for i in range(20_000)]
    done = subprocess.run(
        [sys.executable, "-m", "cynosure", "predict", str(trained), "-", "-q"],
        input="\n".join(texts) + "\n", capture_output=True, text=True, env=ENV,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    labels = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert labels == HardmaxClassifier.load(trained).predict(texts).tolist()


def test_a_reader_that_leaves_early_is_no_error(trained: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "cynosure", "predict", str(trained), "-", "-q"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV,
    )  # fmt: skip
    assert child.stdin and child.stdout and child.stderr
    child.stdout.close()
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(b"a wonderful film\n" * 50_000)
    assert child.stderr.read() == b"" and child.wait() == 0
    child.stderr.close()


def test_lines_before_a_bad_one_are_answered(trained: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(b"wonderful\ndull\n\xff\xfe\nlovely\n"))
    assert main(["predict", str(trained), "-"]) == 2
    out, err = said(capsys)
    assert len(out.splitlines()) == 2
    assert "line 3" in err and "UTF-8" in err


# --- explain ----------------------------------------------------------------------------------


def test_explain_says_what_python_says_offline(here: Path, capsys) -> None:
    text = "A slow film, but what an ending!"
    assert main(["explain", text, "--json", "--html", "why.html", "-q"]) == 0
    result = json.loads(said(capsys)[0])["result"]
    assert result == json.loads(load_pretrained().explain(text).to_json())
    total = result["intercept"] + sum(x["contribution"] for x in result["leaders"])
    assert abs(total - result["decision"]) < 1e-9
    page = Path("why.html").read_text("utf-8")
    assert "A slow film" in page and not re.search(r"(?:src|href)=\"https?:", page)


def test_either_of_two_labels_is_explained(trained: Path, capsys) -> None:
    found = {}
    for label in ("positive", "negative"):
        command = ["explain", "--model", str(trained), "a wonderful, dull film", "--label", label]
        assert main([*command, "--json", "-q"]) == 0
        found[label] = json.loads(said(capsys)[0])["result"]
        assert found[label]["label"] == label
        assert main([*command, "-q"]) == 0
        shown = said(capsys)[0]
        assert f"{found[label]['decision']:+.3f} = intercept" in shown
        assert f"+ speaks for {label}" in shown
    assert found["negative"]["decision"] == -found["positive"]["decision"] != 0
    assert found["negative"]["probability"] == pytest.approx(1 - found["positive"]["probability"])


def test_explain_is_plain_when_not_on_a_terminal(trained: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(b"not great, a dull story\n"))
    assert main(["explain", "--model", str(trained), "-"]) == 0
    out, _ = said(capsys)
    assert "\x1b" not in out
    ex = HardmaxClassifier.load(trained).explain("not great, a dull story\n")
    for leader in ex.leaders:
        assert leader.text in out
    assert ex.prediction == out.split()[0] and f"{ex.decision:+.3f}" in out


def test_explain_a_text_without_known_words_names_the_prior(trained: Path, capsys) -> None:
    for text in ("", "zzzz qqqq"):
        assert main(["explain", "--model", str(trained), text]) == 0
        assert "prior" in said(capsys)[0]


def test_colours_paint_the_words_and_nothing_else(trained: Path, monkeypatch) -> None:
    text = "a wonderful cast, a dull and tedious plot"
    ex = HardmaxClassifier.load(trained).explain(text)
    shown = coloured(ex)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == ex.marked
    styled = re.findall(r"\x1b\[([0-9;]+)m([^\x1b]+)", shown)
    bold = {said for codes, said in styled if "1" in codes.split(";")}
    assert bold == {text[a:b] for passage in ex.passages for a, b in passage.read} != set()

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour(Terminal()) and not wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())


def test_a_review_cannot_drive_the_terminal(trained: Path) -> None:
    assert plain("a\x1b[31mb\x9b1m\u202ec\n\td") == "a\ufffd[31mb\ufffd1m\ufffdc\n\td"
    ex = HardmaxClassifier.load(trained).explain("wonderful \x1b]0;title\x07 film")
    assert "\x1b]" not in coloured(ex) and "\x07" not in coloured(ex)


# --- evaluate ---------------------------------------------------------------------------------


def test_evaluate_shows_the_model_its_faithfulness_and_the_rivals(
    here: Path, trained: Path, capsys
) -> None:
    write_csv(here / "test.csv", datasets.synthetic(40, seed=4, noise=0.3))
    line = ["evaluate", str(trained), "test.csv", "--train", "reviews.csv", "--explained", "10"]
    assert main(line) == 0
    out, _ = said(capsys)
    for word in (
        "accuracy", "calibration error", "leaders per text", "weight on leaders", "alpha",
        "winning leaders with their followers", "within 15 words", "TF-IDF", "NB-SVM",
    ):  # fmt: skip
        assert word in out
    assert main([*line, "--json", "-q"]) == 0
    out, err = said(capsys)
    result = json.loads(out)["result"]
    clf = HardmaxClassifier.load(trained)
    test = datasets.read("test.csv")
    assert result["evaluation"]["accuracy"] == clf.score(test.texts, test.labels)
    assert [r["name"] for r in result["rivals"]] == ["TF-IDF + logistic regression", "NB-SVM"]
    assert err == ""


# --- bad input --------------------------------------------------------------------------------


BAD = [
    ("fit one.csv --out m", "at least two classes"),
    ("fit nolabel.csv --out m", "no column 'label'; it has 'text', 'stars'"),
    ("fit reviews.csv --text-column body --out m", "no column 'body'"),
    ("fit null.jsonl --out m", "line 2: field 'text' is not a string"),
    ("fit short.csv --out m", "line 3: expected 2 fields, got 1"),
    ("fit latin.csv --out m", "not UTF-8"),
    ("fit missing.csv --out m", "no such file"),
    ("fit reviews.csv:train --out m", "only aclImdb has parts"),
    ("fit broken.tar.gz --out m", "not a readable tar archive"),
    ("fit reviews.csv --out reviews.csv", "exists"),
    ("fit reviews.csv --out folder --force", "not a cynosure model"),
    ("fit reviews.csv --ngrams two --out m", "--ngrams"),
    ("fit reviews.csv --ngrams 2,1 --out m", "ngrams"),
    ("fit reviews.csv --method magic --out m", "placed or learned"),
    ("fit reviews.csv --leaders 0 --out m", "budget of at least 1"),
    ("fit reviews.csv --dim 1 --out m", "at least 2 dimensions"),
    ("fit reviews.csv", "--out"),
    ("predict nothing.txt", "no such file"),
    ("predict folder", "a folder"),
    ("predict broken.tar.gz", "an archive"),
    ("predict latin.txt", "line 1: not UTF-8"),
    ("predict reviews.csv --text-column body", "no column 'body'"),
    ("predict reviews.csv --json --jsonl", "choose one"),
    ("predict absent reviews.csv", "no such model"),
    ("predict folder reviews.csv", "no model here"),
    ("predict future reviews.csv", "newer cynosure"),
    ("predict edited reviews.csv", "was changed"),
    ("explain a b c", "quote the text"),
    ("explain text --label sideways", "expected one of neg, pos"),
    ("explain text --html page.txt", ".html"),
    ("evaluate reviews.csv", "does not know 'negative', only neg, pos"),
    ("evaluate model nolabel.csv", "no column 'label'"),
]


@pytest.fixture
def wrong(here: Path, trained: Path) -> Path:
    """A folder full of bad input."""
    Path("one.csv").write_text("text,label\nfine,a\ngood,a\n")
    Path("nolabel.csv").write_text("text,stars\nfine,5\n")
    Path("null.jsonl").write_text('{"text": "a", "label": 1}\n{"text": null, "label": 2}\n')
    Path("short.csv").write_text("text,label\nfine,a\ngood\n")
    Path("latin.csv").write_bytes("text,label\ncaf\xe9,a\n".encode("latin-1"))
    Path("latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    Path("broken.tar.gz").write_bytes(b"\x1f\x8b nothing of the kind")
    Path("folder").mkdir()
    for name in ("model", "future", "edited"):
        shutil.copytree(trained, name)
    header = json.loads(Path("future/model.json").read_text())
    Path("future/model.json").write_text(json.dumps(header | {"version": 99}))
    Path("edited/vocabulary.json").write_bytes(b'["x"]')
    return here


@pytest.mark.parametrize(("line", "complaint"), BAD)
def test_bad_input_is_one_line_and_exit_2(wrong: Path, capsys, line: str, complaint: str) -> None:
    before = sorted(str(p) for p in wrong.rglob("*"))
    assert main([*line.split(), "-q"]) == 2
    out, err = said(capsys)
    assert out == "" and err.count("\n") == 1 and err.startswith("cynosure: error:")
    assert complaint in err
    assert sorted(str(p) for p in wrong.rglob("*")) == before


def test_ten_megabytes_in_one_line(trained: Path, capsys, monkeypatch) -> None:
    text = "a wonderful story and a lovely cast " * 280_000
    monkeypatch.setattr("sys.stdin", Stdin(text.encode() + b"\ndull\n"))
    assert main(["predict", str(trained), "-", "-q"]) == 0
    labels = [line.split("\t")[0] for line in said(capsys)[0].splitlines()]
    assert labels == ["positive", "negative"]


def test_help_is_light() -> None:
    program = (
        "import sys\nfrom cynosure.cli import main\n"
        "codes = [main([c, '--help']) for c in ('fit', 'predict', 'explain', 'evaluate')]\n"
        "print(codes, sorted({'sklearn', 'torch', 'numba', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENV)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0] []", done.stderr


def test_texts_without_evidence_are_said_so(trained: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(trained.parent)
    Path("two.txt").write_text("wonderful film\nxyzzy\n", "utf-8")
    assert main(["predict", str(trained), "two.txt", "--abstain", "unknown", "-q"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("positive\t") and second.startswith("unknown\t")
    assert main(["predict", str(trained), "two.txt", "--jsonl", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "evidence" not in rows[0] and rows[1] == {
        "label": None,
        "score": None,
        "evidence": False,
    }
    assert main(["explain", "--model", str(trained), "xyzzy", "-q"]) == 0
    assert capsys.readouterr().out.startswith("no verdict")
    assert main(["explain", "--model", str(trained), "xyzzy", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["verdict"] is None


def test_one_number_of_the_predicted_label(trained: Path, capsys) -> None:
    """Labels, explanation and page give the same probability, that of the label they name."""
    clf = HardmaxClassifier.load(trained)
    for text in ("a dull, tedious film", "a wonderful, moving film"):
        p, label = clf.predict_proba([text]).max(), clf.predict([text])[0]
        for asked in (None, *clf.classes_.tolist()):
            ex = clf.explain(text, asked)
            assert ex.verdict == label and ex.sure == pytest.approx(p, abs=1e-12)
            assert ex.log_odds == pytest.approx(abs(ex.decision), abs=1e-12)
            assert f"<title>{label} {100 * p:.1f} %, log-odds +" in ex.to_html()
        assert main(["explain", "--model", str(trained), text, "-q"]) == 0
        assert capsys.readouterr().out.startswith(f"{label} {100 * p:.1f} %, log-odds +")


def test_every_text_of_a_file_is_explained(trained: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(trained.parent)
    Path("three.txt").write_text("wonderful film\nxyzzy\na dull story\n", "utf-8")
    assert main(["explain", "--model", str(trained), "--file", "three.txt", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    clf = HardmaxClassifier.load(trained)
    assert rows == clf.explain_all(["wonderful film", "xyzzy", "a dull story"])
    assert main(["explain", "--model", str(trained), "text", "--file", "three.txt", "-q"]) == 2
    assert main(["explain", "-q"]) == 2


def test_reading_a_model_needs_no_scikit_learn() -> None:
    program = (
        "import sys\nfrom cynosure.cli import main\n"
        "assert main(['explain', 'not bad at all', '-q']) == 0\n"
        "assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
