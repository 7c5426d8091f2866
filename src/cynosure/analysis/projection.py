"""The nearest point of a convex hull, in the A-norm: Wolfe's active set, exact up to rounding."""

from __future__ import annotations

import numpy as np

from .._scale import exponent, lengths, scaled, shifted
from .._types import Array, as_matrix


def root_of(A: Array | None, d: int) -> tuple[np.ndarray, int]:
    """(L, h) with A = 4^h L L^T, so that |x|_A = 2^h |L^T x|, the entries of L at most about 1."""
    a = as_matrix(A)
    if a is None:
        return np.eye(d), 0
    if a.shape != (d, d):
        raise ValueError(f"A: expected shape {(d, d)}, got {a.shape}")
    h = exponent(a) // 2
    a = shifted(a, -2 * h)
    if not np.allclose(a, a.T, rtol=1e-12, atol=1e-14 * np.abs(a).max()):
        raise ValueError("A: the A-norm needs a symmetric matrix; pass (A + A.T) / 2")
    try:
        return np.linalg.cholesky((a + a.T) / 2), h
    except np.linalg.LinAlgError:
        least = shifted(np.linalg.eigvalsh((a + a.T) / 2)[0], 2 * h)
        raise ValueError(
            f"A: the A-norm needs a positive definite matrix; least eigenvalue {least:.3g}"
        ) from None


def foot(p: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    """Weights, of sum 1 and any sign, of the point nearest to y, or 0, of the affine hull of p."""
    if len(p) == 1:
        return np.ones(1)
    away = -p[0] if y is None else y - p[0]
    tail = np.linalg.lstsq((p[1:] - p[0]).T, away, rcond=None)[0]
    return np.concatenate([[1 - tail.sum()], tail])


def nearest(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Weights >= 0, of sum 1, of the point of conv{p} nearest to y (Wolfe 1976).

    The active rows are affinely independent; a row joins while it lies on the near side of the
    current point, <p_j - q, q - y> < 0 with q that point, and rows leave when the foot on their
    flat needs a negative weight. A test on the decrease of |q - y|^2 would stop at half the digits;
    the angle does not. Differences p_j - q are formed without y: it may be far away.
    """
    eps, tiny = np.finfo(float).eps, np.finfo(float).tiny
    norms = lengths(p - y)
    scale = min(norms.max(), lengths(p).max())
    active = [int(norms.argmin())]
    w = np.ones(1)
    visited: set[frozenset[int]] = set()
    while True:
        q = w @ p[active]
        x = scaled(q - y)[0]  # of its direction only the sign of products matters
        steps = p - q
        reach = np.linalg.norm(steps, axis=1)
        descent = -(steps @ x)
        rounding = 4 * eps * np.linalg.norm(x) * (p.shape[1] * reach + scale)
        j = int(np.where(descent > rounding, descent / np.maximum(reach, tiny), -1.0).argmax())
        if descent[j] <= rounding[j] or j in active or {*active, j} in visited:
            break
        active.append(j)
        visited.add(frozenset(active))
        w = np.append(w, 0.0)
        while True:
            target = foot(p[active], y)
            if target.min() > 0 or len(active) == 1:
                w = target
                break
            falling = target <= 0
            ratio = w[falling] / np.maximum(w[falling] - target[falling], tiny)
            w = w + min(1.0, ratio.min()) * (target - w)
            w[np.flatnonzero(falling)[ratio.argmin()]] = 0.0
            active = [a for a, wa in zip(active, w) if wa > 0]
            w = w[w > 0] / w[w > 0].sum()
    weights = np.zeros(len(p))
    weights[active] = w
    return weights
