"""Sentiment with placed words: accuracy against leaders per review, beside the linear ceilings.

The decoder of the model of arXiv 2407.01602 is linear in the mean token, so its accuracy says
little by itself: with every word a leader it is a bag of words. The question is what *few* leaders
and *few telling words* cost. Words are placed by a convex fit (`Placed`) with a budget of each; the
curves accuracy(leaders), for several budgets of words, are drawn below TF-IDF with logistic
regression and NB-SVM on the same words.

Two controls stand beside every placing. With the same weights and 0 layers of attention almost all
verdicts are the same: a placed word has the grade of its leader, so the layers change where a
review is *read* and not how it is *decided*. And the linear models are the ceiling. Budgets are
chosen on held-out blocks of the training part; the test part is read once for each placing and
nothing is chosen on it.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.classifier.evaluating.evaluation import Evaluation, Rivals
from cynosure.classifier.text.datasets import Dataset, blocks

from ._null_models import Placed0, above, below, beside_no_layers, blockwise, said
from ._reviews import labelled

TITLE = "Sentiment with placed words: what few leaders cost"


@dataclass(frozen=True)
class Params:
    """`data`: aclImdb folder or archive, or a table, "" for made-up reviews; `reviews` of each part
    (0: all); n-grams up to each of `ngrams`; budgets of leaders and of telling words per review (0:
    no bound). The placing chosen is fit again with `seeds` seeds."""

    data: str = ""
    reviews: int = 0
    ngrams: tuple[int, ...] = (1, 2)
    dims: tuple[int, ...] = (2,)
    budgets: tuple[float, ...] = (3.0, 5.0, 10.0, 20.0)
    words: tuple[float, ...] = (10.0, 20.0, 40.0, 0.0)
    seeds: int = 3
    seed: int = 0


QUICK = Params(reviews=240, ngrams=(1,), budgets=(3.0, 8.0), words=(8.0, 0.0), seeds=2)


Ceilings: TypeAlias = dict[int, dict[str, st.Cell]]  # longest n-gram -> linear model


class Placing(NamedTuple):
    """One classifier of the grid and how it did on the test part."""

    order: int
    dim: int
    words: float
    budget: float
    held: float
    test: Evaluation
    verdicts: Placed0
    truth: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """Which test reviews are decided rightly."""
        return (self.verdicts.layers == self.truth).astype(float)

    @property
    def bare(self) -> float:
        """Accuracy of the same weights with 0 layers."""
        return float((self.verdicts.none == self.truth).mean())

    @property
    def refit(self) -> float:
        """Accuracy with 0 layers when the decoder is fit anew."""
        return float((self.verdicts.refit == self.truth).mean())

    @property
    def name(self) -> str:
        return f"{_terms(self.order)}, d = {self.dim}, {self.told}"

    @property
    def told(self) -> str:
        return f"{self.words:g} telling words" if self.words else "any number of telling words"


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Fit the grid of budgets and the rivals, choose on held-out blocks, then compare."""
    say = progress or st.silent
    sensible = all((p.ngrams, p.dims, p.budgets, p.words)) and p.seeds >= 1
    st.require(sensible, "ngrams, dims, budgets and words, seeds >= 1", p)
    every, test = labelled(p.data, p.reviews, p.seed)
    out = blocks(every.labels, 0.1)
    train, held = (every.take(np.flatnonzero(rows)) for rows in (~out, out))
    grid = list(product(p.ngrams, p.dims, p.words, p.budgets))
    placings: list[Placing] = []
    rivals: Ceilings = {}
    for done, (order, dim, words, budget) in enumerate(grid):
        share = 0.8 * done / len(grid)
        if order not in rivals:
            say(share, f"linear models, {_terms(order)}")
            rivals[order] = _rivals(train, held, test, order)
        say(share, f"{_terms(order)}, d = {dim}, {words:g} words, {budget:g} leaders")
        clf = _fitted(p, train, order, dim, words, budget, p.seed)
        placings.append(_placing(clf, (order, dim, words, budget), train, held, test))
    say(0.82, "seeds")
    seeds = {order: _over_seeds(p, train, test, _chosen(placings, order)) for order in rivals}
    return st.report_of(
        p,
        _summary(placings, rivals, len(test)),
        controls=_controls(placings, rivals, seeds),
        tables=[_table(placings)],
        checks={"all budgets": _checks(placings)},
        figures=[st.Picture.of("Accuracy against leaders", _curve, placings, rivals)],
    )


