"""Check: a statement judged on one trajectory, and the registry that statements enter.

A check never merges two questions: `applies` says whether the hypotheses of that statement hold,
`holds` whether the trajectory obeys it (None when it does not apply). The margin of a check is
slack + tol: how far its tightest instance is from being called a violation.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from .._display import facts, grid
from .._registry import Registry
from ..analysis.findings import Findings, findings
from ..attention import Softmax
from ..simulation.trajectory import Trajectory

U = 2.0**-53


@final
@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of a statement, whether it holds, and the number that says so."""

    name: str
    holds: bool
    value: float

    def __repr__(self) -> str:
        return f"Hypothesis({self.name}: {'yes' if self.holds else 'NO'}, {self.value:.3g})"

    @classmethod
    def of(cls, name: str, holds: Any) -> Hypothesis:
        """One that has no other number: 1 where it holds."""
        return cls(name, bool(holds), float(holds))


@final
class Hypotheses(tuple[Hypothesis, ...]):
    """Hypotheses and what their values mean, which is said where they are shown."""

    meaning: str

    def __new__(cls, given: Iterable[Hypothesis], meaning: str) -> Hypotheses:
        made = super().__new__(cls, given)
        made.meaning = meaning
        return made

    def __getnewargs__(self) -> tuple[tuple[Hypothesis, ...], str]:
        return tuple(self), self.meaning

    def __repr__(self) -> str:
        lines = (f"  {h.name}: {'yes' if h.holds else 'NO'}, {h.value:.3g}" for h in self)
        return "\n".join([f"Hypotheses, {self.meaning}", *lines])

    def _repr_html_(self) -> str:
        rows = [(h.name, "yes" if h.holds else "NO", f"{h.value:.3g}") for h in self]
        return grid(("hypothesis", "holds", self.meaning), rows, len(self))


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
class Checks(list[Check]):
    """The checks of one trajectory: a list that shows how many hold, and which do not."""

    def __repr__(self) -> str:
        failed = [c.theorem for c in self if c.verdict == "FAILS"]
        held = sum(c.verdict == "holds" for c in self)
        said = f"{held} hold, {len(self) - held - len(failed)} do not apply"
        wrong = f"FAIL: {', '.join(failed)}" if failed else "0 fail"
        return f"Checks({said}, {wrong})"

    def _repr_html_(self) -> str:
        rows = sorted(self, key=lambda c: ("FAILS", "holds").index(c.verdict) if c.applies else 2)
        cells = [(c.theorem, c.verdict, c.margin if c.applies else "", c.statement) for c in rows]
        return grid(("theorem", "verdict", "margin", "statement"), cells, len(self))


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
    if len(axes) != len(index):
        raise ValueError(f"axes: expected a name for each of {len(index)} axes, got {axes}")
    found: dict[str, Any] = dict(zip(axes, index))
    for name, table in where.items():
        found[name] = table[found[name]].tolist() if isinstance(table, np.ndarray) else table
    return found


def directions(d: int) -> np.ndarray:
    """Unit vectors of R^d: 64 seeded random ones, and both ends of the axes."""
    c = np.random.default_rng(0).standard_normal((64, d))
    return np.concatenate([c / np.linalg.norm(c, axis=1)[:, None], np.eye(d), -np.eye(d)])


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

    @property
    def alone(self) -> Hypothesis:
        axes = len(self.trajectory.z.shape)
        return Hypothesis("one configuration, not a batch", axes == 3, float(axes - 2))

    @property
    def every_layer(self) -> Hypothesis:
        t = self.trajectory.t
        every = np.array_equal(t, np.arange(len(t)))
        return Hypothesis("every layer saved, from layer 0", every, float(len(t)))

    @property
    def softmax(self) -> Softmax | None:
        """The attention of the dynamics, if it is a softmax with A = I over all tokens."""
        rule = getattr(self.trajectory.dynamics, "attention", None)
        return rule if isinstance(rule, Softmax) and rule.A is None else None

    @property
    def found(self) -> Findings:
        """What was found of the run already, and is not computed again."""
        return findings(self.trajectory)

    @property
    def real(self) -> np.ndarray:
        """The tokens that are not padding."""
        return self.trajectory.real

    @cached_property
    def states(self) -> np.ndarray:
        """The real tokens as the run has them, (saved, n, d)."""
        return self.trajectory.tokens

    @property
    def n(self) -> int:
        return self.states.shape[1]

    @property
    def d(self) -> int:
        return self.states.shape[2]

    @cached_property
    def u(self) -> float:
        """The rounding unit of the stored states."""
        return float(np.finfo(self.trajectory.values.dtype).eps) / 2

    @property
    def eta(self) -> float:
        """alpha/(1 + alpha): the share of its way to the mean that a token takes in a layer."""
        alpha = self.trajectory.made_by.exact_alpha
        assert alpha is not None
        return float(alpha / (1 + alpha))

    @property
    def steps(self) -> Hypothesis:
        """For a reading of layers."""
        t = self.trajectory.t
        return Hypothesis("at least one layer", len(t) > 1, float(t[-1]))


