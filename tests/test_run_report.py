"""cy.report: the page of a run says what the run, its limits and its checks say; it stays small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy
from cynosure import configurations
from cynosure._deadline import Deadline
from cynosure._types import fingerprint
from cynosure.analysis.findings import findings
from cynosure.cli import main
from cynosure.drawing import run_report
from test_report import Page

HARDMAX = cy.PureAttention(alpha=0.5)
FIVE = configurations.gaussian(5, 2)


def run(dynamics: cy.dynamics.Dynamics, z: np.ndarray, **clock) -> cy.Trajectory:
    return cy.simulate(dynamics, z, throw=False, **clock)


def titles(report: cy.study.Report) -> list[str]:
    return [table.title for table in report.tables]


def columns(table: cy.study.Table) -> dict[str, tuple]:
    return dict(zip(table.columns, zip(*table.rows)))


def test_the_page_has_the_numbers_of_limit_and_check() -> None:
    tr = run(HARDMAX, configurations.gaussian(30, 2), layers=12)
    report = cy.report(tr)
    li = cy.limit(HARDMAX, tr.z[0])
    layers, leaders, limits = map(columns, report.tables)
    assert limits["token"] == tuple(range(30))
    assert np.array_equal(np.array(limits["limit"]), li.points)
    assert limits["smallest gap"] == tuple(li.margin.tolist())
    for i, said in enumerate(limits["how the limit is known"]):
        assert said.startswith("leads" if li.born[i] >= 0 else "follows a leader")
        assert str(li.settled_at[i]) in said
        assert li.born[i] >= 0 or f"token {li.follows[i]}" in said
    assert sorted(leaders["leader"]) == li.leaders.tolist()
    assert sum(leaders["tokens that end there"]) == 30
    assert layers["layer"] == tuple(range(13))
    assert layers["leaders"][-1] == len(li.leaders)
    assert layers["area of the hull"][3] == pytest.approx(cy.hull(tr.z[3]).volume)
    expected = cy.check(tr)
    assert [(c.theorem, c.applies, c.holds) for c in report.checks["this run"]] == [
        (c.theorem, c.applies, c.holds) for c in expected
    ]
    assert report.params["alpha"] == "0.5" and report.params["layers"] == 12
    assert report.params["n"] == 30 and report.params["d"] == 2
    assert len(report.figures) == 2 and Page(report.to_html()).open == []


def test_what_is_handed_over_is_what_is_shown() -> None:
    tr = run(HARDMAX, configurations.golden("G1"), layers=3)
    li = cy.limit(HARDMAX, configurations.golden_exact("G1"), exact=True)
    checks = cy.check(tr, only=["B1", "B5"])
    report = cy.report(tr, li, checks, title="Mine", command="do it", inputs={"from": "me"})
    assert report.title == "Mine" and report.command == "do it" and report.params["from"] == "me"
    assert report.checks["this run"] == tuple(checks)
    assert columns(report.tables[2])["limit"] == li.exact_points
    assert "arithmetic: exact" in report.summary


def test_the_hash_is_of_the_numbers() -> None:
    z = configurations.golden("G2")
    one, other = (cy.report(run(HARDMAX, x, layers=1)).params["tokens_sha256"] for x in (z, 2 * z))
    assert one == fingerprint(z) == fingerprint(z.copy()) != other


@pytest.mark.parametrize("d", [1, 2, 3, 4, 20])
@pytest.mark.parametrize("n", [1, 9])
def test_any_dimension_and_a_single_token(n: int, d: int) -> None:
    report = cy.report(run(HARDMAX, configurations.gaussian(n, d), layers=4))
    assert titles(report) == ["Layer by layer", "Leaders", "Limits"]
    size = {1: "width of the hull", 2: "area of the hull", 3: "volume of the hull"}.get(d, "radius")
    assert report.tables[0].columns[-1] == size
    assert len(report.tables[2].rows[0][2]) == min(d, run_report.MOST_COORDINATES)
    assert ("first 8" in report.tables[2].note) == (d > 8)
    assert Page(report.to_html()).open == []


def test_a_flow_is_told_by_its_clusters() -> None:
    tr = run(cy.dynamics.RescaledFlow(), configurations.gaussian(12, 2), time=20.0)
    report = cy.report(tr)
    assert titles(report) == ["Time by time", "Clusters at the end", "The last state"]
    end = cy.recognise(tr)
    assert str(end) in report.summary
    sizes = columns(report.tables[1])["tokens"]
    assert sorted(sizes) == sorted(np.bincount(end.labels).tolist())
    assert columns(report.tables[2])["cluster"] == tuple(end.labels.tolist())
    assert report.params["time"] == 20.0 and "Adaptive" in report.params["stepper"]
    assert len(report.tables[0].rows) == run_report.MOST_STATES < len(tr)
    assert "Shown are 40 of" in report.tables[0].note


@pytest.mark.parametrize("d", [2, 5])
def test_a_failed_run_has_a_page_that_says_so(d: int) -> None:
    growing = cy.dynamics.UnnormalizedAttention(alpha=1.0)
    tr = run(growing, configurations.gaussian(8, d), layers=2000, save_every=100)
    assert tr.status.code == "overflow"
    report = cy.report(tr)
    assert "The run failed" in report.summary and tr.status.message in report.summary
    sizes = columns(report.tables[0])[report.tables[0].columns[-1]]
    assert sizes[0] > 0 and sizes[-1] is None
    assert "too large to draw" in report.figures[0].caption
    assert Page(report.to_html()).open == []


def test_cautions_are_on_the_page() -> None:
    skew = cy.PureAttention(cy.Hardmax([[1.0, 2.0], [0.0, 1.0]]), 0.5)
    z = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [-2.0, 0.0]])
    report = cy.report(run(skew, z, layers=5))
    for words in ("1 zero token(s)", "1 duplicate token(s)", "not symmetric positive definite"):
        assert words in report.summary
    assert "[[1.0, 2.0], [0.0, 1.0]]" in report.params["attention"]


def test_an_undecided_limit_is_called_so() -> None:
    tr = run(cy.PureAttention(alpha=0.1), configurations.golden("G4"), layers=3)
    report = cy.report(tr, cy.limit(tr.dynamics, tr.z[0], max_layers=0))
    assert "undecided" in report.summary
    ways = columns(report.tables[2])["how the limit is known"]
    assert "undecided after 0 layers" in ways


def test_words_are_shown_and_cannot_bring_a_script() -> None:
    tr = run(HARDMAX, configurations.gaussian(3, 2), layers=2)
    word = "<script>alert(1)</script>"
    page = Page(cy.report(replace(tr, words=(word, "b", "c"))).to_html())
    assert word in page.text and "script" not in page.tags


def test_a_big_run_makes_a_small_page() -> None:
    tr = run(HARDMAX, configurations.gaussian(3000, 2), layers=100)
    report = cy.report(tr, checks=())
    layers, _, limits = report.tables
    assert len(layers.rows) == run_report.MOST_STATES
    assert len(limits.rows) == run_report.MOST_ROWS and "200 of 3000 tokens" in limits.note
    assert "of 3000 tokens." in report.figures[0].caption
    assert len(report.to_html()) < 2_000_000


def test_of_many_tokens_every_leader_is_drawn(monkeypatch) -> None:
    monkeypatch.setattr(run_report, "MOST_DRAWN", 4)
    tr = run(HARDMAX, configurations.gaussian(40, 2), layers=3)
    drawn, note = run_report._drawable(tr)
    assert drawn.mask is not None and drawn.mask[cy.roles(tr).leaders].all()
    assert drawn.mask.sum() <= 4 + len(cy.roles(tr).leaders) < 40
    assert f"Drawn are {drawn.mask.sum()} of 40" in note
    flow = run(cy.dynamics.RescaledFlow(), configurations.gaussian(40, 2), time=1.0)
    assert run_report._drawable(flow)[0].z.shape[1] == 4


def test_padding_is_not_reported_and_a_batch_is_refused() -> None:
    z = configurations.gaussian(6, 2)
    mask = np.array([True, True, False, True, True, False])
    report = cy.report(cy.simulate(HARDMAX, z, layers=3, mask=mask))
    assert columns(report.tables[2])["token"] == (0, 1, 3, 4)
    assert "4 tokens of dimension 2" in report.title
    with pytest.raises(ValueError, match=r"select\(b\)"):
        cy.report(cy.simulate(HARDMAX, np.stack([z, z]), layers=1))


def test_a_run_without_a_known_model_has_a_page() -> None:
    tr = run(HARDMAX, configurations.gaussian(5, 2), layers=3)
    report = cy.report(replace(tr, dynamics=None, history=None))
    assert report.params["dynamics"] == "unknown"
    assert titles(report) == ["Layer by layer", "Clusters at the end", "The last state"]


# --- one run, analysed once -----------------------------------------------------------------------


def test_no_hull_and_no_proof_is_computed_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`limit --report` of five tokens made 63 hulls and proved their limits twice."""
    asked, proofs, limits, body = [], [], cy.limit, cy.hull
    for home in ("analysis.findings", "drawing.plot", "analysis.limits"):
        name = f"cynosure.{home}.hull"
        monkeypatch.setattr(name, lambda z: asked.append(z.tobytes()) or body(z))
    for home in ("analysis.findings", "analysis.limits", "theorems.layers"):
        name = f"cynosure.{home}.limit"
        monkeypatch.setattr(name, lambda *a, **k: proofs.append(a) or limits(*a, **k))
    assert main(["limit", "gaussian:n=5,d=2", "--report", str(tmp_path / "page.html")]) == 0
    drawn = 31  # layers of the table by layer, and one hull of the leaders
    assert len(asked) == drawn + 1 and len(set(asked)) == len(asked)
    assert len(proofs) == 1


def test_a_report_takes_over_the_limit_it_is_given_and_keeps_the_findings() -> None:
    tr = cy.simulate(cy.PureAttention(), FIVE, layers=6)
    li = cy.limit(tr.made_by, FIVE)
    cy.report(tr, li)
    assert findings(tr).limit is li and findings(tr) is findings(tr)
    assert findings(replace(tr, z=tr.z * 2)).limit is not li
    k = 3
    body = findings(tr).hull(k)
    whole = cy.hull(tr.values[k])
    assert body.volume * 4.0 ** findings(tr).exponent == pytest.approx(whole.volume, rel=1e-12)


def test_the_deadline_of_a_run_ends_the_checks_too() -> None:
    tr = cy.simulate(cy.PureAttention(), FIVE, layers=6)
    findings(tr).deadline = Deadline(1e-9)
    checks = cy.check(tr)
    assert not any(c.applies for c in checks)
    assert "judged before the deadline" in str(checks[0])
