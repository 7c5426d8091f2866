"""Sets of leaders in the plane, enumerated: all that a dense grid of forms shows, each proved."""

from __future__ import annotations

import numpy as np
import pytest

import cynosure as cy
from cynosure.analysis.control import plane_forms
from cynosure.analysis.control.plane_forms import leader_sets


def leaders(z: np.ndarray, A: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(cy.Hardmax(A).followed(z).leads).tolist())


def on_a_grid(z: np.ndarray, rings: int = 12, turns: int = 32) -> set[tuple[int, ...]]:
    """By the exact sets under forms of conditions up to a million, nothing about cells."""
    found = set()
    for r in np.tanh(np.linspace(0, 7, rings)):
        for angle in np.linspace(0, 2 * np.pi, turns, endpoint=False):
            x, y = r * np.cos(angle), r * np.sin(angle)
            found.add(leaders(z, np.array([[1 + x, y], [y, 1 - x]])))
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("shift", [0.0, 1.5])  # with 0 inside the hull, and mostly outside
def test_nothing_on_a_dense_grid_is_missed_and_every_form_is_right(seed, shift) -> None:
    z = cy.configurations.gaussian(9, 2, seed) + shift
    found = leader_sets(z)
    for targets, A in found.items():
        assert leaders(z, A) == targets
    assert on_a_grid(z) <= set(found)
    assert len(found) > 1 and () not in found


def test_by_hand() -> None:
    """Two opposite tokens always lead; of (1, 0) and (1, 1) one, the other, or both, as y goes."""
    assert list(leader_sets(np.array([[1.0, 0.0], [-2.0, 0.0]]))) == [(0, 1)]
    # token 0 leads where <A(1, 0), (0, -1)> = -y > 0, token 1 where y + 1 - x > 0
    found = leader_sets(np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert list(found) == [(0,), (0, 1), (1,)]
    A = found[0, 1]
    assert A[0, 1] < 0 < A[0, 1] + A[1, 1]


def test_control_in_the_plane_finds_all_that_exists_and_nothing_else() -> None:
    z = cy.configurations.gaussian(8, 2, 3)
    found = leader_sets(z)
    for targets in found:
        choice = cy.control_exactly(z, list(targets))
        assert choice.found and leaders(z, choice.A) == targets
    other = next((i,) for i in cy.hull(z).index.tolist() if (i,) not in found)
    assert (
        "no cell" in (choice := cy.control_exactly(z, other)).why or choice.reason == "impossible"
    )


def test_more_corners_than_bits_of_a_number(monkeypatch) -> None:
    """Sets are told apart by all of their tokens: three lines through the forms of 70 tokens."""
    t = np.linspace(0, 2 * np.pi, 70, endpoint=False)
    z = np.stack([3 * np.cos(t), np.sin(t)], axis=1) + 0.4
    monkeypatch.setattr(plane_forms, "_abscissas", lambda *_: np.array([-0.5, 0.013, 0.61]))
    seen = set()
    for part in plane_forms.strips(z):
        assert len(part.who) > 63
        for x, low, high in zip(part.x, part.low, part.high, strict=True):
            end = np.sqrt(1 - x**2)
            cuts = np.unique(np.clip(np.concatenate([low, high, [-end, end]]), -end, end))
            for y in ((cuts[1:] + cuts[:-1]) / 2)[np.diff(cuts) > 1e-13]:
                seen.add(tuple(part.who[(low < y) & (y < high)].tolist()))
    assert set(leader_sets(z)) == seen and len(seen) > 100


def test_a_missing_half_would_be_noticed() -> None:
    """The judge is judged: without the forms of one half disc the grid shows what is missing."""
    z = cy.configurations.gaussian(9, 2, 1)
    assert not on_a_grid(z) <= {targets for targets, A in leader_sets(z).items() if A[0, 0] > 1}
