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

import json
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.leaders import roles
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention
from ...simulation.loop import simulate
from ...simulation.trajectory import Trajectory
from ...theorems import Check, check
from .._frame import Progress, at_most
from ._sentiment import (
    Ids,
    Led,
    Reviews,
    Task,
    Training,
    Variant,
    evenly,
    led,
    numbered,
    one_thread,
    task,
    train,
)
from ._sentiment_gpu import history_of

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Sentiment as in the paper: soft training, hard leaders"
LAYERS = 8
# docs/mathematics.md D4, published histories: best test epoch (chosen on the test set), last epoch
PUBLISHED = {2: (0.7914, 0.7914), 4: (0.8228, 0.8027), 8: (0.8505, 0.8134), 16: (0.8821, 0.8457)}
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


class Run(NamedTuple):
    """One trained model: its history, its weights, its reviews, and what hardmax makes of them."""

    history: dict[str, Any]
    weights: dict[str, np.ndarray]
    task: Task
    test: Reviews
    led: Led
    real: bool

    @property
    def dim(self) -> int:
        return int(self.history["dim"])

    @property
    def name(self) -> str:
        return f"d = {self.dim}, n = {self.history['tokens']}"

    @property
    def alpha(self) -> float:
        return float(np.logaddexp(0.0, float(self.weights["step"])))

    @property
    def chosen(self) -> dict[str, Any]:
        """The measurements of the epoch with the best held-out loss."""
        return self.history["epochs"][self.history["best_epoch"] - 1]

    @property
    def published(self) -> tuple[float | None, float | None]:
        """The paper's accuracy for this d, best and last epoch; none beside made-up reviews."""
        return PUBLISHED.get(self.dim, (None, None)) if self.real else (None, None)

    def series(self, what: str) -> list[float]:
        return [float(epoch[what]) for epoch in self.history["epochs"]]

    def score(self, z: np.ndarray) -> np.ndarray:
        """<v, z> + b: how a token alone would be read."""
        return z @ self.weights["v"] + float(self.weights["b"])


