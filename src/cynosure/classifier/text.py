"""Texts as sets of terms: words and n-grams with character offsets, a vocabulary, padded batches.

A word is a run of letters (any script, combining marks included) with inner apostrophes, so that
"don't" stays whole; a run of digits; or one sign: ! ? an emoji, a Chinese or Japanese character.
Other punctuation and markup tags such as <br /> separate words. A term is an n-gram of consecutive
words. A text becomes the set of its known terms: repeats carry no weight, order only through
n-grams and, where asked for, negation: up to three words behind a negator (not, never, didn't and
so on), to the next punctuation, are words of their own, spelled "not_good". The work is done by
`engine.kernels.words`; offsets always index the original string.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, final

import numpy as np

from ..engine.kernels.contract import Indices
from .columns import as_texts
from .documents import Documents

__all__ = ["Documents", "Occurrence", "Tokenizer", "Vocabulary", "as_texts"]

_PLANES = 0x30000  # code points above are ideographs of rare use: letters
_CHUNK = 1 << 22  # characters handed to the compiled code at once
_REACH = 3  # words behind a negator
_NEGATORS = """not no never neither nor none nobody nothing nowhere cannot without hardly barely
    scarcely don't doesn't didn't isn't aren't wasn't weren't won't wouldn't can't couldn't
    shouldn't hasn't haven't hadn't ain't mustn't mightn't needn't shan't
    dont doesnt didnt isnt arent wasnt werent wouldnt couldnt shouldnt hasnt havent hadnt
    aint""".split()
NOT = "not_"  # how a word behind a negator is spelled
_IDEOGRAPHS = (0x2E80, 0x303F), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (
    0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FFFF)  # fmt: skip


@cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Class and lower case of every code point below `_PLANES`."""
    from ..engine.kernels.words import APOSTROPHE, DIGIT, GAP, LETTER, SIGN, STOP

    kind = np.full(_PLANES, GAP, np.uint8)
    lower = np.arange(_PLANES, dtype=np.uint32)
    for point in range(_PLANES):
        character = chr(point)
        category = unicodedata.category(character)
        lower[point] = ord(character.lower()[0])  # one character always: offsets stay
        if character.isalpha() or category[0] == "M":
            kind[point] = LETTER
        elif category == "Nd":
            kind[point] = DIGIT
        elif category == "So":
            kind[point] = SIGN
    for first, last in _IDEOGRAPHS:
        block = kind[first : last + 1]
        block[block == LETTER] = SIGN
    for character in "!?！？؟":
        kind[ord(character)] = SIGN
    for character in "'’ʼ＇":
        kind[ord(character)], lower[ord(character)] = APOSTROPHE, ord("'")
    for character in '.,;:()[]{}"“”„«»…—–。、，；：（）「」':
        kind[ord(character)] = STOP
    return kind, lower


@cache
def _negators() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The negators in each case they are written in: the table of their hashes, the number of the
    form in each slot, and the forms."""
    from ..engine.kernels.words import table_of

    forms = sorted({form(w) for w in _NEGATORS for form in (str, str.capitalize, str.upper)})
    return *table_of(Tokenizer((1, 1), lowercase=False).scan(forms).hash), forms


class Words(NamedTuple):
    """The words of several texts: hash, offsets in their text, whether they begin a clause, the
    place of the negator before them (-1: none), and where each text begins."""

    hash: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    fresh: np.ndarray
    by: np.ndarray
    indptr: np.ndarray


class Spelt(NamedTuple):
    """Terms as words: term j has those of the numbers words[indptr[j] : indptr[j + 1]]. The table
    of the negators' hashes comes with the number of the word in each slot."""

    number: dict[str, int]
    indptr: np.ndarray
    words: np.ndarray
    negators: tuple[np.ndarray, np.ndarray]


class Occurrence(NamedTuple):
    """One place where a term stands: text[start:stop]."""

    term: int
    start: int
    stop: int


