"""Experiments: one file each, with Params, QUICK, TITLE and run(p, progress) -> Report.

A new experiment is a new file in this folder: the command line, the documentation and the smoke
test on QUICK find it by listing the folder. In a block `with keeping(folder):` what it measures
is kept there, and not measured again.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from ._measured import forget, keeping

__all__ = ["Progress", "available", "forget", "keeping", "silent"]

Progress: TypeAlias = Callable[[float, str], Any]  # (share done in [0, 1], what comes next)


def silent(share: float, what: str) -> None:
    """A progress that tells nobody."""


def available() -> dict[str, ModuleType]:
    """Every experiment by name, in alphabetical order."""
    names = sorted(f.name for f in pkgutil.iter_modules(__path__) if not f.name.startswith("_"))
    return {name: import_module(f"{__name__}.{name}") for name in names}
