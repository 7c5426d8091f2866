"""The words that decided, for many texts at once: `Explanation.enough` without the explanations.

With s_j = <v, E_j>, a term on a ray whose longest term l leads ends at s_l + rho^layers (s_j - s_l)
where one pass along the rays has settled the text (`Verdicts.direct`); elsewhere layers are walked
in batches. Terms that do not follow the anchor are read, the weightiest first. Where two weights
are closer than rounding, or a term still moves, the text is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..model.model import Model, Verdicts
from ..model.plane import Plane
from ..text.documents import Documents
from ..text.vocabulary import Vocabulary, Words

if TYPE_CHECKING:
    from .loaded_model import LoadedModel


class EvidenceWords(NamedTuple):
    """The words that decided text t: those of the numbers words[indptr[t] : indptr[t + 1]]."""

    indptr: np.ndarray
    words: np.ndarray
    number: dict[str, int]

    def tuples(self) -> list[tuple[str, ...]]:
        """One tuple of words for each text."""
        names = list(self.number)
        named = [names[k] for k in self.words.tolist()]
        return [tuple(named[a:b]) for a, b in pairwise(self.indptr.tolist())]


class Loud(NamedTuple):
    """Terms that are read, text by text and in order: the row of their text, their entry in
    documents.indices; and the rows of the texts for which this is not certain."""

    text: np.ndarray
    entry: np.ndarray
    unsure: np.ndarray


def read_with_words(opened: LoadedModel, texts: Sequence[str]) -> tuple[Verdicts, EvidenceWords]:
    """The verdicts on `texts` and, for each, what `opened.explain(text).enough` is. Memory grows
    with the length of the texts together: give a few thousand at a time."""
    vocabulary, model = opened.vocabulary, opened.model
    words = vocabulary.tokenizer.scan(texts)
    documents = vocabulary.known(words)
    verdicts = model.read(documents)
    decision = verdicts.decision
    row = decision.argmax(axis=1) if decision.shape[1] > 1 else np.zeros(len(texts), np.intp)
    parts = [Loud(*np.empty((3, 0), np.intp))]
    for r in np.unique(row).tolist():
        parts += _loud(model, documents, verdicts, r, row == r)
    loud = Loud(*map(np.concatenate, zip(*parts)))
    order = np.argsort(loud.text, kind="stable")
    text, terms = loud.text[order], documents.indices[loud.entry[order]]
    deciding = _named(vocabulary, words, text, terms)
    explained = {
        i: [deciding.number[word] for word in opened.explain(texts[i]).enough]
        for i in np.unique(loud.unsure).tolist()
    }
    return verdicts, _replaced(deciding, explained)


def _loud(
    model: Model, documents: Documents, verdicts: Verdicts, row: int, mine: np.ndarray
) -> list[Loud]:
    """The terms read in the texts `mine` for decision `row`, by falling |score|."""
    p, r = model.locate(row)
    direct = mine & verdicts.direct[:, p] & (model.layers > 0)
    left = np.flatnonzero(mine & ~direct & (documents.sizes > 0))
    return [
        *_along_rays(model, model.planes[p], r, documents, np.flatnonzero(direct)),
        *_walked(model, model.planes[p], r, documents, left),
    ]


def _slack(model: Model, plane: Plane, r: int) -> np.ndarray:
    """(terms,) how far rounding can move the end of a term, in either computation: each layer
    rounds twice, the product with v once per coordinate."""
    size = np.abs(plane.embedding) @ np.abs(plane.v[r])
    return 4 * (2 * model.layers + plane.v.shape[1] + 8) * 2.0**-53 * size


def _along_rays(
    model: Model, plane: Plane, r: int, documents: Documents, rows: np.ndarray
) -> Iterator[Loud]:
    rays = plane.rays
    if not len(rows) or rays is None:
        return
    from ..kernels.evidence import loud_terms

    (axes,) = np.nonzero(plane.v[r])
    along = np.abs(plane.embedding[:, axes[0]]) if len(axes) == 1 else np.empty(0)
    text, entry, sure = loud_terms(
        documents.indptr, documents.indices, rows, plane.lengths(documents), rays.ray, rays.radius,
        rays.direction @ rays.direction[rays.anchor_ray], rays.anchor_ray,
        plane.embedding @ plane.v[r],
        float(1 / (1 + model.dynamics.exact_alpha)) ** model.layers, _slack(model, plane, r), along,
    )  # fmt: skip
    yield Loud(text, entry, rows[~sure])


def _walked(
    model: Model, plane: Plane, r: int, documents: Documents, rows: np.ndarray
) -> Iterator[Loud]:
    slack = _slack(model, plane, r)
    for batch, real, last, history in model.walk(plane, documents.take(rows)):
        loud = real & (history.leader != history.leader[:, :1])
        loud[:, 0] = False  # the anchor
        i, j = np.nonzero(loud)
        size = np.abs((last @ plane.v[r])[i, j])
        text = rows[batch][i]
        entry = documents.indptr[text] + j - 1
        order = np.lexsort((entry, -size, text))
        text, entry, size = text[order], entry[order], size[order]
        most = slack[documents.indices[entry]]
        near = (-np.diff(size) <= most[1:] + most[:-1]) & (np.diff(text) == 0)
        open_ = (real & (history.leader < 0)).any(axis=1)
        yield Loud(text, entry, np.concatenate((rows[batch][open_], text[1:][near])))


def _named(
    vocabulary: Vocabulary, words: Words, text: np.ndarray, terms: np.ndarray
) -> EvidenceWords:
    """The words of the terms read, each once in its text, with the negators before them."""
    from ..kernels.evidence import named_words

    spelt, tokenizer = vocabulary.in_words, vocabulary.tokenizer
    indptr, found = named_words(
        text, terms, len(words.indptr) - 1, vocabulary.negated, spelt.indptr, spelt.words,
        len(spelt.number), words.hash, words.by, words.indptr, *tokenizer.ngrams,
        *vocabulary._table, *spelt.negators,
    )  # fmt: skip
    return EvidenceWords(indptr, found, spelt.number)


def _replaced(deciding: EvidenceWords, given: dict[int, list[int]]) -> EvidenceWords:
    """The same with the words of some texts given."""
    if not given:
        return deciding
    size = np.diff(deciding.indptr)
    kept = np.ones(len(size), bool)
    kept[list(given)] = False
    size[list(given)] = [len(given[i]) for i in given]
    indptr = np.concatenate(([0], np.cumsum(size)))
    words = np.empty(indptr[-1], deciding.words.dtype)
    words[np.repeat(kept, size)] = deciding.words[np.repeat(kept, np.diff(deciding.indptr))]
    for i, these in given.items():
        words[indptr[i] : indptr[i + 1]] = these
    return deciding._replace(indptr=indptr, words=words)
