"""simulate(): states and sets against the rational oracle; statuses; bad input."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
import oracle
from cynosure import configurations as cf

tokens = st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=8)


@given(tokens, st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(1, 10)]))
def test_states_and_sets_against_the_oracle(z, alpha):
    tr = cy.simulate(cy.PureAttention(alpha=alpha), np.array(z, float), layers=6)
    states, sets = oracle.run(z, alpha, 7)
    ro = cy.roles(tr)
    for k in range(7):
        np.testing.assert_allclose(tr.z[k], np.array(states[k], float), atol=1e-14)
        assert [s.tolist() for s in ro.followed(k)] == sets[k]
    assert ro.born.tolist() == oracle.born(states, sets)


@pytest.mark.many
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 8]), st.sampled_from([0.1, 0.5, 1.0, 2.35]))
def test_batch_equals_single_runs(seed, d, alpha):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(4, 12, d))
    z[1] = np.round(z[1])  # ties and duplicates: decided exactly
    z[2, 5] = z[2, 0]
    mask = np.ones((4, 12), bool)
    mask[3, 7:] = False
    dynamics = cy.PureAttention(alpha=alpha)
    whole = cy.simulate(dynamics, z, layers=9, mask=mask, save_every=4)
    ro = cy.roles(whole)
    for b in range(4):
        one = cy.simulate(dynamics, z[b], layers=9, mask=mask[b], save_every=4)
        np.testing.assert_allclose(whole.z[:, b], one.z, atol=1e-13)
        np.testing.assert_array_equal(ro.born[b], cy.roles(one).born)
        np.testing.assert_array_equal(whole.history.settled_at[b], one.history.settled_at)
        np.testing.assert_array_equal(whole.history.leader[b], one.history.leader)
        again = cy.roles(whole.select(b))
        assert [f.tolist() for f in again.followed(9)] == [
            f.tolist() for f in cy.roles(one).followed(9)
        ]


def test_leaders_survive_any_number_of_layers():
    """On the last layer alone followers have rounded onto leaders; `born` does not care."""
    z = cf.gaussian(50, 2, seed=3).astype(np.float32)
    first = cy.roles(cy.simulate(cy.PureAttention(), z, layers=5)).leaders
    deep = cy.simulate(cy.PureAttention(), z, layers=500)
    assert cy.roles(deep).leaders.tolist() == first.tolist()
    assert (deep.z[-1] == deep.z[-1][cy.roles(deep).leaders][:, None]).all(-1).any(0).all()
    snapshot = cy.Hardmax().followed(deep.z[-1])
    assert snapshot.size.max() > 1  # the snapshot has lost who is who


def test_leader_rows_are_bitwise_constant_and_followers_geometric():
    z = cf.gaussian(40, 3, seed=1)
    tr = cy.simulate(cy.PureAttention(alpha=0.5), z, layers=60)
    ro, h = cy.roles(tr), tr.history
    for i in ro.leaders:
        assert (tr.z[ro.born[i] :, i] == tr.z[ro.born[i], i]).all()
    for i in np.flatnonzero(h.leader >= 0):
        s, offset = h.settled_at[i], tr.z[h.settled_at[i], i] - tr.z[-1, h.leader[i]]
        got = tr.z[s + 5, i] - tr.z[s + 5, h.leader[i]]
        np.testing.assert_allclose(got, offset / 1.5**5, rtol=1e-9, atol=1e-14)


def test_statuses_name_the_signature_and_the_remedy():
    settled = cy.simulate(cy.PureAttention(), cf.gaussian(30, 2, seed=0), layers=40).status
    assert settled.code == "settled" and not settled.failed
    moving = cy.simulate(cy.PureAttention(alpha=0.01), cf.gaussian(60, 2, seed=0), layers=1).status
    assert moving.code == "moving" and "More layers" in moving.advice
    notes = cy.simulate(cy.PureAttention(), [[0.0, 0], [1, 0], [1, 0]], layers=2).status.notes
    assert any("zero token" in x for x in notes) and any("duplicate" in x for x in notes)
    t = np.deg2rad(75)
    A = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    lost = cy.simulate(cy.PureAttention(cy.Hardmax(A)), cf.polygon(3), layers=20).status
    assert lost.code == "no_leader" and "positive definite" in str(lost)
    import torch

    z = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert cy.simulate(cy.PureAttention(), z, layers=2).status.code == "rounded_ties"


def test_b16_collapse_factor():
    """Rotation by 75 degrees, three tokens at 0, 120, 240 degrees: factor 0.5 per layer."""
    t = np.deg2rad(75)
    A = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    z = cy.simulate(cy.PureAttention(cy.Hardmax(A)), cf.polygon(3), layers=10).z
    radius = np.linalg.norm(z, axis=2)
    np.testing.assert_allclose(radius[1:] / radius[:-1], 0.5, rtol=1e-9)


def test_layers_zero_one_token_one_dimension():
    tr = cy.simulate(cy.PureAttention(), [[3.0]], layers=0)
    assert tr.z.shape == (1, 1, 1) and cy.roles(tr).leaders.tolist() == [0]
    line = cy.simulate(cy.PureAttention(), [[-2.0], [-1.0], [0.5], [3.0]], layers=60)
    np.testing.assert_allclose(line.z[-1].ravel(), [-2, -2, 3, 3])


def test_progress_is_called():
    seen = []
    cy.simulate(cy.PureAttention(alpha=0.1), cf.gaussian(30, 2), layers=9, progress=seen.append)
    assert seen[-1] == 9 and seen == sorted(seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": -1}, "layers"),
        ({"layers": 2.5}, "layers"),
        ({"layers": 2, "save_every": 0}, "save_every"),
        ({"layers": 2, "words": ["a"]}, "words"),
        ({"layers": 2, "mask": [True]}, "mask"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        cy.simulate(cy.PureAttention(), np.eye(3), **options)
    with pytest.raises(TypeError, match="dynamics"):
        cy.simulate("hardmax", np.eye(3), layers=1)


def test_step_path_stops_at_overflow():
    class Doubling(cy.dynamics.LayerMap):
        def step(self, z, k, *, mask=None):
            return z * 1e200

    run = cy.simulate(Doubling(), np.eye(2), layers=5, throw=False)
    assert run.status.code == "overflow" and len(run.z) == 2
    with pytest.raises(OverflowError):
        cy.simulate(Doubling(), np.eye(2), layers=5)
