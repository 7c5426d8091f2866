"""Data flows one way: a stage imports only stages above it; heavy libraries stay where they are.

The rules are read off the syntax trees, imports inside functions included, so a late import is no
way round them. `violations` is itself judged: each rule is fed a tree that breaks it.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# Top to bottom. The package's own __init__ imports lazily from all of them and is not in the list.
STAGES = (
    "_blame _exports _registry _shapes _types _scale _deadline _compiled _progress _display "
    "_frames _files engine attention dynamics simulation analysis construction theorems drawing "
    "sweeps classifier pretrained study figures catalogue web cli __main__"
).split()
RANK = {name: rank for rank, name in enumerate(STAGES)}
ABOVE = {name: set(STAGES[:rank]) for name, rank in RANK.items()}
# Inside a stage, where it has an order: what stands later may import what stands before.
ROOMS = {
    "analysis": (
        "projection vertices polytope clustering gaussian leaders limits probes control "
        "spectra findings observing shadowing"
    ).split(),
    "classifier": (
        "kernels text model fitting explaining linear published exports estimator bundled "
        "evaluating bulk"
    ).split(),
    "pretrained": "loading families heads reading pages".split(),
    "web": (
        "requests answers workers gallery processes notebook static_page server connections"
    ).split(),
}

AUTOGRAD = {"classifier.fitting.training", "pretrained"}
DRAWING = {
    "drawing",
    "classifier.explaining.explanation",
    "classifier.linear",
    "classifier.published",
    "pretrained",
    "study",
    "figures",
}


class Import(NamedTuple):
    module: str  # dotted, absolute
    line: int
    runs_at_import: bool  # at module level and not under TYPE_CHECKING


def _statements(node: ast.AST, runs: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below `node`, and whether it runs when the module is imported."""
    for child in ast.iter_child_nodes(node):
        yield child, runs
        deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield from _statements(child, runs and not deferred and not typing_only)


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """Absolute names of what `tree`, a module of `package`, imports.

    `from x import y` gives x.y: whether y is a module of x is the reader's to decide.
    """
    for node, runs in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, runs)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            prefix = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield Import(f"{prefix}.{alias.name}", node.lineno, runs)


def _import_faults(home: str, found: Import) -> Iterator[str]:
    """What is wrong with an import in the module `home`, dotted from the package down."""
    stage = home.partition(".")[0]
    library, _, rest = found.module.partition(".")
    if library == "cynosure":
        target = rest.split(".")[0]
        if target == stage in ROOMS:
            yield from _room_faults(ROOMS[stage], home, rest)
        if target in RANK:
            if target != stage and target not in ABOVE[stage]:
                yield f"imports {target}, which is not above it"
        elif target != "__version__" and RANK[stage] < RANK["figures"]:
            yield f"imports the public name {target or 'cynosure'}; name its module"
    if library == "matplotlib" and not _within(home, DRAWING):
        yield "imports matplotlib: that belongs to drawing and the few that show pictures"
    if library == "torch" and found.runs_at_import and not _within(home, AUTOGRAD):
        yield "imports torch when it is imported; do it inside the function"
    if library == "transformers" and stage != "pretrained":
        yield "imports transformers: that belongs to pretrained"


def _room_faults(order: list[str], home: str, target: str) -> Iterator[str]:
    """What is wrong with an import between two rooms of one stage."""
    here, there = (f"{name}.".split(".")[1] for name in (home, target))
    if here in order and there in order and order.index(there) > order.index(here):
        yield f"imports {there}, which is not above {here}"


def _within(home: str, places: set[str]) -> bool:
    return any(home == place or home.startswith(f"{place}.") for place in places)


