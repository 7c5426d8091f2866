"""Are explanations faithful? Delete what an explanation names, and classify the rest again.

A *term* is deleted alone, or a *word* is struck out wherever it stands (`deletion`), with every
n-gram it is part of. What is left is read again, down to weaker words. Trap: deleting the leaders
alone proves nothing, since some of their followers then lead; a leader is deleted with its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..._types import as_generator
from ..estimator import HardmaxClassifier
from ..explaining.deletion import TextModel, strongest, words_of
from ..explaining.explanation import Explanation
from ..explaining.leaders import Leader, Word
from ..text.documents import Documents
from ..text.inputs import as_texts

Progress = Callable[[float, str], Any]
_NONE = np.empty(0, np.intp)


@final
@dataclass(frozen=True)
class Deletion:
    """What deleting some terms of every text did: `flipped`, the share of predictions that changed;
    `terms` deleted and their different `words`, means; `drop`, the mean fall of the probability of
    the label predicted before; `struck`, the share that changed when the words were struck out."""

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

    The winning clusters are those of the sign of the prediction, the neutral one excluded.
    `deletions`: all winning clusters; their leaders alone; as many terms, chosen by contribution,
    then at random; and the neutral cluster (sufficiency; struck out are then the words that occur
    in neutral terms only).

    The words of the winning clusters struck out one term after the other, strongest leader first,
    flip a prediction after `words_to_flip` words (median, mean, 95 % quantile over the share
    `flipped_at_all`); `flipped_within` is the share that flips this way within `most_words` words,
    `best_within` with always the word struck out whose terms together pull most to the label.
    `overturned` is the share for which `Explanation.overturn` found at most `most_words` words,
    `overturn_words` their number (median, mean, 95 % quantile over those found at all).
    """

    texts: int
    deletions: tuple[Deletion, ...]
    most_words: int
    flipped_within: float
    best_within: float
    flipped_at_all: float
    words_to_flip: tuple[float, float, float]
    overturned: float
    overturn_words: tuple[float, float, float]


@final
@dataclass(frozen=True, eq=False)
class _Case:
    """An explained text: its terms, their pull towards the label, the words of each (`spelled`),
    and the clusters: positions in `terms`, the leader first in its own, unless the anchor leads."""

    text: str
    terms: np.ndarray
    pull: np.ndarray
    spelled: tuple[frozenset[str], ...]
    clusters: tuple[np.ndarray, ...]
    winning: tuple[int, ...]  # strongest leader first
    neutral: int | None

    @property
    def winning_terms(self) -> np.ndarray:
        """Positions of the terms of the winning clusters, one cluster after the other."""
        return np.concatenate([_NONE, *(self.clusters[c] for c in self.winning)])

    @property
    def neutral_terms(self) -> np.ndarray:
        return _NONE if self.neutral is None else self.clusters[self.neutral]

    def words(self, gone: np.ndarray) -> frozenset[str]:
        """The words in the terms at the positions `gone`."""
        return frozenset().union(*(self.spelled[i] for i in gone.tolist()))

    def neutral_words(self) -> frozenset[str]:
        """The words that occur in neutral terms only."""
        telling = np.setdiff1d(np.arange(len(self.terms)), self.neutral_terms)
        return self.words(self.neutral_terms) - self.words(telling)


def _case(clf: HardmaxClassifier, ex: Explanation) -> _Case:
    index = clf.vocabulary_.index
    spelled = {
        w.text: {x for o in w.offsets for x in words_of(clf.vocabulary_, ex.text, w.text, *o)}
        for w in ex.words
    }
    sign = 1.0 if ex.decision > 0 or len(clf.classes_) > 2 else -1.0
    names: list[str] = []
    pull: list[float] = []
    clusters = []
    for leader in ex.leaders:
        followers = sorted(leader.followers, key=lambda w: -sign * w.score)
        every: tuple[Leader | Word, ...] = (leader, *followers)
        members = [w for w in every if w.token > 0]
        clusters.append(np.arange(len(names), len(names) + len(members)))
        names += [w.text for w in members]
        pull += [sign * w.score for w in members]
    neutral = next((c for c, leader in enumerate(ex.leaders) if 0 in leader.tokens), None)
    strength = [sign * leader.score for leader in ex.leaders]
    winning = [c for c, s in enumerate(strength) if s > 0 and c != neutral]
    return _Case(
        text=ex.text, terms=np.array([index[name] for name in names], np.int32),
        pull=np.array(pull, float), spelled=tuple(frozenset(spelled[name]) for name in names),
        clusters=tuple(clusters), winning=tuple(sorted(winning, key=lambda c: -strength[c])),
        neutral=neutral,
    )  # fmt: skip


def _explained(
    clf: HardmaxClassifier, texts: Sequence[str], progress: Progress | None
) -> list[_Case]:
    """The explained texts that have a known term; the others have nothing to delete."""
    cases = []
    for i, text in enumerate(texts):
        cases.append(_case(clf, clf.explain(text)))
        if progress is not None:
            progress((i + 1) / len(texts), "explained")
    cases = [case for case in cases if len(case.terms)]
    if not cases:
        raise ValueError("texts: none has a known word, so there is nothing to delete")
    return cases