def run(p: Params, progress: Progress | None = None) -> Report:
    """Read or train the models, then count, draw and check."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    say(0.0, "reviews")
    ids = numbered(p.data, 0 if p.results else p.reviews, p.seed)
    runs = _stored(p, ids, say) if p.results else _trained(p, ids, say)
    say(0.75, "figures")
    first = min(runs, key=lambda r: (r.dim, r.history["tokens"]))  # the most readable
    examples = _examples(first)
    figures = (
        Picture("Accuracy by epoch", _ACCURACY, _curves(runs, "accuracy")),
        Picture("Loss by epoch", _LOSS, _curves(runs, "loss")),
        Picture("Words that lead", _LEADING.format(first.name), _histogram(first)),
        *(
            Picture(f"A {kind} review", _REVIEW.format(first.name), _panels(first, example))
            for kind, example in examples.items()
        ),
    )
    say(0.9, "movies")
    movies = tuple(_movie(kind, e.trajectory) for kind, e in examples.items()) if p.movies else ()
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(runs, first),
        asdict(p),
        (_accuracies(runs), _leader_table(runs), _leading_words(first)),
        {"all runs": (_soft_is_hard(runs),)}
        | {f"{kind} review": tuple(check(e.trajectory)) for kind, e in examples.items()},
        figures,
        movies,
        command="cynosure run sentiment_paper",
    )


# --- the runs -----------------------------------------------------------------------------------


def _trained(p: Params, ids: Ids, say: Progress) -> list[Run]:
    data = task(ids, tokens=p.tokens)
    soft = Variant(layers=LAYERS)
    settings = Training(p.epochs, p.rate, p.batch, patience=p.patience, seed=p.seed)
    watch = {
        "train soft": (data.kept, soft), "train hard": (data.kept, soft.hard),
        "test soft": (data.test, soft), "test hard": (data.test, soft.hard),
    }  # fmt: skip
    runs = []
    for i, dim in enumerate(p.dims):
        steps = []
        with one_thread():
            for step in train(data, dim, soft, settings, watch):
                share = (i + step.epoch / p.epochs) / len(p.dims)
                say(0.05 + 0.7 * share, f"d = {dim}, epoch {step.epoch}")
                steps.append(step)
        history = history_of(data, dim, p.tokens, False, settings, steps)
        weights = {k: w.numpy() for k, w in steps[-1].best.items()}
        runs.append(_counted(p, history, weights, data))
        say(0.05 + 0.7 * (i + 1) / len(p.dims), "leaders")
    return runs


def _stored(p: Params, ids: Ids, say: Progress) -> list[Run]:
    from safetensors.numpy import load_file

    files = sorted(Path(p.results).glob("d*_n*.json"))
    if not files:
        raise ValueError(f"results: {p.results} has no d<dim>_n<tokens>.json; see the module")
    histories = sorted(
        ((json.loads(file.read_bytes()), file) for file in files),
        key=lambda found: (found[0]["tokens"], found[0]["dim"]),
    )
    tasks: dict[tuple[int, bool], Task] = {}
    runs = []
    for i, (history, file) in enumerate(histories):
        say(0.05 + 0.7 * i / len(files), file.stem)
        key = int(history["tokens"]), bool(history["stop_words"])
        if key not in tasks:
            tasks[key] = task(ids, tokens=key[0], stop_words=key[1])
        data = tasks[key]
        same = history.get("vocabulary", data.fingerprint) == data.fingerprint
        if len(data.words) != history["words"] or not same:
            raise ValueError(
                f"{file.name}: trained on other words ({history['words']}; these reviews give "
                f"{len(data.words)}); name the reviews it was trained on as data"
            )
        runs.append(_counted(p, history, load_file(file.with_suffix(".safetensors")), data))
    return runs


def _counted(p: Params, history: dict[str, Any], weights: dict[str, np.ndarray], data: Task) -> Run:
    weights = {k: np.asarray(w, np.float64) for k, w in weights.items()}
    test = data.test.take(evenly(len(data.test), p.counted))
    alpha = float(np.logaddexp(0.0, float(weights["step"])))
    found = led(weights["embedding"], weights["v"], float(weights["b"]), alpha, test, LAYERS)
    return Run(history, weights, data, test, found, bool(p.data))


# --- tables -------------------------------------------------------------------------------------


def _accuracies(runs: list[Run]) -> Table:
    rows = []
    for r in runs:
        best, last = r.chosen, r.history["epochs"][-1]
        rows.append(
            (
                r.dim, r.history["tokens"], r.history["words"], len(r.history["epochs"]),
                r.history["best_epoch"], best["train soft accuracy"], best["held accuracy"],
                best["test soft accuracy"], best["test hard accuracy"],
                last["test hard accuracy"], max(r.series("test hard accuracy")), r.alpha,
                *r.published,
            )
        )  # fmt: skip
    columns = (
        "d", "n", "words", "epochs", "chosen epoch", "train", "held out", "test, soft",
        "test, hard", "last epoch", "best on test", "alpha", "published best on test",
        "published last",
    )  # fmt: skip
    note = (
        "Test accuracies of the epoch with the lowest held-out loss. `best on test` picks the "
        "epoch on the test part, as the published maxima do: it is no fair number. The published "
        "ones are from another split (the last 15,000 of 50,000), padding not masked, n = 128."
    )
    return Table("Accuracy", columns, tuple(rows), note)


def _leader_table(runs: list[Run]) -> Table:
    rows = tuple(
        (
            r.dim, r.history["tokens"], len(r.test), float(r.led.leaders.mean()),
            float(r.led.leaders.std()), int(r.led.leaders.min()), int(r.led.leaders.max()),
            float(r.led.initial.sum() / max(r.led.leaders.sum(), 1)),
            float(r.test.sizes.mean()), float((r.led.leaders / r.test.sizes).mean()),
            float(r.led.on_leaders.mean()),
        )
        for r in runs
    )  # fmt: skip
    columns = (
        "d", "n", "reviews", "leaders, mean", "std", "min", "max", "leading from layer 0",
        "distinct words", "share of words that lead", "weight on leaders",
    )  # fmt: skip
    note = "Hardmax, 8 layers, test reviews. A repeated word is one token with a multiplicity."
    return Table("Leaders", columns, rows, note)


def _leading(r: Run) -> Counter[int]:
    """The paper's count: reviews right with confidence > 0.95, leaders with |score| > 2."""
    sure = (np.abs(r.led.decision) > np.log(0.95 / 0.05)) & ((r.led.decision > 0) == r.test.y)
    embedded = r.score(r.weights["embedding"])
    led_by = r.test.terms[sure][(r.led.born[sure] == 0)]
    return Counter(led_by[np.abs(embedded[led_by]) > 2].tolist())


def _leading_words(r: Run) -> Table:
    scores = r.score(r.weights["embedding"])
    rows = tuple(
        (word, k, float(scores[j]), PUBLISHED_LEADERS.get(word) if r.real else None)
        for j, k in _leading(r).most_common(15)
        for word in [r.task.words[j]]
    )
    note = (
        "Reviews decided rightly with confidence above 0.95; leaders from layer 0 with "
        "|<v, z> + b| > 2. The published counts are over all reviews of another split."
    )
    columns = ("word", "reviews it leads in", "score", "published")
    return Table(f"Words that lead, {r.name}", columns, rows, note)


