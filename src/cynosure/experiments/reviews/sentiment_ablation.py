"""Does clustering help a sentiment model, and what does it buy? Ablations.

See docs/mathematics.md E12 and E13.

The learned model of arXiv 2407.01602 is trained again with one part changed at a time: the
attention (hardmax; softmax at several temperatures; uniform; random, untrained; none), the depth,
the mask on padding, a feed-forward map between the layers, a normalisation of the tokens. Each
variant has several seeds; the epoch is chosen on held-out blocks.

The key control is depth 0, a bag of learned words: where it is as accurate, attention did not help
the *accuracy*. What it buys is then the number of places a reader must look at: `leaders` and
`places` per review against the number of distinct words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

import cynosure as cy

from ...classifier.soft_model import Schedule
from .._frame import Progress, at_most, report_of, silent
from ._reviews import Reviews, Split, evenly, numbered, split, with_padding
from ._sentiment import alpha_of, evaluate, initial, one_thread, train
from ._variants import Variant, leaders, places

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
    """Its fits, one entry per seed: accuracies as trained and with hardmax at test, leaders at
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


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Train every variant with every seed."""
    say = progress or silent
    if p.seeds < 2:
        raise ValueError(f"seeds: an interval needs at least 2, got {p.seeds}")
    data = split(numbered(p.data, p.reviews, 0), tokens=p.tokens, most=p.words)
    linear = _bag_of_words(data)
    cases, outcomes = list(_cases(p)), []
    for i, case in enumerate(cases):
        fits = []
        for seed in range(p.seeds):
            say(0.95 * (i + seed / p.seeds) / len(cases), f"{case.name}, seed {seed}")
            with one_thread():
                fits.append(_fit(p, case, data, seed, linear))
        outcomes.append(Outcome(case, **{k: np.array([f[k] for f in fits]) for k in fits[0]}))
    say(0.95, "figures")
    bag = float((linear == data.test.y).mean())
    by_name = {o.case.name: o for o in outcomes}
    return report_of(
        __name__,
        p,
        _summary(p, by_name, data, bag),
        tables=(_table(outcomes, data, bag), _paired(p, by_name)),
        checks={"padding": [_padding_is_inert(p, data)]},
        figures=(
            cy.Picture("Accuracy of every variant", _DOTS, _dots(outcomes, bag)),
            cy.Picture("Depth", _DEPTH, _depth_figure(outcomes)),
            cy.Picture("What clustering buys", _BUYS, _trade(outcomes, data)),
        ),
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
    base = Variant(layers=deepest)
    yield Case("attention", "hardmax", base)
    for tau in p.temperatures:
        yield Case("attention", f"softmax, tau = {tau:g}", replace(base, temperature=tau))
    yield Case("attention", "uniform", replace(base, attention="uniform"))
    yield Case("attention", "random, untrained", replace(base, attention="random"))
    for k in p.depths:
        if k != deepest:
            name = "no attention (depth 0)" if k == 0 else f"depth {k}"
            yield Case("depth", name, replace(base, layers=k))
    yield Case("padding", "padding not masked", base, masked=False)
    yield Case("feed-forward", f"feed-forward, width {p.hidden}", replace(base, hidden=p.hidden))
    once = Variant("uniform", layers=1, hidden=p.hidden)
    yield Case("feed-forward", "uniform once, feed-forward", once)
    yield Case("norm", "unit sphere", replace(base, norm="sphere"))
    yield Case("norm", "LayerNorm", replace(base, norm="layer"))


def _fit(p: Params, case: Case, data: Split, seed: int, linear: np.ndarray) -> dict[str, float]:
    """Train one seed of one variant; the fields of `Outcome`, on the test part."""
    v, words = case.variant, len(data.words)
    if not case.masked:
        padded = (with_padding(r, p.tokens, words) for r in (data.train, data.held, data.test))
        data, words = Split(data.words, *padded), words + 1
    schedule = Schedule(p.epochs, p.rate, p.batch, patience=p.patience, seed=seed)
    *_, last = train(data, p.dim, v, schedule, words=words)
    w, truth = last.best, data.test.y
    decision = evaluate(w, data.test, v)
    hard = evaluate(w, data.test, v.hard) if v.hard != v else decision
    some = data.test.take(evenly(len(data.test), p.counted))
    first, every, share = leaders(v, w, some)
    return {
        "accuracy": float(((decision > 0) == truth).mean()),
        "hard": float(((hard > 0) == truth).mean()),
        "initial": first,
        "leaders": every,
        "on_leaders": share,
        "places": places(v, w, some),
        "agreement": float(((decision > 0) == linear).mean()),
        "alpha": alpha_of(w["step"]) if v.layers else np.nan,
        "parameters": float(sum(x.numel() for k, x in w.items() if k != "constant")),
    }


def _bag_of_words(data: Split) -> np.ndarray:
    """Test predictions of logistic regression on the share of each word."""
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression

    def shares(r: Reviews) -> Any:
        mask = r.count > 0
        row = np.repeat(np.arange(len(r)), mask.sum(axis=1))
        share = (r.count / np.sqrt((r.count**2).sum(axis=1, keepdims=True)))[mask]
        return csr_array((share, (row, r.terms[mask])), shape=(len(r), len(data.words)))

    fits = [LogisticRegression(C=C, max_iter=500) for C in (0.3, 1.0, 3.0, 10.0)]
    x, held = shares(data.train), shares(data.held)
    best = max(fits, key=lambda fit: fit.fit(x, data.train.y).score(held, data.held.y))
    return best.predict(shares(data.test))


def _padding_is_inert(p: Params, data: Split) -> cy.Check:
    """A judge of the masks: the same reviews with wider padding get the same decisions."""
    import torch

    variant = Variant(layers=2)
    w = initial(len(data.words), p.dim, variant, 0)
    some = data.test.take(np.arange(min(50, len(data.test))))
    wide = (torch.as_tensor(np.pad(x, ((0, 0), (0, 16)))) for x in (some.terms, some.count))
    padded = variant.decisions(w, *wide).double().numpy()
    apart = float(np.abs(evaluate(w, some, variant) - padded).max())
    return at_most(
        "padding", "conventions", "padding changes no decision of the masked model", apart, 1e-5
    )


# --- tables and figures -------------------------------------------------------------------------


def _interval(x: np.ndarray) -> float:
    """Half width of the 95 % interval of the mean (Student)."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))


