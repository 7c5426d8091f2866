"""Batches where they are: the launch of `fused_batch`, with the contract of `kernels.run_batch`."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ..kernels.batch import HIGH, LOW, TINY, form_norm
from ..kernels.contract import BatchRun, U

MOST_TOKENS, MOST_DEEP = 256, 64  # of a configuration: its tokens stay in the cache of one program


def runs_there(z: Any) -> bool:
    """True for a batch of tensors (B, n, d) that one launch on its device can carry."""
    from importlib.util import find_spec

    small = z.shape[-2] <= MOST_TOKENS and z.shape[-1] <= MOST_DEEP
    return bool(z.device.type == "cuda" and small and find_spec("triton") is not None)


def device_run_batch(
    z: Any, mask: np.ndarray, A: np.ndarray | None, eta: float, rho: float, saves: np.ndarray
) -> BatchRun:
    """`kernels.run_batch` of a float64 tensor; the tokens stay on its device."""
    import torch

    try:
        return _carried(z, mask, A, eta, rho, saves)
    except torch.cuda.OutOfMemoryError:
        b, n, d = z.shape
        asked = f"{b} configurations of {n} tokens, d = {d}, at {len(saves)} saved layers"
        advice = "pass fewer of them at a time, or a larger save_every"
        raise MemoryError(f"the device has no room for {asked}; {advice}") from None


def _carried(
    z: Any, mask: np.ndarray, A: np.ndarray | None, eta: float, rho: float, saves: np.ndarray
) -> BatchRun:
    import torch

    from . import fused_batch

    b, n, d = z.shape
    there = {"device": z.device}
    norm_A = 1.0 if A is None else form_norm(A)
    out = torch.empty((len(saves), b, n, d), dtype=torch.float64, **there)
    if not (norm_A == 0.0 or LOW < norm_A < HIGH):
        none = np.full((b, n), -1, np.intp)
        return BatchRun(out, none, none, none, np.ones(b, bool))
    work, offset = torch.empty_like(z), torch.empty_like(z)
    query = work if A is None else torch.empty_like(z)
    form = query if A is None else torch.as_tensor(np.ascontiguousarray(A), **there)
    target, born, settled, leader = (
        torch.empty((b, n), dtype=torch.int32, **there) for _ in range(4)
    )
    unsure = torch.empty(b, dtype=torch.int8, **there)
    # Python's power, layer by layer, as the walk of a single configuration takes it
    powers = torch.tensor([rho**k for k in range(int(saves[-1]) + 1)], dtype=torch.float64, **there)
    facts = [norm_A, eta, d * TINY, LOW, HIGH, (2.0 * (2 * d + 4) + 4 * (d + 2)) * U]
    facts += [sqrt(d) * 17 * U * (1 + 1e-9), 1.0 + (d + 6) * U, 1e-140, 1e140]
    wide = max(16, 1 << (n - 1).bit_length())
    fused_batch.carry[(b,)](
        z.contiguous(), torch.as_tensor(mask, **there).to(torch.int8), form, work, query, offset,
        target, out, born, settled, leader, unsure, powers,
        torch.as_tensor(saves.astype(np.int32), **there),
        torch.tensor(facts, dtype=torch.float64, **there), n, len(saves), int(saves[-1]),
        N=wide, D=d, ROWS=min(32, wide), KEYS=min(32, wide), FORM=A is not None, num_warps=4,
        enable_fp_fusion=False,
    )  # fmt: skip
    host = [x.cpu().numpy().astype(np.intp) for x in (born, settled, leader)]
    return BatchRun(out, host[0], host[1], host[2], unsure.cpu().numpy() != 0)
