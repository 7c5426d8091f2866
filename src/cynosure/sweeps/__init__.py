"""Grids of runs: one function on every place of a grid, on one core or a cluster (xarray, zarr).

`plan` is what is swept, `store` the folder it goes to, `engines` where blocks are computed,
`running` puts them together, `cells` has functions to sweep and the named sweeps made of them.
"""

from __future__ import annotations

from .running import sweep
from .store import open_sweep

__all__ = ["open_sweep", "sweep"]
