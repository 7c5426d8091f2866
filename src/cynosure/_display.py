"""How a result shows itself in a notebook: a caption and a small table, with nothing to load."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from math import prod
from typing import Any

_MOST_NUMBERS = 16  # of an array that is written out

MOST_ROWS = 10


class Shown(abc.ABC):  # noqa: B024 - only how records are shown
    """A record that is short in print, `Head(L0H1, d=8)`, and a table in a notebook.

    Its fields are shown, a large array as its shape, `<64 x 64>`, unless the record has a
    `__repr__` or a `_table` of its own.
    """

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        if "__repr__" not in vars(cls):  # before a dataclass writes one that shows every number
            cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={x}' for k, x in _fields(self))})"

    def _table(self) -> Iterable[tuple[str, object]]:
        """Names and values of the table."""
        return _fields(self)

    def _repr_html_(self) -> str:
        return facts(type(self).__name__, self._table())


def _fields(record: Any) -> list[tuple[str, str]]:
    if not is_dataclass(record):  # somebody's own class, say
        return []
    return [(f.name, _brief(getattr(record, f.name))) for f in fields(record) if f.repr]


def _brief(value: Any) -> str:
    if isinstance(value, list | tuple):
        try:
            inside = ", ".join(map(_brief, value))
        except RecursionError:
            inside = "..."
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not hasattr(value, "tolist"):
        return repr(value)
    few = prod(shape) <= _MOST_NUMBERS
    return repr(value.tolist()) if few else f"<{' x '.join(map(str, shape))}>"


def facts(caption: str, rows: Iterable[tuple[str, object]]) -> str:
    """Names and values, one pair a line. Every text is escaped: words and labels are the user's."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption><b>{escape(caption)}</b></caption>{lines}</table>"


def grid(head: Sequence[str], rows: Sequence[Sequence[object]], total: int) -> str:
    """A table with a head: the first of `total` rows, and how many there are besides."""

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(_short(x))}</{tag}>" for x in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows[:MOST_ROWS])
    more = total - min(len(rows), MOST_ROWS)
    rest = f"<tr><td colspan='{len(head)}'>... {more} more</td></tr>" if more > 0 else ""
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}{rest}</tbody></table>"


class Rows(list[dict[str, Any]]):
    """A list of records with the same fields: its size in print, a table in a notebook."""

    def __repr__(self) -> str:
        return f"Rows({len(self)} of {', '.join(self[0]) if self else 'nothing'})"

    def _repr_html_(self) -> str:
        head = list(self[0]) if self else []
        return grid(head, [list(row.values()) for row in self[:MOST_ROWS]], len(self))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
