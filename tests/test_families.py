"""What is special in a family: rotary forms, shared keys, windows, caps, norms, slopes, patches."""

from __future__ import annotations

import numpy as np
import pytest

from cynosure.attention import Turn
from cynosure.pretrained import load_transformer
from tiny_models import CONFIGS, tiny_config, tiny_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = list(range(3, 20))  # longer than the windows of the small models
TURNING = (
    "cohere", "falcon", "gemma2", "gemma3_text", "gpt_neox", "gpt_oss", "gptj", "llama",
    "modernbert", "olmo2", "phi", "qwen3",
)  # fmt: skip


def made(family: str, **changed):
    return load_transformer(tiny_model(family, tiny_config(family, **changed)).double())


def rebuilt(m, tokens) -> float:
    """The largest difference between P of the heads and P of the model."""
    trace = m.trace(tokens)
    P = [[head.weights(x) for head in m.heads(k)] for k, x in enumerate(trace.seen)]
    return float(np.abs(np.array(P) - trace.attentions).max())


# --- rotary forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", TURNING)
def test_scores_are_one_form_for_each_offset(family) -> None:
    """Every score from the matrices form(j - i), with what the head adds to Q and K beside them."""
    m = made(family)
    x = m.trace(IDS).seen[1]
    head = m.heads(1)[2]
    expected = head.scores(x)
    size_q, size_k = (1, 1) if head.norm is None else head.norm.sizes(x)
    for i, j in [(0, 0), (5, 2), (2, 5), (16, 0), (9, 9)]:
        at = head.at(j - i)
        bias = at.b_Q @ at.K @ x[j] + (at.Q @ x[i] + at.b_Q) @ at.b_K
        score = (head.form(j - i) @ x[i]) @ x[j] + bias
        if head.norm is not None:
            score /= size_q[i, 0] * size_k[j, 0]
        if head.cap is not None:
            score = head.cap * np.tanh(score / head.cap)
        assert score == pytest.approx(expected[i, j], abs=1e-12)
    np.testing.assert_array_equal(head.form(0), head.A)
    assert np.abs(head.form(3) - head.form(-3)).max() > 1e-3  # ahead is not behind


def test_a_form_at_an_offset_has_spectra_and_hypotheses() -> None:
    head = made("llama").heads(0)[1]
    for offset in (-7, 0, 2):
        at = head.at(offset)
        whole = np.linalg.eigvals(head.form(offset))
        top = np.sort(np.abs(whole))[-len(at.A_eigenvalues) :]
        np.testing.assert_allclose(np.sort(np.abs(at.A_eigenvalues)), top, atol=1e-10)
        skew = np.linalg.norm(at.A - at.A.T) / 2 / np.linalg.norm(at.A)
        assert at.hypotheses()[0].value == pytest.approx(skew)
        assert np.linalg.norm(at.A, 2) <= np.linalg.norm(at.K, 2) * np.linalg.norm(head.Q, 2)
    np.testing.assert_array_equal(head.at(5).V, head.V)


def test_a_turn_is_a_rotation_of_planes() -> None:
    turn = Turn(np.array([1.0, 0.25]))
    q = np.random.default_rng(0).standard_normal((6, 5))
    there = turn.turned(q, np.arange(6))
    np.testing.assert_allclose(np.linalg.norm(there, axis=1), np.linalg.norm(q, axis=1))
    np.testing.assert_array_equal(there[0], q[0])
    np.testing.assert_array_equal(there[:, 4], q[:, 4])  # beyond the planes nothing turns
    np.testing.assert_allclose(turn.turned(there, -np.arange(6)), q, atol=1e-15)
    plane = (q[3, 1] + 1j * q[3, 3]) * np.exp(1j * 0.25 * 3)
    np.testing.assert_allclose(there[3, [1, 3]], [plane.real, plane.imag])


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 16},
    ],
)  # fmt: skip
def test_stretched_rotary_positions(rope) -> None:
    m = made("llama", rope_parameters={"rope_theta": 100.0, **rope})
    assert rebuilt(m, IDS) < 1e-12
    assert (m.adapter.scoring(m.model, 0).stretch != 1) == (rope["rope_type"] == "yarn")


def test_rotary_positions_that_change_with_the_text_are_refused() -> None:
    m = made("llama", rope_parameters={"rope_theta": 1e4, "rope_type": "dynamic", "factor": 2.0})
    with pytest.raises(ValueError, match=r"'dynamic' change with the length"):
        m.heads(0)
    assert m.trace(IDS).attentions.any()  # the model itself runs


# --- masks, groups, caps, norms, slopes ---------------------------------------------------------


def test_groups_share_keys_and_values() -> None:
    heads = made("llama").heads(0)
    np.testing.assert_array_equal(heads[0].K, heads[1].K)
    np.testing.assert_array_equal(heads[2].W_V, heads[3].W_V)
    assert np.abs(heads[1].K - heads[2].K).max() > 0.1
    assert np.abs(heads[0].A - heads[1].A).max() > 0.01  # but not their queries
    shared = made("gemma").heads(0)
    assert all(np.array_equal(head.K, shared[0].K) for head in shared)


