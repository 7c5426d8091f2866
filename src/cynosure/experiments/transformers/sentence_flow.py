"""A sentence on its way through a real model: paths, clusters, sinks (after arXiv 2312.10794).

See the paths: tokens move together, and in many models one of them (often [CLS] or the full stop)
receives most of the attention everywhere, a sink. See the curves: how far cosines rise in a trained
model for the sentence, for its words in another order, and for random tokens of the same lengths.
Only what the sentence does and the random tokens do not is about the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import cynosure as cy

from ...pretrained import attention_table, sentence_table
from ...pretrained.chapters import attention_chapter, table_of, tokens_chapter
from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from .._frame import Progress, report_of, require, silent

TITLE = "A sentence on its way through a real transformer"


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `layers` 0 are the model's own; a model that shares its weights can be run for more."""

    model: str = ""
    text: str = "The film was slow but the ending is wonderful, and I would see it again tomorrow."
    layers: int = 0
    seed: int = 0


QUICK = Params(text="The film was slow but the ending is wonderful.")


Row: TypeAlias = dict[str, Any]  # of `sentence_table`, with means over the heads of the layer


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The chapters on tokens and attention, and the comparison with two controls."""
    say = progress or silent
    require(p.layers >= 0, "layers >= 0, 0 for the model's own", p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    count = p.layers or m.depth
    say(0.2, "traces")
    traces = _starts(m, p, count)
    layers = {name: _layers(name, trace) for name, trace in traces.items()}
    say(0.4, "figures")
    chapters = (tokens_chapter(traces["sentence"]), attention_chapter(traces["sentence"]))
    ends = ", ".join(f"{name} {rows[-1]['mean_cosine']:.2f}" for name, rows in layers.items())
    summary = (
        f"{weights_note(m)}{m.name}, {count} layers, {traces['sentence'].z.shape[1]} tokens. Mean "
        f"cosine of two tokens after the last layer: {ends}.\n\n"
        + "\n\n".join(chapter.summary for chapter in chapters)
    )
    names = {
        "start": "start", "layer": "layer", "length": "root-mean-square length",
        "mean_cosine": "mean cosine", "clusters": "clusters at 0.5",
        "argmax_mass": "hardmax-likeness", "sink_mass": "mass on the sink",
    }  # fmt: skip
    title = "The sentence and its controls"
    caption = (
        "The sentence beside its controls. What random tokens do too is the model's own, not the "
        "sentence's."
    )
    every = [row for rows in layers.values() for row in rows]
    return report_of(
        __name__,
        p,
        summary,
        tables=[table_of(title, every, names)],
        figures=[cy.Picture(title, caption, _comparison(layers))],
        chapters=chapters,
    )


def _starts(m: cy.Transformer, p: Params, layers: int) -> dict[str, cy.Trace]:
    """Traces of the sentence, of its tokens in another order, of random tokens as long as they."""
    rng = np.random.default_rng(p.seed)
    trace = m.trace(p.text, layers)
    assert m.tokenizer is not None  # or the text could not have been read
    ids = np.array(m.tokenizer(p.text)["input_ids"])[: trace.z.shape[1]]
    special = np.isin(ids, m.tokenizer.all_special_ids)
    ids[~special] = rng.permutation(ids[~special])
    z = trace.z[0].astype(np.float64)
    random = rng.standard_normal(z.shape)
    random *= np.divide(*(np.linalg.norm(x, axis=1, keepdims=True) for x in (z, random)))
    return {
        "sentence": trace,
        "words in another order": m.trace(ids.tolist(), layers),
        "random tokens": m.trace(random, layers),
    }


def _layers(name: str, trace: cy.Trace) -> list[Row]:
    """One row per layer; after the last one there is no attention to average."""
    heads = attention_table(trace)

    def mean(key: str, layer: int) -> float | None:
        values = [head[key] for head in heads if head["layer"] == layer]
        return float(np.mean(values)) if values else None

    means = ("argmax_mass", "sink_mass")
    return [
        {"start": name, **row, **{key: mean(key, row["layer"]) for key in means}}
        for row in sentence_table(trace)
    ]


def _comparison(layers: dict[str, list[Row]]) -> Any:
    from ...pretrained.pictures import curves

    figure, axes = cy.plot.sheet(1, 3, 4.3, 3.6)
    panels = {
        "mean_cosine": "mean cosine of pairs",
        "clusters": "clusters at tolerance 0.5",
        "argmax_mass": "hardmax-likeness, mean of all heads",
    }
    for ax, (key, label) in zip(axes[0], panels.items()):
        known = {
            name: np.array([(r["layer"], r[key]) for r in rows if r[key] is not None], float)
            for name, rows in layers.items()
        }
        curves(ax, {name: (x[:, 0], x[:, 1]) for name, x in known.items()}, label)
        ax.set_xlabel("layer $k$", fontsize=cy.plot.LABEL)
    axes[0, 1].yaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].legend(frameon=False, fontsize=cy.plot.TICK)
    return figure
