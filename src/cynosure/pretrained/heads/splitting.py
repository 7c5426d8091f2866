"""The projections of a layer, split into the matrices of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..families import Scoring
from ..families.adapter import Weights
from .head import Head
from .norms import QueryKeyNorm


def heads_of(
    weights: Weights, scoring: Scoring, scale: float, width: int, layer: int, causal: bool
) -> tuple[Head, ...]:
    """The `width` heads of a layer, in float64; groups of them may share one key and value."""
    (Wq, bq), (Wk, bk), (Wv, bv), (Wo, _) = weights
    k = len(Wq) // width

    def by_head(x: Any, rows: int, size: int) -> np.ndarray:
        a = np.zeros(rows) if x is None else as_array(x)
        own = a.reshape(-1, size, *a.shape[1:])
        return np.repeat(own, width // len(own), axis=0)

    m = Wo.shape[1] // width
    Q, K, V = by_head(Wq, 0, k), by_head(Wk, 0, k), by_head(Wv, 0, m)
    q, b, v = by_head(bq, len(Wq), k), by_head(bk, len(Wk), k), by_head(bv, len(Wv), m)
    O = as_array(Wo).reshape(len(Wo), width, -1).swapaxes(0, 1)  # noqa: E741 - W_O of the papers
    # queries and keys are multiplied by 1/√d_k, a stretch where they turn, and gains of norms
    turned = 0 if scoring.rotary is None else 2 * len(scoring.rotary.frequencies)
    stretch = np.where(np.arange(k) < turned, scoring.stretch, 1.0)[None]
    own = (1.0, 1.0) if scoring.gains is None else scoring.gains[:2]
    gains = [stretch * (g if isinstance(g, float) else as_array(g).reshape(-1, k)) for g in own]
    gain_q, gain_k = (np.repeat(g, width // len(g), axis=0) for g in gains)
    norms = _norms(weights, scoring, (Q, K, q, b))
    return tuple(
        Head(
            Q=scale * gain_q[i, :, None] * Q[i],
            K=gain_k[i, :, None] * K[i],
            W_V=V[i],
            W_O=O[i],
            b_Q=scale * gain_q[i] * q[i],
            b_K=gain_k[i] * b[i],
            b_V=v[i],
            layer=layer,
            index=i,
            causal=causal,
            rotary=scoring.rotary,
            cap=scoring.cap,
            window=scoring.window,
            slope=0.0 if scoring.slopes is None else float(scoring.slopes[i]),
            sink=None if scoring.sinks is None else float(as_array(scoring.sinks)[i]),
            norm=norms[i],
        )
        for i in range(width)
    )


def _norms(
    weights: Weights, scoring: Scoring, own: tuple[np.ndarray, ...]
) -> Sequence[QueryKeyNorm | None]:
    """The norm of each head: of its own queries and keys, or of those of all heads together."""
    width, k = own[0].shape[:2]
    if scoring.gains is None:
        return [None] * width
    eps = scoring.gains[2]
    if len(scoring.gains[0]) == k:
        return [QueryKeyNorm(Q, K, b_Q, b_K, eps) for Q, K, b_Q, b_K in zip(*own, strict=True)]
    (Wq, bq), (Wk, bk) = weights[:2]
    b_Q, b_K = (np.zeros(len(W)) if b is None else as_array(b) for W, b in ((Wq, bq), (Wk, bk)))
    return [QueryKeyNorm(as_array(Wq), as_array(Wk), b_Q, b_K, eps)] * width


def as_array(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
