"""How good a classifier is and how faithful its explanations are, compared with linear models.

Accuracy alone says little: as alpha -> 0, or when every word leads, the model is a bag of words. So
an `Evaluation` has leaders, alpha, the words read, and the same model with no layers beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from ..._types import as_generator
from ..estimator import HardmaxClassifier
from ..text.datasets import blocks
from ..text.documents import Documents
from ..text.inputs import as_labels, as_texts
from .faithfulness import Faithfulness, Progress, faithfulness


def calibration_error(confidence: Any, correct: Any, bins: int = 15) -> float:
    """Expected calibration error: sum over bins of (share of the texts) |accuracy - confidence|.

    `confidence` is the probability of the predicted label, `correct` whether it is the true one;
    bins of equal width on [0, 1]. 0 is perfect.
    """
    confidence, correct = np.asarray(confidence, float), np.asarray(correct, float)
    where = np.clip((confidence * bins).astype(int), 0, bins - 1)
    gap = np.bincount(where, correct - confidence, minlength=bins)
    return float(np.abs(gap).sum() / max(len(confidence), 1))


@final
@dataclass(frozen=True)
class Evaluation:
    """A classifier on labelled texts.

    `accuracy` with its standard error; `words` read for a verdict (mean and median; negators count
    as one word), `silenced` the share of the terms that attention silences, `unlayered` the
    accuracy with 0 layers, where every word counts, `changed` how many verdicts the layers change;
    `calibration` the expected calibration error; `leaders` and `on_leaders` means over texts (and
    planes); `unknown` texts have no known term and got the prior. `mistakes` are the positions of
    the most confident wrong predictions.
    """

    texts: int
    accuracy: float
    standard_error: float
    calibration: float
    log_loss: float
    words: tuple[float, float]
    silenced: float
    unlayered: float
    changed: int
    leaders: float
    on_leaders: float
    alpha: float
    layers: int
    dim: int
    terms: int
    unknown: int
    mistakes: tuple[int, ...]
    faithfulness: Faithfulness | None


def evaluate(
    clf: HardmaxClassifier,
    texts: Any,
    labels: Any,
    *,
    explained: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Measures accuracy, calibration, leaders and faithfulness of a classifier.

    Parameters
    ----------
    clf
        A fitted classifier.
    texts, labels
        Texts that were not used for training, and their labels.
    explained
        Faithfulness is measured on so many of the texts; 0 for none.
    seed
        Chooses these texts.
    progress
        None shows a bar after a second, False never.

    Returns
    -------
    Evaluation
        A notebook shows it as a table.

    Examples
    --------
    >>> from cynosure import HardmaxClassifier, datasets
    >>> data = datasets.synthetic(300)
    >>> clf = HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    >>> evaluate(clf, data.texts, data.labels, explained=0).accuracy > 0.9
    True
    """
    texts, labels = as_texts(texts), as_labels(labels, "labels")
    if len(texts) != len(labels):
        given = f"{len(texts)} texts and {len(labels)} labels"
        raise ValueError(f"expected one label per text, got {given}")
    if not len(texts):
        raise ValueError("texts: expected at least one text, got none")
    truth = _class_numbers(labels, clf.classes_)
    documents = clf.vocabulary_.encode(texts)
    verdicts = clf.model_.read(documents)
    p = clf.probabilities(verdicts.decision)
    right, sure = p.argmax(axis=1) == truth, p.max(axis=1)
    wrong = np.flatnonzero(~right)
    wrong = wrong[np.argsort(-sure[wrong], kind="stable")]
    accuracy = float(right.mean())
    flat = clf.probabilities(clf.model_.read(documents, layers=0).decision).argmax(axis=1)
    words = _words_read(clf, documents)
    terms = np.maximum(documents.sizes[:, None] * np.ones(len(clf.model_.planes)), 1)
    faithful = None
    if explained:
        rows = as_generator(seed).permutation(len(texts))[:explained]
        sample = [texts[i] for i in np.sort(rows).tolist()]
        faithful = faithfulness(clf, sample, seed=seed, progress=progress)
    return Evaluation(
        texts=len(texts), accuracy=accuracy,
        standard_error=float(np.sqrt(accuracy * (1 - accuracy) / len(texts))),
        calibration=calibration_error(sure, right),
        log_loss=float(-np.log(np.maximum(p[np.arange(len(p)), truth], 1e-300)).mean()),
        words=(float(words.mean()), float(np.median(words))),
        silenced=float(1.0 - verdicts.speaking.sum() / terms.sum()),
        unlayered=float((flat == truth).mean()), changed=int((flat != p.argmax(axis=1)).sum()),
        leaders=float(verdicts.leaders.mean()), on_leaders=float(verdicts.on_leaders.mean()),
        alpha=float(clf.model_.alpha), layers=clf.model_.layers,
        dim=clf.model_.planes[0].embedding.shape[1], terms=len(clf.vocabulary_),
        unknown=int((documents.sizes == 0).sum()), mistakes=tuple(wrong[:10].tolist()),
        faithfulness=faithful,
    )  # fmt: skip


