"""A sentence on its way through a real model: paths, clusters, sinks (after arXiv 2312.10794).

See the paths: tokens move together, and in many models one of them (often [CLS] or the full stop)
receives most of the attention everywhere, a sink. See the curves: how far cosines rise for the
sentence, for its words in another order, for random words of the vocabulary, and for Gaussian
tokens of the same lengths, each drawn many times.

The null model of a sentence is random *words*: Gaussian tokens are no words, and where they end is
a matter of the draw, so a sentence below them says nothing about sentences. What random words do
too is the model's own, not the sentence's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...pretrained import cosines
from ...pretrained.chapters import attention_chapter, table_of, tokens_chapter
from ...pretrained.examples import ONE_THREAD, RANDOM, example_transformer, weights_note
from .._frame import Progress, report_of, require, resampled, silent
from ._sentence_starts import (
    GAUSSIAN,
    KEYS,
    MOVED,
    ORDER,
    WORDS,
    Ensemble,
    ensembles,
    ids_of,
    random_words,
    vocabulary,
)

TITLE = "A sentence on its way through a real transformer"
# Other sentences, of other lengths and about other things, to set beside random words as well.
OTHERS = (
    "The two leads are superb and the music is lovely.",
    "What a waste of a good cast.",
    "The trailer promised a thriller and the film is a quiet family drama.",
    "She opened the window because the room was too warm.",
    "Prices of grain fell by a third after the harvest of that year.",
    "The proof is short once the right norm has been chosen.",
    "Please send the signed form back before the end of the month.",
    "A small bird sat on the fence and would not be driven away by the dog.",
    "Water boils at a lower temperature in the mountains.",
    "Nobody at the station knew when the next train would leave.",
    "My grandfather kept every letter he was ever sent.",
)


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `layers` 0 are the model's own; a model that shares its weights can be run for more. Each null
    model is drawn `draws` times; `others` of the other sentences are set beside random words."""

    model: str = ""
    text: str = "The film was slow but the ending is wonderful, and I would see it again tomorrow."
    layers: int = 0
    draws: int = 60
    others: int = 11
    seed: int = 0


QUICK = Params(text="The film was slow but the ending is wonderful.", draws=4, others=2)


