"""Llama, Mistral, Qwen 2, Gemma: rotary positions, grouped queries, norm first, some windows."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from .adapter import Adapter, Scoring, linear, rotary, window


def turning(model: Any, layer: int) -> Scoring:
    """Rotary positions, and the window where the layer has one."""
    return Scoring(*rotary(model, layer), window(model.config, layer))


LLAMA = Adapter(
    blocks=lambda model: list(model.layers),
    attention="self_attn",
    output="self_attn.o_proj",
    weights=linear(*[f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")]),
    scaling=attrgetter("self_attn.scaling"),
    sublayer=lambda block, attend, z: z + attend(block.input_layernorm(z)),
    scoring=turning,
    causal=lambda config: not getattr(config, "use_bidirectional_attention", False),
)
ADAPTERS = dict.fromkeys(("llama", "mistral", "qwen2", "gemma"), LLAMA)
