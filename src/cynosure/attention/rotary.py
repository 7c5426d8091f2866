"""Rotary positions: queries and keys turned by the place of their token (arXiv 2104.09864)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from .._scale import lengths, scaled
from .._types import Array, as_mask, as_number, as_rationals, as_tokens, like, namespace
from ..engine import kernels
from ..engine.followed import Followed, of_each
from ..engine.kernels import exact
from .rules import Attention, Hardmax, RowAttention
from .scores import Sides, cast, sides

_U = 2.0**-53


@final
@dataclass(frozen=True, eq=False)
class Turn:
    """R_i turns token i by the angles i * frequencies.

    <R_i q, R_j k> = <R_{i-j} q, k>: a score depends on the offset j - i alone, and there is one
    form A for each. Planes are spanned by the coordinates m and m + r/2 of the first
    r = 2 len(frequencies); the others stand still, r < d_k in a model with partial rotary
    positions (GPT-NeoX).

    Trap: in float32 a model rounds its angles, by up to 2e-4 at position 4,096; in float64 not.
    """

    frequencies: np.ndarray

    @classmethod
    def of(cls, base: float | int, d: int) -> Turn:
        """The frequencies base^(-m/h), m = 0..h-1, h = floor(d/2): the first plane turns by 1."""
        half = d // 2
        return cls(float(base) ** (-np.arange(half) / max(half, 1)))

    def turned(self, x: Array, positions: Any) -> Array:
        """R_i x_i for each row x_i of x (*b, n, k), i being its position."""
        half = len(self.frequencies)
        angle = np.asarray(positions, dtype=np.float64)[..., None] * self.frequencies
        cos, sin = (cast(f(angle), x, "angles") for f in (np.cos, np.sin))
        a, b = x[..., :half], x[..., half : 2 * half]
        parts = [a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]]
        return namespace(x).concat(parts, axis=-1)


@final
@dataclass(frozen=True, eq=False)
class Rotary(RowAttention):
    """Attention whose scores depend on the distance of two tokens in the sequence.

        score_ij = <R_i A z_i, R_j z_j> = <A_{j-i} z_i, z_j>,   A_offset = R_{-offset} A (`form`)

    R_i turns plane m = 0..h-1 (h = floor(d/2), coordinates m and m + h) by i base^(-m/h); i counts
    the real tokens before it. Wraps `Hardmax`, `Softmax` or `Localmax`, whose A is that of tokens
    at the same place; queries Q z and keys K z with K invertible are this with A = Q K^-1 on tokens
    K z. With V = I hulls still shrink (docs/mathematics.md A8): P is row-stochastic.

    What is exact: a turn is made of rounded cosines, so R_i A z_i and R_j z_j are rounded to
    float64, once. The sets of hardmax are then those of exact arithmetic on these floats.

    Traps: the order of tokens matters, equal tokens need not stay equal, and a leader (C_i = {i})
    may lose its lead. For d < 4 the base changes nothing: there is one plane, of frequency 1.
    """

    attention: Attention = field(default_factory=Hardmax)
    base: float = 10_000.0

    def __post_init__(self) -> None:
        inner = self.attention
        if not isinstance(inner, RowAttention | Hardmax) or isinstance(inner, Rotary):
            raise TypeError(
                "attention: Rotary wraps Softmax, Localmax or Hardmax (scores of pairs of tokens), "
                f"got {inner!r}; for causal attention write Causal(Rotary(...))"
            )
        expected = "a positive number, such as 10000"
        base = as_number(self.base, "base", expected, lambda x: 0 < x < float("inf"))
        object.__setattr__(self, "base", base)

    @property
    def hard(self) -> bool:
        return self.attention.hard

    @property
    def positive(self) -> bool:
        return self.attention.positive

    def form(self, offset: int, d: int) -> np.ndarray:
        """A_offset, of the scores <A_offset z_i, z_j> of tokens of R^d with j - i = offset."""
        A = np.eye(d) if self.attention.A is None else like(self.attention.A, np.eye(d))
        return Turn.of(self.base, d).turned(A.T, -offset).T

    def sides(self, z: Array, real: Array | None = None) -> Sides:
        """The queries R_i A z_i and the keys R_j z_j."""
        queries, keys, power = sides(self.attention.A, z, real)
        mask = as_mask(real, tuple(z.shape[:-1]))
        place = np.arange(z.shape[-2]) if mask is None else np.cumsum(mask, axis=-1) - 1
        turn = Turn.of(self.base, z.shape[-1])
        return Sides(turn.turned(queries, place), turn.turned(keys, place), power)

    def share(self, scores: Array, allowed: Array | None) -> Array:
        return self._soft.share(scores, allowed)

    def share_scaled(self, scores: Array, power: Array | None, allowed: Array | None) -> Array:
        return self._soft.share_scaled(scores, power, allowed)

    @property
    def _soft(self) -> RowAttention:
        assert isinstance(self.attention, RowAttention)
        return self.attention

    def followed(self, z: Array, *, mask: Array | None = None) -> Followed:
        """The sets C_i of rotary hardmax; every token is a class of its own, equal ones too."""
        if not self.hard:
            raise ValueError(f"followed: only hardmax has sets C_i, this is {self.attention!r}")
        tokens = as_tokens(z)
        real = as_mask(mask, tokens.shape[:-1])
        return of_each(tokens, real, lambda x: Followed.of(_sets(*self.sides(x)[:2])))

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        if self.hard:
            return like(self.followed(z, mask=mask).weights(), z)
        return super().weights(z, mask=mask)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        if self.hard:
            return self.followed(z, mask=mask).pull(z)
        return super().pull(z, mask=mask)


def _sets(queries: np.ndarray, keys: np.ndarray) -> list[np.ndarray]:
    """C_i = argmax_j <q_i, k_j> in exact arithmetic on these floats, for every row.

    Several candidates are compared in integers, on the floats as they are: scaled ones have lost
    small digits.
    """
    groups = kernels.classes(keys)
    members = np.split(np.argsort(groups.label, kind="stable"), np.cumsum(groups.count)[:-1])
    if len(members) == 1:
        return [np.arange(len(keys))] * len(keys)
    q, k = scaled(queries, -1)[0], scaled(keys[groups.first])[0]
    bound = lengths(q) * float(lengths(k).max())
    near = kernels.candidates(q, k, (4 * q.shape[1] + 16) * _U * bound + 1e-290)
    rows = np.split(near.indices, near.indptr[1:-1])
    for i in np.flatnonzero(np.diff(near.indptr) > 1).tolist():
        table = np.vstack([queries[i], keys[groups.first[rows[i]]]])
        (query, *some), _ = exact.integers(as_rationals(table))
        best, _, _ = exact.maximisers(query, list(zip(rows[i].tolist(), some, strict=True)))
        rows[i] = np.array(best)
    return [np.sort(np.concatenate([members[c] for c in row.tolist()])) for row in rows]
