"""Deadlines: passed when their time is over, never before, and only sensible ones."""

from __future__ import annotations

from typing import Any

import pytest

from cynosure import _deadline
from cynosure._deadline import Deadline


def test_a_deadline_passes_when_its_seconds_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(_deadline, "monotonic", lambda: now[0])
    short, endless = Deadline(2), Deadline(None)
    now[0] = 101.9
    assert not short.passed and not endless.passed
    now[0] = 102.0
    assert short.passed and not endless.passed


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), True])
def test_a_deadline_needs_time(seconds: Any) -> None:
    with pytest.raises(ValueError, match="deadline: expected a positive number of seconds"):
        Deadline(seconds)


def test_what_is_left_can_be_handed_on() -> None:
    from cynosure._deadline import Deadline

    assert Deadline(None).left is None
    assert 3500 < (Deadline(3600).left or 0) <= 3600
    assert Deadline(1e-9).left == 1e-3


def test_no_deadline_runs_while_something_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(_deadline, "monotonic", lambda: now[0])
    before = Deadline(2)
    with _deadline.not_counted():
        now[0] = 150.0
        assert not before.passed and before.left == 2.0
        with _deadline.not_counted():  # another thread, which ends first
            now[0] = 160.0
        assert not before.passed
        now[0] = 170.0
    assert before.left == 2.0
    now[0] = 172.0
    assert before.passed
