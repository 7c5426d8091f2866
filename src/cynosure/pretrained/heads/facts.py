"""Facts of a head as one row, and hypotheses counted over many heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..._display import Rows
from .head import EXACT, HYPOTHESES, Head, small_product


def facts(head: Head) -> dict[str, Any]:
    """One flat row: inertia and rank of A, spectrum of V, good triple, β, distances.

    `beta` is the spectral norm of A: on tokens of length R the head is a head of norm 1 at inverse
    temperature beta R². `bias` is |Kᵀb_Q| / |A|: large when the bias, not x_i, chooses the targets.
    """
    d = head.Q.shape[1]
    lam, sigma = head.symmetric_eigenvalues, np.linalg.svd(head.core, compute_uv=False)
    zero = EXACT * float(np.abs(lam).max())
    V, lead = head.V_eigenvalues, head.leading
    beta = float(sigma[0])
    row: dict[str, Any] = {
        "head": head.name,
        "layer": head.layer,
        "index": head.index,
        "d": d,
        "rank_A": int((sigma > EXACT * beta).sum()),
        "positive": int((lam > zero).sum()),
        "negative": int((lam < -zero).sum()),
        "zero": int((np.abs(lam) <= zero).sum()),
        "smallest_symmetric": float(lam[0]),
        "largest_symmetric": float(lam[-1]),
        "beta": beta,
        "trace_A": float(np.trace(head.core)),
        "bias": float(np.linalg.norm(head.K.T @ head.b_Q)) / (beta or 1.0),
        "rank_V": int(np.linalg.matrix_rank(small_product(head.W_O, head.W_V), rtol=EXACT)),
        "radius_V": float(np.abs(V[0])),
        "V_positive": int((V.real > EXACT * np.abs(V[0])).sum()),
        "V_negative": int((V.real < -EXACT * np.abs(V[0])).sum()),
        "V_complex": int((V.imag != 0).sum()),
        "trace_V": float(V.real.sum()),
        "leading": None if lead is None else lead.value,
        "gap": None if lead is None else lead.gap,
        "form": None if lead is None else lead.form,
    }
    for h in head.hypotheses():
        row[f"distance: {h.name}"] = h.value
        row[f"holds: {h.name}"] = h.holds
    return row


def hypothesis_counts(heads: Iterable[Head] | Sequence[Head]) -> list[dict[str, Any]]:
    """For each hypothesis: how many heads satisfy it, the nearest head and its distance."""
    heads = list(heads)
    if not heads:
        raise ValueError("heads: expected at least one head, got none")
    found = [[(h.holds, h.value) for h in head.hypotheses()] for head in heads]
    holds, distances = np.array(found).transpose(2, 1, 0)  # (hypothesis, head)
    rows = [
        {
            "hypothesis": name,
            "reference": reference,
            "heads": len(heads),
            "satisfied": int(held.sum()),
            "median_distance": float(np.median(far)),
            "nearest": heads[far.argmin()].name,
            "nearest_distance": float(far.min()),
        }
        for (name, reference), held, far in zip(HYPOTHESES.items(), holds, distances, strict=True)
    ]
    return Rows(rows)