@final
@dataclass(frozen=True)
class Tokenizer:
    """Words of a text and their n-grams, n = ngrams[0]..ngrams[1].

    With `negation`, English negators mark the words behind them. Trap: n-grams cross punctuation
    ("good. Not" gives "good not"), as those of other libraries do; negation does not.

    Examples
    --------
    >>> Tokenizer(ngrams=(1, 1)).words("Don't <br />stop!")
    [("don't", 0, 5), ('stop', 12, 16), ('!', 16, 17)]
    >>> [word for word, *_ in Tokenizer(negation=True).words("Not that good, but fun")]
    ['not', 'not_that', 'not_good', 'but', 'fun']
    """

    ngrams: tuple[int, int] = (1, 2)
    lowercase: bool = True
    negation: bool = False

    def __post_init__(self) -> None:
        low, high = self.ngrams
        if not (1 <= low <= high <= 8):
            raise ValueError(f"ngrams: expected 1 <= low <= high <= 8, got {self.ngrams}")

    def scan(self, texts: Sequence[str]) -> Words:
        """All words of `texts`."""
        from ..engine.kernels.words import scan

        kind, lower = _tables()
        if not self.lowercase:
            lower = np.where(kind == 4, lower, np.arange(_PLANES, dtype=np.uint32))
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        starts = np.concatenate(([0], np.cumsum(lengths + 1)))
        if lengths.size and lengths.max() >= 2**31:
            raise ValueError("texts: one text has over 2^31 characters; cut it")
        joined = ("\0".join(texts) + "\0").encode("utf-32-le", "surrogatepass")
        points = np.frombuffer(joined, np.uint32)
        hashes, start, stop, fresh, indptr = scan(points, starts, kind, lower)
        return self.marked(Words(hashes, start, stop, fresh, np.full(len(start), -1), indptr))

    def marked(self, words: Words) -> Words:
        """The same words, those behind a negator with hashes of their own."""
        if not self.negation:
            return words
        from ..engine.kernels.words import negated

        hashes, by = negated(words.hash, words.fresh, words.indptr, _negators()[0], _REACH)
        return words._replace(hash=hashes, by=by)

    def scan_terms(self, terms: Sequence[str]) -> Words:
        """The words of terms as a vocabulary spells them, one term after the other."""
        plain = replace(self, negation=False)
        if not self.negation or not any(NOT in term for term in terms):
            return plain.scan(terms)
        from ..engine.kernels.words import negated_hash

        parts = [term.split(" ") for term in terms]
        words = plain.scan([term.replace(NOT, "") for term in terms])
        if [len(part) for part in parts] != np.diff(words.indptr).tolist():
            raise ValueError("vocabulary: a term is not spelled as its words are")
        hashes = words.hash.copy()
        for i in np.flatnonzero([w.startswith(NOT) for part in parts for w in part]).tolist():
            hashes[i] = negated_hash(hashes[i])
        return words._replace(hash=hashes)

    def words(self, text: str) -> list[tuple[str, int, int]]:
        """(word, start, stop) in order; the word in lower case, behind a negator as "not_word"."""
        words = self.scan([text])
        spans = zip(words.start.tolist(), words.stop.tolist(), (words.by >= 0).tolist())
        return [(NOT * no + self.spelling(text[a:b]), a, b) for a, b, no in spans]

    def spelling(self, word: str) -> str:
        """The form under which a word is known: lower case, straight apostrophes."""
        if word.isascii():
            return word.lower() if self.lowercase else word
        kind, lower = _tables()
        points = [ord(c) for c in word]
        fold = [
            int(lower[p]) if p < _PLANES and (self.lowercase or kind[p] == 4) else p for p in points
        ]
        return "".join(map(chr, fold))


