"""Everything a command writes on stdout goes through here: cleaned, and coloured where it helps.

Labels, words and file names are other people's: an escape sequence in one of them could move the
cursor, rename the window or hide what follows. So no other file of the command line prints.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..classifier.explanation import Explanation

__all__ = [
    "Unfailing",
    "coloured",
    "field",
    "plain",
    "show",
    "show_coloured",
    "show_json",
    "wants_colour",
]

_FOR, _AGAINST = (117, 39, 25), (223, 208, 166)  # pale, middle, deep: blue and vermilion
_RESET = "\x1b[0m"


def wants_colour(stream: IO[str]) -> bool:
    """A terminal, and nobody said NO_COLOR (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def has_every_character(stream: IO[str]) -> bool:
    """In UTF-8, say; not in cp1252."""
    return "utf" in (getattr(stream, "encoding", None) or "utf-8").lower()


class Unfailing:
    """A stream for status: once it cannot be written, what is said is dropped and the work goes on.

    The terminal of a long run may be gone, or the disk of its log full; its results are not there.
    """

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


_JOINERS = "\u200c\u200d"  # part of how words are written, in Persian and in emoji
_UNSAFE_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_ASCII = re.compile("[^\x00-\x7e]")


def plain(text: str) -> str:
    """`text` without control characters: a review must not be able to drive the terminal.

    Line feeds and tabs stay. Lone halves of characters, which a file name may hold, go as well:
    they cannot be encoded.
    """
    return "".join(
        "\ufffd"
        if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in f"\n\t{_JOINERS}"
        else c
        for c in text
    )


def field(text: object) -> str:
    """A cell of a line of fields: `plain`, and without the tabs and line ends that divide them."""
    return " ".join(plain(str(text)).split())


def show(text: object, end: str = "\n") -> None:
    """A result for people, on stdout."""
    sys.stdout.write(plain(str(text)) + end)


def show_json(text: str, end: str = "\n") -> None:
    """The same document in characters no terminal obeys; JSON escapes the first 32 by itself.

    And in ASCII where the stream has not every character, as on many a Windows.
    """
    unsafe = _UNSAFE_JSON if has_every_character(sys.stdout) else _NOT_ASCII
    sys.stdout.write(unsafe.sub(_escaped, text) + end)


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if ord(found[0]) > 127 else f"\\u{ord(found[0]):04x}"


def show_coloured(ex: Explanation) -> None:
    """The text in place, in colours of ours, where the reader is a terminal that wants them."""
    if wants_colour(sys.stdout):
        sys.stdout.write("\n" + coloured(ex) + "\n")


def coloured(ex: Explanation) -> str:
    """The text in place: blue speaks for the label, vermilion against, leaders underlined."""
    value = [0.0] * len(ex.text)
    leads = [False] * len(ex.text)
    heads = {leader.token for leader in ex.leaders}
    for word in ex.words:
        for start, stop in word.offsets:
            for i in range(start, stop):
                value[i] += word.contribution
                leads[i] |= word.token in heads
    most = max(map(abs, value), default=0.0) or 1.0
    out, last = [], ""
    for character, x, lead in zip(ex.text, value, leads, strict=True):
        style = _style(x / most, lead)
        if style != last:
            out.append(_RESET + style if last else style)
        out.append(plain(character))
        last = style
    return "".join(out) + (_RESET if last else "")


def _style(x: float, lead: bool) -> str:
    codes = ["1", "4"] if lead else []
    if abs(x) >= 0.1:
        level = 0 if abs(x) < 0.3 else 1 if abs(x) < 0.6 else 2
        codes += [f"38;5;{(_FOR if x > 0 else _AGAINST)[level]}"]
    return f"\x1b[{';'.join(codes)}m" if codes else ""
