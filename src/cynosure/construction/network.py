"""ExactClassifier: alternating feed-forward and hardmax layers whose weights are rationals.

Nothing is rounded: tokens are integers and fractions, and whom a token follows is decided by the
integers of `engine.kernels.exact`, as everywhere else in the package.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias, final

import numpy as np

from .._display import facts
from .._types import Array, Rational, as_rationals
from ..engine.kernels import exact

Weights: TypeAlias = np.ndarray  # of Python integers and Fractions, dtype object


def weights(values: Any) -> Weights:
    """An object array of exact numbers; whole ones are Python integers, which are quicker."""
    given = np.array(values, dtype=object)
    flat = map(Fraction, given.ravel().tolist())
    out = np.empty(given.size, dtype=object)
    out[:] = [x.numerator if x.denominator == 1 else x for x in flat]
    return out.reshape(given.shape)


class RationalLayer(abc.ABC):
    """A map of the tokens of many sequences, one below the other; `sizes` says how long each is."""

    kind: ClassVar[str]

    @abc.abstractmethod
    def __call__(self, z: Weights, sizes: Sequence[int]) -> Weights: ...

    @property
    def arrays(self) -> tuple[Weights, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]


@final
@dataclass(frozen=True, eq=False)
class Affine(RationalLayer):
    """z_i -> W z_i + b: the embedding, from R^d to the plane."""

    kind: ClassVar[str] = "affine"
    W: Weights
    b: Weights

    def __call__(self, z: Weights, sizes: Sequence[int]) -> Weights:
        return weights(z @ self.W.T + self.b)


@final
@dataclass(frozen=True, eq=False)
class FeedForward(RationalLayer):
    """z_i -> z_i + W2 relu(W1 z_i + b1) + b2."""

    kind: ClassVar[str] = "feed-forward"
    W1: Weights
    b1: Weights
    W2: Weights
    b2: Weights

    def __call__(self, z: Weights, sizes: Sequence[int]) -> Weights:
        hidden = np.maximum(z @ self.W1.T + self.b1, 0)
        return z + hidden @ self.W2.T + self.b2


@final
@dataclass(frozen=True, eq=False)
class Pull(RationalLayer):
    """z_i -> z_i + V (m_i - z_i), with m_i the mean over C_i = argmax_j <A z_i, z_j>, A = v v^T.

    A z_i = <v, z_i> v: only the sign of <v, z_i> counts. A token with a positive one follows the
    tokens with the largest <v, z_j>; where it is 0 (so everywhere for v = 0), all scores are equal,
    and it follows all of them: m_i is the mean of the sequence.
    """

    kind: ClassVar[str] = "attention"
    v: Weights
    V: Weights

    def __call__(self, z: Weights, sizes: Sequence[int]) -> Weights:
        ends = np.cumsum(sizes)
        parts = [z[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        return np.concatenate([part + (self.means(part) - part) @ self.V.T for part in parts])

    def followed(self, z: Weights) -> list[list[int]]:
        """C_i for every token of one sequence."""
        rows, _ = exact.integers(z.tolist())
        (v,), _ = exact.integers([self.v.tolist()])
        signs = [(s > 0) - (s < 0) for s in (exact.dot(v, row) for row in rows)]
        keys = list(enumerate(rows))
        sets = {s: exact.maximisers(tuple(s * x for x in v), keys)[0] for s in set(signs)}
        return [sets[s] for s in signs]

    def means(self, z: Weights) -> Weights:
        """m_i, row by row; tokens of the same C_i share one mean."""
        sets = self.followed(z)
        known = {
            id(members): weights([Fraction(x) / len(members) for x in z[members].sum(axis=0)])
            for members in {id(s): s for s in sets}.values()
        }
        return np.stack([known[id(members)] for members in sets])


@final
@dataclass(frozen=True, eq=False)
class Passage:
    """One sequence on its way: `tokens[k]` are its tokens after k layers, exact; `kinds[k - 1]` is
    the kind of layer k. Layer 0 is what was given, in R^d; all later ones are in the plane."""

    tokens: tuple[tuple[Rational, ...], ...]
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"Passage({len(self.tokens[0])} tokens, {len(self.kinds)} layers)"

    def as_floats(self) -> list[np.ndarray]:
        """The nearest float64 of every coordinate, an array (n, d) or (n, 2) per layer."""
        try:
            return [np.array([[float(x) for x in row] for row in z]) for z in self.tokens]
        except OverflowError:
            raise OverflowError(
                "as_floats: a coordinate is beyond the largest float; read `tokens`, which are "
                "exact, or divide the sequences by a constant and build again"
            ) from None


@final
@dataclass(frozen=True, eq=False)
class ExactClassifier:
    """A network of hardmax attention that classifies sequences, in exact arithmetic.

    `layers` are an embedding into the plane, blocks of feed-forward and attention that give every
    sequence a code of its own, and feed-forward blocks that read the label off the code
    (docs/mathematics.md F1). The last coordinate pair of a sequence is (number of its class, code).
    `sequences` and `labels` are those it was built from.
    """

    layers: tuple[RationalLayer, ...]
    classes: tuple[Hashable, ...]
    d: int
    sequences: tuple[tuple[Rational, ...], ...] = field(repr=False)
    labels: tuple[Hashable, ...] = field(repr=False)

    @property
    def depth(self) -> int:
        """How many layers there are, the embedding among them."""
        return len(self.layers)

    @property
    def blocks(self) -> int:
        """Blocks: a feed-forward layer and the attention after it, if there is one."""
        return sum(isinstance(layer, FeedForward) for layer in self.layers)

    @property
    def attentions(self) -> int:
        """Blocks with attention."""
        return sum(isinstance(layer, Pull) for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Entries of all matrices and vectors, those that are 0 included; A = v v^T counts as v."""
        return sum(array.size for layer in self.layers for array in layer.arrays)

    @property
    def bits(self) -> int:
        """The length of the longest numerator or denominator among the parameters."""
        flat = [x for layer in self.layers for array in layer.arrays for x in array.ravel()]
        return max(max(x.numerator.bit_length(), x.denominator.bit_length()) for x in flat)

    def __repr__(self) -> str:
        return (
            f"ExactClassifier(d={self.d}, {len(self.classes)} classes, {self.blocks} blocks "
            f"({self.attentions} with attention), {self.parameters} parameters)"
        )

    def _repr_html_(self) -> str:
        told = [
            ("built from", f"{len(self.sequences)} sequences, tokens in dimension {self.d}"),
            ("classes", len(self.classes)),
            ("blocks", f"{self.blocks}, {self.attentions} of them with attention"),
            ("parameters", f"{self.parameters}, of at most {self.bits} bits"),
        ]
        return facts("Exact classifier", told)

    def run(self, sequence: Array) -> Passage:
        """The tokens of one sequence after every layer."""
        states = [weights(self._tokens(sequence))]
        for layer in self.layers:
            states.append(layer(states[-1], (len(states[-1]),)))
        tokens = tuple(tuple(tuple(map(Fraction, row)) for row in z.tolist()) for z in states)
        return Passage(tokens, tuple(layer.kind for layer in self.layers))

    def predict(self, sequence: Array) -> Hashable:
        """The label of a sequence; for one that is not known, that of the nearest code."""
        return self._predicted([self._tokens(sequence)])[0]

    def verify(
        self, sequences: Sequence[Array] | Array = None, labels: Sequence[Hashable] | Array = None
    ) -> tuple[int, ...]:
        """Which of the sequences get a label other than their own; () when all are right.

        Without arguments those the network was built from. Takes the blocks with attention times
        all tokens, and the blocks of the readout times the sequences, exact steps of microseconds.
        """
        if (sequences is None) != (labels is None):
            raise ValueError("verify: expected both sequences and labels, or neither")
        if sequences is None or labels is None:
            sequences, labels = self.sequences, self.labels
        if len(sequences) != len(labels):
            raise ValueError(f"labels: expected {len(sequences)} of them, got {len(labels)}")
        found = self._predicted([self._tokens(s) for s in sequences])
        return tuple(i for i, label in enumerate(labels) if found[i] != label)

    def _tokens(self, sequence: Any) -> list[Rational]:
        rows = as_rationals(sequence)
        if len(rows[0]) != self.d:
            raise ValueError(f"sequence: expected tokens with d = {self.d}, got {len(rows[0])}")
        return rows

    def _predicted(self, sequences: Sequence[Sequence[Rational]]) -> list[Hashable]:
        """Labels of many sequences at once; n copies of one token move as one does."""
        if not sequences:
            return []
        z, sizes = weights([row for s in sequences for row in s]), [len(s) for s in sequences]
        for layer in self.layers:
            z = layer(z, sizes)
            if isinstance(layer, Pull) and max(sizes) > 1:  # one of equal tokens will do
                parts = np.split(z, np.cumsum(sizes)[:-1])
                parts = [part[:1] if (part == part[0]).all() else part for part in parts]
                z, sizes = np.concatenate(parts), [len(part) for part in parts]
        ends = np.cumsum(sizes)
        # floor(x + 1/2): the nearest class where x lies between two of them
        nearest = [int((2 * z[end - 1, 0] + 1) // 2) for end in ends]
        return [self.classes[min(max(k, 0), len(self.classes) - 1)] for k in nearest]
