"""The words that decided, for many texts at once: `Explanation.enough` without the explanations.

An explanation keeps every layer of a text; here only the end is asked for. With s_j = <v, E_j>, a
term on a ray whose longest term l leads ends at score s_l + rho^layers (s_j - s_l), where one pass
along the rays has settled the text (`Verdicts.direct`); elsewhere the layers are walked in batches.
Terms that do not follow the anchor are read, the weightiest first. Where two weights are closer
than the rounding of either computation, or a term is still on its way, the text is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .documents import Documents
from .model import Model, Verdicts
from .plane import Plane
from .text import NOT, Vocabulary, Words

if TYPE_CHECKING:
    from .opened import Opened

__all__ = ["read_with_words"]


class Loud(NamedTuple):
    """Terms that are read: the row of their text, their entry in documents.indices and that of
    the term they follow along a ray (-1: not known), their score; and the rows of the texts for
    which this is not certain."""

    text: np.ndarray
    entry: np.ndarray
    head: np.ndarray
    score: np.ndarray
    unsure: np.ndarray


def read_with_words(opened: Opened, texts: Sequence[str]) -> tuple[Verdicts, list[tuple[str, ...]]]:
    """The verdicts on `texts` and, for each, what `opened.explain(text).enough` is.

    Memory goes with the length of the texts together: give a few thousand at a time.
    """
    vocabulary, model = opened.vocabulary, opened.model
    words = vocabulary.tokenizer.scan(texts)
    documents = vocabulary.known(words)
    verdicts = model.read(documents)
    decision = verdicts.decision
    row = decision.argmax(axis=1) if decision.shape[1] > 1 else np.zeros(len(texts), np.intp)
    ordered = [_ordered(model, documents, verdicts, r, row == r) for r in np.unique(row).tolist()]
    out: list[tuple[str, ...]] = [()] * len(texts)
    for loud in ordered:
        _spell(out, texts, vocabulary, words, documents, loud)
        for i in loud.unsure.tolist():
            out[i] = opened.explain(texts[i]).enough
    return verdicts, out


def _ordered(
    model: Model, documents: Documents, verdicts: Verdicts, row: int, mine: np.ndarray
) -> Loud:
    """The terms read in the texts `mine` for decision `row`, text by text, by falling |score|."""
    p, r = model.locate(row)
    direct = mine & verdicts.direct[:, p] & (model.layers > 0)
    parts = [
        _along_rays(model, p, r, documents, np.flatnonzero(direct)),
        *_walked(model, p, r, documents, np.flatnonzero(mine & ~direct & (documents.sizes > 0))),
    ]
    text, entry, head, score, unsure = (np.concatenate(part) for part in zip(*parts))
    order = np.lexsort((entry, -np.abs(score), text))
    text, entry, head, score = text[order], entry[order], head[order], score[order]
    near = _too_close(model, model.planes[p], r, documents.indices, entry, head, score)
    tied = text[1:][near & (np.diff(text) == 0)]
    return Loud(text, entry, head, score, np.unique(np.concatenate((unsure, tied))))


def _too_close(
    model: Model,
    plane: Plane,
    r: int,
    terms: np.ndarray,
    entry: np.ndarray,
    head: np.ndarray,
    score: np.ndarray,
) -> np.ndarray:
    """Whether rounding could have changed the order of a term and the next.

    Each layer rounds twice, the product with v once per coordinate: in either computation. Terms
    that mirror each other along the only axis v has are equal in both."""
    size = np.abs(plane.embedding[terms[entry]]) @ np.abs(plane.v[r])
    slack = 4 * (2 * model.layers + plane.v.shape[1] + 8) * 2.0**-53 * size
    near = -np.diff(np.abs(score)) <= slack[1:] + slack[:-1]
    (axes,) = np.nonzero(plane.v[r])
    if len(axes) == 1:
        along = np.abs(plane.embedding[:, axes[0]])
        equal = (np.diff(along[terms[entry]]) == 0) & (np.diff(along[terms[head]]) == 0)
        near &= ~(equal & (head[1:] >= 0) & (head[:-1] >= 0))
        # Two followers of one leader: every operation of either computation is monotone in what
        # they began with, so that only a difference that rounds away can change their order.
        alike = (head[1:] == head[:-1]) & (head[1:] >= 0)
        near &= ~alike | (-np.diff(np.abs(score)) <= 2.0**-49 * np.abs(score[1:]))
    return near


def _along_rays(model: Model, p: int, r: int, documents: Documents, rows: np.ndarray) -> Loud:
    plane = model.planes[p]
    nothing = np.empty(0, np.intp)
    if not len(rows):
        return Loud(nothing, nothing, nothing, np.empty(0), nothing)
    rays = plane.rays
    assert rays is not None
    longest = np.zeros(len(rays.direction))
    np.maximum.at(longest, rays.ray, rays.radius)
    cosine = rays.direction @ rays.direction[rays.anchor_ray]
    longest[rays.anchor_ray] = -np.inf  # what stands on the anchor's ray follows it
    limit = longest / np.where(cosine > 0, cosine, 1e-300)  # anchors of this length silence a ray
    mine = np.zeros(len(documents), bool)
    mine[rows] = True
    length = np.where(mine, plane.lengths(documents), np.inf)
    text = np.repeat(np.arange(len(documents)), documents.sizes)
    ray = rays.ray[documents.indices]
    maybe = np.flatnonzero(limit[ray] * (1 + 2.0**-40) >= length[text])
    text, ray = text[maybe], ray[maybe]
    radius, score = rays.radius[documents.indices[maybe]], (plane.embedding @ plane.v[r])
    score = score[documents.indices[maybe]]
    order = np.lexsort((-radius, ray, text))  # the longest of each ray of a text first
    first = np.flatnonzero(
        np.concatenate(([True], (np.diff(text[order]) != 0) | (np.diff(ray[order]) != 0)))[
            : len(order)
        ]
    )
    heads = np.repeat(order[first], np.diff(np.concatenate((first, [len(order)]))))
    loud = radius[heads] > length[text[heads]] * cosine[ray[heads]]
    order, heads = order[loud], heads[loud]
    left = float(1 / (1 + model.dynamics.exact_alpha)) ** model.layers
    end = score[heads] + left * (score[order] - score[heads])
    return Loud(text[order], maybe[order], maybe[heads], end, nothing)


def _walked(model: Model, p: int, r: int, documents: Documents, rows: np.ndarray) -> Iterator[Loud]:
    plane = model.planes[p]
    for batch, real, last, history in model.walk(plane, documents.take(rows)):
        text = rows[batch]
        loud = real & (history.leader != history.leader[:, :1])
        loud[:, 0] = False  # the anchor
        i, j = np.nonzero(loud)
        score = (last @ plane.v[r])[i, j]
        open_ = (real & (history.leader < 0)).any(axis=1)
        entry = documents.indptr[text[i]] + j - 1
        yield Loud(text[i], entry, np.full(len(i), -1), score, text[open_])


def _spell(
    out: list[tuple[str, ...]],
    texts: Sequence[str],
    vocabulary: Vocabulary,
    words: Words,
    documents: Documents,
    loud: Loud,
) -> None:
    """Put the words of the terms read into `out`, each once, in order."""
    terms, spelled = documents.indices[loud.entry], vocabulary.terms
    negators = _negators(texts, vocabulary, words, loud.text, terms)
    ends = np.flatnonzero(np.diff(loud.text, append=-1)) + 1
    begin, listed, behind = 0, terms.tolist(), vocabulary.negated[terms].tolist()
    for stop, t in zip(ends.tolist(), loud.text[ends - 1].tolist(), strict=True):
        named: list[str] = []
        for i in range(begin, stop):
            if behind[i]:
                plain = spelled[listed[i]].replace(NOT, "").split(" ")
                for negator in negators[t, listed[i]]:
                    named += (negator, *plain)
            else:
                named += spelled[listed[i]].split(" ")
        out[t] = tuple(dict.fromkeys(named))
        begin = stop


def _negators(
    texts: Sequence[str],
    vocabulary: Vocabulary,
    words: Words,
    text: np.ndarray,
    terms: np.ndarray,
) -> dict[tuple[int, int], list[str]]:
    """The negator at each place of the terms behind one, by (text, term), in order."""
    behind = vocabulary.negated[terms]
    out: dict[tuple[int, int], list[str]] = {
        key: [] for key in zip(text[behind].tolist(), terms[behind].tolist())
    }
    if not out:
        return out
    from ..engine.kernels.words import EMPTY, occurrences

    low, high = vocabulary.tokenizer.ngrams
    asked = np.zeros(len(texts), bool)
    asked[text[behind]] = True
    of = np.repeat(np.arange(len(texts)), np.diff(words.indptr))
    # Only what stands so near a negated word that one term can hold both.
    negated = (words.by >= 0) & asked[of]
    near = negated.copy()
    for away in range(1, high):
        near[:-away] |= negated[away:]
        near[away:] |= negated[:-away]
    place = np.flatnonzero(near)
    gap = np.flatnonzero((np.diff(place) > 1) | (np.diff(of[place]) > 0)) + 1
    place = np.insert(place, gap, -1)  # no term is formed across a gap
    hashes = np.where(place >= 0, words.hash[place], EMPTY)
    found = occurrences(hashes, place, place, low, high, *vocabulary._table)
    for term, first in found[:, :2][vocabulary.negated[found[:, 0]]].tolist():
        t = int(of[first])
        if (t, term) in out:
            by = int(words.by[first])
            at = first if by < 0 else by
            word = texts[t][words.start[at] : words.stop[at]]
            out[t, term].append(vocabulary.tokenizer.spelling(word))
    return out
