"""Weights rounded to grades, grades placed in the plane, and terms read by grade.

Grades are symmetric: levels 0 = c_0 < c_1 < ... < c_H of |s|, each with two signs. Grade g becomes
the direction (u, sqrt(1 - u^2)), u proportional to its value and |u| <= 0.96, so that an anchor of
finite length silences any level. Term j stands at rho_j times that, rho_j in (1 - eps, 1]: the more
evidence it carries, the longer it is. Trap: radii must differ *within* a grade, or several words
lead together (equal tokens).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ..text.documents import Documents

MOST_LEVELS = 255  # 2 x 255 rays and the anchor's: few enough for one pass over a text
STEEPEST = 0.96  # largest |u|
_CLOSEST = 1e-4  # of two levels' u: their cosines with the anchor differ well beyond rounding


@final
@dataclass(frozen=True, eq=False)
class Graded:
    """Grade of every term (terms,), value of every grade (grades,), level (grades,) of |value|."""

    grade: np.ndarray
    value: np.ndarray
    level: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        """The weight of every term, as it is used."""
        return self.value[self.grade]

    def heard(self, documents: Documents, kappa: float) -> np.ndarray:
        """Whether each entry of documents.indices is read; inf reads all but the neutral ones."""
        level = self.level[self.grade[documents.indices]]
        if kappa == float("inf"):
            return level > 0
        from ..kernels.rays import silent_levels

        silent = silent_levels(
            documents.indptr, documents.indices, self.grade, self.level, self.value, kappa
        )
        return level > np.repeat(silent, documents.sizes)

    def leaders(self, documents: Documents, heard: np.ndarray) -> np.ndarray:
        """How many lead in each text: the grades heard, and the anchor."""
        present = np.zeros((len(documents), len(self.value)), bool)
        present[documents.text[heard], self.grade[documents.indices[heard]]] = True
        return 1 + present.sum(axis=1)


def graded(s: np.ndarray, df: np.ndarray, levels: int) -> Graded:
    """Weights rounded for reading: a term counts by its document frequency times |s_j|, or the many
    terms of small weight, which are never read, would take the levels."""
    return lloyd(s, df * np.abs(s), levels)


def lloyd(s: np.ndarray, weight: np.ndarray, levels: int) -> Graded:
    """Grades that minimise sum_j weight_j (|s_j| - level of j)^2, level 0 held at 0.

    A local minimum, from equally spaced levels; levels too close to be told apart are merged."""
    size = np.abs(s)
    order, ranked, mass, moment = sorted_sums(size, weight)
    spread = max(float(np.sqrt((weight @ s**2) / max(weight.sum(), 1e-300))), 1e-12)
    value = 3.0 * spread * np.arange(levels + 1) / levels
    for _ in range(60):
        edge = edges(ranked, value)
        inside = np.diff(mass[edge])
        moved = np.where(inside > 0, np.diff(moment[edge]) / np.maximum(inside, 1e-300), value)
        moved[0] = 0.0
        if np.array_equal(moved, value):
            break
        value = moved
    value = value[told_apart(value)]
    edge = edges(ranked, value)
    level = np.empty(len(s), dtype=np.intp)
    level[order] = np.repeat(np.arange(len(value)), np.diff(edge))
    middle = len(value) - 1
    grade = middle + np.where(s < 0, -level, level)
    steps = np.abs(np.arange(2 * middle + 1) - middle)
    return Graded(grade, np.sign(np.arange(2 * middle + 1) - middle) * value[steps], steps)


def sorted_sums(
    size: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rising order of the sizes, the sizes in it, and running sums of mass and mass x size."""
    order = np.argsort(size, kind="stable")
    ranked, held = size[order], mass[order]
    first, second = (np.concatenate(([0.0], np.cumsum(x))) for x in (held, held * ranked))
    return order, ranked, first, second


def edges(ranked: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Where the ranked sizes change from one value to the next."""
    cut = np.searchsorted(ranked, (value[1:] + value[:-1]) / 2)
    return np.concatenate(([0], cut, [len(ranked)]))


def told_apart(value: np.ndarray) -> list[int]:
    """Positions of rising values that differ enough from the one kept before."""
    least = _CLOSEST / STEEPEST * float(value[-1])
    kept = [0]
    for h in range(1, len(value)):
        if value[h] - value[kept[-1]] > least:
            kept.append(h)
    return kept


def placed(graded: Graded, evidence: np.ndarray, dim: int) -> tuple[np.ndarray, float]:
    """Places of the terms (terms, dim), and how much of a grade's value one unit of u stands for.

    In more than two dimensions the directions fan out around the anchor's axis, neighbouring levels
    on different axes: all keep their cosine with the anchor in order, and grades lie further apart.
    """
    top = max(float(np.abs(graded.value).max(initial=0.0)), 1e-12) / STEEPEST
    u = graded.value / top
    direction = np.zeros((len(u), dim))
    direction[:, 0] = u
    rest = np.sqrt(1.0 - u**2)
    aside = np.where((graded.level > 0) & (dim > 2), 0.6, 0.0)
    direction[:, 1] = rest * np.sqrt(1.0 - aside**2)
    if dim > 2:
        side = np.eye(dim - 2)[graded.level % (dim - 2)]
        direction[:, 2:] = (rest * aside)[:, None] * side
    return on_rays(direction, graded.grade, evidence), top


def on_rays(direction: np.ndarray, grade: np.ndarray, evidence: np.ndarray) -> np.ndarray:
    """Each term in the direction of its grade, the longer the more its evidence: so little that no
    token of another grade scores higher, and that an anchor between two levels parts them."""
    cosine = direction @ direction.T
    np.fill_diagonal(cosine, -1.0)
    near = np.unique(direction[:, 1])  # cosines with the anchor
    steps = np.sqrt(near[:-1] / near[1:]) if len(near) > 1 else np.zeros(1)
    eps = min(0.5 * (1.0 - float(max(cosine.max(), steps.max()))), 0.1)
    order = np.lexsort((-evidence, grade))
    at = grade[order]
    size = np.bincount(at, minlength=len(direction))
    rank = np.empty(len(at))
    rank[order] = 1.0 + np.arange(len(at)) - (np.cumsum(size) - size)[at]
    radius = 1.0 - eps * rank / (size[grade] + 1)
    return direction[grade] * radius[:, None]
