"""`python -m tests.fuzz.contract`: the server does what its `/openapi.json` says, and no more.

For every operation requests are made from its schema: some that fit, some with one thing broken.
Each answer must have a status and a media type that the operation documents, and a body that fits
the documented schema. Reader and maker of schemas share no code with pydantic or FastAPI.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

HOME = "http://localhost:8765"
ODD = (None, True, -1, 0, 1.5, 1e308, 10**30, "", "x", "1/2", "\u202e", [], [[]], {}, {"a": 1})
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "QUERY")
KNOWN = {
    "name": ["gaussian", "golden", "imdb", "figure1", "nothing", "%00"],
    "id_": ["figure1-00000000", "x", "a" * 300],
}
TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int, "number": (int, float),
}  # fmt: skip


class Contract:
    """The document, what fits a schema of it, and what a schema would be fitted by."""

    def __init__(self, api: dict[str, Any], seed: int = 0) -> None:
        self.api, self.draw = api, random.Random(seed)

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            at: Any = self.api
            for part in schema["$ref"].removeprefix("#/").split("/"):
                at = at[part]
            schema = at
        return schema

    def misfit(self, value: Any, schema: dict[str, Any], where: str = "$") -> str | None:
        """Why the value does not fit the schema; None where it does."""
        schema = self.resolved(schema)
        if "anyOf" in schema:
            found = [self.misfit(value, one, where) for one in schema["anyOf"]]
            return None if None in found else f"{where}: fits none of {len(found)}: {found[0]}"
        kind = schema.get("type")
        if kind is not None:
            right = isinstance(value, TYPES[kind])
            if not right or (isinstance(value, bool) and kind in ("integer", "number")):
                return f"{where}: expected {kind}, got {value!r:.60}"
        if "enum" in schema and value not in schema["enum"]:
            return f"{where}: {value!r:.60} is not in {schema['enum']}"
        if isinstance(value, dict):
            missing = [key for key in schema.get("required", ()) if key not in value]
            if missing:
                return f"{where}: {missing[0]} is missing"
            known = schema.get("properties", {})
            inner = [(f"{where}.{k}", value[k], known[k]) for k in known if k in value]
        else:
            items = schema.get("items", {}) if isinstance(value, list) else {}
            inner = [(f"{where}[{i}]", x, items) for i, x in enumerate(value)] if items else []
        return next((said for at, x, one in inner if (said := self.misfit(x, one, at))), None)

    def made(self, schema: dict[str, Any], name: str = "") -> Any:
        """A value that fits the schema, small."""
        schema, draw = self.resolved(schema), self.draw
        if "anyOf" in schema:
            return self.made(draw.choice(schema["anyOf"]), name)
        if "enum" in schema or "const" in schema:
            return draw.choice(schema.get("enum", [schema.get("const")]))
        kind = schema.get("type")
        if kind == "object":
            needed, known = schema.get("required", ()), schema.get("properties", {})
            chosen = [k for k in known if k in needed or draw.random() < 0.3]
            return {k: self.made(known[k], k) for k in chosen}
        if kind == "array":
            return self._array(schema, name)
        if kind == "string":
            if "pattern" in schema:
                return draw.choice(["1/3", "-2", "0.25", "1e3"])
            text = draw.choice(["a good film", "x", "B1", "äöü", "hardmax"])
            return text[: schema.get("maxLength", 99)]
        if kind in ("integer", "number"):
            low = schema.get("minimum", schema.get("exclusiveMinimum", -3))
            high = min(schema.get("maximum", schema.get("exclusiveMaximum", 30)), low + 30)
            whole = kind == "integer"
            return draw.randint(int(low), int(high)) if whole else draw.uniform(low + 1e-3, high)
        return {"boolean": draw.random() < 0.5, "null": None}.get(kind)

    def _array(self, schema: dict[str, Any], name: str) -> list[Any]:
        least = schema.get("minItems", 0)
        if name in ("tokens", "A"):  # rows of one length, which a schema cannot say
            d = self.draw.randint(1, 3)
            rows = self.draw.randint(1, 6) if name == "tokens" else d
            return [[self.draw.uniform(-2, 2) for _ in range(d)] for _ in range(rows)]
        size = self.draw.randint(least, min(least + 3, schema.get("maxItems", least + 3)))
        return [self.made(schema["items"], name) for _ in range(size)]

    def broken(self, value: Any) -> Any:
        """The value with one thing in it replaced by something odd, or one thing more."""
        if isinstance(value, dict) and value and self.draw.random() < 0.8:
            key = self.draw.choice(sorted(value))
            return {**value, key: self.broken(value[key])}
        if isinstance(value, list) and value and self.draw.random() < 0.6:
            at = self.draw.randrange(len(value))
            return [*value[:at], self.broken(value[at]), *value[at + 1 :]]
        if isinstance(value, dict) and self.draw.random() < 0.5:
            return {**value, "odd": 1}
        return self.draw.choice(ODD)

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, operations in self.api["paths"].items():
            for method, operation in operations.items():
                yield path, method.upper(), operation

    def filled(self, path: str) -> str:
        def word(found: re.Match[str]) -> str:
            return quote(self.draw.choice(KNOWN[found[1]]), safe="")

        return re.sub(r"\{(\w+)\}", word, path)

    def request(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Body and headers: mostly as documented."""
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            return {}
        body = self.made(content["schema"])
        if self.draw.random() < 0.5:
            body = self.broken(body)
        headers = {"Content-Type": "application/json"}
        if self.draw.random() < 0.1:
            headers["Content-Type"] = self.draw.choice(["text/plain", "", "application/xml"])
        if self.draw.random() < 0.1:
            headers["Accept"] = "application/x-ndjson"
        return {"content": json.dumps(body), "headers": headers}


