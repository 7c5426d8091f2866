"""The sentiment model of arXiv 2407.01602, learned by gradient: curves, leaders, reviews.

    P = softmax_row(z z^T / tau),  z <- (z + alpha P z) / (1 + alpha),  decision = b + <v, mean z>

trained with tau = 0.001, tested with hardmax. The protocol is the paper's with its flaws mended
(docs/mathematics.md D6): padding takes no part, alpha > 0, words in lower case, the vocabulary is
that of the training reviews, the epoch is chosen on held-out blocks of them and never on the test
part, accuracy is over reviews and not over batches, leaders are counted as value classes in proved
arithmetic. No lemmas are taken.

See: hardmax predicts what softmax was trained for; accuracy grows with d while the share of words
that lead grows too, up to a bag of words. Full reviews are trained on a GPU by
`python -m cynosure.experiments.reviews._sentiment_gpu`, and `results` names the folder it leaves;
without it small models are trained here, on `data` or on made-up reviews.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

import cynosure as cy

from ...classifier.soft_model import Schedule
from .._frame import Progress, at_most, part, report_of, silent
from ._reviews import numbered
from ._runs import LAYERS, Run, stored, trained

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Sentiment as in the paper: soft training, hard leaders"
# docs/mathematics.md D5, bar heights of the published histogram of leaders, d = 2
PUBLISHED_LEADERS = {
    "great": 1247, "worst": 677, "waste": 670, "love": 561, "awful": 532, "money": 457,
    "year": 414, "amazing": 391, "boring": 380, "perfect": 335, "left": 308, "enjoyed": 293,
    "people": 273, "found": 250, "poor": 244,
}  # fmt: skip


@final
@dataclass(frozen=True)
class Params:
    """`data`: reviews (aclImdb folder or archive, a table, or the .npz of word numbers), "" for
    made-up ones; `results`: trained runs. Otherwise train here: `reviews` per part (0: all)."""

    data: str = ""
    results: str = ""
    dims: tuple[int, ...] = (2, 4, 8, 16)
    reviews: int = 2000
    tokens: int = 128
    epochs: int = 30
    rate: float = 1e-2
    batch: int = 64
    patience: int = 5
    counted: int = 5000
    seed: int = 0
    movies: bool = True


QUICK = Params(dims=(2, 4), reviews=160, epochs=6, rate=5e-2, batch=32, counted=100, movies=False)


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Read or train the models, then count, draw and check."""
    say = progress or silent
    say(0.0, "reviews")
    ids = numbered(p.data, 0 if p.results else p.reviews, p.seed)
    middle = part(progress, 0.05, 0.75)
    schedule = Schedule(p.epochs, p.rate, p.batch, patience=p.patience, seed=p.seed)
    fits = stored(ids, p.results, middle) if p.results else trained(
        ids, p.dims, p.tokens, schedule, middle
    )  # fmt: skip
    runs = [Run.of(*fit, p.counted, bool(p.data)) for fit in fits]
    say(0.75, "figures")
    first = min(runs, key=lambda r: (r.dim, r.history["tokens"]))  # the most readable
    examples = _examples(first)
    figures = [
        cy.Picture("Accuracy by epoch", _ACCURACY, _curves(runs, "accuracy")),
        cy.Picture("Loss by epoch", _LOSS, _curves(runs, "loss")),
        cy.Picture("Words that lead", _LEADERS.format(first.name), _histogram(first)),
    ]
    for kind, example in examples.items():
        drawing = _panels(first, example)
        figures.append(cy.Picture(f"A {kind} review", _REVIEW.format(first.name), drawing))
    say(0.9, "movies")
    return report_of(
        __name__,
        p,
        _summary(runs, first),
        tables=(_accuracies(runs), _leader_table(runs), _leader_words(first)),
        checks={"all runs": [_soft_is_hard(runs)]}
        | {f"{kind} review": cy.check(e.trajectory) for kind, e in examples.items()},
        figures=figures,
        movies=[_movie(kind, e.trajectory) for kind, e in examples.items()] if p.movies else (),
    )


