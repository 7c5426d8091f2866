"""construct_classifier(): a hardmax network that is right on every sequence it is given.

A sequence is what attention sees of it: which tokens it has, in which proportions. On the line
x = <v, z> of a generic direction v a block asks for the distance from a landmark t to the nearest
token: a feed-forward layer raises c by a tent over t, hardmax attention sends every token to the
largest c. The landmark is a token that one of two sequences has and the other has not, so the two
part; a block more than N - 1 is never needed (docs/mathematics.md F1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import Any, NamedTuple

from .._types import Array, Rational, as_rationals
from ..engine.kernels import exact
from .network import Affine, ExactClassifier, FeedForward, Pull, RationalLayer, weights

CANDIDATES = 8  # landmarks compared for a block, of those sure to part two sequences and of all


class Measure(NamedTuple):
    """What attention sees of a sequence: places on the line, ascending, and their proportions."""

    places: tuple[int, ...]
    counts: tuple[int, ...]  # without a common factor
    total: int


class Block(NamedTuple):
    """c grows by weight * max(0, h - |x - landmark|); then the largest c of the sequence, or, with
    `mean`, the mean, is everybody's."""

    landmark: int
    h: int
    weight: int
    mean: bool


def construct_classifier(
    sequences: Sequence[Array] | Array, labels: Sequence[Hashable] | Array
) -> ExactClassifier:
    """Builds a network of hardmax attention in the plane that labels each sequence correctly.

        embedding   z -> (x, c) = (<v, z> - x_0, 1)
        block k     c_i <- c_i + w_k max(0, h_k - |x_i - t_k|),   then hardmax with A = e_c e_c^T
        readout     x <- number of the class, a ramp in c for each change of label

    For N sequences in R^d at most N - 1 blocks with attention and 2 N - 1 in all, and at most
    2 d + 35 N - 21 parameters, whatever the lengths of the sequences (docs/mathematics.md F1; the
    question and its first answer, O(N) blocks and O(N d) parameters: arXiv 2502.02270).

    `sequences` are arrays (n_i, d) or lists of rows of numbers or Fractions: floats mean exactly
    the numbers they store. Labels are hashable.

    Trap: attention knows no positions and takes means, so it sees which tokens there are and in
    which proportions, not their order, and not that all are repeated alike. Two sequences equal in
    that sense with different labels are refused: no network of this kind tells them apart.

    Examples
    --------
    >>> import cynosure as cy
    >>> sequences = [[[0.0, 1.0]], [[0.0, 1.0], [2.0, 3.0]]]
    >>> network = cy.construction.construct_classifier(sequences, ["a", "b"])
    >>> network.predict([[2.0, 3.0], [0.0, 1.0]]), network.verify()
    ('b', ())
    >>> network
    ExactClassifier(d=2, 2 classes, 3 blocks (1 with attention), 53 parameters)
    """
    rows, names = _given(sequences, labels)
    embedding, place = _embedding({token for row in rows for token in row})
    measures = [_measure([place[token] for token in row]) for row in rows]
    first: dict[Measure, int] = {}
    for i, measure in enumerate(measures):
        j = first.setdefault(measure, i)
        if names[i] != names[j]:
            raise ValueError(
                f"sequences: {j} and {i} hold the same tokens in the same proportions, with "
                f"labels {names[j]!r:.40} and {names[i]!r:.40}; attention sees neither order nor "
                "length, so nothing can tell them apart: drop one, or give the tokens a position "
                "as one more coordinate"
            )
    classes = tuple(dict.fromkeys(names))
    number = {label: k for k, label in enumerate(classes)}
    wanted = [number[names[i]] for i in first.values()]
    blocks, codes = _separated(list(first), wanted)
    layers = (embedding, *_layers(blocks), *_readout(dict(zip(codes, wanted, strict=True))))
    return ExactClassifier(layers, classes, len(rows[0][0]), tuple(map(tuple, rows)), tuple(names))


