"""Flows and maps against exact solutions: two tokens, equal angles, annealing, late times."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import cynosure as cy
from cynosure import configurations as cf
from cynosure.attention import Causal, Heads, Localmax, Sinkhorn, Softmax
from cynosure.dynamics import (
    AttentionFlow,
    EuclideanFlow,
    LeadingFlow,
    NoisySphere,
    PreNormFlow,
    RescaledFlow,
    Scheduled,
    ScheduledFlow,
    SphereFlow,
    UnnormalizedFlow,
    UnnormalizedSphereFlow,
    ValueAttention,
)
from cynosure.simulation.steppers import RK4, Adaptive, Euler

PAPER_V = np.array([[0.647, 0.819], [0.612, 0.633]])  # an example of arXiv 2305.05465


def unit(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


TWO_TOKENS = {
    1.0: 0.9483019578715,
    0.5: 0.1873767679086,
    0.3: 5.21195036056e-3,
    0.2: 4.98251158e-6,
}


@pytest.mark.parametrize("e", TWO_TOKENS)
def test_two_tokens_have_the_closed_form(e):
    """B25: tokens +-e on the line tend to +-y, y = e exp(-1/2 int_{e^2} (coth w - 1)/w dw)."""
    careful = Adaptive(rtol=1e-12, atol=1e-22)
    end = cy.simulate(RescaledFlow(), [[e], [-e]], times=[60.0], stepper=careful).z[-1]
    np.testing.assert_allclose(end[:, 0], [TWO_TOKENS[e], -TWO_TOKENS[e]], rtol=2e-9)


def test_two_tokens_in_the_plane_do_not_merge():
    """(1, +-e): the same y, up to the rounding of scores near 1 (the gaps are 2 y^2)."""
    careful = Adaptive(rtol=1e-12, atol=1e-20)
    for e, tol in ((1.0, 1e-9), (0.5, 1e-8), (0.3, 1e-6)):
        end = cy.simulate(RescaledFlow(), [[1, e], [1, -e]], times=[60.0], stepper=careful).z[-1]
        np.testing.assert_allclose(end[0, 1], TWO_TOKENS[e], rtol=tol)
        np.testing.assert_allclose(end[:, 0], 1, atol=1e-9)


def test_rescaled_tokens_reach_t_1000_and_end_in_hardmax():
    z = np.random.default_rng(0).uniform(-1, 1, size=(20, 2))
    tr = cy.simulate(RescaledFlow(), z, time=1000.0)
    assert np.isfinite(tr.z).all() and tr.t[-1] == 1000
    end = tr.z[-1]
    np.testing.assert_allclose(cy.Hardmax().pull(np.round(end, 10)), end, atol=1e-9)
    late = cy.simulate(RescaledFlow(), z, times=[40.0]).z[-1]
    np.testing.assert_allclose(late, end, atol=1e-9)
    norms = (end**2).sum(axis=1)
    np.testing.assert_allclose((end @ end.T).max(axis=1), norms, atol=1e-9)  # every z in S
    P = RescaledFlow().weights(end, 1000.0)
    np.testing.assert_allclose(P.sum(axis=1), 1)


@pytest.mark.many
def test_the_closed_form_is_what_stepping_on_would_give():
    z = np.random.default_rng(0).uniform(-1, 1, size=(20, 2))
    z[3] = z[7]  # copies share a leader
    for flow in (RescaledFlow(), RescaledFlow(V=2.0 * np.eye(2))):
        times = np.linspace(0, 30, 61)
        steps = cy.simulate(flow, z, times=times, stepper=RK4(0.02)).z
        known = [flow.closed_form(x, t) for x, t in zip(steps, times, strict=True)]
        first = next(k for k, form in enumerate(known) if form is not None)
        assert 4 < first < 50 and all(form is not None for form in known[first : first + 8])
        np.testing.assert_allclose(known[first](times[first:]), steps[first:], atol=1e-7)
        np.testing.assert_allclose(cy.simulate(flow, z, times=times).z, steps, atol=1e-5)
    assert RescaledFlow(V=PAPER_V).closed_form(z, 1e3) is None
    assert RescaledFlow(V=-np.eye(2)).closed_form(z, 1.0) is None
    assert AttentionFlow(Softmax(1e9)).closed_form(z, 1.0) is None
    tie = np.array([[1.0, 1], [1, -1], [-1, 0], [0.5, 0]])
    assert RescaledFlow().closed_form(tie, 1e3) is None
    assert AttentionFlow(cy.Hardmax()).closed_form(tie, 0.0) is None


@pytest.mark.parametrize(
    "V",
    [
        [[1.0, 1.0], [0.0, 1.0]],
        [[1.0, -2.0], [2.0, 1.0]],
        [[1.0, 0.0], [0.0, 0.2]],
        [[0.0, 1.0], [0.0, 0.0]],
        [[1e-3, 0.0], [0.0, 1e-3]],
    ],
    ids=["jordan", "complex", "diagonal", "nilpotent", "slow"],
)
def test_no_value_matrix_overflows(V):
    z = np.random.default_rng(1).uniform(-1, 1, size=(8, 2))
    for flow in (RescaledFlow(V=V), LeadingFlow(V=V)):
        for t in (1e3, 1e6, 1e12):
            assert np.isfinite(flow.velocity(z, t)).all()
    run = cy.simulate(LeadingFlow(V=V), z, times=[100.0], stepper=Adaptive(1e-6, 1e-9))
    assert np.isfinite(run.z).all()


@pytest.mark.parametrize(
    "V", [PAPER_V, [[1.0, 1.0], [0.0, 1.0]], [[0.5, -1.0], [1.0, 0.5]], -np.eye(2)]
)
def test_the_three_views_are_one_flow(V):
    """x, z = e^{-tV} x and y = e^{-l t} x, integrated separately."""
    rng = np.random.default_rng(2)
    Q, K = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    z = rng.normal(size=(6, 2)) * 0.4
    t = 1.7
    x = cy.simulate(EuclideanFlow(Q, K, V), z, times=[t]).z[-1]
    rescaled = cy.simulate(RescaledFlow(Q, K, V), z, times=[t]).z[-1]
    leading = cy.simulate(LeadingFlow(Q, K, V), z, times=[t]).z[-1]
    growth = np.exp(t * np.linalg.eigvals(np.array(V)).real.max())
    np.testing.assert_allclose(rescaled @ expm(t * np.array(V)).T, x, atol=1e-7)
    np.testing.assert_allclose(leading * growth, x, atol=1e-7)
    P = EuclideanFlow(Q, K, V).attention.weights(x)
    np.testing.assert_allclose(RescaledFlow(Q, K, V).weights(rescaled, t), P, atol=1e-6)
    np.testing.assert_allclose(LeadingFlow(Q, K, V).weights(leading, t), P, atol=1e-6)


def test_velocity_against_the_definition_in_plain_loops():
    rng = np.random.default_rng(4)
    Q, K, V = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.normal(size=(3, 3))
    x = rng.normal(size=(5, 3))
    for i, row in enumerate(EuclideanFlow(Q, K, V).velocity(x, 0.0)):
        w = [math.exp((Q @ x[i]) @ (K @ x[j])) for j in range(5)]
        expected = sum(w[j] * (V @ x[j]) for j in range(5)) / sum(w)
        np.testing.assert_allclose(row, expected, atol=1e-12)
    s = x / np.linalg.norm(x, axis=1, keepdims=True)
    A = rng.normal(size=(3, 3))
    for i, row in enumerate(UnnormalizedSphereFlow(0.7, A, V).velocity(s, 0.0)):
        y = V @ sum(math.exp(0.7 * (A @ s[i]) @ s[j]) * s[j] for j in range(5)) / 5
        np.testing.assert_allclose(row, y - (s[i] @ y) * s[i], atol=1e-13)


def equal_angles(n, r):
    """n unit vectors in R^n with <x_i, x_j> = r."""
    return np.linalg.cholesky((1 - r) * np.eye(n) + r * np.ones((n, n)))


@pytest.mark.parametrize(("n", "beta", "r0"), [(2, 0.0, 0.0), (5, 1.0, 0.1), (8, 3.0, -0.05)])
@pytest.mark.parametrize("normalised", [True, False], ids=["SA", "USA"])
def test_equal_angles_follow_their_scalar_equation(n, beta, r0, normalised):
    """B31: r' = 2 e^{br}(1-r)((n-1)r+1)/(e^b + (n-1)e^{br}); USA: 2/n e^{br}(1-r)((n-1)r+1)."""

    def scalar(t, r):
        top = 2 * np.exp(beta * r) * (1 - r) * ((n - 1) * r + 1)
        return top / ((np.exp(beta) + (n - 1) * np.exp(beta * r)) if normalised else n)

    times = np.linspace(0.1, 2.0, 5)
    r = solve_ivp(scalar, (0, 2), [r0], "DOP853", times, rtol=1e-12, atol=1e-13).y[0]
    flow = SphereFlow(Softmax(beta)) if normalised else UnnormalizedSphereFlow(beta)
    x = cy.simulate(flow, equal_angles(n, r0), times=times).z
    gram = x @ np.swapaxes(x, 1, 2)
    off = ~np.eye(n, dtype=bool)
    np.testing.assert_allclose(gram[:, off], np.repeat(r[:, None], off.sum(), 1), atol=1e-8)
    if n == 2:
        np.testing.assert_allclose(r, np.tanh(times), atol=1e-10)


