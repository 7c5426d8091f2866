"""Gemma 2: Llama with capped scores, windows in every other layer, and norms on both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Scoring
from .llama import LLAMA, turning


def _scoring(model: Any, layer: int) -> Scoring:
    return replace(turning(model, layer), cap=model.config.attn_logit_softcapping)


ADAPTERS = {
    "gemma2": replace(
        LLAMA,
        sublayer=lambda block, attend, z: (
            z + block.post_attention_layernorm(attend(block.input_layernorm(z)))
        ),
        scoring=_scoring,
    )
}
