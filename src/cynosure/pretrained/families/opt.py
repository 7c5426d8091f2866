"""OPT: causal; the norm comes first, or last in the model of 350 million parameters."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from .adapter import Adapter, linear


def _sublayer(block: Any, attend: Callable[..., Any], z: Any) -> Any:
    norm = block.self_attn_layer_norm
    return z + attend(norm(z)) if block.do_layer_norm_before else norm(z + attend(z))


ADAPTERS = {
    "opt": Adapter(
        blocks=lambda model: list(model.decoder.layers),
        attention="self_attn",
        output="self_attn.out_proj",
        weights=linear(*[f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")]),
        scaling=attrgetter("self_attn.scaling"),
        sublayer=_sublayer,
        causal=lambda config: True,
    )
}
