"""Spectra, good triples, the master equation, rates, neural collapse, limiting objects."""

import json

import numpy as np
import pytest

import cynosure as cy
from cynosure import configurations as cf
from cynosure import spectra
from cynosure.attention import Softmax
from cynosure.dynamics import (
    AttentionFlow,
    EuclideanFlow,
    LeadingFlow,
    NoisySphere,
    RescaledFlow,
    SphereFlow,
    UnnormalizedFlow,
    UnnormalizedSphereFlow,
)
from cynosure.simulation.steppers import Adaptive
from cynosure.simulation.trajectory import Status, Trajectory

PAPER_V = np.array([[0.647, 0.819], [0.612, 0.633]])


def made(z, t, dynamics=None):
    """A trajectory written down by hand."""
    return Trajectory(np.asarray(z, float), np.asarray(t, float), Status("done", ""), dynamics)


def test_spectrum_of_known_matrices():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    s = spectra.spectrum(turn)
    np.testing.assert_allclose(sorted(s.eigenvalues.imag), [-1, 1], atol=1e-15)
    assert s.inertia == (0, 2, 0) and s.rank == 2 and s.antisymmetric_share == 1.0
    s = spectra.spectrum(np.diag([3.0, -5.0, 0.0]))
    assert s.inertia == (1, 1, 1) and s.rank == 2 and s.antisymmetric_share == 0
    assert s.eigenvalues.tolist() == [-5, 3, 0]
    assert json.loads(json.dumps(s.to_dict()))["eigenvalues"][0] == -5
    assert spectra.spectrum(np.zeros((2, 2))).inertia == (0, 2, 0)
    with pytest.raises(ValueError, match="square"):
        spectra.spectrum(np.ones((2, 3)))


def test_epsilon_rank():
    P = np.diag([1.0, 1e-3, 1e-9])
    assert [spectra.epsilon_rank(P, e) for e in (1e-1, 1e-6, 1e-12)] == [1, 2, 3]


def test_good_triple_margins():
    good = spectra.good_triple(V=PAPER_V)
    values = np.sort(np.linalg.eigvals(PAPER_V).real)
    assert good.holds and good.multiplicity == 1 and good.alignment == pytest.approx(1)
    assert good.leading.real == pytest.approx(values[1])
    assert good.gap == pytest.approx(values[1] - abs(values[0]))
    np.testing.assert_allclose(PAPER_V @ good.eigenvector, values[1] * good.eigenvector)
    np.testing.assert_allclose(good.dual @ PAPER_V, values[1] * good.dual)
    assert good.dual @ good.eigenvector == pytest.approx(1)
    assert not spectra.good_triple(V=-PAPER_V).holds
    bad = spectra.good_triple(Q=-np.eye(2), V=PAPER_V)
    assert not bad.holds and bad.alignment == pytest.approx(-1)
    spin = spectra.good_triple(V=[[1.0, -1.0], [1.0, 1.0]])
    assert not spin.holds and spin.imaginary == pytest.approx(1)
    json.dumps(good.to_dict())
    with pytest.raises(ValueError, match="d="):
        spectra.good_triple()


def test_paranormal_and_jordan():
    two = spectra.good_triple(V=np.diag([1.0, 1.0, 0.25]))
    assert two.multiplicity == 2 and two.paranormal and not two.holds and two.defect == 0
    assert two.rest_gap == pytest.approx(0.75)
    identity = spectra.good_triple(d=4)
    assert identity.multiplicity == 4 and identity.paranormal
    jordan = spectra.good_triple(V=[[1.0, 1.0, 0], [0, 1.0, 0], [0, 0, 0.2]])
    assert jordan.multiplicity == 2 and jordan.defect == 1 and not jordan.paranormal
    skew = spectra.good_triple(Q=[[1.0, 2.0], [0.0, 1.0]])
    assert not skew.paranormal and skew.asymmetry > 1


