"""How often the float path is right, and what a million tokens cost.

    python benchmarks/certified_limits.py [--quick]

1. 1,000 random integer configurations with many ties (n <= 12, d <= 3, several rational alphas):
   float `limit` against rational `limit`: equal, undecided, wrong (must be 0).
2. The square of Figure 2 rotated by 1,000 random angles, the rotated floats taken as exact data:
   how many keep their ties, and that every answer equals the rational one on the same floats.
3. Golden cases G1-G4 in rationals, for all listed alphas.
4. n = 10^6, d = 2: seconds and peak memory of `limit`.
"""

from __future__ import annotations

import resource
import sys
import time
from fractions import Fraction as F

from interleave import write

import numpy as np  # isort: skip
import cynosure as cy  # isort: skip
from cynosure import configurations  # isort: skip


def agree(a, b) -> bool:
    """Same births, settling layers, rules and targets; points equal to rounding."""
    return (
        all(
            (getattr(a, name) == getattr(b, name)).all()
            for name in ("born", "settled_at", "rule", "follows")
        )
        and abs(a.points - b.points).max() <= 1e-12 * abs(b.points).max()
    )


def tied(count: int) -> dict:
    rng = np.random.default_rng(2024)
    alphas = [F(1, 10), F(1, 3), F(1, 2), F(1), F(2), F(10)]
    out = {"configurations": count, "equal": 0, "undecided": 0, "wrong": 0}
    for _ in range(count):
        n, d = int(rng.integers(2, 13)), int(rng.integers(1, 4))
        z = rng.integers(-4, 5, size=(n, d)).astype(float)
        dynamics = cy.PureAttention(alpha=alphas[int(rng.integers(len(alphas)))])
        fast, slow = cy.limit(dynamics, z), cy.limit(dynamics, z, exact=True)
        out["equal" if agree(fast, slow) else "wrong"] += 1
        out["undecided"] += not (fast.certified and slow.certified)
    return out


def rotated(count: int) -> dict:
    out = {"rotations": count, "keep a tie": 0, "equal to rationals": 0, "undecided": 0}
    dynamics = cy.PureAttention(alpha=0.5)
    for angle in np.random.default_rng(7).uniform(0, 2 * np.pi, size=count):
        z = configurations.rotated_square(float(angle))
        fast, slow = cy.limit(dynamics, z), cy.limit(dynamics, z, exact=True)
        out["keep a tie"] += bool((fast.follows < 0).any())
        out["equal to rationals"] += agree(fast, slow)
        out["undecided"] += not fast.certified
    return out


def golden() -> list[dict]:
    rows = []
    for name in ("G1", "G2", "G2a", "G2b", "G2c", "G3", "G4"):
        for alpha in (F(1, 10), F(1, 2), F(1), F(2), F(10)):
            z = configurations.golden_exact(name)
            li = cy.limit(cy.PureAttention(alpha=alpha), z, exact=True)
            rows.append(
                {
                    "case": name,
                    "alpha": str(alpha),
                    "certified": li.certified,
                    "leaders": li.leaders.tolist(),
                    "settled": int(li.settled_at.max()),
                    "born later": {
                        int(i): f"layer {li.born[i]} at {tuple(float(x) for x in li.points[i])}"
                        for i in li.leaders
                        if li.born[i] > 0
                    },
                }
            )
    return rows


def peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000


def million(n: int) -> list[dict]:
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(0, 2 * np.pi, size=n), np.sqrt(rng.uniform(size=n))
    circle = np.column_stack((np.cos(angle), np.sin(angle)))
    laws = {
        "gaussian": rng.normal(size=(n, 2)),
        "uniform square": rng.uniform(-1, 1, size=(n, 2)),
        "uniform disc": radius[:, None] * circle,
        "circle": circle,
    }
    rows = []
    for law, z in laws.items():
        began = time.perf_counter()
        li = cy.limit(cy.PureAttention(alpha=0.5), z)
        rows.append(
            {
                "law": law,
                "n": n,
                "seconds": round(time.perf_counter() - began, 2),
                "leaders": len(li.leaders),
                "layers": li.layers,
                "certified": li.certified,
                "decided in integers": li.exact_decisions,
                "peak memory so far, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                // 1000,
            }
        )
    return rows


def main() -> None:
    quick = "--quick" in sys.argv
    count, n = (50, 20_000) if quick else (1000, 1_000_000)
    cy.limit(cy.PureAttention(), configurations.gaussian(1000, 2))  # compile outside the timing
    rows = [*million(n), tied(count), rotated(count), *golden()]
    for row in rows:
        print("  ".join(f"{k}: {v}" for k, v in row.items()), flush=True)
    if not quick:
        write(__file__, rows)


if __name__ == "__main__":
    main()
