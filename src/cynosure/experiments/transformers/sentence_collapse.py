"""One layer of a real model run many times over (after arXiv 2305.05465 and 2312.10794).

The theory sees clusters when an attention layer is repeated for ever. Repeat a trained one and
tokens do cluster, but beware: the norm and the output bias act even when every head is silent, and
alone they make clusters too. So each head stands beside that control here. See `places`: where it
is 1, a head's clusters are those of the control; `control` below 1 beside it means that the head
decides which token joins which of them, and no more.

Two things are varied that this does not mention: the text, and the start of the control. From one
text the control shows only some of the places it has: a head that sends a token to another of them
looks as if it had made a place of its own. So places are also counted among those that the control
has from any of the starts. The null model is the control of another layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import cynosure as cy

from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ...pretrained.inspection import beside, settling_curves
from ...pretrained.iterations import (
    COLUMNS,
    CONTROL,
    NEAR,
    Iterated,
    iterated_cases,
    other_starts,
    random_tokens,
)
from .._frame import Progress, counted, report_of, require, silent, wilson

TITLE = "A layer of a real transformer, run many times over"
Row: TypeAlias = dict[str, Any]  # of `Iterated.row`
FAR = 0.95  # a head ends elsewhere than its control below this cosine
RULE = 0.9  # a rule holds for this share of the heads, in every layer and from every text
OTHERS = (
    "What a waste of a good cast: the plot makes no sense.",
    "Prices of grain fell by a third after the harvest of that year.",
    "She opened the window because the room was too warm.",
)


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `layer` -1 are all layers; each of their heads is run `times` times. `others` further texts;
    the control also starts from random tokens, `draws` times."""

    model: str = ""
    text: str = "The film was slow but the ending is wonderful."
    layer: int = -1
    times: int = 300
    others: int = 2
    draws: int = 4


QUICK = Params(layer=4, times=25, others=1, draws=1)


