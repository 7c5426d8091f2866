"""The statements B1..B42 of docs/mathematics.md, each checked on a given trajectory.

`check(trajectory)` tests all of them, `THEOREMS["B5"](trajectory)` one; a statement that is not
about such a run does not apply. Statements that are false as printed in their paper, or not proved
there (B17, B20, B25, B27, B31, B33), are checked in the corrected form; their docstrings say what
was wrong.

To add a statement: one function with the decorator `statement`, in any file; it registers itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._exports import guard
from ..simulation.trajectory import Trajectory
from . import (  # noqa: F401 - importing a file enters its statements
    balance,
    convergence,
    eigenvalues,
    frank_wolfe,
    lasting,
    leadership,
    long_context,
    matrices,
    mean_field,
    motion,
    noise,
    normalisation,
    recorded_roles,
    rescaled,
    sphere,
    starts,
    trapping,
)
from .checks import (
    REGISTRY,
    AnyRun,
    Check,
    Checks,
    Hypothesis,
    Part,
    Reading,
    Theorem,
    exactly,
    least,
    statement,
)
from .layers import LayerRun
from .starts import expected_leaders

__all__ = [
    "THEOREMS", "AnyRun", "Check", "Hypothesis", "LayerRun", "Part", "Reading", "Theorem", "check",
    "exactly", "expected_leaders", "least", "statement",
]  # fmt: skip

THEOREMS = REGISTRY  # in the order of their numbers, then as they are added
for _name in sorted(THEOREMS, key=lambda name: int(name[1:])):
    THEOREMS[_name] = THEOREMS.pop(_name)


def check(trajectory: Trajectory, only: Iterable[str] | None = None) -> list[Check]:
    """Checks statements of the theory on one trajectory.

    Parameters
    ----------
    trajectory
        One run, for example from `simulate` or `load`. Of a batch, pass `trajectory.select(b)`.
    only
        The labels to check, such as ["B1", "B5"]. By default all of `THEOREMS`, in their order.

    Returns
    -------
    list of Check
        `applies` says whether the hypotheses hold, `holds` whether the run obeys the statement
        (None if it does not apply), `margin` how far it is from a violation.

    Raises
    ------
    TypeError
        If `trajectory` is not a Trajectory.
    ValueError
        If it is a batch, or if `only` names an unknown label.

    Examples
    --------
    >>> import cynosure as cy
    >>> tr = cy.simulate(cy.PureAttention(), [[2.0, 0.0], [1.0, 0.5], [0.0, 1.0]], layers=5)
    >>> [c.theorem for c in cy.check(tr) if c.applies][-4:]
    ['B19', 'B39', 'B40', 'B41']
    >>> all(c.holds for c in cy.check(tr) if c.applies)
    True
    """
    if not isinstance(trajectory, Trajectory):
        raise TypeError(
            f"check: expected a Trajectory, got {type(trajectory).__name__}; run the tokens first:"
            " check(simulate(PureAttention(), z, layers=30))"
        )
    if len(trajectory.z.shape) != 3:
        raise ValueError(
            f"check: expected one configuration (layers, n, d), got {tuple(trajectory.z.shape)}."
            " Check its configurations one by one: check(trajectory.select(b))"
        )
    names = list(THEOREMS.installed()) if only is None else list(only)
    if unknown := [name for name in names if name not in THEOREMS.installed()]:
        raise ValueError(f"only: unknown {', '.join(unknown)}; there are {', '.join(THEOREMS)}")
    opened: dict[type[Reading], Reading] = {}  # shared: limits and samples are computed once
    for name in names:
        opened.setdefault(THEOREMS[name].reads, THEOREMS[name].reads(trajectory))
    return Checks(THEOREMS[name].judge(opened[THEOREMS[name].reads]) for name in names)


guard(__name__)
