"""Bodies of requests: read whole, within a size and a time, and refused unless they are JSON."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any

from pydantic_core import from_json
from starlette.responses import Response

from .bounds import BOUNDS
from .problems import problem

_PLAIN = bytes(set(range(256)) - set(b"[]{}"))
_OPEN = bytes.maketrans(b"{}", b"[]")
_UNREAD = {"Connection": "close"}  # nobody reads the rest of such a body


async def read_body(
    headers: dict[str, str],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    wants_json: bool,
) -> tuple[bytes, Response | None]:
    """The whole body, or why it is not taken: too long, too slow, packed, not JSON, not text."""
    most, seconds = int(BOUNDS["body_bytes"]), float(BOUNDS["arrival_seconds"])
    large = problem(413, f"expected at most {most} bytes in a request", _UNREAD)
    until = monotonic() + seconds
    length, packed = headers.get("content-length", "0"), headers.get("content-encoding", "identity")
    if length.isdigit() and int(length) > most:
        return b"", large
    if packed.strip().lower() != "identity":
        said = f"expected a body without Content-Encoding, got {packed[:60]}"
        return b"", problem(415, said, {"Accept-Encoding": "identity", **_UNREAD})
    parts, size = [], 0
    while True:
        try:
            message = await asyncio.wait_for(receive(), until - monotonic())
        except TimeoutError:
            late = f"expected the whole request within {seconds:g} s, got {size} bytes of its body"
            return b"", problem(408, late, _UNREAD)
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
    if not wants_json:
        return body, None
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        return b"", problem(415, f"expected Content-Type: application/json, got {media or 'none'}")
    return body, _not_json(body)


def _not_json(body: bytes) -> Response | None:
    """JSON as the standard has it: no NaN, no half of a surrogate pair, no endless number."""
    try:
        if _deep(body, from_json(body, allow_inf_nan=False)):
            return problem(400, f"the JSON is nested more than {BOUNDS['nesting']} deep")
        # two readers may take different ones of two equal keys
        json.loads(body.decode(), object_pairs_hook=_each_once)
    except ValueError as error:
        return problem(400, f"expected JSON: {str(error)[:200]}")
    return None


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"each key once in an object, got {twice!r:.60} again")


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
        rows = [list(one.values()) if isinstance(one, dict) else one for one in level]
        level = [x for row in rows if isinstance(row, list) for x in row]
    return bool(level)
