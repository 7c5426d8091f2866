"""Sentiment with placed words: accuracy against leaders per review, beside the linear ceilings.

The decoder of the model of arXiv 2407.01602 is linear in the mean token, so its accuracy says
little by itself: with every word a leader it is a bag of words. The question is what *few* leaders
and *few telling words* cost. Words are placed by a convex fit (`Placed`) with a budget of each; the
curves accuracy(leaders), for several budgets of words, are drawn below TF-IDF with logistic
regression and NB-SVM on the same words.

See: without a bound on words, ten to twenty leaders a review lose nothing against the linear
models; twenty telling words instead of all of them cost one point for words and nearly two for
pairs, forty half of that; five leaders instead of ten then cost half a point. The dimension does
not matter: the grades of the words decide. Nearly all of the mean sits on leaders (alpha = 1, 8
layers: rho^8 = 0.4 % is left), so they, with the sizes of their clusters, *are* the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import cynosure as cy

from ...classifier.evaluation import Evaluation, Rivals
from .._frame import Progress, at_most, report_of, require, silent
from ._reviews import evenly, labelled
from ._word_bars import LeaderWord, word_bars

TITLE = "Sentiment with placed words: what few leaders cost"


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


Ceilings: TypeAlias = dict[int, dict[str, float]]  # longest n-gram -> linear model -> accuracy


class Placing(NamedTuple):
    """One classifier of the grid and how it did on the test part."""

    order: int
    dim: int
    words: float
    budget: float
    test: Evaluation

    @property
    def name(self) -> str:
        return f"{_terms(self.order)}, d = {self.dim}, {self.told}"

    @property
    def told(self) -> str:
        return f"{self.words:g} telling words" if self.words else "any number of telling words"


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Fit the grid of budgets and the rivals, then compare."""
    say = progress or silent
    require(all((p.ngrams, p.dims, p.budgets, p.words)), "ngrams, dims, budgets and words", p)
    train, test = labelled(p.data, p.reviews, p.seed)
    grid = list(product(p.ngrams, p.dims, p.words, p.budgets))
    placings: list[Placing] = []
    rivals: Ceilings = {}
    readable: cy.HardmaxClassifier | None = None  # about ten leaders, the fewest telling words
    for done, (order, dim, words, budget) in enumerate(grid):
        share = 0.9 * done / len(grid)
        if order not in rivals:
            say(share, f"linear models, {_terms(order)}")
            said = Rivals.fit(train.texts, train.labels, (1, order)).predict(test.texts)
            rivals[order] = {k: float((x == test.labels).mean()) for k, x in said.items()}
        say(share, f"{_terms(order)}, d = {dim}, {words:g} words, {budget:g} leaders")
        clf = cy.HardmaxClassifier(
            dim, (1, order), budget, words=words or None, random_state=p.seed
        ).fit(train.texts, train.labels)
        how = cy.evaluate(clf, test.texts, test.labels, explained=0)
        placings.append(Placing(order, dim, words, budget, how))
        if readable is None or (abs(budget - 10) < 3 and words == p.words[0]):
            readable = clf
    assert readable is not None
    say(0.92, "lexicon")
    lexicon = readable.lexicon(test.take(evenly(len(test), p.explained)).texts, top=20)
    columns = {"word": "term", "reviews it leads in": "texts", "score": "score"}
    columns["mean share of the review"] = "share"
    bars = word_bars([LeaderWord(x.term, x.texts, x.score) for x in lexicon])
    return report_of(
        __name__,
        p,
        _summary(placings, rivals, len(test)),
        tables=(
            _table(placings),
            _ceilings(rivals, len(test)),
            cy.Table.of("Lexicon", lexicon, columns),
        ),
        checks={"all budgets": _checks(placings)},
        figures=(
            cy.Picture("Accuracy against leaders", _CURVE, _curve(placings, rivals)),
            cy.Picture("The words that lead", _LEXICON, bars),
        ),
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


def _table(placings: list[Placing]) -> cy.Table:
    note = "The budget holds on the training reviews; leaders per review are counted at test."
    columns: dict[str, Any] = {
        "terms": lambda x: _terms(x.order),
        "d": "dim",
        "telling words": lambda x: x.words or "any",
        "budget": "budget",
        "leaders per review": "test.leaders",
        "accuracy": "test.accuracy",
        "standard error": "test.standard_error",
        "weight on leaders": "test.on_leaders",
        "alpha": "test.alpha",
        "calibration error": "test.calibration",
        "vocabulary": "test.terms",
    }
    return cy.Table.of("Placed words", placings, columns, note)


def _ceilings(rivals: Ceilings, n: int) -> cy.Table:
    rows = tuple(
        (_terms(order), name, a, float(np.sqrt(a * (1 - a) / n)))
        for order, ceiling in rivals.items()
        for name, a in ceiling.items()
    )
    note = "Regularisation chosen on held-out blocks of the training part."
    columns = ("terms", "model", "accuracy", "standard error")
    return cy.Table("Linear models on the same terms", columns, rows, note)


def _checks(placings: list[Placing]) -> tuple[cy.Check, ...]:
    elsewhere = max(placings, key=lambda x: 1 - x.test.on_leaders)
    over = max(placings, key=lambda x: x.test.leaders / x.budget)
    return (
        at_most(
            "on leaders",
            "docs/mathematics.md C5",
            "at most 1 % of the mean token is not on leaders",
            1 - elsewhere.test.on_leaders,
            0.01,
            model=elsewhere.name,
        ),
        at_most(
            "budget",
            "the dial of Placed",
            "test reviews have at most 1.1 times the leaders of the budget",
            over.test.leaders / over.budget,
            1.1,
            model=over.name,
            budget=over.budget,
        ),
    )


def _summary(placings: list[Placing], rivals: Ceilings, n: int) -> str:
    out = []
    for order, ceiling in rivals.items():
        mine = [x for x in placings if x.order == order]
        small = min(mine, key=lambda x: x.test.leaders)
        few = min((x.words for x in mine if x.words), default=0.0)
        sparse = max((x for x in mine if x.words == few), key=lambda x: x.test.accuracy)
        top, best = max(mine, key=lambda x: x.test.accuracy), max(ceiling.values())
        near = [x for x in mine if best - x.test.accuracy <= 2 * x.test.standard_error]
        enough = min((x.test.leaders for x in near), default=None)
        reached = f"{enough:.1f} leaders per review are" if enough else "no budget is"
        out.append(
            f"{_terms(order).capitalize()}: the better linear model reaches {best:.4f}; {reached} "
            f"within two standard errors of it; the best placing has {top.test.accuracy:.4f} at "
            f"{top.test.leaders:.1f} leaders, {small.test.leaders:.1f} leaders give "
            f"{small.test.accuracy:.4f}; with {sparse.told} it is {sparse.test.accuracy:.4f} at "
            "best."
        )
    error = max(x.test.standard_error for x in placings)
    return "\n\n".join([*out, f"{n} test reviews: a standard error is {error:.4f}."])


def _curve(placings: list[Placing], rivals: Ceilings) -> Any:
    figure, axes = cy.plot.sheet(1, len(rivals), 5.0, 3.6)
    lines = dict.fromkeys((x.dim, x.words) for x in placings)
    for ax, (order, ceiling) in zip(axes[0], rivals.items()):
        right = max(x.test.leaders for x in placings if x.order == order)
        looks = zip(("--", ":"), (cy.plot.INK, cy.plot.GREY))
        for (name, a), (style, colour) in zip(ceiling.items(), looks):
            ax.axhline(a, color=colour, ls=style, lw=1.2, label=name)
        for colour, (dim, words) in zip(cy.plot.PALETTE, lines):
            line = [x for x in placings if (x.order, x.dim, x.words) == (order, dim, words)]
            line.sort(key=lambda x: x.test.leaders)
            tests = [(x.test.leaders, x.test.accuracy, x.test.standard_error) for x in line]
            look = {"fmt": "o-", "color": colour, "ms": 4, "lw": 1.4, "capsize": 2}
            ax.errorbar(*zip(*tests), **look, label=f"d = {dim}, {line[0].told}")
        ax.set(title=_terms(order), xlabel="leaders per review", xlim=(0, 1.05 * right))
    axes[0, 0].set_ylabel("test accuracy")
    cy.plot.legend_below(axes[0, 0], 2)
    return figure
