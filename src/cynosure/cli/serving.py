"""`cynosure serve`: the page and the HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import Voice

__all__ = ["serve"]


def serve(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="A classifier of `cynosure fit`; again for more."),
    ] = None,
    transformer: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="A transformer to look into; again for more."),
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Word that clients must know; made up where one is needed.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder for reports of experiments [temporary].")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Requests computed at once.")] = 2,
) -> None:
    """The page on all of this, and the same as an HTTP API; Ctrl-C stops it.

    Needs cynosure[web]. Models are read from the folders named here and from nowhere else.

    \b
    cynosure serve --open
    cynosure serve --model ./my-classifier --transformer ./minilm --results runs
    curl -s localhost:8765/api/v1/limit -H 'Content-Type: application/json' \\
      -d '{"tokens": [[1, 1], [1, -1], [0.5, 0]], "alpha": "1/2", "exact": true}'
    """
    from ..web.guard import is_loopback
    from ..web.listening import serve as listen
    from ..web.server import Settings

    voice: Voice = ctx.obj
    if token is None and not is_loopback(host):
        import secrets

        token = secrets.token_urlsafe(24)
    settings = Settings(
        models=_named(model, "model.json"),
        transformers=_named(transformer, "config.json"),
        results=None if results is None else str(results.resolve()),
        token=token,
        workers=workers,
    )

    def ready(address: str) -> None:
        from .terminal import show

        show(address)
        if token is not None:
            voice.note("whoever has this link, or the token in it, may use this server")
        voice.note("Ctrl-C stops it")
        if open_:
            import webbrowser

            webbrowser.open(address)

    listen(settings, host, port, ready)


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
