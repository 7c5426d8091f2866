"""The loops of this folder in NumPy: the same answers for small inputs, and nothing is compiled."""

from __future__ import annotations

import numpy as np

GAP, LETTER, DIGIT, SIGN, APOSTROPHE, STOP = range(6)  # STOP: a gap that ends a clause
EMPTY = np.uint64(0)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX = np.uint64(0xBF58476D1CE4E5B9)
NEGATED = np.uint64(0x94D049BB133111EB)
_LONG = 100  # characters of a word, one NumPy call each

Hashes = np.ndarray


def mixed(h: Hashes, x: Hashes | np.uint64) -> Hashes:
    """`words._mixed` of arrays."""
    h = ((h * MIX + GOLDEN) ^ x) * GOLDEN
    h = (h ^ (h >> np.uint64(29))) * MIX
    return h ^ (h >> np.uint64(32))


def never_empty(h: Hashes) -> Hashes:
    """Hashes, none of which is the mark of an empty slot."""
    return np.where(h == EMPTY, GOLDEN, h)


def negated_hash(h: Hashes) -> Hashes:
    """The hashes of words behind a negator."""
    return never_empty(mixed(h, NEGATED))


def table_of(hashes: Hashes) -> tuple[np.ndarray, np.ndarray]:
    """Open addressing: keys, and the position of each key in `hashes`, which are distinct."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    keys, value = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
    left, at = np.arange(len(hashes)), (hashes & np.uint64(size - 1)).astype(np.intp)
    while len(left):
        free = keys[at] == EMPTY
        keys[at[free]] = hashes[left[free]]
        mine = free & (keys[at] == hashes[left])  # of several that want a slot, one gets it
        value[at[mine]] = left[mine]
        left, at = left[~mine], (at[~mine] + 1) & (size - 1)
    return keys, value


def slots(keys: Hashes, h: Hashes) -> np.ndarray:
    """Where each h is, or would go, in the open-addressing table `keys`."""
    at = (h & np.uint64(len(keys) - 1)).astype(np.intp)
    left = np.arange(len(h))
    while len(left):
        there = keys[at[left]]
        left = left[(there != EMPTY) & (there != h[left])]
        at[left] = (at[left] + 1) & (len(keys) - 1)
    return at


def scan(code, text_start, kind, lower):
    """`words._scan`; None where a long word asks for the loop."""
    code, text_start = code[text_start[0] : text_start[-1]], text_start - text_start[0]
    k = np.where(code < len(kind), kind.take(code, mode="clip"), LETTER)
    _leave_out_markup(code, text_start, kind, k)
    letter = k == LETTER
    inner = np.flatnonzero(k == APOSTROPHE)
    inner = inner[(inner > 0) & (inner < len(code) - 1)]
    letter[inner] = letter[inner - 1] & letter[inner + 1]
    k = np.where(letter, LETTER, k)
    inside = letter | (k == DIGIT) | (k == SIGN)
    joins = (k[1:] == k[:-1]) & (k[1:] != SIGN)  # a character to the one before it
    a = np.flatnonzero(inside & np.concatenate(([True], ~joins)))
    b = np.flatnonzero(inside & np.concatenate((~joins, [True]))) + 1
    if (b - a).max(initial=0) > _LONG:
        return None
    small = np.where(code < len(lower), lower.take(code, mode="clip"), code).astype(np.uint64)
    h = np.full(len(a), GOLDEN)
    for i in range(int((b - a).max(initial=0))):
        longer = np.flatnonzero(b - a > i)
        h[longer] = h[longer] * GOLDEN + small[a[longer] + i]
    h = never_empty(mixed(h, (b - a).astype(np.uint64)))
    word_start = np.searchsorted(a, text_start).astype(np.int64)
    first = np.repeat(text_start[:-1], np.diff(word_start))
    stops = np.concatenate(([0], np.cumsum(k == STOP)))
    sign = k[a] == SIGN
    fresh = sign.copy()
    fresh[1:] |= sign[:-1] | (stops[a[1:]] > stops[b[:-1]])
    fresh[word_start[:-1][np.diff(word_start) > 0]] = True
    return h, (a - first).astype(np.int32), (b - first).astype(np.int32), fresh, word_start


def _leave_out_markup(code, text_start, kind, k) -> None:
    """Give the kind of a stop to every character of a tag, as `words._scan` passes them."""
    from .words import _past_body, _past_tag

    done, text, bodies = 0, -1, True
    for i in np.flatnonzero(code == 60).tolist():
        if i < done:
            continue
        t = int(np.searchsorted(text_start, i, side="right")) - 1
        bodies, text = bodies or t > text, t
        stop = int(text_start[t + 1]) - 1
        past = _past_tag(code, i, stop, kind)
        if past > i and bodies:
            body = _past_body(code, i, past, stop, kind)
            bodies = body > 0  # one that never closes is looked for once
            past = max(past, body)
        k[i:past] = STOP
        done = past


def whole_text_hashes(word_hash: Hashes, word_start: np.ndarray) -> Hashes:
    """Each text taken as one term; 0 where it has no word."""
    count = np.diff(word_start)
    out = np.zeros(len(count), np.uint64)
    some = np.flatnonzero(count)
    out[some] = word_hash[word_start[some]]
    for order in range(1, int(count.max(initial=0))):
        longer = np.flatnonzero(count > order)
        out[longer] = mixed(out[longer], word_hash[word_start[longer] + order])
    out[some] = never_empty(out[some])
    return out


def negated(word_hash, fresh, word_start, keys, reach):
    """`words.negated`."""
    here = np.arange(len(word_hash))
    negator = (word_hash != EMPTY) & (keys[slots(keys, word_hash)] == word_hash)
    last = np.maximum.accumulate(np.where(negator, here, -1))
    begins = fresh.copy()
    begins[word_start[:-1][np.diff(word_start) > 0]] = True
    clause = np.maximum.accumulate(np.where(begins, here, -1))
    reached = ~negator & (last >= clause) & (last >= 0) & (here - last <= reach)
    by = np.where(reached, last, -1)
    return np.where(reached & (word_hash != EMPTY), negated_hash(word_hash), word_hash), by


def _terms(word_hash, word_start, low, high, keys, value):
    """(words, orders) the term of each order that begins at each word, -1 for none."""
    found = np.full((len(word_hash), high - low + 1), -1, value.dtype)
    end = np.repeat(word_start[1:], np.diff(word_start))
    h = word_hash
    for order in range(1, min(high, len(word_hash)) + 1):
        if order > 1:
            h = mixed(h[:-1], word_hash[order - 1 :])
        if order >= low:
            rows = np.flatnonzero(np.arange(order, len(h) + order) <= end[: len(h)])
            found[rows, order - low] = value[slots(keys, never_empty(h[rows]))]
    return found


def distinct_terms(word_hash, word_start, low, high, keys, value, seen):
    """`words.distinct_terms`."""
    found = _terms(word_hash, word_start, low, high, keys, value).ravel()
    texts, terms = len(word_start) - 1, len(seen)
    text = np.repeat(np.arange(texts), np.diff(word_start) * (high - low + 1))
    at = np.flatnonzero(found >= 0)
    first = at[np.unique(text[at] * terms + found[at], return_index=True)[1]]
    first.sort()
    indptr = np.concatenate(([0], np.bincount(text[first], minlength=texts).cumsum()))
    return indptr.astype(np.int64), found[first].astype(np.int32)


def occurrences(word_hash, start, stop, low, high, keys, value):
    """`words.occurrences`."""
    whole = np.array([0, len(word_hash)])
    found = _terms(word_hash, whole, low, high, keys, value)
    word, order = np.nonzero(found >= 0)
    rows = found[word, order], start[word], stop[word + order + low - 1]
    return np.stack(rows, axis=1).astype(np.int64)


def silent_levels(indptr, indices, ray, level, value, kappa):
    """`rays.silent_levels`; its sums are taken in the same order."""
    texts, rays, levels = len(indptr) - 1, len(value), int(level.max()) + 1
    text = np.repeat(np.arange(texts), np.diff(indptr))
    count = np.bincount(text * rays + ray[indices], minlength=texts * rays).reshape(texts, rays)
    where = (np.arange(texts)[:, None] * levels + level).ravel()

    def by_level(x):
        total = np.bincount(where, (count * x).ravel(), minlength=texts * levels)
        return total.reshape(texts, levels)

    total, square = by_level(value), by_level(value**2)
    square[:, 0] = 0.0
    square = square.cumsum(axis=1)
    known = square[:, 1:] > square[:, :-1]
    total = np.where(known, total[:, 1:], 0.0)
    read = total[:, ::-1].cumsum(axis=1)[:, ::-1]  # of this level and those above
    enough = known & (np.abs(read) >= kappa * np.sqrt(square[:, :-1]))
    return np.where(enough, np.arange(levels - 1), 0).max(axis=1, initial=0)


def ray_means(
    indptr, indices, ray, radius, cosine, anchor_ray, anchor_radius, anchor_count, left, gap, apart,
    mass, speaking,
):  # fmt: skip
    """`rays.ray_means`; its sums are taken in the same order."""
    texts, rays = mass.shape
    sizes = np.diff(indptr)
    each = np.arange(texts)
    text = np.concatenate((each, np.repeat(each, sizes)))
    g = np.concatenate((np.full(texts, anchor_ray), ray[indices]))
    r = np.concatenate((anchor_radius, radius[indices]))
    at = text * rays + g

    def table(x):
        return x.reshape(texts, rays)

    count = table(np.bincount(at, minlength=texts * rays))
    total = table(np.bincount(at, r, minlength=texts * rays))
    order = np.lexsort((r, at))
    at, r = at[order], r[order]
    last = np.concatenate((at[1:] != at[:-1], [True]))[: len(at)]  # the longest of each ray
    first, second = np.zeros(texts * rays), np.zeros(texts * rays)
    first[at[last]] = r[last]
    next_ = np.flatnonzero(last[1:] & ~last[:-1])
    second[at[next_]] = r[next_]
    first, second = table(first), table(second)

    def pulled_most(h, others):
        """The best score of a unit vector of ray h with the longest of other rays."""
        return (first[:, others] * cosine[h, others]).max(axis=1, initial=0.0)

    there, length = np.arange(rays), first[:, anchor_ray]
    ahead = np.maximum(pulled_most(anchor_ray, there != anchor_ray), second[:, anchor_ray])
    sure = (length == anchor_radius) & (anchor_radius > ahead + gap)
    other = np.zeros((texts, rays))
    for h in () if apart else np.flatnonzero(count.any(axis=0)).tolist():
        other[:, h] = pulled_most(h, (there != h) & (there != anchor_ray))
    present = count > 0
    present[:, anchor_ray] = False
    length = anchor_radius[:, None]
    pulled = length * cosine[:, anchor_ray]
    leads = present & (first > pulled)
    follows = present & ~leads
    rival = np.where(leads, np.maximum(pulled, second), first)
    best = np.where(leads, first, pulled)
    sure &= (~present | (best > np.maximum(other, rival) + gap)).all(axis=1)
    tokens = (sizes + anchor_count)[:, None]
    own = (count * first * (1.0 - left) + total * left) / tokens
    mass[...] = np.where(leads, own, np.where(follows, total * left / tokens, 0.0))
    near = count[:, anchor_ray] + (count * follows).sum(axis=1) + anchor_count - 1.0
    near = near * anchor_radius * (1.0 - left)
    rest = total[:, anchor_ray] + (anchor_count - 1.0) * anchor_radius
    mass[:, anchor_ray] = near / tokens[:, 0] + rest * left / tokens[:, 0]
    speaking[...] = (count * leads).sum(axis=1)
    return np.where(sure, 1 + leads.sum(axis=1), -1)
