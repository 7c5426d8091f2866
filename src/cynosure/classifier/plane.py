"""A plane: where the terms of a text are placed, and the anchor whose length says how many speak.

A word of weight u stands at (u, sqrt(1 - u^2)), up to its radius, the neutral anchor at (0, R). The
word follows the anchor exactly when R sqrt(1 - u^2) > 1, that is |u| < sqrt(1 - 1/R^2): a long
anchor silences the weak words. `Plane.lengths` chooses R for every text from kappa: terms are read
by falling |u| until

    |sum of u over the terms read| >= kappa sqrt(sum of u^2 over the others),

and R lies between the last word read and the first that is not. So the layers do the silencing:
with none of them every word speaks, with many only the strong. kappa = inf leaves the anchor as it
was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Float, Int

from .documents import Documents

__all__ = ["Ladder", "Plane", "Rays"]

_MOST_RAYS = 512  # beyond, directions are as good as all different
_DIGITS = 12  # directions that agree so far are one


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
class Plane:
    """Where the terms are placed, and how the mean of a text is decoded.

    embedding (terms, d), anchor (d,), v (rows, d), b (rows,); `prior` (rows,) is the decision for a
    text without any known term; `count` is m, how often the anchor counts in the mean; `kappa` says
    when enough was read, see the module (inf: everything is). `subject` (terms,), where words were
    gathered by subject, is the number of that of each term.
    """

    embedding: Float[np.ndarray, "terms d"]
    anchor: Float[np.ndarray, " d"]
    v: Float[np.ndarray, "rows d"]
    b: Float[np.ndarray, " rows"]
    prior: Float[np.ndarray, " rows"]
    count: float = 1.0
    kappa: float = float("inf")
    subject: Int[np.ndarray, " terms"] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.count < float("inf"):
            raise ValueError(f"count: the anchor counts a number > 0 of times, got {self.count}")
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
        near = np.round(z / radius[:, None], _DIGITS) + 0.0  # no -0.0
        if len(np.unique(near[: 4 * _MOST_RAYS], axis=0)) > _MOST_RAYS:
            return None
        _, first, ray = np.unique(near, axis=0, return_index=True, return_inverse=True)
        direction = z[first] / radius[first, None]
        if len(first) > _MOST_RAYS or np.abs(direction[ray] - z / radius[:, None]).max() > 1e-15:
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
            raise ValueError("kappa: reading by strength needs words on the anchor's side")
        value = rays.direction @ self.v[0] / max(float(np.linalg.norm(self.v[0])), 1e-300)
        value[np.abs(value) < 10.0**-_DIGITS] = 0.0
        length = 1.0 / np.sqrt(step[1:] * step[:-1]) * float(rays.radius.max())
        length = length if len(length) else np.array([rays.anchor_radius])
        return Ladder(value, level.astype(np.intp), length)

    def lengths(self, documents: Documents) -> np.ndarray:
        """The anchor's length in every text."""
        if self.kappa == float("inf"):
            return np.full(len(documents), float(np.linalg.norm(self.anchor)))
        silent, length = self._silent(documents), self.ladder.length
        return length[np.minimum(silent, len(length) - 1)]

    def heard(self, documents: Documents) -> np.ndarray:
        """Whether each entry of documents.indices is read; all of them if there is no kappa and no
        direction is the anchor's."""
        rays = self.rays
        if rays is None:
            return np.ones(len(documents.indices), bool)
        if self.kappa == float("inf"):
            return rays.ray[documents.indices] != rays.anchor_ray
        level = self.ladder.level[rays.ray[documents.indices]]
        return level > np.repeat(self._silent(documents), documents.sizes)

    def _silent(self, documents: Documents) -> np.ndarray:
        """The level up to which the anchor of each text silences its terms."""
        from ..engine.kernels.rays import silent_levels

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
