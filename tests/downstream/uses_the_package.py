"""A stranger's module, read by `mypy --strict` in tests/test_downstream.py and never run.

A line that a type checker must refuse ends in the code of the error, after `# refused:`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, assert_type

import cynosure as cy


class Halfway(cy.dynamics.LayerMap):
    """Every token goes half way to the origin."""

    def step(self, z: Any, k: int, *, mask: Any | None = None) -> Any:
        return z / 2


class Still(cy.dynamics.Flow):
    """Nothing moves."""

    def velocity(self, z: Any, t: float, *, mask: Any | None = None) -> Any:
        return 0 * z


class Wrong(cy.dynamics.LayerMap):
    """Its layers do not say which layer they are."""

    def step(self, z: Any) -> Any:  # refused: override
        return z


run = cy.simulate(Halfway(), [[1.0, 2.0], [0.0, 1.0]], layers=3)
assert_type(run, cy.Trajectory)
assert_type(cy.limit(cy.PureAttention(), [[1.0, 2.0]]), cy.analysis.Limit)
assert_type(cy.roles(run), cy.analysis.Roles)
assert_type(cy.load("run.npz"), cy.Trajectory)
assert_type(cy.plot, ModuleType)

clf = cy.HardmaxClassifier(leaders=6, method=cy.classifier.Placed(C=1.0))
assert_type(clf.fit(["a", "b"], [0, 1]), cy.HardmaxClassifier)
assert_type(clf.explain("a"), cy.classifier.Explanation)

print(cy.no_such_name)  # refused: attr-defined
cy.simulate(Halfway(), [[1.0]], no_such_option=1)  # refused: call-arg
cy.HardmaxClassifier(leaders="ten")  # refused: arg-type
number: int = cy.simulate(Still(), [[1.0]], time=1.0)  # refused: assignment
