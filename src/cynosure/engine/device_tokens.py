"""The float64 tokens of a walk as a tensor, moved and searched on its device.

The contract, the bounds and, operation by operation, the arithmetic are those of `ScaledTokens`;
tokens and A must be of moderate size, so that nothing is scaled. Only indices, the sets that are
found and the few rows of tied classes travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, final

import numpy as np

from .._types import Array, as_floats, is_torch
from . import kernels
from .kernels.device import device_candidates
from .scaled import MOST_SCORES, TINY, Decay, FloatTokens, Sets, U

__all__ = ["DeviceTokens", "there"]

FEWEST = 4096  # tokens; with fewer the CPU is done before a device has started


def there(z: Array, mask: np.ndarray | None = None) -> Array | None:
    """The tokens z (n, d) if they are on a GPU and so many that searching there pays."""
    if not is_torch(z) or z.device.type != "cuda" or z.ndim != 2 or len(z) < FEWEST:
        return None
    z = as_floats(z)  # as the CPU would take them
    return z if mask is None else z[mask.nonzero()[0].tolist()]


class _Closed(NamedTuple):
    """Rows that approach their limits by the factor rho per layer, each since its own layer."""

    since: np.ndarray
    ids: Any
    limits: Any
    offsets: Any


@final
class DeviceTokens(FloatTokens):
    """The distinct tokens `start` (m, d), a tensor, of a walk with the form A and step alpha."""

    def __init__(self, start: Array, A: np.ndarray | None, alpha: Fraction) -> None:
        import torch

        self.z = start.detach().to(torch.float64, copy=True).contiguous()
        self.A = None if A is None else self._tensor(A)
        self._decay, self._eta = Decay(alpha), float(alpha / (1 + alpha))
        self._closed: list[_Closed] = []
        self._layer = 0
        self._size = float(self.z.abs().max())
        self._error = 0.0
        self._radius = float(_norms(self.z).max()) * (1 + 1e-12)
        self._form_norm = 1.0 if A is None else float(np.linalg.norm(A)) * (1 + 1e-12)

    def _tensor(self, x: np.ndarray) -> Any:
        import torch

        return torch.as_tensor(np.ascontiguousarray(x), device=self.z.device)

    # -- units: those of the start ------------------------------------------------------------

    def rounded(self, x: Sequence[Fraction | int], scale: int) -> list[float]:
        return [v.numerator / (v.denominator * scale) for v in x]

    def original_gap(self, gap: np.ndarray) -> np.ndarray:
        return gap

    def rounded_gap(self, gap: int, scale: int) -> float:
        return gap / scale

    # -- scores -------------------------------------------------------------------------------

    def rows(self, ids: np.ndarray) -> Any:
        return self.z[self._tensor(ids)]

    def search(self, ids: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        return self._found(self.z if len(ids) == len(self.z) else self.rows(ids), runner_up)

    def candidates(self, x: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        return self._found(self._tensor(x), runner_up)

    def _found(self, x: Any, runner_up: bool) -> kernels.Candidates:
        slack = 2.0 * (1.0 + 1e-9) * self.score_error(_norms(x))
        return device_candidates(self._queries(x), self.z, slack, runner_up=runner_up)

    def _queries(self, x: Any) -> Any:
        return x if self.A is None else x @ self.A.T

    def score_error(self, norms: Any) -> Any:
        """Bound on |computed - exact| of <A z_i, z_j> given |z_i|."""
        d = self.z.shape[1]
        e = self._error * float(np.sqrt(d))
        rounding = (1.0 if self.A is None else 2.1) * (d + 2) * U * norms * self._radius
        return self._form_norm * (rounding + (norms + self._radius) * e + e * e) + TINY

    def near(self, c: int, others: np.ndarray) -> np.ndarray:
        apart = (self.rows(others) - self.z[c]).abs().amax(dim=1).cpu().numpy()
        return others[apart <= 2.0 * (1.0 + 1e-9) * self._error + TINY]

    def reaching(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if len(x) * len(self.z) > MOST_SCORES:
            return np.ones(len(self.z), dtype=bool)
        margin = 1e-6 * self._form_norm * self._radius**2
        query = self._queries(self._tensor(x))
        worst = (query @ self._tensor(y).T).amin(dim=1)
        top = (query @ self.z.T).maximum(query @ self._limits().T)
        return (top > worst[:, None] - margin).any(dim=0).cpu().numpy()

    # -- moving -------------------------------------------------------------------------------

    def refresh(self, k: int) -> None:
        if self._layer == k or not self._closed:
            self._layer = k
            return
        self._layer = k
        since, ids, limits, offsets = self._together()
        layers, which = np.unique(since, return_inverse=True)
        powers = np.array([self._decay(k - s) for s in layers.tolist()])
        self.z[ids] = limits + self._tensor(powers[which])[:, None] * offsets

    def _together(self) -> _Closed:
        """All closed forms as one: a device likes few large operations."""
        import torch

        if len(self._closed) > 1:
            since, *rest = zip(*self._closed, strict=True)
            self._closed = [_Closed(np.concatenate(since), *(torch.cat(x) for x in rest))]
        return self._closed[0]

    def approach(self, k: int, ids: np.ndarray, limits: Array) -> None:
        there = self._tensor(ids)
        ends = self._tensor(limits) if isinstance(limits, np.ndarray) else limits
        since = np.full(len(ids), k)
        self._closed.append(_Closed(since, there, ends, self.z[there] - ends))

    def step(self, ids: np.ndarray, targets: np.ndarray, sets: Sets, widest: int) -> None:
        import torch

        means = self.rows(targets)
        if sets:
            several = np.concatenate([members for members, _ in sets])
            needed, place = np.unique(several, return_inverse=True)
            rows = self.rows(needed).cpu().numpy()[place]
            parts = np.split(rows, np.cumsum([len(members) for members, _ in sets])[:-1])
            mixed = [w @ part / w.sum() for (_, w), part in zip(sets, parts, strict=True)]
            means = torch.cat((means, self._tensor(np.array(mixed))))
        there = self._tensor(ids)
        now = self.z[there]
        self.z[there] = now + self._eta * (means - now)
        self._error += (widest + 17) * U * self._size

    def jump(self, layers: int, rows: dict[int, list[float]]) -> None:
        self._error += (layers + 17) * U * self._size  # powers of rho in the closed forms
        if rows:
            self.z[self._tensor(np.array(list(rows)))] = self._tensor(np.array(list(rows.values())))

    # -- reading ------------------------------------------------------------------------------

    def state(self, label: np.ndarray | None) -> Any:
        return self.z.clone() if label is None else self.rows(label)

    def ends(self) -> np.ndarray:
        return self._limits().cpu().numpy()

    def _limits(self) -> Any:
        limits = self.z.clone()
        if self._closed:
            closed = self._together()
            limits[closed.ids] = closed.limits
        return limits


def _norms(z: Any) -> Any:
    """|z_i|, or a bound on it where the squares underflow."""
    import torch

    norms = z.square().sum(dim=1).sqrt()
    safe = z.abs().amax(dim=1) * float(np.sqrt(z.shape[1]))
    return torch.where(norms < 1e-140, safe, norms)
