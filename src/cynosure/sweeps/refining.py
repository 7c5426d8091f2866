"""refine(): a budget of points spent where a quantity jumps; summary(): means over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from .._frames import dataset
from .._progress import Progress, showing, silent
from .engines import Lost, finished
from .plan import DONE, OWN, counted

_FINEST = 12  # halvings of an axis
_Box = tuple[tuple[int, ...], int]  # its first corner on the finest lattice, how often halved


def refine(
    cell: Any,
    grid: Any,
    seeds: Any = None,
    *,
    of: str,
    budget: int = 200,
    first: int = 4,
    log: tuple[str, ...] = (),
    workers: int | None = None,
    progress: Progress = None,
) -> Any:
    """Evaluates `cell` at about `budget` points of a box, most of them where the result `of` jumps.

    `grid` maps one to three names to (low, high) and others to single values; those in `log` are
    spaced in equal ratios. From 2^`first` parts an axis on (fewer in two or three dimensions), the
    parts whose corners differ most in the mean of `of` over the seeds are halved. The points are
    along the axis, or along "point" for several; `cynosure.plot.phase` draws both.

    Trap: a jump between two corners that agree is not seen; take a larger `first`.

    Examples
    --------
    >>> from cynosure.sweeps import refine
    >>> ds = refine(lambda x: {"y": float(x > 0.3)}, {"x": (0, 1)}, of="y", budget=30)
    >>> at = ds.x.values[ds.y.values > 0].min()
    >>> bool(0.3 < at < 0.301), ds.sizes["x"]
    (True, 27)
    """
    ends = {k: v for k, v in grid.items() if isinstance(v, tuple) and len(v) == 2}
    if not 1 <= len(ends) <= 3 or not all(low < high for low, high in ends.values()):
        raise ValueError("grid: expected one to three names with (low, high), low < high")
    if any(name not in ends or ends[name][0] <= 0 for name in log):
        raise ValueError(f"log: expected names of {list(ends)} with low > 0, got {log}")
    m = len(ends)
    depth = max(1, first - m + 1)
    if budget < (2**depth + 1) ** m:
        raise ValueError(f"budget: {(2**depth + 1) ** m} points at least, got {budget}; or first=1")
    fixed = {name: value for name, value in grid.items() if name not in ends}
    drawn = None if seeds is None else list(counted(seeds))
    found: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    side = 2 ** (_FINEST - depth)
    starts = product(range(0, 2**_FINEST, side), repeat=m)
    boxes: list[_Box] = [(at, depth) for at in starts]
    new = sorted({corner for box in boxes for corner in _corners(box)})
    with showing(progress, "refining", budget, " points") as tell:
        while new:
            points = [_place(at, ends, log) for at in new]
            jobs = {k: fixed | point for k, point in enumerate(points)}
            made = dict(finished(partial(_one, cell, drawn), jobs, workers))
            for k, row in made.items():
                if isinstance(row, Lost):
                    raise RuntimeError(f"cell: at {points[k]}: {row.reason}")
            rows = [made[k] for k in range(len(points))]
            if of not in rows[0]:
                raise ValueError(f"of: {of!r} is none of {', '.join(rows[0])}")
            found |= dict(zip(new, rows))
            if tell is not None:
                tell(len(found))
            boxes, new = _halved(boxes, {at: row[of].mean() for at, row in found.items()}, budget)
    order = sorted(found)
    along = next(iter(ends)) if m == 1 else "point"
    lead = (along,) if drawn is None else (along, "seed")
    values: dict[str, Any] = {}
    for name in found[order[0]]:
        x = np.stack([found[at][name] for at in order])
        values[name] = ((*lead, *(f"{name}_{k}" for k in range(x.ndim - len(lead)))), x)
    places = [_place(at, ends, log) for at in order]
    named: dict[str, Any] = {k: ((along,), np.array([at[k] for at in places])) for k in ends}
    if drawn is not None:
        named["seed"] = drawn
    return dataset(values, named, {"cell": getattr(cell, "__name__", repr(cell)), "refined": of})


def _corners(box: _Box) -> list[tuple[int, ...]]:
    at, level = box
    side = 2 ** (_FINEST - level)
    return [tuple(k + side * u for k, u in zip(at, ups)) for ups in product((0, 1), repeat=len(at))]


def _place(at: tuple[int, ...], ends: Mapping[str, Any], log: tuple[str, ...]) -> dict[str, float]:
    out = {}
    for (name, (low, high)), k in zip(ends.items(), at):
        share = k / 2**_FINEST
        out[name] = low * (high / low) ** share if name in log else low + (high - low) * share
    return out


def _halved(
    boxes: list[_Box], mean: Mapping[tuple[int, ...], float], budget: int
) -> tuple[list[_Box], list[tuple[int, ...]]]:
    """The boxes after those with the largest jumps were halved, and the corners that are new."""

    def jump(box: _Box) -> tuple[float, int]:
        return float(np.ptp([mean[at] for at in _corners(box)])), -box[1]

    able = [box for box in boxes if box[1] < _FINEST and jump(box)[0] > 0]
    most = max((jump(box)[0] for box in able), default=0.0)
    chosen = sorted((box for box in able if jump(box)[0] >= most / 2), key=jump, reverse=True)
    kept, new = set(boxes), set[tuple[int, ...]]()
    for at, level in chosen[: max(1, len(boxes) // 4)]:
        parts = [(corner, level + 1) for corner in _corners((at, level + 1))]
        more = {corner for part in parts for corner in _corners(part)} - set(mean)
        if len(mean) + len(new | more) > budget:
            break
        new |= more
        kept = (kept - {(at, level)}) | set(parts)
    return list(kept), sorted(new)


def _one(cell: Any, seeds: list[int] | None, point: Mapping[str, Any]) -> dict[str, Any] | Lost:
    """What the cell gives at a point, stacked over the seeds; Lost where it raises."""
    try:
        with threadpool_limits(1), silent():
            each = [{}] if seeds is None else [{"seed": seed} for seed in seeds]
            rows = [cell(**point, **seed) for seed in each]
    except Exception as error:
        return Lost(f"{type(error).__name__}: {error}")
    x = {k: [v[1] if isinstance(v := row[k], tuple) else v for row in rows] for k in rows[0]}
    return {k: np.stack(v) if seeds is not None else np.asarray(v[0]) for k, v in x.items()}


def summary(ds: Any, over: str = "seed", level: float = 0.95) -> Any:
    """Means over the seeds of a sweep with standard errors and intervals, as a Dataset.

    Of each result `x`: `x`, `x_se`, and `x_low`, `x_high`, the ends of Student's interval; `cells`
    counts those that are done. Others are left out.
    """
    import xarray
    from scipy.special import stdtrit

    names = [name for name in ds.data_vars if name not in OWN and over in ds[name].dims]
    if not names or not 0 < level < 1:
        raise ValueError(
            f"summary: no result has the dimension {over!r}, or level is not in (0, 1)"
        )
    done = ds["status"] == DONE if "status" in ds and over in ds["status"].dims else None
    out: dict[str, Any] = {}
    for name in names:
        x = ds[name] if done is None else ds[name].where(done)
        n = x.count(over)
        se = x.std(over, ddof=1) / np.sqrt(n)
        half = se * xarray.apply_ufunc(lambda m: stdtrit(np.maximum(m - 1, 1), (1 + level) / 2), n)
        out[name] = x.mean(over).assign_attrs(ds[name].attrs)
        out |= {f"{name}_se": se, f"{name}_low": out[name] - half, f"{name}_high": out[name] + half}
    out["cells"] = n if done is None else done.sum(over)
    return xarray.Dataset(out, attrs={**ds.attrs, "interval": f"{level:g} of Student, over {over}"})
