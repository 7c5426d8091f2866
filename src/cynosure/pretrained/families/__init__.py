"""Families of models: one file each, which says where its models have their attention.

A file of this folder has `ADAPTERS`, from the `model_type` of a configuration to its `Adapter`; it
is found by listing the folder.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .adapter import Adapter, Scoring

__all__ = ["ADAPTERS", "Adapter", "Scoring"]

ADAPTERS: dict[str, Adapter] = {
    kind: adapter
    for file in pkgutil.iter_modules(__path__)
    if file.name != "adapter"
    for kind, adapter in import_module(f"{__name__}.{file.name}").ADAPTERS.items()
}