@final
@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The terms a model knows, with the number of training texts that have each.

    Built from the training part only: a term first seen at test time has no embedding, and a random
    one could make it a leader. Terms are ordered by document frequency, then by spelling.
    """

    terms: tuple[str, ...]
    df: Indices
    tokenizer: Tokenizer = Tokenizer()

    def __post_init__(self) -> None:
        if len(self.terms) != len(self.df):
            raise ValueError(f"df: expected {len(self.terms)} counts, got {len(self.df)}")
        _ = self._table  # terms that are not their own words are refused here

    def __len__(self) -> int:
        return len(self.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self.terms, self.df, self.tokenizer)  # hashes may differ by version

    @cached_property
    def index(self) -> dict[str, int]:
        return {term: i for i, term in enumerate(self.terms)}

    @cached_property
    def spelled(self) -> Any:
        """(terms, words) sparse, 1 where a term has the word; words in order of appearance.

        A word behind a negator has two: itself and "not", for whatever negator it was."""
        from scipy.sparse import csr_array

        number: dict[str, int] = {}
        rows = [
            sorted({number.setdefault(w, len(number)) for w in surface(term)})
            for term in self.terms
        ]
        indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        indices = np.fromiter((w for row in rows for w in row), np.int32, int(indptr[-1]))
        return csr_array((np.ones(len(indices)), indices, indptr), (len(rows), len(number)))

    @cached_property
    def in_words(self) -> Spelt:
        """The words of each term in their order, those behind a negator without their mark."""
        keys, value, forms = _negators()
        words = " ".join(self.terms).replace(NOT, "").split(" ")
        number = {w: k for k, w in enumerate(dict.fromkeys((*words, *forms)))}
        counts = np.fromiter((1 + term.count(" ") for term in self.terms), np.int64, len(self))
        form = np.array([number[w] for w in forms], np.int32)
        return Spelt(
            number,
            np.concatenate(([0], np.cumsum(counts))),
            np.fromiter(map(number.__getitem__, words), np.int32, len(words)),
            (keys, np.where(value >= 0, form[value], -1)),
        )

    @cached_property
    def opposites(self) -> np.ndarray:
        """(terms,) the term of the same words without negation, -1 where there is none, for terms
        all of whose words stand behind a negator."""
        plain = np.full(len(self), -1, np.intp)
        for i in np.flatnonzero(self.negated).tolist():
            term = self.terms[i]
            if all(w.startswith(NOT) for w in term.split(" ")):
                plain[i] = self.index.get(term.replace(NOT, ""), -1)
        return plain

    @cached_property
    def negated(self) -> np.ndarray:
        """(terms,) whether a word of the term stands behind a negator."""
        return np.fromiter((NOT in term for term in self.terms), bool, len(self))

    @cached_property
    def negating(self) -> np.ndarray:
        """(terms,) whether a word of the term is a negator or stands behind one."""
        known = frozenset(_NEGATORS)
        words = (self.tokenizer.spelling(term).split(" ") for term in self.terms)
        return self.negated | np.fromiter((not known.isdisjoint(w) for w in words), bool, len(self))

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        from ..engine.kernels.words import table_of, whole_text_hashes

        words = self.tokenizer.scan_terms(self.terms)
        hashes = whole_text_hashes(words.hash, words.indptr)
        if (hashes == 0).any():
            bad = self.terms[int(np.argmin(hashes != 0))]
            raise ValueError(f"vocabulary: {bad!r} has no word in it")
        if len(np.unique(hashes)) != len(hashes):
            raise ValueError("vocabulary: two terms are the same (or share a hash); drop one")
        return table_of(hashes)

    @classmethod
    def build(
        cls,
        texts: Sequence[str],
        tokenizer: Tokenizer | None = None,
        *,
        min_df: float | int = 2,
        max_features: int | None = None,
        times: np.ndarray | None = None,
    ) -> tuple[Vocabulary, Documents]:
        """Terms in at least `min_df` texts, the `max_features` most frequent; and those texts.

        Text t counts times[t] (once by default), as that many equal texts would; where these are no
        whole numbers, the document frequencies of the vocabulary are rounded, the choice is not.
        """
        from ..engine.kernels.words import count_terms, distinct_terms, table_of

        tokenizer = tokenizer or Tokenizer()
        words = _scan_all(tokenizer, texts)
        low, high = tokenizer.ngrams
        hashes, df, order, first = count_terms(
            words.hash, words.indptr, low, high, np.ones(len(texts)) if times is None else times
        )
        keep = np.flatnonzero(df >= min_df)
        terms = _spelled(tokenizer, texts, words, first[keep], order[keep])
        ranked = np.array(sorted(range(len(keep)), key=terms.__getitem__), dtype=np.intp)
        ranked = ranked[np.argsort(-df[keep][ranked], kind="stable")][:max_features]
        vocabulary = cls(
            tuple(terms[j] for j in ranked.tolist()),
            np.maximum(np.rint(df[keep][ranked]), 1).astype(np.intp),
            tokenizer,
        )
        keys, value = table_of(hashes[keep][ranked])
        seen = np.full(len(ranked), -1, np.int32)
        indptr, indices = distinct_terms(words.hash, words.indptr, low, high, keys, value, seen)
        return vocabulary, Documents(indptr, indices)

    def encode(self, texts: Sequence[str]) -> Documents:
        """The known terms of each text."""
        parts = [self.known(words) for words in map(self.tokenizer.scan, _chunks(texts))]
        shift = np.cumsum([0, *(part.indptr[-1] for part in parts)])
        indptr = [part.indptr[1:] + s for part, s in zip(parts, shift)]
        return Documents(
            np.concatenate([[0], *indptr]).astype(np.int64),
            np.concatenate([np.empty(0, np.int32), *(part.indices for part in parts)]),
        )

    def known(self, words: Words) -> Documents:
        """The known terms of texts that were scanned."""
        from ..engine.kernels.words import distinct_terms

        low, high = self.tokenizer.ngrams
        seen = np.full(max(len(self), 1), -1, np.int32)
        return Documents(*distinct_terms(words.hash, words.indptr, low, high, *self._table, seen))

    def locate(self, text: str, struck: Collection[str] = ()) -> list[Occurrence]:
        """Every place where a known term stands in `text`, the words `struck` left out of it."""
        from ..engine.kernels.words import occurrences

        w = self._struck(text, [struck]) if struck else self.tokenizer.scan([text])
        low, high = self.tokenizer.ngrams
        start = np.where(w.by >= 0, w.start[w.by], w.start)  # the negator is shown
        rows = occurrences(w.hash, start, w.stop, low, high, *self._table)
        return [Occurrence(*row) for row in rows.tolist()]

    def without(self, text: str, struck: Sequence[Collection[str]]) -> Documents:
        """The known terms of `text` with each set of words struck out, wherever they stand.

        Words are given as the text has them, in the tokenizer's spelling. No term is formed across
        a gap; a negator that is struck out negates no more."""
        return self.known(self._struck(text, struck))

    def _struck(self, text: str, struck: Sequence[Collection[str]]) -> Words:
        """The words of `text` once for each set, with empty hashes where those of the set stood."""
        from ..engine.kernels.words import EMPTY

        plain = replace(self.tokenizer, negation=False)
        w = plain.scan([text])
        number: dict[str, int] = {}
        spans = zip(w.start.tolist(), w.stop.tolist(), strict=True)
        kind = [number.setdefault(plain.spelling(text[a:b]), len(number)) for a, b in spans]
        gone: np.ndarray = np.zeros((len(struck), max(len(number), 1)), bool)
        for row, words in zip(gone, struck, strict=True):
            row[[number[x] for x in words if x in number]] = True
        hashes = np.where(gone[:, np.array(kind, np.intp)], EMPTY, w.hash)
        indptr = np.arange(len(struck) + 1, dtype=np.int64) * len(kind)
        return self.tokenizer.marked(
            Words(hashes.ravel(), w.start, w.stop, np.tile(w.fresh, len(struck)), w.by, indptr)
        )


def surface(term: str) -> set[str]:
    """The words a term is made of; those behind a negator without their mark, and "not"."""
    words = term.split(" ")
    return {w.removeprefix(NOT) for w in words} | ({"not"} if NOT in term else set())


def _spelled(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    words: Words,
    first: np.ndarray,
    order: np.ndarray,
) -> list[str]:
    """The terms of `order` words that begin at the words `first`; every word is spelt once."""
    high = int(order.max(initial=1))
    at = np.minimum(first[:, None] + np.arange(high), len(words.hash) - 1)
    _, where, which = np.unique(words.hash[at], return_index=True, return_inverse=True)
    place = at.ravel()[where]
    text_of = np.searchsorted(words.indptr, place, side="right") - 1
    spans = zip(text_of.tolist(), words.start[place].tolist(), words.stop[place].tolist())
    spelt = [
        NOT * no + tokenizer.spelling(texts[t][a:b])
        for (t, a, b), no in zip(spans, (words.by[place] >= 0).tolist(), strict=True)
    ]
    rows: Any = which.reshape(at.shape).tolist()
    return [
        " ".join([spelt[j] for j in row[:n]]) for row, n in zip(rows, order.tolist(), strict=True)
    ]


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start, size = 0, 0
    for i, text in enumerate(texts):
        size += len(text) + 1
        if size >= _CHUNK:
            yield texts[start : i + 1]
            start, size = i + 1, 0
    if start < len(texts):
        yield texts[start:]


def _scan_all(tokenizer: Tokenizer, texts: Iterable[str]) -> Words:
    parts = [tokenizer.scan(chunk) for chunk in _chunks(list(texts))]
    if not parts:
        raise ValueError("texts: expected at least one text, got none")
    shift = np.cumsum([0, *(len(part.hash) for part in parts)])
    return Words(
        np.concatenate([part.hash for part in parts]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.stop for part in parts]),
        np.concatenate([part.fresh for part in parts]),
        np.concatenate([part.by for part in parts]),  # within its chunk: only its sign is asked
        np.concatenate([[0], *(part.indptr[1:] + s for part, s in zip(parts, shift))]),
    )
