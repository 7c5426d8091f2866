"""What people feel: nothing drives their terminal, nobody waits in the dark, results are short."""

from __future__ import annotations

import ast
import errno
import io
import json
import re
import socket
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.cli import main
from cynosure.cli.app import COMMANDS
from cynosure.cli.environment import missing_extra
from cynosure.cli.output import Voice
from cynosure.cli.terminal import field, plain, show_json
from cynosure.drawing.report import Table

CLI = Path(__file__).resolve().parent.parent / "src" / "cynosure" / "cli"
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


# --- streams that are closed, full, or lack characters -------------------------------------------


class Full(io.StringIO):
    """A log on a full disk, or a terminal that is gone."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_stream_that_is_closed_is_an_empty_one(monkeypatch, tmp_path, capsys) -> None:
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, None)
    assert main(["limit", "golden:G1", "--out", str(tmp_path / "limits.csv")]) == 0
    assert (tmp_path / "limits.csv").read_text().count("\n") == 9
    assert main(["limit", "golden:G1"]) == 2, "the answer is lost"
    assert "standard output is closed" in capsys.readouterr().err
    assert main(["limit", "-"]) == 2
    assert "stdin: the file is empty" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["limit", "-"]) == 2


def test_status_that_cannot_be_written_ends_no_run(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    assert main(["limit", "golden:G1"]) == 0
    assert capsys.readouterr().out.count("\n") == 9
    assert main(["limit", "no such file"]) == 2


def test_signs_that_stdout_lacks_lose_no_result(monkeypatch) -> None:
    def said(*words: str) -> str:
        written = io.BytesIO()
        with io.TextIOWrapper(written, encoding="cp1252") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            assert main(list(words)) == 0
            return written.getvalue().decode("cp1252")

    assert r"K_{k+1} \u2282 K_k" in said("check", "golden:G1", "-q")
    statement = json.loads(said("check", "golden:G1", "--json", "-q"))["result"]["checks"][0]
    assert "K_{k+1} ⊂ K_k" in statement["statement"]
    heart = json.loads(said("explain", "good 😀", "--json", "-q"))["result"]["text"]
    assert heart == "good 😀"


# --- escape sequences ----------------------------------------------------------------------------


def prints(source: str) -> list[int]:
    """Lines that write on stdout by themselves."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            to_stderr = any("stderr" in ast.unparse(k.value) for k in node.keywords)
            if (called == "print" and not to_stderr) or called == "sys.stdout.write":
                found.append(node.lineno)
    return found


def test_one_file_of_the_command_line_writes_on_stdout() -> None:
    assert {p.name for p in CLI.glob("*.py") if prints(p.read_text("utf-8"))} == {"terminal.py"}
    assert prints("print(1)\nsys.stdout.write('x')\nprint(2, file=sys.stderr)") == [1, 2]


