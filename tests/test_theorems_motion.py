"""B39 and B40 (a run is a run of what made it, its roles are those of its states), B41 (K for any
A) and B42 (clusters of softmax), in the three cases of test_theorems.py; and many valid runs with
one number corrupted."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

import cynosure as cy
from cynosure import attention, configurations, dynamics
from cynosure.analysis.polytope import minimal_points
from cynosure.simulation.steppers import RK4, Adaptive, Euler
from cynosure.simulation.trajectory import Trajectory
from cynosure.theorems import THEOREMS, check, exact_sets, motion
from cynosure.theorems.exact_sets import exact_layers
from test_theorems import demand_alarm, demand_silence, demand_verdict, follows, rotation, spd

Softmax, Hardmax = attention.Softmax, attention.Hardmax
CHASE = np.array([[2.0, -5], [3, 2]])  # turns (1,0) -> (0,1) -> (-1,-1) -> (1,0), see B16
TRIANGLE = np.array([[1.0, 0], [0, 1], [-1, -1]])
SWING = np.array([[3.0, 0, 3], [-3, 0, 3], [0, 3, -3], [0, -3, -3], [0, 0, 1]])
NO_LIMIT = np.diag([3.0, 3, -1])
HALVES = np.random.default_rng(0).standard_normal((3, 3))


def gaussian(n: int = 8, d: int = 3, seed: int = 0) -> np.ndarray:
    return configurations.gaussian(n, d, seed=seed)


def layers(A: np.ndarray | None, alpha: object, z: np.ndarray, count: int = 12) -> Trajectory:
    return cy.simulate(cy.PureAttention(Hardmax(A), alpha), z, layers=count)


def in_layers(rule: attention.Attention) -> Callable[[], Trajectory]:
    return lambda: cy.simulate(cy.PureAttention(rule, 0.5), gaussian(), layers=8)


def in_time(flow: dynamics.Flow, **options: object) -> Callable[[], Trajectory]:
    return lambda: cy.simulate(flow, gaussian(5), times=np.linspace(0, 1, 4), **options)


# Every dynamics, and of hardmax layers every kind of A: nothing may be said against these.
RUNS: dict[str, Callable[[], Trajectory]] = {
    "definite": lambda: layers(spd(3), 0.5, gaussian()),
    "not symmetric": lambda: layers(HALVES, 2, gaussian()),
    "minus identity": lambda: layers(-np.eye(3), "1/3", gaussian(), 40),
    "tokens meet": lambda: layers(-np.eye(2), 1, gaussian(7, 2), 20),
    "indefinite": lambda: layers(np.diag([1.0, -1, 0]), 0.1, gaussian()),
    "antisymmetric": lambda: layers(HALVES - HALVES.T, 1, gaussian()),
    "ties": lambda: layers(None, "1/3", configurations.grid(12, 2, seed=1)),
    "chase": lambda: layers(CHASE, 1, TRIANGLE, 30),
    "no limit": lambda: layers(NO_LIMIT, 1, SWING),
    "long integers": lambda: layers(HALVES, 0.1, gaussian(), 60),
    "float32": lambda: layers(None, 0.5, gaussian().astype(np.float32), 30),
    "unnormalised": lambda: cy.simulate(
        cy.dynamics.UnnormalizedAttention(Hardmax(HALVES), 2), gaussian(), layers=9
    ),
    "extremes": lambda: layers(1e-90 * HALVES, 1e-9, 1e100 * gaussian()),
    "every third layer": lambda: cy.simulate(
        cy.PureAttention(Hardmax(HALVES)), gaussian(), layers=20, save_every=3
    ),
    "one of a batch": lambda: cy.simulate(
        cy.PureAttention(Hardmax(HALVES)), np.stack([gaussian(), gaussian(seed=1)]), layers=6
    ).select(1),
    "softmax": in_layers(Softmax(3.0, HALVES)),
    "softmax clusters": lambda: cy.simulate(
        cy.PureAttention(Softmax(12.0), 0.5), gaussian(40, 2), layers=24
    ),
    "softmax clusters, any A": lambda: cy.simulate(
        cy.PureAttention(Softmax(15.0, HALVES[:2, :2] + 3 * np.eye(2)), 2),
        gaussian(12, 2),
        layers=60,
        save_every=4,
    ),
    "softmax collapses": lambda: cy.simulate(
        cy.PureAttention(Softmax(0.5), 0.5), gaussian(), layers=12
    ),
    "localmax": in_layers(attention.Localmax(0.3)),
    "sinkhorn": in_layers(attention.Sinkhorn(1.0)),
    "causal hardmax": in_layers(attention.Causal(Hardmax())),
    "rotary hardmax": in_layers(attention.Rotary(Hardmax(HALVES), 20.0)),
    "heads": in_layers(attention.Heads([Softmax(1.0), Hardmax()], [HALVES, None])),
    "values": lambda: cy.simulate(
        dynamics.ValueAttention(Softmax(2.0), np.diag([0.5, 1, 2])), gaussian(), layers=8
    ),
    "feed forward": lambda: cy.simulate(
        dynamics.Scheduled([cy.PureAttention(Softmax()), dynamics.FeedForward(HALVES)]),
        gaussian(),
        layers=8,
        save_every=2,
    ),
    "jumps": lambda: cy.simulate(dynamics.JumpChain(), gaussian(), layers=10),
    "jumps of a batch": lambda: cy.simulate(
        dynamics.JumpChain(), np.stack([gaussian(), gaussian()]), layers=10
    ).select(1),
    "noise": lambda: cy.simulate(dynamics.NoisySphere(), gaussian(), layers=10),
    "attention flow": in_time(dynamics.AttentionFlow(Softmax(2.0))),
    "hardmax flow": in_time(dynamics.AttentionFlow(Hardmax())),
    "unnormalised flow": in_time(dynamics.UnnormalizedFlow()),
    "euclidean": in_time(dynamics.EuclideanFlow(V=HALVES)),
    "rescaled": in_time(dynamics.RescaledFlow()),
    "rescaled by RK4": in_time(dynamics.RescaledFlow(), stepper=RK4(0.1)),
    "leading": in_time(dynamics.LeadingFlow(HALVES, None, np.diag([1.0, 0.5, -0.5]))),
    "heads in time": in_time(dynamics.HeadsFlow(attention.Heads([Softmax(), Softmax(2.0)]))),
    "sphere": in_time(dynamics.SphereFlow(Softmax(4.0))),
    "sphere by Euler": in_time(dynamics.SphereFlow(), stepper=Euler(0.07)),
    "sphere without denominators": in_time(dynamics.UnnormalizedSphereFlow()),
    "pre-norm, loosely": in_time(dynamics.PreNormFlow(), stepper=Adaptive(1e-6, 1e-9)),
    "peri-norm": in_time(dynamics.PeriNormFlow()),
    "nGPT": in_time(dynamics.NGPTFlow()),
    "mixed": in_time(dynamics.MixedNormFlow(tau=0.5)),
    "scheduled": in_time(dynamics.ScheduledFlow()),
    "scheduled by RK4": in_time(dynamics.ScheduledFlow(), stepper=RK4(0.1)),
    "mask": lambda: cy.simulate(
        cy.PureAttention(Hardmax(HALVES)), gaussian(), layers=9, mask=np.arange(8) % 3 > 0
    ),
    "mask in time": in_time(dynamics.SphereFlow(), mask=np.arange(5) % 3 > 0),
}


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_said_against_a_valid_run(name: str) -> None:
    tr = RUNS[name]()
    found = {c.theorem: c for c in check(tr)}
    assert found["B39"].applies
    assert [str(c) for c in found.values() if c.holds is False] == []
    assert 0 < found["B39"].margin <= 1


def test_every_dynamics_is_among_them() -> None:
    seen = {type(build().dynamics) for build in RUNS.values()}
    part_of_a_schedule = {dynamics.FeedForward}
    assert set(dynamics.DYNAMICS.values()) - seen == part_of_a_schedule


# --- corruption -----------------------------------------------------------------------------------


def corruptions(tr: Trajectory, rng: np.random.Generator) -> dict[str, Trajectory]:
    """The run with one thing wrong: a coordinate, two tokens exchanged, two states exchanged, a
    birth, a leader. Left out is what changes nothing, or nothing above rounding."""
    real = np.arange(tr.z.shape[1]) if tr.mask is None else np.flatnonzero(tr.mask)
    values, out = tr.values, {}
    k, m = rng.choice(len(values), 2, replace=False)
    i, j = rng.choice(real, 2, replace=False)
    least = 1e-4 * np.abs(values[[k, m]]).max()
    z = values.copy()
    z[k, i, rng.integers(z.shape[2])] *= 1 + rng.choice([-1, 1]) * 10.0 ** rng.uniform(-3, 0)
    out["coordinate"] = z
    z = values.copy()
    z[k, [i, j]] = z[k, [j, i]]
    out["token"] = z
    z = values.copy()
    z[[k, m]] = z[[m, k]]
    out["order"] = z
    wrong = {
        name: replace(tr, z=z)
        for name, z in out.items()
        if np.abs(z.astype(float) - values).max() > least
    }
    if tr.history is not None:
        for name in ("born", "leader"):
            told = getattr(tr.history, name).copy()
            choices = np.append(real if name == "leader" else tr.t, -1)
            told[i] = rng.choice(choices[choices != told[i]])
            same = name == "leader" and _same_leader(tr, int(told[i]), int(tr.history.leader[i]))
            if not same:
                wrong[name] = replace(tr, history=replace(tr.history, **{name: told}))
    return wrong


def _same_leader(tr: Trajectory, a: int, b: int) -> bool:
    """Equal at the start, or leaders that have met since: either name is right."""
    if min(a, b) < 0 or tr.history is None:
        return False
    met = (tr.history.born[[a, b]] >= 0).all()
    places = tr.values[-1 if met else 0].astype(float)
    return bool(np.allclose(places[a], places[b], rtol=1e-12, atol=0.0))


@pytest.mark.many
@pytest.mark.parametrize("name", RUNS)
def test_one_wrong_number_is_noticed(name: str) -> None:
    """Before B39 and B40 three in four of such runs passed every statement."""
    tr, rng = RUNS[name](), np.random.default_rng(sum(map(ord, name)))
    tested = 0
    for _ in range(2):
        for kind, wrong in corruptions(tr, rng).items():
            tested += 1
            found = THEOREMS["B40" if kind in ("born", "leader") else "B39"](wrong)
            assert found.applies and found.holds is False, (kind, str(found))
    assert tested >= 5


# --- three cases for each statement --------------------------------------------------------------


@dataclass(frozen=True)
class Cases:
    """As in test_theorems.py; runs where it does not apply are built here."""

    holds: tuple[str, ...]
    not_applicable: tuple[Callable[[], Trajectory], ...]
    sabotaged: tuple[Callable[[], Trajectory], ...]


def shifted(name: str, layer: int, by: np.ndarray) -> Callable[[], Trajectory]:
    """The run with all tokens of a layer moved."""

    def build() -> Trajectory:
        tr = RUNS[name]()
        z = tr.values.copy()
        z[layer] += by
        return replace(tr, z=z)

    return build


def one_sabotaged(name: str, kind: str) -> Callable[[], Trajectory]:
    return lambda: corruptions(RUNS[name](), np.random.default_rng(1))[kind]


def unknown() -> Trajectory:
    return replace(RUNS["definite"](), dynamics=None)


CASES = {
    "B39": Cases(
        ("not symmetric", "softmax", "jumps of a batch", "sphere by Euler", "scheduled", "mask"),
        (
            unknown,
            lambda: layers(None, 1, gaussian(), 0),
            lambda: replace(RUNS["sphere"](), stepper=None),
        ),
        tuple(one_sabotaged(name, "order") for name in ("softmax", "sphere", "no limit", "noise")),
    ),
    "B40": Cases(
        ("definite", "not symmetric", "tokens meet", "ties", "every third layer", "one of a batch"),
        (unknown, RUNS["softmax"], RUNS["sphere"]),
        (one_sabotaged("not symmetric", "born"), one_sabotaged("ties", "leader")),
    ),
    "B41": Cases(
        ("definite", "minus identity", "not symmetric"),
        (RUNS["chase"], RUNS["no limit"], RUNS["softmax"]),
        (
            shifted("minus identity", -1, np.eye(3)[np.arange(8) % 3]),
            shifted("definite", -1, -0.7 * gaussian()),
        ),
    ),
    "B42": Cases(
        ("softmax clusters", "softmax clusters, any A"),
        (unknown, RUNS["not symmetric"], RUNS["softmax collapses"], RUNS["sphere"]),
        (
            shifted("softmax clusters", 10, 1e-9 * np.eye(2)[np.arange(40) % 2]),
            shifted("softmax clusters", -1, 0.3 * np.eye(2)[np.arange(40) % 2]),
            one_sabotaged("softmax clusters", "token"),
            lambda: replace(
                RUNS["softmax clusters"](), dynamics=cy.PureAttention(Softmax(12.01), 0.5)
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_where_it_holds(name: str) -> None:
    demand_verdict(name, {case: RUNS[case]() for case in CASES[name].holds})


@pytest.mark.parametrize("name", CASES)
def test_a_case_whose_hypotheses_fail(name: str) -> None:
    built = {str(i): build() for i, build in enumerate(CASES[name].not_applicable)}
    demand_silence(name, built)


@pytest.mark.parametrize("name", CASES)
def test_a_tampered_trajectory_is_caught(name: str) -> None:
    demand_alarm(name, [build() for build in CASES[name].sabotaged])


def test_a_wrong_record_is_caught() -> None:
    tr = follows("G1", 3, 2)()
    assert THEOREMS["B40"](tr).holds is False
    assert THEOREMS["B39"](tr).holds  # the states are right


# --- the oracle, and what lies beyond it ----------------------------------------------------------


def test_layers_in_integers_against_fractions() -> None:
    """The oracle's own oracle: the definition, one Fraction at a time."""
    for seed, alpha in [(0, Fraction(1)), (1, Fraction(1, 3)), (2, Fraction(7, 2))]:
        z = configurations.grid(9, 2, seed=seed)
        A = np.random.default_rng(seed).integers(-2, 3, (2, 2)).astype(float)
        x = [[Fraction(int(v)) for v in row] for row in z]
        for k, layer in enumerate(exact_layers(z, A, alpha, 4)):
            q = [[sum(int(A[a, b]) * p[b] for b in range(2)) for a in range(2)] for p in x]
            score = [[sum(s * t for s, t in zip(p, r, strict=True)) for r in x] for p in q]
            sets = [[j for j, s in enumerate(row) if s == max(row)] for row in score]
            assert [layer.followed(i).tolist() for i in range(9)] == sets, (seed, k)
            assert [[Fraction(int(w), layer.D) for w in row] for row in layer.W] == x
            x = [
                [(x[i][a] + alpha * sum(x[j][a] for j in s) / len(s)) / (1 + alpha) for a in (0, 1)]
                for i, s in enumerate(sets)
            ]


