"""Forms A beyond the symmetric positive definite ones, and what such a form does to a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import cynosure as cy

from ..._types import definite

__all__ = ["FormEffect", "circle", "effect_of", "families_of", "turn"]

_WATCHED = 6  # layers searched for circles; later ones are often rounded onto one token


def turn(d: int, degrees: int) -> np.ndarray:
    """A rotation by the angle in every plane (0,1), (2,3), ...; a left-over axis stays."""
    A, t = np.eye(d), np.deg2rad(degrees)
    for i in range(0, d - 1, 2):
        A[i : i + 2, i : i + 2] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    return A


def families_of(d: int) -> dict[str, Callable[[np.random.Generator], np.ndarray]]:
    """Random forms by name."""

    def square(rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((d, d))

    def spd(rng: np.random.Generator) -> np.ndarray:
        M = square(rng)
        return _symmetric(M @ M.T + 0.1 * np.eye(d))

    def antisymmetric(rng: np.random.Generator) -> np.ndarray:
        M = square(rng)
        return M - M.T

    def indefinite(rng: np.random.Generator) -> np.ndarray:
        signs = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
        q = np.linalg.qr(square(rng))[0]
        return _symmetric((q * (signs * rng.uniform(0.5, 2, d))) @ q.T)

    def low_rank(rng: np.random.Generator) -> np.ndarray:
        u = rng.standard_normal((d, max(1, d // 2)))
        return _symmetric(u @ u.T)

    return {
        "symmetric positive definite": spd,
        "positive definite symmetric part": lambda rng: antisymmetric(rng) + spd(rng),
        "arbitrary": square,
        "symmetric, indefinite": indefinite,
        "symmetric, low rank": low_rank,
        "minus the identity": lambda rng: -np.eye(d),
        "antisymmetric": antisymmetric,
    }


def _symmetric(A: np.ndarray) -> np.ndarray:
    """Symmetric to the last bit."""
    return (A + A.T) / 2


class FormEffect(NamedTuple):
    """What a form A did to one run."""

    leaders: int
    clusters: int  # at the last layer
    cycle: bool  # at one of the first layers tokens follow each other in a circle
    moving: float  # largest step of the last layer / longest token of the start
    norms_fell: bool  # |z_i| (or |z_i|_A where that is a norm) fell at some layer
    left_hull: float  # how far a token left the first hull, by supporting directions


def effect_of(A: np.ndarray, z0: np.ndarray, alpha: float, layers: int) -> FormEffect:
    """Run so many layers under A and read what became of leaders, clusters, norms and hull."""
    tr = cy.simulate(cy.PureAttention(cy.Hardmax(A), alpha=alpha), z0, layers=layers, throw=False)
    z = tr.values
    longest = float(np.linalg.norm(z[0], axis=1).max())
    assert tr.history is not None
    norms = np.einsum("kia,ab,kib->ki", z, A if definite(A) else np.eye(len(A)), z)
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    width = (z @ directions.T).max(axis=1)  # support function of the hull by layer
    return FormEffect(
        int((tr.history.born >= 0).sum()),
        cy.clusters(z[-1], tol=1e-4 * longest).count,
        any(circle(cy.Hardmax(A).followed(zk).target) for zk in z[:_WATCHED]),
        float(np.abs(z[-1] - z[-2]).max()) / longest,
        bool((norms[1:] < norms[:-1] * (1 - 1e-9) - 1e-12 * longest**2).any()),
        float(np.diff(width, axis=0).max()) / longest,
    )


def circle(target: np.ndarray) -> bool:
    """True when the map i -> target[i] has a cycle of length two or more."""
    image = np.arange(len(target))
    for _ in range(len(target)):  # after n steps everybody is on a cycle
        image = target[image]
    ends = np.unique(image)
    return bool((target[ends] != ends).any())
