"""The convex fits behind a placement: a weight per term, and decoders that turn sums into odds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..text.documents import Documents
from .held_out import Folds, Sums
from .levels import MOST_LEVELS, graded

AGAIN = 3.0  # kappa of the texts that `read_again` fits once more, on IMDb's training part
_FREE = 1.0  # the solver holds its intercept back as a weight of this feature
_ROUNDS = 3  # of the ridge of dropout: it has settled
_ONE_SIDED, _NEUTRAL, _OFTEN = 8.0, 2.0, 50  # of `turned`, on IMDb's training part
_COUNTS = tuple(2.0**k for k in range(15))  # beyond, the mean is as good as a sum


def log_ratio(x: Any, inside: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The naive-Bayes log-ratio of each term, class against rest, one text added to each count."""
    here, there = (1.0 + x.T @ (weight * side) for side in (inside, ~inside))
    return np.log(here / here.sum()) - np.log(there / there.sum())


def turned(
    s: np.ndarray, opposite: np.ndarray, negated: np.ndarray, ratio: np.ndarray, df: np.ndarray
) -> np.ndarray:
    """Weights with which a word behind a negator is also the opposite of the plain word.

    A term behind a negator counts half as itself and half as the opposite of its plain term k =
    opposite[j] (-1: none) where k is known for its side: its log-ratio is 8 standard errors or
    more. Other terms with a negator (`negated`) that were seen often say nothing if they were seen
    on both sides alike, within 2 standard errors, and never the opposite of what was seen of them.
    """
    errors = np.abs(ratio) * np.sqrt(df) / 2
    seen = np.where(errors < _NEUTRAL, 0.0, np.sign(ratio) * np.abs(s))
    s = np.where(negated & (df >= _OFTEN), seen, s)
    known = np.flatnonzero((opposite >= 0) & (errors[opposite] > _ONE_SIDED))
    out = s.copy()
    out[known] = (s[known] - s[opposite[known]]) / 2
    return out


def weights(
    x: Any, inside: np.ndarray, weight: np.ndarray, C: float | int, seed: int,
    dropout: bool = False, ratio: bool = True,
) -> np.ndarray:  # fmt: skip
    """s_j: the mean of two linear classifiers on presence, each of unit size over occurrences; that
    of inverse document frequency alone without `ratio`, which few texts tell too poorly."""
    return np.asarray(np.mean(linear(x, inside, weight, C, seed, dropout, ratio), axis=0))


def linear(
    x: Any, inside: np.ndarray, weight: np.ndarray, C: float | int, seed: int, dropout: bool,
    ratio: bool,
) -> list[np.ndarray]:  # fmt: skip
    """The weights by inverse document frequency and, with `ratio`, by the log-ratio."""
    from scipy.sparse import csr_array

    df = x.T @ weight
    scales = [np.log((1.0 + weight.sum()) / (1.0 + df)) + 1.0]
    if ratio:
        scales.append(log_ratio(x, inside, weight))
    row, out = _rows(x), []
    for scale in scales:
        data = x.data * scale[x.indices]
        size = np.maximum(np.sqrt(np.bincount(row, data**2, x.shape[0])), 1e-12)
        scaled = csr_array((data / size[row], x.indices, x.indptr), x.shape)  # texts of unit length
        s = scale * separating(scaled, inside, weight, C, seed, dropout)
        out.append(s / max(np.sqrt((df @ s**2) / max(df.sum(), 1.0)), 1e-12))
    return out


def _rows(x: Any) -> np.ndarray:
    """The row of each entry of a sparse array."""
    return np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))


def separating(
    x: Any, inside: np.ndarray, weight: np.ndarray, C: float | int, seed: int, dropout: bool
) -> np.ndarray:
    """w of a logistic regression with ridge sum_j r_j w_j^2 / 2, r_j = 1/C, and an intercept, which
    keeps the words from saying how frequent the class is.

    With `dropout` as if every term were missing from a text with probability 1/2: to second order
    (arXiv 1307.1493) r_j = 1/C + sum_i p_i (1 - p_i) x_ij^2, with the probability p_i that the
    round before gives to text i, 1/2 at first.
    """
    from scipy.sparse import csr_array
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    w, b, ridge = np.zeros(x.shape[1]), 0.0, np.full(x.shape[1], 1.0 / C)
    row = _rows(x)
    for _ in range(_ROUNDS if dropout else 1):
        if dropout:
            odds = x @ w + b
            doubt = weight * expit(odds) * expit(-odds)
            ridge = 1.0 / C + np.bincount(x.indices, doubt[row] * x.data**2, len(w))
        unit = 1.0 / np.sqrt(ridge)  # of w_j: the solver has one ridge for all
        index = (a.astype(np.int32) for a in (x.indices, x.indptr))  # copies: it sorts them
        solver = LogisticRegression(
            C=1.0, solver="liblinear", dual=True, tol=1e-2, max_iter=1000, intercept_scaling=_FREE,
            random_state=seed,
        )  # fmt: skip
        scaled = csr_array((x.data * unit[x.indices], *index), x.shape)
        solver.fit(scaled, inside, sample_weight=weight)
        w, b = unit * solver.coef_[0], float(solver.intercept_[0])
    return w