@pytest.mark.parametrize(("n", "beta", "r0"), [(2, 0.0, 0.0), (5, 2.0, 0.1)])
def test_pre_norm_follows_its_two_scalar_equations_and_collapses_like_t_to_the_minus_2(n, beta, r0):
    """B34: pre-norm 1 - r ~ t^-2, post-norm (the sphere flow) e^-2t, from the same start."""
    from cynosure.theorems.normalisation import equiangular_directions
    from cynosure.theorems.sphere import equiangular

    times = np.array([0.0, 1.0, 10.0, 100.0, 1000.0])
    x = cy.simulate(PreNormFlow(Softmax(beta)), equal_angles(n, r0), times=times).z
    gap, length = equiangular_directions(PreNormFlow(Softmax(beta)), r0, 1.0, times, n)
    r = 1 - gap
    sizes = np.linalg.norm(x, axis=-1)
    np.testing.assert_allclose(sizes, np.repeat(length[:, None], n, 1), rtol=1e-8)
    unit_ = x / sizes[..., None]
    gram = unit_ @ np.swapaxes(unit_, 1, 2)
    off = ~np.eye(n, dtype=bool)
    np.testing.assert_allclose(gram[:, off], np.repeat(r[:, None], off.sum(), 1), atol=1e-7)
    slope = np.log((1 - r[3]) / (1 - r[4])) / np.log(times[4] / times[3])
    assert abs(slope - 2) < 0.05
    post = equiangular(r0, np.array([0.0, 6.0, 8.0]), n, beta)
    assert abs(np.log((1 - post[1]) / (1 - post[2])) / 2 - 2) < 0.05
    assert abs(length[4] - times[4]) < 0.05 * times[4]


