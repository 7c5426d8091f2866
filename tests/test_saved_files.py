"""Files written before the package was regrouped into stages are still read, to the same run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy

SAVED = Path(__file__).parent / "saved"
Z = np.array([[1.0, 0.25], [-0.5, 1.0], [-1.0, -1.0], [0.25, 0.0], [0.25, 0.0]])
A = np.array([[2.0, 1.0], [1.0, 1.0]])


def _hardmax() -> cy.Trajectory:
    dynamics = cy.PureAttention(cy.Hardmax(A), alpha="1/2")
    return cy.simulate(dynamics, Z, layers=4, words=list("abcde"), mask=np.arange(5) < 4)


def _flow() -> cy.Trajectory:
    V = np.array([[1.0, 0.5], [0.0, 0.5]])
    return cy.simulate(
        cy.dynamics.RescaledFlow(V=V), Z, times=[0.0, 0.5, 1.0], stepper=cy.simulation.RK4(0.125)
    )


def _heads() -> cy.Trajectory:
    heads = cy.attention.Heads([cy.Softmax(2.0), cy.attention.Causal(cy.Softmax(1.0, A=A))])
    return cy.simulate(cy.PureAttention(heads), Z, layers=2)


@pytest.mark.parametrize(
    ("name", "make"), [("hardmax", _hardmax), ("flow", _flow), ("heads", _heads)]
)
def test_a_saved_run_is_read_as_it_was(name: str, make, tmp_path: Path) -> None:
    old, new = cy.load(SAVED / f"{name}-0.1.0.npz"), make()
    again = cy.load(new.save(tmp_path / "new.npz"))
    for run in (old, again):
        np.testing.assert_allclose(run.z, new.z, rtol=1e-14, atol=1e-14)
        np.testing.assert_array_equal(run.t, new.t)
        assert type(run.dynamics) is type(new.dynamics)
        assert run.stepper == new.stepper and run.words == new.words
        assert run.status.code == new.status.code
    if new.history is not None:
        assert old.history is not None
        np.testing.assert_array_equal(old.history.born, new.history.born)
        np.testing.assert_array_equal(old.history.settled_at, new.history.settled_at)
        for k in range(3):
            assert [list(c) for c in cy.roles(old).followed(k)] == [
                list(c) for c in cy.roles(new).followed(k)
            ]


@pytest.mark.parametrize("name", ["two", "three"])
def test_a_classifier_saved_before_anchors_had_lengths_says_what_it_said(
    name: str, tmp_path: Path
) -> None:
    """Version 2: one length for every text, no negation, each class against the rest."""
    expected = json.loads((SAVED / f"classifier-0.1.0-{name}.json").read_text("utf-8"))
    clf = cy.HardmaxClassifier.load(SAVED / f"classifier-0.1.0-{name}")
    again = cy.HardmaxClassifier.load(clf.save(tmp_path / "again"))
    for model in (clf, again):
        found = model.predict_proba(expected["texts"])
        np.testing.assert_allclose(found, expected["probabilities"], rtol=1e-9)
        assert model.predict(expected["texts"]).tolist() == expected["labels"]
        assert not model.negation and all(p.kappa == np.inf for p in model.model_.planes)
