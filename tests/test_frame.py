"""The frame of experiments: its grid, progress, report and checks, each able to fail."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy
from cynosure.experiments import _frame, chapters, experiment, keeping
from cynosure.experiments._frame import (
    all_of,
    at_most,
    counted,
    judged,
    over_grid,
    part,
    report_of,
    require,
    resampled,
    wilson,
)

TITLE = "A module that stands for an experiment"


@dataclass(frozen=True)
class Params:
    seed: int = 3


def _cell(seed: int, d: int, alpha: float) -> dict[str, float]:
    return {"d": d, "alpha": alpha, "seed": seed}


def test_a_grid_is_every_combination_with_the_last_axis_fastest(tmp_path: Path) -> None:
    said: list[tuple[float, str]] = []
    axes = {"d": (2, 3), "alpha": (0.5, 1.0)}
    with keeping(tmp_path) as store:
        cells = over_grid(_cell, 3, axes, lambda share, what: said.append((share, what)))
        again = over_grid(_cell, 3, axes)
    assert [(c["d"], c["alpha"]) for c in cells] == [(2, 0.5), (2, 1.0), (3, 0.5), (3, 1.0)]
    assert said[2] == (0.5, "d = 3, alpha = 0.5")
    assert again == cells and len(store.made) == len(store.reused) == 4


def _looped(tree: ast.AST) -> list[int]:
    """Lines on which `kept` is called again and again, one after the other."""
    loops = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
    return [
        call.lineno
        for loop in ast.walk(tree)
        if isinstance(loop, loops)
        for call in ast.walk(loop)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "kept"
    ]


def test_every_grid_of_an_experiment_can_be_measured_by_workers() -> None:
    """A loop over `kept` would leave `cynosure run --workers 2` with one process."""
    assert _looped(ast.parse("x = [kept(f, k) for k in y]")) == [1]
    assert not _looped(ast.parse("x = kept_each(f, [(k,) for k in y])"))
    found = {}
    for path in Path(_frame.__file__).parent.rglob("*.py"):
        if path.name != "_measurements.py":
            found[path.name] = _looped(ast.parse(path.read_text(encoding="utf-8")))
    assert len(found) > 40 and not any(found.values()), found


def test_a_part_of_the_progress() -> None:
    said: list[float] = []
    inner = part(part(lambda share, what: said.append(share), 0.5, 1.0), 0.0, 0.5)
    inner(0.0, ""), inner(1.0, "")
    assert said == [0.5, 0.75]
    assert _frame.silent(0.3, "nobody hears") is None


def test_a_report_knows_its_module() -> None:
    table = cy.Table.of("t", [np.array([1.0, 2.0])], {"sum": lambda row: row.sum(), "n": "size"})
    control = cy.Comparison("it rains", "a null model", "3 of 4", survives=False)
    report = report_of(
        __name__, Params(), "text", controls=[control], tables=[table], checks={"x": [_right()]}
    )
    assert report.controls == (control,)
    assert (report.title, report.params, report.summary) == (TITLE, {"seed": 3}, "text")
    assert report.command == "cynosure run test_frame"
    assert report.tables[0].columns == ("sum", "n") and report.tables[0].rows == ((3.0, 2),)
    assert report.checks == {"x": (_right(),)}


def _right() -> cy.Check:
    return at_most("few", "nowhere", "at most two", 1, 2, runs=7)


def test_a_check_of_one_number_can_fail() -> None:
    assert _right().holds and _right().margin == 1 and _right().witness["runs"] == 7
    assert not at_most("few", "nowhere", "at most two", 3, 2).holds
    assert not at_most("few", "nowhere", "at most two", float("nan"), 2).holds
    assert all_of("every", "nowhere", "all", 5, 5).holds
    assert not all_of("every", "nowhere", "all", 4, 5).holds


def test_a_theorem_is_judged_on_its_tightest_run() -> None:
    starts = [cy.configurations.gaussian(8, 2, seed) for seed in range(3)]
    runs = [cy.simulate(cy.PureAttention(), z, layers=4) for z in starts]
    right = judged("B1", runs)
    assert right.holds and right.witness["runs"] == right.witness["applies to"] == 3
    z = runs[1].z.copy()
    z[2] *= 1.5
    wrong = judged("B1", [runs[0], replace(runs[1], z=z), runs[2]])
    assert wrong.applies and wrong.holds is False
    with pytest.raises(ValueError, match="no run"):
        judged("B1", [])


def test_an_experiment_is_found_in_its_chapter() -> None:
    names = [name for group in chapters().values() for name in group]
    assert len(names) == len(set(names)) >= 41
    assert experiment("figure1").__name__ == "cynosure.experiments.hardmax.figure1"
    with pytest.raises(ValueError, match="no experiment 'nothing'"):
        experiment("nothing")


def test_senseless_parameters_are_refused_by_name() -> None:
    require(True, "anything", Params())
    with pytest.raises(ValueError, match=r"test_frame: expected seed < 3; got Params\(seed=3\)"):
        require(Params().seed < 3, "seed < 3", Params())


@pytest.mark.parametrize(("seen", "total"), [(0, 10), (3, 10), (81, 100), (100, 100), (1, 1)])
def test_the_wilson_interval_solves_its_equation(seen: int, total: int) -> None:
    """Its ends are the two solutions q of (p - q)^2 = z^2 q (1 - q) / total."""
    z, p = 1.959963984540054, seen / total
    roots = np.roots([1 + z * z / total, -2 * p - z * z / total, p * p])
    assert wilson(seen, total) == pytest.approx(sorted(roots.real), abs=1e-12)
    assert wilson(seen, total)[0] <= p <= wilson(seen, total)[1]


def test_a_wilson_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Exactly, by the binomial law: near 95 % on average over q, never the sure thing."""
    from scipy.stats import binom

    n, q = 40, np.linspace(0.05, 0.95, 91)
    ends = np.array([wilson(k, n) for k in range(n + 1)])
    inside = (ends[:, :1] <= q) & (q <= ends[:, 1:])
    cover = (inside * binom.pmf(np.arange(n + 1)[:, None], n, q)).sum(axis=0)
    assert 0.94 < cover.mean() < 0.96 and cover.min() > 0.9


@pytest.mark.parametrize(("seen", "total"), [(-1, 3), (4, 3), (0, 0)])
def test_counts_that_are_none_are_refused(seen: int, total: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= successes <= total"):
        wilson(seen, total)


def test_a_rate_is_told_with_its_cases_and_a_mean_with_its_interval() -> None:
    assert counted(3, 4) == "3 of 4 (0.75; 95 %: 0.3 to 0.954)"
    assert counted(2700, 2700) == "2700 of 2700 (1; 95 %: 0.9986 to 1)"
    x = np.random.default_rng(1).standard_normal(400) + 3
    low, high = resampled(x)
    assert low < 3.0 < high and high - low == pytest.approx(4 * x.std() / 20, rel=0.1)
    assert resampled([0, 0, 0, 0, 100], np.median)[0] == 0