# --- tables -------------------------------------------------------------------------------------


def _accuracies(runs: list[Run]) -> cy.Table:
    note = (
        "Test accuracies of the epoch with the lowest held-out loss. `best on test` picks the "
        "epoch on the test part, as the published maxima do: it is no fair number. The published "
        "ones are from another split (the last 15,000 of 50,000), padding not masked, n = 128."
    )
    return cy.Table.of(
        "Accuracy",
        runs,
        {
            "d": "dim",
            "n": lambda r: r.history["tokens"],
            "words": lambda r: r.history["words"],
            "epochs": lambda r: len(r.history["epochs"]),
            "chosen epoch": lambda r: r.history["best_epoch"],
            "train": lambda r: r.chosen["train soft accuracy"],
            "held out": lambda r: r.chosen["held accuracy"],
            "test, soft": lambda r: r.chosen["test soft accuracy"],
            "test, hard": lambda r: r.chosen["test hard accuracy"],
            "last epoch": lambda r: r.history["epochs"][-1]["test hard accuracy"],
            "best on test": lambda r: max(r.series("test hard accuracy")),
            "alpha": "alpha",
            "published best on test": lambda r: r.published[0],
            "published last": lambda r: r.published[1],
        },
        note,
    )


def _leader_table(runs: list[Run]) -> cy.Table:
    note = "Hardmax, 8 layers, test reviews. A repeated word is one token with a multiplicity."
    return cy.Table.of(
        "Leaders",
        runs,
        {
            "d": "dim",
            "n": lambda r: r.history["tokens"],
            "reviews": lambda r: len(r.test),
            "leaders, mean": lambda r: float(r.led.leaders.mean()),
            "std": lambda r: float(r.led.leaders.std()),
            "min": lambda r: int(r.led.leaders.min()),
            "max": lambda r: int(r.led.leaders.max()),
            "lead from layer 0": "from_start",
            "distinct words": lambda r: float(r.test.sizes.mean()),
            "share of words that lead": lambda r: float((r.led.leaders / r.test.sizes).mean()),
            "weight on leaders": lambda r: float(r.led.on_leaders.mean()),
        },
        note,
    )


class LeaderWord(NamedTuple):
    """A word, the number of reviews it leads in, and its score <v, z> + b."""

    word: str
    reviews: int
    score: float


def _leaders(r: Run, most: int) -> list[LeaderWord]:
    """The paper's count: reviews right with confidence > 0.95, leaders with |score| > 2."""
    sure = (np.abs(r.led.decision) > np.log(0.95 / 0.05)) & ((r.led.decision > 0) == r.test.y)
    scores = r.word_scores
    terms = r.test.terms[sure][(r.led.born[sure] == 0)]
    count = Counter(terms[np.abs(scores[terms]) > 2].tolist())
    return [LeaderWord(r.words[j], k, float(scores[j])) for j, k in count.most_common(most)]


def _leader_words(r: Run) -> cy.Table:
    note = (
        "Reviews decided rightly with confidence above 0.95; leaders from layer 0 with "
        "|<v, z> + b| > 2. The published counts are over all reviews of another split."
    )
    return cy.Table.of(
        f"Words that lead, {r.name}",
        _leaders(r, 15),
        {
            "word": "word",
            "reviews it leads in": "reviews",
            "score": "score",
            "published": lambda x: PUBLISHED_LEADERS.get(x.word) if r.real else None,
        },
        note,
    )


def _soft_is_hard(runs: list[Run]) -> cy.Check:
    """Softmax at tau = 0.001 predicts as hardmax: error exp(-gap/tau), docs/mathematics.md A2."""
    apart = {
        r.name: abs(r.chosen["test soft accuracy"] - r.chosen["test hard accuracy"]) for r in runs
    }
    return at_most(
        "soft = hard",
        "docs/mathematics.md A2, D4",
        "at temperature 0.001 the softmax model and the hardmax model differ in accuracy by < 0.01",
        max(apart.values()),
        0.01,
        **apart,
    )


