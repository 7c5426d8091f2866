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
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ..pretrained import Transformer, settling
from ..pretrained.chapters import visible
from ..pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ..pretrained.inspection import settling_curves
from ..pretrained.iterations import (
    COLUMNS,
    CONTROL,
    Iterated,
    agreement,
    iterated_cases,
    random_tokens,
)
from ..report import Picture, Report, Table
from . import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "A layer of a real transformer, run many times over"
FAR = 0.95  # a head ends elsewhere than its control below this cosine


@final
@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `layer` -1 are all layers; each of their heads is run `times` times."""

    model: str = ""
    text: str = "The film was slow but the ending is wonderful."
    layer: int = -1
    times: int = 300


QUICK = Params(layer=4, times=25)


def run(p: Params, progress: Progress | None = None) -> Report:
    """A chapter per layer, and all heads against their controls."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.times < 2 or p.layer < -1:
        raise ValueError(f"times from 2 on, layer from 0 on or -1 for all; got {p}")
    say(0.0, "model")
    return _measure(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _measure(p: Params, m: Transformer, say: Progress) -> Report:
    layers = m.distinct_layers if p.layer < 0 else (p.layer,)
    cases = {}
    for done, layer in enumerate(layers):
        say(0.1 + 0.6 * done / len(layers), f"layer {layer}")
        cases[layer] = iterated_cases(m, p.text, layer, None, p.times, norms=(True,))
    say(0.7, "starts")
    starts = _starts(m, p, layers)
    say(0.9, "figures")
    report = Report(
        TITLE,
        weights_note(m) + _summary(m.name, p, cases),
        asdict(p),
        (_heads_table(cases), starts),
        {},
        _figures(cases),
        command="cynosure run sentence_collapse",
    )
    say(1.0, "done")
    return report


def _alone(cases: Sequence[Iterated]) -> list[Iterated]:
    return [case for case in cases if case.parts == "head"]


def _control(cases: Sequence[Iterated]) -> Iterated:
    return next(case for case in cases if case.name == "no head")


def _summary(name: str, p: Params, cases: dict[int, list[Iterated]]) -> str:
    rows = [
        {**case.row, "own": _control(found).row["clusters"], "at": f"L{k}H{case.name[5:]}"}
        for k, found in cases.items()
        for case in _alone(found)
    ]
    alike = sum(row["clusters"] == row["own"] for row in rows)
    tokens = sum((row["control"] or 0) >= FAR for row in rows)
    away = [row["at"] for row in rows if (row["places"] or 0) < FAR]
    shown = ", ".join(away[:16]) + (", …" if len(away) > 16 else "")
    return (
        f"{name}: each head of layer {', '.join(map(str, cases))} run {p.times} times alone, with "
        f"its norm. {CONTROL}\n\n"
        f"Of {len(rows)} heads, {alike} end with as many clusters as their layer without any head; "
        f"in {len(rows) - len(away)} every cluster is at a place where the control has one (cosine "
        f"of at least {FAR:g}), and in {tokens} each token is at its own place of the control. "
        f"Clusters elsewhere: {shown or 'none'}."
    )


def _heads_table(cases: dict[int, list[Iterated]]) -> Table:
    names = {key: name for key, name in COLUMNS.items() if key not in ("norm", "growth")}
    rows = tuple(
        (layer, *(case.row[key] for key in names))
        for layer, group in cases.items()
        for case in group
    )
    note = (
        "Clusters at 1 % of the token length. Rate: factor by which steps shrink per run of the "
        "layer. Control: mean cosine between a token at the end and the same token when all heads "
        "are silent. Places: least cosine between a cluster and the nearest one of the control."
    )
    return Table("Heads run alone, beside the control", ("layer", *names.values()), rows, note)


def _starts(m: Transformer, p: Params, layers: Sequence[int]) -> Table:
    """All heads together, and no head, from the text, from random tokens, from the unit sphere."""
    random = random_tokens(m)
    sphere = random / np.linalg.norm(random, axis=1, keepdims=True)
    every = max(1, p.times // 100)
    rows = []
    for layer in layers:
        for start, z in (("text", p.text), ("random tokens", random), ("unit sphere", sphere)):
            options: dict[str, Any] = {"parts": "attention", "save_every": every}
            full = m.iterate(z, layer, p.times, **options)
            silent = m.iterate(z, layer, p.times, head=(), **options)
            for name, run_ in (("all heads", full), ("no head", silent)):
                end = settling(run_)
                same = None if run_ is silent else agreement(full, silent)
                keys = ("clusters", "mean_cosine", "rate", "step")
                rows.append((layer, start, name, *(end[key] for key in keys), same))
    columns = ("layer", "start", "run", "clusters", "mean cosine", "rate", "last step", "control")
    return Table("From other starts, without feed-forward", columns, tuple(rows))


def _figures(cases: dict[int, list[Iterated]]) -> tuple[Picture, ...]:
    from ..pretrained.pictures import grid, head_maps, word_paths

    def of(key: str) -> np.ndarray:
        rows = [[case.row[key] for case in _alone(found)] for found in cases.values()]
        return np.array([[np.nan if x is None else x for x in row] for row in rows], dtype=float)

    own = np.array([[_control(found).row["clusters"]] for found in cases.values()])
    maps = {
        "tokens: cosine with the control, at the end": of("control"),
        "clusters minus those of the control": (of("clusters") - own).astype(int),
        "clusters: cosine with the nearest of the control": of("places"),
        "rate": of("rate"),
    }
    names = list(maps)
    pictures = [
        Picture(
            "Each head against the control",
            "Cosine 1 and difference 0: the head ends where norm and bias end without it. Clusters "
            "at 1 but tokens below: the same places, taken by other tokens.",
            head_maps(maps, list(cases), dict.fromkeys((names[0], names[2]), (-1, 1))),
        )
    ]
    layer, found = next(iter(cases.items()))
    worst = min(_alone(found), key=lambda case: case.row["control"] or 0.0)
    panels = grid(1, 2, (13.0, 6.2))[0]
    for ax, case in zip(panels, (worst, _control(found)), strict=True):
        word_paths(visible(case.run)[0], ax)
        ax.set_title(f"layer {layer}, {case.name}", fontsize=10, loc="left")
    pictures += [
        Picture(
            f"Layer {layer}: settling",
            "Dashed and dotted: all heads silent, the controls.",
            settling_curves(found),
        ),
        Picture(
            f"Layer {layer}: paths",
            f"Left: {worst.name}, which ends farthest from the control. Right: the control.",
            panels[0].figure,
        ),
    ]
    return tuple(pictures)
