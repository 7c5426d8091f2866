"""Which studies there are: of the package, of a checkout, of other packages, and files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cynosure import catalogue
from cynosure.cli import main
from cynosure.study.measurements import load_file

MINE = """
from dataclasses import dataclass
from typing import NamedTuple

import cynosure as cy
from cynosure.study import Table, over_grid, report_of
from neighbour_of_mine import THREE

TITLE = "Mine"


@dataclass(frozen=True)
class Params:
    n: int = 4


QUICK = Params(3)


class Cell(NamedTuple):
    d: int
    total: float


def _cell(p, d):
    z = cy.configurations.gaussian(p.n, d, 0)
    return Cell(d, THREE * float(z.sum()))


def run(p, progress=None):
    cells = over_grid(_cell, p, {"d": (2, 3, 4, 5)})
    table = Table.of("cells", cells, {"d": "d", "sum": "total"})
    return report_of(p, "What was found.", controls=(), tables=[table])
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: Any) -> Path:
    """A study of a user, in a folder of its own that is not on the path."""
    path = tmp_path / "theirs" / "finite_depth.py"  # the name of one of ours
    path.parent.mkdir()
    path.write_text(MINE)
    (path.parent / "neighbour_of_mine.py").write_text("THREE = 3")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield path
    for name in ("neighbour_of_mine", "studies_by_path.finite_depth"):
        sys.modules.pop(name, None)


def test_a_worker_that_ran_another_study_finds_the_neighbours_too(mine: Path) -> None:
    """A reused process has the path of its first study only."""
    assert str(mine.parent) not in sys.path
    assert load_file(mine, "studies_by_path.finite_depth").THREE == 3


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_a_file_of_a_user_runs_is_kept_and_drawn_again(mine: Path, capsys, workers) -> None:
    """With its records and its neighbours, in processes too."""
    assert main(["-q", "run", str(mine), "--quick", *workers]) == 0
    assert capsys.readouterr().out.strip() == str(Path("finite_depth/report.html"))
    report = json.loads(Path("finite_depth/report.json").read_text())
    assert report["title"] == "Mine" and report["params"] == {"n": 3}
    assert f"run {mine} --quick" in report["command"]
    kept = sorted(Path("finite_depth/measured").iterdir())
    assert len(kept) == 4 and all(path.name.startswith("finite_depth._cell-") for path in kept)
    assert main(["run", str(mine), "--quick", "--redraw"]) == 0
    assert "4 of 4 measurements" in capsys.readouterr().err
    assert json.loads(Path("finite_depth/report.json").read_text())["tables"] == report["tables"]


def test_a_file_that_is_no_study_is_refused_with_what_it_lacks(tmp_path: Path, capsys) -> None:
    path = tmp_path / "half.py"
    path.write_text("TITLE = 'Half'")
    assert main(["run", str(path)]) == 2
    assert "Params and QUICK and run not found" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "none.py")]) == 2
    assert "expected the file of a study" in capsys.readouterr().err
    sys.modules.pop("studies_by_path.half", None)


def test_a_study_of_ours_is_the_same_module_by_name_and_by_file() -> None:
    root = catalogue.checkout()
    assert root is not None
    path = root / "studies" / "hardmax" / "finite_depth.py"
    assert catalogue.study(str(path)) is catalogue.study("finite_depth")


def test_a_package_without_a_checkout_has_its_figures(monkeypatch) -> None:
    monkeypatch.setattr(catalogue, "checkout", lambda: None)
    (names,) = catalogue.chapters().values()
    assert {"figure1", "figure2", "first_checks", "reviews_explained"} <= set(names)
    assert catalogue.study("figure1").__name__ == "cynosure.figures.figure1"
    with pytest.raises(ValueError, match="no study 'finite_depth'"):
        catalogue.study("finite_depth")


def test_other_packages_add_studies_as_entry_points(monkeypatch) -> None:
    point = SimpleNamespace(name="theirs", value="json.decoder")
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [point])
    assert catalogue.chapters()["Studies of other packages"] == ["theirs"]
    assert "theirs" in catalogue.studies()
    assert catalogue.study("theirs") is json.decoder


def test_another_package_called_studies_is_named(tmp_path, monkeypatch) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "__init__.py").write_text("")
    for name in [name for name in sys.modules if name.partition(".")[0] == "studies"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="found another package"):
        catalogue.chapters()
    sys.modules.pop("studies", None)


@pytest.mark.parametrize("number", [*(f"figure{k}" for k in range(1, 11)), "table1"])
def test_figures_and_tables_of_the_paper_are_found_by_number(number) -> None:
    found = catalogue.study(number)
    assert found is catalogue.study(f"2407.01602/{number}")
    assert f"2407.01602/{number}" in catalogue.aliases()[found.__name__.rpartition(".")[2]]


def test_other_names_are_not_taken_twice() -> None:
    """An alias names one study, and none has the name of another one."""
    every = [alias for others in catalogue.aliases().values() for alias in others]
    assert len(every) == len(set(every)) and not set(every) & set(catalogue.studies())
    with pytest.raises(ValueError, match="no study 'figure99'"):
        catalogue.study("figure99")
    with pytest.raises(ValueError, match="no study '6'"):
        catalogue.study("6")
    with pytest.raises(ValueError, match=r"\(there are 2407\.01602/figure1, .*table1; or give"):
        catalogue.study("2407.01602/figure99")


@pytest.mark.parametrize(
    ("alias", "study", "question"),
    [
        ("2305.05465/theorem4.1", "leading_eigenvalues", "hyperplanes"),
        ("theorem5.1", "leading_eigenvalues", "product"),
        ("2305.05465/figure5", "leading_eigenvalues", "product"),
        ("2305.05465/figure2", "random_matrices", ""),
        ("polytope_flow", "leading_eigenvalues", "polytope"),
        ("leading_eigenvalues", "leading_eigenvalues", ""),
        ("figure6", "sentiment_paper", ""),
    ],
)
def test_an_alias_may_mean_one_question_of_a_study(alias, study, question) -> None:
    assert catalogue.study(alias) is catalogue.study(study)
    assert catalogue.question(alias) == question


def test_every_question_that_an_alias_means_is_asked() -> None:
    for name, questions in catalogue._aliases().items():
        module = catalogue.study(name)
        meant = set(questions.values()) - {""}
        assert meant <= set(getattr(module.Params(), "questions", ())), name


@pytest.mark.parametrize(
    "source",
    [
        'TITLE = "Mine"\n\n\ndef run():\n    pass\n',
        'def run():\n    pass\n\n\nTITLE = "Mine"\n',
        '"""\nTITLE = "no"\n\ndef run():\n"""\nTITLE = "Mine"\n',
        'def run():\n    """\nTITLE = "no"\n"""\n\n\nTITLE = (\n    "Mine"\n)\n',
        'TITLE="Mine"',
    ],
)
def test_a_title_is_read_wherever_it_stands(source, tmp_path, monkeypatch) -> None:
    (tmp_path / "titled.py").write_text(source + "raise RuntimeError\n" * source.endswith("\n"))
    monkeypatch.syspath_prepend(tmp_path)
    assert catalogue._constant("titled", "TITLE") == "Mine"
    assert catalogue._constant("titled", "ALIASES") == ""


def test_an_old_name_runs_its_question_alone(tmp_path: Path) -> None:
    assert main(["-q", "run", "codimension", "--quick", "--out", str(tmp_path / "run")]) == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["params"]["questions"] == ["codimension"]
    assert [chapter["title"] for chapter in report["chapters"]] == [
        "Codimension k: a conjecture tried"
    ]
