"""Forms A beyond the symmetric positive definite ones, and what such a form does to a run."""

import numpy as np

import cynosure as cy
from cynosure import study as st

from .._extremes import standing_out

_WATCHED = 6  # layers searched for circles
_SAME = 1e-9  # of the longest token: limits nearer than this are one
_MOST = 1000  # layers within which a limit is looked for; a start that needs more is undecided
FAMILIES = (
    *("symmetric positive definite", "positive definite symmetric part", "arbitrary"),
    *("symmetric, indefinite", "symmetric, low rank", "minus the identity", "antisymmetric"),
)


def turn(d: int, degrees: int) -> np.ndarray:
    """A rotation by the angle in every plane (0,1), (2,3), ...; a left-over axis stays."""
    A, t = np.eye(d), np.deg2rad(degrees)
    for i in range(0, d - 1, 2):
        A[i : i + 2, i : i + 2] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    return A


def form_of(family: str, d: int, rng: np.random.Generator) -> np.ndarray:
    """A random form of one of FAMILIES."""
    if family == "minus the identity":
        return -np.eye(d)
    M = rng.standard_normal((d, max(1, d // 2) if family == "symmetric, low rank" else d))
    if family == "arbitrary":
        return M
    if family == "antisymmetric":
        return M - M.T
    if family == "positive definite symmetric part":
        return M - M.T + form_of("symmetric positive definite", d, rng)
    S = M @ M.T
    if family == "symmetric positive definite":
        S += 0.1 * np.eye(d)
    elif family == "symmetric, indefinite":
        q, signs = np.linalg.qr(M)[0], np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
        S = (q * (signs * rng.uniform(0.5, 2, d))) @ q.T
    return (S + S.T) / 2  # symmetric to the last bit


def effect_of(A: np.ndarray, z0: np.ndarray, alpha: float | int, layers: int) -> st.Cell:
    """The limit under A, and what so many layers did to norms and hull on the way."""
    dynamics = cy.PureAttention(cy.Hardmax(A), alpha=alpha)
    li = cy.limit(dynamics, z0, max_layers=_MOST)
    z = cy.simulate(dynamics, z0, layers=layers, throw=False).values
    longest = float(np.linalg.norm(z0, axis=1).max())
    limits = cy.clusters(li.points, tol=_SAME * longest).centres
    places = li.points[li.leaders]
    leaders = cy.clusters(places, tol=_SAME * longest).count if len(places) else 0
    corners = limits[standing_out(limits) > _SAME * longest] if li.certified else limits[:0]
    led = (np.linalg.norm(corners[:, None] - places, axis=-1) <= _SAME * longest).any(axis=1)
    norms = np.einsum("kia,ab,kib->ki", z, A if _definite(A) else np.eye(len(A)), z)
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    width = (z @ directions.T).max(axis=1)  # support function of the hull by layer
    return st.Cell(
        certified=li.certified,  # every token's limit is proved
        leaders=leaders,  # places of leaders
        limits=len(limits),  # distinct ones
        vertices=len(corners),  # of K, the hull of the limits; 0 where some limit is not proved
        led=int(led.sum()),  # vertices of K where a leader stands
        cycle=any(circle(cy.Hardmax(A).followed(zk).target, zk) for zk in z[:_WATCHED]),
        norms_fell=bool((norms[1:] < norms[:-1] * (1 - 1e-9) - 1e-12 * longest**2).any()),
        left_hull=float(np.diff(width, axis=0).max()) / longest,
    )


def _definite(A: np.ndarray) -> bool:
    return bool((A == A.T).all() and np.linalg.eigvalsh(A)[0] > 0)


def circle(target: np.ndarray, z: np.ndarray) -> bool:
    """Does i -> target[i] have a cycle through different values of z? (Tokens that met are one.)"""
    image = np.arange(len(target))
    for _ in range(len(target)):  # after n steps everybody is on a cycle
        image = target[image]
    ends = np.unique(image)
    apart = np.abs(z[target[ends]] - z[ends]).max(axis=1)
    return bool((apart > _SAME * np.abs(z).max()).any())
