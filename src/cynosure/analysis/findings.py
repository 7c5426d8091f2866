"""findings(): what was found of one run, each thing computed when it is first asked for, once."""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np

from .._deadline import Deadline
from .._types import definite
from ..simulation.trajectory import Trajectory
from .leaders import Roles, can_lead, roles
from .limits import Limit, limit
from .polytope import Polytope, hull
from .spectra import LimitingObject, recognise

_LAYERS = 100_000  # of a proof for definite A, where tokens converge
_WORK = 1_000_000  # tokens times layers of a proof for any other A, where they need not


@final
class Findings:
    """What is known of one configuration's run; `deadline` ends what is still to be found.

    A limit proved elsewhere is handed over by assigning it: `findings(run).limit = limit`.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.deadline = Deadline(None)
        self._hulls: dict[int, Polytope] = {}

    @cached_property
    def roles(self) -> Roles | None:
        """Who leads since when; None where leaders are not defined."""
        return roles(self.trajectory) if can_lead(self.trajectory) else None

    @cached_property
    def limit(self) -> Limit | None:
        """The limits of normalised hardmax layers from layer 0, proved as far as that goes."""
        tr = self.trajectory
        layers = tr.made_by.hardmax_layers if can_lead(tr) else None
        if layers is None or not layers.normalised:
            return None
        bound = _LAYERS if definite(layers.attention.A) else max(100, _WORK // tr.z.shape[1])
        return limit(
            tr.made_by, tr.values[0], mask=tr.mask, max_layers=bound, deadline=self.deadline.left
        )

    @cached_property
    def end(self) -> LimitingObject | None:
        """What the last state is, where no leaders are defined."""
        return None if can_lead(self.trajectory) else recognise(self.trajectory)

    @cached_property
    def exponent(self) -> int:
        """Of the power of two that brings the largest coordinate of the start to [1/2, 1)."""
        return int(np.frexp(np.abs(self.trajectory.tokens[0]).max())[1])

    def hull(self, row: int) -> Polytope:
        """The hull of the saved state number `row`, divided by 2^exponent."""
        if row not in self._hulls:
            self._hulls[row] = hull(np.ldexp(self.trajectory.tokens[row], -self.exponent))
        return self._hulls[row]


def findings(trajectory: Trajectory) -> Findings:
    """What was found of `trajectory` so far, kept with it."""
    kept = vars(trajectory).get("_findings")
    if kept is None:
        kept = vars(trajectory)["_findings"] = Findings(trajectory)
    assert isinstance(kept, Findings)
    return kept
