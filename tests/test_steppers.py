"""Steppers: fitted orders, exactness where theory gives it, hull, gradients, statuses."""

import numpy as np
import pytest

import conformance
import cynosure as cy
from cynosure.attention import Causal, Softmax
from cynosure.dynamics import (
    AttentionFlow,
    EuclideanFlow,
    Flow,
    RescaledFlow,
    SphereFlow,
    UnnormalizedSphereFlow,
)
from cynosure.simulation.steppers import RK4, STEPPERS, Adaptive, Euler, FixedStep

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


def test_adaptive_steps_carry_no_gradient_and_say_so():
    import torch

    leaf = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="RK4"):
        cy.simulate(SphereFlow(), leaf, time=1.0, stepper=Adaptive())


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


@pytest.mark.many
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
    for kind in (Euler, RK4):
        with pytest.raises(ValueError, match="dt"):
            kind(0.0)
    with pytest.raises(ValueError, match="method"):
        Adaptive(method="RK45")
    with pytest.raises(ValueError, match="rtol"):
        Adaptive(rtol=-1.0)
    with pytest.raises(ValueError, match="most_steps"):
        Adaptive(most_steps=0)
    assert all(kind() for kind in STEPPERS.values())


# --- every run ends ------------------------------------------------------------------------------


def test_a_first_velocity_that_is_not_finite_is_refused():
    z = conformance.tokens(4, 2)
    flow = UnnormalizedSphereFlow(1000.0)
    with pytest.raises(OverflowError, match=r"velocity .* at t = 0 is not finite.*smaller beta"):
        cy.simulate(flow, z, time=1.0, stepper=Adaptive())
    run = cy.simulate(flow, z, time=1.0, stepper=Adaptive(), throw=False)
    assert run.status.failed and len(run.t) == len(run.z) and np.isfinite(run.values).all()
    repr(run)  # also of a run without a state


class Poisoned(Flow):
    """Well until t = 1/2, then NaN."""

    def velocity(self, z, t, *, mask=None):
        return -z if t < 0.5 else np.nan * z


@pytest.mark.parametrize("method", ["DOP853", "LSODA", "auto"])
def test_a_velocity_that_stops_being_finite_ends_the_run_there(method):
    run = cy.simulate(
        Poisoned(), np.ones((2, 1)), time=1.0, stepper=Adaptive(method=method), throw=False
    )
    assert run.status.failed and 0.4 < run.t[-1] <= 0.5
    np.testing.assert_allclose(run.z[:, 0, 0], np.exp(-run.t), atol=1e-7)


def test_tokens_of_1e160_flow_as_those_of_1():
    """Scores of 1e320 are no floats; attention is the hardmax they say."""
    z = conformance.tokens(5, 2)
    far = cy.simulate(EuclideanFlow(), 2.0**530 * z, time=1.0).z
    near = cy.simulate(cy.dynamics.UnnormalizedFlow(Softmax(1e300)), z, time=1.0).z
    np.testing.assert_allclose(far / 2.0**530, near, rtol=1e-7)


def random_weights(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, 2, 2)), rng.normal(size=(6, 2))


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_rescaled_tokens_that_drown_say_so(seed):
    """An eigenvalue of negative real part: relative to it the leading part has no digits left."""
    (Q, K, V), z = random_weights(seed)
    assert np.linalg.eigvals(V).real.min() < -1
    seen = []
    run = cy.simulate(RescaledFlow(Q, K, V), z, time=100.0, throw=False, progress=seen.append)
    assert run.status.code == "overflow" and "lost in the rounding" in run.status.message
    assert "LeadingFlow" in run.status.advice and run.t[-1] > 5 and len(seen) < 500
    assert RescaledFlow(Q, K, V).drowned(run.z[-1], run.t[-1], 1e-8)


def both_signs(d, jordan=False):
    """V with eigenvalues from -2.5 to 1, the same in a turned basis, the basis, two starts."""
    rng = np.random.default_rng(d)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    V = np.diag(np.linspace(-2.5, 1.0, d))
    if jordan:
        V[-2:, -2:] = [[1.0, 0.0], [1.0, 1.0]]
    return V, basis @ V @ basis.T, basis, rng.normal(size=(2, 6, d))


