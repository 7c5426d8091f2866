"""A sentence and its null models: another order, random words, Gaussian tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import cynosure as cy

from ...pretrained import attention_table, sentence_table

ORDER, WORDS, GAUSSIAN = "words in another order", "random words", "Gaussian tokens"
MOVED = "[CLS] in the middle"

Row: TypeAlias = dict[str, Any]  # of `sentence_table`, with means over the heads of the layer
KEYS = ("length", "mean_cosine", "clusters", "argmax_mass", "sink_mass")


class Ensemble(NamedTuple):
    """Draws of one start: each quantity (draws, layers + 1), NaN after the last attention.

    `first` counts the heads whose sink is the token [CLS], of `heads`; NaN where there is none.
    """

    name: str
    values: dict[str, np.ndarray]
    first: np.ndarray
    heads: int

    def end(self, key: str) -> np.ndarray:
        return self.values[key][:, -1]

    def band(self, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean by layer, and the middle 95 % of the draws."""
        low, high = np.quantile(self.values[key], (0.025, 0.975), axis=0)
        return self.values[key].mean(axis=0), low, high


def ids_of(m: cy.Transformer, text: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of a text, and which of them are special ([CLS], [SEP])."""
    assert m.tokenizer is not None  # or the text could not have been read
    ids = np.array(m.tokenizer(text)["input_ids"])[:most]
    return ids, np.isin(ids, m.tokenizer.all_special_ids)


def vocabulary(m: cy.Transformer) -> np.ndarray:
    """Ids of the whole words a random text is drawn from: letters only, no pieces, nothing special.

    Where a tokenizer has no such words (one of bytes), all its ids that are not special.
    """
    assert m.tokenizer is not None
    known = {i: w for w, i in m.tokenizer.get_vocab().items()}
    special = set(m.tokenizer.all_special_ids)
    plain = [i for i in known if i not in special and i < int(m.model.config.vocab_size)]
    words = [i for i in plain if known[i].isalpha() and known[i].isascii()]
    return np.sort(np.array(words or plain))


def ensembles(
    m: cy.Transformer, text: str, sentence: cy.Trace, layers: int, draws: int, seed: int
) -> dict[str, Ensemble]:
    draw = np.random.default_rng(seed)
    ids, special = ids_of(m, text, sentence.z.shape[1])
    known, z = vocabulary(m), sentence.z[0].astype(np.float64)

    def order() -> Any:
        out = ids.copy()
        out[~special] = draw.permutation(out[~special])
        return out.tolist()

    def gaussian() -> Any:
        x = draw.standard_normal(z.shape)
        return x * np.divide(*(np.linalg.norm(y, axis=1, keepdims=True) for y in (z, x)))

    def moved() -> Any:
        out = np.array(random_words(ids, special, known, draw))
        middle = len(out) // 2
        return np.concatenate((out[1 : middle + 1], out[:1], out[middle + 1 :])).tolist()

    makers: dict[str, Callable[[], Any]] = {
        ORDER: order,
        WORDS: lambda: random_words(ids, special, known, draw),
        GAUSSIAN: gaussian,
    }
    out = {"sentence": _ensemble("sentence", [sentence], 0 if special[0] else None)}
    for name, make in makers.items():
        traces = [m.trace(make(), layers) for _ in range(draws)]
        out[name] = _ensemble(name, traces, 0 if special[0] and name != GAUSSIAN else None)
    if special[0] and len(ids) > 3:
        traces = [m.trace(moved(), layers) for _ in range(draws)]
        out[MOVED] = _ensemble(MOVED, traces, len(ids) // 2)
    return out


def random_words(
    ids: np.ndarray, special: np.ndarray, known: np.ndarray, draw: np.random.Generator
) -> list[int]:
    """As many random words as the text has tokens, its special tokens left where they are."""
    out = ids.copy()
    out[~special] = draw.choice(known, size=int((~special).sum()))
    return out.tolist()


def _ensemble(name: str, traces: Sequence[cy.Trace], marked: int | None) -> Ensemble:
    """What is measured of each trace; `marked` is the position of [CLS], None without one."""
    layers = [_layers(trace) for trace in traces]
    values = {key: np.array([[row[key] for row in rows] for rows in layers]) for key in KEYS}
    sinks = [[head["sink"] for head in attention_table(trace)] for trace in traces]
    first = np.array([np.nan if marked is None else np.equal(s, marked).sum() for s in sinks])
    return Ensemble(name, values, first.astype(float), len(sinks[0]))


def _layers(trace: cy.Trace) -> list[Row]:
    """One row per layer; after the last one there is no attention to average."""
    heads = attention_table(trace)

    def mean(key: str, layer: int) -> float:
        values = [head[key] for head in heads if head["layer"] == layer]
        return float(np.mean(values)) if values else float("nan")

    means = ("argmax_mass", "sink_mass")
    return [
        {**row, **{key: mean(key, row["layer"]) for key in means}} for row in sentence_table(trace)
    ]
