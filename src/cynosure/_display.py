"""How a result shows itself in a notebook: a caption and a small table, with nothing to load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["facts", "grid"]

MOST_ROWS = 10


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


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
