"""Surveys of many texts in a store: what is in it, and what an interruption leaves."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cynosure.cli import main
from cynosure.pretrained import load_transformer, open_surveys, survey_texts
from cynosure.pretrained.reading import corpora
from cynosure.pretrained.reading.transformer import Transformer
from tiny_models import TEXT, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xarray")
pytest.importorskip("zarr")

TEXTS = [TEXT, "The film was slow.", "but the ending", "   ", "wonderful " * 60, "is slow"]


@pytest.fixture(scope="module")
def m():
    return load_transformer(tiny_model("llama"), tokenizer=tiny_tokenizer("llama"))


def test_the_store_holds_the_surveys(m, tmp_path) -> None:
    told = []
    found = survey_texts(m, TEXTS, tmp_path / "c.zarr", progress=lambda *said: told.append(said))
    assert told == [(0.0, "text 0")]
    for i in (0, 1, 2, 5):
        alone = m.survey(TEXTS[i])
        for name, values in alone.heads.items():
            np.testing.assert_array_equal(found[name][i], values)
        for name, values in alone.tokens.items():
            np.testing.assert_array_equal(found[f"tokens_{name}"][i], values)
        assert int(found["n"][i]) == alone.n
    assert found["state"].values.tolist() == [1, 1, 1, 2, 1, 1]
    assert np.isnan(found["entropy"][3]).all() and int(found["n"][4]) == 40  # cut
    one_line = found["first_mass"].mean("text")
    assert one_line.dims == ("layer", "head")
    assert found.attrs["model"] == "llama"


def test_an_interrupted_store_goes_on(m, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(corpora, "BATCH", 2)
    calls: list[str] = []
    real = Transformer.survey

    def stopping(self, text):
        calls.append(text)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, text)

    monkeypatch.setattr(Transformer, "survey", stopping)
    with pytest.raises(KeyboardInterrupt):
        survey_texts(m, TEXTS, tmp_path / "c.zarr")
    half = open_surveys(tmp_path / "c.zarr")
    assert half["state"].values.tolist() == [1, 1, 0, 0, 0, 0]  # the third was lost with its batch
    assert survey_texts(m, TEXTS, tmp_path / "c.zarr")["state"].values.min() == 1
    assert calls[4:] == TEXTS[2:]  # what was done was not done again
    whole = survey_texts(m, TEXTS, tmp_path / "other.zarr")
    again = open_surveys(tmp_path / "c.zarr")
    for name in whole:
        np.testing.assert_array_equal(again[name], whole[name])


def test_other_stores_are_refused(m, tmp_path) -> None:
    survey_texts(m, TEXTS[:2], tmp_path / "c.zarr")
    with pytest.raises(ValueError, match="surveys of other texts"):
        survey_texts(m, TEXTS[:3], tmp_path / "c.zarr")
    other = load_transformer(tiny_model("llama", seed=1), tokenizer=tiny_tokenizer("llama"))
    with pytest.raises(ValueError, match="surveys of other weights"):
        survey_texts(other, TEXTS[:2], tmp_path / "c.zarr")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ValueError, match="is no store of surveys"):
        survey_texts(m, TEXTS[:2], tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    with pytest.raises(ValueError, match="no store of surveys"):
        open_surveys(tmp_path / "mine")
    with pytest.raises(ValueError, match="at least one"):
        survey_texts(m, [], tmp_path / "d.zarr")


def test_a_store_appears_whole(m, tmp_path, monkeypatch) -> None:
    """One that was interrupted while it was made could neither be gone on with nor be made."""
    real = corpora._create

    def stopping(*args) -> None:
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(corpora, "_create", stopping)
    with pytest.raises(KeyboardInterrupt):
        survey_texts(m, TEXTS[:2], tmp_path / "c.zarr")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(corpora, "_create", real)
    assert survey_texts(m, TEXTS[:2], tmp_path / "c.zarr")["state"].values.tolist() == [1, 1]


def test_a_damaged_store_is_said_to_be_one(m, tmp_path) -> None:
    survey_texts(m, TEXTS[:2], tmp_path / "c.zarr")
    (chunk,) = (path for path in (tmp_path / "c.zarr" / "state" / "c").rglob("*") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"c\.zarr: is damaged"):
        survey_texts(m, TEXTS[:2], tmp_path / "c.zarr")


def test_the_command(tmp_path, capsys) -> None:
    folder = tmp_path / "llama"
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer("llama").save_pretrained(folder)
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS[:3]) + "\n\n")
    asked = ["inspect", "survey", str(folder), str(lines), "--store", str(tmp_path / "c.zarr")]
    assert main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    found = open_surveys(tmp_path / "c.zarr")
    assert [row["layer"] for row in rows] == [0, 1] and found.sizes["text"] == 3
    assert rows[1]["entropy"] == pytest.approx(float(found["entropy"][:, 1].mean()))
    assert main(asked) == 0
    assert "first_mass" in capsys.readouterr().out
    assert main(asked[:4]) == 2
    assert "--store" in capsys.readouterr().err
    lines.write_text("other\n")
    assert main(asked) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "other texts" in err
