"""Exact hardmax layers of tokens on a GPU, against torch's float64 maximum and two largest.

    python benchmarks/hardmax_gpu.py [--quick] [--out FOLDER] [--seconds 480]

Milliseconds, medians of rounds in turn, the clock stopped when the device is done. "search" finds
the sets C_i of one layer from tokens on the device and brings them to the host; "with gaps" also
the distance of the runner-up; "followed", "64 layers" and "limit" are the public calls, with their
one copy of the tokens to the host. torch returns one argmax and no ties; a million tokens are timed
on a sixteenth of the rows and scaled. "again", "pairs" and "several" count rows that went through
all tiles twice, scores taken in float64, and rows that float64 leaves to integers. Every row of the
table is checked on 512 tokens: the best score is that of float64, and no tie is lost.
"batch" rows carry many small configurations through 8 layers: "kernel" is the device's own time,
"call" has the histories on the host, "processor" is the compiled batch of one core, on a fiftieth
of them; "differ" counts configurations of that part with another set or another bit.
Skips with a word where there is no CUDA device.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from interleave import interleave  # sets the number of threads: first

import numpy as np  # isort: skip
import torch  # isort: skip
from torch.profiler import ProfilerActivity, profile  # isort: skip
import cynosure as cy  # isort: skip
from cynosure.engine.gpu.tokens import DeviceTokens  # isort: skip
from cynosure.engine.kernels import run_batch  # isort: skip
from cynosure.engine.gpu.search import SPLIT, counted_candidates  # isort: skip

DIMENSIONS = (2, 3, 8, 16, 64)
LAWS = ("gaussian", "uniform", "sphere", "lattice")
HALVES = 795e12  # products of halves a second on an H200, twice each: measured, not the data sheet
WALKS = 100_000  # tied classes are walked one by one in Python: lattices beyond it only searched


def tokens(law, n, d):
    rng = np.random.default_rng(d)
    if law == "gaussian":
        z = rng.normal(size=(n, d))
    elif law == "uniform":
        z = rng.uniform(-1, 1, (n, d))
    elif law == "sphere":
        z = rng.normal(size=(n, d))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
    else:
        side = max(int(np.ceil(n ** (1 / d))), 2)
        z = np.unique(rng.integers(-side, side + 1, (n, d)), axis=0).astype(float)
    return torch.tensor(z, device="cuda")


def there(run):
    """Seconds are of the device: the clock stops when its work is done."""

    def call():
        out = run()
        torch.cuda.synchronize()
        return out

    return call


def blocks(z, rows, reduce):
    step = max(1, 2**31 // len(z))
    return [reduce(z[i : min(i + step, rows)] @ z.T) for i in range(0, rows, step)]


def checked(z, slack, found):
    """How many of 512 rows hold another best score, or miss a key that ties with it in float64."""
    rows = torch.arange(0, len(z), max(1, len(z) // 512), device="cuda")
    scores = z[rows] @ z.T
    top = scores.amax(dim=1)
    own = scores.gather(1, torch.tensor(found.best, device="cuda")[rows][:, None])[:, 0]
    width = torch.tensor(np.diff(found.indptr), device="cuda")[rows]
    must = (scores >= top[:, None]).sum(dim=1)
    return int(((own < top - slack[rows]) | (width < must)).sum())


def row_of(law, n, d, seconds):
    z = tokens(law, n, d)
    floats = DeviceTokens(z, None, cy.PureAttention(alpha=0.5).exact_alpha)
    slack = 2.0 * floats.score_error(z.square().sum(dim=1).sqrt())
    found, counts = counted_candidates(z, z, slack)
    wrong = checked(z, slack, found)
    part = len(z) // 16 if n >= 500_000 else len(z)
    rivals = {
        "search": lambda: counted_candidates(z, z, slack),
        "with gaps": lambda: counted_candidates(z, z, slack, runner_up=True),
        "torch max": lambda: blocks(z, part, lambda s: s.max(dim=1)),
        "torch topk": lambda: blocks(z, part, lambda s: s.topk(2, dim=1)),
    }
    calls = {}
    if law != "lattice" or n <= WALKS:
        dynamics = cy.PureAttention(alpha=0.5)
        calls = {
            "followed": lambda: cy.Hardmax().followed(z),
            "64 layers": lambda: cy.simulate(dynamics, z, layers=64, save_every=64),
            "limit": lambda: cy.limit(dynamics, z),
        }
    taken = {name: there(run) for name, run in (rivals | calls).items()}
    ms = {name: 1e3 * s for name, s in interleave(taken, rounds=3, budget=seconds).items()}
    for name in ("torch max", "torch topk"):
        ms[name] *= len(z) / part
    row = {"law": law, "n": n, "distinct": len(z), "d": d, "wrong of 512": wrong}
    row |= counts._asdict() | {"milliseconds": {k: float(f"{v:.4g}") for k, v in ms.items()}}
    row["torch max / search"] = round(ms["torch max"] / ms["search"], 2)
    terms = 3 * d if d <= SPLIT else d
    row["scores computed if none were skipped, share of the products of halves"] = round(
        2 * terms * len(z) ** 2 / (1e-3 * ms["search"]) / HALVES, 3
    )
    if calls:
        row["64 layers / followed"] = round(ms["64 layers"] / ms["followed"], 2)
        run, proved = cy.simulate(dynamics, z, layers=64, save_every=64), cy.limit(dynamics, z)
        row["rows in integers, 64 layers"] = run.history.exact_decisions
        row["limit: layers, undecided"] = [proved.layers, len(proved.undecided)]
    return row


def batch_row(b, n, d, seconds):
    z = torch.tensor(np.random.default_rng(d).normal(size=(b, n, d)), device="cuda")
    some = z[: b // 50].cpu().numpy()
    mask, saves = np.ones((b, n), bool), np.array([0, 8])
    step = (None, 1 / 3, 2 / 3, saves)
    found, here = run_batch(z, mask, *step), run_batch(some, mask[: len(some)], *step)
    same = (found.z[:, : len(some)].cpu().numpy() == here.z).all(axis=(0, 2, 3))
    for name in ("born", "settled_at", "leader"):
        same &= (getattr(found, name)[: len(some)] == getattr(here, name)).all(axis=1)
    del found, here
    calls = {
        "call": there(lambda: run_batch(z, mask, *step)),
        "processor": lambda: run_batch(some, mask[: len(some)], *step),
    }
    taken = interleave(calls, rounds=3, budget=seconds)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        there(lambda: run_batch(z, mask, *step))()
    kernel = next(e.device_time_total for e in seen.key_averages() if e.key == "carry") / 1e6
    return {
        "batch": b, "n": n, "d": d, "layers": 8, "differ": int((~same).sum()),
        "configurations/s": {
            "kernel": round(b / kernel), "call": round(b / taken["call"]),
            "processor": round(len(some) / taken["processor"]),
        },
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    options.add_argument("--out", type=Path, default=Path(__file__).parent)
    options.add_argument("--seconds", type=float, default=480.0)
    options.add_argument("--n", type=int, nargs="+", default=[100_000, 10_000, 1_000_000])
    options.add_argument("--d", type=int, nargs="+", default=list(DIMENSIONS))
    options.add_argument("--laws", nargs="+", default=list(LAWS))
    options.add_argument("--each", type=float, default=1.0, help="seconds for one timing")
    chosen = options.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return
    import triton

    machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    machine["triton"] = triton.__version__
    rows, started = [], time.perf_counter()
    for b, n, d in ((100_000, 128, 8), (100_000, 128, 2), (100_000, 64, 16), (20_000, 256, 64)):
        rows.append(batch_row(b // 10 if chosen.quick else b, n, d, chosen.each))
        print(json.dumps(rows[-1]), flush=True)
    for n in [10_000] if chosen.quick else chosen.n:
        for d in chosen.d:
            for law in chosen.laws:
                if time.perf_counter() - started > chosen.seconds:
                    rows.append({"law": law, "n": n, "d": d, "failed": "no time left"})
                    continue
                try:
                    row = row_of(law, n, d, chosen.each)
                except Exception as error:  # a table with a hole says more than none
                    row = {"law": law, "n": n, "d": d, "failed": f"{error!r}"[:500]}
                    torch.cuda.empty_cache()
                rows.append(row)
                print(json.dumps(row), flush=True)
                text = json.dumps({"machine": machine, "rows": rows}, indent=1)
                (chosen.out / "hardmax_gpu.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
