"""How good a classifier is and how faithful its explanations are, with the usual rivals beside it.

Accuracy alone is a vacuous target: as alpha -> 0, or when every word leads, the model is a bag of
words. So an `Evaluation` always carries the leaders per text, the share of the mean that sits on
leaders, and alpha. Faithfulness is measured by deletion, and every deletion is *recomputed*: the
words are taken out, the rest goes through the layers again.

Trap: deleting the leaders alone proves nothing, their followers elect new ones; a leader counts
with its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from .classifier import HardmaxClassifier
from .datasets import blocks
from .explanation import Explanation
from .text import Documents, as_texts

__all__ = [
    "Deletion",
    "Evaluation",
    "Faithfulness",
    "LogRatio",
    "Rivals",
    "calibration_error",
    "evaluate",
    "faithfulness",
]

Progress = Callable[[float, str], Any]


# --- calibration ------------------------------------------------------------------------------


def calibration_error(confidence: Any, correct: Any, bins: int = 15) -> float:
    """Expected calibration error: sum over bins of (share of the texts) |accuracy - confidence|.

    `confidence` is the probability of the predicted label, `correct` whether it is the true one;
    bins of equal width on [0, 1]. 0 is perfect.
    """
    confidence, correct = np.asarray(confidence, float), np.asarray(correct, float)
    where = np.clip((confidence * bins).astype(int), 0, bins - 1)
    gap = np.bincount(where, correct - confidence, minlength=bins)
    return float(np.abs(gap).sum() / max(len(confidence), 1))


# --- faithfulness -----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Deletion:
    """What deleting some terms of every text did.

    `flipped` is the share of predictions that changed, `words` the mean number of terms deleted,
    `drop` the mean fall of the probability of the label predicted before.
    """

    name: str
    flipped: float
    words: float
    drop: float


@final
@dataclass(frozen=True)
class Faithfulness:
    """Comprehensiveness and sufficiency of the explanations of `texts` texts.

    The winning clusters are those that speak for the prediction (those of its sign, the neutral one
    excluded). `deletions`: all winning clusters; their leaders alone; as many terms as the winning
    clusters have, chosen by contribution, then at random; and all but the non-neutral clusters
    (sufficiency: what an explanation leaves unsaid should not matter). Winning clusters deleted one
    after the other, strongest leader first, flip a prediction after `words_to_flip` terms (median,
    mean, 95 % quantile over the predictions that flip); `flipped_within` is the share of all
    predictions that flip this way within `most_words` terms, and `best_within` what the best
    choice of that many single terms reaches, the ceiling for any explanation of this model.
    """

    texts: int
    deletions: tuple[Deletion, ...]
    most_words: int
    flipped_within: float
    best_within: float
    flipped_at_all: float
    words_to_flip: tuple[float, float, float]


@final
@dataclass(frozen=True, eq=False)
class _Case:
    """An explained text: its terms by cluster, how strongly each leader speaks for the label."""

    clusters: tuple[np.ndarray, ...]
    heads: tuple[int, ...]  # the leader's term, -1 for the anchor
    strength: tuple[float, ...]
    neutral: tuple[bool, ...]
    pull: np.ndarray  # of every single term towards the label

    @property
    def terms(self) -> np.ndarray:
        return np.concatenate([np.empty(0, np.int32), *self.clusters])

    @property
    def winning(self) -> list[int]:
        """Clusters for the prediction, strongest leader first."""
        found = [
            c for c, s in enumerate(self.strength)
            if s > 0 and not self.neutral[c] and len(self.clusters[c])
        ]  # fmt: skip
        return sorted(found, key=lambda c: -self.strength[c])


def _case(clf: HardmaxClassifier, ex: Explanation) -> _Case:
    index = clf.vocabulary_.index
    sign = 1.0 if ex.decision > 0 or len(clf.classes_) > 2 else -1.0
    clusters, heads, strength, neutral, pull = [], [], [], [], []
    for leader in ex.leaders:
        cluster = [(leader.token, leader.text, leader.score)]
        cluster += [(w.token, w.text, w.score) for w in leader.followers]
        words = [(index[name], score) for token, name, score in cluster if token > 0]
        clusters.append(np.array([term for term, _ in words], np.int32))
        heads.append(index[leader.text] if leader.token > 0 else -1)
        strength.append(sign * leader.contribution / leader.share)
        neutral.append(any(token == 0 for token, _, _ in cluster))
        pull += [sign * score for _, score in words]
    return _Case(
        tuple(clusters), tuple(heads), tuple(strength), tuple(neutral), np.array(pull, float)
    )


def _probabilities(clf: HardmaxClassifier, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Probabilities (texts, classes) of texts given as rows of terms."""
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    terms = np.concatenate([np.empty(0, np.int32), *rows]).astype(np.int32)
    return clf.probabilities(clf.model_.read(Documents(indptr, terms)).decision)


