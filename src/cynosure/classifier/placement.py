"""Placed: terms placed on the half circle by a convex fit, and read as far as a text needs.

1. Two convex fits on presence/absence of terms, one scaled by the naive-Bayes log-ratio (NB-SVM,
   Wang and Manning 2012), one by inverse document frequency, are averaged: a weight s_j per term.
   They are fitted with dropout, and again on what is read of the texts: the mean of both
   (`fitting`).
2. The weights are rounded to grades by Lloyd's algorithm, and the grades become directions of the
   plane (`grading`).
3. kappa says how far a text is read: its strong terms, until they outweigh what the weak ones could
   say. The anchor's length does it (`plane`), so it is the attention layers that silence the weak.

Within a grade all directions are equal, so its longest token has the largest score and leads. So
each grade heard in a text is one cluster, led by its most telling term, and all others follow the
anchor. The number of leaders is the number of grades heard.

With `subjects` a grade belongs to one subject as well (`subjects`): a cluster is one subject with
one tendency, and its followers are words of the leader's kind.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, final

import numpy as np

from .fitting import (
    decoder,
    joint_decoder,
    log_ratio,
    loss,
    presence,
    read_again,
    turned,
    weights,
)  # fmt: skip
from .grading import MOST_LEVELS, Graded, graded, placed
from .model import Model
from .plane import Plane
from .subjects import MOST_SUBJECTS, Subjects
from .text import Documents

__all__ = ["Fit", "Placed", "Task"]

_GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of C
_KAPPAS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_FLAT, _SLACK = 1.005, 1.002  # losses as good as the least: of C, of kappa
MOST_DIMENSIONS = 4096
_FEW = 500  # texts of a fold on which words and leaders are counted


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What a fit is given: texts as sets of terms, their class numbers and weights, the budgets.

    `y` (texts,) in 0..classes-1, `weight` (texts,) > 0: how often a text counts, in `df` (terms,),
    the document frequencies, too;
    `spelled` (terms, words) sparse, 1 where a term has a word; `turns` the plain term of each term
    behind a negator and which terms are, for `fitting.turned` (None: nothing turns); at most
    `leaders` leaders and `words` words read (None: any number) per text on average, tokens in
    R^dim, `layers` layers with step `alpha`.
    """

    documents: Documents
    y: np.ndarray
    weight: np.ndarray
    df: np.ndarray
    spelled: Any
    turns: tuple[np.ndarray, np.ndarray] | None
    classes: int
    dim: int
    leaders: float | int
    words: float | int | None
    alpha: float | int
    layers: int
    seed: int

    def prior(self, c: int) -> float:
        """Log-odds of class c against the rest, from the weights."""
        inside = float(self.weight[self.y == c].sum())
        return float(np.log(inside) - np.log(float(self.weight.sum()) - inside))

    def share(self, c: int) -> float:
        """Log of the share of class c, from the weights."""
        return float(np.log(self.weight[self.y == c].sum() / self.weight.sum()))

    def ordered(self) -> Task:
        """The same texts in an order of their own: by class, then by their terms."""
        terms = [self.documents[i].tolist() for i in range(len(self.y))]
        key = list(zip(self.y.tolist(), terms, self.weight.tolist(), strict=True))
        rows = np.array(sorted(range(len(key)), key=key.__getitem__), dtype=np.intp)
        return replace(
            self,
            documents=self.documents.take(rows),
            y=self.y[rows],
            weight=self.weight[rows],
        )


class Fit(abc.ABC):
    """A way to find a model's embedding and decoder."""

    @abc.abstractmethod
    def model(self, task: Task) -> Model:
        """Fit. Two classes give one decision row (class 1), more give one row per class."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Name and parameters, as JSON can hold them."""


@final
@dataclass(frozen=True, eq=False)
class _Weighed:
    """A class against the rest: its graded weights, and what reading gave on texts held out.

    `used` (texts,) is the sum of the weights as the layers leave it, by fits without that text.
    """

    graded: Graded
    kappa: float
    used: np.ndarray


