"""ViT: tokens are patches of a picture, and one more that stands for all of it."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from .adapter import Adapter, linear


def _sides(config: Any) -> tuple[int, int]:
    """Rows and columns of patches."""
    sizes = (config.image_size, config.patch_size)
    (height, width), (down, across) = (s if isinstance(s, tuple | list) else (s, s) for s in sizes)
    return int(height) // int(down), int(width) // int(across)


def _patches(config: Any) -> tuple[str, ...]:
    """(row, column) of each patch, from the upper left corner."""
    rows, columns = _sides(config)
    return ("[CLS]", *(f"({r}, {c})" for r in range(rows) for c in range(columns)))


ADAPTERS = {
    "vit": Adapter(
        blocks=lambda model: list(model.layers),
        attention="attention",
        output="attention.o_proj",
        weights=linear(*[f"attention.{name}_proj" for name in ("q", "k", "v", "o")]),
        scaling=attrgetter("attention.scaling"),
        sublayer=lambda block, attend, z: z + attend(block.layernorm_before(z)),
        positions=lambda config: len(_patches(config)),
        picture=_patches,
    )
}
