"""DistilBERT: as BERT, with the norm beside the attention module."""

from __future__ import annotations

from operator import attrgetter

from .adapter import Adapter, linear

ADAPTERS = {
    "distilbert": Adapter(
        blocks=lambda model: list(model.transformer.layer),
        attention="attention",
        output="attention.out_lin",
        weights=linear(*[f"attention.{name}_lin" for name in ("q", "k", "v", "out")]),
        scaling=attrgetter("attention.scaling"),
        sublayer=lambda block, attend, z: block.sa_layer_norm(attend(z) + z),
    )
}