def test_the_circle_is_the_angle_equation():
    """theta_i' = -(1/n) sum_j e^{b cos(ti - tj)} sin(ti - tj), Kuramoto for b = 0."""
    theta = np.random.default_rng(5).uniform(0, 2 * np.pi, 6)

    def angles(t, a):
        gap = a[:, None] - a
        return -(np.exp(2.0 * np.cos(gap)) * np.sin(gap)).mean(axis=1)

    end = solve_ivp(angles, (0, 1), theta, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    start = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    x = cy.simulate(UnnormalizedSphereFlow(2.0), start, times=[1.0]).z[-1]
    np.testing.assert_allclose(x, np.stack([np.cos(end), np.sin(end)], axis=1), atol=1e-8)


def test_causal_sphere_collapses_to_its_first_token():
    x = unit(np.random.default_rng(6), 6, 3)
    tr = cy.simulate(SphereFlow(Causal(Softmax(1.0))), x, time=60.0)
    np.testing.assert_allclose(tr.z[:, 0], np.broadcast_to(x[0], (101, 3)), atol=1e-14)
    np.testing.assert_allclose(tr.z[-1], np.broadcast_to(x[0], (6, 3)), atol=1e-6)


def test_discrete_euler_is_the_annealed_pure_attention_layer():
    """V = I: x^k / (1+dt)^k follows `PureAttention` with alpha = dt and beta_k = (1+dt)^{2k}."""
    dt, z = 0.1, np.random.default_rng(7).normal(size=(8, 3))
    x = cy.simulate(EuclideanFlow(), z, time=2.0, stepper=Euler(dt))
    layers = [cy.PureAttention(Softmax((1 + dt) ** (2 * k)), alpha=dt) for k in range(20)]
    annealed = cy.simulate(Scheduled(layers), z, layers=20)
    factor = (1 + dt) ** np.arange(21)
    np.testing.assert_allclose(x.z / factor[:, None, None], annealed.z, atol=1e-12)


def test_schedules_repeat_and_know_their_layer():
    z = np.random.default_rng(8).normal(size=(7, 2))
    short = Scheduled([cy.PureAttention(alpha=0.5), cy.PureAttention(alpha=2.0)])
    run = cy.simulate(short, z, layers=4).z
    by_hand = z
    for k in range(4):
        by_hand = cy.PureAttention(alpha=0.5 if k % 2 == 0 else 2.0).step(by_hand, k)
        np.testing.assert_array_equal(run[k + 1], by_hand)
    with pytest.raises(TypeError, match="LayerMaps"):
        Scheduled([])


@pytest.mark.parametrize("stepper", [RK4(0.03), Adaptive(1e-11, 1e-13)], ids=["rk4", "adaptive"])
def test_flows_take_turns(stepper):
    """Against SciPy, one solve for each stretch of constant weights; saved times fall anywhere."""
    from scipy.integrate import solve_ivp

    z = 0.7 * np.random.default_rng(9).normal(size=(6, 2))
    flows = [
        RescaledFlow(),
        RescaledFlow(V=[[0.5, 0.2], [0.0, 0.3]]),
        RescaledFlow(Q=[[2, 0], [0, 1]]),
    ]
    span, times = 0.2, np.array([0.0, 0.13, 0.2, 0.45, 0.7, 1.0])
    run = cy.simulate(ScheduledFlow(flows, span), z, times=times, stepper=stepper)
    y, found = z.ravel(), {0.0: z.ravel()}
    for k in range(5):
        begin, end, flow = k * span, (k + 1) * span, flows[k % 3]

        def velocity(t, y, flow=flow):
            return flow.velocity(y.reshape(6, 2), t).ravel()

        piece = solve_ivp(
            velocity, (begin, end), y, "DOP853", rtol=1e-12, atol=1e-14, dense_output=True
        )
        found |= {t: piece.sol(t) for t in times if begin < t <= end + 1e-12}
        y = piece.y[:, -1]
    expected = np.array([found[t].reshape(6, 2) for t in times])
    np.testing.assert_allclose(run.values, expected, atol=2e-7 if stepper == RK4(0.03) else 1e-9)
    whole = cy.simulate(ScheduledFlow(flows[:1], span), z, times=times, stepper=stepper)
    alone = cy.simulate(flows[0], z, times=times, stepper=stepper)
    np.testing.assert_allclose(whole.values, alone.values, atol=2e-7)


@pytest.mark.many
def test_flows_that_cannot_take_turns_are_refused():
    for flows in ([], [RescaledFlow(), SphereFlow()], [cy.PureAttention()], [ScheduledFlow()]):
        with pytest.raises(TypeError, match=r"of one kind|Type-check"):
            ScheduledFlow(flows)
    with pytest.raises(ValueError, match="span"):
        ScheduledFlow(span=0.0)
    grown = ScheduledFlow([EuclideanFlow(), EuclideanFlow()], 200.0)
    late = cy.simulate(grown, np.ones((3, 2)), times=[0.0, 100.0, 900.0], throw=False)
    assert late.status.code == "overflow" and late.t.tolist() == [0.0, 100.0]


@pytest.mark.parametrize("attention", [Softmax(2.0), Heads([Softmax(1.0), Softmax(3.0)])])
@pytest.mark.parametrize("normalised", [True, False])
def test_small_layers_are_the_flow(attention, normalised):
    z = np.random.default_rng(9).normal(size=(6, 2)) * 0.5
    layer = cy.PureAttention if normalised else cy.dynamics.UnnormalizedAttention
    flow = AttentionFlow(attention) if normalised else UnnormalizedFlow(attention)
    best = cy.simulate(flow, z, times=[1.0]).z[-1]
    steps = (16, 32, 64)
    errors = [
        np.abs(cy.simulate(layer(attention, alpha=1 / k), z, layers=k).z[-1] - best).max()
        for k in steps
    ]
    assert abs(np.polyfit(np.log(steps), np.log(errors), 1)[0] + 1) < 0.15


def test_cold_softmax_is_hardmax():
    z = np.random.default_rng(10).normal(size=(12, 3))
    hard = cy.PureAttention(alpha=0.5).step(z, 0)
    errors = [
        np.abs(cy.PureAttention(Softmax(b), alpha=0.5).step(z, 0) - hard).max()
        for b in (1e1, 1e2, 1e3, 1e6, 1e300)
    ]
    assert errors[0] > 1e-4 and errors[-2] < 1e-14 and errors[-1] < 1e-14
    assert errors[0] > errors[1] > errors[2]
    square = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.5, 0]])  # a tie stays a tie
    np.testing.assert_array_equal(Softmax(1e300).pull(square)[4], [1.0, 0.0])


