"""Hardmax layers in integers, from the definition alone: the oracle of B39 and B40.

Nothing here is shared with the engine that makes runs. With z_i = W_i / D, alpha = p/q,

    W_i' = l q W_i + p (l/|C_i|) sum_{j in C_i} W_j,   D' = l (p + q) D,   l = lcm of the |C_i|

(docs/mathematics.md C8). Floats only say which scores need not be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np

from .._types import as_rationals
from .checks import U

EFFORT = 4e5  # products of integers one run may cost, long ones counted by their length
_LONG = 1000  # bits from which an integer counts as more than one (products by Karatsuba)


class ExactLayer(NamedTuple):
    """One layer: tokens W/D as integers (n, d), equal tokens under one label, sets of labels.

    `sets[label[i]]` are the labels of the tokens that i follows.
    """

    W: np.ndarray
    D: int
    label: np.ndarray
    sets: list[np.ndarray]

    def tokens(self, factor: Fraction = Fraction(1)) -> np.ndarray:
        """factor W/D, each coordinate rounded once; infinite where that is no float."""
        top, bottom = factor.numerator, factor.denominator * self.D

        def rounded(x: int) -> float:
            try:
                return x * top / bottom
            except OverflowError:
                return float("inf") if x > 0 else float("-inf")

        return np.array([[rounded(int(x)) for x in row] for row in self.W]).reshape(self.W.shape)

    @property
    def leads(self) -> np.ndarray:
        """True for a token that follows only tokens equal to itself."""
        own = np.array([len(s) == 1 and s[0] == c for c, s in enumerate(self.sets)])
        return own[self.label]

    def followed(self, i: int) -> np.ndarray:
        """C_i as indices of tokens."""
        return np.flatnonzero(np.isin(self.label, self.sets[self.label[i]]))


def exact_layers(
    z: np.ndarray, A: np.ndarray | None, alpha: Fraction, last: int
) -> Iterator[ExactLayer]:
    """The layers 0..last from the tokens z (n, d), fewer where integers become too long."""
    W, D = _integers(z)
    form = None if A is None else _integers(A)[0]
    p, q = alpha.numerator, alpha.denominator
    spent = 0.0
    for _ in range(last + 1):
        distinct, label = _classes(W)
        queries = distinct if form is None else distinct @ form.T
        sets, compared = _maximisers(queries, distinct)
        yield ExactLayer(W, D, label, sets)
        spent += (W.size * (1 + W.shape[1]) + compared) * (1 + _bits(W) / _LONG) ** 1.6
        if spent > EFFORT:
            return
        count = np.bincount(label)
        size = [int(count[s].sum()) for s in sets]
        common = lcm(*size)
        weight = count.astype(object)
        pull = np.array(
            [
                (common // n) * (weight[s, None] * distinct[s]).sum(axis=0)
                for s, n in zip(sets, size, strict=True)
            ],
            dtype=object,
        )
        W, D = (common * q * distinct + p * pull)[label], common * (p + q) * D


def _integers(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Floats as integers over one denominator; floats are dyadic, so it is a power of two."""
    rows = as_rationals(values)
    D = max(x.denominator for row in rows for x in row)
    scaled = [[x.numerator * (D // x.denominator) for x in row] for row in rows]
    return np.array(scaled, dtype=object).reshape(values.shape), D


def _bits(W: np.ndarray) -> int:
    return max((abs(int(x)).bit_length() for x in W.ravel()), default=0)


def _classes(W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, and which of them each row is."""
    seen: dict[tuple[int, ...], int] = {}
    label = np.array([seen.setdefault(tuple(row), len(seen)) for row in W.tolist()], dtype=np.intp)
    return np.array(list(seen), dtype=object).reshape(len(seen), W.shape[1]), label


def _unit_rows(W: np.ndarray, one_scale: bool) -> np.ndarray:
    """Rows divided by a power of two so that the largest entry (of each, or of all) is below 1."""
    size = [1 << _bits(row) for row in W]
    if one_scale:
        size = [max(size)] * len(size)
    return np.array([[int(x) / s for x in row] for row, s in zip(W, size, strict=True)])


def _maximisers(queries: np.ndarray, keys: np.ndarray) -> tuple[list[np.ndarray], int]:
    """{ j : <q_i, k_j> largest } for every row q_i, and how many products of integers that took.

    Entries are below 1, so a float score of d terms is off by less than d (d + 4) u.
    """
    d = keys.shape[1]
    scores = _unit_rows(queries, one_scale=False) @ _unit_rows(keys, one_scale=True).T
    near = scores >= scores.max(axis=1, keepdims=True) - (4 * d * (d + 4) * U + 1e-300)
    sets, compared = [], 0
    for i, row in enumerate(near):
        among = np.flatnonzero(row)
        if len(among) > 1:
            exact = keys[among] @ queries[i]
            compared += len(among) * d
            among = among[exact == exact.max()]
        sets.append(among)
    return sets, compared
