"""Where jobs are done: in this process, in processes of joblib, on a cluster of Dask.

Blocks of a sweep, partitions of bulk reading and the grids of experiments go through `finished`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

__all__ = ["Lost", "finished"]

AHEAD = 3  # tasks at the scheduler for each thread that computes
REFRESH = 5.0  # seconds, after which it is asked again how many there are: workers come and go
SILENCE = 120.0  # seconds without any worker, after which nobody is waited for any more


class Lost(NamedTuple):
    """In place of a result: the job killed the processes it was given to."""

    reason: str


def finished(
    work: Callable[[Any], Any],
    jobs: Mapping[int, Any],
    workers: int | None = None,
    client: Any = None,
) -> Iterator[tuple[int, Any]]:
    """(key, work(job) or Lost) of every job by its key, in the order in which they are done.

    RuntimeError where nobody is left to do the work. An error of `work` ends all.
    """
    if client is not None:
        return _on_cluster(work, jobs, client)
    if workers is not None and workers > 1 and len(jobs) > 1:
        return _in_processes(work, jobs, min(workers, len(jobs)))
    return ((key, work(jobs[key])) for key in jobs)


def _in_processes(
    work: Callable[[Any], Any], jobs: Mapping[int, Any], workers: int
) -> Iterator[tuple[int, Any]]:
    """Where a process dies, joblib ends them all: what was on its way is tried one by one.

    So a job that kills every process it meets is found, and does not keep the others from done.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped]
    from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
        TerminatedWorkerError,
    )

    ahead = AHEAD * workers
    run = Parallel(workers, return_as="generator_unordered", pre_dispatch=ahead, batch_size=1)
    left, suspects = dict.fromkeys(jobs), list[int]()
    while left:
        asked = suspects[:1] or list(left)
        done = run(delayed(_keyed)(work, key, jobs[key]) for key in asked)
        try:
            for key, result in done:
                yield key, result
                del left[key]
        except TerminatedWorkerError:
            if suspects:
                del left[asked[0]]
                yield asked[0], Lost("it killed the process it was computed in")
            else:
                suspects = [-1, *islice(left, ahead)]  # the first is dropped below
        finally:
            done.close()
        suspects = suspects[1:]


def _keyed(work: Callable[[Any], Any], key: int, job: Any) -> tuple[int, Any]:
    return key, work(job)


def _on_cluster(
    work: Callable[[Any], Any], jobs: Mapping[int, Any], client: Any
) -> Iterator[tuple[int, Any]]:
    """A few tasks ahead for each thread; Dask gives those of a worker that dies to another."""
    waiting, flying = iter(jobs), dict[Any, int]()
    threads, asked, alive = 0, -REFRESH, time.monotonic()
    try:
        while True:
            now = time.monotonic()
            if now > asked + REFRESH:
                threads, asked = sum(client.nthreads().values()), now
            for key in islice(waiting, max(0, AHEAD * max(1, threads) - len(flying))):
                flying[client.submit(work, jobs[key], pure=False)] = key
            if not flying:
                return
            done = _first_done(client, flying, REFRESH)
            alive = now if done or threads else alive
            if now > alive + SILENCE:
                raise RuntimeError(f"the cluster has had no worker for {SILENCE:g} s")
            for future in done:
                yield flying.pop(future), _result(future)
    finally:
        client.cancel(list(flying))


def _first_done(client: Any, futures: Iterable[Any], seconds: float) -> list[Any]:
    """Those of the client's futures that are done, waited for so long at most."""
    from distributed import wait

    with client.as_current(), suppress(TimeoutError):
        return list(wait(list(futures), timeout=seconds, return_when="FIRST_COMPLETED").done)
    return []


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        if isinstance(error, KilledWorker):
            return Lost(said)
        raise RuntimeError(f"the cluster gave up ({said})") from error
