"""The rules beyond S: exponential polynomials, and what they say about constant sets."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
import oracle
from cynosure.engine.certificates import ConstantSets


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


@given(
    st.sampled_from([Fraction(1, 2), Fraction(10, 11)]),
    st.sampled_from([Fraction(0), Fraction(1)]),
    coefficients,
    coefficients,
)
def test_a_nonzero_exponomial_is_soon_seen_to_be_nonzero(rho, c0, p1, p2):
    f = Exponomial(rho, c0, p1, p2)
    if not f.zero:
        s = f.first_nonzero()
        assert f(s) != 0 and all(f(t) == 0 for t in range(1, s))


def test_an_exponomial_may_vanish_a_few_times_first():
    roots = [Fraction(-6), Fraction(11), Fraction(-6), Fraction(1)]  # (s - 1)(s - 2)(s - 3)
    assert Exponomial(Fraction(1, 2), Fraction(0), roots, []).first_nonzero() == 4


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


def test_rule_t_settles_what_rule_h_settles(monkeypatch):
    """Two proofs of one statement: without H, T must settle the same tokens at the same limits."""
    half = Fraction(1, 2)
    square = [(1, 1), (1, -1), (-1, -1), (-1, 1)]
    chains = [
        [*square, (half, 0), (1, half / 2), (1, -half / 2), (half / 2, 0)],
        [*square, (half, 0), (1, 0), (Fraction(1, 8), 0), (-half, 0)],
    ]
    for exact in (True, False):
        limits = []
        for z in chains:
            tokens = z if exact else [[float(x) for x in row] for row in z]
            limits.append(cy.limit(cy.PureAttention(alpha=1), tokens, exact=exact))
        assert any("H" in li.rule for li in limits)
        with monkeypatch.context() as patch:
            patch.setattr(ConstantSets, "settled_by_h", lambda self: [])
            for z, by_h in zip(chains, limits, strict=True):
                tokens = z if exact else [[float(x) for x in row] for row in z]
                by_t = cy.limit(cy.PureAttention(alpha=1), tokens, exact=exact)
                assert by_t.rule.tolist() == [r.replace("H", "T") for r in by_h.rule.tolist()]
                np.testing.assert_array_equal(by_t.points, by_h.points)
                assert by_t.exact_points == by_h.exact_points
