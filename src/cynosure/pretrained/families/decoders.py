"""Causal models beside Llama and its kin: GPT-2, GPT-NeoX, GPT-J, OPT, BLOOM, Falcon."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from ...attention import Turn
from .adapter import Adapter, Scoring, Weights, halves, linear, refuse, rotary, split

BASE = 10_000.0  # of GPT-J's frequencies, in the library's table
LONGEST = 2048  # tokens BLOOM was trained on; its positions have no end


def _causal(
    blocks: str, attention: str, output: str, weights: Callable[[Any], Weights],
    sublayer: Any, scaling: Any = "scaling", **more: Any,
) -> Adapter:  # fmt: skip
    """An Adapter by the names of its parts; `scaling` is an attribute of the attention."""
    path = f"{attention}.{scaling}" if isinstance(scaling, str) else ""
    return Adapter(
        blocks=lambda model: list(attrgetter(blocks)(model)),
        attention=attention,
        output=f"{attention}.{output}",
        weights=weights,
        scaling=attrgetter(path) if path else scaling,
        sublayer=sublayer,
        causal=lambda config: True,
        **more,
    )


def _after(norm: str) -> Callable[[Any, Callable[..., Any], Any], Any]:
    """z + attention(norm(z))."""
    return lambda block, attend, z: z + attend(getattr(block, norm)(z))


def _turning(model: Any, layer: int) -> Scoring:
    return Scoring(*rotary(model, layer))


def _gpt2_weights(block: Any) -> Weights:
    """y = x W + b, with q, k, v next to each other in the columns of one W."""
    joint, out = block.attn.c_attn, block.attn.c_proj
    parts = zip(joint.weight.T.chunk(3), joint.bias.chunk(3), strict=True)
    return (*parts, (out.weight.T, out.bias))


def _neox_weights(block: Any) -> Weights:
    inner = block.attention
    joint, out = inner.query_key_value, inner.dense
    return (*split(joint, inner.config.num_attention_heads), (out.weight, out.bias))


# GPT-J: neighbouring coordinates of a head turn.


def _frequencies(inner: Any) -> np.ndarray:
    size = int(inner.pos_embd_dim)
    return BASE ** (-np.arange(0, size, 2) / size)


def _gptj_weights(block: Any) -> Weights:
    plain = linear(*[f"attn.{name}_proj" for name in ("q", "k", "v", "out")])(block)
    return halves(plain, int(block.attn.head_dim), int(block.attn.rotary_dim))


def _tables(block: Any) -> tuple[tuple[Any, str, Any], ...]:
    """Sines and cosines of the positions, which the library keeps rounded."""
    import torch

    inner = block.attn
    angles = np.outer(np.arange(inner.max_positions), _frequencies(inner))
    table = torch.tensor(np.hstack([np.sin(angles), np.cos(angles)]))
    return ((inner, "embed_positions", table.to(inner.embed_positions.device)),)


def _opt_sublayer(block: Any, attend: Callable[..., Any], z: Any) -> Any:
    """The norm comes first, or last in the model of 350 million parameters."""
    norm = block.self_attn_layer_norm
    return z + attend(norm(z)) if block.do_layer_norm_before else norm(z + attend(z))


# BLOOM: ALiBi, head h adds slope_h (j - i) to its scores; its attention adds the tokens itself.


def _bloom_weights(block: Any) -> Weights:
    inner = block.self_attention
    return (*split(inner.query_key_value, inner.num_heads), (inner.dense.weight, inner.dense.bias))


def _slopes(model: Any, layer: int) -> Scoring:
    """The slopes as the library has them: what it adds to the second of two tokens."""
    import torch
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    added = build_alibi_tensor(torch.ones(1, 2), model.config.n_head, model.dtype)
    return Scoring(slopes=added[:, 0, 1].double().numpy().astype(np.float64))


def _bloom_sublayer(block: Any, attend: Callable[..., Any], z: Any) -> Any:
    x = block.input_layernorm(z)
    return attend(x, x if block.apply_residual_connection_post_layernorm else z)


# Falcon: q of a group of heads, their k, their v, then the next group; norms in three ways.


def _falcon_weights(block: Any) -> Weights:
    inner = block.self_attention
    groups = inner.num_kv_heads  # of heads that share k and v: each head its own, or one for all
    joint, out = inner.query_key_value, inner.dense

    def three(x: Any) -> tuple[Any, ...]:
        if x is None:
            return (None,) * 3
        by_group = x.reshape(groups, -1, inner.head_dim, *x.shape[1:])
        parts = by_group.split([by_group.shape[1] - 2, 1, 1], 1)
        return tuple(part.flatten(0, 2) for part in parts)

    return (*zip(three(joint.weight), three(joint.bias), strict=True), (out.weight, out.bias))


def _falcon_scoring(model: Any, layer: int) -> Scoring:
    refuse(model.config, "alibi", "adds rounded slopes to its scores, which is not rebuilt")
    return _turning(model, layer)


def _falcon_sublayer(block: Any, attend: Callable[..., Any], z: Any) -> Any:
    norm = block.ln_attn if hasattr(block, "ln_attn") else block.input_layernorm
    return z + attend(norm(z))


ADAPTERS = {
    "gpt2": _causal("h", "attn", "c_proj", _gpt2_weights, _after("ln_1")),
    "gpt_neox": _causal(
        "layers", "attention", "dense", _neox_weights, _after("input_layernorm"), scoring=_turning
    ),
    "gptj": _causal(
        "h", "attn", "out_proj", _gptj_weights, _after("ln_1"),
        lambda block: 1 / float(block.attn.scale_attn), tables=_tables,
        scoring=lambda model, layer: Scoring(Turn(_frequencies(model.h[layer].attn))),
    ),
    "opt": _causal(
        "decoder.layers", "self_attn", "out_proj",
        linear(*[f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")]), _opt_sublayer,
    ),
    "bloom": _causal(
        "h", "self_attention", "dense", _bloom_weights, _bloom_sublayer, "inv_norm_factor",
        scoring=_slopes, positions=lambda config: int(getattr(config, "seq_length", LONGEST)),
    ),
    "falcon": _causal(
        "h", "self_attention", "dense", _falcon_weights, _falcon_sublayer, "inv_norm_factor",
        scoring=_falcon_scoring,
    ),
}  # fmt: skip
