"""Forms A beyond the symmetric positive definite ones, and what such a form does to a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import cynosure as cy

from ..._types import definite
from .._extremes import standing_out

__all__ = ["FormEffect", "circle", "effect_of", "families_of", "turn"]

_WATCHED = 6  # layers searched for circles
_SAME = 1e-9  # of the longest token: limits nearer than this are one
_MOST = 1000  # layers within which a limit is looked for; a start that needs more is undecided


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

    certified: bool  # every token's limit is proved
    leaders: int  # places of leaders
    limits: int  # distinct ones
    vertices: int  # of K, the hull of the limits; 0 where some limit is not proved
    led: int  # vertices of K where a leader stands
    cycle: bool  # at one of the first layers tokens follow each other in a circle
    norms_fell: bool  # |z_i| (or |z_i|_A where that is a norm) fell at some layer
    left_hull: float  # how far a token left the hull of the layer before, by supporting directions


def effect_of(A: np.ndarray, z0: np.ndarray, alpha: float | int, layers: int) -> FormEffect:
    """The limit under A, and what so many layers did to norms and hull on the way."""
    dynamics = cy.PureAttention(cy.Hardmax(A), alpha=alpha)
    li = cy.limit(dynamics, z0, max_layers=_MOST)
    z = cy.simulate(dynamics, z0, layers=layers, throw=False).values
    longest = float(np.linalg.norm(z0, axis=1).max())
    limits = cy.clusters(li.points, tol=_SAME * longest).centres
    places = li.points[li.leaders]
    leaders = cy.clusters(places, tol=_SAME * longest).count if len(places) else 0
    vertices, led = _led_vertices(limits, places, longest) if li.certified else (0, 0)
    norms = np.einsum("kia,ab,kib->ki", z, A if definite(A) else np.eye(len(A)), z)
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    width = (z @ directions.T).max(axis=1)  # support function of the hull by layer
    return FormEffect(
        certified=li.certified,
        leaders=leaders,
        limits=len(limits),
        vertices=vertices,
        led=led,
        cycle=any(circle(cy.Hardmax(A).followed(zk).target, zk) for zk in z[:_WATCHED]),
        norms_fell=bool((norms[1:] < norms[:-1] * (1 - 1e-9) - 1e-12 * longest**2).any()),
        left_hull=float(np.diff(width, axis=0).max()) / longest,
    )


def _led_vertices(limits: np.ndarray, places: np.ndarray, longest: float) -> tuple[int, int]:
    """How many limits are vertices of their hull, and at how many of these a leader stands."""
    corners = limits[standing_out(limits) > _SAME * longest]
    gaps = np.linalg.norm(corners[:, None] - places, axis=-1)
    return len(corners), int((gaps <= _SAME * longest).any(axis=1).sum())


def circle(target: np.ndarray, z: np.ndarray) -> bool:
    """True when the map i -> target[i] has a cycle through two or more different values of z.

    Trap: tokens that have met (two mutual followers do, in one layer, when alpha = 1) may follow
    each other's copies for ever. That is one place, not a circle.
    """
    image = np.arange(len(target))
    for _ in range(len(target)):  # after n steps everybody is on a cycle
        image = target[image]
    ends = np.unique(image)
    apart = np.abs(z[target[ends]] - z[ends]).max(axis=1)
    return bool((apart > _SAME * np.abs(z).max()).any())
