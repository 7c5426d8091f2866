"""What every test shares: shapes checked at run time, no window, seeded Hypothesis, the reviews."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import signatures

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "cynosure"

os.environ.setdefault("MPLBACKEND", "Agg")

# Not the kernels: numba compiles the plain functions. Not the packages above them: a name switches
# on everything below it, kernels included. Not cli and web: typer and FastAPI read annotations.
UNCHECKED = {"__init__", "_exports", "engine", "classifier", "kernels", "gpu", "cli", "web"}
CHECKED = sorted(
    ".".join(("cynosure", *path.relative_to(PACKAGE).with_suffix("").parts))
    for folder in (PACKAGE, PACKAGE / "engine", PACKAGE / "classifier")
    for path in folder.iterdir()
    if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem not in UNCHECKED
)
signatures.check(CHECKED)

# No deadline, since numba compiles inside the first example. Repeatable, so that a red run is
# about the change at hand; `--hypothesis-profile=explore` looks further.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("repeatable")


# Whole studies and attacks, which call small functions a million times: there the checks take as
# long as the work. Every one of those functions has tests where it is checked.
MANY = "attack studies studies_flow_controls studies_flow_judges studies_flow_measurements "
MANY += "studies_flow_numbers studies_hardmax studies_reviews studies_transformers"


@pytest.fixture(autouse=True)
def shapes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Signatures are checked at every call, but for the tests of MANY calls, or marked so."""
    many = request.path.stem in {f"test_{name}" for name in MANY.split()}
    many = many or request.node.get_closest_marker("many") is not None
    signatures.OFF = many
    yield
    signatures.OFF = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that read one study's run, or the cluster, on one worker: see --dist loadgroup."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("cluster"))
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")
        if name and hasattr(item.module, "quick"):
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine adds no line to what a command says; tests of that line set it themselves."""
    monkeypatch.setattr("cynosure.cli.output.PATIENCE", 3600.0)


@pytest.fixture(scope="session")
def imdb() -> Path:
    """The Large Movie Review Dataset archive: $CYNOSURE_IMDB, or one kept beside the checkout."""
    beside = ROOT.parent / "shared" / "data" / "aclImdb.tar.gz"
    path = Path(os.environ.get("CYNOSURE_IMDB", beside))
    if not path.exists():
        pytest.skip(f"needs aclImdb.tar.gz: set CYNOSURE_IMDB (looked for {path.name})")
    return path


@pytest.fixture(scope="session")
def weights() -> Callable[[str], Path]:
    """Folders of trained weights: in $CYNOSURE_WEIGHTS, or kept beside the checkout."""
    beside = ROOT.parent / "shared" / "data" / "weights"

    def folder(name: str) -> Path:
        path = Path(os.environ.get("CYNOSURE_WEIGHTS", beside)) / name
        if not path.is_dir():
            pytest.skip(f"needs the weights {name}: set CYNOSURE_WEIGHTS to the folder they lie in")
        return path

    return folder


@pytest.fixture(scope="session")
def published() -> Path:
    """What arXiv 2407.01602 published: $CYNOSURE_PUBLISHED, or kept beside the checkout."""
    beside = ROOT.parent / "shared" / "data" / "published"
    path = Path(os.environ.get("CYNOSURE_PUBLISHED", beside))
    if not (path / "reviews_128.npz").is_file():
        pytest.skip("needs the published model: set CYNOSURE_PUBLISHED to the folder it lies in")
    return path


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A scheduler and two worker processes of Dask on loopback; a worker killed is started anew."""
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    here = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(os.path.isdir, sys.path), here])
    patient = {"distributed.deploy.lost-worker-timeout": "10 minutes"}  # on a busy machine
    how = {"processes": True, "dashboard_address": ":0", "host": "127.0.0.1"}
    try:
        with (
            dask.config.set(patient),
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, **how) as local,
        ):
            os.environ["PYTHONPATH"] = here
            yield local
    finally:
        os.environ["PYTHONPATH"] = here