class Beside(NamedTuple):
    """The mean cosine of a sentence after the last layer, beside as many words that are none.

    `words` are drawn from the vocabulary, `pooled` from the words of all sentences together: these
    are as common as the sentence's own, and only do not belong together.
    """

    text: str
    tokens: int
    cosine: float
    words: np.ndarray
    pooled: np.ndarray

    @property
    def more(self) -> float:
        return self.cosine - float(self.words.mean())

    @property
    def more_than_pooled(self) -> float:
        return self.cosine - float(self.pooled.mean())


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The chapters on tokens and attention, and the comparison with the null models."""
    say = progress or silent
    sensible = p.layers >= 0 and p.draws >= 2 and 0 <= p.others <= len(OTHERS)
    require(sensible, f"layers >= 0, draws >= 2, 0 <= others <= {len(OTHERS)}", p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    count = p.layers or m.depth
    say(0.1, "null models")
    sentence = m.trace(p.text, count)
    starts = ensembles(m, p.text, sentence, count, p.draws, p.seed)
    say(0.5, "other sentences")
    beside = _sentences(m, p, count)
    say(0.8, "figures")
    chapters = (tokens_chapter(sentence), attention_chapter(sentence))
    controls = _controls(starts, beside, trained=RANDOM not in m.name)
    summary = (
        f"{weights_note(m)}{m.name}, {count} layers, {sentence.z.shape[1]} tokens. "
        f"{_summary(starts, beside)}\n\n" + "\n\n".join(chapter.summary for chapter in chapters)
    )
    return report_of(
        __name__,
        p,
        summary,
        controls=controls,
        tables=[_ends_table(starts), _sentences_table(beside), _layers_table(starts)],
        figures=[cy.Picture("The sentence and its null models", _CAPTION, _comparison(starts))],
        chapters=chapters,
    )


_CAPTION = (
    "The sentence (line with dots) beside its null models: mean of the draws, and the band that "
    "holds 95 % of them. Random words are the null model of a sentence; what they do too is the "
    "model's own. Gaussian tokens are no words, and where they end is a matter of the draw."
)


def _sentences(m: cy.Transformer, p: Params, layers: int) -> list[Beside]:
    """Every sentence beside random words of its length."""
    draw, known = np.random.default_rng([p.seed, 1]), vocabulary(m)
    texts = (p.text, *OTHERS[: p.others])
    read = [ids_of(m, text, m.max_tokens) for text in texts]
    pool = np.concatenate([ids[~special] for ids, special in read])

    def end(tokens: Any) -> float:
        return float(cosines(m.trace(tokens, layers).z[-1]).mean())

    out = []
    for text, (ids, special) in zip(texts, read):
        words, pooled = (
            np.array([end(random_words(ids, special, some, draw)) for _ in range(p.draws)])
            for some in (known, pool)
        )
        out.append(Beside(text, len(ids), end(text), words, pooled))
    return out


# --- what is said --------------------------------------------------------------------------------


def _spread(x: np.ndarray) -> str:
    low, high = np.quantile(x, (0.025, 0.975))
    return f"{x.mean():.2f} ({low:.2f} to {high:.2f})"


def _summary(starts: dict[str, Ensemble], beside: list[Beside]) -> str:
    draws = len(starts[WORDS].first)
    ends = "; ".join(
        f"{name} {_spread(starts[name].end('mean_cosine'))}" for name in (ORDER, WORDS, GAUSSIAN)
    )
    mine = float(starts["sentence"].end("mean_cosine")[0])
    text = (
        f"Mean cosine of two tokens after the last layer: sentence {mine:.2f}; with the middle "
        f"95 % of {draws} draws, {ends}."
    )
    more = np.array([x.more for x in beside])
    low, high = resampled(more)
    rest = np.array([x.more_than_pooled for x in beside])
    least, most = resampled(rest)
    return text + (
        f" Over {len(beside)} sentences it is {more.mean():+.3f} beside that of as many random "
        f"words (95 %: {low:+.3f} to {high:+.3f}), and {rest.mean():+.3f} ({least:+.3f} to "
        f"{most:+.3f}) beside words drawn from all these sentences, which are as common as its own."
    )


def _controls(
    starts: dict[str, Ensemble], beside: list[Beside], trained: bool
) -> list[cy.Comparison]:
    mine = float(starts["sentence"].end("mean_cosine")[0])
    draws = len(starts[WORDS].first)
    words, gauss, order = (starts[k].end("mean_cosine") for k in (WORDS, GAUSSIAN, ORDER))
    more = np.array([x.more for x in beside])
    low, high = resampled(more)
    rest = np.array([x.more_than_pooled for x in beside])
    least, most = resampled(rest)
    out = [
        cy.Comparison(
            "The tokens of a sentence end less alike than random tokens.",
            f"{draws} draws of Gaussian tokens, and of random words (the right null model)",
            f"sentence {mine:.2f}; Gaussian {_spread(gauss)}; random words {_spread(words)}",
            mine < min(float(np.quantile(x, 0.025)) for x in (gauss, words)),
        ),
        cy.Comparison(
            "The tokens of a sentence end more alike than random words.",
            f"{len(beside)} sentences, {draws} draws of random words of the same length for each",
            f"difference of mean cosines {more.mean():+.3f} (95 % over sentences: {low:+.3f} to "
            f"{high:+.3f}); above the mean of its random words in {(more > 0).sum()} of "
            f"{len(more)}",
            low > 0,
        ),
        cy.Comparison(
            "So do they beside common words that do not belong together.",
            f"{len(beside)} sentences, {draws} draws from the words of all of them for each",
            f"difference of mean cosines {rest.mean():+.3f} (95 % over sentences: {least:+.3f} to "
            f"{most:+.3f}); above the mean of its draws in {(rest > 0).sum()} of {len(rest)}",
            least > 0,
        ),
        cy.Comparison(
            "The order of the words moves the mean cosine.",
            f"{draws} other orders of the same words",
            f"sentence {mine:.2f}; other orders {_spread(order)}",
            not np.quantile(order, 0.025) <= mine <= np.quantile(order, 0.975),
        ),
    ]
    return out + _sink_controls(starts, trained)


def _sink_controls(starts: dict[str, Ensemble], trained: bool) -> list[cy.Comparison]:
    """[CLS] as the sink: is it the sentence's, and is it the token or its place?"""
    if MOVED not in starts:
        return []
    mine, words, moved = (starts[k].first for k in ("sentence", WORDS, MOVED))
    heads = starts["sentence"].heads
    seen = (
        f"[CLS] is the sink in {mine[0]:.0f} of {heads} heads; among random words in "
        f"{words.mean():.1f}; in the middle of random words in {moved.mean():.1f}"
    )
    most = 0.5 * heads
    return [
        cy.Comparison(
            "That [CLS] is the sink of most heads is about this sentence.",
            f"random words, {len(words)} draws",
            seen,
            bool(mine[0] > most) and not bool(words.mean() > most),
        ),
        cy.Comparison(
            "[CLS] is the sink of most heads as a token, wherever it stands.",
            f"[CLS] put into the middle of random words, {len(moved)} draws",
            seen + ("" if trained else " (random weights)"),
            bool(np.quantile(moved, 0.025) > most),
        ),
    ]


