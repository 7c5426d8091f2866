"""Placed: the grades, their geometry, and the budget of leaders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.fitting.convex import decoders, joint_decoder, separating, weights
from cynosure.classifier.fitting.held_out import Folds, Sums
from cynosure.classifier.fitting.levels import lloyd, placed
from cynosure.classifier.fitting.placement import Placed
from cynosure.classifier.model.plane import Plane
from cynosure.classifier.text.datasets import _TONES, Dataset, synthetic
from cynosure.classifier.text.vocabulary import surface


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(300)


@pytest.mark.parametrize("leaders", [3, 4, 6, 9])
def test_the_budget_is_kept_and_used(data: Dataset, leaders: int) -> None:
    clf = HardmaxClassifier(leaders=leaders, words=None, method=Placed(kappa=float("inf")))
    mean = clf.fit(data.texts, data.labels).read(data.texts).leaders.mean()
    assert leaders - 2 < mean <= leaders + 0.5  # it is counted on texts held out


def spoken(clf: HardmaxClassifier, text: str) -> set[str]:
    """The words of the terms that do not follow the anchor, by the explanation."""
    leaders = (x for x in clf.explain(text).leaders if x.offsets)
    names = {w.text for x in leaders for w in (x, *x.followers)}
    return {word for name in names for word in surface(name)}


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("words", [1.5, 4, 8])
def test_words_read_keep_to_their_budget(
    data: Dataset, ngrams: tuple[int, int], words: float
) -> None:
    clf = HardmaxClassifier(ngrams=ngrams, words=words).fit(data.texts, data.labels)
    mean = np.mean([len(spoken(clf, text)) for text in data.texts])
    assert mean <= 1.1 * words or clf.model_.planes[0].kappa < 0.01  # one term may be two words


def test_kappa_says_how_much_is_read(data: Dataset) -> None:
    """The rule itself, on the weights of the fitted model, one text at a time."""
    sizes = []
    for kappa in (0.5, 1.5, 4.0, float("inf")):
        clf = HardmaxClassifier(method=Placed(kappa=kappa)).fit(data.texts, data.labels)
        score = clf.model_.planes[0].embedding[:, 0]
        for text in data.texts[:25]:
            s = score[clf.vocabulary_.encode([text])[0]]
            heard = clf.read([text]).speaking[0, 0]
            loud = s[np.argsort(-np.abs(s), kind="stable")]
            rest = np.sqrt((loud[heard:] ** 2).sum())
            assert kappa == float("inf") or abs(loud[:heard].sum()) >= kappa * rest * (1 - 1e-6)
            assert kappa < float("inf") or heard == (np.abs(s) > 1e-9).sum()
        sizes.append(clf.read(data.texts).speaking.mean())
    assert sizes == sorted(sizes) and sizes[0] < 0.7 * sizes[-1]
    with pytest.raises(ValueError, match="words: expected a budget"):
        HardmaxClassifier(words=0).fit(data.texts, data.labels)
    with pytest.raises(ValueError, match=r"method\.kappa"):
        HardmaxClassifier(method=Placed(kappa=-1.0)).fit(data.texts, data.labels)


def test_without_layers_every_word_speaks() -> None:
    noisy = synthetic(500, noise=0.35)
    clf = HardmaxClassifier(method=Placed(kappa=0.8)).fit(noisy.texts, noisy.labels)
    none, all_ = clf.decision_function(noisy.texts, layers=0), clf.decision_function(noisy.texts)
    assert ((none > 0) != (all_ > 0)).any()
    (plane,), text = clf.model_.planes, noisy.texts[0]
    terms = clf.vocabulary_.encode([text])[0]
    every = plane.embedding[terms] @ plane.v[0]
    expected = plane.b[0] + every.sum() / (len(terms) + plane.count)
    assert clf.decision_function([text], layers=0)[0] == pytest.approx(expected, abs=1e-12)
    assert (clf.decision_function(noisy.texts, layers=8) == all_).all()
    with pytest.raises(ValueError, match="layers: expected a whole number"):
        clf.decision_function([text], layers=-1)


def test_C_is_the_best_of_its_neighbours_on_texts_held_out() -> None:
    """Labels half wrong call for a small C, clean ones for a larger."""
    chosen = []
    for noise in (0.02, 0.45):
        data = synthetic(400, noise=noise)
        clf = HardmaxClassifier(ngrams=(1, 1)).fit(data.texts, data.labels)
        scores = {
            C: HardmaxClassifier(ngrams=(1, 1), C=C).fit(data.texts, data.labels)
            for C in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
        }
        same = [
            C
            for C, other in scores.items()
            if (other.decision_function(data.texts) == clf.decision_function(data.texts)).all()
        ]
        assert same, "the model chosen is one of those of the grid"
        chosen.append(same[0])
    assert chosen[0] >= chosen[1]
    with pytest.raises(ValueError, match="C: expected a number > 0"):
        HardmaxClassifier(C=0.0).fit(data.texts, data.labels)
    with pytest.raises(ValueError, match="say it once"):
        HardmaxClassifier(C=1.0, method=Placed()).fit(data.texts, data.labels)


def test_the_words_read_are_the_telling_ones() -> None:
    """A tone word is worth more than a filler: a small budget reads tones."""
    noisy = synthetic(600, noise=0.3)
    clf = HardmaxClassifier(ngrams=(1, 1), words=3, negation=False).fit(noisy.texts, noisy.labels)
    tones = set(_TONES[0]) | set(_TONES[1])
    read = [word for text in noisy.texts[:100] for word in spoken(clf, text)]
    assert read and np.mean([word in tones for word in read]) > 0.9


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

    draw, n = np.random.default_rng(seed), 12_000  # the usual number of terms, 32, is seen to lose
    sizes = draw.integers(1, 60, size=n)
    sums = draw.normal(size=n) * np.sqrt(sizes)
    inside = draw.random(n) < 1 / (1 + np.exp(-6 * sums / (sizes + 8)))
    ((m, slope, b),) = decoders(Sums(sums[:, None], sizes, np.ones(n)), inside.astype(int))
    assert 2 <= m <= 32
    z = b + slope * sums / (sizes + m)
    losses = []
    for count in 2.0 ** np.arange(11):
        x = (sums / (sizes + count))[:, None]
        fit = LogisticRegression(C=1e4, tol=1e-8, max_iter=1000).fit(x / x.std(), inside)
        losses.append(log_loss(inside, fit.predict_proba(x / x.std())))
    assert log_loss(inside, 1 / (1 + np.exp(-z))) < min(losses) + 2e-3  # C = 100: nearly none


def test_without_evidence_the_anchor_counts_as_much_as_the_text() -> None:
    """Texts of one length say nothing about m; thirty texts hardly more."""
    draw = np.random.default_rng(0)
    for n, sizes in ((3000, np.full(3000, 40)), (30, draw.integers(1, 60, size=30))):
        sums = draw.normal(size=n) * np.sqrt(sizes)
        inside = draw.random(n) < 1 / (1 + np.exp(-20 * sums / sizes))
        assert decoders(Sums(sums[:, None], sizes, np.ones(n)), inside.astype(int))[0][0] == 32.0


def test_each_fit_has_a_zero_of_its_own() -> None:
    """Folds whose fits lean to one side or the other, and a final fit that leans by 2."""
    draw, sizes = np.random.default_rng(1), np.full(400, 9)

    def leaning(by: float) -> tuple[Sums, np.ndarray]:
        inside = np.arange(400) % 2
        means = np.where(inside, 1.0, -1.0) + draw.normal(size=400) + by
        return Sums(17.0 * means[:, None], sizes, np.ones(400)), inside

    (away, y), (seen, _) = (
        zip(*map(leaning, (-3.0, 0.5, 1.0))),
        zip(*map(leaning, (-3.0, 0.5, 1.0))),
    )
    folds = Folds(away, seen, leaning(2.0)[0])
    ((m, slope, b),) = decoders(folds, np.concatenate(y))
    assert m == 8.0  # next to the nine terms of a text
    assert abs(-b / slope - 2.0) < 0.2 and abs(slope - 2.0) < 0.3  # the true slope is 2
    ((_, blurred, b),) = decoders(Sums.joined(away), np.concatenate(y))
    assert blurred < 1.0 and abs(-b / blurred - 2.0) > 1.0  # without it


@pytest.mark.parametrize("dim", [2, 3, 4, 8])
def test_every_dimension_reads_alike(data: Dataset, dim: int) -> None:
    flat = HardmaxClassifier(dim=2, leaders=6).fit(data.texts, data.labels)
    clf = HardmaxClassifier(dim=dim, leaders=6).fit(data.texts, data.labels)
    assert clf.model_.planes[0].embedding.shape[1] == dim
    assert (clf.read(data.texts).leaders == flat.read(data.texts).leaders).all()
    assert (clf.read(data.texts).speaking == flat.read(data.texts).speaking).all()
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
    st.integers(1, 12),
    st.integers(0, 100),
)
def test_grades_are_nearest_values(s: list[float], levels: int, seed: int) -> None:
    weights = np.array(s)
    df = np.random.default_rng(seed).integers(1, 50, size=len(s)).astype(float)
    found = lloyd(weights, df, levels)
    middle = len(found.value) // 2
    assert len(found.value) % 2 and middle <= levels and found.value[middle] == 0.0
    assert (found.value == -found.value[::-1]).all() and (np.diff(found.value) > 0).all()
    assert (found.level == np.abs(np.arange(len(found.value)) - middle)).all()
    nearest = np.abs(weights[:, None] - found.value).min(axis=1)
    np.testing.assert_allclose(np.abs(weights - found.weight), nearest, atol=1e-9)


def test_grading_loses_little_and_beats_equal_spacing() -> None:
    draw = np.random.default_rng(0)
    s, df = draw.standard_t(3, size=2000), draw.integers(1, 100, size=2000).astype(float)
    losses = []
    for levels in (1, 3, 7, 15):
        graded = lloyd(s, df, levels)
        spaced = np.linspace(-np.abs(s).max(), np.abs(s).max(), 2 * levels + 1)
        loss = df @ (s - graded.weight) ** 2
        assert loss < df @ (np.abs(s[:, None] - spaced).min(axis=1)) ** 2
        losses.append(loss)
    assert losses == sorted(losses, reverse=True)


@given(st.integers(1, 40), st.integers(2, 6), st.integers(0, 1000))
def test_no_grade_captures_another_and_any_level_can_be_silenced(
    levels: int, dim: int, seed: int
) -> None:
    """Whatever terms a text has, the longest of each grade present follows itself, or the anchor
    if that is long enough."""
    draw = np.random.default_rng(seed)
    graded = lloyd(draw.normal(size=60), np.ones(60), levels)
    z, unit = placed(graded, draw.integers(9, size=60).astype(float), dim)
    assert z[:, 0] * unit == pytest.approx(graded.weight, rel=0.11)
    assert (graded.grade[(z @ z.T).argmax(axis=1)] == graded.grade).all()
    assert len(np.unique(z, axis=0)) == 60
    anchor, v = np.eye(dim)[1], np.eye(dim)[:1]
    plane = Plane(z, anchor, v, np.zeros(1), np.zeros(1), 1.0, 1.0)
    assert plane.rays is not None and plane.rays.apart
    level = graded.level[graded.grade]
    for silent, length in enumerate(plane.ladder.length):
        follows = length * z[:, 1] > (z @ z.T).max(axis=1)
        present = np.unique(level[level > 0])
        assert (follows == (level <= present[silent - 1] if silent else level == 0)).all()


def test_a_class_against_the_rest_is_calibrated_with_the_others() -> None:
    """Joint softmax: the truth is drawn from it, and slopes and biases are found again."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(20_000, 3))
    logits = x * [2.0, 0.5, 1.0] + [0.3, -0.5, 0.2]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (draw.random((len(x), 1)) > p.cumsum(axis=1)).sum(axis=1)
    slope, b = joint_decoder(x, y, np.ones(len(x)))
    assert slope == pytest.approx([2.0, 0.5, 1.0], abs=0.1)
    assert b - b.mean() == pytest.approx([0.3, -0.5, 0.2], abs=0.06)


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
    said = {"name": "placed", "C": 2.0, "folds": 3, "kappa": None}
    assert Placed(C=2.0).describe() == said
    assert Placed().set_params(C=3.0, kappa=1.0) == Placed(3.0, 3, 1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        Placed().set_params(depth=3)


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2)])
def test_texts_of_one_graded_mean_leave_the_prior(ngrams: tuple[int, int]) -> None:
    """The graded means differ by rounding alone; a slope through them is rounding over rounding."""
    texts, y = ["a b", "a c", "b c", "a d", "b d", "c d"], [0, 1, 0, 0, 1, 0]
    clf = HardmaxClassifier(ngrams=ngrams, min_df=2).fit(texts, y)
    prior = np.log(2 / 4)
    assert np.abs(clf.decision_function(texts) - prior).max() < 0.1


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