def test_master_equation_is_exact_for_a_frozen_pattern():
    z = cf.gaussian(30, 2, seed=0)
    tr = cy.simulate(cy.PureAttention(alpha=0.5), z, layers=30)
    last = int(tr.history.settled_at.max())
    assert spectra.freeze(tr, last).error.max() < 1e-12
    end = spectra.freeze(tr, last)
    assert end.near_one == len(cy.roles(tr).leaders)
    soft = cy.simulate(cy.PureAttention(Softmax(2.0), alpha=0.5), z, layers=10)
    drift = spectra.freeze(soft, 0)
    assert drift.error[0] == 0 and drift.error[1] < 1e-14 and drift.error[-1] > 1e-3


@pytest.mark.parametrize(
    "flow",
    [
        EuclideanFlow(V=PAPER_V),
        EuclideanFlow(V=[[0.5, 1.0], [0.0, 0.5]]),
        UnnormalizedFlow(Softmax(0.5)),
        AttentionFlow(Softmax(2.0)),
        RescaledFlow(),
        RescaledFlow(V=PAPER_V),
    ],
)
def test_master_equation_errs_at_second_order(flow):
    """Freezing P is wrong by O(s^2) a time s after t0, and by nothing at t0."""
    z = np.random.default_rng(1).normal(size=(6, 2)) * 0.5
    tr = cy.simulate(flow, z, times=[0, 0.5, 0.52, 0.54, 0.58], stepper=Adaptive(1e-12, 1e-14))
    error = spectra.freeze(tr, 1).error
    assert error[0] < 1e-14
    slope = np.polyfit(np.log([0.02, 0.04, 0.08]), np.log(error[1:]), 1)[0]
    assert abs(slope - 2) < 0.3
    with pytest.raises(ValueError, match="master equation"):
        spectra.freeze(cy.simulate(SphereFlow(), z, time=1.0))


def test_rate_of_a_known_exponential():
    t = np.linspace(0, 10, 101)
    z = np.exp(-1.5 * t)[:, None, None] * np.ones((1, 3, 2))
    found = spectra.rate(made(z, t), np.zeros((3, 2)))
    assert found.exponent == pytest.approx(1.5) and found.low <= 1.5 + 1e-9 and found.high >= 1.4999
    noisy = z * np.exp(0.1 * np.random.default_rng(0).normal(size=101))[:, None, None]
    wide = spectra.rate(made(noisy, t), np.zeros((3, 2)))
    assert wide.low < 1.5 < wide.high and 0.001 < wide.high - wide.low < 0.2
    tr = cy.simulate(cy.PureAttention(alpha=0.5), cf.gaussian(20, 2, seed=1), layers=60)
    hard = spectra.rate(tr, cy.limit(cy.PureAttention(alpha=0.5), tr.z[0]).points)
    assert hard.exponent == pytest.approx(np.log(1.5), rel=1e-6)
    with pytest.raises(ValueError, match="saved states"):
        spectra.rate(made(z[:4], t[:4]), z[0])


@pytest.mark.parametrize(("flow", "expected"), [(SphereFlow(Softmax(1.0)), 1.0)])
def test_rate_on_the_sphere(flow, expected):
    """Near collapse 1 - r decays like e^{-2t} (B31), so distances like e^{-t}."""
    x = np.random.default_rng(2).normal(size=(6, 3)) * 0.2 + [1, 0, 0]
    tr = cy.simulate(flow, x, time=18.0, stepper=Adaptive(1e-12, 1e-14))
    far = cy.simulate(flow, x, times=[40.0], stepper=Adaptive(1e-12, 1e-14)).z[-1]
    assert spectra.rate(tr, far, floor=1e-7).exponent == pytest.approx(expected, abs=0.01)


def test_neural_collapse_of_a_simplex_and_of_noise():
    simplex = np.eye(4) - 0.25
    labels = np.repeat(np.arange(4), 5)
    tight = spectra.neural_collapse(simplex[labels], labels)
    assert tight.scatter == 0 and tight.angle_error < 1e-14 and tight.norm_spread < 1e-14
    noise = np.random.default_rng(3).normal(size=(20, 4))
    loose = spectra.neural_collapse(simplex[labels] + noise, labels)
    assert loose.scatter > 0.1 and loose.angle_error > 0.1
    with pytest.raises(ValueError, match="two groups"):
        spectra.neural_collapse(noise, np.zeros(20))


