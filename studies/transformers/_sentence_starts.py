"""A sentence and its null models: another order, random words, Gaussian tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained import attention_table, sentence_table

ORDER, WORDS, GAUSSIAN = "another order", "random words", "Gaussian tokens"
KEYS = ("mean_cosine", "clusters", "argmax_mass")  # by layer, means over its heads


class Ensemble(NamedTuple):
    """Draws of one start: each quantity (draws, layers + 1), NaN after the last attention."""

    name: str
    values: dict[str, np.ndarray]

    def end(self, key: str) -> np.ndarray:
        return self.values[key][:, -1]

    def band(self, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean by layer, and the middle 95 % of the draws."""
        low, high = np.quantile(self.values[key], (0.025, 0.975), axis=0)
        return self.values[key].mean(axis=0), low, high


def ids_of(m: cy.pretrained.Transformer, text: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of a text, and which of them are special ([CLS], [SEP], <s>)."""
    assert m.tokenizer is not None  # or the text could not have been read
    ids = np.array(m.tokenizer(text)["input_ids"])[:most]
    return ids, np.isin(ids, m.tokenizer.all_special_ids)


def vocabulary(m: cy.pretrained.Transformer) -> np.ndarray:
    """Ids of the whole words a random text is drawn from: letters only, no pieces, nothing special.

    Where a tokenizer has no such words (one of bytes or phonemes), all its ids that are not
    special.
    """
    assert m.tokenizer is not None
    known = {i: w for w, i in m.tokenizer.get_vocab().items()}
    special = set(m.tokenizer.all_special_ids)
    plain = [i for i in known if i not in special and i < int(m.model.config.vocab_size)]
    mark = next((c for c in "▁Ġ" if any(known[i].startswith(c) for i in plain)), "")
    words = [i for i in plain if _is_word(known[i], mark)]
    return np.sort(np.array(words if len(words) > len(plain) // 5 else plain))


def _is_word(piece: str, mark: str) -> bool:
    """Letters only, with the mark that a word begins where the tokenizer has one."""
    word = piece.removeprefix(mark)
    return piece.startswith(mark) and word.isalpha() and word.isascii()


def ensembles(
    m: cy.pretrained.Transformer, text: str, layers: int, draws: int, seed: int
) -> dict[str, Ensemble]:
    """The sentence, and `draws` traces of each of its null models."""
    draw, sentence = np.random.default_rng(seed), m.trace(text, layers)
    ids, special = ids_of(m, text, sentence.z.shape[1])
    known, z = vocabulary(m), sentence.z[0].astype(np.float64)

    def order() -> Any:
        out = ids.copy()
        out[~special] = draw.permutation(out[~special])
        return out.tolist()

    makers: dict[str, Callable[[], Any]] = {
        ORDER: order,
        WORDS: lambda: random_words(ids, special, known, draw),
        GAUSSIAN: lambda: cy.configurations.like(z, seed=draw),
    }
    out = {"sentence": _ensemble("sentence", [sentence])}
    for name, make in makers.items():
        out[name] = _ensemble(name, [m.trace(make(), layers) for _ in range(draws)])
    return out


def random_words(
    ids: np.ndarray, special: np.ndarray, known: np.ndarray, draw: np.random.Generator
) -> list[int]:
    """As many random words as the text has tokens, its special tokens left where they are."""
    out = ids.copy()
    out[~special] = draw.choice(known, size=int((~special).sum()))
    return out.tolist()


def _ensemble(name: str, traces: Sequence[cy.pretrained.Trace]) -> Ensemble:
    """What is measured of each trace."""
    each = []
    for trace in traces:
        heads, tokens = attention_table(trace), sentence_table(trace)
        layers, width = trace.attentions.shape[:2]
        last = {key: np.full(layers + 1, np.nan) for key in KEYS[2:]}
        for key, values in last.items():
            values[:layers] = np.reshape([h[key] for h in heads], (layers, width)).mean(axis=1)
        each.append({key: [row[key] for row in tokens] for key in KEYS[:2]} | last)
    return Ensemble(name, {k: np.array([one[k] for one in each], dtype=float) for k in KEYS})
