"""A package of somebody's own adds one thing of each kind, without a line in ours.

It is installed as pip would leave it: a module and a folder of metadata with entry points, on the
path of a new process. The same things work as `module:Name`, from a module that is not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cynosure as cy
from cynosure.cli import main

ROOT = Path(__file__).resolve().parent.parent
MODULE = '''
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import cynosure as cy
from cynosure.attention import Followed, RowAttention
from cynosure.simulation.steppers import FixedStep

TITLE = "Hello from outside"


@final
@dataclass(frozen=True, eq=False)
class Momentum(cy.dynamics.LayerMap):
    """p <- friction p + (m(z) - z), z <- z + p: a state is tokens and momenta side by side."""

    friction: float = 0.5

    def begin(self, z):
        return np.concatenate([z, 0 * z], axis=-1)

    def observe(self, state):
        return state[..., : state.shape[-1] // 2]

    def step(self, state, k, *, mask=None):
        z, p = np.split(state, 2, axis=-1)
        p = self.friction * p + 0.1 * (cy.Softmax().pull(z, mask=mask) - z)
        return np.concatenate([z + p, p], axis=-1)


@final
@dataclass(frozen=True, eq=False)
class TopK(RowAttention):
    """Each token looks evenly at the k tokens with the largest scores."""

    k: int = 2
    A: Any = None

    def share(self, scores, allowed):
        scores = scores if allowed is None else np.where(allowed, scores, -np.inf)
        return (scores >= np.sort(scores, axis=-1)[..., [-self.k]]).astype(float)

    def followed(self, z, *, mask=None):
        return Followed.of([np.flatnonzero(row) for row in self.weights(z)])


@final
@dataclass(frozen=True)
class Midpoint(FixedStep):
    dt: float = 0.1

    def advance(self, flow, z, t, dt, mask):
        middle = z + dt / 2 * flow.velocity(z, t, mask=mask)
        return z + dt * flow.velocity(middle, t + dt / 2, mask=mask)


def diagonal(n: int = 5, seed: int = 0):
    return np.repeat(np.arange(1.0, n + 1)[:, None], 2, axis=1)


@final
@dataclass(frozen=True, eq=False)
class AnyRun(cy.theorems.Reading):
    @property
    def base(self):
        return ()


@cy.theorems.statement(AnyRun, "X1", "a test", "tokens stay finite")
def finite(run):
    wrong = ~np.isfinite(run.trajectory.values).all(axis=-1)
    return [cy.theorems.exactly("finite", wrong, "layer", "token")]


@dataclass(frozen=True)
class Params:
    n: int = 3


QUICK = Params(n=2)


def run(p, progress=None):
    return cy.study.report_of(p, f"{p.n} times hello.", controls=())
'''
POINTS = """
[cynosure.dynamics]
momentum = outside:Momentum
[cynosure.attention]
topk = outside:TopK
[cynosure.steppers]
midpoint = outside:Midpoint
[cynosure.configurations]
diagonal = outside:diagonal
[cynosure.theorems]
X1 = outside:finite
[cynosure.studies]
hello = outside
[cynosure.families]
ernie = outside_family:ERNIE
"""
PROBE = """
import contextlib, io, json, sys, warnings
from cynosure.cli import main
import cynosure as cy

def say(*args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["-q", *args])
    return [code, out.getvalue(), err.getvalue()]

momentum, topk, midpoint, diagonal, check = sys.argv[1:6]
told = {
    "run": say("simulate", f"{diagonal}:n=4", "--dynamics", f"{momentum}:friction=0.25",
               "--layers", "3", "--out", "run.npz", "--force", "--json"),
    "flow": say("simulate", diagonal, "--dynamics", "attention_flow", "--attention", f"{topk}:k=2",
                "--stepper", f"{midpoint}:dt=0.25", "--time", "1", "--out", "flow.npz", "--force",
                "--json"),
    "check": say("check", "run.npz", "--only", check, "--json"),
    "study": say("run", "hello", "--quick", "--out", "hello", "--force", "--json"),
}
told["loaded"] = [str(cy.load("run.npz").dynamics), str(cy.load("flow.npz").stepper)]
told["known"] = "momentum" in cy.dynamics.DYNAMICS and "X1" in cy.theorems.THEOREMS
print(json.dumps(told))
"""
NAMES = {
    "installed": ["momentum", "topk", "midpoint", "diagonal", "X1"],
    "named": [
        *("outside:Momentum", "outside:TopK", "outside:Midpoint", "outside:diagonal"),
        "outside:finite",
    ],
}


def site(folder: Path, installed: bool) -> Path:
    """The module in a folder, with the metadata of an installed package or without."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "outside.py").write_text(MODULE, encoding="utf-8")
    (folder / "outside_family.py").write_text(
        "from cynosure.pretrained.families.bert import BERT\n\nERNIE = BERT\n", encoding="utf-8"
    )
    if installed:
        info = folder / "outside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(POINTS)
    return folder


