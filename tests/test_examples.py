"""The scripts of examples/ run as a user runs them, and do what they say."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def run(name: str, folder: Path, *arguments: str) -> str:
    """What the script prints, started in an empty folder."""
    source = str(EXAMPLES.parent / "src")
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_there_are_five_short_scripts_and_the_list_names_them() -> None:
    listed = re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text("utf-8"))
    assert sorted(listed) == SCRIPTS and len(SCRIPTS) == 5
    for name in SCRIPTS:
        assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) <= 40, name


def test_who_leads(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("2,0\n0.2,1\n1.5,0.9\n0.1,0.1\n")
    said = run("who_leads", tmp_path, "tokens.csv")
    assert said.startswith("4 tokens, ") and "violated theorems: []" in said
    assert (tmp_path / "who_leads.png").read_bytes().startswith(b"\x89PNG")
    assert "</html>" in (tmp_path / "who_leads.html").read_text("utf-8")


def test_late_leader(tmp_path: Path) -> None:
    """As the description of golden case G1 says: 1/2 and 1, but neither 1/10 nor 2."""
    said = run("late_leader", tmp_path)
    layers = dict(re.findall(r"alpha = (\S+): first layer (\w+)", said))
    assert layers == {"1/10": "None", "1/2": "1", "1": "1", "2": "None"}
    found = re.findall(r"between alpha = ([\d.]+) and ([\d.]+)", said)
    (low, low_in), (high, high_in) = [tuple(map(float, pair)) for pair in found]
    assert 0.1 < low < low_in < 0.5 and 1 < high_in < high < 2


def test_compare_softmax(tmp_path: Path) -> None:
    """A sharper softmax never stays with hardmax for a shorter time here."""
    run("compare_softmax", tmp_path)
    with open(tmp_path / "compare_softmax.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    layers = [41 if layer == "" else int(layer) for _, layer in rows]
    assert (
        len(rows) == 13 and layers[0] < layers[-1] and (tmp_path / "compare_softmax.png").exists()
    )


def test_label_reviews(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("text\nsplendid fun\nawful\n", encoding="utf-8")
    kinds = [("good", "splendid fun", "great fun"), ("bad", "awful", "boring and awful")]
    with open(tmp_path / "train.csv", "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["text", "label"])
        out.writerows(
            (f"{text} number {i}", kind)
            for i in range(20)
            for kind, *texts in kinds
            for text in texts
        )
    run("label_reviews", tmp_path, "train.csv", "new.csv")
    with open(tmp_path / "labels.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["good", "bad"]
    assert "fun" in rows[0]["decided by"] and "awful" in rows[1]["decided by"]


@pytest.mark.skipif(importlib.util.find_spec("zarr") is None, reason="needs cynosure[scale]")
def test_sweep_leaders(tmp_path: Path) -> None:
    first = run("sweep_leaders", tmp_path)
    assert (tmp_path / "leaders.png").exists()
    assert run("sweep_leaders", tmp_path) == first, "the second run reads the store"
