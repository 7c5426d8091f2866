"""Evaluation: numbers against hand computation, deletions against a plain recomputation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cynosure import datasets
from cynosure.classifier.bundled import available, load_pretrained
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.evaluating.evaluation import (
    Evaluation,
    LogRatio,
    Rivals,
    calibration_error,
    evaluate,
)
from cynosure.classifier.text.vocabulary import surface

DATA = datasets.synthetic(300, seed=1, noise=0.25)
TEST = datasets.synthetic(60, seed=2, noise=0.25)


@pytest.fixture(scope="module")
def clf() -> HardmaxClassifier:
    return HardmaxClassifier(leaders=6).fit(DATA.texts, DATA.labels)


@pytest.fixture(scope="module")
def three() -> HardmaxClassifier:
    data = datasets.synthetic(300, classes=("good", "bad", "odd"))
    return HardmaxClassifier(leaders=6).fit(data.texts, data.labels)


def test_calibration_error_by_hand() -> None:
    # bin of 0.9: accuracy 1/2, confidence 0.9; bin of 0.6: accuracy 1, confidence 0.6
    assert calibration_error([0.9, 0.9, 0.6], [True, False, True]) == pytest.approx(
        (2 * 0.4 + 1 * 0.4) / 3
    )
    assert calibration_error([1.0, 1.0], [True, True]) == 0.0
    assert calibration_error([1.0], [False]) == 1.0


def test_the_numbers_of_an_evaluation_are_those_of_the_predictions(clf) -> None:
    found = evaluate(clf, TEST.texts, TEST.labels, explained=0)
    p, y = clf.predict_proba(TEST.texts), clf.predict(TEST.texts)
    right = y == TEST.labels
    assert 0.5 < found.accuracy == right.mean() < 1.0  # some mistakes, or the rest proves little
    own = np.array([row[clf.classes_.tolist().index(t)] for row, t in zip(p, TEST.labels)])
    assert found.log_loss == pytest.approx(-np.log(own).mean())
    verdicts = clf.read(TEST.texts)
    assert found.leaders == verdicts.leaders.mean()
    assert found.on_leaders == verdicts.on_leaders.mean()
    assert found.calibration == calibration_error(p.max(axis=1), right)
    assert (found.alpha, found.layers, found.dim) == (1.0, 8, 2)
    flat = clf.decision_function(TEST.texts, layers=0) > 0
    assert found.unlayered == (clf.classes_[flat.astype(int)] == TEST.labels).mean()
    assert found.changed == (clf.classes_[flat.astype(int)] != y).sum()
    heard = sum(len(clf.explain(text).read) for text in TEST.texts)
    assert heard == verdicts.speaking.sum()
    words = [len({x for w in clf.explain(t).read for x in surface(w.text)}) for t in TEST.texts]
    assert found.words == (np.mean(words), np.median(words))
    total = clf.vocabulary_.encode(TEST.texts).sizes.sum()
    assert found.silenced == pytest.approx(1 - heard / total)
    assert found.faithfulness is None
    wrong = set(np.flatnonzero(~right).tolist())
    assert set(found.mistakes) <= wrong and len(found.mistakes) == min(10, len(wrong))
    sure = p.max(axis=1)[list(found.mistakes)]
    assert (np.diff(sure) <= 0).all()


def test_unknown_texts_are_counted_and_get_the_prior(clf) -> None:
    found = evaluate(clf, ["zzzz qqqq", "", *TEST.texts[:4]], [*TEST.labels[:6]], explained=0)
    assert found.unknown == 2


def test_more_than_two_classes(three) -> None:
    data = datasets.synthetic(45, seed=5, classes=("good", "bad", "odd"))
    found = evaluate(three, data.texts, data.labels, explained=20)
    assert found.accuracy == three.score(data.texts, data.labels) > 0.8
    assert found.faithfulness is not None
    winning, *_, neutral = found.faithfulness.deletions
    assert winning.flipped > neutral.flipped


def test_the_same_answer_every_time(clf) -> None:
    first, second = (evaluate(clf, TEST.texts, TEST.labels, explained=10) for _ in range(2))
    assert isinstance(first, Evaluation) and first == second


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a film"], ["positive", "negative"], "one label per text"),
        (["a film"], ["sideways"], "does not know 'sideways', only negative, positive"),
        ([], [], "at least one text"),
        (["a film", None], ["positive", "positive"], r"texts\[1\].*missing"),
    ],
)
def test_bad_input(clf, texts, labels, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(clf, texts, labels)


def test_labels_read_as_strings_match_a_model_fitted_on_numbers() -> None:
    stars = np.where(DATA.labels == "positive", 5, 1)
    clf = HardmaxClassifier(leaders=6).fit(DATA.texts, stars)
    as_read = np.where(TEST.labels == "positive", "5", "1")
    found = evaluate(clf, TEST.texts, as_read, explained=0)
    assert found.accuracy == clf.score(TEST.texts, as_read.astype(int)) > 0.5


# --- rivals -----------------------------------------------------------------------------------


def test_rivals_learn_what_there_is_to_learn_and_choose_C() -> None:
    rivals = Rivals.fit(DATA.texts, DATA.labels)
    for name, labels in rivals.predict(TEST.texts).items():
        assert (labels == TEST.labels).mean() > 0.75, name
        assert rivals.C[name] > 0


def test_rivals_are_the_same_every_time() -> None:
    first, second = (Rivals.fit(DATA.texts, DATA.labels) for _ in range(2))
    tfidf = (r.heads["TF-IDF + logistic regression"][-1].estimators_[0] for r in (first, second))
    assert np.array_equal(*(linear.coef_ for linear in tfidf)) and first.C == second.C


def test_rivals_take_several_classes() -> None:
    data = datasets.synthetic(150, classes=("good", "bad", "odd"))
    for labels in Rivals.fit(data.texts, data.labels).predict(data.texts).values():
        assert (labels == data.labels).mean() > 0.9


def test_the_naive_bayes_ratio_by_hand() -> None:
    from scipy.sparse import csr_array

    x = csr_array(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]]))
    scaled = LogRatio().fit(x, np.array([1, 1, 0, 0])).transform(x).toarray()
    # one added: here (3, 2), there (1, 3)
    ratio = np.log([3 / 5, 2 / 5]) - np.log([1 / 4, 3 / 4])
    assert scaled == pytest.approx(x.toarray() * ratio)


# --- the shipped model ------------------------------------------------------------------------


def test_the_shipped_model_is_small_reads_reviews_and_explains_exactly() -> None:
    from cynosure.classifier import bundled

    folder = bundled._FOLDER / "imdb"
    assert sum(f.stat().st_size for f in folder.iterdir()) <= 3_500_000
    clf = load_pretrained("imdb")
    good = "A wonderful film: moving, funny and beautifully acted. I loved every minute of it."
    bad = "A dreadful waste of time. The plot is stupid and the acting is wooden and boring."
    assert clf.predict([good, bad]).tolist() == ["pos", "neg"]
    assert clf.model_.alpha >= 0.5
    for text in (good, bad, ""):
        ex = clf.explain(text)
        total = ex.intercept + sum(leader.contribution for leader in ex.leaders)
        assert abs(total - ex.decision) < 1e-9
        assert abs(ex.decision - clf.decision_function([text])[0]) < 1e-9
    assert clf.explain("").note and available() == ["imdb"]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("This is not a good movie", "neg"),
        ("I didn't like it", "neg"),
        ("not bad at all", "pos"),
        ("This is a good movie", "pos"),
        ("I liked it", "pos"),
    ],
)
def test_the_shipped_model_understands_negation(text: str, label: str) -> None:
    ex = load_pretrained().explain(text)
    assert ex.prediction == label == load_pretrained().predict([text])[0]
    if "n" in text.split()[0] or "not" in text or "n't" in text:
        shown = " ".join(span.text for span in ex.spans)
        assert "not" in shown or "n't" in shown  # the negator is shown


def test_layers_change_verdicts_of_the_shipped_model_in_a_fresh_process() -> None:
    """Made-up reviews of its own words: with 0 layers every word speaks, with 8 the strong."""
    script = """
