"""The sets C_i, fast: every key that can maximise <q_i, z_j>, found in float64 with no loss.

A kernel never decides a tie. It returns, for each query q_i = A z_i, all keys whose computed score
is within slack_i of the best computed score; where that is one key and slack_i bounds the rounding,
C_i is proved, otherwise the caller decides the few candidates in rationals (`kernels.exact`).
The compiled modules are imported on the first call, so importing this package is cheap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._types import is_torch
from .contract import BatchRun, Candidates, Classes, Floats, Indices
from .reference import reference_candidates
from .split import divided, split_over

__all__ = [
    "BatchRun", "Candidates", "Classes", "candidates", "classes", "place", "reference_candidates",
    "run_batch", "runs_there", "split_over",
]  # fmt: skip

SPATIAL = 2048  # fewer queries or keys than this do not repay the preparation of the space search
FEW = 64  # up to this many queries or keys, one dense pass costs less than building a hull


def classes(z: Floats, there: Any | None = None) -> Classes:
    """Value classes of the rows of z (n, d): exact equality, with -0.0 equal to 0.0.

    `there` are the same rows as a tensor on a device, which sees sooner that all are distinct.
    """
    from .equality import all_distinct, row_classes

    if there is not None and all_distinct(there):
        each = np.arange(len(z))
        return Classes(each, each, np.ones(len(z), np.intp))
    return row_classes(np.asarray(z, np.float64))


def candidates(q: Floats, z: Floats, slack: Floats, *, runner_up: bool = False) -> Candidates:
    """All keys z_j with computed <q_i, z_j> >= max_l <q_i, z_l> - slack_i, for each query q_i.

    q (nq, d), z (m, d) with distinct rows, slack (nq,) >= 0, float64. A computed score is any
    floating evaluation of the dot product, within g_d |q_i| |z_j| of the exact one; rows may hold a
    few keys more than the definition (by 4 (d + 2) u |q_i| R) but never one less. runner_up also
    asks for the distance to the best score outside the row. max |z| must be in [1e-140, 1e140].
    """
    q, z = (np.ascontiguousarray(x, dtype=np.float64) for x in (q, z))
    slack = np.ascontiguousarray(slack, dtype=np.float64)
    if q.ndim != 2 or z.ndim != 2 or q.shape[1] != z.shape[1] or slack.shape != q.shape[:1]:
        raise ValueError(
            f"expected q (nq, d), z (m, d) and slack (nq,), got {q.shape}, {z.shape}, {slack.shape}"
        )
    if not len(z) or not z.shape[1]:
        raise ValueError(f"expected at least one key of at least one coordinate, got z {z.shape}")
    if (found := divided(candidates, q, z, slack, runner_up)) is not None:
        return found
    if z.shape[1] <= 2 and len(q) > FEW and len(z) > FEW:
        from .planar import planar_candidates

        if z.shape[1] == 1:  # a line in the plane
            q, z = (np.column_stack((x, np.zeros(len(x)))) for x in (q, z))
        return planar_candidates(q, z, slack, runner_up=runner_up)
    if z.shape[1] == 3 and min(len(q), len(z)) >= SPATIAL:
        from .spatial import pays, spatial_candidates

        if pays(q, z, runner_up):
            return spatial_candidates(q, z, slack, runner_up=runner_up)
    from .narrow import narrow_candidates, pays_narrow

    if not runner_up and pays_narrow(q, z):
        return narrow_candidates(q, z, slack)
    from .pruned import pruned_candidates

    return pruned_candidates(q, z, slack, runner_up=runner_up)


def place(z: Floats, ids: Indices, limits: Floats, offsets: Floats, factor: float) -> None:
    """z[ids] = limits + factor offsets, in place; z (m, d) contiguous, ids distinct."""
    from .closed import place as written

    written(z, ids, np.ascontiguousarray(limits), np.ascontiguousarray(offsets), factor)


def runs_there(z: Any) -> bool:
    """True for a tensor (*b, n, d) of small configurations that `run_batch` carries on a GPU."""
    from .device_batch import runs_there as there

    return there(z)


def run_batch(
    z: Any, mask: np.ndarray, A: Floats | None, eta: float, rho: float, saves: Indices
) -> BatchRun:
    """Hardmax layers 0..saves[-1] of every configuration z[b] of shape (n, d), stored at `saves`.

    mask (B, n) is True for tokens, False for padding, which neither moves nor attends nor is
    attended to. eta = alpha / (1 + alpha), rho = 1 / (1 + alpha), A None for the identity. The sets
    of layer saves[-1] are decided too. Results of configurations marked `unsure` are meaningless.
    A float64 tensor on a GPU is carried there (see `runs_there`), and BatchRun.z is a tensor.
    """
    from .batch import run_batch as compiled
    from .device_batch import device_run_batch

    far = is_torch(z)
    z = z.contiguous() if far else np.ascontiguousarray(z, dtype=np.float64)
    saves = np.ascontiguousarray(saves, dtype=np.intp)
    if z.ndim != 3 or mask.shape != z.shape[:2]:
        raise ValueError(f"expected z (B, n, d) and mask (B, n), got {z.shape} and {mask.shape}")
    if not len(saves) or saves[0] < 0 or (np.diff(saves) <= 0).any():
        raise ValueError(f"expected saves to be increasing layers >= 0, got {saves.tolist()}")
    run = device_run_batch if far else compiled
    return run(z, np.ascontiguousarray(mask, dtype=bool), A, eta, rho, saves)
