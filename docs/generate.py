"""Write the pages of docs/ that are read off the package: cli, experiments, api and gallery.

    python docs/generate.py                    write them (`make docs`)
    python docs/generate.py --check            write nothing; exit 1 if one is stale
    python docs/generate.py --pictures         redraw docs/images too
    python docs/generate.py --gallery FOLDER   take FOLDER/NAME/, as `cynosure run NAME --out
                                               FOLDER/NAME` leaves it, into the gallery
    python docs/generate.py --gallery FOLDER --run   first run there what the gallery has not, or
                                               has with other parameters than today's

`tests/test_docs.py` runs the check, so a page cannot drift from the code. The gallery needs full
runs, minutes each: what it shows is kept in docs/gallery/, and entries of which FOLDER has no run
stay as they are. Experiments on data of somebody else's (`--set data=`) are run by hand.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import sys
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

DOCS = Path(__file__).resolve().parent
HEADER = "<!-- Written by docs/generate.py; do not edit, run `make docs`. -->\n\n"


def pages() -> dict[str, str]:
    """File name -> text of every generated page."""
    written = {
        "cli.md": cli_page(),
        "experiments.md": experiments_page(),
        "api.md": api_page(),
        "gallery.md": gallery_page(kept_gallery()),
    }
    return {name: HEADER + text.rstrip() + "\n" for name, text in written.items()}


def stale(folder: Path = DOCS) -> list[str]:
    """The generated pages whose text in `folder` is not what the package says now."""

    def differs(name: str, text: str) -> bool:
        path = folder / name
        return not path.exists() or path.read_text(encoding="utf-8") != text

    return [name for name, text in pages().items() if differs(name, text)]


# --- Markdown ------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Docstring text as Markdown: < and * are mathematics there, except in code."""
    out = []
    for line in text.splitlines():
        parts = re.split(r"(``.*?``|`[^`]*`)", line)
        if not line.startswith("    "):
            parts[::2] = [re.sub(r"(?<!^)\*", r"\\*", p).replace("<", "&lt;") for p in parts[::2]]
        out.append("".join(parts))
    return "\n".join(out)


def table(head: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        flat = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(flat)} |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def anchors(headings: list[str]) -> list[str]:
    """What a renderer calls each heading in a link: `Limit` and `limit` differ by a number."""
    seen: dict[str, int] = {}
    out = []
    for heading in headings:
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        seen[plain] = seen.get(plain, -1) + 1
        out.append(f"{plain}-{seen[plain]}" if seen[plain] else plain)
    return out


def code(text: object) -> str:
    return f"`{text}`"


def paragraphs(thing: Any) -> list[str]:
    return re.split(r"\n\s*\n", inspect.getdoc(thing) or "")


def summary(thing: Any) -> str:
    """The first paragraph of a docstring, with the equation that follows it if there is one."""
    first, *rest = paragraphs(thing)
    if rest and rest[0].startswith("    "):
        return prose(f"{first}\n\n{rest[0]}")
    return prose(first)


# --- the command line ----------------------------------------------------------------------------


def cli_page() -> str:
    from typer.main import get_command

    from cynosure.cli import app

    group: Any = get_command(app)
    parts = [
        "# Command line",
        "Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed (a theorem "
        "that applies does not hold, a run overflowed), 2 wrong usage or input, 130 interrupted.",
        "## Options of every command",
        _options(group),
    ]
    for path, command in _commands(group):
        parts += [f"## cynosure {path}", _usage(path, command), _help(command), _options(command)]
    return "\n\n".join(part for part in parts if part)


def _commands(group: Any, above: str = "") -> list[tuple[str, Any]]:
    """(path, command) for every command, groups opened."""
    found = []
    for name, command in group.commands.items():
        path = f"{above} {name}".strip()
        inner = _commands(command, path) if hasattr(command, "commands") else [(path, command)]
        found += inner
    return found


def _unwrap(text: str) -> str:
    return text.replace("\b", "").strip()


def _help(command: Any) -> str:
    """The help text; a block that forbids wrapping (\\b) is an example to type."""
    out = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        fenced = part.startswith("\b")
        out.append(f"```\n{_unwrap(part)}\n```" if fenced else prose(part))
    return "\n\n".join(out)


def _usage(path: str, command: Any) -> str:
    words = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    return "```\n" + " ".join(["cynosure", path, *words, "[OPTIONS]"]) + "\n```"


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _value(option: Any) -> str:
    return option.metavar or option.name.rstrip("_").upper()


