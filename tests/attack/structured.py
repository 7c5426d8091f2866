"""More starts of the attack: those that only somebody who has read the engine would think of.

They aim at places where two parts of it meet: gaps as large as the bound of the float filter, faces
on which many tokens tie at once, leaders that make others leaders, forms without any symmetry,
tokens that meet exactly at later layers.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .starts import Rng, Start, rows, shuffled

_RIGHT = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (20, 21, 29))  # sides of right triangles


def nested_gaps(rng: Rng) -> Start:
    """Exact ties opened by 2^-k for many k at once, some far from the origin.

    Differences of scores lie on both sides of the bound within which floats do not decide.
    """
    d = int(rng.integers(1, 5))
    n = int(rng.integers(2, 11))
    base = rng.integers(-2, 3, (n, d)).astype(float)
    if rng.random() < 0.5:  # all of them in a small ball around one point
        base = base * 2.0 ** -int(rng.integers(5, 40)) + rng.integers(-3, 4, d)
    opened = rng.integers(-1, 2, (n, d)) * 2.0 ** -rng.integers(8, 60, (n, 1))
    return Start(shuffled(rng, base + opened), layers=16)


def faces(rng: Rng) -> Start:
    """Tokens on a face of codimension 2 or more in dimension 4 to 8, at rational weights."""
    d = int(rng.integers(4, 9))
    flat = int(rng.integers(1, d - 1))  # the dimension of the face
    corners = rng.integers(-3, 4, (int(rng.integers(2, flat + 3)), flat))
    parts = rng.multinomial(8, np.full(len(corners), 1 / len(corners)), int(rng.integers(1, 6)))
    on = np.concatenate((corners, parts @ corners / 8))
    face = np.concatenate((on, np.full((len(on), d - flat), float(rng.integers(1, 3)))), axis=1)
    below = rng.integers(-2, 2, (int(rng.integers(0, 6)), d)) / 2
    z = np.concatenate((face, below)) @ _unimodular(rng, d)
    return Start(shuffled(rng, z), A=None if rng.random() < 0.5 else rows(_form(rng, d)), layers=16)


def _unimodular(rng: Rng, d: int) -> np.ndarray:
    """A shear, or a permutation with signs: whole numbers, determinant 1 or -1."""
    if rng.random() < 0.6:
        return np.eye(d)[rng.permutation(d)] * rng.choice([-1.0, 1.0], d)
    return np.eye(d) + np.triu(rng.integers(-1, 2, (d, d)), 1) * (rng.random((d, d)) < 0.3)


def births(rng: Rng) -> Start:
    """Tokens that nearly lead, one beside the other: a follower leaves the hull to its neighbour.

    With norms cos(t / 2)^e between directions t apart, e near 1, a token is just inside or just
    outside the hull of the others; as those outside move, it may be born.
    """
    n = int(rng.integers(4, 25))
    angles = np.sort(rng.uniform(0, 2 * np.pi, n))
    gap = np.minimum(np.diff(angles, append=angles[:1] + 2 * np.pi), 1.5)
    radius = np.cos(gap / 2) ** rng.uniform(0.2, 2.5, n)
    z = radius[:, None] * np.stack((np.cos(angles), np.sin(angles)), axis=1)
    if rng.random() < 0.3:
        z = np.concatenate((z, rng.uniform(-0.5, 0.5, (n, 1))), axis=1)
    grid = 2.0 ** int(rng.integers(4, 30))
    alpha = [0.1, 0.25, 0.5, 1.0, 2.0, "1/3", 0.05][rng.integers(7)]
    return Start(shuffled(rng, np.round(z * grid) / grid), alpha=alpha, layers=40)


def forms(rng: Rng) -> Start:
    """A without symmetry, or with a condition number that no float holds."""
    d = int(rng.integers(1, 7))
    z = rng.integers(-3, 4, (int(rng.integers(2, 11)), d)).astype(float)
    return Start(rows(z), A=rows(_form(rng, d)), layers=20)


def _form(rng: Rng, d: int) -> np.ndarray:
    makers = (_triangle, _skew, _permutation, _hilbert, _graded, _nearly_singular, _projection)
    return makers[rng.integers(len(makers))](rng, d)


def _triangle(rng: Rng, d: int) -> np.ndarray:
    """Rotations by an angle of a right triangle, in whole numbers or in the floats next to them."""
    A = np.eye(d)
    a, b, c = _RIGHT[rng.integers(len(_RIGHT))]
    for k in range(0, d - 1, 2):
        A[k : k + 2, k : k + 2] = [[a, -b], [b, a]]
    return A / c if rng.random() < 0.4 else A


def _skew(rng: Rng, d: int) -> np.ndarray:
    B = rng.integers(-2, 3, (d, d)).astype(float)
    return B - B.T + float(rng.integers(-1, 2)) * np.eye(d)


def _permutation(rng: Rng, d: int) -> np.ndarray:
    return np.eye(d)[rng.permutation(d)] * rng.choice([-1.0, 1.0], d)


def _hilbert(rng: Rng, d: int) -> np.ndarray:
    i = np.arange(d)
    return 1.0 / (i[:, None] + i + 1.0 + int(rng.integers(3)))


def _graded(rng: Rng, d: int) -> np.ndarray:
    """Whole numbers times powers of ten down to 1e-150 and up to 1e150, entry by entry."""
    return rng.integers(-3, 4, (d, d)) * 10.0 ** rng.choice([-150, -75, 0, 75, 150], (d, d))


def _nearly_singular(rng: Rng, d: int) -> np.ndarray:
    u, v = rng.integers(-2, 3, d), rng.integers(-2, 3, d)
    return np.outer(u, v) + 2.0 ** -int(rng.integers(20, 80)) * np.eye(d)


def _projection(rng: Rng, d: int) -> np.ndarray:
    """Some coordinates count, with either sign, and the others do not."""
    return np.diag(rng.choice([0.0, 0.0, 1.0, -1.0], d))


def meetings(rng: Rng) -> Start:
    """Tokens that come to one place, layers later, from different sides.

    With alpha = 1 a pair that follows each other meets in its middle; other tokens may be there.
    """
    d = int(rng.integers(1, 4))
    half = rng.integers(-4, 5, (int(rng.integers(1, 6)), d)) * 4.0
    step = rng.integers(-3, 4, (len(half), d)) * 4.0
    z = np.concatenate((half - step, half + step, half[rng.random(len(half)) < 0.5]))
    if rng.random() < 0.4:
        z = np.concatenate((z, -z))
    A = [-np.eye(d), _permutation(rng, d), -np.diag(rng.choice([1.0, 2.0], d)), _skew(rng, d)]
    alpha = [1.0, 1.0, 1.0, 3.0, 2.0][rng.integers(5)]
    return Start(shuffled(rng, z), A=rows(A[rng.integers(4)]), alpha=alpha, layers=30)


def exact_fractions(rng: Rng) -> Start:
    """Rational tokens with different denominators and a rational step: nothing is dyadic."""
    n, d = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    over = rng.choice([1, 2, 3, 5, 7, 9, 10**20 + 39], (n, d))
    z = tuple(
        tuple(Fraction(int(x), int(q)) for x, q in zip(row, below, strict=True))
        for row, below in zip(rng.integers(-6, 7, (n, d)), over, strict=True)
    )
    alpha = ["1/3", "2/7", "1", "10/3", 0.5, 2.0**-9, 2.0**7][rng.integers(7)]
    return Start(z, alpha=alpha, layers=20)


def degenerate(rng: Rng) -> Start:
    """All zero, all equal, all but one equal, all on one ray."""
    n, d = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    z = np.zeros((n, d))
    way = int(rng.integers(4))
    if way == 1:
        z[:] = rng.integers(-2, 3, d)
    elif way == 2:
        z[:] = rng.integers(-1, 2, d)
        z[int(rng.integers(n))] = rng.integers(-2, 3, d)
    elif way == 3:
        z = rng.choice([0.0, -0.0, 1.0, 3.0, 2.0**-60], (n, 1)) * rng.integers(-2, 3, d)
    return Start(rows(z), layers=12)


STRUCTURED: dict[str, tuple[Callable[[Rng], Start], int]] = {  # kind -> maker, share
    "nested gaps": (nested_gaps, 5),
    "faces": (faces, 5),
    "births": (births, 5),
    "forms": (forms, 5),
    "meetings": (meetings, 5),
    "exact fractions": (exact_fractions, 2),
    "degenerate": (degenerate, 2),
}
