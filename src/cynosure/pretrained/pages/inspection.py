"""inspection(): what can be said about a transformer, a text and an iterated layer, as a Report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...drawing.report import Picture, Report
from ..reading.iterations import (
    COLUMNS,
    CONTROL,
    Iterated,
    frozen_error,
    iterated_cases,
    other_starts,
    random_tokens,
)
from ..reading.surveys import surveyed_trace
from ..reading.traces import cosines
from ..reading.transformer import Transformer
from ..reading.weights import weights_sha256
from .chapters import (
    attention_chapter,
    chosen_heads,
    heads_chapter,
    table_of,
    tokens_chapter,
    visible,
)
from .image_chapter import picture_chapter
from .softmax_chapter import softmax_chapter
from .survey_chapter import survey_chapter

MOST_LINES = 14  # beyond, curves cannot be told apart


def inspection(
    transformer: Transformer,
    text: Any = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    layers: int | None = None,
    words: bool = False,
    iterate: int = 0,
    pictures: bool = True,
    progress: Callable[[float, str], Any] | None = None,
) -> Report:
    """Collects all about a model on one page: its heads, a text if given, one layer iterated.

    `text`, `layers` and `words` are what `Transformer.trace` takes, `text` being the path of a file
    where the model reads pictures. `layer` and `head` choose what
    is drawn and iterated; without them the drawn head is the most hardmax-like one on the text.
    `iterate` runs that layer so many times over (on random tokens when there is no text), with the
    control. `progress(share done, step)` is called as each step begins.
    """
    tell = progress or (lambda share, step: None)
    layer = _chosen(transformer, layer, head, iterate)
    if text is None and (layers is not None or words):
        raise ValueError("layers and words: these are about a text (text=, --text), and none came")
    chapters: list[Report] = []
    trace = None
    if text is not None:
        tell(0.1, "sending the text through the layers")
        trace, survey = surveyed_trace(transformer, text, layers, words=words)
        chapters.append(tokens_chapter(trace, pictures=pictures))
        tell(0.3, "attention of every head on the text")
        chapters.append(attention_chapter(trace, pictures=pictures))
        if trace.grid is not None:
            chapters.append(picture_chapter(trace, pictures=pictures))
        found = survey_chapter(survey, transformer.causal, pictures=pictures)
        if layers not in (None, transformer.depth):
            whole = f"The survey is of all {transformer.depth} layers, whatever layers= is. "
            found = replace(found, summary=whole + found.summary)
        chapters.append(found)
        if head is None and layer is None:  # the sharpest on this text
            best = trace.attentions.max(axis=-1).mean(axis=-1)
            layer, head = divmod(int(best.argmax()), transformer.width)
            layer = transformer.original(min(layer, transformer.depth - 1))
    if not iterate or text is not None:
        tell(0.5, "spectra and hypotheses of the heads")
        own = None if layer is None else transformer.original(layer)
        chapters.append(heads_chapter(transformer, layer=own, head=head, pictures=pictures))
    if trace is not None and not words and trace.seen.shape[1] <= 64:  # many layers are computed
        tell(0.6, "softmax and hardmax in every head")
        chapters.append(softmax_chapter(transformer, trace))
    if iterate:
        tell(0.7, f"layer {layer or 0}, run {iterate} times over, and its controls")
        tokens = random_tokens(transformer) if text is None else text
        again = (tokens, layer or 0, head, iterate)
        chapters.append(iteration_chapter(transformer, *again, pictures=pictures))
    params = {
        "model": transformer.name,
        "family": transformer.model.config.model_type,
        "weights_sha256": weights_sha256(transformer),
        "text": text if isinstance(text, str) else None,
        "image": str(text) if isinstance(text, Path) else None,
    } | {"layer": layer, "head": head, "layers": layers, "words": words, "iterate": iterate}
    notes = () if trace is None else trace.trajectory.status.notes
    said = [_model_sentence(transformer), *notes, *(c.summary.split("\n\n")[0] for c in chapters)]
    title = transformer.name if trace is None else f"{transformer.name}: {_short(text)}"
    return Report(title, "\n\n".join(said), params, chapters=tuple(chapters))


def _chosen(m: Transformer, layer: int | None, head: int | None, iterate: int) -> int | None:
    """The layer meant; a head or an iteration needs one, unless all layers are the same."""
    if iterate < 0:
        raise ValueError(f"iterate: expected a number of layers from 1 on, got {iterate}")
    if layer is None and (head is not None or iterate):
        if len(m.distinct_layers) > 1:
            what = "head" if head is not None else "iterate"
            raise ValueError(f"{what}: say which layer, 0 to {m.depth - 1} (layer=, --layer)")
        layer = 0
    if layer is not None:
        chosen_heads(m, layer, head)
    return layer


def _model_sentence(m: Transformer) -> str:
    config, (k, d) = m.model.config, m.heads(0)[0].Q.shape
    shared = ", all with the same weights" if len(m.distinct_layers) == 1 < m.depth else ""
    mask = ", causal" if m.causal else ""
    return (
        f"{m.name}: {config.model_type}, {m.depth} layers of {m.width} heads{shared}{mask}; tokens "
        f"in R^{d}, heads of rank {k}."
    )


def _short(text: Any) -> str:
    if isinstance(text, Path):
        return text.name
    if not isinstance(text, str):
        return "given tokens"
    line = " ".join(text.split())
    return f"“{line if len(line) <= 60 else line[:57] + '…'}”"


# --- a layer iterated ----------------------------------------------------------------------------


def iteration_chapter(
    transformer: Transformer,
    tokens: Any,
    layer: int,
    head: int | None,
    n: int,
    *,
    pictures: bool = True,
) -> Report:
    """One layer run n times over: whole, attention alone, one head or each, with the control."""
    cases = iterated_cases(transformer, tokens, layer, head, n)
    rows = [case.row for case in cases]
    given = isinstance(tokens, str | Path)
    start = "random tokens"
    if given:
        start = f"the tokens of the {'text' if isinstance(tokens, str) else 'picture'}"
    closest, ends = "–", [r["control"] for r in rows if r["norm"] and r["control"] is not None]
    if ends:
        low, high = min(ends), max(ends)
        closest = f"{low:.3f}" if high - low < 5e-4 else f"{low:.3f} to {high:.3f}"
    summary = (
        f"Layer {layer} run {n} times over, from {start}. {CONTROL} Here a run that keeps its "
        f"norms ends at a mean cosine of {closest} with its control."
    )
    table = table_of("The layer iterated", rows, COLUMNS, _ROWS)
    starts = other_starts(transformer, tokens if given else None, (layer,), head, n)
    figures = _iteration_figures(cases) if pictures else ()
    return Report(f"Layer {layer} iterated", summary, {}, (table, starts), {}, figures)


_ROWS = (
    "Clusters at 1 % of the token length, of tokens and of their directions. Rate: factor by which "
    "steps shrink per layer; about 1 means it circles or wanders. Control: mean cosine, at the "
    "end, between a token of this run and the same token when all heads are silent. Places: least "
    "cosine between a cluster of this run and the nearest one of the control; 1 with a smaller "
    "control means the same places, taken by other tokens. Values of f1*: distinct coordinates "
    "along the leading eigenvector of the head's V, at 1 % of the largest. Foretold: times run for "
    "which the attention P of the start, frozen, predicts all tokens to 10 %; frozen error: its "
    "relative error at the end."
)


def settling_curves(cases: Sequence[Iterated]) -> Any:
    """Mean cosine and step size by times run, for the runs that keep their norms."""
    from .pictures import curves, grid

    axes = grid(1, 2, (12.0, 3.8))[0]
    lines, steps = {}, {}
    runs, controls = (
        [case for case in cases if case.norm and (case.control is None) == silent]
        for silent in (False, True)
    )
    for case in (*runs[:MOST_LINES], *controls):
        z, t = case.run.values.astype(np.float64), case.run.t
        pairs = np.array([cosines(x).mean() if x.shape[0] > 1 else np.nan for x in z])
        unit = z / np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), np.finfo(float).tiny)
        moved = np.linalg.norm(np.diff(unit, axis=0), axis=-1).max(axis=-1)
        lines[case.name], steps[case.name] = (t, pairs), (t[1:], moved)
    curves(axes[0], lines, "mean cosine of pairs")
    curves(axes[1], steps, "largest step of a direction", log=True)
    for ax in axes:
        ax.set_xlabel("times run", fontsize=9)
    place = {"loc": "outside lower center", "ncols": 6, "frameon": False, "fontsize": 8}
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), **place)
    return axes[0].figure


def beside(one: Iterated, control: Iterated, title: str = "") -> Any:
    """Paths of the tokens of two runs, side by side, each under `title` and its own name."""
    from .pictures import grid, token_paths, words_at_ends

    panels = grid(1, 2, (13.0, 6.2))[0]
    runs = [visible(case.run)[0] for case in (one, control)]
    paths = []
    for ax, run, case in zip(panels, runs, (one, control), strict=True):
        paths.append(token_paths(run, ax))
        ax.set_title(title + case.name, fontsize=10, loc="left")
    figure = panels[0].figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # both panels have their place: words keep clear in it
    for ax, run, x in zip(panels, runs, paths, strict=True):
        if left := words_at_ends(run, ax, x):
            ax.set_title(
                f"{ax.get_title('left')} ({left} words found no place)", fontsize=10, loc="left"
            )
    return figure


def _iteration_figures(cases: Sequence[Iterated]) -> tuple[Picture, ...]:
    control = next(case for case in cases if case.norm and case.name == "no head")
    one = next(case for case in cases if case.norm and case.parts == "head")
    lead = "." if one.coordinates is None else f", {one.row['values']} distinct values at the end."
    silent = "With norms; dashed and dotted: all heads silent, the controls."
    sides = (
        f"Left: {one.name}. Right: the control, the same layer with no head at all. Where they "
        "look alike, norm and output bias do it alone."
    )
    frozen = (
        f"Left: f1* of the tokens, {one.name}{lead} Right: the same runs with the attention of "
        "the start, relative error; small as long as P at the start tells where tokens go."
    )
    predicted = _prediction_figure(cases, one)
    return (
        Picture("Settling", silent, settling_curves(cases)),
        Picture("Paths of the iterated tokens", sides, beside(one, control)),
        Picture("Leading eigenvector and frozen attention", frozen, predicted),
    )


def _prediction_figure(cases: Sequence[Iterated], one: Iterated) -> Any:
    from .pictures import curves, grid

    axes = grid(1, 2, (12.0, 3.8))[0]
    f, t = one.coordinates, one.run.t
    if f is None:
        f = np.linalg.norm(one.run.values.astype(np.float64), axis=-1)
    axes[0].plot(t, f, lw=1.1)
    axes[0].set_ylabel("|z_i|" if one.coordinates is None else "f1*(z_i)", fontsize=9)
    held = [(c.name, c.run, c.frozen) for c in cases if c.norm and c.frozen is not None]
    errors = {name: (run.t, frozen_error(run, frozen)) for name, run, frozen in held[:MOST_LINES]}
    lines = {name: (t[: len(error)], error) for name, (t, error) in errors.items()}
    curves(axes[1], lines, "relative error of frozen attention")
    axes[1].legend(frameon=False, fontsize=7.5, ncols=2)
    for ax in axes:
        ax.set_xlabel("times run", fontsize=9)
    return axes[0].figure