def _options(command: Any) -> str:
    rows = []
    for p in command.params:
        if p.param_type_name == "argument":
            rows.append([code(_argument(p)), getattr(p, "help", "") or "", ""])
        elif p.name != "help" and not getattr(p, "hidden", False):
            names = ", ".join([*p.opts, *p.secondary_opts])
            value = "" if p.is_flag else f" {_value(p)}"
            shown = not p.is_flag and p.default is not None and not callable(p.default)
            default = code(p.default) if shown and p.default not in ([], ()) else ""
            rows.append([code(names + value), prose(p.help or ""), default])
    return table(["", "meaning", "default"], rows) if rows else ""


# --- the experiments -----------------------------------------------------------------------------


def experiments_page() -> str:
    from cynosure.experiments import available

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


# --- the gallery ---------------------------------------------------------------------------------

GALLERY = DOCS / "gallery"
TELLING = {"emergent_leaders": 2}  # the figure shown where it is not the first
LARGEST = 90_000  # bytes of a picture
WIDTH = 900  # pixels


def kept_gallery(folder: Path = GALLERY) -> dict[str, dict[str, Any]]:
    """Name -> what the gallery shows of that experiment."""
    path = folder / "gallery.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def own_params(module: ModuleType) -> dict[str, Any]:
    """The default parameters, without the places of data and models on somebody's machine."""
    from cynosure.drawing.report import jsonable

    params: dict[str, Any] = jsonable(asdict(module.Params()))
    return {name: value for name, value in params.items() if value != ""}


def entry(name: str, folder: Path, pictures: Path = GALLERY) -> dict[str, Any]:
    """What the gallery shows of the run in `folder`; its picture goes to `pictures`."""
    from cynosure.experiments import available

    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    expected = own_params(available()[name])
    found = {key: report["params"].get(key) for key in expected}
    if found != expected:
        other = [key for key in expected if found[key] != expected[key]]
        raise ValueError(f"{name}: not a run with the default parameters ({', '.join(other)})")
    figure, path = _figures(report, folder / "data")[TELLING.get(name, 1) - 1]
    pictures.mkdir(parents=True, exist_ok=True)
    (pictures / f"{name}.png").write_bytes(small_picture(path))
    return {
        "title": report["title"],
        "figure": figure,
        "text": _finding(report),
        "verdict": report["verdict"],
        "params": found,
        "version": report["version"],
    }


def _finding(report: dict[str, Any]) -> str:
    """The first paragraph, and where it has no number of two digits the first one that has."""
    first, *rest = (p for text in _summaries(report) for p in re.split(r"\n\s*\n", text.strip()))
    measured = re.compile(r"\d[.\d%]")
    if measured.search(first):
        return first
    return "\n\n".join([first, *[p for p in rest if measured.search(p)][:1]])


def _summaries(report: dict[str, Any]) -> list[str]:
    inner = [text for chapter in report["chapters"] for text in _summaries(chapter)]
    return [report["summary"], *inner]


def _figures(report: dict[str, Any], folder: Path) -> list[tuple[dict[str, str], Path]]:
    """(title and caption, PNG) of every figure of a report and of its chapters."""
    own = [
        (figure, next(folder.glob(f"figure{i}-*.png")))
        for i, figure in enumerate(report["figures"], 1)
    ]
    for i, chapter in enumerate(report["chapters"], 1):
        inner = next(folder.glob(f"{i}-*/"), folder)
        own += _figures(chapter, inner)
    return own


def small_picture(path: Path) -> bytes:
    """The picture at most WIDTH wide and LARGEST long, with as many colours as that allows."""
    from PIL import Image

    with Image.open(path) as picture:
        image = picture.convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.LANCZOS)
    for colours in (256, 128, 64, 32, 16):
        stream = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
        if stream.tell() <= LARGEST:
            break
    return stream.getvalue()


def run_stale(runs: Path, folder: Path = GALLERY) -> list[str]:
    """Full runs in `runs` of what the gallery lacks or shows with other parameters; their names."""
    from cynosure.cli import main as cynosure
    from cynosure.experiments import available

    shown, made = kept_gallery(folder), []
    for name, module in available().items():
        fresh = name in shown and shown[name]["params"] == own_params(module)
        if fresh or any(f.name == "data" for f in fields(module.Params) if f.default == ""):
            continue
        force = ["--force"] if (runs / name / "report.html").exists() else []
        print(f"running {name}", flush=True)
        if cynosure(["-q", "run", name, "--out", str(runs / name), *force]) == 0:
            made.append(name)
    return made