@final
class AnyRun(Reading):
    """Any run, without a hypothesis: what a statement of your own starts from."""

    @property
    def base(self) -> tuple[Hypothesis, ...]:
        return ()


Need = Callable[[Any], Hypothesis]
Evidence = Callable[[Any], list[Part]]


def need(name: str, value: Callable[[Any], Any], holds: Callable[[float], bool] = bool) -> Need:
    """The hypothesis that holds where `holds` says so of the number `value(run)`."""

    def judged(run: Any) -> Hypothesis:
        found = float(value(run))
        return Hypothesis(name, bool(holds(found)), found)

    return judged


def none(count: float) -> bool:
    return count == 0


def some(count: float) -> bool:
    return count > 0


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
        if run.found.deadline.passed:
            hypotheses += (Hypothesis("judged before the deadline", False, 0.0),)
        if all(h.holds for h in hypotheses):
            hypotheses += tuple(need(run) for need in self.needs)
        applies, worst, margin = all(h.holds for h in hypotheses), Part("", np.nan, np.nan), np.nan
        if applies:
            worst = min(self.evidence(run), key=lambda part: part.margin)
            margin = worst.margin
        return Check(
            theorem=self.name,
            reference=self.reference,
            statement=self.statement,
            applies=applies,
            holds=margin >= 0 if applies else None,
            margin=float(margin),
            tol=float(worst.tol),
            witness={"part": worst.what, "slack": worst.slack, **worst.where} if applies else {},
            hypotheses=hypotheses,
            arithmetic="exact" if worst.tol == 0 else "float64",
        )


REGISTRY: Registry[Theorem] = Registry(
    "theorems", "a Theorem, made by @statement", lambda one: isinstance(one, Theorem), {}
)


def statement(
    reads: type[Reading], name: str, reference: str, text: str, needs: tuple[Need, ...] = ()
) -> Callable[[Evidence], Theorem]:
    """Returns a decorator that turns a function into a Theorem and registers it for `check`.

    Parameters
    ----------
    reads
        The `Reading` that the function is called with: `LayerRun` for hardmax layers, `AnyRun` for
        every run, or a class of your own.
    name, reference, text
        A label that no other statement has, where the statement is from, and what it says.
    needs
        Functions of the Reading that return a Hypothesis. The statement applies if all hold.

    Returns
    -------
    decorator
        Of a function that returns a list of `Part`, one for each inequality slack >= -tol. `least`
        makes a Part of an array of slacks, `exactly` one of an array of violations.

    Examples
    --------
    >>> import cynosure as cy
    >>> from cynosure.theorems import AnyRun, Theorem, least
    >>> def bounded(run):
    ...     sizes = abs(run.trajectory.values).max(axis=-1)
    ...     return [least("coordinates", 2 - sizes, 0.0, "layer", "token")]
    >>> mine = Theorem("mine", "my notes", "no coordinate exceeds 2", (), bounded, AnyRun)
    >>> print(mine(cy.simulate(cy.PureAttention(), [[2.0, 0.0], [0.0, 1.0]], layers=5)))
    mine holds, margin 0: no coordinate exceeds 2
    """

    def register(evidence: Evidence) -> Theorem:
        known = REGISTRY.get(name)
        if known is not None and known.evidence.__module__ != evidence.__module__:
            raise ValueError(f"statement: {name} is one of {known.evidence.__module__} already")
        REGISTRY[name] = Theorem(name, reference, text, needs, evidence, reads)
        return REGISTRY[name]

    return register
