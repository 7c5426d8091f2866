"""Sweeps: a plain loop to the bit, whatever computes them and whoever is killed meanwhile."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("xarray")
pytest.importorskip("zarr")

import cynosure as cy
import phase_diagram
import sweep_cells as cells
from cynosure.cli import main
from cynosure.sweeps import running, store
from cynosure.sweeps.cells import emergent_leaders, leaders, long_context, sphere_met
from cynosure.sweeps.plan import DONE, FAILED, WAITING, Plan, block_shape
from cynosure.sweeps.spec import asked_for, named
from fuzz.families import edited

GRID = {"beta": [0.0, 0.25, 0.5, 1.0], "d": [2, 3, 5]}
SEEDS = range(4)


def loop(cell: Callable[..., Any], grid: dict[str, Any], seeds: Any = SEEDS, **fixed: Any) -> dict:
    """The oracle: for loops, and nothing of the package."""
    out: dict[str, list[Any]] = {}
    for values in product(*grid.values()):
        for s in seeds:
            for name, x in cell(**dict(zip(grid, values)), seed=s, **fixed).items():
                out.setdefault(name, []).append(np.asarray(x[1] if isinstance(x, tuple) else x))
    shape = (*map(len, grid.values()), len(seeds))
    return {name: np.stack(x).reshape(*shape, *x[0].shape) for name, x in out.items()}


def is_loop(data: Any, want: dict[str, np.ndarray]) -> bool:
    """Whether every array is that of the loop, to the bit, and every cell done."""
    if not (data["status"].values == DONE).all() or set(data.data_vars) | {"t"} != (
        {"status", "error", "t"} | set(want)
    ):
        return False
    for name, x in want.items():
        got = data[name].values
        x = x[(0,) * (x.ndim - 1)] if name == "t" else x
        if got.dtype != x.dtype or got.shape != x.shape or got.tobytes() != x.tobytes():
            return False
    return True


@pytest.fixture(scope="module")
def want() -> dict[str, np.ndarray]:
    return loop(cells.plain, GRID)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of at most three cells, whatever the time; few are computed beforehand."""
    monkeypatch.setattr(running, "MOST_CELLS", 3)
    monkeypatch.setattr(running, "TRIED", 3)


# --- the result ----------------------------------------------------------------------------------


def test_the_judge_sees_one_bit(want: dict[str, np.ndarray]) -> None:
    data = cy.sweep(cells.plain, GRID, SEEDS)
    assert is_loop(data, want)
    x = want["mean"].copy()
    x.view(np.uint64)[0, 0, 1] ^= 1
    assert not is_loop(data, {**want, "mean": x})
    assert not is_loop(data.drop_vars("wave"), want)


@pytest.mark.parametrize("how", [{}, {"workers": 2}])
def test_a_sweep_is_a_loop(tmp_path: Path, want: dict, small: None, how: dict[str, Any]) -> None:
    told: list[tuple[float, str]] = []
    data = cy.sweep(
        cells.plain,
        GRID,
        SEEDS,
        store=tmp_path / "s.zarr",
        progress=lambda *x: told.append(x),
        **how,
    )
    assert is_loop(data, want) and is_loop(cy.open_sweep(tmp_path / "s.zarr"), want)
    assert told[-1] == (1.0, "block 24 of 24") and len(told) == 24
    assert data["curve"].dims == ("beta", "d", "seed", "t")
    assert data["table"].dims == ("beta", "d", "seed", "table_0", "table_1")
    assert data["mean"].sel(beta=0.25, d=3, seed=2).item() == want["mean"][1, 1, 2]
    assert data.attrs["cell"] == "sweep_cells:plain"
    assert data["status"].attrs["flag_meanings"].split()[FAILED] == "failed"


def test_all_seeds_at_once(tmp_path: Path, want: dict, small: None) -> None:
    data = cy.sweep(cells.batched, GRID, SEEDS, vectorized=True, store=tmp_path / "s.zarr")
    assert data["status"].dims == ("beta", "d") and is_loop(data, want)
    with pytest.raises(ValueError, match="seeds=range"):
        cy.sweep(cells.batched, GRID, vectorized=True)
    with pytest.raises(ValueError, match="each of 4 seeds first"):
        cy.sweep(lambda beta, seed: {"x": 1.0}, {"beta": [1, 2]}, SEEDS, vectorized=True)


def test_no_seeds_texts_truths_and_fixed_values(tmp_path: Path) -> None:
    grid = {"norm": ["pre", "after all"], "on": [True, False]}
    for where in (None, tmp_path / "s.zarr"):
        data = cy.sweep(cells.text_axis, grid, store=where)
        assert data["x"].values.tolist() == [[4, 3], [10, 9]]
        assert data["x"].sel(norm="after all", on=True).item() == 10
    data = cy.sweep(cells.text_axis, {"norm": "pre", "on": [True, False]})
    assert data["x"].values.tolist() == [4, 3] and data["norm"].item() == "pre"
    assert cy.sweep(cells.text_axis, grid, store=tmp_path / "s.zarr").sizes == {"norm": 2, "on": 2}


