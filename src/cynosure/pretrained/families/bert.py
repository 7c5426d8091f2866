"""BERT (MiniLM is one), ELECTRA, RoBERTa (XLM-R, CamemBERT): the norm comes last and belongs to the
attention module; DistilBERT has it beside that module."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from .adapter import Adapter, linear

BERT = Adapter(
    blocks=lambda model: list(model.encoder.layer),
    attention="attention",
    output="attention.output.dense",
    weights=linear(
        *[f"attention.{name}" for name in ("self.query", "self.key", "self.value", "output.dense")]
    ),
    scaling=attrgetter("attention.self.scaling"),
    sublayer=lambda block, attend, z: attend(z),
)
ROBERTA = replace(  # its first positions are counted, but never used
    BERT, positions=lambda c: int(c.max_position_embeddings) - c.pad_token_id - 1
)
DISTILBERT = Adapter(
    blocks=lambda model: list(model.transformer.layer),
    attention="attention",
    output="attention.out_lin",
    weights=linear(*[f"attention.{name}_lin" for name in ("q", "k", "v", "out")]),
    scaling=attrgetter("attention.scaling"),
    sublayer=lambda block, attend, z: block.sa_layer_norm(attend(z) + z),
)
ADAPTERS = {
    "distilbert": DISTILBERT,
    **dict.fromkeys(("bert", "electra"), BERT),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), ROBERTA),
}