# --- tables and figures --------------------------------------------------------------------------


def _ends_table(starts: dict[str, Ensemble]) -> cy.Table:
    def first(x: Ensemble) -> float | None:
        return None if np.isnan(x.first).any() else float(x.first.mean())

    columns: dict[str, Any] = {
        "start": "name",
        "draws": lambda x: len(x.first),
        "mean cosine at the end": lambda x: float(x.end("mean_cosine").mean()),
        "2.5 %": lambda x: float(np.quantile(x.end("mean_cosine"), 0.025)),
        "97.5 %": lambda x: float(np.quantile(x.end("mean_cosine"), 0.975)),
        "least": lambda x: float(x.end("mean_cosine").min()),
        "largest": lambda x: float(x.end("mean_cosine").max()),
        "clusters at 0.5": lambda x: float(x.end("clusters").mean()),
        "heads with [CLS] as sink": first,
        "of heads": "heads",
    }
    note = (
        "Quantiles over draws. Random words are whole words of the vocabulary, special tokens left "
        "where they are; Gaussian tokens have the lengths of the sentence's."
    )
    return cy.Table.of("After the last layer", list(starts.values()), columns, note)


def _sentences_table(beside: list[Beside]) -> cy.Table:
    columns: dict[str, Any] = {
        "sentence": "text",
        "tokens": "tokens",
        "mean cosine": "cosine",
        "random words": lambda x: float(x.words.mean()),
        "2.5 %": lambda x: float(np.quantile(x.words, 0.025)),
        "97.5 %": lambda x: float(np.quantile(x.words, 0.975)),
        "difference": "more",
        "words of all sentences": lambda x: float(x.pooled.mean()),
        "difference ": "more_than_pooled",
    }
    note = (
        "Mean cosine after the last layer; as many random words of the vocabulary, quantiles over "
        "draws; and as many words drawn from all these sentences."
    )
    return cy.Table.of("Sentences beside random words", beside, columns, note)


def _layers_table(starts: dict[str, Ensemble]) -> cy.Table:
    rows = []
    for x in starts.values():
        means = {key: x.values[key].mean(axis=0) for key in KEYS}
        for k in range(len(means["mean_cosine"])):
            here = {key: float(v[k]) for key, v in means.items()}
            shown = {key: None if np.isnan(v) else v for key, v in here.items()}
            rows.append({"start": x.name, "layer": k, **shown})
    names = {
        "start": "start", "layer": "layer", "length": "root-mean-square length",
        "mean_cosine": "mean cosine", "clusters": "clusters at 0.5",
        "argmax_mass": "hardmax-likeness", "sink_mass": "mass on the sink",
    }  # fmt: skip
    return table_of("By layer", rows, names, "Means over the draws.")


def _comparison(starts: dict[str, Ensemble]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4.3, 3.6)
    panels = {
        "mean_cosine": ("how alike the tokens are", "mean cosine of pairs"),
        "clusters": ("how many clusters", "clusters at tolerance 0.5"),
        "argmax_mass": ("how hard the attention is", "hardmax-likeness, mean of all heads"),
    }
    shown = [starts[name] for name in ("sentence", ORDER, WORDS, GAUSSIAN)]
    for ax, (key, (title, label)) in zip(axes[0], panels.items()):
        for x, colour in zip(shown, cy.plot.PALETTE):
            mean, low, high = x.band(key)
            known = np.flatnonzero(~np.isnan(mean))
            alone = len(x.first) == 1
            look = {"lw": 2.0, "marker": "o", "ms": 4, "zorder": 4} if alone else {"lw": 1.4}
            ax.plot(known, mean[known], color=colour, label=x.name, **look)
            if not alone:
                ax.fill_between(known, low[known], high[known], color=colour, alpha=0.15, lw=0)
        ax.set_title(title, fontsize=cy.plot.TITLE, loc="left")
        ax.set(xlabel="layer $k$", ylabel=label)
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 1].yaxis.get_major_locator().set_params(integer=True)
    cy.plot.legend_below(axes[0, 0])
    return figure
