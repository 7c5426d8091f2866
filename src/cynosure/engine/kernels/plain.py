"""Small inputs in plain NumPy: the same sets and classes, and nothing is imported or compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from .contract import Candidates, Classes, Floats, Indices

AT_ONCE = 2**16  # scores that are looked at together: they stay in the processor's cache


def plain_candidates(q: Floats, z: Floats, slack: Floats, *, runner_up: bool = False) -> Candidates:
    """Keys within slack of the best score, the contract of `kernels.candidates`: every score."""
    nq, m = len(q), len(z)
    best, counts = np.empty(nq, np.intp), np.empty(nq, np.intp)
    gap = np.empty(nq if runner_up else 0)
    rows: list[Indices] = []
    for start in range(0, nq, step := max(1, AT_ONCE // m)):
        block = slice(start, min(start + step, nq))
        scores = q[block] @ z.T
        each = np.arange(len(scores))
        best[block] = at = scores.argmax(axis=1)
        top = scores[each, at]
        row, key = np.nonzero(scores >= (top - slack[block])[:, None])
        counts[block] = np.bincount(row, minlength=len(each))
        rows.append(key)
        if runner_up:
            scores[row, key] = -np.inf
            gap[block] = top - scores.max(axis=1)
    indptr = np.concatenate(([0], counts.cumsum())).astype(np.intp)
    return Candidates(best, indptr, np.concatenate([*rows, np.empty(0, np.intp)]), gap)


def plain_classes(z: Floats) -> Classes:
    """Equal rows get equal labels, in order of first appearance; -0.0 is equal to 0.0."""
    seen: dict[bytes, int] = {}
    rows = np.ascontiguousarray(z + 0.0)  # -0.0 + 0.0 is 0.0: equal values are equal bits
    label = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in rows], np.intp)
    first = np.unique(label, return_index=True)[1]
    return Classes(label, first, np.bincount(label))


def all_distinct(z: Any) -> bool:
    """True when hashes prove that no two rows of the tensor z are equal; seldom False otherwise."""
    import torch

    bits = (z.double() + 0.0).view(torch.int64)
    bits = bits ^ ((bits >> 32) & 0xFFFFFFFF)  # short mantissas fill only the upper half
    odd = torch.arange(z.shape[1], device=z.device) * 0x1E3779B97F4A7C15 * 2 + 0x7F51AFD7ED558CCD
    mixed = bits * odd  # modulo 2^64, as the sum
    hashed = (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)).mul(0x5851F42D4C957F2D).sum(dim=1)
    hashed = torch.sort(hashed).values
    return bool((hashed[1:] != hashed[:-1]).all())
