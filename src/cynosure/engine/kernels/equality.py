"""Value classes of rows by an open-addressing hash table: O(n d), no sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .contract import Classes, Floats


def row_classes(z: Floats) -> Classes:
    """Equal rows get equal labels, in order of first appearance. Adding +0.0 makes -0.0 into 0.0,
    after which equality of values is equality of bits (NaN is not allowed in z)."""
    bits = np.ascontiguousarray(z + 0.0).view(np.uint64)
    label, first, count = _label(bits)
    return Classes(label, first, count)


def all_distinct(z: Any) -> bool:
    """True when hashes prove that no two rows of the tensor z are equal; seldom False otherwise."""
    import torch

    bits = (z.double() + 0.0).view(torch.int64)
    bits = bits ^ ((bits >> 32) & 0xFFFFFFFF)  # short mantissas fill only the upper half
    odd = torch.arange(z.shape[1], device=z.device) * 0x1E3779B97F4A7C15 * 2 + 0x7F51AFD7ED558CCD
    mixed = bits * odd  # modulo 2^64, as the sum
    hashed = (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)).mul(0x5851F42D4C957F2D).sum(dim=1)
    hashed = torch.sort(hashed).values
    return bool((hashed[1:] != hashed[:-1]).all())


@njit(cache=True, nogil=True)
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
