"""Several classes, read together: the terms that are read, against a plain loop over them."""

from __future__ import annotations

import numpy as np
import pytest

from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.model.plane import Together
from cynosure.classifier.text.datasets import synthetic
from cynosure.classifier.text.documents import Documents

DATA = synthetic(300, classes=("a", "b", "c", "d"), noise=0.3)


def read_slowly(together: Together, terms: list[int]) -> set[int]:
    """The terms of one text that are read: level by level, from the highest."""
    level, value, kappa = together.level, together.value, together.kappa
    if kappa == float("inf"):
        return {j for j in terms if level[j] > 0}
    said, read = np.zeros(value.shape[1]), set()
    for h in range(int(level.max()), 0, -1):
        here = [j for j in terms if level[j] == h]
        if not here:
            continue
        read.update(here)
        said = said + value[here].sum(axis=0)
        second, first = np.sort(said)[-2:]
        rest = [j for j in terms if 0 < level[j] < h]
        if first - second >= kappa * np.sqrt(2 * (value[rest] ** 2).mean(axis=1).sum()):
            break
    return read


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.5, 6.0, float("inf")])
def test_the_reading_stops_where_a_loop_over_the_levels_does(kappa: float) -> None:
    draw = np.random.default_rng(3)
    value = draw.normal(size=(60, 5)) * draw.choice([0.0, 0.2, 1.0], 60)[:, None]
    value -= value.mean(axis=1, keepdims=True)
    spread = value.std(axis=1)
    level = np.searchsorted([1e-9, 0.05, 0.1, 0.2, 0.5, 1.0], spread)
    together = Together(level, value, kappa)
    texts = [draw.choice(60, draw.integers(0, 25), replace=False).tolist() for _ in range(300)]
    flat = np.array([j for text in texts for j in text], np.int32)
    documents = Documents(np.cumsum([0, *map(len, texts)]), flat)
    silent = together.silent(documents)
    for text, up_to in zip(texts, silent.tolist()):
        assert {j for j in text if level[j] > up_to} == read_slowly(together, text)


def test_all_planes_read_the_same_words_and_the_layers_do_it(tmp_path) -> None:
    clf = HardmaxClassifier(words=4).fit(DATA.texts, DATA.labels)
    fresh = synthetic(100, classes=("a", "b", "c", "d"), noise=0.3, seed=5)
    verdicts = clf.read(fresh.texts)
    assert (verdicts.speaking == verdicts.speaking[:, :1]).all()
    assert verdicts.direct.all()
    for text, decision in zip(fresh.texts[:8], verdicts.decision):
        read = []
        for row, label in enumerate(clf.classes_.tolist()):
            why = clf.explain(text, label)  # through simulate, layer by layer
            assert why.decision == pytest.approx(decision[row], abs=1e-9)
            said = why.intercept + sum(leader.contribution for leader in why.leaders)
            assert said == pytest.approx(why.decision, abs=1e-9)
            read.append({w.text for w in why.read})
        assert all(words == read[0] for words in read)
    opened = HardmaxClassifier.load(clf.save(tmp_path / "model"))
    np.testing.assert_array_equal(opened.read(fresh.texts).decision, verdicts.decision)


def test_a_class_of_one_text_leaves_the_others_their_folds() -> None:
    texts, labels = [*DATA.texts, "something else entirely"], [*DATA.labels, "e"]
    clf = HardmaxClassifier(words=4).fit(texts, labels)
    p = clf.predict_proba(DATA.texts)
    assert np.isfinite(p).all() and p[:, clf.classes_.tolist().index("e")].mean() < 0.05
    assert clf.score(DATA.texts, DATA.labels) > 0.75
