"""The package as the attack calls it: every question on a clock of processor time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy

from .cases import Case
from .workers import WHOLE_CASE


@dataclass(frozen=True)
class Package:
    """What is asked, each question with `longest` seconds of processor time to answer it.

    The timer's signal ends the process, compiled loops included; 0 is no timer. What the attack
    itself computes between questions is on another, longer clock.
    """

    longest: float = 0.0

    def ask(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        signal.setitimer(signal.ITIMER_PROF, self.longest)
        try:
            return function(*args, **options)
        finally:
            signal.setitimer(signal.ITIMER_PROF, WHOLE_CASE * self.longest)

    def simulate(self, *args: Any, **options: Any) -> Any:
        return self.ask(cy.simulate, *args, **options)

    def limit(self, *args: Any, **options: Any) -> Any:
        return self.ask(cy.limit, *args, **options)


def dynamics(case: Case, kind: Callable[..., Any] = cy.PureAttention) -> Any:
    A = None if case.A is None else np.array(case.A, dtype=float)
    return kind(cy.Hardmax(A), case.alpha)