def test_a_text_of_no_weight_is_no_text_and_a_class_of_none_is_refused() -> None:
    data = synthetic(90, classes=("a", "b", "c"))
    present = (data.labels != "c") | (np.arange(90) % 2 == 0)
    clf = HardmaxClassifier(leaders=5).fit(data.texts, data.labels, sample_weight=present * 1.0)
    rows = np.flatnonzero(present)
    less = HardmaxClassifier(leaders=5).fit([data.texts[i] for i in rows], data.labels[rows])
    assert same_fit(clf, less, list(data.texts))
    gone = (data.labels != "c") * 1.0
    with pytest.raises(ValueError, match="leaves no text of the class 'c'"):
        HardmaxClassifier(leaders=5).fit(data.texts, data.labels, sample_weight=gone)


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


def test_dimensions_beyond_any_use_are_refused() -> None:
    with pytest.raises(ValueError, match="dim: expected at most 4096 dimensions"):
        HardmaxClassifier(dim=2**63, min_df=1).fit(["good film", "dull film"] * 5, [0, 1] * 5)


def _slowly_separating(x, inside, weight, C, rounds):
    """`separating` by a general minimiser of its loss, on a dense matrix."""
    from scipy.optimize import minimize

    x = np.column_stack((x, np.ones(len(x))))  # the intercept, held back by 1 as a weight is
    sign, w = np.where(inside, 1.0, -1.0), np.zeros(x.shape[1])
    for doubted in rounds:
        p = 1.0 / (1.0 + np.exp(-x @ w))
        ridge = 1.0 / C + doubted * ((weight * p * (1.0 - p)) @ x**2)
        ridge[-1] = 1.0

        def loss(at, ridge=ridge):
            return weight @ np.logaddexp(0.0, -sign * (x @ at)) + ridge @ at**2 / 2

        w = minimize(loss, w, options={"gtol": 1e-8}).x
    return w[:-1]


