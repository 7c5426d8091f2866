"""One case in a child of its own: how it ended, and what it took.

Seconds are those of the child's processor, so that a busy machine makes no case slow. The kernel
counts them and ends the child with SIGPROF, even inside a compiled loop; what neither ends nor
computes (a sleep, a lock that nobody opens) is ended by the clock, much later.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

GOOD = ("ok", "refused")
OUTCOMES = (*GOOD, "traceback", "signal", "slow", "fat")
SECONDS, MEGABYTES = 20, 2000
SILENCE = 600  # seconds on the clock: with a twentieth of a processor, still 30 of computing


class Case(NamedTuple):
    """What is tried: a name, code to paste, and the act, which returns an exit code or None."""

    family: str
    code: str
    act: Callable[[], int | None]


class Outcome(NamedTuple):
    kind: str
    said: str
    seconds: float
    megabytes: float


def outcome(case: Case) -> Outcome:
    """The case in a forked child; the parent survives whatever happens there."""
    with tempfile.TemporaryFile("w+") as told:
        child = os.fork()
        if child == 0:
            try:
                limit()
                told.write(json.dumps(act(case)))
                told.flush()
            finally:
                os._exit(0)
        _, status, used = os.wait4(child, 0)
        seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        told.seek(0)
        text = told.read()
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGPROF, -signal.SIGALRM) or seconds > SECONDS:
        said = f"silent for {SILENCE} s" if code == -signal.SIGALRM else ""
        return Outcome("slow", said, seconds, megabytes)
    if megabytes > MEGABYTES or code == -signal.SIGKILL:  # the system's, when it has no more memory
        return Outcome("fat", "", seconds, megabytes)
    if code < 0 or not text:
        return Outcome("signal", f"exit {code}", seconds, megabytes)
    return Outcome(*json.loads(text), seconds, megabytes)


def together(cases: Sequence[Case]) -> list[Outcome | None]:
    """Cases one after another in one child, for a fork costs more than most of them.

    None from the first on that did not end, or where all of them took too much memory: those are
    to be asked again, each alone.
    """
    with tempfile.TemporaryFile("w+") as told:
        child = os.fork()
        if child == 0:
            try:
                limit()
                for case in cases:
                    _time()
                    start = time.process_time()
                    told.write(json.dumps((*act(case), time.process_time() - start)) + "\n")
                    told.flush()
            finally:
                os._exit(0)
        _, _, used = os.wait4(child, 0)
        megabytes = used.ru_maxrss / 1024
        told.seek(0)
        lines = told.read().splitlines()
    if megabytes > MEGABYTES:
        return [None] * len(cases)
    ended = [Outcome(*json.loads(line), megabytes) for line in lines if line.endswith("]")]
    return [*ended, *[None] * (len(cases) - len(ended))]


def limit() -> None:
    for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # not Python's: compiled code would not hear it
    _time()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(1000)


def _time() -> None:
    """From now on, so many seconds of the processor and of the clock."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, SILENCE)


def act(case: Case) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = case.act()
    except MemoryError as error:
        return "refused", f"MemoryError: {error}"  # of the machine, and nothing was taken
    except (ValueError, TypeError, OSError, ArithmeticError, IndexError) as error:
        kind = "refused" if _is_ours(error) else "traceback"
        return kind, "".join(traceback.format_exception(error))[-3000:]
    except BaseException as error:
        return "traceback", "".join(traceback.format_exception(error))[-3000:]
    said = err.getvalue()
    if code in (None, 0):
        return "ok", ""
    if code == 1 and "--debug shows where" not in said:
        return "ok", said[-500:]  # a statement that does not hold, a run that overflowed
    one_line = said.count("cynosure: error:") == 1 and "Traceback" not in said
    return ("refused" if code == 2 and one_line else "traceback"), said[-3000:]


def _is_ours(error: BaseException) -> bool:
    """Raised by a `raise` of the package, or by the system with the name of a file; not by a
    library that the package misused."""
    if isinstance(error, OSError) and error.filename is not None:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return False
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0)
    return "cynosure" in Path(last.filename).parts and "raise" in line
