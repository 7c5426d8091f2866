"""Words struck out of a text, and what the model makes of the rest; words shown as spans.

A word is struck out wherever it stands: every term it is part of is gone, none is formed across the
gap, and a negator that is struck out negates no more. What is left is read again, down to weaker
words, so the words that were *enough* for a verdict are not those whose deletion *overturns* it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import final

import numpy as np

from ..model.model import Model
from ..text.documents import Documents
from ..text.vocabulary import NOT, Tokenizer, Vocabulary

_MOST_STRUCK = 60  # words; who needs more has not found a short answer
_DEEPEST, _KEPT, _TRIED = 16, 4, 8  # words, sets of one size, words added to each: the search


@final
@dataclass(frozen=True)
class Span:
    """Terms that overlap in the text, shown as one: its words, where, and their sum."""

    text: str
    offsets: tuple[tuple[int, int], ...]
    contribution: float
    terms: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False)
class TextModel:
    """A model with its vocabulary: reads texts from which words were struck out."""

    vocabulary: Vocabulary
    model: Model

    def decisions(self, text: str, struck: Sequence[Collection[str]]) -> np.ndarray:
        """Decisions (sets, rows) on `text`, each set of words struck out."""
        return self.model.read(self.vocabulary.without(text, struck)).decision

    def verdicts(self, text: str, struck: Sequence[Collection[str]]) -> np.ndarray:
        """The class that wins, by number."""
        return _winners(self.decisions(text, struck))

    def overturn(self, text: str, struck: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """A small set of words without which the verdict is another, the strongest first; () where
        none was found. The words `struck` are gone from the start.

        Words come by what their terms weigh together until the verdict turns; those not needed are
        put back (`least_turning`). A search from the empty set, which keeps a few sets of each size
        by what is left of the decision, looks for fewer. The set is not proved smallest.
        """
        terms = self._terms(text, struck)
        if not terms:
            return ()
        pull = self._pull(np.fromiter(terms, np.intp, len(terms)))
        spelled = list(terms.values())
        won = int(self.verdicts(text, [struck])[0])

        def turns(sets: Sequence[Sequence[str]]) -> np.ndarray:
            return self.verdicts(text, [struck.union(words) for words in sets]) != won

        needed = least_turning(spelled, pull, turns)
        fewer = self._fewer(text, struck, won, spelled, pull, len(needed) or _DEEPEST)
        return tuple(fewer or needed)

    def _terms(self, text: str, struck: frozenset[str]) -> dict[int, set[str]]:
        """The words of the text in each term."""
        where: dict[int, set[str]] = {}
        for place in self.vocabulary.locate(text, struck):
            term = self.vocabulary.terms[place.term]
            named = words_of(self.vocabulary, text, term, place.start, place.stop)
            where.setdefault(place.term, set()).update(named)
        return where

    def _fewer(
        self,
        text: str,
        struck: frozenset[str],
        won: int,
        spelled: Sequence[Set[str]],
        pull: Sequence[float],
        known: int,
    ) -> list[str]:
        """Fewer words than `known` that turn the verdict, or none: sets of one size after another,
        each grown by the words that pull most, those kept that leave least of the decision."""
        kept: list[tuple[str, ...]] = [()]
        for _ in range(min(known, _DEEPEST) - 1):
            grown = {
                frozenset((*words, w)): (*words, w)
                for words in kept
                for w in _pulling(spelled, pull, words)[:_TRIED]
            }
            if not grown:
                return []
            sets = list(grown.values())
            decision = self.decisions(text, [struck.union(words) for words in sets])
            turned = np.flatnonzero(_winners(decision) != won)
            if len(turned):
                return list(sets[turned[0]])
            order = np.argsort(_ahead(decision, won), kind="stable")
            kept = [sets[i] for i in order[:_KEPT].tolist()]
        return []

    def _pull(self, terms: np.ndarray) -> list[float]:
        """<v, E_j> of each term towards the class that wins."""
        one = Documents(np.array([0, len(terms)]), terms.astype(np.int32))
        decision = self.model.read(one).decision[0]
        p, r = self.model.locate(0 if len(decision) == 1 else int(decision.argmax()))
        sign = -1.0 if len(decision) == 1 and decision[0] <= 0 else 1.0
        plane = self.model.planes[p]
        return (sign * (plane.embedding[terms] @ plane.v[r])).tolist()


def least_turning(
    spelled: Sequence[Set[str]],
    pull: Sequence[float],
    turns: Callable[[Sequence[Sequence[str]]], np.ndarray],
) -> list[str]:
    """Words without which a verdict turns: the strongest, until it does, less those not needed;
    none where it does not. `turns` says of sets of words whether it turns without them."""
    order = strongest(spelled, pull, _MOST_STRUCK)
    prefixes = [order[:k] for k in range(1, len(order) + 1)]
    turned = np.flatnonzero(turns(prefixes)).tolist() if prefixes else []
    needed = prefixes[turned[0]] if turned else []
    for word in needed[::-1]:
        less = [w for w in needed if w != word]
        if less and turns([less])[0]:
            needed = less
    return needed


def strongest(spelled: Sequence[Set[str]], pull: Sequence[float], most: int) -> list[str]:
    """Always the word whose remaining terms pull most together, as long as one pulls at all.

    `spelled` are the words of each term, `pull` its weight; at most `most` words.
    """
    total: dict[str, float] = {}
    holders: dict[str, list[int]] = {}
    for i, words in enumerate(spelled):
        for w in words:
            total[w] = total.get(w, 0.0) + pull[i]
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
            for other in spelled[i] & total.keys():
                total[other] -= pull[i]
    return out


def _pulling(spelled: Sequence[Set[str]], pull: Sequence[float], gone: Sequence[str]) -> list[str]:
    """The words whose terms still there pull together towards the verdict, the strongest first."""
    total: dict[str, float] = {}
    for words, one in zip(spelled, pull, strict=True):
        if words.isdisjoint(gone):
            for w in words:
                total[w] = total.get(w, 0.0) + one
    return sorted((w for w in total if total[w] > 0), key=lambda w: (-total[w], w))


def _winners(decision: np.ndarray) -> np.ndarray:
    """The class that wins by each decision (sets, rows)."""
    return (decision > 0)[:, 0].astype(np.intp) if decision.shape[1] == 1 else decision.argmax(1)


def _ahead(decision: np.ndarray, won: int) -> np.ndarray:
    """How far the class `won` is ahead of the others in each decision (sets, rows)."""
    if decision.shape[1] == 1:
        return decision[:, 0] if won else -decision[:, 0]
    return decision[:, won] - np.delete(decision, won, axis=1).max(axis=1)


def words_of(vocabulary: Vocabulary, text: str, term: str, start: int, stop: int) -> list[str]:
    """The words of the text that make up a term which stands at text[start:stop]."""
    words = [w.removeprefix(NOT) for w in term.split(" ")]
    if NOT not in term:
        return words
    single = Tokenizer((1, 1), vocabulary.tokenizer.lowercase)
    first = single.words(text[start:stop])[0][0]
    return list(dict.fromkeys((first, *words)))  # the negator comes first


def spans(
    text: str, terms: Iterable[tuple[str, tuple[tuple[int, int], ...], float]]
) -> tuple[Span, ...]:
    """Terms (name, offsets, contribution) that overlap anywhere, joined; largest sums first."""
    given = list(terms)
    group = list(range(len(given)))  # of each term; a group has the number of one of its terms
    places = sorted((a, b, i) for i, (_, offsets, _) in enumerate(given) for a, b in offsets)
    reach, owner = -1, 0
    for a, b, i in places:
        if a < reach and group[i] != group[owner]:
            group = [group[owner] if g == group[i] else g for g in group]
        if b > reach:
            reach, owner = b, i
    out = []
    for g in dict.fromkeys(group):
        inside = [given[i] for i, of in enumerate(group) if of == g]
        offsets = _joined(o for _, each, _ in inside for o in each)
        a, b = max(offsets, key=lambda o: o[1] - o[0])
        said = sum(x for *_, x in inside)
        out.append(Span(text[a:b], offsets, said, tuple(name for name, *_ in inside)))
    return tuple(sorted(out, key=lambda s: (-abs(s.contribution), s.offsets)))


def _joined(offsets: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Overlapping intervals as one."""
    out: list[tuple[int, int]] = []
    for a, b in sorted(offsets):
        if out and a < out[-1][1]:
            out[-1] = out[-1][0], max(b, out[-1][1])
        else:
            out.append((a, b))
    return tuple(out)
