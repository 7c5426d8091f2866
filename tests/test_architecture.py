"""Data flows one way: a stage imports only stages above it; heavy libraries stay where they are.

The rules are read off the syntax trees, imports inside functions included, so a late import is no
way round them. `violations` is itself judged: each rule is fed a tree that breaks it.
"""

from __future__ import annotations

import ast
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
    "_types _scale _deadline _display _frames _files engine attention dynamics simulation analysis "
    "construction theorems drawing sweeps classifier pretrained experiments web cli __main__"
).split()
RANK = {name: rank for rank, name in enumerate(STAGES)}
ABOVE = {name: set(STAGES[:rank]) for name, rank in RANK.items()}

AUTOGRAD = {"classifier.training", "pretrained"}
DRAWING = {"drawing", "classifier.explanation", "pretrained", "experiments"}


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
        if target in RANK:
            if target != stage and target not in ABOVE[stage]:
                yield f"imports {target}, which is not above it"
        elif target != "__version__" and RANK[stage] < RANK["experiments"]:
            yield f"imports the public name {target or 'cynosure'}; name its module"
    if library == "matplotlib" and not _within(home, DRAWING):
        yield "imports matplotlib: that belongs to drawing and the few that show pictures"
    if library == "torch" and found.runs_at_import and not _within(home, AUTOGRAD):
        yield "imports torch when it is imported; do it inside the function"
    if library == "transformers" and stage != "pretrained":
        yield "imports transformers: that belongs to pretrained"


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
        for found in imports(tree, ".".join(parts[:-1])):
            faults += [f"{path.name}:{found.line}: {what}" for what in _import_faults(home, found)]
        for node in ast.walk(tree):
            if _is_call_of(node, "print") and RANK[stage] < RANK["experiments"]:
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
    ("classifier/model.py", "import matplotlib", "imports matplotlib"),
    ("simulation/loop.py", "import torch", "imports torch"),
    ("classifier/model.py", "import torch", "imports torch"),
    (
        "cli/demo.py",
        "try:\n    from torch import nn\nexcept ImportError:\n    nn = None",
        "imports torch",
    ),
    ("analysis/spectra/rates.py", "class S:\n    import torch", "imports torch"),
    ("classifier/training.py", "def f():\n    import transformers", "imports transformers"),
    ("drawing/report.py", "def f():\n    print(1)", "prints"),
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
    ("classifier/training.py", "import torch"),
    ("pretrained/heads.py", "import torch, transformers"),
    ("drawing/plot.py", "import matplotlib.pyplot as plt"),
    ("experiments/hardmax/figure2.py", "import cynosure as cy\nprint(cy)"),
    ("cli/demo.py", "from cynosure import experiments\nprint(1)"),
    ("drawing/report.py", "sheet.print()"),
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

    assert cynosure.__all__
    for name in cynosure.__all__:
        assert getattr(cynosure, name) is not None
        assert name in dir(cynosure)
    with pytest.raises(AttributeError):
        cynosure.no_such_name  # noqa: B018


def test_type_checkers_see_the_public_names() -> None:
    """What `__getattr__` gives at run time stands under TYPE_CHECKING, name by name."""
    import cynosure

    tree = ast.parse((SRC / "cynosure" / "__init__.py").read_text("utf-8"))
    typed = {found.module.rpartition(".")[2] for found in imports(tree, "cynosure") if found.line}
    typed -= {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    assert typed == set(cynosure.__all__) - {"__version__"}
