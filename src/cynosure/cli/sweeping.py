"""`cynosure sweep`: a function on every point of a grid, into a store that resumes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .helping import arg, opt
from .options import JsonOption
from .output import WIDTH, Voice, show_table
from .terminal import show, show_json

SHOWN = 5  # messages of failed cells
BETWEEN = 2.0  # seconds between two looks of --watch
PATIENCE = 60  # seconds in which the first worker of a cluster must come


def sweep(
    ctx: typer.Context,
    spec: Annotated[str | None, arg("A .toml file, or a name; see --list.", of="SPEC")] = None,
    store: Annotated[Path | None, opt("Write results here, for xarray.", of="FOLDER")] = None,
    workers: Annotated[int | None, opt("Processes on this machine [1].")] = None,
    scheduler: Annotated[str | None, opt("A Dask cluster instead.", of="tcp://HOST:PORT")] = None,
    status: Annotated[bool, opt("Show how far FOLDER is.", "--status")] = False,
    watch: Annotated[
        bool, opt("Show the progress of FOLDER until it is complete.", "--watch")
    ] = False,
    retry_failed: Annotated[bool, opt("Compute failed cells again.", "--retry-failed")] = False,
    list_: Annotated[bool, opt("The named sweeps.", "--list")] = False,
    json_: JsonOption = False,
) -> None:
    """Run a function on a grid of parameters, with seeds.

    The result is a phase diagram, computed on one core or on a cluster.

    SPEC.toml names the function, cell = "module:function", its seeds and its [grid]. An existing
    store is resumed. Failed cells are recorded and do not stop the others (exit code 1).
    Needs the extra scale: pip install "cynosure[scale]".

    \b
    cynosure sweep --list
    cynosure sweep sphere --store sphere.zarr --workers 2
    cynosure sweep phase.toml --store phase.zarr --scheduler tcp://head:8786
    cynosure sweep --store phase.zarr --status
    cynosure sweep --store phase.zarr --watch
    """
    from ..sweeps import open_sweep
    from ..sweeps import sweep as swept
    from ..sweeps.spec import asked_for

    voice: Voice = ctx.obj
    if list_:
        from ..sweeps.spec import named

        rows = named().items()
        show_table(("name", "what it shows"), rows, WIDTH)
        return
    if store is None:
        raise ValueError("sweep: expected --store FOLDER, which keeps what is computed")
    if watch:
        _watch(voice, store)
    if status or watch:
        with _heard(voice):
            found = open_sweep(store)
        _tell(voice, store, found, json_)
        return
    if spec is None:
        raise ValueError("sweep: expected a .toml file or a name (see cynosure sweep --list)")
    if workers is not None and scheduler is not None:
        raise ValueError("sweep: --workers are processes here, --scheduler a cluster; choose one")
    asked, bar = asked_for(spec), voice.bar(1.0, "", f"sweeping into {store}")
    with _cluster(scheduler) as client, bar as move, _heard(voice):
        try:
            found = swept(
                **asked, store=store, workers=workers, client=client, retry_failed=retry_failed,
                progress=move,
            )  # fmt: skip
        except TypeError as error:  # in a program a wrong call; here what the file asks for
            raise ValueError(f"{spec}: {error}") from error
        except KeyboardInterrupt as stopped:
            if str(stopped):
                voice.note(str(stopped))
            raise
        except RuntimeError as error:  # of the workers, not of the command
            raise ValueError(str(error)) from error
    if _tell(voice, store, found, json_):
        voice.note("--retry-failed tries them again")
        raise typer.Exit(1)


def _watch(voice: Voice, store: Path) -> None:
    """A bar, or a line where the number of cells has changed, until none waits."""
    import time

    from .._files.stores import readable
    from ..sweeps import open_sweep

    told = -1
    with voice.bar(1.0, "", f"watching {store}") as move:
        while True:
            with _heard(voice), readable(store):
                state = open_sweep(store)["status"].values
            ready = int((state != 0).sum())
            said = f"{ready} of {state.size} cells, {int((state == 2).sum())} failed"
            if move is not None:
                move(ready / state.size, said)
            elif ready != told:
                voice.note(said)
            if ready == state.size:
                return
            told = ready
            time.sleep(BETWEEN)


@contextmanager
def _heard(voice: Voice) -> Iterator[None]:
    """Warnings of damaged files, as one line each."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(one.message) for one in told):
                voice.note(text)


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """A client of the scheduler there, closed at the end; None where none is asked for."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError('--scheduler needs Dask: pip install "cynosure[scale]"') from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ValueError(f"--scheduler {address}: no scheduler answers there ({error})") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            said = f"no worker came in {PATIENCE} s (`dask worker {address}`)"
            raise ValueError(f"--scheduler {address}: {said}") from None
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
