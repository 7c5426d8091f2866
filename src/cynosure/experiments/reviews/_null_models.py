"""Null models of the sentiment experiments: the same words without attention, a bag of words.

A classifier whose verdicts are the same with 0 layers owes its accuracy to where its words were
placed, not to its attention: the layers then change what is *shown* (few places, leaders) and not
what is *decided*. Differences are given per test review and their intervals by blocks of
consecutive reviews, since neighbours are often about the same film.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...classifier.model import Plane
from ...classifier.text import Documents
from .._frame import resampled
from ._reviews import Reviews, Split

BLOCK = 25  # consecutive test reviews that are resampled together
FEWEST = 20  # blocks, where there are so many reviews: an interval of few blocks is too short


def blockwise(values: np.ndarray) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean over reviews, whole blocks of them resampled."""
    values = np.asarray(values, dtype=np.float64)
    count = min(len(values), max(FEWEST, len(values) // BLOCK))
    return resampled([float(block.mean()) for block in np.array_split(values, count)])


def said(values: np.ndarray) -> str:
    """A mean over reviews with its interval: "+0.012 (95 %: -0.003 to +0.027)"."""
    low, high = blockwise(values)
    return f"{np.mean(values):+.4f} (95 %: {low:+.4f} to {high:+.4f})"


def above(values: np.ndarray) -> bool:
    """Is the whole interval above 0?"""
    return blockwise(values)[0] > 0


def below(values: np.ndarray) -> bool:
    return blockwise(values)[1] < 0


# --- the classifier with placed words -------------------------------------------------------------


def mean_tokens(plane: Plane, documents: Documents) -> np.ndarray:
    """Mean token of each text before the first layer (texts, d), the anchor counted m times."""
    row = np.repeat(np.arange(len(documents)), documents.sizes)
    total = np.zeros((len(documents), plane.embedding.shape[1]))
    np.add.at(total, row, plane.embedding[documents.indices])
    total += plane.count * plane.anchor
    return total / (documents.sizes + plane.count)[:, None]


def without_layers(clf: cy.HardmaxClassifier, documents: Documents) -> np.ndarray:
    """Decisions of a two-class model with the same weights and 0 layers of attention."""
    (plane,) = clf.model_.planes
    decision = mean_tokens(plane, documents) @ plane.v[0] + plane.b[0]
    return np.where(documents.sizes == 0, plane.prior[0], decision)


class Placed0(NamedTuple):
    """A classifier beside itself with 0 layers: verdicts of each, and with its decoder fit anew."""

    layers: np.ndarray
    none: np.ndarray
    refit: np.ndarray

    @property
    def same(self) -> int:
        """Texts with the same verdict with and without the layers."""
        return int((self.layers == self.none).sum())


def beside_no_layers(
    clf: cy.HardmaxClassifier, fitted: Any, labels: np.ndarray, texts: Any
) -> Placed0:
    """Verdicts (True: the second class) on `texts`; the decoder is fit anew on `fitted`."""
    from sklearn.linear_model import LogisticRegression

    (plane,) = clf.model_.planes
    known, new = (clf.vocabulary_.encode(x) for x in (fitted, texts))
    linear = LogisticRegression(C=1e4, max_iter=1000)
    linear.fit(mean_tokens(plane, known), labels == clf.classes_[1])
    return Placed0(
        layers=clf.model_.read(new).decision[:, 0] > 0,
        none=without_layers(clf, new) > 0,
        refit=linear.predict(mean_tokens(plane, new)),
    )


# --- a bag of words -------------------------------------------------------------------------------


def bag_of_words(data: Split) -> np.ndarray:
    """Test predictions of logistic regression on the share of each word, C chosen on data.held."""
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression

    def shares(r: Reviews) -> Any:
        mask = r.count > 0
        row = np.repeat(np.arange(len(r)), mask.sum(axis=1))
        share = (r.count / np.sqrt((r.count**2).sum(axis=1, keepdims=True)))[mask]
        return csr_array((share, (row, r.terms[mask])), shape=(len(r), len(data.words)))

    fits = [LogisticRegression(C=C, max_iter=500) for C in (0.3, 1.0, 3.0, 10.0)]
    x, held = shares(data.train), shares(data.held)
    best = max(fits, key=lambda fit: fit.fit(x, data.train.y).score(held, data.held.y))
    return best.predict(shares(data.test))
