"""Heads of a layer, each run many times alone: do they end where the layer ends without any head?

Norm and output bias act even when every head is silent, so that run is the control. From one text
it shows only some of the places it has, so its places from other starts count too. The null model
is the control of another layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained.reading.iterations import centres

from ._models import starts_of

FAR = 0.95  # a head ends elsewhere than its control below this cosine
RULE = 0.9  # a rule holds for this share of the heads, in every layer and from every text


class Counted(NamedTuple):
    """One layer from one text: of `heads`, how many end at the places of a control.

    `own` is the control from the same text, `any` the control from any start, `other` the control
    of another layer from any start (-1 where there is no other).
    """

    layer: int
    text: int
    heads: int
    own: int
    any: int
    other: int


def at_places(found: np.ndarray, known: np.ndarray) -> bool:
    """Is every direction of `found` within a cosine of FAR of one of `known`?"""
    return bool((found @ known.T).max(axis=1).min() >= FAR)


def places_of(
    m: cy.pretrained.Transformer,
    layers: Sequence[int],
    texts: Sequence[str],
    tokens: int,
    times: int,
    draws: int,
) -> list[Counted]:
    """Every head alone from every text, beside the places of the control."""
    begin = {layer: starts_of(m, texts, layer, tokens) for layer in layers}
    places = {}
    for layer, z in begin.items():
        noise = np.random.default_rng(layer).standard_normal((draws, *z.shape[1:]))
        noise *= np.linalg.norm(z, axis=-1).mean() / np.sqrt(z.shape[-1])
        both = np.concatenate([z, noise.astype(z.dtype)])
        ends = m.iterate(both, layer, times, parts="attention", head=(), save_every=times).z[-1]
        places[layer] = [centres(x) for x in ends]
    every = {layer: np.concatenate(found) for layer, found in places.items()}
    out = []
    for i, layer in enumerate(layers):
        wrong = every[layers[(i + 1) % len(layers)]] if len(layers) > 1 else None
        runs = [
            m.iterate(begin[layer], layer, times, parts="head", head=h, save_every=times).values
            for h in range(m.width)
        ]
        for k in range(len(texts)):
            ends = [centres(run[-1, k]) for run in runs]
            own, some, other = (
                -1 if known is None else sum(at_places(c, known) for c in ends)
                for known in (places[layer][k], every[layer], wrong)
            )
            out.append(Counted(layer, k, m.width, own, some, other))
    return out


def by_layer(counts: Sequence[Counted], what: str) -> str:
    """ "12 to 12, 7 to 9": fewest and most over texts, layer by layer."""
    layers = dict.fromkeys(c.layer for c in counts)
    ends = [[getattr(c, what) for c in counts if c.layer == layer] for layer in layers]
    return ", ".join(f"{min(x)} to {max(x)}" if min(x) < max(x) else f"{x[0]}" for x in ends)


def place_controls(counts: Sequence[Counted]) -> list[cy.study.Comparison]:
    """Is the end of a head that of its control, and of its own layer's?"""
    texts, heads = len({c.text for c in counts}), counts[0].heads
    total = sum(c.heads for c in counts)
    every, other = (sum(getattr(c, key) for c in counts) for key in ("any", "other"))
    rules = {
        "A head run alone ends where its layer ends without heads from the same text.": "own",
        "It ends where its layer ends without heads from some start.": "any",
    }
    out = [
        cy.study.Comparison(
            claim,
            f"every layer, {texts} texts",
            f"of {heads} heads, by layer (fewest to most over texts): {by_layer(counts, key)}; in "
            f"all {cy.study.counted(sum(getattr(c, key) for c in counts), total)}",
            min(getattr(c, key) / c.heads for c in counts) >= RULE,
        )
        for claim, key in rules.items()
    ]
    if counts[0].other >= 0:
        out.append(
            cy.study.Comparison(
                "That the places are the control's is more than chance.",
                "the control of another layer, from any start",
                f"its own layer's {cy.study.counted(every, total)}; another layer's "
                f"{cy.study.counted(other, total)}",
                cy.study.wilson(every, total)[0] > cy.study.wilson(other, total)[1],
            )
        )
    return out