def test_what_is_beyond_the_integers_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tr, rng = RUNS["not symmetric"](), np.random.default_rng(3)
    monkeypatch.setattr(exact_sets, "EFFORT", 1.0)
    assert THEOREMS["B39"](tr).holds and THEOREMS["B40"](tr).holds
    wrong = corruptions(tr, rng)
    assert THEOREMS["B39"](wrong["coordinate"]).holds is False
    assert THEOREMS["B40"](wrong["born"]).holds is False


def test_long_flows_are_sampled_evenly_and_the_check_says_how_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tr = cy.simulate(dynamics.SphereFlow(), gaussian(5), time=1.0)
    assert "100 of 100 intervals judged" in THEOREMS["B39"](tr).witness["part"]
    monkeypatch.setattr(motion, "WORK", 1.0)
    found = THEOREMS["B39"](tr)
    assert found.holds and "4 of 100 intervals judged" in found.witness["part"]
    for layer in motion._evenly(100)[:4]:
        z = tr.values.copy()
        z[layer + 1] += 1e-3
        assert THEOREMS["B39"](replace(tr, z=z)).holds is False, layer


@pytest.mark.parametrize("many", [1, 2, 3, 7, 100, 2**18])
def test_every_beginning_of_the_order_is_spread_evenly(many: int) -> None:
    order = motion._evenly(many)
    assert len(set(order)) == len(order) == min(many, motion._MANY)
    assert order[0] == many - 1 and (many == 1 or order[1] == 0)
    for part in (8, 32):
        gaps = np.diff(np.sort([*order[:part], -1]))
        assert many < part or gaps.max() <= 2.1 * (many / (part - 1)) + 1


