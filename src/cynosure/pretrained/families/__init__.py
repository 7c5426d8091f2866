"""Families of models: each file says where the models of a family and its kin have attention.

A file of this folder has `ADAPTERS`, from the `model_type` of a configuration to its `Adapter`; it
is found by listing the folder. Other packages add theirs as entry points `cynosure.families`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..._registry import Registry
from .adapter import Adapter, Scoring

__all__ = ["ADAPTERS", "Adapter", "Scoring"]

ADAPTERS: Registry[Adapter] = Registry(
    "families",
    "an Adapter",
    lambda adapter: isinstance(adapter, Adapter),
    {
        kind: adapter
        for file in pkgutil.iter_modules(__path__)
        if file.name != "adapter"
        for kind, adapter in import_module(f"{__name__}.{file.name}").ADAPTERS.items()
    },
)
