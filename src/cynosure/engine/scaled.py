"""Float64 tokens with a proved bound on their distance to the exact ones (docs/mathematics.md C8).

Scores are computed from tokens and A scaled by powers of two that bring their largest entries near
1: that keeps every maximiser. What underflows changes a score by less than `TINY`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from fractions import Fraction
from math import exp, log1p
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from .._types import Array, is_torch, like, namespace
from . import kernels

U = 2.0**-53
TINY = 1e-290  # far above what underflow can do to a score of scaled tokens, far below any score
MOST_SCORES = 4_000_000  # a search for rivals that needs more of them finds everybody
_LONG = 2**15  # layers in closed form up to which a power of the rounded rho will do
_MODERATE = 30  # a largest entry in [2^-30, 2^30] is left as it is
_BAND = 24  # keys longer by a factor of 2^24 than others are searched apart
_FEW = 64  # up to so many keys integers decide as soon


Sets: TypeAlias = list[tuple[np.ndarray, np.ndarray]]  # members of each, and their multiplicities


class FloatTokens(abc.ABC):
    """The floats of a walk at one layer after another, wherever they live.

    Classes are NumPy indices; rows of tokens are arrays of the place where the floats live, and go
    back only into methods of the same object. Exact tokens are in the units of the start.
    """

    z: Array  # the rows now, those in closed form at the layer asked for last
    A: Array | None
    _error: float  # bound on coordinates of keys - exact
    _radius: float  # bound on lengths of keys
    _size: float  # bound on their coordinates, which stay in the hull
    _form_norm: float  # |A|
    _decay: Decay
    _eta: float
    _layer = 0  # the layer of the rows in closed form

    def _set(self, keys: Array, A: np.ndarray | None, alpha: Fraction) -> Array:
        """The bounds of keys and A, and the step; returns the lengths of the keys."""
        self._size, lengths = float(abs(keys).max()), lengths_above(keys)
        self._radius = float(lengths.max()) * (1 + 1e-12)
        self._form_norm = 1.0 if A is None else float(np.linalg.norm(A)) * (1 + 1e-12)
        self._decay, self._eta = Decay(alpha), float(alpha / (1 + alpha))
        return lengths

    def queries(self, x: Array) -> Array:
        """A x for keys x, row by row."""
        return x if self.A is None else x @ self.A.T

    def score_error(self, norms: Array, radius: float | None = None) -> Array:
        """Bound on |computed - exact| of <A z_i, z_j> given |z_i| and |z_j|, in units of keys."""
        d, radius = self.z.shape[1], self._radius if radius is None else radius
        e = self._error * float(np.sqrt(d))
        rounding = (1.0 if self.A is None else 2.1) * (d + 2) * U * norms * radius
        return self._form_norm * (rounding + (norms + radius) * e + e * e) + TINY

    def slack(self, norms: Array, radius: float | None = None) -> Array:
        """Twice that bound, and its own rounding."""
        return 2.0 * (1.0 + 1e-9) * self.score_error(norms, radius)

    def near(self, c: int, others: np.ndarray) -> np.ndarray:
        """Those of `others` that may be at the very place of class c."""
        apart = abs(self._keys(self.rows(others)) - self._keys(self.z[c]))
        far = apart.amax(dim=1).cpu().numpy() if is_torch(apart) else apart.max(axis=1)
        return others[far <= 2.0 * (1.0 + 1e-9) * self._error + TINY]

    def _keys(self, rows: Array) -> Array:
        """Rows of z scaled for scores."""
        return rows

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

    def reaching(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """True for the classes whose scores may come up to those of a followed token, ever.

        `x` are rows whose hull a token never leaves, `y` rows whose hull a token that it follows
        never leaves. A row l in closed form stays on the segment from z_l to its limit: if at both
        ends <A x, .> is below min_y <A x, y> by more than any rounding, for every x, it is always
        beaten.
        """
        if len(x) * len(self.z) > MOST_SCORES:
            return np.ones(len(self.z), dtype=bool)
        margin = 1e-6 * self._form_norm * self._radius**2
        x, y = (self._keys(like(rows, self.z)) for rows in (x, y))
        query, xp = self.queries(x), namespace(self.z)
        worst = xp.min(query @ y.T, axis=1)
        top = xp.maximum(query @ self._keys(self.z).T, query @ self._keys(self.limits()).T)
        found = xp.any(top > worst[:, None] - margin, axis=0)
        return found.cpu().numpy() if is_torch(found) else found

    @abc.abstractmethod
    def limits(self) -> Array:
        """z, with the limit in place of every row in closed form."""

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

    Trap: the power of the rounded rho is off by up to j 2^-53 of itself, and for alpha = 1e-17 it
    is 1. Up to `_LONG` layers it is taken all the same, as batches take it (`kernels.batch`).
    """

    def __init__(self, alpha: Fraction) -> None:
        self._rho = float(1 / (1 + alpha))
        self._rate = log1p(float(min(alpha, Fraction(1))))  # beyond 1 long powers are 0 anyway

    def __call__(self, layers: int) -> float:
        return self._rho**layers if layers <= _LONG else exp(-layers * self._rate)


class ClosedForm(NamedTuple):
    """Rows that approach their limits by the factor rho per layer, since layer `since`."""

    since: Any  # one layer, or that of each row
    ids: Array
    limits: Array
    offsets: Array  # from the limits, at layer `since`


