"""The pages read off the package: command line, experiments, Python interface."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType
from typing import Any

from typer.main import get_command

import cynosure
from _markdown import anchors, code, paragraphs, prose, summary, table
from cynosure.cli import app
from cynosure.experiments import available

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
        "# Experiments",
        "`cynosure run NAME` writes a report with its tables and figures; `--quick` runs the small "
        "values, `--set name=value` changes one. What long ones measure is kept beside the report: "
        "an interrupted run goes on where it was, `--redraw` draws again without measuring. From "
        "Python: `cynosure.experiments.experiment(NAME).run(Params(...))`. A figure of each is in "
        "the [gallery](gallery.md).",
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


# --- the Python interface ------------------------------------------------------------------------


def api_page() -> str:
    names = [name for name in cynosure.__all__ if not name.startswith("__")]
    parts = [
        "# Python interface",
        "`import cynosure as cy`; every name below is `cy.NAME`, imported on first use. "
        "Full docstrings: `help(cy.NAME)`.",
        ", ".join(f"[{name}](#{anchor})" for name, anchor in zip(names, anchors(names))),
    ]
    for name in names:
        parts += [f"## {name}", *_entry(name, getattr(cynosure, name))]
    return "\n\n".join(parts)


def _entry(name: str, thing: Any) -> list[str]:
    if isinstance(thing, ModuleType):
        return _module(name, thing)
    if inspect.isclass(thing):
        return _class(name, thing)
    if inspect.isfunction(thing):
        return [_signature(name, thing), summary(thing)]
    keys = ", ".join(code(key) for key in thing) if isinstance(thing, dict) else ""
    return [f"A {type(thing).__name__}: {keys}." if keys else code(repr(thing))]


def _module(name: str, module: ModuleType) -> list[str]:
    own = [
        (key, value)
        for key, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not key.startswith("_")
        and key in getattr(module, "__all__", [key])
    ]
    rows = [[code(f"{name}.{key}{_arguments(f)}"), prose(paragraphs(f)[0])] for key, f in own]
    return [prose(paragraphs(module)[0]), table(["function", ""], rows)]


def _class(name: str, thing: type) -> list[str]:
    parts = [_signature(name, thing), summary(thing)]
    rows = []
    for key, value in _members(thing):
        if isinstance(value, property) or type(value).__name__ == "cached_property":
            rows.append([code(f".{key}"), prose(paragraphs(value)[0])])
        elif callable(inspect.unwrap(getattr(thing, key))):
            method = getattr(thing, key)
            rows.append([code(f".{key}{_arguments(method)}"), prose(paragraphs(method)[0])])
    return [*parts, table(["member", ""], rows)] if rows else parts


def _members(thing: type) -> list[tuple[str, Any]]:
    """Public methods and properties of a class, inherited ones of this package included."""
    seen: dict[str, Any] = {}
    for cls in reversed(thing.__mro__):
        if cls.__module__.startswith("cynosure"):
            data = {f.name for f in fields(cls)} if is_dataclass(cls) else set()
            for key, value in vars(cls).items():
                if not key.startswith("_") and key not in data:
                    seen[key] = value
    return list(seen.items())


def _signature(name: str, thing: Any) -> str:
    return f"```\n{name}{_arguments(thing)}\n```"


def _arguments(thing: Any) -> str:
    """The parameters without annotations, which repeat what the docstring says."""
    if inspect.isabstract(thing):
        return "  (abstract)"
    if is_dataclass(thing) and inspect.isclass(thing):
        shown = [_field(f) for f in fields(thing) if f.init and not f.name.startswith("_")]
        return f"({', '.join(shown)})"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    bare = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _field(f: Any) -> str:
    if f.default is not MISSING:
        return f"{f.name}={f.default!r}"
    if f.default_factory is not MISSING:
        made = getattr(f.default_factory, "__name__", "")
        return f"{f.name}={made}()" if made.isidentifier() else f"{f.name}=..."
    return f.name
