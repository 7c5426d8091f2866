"""What a type checker makes of `cynosure` in somebody else's code."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cynosure

HERE = Path(__file__).resolve().parent
SRC = HERE.parent / "src"
STRANGER = HERE / "downstream" / "uses_the_package.py"


def refused(path: Path) -> set[tuple[int, str]]:
    """(line, code of the error) as the file itself expects them."""
    lines = path.read_text("utf-8").splitlines()
    marked = [(k, re.search(r"# refused: ([a-z-]+)$", line)) for k, line in enumerate(lines, 1)]
    return {(k, mark[1]) for k, mark in marked if mark}


def complaints(path: Path, cache: Path) -> tuple[set[tuple[int, str]], str]:
    """(line, code of the error) as `mypy --strict` finds them, and all it said."""
    options = ["--strict", "--config-file", str(HERE / "downstream" / "mypy.ini")]
    options += ["--cache-dir", str(cache), "--no-error-summary", "--hide-error-context"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, path.name],
        cwd=path.parent, env={**os.environ, "MYPYPATH": str(SRC)},
        capture_output=True, text=True,
    )  # fmt: skip
    said = done.stdout + done.stderr
    found = re.findall(rf"^{re.escape(path.name)}:(\d+): error: .*\[([a-z-]+)\]$", said, re.M)
    return {(int(line), code) for line, code in found}, said


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")
def test_strangers_get_types_and_not_any(tmp_path: Path) -> None:
    found, said = complaints(STRANGER, tmp_path)
    assert found == refused(STRANGER), said
    assert len(found) >= 4


def test_every_public_name_is_there_for_type_checkers() -> None:
    """Type checkers do not see `__getattr__`: they know a name by its line in the stub."""
    source = (SRC / "cynosure" / "__init__.pyi").read_text("utf-8")
    typed = set(re.findall(r"^from \.\S* import \w+ as (\w+)$", source, re.M))
    assert typed == set(cynosure.__all__) - {"__version__"}
    assert (SRC / "cynosure" / "py.typed").is_file()
