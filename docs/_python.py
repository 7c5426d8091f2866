"""The reference of the Python interface, by topic, read off signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, get_origin

from numpydoc.docscrape import NumpyDocString

import cynosure
from _markdown import code, prose, table


class Topic(NamedTuple):
    """One page: its file, its title, what it is for, and the modules whose names it lists."""

    file: str
    title: str
    about: str
    modules: tuple[str, ...]


TOPICS = (
    Topic("simulate", "Simulate", "Run tokens through layers or time.", ("simulation",)),
    Topic("configurations", "Configurations", "Initial tokens.", ("simulation.configurations",)),
    Topic("attention", "Attention", "The weights between tokens.", ("attention",)),
    Topic("dynamics", "Dynamics", "How tokens move.", ("dynamics",)),
    Topic("analysis", "Analysis", "Analyse a run.", ("analysis", "analysis.spectra")),
    Topic("theorems", "Theorems", "Statements of the theory as checks.", ("theorems",)),
    Topic("construction", "Construction", "Networks built without training.", ("construction",)),
    Topic("drawing", "Plots, movies, reports", "Draw a run.", ("drawing.plot", "drawing.movie")),
    Topic("sweeps", "Sweeps", "Evaluate a function on a grid.", ("sweeps",)),
    Topic(
        "classifier",
        "Text classifier",
        "Fit, explain and evaluate.",
        ("classifier", "classifier.bulk", "classifier.text.datasets"),
    ),
    Topic("pretrained", "Trained transformers", "Read real models.", ("pretrained",)),
)
REST = Topic("more", "More", "Everything else under `cynosure`.", ("",))


def pages() -> dict[str, str]:
    """File name -> text of every page of the Python reference, the list of pages included."""
    seen: set[int] = set()
    out = {}
    for topic in (*TOPICS, REST):
        text = _topic(topic, seen)
        if text:
            out[f"{topic.file}.md"] = text
    rows = [
        [f"[{t.title}]({t.file}.md)", t.about] for t in (*TOPICS, REST) if f"{t.file}.md" in out
    ]
    names = ", ".join(code(f"cy.{name}") for name in sorted(shown(), key=str.lower))
    toc = "\n".join(name.removesuffix(".md") for name in out)
    out["index.md"] = "\n\n".join(
        [
            "# Python",
            "Import the package as `import cynosure as cy`. Each name is imported when it is first "
            "used. The most used names are in `cy` itself; reach all others through their module, "
            "for example `cy.dynamics.NGPTFlow`.",
            table(["topic", ""], rows),
            f"In `cy` itself: {names}.",
            f"```{{toctree}}\n:hidden:\n\n{toc}\n```",
        ]
    )
    return out


def shown() -> list[str]:
    """The names of the package's front page."""
    return [name for name in cynosure.__all__ if not name.startswith("_")]


def _topic(topic: Topic, seen: set[int]) -> str:
    entries = []
    for module in topic.modules:
        for name, thing in _public(module):
            key = hash((module, name)) if isinstance(thing, (int, float, str)) else id(thing)
            if key in seen or isinstance(thing, ModuleType) or get_origin(thing):
                continue
            seen.add(key)
            entries.append(_entry(_path(module, name, thing), thing))
    if not entries:
        return ""
    return "\n\n".join([f"# {topic.title}", topic.about, *entries])


def _public(module: str) -> Iterator[tuple[str, Any]]:
    """The public names of a module: those of the front page first, each by the alphabet."""
    if not module:
        yield from ((name, getattr(cynosure, name)) for name in shown())
        return
    home = import_module(f"cynosure.{module}")
    own = [
        name
        for name, value in vars(home).items()
        if inspect.isfunction(value) and value.__module__ == home.__name__ and name[0] != "_"
    ]
    front = {id(getattr(cynosure, name)) for name in shown()}
    names = sorted(getattr(home, "__all__", own), key=str.lower)
    names.sort(key=lambda name: id(getattr(home, name)) not in front)
    for name in sorted(names, key=lambda name: name not in FIRST):
        yield name, getattr(home, name)


# What a page is about stands at its head.
FIRST = {"simulate", "check", "limit", "sweep", "HardmaxClassifier", "load_transformer"}
SHORT = {"simulation.configurations": "configurations", "analysis.spectra": "spectra"}
SHORT |= {"drawing.plot": "plot", "drawing.movie": "movie"}
SHORT |= {"classifier.bulk": "bulk", "classifier.text.datasets": "datasets"}


def _path(module: str, name: str, thing: Any) -> str:
    """How a user reaches the name: by the front page where it stands there."""
    if not module or (name in shown() and getattr(cynosure, name) is thing):
        return f"cynosure.{name}"
    short = SHORT.get(module, module)
    return f"cynosure.{short if short in shown() else module}.{name}"


# --- one name ------------------------------------------------------------------------------------


def _entry(path: str, thing: Any) -> str:
    if inspect.isclass(thing):
        return _directive("py:class", path + arguments(thing), _class(path, thing))
    if callable(thing):
        return _directive("py:function", path + arguments(thing), document(inspect.getdoc(thing)))
    keys = ", ".join(code(key) for key in thing) if isinstance(thing, dict) else code(repr(thing))
    return _directive("py:data", path, f"A {type(thing).__name__}: {keys}.")


