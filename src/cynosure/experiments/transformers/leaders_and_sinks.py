"""Leaders, sinks and clusters by layer, over families of real models (E24).

For each model: how much of the attention goes to the first token (a sink, arXiv 2309.17453), how
many others follow it, and whether it is a leader in the sense of arXiv 2407.01602, C_0 = {0}, were
there no mask; how even attention is; how the tokens gather: spread, rank, clusters. And how far its
heads are from each hypothesis of the theorems, with rotary positions at several offsets.

Beside each trained model stands the same architecture before training, so that the work of the
architecture is not taken for that of training; beside the first token, what even attention gives
it: under a causal mask that is (1 + 1/2 + ... + 1/n) / n, not 1/n. And each text with its words in
random order, and with its first token in the middle: is it the token, or the place? Name models
with `--set models=FOLDER,FOLDER`; without, MiniLM, and small models of causal families with random
weights, which show the measurement and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...pretrained import Survey, hypothesis_counts
from ...pretrained.examples import ONE_THREAD, RANDOM, example_transformer, random_transformer
from ...pretrained.survey_chapter import even_share
from ...pretrained.untrained import untrained
from .._frame import Progress, report_of, require, silent

TITLE = "Leaders, sinks and clusters by layer, over families"
TEXTS = (
    "The film was slow but the ending is wonderful.",
    "What a waste of a good cast: the plot makes no sense, and nobody seems to care.",
    "Prices of grain fell by a third after the harvest of that year, and rose again in spring.",
    "She opened the window because the room was too warm, then went back to her book.",
    "In a small town by the sea there lived a clockmaker who never knew what time it was.",
    "A theorem is proved once; an experiment has to be repeated whenever somebody doubts it.",
)
CAUSAL = ("llama", "gpt2", "gpt_neox")  # shown with random weights where no model is named
OFFSETS = (0, -1, -4, -16, -64)
PANELS = {
    "first_mass": "attention on the first token",
    "follow_first": "tokens that follow the first",
    "first_leads": "heads where the first token leads",
    "evenness": "evenness of attention",
    "spread": "spread of the directions",
    "effective_rank": "effective rank of the tokens",
}


@dataclass(frozen=True)
class Params:
    """`models` are folders or hub ids with commas between them; empty: MiniLM if it is installed.
    Each reads `texts` texts; `seeds` untrained copies of each stand beside it."""

    models: str = ""
    texts: int = 6
    seeds: int = 3
    seed: int = 0


QUICK = Params(texts=2, seeds=1)


class Found(NamedTuple):
    """One model: its surveys of the texts, of their tokens in other orders, and before training."""

    name: str
    family: str
    causal: bool
    trained: bool
    real: tuple[Survey, ...]
    shuffled: tuple[Survey, ...]
    moved: tuple[Survey, ...]  # the first token put in the middle
    before: tuple[Survey, ...]
    counts: list[dict[str, Any]]
    counts_before: list[dict[str, Any]]
    offsets: tuple[tuple[Any, ...], ...]


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every model on every text, beside its controls."""
    say = progress or silent
    sensible = 1 <= p.texts <= len(TEXTS) and p.seeds >= 1
    require(sensible, f"1 <= texts <= {len(TEXTS)}, seeds >= 1", p)
    say(0.0, "models")
    return _report(p, say)


@ONE_THREAD
def _report(p: Params, say: Progress) -> cy.Report:
    models = _models(p)
    found = []
    for done, m in enumerate(models):
        say(0.1 + 0.8 * done / len(models), m.name)
        found.append(_measured(p, m))
    say(0.9, "figures")
    return report_of(
        __name__,
        p,
        _summary(found),
        controls=[c for one in found if one.trained for c in _controls(one)] or _plain(found[0]),
        tables=(_by_model(found), _by_layer(found), _distances(found), *_offsets(found)),
        figures=(_curves(found), _map(found)),
    )


def _models(p: Params) -> list[cy.Transformer]:
    names = [name.strip() for name in p.models.split(",") if name.strip()]
    if names:
        return [example_transformer(name) for name in names]
    words = " ".join(TEXTS)
    return [example_transformer("", words), *(random_transformer(words, kind) for kind in CAUSAL)]


def _measured(p: Params, m: cy.Transformer) -> Found:
    texts, trained = TEXTS[: p.texts], RANDOM not in m.name
    draw = np.random.default_rng(p.seed)
    mixed = [" ".join(draw.permutation(text.split())) for text in texts]
    before = [untrained(m, p.seed + k) for k in range(p.seeds)] if trained else []
    heads = _heads(m)
    return Found(
        m.name,
        m.model.config.model_type,
        m.causal,
        trained,
        tuple(m.survey(text) for text in texts),
        tuple(m.survey(text) for text in mixed),
        tuple(m.survey(_moved(m, text)) for text in texts),
        tuple(twin.survey(text) for twin in before for text in texts),
        hypothesis_counts(heads),
        hypothesis_counts(_heads(before[0])) if before else [],
        _at_offsets(m.name, heads),
    )


