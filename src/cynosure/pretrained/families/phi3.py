"""Phi-3 and Phi-4: Llama with q, k, v one below the other in one matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Weights
from .llama import LLAMA


def _weights(block: Any) -> Weights:
    inner = block.self_attn
    joint, out = inner.qkv_proj.weight, inner.o_proj
    shared = inner.num_key_value_heads * inner.head_dim
    parts = joint.split([len(joint) - 2 * shared, shared, shared])
    return (*((part, None) for part in parts), (out.weight, out.bias))


ADAPTERS = {"phi3": replace(LLAMA, weights=_weights)}
