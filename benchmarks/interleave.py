"""Timing on noisy machines: the rivals take turns in one run, and only ratios are trusted."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before NumPy is imported: one thread for everybody


def interleave(
    rivals: dict[str, Callable[[], Any]], rounds: int = 7, budget: float = 20.0
) -> dict[str, float]:
    """Median seconds of each rival; one warm-up each, then rounds in turn until the budget ends."""
    for run in rivals.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    started = time.perf_counter()
    for done in range(rounds):
        for name, run in rivals.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
        if done >= 2 and time.perf_counter() - started > budget:
            break
    return {name: statistics.median(times) for name, times in seconds.items()}


def write(script: str, rows: list[dict[str, Any]]) -> None:
    """The table as JSON beside the script, with what is needed to read it later."""
    import numpy
    import scipy

    path = Path(script).with_suffix(".json")
    machine = {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }
    text = json.dumps({"machine": machine, "rows": rows}, indent=1, default=lambda x: x.item())
    path.write_text(text + "\n")  # NumPy's numbers are written as Python's
    print(f"written {path.name}")