def test_value_attention():
    z = np.random.default_rng(11).normal(size=(9, 2))
    same = cy.simulate(cy.PureAttention(alpha=2.0), z, layers=5).z
    np.testing.assert_allclose(
        cy.simulate(ValueAttention(V=2 * np.eye(2)), z, layers=5).z, same, atol=1e-12
    )
    np.testing.assert_allclose(
        cy.simulate(ValueAttention(), z, layers=3).z,
        cy.simulate(cy.PureAttention(alpha=1), z, layers=3).z,
        atol=1e-12,
    )
    V = np.diag([3 / 2, 7 / 3])
    pulled, moved = cy.Hardmax().pull(z), ValueAttention(V=V).step(z, 0)
    np.testing.assert_allclose(moved, z + (pulled - z) * [0.6, 0.7], atol=1e-15)
    left = []
    for seed in range(20):
        z = cf.gaussian(12, 2, seed=seed)
        body = cy.hull(z)
        left.append(not body.contains(ValueAttention(V=V).step(z, 0), 1e-12).all())
    assert any(left)  # docs/mathematics.md A6: the hull need not shrink
    with pytest.raises(ValueError, match="invertible"):
        ValueAttention(V=-np.eye(2))


def test_noise_is_common_seeded_and_of_the_right_size():
    x = unit(np.random.default_rng(12), 4, 3)
    x[1] = x[0]
    quiet = cy.simulate(NoisySphere(sigma=0.0, dt=0.05), x, layers=20).z[-1]
    euler = cy.simulate(SphereFlow(), x, time=1.0, stepper=Euler(0.05)).z[-1]
    np.testing.assert_allclose(quiet, euler, atol=2e-2)  # both of first order
    run = cy.simulate(NoisySphere(sigma=1.0, seed=3), x, layers=50).z
    np.testing.assert_array_equal(run[:, 0], run[:, 1])
    np.testing.assert_array_equal(run, cy.simulate(NoisySphere(sigma=1.0, seed=3), x, layers=50).z)
    assert (run[1] != cy.simulate(NoisySphere(sigma=1.0, seed=4), x, layers=1).z[1]).any()
    noise = NoisySphere(Softmax(0.0), sigma=1.0, dt=1e-4)
    steps = np.stack([noise.step(x[:1], k)[0] - x[0] for k in range(4000)])
    assert abs((steps**2).sum(axis=1).mean() / (2 * 1e-4) - 1) < 0.1  # sigma^2 dt (d - 1)


