"""The published sentiment model: read without unpickling, decided as its authors' loop decides."""

from __future__ import annotations

import pickle
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy
from cynosure.classifier.published import PublishedModel, load_published, published_words

LEADERS = (
    "great worst waste love awful money year amazing boring perfect left enjoyed people found poor"
).split()


def their_loop(model: PublishedModel, rows: np.ndarray) -> float:
    """Layer by layer and token by token, ties shared by all maxima."""
    z = model.embedding[rows]
    for _ in range(model.layers):
        new = np.empty_like(z)
        for i in range(len(z)):
            score = z @ z[i]
            best = np.flatnonzero(score == score.max())
            new[i] = (z[i] + model.alpha * z[best].mean(axis=0)) / (1 + model.alpha)
        z = new
    return float(z.mean(axis=0) @ model.decoder + model.bias)


def made_up(rows: int = 40, d: int = 2, **more) -> PublishedModel:
    draw = np.random.default_rng(3)
    words = ["", *(f"w{i}" for i in range(1, rows))]
    given = {"words": words, "length": 20, **more}
    return PublishedModel(
        draw.standard_normal((rows, d)), 1.3, draw.standard_normal(d), 0.2, **given
    )


@pytest.mark.parametrize("padding", [0, None])
@pytest.mark.parametrize("d", [2, 5])
def test_decisions_are_those_of_the_published_loop(d: int, padding: int | None) -> None:
    model, draw = made_up(d=d, padding=padding), np.random.default_rng(7)
    texts = [draw.integers(1, 40, draw.integers(1, 30)) for _ in range(40)]
    expected = [their_loop(model, model.rows_of(text)) for text in texts]
    found = model.decision_function(texts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert found[3] == pytest.approx(model.read(texts[3]).decision, abs=1e-12)
    assert (model.predict(texts) == (np.array(expected) > 0)).all()


def test_a_text_is_cut_filled_up_and_repeats_count() -> None:
    model = made_up()
    assert model.rows_of(["w3", "w3", "w5"]).tolist() == [3, 3, 5] + [0] * 17
    assert len(model.rows_of([f"w{i}" for i in range(1, 40)])) == 20
    once, twice = (model.decision_function([t])[0] for t in (["w3", "w5"], ["w3", "w3", "w5"]))
    assert once != twice
    reading = model.read(["w3", "nowhere", "w5"])
    assert reading.unknown == ("nowhere",) and reading.words[:3] == ("w3", "w5", "(padding)")
    assert set(reading.leaders) <= {"w3", "w5", "(padding)"}


@pytest.mark.parametrize(
    ("text", "message"),
    [([40], "0 to 39"), ([1.5], "whole numbers"), ([-1], "0 to 39"), ([[1]], "whole numbers")],
)
def test_rows_that_are_none_are_refused(text: list, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        made_up().read(np.array(text))


def test_a_text_without_a_known_word_is_refused_where_nothing_fills_it_up() -> None:
    with pytest.raises(ValueError, match="no word of it"):
        made_up(padding=None).read("nothing here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoder": [1.0]}, "shapes"),
        ({"words": ["a"]}, "one for each"),
        ({"padding": 99}, "padding"),
        ({"alpha": -1.0}, "alpha"),
        ({"embedding": [[np.nan, 1.0]], "words": None}, "finite"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict, message: str) -> None:
    good = {"embedding": np.ones((3, 2)), "alpha": 1.0, "decoder": np.ones(2), "bias": 0.0}
    with pytest.raises(ValueError, match=message):
        PublishedModel(**good | change)


def test_words_are_prepared_as_in_the_paper() -> None:
    known = dict.fromkeys("film story wife woman church".split())
    text = "Soooo good!<br />The films' stories: 2 women, http://x.y/z wives café the churches"
    assert published_words(text, known) == (
        ["Soo", "good", "The", "film", "story", "woman", "wife", "caf", "church"]
    )


def test_the_picture_names_the_leaders() -> None:
    model, words = made_up(), ["w3", "w7", "w9", "w11"]
    figure = model.picture(words)
    names = {text.get_text() for ax in figure.axes for text in ax.texts}
    assert set(model.read(words).leaders) <= names
    assert len(made_up(d=3).picture(words, show=(0, 2, 8)).axes) >= 3


# --- the file ------------------------------------------------------------------------------------


def saved(path: Path, d: int = 3) -> dict[str, np.ndarray]:
    """A module laid out as the published one is, saved whole by torch."""
    torch = pytest.importorskip("torch")
    module, attention = torch.nn.Module(), torch.nn.Module()
    module.encoder = torch.nn.Embedding(11, d)
    attention.alpha = torch.nn.Parameter(torch.tensor([0.7]))
    module.attention = attention
    module.decoder = torch.nn.Linear(d, 1)
    torch.save(module, path)
    return {name: x.detach().numpy() for name, x in module.state_dict().items()}


@pytest.mark.parametrize("d", [1, 3])
def test_a_saved_module_is_read_as_it_is(tmp_path: Path, d: int) -> None:
    expected = saved(tmp_path / "model.pth", d)
    (tmp_path / "vocabulary.tsv").write_text("1\tgood\n10\tbad\n")
    model = load_published(tmp_path)
    np.testing.assert_array_equal(model.embedding, expected["encoder.weight"])
    np.testing.assert_array_equal(model.decoder, expected["decoder.weight"][0])
    assert model.alpha == pytest.approx(0.7) and model.bias == expected["decoder.bias"][0]
    assert model.rows["bad"] == 10 and model.words is not None and model.words[2] == ""


class Evil:
    def __reduce__(self) -> tuple:
        return (Path("pwned").write_text, ("x",))


def test_nothing_in_the_file_is_carried_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("evil.pth", "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps({"encoder": Evil()}, 2))
    with pytest.raises(ValueError, match=r"no encoder\.weight in it"):
        load_published("evil.pth")
    assert not Path("pwned").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    bad = tmp_path / "x.pth"
    bad.write_bytes(pickle.dumps([1]))
    with pytest.raises(ValueError, match="no zip"):
        load_published(bad)
    saved(bad)
    with zipfile.ZipFile(bad) as whole:
        parts = {i.filename: whole.read(i) for i in whole.infolist()}
    key = next(name for name in parts if name.endswith("data/0"))
    for cut, message in ((parts[key][:-4], "cut short"), (b"", "cut short")):
        with zipfile.ZipFile(bad, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, cut if name == key else data)
        with pytest.raises(ValueError, match=message):
            load_published(bad)
    with pytest.raises(ValueError, match=r"expected one \.pth"):
        load_published(tmp_path / "..")
    (tmp_path / "v.tsv").write_text("99\tword\n")
    saved(bad)
    with pytest.raises(ValueError, match="line 1: expected a row below 11"):
        load_published(bad, tmp_path / "v.tsv")


# --- the authors' own ----------------------------------------------------------------------------


def test_the_published_model_decides_as_published(published: Path, imdb: Path) -> None:
    model = cy.classifier.load_published(published)
    assert model.embedding.shape == (121_296, 2) and model.alpha == pytest.approx(2.35279, abs=5e-6)
    np.testing.assert_allclose(model.decoder, (-7.287, 5.710), atol=5e-4)
    with np.load(published / "reviews_128.npz") as data:
        ids = data["ids"]
    some = ids[np.linspace(0, len(ids) - 1, 60).astype(int)]
    found = model.decision_function(list(some))
    np.testing.assert_allclose(found, [their_loop(model, x) for x in some], rtol=0, atol=1e-12)
    with tarfile.open(imdb) as archive:
        name = next(n for n in archive.getnames() if "/test/pos/5514_" in f"/{n}")
        review = model.read(archive.extractfile(name).read().decode())
    assert set(review.leaders) == {"amazing", "get", "torture", "time"}
    np.testing.assert_allclose(review.mean, (-0.967, 0.238), atol=5e-4)


@pytest.mark.slow
def test_the_published_leaders_lead(published: Path) -> None:
    """Their histogram: reviews decided rightly with confidence above 0.95, leaders far out."""
    model = cy.classifier.load_published(published)
    with np.load(published / "reviews_128.npz") as data:
        ids, label = data["ids"][::5], data["label"][::5]
    decision = model.decision_function(list(ids))
    score = model.embedding @ model.decoder + model.bias
    count: Counter[str] = Counter()
    for x in ids[(np.abs(decision) > np.log(0.95 / 0.05)) & ((decision > 0) == (label > 0))]:
        led = [model.rows[w] for w in model.read(x).leaders if w in model.rows]
        count.update(model.words[j] for j in led if abs(score[j]) > 2)
    assert len({word for word, _ in count.most_common(15)} & set(LEADERS)) >= 14
