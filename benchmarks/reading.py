"""How few words decide, on IMDb's official split: the table of the README.

    python benchmarks/reading.py --data aclImdb.tar.gz [--quick]     (or CYNOSURE_IMDB=...)

Every constant (C, grades, kappa, decoder) is chosen on blocks of the training part; the test part
is read once, here. For words, words and pairs, and both with negation: accuracy; words read for a
verdict (`Explanation.enough`, mean and median) and words whose deletion overturns it
(`Explanation.overturn`, on a sample); leaders; the same model with 0 layers, and how many verdicts
the layers change; kappa = inf, where everything is read; calibration error; CPU seconds of the
fit; texts per CPU second from raw text. Beside it TF-IDF + logistic regression and NB-SVM: with
every word, with the same stop rule, and with their strongest terms, at 14 words a text (kappa and
the number of terms chosen on a block of the training part). The control: the default's weights
with the stop rule alone and no layers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from interleave import write  # sets the number of threads: first

import numpy as np  # isort: skip
from scipy.sparse import csr_array  # isort: skip

from cynosure import HardmaxClassifier, datasets, load_pretrained

from cynosure.classifier import Placed  # isort: skip
from cynosure.classifier.evaluating.evaluation import Rivals, evaluate  # isort: skip
from cynosure.classifier.explaining.deletion import TextModel  # isort: skip

ROWS: list[tuple[str, dict[str, Any]]] = [
    ("uni+bi+negation", {}),
    ("uni+bi", {"ngrams": (1, 2), "negation": False}),
    ("uni", {"ngrams": (1, 1), "negation": False}),
    ("uni+bi+negation, 80,000 terms", {"max_features": 80_000}),
    ("uni+bi+negation, words of their own only", {"negation": True}),
    ("uni+bi+tri+negation", {"ngrams": (1, 3)}),
]
SHIPPED = ROWS[3][1]  # what --ship fits


def measured(name: str, clf: HardmaxClassifier, train, test, sample: int) -> dict[str, Any]:
    begin = time.process_time()  # of one thread; seconds of a busy machine's clock say nothing
    if not hasattr(clf, "model_"):
        clf.fit(train.texts, train.labels)
    fitted = time.process_time() - begin
    begin = time.process_time()
    clf.predict(test.texts)
    rate = len(test) / (time.process_time() - begin)
    found = evaluate(clf, test.texts, test.labels, explained=0)
    pick = np.sort(np.random.default_rng(0).permutation(len(test))[:sample]).tolist()
    reader = TextModel(clf.vocabulary_, clf.model_)
    turn = np.array([len(reader.overturn(test.texts[i])) or np.inf for i in pick])
    flat = clf.model_.planes[0]
    return {
        "model": name,
        "accuracy": round(found.accuracy, 4),
        "words": [round(found.words[0], 1), found.words[1]],
        "overturn, mean and median": [
            round(float(turn[np.isfinite(turn)].mean()), 1), float(np.median(turn))
        ],
        "overturned within 13 words": round(float((turn <= 13).mean()), 4),
        "overturned at all": round(float(np.isfinite(turn).mean()), 4),
        "leaders": round(found.leaders, 2),
        "on leaders": round(found.on_leaders, 4),
        "terms silenced": round(found.silenced, 3),
        "0 layers": round(found.unlayered, 4),
        "verdicts the layers change": found.changed,
        "calibration error": round(found.calibration, 4),
        "kappa": round(flat.kappa, 3),
        "terms": found.terms,
        "fit CPU s": round(fitted, 1),
        "texts/CPU s": round(rate),
    }  # fmt: skip


def read_by_rule(u, bias: float, kappa: float, most: int | None = None):
    """For contributions u (texts, terms): the sums of the terms read by falling |u| until they
    outweigh the others, or of the `most` strongest; and a sparse array of those terms."""
    sums, kept = np.full(u.shape[0], bias), np.zeros(u.nnz, bool)
    for i in range(u.shape[0]):
        row = u.data[u.indptr[i] : u.indptr[i + 1]]
        order = np.argsort(-np.abs(row), kind="stable")
        said = bias + np.cumsum(row[order])
        left = np.append(np.cumsum(row[order][::-1] ** 2)[::-1], 0.0)[1:]
        enough = np.abs(said) >= kappa * np.sqrt(left)
        stop = most or (int(np.argmax(enough)) + 1 if enough.any() else len(row))
        kept[u.indptr[i] + order[:stop]] = True
        sums[i] = said[min(stop, len(row)) - 1] if len(row) else bias
    read = u.copy()
    read.data[~kept] = 0.0
    read.eliminate_zeros()
    return sums, read


class Linear:
    """The contributions of one of the rivals, and the words that its terms have."""

    def __init__(self, fitted: Rivals, name: str) -> None:
        self.steps, one = fitted.heads[name][:-1], fitted.heads[name][-1].estimators_[0]
        self.ratio, final = (None, one) if hasattr(one, "coef_") else (one[:-1], one[-1])
        self.vectorizer, self.classes = fitted.vectorizer, fitted.heads[name].classes_
        self.weight, self.bias = final.coef_[0], float(final.intercept_[0])
        terms = [term.split(" ") for term in self.vectorizer.get_feature_names_out()]
        number = {w: k for k, w in enumerate(dict.fromkeys(w for term in terms for w in term))}
        rows = [sorted({number[w] for w in term}) for term in terms]
        indptr = np.concatenate(([0], np.cumsum(list(map(len, rows)))))
        columns = np.concatenate(rows)
        self.spelled = csr_array((np.ones(len(columns)), columns, indptr), (len(rows), len(number)))

    def contributions(self, texts):
        x = self.steps.transform(self.vectorizer.transform(texts))
        x = csr_array(x if self.ratio is None else self.ratio.transform(x))
        x.data = x.data * self.weight[x.indices]
        x.eliminate_zeros()
        return x

    def words(self, read) -> np.ndarray:
        return np.diff((abs(read).sign() @ self.spelled).indptr)

    def labels(self, sums) -> np.ndarray:
        return self.classes[(sums > 0).astype(int)]


def at_equal_words(train, test, words: float = 14.0) -> list[dict[str, Any]]:
    """The rivals with the stop rule, and with their strongest terms, at `words` words a text."""
    held = datasets.blocks(train.labels, 0.1)
    part, away = train.take(~held), train.take(held)
    whole, some = (Rivals.fit(x.texts, x.labels) for x in (train, part))
    rows = []
    for name in whole.heads:
        tried, final = Linear(some, name), Linear(whole, name)
        u = tried.contributions(away.texts)

        def needed(kappa: float, most: int | None, u=u, tried=tried) -> float:
            return float(tried.words(read_by_rule(u, tried.bias, kappa, most)[1]).mean())

        low, high = 0.0, 16.0
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if needed(middle, None) <= words else (low, middle)
        most = max(k for k in range(1, 40) if needed(0.0, k) <= words + 0.3)
        u = final.contributions(test.texts)
        every = final.labels(u.sum(axis=1) + final.bias)
        for how, kappa, k in (("stop rule", low, None), (f"the strongest {most} terms", 0.0, most)):
            sums, read = read_by_rule(u, final.bias, kappa, k)
            got, count = final.labels(sums), final.words(read)
            rows.append(
                {
                    "model": f"{name}, uni+bi, {how}",
                    "accuracy": round(float((got == test.labels).mean()), 4),
                    "words": [round(float(count.mean()), 1), float(np.median(count))],
                    "verdicts of every word": round(float((got == every).mean()), 4),
                    **({} if k else {"kappa": round(kappa, 3)}),
                }
            )
    return rows


def control(clf: HardmaxClassifier, test) -> dict[str, Any]:
    """The weights of a classifier with the stop rule alone: no anchor, no layers."""
    plane = clf.model_.planes[0]
    weight, level_of = (x[plane.rays.ray] for x in (plane.ladder.value, plane.ladder.level))
    documents = clf.vocabulary_.encode(test.texts)
    coef, spelled, sums, words = (
        clf.coef_[0],
        clf.vocabulary_.spelled,
        *np.zeros((2, len(documents))),
    )
    for i in range(len(documents)):
        u = weight[documents[i]]
        rung, level = np.unique(-level_of[documents[i]], return_inverse=True)  # read together
        said = np.cumsum(np.bincount(level, u, len(rung)))
        left = np.append(np.cumsum(np.bincount(level, u**2, len(rung))[::-1])[::-1], 0.0)[1:]
        enough = np.abs(said) >= plane.kappa * np.sqrt(left)
        enough &= rung < 0
        stop = int(np.argmax(enough)) if enough.any() else len(rung) - 1
        read = documents[i][(level <= stop) & (u != 0)]
        sums[i] = coef[read].sum()
        words[i] = len(
            {w for j in read.tolist() for w in spelled.indices[slice(*spelled.indptr[j : j + 2])]}
        )
    odds = plane.b[0] + sums / (documents.sizes + plane.count)
    got, layers = clf.classes_[(odds > 0).astype(int)], clf.predict(test.texts)
    return {
        "model": "the default's weights, stop rule alone, no layers",
        "accuracy": round(float((got == test.labels).mean()), 4),
        "words": [round(float(words.mean()), 1), float(np.median(words))],
        "verdicts that differ from the layers'": int((got != layers).sum()),
        "largest difference of the log-odds": round(
            float(np.abs(odds - clf.decision_function(test.texts)).max()), 4
        ),
    }


def rivals(name: str, ngrams: tuple[int, int], train, test) -> list[dict[str, Any]]:
    begin = time.process_time()
    fitted = Rivals.fit(train.texts, train.labels, ngrams)
    seconds = time.process_time() - begin
    begin = time.process_time()
    found = fitted.predict(test.texts)
    rate = len(test) / (time.process_time() - begin)
    return [
        {
            "model": f"{rival}, {name}", "accuracy": round(float((y == test.labels).mean()), 4),
            "C": fitted.C[rival], "fit CPU s, both": round(seconds, 1),
            "texts/CPU s, both": round(rate),
        }
        for rival, y in found.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("CYNOSURE_IMDB"), help="aclImdb.tar.gz")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--blocks", action="store_true", help="blocks of the training part instead")
    parser.add_argument("--ship", help="folder for the model that comes with the package")
    given = parser.parse_args()
    if not given.data:
        print("skipped: name the IMDb archive with --data PATH or CYNOSURE_IMDB", file=sys.stderr)
        return
    train = datasets.imdb(given.data, "train")
    if given.ship:
        clf = HardmaxClassifier(**SHIPPED).fit(train.texts, train.labels)
        print(clf.save(given.ship))
        return
    if given.blocks:
        held = datasets.blocks(train.labels, 0.2)
        train, test = train.take(np.flatnonzero(~held)), train.take(np.flatnonzero(held))
    else:
        test = datasets.imdb(given.data, "test")
    if given.quick:
        train, test = (part.take(np.arange(0, len(part), 10)) for part in (train, test))
    sample = 100 if given.quick else 1000
    rows = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if not given.quick and not given.blocks:
            write(__file__, rows)

    if not given.blocks:  # it has seen them
        keep(measured("as shipped", load_pretrained(), train, test, sample))
    for name, options in ROWS:
        clf = HardmaxClassifier(**options)
        keep(measured(name, clf, train, test, sample))
        if not options:
            keep(control(clf, test))
            for row in at_equal_words(train, test):
                keep(row)
    everything = HardmaxClassifier(leaders=10_000, method=Placed(kappa=float("inf")))
    keep(measured("uni+bi+negation, kappa = inf", everything, train, test, 50))
    for name, ngrams in (("uni", (1, 1)), ("uni+bi", (1, 2))):
        for row in rivals(name, ngrams, train, test):
            keep(row)


if __name__ == "__main__":
    main()
