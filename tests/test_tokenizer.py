"""A tokenizer of one's own, from fit to explanation and file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from cynosure import HardmaxClassifier
from cynosure.classifier.evaluating.audit import struck
from cynosure.classifier.exports import write_json
from cynosure.classifier.text.datasets import synthetic
from cynosure.classifier.text.vocabulary import Tokenizer, Vocabulary

DATA = synthetic(400, seed=3)


def by_commas(text: str) -> list[str]:
    """One word for each field: c-3po, r2_d2."""
    return [part.strip() for part in text.split(",") if part.strip()]


def by_spaces(text: str) -> list[str]:
    return text.split()


def lemmas(text: str) -> list[str]:
    return ["be" if word in ("is", "was") else word for word in text.split()]


def fitted(**given: object) -> HardmaxClassifier:
    options = {"tokenizer": str.split, "ngrams": (1, 1), "negation": False} | given
    return HardmaxClassifier(**options).fit(DATA.texts, DATA.labels)  # type: ignore[arg-type]


def test_the_words_of_the_package_given_as_ones_own_give_its_model() -> None:
    plain = Tokenizer((1, 1))
    ours = HardmaxClassifier(negation="opposite").fit(DATA.texts, DATA.labels)
    theirs = HardmaxClassifier(
        negation="opposite", tokenizer=lambda text: [text[a:b] for _, a, b in plain.words(text)]
    ).fit(DATA.texts, DATA.labels)
    assert set(ours.vocabulary_.terms) == set(theirs.vocabulary_.terms)
    fresh = [*synthetic(50, seed=4).texts, "This is not a GOOD film. Not dull, never boring!", ""]
    ours_said, theirs_said = (clf.decision_function(fresh) for clf in (ours, theirs))
    np.testing.assert_allclose(ours_said, theirs_said, atol=1e-9)
    for text in fresh[-12:]:
        one, other = ours.explain(text), theirs.explain(text)
        assert one.enough == other.enough and one.overturn == other.overturn
        assert one.marked == other.marked


def test_words_keep_signs_and_digits_and_have_their_places() -> None:
    tokenizer = Tokenizer((1, 2), own=by_commas)
    assert tokenizer.words("C-3PO , r2_d2,x") == [("c-3po", 0, 5), ("r2_d2", 8, 13), ("x", 14, 15)]
    vocabulary, documents = Vocabulary.build(["c-3po, r2_d2", "r2_d2"], tokenizer, min_df=1)
    assert set(vocabulary.terms) == {"c-3po", "r2_d2", "c-3po r2_d2"}
    assert documents.sizes.tolist() == [3, 1]
    places = {
        vocabulary.terms[p.term]: (p.start, p.stop) for p in vocabulary.locate("R2_D2 ,c-3po")
    }
    assert places == {"r2_d2": (0, 5), "c-3po": (7, 12)}
    assert len(vocabulary.without("c-3po, r2_d2", [["c-3po"]]).indices) == 1


def test_it_negates_as_far_as_the_clause() -> None:
    tokenizer = Tokenizer((1, 1), negation=True, own=str.split)
    words = [word for word, *_ in tokenizer.words("Not that good , but fun")]
    assert words == ["not", "not_that", "not_good", ",", "but", "fun"]


def test_it_is_saved_by_name_and_read_back(tmp_path: Path) -> None:
    clf = fitted(tokenizer=by_spaces)
    opened = HardmaxClassifier.load(clf.save(tmp_path / "model"))
    assert opened.tokenizer is by_spaces and clone(opened).tokenizer is by_spaces
    np.testing.assert_array_equal(opened.predict_proba(DATA.texts), clf.predict_proba(DATA.texts))
    opened = HardmaxClassifier.load(fitted().save(tmp_path / "split"))
    assert opened.tokenizer is str.split


def test_a_file_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = fitted(tokenizer=by_spaces).save(tmp_path / "model")
    monkeypatch.delitem(sys.modules, by_spaces.__module__)
    with pytest.raises(ValueError, match=r"needs .*:by_spaces; import its module before"):
        HardmaxClassifier.load(saved)


def test_a_function_without_a_name_fits_and_is_not_saved(tmp_path: Path) -> None:
    clf = fitted(tokenizer=lambda text: text.split())
    assert clf.score(DATA.texts, DATA.labels) > 0.8
    with pytest.raises(ValueError, match="tokenizer: a model file holds the name of a function"):
        clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_lemmas_decide_and_say_why_they_cannot_be_shown() -> None:
    texts = [f"it {verb} {mood}" for verb in ("is", "was") for mood in ("good", "bad")] * 10
    clf = HardmaxClassifier(tokenizer=lemmas, ngrams=(1, 1)).fit(texts, [t[-3:] for t in texts])
    assert clf.predict(["was bad", "is good"]).tolist() == ["bad", "ood"]
    assert clf.explain("bad").prediction == "bad"
    with pytest.raises(ValueError, match="'be' does not stand in the text"):
        clf.explain("it was bad")


def test_words_struck_everywhere() -> None:
    texts = ["c-3po, fine", "c-3po, poor"] * 20
    clf = HardmaxClassifier(tokenizer=by_commas, ngrams=(1, 1)).fit(texts, ["a", "b"] * 20)
    (row,) = struck(clf, ["C-3PO, fine", "poor"], ["fine"])
    assert (row["texts"], row["turned"] + row["without evidence"] > 0) == (1, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "tokenizer: expected a function .*got 5"),
        (lambda text: [text], "strings without spaces"),
        (lambda text: [3], "it gave 3"),
        (lambda text: ["not_good"], "without 'not_'"),
    ],
)
def test_what_is_no_tokenizer_is_refused(given: object, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        fitted(tokenizer=given)


def test_readers_in_other_languages_have_no_function(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokenizer: the readers"):
        write_json(fitted(), tmp_path / "model.json")
