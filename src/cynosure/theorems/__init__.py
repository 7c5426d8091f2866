"""The statements B1..B41 of docs/mathematics.md, each checked on a given trajectory.

`check(trajectory)` judges all of them, `THEOREMS["B5"](trajectory)` one. Layers of hardmax
attention are read by B1..B20, the finite-beta chain by B21, flows in R^d by B22..B29, flows on the
sphere by B30..B34 (a softmax layer by B32), Gaussian crowds by B35, common noise by B36, places of
the normalisation by B37, Sinkhorn attention by B38, every run by B39 (and B40 where it has roles),
limits for any matrix A by B41; on any other run a statement does not apply.
Statements that are false as printed in their paper, or not proved there (B17, B20, B25, B27, B31,
B33), are checked in the corrected form; their docstrings say what was wrong.

To add a statement: one function with the decorator of its file; it registers itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..simulation.trajectory import Trajectory
from . import (  # noqa: F401 - importing a file enters its statements
    balance,
    convergence,
    eigenvalues,
    frank_wolfe,
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
from .checks import REGISTRY, Check, Hypothesis, Reading, Theorem
from .starts import expected_leaders

__all__ = ["THEOREMS", "Check", "Hypothesis", "Theorem", "check", "expected_leaders"]

THEOREMS: dict[str, Theorem] = {
    name: REGISTRY[name] for name in sorted(REGISTRY, key=lambda name: int(name[1:]))
}


def check(trajectory: Trajectory, only: Iterable[str] | None = None) -> list[Check]:
    """Check every statement of THEOREMS (or those named in `only`) on one trajectory, in order.

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
    names = list(THEOREMS) if only is None else list(only)
    if unknown := [name for name in names if name not in THEOREMS]:
        raise ValueError(f"only: unknown {', '.join(unknown)}; there are {', '.join(THEOREMS)}")
    opened: dict[type[Reading], Reading] = {}  # shared: limits and samples are computed once
    for name in names:
        opened.setdefault(THEOREMS[name].reads, THEOREMS[name].reads(trajectory))
    return [THEOREMS[name].judge(opened[THEOREMS[name].reads]) for name in names]
