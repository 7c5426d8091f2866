"""What every dynamics must do, checked the day it is added to DYNAMICS.

A dynamics that is written tomorrow is tested here without a line: `test_dynamics.py` goes through
the dict. `EXEMPT` names the properties a model does not have, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import cynosure as cy
from cynosure.dynamics import Flow
from cynosure.simulation.steppers import RK4, Adaptive, Euler

ROTARY = {
    "permutation_equivariant": "scores depend on the offset j - i: the order is part of the input",
    "rotation_equivariant": "positions turn planes of coordinates: the basis is part of the model",
}
MODELS: dict[str, Callable[[], cy.dynamics.Dynamics]] = {  # beside those of DYNAMICS
    "rotary hardmax": lambda: cy.PureAttention(cy.attention.Rotary(cy.Hardmax())),
    "rotary softmax": lambda: cy.dynamics.AttentionFlow(cy.attention.Rotary(cy.Softmax(2.0), 50.0)),
    "causal rotary": lambda: cy.PureAttention(
        cy.attention.Causal(cy.attention.Rotary(cy.Hardmax()))
    ),
}

EXEMPT: dict[str, dict[str, str]] = {
    **dict.fromkeys(MODELS, ROTARY),
    "jump_chain": {
        "permutation_equivariant": "tokens draw in their order: equivariance holds in law only",
        "batch_is_a_loop": "configurations of a batch draw independently of each other",
    },
    "feed_forward": {
        "rotation_equivariant": "relu acts on coordinates: the basis is part of the model",
    },
    "noisy_sphere": {
        "rotation_equivariant": "one seed is one noise matrix: equivariance holds in law only",
    },
}

# Certified hardmax runs are compared bit for bit; formulas in floating point up to rounding, since
# BLAS sums in an order that depends on shape and library.
ROUNDING = 1e-12


def tokens(n=9, d=3, seed=0, batch=()):
    return np.random.default_rng(seed).normal(size=(*batch, n, d))


def run(dynamics, z, layers=3, **options):
    """`layers` layers of a map; as many tenths of time of a flow."""
    if isinstance(dynamics, Flow):
        return cy.simulate(dynamics, z, time=layers / 10, **options)
    return cy.simulate(dynamics, z, layers=layers, **options)


def after(dynamics, z, layers=3, **options):
    return run(dynamics, z, layers, **options).values[-1]


def agree(dynamics, got, expected):
    """Bit for bit where the run is certified, else up to rounding."""
    if dynamics.hardmax_layers is not None:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, atol=ROUNDING, rtol=ROUNDING)


def permutation_equivariant(dynamics):
    z = tokens()
    order = np.random.default_rng(1).permutation(len(z))
    np.testing.assert_allclose(after(dynamics, z[order]), after(dynamics, z)[order], atol=1e-13)


def rotation_equivariant(dynamics):
    z = tokens()
    q = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    np.testing.assert_allclose(after(dynamics, z @ q), after(dynamics, z) @ q, atol=1e-12)


def padding_inert(dynamics):
    z = tokens(n=9)
    mask = np.array([True] * 6 + [False] * 3)
    padded = after(dynamics, z, mask=mask)
    agree(dynamics, padded[:6], after(dynamics, z[:6]))
    np.testing.assert_array_equal(padded[6:], z[6:])
    if isinstance(dynamics, Flow):
        stepped = after(dynamics, z, mask=mask, stepper=RK4(0.05))
        agree(dynamics, stepped[:6], after(dynamics, z[:6], stepper=RK4(0.05)))
        np.testing.assert_array_equal(stepped[6:], z[6:])


def dtype_kept(dynamics):
    z = tokens().astype(np.float32)
    assert after(dynamics, z).dtype == np.float32
    assert after(dynamics, tokens()).dtype == np.float64


def batch_is_a_loop(dynamics):
    z = tokens(batch=(2, 3))
    mask = np.ones((2, 3, 9), bool)
    mask[0, 1, 5:] = False
    whole = after(dynamics, z, mask=mask)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(
            whole[index], after(dynamics, z[index], mask=mask[index]), atol=1e-14
        )


def torch_agrees(dynamics):
    import torch

    z = tokens()
    plain = torch.tensor(z)
    agree(dynamics, after(dynamics, plain), after(dynamics, z))
    leaf = torch.tensor(z, requires_grad=True)
    stepped = {"stepper": RK4(0.05)} if isinstance(dynamics, Flow) else {}
    traced = run(dynamics, leaf, **stepped)
    np.testing.assert_allclose(traced.values[-1], after(dynamics, z, **stepped), atol=1e-12)
    (traced.z[-1] ** 3).sum().backward()
    assert leaf.grad is not None and bool(torch.isfinite(leaf.grad).all())


def save_every_changes_nothing(dynamics):
    z = tokens()
    options = {"times": np.arange(8) / 10} if isinstance(dynamics, Flow) else {"layers": 7}
    every = cy.simulate(dynamics, z, **options)
    some = cy.simulate(dynamics, z, **options, save_every=3)
    assert some.t.tolist() == every.t[[0, 3, 6, 7]].tolist()
    for k in some.t:
        np.testing.assert_array_equal(some.at(k), every.at(k))


def one_step_is_one_layer(dynamics):
    if isinstance(dynamics, Flow):
        return  # flows: `steppers_have_their_order`
    z = tokens()
    np.testing.assert_allclose(dynamics.step(z, 0), after(dynamics, z, layers=1), atol=1e-14)


def orders(flow, steps=(0.05, 0.025, 0.0125), time=1.0):
    """The fitted order of every fixed step, and Adaptive's error."""
    z = 0.7 * tokens(n=6)
    best = cy.simulate(flow, z, times=[time], stepper=Adaptive(1e-13, 1e-14)).values[-1]
    found = {}
    for stepper in (Euler, RK4):
        errors = [
            np.abs(cy.simulate(flow, z, time=time, stepper=stepper(dt)).values[-1] - best).max()
            for dt in steps
        ]
        found[stepper.__name__] = float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
    default = cy.simulate(flow, z, times=[time]).values[-1]
    return found, float(np.abs(default - best).max())


def steppers_have_their_order(dynamics):
    if not isinstance(dynamics, Flow):
        return
    found, adaptive = orders(dynamics)
    for name, order in found.items():
        assert abs(order - {"Euler": 1, "RK4": 4}[name]) < 0.35, found
    assert adaptive < 1e-7


PROPERTIES = [
    permutation_equivariant,
    rotation_equivariant,
    padding_inert,
    dtype_kept,
    batch_is_a_loop,
    torch_agrees,
    save_every_changes_nothing,
    one_step_is_one_layer,
    steppers_have_their_order,
]
