"""One hardmax step, and 64 layers, against NumPy blocks, the published loop, faiss and SciPy.

    python benchmarks/hardmax_layers.py [--quick]

n = 10,000 tokens, float64, one thread, Gaussian and uniform; milliseconds, medians of interleaved
rounds. Ours returns the exact sets C_i (ties included); the dense rivals return one argmax. The
published loop compares each score with the row maximum by `==` in Python, one token at a time; it
is timed on 200 tokens and scaled. "64 layers" is simulate(..., layers=64), which keeps the last.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from interleave import interleave, write  # sets the number of threads: first

import numpy as np  # isort: skip
import cynosure as cy  # isort: skip


def numpy_blocks(z, rows=256):
    out = np.empty(len(z), dtype=np.intp)
    for i in range(0, len(z), rows):
        out[i : i + rows] = (z[i : i + rows] @ z.T).argmax(axis=1)
    return out


def published_loop(z, tokens):
    """One token at a time: all scores, the maximum, and who equals it."""
    out = []
    for i in range(tokens):
        scores = z @ z[i]
        best = scores.max()
        out.append([j for j in range(len(z)) if scores[j] == best])
    return out


def hull_search(z):
    """SciPy's hull, then the best vertex for every token: what a careful user would write."""
    from scipy.spatial import ConvexHull

    vertices = z[ConvexHull(z).vertices]
    out = np.empty(len(z), dtype=np.intp)
    for i in range(0, len(z), 1024):
        out[i : i + 1024] = (z[i : i + 1024] @ vertices.T).argmax(axis=1)
    return out


def faiss_search(z):
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(z.shape[1])
    data = z.astype(np.float32)
    index.add(data)
    return index.search(data, 1)[1]


def rivals(z, sample):
    """Everybody who takes part on these tokens."""
    hardmax, dynamics = cy.Hardmax(), cy.PureAttention(alpha=0.5)
    out = {
        "ours": lambda: hardmax.followed(z),
        "ours, 64 layers": lambda: cy.simulate(dynamics, z, layers=64, save_every=64),
        "NumPy blocks": lambda: numpy_blocks(z),
        "published loop": lambda: published_loop(z, sample),
    }
    if z.shape[1] <= 3:
        out["SciPy hull"] = lambda: hull_search(z)
    if find_spec("faiss"):
        out["faiss (float32)"] = lambda: faiss_search(z)
    return out


def main() -> None:
    quick = "--quick" in sys.argv
    n, rows = (2000 if quick else 10_000), []
    print(f"n = {n}, milliseconds (one step | 64 layers); ratio = best rival / ours")
    for d in (2, 3, 8, 16, 64):
        for law in ("gaussian", "uniform"):
            rng = np.random.default_rng(d)
            z = rng.normal(size=(n, d)) if law == "gaussian" else rng.uniform(-1, 1, size=(n, d))
            ms = {name: 1e3 * s for name, s in interleave(rivals(z, 200)).items()}
            ms["published loop"] *= n / 200
            others = {k: v for k, v in ms.items() if not k.startswith("ours")}
            best = min(others, key=lambda k: others[k])
            layers = ms["ours, 64 layers"]
            row = {
                "d": d,
                "law": law,
                "n": n,
                "milliseconds": {k: round(v, 3) for k, v in ms.items()},
                "step: best rival": best,
                "step: best rival / ours": round(others[best] / ms["ours"], 2),
                "64 layers / our step": round(layers / ms["ours"], 2),
                "64 layers / best step of anybody": round(
                    layers / min(ms["ours"], others[best]), 2
                ),
                "64 layers / NumPy-blocks step": round(layers / ms["NumPy blocks"], 3),
            }
            rows.append(row)
            print(
                f"d={d:<3}{law:<9} ours {ms['ours']:8.2f} | {layers:8.2f}   "
                + "  ".join(f"{k} {v:.1f}" for k, v in others.items())
                + f"   ratio {row['step: best rival / ours']} ({best})"
                + f", 64 layers = {row['64 layers / our step']} steps",
                flush=True,
            )
    if not quick:
        write(__file__, rows)


if __name__ == "__main__":
    main()
