"""Where one more token would end up, or look, from every place: basins and cells of leaders."""

from __future__ import annotations

from fractions import Fraction
from operator import mul

import numpy as np

from .._deadline import Deadline
from .._shapes import Float, Int
from .._types import as_rationals
from ..attention import Hardmax
from ..dynamics import Dynamics
from ..simulation.loop import simulate
from .limits import limit

__all__ = ["NO_LEADER", "OPEN", "OWN", "basins", "cells"]

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
    parts = (probes[at : at + _BATCH] for at in range(0, len(probes), _BATCH))
    found = [_some(dynamics, z0, x, layers, until) for x in parts]
    return np.concatenate([np.empty(0, int), *found])


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


def cells(
    attention: Hardmax, v: Float[np.ndarray, "k d"], probes: Float[np.ndarray, "m d"]
) -> Int[np.ndarray, " m"]:
    """The row of v with the largest score ⟨A x, v⟩ for each probe x: (m,) indices.

    For symmetric positive definite A these are the cells of a power diagram, argmin |x - v|² - |v|²
    in the length of A (B18): whom a token at x follows once only v are looked at. NO_LEADER where
    several rows share the largest score, which is decided exactly for the given floats.

    Examples
    --------
    >>> corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]])
    >>> cells(Hardmax(), corners, np.array([[0.2, 0.1], [3.0, -0.1], [0.5, 0.0]])).tolist()
    [0, 1, -2]
    """
    given, d = attention.matrix(v.shape[1]), v.shape[1]
    A = np.eye(d) if given is None else np.asarray(given, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # then all are near, and rationals decide
        score = probes @ A.T @ v.T
        size = (abs(probes) @ abs(A).T @ abs(v).T).max(axis=1)
        # The rounding of a score is below d eps size; of the gap between two of them, twice that.
        slack = 4 * (d + 1) * np.finfo(float).eps * size + np.finfo(float).tiny
        near = ~(score < (score.max(axis=1) - slack)[:, None])
    label = score.argmax(axis=1)
    for i in np.flatnonzero(near.sum(axis=1) > 1):
        rows = np.flatnonzero(near[i])
        (x,), form, keys = as_rationals(probes[i : i + 1]), as_rationals(A), as_rationals(v[rows])
        query = [sum(map(mul, row, x), Fraction(0)) for row in form]
        exact = [sum(map(mul, query, key), Fraction(0)) for key in keys]
        best = [j for j, score in zip(rows, exact) if score == max(exact)]
        label[i] = best[0] if len(best) == 1 else NO_LEADER
    return label
