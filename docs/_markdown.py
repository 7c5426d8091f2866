"""Docstrings as Markdown: what the generated pages are made of."""

from __future__ import annotations

import inspect
import re
from typing import Any


def prose(text: str) -> str:
    """Docstring text as Markdown: < and * are mathematics there, except in code."""
    out = []
    for line in text.splitlines():
        parts = re.split(r"(``.*?``|`[^`]*`)", line)
        if not line.startswith("    "):
            parts[::2] = [re.sub(r"(?<!^)\*", r"\\*", p).replace("<", "&lt;") for p in parts[::2]]
        out.append("".join(parts))
    return "\n".join(out)


def table(head: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        flat = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(flat)} |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def anchors(headings: list[str]) -> list[str]:
    """What a renderer calls each heading in a link: `Limit` and `limit` differ by a number."""
    seen: dict[str, int] = {}
    out = []
    for heading in headings:
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        seen[plain] = seen.get(plain, -1) + 1
        out.append(f"{plain}-{seen[plain]}" if seen[plain] else plain)
    return out


def code(text: object) -> str:
    return f"`{text}`"


def paragraphs(thing: Any) -> list[str]:
    return re.split(r"\n\s*\n", inspect.getdoc(thing) or "")


def summary(thing: Any) -> str:
    """The first paragraph of a docstring, with the equation that follows it if there is one."""
    first, *rest = paragraphs(thing)
    if rest and rest[0].startswith("    "):
        return prose(f"{first}\n\n{rest[0]}")
    return prose(first)
