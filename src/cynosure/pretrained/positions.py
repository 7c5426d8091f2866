"""What a head does to its queries and keys beyond Q and K: rotary positions, norms of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float

__all__ = ["QueryKeyNorm", "Rotary"]


@final
@dataclass(frozen=True, eq=False)
class Rotary:
    """Rotary positions: token i turns its query and its key by the angles i * frequencies.

    With R_i this turn, <R_i q, R_j k> = <R_{i-j} q, k>: a score depends on the offset j - i alone,
    and a head has one form A for each, see `Head.form`. Planes are spanned by the coordinates m and
    m + r/2 of the first r = 2 len(frequencies); the others stand still, r < d_k in a model with
    partial rotary positions (GPT-NeoX).

    Trap: in float32 a model rounds its angles, by up to 2e-4 at position 4,096; in float64 not.
    """

    frequencies: Float[np.ndarray, "r"]

    def turned(self, q: Float[np.ndarray, "n k"], positions: Any) -> Float[np.ndarray, "n k"]:
        """R_i q_i for each row q_i, i being its position."""
        half = len(self.frequencies)
        angle = np.reshape(np.asarray(positions, dtype=np.float64), (-1, 1)) * self.frequencies
        cos, sin = np.cos(angle), np.sin(angle)
        a, b = q[:, :half], q[:, half : 2 * half]
        return np.hstack([a * cos - b * sin, b * cos + a * sin, q[:, 2 * half :]])


@final
@dataclass(frozen=True, eq=False)
class QueryKeyNorm:
    """Queries and keys divided by their own root mean square (Qwen 3): r(q) = √(|q|²/d_k + eps).

    Q, K and their biases are those before the norm; the gain behind it is part of `Head.Q` and
    `Head.K`. Then score_ij = <A x_i, x_j> / (r(Q x_i) r(K x_j)): the length of x_i no longer sets
    the temperature of its row, and that of x_j no longer makes it attractive.
    """

    Q: Float[np.ndarray, "k d"]
    K: Float[np.ndarray, "k d"]
    b_Q: Float[np.ndarray, "k"]
    b_K: Float[np.ndarray, "k"]
    eps: float

    def sizes(self, x: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray]:
        """r(Q x_i) and r(K x_i), as columns."""
        pairs = ((self.Q, self.b_Q), (self.K, self.b_K))
        q, k = (((x @ M.T + b) ** 2).mean(axis=1, keepdims=True) for M, b in pairs)
        return np.sqrt(q + self.eps), np.sqrt(k + self.eps)

    def lifted(self) -> QueryKeyNorm:
        """The same on tokens (x, 1)."""
        Q, K = np.column_stack([self.Q, self.b_Q]), np.column_stack([self.K, self.b_K])
        return replace(self, Q=Q, K=K, b_Q=0 * self.b_Q, b_K=0 * self.b_K)

    def within(self, B: Float[np.ndarray, "d r"]) -> QueryKeyNorm:
        """The same on coordinates x B."""
        return replace(self, Q=self.Q @ B, K=self.K @ B)
