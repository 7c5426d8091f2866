"""Words with offsets against a slow reading, n-grams, vocabulary, batches."""

from __future__ import annotations

import pickle
import unicodedata
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cynosure.classifier.kernels.words import count_terms
from cynosure.classifier.text.documents import Documents
from cynosure.classifier.text.inputs import as_texts
from cynosure.classifier.text.vocabulary import Tokenizer, Vocabulary

IDEOGRAPH = ("CJK UNIFIED", "CJK COMPAT", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC", "CJK RADICAL")


def slow_kind(c: str) -> str:
    if c in "'’ʼ＇":
        return "apostrophe"
    if c in "!?！？؟":
        return "sign"
    if c.isalpha() or unicodedata.category(c)[0] == "M":
        return "sign" if unicodedata.name(c, "").startswith(IDEOGRAPH) else "letter"
    category = unicodedata.category(c)
    return {"Nd": "digit", "So": "sign"}.get(category, "gap")


def slow_words(text: str) -> list[tuple[str, int, int]]:
    """The definition, one character at a time, for texts without markup."""
    out, i = [], 0
    while i < len(text):
        kind = slow_kind(text[i])
        if kind in ("gap", "apostrophe"):
            i += 1
            continue
        start = i
        i += 1
        while kind != "sign" and i < len(text):
            here = slow_kind(text[i])
            after = slow_kind(text[i + 1]) if i + 1 < len(text) else "gap"
            if here != kind and not (
                kind == "letter" and here == "apostrophe" and after == "letter"
            ):
                break
            i += 1
        word = "".join("'" if c in "’ʼ＇" else c.lower()[0] for c in text[start:i])
        out.append((word, start, i))
    return out


ALPHABET = "abzÉßİñж日本語かカ'’!?9٣.,- \n😀é́ʼ\U00020000\0"


@given(st.text(alphabet=ALPHABET, max_size=60))
def test_words_are_those_of_the_definition(text: str) -> None:
    assert Tokenizer((1, 1)).words(text) == slow_words(text)


@given(st.text(alphabet=st.characters(max_codepoint=0x2FFF, exclude_characters="<"), max_size=80))
def test_any_script_gives_the_words_of_the_definition(text: str) -> None:
    assert Tokenizer((1, 1)).words(text) == slow_words(text)


@given(st.text(max_size=80))
def test_offsets_index_the_original_string(text: str) -> None:
    tokenizer = Tokenizer((1, 1))
    for word, start, stop in tokenizer.words(text):
        assert 0 <= start < stop <= len(text)
        assert tokenizer.spelling(text[start:stop]) == word


def words(text: str, **options: bool) -> list[str]:
    return [word for word, _, _ in Tokenizer((1, 1), **options).words(text)]


def test_contractions_signs_and_digits() -> None:
    assert words("Don't STOP!! it's '90s, isn’t 3.5?") == [
        "don't", "stop", "!", "!", "it's", "90", "s", "isn't", "3", "5", "?",
    ]  # fmt: skip
    assert words("Don't", lowercase=False) == ["Don't"]


def test_markup_is_skipped_and_a_less_sign_is_not() -> None:
    assert words("a<br />b <i>c</i><!-- d -->e") == ["a", "b", "c", "e"]
    assert words("a < b and c > d, 3<4, <") == ["a", "b", "and", "c", "d", "3", "4"]
    assert words("x <unclosed " + "y " * 300)[:3] == ["x", "unclosed", "y"]


def test_ideographs_are_words_of_one_character() -> None:
    assert words("我爱你 ok") == ["我", "爱", "你", "ok"]


def slow_terms(text: str, low: int, high: int) -> list[str]:
    found = [word for word, _, _ in Tokenizer((1, 1)).words(text)]
    return [
        " ".join(found[i : i + n])
        for i in range(len(found))
        for n in range(low, high + 1)
        if i + n <= len(found)
    ]


TEXTS = st.lists(st.lists(st.sampled_from("a b c it's ! 7".split()), max_size=9).map(" ".join),
                 min_size=1, max_size=7)  # fmt: skip


@given(TEXTS, st.integers(1, 2), st.integers(0, 2), st.integers(1, 3))
def test_vocabulary_and_documents_against_counting(
    texts: list[str], low: int, more: int, min_df: int
) -> None:
    high = low + more
    vocabulary, documents = Vocabulary.build(texts, Tokenizer((low, high)), min_df=min_df)
    df = Counter(t for text in texts for t in set(slow_terms(text, low, high)))
    kept = {t: k for t, k in df.items() if k >= min_df}
    assert dict(zip(vocabulary.terms, vocabulary.df.tolist(), strict=True)) == kept
    assert list(vocabulary.terms) == sorted(kept, key=lambda t: (-kept[t], t))
    again = vocabulary.encode(texts)
    for i, text in enumerate(texts):
        expected = list(dict.fromkeys(t for t in slow_terms(text, low, high) if t in kept))
        assert [vocabulary.terms[j] for j in documents[i]] == expected
        assert again[i].tolist() == documents[i].tolist()


def test_max_features_keeps_the_most_frequent() -> None:
    vocabulary, _ = Vocabulary.build(["a b c", "a b", "a"], Tokenizer((1, 1)), min_df=1,
                                     max_features=2)  # fmt: skip
    assert vocabulary.terms == ("a", "b")


def test_occurrences_of_a_term_are_all_found() -> None:
    vocabulary, _ = Vocabulary.build(["not good", "not good"], Tokenizer((1, 2)))
    text = "Not good... NOT, good? not"
    found = [(vocabulary.terms[t], text[a:b]) for t, a, b in vocabulary.locate(text)]
    assert found == [
        ("not", "Not"), ("not good", "Not good"), ("good", "good"),
        ("not", "NOT"), ("not good", "NOT, good"), ("good", "good"), ("not", "not"),
    ]  # fmt: skip


def test_encoding_in_chunks_is_encoding_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"word{i % 5} and {'x ' * (i % 3)}" for i in range(50)] + [""]
    vocabulary, whole = Vocabulary.build(texts, min_df=1)
    monkeypatch.setattr("cynosure.classifier.text.vocabulary._CHUNK", 40)
    parts = vocabulary.encode(texts)
    assert np.array_equal(parts.indptr, whole.indptr)
    assert np.array_equal(parts.indices, whole.indices)
    assert len(vocabulary.encode([])) == 0


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(1, 100))
def test_padded_batches_hold_every_text_once(sizes: list[int], most: int) -> None:
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    documents = Documents(indptr, np.arange(indptr[-1]))
    seen = []
    for rows, terms, mask in documents.padded_batches(most):
        assert len(rows) == 1 or terms.size + len(rows) <= most
        for row, line, real in zip(rows.tolist(), terms, mask, strict=True):
            assert line[real].tolist() == documents[row].tolist()
            seen.append(row)
    assert sorted(seen) == list(range(len(sizes)))


