"""Qwen 3 and OLMo 2: Llama with norms on queries and keys, of each head or of all together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Scoring, turning
from .llama import LLAMA


def _scoring(model: Any, layer: int) -> Scoring:
    inner = model.layers[layer].self_attn
    gains = (inner.q_norm.weight, inner.k_norm.weight, float(inner.q_norm.variance_epsilon))
    return replace(turning(model, layer), gains=gains)


QWEN3 = replace(LLAMA, scoring=_scoring)
ADAPTERS = {
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "olmo2": replace(
        QWEN3,
        sublayer=lambda block, attend, z: z + block.post_attention_layernorm(attend(z)),
    ),
}
