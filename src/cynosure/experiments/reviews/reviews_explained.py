"""Film reviews read by the shipped classifier: the words that lead, and what each cluster adds.

The application of arXiv 2407.01602: words are tokens, hardmax layers gather them around a few
leaders, the mean decides. See that the contributions of the leaders and the intercept add up to the
log-odds, that words of one tone share a leader, and which cluster has to go to turn the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cynosure as cy

from .._frame import Progress, report_of, silent
from ._texts import REVIEWS

TITLE = "Film reviews explained: which words lead, and what they add"


@dataclass(frozen=True)
class Params:
    """The reviews to read and the shipped model that reads them."""

    model: str = "imdb"
    texts: tuple[str, ...] = REVIEWS


QUICK = Params()


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Explain every review; nothing is fetched."""
    say = progress or silent
    clf = cy.load_pretrained(p.model)
    chapters = []
    for i, text in enumerate(p.texts):
        say(i / len(p.texts), f"review {i + 1}")
        chapters.append(_chapter(i + 1, clf.explain(text)))
    facts = {
        "terms known": len(clf.vocabulary_),
        "dimension of a token": clf.dim,
        "layers": clf.model_.layers,
        "alpha": clf.model_.alpha,
    }
    table = cy.Table("The model", ("", "value"), tuple(facts.items()))
    return report_of(__name__, p, _SUMMARY, tables=[table], chapters=chapters)


_SUMMARY = (
    "The classifier that comes with the package reads reviews written for this page. Each word "
    "and pair of words is a token in the plane; eight hardmax layers draw it to its leader; the "
    "mean of the tokens decides. The bars are therefore not an approximation of the model: with "
    "the intercept they are the log-odds.\n\n"
    '`cynosure explain "your text" --html why.html` makes an interactive page of any text.'
)


def _chapter(number: int, ex: cy.Explanation) -> cy.Report:
    total = ex.intercept + sum(leader.contribution for leader in ex.leaders)
    note = (
        f"Intercept {ex.intercept:+.4f} and contributions add up to {total:+.4f}; the model's "
        f"log-odds are {ex.decision:+.4f}. {_turning(ex)}"
    )
    caption = (
        "Left: what each leader's cluster adds to the log-odds. Right: where its words and "
        "pairs have gathered after the last layer, and how many; most are neutral."
    )
    return cy.Report(
        f"Review {number}: {ex.prediction}, log-odds of {ex.label} {ex.decision:+.2f}",
        f"“{ex.text}”",
        tables=(
            cy.Table.of(
                f"Leaders of review {number}",
                ex.leaders,
                {
                    "leader": "text",
                    "contribution": "contribution",
                    "tokens": lambda leader: 1 + len(leader.followers),
                    "score": "score",
                    "followers": lambda leader: _some([word.text for word in leader.followers]),
                },
                note,
            ),
        ),
        figures=(cy.Picture(f"Review {number}", caption, _drawn(ex)),),
    )


def _some(words: list[str], most: int = 12) -> str:
    return ", ".join(words[:most]) + (" ..." if len(words) > most else "")


def _turning(ex: cy.Explanation) -> str:
    """The fewest clusters, strongest first, whose deletion turns the verdict."""
    side = 1.0 if ex.decision > 0 else -1.0
    order = sorted(
        (i for i, leader in enumerate(ex.leaders) if side * leader.contribution > 0),
        key=lambda i: -side * ex.leaders[i].score,
    )
    for k in range(1, len(order) + 1):
        left = ex.without(*order[:k])
        if side * left <= 0:
            names = ", ".join(f"“{ex.leaders[i].text}”" for i in order[:k])
            return f"Without the clusters of {names} the verdict turns ({left:+.2f})."
    return "No deletion of clusters turns the verdict."


def _drawn(ex: cy.Explanation) -> Any:
    figure, axes = cy.plot.sheet(1, 2, 5.5, 4.2)
    bars, places = axes[0]
    ex.plot(bars)
    bars.set_title("")
    _clusters(places, ex)
    return figure


def _clusters(ax: Any, ex: cy.Explanation) -> None:
    """Where the tokens end along the decoder's axis, and how many at each place."""
    size = float((ex.v @ ex.v) ** 0.5)
    blue, orange, *_ = cy.plot.PALETTE
    near: list[list[tuple[float, int, str]]] = []  # place, tokens, leader; neighbours together
    for leader in sorted(ex.leaders, key=lambda x: x.score):
        x, tokens = leader.score / size, 1 + len(leader.followers)
        if not leader.offsets:  # most words are neutral: the line leaves the panel
            ax.axvline(x, color=cy.plot.GREY, linewidth=1.2)
            ax.annotate(f" neutral: {tokens - 1} terms", (x, 0.95), va="center",
                        xycoords=("data", "axes fraction"), fontsize=cy.plot.TICK)  # fmt: skip
        elif near and x - near[-1][-1][0] < 0.14:
            near[-1].append((x, tokens, leader.text))
        else:
            near.append([(x, tokens, leader.text)])
    for group in near:
        top = max(tokens for _, tokens, _ in group)
        for lift, (x, tokens, text) in enumerate(group):  # names over the stars
            colour = blue if x > 0 else orange
            ax.plot([x, x], [0, tokens], color=colour, linewidth=1.2)
            ax.scatter([x], [tokens], marker="*", s=110, color=colour, zorder=3)
            ax.annotate(text, (x, top), xytext=(0, 8 + 11 * lift), ha="center",
                        textcoords="offset points", fontsize=cy.plot.TICK)  # fmt: skip
    ax.set_xlim(-1.2, 1.2)
    ax.set_ylim(0, 2.5 * max((tokens for group in near for _, tokens, _ in group), default=1))
    ax.set_xlabel(f"place along the decoder's axis, towards {ex.label}")
    ax.set_ylabel("terms gathered there")