def _directive(kind: str, signature: str, body: str, depth: int = 5) -> str:
    fence = ":" * depth
    return f"{fence}{{{kind}}} {signature}\n{body}\n{fence}"


def _class(path: str, thing: type) -> str:
    parts = [document(_own_doc(thing))]
    members, inherited = _members(thing)
    rows = []
    for name, value in members:
        rows.append([code(_member(thing, name, value)), prose(_first(value))])
    if rows:
        parts.append(table(["member", ""], rows))
    for base, names in inherited.items():
        parts.append(f"Also, from `{base}`: {', '.join(code(name) for name in names)}.")
    return "\n\n".join(part for part in parts if part)


def _own_doc(thing: type) -> str:
    """The docstring written for the class, not the signature a dataclass makes up."""
    text = inspect.cleandoc(thing.__doc__ or "")
    return "" if text.startswith(f"{thing.__name__}(") else text


def _first(value: Any) -> str:
    return re.split(r"\n\s*\n", inspect.getdoc(value) or "")[0]


def _member(thing: type, name: str, value: Any) -> str:
    if isinstance(value, property) or type(value).__name__ == "cached_property":
        return f".{name}"
    return f".{name}{arguments(getattr(thing, name))}"


def _members(thing: type) -> tuple[list[tuple[str, Any]], dict[str, list[str]]]:
    """Public methods and properties: those of the class itself, and names by the base they have."""
    own: list[tuple[str, Any]] = []
    inherited: dict[str, list[str]] = {}
    seen: set[str] = set()
    for cls in thing.__mro__:
        if not cls.__module__.startswith("cynosure"):
            continue
        data = {f.name for f in fields(cls)} if is_dataclass(cls) else set()
        for name, value in vars(cls).items():
            if name.startswith("_") or name in data or name in seen or inspect.isclass(value):
                continue
            seen.add(name)
            if not _documented(thing, name, value):
                continue
            if cls is thing:
                own.append((name, value))
            else:
                inherited.setdefault(cls.__name__, []).append(name)
    return own, inherited


def _documented(thing: type, name: str, value: Any) -> bool:
    if name.startswith("set_") and name.endswith("_request"):  # scikit-learn's metadata routing
        return False
    is_property = isinstance(value, property) or type(value).__name__ == "cached_property"
    return is_property or callable(inspect.unwrap(getattr(thing, name)))


def arguments(thing: Any) -> str:
    """The parameters with defaults, without annotations."""
    if is_dataclass(thing) and inspect.isclass(thing) and not inspect.isabstract(thing):
        shown = [_field(f) for f in fields(thing) if f.init and not f.name.startswith("_")]
        return f"({', '.join(shown)})"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    if inspect.isabstract(thing):
        return ""
    bare = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _field(f: Any) -> str:
    if f.default is not MISSING:
        shown = getattr(f.default, "__name__", repr(f.default))  # a function has no stable repr
        return f"{f.name}={shown if shown.isidentifier() else '...' if '<' in shown else shown}"
    if f.default_factory is not MISSING:
        made = getattr(f.default_factory, "__name__", "")
        return f"{f.name}={made}()" if made.isidentifier() else f"{f.name}=..."
    return str(f.name)


# --- docstrings ----------------------------------------------------------------------------------


def document(text: str | None) -> str:
    """A docstring in numpydoc form as Markdown, every section that it has."""
    if not text:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doc = NumpyDocString(text)
    parts = [flow(_joined(doc["Summary"])), flow(_joined(doc["Extended Summary"]))]
    for section in ("Parameters", "Other Parameters", "Attributes"):
        if doc[section]:
            parts += [f"**{section}**", _terms(doc[section])]
    for section in ("Returns", "Yields", "Raises"):
        if doc[section]:
            parts += [f"**{section}**", _terms(doc[section])]
    for section in ("Notes", "References"):
        if doc[section]:
            parts += [f"**{section}**", flow(_joined(doc[section]))]
    if doc["Examples"]:
        parts += ["**Example**", flow(_joined(doc["Examples"]))]
    return "\n\n".join(part for part in parts if part)


def _joined(lines: Any) -> str:
    return lines if isinstance(lines, str) else "\n".join(lines)


def _terms(entries: list[Any]) -> str:
    """Names and what they mean, as a definition list."""
    out = []
    for entry in entries:
        kind, said = entry.type, _joined(entry.desc)
        if kind and (len(kind) > 30 or kind.endswith(".")):  # "name : what it is" on one line
            kind, said = "", f"{kind[0].upper()}{kind[1:]} {' '.join(said.split())}".strip()
        head = " : ".join(code(part) for part in (entry.name, kind) if part)
        text = flow(said) or " "
        out.append(f"{head}\n: " + text.replace("\n", "\n  "))
    return "\n\n".join(out)


def flow(text: str) -> str:
    """Paragraphs, formulas (indented) and sessions (>>>) of a docstring as Markdown."""
    out = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text).strip()):
        if part.lstrip().startswith(">>>"):
            out.append(f"```python\n{inspect.cleandoc(part)}\n```")
        elif part.startswith("    "):
            out.append(f"```text\n{inspect.cleandoc(part)}\n```")
        elif part:
            out.append(prose(part.replace("\\b", "")))
    return "\n\n".join(out)