def test_vocabulary_refuses_what_it_cannot_find_again() -> None:
    with pytest.raises(ValueError, match="has no word"):
        Vocabulary(("good", "--"), np.array([1, 1]))
    with pytest.raises(ValueError, match="the same"):
        Vocabulary(("good", "Good"), np.array([1, 1]))
    with pytest.raises(ValueError, match="2 counts"):
        Vocabulary(("a", "b"), np.array([1]))
    with pytest.raises(ValueError, match="ngrams"):
        Tokenizer((2, 1))


def test_vocabulary_survives_pickling() -> None:
    vocabulary, documents = Vocabulary.build(["a b", "a b"])
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again.terms == vocabulary.terms
    assert again.encode(["a b"])[0].tolist() == documents[0].tolist()


def test_texts_come_from_many_containers() -> None:
    pandas = pytest.importorskip("pandas")
    assert as_texts(np.array(["a", "b"])) == ["a", "b"]
    assert as_texts(pandas.Series(["a", "b"])) == ["a", "b"]
    assert as_texts(t for t in ("a", "b")) == ["a", "b"]
    assert as_texts(np.array([["a"], ["b"]], dtype=object)) == ["a", "b"]
    assert as_texts([b"caf\xc3\xa9"]) == ["café"]


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ("one text", TypeError, r"write \[text\]"),
        (5, TypeError, "expected a list of texts"),
        (["ok", float("nan")], ValueError, r"texts\[1\].*missing value"),
        (["ok", None], ValueError, "missing value"),
        (["ok", 3], ValueError, "expected a string, got 3"),
        ([b"\xff\xfe"], ValueError, r"texts\[0\].*not UTF-8"),
    ],
)
def test_bad_texts_are_named(texts: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_texts(texts)


def test_a_term_is_spelled_with_its_words() -> None:
    vocabulary, _ = Vocabulary.build(["good film", "good film no good no good"], min_df=1)
    spelled = vocabulary.spelled.toarray()
    number = {w: int(row.argmax()) for w, row in zip(vocabulary.terms, spelled) if " " not in w}
    assert len(set(number.values())) == spelled.shape[1] == 3
    for term, row in zip(vocabulary.terms, spelled):
        assert set(np.flatnonzero(row)) == {number[w] for w in term.split(" ")}
        assert set(row) <= {0.0, 1.0}


# --- negation ---------------------------------------------------------------------------------


def slow_negation(text: str) -> list[str]:
    """Up to three words behind a negator, to the next punctuation, one word at a time."""
    import re

    negators = {"not", "no", "never", "didn't", "isn't", "without", "cannot"}
    out, left = [], 0
    for found in re.finditer(r"[a-z]+(?:'[a-z]+)*|[!?.,;:()]", text.lower()):
        word = found.group()
        if word in ".,;:()":
            left = 0
        elif word in "!?":
            left = 0
            out.append(word)
        elif word in negators:
            left = 3
            out.append(word)
        else:
            out.append("not_" * (left > 0) + word)
            left -= left > 0
    return out


PIECES = (
    "not good Didn't like , it . never ! very ISN'T bad but ( no ) film ? without cannot".split()
)


@given(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join))
def test_words_behind_a_negator_are_words_of_their_own(text: str) -> None:
    tokenizer = Tokenizer((1, 1), negation=True)
    found = tokenizer.words(text)
    assert [word for word, _, _ in found] == slow_negation(text)
    for word, a, b in found:
        assert tokenizer.spelling(text[a:b]) == word.removeprefix("not_")


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join), min_size=1, max_size=5)
)
def test_negated_terms_are_found_again(texts: list[str]) -> None:
    """Built, spelled, read back from their spelling, encoded and located alike."""
    tokenizer = Tokenizer((1, 2), negation=True)
    vocabulary, documents = Vocabulary.build(texts, tokenizer, min_df=1)
    again = Vocabulary(vocabulary.terms, vocabulary.df, tokenizer).encode(texts)
    for i, text in enumerate(texts):
        words = slow_negation(text)
        terms = {*words, *(" ".join(pair) for pair in pairwise(words))}
        assert {vocabulary.terms[j] for j in documents[i]} == terms
        assert documents[i].tolist() == again[i].tolist()
        assert {vocabulary.terms[o.term] for o in vocabulary.locate(text)} == terms