def test_units_are_told_by_the_dataset_and_its_plots(tmp_path: Path, want: dict) -> None:
    units = {"beta": "1/kT", "seed": "draw", "t": "s", "mean": "m", "curve": "m/s"}
    for where in (None, tmp_path / "s.zarr"):
        data = cy.sweep(cells.plain, GRID, SEEDS, store=where, units=units)
        assert {name: data[name].attrs["units"] for name in units} == units
        assert "units" not in data["count"].attrs and is_loop(data, want)
    line = cy.open_sweep(tmp_path / "s.zarr")["curve"].isel(beta=1, d=0, seed=0).plot()[0]
    assert line.axes.get_xlabel() == "t [s]" and "curve [m/s]" in line.axes.get_ylabel()
    line.figure.clear()
    # words, which belong to no number: a new one is written over the old one, the others stay
    asked = {"store": tmp_path / "s.zarr", "units": {"mean": "km", "count": "pieces"}}
    assert is_loop(cy.sweep(cells.plain, GRID, SEEDS, **asked), want)
    after = cy.open_sweep(tmp_path / "s.zarr")
    assert [after[x].attrs["units"] for x in ("mean", "count", "t")] == ["km", "pieces", "s"]
    for wrong, message in (
        ({"meen": "m"}, "'meen' is none of"),
        ("m", "expected"),
        ({"t": 1}, "expected"),
    ):
        for where in (None, tmp_path / "s.zarr"):
            with pytest.raises((ValueError, TypeError), match=f"units: {message}"):
                cy.sweep(cells.plain, GRID, SEEDS, store=where, units=wrong)
    fixed = {"norm": "pre", "on": [True, False]}
    for where in (None, tmp_path / "f.zarr"):
        data = cy.sweep(cells.text_axis, fixed, store=where, units={"norm": "kind"})
        assert data["norm"].attrs == {"units": "kind"}


def test_nan_and_nothing_are_kept_apart(tmp_path: Path) -> None:
    """A block of NaN is written, sign included; it is not a block that is missing."""
    grid = {"beta": [0.0, 1.0]}
    here = cy.sweep(cells.slow_start, grid)
    there = cy.sweep(cells.slow_start, grid, store=tmp_path / "s.zarr")
    assert np.signbit(here["y"].values).all()
    assert here["y"].values.tobytes() == there["y"].values.tobytes()
    assert here["x"].values.tobytes() == there["x"].values.tobytes()


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 400))
def test_blocks_are_runs_of_neighbouring_cells(shape: list[int], most: int) -> None:
    plan = Plan(cells.plain, {str(k): np.arange(n) for k, n in enumerate(shape)}, {})
    outputs = running.Outputs({}, {})
    made = store.make(None, plan, outputs, block_shape(tuple(shape), most))
    numbers = np.arange(plan.size).reshape(shape)
    runs = [numbers[made.place(k)].ravel() for k in range(made.blocks)]
    assert all(len(run) <= most and (np.diff(run) == 1).all() for run in runs)
    assert np.concatenate(runs).tolist() == list(range(plan.size))
    assert made.blocks <= 2 * -(-plan.size // most) * (1 if len(shape) == 1 else 4)


def test_blocks_are_as_long_as_a_task_should_be() -> None:
    plan = Plan.of(cells.plain, GRID, SEEDS, False)
    outputs, known, _ = running._sampled(plan)
    sizes = [running._cells(plan, outputs, seconds) for seconds in (1e-3, 0.1, 3.0, 0.0)]
    assert sizes == [500, 5, 1, running.MOST_CELLS]
    assert list(running._spread(5)) == [0, 4, 2, 1, 3] and list(running._spread(1)) == [0]
    assert set(known) <= set(running._spread(plan.size)) and 0 in known


# --- cells that fail -----------------------------------------------------------------------------

some_fail = pytest.mark.filterwarnings("ignore:.* cells failed, the first at")


def test_a_sweep_says_that_cells_failed() -> None:
    grid = {"beta": [0.5, 1.0], "d": [2, 3], "mended": "no such file"}
    with pytest.warns(UserWarning, match=r"8 of 16 cells failed, the first at beta = 0.5, d = 3, "):
        cy.sweep(cells.failing, grid, SEEDS)


@some_fail
def test_a_cell_that_fails_stops_nothing(tmp_path: Path, small: None) -> None:
    mended = tmp_path / "mended"
    grid = {"beta": [0.5, 1.0], "d": [2, 3, 5], "mended": str(mended)}
    for where in (None, tmp_path / "s.zarr"):
        data = cy.sweep(cells.failing, grid, SEEDS, store=where)
        failed = (data["status"] == FAILED).values
        assert failed[:, 1].all() and failed.sum() == 8
        assert np.isnan(data["x"].values[failed]).all() and (data["n"].values[failed] == 0).all()
        assert data["x"].sel(beta=1.0, d=5).values.tolist() == [0.0, 1.0, 2.0, 3.0]
        messages = data["error"].sel(d=3, beta=0.5).values.tolist()
        assert messages[0] == "ValueError: no d = 3 at é  "
        assert len(messages[1]) == 500 and messages[1].endswith("x ...")
        assert (data["error"].values[~failed] == "").all()
    asked = {"store": tmp_path / "s.zarr"}
    assert (
        (cy.sweep(cells.failing, grid, SEEDS, **asked)["status"] == FAILED).values == failed
    ).all()
    mended.write_text("")
    data = cy.sweep(cells.failing, grid, SEEDS, **asked)
    assert ((data["status"] == FAILED).values == failed).all()  # not tried unless asked
    data = cy.sweep(cells.failing, grid, SEEDS, retry_failed=True, **asked)
    assert (data["status"] == DONE).all() and (data["error"].values == "").all()
    want = loop(cells.failing, {k: grid[k] for k in ("beta", "d")}, mended=str(mended))
    assert is_loop(data, want)


@some_fail
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("shape", "expected shape"),
        ("type", "expected float64 as in the first cell, got complex128"),
        ("name", "expected"),
        ("text", "expected numbers"),
        ("dims", "over"),
        ("coordinate", "same values in every cell"),
        ("exit", "SystemExit: 3"),
    ],
)
def test_a_cell_that_gives_something_else_has_failed(what: str, message: str) -> None:
    data = cy.sweep(cells.changing, {"beta": [0.0, 1.0], "what": what})
    assert data["status"].values.tolist() == [DONE, FAILED]
    assert message in data["error"].values[1] and data["x"].values[0].tolist() == [1.0]