def asked(folder: Path, probe: str, *args: str) -> Any:
    path = os.pathsep.join([str(ROOT / "src"), str(folder)])
    done = subprocess.run(
        [sys.executable, "-c", probe, *args],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("way", list(NAMES))
def test_one_of_each_is_added_from_outside(tmp_path: Path, way: str) -> None:
    told = asked(site(tmp_path, way == "installed"), PROBE, *NAMES[way])
    for name in ("run", "flow", "check"):
        assert told[name][0] == 0, told[name]
    assert json.loads(told["run"][1])["result"]["dynamics"] == "Momentum"
    assert told["loaded"] == ["Momentum(friction=0.25)", "Midpoint(dt=0.25)"]
    (check,) = json.loads(told["check"][1])["result"]["checks"]
    assert check["theorem"] == "X1" and check["applies"]
    assert told["study"][0] == (0 if way == "installed" else 2)
    assert told["known"] is (way == "installed")


FAMILY = """
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
def test_a_transformer_family_is_added_from_outside(tmp_path: Path) -> None:
    assert asked(site(tmp_path, True), FAMILY) < 1e-6


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The module, imported anew."""
    monkeypatch.syspath_prepend(site(tmp_path / "site", False))
    sys.modules.pop("outside", None)
    yield import_module("outside")
    sys.modules.pop("outside", None)
    cy.theorems.THEOREMS.pop("X1", None)


def test_a_run_of_an_unknown_dynamics_says_what_to_import(tmp_path, outside) -> None:
    """A file imports nothing: the dynamics comes back once its module is imported."""
    run = cy.simulate(outside.Momentum(), cy.configurations.gaussian(6, 2), layers=3)
    run.save(tmp_path / "run.npz")
    assert str(cy.load(tmp_path / "run.npz").dynamics) == "Momentum(friction=0.5)"
    del sys.modules["outside"]
    with pytest.warns(UserWarning, match="import outside first"):
        again = cy.load(tmp_path / "run.npz")
    assert again.dynamics is None and "outside" not in sys.modules
    np.testing.assert_array_equal(again.z, run.z)


def test_a_run_of_a_package_that_is_gone_says_what_to_install(tmp_path, outside) -> None:
    """The run has the name of an entry point, which nobody knows without the package."""
    cy.dynamics.DYNAMICS["gone"] = outside.Momentum
    try:
        run = cy.simulate(outside.Momentum(), cy.configurations.gaussian(6, 2), layers=3)
        run.save(tmp_path / "run.npz")
    finally:
        del cy.dynamics.DYNAMICS["gone"]
    with pytest.warns(UserWarning, match="made by 'gone'; install the package that adds it"):
        assert cy.load(tmp_path / "run.npz").dynamics is None


def test_a_plain_class_is_a_dynamics_on_the_command_line(tmp_path, monkeypatch, capsys) -> None:
    """The first example of the page on extending is no dataclass."""
    monkeypatch.chdir(tmp_path)
    body = "def step(self, z, k, *, mask=None):\n        return z / 2\n"
    Path("plain_class.py").write_text(
        f"import cynosure as cy\n\n\nclass Slow(cy.dynamics.LayerMap):\n    {body}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["-q", "simulate", "golden:G2", "--layers", "2", "--json", "--dynamics"]
    assert main([*asked, "plain_class:Slow"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["dynamics"] == "Slow"
    assert main([*asked, "plain_class:Slow:friction=1"]) == 2
    assert "no 'friction' there (there are no parameters)" in capsys.readouterr().err
    sys.modules.pop("plain_class")


def test_a_file_cannot_name_what_is_no_dynamics(tmp_path: Path) -> None:
    """A class that is loaded and no dynamics is refused like one that is not loaded."""
    from cynosure.simulation.saving import _kind, _NotImported

    for name in ("subprocess:Popen", "pathlib:Path", "builtins:eval", "outside", "a:b.c"):
        with pytest.raises(_NotImported):
            _kind(name)


def halving(z, k):
    return 0.5 * z


def test_a_plain_function_is_a_dynamics(tmp_path: Path) -> None:
    z = cy.configurations.gaussian(5, 2)
    run = cy.simulate(halving, z, layers=3)
    np.testing.assert_array_equal(run.z[-1], z / 8)
    flow = cy.simulate(lambda z, t: -z, z, time=1.0)
    np.testing.assert_allclose(flow.z[-1], z * np.exp(-1), rtol=1e-5)
    assert all(c.holds for c in cy.check(run) if c.applies)
    run.save(tmp_path / "run.npz")
    with pytest.warns(UserWarning, match="dataclasses.replace"):
        assert cy.load(tmp_path / "run.npz").dynamics is None
    with pytest.raises(ValueError, match="an array of shape"):
        cy.simulate(lambda z, k: z[0], z, layers=1)
    with pytest.raises(TypeError, match=r"f\(z, k\), the next layer; too many positional"):
        cy.simulate(lambda z: z / 2, z, layers=1)
    with pytest.raises(TypeError, match=r"v\(z, t\), its velocity"):
        cy.simulate(lambda z, t, more: -z, z, time=1.0)
    with pytest.raises(ValueError, match="parameter `mask`"):
        cy.simulate(halving, z, layers=1, mask=[True] * 4 + [False])
    with pytest.raises(TypeError, match=r"write PureAttention\(\)"):
        cy.simulate(cy.PureAttention, z, layers=1)


def test_a_state_may_be_more_than_tokens(outside) -> None:
    z = cy.configurations.gaussian(6, 2)
    run = cy.simulate(outside.Momentum(), z, layers=4)
    state = np.concatenate([z, 0 * z], axis=1)
    for k in range(4):
        state = outside.Momentum().step(state, k)
    assert run.z.shape == (5, 6, 2)
    np.testing.assert_array_equal(run.z[-1], state[:, :2])
    (check,) = cy.check(run, only=["B39"])
    assert not check.applies  # its layers need the momenta, which a run does not keep
    stopped = cy.simulate(outside.Momentum(), z, layers=4, stop_when=lambda z: z.shape == (6, 2))
    assert stopped.status.code == "stopped"
    with pytest.raises(ValueError, match="more than its tokens"):
        run.continued(layers=2)


def test_roles_of_any_attention_that_follows_sets(outside) -> None:
    z = np.array([[3.0, 0.0], [2.0, 0.1], [-1.0, 2.0], [0.1, -0.2]])
    run = cy.simulate(cy.PureAttention(outside.TopK(k=1)), z, layers=4)
    exact = cy.roles(cy.simulate(cy.PureAttention(), z, layers=4))
    found = cy.roles(run)
    np.testing.assert_array_equal(found.born, exact.born)
    assert [list(s) for s in found.followed(0)] == [list(s) for s in exact.followed(0)]
    two = cy.roles(cy.simulate(cy.PureAttention(outside.TopK(k=2)), z, layers=4))
    assert len(two.leaders) == 0 and all(len(s) == 2 for s in two.followed(0))
    near = cy.simulate(cy.PureAttention(cy.attention.Localmax(0.0)), z, layers=4)
    np.testing.assert_array_equal(cy.roles(near).born, exact.born)
    with pytest.raises(ValueError, match="follows sets"):
        cy.roles(cy.simulate(cy.PureAttention(cy.Softmax()), z, layers=2))


def test_a_label_belongs_to_one_statement() -> None:
    from cynosure.theorems import statement
    from cynosure.theorems.layers import LayerRun

    with pytest.raises(ValueError, match="B1 is one of cynosure"):
        statement(LayerRun, "B1", "", "")(lambda run: [])


def test_names_from_outside_are_refused_with_what_was_expected() -> None:
    known = cy.dynamics.DYNAMICS
    for word, said in [
        ("no_such", "no name of a LayerMap"),
        ("json:loads", "expected a LayerMap"),
        ("no_such_module:X", "no module no_such_module"),
        ("json:nothing", "json has no nothing"),
        ("a b:c", "expected module:Name"),
    ]:
        with pytest.raises((ValueError, TypeError), match=said), warnings.catch_warnings():
            known.named(word)
