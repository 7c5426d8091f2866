"""Gemma 2 and 3: Llama with norms on both sides and windows in most layers; capped scores, or
norms on queries and keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Scoring, turning
from .llama import LLAMA


def _capped(model: Any, layer: int) -> Scoring:
    return replace(turning(model, layer), cap=model.config.attn_logit_softcapping)


def _normed(model: Any, layer: int) -> Scoring:
    norms = (model.layers[layer].self_attn.q_norm, model.layers[layer].self_attn.k_norm)
    gains = tuple(1 + norm.weight for norm in norms)  # as the library has it
    return replace(_capped(model, layer), gains=(*gains, float(norms[0].eps)))


GEMMA = replace(
    LLAMA,
    sublayer=lambda block, attend, z: (
        z + block.post_attention_layernorm(attend(block.input_layernorm(z)))
    ),
)
ADAPTERS = {
    "gemma2": replace(GEMMA, scoring=_capped),
    "gemma3_text": replace(GEMMA, scoring=_normed),
}
