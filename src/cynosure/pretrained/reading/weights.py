"""Weights: their checksum, and the same architecture before training as a null model."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from .load import load_transformer
from .transformer import Transformer


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


def weights_sha256(transformer: Transformer) -> str:
    """SHA-256 of the parameters in the model's own order, as they lie in memory."""
    import torch

    digest = hashlib.sha256()
    for parameter in transformer.model.parameters():
        flat = parameter.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