@final
@dataclass(frozen=True)
class Placed(Fit):
    """Convex fit, then polar placement; see the module. Seconds, no gradient, deterministic.

    `C` is the inverse regularisation of the fits, `kappa` how sure a reading must be to stop (inf:
    never). None chooses them on `folds` blocks that are held out in turn: C by the loss, kappa as
    small as keeps the accuracy within the budget of words. The same blocks set the decoder's scale
    and bias and the anchor's weight by likelihood, on the score that is really used, which makes
    the decision a calibrated log-odds. Blocks follow the order of the texts (neighbours are alike:
    reviews of one film), so that order matters a little; where a class has too few texts for blocks
    it does not matter at all.

    `subjects` > 0 gathers words by that many subjects, found in the texts without their labels; it
    needs dim >= 4 (3 for two subjects). 0 gathers them by weight alone.
    """

    C: float | int | None = None
    folds: int = 3
    kappa: float | int | None = None
    subjects: int = 0

    def describe(self) -> dict[str, Any]:
        return {"name": "placed", **self.get_params()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in ("C", "folds", "kappa", "subjects")}

    def set_params(self, **given: Any) -> Placed:
        """Set parameters by name; returns itself. In place, though frozen: scikit-learn sets
        parameters of parameters (`method__C`) that way, on its own copy."""
        for name, value in given.items():
            if name not in self.get_params():
                has = ", ".join(self.get_params())
                raise ValueError(f"Invalid parameter {name!r} for Placed; it has {has}")
            object.__setattr__(self, name, value)
        return self

    def model(self, task: Task) -> Model:
        if task.dim < 2:
            raise ValueError(f"dim: placing grades needs at least 2 dimensions, got {task.dim}")
        if task.dim > MOST_DIMENSIONS:
            raise ValueError(f"dim: expected at most {MOST_DIMENSIONS} dimensions, got {task.dim}")
        self._check(task.dim)
        few = min(np.bincount(task.y, minlength=task.classes))
        if not self._training(np.arange(len(task.y)) < few):
            task = task.ordered()
        x = presence(task.documents, len(task.df))
        sizes, classes = task.documents.sizes, [1] if task.classes == 2 else range(task.classes)
        subjects = Subjects.of(task, self.subjects) if self.subjects else None
        found = [self._weighed(task, x, task.y == c, subjects) for c in classes]
        fits = [decoder(w.used, sizes, task.y == c, task.weight) for w, c in zip(found, classes)]
        if task.classes > 2:
            means = np.column_stack([w.used / (sizes + m) for w, (m, _, _) in zip(found, fits)])
            slopes, biases = joint_decoder(means, task.y, task.weight)
            fits = [
                (m, slope, b) for (m, _, _), slope, b in zip(fits, slopes.tolist(), biases.tolist())
            ]
        planes = tuple(
            _plane(task, x, c, w, fit, subjects)
            for c, w, fit in zip(classes, found, fits, strict=True)
        )
        return Model(planes, task.alpha, task.layers, joint=task.classes > 2)

    def _check(self, dim: int) -> None:
        for name in ("C", "kappa"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, Real) and float(given) > 0):
                raise ValueError(f"method.{name}: expected a number > 0, or None, got {given!r}")
        many = self.subjects
        if int(many) != many or many == 1 or not 0 <= many <= MOST_SUBJECTS:
            raise ValueError(
                f"method.subjects: expected 0 or a number from 2 to {MOST_SUBJECTS}, got {many!r}"
            )
        if dim < (2 if not many else 3 if many == 2 else 4):
            raise ValueError(
                f"dim: {many} subjects need at least {3 if many == 2 else 4} dimensions, got {dim}"
            )

    def _weighed(
        self, task: Task, x: Any, inside: np.ndarray, subjects: Subjects | None
    ) -> _Weighed:
        folds = self._training(inside)
        every = np.ones(len(inside), bool)
        C = self._chosen_C(task, x, inside, folds)

        def fitted(rows: np.ndarray) -> np.ndarray:
            half = _halved(inside[rows])
            given = x[rows], inside[rows], task.weight[rows]
            if task.layers == 0 or half is None:
                s = weights(*given, C, task.seed, dropout=True)
            else:
                s = read_again(*given, C, task.seed, half)
            if task.turns is None:
                return s
            return turned(s, *task.turns, log_ratio(*given), given[0].T @ given[2])

        fits = [_Part(task, ~rows, inside, fitted(rows), subjects) for rows in folds]
        final_s = fitted(every)
        if not folds:  # few texts, none held out: the decoder is overconfident
            fits = [_Part(task, every, inside, final_s, subjects)]
        whole_fit = _Part(task, every, inside, final_s, subjects)
        most = MOST_LEVELS if subjects is None else subjects.most_levels
        levels, kappa = _budgeted(task, fits, whole_fit, self.kappa, most)
        used = np.empty(len(inside))
        left = (1.0 / (1.0 + float(task.alpha))) ** task.layers
        for part in fits:
            at = part.graded(levels)
            read, whole = (part.sums(at, k) for k in (kappa, float("inf")))
            used[part.rows] = (1.0 - left) * read + left * whole
        return _Weighed(_graded(final_s, task, levels, subjects), kappa, used)

    def _chosen_C(self, task: Task, x: Any, inside: np.ndarray, folds: list[np.ndarray]) -> float:
        """C: up and down from the middle of the grid as long as the held-out loss falls, then down
        while it is nearly as low: weights held back more are read in fewer words. Many texts hold
        out enough with one fold."""
        if self.C is not None or not folds:
            return float(self.C if self.C is not None else 1.0)
        used = folds[:1] if len(inside) > 5000 else folds
        sizes = task.documents.sizes
        tried: dict[int, float] = {}

        def held_out(k: int) -> float:
            if not 0 <= k < len(_GRID):
                return float("inf")
            if k not in tried:
                given = ((x[rows], inside[rows], task.weight[rows]) for rows in used)
                fits = [weights(*one, _GRID[k], task.seed) for one in given]
                away = np.concatenate([np.flatnonzero(~rows) for rows in used])
                mean = np.concatenate([x[~rows] @ s for rows, s in zip(used, fits)])
                mean /= np.sqrt(sizes[away] + 1.0)
                tried[k] = loss(mean, inside[away], task.weight[away])
            return tried[k]

        best = len(_GRID) // 2
        for step in (1, -1):
            while held_out(best + step) < held_out(best):
                best += step
        least = _FLAT * held_out(best)
        while held_out(best - 1) <= least:
            best -= 1
        return _GRID[best]

    def _training(self, inside: np.ndarray) -> list[np.ndarray]:
        """For each fold the mask of the texts outside it; no folds where a class has few texts."""
        if self.folds < 2 or min(inside.sum(), (~inside).sum()) < 4 * self.folds:
            return []
        runs = 1 if len(inside) < 2500 else 10
        fold = (_places(inside) * runs * self.folds).astype(int) % self.folds
        return [fold != f for f in range(self.folds)]


