"""What readings are returned as: frozen records that can be written out."""

from __future__ import annotations

import abc
from dataclasses import fields
from typing import Any

import numpy as np

from ..._display import Shown


class Finding(Shown, abc.ABC):
    def to_dict(self) -> dict[str, Any]:
        """Plain Python values for JSON; complex numbers as [real, imaginary]."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value.item() if isinstance(value, np.generic) else value
