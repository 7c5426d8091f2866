"""Passages against the hardmax head they are read off from, token by token."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
from cynosure.classifier.explaining.passages import (
    ANCHOR,
    AXIS,
    NEAR,
    REACH,
    READ,
    Passage,
    bracketed,
    clauses,
    passages,
    pieces,
)
from cynosure.classifier.text.vocabulary import Tokenizer

CLF = cy.load_pretrained()
WORDS = "great awful not the film superb dull , . ! but plot is a moving (though) <br />".split(" ")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join)


def head(text: str, places: list[tuple[int, int]], read: list[bool]) -> np.ndarray:
    """Whom each word follows in the head itself: the number of a word, or -1 for the anchor."""
    n = len(places)
    t = np.arange(n) + 1000.0 * np.array(clauses(text, places))
    a = np.linalg.cholesky(np.exp(-NEAR * np.abs(t[:, None] - t)))  # rows: <a_i, a_j>
    w = np.column_stack((np.full(n, AXIS), np.sqrt(1 - AXIS**2) * a))
    later = 1 + 1e-9 * np.arange(n)  # of two as near, the later is the longer
    z = np.vstack((np.eye(n + 1)[:1] * ANCHOR, w * np.where(read, READ * later, 1.0)[:, None]))
    followed = cy.Hardmax().followed(z)
    leads = np.asarray(followed.leads)
    assert leads.tolist() == [True, *read]  # the words read lead, and the anchor, and nobody else
    return np.asarray(followed.target)[1:] - 1


@given(TEXTS, st.randoms(use_true_random=False))
def test_passages_are_the_clusters_of_the_head(text: str, draw) -> None:
    places = [(a, b) for _, a, b in Tokenizer((1, 1)).words(text)]
    read = [draw.random() < 0.2 for _ in places]
    target = head(text, places, read) if places else []
    terms = [([place], 1.0) for place, one in zip(places, read) if one]
    found = passages(text, places, terms)
    owner = {}
    for passage in found:
        (place,) = passage.read
        for k, (a, b) in enumerate(places):
            if passage.start <= a and b <= passage.stop:
                owner[k] = places.index(place)
    assert [owner.get(k, -1) for k in range(len(places))] == list(target)


def test_the_anchor_takes_what_is_out_of_reach() -> None:
    text = " ".join(f"w{k}" for k in range(2 * REACH + 20))
    places = [(a, b) for _, a, b in Tokenizer((1, 1)).words(text)]
    at = REACH + 5
    target = head(text, places, [k == at for k in range(len(places))])
    followers = np.flatnonzero(target == at)
    assert followers.tolist() == list(range(at - REACH, at + REACH + 1))
    (passage,) = passages(text, places, [([places[at]], 1.0)])
    assert (passage.start, passage.stop) == (places[at - REACH][0], places[at + REACH][1])


@given(TEXTS)
def test_passages_the_rest_and_the_intercept_are_the_decision(text: str) -> None:
    ex = CLF.explain(text)
    said = sum(passage.contribution for passage in ex.passages)
    read = {w.token for w in ex.read}
    rest = sum(w.contribution for w in ex.words if w.token not in read) + ex._anchor
    assert said + rest + ex.intercept == pytest.approx(ex.decision, abs=1e-9)
    assert "".join(piece for piece, _, _ in pieces(text, ex.passages)) == text
    bold = {text[a:b] for p in ex.passages for a, b in p.read}
    if not any("not" in w.text for w in ex.read):
        assert {x.lower() for x in bold} == {x for w in ex.read for x in w.text.split(" ")}
    for first, second in zip(ex.passages, ex.passages[1:]):
        assert first.stop <= second.start


def test_examples() -> None:
    shown = CLF.explain("A slow film, but what a wonderful ending!").marked
    assert shown.endswith("]") and "[but what a wonderful ending! +" in shown
    ex = CLF.explain("The acting was great but the plot is dull and far too long.")
    assert [p.text for p in ex.passages][-1].startswith("but the plot")
    assert CLF.explain("zzz").passages == () and CLF.explain("zzz").marked == "zzz"
    given = json.loads(ex.to_json())["passages"]
    assert [(one["start"], one["stop"]) for one in given] == [
        (p.start, p.stop) for p in ex.passages
    ]


def test_zero_has_no_sign_in_a_passage() -> None:
    shown = [Passage("slow", 0, 4, -0.001, ((0, 4),))]
    assert bracketed("slow film", shown) == "[slow +0.00] film"
