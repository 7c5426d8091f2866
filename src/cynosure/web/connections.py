"""`serve`: a port, and connections that are bounded in number, in time and in bytes not read."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from sys import stderr
from typing import Any, final
from urllib.parse import urlencode

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .processes import Processes, Settings
from .requests.bounds import BOUNDS
from .requests.guard import checked_origin, checked_token, is_loopback
from .requests.problems import problem

PIECE = 256 << 10  # bytes sent at once; a client reads as many in `arrival_seconds`, or is cut
MOST_PENDING = 64 << 20  # bytes sent but not read by all clients; then new requests are refused
SPARE = 128  # file descriptors for everything but connections
BATCH = 32  # connections accepted at once: asyncio complains once for each that it cannot have
OFTEN = 60.0  # seconds between two messages that descriptors are short
_LATER = {"Retry-After": str(int(BOUNDS["arrival_seconds"])), "Connection": "close"}
_FULL = problem(503, "more clients than this server can hold; try again later", _LATER)
_HEADERS = b"".join(name + b": " + value + b"\r\n" for name, value in _FULL.raw_headers)
_CROWDED = b"HTTP/1.1 503 Service Unavailable\r\n" + _HEADERS + b"\r\n" + bytes(_FULL.body)


@final
class _Connection(H11Protocol):
    """A connection that is closed when no request comes for some seconds, or no answer is read.

    uvicorn waits indefinitely for both, which takes all file descriptors, and all memory.
    """

    hurry: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None
    most = 1 << 20  # connections; `serve` sets it

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_CROWDED)
            transport.close()
            return
        self._expect()

    @property
    def pending(self) -> int:
        """Bytes sent that the client has not taken yet: a piece at most, and what is before it."""
        return int(self.transport.get_write_buffer_size())

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = float(BOUNDS["arrival_seconds"])
        self.unread = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._relax("unread")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax("hurry", "unread")
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._relax("hurry")
        elif self.hurry is None:
            seconds = float(BOUNDS["arrival_seconds"])
            self.hurry = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _relax(self, *timers: str) -> None:
        for name in timers:
            if (timer := getattr(self, name)) is not None:
                timer.cancel()
                setattr(self, name, None)


@final
class _Server(uvicorn.Server):
    """Whoever waits for a computation when the server stops is told so before it is cut off."""

    stop: Callable[[], Awaitable[None]]
    told = -inf  # when it was last said that descriptors are short

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._complain)
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(512)  # those who wait; asyncio made it as few as it accepts at once

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self.told > OFTEN:
            self.told = loop.time()
            print(f"cynosure: {error.strerror}: connections wait; raise `ulimit -n`", file=stderr)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A closed terminal (SIGHUP) ends the server as SIGTERM does; `nohup` ignores it."""
        with super().capture_signals():
            number = getattr(signal, "SIGHUP", None)
            here = threading.current_thread() is threading.main_thread()
            if number is None or not here or signal.getsignal(number) is not signal.SIG_DFL:
                yield
                return
            signal.signal(number, self.handle_exit)
            try:
                yield
            finally:  # uvicorn raises what it was sent once more
                signal.signal(number, signal.SIG_DFL)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stop = asyncio.ensure_future(self.stop())
        await super().shutdown(sockets)
        await stop


def _roomy(app: Any, connections: Callable[[], Iterable[Any]]) -> Any:
    """The application, sending long bodies in pieces, each once most of the last has been read.

    Requests are refused while too much of what was sent is not read.
    """

    async def roomy(scope: Any, receive: Any, send: Any) -> None:
        async def in_pieces(message: Any) -> None:
            body, more = memoryview(message.get("body", b"")), message.get("more_body", False)
            rest = range(0, len(body), PIECE)[:-1]
            for at in rest:
                await send({**message, "body": body[at : at + PIECE], "more_body": True})
            whole = {**message, "body": body[len(rest) * PIECE :], "more_body": more}
            await send(whole if rest else message)

        if scope["type"] == "http" and sum(c.pending for c in connections()) > MOST_PENDING:
            said = f"{MOST_PENDING >> 20} MB of answers wait to be read by their clients"
            await problem(503, f"{said}; try again later", _LATER)(scope, receive, send)
            return
        await app(scope, receive, in_pieces)

    return roomy


def _listening(host: str, port: int) -> socket.socket:
    """A socket on that port.

    Trap: asyncio turns off Nagle's delay, 40 ms an answer, only where TCP is named as the protocol.
    """
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(512)
    except OSError as error:
        made.close()
        other = port + 1 if 1024 <= port < 65535 else 8765 if port != 8765 else 0
        said = f"port {port} of {host} cannot be used ({error.strerror}); try --port {other}"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            said = (
                f"--host {host}: expected a name or address of this machine ({error.strerror}); "
                "try --host 127.0.0.1, or --host 0.0.0.0 for every address it has"
            )
        raise ValueError(said) from None
    return made


def serve(settings: Settings, host: str, port: int, ready: Any = None) -> None:
    """Serve until interrupted; `ready(address)` is called once the port is ours.

    Any host but this machine's own needs a token. A port that is taken is a ValueError.
    """
    if not host.strip():
        raise ValueError("--host: expected a name or address such as 127.0.0.1, got an empty one")
    checked_token(settings.token)
    if checked_origin(settings.embed) and settings.token is not None:
        said = "a page in the frame of another site is sent no token; use --export and its files"
        raise ValueError(f"--embed: {said}")
    if not is_loopback(host) and settings.token is None:
        raise ValueError(f"{host}: a host other than this machine's own needs a token")
    with _listening(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        known = "" if settings.token is None else f"?{urlencode({'token': settings.token})}"
        if ready is not None:
            ready(f"http://{shown}:{listening.getsockname()[1]}/{known}")
        with suppress(ImportError):  # as many as the descriptors of this process allow
            import resource

            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft != resource.RLIM_INFINITY:
                _Connection.most = max(BATCH, soft - SPARE - BATCH)
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(settings, listening))


async def _serve(settings: Settings, listening: socket.socket) -> None:
    """The first worker processes import what they need while this one imports the application."""
    processes = Processes(settings)
    processes.begin()
    try:
        await asyncio.sleep(0.01)  # they have been told what they are for
        from .server import application

        guarded = application(settings, processes)
        config = uvicorn.Config(
            _roomy(guarded, lambda: server.server_state.connections), http=_Connection, ws="none",
            log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2,
            backlog=BATCH,
        )  # fmt: skip
        server = _Server(config)
        server.stop = guarded.stop
        await server.serve(sockets=[listening])
    finally:
        await processes.close()
