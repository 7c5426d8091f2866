"""Jacobians of a layer, and how far two of them share their singular vectors (coupling)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._shapes import Float
from .hooks import quiet
from .transformer import Transformer


def block_jacobians(
    transformer: Transformer, z: Any, layer: int, tokens: Sequence[int] | None = None
) -> Float[np.ndarray, "m d d"]:
    """J_t = d F(z)_t / d z_t - I of the whole layer F at the tokens z (n, d), for each t asked.

    The derivative of what the layer adds to token t, with respect to that token: the block
    Jacobian of arXiv 2407.07810 with t1 = t2. It is defined for BERT too, whose norm comes last, so
    that F(z) - z is not the output of a branch of the network.
    """
    import torch

    block, state = transformer._block(layer), transformer._tensor(z)
    n = state.shape[1]
    with quiet(transformer.model, transformer.adapter):
        step = transformer._step(block, transformer._rehearse(n)[layer], "block")

        def of(t: int) -> np.ndarray:
            if not 0 <= t < n:
                raise ValueError(f"tokens: there are 0 to {n - 1}, got {t}")

            def added(x: Any) -> Any:
                moved = torch.cat([state[:, :t], x[None, None], state[:, t + 1 :]], dim=1)
                return step(moved)[0, t] - x

            J = torch.autograd.functional.jacobian(added, state[0, t], vectorize=True)
            return J.double().cpu().numpy()

        return np.stack([of(t) for t in (range(n) if tokens is None else tokens)])


def coupling(J1: Float[np.ndarray, "d d"], J2: Float[np.ndarray, "d d"], K: int = 10) -> float:
    """m_K(J1, J2) = |U2ᵀ J1 V2 - S1|_F / |S1|_F on the first K singular vectors of J2.

    0: J1 has the singular vectors of J2. About 1: nothing in common, U2ᵀ J1 V2 is near 0. S1 are
    the K largest singular values of J1 (arXiv 2407.07810).
    """
    if not 1 <= K <= min(J1.shape):
        raise ValueError(f"K: expected 1 to {min(J1.shape)} singular vectors, got {K}")
    U, _, Vt = np.linalg.svd(J2)
    S = np.diag(np.linalg.svd(J1, compute_uv=False)[:K])
    size = float(np.linalg.norm(S))
    return float(np.linalg.norm(U[:, :K].T @ J1 @ Vt[:K].T - S)) / size if size else 0.0
