"""The controls of the experiments on softmax flows and the sphere: they can fall, and do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import spearmanr

from cynosure import configurations
from cynosure.attention import Softmax
from cynosure.dynamics import PureAttention, RescaledFlow
from cynosure.simulation.loop import simulate
from cynosure.simulation.steppers import Adaptive
from cynosure.study import Cell
from cynosure.theorems import expected_leaders
from studies.softmax import (
    _shrinking,
    boolean_attention,
    leading_eigenvalues,
    limit_count,
    long_context,
    master_equation,
    random_matrices,
    repulsion,
    softmax_to_hardmax,
    value_spectrum,
)
from studies.sphere import causal_collapse, equiangular, metastability, sphere_beta
from test_studies import quick

CONTROLLED = (
    "boolean_attention causal_collapse common_noise equiangular gaussian_crowd "
    "normalisation leading_eigenvalues limit_count long_context master_equation metastability "
    "random_matrices repulsion softmax_to_hardmax sphere_beta value_spectrum"
).split()


@pytest.mark.parametrize("name", CONTROLLED)
def test_every_finding_stands_beside_a_control_with_numbers(name: str) -> None:
    controls = [control for part in quick(name)[0].parts() for control in part.controls]
    assert len(controls) >= 2 and len({c.claim for c in controls}) == len(controls)
    assert all(any(sign.isdigit() for sign in c.seen) for c in controls)
    assert all(isinstance(c.survives, bool) for c in controls)


# --- how many leaders: the law and its growth ----------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_exact_law_grows_as_it_should(d: int) -> None:
    ratio = [expected_leaders(n, d) / limit_count.growth(n, d) for n in (10**3, 10**6, 10**12)]
    assert ratio == sorted(ratio, reverse=True) and ratio[-1] == pytest.approx(1, abs=0.07)
    # r_n is sqrt(2 log n) to leading order: sqrt(4 pi log n) in the plane, 4 log n in space
    first = {2: np.sqrt(4 * np.pi * np.log(1e300)), 3: 4 * np.log(1e300)}
    if d in first:
        assert limit_count.growth(10**300, d) == pytest.approx(first[d], rel=0.01)


# --- V that should shrink ------------------------------------------------------------------------


def descent(power: float, damping: float, factor: float = 0.0) -> _shrinking.Descent:
    t = np.append(0, np.geomspace(0.1, 500, 60))
    longest = np.maximum(1 + t, 1) ** power * np.exp(factor * t)
    values = np.array([-damping + 1j, -damping - 1j])
    finer = np.stack([longest] * 2) if damping < _shrinking.WEAK else None
    return _shrinking.Descent(2, values, (3.0, 9.0), t, np.stack([longest] * 2), finer)


def test_growth_makes_the_claim_of_collapse_fall() -> None:
    down, up = descent(-0.5, 2.0), descent(0.0, 0.1, 0.02)
    assert (down.grows, up.grows) == (False, True) and up.damping == pytest.approx(0.1)
    assert down.exponent == pytest.approx(-0.5, abs=0.01)
    verdicts = {c.claim: c.survives for c in _shrinking.comparisons([down] * 3)}
    assert verdicts["V without an eigenvalue of positive real part brings all tokens to 0"]
    mixed = {c.claim: c.survives for c in _shrinking.comparisons([down] * 3 + [up])}
    assert not mixed["V without an eigenvalue of positive real part brings all tokens to 0"]
    assert mixed["whether tokens grow is no artefact of the step"]
    assert mixed["what grows has a weakly damped complex pair"]
    artefact = up._replace(finer=down.longest)
    other = {c.claim: c.survives for c in _shrinking.comparisons([down, artefact])}
    assert not other["whether tokens grow is no artefact of the step"]
    strong = descent(0.0, 2.0, 0.02)
    found = {c.claim: c.survives for c in _shrinking.comparisons([down, strong])}
    assert not found["what grows has a weakly damped complex pair"]


def test_a_stable_V_lets_tokens_grow_at_two_steps() -> None:
    """Both eigenvalues have negative real part, and the tokens run away all the same."""
    p = value_spectrum.Params()
    V = value_spectrum._random_V(p, 2, 11)
    assert np.linalg.eigvals(V).real.max() < 0
    found = _shrinking.descend(V, configurations.box(p.n, 2, p.seed + 11), (p.size,), 3.0)
    assert found.finer is not None and found.damping < 0.01
    assert found.longest[0, -1] > 3 * found.longest[0, 0]
    assert found.finer[0, -1] > 3 * found.finer[0, 0]
    calm = _shrinking.descend(-np.eye(2), configurations.box(10, 2, 0), (3.0,), 3.0)
    assert not calm.grows and calm.finer is None and calm.exponent == pytest.approx(-0.5, abs=0.1)


# --- sizes and starts ----------------------------------------------------------------------------


def flows(size: float, kind: str, leaders: list[int]) -> Cell:
    return Cell(size=size, kind=kind, leaders=np.array(leaders), both=[True] * len(leaders))


def test_two_leaders_are_a_matter_of_size() -> None:
    p = replace(random_matrices.QUICK, size=2.0, sizes=(0.5,))
    laws = {("Gaussian", 30, 1.0): random_matrices._varied(p, "Gaussian", 30, 1.0)}
    laws["heavy tails", 30, 1.0] = random_matrices._varied(p, "heavy tails", 30, 1.0)
    always = [flows(s, k, [2] * 9) for s in (0.5, 2.0) for k in ("A = I, random V", "A = I, V = I")]
    always[1] = flows(0.5, "A = I, V = I", [4] * 9)
    *_, most, exactly = random_matrices._comparisons(p, laws, always)
    assert most.survives and exactly.survives
    short = [flows(0.5, "A = I, random V", [1] * 9), *always[1:]]
    *_, most, exactly = random_matrices._comparisons(p, laws, short)
    assert most.survives and not exactly.survives and "0.5: 0 of 9" in exactly.seen
    three = [flows(0.5, "A = I, random V", [3] * 9), *always[1:]]
    assert not random_matrices._comparisons(p, laws, three)[-2].survives


def test_distance_from_the_corners_of_the_box() -> None:
    p = replace(limit_count.QUICK, size=2.0)
    half = 2 * np.sqrt(1.5)
    corners = half * np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    assert limit_count._corners(p, corners) == 0
    assert limit_count._corners(p, np.zeros((3, 2))) == pytest.approx(np.sqrt(2))


def test_more_than_three_limits_would_be_a_counterexample() -> None:
    def census(limits: list[int]) -> Cell:
        return Cell(limits=limits, others=[(k, k) for k in limits])

    p = leading_eigenvalues.QUICK
    for limits, expected in (
        ([2, 2], (True, False)),
        ([2, 3], (True, True)),
        ([4, 3], (False, True)),
    ):
        cells = [census(limits)]
        assert (
            tuple(c.survives for c in leading_eigenvalues._line_controls(p, cells, cells))
            == expected
        )


# --- order of arrival, phase diagram -------------------------------------------------------------


def test_the_order_of_arrival_is_spearmans() -> None:
    rng = np.random.default_rng(0)
    arrivals = rng.exponential(size=(5, 9))
    arrivals[1, 5:] = 7.0  # a cluster comes at once
    found = causal_collapse.order(arrivals)
    for row, value in zip(arrivals[:, 1:], found):
        assert value == pytest.approx(spearmanr(np.arange(8), row).statistic)
    never = np.concatenate([np.arange(5.0), [np.inf] * 4])[None]
    ranked = np.concatenate([np.arange(5.0), [9.0] * 4])[None]
    assert causal_collapse.order(never) == pytest.approx(causal_collapse.order(ranked))
    assert causal_collapse.order(np.full((1, 9), np.inf)) == 0


def test_meeting_on_the_line_is_meeting_on_time() -> None:
    p = replace(sphere_beta.QUICK, time=20.0, betas=3, most_beta=4.0)
    times = [sphere_beta._meeting_time(p, beta) for beta in sphere_beta._betas(p)]
    share = np.stack([(sphere_beta._times(p) >= t).astype(float) for t in times])
    assert sphere_beta._against_line(p, share) == pytest.approx([1, 1, 1], abs=0.04)
    late = np.roll(share, 24, axis=1) * (sphere_beta._times(p) > 4)
    assert max(sphere_beta._against_line(p, late)) > 1.3


# --- exponents -----------------------------------------------------------------------------------


def test_the_factor_beta_is_seen() -> None:
    p = replace(metastability.QUICK, per_cap=2)
    wide, narrow = (metastability._pair(p, angle) for angle in (80.0, 40.0))
    assert wide.plain < wide.corrected
    assert wide.corrected == pytest.approx(wide.bridge, rel=0.15)
    assert wide.corrected > 2 * narrow.corrected


def test_lifetimes_have_both_slopes() -> None:
    p = softmax_to_hardmax.QUICK
    lives = [
        Cell(beta=beta, lost=round(50 * np.exp(0.7 * beta) / beta)) for beta in (10.0, 12.0, 14.0)
    ]
    found = softmax_to_hardmax._lifetimes(p, "pentagon", lives)
    assert found.corrected == pytest.approx(0.7, abs=1e-3) and found.slope is not None
    assert found.slope < 0.65
    plain, corrected = softmax_to_hardmax._over_gap([found])
    assert corrected[0] > plain[0] and corrected[0] == pytest.approx(0.7 / found.barrier, rel=1e-3)


def test_without_softmax_nothing_shrinks() -> None:
    p = replace(repulsion.QUICK, time=1e4)
    soft = repulsion._end(p, (20, 2.0, 3, True))
    uniform = repulsion._end(p, (20, 2.0, 3, False))
    assert soft.exponent == pytest.approx(-0.5, abs=0.01) and soft.off < 0.01 and soft.left < 0.01
    assert uniform.exponent == pytest.approx(0, abs=1e-6) and uniform.left == pytest.approx(1)
    assert all(c.survives for c in repulsion._comparisons(p, [soft, uniform]))
    wrong = soft.replace(exponent=-0.4, off=0.3)
    assert not any(c.survives for c in repulsion._comparisons(p, [wrong, uniform]))


def test_boolean_rows_come_faster_without_attention() -> None:
    end = boolean_attention._end(boolean_attention.QUICK, 1.0, 0)
    assert end.slope == pytest.approx(1, abs=0.05) and end.alone == pytest.approx(2, abs=0.05)
    assert (end.rank, end.excepted, end.columns) == (2, 0, 2)


# --- null models ---------------------------------------------------------------------------------


def test_the_blind_prediction_is_that_of_the_uniform_matrix() -> None:
    z0 = configurations.gaussian(7, 2, 1)
    uniform = np.full((7, 7), 1 / 7)
    tr = simulate(RescaledFlow(), z0, times=[0.0, 0.5, 1.5], stepper=Adaptive(1e-10))
    ahead = [expm(s * (uniform - np.eye(7))) @ z0 for s in (0.0, 0.5, 1.5)]
    errors = [np.linalg.norm(a - z) / np.linalg.norm(z) for a, z in zip(ahead, tr.values)]
    assert master_equation._blind(tr, 0) == pytest.approx(max(errors), abs=1e-12)
    layers = simulate(PureAttention(alpha=0.5), z0, layers=4)
    state, errors = z0, [0.0]
    for z in layers.values[1:]:
        state = (state + 0.5 * uniform @ state) / 1.5
        errors.append(np.linalg.norm(state - z) / np.linalg.norm(z))
    assert master_equation._blind(layers, 0) == pytest.approx(max(errors), abs=1e-12)


def test_uniform_attention_ends_on_one_hyperplane() -> None:
    p, kinds = leading_eigenvalues.QUICK, leading_eigenvalues.KINDS
    census = leading_eigenvalues._plane_census
    found = {k: census(p, "2-D", (5.0, 12, k)).counts for k in kinds}
    assert found == {"softmax": [2, 2], "uniform": [1, 1], "turned round": [1, 1]}


def test_nearly_equal_angles_leave_the_equation_at_large_beta() -> None:
    p = replace(equiangular.QUICK, starts=2, reach=1e-2)
    exact = equiangular._noisy(p, 0.0, 6, 6.0)
    assert max(exact.errors) < 1e-6
    calm, wild = (equiangular._noisy(p, 1e-2, 6, beta) for beta in (0.0, 6.0))
    assert max(calm.errors) < 0.1 and min(wild.errors) > 2 * max(calm.errors)


def test_a_layer_of_random_tokens_against_plain_loops() -> None:
    p = replace(long_context.QUICK, measured=(9,), starts=1)
    edge, r, n, d = 1.2, 0.5, 9, 5
    g = configurations.sphere(n + 1, d, p.seed)
    x = np.sqrt(r) * g[0] + np.sqrt(1 - r) * g[1:]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = Softmax(edge / (1 - r) * np.log(n)).weights(x) @ x
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    pairs = [y[i] @ y[j] for i in range(n) for j in range(i)]
    assert long_context._spread(p, d, edge).cosines[0] == pytest.approx(np.mean(pairs), abs=1e-12)
