"""A slice of the fuzzing that `make fuzz` does at length, and its judge judged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.fuzz import outcomes  # noqa: E402
from tests.fuzz.outcomes import Case, outcome  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each case runs in a forked child")


@pytest.mark.parametrize(
    ("families", "count"), [("model", 100), ("run,table,tokens,archive", 80), ("command", 40)]
)
def test_mutated_files_and_commands_work_or_are_refused(families: str, count: int) -> None:
    words = ["-m", "tests.fuzz", "--families", families, "--count", str(count), "--seed", "1"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"of {count}" in done.stdout


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # any will do, and this one leaves no long message


def _bug() -> None:
    {}["missing"]


def _foreign() -> None:
    float("x")


def _exits() -> int:
    print("cynosure: error: x (KeyError; --debug shows where)", file=sys.stderr)
    return 1


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda: None, "ok"),
        (_crash, "signal"),
        (_bug, "traceback"),
        (_foreign, "traceback"),
        (_exits, "traceback"),
        (lambda: time.sleep(9), "slow"),
        (lambda: bytearray(b"x" * 300_000_000) and None, "fat"),
    ],
)
def test_the_judge_tells_the_outcomes_apart(monkeypatch, act, kind: str) -> None:
    monkeypatch.setattr(outcomes, "SECONDS", 3)
    base = outcome(Case("", "", lambda: None)).megabytes
    monkeypatch.setattr(outcomes, "MEGABYTES", base + 100)
    assert outcome(Case("", "", act)).kind == kind


def test_what_the_package_refuses_is_told_from_what_it_trips_over() -> None:
    import cynosure as cy

    assert outcome(Case("", "", lambda: cy.load("no such file") and None)).kind == "refused"