def _fitted(
    p: Params, train: Dataset, order: int, dim: int, words: float, budget: float, seed: int
) -> cy.HardmaxClassifier:
    return cy.HardmaxClassifier(
        dim, (1, order), budget, words=words or None, random_state=seed
    ).fit(train.texts, train.labels)


def _placing(
    clf: cy.HardmaxClassifier,
    cell: tuple[int, int, float, float],
    train: Dataset,
    held: Dataset,
    test: Dataset,
) -> Placing:
    return Placing(
        *cell,
        held=float(clf.score(held.texts, held.labels)),
        test=cy.evaluate(clf, test.texts, test.labels, explained=0),
        verdicts=beside_no_layers(clf, train.texts, train.labels, test.texts),
        truth=test.labels == clf.classes_[1],
    )


def _rivals(train: Dataset, held: Dataset, test: Dataset, order: int) -> dict[str, st.Cell]:
    """Linear models: accuracy on the held-out blocks, and which test reviews they have right."""
    fit = Rivals.fit(train.texts, train.labels, (1, order))
    at, on = fit.predict(held.texts), fit.predict(test.texts)
    found = {}
    for name in on:
        right = (on[name] == test.labels) * 1.0
        scores = {"held": float((at[name] == held.labels).mean()), "accuracy": float(right.mean())}
        found[name] = st.Cell(right=right, **scores)
    return found


def _over_seeds(p: Params, train: Dataset, test: Dataset, best: Placing) -> list[float]:
    """Test accuracies of the placing chosen, fit again with other seeds."""
    cell = (best.order, best.dim, best.words, best.budget)
    return [
        float(_fitted(p, train, *cell, p.seed + k).score(test.texts, test.labels))
        for k in range(p.seeds)
    ]


def _chosen(placings: list[Placing], order: int) -> Placing:
    """The best on the held-out blocks; of equals the one with fewer leaders."""
    mine = [x for x in placings if x.order == order]
    return max(mine, key=lambda x: (x.held, -x.budget))


def _controls(
    placings: list[Placing], rivals: Ceilings, seeds: dict[int, list[float]]
) -> list[st.Comparison]:
    same = sum(x.verdicts.same for x in placings)
    total = sum(len(x.truth) for x in placings)
    moved = [x for x in placings if x.verdicts.same < len(x.truth)]
    refit = max(abs(x.refit - x.test.accuracy) for x in placings)
    out = [
        st.Comparison(
            "The layers of attention decide.",
            "the same weights with 0 layers, for every placing; with the decoder fit anew as well",
            f"the same verdict in all but {total - same} of {total} cases, in "
            f"{len(placings) - len(moved)} of {len(placings)} placings in all of them; with a "
            f"decoder fit anew for 0 layers accuracy differs by at most {refit:.4f}",
            any(above(x.right - (x.verdicts.none == x.truth)) for x in moved),
        )
    ]
    for order, ceiling in rivals.items():
        best, (name, rival) = _chosen(placings, order), _best(ceiling)
        gap = best.right - rival.right
        spread = seeds[order]
        out.append(
            st.Comparison(
                f"{_terms(order).capitalize()}: the placing is as accurate as the linear models.",
                "the better linear model; both chosen on held-out blocks, other seeds",
                f"{best.budget:g} leaders, {best.told}: {best.test.accuracy:.4f}, {name} "
                f"{rival.accuracy:.4f}, difference {said(gap)} by blocks of {len(gap)} reviews; "
                f"{len(spread)} seeds: {min(spread):.4f} to {max(spread):.4f}",
                not below(gap),
            )
        )
        for what, key in (("leaders", "budget"), ("telling words", "words")):
            out += _cost(placings, order, what, key)
    return out


def _cost(placings: list[Placing], order: int, what: str, key: str) -> list[st.Comparison]:
    """The smallest budget of one kind beside the largest, the others being as they are."""
    mine = [x for x in placings if x.order == order]
    sizes = [getattr(x, key) or np.inf for x in mine]
    least, most = min(sizes), max(sizes)
    if least == most:
        return []
    few, many = (
        np.mean([x.right for x, size in zip(mine, sizes) if size == edge], axis=0)
        for edge in (least, most)
    )
    named = "no bound" if most == np.inf else f"{most:g}"
    return [
        st.Comparison(
            f"{_terms(order).capitalize()}: few {what} cost accuracy.",
            f"budget {least:g} beside {named}, mean over the other budgets",
            f"difference {said(few - many)}",
            below(few - many),
        )
    ]


def _best(ceiling: dict[str, st.Cell]) -> tuple[str, st.Cell]:
    """The linear model that is better on the held-out blocks."""
    return max(ceiling.items(), key=lambda item: item[1].held)


