"""The application: routes that are library calls, the page, the reference."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from .. import __version__
from .processes import Processes, Settings
from .requests import schema
from .requests.bounds import BOUNDS
from .requests.guard import Guard
from .requests.problems import Refusal, problem
from .requests.replies import described, replies
from .workers.progress import LINES, progress

STATIC = Path(__file__).with_name("static")
_PACKAGE = Path(__file__).resolve().parents[1]
# Pictures of all studies stand in a checkout, those of its figures in an installed package.
_PICTURES = _PACKAGE.parents[1] / "docs" / "gallery"
if not _PICTURES.is_dir():
    _PICTURES = _PACKAGE / "figures" / "pictures"


def application(settings: Settings, processes: Processes | None = None) -> Any:
    """The ASGI application, guarded; with processes that were started before it."""

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        app.state.processes = processes or Processes(settings)
        app.state.processes.prepare()
        try:
            yield
        finally:
            await app.state.processes.close()

    app = FastAPI(
        title="Cynosure",
        version=__version__,
        summary="Tokens under attention: leaders, followers, proved limits; texts; transformers.",
        lifespan=living,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        redirect_slashes=False,
    )
    _routes(app)
    _runs(app)
    _pages(app, settings.site)
    plain = app.openapi
    app.openapi = lambda: described(plain(), settings.token is not None)  # type: ignore[method-assign]
    handlers = {
        Refusal: _refused, HTTPException: _missing, RequestValidationError: _invalid,
        Exception: _failed,
    }  # fmt: skip
    for error, handler in handlers.items():
        app.add_exception_handler(error, handler)

    async def stop() -> None:
        opened: Processes | None = getattr(app.state, "processes", None)
        if opened is not None:
            await opened.close()

    return Guard(app, settings.token, stop, settings.embed)


async def _refused(request: Request, error: Any) -> Response:
    wait = {} if error.retry is None else {"Retry-After": str(error.retry)}
    return problem(error.status, error.detail, wait)


async def _missing(request: Request, error: Any) -> Response:
    path = request.url.path[:100]
    if error.status_code == 404:
        return problem(404, f"there is no {path}; /reference lists what there is")
    if error.status_code == 405:
        routes = [r for r in request.app.router.routes if isinstance(r, Route)]
        here = [r for r in routes if r.matches(request.scope)[0] is not Match.NONE]
        allowed = ", ".join(sorted({m for r in here for m in r.methods or ()})) or "GET, HEAD"
        said = f"{path}: expected {allowed}, got {request.method[:20]}"
        return problem(405, said, {"Allow": allowed})
    return problem(error.status_code, str(error.detail)[:300], error.headers)


async def _failed(request: Request, error: Any) -> Response:
    return problem(
        500, f"{type(error).__name__} in the server; please report it with what was sent"
    )


async def _invalid(request: Request, error: Any) -> Response:
    """Each field with what was expected; what came is cut short."""
    found = [
        {
            "field": ".".join(str(part) for part in one["loc"] if part != "body")[:100],
            "expected": str(one["msg"])[:200],
            "got": repr(one.get("input"))[:80],
        }
        for one in error.errors()[:10]
    ]
    field, expected, got = found[0].values()
    return problem(422, f"{field or 'the request'}: {expected}; got {got}", errors=found)


def _processes(request: Request) -> Processes:
    processes: Processes = request.app.state.processes
    return processes


async def _ask(request: Request, call: str, body: Any, *, inside: bool = False) -> Response:
    """The answer of one library call, as the worker gave it."""
    processes = _processes(request)
    pool = processes.inside if inside else processes.maths
    seconds = float(BOUNDS["trace_seconds" if inside else "deadline_seconds"])
    wanted = body if isinstance(body, dict) else body.model_dump_json()
    if LINES in request.headers.get("accept", ""):
        told = progress(lambda gone, tell: pool.run(call, wanted, seconds, gone, tell))
        return StreamingResponse(told, media_type=LINES)
    quick = call in _QUICK and len(wanted) <= _SHORT
    answer = await pool.run(call, wanted, seconds, request.is_disconnected, quick=quick)
    return Response(answer.body, media_type=answer.media)


# Likely to be quick, where the request is short: as many tokens or words as people look at.
_QUICK = ("limit", "control", "predict", "explain", "configurations", "dynamics", "models", "card")
_SHORT = 8192  # characters of a body


# The routes that are one question with a body: what it may hold, what comes back.
_QUESTIONS: dict[str, tuple[type, str]] = {
    "limit": (schema.Limit, "Limits at infinite depth, each with the rule that proves it."),
    "basins": (schema.Probe, "For each place of a grid the leader one more token would tend to."),
    "simulate": (schema.Simulate, "Layers or a flow: states, leaders, ends; or .npz, or a report."),
    "check": (schema.Check, "The theorems on a run: does each apply, hold, by how much."),
    "shadow": (schema.Shadow, "How long softmax provably follows hardmax and keeps clusters."),
    "control": (schema.Control, "The A under which chosen tokens lead, or why no such A exists."),
    "predict": (schema.Predict, "Labels of texts with their probabilities, in order."),
    "explain": (schema.Explain, "Words, leaders, clusters, their sum: why a text gets its label."),
    "trace": (schema.Trace, "A sentence by layer: tokens, clusters, leaders, sinks, one head."),
    "heads": (schema.Heads, "Every head and its hypotheses; or one iterated, with controls."),
}


def _route(app: FastAPI, name: str, path: str, method: str = "GET", **more: Any) -> Any:
    """A decorator: the route at that path below /api/v1, with all that it may answer."""
    kind = {".html": HTMLResponse, "vents": StreamingResponse}.get(path[-5:])
    more |= {} if kind is None else {"response_class": kind}
    return app.api_route(
        f"/api/v1{path}", methods=[method], name=name, response_model=None,
        responses=replies(name, path, method), **more,
    )  # fmt: skip


_LISTS = {
    "configurations": "Named configurations with their parameters and defaults.",
    "dynamics": "Every dynamics, attention and stepper with its fields.",
    "models": "The classifiers of this server, with their cards.",
}


def _question(app: FastAPI, name: str, holds: type | None, about: str) -> None:
    async def asked(request: Request) -> Response:
        return await _ask(request, name, {})

    async def route(request: Request, body: Any) -> Response:
        return await _ask(request, name, body, inside=name in ("trace", "heads"))

    route.__annotations__["body"] = holds
    method, call = ("GET", asked) if holds is None else ("POST", route)
    _route(app, name, f"/{name}", method, description=about)(call)


_PARAMS = {
    "name": "params", "in": "query", "style": "form", "explode": True,
    "description": "Parameters of the configuration, as /configurations lists them.",
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}  # fmt: skip


def _routes(app: FastAPI) -> None:
    for name, (holds, about) in _QUESTIONS.items():
        _question(app, name, holds, about)

    for name, about in _LISTS.items():
        _question(app, name, None, about)

    @_route(app, "configuration", "/configurations/{name}", openapi_extra={"parameters": [_PARAMS]})
    async def configuration(request: Request, name: str) -> Response:
        """The tokens of one configuration; its parameters in the query: ?n=50&seed=3."""
        pairs = [(k[:50], v[:50]) for k, v in request.query_params.items()][:20]
        return await _ask(request, "configurations", {"name": name, "params": dict(pairs)})

    @_route(app, "card", "/models/{name}/card.html")
    async def card(request: Request, name: str) -> Response:
        """The card of one classifier as a page: what it knows, word by word."""
        return await _ask(request, "card", {"model": name})

    @_route(app, "transformers", "/transformers")
    async def transformers(request: Request) -> dict[str, Any]:
        """The transformers that this server was given."""
        return {"transformers": list(_processes(request).inside.settings["transformers"])}

    @_route(app, "bounds", "/bounds")
    async def bounds() -> dict[str, Any]:
        """How much one request may ask for, and the version of this server."""
        return {"version": __version__, **BOUNDS}


def _runs(app: FastAPI) -> None:
    known: dict[str, Any] = {}  # the list of experiments, once it was asked for

    async def gone() -> bool:
        return False  # the answer is kept, whoever waits for it

    async def listed(request: Request) -> list[dict[str, Any]]:
        if not known:
            seconds = float(BOUNDS["deadline_seconds"])
            answer = await _processes(request).bench.run("experiments", {}, seconds, gone)
            known.update(json.loads(bytes(answer.body)))
            for one in known["experiments"]:
                drawn = (_PICTURES / f"{one['name']}.png").is_file()
                one["picture"] = f"/pictures/{one['name']}.png" if drawn else None
        found: list[dict[str, Any]] = known["experiments"]
        return found

    @_route(app, "experiments", "/experiments")
    async def experiments(request: Request) -> dict[str, Any]:
        """Every experiment with its parameters, and the runs of this server."""
        runs = [dict(run.state) for run in _processes(request).gallery.runs.values()]
        return {"experiments": await listed(request), "runs": runs}

    @_route(app, "run", "/experiments/{name}", "POST", status_code=202)
    async def run(request: Request, name: str, body: schema.Run) -> dict[str, Any]:
        """Start an experiment; the answer names the run."""
        if name not in {one["name"] for one in await listed(request)}:
            raise Refusal(404, f"there is no experiment {name[:60]!r}")
        return _processes(request).gallery.start(name, body.quick, body.params)

    @_route(app, "state", "/experiments/runs/{id_}")
    async def state(request: Request, id_: str) -> dict[str, Any]:
        """How far a run is."""
        return dict(_processes(request).gallery.find(id_).state)

    @_route(app, "events", "/experiments/runs/{id_}/events")
    async def events(request: Request, id_: str) -> Response:
        """Progress as server-sent events, until the run ends."""
        gallery = _processes(request).gallery
        gallery.find(id_)
        return StreamingResponse(gallery.events(id_), media_type="text/event-stream")

    @_route(app, "cancel", "/experiments/runs/{id_}", "DELETE")
    async def cancel(request: Request, id_: str) -> dict[str, Any]:
        """Stop a run."""
        return await _processes(request).gallery.cancel(id_)

    @_route(app, "report", "/experiments/runs/{id_}/report.html")
    async def report(request: Request, id_: str) -> Response:
        """The report of a run that is done."""
        return FileResponse(_processes(request).gallery.page(id_), media_type="text/html")


def _pages(app: FastAPI, site: Path | None) -> None:
    pages = {"/": "index.html", "/reference": "reference.html", "/favicon.ico": "icon.svg"}

    async def page(request: Request) -> Response:
        if request.url.path == "/" and site is not None:
            text = (STATIC / "index.html").read_text("utf-8")
            return HTMLResponse(text.replace('<a hidden id="docs"', '<a id="docs"'))
        return FileResponse(STATIC / pages[request.url.path])

    for path in pages:
        app.add_route(path, page, ["GET", "HEAD"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    if site is not None:
        app.mount("/docs", StaticFiles(directory=site.parent, html=True), name="docs")
    if _PICTURES.is_dir():
        app.mount("/pictures", StaticFiles(directory=_PICTURES), name="pictures")
