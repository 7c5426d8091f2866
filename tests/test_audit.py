"""What a practitioner asks: abstaining, audits, words taken out, drift, stop words, negators."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from cynosure.classifier import audit, coverage, drift, struck
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.text.datasets import synthetic
from cynosure.classifier.text.vocabulary import Tokenizer, Vocabulary, surface

DATA = synthetic(400, noise=0.3)
CLF = HardmaxClassifier(words=6).fit(DATA.texts, DATA.labels)
NEW = synthetic(300, noise=0.3, seed=7)


def test_abstaining_by_probability_and_by_evidence_follows_its_curve() -> None:
    for by in ("probability", "evidence"):
        rows = coverage(CLF, NEW.texts, NEW.labels, by)
        for row in rows[::3]:
            said = CLF.predict(NEW.texts, abstain="?", **{by: row["threshold"]})
            answered = said != "?"
            assert answered.mean() == pytest.approx(row["answered"])
            assert (said == NEW.labels)[answered].mean() == pytest.approx(row["accuracy"])
        shares = [row["answered"] for row in rows]
        assert shares == sorted(shares, reverse=True) and shares[0] == 1.0
        assert rows[-1]["accuracy"] > rows[0]["accuracy"]
    with pytest.raises(ValueError, match="abstain"):
        CLF.predict(NEW.texts, probability=0.9)


def test_no_evidence_is_no_label_whatever_the_bound() -> None:
    assert CLF.predict(["zzz", ""], abstain="?").tolist() == ["?", "?"]
    assert coverage(CLF, ["zzz", *NEW.texts[:9]], NEW.labels[:10])[0]["answered"] == 0.9


def test_evidence_is_how_far_the_words_move_the_log_odds() -> None:
    why = CLF.explain(NEW.texts[0])
    verdict = CLF.read(NEW.texts[:1])
    assert CLF._opened.evidence(verdict)[0] == pytest.approx(abs(why.decision - why.prior))


def test_an_audit_counts_each_group() -> None:
    groups = np.where(np.arange(len(NEW)) % 3 == 0, "x", "y")
    rows = audit(CLF, NEW.texts, NEW.labels, groups)
    assert [row["group"] for row in rows] == ["all", "x", "y"]
    guess = CLF.predict(NEW.texts)
    x = groups == "x"
    assert rows[1]["texts"] == x.sum()
    assert rows[1]["accuracy"] == (guess == NEW.labels)[x].mean()
    first, second = CLF.classes_.tolist()
    assert rows[1]["wrongly"][second] == (guess[x & (NEW.labels == first)] == second).mean()


def test_words_that_decide_in_one_group_are_named() -> None:
    texts = [t + (" wonderful" if i % 2 else "") for i, t in enumerate(NEW.texts)]
    groups = np.arange(len(texts)) % 2
    rows = audit(CLF, texts, NEW.labels, groups)
    assert "wonderful" in rows[2]["decide"] and "wonderful" not in rows[1]["decide"]


def test_striking_is_deleting_everywhere() -> None:
    words = [w for w in CLF.explain(NEW.texts[0]).enough][:2]
    rows = struck(CLF, NEW.texts, words, NEW.labels)
    assert [row["word"] for row in rows][:2] == words
    for row, gone in zip(rows, [[words[0]], [words[1]], words]):
        after = [CLF.explain(t, struck=gone).prediction for t in NEW.texts]
        assert row["turned"] == (np.array(after) != CLF.predict(NEW.texts)).sum()
        assert row["accuracy after"] == (np.array(after) == NEW.labels).mean()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_word_taken_out_weighs_nothing_and_the_decoder_is_right_again(
    classes: int, tmp_path
) -> None:
    names = ("negative", "positive", "mixed")[:classes]
    data = synthetic(400, classes=names, noise=0.3)
    new = synthetic(300, classes=names, noise=0.3, seed=7)
    clf = HardmaxClassifier(words=6).fit(data.texts, data.labels)
    words = list(clf.explain(new.texts[0]).enough)[:2]
    out = clf.without(words, new.texts, new.labels)
    terms = clf.vocabulary_.terms
    hit = np.array([not set(words).isdisjoint(surface(term)) for term in terms])
    assert hit.any() and not out.coef_[:, hit].any()
    before, after = clf.coef_[:, ~hit], out.coef_[:, ~hit]
    ratio = (after * before).sum(axis=1, keepdims=True) / (before**2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(after, ratio * before, rtol=1e-9, atol=1e-12)
    for text in new.texts[:5]:
        why = out.explain(text)
        assert set(words).isdisjoint(why.enough)
        total = why.intercept + sum(leader.contribution for leader in why.leaders)
        assert total == pytest.approx(why.decision)

    def loss(model: HardmaxClassifier) -> float:
        p = model.predict_proba(new.texts)
        return float(
            -np.log(p[np.arange(len(new)), np.searchsorted(clf.classes_, new.labels)]).mean()
        )

    assert loss(out) <= loss(clf.without(words)) + 1e-6
    assert not clf.notes_ and words[0] in out.notes_[-1]
    opened = HardmaxClassifier.load(out.save(tmp_path / "model"))
    np.testing.assert_array_equal(
        opened.decision_function(new.texts), out.decision_function(new.texts)
    )
    with pytest.raises(TypeError, match="list of words"):
        clf.without(words[0])


def test_drift_names_what_came_and_is_quiet_where_nothing_did() -> None:
    same = drift(CLF, NEW.texts)
    assert same[0]["z"] < 1.5
    changed = drift(CLF, [t + " wonderful" for t in NEW.texts])
    assert changed[0]["z"] > same[0]["z"]
    row = next(row for row in changed if row["term"] == "wonderful")
    assert row["share"] == 1.0 and row["z"] > 5


def test_no_term_has_a_stop_word() -> None:
    clf = HardmaxClassifier(stop_words=["film", "The"]).fit(DATA.texts, DATA.labels)
    words = {w for term in clf.vocabulary_.terms for w in term.split(" ")}
    assert "film" not in words and "the" not in words
    every = {w for term in CLF.vocabulary_.terms for w in term.split(" ")}
    assert words < every
    english = HardmaxClassifier(stop_words="english").fit(DATA.texts, DATA.labels)
    assert "and" not in english.vocabulary_.terms
    with pytest.raises(ValueError, match="stop_words"):
        HardmaxClassifier(stop_words="german").fit(DATA.texts, DATA.labels)


@pytest.mark.parametrize(
    ("language", "text", "turned"),
    [
        ("german", "Das ist nicht besonders gut, aber kurz", ["not_besonders", "not_gut"]),
        ("french", "Ce n'est pas très bon, mais court", ["not_très", "not_bon"]),
        ("spanish", "Nunca fue bueno, pero breve", ["not_fue", "not_bueno"]),
        ("italian", "Non è mai stato bello, ma breve", ["not_è", "not_stato", "not_bello"]),
    ],
)
def test_negators_of_other_languages_turn_words(language, text, turned, tmp_path) -> None:
    from cynosure.classifier.text.vocabulary import negators_of

    tokenizer = Tokenizer((1, 1), negation=True, negators=negators_of(language))
    assert [w for w, *_ in tokenizer.words(text) if w.startswith("not_")] == turned
    texts = [text, text.replace(",", " ,")] * 8 + ["kurz court breve"] * 8
    labels = ["a"] * 16 + ["b"] * 8
    clf = HardmaxClassifier(negation=True, negators=language).fit(texts, labels)
    opened = HardmaxClassifier.load(clf.save(tmp_path / "model"))
    assert opened.vocabulary_.tokenizer == clf.vocabulary_.tokenizer
    assert opened.explain(text).enough == clf.explain(text).enough


def test_negators_can_be_given() -> None:
    vocabulary, _ = Vocabulary.build(
        ["bez good"], Tokenizer((1, 1), negation=True, negators=("bez",)), min_df=1
    )
    assert "not_good" in vocabulary.terms
    for wrong in ("klingon", ["not a word"], [""]):
        with pytest.raises(ValueError, match="negators"):
            HardmaxClassifier(negators=wrong).fit(DATA.texts, DATA.labels)


def test_a_vectorizer_before_it_is_refused_with_what_to_do() -> None:
    pipeline = make_pipeline(TfidfVectorizer(), HardmaxClassifier())
    with pytest.raises(TypeError, match=r"leave the vectorizer out.*read_linear"):
        pipeline.fit(DATA.texts, DATA.labels)