def test_boolean_limit_on_the_line():
    """B22, n = 40: rows e_a or e_b; with the middle token at 0, one exceptional row."""
    z = np.sort(np.random.default_rng(4).uniform(-3, 3, 40))[:, None]
    tr = cy.simulate(RescaledFlow(), z, time=12.0)
    P = spectra.attention_matrix(tr.dynamics, tr.z[-1], 12.0)
    found = spectra.boolean_limit(P)
    assert found.holds and found.columns == (0, 39) and found.exceptional == ()
    assert found.rank == 2 and found.distance < 1e-8
    early = spectra.boolean_limit(spectra.attention_matrix(tr.dynamics, tr.z[0], 0.0))
    assert not early.holds and len(early.exceptional) == 40
    odd = cy.simulate(RescaledFlow(), [[-4.0], [0.0], [4.0]], time=0.3)  # the middle is unstable
    middle = spectra.boolean_limit(spectra.attention_matrix(odd.dynamics, odd.z[-1], 0.3))
    assert middle.holds and middle.exceptional == (1,) and middle.columns == (0, 2)
    assert spectra.recognise(tr).kind == "boolean"


@pytest.mark.many
def test_hyperplanes_of_the_paper_matrix():
    z = np.random.default_rng(5).uniform(-1, 1, size=(40, 2))
    found = [
        spectra.hyperplane_values(cy.simulate(kind(V=PAPER_V), z, time=20.0))
        for kind in (RescaledFlow, LeadingFlow, EuclideanFlow)
    ]
    for planes in found:
        assert planes.holds and 1 <= len(planes.values) <= 3
        np.testing.assert_allclose(planes.f, found[0].f, atol=1e-6)
    early = spectra.hyperplane_values(cy.simulate(LeadingFlow(V=PAPER_V), z, time=0.5))
    assert not early.holds and len(early.values) > 3
    far = cy.simulate(LeadingFlow(V=PAPER_V), z, time=1000.0)
    assert spectra.recognise(far).kind == "hyperplanes"
    np.testing.assert_allclose(spectra.hyperplane_values(far).f, found[1].f, atol=1e-6)


@pytest.mark.many
def test_recognised_limits():
    z = np.random.default_rng(6).uniform(-1, 1, size=(20, 2))
    polytope = spectra.recognise(cy.simulate(RescaledFlow(), z, time=40.0))
    assert polytope.kind == "polytope" and all(polytope.details["in_S"]) and polytope.margin > 0
    assert len(polytope.points) >= 2 and len(polytope.labels) == 20
    early = spectra.recognise(cy.simulate(RescaledFlow(), z, time=0.5))
    assert not all(early.details["in_S"])
    assert spectra.recognise(cy.simulate(SphereFlow(), z, time=60.0)).kind == "point"
    long = Adaptive(1e-7, 1e-9, "LSODA")
    minus = cy.simulate(EuclideanFlow(V=-np.eye(2)), z, times=[0, 1e4], stepper=long)
    assert spectra.recognise(minus, 0.05).kind == "zero"
    V = np.diag([1.0, 1.0, 0.3])
    product = cy.simulate(RescaledFlow(V=V), np.c_[z, z[:, 0]], time=30.0)
    both = spectra.recognise(product)
    assert both.kind == "polytope x hyperplane" and both.points.shape[1] == 2 and both.margin > 0
    json.dumps(both.to_dict())