def read_again(
    x: Any, inside: np.ndarray, weight: np.ndarray, C: float | int, seed: int, ratio: bool,
    half: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Weights for a reader that stops, the mean of `weights` of whole texts and of texts as read;
    and those of whole texts.

    The texts of each half (`half`, (texts,) bool) are read by the weights of the other, and what
    was read of them is fitted again: there strong terms have to do without the weak ones."""
    from scipy.sparse import csr_array

    how = C, seed, False, ratio
    whole = weights(x, inside, weight, C, seed, True, ratio)
    sides = [weights(x[rows], inside[rows], weight[rows], *how) for rows in (half, ~half)]
    heard = np.zeros(x.nnz)
    size = np.diff(x.indptr)
    for rows, s in ((half, sides[1]), (~half, sides[0])):
        at = np.repeat(rows, size)
        indptr = np.concatenate(([0], np.cumsum(size[rows]))).astype(np.int64)
        read = graded(s, x.T @ weight, MOST_LEVELS)
        heard[at] = read.heard(Documents(indptr, x.indices[at]), AGAIN)
    kept = csr_array((heard, x.indices.copy(), x.indptr.copy()), x.shape)
    kept.eliminate_zeros()
    return (whole + weights(kept, inside, weight, *how)) / 2, whole


def decoders(texts: Sums | Folds, y: np.ndarray) -> list[tuple[float, float, float]]:
    """(m, slope, bias) for each column of the texts' sums, by likelihood:

        log-odds = bias + slope sum_j s_j / (terms + m),

    one for two classes; else one for each class, all with the same m and in one softmax. m is the
    weight of the anchor in the mean: two good words are less evidence than a hundred."""
    weight = texts.weight
    centred = isinstance(texts, Folds)
    many = texts.means(1.0).shape[1]
    if many > 1:
        m = _shared_count(texts, y)
        slopes, biases = joint_decoder(texts.means(m), y, weight)
    else:
        m = _count(texts, y == 1)
        slope, b = _logistic(texts.means(m)[:, 0], y == 1, weight)
        slopes, biases = np.array([slope]), np.array([b])
    if centred:
        biases = biases - slopes * texts.centre(m)
    return [(m, slope, b) for slope, b in zip(slopes.tolist(), biases.tolist())]


def _count(texts: Sums | Folds, inside: np.ndarray) -> float:
    """m of two classes: the power of 2 next to the usual number of terms, between mean and sum,
    unless another lowers the loss by two standard errors."""
    weight = texts.weight
    total = weight.sum()
    usual = min(int(np.log2(weight @ texts.sizes / total + 1.0) + 0.5), len(_COUNTS) - 1)
    found = [losses(texts.means(m)[:, 0], inside, weight) for m in _COUNTS]
    best = min(range(len(found)), key=lambda k: float(weight @ found[k]))
    gain = found[usual] - found[best]
    mean = weight @ gain / total
    seen = mean > 2 * np.sqrt(weight @ (gain - mean) ** 2) / total
    return _COUNTS[best if seen else usual]


def _shared_count(texts: Sums | Folds, y: np.ndarray) -> float:
    """m of classes that share a softmax: that of the least loss, over all classes against their
    rest. With an m of its own, one class would be sure of a short text."""
    total = []
    for m in _COUNTS:
        mean = texts.means(m)
        total.append(sum(loss(mean[:, c], y == c, texts.weight) for c in range(mean.shape[1])))
    return _COUNTS[int(np.argmin(total))]


def losses(mean: np.ndarray, inside: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Log-loss of each text by the best line through `mean`."""
    slope, b = _logistic(mean, inside, weight)
    return _losses(b + slope * mean, inside)


def loss(mean: np.ndarray, inside: np.ndarray, weight: np.ndarray) -> float:
    """Their mean: how well `mean` parts a class from the rest."""
    return float(weight @ losses(mean, inside, weight) / weight.sum())


def _losses(odds: np.ndarray, inside: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, np.where(inside, -odds, odds))


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


def joint_decoder(
    means: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Slopes > 0 and biases (classes,) of softmax(bias + slope mean), by likelihood.

    `means` (texts, classes): one score per class, each from a fit against the rest. The classes
    share one softmax, so their probabilities are right together and not one by one.
    """
    from scipy.optimize import minimize

    classes = means.shape[1]
    unit = np.maximum(means.std(axis=0), 1e-9 * np.maximum(np.abs(means).max(axis=0), 1e-9))
    x, share, truth = means / unit, weight / weight.sum(), np.eye(classes)[y]

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        slope, b = at[:classes], at[classes:]
        logits = b + slope * x
        logits -= logits.max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        off = share[:, None] * (np.exp(log_p) - truth)
        ridge = 1e-2 / len(y)
        value = -float(share @ (log_p * truth).sum(axis=1)) + 0.5 * ridge * float(at @ at)
        return value, np.concatenate(((off * x).sum(axis=0), off.sum(axis=0))) + ridge * at

    prior = np.log(np.bincount(y, weight, classes) / weight.sum())
    start = np.concatenate((np.ones(classes), prior - prior.mean()))
    bounds = [(1e-3, None)] * classes + [(None, None)] * classes
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found[:classes] / unit, found[classes:]
