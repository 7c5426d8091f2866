"""How the flows of many heads end: groups of heads beside each other, and what they do not show.

The null models of a head's flow are Gaussian matrices of its shape, and uniform attention, where
every token looks at all tokens alike. A count that they share is not about the head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import cynosure as cy
from cynosure.pretrained.reading.head_flows import growth_rate

Row: TypeAlias = dict[str, Any]  # a head from a start, under the headers of the table
NEAR = 1e-3  # values of f1* closer than this times the largest at the start count as one
COUNTS = {"values of f1*": NEAR, "finer": NEAR / 10, "coarser": NEAR * 10}
GOOD, OTHER = "good triples", "other heads"
GAUSSIAN, UNIFORM = "Gaussian heads", "uniform attention"
FURTHER = "further draws"  # of random tokens, which only good triples have


class Ends(NamedTuple):
    """How the runs of a group of heads end, from one kind of start.

    `values` has a list for each head: distinct values of f1* in each of its runs where they can be
    counted. Runs of one head are not independent, so rates are over heads.
    """

    group: str
    start: str
    values: tuple[tuple[int, ...], ...]
    finer: int  # largest count at a tenth of the tolerance
    coarser: int  # and at ten times

    @property
    def heads(self) -> int:
        return len(self.values)

    @property
    def most(self) -> int:
        return max((max(v) for v in self.values), default=0)

    def within(self, k: int) -> int:
        """Heads all of whose runs end with at most k values."""
        return sum(max(v) <= k for v in self.values)

    def interval(self, k: int) -> tuple[float, float]:
        return cy.study.wilson(self.within(k), self.heads) if self.heads else (0.0, 1.0)


def values_of(f: np.ndarray, size: float, near: float = NEAR) -> int:
    """Distinct values among f (n,), counted at `near` times `size`."""
    return cy.clusters(f[:, None], near * max(size, 1e-300)).count


def uniform_end(head: cy.pretrained.Head, z0: np.ndarray, time: float) -> np.ndarray | None:
    """f1*(y_i) at `time` (in units of 1/l1) under uniform attention; None without f1*.

    With P_ij = 1/n the coordinate f = f1* obeys f_i' = c mean(f) - l1 f_i, c the eigenvalue of f1*:
    the mean goes like e^{(c - l1) t}, what is left of f_i like e^{-l1 t}. All end at one value.
    """
    lead = head.leading
    if lead is None:
        return None
    f = z0 @ lead.dual
    mean = float(f.mean())
    return mean * np.exp((lead.value / growth_rate(head) - 1) * time) + (f - mean) * np.exp(-time)


def uniform_row(head: cy.pretrained.Head, start: str, z0: np.ndarray, time: float) -> Row:
    """What `grouped` needs of that end."""
    row: Row = {"head": head.name, "start": start, "group": UNIFORM}
    if (end := uniform_end(head, z0, time)) is None or head.leading is None:
        return row | dict.fromkeys(COUNTS)
    size = float(np.abs(z0 @ head.leading.dual).max())
    return row | {name: values_of(end, size, near) for name, near in COUNTS.items()}


def grouped(runs: Sequence[Row]) -> list[Ends]:
    """The rows by group and kind of start; runs that cannot be counted are left out.

    Groups are compared from the text and from the first draw of random tokens, which all of them
    have: the worst of several draws would count against those that have more of them.
    """
    out = []
    kinds = cy.study.grouped(runs, itemgetter("group"), lambda r: kind_of(r["start"]))
    for (group, start), mine in kinds.items():
        rows = [r for r in mine if r["values of f1*"] is not None]
        heads = cy.study.grouped(rows, itemgetter("head")).values()
        finer, coarser = (max((r[k] for r in rows), default=0) for k in ("finer", "coarser"))
        values = tuple(tuple(r["values of f1*"] for r in of) for of in heads)
        out.append(Ends(group, start, values, finer, coarser))
    return out


def kind_of(start: str) -> str:
    """text, random, or further draws of random tokens."""
    return start if start in ("text", "random") else FURTHER


def ends_table(ends: Sequence[Ends]) -> cy.study.Table:
    columns: dict[str, Any] = cy.study.columns("heads = group, start, number = heads")
    columns |= {"runs": lambda e: sum(map(len, e.values)), "one value": lambda e: e.within(1)}
    columns |= {"at most 2": lambda e: e.within(2), "at most 3": lambda e: e.within(3)}
    columns |= {"at most 2, 95 % from": lambda e: e.interval(2)[0]}
    columns |= {"to": lambda e: e.interval(2)[1], "most values": "most"}
    columns |= {"most, ten times finer": "finer", "most, ten times coarser": "coarser"}
    note = (
        "Distinct values of f1* at the end, heads with several runs counted by the worst of them; "
        f"95 % after Wilson. {GAUSSIAN}: Gaussian matrices of the same shapes and norms. {UNIFORM}:"
        " A = 0, the same V, in closed form. Runs whose f1* drowns in rounding are left out."
    )
    return cy.study.Table.of("Heads beside null models", list(ends), columns, note)


def end_controls(ends: Sequence[Ends]) -> list[cy.study.Comparison]:
    """Is the number of values a mark of good triples? Does the attention keep values apart?"""
    by = {(e.group, e.start): e for e in ends if e.heads}
    good = {s: by[GOOD, s] for s in ("text", "random") if (GOOD, s) in by}
    out = []
    for start, mine in good.items():
        every = [mine, *(e for (g, s), e in by.items() if s == start and g != GOOD)]
        for claim, beside, what, share in _CLAIMS:
            shares = {e.group: share(e) for e in every}
            low = cy.study.wilson(*shares[GOOD])[0]
            beyond = [low > cy.study.wilson(*n)[1] for g, n in shares.items() if g != GOOD]
            said = f"{what}: {cy.study.shares(shares)}"
            claim = f"From {_START[start]}, {claim}."
            out.append(cy.study.Comparison(claim, beside, said, bool(beyond) and all(beyond)))
    return out


_CLAIMS: tuple[tuple[str, str, str, Callable[[Ends], tuple[int, int]]], ...] = (
    (
        "few values of f1* mark a good triple",
        "heads that are not good, Gaussian heads, uniform attention",
        "at most 2 values",
        lambda e: (e.within(2), e.heads),
    ),
    (
        "the attention of a good triple keeps values apart",
        "uniform attention, which never does; other and Gaussian heads",
        "more than one value",
        lambda e: (e.heads - e.within(1), e.heads),
    ),
)
_START = {"text": "a text", "random": "random tokens"}
