"""What an experiment measured is kept: exactly, by its arguments, whole, and without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure

from cynosure import configurations
from cynosure.analysis.control.steering import control
from cynosure.analysis.limits import limit
from cynosure.cli import main
from cynosure.drawing.report import Picture, Report, Table
from cynosure.dynamics import PureAttention
from cynosure.figures import figure4
from cynosure.simulation.loop import simulate
from cynosure.study import Cell, keeping
from cynosure.study.frame import over_grid
from cynosure.study.measurements import _packed, _unpacked, forget, kept
from cynosure.theorems import check
from studies.hardmax import leader_count


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, types and dtypes included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return a.hex() == b.hex()
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dataclass_fields__"):
        return all(same(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)
    return bool(a == b)


def there_and_back(value: Any, folder: Path) -> Any:
    def give(what: Any) -> Any:
        return value

    give.__qualname__, give.__module__ = "give", "studies.hardmax"  # whose records it may keep
    with keeping(folder):
        assert kept(give, "x") is value
    value = None
    with keeping(folder) as store:
        found = kept(give, "x")
    assert len(store.reused) == 1 and store.made == []
    return found


VALUES = {
    "scalars": (
        None,
        True,
        3,
        10**40,
        0.1,
        -0.0,
        float("inf"),
        float("nan"),
        "é\n",
        Fraction(1, 3),
    ),
    "numpy scalars": [np.float32(0.1), np.int8(3), np.bool_(True), np.complex128(1 + 2j)],
    "arrays": (np.arange(6.0).reshape(2, 3)[:, ::2], np.array([], dtype=np.int32), np.array("S")),
    "nested": {("gaussian", 2): [(1, [np.eye(2)])], 0.5: {}, "": ()},
    "named tuple": leader_count.BirthCensus(2, 10, 0.5, 4, 4, 1, 9, (leader_count.Birth(1, True),)),
    "cell": Cell(n=1, runs=[Cell(rate=0.5)]),
    "parameters": figure4.QUICK,
    "limit": limit(PureAttention(alpha="1/2"), configurations.golden("G1")),
    "exact limit": limit(PureAttention(alpha="1/2"), configurations.golden_exact("G1"), exact=True),
    "impossible": control([[2.0, 0.0], [0.2, 1.0], [0.1, 0.1]], 2),
    "trajectory": simulate(PureAttention(alpha=0.5), configurations.golden("G2"), layers=5),
    "checks": tuple(check(simulate(PureAttention(), configurations.gaussian(9, 2), layers=4))),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_to_the_last_bit(name: str, tmp_path: Path) -> None:
    assert same(VALUES[name], there_and_back(VALUES[name], tmp_path))


def test_the_judge_of_values_sees_small_differences() -> None:
    assert not same((1.0, 2), (1.0, 2.0))
    assert not same([0.0], [-0.0])
    assert not same(np.zeros(2), np.zeros(2, dtype=np.float32))
    assert not same({1: 2, 3: 4}, {3: 4, 1: 2})


class Foreign(NamedTuple):
    x: int


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, SimpleNamespace(), Foreign(1), np.array([None]), b"bytes"]
)
def test_what_cannot_be_kept_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="kept: expected"):
        _packed(value)


def test_a_file_can_make_no_object_of_another_package() -> None:
    for name in (["os", "system"], ["cynosure.study.measurements", "forget"]):
        with pytest.raises(ValueError, match=r"package"):
            _unpacked({"of": name, "fields": [["command", "true"]]}, {})


# --- keys ----------------------------------------------------------------------------------------


def measure(p: Any, x: np.ndarray, told: Callable[[], None] | None = None) -> float:
    CALLS.append(p)
    return float(x.sum())


CALLS: list[Any] = []


def test_only_what_is_new_is_measured(tmp_path: Path) -> None:
    CALLS.clear()
    x, p = np.arange(3.0), figure4.QUICK
    assert kept(measure, p, x) == kept(measure, p, x) == 3.0
    assert len(CALLS) == 2 and list(tmp_path.iterdir()) == []  # nothing is kept without a folder
    with keeping(tmp_path) as store:
        for _ in range(2):
            assert kept(measure, p, x, told=lambda: None) == 3.0
        assert len(CALLS) == 3
        kept(measure, figure4.Params(), x)
        kept(measure, p, x.astype(np.float32))
        kept(measure, p, x[:2])
    assert len(CALLS) == 6 and len(store.made) == 4
    assert not store.reused  # what this run made itself was not there before
    with keeping(tmp_path) as store:
        for _ in range(2):
            kept(measure, p, x)
    assert len(CALLS) == 6 and len(store.reused) == 1 and not store.made
    forget(tmp_path)
    with keeping(tmp_path):
        kept(measure, p, x)
    assert len(CALLS) == 7


def test_another_version_measures_anew(tmp_path: Path, monkeypatch: Any) -> None:
    CALLS.clear()
    with keeping(tmp_path):
        kept(measure, 1, np.ones(2))
        monkeypatch.setattr("cynosure.study.measurements.__version__", "0.0.0")
        kept(measure, 1, np.ones(2))
    assert len(CALLS) == 2


@pytest.mark.parametrize("damage", [b"", b"no zip", None])
def test_a_damaged_file_is_measured_again(damage: bytes | None, tmp_path: Path) -> None:
    CALLS.clear()
    with keeping(tmp_path) as store:
        kept(measure, 1, np.ones(2))
        path = tmp_path / store.made[0]
        if damage is None:
            np.savez(path, tree=json.dumps({"of": ["os", "system"], "fields": []}))
        else:
            path.write_bytes(damage)
        assert kept(measure, 1, np.ones(2)) == 2.0
        assert kept(measure, 1, np.ones(2)) == 2.0
    assert len(CALLS) == 2


def test_a_function_without_a_name_has_no_key(tmp_path: Path) -> None:
    with keeping(tmp_path), pytest.raises(TypeError, match="name is its key"):
        kept(lambda: 1)


# --- the command line ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Params:
    cells: int = 9
    seed: int = 0


CELLS: list[int] = []
STOP_AT: list[int] = []


def cell(seed: int, k: int) -> np.ndarray:
    CELLS.append(k)
    if k in STOP_AT:
        raise KeyboardInterrupt
    return np.random.default_rng([seed, k]).standard_normal(3)


def run(p: Params, progress: Any = None) -> Report:
    z = np.array([kept(cell, p.seed, k) for k in range(p.cells)])
    figure = Figure(figsize=(2, 2), layout="constrained")
    figure.add_subplot().plot(z)
    table = Table("Cells", ("k", "mean"), tuple(enumerate(z.mean(axis=1))))
    return Report(
        "Tiny", f"{z.sum():.3f}", asdict(p), (table,), figures=(Picture("f", "", figure),)
    )


RUN = ["run", "tiny", "--out", "folder"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder of its own, and one experiment."""
    tiny = SimpleNamespace(TITLE="Tiny", Params=Params, QUICK=Params(3), run=run)
    monkeypatch.setattr("cynosure.catalogue.study", {"tiny": tiny}.__getitem__)
    monkeypatch.chdir(tmp_path)
    CELLS.clear()
    STOP_AT.clear()
    return tmp_path


