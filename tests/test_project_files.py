"""The files around the package agree with each other, and the tree is fit to publish."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import TypeCheckError, install_import_hook

import signatures

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _first(pattern: str, file: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text("utf-8"), flags=re.MULTILINE)
    assert found, f"{file} has no line like {pattern}"
    return found[1]


def test_the_version_is_the_same_everywhere() -> None:
    versions = {
        "pyproject.toml": PROJECT["version"],
        "__init__.py": _first(r'^__version__ = "(.+)"', "src/cynosure/__init__.py"),
        "CITATION.cff": _first(r"^version: (\S+)", "CITATION.cff"),
        "CHANGELOG.md": _first(r"^## \[?([0-9][^\s\]]*)", "CHANGELOG.md"),
    }
    assert len(set(versions.values())) == 1, versions


def test_the_licence_is_said_once() -> None:
    assert PROJECT["license"] == _first(r"^license: (\S+)", "CITATION.cff") == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_the_papers_are_cited() -> None:
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    for paper in ("2407.01602", "2305.05465", "2312.10794", "2508.09628"):
        assert f"arXiv:{paper}" in cited


def test_torch_is_pinned_and_allowed_by_the_metadata() -> None:
    from packaging.requirements import Requirement

    pins = map(Requirement, (ROOT / "constraints.txt").read_text("utf-8").split())
    (pin,) = [str(r.specifier) for r in pins if r.name == "torch"]
    assert pin.startswith("==")
    torch, *_ = map(Requirement, PROJECT["optional-dependencies"]["torch"])
    assert torch.name == "torch"
    assert torch.specifier.contains(pin.removeprefix("=="))


def test_extras_name_packages_or_extras_that_exist() -> None:
    extras = PROJECT["optional-dependencies"]
    for name in re.findall(r"cynosure\[(\w+)\]", str(extras)):
        assert name in extras
    asked = _first(r"^EXTRAS := (\S+)", "Makefile").split(",")
    assert set(asked) <= set(extras) and len(extras) <= 7
    separate = [set(lines) for name, lines in extras.items() if name not in ("models", "all")]
    assert sum(map(len, separate)) == len(set().union(*separate)), "a package in two extras"


# Distribution -> the name it is imported by, where the two differ.
IMPORTED_AS = {"faiss-cpu": "faiss"}


def test_every_optional_package_is_imported_somewhere() -> None:
    """What a coming feature will need comes with it. The tools of test and dev are commands."""
    from packaging.requirements import Requirement

    folders = (ROOT / "src", ROOT / "benchmarks")
    code = "".join(p.read_text("utf-8") for folder in folders for p in folder.rglob("*.py"))
    for extra, lines in PROJECT["optional-dependencies"].items():
        for name in {Requirement(line).name for line in lines} - {"cynosure"}:
            module = IMPORTED_AS.get(name, name)
            used = re.search(rf"""(?:import |from |["']){module}\b""", code)
            assert used or extra in ("test", "dev"), f"{extra}: nothing imports {name}"


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK), "chmod +x .ci/run"
    assert "make test" in script.read_text("utf-8").splitlines()


def test_the_package_says_it_is_typed() -> None:
    assert (ROOT / "src" / "cynosure" / "py.typed").exists()


# --- what is published -------------------------------------------------------------------------

# A path that exists on one machine only; a URL or a relative path has something before the slash.
MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(?:work|root|home|tmp|Users)/[\w.]+")


