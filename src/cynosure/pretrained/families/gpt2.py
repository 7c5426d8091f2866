"""GPT-2: causal, norm first, y = x W + b with q, k, v side by side in the columns of one W."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from .adapter import Adapter, Weights


def _weights(block: Any) -> Weights:
    joint, out = block.attn.c_attn, block.attn.c_proj
    parts = zip(joint.weight.T.chunk(3), joint.bias.chunk(3), strict=True)
    return (*parts, (out.weight.T, out.bias))


ADAPTERS = {
    "gpt2": Adapter(
        blocks=lambda model: list(model.h),
        attention="attn",
        output="attn.c_proj",
        weights=_weights,
        scaling=attrgetter("attn.scaling"),
        sublayer=lambda block, attend, z: z + attend(block.ln_1(z)),
        causal=lambda config: True,
    )
}
