"""A plane: where the terms of a text are placed, and the anchor whose length says how many speak.

A word of weight u stands at (u, sqrt(1 - u^2)), up to its radius, the neutral anchor at (0, R). The
word follows the anchor exactly when |u| < sqrt(1 - 1/R^2): a long anchor silences the weak words.
`Plane.lengths` chooses R for every text from kappa: terms are read by falling |u| until

    |sum of u over the terms read| >= kappa sqrt(sum of u^2 over the others),

and R lies between the last word read and the first that is not. kappa = inf leaves the anchor as it
was given. Several classes have a plane each and one reading (`Together`): the cosine of a term with
the anchor says how far its weights spread over the classes, in every plane alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, final

import numpy as np

from ..._shapes import Float
from ..text.documents import Documents

_MOST_RAYS = 512  # beyond, directions are as good as all different
_DIGITS = 12  # directions that agree so far are one
_BATCH = 2048  # texts that are read together at a time


class Rays(NamedTuple):
    """Tokens as radius times direction[ray]; the anchor likewise.

    `apart`: no token can follow one of another ray, the anchor excepted, whatever a text holds.
    """

    direction: np.ndarray
    ray: np.ndarray
    radius: np.ndarray
    anchor_ray: int
    anchor_radius: float
    apart: bool


class Ladder(NamedTuple):
    """Weight and level of each ray; length[h] is that of the anchor that silences levels 0..h."""

    value: np.ndarray
    level: np.ndarray
    length: np.ndarray


@final
@dataclass(frozen=True, eq=False)
class Together:
    """One reading for the planes of several classes. Terms are read by falling level until

        first - second >= kappa sqrt(2 sum of s_j^2 over the others),

    the two largest sums of the classes over the terms read; s_j is the standard deviation of the
    weights of term j, whose mean over the classes is 0. `level` (terms,), `value` (terms, classes).
    """

    level: np.ndarray
    value: np.ndarray
    kappa: float
    _last: list[tuple[Documents, np.ndarray]] = field(default_factory=list, repr=False)

    def silent(self, documents: Documents) -> np.ndarray:
        """The level up to which the terms of each text stay silent, (texts,)."""
        if self._last and self._last[0][0] is documents:  # every plane asks for the same texts
            return self._last[0][1]
        levels = int(self.level.max(initial=0)) + 1
        out = np.zeros(len(documents), np.intp)
        spread = (self.value**2).mean(axis=1)
        for start in range(0, len(documents) if self.kappa < float("inf") else 0, _BATCH):
            rows = np.arange(start, min(start + _BATCH, len(documents)))
            out[rows] = self._silent(documents.take(rows), levels, spread)
        self._last[:] = [(documents, out)]
        return out

    def _silent(self, documents: Documents, levels: int, spread: np.ndarray) -> np.ndarray:
        shape = len(documents), levels
        terms = documents.indices
        cell = documents.text * levels + self.level[terms]

        def sums(x: np.ndarray) -> np.ndarray:
            """Of the terms of each text and level, but level 0."""
            return np.bincount(cell, x[terms], levels * len(documents)).reshape(shape)[:, 1:]

        square = sums(spread)
        left = np.cumsum(square, axis=1) - square
        read = np.stack([np.cumsum(sums(v)[:, ::-1], axis=1)[:, ::-1] for v in self.value.T])
        second, first = np.partition(read, -2, axis=0)[-2:]
        enough = first - second >= self.kappa * np.sqrt(2 * left)
        enough &= square > 0  # a level without terms ends nothing
        last = levels - 2 - np.argmax(enough[:, ::-1], axis=1)
        return np.where(enough.any(axis=1), last, 0)

    @classmethod
    def of(cls, planes: Sequence[Plane]) -> tuple[Plane, ...]:
        """The planes, reading together."""
        ray = [plane.rays.ray for plane in planes if plane.rays is not None]
        level = [plane.ladder.level[g] for plane, g in zip(planes, ray, strict=True)]
        if any((one != level[0]).any() for one in level):
            raise ValueError("planes that read together need the same levels in each")
        value = np.column_stack([p.ladder.value[g] for p, g in zip(planes, ray)])
        one = cls(level[0], value, planes[0].kappa)
        return tuple(replace(plane, together=one) for plane in planes)


@final
@dataclass(frozen=True, eq=False)
class Plane:
    """Where the terms are placed, and how the mean of a text is decoded.

    embedding (terms, d), anchor (d,), v (rows, d), b (rows,); `prior` (rows,) is the decision for a
    text without any known term; `count` is m, how often the anchor counts in the mean; `kappa` says
    when enough was read, see the module (inf: everything is), `together` with which other planes.
    """

    embedding: Float[np.ndarray, "terms d"]
    anchor: Float[np.ndarray, " d"]
    v: Float[np.ndarray, "rows d"]
    b: Float[np.ndarray, " rows"]
    prior: Float[np.ndarray, " rows"]
    count: float = 1.0
    kappa: float = float("inf")
    together: Together | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.count < float("inf"):
            raise ValueError(f"count: expected a number > 0 of neutral tokens, got {self.count}")
        if not self.kappa >= 0:
            raise ValueError(f"kappa: expected a number >= 0, or inf, got {self.kappa}")
        if self.kappa < float("inf"):
            _ = self.ladder  # what has none cannot be read by strength

    @cached_property
    def rays(self) -> Rays | None:
        """The few directions all tokens lie on, or None when there are many."""
        z = np.concatenate((self.anchor[None], self.embedding))
        radius = np.linalg.norm(z, axis=1)
        if not (radius > 0).all():
            return None
        unit = z / radius[:, None]
        found = _distinct(np.round(unit, _DIGITS) + 0.0)  # no -0.0
        if found is None:
            return None
        first, ray = found
        direction = unit[first]
        if np.abs(direction[ray] - unit).max() > 1e-15:
            return None
        words, its = radius[1:], ray[1:].astype(np.intp)
        shortest, longest = np.full(len(first), np.inf), np.zeros(len(first))
        np.minimum.at(shortest, its, words)
        np.maximum.at(longest, its, words)
        score = longest * (direction @ direction.T)
        np.fill_diagonal(score, 0.0)
        apart = bool((shortest > score.max(axis=1, initial=0.0) * (1 + 2.0**-40)).all())
        return Rays(direction, its, words, int(ray[0]), float(radius[0]), apart)

    @cached_property
    def cosine(self) -> np.ndarray:
        """Of the angle between each two rays."""
        assert self.rays is not None
        return self.rays.direction @ self.rays.direction.T

    @cached_property
    def ladder(self) -> Ladder:
        """Levels of equal cosine with the anchor, its own direction first, and lengths between."""
        rays = self.rays
        if rays is None or len(self.v) != 1:
            raise ValueError(
                "kappa: reading by strength needs one decision row and words on few rays from the "
                "origin, as Placed puts them"
            )
        cosine = np.round(rays.direction @ rays.direction[rays.anchor_ray], _DIGITS)
        step, level = np.unique(-cosine, return_inverse=True)
        if not (step < 0).all():
            raise ValueError("kappa: reading by strength needs words on the neutral token's side")
        value = rays.direction @ self.v[0] / max(float(np.linalg.norm(self.v[0])), 1e-300)
        value[np.abs(value) < 10.0**-_DIGITS] = 0.0
        length = 1.0 / np.sqrt(step[1:] * step[:-1]) * float(rays.radius.max())
        length = length if len(length) else np.array([rays.anchor_radius])
        return Ladder(value, level.astype(np.intp), length)

    def lengths(self, documents: Documents) -> np.ndarray:
        """The anchor's length in every text."""
        if self.kappa == float("inf"):
            return np.full(len(documents), float(np.linalg.norm(self.anchor)))
        length = self.ladder.length
        return length[np.minimum(self._silent(documents), len(length) - 1)]

    def heard(self, documents: Documents) -> np.ndarray:
        """Whether each entry of documents.indices is read; all of them if there is no kappa and no
        direction is the anchor's."""
        rays = self.rays
        if rays is None:
            return np.ones(len(documents.indices), bool)
        if self.kappa == float("inf"):
            return rays.ray[documents.indices] != rays.anchor_ray
        level = self.ladder.level[rays.ray[documents.indices]]
        return level > self._silent(documents)[documents.text]

    def _silent(self, documents: Documents) -> np.ndarray:
        """The level up to which the anchor of each text silences its terms."""
        from ..kernels.rays import silent_levels

        if self.together is not None:
            return self.together.silent(documents)
        rays, ladder = self.rays, self.ladder
        assert rays is not None
        return silent_levels(
            documents.indptr, documents.indices, rays.ray, ladder.level, ladder.value, self.kappa
        )

    def tokens(self, terms: np.ndarray, length: np.ndarray) -> np.ndarray:
        """The anchor at that length (*b,), then the embeddings of `terms` (*b, m): (*b, m+1, d)."""
        size = float(np.linalg.norm(self.anchor))
        first = self.anchor * (length / size if size else np.ones_like(length))[..., None]
        return np.concatenate((first[..., None, :], self.embedding[terms]), axis=-2)


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """First appearance of each distinct row, in lexicographic order, and the number of every row;
    None if there are more than `_MOST_RAYS`. Rows are told apart by one number each, looked up
    among the few that there are: sorting all of them takes ten times as long."""
    key = (rows * np.sqrt(np.arange(2.0, 2.0 + rows.shape[1]))).sum(axis=1)  # equal for equal rows
    some = np.unique(key[: 4 * _MOST_RAYS])
    known = some if len(some) > _MOST_RAYS else np.unique(key)
    if len(known) > _MOST_RAYS:
        return None
    number = np.searchsorted(known, key)
    first = np.empty(len(known), np.intp)
    first[number[::-1]] = np.arange(len(rows))[::-1]  # the last one written stays
    if not (rows[first][number] == rows).all():  # two rows share a number
        _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return (first, number) if len(first) <= _MOST_RAYS else None
    order = np.lexsort(rows[first].T[::-1])
    return first[order], np.argsort(order)[number]
