"""Does clustering help a sentiment model, and what does it buy? Ablations.

See docs/mathematics.md E12 and E13.

The learned model of arXiv 2407.01602 is trained again with one part changed at a time: the
attention (hardmax; softmax at several temperatures; uniform; frozen random; none), the depth, the
mask on padding, a feed-forward map between the layers, a normalisation of the tokens. Each variant
has several seeds; the epoch is chosen on held-out blocks.

The key control is depth 0, a bag of learned words: where it is as accurate, attention did not help
the *accuracy*. What it buys is then the number of places a reader must look at: `leaders` and
`places` per review against the number of distinct words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...theorems import Check
from .._frame import Progress, at_most
from ._sentiment import (
    Reviews,
    Task,
    Training,
    Variant,
    evaluate,
    evenly,
    final_tokens,
    initial,
    led,
    numbered,
    one_thread,
    task,
    train,
    with_padding,
)

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Does clustering help? Sentiment with parts of the model changed"


@final
@dataclass(frozen=True)
class Params:
    """`data`: reviews, "" for made-up ones; `reviews` per part, first `tokens` words of each, the
    `words` commonest known; tokens in R^dim; `seeds` runs of each variant."""

    data: str = ""
    reviews: int = 3000
    tokens: int = 96
    words: int = 4000
    dim: int = 2
    temperatures: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)
    depths: tuple[int, ...] = (0, 1, 2, 4, 8, 16)
    hidden: int = 16
    seeds: int = 3
    epochs: int = 20
    rate: float = 2e-2
    batch: int = 64
    patience: int = 3
    counted: int = 500


QUICK = Params(
    reviews=120, temperatures=(0.1, 0.001), depths=(0, 2), seeds=2, epochs=3, rate=5e-2, batch=32,
    counted=60,
)  # fmt: skip


class Case(NamedTuple):
    """A variant to train: its group in the table, its name, its layers, padding masked or not."""

    group: str
    name: str
    variant: Variant
    masked: bool = True


class Outcome(NamedTuple):
    """Its runs, one entry per seed: accuracies as trained and with hardmax at test, leaders at
    layer 0 and at any, distinct places after the last, agreement with a linear model."""

    case: Case
    accuracy: np.ndarray
    hard: np.ndarray
    initial: np.ndarray
    leaders: np.ndarray
    on_leaders: np.ndarray
    places: np.ndarray
    agreement: np.ndarray
    alpha: np.ndarray
    parameters: np.ndarray


def run(p: Params, progress: Progress | None = None) -> Report:
    """Train every variant with every seed."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.seeds < 2:
        raise ValueError(f"seeds: an interval needs at least 2, got {p.seeds}")
    data = task(numbered(p.data, p.reviews, 0), tokens=p.tokens, most=p.words)
    linear = _bag_of_words(data)
    cases = list(_cases(p))
    outcomes = []
    for i, case in enumerate(cases):
        rows = []
        for seed in range(p.seeds):
            say(0.95 * (i + seed / p.seeds) / len(cases), f"{case.name}, seed {seed}")
            with one_thread():
                rows.append(_one(p, case, data, seed, linear))
        columns = [np.array(column, float) for column in zip(*rows)]
        outcomes.append(Outcome(case, *columns))
    say(0.95, "figures")
    truth = data.test.y
    bag = float((linear == truth).mean())
    say(1.0, "done")
    by_name = {o.case.name: o for o in outcomes}
    return Report(
        TITLE,
        _summary(p, by_name, data, bag),
        asdict(p),
        (_table(outcomes, data, bag), _paired(p, outcomes, by_name)),
        {"padding": (_padding_is_inert(p, data),)},
        (
            Picture("Accuracy of every variant", _DOTS, _dots(outcomes, bag)),
            Picture("Depth", _DEPTH, _depth_figure(p, outcomes)),
            Picture("What clustering buys", _BUYS, _trade(outcomes, data)),
        ),
        command="cynosure run sentiment_ablation",
    )


_DOTS = (
    "Test accuracy: every run a dot, the mean with its 95 % interval over seeds; the dashed line "
    "is logistic regression on the same words. Depth 0 is the control: a bag of learned words."
)
_DEPTH = (
    "Accuracy (left) and what is left of a review (right) against the number of layers: the tokens "
    "of a review end in ever fewer distinct places, down to its leaders; this is paid in accuracy."
)
_BUYS = (
    "Each variant by the number of distinct places its tokens end in (what a reader of the model "
    "has to look at) and its accuracy. Left and high is good, but for uniform attention: its one "
    "place is the mean of all words, unchanged by every layer, and names none of them."
)


