"""The rules beyond S: exponential polynomials, and what they say about constant sets."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
import oracle
from cynosure.engine.exponomials import Exponomial

coefficients = st.lists(st.fractions(-3, 3, max_denominator=6), max_size=3)


@given(
    st.sampled_from([Fraction(1, 2), Fraction(2, 3), Fraction(10, 11)]),
    st.sampled_from([Fraction(0), Fraction(1), Fraction(-1, 50)]),
    coefficients,
    coefficients,
)
def test_first_nonpositive_against_plain_evaluation(rho, c0, p1, p2):
    f = Exponomial(rho, c0, p1, p2)

    def plain(s):
        return (
            c0
            + rho**s * sum(c * s**i for i, c in enumerate(p1))
            + rho ** (2 * s) * sum(c * s**i for i, c in enumerate(p2))
        )

    first = next((s for s in range(1, 120) if plain(s) <= 0), None)
    found, proved = f.first_nonpositive(119)
    assert found == first
    if found is None and proved:
        assert all(plain(s) > 0 for s in (150, 200, 400, 800))


def test_exponomial_tail_is_not_claimed_too_early():
    # positive for a long while, negative in the end: p1 ~ 1000 - s
    f = Exponomial(Fraction(1, 2), Fraction(0), [Fraction(1000), Fraction(-1)], [])
    assert f.first_nonpositive(500) == (None, False)
    assert f.first_nonpositive(5000) == (1000, True)


@pytest.mark.parametrize("delta", [Fraction(1, 50), Fraction(1, 200), Fraction(1, 1000)])
def test_late_switch_is_found_by_jumping(delta):
    """G4 with a small offset: the axis token becomes a leader after ~ (1/2+delta)/(delta alpha)
    layers, at a height far below float resolution; the walk must skip there, not give up."""
    half = Fraction(1, 2)
    z = [
        (1, 1),
        (1, -1),
        (-1, -1),
        (-1, 1),
        (half, 0),
        (1 + delta, 1 - 3 * delta),
        (1 + delta, 3 * delta - 1),
    ]
    alpha = Fraction(1, 2)
    li = cy.limit(cy.PureAttention(alpha=alpha), z, exact=True)
    assert li.certified and li.born[4] > 0
    k = int(li.born[4])
    assert abs(k - (half + delta) / (delta * alpha)) < k / 2
    if k < 120:  # the plain oracle can still follow
        states, sets = oracle.run(z, alpha, k + 1)
        assert oracle.born(states, sets)[4] == k
        assert tuple(li.exact_points[4]) == states[k][4]


def test_rule_t_or_h_limits_are_reached():
    """Chains of ties that move for ever: limits against many plain exact layers."""
    z = [[1, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0], [1, 0.25], [1, -0.25], [0.25, 0]]
    li = cy.limit(cy.PureAttention(alpha=1), z)
    assert li.certified
    assert set(li.rule) - {"leader", "S", "G", "fixed"}
    states, _ = oracle.run(z, 1, 40)
    np.testing.assert_allclose(np.array(states[-1], float), li.points, atol=1e-8)
