"""Studies of papers since 2025: null models by hand, and controls that can fail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

import cynosure as cy
from studies.softmax import gaussian_rules
from studies.sphere import mode_selection
from studies.transformers import lost_in_the_middle as lost


def test_even_attention_is_the_power_of_a_matrix() -> None:
    n, layers, eta = 7, 3, 0.4
    C = np.array([[1 / i if j <= i else 0 for j in range(1, n + 1)] for i in range(1, n + 1)])
    whole = np.linalg.matrix_power((1 - eta) * np.eye(n) + eta * C, layers)
    found = lost.even(n, layers, eta)
    np.testing.assert_allclose(found, whole[-1], atol=1e-15)
    assert (np.diff(found[:-1]) < 0).all() and found.sum() == pytest.approx(1)


def profiles(reach: list[float]) -> list[lost.Profile]:
    return [lost.Profile("", k, np.array(reach) / sum(reach)) for k in range(3)]


def test_a_dip_is_a_middle_below_both_ends() -> None:
    (deep, *_) = lost_profiles = profiles([4, 4, 1, 1, 1, 1, 2, 2])
    assert deep.dip == pytest.approx(0.5) and deep.quarters.mean() == pytest.approx(1)
    flat = profiles([1] * 8)
    assert flat[0].dip == pytest.approx(1)
    falling = profiles([8, 7, 6, 5, 4, 3, 2, 1])
    assert falling[0].dip > 1

    def verdicts(trained: list, fresh: list) -> list[bool]:
        by = {"trained": trained, "untrained": fresh, "another order": trained[::-1]}
        dips = {kind: np.array([x.dip for x in of]) for kind, of in by.items()}
        told = dict.fromkeys(by, "")
        return [c.survives for c in lost._controls(by, dips, told, falling[0])]

    assert verdicts(lost_profiles, falling) == [True, True, True]
    assert verdicts(falling, lost_profiles) == [False, False, True]
    assert verdicts(lost_profiles, lost_profiles)[1] is False


def test_modes_grow_as_the_linearised_equation_says() -> None:
    """gamma_k from integrals of exp(beta cos), and the fastest mode is near sqrt(2 beta)."""

    def mode(x: float, k: int, beta: float) -> float:
        return float(np.cos(k * x) * np.exp(beta * np.cos(x)))

    for beta in (2.0, 9.0):
        parts = [quad(mode, 0, np.pi, (k, beta))[0] for k in range(7)]
        expected = [k * k * parts[k] / parts[0] / beta for k in range(1, 7)]
        np.testing.assert_allclose(mode_selection.rates(beta, 6), expected, rtol=1e-8)
    for beta in (18.0, 50.0, 200.0):
        fastest = mode_selection.rates(beta, 60).argmax() + 1
        assert abs(fastest - np.sqrt(2 * beta)) <= 1


def test_rules_pull_as_softmax_does_where_they_are_it() -> None:
    x = np.random.default_rng(0).standard_normal(9)
    expected = cy.Softmax(0.7).pull(x[:, None])[:, 0]
    mass = np.ones(9)
    np.testing.assert_allclose(gaussian_rules.pulled("softmax", 0.7, x, x, mass), expected)
    causal = cy.attention.Causal(cy.Softmax(0.7)).pull(x[:, None])[:, 0]
    np.testing.assert_allclose(gaussian_rules.pulled("masked", 0.7, x, x, mass), causal)
    far = gaussian_rules.pulled("L2", 1e8, x, x, mass)
    np.testing.assert_allclose(far, x)  # the nearest token is the token itself
    half = gaussian_rules.pulled("sigmoid", 0.0, x, x, mass)
    np.testing.assert_allclose(half, x.mean() / 2)


def test_a_bend_is_what_no_affine_map_gives() -> None:
    x = np.linspace(-1, 1, 200)
    found = gaussian_rules._bend(np.stack([x, 3 * x - 2, x + x**3]))
    np.testing.assert_allclose(found[:2], 0, atol=1e-12)
    assert found[2] > 0.05