@pytest.mark.parametrize(
    ("family", "layer", "reach"),
    [("mistral", 0, 4), ("gemma2", 0, 4), ("qwen3", 1, 4), ("modernbert", 1, 4), ("llama", 0, 16),
     ("gemma2", 1, 16), ("qwen3", 0, 16), ("modernbert", 0, 16), ("phi3", 0, 4), ("cohere2", 0, 4),
     ("cohere2", 1, 16), ("gpt_oss", 0, 4), ("gemma3_text", 0, 4)],
)  # fmt: skip
def test_windows_end_where_the_models_do(family, layer, reach) -> None:
    m = made(family)
    P = m.trace(IDS).attentions[layer]
    i, j = np.nonzero(P[0])
    assert (i - j).max() == reach and (j - i).max() == (reach if family == "modernbert" else 0)
    ours = m.heads(layer)[0].weights(m.trace(IDS).seen[layer])
    np.testing.assert_array_equal(ours > 0, P[0] > 0)


def test_caps_norms_and_slopes_matter() -> None:
    """Without them the rebuilt attention is wrong: the agreement is not for lack of a test."""
    from dataclasses import replace

    for family, without in [("gemma2", {"cap": None}), ("qwen3", {"norm": None}),
                            ("bloom", {"slope": 0.0}), ("llama", {"rotary": None}),
                            ("gptj", {"rotary": None}), ("olmo2", {"norm": None}),
                            ("gpt_oss", {"sink": None})]:  # fmt: skip
        m = made(family)
        trace = m.trace(IDS)
        head = m.heads(1)[3]
        right, wrong = head.weights(trace.seen[1]), replace(head, **without).weights(trace.seen[1])
        np.testing.assert_allclose(right, trace.attentions[1, 3], atol=1e-12)
        assert np.abs(wrong - right).max() > 1e-3, family


@pytest.mark.parametrize("heads", [2, 6])  # 6 is no power of 2: its slopes are no powers either
def test_slopes_of_bloom(heads) -> None:
    m = made("bloom", n_head=heads)
    assert rebuilt(m, IDS) < 1e-12
    assert all(head.slope > 0 for head in m.heads(0))  # nearer tokens have larger scores


def test_the_norm_of_queries_lifts_and_moves_inside() -> None:
    head = made("qwen3", attention_bias=True).heads(0)[1]
    assert head.b_Q.any()
    x = np.random.default_rng(0).standard_normal((9, 24))
    one = np.column_stack([x, np.ones(9)])
    np.testing.assert_allclose(head.lifted().weights(one), head.weights(x), atol=1e-12)
    np.testing.assert_allclose(head.inside().scores(x @ head.basis), head.scores(x), atol=1e-10)
    # longer tokens, the same scores: what the norm is for
    np.testing.assert_allclose(
        made("qwen3").heads(0)[1].scores(7 * x), made("qwen3").heads(0)[1].scores(x), atol=1e-4
    )


# --- variants of blocks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "changed"),
    [("opt", {"do_layer_norm_before": False}), ("gpt_neox", {"use_parallel_residual": False}),
     ("bloom", {"apply_residual_connection_post_layernorm": True}),
     ("gpt_neox", {"attention_bias": False}), ("modernbert", {"attention_bias": True}),
     ("opt", {"enable_bias": False}), ("opt", {"word_embed_proj_dim": 12}),
     ("llama", {"attention_bias": True}),
     ("falcon", {"new_decoder_architecture": False, "multi_query": True}),
     ("falcon", {"new_decoder_architecture": False, "multi_query": False, "num_kv_heads": 4}),
     ("falcon", {"new_decoder_architecture": False, "parallel_attn": False}),
     ("stablelm", {"use_parallel_residual": True, "use_qkv_bias": False}),
     ("gpt_oss", {"attention_bias": True}),
     ("phi3", {"rope_parameters": {"rope_theta": 100.0, "rope_type": "default",
                                   "partial_rotary_factor": 0.7}})],
)  # fmt: skip
def test_variants_of_a_family(family, changed) -> None:
    m = made(family, **changed)
    assert rebuilt(m, IDS) < 1e-12
    trace = m.trace(IDS)
    z, seen = trace.z[1], trace.seen[1]
    once = m.iterate(z, 1, 1, parts="attention").values[1]
    added = sum(head.output(seen) for head in m.heads(1)) + m.output_bias(1)
    start = seen if "apply_residual_connection_post_layernorm" in changed else z
    if changed == {"do_layer_norm_before": False}:
        norm = m.model.decoder.layers[1].self_attn_layer_norm
        expected = norm(torch.tensor(z + added)).detach().numpy()
    else:
        expected = start + added
    np.testing.assert_allclose(once, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("family", "flag"),
    [("phi", "qk_layernorm"), ("stablelm", "qk_layernorm"), ("cohere", "use_qk_norm"),
     ("falcon", "alibi")],
)  # fmt: skip
def test_variants_that_are_not_rebuilt_say_so(family, flag) -> None:
    m = made(family, **{flag: True})
    with pytest.raises(ValueError, match=rf"{family} with {flag}=True .*trace\(\) still runs"):
        m.heads(0)
    assert m.trace(IDS).attentions.any()


