"""Does clustering help a sentiment model, and what does it buy? Ablations.

See docs/mathematics.md E12 and E13.

The learned model of arXiv 2407.01602 is trained again with one part changed at a time: the
attention (hardmax; softmax at several temperatures; uniform; random, untrained; none), the depth,
the mask on padding, a feed-forward map between the layers, a normalisation of the tokens, several
heads with an A of their own, beside one whose A is trained too. Each variant has several seeds; the
epoch is chosen on held-out blocks.

The key control is depth 0, a bag of learned words: where it is as accurate, attention did not help
the *accuracy*. Each trained variant is also read with 0 layers at test, its weights as they are,
and logistic regression on the same words stands beside all of them. What attention may buy is the
number of places a reader must look at: `leaders` and `places` per review against the number of
distinct words, counted on three grids.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.classifier.fitting.soft_model import Schedule

from ._models import Variant, alpha_of, evaluate, initial, leaders, one_thread, places, train
from ._null_models import above, bag_of_words, blockwise, said
from ._reviews import Split, evenly, numbered, split, with_padding

TITLE = "Does clustering help? Sentiment with parts of the model changed"

OFF = 0.05  # layers with a smaller alpha hardly move a token
ONE_HEAD, NONE = "one head, A trained", "no attention (depth 0)"


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
    heads: tuple[int, ...] = (2, 4)
    seeds: int = 3
    epochs: int = 20
    rate: float = 2e-2
    batch: int = 64
    patience: int = 3
    counted: int = 500


QUICK = Params(
    reviews=120, temperatures=(0.1, 0.001), depths=(0, 2), heads=(2,), seeds=2, epochs=3, rate=5e-2,
    batch=32, counted=60,
)  # fmt: skip


class Case(NamedTuple):
    """A variant to train: its group in the table, its name, its layers, padding masked or not."""

    group: str
    name: str
    variant: Variant
    masked: bool = True


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Train every variant with every seed."""
    say = progress or st.silent
    st.require(p.seeds >= 2, "seeds >= 2, for an interval", p)
    data = split(numbered(p.data, p.reviews, 0), tokens=p.tokens, most=p.words)
    linear = bag_of_words(data)
    cases, outcomes = list(_cases(p)), {}
    for i, case in enumerate(cases):
        fits = []
        for seed in range(p.seeds):
            say(0.95 * (i + seed / p.seeds) / len(cases), f"{case.name}, seed {seed}")
            fits.append(_fit(p, case, data, seed, linear))
        values = {k: np.array([fit[k] for fit in fits]) for k in fits[0]}
        outcomes[case.name] = st.Cell(case=case, **values)
    say(0.95, "figures")
    bag = float((linear == data.test.y).mean())
    every = list(outcomes.values())
    return st.report_of(
        p,
        _summary(p, outcomes, data, bag),
        controls=_controls(p, outcomes, linear == data.test.y),
        tables=[_table(every, data, bag)],
        checks={"padding": [_padding_is_inert(p, data)]},
        figures=[st.Picture.of("Accuracy of every variant", _dots, every, bag)],
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
            name = NONE if k == 0 else f"depth {k}"
            yield Case("depth", name, replace(base, layers=k))
    yield Case("padding", "padding not masked", base, masked=False)
    yield Case("feed-forward", f"feed-forward, width {p.hidden}", replace(base, hidden=p.hidden))
    once = Variant("uniform", layers=1, hidden=p.hidden)
    yield Case("feed-forward", "uniform once, feed-forward", once)
    yield Case("norm", "unit sphere", replace(base, norm="sphere"))
    yield Case("norm", "LayerNorm", replace(base, norm="layer"))
    soft = replace(base, temperature=min(p.temperatures))  # hardmax has no gradient to train A by
    yield Case("heads", ONE_HEAD, replace(soft, matrix="free"))
    for heads in p.heads:
        yield Case("heads", f"{heads} heads", replace(soft, heads=heads))


@one_thread()
def _fit(p: Params, case: Case, data: Split, seed: int, linear: np.ndarray) -> dict[str, Any]:
    """Train one seed of one variant; what is measured of it on the test part."""
    v = case.variant
    if not case.masked:
        words = (*data.words, "(padding)")
        train_, held, test = (
            with_padding(part, p.tokens, len(data.words))
            for part in (data.train, data.held, data.test)
        )
        data = replace(data, words=words, train=train_, held=held, test=test)
    schedule = Schedule(p.epochs, p.rate, p.batch, patience=p.patience, seed=seed)
    epochs = [*train(data, p.dim, v, schedule)]
    w, truth = epochs[-1].best, data.test.y
    decision = evaluate(w, data.test, v)
    hard = evaluate(w, data.test, v.hard) if v.hard != v else decision
    bare = evaluate(w, data.test, replace(v, layers=0)) if v.layers else decision
    some = data.test.take(evenly(len(data.test), p.counted))
    first, every, share = leaders(v, w, some)
    right, bare_right = (decision > 0) == truth, (bare > 0) == truth
    return {
        "right": right,  # which test reviews are decided rightly
        "accuracy": float(right.mean()),
        "held": epochs[epochs[-1].best_epoch - 1].scores["held accuracy"],  # epochs chosen on these
        "hard": float(((hard > 0) == truth).mean()),  # with hardmax at test
        "bare_right": bare_right,  # with 0 layers at test
        "bare": float(bare_right.mean()),
        "same": float(((bare > 0) == (decision > 0)).mean()),
        **{"initial": first, "leaders": every, "on_leaders": share},
        "places": places(v, w, some),  # distinct ones after the last layer, on three grids
        "finer": places(v, w, some, 0.01),
        "coarser": places(v, w, some, 0.2),
        "agreement": float(((decision > 0) == linear).mean()),
        "alpha": alpha_of(w["step"]) if v.layers else np.nan,
        "parameters": float(sum(x.numel() for k, x in w.items() if k != "constant")),
    }


def _padding_is_inert(p: Params, data: Split) -> cy.theorems.Check:
    """A judge of the masks: the same reviews with wider padding get the same decisions."""
    import torch

    variant = Variant(layers=2)
    w = initial(len(data.words), p.dim, variant, 0)
    some = data.test.take(np.arange(min(50, len(data.test))))
    wide = (torch.as_tensor(np.pad(x, ((0, 0), (0, 16)))) for x in (some.terms, some.count))
    padded = variant.decisions(w, *wide).double().numpy()
    apart = float(np.abs(evaluate(w, some, variant) - padded).max())
    said = "padding changes no decision of the masked model"
    return st.at_most("padding", "conventions", said, apart, 1e-5)


# --- tables and figures -------------------------------------------------------------------------


def _interval(x: np.ndarray) -> float:
    """Half width of the 95 % interval of the mean (Student)."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))


def _mean(field: str) -> Any:
    """A column of means over seeds, empty where some seed has no value."""
    return lambda o: None if np.isnan(getattr(o, field)).any() else float(getattr(o, field).mean())


def _table(outcomes: list[st.Cell], data: Split, bag: float) -> st.Table:
    note = (
        f"{len(data.train)} reviews to train, {len(data.test)} to test, "
        f"{data.test.sizes.mean():.1f} distinct words each; logistic regression on the same words "
        f"has {bag:.4f}. Places: distinct ends of a review's tokens, on a grid of 5 % of their "
        "size. With 0 layers at test: the same weights, no attention."
    )
    means = {
        **{"with hardmax at test": "hard", "with 0 layers at test": "bare"},
        **{"verdicts that stay": "same", "leaders at layer 0": "initial", "leaders": "leaders"},
        **{"weight on leaders": "on_leaders", "places at the end": "places"},
        **{"on a grid of 1 %": "finer", "of 20 %": "coarser"},
        **{"agrees with bag of words": "agreement", "alpha": "alpha"},
    }
    columns: dict[str, Any] = {
        **{"group": "case.group", "variant": "case.name", "held out": _mean("held")},
        **{"test accuracy": _mean("accuracy"), "± 95 %": lambda o: _interval(o.accuracy)},
        **{header: _mean(field) for header, field in means.items()},
        "parameters": lambda o: int(o.parameters[0]),
    }
    return st.Table.of("Variants", outcomes, columns, note)


def _controls(p: Params, outcomes: dict[str, st.Cell], linear: np.ndarray) -> list[st.Comparison]:
    """Every claim on attention beside depth 0, 0 layers at test, uniform attention, the bag."""
    hardmax, uniform = outcomes["hardmax"], outcomes["uniform"]
    mine = hardmax.right.mean(axis=0)
    beside = [
        st.Comparison(
            "The layers of the trained model decide.",
            "the same weights with 0 layers at test",
            f"{hardmax.same.mean():.1%} of the verdicts stay; accuracy with the layers "
            f"{hardmax.accuracy.mean():.4f}, without {hardmax.bare.mean():.4f}, difference "
            f"{said(mine - hardmax.bare_right.mean(axis=0))} ({p.seeds} seeds)",
            above(mine - hardmax.bare_right.mean(axis=0)),
        ),
        st.Comparison(
            "Hardmax is more accurate than a bag of words.",
            "logistic regression on the same words, chosen on held-out blocks",
            f"difference {said(mine - linear)} by blocks of {len(linear)} test reviews",
            above(mine - linear),
        ),
        st.Comparison(
            "Hardmax ends in few places because it clusters on words.",
            "uniform attention; grids of 1 and 20 % instead of 5 %",
            f"places: hardmax {hardmax.places.mean():.1f} ({hardmax.finer.mean():.1f} and "
            f"{hardmax.coarser.mean():.1f} on the other grids), of which leaders "
            f"{hardmax.leaders.mean():.1f}; uniform {uniform.places.mean():.1f}, which names none",
            bool(hardmax.finer.mean() < 2 * hardmax.leaders.mean()),
        ),
    ]
    several = [o for o in outcomes.values() if o.case.variant.heads > 1]
    if several:
        one = outcomes[ONE_HEAD]
        gaps = [o.right.mean(axis=0) - one.right.mean(axis=0) for o in several]
        told = [f"{o.case.name} {o.accuracy.mean():.4f}, {said(x)}" for o, x in zip(several, gaps)]
        beside.append(
            st.Comparison(
                "Several heads are more accurate than one.",
                f"one head whose A is trained too, {one.accuracy.mean():.4f}; same seeds, batches",
                f"accuracy and difference: {'; '.join(told)}",
                all(map(above, gaps)),
            )
        )
    none = outcomes.get(NONE)
    if none is None:
        return beside
    gap, seeds = mine - none.right.mean(axis=0), hardmax.accuracy - none.accuracy
    low, high = blockwise(gap)
    helps = st.Comparison(
        "Clustering makes the model more accurate.",
        "the model trained with depth 0, same seeds, same batches",
        f"difference {seeds.mean():+.4f} ± {_interval(seeds):.4f} over {p.seeds} seeds; by blocks "
        f"of {len(gap)} test reviews {low:+.4f} to {high:+.4f}",
        bool(low > 0 and seeds.mean() > _interval(seeds)),
    )
    return [helps, *beside]


def _summary(p: Params, outcomes: dict[str, st.Cell], data: Split, bag: float) -> str:
    told = {name: f"{o.accuracy.mean():.4f}" for name, o in outcomes.items()}
    hardmax, random = (outcomes[k] for k in ("hardmax", "random, untrained"))
    text, none = "", outcomes.get(NONE)
    if none is not None:
        gap = hardmax.accuracy - none.accuracy
        verdict = f"learned clustering {'helps' if gap.mean() > 0 else 'costs accuracy'}"
        if abs(gap.mean()) <= _interval(gap):
            verdict = "these seeds show no difference"
        text = (
            f"Does clustering help? Hardmax has {told['hardmax']}, depth 0 {told[NONE]}: a "
            f"difference of {gap.mean():+.4f} ± {_interval(gap):.4f}; {verdict}. Logistic "
            f"regression on the same words has {bag:.4f}.\n\n"
            f"What does it buy? A review of {data.test.sizes.mean():.1f} distinct words ends in "
            f"{hardmax.places.mean():.1f} places, of which {hardmax.leaders.mean():.1f} are "
            f"leaders'; without attention there are {none.places.mean():.1f} places to look at. "
            f"Read with 0 layers at test, the same weights give {hardmax.same.mean():.1%} of the "
            "verdicts.\n\n"
        )
    best = max(outcomes, key=lambda name: float(outcomes[name].held.mean()))
    off = random.alpha.mean() < OFF
    turned = "training turns the attention off" if off else "training keeps the attention"
    return text + (
        f"Uniform attention keeps the mean token, so it *is* depth 0 ({told['uniform']}) whatever "
        f"the depth. With random scores that are not trained, {turned}: alpha goes to "
        f"{random.alpha.mean():.3f}, accuracy to {told['random, untrained']}. The variant that is "
        f"best on the held-out blocks is {best}, with {told[best]} at test; {p.seeds} seeds each, "
        f"d = {p.dim}."
    )


def _colours(outcomes: list[st.Cell]) -> list[str]:
    """One colour per group of variants."""
    groups = list(dict.fromkeys(o.case.group for o in outcomes))
    return [cy.plot.PALETTE[groups.index(o.case.group)] for o in outcomes]


def _dots(outcomes: list[st.Cell], bag: float) -> Any:
    """Test accuracy: every run a dot, the mean with its 95 % interval over seeds; the dashed line
    is logistic regression on the same words. Depth 0 is the control: a bag of learned words.
    """
    figure, axes = cy.plot.sheet(1, 1, 7.2, 0.9 + 0.3 * len(outcomes))
    ax = axes[0, 0]
    for y, (o, colour) in enumerate(zip(outcomes, _colours(outcomes))):
        ax.plot(o.accuracy, np.full(len(o.accuracy), y), "o", color=colour, ms=4, alpha=0.45)
        half = _interval(o.accuracy)
        ax.errorbar(o.accuracy.mean(), y, xerr=half, fmt="D", color=colour, ms=5, capsize=3)
    ax.axvline(bag, color=cy.plot.INK, ls="--", lw=1)
    every = np.append([o.accuracy for o in outcomes], bag)
    ax.set_xlim(every.min() - 0.02, every.max() + 0.02)  # two seeds have very wide intervals
    ax.set_yticks(range(len(outcomes)), [o.case.name for o in outcomes])
    ax.set_xlabel("test accuracy")
    ax.invert_yaxis()
    return figure
