"""ViT and DeiT: tokens are patches of a picture, and one or two more that stand for all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ..loading.images import Grid
from .adapter import Adapter, linear


def _grid(*special: str) -> Callable[[Any], Grid]:
    """Rows and columns of patches of a configuration, behind these special tokens."""

    def read(config: Any) -> Grid:
        sizes = (config.image_size, config.patch_size)
        pairs = (s if isinstance(s, tuple | list) else (s, s) for s in sizes)
        (height, width), (down, across) = pairs
        return Grid(special, int(height) // int(down), int(width) // int(across))

    return read


VIT = Adapter(
    blocks=lambda model: list(model.layers),
    attention="attention",
    output="attention.o_proj",
    weights=linear(*[f"attention.{name}_proj" for name in ("q", "k", "v", "o")]),
    scaling=attrgetter("attention.scaling"),
    sublayer=lambda block, attend, z: z + attend(block.layernorm_before(z)),
    positions=lambda config: len(_grid("[CLS]")(config).names),
    picture=_grid("[CLS]"),
)
_DEIT = _grid("[CLS]", "[DISTIL]")
ADAPTERS = {
    "vit": VIT,
    "deit": replace(VIT, positions=lambda config: len(_DEIT(config).names), picture=_DEIT),
}
