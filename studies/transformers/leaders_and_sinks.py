"""Leaders, sinks and clusters by layer, over families of real models.

For each model: how much of the attention goes to the first token (a sink, arXiv 2309.17453), how
many others follow it, and whether it is a leader in the sense of arXiv 2407.01602, C_0 = {0}, were
there no mask; how even attention is; how the tokens gather: spread, rank, clusters; and whether
they part again in the last layers (escape from clusters, arXiv 2605.07772). And how far its heads
are from each hypothesis of the theorems, with rotary positions at several offsets.

Beside each trained model stands the same architecture before training, so that the work of the
architecture is not taken for that of training; beside the first token, what even attention gives
it: under a causal mask that is (1 + 1/2 + ... + 1/n) / n, not 1/n. And each text with its words in
random order, and with its first token in the middle: is it the token, or the place? Name models
with `--model FOLDER,FOLDER`; without, MiniLM, and small models of causal families with random
weights, which show the measurement and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy
from cynosure.pretrained import Survey, hypothesis_counts
from cynosure.pretrained.pages.survey_chapter import even_share
from cynosure.pretrained.reading.examples import (
    ONE_THREAD,
    RANDOM,
    random_transformer,
)
from cynosure.pretrained.reading.weights import untrained

from ._models import TEXTS, models_of, read_as

TITLE = "Leaders, sinks and clusters by layer, over families"
CAUSAL = ("llama", "gpt2", "gpt_neox")  # shown with random weights where no model is named
OFFSETS = (0, -1, -4, -16, -64)
PARTED = "spread at the end over the smallest before it"
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
    """`model`: folders or hub ids with commas between them; empty: MiniLM if it is installed. Each
    reads `texts` texts; `seeds` untrained copies of each stand beside it."""

    model: str = ""
    texts: int = 6
    seeds: int = 3
    seed: int = 0


QUICK = Params(texts=2, seeds=1)


@ONE_THREAD
def run(p: Params, progress: cy.study.Progress | None = None) -> cy.study.Report:
    """Every model on every text, beside its controls."""
    say = progress or cy.study.silent
    sensible = 1 <= p.texts <= len(TEXTS) and p.seeds >= 1
    cy.study.require(sensible, f"1 <= texts <= {len(TEXTS)}, seeds >= 1", p)
    say(0.0, "models")
    words = " ".join(TEXTS)
    models = models_of(p.model, words)
    if not p.model:
        models += [random_transformer(words, kind) for kind in CAUSAL]
    found = []
    for done, m in enumerate(models):
        say(0.1 + 0.8 * done / len(models), m.name)
        found.append(_measured(p, m))
    say(0.9, "figures")
    return cy.study.report_of(
        p,
        _summary(found),
        controls=[c for one in found if one.trained for c in _controls(one)] or _plain(found[0]),
        tables=(_by_model(found), _by_layer(found), _distances(found), *_offsets(found)),
        figures=(_curves(found),),
    )


def _measured(p: Params, m: cy.pretrained.Transformer) -> cy.study.Cell:
    """One model: its surveys of the texts, of their tokens in other orders, and before training."""
    texts, trained = [read_as(m, text) for text in TEXTS[: p.texts]], RANDOM not in m.name
    draw = np.random.default_rng(p.seed)
    mixed = [" ".join(draw.permutation(text.split())) for text in texts]
    before = [untrained(m, p.seed + k) for k in range(p.seeds)] if trained else []
    heads = _heads(m)
    return cy.study.Cell(
        name=m.name,
        family=m.model.config.model_type,
        **{"causal": m.causal, "trained": trained},
        real=[m.survey(text) for text in texts],
        shuffled=[m.survey(text) for text in mixed],
        moved=[m.survey(_moved(m, text)) for text in texts],  # the first token put in the middle
        before=[twin.survey(text) for twin in before for text in texts],
        long=m.survey(_cut(m, " ".join(texts * 2))),
        counts=hypothesis_counts(heads),
        counts_before=hypothesis_counts(_heads(before[0])) if before else [],
        offsets=_at_offsets(m.name, heads),
    )


def _cut(m: cy.pretrained.Transformer, text: str) -> list[int]:
    """The tokens of a long text, as many as the model takes, its last one kept."""
    reads: Any = m.tokenizer
    ids = reads(text)["input_ids"]
    room = min(len(ids), m.max_tokens or len(ids))
    return [*ids[: room - 1], ids[-1]]


def _moved(m: cy.pretrained.Transformer, text: str) -> list[int]:
    """The tokens of the text with the first of them in the middle."""
    reads: Any = m.tokenizer
    first, *rest = reads(text)["input_ids"]
    return [*rest[: len(rest) // 2], first, *rest[len(rest) // 2 :]]


def _heads(m: cy.pretrained.Transformer) -> list[cy.pretrained.Head]:
    return [head for layer in m.distinct_layers for head in m.heads(layer)]


def _at_offsets(name: str, heads: list[cy.pretrained.Head]) -> tuple[tuple[Any, ...], ...]:
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


def _summary(found: Sequence[cy.study.Cell]) -> str:
    parts = []
    for one in found:
        lead = _known(_mean(one.real, "first_leads").mean())
        led = "" if lead is None else f"; it leads, were there no mask, in {lead:.0%} of the heads"
        sizes = [s.n for s in one.real]
        parts.append(
            f"{one.name}: the first token receives {_mean(one.real, 'first_mass').mean():.0%} of "
            f"the attention in texts of {min(sizes)} to {max(sizes)} tokens, "
            f"{one.long.heads['first_mass'].mean():.0%} in one of {one.long.n} (even: "
            f"{_evens(one).mean():.0%}){led}. The spread of the tokens changes by a factor "
            f"{np.mean([s.collapse for s in one.real]):.3f} per layer."
        )
    if not any(one.trained and one.causal for one in found):
        parts.append(
            "No trained causal model was named: what the causal models here show is the work of "
            "the mask and of random weights (`--model FOLDER`)."
        )
    return "\n\n".join(parts)


def _known(value: Any) -> float | None:
    """The number; None where a model cannot tell (BLOOM, without its mask)."""
    return None if np.isnan(value) else float(value)


def _evens(one: cy.study.Cell) -> np.ndarray:
    return np.array([even_share(s.n, one.causal) for s in one.real])


def _controls(one: cy.study.Cell) -> list[cy.study.Comparison]:
    def ends(surveys: Sequence[Survey]) -> dict[str, np.ndarray]:
        own = {name: _mean(surveys, name) for name in ("first_mass", "evenness")}
        gather, apart = (np.array([f(s) for s in surveys]) for f in (lambda s: s.collapse, _parted))
        return own | {"gather": gather, "apart": apart}

    twins = f"{len(one.before)} surveys of the same architecture before training"
    real, fresh, mixed = ends(one.real), ends(one.before), _mean(one.shuffled, "evenness")
    even = real["evenness"]
    claims = {
        "first_mass": ("training makes the first token receive more", "share", 1.0, -np.inf),
        "evenness": ("training makes attention less even", "evenness", -1.0, np.inf),
        "gather": ("training makes tokens gather over the layers", "factor per layer", -1.0, 1.0),
        "apart": ("trained, its tokens part again in the last layers", PARTED, 1.0, 1.0),
    }
    out = []
    for key, (claim, what, sign, bound) in claims.items():
        edge = max(sign * bound, (sign * fresh[key]).max())
        seen = f"{what} {_range(real[key])}; before training {_range(fresh[key])}"
        survives = bool((sign * real[key]).min() > edge)
        out.append(cy.study.Comparison(f"{one.name}: {claim}.", twins, seen, survives))
    return [
        *_plain(one),
        *out,
        cy.study.Comparison(
            f"{one.name}: attention is less even on a sentence than on its words in any order.",
            f"the words of each of {len(mixed)} texts in random order",
            f"evenness {_range(even)}; in random order {_range(mixed)}; less in "
            f"{int((even < mixed).sum())} of {len(mixed)} texts",
            bool((even < mixed).all()),
        ),
        _word_or_place(one),
    ]


def _parted(s: Survey) -> float:
    """Spread of the directions at the end, in units of the smallest before it."""
    spread = s.tokens["spread"]
    return float(spread[-1] / max(spread[1:].min(), 1e-12))


def _word_or_place(one: cy.study.Cell) -> cy.study.Comparison:
    """Where the sink is once the first token stands in the middle."""
    sinks = [s.heads["sink"] for s in one.moved]
    middle = [(s.n - 1) // 2 for s in one.moved]
    word = float(np.mean([(x == at).mean() for x, at in zip(sinks, middle)]))
    place = float(np.mean([(x == 0).mean() for x in sinks]))
    return cy.study.Comparison(
        f"{one.name}: attention goes to the first token for what it is, not for its place.",
        "the same token put in the middle of each text",
        f"the sink is that token in {word:.0%} of the heads, the first place in {place:.0%}",
        word > place,
    )


def _plain(one: cy.study.Cell) -> list[cy.study.Comparison]:
    first, even = _mean(one.real, "first_mass"), _evens(one)
    return [
        cy.study.Comparison(
            f"{one.name}: the first token receives more than even attention gives it.",
            "even rows of P" + (", under the causal mask" if one.causal else ""),
            f"{_range(first)}; even {_range(even)}; more in {int((first > even).sum())} of "
            f"{len(first)} texts",
            bool((first > even).all()),
        ),
        cy.study.Comparison(
            f"{one.name}: how much the first token receives depends on the length of the text.",
            f"the texts one after the other, {one.long.n} tokens",
            f"{_range(first)} for {min(s.n for s in one.real)} to {max(s.n for s in one.real)} "
            f"tokens; {one.long.heads['first_mass'].mean():.3f} for {one.long.n}",
            bool(one.long.heads["first_mass"].mean() < first.min()),
        ),
    ]


def _range(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


# --- tables and figures --------------------------------------------------------------------------


def _by_model(found: Sequence[cy.study.Cell]) -> cy.study.Table:
    columns: dict[str, Callable[[cy.study.Cell], Any]] = {
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
        "part again": lambda o: float(np.mean([_parted(s) for s in o.real])),
        "part before training": lambda o: (
            float(np.mean([_parted(s) for s in o.before])) if o.before else None
        ),
    }
    note = (
        "Means over texts, layers and heads. Even: what the first token receives from even rows. "
        "First leads: share of the heads where C_0 = {0} without a mask. Collapse: factor by which "
        "the spread of the directions changes per layer. Part again: spread at the end over "
        "the smallest after layer 0."
    )
    return cy.study.Table.of("Models", list(found), columns, note)


def _by_layer(found: Sequence[cy.study.Cell]) -> cy.study.Table:
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
    return cy.study.Table("By layer", columns, tuple(rows), "Means over texts, see `Survey`.")


def _distances(found: Sequence[cy.study.Cell]) -> cy.study.Table:
    rows = []
    for one in found:
        for i, row in enumerate(one.counts):
            old = one.counts_before[i]["median_distance"] if one.counts_before else None
            shown = (row["satisfied"], row["heads"], row["median_distance"], old)
            rows.append((one.name, row["hypothesis"], *shown))
    columns = ("model", "hypothesis", "heads that satisfy it", "of", "median distance",
               "before training")  # fmt: skip
    return cy.study.Table("Hypotheses of the theorems", columns, tuple(rows), "At offset 0.")


def _offsets(found: Sequence[cy.study.Cell]) -> list[cy.study.Table]:
    rows = tuple(row for one in found for row in one.offsets)
    columns = ("model", "offset j - i", "A symmetric", "A + Aᵀ positive definite", "A = βI")
    note = "Median distance of the form that tokens so far apart see each other with."
    return [cy.study.Table("Rotary forms by offset", columns, rows, note)] if rows else []


def _curves(found: Sequence[cy.study.Cell]) -> cy.study.Picture:
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
    return cy.study.Picture("By layer", caption, figure)


def _layers(surveys: Sequence[Survey], name: str) -> np.ndarray:
    """Mean over texts by layer, and over heads for what belongs to them."""
    each = [s.heads[name].mean(axis=1) if name in s.heads else s.tokens[name] for s in surveys]
    return np.mean(each, axis=0)
