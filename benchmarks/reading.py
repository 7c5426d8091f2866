"""How few words decide, on IMDb's official split: the table of the README.

    python benchmarks/reading.py --data aclImdb.tar.gz [--quick]     (or CYNOSURE_IMDB=...)

Every constant (C, grades, kappa, decoder) is chosen on blocks of the training part; the test part
is read once, here. For words, words and pairs, and both with negation: accuracy; words read for a
verdict (`Explanation.enough`, mean and median) and words whose deletion overturns it
(`Explanation.overturn`, on a sample); leaders; the same model with 0 layers, and how many verdicts
the layers change; kappa = inf, where everything is read; calibration error; CPU seconds of the
fit; texts per CPU second from raw text. Beside it TF-IDF + logistic regression and NB-SVM.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from interleave import write  # sets the number of threads: first

import numpy as np  # isort: skip

from cynosure import HardmaxClassifier, Placed, datasets  # isort: skip
from cynosure.classifier.evaluation import Rivals, evaluate  # isort: skip
from cynosure.classifier.striking import Reader  # isort: skip

ROWS: list[tuple[str, dict[str, Any]]] = [
    ("uni+bi+negation", {}),
    ("uni", {"ngrams": (1, 1), "negation": False}),
    ("uni+bi", {"ngrams": (1, 2), "negation": False}),
    ("uni+bi+negation, words of their own only", {"negation": True}),
    ("uni+bi+tri+negation", {"ngrams": (1, 3)}),
]
# what `load_pretrained` opens
SHIPPED: dict[str, Any] = {"max_features": 80_000}


def measured(name: str, clf: HardmaxClassifier, train, test, sample: int) -> dict[str, Any]:
    begin = time.process_time()  # of one thread; seconds of a busy machine's clock say nothing
    clf.fit(train.texts, train.labels)
    fitted = time.process_time() - begin
    begin = time.process_time()
    clf.predict(test.texts)
    rate = len(test) / (time.process_time() - begin)
    found = evaluate(clf, test.texts, test.labels, explained=0)
    pick = np.sort(np.random.default_rng(0).permutation(len(test))[:sample]).tolist()
    reader = Reader(clf.vocabulary_, clf.model_)
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

    keep(measured("as shipped", HardmaxClassifier(**SHIPPED), train, test, sample))
    for name, options in ROWS:
        keep(measured(name, HardmaxClassifier(**options), train, test, sample))
    everything = HardmaxClassifier(leaders=10_000, method=Placed(kappa=float("inf")))
    keep(measured("uni+bi+negation, kappa = inf", everything, train, test, 50))
    for name, ngrams in (("uni", (1, 1)), ("uni+bi", (1, 2))):
        for row in rivals(name, ngrams, train, test):
            keep(row)
    if not given.quick and not given.blocks:
        write(__file__, rows)


if __name__ == "__main__":
    main()
