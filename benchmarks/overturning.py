"""Can a verdict be turned with so few words? What a search finds, beside a proof that none can.

    python benchmarks/overturning.py --data aclImdb.tar.gz [--reviews 300]   (or CYNOSURE_IMDB=...)

Fitted on two thirds of the training part of IMDb and judged on reviews of the other, consecutive
ids; the test part is not read. `Explanation.overturn` is a search and proves nothing, so for every
review it does not turn within 13 words an integer program asks whether any 13 words could.

With s_j > 0 for the verdict, a reader that stops at level h has turned only if what is left to read
sums to

    sum_{j read} s_j <= -kappa sqrt(sum_{j unread} s_j^2)

(the 1/256 of the silent words that eight layers leave is too little to turn that sign). The unread
squares that are left are at least those of terms that were there before, and a square root lies
above its chord, here from 13 deletions to none: a linear condition, necessary for at most 13 words,
with one 0-1 variable a word. It lets a term with several negators stay when one of them is struck
out, takes what a struck negator leaves plain only where that helps, and forgets that the reader may
stop before level h. So if it cannot be met at any level, no 13 words turn the verdict. If it can,
the words it names are tried; where they do not turn the verdict either, the review stays open.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import combinations
from typing import Any, NamedTuple

from interleave import write  # sets the number of threads: first

import numpy as np  # isort: skip
from scipy.optimize import Bounds, LinearConstraint, milp  # isort: skip
from scipy.sparse import coo_array  # isort: skip

from cynosure import HardmaxClassifier, datasets

from cynosure.classifier import Placed  # isort: skip
from cynosure.classifier.evaluating.evaluation import evaluate  # isort: skip
from cynosure.classifier.explaining.deletion import TextModel  # isort: skip
from cynosure.classifier.text.vocabulary import _NEGATORS, NOT  # isort: skip

ROWS: dict[str, dict[str, Any]] = {
    "the default": {},
    "5,000 terms": {"max_features": 5_000},
    "kappa = 1": {"method": Placed(kappa=1.0)},
    "C = 1": {"C": 1.0},
}
KINDS = ("searched", "programmed", "proved", "open")
_MOST_NEGATORS = 6  # kinds in a review; with more, what striking them leaves is not gone through
_SECONDS = 10.0  # of one integer program; what it has proved by then counts


class Deletions(NamedTuple):
    """The terms of a review: weight (> 0 for the verdict) and level, the words whose deletion may
    remove each, those whose deletion surely does; and the terms that speak against the verdict once
    negators are struck out: weight, level, those negators."""

    names: list[str]
    s: np.ndarray
    level: np.ndarray
    holders: list[list[int]]
    surely: list[list[int]]
    freed: list[tuple[float, int, list[int]]]
    kappa: float

    @classmethod
    def of(cls, reader: TextModel, text: str) -> Deletions | None:
        """None where there are too many negators."""
        vocabulary, plane = reader.vocabulary, reader.model.planes[0]
        if plane.b[0] != 0:
            raise ValueError("a verdict is the sign of what was read only where classes are equal")
        rays, ladder = plane.rays, plane.ladder
        sign = 1.0 if reader.decisions(text, [()])[0, 0] > 0 else -1.0
        where = reader._terms(text, frozenset())
        spelled = {w for words in where.values() for w in words}
        plain = type(vocabulary.tokenizer)((1, 1), vocabulary.tokenizer.lowercase)
        negators = sorted({w for w, *_ in plain.words(text)} & set(_NEGATORS))
        if len(negators) > _MOST_NEGATORS:
            return None
        sets = [c for k in range(1, len(negators) + 1) for c in combinations(negators, k)]
        names = sorted(spelled | set(negators))
        number = {w: i for i, w in enumerate(names)}
        freed: dict[int, set[int]] = {}
        if sets:
            left = vocabulary.without(text, sets)
            for i, struck in enumerate(sets):
                for term in set(left[i].tolist()) - where.keys():
                    freed.setdefault(term, set()).update(number[w] for w in struck)
        terms, new = (np.fromiter(x, np.intp, len(x)) for x in (where, freed))
        value, level = (x[rays.ray[new]] for x in (sign * ladder.value, ladder.level))
        against = zip(value.tolist(), level.tolist(), freed.values(), strict=True)
        kept = [{w.removeprefix(NOT) for w in vocabulary.terms[j].split(" ")} for j in where]
        return cls(
            names=names,
            s=sign * ladder.value[rays.ray[terms]],
            level=ladder.level[rays.ray[terms]],
            holders=[[number[w] for w in words] for words in where.values()],
            surely=[[number[w] for w in words if w in number] for words in kept],
            freed=[(v, h, sorted(by)) for v, h, by in against if v < 0],
            kappa=plane.kappa,
        )

    @property
    def levels(self) -> list[int]:
        """Where a reader may stop."""
        return sorted(({int(h) for h in self.level} | {h for _, h, _ in self.freed}) - {0})

    def fewest(self, h: int, most: int) -> tuple[float, list[str]]:
        """Words that meet the condition of a reader that stops at level h, and a lower bound on
        their number (inf: none do), right where it is at most `most`."""
        n, t, s = len(self.names), len(self.s), self.s
        read = self.level >= h
        square = np.where(read, 0.0, s**2)
        by_word = np.zeros(n)
        for j, words in enumerate(self.holders):
            by_word[words] += square[j]
        full = float(square.sum())
        least = max(full - float(np.sort(by_word)[::-1][:most].sum()), 0.0)
        chord = 1.0 / (np.sqrt(full) + np.sqrt(least)) if full > 0 else 0.0
        gain = np.where(read, s, self.kappa * chord * square)
        needed = float(s[read].sum()) + self.kappa * np.sqrt(full)
        against = [-v if level >= h else 0.0 for v, level, _ in self.freed]
        reach = np.zeros(n)
        for j, words in enumerate(self.holders):
            reach[words] += max(gain[j], 0.0)
        for x, (_, _, by) in zip(against, self.freed, strict=True):
            reach[by] += x
        if np.sort(reach)[::-1][:most].sum() < needed:
            return float("inf"), []
        rows: list[tuple[int, int, float]] = []  # of variables: words, terms deleted, terms freed
        count = 0
        for j in range(t):
            if gain[j] < 0:  # speaks against the verdict: gone with each of its own words
                for w in self.surely[j]:
                    rows += [(count, n + j, 1.0), (count, w, -1.0)]
                    count += 1
            else:
                rows += [(count, n + j, -1.0), *((count, w, 1.0) for w in self.holders[j])]
                count += 1
        for k, (_, _, by) in enumerate(self.freed):
            rows += [(count, n + t + k, -1.0), *((count, w, 1.0) for w in by)]
            count += 1
        rows += [(count, n + j, x) for j, x in enumerate([*gain.tolist(), *against])]
        i, j, x = zip(*rows, strict=True)
        size = n + t + len(self.freed)
        low = np.zeros(count + 1)
        low[count] = needed - 1e-9 * max(abs(needed), 1.0)
        found = milp(
            np.repeat([1.0, 0.0], [n, size - n]),
            integrality=np.repeat([1, 0], [n, size - n]),
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(coo_array((x, (i, j)), (count + 1, size)).tocsr(), low),
            options={"time_limit": _SECONDS, "mip_rel_gap": 0.0},
        )
        if found.status == 2:
            return float("inf"), []
        bound = 0.0 if found.mip_dual_bound is None else np.ceil(found.mip_dual_bound - 1e-6)
        chosen = [] if found.x is None else np.flatnonzero(found.x[:n] > 0.5).tolist()
        return float(bound), [self.names[w] for w in chosen]


def turned(reader: TextModel, text: str, most: int) -> str:
    """ "searched" or "programmed": at most `most` words were found; "proved": none exist."""
    if 0 < len(reader.overturn(text)) <= most:
        return "searched"
    deletions = Deletions.of(reader, text)
    if deletions is None:
        return "open"
    verdict, proved = reader.verdicts(text, [()])[0], True
    for h in deletions.levels:
        least, words = deletions.fewest(h, most)
        if 0 < len(words) <= most and reader.verdicts(text, [words])[0] != verdict:
            return "programmed"
        proved = proved and least > most
    return "proved" if proved else "open"


def third(labels: np.ndarray) -> np.ndarray:
    """The first third of each class."""
    out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        out[rows[: len(rows) // 3]] = True
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("CYNOSURE_IMDB"), help="aclImdb.tar.gz")
    parser.add_argument("--reviews", type=int, default=300, help="how many are judged")
    parser.add_argument("--words", type=int, default=13)
    parser.add_argument("--only", action="append", choices=ROWS, help="this model")
    given = parser.parse_args()
    if not given.data:
        print("skipped: name the IMDb archive with --data PATH or CYNOSURE_IMDB", file=sys.stderr)
        return
    data = datasets.imdb(given.data, "train")
    held = third(data.labels)
    train, test = data.take(np.flatnonzero(~held)), data.take(np.flatnonzero(held))
    pick = np.sort(np.random.default_rng(1).permutation(len(test))[: given.reviews]).tolist()
    rows = []
    for name in given.only or ROWS:
        clf = HardmaxClassifier(**ROWS[name]).fit(train.texts, train.labels)
        seen = evaluate(clf, test.texts, test.labels, explained=0)
        reader = TextModel(clf.vocabulary_, clf.model_)
        kinds = [turned(reader, test.texts[i], given.words) for i in pick]
        share = {k: round(kinds.count(k) / len(kinds), 4) for k in KINDS}
        rows.append({
            "model": name, "accuracy": round(seen.accuracy, 4), "words": round(seen.words[0], 1),
            "kappa": round(clf.model_.planes[0].kappa, 3), "reviews": len(pick),
            f"within {given.words} words": share,
        })  # fmt: skip
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if not given.only:
        write(__file__, rows)


if __name__ == "__main__":
    main()
