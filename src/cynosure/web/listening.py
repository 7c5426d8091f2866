"""`serve`: a port, connections that must say something, and an end that leaves nobody waiting."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .bounds import BOUNDS
from .guard import is_loopback
from .server import Settings, application

__all__ = ["serve"]


@final
class _Connection(H11Protocol):
    """A connection that is closed when no request has come after some seconds.

    uvicorn waits for ever for a first request and for the rest of its head: connections that are
    opened and left would take every file descriptor in the end.
    """

    hurry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._relax()
        elif self.hurry is None:
            seconds = float(BOUNDS["arrival_seconds"])
            self.hurry = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _relax(self) -> None:
        if self.hurry is not None:
            self.hurry.cancel()
            self.hurry = None


@final
class _Server(uvicorn.Server):
    """Whoever waits for a computation when the server stops is told so before it is cut off."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stop = asyncio.ensure_future(self.config.app.stop())  # type: ignore[union-attr]
        await super().shutdown(sockets)
        await stop


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
        raise ValueError(
            f"port {port} of {host} cannot be had ({error.strerror}); try --port {port + 1}"
        ) from None
    return made


def serve(settings: Settings, host: str, port: int, ready: Any = None) -> None:
    """Serve until interrupted; `ready(address)` is called once the port is ours.

    Any host but this machine's own needs a token. A port that is taken is a ValueError.
    """
    if not is_loopback(host) and settings.token is None:
        raise ValueError(f"{host}: a host other than this machine's own needs a token")
    with _listening(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        if ready is not None:
            ready(address if settings.token is None else f"{address}?token={settings.token}")
        config = uvicorn.Config(
            application(settings), http=_Connection, ws="none", log_level="error",
            access_log=False, server_header=False, timeout_graceful_shutdown=2,
        )  # fmt: skip
        try:
            _Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            return
