"""The layer of the study on energies, against the package's flow and against differences."""

from __future__ import annotations

import numpy as np
import pytest

import cynosure as cy
from studies.sphere import sphere_energy as study

DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((2, 6, 3))
X /= np.linalg.norm(X, axis=-1, keepdims=True)


def layer(heads: int, units: int = 0, **options: bool) -> study.Layer:
    A = DRAW.standard_normal((2, heads, 3, 3))
    A = A + np.swapaxes(A, -1, -2)
    a = DRAW.standard_normal((2, units, 3))
    a /= np.linalg.norm(a, axis=-1, keepdims=True)
    return study.Layer(A=A, V=A, a=a, w=np.swapaxes(a, -1, -2), beta=1.5, **options)


def test_one_head_is_the_flow_of_the_package() -> None:
    one = layer(1)
    for k in (0, 1):
        flow = cy.SphereFlow(cy.Softmax(1.5, one.A[k, 0]), V=one.V[k, 0])
        np.testing.assert_allclose(one.velocity(X, 0.0)[k], flow.velocity(X[k], 0.0), atol=1e-12)


@pytest.mark.parametrize(("heads", "units"), [(3, 0), (0, 5), (2, 4)])
def test_without_denominator_the_velocity_is_the_gradient_of_the_energy(
    heads: int, units: int
) -> None:
    """dE/dt = |v|²/n along the flow, by differences."""
    climbing, h = layer(heads, units, softmax=False), 1e-5
    v = climbing.velocity(X, 0.0)
    ahead, behind = (climbing.energy(climbing.retract(X + s * h * v)) for s in (1, -1))
    rise = (v**2).sum(axis=(-1, -2)) / X.shape[-2]
    np.testing.assert_allclose((ahead - behind) / (2 * h), rise, rtol=1e-6)


def test_falls_are_counted_by_run() -> None:
    energies = np.array([[1.0, 1, 1], [2, 0.5, 1], [3, 3, 1 - 1e-12]])
    ended = study.Ended("kind", 1.0, energies, np.array([1, 2, 3]), np.zeros(3))
    assert ended.falls == (1, 3) and ended.apart == (2, 3)
