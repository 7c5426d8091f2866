"""The table "to add ... touch ..." of CONTRIBUTING.md is true: each kind of thing is added.

The package is copied, each addition is a new file and the lines its registry asks for, and one
process with the copy on its path looks whether it appears where the table says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Kind of thing -> {file below src/cynosure: text appended to it, or the whole of a new file}.
ADDED: dict[str, dict[str, str]] = {
    "a dynamics": {
        "dynamics/halving.py": """
from dataclasses import dataclass
from typing import final

from .abstract import LayerMap


@final
@dataclass(frozen=True, eq=False)
class Halving(LayerMap):
    \"\"\"z^{k+1} = rate z^k.\"\"\"

    rate: float = 0.5

    def step(self, z, k, *, mask=None):
        return self.rate * z
""",
        "dynamics/__init__.py": """
from .halving import Halving
DYNAMICS["halving"] = Halving
""",
    },
    "an attention": {
        "attention/uniform.py": """
from dataclasses import dataclass
from typing import Any, final

from .rules import RowAttention


@final
@dataclass(frozen=True, eq=False)
class Uniform(RowAttention):
    \"\"\"P_ij = 1/n: every token looks at all of them alike.\"\"\"

    A: Any = None

    def share(self, scores, allowed):
        ones = 0 * scores + 1
        return ones if allowed is None else ones * allowed
""",
        "attention/__init__.py": """
from .uniform import Uniform
ATTENTIONS["uniform"] = Uniform
""",
    },
    "a stepper": {
        "simulation/steppers.py": """

@final
@dataclass(frozen=True)
class Midpoint(FixedStep):
    \"\"\"z + dt f(z + dt/2 f(z)): order 2.\"\"\"

    dt: float = 0.1

    def advance(self, flow, z, t, dt, mask):
        middle = z + dt / 2 * flow.velocity(z, t, mask=mask)
        return z + dt * flow.velocity(middle, t + dt / 2, mask=mask)


STEPPERS["midpoint"] = Midpoint
""",
    },
    "a configuration": {
        "simulation/configurations.py": """

def diagonal(n: int = 5, seed: int = 0) -> np.ndarray:
    \"\"\"(i, i) for i = 1..n.\"\"\"
    return np.repeat(np.arange(1.0, n + 1)[:, None], 2, axis=1)


CONFIGURATIONS["diagonal"] = diagonal
""",
    },
    "a theorem": {
        "theorems/convergence.py": """
from dataclasses import dataclass
from typing import final

from .checks import Hypothesis, Part, Reading, least, statement


@final
@dataclass(frozen=True, eq=False)
class AnyRun(Reading):
    @property
    def base(self) -> tuple[Hypothesis, ...]:
        return ()


@statement(AnyRun, "B99", "a test", "norms never grow")
def norms_never_grow(run: AnyRun) -> list[Part]:
    norms = np.linalg.norm(run.trajectory.values, axis=-1)
    return [least("norms", -np.diff(norms, axis=0), 0.0, "layer", "token")]
""",
    },
    "a study": {
        "figures/hello.py": """
\"\"\"A study that says hello.\"\"\"

from dataclasses import dataclass

from cynosure.study import report_of

TITLE = "Hello"


@dataclass(frozen=True)
class Params:
    n: int = 3


QUICK = Params(n=2)


def run(p, progress=None):
    return report_of(p, f"{p.n} times hello.", controls=())
""",
    },
    "a command": {
        "cli/greeting.py": """
def greet() -> None:
    \"\"\"Say good day.\"\"\"
    print("good day")
""",
        "cli/app.py": """
from .greeting import greet
app.command(epilog=COMMON)(greet)
""",
    },
}

PROBE = """
import contextlib, io, json
from cynosure.cli import main
from cynosure.catalogue import chapters
import cynosure as cy
import conformance

def say(*args):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["-q", *args])
    return [code, out.getvalue()]

for name in ("batch_is_a_loop", "padding_inert", "permutation_equivariant"):
    getattr(conformance, name)(cy.dynamics.DYNAMICS["halving"]())