def _moved(m: cy.Transformer, text: str) -> list[int]:
    """The tokens of the text with the first of them in the middle."""
    first, *rest = m.tokenizer(text)["input_ids"]  # type: ignore[misc]
    return [*rest[: len(rest) // 2], first, *rest[len(rest) // 2 :]]


def _heads(m: cy.Transformer) -> list[cy.Head]:
    return [head for layer in m.distinct_layers for head in m.heads(layer)]


def _at_offsets(name: str, heads: list[cy.Head]) -> tuple[tuple[Any, ...], ...]:
    """Median distances of the forms at each offset; nothing for heads without rotary positions."""
    if heads[0].rotary is None:
        return ()
    rows = []
    for offset in OFFSETS:
        counts = hypothesis_counts([head.at(offset) for head in heads])
        by_name = {row["hypothesis"]: row for row in counts}
        names = ("A symmetric", "A + Aᵀ positive definite", "A = βI")
        rows.append((name, offset, *(by_name[key]["median_distance"] for key in names)))
    return tuple(rows)


# --- what is said --------------------------------------------------------------------------------


def _mean(surveys: Sequence[Survey], name: str) -> np.ndarray:
    """By text: the mean over layers and heads, or over layers for the tokens."""
    return np.array(
        [np.mean(s.heads[name] if name in s.heads else s.tokens[name]) for s in surveys]
    )


def _summary(found: Sequence[Found]) -> str:
    parts = []
    for one in found:
        first, even = _mean(one.real, "first_mass").mean(), _evens(one).mean()
        top = np.mean([s.heads["first_mass"].max() for s in one.real])
        lead = _known(_mean(one.real, "first_leads").mean())
        led = "" if lead is None else f" and leads, were there no mask, in {lead:.0%} of the heads"
        gather = np.mean([s.collapse for s in one.real])
        parts.append(
            f"{one.name}: the first token receives {first:.0%} of the attention (even: {even:.0%}; "
            f"{top:.0%} in the head where it is most){led}; the spread of the tokens changes by a "
            f"factor {gather:.3f} per layer."
        )
    if not any(one.trained and one.causal for one in found):
        parts.append(
            "No trained causal model was named: what the causal models here show is the work of "
            "the mask and of random weights (`--set models=FOLDER`)."
        )
    return "\n\n".join(parts)


def _known(value: Any) -> float | None:
    """The number; None where a model cannot tell (BLOOM, without its mask)."""
    return None if np.isnan(value) else float(value)


def _evens(one: Found) -> np.ndarray:
    return np.array([even_share(s.n, one.causal) for s in one.real])


def _controls(one: Found) -> list[cy.Comparison]:
    def beside(name: str) -> tuple[np.ndarray, np.ndarray]:
        return _mean(one.real, name), _mean(one.before, name)

    twins = f"{len(one.before)} surveys of the same architecture before training"
    first, first_before = beside("first_mass")
    even, even_before = beside("evenness")
    mixed = _mean(one.shuffled, "evenness")
    gather, gather_before = (np.array([s.collapse for s in x]) for x in (one.real, one.before))
    return [
        *_plain(one),
        cy.Comparison(
            f"{one.name}: training makes the first token receive more.",
            twins,
            f"{_range(first)}; before training {_range(first_before)}",
            bool(first.min() > first_before.max()),
        ),
        cy.Comparison(
            f"{one.name}: training makes attention less even.",
            twins,
            f"evenness {_range(even)}; before training {_range(even_before)}",
            bool(even.max() < even_before.min()),
        ),
        cy.Comparison(
            f"{one.name}: training makes tokens gather over the layers.",
            twins,
            f"factor per layer {_range(gather)}; before training {_range(gather_before)}",
            bool(gather.max() < min(1.0, gather_before.min())),
        ),
        cy.Comparison(
            f"{one.name}: attention is less even on a sentence than on its words in any order.",
            f"the words of each of {len(mixed)} texts in random order",
            f"evenness {_range(even)}; in random order {_range(mixed)}; less in "
            f"{int((even < mixed).sum())} of {len(mixed)} texts",
            bool((even < mixed).all()),
        ),
        _word_or_place(one),
    ]


def _word_or_place(one: Found) -> cy.Comparison:
    """Where the sink is once the first token stands in the middle."""
    sinks = [s.heads["sink"] for s in one.moved]
    middle = [(s.n - 1) // 2 for s in one.moved]
    word = float(np.mean([(x == at).mean() for x, at in zip(sinks, middle)]))
    place = float(np.mean([(x == 0).mean() for x in sinks]))
    return cy.Comparison(
        f"{one.name}: attention goes to the first token for what it is, not for its place.",
        "the same token put in the middle of each text",
        f"the sink is that token in {word:.0%} of the heads, the first place in {place:.0%}",
        word > place,
    )


def _plain(one: Found) -> list[cy.Comparison]:
    first, even = _mean(one.real, "first_mass"), _evens(one)
    return [
        cy.Comparison(
            f"{one.name}: the first token receives more than even attention gives it.",
            "even rows of P" + (", under the causal mask" if one.causal else ""),
            f"{_range(first)}; even {_range(even)}; more in {int((first > even).sum())} of "
            f"{len(first)} texts",
            bool((first > even).all()),
        )
    ]


def _range(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


# --- tables and figures --------------------------------------------------------------------------


def _by_model(found: Sequence[Found]) -> cy.Table:
    columns: dict[str, Callable[[Found], Any]] = {
        "model": lambda o: o.name,
        "family": lambda o: o.family,
        "causal": lambda o: o.causal,
        "trained": lambda o: o.trained,
        "first token": lambda o: float(_mean(o.real, "first_mass").mean()),
        "even": lambda o: float(_evens(o).mean()),
        "before training": lambda o: (
            float(_mean(o.before, "first_mass").mean()) if o.before else None
        ),
        "sink": lambda o: float(_mean(o.real, "sink_mass").mean()),
        "follow the first": lambda o: float(_mean(o.real, "follow_first").mean()),
        "first leads": lambda o: _known(_mean(o.real, "first_leads").mean()),
        "leaders per head": lambda o: float(_mean(o.real, "leaders").mean()),
        "evenness": lambda o: float(_mean(o.real, "evenness").mean()),
        "collapse": lambda o: float(np.mean([s.collapse for s in o.real])),
    }
    note = (
        "Means over texts, layers and heads. Even: what the first token receives from even rows. "
        "First leads: share of the heads where C_0 = {0} without a mask. Collapse: factor by which "
        "the spread of the directions changes per layer."
    )
    return cy.Table.of("Models", list(found), columns, note)


def _by_layer(found: Sequence[Found]) -> cy.Table:
    names = ("first_mass", "follow_first", "first_leads", "sink_mass", "leaders", "evenness",
             "argmax_mass", "clusters", "rank", "effective_rank", "spread", "mean_cosine",
             "first_length")  # fmt: skip
    rows = []
    for one in found:
        tables = [s.table() for s in one.real]
        for k in range(len(tables[0])):
            means = (_known(np.mean([t[k][name] for t in tables])) for name in names)
            rows.append((one.name, k, *means))
    columns = ("model", "layer", *(name.replace("_", " ") for name in names))
    return cy.Table("By layer", columns, tuple(rows), "Means over texts, see `Survey`.")


def _distances(found: Sequence[Found]) -> cy.Table:
    rows = []
    for one in found:
        for i, row in enumerate(one.counts):
            old = one.counts_before[i]["median_distance"] if one.counts_before else None
            shown = (row["satisfied"], row["heads"], row["median_distance"], old)
            rows.append((one.name, row["hypothesis"], *shown))
    columns = ("model", "hypothesis", "heads that satisfy it", "of", "median distance",
               "before training")  # fmt: skip
    return cy.Table("Hypotheses of the theorems", columns, tuple(rows), "At offset 0.")


def _offsets(found: Sequence[Found]) -> list[cy.Table]:
    rows = tuple(row for one in found for row in one.offsets)
    columns = ("model", "offset j - i", "A symmetric", "A + Aᵀ positive definite", "A = βI")
    note = "Median distance of the form that tokens so far apart see each other with."
    return [cy.Table("Rotary forms by offset", columns, rows, note)] if rows else []


def _curves(found: Sequence[Found]) -> cy.Picture:
    figure, axes = cy.plot.sheet(2, 3, 4.2, 3.2)
    for ax, (name, title) in zip(axes.flat, PANELS.items()):
        for i, one in enumerate(found):
            colour = cy.plot.PALETTE[i % len(cy.plot.PALETTE)]
            ax.plot(_layers(one.real, name), "o-", ms=3, color=colour, label=one.name)
            if one.before:
                ax.plot(_layers(one.before, name), "--", color=colour, lw=1)
            if name == "first_mass":
                ax.axhline(float(_evens(one).mean()), color=colour, ls=":", lw=1)
        ax.set_title(title, fontsize=cy.plot.TITLE, loc="left")
        ax.set_xlabel("layer", fontsize=cy.plot.LABEL)
        ax.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    caption = (
        "Means over texts and heads. Dashed: the same architecture before training. Dotted: what "
        "even attention gives the first token."
    )
    return cy.Picture("By layer", caption, figure)


def _layers(surveys: Sequence[Survey], name: str) -> np.ndarray:
    """Mean over texts by layer, and over heads for what belongs to them."""
    each = [s.heads[name].mean(axis=1) if name in s.heads else s.tokens[name] for s in surveys]
    return np.mean(each, axis=0)


def _map(found: Sequence[Found]) -> cy.Picture:
    figure, axes = cy.plot.sheet(1, 1, 9.0, 1.6 + 0.5 * len(found))
    ax = axes[0, 0]
    names = [row["hypothesis"] for row in found[0].counts]
    values = np.array([[row["median_distance"] for row in one.counts] for one in found])
    ax.imshow(values, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    ax.grid(False)
    for (i, j), value in np.ndenumerate(values):
        ink = "w" if value < 0.5 else "k"
        ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
    ax.set_yticks(range(len(found)), [one.name for one in found], fontsize=8)
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    caption = "Median over the heads of the relative distance: 0 holds, 1 is as far as can be."
    return cy.Picture("Distance of the heads from each hypothesis", caption, figure)