def _cases(p: Params) -> Iterator[Case]:
    deepest = 8 if 8 in p.depths else max(p.depths)
    base = Variant("hardmax", layers=deepest)
    yield Case("attention", "hardmax", base)
    for tau in p.temperatures:
        yield Case("attention", f"softmax, tau = {tau:g}", Variant("softmax", tau, deepest))
    yield Case("attention", "uniform", Variant("uniform", layers=deepest))
    yield Case("attention", "random, frozen", Variant("random", layers=deepest))
    for k in p.depths:
        if k != deepest:
            name = "no attention (depth 0)" if k == 0 else f"depth {k}"
            yield Case("depth", name, replace(base, layers=k))
    yield Case("padding", "padding not masked", base, masked=False)
    yield Case("feed-forward", f"feed-forward, width {p.hidden}", replace(base, hidden=p.hidden))
    none = replace(base, attention="uniform", layers=1)
    yield Case("feed-forward", "uniform once, feed-forward", replace(none, hidden=p.hidden))
    yield Case("norm", "unit sphere", replace(base, norm="sphere"))
    yield Case("norm", "LayerNorm", replace(base, norm="layer"))


def _one(p: Params, case: Case, data: Task, seed: int, linear: np.ndarray) -> tuple[float, ...]:
    """Train one seed of one variant and measure it on the test part."""
    words = len(data.words)
    if not case.masked:
        padded = (with_padding(r, p.tokens, words) for r in (data.kept, data.held, data.test))
        data, words = Task(data.words, *padded), words + 1
    settings = Training(p.epochs, p.rate, p.batch, patience=p.patience, seed=seed)
    *_, last = train(data, p.dim, case.variant, settings, {}, words)
    w, v = last.best, case.variant
    decision = evaluate(w, data.test, v)
    hard = evaluate(w, data.test, v.hard) if v.hard != v else decision
    truth = data.test.y
    some = data.test.take(evenly(len(data.test), p.counted))
    alpha = float(np.logaddexp(0.0, float(w["step"])))
    initial, leaders, share = _leaders(case, w, alpha, some)
    size = sum(x.numel() for k, x in w.items() if k != "frozen")
    return (
        float(((decision > 0) == truth).mean()), float(((hard > 0) == truth).mean()), initial,
        leaders, share, _places(w, some, v), float(((decision > 0) == linear).mean()),
        alpha if v.layers else np.nan, float(size),
    )  # fmt: skip


def _leaders(
    case: Case, w: dict[str, Any], alpha: float, some: Reviews
) -> tuple[float, float, float]:
    """Mean number of words that lead at layer 0, at any layer, and the weight on leaders.

    The last two are for the pure layers only: after a feed-forward map or a norm a leader moves.
    """
    v = case.variant
    if v.attention not in ("softmax", "hardmax") or v.layers == 0:
        return np.nan, np.nan, np.nan
    z, _ = final_tokens(w, some, replace(v, layers=0))
    mask = some.count > 0
    score = np.where(mask[:, None, :], z @ z.swapaxes(1, 2), -np.inf)
    own = np.take_along_axis(score, np.arange(z.shape[1])[None, :, None], axis=2)[..., 0]
    np.einsum("bii->bi", score)[...] = -np.inf
    first = float(((own > score.max(axis=2)) & mask).sum(axis=1).mean())
    if v.hidden or v.norm:
        return first, np.nan, np.nan
    v_, b = w["v"].double().numpy(), float(w["b"])
    found = led(w["embedding"].numpy(), v_, b, alpha, some, v.layers)
    return first, float(found.leaders.mean()), float(found.on_leaders.mean())


def _places(w: dict[str, Any], some: Reviews, variant: Variant) -> float:
    """Distinct places of a review's tokens at the end, on a grid of 5 % of their initial size."""
    z, start = (final_tokens(w, some, x)[0] for x in (variant, replace(variant, layers=0)))
    mask = some.count > 0
    grid = 0.05 * float(np.sqrt((start[mask] ** 2).sum(axis=1).mean()))
    return float(np.mean([len(np.unique(np.round(x[m] / grid), axis=0)) for x, m in zip(z, mask)]))


