"""Rotary positions: scores by complex numbers, sets in rationals, what becomes of the theory."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
import oracle
from cynosure.attention import rotary
from test_attention import FORM, soft_oracle

LOSING = np.array([[-2.0, 0], [-2, -1], [-2, 2]])  # token 0 leads at layers 0 and 1, not at 2


def scores(z, A, base):
    """Re sum over planes of (A z_i)_m conj((z_j)_m) e^{i (i - j) w_m}: no matrix is turned."""
    n, d = z.shape
    h = d // 2
    w = base ** (-np.arange(h) / max(h, 1))
    q = z @ A.T
    planes_q, planes_k = (x[:, :h] + 1j * x[:, h : 2 * h] for x in (q, z))
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            turned = planes_q[i] * np.exp(1j * (i - j) * w)
            out[i, j] = (turned * planes_k[j].conj()).real.sum() + q[i, 2 * h :] @ z[j, 2 * h :]
    return out


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("base", [1.0, 30.0, 1e4])
def test_scores_are_those_of_planes_that_turn(d, base):
    rng = np.random.default_rng(d)
    z, A = rng.normal(size=(9, d)), rng.normal(size=(d, d))
    expected = scores(z, A, base)
    queries, keys, power = cy.attention.Rotary(cy.Softmax(1.0, A), base).sides(z)
    np.testing.assert_allclose(queries @ keys.T, expected, atol=1e-13)
    assert power is None
    form = cy.attention.Rotary(cy.Hardmax(A), base).form
    by_offset = [[(form(j - i, d) @ z[i]) @ z[j] for j in range(9)] for i in range(9)]
    np.testing.assert_allclose(by_offset, expected, atol=1e-13)
    P = cy.attention.Rotary(cy.Softmax(0.7, A), base).weights(z)
    soft = np.exp(0.7 * (expected - expected.max(axis=1, keepdims=True)))
    np.testing.assert_allclose(P, soft / soft.sum(axis=1, keepdims=True), atol=1e-12)
    one = np.sort(expected, axis=1)
    clear = one[:, -1] - (one[:, -2] if len(one) > 1 else 0) > 1e-9
    hard = cy.attention.Rotary(cy.Hardmax(A), base).followed(z)
    assert [hard[i].tolist() for i in np.flatnonzero(clear)] == [
        [int(np.argmax(expected[i]))] for i in np.flatnonzero(clear)
    ]


def test_without_planes_it_is_the_attention_itself():
    z = np.random.default_rng(0).normal(size=(8, 1))
    for rule in (cy.Softmax(2.0), cy.Hardmax(), cy.attention.Localmax(0.3)):
        np.testing.assert_array_equal(cy.attention.Rotary(rule).weights(z), rule.weights(z))
    z = np.random.default_rng(0).normal(size=(8, 4))
    expected = soft_oracle(z, 2.0, np.eye(4), lambda i, j: True)
    assert np.abs(cy.attention.Rotary(cy.Softmax(2.0)).weights(z) - expected).max() > 0.1


def sets_of(queries, keys, last=None):
    """The definition in rationals on floats, row by row."""
    q, k = (oracle.exact(x.tolist()) for x in (queries, keys))
    out = []
    for i, row in enumerate(q):
        some = k if last is None else k[: last(i) + 1]
        found = [sum((a * b for a, b in zip(row, key)), Fraction(0)) for key in some]
        out.append([j for j, s in enumerate(found) if s == max(found)])
    return out


small = st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=7)


@given(small, st.sampled_from([1.0, 7.0, 1e4]), st.integers(-400, 400))
def test_sets_are_those_of_exact_arithmetic_on_the_turned_floats(z, base, power):
    x = np.ldexp(np.array(z, float), power)
    rule = cy.attention.Rotary(cy.Hardmax(), base)
    queries, keys, _ = rule.sides(x)
    assert [s.tolist() for s in rule.followed(x)] == sets_of(queries, keys)
    P = cy.attention.Causal(rule).weights(x)
    causal = sets_of(queries, keys, last=lambda i: i)
    assert [np.flatnonzero(row).tolist() for row in P] == causal


def test_ties_of_floats_are_told_apart_in_integers():
    """Scores that round to one float; equal keys are one class, and all of it is followed."""
    q = np.array([[0.5, 2.0**-40], [0.5, 0.0], [0.0, 0.0], [1e-200, 0.0]])
    k = np.array([[1.0, 2.0**-30], [1.0, -(2.0**-30)], [1.0, 2.0**-30], [0.25, 0.0]])
    assert q[0] @ k[0] == q[0] @ k[1]
    found = [s.tolist() for s in rotary._sets(q, k)]
    assert found == sets_of(q, k) == [[0, 2], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2]]
    same = np.ones((3, 2))
    assert [s.tolist() for s in rotary._sets(same, same)] == [[0, 1, 2]] * 3


def test_many_tokens_take_the_kernels_and_agree():
    for d, n in ((2, 300), (3, 200), (8, 150)):
        z = np.random.default_rng(d).normal(size=(n, d))
        rule = cy.attention.Rotary(cy.Hardmax(np.eye(d)), 100.0)
        queries, keys, _ = rule.sides(z)
        found, some = rule.followed(z), range(0, n, n // 6)
        assert [found[i].tolist() for i in some] == sets_of(queries[list(some)], keys)


def test_extreme_sizes_have_the_same_sets():
    z = np.random.default_rng(1).normal(size=(9, 4))
    for rule in (
        cy.attention.Rotary(cy.Hardmax(), 50.0),
        cy.attention.Causal(cy.attention.Rotary(cy.Hardmax(), 50.0)),
    ):
        expected = rule.weights(z)
        for power in (-1000, -500, 300, 1000):
            np.testing.assert_array_equal(rule.weights(np.ldexp(z, power)), expected)


def test_positions_count_real_tokens():
    z = np.random.default_rng(2).normal(size=(9, 4))
    mask = np.array([False, True, True, False, True, True, True, False, True])
    for rule in (
        cy.attention.Rotary(cy.Hardmax(), 20.0),
        cy.attention.Rotary(cy.Softmax(3.0), 20.0),
    ):
        inside = rule.weights(z, mask=mask)[np.ix_(mask, mask)]
        np.testing.assert_allclose(inside, rule.weights(z[mask]), atol=1e-15)
        shifted = rule.weights(z)[np.ix_(mask, mask)]
        assert np.abs(inside - shifted).max() > 0.01  # places in the padded row would differ


def led(run, rule):
    return np.array([rule.followed(z).leads for z in run.values])


def test_a_leader_may_lose_its_lead():
    rule = cy.attention.Rotary(cy.Hardmax())
    run = cy.simulate(cy.PureAttention(rule, 1), LOSING, layers=6)
    leads = led(run, rule)
    assert leads[:, 0].tolist() == [True, True, False, True, True, True, True]
    assert rule.followed(run.values[2])[0].tolist() == [1]
    plain = cy.roles(cy.simulate(cy.PureAttention(cy.Hardmax(), 1), LOSING, layers=6))
    assert plain.born[0] == -1 and plain.born[2] == 0
    assert run.status.code == "rounded_ties"


@pytest.mark.parametrize("seed", range(5))
def test_the_longest_token_leads_for_ever_and_hulls_shrink(seed):
    """A = I: <R z_i, z_j> <= |z_i| |z_j| (docs/mathematics.md A8); hulls by B1's argument."""
    z = np.random.default_rng(seed).normal(size=(20, 4))
    rule = cy.attention.Rotary(cy.Hardmax(), 10.0)
    run = cy.simulate(cy.PureAttention(rule, 0.7), z, layers=25)
    longest = int(np.argmax(np.linalg.norm(z, axis=1)))
    assert led(run, rule)[:, longest].all()
    assert (run.values[:, longest] == z[longest]).all()
    assert growth(run.values) <= 1e-14
    tampered = run.values.copy()
    tampered[9, 3] *= 1.5
    assert growth(tampered) > 1e-3


