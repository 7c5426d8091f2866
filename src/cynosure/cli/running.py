"""`cynosure run | demo | info`: studies, the tour of the package, the environment."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .helping import arg, completing, opt
from .inputs import can_be_made, listed, settings
from .options import ForceOption, JsonOption
from .output import WIDTH, Voice, save_into, show_table
from .terminal import show, show_json

if TYPE_CHECKING:
    from ..drawing.report import Report


def run(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        arg(
            "Name or file of a study; see --list.",
            of="NAME",
            autocompletion=completing("catalogue", "studies"),
        ),
    ] = None,
    quick: Annotated[bool, opt("Seconds instead of minutes.", "--quick")] = False,
    list_: Annotated[bool, opt("Names and titles.", "--list")] = False,
    out: Annotated[
        Path | None, opt("Folder for report.html, report.json and data/ [NAME].")
    ] = None,
    set_: Annotated[list[str] | None, opt("Change a parameter.", "--set", of="KEY=VALUE")] = None,
    model: Annotated[
        str | None, opt("Transformer to measure (as --set model=FOLDER).", of="FOLDER")
    ] = None,
    paper: Annotated[bool, opt("Also OUT/paper: PDF, CSV, citation, versions.", "--paper")] = False,
    redraw: Annotated[
        bool, opt("Report and figures again, from what was measured.", "--redraw")
    ] = False,
    workers: Annotated[int | None, opt("Processes for the grids of long studies [1].")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Run a figure, a study or a file of your own.

    A checkout has more studies than the package; `run path/to/mine.py` runs a file of your own.
    Long studies store measurements in the folder's measured/: an interrupted run resumes,
    --redraw draws a finished one again, --force measures anew.

    \b
    cynosure run --list
    cynosure run 2407.01602/figure6 --quick
    cynosure run figure2 --set seed=7 --set alpha=1 --out figure2-seed7
    cynosure run head_spectra --model ./albert-xlarge-v2 --set only=4,13
    cynosure run basins --redraw
    """
    from dataclasses import replace

    from .. import catalogue

    if list_:
        others, titles = catalogue.aliases(), catalogue.titles()
        rows = (
            (name, f"{title} ({', '.join(others[name])})" if others[name] else title)
            for name, title in titles.items()
        )
        show_table(("name", "what it shows"), rows, WIDTH)
        return
    if workers is not None and workers < 1:
        raise ValueError(f"--workers: expected 1 or more processes, got {workers}")
    if name is None:
        raise ValueError(f"run: no name given (there are {listed(catalogue.studies())})")
    from .._files.writing import alone
    from ..study import forget, keeping

    chosen = catalogue.study(name)
    out = Path(Path(name.removesuffix(".py")).name) if out is None else out
    measured, voice = _measured(out, force, redraw), ctx.obj
    start = chosen.QUICK if quick else chosen.Params()
    if question := catalogue.question(name):
        start = replace(start, questions=(question,))
    changed = [*(set_ or []), *([] if model is None else [f"model={model}"])]
    params = replace(start, **settings(start, changed))
    out.mkdir(parents=True, exist_ok=True)
    with alone(out, patience=0.0):  # two runs would mix their files
        if force:
            forget(measured)
        with voice.bar(1.0, "") as move, keeping(measured, workers) as kept:
            report = chosen.run(params, move)
        if kept.reused:
            total = len(kept.reused) + len(kept.made)
            voice.note(f"{len(kept.reused)} of {total} measurements were in {measured} already")
        report = replace(report, command=voice.command.replace(" --redraw", ""))
        save_into(out, report)
        if paper:
            from ..drawing.paper import paper as folder_of

            folder_of(report, out / "paper")
    _finish(voice, report, out / "report.html", json_)


def demo(
    ctx: typer.Context,
    out: Annotated[str, opt("Folder for report.html; replaced if there.")] = "demo",
    json_: JsonOption = False,
) -> None:
    """Make one page with the main results, offline."""
    from .demo import demo as tell

    voice, page = ctx.obj, Path(out) / "report.html"
    can_be_made(page)
    with voice.bar(1.0, "") as move:
        report = tell(Path(out), move)
    _finish(voice, report, page, json_)
    voice.note("to drag tokens yourself: cynosure serve --open")


def info(json_: JsonOption = False) -> None:
    """Show versions, extras and devices for a bug report."""
    from .environment import environment

    data = environment()
    if json_:
        show_json(json.dumps(data, indent=1))
        return
    for group, values in data.items():
        several = isinstance(values, dict)
        show(f"{group}:" if several else f"{group}: {values}")
        for key, value in values.items() if several else ():
            show(f"  {key:<16} {value}")


def warm(
    ctx: typer.Context,
    background: Annotated[
        bool, opt("Run at low priority; end with the caller.", "--background")
    ] = False,
) -> None:
    """Compile the loops for large inputs now.

    Small inputs do not need them. Without this command, the first large input compiles what it
    needs. The server and notebooks run it in the background.
    """
    from .._compiled import warm as compile_all

    voice: Voice = ctx.obj
    caller = os.getppid()
    if background and hasattr(os, "nice"):
        os.nice(5)
    with voice.steps("compiling") as step:

        def move(done: float, module: str) -> None:
            if background and os.getppid() != caller:
                raise typer.Exit
            step(done, module)

        modules = compile_all(move)
    voice.note(f"{len(modules)} modules of compiled loops are ready")


def _measured(out: Path, force: bool, redraw: bool) -> Path:
    """The folder of what is measured; refuse a run that would lose a report."""
    folder, page = out / "measured", out / "report.html"
    if force and redraw:
        raise ValueError("run: --force measures anew and --redraw does not; choose one")
    if redraw and not any(folder.glob("*.npz")):
        raise ValueError(f"--redraw: nothing measured is kept in {folder}; use --force instead")
    if page.exists() and not force and not redraw:
        choose = "use --force to overwrite it, --redraw to draw it again from what was measured"
        raise ValueError(f"{page} exists ({choose})")
    if not force and not _is_report(kept := out / "report.json"):
        other = "move it away, or use --force to overwrite it"
        raise ValueError(f"{kept} exists and is no report of cynosure; {other}")
    can_be_made(out / "report.html")
    return folder


def _is_report(path: Path) -> bool:
    """True for a report.json of ours, which an interrupted run may have left, and for none."""
    from .._files import parsed_json

    found: Any = None
    with suppress(OSError, ValueError):
        found = parsed_json(path.read_bytes(), str(path), most=1 << 28)
    ours = isinstance(found, dict) and {"title", "version", "verdict"} <= set(found)
    return ours or not os.path.lexists(path)


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
