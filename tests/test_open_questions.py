"""Numerical truths behind the experiments on open questions, and judges that can say no."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cynosure import configurations
from cynosure.analysis import probes
from cynosure.analysis.clustering import clusters, medoids
from cynosure.analysis.limits import limit
from cynosure.attention import Hardmax, Heads
from cynosure.drawing.report import Report
from cynosure.dynamics import PureAttention, Scheduled
from cynosure.experiments.hardmax import (
    _forms,
    _lattice_boltzmann,
    _street,
    basins,
    control_leaders,
    cylinder_flow,
    emergent_leaders,
    feed_forward,
    finite_depth,
    leader_count,
    robustness_A,
)
from cynosure.experiments.heads import multi_head
from cynosure.simulation.loop import simulate
from cynosure.theorems import expected_leaders


def rows(report: Report, title: str) -> list[dict]:
    (table,) = [t for t in report.tables if title in t.title]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


# --- leader_count --------------------------------------------------------------------------------


def test_counted_leaders_agree_with_the_formula() -> None:
    p = leader_count.Params(starts=150, followed_through=2)
    for d, n in ((1, 20), (2, 50), (5, 30)):
        cell = leader_count._count(p, d, n)
        assert cell.expected == expected_leaders(n, d)
        assert abs(cell.deviation) < 4


def test_a_wrong_formula_is_noticed(monkeypatch) -> None:
    p = leader_count.Params(d=(2,), n=(50,), starts=150, followed_through=2)
    monkeypatch.setattr(leader_count, "expected_leaders", lambda n, d: 1.2 * expected_leaders(n, d))
    assert leader_count._check([leader_count._count(p, 2, 50)]).holds is False


def test_embeddings_can_be_read_from_a_file(tmp_path) -> None:
    path = tmp_path / "tokens.npy"
    np.save(path, configurations.gaussian(60, 3, 0))
    report = leader_count.run(replace(leader_count.QUICK, d=(2,), n=(10,), embeddings=str(path)))
    found = [r for r in rows(report, "real data") if r["data"] == "embeddings"]
    assert [r["d"] for r in found] == [2, 3]


def test_data_beside_their_gaussian_twins() -> None:
    """Gaussian tokens as data: both counts agree with the formula of their second moments."""
    p = replace(leader_count.QUICK, n=(30,), directions=(2,), drawn=400)
    z = configurations.gaussian(20_000, 3, 1) * np.array([1.0, 0.7, 0.4])
    for found in leader_count._against_gaussian(p, "data", z):
        for mean in (found.real, found.gaussian):
            assert abs(mean - found.formula) < 6 * found.error
    assert {d for _, d, *_ in leader_count._against_gaussian(p, "data", z)} == {2, 3}


def test_words_of_a_review_settle_on_few_leaders() -> None:
    for review, tokens, first, last, certified in leader_count._reviews().rows:
        assert certified and 2 <= first <= last < tokens / 4 and review in (1, 2, 3)


def test_unknown_data_are_refused() -> None:
    with pytest.raises(ValueError, match="digits, reviews, MiniLM"):
        leader_count.run(replace(leader_count.QUICK, data=("iris",)))


# --- emergent_leaders ----------------------------------------------------------------------------


def test_births_of_the_golden_cases() -> None:
    table = emergent_leaders._golden_table()
    found = {(r[0], r[1]): r for r in table.rows}
    assert found["G1", "1/2"][3] == "1 at layer 1, (-1/18, 5/36)"
    assert found["G1", "2"][3] == "none"
    assert found["G4", "1/10"][3].startswith("4 at layer 61")


def test_births_name_vertices_and_inner_tokens() -> None:
    z = configurations.golden("G4")
    li = limit(PureAttention(alpha=2), z)
    (birth,) = emergent_leaders._births(z, li)
    assert birth.layer == li.born[4] > 0 and not birth.vertex
    late = replace(li, born=np.where(np.arange(len(z)) == 0, 7, -1))
    assert emergent_leaders._births(z, late) == [emergent_leaders.Birth(7, True)]


def test_an_unproved_run_fails_the_census(monkeypatch) -> None:
    honest = emergent_leaders._census

    def one_short(*cell):
        census = honest(*cell)
        return census._replace(certified=census.certified - 1)

    monkeypatch.setattr(emergent_leaders, "_census", one_short)
    p = replace(emergent_leaders.QUICK, d=(2,), n=(10,), starts=5, sweep=2, scanned=1)
    ((_, settled),) = emergent_leaders.run(p).failures
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


def test_finite_depth_wants_known_laws() -> None:
    with pytest.raises(ValueError, match="laws"):
        finite_depth.run(replace(finite_depth.QUICK, laws=("cauchy",)))


# --- robustness_A --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_three_tokens_collapse_at_the_known_rate(alpha: float) -> None:
    p = robustness_A.Params(alpha=alpha)
    check, table, _ = robustness_A._collapse(p)
    (row,) = table.rows
    eta = alpha / (1 + alpha)
    assert check.theorem == "B16" and row[1] == 0
    assert row[2] == pytest.approx(abs(1 - eta + eta * np.exp(2j * np.pi / 3)), rel=1e-9)


def test_circles_of_followers() -> None:
    assert _forms.circle(np.array([1, 2, 0, 0]))
    assert _forms.circle(np.array([1, 0, 2]))
    assert not _forms.circle(np.array([0, 0, 1, 3]))


def test_turned_forms_lose_clusters() -> None:
    report = robustness_A.run(replace(robustness_A.QUICK, starts=6, angles=(0, 90), layers=40))
    straight, across = rows(report, "turned by an angle")
    assert straight["norms fell"] == 0 and straight["circle"] == 0
    assert across["one cluster"] == 1 and across["circle"] == 1
    families = {r["A"]: r for r in rows(report, "Families")}
    assert families["symmetric positive definite"]["norms fell"] == 0
    assert families["minus the identity"]["one cluster"] == 1


def test_a_head_is_measured_like_any_form() -> None:
    """A symmetric positive definite "head" keeps norms and leaders; a turned one does not."""
    p = robustness_A.QUICK
    z0 = configurations.gaussian(12, 2, 0)
    good = robustness_A._learned(p, "I", np.diag([2.0, 1.0]), z0)
    assert good.antisymmetric == 0 and good.least == pytest.approx(0.5)
    assert not good.effect.norms_fell and good.effect.leaders == good.effect.clusters
    turned = robustness_A._learned(p, "turned", _forms.turn(2, 100), z0)
    assert turned.antisymmetric > 0.98 and turned.least == -1 and turned.effect.cycle
    text = robustness_A._learned_text([good, turned])
    assert "Of 2 heads of a trained transformer 1 have" in text
    assert robustness_A._learned_text([]) == ""


# --- multi_head ----------------------------------------------------------------------------------


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


def test_a_moving_leader_of_all_heads_is_noticed() -> None:
    p = replace(multi_head.QUICK, heads=(1, 2), starts=2, layers=20)
    assert multi_head.run(p).failures == []
    runs = multi_head._head_runs(p, "random heads", 1)
    bad = multi_head._checks([runs._replace(moved=np.array([0.0, 1e-3]))])
    assert [c.holds for c in bad] == [True, False]


# --- feed_forward --------------------------------------------------------------------------------


def test_a_sublayer_of_weight_zero_is_no_sublayer() -> None:
    p = feed_forward.QUICK
    z = feed_forward._layers(p, 2, 0.0, 0)
    z0 = configurations.gaussian(p.n, 2, p.seed)
    plain = simulate(PureAttention(alpha=p.alpha), z0, layers=p.layers).values
    plain = plain / np.linalg.norm(plain, axis=-1).max(axis=1)[:, None, None]
    assert z == pytest.approx(plain, abs=1e-12)


def test_the_sublayer_is_homogeneous_and_alike_for_all_tokens() -> None:
    dynamics = feed_forward._dynamics(feed_forward.QUICK, 4, 0.7, 1)
    assert isinstance(dynamics, Scheduled)
    sublayer = dynamics.layers[1]
    z = configurations.gaussian(6, 4, 0)
    assert sublayer.step(3.0 * z, 0) == pytest.approx(3.0 * sublayer.step(z, 0))
    assert sublayer.step(z[::-1], 0) == pytest.approx(sublayer.step(z, 0)[::-1])


def test_lost_leaders_without_a_sublayer_fail_the_check() -> None:
    good, bad = (feed_forward.LeadersLeft(share, 3, 3, 0.0, 1.0) for share in (1.0, 0.5))
    assert feed_forward._check([feed_forward.Weight(2, 0.0, [good])]).holds is True
    assert feed_forward._check([feed_forward.Weight(2, 0.0, [good, bad])]).holds is False


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
    bad, *_ = basins._controls(p, [first._replace(start_agree=0.99)])
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
    p = replace(control_leaders.QUICK, d=(4,), sizes=(2, 8), sets=2, single=1)
    single, trend = control_leaders.run(p).controls
    assert single.survives and trend.survives and "uniform in a ball, d = 4" in trend.seen
    rising = property(lambda group: group.size / 100)
    monkeypatch.setattr(control_leaders.TargetSets, "rate", rising)
    assert [c.survives for c in control_leaders.run(p).controls] == [True, False]


# --- cylinder_flow -------------------------------------------------------------------------------


def test_the_lattice_keeps_mass_momentum_and_rest() -> None:
    """The equilibrium has the density and velocity asked for; a uniform stream stays uniform."""
    lb = _lattice_boltzmann
    rng = np.random.default_rng(0)
    rho, u = 1 + 0.1 * rng.standard_normal((6, 7)), 0.05 * rng.standard_normal((2, 6, 7))
    f = lb._equilibrium(rho, u)
    nothing = np.zeros((6, 7), dtype=bool)
    assert f.sum(axis=0) == pytest.approx(rho)
    assert lb._velocity(f, nothing) == pytest.approx(u)
    stream = np.stack([np.full((6, 7), 0.1), np.zeros((6, 7))])
    f = lb._equilibrium(np.ones((6, 7)), stream)
    rates = np.full(7, 1.5), np.full(7, 1.2)
    args = (nothing, lb._plain(nothing), *rates, 0.1, 20, 3, 3)
    after, track = lb._advance(f.copy(), f.copy(), *args)
    assert after == pytest.approx(f, abs=1e-12) and np.abs(track).max() < 1e-12


def test_a_shear_wave_decays_with_the_viscosity() -> None:
    """u = sin(2 pi y/N) decays like exp(-nu (2 pi/N)^2 t): the lattice has the viscosity it says.

    Measured after the first steps, which build up the viscous stress, in the middle of a channel
    so wide that the inlet is not felt there.
    """
    lb = _lattice_boltzmann
    ny, nx, steps, nu = 32, 240, 60, 0.05
    y = np.arange(ny)
    wave = 0.01 * np.sin(2 * np.pi * y / ny)
    u = np.stack([np.tile(wave[:, None], (1, nx)), np.zeros((ny, nx))])
    f = lb._equilibrium(np.ones((ny, nx)), u)
    even = 1 / (3 * nu + 0.5)
    odd = 1 / (1 / 12 / (1 / even - 0.5) + 0.5)
    nothing = np.zeros((ny, nx), dtype=bool)
    rates = np.full(nx, even), np.full(nx, odd)
    args = (nothing, lb._plain(nothing), *rates, 0.0, steps, 0, 0)
    amplitude = []
    for _ in range(2):
        f, _ = lb._advance(f.copy(), f.copy(), *args)
        amplitude.append(lb._velocity(f, nothing)[0, :, nx // 2] @ np.sin(2 * np.pi * y / ny))
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


def test_the_modes_of_a_travelling_wave() -> None:
    """cos(x - w t) has two modes of equal energy and the frequency w."""
    x, t = np.linspace(0, 2 * np.pi, 64, endpoint=False), np.arange(60)
    wave = np.cos(x[None] - 0.37 * t[:, None])
    velocity = np.broadcast_to(wave[:, None, None], (60, 2, 1, 64)).astype(np.float32)
    flow = _lattice_boltzmann.Wake(velocity, np.zeros((1, 64), bool), np.zeros(1), 5, 10.0, 0.1)
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


def test_a_rehearsal_says_that_it_is_one() -> None:
    coarse = cylinder_flow.run(cylinder_flow.QUICK)
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
        (emergent_leaders, {"starts": 0}),
        (feed_forward, {"weights": (0.1,)}),
        (leader_count, {"starts": 1}),
        (multi_head, {"layers": 1}),
        (robustness_A, {"d": 1}),
    ],
)
def test_parameters_that_make_no_sense_are_refused(module, change: dict) -> None:
    with pytest.raises(ValueError, match="got"):
        module.run(replace(module.QUICK, **change))
