"""Reviews as numbered words, and as distinct words with multiplicities to train and test on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from cynosure.classifier.fitting.soft_model import Texts
from cynosure.classifier.text.datasets import Dataset, blocks, imdb, read, synthetic
from cynosure.classifier.text.stop_words import STOP_WORDS
from cynosure.classifier.text.vocabulary import Tokenizer, Vocabulary

Part: TypeAlias = tuple[np.ndarray, np.ndarray]  # words of review i: ids[indptr[i]:indptr[i + 1]]


@dataclass(frozen=True, eq=False)
class Ids:
    """Reviews as sequences of word numbers, both parts, the first `longest` known words of each.

    The vocabulary is that of the training part. `held` marks the training reviews to hold out:
    blocks of consecutive ones, since neighbours are often about the same film.
    """

    words: tuple[str, ...]
    train: Part
    test: Part
    y_train: np.ndarray
    y_test: np.ndarray
    held: np.ndarray

    @classmethod
    def of(cls, train: Dataset, test: Dataset, *, longest: int = 512, min_df: int = 2) -> Ids:
        """Number the words of both parts; the second label in alphabetical order is y = True."""
        tokenizer = Tokenizer((1, 1))
        vocabulary, _ = Vocabulary.build(train.texts, tokenizer, min_df=min_df)
        hashes = tokenizer.scan(vocabulary.terms).hash
        order = np.argsort(hashes)

        def numbers(part: Dataset) -> Part:
            scan = tokenizer.scan(part.texts)
            at = order[np.searchsorted(hashes[order], scan.hash).clip(max=len(order) - 1)]
            return _first((scan.indptr, at), hashes[at] == scan.hash, longest)

        classes = np.unique(train.labels)
        if len(classes) != 2:
            raise ValueError(f"data: expected two labels, got {classes.tolist()}")
        return cls(
            vocabulary.terms, numbers(train), numbers(test), train.labels == classes[1],
            test.labels == classes[1], blocks(train.labels, 0.1),
        )  # fmt: skip


def evenly(n: int, some: int) -> np.ndarray:
    """`some` of n positions, evenly spaced; all of them for some = 0."""
    return np.unique(np.linspace(0, n - 1, min(some or n, n)).astype(np.intp))


def labelled(data: str, reviews: int, seed: int) -> tuple[Dataset, Dataset]:
    """(train, test): aclImdb's own parts, or blocks of a table, or made-up reviews for ""; thinned
    to `reviews` of each part (0: all)."""
    if not data:
        return synthetic(reviews or 400, seed=seed), synthetic(reviews or 400, seed=seed + 1)
    name = Path(data).name.lower().removesuffix(".gz")
    if Path(data).is_dir() or name.endswith((".tar", ".tgz")):
        train, test = imdb(data, "train"), imdb(data, "test")
    else:
        train, test = read(data).split(0.3)
    return train.take(evenly(len(train), reviews)), test.take(evenly(len(test), reviews))


def numbered(data: str, reviews: int, seed: int) -> Ids:
    """The same as word numbers."""
    return Ids.of(*labelled(data, reviews, seed))


def _rows(part: Part) -> np.ndarray:
    """The review of each word."""
    return np.repeat(np.arange(len(part[0]) - 1), np.diff(part[0]))


def _first(part: Part, counts: np.ndarray, most: int) -> Part:
    """The first `most` words of each review among those where `counts` is True."""
    row, ids = _rows(part)[counts], part[1][counts]
    sizes = np.bincount(row, minlength=len(part[0]) - 1)
    place = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.concatenate(([0], np.cumsum(np.minimum(sizes, most)))), ids[place < most]


@dataclass(frozen=True, eq=False)
class Reviews:
    """Distinct words `terms` (reviews, n) with multiplicities `count`, 0 for padding; labels `y`.

    `row` says which review of its part each one is: those without a known word are left out.
    """

    terms: np.ndarray
    count: np.ndarray
    y: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> np.ndarray:
        """Number of distinct words of each review."""
        return (self.count > 0).sum(axis=1)

    @classmethod
    def of(cls, row: np.ndarray, ids: np.ndarray, y: np.ndarray, vocabulary: int) -> Reviews:
        """From one entry per word of a review."""
        key, times = np.unique(row * vocabulary + ids, return_counts=True)
        row, ids = key // vocabulary, key % vocabulary
        sizes = np.bincount(row, minlength=len(y))
        mask = np.arange(max(int(sizes.max(initial=1)), 1)) < sizes[:, None]
        terms = np.zeros(mask.shape, np.int32)
        count = np.zeros(mask.shape, np.float32)
        terms[mask], count[mask] = ids, times
        full = np.flatnonzero(sizes)
        return cls(terms[full], count[full], np.asarray(y)[full], full)

    def on(self, device: Any) -> Texts:
        """The same where they can be trained on."""
        mask = self.count > 0
        once = np.ones(len(self))
        return Texts.of(self.sizes, self.terms[mask], self.count[mask], self.y, once, device)

    def take(self, rows: np.ndarray) -> Reviews:
        width = int(self.sizes[rows].max(initial=1))
        return Reviews(
            self.terms[rows, :width], self.count[rows, :width], self.y[rows], self.row[rows]
        )


@dataclass(frozen=True, eq=False)
class Split:
    """Reviews to train on, to stop on and to test on, over the words of the first alone.

    Of each its first `tokens` words, the stop words among them or not.
    """

    tokens: int
    stop_words: bool
    words: tuple[str, ...]
    train: Reviews
    held: Reviews
    test: Reviews


def split(
    ids: Ids, *, tokens: int = 128, stop_words: bool = False, min_df: int = 2, most: int = 0
) -> Split:
    """Cut the reviews and count their words.

    Only words of at least `min_df` of the reviews trained on are known, the `most` commonest if
    not 0: any other stays at its random place, may be long, and would then lead (a flaw of the
    published run).
    """
    stop = np.array([w in STOP_WORDS for w in ids.words])

    def cut(part: Part) -> tuple[np.ndarray, np.ndarray]:
        """Review and word number of each word that stays."""
        first = _first(part, stop_words | ~stop[part[1]], tokens)
        return _rows(first), first[1]

    row, word = cut(ids.train)
    mine = ~ids.held[row]
    df = np.bincount(np.unique(row[mine] * len(ids.words) + word[mine]) % len(ids.words))
    known = np.flatnonzero(df >= min_df)
    known = np.sort(known[np.argsort(-df[known], kind="stable")][: most or None])
    if not len(known):
        raise ValueError(f"data: no word occurs in {min_df} reviews; give more reviews")
    number = np.full(len(ids.words), -1)
    number[known] = np.arange(len(known))

    def packed(row: np.ndarray, word: np.ndarray, y: np.ndarray) -> Reviews:
        inside = number[word] >= 0
        return Reviews.of(row[inside], number[word[inside]], y, len(known))

    train = packed(row, word, ids.y_train)
    held = ids.held[train.row]
    return Split(
        tokens,
        stop_words,
        tuple(ids.words[j] for j in known),
        train.take(np.flatnonzero(~held)),
        train.take(np.flatnonzero(held)),
        packed(*cut(ids.test), ids.y_test),
    )


def with_padding(reviews: Reviews, tokens: int, pad: int) -> Reviews:
    """The published flaw: `tokens` places per review, the empty ones filled by the word `pad`."""
    empty = np.maximum(tokens - reviews.count.sum(axis=1), 0.0).astype(np.float32)
    terms = np.concatenate((np.full((len(reviews), 1), pad, np.int32), reviews.terms), axis=1)
    count = np.concatenate((empty[:, None], reviews.count), axis=1)
    at = np.argsort(count == 0, axis=1, kind="stable")  # a full review has no padding word: last
    terms, count = (np.take_along_axis(x, at, axis=1) for x in (terms, count))
    return replace(reviews, terms=terms, count=count)
