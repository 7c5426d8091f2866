"""Every dynamics against the conformance suite, and the exact relations between them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import conformance
import cynosure as cy
from cynosure import configurations as cf
from cynosure.dynamics import Flow, HardmaxLayers

MODELS = {**cy.dynamics.DYNAMICS, **conformance.MODELS}
CASES = [(name, p) for name in MODELS for p in conformance.PROPERTIES]


@pytest.mark.parametrize(("name", "prop"), CASES, ids=[f"{n}-{p.__name__}" for n, p in CASES])
def test_conformance(name, prop):
    reason = conformance.EXEMPT.get(name, {}).get(prop.__name__)
    if reason is None:
        prop(MODELS[name]())


@pytest.mark.parametrize("name", conformance.MODELS)
@pytest.mark.parametrize("prop", ["permutation_equivariant", "rotation_equivariant"])
def test_what_rotary_positions_are_exempt_from_they_do_not_have(name, prop):
    with pytest.raises(AssertionError):
        getattr(conformance, prop)(MODELS[name]())


class Drifting(cy.dynamics.LayerMap):
    """Moves padding, prefers the first axis, remembers the order: wrong in every way."""

    def step(self, z, k, *, mask=None):
        return z + np.arange(z.shape[-2])[:, None] * np.array([1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "prop", [conformance.permutation_equivariant, conformance.rotation_equivariant]
)
def test_the_suite_rejects_a_wrong_dynamics(prop):
    with pytest.raises(AssertionError):
        prop(Drifting())


class Rough(Flow):
    """Looks at padding, and jumps in time: neither inert nor smooth."""

    def velocity(self, z, t, *, mask=None):
        return z.mean(axis=-2, keepdims=True) * np.sign(np.sin(50 * t)) + 0 * z


@pytest.mark.parametrize("prop", [conformance.padding_inert, conformance.steppers_have_their_order])
def test_the_suite_rejects_a_wrong_flow(prop):
    with pytest.raises(AssertionError):
        prop(Rough())


@pytest.mark.parametrize("alpha", [0.0, -1, "abc", float("nan"), float("inf"), None, "1/0"])
def test_alpha_must_be_positive(alpha):
    with pytest.raises(ValueError, match="alpha"):
        cy.PureAttention(alpha=alpha)


def test_alpha_means_exactly_what_is_given():
    assert cy.PureAttention(alpha="1/10").exact_alpha == Fraction(1, 10)
    assert cy.PureAttention(alpha=0.1).exact_alpha == Fraction(0.1) != Fraction(1, 10)


@pytest.mark.parametrize("alpha", [0.5, 1, 3.0])
def test_unnormalised_tokens_are_the_rescaled_normalised_ones(alpha):
    z = conformance.tokens()
    grown = cy.simulate(cy.dynamics.UnnormalizedAttention(alpha=alpha), z, layers=20)
    bounded = cy.simulate(cy.PureAttention(alpha=alpha), z, layers=20)
    factor = (1 + alpha) ** grown.t.astype(float)
    np.testing.assert_allclose(grown.z, bounded.z * factor[:, None, None], rtol=1e-14)
    step = cy.dynamics.UnnormalizedAttention(alpha=alpha)
    np.testing.assert_allclose(step.step(grown.z[4], 4), grown.z[5], rtol=1e-13)


def test_unnormalised_run_stops_before_it_overflows():
    z = conformance.tokens()
    dynamics = cy.dynamics.UnnormalizedAttention(alpha=1.0)
    with pytest.raises(OverflowError, match="PureAttention"):
        cy.simulate(dynamics, z, layers=2000)
    run = cy.simulate(dynamics, z, layers=2000, throw=False)
    assert run.status.code == "overflow" and run.status.failed
    assert np.isfinite(run.z).all() and 1000 < run.t[-1] < 1024
    assert len(run.t) == len(run.z)
    small = cy.simulate(dynamics, z.astype(np.float32), layers=300, throw=False)
    assert small.status.failed and np.isfinite(small.z).all() and 100 < small.t[-1] < 128


# --- several softmax heads, and the feed-forward sublayer ----------------------------------------


def some_heads():
    rng = np.random.default_rng(5)
    forms = [G @ G.T for G in rng.normal(size=(3, 2, 2))]
    values = [np.eye(2) + 0.2 * (G + G.T) for G in rng.normal(size=(3, 2, 2))]
    return cy.attention.Heads(
        [cy.Softmax(beta, A) for beta, A in zip((0.5, 1.0, 2.0), forms)], values
    )


@pytest.mark.parametrize("average", [True, False])
def test_heads_flow_follows_the_heads_without_their_growth(average):
    heads = replace(some_heads(), average=average)
    flow, z0 = cy.dynamics.HeadsFlow(heads), cf.gaussian(7, 2, 0)
    y = cy.simulate(flow, z0, times=[0.0, 0.5]).values[-1]
    x = cy.simulate(cy.dynamics.UnnormalizedFlow(heads), z0, times=[0.0, 0.5]).values[-1]
    np.testing.assert_allclose(y, np.exp(-0.5 * flow.leading) * x, rtol=1e-7)
    P = np.mean([head.weights(z0) for head in heads.heads], axis=0)
    np.testing.assert_allclose(flow.weights(z0), P, atol=1e-14)


def test_equal_heads_are_one_head():
    z0, times = cf.gaussian(9, 2, 1), [0.0, 3.0]
    one = cy.simulate(cy.dynamics.RescaledFlow(), z0, times=times).values[-1]
    five = cy.attention.Heads([cy.Softmax()] * 5, [np.eye(2), None] * 2 + [None])
    for attention in (cy.Softmax(), five):
        y = cy.simulate(cy.dynamics.HeadsFlow(attention), z0, times=times).values[-1]
        np.testing.assert_allclose(y, one, atol=1e-7)


def test_heads_flow_is_safe_at_any_time_and_refuses_what_has_no_temperature():
    flow = cy.dynamics.HeadsFlow(cy.attention.Heads([cy.Softmax(4.0), cy.Softmax(-4.0)]))
    assert np.isfinite(flow.velocity(conformance.tokens(), 1e4)).all()
    for attention in (cy.Hardmax(), cy.attention.Heads([cy.Softmax(), cy.attention.Sinkhorn()])):
        with pytest.raises(TypeError, match="Softmax"):
            cy.dynamics.HeadsFlow(attention)


def test_the_heads_frozen_at_one_time_err_at_second_order():
    flow = cy.dynamics.HeadsFlow(replace(some_heads(), values=None))
    tr = cy.simulate(flow, 0.5 * cf.gaussian(6, 2), times=[0, 0.5, 0.52, 0.54, 0.58])
    error = cy.spectra.freeze(tr, 1).error[1:]
    assert abs(np.polyfit(np.log([0.02, 0.04, 0.08]), np.log(error), 1)[0] - 2) < 0.3
    with pytest.raises(ValueError, match="master equation"):
        cy.spectra.freeze(cy.simulate(cy.dynamics.HeadsFlow(some_heads()), tr.z[0], time=0.1))


def test_the_sublayer_is_the_formula():
    rng, z = np.random.default_rng(0), conformance.tokens()
    W1, W2 = rng.normal(size=(8, 3)), rng.normal(size=(3, 8))
    expected = z + 0.7 * np.maximum(z @ W1.T, 0) @ W2.T
    np.testing.assert_allclose(
        cy.dynamics.FeedForward(W1, W2, 0.7).step(z, 0), expected, atol=1e-14
    )
    for bad in ({"W1": [1.0, 2.0]}, {"W2": [[np.nan]]}, {"weight": float("inf")}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            cy.dynamics.FeedForward(**bad)


# --- what a dynamics answers about itself --------------------------------------------------------


def test_certified_layers_are_named_with_their_factor():
    A = np.diag([2.0, 1.0])
    pure = cy.PureAttention(cy.Hardmax(A), alpha="1/3").hardmax_layers
    assert pure.normalised and pure.alpha == Fraction(1, 3) and pure.attention.A is not None
    grown = cy.dynamics.UnnormalizedAttention(alpha=0.5).hardmax_layers
    assert not grown.normalised and grown.factor == Fraction(3, 2)
    others = (
        cy.PureAttention(cy.Softmax()),
        cy.dynamics.ValueAttention(),
        cy.dynamics.AttentionFlow(cy.Hardmax()),
    )
    assert all(dynamics.hardmax_layers is None for dynamics in others)


@pytest.mark.parametrize("name", sorted(cy.dynamics.DYNAMICS))
def test_growth_is_what_a_run_without_interaction_grows_by(name):
    """One token attends to itself alone, so that its growth is known exactly."""
    dynamics, z = cy.dynamics.DYNAMICS[name](), np.array([[0.6, 0.8]])
    tr = conformance.run(dynamics, z)
    bounded = dynamics.growth(-tr.t.astype(float))[:, None, None] * dynamics.converging(tr.values)
    if name not in ("feed_forward", "noisy_sphere"):  # W1 and W2, and the noise, move it
        np.testing.assert_allclose(bounded, np.broadcast_to(z, bounded.shape), atol=1e-6)
    assert dynamics.grows == (dynamics.growth(np.ones(1))[0] != 1)


@pytest.mark.parametrize("name", sorted(cy.dynamics.DYNAMICS))
def test_the_equation_with_frozen_attention_is_the_dynamics_to_first_order(name):
    dynamics, z = cy.dynamics.DYNAMICS[name](), conformance.tokens()
    try:
        P = dynamics.weights(z)
    except ValueError:
        return  # no single P
    equation = dynamics.frozen(P)
    if equation is None:
        return
    V = np.eye(3) if equation.V is None else equation.V
    moved = equation.M @ z @ V.T - equation.decay * z
    expected = dynamics.velocity(z, 0.0) if dynamics.in_time else dynamics.step(z, 0)
    np.testing.assert_allclose(moved, expected, atol=1e-12)


# --- a dynamics of the user's own: one function, and all works -----------------------------------


class Halving(cy.dynamics.LayerMap):
    """Tokens go half way to their mean."""

    def step(self, z, k, *, mask=None):
        return (z + z.mean(axis=-2, keepdims=True)) / 2


class Sinking(cy.dynamics.Flow):
    """z' = -z."""

    def velocity(self, z, t, *, mask=None):
        return -z


