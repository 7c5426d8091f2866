"""Status: how a run went, as a value with advice rather than an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from ..dynamics import Flow

__all__ = ["Status", "drowned", "no_velocity", "out_of_time", "overflow", "too_stiff"]


@final
@dataclass(frozen=True)
class Status:
    """How a run went: a code, a sentence, and what to do about it.

    Codes: "settled" (every token's limit is proved), "moving" (some limits are not proved yet),
    "done" (a flow or another model ran to its end), "no_leader" and "not_converging" (possible only
    outside the hypotheses of the theory), "rounded_ties" (a tie was decided by rounded scores).
    Three codes mean that the run stopped early, with what it had: "deadline" (the time it was given
    was over) is no fault; "overflow" and "stiff" count as failed.
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
        return self.failed or self.code == "deadline"

    def __str__(self) -> str:
        parts = [self.message, *self.notes, self.advice]
        return f"{self.code}: " + " ".join(p for p in parts if p)


def no_velocity(flow: Flow, t: float) -> Status:
    what = f"the velocity of {type(flow).__name__} at t = {t:g} is not finite"
    return Status("overflow", f"{what}, so there is no first step.", flow.advice)


def drowned(flow: Flow, t: float) -> Status:
    what = f"what attention reads drowned at t = {t:g} in the rounding of components that grow"
    return Status("overflow", f"{what}: steps follow noise from there.", flow.advice)


def overflow(flow: Flow, t: float) -> Status:
    return Status("overflow", f"tokens left the floats near t = {t:g}.", flow.advice)


def too_stiff(flow: Flow, t: float, message: str) -> Status:
    advice = (
        "Take a fixed step such as RK4(0.05), which averages over what is too fast to follow, a "
        "shorter time or looser tolerances; Adaptive(most_steps=...) tries on."
    )
    return Status("stiff", f"{type(flow).__name__} stopped at t = {t:g}: {message}.", advice)


def out_of_time(reached: str) -> Status:
    """The status of a run that its deadline ended at `reached`, "layer 12" or "t = 3.4"."""
    return Status(
        "deadline",
        f"the deadline passed at {reached}; the run ends there.",
        "Give it more time (deadline=), fewer layers or a shorter time.",
    )
