"""BERT in NumPy, which answers while torch is imported: as the model itself, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cynosure.pretrained import load_transformer
from cynosure.pretrained.reading.plain import plain
from cynosure.web.answers.transformers import transformer_answers
from test_architecture import _loaded_by
from tiny_models import TEXT, WORDS, tiny_config, tiny_model

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")

ASKED = {"transformer": None, "text": TEXT, "words": False, "layer": 0, "head": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A BERT of two layers with the tokenizer of BERT."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TEXT.lower().strip(".").split()]
    pieces += [".", "##s", "##ly", *map(chr, range(ord("a"), ord("z") + 1))]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    transformers.BertTokenizer(vocab=vocabulary, model_max_length=16).save_pretrained(tmp_path)
    said = tmp_path / "tokenizer_config.json"
    said.write_text(json.dumps(json.loads(said.read_text()) | {"do_lower_case": True}))
    tiny_model("bert").save_pretrained(tmp_path)
    weights = safetensors.load_file(tmp_path / "model.safetensors")
    weights["embeddings.position_ids"] = np.arange(40)[None]  # as older files have it
    safetensors.save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path


@pytest.mark.parametrize("text", [TEXT, "films slowly", "a", "Slow, slow."])
@pytest.mark.parametrize("words", [False, True])
def test_it_is_the_model(folder: Path, text: str, words: bool) -> None:
    quick, m = plain(folder), load_transformer(folder)
    assert quick is not None and (quick.depth, quick.width) == (m.depth, m.width)
    try:
        trace = quick.trace(text, words=words)
    except LookupError:  # "," is unknown to the tokenizer, which the model's own trace says
        assert "," in text
        return
    own = m.trace(text, words=words)
    assert (trace.words, trace.groups, trace.names) == (own.words, own.groups, own.names)
    assert trace.trajectory.status == own.trajectory.status
    for found, right in (
        (trace.z, own.z),
        (trace.attentions, own.attentions),
        (trace.seen, own.seen),
    ):
        assert found.dtype == right.dtype and found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_it_reads_a_model_with_a_task_on_top(folder: Path) -> None:
    weights = safetensors.load_file(folder / "model.safetensors")
    named = {f"bert.{name}": values for name, values in weights.items()}
    named["classifier.weight"] = np.ones((2, WORDS["hidden_size"]), np.float32)
    safetensors.save_file(named, folder / "model.safetensors")
    own = load_transformer(folder).trace(TEXT)
    np.testing.assert_allclose(plain(folder).trace(TEXT).z, own.z, rtol=1e-4, atol=1e-5)


def _change(path: Path, **changed: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def test_it_leaves_alone_what_it_does_not_know(folder: Path) -> None:
    config, tokenizer = folder / "config.json", folder / "tokenizer_config.json"
    for path, changed in (
        (config, {"model_type": "electra"}), (config, {"hidden_act": "relu"}),
        (config, {"is_decoder": True}), (tokenizer, {"do_lower_case": False}),
    ):  # fmt: skip
        before = path.read_text()
        _change(path, **changed)
        assert plain(folder) is None, changed
        path.write_text(before)
    weights = safetensors.load_file(folder / "model.safetensors")
    broken = {name: values.copy() for name, values in weights.items()}
    broken["encoder.layer.1.output.dense.bias"][0] = np.nan
    safetensors.save_file(broken, folder / "model.safetensors")
    assert plain(folder) is None
    halves = {name: values.astype(np.float16) for name, values in weights.items()}
    safetensors.save_file(halves, folder / "model.safetensors")
    assert plain(folder) is None
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    assert plain(folder) is None and plain(folder / "nowhere") is None
    with pytest.raises(LookupError):
        safetensors.save_file(weights, folder / "model.safetensors")
        plain(folder).trace(20 * TEXT)  # longer than the model takes


def test_the_first_sentence_needs_no_torch(folder: Path) -> None:
    code = (
        "from cynosure.web.answers.transformers import transformer_answers\n"
        f"answers = transformer_answers({{'tiny': {str(folder)!r}}})\n"
        f"found = answers['trace']({ASKED!r}); assert len(found['words']) == 12, found['words']"
    )
    assert _loaded_by(code, "torch transformers matplotlib") == []


def test_a_torch_that_is_half_imported_is_in_nobodys_way(folder: Path, tmp_path: Path) -> None:
    """Sentences while torch is imported beside: here one that takes a second to have tensors."""
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "torch.py").write_text("import time\ntime.sleep(1)\nclass Tensor: ...\n")
    code = f"""
import sys, time
sys.path.insert(0, {str(slow)!r})
from cynosure.web.answers.transformers import transformer_answers
answers = transformer_answers({{"tiny": {str(folder)!r}}})
answers["trace"]({ASKED!r})
answers["ready"]({{}})
while "torch" not in sys.modules:
    time.sleep(0.01)
assert len(answers["trace"]({ASKED!r})["words"]) == 12
"""
    assert _loaded_by(code, "torch") == ["torch"]


def test_both_answer_a_sentence_alike(folder: Path) -> None:
    answers, told = transformer_answers({"tiny": str(folder)}), []
    first = answers["trace"](ASKED)
    answers["heads"](
        {"transformer": None, "layer": None, "head": None, "iterate": None, "text": None},
        lambda done, what="": told.append(done),
    )
    assert told == sorted(told) and told[0] < 0.3  # the model was loaded, and said how far it is
    second = answers["trace"](ASKED)
    assert set(first) == set(second) and first["words"] == second["words"]
    np.testing.assert_allclose(first["P"], second["P"], atol=2e-6)
    assert first["clusters"] == second["clusters"] and first["tokens"] == second["tokens"]


def test_a_folder_that_cannot_be_read_says_so_each_time(tmp_path: Path) -> None:
    tiny_config("bert").save_pretrained(tmp_path)
    answers = transformer_answers({"bad": str(tmp_path)})
    for _ in range(2):
        with pytest.raises(ValueError, match="no weights"):
            answers["trace"](ASKED)
