"""Placed: the grades, their geometry, and the budget of leaders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cynosure.classifier import HardmaxClassifier
from cynosure.datasets import Dataset, synthetic
from cynosure.placement import Placed, _lloyd, _placed


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(300)


@pytest.mark.parametrize("leaders", [2, 4, 6, 9])
def test_the_budget_is_kept_and_used(data: Dataset, leaders: int) -> None:
    clf = HardmaxClassifier(leaders=leaders).fit(data.texts, data.labels)
    mean = clf.read(data.texts).leaders.mean()
    assert leaders - 2 < mean <= leaders


@pytest.mark.parametrize("dim", [2, 3, 4, 8])
def test_every_dimension_reads_alike(data: Dataset, dim: int) -> None:
    flat = HardmaxClassifier(dim=2, leaders=6).fit(data.texts, data.labels)
    clf = HardmaxClassifier(dim=dim, leaders=6).fit(data.texts, data.labels)
    assert clf.model_.planes[0].embedding.shape[1] == dim
    assert (clf.read(data.texts).leaders == flat.read(data.texts).leaders).all()
    assert (clf.predict(data.texts) == flat.predict(data.texts)).mean() > 0.99


def test_nearly_all_the_weight_sits_on_leaders(data: Dataset) -> None:
    clf = HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    reading = clf.read(data.texts)
    assert reading.on_leaders.min() > 1 - 2.0**-8
    assert clf.model_.alpha == 1.0


def test_no_two_terms_share_a_place(data: Dataset) -> None:
    """Equal tokens would lead together."""
    embedding = HardmaxClassifier(leaders=4).fit(data.texts, data.labels).model_.planes[0].embedding
    assert len(np.unique(embedding, axis=0)) == len(embedding)


def test_the_most_telling_term_of_a_grade_leads(data: Dataset) -> None:
    clf = HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    terms = [
        set(slow) for slow in map(clf.vocabulary_.encode([*data.texts]).__getitem__, range(300))
    ]
    positive = data.labels == "positive"

    def counts(side: np.ndarray) -> np.ndarray:
        chosen = [t for t, s in zip(terms, side, strict=True) if s]
        return np.array([sum(j in t for t in chosen) for j in range(len(clf.vocabulary_))])

    here, there = counts(positive), counts(~positive)
    ratio = np.log((here + 1) / (here + 1).sum()) - np.log((there + 1) / (there + 1).sum())
    evidence = dict(zip(clf.vocabulary_.terms, (here + there) * ratio**2, strict=True))
    for text in data.texts[:20]:
        for leader in clf.explain(text).leaders:
            if leader.offsets:
                most = max((evidence[w.text] for w in leader.followers), default=0.0)
                assert evidence[leader.text] >= most * (1 - 1e-9)
            else:
                assert leader.score == pytest.approx(0.0, abs=1e-9)


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=40),
    st.integers(2, 12),
    st.integers(0, 100),
)
def test_grades_are_nearest_values(s: list[float], grades: int, seed: int) -> None:
    weights = np.array(s)
    df = np.random.default_rng(seed).integers(1, 50, size=len(s))
    grade, value = _lloyd(weights, df, np.argsort(weights, kind="stable"), grades)
    assert len(value) == grades and value[(grades - 1) // 2] == 0.0
    nearest = np.abs(weights[:, None] - value).min(axis=1)
    np.testing.assert_allclose(np.abs(weights - value[grade]), nearest, atol=1e-9)


def test_grading_loses_little_and_beats_equal_spacing() -> None:
    draw = np.random.default_rng(0)
    s, df = draw.standard_t(3, size=2000), draw.integers(1, 100, size=2000)
    order = np.argsort(s)
    losses = []
    for grades in (3, 7, 15, 31):
        grade, value = _lloyd(s, df, order, grades)
        spaced = np.linspace(s.min(), s.max(), grades)
        loss = df @ (s - value[grade]) ** 2
        assert loss < df @ (np.abs(s[:, None] - spaced).min(axis=1)) ** 2
        losses.append(loss)
    assert losses == sorted(losses, reverse=True)


@given(st.integers(2, 40), st.integers(2, 6), st.integers(0, 1000))
def test_no_grade_captures_another(grades: int, dim: int, seed: int) -> None:
    """Whatever terms a text has, the longest of each grade present follows itself."""
    draw = np.random.default_rng(seed)
    u = np.sort(draw.uniform(-1, 1, grades))
    u[(grades - 1) // 2] = 0.0
    u = np.sort(u) / np.abs(u).max()
    grade, evidence = draw.integers(grades, size=60), draw.integers(9, size=60)
    z = _placed(u, grade, evidence, dim)
    score = z @ z.T
    target = score.argmax(axis=1)
    assert (grade[target] == grade).all() or len(np.unique(u)) < grades
    assert (u[grade[target]] == u[grade]).all()


def test_a_line_has_no_room_for_grades() -> None:
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        HardmaxClassifier(dim=1).fit(["a b", "a c"] * 4, [0, 1] * 4)


def test_decisions_are_calibrated_log_odds() -> None:
    train, test = synthetic(1500, noise=0.35), synthetic(1500, noise=0.35, seed=9)
    clf = HardmaxClassifier(leaders=6).fit(train.texts, train.labels)
    p = clf.predict_proba(test.texts)[:, 1]
    truth = test.labels == clf.classes_[1]
    bins = np.minimum((p * 5).astype(int), 4)
    for b in range(5):
        if (bins == b).sum() > 60:
            assert abs(p[bins == b].mean() - truth[bins == b].mean()) < 0.15


def test_the_share_of_a_class_moves_the_bias() -> None:
    data = synthetic(400)
    few = np.flatnonzero((data.labels == "positive") & (np.arange(400) % 8 != 0))
    rows = np.setdiff1d(np.arange(400), few)
    clf = HardmaxClassifier(leaders=6).fit([data.texts[i] for i in rows], data.labels[rows])
    even = HardmaxClassifier(leaders=6, class_weight="balanced").fit(
        [data.texts[i] for i in rows], data.labels[rows]
    )
    odds = (data.labels[rows] == "positive").sum() / (data.labels[rows] == "negative").sum()
    assert clf.decision_function([""])[0] == pytest.approx(np.log(odds))
    assert even.decision_function([""])[0] == pytest.approx(0.0, abs=1e-12)


def test_placed_describes_itself() -> None:
    assert Placed(C=2.0).describe() == {"name": "placed", "C": 2.0, "folds": 3}