@final
@dataclass(frozen=True, eq=False)
class _Predictions:
    """What the classifier says of the whole texts, to compare with what it says of their rests."""

    clf: HardmaxClassifier
    cases: list[_Case]
    label: np.ndarray
    probability: np.ndarray  # of that label

    @classmethod
    def of(cls, clf: HardmaxClassifier, cases: list[_Case]) -> _Predictions:
        p = _probabilities(clf, [case.terms for case in cases])
        return cls(clf, cases, p.argmax(axis=1), p.max(axis=1))

    def after(self, rests: Sequence[np.ndarray], of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each rest of the case of[i]: did the prediction change, and what its label lost."""
        p = _probabilities(self.clf, rests)
        label = self.label[of]
        return p.argmax(axis=1) != label, self.probability[of] - p[np.arange(len(of)), label]

    def struck(self, case: _Case, words: Sequence[frozenset[str]]) -> list[np.ndarray]:
        """The terms left of the case's text when each of these sets is struck out."""
        left = self.clf.vocabulary_.without(case.text, words)
        return [left[i] for i in range(len(left))]

    def deletion(
        self, name: str, gone: Sequence[np.ndarray], words: Sequence[frozenset[str]]
    ) -> Deletion:
        """The terms gone[i] deleted from case i, and, apart from that, the words[i] struck out."""
        every = np.arange(len(self.cases))
        flipped, fall = self.after([np.delete(c.terms, g) for c, g in zip(self.cases, gone)], every)
        rests = [self.struck(c, [w])[0] for c, w in zip(self.cases, words)]
        struck, _ = self.after(rests, every)
        many, named = (float(np.mean(list(map(len, each)))) for each in (gone, words))
        shares = (float(x.mean()) for x in (flipped, fall, struck))
        changed, drop, turned = shares
        return Deletion(name, changed, many, drop, named, turned)

    def words_to_flip(self, stages: Sequence[Sequence[frozenset[str]]]) -> np.ndarray:
        """Words struck at the first stage of each case that flips its prediction; inf if none."""
        of = np.repeat(np.arange(len(self.cases)), [len(s) for s in stages])
        size = np.array([len(words) for stage in stages for words in stage], float)
        rests = [rest for c, stage in zip(self.cases, stages) for rest in self.struck(c, stage)]
        needed = np.full(len(self.cases), np.inf)
        if rests:
            flipped, _ = self.after(rests, of)
            np.minimum.at(needed, of[flipped], size[flipped])
        return needed


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

    Examples
    --------
    >>> from cynosure import HardmaxClassifier, datasets
    >>> data = datasets.synthetic(300)
    >>> clf = HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    >>> winning, alone, *_ = faithfulness(clf, data.texts[:50]).deletions
    >>> winning.flipped > alone.flipped
    True
    """
    cases = _explained(clf, as_texts(texts), progress)
    before = _Predictions.of(clf, cases)
    winning = [case.winning_terms for case in cases]
    needed = before.words_to_flip(
        [[c.words(w[: k + 1]) for k in range(len(w))] for c, w in zip(cases, winning)]
    )
    greedy = [strongest(case.spelled, case.pull.tolist(), most_words) for case in cases]
    chosen = before.words_to_flip(
        [[frozenset(words[: k + 1]) for k in range(len(words))] for words in greedy]
    )
    flipped = np.isfinite(needed)
    reader = TextModel(clf.vocabulary_, clf.model_)
    found = np.array([len(reader.overturn(case.text)) or np.inf for case in cases])
    return Faithfulness(
        texts=len(cases), deletions=_deletions(before, as_generator(seed)),
        most_words=most_words, flipped_within=float((needed <= most_words).mean()),
        best_within=float((np.minimum(chosen, needed) <= most_words).mean()),
        flipped_at_all=float(flipped.mean()), words_to_flip=_summary(needed[flipped]),
        overturned=float((found <= most_words).mean()),
        overturn_words=_summary(found[np.isfinite(found)]),
    )  # fmt: skip


def _summary(words: np.ndarray) -> tuple[float, float, float]:
    """Median, mean and 95 % quantile; NaN of nothing."""
    shown = words if len(words) else np.array([np.nan])
    return float(np.median(shown)), float(shown.mean()), float(np.quantile(shown, 0.95))


def _deletions(before: _Predictions, rng: np.random.Generator) -> tuple[Deletion, ...]:
    """The five deletions of `Faithfulness`, in its order."""
    cases = before.cases
    winning = [case.winning_terms for case in cases]
    gone = {
        "winning leaders with their followers": winning,
        "winning leaders alone": [
            np.array([c.clusters[k][0] for k in c.winning], np.intp) for c in cases
        ],
        "as many terms, by contribution": [
            np.argsort(-c.pull, kind="stable")[: len(w)] for c, w in zip(cases, winning)
        ],
        "as many terms, at random": [
            rng.permutation(len(c.terms))[: len(w)] for c, w in zip(cases, winning)
        ],
    }
    named = [
        before.deletion(name, terms, [c.words(g) for c, g in zip(cases, terms)])
        for name, terms in gone.items()
    ]
    neutral = [case.neutral_terms for case in cases], [case.neutral_words() for case in cases]
    return (*named, before.deletion("the neutral cluster, all others kept", *neutral))
