"""Status: how a run went, as a value with advice rather than an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["Status"]


@final
@dataclass(frozen=True)
class Status:
    """How a run went: a code, a sentence, and what to do about it.

    Codes: "settled" (every token's limit is proved), "moving" (some limits are not proved yet),
    "done" (a flow or another model ran to its end), "no_leader" and "not_converging" (possible only
    outside the hypotheses of the theory), "rounded_ties" (a tie was decided by rounded scores).
    Two codes count as failed, since the run stopped early: "overflow" and "stiff".
    """

    code: str
    message: str
    advice: str = ""
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.code in ("overflow", "stiff")

    def __str__(self) -> str:
        parts = [self.message, *self.notes, self.advice]
        return f"{self.code}: " + " ".join(p for p in parts if p)
