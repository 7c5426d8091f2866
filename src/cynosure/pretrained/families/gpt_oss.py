"""GPT-OSS: Llama with experts, windows in every other layer, and a sink of its own for each head.

The softmax of a head has one more score, which belongs to no token: rows of P sum to less than 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Scoring, turning
from .llama import LLAMA


def _scoring(model: Any, layer: int) -> Scoring:
    return replace(turning(model, layer), sinks=model.layers[layer].self_attn.sinks)


ADAPTERS = {"gpt_oss": replace(LLAMA, scoring=_scoring)}
