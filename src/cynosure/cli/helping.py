"""How `--help` is laid out: the options of every day first, the rest under "More options"."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_MORE = "More options"
_VALUES = {"<str>": "TEXT", "<int>": "N", "<float>": "NUMBER", "<path>": "FILE"}


def opt(said: str, *names: str, of: str | None = None, more: bool = False, **how: Any) -> Any:
    """An option: its help, its names if not the parameter's, what it is of; `more`: few need it."""
    panel = _MORE if more else None
    return typer.Option(*names, help=said, metavar=of, rich_help_panel=panel, **how)


def arg(said: str, of: str | None = None, **how: Any) -> Any:
    """An argument: its help, and what it is called."""
    return typer.Argument(help=said, metavar=of, **how)


class Command(TyperCommand):
    """A command whose options come in the sections that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _sections(self, ctx, formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"[{}]|\.\.\.$", "", piece) for piece in super().collect_usage_pieces(ctx)]


class Group(TyperGroup):
    """A command of several commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def _sections(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments, options and the options of each further section."""
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        if param.param_type_name == "argument":
            rows["Arguments"].append((record[0].split(" <")[0], record[1]))
        else:
            section, option = getattr(param, "rich_help_panel", None) or "Options", record[0]
            for kind, name in _VALUES.items():  # --beta <float> -> --beta NUMBER
                option = option.replace(kind, name)
            rows.setdefault(section, []).append((option, record[1]))
    for title, lines in rows.items():
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)


def completing(module: str, names: str) -> Callable[[str], list[str]]:
    """The names that go on from what was typed, out of a table that only then is imported."""

    def completed(incomplete: str) -> list[str]:
        found = getattr(import_module(f"cynosure.{module}"), names)
        known = found() if callable(found) else found.installed()
        return [name for name in known if name.startswith(incomplete)]

    return completed
