"""construct_classifier against a naive evaluator in Fractions that reads only the weights."""

from __future__ import annotations

import doctest
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cynosure as cy
import oracle
from cynosure.construction.network import FeedForward, Pull, weights

RNG = np.random.default_rng(0)


# --- the oracle ----------------------------------------------------------------------------------


def times(M: list[list[Fraction]], x: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, x, strict=True)), Fraction(0)) for row in M]


def plus(x, y):
    return [a + b for a, b in zip(x, y, strict=True)]


def naive(network, sequence) -> list[list[list[Fraction]]]:
    """The tokens after every layer, from the weights and the definitions alone."""
    z = [[Fraction(x) for x in row] for row in sequence]
    states = [z]
    for layer in network.layers:
        arrays = [
            [list(map(Fraction, row)) for row in a] if a.ndim == 2 else list(map(Fraction, a))
            for a in layer.arrays
        ]
        if layer.kind == "affine":
            W, b = arrays
            z = [plus(times(W, x), b) for x in z]
        elif layer.kind == "feed-forward":
            W1, b1, W2, b2 = arrays
            new = []
            for x in z:
                hidden = [max(h, Fraction(0)) for h in plus(times(W1, x), b1)]
                new.append(plus(plus(x, times(W2, hidden)), b2))
            z = new
        else:
            v, V = arrays
            A = [[a * b for b in v] for a in v]
            new = []
            for x, members in zip(z, oracle.followed(z, A), strict=True):
                mean = [sum(z[j][k] for j in members) / len(members) for k in range(len(x))]
                new.append(plus(x, times(V, [m - a for m, a in zip(mean, x, strict=True)])))
            z = new
        states.append(z)
    return states


def judged(sequences, labels) -> cy.construction.ExactClassifier:
    """The network of these sequences, after everything that is claimed of it was looked at."""
    network = cy.construction.construct_classifier(sequences, labels)
    N, d = len(sequences), len(sequences[0][0])
    assert network.verify() == ()
    assert network.attentions <= N - 1 and network.blocks <= 2 * N - 1
    assert network.parameters <= 2 * d + 35 * N - 21
    for sequence, label in zip(sequences, labels, strict=True):
        states = naive(network, sequence)
        seen = network.run(sequence)
        assert [[list(row) for row in z] for z in seen.tokens] == states
        assert len({tuple(row) for row in states[-1]}) == 1  # the sequence is one point
        x = states[-1][0][0]
        assert x.denominator == 1 and network.classes[int(x)] == label
        assert network.predict(sequence) == label
    return network


# --- families ------------------------------------------------------------------------------------


def powerset(universe) -> list:
    return [list(s) for k in range(1, len(universe) + 1) for s in combinations(universe, k)]


def random_sequences(N: int, d: int, longest: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rng.integers(1, longest + 1), d)) for _ in range(N)]


ulp = float(np.nextafter(1.0, 2.0))
TINY = float(np.nextafter(0.0, 1.0))
FAMILIES = {
    "all subsets of five tokens": powerset([[0, 0], [1, 0], [0, 1], [-1, 2], [3, -1]]),
    "nested": [[[k, 1] for k in range(m)] for m in range(1, 12)],
    "nested from above": [[[-k, 0] for k in range(m, 12)] for m in range(12)],
    "all but one": [[[j] for j in range(12) if j != k] for k in range(12)],
    "collinear": [[[k, 2 * k, -k], [3 * k, 6 * k, -3 * k]] for k in range(1, 9)],
    "at 0 and around": [[[0, 0]], [[0, 0], [1, 1]], [[1, 1]], [[-1, -1], [0, 0]], [[-1, -1]]],
    "negative": [[[-1.5, -2.5], [-k, -0.1]] for k in range(1, 7)],
    "one ulp": [[[1.0, ulp]], [[ulp, 1.0]], [[1.0, 1.0]], [[1.0, ulp], [ulp, 1.0]], [[ulp, ulp]]],
    "scales": [
        *[[[1e300, 1e-300], [TINY, 0.0]], [[1e300, float(np.nextafter(1e-300, 1))]], [[0.0, 0.0]]],
        *[[[-1e300, 0.0], [1e300, 1e-300]], [[-1.7e308, TINY]], [[1.7e308, -TINY]], [[TINY, TINY]]],
    ],
    "thirds": [[[Fraction(1, 3), "1/7"]], [[Fraction(1, 3), "1/7"], ["2/3", 0]], [["2/3", 0]]],
    "proportions": [
        [[0, 1]] * a + [[2, 5]] * b for a, b in [(1, 1), (1, 2), (2, 1), (3, 4), (9, 1)]
    ],
    "sets and proportions": [
        *[[[0], [1]], [[0], [0], [1]], [[0], [2]], [[0], [1], [2]], [[0], [1], [2], [2]], [[1]]],
        *[[[0], [2], [2]], [[2]], [[0]], [[0], [1], [1], [2]]],
    ],
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["all different", "two classes"])
def test_every_sequence_gets_its_label(name: str, kind: str) -> None:
    sequences = FAMILIES[name]
    N = len(sequences)
    labels = list(range(N)) if kind == "all different" else (np.arange(N) % 2).tolist()
    judged(sequences, labels)