import numpy as np
from cynosure import load_pretrained
clf = load_pretrained()
words = [t for t in clf.get_feature_names_out()[:3000] if " " not in t and "_" not in t]
draw = np.random.default_rng(0)
texts = [" ".join(draw.choice(words, 60)) for _ in range(800)]
none, all_ = (clf.decision_function(texts, layers=k) > 0 for k in (0, clf.model_.layers))
assert (all_ == (clf.decision_function(texts) > 0)).all()
verdicts = clf.read(texts)
print(int((none != all_).sum()), float(verdicts.speaking.sum() / verdicts.known.sum()))
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    changed, speaking = out.stdout.split()
    assert int(changed) >= 10 and float(speaking) < 2 / 3


def test_an_unknown_shipped_model_is_named() -> None:
    for name in ("imbd", "../models/imdb", ""):
        with pytest.raises(ValueError, match=r"no shipped model.*imdb"):
            load_pretrained(name)


@pytest.mark.data
def test_the_shipped_model_on_some_test_reviews(imdb) -> None:
    test = datasets.imdb(imdb, "test")
    some = test.take(np.arange(0, len(test), 25))
    found = evaluate(load_pretrained(), some.texts, some.labels, explained=100)
    assert found.accuracy > 0.89  # 1,000 reviews: standard error 0.009
    assert found.leaders < 12.5 and found.on_leaders > 0.99 and found.calibration < 0.05
    # Who loses the words that were read goes on to weaker ones, which mostly agree: only `overturn`
    # looks for the words without which the verdict is another.
    assert found.faithfulness is not None and found.faithfulness.overturned > 0.8
    assert found.faithfulness.deletions[-1].flipped <= 0.02
