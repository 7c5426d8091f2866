"""`cynosure serve`: the page and the HTTP API."""

from __future__ import annotations

import secrets
import webbrowser
from pathlib import Path
from threading import Timer
from typing import Annotated

import typer

from .helping import opt
from .output import Voice
from .terminal import show

_FIRST = 3.0  # seconds that the first requests have for themselves before kernels are compiled


def serve(
    ctx: typer.Context,
    port: Annotated[int, opt("0 takes a free one.", min=0, max=65535)] = 8765,
    host: Annotated[str, opt("Address to listen on; a non-local one needs a token.")] = "127.0.0.1",
    open_: Annotated[bool, opt("Open the page in a browser.", "--open")] = False,
    model: Annotated[
        list[str] | None, opt("Serve a model of `cynosure fit`; repeat for more.", of="FOLDER")
    ] = None,
    transformer: Annotated[
        list[str] | None, opt("Serve a transformer; repeat for more.", of="FOLDER")
    ] = None,
    token: Annotated[str | None, opt("Access token; generated for a non-local address.")] = None,
    results: Annotated[Path | None, opt("Folder for reports of experiments [temporary].")] = None,
    workers: Annotated[int, opt("Requests at once.", min=1, max=64)] = 2,
    embed: Annotated[
        str | None, opt("Let this site show the page in a frame.", of="ORIGIN")
    ] = None,
    export: Annotated[Path | None, opt("Write Play as static files instead.", of="FOLDER")] = None,
) -> None:
    """Open the page and the HTTP API; Ctrl-C stops both.

    Needs cynosure[web]. Models are read from the folders named here and from nowhere else.

    \b
    cynosure serve --open
    cynosure serve --model ./my-classifier --transformer ./minilm --results runs
    cynosure serve --export site/play
    cynosure serve --embed https://course.example.edu
    curl -s localhost:8765/api/v1/limit -H 'Content-Type: application/json' \\
      -d '{"tokens": [[1, 1], [1, -1], [0.5, 0]], "alpha": "1/2", "exact": true}'
    """
    from .._compiled import warm_elsewhere
    from ..web.connections import serve as listen
    from ..web.processes import Settings
    from ..web.requests.guard import is_loopback

    voice: Voice = ctx.obj
    if export is not None:
        from ..web.static_page import export as write

        show(write(export))
        return
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    settings = Settings(
        models=_named(model, "model.json"),
        transformers=_named(transformer, "config.json"),
        results=None if results is None else str(results.resolve()),
        token=token,
        workers=workers,
        embed=embed,
        site=built_site(),
    )

    def ready(address: str) -> None:
        show(address)
        compiling = Timer(_FIRST, warm_elsewhere)
        compiling.daemon = True
        compiling.start()
        if token is not None:
            voice.note("anybody with this link, or the token in it, can use this server")
        if settings.site is not None:
            voice.note(f"documentation: {settings.site.as_uri()}")
        voice.note("Ctrl-C stops it")
        if open_:
            webbrowser.open(address)

    listen(settings, host, port, ready)


def built_site() -> Path | None:
    """The home page of the documentation, where `make docs` has built it in this checkout."""
    page = Path(__file__).resolve().parents[3] / "docs" / "_build" / "html" / "index.html"
    return page if page.is_file() else None


def _named(folders: list[str] | None, needed: str) -> dict[str, str]:
    """Name of each folder -> its path; refused before the server starts."""
    out: dict[str, str] = {}
    for folder in folders or ():
        path = Path(folder).expanduser().resolve()
        if not (path / needed).is_file():
            raise ValueError(f"{folder}: expected a folder with {needed}")
        name = path.parent.name if path.name == "model" else path.name  # package/model says nothing
        if name in out:
            raise ValueError(f"{folder}: another folder is called {name}; rename one")
        out[name] = str(path)
    return out
