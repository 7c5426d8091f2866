"""Sentiment with placed words: accuracy against leaders per review, beside the linear ceilings.

The decoder of the model of arXiv 2407.01602 is linear in the mean token, so its accuracy says
little by itself: with every word a leader it is a bag of words. The question is what *few* leaders
and *few telling words* cost. Words are placed by a convex fit (`Placed`) with a budget of each; the
curves accuracy(leaders), for several budgets of words, are drawn below TF-IDF with logistic
regression and NB-SVM on the same words.

See: without a bound on words, ten to twenty leaders a review lose nothing against the linear
models. Twenty telling words instead of all of them cost one point for words and nearly two for
pairs, forty half of that; five leaders instead of ten then cost half a point. The dimension does
not matter: the grades of the words, not their directions, decide. Nearly all of the mean sits on
leaders (alpha = 1, 8 layers: rho^8 = 0.4 % is left), so the leaders with the sizes of their
clusters *are* the decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple, final

import numpy as np

from ...classifier.datasets import Dataset
from ...classifier.estimator import HardmaxClassifier, Lexeme
from ...classifier.evaluation import Evaluation, Rivals, evaluate
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...theorems import Check
from .._frame import Progress, at_most
from ._sentiment import evenly, labelled

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Sentiment with placed words: what few leaders cost"


@final
@dataclass(frozen=True)
class Params:
    """`data`: aclImdb folder or archive, or a table, "" for made-up reviews; `reviews` of each part
    (0: all); n-grams up to each of `ngrams`; budgets of leaders and of telling words per review (0:
    no bound)."""

    data: str = ""
    reviews: int = 0
    ngrams: tuple[int, ...] = (1, 2)
    dims: tuple[int, ...] = (2,)
    budgets: tuple[float, ...] = (3.0, 5.0, 10.0, 20.0)
    words: tuple[float, ...] = (10.0, 20.0, 40.0, 0.0)
    explained: int = 300
    seed: int = 0


QUICK = Params(reviews=240, ngrams=(1,), budgets=(3.0, 5.0, 8.0), words=(8.0, 0.0), explained=40)


class Placing(NamedTuple):
    """One classifier of the grid and how it did."""

    order: int
    dim: int
    words: float
    budget: float
    found: Evaluation

    @property
    def name(self) -> str:
        return f"{_terms(self.order)}, d = {self.dim}, {self.told}"

    @property
    def told(self) -> str:
        return f"{self.words:g} telling words" if self.words else "any number of telling words"


def run(p: Params, progress: Progress | None = None) -> Report:
    """Fit the grid of budgets and the rivals, then compare."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if not p.ngrams or not p.dims or not p.budgets or not p.words:
        raise ValueError("sentiment_placed: ngrams, dims, budgets and words need a value each")
    train, test = labelled(p.data, p.reviews, p.seed)
    total = len(p.ngrams) * (1 + len(p.dims) * len(p.budgets) * len(p.words))
    done = 0
    placings: list[Placing] = []
    rivals: dict[int, dict[str, float]] = {}
    last: HardmaxClassifier | None = None
    for order in p.ngrams:
        say(0.9 * done / total, f"linear models, {_terms(order)}")
        fitted = Rivals.fit(train.texts, train.labels, (1, order))
        rivals[order] = {
            name: float((labels == test.labels).mean())
            for name, labels in fitted.predict(test.texts).items()
        }
        done += 1
        for clf, placing in _grid(p, order, train, test):
            done += 1
            say(0.9 * done / total, f"{placing.name}, {placing.budget:g} leaders")
            placings.append(placing)
            if last is None or (abs(placing.budget - 10) < 3 and placing.words == p.words[0]):
                last = clf
    assert last is not None
    say(0.92, "lexicon")
    lexicon = last.lexicon(test.take(evenly(len(test), p.explained)).texts, top=20)
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(placings, rivals, len(test)),
        asdict(p),
        (_table(placings), _ceilings(rivals, len(test)), _lexicon_table(lexicon)),
        {"all budgets": _checks(placings)},
        (
            Picture("Accuracy against leaders", _CURVE, _curve(placings, rivals)),
            Picture("The words that lead", _LEXICON, _bars(lexicon)),
        ),
        command="cynosure run sentiment_placed",
    )


_CURVE = (
    "Test accuracy against the mean number of leaders per review, with a standard error; the "
    "horizontal lines are the linear models on the same n-grams."
)
_LEXICON = (
    "How often a word leads a cluster in the reviews explained; blue speaks for the second class, "
    "orange for the first, by its score <v, z>."
)


def _terms(order: int) -> str:
    return {1: "words", 2: "words and pairs"}.get(order, f"n-grams to {order}")


def _grid(
    p: Params, order: int, train: Dataset, test: Dataset
) -> Iterator[tuple[HardmaxClassifier, Placing]]:
    for dim, words, budget in product(p.dims, p.words, p.budgets):
        clf = HardmaxClassifier(dim, (1, order), budget, words=words or None, random_state=p.seed)
        clf.fit(train.texts, train.labels)
        found = evaluate(clf, test.texts, test.labels, explained=0)
        yield clf, Placing(order, dim, words, budget, found)