def test_what_float64_needs_is_put_back() -> None:
    """The library's rounded tables and its grouped experts, when nobody looks any more."""
    m = made("gptj")
    inner = m.model.h[0].attn
    before = inner.embed_positions
    m.trace(IDS)
    assert inner.embed_positions is before
    moe = made("mixtral")
    kind = moe.model.config._experts_implementation
    moe.trace(IDS)
    assert moe.model.config._experts_implementation == kind != "eager"
    assert made("falcon").model.config._attn_implementation == "sdpa"


def test_a_norm_over_all_heads_has_their_biases() -> None:
    assert rebuilt(made("olmo2", attention_bias=True), IDS) < 1e-12


def test_rows_of_a_head_with_a_sink_sum_to_less_than_1() -> None:
    m = made("gpt_oss")
    x = m.trace(IDS).seen[0]
    head = m.heads(0)[1]
    P, s = head.weights(x)[3, :4], head.scores(x)[3, :4]
    lost = 1 / (1 + np.exp(s - head.sink).sum())
    assert P.sum() == pytest.approx(1 - lost, abs=1e-14) and 1e-3 < lost < 1


HUB = {
    "bert": "BertForMaskedLM",
    "bloom": "BloomForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "gptj": "GPTJForCausalLM",
    "llama": "LlamaForCausalLM",
    "modernbert": "ModernBertForMaskedLM",
    "mixtral": "MixtralForCausalLM",
    "opt": "OPTForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "vit": "ViTForImageClassification",
}


@pytest.mark.parametrize("family", HUB)
def test_a_folder_as_it_is_published(family, tmp_path) -> None:
    """With a task on top, in half precision: what folders of the hub hold."""
    whole = getattr(transformers, HUB[family])(tiny_config(family)).eval()
    whole.base_model.load_state_dict(tiny_model(family).state_dict(), strict=False)
    whole.bfloat16().save_pretrained(tmp_path)
    m = load_transformer(tmp_path, dtype="float64")
    given = np.random.default_rng(0).standard_normal((3, 16, 16)) if family == "vit" else IDS
    assert m.trace(given).attentions.std() > 0.01  # the weights of the file, not fresh ones
    assert rebuilt(m, given) < 1e-12
    name = m.adapter.output
    loaded = m.adapter.blocks(m.model)[1].get_submodule(name).weight
    saved = m.adapter.blocks(whole.base_model)[1].get_submodule(name).weight
    np.testing.assert_array_equal(loaded.detach().numpy(), saved.detach().double().numpy())


# --- pictures -----------------------------------------------------------------------------------


def test_patches_are_tokens_with_places() -> None:
    m = made("vit")
    picture = np.random.default_rng(0).standard_normal((3, 16, 16))
    trace = m.trace(picture)
    assert trace.words[:3] == ("[CLS]", "(0, 0)", "(0, 1)") and trace.words[-1] == "(3, 3)"
    assert trace.attentions.shape == (2, 4, 17, 17) and m.max_tokens == 17
    assert rebuilt(m, picture) < 1e-12
    with torch.no_grad():
        out = m.model(torch.tensor(picture)[None], output_hidden_states=True)
    np.testing.assert_allclose(trace.z[1], out.hidden_states[1][0].numpy(), atol=1e-5)
    # the patch in row 2, column 1 is there: only its token enters differently when it changes
    other = picture.copy()
    other[:, 8:12, 4:8] += 1
    moved = np.abs(m.trace(other).z[0] - trace.z[0]).max(axis=1) > 1e-6
    assert [trace.words[i] for i in np.flatnonzero(moved)] == ["(2, 1)"]
    again = m.trace(trace.z[0])
    np.testing.assert_allclose(again.z, trace.z, atol=1e-12)
    once = m.iterate(picture, 1, 1)
    np.testing.assert_allclose(once.values[1], trace.z[2], atol=1e-12)
    few = m.trace(np.random.default_rng(1).standard_normal((5, 24)))  # any number of tokens
    assert few.attentions.shape[-1] == 5


@pytest.mark.parametrize("wrong", ["a text", [1, 2, 3], np.zeros((3, 8, 8))])
def test_what_is_no_picture(wrong) -> None:
    with pytest.raises(ValueError, match=r"reads pictures.*\(3, 16, 16\)"):
        made("vit").trace(wrong)


def test_every_family_is_in_a_file_found_by_listing() -> None:
    from importlib import import_module
    from pathlib import Path

    from cynosure.pretrained import families

    files = {path.stem for path in Path(families.__file__).parent.glob("*.py")}
    files -= {"__init__", "adapter"}
    found = [kind for x in files for kind in import_module(f"{families.__name__}.{x}").ADAPTERS]
    assert len(found) == len(set(found))  # no family in two files
    assert set(found) == set(families.ADAPTERS) == set(CONFIGS)
