"""Words gathered by subject: what is planted is found, and the reading stays what it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.fitting import subjects as subjects_module
from cynosure.classifier.fitting.placement import Placed, Task
from cynosure.classifier.fitting.subjects import Subjects, subject_names
from cynosure.classifier.model.model import load_files, save_files
from cynosure.classifier.text.documents import Documents
from cynosure.classifier.text.vocabulary import Tokenizer, Vocabulary

# subject -> words that only stand among their own, then those for and against
PLANTED = {
    "music": ("song tune melody singer band chorus", "catchy soaring", "tinny droning"),
    "acting": ("actor role cast scene line part", "moving gifted", "wooden hammy"),
    "food": ("soup bread table cook plate menu", "tasty crisp", "soggy burnt"),
}
SUBJECT = {
    w: t for t, (topic, words) in enumerate(PLANTED.items()) for w in " ".join(words).split()
}


def corpus(n: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences about one subject each; the label is what most of their judging words say."""
    draw = np.random.default_rng(seed)
    texts, labels = [], []
    for i in range(n):
        side = i % 2
        sentences = []
        for topic in draw.permutation(list(PLANTED))[:2]:
            neutral, *judging = (w.split() for w in PLANTED[topic])
            said = side if draw.random() < 0.85 else 1 - side
            words = [*draw.choice(neutral, 4, replace=False), *draw.choice(judging[said], 2)]
            sentences.append(" ".join(draw.permutation(words)) + ".")
        texts.append(" ".join(sentences))
        labels.append(("good", "bad")[side])
    return texts, labels


TEXTS, LABELS = corpus(400, 0)
FRESH, TRUTH = corpus(100, 1)


def fitted(**other: object) -> HardmaxClassifier:
    few = {"leaders": 3, "words": None}  # so that words gather
    options = {"dim": 5, "ngrams": (1, 1), "method": Placed(subjects=3)} | few | other
    return HardmaxClassifier(**options).fit(TEXTS, LABELS)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def clf() -> HardmaxClassifier:
    return fitted(method=Placed(subjects=3, kappa=8.0))  # reads on, so that there is a cluster


def task(texts: list[str], labels: list[str], dim: int = 5) -> tuple[Task, Vocabulary]:
    vocabulary, documents = Vocabulary.build(texts, Tokenizer((1, 1), True, True), min_df=2)
    weight = np.ones(len(texts))
    y = (np.array(labels) == "good").astype(int)
    made = Task(
        documents=documents, y=y, weight=weight, df=np.bincount(documents.indices).astype(float),
        spelled=vocabulary.spelled, turns=None, classes=2, dim=dim, leaders=15, words=None,
        alpha=1.0, layers=8, seed=0,
    )  # fmt: skip
    return made, vocabulary


def purity(found: np.ndarray, vocabulary: Vocabulary) -> float:
    """Share of the planted words in a cluster whose commonest subject is theirs."""
    known = [(SUBJECT[w], int(found[j])) for j, w in enumerate(vocabulary.terms) if w in SUBJECT]
    return sum(
        max(np.bincount([s for s, c in known if c == cluster])) for cluster in {c for _, c in known}
    ) / len(known)


def test_planted_subjects_are_found_and_not_where_words_stand_anywhere():
    given, vocabulary = task(TEXTS, LABELS)
    assert purity(Subjects.of(given, 3).subject, vocabulary) == 1.0
    draw, every = np.random.default_rng(0), " ".join(TEXTS).replace(".", "").split()
    mixed = [" ".join(row) for row in draw.permutation(every).reshape(len(TEXTS), -1)]
    anywhere, vocabulary = task(mixed, LABELS)
    assert purity(Subjects.of(anywhere, 3).subject, vocabulary) < 0.8


def test_labels_play_no_part_in_subjects():
    given, _ = task(TEXTS, LABELS)
    turned = replace(given, y=np.roll(given.y, 1))
    assert np.array_equal(Subjects.of(given, 3).subject, Subjects.of(turned, 3).subject)


def test_a_text_of_weight_two_is_two_texts():
    given, _ = task(TEXTS, LABELS)
    twice = np.repeat(np.arange(len(TEXTS)), 2)
    doubled = replace(given, weight=2 * given.weight, df=2 * given.df)
    written = replace(
        given, documents=given.documents.take(twice), y=given.y[twice], weight=np.ones(len(twice)),
        df=2 * given.df,
    )  # fmt: skip
    assert np.array_equal(Subjects.of(doubled, 3).subject, Subjects.of(written, 3).subject)


def test_a_cluster_is_one_subject_with_one_tendency(clf: HardmaxClassifier):
    plane, index = clf.model_.planes[0], clf.vocabulary_.index
    assert plane.subject is not None
    gathered = 0
    for text in FRESH:
        ex = clf.explain(text)
        for leader in ex.leaders:
            if not leader.offsets or any(not w.offsets for w in leader.followers):
                continue  # the anchor's
            mine = [leader.text, *(w.text for w in leader.followers)]
            assert len({int(plane.subject[index[w]]) for w in mine}) == 1
            assert len({np.sign(w.score) for w in (leader, *leader.followers)}) == 1
            assert (
                leader.subject
                == subject_names(plane, clf.vocabulary_)[plane.subject[index[leader.text]]]
            )
            gathered += len(leader.followers)
    assert gathered > 50


def test_it_is_right_as_often_as_without_subjects(clf: HardmaxClassifier):
    plain = fitted(dim=2, method=None)
    assert clf.score(FRESH, TRUTH) >= plain.score(FRESH, TRUTH) - 0.03
    assert clf.score(FRESH, TRUTH) > 0.85


