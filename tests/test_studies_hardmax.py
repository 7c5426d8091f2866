"""Numerical truths behind the experiments on open questions, and judges that can say no."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cynosure import configurations
from cynosure.analysis import probes
from cynosure.analysis.clustering import clusters, medoids
from cynosure.analysis.limits import limit
from cynosure.analysis.polytope import hull
from cynosure.attention import Hardmax, Heads
from cynosure.drawing.report import Report
from cynosure.dynamics import PureAttention
from cynosure.simulation.loop import simulate
from cynosure.study import Cell
from cynosure.theorems import expected_leaders
from studies._extremes import standing_out
from studies.hardmax import (
    _forms,
    _street,
    basins,
    control_leaders,
    cylinder_flow,
    feed_forward,
    finite_depth,
    leader_count,
    robustness_A,
)
from studies.heads import _hardmax_heads, several_heads
from test_studies import quick


def rows(report: Report, title: str) -> list[dict]:
    (table,) = [t for t in report.tables if title in t.title]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


# --- leader_count --------------------------------------------------------------------------------

TINY = replace(
    leader_count.QUICK, d=(2,), n=(10,), late_d=(2,), late_n=(10,), late_starts=5, scanned=1,
    law_starts=5,
)  # fmt: skip


def test_counted_leaders_agree_with_the_formula() -> None:
    p = leader_count.Params(starts=150)
    for d, n in ((1, 20), (2, 50), (5, 30)):
        cell = leader_count._count(p, d, n)
        assert cell.expected == expected_leaders(n, d)
        assert abs(leader_count._deviation(cell)) < 4


def test_a_wrong_formula_is_noticed(monkeypatch) -> None:
    p = leader_count.Params(d=(2,), n=(50,), starts=150)
    monkeypatch.setattr(leader_count, "expected_leaders", lambda n, d: 1.2 * expected_leaders(n, d))
    assert leader_count._check([leader_count._count(p, 2, 50)]).holds is False


def test_embeddings_can_be_read_from_a_file(tmp_path) -> None:
    path = tmp_path / "tokens.npy"
    np.save(path, configurations.gaussian(60, 3, 0))
    report = leader_count.run(replace(TINY, embeddings=str(path)))
    found = [r for r in rows(report, "real data") if r["data"] == "embeddings"]
    assert [r["d"] for r in found] == [2, 3]


def test_the_formula_of_another_dimension_does_not_pass_for_the_right_one() -> None:
    p = leader_count.Params(d=(2, 5), n=(30, 100), starts=150)
    cells = [leader_count._count(p, d, n) for d in p.d for n in p.n]
    agrees, *_ = leader_count._controls(p, cells, [])
    assert agrees.survives and "for d + 1 0 of 4" in agrees.seen
    other = [c.replace(expected=expected_leaders(c.n, c.d + 1)) for c in cells]
    assert not leader_count._controls(p, other, [])[0].survives


def test_data_beside_their_gaussian_twins() -> None:
    """Gaussian tokens as data: both counts agree with the formula of their second moments."""
    p = replace(leader_count.QUICK, n=(30,), directions=(2,), drawn=400)
    z = configurations.gaussian(20_000, 3, 1) * np.array([1.0, 0.7, 0.4])
    for found in leader_count._against_gaussian(p, "data", z):
        for mean in (found.real, found.gaussian):
            assert abs(mean - found.formula) < 6 * found.error
    assert {c.d for c in leader_count._against_gaussian(p, "data", z)} == {2, 3}


def test_unknown_data_are_refused() -> None:
    with pytest.raises(ValueError, match="digits, reviews, MiniLM"):
        leader_count.run(replace(leader_count.QUICK, data=("iris",)))


# --- leaders born late ---------------------------------------------------------------------------


def test_births_name_vertices_and_inner_tokens() -> None:
    z = configurations.golden("G4")
    li = limit(PureAttention(alpha=2), z)
    (birth,) = leader_count._births(z, li)
    assert birth.layer == li.born[4] > 0 and not birth.vertex
    late = replace(li, born=np.where(np.arange(len(z)) == 0, 7, -1))
    assert leader_count._births(z, late) == [leader_count.Birth(7, True)]


def test_other_laws_are_drawn_as_they_are_named() -> None:
    p = replace(leader_count.QUICK, law_starts=3)
    for law in p.laws:
        census = leader_count._law(p, law, 0.5)
        starts = [leader_count.LAWS[law](p.law_n, 2, s) for s in range(3)]
        limits = [limit(PureAttention(alpha=0.5), z) for z in starts]
        assert census.law == law and census.leaders == sum(len(li.leaders) for li in limits)
        assert census.with_births == sum((li.born > 0).any() for li in limits)
    norm = np.linalg.norm(leader_count.LAWS["student"](20_000, 2, seed=0), axis=1)
    # |x|^2 / 2 has the F(2, 2) law, whose median is 1 and whose 99th percentile is 99.
    assert np.median(norm**2 / 2) == pytest.approx(1, rel=0.05)
    assert np.quantile(norm**2 / 2, 0.99) == pytest.approx(99, rel=0.2)


def test_a_late_birth_elsewhere_refutes_an_early_one() -> None:
    p = replace(leader_count.QUICK, alpha=(0.5,), late_d=(2, 4))
    cell = leader_count.BirthCensus(2, 10, 0.5, 400, 400, 40, 900, ())
    early = cell._replace(births=(leader_count.Birth(3, True),))
    later = cell._replace(births=(leader_count.Birth(41, True),), law="student")
    high = cell._replace(d=4, with_births=0)
    for laws, survives in (([early], True), ([early, later], False)):
        rare, falls, soon, depends = leader_count._late_controls(
            p, [early, high], laws, [(2, 0, 9)]
        )
        assert soon.survives is survives and rare.survives and falls.survives
        assert not depends.survives  # 0 of 9
    often = later._replace(with_births=120)
    assert not leader_count._late_controls(p, [early, high], [often], [(2, 9, 9)])[0].survives


def test_an_unproved_run_fails_the_census(monkeypatch) -> None:
    honest = leader_count._census

    def one_short(*cell):
        census = honest(*cell)
        return census._replace(certified=census.certified - 1)

    monkeypatch.setattr(leader_count, "_census", one_short)
    p = replace(TINY, late_d=(2,), late_n=(10,), late_starts=5, scanned=1)
    ((_, settled),) = leader_count.run(p).failures
    assert settled.theorem == "settled" and settled.margin == -2


# --- finite_depth --------------------------------------------------------------------------------


def test_the_hull_distance_is_that_of_the_farthest_token() -> None:
    z = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0], [0.2, 0.0]])
    li = limit(PureAttention(), z)
    assert finite_depth._to_hull(z, li.polytope) == 0
    z[4] = 3.0, 0.5
    assert finite_depth._to_hull(z, li.polytope) == pytest.approx(2.0)


def test_a_follower_that_is_too_slow_is_noticed() -> None:
    z0 = configurations.gaussian(12, 2, 1)
    dynamics = PureAttention(alpha=1.0)
    li, z = limit(dynamics, z0), simulate(dynamics, z0, layers=12).values
    gaps = np.linalg.norm(z - li.points, axis=-1)
    assert finite_depth._slowest(gaps, li, 1.0) == pytest.approx(1, abs=1e-6)
    assert finite_depth._slowest(gaps, li, 1.1) < 0.99


def test_followers_are_counted_without_the_leaders() -> None:
    p = replace(finite_depth.QUICK, starts=3)
    cell = finite_depth._curves(p, "gaussian", None, 2, 30, 0.5)
    for s in range(3):
        li = limit(PureAttention(alpha=0.5), configurations.gaussian(30, 2, s))
        follows = li.born != 0
        assert cell.led_first[s] == pytest.approx(1 - follows.mean())
        for k in (0, 3):
            known = (li.settled_at[follows] >= 0) & (li.settled_at[follows] <= k)
            assert cell.followers[s, k] == pytest.approx(known.mean())
    assert (cell.followers[:, 0] < cell.settled[:, 0]).all()  # leaders are settled by definition
    alone = finite_depth._curves(p, "gaussian", None, 40, 3, 0.5)  # everybody leads
    assert np.isnan(alone.followers).all() and finite_depth._mean([alone], "followers", 0) is None
    assert finite_depth._near([alone], 6) == (0, 0)


def test_a_legend_names_no_curve_that_is_not_there() -> None:
    report = finite_depth.run(replace(finite_depth.QUICK, starts=1, laws=("gaussian",)))
    (picture,) = report.figures
    for ax in picture.drawing.axes:
        legend = ax.get_legend()
        drawn = [x for x in ax.get_lines() if np.isfinite(np.asarray(x.get_ydata(), float)).any()]
        names = [t.get_text() for t in legend.get_texts() if not t.get_text().endswith(": none")]
        labels = [x.get_label() for x in drawn if not x.get_label().startswith("_")]
        assert names == labels or names == ["tokens", "hulls", r"$(1+\alpha)^{-k}$"]
        assert drawn or not names


def test_finite_depth_wants_known_laws() -> None:
    with pytest.raises(ValueError, match="laws"):
        finite_depth.run(replace(finite_depth.QUICK, laws=("cauchy",)))


# --- robustness_A --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_three_tokens_collapse_at_the_known_rate(alpha: float) -> None:
    p = robustness_A.Params(alpha=(alpha,))
    check, table = robustness_A._collapse(p)
    (row,) = table.rows
    eta = alpha / (1 + alpha)
    assert check.theorem == "B16" and row[2] == 0
    assert row[3] == pytest.approx(abs(1 - eta + eta * np.exp(2j * np.pi / 3)), rel=1e-9)


def test_circles_of_followers_go_through_different_places() -> None:
    z = np.arange(8.0).reshape(4, 2)
    assert _forms.circle(np.array([1, 2, 0, 0]), z)
    assert _forms.circle(np.array([1, 0, 2]), z[:3])
    assert not _forms.circle(np.array([0, 0, 1, 3]), z)
    met = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])  # 0 and 1 follow each other's copies
    assert not _forms.circle(np.array([1, 0, 0]), met)


def test_the_middle_of_an_edge_is_no_vertex() -> None:
    """Also when rounding pushed it outwards, where an exact hull counts it."""
    z = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0], [1.0, -1e-13]])
    assert len(hull(z).index) == 4
    *corners, middle = standing_out(z)
    assert corners == pytest.approx([1.0, 1.0, 1.0]) and 0 < middle < 2e-13
    assert standing_out(z[:1]).tolist() == [np.inf]


def test_turned_forms_lose_limits_but_no_leader() -> None:
    p = replace(robustness_A.QUICK, starts=6, angles=(0, 90, 180), alpha=(0.5, 2.0))
    report = robustness_A.run(p)
    by = {(r["A"], r["alpha"]): r for r in rows(report, "turned by an angle")}
    for alpha in p.alpha:
        straight, across = by["0", alpha], by["90", alpha]
        assert straight["norms fell"] == 0 and straight["circle"] == 0
        assert across["one limit"] == 1 and across["circle"] == 1
        assert by["180", alpha]["none leads"] == 0 and by["180", alpha]["leaders"] == 1
    families = [r for r in rows(report, "Families") if r["A"] == "symmetric positive definite"]
    assert all(r["norms fell"] == 0 and r["leaders"] == r["limits"] for r in families)
    survives = [c.survives for c in report.controls]
    assert survives == [True, False, True, True, False]


def test_a_leaderless_run_refutes_the_conjecture() -> None:
    p = replace(robustness_A.QUICK, starts=2, angles=(0,), alpha=(0.5,))
    good = robustness_A._drawn(p, "arbitrary", (8, 2), 0.5)
    bad = good.replace(runs=[good.runs[0], good.runs[1].replace(leaders=0, led=0)])
    turned = [robustness_A._turned(p, 0, 0.5)]
    nudged = [robustness_A._nudged(p, x, 0.5) for x in p.nudges]
    for families, sound in (([good], True), ([bad], False)):
        conjecture, leaderless, *_ = robustness_A._controls(p, turned, families, nudged)
        assert conjecture.survives is sound and leaderless.survives is not sound
    assert "1 of 4" in leaderless.seen
    only = replace(p, alpha=(1.0,))  # nothing but the step at which followers meet: no evidence
    turned, met = [turned[0].replace(alpha=1.0)], good.replace(alpha=1.0)
    assert not robustness_A._controls(only, turned, [met], nudged)[0].survives


def test_three_tokens_with_an_error_find_a_leader_the_later_the_smaller_it_is() -> None:
    p = replace(robustness_A.QUICK, starts=5)
    late, early = (robustness_A._nudged(p, x, 0.5).born for x in (1e-8, 1e-2))
    assert (early >= 0).all() and (late > early).all()


# --- several heads -------------------------------------------------------------------------------


def test_equal_heads_are_one_head() -> None:
    z0 = configurations.gaussian(12, 2, 0)
    one = simulate(PureAttention(Hardmax()), z0, layers=8).values
    four = simulate(PureAttention(Heads([Hardmax()] * 4)), z0, layers=8).values
    assert four == pytest.approx(one, abs=1e-14)


def test_heads_settle_between_tokens() -> None:
    """Two heads that pull a token to different leaders leave it half-way between them."""
    z0 = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.3]])
    heads = Heads([Hardmax(np.diag([1.0, 0.1])), Hardmax(np.diag([0.1, 1.0]))])
    z = simulate(PureAttention(heads), z0, layers=60).values
    assert np.array_equal(z[-1][:2], z0[:2])  # both lead in both heads
    assert z[-1][2] == pytest.approx([0.5, 0.5])


def test_forms_have_the_condition_asked_for_and_round_ones_agree() -> None:
    A = _hardmax_heads.conditioned(5, 25.0, np.random.default_rng(0))
    values = np.linalg.eigvalsh(A)
    assert (A == A.T).all() and values[-1] / values[0] == pytest.approx(25)
    p = replace(several_heads.QUICK, counted=12)
    round_ones = _hardmax_heads.lead_in_all(p, 2, 1.0, 4)
    assert (round_ones.counts == round_ones.single).all()  # A is the identity: one head
    z = configurations.gaussian(p.n, 2, p.seed)
    assert round_ones.single[0] == Hardmax().followed(z).leads.sum()
    assert _hardmax_heads.alone(round_ones, p.n) == pytest.approx(
        p.n * (round_ones.single.mean() / p.n) ** 4
    )


def test_rare_leaders_of_all_heads_are_asked_for_every_form_and_dimension() -> None:
    p = replace(several_heads.QUICK, heads=(1, 4), dims=(2,), conditions=(1.4, 25.0))
    groups = [
        _hardmax_heads.head_runs(replace(p, starts=2, layers=5), kind, h)
        for kind in _hardmax_heads.KINDS
        for h in p.heads
    ]
    leads = [_hardmax_heads.lead_in_all(p, 2, x, h) for x in p.conditions for h in p.heads]
    rare, agree, _ = _hardmax_heads.controls(p, groups, leads)
    assert not rare.survives and agree.survives  # nearly round forms keep their leaders
    strong = replace(p, conditions=(25.0,))
    assert _hardmax_heads.controls(strong, groups, leads)[0].survives


def test_a_moving_leader_of_all_heads_is_noticed() -> None:
    p = replace(several_heads.QUICK, questions=("hardmax",), heads=(1, 2), starts=2, layers=20)
    assert several_heads.run(p).failures == []
    runs = _hardmax_heads.head_runs(p, "random heads", 1)
    bad = _hardmax_heads.checks([runs.replace(moved=np.array([0.0, 1e-3]))])
    assert [c.holds for c in bad] == [True, False]


# --- feed_forward --------------------------------------------------------------------------------


def test_a_sublayer_of_weight_zero_is_no_sublayer() -> None:
    p = feed_forward.QUICK
    z = feed_forward._layers(p, "with attention", 2, 0.0, 0)
    z0 = configurations.gaussian(p.n, 2, p.seed)
    plain = simulate(PureAttention(alpha=p.alpha), z0, layers=max(p.depths)).values
    plain = plain / np.linalg.norm(plain, axis=-1).max(axis=1)[:, None, None]
    assert z == pytest.approx(plain, abs=1e-12)


def test_without_attention_only_the_sublayer_moves_tokens() -> None:
    p = feed_forward.QUICK
    z0 = configurations.gaussian(p.n, 2, p.seed)
    still = feed_forward._layers(p, "without", 2, 0.0, 0)
    assert np.array_equal(still[0], still[-1])
    once = feed_forward._sublayer(p, 2, 0.2, 0).step(z0, 0)
    moved = feed_forward._layers(p, "without", 2, 0.2, 0)
    assert moved[1] == pytest.approx(once / np.linalg.norm(once, axis=1).max())


def test_the_sublayer_is_homogeneous_and_alike_for_all_tokens() -> None:
    sublayer = feed_forward._sublayer(feed_forward.QUICK, 4, 0.7, 1)
    z = configurations.gaussian(6, 4, 0)
    assert sublayer.step(3.0 * z, 0) == pytest.approx(3.0 * sublayer.step(z, 0))
    assert sublayer.step(z[::-1], 0) == pytest.approx(sublayer.step(z, 0)[::-1])


def _cell(kind: str, w: float, still: float, clusters: int) -> Cell:
    runs = [
        Cell(still_lead=still, leaders=3, clusters=clusters + i % 2, moved=w, farthest=10 * w)
        for i in range(6)
    ]
    return Cell(kind=kind, d=2, depth=4, w=w, runs=runs)


def test_lost_leaders_without_a_sublayer_fail_the_check() -> None:
    good, bad = (_cell("with attention", 0.0, still, 3) for still in (1.0, 0.5))
    assert feed_forward._check([good]).holds is True
    assert feed_forward._check([good, bad]).holds is False


@pytest.mark.parametrize(("null", "survives"), [(0.4, False), (0.9, True)])
def test_a_loss_of_leaders_is_set_beside_the_sublayer_alone(null: float, survives: bool) -> None:
    """Lost without attention as well: not a finding about attention."""
    p = replace(feed_forward.QUICK, d=(2,), depths=(4,), weights=(0.0, 0.2))
    cells = [_cell(kind, 0.0, 1.0, 4) for kind in feed_forward.KINDS]
    cells += [_cell("with attention", 0.2, 0.4, 1), _cell("without", 0.2, null, 30)]
    together, by_half, grouped = feed_forward._controls(p, cells)
    assert together.survives is survives
    assert by_half.survives is False and grouped.survives is True  # 20 % of its size; 1 beside 30
    assert (
        "sublayer's doing" in feed_forward._summary(p, cells, [together, by_half, grouped])
    ) is (not survives)


# --- basins --------------------------------------------------------------------------------------


def test_pixels_are_limits_of_their_own_probe() -> None:
    p = replace(basins.QUICK, pixels=12)
    z = configurations.golden("G1")
    atlas = basins._atlas(p, "G1", z, (-1.0, 1.0, -1.0, 1.0))
    centres = -1 + (np.arange(12) + 0.5) / 6
    for r, c in ((2, 3), (6, 6), (11, 0), (7, 9)):
        start = np.vstack([z, [centres[c], centres[r]]])
        li = limit(PureAttention(alpha=p.alpha), start)
        expected = probes.OWN if li.follows[-1] == len(z) else li.follows[-1]
        assert atlas.label[r, c] == expected


def test_a_tied_probe_has_a_limit_that_is_no_leader() -> None:
    square = configurations.golden("G2")[:4]
    label = probes.basins(PureAttention(alpha=0.5), square, np.array([[0.5, 0.0]]))
    assert label.tolist() == [probes.NO_LEADER]


def test_wrong_colours_are_noticed() -> None:
    p = replace(basins.QUICK, pixels=20)
    z = basins._starts(p)["every vertex leads"]
    atlas = basins._atlas(p, "pentagon", z, (-1.2, 1.2, -1.2, 1.2))
    good = basins._check(atlas)
    assert good.applies and good.holds
    r, c = np.argwhere(atlas.inside)[5]
    label = atlas.label.copy()
    label[r, c] = (label[r, c] + 1) % 5
    assert basins._check(atlas._replace(label=label)).holds is False
    born = np.where(np.arange(len(z)) == 0, -1, atlas.li.born)  # a vertex that does not lead
    assert not basins._check(atlas._replace(li=replace(atlas.li, born=born))).applies


def test_outside_the_box_every_probe_leads() -> None:
    """Nothing of a basin is cut off, whatever the start: G1's was."""
    for z in basins._starts(basins.QUICK).values():
        left, right, bottom, top = basins._box(z)
        side = np.linspace(left, right, 60)
        rim = [np.stack([side, np.full(60, y)], axis=1) for y in (bottom, top)]
        rim += [np.stack([np.full(60, x), side], axis=1) for x in (left, right)]
        label = probes.basins(PureAttention(alpha=0.5), z, np.concatenate(rim))
        assert (label == probes.OWN).all()
        # and the box is not larger than it must be by much
        size = np.linalg.norm(z, axis=1, keepdims=True)
        assert right < 1.05 * ((np.abs(z) + size) / 2).max()


