"""The frame of an experiment: its report, its grid of measurements, its checks.

An experiment is a module with TITLE, Params, QUICK and run(p, progress). `report_of` reads title,
parameters and command off it; `over_grid` measures a grid of cells, kept and with progress;
`judged` asks a theorem about many runs; `at_most` and `all_of` are checks of one number; `require`
refuses parameters; `wilson`, `resampled` and `counted` give what was counted its interval.
Figures are made with `cy.plot.sheet`, tables with `cy.Table.of`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from math import sqrt
from typing import Any, TypeAlias, TypeVar

import numpy as np

import cynosure as cy

from ._measurements import kept_each

__all__ = [
    "Progress",
    "all_of",
    "at_most",
    "counted",
    "judged",
    "over_grid",
    "part",
    "report_of",
    "require",
    "resampled",
    "silent",
    "wilson",
]

T = TypeVar("T")
Progress: TypeAlias = Callable[[float, str], Any]  # (share done in [0, 1], what comes next)


def silent(share: float, what: str) -> None:
    """A progress that tells nobody."""


def part(progress: Progress | None, start: float | int, stop: float | int) -> Progress:
    """A progress for a part of the work: its 0 to 1 is `start` to `stop` of the whole."""

    def say(share: float, what: str) -> None:
        (progress or silent)(start + share * (stop - start), what)

    return say


def require(sensible: bool, expected: str, p: Any) -> None:
    """Refuse parameters that cannot be run, saying what was expected and what came."""
    if not sensible:
        name = type(p).__module__.rpartition(".")[2]
        raise ValueError(f"{name}: expected {expected}; got {p}")


def report_of(
    module: str,
    p: Any,
    summary: str,
    *,
    controls: Iterable[cy.Comparison],
    tables: Iterable[cy.Table] = (),
    checks: Mapping[str, Iterable[cy.Check]] | None = None,
    figures: Iterable[cy.Picture] = (),
    movies: Iterable[cy.Picture] = (),
    chapters: Iterable[cy.Report] = (),
) -> cy.Report:
    """The report of the experiment `module` (its `__name__`) run with the parameters p.

    `controls` sets each claim of `summary` beside what it does not mention: parameters varied, and
    a null model. A finding without one is not a finding yet; a pure picture gives ().
    """
    return cy.Report(
        title=sys.modules[module].TITLE,
        summary=summary,
        params=asdict(p),
        controls=tuple(controls),
        tables=tuple(tables),
        checks={name: tuple(group) for name, group in (checks or {}).items()},
        figures=tuple(figures),
        movies=tuple(movies),
        chapters=tuple(chapters),
        command=f"cynosure run {module.rpartition('.')[2]}",
    )


def over_grid(
    cell: Callable[..., T], p: Any, axes: Mapping[str, Sequence[Any]], progress: Progress = silent
) -> list[T]:
    """[cell(p, *values) for every combination of the axes' values], the last axis fastest.

    Each is kept where measurements are kept, in processes if those of `keeping` are asked for;
    `progress` is told which one comes next.
    """
    cells = list(product(*axes.values()))
    said = [", ".join(f"{name} = {_short(x)}" for name, x in zip(axes, cell)) for cell in cells]
    return kept_each(cell, [(p, *values) for values in cells], progress, said)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def judged(theorem: str, runs: Iterable[cy.Trajectory]) -> cy.Check:
    """The theorem checked on every run: the tightest of these checks, and how many there were."""
    checks = [check for run in runs for check in cy.check(run, only=(theorem,))]
    if not checks:
        raise ValueError(f"{theorem}: there is no run to check it on")
    applying = [check for check in checks if check.applies]
    tightest = min(applying, key=lambda check: check.margin, default=checks[0])
    count = {"runs": len(checks), "applies to": len(applying)}
    return replace(tightest, witness={**tightest.witness, **count})


def at_most(
    label: str, reference: str, statement: str, value: float | int, tol: float | int, **witness: Any
) -> cy.Check:
    """The check value <= tol, for statements that are about many runs at once.

    `label` names the statement in the report's table of checks. Trap: the labels B1, B2, ... belong
    to `cynosure.theorems`, which judges one run; ask `cy.check` for those.
    """
    return cy.Check(
        label,
        reference,
        statement,
        applies=True,
        holds=bool(value <= tol),
        margin=float(tol - value),
        tol=float(tol),
        witness={"measured": float(value), **witness},
        hypotheses=(),
        arithmetic="float64",
    )


def all_of(
    label: str, reference: str, statement: str, right: int, total: int, **witness: Any
) -> cy.Check:
    """The check that `right` of `total` cases, all of them, are as the statement says."""
    return at_most(label, reference, statement, total - right, 0, total=total, **witness)


def wilson(successes: int, total: int) -> tuple[float, float]:
    """The 95 % interval of Wilson for a probability of which `successes` of `total` were seen.

    With p = successes / total and z = 1.96 it is the set of all q with |p - q| <= z sqrt(q (1 - q)
    / total). Unlike p +- z sqrt(p (1 - p) / total) it stays inside [0, 1] and says something when
    none or all were seen: 0 of 100 is compatible with 3.7 %. Trap: the cases must be independent.
    (E. B. Wilson, J. Amer. Statist. Assoc. 22, 1927.)
    """
    if not 0 <= successes <= total or total < 1:
        raise ValueError(f"wilson: expected 0 <= successes <= total >= 1, got {successes}, {total}")
    z, p = 1.959963984540054, successes / total
    middle, half = p + z * z / (2 * total), z * sqrt(p * (1 - p) / total + (z / total) ** 2 / 4)
    low, high = ((middle + sign * half) / (1 + z * z / total) for sign in (-1, 1))
    return (0.0 if successes == 0 else low), (1.0 if successes == total else high)


def counted(successes: int, total: int) -> str:
    """A rate as text, with how many cases it stands on: "3 of 4 (0.75; 95 %: 0.3 to 0.954)"."""
    rate, low, high = map(_rate, (successes / total, *wilson(successes, total)))
    return f"{successes} of {total} ({rate}; 95 %: {low} to {high})"


def _rate(x: float) -> str:
    """Two digits of what is there, or, near 1, of what is missing: 0.9986 is not 1."""
    return f"{x:.2g}" if x < 0.9 else f"{1 - float(f'{1 - x:.2g}'):.10g}"


def resampled(
    values: Sequence[float | int] | np.ndarray, of: Callable[..., Any] = np.mean
) -> tuple[float, float]:
    """The 95 % bootstrap interval of `of` (a mean, a median) of independent values, seeded."""
    x = np.asarray(values, dtype=np.float64)
    rows = np.random.default_rng(0).integers(len(x), size=(2000, len(x)))
    low, high = np.quantile(of(x[rows], axis=1), (0.025, 0.975))
    return float(low), float(high)
