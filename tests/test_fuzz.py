"""A slice of the fuzzing that `make fuzz` does at length, and its judge judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.fuzz import outcomes  # noqa: E402
from tests.fuzz.outcomes import Case, outcome  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each case runs in a forked child")


MUTATED = {"model": 100, "run,table,tokens,archive,sweep": 120, "command": 50, "call": 70}
MUTATED |= {"bulk": 25}


def test_mutated_files_and_commands_work_or_are_refused(tmp_path: Path) -> None:
    """Each group of families in turn, in one process: what all of them import is half the time."""
    asked = [
        ["--families", families, "--count", str(count), "--seed", "1"]
        + ["--out", str(tmp_path / f"{count}.json")]
        for families, count in MUTATED.items()
    ]
    code = "import sys\nfrom tests.fuzz.__main__ import main\n"
    code += f"for sys.argv[1:] in {asked!r}:\n    assert main() == 0, sys.argv"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    for families, count in MUTATED.items():
        assert f"of {count}" in done.stdout
        told = json.loads((tmp_path / f"{count}.json").read_text())
        assert told["cases"] == told["next"] == count and not told["findings"], families


def test_public_functions_answer_or_name_the_argument() -> None:
    words = ["-m", "tests.fuzz.signatures", "--count", "150", "--seed", "1"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "150 calls of" in done.stdout


def test_a_raw_exception_is_a_finding() -> None:
    for source, kind in (("3 + 4", "ok"), ("int('x')", "traceback"), ("{}['x']", "traceback")):
        assert (
            outcomes.act(Case("", source, lambda source=source: eval(source) and None))[0] == kind
        )


def test_a_run_that_is_stopped_tells_where_to_go_on(tmp_path: Path) -> None:
    words = ["-m", "tests.fuzz", "--families", "tokens", "--count", "100000", "--first", "7"]
    words += ["--out", str(tmp_path / "fuzz.json")]
    code = "import sys, tests.fuzz.__main__ as m; m.OFTEN = 0; m.warm = lambda: None\n"
    code += "m.FAMILIES['tokens'] = lambda *_: m.Case('tokens', '', lambda: None)\n"
    code += f"sys.argv[1:] = {words[2:]!r}; sys.exit(m.main())"
    running = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    for line in running.stdout:
        if "ok 60 " in line:
            running.send_signal(signal.SIGTERM)
            break
    rest = running.communicate(timeout=60)[0]
    told = json.loads((tmp_path / "fuzz.json").read_text())
    assert told["outcomes"]["ok"] == told["cases"] == told["next"] - 7 >= 60
    assert f"--first {told['next']} " in rest and running.returncode == 1


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # any will do, and this one leaves no long message


def _bug() -> None:
    {}["missing"]


def _foreign() -> None:
    float("x")


def _exits() -> int:
    print("cynosure: error: x (KeyError; --debug shows where)", file=sys.stderr)
    return 1


def _spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda: None, "ok"),
        (_crash, "signal"),
        (_bug, "traceback"),
        (_foreign, "traceback"),
        (_exits, "traceback"),
        (_spin, "slow"),
        (lambda: bytearray(b"x" * 300_000_000) and None, "fat"),
    ],
)
def test_the_judge_tells_the_outcomes_apart(monkeypatch, act, kind: str) -> None:
    monkeypatch.setattr(outcomes, "SECONDS", 1)
    base = outcome(Case("", "", lambda: None)).megabytes
    monkeypatch.setattr(outcomes, "MEGABYTES", base + 100)
    assert outcome(Case("", "", act)).kind == kind


def test_what_neither_ends_nor_computes_is_slow(monkeypatch) -> None:
    monkeypatch.setattr(outcomes, "SILENCE", 1)
    told = outcome(Case("", "", lambda: time.sleep(60)))
    assert told.kind == "slow" and told.said == "silent for 1 s"


def test_waiting_for_a_busy_machine_is_not_slow(monkeypatch) -> None:
    monkeypatch.setattr(outcomes, "SECONDS", 0.5)
    assert outcome(Case("", "", lambda: time.sleep(0.8))).kind == "ok"
    (told,) = outcomes.together([Case("", "", lambda: time.sleep(0.8))])
    assert told is not None and told.kind == "ok"


def test_what_the_package_refuses_is_told_from_what_it_trips_over() -> None:
    import cynosure as cy

    assert outcome(Case("", "", lambda: cy.load("no such file") and None)).kind == "refused"


# --- what it found, each on its own --------------------------------------------------------------

MAGNITUDES = """
import sys, numpy as np, cynosure as cy
signs = np.sign(np.random.default_rng(0).normal(size=(5, 7, 3)))
for size in (5e-324, 1e-310, 1e-160, 1e200, 1e300):
    run = cy.simulate(cy.PureAttention(), signs * size, layers=3)
    for b in range(5):
        alone = cy.simulate(cy.PureAttention(), signs[b] * size, layers=3)
        assert (run.select(b).z == alone.z).all(), size
"""


def test_a_batch_of_any_magnitude_stays_inside_its_arrays() -> None:
    """Norms below 1e-308 made a bucket's number overflow: memory was written out of bounds."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", MAGNITUDES], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_model_of_a_billion_layers_is_neither_saved_nor_loaded(tmp_path: Path) -> None:
    import numpy as np

    from cynosure.classifier.model.model import Model, save_files
    from cynosure.classifier.model.plane import Plane
    from cynosure.classifier.text.vocabulary import Vocabulary

    vocabulary, _ = Vocabulary.build(["good film"], min_df=1)
    one = np.ones(1)
    plane = Plane(np.ones((len(vocabulary), 2)), np.ones(2), np.ones((1, 2)), one, one)
    with pytest.raises(ValueError, match="at most 100000"):
        save_files(tmp_path / "model", Model((plane,), layers=10**9), vocabulary, {})
    assert list(tmp_path.iterdir()) == []
