"""The frame of experiments: its grid, progress, report and checks, each able to fail."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import cynosure as cy
from cynosure.catalogue import chapters
from cynosure.catalogue import study as experiment
from cynosure.study import frame as _frame
from cynosure.study import keeping
from cynosure.study.frame import (
    all_of,
    at_most,
    bars,
    by_question,
    counted,
    judged,
    over_grid,
    part,
    report_of,
    require,
    resampled,
    shares,
    wilson,
)
from cynosure.study.records import Cell, columns, curves, grouped, interval, told

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
    with keeping(tmp_path) as later:
        again = over_grid(_cell, 3, axes)
    assert [(c["d"], c["alpha"]) for c in cells] == [(2, 0.5), (2, 1.0), (3, 0.5), (3, 1.0)]
    assert said[2] == (0.5, "d = 3, alpha = 0.5")
    assert again == cells and len(store.made) == len(later.reused) == 4


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
    root = Path(__file__).resolve().parents[1]
    for folder in (root / "studies", root / "src/cynosure/figures"):
        for path in folder.rglob("*.py"):
            found[path.name] = _looped(ast.parse(path.read_text(encoding="utf-8")))
    assert len(found) > 40 and not any(found.values()), found


def test_a_part_of_the_progress() -> None:
    said: list[float] = []
    inner = part(part(lambda share, what: said.append(share), 0.5, 1.0), 0.0, 0.5)
    inner(0.0, ""), inner(1.0, "")
    assert said == [0.5, 0.75]
    assert _frame.silent(0.3, "nobody hears") is None


def test_a_report_knows_its_module() -> None:
    table = cy.study.Table.of(
        "t", [np.array([1.0, 2.0])], {"sum": lambda row: row.sum(), "n": "size"}
    )
    control = cy.study.Comparison("it rains", "a null model", "3 of 4", survives=False)
    report = report_of(
        Params(), "text", controls=[control], tables=[table], checks={"x": [_right()]}
    )
    assert report.controls == (control,)
    assert (report.title, report.params, report.summary) == (TITLE, {"seed": 3}, "text")
    assert report.command == "cynosure run test_frame"
    assert report.tables[0].columns == ("sum", "n") and report.tables[0].rows == ((3.0, 2),)
    assert report.checks == {"x": (_right(),)}


def test_the_docstring_of_a_drawing_is_its_caption() -> None:
    def draw(p: Params, word: str) -> str:
        """Left: seeds,
        against nothing.
        """
        return f"{word} {p.seed}"

    picture = cy.study.Picture.of("Seeds", draw, Params(), "seed")
    assert (picture.title, picture.drawing) == ("Seeds", "seed 3")
    assert picture.caption == "Left: seeds, against nothing."


def _right() -> cy.theorems.Check:
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
    assert experiment("figure1").__name__ == "cynosure.figures.figure1"
    assert experiment("finite_depth").__name__ == "studies.hardmax.finite_depth"
    with pytest.raises(ValueError, match="no study 'nothing'"):
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


class Point(NamedTuple):
    kind: str
    x: float
    y: float | None


POINTS = [Point("a", 1, 2.0), Point("b", 1, 3.0), Point("a", 2, None)]


def test_records_are_grouped_in_order() -> None:
    assert grouped(POINTS, "kind") == {"a": [POINTS[0], POINTS[2]], "b": [POINTS[1]]}
    assert list(grouped(POINTS, "kind", "x")) == [("a", 1), ("b", 1), ("a", 2)]


def test_columns_are_told_as_one_text() -> None:
    runs = [Point("a b", 3, 0.5), Point("", 0, None)]
    told_ = columns("kind, letters = len kind, height = y") | {"twice": lambda c: 2 * c.x}
    table = cy.study.Table.of("", runs, told_)
    assert table.columns == ("kind", "letters", "height", "twice")
    assert table.rows == (("a b", 3, 0.5, 6), ("", 0, None, 0))
    with pytest.raises(ValueError, match="expected one of len, min"):
        columns("x = longest kind")


def test_a_cell_tells_the_statistics_of_its_fields() -> None:
    cell = Cell(n=2, x=[1.0, 3.0, float("nan")], runs=[Cell(y=1.0), Cell(y=3.0)])
    assert cell.mean("x") == cell.median("x") == cell.mean("runs.y") == 2
    assert np.isnan(cell.replace(x=[]).mean("x")) and cell.x[0] == 1  # the first is not changed
    assert cell.ends("runs.y") == resampled([1.0, 3.0]) and cell.told("x") == told(cell.x)
    shown = columns("n, mean y = mean runs.y, from = low runs.y, to = high runs.y")
    (row,) = cy.study.Table.of("", [cell], shown).rows
    assert row == (2, 2.0, *resampled([1.0, 3.0]))
    with pytest.raises(AttributeError, match="z"):
        cell.mean("runs.z")


def test_curves_draw_what_the_records_say() -> None:
    _, ((ax,),) = cy.plot.sheet(1, 1)
    reach = lambda c: (c.x - 1, c.x + 3)  # noqa: E731
    curves(ax, POINTS, "x", "y", "kind", label="kind {}")
    curves(ax, POINTS[:2], "y", "x", ends=reach)
    first, second, third = (container.lines for container in ax.containers)
    assert first[0].get_xdata().tolist() == [1, 2]
    np.testing.assert_array_equal(first[0].get_ydata(), [2, np.nan])
    assert second[0].get_ydata().tolist() == [3] and not second[2]
    assert [bar[:, 1].tolist() for bar in third[2][0].get_segments()] == [[0, 4], [0, 4]]
    assert ax.get_legend_handles_labels()[1] == ["kind a", "kind b"]


def test_a_mean_is_told_with_its_interval() -> None:
    assert told([1.0, 1.0, 1.0]) == "1 (95 %: 1 to 1)"
    assert told([0.0, 1.0] * 50, 2).startswith("0.5 (95 %: 0.4")
    from_, to = interval(lambda c: (c, 10)).values()
    assert (from_(3), to(3)) == wilson(3, 10)


@dataclass(frozen=True)
class Questions:
    questions: tuple[str, ...] = ("one", "two")


def test_a_study_of_several_questions_asks_those_that_are_named() -> None:
    steps: list[float] = []

    def chapter(p: Questions, progress) -> cy.study.Report:
        progress(0.5, "half")
        return report_of(p, "found", controls=(), title="a chapter")

    asked = {"one": chapter, "two": chapter}
    whole = by_question(Questions(), "all", asked, lambda share, _: steps.append(share))
    assert steps == [0.25, 0.75] and [c.title for c in whole.chapters] == ["a chapter"] * 2
    assert whole.title == TITLE and whole.params == {"questions": ("one", "two")}
    assert whole.chapters[0].params == {} and whole.chapters[0].command == ""
    assert len(by_question(Questions(("two",)), "", asked).chapters) == 1
    for wrong in ((), ("three",)):
        with pytest.raises(ValueError, match="expected questions of one, two"):
            by_question(Questions(wrong), "", asked)


def test_rates_by_name_and_means_with_bars() -> None:
    values = [1.0, 2.0, 3.0, 6.0]
    low, high = resampled(values)
    said = shares({"a": (3, 4), 7: (0, 0)})
    assert said == f"a: {counted(3, 4)}; 7: none"
    _, ((ax,),) = cy.plot.sheet(1, 1)
    bars(ax, [5], [values], over=2)
    (bar,) = ax.containers
    (segment,) = bar.lines[2][0].get_segments()
    np.testing.assert_allclose(segment[:, 1], np.array([low, high]) / 2)
