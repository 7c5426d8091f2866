"""Noise, mean field and normalisation: laws and closed forms against plain references."""

from __future__ import annotations

from dataclasses import replace
from math import cos, exp, log, pi

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import digamma

import cynosure as cy
from cynosure.attention import Softmax
from cynosure.study import Cell
from cynosure.theorems.mean_field import normality
from cynosure.theorems.noise import (
    PairLaw,
    antipodal_probability,
    antipodal_threshold,
    tail_of_ends,
)
from cynosure.theorems.normalisation import equiangular_directions
from studies.softmax import gaussian_crowd
from studies.sphere import common_noise, normalisation

# --- two tokens in common noise -------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [1.05, 1.5, 4.0])
def test_without_scores_the_probability_is_a_known_integral(sigma: float) -> None:
    """beta = 0: s = e^{a phi} / cosh(phi), a = 1/sigma^2, whose integrals are pi/cos(pi a/2) over
    the line and (digamma((3+a)/4) - digamma((1+a)/4))/2 over its left half."""
    a = 1 / sigma**2
    exact = (digamma((3 + a) / 4) - digamma((1 + a) / 4)) / 2 * cos(pi * a / 2) / pi
    assert antipodal_probability(0.0, 0.0, sigma) == pytest.approx(exact, rel=1e-11)


def hit(beta: float, sigma: float, share: float, r: float) -> float:
    """P(antipodal) by integrating log s and s outwards from the start, as the formula reads."""

    def g(phi: float) -> float:
        ratio = exp(min(beta * (1 + np.tanh(phi)), 700))
        return 1 / (1 + ratio * share / (1 - share)) + 1 / (1 + ratio * (1 - share) / share)

    def f(phi: float, y: np.ndarray) -> list[float]:
        return [g(phi) / sigma**2 - np.tanh(phi), np.exp(y[0])]

    start = -np.arctanh(r)
    ends = (
        solve_ivp(f, (start, end), [0, 0], rtol=1e-11, atol=1e-13).y[1, -1] for end in (60, -60)
    )
    above, below = ends
    return float(-below / (above - below))


@pytest.mark.parametrize(
    "case",
    [(2.0, 0.5, 0.5, 0.0), (4.0, 0.25, 0.5, 0.3), (1.0, 1.0, 0.25, 0.0), (3.0, 0.6, 0.9, -0.5)],
)
def test_the_probability_is_that_of_the_formula(case: tuple[float, ...]) -> None:
    beta, sigma, share, r = case
    assert antipodal_probability(r, beta, sigma, share) == pytest.approx(
        hit(beta, sigma, share, r), abs=3e-7
    )


def test_the_law_is_stable_where_plain_integrals_overflow() -> None:
    phi = np.array([-np.inf, -300.0, -1.0, 0.0, 1.0, 300.0, np.inf])
    for beta, sigma in ((50.0, 0.02), (400.0, 0.05), (0.0, 100.0), (1.0, 0.05)):
        p = PairLaw(beta, sigma).probability(phi)
        assert np.isfinite(p).all() and (np.diff(p) >= 0).all() and p[0] == 0 and p[-1] == 1
    assert antipodal_probability(0.0, 1.0, 0.05) == 0.0
    with pytest.raises(ValueError, match="sigma > 0"):
        PairLaw(1.0, 0.0)


def test_the_threshold() -> None:
    for beta in (0.0, 1.0, 5.0):
        assert antipodal_threshold(beta) == pytest.approx(2 / (1 + exp(2 * beta)), rel=1e-14)
        edge = antipodal_threshold(beta) ** 0.5
        assert PairLaw(beta, 1.001 * edge).attracting and not PairLaw(beta, 0.999 * edge).attracting
        # a small group is harder to keep opposite a large one
        assert antipodal_threshold(beta, 0.1) >= antipodal_threshold(beta) - 1e-12


def test_many_pairs_are_judged_together() -> None:
    law = PairLaw(1.0, 1.0)
    p = antipodal_probability(0.0, 1.0, 1.0)
    fair = np.where(np.arange(400) < 400 * p, 30.0, -30.0)
    assert min(tail_of_ends(law, 0.0, fair, 0.04)) > -2
    many, few = tail_of_ends(law, 0.0, np.where(np.arange(400) < 160, 30.0, -30.0), 0.04)
    assert many < -6 and few == 0  # 40 % for 25 %
    many, few = tail_of_ends(law, 0.0, np.where(np.arange(400) < 40, 30.0, -30.0), 0.04)
    assert many == 0 and few < -6  # 10 %
    # the bound is one: no more extreme than the binomial tail it bounds
    from scipy.stats import binom

    q = float(PairLaw(1.0, 1.0, drift=0.04).probability(0.0))
    exact = float(binom.logsf(159, 400, q)) / log(10)
    assert exact <= tail_of_ends(law, 0.0, np.repeat([30.0, -30.0], [160, 240]), 0.04)[0]


