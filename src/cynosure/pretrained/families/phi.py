"""Phi and StableLM: part of each head turns; the feed-forward part stands beside the attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .adapter import Scoring, linear, refuse, turning
from .llama import LLAMA


def _scoring(model: Any, layer: int) -> Scoring:
    refuse(model.config, "qk_layernorm", "centres its queries and keys, which is not rebuilt")
    return turning(model, layer)


STABLELM = replace(LLAMA, scoring=_scoring)
ADAPTERS = {
    "stablelm": STABLELM,
    "phi": replace(
        STABLELM,
        output="self_attn.dense",
        weights=linear(*[f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "dense")]),
    ),
}
