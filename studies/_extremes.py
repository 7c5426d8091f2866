"""How far each of some points stands out of the hull of the others.

An exact hull of inexact points counts the middle of an edge as a vertex whenever rounding pushed it
outwards. The distance to the hull of the other points has a scale, so that a vertex can be told
from such a point.
"""

import numpy as np

import cynosure as cy

__all__ = ["standing_out"]


def standing_out(points: np.ndarray) -> np.ndarray:
    """dist(p_i, conv{p_j : j != i}) of the rows of `points`; infinite for a single point.

    The nearest point of the hull of the others is found by an active set, exact up to rounding.
    """
    if len(points) == 1:
        return np.array([np.inf])
    others = (np.delete(points, i, axis=0) for i in range(len(points)))
    hulls = (cy.hull(rest) for rest in others)
    return np.array([float(body.distance(p)) for p, body in zip(points, hulls)])
