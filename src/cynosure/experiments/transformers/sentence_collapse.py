"""One layer of a real model run many times over (after arXiv 2305.05465 and 2312.10794).

The theory sees clusters when an attention layer is repeated for ever. Repeat a trained one and
tokens do cluster, but beware: the norm and the output bias act even when every head is silent, and
alone they make nearly the same clusters at nearly the same rate. So each head stands beside that
control here. See `places`: where it is 1, a head's clusters are those of the control; `control`
below 1 beside it means that the head decides which token joins which of them, and no more. In
MiniLM this is the rule from layer 1 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import cynosure as cy

from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ...pretrained.inspection import beside, settling_curves
from ...pretrained.iterations import COLUMNS, CONTROL, Iterated, iterated_cases, other_starts
from .._frame import Progress, report_of, require, silent

TITLE = "A layer of a real transformer, run many times over"
Row: TypeAlias = dict[str, Any]  # of `Iterated.row`
FAR = 0.95  # a head ends elsewhere than its control below this cosine


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `layer` -1 are all layers; each of their heads is run `times` times."""

    model: str = ""
    text: str = "The film was slow but the ending is wonderful."
    layer: int = -1
    times: int = 300


QUICK = Params(layer=4, times=25)


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """A chapter per layer, and all heads against their controls."""
    say = progress or silent
    require(p.times >= 2 and p.layer >= -1, "times >= 2, layer >= 0 or -1 for all", p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    layers = m.distinct_layers if p.layer < 0 else (p.layer,)
    rows: dict[int, list[Row]] = {}
    drawn: list[Iterated] = []  # of the first layer only: the runs are large
    for done, layer in enumerate(layers):
        say(0.1 + 0.6 * done / len(layers), f"layer {layer}")
        cases = iterated_cases(m, p.text, layer, None, p.times, norms=(True,))
        rows[layer] = [case.row for case in cases]
        drawn = drawn or cases
    say(0.7, "starts")
    starts = other_starts(m, p.text, layers, None, p.times)
    say(0.9, "figures")
    return report_of(
        __name__,
        p,
        weights_note(m) + _summary(m.name, p, rows),
        tables=(_heads_table(rows), starts),
        figures=_figures(rows, drawn),
    )


def _alone(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["run"].startswith("head ")]


def _control(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row["run"] == "no head")


def _summary(name: str, p: Params, layers: dict[int, list[Row]]) -> str:
    rows = [
        {**row, "own": _control(group)["clusters"], "at": f"L{k}H{row['run'][5:]}"}
        for k, group in layers.items()
        for row in _alone(group)
    ]
    alike = sum(row["clusters"] == row["own"] for row in rows)
    tokens = sum((row["control"] or 0) >= FAR for row in rows)
    away = [row["at"] for row in rows if (row["places"] or 0) < FAR]
    shown = ", ".join(away[:16]) + (", …" if len(away) > 16 else "")
    return (
        f"{name}: each head of layer {', '.join(map(str, layers))} run {p.times} times alone, with "
        f"its norm. {CONTROL}\n\n"
        f"Of {len(rows)} heads, {alike} end with as many clusters as their layer without any head; "
        f"in {len(rows) - len(away)} every cluster is at a place where the control has one (cosine "
        f"of at least {FAR:g}), and in {tokens} each token is at its own place of the control. "
        f"Clusters elsewhere: {shown or 'none'}."
    )


def _heads_table(layers: dict[int, list[Row]]) -> cy.Table:
    names = {key: name for key, name in COLUMNS.items() if key not in ("norm", "growth")}
    rows = tuple(
        (layer, *(row[key] for key in names)) for layer, group in layers.items() for row in group
    )
    note = (
        "Clusters at 1 % of the token length. Rate: factor by which steps shrink per run of the "
        "layer. Control: mean cosine between a token at the end and the same token when all heads "
        "are silent. Places: least cosine between a cluster and the nearest one of the control. "
        "Foretold: times run for which the attention of the start, frozen, predicts all tokens to "
        "10 %; frozen error: its relative error at the end."
    )
    return cy.Table("Heads run alone, beside the control", ("layer", *names.values()), rows, note)


def _figures(layers: dict[int, list[Row]], drawn: Sequence[Iterated]) -> list[cy.Picture]:
    from ...pretrained.pictures import head_maps

    def of(key: str) -> np.ndarray:
        rows = [[row[key] for row in _alone(group)] for group in layers.values()]
        return np.array([[np.nan if x is None else x for x in row] for row in rows], dtype=float)

    own = np.array([[_control(group)["clusters"]] for group in layers.values()])
    maps = {
        "tokens: cosine with the control, at the end": of("control"),
        "clusters minus those of the control": (of("clusters") - own).astype(int),
        "clusters: cosine with the nearest of the control": of("places"),
        "rate": of("rate"),
    }
    names = list(maps)
    layer = next(iter(layers))
    worst = min((c for c in drawn if c.parts == "head"), key=lambda c: c.row["control"] or 0.0)
    control = next(case for case in drawn if case.name == "no head")
    return [
        cy.Picture(
            "Each head against the control",
            "Cosine 1 and difference 0: the head ends where norm and bias end without it. Clusters "
            "at 1 but tokens below: the same places, taken by other tokens.",
            head_maps(maps, list(layers), dict.fromkeys((names[0], names[2]), (-1, 1))),
        ),
        cy.Picture(
            f"Layer {layer}: settling",
            "Dashed and dotted: all heads silent, the controls.",
            settling_curves(drawn),
        ),
        cy.Picture(
            f"Layer {layer}: paths",
            f"Left: {worst.name}, which ends farthest from the control. Right: the control.",
            beside(worst, control, f"layer {layer}, "),
        ),
    ]
