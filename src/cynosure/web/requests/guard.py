"""Who may ask: hosts, origins, tokens and sizes, looked at before any route is.

A page of another site can make a browser send requests here. It cannot send JSON without asking
first, it is named in Origin, and a name that was pointed at this machine (DNS rebinding) stands in
Host: each of the three is refused.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, final
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route

from .bodies import read_body
from .problems import problem

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

COOKIE = "cynosure_token"
SHORTEST_TOKEN = 16
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]*)(?::[0-9]{0,5})?")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?")
_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors "
)
# A report is a page of its own: pictures and styles inside it, no script, no origin.
_REPORT = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
# The documentation is built from this package; its theme has scripts and styles in its pages.
_DOCS = (
    "default-src 'self' data: 'unsafe-inline'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
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


def checked_token(token: str | None) -> str | None:
    """The token, or ValueError for one that can be guessed or that no header can carry."""
    if token is None:
        return None
    if len(token) < SHORTEST_TOKEN or not all("!" <= c <= "~" for c in token):
        wanted = f"expected at least {SHORTEST_TOKEN} characters of ASCII without blanks"
        found = f"got {len(token)} characters; leave --token out and one is generated"
        raise ValueError(f"--token: {wanted}, {found}")
    return token


def checked_origin(origin: str | None) -> str | None:
    """The origin that may show the page in a frame, or ValueError for what is none."""
    if origin is not None and not _ORIGIN.fullmatch(origin):
        raise ValueError(f"--embed: expected an origin, https://course.example.edu; got {origin}")
    return origin


@final
class Guard:
    """ASGI middleware around everything that is served."""

    def __init__(
        self,
        app: Any,
        token: str | None,
        stop: Callable[[], Awaitable[None]],
        embed: str | None = None,
    ) -> None:
        self.app, self.token = app, checked_token(token)
        self.page = _PAGE + (checked_origin(embed) or "'none'")
        self.stop = stop  # ends what is being computed, so that nobody waits for it

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is None and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            routes = (route for route in self.app.router.routes if isinstance(route, Route))
            known = any(route.matches(scope)[0] is Match.FULL for route in routes)
            wants_json = scope["method"] == "POST" and known  # 404 and 405 come before 415
            body, refused = await read_body(headers, receive, wants_json)
            receive = _again(body, receive)
        await (refused or self.app)(scope, receive, self._sealed(send, scope["path"]))

    def _refused(self, scope: Message, headers: dict[str, str]) -> Response | None:
        if "transfer-encoding" in headers and "content-length" in headers:
            said = "expected either Content-Length or Transfer-Encoding, got both"
            return problem(400, said, {"Connection": "close"})
        host = headers.get("host", "")
        if (found := _HOST.fullmatch(host)) is None:
            return problem(400, f"expected Host: a name or address and a port, got {host[:100]}")
        name = found[1].strip("[]")  # [::1]:8765 -> ::1
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

    def _sealed(self, send: Send, path: str) -> Send:
        """Every answer with its headers; a report may look, not act."""
        report = path.startswith("/api/") and path.endswith(".html")
        policy = _REPORT if report else _DOCS if path.startswith("/docs/") else self.page

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(k, v) for k, v in message.get("headers", []) if k.lower() not in _SAFE]
                headers += [*_SAFE.items(), (b"content-security-policy", policy.encode())]
                kept = b"no-store" if path.startswith("/api/") else b"no-cache"
                headers.append((b"cache-control", kept))
                message = {**message, "headers": headers}
            await send(message)

        return sealed


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, once more for the route; then what the client does next."""
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return given.pop() if given else await receive()

    return replay
