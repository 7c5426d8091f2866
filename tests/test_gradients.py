"""Gradients with respect to the start and to parameters, against differences; or a refusal."""

import numpy as np
import pytest
import torch

import conformance
import cynosure as cy
from cynosure.attention.rules import _finite
from cynosure.simulation.steppers import RK4

Z = 0.7 * np.random.default_rng(0).normal(size=(5, 2))
M = np.array([[1.0, 0.3], [-0.2, 0.8]])
LAYERS, TIME = {"layers": 3}, {"time": 0.3, "stepper": RK4(0.1)}


def differences(f, x, h=1e-6):
    """The gradient of f at x by central differences."""
    out = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += h
        down[index] -= h
        out[index] = (f(up) - f(down)) / (2 * h)
    return out


def value(dynamics, z, how):
    """A number that depends on every coordinate of every saved state."""
    run = cy.simulate(dynamics, z, **how).z
    weights = np.cos(np.arange(int(np.prod(run.shape)))).reshape(run.shape)
    if isinstance(run, torch.Tensor):
        return (run**2 * torch.as_tensor(weights)).sum()
    return float((run**2 * weights).sum())


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (lambda A: cy.PureAttention(cy.Softmax(2.0, A)), LAYERS),
        (lambda A: cy.PureAttention(cy.attention.Sinkhorn(1.0, A)), LAYERS),
        (lambda A: cy.PureAttention(cy.attention.Causal(cy.Softmax(1.0, A))), LAYERS),
        (
            lambda A: cy.PureAttention(
                cy.attention.Heads([cy.Softmax(), cy.Softmax(2.0)], [A, None])
            ),
            LAYERS,
        ),
        (lambda A: cy.dynamics.FeedForward(A, None, 0.5), LAYERS),
        (lambda A: cy.dynamics.FeedForward(None, A, 0.5), LAYERS),
        (
            lambda A: cy.dynamics.Scheduled(
                [cy.PureAttention(cy.Softmax(1.0, A)), cy.dynamics.FeedForward()]
            ),
            LAYERS,
        ),
        (lambda A: cy.dynamics.AttentionFlow(cy.Softmax(1.0, A)), TIME),
        (lambda A: cy.SphereFlow(cy.Softmax(1.0, A)), TIME),
        (lambda A: cy.SphereFlow(V=A), TIME),
        (lambda A: cy.dynamics.PreNormFlow(V=A), TIME),
        (lambda A: cy.dynamics.UnnormalizedSphereFlow(1.0, A), TIME),
        (
            lambda A: cy.dynamics.UnnormalizedFlow(cy.attention.Heads([cy.Softmax(1.0, A)], [A])),
            TIME,
        ),
        (lambda A: cy.dynamics.AttentionFlow(cy.Softmax(1.0, A)), {"time": 0.03}),
    ],
)
@pytest.mark.parametrize("kind", ["start as well", "matrix alone"])
def test_the_gradient_of_a_matrix(make, how, kind):
    A = torch.tensor(M, requires_grad=True)
    z = torch.tensor(Z, requires_grad=kind == "start as well")
    for _ in range(2):  # twice: nothing that was built once may be used up
        A.grad = None
        value(make(A), z, how).backward()
    fixed = how if "layers" in how or "stepper" in how else {**how, "stepper": RK4(0.01)}
    expected = differences(lambda m: value(make(m), Z, fixed), M)
    np.testing.assert_allclose(A.grad.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layer", [cy.PureAttention, cy.dynamics.UnnormalizedAttention])
@pytest.mark.parametrize("attention", [cy.Softmax(2.0), cy.Hardmax()])
def test_the_gradient_of_alpha(layer, attention):
    alpha = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    value(layer(attention, alpha), torch.tensor(Z), LAYERS).backward()
    expected = differences(
        lambda a: value(layer(attention, float(a[0])), Z, LAYERS), np.array([0.5])
    )
    np.testing.assert_allclose(alpha.grad.item(), expected[0], rtol=1e-6)


def test_the_record_of_a_trained_run_holds_numbers(tmp_path):
    A = torch.tensor(M, requires_grad=True)
    alpha = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    tr = cy.simulate(cy.PureAttention(cy.Softmax(1.0, A), alpha), torch.tensor(Z), layers=2)
    assert tr.z.requires_grad and tr.dynamics.alpha == 0.5
    np.testing.assert_array_equal(tr.dynamics.attention.A, M)
    again = cy.load(tr.save(tmp_path / "run.npz"))
    np.testing.assert_array_equal(again.dynamics.attention.A, M)
    np.testing.assert_array_equal(again.values, tr.values)


@pytest.mark.parametrize(
    "make",
    [
        lambda A: cy.Hardmax(A),
        lambda A: cy.attention.Localmax(0.1, A),
        lambda A: cy.dynamics.EuclideanFlow(Q=A),
        lambda A: cy.dynamics.RescaledFlow(V=A),
        lambda A: cy.dynamics.ValueAttention(V=A),
        lambda A: cy.hull(Z).project(Z, A),
    ],
)
def test_a_gradient_that_cannot_flow_is_refused(make):
    with pytest.raises(TypeError, match=r"gradient"):
        make(torch.tensor(M, requires_grad=True))
    make(torch.tensor(M @ M.T))  # without one it is a matrix like any other


def test_a_trained_beta_belongs_into_the_matrix():
    with pytest.raises(TypeError, match="into A"):
        _finite(torch.tensor(2.0, requires_grad=True), "beta")


def test_gradients_need_tokens_that_are_a_tensor():
    A = torch.tensor(M, requires_grad=True)
    alpha = torch.tensor(0.5, requires_grad=True)
    for dynamics in (cy.PureAttention(cy.Softmax(1.0, A)), cy.PureAttention(alpha=alpha)):
        with pytest.raises(TypeError, match="torch tensor"):
            cy.simulate(dynamics, Z, layers=1)
    with pytest.raises(TypeError, match="torch tensor"):
        cy.Softmax(1.0, A).pull(Z)


@pytest.mark.parametrize(
    "flow",
    [cy.SphereFlow(cy.Softmax(3.0)), cy.SphereFlow(V=M), cy.dynamics.UnnormalizedSphereFlow(2.0)],
)
@pytest.mark.parametrize("length", [1.0, 2.5])
def test_the_length_of_a_start_has_no_gradient_on_the_sphere(flow, length):
    """The run starts from x/|x|, also where x is on the sphere already."""
    on = length * conformance.tokens(4, 3)[:, :2]
    on = length * on / np.linalg.norm(on, axis=1, keepdims=True)
    leaf = torch.tensor(on, requires_grad=True)
    how = {"times": [0.0, 0.2, 0.4], "stepper": RK4(0.1)}
    run = cy.simulate(flow, leaf, **how)
    if length == 1.0:
        assert (run.values[0] == on).all()  # to the last bit
    value(flow, leaf, how).backward()
    expected = differences(lambda z: value(flow, z, how), on)
    np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose((leaf.grad.numpy() * on).sum(axis=1), 0, atol=1e-12)


def test_padding_on_the_sphere_keeps_its_own_gradient():
    on = np.array([[1.0, 0.0], [0.6, 0.8], [3.0, 0.0]])
    leaf = torch.tensor(on, requires_grad=True)
    mask = np.array([True, True, False])
    run = cy.simulate(cy.SphereFlow(), leaf, time=0.2, stepper=RK4(0.1), mask=mask)
    run.z[-1, 2, 0].backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [[0, 0], [0, 0], [1, 0]])
