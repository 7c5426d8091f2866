"""Cohere (Command R): Llama with neighbouring coordinates turned, feed-forward beside attention.

Cohere 2 has positions only in its layers with windows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Scoring, Weights, halves, refuse, turning
from .llama import LLAMA


def _weights(block: Any) -> Weights:
    size = int(block.self_attn.head_dim)
    return halves(LLAMA.weights(block), size, size)


def _scoring(model: Any, layer: int) -> Scoring:
    refuse(model.config, "use_qk_norm", "centres its queries and keys, which is not rebuilt")
    return turning(model, layer)


def _local(model: Any, layer: int) -> Scoring:
    found = turning(model, layer)
    return Scoring() if found.window is None else found


COHERE = replace(LLAMA, weights=_weights, scoring=_scoring)
ADAPTERS = {"cohere": COHERE, "cohere2": replace(COHERE, scoring=_local)}
