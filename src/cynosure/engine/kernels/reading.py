"""Which terms of a text are read, in which order, and the words they name: text by text.

One pass with small scratch arrays for each text: arrays as long as all texts together cost more to
be had from the system than the work that is done on them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .contract import Floats, Indices
from .words import _joined, _slot


@njit(cache=True, nogil=True)
def loud_terms(
    indptr: Indices,
    indices: Indices,
    asked: Indices,
    length: Floats,
    ray: Indices,
    radius: Floats,
    cosine: Floats,
    anchor_ray: int,
    score: Floats,
    left: float,
    slack: Floats,
    along: Floats,
):
    """The terms that are read in the texts `asked`, by falling |score|, then as they appear.

    Term j lies on ray[j] at radius[j]. The longest of a ray leads it in a text whose anchor, of
    length[t], it outdoes: radius > length cosine[ray], the cosine with the anchor. The others end
    at score_l + left (score_j - score_l), l being the longest. slack[j] bounds the rounding of such
    an end; along[j] is |E_j| on the only axis of the decoder, or `along` is empty.

    Returns the text and the entry in `indices` of each, and whether the order of each text is sure:
    not where two ends are closer than their slack. Ends that mirror each other on the only axis are
    equal in any computation; two followers of one leader are ordered by what they began with, as
    every operation is monotone in it, unless their difference rounds away."""
    text, entry = np.empty(len(indices), np.intp), np.empty(len(indices), np.intp)
    end = np.empty(len(indices))
    sure = np.ones(len(asked), np.bool_)
    best, head = np.zeros(len(cosine)), np.zeros(len(cosine), np.intp)
    last = np.full(len(cosine), -1, np.intp)
    m = 0
    for k in range(len(asked)):
        t, begin = asked[k], m
        for at in range(indptr[t], indptr[t + 1]):
            j = indices[at]
            g = ray[j]
            if last[g] != t or radius[j] > best[g]:
                last[g], best[g], head[g] = t, radius[j], at
        for at in range(indptr[t], indptr[t + 1]):
            g = ray[indices[at]]
            if g != anchor_ray and best[g] > length[t] * cosine[g]:
                top = score[indices[head[g]]]
                end[m] = top + left * (score[indices[at]] - top)
                text[m], entry[m] = t, at
                m += 1
        order = np.argsort(-np.abs(end[begin:m]), kind="mergesort")
        end[begin:m] = end[begin:m][order]
        entry[begin:m] = entry[begin:m][order]
        for i in range(begin + 1, m):
            a, b = indices[entry[i - 1]], indices[entry[i]]
            apart = abs(end[i - 1]) - abs(end[i])
            near = apart <= slack[a] + slack[b]
            if near and len(along):
                first, second = head[ray[a]], head[ray[b]]
                mirrored = along[a] == along[b] and along[indices[first]] == along[indices[second]]
                ordered = first == second and apart > 2.0**-49 * abs(end[i])
                near = not (mirrored or ordered)
            if near:
                sure[k] = False
    return text[:m].copy(), entry[:m].copy(), sure


@njit(cache=True, nogil=True)
def named_words(
    text: Indices,
    terms: Indices,
    texts: int,
    behind: Indices,
    part_start: Indices,
    part: Indices,
    names: int,
    word_hash: Indices,
    by: Indices,
    word_start: Indices,
    low: int,
    high: int,
    keys: Indices,
    value: Indices,
    negators: Indices,
    form: Indices,
):
    """The words of the terms read, each once in its text, in their order: CSR indptr, words.

    Terms come text by text. Term j has the words part[part_start[j] : part_start[j + 1]], numbers
    below `names`; the negator in slot i of the table `negators` has the number form[i]. A term that
    is `behind` a negator names the negators of its places in the text, the first of them before its
    words and the others after."""
    indptr = np.zeros(texts + 1, np.int64)
    orders = high - low + 1
    room, longest, most = 0, 0, 0
    for i in range(len(terms)):
        room += part_start[terms[i] + 1] - part_start[terms[i]]
    for t in range(texts):
        longest = max(longest, word_start[t + 1] - word_start[t])
    for i in range(len(by)):
        most += by[i] >= 0
    out = np.empty(room + most * orders * high, np.int32)
    said, place = np.full(names, -1, np.int64), np.full(len(behind), -1, np.int64)
    after, negator = np.empty(longest * orders, np.int64), np.empty(longest * orders, np.int64)
    first, final = np.empty(len(terms), np.int64), np.empty(len(terms), np.int64)
    m, i = 0, 0
    for t in range(texts):
        begin, any_behind = i, False
        while i < len(terms) and text[i] == t:
            if behind[terms[i]]:
                place[terms[i]], first[i], any_behind = i, -1, True
            i += 1
        pairs = 0
        stop = word_start[t + 1]
        for w in range(word_start[t] if any_behind else stop, stop):
            far = by[w] >= 0
            for order in range(1, min(high, stop - w) + 1):
                far |= by[w + order - 1] >= 0
                if order < low or not far:
                    continue
                j = value[_slot(keys, _joined(word_hash, w, order))]
                if j < 0 or not behind[j] or not begin <= place[j] < i:
                    continue
                at = place[j]
                inner = by[w] < 0  # the negator is a word of the term
                slot = _slot(negators, word_hash[w if inner else by[w]])
                negator[pairs] = part[part_start[j]] if inner else form[slot]
                after[pairs] = -1
                if first[at] < 0:
                    first[at] = pairs
                else:
                    after[final[at]] = pairs
                final[at] = pairs
                pairs += 1
        for k in range(begin, i):
            j = terms[k]
            pair = first[k] if behind[j] else -1
            if pair >= 0 and said[negator[pair]] != t:
                said[negator[pair]] = t
                out[m] = negator[pair]
                m += 1
            for p in range(part_start[j], part_start[j + 1]):
                if said[part[p]] != t:
                    said[part[p]] = t
                    out[m] = part[p]
                    m += 1
            while pair >= 0:
                if said[negator[pair]] != t:
                    said[negator[pair]] = t
                    out[m] = negator[pair]
                    m += 1
                pair = after[pair]
        indptr[t + 1] = m
    return indptr, out[:m].copy()
