"""A sweep as a file: SPEC.toml names the cell, its grid and its seeds.

cell = "my_cells:phase"       # module:function; modules beside the file are found
seeds = 16                    # 0 to 15, or a list
vectorized = true
[grid]
beta = {start = 0, stop = 10, num = 200}    # evenly; log = true for equal ratios
d = [2, 3, 32]
n = 32                        # the same in every cell
[units]                       # shown by plots
t = "seconds"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._files import parsed_toml, read_bytes
from .._registry import imported
from .plan import Plan

__all__ = ["asked_for", "named"]

_KEYS = {"cell", "seeds", "vectorized", "grid", "units"}
_MOST = 1 << 20  # bytes of a file, values of an axis, seeds
_NAMED = Path(__file__).with_name("named")


def named() -> dict[str, str]:
    """The sweeps of the package and what they show: the first lines of their files."""
    files = sorted(_NAMED.glob("*.toml"))
    return {file.stem: file.read_text("utf-8").splitlines()[0].lstrip("# ") for file in files}


def asked_for(spec: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of sweep() for a named sweep, or for a file such as above."""
    path = _NAMED / f"{spec}.toml" if str(spec) in named() else Path(spec)
    if path.suffix != ".toml":
        known = ", ".join(named())
        raise ValueError(f"{spec}: expected a .toml file or one of the sweeps {known}")
    try:
        found = parsed_toml(read_bytes(path, _MOST).decode("utf-8"), str(spec))
    except UnicodeDecodeError:
        raise ValueError(f"{spec}: not TOML (not UTF-8)") from None
    if unknown := set(found) - _KEYS:
        raise ValueError(f"{spec}: unknown {sorted(unknown)}; known are {sorted(_KEYS)}")
    grid, seeds, vectorized = found.get("grid"), found.get("seeds"), found.get("vectorized", False)
    if not isinstance(grid, dict) or not isinstance(found.get("cell"), str):
        raise ValueError(f'{spec}: expected cell = "module:function" and a table [grid]')
    if not isinstance(vectorized, bool):
        raise ValueError(f"{spec}: vectorized: expected true or false, got {vectorized!r}")
    asked: dict[str, Any] = {
        "grid": {name: _axis(f"{spec}: {name}", values) for name, values in grid.items()},
        "seeds": seeds,
        "vectorized": vectorized,
        "units": found.get("units"),
    }
    try:
        asked["cell"] = imported(found["cell"], beside=str(path.resolve().parent))
        Plan.of(**asked)
    except (TypeError, ValueError) as error:  # of the file, not of whoever called
        raise ValueError(f"{spec}: {error}") from None
    return asked


def _axis(name: str, values: Any) -> Any:
    """A list, a single value, or {start, stop, num, log}."""
    if not isinstance(values, Mapping):
        return values
    ends: list[Any] = [values.get(end) for end in ("start", "stop")]
    num, ratios = values.get("num"), values.get("log", False)
    numbers = all(type(x) in (int, float) and abs(x) < 1e300 for x in ends)
    known = set(values) <= {"start", "stop", "num", "log"} and type(ratios) is bool
    if not numbers or not known or type(num) is not int or not 1 <= num <= _MOST:
        raise ValueError(
            f"{name}: expected a list or {{start = 0, stop = 10, num = 200}}, got {dict(values)}"
        )
    start, stop = ends
    if ratios and min(start, stop) <= 0:
        raise ValueError(f"{name}: equal ratios need start and stop above 0, got {ends}")
    whole = not ratios and type(start) is type(stop) is int and num > 1
    if whole and (stop - start) % (num - 1) == 0:  # 1, 2, 3 may be a number of tokens
        return [start + k * (stop - start) // (num - 1) for k in range(num)]
    return (np.geomspace if ratios else np.linspace)(start, stop, num).tolist()
