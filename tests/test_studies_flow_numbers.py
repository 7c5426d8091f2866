"""Numbers behind the experiments on heads, tokens, starts, spectra, freezing and temperature."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cynosure import configurations
from cynosure.analysis.limits import limit
from cynosure.attention import Heads, Softmax
from cynosure.dynamics import HeadsFlow, PureAttention
from cynosure.simulation.loop import simulate
from cynosure.simulation.steppers import RK4
from cynosure.study.frame import at_most
from studies.hardmax import neural_collapse
from studies.heads import _softmax_heads, several_heads
from studies.softmax import (
    limit_count,
    master_equation,
    random_matrices,
    softmax_to_hardmax,
    value_spectrum,
)


def test_the_rate_of_heads_is_predicted() -> None:
    p = dataclasses.replace(several_heads.QUICK, time=24.0)
    tr = _softmax_heads.simulated(p, "own A and V", 1, _softmax_heads.plain(p), 0)
    for s in range(p.soft_starts):
        end = _softmax_heads.limits_of(tr.select(s))
        assert end.exponent == pytest.approx(end.predicted, rel=0.05)


def test_a_limit_between_two_heads_is_no_vertex_and_heads_disagree_on_it() -> None:
    """Two flat heads pull a token to different corners for ever: it ends half-way between."""
    z0 = np.array([[40.0, 0.0], [0.0, 40.0], [10.0, 10.0]])
    heads = Heads([Softmax(1.0, np.diag([1.0, 0.01])), Softmax(1.0, np.diag([0.01, 1.0]))])
    tr = simulate(HeadsFlow(heads), z0, times=np.linspace(0, 14, 29), stepper=RK4(0.1))
    end = _softmax_heads.limits_of(tr)
    assert (end.limits, end.between) == (3, 1) and end.disagree == pytest.approx(1 / 3)
    one = simulate(HeadsFlow(Heads([heads.heads[0]])), z0, times=tr.t, stepper=RK4(0.1))
    alone = _softmax_heads.limits_of(one)
    assert alone.between == 0 and alone.disagree == 0


def test_an_end_is_counted() -> None:
    z0 = np.array([[2.0, 0.0], [1.0, 0.1], [-2.0, 0.0], [-1.0, 0.1]])
    end = limit_count._counted(limit_count._to_rest(z0, 16.0, 1e-8), 1.0)
    assert (end.limits, end.vertices, end.at_zero) == (2, 2, 0)
    assert (end.leaders, end.hardmax_limits) == (2, 2)
    assert end.exponent == pytest.approx(1, abs=1e-3)
    tr = limit_count._to_rest(z0, 16.0, 1e-8)
    z = tr.values.copy()
    z[-1, 1] = 0.0
    zero = limit_count._counted(dataclasses.replace(tr, z=z), 1.0)
    assert (zero.limits, zero.at_zero) == (3, 1)
    still = limit_count._to_rest(np.array([[1.0, 0.0]] * 2), 16.0, 1e-8)
    assert limit_count._counted(still, 1.0).exponent is None


@pytest.mark.parametrize(
    ("V", "name"),
    [
        (np.diag([1.0, 0.5]), "good triple"),
        (np.diag([1.0, -2.0]), "not dominant"),
        (np.array([[1.0, -1.0], [1.0, 1.0]]), "complex pair"),
        (-np.eye(2), "negative"),
    ],
)
def test_spectra_are_sorted_into_classes(V: np.ndarray, name: str) -> None:
    assert value_spectrum._spectrum_class(V) == name


def test_a_frozen_hardmax_pattern_is_found_and_predicts_exactly() -> None:
    p = master_equation.QUICK
    z0 = p.size / np.sqrt(p.d) * configurations.gaussian(p.n, p.d, p.seed)
    tr = simulate(PureAttention(alpha=p.alpha), z0, layers=p.layers)
    settled = master_equation._settled(tr)
    assert 0 < settled < p.layers  # otherwise the figure shows nothing
    frozen = master_equation._frozen(tr, tr.values[-1])
    assert np.nanmax(frozen.error[settled:]) < 1e-14
    assert np.nanmax(frozen.error[settled - 1]) > 1e-4  # and not a layer earlier


def test_random_definite_matrices_have_their_condition_number() -> None:
    A = random_matrices._definite(4, 50.0, np.random.default_rng(0))
    values = np.linalg.eigvalsh(A)
    assert (A == A.T).all() and values[-1] / values[0] == pytest.approx(50)


def test_the_barrier_of_a_pentagon() -> None:
    li = limit(PureAttention(), configurations.polygon(5))
    assert softmax_to_hardmax.barrier(li) == pytest.approx(1 - np.cos(2 * np.pi / 5))


def test_the_lifetime_is_read_to_the_layer() -> None:
    """Against a plain loop, at a beta whose leaders leave after a while."""
    p = softmax_to_hardmax.QUICK
    z0 = configurations.polygon(5, interior=p.n - 5, seed=p.seed)
    li = limit(PureAttention(alpha=p.alpha), z0)
    soft, z = PureAttention(Softmax(14.0), p.alpha), z0
    for k in range(1, p.most):
        z = soft.step(z, k)
        if np.linalg.norm((z - li.points)[li.leaders], axis=1).max() > p.far:
            break
    lost = softmax_to_hardmax._life(p, "pentagon", 14.0).lost
    assert 20 < k < p.most and lost is not None and abs(lost - k) <= max(1, k // 250)


def test_groups_with_one_leader_collapse_at_the_hardmax_rate() -> None:
    p = neural_collapse.Params(layers=40)
    z0, labels = neural_collapse._tokens(p)
    tr = simulate(PureAttention(alpha=p.alpha), z0, layers=p.layers)
    course = neural_collapse._course(p, "hardmax", tr, labels)
    assert neural_collapse._own_leaders(p, z0, labels)
    (rate,) = neural_collapse._rate(p, course)
    assert rate.holds and rate.witness["slope"] == pytest.approx(-2 * np.log1p(p.alpha), rel=1e-2)
    slow = course.replace(scatter=course.scatter**0.9)
    assert not neural_collapse._rate(p, slow)[0].holds


def test_a_curve_ends_where_the_pseudo_inverse_goes_blind() -> None:
    """Two group means that agree to rounding: what is left of tr(Sw Sb^+) is no collapse."""
    p = neural_collapse.QUICK
    z, labels = neural_collapse._tokens(p)
    assert neural_collapse._full_rank(z, labels)
    met = z.copy()
    for g in (0, 1):
        met[labels == g] += z[labels == 0].mean(axis=0) - z[labels == g].mean(axis=0)
    assert not neural_collapse._full_rank(met, labels)
    tr = simulate(PureAttention(alpha=p.alpha), z, layers=3)
    blind = dataclasses.replace(tr, z=np.stack([z, met, z, z]))
    course = neural_collapse._course(p, "made up", blind, labels)
    assert np.isfinite(course.scatter).tolist() == [True, False, False, False]


def test_shuffled_labels_have_no_leader_of_their_own() -> None:
    p = dataclasses.replace(neural_collapse.QUICK, varied=((3, 0.06),), counted=12)
    own, shuffled = (neural_collapse._at_infinity(p, (3, 0.06), x) for x in (False, True))
    assert own.own.any() and not shuffled.own.any()
    z0, labels = neural_collapse._tokens(dataclasses.replace(p, spread=0.06))
    assert own.own[0] == neural_collapse._own_leaders(p, z0, labels)
    assert own.fall[own.own].max() < 1e-20 < shuffled.fall.min()
    alike = neural_collapse._controls(p, [own, own.replace(shuffled=True)])
    assert [c.survives for c in alike[1:3]] == [False, False]  # a null that shows the same


def test_a_measured_check_can_fail() -> None:
    assert at_most("x", "y", "z", 1.0, 2.0).holds
    wrong = at_most("x", "y", "z", 3.0, 2.0, runs=4)
    assert not wrong.holds and wrong.margin == -1 and wrong.witness == {"measured": 3.0, "runs": 4}


@pytest.mark.parametrize(
    ("module", "change"),
    [
        (several_heads, {"time": 1.0}),
        (limit_count, {"each": 3}),
        (master_equation, {"saves": 3}),
        (neural_collapse, {"groups": 2}),
        (random_matrices, {"kappa": (0.5,)}),
        (softmax_to_hardmax, {"far": 1.0}),
        (value_spectrum, {"d": (4,)}),
    ],
)
def test_what_cannot_be_measured_is_refused(module, change: dict) -> None:
    with pytest.raises(ValueError, match=module.__name__.rsplit(".", 1)[-1]):
        module.run(dataclasses.replace(module.QUICK, **change))