def growth(z):
    """The largest growth of a support function from one layer to the next."""
    c = np.random.default_rng(0).normal(size=(200, z.shape[-1]))
    c /= np.linalg.norm(c, axis=1, keepdims=True)
    return float(np.diff((z @ c.T).max(axis=1), axis=0).max())


def test_readers_are_told_what_is_known():
    """A turned hardmax has no certified layers; what does not merge is not said to."""
    assert cy.PureAttention(cy.attention.Rotary(cy.Hardmax())).hardmax_layers is None
    ends = {
        "polytope": cy.Hardmax(),
        "one point": cy.attention.Causal(cy.attention.Rotary(cy.Softmax(1.0, FORM))),
        "unknown": cy.attention.Rotary(cy.Hardmax()),
    }
    for tendency, rule in ends.items():
        assert cy.PureAttention(rule).tends_to(3) == tendency
        assert cy.dynamics.AttentionFlow(rule).tends_to(3) == tendency
    assert cy.PureAttention(cy.attention.Localmax()).tends_to(3) == "unknown"
    assert (
        cy.PureAttention(cy.attention.Heads([cy.Hardmax(), cy.Softmax()])).tends_to(3)
        == "one point"
    )


def test_saved_and_loaded(tmp_path):
    dynamics = cy.PureAttention(
        cy.attention.Causal(cy.attention.Rotary(cy.Softmax(2.0, FORM), 30.0))
    )
    run = cy.simulate(dynamics, np.random.default_rng(0).normal(size=(6, 3)), layers=3)
    run.save(tmp_path / "run.npz")
    back = cy.load(tmp_path / "run.npz")
    inner = back.dynamics.attention.attention
    assert inner.base == 30.0 and inner.attention.beta == 2.0
    np.testing.assert_array_equal(back.dynamics.step(run.values[0], 0), run.values[1])


def test_the_page_builds_it_with_the_attention_inside():
    pytest.importorskip("fastapi")
    from cynosure.web.answers.dynamics_fields import dynamics_of, forms

    inner = {"name": "softmax", "beta": 2.0}
    spec = {"name": "pure_attention", "attention": {"name": "rotary", "attention": inner}}
    rule = dynamics_of(spec).attention
    assert isinstance(rule, cy.attention.Rotary) and rule.base == 1e4 and rule.attention.beta == 2.0
    (base,) = [f for f in forms()["attentions"]["rotary"]["fields"] if f["name"] == "base"]
    assert base == {"name": "base", "kind": "number", "default": 1e4}
    deep = {"name": "rotary", "attention": {"name": "rotary", "attention": inner}}
    with pytest.raises(ValueError, match="deeper"):
        dynamics_of({"name": "pure_attention", "attention": deep})
    with pytest.raises(TypeError, match="Rotary wraps"):
        dynamics_of(
            {"name": "pure_attention", "attention": {**deep, "attention": {"name": "rotary"}}}
        )


def test_the_limit_says_why_it_has_no_proof() -> None:
    with pytest.raises(TypeError, match=r"with Rotary\. Leaders may lose their lead"):
        cy.limit(
            cy.PureAttention(cy.attention.Rotary(cy.Hardmax())), cy.configurations.gaussian(4, 2)
        )
