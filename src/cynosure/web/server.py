"""The application: routes that are library calls, the page, the reference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from .. import __version__
from . import asked
from .bounds import BOUNDS
from .gallery import Gallery
from .guard import Guard
from .pool import Pool
from .problems import Refusal, problem
from .progress import LINES, progress

__all__ = ["Settings", "application"]

STATIC = Path(__file__).with_name("static")
_GIB = 1 << 30
_LANES = {"maths": 8 * _GIB, "transformers": 24 * _GIB, "experiments": 16 * _GIB}
# Pictures of the experiments stand beside a checkout; an installed package goes without.
_PICTURES = Path(__file__).resolve().parents[3] / "docs" / "gallery"
_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": said, "content": {"application/problem+json": {}}}
    for code, said in {
        413: "too large", 422: "what was expected, what came, what to do", 503: "too busy",
    }.items()
}  # fmt: skip


@final
@dataclass(frozen=True)
class Settings:
    """What `cynosure serve` was told: models and transformers by name, folders, processes."""

    models: Mapping[str, str] = field(default_factory=dict)
    transformers: Mapping[str, str] = field(default_factory=dict)
    results: str | None = None  # reports of experiments; a temporary folder if absent
    token: str | None = None
    workers: int = 2

    def lane(self, name: str) -> dict[str, Any]:
        return {
            "lane": name,
            "models": dict(self.models),
            "transformers": dict(self.transformers),
            "memory": _LANES[name],
        }


@final
class _House:
    """What lives as long as the server: its processes and its runs."""

    def __init__(self, settings: Settings, results: Path) -> None:
        waiting = int(BOUNDS["waiting_requests"])
        self.maths = Pool(settings.lane("maths"), settings.workers, 4, waiting)
        # Killing one means reading its transformer anew: a client that left is no reason at once.
        self.inside = Pool(settings.lane("transformers"), 1, 1, 8, patience=20.0)
        at_once = int(BOUNDS["experiments_at_once"])
        self.bench = Pool(settings.lane("experiments"), at_once, 0, 16)
        self.gallery = Gallery(self.bench, results, kept=settings.results is not None)

    async def close(self) -> None:
        """End every process; whoever still waits is told so. A second time does nothing."""
        await self.gallery.close()
        for pool in (self.maths, self.inside, self.bench):
            await pool.close()


def application(settings: Settings) -> Any:
    """The ASGI application, guarded."""

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory(prefix="cynosure-") as folder:
            house = _House(settings, Path(settings.results or folder))
            app.state.house = house
            house.maths.prepare(settings.workers)
            try:
                yield
            finally:
                await house.close()

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
    _pages(app)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _missing)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _failed)

    async def stop() -> None:
        house: _House | None = getattr(app.state, "house", None)
        if house is not None:
            await house.close()

    return Guard(app, settings.token, stop)


# --- errors --------------------------------------------------------------------------------------


async def _refused(request: Request, error: Any) -> Response:
    wait = {"Retry-After": "2"} if error.status == 503 else {}
    return problem(error.status, error.detail, wait, **error.more)


async def _missing(request: Request, error: Any) -> Response:
    said = f"there is no {request.url.path[:100]}; /reference lists what there is"
    if error.status_code == 404:
        return problem(404, said)
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
    first = found[0]
    said = f"{first['field'] or 'the request'}: {first['expected']}; got {first['got']}"
    return problem(422, said, errors=found)


# --- routes --------------------------------------------------------------------------------------


def _house(request: Request) -> _House:
    house: _House = request.app.state.house
    return house


async def _ask(request: Request, call: str, body: Any, *, inside: bool = False) -> Response:
    """The answer of one library call, as the worker gave it."""
    house = _house(request)
    pool = house.inside if inside else house.maths
    seconds = float(BOUNDS["trace_seconds" if inside else "deadline_seconds"])
    wanted = body if isinstance(body, dict) else body.model_dump_json()
    if LINES in request.headers.get("accept", ""):
        told = progress(lambda gone, tell: pool.run(call, wanted, seconds, gone, tell))
        return StreamingResponse(told, media_type=LINES)
    answer = await pool.run(call, wanted, seconds, request.is_disconnected)
    return Response(answer.body, media_type=answer.media)


# The routes that are one question with a body: what it may hold, what comes back.
_QUESTIONS: dict[str, tuple[type, str]] = {
    "limit": (asked.Limit, "Limits at infinite depth, each with the rule that proves it."),
    "basins": (asked.Probe, "For each place of a grid the leader one more token would tend to."),
    "simulate": (asked.Simulate, "Layers or a flow: states, leaders, ends; or .npz, or a report."),
    "check": (asked.Check, "The theorems on a run: does each apply, hold, by how much."),
    "control": (asked.Control, "The A under which chosen tokens lead, or why there is none."),
    "predict": (asked.Predict, "Labels of texts with their probabilities, in order."),
    "explain": (asked.Explain, "Words, leaders, clusters, their sum: why a text gets its label."),
    "trace": (asked.Trace, "A sentence by layer: tokens, clusters, leaders, sinks, one head."),
    "heads": (asked.Heads, "Every head beside each hypothesis; or one iterated, with controls."),
}


def _question(app: FastAPI, name: str, holds: type, about: str) -> None:
    async def route(request: Request, body: Any) -> Response:
        return await _ask(request, name, body, inside=name in ("trace", "heads"))

    route.__annotations__["body"] = holds
    how: dict[str, Any] = {"responses": _ERRORS, "response_model": None, "description": about}
    app.post(f"/api/v1/{name}", name=name, **how)(route)


def _routes(app: FastAPI) -> None:
    api: dict[str, Any] = {"responses": _ERRORS, "response_model": None}
    for name, (holds, about) in _QUESTIONS.items():
        _question(app, name, holds, about)

    @app.get("/api/v1/configurations", **api)
    async def configurations(request: Request) -> Response:
        """Named configurations with their parameters and defaults."""
        return await _ask(request, "configurations", {})

    @app.get("/api/v1/configurations/{name}", **api)
    async def configuration(request: Request, name: str) -> Response:
        """The tokens of one configuration; its parameters in the query: ?n=50&seed=3."""
        pairs = [(k[:50], v[:50]) for k, v in request.query_params.items()][:20]
        return await _ask(request, "configurations", {"name": name, "params": dict(pairs)})

    @app.get("/api/v1/dynamics", **api)
    async def dynamics(request: Request) -> Response:
        """Every dynamics, attention and stepper with its fields."""
        return await _ask(request, "dynamics", {})

    @app.get("/api/v1/models", **api)
    async def models(request: Request) -> Response:
        """The classifiers of this server, with their cards."""
        return await _ask(request, "models", {})

    @app.get("/api/v1/models/{name}/card.html", **api)
    async def card(request: Request, name: str) -> Response:
        """The card of one classifier as a page: what it knows, word by word."""
        return await _ask(request, "card", {"model": name})

    @app.get("/api/v1/transformers", **api)
    async def transformers(request: Request) -> dict[str, Any]:
        """The transformers that this server was given."""
        lane = _house(request).inside.settings
        return {"transformers": list(lane["transformers"])}

    @app.get("/api/v1/bounds", **api)
    async def bounds() -> dict[str, Any]:
        """How much one request may ask for, and the version of this server."""
        return {"version": __version__, **BOUNDS}


async def _stays() -> bool:
    """Of a call whose answer is kept: nobody has to wait for it."""
    return False


def _runs(app: FastAPI) -> None:
    api: dict[str, Any] = {"responses": _ERRORS, "response_model": None}
    known: dict[str, Any] = {}  # the list of experiments, once it was asked for

    async def listed(request: Request) -> list[dict[str, Any]]:
        if not known:
            seconds = float(BOUNDS["deadline_seconds"])
            pool = _house(request).bench
            answer = await pool.run("experiments", {}, seconds, _stays)
            known.update(json.loads(answer.body))
            for one in known["experiments"]:
                drawn = (_PICTURES / f"{one['name']}.png").is_file()
                one["picture"] = f"/pictures/{one['name']}.png" if drawn else None
        found: list[dict[str, Any]] = known["experiments"]
        return found

    @app.get("/api/v1/experiments", **api)
    async def experiments(request: Request) -> dict[str, Any]:
        """Every experiment with its parameters, and the runs of this server."""
        return {"experiments": await listed(request), "runs": _house(request).gallery.listed()}

    @app.post("/api/v1/experiments/{name}", status_code=202, **api)
    async def run(request: Request, name: str, body: asked.Run) -> dict[str, Any]:
        """Start an experiment; the answer names the run."""
        if name not in {one["name"] for one in await listed(request)}:
            raise Refusal(404, f"there is no experiment {name[:60]!r}")
        return _house(request).gallery.start(name, body.quick, body.params)

    @app.get("/api/v1/experiments/runs/{id_}", **api)
    async def state(request: Request, id_: str) -> dict[str, Any]:
        """How far a run is."""
        return dict(_house(request).gallery.find(id_).state)

    @app.get("/api/v1/experiments/runs/{id_}/events", **api)
    async def events(request: Request, id_: str) -> Response:
        """Progress as server-sent events, until the run ends."""
        gallery = _house(request).gallery
        gallery.find(id_)
        return StreamingResponse(gallery.events(id_), media_type="text/event-stream")

    @app.delete("/api/v1/experiments/runs/{id_}", **api)
    async def cancel(request: Request, id_: str) -> dict[str, Any]:
        """Stop a run."""
        return await _house(request).gallery.cancel(id_)

    @app.get("/api/v1/experiments/runs/{id_}/report.html", **api)
    async def report(request: Request, id_: str) -> Response:
        """The report of a run that is done."""
        return FileResponse(_house(request).gallery.page(id_), media_type="text/html")


def _pages(app: FastAPI) -> None:
    pages: dict[str, Any] = {"include_in_schema": False, "methods": ["GET", "HEAD"]}

    @app.api_route("/", **pages)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    @app.api_route("/reference", **pages)
    async def reference() -> Response:
        return FileResponse(STATIC / "reference.html")

    @app.api_route("/favicon.ico", **pages)
    async def icon() -> Response:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    if _PICTURES.is_dir():
        app.mount("/pictures", StaticFiles(directory=_PICTURES), name="pictures")
