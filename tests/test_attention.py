"""Attention: the exact sets of hardmax, and the formulas in the scores against plain loops."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
import oracle
from cynosure import attention as attention_module
from cynosure.attention import Causal, Heads, Localmax, Rotary, Sinkhorn, Softmax

tokens = st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=8)


@given(tokens)
def test_sets_weights_and_means_against_the_definition(z):
    expected = oracle.followed(oracle.exact(z))
    array = np.array(z, float)
    f = cy.Hardmax().followed(array)
    assert [s.tolist() for s in f] == expected
    assert f.size.tolist() == [len(s) for s in expected]
    assert f.target.tolist() == [s[0] for s in expected]
    P = cy.Hardmax().weights(array)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    for i, members in enumerate(expected):
        assert np.flatnonzero(P[i]).tolist() == members
    np.testing.assert_allclose(cy.Hardmax().pull(array), P @ array, atol=1e-14)


@given(tokens, st.integers(0, 100))
def test_batches_with_padding_are_loops(z, seed):
    rng = np.random.default_rng(seed)
    one = np.array(z, float)
    batch = np.stack([one, one[::-1], rng.permutation(one)])
    mask = rng.random(batch.shape[:-1]) < 0.7
    mask[:, 0] = True
    f = cy.Hardmax().followed(batch, mask=mask)
    pull = cy.Hardmax().pull(batch, mask=mask)
    P = f.weights()
    for b in range(3):
        real = np.flatnonzero(mask[b])
        expected = oracle.followed(oracle.exact(batch[b, real].tolist()))
        for row, i in enumerate(real):
            assert f[b, i].tolist() == real[expected[row]].tolist()
            np.testing.assert_allclose(pull[b, i], batch[b, real[expected[row]]].mean(axis=0))
        for i in np.flatnonzero(~mask[b]):
            assert len(f[b, i]) == 0 and f.size[b, i] == 0 and not f.leads[b, i]
            assert not P[b, i].any() and not P[b, :, i].any()
            np.testing.assert_array_equal(pull[b, i], batch[b, i])


def test_ties_are_those_of_the_given_floats_not_of_rounded_scores():
    """<z_2, z_0> and <z_2, z_1> round to the same float, yet differ in exact arithmetic."""
    z = np.array([[1.0, 2.0**-30], [1.0, -(2.0**-30)], [0.5, 2.0**-40]])
    assert z[2] @ z[0] == z[2] @ z[1]
    assert cy.Hardmax().followed(z)[2].tolist() == [0]
    z[2, 1] = 0.0
    assert cy.Hardmax().followed(z)[2].tolist() == [0, 1]


def test_duplicates_lead_as_one_class_and_zero_follows_all():
    z = np.array([[2.0, 0], [2, 0], [1, 0], [0, 0]])
    f = cy.Hardmax().followed(z)
    assert f.leads.tolist() == [True, True, False, False]
    assert f[2].tolist() == [0, 1] and f[3].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(f.pull(z)[3], z.mean(axis=0))
    assert "2 lead" in repr(f)


def test_any_square_matrix():
    z = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
    A = np.array([[0.0, 1.0], [-2.0, 0.5]])
    expected = oracle.followed(oracle.exact(z.tolist()), oracle.exact(A.tolist()))
    assert [s.tolist() for s in cy.Hardmax(A).followed(z)] == expected
    assert expected != oracle.followed(oracle.exact(z.tolist()))


def test_torch_gradient_is_that_of_the_mean_over_the_set():
    import torch

    z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [0.5, 0.0]], requires_grad=True)
    cy.Hardmax().pull(z)[2, 0].backward()
    np.testing.assert_allclose(z.grad.numpy(), [[0.5, 0], [0.5, 0], [0, 0]])


def test_bad_matrices_and_tokens():
    with pytest.raises(ValueError, match="square"):
        cy.Hardmax(np.ones((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        cy.Hardmax([[np.nan]])
    with pytest.raises(ValueError, match="expected shape"):
        cy.Hardmax(np.eye(3)).followed(np.ones((4, 2)))
    with pytest.raises(ValueError, match="index \\(1, 0\\)"):
        cy.Hardmax().followed([[1.0], [np.inf]])
    with pytest.raises(ValueError, match="shape"):
        cy.Hardmax().followed([1.0, 2.0])
    with pytest.raises(ValueError, match="empty"):
        cy.Hardmax().followed(np.ones((0, 2)))
    with pytest.raises(TypeError, match="complex"):
        cy.Hardmax().followed(np.ones((2, 2)) * 1j)
    with pytest.raises(ValueError, match="rows differ"):
        cy.Hardmax().followed([[1.0], [1.0, 2.0]])
    with pytest.raises(TypeError, match="booleans"):
        cy.Hardmax().followed(np.ones((2, 2)), mask=np.ones(2))
    with pytest.raises(ValueError, match="no real token"):
        cy.Hardmax().followed(np.ones((2, 2)), mask=np.zeros(2, bool))


def test_float32_ties_are_decided_on_the_float32_values():
    z = np.array([[1, 1], [1, -1], [0.1, 0]], dtype=np.float32)
    assert cy.Hardmax().followed(z)[2].tolist() == [0, 1]
    assert Fraction(float(z[2, 0])) != Fraction(0.1)


# --- formulas in the scores ----------------------------------------------------------------------


def soft_oracle(z, beta, A, looks):
    """P in plain Python; `looks(i, j)` says whether i may look at j."""
    P = np.zeros((len(z), len(z)))
    for i in range(len(z)):
        scores = {j: beta * float(z[j] @ (A @ z[i])) for j in range(len(z)) if looks(i, j)}
        top = max(scores.values())
        total = math.fsum(math.exp(s - top) for s in scores.values())
        for j, s in scores.items():
            P[i, j] = math.exp(s - top) / total
    return P


def local_oracle(z, sensitivity, A, looks):
    P = np.zeros((len(z), len(z)))
    for i in range(len(z)):
        scores = {j: float(z[j] @ (A @ z[i])) for j in range(len(z)) if looks(i, j)}
        members = [j for j, s in scores.items() if s >= max(scores.values()) - sensitivity]
        P[i, members] = 1 / len(members)
    return P


RNG = np.random.default_rng(0)
FORM = RNG.normal(size=(3, 3))
ATTENTIONS = {
    "softmax": Softmax(0.7, FORM),
    "cold": Softmax(200.0),
    "repelling": Softmax(-2.0, FORM),
    "uniform": Softmax(0.0),
    "localmax": Localmax(0.8, FORM),
    "sinkhorn": Sinkhorn(1.5, FORM.T @ FORM, iterations=3000, tol=1e-14),
    "causal softmax": Causal(Softmax(0.7, FORM)),
    "causal localmax": Causal(Localmax(0.8)),
    "causal hardmax": Causal(cy.Hardmax(FORM)),
    "rotary softmax": Rotary(Softmax(0.7, FORM), 20.0),
    "rotary localmax": Rotary(Localmax(0.8)),
    "rotary hardmax": Rotary(cy.Hardmax(FORM), 20.0),
    "causal rotary": Causal(Rotary(Softmax(0.7, FORM))),
    "causal rotary hardmax": Causal(Rotary(cy.Hardmax(FORM))),
    "heads": Heads([Softmax(1.0), cy.Hardmax(), Softmax(2.0, FORM)]),
    "valued heads": Heads([Softmax(1.0), cy.Hardmax()], [FORM, None], average=False),
}
tokens_3d = RNG.normal(size=(7, 3))


@pytest.mark.parametrize("A", [None, FORM])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_against_the_definition(A, causal):
    z, form = tokens_3d, np.eye(3) if A is None else A

    def looks(i, j):
        return j <= i or not causal

    def wrap(attention):
        return Causal(attention) if causal else attention

    for beta in (0.7, -2.0, 0.0, 50.0):
        got = wrap(Softmax(beta, A)).weights(z)
        np.testing.assert_allclose(got, soft_oracle(z, beta, form, looks), atol=1e-14)
    got = wrap(Localmax(0.8, A)).weights(z)
    np.testing.assert_allclose(got, local_oracle(z, 0.8, form, looks), atol=1e-15)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_rows_pull_padding_batch_and_torch(name):
    import torch

    attention = ATTENTIONS[name]
    batch = np.stack([tokens_3d, tokens_3d[::-1] * 1.3])
    mask = np.array([[True] * 7, [False, True, True, False, True, True, False]])
    pull = attention.pull(batch, mask=mask)
    np.testing.assert_array_equal(pull[~mask], batch[~mask])
    for b in range(2):
        kept = batch[b][mask[b]]
        np.testing.assert_allclose(pull[b][mask[b]], attention.pull(kept), atol=1e-12)
        if name != "valued heads":
            P = attention.weights(batch, mask=mask)[b]
            assert not P[~mask[b]].any() and not P[:, ~mask[b]].any()
            alone = attention.weights(kept)
            np.testing.assert_allclose(P[np.ix_(mask[b], mask[b])], alone, atol=1e-12)
            np.testing.assert_allclose(alone.sum(axis=1), 1, atol=1e-12)
            np.testing.assert_allclose(alone @ kept, attention.pull(kept), atol=1e-12)
    leaf = torch.tensor(batch, requires_grad=True)
    moved = attention.pull(leaf, mask=mask)
    np.testing.assert_allclose(moved.detach().numpy(), pull, atol=1e-12)
    (moved**2).sum().backward()
    assert bool(torch.isfinite(leaf.grad).all())
    single = attention.pull(batch.astype(np.float32), mask=mask)
    assert single.dtype == np.float32
    assert attention.pull(torch.tensor(batch, dtype=torch.float32)).dtype == torch.float32


def test_gradient_of_softmax_against_torch():
    import torch

    leaf = torch.tensor(tokens_3d, requires_grad=True)
    other = torch.tensor(tokens_3d, requires_grad=True)
    (Softmax(1.7, FORM).pull(leaf) ** 2).sum().backward()
    A = torch.tensor(FORM)
    P = torch.softmax(1.7 * (other @ A.T) @ other.T, dim=-1)
    ((P @ other) ** 2).sum().backward()
    np.testing.assert_allclose(leaf.grad, other.grad, atol=1e-12)


def test_heads_are_the_sum_of_their_heads():
    z, (V, W) = tokens_3d, RNG.normal(size=(2, 3, 3))
    one, two = Softmax(1.0, FORM), cy.Hardmax()
    expected = one.pull(z) @ V.T + two.pull(z) @ W.T
    np.testing.assert_allclose(Heads([one, two], [V, W], average=False).pull(z), expected)
    np.testing.assert_allclose(Heads([one, two], [V, W]).pull(z), expected / 2)
    np.testing.assert_allclose(Heads([one, two]).weights(z), (one.weights(z) + two.weights(z)) / 2)
    with pytest.raises(ValueError, match="no single P"):
        Heads([one, two], [V, W]).weights(z)


@given(tokens)
def test_causal_hardmax_against_prefixes(z):
    P = Causal(cy.Hardmax()).weights(np.array(z, float))
    for i in range(len(z)):
        members = oracle.followed(oracle.exact(z[: i + 1]))[i]
        assert np.flatnonzero(P[i]).tolist() == members
        np.testing.assert_allclose(P[i, members], 1 / len(members))


@given(tokens)
def test_leaders_of_causal_hardmax_are_those_of_its_prefixes(z):
    run = cy.simulate(cy.PureAttention(Causal(cy.Hardmax())), np.array(z, float), layers=4)
    roles = cy.roles(run)
    for k, state in enumerate(run.z):
        sets = [oracle.followed(oracle.exact(state[: i + 1]))[i] for i in range(len(z))]
        assert [members.tolist() for members in roles.followed(k)] == sets
        assert set(np.flatnonzero(roles.born == k)) <= {i for i, c in enumerate(sets) if c == [i]}
    with pytest.raises(ValueError, match="leaders are defined"):
        cy.roles(cy.simulate(cy.PureAttention(Causal(Softmax())), run.z[0], layers=1))


def test_causal_ties_are_those_of_exact_arithmetic():
    z = np.array([[1.0, 2.0**-30], [1.0, -(2.0**-30)], [0.5, 2.0**-40]])
    assert np.flatnonzero(Causal(cy.Hardmax()).weights(z)[2]).tolist() == [0]
    A = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert np.flatnonzero(Causal(cy.Hardmax(A)).weights(z * 1e200)[2]).tolist() == [0]


def test_sinkhorn_is_doubly_stochastic_and_symmetric_for_symmetric_scores():
    P = Sinkhorn(1.0, iterations=2000, tol=1e-14).weights(tokens_3d)
    np.testing.assert_allclose(P.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(P, P.T, atol=1e-12)
    kernel = np.exp(tokens_3d @ tokens_3d.T)  # P = diag(u) kernel diag(v): cross ratios agree
    ratio = P / kernel
    np.testing.assert_allclose(ratio[0, 0] * ratio[1, 1], ratio[0, 1] * ratio[1, 0], rtol=1e-9)
    unfinished = Sinkhorn(30.0, iterations=1).weights(tokens_3d)
    np.testing.assert_allclose(unfinished.sum(axis=1), 1, atol=1e-12)


def test_blocks_change_nothing(monkeypatch):
    z = RNG.normal(size=(2, 50, 3))
    mask = RNG.random((2, 50)) < 0.8
    for attention in (Softmax(2.0, FORM), Localmax(0.5), Causal(Softmax(1.0))):
        whole = attention.pull(z, mask=mask), attention.weights(z, mask=mask)
        monkeypatch.setattr("cynosure.attention.scores._BLOCK", 700)
        np.testing.assert_allclose(attention.pull(z, mask=mask), whole[0], atol=1e-14)
        np.testing.assert_allclose(attention.weights(z, mask=mask), whole[1], atol=1e-14)
        monkeypatch.undo()


def peak(action):
    """Bytes NumPy held at most while `action` ran, over what it held before."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_stays_far_below_the_score_matrix():
    z = np.random.default_rng(0).normal(size=(4096, 8))
    full = 8 * len(z) ** 2
    assert peak(lambda: Softmax().pull(z)) < 0.6 * full
    assert peak(lambda: Softmax().weights(z[:2048])) > 8 * 2048**2  # the counter counts