def files(folder: str) -> dict[str, bytes]:
    """Everything a run leaves but what it measured."""
    paths = [p for p in Path(folder).rglob("*") if p.is_file() and p.parent.name != "measured"]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths}


def test_redraw_measures_nothing_and_leaves_the_same_bytes(here, capsys) -> None:
    assert main(RUN) == 0
    assert len(CELLS) == 9 and len(list(Path("folder/measured").iterdir())) == 9
    first = files("folder")
    assert len(first) == 5
    Path("folder/data/table1-cells.csv").unlink()
    capsys.readouterr()
    assert main([*RUN, "--redraw"]) == 0
    assert "9 of 9 measurements" in capsys.readouterr().err
    assert len(CELLS) == 9 and files("folder") == first
    assert main([*RUN, "--redraw", "--set", "seed=1"]) == 0
    assert len(CELLS) == 18 and files("folder") != first
    assert main([*RUN, "--force"]) == 0
    assert len(CELLS) == 27
    assert len(list(Path("folder/measured").iterdir())) == 9  # the other seed's are gone


def test_redraw_and_force_are_asked_for_and_exclude_each_other(here, capsys) -> None:
    assert main([*RUN, "--redraw"]) == 2
    assert "nothing measured is kept" in capsys.readouterr().err
    Path("folder").mkdir()
    Path("folder/report.html").write_text("precious")
    assert main(RUN) == 2
    assert "--force" in (said := capsys.readouterr().err) and "--redraw" in said
    assert main([*RUN, "--redraw", "--force"]) == 2
    assert "choose one" in capsys.readouterr().err
    assert Path("folder/report.html").read_text() == "precious" and CELLS == []


def test_an_interrupted_run_goes_on_where_it_was(here, capsys) -> None:
    STOP_AT.append(2)
    assert main(RUN) == 130
    assert not Path("folder/report.html").exists() and CELLS == [0, 1, 2]
    STOP_AT.clear()
    assert main(RUN) == 0
    assert CELLS == [0, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    assert "2 of 9 measurements" in capsys.readouterr().err
    assert main([*RUN[:-1], "whole"]) == 0
    went_on, whole = (json.loads(Path(f, "report.json").read_text()) for f in ("folder", "whole"))
    assert went_on.pop("command") != whole.pop("command") and went_on == whole


def _cell(p: str, d: int, alpha: float) -> tuple[int, np.ndarray]:
    return os.getpid(), np.random.default_rng([d, int(alpha * 8)]).normal(size=3)


def test_processes_measure_a_grid(tmp_path: Path) -> None:
    """What two processes keep is what one would, and what is there is not measured again."""
    axes = {"d": (1, 2, 3), "alpha": (0.5, 1.0)}
    told: list[float] = []
    with keeping(tmp_path, workers=2) as store:
        found = over_grid(_cell, "p", axes, lambda share, what: told.append(share))
        again = over_grid(_cell, "p", axes)
    assert told == [k / 6 for k in range(1, 7)]
    assert len(store.made) == 6 and not store.reused
    plain = over_grid(_cell, "p", axes)
    assert same([x for _, x in found], [x for _, x in plain]) and same(found, again)
    assert os.getpid() not in {pid for pid, _ in found} and {pid for pid, _ in plain} == {
        os.getpid()
    }
    with keeping(tmp_path, workers=2) as store:
        assert same(over_grid(_cell, "p", axes), found)
    assert store.made == [] and len(store.reused) == 6