def test_recognised_in_every_variable():
    """x grows, y and z do not: the limiting object is the same."""
    z = np.random.default_rng(6).uniform(-1, 1, size=(12, 2))
    runs = [cy.simulate(kind(), z, time=20.0) for kind in (RescaledFlow, LeadingFlow)]
    found = [spectra.recognise(tr) for tr in (*runs, cy.simulate(EuclideanFlow(), z, time=20.0))]
    for one in found:
        assert one.kind == "polytope" and "all in S" in str(one) and one.speed < 1e-3
        np.testing.assert_allclose(one.points, found[0].points, atol=1e-5)
        np.testing.assert_array_equal(one.labels, found[0].labels)
    grown = cy.simulate(cy.dynamics.UnnormalizedAttention(alpha=1), z, layers=60)
    plain = cy.simulate(cy.PureAttention(alpha=1), z, layers=60)
    for tr in (grown, plain, cy.simulate(AttentionFlow(cy.Hardmax()), z, time=30.0)):
        hard = spectra.recognise(tr)
        assert hard.kind == "polytope" and all(hard.details["in_S"])
        points = np.unique(cy.limit(cy.PureAttention(alpha=1), z).points, axis=0)
        if tr is not grown and tr is not plain:
            continue  # a flow may choose other leaders
        np.testing.assert_allclose(np.unique(hard.points.round(9), axis=0), points, atol=1e-8)


@pytest.mark.many
@pytest.mark.parametrize("kind", [EuclideanFlow, LeadingFlow, RescaledFlow])
def test_recognised_by_the_eigenvalue_of_largest_real_part(kind):
    z = np.random.default_rng(6).uniform(-1, 1, size=(12, 2))
    turn = spectra.recognise(cy.simulate(kind(V=[[0.6, -0.8], [0.8, 0.6]]), z, time=6.0))
    assert turn.kind == "turning" and turn.details["leading"] == pytest.approx([0.6, 0.8])
    # -1.5 is larger in modulus, but 1 is what grows
    saddle = spectra.recognise(cy.simulate(kind(V=np.diag([1.0, -1.5])), z, time=12.0))
    assert saddle.kind == "hyperplanes" and "f1* is" in str(saddle) and saddle.speed < 1e-3
    assert {abs(v) > 1e-3 for v in saddle.points[:, 0].tolist()} <= {True, False}
    f = spectra.hyperplane_values(cy.simulate(LeadingFlow(V=np.diag([1.0, -1.5])), z, time=12.0)).f
    end = cy.simulate(LeadingFlow(V=np.diag([1.0, -1.5])), z, time=12.0).z[-1]
    np.testing.assert_allclose(f, end[:, 0], atol=1e-12)


def test_recognised_metastable_clusters_and_motion():
    x = np.repeat(np.eye(3), 4, axis=0) + 0.05 * np.random.default_rng(7).normal(size=(12, 3))
    tr = cy.simulate(SphereFlow(Softmax(12.0)), x, time=60.0)
    caps = spectra.recognise(tr)
    assert caps.kind == "metastable" and len(caps.points) == 3 and caps.details["lifetime"] > 30
    assert "3 clusters since" in str(caps)
    early = spectra.recognise(cy.simulate(SphereFlow(Softmax(12.0)), x, time=0.5))
    assert early.kind == "clusters" and "still moving" in str(early)
    soft = cy.simulate(cy.PureAttention(Softmax(40.0)), cf.polygon(5, interior=7), layers=80)
    assert spectra.recognise(soft).kind == "metastable"


def test_recognised_without_padding_and_not_for_batches():
    z = np.random.default_rng(6).uniform(-1, 1, size=(12, 2))
    mask = np.array([True] * 9 + [False] * 3)
    with_padding = spectra.recognise(cy.simulate(RescaledFlow(), z, time=20.0, mask=mask))
    without = spectra.recognise(cy.simulate(RescaledFlow(), z[:9], time=20.0))
    assert with_padding.labels.tolist() == [*without.labels.tolist(), -1, -1, -1]
    np.testing.assert_allclose(with_padding.points, without.points)
    with pytest.raises(ValueError, match="select"):
        spectra.recognise(cy.simulate(RescaledFlow(), np.stack([z, z]), time=0.1))


