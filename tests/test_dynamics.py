"""Every dynamics against the conformance suite, and the exact relations between them."""

from fractions import Fraction

import numpy as np
import pytest

import conformance
import cynosure as cy
from cynosure.dynamics import Flow

CASES = [(name, p) for name in cy.DYNAMICS for p in conformance.PROPERTIES]


@pytest.mark.parametrize(("name", "prop"), CASES, ids=[f"{n}-{p.__name__}" for n, p in CASES])
def test_conformance(name, prop):
    reason = conformance.EXEMPT.get(name, {}).get(prop.__name__)
    if reason is None:
        prop(cy.DYNAMICS[name]())


class Drifting(cy.LayerMap):
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
    grown = cy.simulate(cy.UnnormalizedAttention(alpha=alpha), z, layers=20)
    bounded = cy.simulate(cy.PureAttention(alpha=alpha), z, layers=20)
    factor = (1 + alpha) ** grown.t.astype(float)
    np.testing.assert_allclose(grown.z, bounded.z * factor[:, None, None], rtol=1e-14)
    step = cy.UnnormalizedAttention(alpha=alpha)
    np.testing.assert_allclose(step.step(grown.z[4], 4), grown.z[5], rtol=1e-13)


def test_unnormalised_run_stops_before_it_overflows():
    z = conformance.tokens()
    dynamics = cy.UnnormalizedAttention(alpha=1.0)
    with pytest.raises(OverflowError, match="PureAttention"):
        cy.simulate(dynamics, z, layers=2000)
    run = cy.simulate(dynamics, z, layers=2000, throw=False)
    assert run.status.code == "overflow" and run.status.failed
    assert np.isfinite(run.z).all() and 1000 < run.t[-1] < 1024
    assert len(run.t) == len(run.z)
    small = cy.simulate(dynamics, z.astype(np.float32), layers=300, throw=False)
    assert small.status.failed and np.isfinite(small.z).all() and 100 < small.t[-1] < 128
