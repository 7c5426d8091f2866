"""The sentiment model with a trained A, against the attention of the package and its own theory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import cynosure as cy
from cynosure.classifier.datasets import synthetic
from cynosure.classifier.soft_model import Network, Schedule, SoftLayers
from cynosure.experiments.reviews import sentiment_paper as paper
from cynosure.experiments.reviews._matrices import kind_of, matrix_of, network
from cynosure.experiments.reviews._models import TrainedModel, read_hard, stored
from cynosure.experiments.reviews._review_panels import examples, moving
from cynosure.experiments.reviews._reviews import Ids, Reviews, split
from cynosure.experiments.reviews._sentiment_gpu import fit

torch.set_num_threads(1)  # small tensors
IDS = Ids.of(synthetic(120, seed=0), synthetic(60, seed=1))
DATA = split(IDS, tokens=24)


def weights(kind: str, dim: int = 3, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights in float64, A far from the identity."""
    draw = torch.Generator().manual_seed(seed)
    made = network(kind).initial(len(DATA.words), dim, 0.7, draw)
    for name in ("root", "matrix"):
        if name in made:
            made[name] = made[name] + 0.8 * torch.randn((dim, dim), generator=draw)
    return {k: w.double() for k, w in made.items()}


def carried(w: dict[str, torch.Tensor], some: Reviews, layers: Network) -> np.ndarray:
    """Tokens after the last layer, in float64."""
    terms, count = torch.as_tensor(some.terms), torch.as_tensor(some.count).double()
    return layers.carried(w, terms, count).numpy()


def decided(w: dict[str, torch.Tensor], some: Reviews, layers: Network) -> np.ndarray:
    share = some.count / some.count.sum(axis=1, keepdims=True)
    mean = np.einsum("bn,bnd->bd", share, carried(w, some, layers))
    return mean @ w["v"].numpy() + float(w["b"])


@pytest.mark.parametrize("kind", ["spd", "free"])
@pytest.mark.parametrize("temperature", [0.3, 0.0])
def test_layers_are_those_of_the_package(kind: str, temperature: float):
    w, some = weights(kind), DATA.test.take(np.arange(6))
    got = carried(w, some, network(kind, 3, temperature))
    A = matrix_of(w)
    attention = cy.Softmax(1 / temperature, A) if temperature else cy.Hardmax(A)
    for i in range(len(some)):
        terms, count = (x[i, : some.sizes[i]] for x in (some.terms, some.count.astype(int)))
        z0 = np.repeat(w["embedding"].numpy()[terms], count, axis=0)  # words as often as they stand
        run = cy.simulate(cy.PureAttention(attention, alpha=0.7), z0, layers=3, throw=False)
        first = np.cumsum(count) - count
        assert np.allclose(run.values[-1][first], got[i, : len(terms)], atol=1e-6)


def test_a_symmetric_positive_a_is_a_change_of_coordinates():
    w = weights("spd")
    B = w["root"]
    same = {k: x for k, x in w.items() if k != "root"}
    same |= {"embedding": w["embedding"] @ B.T, "v": torch.linalg.solve(B.T, w["v"])}
    for temperature in (0.3, 0.0):
        one = decided(w, DATA.test, network("spd", 8, temperature))
        other = decided(same, DATA.test, SoftLayers(8, temperature))
        assert np.abs(one - other).max() < 1e-9
    turned = w | {"matrix": (B.T @ B) @ torch.linalg.matrix_exp(_skew(3))}
    del turned["root"]
    assert np.abs(decided(turned, DATA.test, network("free", 8, 0.0)) - one).max() > 1e-3


def _skew(dim: int) -> torch.Tensor:
    up = torch.triu(torch.ones((dim, dim), dtype=torch.float64), 1)
    return up - up.T


@pytest.mark.parametrize("kind", ["spd", "free"])
def test_proved_reading_has_the_same_a(kind: str):
    w = weights(kind)
    hard = read_hard({k: x.numpy() for k, x in w.items()}, DATA.test)
    assert np.allclose(hard.decision, decided(w, DATA.test, network(kind, 8, 0.0)), atol=1e-6)


def test_an_unknown_matrix_is_refused():
    with pytest.raises(ValueError, match="matrix: expected one of I, spd, free, got 'any'"):
        network("any")


def test_a_is_trained_stored_and_shown(tmp_path: Path):
    schedule = Schedule(epochs=2, rate=5e-2, batch=32)
    data = split(IDS, tokens=128)
    for kind in ("I", "free"):
        fit(data, 2, schedule, tmp_path, matrix=kind, watched=20)
    found = list(stored(IDS, str(tmp_path), lambda *_: None))
    assert [kind_of(w) for _, w, _ in found] == ["I", "free"]
    assert found[0][0]["watched"] == 20
    models = [TrainedModel.of(x, 60, real=True) for x in found]
    A = models[1].matrix
    assert A is not None and np.abs(A - np.eye(2)).max() > 1e-3
    assert models[0].published[0] == 0.7914 and models[1].published == (None, None)
    table = paper._matrix_table(models)
    assert [row[1] for row in table.rows] == ["I", "free"]
    assert table.rows[0][4:7] == (1.0, 1.0, 0.0) and table.rows[1][6] > 0
    kind, example = next(iter(examples(models[0]).items()))
    data = moving(models[0], kind, example).drawing
    assert isinstance(data, bytes) and data[:3] == b"GIF" and len(data) < 1_500_000
