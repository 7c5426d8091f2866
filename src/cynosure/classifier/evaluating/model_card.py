"""card(): one page about a model: its classes and the words for each; with labelled texts also the
words that lead there, accuracy, calibration, confusions, and examples with what decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...drawing.report import Picture, Report, Table
from ...drawing.style import GREY, INK, PALETTE, sheet
from ..estimator import HardmaxClassifier, Lexeme
from ..text.datasets import Dataset
from .evaluation import Evaluation, _class_numbers, evaluate

_MOST = 20  # words of a table
_LED = 200  # texts whose leaders are looked at, which takes an explanation each
_SHOWN = 240  # characters of an example
_BINS = 10


def card(clf: HardmaxClassifier, data: Dataset | None = None, *, name: str = "") -> Report:
    """The card of a fitted model, judged on `data` where that is given.

    Examples
    --------
    >>> from cynosure import HardmaxClassifier, datasets
    >>> data = datasets.synthetic(200)
    >>> clf = HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    >>> [table.title for table in card(clf).tables]
    ['The model', 'Words for negative', 'Words for positive']
    """
    lexicon: dict[str, Lexeme] = {}
    chapters: tuple[Report, ...] = ()
    if data is not None:
        some = np.linspace(0, len(data) - 1, min(_LED, len(data))).astype(int)
        found = clf.lexicon([data.texts[i] for i in some.tolist()], top=None)
        lexicon = {lexeme.term: lexeme for lexeme in found}
        chapters = (_judged(clf, data),)
    names = [str(c) for c in clf.classes_.tolist()]
    led = "" if data is None else f" Leads: in how many of {min(_LED, len(data))} of the texts."
    words = tuple(_words(clf, row, sign, label, lexicon, led) for row, sign, label in _sides(clf))
    return Report(
        f"Model card{': ' * bool(name)}{name}",
        summary=(
            f"A hardmax classifier of texts for {_listed(names)}. A text is read from its "
            "strongest terms on; those it reads gather around leaders, and their mean decides, so "
            "words with their weights are the whole of what it knows."
        ),
        params=clf.get_params(deep=False),
        tables=(_facts(clf), *words),
        figures=(_grades(clf),),
        chapters=chapters,
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]])


def _facts(clf: HardmaxClassifier) -> Table:
    prior = clf.predict_proba([""])[0]
    shares = ", ".join(f"{c} {p:.1%}" for c, p in zip(clf.classes_.tolist(), prior))
    plane, tokenizer = clf.model_.planes[0], clf.vocabulary_.tokenizer
    low, high = tokenizer.ngrams
    df = clf.vocabulary_.df
    rows = (
        ("training texts", "not recorded" if clf.texts_ is None else f"{clf.texts_:,}"),
        ("classes among them", shares),
        ("terms", f"{len(df):,}, of {low} to {high} words"),
        ("found in", f"{df.min():,} to {df.max():,} of those texts"),
        ("words behind a negator", "words of their own" if tokenizer.negation else "as any other"),
        ("layers, alpha", f"{clf.model_.layers}, {float(clf.model_.alpha):g}"),
        ("dimension, planes", f"{len(plane.anchor)}, {len(clf.model_.planes)}"),
        ("kappa", ", ".join(f"{p.kappa:.3g}" for p in clf.model_.planes)),
    )
    note = "kappa: how far the words read must outweigh the others; inf reads everything."
    return Table("The model", ("", ""), rows, note)


def _sides(clf: HardmaxClassifier) -> list[tuple[int, float, str]]:
    """(row of coef_, sign, label) of every class: two of them share a row."""
    names = [str(c) for c in clf.classes_.tolist()]
    if len(names) == 2:
        return [(0, -1.0, names[0]), (0, 1.0, names[1])]
    return [(row, 1.0, name) for row, name in enumerate(names)]


def _words(
    clf: HardmaxClassifier, row: int, sign: float, label: str, lexicon: dict[str, Lexeme], led: str
) -> Table:
    """The strongest terms of a class, the more frequent first among equals."""
    weight = sign * clf.coef_[row]
    df = clf.vocabulary_.df
    best = np.lexsort((-df, -np.round(weight / max(weight.max(), 1e-300), 6)))[:_MOST]
    best = best[weight[best] > 0]
    columns = ("term", "weight", "training texts", *(("leads",) if led else ()))
    rows = []
    for j in best.tolist():
        term = clf.vocabulary_.terms[j]
        leads = (lexicon[term].texts if term in lexicon else 0,) if led else ()
        rows.append((term, float(weight[j]), int(df[j]), *leads))
    count = clf.model_.planes[clf.model_.locate(row)[0]].count
    note = f"Weight: over the number of terms of a text + {count:g}, what it adds to the decision."
    return Table(f"Words for {label}", columns, tuple(rows), note + led)


def _grades(clf: HardmaxClassifier) -> Picture:
    """How many terms have which weight, class by class."""
    sides = _sides(clf)
    figure, axes = sheet(1, 1, width=7.0, height=3.0)
    ax = axes[0, 0]
    reach = max(float(np.abs(clf.coef_).max()), 1e-300)
    edges = np.linspace(0.0, reach, 41)
    middle = (edges[1:] + edges[:-1]) / 2
    for k, (row, sign, label) in enumerate(sides):
        weight = sign * clf.coef_[row]
        count = np.histogram(weight[weight > 0], edges)[0]
        seen = count > 0
        colour = PALETTE[k % len(PALETTE)]
        ax.plot(middle[seen], count[seen], "o-", ms=3.5, lw=1.2, color=colour, label=f"for {label}")
    ax.set(yscale="log", xlabel="weight of a term", ylabel="terms")
    ax.legend(frameon=False, fontsize=8)
    silent = int((np.abs(clf.coef_).max(axis=0) == 0).sum())
    return Picture(
        "Grades of evidence",
        f"How many terms have which weight. Few words say much; {silent:,} of "
        f"{len(clf.vocabulary_):,} say nothing and only follow.",
        figure,
    )


def _judged(clf: HardmaxClassifier, data: Dataset) -> Report:
    found = evaluate(clf, data.texts, data.labels, explained=0)
    truth = _class_numbers(data.labels, clf.classes_)
    p = clf.predict_proba(data.texts)
    guess, sure = p.argmax(axis=1), p.max(axis=1)
    return Report(
        f"On {len(data):,} labelled texts",
        summary=(
            f"Accuracy {found.accuracy:.4f} (standard error {found.standard_error:.4f}), with "
            f"{found.words[0]:.1f} words read a text on average (median {found.words[1]:g})."
        ),
        tables=(_figures(found), _confusions(clf, truth, guess), _examples(clf, data, truth, p)),
        figures=(_calibration(sure, guess == truth),),
    )


def _figures(found: Evaluation) -> Table:
    rows = (
        ("accuracy", f"{found.accuracy:.4f} ± {found.standard_error:.4f}"),
        ("calibration error", f"{found.calibration:.4f}"),
        ("log-loss", f"{found.log_loss:.4f}"),
        ("words read, mean and median", f"{found.words[0]:.1f}, {found.words[1]:g}"),
        ("leaders per text", f"{found.leaders:.2f}"),
        ("terms the layers silence", f"{found.silenced:.1%}"),
        ("accuracy with 0 layers, where all speak", f"{found.unlayered:.4f}"),
        ("texts without a known word", str(found.unknown)),
    )
    return Table("How good it is", ("", ""), rows)


def _confusions(clf: HardmaxClassifier, truth: np.ndarray, guess: np.ndarray) -> Table:
    names = [str(c) for c in clf.classes_.tolist()]
    count = np.zeros((len(names), len(names)), int)
    np.add.at(count, (truth, guess), 1)
    rows = tuple(
        (name, *row.tolist(), f"{row[i] / max(row.sum(), 1):.1%}")
        for i, (name, row) in enumerate(zip(names, count, strict=True))
    )
    columns = ("the label is", *(f"called {name}" for name in names), "right")
    return Table("What is taken for what", columns, rows)


def _calibration(sure: np.ndarray, right: np.ndarray) -> Picture:
    """Of the texts with a probability near p, how many are right: p of them, if it is honest."""
    where = np.clip((sure * _BINS).astype(int), 0, _BINS - 1)
    count = np.bincount(where, minlength=_BINS)
    seen = count > 0
    mean = np.bincount(where, sure, _BINS)[seen] / count[seen]
    share = np.bincount(where, right, _BINS)[seen] / count[seen]
    low, high = _interval(share, count[seen])
    figure, axes = sheet(1, 1, width=4.6, height=3.8)
    ax = axes[0, 0]
    least = float(min(mean.min(), low.min(), 0.5)) - 0.03
    ax.plot([least, 1], [least, 1], "--", lw=1.0, color=GREY)
    ax.vlines(mean, low, high, color=INK, lw=0.8)
    ax.plot(mean, share, "o", ms=4, color=PALETTE[0])
    ax.set(xlabel="probability of the label", ylabel="share that is right")
    return Picture(
        "Calibration",
        "Texts gathered by the probability of their label, with 95 % intervals; on the dashed "
        "line it is neither too sure nor too modest. Texts in each: "
        f"{', '.join(map(str, count[seen]))}.",
        figure,
    )


def _interval(share: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % interval of shares: within [0, 1], and of some width where all agree."""
    z2 = 1.96**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = np.sqrt(z2 * share * (1 - share) / count + (z2 / (2 * count)) ** 2) / (1 + z2 / count)
    return middle - half, middle + half


def _examples(clf: HardmaxClassifier, data: Dataset, truth: np.ndarray, p: np.ndarray) -> Table:
    """The surest that are right, the surest that are wrong, and the least sure."""
    guess, sure = p.argmax(axis=1), p.max(axis=1)
    order = np.argsort(-sure, kind="stable")
    hit = guess[order] == truth[order]
    kinds = {
        "surely right": order[hit][:3],
        "surely wrong": order[~hit][:5],
        "in doubt": order[::-1][:3],
    }
    picked = [(kind, i) for kind, rows in kinds.items() for i in rows.tolist()]
    texts = [data.texts[i] for _, i in picked]
    _, enough = clf._opened.read_with_words(texts)
    rows = tuple(
        (
            kind, str(data.labels[i]), str(clf.classes_[guess[i]]), f"{sure[i]:.3f}",
            _some(words), _short(data.texts[i]),
        )
        for (kind, i), words in zip(picked, enough, strict=True)
    )  # fmt: skip
    columns = ("", "label", "called", "probability", "the words that decided", "text")
    return Table("Examples", columns, rows)


def _some(words: Sequence[Any]) -> str:
    return ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")


def _short(text: str) -> str:
    line = " ".join(text.replace("<br />", " ").split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
