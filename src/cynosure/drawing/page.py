"""page(): one self-contained HTML document, light or dark, in the style that all pages share."""

from __future__ import annotations

from html import escape
from pathlib import Path

_BASE = Path(__file__).with_name("page.css").read_text("utf-8")


def page(title: str, body: str, extra_css: str = "") -> str:
    """The whole document. `title` is plain text; `body` and `extra_css` are taken as they are."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_BASE}{extra_css}</style></head>\n"
        f"<body><main>\n{body}</main></body></html>\n"
    )
