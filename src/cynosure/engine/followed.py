"""Who follows whom: the sets C_i, stored once per value class, and their history over layers.

Equal tokens have equal scores, follow the same tokens and stay equal for ever (docs/mathematics.md
C4), so the sets live on *value classes*: the distinct tokens, each with its multiplicity. A class
leads when it follows only itself; for distinct tokens this is Definition 1.1 of arXiv 2407.01602.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, SupportsIndex

import numpy as np

from .._exports import guarded
from .._types import Array, is_torch


class Record(NamedTuple):
    """The sets of the classes that were searched at one layer, as a CSR over classes."""

    layer: int
    ids: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray

    def of(self, c: int) -> np.ndarray | None:
        """C_c at this layer, or None when class c had settled before."""
        row = int(np.searchsorted(self.ids, c))
        if row == len(self.ids) or self.ids[row] != c:
            return None
        return self.row(row)

    def row(self, row: int) -> np.ndarray:
        """The set in that row."""
        return self.indices[self.indptr[row] : self.indptr[row + 1]]


@guarded
@dataclass(frozen=True, eq=False)
class Followed:
    """The sets C_i of one layer, for one configuration (n,) or a batch (*b, n).

    `label` gives every token its value class (-1 for padding), numbered through the whole batch;
    `indptr`, `indices` are the sets of the classes. Index it like an array: `followed[i]`, or
    `followed[b, i]` in a batch, are the tokens that i follows, in increasing order.
    """

    label: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray

    @classmethod
    def of(cls, sets: Sequence[Sequence[int] | np.ndarray]) -> Followed:
        """The sets C_i of one configuration, each as the tokens that token i follows.

        Equal tokens must have equal sets with all copies in them, or they do not lead.
        """
        indptr = np.cumsum([0, *(len(row) for row in sets)])
        if (np.diff(indptr) < 1).any():
            raise ValueError("sets: expected at least one token in every set")
        indices = np.concatenate([np.sort(np.asarray(row, dtype=np.intp)) for row in sets])
        if indices.min() < 0 or indices.max() >= len(sets):
            raise ValueError(f"sets: expected tokens 0 to {len(sets) - 1}")
        return cls(np.arange(len(sets)), indptr, indices)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.label.shape

    def __len__(self) -> int:
        return len(self.label)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        tied = int((self.size > 1).sum())
        return f"Followed({self.shape}, {int(self.leads.sum())} lead, {tied} follow several)"

    def __getitem__(self, index: SupportsIndex | tuple[SupportsIndex, ...]) -> np.ndarray:
        c = self.label[index]
        if np.ndim(c) != 0:
            raise TypeError(f"followed[{index}]: give one index per axis of {self.shape}")
        if c < 0:
            return np.empty(0, dtype=np.intp)
        classes = self.indices[self.indptr[c] : self.indptr[c + 1]]
        order, start = self._order
        members = np.concatenate([order[start[j] : start[j + 1]] for j in classes.tolist()])
        return np.sort(members % self.shape[-1])

    @cached_property
    def count(self) -> np.ndarray:
        """Multiplicity of each class."""
        return np.bincount(self.label[self.label >= 0], minlength=len(self.indptr) - 1)

    @cached_property
    def first(self) -> np.ndarray:
        """First token (flat index) of each class."""
        flat = self.label.ravel()
        out = np.full(len(self.count), -1, dtype=np.intp)
        seen = np.flatnonzero(flat >= 0)[::-1]
        out[flat[seen]] = seen
        return out

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        flat = self.label.ravel()
        order = np.argsort(flat, kind="stable")[int((flat < 0).sum()) :]
        return order, np.concatenate(([0], np.cumsum(self.count)))

    @cached_property
    def _own(self) -> np.ndarray:
        """True for a class whose set is itself alone."""
        single = np.diff(self.indptr) == 1
        out = np.zeros(len(single), dtype=bool)
        out[single] = self.indices[self.indptr[:-1][single]] == np.flatnonzero(single)
        return out

    @property
    def leads(self) -> np.ndarray:
        """True where C_i is the token's own value class; shape (*b, n)."""
        return np.where(self.label >= 0, self._own[self.label], False)

    @property
    def size(self) -> np.ndarray:
        """|C_i|, duplicates counted; 0 for padding; shape (*b, n)."""
        total = np.add.reduceat(self.count[self.indices], self.indptr[:-1])
        return np.where(self.label >= 0, total[self.label], 0)

    @property
    def target(self) -> np.ndarray:
        """The first token of C_i for every token (its own index for padding); shape (*b, n)."""
        lowest = np.minimum.reduceat(self.first[self.indices], self.indptr[:-1])
        own = np.arange(self.shape[-1])
        return np.where(self.label >= 0, lowest[self.label] % self.shape[-1], own)

    def weights(self) -> np.ndarray:
        """P with P_ij = 1/|C_i| on C_i, dense, shape (*b, n, n)."""
        n = self.shape[-1]
        out = np.zeros((*self.shape, n))
        for index in np.ndindex(*self.shape):
            row = self[index]
            out[(*index, row)] = 1.0 / max(len(row), 1)
        return out

    def pull(self, z: Array) -> Array:
        """m_i, the mean of z over C_i; padding gets its own token back. Shape as z.

        With a torch tensor the sets are constants and the mean is differentiable: the gradient
        of the hardmax layer almost everywhere.
        """
        d = z.shape[-1]
        flat = z.reshape(-1, d)
        rows = np.repeat(np.arange(len(self.count)), np.diff(self.indptr))
        share = self.count[self.indices] / np.add.reduceat(
            self.count[self.indices], self.indptr[:-1]
        ).repeat(np.diff(self.indptr))
        source = self.first[self.indices]
        label = self.label.ravel()
        if is_torch(z):
            import torch

            def tensor(a: np.ndarray) -> Array:
                return torch.as_tensor(a, device=z.device)

            means = torch.zeros((len(self.count), d), dtype=z.dtype, device=z.device)
            pulled = flat[tensor(source)] * tensor(share).to(z.dtype)[:, None]
            means = means.index_add(0, tensor(rows), pulled)
            out = torch.where(tensor(label >= 0)[:, None], means[tensor(label)], flat)
        elif len(self.indices) == len(self.count):
            out = np.where((label >= 0)[:, None], flat[source][label], flat)
        else:
            means = np.add.reduceat(flat[source] * share[:, None], self.indptr[:-1]).astype(z.dtype)
            out = np.where((label >= 0)[:, None], means[label], flat)
        return out.reshape(z.shape)


