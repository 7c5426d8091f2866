"""Explanations of other people's pipelines, against what the pipelines say themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import cynosure as cy
from cynosure.classifier.text.datasets import synthetic

TWO = synthetic(200)
FOUR = synthetic(300, classes=("a", "b", "c", "d"), noise=0.2)
PIPELINES = {
    "tfidf": make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10)),
    "counts": make_pipeline(CountVectorizer(min_df=2), MultinomialNB()),
    "svm": make_pipeline(TfidfVectorizer(stop_words="english"), LinearSVC()),
    "ridge": make_pipeline(TfidfVectorizer(sublinear_tf=True, norm=None), RidgeClassifier()),
    "selected": make_pipeline(
        CountVectorizer(ngram_range=(1, 3)), TfidfTransformer(), SelectKBest(k=60),
        SGDClassifier(loss="log_loss", random_state=0),
    ),
    "split": make_pipeline(TfidfVectorizer(tokenizer=str.split, token_pattern=None), LinearSVC()),
}  # fmt: skip
FITTED = {
    (name, many): clone(p).fit(data.texts, data.labels)
    for name, p in PIPELINES.items()
    for many, data in (("two", TWO), ("four", FOUR))
}
WORDS = "great awful not the film superb dull xyzzy ! boring moving Plot, café's odd witty <br />"
TEXTS = st.lists(st.sampled_from(WORDS.split(" ")), max_size=25).map(" ".join)


def scores(pipeline, text: str) -> np.ndarray:
    """One score per class, by scikit-learn."""
    if hasattr(pipeline, "decision_function"):
        said = np.atleast_1d(pipeline.decision_function([text])[0])
    else:
        said = pipeline.predict_log_proba([text])[0]
    return np.array([0.0, said[0]]) if len(said) == 1 else said


@pytest.mark.parametrize("key", list(FITTED), ids="-".join)
@given(text=TEXTS)
def test_the_sum_is_the_score_and_what_was_read_is_enough(key, text: str) -> None:
    pipeline = FITTED[key]
    ex = cy.read_linear(pipeline).explain(text)
    own = np.sort(scores(pipeline, text))
    assert ex.decision == pytest.approx(own[-1] - own[-2], abs=1e-6)
    total = ex.intercept + sum(term.contribution for term in ex.terms)
    assert total == pytest.approx(ex.decision, abs=1e-6)
    if ex.decision > 1e-9:
        assert ex.label == str(pipeline.predict([text])[0])
    said = ex.intercept + sum(term.contribution for term in ex.read)
    assert said + ex.rest == pytest.approx(ex.decision, abs=1e-9)
    read = {term.text for term in ex.read}
    others = [term.contribution for term in ex.terms if term.text not in read]
    assert said >= ex.kappa * np.linalg.norm(others) - 1e-9  # they outweigh the rest
    least = min((abs(term.contribution) for term in ex.read), default=np.inf)
    assert all(abs(x) <= least for x in others)
    passages = sum(p.contribution for p in ex.passages)
    assert passages == pytest.approx(sum(t.contribution for t in ex.read), abs=1e-9)
    if ex.overturn:  # the pipeline itself is asked
        assert str(pipeline.predict([ex.without(ex.overturn)])[0]) != ex.label


def test_every_feature_is_found_in_the_text() -> None:
    text = "Not great, NOT great! The café's film: <br />superb plot."
    for (name, _), pipeline in FITTED.items():
        for term in cy.read_linear(pipeline).explain(text).terms:
            assert term.offsets, (name, term)
            for a, b in term.offsets:
                first, last = term.text.split()[0], term.text.split()[-1]
                assert text[a:b].lower().startswith(first) and text[a:b].lower().endswith(last)


def test_an_example_with_its_page() -> None:
    text = "a wonderful, moving film <b>with</b> one dull scene"
    ex = cy.read_linear(FITTED["tfidf", "two"]).explain(text)
    p = FITTED["tfidf", "two"].predict_proba([text]).max()
    assert ex.probability == pytest.approx(p) and ex.label == "positive"
    assert ex.headline in ex.to_html() and "&lt;b&gt;" in ex.to_html()
    assert "wonderful" in ex.enough and "wonderful" in ex.marked and "[" in ex.marked
    assert cy.read_linear(FITTED["svm", "two"]).explain(text).probability is None
    (row,) = cy.read_linear(FITTED["tfidf", "two"]).explain_all([text])
    assert row["label"] == ex.label and row["enough"] == list(ex.enough)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ((TfidfVectorizer(), TruncatedSVD(5), LogisticRegression()), "mixes its columns"),
        ((TfidfVectorizer(analyzer="char_wb"), LogisticRegression()), "analyzer='word'"),
        ((TfidfVectorizer(), CalibratedClassifierCV(LinearSVC(), cv=2)), "give its estimator"),
        ((TfidfTransformer(), LogisticRegression()), "expected a fitted Pipeline"),
    ],
)
def test_what_is_not_linear_in_words_is_refused(steps, complaint: str) -> None:
    pipeline = make_pipeline(*steps)
    given = CountVectorizer().fit_transform(TWO.texts) if "Transf" in str(steps[0]) else TWO.texts
    pipeline.fit(given, TWO.labels)
    with pytest.raises(ValueError, match=complaint):
        cy.read_linear(pipeline)


def test_an_unfitted_pipeline_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a fitted Pipeline"):
        cy.read_linear(make_pipeline(TfidfVectorizer(), LogisticRegression()))
