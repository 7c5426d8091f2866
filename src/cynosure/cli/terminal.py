"""Everything a command writes on stdout goes through here: cleaned, and coloured where it helps.

An escape sequence in a label, a word or a file name could drive the terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import unicodedata
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..classifier.explaining.explanation import Explanation

_FOR, _AGAINST = (117, 39, 25), (223, 208, 166)  # pale, middle, deep: blue and vermilion
_RESET = "\x1b[0m"


def wants_colour(stream: IO[str]) -> bool:
    """A terminal, and nobody said NO_COLOR (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def has_every_character(stream: IO[str]) -> bool:
    """In UTF-8, say; not in cp1252."""
    return "utf" in (getattr(stream, "encoding", None) or "utf-8").lower()


class Unfailing:
    """A stream for status: once it cannot be written, what is said is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            self._drop()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        """What waits in its buffer too, or the interpreter fails with it at its end."""
        with suppress(OSError):  # of a stream that is no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Closed:
    """Standard output where there is none: what is written is dropped, and `lost` says so."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.lost = stream, False

    def write(self, text: str) -> int:
        self.lost = self.lost or bool(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_SAFE = "\n\t\u200c\u200d"  # the last two join, in Persian and in emoji
_UNSAFE_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_ASCII = re.compile("[^\x00-\x7e]")


def plain(text: str) -> str:
    """`text` without control characters and lone surrogates; line feeds and tabs stay."""
    unsafe = (unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in _SAFE for c in text)
    return "".join("\ufffd" if bad else c for c, bad in zip(text, unsafe))


def field(text: object) -> str:
    """A cell of a line of fields: `plain`, and without the tabs and line ends that divide them."""
    return " ".join(plain(str(text)).split())


def show(text: object, end: str = "\n") -> None:
    """A result for people, on stdout."""
    sys.stdout.write(plain(str(text)) + end)


def show_json(text: str, end: str = "\n") -> None:
    """JSON in characters that no terminal obeys and the stream has."""
    unsafe = _UNSAFE_JSON if has_every_character(sys.stdout) else _NOT_ASCII

    def escaped(found: re.Match[str]) -> str:
        return json.dumps(found[0])[1:-1] if ord(found[0]) > 127 else f"\\u{ord(found[0]):04x}"

    sys.stdout.write(unsafe.sub(escaped, text) + end)


def show_coloured(ex: Explanation) -> None:
    """The text with its passages, in colours of ours where the terminal has them."""
    if wants_colour(sys.stdout):
        sys.stdout.write(coloured(ex) + "\n")
        return
    for line in ex.marked.split("\n"):
        show(textwrap.fill(line, 80, break_long_words=False, break_on_hyphens=False))


def coloured(ex: Explanation) -> str:
    """The text in place: blue passages speak for the label, vermilion ones against it; the words
    that were read are bold."""
    from itertools import groupby
    from operator import itemgetter

    from ..classifier.explaining.passages import pieces

    most = max((abs(p.contribution) for p in ex.passages), default=0.0) or 1.0
    out = []
    for passage, cut in groupby(pieces(ex.text, ex.passages), key=itemgetter(1)):
        x = 0.0 if passage is None else passage.contribution
        parts = [(plain(characters), _style(x / most, read)) for characters, _, read in cut]
        if passage is not None:
            edge = _style(x / most, False)
            parts = [("[", edge), *parts, (f" {x:+z.2f}]", edge)]
        out += [style + said + _RESET if style else said for said, style in parts]
    return "".join(out)


def _style(x: float, read: bool) -> str:
    codes = ["1"] if read else []
    if abs(x) >= 0.1:
        level = 0 if abs(x) < 0.3 else 1 if abs(x) < 0.6 else 2
        codes += [f"38;5;{(_FOR if x > 0 else _AGAINST)[level]}"]
    return f"\x1b[{';'.join(codes)}m" if codes else ""
