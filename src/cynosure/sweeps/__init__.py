"""Grids of runs: one function on every place of a grid, on one core or a cluster (xarray, zarr)."""

from __future__ import annotations

from .refining import refine, summary
from .running import sweep
from .store import open_sweep

__all__ = ["open_sweep", "refine", "summary", "sweep"]