def test_the_zoom_is_shown_beside_the_place_it_is_taken_from() -> None:
    p = replace(basins.QUICK, pixels=24, alphas=(0.5,), coarse=8)
    report = basins.run(p)
    (picture,) = report.figures
    *_, second, third, zoom = picture.drawing.axes
    assert len(picture.drawing.axes) == 4 and zoom.get_title() == f"zoom into: {second.get_title()}"
    frames = [[a for a in ax.patches if a.get_gid() == "zoom"] for ax in (second, third, zoom)]
    assert [len(f) for f in frames] == [1, 0, 0]
    (box,) = frames[0]
    assert zoom.get_xlim() == pytest.approx((box.get_x(), box.get_x() + box.get_width()))
    assert zoom.get_ylim() == pytest.approx((box.get_y(), box.get_y() + box.get_height()))


def test_other_alphas_are_set_beside_the_basins() -> None:
    """G1 keeps three leaders at alpha = 1/2 only: elsewhere its polytope is a segment."""
    p = replace(basins.QUICK, coarse=16)
    half, two = (basins._at_alpha(p, "emerging leader (G1)", alpha) for alpha in (0.5, 2.0))
    assert half.leaders == 3 and half.pixels > 0 and half.agree is not None
    assert two.leaders == 2 and two.pixels == 0 and two.agree is None
    assert half.start_pixels == two.start_pixels > 0
    first = basins._at_alpha(p, "every vertex leads", 2.0)
    assert first.start_agree == 1
    good, *_ = basins._controls(p, [first])
    bad, *_ = basins._controls(p, [first.replace(start_agree=0.99)])
    assert good.survives and not bad.survives


