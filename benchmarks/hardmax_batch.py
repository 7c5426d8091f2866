"""Batches of small configurations: 1,024 of 128 tokens through 8 layers, configurations per second.

    python benchmarks/hardmax_batch.py [--quick]

Against torch.bmm with ties, np.matmul with argmax, and the published loop (one configuration and
one token at a time, `==` on floats; timed on a few and scaled). float32 input, one thread.
"""

from __future__ import annotations

import sys

from interleave import interleave, write  # sets the number of threads: first

import numpy as np  # isort: skip
import cynosure as cy  # isort: skip

LAYERS, ETA = 8, 0.5  # alpha = 1


def matmul_argmax(z):
    for _ in range(LAYERS):
        target = np.matmul(z, z.transpose(0, 2, 1)).argmax(axis=-1)
        z = z + ETA * (np.take_along_axis(z, target[..., None], 1) - z)
    return z


def torch_ties(z):
    import torch

    x = torch.from_numpy(z)
    for _ in range(LAYERS):
        scores = torch.bmm(x, x.transpose(1, 2))
        ties = (scores == scores.amax(dim=-1, keepdim=True)).to(x.dtype)
        mean = torch.bmm(ties, x) / ties.sum(dim=-1, keepdim=True)
        x = x + ETA * (mean - x)
    return x


def published_loop(z):
    out = []
    for one in z:
        x = one.copy()
        for _ in range(LAYERS):
            new = np.empty_like(x)
            for i in range(len(x)):
                scores = x @ x[i]
                members = np.flatnonzero(scores == scores.max())
                new[i] = x[i] + ETA * (x[members].mean(axis=0) - x[i])
            x = new
        out.append(x)
    return np.stack(out)


def rivals(z, few):
    """Everybody who takes part on these configurations."""
    dynamics = cy.PureAttention(alpha=1.0)
    return {
        "ours": lambda: cy.simulate(dynamics, z, layers=LAYERS, save_every=LAYERS),
        "torch.bmm, ties": lambda: torch_ties(z),
        "np.matmul argmax": lambda: matmul_argmax(z),
        "published loop": lambda: published_loop(z[:few]),
    }


def main() -> None:
    import torch

    torch.set_num_threads(1)
    quick = "--quick" in sys.argv
    count, few, rows = (128 if quick else 1024), 4, []
    for d in (2, 4, 8, 16):
        z = np.random.default_rng(d).normal(size=(count, 128, d)).astype(np.float32)
        seconds = interleave(rivals(z, few))
        rate = {k: (few if k == "published loop" else count) / s for k, s in seconds.items()}
        best = max((k for k in rate if k != "ours"), key=lambda k: rate[k])
        rows.append(
            {
                "d": d,
                "configurations": count,
                "per second": {k: round(v) for k, v in rate.items()},
                "ours / best rival": round(rate["ours"] / rate[best], 2),
                "best rival": best,
            }
        )
        print(
            f"d={d:<3}"
            + "  ".join(f"{k} {v:,.0f}/s" for k, v in rate.items())
            + f"   ours / {best} = {rate['ours'] / rate[best]:.1f}",
            flush=True,
        )
    if not quick:
        write(__file__, rows)


if __name__ == "__main__":
    main()
