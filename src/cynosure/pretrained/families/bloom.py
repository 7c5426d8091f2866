"""BLOOM: ALiBi, head h adds slope_h (j - i) to its scores; its attention adds the tokens itself."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from .adapter import Adapter, Scoring, Weights, split

LONGEST = 2048  # tokens a model of this family was trained on; the positions have no end


def _weights(block: Any) -> Weights:
    inner = block.self_attention
    return (*split(inner.query_key_value, inner.num_heads), (inner.dense.weight, inner.dense.bias))


def _scoring(model: Any, layer: int) -> Scoring:
    """The slopes as the library has them: what it adds to the second of two tokens."""
    import torch
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    added = build_alibi_tensor(torch.ones(1, 2), model.config.n_head, model.dtype)
    return Scoring(slopes=added[:, 0, 1].double().numpy().astype(np.float64))


def _sublayer(block: Any, attend: Callable[..., Any], z: Any) -> Any:
    x = block.input_layernorm(z)
    return attend(x, x if block.apply_residual_connection_post_layernorm else z)


ADAPTERS = {
    "bloom": Adapter(
        blocks=lambda model: list(model.h),
        attention="self_attention",
        output="self_attention.dense",
        weights=_weights,
        scaling=attrgetter("self_attention.inv_norm_factor"),
        sublayer=_sublayer,
        scoring=_scoring,
        causal=lambda config: True,
        positions=lambda config: int(getattr(config, "seq_length", LONGEST)),
    )
}
