"""Which words, once deleted, change the decision? Leaders, clusters, gradient, LIME and SHAP.

An explanation ranks the words of a review. *Comprehensiveness*: delete its first k words, send the
rest through the layers again, and see how far the probability of the predicted label falls and how
often the prediction flips (more is better). *Sufficiency*: keep only the first k (less is better).
The classifier is a `HardmaxClassifier` with placed words, the model of arXiv 2407.01602; every
method explains that same model.

See: leaders alone are not faithful, since their followers elect new ones, and the gradient, which
sees followers only through the rest rho^8 of their own place, lags behind; a leader *with its
cluster* is as good as any choice of that many words, which here is the order by own score <v, E>.
LIME and SHAP stay a little below it at hundreds of evaluations per review, and change with the
seed. They are the published packages where these are installed (pip install "cynosure[compare]"),
and otherwise small samplers of our own, named so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...classifier.deletions import Faithfulness
from .._frame import Progress, at_most, report_of, silent
from ._rankings import (
    CLUSTERS,
    GRADIENT,
    LEADERS,
    OWN,
    RANDOM,
    SIZE,
    Ranked,
    probabilities,
    ranked_review,
)
from ._reviews import evenly, labelled

TITLE = "Faithful explanations: what flips when words are deleted"


@dataclass(frozen=True)
class Params:
    """`data`: reviews, "" for made-up ones; `reviews` of each part (0: all) to fit and to choose
    from; `budget` of telling words per review (0: no bound); `explained` test reviews; `words`
    deleted or left; `samples` evaluations for LIME."""

    data: str = ""
    reviews: int = 0
    ngrams: int = 1
    leaders: float = 10.0
    budget: float = 20.0
    explained: int = 300
    words: tuple[int, ...] = (1, 2, 3, 5, 8, 10, 15, 20, 30)
    samples: int = 500
    seed: int = 0


QUICK = Params(reviews=240, explained=24, leaders=6.0, words=(1, 2, 3, 5), samples=60)


class Curve(NamedTuple):
    """Means over reviews: (flips, fall of the probability) at each number of words."""

    method: str
    deleted: np.ndarray
    left: np.ndarray  # when only those words are left
    matched: float  # flips when as many words as the winning clusters have are deleted
    overlap: float
    evaluations: float


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Fit, explain by every method, delete and keep."""
    say = progress or silent
    say(0.0, "fit")
    train, test = labelled(p.data, p.reviews, p.seed)
    clf = cy.HardmaxClassifier(
        2, (1, p.ngrams), p.leaders, words=p.budget or None, random_state=p.seed
    ).fit(train.texts, train.labels)
    texts = test.take(evenly(len(test), p.explained)).texts
    reviews = []
    for i, text in enumerate(texts):
        say(0.1 + 0.6 * i / len(texts), f"review {i + 1} of {len(texts)}")
        ex = clf.explain(text)
        if len(ex.trajectory.words or ()) > 1:  # more than the anchor
            reviews.append(ranked_review(clf, ex, p.samples, np.random.default_rng([p.seed, i])))
    if not reviews:
        raise ValueError("data: no test review has a known word")
    say(0.7, "deletions")
    curves = [_curve(p, clf, reviews, method) for method in reviews[0].ranking]
    say(0.9, "clusters")
    whole = cy.faithfulness(clf, texts, seed=p.seed)
    accuracy = float(clf.score(test.texts, test.labels))
    return report_of(
        __name__,
        p,
        _summary(p, curves, reviews, whole, accuracy),
        tables=(_table(p, curves, reviews), _whole_table(whole)),
        checks={"explained reviews": [_identity(clf, texts)]},
        figures=(
            cy.Picture(
                "Deleting the words an explanation names", _DELETED, _draw(p, curves, "deleted")
            ),
            cy.Picture("Keeping only those words", _LEFT, _draw(p, curves, "left")),
        ),
    )


# --- deletions ----------------------------------------------------------------------------------


def _curve(p: Params, clf: cy.HardmaxClassifier, reviews: list[Ranked], method: str) -> Curve:
    every, label = np.arange(len(reviews)), np.array([r.label for r in reviews])
    before = probabilities(clf, [r.terms for r in reviews])[every, label]
    named = [r.ranking[method] for r in reviews]

    def after(rests: list[np.ndarray]) -> tuple[float, float]:
        """(flips, mean fall of the probability) when these terms are left of the reviews."""
        now = probabilities(clf, rests)
        flips = now.argmax(axis=1) != label
        return float(flips.mean()), float((before - now[every, label]).mean())

    def without(sizes: Sequence[int]) -> tuple[float, float]:
        return after([np.delete(r.terms, j[:k]) for r, j, k in zip(reviews, named, sizes)])

    return Curve(
        method,
        deleted=np.array([without([k] * len(reviews)) for k in p.words]),
        left=np.array([after([r.terms[j[:k]] for r, j in zip(reviews, named)]) for k in p.words]),
        matched=without([r.winning for r in reviews])[0],
        overlap=float(np.mean([r.overlap[method] for r in reviews])),
        evaluations=float(np.mean([r.evaluations[method] for r in reviews])),
    )


