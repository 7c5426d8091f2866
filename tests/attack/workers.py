"""Cases in processes of their own: a crash, a signal or a call without end is an outcome.

A worker that dies is replaced. Time is that of its processor, so that a busy machine makes no case
slow: the kernel ends the worker with SIGPROF, even inside a compiled loop. A worker that neither
answers nor computes is ended by the clock.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .starts import case

LONGEST = 10.0  # seconds of processor time a case may take
_SILENCE = 30.0  # and so many times this on the clock


@dataclass(frozen=True)
class Result:
    """What became of a case: right, undecided, wrong, crashed or slow."""

    index: int
    kind: str
    mode: str
    outcome: str
    faults: tuple[str, ...]
    seconds: float
    open: int = 0


def examine(seed: int, index: int) -> Result:
    """One case in this process."""
    from .calls import Verdict, judge

    made = case(seed, index)
    begin = time.process_time()
    try:
        verdict = judge(made)
    except Exception as error:  # whatever it raises on finite floats is a finding
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if f"{os.sep}cynosure{os.sep}" in f.filename]
        if not ours:
            raise  # not the package: the attack itself is broken
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        fault = f"{type(error).__name__}: {error} ({where})"
        verdict = Verdict("crashed", (fault,))
    return Result(
        index=index,
        kind=made.kind,
        mode=made.mode,
        outcome=verdict.outcome,
        faults=verdict.faults,
        seconds=time.process_time() - begin,
        open=verdict.open,
    )


def _serve(seed: int, connection: Connection, longest: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("error")
    from .calls import warm_up

    warm_up()
    connection.send(None)  # ready
    while (index := connection.recv()) is not None:
        signal.setitimer(signal.ITIMER_PROF, longest)
        result = examine(seed, index)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(result)


class _Worker:
    """A process and the case it is at."""

    def __init__(self, seed: int, longest: float) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process: Any = context.Process(
            target=_serve, args=(seed, theirs, longest), daemon=True
        )
        self.process.start()
        theirs.close()
        self.index: int | None = None
        self.since = time.monotonic()

    def give(self, index: int | None) -> None:
        self.index, self.since = index, time.monotonic()
        self.connection.send(index)

    def end(self) -> int:
        self.connection.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        return int(self.process.exitcode)


def _lost(seed: int, worker: _Worker, waited: bool, longest: float) -> Result:
    """The outcome of a case whose worker is gone, or silent."""
    assert worker.index is not None
    code = worker.end()
    made = case(seed, worker.index)
    slow = waited or code == -signal.SIGPROF
    if code > 0:
        raise RuntimeError(f"case {seed}:{worker.index}: the attack itself failed, see above")
    return Result(
        index=worker.index,
        kind=made.kind,
        mode=made.mode,
        outcome="slow" if slow else "crashed",
        faults=(f"more than {longest:g} s" if slow else f"signal {-code}",),
        seconds=longest,
    )


def attack(
    seed: int, indices: Iterable[int], workers: int, longest: float = LONGEST
) -> Iterator[Result]:
    """Every case, in the order in which they finish."""
    todo = iter(indices)
    team = [_Worker(seed, longest) for _ in range(workers)]
    try:
        while team:
            ready = multiprocessing.connection.wait([w.connection for w in team], timeout=1.0)
            for worker in list(team):
                silent = time.monotonic() - worker.since > longest * _SILENCE
                if worker.connection not in ready and not silent:
                    continue
                try:
                    result = None if silent else worker.connection.recv()
                except EOFError:
                    silent = True
                    result = None
                if silent:
                    team.remove(worker)
                    if worker.index is None:
                        raise RuntimeError(f"a worker ended before its first case: {worker.end()}")
                    waited = worker.process.is_alive()
                    yield _lost(seed, worker, waited, longest)
                    team.append(_Worker(seed, longest))
                    continue
                if result is not None:
                    yield result
                index = next(todo, None)
                worker.give(index)
                if index is None:
                    team.remove(worker)
                    worker.end()
    finally:
        for worker in team:
            worker.end()
