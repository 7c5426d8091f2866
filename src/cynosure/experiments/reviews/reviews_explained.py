"""Film reviews read by the shipped classifier: the words that lead, and what each cluster adds.

The application of arXiv 2407.01602: words are tokens, hardmax layers gather them around a few
leaders, the mean decides. See that the contributions of the leaders and the intercept add up to the
log-odds, that words of one tone share a leader, and which cluster has to go to turn the verdict.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

from ...classifier.explanation import Explanation
from ...classifier.shipped import load_pretrained
from ...drawing.report import Picture, Report, Table
from .._frame import Progress
from ._texts import REVIEWS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Film reviews explained: which words lead, and what they add"


@final
@dataclass(frozen=True)
class Params:
    """The reviews to read and the shipped model that reads them."""

    model: str = "imdb"
    texts: tuple[str, ...] = REVIEWS


QUICK = Params()


def run(p: Params, progress: Progress | None = None) -> Report:
    """Explain every review; nothing is fetched."""
    clf = load_pretrained(p.model)
    chapters = []
    for i, text in enumerate(p.texts):
        chapters.append(_chapter(i + 1, clf.explain(text)))
        if progress is not None:
            progress((i + 1) / len(p.texts), f"review {i + 1}")
    facts = (
        ("terms known", len(clf.vocabulary_)),
        ("dimension of a token", clf.dim),
        ("layers", clf.model_.layers),
        ("alpha", clf.model_.alpha),
    )
    return Report(
        TITLE,
        _SUMMARY,
        asdict(p),
        tables=(Table("The model", ("", "value"), facts),),
        chapters=tuple(chapters),
        command="cynosure run reviews_explained",
    )


_SUMMARY = (
    "The classifier that comes with the package reads reviews written for this page. Each word "
    "and pair of words is a token in the plane; eight hardmax layers draw it to its leader; the "
    "mean of the tokens decides. The bars are therefore not an approximation of the model: with "
    "the intercept they are the log-odds.\n\n"
    '`cynosure explain "your text" --html why.html` makes an interactive page of any text.'
)


def _chapter(number: int, ex: Explanation) -> Report:
    rows = tuple(
        (
            leader.text,
            leader.contribution,
            1 + len(leader.followers),
            leader.score,
            ", ".join(w.text for w in leader.followers[:12])
            + (" ..." if len(leader.followers) > 12 else ""),
        )
        for leader in ex.leaders
    )
    total = ex.intercept + sum(leader.contribution for leader in ex.leaders)
    columns = ("leader", "contribution", "tokens", "score", "followers")
    note = (
        f"Intercept {ex.intercept:+.4f} and contributions add up to {total:+.4f}; the model's "
        f"log-odds are {ex.decision:+.4f}. {_turning(ex)}"
    )
    return Report(
        f"Review {number}: {ex.prediction}, log-odds of {ex.label} {ex.decision:+.2f}",
        f"“{ex.text}”",
        tables=(Table(f"Leaders of review {number}", columns, rows, note),),
        figures=(
            Picture(
                f"Review {number}",
                "Left: what each leader's cluster adds to the log-odds. Right: where its words and "
                "pairs have gathered after the last layer, and how many; most are neutral.",
                _drawn(ex),
            ),
        ),
    )


def _turning(ex: Explanation) -> str:
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


def _drawn(ex: Explanation) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    bars, places = figure.subplots(1, 2)
    ex.plot(bars)
    bars.set_title("")
    _clusters(places, ex)
    return figure


def _clusters(ax: Any, ex: Explanation) -> None:
    """Where the tokens end along the decoder's axis, and how many at each place."""
    size = float((ex.v @ ex.v) ** 0.5)
    most = max((1 + len(x.followers) for x in ex.leaders if x.offsets), default=1)
    last, lift = -2.0, 0
    for leader in sorted(ex.leaders, key=lambda x: x.score):
        x, tokens = leader.score / size, 1 + len(leader.followers)
        colour = "#0072B2" if x > 0 else "#D55E00" if x < 0 else "#666666"
        lift = (lift + 1) % 4 if x - last < 0.14 else 0  # labels of neighbours one above the other
        last = x
        if not leader.offsets:  # most words are neutral: the line leaves the panel
            ax.axvline(x, color=colour, linewidth=1.2)
            ax.annotate(
                f"neutral: {tokens - 1} terms", (x, 2.35 * most), xytext=(4, 0), fontsize=8,
                textcoords="offset points", va="center",
            )  # fmt: skip
            continue
        ax.plot([x, x], [0, tokens], color=colour, linewidth=1.2)
        ax.scatter([x], [tokens], marker="*", s=110, color=colour, zorder=3)
        ax.annotate(
            leader.text, (x, tokens), xytext=(0, 8 + 13 * lift), textcoords="offset points",
            ha="center", fontsize=8, zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip
    ax.set_xlim(-1.2, 1.2)
    ax.set_ylim(0, 2.5 * most)
    ax.set_xlabel(f"place along the decoder's axis, towards {ex.label}")
    ax.set_ylabel("terms gathered there")
