"""Float64 tokens with a proved bound on their distance to the exact ones (docs/mathematics.md C8).

Tokens are scaled by 2^-shift and A by 2^-A_shift, which brings their largest entries to [1/2, 1):
that is exact, keeps every maximiser, and nothing overflows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple, final

import numpy as np

from . import kernels

__all__ = ["ScaledTokens"]

_U = 2.0**-53


class ClosedForm(NamedTuple):
    """Rows that approach their limits by the factor rho per layer, since layer `since`."""

    since: int
    ids: np.ndarray
    limits: np.ndarray
    offsets: np.ndarray  # from the limits, at layer `since`


@final
class ScaledTokens:
    """The distinct tokens `start` (m, d) of a walk, as floats, at one layer after another.

    `z` are their rows, `refresh` brings those in closed form to the layer asked for. Every other
    row is moved by `step`, or put in its place by `jump`.
    """

    def __init__(self, start: np.ndarray, A: np.ndarray | None, alpha: Fraction) -> None:
        self.shift = int(np.frexp(max(start.max(), -start.min()))[1])
        self.z = np.ldexp(start, -self.shift)
        self.A_shift = 0 if A is None else int(np.frexp(np.abs(A).max())[1])
        self.A = None if A is None else np.ldexp(A, -self.A_shift)
        self._rho, self._eta = float(1 / (1 + alpha)), float(alpha / (1 + alpha))
        self._closed: list[ClosedForm] = []
        self._layer = 0  # the layer of the rows in closed form
        self._error = 0.0  # bound on the coordinates of z - exact z
        self._size = 1.0  # bound on the coordinates of z, which stay in the hull of layer 0
        self._radius = float(_norms(self.z).max()) * (1 + 1e-12)
        self._form_norm = 1.0 if self.A is None else float(np.linalg.norm(self.A)) * (1 + 1e-12)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """z[ids]; `take` is an order of magnitude faster on short rows."""
        return np.take(self.z, ids, axis=0)

    def queries(self, x: np.ndarray) -> np.ndarray:
        """A x, row by row."""
        return x if self.A is None else x @ self.A.T

    def score_error(self, norms: np.ndarray) -> np.ndarray:
        """Bound on |computed - exact| of <A z_i, z_j> given |z_i|."""
        d = self.z.shape[1]
        e = self._error * np.sqrt(d)
        rounding = (1.0 if self.A is None else 2.1) * (d + 2) * _U * norms * self._radius
        return self._form_norm * (rounding + (norms + self._radius) * e + e * e) + 1e-290

    def candidates(self, x: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        """For each row x_i, a superset of the exact maximisers of <A x_i, .> among the tokens."""
        slack = 2.0 * (1.0 + 1e-9) * self.score_error(_norms(x))
        return kernels.candidates(self.queries(x), self.z, slack, runner_up=runner_up)

    def refresh(self, k: int) -> None:
        """Bring the rows in closed form to layer k."""
        if self._layer != k:
            self._layer = k
            for since, ids, limits, offsets in self._closed:
                kernels.place(self.z, ids, limits, offsets, self._rho ** (k - since))

    def approach(self, k: int, ids: np.ndarray, limits: np.ndarray) -> None:
        """From layer k on the rows `ids` approach `limits` geometrically."""
        self._closed.append(ClosedForm(k, ids, limits, self.rows(ids) - limits))

    def step(self, ids: np.ndarray, means: np.ndarray, widest: int) -> None:
        """Move the rows `ids` towards `means`, each of at most `widest` tokens, by one layer."""
        now = self.rows(ids)
        kernels.place(self.z, ids, now, means - now, self._eta)
        self._error += (widest + 16) * _U * self._size

    def jump(self, layers: int, rows: dict[int, list[float]]) -> None:
        """Skip `layers` layers: the rows without a closed form are given, correctly rounded."""
        self._error += (layers + 16) * _U * self._size  # powers of rho in the closed forms
        for c, row in rows.items():
            self.z[c] = row

    def limits(self) -> np.ndarray:
        """z, with the limit in place of every row in closed form."""
        limits = self.z.copy()
        for closed in self._closed:
            limits[closed.ids] = closed.limits
        return limits

    def reaching(self, hulls: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """True for the rows whose scores may come up to those of a followed token, ever.

        `hulls` are pairs: rows X whose hull a token never leaves, and rows Y whose hull a token
        that it follows never leaves. A row l in closed form stays on the segment from z_l to its
        limit: if at both ends <A x, .> is below min_y <A x, y> by more than any rounding, for every
        x in X, it is beaten for ever.
        """
        limits = self.limits()
        margin = 1e-6 * self._form_norm * self._radius**2
        out = np.zeros(len(self.z), dtype=bool)
        for x, y in hulls:
            query = self.queries(x)
            worst = (query @ y.T).min(axis=1)
            top = np.maximum(query @ self.z.T, query @ limits.T)
            out |= (top > worst[:, None] - margin).any(axis=0)
        return out


def _norms(z: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", z, z))
