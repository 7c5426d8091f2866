"""Models that come with the package: `load_pretrained`, offline, nothing unpickled.

"imdb" tells favourable from unfavourable film reviews in English (labels "pos" and "neg"). Its
folder holds a card with the command that made it and what it scores.
"""

from __future__ import annotations

from pathlib import Path

from .estimator import HardmaxClassifier

__all__ = ["available", "load_pretrained"]

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
    if name not in available():
        raise ValueError(f"no shipped model {name!r}; there are {', '.join(available())}")
    return HardmaxClassifier.load(_FOLDER / name)
