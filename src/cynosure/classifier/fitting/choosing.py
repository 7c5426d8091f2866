"""What the vocabulary should hold, where the user leaves it open: rare terms, and negated words.

Terms of one text are kept where there are few words in all: they are most of what is known of a new
text. Words behind a negator become words of their own, and half the opposite of the plain word,
where that tells held-out texts apart at least as well: it does where labels are sentiments, and not
where they are subjects ("my card has not arrived" is about a card).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..text.vocabulary import Tokenizer, Vocabulary
from .convex import log_ratio, losses, turned, weights

_FEW = 3_000_000  # characters of all texts: about 500,000 words
_TEXTS, _CLASSES, _FOLDS = 5000, 3, 3  # that are tried


def least_texts(texts: Sequence[str], weight: np.ndarray) -> int:
    """The `min_df` of texts that count `weight` times each: 1 of few words, else 2."""
    return 1 if float(weight @ np.fromiter(map(len, texts), float, len(texts))) < _FEW else 2


def turns_words(
    texts: Sequence[str], y: np.ndarray, weight: np.ndarray, tokenizer: Tokenizer,
    least: float | int, seed: int,
) -> bool:  # fmt: skip
    """Whether words behind a negator are better read as the opposite of themselves.

    Judged on a third of some of the texts, for each of the largest classes against the rest, by
    the log-loss. Without a difference beyond a standard error they are."""
    chosen = np.arange(0, len(texts), max(len(texts) // _TEXTS, 1))
    y, weight = y[chosen], weight[chosen]
    held = np.zeros(len(y), bool)
    for c in np.unique(y):
        held[np.flatnonzero(y == c)[1::_FOLDS]] = True
    order = np.argsort(-np.bincount(y, weight), kind="stable")[:_CLASSES].tolist()
    largest = [c for c in order if (y[~held] == c).any() and (y[held] == c).any()]
    found = []
    for negation in (True, False):
        vocabulary, documents = Vocabulary.build(
            [texts[i] for i in chosen.tolist()], replace(tokenizer, negation=negation),
            min_df=least, times=weight,
        )  # fmt: skip
        if not len(vocabulary) or not largest:
            return True
        x = documents.presence(len(vocabulary))
        root = np.sqrt(documents.sizes + 1.0)
        told = []
        for c in largest[: len(largest) if y.max() > 1 else 1]:
            given = x[~held], (y == c)[~held], weight[~held]
            s = weights(*given, 1.0, seed)
            if negation:
                known = vocabulary.opposites, vocabulary.negating
                s = turned(s, *known, log_ratio(*given), given[0].T @ given[2])
            told.append(losses((x @ s / root)[held], (y == c)[held], weight[held]))
        found.append(np.sum(told, axis=0))
    loss = found[0] - found[1]
    share = weight[held] / weight[held].sum()
    mean = float(share @ loss)
    return bool(mean <= np.sqrt(float(share**2 @ (loss - mean) ** 2)))