def _mean(field: str) -> Any:
    """A column of means over seeds, empty where some seed has no value."""
    return lambda o: None if np.isnan(getattr(o, field)).any() else float(getattr(o, field).mean())


def _table(outcomes: list[Outcome], data: Split, bag: float) -> cy.Table:
    columns = {
        "group": "case.group",
        "variant": "case.name",
        "test accuracy": _mean("accuracy"),
        "± 95 %": lambda o: _interval(o.accuracy),
        "with hardmax at test": _mean("hard"),
        "leaders at layer 0": _mean("initial"),
        "leaders": _mean("leaders"),
        "weight on leaders": _mean("on_leaders"),
        "places at the end": _mean("places"),
        "agrees with bag of words": _mean("agreement"),
        "alpha": _mean("alpha"),
        "parameters": lambda o: int(o.parameters[0]),
    }
    note = (
        f"{len(data.train)} reviews to train, {len(data.test)} to test, "
        f"{data.test.sizes.mean():.1f} distinct words each; logistic regression on the same words "
        f"has {bag:.4f}. Places: distinct ends of a review's tokens."
    )
    return cy.Table.of("Variants", outcomes, columns, note)


def _paired(p: Params, by_name: dict[str, Outcome]) -> cy.Table:
    """Differences to the pure hardmax model, seed by seed."""
    base = by_name["hardmax"].accuracy
    return cy.Table.of(
        "Accuracy minus that of hardmax",
        [o for name, o in by_name.items() if name != "hardmax"],
        {
            "variant": "case.name",
            "mean": lambda o: float((o.accuracy - base).mean()),
            "± 95 %": lambda o: _interval(o.accuracy - base),
        },
        f"Same seed, same start and batches; {p.seeds} seeds.",
    )


def _summary(p: Params, by_name: dict[str, Outcome], data: Split, bag: float) -> str:
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
    random = by_name["random, untrained"]
    out.append(
        "Uniform attention keeps the mean token, so it *is* depth 0 "
        f"({by_name['uniform'].accuracy.mean():.4f}) whatever the depth. With random scores "
        "that are not trained, training turns the attention off: alpha goes to "
        f"{random.alpha.mean():.3f}, accuracy to {random.accuracy.mean():.4f}."
    )
    best = max(by_name.values(), key=lambda o: o.accuracy.mean())
    worst = min(by_name.values(), key=lambda o: o.accuracy.mean())
    out.append(
        f"The best variant is {best.case.name} ({best.accuracy.mean():.4f}), the worst "
        f"{worst.case.name} ({worst.accuracy.mean():.4f}); {p.seeds} seeds each, d = {p.dim}."
    )
    return "\n\n".join(out)


