"""Who may ask: hosts, origins, tokens and sizes, looked at before any route is.

A page of another site can make a browser send requests here. It cannot send JSON without asking
first, it is named in Origin, and a name that was pointed at this machine (DNS rebinding) stands in
Host: each of the three is refused.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from time import monotonic
from typing import Any, final
from urllib.parse import parse_qs

from pydantic_core import from_json
from starlette.responses import RedirectResponse, Response

from .bounds import BOUNDS
from .problems import problem

__all__ = ["Guard", "is_loopback"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

COOKIE = "cynosure_token"
_PLAIN = bytes(set(range(256)) - set(b"[]{}"))
_OPEN = bytes.maketrans(b"{}", b"[]")
_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
# A report is a page of its own: pictures and styles inside it, no script, no origin.
_REPORT = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
_SAFE = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}


def is_loopback(host: str) -> bool:
    """True for the names of this machine itself."""
    import ipaddress

    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@final
class Guard:
    """ASGI middleware around everything that is served."""

    def __init__(self, app: Any, token: str | None, stop: Callable[[], Awaitable[None]]) -> None:
        self.app, self.token = app, token
        self.stop = stop  # ends what is being computed, so that nobody waits for it

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is None and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            body, refused = await _body(headers, receive, scope["method"])
            receive = _again(body, receive)
        if refused is not None:
            await refused(scope, receive, _sealed(send, scope["path"]))
            return
        await self.app(scope, receive, _sealed(send, scope["path"]))

    def _refused(self, scope: Message, headers: dict[str, str]) -> Response | None:
        host = headers.get("host", "")
        name = _name(host)
        if self.token is None and not is_loopback(name):
            return problem(421, f"expected a host of this machine, such as localhost; got {name}")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return problem(403, f"expected a request from http://{host}; it came from {origin}")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            page = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
            if not page or scope["path"] != "/":  # a link to the page is no harm
                return problem(403, f"expected a request from http://{host}, not another site")
        return None if self.token is None else self._unknown(scope, headers, self.token)

    def _unknown(self, scope: Message, headers: dict[str, str], token: str) -> Response | None:
        """Refuse who does not have the token; the link with it leaves a cookie."""
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        shown = query.get("token", [""])[0]
        if scope["path"] == "/" and shown and _same(shown, token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return answer
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(given.strip(), token):
            return None
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is not None and _same(cookie.value, token):
            return None
        said = "open the address with ?token=... once, or send Authorization: Bearer ..."
        return problem(401, said, {"WWW-Authenticate": "Bearer"})


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _name(host: str) -> str:
    """The host without its port: [::1]:8765 -> ::1."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


async def _body(
    headers: dict[str, str], receive: Receive, method: str
) -> tuple[bytes, Response | None]:
    """The whole body, or why it is not taken: too long, too slow, not JSON, not text."""
    most, seconds = int(BOUNDS["body_bytes"]), float(BOUNDS["arrival_seconds"])
    unread = {"Connection": "close"}  # nobody reads the rest of such a body
    large = problem(413, f"expected at most {most} bytes in a request", unread)
    until = monotonic() + seconds
    if (
        headers.get("content-length", "0").isdigit()
        and int(headers.get("content-length", 0)) > most
    ):
        return b"", large
    parts, size = [], 0
    while True:
        try:
            message = await asyncio.wait_for(receive(), until - monotonic())
        except TimeoutError:
            late = f"expected the whole request within {seconds:g} s, got {size} bytes of its body"
            return b"", problem(408, late, unread)
        if message["type"] != "http.request":
            return b"", problem(400, "the request ended before its body did")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            return b"", large
        parts.append(part)
        if not message.get("more_body"):
            break
    body = b"".join(parts)
    if method != "POST":
        return body, None
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        return b"", problem(415, f"expected Content-Type: application/json, got {media or 'none'}")
    return body, _not_json(body)


def _not_json(body: bytes) -> Response | None:
    """JSON as the standard has it: no NaN, no half of a surrogate pair, no endless number."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        return problem(400, f"expected JSON: {str(error)[:200]}")
    if _deep(body, value):
        return problem(400, f"the JSON is nested more than {BOUNDS['nesting']} deep")
    return None


def _deep(body: bytes, value: Any) -> bool:
    """Whether lists and objects are nested too deeply for those that write them again."""
    most = int(BOUNDS["nesting"])
    left = body.translate(_OPEN, _PLAIN)
    for _ in range(most):  # each turn takes the innermost level away
        left = left.replace(b"[]", b"")
    if not left:
        return False
    level = [value]  # deep, or brackets in texts
    for _ in range(most + 1):
        level = [x for one in level if isinstance(one, dict | list) for x in _inside(one)]
    return bool(level)


def _inside(one: dict[str, Any] | list[Any]) -> Any:
    return one.values() if isinstance(one, dict) else one


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, once more for the route; then what the client does next."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


def _sealed(send: Send, path: str) -> Send:
    """Every answer with its headers; a report may look, not act."""
    policy = _REPORT if path.startswith("/api/") and path.endswith(".html") else _PAGE

    async def sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(k, v) for k, v in message.get("headers", []) if k.lower() not in _SAFE]
            headers += [*_SAFE.items(), (b"content-security-policy", policy.encode())]
            if path.startswith("/api/"):
                headers.append((b"cache-control", b"no-store"))
            else:
                headers.append((b"cache-control", b"no-cache"))
            message = {**message, "headers": headers}
        await send(message)

    return sealed