def test_the_negator_is_part_of_the_place() -> None:
    text = "It isn’t that good, really"
    vocabulary, _ = Vocabulary.build([text], Tokenizer((1, 1), negation=True), min_df=1)
    places = {vocabulary.terms[t]: text[a:b] for t, a, b in vocabulary.locate(text)}
    assert places["not_good"] == "isn’t that good" and places["really"] == "really"


@given(
    st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join),
    st.lists(st.sets(st.sampled_from(["not", "good", "like", "didn't", "film"])), max_size=4),
)
def test_struck_words_are_gaps(text: str, struck: list[set[str]]) -> None:
    """Against writing the text again with a word nobody knows in their place."""
    tokenizer = Tokenizer((1, 2), negation=True)
    vocabulary, _ = Vocabulary.build([" ".join(PIECES), text, "a"], tokenizer, min_df=1)
    found = vocabulary.without(text, struck)
    for i, words in enumerate(struck):
        again = text
        for word, a, b in Tokenizer((1, 1)).words(text)[::-1]:
            if word in words:
                again = again[:a] + "zzzz" + again[b:]
        assert found[i].tolist() == vocabulary.encode([again])[0].tolist()


def test_scripts_and_styles_are_not_read() -> None:
    assert words("a <script>var x = 'bad';</script> b<STYLE type=x>c</style >d") == ["a", "b", "d"]
    assert words("a <script>never closed") == ["a", "never", "closed"]
    assert words("<scripted>a</scripted> <script/>b") == ["a", "b"]


@pytest.mark.parametrize("high", [1, 2])
def test_terms_are_counted_in_texts_of_any_length(high: int) -> None:
    """70,000 words: the table grows between texts, and before one that alone is too long for it."""
    rng = np.random.default_rng(high)
    words = rng.integers(1, 50_000, 70_000).tolist()
    ends = [0, 0, 5_000, 10_000, 15_000, 60_000, 60_003, 70_000]
    times = np.arange(1.0, len(ends))
    seen: dict[tuple[int, ...], list[float]] = {}  # term -> weight, last text, first word
    for t, (begin, end) in enumerate(pairwise(ends)):
        for i in range(begin, end):
            for n in range(1, min(high, end - i) + 1):
                entry = seen.setdefault(tuple(words[i : i + n]), [0.0, -1, i])
                if entry[1] != t:
                    entry[0], entry[1] = entry[0] + times[t], t
    hashes = np.array(words, np.uint64)
    found = count_terms(hashes, np.array(ends, np.int64), 1, high, times)
    assert len(set(found[0].tolist())) == len(seen)
    assert found[1].tolist() == [weight for weight, _, _ in seen.values()]
    assert found[2].tolist() == [len(term) for term in seen]
    assert found[3].tolist() == [first for _, _, first in seen.values()]
