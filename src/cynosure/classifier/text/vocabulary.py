"""Texts as sets of terms: words and n-grams with character offsets, and a vocabulary.

A word is a run of letters (any script, combining marks included) with inner apostrophes, so that
"don't" stays whole; a run of digits; or one sign: ! ? an emoji, a Chinese or Japanese character.
Other punctuation and markup tags separate words. A term is an n-gram of consecutive words. A text
becomes the set of its known terms: repeats carry no weight, order only through n-grams and, where
asked for, negation: up to three words behind a negator, to the next punctuation, are words of their
own, spelled "not_good". `kernels.words` does the work; offsets index the original string.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, final

import numpy as np

from ...engine.kernels.contract import Indices
from .documents import Documents

_PLANES = 0x180, 0x3000, 0x30000  # code points above are ideographs of rare use: letters
_CHUNK = 1 << 22  # characters handed to the compiled code at once
REACH = 3  # words behind a negator
NEGATORS = {
    "english": """not no never neither nor none nobody nothing nowhere cannot without hardly barely
        scarcely don't doesn't didn't isn't aren't wasn't weren't won't wouldn't can't couldn't
        shouldn't hasn't haven't hadn't ain't mustn't mightn't needn't shan't
        dont doesnt didnt isnt arent wasnt werent wouldnt couldnt shouldnt hasnt havent hadnt
        aint""",
    "german": """nicht nie niemals nirgends nichts niemand niemanden niemandem kein keine keinen
        keinem keiner keines keinerlei weder ohne kaum""",
    "french": "ne pas jamais rien aucun aucune aucunement guère nulle personne sans ni",
    "spanish": """no ni nunca jamás nada nadie ningún ninguno ninguna ningunos ningunas tampoco sin
        apenas""",
    "italian": """non né mai niente nulla nessun nessuno nessuna neanche nemmeno neppure senza
        appena""",
}
_STOPS = frozenset('.,;:()[]{}"“”„«»…—–。、，；：（）「」!?！？؟')  # what ends a clause
_ENGLISH = tuple(NEGATORS["english"].split())
NOT = "not_"  # how a word behind a negator is spelled
_IDEOGRAPHS = (0x2E80, 0x303F), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (
    0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FFFF)  # fmt: skip


@cache
def _tables(size: int = _PLANES[-1]) -> tuple[np.ndarray, np.ndarray]:
    """Class and lower case of every code point below `size`."""
    from ..kernels.plain import APOSTROPHE, DIGIT, GAP, LETTER, SIGN, STOP

    kind = np.full(size, GAP, np.uint8)
    lower = np.arange(size, dtype=np.uint32)
    for point in range(size):
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
    listed = {"!?！？؟": SIGN, "'’ʼ＇": APOSTROPHE, '.,;:()[]{}"“”„«»…—–。、，；：（）「」': STOP}
    for characters, of in listed.items():
        for point in map(ord, characters):
            if point < size:
                kind[point] = of
                lower[point] = ord("'") if of == APOSTROPHE else lower[point]
    return kind, lower


def _size(largest: int) -> int:
    """How long the tables must be for this code point."""
    return next((size for size in _PLANES if largest < size), _PLANES[-1])


@cache
def _negators(words: tuple[str, ...], own: bool) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The negators in each case they are written in: the table of their hashes, the number of the
    form in each slot, and the forms. `own`: among the words of somebody's own tokenizer."""
    from ..kernels.plain import table_of

    forms = sorted({form(w) for w in words for form in (str, str.capitalize, str.upper)})
    hashes = Tokenizer((1, 1), lowercase=False).scan(forms).hash
    return *table_of(_hashes(forms) if own else hashes), forms


def _hashes(words: Iterable[str]) -> np.ndarray:
    """A number, never 0, for each word of somebody's own tokenizer."""
    return np.array([_hash(word) for word in words], np.uint64)


@lru_cache(maxsize=1 << 20)
def _hash(word: str) -> int:
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def negators_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """The negators of a language, or those given, in lower case."""
    if isinstance(given, str):
        if given not in NEGATORS:
            known = ", ".join(NEGATORS)
            raise ValueError(f"negators: expected {known} or a list of words, got {given!r}")
        return tuple(NEGATORS[given].split())
    plain = Tokenizer((1, 1))
    words = [plain.spelling(w) if isinstance(w, str) else "" for w in given]
    for given_word, word in zip(given, words):
        if [w for w, *_ in plain.words(word)] != [word]:
            raise ValueError(f"negators: expected single words, got {given_word!r}")
    return tuple(dict.fromkeys(words))


