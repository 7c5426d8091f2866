"""What studies do with their records: group them, tell a mean or a rate, draw curves of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from .frame import resampled, wilson

__all__ = ["Cell", "columns", "curves", "grouped", "interval", "told"]

Read: TypeAlias = str | Callable[[Any], Any]  # the name of a field, or what is made of a record


def _reader(read: Read) -> Callable[[Any], Any]:
    return (lambda record: _value(record, read)) if isinstance(read, str) else read


def _value(record: Any, path: str) -> Any:
    """The field at a path with dots; of a list, those of its members."""
    for name in path.split("."):
        members = isinstance(record, list)
        record = [getattr(x, name) for x in record] if members else getattr(record, name)
    return record


class Cell(SimpleNamespace):
    """What was measured in one cell of a grid: any fields by name, and statistics of a field.

    A field may be one of the members of a list: "runs.rate". A named tuple does as well.

    Examples
    --------
    >>> cell = Cell(n=2, runs=[Cell(rate=1.0), Cell(rate=3.0)])
    >>> cell.n, cell.mean("runs.rate")
    (2, 2.0)
    """

    def finite(self, name: str) -> np.ndarray:
        """The finite values of a field."""
        x = np.asarray(_value(self, name), dtype=np.float64)
        return x[np.isfinite(x)]

    def mean(self, name: str) -> float:
        """The mean of the finite values; NaN without one."""
        return float(x.mean()) if len(x := self.finite(name)) else float("nan")

    def median(self, name: str) -> float:
        return float(np.median(x)) if len(x := self.finite(name)) else float("nan")

    def ends(self, name: str) -> tuple[float, float]:
        """The 95 % bootstrap interval of the mean."""
        return resampled(_value(self, name))

    def told(self, name: str, digits: int = 3) -> str:
        """The mean and its interval as text."""
        return told(_value(self, name), digits)

    def replace(self, **changes: Any) -> Cell:
        """The same with some fields changed."""
        return type(self)(**{**vars(self), **changes})


_OF: dict[str, Callable[[Any], Any]] = {
    **{"len": len, "min": min, "max": max, "sum": sum},
    "mean": lambda x: float(np.mean(x)),
    "median": lambda x: float(np.median(x)) if len(x) else None,
    "low": lambda x: resampled(x)[0],
    "high": lambda x: resampled(x)[1],
}


def columns(told: str) -> dict[str, Read]:
    """The columns of a table as one text: "d, H = heads, runs = len limits, most = max limits".

    Each is a field, or a header, =, and a field, maybe behind one of len, min, max, sum, mean,
    median, low, high (the ends of the 95 % bootstrap interval of the mean). A field of the members
    of a list is "runs.rate". Columns that need a function are joined to the result by |.

    Examples
    --------
    >>> from cynosure.study import Table
    >>> Table.of("", [(2 + 3j)], columns("real, height = imag")).rows
    ((2.0, 3.0),)
    """
    out: dict[str, Read] = {}
    for column in told.split(","):
        header, _, read = (word.strip() for word in column.partition("="))
        name, _, field = (read or header).rpartition(" ")
        if read and name and name not in _OF:
            raise ValueError(f"columns: expected one of {', '.join(_OF)}, got {name!r}")
        get = _reader(field)
        made = (lambda c, of=_OF[name], get=get: of(get(c))) if read and name else None
        out[header] = made or read or header
    return out


def grouped(records: Iterable[Any], *by: Read) -> dict[Any, list[Any]]:
    """The records by the value of a field, or by the tuple of several, in order of appearance."""
    readers = [_reader(read) for read in by]
    out: dict[Any, list[Any]] = {}
    for record in records:
        key = tuple(read(record) for read in readers)
        out.setdefault(key if len(by) > 1 else key[0], []).append(record)
    return out


def told(values: Sequence[float | int] | np.ndarray, digits: int = 3) -> str:
    """The mean of the finite values and its interval: "0.3 (95 %: 0.2 to 0.41)"."""
    x = np.asarray(values, dtype=np.float64)
    low, high = resampled(x)
    mean = x[np.isfinite(x)].mean() if np.isfinite(x).any() else np.nan
    return f"{mean:.{digits}g} (95 %: {low:.{digits}g} to {high:.{digits}g})"


def interval(seen: Callable[[Any], tuple[int, int]]) -> dict[str, Callable[[Any], float]]:
    """Two columns of a table, the ends of Wilson's interval of seen(record) = (cases, of all)."""
    return {
        "95 % from": lambda record: wilson(*seen(record))[0],
        "to": lambda record: wilson(*seen(record))[1],
    }


def curves(
    ax: Any,
    records: Iterable[Any],
    x: Read,
    y: Read,
    by: Read | None = None,
    *,
    ends: Read | None = None,
    label: str = "{}",
    style: str = "-",
    colours: Sequence[str] = (),
    **look: Any,
) -> None:
    """Draw y against x, one curve for each value of `by`, with bars between its `ends`.

    `label` is a format of that value, `ends` gives (low, high). A missing value (None) is a gap.
    Later curves are thinner, so that those below them are seen; `look` goes to `errorbar`.
    """
    from ..drawing.style import PALETTE

    groups = grouped(records, by) if by is not None else {"": list(records)}
    for k, (colour, (value, group)) in enumerate(zip(colours or PALETTE, groups.items())):
        at, height = (np.array([_reader(r)(c) for c in group], dtype=float) for r in (x, y))
        bars = None
        if ends is not None:
            low, high = np.array([_reader(ends)(c) for c in group], dtype=float).T
            bars = np.clip([height - low, high - height], 0, None)
        plain = {"marker": "osD^vP"[k % 6], "ms": max(8 - 1.5 * k, 3), "lw": max(2.4 - 0.4 * k, 1)}
        named = {"color": colour, "label": label.format(value) or None}
        ax.errorbar(at, height, bars, ls=style, capsize=2, **{**plain, **named, **look})
