"""Models that come with the package: `load_pretrained`, offline, nothing unpickled.

"imdb" tells favourable from unfavourable film reviews in English (labels "pos" and "neg"). Its
folder holds a card with the command that made it and what it scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .estimator import HardmaxClassifier

__all__ = ["available", "folder_of", "load_pretrained"]

_FOLDER = Path(__file__).parent / "models"


def available() -> list[str]:
    """Names `load_pretrained` knows."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/model.json"))


def load_pretrained(name: str = "imdb") -> HardmaxClassifier:
    """A classifier shipped with the package, ready to predict and explain.

    Examples
    --------
    >>> load_pretrained().predict(["Tender, funny and beautifully acted."]).tolist()
    ['pos']
    """
    from .estimator import HardmaxClassifier

    return HardmaxClassifier.load(folder_of(name))


def folder_of(name: str) -> Path:
    """Where a shipped model lies."""
    if name not in available():
        raise ValueError(f"no shipped model {name!r}; there are {', '.join(available())}")
    return _FOLDER / name