def _bag_of_words(data: Task) -> np.ndarray:
    """Test predictions of logistic regression on the share of each word."""
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression

    def shares(r: Reviews) -> Any:
        mask = r.count > 0
        row = np.repeat(np.arange(len(r)), mask.sum(axis=1))
        share = (r.count / np.sqrt((r.count**2).sum(axis=1, keepdims=True)))[mask]
        return csr_array((share, (row, r.terms[mask])), shape=(len(r), len(data.words)))

    fits = [LogisticRegression(C=C, max_iter=500) for C in (0.3, 1.0, 3.0, 10.0)]
    x, held = shares(data.kept), shares(data.held)
    best = max(fits, key=lambda fit: fit.fit(x, data.kept.y).score(held, data.held.y))
    return best.predict(shares(data.test))


def _padding_is_inert(p: Params, data: Task) -> Check:
    """A judge of the masks: the same reviews with wider padding get the same decisions."""
    variant = Variant("hardmax", layers=2)
    w = initial(len(data.words), p.dim, variant, 0, 1.0)
    some = data.test.take(np.arange(min(50, len(data.test))))
    wide = replace(
        some,
        terms=np.pad(some.terms, ((0, 0), (0, 16))),
        count=np.pad(some.count, ((0, 0), (0, 16))),
    )
    apart = float(np.abs(evaluate(w, some, variant) - evaluate(w, wide, variant)).max())
    return at_most(
        "padding", "conventions", "padding changes no decision of the masked model", apart, 1e-5
    )


# --- tables and figures -------------------------------------------------------------------------


