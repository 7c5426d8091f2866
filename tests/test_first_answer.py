"""What a first answer imports and where its kernels go: modules that a command does without.

How long it takes is measured by benchmarks/first_answer.py; a module that creeps back into a
command is found here, on any machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import cynosure as cy
from cynosure import _compiled
from cynosure.cli import main

SRC = Path(cy.__file__).parent.parent
HEAVY = set(
    "numba llvmlite scipy.spatial scipy.stats scipy.optimize scipy.linalg scipy.sparse "
    "scipy.integrate sklearn matplotlib PIL pandas torch transformers xarray zarr dask joblib "
    "fastapi uvicorn jaxtyping numpy.f2py tqdm".split()
)
PROGRAM = """
import json, os, sys
{lines}
found = sorted(set({heavy!r}) & sys.modules.keys())
os.write(2, ("\\nimported " + json.dumps(found)).encode())
"""
TOKENS = "cy.configurations.gaussian(40, 2, seed=1)"
CASES = {  # command or lines -> the heavy modules that it may import
    "--version": "",
    "--help": "",
    "limit --help": "",
    "run --list": "",
    "limit golden:G4": "",
    "limit gaussian:n=50,d=2 --json": "",
    "limit gaussian:n=50,d=3 --alpha 2": "",
    "simulate gaussian:n=40,d=2 --layers 20": "",
    "simulate gaussian:n=40,d=2 --json": "",
    "check golden:G4": "numpy.f2py",
    "explain good": "",
    "explain 'It is not a great film; the ending, though, is moving and bold.' --json": "",
    f"cy.simulate(cy.PureAttention(), {TOKENS}, layers=20)": "",
    f"cy.limit(cy.PureAttention(), {TOKENS})": "",
    f"cy.Hardmax().followed({TOKENS})": "",
    f"cy.roles(cy.simulate(cy.PureAttention(), {TOKENS}, layers=9))": "",
    "import cynosure.classifier.explaining.loaded_model": "",
}


def imported(case: str, **environment: str) -> set[str]:
    """The heavy modules that a new process has imported once it has done this."""
    import json
    import shlex

    if case.startswith(("cy.", "import ")):
        lines = f"import cynosure as cy\n{case}"
    else:
        lines = f"from cynosure.cli import main\nassert main({shlex.split(case)!r}) == 0"
    program = PROGRAM.format(lines=lines, heavy=sorted(HEAVY))
    env = {**os.environ, "PYTHONPATH": str(SRC), **environment}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "\nimported " in done.stderr, done.stderr
    return set(json.loads(done.stderr.rpartition("\nimported ")[2]))


@pytest.mark.parametrize("case", CASES)
def test_a_first_answer_imports_what_it_needs(case: str) -> None:
    assert imported(case) <= set(CASES[case].split())


def test_a_module_that_is_imported_is_seen() -> None:
    assert "scipy.stats" in imported("import scipy.stats")


@pytest.mark.slow
def test_warm_compiles_everything_and_a_second_call_finds_it(tmp_path: Path) -> None:
    """After `cynosure warm` a large input compiles nothing."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    line = [sys.executable, "-m", "cynosure", "warm"]
    first = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert "compiled loops are ready" in first.stderr
    kernels = sorted(tmp_path.rglob("*.nbc"))
    assert kernels
    large = "cy.limit(cy.PureAttention(), np.random.default_rng(0).normal(size=(3000, 2)))"
    program = f"import numpy as np, cynosure as cy; {large}"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    subprocess.run(line, env=environment, capture_output=True, check=True)
    assert sorted(tmp_path.rglob("*.nbc")) == kernels


def test_what_is_started_in_the_background_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server and notebooks start a command line that exists, and that ends with its caller."""
    started: list[list[str]] = []
    monkeypatch.setattr(_compiled.subprocess, "Popen", lambda line, **_: started.append(line))
    monkeypatch.setattr(_compiled.atexit, "register", lambda call: None)
    with suppress(AttributeError):  # what stands in for a process has no `terminate`
        _compiled.warm_elsewhere()
    (line,) = started
    compiled: list[float] = []

    def stand_in(progress: Callable[[float, str], None]) -> list[str]:
        for done in (0.0, 0.5):
            progress(done, "engine.kernels.planar")
            compiled.append(done)
            monkeypatch.setattr(os, "getppid", lambda: -1)  # the caller has gone
        return []

    monkeypatch.setattr(_compiled, "warm", stand_in)
    monkeypatch.setattr(os, "nice", lambda by: by)
    assert main(line[3:]) == 0
    assert compiled == [0.0]
