"""ALBERT: the layers of BERT, all with the same weights."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from .adapter import Adapter, linear


def _blocks(model: Any) -> list[Any]:
    """Every layer of the model in turn: the same module again and again in a group."""
    config, groups = model.config, model.encoder.albert_layer_groups
    share = config.num_hidden_layers / config.num_hidden_groups
    turns = [groups[int(i / share)] for i in range(config.num_hidden_layers)]
    return [layer for group in turns for layer in group.albert_layers]


ADAPTERS = {
    "albert": Adapter(
        blocks=_blocks,
        attention="attention",
        output="attention.dense",
        weights=linear(*[f"attention.{name}" for name in ("query", "key", "value", "dense")]),
        scaling=attrgetter("attention.scaling"),
        sublayer=lambda block, attend, z: attend(z),
    )
}
