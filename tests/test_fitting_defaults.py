"""What a fit chooses by itself: on classes of unlike size, on few words, on labels of any kind."""

from __future__ import annotations

import numpy as np
import pytest

from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.fitting.choosing import least_texts, turns_words
from cynosure.classifier.text.datasets import synthetic
from cynosure.classifier.text.vocabulary import Tokenizer


def weak_words(n: int, seed: int, share: float = 0.5) -> tuple[list[str], np.ndarray]:
    """Texts of 40 words, each of which tells a little: no few of them tell much."""
    draw = np.random.default_rng(seed)
    y = draw.random(n) < share
    letters = "abcdefghijklmnopqrst"
    words = np.array([x + z for x in letters[:10] for z in letters])
    side = np.where(np.arange(len(words)) % 2, 1.25, 0.8)
    texts = []
    for one in y:
        p = side if one else 1 / side
        texts.append(" ".join(draw.choice(words, 40, replace=False, p=p / p.sum())))
    return texts, y


def log_loss(clf: HardmaxClassifier, texts: list[str], y: np.ndarray) -> float:
    p = clf.predict_proba(texts)
    return float(-np.log(p[np.arange(len(y)), y.astype(int)]).mean())


def test_a_rare_class_is_as_probable_as_it_is() -> None:
    """Common words must not say how frequent a class is, and the decoder must not say it again."""
    texts, y = weak_words(3000, 0, share=0.05)
    clf = HardmaxClassifier(ngrams=(1, 1), C=1.0).fit(texts, y)
    new, truth = weak_words(4000, 1, share=0.05)
    assert clf.predict_proba(new)[:, 1].mean() == pytest.approx(truth.mean(), abs=0.012)
    share = y.mean()
    prior = -(truth.mean() * np.log(share) + (1 - truth.mean()) * np.log(1 - share))
    assert log_loss(clf, new, truth) < 0.95 * prior


def test_the_budget_is_left_where_it_costs_much_and_kept_where_it_is_asked_for() -> None:
    texts, y = weak_words(1500, 2)
    new, truth = weak_words(2000, 3)
    options = {"ngrams": (1, 1), "C": 1.0}
    auto, kept, free = (
        HardmaxClassifier(words=words, **options).fit(texts, y) for words in ("auto", 14, None)
    )
    words = {clf: clf.read(new).speaking.mean() for clf in (auto, kept, free)}
    assert words[kept] <= 1.1 * 14 < words[auto]
    loss = {clf: log_loss(clf, new, truth) for clf in (auto, kept, free)}
    told = np.log(2) - loss[free]
    assert loss[kept] - loss[free] > 0.1 * told > loss[auto] - loss[free]
    (note,) = auto.notes_
    assert "14 words" in note and not kept.notes_ and not free.notes_
    easy = synthetic(300)
    assert HardmaxClassifier(ngrams=(1, 1)).fit(easy.texts, easy.labels).notes_ == ()


def test_negation_is_read_where_it_tells_something() -> None:
    draw = np.random.default_rng(0)
    tones = [[f"{side}{k}" for k in "abcdefghijklmnopqrstuvwxyz"] for side in ("good", "bad")]
    moods, subjects = [], []
    y = np.arange(900) % 2
    for one in y:
        own, other = str(draw.choice(tones[one])), str(draw.choice(tones[1 - one]))
        moods.append(f"it was {own}" if draw.random() < 0.5 else f"it was not {other}")
        subjects.append(f"it was {own}" if draw.random() < 0.5 else f"it was not {own}")
    weight = np.ones(len(y))
    assert turns_words(moods, y, weight, Tokenizer((1, 1)), 1, 0)
    assert not turns_words(subjects, y, weight, Tokenizer((1, 1)), 1, 0)
    clf = HardmaxClassifier(ngrams=(1, 1)).fit(moods, y)
    assert clf.vocabulary_.tokenizer.negation
    clf = HardmaxClassifier(ngrams=(1, 1)).fit(subjects, y)
    assert not clf.vocabulary_.tokenizer.negation


def test_terms_of_one_text_count_where_there_are_few_words() -> None:
    assert least_texts(["x" * 100] * 10, np.ones(10)) == 1
    assert least_texts(["x" * 100] * 10, np.full(10, 1e4)) == 2  # as if each stood there often
    clf = HardmaxClassifier(ngrams=(1, 1)).fit(["a b", "a c", "b d", "d e"] * 3, [0, 0, 1, 1] * 3)
    assert set("abcde") == set(clf.vocabulary_.terms)


def test_a_text_held_out_knows_no_more_terms_than_a_new_one_would(monkeypatch) -> None:
    """Terms of that text alone made it longer than a new text is, and new texts too sure."""
    from cynosure.classifier.fitting import placement

    seen = []
    made = placement._Part

    def noted(task, *rest):
        seen.append((task.documents, made(task, *rest)))
        return seen[-1][1]

    monkeypatch.setattr(placement, "_Part", noted)
    texts, y = weak_words(60, 4)
    HardmaxClassifier(ngrams=(1, 1), C=1.0).fit([f"{t} own{i}" for i, t in enumerate(texts)], y)
    documents = seen[0][0]
    parts = [part.held for _, part in seen if len(part.held.rows) < len(documents)]
    assert len(parts) == 3
    for part in parts:
        others = np.setdiff1d(np.arange(len(documents)), part.rows)
        known = set(documents.take(others).indices.tolist())
        assert set(part.documents.indices.tolist()) <= known
        for i, row in enumerate(part.rows.tolist()):
            assert len(part.documents[i]) == len(known & set(documents[row].tolist()))


def test_classes_share_how_much_few_words_prove() -> None:
    data = synthetic(400, classes=("a", "b", "c"), noise=0.3)
    clf = HardmaxClassifier(ngrams=(1, 1)).fit(data.texts, data.labels)
    assert len({plane.count for plane in clf.model_.planes}) == 1
