"""Words and n-grams of many texts in one compiled pass, with their character offsets.

A text is an array of code points; a table gives each its class, another its lower case. A markup
tag is skipped, <script> and <style> with what they enclose. Terms are known by a 64-bit hash: among
a million terms two collide with probability 3e-8, and `text.vocabulary` checks that none do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._compiled import kernel
from . import plain
from .plain import APOSTROPHE, EMPTY, GAP, GOLDEN, LETTER, MIX, NEGATED, SIGN, STOP

LONGEST_TAG = 200  # characters between < and > that are still taken for markup
_AT_ONCE = 1 << 21  # characters of the texts that are scanned together
_SCRIPT = np.array([ord(c) for c in "script"], np.uint32)
_STYLE = np.array([ord(c) for c in "style"], np.uint32)


@kernel()
def _mixed(h, x):
    """One more symbol x into the hash h, order included (the finaliser of splitmix64)."""
    h = (h * MIX + GOLDEN) ^ x
    h *= GOLDEN
    h ^= h >> np.uint64(29)
    h *= MIX
    return h ^ (h >> np.uint64(32))


@kernel()
def _past_tag(code, i, stop, kind):
    """The position after the tag that opens at i, or i when '<' opens none."""
    if i + 1 >= stop:
        return i
    after = code[i + 1]
    if after != 47 and after != 33 and not (after < len(kind) and kind[after] == LETTER):
        return i
    for j in range(i + 1, min(stop, i + LONGEST_TAG)):
        if code[j] == 62:
            return j + 1
        if code[j] == 60:
            return i
    return i


@kernel()
def _named(code, i, stop, name):
    """Whether the tag that opens at i, after < or </, has this name, in any case."""
    if i + len(name) >= stop:
        return False
    for k in range(len(name)):
        if (code[i + k] | np.uint32(32)) != name[k]:
            return False
    after = code[i + len(name)] | np.uint32(32)
    return not 97 <= after <= 122


@kernel()
def _past_body(code, i, past, stop, kind):
    """The position after </script> or </style> where the tag at i opens one; 0 if none closes."""
    for name in (_SCRIPT, _STYLE):
        if _named(code, i + 1, stop, name):
            for j in range(past, stop - 2):
                if code[j] == 60 and code[j + 1] == 47 and _named(code, j + 2, stop, name):
                    return _past_tag(code, j, stop, kind)
            return 0
    return past


def scan(code, text_start, kind, lower):
    """Words of the texts code[text_start[t] : text_start[t + 1] - 1] (one code point between them).

    Returns hash, start, stop of every word (offsets within its text), whether it begins a clause,
    and word_start per text. Some texts at a time, which bounds what is set aside for them."""
    parts: list[Any] = []
    t, n, words = 0, len(text_start) - 1, 0
    while t < n or not parts:
        past = int(np.searchsorted(text_start, text_start[t] + _AT_ONCE, side="right")) - 1
        past = min(max(past, t + 1), n)
        *found, word_start = _scan(code, text_start[t : past + 1], kind, lower)
        parts.append((*found, word_start[t > 0 :] + words))
        words, t = words + int(word_start[-1]), past
    return parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts)))


@kernel(by=0, cost=150.0, plain=plain.scan)
def _scan(code, text_start, kind, lower):
    """Trap: arrays that a loop replaces by larger ones are counted by reference at every step, four
    times the work. A word has a character, so there is room for all of them from the start."""
    n = len(text_start) - 1
    room = text_start[n] - text_start[0]
    h_out = np.empty(room, np.uint64)
    a_out, b_out = np.empty(room, np.int32), np.empty(room, np.int32)
    fresh = np.empty(room, np.bool_)
    word_start = np.zeros(n + 1, np.int64)
    m, table = 0, len(kind)
    for t in range(n):
        first, stop = text_start[t], text_start[t + 1] - 1
        i, begins, bodies = first, True, True
        while i < stop:
            c = code[i]
            k = kind[c] if c < table else LETTER
            if k in (GAP, APOSTROPHE, STOP):
                past = _past_tag(code, i, stop, kind) if c == 60 else i
                if past > i and bodies:
                    body = _past_body(code, i, past, stop, kind)
                    bodies = body > 0  # one that never closes is looked for once
                    past = max(past, body)
                begins |= k == STOP or past > i
                i = past if past > i else i + 1
                continue
            start = i
            h = GOLDEN
            while True:
                c = code[i]
                h = h * GOLDEN + np.uint64(lower[c] if c < table else c)
                i += 1
                if k == SIGN or i >= stop:
                    break
                c = code[i]
                inside = kind[c] if c < table else LETTER
                if inside == k:
                    continue
                if k == LETTER and inside == APOSTROPHE and i + 1 < stop:
                    c = code[i + 1]
                    if (kind[c] if c < table else LETTER) == LETTER:
                        continue
                break
            h = _mixed(h, np.uint64(i - start))
            h_out[m] = h if h != EMPTY else GOLDEN
            a_out[m], b_out[m] = start - first, i - first
            fresh[m] = begins or k == SIGN
            begins = k == SIGN
            m += 1
        word_start[t + 1] = m
    return h_out[:m].copy(), a_out[:m].copy(), b_out[:m].copy(), fresh[:m].copy(), word_start


@kernel(by=0, cost=150.0, plain=plain.negated)
def negated(word_hash, fresh, word_start, keys, reach):
    """Hashes in which the words behind a negator are words of their own, and which negator.

    A negator, a word of the table `keys`, reaches `reach` words, to the end of its clause at most;
    by[i] is the place of the negator of word i, -1 for none. A negator is never negated."""
    out, by = word_hash.copy(), np.full(len(word_hash), -1, np.int64)
    for t in range(len(word_start) - 1):
        left, last = 0, 0
        for i in range(word_start[t], word_start[t + 1]):
            if fresh[i]:
                left = 0
            h = word_hash[i]
            if h != EMPTY and keys[_slot(keys, h)] == h:
                left, last = reach, i
            elif left > 0:
                left -= 1
                by[i] = last
                if h != EMPTY:
                    out[i] = negated_hash(h)
    return out, by


@kernel()
def negated_hash(h):
    """The hash of a word behind a negator."""
    mixed = _mixed(h, NEGATED)
    return mixed if mixed != EMPTY else GOLDEN


@kernel()
def _joined(word_hash, i, order):
    """Hash of the n-gram of `order` words from word i on; a single word keeps its own."""
    h = word_hash[i]
    for j in range(1, order):
        h = _mixed(h, word_hash[i + j])
    return h if h != EMPTY else GOLDEN


@kernel()
def _slot(keys, h):
    """Where h is, or would go, in the open-addressing table `keys`."""
    last = np.uint64(len(keys) - 1)
    i = h & last
    while keys[i] != EMPTY and keys[i] != h:
        i = (i + np.uint64(1)) & last
    return i


def count_terms(word_hash, word_start, low, high, times):
    """Every term of `low` to `high` words: hash, texts that have it, order, first word of its first
    occurrence; in order of first appearance. Text t counts times[t] times."""
    kinds = np.uint64, np.float64, np.int8, np.int64, np.int32
    found = [np.empty(0, kind) for kind in kinds]
    most = np.diff(word_start) * (high - low + 1)  # new terms of a text
    room, used, t = 1 << 15, 0, 0
    while t < len(most):
        # as in `_scan`: the room is fixed within, and doubled where a text may need more
        while room < used + most[t]:
            room *= 2
        found = [np.concatenate((x[:used], np.empty(room - used, x.dtype))) for x in found]
        keys, at_of = np.zeros(2 * room, np.uint64), np.empty(2 * room, np.int32)
        t, used = _count(word_hash, word_start, low, high, times, t, used, keys, at_of, *found)
        room *= 2
    return tuple(x[:used].copy() for x in found[:4])


@kernel(by=0, cost=5000.0)
def _count(
    word_hash, word_start, low, high, times, t, used, keys, at_of, h_out, df, order, first, last
):
    """`count_terms` from text t on, while there is room: the next text, and how many terms."""
    for j in range(used):
        at = _slot(keys, h_out[j])
        keys[at], at_of[at] = h_out[j], j
    while t < len(word_start) - 1:
        begin, end = word_start[t], word_start[t + 1]
        if used + (end - begin) * (high - low + 1) > len(h_out):
            break
        for i in range(begin, end):
            for n in range(low, min(high, end - i) + 1):
                h = _joined(word_hash, i, n)
                at = _slot(keys, h)
                if keys[at] == EMPTY:
                    keys[at], at_of[at] = h, used
                    h_out[used], df[used], last[used] = h, times[t], t
                    order[used], first[used] = n, i
                    used += 1
                elif last[at_of[at]] != t:
                    last[at_of[at]] = t
                    df[at_of[at]] += times[t]
        t += 1
    return t, used


@kernel(by=0, cost=400.0, plain=plain.distinct_terms)
def distinct_terms(word_hash, word_start, low, high, keys, value, seen):
    """Known terms of each text, each once, by first appearance: CSR indptr, indices.

    seen (terms,) is scratch; it must hold -1 everywhere and does so again at the end."""
    n = len(word_start) - 1
    indptr = np.zeros(n + 1, np.int64)
    indices = np.empty(len(word_hash) * (high - low + 1), np.int32)
    m = 0
    for t in range(n):
        for i in range(word_start[t], word_start[t + 1]):
            for order in range(low, min(high, word_start[t + 1] - i) + 1):
                j = value[_slot(keys, _joined(word_hash, i, order))]
                if j >= 0 and seen[j] != t:
                    seen[j] = t
                    indices[m] = j
                    m += 1
        indptr[t + 1] = m
    for i in range(m):
        seen[indices[i]] = -1
    return indptr, indices[:m].copy()


@kernel(by=0, cost=400.0, plain=plain.occurrences)
def occurrences(word_hash, start, stop, low, high, keys, value):
    """Every occurrence of a known term in one text: term, start, stop in characters."""
    room = len(word_hash) * (high - low + 1)
    out, m = np.empty((room, 3), np.int64), 0
    for i in range(len(word_hash)):
        for order in range(low, min(high, len(word_hash) - i) + 1):
            j = value[_slot(keys, _joined(word_hash, i, order))]
            if j >= 0:
                out[m, 0], out[m, 1], out[m, 2] = j, start[i], stop[i + order - 1]
                m += 1
    return out[:m].copy()


def warm() -> None:
    kind, lower = np.array([GAP, LETTER], np.uint8), np.arange(2, dtype=np.uint32)
    starts = np.array([0, 3])
    code = np.frombuffer(np.array([1, 1, 0], np.uint32).tobytes(), np.uint32)  # as text: read-only
    h, start, stop, fresh, indptr = scan(code, starts, kind, lower)
    keys, value = plain.table_of(h)
    negated(h, fresh, indptr, keys, 3)
    count_terms(h, indptr, 1, 2, np.ones(1))
    distinct_terms(h, indptr, 1, 2, keys, value, np.full(1, -1, np.int32))
    occurrences(h, start, stop, 1, 2, keys, value)
