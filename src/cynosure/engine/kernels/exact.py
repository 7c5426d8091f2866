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

from ..budget import price

Vector = tuple[int, ...]
Exact = Sequence[Fraction]


def integers(rows: Sequence[Sequence[Fraction]]) -> tuple[list[Vector], int]:
    """Integer vectors W and one denominator D with rows = W / D."""
    common = lcm(*(x.denominator for row in rows for x in row))
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


def largest_of(scores: np.ndarray) -> tuple[list[int], int, int]:
    """`maximisers` of scores that are whole numbers already."""
    best = scores == (top := scores.max())
    below = scores[~best]
    return np.flatnonzero(best).tolist(), int(top), int(top - below.max()) if len(below) else -1


def exact_in_floats(z: np.ndarray) -> bool:
    """True when every dot product of two rows is exact in float64, in any order of summation.

    That is so when z = 2^-s W with integers |W| <= 2^b and 2 b + log2(d) <= 53: small grids then
    need no rationals. A largest entry in [2^-30, 2^30] keeps products from underflow.
    """
    size = float(max(z.max(), -z.min()))
    if not 2.0**-30 <= size <= 2.0**30:
        return False
    bits = int((52 - np.ceil(np.log2(z.shape[1]))) // 2)
    step = np.ldexp(1.0, int(np.frexp(size)[1]) - bits)
    head = z[:8] / step  # usually enough to say no
    if (head != np.rint(head)).any():
        return False
    scaled = z / step
    return bool((scaled == np.rint(scaled)).all()) and bool((scaled * step == z).all())


class ExactPath:
    """The trajectory in integers, computed only for the tokens and layers somebody asks for.

    A coordinate is an integer W over scale(k) = scale(0) (p+q)^k prod of tie factors, alpha = p/q.
    The layer z' = (q z + p m) / (p + q) is W' = L q W + p sum_j w_j (L/N) W_j, where w_j are
    multiplicities, N = sum w_j over C_i and L is the layer's least common multiple of the N. A
    token that settled at layer s towards u is W_k = ties ((p+q)^j - q^j) u + q^j W_s, j = k - s.

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
        spend: Callable[[int], None],
    ) -> None:
        self.start, self.count, self.sets, self.settled = start, count, sets, settled
        self.spend = spend
        self.p, self.q = alpha.numerator, alpha.denominator
        self.scale0 = scale
        self.factor: dict[int, int] = {}  # layer -> tie factor that entered the denominator there
        self.memo: dict[tuple[int, int], Vector] = {}
        self._scale = (0, scale)  # the last one asked for

    def scale(self, k: int) -> int:
        """The common denominator at layer k."""
        at, value = self._scale
        if at > k:
            at, value = 0, self.scale0
        if at < k:
            value *= (self.p + self.q) ** (k - at) * self.ties(at, k)
            self._scale = k, value
        return value

    def ties(self, after: int, until: int) -> int:
        """Product of the tie factors of the layers in (after, until]."""
        return prod(f for layer, f in self.factor.items() if after < layer <= until)

    def at(self, c: int, k: int) -> Vector:
        """Class c at layer k as integers over scale(k)."""
        memo, wanted = self.memo, [(c, k)]
        while wanted:  # a stack of our own: the way back may be thousands of layers long
            key = wanted[-1]
            if key in memo:
                wanted.pop()
                continue
            sources = self._sources(*key)
            missing = [source for source in sources if source not in memo]
            if missing:
                wanted += missing
                continue
            memo[key] = value = self._value(*key, sources)
            self.spend(len(sources) * len(value) * price(value[0].bit_length()))
            wanted.pop()
        return memo[c, k]

    def _sources(self, c: int, k: int) -> list[tuple[int, int]]:
        """What class c at layer k is made of: itself earlier, then those it moves towards."""
        if k == 0:
            return []
        settled = self.settled(c)
        if settled is not None and k > settled[0]:
            layer, classes = settled
        else:
            layer, classes = k - 1, self.sets(c, k - 1)
        return [(c, layer), *((j, layer) for j in classes)]

    def _value(self, c: int, k: int, sources: list[tuple[int, int]]) -> Vector:
        if k == 0:
            return self.start(c)
        p, q = self.p, self.q
        (_, layer), *others = sources
        own, rows = self.memo[c, layer], [self.memo[source] for source in others]
        weights = [self.count[j] for j, _ in others]
        total = sum(weights)
        f, far, near = self.ties(layer, k), (p + q) ** (k - layer), q ** (k - layer)
        out = []
        for x, column in zip(own, zip(*rows, strict=True), strict=True):
            pulled = sum(w * y for w, y in zip(weights, column, strict=True))
            value, rest = divmod(f * ((far - near) * pulled + near * total * x), total)
            assert rest == 0, "a tie factor is missing from the common denominator"
            out.append(value)
        return tuple(out)

    def jump(self, k: int, factor: int, values: dict[int, Vector]) -> None:
        """Arrive at layer k with the moving classes at `values`, the layers before it skipped."""
        self.factor[k] = factor
        self._scale = (0, self.scale0)
        self.memo.update({(c, k): w for c, w in values.items()})
