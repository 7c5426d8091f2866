"""Steppers: fitted orders, exactness where theory gives it, hull, gradients, statuses."""

from itertools import pairwise

import numpy as np
import pytest

import conformance
import cynosure as cy
from cynosure.analysis.polytope import hull
from cynosure.attention import Causal, Softmax
from cynosure.dynamics import (
    AttentionFlow,
    EuclideanFlow,
    Flow,
    RescaledFlow,
    SphereFlow,
    UnnormalizedSphereFlow,
)
from cynosure.simulation.steppers import RK4, STEPPERS, Adaptive, Euler, ExponentialEuler, FixedStep

PAPER_V = np.array([[0.647, 0.819], [0.612, 0.633]])


class Frozen(FixedStep):
    """The published "RK4": attention frozen over the step. It must be found out as order 1."""

    def __init__(self, dt):
        self.dt = dt

    def advance(self, flow, z, t, dt, mask):
        k = flow.velocity(z, t, mask=mask)
        return z + (dt / 6) * (k + 2 * k + 2 * k + k)


def fitted(flow, stepper, z, steps=(0.1, 0.05, 0.025), time=1.0):
    best = cy.simulate(flow, z, times=[time], stepper=Adaptive(1e-13, 1e-14)).z[-1]
    errors = [
        np.abs(cy.simulate(flow, z, time=time, stepper=stepper(dt)).z[-1] - best).max()
        for dt in steps
    ]
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


@pytest.mark.parametrize(
    "flow",
    [
        EuclideanFlow(V=PAPER_V),
        RescaledFlow(V=PAPER_V),
        RescaledFlow(Q=[[1.0, 0.2], [0.0, 1.0]], K=[[1.0, 0.0], [0.3, 1.0]], V=-np.eye(2)),
        SphereFlow(Causal(Softmax(2.0)), V=[[1.0, 0.5], [0.0, 1.0]]),
        AttentionFlow(Softmax(3.0)),
    ],
    ids=["euclidean", "rescaled", "negative", "causal sphere", "attention"],
)
def test_orders_with_weights(flow):
    z = np.random.default_rng(3).normal(size=(7, 2)) * 0.6
    assert abs(fitted(flow, Euler, z) - 1) < 0.3
    assert abs(fitted(flow, RK4, z) - 4) < 0.4
    assert abs(fitted(flow, Frozen, z) - 1) < 0.3


def test_exponential_euler_is_exact_when_the_target_is_frozen_and_keeps_the_hull():
    z = np.array([[2.0, 0.0], [0.0, 2.0], [0.5, 0.4]])
    flow = AttentionFlow(cy.Hardmax())
    end = cy.simulate(flow, z, time=3.0, stepper=ExponentialEuler(1.5)).z[-1]
    np.testing.assert_allclose(end[2], z[0] + np.exp(-3.0) * (z[2] - z[0]), atol=1e-15)
    tokens = np.random.default_rng(0).normal(size=(12, 2))
    run = cy.simulate(RescaledFlow(), tokens, time=6.0, stepper=ExponentialEuler(2.0)).z
    for before, after in pairwise(run):
        assert hull(before).contains(after, 1e-12).all()
    wild = cy.simulate(RescaledFlow(), tokens, time=6.0, stepper=Euler(2.0)).z
    kept = [hull(a).contains(b, 1e-12).all() for a, b in pairwise(wild)]
    assert not all(kept)  # the test can fail
    with pytest.raises(TypeError, match="RK4"):
        cy.simulate(SphereFlow(), tokens, time=1.0, stepper=ExponentialEuler(0.1))


def test_exponential_euler_with_a_matrix_rate():
    """One follower of one frozen leader: z - l decays by e^{-tV} exactly."""
    from scipy.linalg import expm

    V = np.array([[1.0, 0.5], [0.0, 0.3]])
    flow = RescaledFlow(V=V)
    z = np.array([[40.0, 0.0], [1.0, 0.5]])  # scores so far apart that attention is one-hot
    end = cy.simulate(flow, z, time=2.0, stepper=ExponentialEuler(0.5)).z[-1]
    np.testing.assert_allclose(end[1] - z[0], expm(-2 * V) @ (z[1] - z[0]), atol=1e-12)


def test_default_grids_and_given_times():
    z = conformance.tokens()
    assert cy.simulate(AttentionFlow(), z, time=2).t.tolist() == np.linspace(0, 2, 101).tolist()
    fixed = cy.simulate(AttentionFlow(), z, time=1.0, stepper=RK4(0.3))
    np.testing.assert_allclose(fixed.t, [0, 0.3, 0.6, 0.9, 1.0])
    thinned = cy.simulate(AttentionFlow(), z, time=1.0, stepper=RK4(0.3), save_every=2)
    np.testing.assert_allclose(thinned.t, [0, 0.6, 1.0])
    np.testing.assert_allclose(thinned.at(1.0), fixed.at(1.0), atol=1e-14)
    for stepper in (None, RK4(0.01)):
        some = cy.simulate(AttentionFlow(), z, times=[0.25, 1.5], stepper=stepper)
        assert some.t.tolist() == [0.25, 1.5] and some.z.shape == (2, 9, 3)
        full = cy.simulate(AttentionFlow(), z, time=1.5, stepper=stepper)
        np.testing.assert_allclose(some.z[-1], full.z[-1], atol=1e-8)
    still = cy.simulate(AttentionFlow(), z, time=0)
    assert still.t.tolist() == [0.0] and (still.z[0] == z).all()


