"""Public calls that fail name the argument, and say what was expected; those that work are free."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import cynosure as cy
from cynosure._blame import shown
from cynosure._display import _brief
from cynosure._exports import guarded

Z = np.random.default_rng(0).normal(size=(5, 2))
COMPLEX = np.array([[1 + 5j, 2j], [0, 1]])
MASKED = np.ma.masked_array(np.eye(2), mask=[[1, 0], [0, 0]])


def nested(times: int) -> list[Any]:
    inner: list[Any] = [1.0]
    for _ in range(times):
        inner = [inner]
    return inner


@pytest.mark.parametrize("call", [cy.roles, cy.recognise, cy.report, cy.check, cy.plot.layers])
def test_an_array_is_no_trajectory(call: Callable[..., Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"[tT]rajectory"):
        call(Z)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: cy.movie.movie(Z, "x.gif"), "trajectory"),
        (lambda: cy.Softmax(10**400), "beta"),
        (lambda: cy.PureAttention(alpha=10**400), "alpha|simulate"),
        (lambda: cy.control([[10**400, 1], [1, 2]], 0), "z0"),
        (lambda: cy.limit(cy.PureAttention(), nested(3000)), "z0"),
        (lambda: cy.Hardmax(nested(3000)), "A"),
        (lambda: cy.configurations.gaussian(n=np.ones(3)), "n"),
        (lambda: cy.configurations.gaussian(n=3, seed="x"), "seed"),
        (lambda: cy.dynamics.ScheduledFlow(3), "flows"),
        (lambda: cy.simulation.RK4([]), "dt"),
        (lambda: cy.PureAttention("softmax"), "attention"),
        (lambda: cy.SphereFlow(attention=cy.Softmax), "attention"),
        (lambda: cy.dynamics.ValueAttention(nested(3000)), "attention"),
        (lambda: cy.load_pretrained().explain("good", struck=b"x"), "struck"),
        (lambda: cy.load_pretrained().explain(b"good"), "text"),
        (lambda: cy.plot.convergence(Z, ax=3), "trajectory|limit|ax"),
        (lambda: cy.Hardmax().followed(Z).pull([[1, 2]]), "z"),
        (lambda: next(cy.movie.frames(3)), "trajectory"),
        (lambda: cy.configurations.sphere(n=Decimal("sNaN")), "n"),
        (lambda: cy.configurations.box(seed=Z.view(np.matrix)), "seed"),  # NumPy crashes on it
        (lambda: cy.control(Z, torch.eye(2, requires_grad=True)), "targets"),
        (lambda: cy.load_pretrained().probabilities(torch.eye(2, requires_grad=True)), "decision"),
        (lambda: cy.load_pretrained().without({1: 2}), "words"),
        (lambda: cy.spectra.rate(cy, Z), "trajectory"),  # a module of ours, with names of its own
        (
            lambda: cy.plot.convergence(
                cy.simulate(cy.PureAttention(), Z, layers=2), cy.limit(cy.PureAttention(), Z), ax=cy
            ),
            "ax",
        ),
    ],
)
def test_the_argument_is_named(call: Callable[[], Any], name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"\b({name})\b") as caught:
        if call() is not None:  # an alpha of any size is a rational
            pytest.skip("this is answered")
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("wrong", [COMPLEX, COMPLEX.tolist(), MASKED])
@pytest.mark.parametrize(
    "make",
    [
        cy.Hardmax,
        lambda A: cy.Softmax(1.0, A),
        lambda V: cy.dynamics.ValueAttention(V=V),
        lambda V: cy.SphereFlow(V=V),
        lambda W: cy.dynamics.FeedForward(W, np.eye(2)),
        lambda S: cy.analysis.GaussianFlow([0.0, 0.0], S),
        lambda A: cy.analysis.remove_leader(Z, 0, A=A),
    ],
)
def test_no_part_of_a_matrix_is_dropped(make: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"complex|mask"):
        make(wrong)


def test_what_the_package_raises_and_bugs_stay() -> None:
    class Own(Exception):
        pass

    def bug(z: np.ndarray) -> None:
        raise {"own": Own, "attribute": AttributeError}["own" if len(z) == 1 else "attribute"]("x")

    for z, kind in ((np.ones((1, 2)), Own), (np.ones((2, 2)), AttributeError)):
        with pytest.raises(kind, match=r"^x$"):
            guarded(bug)(z)
    with pytest.raises(TypeError, match="unexpected keyword"):
        cy.simulate(cy.PureAttention(), Z, layer=3)


def test_the_cause_is_kept_and_functions_can_be_pickled() -> None:
    with pytest.raises(TypeError) as caught:
        cy.roles(Z)
    assert caught.value.__cause__ is not None
    for one in (cy.simulate, cy.limit, cy.configurations.gaussian, cy.Hardmax(), cy.plot.layers):
        pickle.loads(pickle.dumps(one))


def test_values_are_shown_shortly() -> None:
    assert shown(np.ones((3, 2))) == "ndarray of shape (3, 2), float64"
    assert len(shown("x" * 999)) == 80
    assert shown(nested(3000)) == "a list that cannot be shown"


def test_an_overflow_that_the_package_announces_stays() -> None:
    grown = {"z": Z, "A": 1e308 * np.eye(2)}
    with pytest.raises(OverflowError):
        guarded(_announces)(**grown)
    with pytest.raises(ValueError, match="announces_not: cannot be computed from n = 3"):
        guarded(_announces_not)(3)


def _announces(z: np.ndarray, A: np.ndarray) -> None:
    raise OverflowError(f"scores of {len(z)} tokens")


def _announces_not(n: int) -> None:
    raise ValueError(f"{10**400:g}")


def test_a_dynamics_that_is_no_dataclass_is_shown() -> None:
    class Halved(cy.dynamics.LayerMap):
        def step(self, z: Any, k: int, *, mask: Any = None) -> Any:
            return z / 2

    assert repr(Halved()) == "Halved()"
    assert "..." in _brief(nested(3000))


@pytest.mark.many  # whoever does not check shapes may pass any number
def test_any_number_is_a_tolerance() -> None:
    run = cy.simulate(cy.PureAttention(), Z, layers=2)
    assert "tol 0.25" in repr(cy.recognise(run, tol=Fraction(1, 4)))  # type: ignore[arg-type]