def test_propagation_against_the_dense_exponential():
    """Small (formed), large (its action), unequal times, a defective V and no V at all."""
    from scipy.linalg import expm

    rng = np.random.default_rng(10)
    times = np.array([0.0, 0.3, 0.6, 1.0, 1.0, 2.5])
    low = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 40)) / 20  # as in a head: rank 2 of 40
    for n, V in ((6, rng.normal(size=(3, 3))), (4, np.eye(2, k=1)), (8, low), (7, None)):
        M = Softmax(1.0).weights(rng.normal(size=(n, 3)))
        x = rng.normal(size=(n, 3 if V is None else len(V)))
        got = spectra.propagate(M, V, x, times)
        full = np.kron(M, np.eye(3) if V is None else V)
        for t, state in zip(times, got, strict=True):
            expected = (expm(t * full) @ x.ravel()).reshape(x.shape)
            np.testing.assert_allclose(state, expected, rtol=1e-11, atol=1e-12)


def test_the_master_equation_of_the_leading_flow_is_that_of_x():
    z = np.random.default_rng(1).normal(size=(6, 2)) * 0.5
    options = {"times": [0, 0.5, 0.8], "stepper": Adaptive(1e-12, 1e-14)}
    x = spectra.freeze(cy.simulate(EuclideanFlow(V=PAPER_V), z, **options), 1)
    y = spectra.freeze(cy.simulate(LeadingFlow(V=PAPER_V), z, **options), 1)
    np.testing.assert_allclose(y.error, x.error, rtol=1e-6, atol=1e-12)


def test_metastable_clusters_and_the_staircase():
    """Caps round three orthogonal directions hold long before they merge (B33)."""
    rng = np.random.default_rng(7)
    x = np.repeat(np.eye(3), 4, axis=0) + 0.05 * rng.normal(size=(12, 3))
    times = np.concatenate([[0.0], np.geomspace(0.05, 1e5, 120)])
    long = Adaptive(1e-8, 1e-10, "LSODA")
    tr = cy.simulate(SphereFlow(Softmax(9.0)), x, times=times, stepper=long)
    found = spectra.metastable(tr, 1e-2)
    caps = next(p for p in found if p.clusters == 3)
    assert caps.lifetime > 100 and found[-1].clusters == 1
    stairs = spectra.energy(tr.z, 9.0)
    assert abs(stairs[60] - 1 / 3) < 0.01 and stairs[-1] == pytest.approx(1)
    assert (np.diff(stairs) > -1e-7).all()
    json.dumps(caps.to_dict())


def test_energy_increases_in_both_sphere_flows():
    x = np.random.default_rng(8).normal(size=(10, 3))
    for flow in (SphereFlow(Softmax(2.0)), UnnormalizedSphereFlow(2.0)):
        assert (np.diff(spectra.energy(cy.simulate(flow, x, time=3.0).z, 2.0)) > -1e-9).all()


def test_attention_matrix_of_each_kind():
    z = np.random.default_rng(9).normal(size=(5, 2))
    for dynamics in (cy.PureAttention(), AttentionFlow(), EuclideanFlow(), LeadingFlow(V=PAPER_V)):
        np.testing.assert_allclose(spectra.attention_matrix(dynamics, z, 0.7).sum(axis=1), 1)
    assert spectra.attention_matrix(NoisySphere(), z).shape == (5, 5)
    with pytest.raises(ValueError, match="no attention"):
        spectra.attention_matrix(UnnormalizedSphereFlow(), z)


def test_the_frozen_run_does_not_depend_on_a_random_state():
    """Large ones go through a solver of SciPy that draws at random; ours gives the same digits."""
    from cynosure.analysis.spectra.frozen import propagate

    rng = np.random.default_rng(0)
    M, V, x = rng.normal(size=(20, 20)), rng.normal(size=(30, 30)), rng.normal(size=(20, 30))
    assert x.size > 256  # else the exponential itself is formed
    times = np.array([0.0, 0.3, 1.0])
    runs = []
    for seed in (1, 2, 3):
        np.random.seed(seed)
        runs.append(propagate(M / 10, V / 10, x, times).tobytes())
        assert np.random.randint(10**9) == np.random.RandomState(seed).randint(10**9)
    assert len(set(runs)) == 1
