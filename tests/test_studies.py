"""Every experiment of the folder runs on QUICK, tells the truth, and could have failed."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import cynosure as cy
from cynosure import configurations
from cynosure.analysis.limits import Limit, limit
from cynosure.catalogue import available
from cynosure.cli import demo as demo_module
from cynosure.cli.demo import demo
from cynosure.drawing.report import Report
from cynosure.dynamics import PureAttention, UnnormalizedAttention
from cynosure.figures import figure1, figure2, first_checks
from cynosure.simulation.loop import simulate
from cynosure.study import keeping
from cynosure.theorems import THEOREMS
from test_report import Page

EXPERIMENTS = available()


FOLDER = tempfile.TemporaryDirectory()  # removed when the tests end
MEASURED: dict[str, list[str]] = {}


@cache
def quick(name: str) -> tuple[Report, list[tuple[float, str]]]:
    """An experiment on QUICK, with what it told its progress; run once, when first asked for."""
    told: list[tuple[float, str]] = []
    module = EXPERIMENTS[name]
    with keeping(Path(FOLDER.name, name)) as store:
        report = module.run(module.QUICK, lambda *step: told.append(step))
    MEASURED[name] = store.made
    return report, told


def test_the_folder_is_the_registry() -> None:
    assert {"figure1", "figure2", "first_checks"} <= set(EXPERIMENTS)
    assert list(EXPERIMENTS) == sorted(EXPERIMENTS)


@pytest.mark.parametrize(("name", "module"), EXPERIMENTS.items(), ids=list(EXPERIMENTS))
def test_every_experiment_has_the_same_shape(name: str, module: ModuleType) -> None:
    assert dataclasses.is_dataclass(module.Params)
    assert type(module.QUICK) is module.Params
    assert all(f.default is not dataclasses.MISSING for f in dataclasses.fields(module.Params))
    assert module.TITLE and "arXiv" in module.__doc__
    with pytest.raises(dataclasses.FrozenInstanceError):
        module.QUICK.seed = 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_quick_runs_and_every_check_that_applies_holds(name: str) -> None:
    report, told = quick(name)
    assert report.title == EXPERIMENTS[name].TITLE
    assert report.params == dataclasses.asdict(EXPERIMENTS[name].QUICK)
    assert report.command.startswith(f"cynosure run {name}")
    assert report.failures == []
    assert any(r.figures for r in report.parts())
    shares = [share for share, _ in told]
    drawing = name == "figure3"  # of architectures: it measures nothing
    assert drawing or (shares and any(r.tables for r in report.parts()))
    assert shares == sorted(shares) and all(0 <= share <= 1 for share in shares)
    json.loads(report.to_json())
    page = Page(report.to_html())
    assert page.open == [] and len(page.ids) == len(set(page.ids))


SOME = {"figure1", "figure2", "first_checks"}  # a second run of all of them is a long check


@pytest.mark.parametrize(
    "name", [n if n in SOME else pytest.param(n, marks=pytest.mark.slow) for n in EXPERIMENTS]
)
def test_a_second_run_without_progress_gives_the_same(name: str) -> None:
    module = EXPERIMENTS[name]
    assert module.run(module.QUICK).to_json() == quick(name)[0].to_json()


LONG = (
    "basins control_leaders feed_forward figure4 finite_depth leader_count "
    "limit_count random_matrices repulsion several_heads"
).split()
LONGER = "cylinder_flow leading_eigenvalues robustness_A "
LONGER += "value_spectrum"


@pytest.mark.parametrize(
    "name", [*LONG, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGER.split())]
)
def test_a_long_experiment_is_drawn_again_without_measuring(name: str) -> None:
    """The store has what it measured, to the last bit: pages and pictures are the same."""
    report, module = quick(name)[0], EXPERIMENTS[name]
    with keeping(Path(FOLDER.name, name)) as store:
        again = module.run(module.QUICK)
    assert MEASURED[name] and store.made == [] and set(store.reused) == set(MEASURED[name])
    assert again.to_json() == report.to_json() and again.to_html() == report.to_html()


def rows(report: Report, title: str) -> list[dict]:
    (table,) = [t for r in report.parts() for t in r.tables if title in t.title]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_figure1_shows_the_sets_of_the_paper_on_one_configuration() -> None:
    """C_1 = {2, 3} with A = I, {4} with A = [[2, 1], [1, 1]], by the definition in integers."""
    z = figure1.TOKENS
    assert len(set(z)) == len(z) and all(isinstance(x, int) for token in z for x in token)
    matrices = (((1, 0), (0, 1)), ((2, 1), (1, 1)))
    assert matrices[1] == figure1.QUICK.A
    shown = rows(quick("figure1")[0], "sets behind")[:2]
    for A, row, expected in zip(matrices, shown, ({2, 3}, {4}), strict=True):
        query = tuple(sum(a * x for a, x in zip(line, z[0])) for line in A)
        scores = [query[0] * x + query[1] * y for x, y in z]
        best = max(scores)
        assert {1 + j for j, s in enumerate(scores) if s == best} == expected
        assert row["C_i"] == ", ".join(map(str, sorted(expected)))
        assert row["best score"] == best and row["A z_i"] == query and row["token z_i"] == z[0]
        assert row["gap to the next"] == best - max(s for s in scores if s != best) > 0
        inside = sum(s >= scores[0] for s in scores[1:])
        assert row["others in H"] == inside
        assert len(expected) < inside < len(z) - 1  # H holds tokens not followed, and not all
        assert scores.count(scores[0]) == 1  # no other token sits on the boundary of H
    summary = quick("figure1")[0].summary
    assert "C_1 = {2, 3}" in summary and "C_1 = {4}" in summary


def test_figure1_counts_what_is_in_the_half_space() -> None:
    """(c) on Gaussian tokens, against the definition in floats with a clear gap."""
    p = figure1.QUICK
    row = rows(quick("figure1")[0], "sets behind")[2]
    z = configurations.gaussian(p.n, 2, p.seed)
    scores = z @ np.array(p.A) @ z[p.token]
    assert row["C_i"] == str(np.argmax(scores))
    assert row["others in H"] == (scores > scores[p.token]).sum()
    best, following = np.sort(scores)[::-1][:2]
    assert row["gap to the next"] == pytest.approx(best - following)
    assert (np.linalg.eigvalsh(np.array(p.A)) > 0).all()


def test_figure1_refuses_a_token_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="token"):
        figure1.run(figure1.Params(n=3, token=3))


def test_figure2_finds_what_the_paper_shows() -> None:
    report = quick("figure2")[0]
    overview = rows(report, "Certified limits")
    assert [row["certified"] for row in overview] == ["yes"] * 4
    assert [row["not at a leader"] for row in overview] == [0, 0, 0, 2]
    assert overview[1]["leaders from the start"] == "0, 2"
    assert [row["emerging"] for row in overview] == ["", "1 (layer 1)", "", ""]
    emerging = rows(report, "rational")[1]
    assert emerging["limit"] == (Fraction(-1, 18), Fraction(5, 36))
    assert emerging["leads since"] == 1
    strays = [row for row in rows(report, "Case 4") if row["tends to"] is None]
    assert [row["limit"] for row in strays] == [(-1.0, 0.0), (1.0, 0.0)]
    assert list(report.checks) == list(figure2.CASES.values())
    assert all(len(checks) == len(THEOREMS) for checks in report.checks.values())
    assert report.movies[0].drawing.startswith(b"GIF8")


def test_figure2_counts_tokens_in_the_text() -> None:
    tokens = sum(len(configurations.figure2(case)) for case in figure2.CASES)
    assert f"{tokens} of {tokens} tokens is proved" in quick("figure2")[0].summary


def test_figure2_says_what_depends_on_alpha() -> None:
    """Golden case G1: token 1 leads for alpha = 1/2 and 1, never for 1/10, 2 and 10 (C9)."""
    emerging, without = quick("figure2")[0].controls
    assert "alpha 0.1: 0, alpha 0.5: 1, alpha 1: 1, alpha 2: 0, alpha 10: 0" in emerging.seen
    assert "alpha 0.1: 2, alpha 0.5: 2, alpha 1: 2, alpha 2: 2, alpha 10: 2" in without.seen
    assert emerging.survives and without.survives


def test_figure2_refuses_a_case_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="movie_case"):
        figure2.run(figure2.Params(movie_case=5))


@pytest.mark.parametrize("change", [{"seeds": 0}, {"n": (0,)}, {"d": (8,)}, {"growth_layers": 3}])
def test_first_checks_refuses_what_it_cannot_measure(change: dict) -> None:
    with pytest.raises(ValueError, match="start at 1"):
        first_checks.run(dataclasses.replace(first_checks.QUICK, **change))


def test_reviews_are_drawn_in_their_plane_with_the_decision_line() -> None:
    report = quick("reviews_explained")[0]
    clf = cy.load_pretrained("imdb")
    for chapter, text in zip(report.chapters, EXPERIMENTS["reviews_explained"].QUICK.texts):
        ex = clf.explain(text)
        _, plane = chapter.figures[0].drawing.axes
        (line,) = [a for a in plane.lines if a.get_gid() == "decision"]
        for end in (line.get_xy1(), line.get_xy2()):
            assert abs(ex.v @ end + ex.intercept) < 1e-12 * np.linalg.norm(ex.v)
        (mean,) = [a for a in plane.lines if a.get_gid() == "mean"]
        assert ex.v @ np.ravel(mean.get_data()) + ex.intercept == pytest.approx(ex.decision)
        stars = sum(bool(leader.offsets) for leader in ex.leaders)
        assert stars + 1 == len(plane.collections)  # and the neutral cluster
    assert [c.survives for c in report.controls] == [True, True]


# --- the judges of first_checks are judged ------------------------------------------------------


def test_the_distance_from_S_is_seen() -> None:
    li = limit(PureAttention(alpha=0.5), configurations.golden("G2"))
    assert first_checks._away_from_s(li) == 0  # (±1, 0) are in S although no leader
    points = li.points.copy()
    points[4] = -0.5, 0
    wrong = dataclasses.replace(li, points=points)
    # <s, y> = 1/2 at the left corners, |s|^2 = 1/4, and the longest token has |z|^2 = 2.
    assert first_checks._away_from_s(wrong) == pytest.approx(0.25 / 2)


def test_the_distance_from_S_is_that_of_the_form() -> None:
    A = np.array([[2.0, 1.0], [1.0, 1.0]])
    li = limit(PureAttention(cy.Hardmax(A)), configurations.gaussian(20, 2, 3))
    assert first_checks._away_from_s(li, A) < 1e-15  # and not in the S of another form:
    assert first_checks._away_from_s(li) > 1e-3


def test_first_checks_draws_no_empty_panel() -> None:
    """In dimension 1 all is proved at layer 0 (B12): the caption says so, no panel does."""
    report = quick("first_checks")[0]
    assert 1 in first_checks.QUICK.d
    picture = report.chapters[0].figures[0]
    axes = picture.drawing.axes
    assert [ax.get_title() for ax in axes] == ["d = 2", "d = 3"]
    assert all(max(line.get_ydata().max() for line in ax.lines) > 0 for ax in axes)
    assert "Not shown: d = 1" in picture.caption
    # even if nothing moves anywhere there is a picture
    still = dataclasses.replace(TINY, d=(1,))
    assert len(first_checks.run(still).chapters[0].figures[0].drawing.axes) == 1


def test_every_chapter_of_first_checks_has_its_control(monkeypatch) -> None:
    chapters = quick("first_checks")[0].chapters
    assert [[c.survives for c in r.controls] for r in chapters] == [[True]] * 3
    honest = first_checks._fitted_factor
    monkeypatch.setattr(first_checks, "_fitted_factor", lambda tr: honest(tr) * 1.0001)
    assert [c.survives for c in first_checks.run(TINY).chapters[2].controls] == [False]


def shifted(li: Limit) -> Limit:
    points = li.points.copy()
    points[np.flatnonzero(li.born < 0)] *= 0.999
    return dataclasses.replace(li, points=points)


TINY = dataclasses.replace(
    first_checks.QUICK, n=(20,), d=(2,), alpha=(0.5,), seeds=2, layers=5, ties=5
)


def checks_of(report: Report) -> dict[str, bool]:
    return {c.theorem: c.holds for r in report.parts() for cs in r.checks.values() for c in cs}


def test_limits_outside_S_make_the_first_experiment_fail(monkeypatch) -> None:
    honest = cy.limit
    assert all(checks_of(first_checks.run(TINY)).values())

    def wrong(*args, exact: bool = False, **options) -> Limit:
        li = honest(*args, exact=exact, **options)
        return li if exact else shifted(li)

    monkeypatch.setattr(cy, "limit", wrong)
    found = checks_of(first_checks.run(TINY))
    assert found["finite set"] is False and found["growth"] is True


def test_a_moving_leader_makes_the_second_experiment_fail(monkeypatch) -> None:
    honest = cy.simulate

    def wrong(*args, **options):
        tr = honest(*args, **options)
        z = tr.z.copy()
        z[-1] = np.nextafter(z[-1], np.inf)
        return dataclasses.replace(tr, z=z)

    monkeypatch.setattr(cy, "simulate", wrong)
    found = checks_of(first_checks.run(TINY))
    assert found == {"finite set": True, "leaders": False, "growth": True}


def test_a_leader_that_is_no_vertex_makes_the_second_experiment_fail(monkeypatch) -> None:
    honest = cy.limit

    def wrong(*args, **options) -> Limit:
        li = honest(*args, **options)
        return li if options else dataclasses.replace(li, leaders=li.leaders[1:])

    monkeypatch.setattr(cy, "limit", wrong)
    assert checks_of(first_checks.run(TINY))["leaders"] is False


def test_a_wrong_factor_makes_the_third_experiment_fail(monkeypatch) -> None:
    honest = first_checks._fitted_factor
    monkeypatch.setattr(first_checks, "_fitted_factor", lambda tr: honest(tr) * 1.0001)
    assert checks_of(first_checks.run(TINY))["growth"] is False


def test_the_fitted_factor_is_the_slope() -> None:
    dynamics = UnnormalizedAttention(alpha=0.25)
    tr = simulate(dynamics, configurations.gaussian(10, 2, 0), layers=20)
    assert first_checks._fitted_factor(tr) == pytest.approx(1.25, rel=1e-12)


# --- demo ----------------------------------------------------------------------------------------


def test_demo_leaves_one_page_and_replaces_it(tmp_path, monkeypatch) -> None:
    quick = {first_checks: TINY, figure2: figure2.Params(movie_layers=1)}
    small = tuple((m, quick.get(m, m.QUICK), share) for m, _, share in demo_module.CHAPTERS)
    assert sum(share for *_, share in small) == pytest.approx(1)
    monkeypatch.setattr(demo_module, "CHAPTERS", small)
    page = tmp_path / "report.html"
    page.write_text(f"<title>{demo_module.TITLE}</title>an earlier one")
    told: list[float] = []
    report = demo(tmp_path, lambda share, what: told.append(share))
    assert [p.name for p in page.parent.iterdir()] == ["report.html"]
    text = page.read_text("utf-8")
    found = Page(text)
    assert found.open == [] and len(set(found.ids)) == len(found.ids)
    assert [c.title for c in report.chapters] == [m.TITLE for m, *_ in small]
    assert all(chapter.title in found.text for chapter in report.chapters)
    assert text.count("data:image/gif") == 1 and text.count("data:image/svg+xml") >= 6
    assert report.failures == [] and report.verdict in found.text
    assert max(told) <= 1 + 1e-9