def _summary(runs: list[Run], first: Run) -> str:
    few, many = (pick(runs, key=lambda r: r.led.leaders.mean()) for pick in (min, max))
    lines = "; ".join(
        f"{r.name}: {r.chosen['test hard accuracy']:.4f}"
        + (f" (published {r.published[0]:.4f})" if r.published[0] else "")
        for r in runs
    )
    gap = max(abs(r.chosen["test soft accuracy"] - r.chosen["test hard accuracy"]) for r in runs)
    wide = max(runs, key=lambda r: r.chosen["train hard accuracy"] - r.chosen["test hard accuracy"])
    slow = min(runs, key=lambda r: r.alpha)
    return (
        f"Hardmax test accuracy at the epoch chosen on held-out blocks: {lines}. Softmax at "
        f"temperature 0.001 and hardmax differ by at most {gap:.4f}.\n\n"
        f"Leaders per review: {few.led.leaders.mean():.1f} of {few.test.sizes.mean():.0f} distinct "
        f"words for {few.name}, {many.led.leaders.mean():.1f} of {many.test.sizes.mean():.0f} for "
        f"{many.name}: the more words lead, the more the model is a bag of words. Nearly all lead "
        f"from layer 0 ({first.from_start:.1%} for {first.name}). The step alpha, free to fade, "
        f"ends between {slow.alpha:.2f} ({slow.name}) and {max(r.alpha for r in runs):.2f}; where "
        f"small, {slow.led.on_leaders.mean():.0%} "
        f"of the mean token is on leaders after {LAYERS} layers. Training accuracy is up to "
        f"{wide.chosen['train hard accuracy'] - wide.chosen['test hard accuracy']:.3f} above test "
        f"accuracy ({wide.name}) at the epoch chosen: the embedding memorises."
    )


# --- figures ------------------------------------------------------------------------------------

_ACCURACY = (
    "Accuracy by epoch: on the reviews trained on, on held-out blocks, and on the test part with "
    "softmax (as trained) and hardmax. The vertical line is the epoch chosen on the held-out "
    "loss. Dashed: the published maximum, chosen on its test set."
)
_LOSS = (
    "Mean loss by epoch. Softmax and hardmax lie on each other; past the line the model over-fits."
)
_LEADERS = (
    "How often a word leads, {}: reviews decided rightly with confidence above 0.95, leaders far "
    "from the boundary, as the paper counts. Blue speaks for positive, orange for negative."
)
_REVIEW = (
    "One test review through the hardmax layers of {}, its leaders named. The line is the decision "
    "boundary <v, z> + b = 0, the cross the mean token, whose side is the prediction."
)


