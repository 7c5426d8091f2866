"""GPT-NeoX (Pythia): attention and feed-forward side by side, part of each head turns."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from .adapter import Adapter, Scoring, Weights, rotary, split


def _weights(block: Any) -> Weights:
    inner = block.attention
    joint, out = inner.query_key_value, inner.dense
    return (*split(joint, inner.config.num_attention_heads), (out.weight, out.bias))


ADAPTERS = {
    "gpt_neox": Adapter(
        blocks=lambda model: list(model.layers),
        attention="attention",
        output="attention.dense",
        weights=_weights,
        scaling=attrgetter("attention.scaling"),
        sublayer=lambda block, attend, z: z + attend(block.input_layernorm(z)),
        scoring=lambda model, layer: Scoring(*rotary(model, layer)),
        causal=lambda config: True,
    )
}