# --- control_leaders -----------------------------------------------------------------------------


def test_without_a_solver_single_tokens_are_still_answered(monkeypatch) -> None:
    monkeypatch.setattr(control_leaders, "find_spec", lambda name: None)
    report = control_leaders.run(replace(control_leaders.QUICK, d=(2,), single=1))
    assert "not installed" in report.summary and report.failures == []


def test_a_disagreement_with_the_vertices_fails_the_check(monkeypatch) -> None:
    honest = control_leaders._candidates
    monkeypatch.setattr(control_leaders, "_candidates", lambda z: honest(z)[1:])
    p = replace(control_leaders.QUICK, d=(2,), single=1)
    assert control_leaders._check([control_leaders._singles(p, 2)], []).holds is False


def test_sets_that_lead_the_more_often_the_larger_fail_the_control(monkeypatch) -> None:
    few = {"alone_d": (2,), "alone_sizes": (1,), "alone_sets": 1}
    p = replace(control_leaders.QUICK, d=(4,), sizes=(2, 8), sets=2, single=1, **few)
    single, trend, *_ = control_leaders.run(p).controls
    assert single.survives and trend.survives and "uniform in a ball, d = 4" in trend.seen
    honest = control_leaders._group
    rising = lambda d, size, answers: honest(d, size, answers).replace(rate=size / 100)  # noqa: E731
    monkeypatch.setattr(control_leaders, "_group", rising)
    assert [c.survives for c in control_leaders.run(p).controls][:2] == [True, False]