class Counted(NamedTuple):
    """One layer from one text: of `heads`, how many end at the places of a control.

    `own` is the control from the same text, `any` the control from any start, `half` the same as
    `any` at half the time, `other` the control of another layer from any start (the null model; -1
    where there is no other). `moving` heads have not come to rest.
    """

    layer: int
    text: str
    heads: int
    own: int
    any: int
    half: int
    other: int
    clusters: float
    moving: int


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """A chapter per layer, and all heads against their controls."""
    say = progress or silent
    sensible = p.times >= 2 and p.layer >= -1 and 0 <= p.others <= len(OTHERS) and p.draws >= 0
    said = f"times >= 2, layer >= 0 or -1 for all, 0 <= others <= {len(OTHERS)}, draws >= 0"
    require(sensible, said, p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    layers = m.distinct_layers if p.layer < 0 else (p.layer,)
    rows: dict[int, list[Row]] = {}
    drawn: list[Iterated] = []  # of the first layer only: the runs are large
    for done, layer in enumerate(layers):
        say(0.1 + 0.3 * done / len(layers), f"layer {layer}")
        cases = iterated_cases(m, p.text, layer, None, p.times, norms=(True,))
        rows[layer] = [case.row for case in cases]
        drawn = drawn or cases
    say(0.4, "other texts")
    texts = (p.text, *OTHERS[: p.others])
    counts = _counts(p, m, texts, layers)
    say(0.8, "starts")
    starts = other_starts(m, p.text, layers, None, p.times)
    say(0.9, "figures")
    return report_of(
        __name__,
        p,
        weights_note(m) + _summary(m.name, p, rows, counts),
        controls=_controls(counts),
        tables=(_counts_table(counts), _heads_table(rows), starts),
        figures=_figures(rows, drawn),
    )


# --- places of the control, from other texts and starts ------------------------------------------


def centres(z: np.ndarray) -> np.ndarray:
    """Directions of the clusters of tokens z (n, d), counted as in `cynosure.pretrained`."""
    z = z.astype(np.float64)
    scale = float(np.sqrt((z**2).sum(axis=1).mean())) or 1.0
    c = cy.clusters(z / scale, NEAR).centres
    return c / np.maximum(np.linalg.norm(c, axis=1, keepdims=True), np.finfo(float).tiny)


def at_places(found: np.ndarray, known: np.ndarray) -> bool:
    """Is every direction of `found` within a cosine of FAR of one of `known`?"""
    return bool((found @ known.T).max(axis=1).min() >= FAR)


def _silent(
    p: Params, m: cy.Transformer, texts: Sequence[str], layers: Sequence[int]
) -> dict[int, list[np.ndarray]]:
    """By layer: where the control ends from each text, and from random tokens."""
    starts = [*texts, *(random_tokens(m, seed=k) for k in range(p.draws))]
    return {
        layer: [
            centres(m.iterate(z, layer, p.times, parts="attention", head=()).values[-1])
            for z in starts
        ]
        for layer in layers
    }


def _counts(
    p: Params, m: cy.Transformer, texts: Sequence[str], layers: Sequence[int]
) -> list[Counted]:
    """Every head alone from every text, beside the places of the control."""
    places = _silent(p, m, texts, layers)
    every = {layer: np.concatenate(found) for layer, found in places.items()}
    half, out = max(1, p.times // 2), []
    for i, layer in enumerate(layers):
        wrong = every[layers[(i + 1) % len(layers)]] if len(layers) > 1 else None
        for k, text in enumerate(texts):
            runs = [
                m.iterate(text, layer, p.times, parts="head", head=h, save_every=half).values
                for h in range(m.width)
            ]
            ends = [centres(run[-1]) for run in runs]
            row = Counted(
                layer=layer,
                text=text,
                heads=m.width,
                own=sum(at_places(c, places[layer][k]) for c in ends),
                any=sum(at_places(c, every[layer]) for c in ends),
                half=sum(at_places(centres(run[1]), every[layer]) for run in runs),
                other=-1 if wrong is None else sum(at_places(c, wrong) for c in ends),
                clusters=float(np.mean([len(c) for c in ends])),
                moving=sum(_moves(run) for run in runs),
            )
            out.append(row)
    return out


def _moves(run: np.ndarray) -> bool:
    """Has a token turned by more than 1 % since half the time?"""
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (run[1], run[-1]))
    return bool(np.abs(a - b).max() > NEAR)


def _by_layer(counts: Sequence[Counted], what: str) -> str:
    """ "12 to 12, 7 to 9": fewest and most over texts, layer by layer."""
    layers = dict.fromkeys(c.layer for c in counts)
    ends = [[getattr(c, what) for c in counts if c.layer == layer] for layer in layers]
    return ", ".join(f"{min(x)} to {max(x)}" if min(x) < max(x) else f"{x[0]}" for x in ends)


def _controls(counts: Sequence[Counted]) -> list[cy.Comparison]:
    texts, heads = len({c.text for c in counts}), counts[0].heads
    later = [c for c in counts if c.layer > 0] or list(counts)
    total = sum(c.heads for c in counts)
    own, every = (sum(getattr(c, key) for c in counts) for key in ("own", "any"))
    out = [
        cy.Comparison(
            "A head run alone ends at the places its control has from the same text: the rule from "
            "layer 1 on.",
            f"every layer, {texts} texts",
            f"of {heads} heads, by layer (fewest to most over texts): {_by_layer(counts, 'own')}; "
            f"in all {counted(own, total)}",
            min(c.own / c.heads for c in later) >= RULE,
        ),
        cy.Comparison(
            "It ends at places that the control has from some start: the rule from layer 1 on.",
            f"every layer, {texts} texts; the control from all texts and random tokens",
            f"of {heads} heads, by layer: {_by_layer(counts, 'any')}; in all "
            f"{counted(every, total)}; at half the time {_by_layer(counts, 'half')}",
            min(c.any / c.heads for c in later) >= RULE,
        ),
    ]
    if counts[0].other >= 0:
        other = sum(c.other for c in counts)
        out.append(
            cy.Comparison(
                "That the places are the control's is more than chance.",
                "the control of another layer, from any start",
                f"its own layer's {counted(every, total)}; another layer's {counted(other, total)}",
                wilson(every, total)[0] > wilson(other, total)[1],
            )
        )
    return out


def _counts_table(counts: Sequence[Counted]) -> cy.Table:
    columns: dict[str, Any] = {
        "layer": "layer",
        "text": "text",
        "heads": "heads",
        "places of the control, same text": "own",
        "places of the control, any start": "any",
        "95 % from": lambda c: wilson(c.any, c.heads)[0],
        "to": lambda c: wilson(c.any, c.heads)[1],
        "the same at half the time": "half",
        "another layer's control": lambda c: None if c.other < 0 else c.other,
        "clusters, mean": "clusters",
        "still moving": "moving",
    }
    note = (
        f"Heads, of those of the layer, all of whose clusters are within a cosine of {FAR:g} of a "
        "place where the control ends. Any start: the control from all texts and from random "
        "tokens. Another layer's control is the null model. Still moving: a coordinate of a unit "
        "token changes by more than 1 % in the second half."
    )
    return cy.Table.of("Heads at the places of the control", list(counts), columns, note)


def _alone(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["run"].startswith("head ")]


def _control(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row["run"] == "no head")


def _summary(name: str, p: Params, layers: dict[int, list[Row]], counts: Sequence[Counted]) -> str:
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
        f"Clusters elsewhere: {shown or 'none'}.\n\n"
        f"From {len({c.text for c in counts})} texts the heads at the places of the control from "
        f"the same text are, by layer, {_by_layer(counts, 'own')} of {counts[0].heads}; at places "
        f"that the control has from some start, {_by_layer(counts, 'any')}."
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
            "at 1 but tokens below: the same places, taken by other tokens. The control is the one "
            "from the same text; places that it has only from other starts are counted in the "
            "first table.",
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
