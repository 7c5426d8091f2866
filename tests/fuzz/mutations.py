"""What works, changed: bytes, JSON values, arrays, and numbers that are none."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import numpy as np

NUMBERS = (
    "0 -1 1 2 3 7 0.5 1e-308 5e-324 1e308 -1e308 1e999 nan inf -inf 1/2 0/1 1/0 2**3 1_0 0x10 "
    "99999999999999999999 -0.0 1e-9 ½ abc"
).split() + ["", " ", "x" * 300, "\x00", "é\u202e", "-", "1,2", "a=b", "0.1.2"]
WEIRD = (0, -1, 1, 10**9, 2**63, -(2**63), 1e308, -1e308, 5e-324, float("nan"), float("inf"),
         None, True, "", "x", [], {}, [[]], 0.5, 1e-300)  # fmt: skip


def flipped(draw: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut, doubled or put in."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5, 30))):
        at = draw.randrange(len(out) + 1) if out else 0
        what = draw.randrange(6)
        if what == 0 and out:
            out[at % len(out)] ^= 1 << draw.randrange(8)
        elif what == 1:
            del out[at : at + draw.choice((1, 2, 8, 100))]
        elif what == 2:
            out = out[:at]
        elif what == 3:
            out[at:at] = draw.choice((b"\0", b"\xff" * 8, b"[" * 50, b"1" * 40, b'"', b"\n", b","))
        elif what == 4 and out:
            out[at % len(out)] = draw.randrange(256)
        else:
            out[at:at] = out[max(0, at - 64) : at]
    return bytes(out)


def edited(draw: random.Random, tree: Any) -> Any:
    """A JSON value with one of its parts replaced, dropped or repeated."""
    if isinstance(tree, dict) and tree and draw.random() < 0.85:
        key = draw.choice(sorted(tree))
        if draw.random() < 0.15:
            return {k: v for k, v in tree.items() if k != key}
        return {**tree, key: edited(draw, tree[key])}
    if isinstance(tree, list) and tree and draw.random() < 0.7:
        at = draw.randrange(len(tree))
        if draw.random() < 0.3:
            return tree[:at] + tree[at + draw.choice((0, 1)) :] + tree[:1]
        return [*tree[:at], edited(draw, tree[at]), *tree[at + 1 :]]
    return deepcopy(draw.choice(WEIRD))  # a case may put something into it


def bent(draw: random.Random, x: np.ndarray) -> np.ndarray:
    """An array of another shape, type or content."""
    what = draw.randrange(9)
    if what == 0:
        return x[: draw.randrange(len(x) + 1)] if x.ndim else x
    if what == 1:
        return np.concatenate((x, x)) if x.ndim else x[None]
    if what == 2:
        kinds = (np.float32, np.int8, np.uint64, np.bool_, np.complex128, np.float16, np.int64)
        return x.astype(draw.choice(kinds))
    if what == 3:
        return x[..., None]
    if what == 4:
        return x.T.copy()
    if what == 5:
        return np.zeros((0, *x.shape[1:]), x.dtype)
    if what == 6 and x.ndim:
        return x[0]
    out = x.copy().reshape(-1)
    if out.size and out.dtype.kind == "f":
        value = draw.choice((0.0, np.nan, np.inf, 1e308, -1e300, 5e-324, 1e100, -1.0))
        out[draw.randrange(out.size) if what == 7 else slice(None)] = value
    elif out.size and out.dtype.kind in "iu":
        largest = min(2**31 - 1, int(np.iinfo(out.dtype).max))
        out[draw.randrange(out.size)] = draw.choice((0, 1, 100, largest))
    return out.reshape(x.shape)
