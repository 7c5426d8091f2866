"""Which words, once deleted, change the decision? Leaders, clusters, gradient, LIME and SHAP.

An explanation ranks the words of a review. *Comprehensiveness*: delete its first k words, send the
rest through the layers again, and see how far the probability of the predicted label falls and how
often the prediction flips (more is better). *Sufficiency*: keep only the first k (less is better).
The classifier is a `HardmaxClassifier` with placed words, the model of arXiv 2407.01602; every
method explains that same model.

What is set beside it: the same weights with 0 layers of attention, read again after each deletion;
as many words of the order by own score <v, E> as a ranking names (leaders alone are few, and few
words flip little whoever chooses them); random words *of the side that wins*, since every other
ranking names only these. LIME and SHAP are small samplers of our own, named so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

from ._null_models import above, below, blockwise, said, without_layers
from ._rankings import (
    CLUSTERS,
    GRADIENT,
    LEADERS,
    OWN,
    RANDOM,
    RANDOM_SIDE,
    SAMPLERS,
    SIZE,
    documents,
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


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Fit, explain by every method, delete and keep."""
    say = progress or st.silent
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
    accuracy = float(clf.score(test.texts, test.labels))
    return st.report_of(
        p,
        _summary(p, curves, reviews, accuracy),
        controls=_controls(p, curves),
        tables=[_table(p, curves, reviews)],
        checks={"explained reviews": [_identity(clf, texts)]},
        figures=(
            st.Picture(
                "Deleting the words an explanation names", _DELETED, _draw(p, curves, "deleted")
            ),
            st.Picture("Keeping only those words", _LEFT, _draw(p, curves, "left")),
        ),
    )


# --- deletions ----------------------------------------------------------------------------------


def _curve(p: Params, clf: cy.HardmaxClassifier, reviews: list[st.Cell], method: str) -> st.Cell:
    """Means over reviews, (flips, fall of the probability) at each number of words of a method."""
    every, label = np.arange(len(reviews)), np.array([r.label for r in reviews])
    before = probabilities(clf, [r.terms for r in reviews])[every, label]
    named, own = ([r.ranking[key] for r in reviews] for key in (method, OWN))

    def after(rests: list[np.ndarray]) -> tuple[np.ndarray, float]:
        """(flips, mean fall of the probability) when these terms are left of the reviews."""
        now = probabilities(clf, rests)
        return now.argmax(axis=1) != label, float((before - now[every, label]).mean())

    def cut(ranking: list[np.ndarray], sizes: Sequence[int]) -> list[np.ndarray]:
        return [np.delete(r.terms, j[:k]) for r, j, k in zip(reviews, ranking, sizes)]

    cuts = [cut(named, [k] * len(reviews)) for k in p.words]
    deleted = [after(rests) for rests in cuts]
    left = [after([r.terms[j[:k]] for r, j in zip(reviews, named)]) for k in p.words]
    fair = [cut(own, [min(k, len(j)) for j in named]) for k in p.words]
    return st.Cell(
        method=method,
        deleted=np.array([(flips.mean(), fall) for flips, fall in deleted]),
        left=np.array([(flips.mean(), fall) for flips, fall in left]),
        # as many words deleted as the winning clusters have
        matched=float(after(cut(named, [r.winning for r in reviews]))[0].mean()),
        overlap=float(np.mean([r.overlap[method] for r in reviews])),
        evaluations=float(np.mean([r.evaluations[method] for r in reviews])),
        flipped=np.array([flips for flips, _ in deleted]),  # (numbers of words, reviews)
        fair=np.array([after(rests)[0] for rests in fair]),  # as many words by own score
        bare=np.array([(without_layers(clf, documents(x)) > 0) != label for x in cuts]),
    )