def _interval(x: np.ndarray) -> float:
    """Half width of the 95 % interval of the mean (Student)."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))


def _mean(x: np.ndarray) -> float | None:
    return None if np.isnan(x).any() else float(x.mean())


def _table(outcomes: list[Outcome], data: Task, bag: float) -> Table:
    rows = tuple(
        (
            o.case.group, o.case.name, float(o.accuracy.mean()), _interval(o.accuracy),
            float(o.hard.mean()), _mean(o.initial), _mean(o.leaders), _mean(o.on_leaders),
            float(o.places.mean()), float(o.agreement.mean()), _mean(o.alpha), int(o.parameters[0]),
        )
        for o in outcomes
    )  # fmt: skip
    columns = (
        "group", "variant", "test accuracy", "± 95 %", "with hardmax at test",
        "leaders at layer 0", "leaders", "weight on leaders", "places at the end",
        "agrees with bag of words", "alpha", "parameters",
    )  # fmt: skip
    note = (
        f"{len(data.kept)} reviews to train, {len(data.test)} to test, "
        f"{data.test.sizes.mean():.1f} distinct words each; logistic regression on the same words "
        f"has {bag:.4f}. Places: distinct ends of a review's tokens."
    )
    return Table("Variants", columns, rows, note)


def _paired(p: Params, outcomes: list[Outcome], by_name: dict[str, Outcome]) -> Table:
    """Differences to the pure hardmax model, seed by seed."""
    base = by_name["hardmax"].accuracy
    rows = tuple(
        (o.case.name, float((o.accuracy - base).mean()), _interval(o.accuracy - base))
        for o in outcomes
        if o.case.name != "hardmax"
    )
    note = f"Same seed, same start and batches; {p.seeds} seeds."
    return Table("Accuracy minus that of hardmax", ("variant", "mean", "± 95 %"), rows, note)


def _summary(p: Params, by_name: dict[str, Outcome], data: Task, bag: float) -> str:
    base = by_name["hardmax"]
    none = by_name.get("no attention (depth 0)")
    out = []
    if none is not None:
        gap = base.accuracy - none.accuracy
        half = _interval(gap)
        verdict = (
            "these seeds show no difference"
            if abs(gap.mean()) <= half
            else f"learned clustering {'helps' if gap.mean() > 0 else 'costs accuracy'}"
        )
        out.append(
            f"Does clustering help? Hardmax has {base.accuracy.mean():.4f}, depth 0 "
            f"{none.accuracy.mean():.4f}: a difference of {gap.mean():+.4f} ± {half:.4f}; "
            f"{verdict}. Logistic regression on the same words has {bag:.4f}."
        )
        out.append(
            f"What does it buy? A review of {data.test.sizes.mean():.1f} distinct words ends in "
            f"{base.places.mean():.1f} places, of which {base.leaders.mean():.1f} are leaders' "
            f"({base.on_leaders.mean():.1%} of the mean token lies on leaders); without attention "
            f"there are {none.places.mean():.1f} places to look at."
        )
    random = by_name["random, frozen"]
    out.append(
        "Uniform attention keeps the mean token, so it *is* depth 0 "
        f"({by_name['uniform'].accuracy.mean():.4f}) whatever the depth. With frozen random scores "
        f"training turns the attention off: alpha goes to {random.alpha.mean():.3f}, accuracy to "
        f"{random.accuracy.mean():.4f}."
    )
    best = max(by_name.values(), key=lambda o: o.accuracy.mean())
    worst = min(by_name.values(), key=lambda o: o.accuracy.mean())
    out.append(
        f"The best variant is {best.case.name} ({best.accuracy.mean():.4f}), the worst "
        f"{worst.case.name} ({worst.accuracy.mean():.4f}); {p.seeds} seeds each, d = {p.dim}."
    )
    return "\n\n".join(out)


def _dots(outcomes: list[Outcome], bag: float) -> Any:
    from ...drawing.plot import INK, PALETTE

    figure, axes = sheet(1, 1, 7.2, 0.9 + 0.3 * len(outcomes))
    ax = axes[0, 0]
    groups = list(dict.fromkeys(o.case.group for o in outcomes))
    for y, o in enumerate(reversed(outcomes)):
        colour = PALETTE[groups.index(o.case.group)]
        ax.plot(o.accuracy, np.full(len(o.accuracy), y), "o", color=colour, ms=4, alpha=0.45)
        ax.errorbar(o.accuracy.mean(), y, xerr=_interval(o.accuracy), fmt="D", color=colour, ms=5,
                    capsize=3)  # fmt: skip
    ax.axvline(bag, color=INK, ls="--", lw=1)
    every = np.concatenate([o.accuracy for o in outcomes] + [np.array([bag])])
    ax.set_xlim(every.min() - 0.02, every.max() + 0.02)  # two seeds have very wide intervals
    ax.set_yticks(range(len(outcomes)), [o.case.name for o in reversed(outcomes)])
    ax.set_xlabel("test accuracy")
    return figure


def _depth_figure(p: Params, outcomes: list[Outcome]) -> Any:
    from ...drawing.plot import PALETTE

    plain = [
        o for o in outcomes
        if o.case.variant.attention == "hardmax" and o.case.masked
        and not o.case.variant.hidden and not o.case.variant.norm
    ]  # fmt: skip
    plain.sort(key=lambda o: o.case.variant.layers)
    depth = [o.case.variant.layers for o in plain]
    figure, axes = sheet(1, 2, 4.2, 3.0)
    left, right = axes[0]
    left.errorbar(depth, [o.accuracy.mean() for o in plain], [_interval(o.accuracy) for o in plain],
                  fmt="o-", color=PALETTE[0], capsize=3)  # fmt: skip
    left.set(xlabel="layers", ylabel="test accuracy")
    right.plot(depth, [o.places.mean() for o in plain], "o-", color=PALETTE[1], label="places")
    led_ = [(k, o.leaders.mean()) for k, o in zip(depth, plain) if k]
    right.plot(*zip(*led_), "s--", color=PALETTE[2], label="leaders")
    right.set(xlabel="layers", ylabel="per review")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize="small")
    return figure


def _trade(outcomes: list[Outcome], data: Task) -> Any:
    from matplotlib.lines import Line2D

    from ...drawing.plot import GREY, PALETTE

    figure, axes = sheet(1, 1, 8.4, 4.2)
    ax = axes[0, 0]
    groups = list(dict.fromkeys(o.case.group for o in outcomes))
    together: dict[tuple[float, float], list[int]] = {}  # points too close for two numbers
    key = []
    for number, o in enumerate(outcomes, 1):
        x, y = float(o.places.mean()), float(o.accuracy.mean())
        colour = PALETTE[groups.index(o.case.group)]
        ax.plot(x, y, "o", color=colour, ms=6)
        near = (k for k in together if abs(k[0] / x - 1) < 0.1 and abs(k[1] - y) < 0.006)
        together.setdefault(next(near, (x, y)), []).append(number)
        name = f"{number}  {o.case.name}"
        key.append(Line2D([], [], marker="o", ls="", color=colour, label=name))
    for place, numbers in together.items():
        text = ", ".join(map(str, numbers))
        ax.annotate(text, place, xytext=(5, 4), textcoords="offset points", fontsize=8)
    ax.axvline(data.test.sizes.mean(), color=GREY, lw=0.8, ls=":")
    ticks = [1, 2, 5, 10, 20, 50, 100]
    ax.set(xscale="log", xlabel="distinct places of a review's tokens at the end",
           ylabel="test accuracy")  # fmt: skip
    ax.set_xticks(ticks, map(str, ticks))
    ax.set_xticks([], minor=True)
    fewest = min(float(o.places.mean()) for o in outcomes)
    ax.set_xlim(0.75 * fewest, 1.3 * data.test.sizes.mean())
    figure.legend(handles=key, loc="outside right upper", frameon=False, fontsize="small")
    return figure
