"""Falcon: q of a group of heads, their k, their v, then the next group; norms in three ways."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from .adapter import Adapter, Scoring, Weights, refuse, rotary


def _weights(block: Any) -> Weights:
    inner = block.self_attention
    groups = inner.num_kv_heads  # of heads that share k and v: each head its own, or one for all
    joint, out = inner.query_key_value, inner.dense

    def three(x: Any) -> tuple[Any, ...]:
        if x is None:
            return (None,) * 3
        by_group = x.reshape(groups, -1, inner.head_dim, *x.shape[1:])
        return tuple(
            part.flatten(0, 2) for part in by_group.split([by_group.shape[1] - 2, 1, 1], 1)
        )

    return (*zip(three(joint.weight), three(joint.bias), strict=True), (out.weight, out.bias))


def _scoring(model: Any, layer: int) -> Scoring:
    refuse(model.config, "alibi", "adds rounded slopes to its scores, which is not rebuilt")
    return Scoring(*rotary(model, layer))


def _norm(block: Any) -> Any:
    return block.ln_attn if hasattr(block, "ln_attn") else block.input_layernorm


ADAPTERS = {
    "falcon": Adapter(
        blocks=lambda model: list(model.h),
        attention="self_attention",
        output="self_attention.dense",
        weights=_weights,
        scaling=attrgetter("self_attention.inv_norm_factor"),
        sublayer=lambda block, attend, z: z + attend(_norm(block)(z)),
        scoring=_scoring,
        causal=lambda config: True,
    )
}