@pytest.mark.parametrize("d", range(1, 9))
def test_dimensions_and_lengths(d: int) -> None:
    sequences = random_sequences(8, d, 50 if d == 3 else 12, seed=d)
    network = judged(sequences, list("abababcc"))
    assert network.d == d and network.attentions == 1  # no token is shared: one block parts them


def words(N: int, vocabulary: int, longest: int, d: int, seed: int) -> list[np.ndarray]:
    """Distinct bags of words, no two with the same set: tokens are shared everywhere."""
    rng = np.random.default_rng(seed)
    known, bags = rng.standard_normal((vocabulary, d)), {}
    while len(bags) < N:
        bag = rng.integers(0, vocabulary, rng.integers(1, longest + 1))
        bags.setdefault(frozenset(bag.tolist()), known[bag])
    return list(bags.values())


def test_shared_tokens_and_random_labels() -> None:
    sequences = words(120, 40, 20, 3, seed=1)
    labels = RNG.integers(0, 3, 120)
    network = cy.construction.construct_classifier(sequences, labels)
    assert network.verify() == () and 2 <= network.attentions <= 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_thousand_sequences(seed: int) -> None:
    N = 1000
    labels = np.random.default_rng(seed).integers(0, 2, N)
    for sequences in (words(N, 60, 50, 4, seed), random_sequences(N, 8, 50, seed)):
        network = cy.construction.construct_classifier(sequences, labels)
        assert network.verify() == () and network.attentions <= 20


bag = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2)), min_size=1, max_size=6)


@given(st.lists(bag, min_size=1, max_size=8))
@example([[(0, 0)], [(0, 0), (0, 0)]])
def test_any_small_bags(bags) -> None:
    """Equal measures share a label here, so nothing is refused."""
    shapes = []
    for tokens in bags:
        n = len(tokens)
        shapes.append(frozenset((t, Fraction(tokens.count(t), n)) for t in tokens))
    labels = [shapes.index(shape) for shape in shapes]
    sequences = [[list(t) for t in tokens] for tokens in bags]
    judged(sequences, labels)


# --- what attention does not see -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[1, 2], [3, 4]], [[3, 4], [1, 2]]),
        ([[1, 2]], [[1, 2], [1, 2]]),
        ([[1, 2], [0, 0]], [[1, 2], [0, 0], [0.0, 0], [1, "2"]]),
    ],
)
def test_what_nothing_can_tell_apart_is_refused_by_name(one, other) -> None:
    with pytest.raises(ValueError, match=r"1 and 2 hold the same tokens.*'b' and 'c'"):
        cy.construction.construct_classifier([[[9, 9]], one, other], "abc")
    assert cy.construction.construct_classifier([[[9, 9]], one, other], "abb").verify() == ()


def test_order_and_repetition_of_the_whole_do_not_count() -> None:
    sequences = words(30, 12, 8, 2, seed=3)
    network = cy.construction.construct_classifier(sequences, list(range(30)))
    for k, z in enumerate(sequences):
        assert network.predict(z[::-1]) == k
        assert network.predict(np.vstack([z, z, z])) == k


def test_the_largest_bound_on_attention_is_attained() -> None:
    """Sequences that miss one token each: a landmark parts one of them from the others."""
    sequences = FAMILIES["all but one"]
    network = cy.construction.construct_classifier(sequences, list(range(12)))
    assert network.attentions == 11


# --- attention is the package's hardmax ----------------------------------------------------------


