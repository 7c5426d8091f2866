"""The oracle: the full gram matrix, in blocks of rows, compared with its row maximum."""

from __future__ import annotations

import numpy as np

from .contract import Candidates, Floats, Indices


def reference_candidates(
    q: Floats, z: Floats, slack: Floats, *, runner_up: bool = False
) -> Candidates:
    """C_i = {j : <q_i, z_j> >= max_l <q_i, z_l> - slack_i}, by looking at every score.

    The only kernel whose rightness is obvious: the others are compared with it on sets.
    """
    nq, m = len(q), len(z)
    best = np.empty(nq, np.intp)
    counts = np.empty(nq, np.intp)
    gap = np.empty(nq if runner_up else 0)
    rows: list[Indices] = []
    step = max(1, 2**20 // m)
    for start in range(0, nq, step):
        block = slice(start, min(start + step, nq))
        scores = q[block] @ z.T
        best[block] = scores.argmax(axis=1)
        top = scores.max(axis=1)
        near = scores >= (top - slack[block])[:, None]
        counts[block] = near.sum(axis=1)
        rows.append(near.nonzero()[1])
        if runner_up:
            gap[block] = top - np.where(near, -np.inf, scores).max(axis=1)
    indptr = np.concatenate([[0], counts.cumsum()]).astype(np.intp)
    return Candidates(best, indptr, np.concatenate([*rows, np.empty(0, np.intp)]), gap)