def _colours(outcomes: list[Outcome]) -> list[str]:
    """One colour per group of variants."""
    groups = list(dict.fromkeys(o.case.group for o in outcomes))
    return [cy.plot.PALETTE[groups.index(o.case.group)] for o in outcomes]


def _dots(outcomes: list[Outcome], bag: float) -> Any:
    figure, axes = cy.plot.sheet(1, 1, 7.2, 0.9 + 0.3 * len(outcomes))
    ax = axes[0, 0]
    for y, o, colour in zip(range(len(outcomes))[::-1], outcomes, _colours(outcomes)):
        ax.plot(o.accuracy, np.full(len(o.accuracy), y), "o", color=colour, ms=4, alpha=0.45)
        half = _interval(o.accuracy)
        ax.errorbar(o.accuracy.mean(), y, xerr=half, fmt="D", color=colour, ms=5, capsize=3)
    ax.axvline(bag, color=cy.plot.INK, ls="--", lw=1)
    every = np.concatenate([o.accuracy for o in outcomes] + [np.array([bag])])
    ax.set_xlim(every.min() - 0.02, every.max() + 0.02)  # two seeds have very wide intervals
    ax.set_yticks(range(len(outcomes)), [o.case.name for o in reversed(outcomes)])
    ax.set_xlabel("test accuracy")
    return figure


def _depth_figure(outcomes: list[Outcome]) -> Any:
    plain = [
        o for o in outcomes
        if o.case.masked and o.case.variant == Variant(layers=o.case.variant.layers)
    ]  # fmt: skip
    plain.sort(key=lambda o: o.case.variant.layers)
    depth = [o.case.variant.layers for o in plain]
    figure, axes = cy.plot.sheet(1, 2, 4.2, 3.0)
    (left, right), colours = axes[0], cy.plot.PALETTE
    half = [_interval(o.accuracy) for o in plain]
    accuracy = [o.accuracy.mean() for o in plain]
    left.errorbar(depth, accuracy, half, fmt="o-", color=colours[0], capsize=3)
    left.set(xlabel="layers", ylabel="test accuracy")
    right.plot(depth, [o.places.mean() for o in plain], "o-", color=colours[1], label="places")
    led = [(k, o.leaders.mean()) for k, o in zip(depth, plain) if k]
    right.plot(*zip(*led), "s--", color=colours[2], label="leaders")
    right.set(xlabel="layers", ylabel="per review")
    right.set_ylim(bottom=0)
    for ax in axes[0]:
        ax.set_xticks(depth)
    right.legend(frameon=False, fontsize="small")
    return figure


def _trade(outcomes: list[Outcome], data: Split) -> Any:
    from matplotlib.lines import Line2D

    figure, axes = cy.plot.sheet(1, 1, 8.4, 4.2)
    ax = axes[0, 0]
    together: dict[tuple[float, float], list[int]] = {}  # points too close for two numbers
    key = []
    for number, (o, colour) in enumerate(zip(outcomes, _colours(outcomes)), 1):
        x, y = float(o.places.mean()), float(o.accuracy.mean())
        ax.plot(x, y, "o", color=colour, ms=6)
        near = (k for k in together if abs(k[0] / x - 1) < 0.1 and abs(k[1] - y) < 0.006)
        together.setdefault(next(near, (x, y)), []).append(number)
        name = f"{number}  {o.case.name}"
        key.append(Line2D([], [], marker="o", ls="", color=colour, label=name))
    for place, numbers in together.items():
        text = ", ".join(map(str, numbers))
        ax.annotate(text, place, xytext=(5, 4), textcoords="offset points", fontsize=cy.plot.TICK)
    ax.axvline(data.test.sizes.mean(), color=cy.plot.GREY, lw=0.8, ls=":")
    ticks = [1, 2, 5, 10, 20, 50, 100]
    ax.set(xscale="log", ylabel="test accuracy")
    ax.set_xlabel("distinct places of a review's tokens at the end")
    ax.set_xticks(ticks, map(str, ticks))
    ax.set_xticks([], minor=True)
    fewest = min(float(o.places.mean()) for o in outcomes)
    ax.set_xlim(0.75 * fewest, 1.3 * data.test.sizes.mean())
    figure.legend(handles=key, loc="outside right upper", frameon=False, fontsize="small")
    return figure
