"""Value classes of rows by an open-addressing hash table: O(n d), no sorting."""

from __future__ import annotations

import numpy as np

from ..._compiled import jitted
from .contract import Classes, Floats


def row_classes(z: Floats) -> Classes:
    """Equal rows get equal labels, in order of first appearance. Adding +0.0 makes -0.0 into 0.0,
    after which equality of values is equality of bits (NaN is not allowed in z)."""
    bits = np.ascontiguousarray(z + 0.0).view(np.uint64)
    label, first, count = _label(bits)
    return Classes(label, first, count)


def warm() -> None:
    row_classes(np.zeros((2, 2)))


@jitted()
def _label(bits):
    n, d = bits.shape
    size = 16
    while size < 2 * n:
        size *= 2
    mask = np.uint64(size - 1)
    slot = np.full(size, -1, np.int32)
    label = np.empty(n, np.intp)
    first = np.empty(n, np.intp)
    count = np.zeros(n, np.intp)
    m = 0
    for i in range(n):
        h = np.uint64(0x9E3779B97F4A7C15)
        for c in range(d):
            h = (h ^ bits[i, c]) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
        at = h & mask
        while True:
            k = slot[at]
            if k < 0:
                slot[at] = m
                first[m] = i
                k = m
                m += 1
                break
            j = first[k]
            same = True
            for c in range(d):
                if bits[i, c] != bits[j, c]:
                    same = False
                    break
            if same:
                break
            at = (at + np.uint64(1)) & mask
        label[i] = k
        count[k] += 1
    return label, first[:m].copy(), count[:m].copy()
