"""The application: its commands in the order in which `--help` lists them, and what all share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from .classifying import card, evaluate, fit, predict
from .controlling import control
from .explaining import explain
from .inputs import listed
from .inspecting import inspect
from .output import Voice
from .running import demo, info, run
from .serving import serve
from .simulating import check, limit, simulate
from .sweeping import sweep
from .terminal import show

__all__ = ["app"]

COMMON = "Everywhere: -q/--quiet, -v/--verbose, --debug, --config FILE.toml (see cynosure --help)."
COMMANDS = (
    simulate, limit, check, run, sweep, demo, info, fit, predict, explain, evaluate, card, control,
    inspect, serve,
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        show(f"cynosure {__version__}")
        raise typer.Exit


def _configure(ctx: typer.Context, path: Path | None) -> Path | None:
    """Flags from a TOML file: top-level keys for `cynosure`, one table per command."""
    if path is None or ctx.resilient_parsing:
        return path
    from .._files import parsed_toml, read_bytes

    try:
        data = parsed_toml(read_bytes(path, 1 << 20).decode("utf-8"), f"--config {path}")
    except FileNotFoundError:
        raise ValueError(f"--config {path}: no such file") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"--config {path}: not TOML ({error})") from None
    commands = ctx.command.commands  # type: ignore[attr-defined]
    tables = {k: v for k, v in data.items() if isinstance(v, dict)}
    defaults = _flags(path, ctx.command, {k: v for k, v in data.items() if k not in tables})
    for name, table in tables.items():
        if name not in commands:
            raise ValueError(f"--config {path}: no command [{name}] (there are {listed(commands)})")
        defaults[name] = _flags(path, commands[name], table)
    ctx.default_map = defaults
    return path


def _flags(path: Path, command: Any, table: dict[str, Any]) -> dict[str, Any]:
    """Keys as they are spelt on the command line -> parameter names and values."""
    names = {o.lstrip("-"): p.name for p in command.params for o in (*p.opts, p.name)}
    names |= {key.replace("-", "_"): name for key, name in names.items()}
    unknown = [key for key in table if key not in names]
    if unknown:
        raise ValueError(
            f"--config {path}: unknown key {unknown[0]!r} for {command.name} "
            f"(known: {listed(p.opts[0].lstrip('-') for p in command.params)})"
        )
    several = {p.name for p in command.params if getattr(p, "multiple", False)}
    out: dict[str, Any] = {}
    for key, value in table.items():
        out[names[key]] = value if isinstance(value, bool | list) else str(value)
        if names[key] in several and not isinstance(value, list):
            out[names[key]] = [str(value)]
    return out


def common(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            callback=_configure,
            is_eager=True,
            metavar="FILE.toml",
            help="Flags from a file: one [table] per command; flags typed here win.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only data and errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Self-attention as a dynamical system: trajectories, leaders, clusters, proved limits.

    \b
    cynosure demo                                      one page with everything
    cynosure simulate tokens.csv --alpha 0.5 --layers 30 --plot layers.png
    cynosure simulate tokens.csv --dynamics rescaled_flow --time 20
    cynosure limit tokens.csv --alpha 1/2 --exact      limits with a proof
    cynosure check tokens.csv                          the theorems on this run
    cynosure run figure2                               a figure of the paper
    cynosure serve --open                              the page: drag a token
    """
    ctx.obj = Voice(quiet, verbose, ctx.obj or "cynosure")


app = typer.Typer(
    name="cynosure",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.callback()(common)
for _command in COMMANDS:
    app.command(epilog=COMMON)(_command)