def of_each(
    tokens: np.ndarray, real: np.ndarray | None, one: Callable[[np.ndarray], Followed]
) -> Followed:
    """The sets of tokens (*b, n, d) from those of the real tokens of each configuration."""
    *batch, n, d = tokens.shape
    flat = tokens.reshape(-1, n, d).astype(np.float64, copy=False)
    masks = [None] * len(flat) if real is None else list(real.reshape(-1, n))
    parts = []
    for z, mask in zip(flat, masks, strict=True):
        part = one(z if mask is None else z[mask])
        if mask is not None:
            label = np.full(n, -1, dtype=np.intp)
            label[mask] = part.label
            part = replace(part, label=label)
        parts.append(part)
    if not batch:
        return parts[0]
    classes = np.cumsum([0, *(len(p.indptr) - 1 for p in parts)])
    entries = np.cumsum([0, *(len(p.indices) for p in parts)])
    labels = [np.where(p.label >= 0, p.label + s, -1) for p, s in zip(parts, classes)]
    return Followed(
        np.concatenate(labels).reshape(*batch, n),
        np.append(np.concatenate([p.indptr[:-1] + s for p, s in zip(parts, entries)]), entries[-1]),
        np.concatenate([p.indices + s for p, s in zip(parts, classes)]),
    )


@dataclass(frozen=True, eq=False)
class History:
    """What a hardmax run remembers beside its states: who led since when, who followed whom.

    `born`, `settled_at`, `leader` have shape (*b, n): the first layer with C_i = {i}, the layer
    from which the token's future is known in closed form, and the leader it then follows (-1 for
    never / not yet / none). `records` holds the sets layer by layer; it is empty for batches.
    `same`, where some leaders met at one place, gives each class the first of those it met: from
    the layer at which they lead they are one value class.
    """

    born: np.ndarray
    settled_at: np.ndarray
    leader: np.ndarray
    exact_decisions: int = 0
    label: np.ndarray | None = None
    records: tuple[Record, ...] = ()
    same: np.ndarray | None = None

    def followed(self, k: SupportsIndex) -> Followed:
        """The sets at layer k: each class's last search at or before k (settled ones are final)."""
        if self.label is None or not self.records:
            raise ValueError(
                "a batch does not store its sets: use roles(trajectory.select(b)).followed(k)"
            )
        start, width = np.zeros((2, int(self.label.max()) + 1), dtype=np.intp)
        found = [record for record in self.records if record.layer <= int(k)]
        ends = np.cumsum([0, *(len(record.indices) for record in found)])
        for record, before in zip(found, ends):  # the last one that searched a class counts
            start[record.ids] = record.indptr[:-1] + before
            width[record.ids] = np.diff(record.indptr)
        indptr = np.concatenate(([0], np.cumsum(width)))
        place = np.repeat(start - indptr[:-1], width) + np.arange(indptr[-1])
        indices = np.concatenate([record.indices for record in found])[place]
        followed = Followed(self.label, indptr, indices)
        return followed if self.same is None else self._merged(followed, int(k))

    def until(self, k: int) -> History:
        """What a run that ends at layer k knows of it."""
        known = self.settled_at <= k
        return replace(
            self,
            born=np.where(self.born <= k, self.born, -1),
            settled_at=np.where(known, self.settled_at, -1),
            leader=np.where(known, self.leader, -1),
            records=tuple(record for record in self.records if record.layer <= k),
        )

    def _merged(self, followed: Followed, k: int) -> Followed:
        """The same sets, with the classes that have met by layer k as one class."""
        assert self.same is not None and self.label is not None
        born = np.full(len(self.same), -1, dtype=np.intp)
        born[self.label[self.label >= 0]] = self.born[self.label >= 0]
        same = np.where((born >= 0) & (born <= k), self.same, np.arange(len(self.same)))
        rows = [np.unique(same[row]) for row in np.split(followed.indices, followed.indptr[1:-1])]
        return Followed(
            np.where(self.label >= 0, same[self.label], -1),
            np.concatenate(([0], np.cumsum([len(row) for row in rows]))),
            np.concatenate(rows),
        )


class ClassTable(NamedTuple):
    """What is known of the value classes, one row each, in the units of z0 and A."""

    label: np.ndarray  # (n,) class of each token
    first: np.ndarray  # (m,) first token of each class
    born: np.ndarray  # (m,) first layer at which it leads, -1 never
    settled_at: np.ndarray  # (m,) layer at which its future was proved, -1 not yet
    leader: np.ndarray  # (m,) class of the leader it follows, -1 none
    rule: np.ndarray  # (m,) index into RULES
    margin: np.ndarray  # (m,) smallest gap seen between the best and the next score
    ends: np.ndarray  # (m, d) limits; where an open class is now
    exact_ends: list[list[Fraction]] | None  # the same in rationals, if z0 was given so
