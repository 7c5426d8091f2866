"""Sweeps: what a cell costs beside its own work, processes and clusters, large stores, kills.

    python benchmarks/sweep.py [--quick] [overhead] [speed-up] [scheduler] [large] [kills]

All of them, or those that are named; the others stay in the JSON as they were.

1. Overhead per cell: a cell that takes microseconds, in a plain loop that fills arrays, in sweep()
   in memory and into a store, and in joblib cell by cell, in turns; milliseconds per cell.
2. Speed-up of two processes on a cell of some 20 ms (a softmax flow), against one: sweep() with
   workers=2, joblib alone on the same blocks, and sweep() on a Dask cluster of two processes.
3. What a task costs the scheduler: empty ones, through the loop that feeds blocks to a cluster, a
   scheduler and two workers of their own processes; CPU milliseconds of each process per task.
4. A million cells: seconds to compute, bytes on disk, files, seconds to open and to read a slice.
5. Kills: a driver killed with SIGKILL at random files, then gone on with; cells lost and computed
   again, results that differ from a plain loop.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from interleave import interleave, write  # sets the number of threads: first

import numpy as np  # isort: skip
import cynosure as cy  # isort: skip
from cynosure.sweeps import running  # isort: skip


def tiny(a, b, seed):
    return {"x": a * b + seed, "n": seed}


def flow(beta, d, seed):
    """A softmax flow on the sphere, some 20 ms."""
    z0 = cy.configurations.sphere(32, d, seed)
    end = cy.simulate(
        cy.SphereFlow(cy.Softmax(beta)), z0, times=[0.0, 2.0], stepper=cy.simulation.RK4(0.05)
    )
    return {"order": float(np.linalg.norm(end.values[-1].mean(axis=0)))}


def cells(side):
    return {"a": np.arange(float(side)), "b": np.arange(float(side))}, range(10)


def plain_loop(grid, seeds):
    """What a sweep is measured against: loops into arrays."""
    shape = (len(grid["a"]), len(grid["b"]), len(seeds))
    x, n = np.empty(shape), np.empty(shape, dtype=np.int64)
    for i, a in enumerate(grid["a"].tolist()):
        for j, b in enumerate(grid["b"].tolist()):
            for k, seed in enumerate(seeds):
                found = tiny(a=a, b=b, seed=seed)
                x[i, j, k], n[i, j, k] = found["x"], found["n"]
    return x, n


def overhead(folder, side):
    from joblib import Parallel, delayed

    grid, seeds = cells(side)
    count, made = side * side * len(seeds), iter(range(10**6))
    few = [(a, b, s) for a in grid["a"].tolist() for b in grid["b"].tolist() for s in seeds][:2000]
    rivals = {
        "plain loop": lambda: plain_loop(grid, seeds),
        "sweep, in memory": lambda: cy.sweep(tiny, grid, seeds),
        "sweep, into a store": lambda: cy.sweep(
            tiny, grid, seeds, store=folder / f"o{next(made)}.zarr"
        ),
        "joblib, cell by cell, 2 processes": lambda: Parallel(2, batch_size=1)(
            delayed(tiny)(*one) for one in few
        ),
    }
    seconds = interleave(rivals, rounds=3)
    counts = {name: len(few) if name.startswith("joblib") else count for name in rivals}
    each = {name: 1e3 * seconds[name] / counts[name] for name in rivals}
    row = {"cells": count, "ms per cell": {k: float(f"{v:.3g}") for k, v in each.items()}}
    row["sweep into a store, ms per cell above the loop"] = float(
        f"{each['sweep, into a store'] - each['plain loop']:.3g}"
    )
    print(row, flush=True)
    return row


def speed_up(folder, betas):
    from distributed import Client, LocalCluster
    from joblib import Parallel, delayed

    grid, seeds = {"beta": np.linspace(0, 9, betas), "d": [2, 3, 8]}, range(8)
    made = iter(range(10**6))
    places = [(b, d, s) for b in grid["beta"].tolist() for d in grid["d"] for s in seeds]
    flow(1.0, 3, 0)

    def swept(**how):
        return cy.sweep(flow, grid, seeds, store=folder / f"s{next(made)}.zarr", **how)

    how = {"processes": True, "dashboard_address": ":0", "host": "127.0.0.1"}
    with LocalCluster(n_workers=2, threads_per_worker=1, **how) as local, Client(local) as client:
        rivals = {
            "plain loop": lambda: [flow(*place) for place in places],
            "sweep": swept,
            "sweep, workers=2": lambda: swept(workers=2),
            "sweep, Dask with 2 workers": lambda: swept(client=client),
            "joblib, 2 processes": lambda: Parallel(2)(delayed(flow)(*p) for p in places),
        }
        seconds = interleave(rivals, rounds=3, budget=120)
    row = {"cells": len(places), "seconds": {k: round(v, 3) for k, v in seconds.items()}}
    one = seconds["plain loop"]
    row["speed-up"] = {k: round(one / v, 2) for k, v in seconds.items()}
    print(row, flush=True)
    return row


def nothing(job):
    return job


def scheduler(folder, tasks):
    from distributed import Client

    from cynosure.sweeps.engines import finished

    file, alone = str(folder / "scheduler.json"), ["--no-dashboard", "--host", "127.0.0.1"]
    dask, here = [sys.executable, "-m", "dask"], str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}
    how = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    line = [*dask, "scheduler", "--port", "0", "--scheduler-file", file, *alone]
    started = [subprocess.Popen(line, **how)]
    try:
        line = [*dask, "worker", "--scheduler-file", file, "--nthreads", "1", "--no-nanny", *alone]
        started += [subprocess.Popen(line, **how) for _ in range(2)]
        while not os.path.exists(file):
            time.sleep(0.05)
        with Client(scheduler_file=file, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)

            def used():
                of_workers = sum(client.run(time.process_time).values())
                return np.array(
                    [client.run_on_scheduler(time.process_time), of_workers, time.process_time()]
                )

            work = partial(nothing)
            list(finished(work, dict.fromkeys(range(200)), None, client))  # warm
            before, began = used(), time.perf_counter()
            done = list(finished(work, dict.fromkeys(range(tasks)), None, client))
            spent, wall = used() - before, time.perf_counter() - began
    finally:
        for process in started[::-1]:
            process.kill()
            process.wait()
    each = dict(zip(("scheduler", "two workers together", "driver"), 1e3 * spent / len(done)))
    row = {"tasks": len(done), "CPU ms per task": {k: round(float(v), 3) for k, v in each.items()}}
    row["tasks per second, all on two cores"] = round(len(done) / wall)
    print(row, flush=True)
    return row


def large(folder, side):
    grid, seeds = cells(side)
    began = time.perf_counter()
    cy.sweep(tiny, grid, seeds, store=folder / "large.zarr")
    row = {"cells": side * side * len(seeds), "seconds": round(time.perf_counter() - began, 2)}
    files = [path for path in (folder / "large.zarr").rglob("*") if path.is_file()]
    row |= {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}
    began = time.perf_counter()
    data = cy.open_sweep(folder / "large.zarr")
    row["seconds to open"] = round(time.perf_counter() - began, 4)
    began = time.perf_counter()
    data["x"].isel(a=3).values  # noqa: B018
    row["seconds to read x at one a"] = round(time.perf_counter() - began, 4)
    began = time.perf_counter()
    cy.sweep(tiny, grid, seeds, store=folder / "large.zarr")
    row["seconds to find it done"] = round(time.perf_counter() - began, 3)
    print(row, flush=True)
    return row


def dying(at):
    """The at-th file put in place is this process's last."""
    left, real = [at], os.replace

    def replace(a, b):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(a, b)

    os.replace = replace


