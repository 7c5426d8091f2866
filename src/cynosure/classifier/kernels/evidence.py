"""Which terms of a text are read, in which order, and the words they name: text by text, with small
scratch arrays, since arrays as long as all texts cost more than the work done on them."""

from __future__ import annotations

import numpy as np

from ..._compiled import kernel
from .words import _joined, _slot


@kernel(by=1, cost=6000.0)
def loud_terms(
    indptr, indices, asked, length, ray, radius, cosine, anchor_ray, score, left, slack, along
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


@kernel()
def _said(said, word, t, out, m):
    """Write `word` to out[m] unless text t has it already; where the next one goes."""
    if said[word] != t:
        said[word] = t
        out[m] = word
        m += 1
    return m


@kernel(by=1, cost=20000.0)
def named_words(
    text, terms, texts, behind, part_start, part, names, word_hash, by, word_start, low, high,
    keys, value, negators, form,
):  # fmt: skip
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
            if pair >= 0:
                m = _said(said, negator[pair], t, out, m)
            for p in range(part_start[j], part_start[j + 1]):
                m = _said(said, part[p], t, out, m)
            while pair >= 0:
                m = _said(said, negator[pair], t, out, m)
                pair = after[pair]
        indptr[t + 1] = m
    return indptr, out[:m].copy()


def warm() -> None:
    indptr, indices, none = np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.intp)
    one = np.ones(1)
    loud_terms(indptr, indices, none, one, none, one, one, 0, one, 0.5, one, np.empty(0))
    keys, hashes = np.zeros(16, np.uint64), np.ones(1, np.uint64)
    value, by = np.full(16, -1, np.int32), np.full(1, -1)
    named_words(
        none, indices, 1, np.zeros(1, np.bool_), indptr, indices, 1,
        hashes, by, indptr, 1, 2, keys, value, keys, value,
    )  # fmt: skip
