"""A cache of TransformerLens as a Trace: by hand, and from the real thing where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from cynosure.pretrained import attention_table, load_transformer, trace_of_cache
from tiny_models import tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = list(range(3, 15))


def written(trace, batch: bool = True) -> dict:
    """The cache that a HookedTransformer would have made of this trace."""
    out = {}
    for k, P in enumerate(trace.attentions):
        out[f"blocks.{k}.attn.hook_pattern"] = P
        out[f"blocks.{k}.hook_resid_pre"] = trace.z[k]
        out[f"blocks.{k}.hook_resid_post"] = trace.z[k + 1]
        out[f"blocks.{k}.ln1.hook_normalized"] = trace.seen[k]
    return {name: torch.tensor(x[None] if batch else x) for name, x in out.items()}


@pytest.mark.parametrize("batch", [True, False])
def test_a_cache_is_a_trace(batch) -> None:
    trace = load_transformer(tiny_model("gpt2")).trace(IDS)
    words = [f"w{i}" for i in range(12)]
    again = trace_of_cache(written(trace, batch), words)
    for name in ("z", "attentions", "seen"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert again.words == tuple(words) and again.by_word().words == tuple(words)
    ours = [row["leaders"] for row in attention_table(trace)]
    assert [row["leaders"] for row in attention_table(again)] == ours
    half = {name: x.to(torch.bfloat16) for name, x in written(trace).items()}
    assert trace_of_cache(half).z.dtype == np.float32


def test_what_is_no_cache() -> None:
    cache = written(load_transformer(tiny_model("gpt2")).trace(IDS))
    with pytest.raises(ValueError, match="12 tokens, got 2 words"):
        trace_of_cache(cache, ["a", "b"])
    del cache["blocks.1.hook_resid_post"]
    with pytest.raises(ValueError, match=r"no blocks\.1\.hook_resid_post"):
        trace_of_cache(cache)
    with pytest.raises(ValueError, match=r"no blocks\.0\.attn\.hook_pattern"):
        trace_of_cache({})


def test_the_cache_of_transformer_lens() -> None:
    """The bridge of version 4 on the same weights: its tokens and P are ours."""
    bridge = pytest.importorskip("transformer_lens.model_bridge")
    model = transformers.GPT2LMHeadModel(tiny_model("gpt2").config).eval()
    model.transformer.load_state_dict(tiny_model("gpt2").state_dict())
    lens = bridge.TransformerBridge.boot_transformers(
        "gpt2", hf_model=model, tokenizer=tiny_tokenizer("gpt2"), device="cpu"
    )
    _, cache = lens.run_with_cache(torch.tensor([IDS]))
    found, ours = trace_of_cache(cache), load_transformer(tiny_model("gpt2")).trace(IDS)
    for name in ("z", "attentions", "seen"):
        np.testing.assert_allclose(getattr(found, name), getattr(ours, name), atol=1e-5)
