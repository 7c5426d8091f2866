"""Explanations: exact, repeatable, in place, and true about deletion."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.explaining.deletion import TextModel, spans
from cynosure.classifier.explaining.explanation import Explanation, explain
from cynosure.classifier.model.model import Model
from cynosure.classifier.model.plane import Plane
from cynosure.classifier.text.datasets import synthetic
from cynosure.classifier.text.documents import Documents
from cynosure.classifier.text.vocabulary import Vocabulary

DATA = synthetic(200)
CLF = HardmaxClassifier(leaders=6).fit(DATA.texts, DATA.labels)
# An anchor that counts several times, which so few short texts give no reason for.
CLF.model_ = replace(CLF.model_, planes=tuple(replace(p, count=8.0) for p in CLF.model_.planes))
WORDS = "great awful not the film superb dull xyzzy ! boring moving Plot, café's 😀 <br />".split(
    " "
)
TEXTS = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)


def loose_classifier(seed: int) -> tuple[Vocabulary, Model]:
    """A random embedding, where tokens wander through several layers before they settle."""
    vocabulary, _ = Vocabulary.build(DATA.texts, min_df=1)
    draw = np.random.default_rng(seed)
    embedding = draw.normal(size=(len(vocabulary), 2))
    plane = Plane(embedding, draw.normal(size=2), draw.normal(size=(2, 2)), np.ones(2), np.zeros(2))
    return vocabulary, Model((replace(plane, count=1.0 + seed % 3),), 0.4, 3)


def all_words(ex: Explanation) -> list[tuple[str, int]]:
    return [(w.text, w.token) for leader in ex.leaders for w in (leader, *leader.followers)]


def explained(text: str, vocabulary: Vocabulary, model: Model, row: int) -> Explanation:
    return explain(
        text, TextModel(vocabulary, model), row, 1.0, label="a", other="b", probability=0.5,
        others=None, struck=frozenset(), evidence=True,
    )  # fmt: skip


@given(TEXTS)
def test_contributions_and_intercept_are_the_decision(text: str) -> None:
    ex = CLF.explain(text)
    assert ex.decision == pytest.approx(CLF.decision_function([text])[0], abs=1e-9)
    assert sum(x.contribution for x in ex.leaders) + ex.intercept == pytest.approx(
        ex.decision, abs=1e-9
    )
    count = CLF.model_.planes[0].count
    assert ex.count == count > 1 and ex.total == ex.n - 1 + count
    for leader in ex.leaders:
        tokens = [leader.token, *(w.token for w in leader.followers)]
        weight = [1.0 if token else count for token in tokens]
        own = weight[0] * leader.score / ex.total + sum(w.contribution for w in leader.followers)
        assert own == pytest.approx(leader.contribution, abs=1e-9)
        assert leader.share == pytest.approx(len(tokens) / ex.n)
    assert not ex.leaders or sum(x.share for x in ex.leaders) == pytest.approx(1.0)


@given(TEXTS, st.integers(0, 20))
def test_wandering_tokens_are_accounted_for(text: str, seed: int) -> None:
    vocabulary, model = loose_classifier(seed)
    reading = model.read(vocabulary.encode([text]))
    for row in range(2):
        ex = explained(text, vocabulary, model, row)
        assert ex.decision == pytest.approx(reading.decision[0, row], abs=1e-9)
        total = sum(x.contribution for x in ex.leaders) + ex.intercept
        assert total == pytest.approx(ex.decision, abs=1e-9)
        if ex.leaders:
            assert sorted(i for _, i in all_words(ex)) == list(range(ex.n))


def test_every_term_appears_once_with_its_offsets() -> None:
    text = "Not great, not GREAT! The film: <br />superb…"
    ex = CLF.explain(text)
    names = [name for name, _ in all_words(ex)]
    assert len(names) == len(set(names)) == ex.n
    known = {CLF.vocabulary_.terms[o.term] for o in CLF.vocabulary_.locate(text)}
    assert {*known, "(neutral)"} == set(names)
    by_name = {w.text: w for w in ex.words}
    assert [text[a:b] for a, b in by_name["not_great"].offsets] == ["Not great", "not GREAT"]
    for word in ex.words:
        for a, b in word.offsets:
            assert CLF.vocabulary_.tokenizer.words(text[a:b])[-1][0] == word.text.split()[-1]


@given(TEXTS)
def test_deleting_a_cluster_is_deleting_its_words(text: str) -> None:
    """`without` against reading the remaining terms again."""
    ex = CLF.explain(text)
    for i, leader in enumerate(ex.leaders):
        gone = {leader.text, *(w.text for w in leader.followers)}
        terms = [CLF.vocabulary_.index[w.text] for w in ex.words if w.text not in gone]
        left = Documents(np.array([0, len(terms)]), np.array(terms, dtype=np.int32))
        assert ex.without(i) == pytest.approx(CLF.model_.read(left).decision[0, 0], abs=1e-9)
    assert ex.without() == pytest.approx(ex.decision, abs=1e-9)
    assert ex.without(*range(len(ex.leaders))) == CLF.decision_function([""])[0]


def test_a_hundred_explanations_are_one() -> None:
    text = DATA.texts[3]
    assert len({CLF.explain(text).to_json() for _ in range(100)}) == 1


def test_leaders_are_those_of_the_trajectory() -> None:
    ex = CLF.explain(DATA.texts[0])
    assert sorted(x.token for x in ex.leaders) == cy.roles(ex.trajectory).leaders.tolist()
    assert [abs(x.contribution) for x in ex.leaders] == sorted(
        (abs(x.contribution) for x in ex.leaders), reverse=True
    )
    assert ex.trajectory.z.shape == (9, ex.n, 2)
    assert len(ex.leaders) == CLF.read([DATA.texts[0]]).leaders[0, 0]


def test_json_says_it_all() -> None:
    ex = CLF.explain("great film, awful plot")
    found = json.loads(ex.to_json())
    assert found["decision"] == ex.decision and found["label"] == "positive"
    assert found["other"] == "negative"
    assert ex.prediction == CLF.predict([ex.text])[0]
    assert ex.probability == CLF.predict_proba([ex.text])[0, 1]
    total = sum(x["contribution"] for x in found["leaders"]) + found["intercept"]
    assert total == pytest.approx(found["decision"], abs=1e-9)
    a, b = next(x for x in found["leaders"] if x["text"] == "great")["offsets"][0]
    assert found["text"][a:b] == "great"
    assert 0.0 < found["probability"] < 1.0


def test_the_page_stands_alone_and_is_safe() -> None:
    text = "great </script><script>alert(1)</script> film & 'quotes' \u2028 __DATA__"
    page = CLF.explain(text).to_html()
    assert page.count("<script") == 2 and "alert(1)</script>" not in page
    links = re.findall(r"(?:src|href)\s*=|url\(|@import|fetch\(", page)
    assert links == []
    assert "https://" not in page and re.findall(r"http://\S+", page) in (
        [], ['http://www.w3.org/2000/svg",'],
    )  # fmt: skip
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    assert data["text"] == text
    assert len(data["layers"]) == 9 and len(data["layers"][0]) == len(data["names"])
    assert "srcdoc" in CLF.explain(text)._repr_html_()


def test_higher_dimensions_are_drawn_along_the_decoder() -> None:
    clf = HardmaxClassifier(dim=4, leaders=5).fit(DATA.texts, DATA.labels)
    ex = clf.explain(DATA.texts[0])
    data = json.loads(re.search(r'id="data">(.*?)</script>', ex.to_html(), re.S)[1])  # type: ignore[index]
    x = np.array(data["layers"])[-1, :, 0]
    np.testing.assert_allclose(x * np.linalg.norm(ex.v), ex.trajectory.values[-1] @ ex.v, atol=1e-5)


def test_save_and_plot(tmp_path: Path) -> None:
    ex = CLF.explain(DATA.texts[0])
    assert ex.save(tmp_path / "e.html").read_text("utf-8") == ex.to_html()
    assert json.loads(ex.save(tmp_path / "e.json").read_text("utf-8")) == ex.to_dict()
    with pytest.raises(ValueError, match=r"\.html or \.json"):
        ex.save(tmp_path / "e.pdf")
    ax = ex.plot(top=3)
    assert len(ax.patches) == 3
    widths = sorted((abs(bar.get_width()) for bar in ax.patches), reverse=True)
    assert widths == pytest.approx([abs(x.contribution) for x in ex.leaders[:3]])


@pytest.mark.parametrize("label", ["sideways", [], ["positive"], np.array(["positive"]), ("x",)])
def test_unknown_labels_are_named(label) -> None:
    with pytest.raises(ValueError, match=r"label: expected one of .*'positive'"):
        CLF.explain("x", label=label)


@pytest.mark.parametrize("seed", range(4))
def test_gradient_times_token_is_the_derivative_in_its_length(seed: int) -> None:
    """Scale one term by 1 + e: the decision changes by e times its share; the shares add up."""
    vocabulary, model = loose_classifier(seed)
    text = "the film was superb and moving, not dull or boring"
    ex = explained(text, vocabulary, model, 1)
    share = ex.gradient_times_token()
    assert ex.intercept + share.sum() == pytest.approx(ex.decision, abs=1e-12)
    words = list(ex.trajectory.words or ())
    for token, word in enumerate(words[1:], start=1):
        (plane,) = model.planes
        embedding = plane.embedding.copy()
        embedding[vocabulary.index[word]] *= 1 + 1e-7
        moved = replace(model, planes=(replace(plane, embedding=embedding),))
        after = explained(text, vocabulary, moved, 1)
        assert (after.decision - ex.decision) / 1e-7 == pytest.approx(share[token], abs=1e-5)


@pytest.mark.parametrize("words", [["wonderful"], ["A", "film"], ["Slow", "ending", "nothing"]])
def test_struck_words_leave_what_deletions_leave(words: list[str]) -> None:
    """The oracle: `deletions` strikes words from the set of terms and reads the rest again."""
    from cynosure.classifier.evaluating.faithfulness import _case, _probabilities

    clf, text = cy.load_pretrained(), "A slow film, but what a wonderful ending of a film!"
    case = _case(clf, clf.explain(text))
    gone = {w.lower() for w in words}
    left = [gone.isdisjoint(mine) for mine in case.spelled]
    (expected,) = _probabilities(clf, [case.terms[np.array(left)]])
    ex = clf.explain(text, struck=words)
    assert ex.probability == pytest.approx(expected[1], abs=1e-12)
    assert sum(leader.contribution for leader in ex.leaders) + ex.intercept == pytest.approx(
        ex.decision, abs=1e-12
    )
    left = {word for w in ex.words for word in w.text.split(" ")}
    assert left and left.isdisjoint(w.lower() for w in words)


# --- enough and overturn ----------------------------------------------------------------------

NOISY = synthetic(400, noise=0.3, seed=4)
READER = HardmaxClassifier(words=6).fit(NOISY.texts, NOISY.labels)


@given(TEXTS)
def test_what_was_read_and_what_is_silent_make_the_decision(text: str) -> None:
    ex = READER.explain(text)
    assert len(ex.read) == READER.read([text]).speaking[0, 0]
    said = sum(span.contribution for span in ex.spans)
    silent = sum(w.contribution for w in ex.words if w.text not in {x.text for x in ex.read})
    assert ex.intercept + said + silent == pytest.approx(ex.decision, abs=1e-9)
    assert abs(silent) <= 2.0**-8 * sum(abs(x) for x in ex.gradient_times_token()) * 300 + 1e-9
    sizes = [abs(w.contribution) for w in ex.read]
    assert sizes == sorted(sizes, reverse=True)
    spelt = {word.removeprefix("not_") for w in ex.read for word in w.text.split(" ")}
    negators = {"not"} if any("not_" in w.text for w in ex.read) else set()
    assert set(ex.enough) == spelt | negators and len(set(ex.enough)) == len(ex.enough)


@given(TEXTS)
def test_overturned_verdicts_are_really_turned(text: str) -> None:
    """The text is written again without the words, and nothing smaller of the set would do."""
    ex = READER.explain(text)
    words = READER.vocabulary_.tokenizer.__class__((1, 1)).words(text)

    def verdict(gone: set[str]) -> str:
        again = text
        for word, a, b in words[::-1]:
            if word in gone:
                again = again[:a] + "zzzz" + again[b:]
        return str(READER.predict([again])[0])

    if ex.overturn:
        assert verdict(set(ex.overturn)) != ex.prediction
        for word in ex.overturn:
            assert len(ex.overturn) == 1 or verdict(set(ex.overturn) - {word}) == ex.prediction
    else:
        alone = {w for w, _, _ in words}
        assert all(verdict({w}) == ex.prediction for w in alone)


def test_overlapping_terms_are_one_span() -> None:
    text = "what a great, great job: superb. A great film"
    found = spans(
        text,
        [("great", ((7, 12), (14, 19), (35, 40)), 1.0), ("a great", ((5, 12), (33, 40)), 0.5),
         ("great job", ((14, 23),), 0.25), ("superb", ((25, 31),), -2.0)],
    )  # fmt: skip
    assert [(s.text, s.contribution) for s in found] == [("superb", -2.0), ("great job", 1.75)]
    assert found[1].offsets == ((5, 12), (14, 23), (33, 40))
    assert set(found[1].terms) == {"great", "a great", "great job"}


def test_the_page_of_a_long_text_is_bounded() -> None:
    rng = np.random.default_rng(0)
    made = [f"w{''.join(map(chr, rng.integers(97, 123, 6)))}" for _ in range(30_000)]
    clf = HardmaxClassifier(ngrams=(1, 1), min_df=1).fit(
        [*NOISY.texts, " ".join(made)], [*NOISY.labels, "positive"]
    )
    text = " ".join((*NOISY.texts[:5], *made, *made, *made, *made))
    assert len(text) > 900_000
    page = clf.explain(text).to_html()
    assert len(page) < 3_000_000 and "shown in part" in page


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_run_that_is_shown_has_the_decision_of_the_fast_path(count: int) -> None:
    """Decisions go along rays; what is shown is a run of `simulate`, whose mean token decides."""
    clf = cy.load_pretrained()
    draw = np.random.default_rng(0)
    words = [term for term in clf.vocabulary_.terms if " " not in term]
    texts = [" ".join(draw.choice(words, draw.integers(1, 60))) for _ in range(count)]
    for text, decision in zip(texts, clf.decision_function(texts), strict=True):
        ex = clf.explain(text)
        z = ex.trajectory.values[-1]
        weight = np.ones(len(z))
        weight[0] = ex.count
        shown = ex.intercept + ex.v @ (weight @ z) / ex.total
        assert shown == pytest.approx(decision, rel=1e-12, abs=1e-12)
