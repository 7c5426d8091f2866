"""Qwen 3: Llama with norms on queries and keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Scoring
from .llama import LLAMA, turning


def _scoring(model: Any, layer: int) -> Scoring:
    inner = model.layers[layer].self_attn
    gains = (inner.q_norm.weight, inner.k_norm.weight, float(inner.q_norm.variance_epsilon))
    return replace(turning(model, layer), gains=gains)


ADAPTERS = {"qwen3": replace(LLAMA, scoring=_scoring)}
