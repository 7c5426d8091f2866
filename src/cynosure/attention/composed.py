"""Attentions made of others: looking back only, and several heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from .._scale import scaled
from .._types import Array, as_mask, as_parameter, as_rationals, as_tokens, like
from ..engine.followed import Followed
from ..engine.kernels import exact
from .rotary import Rotary
from .rules import Attention, Hardmax, RowAttention, SoftHead, row_pull, row_weights
from .scores import act, as_given, average, cast, keep_padding


@final
@dataclass(frozen=True, eq=False)
class Causal(Attention):
    """Token i looks only at the tokens j <= i (arXiv 2411.04990); the first follows itself.

    Wraps `Softmax`, `Localmax` or `Hardmax`, each also with `Rotary` positions; causal hardmax
    keeps the ties of exact arithmetic.
    Trap: the order of tokens now matters, so nothing is permutation equivariant any more.
    """

    attention: Attention

    def __post_init__(self) -> None:
        if not isinstance(self.attention, RowAttention | Hardmax):
            expected = "Causal wraps Softmax, Localmax or Hardmax (sets of tokens per row)"
            raise TypeError(f"attention: {expected}, got {self.attention!r}")

    @property
    def positive(self) -> bool:
        return self.attention.positive  # everybody looks at the first token

    @property
    def averages(self) -> bool:
        return self.attention.averages

    @property
    def softmaxes(self) -> tuple[SoftHead, ...]:
        return tuple(head._replace(causal=True) for head in self.attention.softmaxes)

    def followed(self, z: Array, *, mask: Array | None = None) -> Followed | None:
        """The sets C_i of causal hardmax, of tokens up to i; None for other attentions."""
        if not self.attention.hard:
            return None
        P = as_tokens(_prefix_weights(self.attention, z, mask))
        return Followed.of([np.flatnonzero(row) for row in P])

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        if self.attention.hard:
            return like(_prefix_weights(self.attention, z, mask), z)
        assert isinstance(self.attention, RowAttention)
        return row_weights(self.attention, z, mask, causal=True)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        if self.attention.hard:
            z = as_given(z)
            P = cast(_prefix_weights(self.attention, z, mask), z)
            return keep_padding(average(P, z), z, mask)
        assert isinstance(self.attention, RowAttention)
        return row_pull(self.attention, z, mask, causal=True)


@final
@dataclass(frozen=True, eq=False)
class Heads(Attention):
    """Several heads, each with its own attention P_h and value matrix V_h, averaged or summed.

        pull_i = (1/H) sum_h V_h (P_h z)_i            (no 1/H when average=False)

    `values` is None for identities, or one matrix (or None) per head; one head with a value matrix
    is `Heads([attention], [V])`. Heads may be hardmax. With identities and the average, P is
    again row-stochastic and the hull of the tokens shrinks; otherwise it need not.
    """

    heads: Sequence[Attention] = ()
    values: Sequence[Array | None] | None = None
    average: bool = True

    def __post_init__(self) -> None:
        heads = tuple(self.heads)
        if not heads or not all(isinstance(h, Attention) for h in heads):
            raise TypeError(f"heads: expected one or more attentions, got {self.heads!r}")
        object.__setattr__(self, "heads", heads)
        if self.values is not None:
            if len(self.values) != (h := len(heads)):
                raise ValueError(
                    f"values: expected one matrix per head ({h}), got {len(self.values)}"
                )
            values = tuple(as_parameter(V, f"values[{h}]") for h, V in enumerate(self.values))
            object.__setattr__(self, "values", values)

    @property
    def _plain(self) -> bool:
        return self.values is None and self.average

    @property
    def positive(self) -> bool:
        return self._plain and any(head.positive for head in self.heads)

    @property
    def averages(self) -> bool:
        return self._plain and all(head.averages for head in self.heads)

    @property
    def softmaxes(self) -> tuple[SoftHead, ...]:
        found = [head.softmaxes for head in self.heads]
        alike = self._plain and all(len(one) == 1 for one in found)
        return tuple(head for (head,) in found) if alike else ()

    @property
    def passes(self) -> int:
        return sum(head.passes for head in self.heads)

    @property
    def _factor(self) -> float:
        return 1 / len(self.heads) if self.average else 1.0

    def weights(self, z: Array, *, mask: Array | None = None) -> Array:
        """The averaged (or summed) P_h; with value matrices there is no single P, so ask a head."""
        if self.values is not None:
            advice = "use heads[h].weights(z) of one head"
            raise ValueError(f"Heads with value matrices have no single P: {advice}")
        return _total(self._factor * head.weights(z, mask=mask) for head in self.heads)

    def pull(self, z: Array, *, mask: Array | None = None) -> Array:
        z = as_given(z)
        values = self.values or [None] * len(self.heads)
        pulls = (
            act(V, self._factor * head.pull(z, mask=mask), "values")
            for head, V in zip(self.heads, values, strict=True)
        )
        return keep_padding(_total(pulls), z, mask)


def _prefix_weights(rule: Attention, z: Array, mask: Array | None) -> np.ndarray:
    """P of causal hardmax (*b, n, n), exact on the given floats or the turned ones of `Rotary`."""
    tokens = as_tokens(z)
    real = as_mask(mask, tokens.shape[:-1])
    A = rule.matrix(tokens.shape[-1]) if isinstance(rule, Hardmax) else None
    P = np.zeros((*tokens.shape[:-1], tokens.shape[-2]))
    for b in np.ndindex(tokens.shape[:-2]):
        keep = np.arange(tokens.shape[-2]) if real is None else np.flatnonzero(real[b])
        x = tokens[b][keep].astype(np.float64)
        queries, keys = rule.sides(x)[:2] if isinstance(rule, Rotary) else (x, x)
        for i, members in enumerate(_prefix_sets(queries, keys, A)):
            P[(*b, keep[i], keep[members])] = 1.0 / len(members)
    return P


def _prefix_sets(x: np.ndarray, z: np.ndarray, A: np.ndarray | None) -> Iterator[np.ndarray]:
    """argmax of <A x_i, z_j> over j = 0..i: floats with an error bound, integers where they tie."""
    form = np.eye(z.shape[1]) if A is None else scaled(A)[0]
    keys, rows = scaled(z)[0], scaled(x, -1)[0]  # for the floats: no score overflows
    queries, sizes = rows @ form.T, np.abs(rows) @ np.abs(form).T
    rounding = (2 * z.shape[1] + 4) * np.finfo(float).eps
    for i in range(len(z)):
        scores = keys[: i + 1] @ queries[i]
        error = rounding * (np.abs(keys[: i + 1]) @ sizes[i]) + 1e-290
        near = np.flatnonzero(scores + error >= (scores - error).max())
        if len(near) > 1:  # the integers are those of the tokens as given: scaling loses digits
            whole, _ = exact.integers(as_rationals(np.vstack([x[i], z[near]])))
            matrix = None if A is None else exact.integers(as_rationals(A))[0]
            query = exact.matvec(matrix, whole[0])
            best, _, _ = exact.maximisers(query, list(zip(near.tolist(), whole[1:], strict=True)))
            near = np.array(best)
        yield near


def _total(parts: Iterator[Array]) -> Array:
    first = next(parts)
    return sum(parts, start=first)
