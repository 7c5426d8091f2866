"""ModernBERT: not causal, rotary positions of two kinds, windows in most layers."""

from __future__ import annotations

from typing import Any

from .adapter import Adapter, Scoring, Weights, rotary, window


def _weights(block: Any) -> Weights:
    joint, out = block.attn.Wqkv, block.attn.Wo
    biases = (None,) * 3 if joint.bias is None else joint.bias.chunk(3)
    return (*zip(joint.weight.chunk(3), biases, strict=True), (out.weight, out.bias))


def _scoring(model: Any, layer: int) -> Scoring:
    reach = window(model.config, layer)  # on each side, the last one included
    return Scoring(*rotary(model, layer), None if reach is None else reach + 1)


ADAPTERS = {
    "modernbert": Adapter(
        blocks=lambda model: list(model.layers),
        attention="attn",
        output="attn.Wo",
        weights=_weights,
        scaling=lambda block: float(block.attn.head_dim) ** -0.5,
        sublayer=lambda block, attend, z: z + attend(block.attn_norm(z)),
        scoring=_scoring,
    )
}
