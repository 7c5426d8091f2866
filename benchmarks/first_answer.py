"""How long does a user wait for the first answer, on a fresh installation and later?

    python benchmarks/first_answer.py                 # all rows: some minutes
    python benchmarks/first_answer.py --only explain  # rows whose name has this word

Each row is one new process, timed by the wall clock until its answer is there. "cold" has an empty
folder for compiled kernels, "warm" the folder that earlier runs filled. Each row is also printed as
a multiple of `python -c "import numpy, scipy.spatial"`, timed in turn with it: that ratio is what
two machines can compare. The median of the rounds is shown. "kernels" tells whether the cold run
compiled anything.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from interleave import write

UNIT = [sys.executable, "-c", "import numpy, scipy.spatial"]
COMMAND = [sys.executable, "-m", "cynosure"]
REVIEW = (
    "I did not expect much. The first half is slow and the jokes are tired, but the acting is "
    "wonderful, the ending moved me, and nothing about the music feels cheap. Not a great film, "
    "though one that I would gladly see again."
)
SIMULATE = (
    "import numpy as np, cynosure as cy; z = np.random.default_rng(0).normal(size=(40, 2)); "
    "cy.simulate(cy.PureAttention(), z, layers=20)"
)


class Row(NamedTuple):
    """What is run, and the multiple of the unit that is aimed at, cold and warm, in seconds."""

    run: Callable[[dict[str, str], Path], None]
    cold: float | None
    warm: float | None


def command(*words: str) -> Callable[[dict[str, str], Path], None]:
    """A command line; FOLDER stands for a new folder."""

    def run(environment: dict[str, str], folder: Path) -> None:
        line = [w.replace("FOLDER", str(folder)) for w in words]
        subprocess.run(
            line, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    return run


def served(*steps: tuple[str, dict[str, Any]]) -> Callable[[dict[str, str], Path], None]:
    """`cynosure serve`, until it has answered these requests."""

    def run(environment: dict[str, str], folder: Path) -> None:
        line = [*COMMAND, "serve", "--port", "0"]
        server = subprocess.Popen(
            line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip().rstrip("/")
            for path, body in steps:
                request = urllib.request.Request(
                    f"{address}/api/v1/{path}",
                    json.dumps(body).encode(),
                    {"Content-Type": "application/json"},
                )
                urllib.request.urlopen(request, timeout=120).read()
        finally:
            server.terminate()
            server.wait(20)

    return run


TOKENS = [[0.3, 1.0], [-1.0, 0.2], [0.5, -0.9], [0.1, 0.1], [-0.4, -0.6], [0.9, 0.4]]
FORTY = [[math.cos(k * k) * (1 + k / 40), math.sin(k * k)] for k in range(40)]
PROBE = {"tokens": FORTY, "alpha": 0.5, "kind": "basins", "corner": [-2, -2], "opposite": [2, 2]}
ROWS = {  # seconds aimed at; None: no aim
    "limit golden:G4": Row(command(*COMMAND, "limit", "golden:G4"), 1.0, 0.45),
    "limit gaussian:n=50,d=2": Row(command(*COMMAND, "limit", "gaussian:n=50,d=2"), 1.0, 0.45),
    'explain "good film"': Row(command(*COMMAND, "explain", "good film"), 1.2, 0.7),
    "explain a review": Row(command(*COMMAND, "explain", REVIEW), None, None),
    "simulate of 40 tokens in Python": Row(command(sys.executable, "-c", SIMULATE), 0.6, 0.5),
    "simulate gaussian:n=40,d=2": Row(command(*COMMAND, "simulate", "gaussian:n=40,d=2"), 1.0, 0.5),
    "run figure2": Row(command(*COMMAND, "run", "figure2", "--out", "FOLDER/run"), 5.0, 3.0),
    "run --list": Row(command(*COMMAND, "run", "--list"), 0.5, 0.5),
    "--help": Row(command(*COMMAND, "--help"), 0.2, 0.2),
    "serve to the first limit": Row(served(("limit", {"tokens": TOKENS})), 3.0, 1.5),
    "serve to the first basins": Row(served(("basins", PROBE)), 4.0, 1.5),
    "serve to the first sentence": Row(served(("explain", {"text": "good film"})), None, None),
    "demo": Row(command(*COMMAND, "demo", "--out", "FOLDER/demo"), 15.0, None),
}


def timed(row: Row, cache: Path) -> float:
    """Wall seconds of one new process that stores its kernels in `cache`."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        row.run(environment, Path(folder))
        return time.perf_counter() - begin


def unit() -> float:
    begin = time.perf_counter()
    subprocess.run(UNIT, check=True)
    return time.perf_counter() - begin


def measured(row: Row, rounds: int, filled: Path) -> dict[str, Any]:
    """Medians of cold and warm runs and of the unit, in turn."""
    units, cold, warm = [], [], []
    compiled = False
    for _ in range(rounds):
        units.append(unit())
        with tempfile.TemporaryDirectory() as empty:
            cold.append(timed(row, Path(empty)))
            compiled |= any(Path(empty).rglob("*.nbc"))
    timed(row, filled)
    for _ in range(rounds):
        units.append(unit())
        warm.append(timed(row, filled))
    return {
        "cold": statistics.median(cold),
        "warm": statistics.median(warm),
        "unit": statistics.median(units),
        "kernels": compiled,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    unit()
    rows: list[dict[str, Any]] = []
    print(f"{'':32} {'cold s':>7} {'x unit':>7} {'aim':>5}  {'warm s':>7} {'x unit':>7} {'aim':>5}")
    with tempfile.TemporaryDirectory() as filled:
        for name, row in ROWS.items():
            if asked.only not in name:
                continue
            got = measured(row, asked.rounds, Path(filled))
            rows.append({"row": name, **got, "cold_aim": row.cold, "warm_aim": row.warm})
            aims = ["" if aim is None else f"{aim:.2f}" for aim in (row.cold, row.warm)]
            print(
                f"{name:32} {got['cold']:7.2f} {got['cold'] / got['unit']:7.1f} {aims[0]:>5}  "
                f"{got['warm']:7.2f} {got['warm'] / got['unit']:7.1f} {aims[1]:>5}  "
                f"{'compiles' if got['kernels'] else ''}",
                flush=True,
            )
    if not asked.only:
        write(__file__, rows)


if __name__ == "__main__":
    main()
