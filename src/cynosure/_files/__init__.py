"""Files: written whole or not at all, read within bounds.

`writing` puts one file in place in one step, `folders` a folder of files that is ours, `bounded`
reads archives, arrays and JSON that nobody vouches for, `tokens` reads tables of numbers.
"""

from __future__ import annotations

from .bounded import (
    LONGEST_LINE,
    bounded_lines,
    member_names,
    parsed_json,
    parsed_toml,
    read_arrays,
    read_bytes,
)
from .folders import Folder
from .tokens import WORKBOOK, WORKBOOKS, encoding, header, read
from .tokens import _read_slowly as _read_slowly
from .tokens import _rows as _rows
from .writing import sweep, write_atomically

__all__ = [
    "LONGEST_LINE",
    "WORKBOOK",
    "WORKBOOKS",
    "Folder",
    "bounded_lines",
    "encoding",
    "header",
    "member_names",
    "parsed_json",
    "parsed_toml",
    "read",
    "read_arrays",
    "read_bytes",
    "sweep",
    "write_atomically",
]
