"""A sentence on its way through a real model: paths, clusters, sinks (after arXiv 2312.10794).

See the paths: tokens move together, and in many models one of them (often [CLS] or the full stop)
receives most of the attention everywhere, a sink. See the curves: how far cosines rise in a trained
model for the sentence, for its words in another order, and for random tokens of the same lengths.
Only what the sentence does and the random tokens do not is about the sentence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from ...drawing.report import Picture, Report, Table
from ...pretrained import Trace, Transformer, attention_table, sentence_table
from ...pretrained.chapters import attention_chapter, tokens_chapter
from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from .._frame import Progress, silent

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "A sentence on its way through a real transformer"


@final
@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `layers` 0 are the model's own; a model that shares its weights can be run for more."""

    model: str = ""
    text: str = "The film was slow but the ending is wonderful, and I would see it again tomorrow."
    layers: int = 0
    seed: int = 0


QUICK = Params(text="The film was slow but the ending is wonderful.")


def run(p: Params, progress: Progress | None = None) -> Report:
    """The chapters on tokens and attention, and the comparison with two controls."""
    say = progress or silent
    if p.layers < 0:
        raise ValueError(f"layers: expected 0 (the model's own) or more, got {p.layers}")
    say(0.0, "model")
    return _measure(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _measure(p: Params, m: Transformer, say: Progress) -> Report:
    layers = p.layers or m.depth
    say(0.2, "traces")
    traces = _starts(m, p, layers)
    found = {name: (sentence_table(tr), attention_table(tr)) for name, tr in traces.items()}
    say(0.4, "figures")
    chapters = (tokens_chapter(traces["sentence"]), attention_chapter(traces["sentence"]))
    say(0.8, "controls")
    table, figure = _comparison(found)
    ends = {name: rows[-1]["mean_cosine"] for name, (rows, _) in found.items()}
    said = ", ".join(f"{name} {end:.2f}" for name, end in ends.items())
    summary = (
        f"{weights_note(m)}{m.name}, {layers} layers, {traces['sentence'].z.shape[1]} tokens. Mean "
        f"cosine of two tokens after the last layer: {said}.\n\n"
        + "\n\n".join(chapter.summary for chapter in chapters)
    )
    say(1.0, "done")
    return Report(
        TITLE,
        summary,
        asdict(p),
        (table,),
        {},
        (figure,),
        (),
        chapters,
        "cynosure run sentence_flow",
    )


def _starts(m: Transformer, p: Params, layers: int) -> dict[str, Trace]:
    """Traces of the sentence, of its tokens in another order, of random tokens as long as they."""
    rng = np.random.default_rng(p.seed)
    trace = m.trace(p.text, layers)
    assert m.tokenizer is not None  # or the text could not have been read
    ids = np.array(m.tokenizer(p.text)["input_ids"])[: trace.z.shape[1]]
    special = np.isin(ids, m.tokenizer.all_special_ids)
    ids[~special] = rng.permutation(ids[~special])
    z = trace.z[0].astype(np.float64)
    random = rng.standard_normal(z.shape)
    random *= np.linalg.norm(z, axis=1, keepdims=True) / np.linalg.norm(
        random, axis=1, keepdims=True
    )
    return {
        "sentence": trace,
        "words in another order": m.trace(ids.tolist(), layers),
        "random tokens": m.trace(random, layers),
    }


def _comparison(found: dict[str, tuple[list, list]]) -> tuple[Table, Picture]:
    from ...pretrained.pictures import curves, grid

    axes = grid(1, 3, (13.0, 3.6))[0]
    cosine, count, sharp = {}, {}, {}
    rows = []
    for name, (by_layer, by_head) in found.items():
        k = np.array([row["layer"] for row in by_layer])
        means = [np.nan if r["mean_cosine"] is None else r["mean_cosine"] for r in by_layer]
        mass = [
            float(np.mean([r["argmax_mass"] for r in by_head if r["layer"] == i])) for i in k[:-1]
        ]
        sink = [
            float(np.mean([r["sink_mass"] for r in by_head if r["layer"] == i])) for i in k[:-1]
        ]
        cosine[name] = (k, np.array(means))
        count[name] = (k, np.array([row["clusters"] for row in by_layer], dtype=float))
        sharp[name] = (k[:-1], np.array(mass))
        rows += [
            (name, i, r["length"], r["mean_cosine"], r["clusters"], *ends)
            for i, r, ends in zip(
                k.tolist(), by_layer, [*zip(mass, sink), (None, None)], strict=True
            )
        ]
    curves(axes[0], cosine, "mean cosine of pairs")
    curves(axes[1], count, "clusters at tolerance 0.5")
    curves(axes[2], sharp, "hardmax-likeness, mean of all heads")
    for ax in axes:
        ax.set_xlabel("layer $k$", fontsize=9)
    axes[1].yaxis.get_major_locator().set_params(integer=True)
    axes[0].legend(frameon=False, fontsize=8)
    columns = (
        "start", "layer", "root-mean-square length", "mean cosine", "clusters at 0.5",
        "hardmax-likeness", "mass on the sink",
    )  # fmt: skip
    caption = (
        "The sentence beside its controls. What random tokens do too is the model's own, not the "
        "sentence's."
    )
    return (
        Table("The sentence and its controls", columns, tuple(rows)),
        Picture("The sentence and its controls", caption, axes[0].figure),
    )
