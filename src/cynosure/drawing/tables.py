"""Table: rows under named columns, as text, CSV or HTML; `jsonable`: any result as plain JSON."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from fractions import Fraction
from html import escape
from operator import attrgetter
from textwrap import fill
from typing import Any, final

import numpy as np

_LONG = 24  # rows; a longer table scrolls in its own box, under its own head
# Characters of a cell that stays on one line, and of one that has less than a line to itself: on a
# phone a wide table scrolls sideways, or it would leave a column the width of a word.
_TOGETHER, _SAYS = 20, 60


@final
@dataclass(frozen=True)
class Table:
    """Rows under named columns; the title also names its CSV file."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        records: Iterable[Any],
        columns: Mapping[str, str | Callable[[Any], Any]],
        note: str = "",
    ) -> Table:
        """One row per record: under each header the field of that name, or what a function says.

        Examples
        --------
        >>> pairs = [(2, 3), (5, 7)]
        >>> table = Table.of("", pairs, {"first": lambda p: p[0], "sum": sum})
        >>> table.rows
        ((2, 5), (5, 12))
        """
        readers = [attrgetter(read) if isinstance(read, str) else read for read in columns.values()]
        rows = tuple(tuple(read(record) for read in readers) for record in records)
        return cls(title, tuple(columns), rows, note)

    def to_text(self, within: int | None = None) -> str:
        """Aligned columns for a terminal: numbers to the right, words to the left.

        The last column is folded where a line would be longer than `within`.
        """
        cells = [list(self.columns), *([short_text(x) for x in row] for row in self.rows)]
        width = [max(len(row[j]) for row in cells) for j in range(len(self.columns))]
        right = [all(_is_number(row[j]) for row in self.rows) for j in range(len(self.columns))]
        pad = [str.rjust if numbers else str.ljust for numbers in right]
        lines = ["  ".join(p(c, w) for p, c, w in zip(pad, row, width)).rstrip() for row in cells]
        if within is None or right[-1]:
            return "\n".join(lines)
        at = sum(width[:-1]) + 2 * (len(width) - 1)
        how: dict[str, Any] = {"subsequent_indent": " " * at, "break_long_words": False}
        how["width"] = max(within, at + 20)
        return "\n".join(
            line if len(line) <= within else fill(line[at:], initial_indent=line[:at], **how)
            for line in lines
        )

    def to_csv(self) -> str:
        """Full precision, one header line."""
        stream = io.StringIO()
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(self.columns)
        out.writerows([_exact_text(x) for x in row] for row in self.rows)
        return stream.getvalue()

    def to_html(self) -> str:
        head = "".join(f"<th>{escape(c)}</th>" for c in self.columns)

        def cell(x: Any) -> str:
            said = short_text(x)
            width = "t" if len(said) <= _TOGETHER else "w" if len(said) <= _SAYS else "say"
            return f'<td class="{"r" if _is_number(x) else width}">{escape(said)}</td>'

        body = "".join(f"<tr>{''.join(map(cell, row))}</tr>\n" for row in self.rows)
        note = f"<p class=note>{prose(self.note)}</p>" if self.note else ""
        title = f"<h4>{escape(self.title)}</h4>\n" if self.title else ""
        box = "scroll tall" if len(self.rows) > _LONG else "scroll"
        return (
            f'{title}<div class="{box}"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>{body}</tbody></table></div>{note}\n"
        )


def jsonable(x: Any) -> Any:
    """`x` in JSON's own types: arrays as lists, rationals as strings, NaN and infinity as null."""
    if x is None or isinstance(x, str | bool | int):
        return x
    if isinstance(x, float | np.floating):
        return float(x) if math.isfinite(x) else None
    if isinstance(x, np.ndarray):
        plain = x.dtype.kind in "biu" or (x.dtype.kind == "f" and bool(np.isfinite(x).all()))
        return x.tolist() if plain else jsonable(x.tolist())
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, Mapping):
        return {str(k): jsonable(v) for k, v in x.items()}
    if is_dataclass(x) and not isinstance(x, type):
        return jsonable(asdict(x))
    if isinstance(x, list | tuple | set | frozenset):
        return [jsonable(v) for v in x]
    return str(x)


# --- cells ---------------------------------------------------------------------------------------


def _is_number(x: Any) -> bool:
    number = isinstance(x, int | float | np.number | Fraction)
    return x is None or (number and not isinstance(x, bool | np.bool_))


def short_text(x: Any) -> str:
    """`x` for reading, not for computing: four significant digits, long lists cut."""
    if x is None:
        return "–"
    if isinstance(x, bool | np.bool_):
        return "yes" if x else "no"
    if isinstance(x, float | np.floating):
        said = f"{x:z.4g}"  # zero has no sign
        return {"nan": "–", "inf": "∞", "-inf": "-∞"}.get(said, said)
    if isinstance(x, np.ndarray):
        x = x.tolist()
    if isinstance(x, tuple) and any(isinstance(v, float | Fraction) for v in x):
        return "(" + ", ".join(map(short_text, x)) + ")"  # a token
    if isinstance(x, list | tuple):
        shown = ", ".join(map(in_a_list, x[:12]))
        return shown + (f", … ({len(x)} in all)" if len(x) > 12 else "")
    if isinstance(x, Mapping):
        return ", ".join(f"{k} = {short_text(v)}" for k, v in x.items())
    return str(x)


def in_a_list(x: Any) -> str:
    """`short_text` of an entry of a list; words that are all punctuation are quoted there."""
    said = short_text(x)
    bare = isinstance(x, str) and x.strip() and not any(c.isalnum() for c in x)
    return f"“{said}”" if bare else said


def _exact_text(x: Any) -> str:
    """Every digit: a float can be read back, a list is separated by blanks."""
    if x is None:
        return ""
    if isinstance(x, np.generic | np.ndarray):
        x = x.tolist()
    if isinstance(x, list | tuple):
        return " ".join(map(_exact_text, x))
    return repr(x) if isinstance(x, float) else str(x)


def prose(text: str) -> str:
    """Escaped text with `code` marked."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
