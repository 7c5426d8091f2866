"""What every test shares: shapes checked at run time, no window, seeded Hypothesis, the reviews."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
from jaxtyping import install_import_hook

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "cynosure"

os.environ.setdefault("MPLBACKEND", "Agg")

# Not the kernels: numba compiles the plain functions. Not the packages above them: a name switches
# on everything below it, kernels included. Not cli: typer reads its annotations.
UNCHECKED = {"__init__", "engine", "kernels", "cli"}
CHECKED = sorted(
    ".".join(("cynosure", *path.relative_to(PACKAGE).with_suffix("").parts))
    for folder in (PACKAGE, PACKAGE / "engine")
    for path in folder.iterdir()
    if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem not in UNCHECKED
)
install_import_hook(CHECKED, "beartype.beartype")

# No deadline, since numba compiles inside the first example. Repeatable, so that a red run is
# about the change at hand; `--hypothesis-profile=explore` looks further.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("repeatable")


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
