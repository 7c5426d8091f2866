"""The command line: results on stdout, one line and exit 2 for bad input, nothing half-written."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import cynosure as cy
from cynosure import cli, configurations, theorems
from cynosure.catalogue import available
from cynosure.cli import main
from test_report import Page

SRC = Path(__file__).resolve().parent.parent / "src"
ENV = {**os.environ, "PYTHONPATH": str(SRC)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """An empty folder to work in, with tokens.csv and some matrices."""
    monkeypatch.chdir(tmp_path)
    np.savetxt("tokens.csv", configurations.golden("G2"), delimiter=",")
    Path("A.csv").write_text("2,1\n1,2\n")
    Path("skew.csv").write_text("1,2\n0,1\n")
    Path("A3.csv").write_text("1,0,0\n0,1,0\n0,0,1\n")
    Path("flat.csv").write_text("1,0,0\n0,1,0\n")
    return tmp_path


def left(folder: Path) -> set[str]:
    """What a command added, hidden files included."""
    known = {"tokens.csv", "A.csv", "skew.csv", "A3.csv", "flat.csv"}
    return {str(p.relative_to(folder)) for p in folder.rglob("*")} - known


# --- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [["--dynamics", "attention_flow"], ["--attention", "softmax"]])
def test_a_deadline_ends_a_run_with_what_it_has(here: Path, capsys, monkeypatch, how) -> None:
    now = iter(range(1000))
    monkeypatch.setattr("cynosure._deadline.monotonic", lambda: float(next(now)))
    until = ["--time", "9"] if "--dynamics" in how else ["--layers", "900"]
    args = ["simulate", "tokens.csv", *how, *until, "--deadline", "40", "--out", "r.npz"]
    assert main(args) == 0
    assert "deadline passed" in capsys.readouterr().err
    run = cy.load("r.npz")
    assert run.status.code == "deadline" and 0 < run.t[-1] < float(until[1])


@pytest.mark.parametrize("command", ["simulate", "limit"])
def test_a_deadline_must_be_a_time(here: Path, capsys, command) -> None:
    assert main([command, "tokens.csv", "--deadline", "-1"]) == 2
    assert "deadline: expected a positive number of seconds" in capsys.readouterr().err


def test_simulate_prints_the_last_layer_and_writes_what_was_asked(here: Path, capsys) -> None:
    files = ["--out", "r.npz", "--plot", "f.png", "--movie", "f.gif"]
    assert main(["simulate", "tokens.csv", "--alpha", "0.5", "--layers", "3", *files]) == 0
    out, err = capsys.readouterr()
    head, *rows = [line.split() for line in out.splitlines()]
    assert head[:2] == ["token", "leads"] and len(rows) == 6
    assert [row[0] for row in rows] == list("012345")
    tr = cy.simulate(cy.PureAttention(alpha=0.5), configurations.golden("G2"), layers=3)
    assert float(rows[5][-2]) == pytest.approx(tr.z[-1, 5, 0], rel=1e-3)
    assert np.array_equal(cy.load("r.npz").z, tr.z)
    assert Path("f.png").read_bytes()[:4] == b"\x89PNG" and Path("f.gif").read_bytes()[:3] == b"GIF"
    assert left(here) == {"r.npz", "f.png", "f.gif"}
    assert "settled" in err and "wrote r.npz" in err


def test_simulate_json_is_one_document_with_its_origin(here: Path, capsys) -> None:
    assert main(["simulate", "tokens.csv", "--layers", "2", "--json", "-q", "--A", "A.csv"]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert err == "" and data["version"] == cy.__version__
    assert data["command"] == "cynosure simulate tokens.csv --layers 2 --json -q --A A.csv"
    assert len(data["inputs"]["tokens_sha256"]) == len(data["inputs"]["A_sha256"]) == 64
    A = np.array([[2.0, 1.0], [1.0, 2.0]])
    tr = cy.simulate(cy.PureAttention(cy.Hardmax(A), 0.5), configurations.golden("G2"), layers=2)
    assert data["result"]["z"] == tr.z[-1].tolist()
    assert data["result"]["born"] == cy.roles(tr).born.tolist()
    assert data["result"]["layer"] == 2 and data["result"]["files"] == []


def test_the_hash_is_of_the_numbers_not_of_the_file(here: Path, capsys) -> None:
    np.save("tokens.npy", configurations.golden("G2"))
    hashes = set()
    for source in ("tokens.csv", "tokens.npy", "golden:G2"):
        main(["limit", source, "--json"])
        hashes.add(json.loads(capsys.readouterr().out)["inputs"]["tokens_sha256"])
    main(["limit", "golden:G3", "--json"])
    assert len(hashes) == 1
    assert json.loads(capsys.readouterr().out)["inputs"]["tokens_sha256"] not in hashes


def test_limit_exact_starts_from_the_rationals_of_a_golden_case(here: Path, capsys) -> None:
    assert main(["limit", "golden:G1", "--alpha", "1/2", "--exact", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["exact_points"][1] == ["-1/18", "5/36"] and result["alpha"] == "1/2"
    assert result["certified"] is True and result["leaders"] == [0, 1, 2]
    assert main(["limit", "golden:G1", "--alpha", "1/2", "--exact"]) == 0
    assert "-1/18    5/36" in capsys.readouterr().out


def test_alpha_with_a_slash_is_the_rational_and_without_it_the_float(here: Path, capsys) -> None:
    for text, expected in (("1/10", "1/10"), ("0.1", "3602879701896397/36028797018963968")):
        assert main(["limit", "tokens.csv", "--alpha", text, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["result"]["alpha"] == expected


def test_limit_writes_csv_and_json(here: Path, capsys) -> None:
    assert main(["limit", "tokens.csv", "--out", "l.csv"]) == 0
    assert main(["limit", "tokens.csv", "--out", "l.json", "--json"]) == 0
    assert Path("l.json").read_text() == capsys.readouterr().out.splitlines()[-1]
    head, *rows = Path("l.csv").read_text().splitlines()
    assert head.startswith("token,rule,settled at") and len(rows) == 6
    assert rows[5].split(",")[-2:] == ["1.0", "0.0"]


def test_limit_says_the_rule_in_words_and_files_keep_its_code(here: Path, capsys) -> None:
    assert main(["limit", "tokens.csv", "--out", "l.csv"]) == 0
    shown = capsys.readouterr().out
    assert "leads" in shown and "tied, moves to a fixed mean" in shown
    assert main(["limit", "tokens.csv", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    expected = cy.limit(cy.PureAttention(alpha=0.5), configurations.golden("G2")).rule.tolist()
    assert result["rule"] == expected and "G" in expected
    assert result["rule_in_words"][expected.index("G")] == "tied, moves to a fixed mean"
    codes = [line.split(",")[1] for line in Path("l.csv").read_text().splitlines()[1:]]
    assert codes == expected


# --- one page ------------------------------------------------------------------------------------


def the_page(path: str) -> Page:
    """Well formed, and needing nothing but itself."""
    page = Page(Path(path).read_text("utf-8"))
    assert page.open == [] and "script" not in page.tags
    assert all(source.startswith("data:image/") for source in page.sources)
    return page


def test_simulate_limit_and_check_make_a_page_of_the_same_numbers(here: Path, capsys) -> None:
    pages = {}
    for command in ("simulate", "limit", "check"):
        name = f"{command}.html"
        assert main([command, "tokens.csv", "--alpha", "1/2", "--report", name]) == 0
        assert f"wrote {name}" in capsys.readouterr().err
        text = pages[command] = the_page(name).text
        assert f"cynosure {command} tokens.csv --alpha 1/2 --report {name}" in text
        assert "tokens.csv: 6 tokens of dimension 2" in text
    pages = {
        command: the_page(f"{command}.html").text for command in ("simulate", "limit", "check")
    }
    main(["limit", "tokens.csv", "--alpha", "1/2", "--json"])
    document = json.loads(capsys.readouterr().out)
    main(["check", "tokens.csv", "--alpha", "1/2", "--json"])
    checks = json.loads(capsys.readouterr().out)["result"]["checks"]
    apply = sum(check["applies"] for check in checks)
    for text in pages.values():
        assert document["inputs"]["tokens_sha256"] in text
        assert f"{len(document['result']['leaders'])} leaders" in text
        assert f"Checks made: {len(checks)}; applicable: {apply}; of these holding: {apply}" in text
        for i, (x, y) in enumerate(document["result"]["points"]):
            assert f"({x:.4g}, {y:.4g})" in text, i
        for rule in document["result"]["rule_in_words"]:
            assert rule in text
    assert left(here) == {"simulate.html", "limit.html", "check.html"}


def test_a_page_is_not_overwritten_and_has_to_be_html(here: Path, capsys) -> None:
    Path("page.html").write_text("precious")
    for command in ("simulate", "limit", "check"):
        args = [command, "tokens.csv", "--report"]
        assert main([*args, "page.html"]) == 2
        assert "page.html exists (use --force" in capsys.readouterr().err
        assert main([*args, "page.pdf"]) == 2
        assert "page.pdf: expected a name ending in .html" in capsys.readouterr().err
        assert Path("page.html").read_text() == "precious"
    assert main(["check", "tokens.csv", "--report", "page.html", "--force"]) == 0
    assert "Theorem checks" in the_page("page.html").text


def test_a_name_cannot_bring_a_script_into_the_page(here: Path, capsys) -> None:
    name = "<script>alert(1)<script>.csv"
    Path(name).write_text("1,0\n0,1\n0.5,0.2\n")
    assert main(["simulate", name, "--layers", "3", "--report", "page.html"]) == 0
    assert name in the_page("page.html").text


def test_a_saved_run_and_a_failed_one_have_a_page(here: Path, capsys) -> None:
    grow = ["--dynamics", "unnormalized_a", "--alpha", "1", "--layers", "2000"]
    args = ["simulate", "tokens.csv", *grow, "--save-every", "100"]
    assert main([*args, "--report", "failed.html", "--out", "run.npz"]) == 1
    assert "The run failed" in the_page("failed.html").text
    assert main(["check", "run.npz", "--report", "saved.html"]) == 0
    assert "UnnormalizedAttention" in the_page("saved.html").text
    assert main(["simulate", "tokens.csv", "--layers", "4", "--out", "good.npz"]) == 0
    tr = cy.load("good.npz")
    z = tr.z.copy()
    z[2, 0] *= 1.5  # a corner of the square leaves the hull
    replace(tr, z=z).save("bad.npz")
    assert main(["check", "bad.npz", "--report", "bad.html"]) == 1
    assert "FAILING" in the_page("bad.html").text


def test_an_undecided_limit_says_so_and_is_no_failure(here: Path, capsys) -> None:
    assert main(["limit", "golden:G4", "--alpha", "1/10", "--max-layers", "0"]) == 0
    out, err = capsys.readouterr()
    assert "undecided" in out and "undecided: " in err and "--max-layers" in err


def statements(out: str) -> list[str]:
    """The labels of the statements shown; what belongs to one is indented below it."""
    return [line.split()[0] for line in out.splitlines() if line[0] not in " ."]


def test_check_shows_what_applies_and_counts_the_rest(here: Path, capsys) -> None:
    tr = cy.simulate(cy.PureAttention(alpha=0.5), configurations.golden("G2"), layers=5)
    apply = [c.theorem for c in cy.check(tr) if c.applies]
    assert main(["check", "tokens.csv", "--layers", "5"]) == 0
    out = capsys.readouterr().out
    assert statements(out) == apply and "[fails" not in out
    rest = len(theorems.THEOREMS) - len(apply)
    assert out.splitlines()[-1] == f"... {rest} more do not apply (--all says why)"
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert all(theorem.statement in words for theorem in cy.check(tr, only=apply))


def test_long_rationals_are_abbreviated_unless_asked_for(here: Path, capsys) -> None:
    line = ["limit", "golden:G4", "--alpha", "1/10", "--exact"]
    exact = cy.limit(cy.PureAttention(alpha="1/10"), configurations.golden_exact("G4"), exact=True)
    assert exact.exact_points is not None
    long, near = str(exact.exact_points[4][0]), f"≈{exact.points[4][0]:.10g}"
    assert main(line) == 0
    out, err = capsys.readouterr()
    assert near in out and long not in out and f"{len(long)} characters; --full" in err
    assert main([*line, "--full", "--out", "l.csv"]) == 0
    out, err = capsys.readouterr()
    assert long in out and "≈" not in out + err
    assert long in Path("l.csv").read_text("utf-8")
    assert main([*line, "--out", "again.csv"]) == 0
    assert Path("again.csv").read_text("utf-8") == Path("l.csv").read_text("utf-8")


def test_a_terminal_is_never_wider_than_it_is(here: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    for line in (
        ["limit", "tokens.csv"], ["limit", "gaussian:n=30,d=9"],
        ["simulate", "gaussian:n=10000,d=12", "--layers", "1"],
    ):  # fmt: skip
        assert main(line) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80 and out.startswith("token")
        assert ("columns left out" in out) == ("d=" in line[1] or "gap" not in out)
    assert "9960 more" in out and "z11" in out and "--json" in out


def test_check_says_which_hypotheses_fail(here: Path, capsys) -> None:
    assert main(["check", "tokens.csv", "--layers", "5", "--all"]) == 0
    out, err = capsys.readouterr()
    assert statements(out) == list(theorems.THEOREMS) and "does not apply" in out
    assert f"of {len(theorems.THEOREMS)} statements apply" in err
    assert max(map(len, out.splitlines())) <= 80
    assert main(["check", "tokens.csv", "--A", "skew.csv", "--only", "b1,B3", "-v"]) == 0
    out, err = capsys.readouterr()
    assert "B1  holds" in out and "[fails: A symmetric" in out
    assert "A symmetric (largest |A - A^T|): NO, 2" in err and "witness" in err


def test_check_reads_a_saved_run_and_fails_on_a_sabotaged_one(here: Path, capsys) -> None:
    main(["simulate", "tokens.csv", "--layers", "4", "--out", "run.npz"])
    assert main(["check", "run.npz"]) == 0
    tr = cy.load("run.npz")
    z = tr.z.copy()
    z[2, 0] *= 1.5  # a corner of the square leaves the hull
    replace(tr, z=z).save("bad.npz")
    capsys.readouterr()
    assert main(["check", "bad.npz"]) == 1
    assert "FAILS" in capsys.readouterr().out
    assert main(["check", "bad.npz", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["result"]["holds"] is False
    assert main(["check", "run.npz", "--alpha", "1"]) == 2


def test_run_leaves_report_tables_and_figures(here: Path, capsys) -> None:
    sets = ["--set", "seed=5", "--set", "A=2,0;0,1"]
    assert main(["run", "figure1", "--quick", "--out", "f1", *sets]) == 0
    assert capsys.readouterr().out.strip() == str(Path("f1/report.html"))
    data = json.loads(Path("f1/report.json").read_text())
    assert data["params"]["seed"] == 5 and data["params"]["A"] == [[2.0, 0.0], [0.0, 1.0]]
    assert data["command"].startswith("cynosure run figure1") and "seed=5" in data["command"]
    kinds = {p.suffix for p in Path("f1/data").iterdir()}
    assert kinds == {".csv", ".png", ".svg"}
    assert main(["run", "figure1", "--out", "f1"]) == 2
    capsys.readouterr()
    assert main(["run", "figure1", "--out", "f1", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("f1/report.json").read_text())


def test_parameters_take_the_type_they_have() -> None:
    from cynosure.cli.inputs import settings
    from studies.hardmax import finite_depth

    given = ["laws=gaussian", "d=2,3", "alpha=1,0.5", "embeddings=12.csv"]
    assert settings(finite_depth.Params(), given) == {
        "laws": ("gaussian",), "d": (2, 3), "alpha": (1.0, 0.5), "embeddings": "12.csv",
    }  # fmt: skip


def test_run_lists_the_folder(capsys) -> None:
    assert main(["run", "--list"]) == 0
    out = capsys.readouterr().out
    for name, module in available().items():
        assert name in out and module.TITLE in " ".join(out.split())


def test_a_failed_check_in_a_report_is_exit_1(here: Path, capsys, monkeypatch) -> None:
    from cynosure.figures import figure1
    from test_report import a_check

    honest = figure1.run
    bad = {"case": (a_check("B9", True, False),)}
    monkeypatch.setattr(figure1, "run", lambda *a: replace(honest(*a), checks=bad))
    assert main(["run", "figure1"]) == 1
    assert "FAILED B9 on case" in capsys.readouterr().err


def test_overflow_is_a_failed_run_that_says_why(here: Path, capsys) -> None:
    args = [
        "simulate",
        "tokens.csv",
        "--dynamics",
        "unnormalized_a",
        "--alpha",
        "1",
        "--save-every",
        "100",
    ]
    assert main([*args, "--layers", "500"]) == 0
    assert main([*args, "--layers", "2000"]) == 1
    assert "overflow: tokens grow like (1 + alpha)^k" in capsys.readouterr().err


TURNS = {"scheduled", "scheduled_flow"}  # given by naming several dynamics


@pytest.mark.parametrize("name", sorted(set(cy.dynamics.DYNAMICS) - TURNS))
def test_every_dynamics_runs_is_saved_and_checked(name: str, here: Path, capsys) -> None:
    clock = (
        ["--time", "0.4"]
        if issubclass(cy.dynamics.DYNAMICS[name], cy.dynamics.Flow)
        else ["--layers", "2"]
    )
    args = ["simulate", "tokens.csv", "--dynamics", name, *clock]
    assert main([*args, "--json", "--out", "run.npz"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    tr = cy.load("run.npz")
    assert (
        type(tr.dynamics) is cy.dynamics.DYNAMICS[name]
        and result["dynamics"] == type(tr.dynamics).__name__
    )
    assert result["z"] == tr.z[-1].tolist() and {"limit", "leaders"} & set(result)
    assert main(["check", "run.npz"]) == 0
    assert main(args) == 0  # and a table
    head = capsys.readouterr().out.splitlines()[-7]
    assert head.split()[:2] in (["token", "cluster"], ["token", "leads"])


def test_the_help_names_every_model(capsys) -> None:
    """The text is written by hand, since help must not import NumPy."""
    assert main(["simulate", "--help"]) == 0
    words = set(re.findall(r"\w+", capsys.readouterr().out))
    assert {
        *cy.dynamics.DYNAMICS,
        *cy.attention.ATTENTIONS,
        *cy.simulation.STEPPERS,
    } - TURNS <= words


SAME = {
    "--attention rotary:attention=softmax,base=20 --A A.csv --beta 3 --layers 3 --alpha 1": (
        lambda A: cy.PureAttention(cy.attention.Rotary(cy.Softmax(3.0, A), 20.0), 1)
    ),
    "--attention rotary:base=20 --causal --layers 3 --alpha 1": (
        lambda A: cy.PureAttention(cy.attention.Causal(cy.attention.Rotary(cy.Hardmax(), 20.0)), 1)
    ),
    "--dynamics rescaled --V A.csv --beta 2 --time 0.5": (
        lambda A: cy.dynamics.RescaledFlow(Q=2 * np.eye(2), V=A)
    ),
    "--dynamics leading --Q A.csv --K skew.csv --time 0.5": (
        lambda A: cy.dynamics.LeadingFlow(Q=A, K=[[1.0, 2.0], [0.0, 1.0]])
    ),
    "--dynamics euclidean --A A.csv --time 0.5": lambda A: cy.dynamics.EuclideanFlow(Q=A),
    "--dynamics sphere --beta 3 --A A.csv --causal --time 0.5": (
        lambda A: cy.SphereFlow(cy.attention.Causal(cy.Softmax(3.0, A)))
    ),
    "--dynamics unnormalized_sphere --beta 0.5 --V A.csv --time 0.5": (
        lambda A: cy.dynamics.UnnormalizedSphereFlow(0.5, V=A)
    ),
    "--dynamics attention_flow --attention localmax:sensitivity=0.3 --time 0.5": (
        lambda A: cy.dynamics.AttentionFlow(cy.attention.Localmax(0.3))
    ),
    "--dynamics value --V A.csv --layers 3": lambda A: cy.dynamics.ValueAttention(V=A),
    "--dynamics noisy:sigma=0.3,seed=2,dt=0.1 --layers 3": (
        lambda A: cy.dynamics.NoisySphere(sigma=0.3, seed=2, dt=0.1)
    ),
    "--dynamics jump:g=0.25,seed=3 --beta 2 --layers 3": (
        lambda A: cy.dynamics.JumpChain(cy.Softmax(2.0), 0.25, 3)
    ),
    "--dynamics pure:alpha=1/2 --dynamics pure:alpha=2 --attention softmax --layers 3": lambda A: (
        cy.dynamics.Scheduled(
            [cy.PureAttention(cy.Softmax(), "1/2"), cy.PureAttention(cy.Softmax(), 2.0)]
        )
    ),
    "--dynamics rescaled --dynamics rescaled:V=A.csv --span 0.2 --time 0.5": lambda A: (
        cy.dynamics.ScheduledFlow([cy.dynamics.RescaledFlow(), cy.dynamics.RescaledFlow(V=A)], 0.2)
    ),
    "--attention softmax:beta=2,V=A.csv --attention hardmax:A=A.csv --sum-heads --layers 3": (
        lambda A: cy.PureAttention(
            cy.attention.Heads([cy.Softmax(2.0), cy.Hardmax(A)], [A, None], average=False), 0.5
        )
    ),
    "--attention sinkhorn:iterations=7 --beta 2 --alpha 1/3 --layers 3": (
        lambda A: cy.PureAttention(cy.attention.Sinkhorn(2.0, iterations=7), "1/3")
    ),
}


@pytest.mark.parametrize("flags", SAME)
def test_flags_build_the_dynamics_they_name(flags: str, here: Path, capsys) -> None:
    assert main(["simulate", "tokens.csv", "--out", "run.npz", *flags.split()]) == 0
    dynamics = SAME[flags](np.array([[2.0, 1.0], [1.0, 2.0]]))
    clock = {"time": 0.5} if isinstance(dynamics, cy.dynamics.Flow) else {"layers": 3}
    expected = cy.simulate(dynamics, configurations.golden("G2"), **clock)
    np.testing.assert_array_equal(cy.load("run.npz").z, expected.z)


def test_a_flow_is_stepped_drawn_filmed_and_named(here: Path, capsys) -> None:
    flow = ["--dynamics", "rescaled", "--time", "30", "--stepper", "rk4:dt=0.5"]
    files = ["--plot", "f.png", "--movie", "f.gif", "--out", "r.npz"]
    assert main(["simulate", "gaussian:n=9", *flow, *files, "--save-every", "20", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)["result"]
    assert result["stepper"] == "RK4(dt=0.5)" and result["time"] == 30
    assert result["limit"]["kind"] == "polytope" and "limit: polytope: " in err
    assert cy.load("r.npz").stepper == cy.simulation.RK4(0.5)
    assert Path("f.png").read_bytes()[:4] == b"\x89PNG" and Path("f.gif").read_bytes()[:3] == b"GIF"


@pytest.mark.parametrize(
    "spec", ["gaussian:n=1,d=3", "gaussian:n=5,d=1,seed=2", "figure2:3", "rotated_square", "grid"]
)
def test_named_configurations_and_small_cases(spec: str, here: Path, capsys) -> None:
    assert main(["simulate", spec, "--layers", "2", "--plot", "f.svg"]) == 0
    assert main(["limit", spec, "--json"]) == 0
    name, _, options = spec.partition(":")
    given = json.loads(capsys.readouterr().out.splitlines()[-1])["result"]["points"]
    parts = dict(p.split("=") for p in options.split(",") if "=" in p)
    z = configurations.CONFIGURATIONS[name](
        *([3] if spec == "figure2:3" else []), **{k: int(v) for k, v in parts.items()}
    )
    assert np.shape(given) == z.shape


def test_zero_layers_and_one_token(here: Path, capsys) -> None:
    Path("one.csv").write_text("0.25\n")
    assert main(["simulate", "one.csv", "--layers", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["z"] == [[0.25]]
    assert main(["check", "one.csv"]) == 0


def test_stdin_is_a_csv(here: Path, monkeypatch, capsys) -> None:
    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    give("x,y\n1,0\n0,1\n")
    assert main(["limit", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["points"] == [[1, 0], [0, 1]]
    give("1,0\n0,oops\n")
    assert main(["limit", "-"]) == 2
    assert "error: stdin: line 2, column 2" in capsys.readouterr().err


def test_limit_names_what_the_theorems_exclude(here: Path, capsys) -> None:
    Path("odd.csv").write_text("0,0\n1,1\n1,1\n-2,0\n")
    assert main(["limit", "odd.csv", "--A", "skew.csv"]) == 0
    err = capsys.readouterr().err
    for words in ("1 zero token(s)", "1 duplicate token(s)", "not symmetric positive definite"):
        assert words in err
    assert main(["limit", "tokens.csv"]) == 0
    assert "note:" not in capsys.readouterr().err


def test_a_movie_that_cannot_be_made_leaves_nothing_else_behind(here: Path, monkeypatch) -> None:
    def failing(*args, **options):
        raise ValueError("too many tokens")

    monkeypatch.setattr("cynosure.drawing.movie.movie", failing)
    files = ["--movie", "m.gif", "--plot", "p.png", "--out", "r.npz"]
    assert main(["simulate", "tokens.csv", "--layers", "2", *files]) == 2
    assert left(here) == set()


def test_info_has_what_a_bug_report_needs(capsys) -> None:
    assert main(["info", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["cynosure"] == cy.__version__ and data["packages"]["numpy"] == np.__version__
    assert {"python", "extras", "devices", "kernels", "blas"} <= set(data)
    assert main(["info"]) == 0
    assert np.__version__ in capsys.readouterr().out


# --- bad input: exit 2 and one line --------------------------------------------------------------

BAD_FILES = {
    "nan.csv": "1,2\nnan,3\n",
    "ragged.csv": "1,2\n1,2,3\n",
    "empty.csv": "",
    "text.npy": "1,2\n3,4\n",
    "text.npz": "1,2\n3,4\n",
}
BAD = [
    (["limit", "nan.csv"], "finite"),
    (["limit", "ragged.csv"], "line 2 has 3 columns"),
    (["limit", "empty.csv"], "empty"),
    (["limit", "missing.csv"], "does not exist"),
    (["limit", "text.npy"], "name it .csv"),
    (["check", "text.npz"], "not a readable"),
    (["simulate", "tokens.csv", "--A", "A3.csv"], "expected shape (2, 2)"),
    (["simulate", "tokens.csv", "--A", "flat.csv"], "square"),
    (["simulate", "tokens.csv", "--A", "nowhere.csv"], "does not exist"),
    (["limit", "tokens.csv", "--alpha", "0"], "positive"),
    (["limit", "tokens.csv", "--alpha", "-1"], "positive"),
    (["limit", "tokens.csv", "--alpha", "-1/2"], "positive"),
    (["limit", "tokens.csv", "--alpha", "abc"], "such as 0.5"),
    (["limit", "tokens.csv", "--alpha", "1/0"], "such as 0.5"),
    (["limit", "tokens.csv", "--alpha", "nan"], "such as 0.5"),
    (["simulate", "tokens.csv", "--layers", "-1"], "layers"),
    (["simulate", "tokens.csv", "--layers", "many"], "layers"),
    (["simulate", "tokens.csv", "--save-every", "0"], "save_every"),
    (["limit", "tokens.csv", "--max-layers", "-1"], "max_layers"),
    (["simulate", "tokens.csv", "--out", "run.pkl"], ".npz"),
    (["simulate", "tokens.csv", "--plot", "f.bmp"], ".png or .svg or .pdf"),
    (["simulate", "tokens.csv", "--out", "A.csv"], ".npz"),
    (["simulate", "tokens.csv", "--beta", "2"], "add --attention softmax"),
    (["simulate", "tokens.csv", "--V", "A.csv"], "pure_attention has none"),
    (["simulate", "tokens.csv", "--dynamics", "unnorm"], "unnormalized_flow"),
    (["simulate", "tokens.csv", "--dynamics", "spere"], "sphere_flow"),
    (["simulate", "tokens.csv", "--dynamics", "scheduled"], "--dynamics X --dynamics Y"),
    (["simulate", "tokens.csv", "--dynamics", "scheduled_flow"], "--dynamics X --dynamics Y"),
    (["simulate", "tokens.csv", "--dynamics", "rescaled", "--span", "1"], "--dynamics twice"),
    (["simulate", "tokens.csv", "--dynamics", "pure", "--dynamics", "sphere"], "flows of one kind"),
    (["simulate", "tokens.csv", "--dynamics", "sphere", "--layers", "3"], "--time"),
    (["simulate", "tokens.csv", "--time", "3"], "--layers"),
    (["simulate", "tokens.csv", "--stepper", "rk4"], "--layers"),
    (["simulate", "tokens.csv", "--dynamics", "sphere", "--time", "-1"], "time"),
    (["simulate", "tokens.csv", "--dynamics", "sphere", "--stepper", "rk5"], "rk4"),
    (["simulate", "tokens.csv", "--dynamics", "sphere", "--stepper", "rk4:h=1"], "no 'h'"),
    (["simulate", "tokens.csv", "--dynamics", "sphere", "--stepper", "rk4:dt=x"], "a number"),
    (["simulate", "tokens.csv", "--dynamics", "sphere:0.1"], "key=value"),
    (["simulate", "tokens.csv", "--dynamics", "leading", "--causal"], "its own softmax"),
    (["simulate", "tokens.csv", "--dynamics", "leading", "--A", "A.csv", "--K", "A.csv"], "either"),
    (["simulate", "tokens.csv", "--dynamics", "leading", "--V", "A3.csv"], "d = 2"),
    (["simulate", "tokens.csv", "--attention", "softmax:A=gone.csv"], "gone.csv does not exist"),
    (["simulate", "tokens.csv", "--attention", "sinkhorn", "--causal"], "at once"),
    (["run", "figure99"], "figure1, figure2"),
    (["run"], "no name given"),
    (["run", "figure1", "--set", "sed=1"], "KEY of n, seed"),
    (["run", "figure1", "--set", "seed=x"], "whole number"),
    (["run", "figure1", "--set", "A=1,x;0,1"], "A=1,x"),
    (["run", "figure1", "--set", "seed"], "KEY=VALUE"),
    (["limit", "gausian:n=5"], "gaussian"),
    (["limit", "gaussian:m=5"], "gaussian:n=30,d=2,seed=0"),
    (["limit", "gaussian:n=0"], "n >= 1"),
    (["limit", "figure2:7"], "1, 2, 3, 4"),
    (["limit", "golden:G9"], "G1"),
    (["limit", "tokens.csv", "--device", "tpu"], "cpu or cuda"),
    (["limit", "tokens.csv", "--exact", "--device", "cuda"], "on the CPU"),
    (["check", "tokens.csv", "--only", "B99"], "B99"),
    (["limit"], "TOKENS"),
    (["limit", "tokens.csv", "--alhpa", "1"], "--alhpa"),
    (["conquer"], "conquer"),
    (["--config", "none.toml", "info"], "no such file"),
]


@pytest.mark.parametrize("command", ["simulate", "limit"])
def test_tokens_go_to_the_device_asked_for_and_results_come_back(
    command: str, here: Path, capsys, monkeypatch
) -> None:
    """A tensor goes in; what is shown is what NumPy tokens show."""
    torch = pytest.importorskip("torch")
    tensor, asked = torch.tensor, []

    def on_the_cpu(values, device):
        asked.append(device)
        return tensor(values)

    plain = [command, "gaussian:n=12,d=2,seed=3", "--json"]
    main(plain)
    expected = json.loads(capsys.readouterr().out)["result"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "tensor", on_the_cpu)
    assert main([*plain, "--device", "cuda"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == expected and asked == ["cuda"]


@pytest.mark.parametrize(("args", "words"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_is_one_line_and_exit_2(args: list, words: str, here: Path, capsys) -> None:
    for name, text in BAD_FILES.items():
        Path(name).write_text(text)
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("cynosure: error: ") and words in err, err
    assert left(here) == set(BAD_FILES)


def test_an_existing_output_is_kept_unless_forced(here: Path, capsys) -> None:
    Path("run.npz").write_text("precious")
    args = ["simulate", "tokens.csv", "--layers", "1", "--out", "run.npz"]
    assert main(args) == 2
    assert "run.npz exists (use --force" in capsys.readouterr().err
    assert Path("run.npz").read_text() == "precious"
    assert main([*args, "--force"]) == 0
    assert len(cy.load("run.npz")) == 2


def test_debug_adds_the_traceback(here: Path, capsys) -> None:
    assert main(["limit", "tokens.csv", "--alpha", "0", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err and err.splitlines()[-1].startswith("cynosure: error: alpha")


def test_an_error_of_ours_is_exit_1(here: Path, capsys, monkeypatch) -> None:
    def broken(*args, **options):
        raise AssertionError("two\nlines")

    monkeypatch.setattr("cynosure.analysis.limits.limit", broken)
    assert main(["limit", "tokens.csv"]) == 1
    err = capsys.readouterr().err
    assert err == "cynosure: error: two lines (AssertionError; --debug shows where)\n"


# --- flags from a file, and where they may stand -------------------------------------------------


def test_config_mirrors_flags_and_typed_flags_win(here: Path, capsys) -> None:
    Path("c.toml").write_text(
        'quiet = true\n[simulate]\nlayers = 7\nalpha = "1/3"\njson = true\nsave-every = 7\n'
    )
    assert main(["simulate", "tokens.csv", "--config", "c.toml"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)["result"]
    assert err == "" and result["layer"] == 7 and result["alpha"] == "1/3"
    assert main(["--config=c.toml", "simulate", "tokens.csv", "--layers", "2"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["layer"] == 2 and result["alpha"] == "1/3"


@pytest.mark.parametrize("given", ['"sphere"', '["sphere"]'])
def test_a_flag_that_may_be_repeated_is_a_word_or_a_list_in_a_config(
    given: str, here: Path, capsys
) -> None:
    Path("c.toml").write_text(
        f"[simulate]\ndynamics = {given}\ntime = 1\nbeta = 3.0\njson = true\n"
    )
    assert main(["simulate", "tokens.csv", "--config", "c.toml"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["dynamics"] == "SphereFlow"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[simulate]\nalhpa = 1\n", "unknown key 'alhpa'"),
        ("[simulat]\nalpha = 1\n", "no command [simulat]"),
        ("[inspect.txt]\nwords = true\n", "no command [inspect.txt]"),
        ("[inspect.text]\nword = true\n", "unknown key 'word'"),
        ("loud = true\n", "unknown key 'loud'"),
        ("[simulate\n", "not TOML"),
        ("[simulate]\nlayers = -3\n", "layers"),
    ],
)
def test_a_wrong_config_is_refused(text: str, words: str, here: Path, capsys) -> None:
    Path("c.toml").write_text(text)
    assert main(["simulate", "tokens.csv", "--config", "c.toml"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and words in err


def test_common_flags_may_stand_anywhere() -> None:
    given = ["limit", "-q", "x", "--config", "c.toml", "--", "-v"]
    assert cli._common_first(given) == ["-q", "--config", "c.toml", "limit", "x", "--", "-v"]
    assert cli._common_first(["-q"]) == ["-q", "--help"]


def test_a_terminal_gets_the_first_tokens_and_a_pipe_all(here: Path, capsys, monkeypatch) -> None:
    assert main(["limit", "gaussian:n=100"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 101
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["limit", "gaussian:n=100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 43 and lines[-2].startswith("... 60 more")


def test_progress_only_on_a_terminal(here: Path, capsys, monkeypatch) -> None:
    args = ["simulate", "tokens.csv", "--layers", "3"]
    main(args)
    assert "layers/s" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main(args)
    assert "/3 [" in capsys.readouterr().err
    main([*args, "--quiet"])
    assert capsys.readouterr().err == ""


def test_version_and_help(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cynosure {cy.__version__}\n"
    assert main([]) == 0
    general = capsys.readouterr().out
    for command in ("simulate", "limit", "check", "run", "demo", "info"):
        assert command in general
        assert main([command, "--help"]) == 0
        assert f"cynosure {command}" in capsys.readouterr().out


def test_every_command_says_what_it_does_in_one_short_line() -> None:
    group = get_command(cli.app)
    commands = list(group.commands.values())
    commands += [inner for c in commands if hasattr(c, "commands") for inner in c.commands.values()]
    lines = {command.name: command.get_short_help_str(200) for command in commands}
    assert len(lines) >= 19
    assert not {name: line for name, line in lines.items() if not 15 <= len(line) <= 55}
    assert not {name: line for name, line in lines.items() if line.split()[0].endswith("s")}


@pytest.mark.parametrize(
    "usage",
    ["limit [OPTIONS] TOKENS", "predict [OPTIONS] [MODEL] FILE|-", "explain [OPTIONS] [TEXT|-]",
     "card [OPTIONS] [MODEL]", "run [OPTIONS] [NAME]"],
)  # fmt: skip
def test_the_usage_line_is_what_to_type(usage, capsys) -> None:
    assert main([usage.split()[0], "--help"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Usage: cynosure {usage}"


def test_simulate_shows_ten_options_before_the_rest(capsys) -> None:
    assert main(["simulate", "--help"]) == 0
    first, rest = capsys.readouterr().out.split("More options:")
    shown = re.findall(r"^  (--\w+)", first.split("Options:")[1], re.M)
    assert len(shown) == 10 and "--plot" in shown
    assert "--stepper" in rest and "<" not in first.split("Arguments:")[1].split("Options:")[0]


def test_a_shell_is_told_how_a_word_can_go_on(monkeypatch, capsys) -> None:
    monkeypatch.setenv("_CYNOSURE_COMPLETE", "complete_bash")
    for typed, words in COMPLETIONS.items():
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
        main([])
        assert set(capsys.readouterr().out.split()) == words, typed


COMPLETIONS = {
    "cynosure sim": {"simulate"},
    "cynosure inspect i": {"image", "iterate"},
    "cynosure run figure": {"figure1", "figure2", "figure3", "figure4", "figure5"},
    "cynosure simulate x.csv --dynamics eu": {"euclidean_flow"},
    "cynosure simulate x.csv --attention so": {"softmax"},
}


# --- in a process of its own ---------------------------------------------------------------------


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom cynosure.cli import main\nassert main(['limit', '--help']) == 0\n"
        "heavy = 'numpy torch matplotlib sklearn numba scipy rich tqdm'.split()\n"
        "print('LOADED', [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "LOADED []", done.stdout + done.stderr


def test_the_package_is_the_command() -> None:
    args = [sys.executable, "-m", "cynosure", "--version"]
    done = subprocess.run(args, env=ENV, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"cynosure {cy.__version__}\n")


def test_a_reader_that_stops_early_is_no_error(here: Path) -> None:
    pipe = f"{sys.executable} -m cynosure limit gaussian:n=20000 -q | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {pipe}"], env=ENV, capture_output=True)
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.startswith(b"token")


def test_an_interrupt_is_130_and_leaves_no_file(here: Path) -> None:
    command = [sys.executable, "-m", "cynosure", "simulate", "tokens.csv", "-v"]
    command += ["--layers", "1000000", "--out", "run.npz"]
    process = subprocess.Popen(command, env=ENV, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "1000000 layers" in process.stderr.readline()  # the work has begun
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "cynosure: interrupted"
    assert set(err.splitlines()[:-1]) <= {"computing ..."}  # it took long enough to be said
    assert left(here) == set()


def test_the_demo_refuses_before_the_work(tmp_path: Path, monkeypatch, capsys) -> None:
    def begun(*_: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr("cynosure.cli.demo.demo", begun)
    (tmp_path / "file").touch()
    assert main(["demo", "--out", str(tmp_path / "file" / "x")]) == 2
    assert "is a file" in capsys.readouterr().err
    monkeypatch.setattr("os.access", lambda *_: False)  # a disk that is read-only
    assert main(["demo", "--out", str(tmp_path / "x")]) == 2
    assert "may not be written to" in capsys.readouterr().err


def test_the_demo_replaces_its_own_page_only(tmp_path: Path, capsys) -> None:
    page = tmp_path / "report.html"
    page.write_text("<title>My thesis</title>")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "no page of the demo" in capsys.readouterr().err
    assert page.read_text() == "<title>My thesis</title>"


def test_a_failed_save_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    from cynosure._files import write_atomically

    def full(stream: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"limits\.csv") as caught:
        write_atomically(tmp_path / "limits.csv", full)
    assert caught.value.filename == str(tmp_path / "limits.csv")