def _table(placings: list[Placing]) -> Table:
    rows = tuple(
        (
            _terms(x.order), x.dim, x.words or "any", x.budget, x.found.leaders, x.found.accuracy,
            x.found.standard_error, x.found.on_leaders, x.found.alpha, x.found.calibration,
            x.found.terms,
        )
        for x in placings
    )  # fmt: skip
    columns = (
        "terms", "d", "telling words", "budget", "leaders per review", "accuracy", "standard error",
        "weight on leaders", "alpha", "calibration error", "vocabulary",
    )  # fmt: skip
    note = "The budget is kept on the training reviews; leaders per review are counted at test."
    return Table("Placed words", columns, rows, note)


def _ceilings(rivals: dict[int, dict[str, float]], n: int) -> Table:
    rows = tuple(
        (_terms(order), name, a, float(np.sqrt(a * (1 - a) / n)))
        for order, found in rivals.items()
        for name, a in found.items()
    )
    note = "Regularisation chosen on held-out blocks of the training part."
    columns = ("terms", "model", "accuracy", "standard error")
    return Table("Linear models on the same terms", columns, rows, note)


def _lexicon_table(lexicon: list[Lexeme]) -> Table:
    rows = tuple((x.term, x.texts, x.score, x.share) for x in lexicon)
    columns = ("word", "reviews it leads in", "score", "mean share of the review")
    return Table("Lexicon", columns, rows)


def _checks(placings: list[Placing]) -> tuple[Check, ...]:
    elsewhere = max(placings, key=lambda x: 1 - x.found.on_leaders)
    over = max(placings, key=lambda x: x.found.leaders / x.budget)
    return (
        at_most(
            "on leaders",
            "docs/mathematics.md C5",
            "at most 1 % of the mean token is not on leaders",
            1 - elsewhere.found.on_leaders,
            0.01,
            model=elsewhere.name,
        ),
        at_most(
            "budget",
            "the dial of Placed",
            "test reviews have at most 1.1 times the leaders of the budget",
            over.found.leaders / over.budget,
            1.1,
            model=over.name,
            budget=over.budget,
        ),
    )


def _summary(placings: list[Placing], rivals: dict[int, dict[str, float]], n: int) -> str:
    out = []
    for order, ceiling in rivals.items():
        mine = [x for x in placings if x.order == order]
        few = min((x.words for x in mine if x.words), default=0.0)
        sparse = max((x for x in mine if x.words == few), key=lambda x: x.found.accuracy)
        best = max(ceiling.values())
        small = min(mine, key=lambda x: x.found.leaders)
        top = max(mine, key=lambda x: x.found.accuracy)
        near = [x for x in mine if best - x.found.accuracy <= 2 * x.found.standard_error]
        enough = min(near, key=lambda x: x.found.leaders, default=None)
        reached = (
            f"{enough.found.leaders:.1f} leaders per review are within two standard errors of it"
            if enough
            else "no budget comes within two standard errors of it"
        )
        out.append(
            f"{_terms(order).capitalize()}: the better linear model reaches {best:.4f}; {reached}; "
            f"the best placing has {top.found.accuracy:.4f} at {top.found.leaders:.1f} leaders, "
            f"{small.found.leaders:.1f} leaders give {small.found.accuracy:.4f}; with "
            f"{sparse.told} it is {sparse.found.accuracy:.4f} at best."
        )
    error = max(x.found.standard_error for x in placings)
    out.append(f"{n} test reviews: a standard error is {error:.4f}.")
    return "\n\n".join(out)


def _curve(placings: list[Placing], rivals: dict[int, dict[str, float]]) -> Any:
    from ...drawing.plot import GREY, INK, PALETTE

    figure, axes = sheet(1, len(rivals), 5.0, 3.6)
    for ax, (order, ceiling) in zip(axes[0], rivals.items()):
        right = max(x.found.leaders for x in placings if x.order == order)
        for (name, a), style, colour in zip(ceiling.items(), ("--", ":"), (INK, GREY)):
            ax.axhline(a, color=colour, ls=style, lw=1.2, label=name)
        lines = dict.fromkeys((x.dim, x.words) for x in placings)
        for colour, (dim, words) in zip(PALETTE, lines):
            line = sorted(
                (x for x in placings if (x.order, x.dim, x.words) == (order, dim, words)),
                key=lambda x: x.found.leaders,
            )
            ax.errorbar(
                [x.found.leaders for x in line], [x.found.accuracy for x in line],
                [x.found.standard_error for x in line], fmt="o-", color=colour, ms=4, lw=1.4,
                capsize=2, label=f"d = {dim}, {line[0].told}",
            )  # fmt: skip
        ax.set(title=_terms(order), xlabel="leaders per review", xlim=(0, 1.05 * right))
    axes[0, 0].set_ylabel("test accuracy")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3,
                  frameon=False, fontsize="small")  # fmt: skip
    return figure


def _bars(lexicon: list[Lexeme]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 1, 7.0, 3.2)
    ax = axes[0, 0]
    colours = [PALETTE[0] if x.score > 0 else PALETTE[1] for x in lexicon]
    ax.bar(range(len(lexicon)), [x.texts for x in lexicon], color=colours)
    ax.set_xticks(range(len(lexicon)), [x.term for x in lexicon], rotation=60, ha="right")
    ax.set_ylabel("reviews it leads in")
    return figure
