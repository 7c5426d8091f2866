"""Check: a statement judged on one trajectory, and the registry that statements enter.

A check never merges two questions: `applies` says whether the hypotheses of that statement hold,
`holds` whether the trajectory obeys it (None when it does not apply). The margin of a check is
slack + tol: how far its tightest instance is from being called a violation.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from .._display import facts
from ..simulation.trajectory import Trajectory

__all__ = [
    "REGISTRY",
    "Check",
    "Hypothesis",
    "Part",
    "Reading",
    "Theorem",
    "U",
    "exactly",
    "least",
    "statement",
]

U = 2.0**-53


@final
@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of a statement, whether it holds, and the number that says so."""

    name: str
    holds: bool
    value: float


@final
@dataclass(frozen=True)
class Check:
    """A statement checked on one trajectory.

    `holds` is None where it does not apply (then margin and tol are NaN). `margin` >= 0 exactly
    when it holds. `witness` names the tightest or violated part, its slack, and where it was
    found. `arithmetic` is "exact" when that part compares bits or sets, without a tolerance.
    """

    theorem: str
    reference: str
    statement: str
    applies: bool
    holds: bool | None
    margin: float
    tol: float
    witness: dict[str, Any]
    hypotheses: tuple[Hypothesis, ...]
    arithmetic: Literal["exact", "float64"]

    def __repr__(self) -> str:
        margin = f", margin {self.margin:.3g}" if self.applies else ""
        return f"Check({self.theorem} {self.verdict}{margin})"

    def _repr_html_(self) -> str:
        why = [(h.name, f"{'yes' if h.holds else 'NO'}, {h.value:.3g}") for h in self.hypotheses]
        rows = [
            ("statement", self.statement),
            ("margin", f"{self.margin:.3g}, {self.arithmetic}" if self.applies else "–"),
            *why,
        ]
        return facts(f"{self.theorem} {self.verdict} ({self.reference})", rows)

    @property
    def verdict(self) -> str:
        """In one word or three: "holds", "FAILS", "does not apply"."""
        return "does not apply" if not self.applies else "holds" if self.holds else "FAILS"

    def __str__(self) -> str:
        if not self.applies:
            why = ", ".join(h.name for h in self.hypotheses if not h.holds)
            return f"{self.theorem} does not apply (fails: {why}): {self.statement}"
        return f"{self.theorem} {self.verdict}, margin {self.margin:.3g}: {self.statement}"


@final
@dataclass(frozen=True)
class Part:
    """One inequality slack >= -tol of a statement, at its tightest instance."""

    what: str
    slack: float
    tol: float
    where: dict[str, Any] = field(default_factory=dict)

    @property
    def margin(self) -> float:
        total = self.slack + self.tol
        return -np.inf if np.isnan(total) else float(total)


def least(what: str, slack: Any, tol: float, *axes: str, **where: Any) -> Part:
    """The smallest entry of `slack` and where it is along the named axes; inf when it is empty.

    An array in `where` under the name of an axis translates its positions, say into tokens.
    """
    values = np.asarray(slack, dtype=np.float64)
    if values.size == 0:
        return Part(what, np.inf, tol)
    flat = int(np.argmin(np.where(np.isnan(values), -np.inf, values)))
    index = tuple(int(i) for i in np.unravel_index(flat, values.shape))
    return Part(what, float(values[index]), tol, _named(axes, index, where))


def exactly(what: str, wrong: Any, *axes: str, **where: Any) -> Part:
    """A part without tolerance: no entry of the boolean array `wrong` may be true."""
    places = np.argwhere(np.asarray(wrong))
    if len(places) == 0:
        return Part(what, np.inf, 0.0)
    found = _named(axes, tuple(places[0].tolist()), where)
    return Part(what, -float(len(places)), 0.0, {"violations": len(places), **found})


def _named(axes: tuple[str, ...], index: tuple[int, ...], where: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict(zip(axes, index, strict=True))
    for name, table in where.items():
        found[name] = table[found[name]].tolist() if isinstance(table, np.ndarray) else table
    return found


@dataclass(frozen=True, eq=False)
class Reading(abc.ABC):
    """A trajectory opened for checking; what it computes is shared by the statements that read it.

    A reading knows one family of dynamics: `base` is what each of its statements needs before it
    can be looked at, and is asked before anything else.
    """

    trajectory: Trajectory

    @property
    @abc.abstractmethod
    def base(self) -> tuple[Hypothesis, ...]: ...

    @cached_property
    def real(self) -> np.ndarray:
        """The tokens that are not padding."""
        tr = self.trajectory
        return np.arange(tr.z.shape[1]) if tr.mask is None else np.flatnonzero(tr.mask)


Need = Callable[[Any], Hypothesis]
Evidence = Callable[[Any], list[Part]]


@final
@dataclass(frozen=True, eq=False)
class Theorem:
    """A statement with its hypotheses; call it with a trajectory to get a Check."""

    name: str
    reference: str
    statement: str
    needs: tuple[Need, ...]
    evidence: Evidence
    reads: type[Reading]

    def __call__(self, trajectory: Trajectory) -> Check:
        return self.judge(self.reads(trajectory))

    def judge(self, run: Reading) -> Check:
        hypotheses = run.base
        if all(h.holds for h in hypotheses):
            hypotheses += tuple(need(run) for need in self.needs)
        applies = all(h.holds for h in hypotheses)
        if not applies:
            worst = Part("", np.nan, np.nan)
            return self._check(False, None, np.nan, worst, {}, hypotheses)
        worst = min(self.evidence(run), key=lambda part: part.margin)
        witness = {"part": worst.what, "slack": worst.slack, **worst.where}
        return self._check(True, worst.margin >= 0, worst.margin, worst, witness, hypotheses)

    def _check(
        self,
        applies: bool,
        holds: bool | None,
        margin: float,
        worst: Part,
        witness: dict[str, Any],
        hypotheses: tuple[Hypothesis, ...],
    ) -> Check:
        return Check(
            theorem=self.name,
            reference=self.reference,
            statement=self.statement,
            applies=applies,
            holds=holds,
            margin=float(margin),
            tol=float(worst.tol),
            witness=witness,
            hypotheses=hypotheses,
            arithmetic="exact" if worst.tol == 0 else "float64",
        )


REGISTRY: dict[str, Theorem] = {}


def statement(
    reads: type[Reading], name: str, reference: str, text: str, needs: tuple[Need, ...] = ()
) -> Callable[[Evidence], Theorem]:
    """Register a function that gives the parts of a statement, one `Part` per inequality."""

    def register(evidence: Evidence) -> Theorem:
        REGISTRY[name] = Theorem(name, reference, text, needs, evidence, reads)
        return REGISTRY[name]

    return register
