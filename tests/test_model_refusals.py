"""Models and texts that cannot be read: one line that says what to do, exit code 2 on the way."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from cynosure.cli import main
from cynosure.pretrained import load_transformer, memory
from tiny_models import TEXT, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("refused") / "llama"
    tiny_model("llama").save_pretrained(path)
    tiny_tokenizer("llama").save_pretrained(path)
    return path


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "llama"))


def weights(folder: Path) -> dict:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def save(folder: Path, tensors: dict) -> None:
    from safetensors.torch import save_file

    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def unsupported(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))


def weightless(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def shardless(folder: Path) -> None:
    """An index that names a file which was not fetched."""
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights(folder), "model-2.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()


def pickled(folder: Path) -> None:
    torch.save(weights(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def foreign(folder: Path) -> None:
    """The tokenizer of a model with more words."""
    more = tiny_tokenizer("llama")
    more.add_tokens([f"word{i}" for i in range(200)] + ["slow but"])
    more.save_pretrained(folder)


def sick(folder: Path) -> None:
    found = weights(folder)
    found["layers.1.self_attn.k_proj.weight"][3, 4] = float("nan")
    save(folder, found)


CASES = [
    (unsupported, [], "models of type 'mamba' are not supported; supported are albert, bert"),
    (unsupported, [], "where a block of 'mamba' has its attention"),
    (weightless, [], "no weights; expected model.safetensors"),
    (shardless, [], "model-2.safetensors"),
    (pickled, [], "from_pretrained('llama').save_pretrained('llama-safe')"),
    (foreign, ["--text", TEXT], "it belongs to another model"),
    (sick, [], "1 of 288 numbers of layers.1.self_attn.k_proj.weight are NaN or infinite"),
]


@pytest.mark.parametrize(("spoil", "more", "words"), CASES)
def test_a_bad_model_is_one_line_and_exit_2(folder, spoil, more, words, capsys) -> None:
    assert main(["inspect", str(folder), *more]) == 0  # whole, it is read
    capsys.readouterr()
    spoil(folder)
    assert main(["inspect", str(folder), *more]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err and "Traceback" not in err


def test_the_advice_on_pickles_works(folder, tmp_path, monkeypatch) -> None:
    pickled(folder)
    with pytest.raises(ValueError, match="pickled") as refused:
        load_transformer(folder)
    monkeypatch.chdir(folder.parent)
    (line,) = re.findall(r"transformers\.AutoModel\S+", str(refused.value))
    exec(line, {"transformers": transformers})
    assert load_transformer(folder.parent / "llama-safe").depth == 2


def test_a_text_longer_than_the_model_is_cut_and_said(folder, capsys) -> None:
    long = ["inspect", str(folder), "--text", "film " * 60]
    assert main(long) == 0
    assert "the model takes 40: cut after character" in capsys.readouterr().err


def test_a_model_in_memory_with_sick_weights() -> None:
    model = tiny_model("gpt2")
    with torch.no_grad():
        model.h[0].attn.c_attn.weight[0, 0] = float("inf")
    with pytest.raises(ValueError, match=r"1 of 1728 numbers of h\.0\.attn\.c_attn\.weight"):
        load_transformer(model)


def test_what_does_not_fit_is_refused_before_it_is_begun(folder, monkeypatch, capsys) -> None:
    m = load_transformer(folder)
    needed = 2 * 4 * 2 * 17 * (4 * 17 + 2 * 24)  # twice P and tokens, in float32
    monkeypatch.setattr(memory, "available", lambda: needed)
    assert m.trace(list(range(3, 20))).attentions.any()
    monkeypatch.setattr(memory, "available", lambda: needed - 1)
    with pytest.raises(MemoryError, match=r"P of 2 layers, 4 heads, 17 tokens.*survey"):
        m.trace(list(range(3, 20)))
    monkeypatch.setattr(memory, "available", lambda: 1000)
    assert main(["inspect", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "the model takes about" in err and "bfloat16" in err


def test_memory_that_runs_out_on_the_way_is_one_line() -> None:
    with (
        pytest.raises(MemoryError, match=r"can't allocate memory.*take less"),
        memory.told("take less"),
    ):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="size"), memory.told("take less"):
        torch.zeros(3) @ torch.zeros(4)


def test_free_memory_is_read_where_the_system_says_it() -> None:
    free = memory.available()
    assert free is None or 1e6 < free < 1e15
    assert memory.in_words(1_500_000_000) == "1.5 GB" and memory.in_words(30_000_000) == "30 MB"
