"""Constant sets as a linear system: limits and motions against plain iteration."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cynosure.engine.patterns import Pattern, components, ends, motions

ALPHAS = [Fraction(1), Fraction(1, 2), Fraction(3, 10), Fraction(3)]


@st.composite
def systems(draw):
    """Moving classes 0..m-1 with any shares, then classes that stay."""
    m, fixed = draw(st.integers(1, 5)), draw(st.integers(0, 2))
    shares = {}
    for c in range(m):
        members = draw(st.sets(st.integers(0, m + fixed - 1), min_size=1, max_size=3))
        weights = [draw(st.integers(1, 3)) for _ in members]
        shares[c] = {
            j: Fraction(w, sum(weights)) for j, w in zip(sorted(members), weights, strict=True)
        }
    places = draw(
        st.lists(
            st.tuples(st.integers(-5, 5), st.integers(-5, 5)),
            min_size=m + fixed,
            max_size=m + fixed,
        )
    )
    z = [[Fraction(x), Fraction(y)] for x, y in places]
    return Pattern(shares, draw(st.sampled_from(ALPHAS))), z


def stepped(pattern, z):
    return [
        [
            pattern.rho * x + pattern.eta * sum(w * z[j][i] for j, w in pattern.shares[c].items())
            for i, x in enumerate(row)
        ]
        if c in pattern.shares
        else row
        for c, row in enumerate(z)
    ]


def placed(motion, s, i):
    return sum(b**s * sum(r[i] * s**a for a, r in enumerate(rows)) for b, rows in motion.items())


@settings(max_examples=60)
@given(systems())
def test_motions_are_the_iterated_map(system):
    pattern, z = system
    solved = motions(pattern, z.__getitem__, lambda j: {Fraction(1): [z[j]]})
    limits = ends(pattern, z.__getitem__, lambda j: z[j])
    now = z
    for s in range(7):
        for c, motion in solved.items():
            place = [
                sum(
                    b**s * sum(r[i] * s**a for a, r in enumerate(rows))
                    for b, rows in motion.items()
                )
                for i in range(2)
            ]
            assert place == now[c]
        now = stepped(pattern, now)
    for c, motion in solved.items():
        constant = motion.get(Fraction(1), [[Fraction(0)] * 2])
        assert constant[0] == limits[c] and not any(map(any, constant[1:]))


@settings(max_examples=60)
@given(systems())
def test_limits_do_not_move_and_keep_what_the_map_keeps(system):
    """L = M L; a recurrent ring without rational eigenvalues has its stationary mean too."""
    pattern, z = system
    limits = ends(pattern, z.__getitem__, lambda j: z[j])
    at_end = [limits.get(c, row) for c, row in enumerate(z)]
    assert stepped(pattern, at_end) == at_end
    later = stepped(pattern, stepped(pattern, z))
    assert ends(pattern, later.__getitem__, lambda j: z[j]) == limits


def test_a_ring_of_three_has_a_limit_but_no_rational_motion():
    ring = Pattern({c: {(c + 1) % 3: Fraction(1)} for c in range(3)}, Fraction(1, 2))
    z = [[Fraction(x)] for x in (0, 3, 9)]
    assert ends(ring, z.__getitem__, lambda j: z[j]) == {c: [Fraction(4)] for c in range(3)}
    assert motions(ring, z.__getitem__, lambda j: {Fraction(1): [z[j]]}) == {}


def test_components_come_after_those_they_lead_to():
    one = Fraction(1)
    pattern = Pattern({0: {1: one}, 1: {2: one}, 2: {1: one}, 3: {0: one}, 4: {9: one}}, one)
    order = components(pattern)
    assert sorted(map(tuple, order)) == [(0,), (1, 2), (3,), (4,)]
    assert order.index([1, 2]) < order.index([0]) < order.index([3])


@pytest.mark.parametrize("length", [5, 3000])
def test_long_chains_need_no_recursion(length):
    chain = Pattern({c: {c + 1: Fraction(1)} for c in range(length)}, Fraction(1))
    assert [ring for (ring,) in map(tuple, components(chain))] == list(range(length))[::-1]
