"""Placed: the grades, their geometry, and the budget of leaders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from cynosure.classifier.datasets import _TONES, Dataset, synthetic
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.placement import Placed, _decoder, _line, _lloyd, _placed


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(300)


@pytest.mark.parametrize("leaders", [2, 4, 6, 9])
def test_the_budget_is_kept_and_used(data: Dataset, leaders: int) -> None:
    clf = HardmaxClassifier(leaders=leaders).fit(data.texts, data.labels)
    mean = clf.read(data.texts).leaders.mean()
    assert leaders - 2 < mean <= leaders


def named(clf: HardmaxClassifier, text: str) -> set[str]:
    """The words of the telling terms of a text: those that do not follow the anchor."""
    plane, terms = clf.model_.planes[0], clf.vocabulary_.encode([text])[0]
    telling = terms[np.abs(plane.embedding[terms] @ plane.v[0]) > 1e-9]
    return {word for j in telling for word in clf.vocabulary_.terms[j].split(" ")}


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("words", [1.5, 4, 8])
def test_telling_words_keep_to_their_budget(
    data: Dataset, ngrams: tuple[int, int], words: float
) -> None:
    clf = HardmaxClassifier(ngrams=ngrams, words=words).fit(data.texts, data.labels)
    mean = np.mean([len(named(clf, text)) for text in data.texts])
    assert 0.4 * words < mean <= words


def test_without_a_bound_more_words_tell(data: Dataset) -> None:
    some, every = (
        HardmaxClassifier(words=words).fit(data.texts, data.labels) for words in (5, None)
    )
    assert len(named(some, data.texts[0])) < len(named(every, data.texts[0]))
    (quiet,) = (x for x in some.explain(data.texts[0]).leaders if not x.offsets)
    said = {w.text for w in quiet.followers}
    assert all(set(word.split(" ")) <= named(some, data.texts[0]) or word in said
               for word in (w.text for w in some.explain(data.texts[0]).words))  # fmt: skip
    with pytest.raises(ValueError, match="words: expected a budget"):
        HardmaxClassifier(words=0).fit(data.texts, data.labels)


def test_the_words_kept_are_the_telling_ones() -> None:
    """A tone word is worth more than a filler: the first eight budgeted words are tones."""
    noisy = synthetic(600, noise=0.3)
    clf = HardmaxClassifier(ngrams=(1, 1), words=3).fit(noisy.texts, noisy.labels)
    score = clf.model_.planes[0].embedding @ clf.model_.planes[0].v[0]
    kept = {t for t, s in zip(clf.vocabulary_.terms, score) if abs(s) > 1e-9}
    assert kept and kept <= set(_TONES[0]) | set(_TONES[1])


def test_a_short_text_is_little_evidence() -> None:
    """Log-odds shrink when the text does: the anchor's weight was found by likelihood."""
    draw = np.random.default_rng(0)
    letters = "abcdefghij"
    tones = np.array([[side + x + y for x in letters for y in letters] for side in ("good", "bad")])
    texts, labels = [], []
    for i in range(1200):
        positive, size = i % 4 < 2, 2 if i % 2 else 30
        side = (draw.random(size) < 0.35).astype(int) ^ (not positive)
        texts.append(" ".join(tones[side, draw.permutation(100)[:size]]))
        labels.append(positive)
    clf = HardmaxClassifier(ngrams=(1, 1), leaders=4).fit(texts, labels)
    assert clf.model_.planes[0].count > 4
    score = clf.model_.planes[0].embedding @ clf.model_.planes[0].v[0]
    best = " ".join(clf.vocabulary_.terms[j] for j in np.argsort(score)[-2:])
    odds = float(clf.decision_function([best])[0])
    assert 0.5 < odds < 2.5  # the truth is 2 log(65 / 35) = 1.24


@pytest.mark.parametrize("seed", range(6))
def test_the_decoder_is_the_likeliest_of_all_counts(seed: int) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    draw, n = np.random.default_rng(seed), 3000
    sizes = draw.integers(1, 60, size=n)
    sums = draw.normal(size=n) * np.sqrt(sizes)
    inside = draw.random(n) < 1 / (1 + np.exp(-6 * sums / (sizes + 8)))
    m, slope, b = _decoder(sums, sizes, inside, np.ones(n))
    assert 2 <= m <= 32
    z = b + slope * sums / (sizes + m)
    losses = []
    for count in 2.0 ** np.arange(11):
        x = (sums / (sizes + count))[:, None]
        fit = LogisticRegression(C=1e4, tol=1e-8, max_iter=1000).fit(x / x.std(), inside)
        losses.append(log_loss(inside, fit.predict_proba(x / x.std())))
    assert log_loss(inside, 1 / (1 + np.exp(-z))) < min(losses) + 2e-3  # C = 100: nearly none


