"""BERT (MiniLM is one), ELECTRA, RoBERTa (XLM-R, CamemBERT): the norm comes last and belongs to the
attention module; DistilBERT has it beside that module, ModernBERT in front of it."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from .adapter import Adapter, Scoring, Weights, linear, rotary, window

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


def _repeated(model: Any) -> list[Any]:
    """ALBERT: every layer of the model in turn, the same module again and again in a group."""
    config, groups = model.config, model.encoder.albert_layer_groups
    share = config.num_hidden_layers / config.num_hidden_groups
    turns = [groups[int(i / share)] for i in range(config.num_hidden_layers)]
    return [layer for group in turns for layer in group.albert_layers]


def _modern_weights(block: Any) -> Weights:
    joint, out = block.attn.Wqkv, block.attn.Wo
    biases = (None,) * 3 if joint.bias is None else joint.bias.chunk(3)
    return (*zip(joint.weight.chunk(3), biases, strict=True), (out.weight, out.bias))


def _modern_scoring(model: Any, layer: int) -> Scoring:
    """Rotary positions of two kinds, windows in most layers."""
    reach = window(model.config, layer)  # on each side, the last one included
    return Scoring(*rotary(model, layer), None if reach is None else reach + 1)


ADAPTERS = {
    "distilbert": DISTILBERT,
    **dict.fromkeys(("bert", "electra"), BERT),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), ROBERTA),
    "albert": replace(
        BERT,
        blocks=_repeated,
        output="attention.dense",
        weights=linear(*[f"attention.{name}" for name in ("query", "key", "value", "dense")]),
        scaling=attrgetter("attention.scaling"),
    ),
    "modernbert": Adapter(
        blocks=lambda model: list(model.layers),
        attention="attn",
        output="attn.Wo",
        weights=_modern_weights,
        scaling=lambda block: float(block.attn.head_dim) ** -0.5,
        sublayer=lambda block, attend, z: z + attend(block.attn_norm(z)),
        scoring=_modern_scoring,
    ),
}
