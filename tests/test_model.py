"""The model: fast reading against the plain layers, and its files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
from cynosure.classifier.model.model import Model, load_files, save_files
from cynosure.classifier.model.plane import Plane
from cynosure.classifier.text.documents import Documents
from cynosure.classifier.text.vocabulary import Vocabulary


def plane_of(embedding: np.ndarray, anchor: np.ndarray, rows: int = 1) -> Plane:
    draw = np.random.default_rng(5)
    v = draw.normal(size=(rows, embedding.shape[1]))
    return Plane(embedding, anchor, v, np.arange(float(rows)), np.full(rows, 0.25))


def on_rays(draw: np.random.Generator, terms: int, rays: int, shortest: float) -> Plane:
    angle = np.linspace(0.2, 3.0, rays)
    direction = np.column_stack((np.cos(angle), np.sin(angle)))
    ray = draw.integers(rays, size=terms)
    radius = draw.permutation(np.linspace(shortest, 1.0, terms))
    return plane_of(direction[ray] * radius[:, None], 1.01 * direction[0])


def documents_of(draw: np.random.Generator, texts: int, terms: int) -> Documents:
    rows = [draw.permutation(terms)[: draw.integers(terms + 1)] for _ in range(texts)]
    indptr = np.concatenate(([0], np.cumsum([len(r) for r in rows])))
    return Documents(indptr, np.concatenate(rows).astype(np.int32))


def slow_reading(model: Model, documents: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """decision, leaders and share, one text and plane at a time through `simulate`."""
    decision, leaders, share = [], [], []
    for i in range(len(documents)):
        row: list[float] = []
        led, on = [], []
        for plane in model.planes:
            anchor = plane.anchor if plane.kappa == np.inf else slow_anchor(plane, documents[i])
            z = np.concatenate((anchor[None], plane.embedding[documents[i]]))
            run = cy.simulate(cy.PureAttention(alpha=model.alpha), z, layers=model.layers)
            known = len(documents[i]) > 0
            row += (plane.b + plane.v @ run.z[-1].mean(axis=0) if known else plane.prior).tolist()
            assert run.history is not None
            born, since = run.history.born, run.history.settled_at
            rho = 1 / (1 + model.alpha)
            led.append(int((born >= 0).sum()))
            on.append(np.mean([
                1.0 if b >= 0 else 1 - rho ** (model.layers - s) if s >= 0 else 0.0
                for b, s in zip(born, since, strict=True)
            ]))  # fmt: skip
        decision.append(row)
        leaders.append(led)
        share.append(on)
    return np.array(decision), np.array(leaders), np.array(share)


def slow_anchor(plane: Plane, terms: np.ndarray) -> np.ndarray:
    """The anchor (0, R) by the rule itself, one term after the other, strongest first."""
    u = plane.embedding[:, 0] / np.linalg.norm(plane.embedding, axis=1)
    sizes = np.unique(np.round(np.abs([0.0, *u]), 9))
    mine = sorted((abs(round(float(x), 9)), float(x)) for x in u[terms])[::-1]
    read, rest = 0.0, sum(x * x for _, x in mine)
    silent = 0.0
    while mine and mine[0][0] > 0:
        size = mine[0][0]
        while mine and mine[0][0] == size:  # equal sizes are read together
            _, x = mine.pop(0)
            read, rest = read + x, rest - x * x
        if abs(read) >= plane.kappa * np.sqrt(max(rest, 0.0)):
            silent = max((float(x) for x in sizes if x < size), default=0.0)
            break
    above = min((float(x) for x in sizes if x > silent), default=1.0)
    length = ((1 - silent**2) * (1 - above**2)) ** -0.25
    return np.array([0.0, length * np.linalg.norm(plane.embedding, axis=1).max()])


def graded_plane(draw: np.random.Generator, terms: int, kappa: float) -> Plane:
    """Words as Placed puts them: few symmetric grades, radii a hair below 1."""
    u = draw.choice([-0.9, -0.6, -0.35, -0.1, 0.0, 0.1, 0.35, 0.6, 0.9], size=terms)
    radius = draw.permutation(np.linspace(0.9999, 1.0, terms + 1)[:-1])
    embedding = np.column_stack((u, np.sqrt(1 - u**2))) * radius[:, None]
    v = np.array([[3.0, 0.0]])
    return Plane(embedding, np.array([0.0, 1.0]), v, np.ones(1), np.zeros(1), 1.0, kappa)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.4, 1.0, 1.7, 5.0, np.inf]))
def test_the_layers_silence_what_the_rule_leaves_unread(seed: int, kappa: float) -> None:
    """The fast path against the certified layers, with the anchor put there by hand."""
    draw = np.random.default_rng(seed)
    plane, documents = graded_plane(draw, 14, kappa), documents_of(draw, 5, 14)
    assert plane.rays is not None and plane.rays.apart
    for layers in (0, 1, 7):
        model = Model((plane,), 1.0, layers)
        reading, slow = model.read(documents), slow_reading(model, documents)
        np.testing.assert_allclose(reading.decision, slow[0], rtol=0, atol=1e-12)
        assert reading.leaders.tolist() == slow[1].tolist()
        np.testing.assert_allclose(reading.on_leaders, slow[2], rtol=0, atol=1e-12)
        _, led, _ = model._along_rays(plane, plane.rays, documents, plane.lengths(documents))
        assert (led >= 0).all()  # none was left to the general path
        again = Model((plane,), 1.0, 3).read(documents, layers=layers)
        assert (again.decision == reading.decision).all()
    u = plane.embedding[:, 0] / np.linalg.norm(plane.embedding, axis=1)
    for terms, said in zip(map(documents.__getitem__, range(5)), reading.speaking[:, 0].tolist()):
        _, R = slow_anchor(plane, terms) if kappa < np.inf else (0.0, 1.0)
        loud = np.abs(u[terms]) > np.sqrt(1 - 1 / R**2) if R > 1 else np.abs(u[terms]) > 1e-9
        assert said == loud.sum()


def test_the_general_path_reads_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(3)
    plane, documents = graded_plane(draw, 14, 1.2), documents_of(draw, 20, 14)
    fast = Model((plane,), 1.0, 6).read(documents)
    monkeypatch.setattr(
        Model,
        "_along_rays",
        lambda self, plane, rays, documents, length: (
            np.zeros((len(documents), 2)), np.full(len(documents), -1), np.zeros(len(documents))
        ),
    )  # fmt: skip
    slow = Model((plane,), 1.0, 6).read(documents)
    np.testing.assert_allclose(fast.decision, slow.decision, rtol=0, atol=1e-12)
    assert (fast.speaking == slow.speaking).all() and (fast.leaders == slow.leaders).all()
    assert (
        0
        < fast.speaking.sum()
        < Model((replace(plane, kappa=np.inf),)).read(documents).speaking.sum()
    )


def test_the_order_of_the_terms_does_not_matter() -> None:
    draw = np.random.default_rng(1)
    plane = graded_plane(draw, 30, 1.3)
    terms = draw.permutation(30)[:20].astype(np.int32)
    both = np.concatenate((terms, terms[::-1]))
    one, other = Model((plane,)).read(Documents(np.array([0, 20, 40]), both)).decision
    assert one == pytest.approx(other, abs=1e-14)
    assert len(set(plane.lengths(Documents(np.array([0, 20, 40]), both)).tolist())) == 1


@pytest.mark.parametrize("kappa", [-1.0, float("nan")])
def test_kappa_is_a_number(kappa: float) -> None:
    with pytest.raises(ValueError, match="kappa"):
        graded_plane(np.random.default_rng(0), 5, kappa)


def test_only_words_on_few_rays_are_read_by_strength() -> None:
    draw = np.random.default_rng(0)
    plane = plane_of(draw.normal(size=(3000, 2)), np.ones(2))
    with pytest.raises(ValueError, match="few rays"):
        replace(plane, kappa=1.0)
    behind = np.array([[1.0, 0.2], [0.3, -1.0]])
    with pytest.raises(ValueError, match="neutral token's side"):
        Plane(behind, np.array([0.0, 1.0]), np.ones((1, 2)), np.ones(1), np.ones(1), 1.0, 1.0)


@given(st.integers(0, 10_000), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.3, 0.99]))
def test_reading_along_rays_is_the_plain_layers(seed: int, alpha: float, shortest: float) -> None:
    draw = np.random.default_rng(seed)
    plane = on_rays(draw, 12, 5, shortest)
    assert plane.rays is not None and len(plane.rays.direction) <= 5
    model, documents = Model((plane,), alpha, 6), documents_of(draw, 4, 12)
    reading, slow = model.read(documents), slow_reading(model, documents)
    np.testing.assert_allclose(reading.decision, slow[0], rtol=0, atol=1e-12)
    assert reading.leaders.tolist() == slow[1].tolist()
    np.testing.assert_allclose(reading.on_leaders, slow[2], rtol=0, atol=1e-12)


def test_both_ways_along_rays_are_taken() -> None:
    """Close radii settle at once; very different ones need the general path."""
    draw = np.random.default_rng(0)
    documents = documents_of(draw, 30, 12)
    for shortest, all_sure in ((0.99, True), (0.3, False)):
        plane = on_rays(draw, 12, 5, shortest)
        assert plane.rays is not None
        once = np.full(30, 1.01)
        _, led, _ = Model((plane,), 1.0, 6)._along_rays(plane, plane.rays, documents, once)
        assert (led >= 0).all() == all_sure and (led >= 0).any()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_reading_any_embedding_is_the_plain_layers(d: int) -> None:
    draw = np.random.default_rng(d)
    planes = tuple(
        plane_of(draw.normal(size=(600, d)), draw.normal(size=d), rows) for rows in (1, 2)
    )
    model, documents = Model(planes, 0.7, 5), documents_of(draw, 6, 40)
    assert d == 1 or planes[0].rays is None
    reading, slow = model.read(documents), slow_reading(model, documents)
    np.testing.assert_allclose(reading.decision, slow[0], rtol=0, atol=1e-12)
    assert reading.leaders.tolist() == slow[1].tolist()
    np.testing.assert_allclose(reading.on_leaders, slow[2], rtol=0, atol=1e-12)
    assert [model.locate(r) for r in range(3)] == [(0, 0), (1, 0), (1, 1)]
    with pytest.raises(IndexError):
        model.locate(3)


@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([0.3, 0.99, None]))
def test_the_anchor_counts_as_equal_anchors_would(
    seed: int, count: int, shortest: float | None
) -> None:
    """Along rays and in general; the oracle really puts `count` anchors into the layers."""
    draw = np.random.default_rng(seed)
    plane = on_rays(draw, 12, 5, shortest or 0.5)
    if shortest is None:
        plane = plane_of(draw.normal(size=(12, 3)), draw.normal(size=3))
    model = Model((replace(plane, count=float(count)),), 0.8, 4)
    documents = documents_of(draw, 3, 12)
    for decision, terms in zip(
        model.read(documents).decision, map(documents.__getitem__, range(3))
    ):
        z = np.concatenate([plane.anchor[None]] * count + [plane.embedding[terms]])
        last = cy.simulate(model.dynamics, z, layers=4).z[-1]
        truth = plane.b + plane.v @ last.mean(axis=0) if len(terms) else plane.prior
        np.testing.assert_allclose(decision, truth, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [0.0, -1.0, float("inf"), float("nan")])
def test_the_anchor_counts_a_positive_number_of_times(count: float) -> None:
    with pytest.raises(ValueError, match="count"):
        Plane(np.ones((2, 2)), np.ones(2), np.ones((1, 2)), np.zeros(1), np.zeros(1), count)


def test_exact_ties_are_decided_as_simulate_does() -> None:
    """The square with two tokens inside: both corners of a side are followed (golden case)."""
    embedding = np.array([[-1.0, 1.0], [-1, -1], [1, -1], [0.5, 0.0], [-0.5, 0.0]])
    plane = Plane(embedding, np.ones(2), np.eye(2), np.zeros(2), np.zeros(2))
    model = Model((plane,), 1.0, 4)
    documents = Documents(np.array([0, 5]), np.arange(5))
    np.testing.assert_allclose(
        model.read(documents).decision, slow_reading(model, documents)[0], atol=1e-12
    )


def test_a_short_tied_text_beside_a_long_one_has_a_decision() -> None:
    """Its padding must not enter the mean: 0 times what lay in memory may be NaN."""
    embedding = np.array([[-1.0, 1.0], [-1, -1], [1, -1], [0.5, 0.0], [-0.5, 0.0], [0.3, 0.4]])
    embedding = np.concatenate((embedding, np.random.default_rng(1).normal(size=(20, 2))))
    plane = Plane(embedding, np.ones(2), np.eye(2), np.zeros(2), np.zeros(2))
    documents = Documents(np.array([0, 5, 31]), np.concatenate((np.arange(5), np.arange(26))))
    model = Model((plane,), 1.0, 4)
    np.testing.assert_allclose(
        model.read(documents).decision, slow_reading(model, documents)[0], atol=1e-12
    )


def test_long_texts_leave_the_batched_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(3)
    plane = plane_of(draw.normal(size=(30, 2)), np.ones(2))
    monkeypatch.setattr("cynosure.classifier.model.plane._MOST_RAYS", 0)
    documents = Documents(np.array([0, 30]), np.arange(30))
    model = Model((plane,))
    expected = model.read(documents)
    monkeypatch.setattr("cynosure.engine.layers._MOST_IN_BATCH", 10)
    again = model.read(documents)
    np.testing.assert_allclose(again.decision, expected.decision, atol=1e-12)
    assert again.leaders.tolist() == expected.leaders.tolist()


def test_a_model_needs_a_positive_step() -> None:
    plane = plane_of(np.ones((2, 2)), np.ones(2))
    with pytest.raises(ValueError, match="alpha"):
        Model((plane,), alpha=0.0)
    with pytest.raises(ValueError, match="a plane"):
        Model(())


# --- files ------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    vocabulary, _ = Vocabulary.build(["good film", "good café !"], min_df=1)
    plane = plane_of(np.random.default_rng(0).normal(size=(len(vocabulary), 2)), np.ones(2))
    model = Model((replace(plane, count=2.5),), 0.5, 3)
    return save_files(tmp_path / "model", model, vocabulary, {"x": ["é"]})


def test_files_bring_everything_back(saved: Path) -> None:
    model, vocabulary, settings = load_files(saved)
    assert settings == {"x": ["é"]} and (model.alpha, model.layers) == (0.5, 3)
    assert "café" in vocabulary.terms and model.planes[0].count == 2.5
    again = save_files(saved.parent / "again", model, vocabulary, settings)
    for name in ("model.json", "model.safetensors", "vocabulary.json"):
        assert (saved / name).read_bytes() == (again / name).read_bytes()
    assert sorted(p.name for p in saved.parent.iterdir()) == ["again", "model"]


def test_saving_twice_replaces_and_leaves_nothing(saved: Path) -> None:
    model, vocabulary, _ = load_files(saved)
    save_files(saved, model, vocabulary, {"x": 2})
    assert load_files(saved)[2] == {"x": 2}
    assert [p.name for p in saved.parent.iterdir()] == ["model"]


def test_a_failed_save_leaves_the_old_model(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, vocabulary, settings = load_files(saved)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save_files(saved, model, vocabulary, {})
    monkeypatch.undo()
    assert load_files(saved)[2] == settings
    assert [p.name for p in saved.parent.iterdir()] == ["model"]


def test_a_folder_that_is_no_model_is_kept(saved: Path) -> None:
    model, vocabulary, settings = load_files(saved)
    other = saved.parent / "thesis"
    other.mkdir()
    (other / "chapter1.txt").write_text("precious")
    with pytest.raises(ValueError, match="not a cynosure model"):
        save_files(other, model, vocabulary, settings)
    assert (other / "chapter1.txt").read_text() == "precious"


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "vocabulary.json"])
@pytest.mark.parametrize("damage", ["cut", "edit", "empty", "gone"])
def test_damaged_files_are_refused(saved: Path, name: str, damage: str) -> None:
    file = saved / name
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        middle = len(data) // 2
        edited = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        file.write_bytes({"cut": data[:-9], "edit": edited, "empty": b""}[damage])
    with pytest.raises((ValueError, FileNotFoundError), match="model"):
        load_files(saved)


def test_files_of_the_first_version_are_read_with_an_anchor_that_counts_once(saved: Path) -> None:
    from safetensors.numpy import load, save

    from cynosure.classifier.model.model import _canonical, _sha256

    arrays = load((saved / "model.safetensors").read_bytes())
    del arrays["count"]
    (saved / "model.safetensors").write_bytes(save(arrays))
    header = json.loads((saved / "model.json").read_text())
    header["version"] = 1
    header["sha256"]["model.safetensors"] = _sha256((saved / "model.safetensors").read_bytes())
    del header["checksum"]
    header["checksum"] = _sha256(_canonical(header))
    (saved / "model.json").write_text(json.dumps(header))
    assert load_files(saved)[0].planes[0].count == 1.0


def test_foreign_and_future_models_are_refused(saved: Path, tmp_path: Path) -> None:
    header = json.loads((saved / "model.json").read_text())
    (saved / "model.json").write_text(json.dumps({**header, "version": 99}))
    with pytest.raises(ValueError, match=r"newer cynosure.*upgrade"):
        load_files(saved)
    (saved / "model.json").write_text(json.dumps({**header, "format": "other"}))
    with pytest.raises(ValueError, match="it is a 'other'"):
        load_files(saved)
    (saved / "model.json").write_text("[1]")
    with pytest.raises(ValueError, match="not readable"):
        load_files(saved)
    with pytest.raises(FileNotFoundError, match="no model here"):
        load_files(tmp_path / "nowhere")