# --- cylinder_flow -------------------------------------------------------------------------------


def test_the_lattice_keeps_mass_momentum_and_rest() -> None:
    """The equilibrium has the density and velocity asked for; a uniform stream stays uniform."""
    lb = _street
    rng = np.random.default_rng(0)
    rho, u = 1 + 0.1 * rng.standard_normal((6, 7)), 0.05 * rng.standard_normal((2, 6, 7))
    f = lb.equilibrium(rho, u)
    nothing = np.zeros((6, 7), dtype=bool)
    assert f.sum(axis=0) == pytest.approx(rho)
    assert lb.velocity(f, nothing) == pytest.approx(u)
    stream = np.stack([np.full((6, 7), 0.1), np.zeros((6, 7))])
    f = lb.equilibrium(np.ones((6, 7)), stream)
    rates = np.full(7, 1.5), np.full(7, 1.2)
    after = f
    for _ in range(20):
        after, (along, across) = lb.advance(after, nothing, rates, 0.1)
        assert np.abs(across).max() < 1e-12 and along == pytest.approx(0.1)
    assert after == pytest.approx(f, abs=1e-12)


def test_a_wall_sends_back_what_meets_it() -> None:
    """No mass passes the bounce-back of a body in a closed stream at rest."""
    solid = np.zeros((8, 9), dtype=bool)
    solid[3:5, 4:6] = True
    f = _street.equilibrium(np.ones((8, 9)), np.zeros((2, 8, 9)))
    f[1, 3, 3] += 0.01  # flies at the body
    after, _ = _street.advance(f, solid, (1.0, 1.0), 0.0)
    assert after[:, ~solid].sum() == pytest.approx(f[:, ~solid].sum(), abs=1e-12)
    assert after[:, solid] == pytest.approx(f[:, solid])


