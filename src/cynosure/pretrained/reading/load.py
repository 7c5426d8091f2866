"""load_transformer(): a model from a folder, the hub, or memory; offline and without pickle."""

from __future__ import annotations

from typing import Any

from ..._progress import Progress, showing
from ..families import ADAPTERS
from ..loading.checkpoints import opened
from .transformer import Transformer

# What turns texts, or pictures, into what a model of a kind takes.
READERS = {
    kind: "tokenizer" if adapter.picture is None else "image processor"
    for kind, adapter in ADAPTERS.installed().items()
}


def load_transformer(
    source: Any,
    *,
    tokenizer: Any = None,
    revision: str | None = None,
    local_files_only: bool | None = None,
    device: str = "cpu",
    dtype: Any = None,
    allow_pickle: bool = False,
    progress: Progress = None,
) -> Transformer:
    """Reads a transformer as attention dynamics: the A and V of each head, and traces of texts.

    Families: Llama, Mistral, Mixtral, Qwen 2 and 3 and their MoE, Gemma 1 to 3, Phi 1 to 4,
    GPT-OSS, OLMo 2, Cohere, Falcon, StableLM, StarCoder 2, Granite, GPT-NeoX (Pythia), GPT-J, OPT,
    GPT-2, BLOOM; BERT (MiniLM), ELECTRA, RoBERTa (XLM-R, CamemBERT), DistilBERT, ALBERT,
    ModernBERT; ViT.

    Weights are read from safetensors. Code that comes with a model is never run.

    Parameters
    ----------
    source
        A folder, which is read without any request; a hub id such as "albert-xlarge-v2"; or a model
        of the transformers library, which is used as it is.
    tokenizer
        Of the model by default. Heads, and tokens given as numbers, need none. For a model that
        reads pictures it is the image processor.
    revision, local_files_only
        Of a hub id. HF_HUB_OFFLINE=1 or True keeps to what was fetched before; so does a hub that
        does not answer within some seconds.
    device
        "cpu", "cuda", ...
    dtype
        float32 by default. With "float64" iterated layers can be followed longer before rounding
        decides; softmax, norms and rotary angles are float64 too.
    allow_pickle
        Reads a pickled checkpoint (.bin), which can run code.
    progress
        False shows no bar.

    Returns
    -------
    Transformer
        `heads(layer)`, `trace(text)`, `survey(text)` and `iterate(z, layer, n)`.

    Raises
    ------
    ValueError
        If the family is unknown, or a file is missing or damaged; the message says which.
    ImportError
        If the extra `models` is not installed.

    Examples
    --------
    >>> import cynosure as cy
    >>> model = cy.load_transformer("path/to/albert")  # doctest: +SKIP
    >>> model.heads(0)[1].A.shape  # doctest: +SKIP
    (768, 768)
    """
    options = revision, bool(local_files_only), device, dtype, allow_pickle
    with showing(progress, f"loading {source if isinstance(source, str) else 'the model'}"):
        model, tokenizer, name = opened(source, READERS, tokenizer, *options)
    adapter = ADAPTERS[model.config.model_type]
    if not adapter.blocks(model):
        raise ValueError(
            f"{name}: a model of 0 layers, as its config.json says; expected 1 or more"
        )
    return Transformer(model, tokenizer, adapter, name)