@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize(("beta", "sigma", "phi"), [(1.0, 1.0, 0.7), (3.0, 0.5, -1.0)])
def test_a_step_has_drift_and_variance_of_the_diffusion(
    d: int, beta: float, sigma: float, phi: float
) -> None:
    """One layer, many times: the mean and the variance of the increment of phi, and that drift over
    half the variance is off by less than the (1 + sigma^2)^2 dt that the check allows."""
    dt, count = 0.02, 400_000
    rng = np.random.default_rng(0)
    r, s = -np.tanh(phi), 1 / np.cosh(phi)
    x, y = np.eye(d)[0], r * np.eye(d)[0] + s * np.eye(d)[1]
    w = 1 / (1 + exp(beta * (1 - r)))
    g = rng.standard_normal((2, count // 2, d))
    one, two = (np.concatenate([h, -h]) for h in g)  # G x, and G on the rest of y
    X = x + dt * ((1 - w) * x + w * y) + sigma * dt**0.5 * one
    Y = y + dt * ((1 - w) * y + w * x) + sigma * dt**0.5 * (r * one + s * two)
    X, Y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (X, Y))
    step = np.log(np.linalg.norm(X - Y, axis=1) / np.linalg.norm(X + Y, axis=1)) - phi
    mu = float(PairLaw(beta, sigma).mu(np.array(phi)))
    noise = 5 * step.std() / count**0.5 / dt
    ratio = step.mean() / dt / (step.var() / (2 * sigma**2 * dt))
    assert abs(ratio - mu) < (1 + sigma**2) ** 2 * dt + noise
    assert abs(step.mean() / dt - mu) < d * (1 + sigma**2) ** 2 * dt + noise
    assert abs(step.var() / (2 * sigma**2 * dt) - 1) < 2 * d * (1 + sigma**2) * dt


# --- the Gaussian closure -------------------------------------------------------------------------


def test_covariance_and_mean_in_closed_form() -> None:
    """V = v I, A symmetric, R R^T = S_0, B = R^T A R: S = (S_0^{-1} - 2 v t A)^{-1} and
    m = e^{v t} R (1 - 2 v t B)^{-1/2} R^{-1} m_0."""
    S0, A, m0, v, t = (
        np.array([[0.5, 0.2], [0.2, 0.4]]),
        np.diag([1.0, -0.6]),
        [1.0, -2.0],
        0.7,
        0.4,
    )
    found = cy.analysis.GaussianFlow(m0, S0, A, v * np.eye(2)).solve([0.0, t])
    S = np.linalg.inv(np.linalg.inv(S0) - 2 * v * t * A)
    np.testing.assert_allclose(found.covariance[1], S, rtol=1e-9)
    R = np.linalg.cholesky(S0)
    values, axes = np.linalg.eigh(R.T @ A @ R)
    root = axes @ np.diag((1 - 2 * v * t * values) ** -0.5) @ axes.T
    np.testing.assert_allclose(
        found.mean[1], exp(v * t) * R @ root @ np.linalg.solve(R, m0), rtol=1e-9
    )


def test_the_moments_are_those_of_tokens_moved_alone() -> None:
    """x' = V(m + S A x) moves each token by itself once m and S are known: for any V, A."""
    rng = np.random.default_rng(0)
    A, V = rng.normal(size=(2, 3, 3))
    flow = cy.analysis.GaussianFlow([0.1, 0.2, 0.3], 0.2 * np.eye(3), A, V)
    z = flow.sample(50, 1)
    own = cy.analysis.GaussianFlow.of(z, A, V)

    def velocity(t: float, y: np.ndarray) -> np.ndarray:
        x = y.reshape(50, 3)
        m, S = x.mean(axis=0), np.cov(x.T, bias=True)
        return ((m + x @ A.T @ S) @ V.T).ravel()

    x = solve_ivp(velocity, (0, 0.5), z.ravel(), rtol=1e-10, atol=1e-12).y[:, -1].reshape(50, 3)
    end = own.solve([0.5])
    np.testing.assert_allclose(end.mean[0], x.mean(axis=0), rtol=1e-7)
    np.testing.assert_allclose(end.covariance[0], np.cov(x.T, bias=True), rtol=1e-7)


@pytest.mark.parametrize(("v", "a", "s"), [(1.0, 1.0, 0.5), (2.0, 0.5, 0.3), (-1.0, -2.0, 0.25)])
def test_blow_up_is_at_the_time_of_the_formula(v: float, a: float, s: float) -> None:
    flow = cy.analysis.GaussianFlow([0.0], [[s]], [[a]], [[v]])
    end = 1 / (2 * v * a * s)
    assert flow.blow_up == pytest.approx(end, rel=1e-12)
    late = flow.solve([0.999 * end]).covariance[0, 0, 0]
    assert late == pytest.approx(s / 0.001, rel=1e-6)
    with pytest.raises(ValueError, match=f"infinite at about t = {end:.3g}"[:-1]):
        flow.solve([1.01 * end])
    assert cy.analysis.GaussianFlow([0.0], [[s]], [[-a]], [[v]]).blow_up == np.inf
    assert cy.analysis.GaussianFlow([0.0, 0.0], np.eye(2), None, [[1.0, 1], [0, 1]]).blow_up is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], np.eye(2)), "a finite mean"),
        (([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "without negative eigenvalues"),
        (([0.0, 0.0], [[1.0, 1.0], [0.0, 1.0]]), "symmetric"),
        (([0.0, 0.0], np.eye(2), np.eye(3)), "A: expected"),
    ],
)
def test_refused_laws(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cy.analysis.GaussianFlow(*arguments)
    with pytest.raises(ValueError, match="increasing"):
        cy.analysis.GaussianFlow([0.0], [[1.0]]).solve([0.2, 0.1])


def test_rank_of_the_covariance_does_not_grow() -> None:
    S = cy.analysis.GaussianFlow([0.0, 1.0], [[1.0, 1.0], [1.0, 1.0]], np.diag([0.1, 0.2])).solve(
        [0.5]
    )
    values = np.linalg.eigvalsh(S.covariance[0])
    assert abs(values[0]) < 1e-12 * values[1]


@pytest.mark.many
def test_normality_tells_gaussian_tokens_from_others() -> None:
    rng = np.random.default_rng(0)
    scores = [normality(rng.standard_normal((300, 2)) @ [[1.0, 2], [0, 1]] + 5) for _ in range(200)]
    assert max(scores) < 5 and np.mean(np.array(scores) > 2) < 0.15
    assert normality(rng.uniform(-1, 1, (300, 2))) > 5
    assert normality(rng.exponential(size=(300, 1))) > 5


# --- places of the normalisation ------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["post", "pre", "peri", "nGPT"])
def test_directions_turn_at_the_speed_of_their_scheme(scheme: str) -> None:
    """theta' of a few tokens of any lengths against the table of speeds, in plain loops."""
    rng = np.random.default_rng(1)
    z, V, gamma = rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), 0.4
    if scheme in ("post", "nGPT"):
        z /= np.linalg.norm(z, axis=1, keepdims=True)
    flow = {
        "post": cy.SphereFlow(Softmax(2.0), V),
        "pre": cy.dynamics.PreNormFlow(Softmax(2.0), V),
        "peri": cy.dynamics.PeriNormFlow(Softmax(2.0), V),
        "nGPT": cy.dynamics.NGPTFlow(Softmax(2.0), V, gamma),
    }[scheme]
    found = flow.velocity(z, 0.0)
    theta = [x / np.sqrt(x @ x) for x in z]
    for i in range(4):
        weight = np.array([exp(2 * theta[i] @ theta[j]) for j in range(4)])
        a = V @ (weight / weight.sum() @ np.array(theta))
        r, size = np.sqrt(z[i] @ z[i]), np.sqrt(a @ a)
        s = {"post": 1, "pre": r, "peri": r * size, "nGPT": size / gamma}[scheme]
        grow = {"pre": a @ theta[i], "peri": a @ theta[i] / size}.get(scheme, 0.0)
        turn = (found[i] - (found[i] @ theta[i]) * theta[i]) / r
        np.testing.assert_allclose(turn, (a - (a @ theta[i]) * theta[i]) / s, atol=1e-12)
        np.testing.assert_allclose(found[i] @ theta[i], grow, atol=1e-12)


