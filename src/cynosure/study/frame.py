"""The frame of a study: its report, its grid of measurements, its checks and intervals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from math import sqrt
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ..drawing.report import Comparison, Picture, Report, Table
from ..simulation.trajectory import Trajectory
from ..theorems import Check, check
from .measurements import kept_each

__all__ = [
    *("Progress", "all_of", "at_most", "bars", "by_question", "counted", "judged", "measuring"),
    *("over_grid", "part", "report_of", "require", "resampled", "shares", "silent", "wilson"),
]

T = TypeVar("T")
Progress: TypeAlias = Callable[[float, str], Any]  # (share done in [0, 1], what comes next)


def silent(share: float, what: str) -> None:
    """A progress function that does nothing."""


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
    p: Any,
    summary: str,
    *,
    controls: Iterable[Comparison],
    tables: Iterable[Table] = (),
    checks: Mapping[str, Iterable[Check]] | None = None,
    figures: Iterable[Picture] = (),
    movies: Iterable[Picture] = (),
    chapters: Iterable[Report] = (),
    title: str = "",
) -> Report:
    """The report of a study run with p; title and name of the study are those of p's module.

    `controls` sets each claim of `summary` beside what it does not mention: parameters varied, and
    a null model. A finding without one is not a finding yet; a pure picture gives (). A report with
    a `title` of its own is a chapter, whose parameters are those of the whole.
    """
    module = type(p).__module__
    return Report(
        title=title or sys.modules[module].TITLE,
        summary=summary,
        params={} if title else asdict(p),
        controls=tuple(controls),
        tables=tuple(tables),
        checks={name: tuple(group) for name, group in (checks or {}).items()},
        figures=tuple(figures),
        movies=tuple(movies),
        chapters=tuple(chapters),
        command="" if title else f"cynosure run {module.rpartition('.')[2]}",
    )


def by_question(
    p: Any,
    summary: str,
    asked: Mapping[str, Callable[[Any, Progress], Report]],
    progress: Progress | None = None,
) -> Report:
    """The report of a study of several questions: a chapter for each that `p.questions` names.

    An alias of the study may mean one of them: see `cynosure.catalogue`.
    """
    names = ", ".join(asked)
    require(len(p.questions) > 0 and {*p.questions} <= {*asked}, f"questions of {names}", p)
    share = 1 / len(p.questions)
    steps = [part(progress, k * share, (k + 1) * share) for k in range(len(p.questions))]
    chapters = [asked[name](p, step) for name, step in zip(p.questions, steps)]
    return report_of(p, summary, controls=(), chapters=chapters)


def over_grid(
    cell: Callable[..., T], p: Any, axes: Mapping[str, Sequence[Any]], progress: Progress = silent
) -> list[T]:
    """[cell(p, *values) for every combination of the axes' values], the last axis fastest.

    Each is kept where measurements are kept, in processes if those of `keeping` are asked for;
    `progress` is told which one comes next.
    """
    cells = list(product(*axes.values()))

    def short(x: Any) -> str:
        return f"{x:g}" if isinstance(x, float) else str(x)

    said = [", ".join(f"{name} = {short(x)}" for name, x in zip(axes, cell)) for cell in cells]
    return kept_each(cell, [(p, *values) for values in cells], progress, said)


def measuring(p: Any, progress: Progress | None = None) -> Callable[..., list[Any]]:
    """`over_grid` for one grid after the other: over(cell, axes, until), `until` a share of all.

    Examples
    --------
    >>> over = measuring(3)
    >>> over(lambda p, d: p * d, {"d": (1, 2)}, 0.5) + over(lambda p, d: p + d, {"d": (1, 2)})
    [3, 6, 4, 5]
    """
    done: float | int = 0

    def over(
        cell: Callable[..., T], axes: Mapping[str, Sequence[Any]], until: float | int = 1
    ) -> list[T]:
        nonlocal done
        step, done = part(progress, done, until), until
        return over_grid(cell, p, axes, step)

    return over


def judged(theorem: str, runs: Iterable[Trajectory]) -> Check:
    """The theorem checked on every run: the tightest of these checks, and how many there were."""
    checks = [one for run in runs for one in check(run, only=(theorem,))]
    if not checks:
        raise ValueError(f"{theorem}: there is no run to check it on")
    applying = [one for one in checks if one.applies]
    tightest = min(applying, key=lambda one: one.margin, default=checks[0])
    count = {"runs": len(checks), "applies to": len(applying)}
    return replace(tightest, witness={**tightest.witness, **count})


def at_most(
    label: str, reference: str, statement: str, value: float | int, tol: float | int, **witness: Any
) -> Check:
    """The check value <= tol, for statements that are about many runs at once.

    `label` names the statement in the report's table of checks. Trap: the labels B1, B2, ... belong
    to `cynosure.theorems`, which judges one run; ask `cy.check` for those.
    """
    return Check(
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
) -> Check:
    """A check that holds if `right` equals `total`: all cases are as the statement says."""
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
    """A rate as text, with its number of cases: "3 of 4 (0.75; 95 %: 0.3 to 0.954)"."""
    rate, low, high = map(_rate, (successes / total, *wilson(successes, total)))
    return f"{successes} of {total} ({rate}; 95 %: {low} to {high})"


def _rate(x: float) -> str:
    """Two digits of what is there, or, near 1, of what is missing: 0.9986 is not 1."""
    return f"{x:.2g}" if x < 0.9 else f"{1 - float(f'{1 - x:.2g}'):.10g}"


def shares(cases: Mapping[Any, tuple[int, int]]) -> str:
    """Rates by name, as `counted` has each: "n = 2: 3 of 4 (...); n = 3: 1 of 4 (...)"."""
    return "; ".join(f"{name}: {counted(*of) if of[1] else 'none'}" for name, of in cases.items())


def bars(ax: Any, x: Any, samples: Iterable[Any], over: float | int = 1, **look: Any) -> None:
    """The mean of each sample against x with its 95 % bootstrap interval, all divided by `over`."""
    rows = [np.asarray(sample, dtype=np.float64) / over for sample in samples]
    mean = np.array([row.mean() for row in rows])
    ends = np.array([resampled(row) for row in rows]).T
    ax.errorbar(x, mean, np.abs(ends - mean), **{"fmt": "o-", "ms": 4, "capsize": 2, **look})


def resampled(
    values: Sequence[float | int] | np.ndarray, of: Callable[..., Any] = np.mean
) -> tuple[float, float]:
    """The 95 % bootstrap interval of `of` (a mean, a median) of independent values, seeded."""
    x = np.asarray(values, dtype=np.float64)
    rows = np.random.default_rng(0).integers(len(x), size=(2000, len(x)))
    low, high = np.quantile(of(x[rows], axis=1), (0.025, 0.975))
    return float(low), float(high)
