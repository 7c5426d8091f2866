"""Cells for test_sweeps: of a module, as workers must be able to import them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

SCALE = 2.0


def helped(x: float) -> float:
    return SCALE * x


def plain(beta: float, d: int, seed: int) -> dict[str, Any]:
    """Numbers of every kind and arrays; the sums are such that their order shows in the bits."""
    rng = np.random.default_rng([seed, d])
    x = rng.normal(size=(40, 40)) @ rng.normal(size=(40, 7)) * beta
    return {
        "mean": helped(float(x.mean())),
        "count": d * seed,
        "odd": bool(seed % 2),
        "wave": complex(beta, seed),
        "small": np.float32(x[0, 0]),
        "curve": ("t", x[0]),
        "table": x[:2, :3],
        "t": ("t", np.arange(7) / 7),
    }


def batched(beta: float, d: int, seed: np.ndarray) -> dict[str, Any]:
    one = [plain(beta, d, s) for s in seed.tolist()]
    keys = [key for key in one[0] if key not in ("curve", "t")]
    out: dict[str, Any] = {key: np.array([x[key] for x in one]) for key in keys}
    return out | {"curve": ("t", np.array([x["curve"][1] for x in one])), "t": one[0]["t"]}


def counted(beta: float, d: int, seed: int, log: str, pause: float = 0.0) -> dict[str, Any]:
    """`plain`, which writes a line with its process for each call."""
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()} {beta} {d} {seed}\n")
    time.sleep(pause)
    return plain(beta, d, seed)


def failing(beta: float, d: int, seed: int, mended: str = "") -> dict[str, Any]:
    if d == 3 and not (mended and Path(mended).exists()):
        raise ValueError(f"no d = {d} at é\0 {'x' * (1000 if seed else 0)}")
    return {"x": beta * seed, "n": d}


def changing(beta: float, what: str) -> dict[str, Any]:
    """The first cell is right; others give something else."""
    wrong: dict[str, Any] = {
        "shape": {"x": [1.0, 2.0]},
        "type": {"x": [1.5j]},
        "name": {"y": 1.0},
        "text": {"x": "one"},
        "dims": {"x": ("k", [1.0])},
        "coordinate": {"x": [1.0], "k": ("k", [2])},
        "exit": {},
    }
    if beta == 0:
        return {"x": [1.0]} | ({"k": ("k", [1])} if what == "coordinate" else {})
    if what == "exit":
        raise SystemExit(3)
    return wrong[what]


def slow_start(beta: float) -> dict[str, Any]:
    return {"x": np.full(3, np.nan), "y": -np.array(np.nan), "z": 0}


def text_axis(norm: str, on: bool) -> dict[str, Any]:
    return {"x": len(norm) + on}


def dies(beta: float, log: str) -> dict[str, Any]:
    """Kills its process, but not that of the test, at one place of the grid."""
    time.sleep(0.1)
    if beta == 5 and str(os.getpid()) != Path(log).read_text():
        os._exit(1)
    return {"x": beta}
