"""The rules beyond S: patterns of constant sets, and what is proved about them."""

from fractions import Fraction

import numpy as np
import pytest

import cynosure as cy
import oracle
from cynosure.analysis import limits
from cynosure.engine.certificates import ConstantSets


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


def hardmax(A, alpha):
    return cy.PureAttention(cy.Hardmax(np.array(A, float)), alpha=alpha)


@pytest.mark.parametrize("exact", [True, False])
def test_a_token_tied_with_itself_is_settled(exact):
    """A = diag(1, 0): token 1 scores 0 everywhere and follows all three, itself among them."""
    li = cy.limit(hardmax([[1, 0], [0, 0]], 2), [(-2, -3), (0, 3), (2, -2)], exact=exact)
    assert li.certified and li.rule.tolist() == ["leader", "T", "leader"]
    assert li.points[1].tolist() == [0.0, -2.5]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(2), 0.3])
def test_two_tokens_that_follow_each_other_are_settled_by_t(alpha, exact):
    """The pair shrinks to its middle by (1 - alpha) / (1 + alpha), negative for alpha > 1; every
    score tends to 0, so only the sign of an exponential sum for all layers can tell."""
    li = cy.limit(hardmax([[-2, 1], [6, -3]], alpha), [(1, 0), (0, 2)], exact=exact)
    assert li.certified and li.rule.tolist() == ["T", "T"] and len(li.leaders) == 0
    assert li.points.tolist() == [[0.5, 1.0]] * 2


def test_two_tokens_that_meet_lead_together():
    """alpha = 1 brings mutual followers to one point in one layer: from there on one value."""
    form = hardmax([[-2, 1], [6, -3]], 1)
    li = cy.limit(form, [(1, 0), (0, 2)])
    assert li.certified and li.born.tolist() == [1, 1] and li.follows.tolist() == [0, 0]
    assert li.points.tolist() == [[0.5, 1.0]] * 2
    followed = cy.roles(cy.simulate(form, [[1.0, 0.0], [0.0, 2.0]], layers=2)).followed
    assert not followed(0).leads.any() and followed(1).leads.all()
    assert [row.tolist() for row in followed(1)] == [[0, 1], [0, 1]]


@pytest.mark.parametrize("alpha", [1, 0.999, 0.5, 2])
def test_minus_the_identity_has_leaders_for_every_alpha(alpha):
    """At alpha = 1 four starts in five had none, while tokens that met were counted apart."""
    rng = np.random.default_rng(11)
    for _ in range(20):
        li = cy.limit(hardmax(-np.eye(2), alpha), rng.normal(size=(8, 2)))
        assert li.certified and len(li.leaders) > 0


def test_limits_of_mirrored_chains():
    """Small integers on which rows of two units were compared with each other."""
    z = [(1, 2, 0), (5, 4, 2), (5, 4, -2), (5, 0, 32), (5, 0, -32), (12, -4, 0)]
    for exact in (True, False):
        li = cy.limit(cy.PureAttention(alpha=1), z, exact=exact)
        assert li.points[0].tolist() == [12.0, -4.0, 0.0]
        chain = [[3, -2, 0], [6, 3, 1], [6, 3, -1], [5, 0, 49], [5, 0, -49]]
        assert cy.limit(cy.PureAttention(alpha=3), chain, exact=exact).born[0] == 2


@pytest.mark.parametrize("exact", [True, False])
def test_your_floats_all_of_them(exact):
    """No power of two that is taken out of the tokens or of A may cost a coordinate."""
    half = cy.PureAttention(alpha=0.5)
    li = cy.limit(half, [[1.0], [-2.0], [1e-323]], exact=exact)
    assert li.follows.tolist() == [0, 1, 0]
    li = cy.limit(half, [[1e300, 0.0], [0.0, 1e-300], [0.0, 2e-300]], exact=exact)
    assert li.points.tolist() == [[1e300, 0.0], [0.0, 2e-300], [0.0, 2e-300]]
    form = hardmax(np.diag([1e300, 1e-300]), 1)
    li = cy.limit(form, [[0.0, 1.0], [0.0, 2.0], [1e-300, -1.0], [0.0, -3.0]], exact=exact)
    assert li.follows.tolist() == [1, 1, 3, 3]
    li = cy.limit(half, [[1e308, 5e-324], [-1e308, 0.0], [1e307, 5e-324]], exact=exact)
    assert li.points.tolist() == [[1e308, 5e-324], [-1e308, 0.0], [1e308, 5e-324]]


