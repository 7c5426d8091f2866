"""Where one more token would end up, for every place it could start: basins of leaders."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from .._deadline import Deadline
from ..dynamics import Dynamics
from ..simulation.loop import simulate
from .limits import limit

__all__ = ["NO_LEADER", "OPEN", "OWN", "basins"]

OWN, NO_LEADER, OPEN = -1, -2, -3  # the probe leads; its limit is no leader; nothing is proved
_BATCH = 8192  # probes that are run together


def basins(
    dynamics: Dynamics,
    z0: Float[np.ndarray, "n d"],
    probes: Float[np.ndarray, "m d"],
    *,
    layers: int = 60,
    deadline: float | int | None = None,
) -> Int[np.ndarray, " m"]:
    """The token of z0 that each probe is proved to tend to, if it joins them: (m,) indices.

    Each probe is a token more; all of them move. OWN where the probe itself leads, NO_LEADER where
    its limit is proved and is no leader, OPEN where nothing is proved. Most are settled within
    `layers` layers, in batches; the others are tried one by one, for 20 times as many, until
    `deadline` seconds are over.

    Examples
    --------
    >>> import cynosure as cy
    >>> corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]])
    >>> probes = np.array([[0.2, 0.1], [3.0, 0.0], [0.5, 0.0]])
    >>> basins(cy.PureAttention(alpha=0.5), corners, probes).tolist()
    [0, -1, -2]
    """
    until = Deadline(deadline)
    parts = [probes[at : at + _BATCH] for at in range(0, len(probes), _BATCH)]
    return np.concatenate(
        [np.empty(0, int), *(_some(dynamics, z0, x, layers, until) for x in parts)]
    )


def _some(
    dynamics: Dynamics, z0: np.ndarray, probes: np.ndarray, layers: int, until: Deadline
) -> np.ndarray:
    start = np.concatenate([np.tile(z0, (len(probes), 1, 1)), probes[:, None]], axis=1)
    tr = simulate(dynamics, start, layers=layers, save_every=max(layers, 1))
    if tr.history is None:
        raise ValueError(f"basins: expected hardmax layers, which have leaders; got {dynamics!r}")
    label = tr.history.leader[:, -1]
    label = np.where(label < 0, OPEN, label)  # also where it is settled on no leader: see below
    for i in np.flatnonzero(label == OPEN):
        if until.passed:
            break
        end = limit(dynamics, start[i], max_layers=20 * layers, deadline=until.left)
        if end.settled_at[-1] >= 0:
            label[i] = end.follows[-1] if end.follows[-1] >= 0 else NO_LEADER
    return np.where(label == len(z0), OWN, label)
