"""Families of models: where each has its attention. A family is one entry of `ADAPTERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

__all__ = ["ADAPTERS", "Adapter"]

Weights = tuple[Any, Any]  # a matrix (out, in) and its bias, as torch tensors


def _linear(*paths: str) -> Callable[[Any], tuple[Weights, ...]]:
    def read(block: Any) -> tuple[Weights, ...]:
        layers = [attrgetter(path)(block) for path in paths]
        return tuple((layer.weight, layer.bias) for layer in layers)

    return read


def _conv1d(block: Any) -> tuple[Weights, ...]:
    """GPT-2: y = x W + b with q, k, v side by side in the columns of one W."""
    joint, out = block.attn.c_attn, block.attn.c_proj
    parts = zip(joint.weight.T.chunk(3), joint.bias.chunk(3), strict=True)
    return (*parts, (out.weight.T, out.bias))


@final
@dataclass(frozen=True)
class Adapter:
    """Where the models of a family have their attention.

    `blocks(model)` lists the blocks, one per layer. Paths are attributes of a block: `attention` is
    the module that takes the tokens x and returns (output, P), `inner` the one with the factor
    1/√d_k as its attribute `scaling`, `output` the projection W_O. `qkvo(block)` gives matrix and
    bias of the four projections. `sublayer(block, attend, z)` is the block without its feed-forward
    part, attend(x) being a call of the attention module. `spare(config)` is the number of positions
    that the model counts but cannot use.
    """

    blocks: Callable[[Any], list[Any]]
    attention: str
    inner: str
    output: str
    qkvo: Callable[[Any], tuple[Weights, ...]]
    sublayer: Callable[[Any, Callable[[Any], Any], Any], Any]
    causal: bool = False
    spare: Callable[[Any], int] = lambda config: 0


def _albert_blocks(model: Any) -> list[Any]:
    """Every layer of the model in turn: the same module again and again in a group."""
    config, groups = model.config, model.encoder.albert_layer_groups
    share = config.num_hidden_layers / config.num_hidden_groups
    turns = [groups[int(i / share)] for i in range(config.num_hidden_layers)]
    return [layer for group in turns for layer in group.albert_layers]


def _bert(spare: Callable[[Any], int] = lambda config: 0) -> Adapter:
    names = ("self.query", "self.key", "self.value", "output.dense")
    return Adapter(
        blocks=lambda model: list(model.encoder.layer),
        attention="attention",
        inner="attention.self",
        output="attention.output.dense",
        qkvo=_linear(*[f"attention.{name}" for name in names]),
        sublayer=lambda block, attend, z: attend(z),
        spare=spare,
    )


ADAPTERS: dict[str, Adapter] = {
    "albert": Adapter(
        blocks=_albert_blocks,
        attention="attention",
        inner="attention",
        output="attention.dense",
        qkvo=_linear(*[f"attention.{name}" for name in ("query", "key", "value", "dense")]),
        sublayer=lambda block, attend, z: attend(z),
    ),
    "bert": _bert(),  # MiniLM is a BERT
    "roberta": _bert(spare=lambda config: config.pad_token_id + 1),
    "distilbert": Adapter(
        blocks=lambda model: list(model.transformer.layer),
        attention="attention",
        inner="attention",
        output="attention.out_lin",
        qkvo=_linear(*[f"attention.{name}_lin" for name in ("q", "k", "v", "out")]),
        sublayer=lambda block, attend, z: block.sa_layer_norm(attend(z) + z),
    ),
    "gpt2": Adapter(
        blocks=lambda model: list(model.h),
        attention="attn",
        inner="attn",
        output="attn.c_proj",
        qkvo=_conv1d,
        sublayer=lambda block, attend, z: z + attend(block.ln_1(z)),
        causal=True,
    ),
}
