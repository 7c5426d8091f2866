"""Cases of the search and the walk on a device, run by test_device on the CPU and test_cuda there.

The oracle of a search is `reference_candidates` through `complaints`; that of a walk is the walk of
the CPU: set for set, state for state.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cynosure.engine.gpu.passes import SPLIT
from cynosure.engine.gpu.search import counted_candidates
from cynosure.engine.kernels import run_batch
from cynosure.engine.walk import Walk
from test_kernels import PLANE, SPACE, complaints

LATTICE = np.unique(np.random.default_rng(3).integers(-4, 5, (900, 4)), axis=0).astype(float)
TURN = np.random.default_rng(4).uniform(0, 7, 700)
SEARCHES = {
    **PLANE,
    **SPACE,
    "lattice": LATTICE,
    "crowded circle": np.column_stack((np.cos(TURN), np.sin(TURN))),
    "one ulp": np.nextafter(1.0, 2.0) ** np.arange(40)[:, None] * np.ones((1, 5)),
    "many": np.random.default_rng(5).normal(size=(1500, 24)),
    "deep": np.random.default_rng(6).normal(size=(200, 150)),
    "a zero token": np.vstack((np.zeros((1, 4)), LATTICE[:50] + 0.5)),
}


def tokens(kind: int, rng: np.random.Generator) -> np.ndarray:
    """Small configurations of seven kinds, with ties, near-ties and copies among them."""
    n, d = int(rng.integers(3, 60)), int(rng.integers(1, 7))
    gaussian = rng.normal(size=(n, d))
    match kind:
        case 0:
            return gaussian
        case 1:
            return rng.uniform(-1, 1, (n, d))
        case 2:
            return rng.integers(-2, 3, (n, d)).astype(float)
        case 3:
            return gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)
        case 4:  # apart by units in the last place
            return np.repeat(gaussian, 3, axis=0) + 2e-16 * rng.integers(-3, 4, (3 * n, d))
        case 5:
            return gaussian * 10.0 ** rng.integers(-9, 1, (n, 1))
        case _:
            return rng.normal(size=(n, 30))


def search_faults(z: np.ndarray, tensor, passes=None, q=None) -> list[str]:
    """What is wrong with the search of z on the device that `tensor` puts arrays on."""
    z = np.unique(z, axis=0)
    q = z if q is None else q
    faults = []
    for width in (0.0, 1e-15, 1e-3):
        slack = np.full(len(q), width * np.abs(z).max() ** 2)
        for gaps in (False, True):
            args = (tensor(q), tensor(z), tensor(slack))
            found, counts = counted_candidates(*args, runner_up=gaps, passes=passes)
            faults += complaints(found, q, z, slack)
            if counts.rows != len(q) or counts.pairs < len(found.indices):
                faults.append(f"counts {counts} do not add up")
    return faults


def split_faults(z: np.ndarray, tensor, passes) -> list[str]:
    """What is wrong with the halves of z: parts, their places, and lengths that must be upwards."""
    faults = []
    d = z.shape[1]
    for together in (True, False):
        halves, *rest = (x.cpu().numpy() for x in passes.split(tensor(z), together=together))
        norm, head, low, left, power = rest
        largest = np.abs(z).max() if together else np.abs(z).max(axis=1)
        if (np.frexp(power)[0] != 0.5).any() or (power * largest >= 1).any():
            faults.append("a power that is none, or too large")
        y = z * power[:, None]
        three = d <= SPLIT
        h = halves[:, :d].astype(float)
        other = halves[:, 2 * d : 3 * d] if together else halves[:, d : 2 * d]
        at = slice(d, 2 * d) if together else slice(2 * d, 3 * d)
        x = halves[:, at].astype(float) if three else np.zeros_like(h)
        if (three and (other != h).any()) or halves[:, 3 * d if three else d :].any():
            faults.append("halves out of place")
        if (np.abs(y - h - x) > np.maximum(2.0 ** (-21 if three else -11) * np.abs(y), 2e-7)).any():
            faults.append("halves far from the tokens")
        for name, length, part in zip(
            ("norm", "head", "low", "rest"),
            (norm, head, low, left),
            (y, h, x, y - h - x),
            strict=True,
        ):
            true = np.linalg.norm(part, axis=1)
            if (length < true).any() or (length > true * (1 + 1e-8) + 1e-149).any():
                faults.append(f"{name} is not upwards, or far up")
    return faults


def walk_faults(seed: int, tensor, layers: int = 6) -> list[str]:
    """Where the walk of a random configuration differs from that of the CPU."""
    rng = np.random.default_rng(seed)
    z = tokens(seed % 7, rng)
    A = None if rng.random() < 0.5 else rng.normal(size=(z.shape[1],) * 2)
    alpha = Fraction(int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    gaps = bool(rng.integers(2))
    here = Walk(z, A, alpha, gaps=gaps)
    far = Walk(z, A, alpha, gaps=gaps, there=tensor(z))
    faults = []
    for _ in range(layers):
        here.decide()
        far.decide()
        pairs = zip(here.history().records[-1], far.history().records[-1], strict=True)
        if not all(np.array_equal(a, b) for a, b in pairs):
            return [*faults, f"layer {here.k}: other sets"]
        if not np.array_equal(here.state(), far.state().cpu().numpy()):
            faults.append(f"layer {here.k}: other tokens")
        if here.settled:
            break
        here.advance()
        far.advance()
    one, two = here.table(), far.table()
    for name in ("born", "settled_at", "leader", "rule"):
        if not np.array_equal(getattr(one, name), getattr(two, name)):
            faults.append(f"other {name}")
    size = np.abs(z).max() ** 2 * (1.0 if A is None else np.linalg.norm(A))
    if not np.allclose(one.margin, two.margin, rtol=1e-9, atol=1e-13 * size):
        faults.append("other margins")
    return faults


def batch_faults(seed: int, tensor, run, most: int = 12) -> list[str]:
    """Where a batch carried on a device differs from the processor's, in sets or in bits."""
    rng = np.random.default_rng(seed)
    b, n, d = int(rng.integers(1, most)), int(rng.integers(1, 90)), int(rng.integers(1, 10))
    z = rng.normal(size=(b, n, d)) * 10.0 ** rng.integers(-6, 7)
    if seed % 4 == 1:
        z = np.round(z / np.abs(z).max() * 6)  # ties and copies
    mask = rng.random((b, n)) < 0.9
    A = None if seed % 2 else rng.normal(size=(d, d))
    alpha = float(rng.choice([0.1, 0.5, 1.0, 2.35]))
    saves = np.array([[0, 8], [5], [0, 3, 12, 40]][seed % 3])
    args = (mask, A, alpha / (1 + alpha), 1 / (1 + alpha), saves)
    here, there = run_batch(z, *args), run(tensor(z), *args)
    faults = []
    states = there.z.cpu().numpy()
    for i in range(b):
        if there.unsure[i]:
            real = z[i, mask[i]]
            if d == 2:  # the processor forgets keys there that can still be within the slack
                continue
            if not here.unsure[i] and len(np.unique(real + 0.0, axis=0)) == len(real):
                faults.append(f"{i}: unsure without a reason")
            continue
        if here.unsure[i]:
            faults.append(f"{i}: sure where the processor is not")
        elif any((x[i] != y[i]).any() for x, y in zip(here[1:4], there[1:4], strict=True)):
            faults.append(f"{i}: other sets")
        elif (states[:, i] != here.z[:, i]).any():
            faults.append(f"{i}: other bits")
    return faults