def _published() -> list[Path]:
    """Files that git tracks or would add."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if done.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in files if path.is_file()]


def test_no_published_file_names_a_machine() -> None:
    for path in _published():
        found = MACHINE_PATH.search(path.read_bytes().decode("utf-8", errors="ignore"))
        assert not found, f"{path.relative_to(ROOT)} names {found and found[0]}"


@pytest.mark.parametrize("folder", ["work", "root", "home", "tmp", "Users"])
def test_a_machine_path_would_be_noticed(folder: str) -> None:
    path = "/".join(["", folder, "someone", "tokens.csv"])
    assert MACHINE_PATH.search(f'read("{path}")')
    assert MACHINE_PATH.search(path)
    assert not MACHINE_PATH.search(f"https://example.org{path}")
    assert not MACHINE_PATH.search(f"..{path}")


def test_no_published_file_is_large() -> None:
    shipped = ROOT / "src" / "cynosure" / "classifier" / "models"
    for path in _published():
        if shipped not in path.parents:
            assert path.stat().st_size <= 1_000_000, f"{path.relative_to(ROOT)} is over 1 MB"
    for model in shipped.iterdir():
        size = sum(path.stat().st_size for path in model.iterdir())
        # Hashes of 80,000 terms are 0.64 MB of it: with them a sentence needs no compiler.
        assert size <= 3_500_000, f"the shipped model {model.name} is over 3.5 MB"


def test_what_the_targets_leave_is_ignored() -> None:
    left = [".venv/x", "demo/report.html", "src/cynosure.egg-info/x", "src/cynosure/__pycache__/x"]
    done = subprocess.run(["git", "check-ignore", *left], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout.split() == left


# --- no pickle ---------------------------------------------------------------------------------

PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}
# One line: `cynosure inspect --allow-pickle`, which its user has to type.
ASKED_FOR = {"src/cynosure/cli/inspecting.py": 1}


def pickling(source: str) -> Iterator[int]:
    """Lines that could run code found in a data file, or write such a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").split(".")[0]}
        elif isinstance(node, ast.Dict):  # options handed on as **{"allow_pickle": ...}
            keys = {getattr(key, "value", None) for key in node.keys}
            names = {"pickle"} if "allow_pickle" in keys else set()
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            # Only a literal False is safe to read off the page.
            safe = isinstance(node.value, ast.Constant) and node.value.value is False
            names = set() if safe else {"pickle"}
        else:
            continue
        if names & PICKLERS:
            yield node.lineno


def test_nothing_is_pickled() -> None:
    sources = list((ROOT / "src").rglob("*.py"))
    assert sources
    for path in sources:
        lines = list(pickling(path.read_text("utf-8")))
        name = path.relative_to(ROOT).as_posix()
        assert len(lines) == ASKED_FOR.get(name, 0), f"{name}: pickle on lines {lines}"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import load",
        "import numpy, cloudpickle",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=trusted)",
        "np.load(f, **{'allow_pickle': trusted})",
    ],
)
def test_pickling_would_be_noticed(source: str) -> None:
    assert list(pickling(source))
    assert not list(pickling("import numpy\nnp.load(f, allow_pickle=False)"))


# --- shapes in signatures are checked while testing ---------------------------------------------

SHAPED = """
from __future__ import annotations
import numpy as np
from jaxtyping import Float

def scores(z: Float[np.ndarray, "*b n d"], A: Float[np.ndarray, "d d"]) -> np.ndarray:
    return z @ A.T @ z.swapaxes(-1, -2)
"""


def test_a_wrong_shape_raises_under_the_hook(tmp_path: Path, monkeypatch) -> None:
    """The very form used in the package: string annotations, batch axes, a shared dimension."""
    (tmp_path / "shaped_signature.py").write_text(SHAPED)
    monkeypatch.syspath_prepend(tmp_path)
    with install_import_hook("shaped_signature", "beartype.beartype"):
        shaped = importlib.import_module("shaped_signature")
    monkeypatch.delitem(sys.modules, "shaped_signature")
    assert shaped.scores(np.ones((5, 4, 2)), np.eye(2)).shape == (5, 4, 4)
    with pytest.raises(TypeCheckError, match="A"):
        shaped.scores(np.ones((4, 2)), np.eye(3))
    with pytest.raises(TypeCheckError, match="z"):
        shaped.scores(np.ones(2), np.eye(2))