def _soft_is_hard(runs: list[Run]) -> Check:
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
        f"from layer 0 ({first.led.initial.sum() / max(first.led.leaders.sum(), 1):.1%} for "
        f"{first.name}). The step alpha, free to fade, ends between {slow.alpha:.2f} ({slow.name}) "
        f"and {max(r.alpha for r in runs):.2f}; where small, {slow.led.on_leaders.mean():.0%} "
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
_LEADING = (
    "How often a word leads, {}: reviews decided rightly with confidence above 0.95, leaders far "
    "from the boundary, as the paper counts. Blue speaks for positive, orange for negative."
)
_REVIEW = (
    "One test review through the hardmax layers of {}, its leaders named. The line is the decision "
    "boundary <v, z> + b = 0, the cross the mean token, whose side is the prediction."
)


def _curves(runs: list[Run], what: str) -> Any:
    from ...drawing.plot import GREY, INK, PALETTE

    columns = min(4, len(runs))
    figure, axes = sheet(-(-len(runs) // columns), columns, 3.3, 2.9)
    lines = (
        (f"train soft {what}", "train, softmax", PALETTE[5], "-"),
        (f"train hard {what}", "train, hardmax", INK, ":"),
        (f"held {what}", "held out", PALETTE[2], "-"),
        (f"test soft {what}", "test, softmax", PALETTE[0], "-"),
        (f"test hard {what}", "test, hardmax", PALETTE[1], "--"),
    )
    for ax in axes.flat[len(runs) :]:
        ax.set_visible(False)
    for ax, r in zip(axes.flat, runs):
        epochs = r.series("epoch")
        for name, label, colour, style in lines:
            ax.plot(epochs, r.series(name), style, color=colour, lw=1.4, label=label)
        ax.axvline(r.history["best_epoch"], color=GREY, lw=0.8)
        if what == "accuracy" and r.published[0] is not None:
            ax.axhline(r.published[0], color=GREY, lw=0.9, ls="--")
        ax.set(title=r.name, xlabel="epoch")
    axes[0, 0].set_ylabel(what)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5,
                  frameon=False, fontsize="small")  # fmt: skip
    return figure


def _histogram(r: Run) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 1, 7.0, 3.2)
    ax = axes[0, 0]
    found = _leading(r).most_common(20)
    scores = r.score(r.weights["embedding"])
    colours = [PALETTE[0] if scores[j] > 0 else PALETTE[1] for j, _ in found]
    ax.bar(range(len(found)), [k for _, k in found], color=colours)
    ax.set_xticks(range(len(found)), [r.task.words[j] for j, _ in found], rotation=60, ha="right")
    ax.set_ylabel("reviews it leads in")
    if not found:
        ax.text(0.5, 0.5, "no review is decided with confidence above 0.95", ha="center",
                transform=ax.transAxes)  # fmt: skip
    return figure


class Example(NamedTuple):
    """A review through the layers, and the share of each of its distinct words."""

    trajectory: Trajectory
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
        words = tuple(r.task.words[j] for j in terms)
        dynamics = PureAttention(alpha=r.alpha)
        z0 = r.weights["embedding"][terms]
        count = r.test.count[row, : len(terms)].astype(float)
        out[kind] = Example(simulate(dynamics, z0, layers=LAYERS, words=words), count / count.sum())
    return out


def _panels(r: Run, example: Example) -> Any:
    from ...drawing import plot

    trajectory = example.trajectory
    show = [k for k in (0, 1, 2, LAYERS) if k <= LAYERS]
    figure = plot.layers(trajectory, show=show)
    if trajectory.z.shape[-1] != 2:
        return figure
    figure.set_size_inches(3.1 * len(show), 3.9)
    v, b = r.weights["v"], float(r.weights["b"])
    names = trajectory.words or ()
    for ax, k in zip(figure.axes, show):
        z = trajectory.at(k)
        box = (*ax.get_xlim(), *ax.get_ylim())
        foot, along = -b * v / (v @ v), np.array([-v[1], v[0]]) / np.linalg.norm(v)
        ends = foot + np.outer([-1e3, 1e3], along)
        ax.plot(*ends.T, color=plot.INK, lw=1.0, ls="--", zorder=1)
        ax.plot(*(example.weight @ z), "X", color=plot.INK, ms=8, mec="white", zorder=12)
        ax.set(xlim=box[:2], ylim=box[2:])
        for i in roles(trajectory).led_at(k):
            ax.annotate(names[i], z[i], xytext=(4, 4), textcoords="offset points", fontsize=8,
                        zorder=13)  # fmt: skip
    return figure


def _movie(kind: str, trajectory: Trajectory) -> Picture:
    from ...drawing.movie import movie

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "movie.gif"
        movie(trajectory, path, size=420)
        data = path.read_bytes()
    return Picture(
        f"The {kind} review, layer by layer", "Words gather around their leaders (stars).", data
    )
