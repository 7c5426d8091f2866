"""The tutorial on a statement of one's own: its file and its commands do what the page says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import cynosure as cy
from cynosure.cli import main
from cynosure.theorems import THEOREMS, AnyRun, Hypothesis, Part, exactly, least, statement

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = (DOCS / "tutorials" / "own-theorem.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch):
    """A folder with the file of the page; the statements are as before afterwards."""
    (module,) = re.findall(r"^```python\n(# my_theorems.py\n.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / "my_theorems.py").write_text(module, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with mock.patch.dict(THEOREMS):
        yield
    sys.modules.pop("my_theorems", None)


def test_the_commands_of_the_page_run(capsys) -> None:
    (lines,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    simulated, checked = (shlex.split(line)[1:] for line in lines.splitlines())
    assert main(simulated) == main(checked) == 0
    assert "shrinks" in capsys.readouterr().out
    run = cy.load("faded.npz")
    assert run.dynamics is not None and run.dynamics.rate == 0.25
    grown = [word.replace("rate=0.25", "rate=2").replace("faded", "grown") for word in simulated]
    assert main(grown) == 0 and main(["check", "grown.npz", *checked[2:]]) == 1


def test_a_statement_applies_or_not_and_can_fail() -> None:
    def in_the_plane(run: AnyRun) -> Hypothesis:
        d = run.trajectory.z.shape[-1]
        return Hypothesis("d = 2", d == 2, float(d))

    @statement(AnyRun, "finite", "my notes", "tokens stay finite", (in_the_plane,))
    def finite(run: AnyRun) -> list[Part]:
        return [exactly("tokens", ~np.isfinite(run.trajectory.values), "layer", "token", "axis")]

    plane, space = (cy.simulate(cy.PureAttention(), np.eye(d), layers=2) for d in (2, 3))
    assert finite(plane).holds and finite(space).verdict == "does not apply"
    plane.z[1, 0, 0] = np.inf
    assert finite(plane).holds is False
    assert "finite" in {check.theorem for check in cy.check(space)}


def test_axes_without_names_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"axes: expected a name for each of 2 axes, got \('layer',\)"
    ):
        least("lengths", np.zeros((2, 3)), 0.0, "layer")