def _given(
    sequences: Sequence[Array] | Array, labels: Sequence[Hashable] | Array
) -> tuple[list[list[Rational]], list[Hashable]]:
    """Tokens as rationals, of one dimension, and a label for each."""
    names = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(sequences) != len(names) or not names:
        raise ValueError(
            f"labels: expected one for each of at least one sequence, got {len(names)} for "
            f"{len(sequences)}"
        )
    rows = []
    for i, sequence in enumerate(sequences):
        try:
            rows.append(as_rationals(sequence))
        except (ValueError, TypeError) as error:
            said = str(error).removeprefix("z: ")
            raise ValueError(f"sequences: number {i}: {said}; shape (n, d) needed") from None
        if len(rows[i][0]) != len(rows[0][0]):
            raise ValueError(
                f"sequences: expected tokens with d = {len(rows[0][0])} as in the first, got "
                f"d = {len(rows[i][0])} in number {i}"
            )
    for i, name in enumerate(names):
        try:
            hash(name)
        except TypeError:
            raise TypeError(f"labels: number {i} is not hashable ({name!r:.40})") from None
        if name != name:
            raise ValueError(f"labels: number {i} is NaN, which equals nothing; name the class")
    return rows, names


# --- the line ------------------------------------------------------------------------------------


def _embedding(tokens: set[Rational]) -> tuple[Affine, dict[Rational, int]]:
    """The embedding z -> (<v, z> - x_0, 1), and the place x of every token: integers from 0 on.

    v = unit (1, s, s^2, ...) for the first s = 1, 2, 4, ... that keeps distinct tokens distinct.
    Every s >= 1 + R/m does, R the largest and m the least difference of two tokens in a coordinate:
    the highest coordinate in which two differ outweighs those below it.
    """
    known = sorted(tokens)
    whole, common = exact.integers(known)
    s = 1
    while True:
        v = tuple(s**k for k in range(len(known[0])))
        x = [exact.dot(v, row) for row in whole]
        if len(set(x)) == len(x):
            break
        s *= 2
    least = min(x)
    unit = gcd(*(a - least for a in x)) or 1
    W = [[Fraction(common * a, unit) for a in v], [0] * len(v)]
    places = {token: (a - least) // unit for token, a in zip(known, x, strict=True)}
    return Affine(weights(W), weights([Fraction(-least, unit), 1])), places


def _measure(places: list[int]) -> Measure:
    count = sorted(Counter(places).items())
    factor = gcd(*(c for _, c in count))
    counts = tuple(c // factor for _, c in count)
    return Measure(tuple(x for x, _ in count), counts, sum(counts))


# --- the codes -----------------------------------------------------------------------------------


def _separated(measures: list[Measure], wanted: list[int]) -> tuple[list[Block], list[int]]:
    """Blocks after which sequences of different classes have different codes, and these codes.

    Every block parts two that shared a code and no others: at most len(measures) codes in the end.
    """
    line = sorted({x for measure in measures for x in measure.places})
    codes: list[int] = [1] * len(measures)
    blocks: list[Block] = []
    while True:
        pair = _mixed(codes, wanted)
        if pair is None:
            return blocks, codes
        one, other = (measures[i] for i in pair)
        apart = sorted(set(one.places) ^ set(other.places))
        if apart:
            block, values = _nearest(apart, line, measures, codes)
        else:
            block, values = _proportion(one, other, line, measures)
        w = _weight(codes, values)
        blocks.append(block._replace(weight=w * block.weight))
        codes = [c + w * m for c, m in zip(codes, values, strict=True)]


def _mixed(codes: list[Any], wanted: list[int]) -> tuple[int, int] | None:
    """The first two sequences of different classes that share a code."""
    first: dict[Any, int] = {}
    for i, code in enumerate(codes):
        j = first.setdefault(code, i)
        if wanted[i] != wanted[j]:
            return j, i
    return None


def _nearest(
    apart: list[int], line: list[int], measures: list[Measure], codes: list[int]
) -> tuple[Block, list[int]]:
    """The landmark that parts most: of tokens that one of two sequences has alone, and of others.

    max_i max(0, h - |x_i - t|) = h - dist(t, sequence), h for one of the two only if t is `apart`.
    """
    h = line[-1] - line[0] + 1
    most, landmark, values = 0, apart[0], [0]

    def distance(t: int, places: tuple[int, ...]) -> int:
        at = bisect_left(places, t)
        return min(abs(x - t) for x in places[max(0, at - 1) : at + 1])

    for t in [*_spread(apart), *_spread(line)]:
        seen = [h - distance(t, measure.places) for measure in measures]
        parted = len(set(zip(codes, seen, strict=True)))
        if parted > most:
            most, landmark, values = parted, t, seen
    return Block(landmark, h, 1, mean=False), values


def _spread(places: list[int]) -> list[int]:
    """Some of the places, the first and the last among them."""
    last = len(places) - 1
    return sorted({places[last * k // (CANDIDATES - 1)] for k in range(CANDIDATES)})


def _proportion(
    one: Measure, other: Measure, line: list[int], measures: list[Measure]
) -> tuple[Block, list[int]]:
    """The share of one token, for sequences that hold the same tokens in different proportions.

    A tent over it alone has the mean h times the share. The weight is a common multiple of the
    lengths, so that codes stay integers.
    """
    shares = zip(one.places, one.counts, other.counts, strict=True)
    landmark = next(x for x, a, b in shares if a * other.total != b * one.total)
    at = bisect_left(line, landmark)
    h = min(b - a for a, b in pairwise(line[max(0, at - 1) : at + 2]))
    multiple = lcm(*(measure.total for measure in measures))
    values = []
    for measure in measures:
        count = dict(zip(measure.places, measure.counts, strict=True)).get(landmark, 0)
        values.append(multiple // measure.total * count * h)
    return Block(landmark, h, multiple, mean=True), values


def _weight(codes: list[int], values: list[int]) -> int:
    """The first w = 1, 2, 4, ... for which c + w m keeps apart what (c, m) does."""
    pairs, w = set(zip(codes, values, strict=True)), 1
    while len({c + w * m for c, m in pairs}) < len(pairs):
        w *= 2
    return w


# --- the layers ----------------------------------------------------------------------------------


def _layers(blocks: list[Block]) -> list[RationalLayer]:
    """The blocks as layers. The last attention moves tokens as a whole: a sequence is one point."""
    layers: list[RationalLayer] = []
    for k, block in enumerate(blocks):
        t, h, w = block.landmark, block.h, block.weight
        tent = FeedForward(  # relu(x - t + h) - 2 relu(x - t) + relu(x - t - h) on c
            W1=weights([[1, 0], [1, 0], [1, 0]]),
            b1=weights([h - t, -t, -h - t]),
            W2=weights([[0, 0, 0], [w, -2 * w, w]]),
            b2=weights([0, 0]),
        )
        last = k == len(blocks) - 1
        pull = Pull(v=weights([0, int(not block.mean)]), V=weights([[int(last), 0], [0, 1]]))
        layers += [tent, pull]
    return layers


def _readout(number: dict[int, int]) -> list[RationalLayer]:
    """x <- the class of the lowest code; then, for each change between codes p < q, a ramp.

    relu(c - r) - relu(c - r - 1), r = floor((p + q)/2), goes from 0 to 1: codes are integers.
    """
    codes = sorted(number)
    forget = FeedForward(  # x - relu(x) + relu(-x) = 0
        W1=weights([[1, 0], [-1, 0]]),
        b1=weights([0, 0]),
        W2=weights([[-1, 1], [0, 0]]),
        b2=weights([number[codes[0]], 0]),
    )
    layers: list[RationalLayer] = [forget]
    for p, q in pairwise(codes):
        step, r = number[q] - number[p], (p + q) // 2
        if step:
            ramp = FeedForward(
                W1=weights([[0, 1], [0, 1]]),
                b1=weights([-r, -r - 1]),
                W2=weights([[step, -step], [0, 0]]),
                b2=weights([0, 0]),
            )
            layers.append(ramp)
    return layers