def _made_up_terms(texts=60, terms=8):
    rng = np.random.default_rng(0)
    inside = np.arange(texts) % 2 == 0
    share = np.linspace(0.1, 0.6, terms) + 0.25 * np.outer(inside, np.arange(terms) % 2)
    return (rng.random((texts, terms)) < share).astype(float), inside, rng.integers(1, 4, texts)


def test_the_ridge_of_dropout_is_that_of_its_equation():
    from scipy.sparse import csr_array

    x, inside, weight = _made_up_terms()
    x *= np.linspace(0.4, 1.0, x.shape[1])
    plain, dropped = (
        separating(csr_array(x), inside, weight, 10.0, 0, dropout) for dropout in (False, True)
    )
    slow, slow_dropped = (
        _slowly_separating(x, inside, weight, 10.0, rounds) for rounds in ([0.0], [1.0] * 3)
    )
    error = np.abs(plain - slow).max()  # the solver's own
    assert np.abs(dropped - slow_dropped).max() < 2 * error
    assert np.abs(dropped - slow).max() > 20 * error


def test_weights_do_not_depend_on_the_order_of_terms_within_a_text():
    from scipy.sparse import csr_array

    x, inside, weight = _made_up_terms()
    rising = csr_array(x)
    falling = csr_array(x[:, ::-1])
    falling = csr_array((falling.data, 7 - falling.indices, falling.indptr), x.shape)
    assert not np.array_equal(rising.indices, falling.indices)
    one, other = (weights(m, inside, weight, 3.0, 0, dropout=True) for m in (rising, falling))
    np.testing.assert_allclose(one, other, rtol=1e-9)  # sums in another order
