"""Named initial tokens, always seeded; `read` takes them from a file.

Every entry of ``CONFIGURATIONS`` returns tokens z as rows, a float64 array of shape (n, d), and can
be called without arguments. Randomness comes from ``numpy.random.default_rng(seed)`` and from
nowhere else, so the same call gives the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .._files import read as read

_Exact = list[tuple[Fraction, ...]]

_SQUARE = "1,1 1,-1 -1,-1 -1,1"
_TIED_SQUARE = f"{_SQUARE} -1/2,0 1/2,0"
_EMERGING = "1,1/3 -1/12,1/12 -1,-1 0,1/4 -3/10,-7/10 -3/5,-9/10 4/5,1/10 3/5,3/20"
_TRIANGLE = "1,1 1/2,-1/2 -1,-1"

_GOLDEN = {
    "G1": _EMERGING,
    "G2": _TIED_SQUARE,
    "G2a": f"{_TIED_SQUARE} 1,3/10",
    "G2b": f"{_TIED_SQUARE} 1,3/10 1,-3/10",
    "G2c": f"{_TIED_SQUARE} 1,0",
    "G3": f"{_TRIANGLE} 3/10,-1/5 1/10,-1/5",
    "G4": f"{_SQUARE} 1/2,0 11/10,7/10 11/10,-7/10",
}
GOLDEN: tuple[str, ...] = tuple(_GOLDEN)


def golden_exact(name: str = "G1") -> _Exact:
    """The golden tokens as rationals; their limits for A = I are known exactly.

    * G1  an emerging leader: for alpha = 1/2 token 1 leads from layer 1 at (-1/18, 5/36), for
      alpha = 1 at (-1/24, 1/6); for alpha = 1/10, 2, 10 it never leads.
    * G2  square with (-1/2, 0), (1/2, 0): tokens 4 and 5 tie on two corners for ever and tend to
      (-1, 0) and (1, 0), which are not leaders. G2a adds (1, 3/10), which breaks the tie after one
      layer; G2b adds (1, 3/10) and (1, -3/10), which does not; G2c adds (1, 0), which stays where
      it is and is no leader.
    * G3  triangle whose three corners lead although one of them is short.
    * G4  token 4 seems to tend to (1, 0) but becomes a leader (layer 61 for alpha = 1/10).
    """
    if name not in _GOLDEN:
        raise ValueError(f"golden configurations are {', '.join(GOLDEN)}; got {name!r}")
    return [tuple(map(Fraction, token.split(","))) for token in _GOLDEN[name].split()]


def golden(name: str = "G1") -> np.ndarray:
    """``golden_exact(name)`` rounded to float64.

    Trap: 3/10 is not a float. G2 and G2c are unchanged by rounding; in the others the rounded
    tokens are neighbours of the exact ones, and a tie between rounded tokens is another question.
    """
    return np.array([[float(x) for x in token] for token in golden_exact(name)])


FIGURE2_ALPHA = 0.5


def figure2(case: int = 1, seed: int = 0) -> np.ndarray:
    """Row ``case`` of Figure 2 of arXiv 2407.01602 (A = I, alpha = 1/2, layers 0, 1, 2, 5, 30).

    1. triangular polytope: corners (1,1), (1/2,-1/2), (-1,-1), then two tokens uniform in [0,1]^2,
       two uniform in [-1,0]^2, then (3/10,-1/5), (1/10,-1/5);
    2. emerging leader: golden case G1, no random token;
    3. square polytope: corners (+-1,+-1) and six tokens uniform in [-1/2,1/2]^2;
    4. clusters without a leader: golden case G2 and four tokens uniform in [-1/2,1/2]^2.

    The fixed tokens and the laws of the random ones are those of the published notebook. That
    notebook is unseeded, so the random tokens printed in the paper cannot be recovered: rows 1, 3
    and 4 are seeded stand-ins, row 2 is the paper's own data.
    """
    rng = np.random.default_rng(seed)
    if case == 1:
        g3 = golden("G3")
        above, below = rng.uniform(0, 1, (2, 2)), rng.uniform(-1, 0, (2, 2))
        return np.concatenate([g3[:3], above, below, g3[3:]])
    if case == 2:
        return golden("G1")
    if case == 3:
        return np.concatenate([golden("G2")[:4], rng.uniform(-0.5, 0.5, (6, 2))])
    if case == 4:
        return np.concatenate([golden("G2"), rng.uniform(-0.5, 0.5, (4, 2))])
    raise ValueError(f"Figure 2 has the cases 1, 2, 3, 4; got {case!r}")


def gaussian(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens N(0, I_d)."""
    return np.random.default_rng(seed).standard_normal(_shape(n, d))