def test_one_pass_along_the_rays_is_the_certified_walk(clf: HardmaxClassifier):
    model, plane = clf.model_, clf.model_.planes[0]
    documents = clf.vocabulary_.encode(FRESH)
    fast = model.read(documents)
    assert fast.direct.all()
    for rows, real, last, history in model.walk(plane, documents):
        total = (last * real[..., None]).sum(axis=1) + (plane.count - 1) * last[:, 0]
        mean = total / (real.sum(axis=1) + plane.count - 1)[:, None]
        assert np.allclose(mean @ plane.v[0] + plane.b[0], fast.decision[rows, 0], atol=1e-12)
        assert np.array_equal((history.born >= 0).sum(axis=1), fast.leaders[rows, 0])


def test_contributions_add_up_to_the_decision(clf: HardmaxClassifier):
    for text in FRESH[:20]:
        ex = clf.explain(text)
        assert ex.intercept + sum(x.contribution for x in ex.leaders) == pytest.approx(ex.decision)
        assert ex.decision == pytest.approx(float(clf.decision_function([text])[0]), abs=1e-12)


def test_the_rule_of_reading_is_that_of_the_plane():
    """Strong first, until they outweigh the rest: by a plain loop over the weights."""
    clf = fitted(method=Placed(subjects=3, kappa=1.0))
    plane, kappa = clf.model_.planes[0], 1.0
    u = plane.embedding[:, 0] / np.linalg.norm(plane.embedding, axis=1)
    silenced = 0
    for text in FRESH:
        terms = clf.vocabulary_.encode([text]).indices
        size = np.round(np.abs(u[terms]), 9)
        for level in sorted(set(size[size > 0]), reverse=True):
            read = size >= level
            if abs(u[terms][read].sum()) >= kappa * np.sqrt((u[terms][~read] ** 2).sum()):
                break
        heard = plane.heard(Documents(np.array([0, len(terms)]), terms))
        assert np.array_equal(heard, read & (size > 0))
        silenced += int((~heard & (size > 0)).sum())
    assert silenced > 0


def test_grades_have_one_subject_and_sign_and_are_as_many_as_asked():
    given, _ = task(TEXTS, LABELS)
    found = Subjects.of(given, 3)
    s = np.random.default_rng(0).normal(size=len(given.df))
    for levels in (1, 6, found.most_levels):
        graded = found.graded(s, given.df, levels)
        assert len(graded.value) <= 2 * levels + 2 * 3 + 1
        for g in np.unique(graded.grade[graded.grade > 0]):
            mine = graded.grade == g
            assert len(set(found.subject[mine])) == 1
            assert set(np.sign(s[mine])) == {np.sign(graded.value[g])}
    fine = found.graded(s, given.df, found.most_levels)
    coarse = found.graded(s, given.df, 1)
    off = [given.df @ (x.weight - s) ** 2 for x in (fine, coarse)]
    assert off[0] < off[1]


def test_subjects_are_saved_and_what_is_no_subject_is_refused(
    clf: HardmaxClassifier, tmp_path: Path
):
    again = HardmaxClassifier.load(clf.save(tmp_path / "model"))
    assert again.method == clf.method
    for text in FRESH[:5]:
        assert again.explain(text).to_dict() == clf.explain(text).to_dict()
    assert any(x.get("subject") for x in again.explain(FRESH[0]).to_dict()["leaders"])
    plane = clf.model_.planes[0]
    for wrong in (plane.subject + 100, plane.subject - 1):
        model = replace(clf.model_, planes=(replace(plane, subject=wrong),))
        folder = save_files(tmp_path / "wrong", model, clf.vocabulary_, {})
        with pytest.raises(ValueError, match=r"subject\.0: expected the number of the subject"):
            load_files(folder)


def test_without_subjects_nothing_is_shown(tmp_path: Path):
    plain = fitted(dim=2, method=None)
    assert plain.model_.planes[0].subject is None
    assert subject_names(plain.model_.planes[0], plain.vocabulary_) == ()
    assert all("subject" not in x for x in plain.explain(FRESH[0]).to_dict()["leaders"])


@pytest.mark.parametrize("wrong", [1, -2, 25])
def test_a_number_of_subjects_that_cannot_be_is_refused(wrong: int):
    with pytest.raises(ValueError, match=r"method\.subjects: expected 0 or a number from 2 to 24"):
        fitted(method=Placed(subjects=wrong))


def test_subjects_need_room():
    with pytest.raises(ValueError, match="dim: 3 subjects need at least 4 dimensions, got 2"):
        fitted(dim=2)
    assert fitted(dim=3, method=Placed(subjects=2)).score(FRESH, TRUTH) > 0.85


def test_more_subjects_than_words_and_one_word_texts():
    clf = HardmaxClassifier(6, (1, 1), method=Placed(subjects=24), min_df=1)
    clf.fit(["good", "bad", "good good", "bad bad"] * 3, ["p", "n", "p", "n"] * 3)
    assert clf.predict(["good", "bad"]).tolist() == ["p", "n"]


def test_sides_keep_apart():
    centres = np.ones((24, 64)) / 8  # all the same: nothing but the push parts them
    for axes in (2, 6):
        side = subjects_module._sides(centres, axes)
        assert np.allclose(np.linalg.norm(side, axis=1), 1)
        cosine = side @ side.T - 2 * np.eye(24)
        assert cosine.max() < 0.999


def test_parameters_are_those_of_scikit_learn():
    clf = clone(HardmaxClassifier(6, method=Placed(subjects=3)))
    clf.set_params(method__subjects=5)
    assert clf.get_params()["method__subjects"] == 5
