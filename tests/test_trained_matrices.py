"""The sentiment model with a trained A, against the attention of the package and its own theory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import cynosure as cy
from cynosure.classifier.fitting.soft_model import Network, Schedule, SoftLayers
from cynosure.classifier.text.datasets import synthetic
from studies.reviews import sentiment_paper as paper
from studies.reviews._models import Variant, fitted, kind_of, matrix_of, read_hard, trained_model
from studies.reviews._reviews import Ids, Reviews, split

torch.set_num_threads(1)  # small tensors
IDS = Ids.of(synthetic(120, seed=0), synthetic(60, seed=1))
DATA = split(IDS, tokens=24)


def weights(kind: str, dim: int = 3, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights in float64, A far from the identity."""
    draw = torch.Generator().manual_seed(seed)
    made = Variant(matrix=kind).initial(len(DATA.words), dim, 0.7, draw)
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
    got = carried(w, some, Variant(matrix=kind, layers=3, temperature=temperature))
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
        one = decided(w, DATA.test, Variant(matrix="spd", temperature=temperature))
        other = decided(same, DATA.test, SoftLayers(8, temperature))
        assert np.abs(one - other).max() < 1e-9
    turned = w | {"matrix": (B.T @ B) @ torch.linalg.matrix_exp(_skew(3))}
    del turned["root"]
    assert np.abs(decided(turned, DATA.test, Variant(matrix="free")) - one).max() > 1e-3


def _skew(dim: int) -> torch.Tensor:
    up = torch.triu(torch.ones((dim, dim), dtype=torch.float64), 1)
    return up - up.T


@pytest.mark.parametrize("kind", ["spd", "free"])
def test_proved_reading_has_the_same_a(kind: str):
    w = weights(kind)
    hard = read_hard({k: x.numpy() for k, x in w.items()}, DATA.test)
    assert np.allclose(hard.decision, decided(w, DATA.test, Variant(matrix=kind)), atol=1e-6)


def test_an_unknown_matrix_is_refused():
    with pytest.raises(ValueError, match="matrix: expected one of I, spd, free, got 'any'"):
        Variant(matrix="any")


def test_a_is_trained_and_shown():
    schedule, data = Schedule(epochs=2, rate=5e-2, batch=32), split(IDS, tokens=128)
    found = [(*fitted(data, 2, schedule, matrix=k, watched=20), data) for k in ("I", "free")]
    assert [kind_of(w) for _, w, _ in found] == ["I", "free"]
    models = [trained_model(x, 60, real=True) for x in found]
    assert np.abs(models[1].matrix - np.eye(2)).max() > 1e-3
    assert models[0].published[0] == 0.7914 and models[1].published == (None, None)
    table = paper._matrix_table(models)
    assert [row[1] for row in table.rows] == ["I", "free"]
    assert table.rows[0][4:7] == (1.0, 1.0, 0.0) and table.rows[1][6] > 0
    example = next(iter(paper.examples(models[0]).values()))
    assert example.weight.sum() == pytest.approx(1)


def test_a_trained_matrix_stands_beside_the_identity():
    report = paper.run(dataclasses.replace(paper.QUICK, dims=(2,), epochs=2, matrix="free"))
    table = next(t for t in report.tables if t.title == "Accuracy")
    assert [row[:2] for row in table.rows] == [(2, "I"), (2, "free")]
    assert any("training A" in c.claim for c in report.controls)
    with pytest.raises(ValueError, match="matrix empty or one of I, spd, free"):
        paper.run(dataclasses.replace(paper.QUICK, matrix="any"))
