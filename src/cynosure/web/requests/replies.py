"""What comes back, as `/openapi.json` describes it, and every refusal. Nothing is parsed by it.

A number that is NaN or infinite comes as null. An answer may hold more fields than are named.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any

from pydantic import ConfigDict, create_model

from .problems import TITLES

Real = float | None
Matrix = list[list[Real]]
_Ints, _Words, _Reals, _Objects = list[int], list[str], list[Real], list[dict[str, Any]]


def _reply(name: str, /, **fields: Any) -> Any:
    """A model with these fields and any others; a field that may be absent is (type, default)."""
    given: dict[str, Any] = {
        k: one if isinstance(one, tuple) else (one, ...) for k, one in fields.items()
    }
    return create_model(name, __config__=ConfigDict(extra="allow"), **given)


def _several(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


Status = _reply("Status", code=str, message=str, advice=str, notes=_Words)
Outline = _reply("Outline", index=_Ints, vertices=Matrix, edges=(list[list[int]], []))
LimitReply = _reply(
    "LimitReply", points=Matrix, leaders=_Ints, born=_Ints, settled_at=_Ints, follows=_Ints,
    certified=bool, undecided=_Ints, layers=int, arithmetic=str, exact_decisions=int,
    polytope=Outline | None, hull=Outline | None, definite=bool, cautions=_Words,
    rule=(_Words, []), words=(_Words, []), margin=(_Reals, []),
    exact_points=(list[list[str]] | None, None), followed=(list[list[int]], []),
)  # fmt: skip
ProbeReply = _reply("ProbeReply", side=int, basin=_Ints)
RunReply = _reply(
    "RunReply", dynamics=str, status=Status, t=list[float], z=list[Matrix], in_time=bool,
)  # fmt: skip
Judgement = _reply(
    "Judgement", theorem=str, reference=str, statement=str, applies=bool, holds=bool | None,
    margin=Real, verdict=str,
)  # fmt: skip
CheckReply = _reply("CheckReply", holds=bool, checks=_several(Judgement), status=Status)
ShadowReply = _reply(
    "ShadowReply", layers=int, stopped=str, tolerance=Real, agrees_until=_Reals,
    plateaus=_Objects,
)  # fmt: skip
ControlReply = _reply("ControlReply", feasible=bool, A=Matrix | None, words=str)
Prediction = _reply("Prediction", label=str | None, probability=Real, decision=Real)
PredictReply = _reply("PredictReply", labels=_Words, predictions=_several(Prediction))
ExplainReply = _reply(
    "ExplainReply", text=str, leaders=_Objects, words=list[list[Any]], spans=list[list[Any]],
)  # fmt: skip
ConfigurationReply = _reply("ConfigurationReply", tokens=Matrix, exact=list[list[str]] | None)
ModelsReply = _reply("ModelsReply", models=_Objects)
TransformersReply = _reply("TransformersReply", transformers=_Words)
TraceReply = _reply("TraceReply", words=_Words, layers=int, heads=int, P=Matrix)
RunState = _reply("RunState", id=str, name=str, state=str, done=float, what=str)
ExperimentsReply = _reply("ExperimentsReply", experiments=_Objects, runs=_several(RunState))

ANSWERS: dict[str, Any] = {
    "limit": LimitReply, "basins": ProbeReply, "simulate": RunReply, "check": CheckReply,
    "control": ControlReply, "predict": PredictReply, "explain": ExplainReply,
    "shadow": ShadowReply, "trace": TraceReply, "configuration": ConfigurationReply,
    "models": ModelsReply, "transformers": TransformersReply, "experiments": ExperimentsReply,
    "run": RunState, "state": RunState, "cancel": RunState,
    **dict.fromkeys(("heads", "bounds", "configurations", "dynamics"), dict[str, Any]),
}  # fmt: skip
_AT_ONCE = ("bounds", "transformers", "experiments", "run", "state", "cancel")
_LINES: dict[str, Any] = {"application/x-ndjson": {}}  # progress, for those who accept it
_FILES: dict[str, Any] = {media: {} for media in ("application/octet-stream", "text/html")}
_OTHER = ("card", "report", "events")  # no JSON

PROBLEM: dict[str, Any] = {
    "type": "object", "title": "Problem", "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what was expected, what came, what to do"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}  # fmt: skip
_ALWAYS = (400, 401, 403, 421, 500, 503)  # of the guard, or of a server that is stopped
_WITH_BODY = (408, 413, 415, 422)


def replies(name: str, path: str, method: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: its answer, and every refusal that it may give."""
    codes = {*_ALWAYS, *(_WITH_BODY if method in ("POST", "DELETE") else ())}
    codes |= {404, 422} if "{" in path else {422}
    refused = {"schema": {"$ref": "#/components/schemas/Problem"}}
    out: dict[int | str, dict[str, Any]] = {
        code: {"description": TITLES[code], "content": {"application/problem+json": refused}}
        for code in sorted(codes)
    }
    good: dict[str, Any] = {"description": "The answer"}
    if name in ANSWERS:
        good["model"] = ANSWERS[name]
    if name == "events":
        good["content"] = {"text/event-stream": {}}
    elif name not in (*_AT_ONCE, *_OTHER):
        good["content"] = {**_LINES, **(_FILES if name == "simulate" else {})}
    return {202 if name == "run" else 200: good, **out}


def described(api: dict[str, Any], token: bool) -> dict[str, Any]:
    """`openapi.json` as FastAPI made it, with what it leaves out: the problem, and the token."""
    parts = api.setdefault("components", {})
    parts.setdefault("schemas", {})["Problem"] = PROBLEM
    if token:
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        api["security"] = [{"token": []}]
    return api