def _words_read(clf: HardmaxClassifier, documents: Documents) -> np.ndarray:
    """Different words in the terms read, by text: on average over planes."""
    heard = (documents.where(plane.heard(documents)) for plane in clf.model_.planes)
    return np.mean([read.spelt(clf.vocabulary_.spelled) for read in heard], axis=0)


def _class_numbers(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The position of each label in `classes`."""
    # A table has strings only, whatever the labels were at training.
    as_strings = labels.dtype.kind == "U" and classes.dtype.kind != "U"
    names = classes.astype(str) if as_strings else classes
    number = {name: c for c, name in enumerate(names.tolist())}
    strange = [x for x in np.unique(labels).tolist() if x not in number]
    if strange:
        known = ", ".join(map(str, number))
        raise ValueError(f"labels: the model does not know {strange[0]!r}, only {known}")
    return np.array([number[x] for x in labels.tolist()])


_WORDS = r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[!?]"  # contractions stay whole, as in our tokenizer
TFIDF, NBSVM = "TF-IDF + logistic regression", "NB-SVM"
_GRID = {TFIDF: (3.0, 10.0, 30.0), NBSVM: (0.003, 0.01, 0.03, 0.1)}


@final
@dataclass(frozen=True, eq=False)
class Rivals:
    """Linear models of scikit-learn on the same words: TF-IDF (sublinear) with logistic regression,
    and NB-SVM (Wang and Manning 2012), presence times the naive-Bayes log-ratio, then a linear
    support vector machine. Each takes the `C` that does best on held-out blocks."""

    vectorizer: Any
    heads: dict[str, Any]
    C: dict[str, float]

    @classmethod
    def fit(cls, texts: Any, labels: Any, ngrams: tuple[int, int] = (1, 2)) -> Rivals:
        from sklearn.feature_extraction.text import CountVectorizer

        texts, labels = as_texts(texts), as_labels(labels, "labels")
        vectorizer = CountVectorizer(ngram_range=ngrams, min_df=2, token_pattern=_WORDS)
        counts = vectorizer.fit_transform(texts)
        held = np.flatnonzero(blocks(labels, 0.1))
        rest = np.setdiff1d(np.arange(len(labels)), held)
        heads, chosen = {}, {}
        for name, grid in _GRID.items():
            scores = {
                C: _head(name, C).fit(counts[rest], labels[rest]).score(counts[held], labels[held])
                for C in grid
            }
            chosen[name] = max(scores, key=scores.__getitem__)
            heads[name] = _head(name, chosen[name]).fit(counts, labels)
        return cls(vectorizer, heads, chosen)

    def predict(self, texts: Any) -> dict[str, np.ndarray]:
        """Labels by each rival."""
        counts = self.vectorizer.transform(as_texts(texts))
        return {name: head.predict(counts) for name, head in self.heads.items()}


def _head(name: str, C: float) -> Any:
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Binarizer
    from sklearn.svm import LinearSVC

    if name == TFIDF:
        linear = LogisticRegression(
            C=C, solver="liblinear", dual=True, tol=1e-2, max_iter=2000, random_state=0
        )
        return make_pipeline(TfidfTransformer(sublinear_tf=True), OneVsRestClassifier(linear))
    svm = make_pipeline(LogRatio(), LinearSVC(C=C, tol=1e-2, max_iter=5000, random_state=0))
    return make_pipeline(Binarizer(), OneVsRestClassifier(svm))


@final
class LogRatio(TransformerMixin, BaseEstimator):
    """Columns scaled by their naive-Bayes log-ratio, class 1 against 0, one added to each count."""

    def fit(self, X: Any, y: Any) -> LogRatio:
        inside = np.asarray(y, float)
        here, there = (1.0 + X.T @ side for side in (inside, 1.0 - inside))
        self.ratio_ = np.log(here / here.sum()) - np.log(there / there.sum())
        return self

    def transform(self, X: Any) -> Any:
        from scipy.sparse import diags_array

        return X @ diags_array(self.ratio_)