def test_nothing_can_be_computed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"beta = 0\.5, d = 3, seed = 0: ValueError: no d = 3"):
        cy.sweep(cells.failing, {"beta": [0.5, 1.0], "d": [3]}, SEEDS, store=tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"grid": {}}, "grid"),
        ({"grid": {"beta": []}}, "at least one"),
        ({"grid": {"beta": [1.0, 1.0]}}, "twice"),
        ({"grid": {"beta": [1.0, "a"]}}, "one kind"),
        ({"grid": {"beta": [1.0, float("nan")]}}, "numbers or texts"),
        ({"grid": {"seed": [1]}}, "rename"),
        ({"grid": {"b-c": [1]}}, "rename"),
        ({"grid": {"gamma": [1]}}, "called with gamma"),
        ({"grid": {"beta": 1.0, "d": 2}, "seeds": None}, "several values"),
        ({"seeds": [0.5]}, "whole numbers"),
        ({"workers": 0}, "workers"),
        ({"workers": 2, "client": object()}, "choose one"),
        ({"cell": 3}, "function"),
    ],
)
def test_what_cannot_be_swept_is_said(asked: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        cy.sweep(**{"cell": cells.plain, "grid": GRID, "seeds": SEEDS} | asked)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (lambda beta: 3, "expected a dict"),
        (lambda beta: {}, "a number or an array"),
        (lambda beta: {"beta": 1}, "takes a name"),
        (lambda beta: {"x": ("seed", [1])}, "takes a name"),
        (lambda beta: {"x": (("a", "b"), [1])}, "names of dimensions"),
        (lambda beta: {"x": ("k", [1]), "y": ("k", [1, 2])}, "two lengths"),
    ],
)
def test_what_no_cell_may_give(cell: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cy.sweep(cell, {"beta": [0, 1]})


# --- the store -----------------------------------------------------------------------------------


def test_a_store_of_another_sweep_is_refused(tmp_path: Path, monkeypatch) -> None:
    where = tmp_path / "s.zarr"
    cy.sweep(cells.plain, GRID, SEEDS, store=where)
    before = {path: path.read_bytes() for path in where.rglob("*") if path.is_file()}

    def refused(*asked: Any, **how: Any) -> str:
        with pytest.raises(ValueError, match="another sweep") as caught:
            cy.sweep(*asked, store=where, **how)
        assert f"cy.open_sweep({str(where)!r})" in str(caught.value)
        return str(caught.value)

    assert "d: 3 values 2, 3, 5 there, 2" in refused(cells.plain, {**GRID, "d": [2, 3]}, SEEDS)
    assert "axes" in refused(cells.plain, {"d": [2], "beta": [1.0]}, SEEDS)
    assert "seed: 4 values" in refused(cells.plain, GRID, range(5))
    assert "sweep_cells:failing" in refused(cells.failing, GRID, SEEDS)
    assert "vectorized" in refused(cells.batched, GRID, SEEDS, vectorized=True)
    with monkeypatch.context() as patch:
        patch.setattr(cells, "SCALE", 3.0)
        assert "'SCALE = 2.0' is now 'SCALE = 3.0'" in refused(cells.plain, GRID, SEEDS)
    with monkeypatch.context() as patch:
        patch.setattr("cynosure.sweeps.plan.__version__", "9.9")
        assert "made with cynosure" in refused(cells.plain, GRID, SEEDS)
    after = {path: path.read_bytes() for path in where.rglob("*") if path.is_file()}
    assert after == before and is_loop(cy.open_sweep(where), loop(cells.plain, GRID))


def test_comments_and_layout_do_not_count(tmp_path: Path, monkeypatch) -> None:
    """The function is read from its file: what it computes is compared, not how it is written."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "def half(x):\n    return x / 2\n\ndef cell(x):\n    return {'y': half(x)}\n"
    where = tmp_path / "s.zarr"

    def written(text: str) -> Any:
        (tmp_path / "edited_cell.py").write_text(text)
        sys.modules.pop("edited_cell", None)
        import linecache

        linecache.clearcache()
        sys.dont_write_bytecode, old = True, sys.dont_write_bytecode
        try:
            import edited_cell
        finally:
            sys.dont_write_bytecode = old
        return cy.sweep(edited_cell.cell, {"x": [1.0, 2.0]}, store=where)

    written(text)
    written("# why\n\n" + text.replace("x / 2", "x/2  # half"))
    with pytest.raises(ValueError, match=r"'return x / 2' is now 'return x / 3'"):
        written(text.replace("x / 2", "x / 3"))
    monkeypatch.delitem(sys.modules, "edited_cell")


def test_a_function_without_a_name_has_no_store(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no name of its own"):
        cy.sweep(lambda x: {"y": x}, {"x": [1, 2]}, store=tmp_path / "s.zarr")
    assert cy.sweep(lambda x: {"y": x}, {"x": [1, 2]})["y"].values.tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["file", "folder", "zarr", "newer"])
def test_what_is_no_store_of_ours_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    where = tmp_path / "s.zarr"
    if kind == "file":
        where.write_text("precious")
    else:
        where.mkdir()
        about: dict = {"format": "cynosure-sweep", "version": 99} if kind == "newer" else {}
        name = "thesis.tex" if kind == "folder" else "zarr.json"
        (where / name).write_text(json.dumps({"attributes": about}))
    content = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    message = "newer cynosure" if kind == "newer" else "no store of a sweep"
    for call in (
        lambda: cy.sweep(cells.plain, GRID, SEEDS, store=where),
        lambda: cy.open_sweep(where),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == content
    with pytest.raises(FileNotFoundError):
        cy.open_sweep(tmp_path / "nowhere")


def test_an_edited_header_is_refused(tmp_path: Path) -> None:
    """Parts of it replaced, dropped or repeated: a ValueError, or as it was."""
    where, grid, refused = tmp_path / "s.zarr", {"norm": ["pre", "post"], "on": [True, False]}, 0
    cy.sweep(cells.text_axis, grid, store=where)
    for file in (where / "zarr.json", where / "x" / "zarr.json", where / "norm" / "zarr.json"):
        good = file.read_bytes()
        for seed in range(60):
            file.write_text(json.dumps(edited(random.Random(seed), json.loads(good))))
            try:
                data = cy.open_sweep(where)
                cy.sweep(
                    cells.text_axis, {"norm": ["pre", "post"], "on": [True, False]}, store=where
                )
                assert data["x"].shape == (2, 2)
            except ValueError as error:
                refused += 1
                assert str(where) in str(error)
        file.write_bytes(good)
    assert refused > 100


def test_an_empty_folder_can_be_the_store(tmp_path: Path, want: dict) -> None:
    assert is_loop(cy.sweep(cells.plain, GRID, SEEDS, store=tmp_path), want)


def lose(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-6])


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-6] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [lose, cut, change])
@pytest.mark.parametrize("name", ["mean", "curve", "status"])
def test_damaged_blocks_count_as_waiting_and_are_computed_again(
    tmp_path: Path, want: dict, capsys, name: str, damage: Callable[[Path], None]
) -> None:
    from cynosure.cli import main

    store = tmp_path / "s.zarr"
    cy.sweep(cells.plain, GRID, SEEDS, store=store)
    chunk = sorted((store / name).glob("c.*"))[0]
    damage(chunk)
    said = rf"s\.zarr: {name}/{chunk.name}\b.* missing or damaged"
    quiet = (name, damage) == ("status", lose)  # as a block that was never written
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seen = cy.open_sweep(store)
    assert quiet or re.search(said, str(told[0].message))
    done = seen["status"].values == DONE
    assert not done.all() and set(np.unique(seen["status"])) <= {WAITING, DONE}
    assert main(["sweep", "--status", "--store", str(store)]) == 0
    heard = capsys.readouterr()
    assert f"{(~done).sum()} waiting" in heard.out
    assert quiet or (heard.err.count("\n") == 1 and re.search(said, heard.err))
    with nullcontext() if quiet else pytest.warns(UserWarning, match=said):
        again = cy.sweep(cells.plain, GRID, SEEDS, store=store)
    assert is_loop(again, want)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_loop(cy.open_sweep(store), want)


@some_fail
def test_a_lost_message_of_a_failed_cell_is_damage(tmp_path: Path) -> None:
    asked = (cells.failing, {"beta": [0.5, 1.0], "d": [2, 3, 5]}, SEEDS)
    before = cy.sweep(*asked, store=tmp_path / "s.zarr").load()
    assert (before["status"] == FAILED).any()
    for file in (tmp_path / "s.zarr" / "error").glob("c.*"):
        file.unlink()
    with pytest.warns(UserWarning, match="error/c"):
        assert cy.sweep(*asked, store=tmp_path / "s.zarr").equals(before)


@pytest.mark.parametrize("name", ["mean", "status", "beta", "t"])
def test_arrays_that_grew_are_neither_filled_nor_read(tmp_path: Path, name: str) -> None:
    store = tmp_path / "s.zarr"
    cy.sweep(cells.plain, GRID, SEEDS, store=store)
    (next((store / "status").glob("c.*"))).unlink()  # all cells wait again
    about = json.loads((store / name / "zarr.json").read_text())
    about["shape"][-1] = 2**63 - 1
    (store / name / "zarr.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=rf"s\.zarr: is damaged \({name}: expected"):
        cy.sweep(cells.plain, GRID, SEEDS, store=store)


def test_whole_numbers_beyond_64_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="a: a whole number is too large"):
        cy.sweep(cells.plain, {"a": [1, 2**70]})


def test_axes_of_texts_and_of_objects_are_told_in_a_refusal() -> None:
    from cynosure.sweeps.store import _values

    for kind in (object, np.int64, np.dtypes.StringDType()):
        assert _values(np.arange(6).astype(kind)) == "6 values 0, 1, 2, ..., 5"


# --- killed, interrupted -------------------------------------------------------------------------


def in_child(work: Callable[[], Any]) -> int:
    """Its pid; the forked child ends with 0 when the work is done."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def dying(at: int) -> None:
    """From here on the at-th file put in place, or on its way there, is this process's last."""
    left, real = [at], os.replace

    def replace(a: Any, b: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            if random.random() < 0.5:
                real(a, b)
            os.kill(os.getpid(), signal.SIGKILL)
        real(a, b)

    os.replace = replace  # type: ignore[assignment]


def killed_again_and_again(tmp_path: Path, kills: int, seed: int) -> None:
    rng, done = random.Random(seed), 0
    where, log = tmp_path / "s.zarr", tmp_path / "log"
    want = loop(cells.plain, GRID)
    while done < kills:
        if where.exists() and (cy.open_sweep(where)["status"] == DONE).all():
            where.rename(tmp_path / f"done-{done}")  # a new one
        asked = {"store": where, "progress": None}
        at, state = rng.randrange(60), rng.random()

        def driver(at: int = at, state: float = state) -> None:
            random.seed(state)
            dying(at)
            cy.sweep(cells.counted, {**GRID, "log": str(log)}, SEEDS, **asked)  # noqa: B023

        ended = os.waitstatus_to_exitcode(os.waitpid(in_child(driver), 0)[1])
        assert ended in (0, -signal.SIGKILL)
        done += ended != 0
        if where.exists():  # what is done is right, at any moment
            seen = cy.open_sweep(where)
            right = seen["status"].values == DONE
            assert seen["mean"].values[right].tobytes() == want["mean"][right].tobytes()
    data = cy.sweep(cells.counted, {**GRID, "log": str(log)}, SEEDS, store=where)
    assert is_loop(data, want)
    assert not list(tmp_path.rglob(".cynosure-*"))  # nothing is left lying about
    for old in tmp_path.glob("done-*"):
        assert is_loop(cy.open_sweep(old), want)


@pytest.mark.many
def test_a_driver_killed_ten_times(tmp_path: Path, small: None) -> None:
    killed_again_and_again(tmp_path, 10, seed=0)


@pytest.mark.slow
@pytest.mark.many
def test_a_driver_killed_a_hundred_times(tmp_path: Path, small: None) -> None:
    killed_again_and_again(tmp_path, 100, seed=1)


def test_a_kill_loses_no_finished_block(tmp_path: Path, small: None) -> None:
    """Killed from outside while it sleeps in a cell: the calls made twice are those in flight."""
    where, log = tmp_path / "s.zarr", tmp_path / "log"
    asked = (cells.counted, {**GRID, "log": str(log), "pause": 0.02}, SEEDS)
    child = in_child(lambda: cy.sweep(*asked, store=where))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if where.exists() and (cy.open_sweep(where)["status"] == DONE).sum() > 8:
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    kept = int((cy.open_sweep(where)["status"] == DONE).sum())
    before = len(log.read_text().splitlines())
    assert kept > 8
    assert is_loop(cy.sweep(*asked, store=where), loop(cells.plain, GRID))
    assert len(log.read_text().splitlines()) - before == 48 - kept


def test_a_full_disk_is_said_with_how_to_go_on(
    tmp_path: Path, monkeypatch, want: dict, small: None
) -> None:
    """The store is named, not the temporary file that could not be written."""
    where, real, left = tmp_path / "s.zarr", os.fsync, [40]

    def full(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space.*of 48 cells are in .*start the same again"):
            cy.sweep(cells.plain, GRID, SEEDS, store=where)
        with pytest.raises(OSError, match=r"No space.*the store cannot be made.*'.*t\.zarr'"):
            cy.sweep(cells.plain, GRID, SEEDS, store=tmp_path / "t.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]
    assert is_loop(cy.sweep(cells.plain, GRID, SEEDS, store=where), want)


def test_two_drivers_on_one_store(tmp_path: Path, want: dict, small: None) -> None:
    """They do some work twice, and the store is as if there had been one."""
    where, log = tmp_path / "s.zarr", tmp_path / "log"
    asked = (cells.counted, {**GRID, "log": str(log), "pause": 0.002}, SEEDS)
    child = in_child(lambda: cy.sweep(*asked, store=where))
    here = cy.sweep(*asked, store=where)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_loop(here, want) and is_loop(cy.open_sweep(where), want)
    assert len({line.split()[0] for line in log.read_text().splitlines()}) == 2
    assert not list(tmp_path.rglob(".cynosure-*"))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As on a terminal: jobs in the background of a shell ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("small", "interruptible")
def test_interrupted_it_says_how_to_go_on(tmp_path: Path, want: dict) -> None:
    def stop(share: float, what: str) -> None:
        if what.startswith("block 5 "):
            signal.raise_signal(signal.SIGINT)

    where = tmp_path / "s.zarr"
    with pytest.raises(
        KeyboardInterrupt, match=r"of 48 cells are in .*s\.zarr; start the same again"
    ):
        cy.sweep(cells.plain, GRID, SEEDS, store=where, progress=stop)
    assert (cy.open_sweep(where)["status"] == DONE).sum() >= 10
    assert is_loop(cy.sweep(cells.plain, GRID, SEEDS, store=where), want)
    with pytest.raises(KeyboardInterrupt, match=r"are lost; with store="):
        cy.sweep(cells.plain, GRID, SEEDS, progress=stop)


def test_a_process_that_dies_is_replaced(tmp_path: Path, want: dict, small: None) -> None:
    log, shot = tmp_path / "log", []

    def shoot(share: float, what: str) -> None:
        workers = {int(line.split()[0]) for line in log.read_text().splitlines()} - {os.getpid()}
        if not shot and len(workers) > 1:
            shot.append(workers.pop())
            os.kill(shot[0], signal.SIGKILL)

    grid = {**GRID, "log": str(log), "pause": 0.02}
    data = cy.sweep(
        cells.counted, grid, SEEDS, store=tmp_path / "s.zarr", workers=2, progress=shoot
    )
    assert shot and is_loop(data, want)


def test_a_cell_that_kills_its_process_ends_the_sweep_with_a_word(tmp_path: Path, small) -> None:
    log = tmp_path / "pid"
    log.write_text(str(os.getpid()))
    grid = {"beta": list(range(12)), "log": str(log)}
    said = r"1 of 4 blocks.*at beta = \d: it killed the process.*start the same again"
    with pytest.raises(RuntimeError, match=said):
        cy.sweep(cells.dies, grid, store=tmp_path / "s.zarr", workers=2)
    state = cy.open_sweep(tmp_path / "s.zarr")["status"].values
    assert state[5] == WAITING and (state == DONE).sum() >= 9  # all but its block of three


# --- a cluster -----------------------------------------------------------------------------------


def test_a_cluster_with_a_worker_killed(cluster, tmp_path: Path, want: dict, small: None) -> None:
    from distributed import Client

    log, shot = tmp_path / "log", []

    def shoot(share: float, what: str) -> None:
        if not shot and share > 0.2:
            shot.append(next(iter(client.run(os.getpid).values())))
            os.kill(shot[0], signal.SIGKILL)

    grid = {**GRID, "log": str(log), "pause": 0.03}
    with Client(cluster, set_as_default=False) as client:
        data = cy.sweep(
            cells.counted, grid, SEEDS, store=tmp_path / "s.zarr", client=client, progress=shoot
        )
        assert is_loop(data, want) and shot
        used = {int(line.split()[0]) for line in log.read_text().splitlines()} - {os.getpid()}
        assert shot[0] in used and len(used) >= 2
        assert is_loop(cy.sweep(cells.plain, GRID, SEEDS, client=client), want)


def test_the_command_on_a_cluster(cluster, tmp_path: Path, want: dict, capsys) -> None:
    spec = tmp_path / "s.toml"
    grid = "\n".join(f"{name} = {values}" for name, values in GRID.items())
    spec.write_text(f'cell = "sweep_cells:plain"\nseeds = 4\n[grid]\n{grid}\n')
    where, address = str(tmp_path / "s.zarr"), cluster.scheduler_address
    assert main(["sweep", str(spec), "--store", where, "--scheduler", address]) == 0
    assert "48 cells, 48 done" in capsys.readouterr().out and is_loop(cy.open_sweep(where), want)


def test_a_cluster_without_workers_is_not_waited_for(tmp_path: Path, monkeypatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("cynosure.sweeps.engines.REFRESH", 0.1)
    monkeypatch.setattr("cynosure.sweeps.engines.SILENCE", 0.5)
    how = {"processes": True, "dashboard_address": ":0", "host": "127.0.0.1"}
    with (
        distributed.LocalCluster(n_workers=0, **how) as empty,
        distributed.Client(empty, set_as_default=False) as client,
        pytest.raises(RuntimeError, match=r"no worker for 0.5 s.*start the same again"),
    ):
        cy.sweep(cells.plain, GRID, SEEDS, store=tmp_path / "s.zarr", client=client)


@pytest.mark.skipif(os.name != "posix", reason="kills by signals")
def test_a_scheduler_killed(tmp_path: Path, want: dict, small: None) -> None:
    """`dask scheduler` and `dask worker` as one starts them; the driver says how far it came."""
    distributed = pytest.importorskip("distributed")
    file = str(tmp_path / "scheduler.json")
    path = os.pathsep.join(filter(os.path.isdir, sys.path))
    common = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
    common += ["--port", "0", "--no-dashboard", "--scheduler-file", file]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file]
    worker += ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "20"]
    how = {"env": {**os.environ, "PYTHONPATH": path}, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(words, **how) for words in (common, worker)]

    def shoot(share: float, what: str) -> None:
        if share > 0.2:
            started[0].kill()

    where = tmp_path / "s.zarr"
    try:
        until = time.monotonic() + 60
        while not os.path.exists(file) and time.monotonic() < until:
            time.sleep(0.05)
        with distributed.Client(scheduler_file=file, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(RuntimeError, match=r"the cluster gave up.*start the same again"):
                cy.sweep(cells.plain, GRID, SEEDS, store=where, client=client, progress=shoot)
    finally:
        for process in started:
            process.kill()
            process.wait()
    kept = int((cy.open_sweep(where)["status"] == DONE).sum())
    assert 9 <= kept < 48 and is_loop(cy.sweep(cells.plain, GRID, SEEDS, store=where), want)


# --- the command ---------------------------------------------------------------------------------

SPEC = """
cell = "sweep_cells:failing"
seeds = [0, 1]
[grid]
beta = {start = 1, stop = 4, num = 3, log = true}
d = [2, 3]
[units]
beta = "1/kT"
"""


def test_a_file_whose_cell_refuses_its_grid_is_wrong_input(tmp_path: Path, capsys) -> None:
    from cynosure.cli import main

    spec = tmp_path / "s.toml"
    spec.write_text('cell = "sweep_cells:helped"\n[grid]\ny = [1]\n')
    assert main(["sweep", str(spec), "--store", str(tmp_path / "s.zarr")]) == 2
    assert "s.toml: cell: is called with y" in capsys.readouterr().err


def test_the_command(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SPEC)
    assert main(["sweep", "s.toml", "--store", "s.zarr"]) == 1
    said = capsys.readouterr()
    assert said.out == "s.zarr: 12 cells, 6 done, 6 failed\n"
    assert "failed: ValueError: no d = 3" in said.err and "--retry-failed" in said.err
    beta = cy.open_sweep("s.zarr")["beta"]
    np.testing.assert_allclose(beta, [1, 2, 4], rtol=1e-15)
    assert beta.attrs == {"units": "1/kT"}
    assert main(["sweep", "--store", "s.zarr", "--status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["cells"], told["done"], told["failed"], told["waiting"]) == (12, 6, 6, 0)
    assert main(["sweep", "s.toml", "--store", "s.zarr", "--retry-failed"]) == 1
    assert main(["sweep", "--list"]) == 0
    assert {"sphere", "long_context"} <= set(capsys.readouterr().out.split())


def test_the_command_interrupted(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SPEC)

    def interrupted(work: Any, jobs: Any, workers: Any, client: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "finished", interrupted)
    assert main(["sweep", "s.toml", "--store", "s.zarr"]) == 130
    assert "0 of 12 cells are in s.zarr; start the same again to go on" in capsys.readouterr().err


def test_whole_numbers_evenly_spaced_in_a_file_stay_whole(tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    axes = "beta = {start = 0, stop = 1, num = 3}\nd = {start = 7, stop = 1, num = 3}"
    spec.write_text(f'cell = "sweep_cells:failing"\nseeds = 1\n[grid]\n{axes}')
    grid = asked_for(spec)["grid"]
    assert grid == {"beta": [0.0, 0.5, 1.0], "d": [7, 4, 1]}
    assert [type(x) for x in grid["d"]] == [int, int, int]  # 7.0 tokens are refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cell = 3\n[grid]", "module:function"),
        ('cell = "sweep_cells"\n[grid]\nd = [2]', "module:Name"),
        ('cell = "sweep_cells:nothing"\n[grid]\nd = [2]', "has no nothing"),
        ('cell = "no_such_module:f"\n[grid]\nd = [2]', "no module no_such_module"),
        ('cell = "sweep_cells:plain"', "[grid]"),
        (SPEC.replace("num = 3", "num = 0"), "start = 0"),
        (SPEC.replace("start = 1", "start = -1"), "above 0"),
        (SPEC.replace("num = 3", "step = 3"), "start = 0"),
        (SPEC.replace("[0, 1]", "0"), "seeds"),
        (SPEC.replace("[0, 1]", '"two"'), "seeds"),
        (SPEC.replace("seeds", "sedes"), "unknown ['sedes']"),
        ("vectorized = 1\n" + SPEC, "true or false"),
        ("cell = ", "not TOML"),
        ("é".encode("latin-1"), "UTF-8"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: Any, message: str, capsys) -> None:
    spec = tmp_path / "s.toml"
    spec.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["sweep", str(spec), "--store", str(tmp_path / "s.zarr")]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [spec]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing", "--store", "s"], "sphere"),
        (["sphere"], "--store"),
        (["--store", "s"], "--list"),
        (["--store", "s", "--status"], "no such store"),
        (["sphere", "--store", "s", "--workers", "2", "--scheduler", "x"], "choose one"),
    ],
)
def test_a_wrong_command_is_refused(tmp_path: Path, monkeypatch, capsys, args, message) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *args]) == 2
    assert message in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_without_dask_or_zarr(tmp_path: Path, monkeypatch, capsys, want: dict) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert is_loop(cy.sweep(cells.plain, GRID, SEEDS, store=tmp_path / "s.zarr"), want)
    assert main(["sweep", "sphere", "--store", "s", "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert 'pip install "cynosure[scale]"' in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "zarr", None)
    for call in (lambda: cy.sweep(cells.plain, GRID, SEEDS), lambda: cy.open_sweep(tmp_path)):
        with pytest.raises(ImportError, match=r"cynosure\[scale\]"):
            call()


# --- the named sweeps ----------------------------------------------------------------------------


def test_the_named_sweeps_can_be_swept() -> None:
    for name in named():
        asked = asked_for(name)
        plan = Plan.of(**asked)
        assert plan.size > 10 and plan.identity()["cell"].startswith("cynosure.sweeps.cells:")


@pytest.mark.many
def test_tokens_that_have_met_on_the_sphere() -> None:
    """Against an adaptive run, one start at a time, and pairs counted one by one."""
    seeds = np.array([3, 4])
    found = sphere_met(4.0, 3, seeds, n=8, time=20.0, times=21)
    assert found["met"][0] == "t" and found["met"][1].shape == (2, 21)
    for row, s in zip(found["met"][1], seeds.tolist()):
        run = cy.simulate(
            cy.SphereFlow(cy.Softmax(4.0)),
            cy.configurations.sphere(8, 3, s),
            times=found["t"][1],
            stepper=cy.simulation.Adaptive(1e-10),
        )
        shares = [
            np.mean([x[i] @ x[j] >= 1 - 1e-3 for i in range(8) for j in range(i)]) for x in run.z
        ]
        assert np.abs(row - shares).max() <= 1 / 28  # a pair may meet a step earlier or later
    assert found["met"][1][:, -1].max() > 0.2 and (found["met"][1][:, 0] == 0).all()


def test_leaders_counted_are_as_many_as_expected() -> None:
    many = [leaders(2, 20, s) for s in range(60)]
    counts = np.array([x["first"] for x in many])
    error = counts.std(ddof=1) / np.sqrt(len(counts))
    assert abs(counts.mean() - many[0]["expected"]) < 4 * error
    assert (
        abs(counts.mean() - cy.theorems.expected_leaders(20, 3)) > 4 * error
    )  # the control: d + 1
    assert all(x["final"] >= x["first"] and x["undecided"] == 0 for x in many)
    z = cy.configurations.gaussian(20, 2, 5)
    born = cy.limit(cy.PureAttention(alpha=2.0), z).born.tolist()
    found = emergent_leaders(2.0, 20, 2, 5)
    assert found["first"] == born.count(0) and found["last"] == max(born)
    assert found["late"] == sum(k > 0 for k in born)


def test_a_layer_on_a_long_context_is_the_closed_form() -> None:
    for gamma, r in product((0.5, 2.0, 4.0), (0.1, 0.5, 0.9)):
        found = long_context(gamma, r, n=64)
        assert found["cosine"] == pytest.approx(found["closed"], abs=1e-12)
    assert (
        long_context(0.5, 0.5, 256)["cosine"] > 0.95
        and long_context(4.0, 0.5, 256)["cosine"] < 0.55
    )


SMALL: dict[str, tuple[dict[str, Any], Any]] = {
    "sphere": ({"beta": [0.0, 5.0], "d": [2, 3], "n": [4, 6], "time": 6.0, "times": 5}, range(2)),
    "leaders": ({"d": [1, 2], "n": [5, 9]}, range(5)),
    "emergent_leaders": ({"alpha": [0.5, 1.0], "n": [5, 9], "d": [1, 2, 3]}, range(3)),
    "long_context": ({"gamma": [0.5, 1.5, 3.0], "r": [0.1, 0.5], "n": [4, 8]}, None),
}


@pytest.mark.many
@pytest.mark.parametrize("name", named())
def test_the_pictures_of_the_page_are_drawn_from_stores(tmp_path: Path, name: str, capsys) -> None:
    grid, seeds = SMALL[name]
    asked = {**asked_for(name), "grid": grid, "seeds": seeds, "store": tmp_path / "s.zarr"}
    data = cy.sweep(**asked)
    assert data["n"].attrs["units"] == "tokens"
    picture = phase_diagram.draw(tmp_path / "s.zarr", tmp_path / "s.png")
    assert picture.read_bytes().startswith(b"\x89PNG") and capsys.readouterr().out
    assert (phase_diagram.HERE / f"{name}.png").stat().st_size <= 150_000


def test_the_controls_of_the_pictures_can_fail() -> None:
    """What is printed beside a picture tells a right formula from a wrong one."""
    t = np.linspace(0, 4, 5)
    assert phase_diagram.half_met(np.array([[0, 0.2, 0.6, 1, 1], [0, 0, 0, 0, 0]]), t)[0] == 2
    assert np.isnan(phase_diagram.half_met(np.zeros((1, 5)), t)).all()
    mean, error = np.array([[2.0, 3.0]]), np.array([[0.5, 0.0]])
    assert phase_diagram._errors(mean, error, np.array([[2.5, 3.0]])).tolist() == [-1.0]
    line = phase_diagram.meeting(8, np.array([0.0, 50.0]), 20.0)
    assert 0 < line[0] < 20 and np.isnan(line[1])
    assert phase_diagram.meeting(64, np.array([0.0]), 20.0) > line[0]