def test_a_shear_wave_decays_with_the_viscosity() -> None:
    """u = sin(2 pi y/N) decays like exp(-nu (2 pi/N)^2 t): the lattice has the viscosity it says.

    Measured after the first steps, which build up the viscous stress, in the middle of a channel
    so wide that the inlet is not felt there.
    """
    lb = _street
    ny, nx, steps, nu = 32, 240, 60, 0.05
    y = np.arange(ny)
    wave = 0.01 * np.sin(2 * np.pi * y / ny)
    u = np.stack([np.tile(wave[:, None], (1, nx)), np.zeros((ny, nx))])
    f = lb.equilibrium(np.ones((ny, nx)), u)
    rates = _street.relaxation(nu)
    nothing = np.zeros((ny, nx), dtype=bool)
    amplitude = []
    for _ in range(2):
        for _ in range(steps):
            f, _v = lb.advance(f, nothing, rates, 0.0)
        amplitude.append(lb.velocity(f, nothing)[0, :, nx // 2] @ np.sin(2 * np.pi * y / ny))
    rate = -np.log(amplitude[1] / amplitude[0]) / steps
    assert rate == pytest.approx(nu * (2 * np.pi / ny) ** 2, rel=2e-3)


def test_medoids_beat_leaders_and_are_members() -> None:
    z = configurations.gaussian(40, 2, 0)
    distance = np.linalg.norm(z[:, None] - z, axis=-1)
    chosen = medoids(distance, 4)

    def cost(rows: np.ndarray) -> float:
        return float(distance[:, rows].min(axis=1).sum())

    rng = np.random.default_rng(0)
    best = min(cost(rng.choice(40, 4, replace=False)) for _ in range(3000))
    assert len(chosen) == 4 and cost(chosen) <= best * 1.02


def test_leaders_of_an_ellipse_need_no_flow() -> None:
    """A circle's points all lead; those of a flat ellipse only near its ends."""
    equal, flat = (np.array([1.0, x]) for x in (1.0, 0.01))
    around = cylinder_flow._ellipses(1.0, equal, 40, 40.0, 3, 1)
    pressed = cylinder_flow._ellipses(1.0, flat, 40, 40.0, 3, 1)
    assert around.points == 40 and around.leaders[1] == 40  # the middle one is the circle
    assert pressed.leaders.max() < 20
    assert cylinder_flow._ellipses(1.0, flat, 40, 40.0, 3, 4).points == 10


def test_every_other_snapshot_is_another_sample() -> None:
    z = configurations.gaussian(30, 2, 1)
    halves = cylinder_flow._sampled(1.0, z, 2)
    expected = [len(limit(PureAttention(), z[first::2]).leaders) for first in (0, 1)]
    assert halves.leaders.tolist() == expected and halves.points == 15
    assert (halves.cost >= 1 - 1e-12).all()  # medoids are the best members


def test_the_modes_of_a_travelling_wave() -> None:
    """cos(x - w t) has two modes of equal energy and the frequency w."""
    x, t = np.linspace(0, 2 * np.pi, 64, endpoint=False), np.arange(60)
    wave = np.cos(x[None] - 0.37 * t[:, None])
    velocity = np.broadcast_to(wave[:, None, None], (60, 2, 1, 64)).astype(np.float32)
    flow = _street.Wake(velocity, np.zeros((1, 64), bool), np.zeros(1), 5, 10.0, 0.1)
    pod = _street.pod(flow, 4)
    assert pod.energy[:2].sum() == pytest.approx(1, abs=1e-6) and pod.energy[0] < 0.6
    # 0.37 radians in 5 steps; D/U is 100 steps.
    assert pod.frequency == pytest.approx(0.37 / 5 / (2 * np.pi) * 100, rel=1e-2)


def test_an_unstable_flow_is_refused(monkeypatch) -> None:
    honest = _street.wake

    def broken(*args, **options):
        flow = honest(6, 8.0, 4.0, 20.0, 0.5, 0.5, 12)
        return flow._replace(velocity=np.full_like(flow.velocity, np.nan))

    monkeypatch.setattr(_street, "wake", broken)
    with pytest.raises(ArithmeticError, match="unstable"):
        cylinder_flow.run(cylinder_flow.QUICK)


@pytest.mark.slow
def test_the_full_flow_sheds_vortices_at_the_known_frequency() -> None:
    report = cylinder_flow.run(cylinder_flow.Params())
    assert report.failures == []
    table = dict(rows_of_flow(report))
    assert 0.155 < table["Strouhal number, leading POD pair"] < 0.175
    other = table["Strouhal number, velocity behind the cylinder"]
    assert table["Strouhal number, leading POD pair"] == pytest.approx(other, rel=0.01)


def rows_of_flow(report: Report) -> tuple:
    return next(t for t in report.tables if t.title == "The flow").rows


@pytest.mark.xdist_group("cylinder_flow")
def test_a_rehearsal_says_that_it_is_one() -> None:
    coarse, _ = quick("cylinder_flow")
    assert "not the flow of the literature" in coarse.summary
    z = np.zeros((3, 2))
    right, wrong = (cylinder_flow.Pod(z, np.ones(2), x) for x in (0.1671, 0.1801))
    assert cylinder_flow._caution(cylinder_flow.Params(), right) == ""
    assert "rehearsal" in cylinder_flow._caution(cylinder_flow.QUICK, wrong)


# --- all of them ---------------------------------------------------------------------------------


def test_clusters_of_collapsed_tokens_are_seen() -> None:
    """The tolerance used by the experiments joins what has collapsed and nothing else."""
    tr = simulate(PureAttention(), configurations.gaussian(30, 2, 0), layers=40)
    li = limit(PureAttention(), configurations.gaussian(30, 2, 0))
    longest = np.linalg.norm(tr.values[0], axis=1).max()
    found = clusters(tr.values[-1], tol=1e-4 * float(longest))
    assert found.count == len(np.unique(li.points, axis=0))


@pytest.mark.parametrize(
    ("module", "change"),
    [
        (basins, {"pixels": 1}),
        (control_leaders, {"d": (1,)}),
        (cylinder_flow, {"dims": (1,)}),
        (leader_count, {"late_starts": 0}),
        (feed_forward, {"weights": (0.1,)}),
        (leader_count, {"starts": 1}),
        (several_heads, {"layers": 1}),
        (robustness_A, {"sizes": ((8, 1),)}),
    ],
)
def test_parameters_that_make_no_sense_are_refused(module, change: dict) -> None:
    with pytest.raises(ValueError, match="got"):
        module.run(replace(module.QUICK, **change))
