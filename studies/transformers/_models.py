"""The models that a study sets side by side, and sentences as each of them reads them.

`model` names one of them or several, with commas between them: folders, hub ids, or MiniLM. Nothing
named is MiniLM, if it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained.reading.examples import example_transformer, weights_note

MINILM = "minilm"
PHONEMES = 1000  # a tokenizer that has a sign of stress and fewer pieces reads phonemes

# Sentences in letters, and in the phonemes that PL-BERT reads (espeak-ng, American English).
SPOKEN = dict(
    line.split("\t")
    for line in Path(__file__).with_name("spoken.tsv").read_text(encoding="utf-8").splitlines()
)
TEXTS = tuple(SPOKEN)


def models_of(
    model: str, text: str = TEXTS[0], family: str = "bert"
) -> list[cy.pretrained.Transformer]:
    """The models named; without a name MiniLM, or random weights where it is not installed."""
    names = [name.strip() for name in model.split(",") if name.strip()] or [""]
    own = ["" if name.lower() == MINILM else name for name in names]
    return [example_transformer(name, text, family) for name in own]


def read_as(m: cy.pretrained.Transformer, text: str) -> str:
    """The text in what the model reads: phonemes where it reads those and they are known."""
    known = {} if m.tokenizer is None else m.tokenizer.get_vocab()
    return SPOKEN.get(text, text) if "ˈ" in known and len(known) < PHONEMES else text


def starts_of(
    m: cy.pretrained.Transformer,
    texts: Sequence[str],
    layer: int,
    tokens: int,
    mixed: np.random.Generator | None = None,
) -> np.ndarray:
    """The first tokens of each text as they enter the layer, as many of all: (texts, n, d).

    `mixed` draws another order of the same tokens, the first and the last left where they are.
    """
    assert m.tokenizer is not None
    read = [m.tokenizer(read_as(m, text))["input_ids"] for text in texts]
    n = min(tokens, *map(len, read))
    inner = [ids[1 : n - 1] if mixed is None else mixed.permutation(ids[1 : n - 1]) for ids in read]
    return np.stack([m.trace([a[0], *x, a[-1]]).z[layer] for a, x in zip(read, inner)])


class Measured(NamedTuple):
    """What a study found in one model: its report, numbers to set beside others, what to draw."""

    report: cy.study.Report
    facts: dict[str, Any]
    drawn: Any = None


def side_by_side(
    p: Any,
    models: Sequence[cy.pretrained.Transformer],
    measure: Callable[[cy.pretrained.Transformer, cy.study.Progress], Measured],
    progress: cy.study.Progress,
    draw: Callable[[list[str], list[Any]], cy.study.Picture] | None = None,
) -> cy.study.Report:
    """The report on one model; on several, their facts and pictures together, a chapter on each."""
    found = []
    for k, m in enumerate(models):
        found.append(measure(m, cy.study.part(progress, k / len(models), (k + 1) / len(models))))
    if len(found) == 1:
        report = found[0].report
        return replace(report, summary=weights_note(models[0]) + report.summary)
    names = [m.name for m in models]
    rows = tuple((name, *one.facts.values()) for name, one in zip(names, found, strict=True))
    table = cy.study.Table("Models side by side", ("model", *found[0].facts), rows)
    return cy.study.report_of(
        p,
        "\n\n".join(one.report.summary.split("\n\n")[0] for one in found),
        controls=[
            replace(c, claim=f"{name}: {c.claim}")
            for name, one in zip(names, found)
            for c in one.report.controls
        ],
        tables=[table],
        figures=[draw(names, [one.drawn for one in found])] if draw else [],
        chapters=[
            replace(one.report, title=name, controls=(), params={}, command="")
            for name, one in zip(names, found)
        ],
    )
