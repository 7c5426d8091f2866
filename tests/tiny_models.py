"""Small random models of every family, with tokenizers, made from their configurations."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXT = "The film was slow but the ending is wonderful."
SHAPE = {
    "vocab_size": 300,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
WORDS = {**SHAPE, "vocab_size": 80}  # those with a tokenizer of words
GROUPED = {**SHAPE, "num_key_value_heads": 2, "pad_token_id": 1, "bos_token_id": 0}
SPECIAL = {"pad_token_id": 1, "bos_token_id": 0, "cls_token_id": 0, "sep_token_id": 2}
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
# Windows are shorter than the texts of the tests, caps bend the scores that occur in them.
CONFIGS = {
    "albert": ("AlbertConfig", {**WORDS, "embedding_size": 12}),
    "bert": ("BertConfig", WORDS),
    "bloom": ("BloomConfig", {"vocab_size": 300, "hidden_size": 24, "n_layer": 2, "n_head": 4}),
    "camembert": ("CamembertConfig", {**WORDS, "pad_token_id": 1}),
    "cohere": ("CohereConfig", GROUPED),
    "cohere2": (
        "Cohere2Config",
        {**GROUPED, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "deit": (
        "DeiTConfig",
        {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2,
         "intermediate_size": 32, "image_size": 16, "patch_size": 4, "num_channels": 3},
    ),
    "distilbert": (
        "DistilBertConfig",
        {"vocab_size": 80, "dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 32,
         "max_position_embeddings": 40},
    ),
    "electra": ("ElectraConfig", {**WORDS, "embedding_size": 12}),
    "falcon": (
        "FalconConfig",
        {"vocab_size": 300, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_kv_heads": 2, "new_decoder_architecture": True, "bias": True, "bos_token_id": 0,
         "max_position_embeddings": 40},
    ),
    "gemma": ("GemmaConfig", {**GROUPED, "num_key_value_heads": 1, "head_dim": 8}),
    "gemma2": (
        "Gemma2Config",
        {**GROUPED, "head_dim": 8, "query_pre_attn_scalar": 10, "sliding_window": 5,
         "attn_logit_softcapping": 3.0},
    ),
    "gemma3_text": (
        "Gemma3TextConfig",
        {**GROUPED, "head_dim": 8, "query_pre_attn_scalar": 10, "sliding_window": 5,
         "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gpt2": (
        "GPT2Config",
        {"vocab_size": 300, "n_embd": 24, "n_head": 4, "n_layer": 2, "n_positions": 40,
         "bos_token_id": 0},
    ),
    "gpt_neox": ("GPTNeoXConfig", {**SHAPE, "rotary_pct": 0.7, "bos_token_id": 0}),
    "gpt_oss": (
        "GptOssConfig",
        {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
         "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gptj": (
        "GPTJConfig",
        {"vocab_size": 300, "n_embd": 24, "n_head": 4, "n_layer": 2, "n_positions": 40,
         "rotary_dim": 4, "bos_token_id": 0},
    ),
    "granite": (
        "GraniteConfig", {**GROUPED, "residual_multiplier": 0.4, "attention_multiplier": 0.3},
    ),
    "llama": ("LlamaConfig", GROUPED),
    "mistral": ("MistralConfig", {**GROUPED, "sliding_window": 5}),
    "mixtral": (
        "MixtralConfig", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "modernbert": (
        "ModernBertConfig",
        {**WORDS, **SPECIAL, "eos_token_id": 2, "global_attn_every_n_layers": 2,
         "local_attention": 8},
    ),
    "olmo2": ("Olmo2Config", GROUPED),
    "opt": (
        "OPTConfig",
        {"vocab_size": 300, "hidden_size": 24, "word_embed_proj_dim": 24, "ffn_dim": 32,
         "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 40,
         "bos_token_id": 0},
    ),
    "phi": ("PhiConfig", {**GROUPED, "partial_rotary_factor": 0.7}),
    "phi3": (
        "Phi3Config", {**GROUPED, "sliding_window": 5, "original_max_position_embeddings": 40},
    ),
    "qwen2": ("Qwen2Config", GROUPED),
    "qwen2_moe": (
        "Qwen2MoeConfig", {**GROUPED, **EXPERTS, "shared_expert_intermediate_size": 16},
    ),
    "qwen3": (
        "Qwen3Config",
        {**GROUPED, "head_dim": 8, "use_sliding_window": True, "sliding_window": 5,
         "max_window_layers": 1},
    ),
    "qwen3_moe": ("Qwen3MoeConfig", {**GROUPED, **EXPERTS, "head_dim": 8}),
    "roberta": ("RobertaConfig", {**WORDS, "pad_token_id": 1}),
    "stablelm": ("StableLmConfig", {**GROUPED, "partial_rotary_factor": 0.7, "use_qkv_bias": True}),
    "starcoder2": ("Starcoder2Config", {**GROUPED, "sliding_window": 5}),
    "vit": (
        "ViTConfig",
        {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2,
         "intermediate_size": 32, "image_size": 16, "patch_size": 4, "num_channels": 3},
    ),
    "xlm-roberta": ("XLMRobertaConfig", {**WORDS, "pad_token_id": 1}),
}  # fmt: skip
BY_WORD = (
    "albert", "bert", "camembert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta",
)  # fmt: skip


def tiny_config(family: str, **changed):
    kind, values = CONFIGS[family]
    return getattr(transformers, kind)(**{**values, **changed})


def tiny_model(family: str, config=None, seed: int = 0):
    """Random weights, biases and norms: all-zero biases would hide how they are used."""
    model = transformers.AutoModel.from_config(config or tiny_config(family))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = 0.25 * torch.randn(parameter.shape, generator=generator)
            norm = "norm" in name.lower() or "ln_" in name
            parameter.copy_(noise + 1 if norm and name.endswith("weight") else noise)
    return model.eval()


def tiny_tokenizer(family: str):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    corpus = [TEXT.lower(), TEXT, "wonderful films end slowly"]
    if family not in BY_WORD:
        raw = Tokenizer(models.BPE())
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        raw.train_from_iterator(
            corpus, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet)
        )
        return transformers.PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=40)
    vocabulary = "[CLS] [PAD] [SEP] [UNK] The film was slow but the end ##ing is wonder ##ful ."
    raw = Tokenizer(
        models.WordPiece({w: i for i, w in enumerate(vocabulary.split())}, unk_token="[UNK]")
    )
    raw.normalizer = normalizers.BertNormalizer(lowercase=False)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=1000,
    )
