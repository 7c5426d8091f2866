"""Trajectories on disk: bit for bit, nothing pickled, damaged files refused."""

from fractions import Fraction

import numpy as np
import pytest

import cynosure as cy
from cynosure import configurations as cf
from cynosure._files import write_atomically


def runs():
    z = cf.golden("G2a")
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    mask = np.array([True] * 6 + [False])
    yield cy.simulate(cy.PureAttention(alpha=0.1), z, layers=4, words=list("abcdefg"))
    yield cy.simulate(cy.PureAttention(cy.Hardmax(A), alpha=Fraction(1, 3)), z, layers=3, mask=mask)
    yield cy.simulate(cy.PureAttention(alpha="1/7"), z.astype(np.float32), layers=3)
    yield cy.simulate(cy.PureAttention(), np.stack([z, z + 1]), layers=3, save_every=2)
    yield cy.simulate(cy.dynamics.UnnormalizedAttention(), z, layers=3)


@pytest.mark.parametrize("tr", list(runs()), ids=lambda tr: repr(tr)[:40])
def test_round_trip_bit_for_bit(tr, tmp_path):
    back = cy.load(tr.save(tmp_path / "run.npz"))
    assert back.z.tobytes() == tr.z.tobytes() and back.z.dtype == tr.z.dtype
    np.testing.assert_array_equal(back.t, tr.t)
    assert back.status == tr.status and back.words == tr.words
    assert type(back.dynamics) is type(tr.dynamics)
    assert back.dynamics.exact_alpha == tr.dynamics.exact_alpha
    np.testing.assert_array_equal(back.dynamics.attention.A, tr.dynamics.attention.A)
    np.testing.assert_array_equal(back.mask, tr.mask)
    np.testing.assert_array_equal(cy.roles(back).born, cy.roles(tr).born)
    if tr.z.ndim == 3:
        for k in tr.t:
            a, b = cy.roles(back).followed(k), cy.roles(tr).followed(k)
            assert [x.tolist() for x in a] == [x.tolist() for x in b]


@pytest.mark.parametrize(
    "dynamics",
    [
        *(kind() for kind in cy.dynamics.DYNAMICS.values()),
        cy.PureAttention(cy.attention.Causal(cy.Softmax(beta=3.0))),
    ],
    ids=lambda x: type(x).__name__,
)
def test_every_dynamics_comes_back_and_runs_the_same(dynamics, tmp_path):
    length = {"time": 0.5} if isinstance(dynamics, cy.dynamics.Flow) else {"layers": 2}
    tr = cy.simulate(dynamics, cf.gaussian(5, 2), **length)
    back = cy.load(tr.save(tmp_path / "run.npz"))
    assert type(back.dynamics) is type(dynamics)
    again = cy.simulate(back.dynamics, cf.gaussian(5, 2), **length)
    np.testing.assert_array_equal(again.z, tr.z)


@pytest.mark.parametrize("stepper", [None, *(kind() for kind in cy.simulation.STEPPERS.values())])
def test_the_stepper_is_part_of_the_run(stepper, tmp_path):
    tr = cy.simulate(cy.dynamics.AttentionFlow(), cf.gaussian(5, 2), time=0.5, stepper=stepper)
    assert tr.stepper == (stepper or cy.simulation.Adaptive())
    assert cy.load(tr.save(tmp_path / "run.npz")).stepper == tr.stepper
    assert cy.simulate(cy.PureAttention(), cf.gaussian(5, 2), layers=1).stepper is None


def test_a_dynamics_that_cannot_be_stored_is_named(tmp_path):
    class Halving(cy.dynamics.LayerMap):
        def step(self, z, k, *, mask=None):
            return z / 2

    path = cy.simulate(Halving(), np.eye(2), layers=2).save(tmp_path / "run.npz")
    with pytest.warns(UserWarning, match=r"made by Halving\(\) of .*test_trajectory"):
        back = cy.load(path)
    assert back.dynamics is None and back.z[2, 0, 0] == 0.25


def test_torch_comes_back_as_torch(tmp_path):
    import torch

    tr = cy.simulate(cy.PureAttention(), torch.eye(3), layers=2)
    back = cy.load(tr.save(tmp_path / "t.npz"))
    assert isinstance(back.z, torch.Tensor) and torch.equal(back.z, tr.z)


def test_foreign_and_damaged_files_are_refused(tmp_path):
    tr = cy.simulate(cy.PureAttention(), np.eye(3), layers=2)
    whole = tr.save(tmp_path / "run.npz").read_bytes()
    bad = tmp_path / "bad.npz"
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[10:]):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match="not a cynosure trajectory"):
            cy.load(bad)
    np.savez(bad, z=np.eye(2))
    with pytest.raises(ValueError, match="not a cynosure trajectory"):
        cy.load(bad)
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(ValueError, match="not a cynosure trajectory"):
        cy.load(tmp_path / "a.npy")
    with pytest.raises(FileNotFoundError):
        cy.load(tmp_path / "missing.npz")


