"""Clusters against a brute-force union-find; layers and tolerances against the definition."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cynosure as cy
from cynosure.analysis.clustering import clusters, tolerance_curve
from cynosure.engine import joining


def brute_labels(z, tol) -> list[int]:
    """Oracle: union-find over all pairs, clusters numbered by first appearance."""
    parent = list(range(len(z)))

    def root(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i in range(len(z)):
        for j in range(i):
            if np.linalg.norm(z[i] - z[j]) <= tol:
                parent[root(i)] = root(j)
    seen: dict[int, int] = {}
    return [seen.setdefault(root(i), len(seen)) for i in range(len(z))]


small = st.integers(-4, 4)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(small, small), min_size=1, max_size=12), st.integers(0, 12))
def test_labels_equal_union_find(tokens, squared):
    z = np.array(tokens, dtype=float)
    tol = float(np.sqrt(squared + 0.5))  # never a distance of integers: no tie with the threshold
    c = clusters(z, tol)
    assert c.labels.tolist() == brute_labels(z, tol)
    assert c.tol == tol and c.count == len(c.centres) == len(c.sizes)
    for label in range(c.count):
        mine = z[c.labels == label]
        assert c.sizes[label] == len(mine)
        np.testing.assert_allclose(c.centres[label], mine.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 8, 64])
@pytest.mark.parametrize("limit", [None, 0])
def test_random_tokens_with_and_without_listing_pairs(d, limit, monkeypatch):
    if limit is not None:
        monkeypatch.setattr(joining, "PAIR_LIMIT", limit)  # forces the path for collapsed tokens
    rng = np.random.default_rng(d)
    for tol in (1e-3, 0.03, 0.3, 1.0):
        centres = rng.standard_normal((6, d))
        z = centres[rng.integers(6, size=60)] + 0.02 * rng.standard_normal((60, d))
        assert clusters(z, tol).labels.tolist() == brute_labels(z, tol)


def test_chains_and_thresholds():
    line = np.arange(5.0)[:, None]
    assert clusters(line, 1).count == 1  # a chain is one cluster, though its ends are far apart
    assert clusters(line, 0.999).count == 5
    assert clusters(line, 0).count == 5
    assert clusters([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]], 0).labels.tolist() == [0, 1, 0]


def test_chains_in_high_dimension():
    rng = np.random.default_rng(4)
    q = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    # Two chains of step 1 along axis 0, 3 apart along axis 1, in random order after a rotation.
    z = np.zeros((40, 20))
    z[:, 0], z[:, 1] = np.arange(40) % 20, 3.0 * (np.arange(40) // 20)
    z = z[rng.permutation(40)] @ q.T
    for tol, count in ((0.99, 40), (1.01, 2), (2.9, 2), (3.01, 1)):
        c = clusters(z, tol)
        assert c.count == count and c.labels.tolist() == brute_labels(z, tol)


def test_collapsed_tokens_cost_no_square():
    rng = np.random.default_rng(1)
    leaders = np.array([[1.0, 0.0], [-1.0, 0.5], [0.0, -2.0]])
    which = rng.integers(3, size=20_000)  # 1.3e8 pairs within tol
    z = leaders[which] + 1e-9 * rng.standard_normal((20_000, 2))
    c = clusters(z)
    assert c.count == 3
    assert all(len(set(which[c.labels == label])) == 1 for label in range(3))


def test_default_tolerance():
    z = np.array([[0.0, 0.0], [3e-3, 0.0], [4.0, 0.0]])
    c = clusters(z)
    assert c.tol == pytest.approx(1e-3 * 4) and c.count == 2 and clusters(z, 2e-3).count == 3
    for scale in (1e-200, 1e200):
        assert clusters(z * scale).count == 2 and clusters(z * scale, 2e-3 * scale).count == 3
    same = clusters([[0.1, 0.2]] * 3)
    assert same.count == 1 and same.centres.tolist() == [[0.1, 0.2]] and same.tol > 0
    assert clusters([[5.0]]).labels.tolist() == [0]
    assert "0.001 of the longest" in repr(c) and "longest" not in repr(clusters(z, 0.1))


@pytest.mark.parametrize(
    ("dynamics", "how"),
    [
        (cy.SphereFlow(cy.Softmax(9.0)), {"time": 60.0}),
        (cy.dynamics.RescaledFlow(V=-np.eye(3)), {"time": 20.0}),
        (cy.dynamics.UnnormalizedAttention(), {"layers": 12}),
    ],
)
def test_one_rule_for_clusters(dynamics, how):
    """clusters, recognise and observe count the same; tokens that shrink or grow included."""
    run = cy.simulate(dynamics, cy.configurations.sphere(40, 3, seed=1), **how)
    found, end = cy.clusters(run), cy.recognise(run)
    assert found.count == len(end.points) == cy.observe(run, "clusters").clusters.values[-1]
    assert found.labels.tolist() == end.labels.tolist()


def test_tolerance_curve_equals_repeated_clusters(monkeypatch):
    z = np.random.default_rng(3).standard_normal((80, 3))
    tols, counts = tolerance_curve(z)
    assert counts.tolist() == [clusters(z, float(t)).count for t in tols]
    assert (np.diff(counts) <= 0).all() and counts[0] == 80 and counts[-1] == 1
    monkeypatch.setattr(sys.modules[clusters.__module__], "LINKAGE_LIMIT", 10)
    np.testing.assert_array_equal(tolerance_curve(z)[1], counts)
    assert tolerance_curve(z, [0.0, 100.0])[1].tolist() == [80, 1]
    assert tolerance_curve([[1.0, 2.0]], [1.0])[1].tolist() == [1]
    assert tolerance_curve([[1.0, 2.0]] * 3)[1].tolist() == [1] * 61


def test_bad_input():
    for tol in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="at least 0"):
            clusters([[0.0]], tol)
        with pytest.raises(ValueError, match="at least 0"):
            tolerance_curve([[0.0]], [tol])
    with pytest.raises(ValueError, match="NaN"):
        clusters([[np.nan]])
    with pytest.raises(ValueError):
        clusters(np.zeros((3, 2, 2)))
