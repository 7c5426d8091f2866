"""Signs of exponential sums for all s, against plain evaluation."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cynosure.engine import exponentials
from cynosure.engine.budget import Budget, Exhausted
from cynosure.engine.exponentials import ExponentialSum, parts_of


def first_nonzero(terms):
    return exponentials.first_nonzero(parts_of(terms), Budget())


def first_nonpositive(terms, limit, budget=None):
    return exponentials.first_nonpositive(parts_of(terms), limit, budget or Budget())


BASES = [Fraction(1), Fraction(1, 2), Fraction(2, 3), Fraction(9, 10), Fraction(4, 9), Fraction(0)]
NEGATIVE = [Fraction(-1, 2), Fraction(-3, 5), Fraction(-9, 10)]
polynomials = st.lists(st.fractions(-3, 3, max_denominator=6), min_size=1, max_size=4)
sums = st.dictionaries(st.sampled_from(BASES + NEGATIVE), polynomials, min_size=1, max_size=4)


def plain(terms, s):
    return sum(b**s * sum(c * s**i for i, c in enumerate(p)) for b, p in terms.items())


@pytest.mark.parametrize("scanned", [4096, 3, 0])
@given(terms=sums)
def test_first_nonpositive_against_plain_evaluation(scanned, terms):
    """Layer by layer, and by pieces on which the sum is monotone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exponentials, "_SCANNED", scanned)
        first = next((s for s in range(1, 61) if plain(terms, s) <= 0), None)
        found, proved = first_nonpositive(terms, 60)
        assert found == first
        if found is None and proved:
            assert all(plain(terms, s) > 0 for s in (61, 62, 99, 150, 401, 800))


@given(terms=sums)
def test_a_sum_that_is_not_zero_is_soon_seen_not_to_be(terms):
    s = first_nonzero(terms)
    assert s == next((s for s in range(1, 40) if plain(terms, s) != 0), None)


def test_a_sum_may_vanish_a_few_times_first():
    roots = [Fraction(-6), Fraction(11), Fraction(-6), Fraction(1)]  # (s - 1)(s - 2)(s - 3)
    assert first_nonzero({Fraction(1, 2): roots}) == 4
    assert first_nonpositive({Fraction(1, 2): roots}, 50) == (1, True)


@pytest.mark.parametrize("base", [Fraction(1, 2), Fraction(10**40, 10**40 + 1)])
def test_a_late_change_is_found_and_not_claimed_too_early(base):
    terms = {base: [Fraction(10**12), Fraction(-1)]}  # 10^12 - s
    assert first_nonpositive(terms, 10**11) == (None, False)
    assert first_nonpositive(terms, 10**13) == (10**12, True)


def test_truncated_powers_agree_with_whole_ones():
    """1 - c rho^s changes sign between two layers near 20,000; whole powers have 10^6 bits."""
    rho = Fraction(2**53, 2**53 + 2**43 + 1)
    for extra, at_20_000 in ((0, 0), (1, -1), (-1, 1)):
        f = ExponentialSum({Fraction(1): [Fraction(1)], rho: [-(1 / rho**20_000) - extra]})
        assert [f.sign(s, Budget()) for s in (19_999, 20_000, 20_001)] == [-1, at_20_000, 1]


def test_a_budget_ends_the_search():
    terms = {Fraction(1, 2): [Fraction(10**12), Fraction(-1)]}
    with pytest.raises(Exhausted):
        first_nonpositive(terms, 10**13, Budget(1000))
