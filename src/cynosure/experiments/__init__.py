"""Experiments: one file each, with Params, QUICK, TITLE and run(p, progress) -> Report.

A new experiment is a new file in the folder of its subject: the command line, the documentation
and the smoke test on QUICK find it by listing the folders, and the folder is its chapter in the
gallery. In a block `with keeping(folder):` what it measures is kept there, and not measured again.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from ._measurements import forget, keeping

__all__ = ["Progress", "available", "chapters", "experiment", "forget", "keeping", "silent"]

Progress: TypeAlias = Callable[[float, str], Any]  # (share done in [0, 1], what comes next)

_CHAPTERS = ("hardmax", "softmax", "sphere", "heads", "reviews", "transformers")


def chapters() -> dict[str, list[str]]:
    """Title of each chapter -> its experiments by name, in alphabetical order; imports none."""
    found = {}
    for folder in _CHAPTERS:
        chapter = import_module(f"{__name__}.{folder}")
        title = (chapter.__doc__ or folder).partition("\n")[0].rstrip(".")
        found[title] = sorted(
            f.name for f in pkgutil.iter_modules(chapter.__path__) if not f.name.startswith("_")
        )
    return found


def _homes() -> dict[str, str]:
    """Name of each experiment -> its folder, in alphabetical order of the names."""
    pairs = zip(_CHAPTERS, chapters().values())
    return dict(sorted((name, folder) for folder, names in pairs for name in names))


def experiment(name: str) -> ModuleType:
    """The experiment of that name; no other one is imported."""
    homes = _homes()
    if name not in homes:
        raise ValueError(f"no experiment {name!r} (there are {', '.join(homes)})")
    return import_module(f"{__name__}.{homes[name]}.{name}")


def available() -> dict[str, ModuleType]:
    """Every experiment by name, in alphabetical order; this imports all of them."""
    return {name: experiment(name) for name in _homes()}
