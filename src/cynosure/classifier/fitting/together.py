"""Several classes, read together: a weight per term and class, one reading, one softmax.

The weights of a term over the classes have mean 0; their standard deviation, rounded to levels, is
the level at which it is read (`Together`). In the plane of class c, term j stands at

    (w_jc, cos a_j, sqrt(sin^2 a_j - w_jc^2)),

a_j growing with its level and w_jc its rounded weight: the anchor silences the same terms in every
plane, and terms of one level and weight are one cluster. A plane for each class that stopped by
itself would compare sums over different words.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..model.model import Model
from ..model.plane import Plane, Together
from ..text.documents import Documents
from .convex import decoders, log_ratio
from .held_out import HeldOut, sums
from .levels import STEEPEST, Graded, lloyd, on_rays

if TYPE_CHECKING:
    from .placement import Task

JOINT_LEVELS, _WEIGHTS = 24, 10  # of a term's spread, and of |weight|: 2 x 24 x 10 rays at most
_SLOPES = 2.0 ** np.arange(-4, 9)  # of the softmax that readings are compared by


@final
class Joint:
    """Texts held out, with the weights (terms, classes) of fits that do not know them."""

    def __init__(self, task: Task, rows: np.ndarray, s: np.ndarray) -> None:
        self.held, self.s = HeldOut(task, rows, s), s
        self.y = task.y[self.held.rows]

        def rounded(levels: int) -> tuple[np.ndarray, np.ndarray]:
            """The level of each term, and the grade of its weight for the first class."""
            spread = _levels(s, task.df, levels)
            return spread.level[spread.grade], _weights(s[:, :1], task.df, levels).grade

        self._rounded, self.sums = cache(rounded), cache(self._sums)

    def _heard(self, documents: Documents, levels: int, kappa: float) -> np.ndarray:
        """Whether each entry of documents.indices is read."""
        level = self._rounded(levels)[0]
        silent = Together(level, self.s, kappa).silent(documents)
        return level[documents.indices] > silent[documents.text]

    def _sums(self, levels: int, kappa: float, documents: Documents | None = None) -> np.ndarray:
        """The sums of the weights read (texts, classes), of the texts held out or of others."""
        documents = documents or self.held.documents
        return sums(documents, self.s, self._heard(documents, levels, kappa))

    def counted(self, levels: int, kappa: float) -> np.ndarray:
        """Words named by the terms read, and leaders, of some of the texts; their weight."""
        few = self.held.few
        heard = self._heard(few, levels, kappa)
        read, (level, grade) = few.where(heard), self._rounded(levels)
        leader = np.stack((read.text, level[read.indices], grade[read.indices]))
        led = 1 + np.bincount(np.unique(leader, axis=1)[0], minlength=len(few))
        return self.held.counted(heard, led)


def _levels(s: np.ndarray, df: np.ndarray, levels: int) -> Graded:
    """The levels of the terms: of the standard deviation of their weights."""
    spread = np.sqrt((s**2).mean(axis=1))
    return lloyd(spread, df * spread, levels)


def _weights(s: np.ndarray, df: np.ndarray, levels: int) -> Graded:
    """The weights of all classes, rounded."""
    size = np.abs(s)
    return lloyd(s.ravel(), (df[:, None] * size).ravel(), min(levels, _WEIGHTS))


def losses_of(means: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Log-loss of each text by the best softmax of one slope, the prior added."""
    x = means / max(float(means.std()), 1e-12)
    prior = np.log(np.bincount(y, weight, means.shape[1]) / weight.sum())
    tried = []
    for slope in _SLOPES:
        odds = slope * x + prior
        odds -= odds.max(axis=1, keepdims=True)
        tried.append(np.log(np.exp(odds).sum(axis=1)) - odds[np.arange(len(y)), y])
    return min(tried, key=lambda lost: float(weight @ lost))


def model_of(
    task: Task, x: Any, parts: list[Joint], whole: Joint, levels: int, kappa: float
) -> Model:
    """The planes of all classes, decoded by one softmax that is fitted on the texts held out."""
    y = np.concatenate([part.y for part in parts])
    fits = decoders(task.folds(parts, whole, levels, kappa), y)
    places, unit = _placed(task, whole.s, levels)
    planes = []
    for c, ((direction, grade), (m, slope, b)) in enumerate(zip(places, fits, strict=True)):
        evidence = task.df * log_ratio(x, task.y == c, task.weight) ** 2
        v = np.zeros((1, direction.shape[1]))
        v[0, 0] = slope * unit
        anchor, prior = np.eye(direction.shape[1])[1], np.array([task.share(c)])
        z = on_rays(direction, grade, evidence)
        planes.append(Plane(z, anchor, v, np.array([b]), prior, m, kappa))
    return Model(Together.of(planes), task.alpha, task.layers, joint=True)


def _placed(
    task: Task, s: np.ndarray, levels: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], float]:
    """For each class directions (grades, d) and the grade of each term; the weight that one unit of
    the first coordinate stands for."""
    spread, weight = _levels(s, task.df, levels), _weights(s, task.df, levels)
    level, size = spread.level[spread.grade], np.abs(spread.value[spread.grade])
    sine = STEEPEST * size / max(float(size.max(initial=0.0)), 1e-12)
    w = np.where(level[:, None] > 0, weight.weight.reshape(s.shape), 0.0)
    fits = np.abs(w) > 0
    unit = 1.01 * float((np.abs(w) / np.maximum(sine, 1e-12)[:, None])[fits].max(initial=1e-12))
    places = []
    for column in w.T:
        _, first, grade = np.unique(
            np.stack((level, column), axis=1), axis=0, return_index=True, return_inverse=True
        )
        direction = np.zeros((len(first), max(task.dim, 3)))
        direction[:, 0] = column[first] / unit
        direction[:, 1] = np.sqrt(1.0 - sine[first] ** 2)
        direction[:, 2] = np.sqrt(np.maximum(sine[first] ** 2 - direction[:, 0] ** 2, 0.0))
        places.append((direction, grade.reshape(-1)))
    return places, unit