def _without(terms: np.ndarray, gone: np.ndarray) -> np.ndarray:
    return terms[~np.isin(terms, gone)]


def faithfulness(
    clf: HardmaxClassifier,
    texts: Any,
    *,
    most_words: int = 15,
    seed: int = 0,
    progress: Progress | None = None,
) -> Faithfulness:
    """Explain every text, delete what the explanation names, predict again.

    Texts without a known term have nothing to delete and are left out.
    """
    texts = as_texts(texts)
    cases = []
    for i, text in enumerate(texts):
        cases.append(_case(clf, clf.explain(text)))
        if progress is not None:
            progress((i + 1) / len(texts), "explained")
    cases = [case for case in cases if len(case.terms)]
    if not cases:
        raise ValueError("texts: none has a known word, so there is nothing to delete")
    before = _probabilities(clf, [case.terms for case in cases])
    label = before.argmax(axis=1)
    draw = np.random.default_rng(seed)

    def after(rows: Sequence[np.ndarray], of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether each prediction changed, and what the old label has lost."""
        p = _probabilities(clf, rows)
        fall = before[of, label[of]] - p[np.arange(len(of)), label[of]]
        return p.argmax(axis=1) != label[of], fall

    def deletion(name: str, gone: list[np.ndarray]) -> Deletion:
        every = np.arange(len(cases))
        kept = [_without(c.terms, g) for c, g in zip(cases, gone)]
        flipped, fall = after(kept, every)
        size = float(np.mean([len(c.terms) - len(k) for c, k in zip(cases, kept)]))
        return Deletion(name, float(flipped.mean()), size, float(fall.mean()))

    none = np.empty(0, np.int32)
    winning = [np.concatenate([none, *(c.clusters[k] for k in c.winning)]) for c in cases]
    alone = [np.array([c.heads[k] for k in c.winning], np.int32) for c in cases]
    strongest = [c.terms[np.argsort(-c.pull, kind="stable")] for c in cases]
    deletions = (
        deletion("winning leaders with their followers", winning),
        deletion("winning leaders alone", alone),
        deletion(
            "as many words, by contribution", [b[: len(w)] for b, w in zip(strongest, winning)]
        ),
        deletion(
            "as many words, at random",
            [draw.permutation(c.terms)[: len(w)] for c, w in zip(cases, winning)],
        ),
        deletion(
            "the neutral cluster, all others kept",
            [
                np.concatenate([none, *(x for x, n in zip(c.clusters, c.neutral) if n)])
                for c in cases
            ],
        ),
    )
    by_cluster = [
        [np.concatenate([c.clusters[j] for j in c.winning[: k + 1]]) for k in range(len(c.winning))]
        for c in cases
    ]
    needed = _words_to_flip(cases, by_cluster, after)
    best = _words_to_flip(
        cases, [[b[:k] for k in range(1, most_words + 1)] for b in strongest], after
    )
    at_all = needed[np.isfinite(needed)]
    shown = at_all if len(at_all) else np.array([np.nan])
    return Faithfulness(
        len(cases), deletions, most_words, float((needed <= most_words).mean()),
        float((best <= most_words).mean()), float(np.isfinite(needed).mean()),
        (float(np.median(shown)), float(shown.mean()), float(np.quantile(shown, 0.95))),
    )  # fmt: skip


def _words_to_flip(
    cases: list[_Case],
    stages: list[list[np.ndarray]],
    after: Callable[[Sequence[np.ndarray], np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Terms deleted at the first stage whose deletion flips the prediction; inf where none does."""
    of = np.repeat(np.arange(len(cases)), [len(s) for s in stages])
    size = np.array([len(gone) for stage in stages for gone in stage], float)
    rows = [_without(c.terms, gone) for c, stage in zip(cases, stages) for gone in stage]
    needed = np.full(len(cases), np.inf)
    if rows:
        flipped, _ = after(rows, of)
        np.minimum.at(needed, of[flipped], size[flipped])
    return needed


# --- everything at once -----------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Evaluation:
    """A classifier on labelled texts.

    `accuracy` with its standard error; `calibration` is the expected calibration error; `leaders`
    and `on_leaders` are means over texts (and planes); `unknown` texts have no known term and got
    the prior. `mistakes` are the positions of the most confident wrong predictions: where leaders
    fail.
    """

    texts: int
    accuracy: float
    standard_error: float
    calibration: float
    log_loss: float
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
    """Accuracy, calibration, leaders, and faithfulness on `explained` of the texts (0: none).

    Example
    -------
    >>> from cynosure import HardmaxClassifier, datasets
    >>> data = datasets.synthetic(300)
    >>> clf = HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    >>> evaluate(clf, data.texts, data.labels, explained=0).accuracy > 0.9
    True
    """
    texts, labels = as_texts(texts), np.asarray(labels)
    if len(texts) != len(labels):
        raise ValueError(
            f"expected one label per text, got {len(texts)} texts and {len(labels)} labels"
        )
    if not len(texts):
        raise ValueError("texts: expected at least one text, got none")
    # a table has strings only, whatever the labels were at training
    as_strings = labels.dtype.kind == "U" and clf.classes_.dtype.kind != "U"
    names = clf.classes_.astype(str) if as_strings else clf.classes_
    number = {name: c for c, name in enumerate(names.tolist())}
    strange = [x for x in np.unique(labels).tolist() if x not in number]
    if strange:
        known = ", ".join(map(str, number))
        raise ValueError(f"labels: the model does not know {strange[0]!r}, only {known}")
    truth = np.array([number[x] for x in labels.tolist()])
    documents = clf.vocabulary_.encode(texts)
    verdicts = clf.model_.read(documents)
    p = clf.probabilities(verdicts.decision)
    found = p.argmax(axis=1)
    right, sure = found == truth, p.max(axis=1)
    wrong = np.flatnonzero(~right)
    wrong = wrong[np.argsort(-sure[wrong], kind="stable")]
    accuracy = float(right.mean())
    faithful = None
    if explained:
        rows = np.random.default_rng(seed).permutation(len(texts))[:explained]
        sample = [texts[i] for i in np.sort(rows).tolist()]
        faithful = faithfulness(clf, sample, seed=seed, progress=progress)
    return Evaluation(
        len(texts), accuracy, float(np.sqrt(accuracy * (1 - accuracy) / len(texts))),
        calibration_error(sure, right),
        float(-np.log(np.maximum(p[np.arange(len(p)), truth], 1e-300)).mean()),
        float(verdicts.leaders.mean()), float(verdicts.on_leaders.mean()),
        float(clf.model_.alpha), clf.model_.layers, clf.model_.planes[0].embedding.shape[1],
        len(clf.vocabulary_), int((documents.sizes == 0).sum()), tuple(wrong[:10].tolist()),
        faithful,
    )  # fmt: skip


# --- rivals -----------------------------------------------------------------------------------

_WORDS = r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[!?]"  # contractions kept, as our tokenizer does
TFIDF, NBSVM = "TF-IDF + logistic regression", "NB-SVM"
_GRID = {TFIDF: (3.0, 10.0, 30.0), NBSVM: (0.003, 0.01, 0.03, 0.1)}


@final
@dataclass(frozen=True, eq=False)
class Rivals:
    """The linear models everybody compares with, on the same words: scikit-learn's, end to end.

    TF-IDF (sublinear) with logistic regression, and NB-SVM (Wang and Manning 2012): presence times
    the naive-Bayes log-ratio, then a linear support vector machine. Each takes the regularisation
    `C` that does best on held-out blocks of its training texts.
    """

    vectorizer: Any
    heads: dict[str, Any]
    C: dict[str, float]

    @classmethod
    def fit(cls, texts: Any, labels: Any, ngrams: tuple[int, int] = (1, 2)) -> Rivals:
        from sklearn.feature_extraction.text import CountVectorizer

        texts, labels = as_texts(texts), np.asarray(labels)
        vectorizer = CountVectorizer(ngram_range=ngrams, min_df=2, token_pattern=_WORDS)
        counts = vectorizer.fit_transform(texts)
        held = np.flatnonzero(blocks(labels, 0.1))
        kept = np.setdiff1d(np.arange(len(labels)), held)
        heads, chosen = {}, {}
        for name, grid in _GRID.items():
            found = {
                C: _head(name, C).fit(counts[kept], labels[kept]).score(counts[held], labels[held])
                for C in grid
            }
            chosen[name] = max(found, key=found.__getitem__)
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
        linear = LogisticRegression(C=C, solver="liblinear", dual=True, tol=1e-2, max_iter=2000)
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