print(json.dumps({
    "configuration": say("simulate", "diagonal:n=4", "--dynamics", "halving:rate=0.25",
                         "--layers", "2", "--out", "run.npz", "--json"),
    "reloaded": str(cy.load("run.npz").dynamics),
    "attention": say("simulate", "diagonal", "--dynamics", "attention_flow",
                     "--attention", "uniform", "--stepper", "midpoint:dt=0.25",
                     "--time", "1", "--out", "flow.npz", "--json"),
    "flow": [str(cy.load("flow.npz").dynamics), str(cy.load("flow.npz").stepper)],
    "check": say("check", "run.npz", "--only", "B99", "--json"),
    "theorems": list(cy.theorems.THEOREMS),
    "list": say("run", "--list"),
    "chapters": chapters(),
    "run": say("run", "hello", "--quick", "--out", "hello", "--json"),
    "command": say("greet"),
    "help": say("--help"),
}))
"""


def copied(folder: Path, added: dict[str, str]) -> Path:
    """The package in `folder`, with the additions."""
    src = folder / "src"
    shutil.copytree(ROOT / "src" / "cynosure", src / "cynosure")
    for name, text in added.items():
        path = src / "cynosure" / name
        before = path.read_text("utf-8") if path.exists() else ""
        path.write_text(before + text, encoding="utf-8")
    return src


def asked(src: Path, probe: str) -> dict[str, Any]:
    """What `probe` prints as JSON, run with the copy of the package."""
    path = os.pathsep.join([str(src), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=src.parent,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict[str, Any]:
    files = {name: text for one in ADDED.values() for name, text in one.items()}
    assert len(files) == sum(map(len, ADDED.values()))
    return asked(copied(tmp_path_factory.mktemp("copy"), files), PROBE)


def test_a_dynamics_and_a_configuration_are_on_the_command_line_and_in_files(said) -> None:
    code, out = said["configuration"]
    assert code == 0 and json.loads(out)["result"]["dynamics"] == "Halving"
    assert said["reloaded"] == "Halving(rate=0.25)"


def test_an_attention_and_a_stepper_are_on_the_command_line_and_in_files(said) -> None:
    assert said["attention"][0] == 0
    dynamics, stepper = said["flow"]
    assert "Uniform" in dynamics and stepper == "Midpoint(dt=0.25)"


def test_a_theorem_is_checked(said) -> None:
    code, out = said["check"]
    (check,) = json.loads(out)["result"]["checks"]
    assert code == 0 and check["theorem"] == "B99" and check["applies"] and check["holds"]
    assert said["theorems"][-1] == "B99"


def test_an_experiment_is_listed_run_and_in_its_chapter(said) -> None:
    assert "hello" in said["list"][1] and "Hello" in said["list"][1]
    (chapter,) = [names for names in said["chapters"].values() if "hello" in names]
    assert "figure1" in chapter
    code, out = said["run"]
    assert code == 0 and json.loads(out)["params"] == {"n": 2}


def test_a_command_runs_and_is_in_the_help(said) -> None:
    assert said["command"] == [0, "good day\n"]
    assert "Say good day." in said["help"][1]


FAMILY = {"pretrained/families/ernie.py": 'from .bert import BERT\n\nADAPTERS = {"ernie": BERT}\n'}
FAMILY_PROBE = """
import json
import numpy as np
import transformers
import cynosure as cy

sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
config = transformers.ErnieConfig(vocab_size=20, intermediate_size=32, **sizes)
model = cy.load_transformer(transformers.ErnieModel(config).eval())
trace = model.trace([2, 5, 7, 11])
P = np.stack([head.weights(trace.seen[1]) for head in model.heads(1)])
print(json.dumps(float(np.abs(P - trace.attentions[1]).max())))
"""


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_a_transformer_family_is_one_file(tmp_path: Path) -> None:
    """ELECTRA has the layers of BERT; its heads rebuild the attention the real model computes."""
    assert asked(copied(tmp_path, FAMILY), FAMILY_PROBE) < 1e-6


def test_the_table_has_a_row_for_each_kind() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for kind in (*ADDED, "a kernel", "a transformer family"):
        assert f"\n| {kind} |" in text, kind