def _places(inside: np.ndarray) -> np.ndarray:
    """Where every text stands among those of its side, from 0 to 1."""
    place = np.empty(len(inside))
    for side in (inside, ~inside):
        place[side] = np.arange(side.sum()) / side.sum()
    return place


def _halved(inside: np.ndarray) -> np.ndarray | None:
    """The first half of each side; None where one has too few for halves.

    Not blocks in turn: a half would be read by one that knows the names of its films."""
    return None if min(inside.sum(), (~inside).sum()) < 8 else _places(inside) < 0.5


def _graded(s: np.ndarray, task: Task, levels: int, subjects: Subjects | None) -> Graded:
    if subjects is None:
        return graded(s, task.df, levels)
    return subjects.graded(s, task.df, levels)


@final
class _Part:
    """Texts of some rows and weights of the terms that were fitted without them."""

    def __init__(
        self,
        task: Task,
        rows: np.ndarray,
        inside: np.ndarray,
        s: np.ndarray,
        subjects: Subjects | None,
    ) -> None:
        self.task, self.rows, self.s, self.subjects = task, np.flatnonzero(rows), s, subjects
        self.documents = task.documents.take(self.rows)
        self.inside, self.weight = inside[self.rows], task.weight[self.rows]
        few = np.arange(0, len(self.rows), max(len(self.rows) // _FEW, 1))
        self.few, self.few_weight = self.documents.take(few), self.weight[few]
        self._graded: dict[int, Graded] = {}

    def graded(self, levels: int) -> Graded:
        if levels not in self._graded:
            self._graded[levels] = _graded(self.s, self.task, levels, self.subjects)
        return self._graded[levels]

    def sums(self, graded: Graded, kappa: float) -> np.ndarray:
        """The sum of the weights read, by text."""
        documents = self.documents
        text = np.repeat(np.arange(len(documents)), documents.sizes)
        said = graded.weight[documents.indices] * graded.heard(documents, kappa)
        return np.bincount(text, said, len(documents))

    def words(self, graded: Graded, kappa: float) -> tuple[float, float, float]:
        """Of some of the texts: words named by the terms read, leaders, and the texts' weight."""
        from scipy.sparse import csr_array

        heard = graded.heard(self.few, kappa)
        ptr = np.concatenate(([0], np.cumsum(heard)))[self.few.indptr]
        index = self.few.indices[heard]
        x = csr_array((np.ones(len(index)), index, ptr), (len(self.few), len(self.s)))
        named = np.diff((x @ self.task.spelled).indptr)
        leaders = graded.leaders(self.few, heard)
        w = self.few_weight
        return float(w @ named), float(w @ leaders), float(w.sum())


def _budgeted(
    task: Task, parts: list[_Part], final: _Part, kappa: float | int | None, most_levels: int
) -> tuple[int, float]:
    """(levels, kappa): as many levels, and read as far, as the budgets of leaders and words allow,
    both on texts held out and on all of them with the final weights.

    Leaders grow with the levels, words with kappa; coarser levels are read in larger steps, so
    levels are compared each at the kappa its words allow."""

    def counted(levels: int, at: float) -> tuple[float, float]:
        rows = [np.array(part.words(part.graded(levels), at)) for part in (final, *parts)]
        words, leaders = np.maximum(*(r[:2] / r[2] for r in (rows[0], np.sum(rows[1:], axis=0))))
        return float(words), float(leaders)

    def allowed(levels: int) -> float:
        if task.layers == 0:
            return float("inf")  # nothing is silenced without layers
        if kappa is not None:
            return float(kappa)
        if task.words is None or counted(levels, float("inf"))[0] <= task.words:
            return float("inf")
        low, high = 0.0, 16.0
        for _ in range(12):
            middle = (low + high) / 2
            fits = counted(levels, middle)[0] <= task.words
            low, high = (middle, high) if fits else (low, middle)
        return max(low, 1e-3)

    low, high = 1, most_levels + 1
    if counted(most_levels, allowed(most_levels))[1] <= task.leaders:
        low = most_levels
    while high - low > 1:
        levels = min(2 * low, (low + high) // 2)
        if counted(levels, allowed(levels))[1] > task.leaders:
            high = levels
        else:
            low = levels
    reach = allowed(low)
    return low, _smallest(parts, low, reach) if kappa is None and task.layers else reach


def _smallest(parts: list[_Part], levels: int, most: float) -> float:
    """The smallest kappa <= most that tells the classes apart as well as any, by the loss.

    Accuracy is too coarse to see on some hundred short texts that reading less costs something."""
    inside, weight = (np.concatenate([getattr(p, k) for p in parts]) for k in ("inside", "weight"))
    sizes = np.concatenate([part.documents.sizes for part in parts])
    tried = [k for k in _KAPPAS if k < most] + [most]
    lost = []
    for k in tried:
        sums = np.concatenate([part.sums(part.graded(levels), k) for part in parts])
        lost.append(loss(sums / np.sqrt(sizes + 1.0), inside, weight))
    return next(k for k, one in zip(tried, lost) if one <= _SLACK * min(lost))


def _plane(
    task: Task,
    x: Any,
    c: int,
    found: _Weighed,
    fit: tuple[float, float, float],
    subjects: Subjects | None,
) -> Plane:
    count, slope, b = fit
    inside = task.y == c
    evidence = task.df * log_ratio(x, inside, task.weight) ** 2
    embedding, unit = placed(found.graded, evidence, task.dim)
    v = np.zeros((1, task.dim))
    v[0, 0] = slope * unit
    prior = task.prior(c) if task.classes == 2 else task.share(c)
    anchor = np.eye(task.dim)[1]
    return Plane(
        embedding, anchor, v, np.array([b]), np.array([prior]), count, found.kappa,
        None if subjects is None else subjects.subject,
    )  # fmt: skip
