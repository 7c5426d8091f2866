"""What the package saves, made once, as bytes to be changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_MADE: dict[str, Any] = {}


def once(make: Callable[[], Any]) -> Any:
    """make(), the first time; a child inherits what its parent has made."""
    if make.__name__ not in _MADE:
        _MADE[make.__name__] = make()
    return _MADE[make.__name__]


def small_classifier() -> Any:
    """Three classes and 40 terms: the shipped model takes a third of a second to open."""
    import cynosure as cy

    data = cy.datasets.synthetic(60, classes=("a", "b", "c"))
    return cy.HardmaxClassifier(max_features=40).fit(data.texts, data.labels)


def model_files() -> dict[str, bytes]:
    return _files(once(small_classifier).save)


def small_model(folder: Path) -> Path:
    """That classifier, saved below `folder`."""
    put(folder / "small", once(model_files))
    return folder / "small"


def saved_runs() -> list[bytes]:
    import cynosure as cy

    z = np.random.default_rng(0).normal(size=(6, 2))
    runs = [
        cy.simulate(cy.PureAttention(), z, layers=4),
        cy.simulate(cy.dynamics.RescaledFlow(), z, time=0.5),
    ]
    with tempfile.TemporaryDirectory() as place:
        return [run.save(Path(place) / "r.npz").read_bytes() for run in runs]


SPEC = """cell = "tests.fuzz.saved:cell"
seeds = 3
[grid]
a = [1, 2, 3, 4]
b = {start = 0.5, stop = 2, num = 3, log = true}
c = "x"
"""


def cell(a: int, b: float, c: str, seed: int) -> dict[str, Any]:
    if a == 3:
        raise ValueError(c)
    return {"x": a * b + seed, "curve": ("t", np.arange(3.0) * a)}


def swept() -> dict[str, bytes]:
    """A store with done and failed cells, and a block that waits."""
    import cynosure as cy

    b = np.geomspace(0.5, 2, 3).tolist()
    grid = {"a": [1, 2, 3, 4], "b": b, "c": "x"}
    files = _files(lambda path: cy.sweep(cell, grid, range(3), store=path))
    return {name: data for name, data in files.items() if not name.startswith("status/c")}


def _files(save: Callable[[Path], Any]) -> dict[str, bytes]:
    """The files of the folder that save(folder) makes, by their names in it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "saved"
        save(folder)
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
