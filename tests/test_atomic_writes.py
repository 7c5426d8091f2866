"""Nothing is lost: old or new at every instant, and never a file of the user's."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cynosure as cy
from cynosure._files import sweep, write_atomically
from cynosure._files.writing import _machine, alone
from cynosure.classifier.model.model import Model, load_files, save_files
from cynosure.classifier.model.plane import Plane
from cynosure.classifier.text.vocabulary import Vocabulary
from cynosure.cli import main
from cynosure.study.measurements import forget, keeping, kept

HERE = Path(__file__).parent
SAVES = ("model, replaced", "model, new", "model, linked", "trajectory", "report", "measurement")
SAVES += ("block of a sweep",)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a kill is simulated in a forked child")
def test_every_fault_at_every_call_leaves_the_old_or_the_new() -> None:
    """A kill and one of ENOSPC, EIO, EACCES at each call into the system that a save makes.

    All of them at all calls: `make fuzz`.
    """
    told = faults("40")
    careless = told.pop("naive")  # writing in place is noticed, so what follows could be
    assert sum("neither old nor new" in state for state in careless["states"]) >= 2
    assert set(told) == {*SAVES, "partition", "run --out"}
    for name, found in told.items():
        assert set(found["states"]) == {"old", "new"}, (name, found)
        assert found["calls"] >= 15 and found["runs"] >= 30


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a kill is simulated in a forked child")
def test_every_fault_at_every_call_leaves_a_store_of_surveys_old_or_new() -> None:
    pytest.importorskip("xarray")
    found = faults("40", "surveys of texts")["surveys of texts"]
    assert set(found["states"]) == {"old", "new"}, found
    assert 100 <= found["calls"] < 1000, "what a library reads at its first call is no save"
    assert found["runs"] == 2 * found["calls"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")
def test_writers_at_once_leave_what_one_of_them_saved() -> None:
    pytest.importorskip("xarray")
    pytest.importorskip("pyarrow")
    told = faults("rounds", "3")
    assert len(told) == 4 * 5 - 2 + 1
    assert all(found == {"right": 3} for found in told.values()), told


def test_a_folder_that_another_process_writes_is_named(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    busy = pytest.raises(TimeoutError, match="another process is writing")
    with alone(tmp_path), busy, alone(tmp_path, patience=0.05):
        pass
    with alone(tmp_path, patience=0.0) as locked:
        assert locked


def faults(*asked: str) -> dict[str, Any]:
    """What tests/faults.py tells in a process of its own: it forks, and has few threads."""
    path = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
    done = subprocess.run(
        [sys.executable, str(HERE / "faults.py"), *asked],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- models --------------------------------------------------------------------------------------


def tiny() -> tuple[Model, Vocabulary]:
    vocabulary, _ = Vocabulary.build(["good film", "good story !"], min_df=1)
    one = np.ones(1)
    plane = Plane(np.ones((len(vocabulary), 2)), np.ones(2), np.ones((1, 2)), one, one)
    return Model((plane,)), vocabulary


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("header", ["{}", '{"format": "thesis"}', "[1]", "", "{" * 100_000])
def test_a_folder_with_a_model_json_of_somebody_else_is_not_ours(tmp_path, header) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    (tmp_path / "model.json").write_text(header)
    with pytest.raises(ValueError, match="not a cynosure model"):
        save_files(tmp_path, *tiny(), {})
    assert listing(tmp_path) == ["model.json", "thesis.tex"]
    assert (tmp_path / "model.json").read_text() == header


@pytest.mark.parametrize(
    "name", ["thesis.tex", ".git", "model.safetensors.bak", "vocabulary.json~"]
)
def test_a_model_folder_with_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    folder = save_files(tmp_path / "model", *tiny(), {"x": 1})
    (folder / name).write_text("precious")
    with pytest.raises(ValueError, match="no part of a cynosure model"):
        save_files(folder, *tiny(), {"x": 2})
    assert (folder / name).read_text() == "precious" and load_files(folder)[2] == {"x": 1}


def test_fit_refuses_such_a_folder_before_it_fits(tmp_path: Path, capsys) -> None:
    folder = save_files(tmp_path / "model", *tiny(), {"x": 1})
    (folder / "thesis.tex").write_text("precious")
    assert main(["fit", "no-such-data.csv", "--out", str(folder), "--force"]) == 2
    assert "thesis.tex" in capsys.readouterr().err
    assert (folder / "thesis.tex").read_text() == "precious"


def test_a_linked_folder_stays_a_link(tmp_path: Path) -> None:
    folder = save_files(tmp_path / "model", *tiny(), {"x": 1})
    link = tmp_path / "link"
    link.symlink_to(folder, target_is_directory=True)
    save_files(link, *tiny(), {"x": 2})
    assert link.is_symlink() and load_files(folder)[2] == {"x": 2}
    assert listing(tmp_path) == ["link", "model"]
    assert listing(folder) == ["model.json", "model.safetensors", "vocabulary.json"]


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", lambda stream: stream.write(b"new"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_a_model_is_read_between_the_switch_and_the_tidying(tmp_path: Path, monkeypatch) -> None:
    """A save killed right after the manifest was replaced has saved the new model."""
    folder = save_files(tmp_path / "model", *tiny(), {"x": 1})
    model, vocabulary = tiny()
    moved = Plane(*(2 * x for x in (model.planes[0].embedding, model.planes[0].anchor)),
                  model.planes[0].v, model.planes[0].b, model.planes[0].prior)  # fmt: skip
    replace = os.replace

    def no_plain_names(a, b) -> None:
        if Path(b).name in ("model.safetensors", "vocabulary.json"):
            raise OSError("killed")
        replace(a, b)

    monkeypatch.setattr(os, "replace", no_plain_names)
    save_files(folder, Model((moved,)), vocabulary, {"x": 2})
    monkeypatch.undo()
    assert len(listing(folder)) == 5
    back, _, settings = load_files(folder)
    assert settings == {"x": 2} and back.planes[0].anchor[0] == 2.0
    save_files(folder, model, vocabulary, {"x": 3})
    assert len(listing(folder)) == 3 and load_files(folder)[0].planes[0].anchor[0] == 1.0


# --- what is no regular file ---------------------------------------------------------------------


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("command", [["--out"], ["--force", "--out"]])
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path, linked: bool, command) -> None:
    mkfifo = getattr(os, "mkfifo", None)
    if mkfifo is None:
        pytest.skip("no named pipes here")
    mkfifo(tmp_path / "p.csv")
    out = tmp_path / "p.csv"
    if linked:
        out = tmp_path / "link.csv"
        out.symlink_to("p.csv")
    reader = os.open(tmp_path / "p.csv", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["limit", "golden:G1", *command, str(out)]) == 0
        written = os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert main(["limit", "golden:G1", "--out", str(tmp_path / "file.csv")]) == 0
    assert written == (tmp_path / "file.csv").read_bytes()
    assert stat.S_ISFIFO(os.stat(out).st_mode) and len(listing(tmp_path)) == 2 + linked


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    if not hasattr(os, "openpty"):
        pytest.skip("no terminals here")
    ours, theirs = os.openpty()
    (tmp_path / "t.csv").symlink_to(os.ttyname(theirs))
    write_atomically(tmp_path / "t.csv", lambda stream: stream.write(b"1,2"))
    assert os.read(ours, 9) == b"1,2"
    assert stat.S_ISCHR(os.stat(tmp_path / "t.csv").st_mode)
    os.close(ours)
    os.close(theirs)


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the name of a file"):
        write_atomically(tmp_path, lambda stream: stream.write(b"1,2"))


def test_a_reader_that_leaves_is_told(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(tmp_path / "p")
    reader = os.open(tmp_path / "p", os.O_RDONLY | os.O_NONBLOCK)
    closing = threading.Timer(0.3, os.close, [reader])
    closing.start()
    with pytest.raises(ValueError, match="reader of this pipe left"):
        write_atomically(tmp_path / "p", lambda stream: stream.write(bytes(1 << 20)))


# --- temporaries ---------------------------------------------------------------------------------


def test_only_abandoned_temporaries_of_ours_are_swept(tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True)  # fmt: skip
    dead, here = int(gone.stdout), _machine()
    name = ".cynosure-{}-{}-0123456789abcdef.tmp"
    files = {
        "dead": name.format(here, dead),
        "alive": name.format(here, os.getppid()),
        "elsewhere": name.format("00000000", dead),
        "old": name.format("00000001", dead),
        "other": ".cynosure-notes.tmp",
        "user": ".run.npz.abcdefgh",
    }
    for file in files.values():
        (tmp_path / file).write_text("x")
    day_ago = time.time() - 100_000
    os.utime(tmp_path / files["old"], (day_ago, day_ago))
    sweep(tmp_path)
    assert set(listing(tmp_path)) == {files[k] for k in ("alive", "elsewhere", "other", "user")}


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 251 + ".npz")
    run = cy.simulate(cy.PureAttention(), np.eye(2), layers=1)
    assert cy.load(run.save(path)).z.tobytes() == run.z.tobytes()


# --- measurements --------------------------------------------------------------------------------


def measure(k: int) -> np.ndarray:
    CALLS.append(k)
    return np.random.default_rng(k).normal(size=50)


CALLS: list[int] = []


def test_force_forgets_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    with keeping(tmp_path) as store:
        kept(measure, 1)
    (ours,) = store.made
    np.savez(tmp_path / "mine.npz", x=np.ones(2))
    np.savez(tmp_path / "mine-0123456789abcdef.npz", x=np.ones(2))
    (tmp_path / "notes.npz").write_text("no archive")
    (tmp_path / f"copy-{ours}").write_bytes((tmp_path / ours).read_bytes())
    forget(tmp_path)
    assert listing(tmp_path) == sorted(
        ["mine.npz", "mine-0123456789abcdef.npz", "notes.npz", f"copy-{ours}"]
    )


def test_a_measurement_without_its_entry_is_measured_again(tmp_path: Path) -> None:
    """It is not taken for ours: neither read nor forgotten."""
    CALLS.clear()
    with keeping(tmp_path) as store:
        kept(measure, 2)
        path = tmp_path / store.made[0]
        with np.load(path) as file:
            parts = dict(file)
        np.savez_compressed(path, **parts)
        forget(tmp_path)
        assert listing(tmp_path) == [path.name]
        kept(measure, 2)
    assert CALLS == [2, 2]
    forget(tmp_path)
    assert listing(tmp_path) == []


def test_any_flipped_byte_measures_again_or_changes_nothing(tmp_path: Path) -> None:
    """A damaged file is never taken, but where only its entry is and still fits."""
    with keeping(tmp_path) as store:
        right = kept(measure, 3)
        path = tmp_path / store.made[0]
        whole = path.read_bytes()
        content = whole.index(b"cynosure-measurement")
        draw = np.random.default_rng(0)
        places = [*range(0, len(whole), 9), *range(len(whole) - 60, len(whole))]
        for at in places:
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(draw.integers(8))
            path.write_bytes(damaged)
            before = len(CALLS)
            assert kept(measure, 3).tobytes() == right.tobytes()
            assert at >= content or len(CALLS) == before + 1


def test_a_full_disk_is_told_of_the_file_alone(tmp_path, monkeypatch) -> None:
    """Not of a second one called None."""
    import errno
    import os

    from cynosure._files import write_atomically

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as raised:
        write_atomically(tmp_path / "x.csv", lambda stream: stream.write(b"1"))
    assert str(raised.value).endswith(f"'{tmp_path / 'x.csv'}'") and "None" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_device_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"x\.csv") as failed:
        write_atomically(tmp_path / "x.csv", lambda stream: stream.write(b"1,2\n"))
    assert failed.value.errno == 28 and (tmp_path / "x.csv").is_symlink()
