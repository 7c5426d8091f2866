"""Models that come with the package, each in a folder with a card: how it was made, its scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .estimator import HardmaxClassifier

__all__ = ["available", "find", "folder_of", "load_pretrained"]

_FOLDER = Path(__file__).parent / "models"


def available() -> list[str]:
    """Names `load_pretrained` knows."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/model.json"))


def load_pretrained(name: str = "imdb") -> HardmaxClassifier:
    """Returns a classifier that comes with the package, ready to predict and explain.

    Parameters
    ----------
    name
        "imdb": film reviews, labels "neg" and "pos".

    Returns
    -------
    HardmaxClassifier
        Fitted.

    Raises
    ------
    ValueError
        If there is no such model.

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


def find(model: str | os.PathLike[str] | None) -> Path:
    """The folder of a model: one named by its path, or by its name, or the shipped one."""
    if model is None or (not Path(model).exists() and str(model) in available()):
        return folder_of("imdb" if model is None else str(model))
    if not Path(model).exists():
        raise ValueError(
            f"{model}: no such model; expected a folder written by `cynosure fit`, "
            f"or {' or '.join(available())}"
        )
    return Path(model)
