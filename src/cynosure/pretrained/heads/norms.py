"""What a head does to its queries and keys beyond Q and K: norms of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from ..._shapes import Float


@final
@dataclass(frozen=True, eq=False)
class QueryKeyNorm:
    """Queries and keys divided by their own root mean square (Qwen 3): r(q) = √(|q|²/d_k + eps).

    Q, K and their biases are those before the norm, of this head, or of all heads of the layer
    where the norm is taken over them together (OLMo 2); the gain behind it is part of `Head.Q` and
    `Head.K`. Then score_ij = <A x_i, x_j> / (r(Q x_i) r(K x_j)): the length of x_i no longer sets
    the temperature of its row, and that of x_j no longer makes it attractive.
    """

    Q: Float[np.ndarray, "k d"]
    K: Float[np.ndarray, "m d"]
    b_Q: Float[np.ndarray, "k"]
    b_K: Float[np.ndarray, "m"]
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