def _identity(clf: cy.HardmaxClassifier, texts: tuple[str, ...]) -> cy.Check:
    """The contributions of an explanation add up to the decision, twice over."""
    worst = 0.0
    for text in texts[:50]:
        ex = clf.explain(text)
        if ex.leaders:
            parts = ex.intercept + sum(x.contribution for x in ex.leaders)
            gradient = ex.intercept + float(ex.gradient_times_token().sum())
            apart = (ex.decision - parts, ex.decision - gradient)
            worst = max(worst, *(abs(x) / max(1.0, abs(ex.decision)) for x in apart))
    return at_most(
        "exact",
        "docs/mathematics.md C5",
        "contributions of the leaders, and gradient times token, each add up to the decision",
        worst,
        1e-9,
    )


# --- tables and figures -------------------------------------------------------------------------


def _at(p: Params) -> int:
    """Position in p.words of the number of words quoted: 10, or the largest below."""
    return int(np.argmax(np.where(np.array(p.words) <= 10, p.words, 0)))


def _table(p: Params, curves: list[Curve], reviews: list[Ranked]) -> cy.Table:
    k = _at(p)
    n = p.words[k]
    note = (
        f"{len(reviews)} reviews of {np.mean([len(r.terms) for r in reviews]):.0f} distinct terms; "
        f"the winning clusters have {np.mean([r.winning for r in reviews]):.1f} words. Overlap: "
        "Jaccard index of the first ten words under two seeds. A ranking may end early: leaders "
        "are few."
    )
    columns: dict[str, Any] = {
        "words chosen by": "method",
        f"flips, {n} deleted": lambda c: c.deleted[k, 0],
        f"fall of p, {n} deleted": lambda c: c.deleted[k, 1],
        "flips, as many as winning clusters have": "matched",
        f"flips, only {n} left": lambda c: c.left[k, 0],
        f"fall of p, only {n} left": lambda c: c.left[k, 1],
        "overlap of two seeds": "overlap",
        "model evaluations": "evaluations",
    }
    return cy.Table.of("Comprehensiveness and sufficiency", curves, columns, note)


def _whole_table(f: Faithfulness) -> cy.Table:
    note = (
        f"Words of the winning clusters struck out one after the other, strongest leader first, "
        f"flip {f.flipped_within:.1%} of the predictions within {f.most_words} words; that many "
        f"words chosen to flip them reach {f.best_within:.1%}."
    )
    columns: dict[str, Any] = {
        "deleted": "name",
        "terms": "terms",
        "flips": "flipped",
        "fall of the probability": "drop",
        "words": "words",
        "flips, words struck out": "struck",
    }
    return cy.Table.of("Whole clusters", f.deletions, columns, note)


def _summary(
    p: Params, curves: list[Curve], reviews: list[Ranked], whole: Faithfulness, accuracy: float
) -> str:
    k = _at(p)
    flips = {c.method: f"{c.deleted[k, 0]:.1%}" for c in curves}
    matched = {c.method: f"{c.matched:.1%}" for c in curves}
    rivals = "; ".join(
        f"{c.method} {flips[c.method]} ({c.evaluations:.0f} evaluations, two seeds share "
        f"{c.overlap:.0%} of the first ten words)"
        for c in curves
        if c.method.startswith(("LIME", "SHAP"))
    )
    (neutral,) = (d for d in whole.deletions if "neutral" in d.name)
    return (
        f"A classifier with {accuracy:.4f} test accuracy, {len(reviews)} of its predictions. "
        f"Deleting the {p.words[k]} words named first flips: leaders with their clusters "
        f"{flips[CLUSTERS]}, leaders alone {flips[LEADERS]}, gradient {flips[GRADIENT]}, words by "
        f"their own score {flips[OWN]}, random words {flips[RANDOM]}; {rivals}."
        f"\n\nThe winning clusters, whole, have {np.mean([r.winning for r in reviews]):.1f} words "
        f"and flip {matched[CLUSTERS]}; as many random words flip {matched[RANDOM]}. "
        f"Keeping only the non-neutral clusters flips {neutral.flipped:.1%}. The explanation by "
        "clusters costs one evaluation and never changes."
    )


_DELETED = (
    "Share of predictions that flip (left) and mean fall of the predicted label's probability "
    "(right) when the first words of each ranking are deleted and the rest is read again."
)
_LEFT = "The same when only these words are left: the lower, the more of the decision they carry."


def _draw(p: Params, curves: list[Curve], what: str) -> Any:
    """`what` is "deleted" or "left"."""
    figure, axes = cy.plot.sheet(1, 2, 4.6, 3.4)
    colours = dict(zip((c.method for c in curves if c.method != RANDOM), cy.plot.PALETTE))
    styles = {LEADERS: "--", GRADIENT: ":", SIZE: "-.", OWN: "--"}
    for c in curves:
        look = {"color": colours.get(c.method, cy.plot.GREY), "ls": styles.get(c.method, "-")}
        width = 2.2 if c.method == CLUSTERS else 1.3
        for ax, y in zip(axes[0], getattr(c, what).T):
            ax.plot(p.words, y, marker="o", ms=3.5, lw=width, label=c.method, **look)
    for ax, name in zip(axes[0], ("predictions flipped", "fall of the probability")):
        ax.set(xlabel=f"words {what}", ylabel=name)
        if what == "deleted":
            ax.set_ylim(bottom=0)
        ax.xaxis.get_major_locator().set_params(integer=True)
    cy.plot.legend_below(axes[0, 0])
    return figure
