"""`cynosure run | demo | info`: experiments, the tour of the package, the environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .inputs import can_be_made, listed, settings
from .options import ForceOption, JsonOption
from .output import WIDTH, Voice
from .terminal import show, show_json

if TYPE_CHECKING:
    from ..drawing.report import Report

__all__ = ["demo", "info", "run"]


def run(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Experiment; --list shows them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Seconds instead of minutes.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Names and titles.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, report.json and data/ [NAME].")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Transformer to measure (as --set model=FOLDER)."),
    ] = None,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Report and figures again, from what was measured.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes for the grids of long experiments [1].")
    ] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """An experiment or figure of the papers: report, tables, figures.

    What long experiments measure is kept in the folder's measured/: a run that was interrupted
    goes on where it stopped, and --redraw draws a finished one again; --force measures anew.

    \b
    cynosure run --list
    cynosure run figure2 --set seed=7 --set alpha=1 --out figure2-seed7
    cynosure run head_spectra --model ./albert-xlarge-v2 --set only=5,14
    cynosure run basins --redraw
    """
    from dataclasses import replace

    from ..experiments import available, chapters, experiment, keeping

    if list_:
        from ..drawing.report import Table

        rows = tuple((key, module.TITLE) for key, module in available().items())
        show(Table("", ("name", "what it shows"), rows).to_text(WIDTH))
        return
    if workers is not None and workers < 1:
        raise ValueError(f"--workers: expected 1 or more processes, got {workers}")
    if name is None:
        known = sorted(one for names in chapters().values() for one in names)
        raise ValueError(f"run: no name given (there are {listed(known)})")
    chosen = experiment(name)
    out = Path(name) if out is None else out
    measured, voice = _measured(out, force, redraw), ctx.obj
    start = chosen.QUICK if quick else chosen.Params()
    changed = [*(set_ or []), *([] if model is None else [f"model={model}"])]
    params = replace(start, **settings(start, changed))
    with voice.bar(1.0, "") as move, keeping(measured, workers) as kept:
        report = chosen.run(params, move)
    if kept.reused:
        total = len(kept.reused) + len(kept.made)
        voice.note(f"{len(kept.reused)} of {total} measurements were in {measured} already")
    report = replace(report, command=voice.command.replace(" --redraw", ""))
    report.save(out / "report.json")
    report.save_data(out / "data")
    report.save(out / "report.html")
    _finish(voice, report, out / "report.html", json_)


def demo(
    ctx: typer.Context,
    out: Annotated[str, typer.Option(help="Folder for report.html; replaced if there.")] = "demo",
    json_: JsonOption = False,
) -> None:
    """The main job, offline, as one page: figures, limits, checks, a movie."""
    from .demo import demo as tell

    voice: Voice = ctx.obj
    with voice.bar(1.0, "") as move:
        report = tell(Path(out), move)
    _finish(voice, report, Path(out) / "report.html", json_)
    voice.note("to drag tokens yourself: cynosure serve --open")


def info(json_: JsonOption = False) -> None:
    """Versions, extras, devices and ffmpeg: what a bug report needs."""
    from .environment import environment

    data = environment()
    if json_:
        show_json(json.dumps(data, indent=1))
        return
    for group, values in data.items():
        show(f"{group}: {values}" if not isinstance(values, dict) else f"{group}:")
        for key, value in values.items() if isinstance(values, dict) else ():
            show(f"  {key:<16} {value}")


def _measured(out: Path, force: bool, redraw: bool) -> Path:
    """The folder of what is measured, emptied by --force; refuse a run that would lose a report."""
    from ..experiments import forget

    folder, page = out / "measured", out / "report.html"
    if force and redraw:
        raise ValueError("run: --force measures anew and --redraw does not; choose one")
    if redraw and not any(folder.glob("*.npz")):
        raise ValueError(f"--redraw: nothing measured is kept in {folder}; use --force instead")
    if page.exists() and not force and not redraw:
        raise ValueError(
            f"{page} exists (use --force to overwrite it, --redraw to draw it again from what was "
            "measured)"
        )
    if not force and not _is_report(out / "report.json"):
        raise ValueError(
            f"{out / 'report.json'} exists and is no report of cynosure; move it away, or use "
            "--force to overwrite it"
        )
    can_be_made(out / "report.html")
    if force:
        forget(folder)
    return folder


def _is_report(path: Path) -> bool:
    """True for a report.json of ours, which an interrupted run may have left, and for none."""
    from .._files import parsed_json

    if not os.path.lexists(path):
        return True
    try:
        found = parsed_json(path.read_bytes(), str(path), most=1 << 28)
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"title", "version", "verdict"} <= set(found)


def _finish(voice: Voice, report: Report, page: Path, json_: bool) -> None:
    """Say where the page is; fail when a check failed."""
    if json_:
        show_json(report.to_json())
    else:
        show(page)
    voice.note(report.verdict)
    for name, failed in report.failures:
        voice.note(f"FAILED {failed.theorem} on {name}: {failed.statement}")
    if report.failures:
        raise typer.Exit(1)