def _identity(clf: cy.HardmaxClassifier, texts: tuple[str, ...]) -> cy.theorems.Check:
    """The contributions of an explanation add up to the decision, twice over."""
    worst = 0.0
    for text in texts[:50]:
        ex = clf.explain(text)
        if ex.leaders:
            parts = ex.intercept + sum(x.contribution for x in ex.leaders)
            gradient = ex.intercept + float(ex.gradient_times_token().sum())
            apart = (ex.decision - parts, ex.decision - gradient)
            worst = max(worst, *(abs(x) / max(1.0, abs(ex.decision)) for x in apart))
    return st.at_most(
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


def _table(p: Params, curves: list[st.Cell], reviews: list[st.Cell]) -> st.Table:
    k = _at(p)
    n = p.words[k]
    note = (
        f"{len(reviews)} reviews of {np.mean([len(r.terms) for r in reviews]):.0f} distinct terms; "
        f"the winning clusters have {np.mean([r.winning for r in reviews]):.1f} words. Overlap: "
        "Jaccard index of the first ten words under two seeds. A ranking may end early: leaders "
        "are few, so beside each stands the order by own score cut to as many words. With 0 "
        "layers: the same weights without attention read what is left. Intervals by blocks."
    )
    columns: dict[str, Any] = {
        **{"words chosen by": "method", f"flips, {n} deleted": lambda c: c.deleted[k, 0]},
        "95 % from": lambda c: blockwise(c.flipped[k])[0],
        "to": lambda c: blockwise(c.flipped[k])[1],
        "flips, as many by own score": lambda c: float(c.fair[k].mean()),
        "flips, read with 0 layers": lambda c: float(c.bare[k].mean()),
        f"fall of p, {n} deleted": lambda c: c.deleted[k, 1],
        "flips, as many as winning clusters have": "matched",
        f"flips, only {n} left": lambda c: c.left[k, 0],
        f"fall of p, only {n} left": lambda c: c.left[k, 1],
        **{"overlap of two seeds": "overlap", "model evaluations": "evaluations"},
    }
    return st.Table.of("Comprehensiveness and sufficiency", curves, columns, note)


def _controls(p: Params, curves: list[st.Cell]) -> list[st.Comparison]:
    """Each claim on an explanation beside as many words chosen otherwise."""
    k, by = _at(p), {c.method: c for c in curves}
    flips = {name: c.flipped[k].astype(float) for name, c in by.items()}
    rate = {name: f"{of.mean():.1%}" for name, of in flips.items()}
    same = sum(int((c.flipped == c.bare).sum()) for c in curves)
    total = sum(c.flipped.size for c in curves)
    few = flips[LEADERS] - by[LEADERS].fair[k]
    clusters = flips[CLUSTERS]
    low, high = blockwise(clusters - by[CLUSTERS].bare[k])
    out = [
        st.Comparison(
            f"Leaders with their clusters are as good a choice of {p.words[k]} words as any.",
            "the order by own score <v, E>, which needs no attention",
            f"flips {rate[CLUSTERS]} and {rate[OWN]}, difference {said(clusters - flips[OWN])}",
            not below(clusters - flips[OWN]),
        ),
        st.Comparison(
            "Leaders alone are not faithful.",
            "as many words of the order by own score, review by review",
            f"flips {rate[LEADERS]}, as many by own score {by[LEADERS].fair[k].mean():.1%}, "
            f"difference {said(few)}",
            below(few),
        ),
        st.Comparison(
            "What flips is the work of the attention.",
            "the same weights with 0 layers, after every deletion of every method",
            f"the same outcome in all but {total - same} of {total} cases",
            same < total and not low <= 0 <= high,
        ),
        st.Comparison(
            "Clusters find words that random choice does not.",
            "random words, and random words of the side that wins",
            f"flips {rate[CLUSTERS]}; random {rate[RANDOM]}; random of the winning side "
            f"{rate[RANDOM_SIDE]}, difference {said(clusters - flips[RANDOM_SIDE])}",
            above(clusters - flips[RANDOM_SIDE]),
        ),
    ]
    return out + [
        st.Comparison(
            f"{name} stays below the order by own score.",
            f"the same reviews, {p.samples} samples",
            f"flips {rate[name]} and {rate[OWN]}, difference {said(flips[name] - flips[OWN])}",
            below(flips[name] - flips[OWN]),
        )
        for name in SAMPLERS
        if name in by
    ]


def _summary(p: Params, curves: list[st.Cell], reviews: list[st.Cell], accuracy: float) -> str:
    k, by = _at(p), {c.method: c for c in curves}
    flips = {name: f"{c.deleted[k, 0]:.1%}" for name, c in by.items()}
    rivals = "; ".join(
        f"{name} {flips[name]} ({by[name].evaluations:.0f} evaluations, two seeds share "
        f"{by[name].overlap:.0%} of the first ten words)"
        for name in SAMPLERS
    )
    clusters, alone = by[CLUSTERS], by[LEADERS]
    same = float((clusters.flipped[k] == clusters.bare[k]).mean())
    return (
        f"A classifier with {accuracy:.4f} test accuracy, {len(reviews)} of its predictions. "
        f"Deleting the {p.words[k]} words named first flips: leaders with their clusters "
        f"{flips[CLUSTERS]}, leaders alone {flips[LEADERS]}, gradient {flips[GRADIENT]}, words by "
        f"their own score {flips[OWN]}, random words {flips[RANDOM]}, random words of the winning "
        f"side {flips[RANDOM_SIDE]}; {rivals}. As few words as leaders are, by own score, flip "
        f"{alone.fair[k].mean():.1%}. Read with 0 layers of attention after the deletion, "
        f"{same:.1%} of the outcomes are the same."
        f"\n\nThe winning clusters, whole, have {np.mean([r.winning for r in reviews]):.1f} words "
        f"and flip {clusters.matched:.1%}; as many random words flip {by[RANDOM].matched:.1%}."
    )


_DELETED = (
    "Share of predictions that flip (left) and mean fall of the predicted label's probability "
    "(right) when the first words of each ranking are deleted and the rest is read again."
)
_LEFT = "The same when only these words are left: the lower, the more of the decision they carry."


_RANDOM = (RANDOM, RANDOM_SIDE)


def _draw(p: Params, curves: list[st.Cell], what: str) -> Any:
    """`what` is "deleted" or "left"."""
    figure, axes = cy.plot.sheet(1, 2, 4.6, 3.4)
    colours = dict(zip((c.method for c in curves if c.method not in _RANDOM), cy.plot.PALETTE))
    styles = {RANDOM_SIDE: "--", LEADERS: "--", GRADIENT: ":", SIZE: "-.", OWN: "--"}
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
