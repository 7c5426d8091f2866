"""The parts of the sentiment experiments against slow references, and judges that can say no."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from cynosure.attention import Hardmax
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.explaining.explanation import Explanation
from cynosure.classifier.fitting.soft_model import Schedule, SoftLayers
from cynosure.classifier.text.datasets import Dataset, blocks, synthetic
from cynosure.classifier.text.vocabulary import Tokenizer
from cynosure.study import Cell
from cynosure.study.frame import resampled
from studies.reviews import _null_models as null_models
from studies.reviews import _rankings as samplers
from studies.reviews import sentiment_ablation as ablation
from studies.reviews import sentiment_faithfulness as faithful
from studies.reviews import sentiment_paper as paper
from studies.reviews import sentiment_placed as placed
from studies.reviews._models import (
    Variant,
    evaluate,
    final_tokens,
    initial,
    places,
    read_hard,
    soft_and_hard,
    train,
)
from studies.reviews._models import leaders as leaders_of
from studies.reviews._reviews import STOP_WORDS, Ids, Reviews, split, with_padding
from test_studies import quick

torch.set_num_threads(1)  # small tensors
TRAIN, TEST = synthetic(120, seed=0), synthetic(60, seed=1)


@pytest.fixture(scope="module")
def ids() -> Ids:
    return Ids.of(TRAIN, TEST)


# --- reviews ------------------------------------------------------------------------------------


def sequence(text: str) -> list[str]:
    return [word for word, _, _ in Tokenizer((1, 1)).words(text)]


def test_words_are_numbered_in_order(ids: Ids) -> None:
    known = {w for w in ids.words}
    for part, data in ((ids.train, TRAIN), (ids.test, TEST)):
        for i in (0, 7, len(data) - 1):
            found = [ids.words[j] for j in part[1][part[0][i] : part[0][i + 1]]]
            assert found == [w for w in sequence(data.texts[i]) if w in known]
    assert ids.held.tolist() == blocks(TRAIN.labels, 0.1).tolist()
    assert (ids.y_test == (TEST.labels == "positive")).all()


def test_long_reviews_are_cut_and_three_labels_refused() -> None:
    short = Ids.of(TRAIN, TEST, longest=5)
    assert np.diff(short.train[0]).max() == 5
    three = synthetic(30, classes=("a", "b", "c"))
    with pytest.raises(ValueError, match="two labels"):
        Ids.of(three, three)


@pytest.mark.parametrize("stop_words", [True, False])
def test_a_split_counts_the_first_words(ids: Ids, stop_words: bool) -> None:
    data = split(ids, tokens=6, stop_words=stop_words)
    assert len(data.train) + len(data.held) == len(TRAIN)
    for r, row in enumerate(data.test.row[:20]):
        words = [w for w in sequence(TEST.texts[row]) if w in set(ids.words)]
        words = [w for w in words if stop_words or w not in STOP_WORDS][:6]
        found = {data.words[j]: c for j, c in zip(data.test.terms[r], data.test.count[r]) if c > 0}
        assert found == {w: words.count(w) for w in words if w in set(data.words)}


def test_a_word_of_the_held_out_reviews_alone_is_unknown() -> None:
    texts = list(TRAIN.texts)
    held = np.flatnonzero(blocks(TRAIN.labels, 0.1))
    for i in held:
        texts[i] = "zebra " + texts[i]
    ids = Ids.of(Dataset(tuple(texts), TRAIN.labels), TEST)
    assert "zebra" in ids.words and "zebra" not in split(ids).words


# --- the model ----------------------------------------------------------------------------------


def slow(z: np.ndarray, v: np.ndarray, b: float, alpha: float, variant: Variant) -> float:
    """The published layers on the whole sequence, token by token, in float64."""
    for _ in range(variant.layers):
        new = np.empty_like(z)
        for i in range(len(z)):
            score = z @ z[i]
            if variant.temperature > 0:
                e = np.exp((score - score.max()) / variant.temperature)
            else:
                e = (score >= score.max() - 1e-12).astype(float)
            new[i] = (z[i] + alpha * (e @ z) / e.sum()) / (1 + alpha)
        z = new
    return float(z.mean(axis=0) @ v + b)


def start(words: int, dim: int, variant: Variant, seed: int = 0) -> dict:
    return {k: w.double() for k, w in initial(words, dim, variant, seed).items()}


@pytest.mark.parametrize("variant", [Variant(temperature=0.5, layers=3), Variant(layers=3)])
@pytest.mark.parametrize("dim", [2, 5])
def test_multiplicities_are_the_sequence(variant: Variant, dim: int) -> None:
    draw = np.random.default_rng(dim)
    rows = [draw.integers(0, 9, size=n) for n in (1, 4, 12, 20)]
    row = np.repeat(np.arange(4), [len(r) for r in rows])
    reviews = Reviews.of(row, np.concatenate(rows), np.ones(4, bool), 9)
    assert (reviews.sizes == [len(set(r.tolist())) for r in rows]).all()
    w = start(9, dim, variant)
    alpha = float(torch.nn.functional.softplus(w["step"]))
    E, v = w["embedding"].numpy(), w["v"].numpy()
    wanted = [slow(E[r], v, 0.0, alpha, variant) for r in rows]
    w = {k: x.float() for k, x in w.items()}
    np.testing.assert_allclose(evaluate(w, reviews, variant), wanted, atol=2e-5)
    if variant.temperature == 0:
        found = read_hard(w, reviews, variant.layers)
        np.testing.assert_allclose(found.decision, wanted, atol=1e-12)
        for i, r in enumerate(rows):
            z = E[np.unique(r)]
            assert found.initial[i] == Hardmax().followed(z).leads.sum()
        assert ((found.on_leaders > 0) & (found.on_leaders <= 1)).all()


def test_padding_is_inert_and_unmasked_padding_is_not() -> None:
    draw = np.random.default_rng(0)
    reviews = Reviews.of(np.repeat([0, 1], [5, 9]), draw.integers(0, 8, 14), np.ones(2, bool), 8)
    variant = Variant(layers=2)
    w = initial(9, 2, variant, 0)
    alpha = float(torch.nn.functional.softplus(w["step"]))
    wide = Reviews(
        np.pad(reviews.terms, ((0, 0), (0, 3))), np.pad(reviews.count, ((0, 0), (0, 3))),
        reviews.y, reviews.row,
    )  # fmt: skip
    plain = evaluate(w, reviews, variant)
    np.testing.assert_allclose(evaluate(w, wide, variant), plain, atol=1e-6)
    padded = with_padding(reviews, 12, 8)
    E, v = w["embedding"].double().numpy(), w["v"].double().numpy()
    wanted = []
    for terms, count in zip(reviews.terms, reviews.count.astype(int)):
        words = np.repeat(terms, count)
        words = np.concatenate((words, np.full(12 - len(words), 8)))
        wanted.append(slow(E[words], v, 0.0, alpha, variant))
    found = evaluate(w, padded, variant)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(found - plain).max() > 1e-3
    # a review that fills all places has no padding, and loses no word to it
    full = with_padding(reviews, int(reviews.count.sum(axis=1).max()), 8)
    np.testing.assert_allclose(evaluate(w, full, variant)[1], plain[1], atol=1e-6)
    assert (np.sort(full.terms[1, : full.sizes[1]]) == np.unique(reviews.terms[1])).all()


def test_variants_do_what_they_say() -> None:
    reviews = Reviews.of(np.zeros(6, int), np.arange(6), np.ones(1, bool), 6)

    def ends(variant: Variant) -> np.ndarray:
        return final_tokens(initial(6, 3, variant, 1), reviews, variant)[0]

    uniform = ends(Variant("uniform", layers=200))
    np.testing.assert_allclose(uniform, np.broadcast_to(uniform.mean(axis=0), (6, 3)), atol=1e-5)
    sphere = ends(Variant(layers=5, norm="sphere"))
    first = ends(Variant(layers=0, norm="sphere"))
    np.testing.assert_allclose(sphere, first, atol=1e-5)  # every token of a sphere leads
    layer = ends(Variant(layers=3, norm="layer"))
    np.testing.assert_allclose(layer.mean(axis=1), 0, atol=1e-5)
    moved = ends(Variant(layers=1, hidden=4)) - ends(Variant(layers=1))
    assert np.abs(moved).max() > 1e-3
    # several heads: the mean of what each finds with its own A, on the embedded tokens
    variant = Variant(layers=1, heads=3)
    w = initial(6, 3, variant, 1)
    z, eta = w["embedding"], 1 - 1 / (1 + torch.nn.functional.softplus(w["step"]))
    found = [z[(z @ A.T @ z.T).argmax(dim=1)] for A in w["forms"]]
    assert len({tuple(map(tuple, x.tolist())) for x in found}) > 1
    wanted = z + eta * (torch.stack(found).mean(dim=0) - z)
    np.testing.assert_allclose(ends(variant), wanted.numpy(), atol=1e-6)
    # random scores, not trained: the values move, the targets do not depend on them
    variant = Variant("random", layers=1)
    w = initial(6, 3, variant, 1)
    target = (w["constant"] @ w["constant"].T).argmax(dim=1)
    alpha = torch.nn.functional.softplus(w["step"])
    wanted = (w["embedding"] + alpha * w["embedding"][target]) / (1 + alpha)
    np.testing.assert_allclose(ends(variant), wanted.numpy(), atol=1e-6)


# --- training -----------------------------------------------------------------------------------


def test_training_learns_stops_and_repeats(ids: Ids) -> None:
    data = split(ids)
    soft, watch = soft_and_hard(data, layers=2)
    assert [*watch] == ["train soft", "train hard", "test soft", "test hard"]
    schedule = Schedule(12, 0.1, 16, patience=2)
    one, two = ([*train(data, 2, soft, schedule, watch)] for _ in range(2))
    assert [s.scores for s in one] == [s.scores for s in two]
    held = [s.scores["held loss"] for s in one]
    assert one[-1].best_epoch == int(np.argmin(held)) + 1
    assert one[-1].last and (len(one) == 12 or len(one) == one[-1].best_epoch + 2)
    assert one[-1].scores["test hard accuracy"] > 0.8 > one[0].scores["test hard accuracy"]
    again = evaluate(one[-1].best, data.test, SoftLayers(2, temperature=0.0))
    best = one[one[-1].best_epoch - 1].scores["test hard accuracy"]
    assert ((again > 0) == data.test.y).mean() == pytest.approx(best)


def test_the_report_shows_the_epoch_that_was_chosen() -> None:
    p = dataclasses.replace(paper.QUICK, dims=(2,), seeds=1, epochs=3)
    history, _ = paper._fitted(p, 2, "I", 0)
    report = paper.run(p)
    (row,) = next(t for t in report.tables if t.title == "Accuracy").rows
    chosen = history["epochs"][history["best_epoch"] - 1]
    assert len(history["epochs"]) == 3 and row[:3] == (2, "I", 128)
    assert chosen["test hard accuracy"] in row and report.failures == []


def test_a_model_whose_hardmax_differs_is_reported(monkeypatch) -> None:
    honest = paper._fitted

    def apart(*cell):
        history, weights = honest(*cell)
        for epoch in history["epochs"]:
            epoch["test soft accuracy"] = epoch["test hard accuracy"] + 0.02
        return history, weights

    monkeypatch.setattr(paper, "_fitted", apart)
    report = paper.run(dataclasses.replace(paper.QUICK, dims=(2,), seeds=1, epochs=1))
    assert [check.theorem for _, check in report.failures] == ["soft = hard"]


# --- ablation -----------------------------------------------------------------------------------


def test_leaders_and_places_of_a_variant(ids: Ids) -> None:
    data = split(ids)
    variant = Variant(layers=30)
    w = initial(len(data.words), 2, variant, 3) | {"step": torch.tensor(1.0)}
    some = data.test.take(np.arange(12))
    first, leaders, share = leaders_of(variant, w, some)
    E = w["embedding"].numpy().astype(np.float64)
    counts = [Hardmax().followed(E[t[c > 0]]).leads.sum() for t, c in zip(some.terms, some.count)]
    assert first == pytest.approx(np.mean(counts))
    assert leaders >= first and share > 0.99
    assert places(variant, w, some) <= leaders + 0.5  # two leaders may share a cell
    assert places(Variant(layers=0), w, some) > 0.8 * some.sizes.mean()


def test_an_interval_needs_two_seeds() -> None:
    with pytest.raises(ValueError, match="seeds"):
        ablation.run(dataclasses.replace(ablation.QUICK, seeds=1))
    assert ablation._interval(np.array([1.0, 3.0])) == pytest.approx(12.7062047)


# --- faithfulness -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clf() -> HardmaxClassifier:
    return HardmaxClassifier(2, (1, 1), 6, negation=False).fit(TRAIN.texts, TRAIN.labels)


def test_shapley_values_of_a_product() -> None:
    """f = x_0 x_1 + 2 x_2: the pair shares its worth; a linear part is exact for any order."""
    value = samplers.own_shap(lambda x: x[:, 0] * x[:, 1] + 2.0 * x[:, 2], 4, 400, 0)
    np.testing.assert_allclose(value, [0.5, 0.5, 2.0, 0.0], atol=1e-12)
    skewed = samplers.own_shap(lambda x: x.prod(axis=1) + x[:, 3], 4, 4000, 1)
    assert skewed.sum() == pytest.approx(2.0)
    np.testing.assert_allclose(skewed, [0.25, 0.25, 0.25, 1.25], atol=0.1)


def test_lime_finds_the_coefficients_of_a_linear_model() -> None:
    truth = np.array([0.3, -0.2, 0.0, 0.5, 0.0, 0.1])
    found = samplers.own_lime(lambda x: x @ truth, 6, 4000, 0)
    np.testing.assert_allclose(found, truth, atol=0.02)


def test_deleting_terms_is_deleting_words(clf: HardmaxClassifier) -> None:
    p = dataclasses.replace(faithful.QUICK, words=(3,), samples=20)
    texts = TEST.texts[:12]
    cases = [
        faithful.ranked_review(clf, clf.explain(t), p.samples, np.random.default_rng(i))
        for i, t in enumerate(texts)
    ]
    whole = clf.predict_proba(texts)
    for method in (faithful.CLUSTERS, faithful.OWN, faithful.RANDOM):
        curve = faithful._curve(p, clf, cases, method)
        flips, falls = [], []
        for text, case, before in zip(texts, cases, whole):
            gone = {clf.vocabulary_.terms[j] for j in case.terms[case.ranking[method][:3]]}
            left = " ".join(w for w in sequence(text) if w not in gone)
            after = clf.predict_proba([left])[0]
            flips.append(after.argmax() != case.label)
            falls.append(before[case.label] - after[case.label])
        assert curve.deleted[0, 0] == pytest.approx(np.mean(flips))
        assert curve.deleted[0, 1] == pytest.approx(np.mean(falls))


def test_the_gradient_adds_up_and_a_wrong_one_is_seen(clf: HardmaxClassifier, monkeypatch) -> None:
    texts = TEST.texts[:10]
    assert faithful._identity(clf, texts).holds
    honest = Explanation.gradient_times_token
    monkeypatch.setattr(Explanation, "gradient_times_token", lambda ex: honest(ex) * 1.001)
    assert faithful._identity(clf, texts).holds is False


# --- null models --------------------------------------------------------------------------------


def test_no_layers_is_the_model_with_layers_0(clf: HardmaxClassifier) -> None:
    texts = (*TEST.texts[:20], "zzz qqq")  # the last has no known word
    documents = clf.vocabulary_.encode(texts)
    bare = dataclasses.replace(clf.model_, layers=0).read(documents).decision[:, 0]
    np.testing.assert_allclose(null_models.without_layers(clf, documents), bare, atol=1e-12)


def test_placed_words_are_decided_without_the_layers(clf: HardmaxClassifier) -> None:
    """What the experiments must say: the verdicts of placed words are those of 0 layers."""
    found = null_models.beside_no_layers(clf, TRAIN.texts, TRAIN.labels, TEST.texts)
    assert found.same == len(TEST)
    moved = found._replace(none=~found.layers)
    assert moved.same == 0
    assert (found.refit == (TEST.labels == clf.classes_[1])).mean() > 0.8


def test_intervals_are_by_blocks() -> None:
    """Reviews of a film are alike: blocks of equal ones give an interval as wide as the blocks."""
    films = np.repeat(np.random.default_rng(0).integers(0, 2, 40), 25).astype(float)
    low, high = null_models.blockwise(films)
    alone = resampled(films)
    assert low < films.mean() < high and high - low > 3 * (alone[1] - alone[0])
    assert null_models.above(films + 1) and not null_models.above(films - films.mean())
    assert null_models.below(-films - 1) and not null_models.below(films)
    assert null_models.blockwise(np.array([0.0, 1.0])) == (0.0, 1.0)  # two reviews, two blocks
    assert null_models.said(np.ones(60)) == "+1.0000 (95 %: +1.0000 to +1.0000)"


def test_random_words_of_the_winning_side_are_of_it(clf: HardmaxClassifier) -> None:
    for i, text in enumerate(TEST.texts[:10]):
        draw = np.random.default_rng(i)
        ranked = faithful.ranked_review(clf, clf.explain(text), 20, draw)
        side, own = ranked.ranking[faithful.RANDOM_SIDE], ranked.ranking[faithful.OWN]
        assert sorted(side.tolist()) == sorted(own.tolist())


def curve_of(method: str, flips: list[bool], fair: list[bool], bare: list[bool]) -> Cell:
    one = np.zeros((1, 2))
    return Cell(
        method=method, deleted=one, left=one, matched=0.0, overlap=1.0, evaluations=1.0,
        flipped=np.array([flips]), fair=np.array([fair]), bare=np.array([bare]),
    )  # fmt: skip


def test_the_verdicts_on_explanations_are_computed() -> None:
    p = dataclasses.replace(faithful.QUICK, words=(5,))
    yes, no = [True] * 40, [False] * 40

    def verdicts(clusters: list[bool], leaders: list[bool], fair: list[bool]) -> list[bool]:
        curves = [
            curve_of(faithful.CLUSTERS, clusters, yes, clusters),
            curve_of(faithful.LEADERS, leaders, fair, leaders),
            curve_of(faithful.OWN, yes, yes, yes),
            curve_of(faithful.RANDOM, no, yes, no),
            curve_of(faithful.RANDOM_SIDE, no, yes, no),
            curve_of("LIME, own sampler", no, yes, no),
        ]
        return [c.survives for c in faithful._controls(p, curves)]

    assert verdicts(yes, no, yes) == [True, True, False, True, True]
    # few words flip little whoever chooses them: then leaders are not to blame
    assert verdicts(no, no, no) == [False, False, False, False, True]


def test_the_null_models_of_the_paper_judge_it(ids: Ids) -> None:
    data = split(ids)
    *_, last = train(data, 2, SoftLayers(2, temperature=0.0), Schedule(4, 0.1, 16))
    weights = {k: w.numpy() for k, w in last.best.items()}
    history = {"dim": 2, "tokens": 128}
    null = null_models.null_model([(history, weights, data)], Schedule(12, 0.1, 16))
    hard = evaluate(last.best, data.test, SoftLayers(8, temperature=0.0)) > 0
    bare = evaluate(last.best, data.test, SoftLayers(0)) > 0
    assert (null.hard == (hard == data.test.y)).all() and null.same == (hard == bare).mean()
    assert null.trained.mean() > 0.75 and null.linear.mean() > 0.8
    good, bad = (np.repeat(x, 60).astype(float) for x in (1, 0))
    better = null._replace(hard=good, bare=bad, trained=bad, linear=bad)
    assert [c.survives for c in null_models.null_controls([better])] == [True, True]
    equal = null._replace(hard=good, bare=good, trained=good, linear=good)
    assert [c.survives for c in null_models.null_controls([equal])] == [False, False]
    wider = equal._replace(dim=8)
    assert not null_models.null_controls([equal, wider])[-1].survives
    grows = [equal._replace(hard=bad, trained=bad), wider._replace(trained=bad)]
    assert null_models.null_controls(grows)[-1].survives
    twice, worse = equal._replace(seeds=2), equal._replace(seeds=2, hard=bad)
    trained = twice._replace(kind="free")
    assert null_models.null_controls([worse, trained])[-1].survives
    assert not null_models.null_controls([twice, trained])[-1].survives
    one = null_models.null_controls([worse, trained._replace(seeds=1)])[-1]
    assert not one.survives and "one seed" in one.seen


@pytest.mark.parametrize("name", ["sentiment_ablation", "sentiment_faithfulness",
                                  "sentiment_paper", "sentiment_placed"])  # fmt: skip
def test_every_sentiment_experiment_shows_the_row_of_0_layers(name: str) -> None:
    report, _ = quick(name)
    assert any("0 layers" in c.beside for c in report.controls)
    assert any("0 layers" in column for table in report.tables for column in table.columns)
    assert "0 layers" in report.summary


def test_the_placing_is_chosen_on_held_out_blocks() -> None:
    def placing(budget: float, held: float, right: float) -> placed.Placing:
        verdicts = null_models.Placed0(np.ones(40, bool), np.ones(40, bool), np.ones(40, bool))
        truth = np.arange(40) < right * 40
        return placed.Placing(1, 2, 0.0, budget, held, None, verdicts, truth)  # type: ignore

    worse, better = placing(3.0, 0.9, 0.5), placing(9.0, 0.8, 1.0)
    assert placed._chosen([worse, better], 1) is worse  # not the one that is best at test
    assert placed._chosen([better, placing(3.0, 0.8, 0.0)], 1).budget == 3.0
    (cost,) = placed._cost([worse, better], 1, "leaders", "budget")
    assert cost.survives and "budget 3 beside 9" in cost.beside
    assert placed._cost([worse], 1, "leaders", "budget") == []
