"""A text on a terminal, its words coloured by what they contributed."""

from __future__ import annotations

import os
import unicodedata
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from ..classifier.explanation import Explanation

__all__ = ["coloured", "plain", "wants_colour"]

_FOR, _AGAINST = (117, 39, 25), (223, 208, 166)  # pale, middle, deep: blue and vermilion
_RESET = "\x1b[0m"


def wants_colour(stream: IO[str]) -> bool:
    """A terminal, and nobody said NO_COLOR (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def plain(text: str) -> str:
    """`text` without control characters: a review must not be able to drive the terminal."""
    return "".join(
        "\ufffd" if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t\u200d" else c
        for c in text
    )


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
