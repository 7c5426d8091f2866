"""Softmax layers and flows on a GPU: ours against plain torch and torch's fused attention.

    python benchmarks/softmax_gpu.py [--quick]

1. One layer z + (P z - z)/2 with n = 16,384 and 100,000 tokens in R^64: seconds and the peak of the
   device's memory above the tokens, in turns. Plain torch forms P; where it does not fit it is
   reported as failed.
2. A batch of 256 sphere flows of 128 tokens to T = 5 by RK4(0.05), against the same on the CPU.

Skips with a word where there is no CUDA device.
"""

from __future__ import annotations

import json
import sys

from interleave import interleave, write  # sets the number of threads: first

import numpy as np  # isort: skip
import torch  # isort: skip
import cynosure as cy  # isort: skip

SIZES = (16_384, 100_000)


def plain(z):
    return z + 0.5 * (torch.softmax(z @ z.T, dim=-1) @ z - z)


def fused(z):
    one = z[None, None]  # with four axes torch takes its fused kernels, where there is one
    m = torch.nn.functional.scaled_dot_product_attention(one, one, one, scale=1.0)[0, 0]
    return z + 0.5 * (m - z)


def measured(run):
    """Seconds are of the device: the clock stops when its work is done."""

    def call():
        out = run()
        torch.cuda.synchronize()
        return out

    return call


def layer(n, dtype):
    z = torch.randn(n, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = (z / 64**0.25).to("cuda", dtype)
    dynamics = cy.PureAttention(cy.Softmax(1.0))
    rivals = {
        "ours": measured(lambda: dynamics.step(z, 0)),
        "plain torch": measured(lambda: plain(z)),
        "torch SDPA": measured(lambda: fused(z)),
    }
    row = {"n": n, "d": 64, "dtype": str(dtype).removeprefix("torch."), "MiB": {}, "error": {}}
    rows = torch.arange(0, n, n // 64, device="cuda")
    wide = z.double()
    P = torch.softmax(wide[rows] @ wide.T, dim=-1)
    exact = wide[rows] + 0.5 * (P @ wide - wide[rows])
    for name in list(rivals):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        try:
            out = rivals[name]()
        except torch.cuda.OutOfMemoryError:
            row["MiB"][name] = row["error"][name] = "failed"
            del rivals[name]
            continue
        row["MiB"][name] = round((torch.cuda.max_memory_allocated() - before) / 2**20)
        row["error"][name] = float(f"{(out[rows].double() - exact).abs().max().item():.2g}")
        del out
    seconds = interleave(rivals, rounds=7)
    row["seconds"] = {name: float(f"{s:.3g}") for name, s in seconds.items()}
    row["ratio to ours"] = {k: round(s / seconds["ours"], 2) for k, s in seconds.items()}
    print(json.dumps(row), flush=True)
    return row


def flows(batch):
    z = np.random.default_rng(0).standard_normal((batch, 128, 8))
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    flow, stepper = cy.SphereFlow(cy.Softmax(4.0)), cy.simulation.RK4(0.05)
    far = torch.tensor(z, device="cuda")

    def end(start):
        return cy.simulate(flow, start, times=[0.0, 5.0], stepper=stepper).z[-1]

    gap = float(np.abs(end(far).cpu().numpy() - end(z)).max())
    seconds = interleave({"GPU": measured(lambda: end(far)), "CPU": lambda: end(z)}, rounds=3)
    row = {"flows": batch, "tokens": 128, "largest difference": float(f"{gap:.2g}")}
    row["seconds"] = {name: float(f"{s:.3g}") for name, s in seconds.items()}
    row["CPU / GPU"] = round(seconds["CPU"] / seconds["GPU"], 1)
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return
    quick = "--quick" in sys.argv
    rows = [{"device": torch.cuda.get_device_name(), "torch": torch.__version__}]
    for n in SIZES[:1] if quick else SIZES:
        rows += [layer(n, torch.float32), layer(n, torch.float64)]
    rows.append(flows(32 if quick else 256))
    if not quick:
        write(__file__, rows)


if __name__ == "__main__":
    main()