def name_of(own: Callable[..., Any] | None) -> str | None:
    """module:name of a tokenizer; refused where that is not the function itself."""
    if own is None:
        return None
    module = getattr(own, "__module__", None) or "builtins"
    name = f"{module}:{getattr(own, '__qualname__', own)}"
    if module == "__main__" or _function(name) is not own:
        raise ValueError(
            f"tokenizer: a model file holds the name of a function, and {name} is none that "
            "another program could import; define it in a module, not nested and no lambda"
        )
    return name


def named(name: Any) -> Callable[..., Any] | None:
    """The tokenizer of that name. A file imports nothing: its module must be imported already."""
    if name is None:
        return None
    own = _function(name) if isinstance(name, str) else None
    if not callable(own):
        raise ValueError(f"tokenizer: the model needs {name}; import its module before")
    return own


def _function(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


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

    With `negation`, `negators` (English ones by default) mark the words behind them. `own` is a
    function from a text to its words, in order, instead of the rules of the module. Trap: n-grams
    cross punctuation ("good. Not" gives "good not"), as those of other libraries do; negation does
    not.

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
    negators: tuple[str, ...] = _ENGLISH
    own: Callable[[str], Iterable[str]] | None = None

    def __post_init__(self) -> None:
        low, high = self.ngrams
        if not (1 <= low <= high <= 8):
            raise ValueError(f"ngrams: expected 1 <= low <= high <= 8, got {self.ngrams}")

    @property
    def negator_forms(self) -> list[str]:
        """The negators in each case they are written in."""
        return list(_negators(self.negators, self.own is not None)[2])

    def scan(self, texts: Sequence[str]) -> Words:
        """All words of `texts`."""
        if self.own is not None:
            return self.marked(self._scan_own(texts))
        from ..kernels.words import scan

        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        starts = np.concatenate(([0], np.cumsum(lengths + 1)))
        if lengths.size and lengths.max() >= 2**31:
            raise ValueError("texts: one text has over 2^31 characters; cut it")
        joined = ("\0".join(texts) + "\0").encode("utf-32-le", "surrogatepass")
        points = np.frombuffer(joined, np.uint32)
        largest = int(points.max())
        kind, lower = _tables(_size(largest))
        if not self.lowercase:
            lower = np.where(kind == 4, lower, np.arange(len(lower), dtype=np.uint32))
        hashes, start, stop, fresh, indptr = scan(points, starts, kind, lower)
        return self.marked(Words(hashes, start, stop, fresh, np.full(len(start), -1), indptr))

    def own_words(self, text: str) -> list[str]:
        """The words of a text as `own` gives them, in their spelling."""
        assert self.own is not None
        words = list(self.own(text))
        for word in words:
            if not isinstance(word, str) or word.split() != [word] or NOT in word:
                raise ValueError(
                    "tokenizer: expected a function from a text to its words, strings without "
                    f"spaces and without {NOT!r}; it gave {word!r:.80}"
                )
        return [self.spelling(word) for word in words]

    def _scan_own(self, texts: Sequence[str]) -> Words:
        """Words by `own`; one that does not stand in its text, such as a lemma, begins at -1."""
        found: list[str] = []
        places: list[tuple[int, int, bool]] = []
        indptr = [0]
        for text in texts:
            folded, end = "".join(map(self.spelling, text)), 0
            for word in self.own_words(text):
                at = folded.find(word, end)
                stopped = end == 0 or not _STOPS.isdisjoint(text[end : max(at, end)])
                places.append((at, at + len(word) if at >= 0 else -1, stopped or word in _STOPS))
                end = at + len(word) if at >= 0 else end
                found.append(word)
            indptr.append(len(found))
        start, stop, fresh = np.array(places or np.empty((0, 3)), np.int32).reshape(-1, 3).T
        every = np.full(len(found), -1, np.int64)
        return Words(_hashes(found), start, stop, fresh.astype(bool), every, np.array(indptr))

    def marked(self, words: Words) -> Words:
        """The same words, those behind a negator with hashes of their own."""
        if not self.negation:
            return words
        from ..kernels.words import negated

        hashes, by = negated(
            words.hash, words.fresh, words.indptr,
            _negators(self.negators, self.own is not None)[0], REACH,
        )  # fmt: skip
        return words._replace(hash=hashes, by=by)

    def scan_terms(self, terms: Sequence[str]) -> Words:
        """The words of terms as a vocabulary spells them, one term after the other."""
        plain = replace(self, negation=False, own=self.own and str.split)
        if not self.negation or not any(NOT in term for term in terms):
            return plain.scan(terms)
        from ..kernels.plain import negated_hash

        parts = [term.split(" ") for term in terms]
        words = plain.scan([term.replace(NOT, "") for term in terms])
        if [len(part) for part in parts] != np.diff(words.indptr).tolist():
            raise ValueError("vocabulary: a term is not spelled as its words are")
        hashes = words.hash.copy()
        behind = np.flatnonzero([w.startswith(NOT) for part in parts for w in part])
        hashes[behind] = negated_hash(hashes[behind])
        return words._replace(hash=hashes)

    def words(self, text: str) -> list[tuple[str, int, int]]:
        """(word, start, stop) in order; the word in lower case, behind a negator as "not_word"."""
        words = self.scan([text])
        spans = zip(words.start.tolist(), words.stop.tolist(), (words.by >= 0).tolist())
        said = self.spellings(text, words)
        return [(NOT * no + word, a, b) for word, (a, b, no) in zip(said, spans, strict=True)]

    def spellings(self, text: str, words: Words) -> list[str]:
        """The words of one text that was scanned, in their spelling."""
        if self.own is not None:
            return self.own_words(text)
        spans = zip(words.start.tolist(), words.stop.tolist(), strict=True)
        return [self.spelling(text[a:b]) for a, b in spans]

    def spelling(self, word: str) -> str:
        """The form under which a word is known: lower case, straight apostrophes."""
        if word.isascii():
            return word.lower() if self.lowercase else word
        kind, lower = _tables(_size(max(map(ord, word))))

        def fold(p: int) -> int:
            return int(lower[p]) if p < len(lower) and (self.lowercase or kind[p] == 4) else p

        return "".join(chr(fold(ord(c))) for c in word)


@final
@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The terms a model knows, with the number of training texts that have each, ordered by that,
    then by spelling. A term first seen at test time has no embedding and is left out."""

    terms: tuple[str, ...]
    df: Indices
    tokenizer: Tokenizer = Tokenizer()
    stored_hashes: np.ndarray | None = None  # `hashes`, as a file has them

    def __post_init__(self) -> None:
        if len(self.terms) != len(self.df):
            raise ValueError(f"df: expected {len(self.terms)} counts, got {len(self.df)}")
        if self.stored_hashes is not None and self.stored_hashes.shape != self.df.shape:
            raise ValueError(f"vocabulary: expected {len(self.terms)} hashes of terms")
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
        number: dict[str, int] = {}
        rows = [
            sorted({number.setdefault(w, len(number)) for w in surface(term)})
            for term in self.terms
        ]
        indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        indices = np.fromiter((w for row in rows for w in row), np.int32, int(indptr[-1]))
        return Documents(indptr, indices).presence(len(number))

    @cached_property
    def in_words(self) -> Spelt:
        """The words of each term in their order, those behind a negator without their mark."""
        own = self.tokenizer.own is not None
        keys, value, forms = _negators(self.tokenizer.negators, own)
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
        """(terms,) the term of the same words without negation, else -1, for terms
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
        known = frozenset(self.tokenizer.negators)
        words = (self.tokenizer.spelling(term).split(" ") for term in self.terms)
        return self.negated | np.fromiter((not known.isdisjoint(w) for w in words), bool, len(self))

    @cached_property
    def hashes(self) -> np.ndarray:
        """(terms,) what each term is known by, see `kernels.words`."""
        from ..kernels.plain import whole_text_hashes

        if self.stored_hashes is not None:
            return self.stored_hashes
        words = self.tokenizer.scan_terms(self.terms)
        return whole_text_hashes(words.hash, words.indptr)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        from ..kernels.plain import table_of

        known = np.sort(self.hashes)
        if len(known) and known[0] == 0:
            bad = self.terms[int(np.argmin(self.hashes != 0))]
            raise ValueError(f"vocabulary: {bad!r} has no word in it")
        if (known[1:] == known[:-1]).any():
            raise ValueError("vocabulary: two terms are the same (or share a hash); drop one")
        return table_of(self.hashes)

    @classmethod
    def build(
        cls, texts: Sequence[str], tokenizer: Tokenizer | None = None, *, min_df: float | int = 2,
        max_features: int | None = None, times: np.ndarray | None = None,
        stop_words: Collection[str] = (),
    ) -> tuple[Vocabulary, Documents]:  # fmt: skip
        """Terms in at least `min_df` texts, without `stop_words`, the `max_features` most frequent;
        and those texts. Text t counts times[t] (once by default), as that many equal texts would;
        the document frequencies of the vocabulary are rounded, the choice is not."""
        from ..kernels.words import count_terms

        tokenizer = tokenizer or Tokenizer()
        words = _scan_all(tokenizer, texts)
        gone = frozenset(map(tokenizer.spelling, stop_words))
        low, high = tokenizer.ngrams
        each = np.ones(len(texts)) if times is None else times
        _, df, order, first = count_terms(words.hash, words.indptr, low, high, each)
        keep = np.flatnonzero(df >= min_df)
        terms = _spelled(tokenizer, texts, words, first[keep], order[keep])
        if stop_words:
            spoken = [gone.isdisjoint(t.replace(NOT, "").split(" ")) for t in terms]
            terms = [term for term, said in zip(terms, spoken) if said]
            keep = keep[np.array(spoken, bool)]
        ranked = np.array(sorted(range(len(keep)), key=terms.__getitem__), dtype=np.intp)
        ranked = ranked[np.argsort(-df[keep][ranked], kind="stable")][:max_features]
        counted = np.maximum(np.rint(df[keep][ranked]), 1).astype(np.intp)
        vocabulary = cls(tuple(terms[j] for j in ranked.tolist()), counted, tokenizer)
        return vocabulary, vocabulary.known(words)

    def encode(self, texts: Sequence[str]) -> Documents:
        """The known terms of each text."""
        parts = [self.known(words) for words in map(self.tokenizer.scan, _chunks(texts))]
        indices = [np.empty(0, np.int32), *(part.indices for part in parts)]
        indptr = _end_to_end(part.indptr for part in parts)
        return Documents(indptr.astype(np.int64), np.concatenate(indices))

    def known(self, words: Words) -> Documents:
        """The known terms of texts that were scanned."""
        from ..kernels.words import distinct_terms

        low, high = self.tokenizer.ngrams
        seen = np.full(max(len(self), 1), -1, np.int32)
        return Documents(*distinct_terms(words.hash, words.indptr, low, high, *self._table, seen))

    def locate(self, text: str, struck: Collection[str] = ()) -> list[Occurrence]:
        """Every place where a known term stands in `text`, the words `struck` left out of it."""
        from ..kernels.words import occurrences

        w = self._struck(text, [struck]) if struck else self.tokenizer.scan([text])
        low, high = self.tokenizer.ngrams
        start = np.where(w.by >= 0, w.start[w.by], w.start)  # the negator is shown
        rows = occurrences(w.hash, start, w.stop, low, high, *self._table)
        if len(rows) and rows[:, 1:].min() < 0:
            term = self.terms[int(rows[rows[:, 1:].min(axis=1) < 0][0, 0])]
            raise ValueError(
                f"tokenizer: {term!r} does not stand in the text as the tokenizer spells it, so no "
                "place can be shown; explain needs words that stand in the text, in their order"
            )
        return [Occurrence(*row) for row in rows.tolist()]

    def without(self, text: str, struck: Sequence[Collection[str]]) -> Documents:
        """The known terms of `text` with each set of words struck out, wherever they stand.

        Words are given as the text has them, in the tokenizer's spelling. No term is formed across
        a gap; a negator that is struck out negates no more."""
        return self.known(self._struck(text, struck))

    def _struck(self, text: str, struck: Sequence[Collection[str]]) -> Words:
        """The words of `text` once for each set, with empty hashes where those of the set stood."""
        from ..kernels.plain import EMPTY

        plain = replace(self.tokenizer, negation=False)
        w = plain.scan([text])
        number: dict[str, int] = {}
        kind = [number.setdefault(word, len(number)) for word in plain.spellings(text, w)]
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
    tokenizer: Tokenizer, texts: Sequence[str], words: Words, first: np.ndarray, order: np.ndarray
) -> list[str]:
    """The terms of `order` words that begin at the words `first`; every word is spelt once."""
    high = int(order.max(initial=1))
    at = np.minimum(first[:, None] + np.arange(high), len(words.hash) - 1)
    _, where, which = np.unique(words.hash[at], return_index=True, return_inverse=True)
    place = at.ravel()[where]
    text_of = np.searchsorted(words.indptr, place, side="right") - 1
    if tokenizer.own is None:
        spans = zip(text_of.tolist(), words.start[place].tolist(), words.stop[place].tolist())
        said = [tokenizer.spelling(texts[t][a:b]) for t, a, b in spans]
    else:
        of = {t: tokenizer.own_words(texts[t]) for t in set(text_of.tolist())}
        within = (place - words.indptr[text_of]).tolist()
        said = [of[t][i] for t, i in zip(text_of.tolist(), within, strict=True)]
    spelt = [NOT * no + w for w, no in zip(said, (words.by[place] >= 0).tolist(), strict=True)]
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
    *columns, indptr = zip(*parts)  # `by` is within its chunk: only its sign is asked
    return Words._make([*map(np.concatenate, columns), _end_to_end(indptr)])


def _end_to_end(indptr: Iterable[np.ndarray]) -> np.ndarray:
    """Where texts begin in all parts together, given where they begin in each."""
    parts = list(indptr)
    shift = np.cumsum([0, *(part[-1] for part in parts)])
    return np.concatenate([[0], *(part[1:] + s for part, s in zip(parts, shift))])
