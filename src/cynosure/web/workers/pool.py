"""Worker processes: each request in one that can be stopped, so that none holds up another.

A request that takes longer than a moment, while others wait, gives its place up and continues
beside them, as far as there is room. One that outlives its time, or whose client has gone, is
killed; one that dies fails its own request only. Requests that are likely to be quick have places
of their own; one that is not quick after all joins the others.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, final

from ..requests.bounds import BOUNDS
from ..requests.problems import Refusal
from .worker import HEAD

MOMENT = 0.25  # seconds after which a request is a slow one
STARTING = 120.0  # seconds within which a process is ready: imports on a busy machine
GRACE = 2.0  # seconds beyond its own deadline before a computation is killed
PATIENCE = 1.0  # seconds a computation goes on after its client has left: it may be done by then
USUAL = 1.0  # seconds of a request, before one has ended
WEIGHT = 0.1  # of the latest request in the mean of those that have ended
SMALL = 1 << 16  # bytes of an answer that is always taken
STOPPED = "the server was stopped while this was waited for"
_PACKAGE = Path(__file__).resolve().parents[3]

Tell = Callable[[dict[str, Any]], Any]
Gone = Callable[[], Awaitable[bool]]


class Answer(NamedTuple):
    """What a worker gave back: JSON, or a file of that media type."""

    media: str
    body: bytes | memoryview


@final
class Held(bytearray):
    """The bytes of an answer; they count in `total` as long as anything refers to them."""

    total = 0  # of this process

    def __init__(self, size: int) -> None:
        super().__init__(size)
        Held.total += size

    def __del__(self) -> None:
        Held.total -= len(self)


class _Died(Exception):
    """The process ended before it answered."""


class _Long(Exception):
    """A request that was thought to be quick is not, and others wait for its place."""


@final
class _Worker:
    """One process and its frames."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.lost, self.compiling = process, False, False

    @classmethod
    async def start(cls) -> _Worker:
        path = os.pathsep.join(filter(None, [str(_PACKAGE), os.environ.get("PYTHONPATH")]))
        one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cynosure.web.workers.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **one, "PYTHONPATH": path, "MPLBACKEND": "Agg"},
            start_new_session=True,  # Ctrl-C is the server's to handle
        )  # fmt: skip
        return cls(process)

    async def send(self, kind: bytes, body: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(HEAD.pack(kind, len(body)) + body)
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError):
            self.kill()
            raise _Died from None

    async def receive(self) -> tuple[bytes, bytes | memoryview]:
        source = self.process.stdout
        assert source is not None
        try:
            kind, size = HEAD.unpack(await source.readexactly(HEAD.size))
            if size <= SMALL:
                return kind, await source.readexactly(size)
            return kind, await self._long(source, size)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.kill()
            raise _Died from None

    async def _long(self, source: asyncio.StreamReader, size: int) -> memoryview:
        """An answer as it comes; without room for it, it is read and dropped."""
        room = Held.total + size <= int(BOUNDS["held_bytes"])
        body, at = memoryview(Held(size if room else 0)), 0
        try:
            while at < size:
                part = await source.read(min(size - at, SMALL))
                if not part:
                    raise ConnectionError
                if room:
                    body[at : at + len(part)] = part
                at += len(part)
        except BaseException:
            del body  # which the traceback would keep
            raise
        if room:
            return body
        said = f"answers of {Held.total >> 20} MB wait to be read by their clients"
        retry = int(BOUNDS["arrival_seconds"])
        raise Refusal(503, f"{said}; try again in {retry} s", retry=retry)

    async def call(self, body: bytes, tell: Tell | None) -> tuple[bytes, bytes | memoryview]:
        await self.send(b"C", body)
        while True:
            kind, answer = await self.receive()
            if kind == b"K":
                self.compiling = answer == b"1"
                continue
            if kind != b"P":
                return kind, answer
            if tell is not None:
                tell(json.loads(bytes(answer)))

    @property
    def alive(self) -> bool:
        """Whether it can be asked; its pipe ends before the system says that it has."""
        ended = self.process.stdout is None or self.process.stdout.at_eof()
        return not self.lost and not ended and self.process.returncode is None

    def kill(self) -> None:
        self.lost = True
        if self.process.returncode is not None:
            return
        try:  # asyncio's own kill() may reap a child first, which its watcher then complains about
            if os.name == "posix":
                os.kill(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        except ProcessLookupError:
            return


@final
class Pool:
    """At most `size` requests at a time, `slow` long ones beside them, `quick` more for quick ones.

    One is refused when `waiting` are before it, or it would wait for longer than `longest` seconds.
    """

    def __init__(
        self, settings: Mapping[str, Any], size: int, slow: int, waiting: int = 512,
        patience: float = PATIENCE, quick: int = 0, longest: float = 3600.0,
    ) -> None:  # fmt: skip
        self.settings, self.size, self.slow, self.waiting = dict(settings), size, slow, waiting
        self.patience, self.quick, self.longest = patience, quick, longest
        self._many, self._few = _Lane(size), _Lane(quick)
        self._usual, self._late, self._closed = USUAL, 0, asyncio.Event()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def prepare(self, count: int = 1) -> None:
        """Begin to start processes, one after the other, until `count` are ready or coming."""

        async def start() -> None:
            async with self._turn:  # the first is ready sooner
                with suppress(_Died, Refusal):
                    self._idle.append(await self._start())

        for _ in range(count - len(self._idle) - len(self._starting)):
            task = asyncio.create_task(start())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _start(self) -> _Worker:
        """A process that has been told what it is for, and is ready."""
        worker = await _Worker.start()
        self._all.add(worker)
        try:
            async with asyncio.timeout(STARTING):
                await worker.send(b"S", json.dumps(self.settings).encode())
                await worker.receive()
        except BaseException as error:
            self._end(worker)
            if isinstance(error, TimeoutError):
                said = f"this machine is too busy: no process started within {STARTING:g} s"
                raise Refusal(503, f"{said}; try again in {STARTING:g} s", ceil(STARTING)) from None
            raise
        return worker

    def _end(self, worker: _Worker) -> None:
        """Kill it and see it off."""

        async def see_off() -> None:
            # asyncio waits for the end of a pipe, and does not see it while the reader is full
            with suppress(RuntimeError):  # somebody else reads it
                while (source := worker.process.stdout) and await source.read(SMALL):
                    pass
            await worker.process.wait()
            self._all.discard(worker)

        worker.kill()
        task = asyncio.ensure_future(see_off())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _take(self) -> _Worker:
        while not self._closed.is_set():  # somebody may close it during each wait
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                self._end(worker)
            if not self._starting:
                with suppress(_Died):
                    return await self._start()
                if not self._closed.is_set():
                    raise Refusal(500, "a worker process could not be started")
                break
            await asyncio.wait(set(self._starting), return_when=asyncio.FIRST_COMPLETED)
        raise Refusal(503, STOPPED)

    async def run(
        self, call: str, asked: Any, seconds: float, gone: Gone, tell: Tell | None = None,
        quick: bool = False,
    ) -> Answer:  # fmt: skip
        """The answer to one call; Refusal where there is none. `asked` may be JSON already."""
        if quick and self.quick:
            with suppress(_Long):
                return await self._run(call, asked, seconds, gone, tell, self._few)
        queue = self._many.queue  # refuse what would wait too long, and say when it would not
        wait = queue * self._usual / (self.size + self.slow)
        if queue >= self.waiting or wait > self.longest:
            said = f"{queue} requests are waiting, which takes about {max(wait, 1.0):.0f} s"
            later = max(1, ceil(wait - self.longest))
            raise Refusal(503, f"{said}; try again in {later} s", retry=later)
        return await self._run(call, asked, seconds, gone, tell, self._many)

    async def _run(
        self, call: str, asked: Any, seconds: float, gone: Gone, tell: Tell | None, lane: _Lane
    ) -> Answer:
        waits = lane.places.locked()
        lane.queue += 1
        try:
            await lane.places.acquire()
        finally:
            lane.queue -= 1
        place, start = _Place(self, lane), monotonic()
        try:
            if waits and await gone():
                raise Refusal(499, "the client went away before its turn came")
            worker = await self._take()
            text = asked if isinstance(asked, str) else json.dumps(asked)
            body = f'{{"call": {json.dumps(call)}, "asked": {text}}}'.encode()
            task = asyncio.create_task(worker.call(body, tell))
            try:
                await self._watch(task, worker, seconds, gone, place)
                kind, answer = task.result()
            except _Died:
                if self._closed.is_set():
                    raise Refusal(503, STOPPED) from None
                said = f"the process that computed {call} died; the server keeps running"
                raise Refusal(500, said) from None
            finally:
                if not task.done():
                    task.cancel()
                    worker.kill()
                self._keep(worker)
        finally:
            place.give_back()
            if lane is self._many:
                self._usual += WEIGHT * (monotonic() - start - self._usual)
        return _judged(kind, answer, call)

    async def _watch(
        self, task: asyncio.Task[Any], worker: _Worker, seconds: float, gone: Gone, place: _Place
    ) -> None:
        """Until the task is done, its time over (without compiling), or nobody waits."""
        now = start = monotonic()
        left, slow = None, 0
        while not task.done():
            before = now
            await asyncio.wait({task}, timeout=MOMENT / 2)
            now = monotonic()
            if task.done():
                return
            if worker.compiling:
                start += now - before
            slow += now - before < MOMENT  # else it was this loop that was busy, not the worker
            if slow >= 2:
                place.make_room()
            if now - start > seconds + GRACE:
                said = f"this took longer than {seconds:g} s and was stopped; ask for less"
                raise Refusal(422, said)
            if await gone():
                left = now if left is None else left
                if now - left > self.patience:
                    raise Refusal(499, "the client went away, so the computation was stopped")

    def _keep(self, worker: _Worker) -> None:
        queue, alive = self._many.queue + self._few.queue, worker.alive
        if alive and (queue or len(self._idle) <= self.size + self.quick):
            self._idle.append(worker)
            return
        self._end(worker)
        if not alive and not self._closed.is_set():
            self.prepare()

    @property
    def processes(self) -> list[int]:
        """Process ids, for those who watch."""
        return [worker.process.pid for worker in self._all if worker.alive]

    async def close(self) -> None:
        """End every process, those that are only starting included, and refuse who still waits."""
        self._closed.set()
        starting = list(self._starting)
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        for worker in list(self._all):
            self._end(worker)
        await asyncio.gather(*self._ending, return_exceptions=True)


@final
class _Lane:
    """Places for so many requests, and how many wait for one."""

    def __init__(self, size: int) -> None:
        self.places, self.queue = asyncio.Semaphore(size), 0


@final
class _Place:
    """The place of one request in a lane, which it gives up once it is slow."""

    def __init__(self, pool: Pool, lane: _Lane) -> None:
        self.pool, self.lane, self.held, self.late = pool, lane, True, False

    def make_room(self) -> None:
        """Only where somebody waits: a process more costs seconds and memory."""
        if not self.held or not self.lane.queue:
            return
        if self.pool._late < self.pool.slow:
            self.pool._late += 1
            self.held, self.late = False, True
            self.lane.places.release()
            self.pool.prepare()
        elif self.lane is self.pool._few:
            raise _Long

    def give_back(self) -> None:
        if self.held:
            self.lane.places.release()
        if self.late:
            self.pool._late -= 1
        self.held = self.late = False


def _judged(kind: bytes, answer: bytes | memoryview, call: str) -> Answer:
    if kind == b"R":
        return Answer("application/json", answer)
    said = bytes(answer[:SMALL])
    if kind == b"F":
        media, line, _ = said.partition(b"\n")
        return Answer(media.decode(), answer[len(media + line) :])
    if kind == b"V":
        raise Refusal(422, said.decode("utf-8", "replace"))
    raise Refusal(500, f"{call} failed ({said.decode()}); please report it with what was sent")