class Led(cy.dynamics.LayerMap):
    """Hardmax layers under another name: saying so is enough for leaders and proofs."""

    def step(self, z, k, *, mask=None):
        return cy.PureAttention().step(z, k, mask=mask)

    @property
    def hardmax_layers(self):
        return HardmaxLayers(cy.Hardmax(), Fraction(1))


@pytest.mark.parametrize("own", [Halving(), Sinking(), Led()], ids=lambda d: type(d).__name__)
def test_one_function_is_enough(own, tmp_path):
    tr = conformance.run(own, cf.gaussian(6, 2), layers=5)
    kind = cy.recognise(tr).kind
    checks = cy.check(tr)
    assert (len(checks) == len(cy.theorems.THEOREMS)) and all(c.holds is not False for c in checks)
    assert cy.plot.layers(tr).axes
    assert next(cy.movie.frames(tr, tween=1, size=64)).shape == (64, 64, 3)
    path = tr.save(tmp_path / "run.npz")
    with pytest.warns(UserWarning, match="only dataclasses at the top of a module"):
        assert cy.load(path).in_time == own.in_time
    if isinstance(own, Led):
        plain = cy.simulate(cy.PureAttention(), tr.z[0], layers=5)
        np.testing.assert_array_equal(tr.z, plain.z)
        np.testing.assert_array_equal(cy.roles(tr).born, cy.roles(plain).born)
        limits = cy.limit(own, tr.z[0]).points
        np.testing.assert_array_equal(limits, cy.limit(cy.PureAttention(), tr.z[0]).points)
        assert any(c.applies for c in checks)
    else:
        assert kind in ("clusters", "point", "zero")
        # that it is a run of what made it can be asked of anything, and is all there is
        assert {c.theorem for c in checks if c.applies} == {"B39"}
        with pytest.raises(ValueError, match="hardmax"):
            cy.roles(tr)
        with pytest.raises(TypeError, match="limit"):
            cy.limit(own, tr.z[0])
        with pytest.raises(ValueError, match="attention matrix"):
            cy.spectra.attention_matrix(own, tr.z[0])


def test_feed_forward_weights_that_do_not_fit_each_other_are_refused() -> None:
    z = np.ones((5, 2))
    with pytest.raises(ValueError, match=r"would get 5; expected W1 of shape \(width, d\)"):
        cy.simulate(cy.dynamics.FeedForward(np.ones((5, 2))), z, layers=2)


def test_no_representation_writes_out_a_large_matrix() -> None:
    """Small ones are written so that they can be typed in again."""
    big = np.eye(64)
    for one in (cy.dynamics.LeadingFlow(Q=big, K=big, V=big), cy.PureAttention(cy.Hardmax(big))):
        assert len(repr(one)) < 120 and "<64 x 64>" in repr(one)
    small = cy.PureAttention(cy.Softmax(2.0, [[1.0, 0.0], [0.0, 2.0]]), alpha=0.5)
    typed = eval(repr(small), {name: getattr(cy, name) for name in ("PureAttention", "Softmax")})
    assert repr(typed) == repr(small)
    assert len(repr(cy.analysis.clusters(np.random.default_rng(0).normal(size=(300, 9))))) < 80
