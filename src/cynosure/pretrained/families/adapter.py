"""Adapter: where the models of one family have their attention, and what is special in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

import numpy as np

from ..._shapes import Float
from ...attention import Turn
from ..loading.images import Grid

Weights = tuple[tuple[Any, Any], ...]  # (matrix (out, in), bias or None) of W_Q, W_K, W_V, W_O
CHANGING = ("dynamic", "longrope")  # rotary positions whose frequencies depend on the text's length


@final
@dataclass(frozen=True, eq=False)
class Scoring:
    """What happens between <q_i, k_j> and the softmax in one layer; nothing, unless said.

    `rotary` turns queries and keys, whose turned coordinates are also `stretch` times longer; a
    token looks at those less than `window` places away; scores are bent to `cap` tanh(score / cap);
    head h adds `slopes[h]` (j - i) to them; `gains` are the weights of norms on queries and keys,
    of one head or of all heads together, and their eps; the softmax of head h has one more score,
    `sinks[h]`, whose weight goes to nobody.
    """

    rotary: Turn | None = None
    stretch: float = 1.0
    window: int | None = None
    cap: float | None = None
    slopes: Float[np.ndarray, "heads"] | None = None
    gains: tuple[Any, Any, float] | None = None
    sinks: Any | None = None


@final
@dataclass(frozen=True)
class Adapter:
    """Where the models of a family have their attention.

    `blocks(model)` lists the blocks, one per layer. Paths are attributes of a block: `attention` is
    the module that takes the tokens x and returns (output, P), `output` the projection W_O.
    `weights(block)` gives matrix and bias of the four projections, rows (columns of W_O) in order
    of the heads; with fewer key than query heads, groups of them share keys and values.
    `scaling(block)` is the factor 1/√d_k, `scoring(model, layer)` all else that makes the scores.
    `sublayer(block, attend, z)` is the block without its feed-forward part, attend(x, ...) being a
    call of the attention module with its first arguments. `causal(config)`: token i looks at j <= i
    only. `positions(config)` is the longest input. `picture(config)` has the patches of a model
    that reads pictures; None: it reads texts. `tables(block)` are tensors, by module and name, that
    the library fills in float32 when a model is made: what they are in float64.
    """

    blocks: Callable[[Any], list[Any]]
    attention: str
    output: str
    weights: Callable[[Any], Weights]
    scaling: Callable[[Any], float]
    sublayer: Callable[[Any, Callable[..., Any], Any], Any]
    scoring: Callable[[Any, int], Scoring] = lambda model, layer: Scoring()
    causal: Callable[[Any], bool] = lambda config: bool(getattr(config, "is_decoder", False))
    positions: Callable[[Any], int] = lambda config: int(config.max_position_embeddings)
    picture: Callable[[Any], Grid] | None = None
    tables: Callable[[Any], tuple[tuple[Any, str, Any], ...]] = lambda block: ()


def linear(*paths: str) -> Callable[[Any], Weights]:
    """The projections as four linear modules of a block."""

    def read(block: Any) -> Weights:
        layers = [attrgetter(path)(block) for path in paths]
        return tuple((layer.weight, layer.bias) for layer in layers)

    return read


def split(joint: Any, heads: int) -> Weights:
    """One linear module whose rows are q, k, v of head 0, then of head 1, ...: (W, b) of each."""

    def three(x: Any) -> tuple[Any, ...]:
        if x is None:
            return (None,) * 3
        by_head = x.reshape(heads, 3, -1, *x.shape[1:])
        return tuple(part.flatten(0, 1) for part in by_head.unbind(1))

    return tuple(zip(three(joint.weight), three(joint.bias), strict=True))


def halves(weights: Weights, size: int, turned: int) -> Weights:
    """The same heads with their turned coordinates in another order, which no score can see.

    Some families turn coordinates 0 and 1, 2 and 3, ... of a head of `size`; in the order 0, 2, 4,
    ..., 1, 3, 5, ... they are the planes of a `Turn`.
    """
    order = [*range(0, turned, 2), *range(1, turned, 2), *range(turned, size)]

    def put(x: Any) -> Any:
        return None if x is None else x.reshape(-1, size, *x.shape[1:])[:, order].flatten(0, 1)

    (Wq, bq), (Wk, bk), *rest = weights
    return ((put(Wq), put(bq)), (put(Wk), put(bk)), *rest)


def refuse(config: Any, flag: str, why: str) -> None:
    """A variant whose heads are not rebuilt; the model itself runs."""
    if getattr(config, flag, False):
        raise ValueError(f"heads: {config.model_type} with {flag}=True {why}; trace() still runs")


def turning(model: Any, layer: int) -> Scoring:
    """Rotary positions, and the window where the layer has one."""
    return Scoring(*rotary(model, layer), window(model.config, layer))


def rotary(model: Any, layer: int) -> tuple[Turn, float]:
    """The rotary positions of a layer, and the factor that goes with them."""
    turn = model.rotary_emb
    kind = (getattr(model.config, "layer_types", None) or {layer: ""})[layer]
    prefix = f"{kind}_" if hasattr(turn, f"{kind}_inv_freq") else ""
    named = turn.rope_type[kind] if prefix else turn.rope_type
    if named in CHANGING:
        raise ValueError(
            f"heads: rotary positions of type {named!r} change with the length of the text, so a "
            "head has no single A; set rope_parameters of the model to a fixed type"
        )
    frequencies = getattr(turn, f"{prefix}inv_freq").detach().cpu().double().numpy()
    return Turn(frequencies), float(getattr(turn, f"{prefix}attention_scaling"))


def window(config: Any, layer: int) -> int | None:
    """How far a token of this layer looks; None: as far as there are tokens."""
    kinds = getattr(config, "layer_types", None)
    wide = kinds is not None and kinds[layer] != "sliding_attention"
    return None if wide else getattr(config, "sliding_window", None)