@pytest.mark.parametrize(
    "stepper",
    [
        cy.simulation.RK4(0.05),
        cy.simulation.Euler(0.05),
        None,
    ],
)
def test_every_stepper_ends_where_attention_can_read_nothing(stepper):
    """In coordinates that do not mix nothing is lost: what is saved agrees with the run there."""
    plain, V, basis, batch = both_signs(3)
    times = np.arange(0.0, 15.5, 0.5)
    run = cy.simulate(RescaledFlow(V=V), batch, times=times, stepper=stepper, throw=False)
    assert run.status.failed and "LeadingFlow" in run.status.advice and 6 < run.t[-1] < 14
    same = {"times": run.t, "stepper": stepper, "throw": False}
    read = (cy.simulate(RescaledFlow(V=plain), batch @ basis, **same).z)[..., -1]
    seen = (run.z @ basis)[: len(read), ..., -1]
    assert len(read) > 10 and np.abs(read - seen).max() < 1e-3 * np.abs(read).max()
    with pytest.raises(ArithmeticError, match="LeadingFlow"):
        cy.simulate(RescaledFlow(V=V), batch, times=times, stepper=stepper)


def test_a_jordan_block_does_not_hide_what_is_lost():
    _, V, _, batch = both_signs(3, jordan=True)
    assert RescaledFlow(V=V)._modes is None
    run = cy.simulate(
        RescaledFlow(V=V), batch, time=15.0, stepper=cy.simulation.RK4(0.05), throw=False
    )
    assert run.status.code == "overflow" and 6 < run.t[-1] < 14


def test_advice_for_wide_tokens_is_a_flow_that_reaches_the_end():
    _, V, _, batch = both_signs(24)
    run = cy.simulate(RescaledFlow(V=V), batch[0], time=15.0, throw=False)
    assert run.status.failed and "LeadingFlow" in run.status.advice
    assert "RK4" not in run.status.advice
    assert cy.simulate(cy.dynamics.LeadingFlow(V=V), batch[0], time=12.0).status.code == "done"


def test_advice_does_not_speak_of_eigenvalues_that_are_not_there():
    assert "negative" not in RescaledFlow(V=np.eye(2)).advice
    assert "RK4" in RescaledFlow().advice_if_stiff


def test_coordinates_that_do_not_mix_do_not_drown():
    flow = RescaledFlow(V=np.diag([1.0, -0.5]))
    run = cy.simulate(flow, 0.5 * conformance.tokens(5, 2), time=30.0)
    assert run.status.code == "done" and np.abs(run.z[-1]).max() > 1e5
    assert not flow.drowned(run.z[-1], 30.0, 1e-9)


class Sliding(Flow):
    """z' = -sign(z) + 1/2: tokens slide along the jump at 0, where no step is short enough."""

    def velocity(self, z, t, *, mask=None):
        return 0.5 - np.sign(z)


def test_a_token_that_slides_along_a_jump_is_given_up_soon():
    seen = []
    run = cy.simulate(
        Sliding(), 0.3 * np.ones((1, 1)), time=10.0, throw=False, progress=seen.append
    )
    assert run.status.code == "stiff" and "RK4" in run.status.advice
    assert len(seen) < 2000 and 0.5 < run.t[-1] <= 0.7


def test_fixed_steps_are_counted_before_they_are_taken():
    z = np.ones((1, 1))
    with pytest.raises(ValueError, match="times="):
        cy.simulate(AttentionFlow(), z, time=1e300, stepper=RK4(0.1))
    with pytest.raises(ValueError, match="larger dt"):
        cy.simulate(AttentionFlow(), z, times=[1e300], stepper=RK4(0.1))
    with pytest.raises(ValueError, match="save_every"):
        cy.simulate(cy.PureAttention(Softmax()), z, layers=10**15)


