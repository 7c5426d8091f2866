"""The studies there are: those of this package, and in a checkout those of its folder `studies`.

A study is a file of `cynosure.figures`, of a chapter in `studies/`, an entry point of the group
`cynosure.studies` in another package, or any file: `study("path/to/mine.py")`.

A study may say which figures and theorems it redraws: ALIASES = "2407.01602/figure6". It is found
by each, and by `figure6` alone; "2305.05465/theorem4.1=planes" means one of its questions.
"""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = ["aliases", "available", "chapters", "checkout", "question", "studies", "study", "titles"]

_FIGURES = "cynosure.figures"
_CHAPTERS = ("hardmax", "softmax", "sphere", "heads", "reviews", "transformers")


def checkout() -> Path | None:
    """The folder of the repository this package is imported from, if it has the studies."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "studies" / "__init__.py").is_file() else None


def _folders() -> list[str]:
    """The packages in which studies lie, in the order of the chapters."""
    root = checkout()
    if root is None:
        return [_FIGURES]
    if str(root) not in sys.path:
        sys.path.append(str(root))
    home = Path(import_module("studies").__file__ or "").parent
    if home != root / "studies":
        raise ImportError(f"expected the studies of {root}, found another package in {home}")
    return [_FIGURES, *(f"studies.{name}" for name in _CHAPTERS)]


def _listed(folder: str) -> list[str]:
    """The studies of a chapter in alphabetical order; imports none of them."""
    names = (f.name for f in pkgutil.iter_modules(import_module(folder).__path__))
    return sorted(name for name in names if not name.startswith("_"))


def chapters() -> dict[str, list[str]]:
    """Title of each chapter -> its studies by name, in alphabetical order; imports none."""
    found = {}
    for folder in _folders():
        title = (import_module(folder).__doc__ or folder).partition("\n")[0].rstrip(".")
        found[title] = _listed(folder)
    added = sorted(point.name for point in entry_points(group="cynosure.studies"))
    return {**found, "Studies of other packages": added} if added else found


def _homes() -> dict[str, str]:
    """Name of each study -> its module, in alphabetical order of the names."""
    homes = {point.name: point.value for point in entry_points(group="cynosure.studies")}
    for folder in _folders():
        homes |= {name: f"{folder}.{name}" for name in _listed(folder)}
    return dict(sorted(homes.items()))


def studies() -> list[str]:
    """The names of all studies, in alphabetical order; imports none."""
    return list(_homes())


def study(name: str) -> ModuleType:
    """The study of that name, or in the file `name` if it ends in .py; imports no other one."""
    if name.endswith(".py"):
        return _of_file(Path(name))
    homes = _homes()
    if name not in homes:
        name = _meant(name)[0]
    if name not in homes:
        paper = f"{name.partition('/')[0]}/"
        its = [alias for of in aliases().values() for alias in of if alias.startswith(paper)]
        known = ", ".join(sorted(its) or homes)
        raise ValueError(f"no study {name!r} (there are {known}; or give a file.py)")
    return import_module(homes[name])


def aliases() -> dict[str, tuple[str, ...]]:
    """Name of each study -> its other names, as its file has them; none is run."""
    return {name: tuple(others) for name, others in _aliases().items()}


def question(name: str) -> str:
    """The question that an alias means, of those that its study asks; "" if it means all."""
    return "" if name.endswith(".py") or name in _homes() else _meant(name)[1]


def _aliases() -> dict[str, dict[str, str]]:
    """Name of each study -> its other names, and the question that each of them means."""
    found = {}
    for name, home in _homes().items():
        words = (word.partition("=") for word in _constant(home, "ALIASES").split())
        found[name] = {alias: asked for alias, _, asked in words}
    return found


def _meant(alias: str) -> tuple[str, str]:
    """Study and question of that alias, whole or without its paper; itself if no study has it."""
    known = [(k, name, asked) for name, of in _aliases().items() for k, asked in of.items()]
    found = {(name, asked) for other, name, asked in known if other == alias}
    found = found or {(name, asked) for k, name, asked in known if k.endswith(f"/{alias}")}
    return found.pop() if len(found) == 1 else (alias, "")


def _of_file(path: Path) -> ModuleType:
    """A file as a module, in a package of its own: its name may be that of another module."""
    if not path.is_file():
        raise ValueError(f"{path}: expected the file of a study, found none")
    path = path.resolve()
    for folder in _folders():
        home = import_module(folder)
        if path.parent in map(Path, home.__path__):
            return import_module(f"{folder}.{path.stem}")
    from .study.measurements import load_file

    module = load_file(path, f"studies_by_path.{path.stem}")
    missing = [name for name in ("TITLE", "Params", "QUICK", "run") if not hasattr(module, name)]
    if missing:
        raise ValueError(
            f"{path}: expected a study with TITLE, Params, QUICK and run(p, progress); "
            f"{' and '.join(missing)} not found"
        )
    return module


def titles() -> dict[str, str]:
    """Name of each study -> its title, in alphabetical order; read from the files, none is run."""
    homes = _homes()  # a title that is no plain string is known when its file is run
    return {n: _constant(h, "TITLE") or str(import_module(h).TITLE) for n, h in homes.items()}


def _constant(home: str, name: str) -> str:
    """The text that the file of the module `home` gives to `name`; "" if it is no plain string."""
    found = find_spec(home)
    if found is None or not (found.origin or "").endswith(".py"):
        return ""
    source = Path(str(found.origin)).read_text(encoding="utf-8")
    if not re.search(rf"(?m)^{name}\b", source):
        return ""
    # Most files have it before their first function; to parse the others takes ten times as long.
    for text in (re.split(r"(?m)^(?:@|def |class |async )", source, maxsplit=1)[0], source):
        with suppress(SyntaxError):
            for node in ast.parse(text).body:
                named = [getattr(target, "id", "") for target in getattr(node, "targets", [])]
                value = getattr(node, "value", None)
                if named == [name] and isinstance(value, ast.Constant):
                    return str(value.value)
    return ""


def available() -> dict[str, ModuleType]:
    """Every study by name, in alphabetical order; this imports all of them."""
    return {name: study(name) for name in _homes()}
