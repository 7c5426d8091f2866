"""The float64 tokens of a walk as a tensor, moved and searched on its device.

The contract, the bounds and, operation by operation, the arithmetic are those of `ScaledTokens`;
tokens and A must be of moderate size, so that nothing is scaled. Only indices, the sets that are
found and the few rows of tied classes travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, final

import numpy as np

from ..._types import Array
from .. import kernels
from ..scaled import ClosedForm, FloatTokens, Sets, U, lengths_above
from .search import device_candidates


@final
class DeviceTokens(FloatTokens):
    """The distinct tokens `start` (m, d), a tensor, of a walk with the form A and step alpha."""

    def __init__(self, start: Array, A: np.ndarray | None, alpha: Fraction) -> None:
        import torch

        self.z = start.detach().to(torch.float64, copy=True).contiguous()
        self.A = None if A is None else self._tensor(A)
        self._closed: list[ClosedForm] = []
        self._set(self.z, A, alpha)
        self._error = 0.0

    def _tensor(self, x: np.ndarray) -> Any:
        import torch

        return torch.as_tensor(np.ascontiguousarray(x), device=self.z.device)

    def rounded(self, x: Sequence[Fraction | int], scale: int) -> list[float]:
        return [v.numerator / (v.denominator * scale) for v in x]

    def original_gap(self, gap: np.ndarray) -> np.ndarray:
        return gap

    def rounded_gap(self, gap: int, scale: int) -> float:
        return gap / scale

    def rows(self, ids: np.ndarray) -> Any:
        return self.z[self._tensor(ids)]

    def search(self, ids: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        return self._found(self.z if len(ids) == len(self.z) else self.rows(ids), runner_up)

    def candidates(self, x: np.ndarray, *, runner_up: bool) -> kernels.Candidates:
        return self._found(self._tensor(x), runner_up)

    def _found(self, x: Any, runner_up: bool) -> kernels.Candidates:
        slack = self.slack(lengths_above(x))
        return device_candidates(self.queries(x), self.z, slack, runner_up=runner_up)

    def refresh(self, k: int) -> None:
        before, self._layer = self._layer, k
        if before == k or not self._closed:
            return
        since, ids, limits, offsets = self._together()
        layers, which = np.unique(since, return_inverse=True)
        powers = np.array([self._decay(k - s) for s in layers.tolist()])
        self.z[ids] = limits + self._tensor(powers[which])[:, None] * offsets

    def _together(self) -> ClosedForm:
        """All closed forms as one: a device likes few large operations."""
        import torch

        if len(self._closed) > 1:
            since, *rest = zip(*self._closed, strict=True)
            self._closed = [ClosedForm(np.concatenate(since), *(torch.cat(x) for x in rest))]
        return self._closed[0]

    def approach(self, k: int, ids: np.ndarray, limits: Array) -> None:
        there = self._tensor(ids)
        ends = self._tensor(limits) if isinstance(limits, np.ndarray) else limits
        since = np.full(len(ids), k)
        self._closed.append(ClosedForm(since, there, ends, self.z[there] - ends))

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

    def state(self, label: np.ndarray | None) -> Any:
        return self.z.clone() if label is None else self.rows(label)

    def ends(self) -> np.ndarray:
        return self.limits().cpu().numpy()

    def limits(self) -> Any:
        limits = self.z.clone()
        if self._closed:
            closed = self._together()
            limits[closed.ids] = closed.limits
        return limits
