"""Certified layers: a batch is its configurations one by one, and padding stays as it was."""

from fractions import Fraction
from itertools import count

import numpy as np
import pytest

from cynosure import _deadline
from cynosure._deadline import Deadline
from cynosure.engine.layers import certified_layers

SQUARE = np.array([[1.0, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0], [-0.5, 0]])
SAVES = np.array([0, 2, 7])


def mixed_batch(rng):
    """Clear configurations and tied ones, each with its own padding, which holds huge numbers."""
    z = rng.normal(size=(6, 9, 2))
    z[::2, :6], z[::2, 6:] = SQUARE, 0.1 * z[::2, 6:]  # too small to be followed
    mask = rng.uniform(size=(6, 9)) < 0.8
    mask[:, :6] = True
    z[~mask] = 1e300
    return z, mask


@pytest.mark.parametrize("most", [1024, 1])
@pytest.mark.parametrize("A", [None, np.diag([1.0, 1.5])])
def test_a_batch_is_its_configurations(most, A, monkeypatch):
    """Tied ones leave the compiled call; with most = 1 none of them enters it."""
    monkeypatch.setattr("cynosure.engine.layers._MOST_IN_BATCH", most)
    z, mask = mixed_batch(np.random.default_rng(2))
    alpha = Fraction(1, 2)
    states, _, history = certified_layers(z, A, alpha, mask, SAVES)
    assert history.exact_decisions > 0 and history.label is None and history.records == ()
    for b, real in enumerate(mask):
        alone, _, one = certified_layers(z[b][real], A, alpha, None, SAVES)
        np.testing.assert_allclose(states[:, b, real], alone, rtol=0, atol=1e-15)
        assert (states[:, b, ~real] == z[b, ~real]).all()
        assert history.born[b, real].tolist() == one.born.tolist()
        assert history.settled_at[b, real].tolist() == one.settled_at.tolist()
        names = np.append(np.flatnonzero(real), -1)
        assert history.leader[b, real].tolist() == names[one.leader].tolist()
        for values in (history.born, history.settled_at, history.leader):
            assert (values[b, ~real] == -1).all()


def test_one_configuration_with_padding_has_its_sets():
    z, mask = mixed_batch(np.random.default_rng(3))
    states, _, history = certified_layers(z[0], None, Fraction(1), mask[0], SAVES)
    assert (states[:, ~mask[0]] == z[0, ~mask[0]]).all()
    followed = history.followed(0)
    assert followed[4].tolist() == [0, 1] and followed[5].tolist() == [2, 3]
    assert (history.label[~mask[0]] == -1).all()


def test_more_axes_are_a_batch_with_a_shape():
    z, mask = mixed_batch(np.random.default_rng(4))
    flat, _, history = certified_layers(z, None, Fraction(1), mask, SAVES)
    shaped, _, same = certified_layers(
        z.reshape(2, 3, 9, 2), None, Fraction(1), mask.reshape(2, 3, 9), SAVES
    )
    np.testing.assert_array_equal(shaped, flat.reshape(3, 2, 3, 9, 2))
    np.testing.assert_array_equal(same.leader, history.leader.reshape(2, 3, 9))


def test_progress_counts_layers_or_configurations_done_alone():
    seen = []
    certified_layers(SQUARE, None, Fraction(1), None, SAVES, seen.append)
    assert seen == sorted(set(seen)) and seen[-1] == 7
    seen.clear()
    certified_layers(np.stack([SQUARE] * 3), None, Fraction(1), None, SAVES, seen.append)
    assert seen == [0, 1, 2]


def test_a_deadline_ends_a_run_with_the_layers_it_reached(monkeypatch):
    z = np.random.default_rng(3).normal(size=(30, 2))
    saves = np.arange(9)
    whole, _, history = certified_layers(z, None, Fraction(1, 9), None, saves)
    seconds = count()
    monkeypatch.setattr(_deadline, "monotonic", lambda: next(seconds))  # each look takes a second
    states, at, cut = certified_layers(z, None, Fraction(1, 9), None, saves, None, Deadline(4))
    assert 0 < at[-1] < 8 and at.tolist() == list(range(len(at)))
    np.testing.assert_array_equal(states, whole[: len(at)])
    for k in at.tolist():
        assert [f.tolist() for f in cut.followed(k)] == [f.tolist() for f in history.followed(k)]


def test_a_deadline_leaves_a_batch_at_its_start():
    z = np.stack([SQUARE] * 3)
    past = Deadline(1e-9)
    states, at, history = certified_layers(z, None, Fraction(1), None, SAVES, None, past)
    assert at.tolist() == [0] and (history.born == -1).all()
    np.testing.assert_array_equal(states, z[None])


def test_a_batch_until_a_deadline_goes_in_parts_and_is_the_same(monkeypatch):
    z, mask = mixed_batch(np.random.default_rng(5))
    whole, _, history = certified_layers(z, None, Fraction(1), mask, SAVES)
    monkeypatch.setattr("cynosure.engine.layers._PART", 4000)  # two configurations of 9 tokens
    states, at, parts = certified_layers(z, None, Fraction(1), mask, SAVES, None, Deadline(3600))
    assert at.tolist() == SAVES.tolist()
    np.testing.assert_array_equal(states, whole)
    for name in ("born", "settled_at", "leader"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(history, name))


def test_a_batch_stops_between_its_parts(monkeypatch):
    z = np.random.default_rng(6).normal(size=(40, 9, 2))  # nothing tied: all of it is compiled
    monkeypatch.setattr("cynosure.engine.layers._PART", 4000)
    seconds = count(0.0, 1.0)
    monkeypatch.setattr(_deadline, "monotonic", lambda: next(seconds))
    _, at, _ = certified_layers(z, None, Fraction(1), None, SAVES, None, Deadline(10))
    assert at.tolist() == [0] and next(seconds) < 20


def test_a_batch_of_any_depth_returns_at_once():
    """Its configurations settle within some layers; the compiled call prepared all 1e12."""
    z, saves = np.random.default_rng(7).normal(size=(3, 5, 2)), np.array([0, 7, 10**12])
    states, at, history = certified_layers(z, None, Fraction(1), None, saves)
    near, _, _ = certified_layers(z, None, Fraction(1), None, saves[:2])
    np.testing.assert_array_equal(states[:2], near)
    assert at[-1] == 10**12 and (history.settled_at >= 0).all()
    for b in range(3):
        np.testing.assert_array_equal(states[2, b], z[b, history.leader[b]])
