"""GPT-J: attention and feed-forward side by side; neighbouring coordinates of a head turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...attention import Turn
from .adapter import Adapter, Scoring, Weights, halves, linear

BASE = 10_000.0  # of the frequencies, in the library's table


def _frequencies(inner: Any) -> np.ndarray:
    size = int(inner.pos_embd_dim)
    return BASE ** (-np.arange(0, size, 2) / size)


def _weights(block: Any) -> Weights:
    plain = linear(*[f"attn.{name}_proj" for name in ("q", "k", "v", "out")])(block)
    return halves(plain, int(block.attn.head_dim), int(block.attn.rotary_dim))


def _tables(block: Any) -> tuple[tuple[Any, str, Any], ...]:
    """Sines and cosines of the positions, which the library keeps rounded."""
    import torch

    inner = block.attn
    angles = np.outer(np.arange(inner.max_positions), _frequencies(inner))
    table = torch.tensor(np.hstack([np.sin(angles), np.cos(angles)]))
    return ((inner, "embed_positions", table.to(inner.embed_positions.device)),)


ADAPTERS = {
    "gptj": Adapter(
        blocks=lambda model: list(model.h),
        attention="attn",
        output="attn.out_proj",
        weights=_weights,
        scaling=lambda block: 1 / float(block.attn.scale_attn),
        sublayer=lambda block, attend, z: z + attend(block.ln_1(z)),
        scoring=lambda model, layer: Scoring(Turn(_frequencies(model.h[layer].attn))),
        causal=lambda config: True,
        tables=_tables,
    )
}
