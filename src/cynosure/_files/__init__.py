"""Files: written whole (`writing`, `folders`), read within bounds (`bounded`, `tokens`)."""

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
from .writing import sweep, write_atomically

__all__ = [
    "LONGEST_LINE", "WORKBOOK", "WORKBOOKS", "Folder", "bounded_lines", "encoding", "header",
    "member_names", "parsed_json", "parsed_toml", "read", "read_arrays", "read_bytes", "sweep",
    "write_atomically",
]  # fmt: skip