@pytest.mark.many
def test_two_tokens_in_common_noise_keep_their_law():
    """Without drift the angle's law does not depend on dt: the Stratonovich limit is reached."""
    x = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])

    class Nothing(cy.attention.Attention):
        def weights(self, z, *, mask=None):
            raise NotImplementedError

        def pull(self, z, *, mask=None):
            return 0 * z

    means = []
    for dt in (0.05, 0.0125):
        cosines = []
        for seed in range(300):
            noisy = NoisySphere(Nothing(), sigma=0.7, dt=dt, seed=seed)
            end = cy.simulate(noisy, x, layers=round(0.5 / dt), save_every=100).z[-1]
            cosines.append((end[0] @ end[1]) ** 2)
        means.append(np.mean(cosines))
    assert abs(means[0] - means[1]) < 0.05 and means[0] > 0.05


def test_any_attention_in_the_sphere_flow():
    x = unit(np.random.default_rng(13), 8, 3)
    for attention in (Sinkhorn(2.0), Localmax(0.5), Heads([Softmax(1.0), cy.Hardmax()])):
        run = cy.simulate(SphereFlow(attention), x, time=1.0, stepper=RK4(0.05))
        np.testing.assert_allclose(np.linalg.norm(run.z, axis=-1), 1, atol=1e-14)
        assert run.status.code == "done"


