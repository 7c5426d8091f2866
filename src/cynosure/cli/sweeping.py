"""`cynosure sweep`: a function on every place of a grid, into a store that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import JsonOption
from .output import WIDTH, Voice
from .terminal import show, show_json

__all__ = ["sweep"]

SHOWN = 5  # messages of failed cells
PATIENCE = 60  # seconds in which the first worker of a cluster must come


def sweep(
    ctx: typer.Context,
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="A .toml file, or a name; see --list.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where it goes; read with xarray.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes on this machine [1].")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="A Dask cluster instead.")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="How far FOLDER is; no more.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Cells that failed are computed again.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="The named sweeps.")] = False,
    json_: JsonOption = False,
) -> None:
    """A function on every place of a grid, with seeds: phase diagrams on one core or a cluster.

    SPEC.toml names the function, cell = "module:function", its seeds and its [grid]. A store that
    is there already is gone on with; cells that fail are recorded and stop nothing (exit code 1).
    Needs the extra: pip install "cynosure[sweep]".

    \b
    cynosure sweep --list
    cynosure sweep sphere --store sphere.zarr --workers 2
    cynosure sweep phase.toml --store phase.zarr --scheduler tcp://head:8786
    cynosure sweep --store phase.zarr --status
    """
    from ..sweeps import open_sweep
    from ..sweeps import sweep as swept
    from ..sweeps.spec import asked_for

    voice: Voice = ctx.obj
    if list_:
        from ..drawing.report import Table
        from ..sweeps.cells import NAMED

        rows = tuple((name, what) for name, (what, _) in NAMED.items())
        show(Table("", ("name", "what it shows"), rows).to_text(WIDTH))
        return
    if store is None:
        raise ValueError("sweep: expected --store FOLDER, which keeps what is computed")
    if status:
        _tell(voice, store, open_sweep(store), json_)
        return
    if spec is None:
        raise ValueError("sweep: expected a .toml file or a name (see cynosure sweep --list)")
    if workers is not None and scheduler is not None:
        raise ValueError("sweep: --workers are processes here, --scheduler a cluster; choose one")
    asked: dict[str, Any] = asked_for(spec)
    with _cluster(scheduler) as client, voice.bar(1.0, "", f"sweeping into {store}") as move:
        try:
            found = swept(
                **asked,
                store=store,
                workers=workers,
                client=client,
                retry_failed=retry_failed,
                progress=move,
            )
        except TypeError as error:  # in a program a wrong call; here what the file asks for
            raise ValueError(f"{spec}: {error}") from error
        except KeyboardInterrupt as stopped:
            if str(stopped):
                voice.note(str(stopped))
            raise
        except RuntimeError as error:  # of the workers, not of the command
            raise ValueError(str(error)) from error
    failed = _tell(voice, store, found, json_)
    if failed:
        voice.note("--retry-failed tries them again")
        raise typer.Exit(1)


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """A client of the scheduler there, closed at the end; None where none is asked for."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError('--scheduler needs Dask: pip install "cynosure[sweep]"') from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ValueError(f"--scheduler {address}: no scheduler answers there ({error})") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise ValueError(
                f"--scheduler {address}: no worker came in {PATIENCE} s (`dask worker {address}`)"
            ) from None
        yield client


def _tell(voice: Voice, store: Path, found: Any, json_: bool) -> int:
    """Counts on stdout, the first messages on stderr; how many cells failed."""
    from .._files.stores import readable
    from ..sweeps.plan import MEANING

    with readable(store):
        state = found["status"].values
        errors = list(dict.fromkeys(found["error"].values[state == 2].tolist()))[:SHOWN]
    counts = {name: int((state == value).sum()) for value, name in enumerate(MEANING.split())}
    if json_:
        sizes = {str(name): int(n) for name, n in found.sizes.items()}
        data = {"store": str(store), "cells": state.size, **counts, "sizes": sizes}
        show_json(json.dumps(data | {"cell": found.attrs["cell"], "errors": errors}))
    else:
        parts = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        show(f"{store}: {state.size} cells, {parts}")
    for text in errors:
        voice.note(f"failed: {text}")
    return counts["failed"]
