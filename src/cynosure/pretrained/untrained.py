"""The same architecture before training: a null model for what is found in trained weights."""

from __future__ import annotations

from dataclasses import replace

from .loading import load_transformer
from .transformer import Transformer

__all__ = ["untrained"]


def untrained(transformer: Transformer, seed: int = 0) -> Transformer:
    """The model of `transformer` with the random weights its architecture starts training from.

    Shapes, tokenizer and norms are the same; weights are those of `from_config`, seeded. What this
    one shows too is the work of the architecture, not of training.
    """
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = transformer.model.config
        model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    model = model.to(device=transformer.model.device, dtype=transformer.model.dtype).eval()
    fresh = load_transformer(model, tokenizer=transformer.tokenizer)
    return replace(fresh, name=f"{transformer.name}, untrained")
