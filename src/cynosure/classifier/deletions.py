"""Faithfulness by deletion: take out what an explanation names, read the rest again.

Every deletion is *recomputed*: what is left goes through the layers again. With n-grams there are
two readings of it. A *term* is deleted: it alone leaves the set of terms. A *word* is struck out,
wherever it stands: every n-gram it is part of goes with it, and none is formed across the gap. For
single words the two are one.

Trap: deleting the leaders alone proves nothing, their followers elect new ones; a leader counts
with its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .estimator import HardmaxClassifier
from .explanation import Explanation
from .text import Documents, as_texts

__all__ = ["Deletion", "Faithfulness", "faithfulness"]

Progress = Callable[[float, str], Any]


@final
@dataclass(frozen=True)
class Deletion:
    """What deleting some terms of every text did.

    `flipped` is the share of predictions that changed, `terms` the mean number of terms deleted,
    `drop` the mean fall of the probability of the label predicted before. `words` is the mean
    number of different words in these terms, `struck` the share of predictions that changed when
    the words were struck out instead, with every term they occur in.
    """

    name: str
    flipped: float
    terms: float
    drop: float
    words: float
    struck: float


@final
@dataclass(frozen=True)
class Faithfulness:
    """Comprehensiveness and sufficiency of the explanations of `texts` texts.

    The winning clusters are those that speak for the prediction (those of its sign, the neutral one
    excluded). `deletions`: all winning clusters; their leaders alone; as many terms as the winning
    clusters have, chosen by contribution, then at random; and all but the non-neutral clusters
    (sufficiency: what an explanation leaves unsaid should not matter; struck out are then the words
    that no telling term has).

    The words of the winning clusters struck out one term after the other, strongest leader first,
    flip a prediction after `words_to_flip` words (median, mean, 95 % quantile over the predictions
    that flip, a share `flipped_at_all`); `flipped_within` is the share of all predictions that flip
    this way within `most_words` words. `best_within` is what a choice made to flip it reaches:
    always the word whose terms pull most, all of them counted; for single words the best there is.
    """

    texts: int
    deletions: tuple[Deletion, ...]
    most_words: int
    flipped_within: float
    best_within: float
    flipped_at_all: float
    words_to_flip: tuple[float, float, float]


@final
@dataclass(frozen=True, eq=False)
class _Case:
    """An explained text: its terms and their pull towards the label, and the clusters.

    `clusters` are positions in `terms`; the leader comes first in its own, unless the anchor leads.
    """

    terms: np.ndarray
    pull: np.ndarray
    spelled: tuple[frozenset[str], ...]
    clusters: tuple[np.ndarray, ...]
    winning: tuple[int, ...]  # strongest leader first
    neutral: int | None

    def words(self, gone: np.ndarray) -> frozenset[str]:
        return frozenset().union(*(self.spelled[i] for i in gone.tolist()))

    def without(self, gone: np.ndarray) -> np.ndarray:
        return np.delete(self.terms, gone)

    def struck(self, words: frozenset[str]) -> np.ndarray:
        left = [words.isdisjoint(mine) for mine in self.spelled]
        return self.terms[np.array(left, dtype=bool)]

    def strongest_words(self, most: int) -> list[str]:
        """Always the word whose remaining terms pull most, as long as one pulls at all."""
        total: dict[str, float] = {}
        holders: dict[str, list[int]] = {}
        for i, mine in enumerate(self.spelled):
            for w in mine:
                total[w] = total.get(w, 0.0) + float(self.pull[i])
                holders.setdefault(w, []).append(i)
        gone: set[int] = set()
        out: list[str] = []
        while total and len(out) < most:
            w = max(total, key=total.__getitem__)
            if total.pop(w) <= 0:
                break
            out.append(w)
            for i in set(holders[w]) - gone:
                gone.add(i)
                for other in self.spelled[i] - {w}:
                    if other in total:
                        total[other] -= float(self.pull[i])
        return out


def _case(clf: HardmaxClassifier, ex: Explanation) -> _Case:
    index = clf.vocabulary_.index
    sign = 1.0 if ex.decision > 0 or len(clf.classes_) > 2 else -1.0
    names: list[str] = []
    pull: list[float] = []
    clusters, strength, neutral = [], [], None
    for c, leader in enumerate(ex.leaders):
        followers = sorted(leader.followers, key=lambda w: -sign * w.score)
        found = [(leader.token, leader.text, sign * leader.score)]
        found += [(w.token, w.text, sign * w.score) for w in followers]
        if any(token == 0 for token, _, _ in found):
            neutral = c
        words = [(name, score) for token, name, score in found if token > 0]
        clusters.append(np.arange(len(names), len(names) + len(words)))
        names += [name for name, _ in words]
        pull += [score for _, score in words]
        strength.append(sign * leader.score)
    winning = [c for c, s in enumerate(strength) if s > 0 and c != neutral]
    return _Case(
        np.array([index[name] for name in names], np.int32),
        np.array(pull, float),
        tuple(frozenset(name.split(" ")) for name in names),
        tuple(clusters),
        tuple(sorted(winning, key=lambda c: -strength[c])),
        neutral,
    )


def _probabilities(clf: HardmaxClassifier, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Probabilities (texts, classes) of texts given as rows of terms."""
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    terms = np.concatenate([np.empty(0, np.int32), *rows]).astype(np.int32)
    return clf.probabilities(clf.model_.read(Documents(indptr, terms)).decision)


