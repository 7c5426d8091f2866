"""Models and texts that cannot be read: one line that says what to do, exit code 2 on the way."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cynosure.cli import main
from cynosure.pretrained import load_transformer
from cynosure.pretrained.loading import memory
from tiny_models import TEXT, tiny_config, tiny_model, tiny_tokenizer

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


def tokenized(**changed) -> Callable[[Path], None]:
    return configured("tokenizer_config.json", **changed)


def configured(name: str = "config.json", **changed) -> Callable[[Path], None]:
    """A config.json that says something else than the weights, or nothing sensible."""

    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    return spoil


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


CASES = [
    (unsupported, [], "models of type 'mamba' are not supported; supported are albert, bert"),
    (unsupported, [], "where a block of 'mamba' has its attention"),
    (weightless, [], "no weights; expected model.safetensors"),
    (shardless, [], "model-2.safetensors"),
    (pickled, [], "from_pretrained('llama').save_pretrained('llama-safe')"),
    (foreign, [TEXT], "it belongs to another model"),
    (written("config.json", '{"model_type": "lla'), [], "not JSON"),
    (written("config.json", "[" * 100_000), [], "nested too deeply"),
    (written("tokenizer_config.json", "[]"), [], "no tokenizer could be read. AttributeError"),
    (configured(hidden_size=32), [], "weights of other shapes; the file does not belong to"),
    (configured(num_key_value_heads=4), [], "weights of other shapes; the file does not belong to"),
    (configured(num_hidden_layers=3), [], "weights are missing, among them layers.2."),
    (configured(num_hidden_layers=1), [], "layers.1.input_layernorm.weight is of a layer that"),
    (configured(num_hidden_layers=0), [], "is of a layer that config.json does not have"),
    (configured(num_hidden_layers=10**9), [], "num_hidden_layers 1000000000 and the weights are"),
    (configured(rms_norm_eps=float("nan")), [], "rms_norm_eps is NaN; expected a number"),
    (tokenized(model_max_length=-1), [], "model_max_length -1, expected at least 1"),
    (tokenized(model_max_length="x"), [], "model_max_length 'x', expected at least 1"),
    (configured(hidden_size=-24), [], "negative dimension -24"),
    (configured(hidden_size="24"), [], "no config could be read"),
    (configured(hidden_act="nope"), [], "KeyError: 'nope'. Its config.json is damaged"),
    (sick, [], "1 of 288 numbers of layers.1.self_attn.k_proj.weight are NaN or infinite"),
]


@pytest.mark.parametrize(("spoil", "more", "words"), CASES)
def test_a_bad_model_is_one_line_and_exit_2(folder, spoil, more, words, capsys) -> None:
    spoil(folder)
    what = "text" if more else "heads"
    assert main(["inspect", what, str(folder), *more]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err and "Traceback" not in err


def test_the_model_of_these_cases_is_read_while_it_is_whole(folder) -> None:
    assert main(["inspect", "text", str(folder), TEXT]) == 0


def test_a_file_a_text_and_a_picture_in_the_wrong_place(folder, tmp_path, capsys) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\n")
    shutil.copytree(folder, tmp_path / "mute")
    (tmp_path / "mute" / "tokenizer.json").unlink()
    (tmp_path / "mute" / "tokenizer_config.json").unlink()
    tiny_model("vit").save_pretrained(tmp_path / "vit")
    store = [str(lines), "--store", str(tmp_path / "c.zarr")]
    cases = [
        (
            "heads",
            folder / "config.json",
            [],
            "a file and no folder; expected one with config.json",
        ),
        ("image", folder, ["p.png"], "llama reads texts (inspect text), not pictures"),
        ("text", tmp_path / "vit", [TEXT], "vit reads pictures (inspect image), not texts"),
        ("survey", tmp_path / "vit", store, "vit reads pictures, and can read none"),
        (
            "survey",
            tmp_path / "mute",
            store,
            "mute has no tokenizer, and can read none",
        ),
        ("text", tmp_path / "mute", [TEXT], "add tokenizer.json to its folder"),
    ]
    for what, model, more, words in cases:
        assert main(["inspect", what, str(model), *more]) == 2
        err = capsys.readouterr().err
        assert words in err and err.count("error:") == 1 and "Traceback" not in err
    assert not (tmp_path / "c.zarr").exists()
    with pytest.raises(TypeError, match="this model reads no pictures; got PosixPath"):
        load_transformer(folder).trace(Path("p.png"))


def test_the_library_adds_no_table_of_its_own(folder) -> None:
    import logging

    said: list[logging.LogRecord] = []
    handler, logger = logging.Handler(), logging.getLogger("transformers")
    handler.emit = said.append  # type: ignore[method-assign]
    level = logger.level
    configured(hidden_size=32)(folder)
    logger.addHandler(handler)
    try:
        with pytest.raises(ValueError, match="other shapes"):
            load_transformer(folder)
    finally:
        logger.removeHandler(handler)
    assert not said and logger.level == level


def test_a_task_on_top_is_no_other_config(tmp_path) -> None:
    """Weights of a head for a task, with numbers of their own, are left out as they should be."""
    config = tiny_config("roberta", num_labels=3)
    transformers.RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    assert load_transformer(tmp_path).depth == 2


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="0 layers"):
        load_transformer(tiny_model("gpt2", tiny_config("gpt2", n_layer=0)))


def test_the_advice_on_pickles_works(folder, tmp_path, monkeypatch) -> None:
    pickled(folder)
    with pytest.raises(ValueError, match="pickled") as refused:
        load_transformer(folder)
    monkeypatch.chdir(folder.parent)
    (line,) = re.findall(r"transformers\.AutoModel\S+", str(refused.value))
    exec(line, {"transformers": transformers})
    assert load_transformer(folder.parent / "llama-safe").depth == 2


def test_a_text_longer_than_the_model_is_cut_and_said(folder, capsys) -> None:
    long = ["inspect", "text", str(folder), "film " * 60]
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
    assert main(["inspect", "heads", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "the model takes about" in err and "bfloat16" in err
    assert "fewer tokens" not in err  # which would not help


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
