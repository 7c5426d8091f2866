"""limit(): golden cases, float against rational, and claims against plain exact layers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
import oracle
from cynosure import configurations as cf
from cynosure.engine.budget import Budget, Exhausted

F = Fraction
GOLDEN = {  # name, alpha -> (leaders, settled layer, {token: exact position of a late leader})
    ("G1", F(1, 2)): ([0, 1, 2], 1, {1: (F(-1, 18), F(5, 36))}),
    ("G1", F(1)): ([0, 1, 2], 1, {1: (F(-1, 24), F(1, 6))}),
    ("G1", F(1, 10)): ([0, 2], 5, {}),
    ("G1", F(2)): ([0, 2], 2, {}),
    ("G1", F(10)): ([0, 2], 1, {}),
    ("G2", F(1, 2)): ([0, 1, 2, 3], 0, {}),
    ("G2a", F(1, 2)): ([0, 1, 2, 3], 1, {}),
    ("G2b", F(1, 2)): ([0, 1, 2, 3], 0, {}),
    ("G2c", F(1, 2)): ([0, 1, 2, 3], 0, {}),
    ("G3", F(1, 2)): ([0, 1, 2], 0, {}),
    ("G4", F(1, 10)): ([0, 1, 2, 3, 4], 61, {}),
    ("G4", F(1, 2)): ([0, 1, 2, 3, 4], 13, {}),
    ("G4", F(2)): ([0, 1, 2, 3, 4], 4, {4: (1 + F(1, 270), F(0))}),
    ("G4", F(10)): ([0, 1, 2, 3, 4], 1, {4: (1 + F(1, 22), F(0))}),
}


@pytest.mark.parametrize(("name", "alpha"), GOLDEN)
def test_golden_cases_in_rationals(name, alpha):
    leaders, settled, late = GOLDEN[name, alpha]
    li = cy.limit(cy.PureAttention(alpha=alpha), cf.golden_exact(name), exact=True)
    assert li.certified and li.arithmetic == "exact"
    assert li.leaders.tolist() == leaders
    assert int(li.settled_at.max()) == settled
    for token, position in late.items():
        assert li.exact_points[token] == position


def test_golden_limits_that_are_not_leaders():
    half = cy.PureAttention(alpha=F(1, 2))
    square = cy.limit(half, cf.golden_exact("G2"), exact=True)
    assert square.exact_points[4:] == ((F(-1), F(0)), (F(1), F(0)))
    assert square.rule[4:].tolist() == ["G", "G"] and (square.follows[4:] == -1).all()
    broken = cy.limit(half, cf.golden_exact("G2a"), exact=True)
    assert broken.exact_points[6] == (F(1), F(1))
    chain = cy.limit(half, cf.golden_exact("G2b"), exact=True)
    assert chain.exact_points[5] == (F(1), F(0)) and chain.rule[5] == "H"
    fixed = cy.limit(half, cf.golden_exact("G2c"), exact=True)
    assert fixed.rule[6] == "fixed" and fixed.born[6] == -1
    triangle = cy.limit(half, cf.golden_exact("G3"), exact=True)
    assert triangle.follows.tolist() == [0, 1, 2, 1, 1]


def test_golden_g4_heights():
    heights = {F(1, 10): 3.284270e-4, F(1, 2): 7.707347e-4}
    for alpha, height in heights.items():
        li = cy.limit(cy.PureAttention(alpha=alpha), cf.golden_exact("G4"), exact=True)
        assert float(li.exact_points[4][0] - 1) == pytest.approx(height, rel=1e-6)


def same(a, b):
    """Two limits agree in every decision, and in their points to rounding."""
    np.testing.assert_array_equal(a.born, b.born)
    np.testing.assert_array_equal(a.settled_at, b.settled_at)
    np.testing.assert_array_equal(a.rule, b.rule)
    np.testing.assert_array_equal(a.follows, b.follows)
    np.testing.assert_allclose(a.points, b.points, rtol=0, atol=1e-12 * max(1, abs(b.points).max()))


def test_the_judge_notices_one_wrong_layer():
    li = cy.limit(cy.PureAttention(), cf.golden("G1"))
    other = cy.limit(cy.PureAttention(alpha=2.0), cf.golden("G1"))
    with pytest.raises(AssertionError):
        same(li, other)


tied = st.integers(1, 3).flatmap(
    lambda d: st.lists(
        st.lists(st.integers(-4, 4), min_size=d, max_size=d), min_size=2, max_size=12
    )
)
rational_alphas = st.sampled_from([F(1, 10), F(1, 3), F(1, 2), F(1), F(2), F(7, 3), F(10)])


@given(tied, rational_alphas)
def test_float_limit_equals_rational_limit_on_ties(z, alpha):
    dynamics = cy.PureAttention(alpha=alpha)
    fast = cy.limit(dynamics, np.array(z, float), max_layers=3000)
    slow = cy.limit(dynamics, np.array(z, float), exact=True, max_layers=3000)
    same(fast, slow)
    if np.array(z).any(axis=1).all():
        assert slow.certified  # B3 with duplicates as classes


@given(tied, st.sampled_from([F(1, 2), F(1), F(3)]))
def test_claims_hold_along_plain_exact_layers(z, alpha):
    """Settled sets never change, leaders are as the definition says, limits are approached."""
    li = cy.limit(cy.PureAttention(alpha=alpha), z, exact=True, max_layers=500)
    last = li.layers + 12
    if last > 40:
        return  # the oracle is too slow beyond
    states, sets = oracle.run(z, alpha, last)
    assert [b if b < last else -1 for b in oracle.born(states, sets)] == li.born.tolist()
    for i, settled in enumerate(li.settled_at.tolist()):
        if settled < 0:
            continue
        assert all(sets[k][i] == sets[settled][i] for k in range(settled, last))
        far = [
            max(abs(a - b) for a, b in zip(states[k][i], li.exact_points[i], strict=True))
            for k in (settled, last)
        ]
        assert far[1] <= far[0]
        if li.rule[i] in ("S", "G"):
            assert far[1] == far[0] / (1 + alpha) ** (last - settled)


@pytest.mark.parametrize("seed", range(20))
def test_rotated_squares_equal_rationals_on_the_same_floats(seed):
    angle = np.random.default_rng(seed).uniform(0, np.pi)
    z = cf.rotated_square(angle)
    dynamics = cy.PureAttention(alpha=0.5)
    same(cy.limit(dynamics, z), cy.limit(dynamics, z, exact=True))


@pytest.mark.parametrize("d", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 2.0])
def test_gaussian_limits_are_leaders(d, alpha):
    z = cf.gaussian(60, d, seed=d)
    li = cy.limit(cy.PureAttention(alpha=alpha), z)
    assert li.certified and (li.follows >= 0).all()
    np.testing.assert_array_equal(li.points, li.points[li.follows])
    same(li, cy.limit(cy.PureAttention(alpha=alpha), z, exact=True))
    if d > 1:
        assert (li.margin > 0).all() and np.isfinite(li.margin).all()


def test_margin_is_the_smallest_gap_of_the_scores():
    z = cf.gaussian(30, 3, seed=4)
    li = cy.limit(cy.PureAttention(), z)
    scores = np.sort(z @ z.T, axis=1)
    gap = scores[:, -1] - scores[:, -2]
    settled_at_once = li.settled_at == 0
    np.testing.assert_allclose(li.margin[settled_at_once], gap[settled_at_once], rtol=1e-9)
    assert (li.margin <= gap * (1 + 1e-9)).all()
    A = np.diag([3.0, 0.5, 8.0])
    for dynamics in (cy.PureAttention(), cy.PureAttention(cy.Hardmax(A))):
        fast, slow = (cy.limit(dynamics, 5 * z, exact=exact) for exact in (False, True))
        np.testing.assert_allclose(fast.margin, slow.margin, rtol=1e-9)


def test_non_symmetric_matrix_is_never_called_converged():
    """A rotation by 75 degrees: three tokens chase each other, docs/mathematics.md B16."""
    t = np.deg2rad(75)
    A = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    z = cf.polygon(3)
    li = cy.limit(cy.PureAttention(cy.Hardmax(A)), z, max_layers=40)
    assert not li.certified and len(li.undecided) == 3 and len(li.leaders) == 0
    with pytest.raises(ValueError, match="no leader"):
        _ = li.polytope


def test_polytope_vertices_are_the_leaders():
    z = cf.gaussian(200, 3, seed=1)
    li = cy.limit(cy.PureAttention(), z)
    np.testing.assert_array_equal(np.sort(li.polytope.index), li.leaders)
    assert li.polytope.contains(li.points).all()


def test_polytope_of_a_degenerate_form_is_the_hull_of_the_limits():
    """A = diag(1, 0): two tokens meet at (1, 0), which nobody leads."""
    li = cy.limit(cy.PureAttention(cy.Hardmax(np.diag([1.0, 0.0]))), [[1, 1], [1, -1], [-2, 0]])
    assert li.certified and li.leaders.tolist() == [2]
    assert sorted(li.polytope.vertices.tolist()) == [[-2, 0], [1, 0]]


def test_duplicates_zero_tokens_padding_and_float32():
    z = np.array([[2, 0], [2, 0], [1, 0.25], [0, 1], [0, 0], [9, 9]], dtype=np.float32)
    mask = np.array([True] * 5 + [False])
    li = cy.limit(cy.PureAttention(alpha=1), z, mask=mask)
    assert li.points.dtype == np.float32
    assert li.leaders.tolist() == [0, 1, 3]
    assert li.certified and li.points[5].tolist() == [9, 9]
    assert li.points[2].tolist() == [2, 0]
    one = cy.limit(cy.PureAttention(), [[3.0]])
    assert one.certified and one.leaders.tolist() == [0]


def test_rules_in_words():
    square = [[1, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0.0], [0.5, 0.25], [9, 9]]
    mask = [True] * 6 + [False]
    li = cy.limit(cy.PureAttention(alpha=0.5), square, mask=mask)
    assert li.in_words(0) == "leads, proved at layer 0"
    assert li.in_words(4) == "tied, moves to a fixed mean, proved at layer 0"
    assert li.in_words(5) == "follows a leader: token 0, proved at layer 0"
    assert li.in_words(6) == "padding"
    broken = cy.limit(cy.PureAttention(alpha=F(1, 2)), cf.golden_exact("G2c"), exact=True)
    assert broken.in_words(6) == "stays where it is, proved at layer 0"
    turning = cy.PureAttention(cy.Hardmax([[0.0, -1.0], [1.0, 0.0]]))
    assert cy.limit(turning, cf.polygon(3), max_layers=4).in_words(2) == "undecided after 4 layers"
    with pytest.raises(IndexError, match="from 0 to 6, got 7"):
        li.in_words(7)


def test_bad_input_says_what_to_do():
    with pytest.raises(ValueError, match="one configuration"):
        cy.limit(cy.PureAttention(), np.zeros((2, 3, 4)))
    with pytest.raises(TypeError, match="PureAttention"):
        cy.limit(cy.dynamics.UnnormalizedAttention(), np.ones((2, 2)))
    with pytest.raises(ValueError, match="max_layers"):
        cy.limit(cy.PureAttention(), np.ones((2, 2)), max_layers=-1)
    with pytest.raises(ValueError, match="expected shape"):
        cy.limit(cy.PureAttention(cy.Hardmax(np.eye(3))), np.ones((2, 2)))


@pytest.mark.slow
def test_a_thousand_tied_configurations():
    """Float against rational on 1,000 random integer configurations: none may differ."""
    rng = np.random.default_rng(2024)
    alphas = [F(1, 10), F(1, 3), F(1, 2), F(1), F(2), F(10)]
    for _ in range(1000):
        n, d = int(rng.integers(2, 13)), int(rng.integers(1, 4))
        z = rng.integers(-4, 5, size=(n, d)).astype(float)
        dynamics = cy.PureAttention(alpha=alphas[int(rng.integers(len(alphas)))])
        same(cy.limit(dynamics, z), cy.limit(dynamics, z, exact=True))


def test_the_sets_of_layer_0_are_known_whatever_the_rest_costs(monkeypatch) -> None:
    z = np.random.default_rng(0).integers(-1, 2, size=(40, 6)).astype(float)
    layers = cy.PureAttention(
        cy.Hardmax(np.diag([1e-100, 1e300, 1e200, 1e-100, 1e-200, 1])), 1e-300
    )
    monkeypatch.setattr("cynosure.analysis.limits._WORK", 1)
    li = cy.limit(layers, z)
    born = cy.simulate(layers, z, layers=0).history.born
    assert (born >= 0).any() and (li.born == born).all() and len(li.undecided)


def chattering(n: int) -> cy.analysis.Limit:
    """One token crosses 0 at nearly every layer, for some 1e9 of them: nothing is ever constant."""
    far = np.linspace(2.0, 3.0, n - 1)[:, None]
    z = np.concatenate((far * (-1.0) ** np.arange(n - 1)[:, None], [[0.0]]))
    return cy.limit(cy.PureAttention(cy.Hardmax([[-1.0]]), 1e-9), z)


def test_a_walk_is_charged_by_its_layers_and_by_the_tokens_searched(monkeypatch) -> None:
    monkeypatch.setattr("cynosure.analysis.limits._WORK", 100_000)
    monkeypatch.setattr("cynosure.engine.proofs._FREE", 0)
    monkeypatch.setattr("cynosure.engine.proofs._FREE_CLASS", 0)
    few, many = chattering(4), chattering(60)
    assert len(few.undecided) and len(many.undecided)
    assert 20 < many.layers < few.layers / 2 < 100


def test_work_that_is_refused_is_not_counted() -> None:
    budget = Budget(100)
    with budget.limited(0.5):
        with pytest.raises(Exhausted):
            budget.spend(1000)  # an attempt that asks for too much leaves the rest to the walk
        budget.spend(50)
        with pytest.raises(Exhausted):
            budget.spend(1)
    budget.spend(50)
    with pytest.raises(Exhausted):
        budget.spend(1)


def test_sets_of_earlier_layers_are_found_by_bisection() -> None:
    from cynosure.engine.walk import Walk

    walk = Walk(np.array([[3.0], [0.0], [-2.0]]), np.array([[-1.0]]), F(1, 1000))
    for _ in range(400):
        walk.advance()

    class Counted(list):  # what a search through all records would look at
        looked = 0

        def __getitem__(self, key):
            self.looked += 1
            return super().__getitem__(key)

        def __reversed__(self):
            for record in super().__reversed__():
                self.looked += 1
                yield record

    walk._records = Counted(walk._records)
    walk.point(1)
    assert 400 <= walk._records.looked <= 2 * 3 * 400 * 10  # twice per class and layer


def test_a_limit_as_a_table_and_as_arrays() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    li = cy.limit(cy.PureAttention(alpha=0.5), cy.configurations.golden("G2a"))
    frame = li.to_dataframe()
    assert len(frame) == len(li.points) and frame["limit1"].tolist() == li.points[:, 1].tolist()
    assert frame[frame["born"] >= 0]["token"].tolist() == li.leaders.tolist()
    data = li.to_xarray()
    np.testing.assert_array_equal(data["points"].sel(token=2), li.points[2])
    assert data["rule"].values.tolist() == li.rule.tolist() and data.attrs["layers"] == li.layers


def test_padding_is_no_vertex_of_the_polytope() -> None:
    """For A not definite K is the hull of the limits, in which padding was counted."""
    z = np.array([[9.0, 9.0], [-1, -1], [1, 1], [0, 0], [-1, 1]])
    mask = np.array([False, True, True, True, True])
    layers = cy.PureAttention(cy.Hardmax(-np.eye(2)), 1 / 3)
    li, alone = cy.limit(layers, z, mask=mask), cy.limit(layers, z[1:])
    assert li.certified
    np.testing.assert_array_equal(li.polytope.vertices, alone.polytope.vertices)
    np.testing.assert_array_equal(li.polytope.index, alone.polytope.index + 1)