def faithfulness(
    clf: HardmaxClassifier,
    texts: Any,
    *,
    most_words: int = 15,
    seed: int = 0,
    progress: Progress | None = None,
) -> Faithfulness:
    """Explain every text, delete what the explanation names, predict again.

    Texts without a known term have nothing to delete and are left out.

    Example
    -------
    >>> from cynosure import HardmaxClassifier, datasets
    >>> data = datasets.synthetic(300)
    >>> clf = HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    >>> winning, alone, *_ = faithfulness(clf, data.texts[:50]).deletions
    >>> winning.flipped > alone.flipped
    True
    """
    texts = as_texts(texts)
    cases = []
    for i, text in enumerate(texts):
        cases.append(_case(clf, clf.explain(text)))
        if progress is not None:
            progress((i + 1) / len(texts), "explained")
    cases = [case for case in cases if len(case.terms)]
    if not cases:
        raise ValueError("texts: none has a known word, so there is nothing to delete")
    before = _probabilities(clf, [case.terms for case in cases])
    label = before.argmax(axis=1)
    draw = np.random.default_rng(seed)

    def after(rows: Sequence[np.ndarray], of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether each prediction changed, and what the old label has lost."""
        p = _probabilities(clf, rows)
        fall = before[of, label[of]] - p[np.arange(len(of)), label[of]]
        return p.argmax(axis=1) != label[of], fall

    def deletion(name: str, gone: list[np.ndarray], words: list[frozenset[str]]) -> Deletion:
        every = np.arange(len(cases))
        flipped, fall = after([c.without(g) for c, g in zip(cases, gone)], every)
        struck, _ = after([c.struck(w) for c, w in zip(cases, words)], every)
        return Deletion(
            name, float(flipped.mean()), float(np.mean([len(g) for g in gone])),
            float(fall.mean()), float(np.mean([len(w) for w in words])), float(struck.mean()),
        )  # fmt: skip

    none = np.empty(0, np.intp)
    winning = [np.concatenate([none, *(c.clusters[k] for k in c.winning)]) for c in cases]
    alone = [np.array([c.clusters[k][0] for k in c.winning], np.intp) for c in cases]
    strongest = [np.argsort(-c.pull, kind="stable") for c in cases]
    chosen = {
        "winning leaders with their followers": winning,
        "winning leaders alone": alone,
        "as many terms, by contribution": [b[: len(w)] for b, w in zip(strongest, winning)],
        "as many terms, at random": [
            draw.permutation(len(c.terms))[: len(w)] for c, w in zip(cases, winning)
        ],
    }
    quiet = [none if c.neutral is None else c.clusters[c.neutral] for c in cases]
    unsaid = [
        c.words(q) - c.words(np.setdiff1d(np.arange(len(c.terms)), q)) for c, q in zip(cases, quiet)
    ]
    deletions = (
        *(
            deletion(name, gone, [c.words(g) for c, g in zip(cases, gone)])
            for name, gone in chosen.items()
        ),
        deletion("the neutral cluster, all others kept", quiet, unsaid),
    )
    by_term = [[c.words(w[: k + 1]) for k in range(len(w))] for c, w in zip(cases, winning)]
    needed = _words_to_flip(cases, by_term, after)
    greedy = [c.strongest_words(most_words) for c in cases]
    stages = [[frozenset(g[: k + 1]) for k in range(len(g))] for g in greedy]
    best = np.minimum(_words_to_flip(cases, stages, after), needed)
    at_all = needed[np.isfinite(needed)]
    shown = at_all if len(at_all) else np.array([np.nan])
    return Faithfulness(
        len(cases), deletions, most_words, float((needed <= most_words).mean()),
        float((best <= most_words).mean()), float(np.isfinite(needed).mean()),
        (float(np.median(shown)), float(shown.mean()), float(np.quantile(shown, 0.95))),
    )  # fmt: skip


def _words_to_flip(
    cases: list[_Case],
    stages: list[list[frozenset[str]]],
    after: Callable[[Sequence[np.ndarray], np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Words struck at the first stage that flips the prediction; inf where none does."""
    of = np.repeat(np.arange(len(cases)), [len(s) for s in stages])
    size = np.array([len(words) for stage in stages for words in stage], float)
    rows = [c.struck(words) for c, stage in zip(cases, stages) for words in stage]
    needed = np.full(len(cases), np.inf)
    if rows:
        flipped, _ = after(rows, of)
        np.minimum.at(needed, of[flipped], size[flipped])
    return needed