def test_hardmax_flow_of_frozen_followers():
    """z_i = l + e^{-t}(z_i^0 - l) once the pattern is frozen; the adaptive stepper finds it."""
    z = np.array([[2.0, 0.0], [0.0, 2.0], [0.9, 0.3], [-1.5, -1.5]])
    end = cy.simulate(AttentionFlow(cy.Hardmax()), z, times=[2.5]).z[-1]
    np.testing.assert_allclose(end[2], z[0] + np.exp(-2.5) * (z[2] - z[0]), atol=1e-8)
    np.testing.assert_array_equal(end[[0, 1, 3]], z[[0, 1, 3]])


def test_minus_identity_brings_all_tokens_to_zero():
    """B28: |x_i(t)| <= max(|x_i(0)|, sqrt(2n)), P -> 1/n, slowly."""
    x = np.random.default_rng(14).normal(size=(5, 2))
    tr = cy.simulate(EuclideanFlow(V=-np.eye(2)), x, times=[0, 10.0, 100.0, 1000.0])
    radius = np.linalg.norm(tr.z, axis=-1).max(axis=-1)
    assert (np.diff(radius) < 0).all() and radius[-1] < 0.1
    assert np.abs(tr.dynamics.attention.weights(tr.z[-1]) - 0.2).max() < 0.01


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EuclideanFlow(Q=np.ones((2, 3))), "square"),
        (lambda: EuclideanFlow(Q=np.ones((2, 3)), K=np.ones((3, 3))), "same shape"),
        (lambda: EuclideanFlow(Q=np.ones(3)), "finite matrix"),
        (lambda: RescaledFlow(Q=np.eye(2), K=np.eye(2), V=np.eye(3)), "same R"),
        (lambda: RescaledFlow(V=np.ones((2, 3))), "square"),
        (lambda: RescaledFlow(V=[[np.nan]]), "NaN"),
        (lambda: NoisySphere(dt=0.0), "dt"),
        (lambda: NoisySphere(sigma=-1.0), "sigma"),
        (lambda: UnnormalizedSphereFlow(beta=float("inf")), "finite"),
        (lambda: EuclideanFlow(V=np.eye(3)).velocity(np.ones((2, 2)), 0.0), "d = 2"),
    ],
)
def test_bad_weights(make, message):
    with pytest.raises(ValueError, match=message):
        make()