@pytest.mark.parametrize(
    "alpha", [Fraction(1, 2), 1e-9, 2.0**-54, 1e-300], ids=["half", "1e-9", "2^-54", "1e-300"]
)
def test_a_switch_beyond_the_last_layer_is_undecided_at_once(alpha):
    """G4 with an offset of 1e-6: the switch comes after a million layers, or far later."""
    z = [(1, 1), (1, -1), (-1, -1), (-1, 1), (0.5, 0), (1 + 1e-6, 0.7), (1 + 1e-6, -0.7)]
    layers = []
    li = cy.limit(
        cy.PureAttention(alpha=alpha), z, progress=lambda layer, open_: layers.append(layer)
    )
    assert li.undecided.tolist() == [4] and len(layers) < 50


def test_irrational_rings_end_undecided_when_the_budget_is_spent(monkeypatch):
    """Three tokens chasing each other under a rotation: eigenvalues are cube roots of unity."""
    monkeypatch.setattr(limits, "_WORK", 300_000)
    turn = [[0.0, -1.0], [1.0, 0.0]]
    triangle = [[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]]
    layers = []
    li = cy.limit(hardmax(turn, 0.3), triangle, progress=lambda layer, open_: layers.append(layer))
    assert 50 < len(layers) < 500 and len(li.undecided) == 3


def test_a_deadline_ends_the_exact_part():
    li = cy.limit(
        hardmax([[0, -1], [1, 0]], 0.3), [[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]], deadline=1e-9
    )
    assert li.layers == 0 and len(li.undecided) == 3
    with pytest.raises(ValueError, match="deadline: expected a positive number"):
        cy.limit(cy.PureAttention(), [[1.0]], deadline=0)


def test_sets_that_switch_for_ever_end_undecided():
    """A = -1: whoever is not in the extreme pair shrinks by 1/(1 + alpha) a layer, the pair faster,
    so the pair is always another one: no set is constant, and the integers stay as small."""
    layers = []
    z = [[0.0], [4.0], [3.0], [-4.0]]
    li = cy.limit(hardmax([[-1]], 0.5), z, progress=lambda layer, open_: layers.append(layer))
    assert len(li.undecided) > 0 and 100 < len(layers) < 10_000


@pytest.mark.parametrize("exact", [False, True])
def test_tokens_without_scores_tend_to_their_mean(exact):
    """A z = 0 for every token: all follow all, and one mean is enough for the proof of all.

    No layer is stepped: token by token each step would cost n^2 d products of rationals.
    """
    n, d = 12, 3
    rng = np.random.default_rng(4)
    z = np.concatenate([np.zeros((n, 1)), rng.integers(-9, 9, size=(n, d - 1))], axis=1)
    z = np.concatenate([z, z[:2]])  # two values twice
    A = np.diag([1.0, 0, 0])
    li = cy.limit(cy.PureAttention(cy.Hardmax(A), alpha=1), z, exact=exact)
    assert li.certified and set(li.rule) == {"G"} and set(li.settled_at) == {0}
    states, sets = oracle.run(z.astype(int).tolist(), 1, 40, A=A.astype(int).tolist())
    assert all(len(one) == len(z) for layer in sets for one in layer)
    np.testing.assert_allclose(np.array(states[-1], float), li.points, atol=1e-8)
    touched = z.copy()
    touched[3, 0] = 1.0  # one token with a score, and the rule must not apply
    assert set(cy.limit(cy.PureAttention(cy.Hardmax(A), alpha=1), touched).rule) != {"G"}
