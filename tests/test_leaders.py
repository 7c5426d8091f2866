"""roles(): births, persistence, and where leadership is not defined."""

import numpy as np
import pytest

import cynosure as cy
from cynosure import configurations as cf


def test_emerging_leader_is_born_later():
    tr = cy.simulate(cy.PureAttention(alpha=0.5), cf.golden("G1"), layers=10)
    ro = cy.roles(tr)
    assert ro.born.tolist() == [0, 1, 0, -1, -1, -1, -1, -1]
    assert ro.led_at(0).tolist() == [0, 2] and ro.led_at(1).tolist() == [0, 1, 2]
    assert ro.followed(0)[1].tolist() == [3] and ro.followed(1)[1].tolist() == [1]


def test_sparse_saves_do_not_lose_births():
    tr = cy.simulate(cy.PureAttention(alpha=0.5), cf.golden("G1"), layers=10, save_every=10)
    assert cy.roles(tr).born[1] == 1
    assert cy.roles(tr).followed(0)[1].tolist() == [3]


def test_gradient_runs_are_walked_again_from_their_first_layer():
    import torch

    z = torch.tensor(cf.golden("G1"), requires_grad=True)
    ro = cy.roles(cy.simulate(cy.PureAttention(alpha=0.5), z, layers=5))
    assert ro.born.tolist() == [0, 1, 0, -1, -1, -1, -1, -1]


def test_layers_outside_and_foreign_trajectories():
    tr = cy.simulate(cy.PureAttention(), np.eye(3), layers=3)
    for k in (-1, 4):
        with pytest.raises(ValueError, match="outside"):
            cy.roles(tr).followed(k)
    foreign = cy.Trajectory(np.zeros((2, 3, 2)), np.arange(2), cy.simulation.Status("moving", ""))
    with pytest.raises(ValueError, match="hardmax"):
        cy.roles(foreign)
