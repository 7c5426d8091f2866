"""Do followers belong to their leader? Words gathered by subject, judged by a sentence encoder.

    python benchmarks/subjects.py --data aclImdb.tar.gz --judge FOLDER [--final] [--figure PNG]

A follower should be nearer to its own leader than to a word of another cluster that speaks for the
same side: the share of such pairs in which it is, by the cosine of MiniLM's embeddings of the terms
(all-MiniLM-L6-v2, a judge only: the model never sees it; `--judge` is its folder). Half is chance.
Everything is measured on a block of the training part. Beside the subjects stand their null models:
the same number of subjects given to the terms at random, and word vectors shuffled among the words.
`--final` fits the model without subjects and the one chosen there on the whole training part and
reads the test part, once; its rows go beside those of the blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interleave import write  # sets the number of threads: first

import numpy as np  # isort: skip

from cynosure import HardmaxClassifier, datasets

from cynosure.classifier import Placed  # isort: skip
from cynosure.classifier.fitting import subjects as found_in  # isort: skip
from cynosure.classifier.evaluating.evaluation import evaluate  # isort: skip
from cynosure.classifier.fitting.convex import log_ratio, weights  # isort: skip
from cynosure.classifier.fitting.levels import MOST_LEVELS, Graded, lloyd  # isort: skip
from cynosure.classifier.fitting.placement import Task  # isort: skip
from cynosure.classifier.fitting.subjects import Subjects  # isort: skip
from cynosure.classifier.text.vocabulary import Tokenizer, Vocabulary  # isort: skip

TERMS: dict[str, Any] = {"ngrams": (1, 2), "max_features": 80_000}
GRID = ((4, 48), (8, 96), (12, 36), (12, 72), (12, 144), (16, 192), (24, 231))  # subjects, levels
# the fewest subjects that meet the aim on the blocks: share >= 0.65 at most 0.3 points below d = 2
CHOSEN = 8
KAPPA, C = 1.5, 3.0  # what Placed chooses without subjects
Cluster = tuple[int, np.ndarray, float]  # the leader, its followers, the sign of their weight


class Judge:
    """Cosines of terms by a sentence encoder; each term is embedded once."""

    def __init__(self, folder: str, terms: tuple[str, ...]) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        torch.set_num_threads(1)
        self.split = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModel.from_pretrained(folder).eval()
        self.terms, self.known = terms, {}

    def learn(self, wanted: Iterator[int] | set[int]) -> None:
        import torch

        new = sorted(set(wanted) - set(self.known), key=lambda j: len(self.terms[j]))
        for at in range(0, len(new), 256):
            some = new[at : at + 256]
            said = [self.terms[j].replace("_", " ") for j in some]
            batch = self.split(said, padding=True, return_tensors="pt")
            with torch.no_grad():
                hidden = self.network(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None].float()
            mean = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)
            self.known |= dict(zip(some, mean.numpy()))

    def share(self, texts: list[list[Cluster]]) -> dict[str, float]:
        """Followers: how often their leader is nearer; the same without pairs that share a word;
        and how many of the terms read are followers."""
        self.learn({j for text in texts for a, b, _ in text for j in (a, *b.tolist())})
        nearer, apart, followers, read = [], [], 0, 0
        for text in texts:
            read += sum(1 + len(b) for _, b, _ in text)
            for i, (head, mine, sign) in enumerate(text):
                others = [
                    j for k, (a, b, s) in enumerate(text) if k != i and s == sign
                    for j in (a, *b.tolist())
                ]  # fmt: skip
                followers += len(mine)
                if not others:
                    continue
                away = np.stack([self.known[j] for j in others])
                for f in mine.tolist():
                    own, it = float(self.known[f] @ self.known[head]), self.known[f]
                    won = own > away @ it
                    nearer.append(won.mean())
                    if not self.words(f) & self.words(head):
                        free = [not self.words(f) & self.words(j) for j in others]
                        apart += [won[free].mean()] if any(free) else []
        return {
            "share": round(float(np.mean(nearer)), 4),
            "share, no word in common": round(float(np.mean(apart)), 4),
            "followers judged": len(nearer),
            "followers of terms read": round(followers / max(read, 1), 3),
        }

    def words(self, term: int) -> set[str]:
        return set(self.terms[term].replace("not_", "").split())


def by_grade(graded: Graded, longest: np.ndarray, documents: Any) -> list[list[Cluster]]:
    """Clusters of every text at kappa: the terms heard of one grade, led by the longest."""
    heard, out = graded.heard(documents, KAPPA), []
    for i in range(len(documents)):
        here = slice(documents.indptr[i], documents.indptr[i + 1])
        terms = documents.indices[here][heard[here]]
        grade, text = graded.grade[terms], []
        for g in np.unique(grade):
            mine = terms[grade == g]
            mine = mine[np.argsort(-longest[mine], kind="stable")]
            text.append((int(mine[0]), mine[1:], float(np.sign(graded.value[g]))))
        out.append(text)
    return out


def by_explanation(clf: HardmaxClassifier, texts: list[str]) -> list[list[Cluster]]:
    """The same of the model's own leaders, the anchor's cluster left out."""
    out, index = [], clf.vocabulary_.index
    for text in texts:
        clusters = []
        for x in clf.explain(text).leaders:
            if x.offsets and all(w.offsets for w in x.followers):
                mine = np.array([index[w.text] for w in x.followers], np.intp)
                clusters.append((index[x.text], mine, float(np.sign(x.score))))
        out.append(clusters)
    return out


def on_blocks(train, folder: str, keep, every: int) -> None:
    """The trade-off on a fifth of the training part, held out in blocks."""
    held = datasets.blocks(train.labels, 0.2)
    vocabulary, documents = Vocabulary.build(
        [t for t, out in zip(train.texts, held) if not out], Tokenizer(TERMS["ngrams"], True, True),
        min_df=2, max_features=TERMS["max_features"],
    )  # fmt: skip
    y = train.labels == np.unique(train.labels)[1]
    ones, terms = np.ones(int((~held).sum())), len(vocabulary)
    x = documents.presence(terms)
    s = weights(x, y[~held], ones, C, 0)
    df = x.T @ ones
    task = Task(
        documents=documents, y=y[~held].astype(int), weight=ones, df=df,
        spelled=vocabulary.spelled, turns=None, classes=2, dim=8, leaders=15, words=15, alpha=1.0,
        layers=8, seed=0,
    )  # fmt: skip
    longest = df * log_ratio(x, y[~held], ones) ** 2
    judge = Judge(folder, vocabulary.terms)
    away = vocabulary.encode([t for t, out in zip(train.texts, held) if out])
    some = away.take(np.arange(0, len(away), every))
    text = np.repeat(np.arange(len(away)), away.sizes)

    def measured(name: str, graded: Graded, **more: Any) -> None:
        heard = graded.heard(away, KAPPA)
        sums = np.bincount(text, graded.weight[away.indices] * heard, len(away))
        right = (sums > 0) == y[held]
        leaders, read = graded.leaders(away, heard).mean(), heard.sum() / len(away)
        keep(
            {
                "model": name, **more, "accuracy": round(float(right.mean()), 4),
                "leaders": round(float(leaders), 2), "terms read": round(float(read), 1),
                **judge.share(by_grade(graded, longest, some)),
            }
        )  # fmt: skip

    measured("weight alone", lloyd(s, df, MOST_LEVELS), levels=MOST_LEVELS)
    measured("weight alone", lloyd(s, df, 12), levels=12)
    draw = np.random.default_rng(0)
    for many in dict.fromkeys(many for many, _ in GRID):
        found = Subjects.of(task, many)
        at_random = Subjects(draw.permutation(found.subject), found.towards)
        for levels in (levels for t, levels in GRID if t == many):
            cell = {"subjects": many, "levels": levels}
            measured("subjects", found.graded(s, df, levels), **cell)
            measured("subjects at random", at_random.graded(s, df, levels), **cell)
        measured("shuffled vectors", _shuffled(task, many, draw).graded(s, df, levels), **cell)


def _shuffled(task: Task, many: int, draw: np.random.Generator) -> Subjects:
    """Subjects by word vectors that belong to other words."""
    real = found_in._word_vectors
    try:
        found_in._word_vectors = lambda *a: draw.permutation(real(*a))
        return Subjects.of(task, many)
    finally:
        found_in._word_vectors = real


def final(train, test, folder: str, keep, sample: int) -> None:
    """Both models as they are used, on the test part."""
    pick = np.sort(np.random.default_rng(0).permutation(len(test))[:sample]).tolist()
    models = {
        "d = 2": HardmaxClassifier(**TERMS),
        "d = 8, 8 subjects": HardmaxClassifier(8, method=Placed(subjects=CHOSEN), **TERMS),
    }
    for name, clf in models.items():
        begin = time.process_time()
        clf.fit(train.texts, train.labels)
        seconds = time.process_time() - begin
        got = evaluate(clf, test.texts, test.labels, explained=0)
        judge = Judge(folder, clf.vocabulary_.terms)
        keep(
            {
                "model": name, "part": "test", "accuracy": round(got.accuracy, 4),
                "leaders": round(got.leaders, 2), "words": [round(got.words[0], 1), got.words[1]],
                "0 layers": round(got.unlayered, 4), "verdicts the layers change": got.changed,
                "calibration error": round(got.calibration, 4), "fit, CPU s": round(seconds, 1),
                **judge.share(by_explanation(clf, [test.texts[i] for i in pick])),
            }
        )  # fmt: skip


def drawn(rows: list[dict[str, Any]], path: str) -> None:
    """Share and accuracy against leaders, with the null models."""
    from cynosure.drawing import plot

    figure, axes = plot.sheet(1, 3, 3.7, 3.4)
    looks = {"subjects": ("o", 0), "subjects at random": ("s", 1), "shuffled vectors": ("^", 2),
             "weight alone": ("D", 3)}  # fmt: skip
    panels = {
        "share": "share of pairs", "share, no word in common": "share, no word in common",
        "accuracy": "accuracy, training blocks",
    }  # fmt: skip
    for ax, (what, title) in zip(axes[0], panels.items()):
        for name, (mark, colour) in looks.items():
            some = [row for row in rows if row["model"] == name and "part" not in row]
            ax.plot([row["leaders"] for row in some], [row[what] for row in some], mark,
                    color=plot.PALETTE[colour], ms=6, label=name)  # fmt: skip
            for row in some if name == "subjects" else ():
                ax.annotate(f"{row['subjects']}", (row["leaders"], row[what]), xytext=(5, 3),
                            textcoords="offset points", fontsize=plot.TICK)  # fmt: skip
        ax.set(xlabel="leaders per review", title=title)
    for ax in axes[0, :2]:
        ax.set(ylim=(0.5, 0.76))
        ax.axhline(0.65, color=plot.GREY, lw=0.9, ls="--")
    axes[0, 0].set_ylabel("own leader is nearer")
    plot.legend_below(axes[0, 0], 4)
    figure.savefig(path, dpi=110, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("CYNOSURE_IMDB"), help="aclImdb.tar.gz")
    parser.add_argument("--judge", help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--final", action="store_true", help="the test part instead of blocks")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--figure", help="draw the trade-off there")
    given = parser.parse_args()
    if not (given.data and given.judge):
        print("skipped: name the IMDb archive (--data) and MiniLM's folder", file=sys.stderr)
        return
    train = datasets.imdb(given.data, "train")
    if given.quick:
        train = train.take(np.arange(0, len(train), 10))
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)

    if given.final:
        stored = Path(__file__).with_suffix(".json")
        if stored.exists():
            rows += [row for row in json.loads(stored.read_text())["rows"] if "part" not in row]
        test = datasets.imdb(given.data, "test")
        if given.quick:
            test = test.take(np.arange(0, len(test), 10))
        final(train, test, given.judge, keep, 100 if given.quick else 1000)
    else:
        on_blocks(train, given.judge, keep, every=4)
    if given.figure:
        drawn(rows, given.figure)
    if not given.quick:
        write(__file__, rows)


if __name__ == "__main__":
    main()