def test_mixed_is_post_then_pre() -> None:
    x = cy.configurations.sphere(6, 3, 2)
    found = cy.simulate(cy.dynamics.MixedNormFlow(tau=0.7), x, times=[0.0, 0.7, 2.0]).values
    post = cy.simulate(cy.SphereFlow(), x, times=[0.7]).values[-1]
    np.testing.assert_allclose(found[1], post, atol=1e-8)
    pre = cy.simulate(cy.dynamics.PreNormFlow(), post, times=[1.3]).values[-1]
    np.testing.assert_allclose(found[2], pre, atol=1e-7)
    for make in (
        lambda: cy.dynamics.MixedNormFlow(tau=0.0),
        lambda: cy.dynamics.NGPTFlow(gamma=-1.0),
    ):
        with pytest.raises(ValueError, match="expected a"):
            make()


# --- what the experiments measure ----------------------------------------------------------------


def test_a_layer_of_the_ensemble_is_a_layer_of_the_noisy_sphere() -> None:
    x = cy.configurations.sphere(5, 3, 1)
    noisy = cy.dynamics.NoisySphere(Softmax(2.0), sigma=0.4, dt=0.02, seed=7)
    G = np.random.default_rng([7, 11]).standard_normal((3, 3))
    found = common_noise.layer(x[None], (x @ G.T)[None], 2.0, 0.4, 0.02)[0]
    np.testing.assert_allclose(found, noisy.step(x, 11), atol=1e-15)


