"""The judges of the experiments on softmax flows (arXiv 2305.05465, 2312.10794), judged."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cynosure import configurations
from cynosure.analysis.spectra import good_triple
from cynosure.dynamics import EuclideanFlow, RescaledFlow
from cynosure.simulation.loop import simulate
from cynosure.simulation.steppers import Adaptive
from studies.softmax import (
    boolean_attention,
    leading_eigenvalues,
    long_context,
    repulsion,
)
from studies.sphere import causal_collapse, equiangular, metastability


def test_the_doubly_exponential_fit_finds_its_slope() -> None:
    t = np.linspace(0, 5, 60)
    for slope in (1.0, 0.7):
        small = np.exp(-3 * np.exp(slope * t))
        P = np.stack([np.array([[1 - s, s], [0.5, 0.5]]) for s in small])
        found = boolean_attention._rows(t, P)
        assert found.slope[0] == pytest.approx(slope, rel=1e-6)
        assert found.excepted == (1,) and np.isnan(found.slope[1])
        # far below the rounding of 1, where 1 - P_ii is 0
        assert found.outside[40, 0] == small[40] < 1e-13


def moved_inside(tr, share: float):
    """The last state with one token put at a share of the way from the origin."""
    z = tr.values.copy()
    z[-1, 0] *= share
    return dataclasses.replace(tr, z=z)


def test_a_limit_outside_S_is_seen() -> None:
    tr = leading_eigenvalues._flow(leading_eigenvalues.QUICK, 2, 5.0, 0)
    ends = (
        leading_eigenvalues._ends(run.values, leading_eigenvalues._from_S)
        for run in (tr, moved_inside(tr, 0.5))
    )
    honest, wrong = ends
    assert honest.off < 1e-8
    assert wrong.off > 0.05 and len(wrong.centres) == len(honest.centres) + 1


def test_a_component_inside_the_polytope_is_seen() -> None:
    p = leading_eigenvalues.QUICK
    tr = leading_eigenvalues._coupled_flow(p, 0.0)
    ends = (
        leading_eigenvalues._ends(run.values[..., :2], leading_eigenvalues._from_boundary)
        for run in (tr, moved_inside(tr, 0.5))
    )
    honest, wrong = ends
    assert honest.off < 1e-8 and wrong.off > 0.05


def test_random_tokens_pass_for_limits_only_where_they_could_be() -> None:
    """On a circle every choice is in its S and on its boundary; with inner tokens few are."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 30)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    line = np.stack([np.linspace(0.1, 1, 30), np.linspace(0.2, 1, 30)], axis=1)
    in_S, on_boundary = leading_eigenvalues._in_S, leading_eigenvalues._on_boundary
    chance = leading_eigenvalues._chance
    assert chance(rng, circle * (1 + 1e-13 * angle[:, None]), 6, in_S) > 0.9
    assert chance(rng, line, 6, in_S) == 0
    assert chance(rng, circle, 6, on_boundary(circle)) == 1
    disc = configurations.ball(200, 2, 1)
    assert chance(rng, disc, 20, on_boundary(disc)) == 0


def test_the_controls_of_the_polytopes_can_fail() -> None:
    p = dataclasses.replace(leading_eigenvalues.QUICK, d=(2,), sides=(0.1, 10.0))
    cells = [leading_eigenvalues._size_census(p, 2, side) for side in p.sides]
    assert all(c.survives for c in leading_eigenvalues._polytope_controls(p, cells))
    away = [cells[0], cells[1].replace(off=0.1)]
    assert [c.survives for c in leading_eigenvalues._polytope_controls(p, away)] == [False, True]
    same = [cells[0].replace(limits=cells[1].limits, finer=cells[1].finer), cells[1]]
    assert leading_eigenvalues._polytope_controls(p, same)[1].survives is False
    cell = leading_eigenvalues._coupling_census(p, 0.6).replace(chance=[0.1, 0.1])
    assert all(c.survives for c in leading_eigenvalues._product_controls([cell]))
    wrong = leading_eigenvalues._product_controls([cell.replace(off=0.2)])
    assert [c.survives for c in wrong] == [False, False]
    often = leading_eigenvalues._product_controls([cell.replace(chance=[1.0, 1.0])])
    assert [c.survives for c in often] == [False, True]


@pytest.mark.parametrize("c", [0.2, 0.6])
def test_coupled_weights_are_what_they_say(c: float) -> None:
    flow = leading_eigenvalues._coupled(leading_eigenvalues.QUICK, c)
    expected = np.array([[1, 0, c], [0, 1, c], [c, c, 1]])
    assert np.allclose(flow.Q.T @ flow.K, expected, atol=1e-15)
    assert np.linalg.eigvalsh(expected)[0] == pytest.approx(1 - np.sqrt(2) * c)


def test_the_papers_matrices_are_good_triples() -> None:
    signs = {"2-D": -1, "3-D, Re < 0": -1, "3-D, Re > 0": 1}
    for name, rows in leading_eigenvalues.MATRICES.items():
        V = np.array(rows)
        assert good_triple(V=V).holds
        others = np.sort(np.linalg.eigvals(V).real)[:-1]
        assert (np.sign(others) == signs[name]).all()


