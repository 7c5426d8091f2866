"""Runs that end in a cycle say so: layers, hardmax layers, one layer of a transformer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import cynosure as cy
from cynosure.dynamics import LayerMap
from cynosure.simulation.cycles import cycle_of

START = np.random.default_rng(0).standard_normal((4, 2))


@dataclass(frozen=True, eq=False)
class Turning(LayerMap):
    """Tokens turn by 2 pi / period; their lengths tend to 1 by the factor `pull`, from `rest`."""

    period: int = 5
    pull: float = 0.5
    length: float = 1.0

    def step(self, z, k, *, mask=None):
        angle = 2 * np.pi / self.period
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        size = np.linalg.norm(z, axis=-1, keepdims=True)
        return (z @ turn.T) * (self.length + self.pull * (size - self.length)) / size


@pytest.mark.parametrize("period", [2, 3, 5, 32])
@pytest.mark.parametrize("save_every", [1, 7])
def test_a_known_cycle_is_named_with_its_period_and_where_it_begins(
    period: int, save_every: int
) -> None:
    tr = cy.simulate(Turning(period), START, layers=150, save_every=save_every)
    assert tr.status.code == "cycle"
    assert f"a cycle of period {period} since layer" in tr.status.message


def test_the_layer_since_which_states_come_back() -> None:
    jumps = [START + k for k in range(40)] + [START, -START] * 10
    found = cycle_of(jumps, 59)
    assert found is not None and (found.period, found.since, found.off) == (2, 40, 0.0)
    assert found.step == pytest.approx(2.0)
    tr = cy.simulate(Turning(4, 0.0), START, layers=300)
    assert "period 4 since layer 1:" in tr.status.message  # long before the last that are kept


@pytest.mark.parametrize(
    "run",
    [
        lambda: cy.simulate(Turning(5, 0.9, 0.0), START, layers=80),  # on its way to 0
        lambda: cy.simulate(Turning(33), START, layers=150),  # longer than is looked for
        lambda: cy.simulate(Turning(5), START, layers=8),  # not seen three times
        lambda: cy.simulate(cy.PureAttention(cy.Softmax(2.0)), START, layers=200),
        lambda: cy.simulate(cy.PureAttention(), START, layers=50),
        lambda: cy.simulate(cy.dynamics.JumpChain(), START, layers=200),
    ],
)
def test_other_runs_are_not_said_to_turn(run) -> None:
    assert run().status.code != "cycle"


def test_hardmax_layers_without_a_limit() -> None:
    """Four leaders and a token that swings between two ties, whatever layers are saved."""
    swing = np.array([[3.0, 0, 3], [-3, 0, 3], [0, 3, -3], [0, -3, -3], [0, 0, 1]])
    dynamics = cy.PureAttention(cy.Hardmax(np.diag([3.0, 3, -1])), 1)
    runs = [
        cy.simulate(dynamics, swing, layers=60),
        cy.simulate(dynamics, swing, layers=60, save_every=2),
        cy.simulate(dynamics, np.stack([swing, swing]), layers=60),
    ]
    assert [run.status.code for run in runs] == ["cycle"] * 3
    assert all("period 2" in run.status.message for run in runs)
    assert [len(run) for run in runs] == [61, 31, 61]
    assert "not symmetric positive definite" in str(runs[0].status)
    assert "cycle of period 2" in cy.report(runs[0]).summary


def test_rotary_hardmax_swings() -> None:
    """Two tokens swing with period 2, another one with period 5."""
    z = [[-1.57, 0.09], [0.15, 0.31], [-1.06, 0.24], [-0.33, 0.51], [0.36, 0.69], [1.49, 0.48]]
    run = cy.simulate(cy.PureAttention(cy.attention.Rotary(cy.Hardmax())), z, layers=1000)
    assert run.status.code == "rounded_ties" and "cycle of period 10" in str(run.status)


def test_a_saved_run_keeps_what_it_ended_in(tmp_path) -> None:
    tr = cy.simulate(Turning(3), START, layers=60)
    assert cy.load(tr.save(tmp_path / "run.npz")).status == tr.status


@pytest.mark.many
def test_the_layer_of_a_trained_albert_has_a_cycle(weights) -> None:
    """From these tokens one of period 5. It was "done", and nothing more was said."""
    pytest.importorskip("torch")
    model = cy.load_transformer(weights("plbert"), dtype="float64")
    run = model.iterate("həlˈO wˈɜɹld", 0, 600)
    gaps = [np.linalg.norm(run.z[-1] - run.z[-1 - p]) for p in range(1, 10)]
    gaps = np.array(gaps) / np.linalg.norm(run.z[-1])
    assert np.flatnonzero(gaps < 1e-4).tolist() == [4] and np.delete(gaps, 4).min() > 0.2
    assert run.status.code == "cycle" and "period 5 since layer" in run.status.message


@pytest.mark.parametrize("size", [1.0, 1.7e308, 1e-300])
def test_a_cycle_of_any_size(size: float) -> None:
    states = [size * np.array([[1.0, 0.0], [(-1.0) ** k, 0.5]]) for k in range(12)]
    with np.errstate(all="raise", under="ignore"):
        found = cycle_of(states, 11)
    assert found is not None and found.period == 2
