"""The application: its commands in the order in which `--help` lists them, and what all share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from . import inspecting
from .classifying import card, evaluate, fit, predict
from .controlling import control
from .explaining import explain
from .helping import Command, Group, opt
from .inputs import listed
from .output import Voice
from .running import demo, info, run, warm
from .serving import serve
from .shadowing import shadow
from .simulating import check, limit, simulate
from .sweeping import sweep
from .terminal import show

COMMON = "Everywhere: -q/--quiet, -v/--verbose, --debug, --config FILE.toml (see cynosure --help)."
COMMANDS = (
    simulate, limit, shadow, check, run, sweep, demo, fit, predict, explain, evaluate, card,
    control, serve, warm, info,
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
    ctx.default_map = _defaults(path, ctx.command, data, "")
    return path


def _defaults(path: Path, command: Any, table: dict[str, Any], within: str) -> dict[str, Any]:
    """Defaults for the options of a command and, of a group, for its commands."""
    groups = getattr(command, "commands", {})
    below = {k: v for k, v in table.items() if isinstance(v, dict)} if groups else {}
    out = _flags(path, command, {k: v for k, v in table.items() if k not in below})
    for name, rows in below.items():
        if name not in groups:
            known = listed(groups)
            raise ValueError(f"--config {path}: no command [{within}{name}] (there are {known})")
        out[name] = _defaults(path, groups[name], rows, f"{name}.")
    return out


def _flags(path: Path, command: Any, table: dict[str, Any]) -> dict[str, Any]:
    """Keys as they are spelt on the command line -> parameter names and values."""
    names = {o.lstrip("-"): p.name for p in command.params for o in (*p.opts, p.name)}
    names |= {key.replace("-", "_"): name for key, name in names.items()}
    unknown = [key for key in table if key not in names]
    if unknown:
        known = listed(p.opts[0].lstrip("-") for p in command.params)
        what = f"unknown key {unknown[0]!r} for {command.name} (known: {known})"
        raise ValueError(f"--config {path}: {what}")
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
        bool, opt("Print the version.", "--version", callback=_version, is_eager=True)
    ] = False,
    config: Annotated[
        Path | None,
        opt(
            "Flags from a file: one [table] per command; flags typed here win.",
            "--config",
            of="FILE.toml",
            callback=_configure,
            is_eager=True,
        ),
    ] = None,
    quiet: Annotated[bool, opt("Only data and errors.", "--quiet", "-q")] = False,
    verbose: Annotated[bool, opt("Say more on stderr.", "--verbose", "-v")] = False,
    debug: Annotated[bool, opt("Show the traceback of an error.", "--debug")] = False,
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


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    name="cynosure",
    cls=Group,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)
app.callback()(common)
for _command in COMMANDS:
    app.command(cls=Command, epilog=COMMON)(_command)
_looking = typer.Typer(cls=Group, rich_markup_mode=None, context_settings=_SETTINGS)
for _part in inspecting.COMMANDS:
    _looking.command(cls=Command, epilog=COMMON)(_part)
app.add_typer(_looking, name="inspect", help=inspecting.DESCRIPTION)