def test_lsoda_agrees_with_dop853():
    z = conformance.tokens() * 0.5
    flow = RescaledFlow()
    a = cy.simulate(flow, z, times=[3.0]).z
    b = cy.simulate(flow, z, times=[3.0], stepper=Adaptive(1e-11, 1e-13, "LSODA")).z
    np.testing.assert_allclose(a, b, atol=1e-8)


def test_dense_output_is_as_good_as_landing_on_the_time():
    z = conformance.tokens() * 0.5
    for t in (0.37, 1.13):
        dense = cy.simulate(RescaledFlow(), z, times=[t, 3.0]).z[0]
        landed = cy.simulate(RescaledFlow(), z, times=[t]).z[0]
        np.testing.assert_allclose(dense, landed, atol=1e-8)


def test_gradients_of_fixed_steps_against_differences():
    import torch

    flow, z = EuclideanFlow(V=PAPER_V), np.random.default_rng(1).normal(size=(4, 2)) * 0.5
    leaf = torch.tensor(z, requires_grad=True)
    end = cy.simulate(flow, leaf, time=0.5, stepper=RK4(0.05)).z[-1]
    (end**2).sum().backward()

    def value(x):
        return (cy.simulate(flow, x, time=0.5, stepper=RK4(0.05)).z[-1] ** 2).sum()

    for index in np.ndindex(z.shape):
        up, down = z.copy(), z.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        numeric = (value(up) - value(down)) / 2e-6
        assert abs(numeric - leaf.grad[index].item()) < 1e-7 * (1 + abs(numeric))


def test_adaptive_gradients_need_torchdiffeq_or_say_so():
    import torch

    leaf = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    mask = np.array([True, True, True, False])
    try:
        import torchdiffeq  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="torchdiffeq"):
            cy.simulate(SphereFlow(), leaf, time=1.0, stepper=Adaptive())
        return
    run = cy.simulate(SphereFlow(), leaf, time=1.0, mask=mask, stepper=Adaptive())
    plain = cy.simulate(SphereFlow(), leaf.detach(), time=1.0, mask=mask)
    np.testing.assert_allclose(run.values, plain.values, atol=1e-7)
    run.z[-1, 0, 0].backward()
    assert torch.isfinite(leaf.grad).all() and bool((leaf.grad[:3] != 0).any())


class Blowup(Flow):
    """z' = z^2 reaches infinity at t = 1/z_0."""

    def velocity(self, z, t, *, mask=None):
        return z * z


@pytest.mark.parametrize("stepper", [Adaptive(), RK4(0.01), Euler(0.01)])
def test_a_run_that_leaves_the_floats_says_where(stepper):
    z = np.ones((1, 1))
    run = cy.simulate(Blowup(), z, time=2.0, stepper=stepper, throw=False)
    assert run.status.code in ("overflow", "stiff") and run.status.advice
    assert len(run.t) == len(run.z) and run.t[-1] <= 1.2 and np.isfinite(run.z).all()
    with pytest.raises(ArithmeticError):
        cy.simulate(Blowup(), z, time=2.0, stepper=stepper)


def test_overflow_advice_names_the_other_variables():
    z = conformance.tokens()
    rough = Adaptive(1e-3, 1e-3)
    with pytest.raises(OverflowError, match="RescaledFlow"):
        cy.simulate(EuclideanFlow(), z, time=1000.0, stepper=rough)
    with pytest.raises(OverflowError, match="LeadingFlow"):
        cy.simulate(RescaledFlow(V=np.diag([1.0, -2.0, 0.5])), z, time=1000.0, stepper=rough)


def test_sphere_starts_are_put_on_the_sphere_and_zero_is_refused():
    z = conformance.tokens()
    run = cy.simulate(SphereFlow(), z, time=1.0)
    assert "put on the sphere" in str(run.status)
    np.testing.assert_allclose(np.linalg.norm(run.z, axis=-1), 1, atol=1e-15)
    again = cy.simulate(SphereFlow(), run.z[0], time=1.0)
    assert again.status.notes == () and np.array_equal(again.z[0], run.z[0])
    z[4] = 0
    with pytest.raises(ValueError, match="zero token"):
        cy.simulate(UnnormalizedSphereFlow(), z, time=1.0)
    mask = np.ones(9, bool)
    mask[4] = False
    assert (cy.simulate(UnnormalizedSphereFlow(), z, time=1.0, mask=mask).z[:, 4] == 0).all()