def complaint(contract: Contract, operation: dict[str, Any], answer: Any) -> str | None:
    """What the answer is and the document does not say; None where all is as it says."""
    said = operation["responses"].get(str(answer.status_code))
    if said is None:
        return f"status {answer.status_code} is not documented: {answer.text[:200]}"
    media = answer.headers.get("content-type", "").partition(";")[0]
    content = said.get("content", {})
    if media not in content:
        return f"{media or 'no media type'} is not documented for {answer.status_code}"
    if media.endswith("json"):
        return contract.misfit(answer.json(), content[media].get("schema", {}))
    return None


def walk(client: Any, count: int, seed: int = 0) -> tuple[Counter[int], list[str]]:
    """`count` requests over all operations; statuses, and every complaint once per operation."""
    contract = Contract(client.get("/openapi.json").json(), seed)
    seen, complaints = Counter[int](), {}
    operations = list(contract.operations())
    for number in range(count):
        path, method, operation = operations[number % len(operations)]
        if path.endswith("/events") or (path.endswith("{name}") and method == "POST"):
            sent = {**contract.request(operation), "json": None}  # a run takes long: one that fails
            sent = {k: v for k, v in sent.items() if v is not None}
            where = re.sub(r"\{\w+\}", "nothing", path)
        else:
            sent, where = contract.request(operation), contract.filled(path)
        answer = client.request(method, where, **sent)
        seen[answer.status_code] += 1
        if (said := complaint(contract, operation, answer)) is not None:
            complaints.setdefault(f"{method} {path}: {said}", sent.get("content", ""))
    for path in contract.api["paths"]:
        complaints |= dict.fromkeys(methods(client, contract, path), "")
    return seen, [f"{said} <- {sent[:300]}" for said, sent in complaints.items()]


def methods(client: Any, contract: Contract, path: str) -> Iterator[str]:
    """Every method that is not documented is refused with those that are."""
    known = {method.upper() for method in contract.api["paths"][path]}
    for method in sorted(set(METHODS) - known):
        answer = client.request(method, re.sub(r"\{\w+\}", "nothing", path))
        allowed = set(filter(None, answer.headers.get("allow", "").split(", ")))
        if answer.status_code != 405 or allowed != known:
            yield f"{method} {path}: {answer.status_code}, Allow {sorted(allowed)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.contract", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    from starlette.testclient import TestClient

    from cynosure.web.server import Settings, application

    with TestClient(application(Settings(workers=2)), base_url=HOME) as client:
        seen, complaints = walk(client, given.count, given.seed)
    print(f"{given.count} requests: {dict(sorted(seen.items()))}; {len(complaints)} complaints")
    print("\n".join(complaints))
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