def update_gallery(runs: Path, folder: Path = GALLERY) -> list[str]:
    """Take the runs found into the gallery; returns what was said about each experiment."""
    from cynosure.experiments import available

    shown, said = kept_gallery(folder), []
    for name in available():
        if (runs / name / "report.json").exists():
            try:
                shown[name] = entry(name, runs / name, folder)
                said.append(f"gallery: {name}")
            except (ValueError, StopIteration, IndexError) as error:
                said.append(f"gallery: LEFT AS IT WAS, {error or name}")
    kept = {name: shown[name] for name in available() if name in shown}
    for picture in folder.glob("*.png"):
        if picture.stem not in kept:
            picture.unlink()
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gallery.json").write_text(text + "\n", encoding="utf-8")
    return said


def gallery_page(shown: dict[str, dict[str, Any]]) -> str:
    from cynosure.experiments import available, chapters

    experiments = available()
    parts = [
        "# Gallery",
        "One figure of each experiment, with what it found, from full runs with the default "
        "parameters. The command under a figure makes the whole report: all figures, tables, "
        "theorem checks. Parameters and what to look for: [experiments](experiments.md).",
    ]
    for chapter, group in chapters().items():
        links = " · ".join(f"[{name}](#{name.lower()})" for name in group)
        parts += [f"## {chapter}", links]
        for name in group:
            parts += _shown(name, experiments[name], shown.get(name))
    return "\n\n".join(parts)


def _shown(name: str, module: ModuleType, found: dict[str, Any] | None) -> list[str]:
    command = f"`cynosure run {name}`"
    about = f"[parameters](experiments.md#{name.lower()})"
    if found is None:
        reads = any(f.name == "data" for f in fields(module.Params))
        how = f"`cynosure run {name} --set data=FILE`" if reads else command
        needs = f"Needs data or weights that do not come with the package: {how} · {about}"
        return [f"### {name}", f"**{module.TITLE}**", needs]
    figure = found["figure"]
    return [
        f"### {name}",
        f"**{found['title']}**",
        f"![{figure['title']}](gallery/{name}.png)",
        f"*{figure['title']}.* {prose(figure['caption'])}",
        prose(found["text"]),
        f"{found['verdict']} {command} · {about}",
    ]


# --- the Python interface ------------------------------------------------------------------------


def api_page() -> str:
    import cynosure

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
            rows.append([code(f".{key}{_arguments(getattr(thing, key))}"), ""])
            rows[-1][1] = prose(paragraphs(getattr(thing, key))[0])
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
    kept = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name not in ("self", "cls")
    ]
    bare = signature.replace(parameters=kept, return_annotation=inspect.Signature.empty)
    return str(bare)


def _field(f: Any) -> str:
    if f.default is not MISSING:
        return f"{f.name}={f.default!r}"
    if f.default_factory is not MISSING:
        made = getattr(f.default_factory, "__name__", "")
        return f"{f.name}={made}()" if made.isidentifier() else f"{f.name}=..."
    return f.name


# --- the pictures --------------------------------------------------------------------------------


def draw(folder: Path = DOCS / "images") -> Path:
    """Figure 2 of arXiv 2407.01602 by this package, as the README shows it."""
    import cynosure as cy

    dynamics = cy.PureAttention(alpha=cy.configurations.FIGURE2_ALPHA)
    starts = [cy.configurations.figure2(case) for case in (1, 2, 3, 4)]
    runs = [cy.simulate(dynamics, z0, layers=30) for z0 in starts]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "figure2.png"
    cy.plot.figure2(runs).savefig(path, dpi=110)
    return path


def main(argv: list[str]) -> int:
    runs = Path(argv.pop(argv.index("--gallery") + 1)) if "--gallery" in argv[:-1] else None
    unknown = set(argv) - {"--check", "--pictures", "--gallery", "--run"}
    if unknown or (runs is None and not {"--gallery", "--run"}.isdisjoint(argv)):
        expected = "--check, --pictures or --gallery FOLDER [--run]"
        print(f"generate.py: expected {expected}, got {' '.join(argv)}")
        return 2
    if "--check" in argv:
        found = stale()
        for name in found:
            print(f"docs/{name} is stale: run `make docs`")
        return 1 if found else 0
    if runs is not None:
        if "--run" in argv:
            run_stale(runs)
        print(*update_gallery(runs), sep="\n")
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"docs/{name}")
    if "--pictures" in argv:
        print(draw().relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
