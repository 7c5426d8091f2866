"""Float64 tokens with a proved bound on their distance to the exact ones (docs/mathematics.md C8).

Scores are computed from tokens and A scaled by powers of two that bring their largest entries near
1: that keeps every maximiser, and nothing overflows. A coordinate that underflows on the way
changes a score by less than `TINY`, which the bound on scores contains.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from fractions import Fraction
from math import exp, log1p
from typing import NamedTuple, TypeAlias, final

import numpy as np

from .._types import Array
from . import kernels

__all__ = ["Decay", "FloatTokens", "ScaledTokens", "moderate"]

U = 2.0**-53
TINY = 1e-290  # far above what underflow can do to a score of scaled tokens, far below any score
MOST_SCORES = 4_000_000  # a search for rivals that needs more of them finds everybody
_LONG = 2**15  # layers in closed form up to which a power of the rounded rho will do
_MODERATE = 30  # a largest entry in [2^-30, 2^30] is left as it is


Sets: TypeAlias = list[tuple[np.ndarray, np.ndarray]]  # members of each, and their multiplicities


class FloatTokens(abc.ABC):
    """The floats of a walk at one layer after another, wherever they live.

    Classes are NumPy indices; rows of tokens are arrays of the place where the floats live, and go
    back only into methods of the same object. Exact tokens are in the units of the start.
    """

    @abc.abstractmethod
    def rounded(self, x: Sequence[Fraction | int], scale: int) -> list[float]:
        """The row nearest to the exact token x / scale."""

    @abc.abstractmethod
    def original_gap(self, gap: np.ndarray) -> np.ndarray:
        """Gaps between scores, as `search` gives them, in the units of the start and A."""

    @abc.abstractmethod
    def rounded_gap(self, gap: int, scale: int) -> float:
        """The gap `gap / scale`, in the units of the start and A, as `search` would give it."""

    @abc.abstractmethod
    def rows(self, ids: np.ndarray) -> Array:
        """The rows of these classes."""

    @abc.abstractmethod
    def search(self, ids: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        """For each class of `ids`, a superset of the exact maximisers of <A z_i, .>."""

    @abc.abstractmethod
    def candidates(self, x: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        """The same for rows x given as floats, from `rounded`."""

    @abc.abstractmethod
    def near(self, c: int, others: np.ndarray) -> np.ndarray:
        """Those of `others` that may be at the very place of class c."""

    @abc.abstractmethod
    def reaching(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """True for the classes whose scores may come up to those of a followed token, ever.

        `x` are rows whose hull a token never leaves, `y` rows whose hull a token that it follows
        never leaves. A row l in closed form stays on the segment from z_l to its limit: if at both
        ends <A x, .> is below min_y <A x, y> by more than any rounding, for every x, it is beaten
        for ever.
        """

    @abc.abstractmethod
    def refresh(self, k: int) -> None:
        """Bring the rows in closed form to layer k."""

    @abc.abstractmethod
    def approach(self, k: int, ids: np.ndarray, limits: Array) -> None:
        """From layer k on the rows `ids` approach `limits` geometrically."""

    @abc.abstractmethod
    def step(self, ids: np.ndarray, targets: np.ndarray, sets: Sets, widest: int) -> None:
        """Move the rows `ids` by one layer: the first ones towards their `targets`, each of the
        others towards the mean of its set; none of which is larger than `widest`."""

    @abc.abstractmethod
    def jump(self, layers: int, rows: dict[int, list[float]]) -> None:
        """Skip `layers` layers: the rows without a closed form are given, correctly rounded."""

    @abc.abstractmethod
    def state(self, label: np.ndarray | None) -> Array:
        """The rows (of the classes `label`, repeated) in the units of the start."""

    @abc.abstractmethod
    def ends(self) -> np.ndarray:
        """The same as NumPy, the limit in place of every row in closed form."""


@final
class Decay:
    """rho^j, rho = 1 / (1 + alpha), for any number j of layers.

    Trap: the power of the rounded rho is off by up to j 2^-53 of itself: in 10^12 layers of
    alpha = 1e-12 in the fifth digit, and for alpha = 1e-17 it is 1, by which nothing ever moves.
    Up to `_LONG` layers it is taken all the same, as batches take it (`kernels.batch`).
    """

    def __init__(self, alpha: Fraction) -> None:
        self._rho = float(1 / (1 + alpha))
        self._rate = log1p(float(min(alpha, Fraction(1))))  # beyond 1 long powers are 0 anyway

    def __call__(self, layers: int) -> float:
        return self._rho**layers if layers <= _LONG else exp(-layers * self._rate)


class ClosedForm(NamedTuple):
    """Rows that approach their limits by the factor rho per layer, since layer `since`."""

    since: int
    ids: np.ndarray
    limits: np.ndarray
    offsets: np.ndarray  # from the limits, at layer `since`


@final
class ScaledTokens(FloatTokens):
    """The distinct tokens `start` (m, d) of a walk, as floats, at one layer after another.

    `z` are their rows, `refresh` brings those in closed form to the layer asked for. Every other
    row is moved by `step`, or put in its place by `jump`. `inexact` says that `start` are exact
    tokens correctly rounded.

    Units: `z` are the tokens over 2^unit, where unit is 0 unless they come near the ends of the
    range of floats. Exact tokens are in the units of `start`; `rounded` is the only way from them
    to rows of z, `original` the only way from rows of z to the units of `start`.
    """

    def __init__(
        self, start: np.ndarray, A: np.ndarray | None, alpha: Fraction, *, inexact: bool = False
    ) -> None:
        self.start = start
        exponent = _exponent(start)
        self._unit = exponent if exponent < -900 else 4 if exponent > 1015 else 0
        self.z = np.ldexp(start, -self._unit) if self._unit else start.copy()
        self._shift = _far_from_moderate(exponent - self._unit)
        self._A_shift = 0 if A is None else _far_from_moderate(_exponent(A))
        self.A = None if A is None else np.ldexp(A, -self._A_shift)
        self._decay, self._eta = Decay(alpha), float(alpha / (1 + alpha))
        self._closed: list[ClosedForm] = []
        self._layer = 0  # the layer of the rows in closed form
        keys = self._keys(self.z)
        self._size = float(np.abs(keys).max())  # bound on coordinates, which stay in the hull
        self._error = U * self._size if inexact else 0.0  # bound on coordinates of keys - exact
        self._radius = float(_norms(keys).max()) * (1 + 1e-12)
        self._form_norm = 1.0 if self.A is None else float(np.linalg.norm(self.A)) * (1 + 1e-12)

    # -- units --------------------------------------------------------------------------------

    def rounded(self, x: Sequence[Fraction | int], scale: int) -> list[float]:
        up, down = max(-self._unit, 0), max(self._unit, 0)
        # the quotient of two Python integers is correctly rounded
        return [(v.numerator << up) / ((v.denominator * scale) << down) for v in x]

    def original(self, rows: np.ndarray) -> np.ndarray:
        """All m rows of z, now or at their limits, in the units of `start`.

        Near the upper end of the range of floats scaling costs the last bits of the smallest ones:
        a row that is where it was at the start is taken from there.
        """
        if self._unit <= 0:
            return np.ldexp(rows, self._unit) if self._unit else rows.copy()
        still = (rows == np.ldexp(self.start, -self._unit)).all(axis=1)
        with np.errstate(over="ignore"):  # rounding may leave the hull, and with it the range
            back = np.ldexp(rows, self._unit)
        back = np.clip(back, self.start.min(axis=0), self.start.max(axis=0))
        return np.where(still[:, None], self.start, back)

    def original_gap(self, gap: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(gap, self._A_shift + 2 * (self._shift + self._unit))

    def rounded_gap(self, gap: int, scale: int) -> float:
        power = self._A_shift + 2 * (self._shift + self._unit)
        return (gap << max(-power, 0)) / (scale << max(power, 0))

    def _keys(self, rows: np.ndarray) -> np.ndarray:
        """Rows of z scaled for scores."""
        return np.ldexp(rows, -self._shift) if self._shift else rows

    # -- scores -------------------------------------------------------------------------------

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """z[ids]; `take` is an order of magnitude faster on short rows."""
        return np.take(self.z, ids, axis=0)

    def queries(self, x: np.ndarray) -> np.ndarray:
        """A x for keys x, row by row."""
        return x if self.A is None else x @ self.A.T

    def score_error(self, norms: np.ndarray) -> np.ndarray:
        """Bound on |computed - exact| of <A z_i, z_j> given |z_i|, in scaled units."""
        d = self.z.shape[1]
        e = self._error * np.sqrt(d)
        rounding = (1.0 if self.A is None else 2.1) * (d + 2) * U * norms * self._radius
        return self._form_norm * (rounding + (norms + self._radius) * e + e * e) + TINY

    def search(self, ids: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        everyone = len(ids) == len(self.z)
        return self.candidates(self.z if everyone else self.rows(ids), runner_up=runner_up)

    def candidates(self, x: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        keys = self._keys(self.z)
        x = keys if x is self.z else self._keys(x)
        slack = 2.0 * (1.0 + 1e-9) * self.score_error(_norms(x))
        return kernels.candidates(self.queries(x), keys, slack, runner_up=runner_up)

    def near(self, c: int, others: np.ndarray) -> np.ndarray:
        apart = np.abs(self._keys(self.z[others]) - self._keys(self.z[c])).max(axis=1)
        return others[apart <= 2.0 * (1.0 + 1e-9) * self._error + TINY]

    def reaching(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if len(x) * len(self.z) > MOST_SCORES:
            return np.ones(len(self.z), dtype=bool)
        margin = 1e-6 * self._form_norm * self._radius**2
        query = self.queries(self._keys(x))
        worst = (query @ self._keys(y).T).min(axis=1)
        keys, limits = self._keys(self.z), self._keys(self.limits())
        top = np.maximum(query @ keys.T, query @ limits.T)
        return (top > worst[:, None] - margin).any(axis=0)

    # -- moving -------------------------------------------------------------------------------

    def refresh(self, k: int) -> None:
        if self._layer != k:
            self._layer = k
            for since, ids, limits, offsets in self._closed:
                kernels.place(self.z, ids, limits, offsets, self._decay(k - since))

    def approach(self, k: int, ids: np.ndarray, limits: np.ndarray) -> None:
        self._closed.append(ClosedForm(k, ids, limits, self.rows(ids) - limits))

    def step(self, ids: np.ndarray, targets: np.ndarray, sets: Sets, widest: int) -> None:
        means = np.empty((len(ids), self.z.shape[1]))
        means[: len(targets)] = self.rows(targets)
        for row, (members, weight) in enumerate(sets, start=len(targets)):
            total = weight.sum()
            if self._unit > 0:  # a sum of tokens may be no float where their mean is one
                means[row] = (weight / total) @ self.z[members]
            else:
                means[row] = weight @ self.z[members] / total
        now = self.rows(ids)
        kernels.place(self.z, ids, now, means - now, self._eta)
        self._error += (widest + 17) * U * self._size

    def jump(self, layers: int, rows: dict[int, list[float]]) -> None:
        self._error += (layers + 17) * U * self._size  # powers of rho in the closed forms
        for c, row in rows.items():
            self.z[c] = row

    def state(self, label: np.ndarray | None) -> np.ndarray:
        rows = self.original(self.z)
        return rows if label is None else np.take(rows, label, axis=0)

    def ends(self) -> np.ndarray:
        return self.original(self.limits())

    def limits(self) -> np.ndarray:
        """z, with the limit in place of every row in closed form."""
        limits = self.z.copy()
        for closed in self._closed:
            limits[closed.ids] = closed.limits
        return limits


def moderate(start: np.ndarray, A: np.ndarray | None) -> bool:
    """True when neither the tokens nor A need to be scaled."""
    return all(x is None or _far_from_moderate(_exponent(x)) == 0 for x in (start, A))


def _exponent(x: np.ndarray) -> int:
    """e with the largest |entry| in [2^(e-1), 2^e); 0 when all are 0."""
    return int(np.frexp(np.abs(x).max())[1])


def _far_from_moderate(exponent: int) -> int:
    return exponent if abs(exponent) > _MODERATE else 0


def _norms(z: np.ndarray) -> np.ndarray:
    """|z_i|, or a bound on it where the squares underflow."""
    norms = np.sqrt(np.einsum("ij,ij->i", z, z))
    if norms.min() < 1e-140:
        norms = np.where(norms < 1e-140, np.abs(z).max(axis=1) * np.sqrt(z.shape[1]), norms)
    return norms
