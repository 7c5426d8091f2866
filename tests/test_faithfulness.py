"""Deletions against a slow recomputation: one text at a time, words really taken out of it."""

from __future__ import annotations

import numpy as np
import pytest

from cynosure import datasets
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.evaluating.faithfulness import faithfulness
from cynosure.classifier.explaining.explanation import Explanation
from cynosure.classifier.fitting.placement import Placed
from cynosure.classifier.text.documents import Documents
from cynosure.classifier.text.vocabulary import Tokenizer

DATA = datasets.synthetic(300, seed=1, noise=0.25)
TEST = datasets.synthetic(60, seed=2, noise=0.25)
TEXTS = [f"{text}, not {text}" for text in TEST.texts[:25]]
GAP = "zzzz"  # no model knows it: no term is formed across it


@pytest.fixture(scope="module", params=[(1, 1), (1, 2)], ids=["words", "pairs"])
def clf(request: pytest.FixtureRequest) -> HardmaxClassifier:
    fitted = HardmaxClassifier(
        ngrams=request.param, leaders=6, words=12, negation=request.param == (1, 2)
    )
    return fitted.fit([f"{text} not that {text}" for text in DATA.texts], DATA.labels)


def clusters(ex: Explanation) -> tuple[list[list[str]], list[str]]:
    """Names of the terms by winning cluster, strongest first; and those of the neutral one."""
    side = 1 if ex.decision > 0 else -1
    winning, neutral = [], []
    for leader in sorted(ex.leaders, key=lambda x: -side * x.score):
        followers = sorted(leader.followers, key=lambda w: -side * w.score)
        names = [w.text for w in (leader, *followers) if w.offsets]
        if 0 in {leader.token, *(w.token for w in followers)}:
            neutral = names
        elif side * leader.score > 0:
            winning.append(names)
    return winning, neutral


def without_terms(clf: HardmaxClassifier, ex: Explanation, names: set[str]) -> float:
    kept = [clf.vocabulary_.index[w.text] for w in ex.words if w.text not in names]
    left = Documents(np.array([0, len(kept)]), np.array(kept, np.int32))
    return float(clf.model_.read(left).decision[0, 0])


def words_in(ex: Explanation, names: set[str]) -> set[str]:
    """The words of these terms where they stand; those behind a negator with it."""
    out = set()
    for w in ex.words:
        if w.text in names:
            out |= {word.removeprefix("not_") for word in w.text.split(" ")}
            if "not_" in w.text:
                spelt = (Tokenizer((1, 1)).words(ex.text[a:b]) for a, b in w.offsets)
                out |= {words[0][0] for words in spelt}
    return out


def without_words(clf: HardmaxClassifier, text: str, words: set[str]) -> float:
    """The text written again with a gap in place of each of these words."""
    for word, a, b in Tokenizer((1, 1)).words(text)[::-1]:
        if word in words:
            text = f"{text[:a]} {GAP} {text[b:]}"  # apart from a word that "?" stands next to
    return float(clf.decision_function([text])[0])


def test_deletions_equal_a_slow_recomputation(clf: HardmaxClassifier) -> None:
    found = {d.name: d for d in faithfulness(clf, TEXTS).deletions}
    slow: dict[str, list[tuple[bool, bool, int, int]]] = {}
    for text in TEXTS:
        ex = clf.explain(text)
        winning, neutral = clusters(ex)
        chosen = {
            "winning leaders with their followers": {x for names in winning for x in names},
            "winning leaders alone": {names[0] for names in winning},
            "the neutral cluster, all others kept": set(neutral),
        }
        for name, terms in chosen.items():
            words = words_in(ex, terms)
            if "neutral" in name:  # words that only neutral terms have
                words -= words_in(ex, {w.text for w in ex.words} - terms)
            side = ex.decision > 0
            turned = (without_terms(clf, ex, terms) > 0) != side
            struck = (without_words(clf, text, words) > 0) != side
            slow.setdefault(name, []).append((turned, struck, len(terms), len(words)))
    for name, rows in slow.items():
        flipped, struck, terms, words = np.mean(rows, axis=0)
        assert (found[name].flipped, found[name].terms) == (flipped, terms)
        assert (found[name].struck, found[name].words) == (struck, words)
    first, alone = found["winning leaders with their followers"], found["winning leaders alone"]
    assert first.flipped >= alone.flipped  # followers elect a new leader
    same = {d.terms for name, d in found.items() if "as many" in name or "with their" in name}
    assert len(same) == 1
    if clf.ngrams == (1, 1):
        assert all((d.terms, d.flipped) == (d.words, d.struck) for d in found.values())
    else:
        assert first.words != first.terms


def test_words_to_flip_are_those_struck_out_one_term_after_the_other(
    clf: HardmaxClassifier,
) -> None:
    needed = []
    for text in TEXTS:
        ex = clf.explain(text)
        names = [name for cluster in clusters(ex)[0] for name in cluster]
        turned = [
            len(words_in(ex, set(names[:k])))
            for k in range(1, len(names) + 1)
            if (without_words(clf, text, words_in(ex, set(names[:k]))) > 0) != (ex.decision > 0)
        ]
        needed.append(turned[0] if turned else np.inf)
    found = faithfulness(clf, TEXTS, most_words=3)
    finite = [n for n in needed if np.isfinite(n)]
    assert found.words_to_flip[:2] == (np.median(finite), pytest.approx(np.mean(finite)))
    assert found.flipped_within == np.mean([n <= 3 for n in needed])
    assert found.flipped_at_all == len(finite) / len(needed)
    assert 0 < found.flipped_within <= found.best_within


def test_no_two_words_do_better_than_the_best_single_words() -> None:
    """For single words, all read, the greedy choice is the ceiling: every pair is tried."""
    from itertools import combinations

    clf = HardmaxClassifier(
        ngrams=(1, 1), leaders=6, negation=False, method=Placed(kappa=float("inf"))
    ).fit(DATA.texts, DATA.labels)
    turned = []
    for text in TEST.texts[:25]:
        side = clf.decision_function([text])[0] > 0
        words = [w.text for w in clf.explain(text).words]
        pairs = combinations(words, 2) if len(words) > 1 else [(words[0],)]
        again = [
            " ".join(GAP if x in pair else x for x, _, _ in clf.vocabulary_.tokenizer.words(text))
            for pair in pairs
        ]
        turned.append(bool(((clf.decision_function(again) > 0) != side).any()))
    found = faithfulness(clf, TEST.texts[:25], most_words=2)
    assert found.best_within == np.mean(turned) > 0


def test_faithfulness_needs_words_and_leaves_empty_texts_out(clf: HardmaxClassifier) -> None:
    with pytest.raises(ValueError, match="nothing to delete"):
        faithfulness(clf, ["zzzz", ""])
    assert faithfulness(clf, ["zzzz", *TEST.texts[:3]]).texts == 3
