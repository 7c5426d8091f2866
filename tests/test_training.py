"""Learned: the surrogate is the model, training learns, stops, resumes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.model.model import Model
from cynosure.classifier.model.plane import Plane
from cynosure.classifier.text.datasets import synthetic
from cynosure.classifier.text.vocabulary import Vocabulary

torch = pytest.importorskip("torch")
from cynosure.classifier.fitting.soft_model import (  # noqa: E402
    Score,
    SoftLayers,
    Texts,
)
from cynosure.classifier.fitting.training import Learned  # noqa: E402

torch.set_num_threads(1)  # small tensors

DATA = synthetic(80, noise=0.0)
QUICK = Learned(epochs=3, rate=0.05, batch=32)


def fit(method: Learned, **options: object) -> HardmaxClassifier:
    clf = HardmaxClassifier(ngrams=(1, 1), layers=3, method=method)
    return clf.set_params(**options).fit(DATA.texts, DATA.labels)


def weights_of(model: Model) -> dict:
    """The anchor is the last term."""
    plane = model.planes[0]
    step = np.log(np.expm1(float(model.alpha)))
    embedding = np.vstack((plane.embedding, plane.anchor))
    arrays = {"embedding": embedding, "step": step, "v": plane.v, "b": plane.b}
    return {k: torch.tensor(x) for k, x in arrays.items()}


def surrogate(model: Model, terms: np.ndarray, mask: np.ndarray, temperature: float) -> np.ndarray:
    """Decisions of the softmax layers, each text with the anchor once."""
    once = np.ones((len(terms), 1))
    terms = np.hstack((terms, len(model.planes[0].embedding) * once.astype(int)))
    count = torch.tensor(np.hstack((mask, once)))
    layers = SoftLayers(model.layers, temperature)
    return layers.decisions(weights_of(model), torch.tensor(terms), count).numpy()


@pytest.mark.parametrize(("temperature", "tolerance"), [(0.0, 1e-12), (1e-5, 1e-9)])
def test_the_surrogate_at_zero_is_the_model(temperature: float, tolerance: float) -> None:
    draw = np.random.default_rng(0)
    vocabulary, documents = Vocabulary.build(DATA.texts[:20], min_df=1)
    size = len(vocabulary)
    plane = Plane(
        draw.normal(size=(size, 3)), draw.normal(size=3), draw.normal(size=(2, 3)), np.ones(2),
        np.zeros(2),
    )  # fmt: skip
    model = Model((plane,), 0.8, 4)
    expected = model.read(documents).decision
    for rows, terms, mask in documents.padded_batches():
        got = surrogate(model, terms, mask, temperature)
        np.testing.assert_allclose(got, expected[rows], rtol=0, atol=tolerance)


def test_a_warm_surrogate_is_not_the_model() -> None:
    """The comparison above can fail."""
    clf = fit(QUICK)
    documents = clf.vocabulary_.encode(DATA.texts)
    rows, terms, mask = next(iter(documents.padded_batches()))
    got = surrogate(clf.model_, terms, mask, 1.0)
    assert np.abs(got - clf.model_.read(documents).decision[rows]).max() > 1e-3


@pytest.mark.parametrize("temperature", [1e-3, 0.0])
def test_training_learns(temperature: float) -> None:
    clf = fit(Learned(epochs=10, rate=0.05, batch=16, temperature=temperature), dim=4)
    assert clf.score(DATA.texts, DATA.labels) > 0.8
    assert clf.model_.alpha > 0
    ex = clf.explain(DATA.texts[0])
    total = sum(x.contribution for x in ex.leaders) + ex.intercept
    assert total == pytest.approx(clf.decision_function(DATA.texts[:1])[0], abs=1e-9)


def test_gradients_of_the_constant_sets_are_those_of_differences() -> None:
    """With temperature 0 the derivative is exact wherever no set C_i changes."""
    draw = torch.Generator().manual_seed(1)
    names = {"embedding": (7, 2), "v": (2,), "b": (), "step": ()}
    weights = {
        k: torch.randn(s, generator=draw, dtype=torch.float64).requires_grad_()
        for k, s in names.items()
    }
    terms, count = torch.arange(7)[None], torch.arange(1.0, 8.0, dtype=torch.float64)[None]

    def value() -> torch.Tensor:
        return SoftLayers(4, 0.0).decisions(weights, terms, count).sum()

    value().backward()
    for k in ("embedding", "step"):
        flat, grad = weights[k].data.view(-1), weights[k].grad.view(-1)
        for i in range(len(flat)):
            with torch.no_grad():
                flat[i] += 1e-6
                above = value()
                flat[i] -= 2e-6
                below = value()
                flat[i] += 1e-6
            assert float(grad[i]) == pytest.approx(float((above - below) / 2e-6), abs=1e-7)


def test_the_same_seed_gives_the_same_model() -> None:
    one, two, other = fit(QUICK), fit(QUICK), fit(QUICK, random_state=1)
    assert (one.model_.planes[0].embedding == two.model_.planes[0].embedding).all()
    assert (one.model_.planes[0].embedding != other.model_.planes[0].embedding).any()


def test_more_classes_share_the_tokens() -> None:
    data = synthetic(90, classes=("a", "b", "c"), noise=0.0)
    clf = HardmaxClassifier(4, (1, 1), layers=2, method=Learned(epochs=12, rate=0.05, batch=16))
    clf.fit(data.texts, data.labels)
    assert clf.model_.planes[0].v.shape == (3, 4)
    assert clf.score(data.texts, data.labels) > 0.6
    p = clf.predict_proba([*data.texts, ""])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p[-1], 1 / 3)
    assert clf.explain(data.texts[0], "b").label == "b"


def test_an_interrupted_fit_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "fit.safetensors")
    whole = fit(Learned(epochs=4, rate=0.05, patience=9))
    fit(Learned(epochs=2, rate=0.05, patience=9, checkpoint=path))
    resumed = fit(Learned(epochs=4, rate=0.05, patience=9, checkpoint=path))
    a, b = whole.model_.planes[0], resumed.model_.planes[0]
    assert (a.embedding == b.embedding).all() and (a.v == b.v).all()
    assert whole.model_.alpha == resumed.model_.alpha
    with pytest.raises(ValueError, match="another fit"):
        fit(Learned(epochs=4, rate=0.01, checkpoint=path))
    Path(path).write_bytes(b"junk")
    with pytest.raises(ValueError, match="damaged"):
        fit(Learned(epochs=4, rate=0.05, checkpoint=path))


def test_training_stops_when_the_held_out_loss_rises(tmp_path: Path) -> None:
    path = tmp_path / "fit.safetensors"
    noise = np.random.default_rng(0).permutation(DATA.labels)
    method = Learned(epochs=60, rate=0.2, patience=2, checkpoint=str(path))
    HardmaxClassifier(ngrams=(1, 1), layers=1, method=method).fit(DATA.texts, noise)
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        where = file.metadata()["where"]
    assert '"stale": 2' in where and '"epoch": 60' not in where


def test_save_and_load_keep_the_method(tmp_path: Path) -> None:
    clf = fit(QUICK)
    again = HardmaxClassifier.load(clf.save(tmp_path / "m"))
    assert again.method == QUICK
    assert (again.decision_function(DATA.texts) == clf.decision_function(DATA.texts)).all()


def test_too_few_texts_to_hold_out() -> None:
    with pytest.raises(ValueError, match="too few"):
        HardmaxClassifier(ngrams=(1, 1), min_df=1, method=QUICK).fit(["a b", "a c"], [0, 1])


def texts(sizes: list[int], device: str = "cpu") -> Texts:
    """Text i has the terms 1 to sizes[i], the term t with multiplicity t."""
    terms = np.concatenate([np.arange(1, n + 1) for n in sizes])
    once = np.ones(len(sizes))
    return Texts.of(np.array(sizes), terms, terms, once, once, device)


def test_batches_have_every_text_once_and_whole() -> None:
    sizes = np.random.default_rng(0).integers(1, 30, 200).tolist()
    some = texts(sizes)
    for draw in (None, np.random.default_rng(1)):
        seen = []
        for rows, width in some.batches(8, draw):
            terms, count = some.padded(rows, width)
            assert terms.shape == (len(rows), width) and len(rows) <= 8
            for i, row in enumerate(rows.tolist()):
                whole = [*range(1, sizes[row] + 1)] + [0] * (width - sizes[row])
                assert terms[i].tolist() == count[i].tolist() == whole
            seen += rows.tolist()
        assert sorted(seen) == list(range(200))


@pytest.mark.parametrize(("rows", "y"), [((), (0, 1, 1)), ((3,), (2, 0, 1))])
def test_texts_count_with_their_weights(rows: tuple[int, ...], y: tuple[int, ...]) -> None:
    """A text of weight 2 is two texts, in the loss and the accuracy."""
    network, draw = SoftLayers(2, 0.1), torch.Generator().manual_seed(0)
    weights = network.initial(9, 2, 0.7, draw, rows)

    def score(some: list[int], weight: list[int]) -> Score:
        terms, n = np.arange(4) + np.array(some)[:, None], len(some)
        part = Texts.of(
            np.full(n, 4), terms.ravel(), np.ones(4 * n), np.array(y)[some], np.array(weight), "cpu"
        )
        return part.score(network, weights)

    assert score([0, 1, 2], [2, 1, 1]) == pytest.approx(score([0, 0, 1, 2], [1, 1, 1, 1]))
    assert score([0, 1, 2], [2, 1, 1]) != pytest.approx(score([0, 1, 2], [1, 1, 1]))


def test_a_fit_that_diverges_says_so() -> None:
    with pytest.raises(ValueError, match="smaller rate"):
        fit(Learned(epochs=3, rate=1e30))
