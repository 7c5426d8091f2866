"""The starts of the attack: named kinds of tokens, each with the matrices and steps that hurt it.

Every kind is a function of a random generator that gives a `Start`; what it leaves open, A or
alpha, is drawn from `matrices` and `steps`. To add a kind, write one and give it a share in
`STARTS`; `structured` has more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import exp, tan
from typing import Any

import numpy as np

Rng = np.random.Generator
Tokens = tuple[tuple[Any, ...], ...]  # floats, or Fractions where only rationals will do
UNDRAWN: Any = object()


@dataclass(frozen=True)
class Start:
    """Tokens, and the A (None for the identity) and alpha where the kind has its own."""

    z: Tokens
    A: Any = UNDRAWN
    alpha: Any = UNDRAWN
    layers: int = 24  # how far the oracle tries to go


# -- A and alpha ----------------------------------------------------------------------------------


def matrices(rng: Rng, d: int) -> Tokens | None:
    """Every kind of A; the identity (None) is one of two."""
    if rng.random() < 0.45:
        return None
    makers = (
        _definite,
        _diagonal,
        _extreme,
        _minus,
        _rotation,
        _singular,
        _nilpotent,
        _any,
        _whole,
    )
    return rows(makers[rng.integers(len(makers))](rng, d))


def _definite(rng: Rng, d: int) -> np.ndarray:
    B = rng.integers(-2, 3, (d, d)).astype(float)
    return B @ B.T + np.eye(d)


def _diagonal(rng: Rng, d: int) -> np.ndarray:
    return np.diag(rng.integers(-1, 4, d).astype(float))


def _extreme(rng: Rng, d: int) -> np.ndarray:
    return np.diag(10.0 ** rng.choice([-300, -200, -100, 0, 100, 200, 300], d))


def _minus(rng: Rng, d: int) -> np.ndarray:
    return -np.eye(d)


def _rotation(rng: Rng, d: int) -> np.ndarray:
    A = np.eye(d)
    if d > 1:
        if rng.random() < 0.5:
            A[:2, :2] = [[0, -1], [1, 0]]
        else:
            t = rng.uniform(0, 3.2)
            A[:2, :2] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    return A


def _singular(rng: Rng, d: int) -> np.ndarray:
    return np.outer(rng.integers(-2, 3, d), rng.integers(-2, 3, d)).astype(float)


def _nilpotent(rng: Rng, d: int) -> np.ndarray:
    return np.triu(rng.integers(-2, 3, (d, d)), 1).astype(float)


def _any(rng: Rng, d: int) -> np.ndarray:
    return rng.standard_normal((d, d))


def _whole(rng: Rng, d: int) -> np.ndarray:
    return rng.integers(-3, 4, (d, d)).astype(float)


def steps(rng: Rng) -> float | str:
    """alpha: 1 often, then every size from 1e-300 to 1e300."""
    u = rng.random()
    if u < 0.35:
        return 1.0
    if u < 0.7:
        return [0.5, 2.0, 3.0, "1/3", "1/10", 4.0][rng.integers(6)]
    if u < 0.9:
        return [0.3, 0.999, 10.0, float(rng.uniform(0.01, 5)), 2.0 ** int(rng.integers(-20, 20))][
            rng.integers(5)
        ]
    return [1e-9, 1e-300, 2.0**-54, 2.0**-60, 1e300, 1e9, 1e-20, 2.0**-1000][rng.integers(8)]


def rows(z: Any) -> Tokens:
    return tuple(tuple(float(x) for x in row) for row in z)


def shuffled(rng: Rng, z: Any) -> Tokens:
    given = rows(z)
    return tuple(given[i] for i in rng.permutation(len(given)))


def _size(rng: Rng, n: int = 12, d: int = 6) -> tuple[int, int]:
    return int(rng.integers(1, n + 1)), int(rng.integers(1, d + 1))


# -- kinds ----------------------------------------------------------------------------------------


def whole_numbers(rng: Rng) -> Start:
    n, d = _size(rng, d=4)
    m = int(rng.integers(1, 8))
    return Start(rows(rng.integers(-m, m + 1, (n, d))))


def signs(rng: Rng) -> Start:
    n, d = _size(rng, 20)
    return Start(rows(rng.integers(-1, 2, (n, d))), layers=12)


def many_signs(rng: Rng) -> Start:
    n, d = int(rng.integers(60, 401)), int(rng.integers(2, 7))
    return Start(rows(rng.integers(-1, 2, (n, d))), layers=2)


def many(rng: Rng) -> Start:
    n, d = int(rng.integers(60, 401)), int(rng.integers(1, 4))
    return Start(rows(rng.standard_normal((n, d)).astype(np.float32)), layers=1)


def gaussian(rng: Rng) -> Start:
    n, d = _size(rng, 30)
    return Start(rows(rng.standard_normal((n, d))), layers=16)


def ties(rng: Rng) -> Start:
    """A square, or a cross, with tokens between its corners."""
    d = int(rng.integers(2, 4))
    corners = np.array([[(c >> a & 1) * 2 - 1 for a in range(d)] for c in range(2**d)], float)
    if rng.random() < 0.4:
        corners = np.concatenate((np.eye(d), -np.eye(d)))
    inner = rng.integers(-4, 5, (int(rng.integers(1, 6)), d)) / 8
    inner[rng.random(inner.shape) < 0.5] = 0
    return Start(shuffled(rng, np.concatenate((corners, inner)) * float(rng.integers(1, 4))))


def duplicates(rng: Rng) -> Start:
    n, d = _size(rng, 5, 3)
    base = rng.integers(-3, 4, (n, d)).astype(float)
    return Start(rows(base[rng.integers(n, size=int(rng.integers(n, 3 * n + 2)))]))


def signed_zeros(rng: Rng) -> Start:
    n, d = _size(rng, 8, 3)
    return Start(rows(rng.choice([0.0, -0.0, 0.0, -0.0, 1.0, -1.0, 0.5], (n, d))))


def collinear(rng: Rng) -> Start:
    n, d = _size(rng, 10, 4)
    along = rng.integers(-3, 4, d)
    base = rng.integers(-2, 3, d) if rng.random() < 0.5 else np.zeros(d)
    return Start(rows(base + rng.integers(-6, 7, n)[:, None] * along))


def antipodal(rng: Rng) -> Start:
    n, d = _size(rng, 6, 4)
    z = rng.integers(-4, 5, (n, d)) if rng.random() < 0.6 else rng.standard_normal((n, d))
    return Start(shuffled(rng, np.concatenate((z, -z))))


def polygons(rng: Rng) -> Start:
    """Integer points of one or two circles (all of equal norm), with inner points."""
    out = []
    for r2 in rng.choice([5, 25, 50, 65, 85, 325], int(rng.integers(1, 3))).tolist():
        m = int(r2**0.5) + 1
        ring = [(x, y) for x in range(-m, m + 1) for y in range(-m, m + 1) if x * x + y * y == r2]
        out += [ring[i] for i in rng.permutation(len(ring))[: int(rng.integers(2, 13))]]
    out += rng.integers(-2, 3, (int(rng.integers(0, 4)), 2)).tolist()
    return Start(shuffled(rng, out), layers=16)


def lattices(rng: Rng) -> Start:
    """A square lattice, plain or rotated by an angle (exactly, 3-4-5, or rounded)."""
    large = rng.random() < 0.02
    m = 20 if large else int(rng.integers(2, 5))
    z = np.array([(x, y) for x in range(-m, m + 1, 2) for y in range(-m, m + 1, 2)], float)
    turn = rng.random()
    if turn < 0.3:
        z = z @ np.array([[3.0, -4.0], [4.0, 3.0]])
    elif turn < 0.6:
        t = rng.uniform(0, 1.6)
        z = z @ np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    return Start(shuffled(rng, z), layers=2 if large else 10)


def mirrored_spirals(rng: Rng) -> Start:
    """A spiral in which each token follows the next, its mirror image, and tokens on the axis.

    Norms g^m and angles m t: the score g^k cos(k t) of the k-th next token is largest at k = 1
    when log g is near t tan t. The axis token ties between both arms for as long as they last.
    """
    length = int(rng.integers(2, 26))
    t = float(rng.uniform(0.05, 2.6 / length))
    g = exp(t * tan(min(t * rng.uniform(0.6, 1.4), 1.5)))
    m = np.arange(1, length + 1)
    arm = g ** m[:, None] * np.stack((np.cos(m * t), np.sin(m * t)), axis=1)
    arm = np.round(arm * 2.0**20) / 2.0**20
    axis = [[float(rng.integers(1, 1 << 20)) / 2.0**20, 0.0] for _ in range(rng.integers(1, 3))]
    z = np.concatenate((arm, arm * [1, -1], axis))
    return Start(shuffled(rng, z), A=None if rng.random() < 0.8 else UNDRAWN, layers=20)


def mirrored_chains(rng: Rng) -> Start:
    """Random integer tokens with their mirror images, and tokens in the mirror."""
    d = int(rng.integers(2, 5))
    half = rng.integers(-5, 6, (int(rng.integers(1, 7)), d))
    inside = rng.integers(-5, 6, (int(rng.integers(1, 4)), d))
    inside[:, -1] = 0
    flip = np.ones(d)
    flip[-1] = -1
    z = np.concatenate((half, half * flip, inside))
    return Start(shuffled(rng, z), A=None if rng.random() < 0.7 else UNDRAWN, layers=200)


def waits(rng: Rng) -> Start:
    """G4 of docs/mathematics.md C9: its switch comes after about 1/(2 delta alpha) layers."""
    delta = float(rng.choice([0.1, 0.05, 0.02, 1e-2, 1e-3, 1e-6, 1e-9, 2.0**-30]))
    y = float(rng.choice([0.7, 0.5, 0.25]))
    x = float(rng.choice([0.5, 0.25, 0.75]))
    z = [(1, 1), (1, -1), (-1, 1), (-1, -1), (x, 0), (1 + delta, y), (1 + delta, -y)]
    alpha = [0.5, 1.0, 2.0, "1/10", 3.0][rng.integers(5)]
    return Start(shuffled(rng, z), A=None, alpha=alpha, layers=200)


def heights(rng: Rng) -> Start:
    """Mirror images in the last coordinate, some of them very high: ties that last."""
    d = int(rng.integers(2, 4))
    m = int(rng.integers(3, 13))
    z: list[list[int]] = []
    for _ in range(int(rng.integers(1, 4))):
        base = rng.integers(-m, m + 1, d - 1).tolist()
        h = int(rng.choice([1, 2, 3, 8, 16, 32, 49, 64, 100, int(rng.integers(1, 200))]))
        z += [[*base, h], [*base, -h]]
    for _ in range(int(rng.integers(1, 4))):
        z.append([*rng.integers(-m, m + 1, d - 1).tolist(), 0])
    alpha = [1.0, 1.0, 3.0, 0.5, 2.0][rng.integers(5)]
    return Start(shuffled(rng, z), A=None, alpha=alpha, layers=200)


_DEEP = (
    ((1, 2, 0), (5, 4, 2), (5, 4, -2), (5, 0, 32), (5, 0, -32), (12, -4, 0)),
    ((3, -2, 0), (6, 3, 1), (6, 3, -1), (5, 0, 49), (5, 0, -49)),
)


def deep(rng: Rng) -> Start:
    """Relatives of two starts on which proofs of constant sets once failed."""
    z = np.array(_DEEP[rng.integers(len(_DEEP))], float)
    pairs = z[:, 2] != 0
    change = rng.integers(-2, 3, z.shape) * (rng.random(z.shape) < 0.3)
    change[:, 2] = 0
    for i in np.flatnonzero(pairs)[::2]:
        change[i + 1] = change[i]
        z[i : i + 2, 2] *= float(rng.choice([1, 1, 0.5, 2, 3]))
    alpha = [1.0, 3.0, 1.0, 0.5][rng.integers(4)]
    return Start(shuffled(rng, z + change), A=None, alpha=alpha, layers=200)


def ulps(rng: Rng) -> Start:
    """Tied starts moved by one unit in the last place here and there."""
    z = np.array(STARTS[str(rng.choice(["ties", "polygons", "whole numbers"]))][0](rng).z)
    up = rng.choice([-np.inf, np.inf], z.shape)
    return Start(rows(np.where(rng.random(z.shape) < 0.2, np.nextafter(z, up), z)), layers=12)


def mixed_scales(rng: Rng) -> Start:
    n, d = _size(rng, 8, 3)
    z = rng.integers(-3, 4, (n, d)) * 10.0 ** rng.choice(
        [-300, -200, -100, 0, 100, 200, 300], (n, d)
    )
    if rng.random() < 0.4:  # a column, or a token, of one size
        z = rng.integers(-3, 4, (n, d)) * 10.0 ** rng.choice([-300, -150, 0, 300], (n, 1))
    return Start(rows(z), layers=4)


def subnormals(rng: Rng) -> Start:
    n, d = _size(rng, 8, 3)
    tiny = float(np.nextafter(0, 1))
    z = rng.integers(-4, 5, (n, d)) * tiny
    if rng.random() < 0.5:
        other = rng.integers(-3, 4, (n, d)) * rng.choice([1.0, 1e-308, 1e-300, 2.0**-1000], (n, d))
        z = np.where(rng.random((n, d)) < 0.5, other, z)
    return Start(rows(z), layers=6)


def subnormal_ulps(rng: Rng) -> Start:
    n, d = _size(rng, 8, 3)
    z = rng.integers(-3, 4, (n, d)) * float(rng.choice([1.0, 1e-308, 1e-310, 1e-160]))
    up = rng.choice([-np.inf, np.inf], z.shape)
    return Start(rows(np.where(rng.random(z.shape) < 0.4, np.nextafter(z, up), z)), layers=6)


def huge(rng: Rng) -> Start:
    n, d = _size(rng, 8, 3)
    top = np.finfo(float).max
    z = rng.choice([1e308, -1e308, top, -top, 0.0, 5e307, 1e200, 1.5e308], (n, d))
    return Start(rows(z), layers=6)


def self_loops(rng: Rng) -> Start:
    """Singular A, for which tokens tie with themselves, and cycles of two."""
    d = 2
    if rng.random() < 0.5:
        A = np.diag([float(rng.integers(-2, 3)), 0.0])
    else:
        u, v = rng.integers(-3, 4, 2), rng.integers(-3, 4, 2)
        A = np.outer(u, v).astype(float)
    n = int(rng.integers(2, 7))
    alpha = [2.0, 1.0, 0.5, 0.3, 3.0][rng.integers(5)]
    return Start(rows(rng.integers(-3, 4, (n, d))), A=rows(A), alpha=alpha, layers=30)


def cycles(rng: Rng) -> Start:
    """Few integer tokens with rotations and -I, where nobody may lead for long."""
    d = int(rng.integers(1, 4))
    A = _rotation(rng, d) if rng.random() < 0.5 else -np.eye(d)
    alpha = [1.0, 1.0, 0.3, 0.5, 0.999, 2.0][rng.integers(6)]
    z = rng.integers(-4, 5, (int(rng.integers(2, 8)), d))
    return Start(rows(z), A=rows(A), alpha=alpha, layers=30)


def tiny_steps(rng: Rng) -> Start:
    n, d = _size(rng, 6, 3)
    alpha = [1e-9, 1e-300, 2.0**-54, 2.0**-55, 1e-16, 2.0**-1074, 1e300, 1e308][rng.integers(8)]
    return Start(rows(rng.integers(-3, 4, (n, d))), alpha=alpha, layers=4)


def rationals(rng: Rng) -> Start:
    n, d = _size(rng, 8, 3)
    q = int(rng.integers(2, 12))
    return Start(
        tuple(tuple(Fraction(int(x), q) for x in row) for row in rng.integers(-9, 10, (n, d)))
    )


def one_and_two(rng: Rng) -> Start:
    """The smallest configurations."""
    n, d = _size(rng, 2, 3)
    return Start(rows(rng.choice([0.0, 1.0, -1.0, 2.0, 0.5, 1e300, 1e-300], (n, d))), layers=6)


_ROTATION = ((0.0, -1.0), (1.0, 0.0))
_MINUS = ((-1.0, 0.0), (0.0, -1.0))
KNOWN = (  # tokens, A, alpha of failures that were once found
    Start(
        (
            (1.0, 2.0, 0.0),
            (5.0, 4.0, 2.0),
            (5.0, 4.0, -2.0),
            (5.0, 0.0, 32.0),
            (5.0, 0.0, -32.0),
            (12.0, -4.0, 0.0),
        ),
        None,
        1.0,
        60,
    ),
    Start(
        ((3.0, -2.0, 0.0), (6.0, 3.0, 1.0), (6.0, 3.0, -1.0), (5.0, 0.0, 49.0), (5.0, 0.0, -49.0)),
        None,
        3.0,
        60,
    ),
    Start(((1.0,), (-2.0,), (1e-323,)), None, 1.0),
    Start(((1e300, 0.0), (0.0, 1e-300), (0.0, 2e-300)), None, 1.0, 6),
    Start(((1.0, 0.0), (0.0, 1.0), (0.0, 2.0), (2.0, 1.0)), ((1e300, 0.0), (0.0, 1e-300)), 1.0, 6),
    Start(((1e308, 1e308),) * 3, None, 1.0, 3),
    Start(((1e-308, 1e-308),) * 3, None, 1.0, 3),
    Start(((0.0,), (2.0,)), None, 1.0),
    Start(((3.0, -1.0), (-1.0, 3.0), (2.0, 2.0), (-3.0, -2.0)), _ROTATION, 1.0, 30),
    Start(((3.0, -1.0), (-1.0, 3.0), (2.0, 2.0), (-3.0, -2.0)), _MINUS, 0.3, 20),
    Start(((3.0, -1.0), (-1.0, 3.0), (2.0, 2.0), (-3.0, -2.0)), _MINUS, 1.0, 30),
    Start(((-2.0, -3.0), (0.0, 3.0), (2.0, -2.0)), ((1.0, 0.0), (0.0, 0.0)), 2.0, 30),
    Start(((1.0, 0.0), (0.0, 2.0)), ((-2.0, 1.0), (6.0, -3.0)), 1.0, 30),
    Start(((1.0, 0.0), (0.0, 2.0)), ((-2.0, 1.0), (6.0, -3.0)), 0.5, 30),
    Start(
        (
            (1.0, 1.0),
            (1.0, -1.0),
            (-1.0, 1.0),
            (-1.0, -1.0),
            (0.5, 0.0),
            (1 + 1e-6, 0.7),
            (1 + 1e-6, -0.7),
        ),
        None,
        0.5,
        40,
    ),
    Start(((1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (0.5, 0.0)), None, 2.0**-54, 4),
    Start(((1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (0.5, 0.0)), None, 1e-9, 6),
    Start(((1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (0.5, 0.0)), None, 1e-300, 3),
)


def known(rng: Rng) -> Start:
    return KNOWN[rng.integers(len(KNOWN))]


def nearly_flat(rng: Rng) -> Start:
    """Tokens on a line or a plane but for a few units of the last place; some at 0, or at it."""
    n, d = int(rng.integers(3, 8)), int(rng.integers(2, 4))
    z = rng.integers(-2, 3, (n, d)).astype(float)
    z[:, 0] = float(rng.integers(0, 2))
    z += rng.integers(-3, 4, (n, d)) * 2.0 ** -int(rng.choice([20, 40, 50, 52]))
    return Start(rows(z), layers=8)


def outliers(rng: Rng) -> Start:
    """More tokens than are decided in integers at once, a few of them longer by many orders; some
    of the others are 0, or opposite to the long ones."""
    n, d = int(rng.integers(65, 85)), int(rng.integers(1, 4))
    z = rng.integers(-40, 41, (n, d)).astype(float)
    z[rng.random(n) < 0.1] = 0.0
    for row in rng.choice(n, int(rng.integers(1, 4)), replace=False):
        z[row] *= 2.0 ** int(rng.choice([20, 24, 25, 50, 54, 60, 110, 300]))
    return Start(rows(z), layers=2)


def no_scores(rng: Rng) -> Start:
    """A z = 0 for every token, or for all but one: uniform attention, and nearly."""
    n, d = int(rng.integers(2, 14)), int(rng.integers(1, 4))
    z = rng.integers(-4, 5, (n, d)) / float(rng.choice([1, 3, 8]))
    z[:, 0] = 0.0
    if rng.random() < 0.4:
        z[rng.integers(n), 0] = float(rng.choice([1.0, -1.0, 5e-324, 1e300]))
    A = np.zeros((d, d))
    A[:, 0] = rng.integers(-2, 3, d)
    return Start(rows(z), rows(A), [1.0, 0.5, 3.0][rng.integers(3)], 12)


STARTS: dict[str, tuple[Callable[[Rng], Start], int]] = {  # kind -> maker, share
    "whole numbers": (whole_numbers, 10),
    "signs": (signs, 5),
    "many signs": (many_signs, 1),
    "many": (many, 1),
    "gaussian": (gaussian, 6),
    "ties": (ties, 6),
    "duplicates": (duplicates, 4),
    "signed zeros": (signed_zeros, 4),
    "collinear": (collinear, 4),
    "antipodal": (antipodal, 4),
    "polygons": (polygons, 4),
    "lattices": (lattices, 3),
    "mirrored spirals": (mirrored_spirals, 3),
    "mirrored chains": (mirrored_chains, 6),
    "waits": (waits, 2),
    "heights": (heights, 8),
    "deep": (deep, 5),
    "ulps": (ulps, 4),
    "mixed scales": (mixed_scales, 4),
    "subnormals": (subnormals, 3),
    "subnormal ulps": (subnormal_ulps, 2),
    "huge": (huge, 3),
    "self-loops": (self_loops, 5),
    "cycles": (cycles, 5),
    "tiny steps": (tiny_steps, 3),
    "rationals": (rationals, 2),
    "one and two": (one_and_two, 2),
    "known": (known, 3),
    "nearly flat": (nearly_flat, 4),
    "outliers": (outliers, 1),
    "no scores": (no_scores, 2),
}