def test_the_sets_are_those_of_hardmax() -> None:
    network = cy.construction.construct_classifier(
        FAMILIES["sets and proportions"], list(range(10))
    )
    seen = set()
    for sequence in [*FAMILIES["sets and proportions"], [[7], [-3], [0]]]:
        states = network.run(sequence)
        for layer, z in zip(network.layers, states.tokens):
            if isinstance(layer, Pull):
                v = np.array(layer.v, dtype=float)
                rows = cy.Hardmax(np.outer(v, v)).followed(np.array(z, dtype=float))
                sets = layer.followed(weights(z))
                assert sets == [rows[i].tolist() for i in range(len(z))]
                seen.add((len(z), len(sets[0])))
    assert len(seen) > 3


@pytest.mark.parametrize("v", [[0, 1], [2, -3], [0, 0], [1, 0]])
def test_a_pull_follows_the_definition_also_for_negative_scores(v) -> None:
    """Inside a network c > 0; the layer itself is right for every sign, ties included."""
    rng = np.random.default_rng(5)
    pull = Pull(weights(v), weights([[1, 2], [0, Fraction(1, 3)]]))
    A = [[a * b for b in v] for a in v]
    for _ in range(40):
        z = [[Fraction(int(x), 2) for x in row] for row in rng.integers(-2, 3, (6, 2))]
        assert pull.followed(weights(z)) == oracle.followed(z, A)
        means = [[sum(z[j][k] for j in c) / len(c) for k in (0, 1)] for c in oracle.followed(z, A)]
        assert pull.means(weights(z)).tolist() == means


@pytest.mark.parametrize("seed", range(5))
def test_an_unknown_sequence_ends_in_one_point_of_the_known_classes(seed: int) -> None:
    sequences = FAMILIES["all subsets of five tokens"]
    network = cy.construction.construct_classifier(sequences, [len(s) for s in sequences])
    for scale in (1e-9, 1.0, 1e9):
        z = scale * np.random.default_rng(seed).standard_normal((7, 2))
        end = network.run(z).tokens[-1]
        assert len(set(end)) == 1 and end[0][1] >= 1
        assert network.predict(z) in {1, 2, 3, 4, 5}


# --- the judges are judged -----------------------------------------------------------------------


def test_a_spoilt_network_is_noticed() -> None:
    sequences = FAMILIES["all subsets of five tokens"]
    network = cy.construction.construct_classifier(sequences, list(range(len(sequences))))
    spoilt = 0
    for k, layer in enumerate(network.layers):
        if isinstance(layer, FeedForward):
            wrong = replace(layer, W2=0 * layer.W2, b2=0 * layer.b2)
            layers = (*network.layers[:k], wrong, *network.layers[k + 1 :])
            spoilt += replace(network, layers=layers).verify() != ()
    assert spoilt == network.blocks
    assert network.verify(sequences[:3], [0, 9, 2]) == (1,)


def test_without_attention_it_is_wrong() -> None:
    """The same layers with every v = 0, so that tokens are averaged: attention does the work."""
    sequences = words(60, 20, 10, 2, seed=4)
    network = cy.construction.construct_classifier(sequences, (np.arange(60) % 2).tolist())
    layers = [replace(x, v=0 * x.v) if isinstance(x, Pull) else x for x in network.layers]
    assert len(replace(network, layers=tuple(layers)).verify()) > 10


# --- numbers stay short --------------------------------------------------------------------------


def test_the_direction_is_a_small_power_and_keeps_tokens_apart() -> None:
    tokens = [[[i, j]] for i in range(6) for j in range(6)]
    network = cy.construction.construct_classifier(tokens, list(range(36)))
    first, second = network.layers[0].arrays[0][0]
    assert second / first == 8  # the first power of two that is larger than the grid
    assert network.bits < 16
    scaled = [[[Fraction(a, 10**40) for a in row] for row in s] for s in tokens]
    assert (
        cy.construction.construct_classifier(scaled, list(range(36))).run(scaled[7]).tokens[1:]
        == (network.run(tokens[7]).tokens[1:])
    )


def test_codes_are_whole_and_grow_slowly() -> None:
    """The largest token parts nested sequences in one block, and the codes are small numbers."""
    network = cy.construction.construct_classifier(FAMILIES["nested"], list(range(11)))
    assert network.attentions == 1 and network.bits <= 6
    codes = {network.run(s).tokens[-1][0][1] for s in FAMILIES["nested"]}
    assert len(codes) == 11 and all(c.denominator == 1 for c in codes)
    assert all(q - p >= 1 for p, q in pairwise(sorted(codes)))