def _curves(runs: list[Run], what: str) -> Any:
    palette, grey = cy.plot.PALETTE, cy.plot.GREY
    columns = min(4, len(runs))
    figure, axes = cy.plot.sheet(-(-len(runs) // columns), columns, 3.3, 2.9)
    lines = (
        (f"train soft {what}", "train, softmax", palette[5], "-"),
        (f"train hard {what}", "train, hardmax", cy.plot.INK, ":"),
        (f"held {what}", "held out", palette[2], "-"),
        (f"test soft {what}", "test, softmax", palette[0], "-"),
        (f"test hard {what}", "test, hardmax", palette[1], "--"),
    )
    for ax in axes.flat[len(runs) :]:
        ax.set_visible(False)
    for ax, r in zip(axes.flat, runs):
        epochs = r.series("epoch")
        for name, label, colour, style in lines:
            ax.plot(epochs, r.series(name), style, color=colour, lw=1.4, label=label)
        ax.axvline(r.history["best_epoch"], color=grey, lw=0.8)
        if what == "accuracy" and r.published[0] is not None:
            ax.axhline(r.published[0], color=grey, lw=0.9, ls="--")
        ax.set(title=r.name, xlabel="epoch")
    axes[0, 0].set_ylabel(what)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5,
                  frameon=False, fontsize="small")  # fmt: skip
    return figure


def _histogram(r: Run) -> Any:
    figure, axes = cy.plot.sheet(1, 1, 7.0, 3.2)
    ax = axes[0, 0]
    leaders = _leaders(r, 20)
    blue, orange, *_ = cy.plot.PALETTE
    colours = [blue if x.score > 0 else orange for x in leaders]
    ax.bar(range(len(leaders)), [x.reviews for x in leaders], color=colours)
    ax.set_xticks(range(len(leaders)), [x.word for x in leaders], rotation=60, ha="right")
    ax.set_ylabel("reviews it leads in")
    if not leaders:
        said = "no review is decided with confidence above 0.95"
        ax.text(0.5, 0.5, said, ha="center", transform=ax.transAxes)
    return figure


class Example(NamedTuple):
    """A review through the layers, and the share of each of its distinct words."""

    trajectory: cy.Trajectory
    weight: np.ndarray


def _examples(r: Run) -> dict[str, Example]:
    """A positive and a negative test review that are decided rightly, surely and by few words."""
    out = {}
    for kind, sign in (("positive", 1.0), ("negative", -1.0)):
        right = (r.test.y == (sign > 0)) & (sign * r.led.decision > 0)
        fits = right & (r.test.sizes >= 15) & (r.test.sizes <= 60)
        rows = np.flatnonzero(fits if fits.any() else right)
        if not len(rows):
            continue
        # not the surest: it has a dozen leaders; the one of the upper quarter with the fewest
        sure = rows[np.argsort(-sign * r.led.decision[rows], kind="stable")]
        upper = sure[: max(1, len(sure) // 4)]
        row = int(upper[np.argmin(r.led.leaders[upper])])
        terms = r.test.terms[row, : r.test.sizes[row]]
        words = tuple(r.words[j] for j in terms)
        z0 = r.weights["embedding"][terms]
        trajectory = cy.simulate(cy.PureAttention(alpha=r.alpha), z0, layers=LAYERS, words=words)
        count = r.test.count[row, : len(terms)].astype(float)
        out[kind] = Example(trajectory, count / count.sum())
    return out


def _panels(r: Run, example: Example) -> Any:
    trajectory, ink = example.trajectory, cy.plot.INK
    shown = (0, 1, 2, LAYERS)
    figure = cy.plot.layers(trajectory, show=shown)
    if trajectory.z.shape[-1] != 2:
        return figure
    figure.set_size_inches(3.1 * len(shown), 3.9)
    v, b = r.weights["v"], float(r.weights["b"])
    foot, along = -b * v / (v @ v), np.array([-v[1], v[0]]) / np.linalg.norm(v)
    boundary = foot + np.outer([-1e3, 1e3], along)
    names = trajectory.words or ()
    for ax, k in zip(figure.axes, shown):
        z = trajectory.at(k)
        box = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
        ax.plot(*boundary.T, color=ink, lw=1.0, ls="--", zorder=1)
        ax.plot(*(example.weight @ z), "X", color=ink, ms=8, mec="white", zorder=12)
        ax.set(**box)
        for i in cy.roles(trajectory).led_at(k):
            ax.annotate(names[i], z[i], xytext=(4, 4), textcoords="offset points",
                        fontsize=cy.plot.TICK, zorder=13)  # fmt: skip
    return figure


def _movie(kind: str, trajectory: cy.Trajectory) -> cy.Picture:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "movie.gif"
        cy.movie.movie(trajectory, path, size=420)
        data = path.read_bytes()
    caption = "Words gather around their leaders (stars)."
    return cy.Picture(f"The {kind} review, layer by layer", caption, data)