@final
class ScaledTokens(FloatTokens):
    """The distinct tokens `start` (m, d) of a walk; `inexact` if they are exact ones rounded.

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
        self._closed: list[ClosedForm] = []
        keys = self._keys(self.z)
        lengths = self._set(keys, self.A, alpha)
        self._error = U * self._size if inexact else 0.0
        self._bands = [] if inexact or len(keys) <= _FEW else _bands(lengths)

    # -- units --------------------------------------------------------------------------------

    def rounded(self, x: Sequence[Fraction | int], scale: int) -> list[float]:
        up, down = max(-self._unit, 0), max(self._unit, 0)
        # the quotient of two Python integers is correctly rounded
        return [(v.numerator << up) / ((v.denominator * scale) << down) for v in x]

    def original(self, rows: np.ndarray) -> np.ndarray:
        """All m rows of z, now or at their limits, in the units of `start`.

        Trap: scaling large ones costs the last bits of the smallest, so rows at rest are copied.
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
        return np.ldexp(rows, -self._shift) if self._shift else rows

    # -- scores -------------------------------------------------------------------------------

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """z[ids]; `take` is an order of magnitude faster on short rows."""
        return np.take(self.z, ids, axis=0)

    def search(self, ids: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        everyone = len(ids) == len(self.z)
        return self.candidates(self.z if everyone else self.rows(ids), runner_up=runner_up)

    def candidates(self, x: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        keys = self._keys(self.z)
        x = keys if x is self.z else self._keys(x)
        norms, query = lengths_above(x), self.queries(x)
        if len(self._bands) > 1 and self._error == 0:  # else errors of the longest are in all
            return self._in_bands(query, norms, keys, runner_up)
        return kernels.candidates(query, keys, self.slack(norms), runner_up=runner_up)

    def _in_bands(
        self, query: np.ndarray, norms: np.ndarray, keys: np.ndarray, runner_up: bool
    ) -> kernels.Candidates:
        """Keys of like length are searched together: the rounding of a score <q, z> is in
        proportion to |z|, so one long key would make all short ones tie."""
        found, tops, slacks = [], [], []
        for ids in self._bands:
            rows = keys[ids]
            radius = float(lengths_above(rows).max()) * (1 + 1e-12)
            slacks.append(self.slack(norms, radius))
            found.append(kernels.candidates(query, rows, slacks[-1], runner_up=runner_up))
            tops.append(np.einsum("ij,ij->i", query, rows[found[-1].best]))
        top, slack = np.array(tops), np.array(slacks)
        kept = top + 2 * slack >= (top - slack).max(axis=0)
        best = np.where(kept, top, -np.inf)
        outside = top if not runner_up else np.where(kept, top - [f.gap for f in found], top)
        gap = best.max(axis=0) - outside.max(axis=0) if runner_up else np.empty(0)
        row, member = [], []
        for f, ids, keep in zip(found, self._bands, kept, strict=True):
            each = np.repeat(np.arange(len(query)), np.diff(f.indptr))
            row.append(each[keep[each]])
            member.append(ids[f.indices[keep[each]]])
        first = np.array([ids[f.best] for f, ids in zip(found, self._bands, strict=True)])
        return kernels.assemble(
            first[best.argmax(axis=0), np.arange(len(query))], len(keys), np.arange(len(query)),
            np.concatenate(row), np.concatenate(member), gap,
        )  # fmt: skip

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
        limits = self.z.copy()
        for closed in self._closed:
            limits[closed.ids] = closed.limits
        return limits


def _bands(norms: np.ndarray) -> list[np.ndarray]:
    """Keys of like length, the longest first; none so short that its squares underflow."""
    if norms.max() < 2.0 ** (_BAND - 1) * norms.min():
        return [np.arange(len(norms))]
    exponent = np.frexp(norms)[1]
    level = (exponent.max() - exponent) // _BAND
    last = level[(norms > 0) & (exponent >= -300)].max(initial=0)
    level = np.minimum(np.where(norms > 0, level, last), last)
    return [np.flatnonzero(level == x) for x in np.unique(level)]


def moderate(start: np.ndarray, A: np.ndarray | None) -> bool:
    """True when neither the tokens nor A need to be scaled."""
    return all(x is None or _far_from_moderate(_exponent(x)) == 0 for x in (start, A))


def _exponent(x: np.ndarray) -> int:
    """e with the largest |entry| in [2^(e-1), 2^e); 0 when all are 0."""
    return int(np.frexp(np.abs(x).max())[1])


def _far_from_moderate(exponent: int) -> int:
    return exponent if abs(exponent) > _MODERATE else 0


def lengths_above(z: Array) -> Array:
    """|z_i|, or a bound on it where the squares underflow."""
    if is_torch(z):
        import torch

        norms = z.square().sum(dim=1).sqrt()
        return torch.where(norms < 1e-140, z.abs().amax(dim=1) * float(np.sqrt(z.shape[1])), norms)
    norms = np.sqrt(np.einsum("ij,ij->i", z, z))
    if norms.min() < 1e-140:
        norms = np.where(norms < 1e-140, np.abs(z).max(axis=1) * np.sqrt(z.shape[1]), norms)
    return norms