def test_no_clock_ends_the_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinkhorn flows were cut after ten seconds, early intervals first: this end was not seen."""
    tr = cy.simulate(dynamics.UnnormalizedFlow(attention.Sinkhorn(1.0)), gaussian(6), time=2.0)
    z = tr.values.copy()
    z[87] = z[86]
    real, here, hours = time.monotonic, threading.get_ident(), itertools.count(0.0, 1e5)
    # A server of another test may have a thread of its own, whose clock is left alone.
    slow = lambda: next(hours) if threading.get_ident() == here else real()  # noqa: E731
    monkeypatch.setattr("time.monotonic", slow)
    found = THEOREMS["B39"](replace(tr, z=z))
    assert found.holds is False and found.witness["time"] == pytest.approx(1.74)


def test_a_token_that_reaches_zero_at_the_end_of_a_run() -> None:
    """The velocity jumps at the end of the last step, which an interpolation within it reads."""
    flow = dynamics.MixedNormFlow(Softmax(0.5, -np.eye(4)), -np.eye(4), tau=1.0)
    tr = cy.simulate(flow, [[2.0, 1, -2, 0]], time=2.0)
    lengths = np.linalg.norm(tr.values[50:, 0], axis=1)
    np.testing.assert_allclose(lengths, 2 - tr.t[50:], atol=1e-9)
    assert THEOREMS["B39"](tr).holds


def test_states_within_a_long_step_keep_the_tolerances() -> None:
    """Two heads, one of them steep: the interpolation missed rtol by a factor of 40."""
    rng = np.random.default_rng(55)
    z = rng.standard_normal((6, 4)) * rng.choice([1, 1, 2, 0.5])
    heads = attention.Heads([Softmax(30.0, -np.eye(4)), Softmax(1.0)])
    tr = cy.simulate(dynamics.UnnormalizedFlow(heads), z, time=2.0)
    again = cy.simulate(tr.made_by, tr.at(1.42), times=[0.02], stepper=Adaptive(1e-12, 1e-14))
    size = np.abs(tr.at(1.44)).max()
    assert np.abs(tr.at(1.44) - again.z[-1]).max() < 1e-8 * size


def test_a_sphere_run_begins_on_the_sphere() -> None:
    tr = cy.simulate(dynamics.SphereFlow(), [[1.0], [-1.0]], times=[0.0, 1.0])
    z = tr.values.copy()
    z[0, 1] = -1.01  # the flow sees directions only: the next state is right
    assert THEOREMS["B39"](tr).holds and THEOREMS["B39"](replace(tr, z=z)).holds is False


# --- jumps ----------------------------------------------------------------------------------------


def test_a_configuration_of_a_batch_repeats_its_draws() -> None:
    chain = dynamics.Scheduled([dynamics.JumpChain(seed=3), cy.PureAttention(Softmax())])
    batch = gaussian(24).reshape(3, 2, 4, 3)
    tr = cy.simulate(chain, batch, layers=9, save_every=3)
    for place in np.ndindex(3, 2):
        one = tr.select(*place)
        assert THEOREMS["B39"](one).holds
        again = cy.simulate(one.made_by, batch[place], layers=9, save_every=3)
        np.testing.assert_array_equal(again.z, one.z)


def test_jumps_to_the_least_likely_token_are_noticed() -> None:
    chain = dynamics.JumpChain(Softmax(50.0))
    tr = cy.simulate(chain, np.stack([gaussian()] * 2), layers=10).select(1)
    z = tr.values.copy()
    for k in range(10):
        z[k + 1] = (z[k] + z[k][chain.attention.weights(z[k]).argmin(axis=1)]) / 2
    assert THEOREMS["B39"](replace(tr, z=z)).holds is False


def test_one_other_draw_is_noticed() -> None:
    tr = cy.simulate(dynamics.JumpChain(), gaussian(), layers=10)
    z = tr.values.copy()
    places = [(z[9, 2] + other) / 2 for other in z[9]]
    z[10, 2] = next(p for p in places if np.abs(p - z[10, 2]).max() > 1e-3)
    assert THEOREMS["B39"](replace(tr, z=z)).holds is False


def test_tokens_between_saved_layers_are_no_longer_anywhere_in_the_hull() -> None:
    tr = cy.simulate(dynamics.JumpChain(), np.stack([gaussian()] * 2), layers=9, save_every=3)
    tr = tr.select(1)
    z = tr.values.copy()
    z[1:] = z[0].mean(axis=0)
    assert THEOREMS["B39"](tr).holds and THEOREMS["B39"](replace(tr, z=z)).holds is False


def test_tokens_that_meet_are_one_and_lead() -> None:
    """A = -1, alpha = 1: -1 and 3 meet at 1. Counted as one they lead from layer 1 on."""
    tr = layers(-np.eye(1), 1, np.array([[-1.0], [3.0]]), 3)
    assert tr.history is not None
    one = replace(tr.history, born=np.array([1, 1]), leader=np.array([0, 0]), records=())
    one = replace(one, settled_at=np.array([1, 1]))
    apart = replace(one, born=np.array([-1, -1]), leader=np.array([-1, -1]))
    mixed = replace(one, born=np.array([1, -1]))
    verdicts = [THEOREMS["B40"](replace(tr, history=h)).holds for h in (one, apart, mixed)]
    assert verdicts == [True, False, False]


# --- statements corrected: the old one fails, the new one is seen ---------------------------------


def test_b10_ties_on_an_open_set_of_starts() -> None:
    """A = -1 is invertible, yet for alpha = 1 two tokens of opposite sign meet, and then tie."""
    for seed in range(5):
        a, b = np.random.default_rng(seed).uniform(0.1, 1, 2)
        layer = list(exact_layers(np.array([[-a], [b]]), -np.eye(1), Fraction(1), 1))[1]
        assert layer.followed(0).tolist() == layer.followed(1).tolist() == [0, 1]
        other = list(exact_layers(np.array([[-a], [b]]), -np.eye(1), Fraction(1, 2), 8))
        assert all(len(set(e.label.tolist())) == 2 for e in other)


def test_b10_ties_of_distinct_points_are_null_for_any_form() -> None:
    """Random starts, A of rank 1, antisymmetric, indefinite, alpha = 1: who ties is equal."""
    rng = np.random.default_rng(0)
    turn = np.array([[0.0, -1], [1, 0]])
    for A in (np.outer([1.0, 2], [3, -1]), turn, np.diag([1.0, -1]), -np.eye(2)):
        for _ in range(5):
            z = rng.standard_normal((6, 2))
            assert all(len(s) == 1 for e in exact_layers(z, A, Fraction(1), 10) for s in e.sets)


def test_b16_a_cycle_about_zero_lasts_and_about_another_point_does_not() -> None:
    tr = layers(CHASE, 1, TRIANGLE, 150)
    found = THEOREMS["B16"](tr)
    assert found.holds and found.witness["leaders"] == 0 and found.witness["mean_of_the_start"] == 0
    assert cy.roles(tr).followed(150).target.tolist() == [1, 2, 0]
    rounded = layers(rotation(75), 1, configurations.polygon(3), 60)
    assert cy.roles(rounded).born.tolist() == [52, -1, -1]
    found = THEOREMS["B16"](rounded)
    assert found.holds and 0 < found.witness["mean_of_the_start"] < 1e-15
    moved = layers(CHASE, 1, TRIANGLE + 2.0**-20, 60)
    assert THEOREMS["B16"](moved).holds and cy.roles(moved).leads.any()


def test_b16_mean_of_a_cycle_is_judged() -> None:
    tr = layers(CHASE, 1, TRIANGLE, 30)
    z = tr.values.copy()
    z[20:] += 1e-7
    assert THEOREMS["B16"](replace(tr, z=z)).holds is False


@pytest.mark.many
@pytest.mark.parametrize("alpha", ["1/10", "1/2", 1, 2, 10])
def test_there_may_be_no_limit(alpha: str | int) -> None:
    """Four leaders, and a token that swings between two ties: |z| = 3 eta/(1 + rho) at the end."""
    tr = layers(NO_LIMIT, alpha, SWING, 400)
    a = Fraction(alpha)
    assert cy.roles(tr).born.tolist() == [0, 0, 0, 0, -1]
    heights = tr.values[-4:, 4, 2]
    expected = float(3 * a / (2 + a))
    np.testing.assert_allclose(np.abs(heights), expected, rtol=1e-12)
    assert (np.sign(heights[1:]) == -np.sign(heights[:-1])).all()
    followed = [cy.roles(tr).followed(k)[4].tolist() for k in (399, 400)]
    assert sorted(followed) == [[0, 1], [2, 3]]
    proof = cy.limit(cy.PureAttention(Hardmax(NO_LIMIT), alpha), SWING, max_layers=50)
    assert proof.undecided.tolist() == [4]


def test_b41_one_point_for_negative_forms() -> None:
    """Proved for every alpha and start, symmetric or not; alpha = 1 included."""
    rng = np.random.default_rng(0)
    for alpha in (0.3, 1, 3):
        b = rng.standard_normal((2, 2))
        A = -b @ b.T - 0.1 * np.eye(2) + (b - b.T)
        tr = layers(A, alpha, rng.standard_normal((6, 2)), 400)
        spread = np.ptp(tr.values, axis=1).max(axis=1)
        assert spread[-1] < 1e-6 * spread[0]


def test_every_point_has_least_norm_in_its_slice_but_only_faces_count() -> None:
    """A1: for s in K the slice <As, y> = |s|² always has s as its shortest point; s is in S iff
    the slice is a face, that is iff no token of K lies beyond it."""
    square = np.array([[1.0, 1], [1, -1], [-1, -1], [-1, 1]])
    S = minimal_points(cy.hull(square), np.eye(2))
    inside = np.array([0.5, 0.25])
    slice_ends = np.array([[0.125, 1.0], [1.0, -0.75]])  # of <s, y> = |s|² = 5/16 in the square
    np.testing.assert_allclose(slice_ends @ inside, inside @ inside)
    on_slice = slice_ends[0] + np.linspace(0, 1, 101)[:, None] * (slice_ends[1] - slice_ends[0])
    assert (np.linalg.norm(on_slice, axis=1) >= np.linalg.norm(inside) - 1e-12).all()
    assert (square @ inside).max() > inside @ inside  # no face: tokens lie beyond
    assert np.linalg.norm(S - inside, axis=1).min() > 0.1
    for s in S:
        assert (square @ s).max() == pytest.approx(s @ s)


def test_an_exact_state_beyond_the_floats_is_no_error() -> None:
    """Layer 2 is (-3e300, -4.5e300), layer 3 no float, nor is the rounding allowed there."""
    layers = cy.dynamics.UnnormalizedAttention(cy.Hardmax(np.array([[-1.0]])), 1e300)
    tr = cy.simulate(layers, np.array([[-3.0], [0.0]]), layers=9, throw=False)
    assert all(c.holds for c in cy.check(tr) if c.applies)