# --- what is asked of it -------------------------------------------------------------------------


def test_it_shows_itself() -> None:
    network = cy.construction.construct_classifier([[[0.0]], [[1.0]]], ["<b>", "no"])
    assert repr(network) == (
        "ExactClassifier(d=1, 2 classes, 3 blocks (1 with attention), 51 parameters)"
    )
    html = network._repr_html_()
    assert "2 sequences" in html and "51, of at most" in html and len(html) < 1000
    passage = network.run([[0.0], [1.0]])
    assert repr(passage) == "Passage(2 tokens, 5 layers)" and len(passage) == 6
    assert passage.kinds == ("affine", "feed-forward", "attention", "feed-forward", "feed-forward")
    floats = passage.as_floats()
    assert [z.shape for z in floats] == [(2, 1), *[(2, 2)] * 5]
    assert [float(x) for x in passage.tokens[2][0]] == floats[2][0].tolist()


def test_one_sequence_or_one_class_needs_no_attention() -> None:
    for sequences in ([[[1.0, 2.0], [3.0, 4.0]]], [[[1.0, 2.0]], [[3.0, 4.0], [0.0, 0.0]]]):
        network = cy.construction.construct_classifier(sequences, ["only"] * len(sequences))
        assert network.attentions == 0 and network.blocks == 1 and network.verify() == ()
        assert len(set(network.run(sequences[-1]).tokens[-1])) == 1


def test_numbers_beyond_floats_stay_exact() -> None:
    network = cy.construction.construct_classifier(FAMILIES["scales"], list(range(7)))
    passage = network.run(FAMILIES["scales"][4])
    with pytest.raises(OverflowError, match="read `tokens`"):
        passage.as_floats()


def test_sequences_may_be_an_array_or_tensors() -> None:
    import torch

    z = np.random.default_rng(8).standard_normal((5, 3, 2))
    network = cy.construction.construct_classifier(z, np.arange(5))
    assert network.verify() == () and network.verify(list(torch.tensor(z)), range(5)) == ()


def test_labels_are_any_hashables() -> None:
    labels = [("a", 1), None, frozenset({2})]
    network = cy.construction.construct_classifier([[[0]], [[1]], [[2]]], labels)
    assert [network.predict([[k]]) for k in range(3)] == labels


@pytest.mark.parametrize(
    ("sequences", "labels", "error", "complaint"),
    [
        ([[[1.0]]], [1, 2], ValueError, "labels: expected one for each.*got 2 for 1"),
        ([], [], ValueError, "at least one sequence, got 0"),
        (
            [[[1.0]], [[1.0, 2.0]]],
            [1, 2],
            ValueError,
            "d = 1 as in the first, got d = 2 in number 1",
        ),
        ([[[1.0]], [2.0]], [1, 2], ValueError, "number 1: .*shape"),
        ([[[1.0]], []], [1, 2], ValueError, "number 1: expected a non-empty"),
        ([[[1.0]], [[float("nan")]]], [1, 2], ValueError, "number 1: "),
        ([[[1.0]], np.array([[np.inf]])], [1, 2], ValueError, "number 1: NaN or infinity"),
        ([[[1.0]]], [[1]], TypeError, "number 0 is not hashable"),
        ([[[1.0]], [[2.0]]], [1.0, float("nan")], ValueError, "number 1 is NaN"),
    ],
)
def test_what_cannot_be_built(sequences, labels, error, complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        cy.construction.construct_classifier(sequences, labels)


def test_what_cannot_be_asked() -> None:
    network = cy.construction.construct_classifier([[[0, 0]], [[1, 1]]], [0, 1])
    with pytest.raises(ValueError, match="expected tokens with d = 2, got 1"):
        network.predict([[1.0]])
    with pytest.raises(ValueError, match="both sequences and labels"):
        network.verify([[[0, 0]]])
    with pytest.raises(ValueError, match="expected 1 of them, got 2"):
        network.verify([[[0, 0]]], [0, 1])
    assert "2 sequences" in network._repr_html_()
    assert network.verify([], []) == ()


def test_examples_run() -> None:
    assert cy.construction.construct_classifier and cy.construction.ExactClassifier
    module = sys.modules["cynosure.construction.classifying"]
    assert doctest.testmod(module).attempted > 2 and doctest.testmod(module).failed == 0
