"""What a refused or failed request is told: problem+json (RFC 9457), never a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "This request comes from another site",
    404: "There is nothing here",
    405: "This address does not take that method",
    408: "The request did not arrive in time",
    413: "The request is too large",
    415: "JSON is expected",
    421: "This host is not served here",
    422: "The request cannot be done as it is asked",
    499: "The client went away",
    500: "The computation failed",
    503: "The server cannot take this now",
}


class Refusal(Exception):
    """A request that is not done, and why; after `retry` seconds it is likely to be."""

    def __init__(self, status: int, detail: str, retry: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry = status, detail, retry


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """The answer to a request that is not done."""
    body = {"type": "about:blank", "title": TITLES.get(status, "Not done"), "status": status}
    text = json.dumps({**body, "detail": detail, **more}, allow_nan=False)  # ASCII: any text fits
    return Response(text, status, dict(headers or {}), "application/problem+json")