def test_a_flipped_byte_never_gives_other_numbers(tmp_path):
    tr = cy.simulate(cy.PureAttention(), cf.gaussian(20, 2), layers=2)
    whole = bytearray(tr.save(tmp_path / "run.npz").read_bytes())
    for position in range(200, len(whole), len(whole) // 40):
        flipped = bytearray(whole)
        flipped[position] ^= 0xFF
        (tmp_path / "x.npz").write_bytes(bytes(flipped))
        try:
            back = cy.load(tmp_path / "x.npz")
        except ValueError:
            continue
        assert back.z.tobytes() == tr.z.tobytes()


def test_a_newer_format_says_upgrade(tmp_path, monkeypatch):
    import cynosure.simulation.saving as module

    monkeypatch.setattr(module, "VERSION", 99)
    path = cy.simulate(cy.PureAttention(), np.eye(2), layers=1).save(tmp_path / "new.npz")
    monkeypatch.setattr(module, "VERSION", 1)
    with pytest.raises(ValueError, match="newer cynosure"):
        cy.load(path)


def test_interrupted_writing_leaves_what_was_there(tmp_path):
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")

    def interrupted(stream):
        stream.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, interrupted)
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_at_and_select_name_what_is_there():
    tr = cy.simulate(cy.PureAttention(), np.eye(3), layers=4, save_every=2)
    assert tr.at(2).shape == (3, 3) and len(tr) == 3 and "settled" in repr(tr)
    with pytest.raises(ValueError, match="save_every=1"):
        tr.at(3)
    with pytest.raises(ValueError, match="0 indices"):
        tr.select(1)
    batch = cy.simulate(cy.PureAttention(), np.stack([np.eye(3)] * 2), layers=1)
    assert batch.select(1).z.shape == (2, 3, 3)
    with pytest.raises(ValueError, match="select"):
        _ = cy.roles(batch).leaders
    with pytest.raises(ValueError, match="select"):
        cy.roles(batch).followed(0)


def test_the_tokens_of_a_run_are_those_without_padding():
    z, mask = cf.golden("G1"), np.array([True, False] + [True] * 6)
    run = cy.simulate(cy.PureAttention(), z.astype(np.float32), layers=2, mask=mask)
    assert run.real.tolist() == [0, 2, 3, 4, 5, 6, 7] and run.tokens.dtype == np.float64
    np.testing.assert_array_equal(run.tokens, run.values[:, mask])
    whole = cy.simulate(cy.PureAttention(), z, layers=2)
    assert whole.real.tolist() == list(range(8)) and (whole.tokens == whole.values).all()
    batch = cy.simulate(cy.PureAttention(), np.stack([z, z]), layers=2)
    with pytest.raises(ValueError, match="select"):
        batch.tokens  # noqa: B018


def test_the_nearest_saved_state():
    tr = cy.simulate(cy.PureAttention(), np.eye(2), layers=9, save_every=4)
    assert tr.t.tolist() == [0, 4, 8, 9]
    assert [tr.nearest(k) for k in (-3, 1.9, 2.1, 8, 100)] == [0, 0, 1, 2, 3]


def test_a_run_as_an_array_of_xarray():
    pytest.importorskip("xarray")
    z = cf.golden("G2a")
    mask = np.array([True] * 6 + [False])
    run = cy.simulate(
        cy.PureAttention(), z, layers=4, save_every=2, mask=mask, words=list("abcdefg")
    )
    data = run.to_xarray()
    assert data["z"].dims == ("layer", "token", "dim") and data["layer"].values.tolist() == [
        0,
        2,
        4,
    ]
    np.testing.assert_array_equal(data["z"].sel(layer=2), run.at(2))
    assert data["mask"].values.tolist() == mask.tolist() and str(data["word"].values[1]) == "b"
    assert "PureAttention" in data.attrs["made_by"] and data.attrs["status"] == run.status.message
    flow = cy.simulate(cy.SphereFlow(), cf.sphere(6, 3).reshape(2, 3, 3), times=[0.0, 0.5])
    data = flow.to_xarray()
    assert data["z"].dims == ("time", "batch_0", "token", "dim")
    np.testing.assert_array_equal(data["z"].sel(time=0.5, batch_0=1), flow.z[1, 1])


def test_sets_that_are_no_lists_are_refused_on_reading(tmp_path) -> None:
    path = tmp_path / "run.npz"
    cy.simulate(cy.PureAttention(), np.random.default_rng(0).normal(size=(6, 2)), layers=3).save(
        path
    )
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["history_indices"] = arrays["history_indices"][:, None]
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="sets that are not of indices"):
        cy.load(path)


@pytest.mark.many  # unchecked: a seed that is a float is what a user may give
def test_a_place_or_a_seed_beyond_machine_integers_is_refused_or_used():
    tr = cy.simulate(cy.PureAttention(), np.ones((2, 3, 2)), layers=1)
    with pytest.raises(IndexError, match="no place in a batch"):
        tr.select(2**63)
    one, two = (
        cy.simulate(cy.dynamics.JumpChain(seed=s), np.eye(3), layers=3) for s in (1e308, int(1e308))
    )
    np.testing.assert_array_equal(one.z, two.z)
