"""The page on the HTTP interface, read off its OpenAPI document; every line of curl is tested."""

from __future__ import annotations

import json
import shlex
from typing import Any

from _markdown import code, prose, table
from cynosure.web.requests.bounds import BOUNDS
from cynosure.web.server import Settings, application

# Route -> a body that shows it; `tests/test_web.py` sends each of them.
EXAMPLES: dict[str, dict[str, Any]] = {
    "limit": {"tokens": [[1, 1], [1, -1], ["1/2", 0]], "alpha": "1/2", "exact": True},
    "basins": {"tokens": [[1, 1], [1, -1]], "corner": [-2, -2], "opposite": [2, 2.5], "side": 3},
    "simulate": {
        "tokens": [[1, 1], [1, -1], [0.5, 0]],
        "dynamics": {"name": "pure_attention", "attention": {"name": "softmax", "beta": 4}},
        "layers": 10,
    },
    "check": {"tokens": [[1, 1], [1, -1], [0.5, 0]], "alpha": 1, "only": ["B1", "B5"]},
    "shadow": {
        "tokens": [[1, 1], [1, -1], [0.5, 0]],
        "dynamics": {"name": "pure_attention", "attention": {"name": "softmax", "beta": 9}},
        "layers": 20,
    },
    "control": {"tokens": [[2, 0], [0.2, 1], [1.5, 0.9], [0.1, 0.1]], "leaders": [1]},
    "predict": {"texts": ["A wonderful film.", "Dull and tedious."]},
    "explain": {"text": "A slow film, but what a wonderful ending!", "struck": ["slow"]},
}
_HOME = "localhost:8765"


def http_page() -> str:
    """Every route: what it does, what it takes, a line to type."""
    api = application(Settings()).app.openapi()
    schemas = api["components"]["schemas"]
    bounds = [[code(name), f"{value:,}".replace(",", " ")] for name, value in BOUNDS.items()]
    parts = [
        "# HTTP interface",
        "`cynosure serve` is a page and an API on the same port: JSON in, JSON out. A POST needs "
        "`Content-Type: application/json`. An error is `application/problem+json` (RFC 9457) with "
        "`status`, `title` and `detail`: what was expected, what came, what to do. NaN and "
        'infinity are `null`. Coordinates may be rationals, as text: `"1/3"`.',
        "Only this machine may connect (`Host` and `Origin` are checked). With another `--host` "
        "clients need the token that is printed, as `Authorization: Bearer ...` or once as "
        "`/?token=...`. Models are read from the folders named at the start, and no path from a "
        "client is ever opened. The server describes itself at `/openapi.json` and `/reference`.",
        "With `Accept: application/x-ndjson` a POST answers in lines while it computes: "
        '`{"done": 0.4, "what": "..."}` at each step, and at the end `{"answer": ...}` or '
        '`{"problem": ...}`. A client that disconnects stops its computation.',
        "## Bounds",
        "Computations run in separate processes and are stopped when their time is over. "
        "`/api/v1/bounds` returns these numbers.",
        table(["bound", "value"], bounds),
    ]
    for path, methods in api["paths"].items():
        for method, route in methods.items():
            parts += [f"## {method.upper()} {path}", prose(route.get("description", ""))]
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
            example = EXAMPLES.get(path.removeprefix("/api/v1/"))
            if example is not None:
                parts.append(f"```sh\n{curl(path, example)}\n```")
            elif method == "get" and "{" not in path:
                parts.append(f"```sh\ncurl -s {_HOME}{path}\n```")
            if name:
                parts.append(_fields(schemas[name], schemas))
    return "\n\n".join(parts)


def curl(path: str, body: dict[str, Any]) -> str:
    sent = shlex.quote(json.dumps(body))
    return f"curl -s {_HOME}{path} -H 'Content-Type: application/json' \\\n  -d {sent}"


def _fields(schema: dict[str, Any], all_: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        [
            code(name) + (" (needed)" if name in needed else ""),
            _kind(field, all_),
            code(json.dumps(field["default"])) if field.get("default") is not None else "",
            prose(field.get("description", "")),
        ]
        for name, field in schema.get("properties", {}).items()
    ]
    return table(["field", "what", "default", "about"], rows)


def _kind(schema: dict[str, Any], all_: dict[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_kind(one, all_) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), all_)}"
    return str(schema.get("type", "anything"))
