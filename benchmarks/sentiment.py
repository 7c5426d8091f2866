"""IMDb sentiment on the official split: accuracy with what it costs, speed, memory, and the rivals.

    python benchmarks/sentiment.py --data aclImdb.tar.gz [--quick]     (or CYNOSURE_IMDB=...)

1. Accuracy on the test part, once, for several budgets of words read and of leaders; beside
   TF-IDF + logistic regression and NB-SVM (their C chosen on held-out blocks of the training part).
   Accuracy alone says nothing, so words read and leaders per review, weight on leaders and alpha
   stand next to it.
2. Faithfulness, read in two ways: (a) how many terms and words the winning clusters have, and how
   many predictions flip when all of them are deleted; (b) how many flip within 15 words, strongest
   cluster first, and how many by words chosen to flip them.
3. Reviews per second from raw text, against scikit-learn end to end, and on token ids, against
   torch.bmm and the published loop (one token at a time); one thread, interleaved.
4. Peak memory of `cynosure predict -` on a short and a long stream of made-up reviews.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from interleave import interleave, write  # sets the number of threads: first

import numpy as np  # isort: skip
from sklearn.feature_extraction.text import TfidfVectorizer  # isort: skip
from sklearn.linear_model import LogisticRegression  # isort: skip
from sklearn.pipeline import make_pipeline  # isort: skip

from cynosure import HardmaxClassifier, datasets  # isort: skip
from cynosure.classifier.evaluating.faithfulness import faithfulness  # isort: skip
from cynosure.classifier.evaluating.evaluation import Rivals, evaluate  # isort: skip

# (dim, ngrams, budget of words read, budgets of leaders); None reads as far as held-out texts ask
TABLE = [
    (2, (1, 1), 20, (5, 10)),
    (2, (1, 2), 20, (6, 10)),
    (2, (1, 3), 20, (10,)),
    (4, (1, 1), 20, (10,)),
    (4, (1, 2), 20, (10,)),
    (2, (1, 1), 10, (10,)),
    (2, (1, 2), 10, (10,)),
    (2, (1, 1), 40, (10,)),
    (2, (1, 2), 40, (10,)),
    (2, (1, 1), None, (5, 10, 20)),
    (2, (1, 2), None, (6, 10, 20)),
    (2, (1, 3), None, (10, 20)),
    (4, (1, 1), None, (20,)),
    (4, (1, 2), None, (20,)),
]
QUICK_TABLE = [(2, (1, 1), 20, (10,)), (2, (1, 2), 20, (10,)), (2, (1, 2), None, (10,))]
NAMES = {(1, 1): "uni", (1, 2): "uni+bi", (1, 3): "uni+bi+tri"}


def accuracies(train, test, table) -> tuple[list[dict[str, Any]], dict]:
    rows, models = [], {}
    for dim, ngrams, words, budgets in table:
        for budget in budgets:
            begin = time.perf_counter()
            clf = HardmaxClassifier(dim, ngrams, budget, words=words)
            clf.fit(train.texts, train.labels)
            seconds = time.perf_counter() - begin
            found = evaluate(clf, test.texts, test.labels, explained=0)
            row = {
                "model": f"hardmax d={dim}", "tokens": NAMES[ngrams], "words": words or "any",
                "budget": budget, "words read, mean and median": [round(x, 1) for x in found.words],
                "accuracy": round(found.accuracy, 4), "leaders": round(found.leaders, 2),
                "on leaders": round(found.on_leaders, 4), "alpha": found.alpha,
                "calibration error": round(found.calibration, 4), "fit s": round(seconds, 1),
            }  # fmt: skip
            rows.append(row)
            show(row)
            if dim == 2 and budget == 10:
                models[ngrams, words] = clf
    for ngrams in dict.fromkeys(ngrams for _, ngrams, _, _ in table):
        begin = time.perf_counter()
        rivals = Rivals.fit(train.texts, train.labels, ngrams)
        seconds = time.perf_counter() - begin
        for name, labels in rivals.predict(test.texts).items():
            accuracy = round(float((labels == test.labels).mean()), 4)
            row = {
                "model": name, "tokens": NAMES[ngrams], "C": rivals.C[name],
                "accuracy": accuracy, "fit s, both": round(seconds, 1),
            }  # fmt: skip
            rows.append(row)
            show(row)
    return rows, models


def show(row: dict[str, Any]) -> None:
    print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def faithful(models, test, sample: int) -> list[dict[str, Any]]:
    rows = []
    pick = np.sort(np.random.default_rng(0).permutation(len(test))[:sample])
    for (ngrams, words), clf in models.items():
        found = faithfulness(clf, test.take(pick).texts)
        whole = found.deletions[0]
        row = {
            "model": "hardmax d=2, budget 10", "tokens": NAMES[ngrams], "words": words or "any",
            "reviews": found.texts,
            "winning clusters: terms": round(whole.terms, 1),
            "winning clusters: words": round(whole.words, 1),
            "winning clusters: flipped, words struck out": round(whole.struck, 4),
            **{f"{d.name}: flipped": round(d.flipped, 4) for d in found.deletions},
            "strongest first, flipped": round(found.flipped_at_all, 4),
            "words to flip, median and mean": [round(x, 1) for x in found.words_to_flip[:2]],
            f"within {found.most_words} words": round(found.flipped_within, 4),
            f"within {found.most_words} words chosen to flip": round(found.best_within, 4),
        }  # fmt: skip
        rows.append(row)
        show(row)
    return rows


# --- speed ------------------------------------------------------------------------------------


def padded(clf, documents):
    """float32 tokens (B, n, d) and masks, by batches of like length."""
    plane = clf.model_.planes[0]
    length = plane.lengths(documents)
    for rows, terms, mask in documents.padded_batches(1 << 16):
        real = np.pad(mask, ((0, 0), (1, 0)), constant_values=True)
        yield plane.tokens(terms, length[rows]).astype(np.float32), real


def torch_ties(batches, layers: int, eta: float):
    import torch

    for z, real in batches:
        x, keep = torch.from_numpy(z), torch.from_numpy(real)
        for _ in range(layers):
            score = torch.bmm(x, x.transpose(1, 2)).masked_fill(~keep[:, None, :], -torch.inf)
            ties = (score == score.amax(dim=-1, keepdim=True)).to(x.dtype)
            x = x + eta * (torch.bmm(ties, x) / ties.sum(dim=-1, keepdim=True) - x)
        (x * keep[..., None]).sum(dim=1)


def published_loop(batches, few: int, layers: int, eta: float):
    done = 0
    for z, real in batches:
        for one, keep in zip(z, real, strict=True):
            x = one[keep]
            for _ in range(layers):
                new = np.empty_like(x)
                for i in range(len(x)):
                    score = x @ x[i]
                    new[i] = x[i] + eta * (x[score == score.max()].mean(axis=0) - x[i])
                x = new
            done += 1
            if done == few:
                return


def speeds(models, train, test, count: int) -> list[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    texts = list(test.texts[:: max(len(test) // count, 1)])[:count]
    few = 8
    rows = []
    for ngrams in dict.fromkeys(ngrams for ngrams, _ in models):
        clf = models[ngrams, 20]
        linear = make_pipeline(
            TfidfVectorizer(ngram_range=ngrams, min_df=2, sublinear_tf=True),
            LogisticRegression(solver="liblinear"),
        ).fit(train.texts[::5], train.labels[::5])  # a fifth: its speed hardly depends on it
        documents = clf.vocabulary_.encode(texts)
        middle = documents.take(np.argsort(documents.sizes)[len(texts) // 2 :][:few])
        eta = float(clf.model_.alpha / (1 + clf.model_.alpha))
        layers = clf.model_.layers
        seconds = interleave(
            {
                "raw text, ours": lambda clf=clf: clf.predict(texts),
                "raw text, sklearn TF-IDF + LR": lambda linear=linear: linear.predict(texts),
                "token ids, ours": lambda clf=clf, d=documents: clf.model_.read(d),
            },
            budget=60.0,
        ) | interleave(
            {
                "token ids, torch.bmm with ties": lambda clf=clf, d=documents, k=layers, e=eta: (
                    torch_ties(padded(clf, d), k, e)
                ),
                "token ids, published loop": lambda clf=clf, d=middle, k=layers, e=eta: (
                    published_loop(padded(clf, d), few, k, e)
                ),
            },
            rounds=3,
            budget=60.0,
        )
        rate = {k: (few if "loop" in k else len(texts)) / s for k, s in seconds.items()}
        row = {
            "tokens": NAMES[ngrams], "reviews": len(texts),
            "per second": {name: round(r) for name, r in rate.items()},
            "raw text, ours / sklearn": round(
                rate["raw text, ours"] / rate["raw text, sklearn TF-IDF + LR"], 2
            ),
            "token ids, ours / torch.bmm": round(
                rate["token ids, ours"] / rate["token ids, torch.bmm with ties"], 1
            ),
        }  # fmt: skip
        rows.append(row)
        show(row)
    return rows


# --- memory -----------------------------------------------------------------------------------


CHILD = """
import sys
from cynosure.cli import main
code = main(["predict", "-", "-q"])
with open("/proc/self/status") as status:  # getrusage would count the parent before exec
    print(*[line.split()[1] for line in status if line.startswith("VmHWM")], file=sys.stderr)