def box(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens, uniform in [-1, 1]^d."""
    return np.random.default_rng(seed).uniform(-1, 1, _shape(n, d))


def sphere(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens, uniform on the unit sphere of R^d.

    With A = I all norms agree up to rounding, so every token leads and nothing moves.
    """
    z = np.random.default_rng(seed).standard_normal(_shape(n, d))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def ball(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens, uniform in the unit ball of R^d: r u, u on the sphere, r^d uniform."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(_shape(n, d))
    radius = rng.uniform(size=(n, 1)) ** (1 / d)
    return z * (radius / np.linalg.norm(z, axis=1, keepdims=True))


def polygon(
    n: int = 6,
    radius: float | int = 1,
    phase: float | int = 0,
    interior: int = 0,
    seed: int = 0,
) -> np.ndarray:
    """Regular n-gon radius (cos(phase + 2 pi i/n), sin(...)), then tokens uniform inside it.

    The corners have equal norms, so in exact arithmetic all lead and the cells of the interior
    tokens are the Voronoi cells of the corners (arXiv 2508.09628); in float64 the corners agree
    only to rounding.
    """
    if n < 3:
        raise ValueError(f"a polygon has n >= 3 corners; got n = {n}")
    if not radius > 0 or interior < 0:
        raise ValueError(f"need radius > 0 and interior >= 0; got {radius} and {interior}")
    angle = phase + 2 * np.pi * np.arange(n) / n
    corners = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rng = np.random.default_rng(seed)
    # The n triangles (0, corner i, corner i+1) have equal areas: pick one, then fold the square.
    i = rng.integers(n, size=interior)
    s, t = rng.uniform(size=(2, interior, 1))
    s, t = np.where(s + t > 1, 1 - s, s), np.where(s + t > 1, 1 - t, t)
    return np.concatenate([corners, s * corners[i] + t * corners[(i + 1) % n]])


def grid(n: int = 12, d: int = 2, seed: int = 0, size: int = 3) -> np.ndarray:
    """n independent tokens with integer coordinates uniform in -size..size.

    Scores tie often, tokens may coincide and may be zero: meant for testing exact ties.
    """
    if size < 0:
        raise ValueError(f"size is the largest coordinate, at least 0; got {size}")
    return np.random.default_rng(seed).integers(-size, size + 1, _shape(n, d)).astype(np.float64)


def rotated_square(angle: float | int = np.pi / 7) -> np.ndarray:
    """Golden case G2 turned by ``angle`` and rounded to float64.

    The exact rotation preserves the ties of G2 on the corners. Rounding preserves them for some
    angles only: the rounded tokens are taken as exact data, and for the other angles do not tie.
    """
    c, s = np.cos(angle), np.sin(angle)
    return golden("G2") @ np.array([[c, s], [-s, c]])


CONFIGURATIONS: dict[str, Callable[..., np.ndarray]] = {
    f.__name__: f
    for f in (figure2, golden, gaussian, ball, box, sphere, polygon, grid, rotated_square)
}


def _shape(n: int, d: int) -> tuple[int, int]:
    if n < 1 or d < 1:
        raise ValueError(f"need n >= 1 tokens in dimension d >= 1; got n = {n}, d = {d}")
    return n, d