@pytest.fixture(scope="module")
def evil(tmp_path_factory) -> Path:
    """A model whose labels and words carry escape sequences."""
    folder = tmp_path_factory.mktemp("models") / "model"
    texts = [f"good\u202e{i % 3} fine" if i % 2 else f"bad{i % 3} poor" for i in range(40)]
    labels = [f"up{EVIL}" if i % 2 else "down\tor\nout" for i in range(40)]
    HardmaxClassifier(min_df=1).fit(texts, labels).save(folder)
    return folder


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize("command", ["explain", "predict", "evaluate"])
def test_labels_and_words_cannot_drive_the_terminal(
    evil: Path, tmp_path: Path, command: str, flags: list[str], monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "t.jsonl"
    rows = [{"text": f"fine good\u202e1 {EVIL}", "label": f"up{EVIL}"}] * 3
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"fine good\u202e1 {EVIL}"
    given = [text, "--model", str(evil)] if command == "explain" else [str(evil), str(table)]
    assert main([command, *given, *flags]) == 0
    out, err = capsys.readouterr()
    assert not OBEYED.search(out + err)
    if flags and command == "explain":  # escaped, not lost
        assert json.loads(out)["result"]["text"] == text
    if command == "predict" and not flags:
        assert len(out.splitlines()) == 3 and all(row.count("\t") == 1 for row in out.splitlines())


def test_file_names_cannot_drive_the_terminal(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"to{EVIL}kens"
    assert main(["limit", f"{name}.csv"]) == 2
    Path(f"{name}.csv").write_text("1,2\n3,4\n")
    assert main(["limit", f"{name}.csv", "--out", f"{name}.json"]) == 0
    assert main(["limit", f"{name}.csv", "--json"]) == 0
    assert main(["simulate", f"{name}.csv", "--wrong" + EVIL]) == 2
    assert main([f"co{EVIL}mmand"]) == 2
    out, err = capsys.readouterr()
    assert "kens" in err and not OBEYED.search(out + err)


def test_what_is_cleaned_and_what_stays(capsys) -> None:
    assert plain("a\tb\nc é 見 👩\u200d🔬 می\u200cخواهم") == "a\tb\nc é 見 👩\u200d🔬 می\u200cخواهم"
    assert not OBEYED.search(plain(EVIL)) and len(plain(EVIL)) == len(EVIL)
    assert plain("\udc80") == "\ufffd" and field("a\tb\r\nc ") == "a b\ufffd c"
    show_json(json.dumps([EVIL, "\udc80", "é"], ensure_ascii=False))
    out = capsys.readouterr().out
    assert json.loads(out) == [EVIL, "\udc80", "é"] and "é" in out and not OBEYED.search(out)


# --- nobody waits in the dark --------------------------------------------------------------------


def until(said, word: str) -> str:
    """What was said once `word` is in it; gives up after a minute."""
    text = ""
    for _ in range(6000):
        text += said()
        if word in text:
            return text
        time.sleep(0.01)
    raise AssertionError(f"{word!r} never came: {text!r}")


def test_slow_work_says_so_and_quick_work_does_not(monkeypatch, capsys) -> None:
    heard = lambda: capsys.readouterr().err  # noqa: E731
    with Voice().working("thinking") as step:
        step(0.5, "still thinking")
    assert heard() == ""
    monkeypatch.setattr("cynosure.cli.output.PATIENCE", 0.0)
    monkeypatch.setattr("cynosure.cli.output.compiling", lambda: False)
    with Voice().working("thinking") as step:
        assert until(heard, "...") == "thinking ...\n"
        step(0.5, "still thinking")
        assert heard() == "still thinking ...\n"
    monkeypatch.setattr("cynosure.cli.output.compiling", lambda: True)
    with Voice().bar(3, " layers", "walking"):
        assert "walking; compiling kernels, once" in until(heard, "...")
    with Voice(quiet=True).working("thinking") as step:
        step(0.5, "still thinking")
    assert heard() == ""


def test_a_small_answer_stores_no_kernel_and_a_large_one_where_it_was_asked(tmp_path: Path) -> None:
    import os
    import subprocess

    program = """
import numpy as np, pathlib, sys
from cynosure.engine.kernels import classes
found = lambda: any(pathlib.Path(sys.argv[1]).rglob("*.nbi"))
classes(np.zeros((3, 2)))
print(found(), "numba" in sys.modules)
classes(np.zeros((10**6, 2)))
print(found())
"""
    env = {**os.environ, "PYTHONPATH": str(CLI.parent.parent), "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["False", "False", "True"], done.stderr


def test_what_is_asked_of_the_hub_is_said_first_and_not_asked_six_times(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    import huggingface_hub.constants as hub

    pytest.importorskip("transformers")
    asked: list[str] = []

    def nobody(host: str, *rest: object, **options: object) -> None:
        asked.append(capsys.readouterr().err)
        raise socket.gaierror("no such host")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    assert main(["inspect", "heads", "minilm"]) == 2
    err = capsys.readouterr().err
    assert len(asked) <= 2 and asked[0].startswith("no folder minilm here: looking for minilm on")
    assert "did not answer" in err and "no such host" in err and err.count("\n") == 1
    asked.clear()
    assert main(["inspect", "heads", "./minilm"]) == 2
    assert not asked and "no such folder" in capsys.readouterr().err


def test_a_folder_is_taken_without_a_dot(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: pytest.fail("network"))
    (tmp_path / "minilm").mkdir()
    assert main(["inspect", "heads", "minilm"]) == 2
    err = capsys.readouterr().err
    assert "minilm: no config.json" in err and "hub" not in err


# --- what is missing -----------------------------------------------------------------------------


def test_a_missing_extra_is_exit_2_and_the_line_to_type(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "model").mkdir()
    assert main(["inspect", "heads", "model"]) == 2
    assert 'pip install "cynosure[models]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("torch", "torch"),
        ("torch.nn", "torch"),
        ("transformers", "models"),
        ("cvxpy", "control"),
        ("starlette", "web"),
        ("xarray", "scale"),
        ("pyarrow", "scale"),
        ("anywidget", "notebook"),
    ],
)
def test_every_extra_has_its_line(module: str, extra: str) -> None:
    assert f'pip install "cynosure[{extra}]"' in missing_extra(ImportError("no", name=module))
    assert missing_extra(ImportError("no", name="numpy")) == ""


# --- results show themselves ---------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def results() -> dict[str, object]:
    tr = cy.simulate(cy.PureAttention(), cy.configurations.gaussian(50, 3), layers=5)
    named = cy.Trajectory(
        tr.z, tr.t, tr.status, tr.dynamics, words=("<script>",) * 50, history=tr.history
    )
    batch = cy.simulate(cy.PureAttention(), np.ones((2, 4, 3)), layers=2)
    checks = cy.check(tr, only=["B1", "B12"])
    return {
        "trajectory": named, "limit": cy.limit(cy.PureAttention(), tr.z[0]),
        "roles": cy.roles(named), "batch": cy.roles(batch), "holds": checks[0],
        "idle": checks[1], "explanation": cy.load_pretrained().explain("A <b>fine</b> film. " * 99),
    }  # fmt: skip


def test_results_are_short_in_a_console_and_safe_in_a_notebook() -> None:
    for name, result in results().items():
        assert len(repr(result)) < 160, name
        page = Tags()
        html = result._repr_html_()  # type: ignore[attr-defined]
        page.feed(html)
        assert "script" not in page.seen and len(page.text) < 3000, name
        if name != "explanation":
            assert page.seen[0] == "table", name


def test_a_result_says_what_it_is() -> None:
    of = results()
    assert repr(of["roles"]).startswith("Roles(n=50, ") and "batch (2,)" in repr(of["batch"])
    assert repr(of["holds"]).startswith("Check(B1 holds, margin ")
    assert repr(of["idle"]) == "Check(B12 does not apply)"
    explained = of["explanation"]
    assert isinstance(explained, cy.classifier.Explanation)
    assert repr(explained).startswith(f"Explanation({explained.prediction} ")
    assert f"log-odds {explained.decision:+.3f}, {len(explained.leaders)}" in repr(explained)
    assert "40 more" in of["limit"]._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;script&gt;" in of["roles"]._repr_html_()  # type: ignore[attr-defined]


# --- what was read -------------------------------------------------------------------------------


def test_the_columns_taken_as_coordinates_are_said(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x,y,class\n1,2,0\n3,4,1\n")
    for command in ("simulate", "limit", "check"):
        assert main([command, "t.csv"]) == 0
        err = capsys.readouterr().err
        assert "t.csv: 2 tokens, d = 3; coordinates are the columns x, y, class" in err
    Path("bare.csv").write_text("1,2\n3,4\n")
    assert main(["limit", "bare.csv"]) == 0
    assert "columns" not in capsys.readouterr().err


def test_a_column_of_words_is_named(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x,y,species\n1,2,cat\n3,4,dog\n")
    assert main(["limit", "t.csv"]) == 2
    err = capsys.readouterr().err
    assert "column 3: expected a number; got 'cat' under 'species'; if it is a label" in err


def test_tokens_in_utf16_or_a_workbook_are_recognised(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_bytes("x;y\r\n1;2\r\n3;4\r\n".encode("utf-16"))
    assert main(["limit", "t.csv"]) == 2
    assert "t.csv: written in UTF-16; save it as UTF-8 CSV" in capsys.readouterr().err
    for name in ("t.xlsx", "book.csv"):
        Path(name).write_bytes(b"PK\x03\x04" + bytes(range(60)))
        assert main(["limit", name]) == 2
        assert "Excel workbook" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_lines_of_texts_in_utf16_are_read(evil: Path, tmp_path: Path, code: str, capsys) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("fine one\r\n\r\npoor one \u0a0a\n".encode(code))
    assert main(["predict", str(evil), str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3 and out[0].startswith("up") and out[2].startswith("down or out")
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04")
    assert main(["predict", str(evil), str(tmp_path / "t.xlsx")]) == 2
    assert "Excel workbook" in capsys.readouterr().err


def test_the_last_column_of_a_table_is_folded_to_the_width_asked_for() -> None:
    rows = (("a", "one two three four five six"), ("bcd", "short"), ("e", ""))
    table = Table("", ("name", "what"), rows)
    lines = table.to_text(26).split("\n")
    assert lines[:3] == ["name  what", "a     one two three four", "      five six"]
    assert lines[3:] == ["bcd   short", "e"]
    assert table.to_text().split("\n")[1] == "a     one two three four five six"
    numbers = Table("", ("n", "value"), ((1, 2.5),))
    assert numbers.to_text(3) == numbers.to_text()


LONG = "awful boring dull plot brilliant wonderful dreadful terrible great script acting worst fun"


@pytest.mark.parametrize(
    "words",
    [[], *([c.__name__] for c in COMMANDS), ["run", "--list"], ["limit", "gaussian:n=300,d=2"]]
    + [["explain", LONG], ["explain", "Neither good nor bad. " + LONG]],
    ids=" ".join,
)
def test_what_is_said_fits_80_columns(words: list[str], capsys) -> None:
    assert main(words if len(words) > 1 else [*words, "--help"]) == 0
    longest = max(capsys.readouterr().out.split("\n"), key=len)
    assert len(longest) <= 80, longest