def kills(folder, wanted):
    grid, seeds = cells(6)
    want, rng = plain_loop(grid, seeds), random.Random(0)
    most, running.MOST_CELLS = running.MOST_CELLS, 4  # 90 blocks
    killed = lost = again = differing = stores = 0
    where = folder / "kills-0.zarr"
    while killed < wanted:
        before = np.zeros(0) if not where.exists() else cy.open_sweep(where)["status"].values
        at, child = rng.randrange(120), os.fork()
        if child == 0:
            dying(at)
            try:
                cy.sweep(tiny, grid, seeds, store=where)
            finally:
                os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        killed += ended == -signal.SIGKILL
        if not where.exists():
            continue
        data = cy.open_sweep(where)
        status = data["status"].values
        lost += int(((before == 1) & (status != 1)).sum()) if before.size else 0
        right = status == 1
        differing += int((data["x"].values[right] != want[0][right]).sum())
        differing += int((data["n"].values[right] != want[1][right]).sum())
        again += int(ended != 0)  # one block was in flight: at most 4 cells
        if right.all():
            stores += 1
            where = folder / f"kills-{stores}.zarr"
    running.MOST_CELLS = most
    row = {"kills": killed, "sweeps finished meanwhile": stores, "finished cells lost": lost}
    row |= {"blocks in flight computed again, at most": again, "values differing": differing}
    print(row, flush=True)
    return row


def main() -> None:
    quick = "--quick" in sys.argv
    parts = {
        "overhead": lambda folder: overhead(folder, 10 if quick else 40),
        "speed-up": lambda folder: speed_up(folder, 2 if quick else 48),
        "scheduler": lambda folder: scheduler(folder, 1000 if quick else 10_000),
        "large": lambda folder: large(folder, 100 if quick else 316),
        "kills": lambda folder: kills(folder, 10 if quick else 100),
    }
    chosen = [part for part in parts if part in sys.argv] or list(parts)
    path = Path(__file__).with_suffix(".json")
    rows = (
        {row["part"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    )
    with tempfile.TemporaryDirectory() as name:
        rows |= {part: {"part": part, **parts[part](Path(name))} for part in chosen}
    if not quick:
        write(__file__, [rows[part] for part in parts if part in rows])


if __name__ == "__main__":
    main()
