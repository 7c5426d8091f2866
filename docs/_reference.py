"""The pages read off the package: command line and studies."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from types import ModuleType
from typing import Any

from typer.main import get_command

from _markdown import code, prose, table
from cynosure.catalogue import available
from cynosure.cli import app

# --- the command line ----------------------------------------------------------------------------


def cli_page() -> str:
    group: Any = get_command(app)
    parts = [
        "# Command line",
        "Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed (a theorem "
        "that applies does not hold, a run overflowed), 2 wrong usage or input, 130 interrupted.",
        "## Options of every command",
        _options(group),
    ]
    for path, command in commands(group):
        parts += [f"## cynosure {path}", _usage(path, command), _help(command), _options(command)]
    return "\n\n".join(part for part in parts if part)


def commands(group: Any, above: str = "") -> list[tuple[str, Any]]:
    """(path, command) for every command; a group gives the commands in it."""
    out = []
    for name, command in group.commands.items():
        path = f"{above} {name}".strip()
        out += commands(command, path) if hasattr(command, "commands") else [(path, command)]
    return out


def _help(command: Any) -> str:
    """The help text; a block that forbids wrapping (\\b) is an example to type."""
    out = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        typed = part.replace("\b", "").strip()
        out.append(f"```\n{typed}\n```" if part.startswith("\b") else prose(part))
    return "\n\n".join(out)


def _usage(path: str, command: Any) -> str:
    words = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    return "```\n" + " ".join(["cynosure", path, *words, "[OPTIONS]"]) + "\n```"


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _options(command: Any) -> str:
    rows = []
    for p in command.params:
        if p.param_type_name == "argument":
            rows.append([code(_argument(p)), getattr(p, "help", "") or "", ""])
        elif p.name != "help" and not getattr(p, "hidden", False):
            names = ", ".join([*p.opts, *p.secondary_opts])
            value = "" if p.is_flag else f" {p.metavar or p.name.rstrip('_').upper()}"
            shown = not p.is_flag and not callable(p.default) and p.default not in (None, [], ())
            default = code(p.default) if shown else ""
            rows.append([code(names + value), prose(p.help or ""), default])
    return table(["", "meaning", "default"], rows) if rows else ""


# --- the experiments -----------------------------------------------------------------------------


def experiments_page() -> str:
    parts = [
        "# Studies",
        "`cynosure run NAME` writes a report with tables and figures; `--quick` runs the small "
        "values, `--set name=value` changes one. Long studies store their measurements in the "
        "folder of the report: an interrupted run resumes, and `--redraw` draws again without "
        "measuring. From Python: `cynosure.catalogue.study(NAME).run(Params(...))`. The "
        "[gallery](../gallery.md) has a figure of each.",
    ]
    for name, module in available().items():
        parts += [f"## {name}", f"**{module.TITLE}**", prose(inspect.getdoc(module) or "")]
        parts += [prose(inspect.getdoc(module.Params) or "")]
        rows = [
            [code(f.name), code(getattr(module.Params(), f.name)), _quick(module, f.name)]
            for f in fields(module.Params)
        ]
        parts.append(table(["parameter", "default", "with `--quick`"], rows))
    return "\n\n".join(parts)


def _quick(module: ModuleType, name: str) -> str:
    quick = getattr(module.QUICK, name)
    return "" if quick == getattr(module.Params(), name) else code(quick)
