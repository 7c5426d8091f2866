"""Bars of the words that lead: in how many reviews, and on which side of the decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cynosure as cy


class LeaderWord(NamedTuple):
    """A word, the number of reviews it leads in, and its score, positive for the second class."""

    word: str
    reviews: int
    score: float


def word_bars(leaders: Sequence[LeaderWord]) -> Any:
    """One bar per word, blue where it speaks for the second class and orange for the first."""
    figure, axes = cy.plot.sheet(1, 1, 7.0, 3.2)
    ax, places = axes[0, 0], range(len(leaders))
    blue, orange, *_ = cy.plot.PALETTE
    colours = [blue if x.score > 0 else orange for x in leaders]
    ax.bar(places, [x.reviews for x in leaders], color=colours)
    ax.set_xticks(places, [x.word for x in leaders], rotation=60, ha="right")
    ax.set_ylabel("reviews it leads in")
    if not leaders:
        ax.text(
            0.5, 0.5, "no word leads in a review that counts", ha="center", transform=ax.transAxes
        )
    return figure
