"""`python -m tests.soak --minutes 30`: mixed calls in one process, whose memory stays flat.

Every call of ROUNDS in a random order, again and again, from fresh tokens and texts each time. The
resident memory after the first tenth is the base: what grows by more than ALLOWED above it leaks.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
os.environ.setdefault("MPLBACKEND", "Agg")

import cynosure as cy

ALLOWED = 50.0  # megabytes above the base: allocators and caches are not smooth


def megabytes() -> float:
    """The memory this process holds now; where that cannot be read, the most it ever held."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmRSS"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _tokens(rng: np.random.Generator, n: int = 20, d: int = 2) -> np.ndarray:
    kind = int(rng.integers(3))
    z = rng.normal(size=(n, d)) if kind else rng.integers(-3, 4, size=(n, d)).astype(float)
    return z * 10.0 ** rng.integers(-200, 200) if kind == 2 else z


def _words(rng: np.random.Generator, many: int) -> list[str]:
    known = (
        "good bad dull great film story not a the acting slow moving poor best unknownword".split()
    )
    return [" ".join(rng.choice(known, size=rng.integers(1, 60))) for _ in range(many)]


def _batch(rng: np.random.Generator) -> None:
    cy.simulate(cy.PureAttention(alpha=0.5), rng.normal(size=(50, 12, 3)), layers=8)


def _torch(rng: np.random.Generator) -> None:
    import torch

    z = torch.tensor(rng.normal(size=(10, 2)), requires_grad=True)
    cy.simulate(cy.PureAttention(cy.Softmax(2.0)), z, layers=4).z[-1].sum().backward()


def _saved(rng: np.random.Generator) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "run.npz")
        cy.simulate(cy.PureAttention(), _tokens(rng), layers=5).save(path)
        cy.load(path)


def _drawn(rng: np.random.Generator) -> None:
    import matplotlib.pyplot as plt

    figure = cy.plot.layers(cy.simulate(cy.PureAttention(), rng.normal(size=(12, 2)), layers=6))
    plt.close(getattr(figure, "figure", figure))


def _fitted(rng: np.random.Generator) -> None:
    texts = _words(rng, 60)
    cy.HardmaxClassifier(min_df=1).fit(texts, [i % 2 for i in range(60)]).predict(texts)


READER: list[Any] = []


def _read(rng: np.random.Generator) -> None:
    if not READER:
        READER.append(cy.load_pretrained())
    READER[0].predict_proba(_words(rng, 200))
    READER[0].explain(_words(rng, 1)[0]).to_html()


ROUNDS: dict[str, Callable[[np.random.Generator], object]] = {
    "simulate": lambda rng: cy.simulate(cy.PureAttention(alpha=0.5), _tokens(rng, 60), layers=9),
    "limit": lambda rng: cy.limit(cy.PureAttention(alpha=0.5), _tokens(rng, 40, 3)),
    "exact": lambda rng: cy.limit(cy.PureAttention(), _tokens(rng, 8), exact=True, deadline=2.0),
    "check": lambda rng: cy.check(cy.simulate(cy.PureAttention(), _tokens(rng), layers=6)),
    "flow": lambda rng: cy.simulate(cy.dynamics.RescaledFlow(), rng.normal(size=(8, 2)), time=1.0),
    "sphere": lambda rng: cy.simulate(cy.SphereFlow(), rng.normal(size=(8, 3)), time=1.0),
    "control": lambda rng: cy.control(rng.normal(size=(8, 3)), int(rng.integers(8))),
    "hull": lambda rng: cy.hull(rng.normal(size=(30, 3))),
    "batch": _batch,
    "torch": _torch,
    "saved": _saved,
    "drawn": _drawn,
    "fitted": _fitted,
    "read": _read,
}


def soak(seconds: float, seed: int = 0, every: float = 60.0) -> tuple[list[float], Counter[str]]:
    """The megabytes held, once every so many seconds, and how often each call was made."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    made: Counter[str] = Counter()
    start, held = time.monotonic(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while (now := time.monotonic() - start) < seconds:
            name = draw.choice(sorted(ROUNDS))
            ROUNDS[name](rng)
            made[name] += 1
            if now > every * len(held):
                held.append(megabytes())
                print(
                    f"{now / 60:5.1f} min {sum(made.values()):8d} calls {held[-1]:8.1f} MB",
                    flush=True,
                )
    return held, made


def growth(held: list[float]) -> float:
    """By how much the last tenth is above the second tenth, in megabytes."""
    tenth = max(1, len(held) // 10)
    return float(np.median(held[-tenth:]) - np.median(held[tenth : 2 * tenth] or held[:1]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    held, made = soak(60 * given.minutes, given.seed)
    print(" ".join(f"{name} {times}" for name, times in sorted(made.items())))
    print(
        f"{sum(made.values())} calls; memory grew by {growth(held):.1f} MB, allowed {ALLOWED:.0f}"
    )
    return int(growth(held) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
