"""Integer arithmetic for the decisions that floating point cannot take (docs/mathematics.md C8).

Floats are dyadic rationals, so every token is an integer vector over a common denominator, and a
maximiser of <A z_i, z_j> does not depend on that denominator: comparing scores is comparing
Python integers, with no rounding at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import lcm, prod

import numpy as np

Vector = tuple[int, ...]
Exact = Sequence[Fraction]

__all__ = [
    "Exact", "ExactPath", "Vector", "dot", "exact_in_floats", "integers", "matvec", "maximisers",
    "product", "weighted_mean",
]  # fmt: skip


def integers(rows: Sequence[Sequence[Fraction]]) -> tuple[list[Vector], int]:
    """Integer vectors W and one denominator D with rows = W / D."""
    common = 1
    for row in rows:
        common = lcm(common, *(x.denominator for x in row))
    return [tuple(x.numerator * (common // x.denominator) for x in row) for row in rows], common


def dot(x: Vector, y: Vector) -> int:
    return sum(a * b for a, b in zip(x, y, strict=True))


def matvec(A: Sequence[Vector] | None, x: Vector) -> Vector:
    """A x, where None stands for the identity."""
    return x if A is None else tuple(dot(row, x) for row in A)


def product(x: Sequence[Fraction | int], y: Exact) -> Fraction:
    """<x, y>, a Fraction also where all terms are whole."""
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def weighted_mean(
    weights: Sequence[int], rows: Sequence[Sequence[Fraction | int]]
) -> list[Fraction]:
    """sum_j w_j x_j / sum_j w_j, coordinate by coordinate."""
    total = sum(weights)
    return [
        Fraction(sum(w * x for w, x in zip(weights, column, strict=True)), total)
        for column in zip(*rows, strict=True)
    ]


def maximisers(query: Vector, keys: Sequence[tuple[int, Vector]]) -> tuple[list[int], int, int]:
    """Indices of the keys that maximise <query, key>, the maximum, and the runner-up's distance.

    The distance to the best key outside the set is -1 when every key is a maximiser.
    """
    scores = [(dot(query, key), index) for index, key in keys]
    best = max(score for score, _ in scores)
    rest = [score for score, _ in scores if score < best]
    return [i for s, i in scores if s == best], best, best - max(rest) if rest else -1


def exact_in_floats(z: np.ndarray) -> bool:
    """True when every dot product of two rows is exact in float64, in any order of summation.

    That is so when z = 2^-s W with integers |W| <= 2^b and 2 b + log2(d) <= 53: small grids, the
    usual data with massive ties, then need no rationals at all.
    """
    size = float(max(z.max(), -z.min()))
    if size == 0.0:
        return True
    bits = int((52 - np.ceil(np.log2(z.shape[1]))) // 2)
    step = np.ldexp(1.0, int(np.frexp(size)[1]) - bits)
    head = z[:8] / step  # usually enough to say no
    if (head != np.rint(head)).any():
        return False
    scaled = z / step
    return bool((scaled == np.rint(scaled)).all())


class ExactPath:
    """The trajectory in integers, computed only for the tokens and layers somebody asks for.

    With alpha = p/q the layer z' = (q z + p m) / (p + q) becomes, over the common denominator
    scale(k) = scale(0) (p+q)^k prod of tie factors, W' = L q W + p sum_j w_j (L/N) W_j, where w_j
    are multiplicities, N = sum w_j over C_i and L is the layer's least common multiple of the N.
    A token that settled at layer s towards u is W_k = ties ((p+q)^j - q^j) u + q^j W_s, j = k - s.

    `start(c)` is token class c at layer 0, `sets(c, k)` its C_c at layer k, and `settled(c)` is
    (s, classes) once the class tends to the mean of `classes` by that closed form, else None.
    """

    def __init__(
        self,
        start: Callable[[int], Vector],
        scale: int,
        count: Sequence[int],
        alpha: Fraction,
        sets: Callable[[int, int], Sequence[int]],
        settled: Callable[[int], tuple[int, Sequence[int]] | None],
    ) -> None:
        self.start, self.count, self.sets, self.settled = start, count, sets, settled
        self.p, self.q = alpha.numerator, alpha.denominator
        self.scale0 = scale
        self.factor: dict[int, int] = {}  # layer -> tie factor that entered the denominator there
        self.memo: dict[tuple[int, int], Vector] = {}

    def scale(self, k: int) -> int:
        """The common denominator at layer k."""
        return self.scale0 * (self.p + self.q) ** k * self.ties(-1, k)

    def ties(self, after: int, until: int) -> int:
        """Product of the tie factors of the layers in (after, until]."""
        return prod(f for layer, f in self.factor.items() if after < layer <= until)

    def mean(self, classes: Sequence[int], k: int) -> list[Fraction]:
        """Multiplicity-weighted mean of classes at layer k, over scale(k)."""
        return weighted_mean([self.count[j] for j in classes], [self.at(j, k) for j in classes])

    def at(self, c: int, k: int) -> Vector:
        """Class c at layer k as integers over scale(k)."""
        if k == 0:
            return self.start(c)
        if (c, k) in self.memo:
            return self.memo[c, k]
        p, q = self.p, self.q
        settled = self.settled(c)
        if settled is not None and k > settled[0]:
            s, classes = settled
            w, f, far, near = self.at(c, s), self.ties(s, k), (p + q) ** (k - s), q ** (k - s)
            u = self.mean(classes, s)
            value = tuple(int(f * ((far - near) * x + near * y)) for x, y in zip(u, w, strict=True))
        else:
            t = k - 1
            while t > 0 and (c, t) not in self.memo:
                t -= 1
            value = self.at(c, t)
            for layer in range(t, k):  # climb iteratively: recursion would be k deep
                self.memo[c, layer] = value
                f = self.factor.get(layer + 1, 1)
                m = self.mean(self.sets(c, layer), layer)
                value = tuple(int(f * (q * x + p * y)) for x, y in zip(value, m, strict=True))
        self.memo[c, k] = value
        return value

    def jump(self, k: int, factor: int, values: dict[int, Vector]) -> None:
        """Arrive at layer k with the moving classes at `values`, the layers before it skipped."""
        self.factor[k] = factor
        self.memo = {key: w for key, w in self.memo.items() if self.settled(key[0]) is not None}
        self.memo.update({(c, k): w for c, w in values.items()})
