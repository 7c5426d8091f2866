"""scikit-learn's own battery of checks for estimators, which speaks in numbers.

`Numbered` is HardmaxClassifier behind an adapter from numbers to words: for every feature and every
threshold of a fixed ladder a text says whether the number is above it. Only X is translated;
labels, weights and parameters arrive as the battery made them.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.model.model import Verdicts

LADDER = np.arange(-12, 13) / 4.0


def letters(number: int) -> str:
    """A word for a number: words hold no digits."""
    out = chr(ord("a") + number % 26)
    return out if number < 26 else letters(number // 26 - 1) + out


def said(X: np.ndarray) -> list[str]:
    """Each row as a text, one word for each feature and step of the ladder: above it, or not."""
    steps = range(len(LADDER))
    words = [
        [(f"no{name}", f"yes{name}") for name in (letters(j * len(LADDER) + k) for k in steps)]
        for j in range(X.shape[1])
    ]
    above = X[:, :, None] > LADDER
    return [
        " ".join(words[j][k][int(row[j, k])] for j in range(X.shape[1]) for k in steps)
        for row in above
    ]


class Numbered(HardmaxClassifier):  # type: ignore[misc]  # final for everybody else
    def __init__(
        self, dim=2, ngrams=(1, 1), leaders=15, *, words=15, C=None, method=None, alpha=1.0,
        layers=8, lowercase=True, negation=True, negators="english", tokenizer=None,
        stop_words=None, min_df=1, max_features=None, class_weight=None, n_jobs=None,
        random_state=0,
    ):  # fmt: skip
        self.dim = dim
        self.ngrams = ngrams
        self.leaders = leaders
        self.words = words
        self.C = C
        self.method = method
        self.alpha = alpha
        self.layers = layers
        self.lowercase = lowercase
        self.negation = negation
        self.negators = negators
        self.tokenizer = tokenizer
        self.stop_words = stop_words
        self.min_df = min_df
        self.max_features = max_features
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = False
        tags.input_tags.two_d_array = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Numbered:
        X = validate_data(self, X, ensure_min_samples=1)
        super().fit(said(X), y, sample_weight)
        return self

    def read(self, X: Any, layers: int | None = None) -> Verdicts:
        check_is_fitted(self)
        return super().read(said(validate_data(self, X, reset=False)), layers)


@parametrize_with_checks([Numbered()])  # no check is expected to fail
def test_battery(estimator: Numbered, check: Any) -> None:
    check(estimator)


def test_the_battery_itself_has_nothing_to_say_to_texts() -> None:
    """Why there is an adapter: told that X are texts, the battery leaves."""
    with pytest.warns(SkipTestWarning, match="Can't test estimator"):
        check_estimator(HardmaxClassifier())


def test_the_adapter_has_the_parameters_of_the_classifier() -> None:
    ours, theirs = (list(inspect.signature(c).parameters) for c in (Numbered, HardmaxClassifier))
    assert ours == theirs
