"""Named initial tokens, always seeded; `read` takes them from a file.

Every entry of ``CONFIGURATIONS`` returns tokens z as rows, a float64 array of shape (n, d), and can
be called without arguments. Randomness comes from ``numpy.random.default_rng(seed)`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .._exports import guard
from .._files import read as read
from .._registry import Registry
from .._types import Array, as_generator, as_tokens

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
    * G2  square with (-1/2, 0), (1/2, 0): tokens 4 and 5 always tie on two corners and tend to
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

    The fixed tokens and the laws of the random ones are those of the published notebook, which is
    unseeded: rows 1, 3 and 4 are seeded stand-ins, row 2 is the paper's own data.
    """
    rng = as_generator(seed)
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


def gaussian(
    n: int = 30, d: int = 2, seed: int = 0, scale: float | int = 1, norms: str = ""
) -> np.ndarray:
    """n independent tokens N(0, scale^2 I_d).

    `norms` gives them other lengths, times `scale`, in the same directions: "3" (all equal),
    "pareto:2" (P(|z| > r) = r^-2), "lognormal:0.5", "uniform:1:2"; "student:2" is the spherical t
    law with two degrees of freedom.
    """
    rng = as_generator(seed)
    return scale * _sized(rng.standard_normal(_shape(n, d)), norms, rng)


def box(n: int = 30, d: int = 2, seed: int = 0, scale: float | int = 1) -> np.ndarray:
    """n independent tokens, uniform in [-scale, scale]^d."""
    return scale * as_generator(seed).uniform(-1, 1, _shape(n, d))


def sphere(n: int = 30, d: int = 2, seed: int = 0, scale: float | int = 1) -> np.ndarray:
    """n independent tokens, uniform on the sphere of radius `scale` in R^d.

    With A = I all norms agree up to rounding, so every token leads and nothing moves.
    """
    z = as_generator(seed).standard_normal(_shape(n, d))
    return scale * (z / np.linalg.norm(z, axis=1, keepdims=True))


def ball(n: int = 30, d: int = 2, seed: int = 0, scale: float | int = 1) -> np.ndarray:
    """n independent tokens, uniform in the ball of radius `scale`: r u, u on the sphere."""
    rng = as_generator(seed)
    z = rng.standard_normal(_shape(n, d))
    radius = rng.uniform(size=(n, 1)) ** (1 / d)
    return scale * (z * (radius / np.linalg.norm(z, axis=1, keepdims=True)))


def shells(
    n: int = 30,
    d: int = 2,
    seed: int = 0,
    count: int = 2,
    inner: float | int = 1,
    outer: float | int = 2,
) -> np.ndarray:
    """n independent tokens on `count` spheres with radii from `inner` to `outer`, equally spaced.

    Token i is on sphere number `group(n, count)[i]`, the innermost first.
    """
    if not 0 < inner <= outer:
        raise ValueError(f"shells: expected radii 0 < inner <= outer, got {inner} and {outer}")
    which = group(n, count)
    return sphere(n, d, seed) * np.linspace(inner, outer, count)[which, None]


def mixture(
    n: int = 30, d: int = 2, seed: int = 0, groups: int = 3, spread: float | int = 0.2
) -> np.ndarray:
    """n tokens c_g + spread N(0, I) around `groups` centres c_g of law N(0, I).

    The label of token i is `group(n, groups)[i]`.
    """
    which, rng = group(n, groups), as_generator(seed)
    centres = rng.standard_normal(_shape(groups, d))
    return centres[which] + spread * rng.standard_normal(_shape(n, d))


def group(n: int, groups: int) -> np.ndarray:
    """The group, 0 to groups - 1, of each of n tokens: blocks of equal size, to one token."""
    if not 1 <= groups <= n:
        raise ValueError(f"groups: expected 1 to {n}, one token in each at least; got {groups}")
    return np.arange(n) * groups // n


def like(tokens: Array, n: int | None = None, seed: int | np.random.Generator = 0) -> np.ndarray:
    """Random tokens of the size of those given: uniform directions, the norms of `tokens`.

    `like(trace.seen[2])` is what a trained layer would see without any meaning. Row i has the norm
    of row i; with another number n the norms are drawn from those of the rows.
    """
    given = as_tokens(tokens, "tokens", ndim=2).astype(np.float64)
    rng = as_generator(seed)
    size = np.linalg.norm(given, axis=1, keepdims=True)
    if n is not None:
        size = size[rng.integers(len(size), size=_shape(n, 1)[0])]
    x = rng.standard_normal((len(size), given.shape[1]))
    return x * np.divide(size, np.linalg.norm(x, axis=1, keepdims=True))


def _sized(z: np.ndarray, norms: str, rng: np.random.Generator) -> np.ndarray:
    """The tokens with lengths of the law `norms`, those they have for ""."""
    if not str(norms):
        return z
    law, *given = str(norms).split(":")
    n = (len(z), 1)
    try:
        x = [float(number) for number in given]
        if not all(0 < number < np.inf for number in x):
            raise ValueError
        if law == "student" and len(x) == 1:
            return z / np.sqrt(rng.chisquare(x[0], n) / x[0])
        if law == "pareto" and len(x) == 1:
            size = 1 + rng.pareto(x[0], n)
        elif law == "lognormal" and len(x) == 1:
            size = rng.lognormal(0, x[0], n)
        elif law == "uniform" and len(x) == 2 and x[0] <= x[1]:
            size = rng.uniform(x[0], x[1], n)
        else:
            size = np.full(n, float(norms))
    except ValueError:
        raise ValueError(
            "norms: expected a number, pareto:A, lognormal:S, uniform:LOW:HIGH or student:DEGREES "
            f"with positive numbers, got {norms!r}"
        ) from None
    return z * (size / np.linalg.norm(z, axis=1, keepdims=True))


def polygon(
    n: int = 6, radius: float | int = 1, phase: float | int = 0, interior: int = 0, seed: int = 0
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
    rng = as_generator(seed)
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
    return as_generator(seed).integers(-size, size + 1, _shape(n, d)).astype(np.float64)


def rotated_square(angle: float | int = np.pi / 7) -> np.ndarray:
    """Golden case G2 turned by ``angle`` and rounded to float64; some angles keep its ties."""
    c, s = np.cos(angle), np.sin(angle)
    return golden("G2") @ np.array([[c, s], [-s, c]])


CONFIGURATIONS: Registry[Callable[..., np.ndarray]] = Registry(
    "configurations",
    "a function that gives tokens",
    callable,
    {
        f.__name__: f
        for f in (
            *(figure2, golden, gaussian, ball, box, sphere, shells, mixture),
            *(polygon, grid, rotated_square),
        )
    },
)


def _shape(n: int, d: int) -> tuple[int, int]:
    if n < 1 or d < 1:
        raise ValueError(f"need n >= 1 tokens in dimension d >= 1; got n = {n}, d = {d}")
    return n, d


guard(__name__)