@pytest.mark.slow
def test_memory_of_a_large_layer():
    z = np.random.default_rng(0).normal(size=(16_384, 64)) / 8
    assert peak(lambda: Softmax().pull(z)) < 120e6 < 0.06 * 8 * len(z) ** 2


def test_fused_kernel_agrees_with_blocks(monkeypatch):
    import torch

    z = torch.tensor(RNG.normal(size=(2, 40, 3)), dtype=torch.float32)
    mask = np.ones((2, 40), bool)
    mask[1, 30:] = False
    for attention in (Softmax(1.5, FORM), Causal(Softmax(1.5)), Softmax(-1.0)):
        for some in (None, mask):
            plain = attention.pull(z, mask=some)
            monkeypatch.setattr("cynosure.attention.scores._LARGE", 10)
            fused = attention.pull(z, mask=some)
            monkeypatch.undo()
            double = attention.pull(z.double(), mask=some)
            floor = float((plain - double).abs().max())
            assert float((fused - double).abs().max()) <= 2 * floor + 2e-6
    monkeypatch.setattr("cynosure.attention.scores._LARGE", 10)
    np.testing.assert_allclose(Softmax(1.5).pull(z.double()), Softmax(1.5).pull(z.double().numpy()))
    assert bool(torch.isfinite(Softmax(1e300).pull(z.double())).all())  # left to the blocks


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Softmax(float("inf")), ValueError, "Hardmax"),
        (lambda: Softmax(float("nan")), ValueError, "finite"),
        (lambda: Localmax(-0.1), ValueError, "sensitivity"),
        (lambda: Sinkhorn(iterations=0), ValueError, "iterations"),
        (lambda: Causal(Sinkhorn()), TypeError, "Causal wraps"),
        (lambda: Rotary(Sinkhorn()), TypeError, "Rotary wraps"),
        (lambda: Rotary(Rotary()), TypeError, "Rotary wraps"),
        (lambda: Rotary(Causal(Softmax())), TypeError, "Causal\\(Rotary"),
        (lambda: Rotary(base=0.0), ValueError, "base"),
        (lambda: Rotary(Softmax()).followed(np.eye(2)), ValueError, "hardmax"),
        (lambda: Heads([]), TypeError, "heads"),
        (lambda: Heads([Softmax()], [None, None]), ValueError, "one matrix per head"),
        (lambda: Softmax(1.0, np.eye(3)).pull(np.ones((4, 2))), ValueError, "d = 2"),
        (lambda: Softmax().pull([1.0, 2.0]), ValueError, "shape"),
        (lambda: Softmax().pull(np.ones((2, 2)), mask=np.ones(3, bool)), ValueError, "mask"),
    ],
)
def test_bad_parameters(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_lists_and_defaults_work():
    np.testing.assert_allclose(Softmax(0.0).pull([[1, 0], [0, 1]]), [[0.5, 0.5], [0.5, 0.5]])
    assert all(
        kind().pull(np.eye(2)).shape == (2, 2) for kind in attention_module.ATTENTIONS.values()
    )


# --- scores that are no floats -------------------------------------------------------------------

TURN = np.array([[1.0, 0.5], [-0.3, 0.8]])


@pytest.mark.parametrize("k", [-600, -300, -3, 0, 40, 300, 700, 1000])
@pytest.mark.parametrize("A", [None, TURN])
def test_a_power_of_two_moves_between_tokens_and_temperature(k, A):
    """beta <A z, z'> 4^k is one number, whether tokens, A or beta carry the powers of two."""
    z = np.random.default_rng(0).normal(size=(6, 2))
    if abs(2 * k) < 1000:
        for rule in (cy.Softmax, cy.attention.Sinkhorn):
            expected = rule(float(np.ldexp(0.7, 2 * k)), A).weights(z)
            np.testing.assert_allclose(rule(0.7, A).weights(np.ldexp(z, k)), expected, rtol=1e-9)
        near = cy.attention.Localmax(float(np.ldexp(0.5, -2 * k)), A).weights(z)
        np.testing.assert_array_equal(cy.attention.Localmax(0.5, A).weights(np.ldexp(z, k)), near)
        pulled = cy.Softmax(float(np.ldexp(0.7, 2 * k)), A).pull(z)
        moved = cy.Softmax(0.7, A).pull(np.ldexp(z, k))
        np.testing.assert_allclose(np.ldexp(moved, -k), pulled, rtol=1e-9)
    elif k > 0 and A is None:  # beta would be no float: the hardmax of the scores
        hard = cy.Hardmax().weights(z)
        np.testing.assert_array_equal(cy.Softmax(0.7).weights(np.ldexp(z, k)), hard)
    form = np.eye(2) if A is None else A
    if abs(k) < 1000:
        expected = cy.Softmax(1.0, A).weights(z)
        other = cy.Softmax(float(np.ldexp(1.0, -k)), np.ldexp(form, k)).weights(z)
        np.testing.assert_allclose(other, expected, rtol=1e-12)


def test_a_small_token_beside_a_large_one_still_looks_around():
    z = np.array([[1e300, 0.0], [1e-30, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(cy.Softmax().weights(z)[1], [1, 0, 0])
    np.testing.assert_allclose(cy.Softmax().weights(z)[2], np.array([1, 1, np.e]) / (2 + np.e))


def test_sinkhorn_at_any_temperature_is_doubly_stochastic_where_it_converges():
    z = np.array([[2.0, 0.0], [0.0, 2.0], [-1.5, -1.5]])  # each is its own best partner
    for beta in (1e2, 1e150, 1e308):
        np.testing.assert_allclose(cy.attention.Sinkhorn(beta).weights(z), np.eye(3), atol=1e-100)
    z = np.random.default_rng(0).normal(size=(7, 2))
    mask = np.array([True] * 5 + [False] * 2)
    for beta in (1e308, -1e308):
        P = cy.attention.Sinkhorn(beta).weights(z, mask=mask)
        assert np.isfinite(P).all() and (P[5:] == 0).all() and (P[:, 5:] == 0).all()
        np.testing.assert_allclose(P[:5].sum(axis=1), 1, rtol=1e-14)


def test_the_size_of_padding_is_nobodys_business():
    z = np.random.default_rng(1).normal(size=(6, 2))
    mask = np.array([True] * 4 + [False] * 2)
    for size in (1e-300, 1e150, 1e300):
        padded = z.copy()
        padded[4:] *= size
        for rule in (
            cy.Softmax(3.0),
            cy.attention.Localmax(0.5),
            cy.attention.Sinkhorn(2.0),
            cy.attention.Causal(cy.Softmax()),
        ):
            np.testing.assert_allclose(
                rule.weights(padded, mask=mask)[:4, :4], rule.weights(z[:4]), rtol=1e-9
            )
            np.testing.assert_array_equal(rule.pull(padded, mask=mask)[4:], padded[4:])


def test_tensors_and_batches_at_both_ends():
    import torch

    plain = np.random.default_rng(2).normal(size=(5, 2))
    z = np.stack([1e250 * plain, plain, 1e-250 * plain])
    for rule in (cy.Softmax(2.0, TURN), cy.attention.Sinkhorn(2.0), cy.attention.Localmax(0.1)):
        together = rule.weights(z)
        for one, P in zip(z, together, strict=True):
            np.testing.assert_allclose(rule.weights(one), P, rtol=1e-12)
        np.testing.assert_allclose(rule.weights(torch.tensor(z)).numpy(), together, rtol=1e-12)
    single = torch.tensor(1e30 * plain, dtype=torch.float32)
    np.testing.assert_allclose(cy.Softmax().weights(single).numpy(), cy.Hardmax().weights(plain))


class Squared(cy.attention.RowAttention):
    """Weights s^2: a rule that knows nothing of powers of two."""

    def share(self, scores, allowed):
        return scores**2 if allowed is None else np.where(allowed, scores**2, 0.0)


def test_a_rule_of_ones_own_gets_its_scores_or_a_refusal():
    z = np.random.default_rng(3).normal(size=(4, 2))
    S = (z @ z.T) ** 2
    np.testing.assert_allclose(Squared().weights(z), S / S.sum(axis=1, keepdims=True))
    with pytest.raises(OverflowError, match="scores"):
        Squared().weights(1e200 * z)


def test_a_matrix_that_single_precision_cannot_hold():
    z = np.ones((2, 2), dtype=np.float32)
    assert np.isfinite(cy.Softmax(1.0, 1e300 * TURN).weights(z)).all()
    with pytest.raises(ValueError, match="float64"):
        cy.attention.Heads([cy.Softmax()], [1e300 * TURN]).pull(z)


@pytest.mark.parametrize("sizes", [(200, -200), (300, -300), (0, -320), (300, 0)])
def test_causal_ties_of_tokens_of_very_different_size(sizes):
    """C_i in rationals on the floats as they are: scaling must not lose the small ones."""
    rng = np.random.default_rng(4)
    for A in (None, np.diag([1e200, 1e-200])):
        z = rng.integers(-2, 3, size=(7, 2)) * 10.0 ** rng.choice(sizes, size=(7, 2))
        form = [[Fraction(x) for x in row] for row in (np.eye(2) if A is None else A).tolist()]
        P = cy.attention.Causal(cy.Hardmax(A)).weights(z)
        rows = [[Fraction(x) for x in row] for row in z.tolist()]
        for i in range(len(z)):
            query = [sum(a * x for a, x in zip(row, rows[i])) for row in form]
            scores = [sum(q * x for q, x in zip(query, key)) for key in rows[: i + 1]]
            best = [j for j, s in enumerate(scores) if s == max(scores)]
            assert np.flatnonzero(P[i]).tolist() == best


def test_which_attentions_are_an_average_of_softmax_heads():
    A, soft, heads = np.diag([1.0, 2.0]), cy.Softmax(3.0), cy.attention.Heads
    assert heads([soft, cy.attention.Causal(cy.Softmax(-1.0, A))]).softmaxes == (
        (3.0, None, False),
        (-1.0, pytest.approx(A), True),
    )
    for other in (
        cy.Hardmax(),
        cy.attention.Causal(cy.attention.Rotary(soft)),
        heads([soft, cy.attention.Localmax()]),
        heads([soft, soft], average=False),
        heads([soft], [np.eye(2)]),
        heads([heads([soft, soft]), soft]),  # the parts of an average weigh differently
    ):
        assert other.softmaxes == ()
    assert cy.dynamics.SphereFlow(soft).projected is soft
    assert cy.dynamics.SphereFlow(soft, V=np.eye(2)).projected is None
