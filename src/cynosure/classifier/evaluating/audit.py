"""A classifier on a corpus: groups, words struck everywhere, what abstaining gains, drift.

Each function gives a list of rows, for a table: `pandas.DataFrame(audit(...))`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..estimator import HardmaxClassifier
from ..text.documents import Documents
from ..text.inputs import as_labels, as_texts
from ..text.vocabulary import NOT

_FEW = 5  # texts in which a word decided, to be listed


def _pairs(texts: Any, labels: Any) -> tuple[list[str], np.ndarray]:
    texts, labels = as_texts(texts), as_labels(labels, "labels")
    if len(texts) != len(labels):
        raise ValueError(f"labels: expected one per text, got {len(labels)} for {len(texts)}")
    return texts, labels


def coverage(
    clf: HardmaxClassifier, texts: Any, labels: Any, by: str = "probability", points: int = 11
) -> list[dict[str, Any]]:
    """What abstaining gains: the share of the texts that are answered, and the accuracy on them.

    `by` is "probability" (of the predicted label) or "evidence" (how far the words move the
    log-odds from the prior): `threshold` is the bound to give to `predict`. Texts without evidence
    are never answered; they count as texts.

    Examples
    --------
    >>> from cynosure import HardmaxClassifier, datasets
    >>> data = datasets.synthetic(200)
    >>> clf = HardmaxClassifier().fit(data.texts, data.labels)
    >>> rows = coverage(clf, data.texts, data.labels, points=3)
    >>> [row["answered"] for row in rows][0] == 1.0
    True
    """
    if by not in ("probability", "evidence") or points < 2:
        raise ValueError(f"by: expected 'probability' or 'evidence', got {by!r}")
    texts, labels = _pairs(texts, labels)
    verdicts = clf.read(texts)
    right = clf._opened.labels(verdicts) == labels
    p = clf.probabilities(verdicts.decision).max(axis=1)
    score = p if by == "probability" else clf._opened.evidence(verdicts)
    said = verdicts.evidence
    order = np.flatnonzero(said)[np.argsort(-score[said], kind="stable")]
    rows = []
    for share in np.linspace(1.0, 0.0, points, endpoint=False).tolist():
        most = int(np.ceil(share * len(order)))
        if not most:
            break
        threshold = float(score[order[most - 1]])
        answered = said & (score >= threshold)
        rows.append(
            {"threshold": threshold, "answered": float(answered.mean()),
             "accuracy": float(right[answered].mean())}
        )  # fmt: skip
    return rows


def audit(
    clf: HardmaxClassifier, texts: Any, labels: Any, groups: Any = None
) -> list[dict[str, Any]]:
    """A row for each group of texts (and one for all): how good the verdicts are, and what decides.

    `accuracy` with its `error` (standard); `predicted` and `true`, the share of each label;
    `wrongly`, the share of the texts of other labels that get the label (of two classes, for the
    second the false-positive rate); `words` a verdict reads; `decide` the words that decide more
    often than in the other groups, by the difference of the shares.
    """
    texts, labels = _pairs(texts, labels)
    group = labels if groups is None else as_labels(groups, "groups")
    if len(group) != len(texts):
        raise ValueError(f"groups: expected one per text, got {len(group)} for {len(texts)}")
    verdicts, deciding = clf._opened.read_with_words(texts)
    guess = clf._opened.labels(verdicts)
    size = np.array(list(map(len, deciding)))
    rows = []
    kinds = [None] if groups is None else [None, *np.unique(group).tolist()]
    for kind in kinds:
        mine = np.ones(len(texts), bool) if kind is None else group == kind
        right = (guess == labels)[mine]
        known = clf.classes_.tolist()
        rows.append(
            {
                "group": "all" if kind is None else kind, "texts": int(mine.sum()),
                "accuracy": float(right.mean()),
                "error": float(right.std() / np.sqrt(mine.sum())),
                "predicted": {str(c): float((guess[mine] == c).mean()) for c in known},
                "true": {str(c): float((labels[mine] == c).mean()) for c in known},
                "wrongly": {
                    str(c): float((guess[mine & (labels != c)] == c).mean())
                    for c in known if (mine & (labels != c)).any()
                },
                "words": float(size[mine].mean()),
                "without evidence": int((~verdicts.evidence[mine]).sum()),
                "decide": _apart(deciding, mine),
            }
        )  # fmt: skip
    return rows


def _apart(deciding: list[tuple[str, ...]], mine: np.ndarray, most: int = 8) -> list[str]:
    """The words that decide in more of these texts than of the others, by the difference."""
    count: dict[str, list[int]] = {}
    for words, inside in zip(deciding, mine.tolist()):
        for word in words:
            count.setdefault(word, [0, 0])[int(inside)] += 1
    n, rest = max(int(mine.sum()), 1), max(int((~mine).sum()), 1)
    gap = {w: b / n - a / rest for w, (a, b) in count.items() if b >= _FEW}
    return sorted((w for w in gap if gap[w] > 0), key=lambda w: (-gap[w], w))[:most]


def struck(
    clf: HardmaxClassifier, texts: Any, words: Iterable[str], labels: Any = None
) -> list[dict[str, Any]]:
    """What becomes of the verdicts when a word is struck from every text, a row for each word and
    one for all together: `texts` that have it, verdicts `turned`, `without evidence` afterwards;
    with labels the `accuracy` before and after, on all texts."""
    texts = as_texts(texts)
    truth = None if labels is None else _pairs(texts, labels)[1]
    vocabulary, opened = clf.vocabulary_, clf._opened
    listed = [vocabulary.tokenizer.spelling(w) for w in words]
    inside = [{w.removeprefix(NOT) for w, *_ in vocabulary.tokenizer.words(t)} for t in texts]
    before = opened.labels(opened.read(texts))
    rows = []
    for gone in [*(frozenset([w]) for w in listed), *([frozenset(listed)] if listed[1:] else [])]:
        has = np.flatnonzero([not gone.isdisjoint(own) for own in inside])
        after, silent = before.copy(), 0
        if len(has):
            parts = [vocabulary.without(texts[i], [gone]).indices for i in has.tolist()]
            ptr = np.cumsum([0, *map(len, parts)]).astype(np.int64)
            read = clf.model_.read(Documents(ptr, np.concatenate(parts)))
            after[has], silent = opened.labels(read), int((~read.evidence).sum())
        row = {"word": ", ".join(sorted(gone)), "texts": len(has),
               "turned": int((after != before).sum()), "without evidence": silent}  # fmt: skip
        if truth is not None:
            row["accuracy"] = float((before == truth).mean())
            row["accuracy after"] = float((after == truth).mean())
        rows.append(row)
    return rows


def drift(clf: HardmaxClassifier, texts: Any, most: int = 20) -> list[dict[str, Any]]:
    """How these texts differ from those of the training, in the terms that weigh: a row for each of
    the `most` terms whose share of the texts changed most, by |change| x |weight|.

    `z` is the change in standard errors. The first row counts all: the share of texts in which no
    term is known, and `z` the root mean square over the terms, about 1 where nothing changed.
    """
    texts = as_texts(texts)
    if clf.texts_ is None:
        raise ValueError("this model does not say how many texts it was fitted on")
    documents = clf.vocabulary_.encode(texts)
    n, m = len(texts), clf.texts_
    seen = np.bincount(documents.indices, minlength=len(clf.vocabulary_))
    new, old = seen / n, np.minimum(clf.vocabulary_.df / m, 1.0)
    pooled = (seen + clf.vocabulary_.df) / (n + m)
    error = np.sqrt(np.maximum(pooled * (1 - pooled), 1e-300) * (1 / n + 1 / m))
    z = (new - old) / error
    weight = np.abs(clf.coef_).max(axis=0)
    often = (seen + clf.vocabulary_.df >= _FEW) & (pooled < 1)
    order = np.argsort(-np.abs(new - old) * weight * (np.abs(z) > 2), kind="stable")[:most]
    mean = float(np.sqrt((z[often] ** 2).mean())) if often.any() else 0.0
    whole = {"term": "(all)", "share": float((documents.sizes == 0).mean()), "in training": 0.0}
    return [{**whole, "z": mean}] + [
        {"term": clf.vocabulary_.terms[j], "share": float(new[j]), "in training": float(old[j]),
         "z": float(z[j])}
        for j in order.tolist() if abs(z[j]) > 2
    ]  # fmt: skip
