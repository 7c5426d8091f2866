"""The projections of a layer, split into the matrices of its heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from .families import Scoring
from .families.adapter import Weights
from .heads import Head
from .positions import QueryKeyNorm

__all__ = ["as_array", "heads_of"]


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
    gain_q, gain_k = _gains(scoring, k)
    return tuple(
        Head(
            Q=scale * gain_q[:, None] * Q[i],
            K=gain_k[:, None] * K[i],
            W_V=V[i],
            W_O=O[i],
            b_Q=scale * gain_q * q[i],
            b_K=gain_k * b[i],
            b_V=v[i],
            layer=layer,
            index=i,
            causal=causal,
            rotary=scoring.rotary,
            cap=scoring.cap,
            window=scoring.window,
            slope=0.0 if scoring.slopes is None else float(scoring.slopes[i]),
            norm=None
            if scoring.gains is None
            else QueryKeyNorm(Q[i], K[i], q[i], b[i], scoring.gains[2]),
        )
        for i in range(width)
    )


def _gains(scoring: Scoring, k: int) -> tuple[np.ndarray, np.ndarray]:
    """What the coordinates of queries and of keys are multiplied by, besides 1/√d_k."""
    turned = 0 if scoring.rotary is None else 2 * len(scoring.rotary.frequencies)
    stretch = np.where(np.arange(k) < turned, scoring.stretch, 1.0)
    if scoring.gains is None:
        return stretch, stretch
    gain_q, gain_k = (as_array(gain) for gain in scoring.gains[:2])
    return stretch * gain_q, stretch * gain_k


def as_array(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
