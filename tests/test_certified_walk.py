"""The certified walk against the rational oracle: same sets, at every layer, on the same floats."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from cynosure.engine.walk import Walk

ALPHAS = [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(0.1), Fraction(1, 3)]


def walked_sets(walk, layers):
    """C_i at layers 0..layers-1, expanded to tokens."""
    out = []
    for k in range(layers):
        if not walk.settled:
            walk.decide()
        followed = walk.history().followed(k)
        out.append([f.tolist() for f in followed])
        walk.advance()
    return out


def assert_same_sets(walk, z, alpha, layers, A=None):
    _, expected = oracle.run(z, alpha, layers, A)
    assert walked_sets(walk, layers) == expected


integer_tokens = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=9)
)


@given(integer_tokens, st.sampled_from(ALPHAS))
def test_sets_of_integer_tokens_with_many_ties(z, alpha):
    tokens = np.array(z, float)
    assert_same_sets(Walk(tokens, None, alpha), z, alpha, 8)


@given(integer_tokens, st.sampled_from(ALPHAS[:4]), st.integers(0, 1000))
def test_sets_under_any_square_matrix(z, alpha, seed):
    d = len(z[0])
    A = np.random.default_rng(seed).integers(-2, 3, size=(d, d)).astype(float)
    exact_A = [tuple(Fraction(x) for x in row) for row in A.tolist()]
    assert_same_sets(Walk(np.array(z, float), A, alpha), z, alpha, 6, exact_A)


@pytest.mark.parametrize("angle", np.linspace(0.01, 1.5, 12))
@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(0.1)])
def test_rotated_squares_near_ties(angle, alpha):
    """The two corners tie up to the last bit of the rotated floats: only integers can tell."""
    c, s = np.cos(angle), np.sin(angle)
    square = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0], [-0.5, 0]])
    z = square @ np.array([[c, s], [-s, c]])
    walk = Walk(z, None, alpha)
    assert_same_sets(walk, z.tolist(), alpha, 12)
    assert walk.exact_decisions > 0


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1.0, 1e30, 1e150])
def test_scaling_by_any_factor_keeps_sets(scale):
    z = np.random.default_rng(3).normal(size=(25, 2)) * scale
    assert_same_sets(Walk(z, None, Fraction(1, 2)), z.tolist(), Fraction(1, 2), 4)


def test_states_agree_with_the_oracle_to_rounding():
    z = np.random.default_rng(5).normal(size=(20, 3))
    A = np.diag([1.0, 2.0, 0.5])
    walk = Walk(z, A, Fraction(1, 2))
    states, _ = oracle.run(z.tolist(), Fraction(1, 2), 12, oracle.exact(A.tolist()))
    for expected in states:
        np.testing.assert_allclose(walk.state(), np.array(expected, float), atol=1e-14)
        walk.advance()


def test_exact_side_equals_the_oracle_exactly():
    """point() must be the rational state itself, ties and closed forms included."""
    z = [[1, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0], [1, 0.25], [0.25, 0.125], [-0.5, 0]]
    alpha = Fraction(1, 3)
    walk = Walk(np.array(z), None, alpha, rationals=oracle.exact(z))
    states, _ = oracle.run(z, alpha, 10)
    for expected in states:
        if not walk.settled:
            walk.decide()
        scale = walk.scale
        got = [
            tuple(Fraction(x, scale) for x in walk.point(c)) for c in walk.table().label.tolist()
        ]
        assert got == expected
        walk.advance()


def test_floats_and_rationals_agree_on_duplicates_and_zeros():
    z = np.array([[2.0, 0], [2, 0], [1, 0], [0, 1], [0, 0], [0, 0], [1, 0]])
    for alpha in ALPHAS:
        assert_same_sets(Walk(z, None, alpha), z.tolist(), alpha, 5)
        rational = Walk(z, None, alpha, rationals=oracle.exact(z.tolist()))
        assert_same_sets(rational, z.tolist(), alpha, 5)


def test_the_judge_notices_a_wrong_set():
    z = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    walk = Walk(np.array(z), None, Fraction(1))
    walk.decide()
    walk._records[0].indices[1] = 2  # token 1 is tied between 0 and 2: drop one of them
    with pytest.raises(AssertionError):
        assert_same_sets(walk, z, Fraction(1), 2)


def test_score_error_bounds_the_actual_error():
    """The filter is a proof only if its bound is one: measure it on badly scaled tokens."""
    rng = np.random.default_rng(0)
    for d in (1, 2, 5, 20):
        z = rng.normal(size=(12, d)) * 10.0 ** rng.uniform(-6, 0, size=(12, 1))
        A = rng.normal(size=(d, d))
        walk = Walk(z, A, Fraction(1, 7))
        for _ in range(6):
            walk.decide()
            floats = walk._floats
            bound = floats.score_error(np.linalg.norm(floats.z, axis=1))
            computed = floats.queries(floats.z) @ floats.z.T
            scale = walk.scale
            points = [[Fraction(x, scale) for x in walk.point(c)] for c in range(12)]
            rows = oracle.exact(floats.A.tolist())
            for i, x in enumerate(points):
                for j, y in enumerate(points):
                    assert abs(Fraction(computed[i, j]) - oracle.score(rows, x, y)) <= bound[i]
            if walk.settled:
                break  # nothing is decided any more, and the bound stops growing
            walk.advance()


def test_tokens_at_the_end_of_the_range_stay_in_their_hull():
    """Rounding upwards past the largest float must not become infinite."""
    largest = np.finfo(float).max
    z = np.array([[largest, largest], [largest, -largest], [-largest, largest], [1e300, 3e307]])
    walk = Walk(z, np.array([[1.0, 0.3], [0.2, 1.0]]), Fraction(1, 3))
    for _ in range(40):
        walk.advance()
        assert np.isfinite(walk.state()).all()


def _no_integers(monkeypatch) -> None:
    def refuse(*_):
        raise AssertionError("a decision was taken in integers")

    monkeypatch.setattr("cynosure.engine.kernels.exact.maximisers", refuse)


def test_queries_that_are_zero_coordinate_by_coordinate_need_no_integers(monkeypatch):
    """Half of the tokens are 0 in the one coordinate that A reads: they follow all tokens."""
    z = np.random.default_rng(0).standard_normal((90, 3))
    z[::2, 1] = 0.0
    A = np.diag([0.0, 1.0, 0.0])
    _, expected = oracle.run(z.tolist(), Fraction(1), 1, A.tolist())
    for name in ("matvec", "maximisers"):
        monkeypatch.setattr(f"cynosure.engine.kernels.exact.{name}", None)
    found = Walk(z, A, Fraction(1)).followed()
    assert [f.tolist() for f in found] == expected[0]
    assert len(found[0]) == 90 > len(found[1])


def test_one_long_token_does_not_send_the_others_to_integers(monkeypatch):
    """A score is rounded in proportion to its key: beside 1e16 all short keys seemed to tie."""
    z = np.random.default_rng(0).standard_normal((90, 3))
    z[7] *= 1e16
    z[8] = 0.0
    _, expected = oracle.run(z.tolist(), Fraction(1), 1)
    _no_integers(monkeypatch)
    for gaps in (False, True):
        found = Walk(z, None, Fraction(1), gaps=gaps).followed()
        assert [f.tolist() for f in found] == expected[0]


def test_gaps_beside_a_long_token_are_those_between_scores():
    z = np.random.default_rng(1).standard_normal((80, 2))
    z[3] *= 2.0**60
    walk = Walk(z, None, Fraction(1), gaps=True)
    walk.decide()
    scores = np.sort(z @ z.T, axis=1)
    assert np.allclose(walk.table().margin, scores[:, -1] - scores[:, -2], rtol=1e-9)


@pytest.mark.parametrize("A", [np.zeros((2, 2)), np.diag([1.0, 0.0]), np.ones((2, 2))])
@pytest.mark.parametrize("gaps", [False, True])
def test_queries_that_are_zero_need_no_search(A, gaps, monkeypatch):
    """A z = 0: every key ties. Where they are many, their sets are written out at once."""
    z = np.random.default_rng(2).standard_normal((70, 2))
    z[::2, 0] = 0.0
    z[1::4] = z[1::4, :1] * [1.0, -1.0]
    _, expected = oracle.run(z.tolist(), Fraction(1), 1, [[Fraction(x) for x in r] for r in A])
    monkeypatch.setattr("cynosure.engine.kernels.MANY_TIES", 100)
    _no_integers(monkeypatch)
    assert [f.tolist() for f in Walk(z, A, Fraction(1), gaps=gaps).followed()] == expected[0]
