"""The sets C_i, fast: every key that can maximise <q_i, z_j>, found in float64 with no loss.

A kernel never decides a tie. It returns, for each query q_i = A z_i, all keys whose computed score
is within slack_i of the best computed score; where that is one key and slack_i bounds the rounding,
C_i is proved, otherwise the caller decides the few candidates in rationals (`kernels.exact`).
Small inputs take the plain way (`plain`), which needs no compiler and gives the same sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._compiled import load, loaded, spare
from ..._types import is_torch
from .contract import BatchRun, Candidates, Classes, Floats, Indices, assemble
from .plain import all_distinct, plain_candidates, plain_classes

__all__ = [
    "BatchRun", "Candidates", "Classes", "assemble", "candidates", "classes", "place",
    "run_batch", "runs_there", "walked_sooner",
]  # fmt: skip

FEW_SCORES = 2048  # up to so many, a dense product is no slower than any kernel
MANY_TIES = 2**20  # members of sets that queries of 0 give; more are written out at once
FEW_ROWS = 16  # up to so many, a dictionary finds the classes as soon
SCORE, ROW = 7.0, 400.0  # nanoseconds of a score and of a row in NumPy
START, LAYER = 3e5, 5e4  # of a walk, and of each of its layers

NARROW = 256  # queries and keys; fewer are searched before they are rounded to float32
SHALLOW, DEEP = 8, 2**16  # coordinates for which that pays, and for which its bound was derived
FEW = 64  # up to this many queries or keys, one dense pass costs less than building a hull


def classes(z: Floats, there: Any | None = None) -> Classes:
    """Value classes of the rows of z (n, d): exact equality, with -0.0 equal to 0.0.

    `there` are the same rows as a tensor on a device, which sees sooner that all are distinct.
    """
    if there is not None and all_distinct(there):
        each = np.arange(len(z))
        return Classes(each, each, np.ones(len(z), np.intp))
    z, module = np.asarray(z, np.float64), "engine.kernels.equality"
    if len(z) <= FEW_ROWS or spare(ROW * len(z), module):
        return plain_classes(z)
    found: Classes = load(module).row_classes(z)
    return found


def candidates(q: Floats, z: Floats, slack: Floats, *, runner_up: bool = False) -> Candidates:
    """All keys z_j with computed <q_i, z_j> >= max_l <q_i, z_l> - slack_i, for each query q_i.

    q (nq, d), z (m, d) with distinct rows, slack (nq,) >= 0, float64. A computed score is within
    g_d |q_i| |z_j| of the exact one; rows may hold a few keys more than the definition (by
    4 (d + 2) u |q_i| R) but never one less. runner_up also asks for the distance to the best score
    outside the row. max |z| must be in [1e-140, 1e140].
    """
    q, z, slack = (np.ascontiguousarray(x, dtype=np.float64) for x in (q, z, slack))
    if q.ndim != 2 or z.ndim != 2 or q.shape[1] != z.shape[1] or slack.shape != q.shape[:1]:
        raise ValueError(
            f"expected q (nq, d), z (m, d) and slack (nq,), got {q.shape}, {z.shape}, {slack.shape}"
        )
    if not len(z) or not z.shape[1]:
        raise ValueError(f"expected at least one key of at least one coordinate, got z {z.shape}")
    scores = len(q) * len(z)
    equal = np.empty(0, bool)
    if scores > MANY_TIES and not q[:, 0].all():
        equal = np.logical_not(q.any(axis=1))
    if equal.sum() * len(z) > MANY_TIES:
        found = candidates(q[~equal], z, slack[~equal], runner_up=runner_up)
        return _with_equal(equal, found, z, runner_up)
    if scores <= FEW_SCORES or spare(scores * (SCORE + z.shape[1] / 16), _MAIN):
        return plain_candidates(q, z, slack, runner_up=runner_up)
    if z.shape[1] <= 2 and len(q) > FEW and len(z) > FEW:
        if z.shape[1] == 1:  # a line in the plane
            q, z = (np.column_stack((x, np.zeros(len(x)))) for x in (q, z))
        return _found("planar", q, z, slack, runner_up)
    if not runner_up and min(len(q), len(z)) >= NARROW and SHALLOW <= z.shape[1] <= DEEP:
        return _found("narrow", q, z, slack, False)
    return _found("pruned", q, z, slack, runner_up)


def _with_equal(
    equal: NDArray[np.bool_], found: Candidates, z: Floats, runner_up: bool
) -> Candidates:
    """Those of the other queries, and all keys for the queries that are 0; nothing is sorted."""
    everyone, width = np.arange(len(z)), np.diff(found.indptr)
    count = np.full(len(equal), len(z))
    count[~equal] = width
    indptr = np.concatenate(([0], np.cumsum(count)))
    indices = np.empty(indptr[-1], np.intp)
    for start in indptr[:-1][equal].tolist():
        indices[start : start + len(z)] = everyone
    shift = np.repeat(indptr[:-1][~equal] - found.indptr[:-1], width)
    indices[np.arange(len(found.indices)) + shift] = found.indices
    best, gap = np.zeros(len(equal), np.intp), np.full(len(equal), np.inf)
    best[~equal] = found.best
    if not runner_up:
        return Candidates(best, indptr, indices, np.empty(0))
    gap[~equal] = found.gap
    return Candidates(best, indptr, indices, gap)


_MAIN = "engine.kernels.pruned"  # the kernel that every other one needs


def _found(name: str, q: Floats, z: Floats, slack: Floats, runner_up: bool) -> Candidates:
    """What a compiled search finds."""
    load(_MAIN)
    search = getattr(load(f"engine.kernels.{name}"), f"{name}_candidates")
    found: Candidates = search(q, z, slack, **({"runner_up": True} if runner_up else {}))
    return found


def place(z: Floats, ids: Indices, limits: Floats, offsets: Floats, factor: float) -> None:
    """z[ids] = limits + factor offsets, in place; z (m, d) contiguous, ids distinct."""
    if len(ids) <= FEW_ROWS or not loaded(_MAIN):
        z[ids] = limits + factor * offsets
        return
    limits, offsets = np.ascontiguousarray(limits), np.ascontiguousarray(offsets)
    load(_MAIN).place(z, ids, limits, offsets, factor)


def runs_there(z: Any) -> bool:
    """True for a tensor (*b, n, d) of small configurations that `run_batch` carries on a GPU."""
    from ..gpu.batch import runs_there as there

    return there(z)


def walked_sooner(count: int, layers: int, n: int, d: int) -> bool:
    """True while a batch is done sooner one by one, in NumPy, than its kernel is compiled."""
    layer = LAYER + n * n * (SCORE + d / 16)  # most settle in the first of them
    return spare(count * (START + min(layers, 10) * layer), "engine.kernels.batch", most=16.0)


def run_batch(
    z: Any, mask: np.ndarray, A: Floats | None, eta: float, rho: float, saves: Indices
) -> BatchRun:
    """Hardmax layers 0..saves[-1] of every configuration z[b] of shape (n, d), stored at `saves`.

    mask (B, n) is True for tokens, False for padding, which neither moves nor attends nor is
    attended to. eta = alpha / (1 + alpha), rho = 1 / (1 + alpha), A None for the identity. The sets
    of layer saves[-1] are decided too. Results of configurations marked `unsure` are meaningless.
    A float64 tensor on a GPU is carried there (see `runs_there`), and BatchRun.z is a tensor.
    """
    far = is_torch(z)
    z = z.contiguous() if far else np.ascontiguousarray(z, dtype=np.float64)
    saves = np.ascontiguousarray(saves, dtype=np.intp)
    if z.ndim != 3 or mask.shape != z.shape[:2]:
        raise ValueError(f"expected z (B, n, d) and mask (B, n), got {z.shape} and {mask.shape}")
    if not len(saves) or saves[0] < 0 or (np.diff(saves) <= 0).any():
        raise ValueError(f"expected saves to be increasing layers >= 0, got {saves.tolist()}")
    if far:
        from ..gpu.batch import device_run_batch as run
    else:
        run = load("engine.kernels.batch").run_batch
    return run(z, np.ascontiguousarray(mask, dtype=bool), A, eta, rho, saves)