def _terms(order: int) -> str:
    return {1: "words", 2: "words and pairs"}.get(order, f"n-grams to {order}")


def _table(placings: list[Placing]) -> st.Table:
    note = (
        "The budget holds on the training reviews; leaders per review are counted at test. 0 "
        "layers: the same weights without attention. Intervals by blocks of consecutive reviews."
    )
    columns: dict[str, Any] = {
        **{"terms": lambda x: _terms(x.order), "d": "dim"},
        **{"telling words": lambda x: x.words or "any", "budget": "budget"},
        **{"leaders per review": "test.leaders", "held out": "held", "accuracy": "test.accuracy"},
        "95 % from": lambda x: blockwise(x.right)[0],
        "to": lambda x: blockwise(x.right)[1],
        "0 layers": "bare",
        "same verdicts with 0 layers": lambda x: x.verdicts.same / len(x.truth),
        **{"0 layers, decoder fit anew": "refit", "weight on leaders": "test.on_leaders"},
        **{"alpha": "test.alpha", "calibration error": "test.calibration"},
        "vocabulary": "test.terms",
    }
    return st.Table.of("Placed words", placings, columns, note)


def _checks(placings: list[Placing]) -> tuple[cy.theorems.Check, ...]:
    elsewhere = max(placings, key=lambda x: 1 - x.test.on_leaders)
    over = max(placings, key=lambda x: x.test.leaders / x.budget)
    return (
        st.at_most(
            "on leaders",
            "docs/mathematics.md C5",
            "at most 1 % of the mean token is not on leaders",
            1 - elsewhere.test.on_leaders,
            0.01,
            model=elsewhere.name,
        ),
        st.at_most(
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
        best, (name, rival) = _chosen(placings, order), _best(ceiling)
        small = min(mine, key=lambda x: x.test.leaders)
        few = min((x.words for x in mine if x.words), default=0.0)
        sparse = max((x for x in mine if x.words == few), key=lambda x: x.held)
        out.append(
            f"{_terms(order).capitalize()}: chosen on held-out blocks, {best.test.leaders:.1f} "
            f"leaders with {best.told} reach {best.test.accuracy:.4f}, {name} "
            f"{rival.accuracy:.4f}: a difference of {said(best.right - rival.right)}. The fewest "
            f"leaders, {small.test.leaders:.1f}, give {small.test.accuracy:.4f}; {sparse.told} "
            f"{sparse.test.accuracy:.4f}."
        )
    same, total = sum(x.verdicts.same for x in placings), sum(len(x.truth) for x in placings)
    but = f"all but {total - same}" if same < total else "all"
    return "\n\n".join(
        [
            *out,
            f"With the same weights and 0 layers of attention the verdict is the same in {but} of "
            f"{total} cases ({len(placings)} placings, {n} test reviews)"
            + (": the accuracy is that of the placement." if same > 0.99 * total else "."),
        ]
    )


def _curve(placings: list[Placing], rivals: Ceilings) -> Any:
    """Test accuracy against the mean number of leaders per review, with a 95 % interval by blocks
    of reviews; crosses: the same weights with 0 layers of attention. The horizontal lines are the
    linear models on the same n-grams.
    """
    figure, axes = cy.plot.sheet(1, len(rivals), 5.0, 3.6)
    ends = lambda x: blockwise(x.right)  # noqa: E731
    for ax, (order, ceiling) in zip(axes[0], rivals.items()):
        mine = sorted((x for x in placings if x.order == order), key=lambda x: x.test.leaders)
        looks = zip(("--", ":"), (cy.plot.INK, cy.plot.GREY))
        for (name, x), (style, colour) in zip(ceiling.items(), looks):
            ax.axhline(x.accuracy, color=colour, ls=style, lw=1.2, label=name)
        kind = lambda x: f"d = {x.dim}, {x.told}"  # noqa: E731
        st.curves(ax, mine, "test.leaders", "test.accuracy", kind, ends=ends)
        crosses: dict[str, Any] = {"color": cy.plot.INK, "ms": 5, "zorder": 4, "label": "0 layers"}
        ax.plot([x.test.leaders for x in mine], [x.bare for x in mine], "x", **crosses)
        ax.set(title=_terms(order), xlabel="leaders per review")
        ax.set_xlim(0, 1.05 * max(x.test.leaders for x in mine))
    axes[0, 0].set_ylabel("test accuracy")
    cy.plot.legend_below(axes[0, 0], 2)
    return figure
