"""Integer arithmetic behind the decisions."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cynosure.engine.kernels.exact import exact_in_floats, integers, matvec, maximisers

rationals = st.fractions(min_value=-5, max_value=5, max_denominator=12)


@given(st.lists(st.lists(rationals, min_size=2, max_size=2), min_size=1, max_size=6))
def test_integers_keep_the_values(rows):
    ints, common = integers(rows)
    assert [[Fraction(x, common) for x in row] for row in ints] == rows


def test_maximisers_and_runner_up():
    keys = [(7, (1, 0)), (3, (0, 2)), (5, (1, 1))]
    assert maximisers((2, 1), keys) == ([5], 3, 1)
    assert maximisers((0, 0), keys) == ([7, 3, 5], 0, -1)
    assert matvec([(0, 1), (1, 0)], (3, 4)) == (4, 3)
    assert matvec(None, (3, 4)) == (3, 4)


@given(st.integers(1, 30), st.integers(1, 5), st.integers(0, 10**6))
def test_exact_in_floats_is_never_wrong(bits, d, seed):
    """Where it says yes, every dot product computed in floats is the exact one."""
    rng = np.random.default_rng(seed)
    z = np.ldexp(rng.integers(-(2**bits), 2**bits + 1, size=(4, d)).astype(float), -7)
    if exact_in_floats(z):
        for x in z:
            for y in z:
                exact = sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True))
                assert Fraction(float(x @ y)) == exact
    if bits <= 20:
        assert exact_in_floats(z)
    assert not exact_in_floats(np.array([[1.0, 1e-9]]))
