"""Llama and its kin: rotary positions, grouped queries, norm first, some with windows.

Where a layer has experts (Mixtral, Qwen-MoE) they are its feed-forward part: attention is as here.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from .adapter import Adapter, linear, turning

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
KIN = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "gemma", "starcoder2")
ADAPTERS = {
    **dict.fromkeys(KIN, LLAMA),
    "granite": replace(
        LLAMA,
        sublayer=lambda block, attend, z: (
            z + block.residual_multiplier * attend(block.input_layernorm(z))
        ),
    ),
}
