"""Basins of leaders against the limit of every probe on its own."""

from __future__ import annotations

import doctest
import sys
from fractions import Fraction

import numpy as np
import pytest

import cynosure as cy
from cynosure.analysis.probes import NO_LEADER, OPEN, OWN, basins, cells


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1, 3.0])
def test_a_basin_is_the_limit_of_its_probe(alpha: float) -> None:
    z = cy.configurations.gaussian(7, 2, seed=5)
    probes = 1.5 * cy.configurations.box(40, 2, seed=6)
    dynamics = cy.PureAttention(alpha=alpha)
    for label, probe in zip(basins(dynamics, z, probes).tolist(), probes):
        li = cy.limit(dynamics, np.vstack([z, probe]))
        follows = int(li.follows[-1])
        assert li.certified
        assert label == (OWN if follows == len(z) else NO_LEADER if follows < 0 else follows)


def test_what_is_not_proved_stays_open() -> None:
    """Token 4 of G4 leads, but only from layer 13 on."""
    z = cy.configurations.golden("G4")
    others, probe = np.delete(z, 4, axis=0), z[4:5]
    dynamics = cy.PureAttention(alpha=0.5)
    assert basins(dynamics, others, probe, layers=0).tolist() == [OPEN]
    assert basins(dynamics, others, probe, layers=20).tolist() == [OWN]


def test_only_hardmax_layers_have_basins() -> None:
    with pytest.raises(ValueError, match="expected hardmax layers"):
        basins(cy.PureAttention(cy.Softmax(2.0)), np.eye(2), np.ones((1, 2)))
    assert basins(cy.PureAttention(), np.eye(2), np.ones((0, 2))).tolist() == []


def test_the_example_is_true() -> None:
    assert doctest.testmod(sys.modules["cynosure.analysis.probes"]).failed == 0


def test_after_the_deadline_the_rest_stays_open() -> None:
    """A tie that nobody breaks is tried for long; without time it is open, the others are known."""
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]])
    probes = np.array([[0.2, 0.1], [0.5, 0.0]])
    dynamics = cy.PureAttention(alpha=0.5)
    assert basins(dynamics, corners, probes, deadline=1e-9).tolist() == [0, OPEN]
    assert basins(dynamics, corners, probes, deadline=60).tolist() == [0, NO_LEADER]


def _power_cell(A: np.ndarray, v: np.ndarray, x: np.ndarray) -> int:
    """argmin |x - v|² - |v|² in the length of A (B18), in rationals; NO_LEADER for a tie."""

    def square(y: list[Fraction]) -> Fraction:
        rows = [[Fraction(a) for a in row] for row in A.tolist()]
        return sum(y[i] * rows[i][j] * y[j] for i in range(len(y)) for j in range(len(y)))

    place = [Fraction(t) for t in x.tolist()]
    sites = [[Fraction(t) for t in row] for row in v.tolist()]
    power = [square([a - b for a, b in zip(place, site)]) - square(site) for site in sites]
    least = [j for j, p in enumerate(power) if p == min(power)]
    return least[0] if len(least) == 1 else NO_LEADER


@pytest.mark.parametrize("seed", range(4))
def test_cells_are_a_power_diagram(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, 2))
    A = root @ root.T + 0.1 * np.eye(2)
    A[1, 0] = A[0, 1]
    v = rng.integers(-3, 4, size=(6, 2)).astype(float)
    v = v[np.unique(v, axis=0, return_index=True)[1]]
    # Places of a lattice tie often; a push of one rounding error decides, and must be seen.
    probes = rng.integers(-4, 5, size=(60, 2)).astype(float)
    probes = np.concatenate([probes, np.nextafter(probes, 9.0), 1e200 * probes, 1e-200 * probes])
    expected = [_power_cell(A, v, x) for x in probes]
    assert cells(cy.Hardmax(A), v, probes).tolist() == expected


def test_ties_of_cells_are_seen_and_a_rounding_error_ends_them() -> None:
    v = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.0]])
    probes = np.array([[0.3, 0.0], [0.3, 5e-324], [0.3, -5e-324], [0.0, 0.0]])
    assert cells(cy.Hardmax(), v, probes).tolist() == [NO_LEADER, 0, 1, NO_LEADER]