def test_the_eigenbasis_shows_the_same_tokens() -> None:
    p = dataclasses.replace(leading_eigenvalues.QUICK, n=12, side=1.0)
    D, S = leading_eigenvalues._random_modes(
        np.random.default_rng(3), 4, 3, "complex pair", p.least
    )
    times, stepper = np.array([0.0, 1.0, 3.0]), Adaptive(1e-10, 1e-12)
    w = leading_eigenvalues._in_eigenbasis(p, D, S, 0, times, stepper)
    V = S @ D @ np.linalg.inv(S)
    z0 = p.side * configurations.box(p.n, 4, 0)
    z = simulate(RescaledFlow(V=V), z0, times=times, stepper=stepper)
    assert np.abs(w.values @ S.T - z.values).max() < 1e-7
    assert (np.sort(np.linalg.eigvals(V).real)[1:] > 0).all()


def test_repulsion_ends_as_its_covariance_says() -> None:
    """C' = -2 C^2 gives C = 1/(2t); the mean is driven by five factors of x, t^(-5/2)."""
    times = np.concatenate([[0.0], np.geomspace(0.1, 1e4, 41)])
    z0 = configurations.box(20, 2, 4)
    stepper = Adaptive(1e-10, 1e-14, "LSODA")
    tr = simulate(EuclideanFlow(V=-np.eye(2)), z0, times=times, stepper=stepper)
    assert np.abs(2 * tr.t[-1] * repulsion._spread(tr.values[-1:]) - 1).max() < 0.002
    assert repulsion._exponent(tr) == pytest.approx(-0.5, abs=0.01)
    mean = np.linalg.norm(tr.values.mean(axis=1), axis=1)
    late = (tr.t >= 50) & (tr.t <= 2000)  # later the mean is rounding
    slope = np.polyfit(np.log(tr.t[late]), np.log(mean[late]), 1)[0]
    assert slope == pytest.approx(-2.5, abs=0.1)


@pytest.mark.parametrize("model", ["SA", "USA"])
def test_the_arrival_is_where_the_equation_says(model: str) -> None:
    p = equiangular.QUICK
    end = equiangular._arrival(p, 5, 3.0, model == "USA")
    r = equiangular.equiangular(p.r0, np.array([0.0, end]), 5, 3.0, model == "USA")
    assert 1 - r[-1] == pytest.approx(p.reach, rel=1e-6)
    x = equiangular._start(5, 0.3)
    assert np.allclose(x @ x.T, 0.7 * np.eye(5) + 0.3, atol=1e-15)


def test_a_layer_of_equal_angles_against_plain_softmax() -> None:
    r, n, edge = 0.3, 7, 1.1
    layer = long_context._layer(long_context.QUICK, r, n, edge)
    gram = (1 - r) * np.eye(n) + r
    P = np.exp(edge / (1 - r) * np.log(n) * gram)
    P /= P.sum(axis=1, keepdims=True)
    out = P @ gram @ P.T
    assert layer.cosine == pytest.approx(out[0, -1] / np.sqrt(out[0, 0] * out[-1, -1]), abs=1e-14)
    assert layer.cosine == pytest.approx(layer.expected, abs=1e-14)
    assert [long_context._limit(r, e) for e in (0.9, 1.0, 1.1)] == [1.0, 4 * r / (1 + 3 * r), r]


def test_two_causal_tokens_have_a_closed_form() -> None:
    """beta = 0: the angle obeys a' = -sin(a)/2, so tan(a/2) = tan(a(0)/2) e^(-t/2)."""
    p = dataclasses.replace(causal_collapse.QUICK, n=2, d=3, starts=4, time=12.0, dt=0.2)
    times = np.linspace(0, p.time, 401)
    there = causal_collapse._arrivals(p, causal_collapse._flow(0.0), times)
    assert (there[:, 0] == 0).all()
    near = np.arccos(1 - p.met)
    for s in range(p.starts):
        x = configurations.sphere(2, 3, p.seed + s)
        angle = np.arccos(x[0] @ x[1])
        expected = 2 * np.log(np.tan(angle / 2) / np.tan(near / 2))
        assert there[s, 1] == pytest.approx(expected, abs=0.04)


def test_mergers_come_later_for_larger_beta() -> None:
    p = metastability.QUICK
    caps = [metastability._caps(p, beta) for beta in (8.0, 12.0)]
    for clusters in (2, 1):
        times = [c.merger(clusters) for c in caps]
        assert times[0] < times[1]
    first, second = (metastability._slope(caps, clusters) for clusters in (2, 1))
    bridges = metastability._bridges(p)
    assert 0 < first < second and second == pytest.approx(bridges[1], rel=0.2)
    assert all(np.diff(c.energy).min() > -1e-6 for c in caps)  # the flow climbs


def test_bands_of_many_coordinates_close_at_the_limits() -> None:
    """At most three groups, each at one point in the growing coordinates, apart at the start."""
    p = dataclasses.replace(leading_eigenvalues.QUICK, high=(12, 5))
    bands = leading_eigenvalues._bands(p)
    assert bands.mean.shape == bands.std.shape == (len(bands.sizes), 5, 101)
    assert sum(bands.sizes) == 12 and len(bands.sizes) <= 3
    assert bands.width < p.tol < bands.std[..., 0].max()
