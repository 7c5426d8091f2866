"""Film reviews read by the shipped classifier: the words that lead, and what each cluster adds.

The application of arXiv 2407.01602: words are tokens, hardmax layers gather them around a few
leaders, the mean decides. See that the contributions of the leaders and the intercept add up to the
log-odds, that words of one tone share a leader, which cluster has to go to turn the verdict, and
the plane itself: the tokens, the line <v, z> + b = 0, and on which side of it the mean is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy

from ..study import Comparison, Picture, Progress, Report, Table, report_of, silent

# Three film reviews written for this package: a warm one, a cold one, and one of two minds.
REVIEWS = (
    "The first half hour is slow, and I nearly left. I am glad I stayed: the two leads are "
    "superb, the music is lovely, and the last scene is one of the most moving I have seen in "
    "years. Not a perfect film, but a wonderful one, and I would happily see it again.",
    "What a waste of a good cast. The plot makes no sense, the jokes are stupid, and the "
    "dialogue sounds as if nobody had read it aloud. I kept hoping it would get better; instead "
    "it got worse and worse. Save your money.",
    "The trailer promised a thriller and the film is a quiet family drama, so half the audience "
    "was bored. I wasn't. The script has holes and the ending is too neat, but the actors carry "
    "it, and the old man's story is touching without being silly.",
)

TITLE = "Film reviews explained: which words lead, and what they add"


@dataclass(frozen=True)
class Params:
    """The reviews to read and the shipped model that reads them."""

    model: str = "imdb"
    texts: tuple[str, ...] = REVIEWS


QUICK = Params()


def run(p: Params, progress: Progress | None = None) -> Report:
    """Explain every review; nothing is fetched."""
    say = progress or silent
    clf = cy.load_pretrained(p.model)
    chapters, explained = [], []
    for i, text in enumerate(p.texts):
        say(i / len(p.texts), f"review {i + 1}")
        explained.append(clf.explain(text))
        chapters.append(_chapter(i + 1, explained[-1]))
    facts = {
        "terms known": len(clf.vocabulary_),
        "dimension of a token": clf.dim,
        "layers": clf.model_.layers,
        "alpha": clf.model_.alpha,
    }
    table = Table("The model", ("", "value"), tuple(facts.items()))
    controls = _controls(clf, explained)
    return report_of(p, _SUMMARY, tables=[table], chapters=chapters, controls=controls)


_SUMMARY = (
    "The classifier that comes with the package reads reviews written for this page. Each word "
    "and pair of words is a token in the plane; eight hardmax layers draw it to its leader; the "
    "mean of the tokens decides. The bars are therefore not an approximation of the model: with "
    "the intercept they are the log-odds.\n\n"
    '`cynosure explain "your text" --html why.html` makes an interactive page of any text.'
)


def _chapter(number: int, ex: cy.classifier.Explanation) -> Report:
    total = ex.intercept + sum(leader.contribution for leader in ex.leaders)
    note = (
        f"Intercept {ex.intercept:+z.4f} and contributions add up to {total:+z.4f}; the model's "
        f"log-odds are {ex.decision:+z.4f}. {_turning(ex)}"
    )
    caption = (
        "Left: what each leader's cluster adds to the log-odds. Right: the plane of the tokens "
        "after the last layer (dots: where they started). A star is a leader, larger the more "
        "terms it has gathered; most are neutral. Black: the decision line, which the mean of the "
        "tokens (diamond) has to cross for the other verdict."
    )
    return Report(
        f"Review {number}: {ex.prediction}, log-odds of {ex.label} {ex.decision:+z.2f}",
        f"“{ex.text}”",
        tables=(
            Table.of(
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
        figures=(Picture(f"Review {number}", caption, _drawn(ex)),),
    )


def _some(words: list[str], most: int = 12) -> str:
    return ", ".join(words[:most]) + (" ..." if len(words) > most else "")


def _supporters(ex: cy.classifier.Explanation) -> list[int]:
    """The clusters that speak for the verdict, strongest first."""
    side = 1.0 if ex.decision > 0 else -1.0
    found = (i for i, leader in enumerate(ex.leaders) if side * leader.contribution > 0)
    return sorted(found, key=lambda i: -side * ex.leaders[i].score)


def _turning(ex: cy.classifier.Explanation) -> str:
    """The fewest clusters, strongest first, whose deletion turns the verdict."""
    order = _supporters(ex)
    for k in range(1, len(order) + 1):
        left = ex.without(*order[:k])
        if ex.decision * left <= 0:
            names = ", ".join(f"“{ex.leaders[i].text}”" for i in order[:k])
            return f"Without the clusters of {names} the verdict turns ({left:+z.2f})."
    return "No deletion of clusters turns the verdict."


def _controls(clf: Any, explained: list[cy.classifier.Explanation]) -> list[Comparison]:
    scores = clf.decision_function([ex.text for ex in explained])
    away = max(
        abs(float(score) - ex.intercept - sum(leader.contribution for leader in ex.leaders))
        for score, ex in zip(scores, explained)
    )
    largest = max(float(np.abs(score)) for score in scores)
    turned = {
        ex.text: sum(ex.decision * ex.without(i) <= 0 for i in _supporters(ex)) for ex in explained
    }
    clear = {ex.text: len(_supporters(ex)) for ex in explained if abs(ex.decision) > _CLEAR}
    of_clear, every = (sum(turned[text] for text in some) for some in (clear, turned))
    others = sum(len(_supporters(ex)) for ex in explained) - sum(clear.values())
    return [
        Comparison(
            "With the intercept the bars are the log-odds.",
            "the classifier's own decision function, which knows no bars",
            f"they differ by at most {away:.1g} in {len(explained)} reviews",
            survives=away <= 1e-9 * max(largest, 1.0),
        ),
        Comparison(
            "No single cluster carries a clear verdict: the classifier falls back on weaker words.",
            "each cluster that speaks for the verdict, deleted alone, where it is not clear",
            f"the verdict turns in {of_clear} of {sum(clear.values())} cases with log-odds "
            f"beyond {_CLEAR:g}, and in {every - of_clear} of {others} others",
            survives=bool(clear) and of_clear == 0 and every > of_clear,
        ),
    ]


_CLEAR = 2.0  # log-odds of 7 to 1
_NAMED = 12  # leaders named in the plane, as many as there are bars
_APART = np.radians(4.5)  # between the names of two neighbours
_LINE = {"arrowstyle": "-", "color": "0.6", "lw": 0.6, "shrinkA": 1, "shrinkB": 3}  # to a name


def _drawn(ex: cy.classifier.Explanation) -> Any:
    figure, axes = cy.plot.sheet(1, 2, 5.8, 5.2, gridspec_kw={"width_ratios": [4, 5]})
    bars, places = axes[0]
    ex.plot(bars)
    bars.set_title("")
    bars.set_ylim(bars.get_ylim()[1] - max(len(bars.get_yticks()), 6) - 0.5, None)
    _plane(places, ex)
    return figure


def _plane(ax: Any, ex: cy.classifier.Explanation) -> None:
    """Where the tokens of the plane end, the decision line, and the side on which their mean is."""
    z, blue, orange = ex.trajectory.values, cy.plot.PALETTE[0], cy.plot.PALETTE[1]
    if z.shape[2] != 2:
        raise ValueError(f"reviews_explained draws tokens of the plane, got d = {z.shape[2]}")
    low, high = z.min(axis=(0, 1)) - 0.3, z.max(axis=(0, 1)) + 0.5
    half = max(float((high - low).max()) / 2, 0.75)
    middle = (low + high) / 2
    _sides(ax, ex, 100 * half)
    ax.plot(*z[0].T, "o", color=cy.plot.GREY, ms=2.5, alpha=0.7)
    for leader in ex.leaders:
        place, terms = z[-1][leader.token], len(leader.followers) + bool(leader.offsets)
        if leader.offsets:
            colour = blue if leader.score > 0 else orange
            size = 60 + 14 * terms
            ax.scatter(*place, marker="*", s=size, color=colour, ec="white", lw=0.5, zorder=4)
        else:
            ax.scatter(*place, marker="o", s=60, fc="white", ec=cy.plot.GREY, lw=1.3, zorder=3)
            below = (place[0] + 0.04, float(z[..., 1].min()) - 0.09)
            ax.annotate(f"neutral: {terms} terms", place, xytext=below, fontsize=cy.plot.TICK,
                        arrowprops=_LINE)  # fmt: skip
    named = [leader for leader in ex.leaders[:_NAMED] if leader.offsets]
    _fan(ax, z[-1][[leader.token for leader in named]], [leader.text for leader in named])
    weight = np.ones(z.shape[1])
    weight[0] = ex.count
    mean = weight @ z[-1] / ex.total
    ax.plot(*mean, "D", color=cy.plot.INK, ms=5, zorder=5, gid="mean")
    away = ex.decision / float(np.linalg.norm(ex.v))
    text = (
        f"mean of the tokens (diamond): {abs(away):.4f} from the line\n"
        f"on the side of {ex.prediction}; times |v| = {np.linalg.norm(ex.v):.0f} that is "
        f"{ex.decision:+z.2f}"
    )
    ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    ax.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
    ax.set_title(text, fontsize=cy.plot.LABEL)
    ax.grid(False)


def _sides(ax: Any, ex: cy.classifier.Explanation, far: float) -> None:
    """The line <v, z> + b = 0, and its two sides in the colours of their classes."""
    size = float(np.linalg.norm(ex.v))
    normal = ex.v / size
    along = np.array([-normal[1], normal[0]])
    foot = -ex.intercept / size * normal
    for sign, colour, name in ((1, 0, ex.label), (-1, 1, ex.other)):
        corners = np.array([-along, along, along + sign * normal, sign * normal - along])
        ax.fill(
            *(foot + far * corners).T, color=cy.plot.PALETTE[colour], alpha=0.07, lw=0, zorder=0
        )
        place = (0.98, 0.02) if sign * normal[0] > 0 else (0.02, 0.02)
        ax.annotate(name, place, xycoords="axes fraction", fontsize=cy.plot.LABEL,
                    ha="right" if place[0] > 0.5 else "left")  # fmt: skip
    ax.axline(tuple(foot), tuple(foot + along), color=cy.plot.INK, lw=1.2, zorder=1, gid="decision")


def _fan(ax: Any, places: np.ndarray, names: list[str]) -> None:
    """Names on an arc beyond the tokens, which are close: spread out in their order, with lines."""
    if not names:
        return
    angles = np.arctan2(places[:, 1], places[:, 0])
    order = np.argsort(angles)
    steps = _APART * np.arange(len(order))
    spread = np.maximum.accumulate(angles[order] - steps) + steps  # at least _APART between two
    spread += (angles[order] - spread).mean()
    reach = float(np.linalg.norm(places, axis=1).max())
    for i, angle in zip(order, spread, strict=True):
        direction = np.array([np.cos(angle), np.sin(angle)])
        upright = direction[0] >= 0
        turn = float(np.degrees(angle)) - (0 if upright else 180)
        ax.annotate(names[i], places[i], xytext=tuple((reach + 0.14) * direction), rotation=turn,
                    rotation_mode="anchor", va="center", ha="left" if upright else "right",
                    fontsize=cy.plot.TICK, arrowprops=_LINE)  # fmt: skip
