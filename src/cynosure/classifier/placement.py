"""Placed: terms placed on the half circle by a convex fit; words of one grade form one cluster.

1. Two convex fits on presence/absence of terms, one scaled by the naive-Bayes log-ratio (NB-SVM,
   Wang and Manning 2012), one by inverse document frequency, are averaged: a weight s_j per term.
2. Only the terms with the largest |s_j|, averaged over fits on blocks of the texts, stay telling:
   as many as name `words` words of a text on average. They are fitted again, the rest is neutral,
   s_j = 0. Removing a term saves df_j words and costs about df_j s_j^2 of the fit, so |s_j| is what
   to rank by; fits on blocks disagree about the terms that fit noise, and those average out.
3. The weights are rounded to grades c_1 < ... < c_G by Lloyd's algorithm weighted with document
   frequency; one grade is exactly 0.
4. Grade g becomes the direction (u, sqrt(1 - u^2)) with u = c_g / max |c|, and term j is placed at
   rho_j times the direction of its grade, rho_j in (1 - eps, 1]: the more evidence a term carries
   (document frequency times squared log-ratio, much like chi-square), the longer it is.

Within a grade all directions are equal, so its longest token has the largest score and leads; eps
is so small that no token of another grade scores higher. So each grade present in a text is one
cluster, led by its most telling term, and neutral terms follow the anchor. The number of leaders is
the number of grades present, which G controls; nothing is lost against the linear model but what
the two budgets cut away.
Trap: radii must differ *within* a grade, or several words lead together (equal tokens).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from .model import Model, Plane
from .text import Documents

__all__ = ["Fit", "Placed", "Task"]

_MOST_GRADES = 255


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What a fit is given: texts as sets of terms, their class numbers and weights, the budgets.

    `y` (texts,) in 0..classes-1, `weight` (texts,) > 0: how often a text counts, in `df` (terms,),
    the document frequencies, too;
    `spelled` (terms, words) sparse, 1 where a term has a word; at most `leaders` leaders and
    `words` telling words (None: any number) per text on average, tokens in R^dim, `layers` layers
    with step `alpha`.
    """

    documents: Documents
    y: np.ndarray
    weight: np.ndarray
    df: np.ndarray
    spelled: Any
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
@dataclass(frozen=True)
class Placed(Fit):
    """Convex fit, then polar placement; see the module. Seconds, no gradient, deterministic.

    `C` is the inverse regularisation of the fits; None takes 1 for texts of up to 200 terms that
    take part on average and 12 beyond, the values found by cross-validation over blocks of IMDb's
    training part for unigrams (and for the telling terms) and for n-grams. `folds` blocks are held
    out in turn: that chooses the telling terms, and sets the decoder's scale and bias and the
    anchor's weight by likelihood, which makes the decision a calibrated log-odds. Blocks follow the
    order of the texts (neighbours are alike: reviews of one film), so that order matters a little;
    where a class has too few texts for blocks it does not matter at all.
    """

    C: float | int | None = None
    folds: int = 3

    def describe(self) -> dict[str, Any]:
        return {"name": "placed", "C": self.C, "folds": self.folds}

    def model(self, task: Task) -> Model:
        if task.dim < 2:
            raise ValueError(f"dim: placing grades needs at least 2 dimensions, got {task.dim}")
        classes = [1] if task.classes == 2 else range(task.classes)
        return Model(tuple(self._plane(task, c) for c in classes), task.alpha, task.layers)

    def _plane(self, task: Task, c: int) -> Plane:
        if not self._training(task.y == c):
            task = task.ordered()
        inside = task.y == c
        x = _presence(task.documents, len(task.df))
        s, held = self._weighed(task, x, inside)
        count, slope, b = _decoder(held, task.documents.sizes, inside, task.weight)
        grade, value = _graded(s, task)
        total = task.documents.sizes + count
        rounding = _summing_error(x, value[grade]) / total
        scale, shift = _line(x @ value[grade] / total, x @ s / total, task.weight, rounding)
        slope, b = slope * scale, b + slope * shift
        top = max(float(np.abs(value).max()), 1e-12)
        evidence = task.df * _log_ratio(x, inside, task.weight) ** 2
        embedding = _placed(value / top, grade, evidence, task.dim)
        anchor = np.eye(task.dim)[1]
        v = np.zeros((1, task.dim))
        v[0, 0] = slope * top
        return Plane(embedding, anchor, v, np.array([b]), np.array([task.prior(c)]), count)

    def _weighed(self, task: Task, x: Any, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """s (terms,), 0 for the neutral ones; and sum_j s_j of every text, by fits without it."""
        held = np.empty(len(inside))
        dense = []
        for rows in self._training(inside):
            s = self._fitted(task, x[rows], rows, inside)
            dense.append(s)
            if task.words is not None:
                s = self._fitted(task, x[rows], rows, inside, _telling(s, task, x))
            held[~rows] = x[~rows] @ s
        every = np.ones(len(inside), bool)
        if task.words is None:
            s = self._fitted(task, x, every, inside)
        else:
            mean = np.mean(dense, axis=0) if dense else self._fitted(task, x, every, inside)
            s = self._fitted(task, x, every, inside, _telling(mean, task, x))
        return s, held if dense else x @ s  # few texts, none held out: the decoder is overconfident

    def _training(self, inside: np.ndarray) -> list[np.ndarray]:
        """For each fold the mask of the texts outside it; no folds where a class has few texts."""
        if self.folds < 2 or min(inside.sum(), (~inside).sum()) < 4 * self.folds:
            return []
        place = np.empty(len(inside))
        for side in (inside, ~inside):
            place[side] = np.arange(side.sum()) / side.sum()
        runs = 1 if len(inside) < 2500 else 10
        fold = (place * runs * self.folds).astype(int) % self.folds
        return [fold != f for f in range(self.folds)]

    def _fitted(
        self, task: Task, x: Any, rows: np.ndarray, inside: np.ndarray, terms: Any = slice(None)
    ) -> np.ndarray:
        """Weights of `terms` from the texts x = X[rows]; 0 for the other terms."""
        part = x[:, terms]
        weight = task.weight[rows]
        few = weight @ np.diff(part.indptr) <= 200 * weight.sum()
        C = self.C if self.C is not None else (1.0 if few else 12.0)
        s = np.zeros(x.shape[1])
        if part.shape[1]:
            s[terms] = _weights(part, inside[rows], weight, C, task.seed)
        return s


_COUNTS = tuple(2.0**k for k in range(11))  # beyond, the mean is as good as a sum


def _decoder(
    sums: np.ndarray, sizes: np.ndarray, inside: np.ndarray, weight: np.ndarray
) -> tuple[float, float, float]:
    """(m, slope, bias): log-odds = bias + slope sum_j s_j / (terms + m), by likelihood.

    m is the weight of the anchor in the mean. The plain mean of a text of two good words is as
    extreme as that of a hundred, though two words are little evidence; m neutral tokens in the mean
    correct that. If m > 1 does not lower the loss by two standard errors, m = 1, the plain mean.
    """
    fits = []
    for m in _COUNTS:
        mean = sums / (sizes + m)
        slope, b = _logistic(mean, inside, weight)
        z = np.where(inside, -1.0, 1.0) * (b + slope * mean)
        fits.append((np.logaddexp(0.0, z), (m, slope, b)))
    plain = fits[0]
    best = min(fits, key=lambda fit: float(weight @ fit[0]))
    gain, texts = plain[0] - best[0], weight.sum()
    mean = weight @ gain / texts
    seen = mean > 2 * np.sqrt(weight @ (gain - mean) ** 2) / texts
    return best[1] if seen else plain[1]


def _telling(s: np.ndarray, task: Task, x: Any) -> np.ndarray:
    """The terms, by |s|, that name as many words of a text on average as the budget allows.

    df / (df + 5) holds back terms of a few texts. The words named grow with the terms: bisection on
    their number, up to n terms present for each word of the budget (n-grams share words).
    """
    assert task.words is not None
    order = np.argsort(-np.abs(s) * task.df / (task.df + 5.0), kind="stable")
    order = order[s[order] != 0]
    longest = int(task.spelled.sum(axis=1).max(initial=1))
    texts = task.weight.sum()
    present = np.cumsum(task.df[order]) / texts
    low, high = 0, int(np.searchsorted(present, longest * task.words, side="right")) + 1
    high = min(high, len(order) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        some = order[:middle]
        named = task.weight @ np.diff((x[:, some] @ task.spelled[some]).indptr) / texts
        low, high = (middle, high) if named <= task.words else (low, middle)
    return np.sort(order[: max(low, 1)])


def _presence(documents: Documents, terms: int) -> Any:
    from scipy.sparse import csr_array

    ones = np.ones(len(documents.indices))
    indptr = documents.indptr.astype(np.int32)  # the solver reads no other
    return csr_array((ones, documents.indices.astype(np.int32), indptr), (len(documents), terms))


def _log_ratio(x: Any, inside: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The naive-Bayes log-ratio of each term, class against rest, one text added to each count."""
    here, there = (1.0 + x.T @ (weight * side) for side in (inside, ~inside))
    return np.log(here / here.sum()) - np.log(there / there.sum())


def _weights(
    x: Any, inside: np.ndarray, weight: np.ndarray, C: float | int, seed: int
) -> np.ndarray:
    """s_j: the mean of two linear classifiers on presence, each of unit size over occurrences."""
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression

    ratio = _log_ratio(x, inside, weight)
    df = x.T @ weight
    rarity = np.log((1.0 + weight.sum()) / (1.0 + df)) + 1.0
    total = np.zeros(x.shape[1])
    for scale in (ratio, rarity):
        size = np.maximum(np.sqrt(x @ scale**2), 1e-12)  # texts are scaled to unit length
        data = scale[x.indices] / np.repeat(size, np.diff(x.indptr))
        scaled = csr_array((data, x.indices, x.indptr), x.shape)
        solver = LogisticRegression(
            C=C, solver="liblinear", dual=True, tol=1e-2, max_iter=1000, fit_intercept=False,
            random_state=seed,
        )  # fmt: skip
        solver.fit(scaled, inside, sample_weight=weight)
        s = scale * solver.coef_[0]
        total += s / max(np.sqrt((df @ s**2) / max(df.sum(), 1.0)), 1e-12)
    return total / 2


def _logistic(mean: np.ndarray, inside: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Slope > 0 and bias of a one-dimensional logistic regression."""
    from sklearn.linear_model import LogisticRegression

    centre = weight @ mean / weight.sum()
    unit = float(np.sqrt(weight @ (mean - centre) ** 2 / weight.sum()))
    if unit <= 1e-9 * float(np.abs(mean).max(initial=0.0)):  # all alike: only the prior is learnt
        total = float(weight[inside].sum()), float(weight[~inside].sum())
        return 1e-3, float(np.log(total[0] / total[1])) - 1e-3 * float(centre)
    fit = LogisticRegression(C=100.0).fit(mean[:, None] / unit, inside, sample_weight=weight)
    return max(float(fit.coef_[0, 0]), 1e-3) / unit, float(fit.intercept_[0])


def _summing_error(x: Any, value: np.ndarray) -> np.ndarray:
    """A bound on the rounding error of x @ value and one division after it: m terms in any order
    err by at most (m + 1) u sum |value_j| to first order, u = 2^-53; 2u covers the higher ones."""
    return (np.diff(x.indptr) + 1.0) * 2.0**-52 * (x @ np.abs(value))


def _line(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, rounding: np.ndarray
) -> tuple[float, float]:
    """Slope and intercept of the least-squares line y ~ x: what rounding to grades shifts.

    `rounding` (texts,) bounds the error of x. Where x spreads by no more than a thousand of these,
    the slope would be a quotient of rounding errors: texts of one graded mean get the slope 1.
    """
    texts = weight.sum()
    centre = weight @ x / texts
    spread = x - centre
    slope = 0.0
    if float(np.ptp(x)) > 1024 * float(rounding.max(initial=0.0)):
        slope = float(weight @ (spread * y) / (weight @ spread**2))
    slope = slope if slope > 0 else 1.0
    return slope, float(weight @ y / texts - slope * centre)


def _graded(s: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Grade of every term and value of every grade: as many as the budget of leaders allows."""
    order = np.argsort(s, kind="stable")
    n = len(task.documents)
    text = np.repeat(np.arange(n), task.documents.sizes)

    def led(grade: np.ndarray, grades: int) -> float:
        present = np.zeros((n, grades), bool)
        present[text, grade[task.documents.indices]] = True
        present[:, (grades - 1) // 2] = True  # the anchor leads the neutral ones
        return float(task.weight @ present.sum(axis=1) / task.weight.sum())

    low, high = 2, _MOST_GRADES + 1  # the mean number of leaders grows with the number of grades
    best = _lloyd(s, task.df, order, low)
    while high - low > 1:
        grades = min(2 * low, (low + high) // 2)
        trial = _lloyd(s, task.df, order, grades)
        if led(trial[0], grades) > task.leaders:
            high = grades
        else:
            low, best = grades, trial
    return best


def _lloyd(
    s: np.ndarray, weight: np.ndarray, order: np.ndarray, grades: int
) -> tuple[np.ndarray, np.ndarray]:
    """Grade of each s_j and the values of the grades, the middle one 0, that minimise
    sum_j weight_j (s_j - value of its grade)^2 (a local minimum, from equally spaced values)."""
    middle = (grades - 1) // 2
    ranked = s[order]
    mass = np.concatenate(([0.0], np.cumsum(weight[order])))
    moment = np.concatenate(([0.0], np.cumsum(weight[order] * ranked)))
    spread = max(float(np.sqrt((weight @ s**2) / max(weight.sum(), 1))), 1e-12)
    value = 3.0 * spread * (np.arange(grades) - middle) / max(middle, 1)
    for _ in range(60):
        cut = np.searchsorted(ranked, (value[1:] + value[:-1]) / 2)
        edge = np.concatenate(([0], cut, [len(s)]))
        inside = np.diff(mass[edge])
        moved = np.where(inside > 0, np.diff(moment[edge]) / np.maximum(inside, 1e-300), value)
        moved[middle] = 0.0
        if np.array_equal(moved, value):
            break
        value = moved
    grade = np.empty(len(s), dtype=np.intp)
    grade[order] = np.repeat(np.arange(grades), np.diff(edge))
    return grade, value


def _placed(u: np.ndarray, grade: np.ndarray, evidence: np.ndarray, dim: int) -> np.ndarray:
    """rho_j times the direction of the grade, rho_j inside (1 - eps, 1] growing with evidence.

    Directions are (u, sqrt(1 - u^2) e): e is the one axis left for dim = 2, and in turn one of the
    dim - 1 axes beyond, which sets neighbouring grades apart and lets eps be larger.
    """
    grades = len(u)
    axis = 1 + np.abs(np.arange(grades) - (grades - 1) // 2) % (dim - 1)
    direction = np.zeros((grades, dim))
    direction[np.arange(grades), axis] = np.sqrt(np.maximum(1.0 - u**2, 0.0))
    direction[:, 0] = u
    distinct = np.unique(direction, axis=0)
    cosine = distinct @ distinct.T
    np.fill_diagonal(cosine, -1.0)
    # a grade keeps its tokens as long as its shortest radius beats the next direction's cosine
    eps = min(0.5 * (1.0 - float(cosine.max())), 0.1)
    rank = np.empty(len(grade))
    rank[np.argsort(-evidence, kind="stable")] = np.arange(1, len(grade) + 1)
    return direction[grade] * (1.0 - eps * rank / (len(grade) + 1))[:, None]  # the anchor alone: 1
