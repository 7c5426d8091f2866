"""roles(): who leads since which layer, and who follows whom, read off a trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import SupportsIndex, final

import numpy as np

from .._display import facts, grid
from .._exports import guarded
from ..engine.followed import Followed, History
from ..simulation.trajectory import Trajectory


@guarded
@final
@dataclass(frozen=True, eq=False)
class Roles:
    """Leadership belongs to a trajectory, not to a snapshot.

    `born[i]` is the first layer with C_i = {i} (-1: never); from then on z_i never moves. Testing
    C_i = {i} on the last layer instead loses leaders, because followers round onto them.
    Shape (*b, n); padding has -1.
    """

    born: np.ndarray
    trajectory: Trajectory

    def __repr__(self) -> str:
        *batch, n = self.born.shape
        of = f"batch {tuple(batch)} of n={n}" if batch else f"n={n}"
        when = f", born at layers 0..{self.born.max()}" if self.leads.any() else ""
        return f"Roles({of}, {int(self.leads.sum())} leaders{when})"

    def _repr_html_(self) -> str:
        if self.born.ndim > 1:
            return facts("Roles", [("of a batch", repr(self)), ("one of it", "trajectory.select")])
        words = self.trajectory.words
        rows = [
            (int(i), words[i] if words else "", int(self.born[i])) for i in self.leaders.tolist()
        ]
        told = [("tokens", self.born.shape[0]), ("leaders", len(rows))]
        return facts("Roles", told) + grid(("leader", "word", "leads since layer"), rows, len(rows))

    @property
    def leads(self) -> np.ndarray:
        """True for tokens that lead at some layer; shape (*b, n)."""
        return self.born >= 0

    @property
    def leaders(self) -> np.ndarray:
        """Indices of the leaders of one configuration, duplicates included."""
        if self.born.ndim > 1:
            raise ValueError("leaders of a batch: use roles(trajectory.select(b)), or roles.leads")
        return np.flatnonzero(self.leads)

    def led_at(self, k: SupportsIndex) -> np.ndarray:
        """L_k: indices of the tokens that lead at layer k."""
        return self.leaders[self.born[self.leaders] <= int(k)]

    @cached_property
    def _history(self) -> History:
        kept = self.trajectory.history
        return kept if kept is not None and kept.records else recomputed_history(self.trajectory)

    def followed(self, k: SupportsIndex) -> Followed:
        """The sets C_i at layer k of one configuration."""
        if self.born.ndim > 1:
            raise ValueError("followed(k) of a batch: use roles(trajectory.select(b)).followed(k)")
        last = self.trajectory.t[-1]
        if not 0 <= int(k) <= last:
            raise ValueError(f"layer {k} is outside this trajectory (0..{last})")
        if self.trajectory.history is None and not can_lead(self.trajectory):
            return _sets_at(self.trajectory, int(k))
        return self._history.followed(k)


def can_lead(trajectory: Trajectory) -> bool:
    """True for runs from layer 0 of hardmax layers with one alpha, where leaders are defined."""
    return trajectory.made_by.hardmax_layers is not None and bool(trajectory.t[0] == 0)


def roles(trajectory: Trajectory) -> Roles:
    """Tells who leads in a run of layers, and since which layer.

    Parameters
    ----------
    trajectory
        A run of hardmax layers, whose sets are those of exact arithmetic. Or layers with any
        attention that says whom it follows (`Attention.followed`): their sets are read off the
        saved, rounded states, which must be all layers. There a leader may move on.

    Returns
    -------
    Roles
        `leaders`, `leads` at the last layer, `born` (the first layer at which a token leads, or
        -1), and `followed(k)`, the sets C_i of layer k.

    Raises
    ------
    ValueError
        If the run has no such sets, for example a softmax run.

    Examples
    --------
    >>> import cynosure as cy
    >>> tr = cy.simulate(cy.PureAttention(), [[2.0, 0.0], [1.0, 0.5], [0.0, 1.0]], layers=5)
    >>> cy.roles(tr).leaders.tolist()
    [0, 2]
    """
    history = trajectory.history
    if history is None and not can_lead(trajectory):
        return Roles(_born(trajectory), trajectory)
    return Roles((history or recomputed_history(trajectory)).born, trajectory)


def _sets_at(trajectory: Trajectory, k: int) -> Followed:
    """The sets C_i of the saved state at layer k, padding left out."""
    attention, z = trajectory.made_by.at(k).attention, trajectory.at(k)
    real, found = trajectory.mask, None
    if not trajectory.in_time and attention is not None:
        found = attention.followed(z if real is None else z[np.flatnonzero(real).tolist()])
    if found is None:
        raise ValueError(
            "roles: leaders are defined for layers from 0 on whose attention follows sets, as in "
            "hardmax runs (see Attention.followed); this trajectory is of "
            f"{type(trajectory.made_by).__name__}"
        )
    if real is None:
        return found
    label = np.full(len(real), -1, dtype=np.intp)
    label[real] = found.label
    return Followed(label, found.indptr, found.indices)


def _born(trajectory: Trajectory) -> np.ndarray:
    """The first saved layer at which each token follows itself alone."""
    born = np.full(trajectory.tokens.shape[1], -1, dtype=np.intp)
    for row, k in enumerate(trajectory.t.tolist()):
        leads = _sets_at(trajectory, int(k)).leads
        if row != k:
            raise ValueError("roles: expected every layer from 0 on; run with save_every=1")
        born[(born < 0) & leads] = row
    return born


def recomputed_history(trajectory: Trajectory) -> History:
    """The history of a run that did not keep one, from its first layer."""
    dynamics = trajectory.made_by
    if not can_lead(trajectory):
        raise ValueError(
            "roles: leaders are defined for hardmax runs from layer 0; this trajectory is of "
            f"{type(dynamics).__name__}"
        )
    from ..simulation.loop import simulate

    z0, layers = trajectory.values[0], int(trajectory.t[-1])
    again = simulate(
        dynamics, z0, layers=layers, mask=trajectory.mask, save_every=max(layers, 1), throw=False
    )
    assert again.history is not None
    return again.history