def test_cosines_in_independent_noise_have_the_stationary_law() -> None:
    """The density makes the flux of dr = (2w(1-r^2) - (d-1) sigma^2 r) dt + ... vanish."""
    r = np.linspace(-0.9, 0.9, 20_001)
    for beta, sigma, d in ((1.0, 0.7, 3), (0.0, 1.0, 5), (3.0, 0.5, 2)):
        density = common_noise.stationary(r, beta, sigma, d)
        w = 1 / (1 + np.exp(beta * (1 - r)))
        drift = 2 * w * (1 - r * r) - (d - 1) * sigma**2 * r
        flux = drift * density - np.gradient(sigma**2 * (1 - r * r) * density, r)
        assert np.abs(flux[5:-5]).max() < 1e-5 * np.abs(drift * density).max()


def test_pairs_that_disobey_the_law_are_noticed() -> None:
    ends = np.where(np.arange(300) < 75, 20.0, -20.0)
    right = common_noise.Pairs(1.0, 1.0, 3, 0.0, 0.02, ends)
    assert right.exact == pytest.approx(0.25, abs=1e-3) and right.tail > -2
    assert common_noise.Pairs(1.0, 1.0, 3, 0.0, 0.02, -ends).tail < -6


def test_common_noise_that_leaves_pairs_apart_fails_its_control() -> None:
    """The control looks at both noises, with one measure: it once looked at the null model only."""
    p = common_noise.QUICK
    own = [np.zeros(8), np.zeros(8)]  # cosines: every pair stays apart
    for phi, survives in ((4.0, True), (1.0, False)):
        cells = [common_noise.Pairs(1.0, 1.0, d, 0.0, p.dt, np.full(8, -phi)) for d in (3, 2)]
        quiet, other = [cells[0]._replace(sigma=0.2)], [cells[0]._replace(r=0.6)]
        later = Cell(pairs=[], crowds=[])
        args = (quiet, cells, cells[:1], other, [], later, own)
        assert common_noise._comparisons(p, *args)[-1].survives is survives
    assert cells[0].apart == 1  # tanh(1) = 0.76
    with pytest.raises(ValueError, match="both sides of the threshold"):
        common_noise.run(replace(p, sigma=(1.05,)))


def test_pre_and_peri_go_the_same_way_at_other_speeds() -> None:
    """Tokens at equal angles: dr/d(length) does not know |a|, nor does post beside nGPT."""
    times = np.linspace(0, 8, 400)
    (gap, length), (other, grown) = (
        equiangular_directions(flow, 0.0, 0.5, times, 5)
        for flow in (cy.dynamics.PreNormFlow(), cy.dynamics.PeriNormFlow())
    )
    inside = grown < length[-1]
    assert np.interp(grown[inside], length, np.log(gap)) == pytest.approx(
        np.log(other[inside]), abs=1e-3
    )
    assert np.abs(gap - other).max() > 0.1  # but not at the same time


def test_rates_of_the_schemes_can_be_told_apart() -> None:
    t, s = np.linspace(0, 12, 121), np.append(0, np.geomspace(0.05, 1000, 120))
    for power in (1.0, 2.0):
        post = normalisation.Decay("post", "full", 4, 3, 1.0, "I", 0, t, np.exp(-power * t))
        pre = normalisation.Decay("pre", "full", 4, 3, 1.0, "I", 0, s, (1 + s) ** -power)
        assert post.exponent == pytest.approx(power) or power == 1  # e^-12 is not late enough
        assert pre.exponent == pytest.approx(power, abs=0.02)


def test_the_power_of_n_is_fitted_with_an_interval() -> None:
    rng, n = np.random.default_rng(0), (100, 400, 1600)
    for power in (0.5, 0.1):
        errors = [rng.standard_normal(60) * k**-power for k in n]
        found, low, high = gaussian_crowd.exponent(n, errors)
        assert low < found < high and low - 0.05 < power < high + 0.05 and high - low < 0.4


@pytest.mark.parametrize("mean", ["x", {}, [[1.0], [1.0, 2.0]], [float("nan")]])
def test_a_mean_that_is_no_vector_is_refused_by_name(mean) -> None:
    with pytest.raises((ValueError, TypeError), match="mean"):
        cy.analysis.GaussianFlow(mean, [[1.0]])