def test_without_evidence_the_mean_stays_plain() -> None:
    """Texts of one length say nothing about m; thirty texts hardly more."""
    draw = np.random.default_rng(0)
    for n, sizes in ((3000, np.full(3000, 40)), (30, draw.integers(1, 60, size=30))):
        sums = draw.normal(size=n) * np.sqrt(sizes)
        inside = draw.random(n) < 1 / (1 + np.exp(-20 * sums / sizes))
        assert _decoder(sums, sizes, inside, np.ones(n))[0] == 1.0


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


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2)])
def test_texts_of_one_graded_mean_leave_the_prior(ngrams: tuple[int, int]) -> None:
    """The graded means differ by rounding alone; a slope through them is rounding over rounding."""
    texts, y = ["a b", "a c", "b c", "a d", "b d", "c d"], [0, 1, 0, 0, 1, 0]
    clf = HardmaxClassifier(ngrams=ngrams).fit(texts, y)
    prior = np.log(2 / 4)
    assert np.abs(clf.decision_function(texts) - prior).max() < 0.1


def test_a_line_is_drawn_through_a_spread_and_not_through_rounding() -> None:
    y, once = np.array([1.0, 2.0, 4.0]), np.ones(3)
    noise = 0.1 + np.array([0.0, 1.0, -1.0]) * 2.0**-54
    assert _line(noise, y, once, np.full(3, 2.0**-53))[0] == 1.0
    assert _line(np.full(3, 0.1), y, once, np.zeros(3))[0] == 1.0
    slope, shift = _line(0.5 * y - 3.0, y, once, np.full(3, 2.0**-53))
    assert (slope, shift) == pytest.approx((2.0, 6.0))
    small = 1e-9 * y  # far above its rounding: a spread like any other
    assert _line(small, y, once, np.full(3, 1e-24))[0] == pytest.approx(1e9)
    weighed = _line(y, y**2, np.array([2.0, 1.0, 0.5]), np.zeros(3))
    assert weighed == pytest.approx(np.polyfit(y, y**2, 1, w=np.sqrt([2.0, 1.0, 0.5])))


def same_fit(one: HardmaxClassifier, other: HardmaxClassifier, texts: list[str]) -> bool:
    """Equal, not close: vocabulary with its counts, decisions, saved arrays."""
    return (
        one.classes_.tolist() == other.classes_.tolist()
        and one.vocabulary_.terms == other.vocabulary_.terms
        and (one.vocabulary_.df == other.vocabulary_.df).all()
        and (one.decision_function(texts) == other.decision_function(texts)).all()
        and all(
            (p.embedding == q.embedding).all() and p.count == q.count
            for p, q in zip(one.model_.planes, other.model_.planes, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (240, {}),
        (240, {"words": None, "ngrams": (1, 1), "max_features": 60}),
        (240, {"class_weight": "balanced", "min_df": 0.02}),
        (240, {"class_weight": {"positive": 3, "negative": 0.5}}),
        (18, {"min_df": 1}),
    ],
)
def test_a_weight_is_a_number_of_repetitions(n: int, options: dict) -> None:
    data, rng = synthetic(n), np.random.default_rng(n)
    texts, y = list(data.texts), data.labels
    times = rng.integers(0, 4, n)
    clf = HardmaxClassifier(leaders=5, **options)
    weighed = clone(clf).fit(texts, y, sample_weight=times)
    rows = np.repeat(np.arange(n), times)
    assert same_fit(weighed, clone(clf).fit([texts[i] for i in rows], y[rows]), texts)
    halves = np.concatenate((times, times)) / 2  # said twice with half the weight
    assert same_fit(weighed, clone(clf).fit(texts * 2, np.tile(y, 2), halves), texts)
    kept = np.flatnonzero(times)
    less = clone(clf).fit([texts[i] for i in kept], y[kept], times[kept])
    assert same_fit(weighed, less, texts)
    assert not same_fit(weighed, clone(clf).fit(texts, y), texts)


def test_a_class_of_no_weight_is_no_class() -> None:
    data = synthetic(90, classes=("a", "b", "c"))
    present = data.labels != "c"
    clf = HardmaxClassifier(leaders=5).fit(data.texts, data.labels, sample_weight=present * 1.0)
    assert clf.classes_.tolist() == ["a", "b"]
    rows = np.flatnonzero(present)
    less = HardmaxClassifier(leaders=5).fit([data.texts[i] for i in rows], data.labels[rows])
    assert same_fit(clf, less, list(data.texts))


def test_few_texts_may_come_in_any_order() -> None:
    """No class has texts enough to hold some out in blocks, and only blocks follow the order."""
    data = synthetic(20)
    order = np.random.default_rng(0).permutation(20)
    one = HardmaxClassifier(min_df=1).fit(data.texts, data.labels)
    other = HardmaxClassifier(min_df=1).fit([data.texts[i] for i in order], data.labels[order])
    assert same_fit(one, other, list(data.texts))


@pytest.mark.parametrize("n", [4, 40])
def test_texts_that_are_all_alike_leave_the_prior(n: int) -> None:
    clf = HardmaxClassifier(min_df=1).fit(["a b"] * (2 * n), [0, 1] * n)
    assert clf.predict_proba(["a b", "a", ""])[:, 1] == pytest.approx(0.5, abs=0.01)
