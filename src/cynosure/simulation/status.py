"""Status: how a run went, as a value with advice rather than an exception."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import final

import numpy as np

from .._display import Shown, facts
from ..dynamics import Flow
from ..engine.joining import joined, usual_tol
from .cycles import Cycle


@final
@dataclass(frozen=True)
class Status(Shown):
    """How a run went: a code, a sentence, and what to do about it.

    Codes: "settled" (every token's limit is proved), "moving" (some limits are not proved yet),
    "clusters" (layers that have come to rest, with the number of clusters and since when),
    "done" (a flow or another model ran to its end), "no_leader" and "not_converging" (possible only
    outside the hypotheses of the theory), "rounded_ties" (a tie was decided by rounded scores),
    "cycle" (layers that come back to the same states, with the period in the message).
    Four codes mean that the run stopped early, with what it had: "stopped" (what `stop_when` asks
    for has come) and "deadline" (the time it was given was over) are no faults; "overflow" and
    "stiff" count as failed.
    """

    code: str
    message: str
    advice: str = ""
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.code in ("overflow", "stiff")

    @property
    def early(self) -> bool:
        """Did the run stop before its end?"""
        return self.failed or self.code in ("deadline", "stopped")

    @property
    def short(self) -> str:
        """The code, for a cell of a table; of a cycle what it is."""
        return self.message.partition(":")[0] if self.code == "cycle" else self.code

    def __repr__(self) -> str:
        return f"Status({self.code}: {self.message})"

    def _repr_html_(self) -> str:
        rows = [("how it went", self.message), *(("note", note) for note in self.notes)]
        return facts(f"Status: {self.code}", rows + [("advice", self.advice)] * bool(self.advice))

    def __str__(self) -> str:
        parts = [self.message, *self.notes, self.advice]
        return f"{self.code}: " + " ".join(p for p in parts if p)


def turning(cycle: Cycle | None, notes: tuple[str, ...] = ()) -> Status | None:
    """The status of layers that end in a cycle; None where there is no cycle."""
    return None if cycle is None else Status("cycle", f"the run ends in {cycle}", "", notes)


def no_velocity(flow: Flow, t: float) -> Status:
    what = f"the velocity of {type(flow).__name__} at t = {t:g} is not finite"
    return Status("overflow", f"{what}, so there is no first step.", flow.advice)


def drowned(flow: Flow, t: float) -> Status:
    what = f"at t = {t:g} the components that attention reads are lost in the rounding of others"
    return Status("overflow", f"{what}, which grow. The run ends before.", flow.advice)


def overflow(flow: Flow, t: float) -> Status:
    return Status("overflow", f"tokens left the floats near t = {t:g}.", flow.advice)


def too_stiff(flow: Flow, t: float, message: str) -> Status:
    what = f"{type(flow).__name__} stopped at t = {t:g}: {message}."
    return Status("stiff", what, flow.advice_if_stiff)


def out_of_time(reached: str) -> Status:
    """The status of a run that its deadline ended at `reached`, "layer 12" or "t = 3.4"."""
    advice = "Give it more time (deadline=), fewer layers or a shorter time."
    return Status("deadline", f"the deadline passed at {reached}; the run ends there.", advice)


def stopped(at: str) -> Status:
    """The status of a run whose `stop_when` came true at "layer 12" or "t = 3.4"."""
    return Status("stopped", f"stop_when came true at {at}.")


_REST = 1e-6  # of the longest token at the start: a smaller motion per layer is rest
_MOST = 4096  # tokens that are joined, some milliseconds


def gathered(states: np.ndarray, t: np.ndarray, unit: str) -> str:
    """ "3 clusters since layer 12", of a run (saved, n, d) that has come to rest; else ""."""
    if len(states) < 3 or states.ndim != 3 or not 1 < len(states[0]) <= _MOST:
        return ""
    size = float(np.abs(states[0]).max())
    if not 0.0 < size < np.inf:
        return ""

    def scaled(row: int) -> np.ndarray:  # squares of large tokens would leave the floats
        return states[row].astype(np.float64) / size

    start = float(np.linalg.norm(scaled(0), axis=1).max())
    with np.errstate(over="ignore", invalid="ignore"):  # tokens that grew beyond all bounds
        moved = float(np.abs(scaled(-1) - scaled(-2)).max()) / float(t[-1] - t[-2])
    if not moved <= _REST * start:
        return ""
    tol = usual_tol(scaled(0))

    def count(row: int) -> int:
        return int(joined(scaled(row), tol).max()) + 1

    last = count(len(states) - 1)
    since = bisect_left(range(len(states)), True, key=lambda row: count(row) <= last)
    many = "one cluster" if last == 1 else f"{last} clusters"
    return f"{many} since {unit} {t[since]:g}"
