"""A sentence in a real model: through its layers, and in each layer repeated with one head.

See the curves (after arXiv 2312.10794): how far cosines rise for the sentence, for its words in
another order, for random words of the vocabulary, and for Gaussian tokens of the same lengths, each
drawn many times. The null model of a sentence is random *words*: Gaussian tokens are no words, and
where they end is a matter of the draw. What random words do too is the model's own.

See the last panel (after arXiv 2305.05465): every head run alone, many times over. Tokens cluster,
but norm and output bias act even when all heads are silent, and alone they make clusters too. A
head that ends at the places of that control decides at most which token joins which of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained import cosines
from cynosure.pretrained.reading.examples import ONE_THREAD

from ._head_places import Counted, by_layer, place_controls, places_of
from ._models import TEXTS, Measured, models_of, read_as, side_by_side
from ._sentence_starts import (
    GAUSSIAN,
    ORDER,
    WORDS,
    Ensemble,
    ensembles,
    ids_of,
    random_words,
    vocabulary,
)

TITLE = "A sentence in a real transformer: its layers in turn, and each repeated"


@dataclass(frozen=True)
class Params:
    """`model`: folders or hub ids with commas; empty: MiniLM, else random weights. `layers` 0 are
    the model's own; one that shares its weights can be run for more. Each null model is drawn
    `draws` times; `others` further sentences are set beside random words. Then each head of every
    layer runs `times` times, from `texts` texts of `tokens` tokens; its control from `starts` draws
    of random tokens as well."""

    model: str = ""
    text: str = TEXTS[0]
    layers: int = 0
    draws: int = 8
    others: int = 5
    times: int = 60
    texts: int = 2
    tokens: int = 12
    starts: int = 4
    seed: int = 0


QUICK = Params(draws=4, others=2, times=12, texts=2, tokens=6, starts=1)


class Beside(NamedTuple):
    """The mean cosine of a sentence after the last layer, less that of as many words that are none:
    words of the vocabulary, and words of all sentences together, which are as common as its own."""

    more: float
    more_than_pooled: float


@ONE_THREAD
def run(p: Params, progress: cy.study.Progress | None = None) -> cy.study.Report:
    """Every model: the sentence beside its null models, every head beside its control."""
    say = progress or cy.study.silent
    most = len(TEXTS) - 1
    sensible = p.layers >= 0 and p.draws >= 2 and 0 <= p.others <= most and p.starts >= 0
    sensible = sensible and p.times >= 2 and p.tokens >= 2 and 1 <= p.texts <= most
    said = f"layers, starts >= 0, draws, times, tokens >= 2, others 0 to {most}, texts 1 to {most}"
    cy.study.require(sensible, said, p)
    say(0.0, "model")
    models = models_of(p.model, p.text)
    return side_by_side(p, models, partial(_measured, p), say, _drawn)


def _measured(p: Params, m: cy.pretrained.Transformer, say: cy.study.Progress) -> Measured:
    count = p.layers or m.depth
    say(0.1, "null models")
    starts = ensembles(m, read_as(m, p.text), count, p.draws, p.seed)
    say(0.4, "other sentences")
    beside = _sentences(m, p, count)
    say(0.6, "heads repeated")
    counts = places_of(m, m.distinct_layers, TEXTS[: p.texts], p.tokens, p.times, p.starts)
    drawn = (starts, counts)
    more, rest = (np.array([getattr(x, k) for x in beside]) for k in ("more", "more_than_pooled"))
    sizes = {k: sum(getattr(c, k) for c in counts) for k in ("heads", "own", "any", "other")}
    summary = (
        f"{m.name}, {count} layers: mean cosine of two tokens after the last one, sentence "
        f"{_mine(starts):.2f}; with the middle 95 % of {p.draws} draws, "
        + "; ".join(
            f"{k} {_spread(starts[k].end('mean_cosine'))}" for k in (ORDER, WORDS, GAUSSIAN)
        )
        + f". Over {len(beside)} sentences it is {_interval(more)} beside that of as many random "
        f"words, and {_interval(rest)} beside words of all these sentences. Of each layer's "
        f"{m.width} heads run {p.times} times alone, those that end where their layer ends without "
        f"heads from the same text are, by layer, {by_layer(counts, 'own')}; from some start, "
        f"{by_layer(counts, 'any')}."
    )
    facts = {
        "sentence": _mine(starts),
        **{k: _spread(starts[k].end("mean_cosine")) for k in (ORDER, WORDS, GAUSSIAN)},
        "more than random words": _interval(more),
        "more than common words": _interval(rest),
        "heads at control": f"{sizes['own']} of {sizes['heads']}",
        "from any start": f"{sizes['any']} of {sizes['heads']}",
        "at another layer's": f"{sizes['other']}" if sizes["other"] >= 0 else None,
    }
    ends = {k: (x.end("mean_cosine"), x.end("clusters")) for k, x in starts.items()}
    rows = tuple(
        (k, len(cosine), cosine.mean(), *np.quantile(cosine, (0.025, 0.975)), clusters.mean())
        for k, (cosine, clusters) in ends.items()
    )
    names = ("start", "draws", "mean cosine at the end", "2.5 %", "97.5 %", "clusters at 0.5")
    report = cy.study.report_of(
        p,
        summary,
        controls=[*_controls(starts, beside), *place_controls(counts)],
        tables=[cy.study.Table("After the last layer", names, rows)],
        figures=[_drawn([m.name], [drawn])],
    )
    return Measured(report, facts, drawn)


def _sentences(m: cy.pretrained.Transformer, p: Params, layers: int) -> list[Beside]:
    """Every sentence beside random words of its length."""
    draw, known = np.random.default_rng([p.seed, 1]), vocabulary(m)
    texts = [read_as(m, text) for text in (p.text, *TEXTS[1 : 1 + p.others])]
    read = [ids_of(m, text, m.max_tokens) for text in texts]
    pool = np.concatenate([ids[~special] for ids, special in read])

    def end(tokens: Any) -> float:
        return float(cosines(m.trace(tokens, layers).z[-1]).mean())

    out = []
    for text, (ids, special) in zip(texts, read):
        means = [
            np.mean([end(random_words(ids, special, some, draw)) for _ in range(p.draws)])
            for some in (known, pool)
        ]
        out.append(Beside(*(end(text) - float(mean) for mean in means)))
    return out


# --- what is said --------------------------------------------------------------------------------


def _mine(starts: dict[str, Ensemble]) -> float:
    return float(starts["sentence"].end("mean_cosine")[0])


def _spread(x: np.ndarray) -> str:
    low, high = np.quantile(x, (0.025, 0.975))
    return f"{x.mean():.2f} ({low:.2f} to {high:.2f})"


def _interval(x: np.ndarray) -> str:
    low, high = cy.study.resampled(x)
    return f"{x.mean():+.3f} (95 %: {low:+.3f} to {high:+.3f})"


def _controls(starts: dict[str, Ensemble], beside: list[Beside]) -> list[cy.study.Comparison]:
    mine, draws = _mine(starts), len(starts[WORDS].end("mean_cosine"))
    words, gauss, order = (starts[k].end("mean_cosine") for k in (WORDS, GAUSSIAN, ORDER))
    less = cy.study.Comparison(
        "The tokens of a sentence end less alike than random tokens.",
        f"{draws} draws of Gaussian tokens, and of random words (the right null model)",
        f"sentence {mine:.2f}; Gaussian {_spread(gauss)}; random words {_spread(words)}",
        mine < min(float(np.quantile(x, 0.025)) for x in (gauss, words)),
    )
    more_alike = []
    for claim, null, key in (
        ("The tokens of a sentence end more alike than random words.", "random words", "more"),
        ("So do they beside common words that do not belong together.", "words of all sentences",
         "more_than_pooled"),
    ):  # fmt: skip
        more = np.array([getattr(x, key) for x in beside])
        seen = f"difference of mean cosines {_interval(more)}; above in {(more > 0).sum()} of "
        beside_ = f"{len(beside)} sentences, {draws} draws of {null} of the same length for each"
        holds = cy.study.resampled(more)[0] > 0
        more_alike.append(cy.study.Comparison(claim, beside_, f"{seen}{len(more)}", holds))
    moves = cy.study.Comparison(
        "The order of the words moves the mean cosine.",
        f"{draws} other orders of the same words",
        f"sentence {mine:.2f}; other orders {_spread(order)}",
        not np.quantile(order, 0.025) <= mine <= np.quantile(order, 0.975),
    )
    return [less, *more_alike, moves]


# --- tables and figures --------------------------------------------------------------------------


def _drawn(
    names: list[str], drawn: list[tuple[dict[str, Ensemble], list[Counted]]]
) -> cy.study.Picture:
    figure, axes = cy.plot.sheet(len(names), 3, 4.3, 3.2)
    panels = {"mean_cosine": "mean cosine of pairs"}
    panels |= {"argmax_mass": "hardmax-likeness, mean of all heads"}
    for row, name, (starts, counts) in zip(axes, names, drawn):
        for ax, (key, label) in zip(row, panels.items()):
            for kind, colour in zip(("sentence", ORDER, WORDS, GAUSSIAN), cy.plot.PALETTE):
                _band(ax, starts[kind], key, colour)
            ax.set_ylabel(label)
        ax, layers = row[2], sorted({c.layer for c in counts})
        lines = {"same text": "own", "any start": "any", "another layer's control": "other"}
        for (label, key), style in zip(lines.items(), ("o-", "s--", "x:")):
            of = [[getattr(c, key) / c.heads for c in counts if c.layer == k] for k in layers]
            if counts[0].other >= 0 or key != "other":
                ax.plot(layers, [np.mean(x) for x in of], style, ms=4, label=label)
        ax.set(ylim=(-0.05, 1.05), ylabel="heads that end at its places")
        ax.legend(frameon=False, fontsize=7)
        for ax, title in zip(row, ("how alike the tokens are", "how hard attention is",
                                   "heads alone, beside no head")):  # fmt: skip
            ax.set_title(f"{name}: {title}", fontsize=cy.plot.TITLE, loc="left")
            ax.set_xlabel("layer $k$")
            ax.xaxis.get_major_locator().set_params(integer=True)
    cy.plot.legend_below(axes[0, 0])
    caption = (
        "Left and middle: the sentence (line with dots) beside its null models, mean of the draws "
        "and the band that holds 95 % of them. Right: share of the heads that, run many times "
        "alone, end where their layer ends with all heads silent."
    )
    return cy.study.Picture("The sentence beside its null models", caption, figure)


def _band(ax: Any, x: Ensemble, key: str, colour: str) -> None:
    mean, low, high = x.band(key)
    known = np.flatnonzero(~np.isnan(mean))
    alone = len(x.end(key)) == 1
    look = {"lw": 2.0, "marker": "o", "ms": 4, "zorder": 4} if alone else {"lw": 1.4}
    ax.plot(known, mean[known], color=colour, label=x.name, **look)
    if not alone:
        ax.fill_between(known, low[known], high[known], color=colour, alpha=0.15, lw=0)
