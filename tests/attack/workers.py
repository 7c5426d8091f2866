"""Cases in processes of their own: a crash, a signal or a call without end is an outcome.

A worker that dies is replaced. Time is that of its processor, so that a busy machine makes no case
slow: the kernel ends the worker with SIGPROF, even inside a compiled loop. A worker that neither
answers nor computes is ended by the clock; one that waits for a busy machine goes on.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from .cases import Case

LONGEST = 10.0  # seconds of processor time for a question to the package
WHOLE_CASE = 6.0  # so many times that for a whole case
_SILENCE = 60.0  # and so many times that on the clock without any


@dataclass(frozen=True)
class Result:
    """What became of a case: right, undecided, wrong, crashed or slow."""

    case: Case
    outcome: str
    faults: tuple[str, ...] = ()
    seconds: float = 0.0
    open: int = 0  # tokens without a proved limit


def examine(case: Case, longest: float = 0.0) -> Result:
    """One case in this process, each question to the package within `longest` seconds (0: any)."""
    from .calls import Verdict, judge

    begin = time.process_time()
    try:
        verdict = judge(case, longest)
    except Exception as error:  # whatever the package raises on finite floats is a finding
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [f for f in frames if f"{os.sep}cynosure{os.sep}" in f.filename]
        if not theirs:
            raise  # the attack itself is broken
        where = f"{Path(theirs[-1].filename).name}:{theirs[-1].lineno}"
        verdict = Verdict("crashed", (f"{type(error).__name__}: {error} ({where})",))
    seconds = time.process_time() - begin
    return Result(case, verdict.outcome, verdict.faults, seconds, verdict.open)


Examiner = Callable[[Case, float], Result]


def _serve(connection: Connection, examiner: Examiner, longest: float) -> None:
    """The life of a worker: cases in, results out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("error")
    if examiner is examine:
        from .calls import warm_up

        warm_up()
    connection.send(None)  # ready
    while (case := connection.recv()) is not None:
        signal.setitimer(signal.ITIMER_PROF, WHOLE_CASE * longest)
        result = examiner(case, longest)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(result)


def _processor_time(pid: int | None) -> int:
    """Ticks that the process has had, 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


class _Worker:
    """A process and the case it is at."""

    def __init__(self, examiner: Examiner, longest: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, examiner, longest), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case | None = None
        self.since, self._spent = time.monotonic(), 0

    def give(self, case: Case | None) -> None:
        self.case, self.since = case, time.monotonic()
        self.connection.send(case)

    def silent(self, seconds: float) -> bool:
        """True when it has had a case for so long, and no processor time in all of it."""
        if self.case is None or time.monotonic() - self.since <= seconds:
            return False
        spent, before = _processor_time(self.process.pid), self._spent
        self._spent, self.since = spent, time.monotonic()
        return spent == before

    def end(self) -> int:
        """The exit status, which is minus a signal."""
        self.connection.close()
        self.process.join(1.0)  # one that has closed its end of the pipe is about to end
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        return int(self.process.exitcode or 0)


def _lost(worker: _Worker, silent: bool, longest: float) -> Result:
    """The outcome of a case whose worker is gone, or silent."""
    case, code = worker.case, worker.end()
    if case is None or code > 0:
        raise RuntimeError(f"the attack itself failed, at {case and case.name}: see above")
    if silent or code == -signal.SIGPROF:
        return Result(case, "slow", (f"more than {longest:g} s",), longest)
    return Result(case, "crashed", (f"signal {-code}: {signal.Signals(-code).name}",))


def attack(
    cases: Iterable[Case],
    workers: int,
    longest: float = LONGEST,
    examiner: Examiner = examine,
) -> Iterator[Result]:
    """Every case, in the order in which they finish."""
    todo = iter(cases)
    team = [_Worker(examiner, longest) for _ in range(workers)]
    try:
        while team:
            ready = multiprocessing.connection.wait([w.connection for w in team], timeout=1.0)
            for worker in list(team):
                silent = worker.silent(longest * _SILENCE)
                if worker.connection not in ready and not silent:
                    continue
                try:
                    result = None if silent else worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    result = None
                    gone = True
                else:
                    gone = silent
                if gone:
                    team.remove(worker)
                    yield _lost(worker, silent, longest)
                    team.append(_Worker(examiner, longest))
                    continue
                if result is not None:
                    yield result
                case = next(todo, None)
                worker.give(case)
                if case is None:
                    team.remove(worker)
                    worker.end()
    finally:
        for worker in team:
            worker.process.kill()
            worker.end()