JUDGED = """
from __future__ import annotations
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    from nowhere import Thing

def halves(z: Float[np.ndarray, "n d"], many: bool = False) -> Float[np.ndarray, "n"]:
    inner = halves(z[:1]) if many else None
    return z[:, 0] if z.shape[1] < 3 else z[0]

def named(n: int, *rest: str, size: float | None = None, **more: int) -> str | None:
    return None if n else rest[0]

def foreign(x: Thing, n: int) -> None: ...
def several(n: int) -> Iterator[int]:
    yield n

@dataclass(frozen=True)
class Pair:
    z: Float[np.ndarray, "n d"]
    names: Int[np.ndarray, "n"]

    def both(self, other: Pair) -> Float[np.ndarray, "n d"]:
        return self.z + other.z
    @classmethod
    def of(cls, n: int) -> Pair:
        return cls(np.ones((n, 2)), np.arange(n))
    @staticmethod
    def size(n: int) -> int:
        return n
    @property
    def first(self) -> int:
        return float(self.z[0, 0])
"""
Z = "np.ones((3, 2))"
FITS = (
    f"halves({Z})", f"halves({Z}, True)", "named(1)", "named(0, 'a', size=1.0, b=2)",
    "foreign(3, 1)", "list(several(2))", "Pair.of(3).both(Pair.of(3))", "Pair.size(n=3)",
    "Pair.of(1).z",
)  # fmt: skip
BREAKS = (
    "halves(3)", "halves(np.ones(3))", "halves(np.ones((2, 3)))", "halves(np.ones((3, 2), int))",
    "named('1')", "named(0, 1)", "named(1, size='1')", "named(1, b='2')", "named(0, b'')",
    "foreign(3, 'n')", "several('2')", "Pair(np.ones((3, 2)), np.arange(2))", "Pair.of('3')",
    "Pair.size('3')", "Pair.of(3).first",
)  # fmt: skip


@pytest.mark.parametrize("judge", [signatures.checked, signatures.ORIGINAL])
def test_signatures_are_judged_as_jaxtyping_judges_them(tmp_path, monkeypatch, judge) -> None:
    monkeypatch.setattr("jaxtyping.jaxtyped", judge)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"judged_{judge.__module__.rpartition('.')[2]}"
    (tmp_path / f"{name}.py").write_text(JUDGED)
    with install_import_hook(name, "beartype.beartype"):
        space = {**vars(importlib.import_module(name)), "np": np}
    monkeypatch.delitem(sys.modules, name)
    for call in FITS:
        eval(call, space)
    late = ("Pair.of(3).both(3)",) if judge is signatures.checked else ()  # named too early for it
    for call in (*BREAKS, *late):
        with pytest.raises(TypeCheckError):
            eval(call, space)
    with pytest.raises(TypeError):  # Python's own: an argument is missing
        space["named"]()


def test_the_hook_is_live_in_the_package() -> None:
    from cynosure.simulation.configurations import gaussian

    assert gaussian(3, 2, seed=0).shape == (3, 2)
    with pytest.raises(TypeError, match="n: expected a whole number") as caught:
        gaussian("three", 2, seed=0)
    causes = [caught.value.__cause__, caught.value.__context__]  # a public call names its argument
    assert any(isinstance(cause, TypeCheckError) for cause in causes)


def test_every_module_but_the_excepted_is_checked() -> None:
    from conftest import CHECKED, PACKAGE, UNCHECKED

    present = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for folder in (PACKAGE, PACKAGE / "engine", PACKAGE / "classifier")
        for path in folder.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    excepted = UNCHECKED | {
        f"{p}.{m}" for p in ("engine", "classifier") for m in ("__init__", "kernels")
    }
    excepted.add("engine.gpu")
    assert {name.removeprefix("cynosure.") for name in CHECKED} == present - excepted
    for name in CHECKED:
        loader = importlib.util.find_spec(name).loader
        assert "jaxtyping" in type(loader).__module__, name
