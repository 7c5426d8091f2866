"""Llama and its kin: rotary positions, grouped queries, norm first, some with windows.

Where a layer has experts (Mixtral, Qwen-MoE) they are its feed-forward part: attention is as here.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from .adapter import Adapter, Scoring, Weights, halves, linear, refuse, turning

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


def _multiplied(block: Any, attend: Any, z: Any) -> Any:
    return z + block.residual_multiplier * attend(block.input_layernorm(z))


# Gemma 2 and 3: norms on both sides and windows; capped scores, or norms on queries and keys.


def _both_sides(block: Any, attend: Any, z: Any) -> Any:
    return z + block.post_attention_layernorm(attend(block.input_layernorm(z)))


def _capped(model: Any, layer: int) -> Scoring:
    return replace(turning(model, layer), cap=model.config.attn_logit_softcapping)


def _capped_and_normed(model: Any, layer: int) -> Scoring:
    norms = (model.layers[layer].self_attn.q_norm, model.layers[layer].self_attn.k_norm)
    gains = tuple(1 + norm.weight for norm in norms)  # as the library has it
    return replace(_capped(model, layer), gains=(*gains, float(norms[0].eps)))


# Qwen 3 and OLMo 2: norms on queries and keys, of each head or of all together.


def _normed(model: Any, layer: int) -> Scoring:
    inner = model.layers[layer].self_attn
    gains = (inner.q_norm.weight, inner.k_norm.weight, float(inner.q_norm.variance_epsilon))
    return replace(turning(model, layer), gains=gains)


def _norm_last(block: Any, attend: Any, z: Any) -> Any:
    return z + block.post_attention_layernorm(attend(z))


def _sinks(model: Any, layer: int) -> Scoring:
    """GPT-OSS: one more score, which belongs to no token: rows of P sum to less than 1."""
    return replace(turning(model, layer), sinks=model.layers[layer].self_attn.sinks)


def _phi3_weights(block: Any) -> Weights:
    """Phi-3 and Phi-4: q, k, v one below the other in one matrix."""
    inner = block.self_attn
    joint, out = inner.qkv_proj.weight, inner.o_proj
    shared = inner.num_key_value_heads * inner.head_dim
    parts = joint.split([len(joint) - 2 * shared, shared, shared])
    return (*((part, None) for part in parts), (out.weight, out.bias))


# Phi, StableLM and Cohere: the feed-forward part stands beside the attention.


def _uncentred(model: Any, layer: int) -> Scoring:
    for flag in ("qk_layernorm", "use_qk_norm"):
        refuse(model.config, flag, "centres its queries and keys, which is not rebuilt")
    return turning(model, layer)


def _neighbours(block: Any) -> Weights:
    """Cohere turns neighbouring coordinates."""
    size = int(block.self_attn.head_dim)
    return halves(LLAMA.weights(block), size, size)


def _local(model: Any, layer: int) -> Scoring:
    """Cohere 2 has positions only in its layers with windows."""
    found = turning(model, layer)
    return Scoring() if found.window is None else found


ADAPTERS = {
    **dict.fromkeys(KIN, LLAMA),
    "granite": replace(LLAMA, sublayer=_multiplied),
    "gemma2": replace(LLAMA, sublayer=_both_sides, scoring=_capped),
    "gemma3_text": replace(LLAMA, sublayer=_both_sides, scoring=_capped_and_normed),
    **dict.fromkeys(("qwen3", "qwen3_moe"), replace(LLAMA, scoring=_normed)),
    "olmo2": replace(LLAMA, sublayer=_norm_last, scoring=_normed),
    "gpt_oss": replace(LLAMA, scoring=_sinks),
    "phi3": replace(LLAMA, weights=_phi3_weights),
    "stablelm": replace(LLAMA, scoring=_uncentred),
    "phi": replace(
        LLAMA,
        output="self_attn.dense",
        weights=linear(*[f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "dense")]),
        scoring=_uncentred,
    ),
    "cohere": replace(LLAMA, weights=_neighbours, scoring=_uncentred),
    "cohere2": replace(LLAMA, weights=_neighbours, scoring=_local),
}