def test_progress_is_called_with_the_time():
    for stepper in (RK4(0.1), Adaptive()):
        seen = []
        cy.simulate(
            AttentionFlow(), conformance.tokens(), time=1, stepper=stepper, progress=seen.append
        )
        assert abs(seen[-1] - 1) < 1e-12 and seen == sorted(seen)


@pytest.mark.parametrize(
    ("dynamics", "options", "error", "message"),
    [
        (AttentionFlow(), {}, ValueError, "time"),
        (AttentionFlow(), {"layers": 3}, ValueError, "not layers"),
        (AttentionFlow(), {"time": 1, "times": [1.0]}, ValueError, "either"),
        (AttentionFlow(), {"time": -1}, ValueError, "time"),
        (AttentionFlow(), {"time": float("inf")}, ValueError, "time"),
        (AttentionFlow(), {"times": [1.0, 0.5]}, ValueError, "increasing"),
        (AttentionFlow(), {"times": [-0.5, 0.5]}, ValueError, "increasing"),
        (AttentionFlow(), {"times": []}, ValueError, "increasing"),
        (cy.PureAttention(), {}, ValueError, "layers"),
        (cy.PureAttention(), {"layers": 1, "time": 1}, ValueError, "layers"),
        (cy.PureAttention(), {"layers": 1, "stepper": RK4()}, ValueError, "stepper"),
    ],
)
def test_bad_clocks(dynamics, options, error, message):
    with pytest.raises(error, match=message):
        cy.simulate(dynamics, np.eye(3), **options)


class Relaxing(Flow):
    """z' = -rate (z - cos t), d = 1: the solution is near (rate^2 cos t + rate sin t)/(1 + rate^2).

    Trap: explicit steps are bounded by 6/rate, though the solution is as smooth as a cosine.
    """

    def __init__(self, rate):
        self.rate = rate

    def velocity(self, z, t, *, mask=None):
        return -self.rate * (z - np.cos(t))


def test_a_stiff_flow_is_handed_to_lsoda():
    rate, z = 1e5, np.ones((3, 1))
    run = cy.simulate(Relaxing(rate), z, time=10.0)
    exact = (rate**2 * np.cos(run.t) + rate * np.sin(run.t)) / (1 + rate**2)
    np.testing.assert_allclose(run.z[1:, 0, 0], exact[1:], atol=1e-7)
    assert run.status.code == "done" and "LSODA took over" in str(run.status)
    easy = cy.simulate(Relaxing(3.0), z, time=10.0)  # fast, but worth no change
    assert easy.status.notes == ()


def test_a_stiff_flow_of_many_tokens_stops_in_time_and_says_why():
    """Too many coordinates for a dense Jacobian: what is saved so far, and advice."""
    z, seen = np.ones((700, 1)), []
    run = cy.simulate(Relaxing(1e6), z, time=10.0, throw=False, progress=seen.append)
    assert run.status.code == "stiff" and "unstable" in str(run.status)
    assert "RK4" in run.status.advice and len(run.t) == len(run.z) and len(seen) < 500
    with pytest.raises(ArithmeticError, match="RK4"):
        cy.simulate(Relaxing(1e6), z, time=10.0)


@pytest.mark.parametrize("method", ["DOP853", "LSODA"])
def test_most_steps_bounds_a_run(method):
    few = Adaptive(1e-6, 1e-9, method, most_steps=30)
    run = cy.simulate(Relaxing(1e5), np.ones((1, 1)), time=10.0, stepper=few, throw=False)
    said = {"DOP853": "after 20 steps", "LSODA": "after 30 steps"}[method]  # the first sees it come
    assert run.status.code == "stiff" and said in run.status.message
    assert len(run.t) == len(run.z) >= 1


def test_a_batch_keeps_what_every_configuration_reached():
    class Some(Flow):
        """Only tokens far out are stiff."""

        def velocity(self, z, t, *, mask=None):
            return np.where(np.abs(z).max() > 5, -1e6, -1.0) * (z - 10 * np.sign(z))

    z = np.stack([np.ones((700, 1)), 9 * np.ones((700, 1))])
    run = cy.simulate(Some(), z, time=1.0, throw=False)
    assert run.status.code == "stiff" and run.z.shape[1:] == (2, 700, 1) and len(run.t) < 101


def test_bad_steppers():
    for kind in (Euler, RK4, ExponentialEuler):
        with pytest.raises(ValueError, match="dt"):
            kind(0.0)
    with pytest.raises(ValueError, match="method"):
        Adaptive(method="RK45")
    with pytest.raises(ValueError, match="rtol"):
        Adaptive(rtol=-1.0)
    with pytest.raises(ValueError, match="most_steps"):
        Adaptive(most_steps=0)
    assert all(kind() for kind in STEPPERS.values())