def _is_call_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _last_name(node: ast.expr) -> str:
    """`abc.ABC` -> ABC, `Sequence[int]` -> Sequence, `dataclass(frozen=True)` -> dataclass."""
    if isinstance(node, ast.Subscript | ast.Call):
        return _last_name(node.value if isinstance(node, ast.Subscript) else node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_abstract(cls: ast.ClassDef) -> bool:
    named = {_last_name(base) for base in cls.bases} & {"ABC", "Protocol", "Exception"}
    return bool(named) or any(
        _last_name(decorator) == "abstractmethod"
        for item in cls.body
        if isinstance(item, ast.FunctionDef)
        for decorator in item.decorator_list
    )


def _class_faults(cls: ast.ClassDef, concrete: set[str]) -> Iterator[str]:
    for base in cls.bases:
        if _last_name(base) in concrete:
            yield f"{cls.name} extends {_last_name(base)}, which is not abstract"
    for decorator in cls.decorator_list:
        if _last_name(decorator) == "dataclass" and "frozen=True" not in ast.unparse(decorator):
            yield f"{cls.name} is a dataclass that is not frozen"


def violations(src: Path) -> list[str]:
    """Every broken rule in the package below `src`, as 'file:line: what is wrong'."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in src.rglob("*.py")}
    classes = [n for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    concrete = {cls.name for cls in classes if not _is_abstract(cls)}
    faults = []
    for path, tree in sorted(trees.items()):
        parts = path.relative_to(src).with_suffix("").parts
        stage = parts[1]
        if stage == "__init__":
            continue
        if stage not in RANK:
            faults.append(f"{path.name}:1: is in no stage: give {stage} its place in STAGES")
            continue
        home = ".".join(parts[1:])
        if stage in ROOMS and len(parts) > 2 and parts[2] not in (*ROOMS[stage], "__init__"):
            faults.append(f"{path.name}:1: give {parts[2]} its place in ROOMS[{stage!r}]")
        for found in imports(tree, ".".join(parts[:-1])):
            faults += [f"{path.name}:{found.line}: {what}" for what in _import_faults(home, found)]
        for node in ast.walk(tree):
            if _is_call_of(node, "print") and RANK[stage] < RANK["figures"]:
                faults.append(f"{path.name}:{node.lineno}: prints; results are returned")
            if isinstance(node, ast.ClassDef):
                what = _class_faults(node, concrete)
                faults += [f"{path.name}:{node.lineno}: {fault}" for fault in what]
    return faults


def test_every_module_keeps_the_order() -> None:
    assert violations(SRC) == []


def test_the_tree_was_really_read() -> None:
    """An empty folder has no violations either."""
    read = {
        path.stem if path.stem != "__init__" else path.parent.name for path in SRC.rglob("*.py")
    }
    assert {"attention", "simulation", "limits", "kernels", "figure1"} <= read


def private(source: str) -> list[str]:
    """Imports of a study that a user could not write: names with an underscore, files by path."""
    found = imports(ast.parse(source), "studies.hardmax")
    names = [one.module for one in found if one.module.partition(".")[0] == "cynosure"]
    return [name for name in names if any(part.startswith("_") for part in name.split("."))]


def test_studies_use_public_names_only() -> None:
    assert private("from cynosure._types import definite") == ["cynosure._types.definite"]
    assert private("from cynosure.study.measurements import _packed")
    assert not private("import cynosure as cy\nfrom .._extremes import standing_out")
    files = sorted((ROOT / "studies").rglob("*.py"))
    assert len(files) > 40
    assert {path.name: found for path in files if (found := private(path.read_text("utf-8")))} == {}


def test_the_package_does_not_import_studies() -> None:
    trees = ((path, ast.parse(path.read_text("utf-8"))) for path in SRC.rglob("*.py"))
    named = [(path.name, one) for path, tree in trees for one in imports(tree, "cynosure")]
    assert len(named) > 1000
    assert [pair for pair in named if pair[1].module.partition(".")[0] == "studies"] == []


WRONG = [
    (
        "attention/rules.py",
        "from cynosure.simulation.loop import simulate",
        "imports simulation, which is not",
    ),
    ("attention/rules.py", "from ..analysis.limits import limit", "imports analysis, which is not"),
    ("attention/rules.py", "from .. import analysis", "imports analysis, which is not"),
    ("attention/rules.py", "import cynosure.analysis.limits", "imports analysis, which is not"),
    (
        "attention/rules.py",
        "def f():\n    from ..analysis.limits import limit",
        "imports analysis, which is not",
    ),
    (
        "attention/rules.py",
        "if TYPE_CHECKING:\n    from ..analysis.limits import Limit",
        "imports analysis, which is",
    ),
    ("engine/kernels/planar.py", "from ...analysis import hull", "imports analysis, which is not"),
    ("engine/kernels/planar.py", "from ... import attention", "imports attention, which is not"),
    ("engine/walk.py", "from ..dynamics import Flow", "imports dynamics, which is not"),
    ("analysis/limits.py", "import cynosure as cy", "imports the public name cynosure"),
    ("analysis/limits.py", "from cynosure import hull", "imports the public name hull"),
    ("analysis/leaders.py", "def f():\n    import matplotlib.pyplot as plt", "imports matplotlib"),
    ("classifier/model/model.py", "import matplotlib", "imports matplotlib"),
    ("simulation/loop.py", "import torch", "imports torch"),
    ("classifier/model/model.py", "import torch", "imports torch"),
    (
        "cli/demo.py",
        "try:\n    from torch import nn\nexcept ImportError:\n    nn = None",
        "imports torch",
    ),
    ("analysis/spectra/rates.py", "class S:\n    import torch", "imports torch"),
    ("classifier/fitting/training.py", "def f():\n    import transformers", "imports transformers"),
    ("classifier/text/inputs.py", "from ..model import plane", "imports model, which is not above"),
    ("classifier/odds.py", "x = 1", "give odds its place in ROOMS['classifier']"),
    ("pretrained/heads/head.py", "from ..reading import traces", "imports reading, which is not"),
    (
        "pretrained/reading/traces.py",
        "def f():\n    from ..pages.chapters import table_of",
        "imports pages, which is not",
    ),
    ("drawing/report.py", "def f():\n    print(1)", "prints"),
    ("web/answers/tokens.py", "from ..workers.pool import Pool", "imports workers, which is not"),
    ("web/requests/guard.py", "from .. import server", "imports server, which is not above"),
    ("web/odds.py", "x = 1", "give odds its place in ROOMS['web']"),
    ("analysis/limits.py", "from .control import steering", "imports control, which is not above"),
    ("analysis/odds.py", "x = 1", "give odds its place in ROOMS['analysis']"),
    ("utils.py", "x = 1", "is in no stage"),
    ("utils/lists.py", "x = 1", "is in no stage"),
    ("dynamics/flows.py", "class A: ...\nclass B(A): ...", "B extends A, which is not abstract"),
    ("dynamics/flows.py", "@dataclass\nclass A: ...", "A is a dataclass that is not frozen"),
    ("dynamics/flows.py", "@dataclasses.dataclass(eq=False)\nclass A: ...", "that is not frozen"),
]
RIGHT = [
    (
        "analysis/limits.py",
        "from ..simulation.loop import simulate\nfrom cynosure import __version__",
    ),
    (
        "engine/kernels/planar.py",
        "from . import reference\nfrom .contract import U\nfrom ..._types import T",
    ),
    ("dynamics/flows.py", "from ..attention import Hardmax\nfrom .. import engine"),
    ("simulation/loop.py", "def f():\n    import torch\nif TYPE_CHECKING:\n    import torch"),
    ("classifier/fitting/training.py", "import torch"),
    ("pretrained/heads/head.py", "import torch, transformers"),
    ("pretrained/pages/chapters.py", "from ..heads.head import Head\nfrom .pictures import grid"),
    ("pretrained/__init__.py", "from .pages.inspection import inspection"),
    ("drawing/plot.py", "import matplotlib.pyplot as plt"),
    ("figures/figure2.py", "import cynosure as cy\nprint(cy)"),
    ("cli/demo.py", "from cynosure import figures\nprint(1)"),
    ("drawing/report.py", "sheet.print()"),
    ("web/workers/pool.py", "from ..requests.problems import Refusal\nfrom .worker import HEAD"),
    ("dynamics/flows.py", "class A(abc.ABC): ...\n@dataclass(frozen=True)\nclass B(A): ..."),
    ("dynamics/flows.py", "class A:\n    @abstractmethod\n    def f(self): ...\nclass B(A): ..."),
    ("__init__.py", "def __getattr__(name):\n    from . import cli"),
]


def _plant(src: Path, file: str, text: str) -> None:
    path = src / "cynosure" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(("file", "text", "complaint"), WRONG)
def test_a_wrong_tree_is_noticed(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    _plant(tmp_path, file, text)
    faults = violations(tmp_path)
    assert len(faults) == 1 and complaint in faults[0], faults


@pytest.mark.parametrize(("file", "text"), RIGHT)
def test_a_right_tree_passes(tmp_path: Path, file: str, text: str) -> None:
    _plant(tmp_path, file, text)
    assert violations(tmp_path) == []


def _loaded_by(program: str, libraries: str) -> list[str]:
    """Which of `libraries` a fresh interpreter has loaded after running `program`."""
    report = f"import sys\nprint('LOADED', *set(sys.modules) & set({libraries.split()!r}))"
    path = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{report}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("LOADED")[2].split()


def test_importing_the_package_is_light() -> None:
    program = "import cynosure\ncynosure.__version__"
    assert _loaded_by(program, "torch matplotlib sklearn numba scipy") == []


def test_asking_for_help_is_light() -> None:
    program = """
import sys
from cynosure.cli import main
sys.argv = ["cynosure", "--help"]
try:
    code = main()
except SystemExit as stop:
    code = stop.code
assert not code, code
"""
    assert _loaded_by(program, "torch matplotlib sklearn") == []


def test_the_watch_on_loaded_libraries_sees_one() -> None:
    assert _loaded_by("import scipy", "torch scipy") == ["scipy"]


def test_every_public_name_is_there() -> None:
    import cynosure

    assert 20 <= len(cynosure.__all__) <= 45
    for name in cynosure.__all__:
        assert getattr(cynosure, name) is not None
        assert name in dir(cynosure)
    with pytest.raises(AttributeError):
        cynosure.no_such_name  # noqa: B018


STUBS = sorted(str(path.parent.relative_to(SRC)) for path in SRC.rglob("__init__.pyi"))


@pytest.mark.parametrize("package", STUBS)
def test_type_checkers_see_the_public_names(package: str) -> None:
    """A stub has each name once, as `name as name`, and it leads to what users get."""
    module = importlib.import_module(package.replace(os.sep, "."))
    tree = ast.parse((SRC / package / "__init__.pyi").read_text("utf-8"))
    found = [node.names for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert all(len(names) == 1 and names[0].asname == names[0].name for names in found)
    typed = [names[0].name for names in found]
    assert sorted(typed) == sorted(set(module.__all__) - {"__version__"})
    for name in typed:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def test_dir_of_a_public_module_shows_its_public_names() -> None:
    import cynosure

    modules = [x for name in cynosure.__all__ if hasattr(x := getattr(cynosure, name), "__path__")]
    assert len(modules) > 5
    for module in (*modules, cynosure.plot, cynosure.movie, cynosure.configurations):
        shown = set(dir(module))
        assert shown == set(getattr(module, "__all__", shown)), module
        assert "gaussian" in shown if module is cynosure.configurations else shown
        assert not {"np", "Any", "annotations"} & shown, module


def test_packages_have_their_names_in_stubs() -> None:
    assert len(STUBS) >= 8 and "cynosure" in STUBS