class Slow(Flow):
    """z' = -z, which lets the clock of `ticking` run on by one second a velocity."""

    def __init__(self, clock):
        self.clock = clock

    def velocity(self, z, t, *, mask=None):
        self.clock[0] += 1.0
        return -z


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("cynosure._deadline.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("stepper", [Euler(0.01), RK4(0.01), Adaptive(), Adaptive(method="LSODA")])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 2)])
def test_a_deadline_ends_a_flow_with_what_it_has(stepper, shape, clock):
    z = np.random.default_rng(0).normal(size=shape)
    run = cy.simulate(Slow(clock), z, time=50.0, stepper=stepper, deadline=100.0)
    assert run.status.code == "deadline" and not run.status.failed and run.status.early
    assert clock[0] <= 110 and len(run.t) == len(run.z) and 0 < run.t[-1] < 50
    assert f"t = {run.t[-1]:g}" in run.status.message
    error = 1e-2 if isinstance(stepper, Euler) else 1e-6
    decay = np.exp(-run.t).reshape(-1, *[1] * len(shape))
    np.testing.assert_allclose(run.z, decay * z, atol=error)  # the last state as well
    whole = cy.simulate(Slow(clock), z, time=1.0, stepper=RK4(0.1), deadline=1e6)
    assert whole.status.code == "done"


def test_a_deadline_before_the_first_step_leaves_the_start(clock):
    z = np.ones((2, 2))

    class Late(Slow):
        def retract(self, z):
            self.clock[0] += 100
            return z

    for stepper in (RK4(0.1), Adaptive()):
        run = cy.simulate(Late(clock), z, times=[5.0], stepper=stepper, deadline=50.0)
        assert run.status.code == "deadline" and run.t[0] >= 0 and len(run.t) == len(run.z) == 1


def test_a_deadline_between_flows_that_take_turns(clock):
    flows = cy.dynamics.ScheduledFlow([Slow(clock), Slow(clock)], span=0.5)
    for stepper in (RK4(0.05), Adaptive()):
        run = cy.simulate(flows, np.ones((1, 1)), times=[0.1, 20.0], stepper=stepper, deadline=150)
        assert run.status.code == "deadline" and run.t[0] == 0.1 and len(run.t) == 2
        np.testing.assert_allclose(run.z[:, 0, 0], np.exp(-run.t), atol=1e-6)
        assert (np.diff(run.t) > 0).all()


def test_a_deadline_ends_layers_with_the_last_one(clock, tmp_path):
    class Ticking(cy.dynamics.LayerMap):
        def step(self, z, k, *, mask=None):
            clock[0] += 1.0
            return z + 1

    run = cy.simulate(Ticking(), np.zeros((2, 2)), layers=100, save_every=10, deadline=25.5)
    assert run.t.tolist() == [0, 10, 20, 26] and run.z[:, 0, 0].tolist() == [0, 10, 20, 26]
    assert run.status.code == "deadline" and "layer 26" in run.status.message
    path = run.save(tmp_path / "run.npz")
    with pytest.warns(UserWarning, match="Ticking"):  # a class inside a function is not stored
        again = cy.load(path)
    assert again.status == run.status and "deadline" in repr(again)
    exact = cy.simulate(Ticking(), np.zeros((2, 2)), layers=100, save_every=10, deadline=19.5)
    assert exact.t.tolist() == [0, 10, 20]


def test_a_deadline_is_a_time():
    for seconds in (0, -1.0, float("nan"), "1"):
        with pytest.raises((ValueError, TypeError), match="deadline"):
            cy.simulate(cy.PureAttention(), np.eye(2), layers=1, deadline=seconds)


# --- sphere starts, and the published scripts ----------------------------------------------------


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e200, 1.7e308])
@pytest.mark.parametrize("flow", [SphereFlow(), UnnormalizedSphereFlow()])
def test_starts_of_any_length_are_put_on_the_sphere(size, flow):
    signs = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.0]])
    run = cy.simulate(flow, size * signs, time=1.0)
    np.testing.assert_allclose(np.linalg.norm(run.z, axis=-1), 1, atol=1e-15)
    np.testing.assert_allclose(run.z, cy.simulate(flow, signs, time=1.0).z, atol=1e-12)


def test_the_published_sphere_scripts_are_the_noisy_sphere_without_noise():
    """They normalise x + dt P x, not the tangential step: our Euler differs at second order."""
    rng, beta = np.random.default_rng(0), 3.0
    x = rng.normal(size=(6, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)

    def script(z, dt, steps):  # as published, line by line
        for _ in range(steps):
            attention = np.exp(beta * z @ z.T)
            attention /= attention.sum(axis=1, keepdims=True)
            z = z + dt * attention @ z
            z = z / np.linalg.norm(z, axis=1, keepdims=True)
        return z

    gaps = []
    for dt in (0.1, 0.05):
        published = script(x, dt, 7)
        ours = cy.simulate(cy.dynamics.NoisySphere(Softmax(beta), sigma=0.0, dt=dt), x, layers=7)
        np.testing.assert_allclose(ours.z[-1], published, atol=1e-14)
        one = cy.simulate(SphereFlow(Softmax(beta)), x, times=[dt], stepper=Euler(dt)).z[-1]
        gaps.append(np.abs(one - script(x, dt, 1)).max())
    assert gaps[1] > 1e-5 and 3.5 < gaps[0] / gaps[1] < 4.5
