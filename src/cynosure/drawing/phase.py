"""Phase diagrams: a quantity of a sweep over two of its axes, or along one."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.tri import Triangulation

from .markers import new_axes
from .style import GREY, LABEL, PALETTE, TICK, plain_log


def phase(
    ds: Any, x: str, y: str | None = None, of: str | None = None, ax: Axes | None = None
) -> Axes:
    """The mean of a result of `sweep` or `refine` over its seeds, in colours over the axes x and y.

    `of` names the result where there are several. Cells that failed or wait stay white. Without `y`
    it is a curve with the interval of two standard errors. Axes with equal ratios are logarithmic.

    >>> ds.sel(n=64).pipe(cy.plot.phase, "beta", "d")   # doctest: +SKIP
    """
    names = [name for name in ds.data_vars if name not in ("status", "error")]
    name = str(names[0] if of is None and len(names) == 1 else of)
    if name not in names:
        raise ValueError(f"of: name one of {', '.join(names)}, got {of!r}")
    points = "point" in ds[name].dims
    values = ds[name].astype(float)
    if "status" in ds:
        values = values.where(ds["status"] == 1)
    along = ("point",) if points else tuple(k for k in (y, x) if k is not None)
    if missing := [k for k in (x, y) if k is not None and k not in ds.coords]:
        raise ValueError(f"phase: {missing[0]!r} is no axis; there are {', '.join(ds[name].dims)}")
    if rest := [k for k in values.dims if k not in (*along, "seed")]:
        raise ValueError(
            f"phase: {rest[0]!r} is an axis too; choose a value, ds.sel({rest[0]}=...)"
        )
    mean = values.mean("seed") if "seed" in values.dims else values
    ax = new_axes(ax)
    label = _named(ds, str(name))
    if y is None:
        t = ds[x].values
        ax.plot(t, mean.values, "o-", color=PALETTE[0], ms=3.5, lw=1.2, gid="mean")
        if "seed" in values.dims:
            half = 2 * (values.std("seed", ddof=1) / np.sqrt(values.count("seed"))).values
            band = ax.fill_between(t, mean - half, mean + half, color=PALETTE[0], alpha=0.2, lw=0)
            band.set_gid("interval")
        ax.set_ylabel(label, fontsize=LABEL)
    else:
        across, up = ds[x].values, ds[y].values
        if points:
            logs = (np.log(v.astype(float)) if _ratios(np.unique(v)) else v for v in (across, up))
            parts = Triangulation(*logs).triangles
            drawn: Any = ax.tripcolor(across, up, mean.values, triangles=parts)
            ax.plot(across, up, ".", color=GREY, ms=2, gid="points")
        else:
            drawn = ax.pcolormesh(_edges(across), _edges(up), mean.transpose(y, x).values)
        drawn.set_gid("phase")
        bar = ax.figure.colorbar(drawn, ax=ax)
        bar.set_label(label, fontsize=LABEL)
        bar.ax.tick_params(labelsize=TICK)
        ax.set_ylabel(_named(ds, y), fontsize=LABEL)
        if _ratios(np.unique(up)):
            ax.set_yscale("log")
            plain_log(ax.yaxis)
    if _ratios(np.unique(ds[x].values)):
        ax.set_xscale("log")
        plain_log(ax.xaxis)
    ax.set_xlabel(_named(ds, x), fontsize=LABEL)
    ax.tick_params(labelsize=TICK)
    return ax


def _named(ds: Any, name: str) -> str:
    unit = ds[name].attrs.get("units")
    return f"{name} ({unit})" if unit else name


def _edges(values: np.ndarray) -> np.ndarray:
    """The ends of the cells around values: half-way between them, in ratios where they are."""
    if _ratios(values):
        return np.exp(_edges(np.log(values.astype(float))))
    half = np.diff(values) / 2 if len(values) > 1 else np.ones(1) / 2
    inner = values[:-1] + np.diff(values) / 2
    return np.concatenate([values[:1] - half[:1], inner, values[-1:] + half[-1:]])


def _ratios(values: np.ndarray) -> bool:
    """Four or more positive numbers whose ratios are more alike than their steps?"""
    if len(values) < 4 or values.dtype.kind not in "iuf" or values[0] <= 0:
        return False
    steps, ratios = np.diff(values), np.diff(np.log(values.astype(float)))
    return bool(np.ptp(ratios) / ratios.mean() < 0.5 * np.ptp(steps) / steps.mean())