sys.exit(code)
"""


def memory(counts: tuple[int, int]) -> list[dict[str, Any]]:
    """Peak memory of the command line on streams of different lengths (needs Linux)."""
    source = Path(__file__).resolve().parent.parent / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    pool = [text.encode() + b"\n" for text in datasets.synthetic(1000).texts]
    block = b"".join(pool)
    rows = []
    for count in counts:
        begin = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdin is not None and child.stderr is not None
        for _ in range(count // len(pool)):
            child.stdin.write(block)
        child.stdin.close()
        peak = int(child.stderr.read()) // 1000
        assert child.wait() == 0
        seconds = time.perf_counter() - begin
        row = {
            "streamed": count, "peak memory, MB": peak, "seconds": round(seconds, 1),
            "per second": round(count / seconds),
        }  # fmt: skip
        rows.append(row)
        show(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("CYNOSURE_IMDB"), help="aclImdb.tar.gz")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, three models")
    given = parser.parse_args()
    if not given.data:
        print("skipped: name the IMDb archive with --data PATH or CYNOSURE_IMDB", file=sys.stderr)
        return
    train, test = (datasets.imdb(given.data, part) for part in ("train", "test"))
    if given.quick:
        train, test = (part.take(np.arange(0, len(part), 10)) for part in (train, test))
    table, models = accuracies(train, test, QUICK_TABLE if given.quick else TABLE)
    kept = faithful(models, test, 100 if given.quick else 1000)
    speed = speeds(models, train, test, 500 if given.quick else 5000)
    streams = memory((10_000, 50_000) if given.quick else (10_000, 1_000_000))
    if not given.quick:
        write(__file__, [*table, *kept, *speed, *streams])


if __name__ == "__main__":
    main()
